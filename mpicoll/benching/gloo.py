"""torch.distributed's collectives by gloo, on the same NumPy buffers."""

from __future__ import annotations

import functools
import importlib
import os
import socket
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from .buffers import Buffers
from .cases import Case
from .contenders import Calls, Peer


class Gloo(Peer):
    """torch.distributed's collectives by gloo. It knows only in place for reductions: out of place is a copy more."""

    name = "gloo"
    _TYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64")

    def __init__(self, world: MPI.Intracomm, on_device: bool) -> None:
        try:
            torch: Any = importlib.import_module("torch")
            dist: Any = importlib.import_module("torch.distributed")
        except ImportError:
            torch = dist = None
        if not all(world.allgather(torch is not None)):  # on all ranks or on none
            raise ValueError("--compare gloo needs torch on every rank: pip install 'mpicoll[bench]' brings it")
        self.why = "it is compared on host memory only" if on_device else None
        torch.set_num_threads(1)
        self._torch, self._dist = torch, dist
        hosts = world.allgather(socket.gethostname())
        host = hosts[0]
        if len(set(hosts)) == 1:  # no name service, and no cable
            host = "127.0.0.1"
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        first = world.rank == 0
        store: Any = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False) if first else None
        port = world.bcast(store.port if first else None)
        store = store or dist.TCPStore(host, port, wait_for_workers=False)
        dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)
        ops = dist.ReduceOp
        self._ops = {"sum": ops.SUM, "prod": ops.PRODUCT, "max": ops.MAX, "min": ops.MIN}

    def refusal(self, case: Case, in_place: bool) -> str | None:
        if self.why:
            return self.why
        if case.collective != "barrier" and case.dtype.name not in self._TYPES:
            return f"gloo has no type {case.dtype}"
        if case.op is not None and case.op not in self._ops:
            return f"gloo has no operation {case.op}"
        return None

    def calls(self, case: Case, buffers: Buffers) -> Calls:
        def tensor(array: Any) -> Any:
            return None if array is None else self._torch.from_numpy(array)

        pairs = zip(buffers.send, buffers.recv, strict=True)
        return [self._call(case, buffers.in_place, tensor(send), tensor(recv)) for send, recv in pairs]

    def _call(self, case: Case, in_place: bool, send: Any, recv: Any) -> Callable[[], object]:
        dist, name, root = self._dist, case.collective, case.root
        op = self._ops.get(case.op or "")
        here = case.rank == root

        def parts(tensor: Any) -> Any:
            return list(tensor.chunk(case.size)) if tensor is not None else None

        def copied(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
            def call() -> None:
                recv.copy_(send)
                function(recv, *arguments)

            return functools.partial(function, send, *arguments) if in_place else call

        if name == "reduce":  # which writes to its buffer on every rank
            recv = self._torch.empty_like(send) if recv is None else recv
            return copied(dist.reduce, root, op)
        if name == "allreduce":
            return copied(dist.all_reduce, op)
        if name == "sendrecv":
            right, left = (case.rank + 1) % case.size, (case.rank - 1) % case.size

            def exchange() -> None:
                outgoing, incoming = dist.isend(send, right), dist.irecv(recv, left)
                outgoing.wait()
                incoming.wait()

            return exchange
        calls: dict[str, Callable[[], tuple[Any, ...]]] = {
            "broadcast": lambda: (dist.broadcast, recv, root),
            "reduce_scatter": lambda: (self._newest("reduce_scatter_single", "reduce_scatter_tensor"), recv, send, op),
            "allgather": lambda: (self._newest("all_gather_single", "all_gather_into_tensor"), recv, send),
            "alltoall": lambda: (dist.all_to_all_single, recv, send),
            "gather": lambda: (dist.gather, send, parts(recv), root),
            "scatter": lambda: (dist.scatter, recv, parts(send) if here else None, root),
            "barrier": lambda: (dist.barrier,),
        }
        function, *arguments = calls[name]()
        return functools.partial(function, *arguments)

    def _newest(self, name: str, before: str) -> Any:
        """torch.distributed's function, which has another name in older versions."""
        return getattr(self._dist, name, None) or getattr(self._dist, before)

    def __exit__(self, *what: object) -> None:
        self._dist.destroy_process_group()
