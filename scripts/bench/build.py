"""How fast .npy clouds (float32 [4096, 6]) become a cache, against writing the same bytes plainly and against others.

    python scripts/bench/build.py [--gigabytes 2] [--rounds 3] [--rest 0] [--folder DIR] [--ways
    WORDS ...]
                                  [--peers PYTHON[:NAME,...] ...]

limit      writes the bytes of every shard, which lie in memory, and syncs each file: nothing is
read and read   the same, and reads the files with `np.load` before
build      by one process and by two; the scan was made before, as it is when a build follows one
and scan   a build of data that nobody has looked at
command    the same by `datacheck cache build`
peers      see writers.py; --peers names a Python and which of them it has (streaming, litdata,
webdataset, datasets,
           zarr). None of them syncs or digests anything: `returned` is when they say that they are
           done, `on disk` when their files were synced after that, as ours are when the build
           returns; `and start`: with the start of their Python and its imports, as whoever types a
           command waits for

Every way reads the same files, which are in the page cache; rounds interleaved, every second one
backwards; medians. `--ways` takes only those whose names begin so. Disks of virtual machines take
some GB fast and then slow down: `--rest` waits so many seconds before each way, so that all find
the disk alike. Ends with 1 where the build stays below `--need` of the limit, or where a peer's
command is faster than ours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from processes import datacheck
from writers import ITEM, SHARD, WRITERS, on_disk, timed

from datacheck.pipeline import build
from datacheck.runtime import fsops
from datacheck.scan import Request, ScanRun, run_scan
from datacheck.schema.model import Schema

FILES = SHARD // (4 * ITEM[0] * ITEM[1])  # of one shard
SAID = {
    "datacheck": 1,
    "name": "clouds",
    "samples": {"files": "*.npy"},
    "fields": {"cloud": {"shape": list(ITEM), "dtype": "float32"}},
}
SCHEMA = Schema.model_validate(SAID)
LIMIT, BUILD, COMMAND = "limit: synced writing", "build", "command"
# Returned, on disk, and start [s]; NaN where there is no start
Way = Callable[[Path], "tuple[float, float, float]"]


def write_data(folder: Path, count: int) -> None:
    """Write so many clouds, no two alike."""
    rng = np.random.Generator(np.random.Philox(0))
    cloud = rng.random(ITEM, np.float32)
    folder.mkdir()
    for i in range(count):
        cloud[0] = rng.random(ITEM[1])
        np.save(folder / f"{i:08d}.npy", cloud)


def plainly(data: Path, out: Path, *, read: bool) -> None:
    """Write the same bytes with nothing in between."""
    fsops.make_directory(out)
    files = sorted(data.iterdir())
    rows = np.stack([np.load(file) for file in files[:FILES]])
    for first in range(0, len(files), FILES):
        some = files[first : first + FILES]
        if read:
            rows[: len(some)] = [np.load(file) for file in some]
        fsops.write_file(out / f"{first}", memoryview(rows[: len(some)]).cast("B"))


def peer(python: str, name: str, data: Path, workers: int, out: Path) -> tuple[float, float, float]:
    """Let another write."""
    command = [
        python,
        str(Path(__file__).with_name("writers.py")),
        name,
        str(data),
        str(out),
        str(workers),
    ]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    returned, synced = map(float, done.stdout.split())
    return returned, synced, time.perf_counter() - start


def command(workers: int, data: Path, out: Path) -> tuple[float, float, float]:
    """Scan and build as people do."""
    schema = data.with_name("clouds.yaml")
    schema.write_text(json.dumps(SAID))
    start = time.perf_counter()
    asked = [
        "cache",
        "build",
        str(schema),
        "--data",
        str(data),
        "--out",
        str(out),
        "--workers",
        str(workers),
    ]
    status, said, cost = datacheck(asked, data.parent)
    if status:
        raise SystemExit(said)
    on_disk(out)
    return cost.wall, cost.wall, time.perf_counter() - start


def contenders(place: Path, data: Path, peers: list[str]) -> dict[str, Way]:
    """Return all ways of writing the data, by what they are called."""
    start = time.perf_counter()
    run = run_scan(SCHEMA, Request(data, workers=1, output=place / "scan"))
    print(f"the scan before: {time.perf_counter() - start:.2f} s, one process")

    def here(write: Callable[[Path], object], out: Path) -> tuple[float, float, float]:
        return *timed(lambda: write(out), out), math.nan

    def ours(workers: int, known: ScanRun | None) -> Way:
        return partial(here, lambda out: build(SCHEMA, data, out, run=known, workers=workers))

    ways: dict[str, Way] = {
        LIMIT: partial(here, partial(plainly, data, read=False)),
        "      and read": partial(here, partial(plainly, data, read=True)),
        "build, 1 process": ours(1, run),
        "build, 2 workers": ours(2, run),
        "      and scan, 2 workers": ours(2, None),
        "command, 1 process": partial(command, 1, data),
        "command, 2 workers": partial(command, 2, data),
    }
    for said in peers:
        python, _, names = said.partition(":")
        for name in names.split(",") if names else WRITERS:
            for workers in (1, 2) if name in {"litdata", "datasets"} else (1,):
                label = f"{name}, {workers} process{'es' if workers > 1 else ''}"
                ways[label] = partial(peer, python, name, data, workers)
    return ways


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; removed afterwards")
    parser.add_argument("--rest", type=float, default=0, help="seconds to wait before each way")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PYTHON[:NAME,...]")
    parser.add_argument(
        "--ways", nargs="+", default=[""], metavar="WORDS", help="beginnings of their names"
    )
    parser.add_argument(
        "--need", type=float, default=0.7, help="share of the limit that the build must reach"
    )
    asked = parser.parse_args()
    count = int(asked.gigabytes * 1e9 / (4 * ITEM[0] * ITEM[1]))
    print(
        f"{count:,} files of {4 * ITEM[0] * ITEM[1]:,} B, {asked.rounds} rounds, {asked.rest:g} s "
        f"of rest"
    )
    machine = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}"
    print(f"{machine}, Python {platform.python_version()}, NumPy {np.__version__}")
    took: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        place = Path(folder)
        write_data(place / "data", count)
        os.sync()
        ways = contenders(place, place / "data", asked.peers)
        order = [way for way in ways if way == LIMIT or way.strip().startswith(tuple(asked.ways))]
        for turn in range(asked.rounds):
            for way in order if turn % 2 == 0 else order[::-1]:
                os.sync()
                time.sleep(asked.rest)
                took.setdefault(way, []).append(ways[way](place / "out"))
                shutil.rmtree(place / "out")
    return table(took, count * 4 * ITEM[0] * ITEM[1] / 1e9, asked.need)


def table(took: dict[str, list[tuple[float, float, float]]], size: float, need: float) -> int:
    """Print what each way took [s], for so many GB; return the exit status."""
    median = {
        way: [statistics.median(found) for found in zip(*rounds, strict=True)]
        for way, rounds in took.items()
    }
    limit = median[LIMIT][1]
    print(f"{'':28}{'returned':>10}{'on disk':>10}{'and start':>11}{'GB/s':>8}{'of the limit':>14}")
    for way, (returned, synced, whole) in median.items():
        started = "" if math.isnan(whole) else f"{whole:.2f} s"
        print(
            f"{way:28}{returned:>8.2f} s{synced:>8.2f} "
            f"s{started:>11}{size / synced:>8.2f}{limit / synced:>14.2f}"
        )
    best = min(
        (synced for way, (_, synced, _) in median.items() if way.startswith(BUILD)),
        default=math.nan,
    )
    ours = min(
        (whole for way, (*_, whole) in median.items() if way.startswith(COMMAND)), default=math.nan
    )
    faster = [
        way
        for way, (*_, whole) in median.items()
        if way.partition(",")[0] in WRITERS and whole < ours
    ]
    said = ", ".join(faster) or "none"
    print(
        f"build reaches {limit / best:.2f} of the limit; needed {need:.2f}. Peers whose command is "
        f"faster: {said}"
    )
    return int(limit / best < need or bool(faster))


if __name__ == "__main__":
    sys.exit(main())
