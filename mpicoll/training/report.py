"""What a training run did, in numbers: the heading, the summary and the table."""

import hashlib
from statistics import fmean

import numpy as np

from . import precision
from .exchanges import Nothing
from .replicas import fingerprints, first_difference
from .verdict import verdict

TIMES = "step_ms", "compute_ms", "backward_ms", "comm_ms", "exposed_comm_ms"


def heading(comm, parts):
    """The lines above the progress bar: device, data, model, how the work is shared out, the learning rate."""
    data, sampler, model = parts.data, parts.sampler, parts.model
    count = sum(p.data.size for p in model.parameters)
    shares = sampler.shares  # of the ranks that compute
    each = " or ".join(map(str, sorted(set(shares))))
    at_a_time = f", at most {sampler.micro_batch} at a time" if sampler.micro_batch < max(shares) else ""
    mib = [b.flat.nbytes / 2**20 for b in model.buckets]
    sizes = ", ".join(f"{x:.2f}" for x in mib) if len(mib) < 10 else f"{min(mib):.2f} to {max(mib):.2f}"
    return (
        f"device {parts.device}\n"
        f"data   {data}; sha256 {data.sha256[:12]}\n"
        f"model  {parts.words}; {count:,} parameters{precision.words(parts.precision)}; "
        f"{len(mib)} gradient bucket{'s' * (len(mib) > 1)} of {sizes} MiB\n"
        f"batch  {sampler.global_batch} samples = {len(shares)} rank{'s' * (len(shares) > 1)} x {each}{at_a_time}\n"
        f"sync   {parts.sync}\n"
        f"rate   {parts.rate}"
        + (f"\nresume {parts.resumed}: step {parts.first} of {parts.steps} is made" if parts.resumed else "")
    )


def summarise(comm, parts, records, seconds, held_out):
    """The summary of a run, collective; times and bytes are rank 0's there, verdicts and losses hold for all ranks.

    Args:
        records: of all steps, from `loop.train`; some are missing where ranks were lost.
        seconds: that the training took, without the evaluation.
        held_out: the mean loss on the held-out data, in nats per prediction, and the accuracy.
    """
    steps, sampler = records[-1]["step"] - parts.first, parts.sampler
    sent, formula = sum(r["bytes_sent"] for r in records), parts.expected_bytes
    formula += (len(records) - parts.expected_of) * parts.model.formula_bytes()
    as_formula = not comm.allreduce(np.array([int(sent != formula)]), op="max")[0]
    different = first_difference(comm, parts.model.parameters)
    mean = {name: fmean(r[name] for r in records) for name in TIMES}
    buckets = [b.flat.nbytes for b in parts.model.buckets]
    rows = [r["bucket_waits_ms"] for r in records if len(r["bucket_waits_ms"]) == len(buckets)]
    waits = {name: fmean(r["waits_ms"][name] for r in records) for name in records[0]["waits_ms"]}
    communicates = comm.size > 1 and mean["comm_ms"]
    samples_per_s = steps * sampler.global_batch / seconds
    summary = {
        "event": "summary",
        "world_size": comm.size,
        "device": parts.device,
        "steps": steps,
        "resumed_at": parts.first,
        "lost": parts.lost,
        "model": parts.words,
        "precision": parts.precision,
        "global_batch": sampler.global_batch,
        "first_loss": records[0]["loss"],
        "final_loss": records[-1]["loss"],
        "eval_loss": held_out[0],
        "eval_accuracy": held_out[1],
        "skipped_steps": records[-1].get("skipped_steps", 0),
        "unit": parts.data.unit,
        "samples_per_s": samples_per_s,
        "predictions_per_s": samples_per_s * parts.data.predicted,
        "train_s": seconds,
        "epoch_s": sampler.count / samples_per_s,
        **mean,
        "sync": parts.sync,
        "waits_ms": waits,
        "bucket_waits_ms": [fmean(column) for column in zip(*rows, strict=True)],
        "bucket_mib": [nbytes / 2**20 for nbytes in buckets],
        "overlap": max(0.0, 1 - mean["exposed_comm_ms"] / mean["comm_ms"]) if communicates else None,
        "bytes_sent_per_rank": sent,
        "formula_bytes_per_rank": formula,
        "bytes_as_formula": as_formula,
        "replicas_identical": different is None,
        "replicas_synchronised": parts.model.exchange.name != Nothing.name,
        "first_different_parameter": different and different[0].name,
        "different_ranks": different and different[1],
        "parameters_sha256": hashlib.sha256(fingerprints(parts.model.parameters)).hexdigest(),
        "activation_bytes": parts.model.model.memory_bytes,
        "data_sha256": parts.data.sha256,
    }
    return {**summary, "verdict": verdict(summary, parts.model.overlap, parts.thread)}


def table(summary):
    """The summary for people. A step is compute (forward, backward, optimizer) and exposed communication."""
    s = summary
    hidden = "" if s["overlap"] is None else f" ({s['overlap']:.0%} of the communication was hidden)"
    if s["bytes_as_formula"]:
        formula = "exactly the formula"
    else:
        formula = f"NOT THE FORMULA on some rank (rank 0: {s['formula_bytes_per_rank']:,})"
    if s["replicas_identical"]:
        replicas = f"bit-identical, sha256 {s['parameters_sha256'][:12]}"
    elif not s["replicas_synchronised"]:
        replicas = "different, as is meant: nothing was exchanged; the losses are means over them"
    else:
        ranks = ", ".join(map(str, s["different_ranks"]))
        replicas = f"DIFFERENT: {s['first_different_parameter']} of rank(s) {ranks} is not rank 0's"
    after = f" after the first {s['resumed_at']}" if s["resumed_at"] else ""
    rows = [
        (
            "loss",
            f"first {s['first_loss']:.3f}, last {s['final_loss']:.3f}, held out {s['eval_loss']:.3f} nats/{s['unit']}",
        ),
        ("accuracy", f"{s['eval_accuracy']:.1%} of the {s['unit']}s held out"),
        ("training", f"{s['train_s']:.1f} s, {s['steps']} steps{after}, {s['predictions_per_s']:,.0f} {s['unit']}s/s"),
        *([("skipped steps", f"{s['skipped_steps']}, gradients not finite")] if s["skipped_steps"] else []),
        ("step", f"{s['step_ms']:.2f} ms"),
        ("  compute", f"{s['compute_ms']:.2f} ms"),
        ("  exposed communication", f"{s['exposed_comm_ms']:.2f} ms{hidden}"),
        *((f"    {name}", f"{ms:.2f} ms") for name, ms in s["waits_ms"].items() if len(s["waits_ms"]) > 1),
        *([("    for each bucket", listed(s["bucket_waits_ms"]))] if len(s["bucket_waits_ms"]) > 1 else []),
        ("communication", f"{s['comm_ms']:.2f} ms per step in flight"),
        ("verdict", s["verdict"]),
        *(("ranks", text) for text in s["lost"]),
        ("memory", f"{s['activation_bytes'] / 2**20:.1f} MiB for the values and gradients of a micro-batch per rank"),
        ("bytes sent by rank 0", f"{s['bytes_sent_per_rank']:,}: {formula}"),
        ("replicas", f"{s['world_size']}, {replicas}"),
    ]
    return "\n".join(f"{name:<25}{value}" for name, value in rows)


def listed(milliseconds):
    """Few of them one by one; of many the largest."""
    if len(milliseconds) <= 8:
        return f"{', '.join(f'{ms:.2f}' for ms in milliseconds)} ms"
    most = max(range(len(milliseconds)), key=milliseconds.__getitem__)
    last = f"the last {milliseconds[-1]:.2f} ms"
    return f"{milliseconds[most]:.2f} ms at most, for bucket {most} of {len(milliseconds)}; {last}"
