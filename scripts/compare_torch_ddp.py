"""Our step beside that of PyTorch's DistributedDataParallel by gloo: mpirun -np 2 python scripts/compare_torch_ddp.py

The same GPT from the same weights, on the same batches, in the same processes: float32, one thread per rank, AdamW with
the same numbers (PyTorch's fused one), no clipping. First both train a few steps, and their losses must agree. Then
they take turns, see reducer_cost.py; each is also timed without its all-reduce, and what is missing then is the exposed
share of its step. Exit status: 1 if the losses differ by more than 1e-4 of themselves.
"""

import functools
import os
import socket

from reducer_cost import ADAMW, Setting, in_turn, report, step, world  # sets NumPy's threads: comes first

# isort: split
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from mpicoll import Communicator
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.exchanges import Nothing
from mpicoll.training.optimizers import AdamW

STEPS, TOLERANCE = 20, 1e-4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.attention = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        parts = self.attention(self.norm1(x)).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class TorchGPT(nn.Module):
    """Our GPT in PyTorch; forward gives the mean loss. Its parameters come in the order of ours."""

    def __init__(self, ours, classes, context, width, heads, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(classes, width), nn.Parameter(torch.empty(context, width))
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        theirs = [self.tokens.weight, self.positions, *self.blocks.parameters(), *self.norm.parameters()]
        with torch.no_grad():
            for p, q in zip(ours.parameters, theirs, strict=True):
                transposed = p.name.startswith("block") and p.data.ndim == 2  # nn.Linear's is (outputs, inputs)
                q.copy_(torch.from_numpy(p.data.T if transposed else p.data))

    def forward(self, x, targets):
        y = self.tokens(x) + self.positions[: x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return functional.cross_entropy(
            functional.linear(self.norm(y), self.tokens.weight).flatten(0, 1), targets.flatten()
        )


def connect():
    """PyTorch's ranks are MPI's, and gloo is told the interface where they are all on one machine."""
    hosts = world.allgather(socket.gethostname())
    if len(set(hosts)) == 1:
        hosts[0] = "127.0.0.1"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.TCPStore(hosts[0], 0, is_master=True, wait_for_workers=False) if world.rank == 0 else None
    port = world.bcast(store.port if store else None)
    store = store or dist.TCPStore(hosts[0], port, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)


def torch_optimizer(model):
    """As our AdamW: only matrices decay."""
    decay = {True: ADAMW["weight_decay"], False: 0.0}
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) is kind], "weight_decay": decay[kind]}
        for kind in (True, False)
    ]
    return torch.optim.AdamW(groups, ADAMW["lr"], ADAMW["betas"], ADAMW["epsilon"], fused=True)


def torch_step(model, optimizer, batch):
    """The loss of one step of PyTorch's."""
    rows = torch.from_numpy(batch.astype(np.int64))
    optimizer.zero_grad()
    loss = model(rows[:, :-1], rows[:, 1:])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def local(model, optimizer, batch):
    """PyTorch's step without the all-reduce."""
    with model.no_sync():
        return torch_step(model, optimizer, batch)


def main():
    setting = Setting(__doc__)
    torch.set_num_threads(1)
    connect()
    recipe, comm = setting.recipe, Communicator(world)
    ours = DistributedDataParallel(setting.model(), comm)
    alone = DistributedDataParallel(setting.model(), comm, exchange=Nothing())
    theirs = TorchGPT(ours.model, setting.text.classes, recipe.context, recipe.width, recipe.heads, recipe.layers)
    theirs = TorchDDP(theirs, gradient_as_bucket_view=True)
    optimizer = torch_optimizer(theirs)
    contenders = {
        "mpicoll": functools.partial(step, ours, AdamW(ours.parameters, **ADAMW)),
        "torch": functools.partial(torch_step, theirs, optimizer),
        "mpicoll, nothing sent": functools.partial(step, alone, AdamW(alone.parameters, **ADAMW)),
        "torch, nothing sent": functools.partial(local, theirs, optimizer),
    }
    losses = np.empty((STEPS, 2))
    for i, row in enumerate(losses):
        row[:] = [contenders[name](setting.batch(10**6 + i)) for name in ("mpicoll", "torch")]
    world.Allreduce(losses / world.size, losses)
    off = np.abs(losses[:, 0] / losses[:, 1] - 1).max()
    if world.rank == 0:
        for name, column in zip(("mpicoll", "torch"), losses.T, strict=True):
            print(f"{name}: first loss {column[0]:.6f}, that of step {STEPS} {column[-1]:.6f}")
        print(f"they differ by {off:.1e} of themselves at most; allowed: {TOLERANCE:g}", flush=True)
    took = in_turn(setting, contenders)
    report(took, [("mpicoll", "torch"), ("mpicoll, nothing sent", "torch, nothing sent")])
    if world.rank == 0:
        for name in ("mpicoll", "torch"):
            print(f"exposed communication, {name}: {np.median(1 - took[f'{name}, nothing sent'] / took[name]):.1%}")
    dist.destroy_process_group()
    return int(world.rank == 0 and off > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
