"""The lesson's arithmetic, and the user's own: what data-parallel training costs before anybody has rented a GPU.

fabric.py (an all-reduce on links), step.py (one training step: timeline, bounds, verdict), sweep.py (many numbers of
GPUs; chatty communication), state.py (memory), budget.py (FLOPs, days, batches), text.py and pictures.py (how it is
shown), problems.py (the lesson's problems and the command that answers each). `python -m mpicoll.simulate` calls them.
"""
