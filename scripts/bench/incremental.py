"""What a rebuild costs after one of 1,000 source files changed, and after a new threshold.

    python scripts/bench/incremental.py [--scale 1] [--shard 8] [--rounds 3] [--folder DIR]

At full scale 1,000 scenes of 2 MB (points, colours, labels, pose) make 250 shards of about 8 MiB:
64 MiB as a cache has them would take 16 GB. Every command is a process of its own, from its start
to its end, the scan included. Source files that are opened are counted by inotify, whoever opens
them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datacheck.cache import layout

FILES, POINTS = 1000, 105_000
_IN_OPEN, _IN_NONBLOCK = 0x20, 0o4000
_SETTLED_S = 2.1  # a file that was just written is looked at once more by the next scan
_EVENT = struct.Struct("iIII")
SCHEMA = """
datacheck: 1
name: scenes
samples: {{files: "*.npz"}}
fields:
  points: {{role: points, shape: [P, 3], dtype: float32, unit: m, size: {size}}}
  colors: {{role: value, shape: [P, 3], dtype: uint8}}
  labels: {{role: class, shape: [P], dtype: int32}}
  pose: {{role: value, shape: [4, 4], dtype: float64}}
"""


class Opened:
    """Counts the files of a folder that any process opens."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(_IN_NONBLOCK)
        if self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def names(self) -> set[str]:
        """Return the files that were opened since this was asked last."""
        return {name for raw in self._events() if (name := raw.rstrip(b"\0").decode())}

    def _events(self) -> Iterator[bytes]:
        while True:
            try:
                data = os.read(self._descriptor, 1 << 20)
            except BlockingIOError:
                return
            while data:
                size = _EVENT.unpack_from(data)[3]
                yield data[_EVENT.size : _EVENT.size + size]
                data = data[_EVENT.size + size :]


def scene(path: Path, seed: int, typical: int) -> None:
    """Write one source file."""
    rng = np.random.Generator(np.random.Philox(seed))
    count = int(typical * rng.uniform(0.9, 1.1))
    colors, labels = (
        rng.integers(0, 256, (count, 3), np.uint8),
        rng.integers(0, 20, count, np.int32),
    )
    points = rng.uniform(-2, 2, (count, 3)).astype(np.float32)
    np.savez(path, points=points, colors=colors, labels=labels, pose=np.eye(4))


def one_build(place: Path, shard: int) -> None:
    """Do in this process what ``datacheck cache build`` does; say how long the scan and the build took [s]."""
    from datacheck.pipeline import build, load_pipeline  # what the command itself imports
    from datacheck.scan import Request, run_scan

    layout.SHARD_BYTES = shard
    os.chdir(place)
    start = time.perf_counter()
    pipeline = load_pipeline("scenes.yaml")
    run = run_scan(pipeline.schema, Request(Path("data")))
    scanned = time.perf_counter()
    build(pipeline, "data", "cache", run=run)
    print(scanned - start, time.perf_counter() - scanned)


def shards(cache: Path) -> dict[str, Path]:
    """Return the shard files of the fields by their names in a cache."""
    return {file.relative_to(cache).as_posix(): file for file in (cache / "fields").rglob("c.*")}


class Bench:
    """A dataset, its caches, and what each command did."""

    def __init__(self, place: Path, shard: int, opened: Opened) -> None:
        self.place, self.shard, self.opened = place, shard, opened
        self.before: dict[str, int] = {}

    def build(self) -> tuple[list[float], list[str]]:
        """Run the command; return the times of all, of the scan and of the build [s], and what it did, in words."""
        known = set(self.caches())
        self.opened.names()
        command = [
            sys.executable,
            __file__,
            "--one",
            str(self.place),
            "--shard-bytes",
            str(self.shard),
        ]
        start = time.perf_counter()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = [time.perf_counter() - start, *map(float, said.split())]
        (cache,) = set(self.caches()) - known
        files, inodes = shards(cache), set(self.before.values())
        own = {name for name, path in files.items() if path.stat().st_ino not in inodes}
        every, written = (
            {name.rsplit("/", 1)[1].split(".")[1] for name in some} for some in (files, own)
        )
        rest = [path for path in cache.rglob("*") if path.is_file() and path not in files.values()]
        nbytes = sum(path.stat().st_size for path in (*rest, *(files[name] for name in own)))
        self.before = {name: path.stat().st_ino for name, path in files.items()}
        numbers = len(every - written), len(written), nbytes / 1e6, len(self.opened.names())
        return seconds, [
            f"{number:,.{1 if isinstance(number, float) else 0}f}" for number in numbers
        ]

    def caches(self) -> list[Path]:
        """Return the caches that are there."""
        return sorted(path.parent for path in self.place.glob("cache/*/*/*/manifest.json"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the bytes; the number of files stays"
    )
    parser.add_argument("--shard", type=float, default=8.0, help="MiB of a shard at full scale")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shard-bytes", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        one_build(asked.one, asked.shard_bytes)
        return 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        return measured(Path(folder), asked)


def measured(place: Path, asked: argparse.Namespace) -> int:
    """Build, edit, build; print the table; return 1 where a figure is not reached."""
    data, points = place / "data", int(POINTS * asked.scale)
    data.mkdir()
    for i in range(FILES):
        scene(data / f"{i:04d}.npz", i, points)
    nbytes = sum(path.stat().st_size for path in data.iterdir())
    bench = Bench(place, int(asked.shard * asked.scale * (1 << 20)), Opened(data))
    (place / "scenes.yaml").write_text(SCHEMA.format(size="0.1..10"))
    print(
        f"{FILES:,} files, {nbytes / 1e9:.2f} GB; {os.cpu_count()} cores, {platform.machine()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'':24}{'all, s':>8}{'scan':>8}{'build':>8}{'linked':>8}{'written':>8}{'MB':>10}{'opened':>8}"
    )
    time.sleep(_SETTLED_S)
    full, did = bench.build()
    told("full build", full, did)
    seconds: dict[str, list[list[float]]] = {"one file changed": [], "new threshold": []}
    worst: dict[str, list[str]] = {}
    for number in range(asked.rounds):
        scene(data / "0500.npz", FILES + number, points)
        time.sleep(_SETTLED_S)
        for what, some in seconds.items():
            if what == "new threshold":
                (place / "scenes.yaml").write_text(SCHEMA.format(size=f"0.1..{11 + number}"))
            taken, worst[what] = bench.build()
            some.append(taken)
    medians = {
        what: [statistics.median(column) for column in zip(*some, strict=True)]
        for what, some in seconds.items()
    }
    for what, some in medians.items():
        told(f"{what}, median", some, worst[what])
    taken, limit = (
        [times[column] for column in (2, 0)]
        for times in (medians["one file changed"], [0.03 * t + 1 for t in full])
    )
    for what, one, most in zip(
        ("build, after the scan", "whole command"), taken, limit, strict=True
    ):
        print(f"one file changed, {what}: {one:.2f} s; 3 % of the full one plus 1 s: {most:.2f} s")
    return int(
        taken[0] >= limit[0]
        or worst["one file changed"][1] != "1"
        or worst["new threshold"][1] != "0"
    )


def told(what: str, seconds: list[float], did: list[str]) -> None:
    times = "".join(f"{some:8.2f}" for some in seconds)
    print(f"{what:24}{times}{did[0]:>8}{did[1]:>8}{did[2]:>10}{did[3]:>8}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
