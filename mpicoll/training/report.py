"""What a training run did, in numbers: the heading, the summary and the table."""

import hashlib
from statistics import fmean

import numpy as np

from .. import cost
from ..algorithms.cut import even
from .replicas import fingerprints, first_difference


def heading(comm, parts):
    """The lines above the progress bar: device, data, model, how the work is shared out."""
    text, sampler, model = parts.text, parts.sampler, parts.model
    sizes = ", ".join(f"{b.flat.nbytes / 2**20:.2f}" for b in model.buckets)
    return (
        f"device {parts.device}\n"
        f"text   {text.characters:,} characters, {len(text.vocabulary)} different ones, sha256 {text.sha256[:12]}; "
        f"{len(text.held_out):,} held out\n"
        f"model  {sum(p.data.size for p in model.parameters):,} parameters; gradient buckets of {sizes} MiB\n"
        f"batch  {sampler.global_batch} samples = {comm.size} ranks x {sampler.accumulation} x {sampler.micro_batch}"
    )


def formula_bytes(comm, buckets, algorithm):
    """The bytes that this rank sends in a step by the closed forms of `cost`."""
    total = 0
    for flat in (bucket.flat for bucket in buckets):
        name = comm.explain("allreduce", flat.nbytes, algorithm).algorithm
        total += cost.of("allreduce", name, comm.rank, even(len(flat), comm.size), flat.itemsize).sent
    return total


def summarise(comm, parts, records, seconds, held_out, algorithm):
    """The summary of a run, collective; times and bytes are rank 0's there, verdicts and losses hold for all ranks.

    Args:
        records: of all steps, from `loop.train`.
        seconds: that the training took, without the evaluation.
        held_out: the mean loss on the held-out text, in nats per character.
        algorithm: the forced one, or None.
    """
    steps, sampler = len(records), parts.sampler
    sent, formula = sum(r["bytes_sent"] for r in records), steps * formula_bytes(comm, parts.model.buckets, algorithm)
    as_formula = not comm.allreduce(np.array([int(sent != formula)]), op="max")[0]
    different = first_difference(comm, parts.model.parameters)
    mean = {name: fmean(r[name] for r in records) for name in ("step_ms", "compute_ms", "comm_ms", "exposed_comm_ms")}
    samples_per_s = steps * sampler.global_batch / seconds
    return {
        "event": "summary",
        "world_size": comm.size,
        "device": parts.device,
        "steps": steps,
        "global_batch": sampler.global_batch,
        "first_loss": records[0]["loss"],
        "final_loss": records[-1]["loss"],
        "eval_loss": held_out,
        "samples_per_s": samples_per_s,
        "train_s": seconds,
        "epoch_s": sampler.count / samples_per_s,
        **mean,
        "overlap": max(0.0, 1 - mean["exposed_comm_ms"] / mean["comm_ms"]) if comm.size > 1 else None,
        "bytes_sent_per_rank": sent,
        "formula_bytes_per_rank": formula,
        "bytes_as_formula": as_formula,
        "replicas_identical": different is None,
        "first_different_parameter": different and different[0].name,
        "different_ranks": different and different[1],
        "parameters_sha256": hashlib.sha256(fingerprints(parts.model.parameters)).hexdigest(),
        "data_sha256": parts.text.sha256,
    }


def table(summary):
    """The summary for people. A step is compute (forward, backward, optimizer) and exposed communication."""
    s = summary
    hidden = "" if s["overlap"] is None else f" ({s['overlap']:.0%} of the communication was hidden)"
    if s["bytes_as_formula"]:
        verdict = "exactly the formula"
    else:
        verdict = f"NOT THE FORMULA on some rank (rank 0: {s['formula_bytes_per_rank']:,})"
    if s["replicas_identical"]:
        replicas = f"bit-identical, sha256 {s['parameters_sha256'][:12]}"
    else:
        ranks = ", ".join(map(str, s["different_ranks"]))
        replicas = f"DIFFERENT: {s['first_different_parameter']} of rank(s) {ranks} is not rank 0's"
    rows = [
        (
            "loss",
            f"first {s['first_loss']:.3f}, last {s['final_loss']:.3f}, held out {s['eval_loss']:.3f} nats/character",
        ),
        ("training", f"{s['train_s']:.1f} s, {s['steps']} steps, {s['samples_per_s']:,.0f} samples/s"),
        ("step", f"{s['step_ms']:.2f} ms"),
        ("  compute", f"{s['compute_ms']:.2f} ms"),
        ("  exposed communication", f"{s['exposed_comm_ms']:.2f} ms{hidden}"),
        ("communication", f"{s['comm_ms']:.2f} ms per step in flight"),
        ("bytes sent by rank 0", f"{s['bytes_sent_per_rank']:,}: {verdict}"),
        ("replicas", f"{s['world_size']}, {replicas}"),
    ]
    return "\n".join(f"{name:<25}{value}" for name, value in rows)
