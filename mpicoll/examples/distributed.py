"""Trains a small character model. local.py does it in one process, distributed.py on any number of them.

    python -m mpicoll.examples.local
    mpirun -np 4 python -m mpicoll.examples.distributed

Compare the two files: the model, the loss, the optimizer and the loop are the same, and so are the losses printed. The
batch is the global one: more ranks take smaller shares of it.
"""

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.training.data import Text, read
from mpicoll.training.losses import cross_entropy
from mpicoll.training.models import CharMLP
from mpicoll.training.optimizers import AdamW
from mpicoll.training.sampler import Sampler

STEPS, BATCH, CONTEXT = 400, 480, 12

comm = mpicoll.Communicator(MPI.COMM_WORLD)
text = Text(read(), CONTEXT)
sampler = Sampler(len(text.train), BATCH, comm.rank, comm.size)
model = CharMLP(len(text.vocabulary), CONTEXT, embedding=16, hidden=128, layers=1, dtype=np.float64)
model = mpicoll.DistributedDataParallel(model, comm)
optimizer = AdamW(model.parameters, lr=3e-3)

for step in range(STEPS):
    batch = text.train[sampler.batch(step)]
    optimizer.zero_grad()
    losses, grad = cross_entropy(model.forward(batch[:, :-1]), batch[:, -1], divisor=len(batch))
    model.backward(grad)
    optimizer.step()
    losses = comm.allgather(losses)
    if step % 50 == 49 and comm.rank == 0:
        print(f"step {step + 1:3}  loss {losses.mean():.6f}", flush=True)
