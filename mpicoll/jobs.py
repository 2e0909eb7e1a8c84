"""Every call as a Job: arguments checked, algorithm chosen, buffers cut; nothing is sent here.

Each function takes the Communicator and what the user passed to the method of its name.
"""

from . import arguments
from .algorithms import prepare
from .algorithms.cut import even
from .arrays import NumPyArrays
from .progress.call import Job
from .selection import chosen, forced, function


def broadcast(comm, buf, _, root, algorithm):
    name = "broadcast"
    root = arguments.rank(name, "root", root, comm.size)
    kind, flat = arguments.buffer(name, "buf", buf, writable=comm.rank != root)
    algorithm = _algorithm(comm, name, algorithm, flat.nbytes)
    (array,) = prepare(algorithm, (flat,), even(len(flat), comm.size))
    return Job(name, kind, flat, "sum", lambda c, op: algorithm(c, array, root), buf, algorithm=algorithm)


def reduce(comm, sendbuf, recvbuf, op, root, algorithm):
    name = "reduce"
    root = arguments.rank(name, "root", root, comm.size)
    kind, send, op = _reducible(name, sendbuf, op)
    recv = None
    if comm.rank == root:
        recvbuf, recv = _as_large(name, kind, recvbuf, sendbuf, send)
    else:
        recvbuf = None
    algorithm = _algorithm(comm, name, algorithm, send.nbytes)
    arrays = prepare(algorithm, (send, recv), even(len(send), comm.size))
    return Job(name, kind, send, op, lambda c, op: algorithm(c, *arrays, op, root), recvbuf, algorithm=algorithm)


def allreduce(comm, sendbuf, recvbuf, op, algorithm):
    name = "allreduce"
    kind, send, op = _reducible(name, sendbuf, op)
    recvbuf, recv = _as_large(name, kind, recvbuf, sendbuf, send)
    algorithm = _algorithm(comm, name, algorithm, send.nbytes)
    arrays = prepare(algorithm, (send, recv), even(len(send), comm.size))
    return Job(name, kind, send, op, lambda c, op: algorithm(c, *arrays, op), recvbuf, algorithm=algorithm)


def reduce_scatter(comm, sendbuf, recvbuf, op, counts, algorithm):
    name, rank = "reduce_scatter", comm.rank
    kind, send, op = _reducible(name, sendbuf, op)
    shape, lengths = arguments.scattered(name, sendbuf, counts, comm.size, rank)
    what = f"rank {rank}'s part of sendbuf has {lengths[rank]}"
    recvbuf, recv = arguments.receive(name, kind, recvbuf, shape, sendbuf, what)
    arguments.no_overlap(name, kind, send, recv, _own(send, lengths, rank), "sendbuf's own part as recvbuf")
    algorithm = _algorithm(comm, name, algorithm, send.nbytes)
    arrays = prepare(algorithm, (send, recv), lengths)
    return Job(name, kind, send, op, lambda c, op: algorithm(c, *arrays, op), recvbuf, algorithm=algorithm)


def allgather(comm, sendbuf, recvbuf, counts, algorithm):
    name, rank = "allgather", comm.rank
    kind, send = arguments.buffer(name, "sendbuf", sendbuf)
    shape, lengths = arguments.gathered(name, sendbuf, counts, comm.size, rank)
    what = f"all ranks together send {sum(lengths)}"
    recvbuf, recv = arguments.receive(name, kind, recvbuf, shape, sendbuf, what)
    arguments.no_overlap(name, kind, recv, send, _own(recv, lengths, rank), "recvbuf's own part as sendbuf")
    algorithm = _algorithm(comm, name, algorithm, recv.nbytes)
    arrays = prepare(algorithm, (send, recv), lengths)
    return Job(name, kind, recv, "sum", lambda c, op: algorithm(c, *arrays), recvbuf, algorithm=algorithm)


def alltoall(comm, sendbuf, recvbuf, algorithm):
    name = "alltoall"
    kind, send = arguments.buffer(name, "sendbuf", sendbuf)
    _, lengths = arguments.scattered(name, sendbuf, None, comm.size, comm.rank)
    recvbuf, recv = arguments.receive(name, kind, recvbuf, sendbuf.shape, sendbuf, f"sendbuf has {len(send)}")
    arguments.no_overlap(name, kind, send, recv, send[:0], None)
    algorithm = _algorithm(comm, name, algorithm, send.nbytes)
    arrays = prepare(algorithm, (send, recv), lengths)
    return Job(name, kind, send, "sum", lambda c, op: algorithm(c, *arrays), recvbuf, algorithm=algorithm)


def alltoallv(comm, sendbuf, recvbuf, sendcounts, recvcounts, algorithm):
    name, size = "alltoallv", comm.size
    kind, send = arguments.buffer(name, "sendbuf", sendbuf)
    _, lengths = arguments.scattered(name, sendbuf, sendcounts, size, comm.rank, "sendcounts")
    shape, received = arguments.received(name, sendbuf, recvcounts, size)
    what = f"recvcounts say that {sum(received)} are received"
    recvbuf, recv = arguments.receive(name, kind, recvbuf, shape, sendbuf, what)
    arguments.no_overlap(name, kind, send, recv, send[:0], None)
    algorithm = _algorithm(comm, name, algorithm, 0)  # a rank knows only its own counts: they must not matter
    arrays = prepare(algorithm, (send, recv), lengths, received)
    return Job(name, kind, send, "sum", lambda c, op: algorithm(c, *arrays), recvbuf, algorithm=algorithm)


def gather(comm, sendbuf, recvbuf, root, algorithm):
    name, size, rank = "gather", comm.size, comm.rank
    root = arguments.rank(name, "root", root, size)
    kind, send = arguments.buffer(name, "sendbuf", sendbuf)
    shape, lengths = arguments.gathered(name, sendbuf, None, size, rank)
    recv = None
    if rank == root:
        what = f"all ranks together send {sum(lengths)}"
        recvbuf, recv = arguments.receive(name, kind, recvbuf, shape, sendbuf, what)
        arguments.no_overlap(name, kind, recv, send, _own(recv, lengths, rank), "recvbuf's own part as sendbuf")
    else:
        recvbuf = None
    algorithm = _algorithm(comm, name, algorithm, send.nbytes * size)
    arrays = prepare(algorithm, (send, recv), lengths)
    return Job(name, kind, send, "sum", lambda c, op: algorithm(c, *arrays, root), recvbuf, algorithm=algorithm)


def scatter(comm, sendbuf, recvbuf, root, algorithm):
    name, size, rank = "scatter", comm.size, comm.rank
    root = arguments.rank(name, "root", root, size)
    kind, recv = arguments.buffer(name, "recvbuf", recvbuf, writable=True)
    lengths = (len(recv),) * size
    send = None
    if rank == root:
        send_kind, send = arguments.buffer(name, "sendbuf", sendbuf)
        arguments.same_type(name, send_kind, kind, sendbuf, recvbuf)
        if len(send) != sum(lengths):
            raise ValueError(f"{name}: sendbuf has {len(send)} elements, {size} recvbufs have {sum(lengths)}")
        arguments.no_overlap(name, kind, send, recv, _own(send, lengths, rank), "sendbuf's own part as recvbuf")
    algorithm = _algorithm(comm, name, algorithm, recv.nbytes * size)
    arrays = prepare(algorithm, (send, recv), lengths)
    return Job(name, kind, recv, "sum", lambda c, op: algorithm(c, *arrays, root), recvbuf, algorithm=algorithm)


def barrier(comm, _, __, algorithm):
    token = NumPyArrays.memory(0)
    algorithm = _algorithm(comm, "barrier", algorithm, 0)
    return Job("barrier", NumPyArrays, token, "sum", lambda c, op: algorithm(c, token, op), None, algorithm=algorithm)


# Point-to-point messages are the shortest of algorithms.


def send(comm, buf, dest):
    dest = arguments.rank("send", "dest", dest, comm.size)
    kind, flat = arguments.buffer("send", "buf", buf)

    def program(c, op):
        yield c.Isend(flat, dest)

    return Job("send", kind, flat, "sum", program, None, [(dest, True)])


def recv(comm, buf, source):
    source = arguments.rank("recv", "source", source, comm.size)
    kind, flat = arguments.buffer("recv", "buf", buf, writable=True)

    def program(c, op):
        yield c.Irecv(flat, source)

    return Job("recv", kind, flat, "sum", program, buf, [(source, False)])


def sendrecv(comm, sendbuf, dest, recvbuf, source):
    name = "sendrecv"
    dest, source = arguments.rank(name, "dest", dest, comm.size), arguments.rank(name, "source", source, comm.size)
    kind, out = arguments.buffer(name, "sendbuf", sendbuf)
    recv_kind, into = arguments.buffer(name, "recvbuf", recvbuf, writable=True)
    arguments.same_type(name, kind, recv_kind, sendbuf, recvbuf)
    arguments.no_overlap(name, kind, out, into, out[:0], None)

    def program(c, op):
        yield c.Isend(out, dest), c.Irecv(into, source)

    return Job(name, kind, out, "sum", program, recvbuf, [(dest, True), (source, False)])


def _algorithm(comm, name, algorithm, nbytes):
    if callable(algorithm):
        return algorithm
    if algorithm is None:
        return chosen(name, nbytes, comm.nodes, comm.allowed[name], comm.links, comm.rules)
    return function(name, forced(name, algorithm).algorithm, nbytes, comm.nodes, comm.links)


def _reducible(name, sendbuf, op):
    kind, send = arguments.buffer(name, "sendbuf", sendbuf)
    return kind, send, arguments.operation(name, op, send.dtype)


def _as_large(name, kind, recvbuf, sendbuf, send):
    """recvbuf and its flat view, of as many elements as sendbuf; `send` itself if they are the same array."""
    if recvbuf is sendbuf:
        arguments.buffer(name, "recvbuf", recvbuf, writable=True)
        return recvbuf, send
    recvbuf, recv = arguments.receive(name, kind, recvbuf, sendbuf.shape, sendbuf, f"sendbuf has {len(send)}")
    arguments.no_overlap(name, kind, send, recv, send, "the same array as both")
    return recvbuf, recv


def _own(array, lengths, rank):
    start = sum(lengths[:rank])
    return array[start : start + lengths[rank]]
