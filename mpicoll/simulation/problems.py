"""The lesson's worked problems and quoted numbers, and the command that answers each."""

from __future__ import annotations

from typing import NamedTuple

from .text import Answer


class Problem(NamedTuple):
    """Where it is asked, what, the lesson's answer, and the arguments of `python -m mpicoll.simulate`."""

    where: str
    question: str
    answer: str
    command: str


PROBLEMS = (
    Problem(
        "lesson 2",
        "1e25 FLOPs on one H100 at 100 % MFU",
        "centuries (about 320 years)",
        "budget --flops 1e25 --gpus 1 --mfu 1",
    ),
    Problem(
        "L14 p.5",
        "DeepSeek-V3: 2.664 M GPU hours on 2,048 GPUs",
        "about two months (54 days)",
        "budget --gpu-hours 2.664M --gpus 2048",
    ),
    Problem(
        "L14 p.5",
        "LLaMA 3.1: 30.84 M GPU hours on 16,000 GPUs",
        "80 days",
        "budget --gpu-hours 30.84M --gpus 16000",
    ),
    Problem(
        "lesson 3, quiz",
        "N = 256, local batch 4, accumulation 8; then N = 64 with the same global batch",
        "8192; accumulation 32",
        "batch --local 4 --global-batch 8192 -n 256,64",
    ),
    Problem(
        "lesson 3",
        "8 GPUs become 512 with the same batch per GPU",
        "64 times the global batch: another run",
        "batch --local 4 -n 8,512",
    ),
    Problem(
        "lesson 5, quiz",
        "bytes per GPU and latency of a ring at N = 8 and 512",
        "1.75 M and 1.996 M; latency x 73",
        "allreduce --bytes 500M -n 8,512 --links ndr",
    ),
    Problem(
        "lesson 7, quiz",
        "all-reduce 500 MB on 8 GPUs, over NVLink 4 and over NDR",
        "875 MB; 0.97 ms (1.94 ms per direction) and 17.5 ms",
        "allreduce --bytes 500M -n 8 --links nvlink4 ndr",
    ),
    Problem(
        "lesson 7",
        "an all-reduce per layer, inside nodes or across",
        "2 to 5 times the throughput",
        "chatty -n 8 --inside nvlink4 --across ndr --bytes 64M --layers 32 --per-layer 4 --compute-ms 100",
    ),
    Problem(
        "practice problem 1",
        "7B in BF16 on 64 H100s at 50 GB/s per GPU, no latency, 400 ms of computing",
        "27.6 GB, 0.55 s; 73 %, at least 150 ms exposed; XDR, SHARP or FP8: about 276 ms",
        "step --parameters 7B --dtype bf16 -n 64 --links 0us/50GB/s --compute-ms 400",
    ),
    Problem(
        "lesson 8, quiz",
        "fewer samples per GPU, the same gradients: what happens to the efficiency?",
        "it falls; computing shrinks, communication does not",
        "scaling --parameters 1B -n 8,16,32,64,128,256,512 --links ndr --compute-ms 400",
    ),
    Problem("lesson 9", "state of a 7B model", "112 GB", "memory --parameters 7B -n 64"),
    Problem("lesson 9", "state of a 70B model", "1.12 TB", "memory --parameters 70B -n 64"),
    Problem(
        "practice problem 2",
        "the largest model on 80 GB; 30B under data parallelism, and sharded over 16 GPUs",
        "5B; 480 GB, and no number of GPUs helps; about 30 GB",
        "memory --parameters 30B -n 1,16 --gpu-memory 80G",
    ),
)


def listing() -> Answer:
    """Every problem with its command."""
    lines = ["The lesson's problems (its answer in brackets), and what answers them"]
    for problem in PROBLEMS:
        lines += ["", f"{problem.where}: {problem.question} [{problem.answer}]"]
        lines.append(f"  python -m mpicoll.simulate {problem.command}")
    return Answer(lines, {"problems": [problem._asdict() for problem in PROBLEMS]})
