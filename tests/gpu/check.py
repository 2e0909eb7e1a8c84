"""Parts of the checks, on all ranks: mpirun -np 2 python tests/gpu/check.py exact bits --device gpu --way aware

A part is a module beside this one with a function `check(run)`, which raises an exception if something is wrong: then
the job ends with status 1. Figures go to a file as lines of JSON.
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parent / "mpi"), str(HERE.parent.parent)]

PARTS = ("machine", "kernels", "exact", "bits", "early", "upkeep", "lent", "native", "bandwidth")


class Run:
    """What a part is given.

    Attributes:
        comm, world: the Communicator, and mpi4py's.
        maker: the device, see on_gpu.py.
        device, way, dtypes, sizes, native: as the arguments say.
    """

    def __init__(self, args):
        self.device, self.way, self.dtypes = args.device, args.way, args.dtypes and args.dtypes.split(",")
        self.sizes, self.native, self.seconds, self.json = args.sizes, args.native, args.seconds, args.json
        if self.device == "gpu":
            from on_gpu import Gpu as Maker
        else:
            from stand_in import StandIn as Maker

        self.maker = Maker()  # chooses the GPU, so before MPI starts
        from mpi4py import MPI

        import mpicoll

        self.world = MPI.COMM_WORLD
        self.comm = mpicoll.Communicator(self.world)
        self.maker.start(self.way)

    def say(self, event, **fields):
        """A line of figures, rank 0's. The events "note" and "skipped" are shown in the table."""
        if self.comm.rank == 0:
            line = json.dumps({"event": event, "np": self.comm.size, "way": self.way, **fields})
            if "text" in fields or not self.json:
                print(fields.get("text", line), flush=True)
            if self.json:
                with open(self.json, "a", encoding="utf-8") as file:
                    file.write(line + "\n")

    def clock(self, share=1.0):
        """A function that tells, alike on all ranks, whether this share of the seconds has not passed yet."""
        end = time.monotonic() + share * self.seconds
        return lambda: self.world.bcast(time.monotonic() < end)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--device", choices=("gpu", "stand-in"), default="gpu")
    parser.add_argument("--way", choices=("aware", "staged"), default="staged")
    parser.add_argument("--seconds", type=float, default=20, help="for what can be cut short")
    parser.add_argument("--dtypes", help="only these, with commas between")
    parser.add_argument(
        "--sizes", type=lambda text: [int(size) for size in text.split(",")], help="of bandwidth, bytes"
    )
    parser.add_argument("--native", action="store_true", help="the MPI's own all-reduce takes device memory")
    parser.add_argument("--json", help="file to which lines are appended")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    run = Run(args)
    for part in args.parts:
        importlib.import_module(part).check(run)
    run.comm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
