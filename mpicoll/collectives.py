"""The collectives and point-to-point messages as users call them, each in its forms."""

from . import arguments, jobs


class Collectives:
    """The calls of a Communicator. In all of them:

    Arrays are C-contiguous, of any shape. `recvbuf=None` returns a new array and leaves sendbuf alone. `op` is "sum",
    "prod", "max", "min" or "avg", or mpi4py's MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN; max and min are not defined for
    complex numbers, avg not for integers, bool knows only max and min. `algorithm` names the algorithm, or is one:
    a function as in `algorithms`, its options bound by functools.partial; None chooses. Wrong arguments
    raise TypeError or ValueError before any message is sent.
    """

    def broadcast(self, buf, root=0, algorithm=None):
        """buf holds on every rank what it holds on `root`; it is returned.

        Args:
            buf: of the same count and dtype on every rank; written to on all but the root.
        """
        root = arguments.rank("broadcast", "root", root, self.size)
        return self._run(jobs.broadcast, buf, None, root, algorithm)

    def ibroadcast(self, buf, root=0, algorithm=None):
        """`broadcast`, nonblocking."""
        return self._start(jobs.broadcast, buf, None, root, algorithm)

    def broadcast_init(self, buf, root=0, algorithm=None):
        """`broadcast`, persistent."""
        return self._plan(jobs.broadcast, buf, None, root, algorithm)

    def reduce(self, sendbuf, recvbuf=None, op="sum", root=0, algorithm=None):
        """The reduction of sendbuf over all ranks, on `root`; None elsewhere.

        Args:
            sendbuf: of the same count and dtype on every rank; only read, unless it is recvbuf.
            recvbuf: on the root, for as many elements; not used elsewhere.
        """
        root = arguments.rank("reduce", "root", root, self.size)
        return self._run(jobs.reduce, sendbuf, recvbuf if self.rank == root else None, op, root, algorithm)

    def ireduce(self, sendbuf, recvbuf=None, op="sum", root=0, algorithm=None):
        """`reduce`, nonblocking."""
        return self._start(jobs.reduce, sendbuf, recvbuf, op, root, algorithm)

    def reduce_init(self, sendbuf, recvbuf=None, op="sum", root=0, algorithm=None):
        """`reduce`, persistent."""
        return self._plan(jobs.reduce, sendbuf, recvbuf, op, root, algorithm)

    def allreduce(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        """The reduction of sendbuf over all ranks, on every rank, with the same bits.

        Args:
            sendbuf: of the same count and dtype on every rank; only read, unless it is recvbuf.
            recvbuf: for as many elements; the same array as sendbuf for in place.
        """
        return self._run(jobs.allreduce, sendbuf, recvbuf, op, algorithm)

    def iallreduce(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        """`allreduce`, nonblocking."""
        return self._start(jobs.allreduce, sendbuf, recvbuf, op, algorithm)

    def allreduce_init(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        """`allreduce`, persistent."""
        return self._plan(jobs.allreduce, sendbuf, recvbuf, op, algorithm)

    def reduce_scatter(self, sendbuf, recvbuf=None, op="sum", counts=None, algorithm=None):
        """This rank's part of the reduction of sendbuf over all ranks; sendbuf is cut along its first axis.

        Args:
            sendbuf: of the same shape and dtype on every rank; only read, unless recvbuf is part of it.
            recvbuf: for the elements of this rank's part; sendbuf's own part for in place.
            counts: how many rows belong to each rank, the same on all; None: the first axis divides by size.
        """
        return self._run(jobs.reduce_scatter, sendbuf, recvbuf, op, counts, algorithm)

    def ireduce_scatter(self, sendbuf, recvbuf=None, op="sum", counts=None, algorithm=None):
        """`reduce_scatter`, nonblocking."""
        return self._start(jobs.reduce_scatter, sendbuf, recvbuf, op, counts, algorithm)

    def reduce_scatter_init(self, sendbuf, recvbuf=None, op="sum", counts=None, algorithm=None):
        """`reduce_scatter`, persistent."""
        return self._plan(jobs.reduce_scatter, sendbuf, recvbuf, op, counts, algorithm)

    def allgather(self, sendbuf, recvbuf=None, counts=None, algorithm=None):
        """Every rank's sendbuf, one after the other along the first axis, on every rank.

        Args:
            sendbuf: of the same dtype on every rank, and of the same shape but for the first axis if counts are given;
                only read.
            recvbuf: for the elements of all; sendbuf may be its own part (in place).
            counts: how many rows each rank has, the same on all; None: all have as many.
        """
        return self._run(jobs.allgather, sendbuf, recvbuf, counts, algorithm)

    def iallgather(self, sendbuf, recvbuf=None, counts=None, algorithm=None):
        """`allgather`, nonblocking."""
        return self._start(jobs.allgather, sendbuf, recvbuf, counts, algorithm)

    def allgather_init(self, sendbuf, recvbuf=None, counts=None, algorithm=None):
        """`allgather`, persistent."""
        return self._plan(jobs.allgather, sendbuf, recvbuf, counts, algorithm)

    def alltoall(self, sendbuf, recvbuf=None, algorithm=None):
        """Part i of the result is the part of rank i's sendbuf that belongs to this rank; never in place.

        Args:
            sendbuf: of the same shape and dtype on every rank; its first axis divides by size, part i goes to rank i.
            recvbuf: for as many elements.
        """
        return self._run(jobs.alltoall, sendbuf, recvbuf, algorithm)

    def ialltoall(self, sendbuf, recvbuf=None, algorithm=None):
        """`alltoall`, nonblocking."""
        return self._start(jobs.alltoall, sendbuf, recvbuf, algorithm)

    def alltoall_init(self, sendbuf, recvbuf=None, algorithm=None):
        """`alltoall`, persistent."""
        return self._plan(jobs.alltoall, sendbuf, recvbuf, algorithm)

    def alltoallv(self, sendbuf, sendcounts, recvbuf, recvcounts, algorithm=None):
        """`alltoall` with parts of different lengths; never in place.

        Args:
            sendbuf: sendcounts[i] rows of it go to rank i.
            sendcounts: one count of rows for each rank; sendcounts[i] here is recvcounts[this rank] on rank i.
            recvbuf: recvcounts[i] rows of it come from rank i; None: a new array.
            recvcounts: one count of rows for each rank.
        """
        return self._run(jobs.alltoallv, sendbuf, recvbuf, sendcounts, recvcounts, algorithm)

    def ialltoallv(self, sendbuf, sendcounts, recvbuf, recvcounts, algorithm=None):
        """`alltoallv`, nonblocking."""
        return self._start(jobs.alltoallv, sendbuf, recvbuf, sendcounts, recvcounts, algorithm)

    def alltoallv_init(self, sendbuf, sendcounts, recvbuf, recvcounts, algorithm=None):
        """`alltoallv`, persistent."""
        return self._plan(jobs.alltoallv, sendbuf, recvbuf, sendcounts, recvcounts, algorithm)

    def gather(self, sendbuf, recvbuf=None, root=0, algorithm=None):
        """Every rank's sendbuf, one after the other along the first axis, on `root`; None elsewhere.

        Args:
            sendbuf: of the same shape and dtype on every rank; only read.
            recvbuf: on the root, for the elements of all; sendbuf may be its own part there. Not used elsewhere.
        """
        root = arguments.rank("gather", "root", root, self.size)
        return self._run(jobs.gather, sendbuf, recvbuf if self.rank == root else None, root, algorithm)

    def igather(self, sendbuf, recvbuf=None, root=0, algorithm=None):
        """`gather`, nonblocking."""
        return self._start(jobs.gather, sendbuf, recvbuf, root, algorithm)

    def gather_init(self, sendbuf, recvbuf=None, root=0, algorithm=None):
        """`gather`, persistent."""
        return self._plan(jobs.gather, sendbuf, recvbuf, root, algorithm)

    def scatter(self, sendbuf, recvbuf, root=0, algorithm=None):
        """recvbuf holds this rank's part of the root's sendbuf; it is returned.

        Args:
            sendbuf: on the root, recvbuf's elements for each rank, one after the other; not used elsewhere.
            recvbuf: of the same count and dtype on every rank; on the root it may be sendbuf's own part.
        """
        root = arguments.rank("scatter", "root", root, self.size)
        return self._run(jobs.scatter, sendbuf if self.rank == root else None, recvbuf, root, algorithm)

    def iscatter(self, sendbuf, recvbuf, root=0, algorithm=None):
        """`scatter`, nonblocking."""
        return self._start(jobs.scatter, sendbuf, recvbuf, root, algorithm)

    def scatter_init(self, sendbuf, recvbuf, root=0, algorithm=None):
        """`scatter`, persistent."""
        return self._plan(jobs.scatter, sendbuf, recvbuf, root, algorithm)

    def barrier(self, algorithm=None):
        """No rank returns before all have called it."""
        return self._run(jobs.barrier, None, None, algorithm)

    def ibarrier(self, algorithm=None):
        """`barrier`, nonblocking."""
        return self._start(jobs.barrier, None, None, algorithm)

    def barrier_init(self, algorithm=None):
        """`barrier`, persistent."""
        return self._plan(jobs.barrier, None, None, algorithm)

    # Point-to-point messages; between two ranks they arrive in the order in which they were sent.

    def send(self, buf, dest):
        """The content of buf is on its way to rank `dest`, and buf may be changed; may wait for the `recv` there."""
        return self._finish(self._message(jobs.send, buf, dest))

    def isend(self, buf, dest):
        """`send`, nonblocking."""
        return self._message(jobs.send, buf, dest)

    def recv(self, buf, source):
        """buf holds the next message of rank `source` (if that is shorter, the rest is as it was); it is returned."""
        return self._finish(self._message(jobs.recv, buf, source))

    def irecv(self, buf, source):
        """`recv`, nonblocking."""
        return self._message(jobs.recv, buf, source)

    def sendrecv(self, sendbuf, dest, recvbuf, source):
        """`send` and `recv` at the same time; recvbuf is returned."""
        return self._finish(self._message(jobs.sendrecv, sendbuf, dest, recvbuf, source))

    def isendrecv(self, sendbuf, dest, recvbuf, source):
        """`sendrecv`, nonblocking."""
        return self._message(jobs.sendrecv, sendbuf, dest, recvbuf, source)
