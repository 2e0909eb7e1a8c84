"""Says what is wrong with this machine, these nodes and this MPI: mpirun -np 4 python -m mpicoll.doctor

Start it as the program that is to run: alone, under mpirun or under srun, with the same ranks, nodes and flags. A line
for each thing that it looks at says whether that is good, suspicious or broken, and what mends it; then a table shows
where every rank is. It measures for less than two seconds. `python -m mpicoll` shows only what is not good.

Exit status: 0 if nothing is broken, 1 if something is, 2 if an argument is wrong.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import launch, runtime
from .command import Parser, rank

if TYPE_CHECKING:  # they load NumPy
    from .doctoring.facts import Facts
    from .doctoring.findings import Finding

PROGRAM = "mpicoll.doctor"
SECONDS = 60.0  # without progress
ROWS = 64  # of the table of ranks


def main(argv: Sequence[str] | None = None, short: bool = False) -> int:
    """The exit status, which is rank 0's to tell (see command.py); `short`: what is good is only counted."""
    parser = Parser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the findings and the ranks as JSON")
    args = parser.parse_args(argv)
    runtime.limit_threads()  # type: ignore[no-untyped-call]
    from .training import devices

    found = devices.find("auto")  # type: ignore[no-untyped-call]
    try:
        world = launch.begin()
    except ValueError as error:
        return report([_lost(str(error))], None, args.json, short)
    from .doctoring import facts, findings

    watch = Watch()
    runtime.install_abort_hook(lambda: watch.over)  # type: ignore[no-untyped-call]
    known = facts.collect(world, found, watch.stage)
    watch.end()
    watch.over = True
    return report(findings.all_findings(known), known, args.json, short) if world.rank == 0 else 0


def _lost(error: str) -> Finding:
    from .doctoring.findings import broken

    what, _, mend = error.partition(": ")
    return broken("world", what, mend)


def report(findings: Sequence[Finding], facts: Facts | None, as_json: bool, short: bool) -> int:
    """The exit status; rank 0 has printed it all."""
    if rank():
        return 0
    if as_json:
        print(json.dumps(as_dict(findings, facts), indent=1), flush=True)
    else:
        print("\n".join(text(findings, facts, short)), flush=True)
    return int(any(finding.grade == "broken" for finding in findings))


def text(findings: Sequence[Finding], facts: Facts | None, short: bool) -> list[str]:
    """The lines: findings, ranks, and a count."""
    from .doctoring.findings import GRADES

    shown = [finding for finding in findings if not short or finding.grade != "good"]
    wide = max((len(finding.name) for finding in shown), default=0)
    lines = [f"{grade:10}  {name:{wide}}  {what}{f'  ->  {mend}' if mend else ''}" for name, grade, what, mend in shown]
    if facts and not short:
        lines += ["", *table(facts), ""]
    grades = [finding.grade for finding in findings]
    lines.append(", ".join(f"{grades.count(grade)} {grade}" for grade in GRADES))
    if short:
        lines[-1] += "; python -m mpicoll.doctor shows all"
    return lines


def table(facts: Facts) -> list[str]:
    """Where every rank is: rows of a table."""
    from .doctoring.hardware import show_cores

    rows = [("rank", "host", "local", "cores", "threads", "GPU", "network interfaces (near cores)")]
    for number, own in enumerate(facts.ranks[:ROWS]):
        near = (f"{name}{f' ({show_cores(cores)})' if cores else ''}" for name, cores in own.interfaces)
        device = own.device.name if own.device else "-"
        if own.device and own.device.cores:
            device += f" ({show_cores(own.device.cores)})"
        threads = str(own.threads or "?")
        cores = show_cores(own.place.cores)
        rows.append((str(number), own.place.host, str(own.local_rank), cores, threads, device, ", ".join(near) or "-"))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows]
    left = len(facts.ranks) - ROWS
    return lines + ([f"and {left} more: --json has all"] if left > 0 else [])


def as_dict(findings: Sequence[Finding], facts: Facts | None) -> dict[str, object]:
    """What --json prints."""
    found: dict[str, object] = {"schema": 1, "findings": [finding._asdict() for finding in findings]}
    if facts:
        ranks = [own._asdict() | {"place": own.place._asdict()} for own in facts.ranks]
        links = [link._asdict() for link in facts.links]
        found |= {"versions": facts.versions, "ranks": ranks, "links": links}
        found["clocks"] = [clock._asdict() for clock in facts.clocks]
    return found


class Watch:
    """Ends the job when nothing has moved for SECONDS, and says what it was about: no one should stare at a hang.

    Attributes:
        over: whether no rank needs another any more.
    """

    def __init__(self) -> None:
        self.over, self._timer = False, threading.Timer(0, print)

    def stage(self, what: str) -> None:
        """Now this happens."""
        self.end()
        self._timer = threading.Timer(SECONDS, self._stuck, [what])
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        self._timer.cancel()

    def _stuck(self, what: str) -> None:
        from mpi4py import MPI

        who = f"rank {MPI.COMM_WORLD.rank} on {os.uname().nodename}"
        mend = "a firewall or a wrong network interface may be why: --mca btl_tcp_if_include, -iface, UCX_NET_DEVICES"
        print(f"broken      {who} hangs for {SECONDS:g} s while {what}  ->  {mend}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    raise SystemExit(main())
