"""What `python -m mpicoll.explain` shows: figures from a run in the world, times, choices, proofs, the lecture's index.

`figure` is what a figure shows, `text` and `drawing` are its two forms; `forms` has the literature's closed forms,
which `verify` holds against everything else.
"""
