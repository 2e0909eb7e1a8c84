"""The parts of `python -m mpicoll.bench`, one module per idea.

options (sizes and types as users write them), pattern (exact numbers), cases (what every rank gives and gets), buffers
(guarded memory), contenders (ours, and the MPI's; gloo, nccl), limit (the same memory traffic without messages), timing
(who calls when, and the clock), overlap (beside computation), memory (whether there is enough), records (what is known
of a size), table, picture, run (all of it in order), diff (two measurements compared).
"""
