"""Who is timed: our algorithms in the form asked for, and peers on the same buffers in the same process.

A contender has a name, says why it cannot do a case or why its results are not checked (None: it can, they are), and
makes the calls, one for each row of buffers. Peers are called in their blocking form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..arrays import DATATYPES, MPI_OPS
from ..explaining.forms import FORMS
from .buffers import Buffers
from .cases import Case
from .options import REDUCING, ROOTED

Calls = list[Callable[[], object]]


class Ours:
    """One of our algorithms; None: whichever the library chooses.

    It has a communicator of its own, so that the calls of each are remembered, see progress/replay.py.
    """

    name = "mpicoll"

    def __init__(self, comm: Any, form: str, algorithm: str | None = None) -> None:
        self.comm, self.form, self.algorithm = comm, form, algorithm
        self._plans: list[Any] = []

    def label(self, case: Case) -> str:
        """The name of the algorithm that runs."""
        if self.algorithm or case.collective == "sendrecv":
            return self.algorithm or "message"
        return str(self.comm.explain(case.collective, case.nbytes).algorithm)

    def predicted(self, case: Case) -> float | None:
        """The seconds that the cost model predicts, if it knows the call."""
        if case.collective == "sendrecv":
            return None
        found: float | None = self.comm.explain(case.collective, case.nbytes).predicted.get(self.label(case))
        return found

    def scratch(self, case: Case) -> int:
        """The most bytes of scratch memory that it takes; twice: it is taken by powers of two, and kept."""
        form = FORMS.get((case.collective, self.label(case)))
        if form is None:
            return 0
        chunk = -(-case.nbytes // case.size)
        return 2 * math.ceil(form.most_scratch(case.size, case.nbytes, chunk, nodes=self.comm.nodes))

    def refusal(self, case: Case, in_place: bool) -> str | None:
        return None

    def unchecked(self, case: Case) -> str | None:
        return None

    def calls(self, case: Case, buffers: Buffers) -> Calls:
        prefix, suffix = {"blocking": ("", ""), "nonblocking": ("i", ""), "persistent": ("", "_init")}[self.form]
        method = getattr(self.comm, prefix + case.collective + suffix)
        made = [self._bound(method, case, *pair) for pair in zip(buffers.send, buffers.recv, strict=True)]
        if self.form == "nonblocking":
            return [functools.partial(_waited, call) for call in made]
        if self.form == "persistent":
            self._plans = [call() for call in made]
            return [functools.partial(_played, plan) for plan in self._plans]
        return made

    def start(self, case: Case, send: Any, recv: Any) -> Any:
        """The handle of a nonblocking call that is under way."""
        return self._bound(getattr(self.comm, "i" + case.collective), case, send, recv)()

    def _bound(self, method: Callable[..., Any], case: Case, send: Any, recv: Any) -> Callable[[], Any]:
        name = case.collective
        arrays = {"broadcast": (recv,), "barrier": ()}.get(name, (send, recv))
        if name == "sendrecv":
            right, left = (case.rank + 1) % case.size, (case.rank - 1) % case.size
            return functools.partial(method, send, right, recv, left)
        keywords: dict[str, Any] = {} if self.algorithm is None else {"algorithm": self.algorithm}
        if name in REDUCING:
            keywords["op"] = case.op
        if name in ROOTED:
            keywords["root"] = case.root
        return functools.partial(method, *arrays, **keywords)

    def end(self) -> None:
        """The plans of the last case are given back."""
        for plan in self._plans:
            plan.free()
        self._plans = []


def _waited(call: Callable[[], Any]) -> None:
    call().wait()


def _played(plan: Any) -> None:
    plan.start()
    plan.wait()


class Peer:
    """What all peers have in common."""

    name: str

    def label(self, case: Case) -> str:
        return self.name

    def predicted(self, case: Case) -> None:
        return None

    def unchecked(self, case: Case) -> str | None:
        return None

    def end(self) -> None:
        """Nothing was made for a case that would have to be given back."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *what: object) -> None:
        """It is not used any more."""


class Mpi(Peer):
    """The collectives of the MPI that we run on."""

    name = "mpi"

    def __init__(self, world: MPI.Intracomm, on_device: bool) -> None:
        self.world = world
        self.large = MPI.Get_version() >= (4, 0)
        self.why = None
        if on_device:
            from .. import probe

            verdict = probe.cuda_aware()
            self.why = None if verdict.aware else f"it cannot be given device memory: {verdict.why}"

    def refusal(self, case: Case, in_place: bool) -> str | None:
        if self.why:
            return self.why
        if DATATYPES[case.dtype] is None and case.collective != "barrier":
            return f"MPI has no datatype for {case.dtype}"
        if case.op is not None and case.op not in MPI_OPS:
            return f"MPI has no operation {case.op}"
        if case.collective == "reduce_scatter" and in_place:
            return "MPI's in place puts the result elsewhere, at the beginning of the buffer"
        if case.count >= 2**31 and not self.large:
            return f"{case.count} elements: this MPI counts up to 2,147,483,647"
        return None

    def unchecked(self, case: Case) -> str | None:
        if case.dtype.kind in "iu" and case.op in ("sum", "prod"):
            return "MPI does not say what becomes of integers that overflow; Open MPI saturates those of 8 and 16 bits"
        return None

    def calls(self, case: Case, buffers: Buffers) -> Calls:
        datatype = DATATYPES[case.dtype]

        def spec(array: Any) -> Any:  # of what is cut, mpi4py counts one rank's part
            return None if array is None else [array, case.shown_count, datatype]

        pairs = zip(buffers.send, buffers.recv, strict=True)
        return [self._call(case, buffers.in_place, spec(send), spec(recv)) for send, recv in pairs]

    def _call(self, case: Case, in_place: bool, send: Any, recv: Any) -> Callable[[], object]:
        world, name, op = self.world, case.collective, MPI_OPS.get(case.op or "")
        if in_place:  # said where the data lies already: on the root, or on every rank
            if name == "scatter" and case.rank == case.root:
                recv = MPI.IN_PLACE
            elif name not in ROOTED or case.rank == case.root:
                send = MPI.IN_PLACE
        right, left = (case.rank + 1) % case.size, (case.rank - 1) % case.size
        calls: dict[str, tuple[Any, ...]] = {
            "broadcast": (world.Bcast, recv, case.root),
            "reduce": (world.Reduce, send, recv, op, case.root),
            "allreduce": (world.Allreduce, send, recv, op),
            "reduce_scatter": (world.Reduce_scatter_block, send, recv, op),
            "allgather": (world.Allgather, send, recv),
            "alltoall": (world.Alltoall, send, recv),
            "gather": (world.Gather, send, recv, case.root),
            "scatter": (world.Scatter, send, recv, case.root),
            "barrier": (world.Barrier,),
            "sendrecv": (world.Sendrecv, send, right, 0, recv, left),
        }
        function, *arguments = calls[name]
        return functools.partial(function, *arguments)
