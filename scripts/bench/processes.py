"""A command watched from outside: what it took, and the most memory of each of its processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMMAND = "import sys; from datacheck.cli.main import main; sys.exit(main())"
_POLL_S = 0.02


@dataclass
class Cost:
    """What one run took: seconds, seconds of all processors, the most memory of one process [bytes]; what it did."""

    wall: float
    cpu: float
    coordinator: int = 0
    worker: int = 0
    tokenized: int = 0


def datacheck(arguments: Sequence[str], folder: Path) -> tuple[int, str, Cost]:
    """Run a datacheck command in a folder; return its exit status, what it printed, and its cost."""
    wall = time.perf_counter()
    with (folder / "said").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments], stdout=out, cwd=folder
        )
        most: dict[int, int] = {}
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            for pid in family(process.pid):
                most[pid] = max(most.get(pid, 0), peak(pid))
            time.sleep(_POLL_S)
    wall = time.perf_counter() - wall
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    used = ended[2]
    others = [size for pid, size in most.items() if pid != process.pid]
    cost = Cost(
        wall, used.ru_utime + used.ru_stime, most.get(process.pid, 0), max(others, default=0)
    )
    return process.returncode, (folder / "said").read_text(), cost


def family(pid: int) -> Iterator[int]:
    """Yield a process and all that it started."""
    yield pid
    for child in children(pid):
        yield from family(child)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found: list[str] = []
    with contextlib.suppress(OSError):  # it has just ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += (thread / "children").read_text().split()
    return list(map(int, found))


def peak(pid: int) -> int:
    """Return the most memory [bytes] that a process has held, 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
