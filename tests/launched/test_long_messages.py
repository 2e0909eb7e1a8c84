"""More than 2 GiB at once, more bytes than an int of MPI's counts, in a few MiB of memory."""

PROGRAM = """
import ctypes, mmap, os
import numpy as np
from mpi4py import MPI
import mpicoll

N, MIB, PAGE = (1 << 31) + 17, 1 << 20, mmap.PAGESIZE

map_memory = ctypes.CDLL(None).mmap
map_memory.restype = ctypes.c_void_p
map_memory.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
common = os.memfd_create("common")
os.ftruncate(common, MIB)

def vast():
    # N bytes. Around the multiples of 1 MiB they are memory of their own, between those the same memory each time.
    array = np.frombuffer(mmap.mmap(-1, N, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), "uint8")
    for start in range(array.ctypes.data, array.ctypes.data + N - MIB, MIB):
        place, fixed = start + PAGE, mmap.MAP_SHARED | 0x10  # MAP_FIXED
        assert map_memory(place, MIB - 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, fixed, common, 0) == place
    return array

def own():
    # where a vast array is memory of its own, and what the sender has there, in which no two places are alike
    for middle in range(0, N + 1, MIB):
        place = slice(max(0, middle - PAGE), min(N, middle + PAGE))
        yield place, np.arange(place.start, place.stop) * 2654435761 >> 24 & 255

with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
    array = vast()
    if comm.rank == 0:
        for place, content in own():
            array[place] = content
    comm.broadcast(array, algorithm="tree")
    for place, content in own():
        np.testing.assert_array_equal(array[place], content)
    assert comm.bytes_sent == (0 if comm.rank else N)
    print("fine")
"""


def test_more_than_2_gib_arrive_whole_and_in_place(mpirun):
    done = mpirun(2, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2
