"""The tuning table: what `python -m mpicoll.tune` has measured, in a file that people can read and edit.

    {
     "schema": 1,
     "layouts": {
      "2+2": {                                            ranks on each node, here 2 on each of 2
       "mpi": "MPICH 5.0.2", "host": "a", "date": "2026-09-25",
       "links": {
        "node": {"alpha": 2e-06, "beta": 9e-11, "eager": 8192, "alpha_long": 4e-06, "beta_long": 8e-11}, ...
       },
       "copied": [32768, 524288],                         sizes at which a reduction goes by way of fresh memory
       "rules": {
        "allreduce": [[16384, "recursive_doubling"], [null, "ring"]], ...        up to 16 KiB, and above

Times are in seconds, sizes in bytes; what is null was not measured, or has no end. A wire without `eager` has one
regime. MPICOLL_TUNING names the file; without it, it is tuning.json in the folder mpicoll of the user's configuration
directory, if there is one. MPICOLL_TUNING=none: no table.
"""

from .file import VARIABLE, Source, chosen_file, default_file, look, read, save, this_mpi, tuned
from .reader import parse
from .table import Entry, Measured, Tuned, decide, layout

__all__ = [
    "VARIABLE",
    "Entry",
    "Measured",
    "Source",
    "Tuned",
    "chosen_file",
    "decide",
    "default_file",
    "layout",
    "look",
    "parse",
    "read",
    "save",
    "this_mpi",
    "tuned",
]
