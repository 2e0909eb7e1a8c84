"""The Communicator: where calls become collectives that run."""

import functools
import json
import os

import numpy as np
from mpi4py import MPI

from . import arrays, debug, foreign, gpu, jobs, launch, leaving, runtime, selection, topology, tuning
from .algorithms.cut import even
from .collectives import Collectives
from .progress.call import LiveCall, in_turn
from .progress.engine import ENGINE, Handle, drive, progress, run
from .progress.group import complete, started
from .progress.path import begin
from .progress.plan import Plan, RecordingCall
from .progress.replay import Replays
from .progress.transport import Transport

runtime.install_abort_hook(leaving.is_over)

# what surely is no array of another library
_PLAIN = {np.ndarray, np.memmap, type(None), bool, int, str, tuple, list, MPI.Op, np.int32, np.int64}


class Communicator(Collectives):
    """Collectives over the ranks of an mpi4py communicator, by point-to-point messages of mpicoll's own algorithms.

    Buffers are C-contiguous arrays of any shape, of any float (also bfloat16 and 8 bits), complex or integer type or
    bool: NumPy's, CuPy's, or of a library that lends its memory by DLPack or `__cuda_array_interface__` (a new result
    is then NumPy's or CuPy's). Lower case does not mean pickled objects here, as it does in mpi4py. Every collective
    comes in three forms with the same arguments:

        comm.allreduce(x, y)               blocking: returns the result
        handle = comm.iallreduce(x, y)     nonblocking: returns a Handle; `handle.wait()` returns the result
        plan = comm.allreduce_init(x, y)   persistent: returns a Plan; `plan.start()`, `plan.wait()` again and again

    All ranks call the same collectives in the same order, with the same counts, dtypes, op, root and algorithm. In
    place is said by passing the same memory as both buffers (for reduce_scatter, allgather, gather and scatter the own
    part of the larger one). While handles are in flight, call no blocking functions of MPI itself: nobody would drive
    the handles, and the ranks could wait for each other for ever. A handle that is dropped without `wait` may never
    end, and those who wait for its messages are told when this rank ends.

    Args:
        mpi_comm: an mpi4py intracommunicator; it is duplicated, which is collective, so messages never mix with yours.
            Close what you no longer need, or use `with`: MPIs have only some 2,000 communicators.
        duplicate: False gives it away instead: from then on it is the Communicator's alone.

    Raises:
        ValueError: a launcher has started several processes that are each a world of size 1 (MPI.COMM_SELF is always
            right, and MPICOLL_SINGLETON=1 says that they are meant), or a variable of MPICOLL_... cannot be used.

    Attributes:
        rank, size: this rank, and how many there are.
        node, local_rank: the number of this rank's node, counted by lowest rank, and its rank among those of the node
            that are in this communicator (so devices are best chosen by the world's).
        places: (node, local rank) of every rank.
        nodes: the node of every rank.
        checked: whether MPICOLL_DEBUG was 1 on rank 0 when this was made: all calls are compared over the ranks.
    """

    def __init__(self, mpi_comm, duplicate=True):
        if isinstance(mpi_comm, MPI.Comm) and mpi_comm == MPI.COMM_NULL:
            raise ValueError("Communicator: mpi_comm is MPI.COMM_NULL: this rank is not part of it")
        if not isinstance(mpi_comm, MPI.Intracomm):
            raise TypeError(f"Communicator: mpi_comm is of type {type(mpi_comm).__name__}; pass e.g. MPI.COMM_WORLD")
        if mpi_comm != MPI.COMM_SELF:
            launch.refuse_singletons(MPI.COMM_WORLD.size)
        if duplicate:
            mpi_comm, request = mpi_comm.Idup()  # not Dup: others may need this rank to drive what is in flight
            drive([request])
        mpi_comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._transport = Transport(mpi_comm)
        self._replays = Replays(self._transport)
        self._transport.at_close.append(self._replays.clear)
        self.rank, self.size = self._transport.rank, self._transport.size
        leaving.register(self._transport)
        self.checked, self._checks = False, None
        self.allowed, self.links, self.rules = selection.parse(""), selection.HOST, None
        self.nodes = selection.Nodes((0,) * self.size)
        names = self.iallgather(topology.own_name(), algorithm="ring").wait().reshape(self.size, -1)
        self.places = topology.number_nodes(map(bytes, names))
        self.nodes = selection.Nodes(node for node, _ in self.places)
        self.node, self.local_rank = self.places[self.rank]
        ENGINE.share_cores(self.nodes.count(self.node))
        table = tuning.look() if self.rank == 0 else ()
        try:
            checked = debug.wanted()
        except ValueError as error:  # all ranks raise it, below
            checked = str(error)
        told = json.dumps([os.environ.get(selection.VARIABLE, ""), gpu.in_use(), checked, *table])
        text, devices, checked, *table = json.loads(self._of_rank_0(told))
        hosts = [bytes(name).rstrip(b"\0").decode() for name in names]
        try:
            if isinstance(checked, str):
                raise ValueError(checked)
            self.allowed = selection.parse(text)
            tuned = tuning.tuned(tuning.Source(*table), self.nodes, tuning.this_mpi(), hosts)
        except ValueError:
            self.close()  # in order: it is raised on every rank
            raise
        if devices:
            self.links = selection.DEVICE
        elif tuned:
            self.links, self.rules = tuned.links, tuned.rules
            arrays.copy_between(*tuned.entry.copied)
        if checked:
            self.checked, self._checks = True, debug.Checks(self.rank, self._tell_all)
            self._transport.poisons = True
        self._transport.begin()

    def _tell_all(self, line):
        """The bytes of all ranks, one after the other; it counts nowhere."""
        job = jobs.allgather(self, line, None, None, "ring")
        job.name = "the comparison of calls"
        lines = self._launch(job, noted=False).wait()
        self._transport.bytes_sent -= (self.size - 1) * line.nbytes  # a ring's; others in flight send meanwhile
        return lines

    def _of_rank_0(self, text):
        """Rank 0's text: what decides on all ranks must be the same on all."""
        content = np.frombuffer(text.encode(), np.uint8)
        length = self.ibroadcast(np.array([len(content)]), algorithm="tree").wait()[0]  # i-forms: also inside a group
        content = content.copy() if self.rank == 0 else np.empty(length, np.uint8)
        return bytes(self.ibroadcast(content, algorithm="tree").wait()).decode()

    @property
    def bytes_sent(self):
        """Bytes that this rank has sent so far in calls of this communicator."""
        return self._transport.bytes_sent

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        else:  # the other ranks may be anywhere: no collective call
            self._transport.fail(f"it was left by {kind.__name__}", error)

    def close(self):
        """The communicator is freed, when every rank has called this, and with it its plans; once more does nothing.

        Raises:
            RuntimeError: handles or plans are under way.
        """
        if not self._transport.broken and not self._transport.idle():
            raise RuntimeError("close: handles or plans are still under way; wait for them first")
        leaving.leave([self._transport])

    def explain(self, collective, nbytes, algorithm=None):
        """Which algorithm a call takes, and why: a selection.Choice, which can be printed.

        Args:
            collective: its name, as in "allreduce".
            nbytes: of the whole buffer (of all ranks' parts together where it is scattered or gathered).
            algorithm: what the call would pass.

        Raises:
            ValueError: there is no such collective or algorithm, or MPICOLL_ALGORITHM allows none.
        """
        if not isinstance(nbytes, int | np.integer) or nbytes < 0:
            raise ValueError(f"explain: nbytes is {nbytes!r}; it is a number of bytes, 0 or more")
        if collective == "alltoallv" and algorithm is None:  # a rank knows only its own counts: they must not matter
            nbytes = 0
        if collective not in self.allowed:
            raise ValueError(f"explain: {collective!r} is no collective; there are {', '.join(self.allowed)}")
        if algorithm is not None:
            return selection.forced(collective, algorithm)
        return selection.choose(collective, nbytes, self.nodes, self.allowed[collective], self.links, self.rules)

    def cost(self, collective, count, itemsize, algorithm=None, root=0):
        """What a call costs this rank by the closed forms, a cost.Cost with rounds, messages and bytes.

        Args:
            collective, algorithm: as for `explain`.
            count, itemsize: elements of the whole buffer, cut as evenly as possible, and bytes of one.
            root: of the call.

        Raises:
            ValueError: as for `explain`.
        """
        name, counts = self.explain(collective, count * itemsize, algorithm).algorithm, even(count, self.size)
        return selection.cost_of(collective, name, self.rank, counts, itemsize, root, self.nodes, self.links)

    @staticmethod
    def progress():
        """Everything nonblocking of this process has gone on as far as it can without waiting."""
        progress()

    def _run(self, make, first, second, *rest):
        """The result of a blocking call of which `make` makes the job; first and second are its arrays or None."""
        key = make, id(first), id(second), rest
        try:
            replay = self._replays.known.get(key)
        except TypeError:  # something cannot be a key: the checks know what to say
            replay = key = None
        if started() is not None:
            return self._finish(self._start(make, first, second, *rest))
        if replay is None or not replay.usable():
            job = self._checked(make, "", first, second, *rest)

            def same(first, second):
                return make(self, first, second, *rest)

            replay = key and not self._checks and self._replays.note(key, (first, second), same, job)
        if replay:
            replay.run()
            return (first, second)[replay.result] if replay.result is not None else None
        call = LiveCall(self._transport, job, 0)
        self._transport.note(call.about)
        run(begin(call, job.program(call.comm, call.op)))
        return job.result

    def _start(self, make, *arguments):
        return self._launch(self._checked(make, "nonblocking", *arguments))

    def _launch(self, job, noted=True):
        transport = self._transport
        call = LiveCall(transport, job, transport.next_block())
        if noted:
            transport.note(call.about)
        handle = Handle(begin(call, job.program(call.comm, call.op)), job.result)
        transport.in_flight(handle)
        return handle

    def _plan(self, make, *arguments):
        transport = self._transport
        job = self._checked(make, "plan", *arguments)
        block = transport.plan_block(job.name)
        call = RecordingCall(transport, job, block)
        kind = Plan
        if checks := self._checks:
            kind = functools.partial(debug.CheckedPlan, checks, functools.partial(checks.poison, job, make, arguments))
        plan = kind(call, job.program(call.comm, call.op), job.result, lambda: transport.plans.pop(block))
        transport.plans[block] = plan
        return plan

    def _message(self, make, *arguments):
        """The handle of a point-to-point message."""
        job = self._job(make, *arguments)
        call = LiveCall(self._transport, job, self._transport.point_to_point)
        self._transport.note(call.about)
        path = begin(call, job.program(call.comm, call.op))
        path.generator = in_turn(call, path.generator, job.routes)
        return Handle(path, job.result)

    @staticmethod
    def _finish(handle):
        """The handle's result: at once, or inside a group as it will be at the group's end."""
        handles = started()
        if handles is None:
            return complete(handle)
        handles.append(handle)
        return handle.result

    def _checked(self, make, form, *arguments):
        """The job of a collective, which with MPICOLL_DEBUG all ranks are about to start alike."""
        job = self._job(make, *arguments)
        if self._checks:
            self._checks(job, make, arguments, form)
        return job

    def _job(self, make, *arguments):
        if all(type(argument) in _PLAIN for argument in arguments):
            job = make(self, *arguments)
        else:
            job = self._foreign_job(make, arguments)
        self._transport.check(job.name)
        return job

    def _foreign_job(self, make, arguments):
        """The job of arguments among which may be arrays of other libraries; the caller gets back what he passed."""
        natives = [foreign.native(argument) for argument in arguments]
        job = make(self, *natives)
        theirs = [pair for pair in zip(natives, arguments, strict=True) if pair[0] is not pair[1]]
        if theirs:
            job.result = next((array for native, array in theirs if native is job.result), job.result)
            job.ready = functools.partial(_ready, job.kind, [array for _, array in theirs])
        return job


def _ready(kind, arrays):
    """The kind's own event, after what other libraries have queued on their arrays."""
    for array in arrays:
        foreign.refresh(array)
    return kind.ready()
