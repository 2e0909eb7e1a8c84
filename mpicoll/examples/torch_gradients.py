"""The Reducer under PyTorch, on the CPU: hooks say which gradients are complete, and they share its memory.

    mpirun -np 4 python -m mpicoll.examples.torch_gradients

Autograd adds into each gradient and calls the hook; nothing is copied between PyTorch and mpicoll.
"""

import torch
from mpi4py import MPI

import mpicoll
from mpicoll.training.parameter import Parameter

comm = mpicoll.Communicator(MPI.COMM_WORLD)
torch.manual_seed(comm.rank)
torch.set_num_threads(1)
x = torch.randn(256, 8)
target = torch.sin(x.sum(dim=1, keepdim=True))

model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
ours = [Parameter(name, p.detach().numpy()) for name, p in model.named_parameters()]
reducer = mpicoll.Reducer(comm, ours)
for p, our in zip(model.parameters(), ours, strict=True):
    p.grad = torch.from_numpy(our.grad)  # a view into its bucket
    p.register_post_accumulate_grad_hook(lambda p, our=our: reducer.mark_ready(our))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

for step in range(200):
    reducer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), target)
    loss.backward()
    reducer.finish()
    optimizer.step()
    mean = comm.allreduce(loss.detach().reshape(1).numpy(), op="avg")
    if step % 50 == 49 and comm.rank == 0:
        print(f"step {step + 1:3}  loss {mean[0]:.6f}", flush=True)

everyone = comm.allgather(ours[0].data.reshape(1, -1))
if comm.rank == 0:
    print(f"the weights are the same on all {comm.size} ranks: {(everyone == everyone[0]).all()}")
