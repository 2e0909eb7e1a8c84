"""Under mpirun: one report, rank 0's; a test that fails on one rank fails on all."""

import os
import sys
import tempfile

import pytest


@pytest.hookimpl(trylast=True)  # when the terminal reporter is there
def pytest_configure(config):
    if config.getoption("--only-mpi"):
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank > 0:  # the other ranks say something only when they fail
            config.pluginmanager.unregister(config.pluginmanager.get_plugin("terminalreporter"))
        # a folder of its own: ranks that share one clean up under each other's feet
        folder = tempfile.TemporaryDirectory(prefix="mpicoll-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if not item.config.getoption("--only-mpi"):
        return report
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if report.failed and world.rank > 0:  # at once: if the others hang, this is all there will be
        sys.stderr.write(f"[rank {world.rank}] {item.nodeid} failed:\n{report.longreprtext}\n")
        sys.stderr.flush()
    failed = [rank for rank, bad in enumerate(world.allgather(report.failed)) if bad]
    if failed and not report.failed:
        report.outcome = "failed"
        report.longrepr = f"failed on rank {', '.join(map(str, failed))}"
    return report


@pytest.fixture(scope="session")
def comm():
    from mpi4py import MPI

    import mpicoll

    return mpicoll.Communicator(MPI.COMM_WORLD)


_combinations = []


@pytest.fixture
def combinations():
    """A list to which a test adds an entry for each combination that it checks; the report says how many there were."""
    return _combinations


def pytest_terminal_summary(terminalreporter):
    if _combinations:
        terminalreporter.write_line(
            f"{len(_combinations):,} combinations of collective, algorithm, form, dtype, op, "
            "buffers, count and root on this rank"
        )
