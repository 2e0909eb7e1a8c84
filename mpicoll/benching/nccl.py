"""NCCL by way of CuPy, where two or more ranks have a GPU each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from .. import gpu
from .buffers import Buffers
from .cases import Case
from .contenders import Calls, Peer

_CALLS = ("broadcast", "reduce", "allreduce", "reduce_scatter", "allgather")


class Nccl(Peer):
    """NCCL's collectives on this rank's GPU; a call has ended when its stream has."""

    name = "nccl"

    def __init__(self, world: MPI.Intracomm, on_device: bool) -> None:
        here = gpu.current() if on_device else None
        where = world.allgather((MPI.Get_processor_name(), here))
        if not on_device:
            raise ValueError("--compare nccl: it knows only GPU memory; add --device gpu, with a GPU for each rank")
        if len(set(where)) < world.size:
            raise ValueError(f"--compare nccl needs a GPU for each of {world.size} ranks; there are {len(set(where))}")
        import cupy
        from cupy.cuda import nccl

        number = world.bcast(nccl.get_unique_id() if world.rank == 0 else None)
        self._comm = nccl.NcclCommunicator(world.size, number, world.rank)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        types = {
            "int8": nccl.NCCL_INT8, "uint8": nccl.NCCL_UINT8, "int32": nccl.NCCL_INT32, "uint32": nccl.NCCL_UINT32,
            "int64": nccl.NCCL_INT64, "uint64": nccl.NCCL_UINT64, "float16": nccl.NCCL_FLOAT16,
            "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64,
        }  # fmt: skip
        ops = {"sum": nccl.NCCL_SUM, "prod": nccl.NCCL_PROD, "max": nccl.NCCL_MAX, "min": nccl.NCCL_MIN}
        self._types, self._ops = types, ops

    def refusal(self, case: Case, in_place: bool) -> str | None:
        if case.collective not in _CALLS:
            return f"CuPy offers no {case.collective} of NCCL's"
        if case.dtype.name not in self._types:
            return f"NCCL by way of CuPy has no type {case.dtype}"
        if case.op is not None and case.op not in self._ops:
            return f"NCCL by way of CuPy has no operation {case.op}"
        return None

    def calls(self, case: Case, buffers: Buffers) -> Calls:
        return [self._call(case, *pair) for pair in zip(buffers.send, buffers.recv, strict=True)]

    def _call(self, case: Case, send: Any, recv: Any) -> Callable[[], object]:
        comm, kind, op, stream = self._comm, self._types[case.dtype.name], self._ops.get(case.op or ""), self._stream
        source = recv if send is None else send  # broadcast
        first, second = (array.data.ptr if array is not None else 0 for array in (source, recv))
        calls: dict[str, tuple[Any, ...]] = {
            "broadcast": (comm.broadcast, first, second, case.count, kind, case.root),
            "reduce": (comm.reduce, first, second, case.count, kind, op, case.root),
            "allreduce": (comm.allReduce, first, second, case.count, kind, op),
            "reduce_scatter": (comm.reduceScatter, first, second, case.shown_count, kind, op),
            "allgather": (comm.allGather, first, second, case.shown_count, kind),
        }
        function, *arguments = calls[case.collective]
        return functools.partial(_done, functools.partial(function, *arguments, stream.ptr), stream)


def _done(call: Callable[[], object], stream: Any) -> None:
    call()
    stream.synchronize()
