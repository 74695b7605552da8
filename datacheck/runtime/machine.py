"""Properties of the machine: usable processors and types of file systems."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def usable_cpus() -> int:
    """Return the number of processors that this process may use.

    ``taskset``, a container or a batch system may restrict it.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_LOCAL = frozenset(
    {
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "f2fs",
        "bcachefs",
        "jfs",
        "tmpfs",
        "ramfs",
        "overlay",
        "squashfs",
    }
)


def is_local(path: Path) -> bool:
    """Return whether `path` is on a local file system: its maps keep their file, its locks hold.

    Notes:
        Unknown types count as remote. Without ``/proc`` (macOS) every path counts as local.
    """
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return sys.platform != "linux"
    real_path = os.path.realpath(path)
    mount = ("", "")
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), before.split()[4])
        contains = real_path == point or real_path.startswith(point.rstrip("/") + "/")
        if contains and len(point) >= len(mount[0]):
            mount = (point, after.split()[0])
    return mount[1] in _LOCAL
