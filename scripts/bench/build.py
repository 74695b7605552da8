"""How fast one process turns .npy clouds (float32 [4096, 6]) into a cache, against reading and writing the same bytes.

    python scripts/bench/build.py [--gigabytes 1] [--rounds 3] [--folder DIR]

The limit reads every file with `np.load` and writes shards of the same size, synced. Rounds interleaved; medians.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from datacheck import fsops
from datacheck.pipeline import build
from datacheck.scan import Request, run_scan
from datacheck.schema.model import Schema

ITEM = (4096, 6)
SHARD = 512  # files: 48 MiB
SCHEMA = Schema.model_validate({
    "datacheck": 1, "name": "clouds", "samples": {"files": "*.npy"},
    "fields": {"cloud": {"shape": list(ITEM), "dtype": "float32"}},
})  # fmt: skip


def plainly(data: Path, out: Path) -> None:
    """Read and write the same bytes with nothing in between."""
    fsops.make_directory(out)
    files = sorted(data.iterdir())
    for first in range(0, len(files), SHARD):
        rows = np.stack([np.load(file) for file in files[first : first + SHARD]])
        fsops.write_file(out / f"{first}", memoryview(rows).cast("B"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    seconds: dict[str, list[float]] = {"limit": [], "build": []}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        place, data = Path(folder), Path(folder, "data")
        data.mkdir()
        cloud = np.random.Generator(np.random.Philox(0)).random(ITEM, np.float32)
        count = int(asked.gigabytes * 1e9 / cloud.nbytes)
        for i in range(count):
            np.save(data / f"{i:08d}.npy", cloud)
        start = time.perf_counter()
        run = run_scan(SCHEMA, Request(data, workers=1, output=place / "scan"))
        scanned = time.perf_counter() - start
        for _ in range(asked.rounds):
            for name in seconds:
                out = place / name
                start = time.perf_counter()
                plainly(data, out) if name == "limit" else build(SCHEMA, data, out, run=run, workers=1)
                seconds[name].append(time.perf_counter() - start)
                shutil.rmtree(out)
    size = count * cloud.nbytes / 1e9
    print(f"{count:,} files of {cloud.nbytes:,} B, {asked.rounds} rounds, one process")
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"{'scan (once)':40}{size / scanned:8.2f} GB/s")
    for name, said in (("limit", "limit: np.load and synced writing"), ("build", "build, after the scan")):
        print(f"{said:40}{size / statistics.median(seconds[name]):8.2f} GB/s")


if __name__ == "__main__":
    main()
