"""One process drives several devices: the lecture's NCCL code, here with arrays of the process as devices.

    mpirun -np 2 python -m mpicoll.examples.many_devices

The lecture's lines and ours:

    ncclCommInitRank(comms+i, nRanks*nDev, id, ...)     comms = [mpicoll.Communicator(MPI.COMM_WORLD) for ...]
    ncclGroupStart();                                   with mpicoll.group():
    for (int i=0; i<nDev; i++)                              for i in range(DEVICES):
      ncclAllReduce(sendbuff[i], recvbuff[i], size,             comms[i].allreduce(parts[i], parts[i])
                    ncclFloat, ncclSum, comms[i], s[i]);
    ncclGroupEnd();                                     (the block ends: all are under way)
    cudaStreamSynchronize(s[i]);                        (and are complete)

There a device is a rank; here a process is one. So the devices of a process are reduced first, and each of them then
takes its part of the result across the processes, all parts at the same time: every process sends as much as one
device has, not as much as all of them have.
"""

import numpy as np
from mpi4py import MPI

import mpicoll

DEVICES, COUNT = 4, 1_000_003


def main():
    """Every device has the sum over the devices of all processes; this is checked."""
    comms = [mpicoll.Communicator(MPI.COMM_WORLD) for _ in range(DEVICES)]
    rank, size = comms[0].rank, comms[0].size
    sendbuff = [np.full(COUNT, rank * DEVICES + i, np.float32) for i in range(DEVICES)]

    total = np.sum(sendbuff, axis=0)  # over the devices of this process
    parts = np.array_split(total, DEVICES)  # views: part i is device i's
    with mpicoll.group():
        for i in range(DEVICES):
            comms[i].allreduce(parts[i], parts[i])
    recvbuff = [total.copy() for _ in range(DEVICES)]

    everyone = size * DEVICES
    expected = everyone * (everyone - 1) / 2
    if not all((buffer == expected).all() for buffer in recvbuff):
        raise ArithmeticError(f"a device of rank {rank} does not have {expected}, the sum over {everyone} devices")
    if rank == 0:
        print(f"{size} processes x {DEVICES} devices, {COUNT:,} numbers each: every sum is {expected:g}")


if __name__ == "__main__":
    main()
