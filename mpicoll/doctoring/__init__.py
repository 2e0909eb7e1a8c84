"""What `python -m mpicoll.doctor` looks at.

hardware.py   what the kernel tells of cores, network interfaces and GPUs
software.py   which MPI, which BLAS, which versions; whether a rank runs the code that rank 0 runs
network.py    times of messages and the clocks of nodes, measured
facts.py      all that a rank knows of itself
findings.py   what the facts of all ranks mean
"""
