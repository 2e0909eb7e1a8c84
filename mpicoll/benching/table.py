"""The table: nccl-tests' thirteen columns, then ours on the same line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEAD = f"{'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
UNITS = f"{'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
NAMES = {False: "out-of-place", True: "in-place"}
LATENCY = "min", "median", "p99"


def fit(value: float, width: int) -> str:
    """The number in so many columns, with two decimals where they fit, as nccl-tests prints it."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text.rjust(width)
    return f"{value:.0e}".rjust(width)


def heading(places: Sequence[bool], against: Sequence[str], overlap: bool) -> list[str]:
    """The lines above the rows.

    Args:
        places: of which there are columns of ours.
        against: the peers with which ours are compared.
        overlap: whether there is a column for it.
    """
    first = f"{'':>12}  {'':>12}  {'':>8}  {'':>6}  {'':>6}  {'out-of-place':^31}  {'in-place':^31}"
    second = f"{'size':>12}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {HEAD}  {HEAD}"
    third = f"{'(B)':>12}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  {UNITS}  {UNITS}"
    first += f"  {'':<18}  {'':>9}"
    second += f"  {'algorithm':<18}  {'predicted':>9}"
    third += f"  {'':<18}  {'(us)':>9}"
    for place in places:
        width = 3 * 9 - 1 + 19 * len(against) + 12 * overlap
        first += f"  {f'{NAMES[place]}, one call at a time':^{width}}"
        second += "  " + "  ".join(f"{name:>7}" for name in LATENCY)
        third += "  " + "  ".join(f"{'(us)':>7}" for _ in LATENCY)
        for name in against:
            second += f"  {'of the limit' if name == 'limit' else f'time / {name}':>17}"
            third += f"  {'(quartiles)':>17}"
        if overlap:
            second += f"  {'overlap':>10}"
            third += f"  {'(OSU, IMB)':>10}"
    return ["#", f"#{first[1:]}".rstrip(), f"#{second[1:]}", f"#{third[1:]}".rstrip()]


def line(records: dict[bool, dict[str, Any]], places: Sequence[bool], against: Sequence[str], overlap: bool) -> str:
    """A row: the records of one contender and one size, by place."""
    one = next(iter(records.values()))
    root = -1 if one["root"] is None else one["root"]
    text = f"{one['nbytes']:>12}  {one['count']:>12}  {one['type']:>8}  {one['op'] or 'none':>6}  {root:>6}"
    for place in (False, True):
        text += "  " + _thirteen(records.get(place))
    predicted = "N/A" if one["predicted_us"] is None else fit(one["predicted_us"], 9)
    text += f"  {one['algorithm']:<18}  {predicted:>9}"
    for place in places:
        text += _ours(records.get(place), against, overlap)
    return text.rstrip()


def _thirteen(record: dict[str, Any] | None) -> str:
    if record is None:
        return f"{'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    wrong = "N/A" if record["wrong"] is None else f"{record['wrong']:g}"
    return f"{fit(record['time_us'], 7)}  {fit(record['algbw'], 6)}  {fit(record['busbw'], 6)}  {wrong:>6}"


def _ours(record: dict[str, Any] | None, against: Sequence[str], overlap: bool) -> str:
    text = ""
    for name in LATENCY:
        text += f"  {'N/A' if record is None else fit(record['latency_us'][name], 7):>7}"
    for name in against:
        text += f"  {_ratio(record['ratio'].get(name), name == 'limit') if record else 'N/A':>17}"
    if overlap:
        found = record and record.get("overlap")
        shown = f"{found['osu_percent']:.0f}%, {found['imb_percent']:.0f}%" if found else "N/A"
        text += f"  {shown:>10}"
    return text


def _ratio(quartiles: dict[str, float] | None, share: bool) -> str:
    if quartiles is None:
        return "-"
    low, middle, high = (quartiles[name] for name in ("q1", "median", "q3"))
    if share:  # theirs / ours
        return f"{1 / middle:.0%} ({1 / high:.0%}-{1 / low:.0%})"
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def footer(records: Sequence[dict[str, Any]]) -> list[str]:
    """The lines below the rows, as nccl-tests prints them; the average is over our rows."""
    wrong = [record["wrong"] for record in records if record["wrong"] is not None]
    mine = [record["busbw"] for record in records if record["by"] == "mpicoll"]
    total = sum(wrong)
    verdict = "not checked" if not wrong else f"{total} {'FAILED' if total else 'OK'}"
    return [f"# Out of bounds values : {verdict}", f"# Avg bus bandwidth    : {sum(mine) / max(1, len(mine)):g}", "#"]
