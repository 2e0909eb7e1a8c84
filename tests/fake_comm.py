"""A Communicator for serial tests: ranks are threads of one process. Arrays are NumPy's or DeviceArrays."""

import threading
import time

import numpy as np


def memory(array):
    """Where the content of `array` is: messages come from there and go there, and no kernel has a part in it."""
    return getattr(array, "_host", array)


class World:
    """Ranks that are threads of this process; collectives match in the order of their starts, as messages do."""

    def __init__(self, size):
        self.size, self.calls, self.changed = size, {}, threading.Condition()

    def post(self, number, rank, array):
        with self.changed:
            self.calls.setdefault(number, {})[rank] = np.copy(memory(array))
            self.changed.notify_all()

    def collect(self, number):
        """What every rank gave to this call, in rank order."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls[number]) == self.size, timeout=60)
            return [self.calls[number][rank] for rank in range(self.size)]


REDUCE = {"sum": np.sum, "avg": np.mean, "max": np.max}


class Handle:
    def __init__(self, world, number, out, op):
        self.world, self.number, self.out, self.op, self.began_at, self.ended_at = world, number, out, op, None, None

    def wait(self):
        memory(self.out)[...] = REDUCE[self.op](self.world.collect(self.number), axis=0)
        self.ended_at = time.perf_counter()
        return self.out


class Done:
    """A handle whose collective has ended."""

    def __init__(self, result):
        self.result = result

    def wait(self):
        return self.result


class FakeComm:
    """What the reducer uses of a Communicator; remembers the lengths of what it launched."""

    def __init__(self, world, rank):
        self.world, self.rank, self.size = world, rank, world.size
        self.started, self.bytes_sent, self.launched = 0, 0, []

    def _start(self, array):
        self.started += 1
        self.world.post(self.started, self.rank, array)
        return self.started

    def explain(self, collective, nbytes, algorithm):
        pass

    def iallgather(self, array):
        return Done(np.concatenate(self.world.collect(self._start(array))))

    def ibroadcast(self, array, root):
        memory(array)[...] = self.world.collect(self._start(array))[root]
        return Done(array)

    def iallreduce(self, array, out=None, op="sum", algorithm=None):
        if out is array:  # a bucket
            assert op == "avg"
            self.bytes_sent += array.nbytes
            self.launched.append(len(array))
        return Handle(self.world, self._start(array), np.empty_like(array) if out is None else out, op)

    def allreduce(self, array, op="sum", algorithm=None):
        return REDUCE[op](self.world.collect(self._start(array)), axis=0)

    def progress(self):
        pass


def ranks(size, program):
    """The results of program(comm) on every rank; the first exception of any rank is raised."""
    world, results = World(size), [None] * size

    def run(rank):
        try:
            results[rank] = program(FakeComm(world, rank))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def one_rank():
    """The comm of a world of one, without threads."""
    return FakeComm(World(1), 0)
