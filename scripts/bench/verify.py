"""How fast a cache is verified, against reading its bytes: the limit reads the same files on as many threads.

    python scripts/bench/verify.py [--gigabytes 2] [--rounds 5] [--folder DIR] [--cold] [--need 0.7]

Clouds (float32 [4096, 6]) in shards of 48 MiB or so. All figures come from one run, rounds
interleaved; medians. Data are in the page cache; with `--cold` the system is asked to drop them
before each pass, which it may refuse. Ends with 1 where the full check stays below `--need` of the
limit.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build import ITEM, SCHEMA, write_data

from datacheck.cache.store import FolderStore
from datacheck.cache.verify import verify
from datacheck.pipeline import build
from datacheck.runtime.aligned import empty
from datacheck.scan import Request, run_scan

READ = 1 << 20  # as much at a time as a digest takes


def read_all(folder: Path) -> None:
    """Read every file once, the largest first, on every core, and do nothing with it."""
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}

    def read(path: Path) -> None:
        buffer = empty([READ], "uint8").data
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(read, sorted(sizes, key=lambda path: -sizes[path])))


def checked(depth: str) -> Callable[[Path], None]:
    """Return a pass that verifies; an intact cache must be told intact."""

    def run(folder: Path) -> None:
        problems = verify(folder, depth)
        assert problems == [], problems[0]

    return run


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", default=None, help="where to write the data; removed afterwards"
    )
    parser.add_argument(
        "--cold", action="store_true", help="ask the system to drop the files before each pass"
    )
    parser.add_argument(
        "--need", type=float, default=0.7, help="share of the limit that the full check must reach"
    )
    asked = parser.parse_args()
    ways = {
        "limit: reading": read_all,
        **{f"verify, {depth}": checked(depth) for depth in ("full", "values", "quick")},
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        data = Path(name, "data")
        write_data(data, max(1, int(asked.gigabytes * 1e9 / (4 * ITEM[0] * ITEM[1]))))
        run = run_scan(SCHEMA, Request(data, output=Path(name, "run")))
        (built,) = build(SCHEMA, data, Path(name, "out"), run=run)
        folder, shards = Path(built.path), built.shards
        os.sync()  # what is not on the disk yet is written now, not while something is timed
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for turn in range(asked.rounds + 1):  # the first one warms up
            for way, passed in ways.items():
                if asked.cold:
                    FolderStore(folder).drop()
                start = time.perf_counter()
                passed(folder)
                if turn:
                    seconds[way].append(time.perf_counter() - start)
    median = {way: statistics.median(found) for way, found in seconds.items()}
    limit, full = median["limit: reading"], median["verify, full"]
    print(
        f"{size / 1e9:.2f} GB in {shards} shards, {asked.rounds} rounds, "
        f"{'cold' if asked.cold else 'in memory'}"
    )
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    for way, found in median.items():
        print(f"{way:20}{found:8.3f} s{size / found / 1e9:8.1f} GB/s{limit / found:8.2f}")
    print(f"verify reaches {limit / full:.2f} of reading; needed {asked.need:.2f}")
    return 0 if limit / full >= asked.need else 1


if __name__ == "__main__":
    sys.exit(main())
