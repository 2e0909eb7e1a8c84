"""However a rank ends, the job ends: non-zero, within seconds, with the traceback once and tagged."""

import re

import pytest

PROLOGUE = """
import sys, threading
import numpy as np
from mpi4py import MPI
import mpicoll

comm = mpicoll.Communicator(MPI.COMM_WORLD)
comm.barrier()
x = np.ones(100_000, "float32")

def broken():
    raise ValueError("this went wrong")
"""

WAIT = "\ncomm.allreduce(x)\ncomm.allreduce(x)\n"

ENDINGS = {
    "an exception": "if comm.rank == 1: broken()",
    "an exception in a thread": (
        "if comm.rank == 1:\n    t = threading.Thread(target=broken); t.start(); t.join(); threading.Event().wait()"
    ),
    "a wrong argument": "if comm.rank == 1: comm.allreduce(x[::2])",
    "sys.exit(3)": "if comm.rank == 1: sys.exit(3)",
    "sys.exit with a message": "if comm.rank == 1: sys.exit('no more')",
    "raise SystemExit(3)": "if comm.rank == 1: raise SystemExit(3)",
    "exit(3), and nobody waits": "if comm.rank == 1: exit(3)\nthreading.Event().wait()",
    "an exception that leaves the communicator": "with comm:\n    if comm.rank == 1: broken()\n    comm.allreduce(x)",
    "an exception while others are in flight": "h = comm.iallreduce(x)\nif comm.rank == 1: broken()\nh.wait()",
}

TOLD = {
    "an exception": "ValueError: this went wrong",
    "an exception in a thread": "ValueError: this went wrong",
    "a wrong argument": "ValueError: allreduce: sendbuf is not C-contiguous",
    "sys.exit(3)": "SystemExit: 3",
    "sys.exit with a message": "SystemExit: no more",
    "raise SystemExit(3)": "SystemExit: 3",
    "exit(3), and nobody waits": "SystemExit: 3",
    "an exception that leaves the communicator": "ValueError: this went wrong",
    "an exception while others are in flight": "ValueError: this went wrong",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_rank_that_fails_ends_the_job_with_one_tagged_traceback(mpirun, ending):
    done = mpirun(3, PROLOGUE + ENDINGS[ending] + WAIT)
    assert done.returncode != 0
    assert len(re.findall(r"^\[rank 1\] Traceback", done.stderr, re.MULTILINE)) == 1, done.stderr
    assert done.stderr.count(f"[rank 1] {TOLD[ending]}") == 1, done.stderr
    assert not re.search(r"^Traceback", done.stderr, re.MULTILINE), "an untagged copy"


@pytest.mark.parametrize("ending", ["os._exit(3)", "sys.exit(0)", "raise SystemExit"])
def test_a_rank_that_leaves_in_any_other_way_leaves_nobody_waiting(mpirun, ending):
    done = mpirun(3, f"import os\n{PROLOGUE}\nif comm.rank == 1: {ending}\n{WAIT}")
    assert done.returncode != 0
    if "os._exit" not in ending:  # there the launcher ends the job
        told = r"PeerLeft: rank 1 has ended its program or closed the communicator, but rank \d waits in allreduce"
        assert re.search(told, done.stderr), done.stderr


@pytest.mark.parametrize("failing", ["mpicoll.Communicator(None)", "raise ValueError('too early')"])
def test_a_rank_that_fails_before_it_has_a_communicator_ends_the_job(mpirun, failing):
    program = PROLOGUE.replace(
        "comm = ", "if MPI.COMM_WORLD.rank == 1:\n    mpicoll.Communicator\n    " + failing + "\ncomm = "
    )
    done = mpirun(2, program)
    assert done.returncode != 0
    assert "[rank 1] Traceback" in done.stderr


def test_a_status_after_all_communicators_are_closed_just_ends_the_program(mpirun):
    done = mpirun(2, PROLOGUE + "comm.close()\ncomm.close()\nsys.exit(3)")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_programs_of_one_rank_are_left_as_they_are(mpirun):
    done = mpirun(1, PROLOGUE + "broken()")
    assert done.returncode != 0
    assert re.search(r"^Traceback", done.stderr, re.MULTILINE)
    assert "[rank 0]" not in done.stderr


def test_handles_that_are_dropped_are_told_and_their_memory_is_kept(mpirun):
    program = PROLOGUE + "big = np.ones(300_000, 'float32')\ncomm.iallreduce(big)\ndel big\n"
    for _ in range(3):
        done = mpirun(2, program)
        assert done.returncode == 0, done.stderr
        assert "mpicoll: 1 handles were never waited for" in done.stderr


@pytest.mark.parametrize("other", ["d.close()", "mpicoll.Communicator(MPI.COMM_WORLD)"])
def test_closing_and_making_communicators_drives_what_is_in_flight(mpirun, other):
    program = (
        PROLOGUE
        + "d = mpicoll.Communicator(MPI.COMM_WORLD)\nh = comm.iallreduce(np.ones(4_000_000), algorithm='ring')\n"
        + f"if comm.rank == 0:\n    h.wait(timeout=20)\n    {other}\nelse:\n    {other}\n    h.wait()\nprint('fine')"
    )
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def test_a_wait_and_a_thread_that_drives_do_not_meet_on_the_same_requests(mpirun):
    program = (
        PROLOGUE
        + "with mpicoll.progress.thread(1e-5):\n"
        + "    for i in range(200):\n        h = comm.iallreduce(x, algorithm='ring')\n        while True:\n"
        + "            try:\n                h.wait(timeout=1e-7)\n                break\n"
        + "            except mpicoll.Timeout:\n                pass\nprint('fine')"
    )
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def test_floating_point_errors_inside_do_not_break_the_collective(mpirun):
    program = (
        PROLOGUE
        + "np.seterr(all='raise')\nfor n in (1, 20_000, 200_000):\n    big = np.full(n, 3e38, 'float32')\n"
        + "    assert np.isinf(comm.allreduce(big)).all()\n    comm.allreduce(big, big, op='avg')\nprint('fine')"
    )
    done = mpirun(2, "-W", "error", "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def test_after_a_peer_has_left_a_handle_has_ended_and_the_communicator_can_be_closed(mpirun):
    program = (
        PROLOGUE
        + "h = comm.iallreduce(x) if comm.rank == 0 else comm.close()\nif comm.rank == 0:\n    try:\n        h.wait()\n"
        + "    except mpicoll.PeerLeft as error:\n        print(error)\n    assert h.done\n"
        + "    try:\n        comm.allreduce(x)\n    except RuntimeError as error:\n        print(error)\n"
        + "    comm.close()\n    print('fine')\n"
    )
    done = mpirun(2, program)
    assert "rank 1 has ended its program or closed the communicator, but rank 0 waits in allreduce" in done.stdout
    assert "allreduce: this communicator cannot be used any more: allreduce: rank 1 has ended" in done.stdout
    assert done.stdout.count("fine") == 1, done.stderr


def test_a_message_that_nobody_receives_does_not_turn_up_on_the_next_communicator(mpirun):
    program = (
        PROLOGUE
        + "comm.isend(np.full(4, 99.0), 1 - comm.rank).wait()\ncomm.close()\nd = mpicoll.Communicator(MPI.COMM_WORLD)\n"
        + "got = d.irecv(np.zeros(4), 1 - comm.rank)\nd.send(np.full(4, 1.0), 1 - comm.rank)\n"
        + "assert (got.wait() == 1.0).all()\nd.close()\nprint('fine')"
    )
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2
    assert "mpicoll: a message of 32 bytes from rank 0 was never received" in done.stderr


@pytest.mark.parametrize("wait", ["comm.allreduce(x)", "comm.iallreduce(x).wait()"])
def test_a_rank_that_left_by_an_exception_keeps_nobody_waiting(mpirun, wait):
    program = (
        PROLOGUE
        + "if comm.rank == 1:\n    try:\n        with comm:\n            broken()\n    except ValueError: pass\n"
        + f"    threading.Event().wait()\n{wait}"
    )
    done = mpirun(2, program)
    assert done.returncode != 0
    assert "PeerLeft: rank 1 has ended its program or closed the communicator, but rank 0 waits" in done.stderr


def test_closing_does_not_wait_for_a_rank_that_left_by_an_exception(mpirun):
    program = (
        PROLOGUE
        + "try:\n    with comm:\n        if comm.rank == 1: broken()\nexcept ValueError:\n    pass\n"
        + "MPI.COMM_WORLD.Barrier()\nprint('fine')"
    )
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def test_a_receive_that_times_out_does_not_take_the_next_message(mpirun):
    program = (
        PROLOGUE
        + "if comm.rank == 1:\n    try:\n        comm.recv(x, 0)\n    except mpicoll.Timeout:\n        pass\n"
        + "    try:\n        comm.recv(x, 0)\n    except RuntimeError as error:\n        print(error, flush=True)\n"
        + "    sys.exit(1)\nthreading.Event().wait()"
    )
    done = mpirun(2, program, MPICOLL_TIMEOUT="1")
    assert "recv: this communicator cannot be used any more: recv: rank 1 waits in recv" in done.stdout


def test_an_explicit_end_of_mpi_is_no_error(mpirun):
    done = mpirun(2, PROLOGUE + "comm.close()\nMPI.Finalize()\nprint('fine')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def test_exit_that_was_imported_before_is_caught_too(mpirun):
    program = "from sys import exit as leave\n" + PROLOGUE
    program += "try:\n    leave(3)\nexcept SystemExit as error:\n    error.code = 0\n    print(f'fine{error.code}')"
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine0") == 2


def test_a_handle_that_waits_for_a_rank_that_left_is_told(mpirun):
    done = mpirun(2, PROLOGUE + "if comm.rank == 0:\n    comm.iallreduce(x).wait()\n")
    assert done.returncode != 0
    assert "PeerLeft: rank 1 has ended its program" in done.stderr


def test_ranks_that_leave_at_different_times_are_no_error(mpirun):
    program = PROLOGUE + "comm.reduce(x, root=0)\nif comm.rank == 0:\n    import time; time.sleep(2)\nprint('fine')"
    done = mpirun(3, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 3
    assert not done.stderr


def test_sys_exit_that_is_caught_is_no_error(mpirun):
    program = PROLOGUE + "try:\n    sys.exit(3)\nexcept SystemExit:\n    pass\ncomm.barrier()\nprint('fine')"
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def test_different_counts_are_told_with_rank_round_and_lengths(mpirun):
    done = mpirun(2, PROLOGUE + "comm.allreduce(x[: 100 - 50 * comm.rank], algorithm='recursive_doubling')")
    assert done.returncode != 0
    told = (
        r"\[rank 1\] mpicoll.progress.path.CollectiveError: allreduce: round 0 on rank 1: rank 0 sent (400|more) bytes"
    )
    assert re.search(told + ", 200 were expected", done.stderr), done.stderr


def test_mpicoll_timeout_bounds_a_blocking_call(mpirun):
    program = PROLOGUE + "if comm.rank == 1: threading.Event().wait()\ncomm.allreduce(x)"
    done = mpirun(2, program, MPICOLL_TIMEOUT="1")
    assert done.returncode != 0
    assert "Timeout: rank 0 waits in allreduce (round 0: " in done.stderr


def test_a_wrong_mpicoll_timeout_is_told(mpirun):
    done = mpirun(1, PROLOGUE, MPICOLL_TIMEOUT="soon")
    assert done.returncode != 0
    assert "MPICOLL_TIMEOUT is 'soon'; it is a number of seconds, or 0 for no limit" in done.stderr


def test_an_exception_in_the_middle_keeps_memory_and_marks_the_communicator(mpirun):
    program = (
        PROLOGUE
        + """
from mpicoll.progress.call import LiveCall
from mpicoll.progress.path import KEPT, Path
from mpicoll.algorithms import FAMILIES, ring, prepare

scratches = []

def failing(inner):
    def algorithm(comm, *arguments):
        generator = inner(comm, *arguments)
        for i, items in enumerate(generator):
            if comm.rank == 1 and i == 1:
                scratches.extend(memory for memory, _ in comm.call.scratches)
                raise ArithmeticError("in round 1")
            yield items
    return algorithm

import mpicoll.jobs
algorithm = failing(ring.allreduce)

for form in ("blocking", "nonblocking"):
    c = mpicoll.Communicator(MPI.COMM_WORLD)
    c.allreduce(x)
    job = mpicoll.jobs.allreduce(c, x, None, "sum", None)
    chunks, results = prepare(ring.allreduce, (x, np.empty_like(x)), [34000, 33000, 33000])
    job.program = lambda comm, op: algorithm(comm, chunks, results, op)
    if c.rank == 1:
        before = list(KEPT)
        try:
            if form == "blocking":
                c._run(lambda *_: job, x, None)
            else:
                handle = c._start(lambda *_: job)
                for _ in range(10**6):  # whoever pumps does not get the error
                    mpicoll.progress.progress()
                    if handle.done:
                        break
                handle.wait()
        except ArithmeticError as error:
            print(form, error)
        (path,) = [kept for kept in KEPT if isinstance(kept, Path) and kept not in before]
        assert path.call.made and scratches  # made, never yielded: in flight
        given_back = [a for arrays in c._transport.pool.values() for a in arrays]
        assert not any(a is b for a in given_back for b in scratches), "scratch went back to the pool"
        try:
            c.allreduce(x)
        except RuntimeError as error:
            print(error)
        scratches.clear()
    else:
        block = 0 if form == "blocking" else c._transport.next_block()  # the same call, but with a timeout
        call = LiveCall(c._transport, job, block)
        try:
            mpicoll.Handle(Path(call, job.program(call.comm, call.op)), None).wait(timeout=0.5)
        except (mpicoll.Timeout, mpicoll.PeerLeft):
            pass
comm._transport.broken = "the test is over"
MPI.COMM_WORLD.Barrier()
if comm.rank == 1:
    print("done", flush=True)
    comm.allreduce(x)
else:
    threading.Event().wait()
"""
    )
    done = mpirun(3, program)
    assert done.returncode != 0
    for form in ("blocking", "nonblocking"):
        assert f"{form} in round 1" in done.stdout, done.stderr
    assert done.stdout.count("allreduce: this communicator cannot be used any more: allreduce: in round 1") == 2
    assert "done" in done.stdout
    assert (
        "[rank 1] RuntimeError: allreduce: this communicator cannot be used any more: the test is over" in done.stderr
    )
