"""How near to the network's bound all-reduce comes: net.sh 4 scripts/lab/mpirun.sh python scripts/lab/allreduce.py

The bound is that of bandwidth: for h hosts 2(h-1)/h n bytes leave every host, at the goodput B of a plain TCP stream,
measured in the same run: the one from the first host to the second ("one stream"). Beside it stands that of streams
from every host to the next, all at once. Everything is timed in turn, again and again; a call's time is that of the
slowest rank; shown are medians with quartiles. float32, out of place, every result compared with the exact sum. An idle
link lets the first 128 KiB pass at once: short calls may come out a little above the bound.
"""

import argparse
import socket
import threading
import time

import numpy as np
from mpi4py import MPI

import mpicoll

STREAM = 16 << 20  # bytes
ALGORITHMS = "ring,circulant,recursive_halving,swing,double_tree,hierarchical"

world = MPI.COMM_WORLD


def together():
    """All ranks are here; those that wait leave the processor to others."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(1e-4)


class Streams:
    """A TCP connection from the first rank of every host to that of the next."""

    def __init__(self, nodes):
        firsts = [nodes.index(node) for node in sorted(set(nodes))]
        self.place = firsts.index(world.rank) if world.rank in firsts else None
        self.memory = np.ones(STREAM, np.uint8), np.empty(STREAM, np.uint8)
        listener = socket.create_server(("", 0)) if self.place is not None else None
        doors = world.allgather(listener and (socket.gethostname(), listener.getsockname()[1]))
        if listener:
            self.to = socket.create_connection(doors[firsts[(self.place + 1) % len(firsts)]])
            self.source, _ = listener.accept()
            listener.close()

    def run(self, senders):
        """STREAM bytes have gone from the hosts in `senders`, or from all if it is None, to the next ones."""
        if self.place is None:
            return
        sends, receives = (senders is None or place in senders for place in (self.place, self.place - 1))
        sender = threading.Thread(target=self.to.sendall, args=[self.memory[0]])
        if sends:
            sender.start()
        if receives:
            view = memoryview(self.memory[1])
            while view:
                view = view[self.source.recv_into(view) :]
        if sends:
            sender.join()


def timed(call):
    """The seconds of the slowest rank."""
    together()
    start = time.perf_counter()
    call()
    took = time.perf_counter() - start
    together()
    return world.allreduce(took, MPI.MAX)


def show(nbytes, hosts, times):
    """The table of one size, from lists of seconds by name."""
    goodput = STREAM / np.median(times["one stream"])
    bound = 2 * (hosts - 1) / hosts * nbytes / goodput
    native = np.median(times["native"])
    print(f"\n{nbytes / 2**20:g} MiB: the bound is {bound * 1e3:.1f} ms at {goodput / 1e6:.1f} MB/s")
    print(f"{'':28}{'ms':>8}  {'quartiles':17}{'of the bound':>14}{'to native':>11}")
    for name, seconds in times.items():
        low, middle, high = np.percentile(seconds, [25, 50, 75])
        line = f"{name:28}{middle * 1e3:8.1f}  {f'{low * 1e3:.1f} - {high * 1e3:.1f}':17}"
        if "stream" in name:
            print(f"{line}{STREAM / middle / 1e6:9.1f} MB/s")
        else:
            print(f"{line}{bound / middle:14.1%}{middle / native:11.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, nargs="+", default=[4, 16], help="sizes of the buffer (default: 4 16)")
    parser.add_argument("--algorithm", default=ALGORITHMS, help=f"names with commas (default: {ALGORITHMS})")
    parser.add_argument("--repetitions", type=int, default=9, help="how often each is timed (default: 9)")
    options = parser.parse_args()
    with mpicoll.Communicator(world) as comm:
        hosts = len(set(comm.nodes))
        if comm.rank == 0:
            library = MPI.Get_library_version().splitlines()[0].strip("\0").split(",")[0]
            print(f"{library}: {hosts} hosts, {comm.size} ranks, {options.repetitions} repetitions")
        streams = Streams(comm.nodes)
        for mib in options.mib:
            x = np.arange(int(mib * 2**18), dtype="float32") % 1024
            y = np.empty_like(x)
            nbytes = x.nbytes
            calls = {
                "one stream": lambda: streams.run([0]),
                "streams of all hosts": lambda: streams.run(None),
                "native": lambda x=x, y=y: world.Allreduce(x, y),
                f"auto: {comm.explain('allreduce', nbytes).algorithm}": lambda x=x, y=y: comm.allreduce(x, y),
            }
            for name in options.algorithm.split(","):
                calls[name] = lambda x=x, y=y, name=name: comm.allreduce(x, y, algorithm=name)
            times = {name: [] for name in calls}
            for repetition in range(-1, options.repetitions):  # the first warms up
                for name, call in calls.items():
                    y[:] = 0
                    took = timed(call)
                    if "stream" not in name:
                        assert (y == x * comm.size).all(), name
                    if repetition >= 0:
                        times[name].append(took)
            if comm.rank == 0:
                show(nbytes, hosts, times)


if __name__ == "__main__":
    main()
