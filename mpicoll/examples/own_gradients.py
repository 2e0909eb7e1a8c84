"""The Reducer without a model of ours: any arrays, any backward that says which gradients are complete.

    mpirun -np 4 python -m mpicoll.examples.own_gradients

Two layers of a regression, their gradients by hand. Every rank has other samples; all end with the same weights.
"""

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.training.parameter import Parameter  # any object with a name and arrays data and grad would do

comm = mpicoll.Communicator(MPI.COMM_WORLD)
rng = np.random.default_rng(comm.rank)
x = rng.standard_normal((256, 8))
target = np.sin(x.sum(axis=1, keepdims=True))

w1, w2 = Parameter("w1", rng.standard_normal((8, 32)) / 3), Parameter("w2", rng.standard_normal((32, 1)) / 6)
reducer = mpicoll.Reducer(comm, [w1, w2])  # both start from rank 0's values; w1.grad and w2.grad are now its own

for step in range(200):
    reducer.zero_grad()
    hidden = np.tanh(x @ w1.data)
    error = hidden @ w2.data - target
    w2.grad += hidden.T @ error / len(x)
    reducer.mark_ready(w2)  # travels while the rest is computed
    w1.grad += x.T @ (error @ w2.data.T * (1 - hidden**2)) / len(x)
    reducer.mark_ready(w1)
    reducer.finish()  # gradients are the averages over all ranks
    for p in (w1, w2):
        p.data -= 0.1 * p.grad
    loss = comm.allreduce(np.array([(error**2).mean()]), op="avg")
    if step % 50 == 49 and comm.rank == 0:
        print(f"step {step + 1:3}  loss {loss[0]:.6f}", flush=True)

everyone = comm.allgather(w1.data.reshape(1, -1))
if comm.rank == 0:
    print(f"the weights are the same on all {comm.size} ranks: {(everyone == everyone[0]).all()}")
