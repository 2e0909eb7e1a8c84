"""What a lab leaves behind, or does not."""

import os
import time
from pathlib import Path


def inside(namespaces):
    """The ids of the processes that are in one of these namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("net", "pid"):
            try:
                if os.readlink(process / "ns" / kind) in namespaces:
                    found.append(process.name)
            except OSError:  # it has just ended
                continue
    return found


def left_over(namespaces):
    """What is still in these namespaces 10 s later, or keeps them by a mount."""
    deadline = time.monotonic() + 10
    while (found := inside(namespaces)) and time.monotonic() < deadline:
        time.sleep(0.01)
    mounts = Path("/proc/self/mountinfo").read_text()
    return found + [name for name in namespaces if name in mounts]


def surroundings():
    """What a lab must leave as it was: links, names of namespaces, hosts, mounts, /run."""
    links = sorted(os.listdir("/sys/class/net"))
    named = [
        sorted(os.listdir(path)) if path.exists() else None for path in map(Path, ("/run", "/run/netns", "/etc/netns"))
    ]
    return links, named, Path("/etc/hosts").read_text(), Path("/proc/self/mountinfo").read_text(), os.uname().nodename
