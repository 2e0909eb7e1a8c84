"""Short programs to start from: python -m mpicoll.examples.local, mpirun -np 4 python -m mpicoll.examples.distributed

local.py            trains a small model in one process
distributed.py      the same script, data-parallel, in a few lines more
own_gradients.py    the Reducer with arrays and a backward of one's own
torch_gradients.py  the Reducer with PyTorch's gradients, by hooks
many_devices.py     one process drives several devices: the lecture's ncclGroupStart ... ncclGroupEnd

Importing this package leaves each rank its share of the node's cores, which has to be before NumPy loads. In a program
of your own say so first: `from mpicoll import runtime; runtime.limit_threads()`.
"""

from .. import runtime

runtime.limit_threads()
