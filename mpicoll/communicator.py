"""The collectives as users call them."""

from mpi4py import MPI

from . import arguments, leaving, runtime, selection
from .algorithms import prepare
from .algorithms.cut import even
from .arrays import NumPyArrays
from .progress.call import Job, LiveCall, Transport
from .progress.engine import Handle, drive, progress, run
from .progress.path import begin
from .progress.plan import Plan, RecordingCall
from .progress.replay import Replays

runtime.install_abort_hook(leaving.is_over)


class Communicator:
    """Collectives over the ranks of an mpi4py communicator, by point-to-point messages of mpicoll's own algorithms.

    Buffers are C-contiguous NumPy arrays of any shape, of float32, float64 or any integer type; lower case does not
    mean pickled objects here, as it does in mpi4py. Every collective comes in three forms with the same arguments:

        comm.allreduce(x, y)               blocking: returns the result
        handle = comm.iallreduce(x, y)     nonblocking: returns a Handle; `handle.wait()` returns the result
        plan = comm.allreduce_init(x, y)   persistent: returns a Plan; `plan.start()`, `plan.wait()` again and again

    All ranks call the same collectives in the same order, with the same counts, dtypes, op, root and algorithm.
    `recvbuf=None` returns a new array and leaves sendbuf alone; in place is said by passing the same memory as both
    (for reduce_scatter and allgather the own part of the larger one). `algorithm` forces one by name; None chooses.
    Wrong arguments raise TypeError or ValueError before any message is sent. While handles are in flight, call no
    blocking functions of MPI itself: nobody would drive the handles, and the ranks could wait for each other for ever.

    A handle that is dropped without `wait` may never end, and those who wait for its messages are told when this rank
    ends. Small buffers with which a blocking call comes again and again are kept alive by the communicator.

    Args:
        mpi_comm: an mpi4py intracommunicator; it is duplicated, which is collective, so messages never mix with yours.
            Close what you no longer need, or use `with`: MPIs have only some 2,000 communicators.

    Attributes:
        rank, size: this rank, and how many there are.
        bytes_sent: bytes that this rank has sent so far in collectives of this communicator.
    """

    def __init__(self, mpi_comm):
        if isinstance(mpi_comm, MPI.Comm) and mpi_comm == MPI.COMM_NULL:
            raise ValueError("Communicator: mpi_comm is MPI.COMM_NULL: this rank is not part of it")
        if not isinstance(mpi_comm, MPI.Intracomm):
            raise TypeError(f"Communicator: mpi_comm is of type {type(mpi_comm).__name__}; pass e.g. MPI.COMM_WORLD")
        duplicate, request = mpi_comm.Idup()  # not Dup: others may still need this rank to drive what is in flight
        drive([request])
        duplicate.Set_errhandler(MPI.ERRORS_RETURN)
        self._transport = Transport(duplicate)
        self._replays = Replays(self._transport)
        self._transport.at_close.append(self._replays.clear)
        self.rank, self.size = self._transport.rank, self._transport.size
        leaving.register(self._transport)

    @property
    def bytes_sent(self):
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

    def algorithm_for(self, collective, nbytes):
        """The name of the algorithm that runs if none is forced, for a buffer of `nbytes` bytes."""
        return selection.choose(collective, nbytes, self.size)

    @staticmethod
    def progress():
        """Everything nonblocking of this process has gone on as far as it can without waiting."""
        progress()

    # Each collective: blocking, nonblocking, persistent; then what they have in common.

    def broadcast(self, buf, root=0, algorithm=None):
        """buf holds on every rank what it holds on `root`; it is returned.

        Args:
            buf: of the same count and dtype on every rank; written to on all but the root.
        """
        root = arguments.rank("broadcast", "root", root, self.size)
        return self._run(self._broadcast, buf, None, root, algorithm)

    def ibroadcast(self, buf, root=0, algorithm=None):
        """`broadcast`, nonblocking."""
        return self._start(self._broadcast(buf, None, root, algorithm))

    def broadcast_init(self, buf, root=0, algorithm=None):
        """`broadcast`, persistent."""
        return self._plan(self._broadcast(buf, None, root, algorithm))

    def _broadcast(self, buf, _, root, algorithm):
        name, size = "broadcast", self.size
        root = arguments.rank(name, "root", root, size)
        kind, flat = arguments.buffer(name, "buf", buf, writable=self.rank != root)
        function = selection.find(name, algorithm, flat.nbytes, size)
        (array,) = prepare(function, (flat,), even(len(flat), size))
        return self._job(name, kind, flat, "sum", lambda comm, op: function(comm, array, root), buf)

    def reduce(self, sendbuf, recvbuf=None, op="sum", root=0, algorithm=None):
        """The reduction of sendbuf over all ranks, on `root`; None elsewhere.

        Args:
            sendbuf: of the same count and dtype on every rank; only read, unless it is recvbuf.
            recvbuf: on the root, for as many elements; not used elsewhere.
            op: "sum", "max" or "avg" (not of integers); mpi4py's MPI.SUM and MPI.MAX are accepted for their names.
        """
        root = arguments.rank("reduce", "root", root, self.size)
        recvbuf = recvbuf if self.rank == root else None
        return self._run(self._reduce, sendbuf, recvbuf, op, root, algorithm)

    def ireduce(self, sendbuf, recvbuf=None, op="sum", root=0, algorithm=None):
        """`reduce`, nonblocking."""
        return self._start(self._reduce(sendbuf, recvbuf, op, root, algorithm))

    def reduce_init(self, sendbuf, recvbuf=None, op="sum", root=0, algorithm=None):
        """`reduce`, persistent."""
        return self._plan(self._reduce(sendbuf, recvbuf, op, root, algorithm))

    def _reduce(self, sendbuf, recvbuf, op, root, algorithm):
        name, size = "reduce", self.size
        root = arguments.rank(name, "root", root, size)
        kind, send, op = self._reducible(name, sendbuf, op)
        recv = None
        if self.rank == root:
            recvbuf, recv = self._receive(name, kind, recvbuf, sendbuf, send)
        else:
            recvbuf = None
        function = selection.find(name, algorithm, send.nbytes, size)
        arrays = prepare(function, (send, recv), even(len(send), size))
        return self._job(name, kind, send, op, lambda comm, op: function(comm, *arrays, op, root), recvbuf)

    def allreduce(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        """The reduction of sendbuf over all ranks, on every rank, with the same bits.

        Args:
            sendbuf: of the same count and dtype on every rank; only read, unless it is recvbuf.
            recvbuf: for as many elements; the same array as sendbuf for in place.
            op: "sum", "max" or "avg" (not of integers).
        """
        return self._run(self._allreduce, sendbuf, recvbuf, op, algorithm)

    def iallreduce(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        """`allreduce`, nonblocking."""
        return self._start(self._allreduce(sendbuf, recvbuf, op, algorithm))

    def allreduce_init(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        """`allreduce`, persistent."""
        return self._plan(self._allreduce(sendbuf, recvbuf, op, algorithm))

    def _allreduce(self, sendbuf, recvbuf, op, algorithm):
        name = "allreduce"
        kind, send, op = self._reducible(name, sendbuf, op)
        recvbuf, recv = self._receive(name, kind, recvbuf, sendbuf, send)
        function = selection.find(name, algorithm, send.nbytes, self.size)
        arrays = prepare(function, (send, recv), even(len(send), self.size))
        return self._job(name, kind, send, op, lambda comm, op: function(comm, *arrays, op), recvbuf)

    def reduce_scatter(self, sendbuf, recvbuf=None, op="sum", counts=None, algorithm=None):
        """This rank's part of the reduction of sendbuf over all ranks; sendbuf is cut along its first axis.

        Args:
            sendbuf: of the same shape and dtype on every rank; only read, unless recvbuf is part of it.
            recvbuf: for the elements of this rank's part; sendbuf's own part for in place.
            op: "sum", "max" or "avg" (not of integers).
            counts: how many rows belong to each rank, the same on all; None: the first axis divides by size.
        """
        return self._run(self._reduce_scatter, sendbuf, recvbuf, op, counts, algorithm)

    def ireduce_scatter(self, sendbuf, recvbuf=None, op="sum", counts=None, algorithm=None):
        """`reduce_scatter`, nonblocking."""
        return self._start(self._reduce_scatter(sendbuf, recvbuf, op, counts, algorithm))

    def reduce_scatter_init(self, sendbuf, recvbuf=None, op="sum", counts=None, algorithm=None):
        """`reduce_scatter`, persistent."""
        return self._plan(self._reduce_scatter(sendbuf, recvbuf, op, counts, algorithm))

    def _reduce_scatter(self, sendbuf, recvbuf, op, counts, algorithm):
        name, size, rank = "reduce_scatter", self.size, self.rank
        kind, send, op = self._reducible(name, sendbuf, op)
        shape, lengths = arguments.scattered(name, sendbuf, counts, size, rank)
        what = f"rank {rank}'s part of sendbuf has {lengths[rank]}"
        recvbuf, recv = arguments.receive(name, kind, recvbuf, shape, sendbuf, what)
        start = sum(lengths[:rank])
        own = send[start : start + lengths[rank]]
        arguments.no_overlap(name, kind, send, recv, own, "sendbuf's own part as recvbuf")
        function = selection.find(name, algorithm, send.nbytes, size)
        arrays = prepare(function, (send, recv), lengths)
        return self._job(name, kind, send, op, lambda comm, op: function(comm, *arrays, op), recvbuf)

    def allgather(self, sendbuf, recvbuf=None, counts=None, algorithm=None):
        """Every rank's sendbuf, one after the other along the first axis, on every rank.

        Args:
            sendbuf: of the same dtype on every rank, and of the same shape but for the first axis if counts are given;
                only read.
            recvbuf: for the elements of all; sendbuf may be its own part (in place).
            counts: how many rows each rank has, the same on all; None: all have as many.
        """
        return self._run(self._allgather, sendbuf, recvbuf, counts, algorithm)

    def iallgather(self, sendbuf, recvbuf=None, counts=None, algorithm=None):
        """`allgather`, nonblocking."""
        return self._start(self._allgather(sendbuf, recvbuf, counts, algorithm))

    def allgather_init(self, sendbuf, recvbuf=None, counts=None, algorithm=None):
        """`allgather`, persistent."""
        return self._plan(self._allgather(sendbuf, recvbuf, counts, algorithm))

    def _allgather(self, sendbuf, recvbuf, counts, algorithm):
        name, size, rank = "allgather", self.size, self.rank
        kind, send = arguments.buffer(name, "sendbuf", sendbuf)
        shape, lengths = arguments.gathered(name, sendbuf, counts, size, rank)
        what = f"all ranks together send {sum(lengths)}"
        recvbuf, recv = arguments.receive(name, kind, recvbuf, shape, sendbuf, what)
        start = sum(lengths[:rank])
        own = recv[start : start + lengths[rank]]
        arguments.no_overlap(name, kind, recv, send, own, "recvbuf's own part as sendbuf")
        function = selection.find(name, algorithm, recv.nbytes, size)
        arrays = prepare(function, (send, recv), lengths)
        return self._job(name, kind, recv, "sum", lambda comm, op: function(comm, *arrays), recvbuf)

    def barrier(self, algorithm=None):
        """No rank returns before all have called it."""
        return self._run(self._barrier, None, None, algorithm)

    def ibarrier(self, algorithm=None):
        """`barrier`, nonblocking."""
        return self._start(self._barrier(None, None, algorithm))

    def barrier_init(self, algorithm=None):
        """`barrier`, persistent."""
        return self._plan(self._barrier(None, None, algorithm))

    def _barrier(self, _, __, algorithm):
        token = NumPyArrays.memory(0)
        function = selection.find("barrier", algorithm, 0, self.size)
        return self._job("barrier", NumPyArrays, token, "sum", lambda comm, op: function(comm, token, op), None)

    def _reducible(self, name, sendbuf, op):
        kind, send = arguments.buffer(name, "sendbuf", sendbuf)
        return kind, send, arguments.operation(name, op, send.dtype)

    def _receive(self, name, kind, recvbuf, sendbuf, send):
        """recvbuf and its flat view, of as many elements as sendbuf; `send` itself if they are the same array."""
        if recvbuf is sendbuf:
            arguments.buffer(name, "recvbuf", recvbuf, writable=True)
            return recvbuf, send
        what = f"sendbuf has {len(send)}"
        recvbuf, recv = arguments.receive(name, kind, recvbuf, sendbuf.shape, sendbuf, what)
        arguments.no_overlap(name, kind, send, recv, send, "the same array as both")
        return recvbuf, recv

    def _job(self, name, kind, array, op, program, result):
        self._transport.check(name)
        return Job(name, kind, array, op, program, result)

    def _run(self, check, first, second, *rest):
        """The result of a blocking call of which `check` makes the job; first and second are its arrays or None."""
        key = (check.__name__, id(first), id(second), *rest)
        try:
            replay = self._replays.find(key)
        except TypeError:  # something cannot be a key: the checks know what to say
            replay = key = None
        if not replay:
            job = check(first, second, *rest)
            replay = key and self._replays.note(key, (first, second), job)
        if replay:
            return replay.run()
        call = LiveCall(self._transport, job, 0)
        run(begin(call, job.program(call.comm, call.op)))
        return job.result

    def _start(self, job):
        transport = self._transport
        call = LiveCall(transport, job, transport.next_block())
        handle = Handle(begin(call, job.program(call.comm, call.op)), job.result)
        transport.in_flight(handle)
        return handle

    def _plan(self, job):
        transport = self._transport
        block = transport.plan_block(job.name)
        call = RecordingCall(transport, job, block)
        plan = Plan(call, job.program(call.comm, call.op), job.result, lambda: transport.plans.pop(block))
        transport.plans[block] = plan
        return plan
