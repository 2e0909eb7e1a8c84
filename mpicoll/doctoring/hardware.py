"""What Linux tells of cores, network interfaces and GPUs, and which cores are near to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SYS = Path("/sys")
NVIDIA, DISPLAY = "0x10de", "0x03"  # a PCI device's vendor, and how the class of a display or 3D controller begins


class Near(NamedTuple):
    """A device, and the cores that are near to it; () if that is not known."""

    name: str
    cores: tuple[int, ...] = ()


def interfaces(root: Path = SYS) -> list[Near]:
    """The network interfaces that are up, but for the one of the host with itself, and InfiniBand's devices."""
    found = []
    for folder in sorted((root / "class/net").glob("*")):
        if folder.name != "lo" and _read(folder / "operstate") == "up":
            speed = _read(folder / "speed")  # Mbit/s; -1 or nothing where there is none
            rate = f" {int(speed) / 1000:g} Gbit/s" if speed.isdecimal() else ""
            found.append(Near(folder.name + rate, _near(folder / "device")))
    for folder in sorted((root / "class/infiniband").glob("*")):
        rate = " ".join(_read(folder / "ports/1/rate").split()[:2])  # 400 Gb/sec (4X NDR)
        found.append(Near(f"{folder.name} {rate.replace('Gb/sec', 'Gbit/s')}".strip(), _near(folder / "device")))
    return found


def nvidia(root: Path = SYS) -> int:
    """How many GPUs of NVIDIA there are, whether or not a program can use them."""
    devices = (root / "bus/pci/devices").glob("*")
    return sum(_read(at / "vendor") == NVIDIA and _read(at / "class").startswith(DISPLAY) for at in devices)


def near_pci(address: str, root: Path = SYS) -> tuple[int, ...]:
    """The cores near to the PCI device of this address, such as 0000:1b:00.0."""
    return _near(root / "bus/pci/devices" / address.lower())


def _near(device: Path) -> tuple[int, ...]:
    return parse_cores(_read(device / "local_cpulist"))


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text().strip()
    return ""


def parse_cores(text: str) -> tuple[int, ...]:
    """(0, 1, 2, 8) from the kernel's 0-2,8."""
    found: list[int] = []
    for term in text.split(",") if text else ():
        first, _, last = term.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def show_cores(cores: Iterable[int]) -> str:
    """0-2,8 from (0, 1, 2, 8); as the kernel writes it."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
