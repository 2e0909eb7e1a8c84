"""The paper's and the lecture's experiments with this trainer: tables and pictures for `mpicoll.experiments`.

In reading order: runs (variants of the trainer, timed in turn), noise, outcome (table and picture), and a module for
each experiment, which makes one Outcome. Nothing is loaded to name them.
"""

EXPERIMENTS = {
    "overlap": "what is saved by sending buckets while backward goes on",
    "bucket-sweep": "step and exposed communication over the bucket cap",
    "skip-sync": "the time of a micro-step if only every 2nd, 4th, 8th is synchronised (no_sync)",
    "scaling": "throughput, efficiency and the time of an epoch over the number of ranks",
    "sync-modes": "four ways to synchronise; the redundant local update beside the transfer it replaces",
    "batch-sweep": "the exposed share of a step over the batch of a rank",
    "batch-size": "more ranks change the problem: loss, accuracy and noise scale over the global batch",
}
