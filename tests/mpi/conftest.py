"""Under mpirun: one report, rank 0's; a test that fails on one rank fails on all."""

import os
import sys
import tempfile

import numpy as np
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


def pytest_collection_modifyitems(config, items):
    """Tests with the mark `ranks` are run on so many only, as time is short: skipping takes as long as a short test."""
    if config.getoption("--only-mpi"):
        from mpi4py import MPI

        size, every = MPI.COMM_WORLD.size, list(items)
        items[:] = [item for item in every if all(size in mark.args[0] for mark in item.iter_markers("ranks"))]
        config.hook.pytest_deselected(items=[item for item in every if item not in set(items)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if not item.config.getoption("--only-mpi") or report.when == "teardown":
        return report
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if report.failed and world.rank > 0:  # at once: if the others hang, this is all there will be
        sys.stderr.write(f"[rank {world.rank}] {item.nodeid} failed:\n{report.longreprtext}\n")
        sys.stderr.flush()
    bad = np.empty(world.size, bool)
    request = world.Iallgather(np.array([report.failed]), bad)
    while not request.Test():  # unlike Allgather it leaves the cores to the others
        os.sched_yield()
    if bad.any() and not report.failed:
        report.outcome = "failed"
        report.longrepr = f"failed on rank {', '.join(map(str, np.flatnonzero(bad)))}"
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
