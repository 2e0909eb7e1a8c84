"""Numbers as people write them: 500M bytes, 7B parameters, 17.5 ms."""

from __future__ import annotations

import math
import re

HOUR, DAY, YEAR = 3600.0, 24 * 3600.0, 365.25 * 24 * 3600.0

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_COUNT = {**_DECIMAL, "K": 1e3, "B": 1e9}
_NUMBER = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")


def _parse(text: str, factors: dict[str, float], example: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] not in factors:
        raise ValueError(f"{text!r} is not a positive number such as {example}")
    value = float(match[1]) * factors[match[2]]
    if not 0 < value < math.inf:
        raise ValueError(f"{text} must be positive and finite")
    return value


def parse_bytes(text: str) -> int:
    """500M (or 500MB) is 500,000,000 bytes, as in the lesson; 25Mi (or 25MiB) is 26,214,400.

    Raises:
        ValueError: no positive number of bytes.
    """
    value = round(_parse(text.removesuffix("B"), {**_DECIMAL, "K": 1e3, **_BINARY}, "500M or 25MiB"))
    if value < 1:
        raise ValueError(f"{text} is less than a byte")
    return value


def parse_count(text: str) -> float:
    """7B (or 7G) is 7e9, 2.664M is 2,664,000; 1e25 is as it says.

    Raises:
        ValueError: no positive number.
    """
    return _parse(text, _COUNT, "7B, 2.664M or 1e25")


def parse_whole(text: str) -> int:
    """A whole number from 1 up, or ValueError."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def parse_share(text: str) -> float:
    """A number above 0, up to 1, or ValueError."""
    value = _parse(text, {"": 1.0}, "0.4")
    if value > 1:
        raise ValueError(f"{text} is more than 1")
    return value


def parse_positive(text: str) -> float:
    """A finite number above 0 without a unit, or ValueError."""
    return _parse(text, {"": 1.0}, "2.5")


def digits(value: float, significant: int = 3) -> str:
    """So many significant digits, no exponent, no trailing zeros."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, units: dict[str, float], significant: int = 3) -> tuple[str, str]:
    """The number and its unit: the largest of which the value has at least one. The units ascend."""
    unit = next(iter(units))
    for name, size in units.items():
        unit = name if value >= size else unit
    return digits(value / units[unit], significant), unit


def in_bytes(value: float) -> str:
    return " ".join(_scaled(value, {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}))


def in_count(value: float) -> str:
    """7B, 2.664M: no space, or billions would look like bytes."""
    return "".join(_scaled(value, {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}, significant=4))


def in_time(seconds: float, like: float | None = None) -> str:
    """Microseconds to years, whichever fits; a tenth of a millisecond is one in milliseconds.

    Args:
        like: a time below a second with which it is to share the unit.
    """
    scale = seconds if like is None else like
    if scale < 1e-4:
        return f"{digits(seconds * 1e6)} us"
    if scale < 1:
        return f"{digits(seconds * 1e3)} ms"
    return " ".join(_scaled(seconds, {"s": 1, "h": HOUR, "days": DAY, "years": YEAR}))
