"""Random batches of 64 from caches, against the limit: copies out of one memory map into one buffer.

    python scripts/bench/read.py [WORKLOAD ...] [--scale 1] [--rounds 5] [--folder DIR] [--need 0.6]

clouds     float32 [4096, 6], 98 KB each
joints     float32 [21, 3], 252 B each
ragged     clouds of 9,000 to 500,000 points of three float32
windows    64 steps of episodes with two pictures [128, 128, 3]: 6.3 MB each

Files are built into caches as anybody's are. Every way serves the same batches, their values are compared once; rounds
are interleaved; medians, and the best of them: other work on the machine slows single rounds. First with the data in
the page cache, then with every file dropped from it before each pass. Ends with 1 where the plain DataLoader stays
below `--need` of the limit for clouds.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from datacheck.pipeline import build
from datacheck.schema.model import Schema
from datacheck.torch import CachedDataset, CachedLoader, collate_ragged

BATCH, STEPS = 64, 64
Batches = list[list[int]]
Values = dict[str, np.ndarray]
Reader = Callable[[Batches], Iterable[Any]]


@dataclass(frozen=True)
class Workload:
    """What is read: samples (at scale 1), their fields, their rows where they differ, batches of a pass."""

    samples: int
    fields: dict[str, tuple[str, tuple[int, ...]]]
    rows: tuple[int, int] | None
    batches: int
    windows: bool = False

    def schema(self, name: str) -> Schema:
        """Return how the files are to be read."""
        axis = [] if self.rows is None else ["T" if self.windows else "P"]
        fields = {n: {"shape": [*axis, *item], "dtype": dtype} for n, (dtype, item) in self.fields.items()}
        files = {"samples": {"files": "*.npz" if self.windows else "*.npy"}}
        cut = {"windows": {"length": STEPS}} if self.windows else {}
        return Schema.model_validate({"datacheck": 1, "name": name, **files, **cut, "fields": fields})


PICTURE = ("uint8", (128, 128, 3))
WORKLOADS = {
    "clouds": Workload(8000, {"x": ("float32", (4096, 6))}, None, 100),
    "joints": Workload(20000, {"x": ("float32", (21, 3))}, None, 312),
    "ragged": Workload(200, {"x": ("float32", (3,))}, (9_000, 500_000), 6),
    "windows": Workload(24, {"left": PICTURE, "right": PICTURE}, (150, 250), 3, windows=True),
}


def samples(work: Workload, count: int) -> Iterator[Values]:
    """Yield so many samples of random bytes that are finite numbers."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        rows = () if work.rows is None else (int(rng.integers(*work.rows, endpoint=True)),)
        yield {
            name: rng.integers(0, 256, (*rows, *item), np.uint8)
            if dtype == "uint8"
            else rng.random((*rows, *item), np.float32)
            for name, (dtype, item) in work.fields.items()
        }


@dataclass
class Flat:
    """Every field behind one another in one file, without a head: what the limit reads."""

    folder: Path
    maps: Values
    starts: np.ndarray
    lengths: np.ndarray

    def items(self, work: Workload, batch: list[int]) -> list[tuple[int, int]]:
        """Return first row and number of rows of each item."""
        if not work.windows:
            return [(int(self.starts[i]), int(self.lengths[i])) for i in batch]
        ends = np.cumsum(self.lengths - STEPS + 1)
        episodes = np.searchsorted(ends, batch, side="right")
        before = np.concatenate([[0], ends])[episodes]
        return [(int(row), STEPS) for row in self.starts[episodes] + batch - before]

    def count(self, work: Workload) -> int:
        """Return how many items there are."""
        return int((self.lengths - STEPS + 1).sum()) if work.windows else len(self.lengths)


def write(folder: Path, work: Workload, count: int) -> Flat:
    """Write the samples as files, and the flat ones."""
    (folder / "data").mkdir(parents=True)
    files = {name: (folder / f"{name}.bin").open("wb") for name in work.fields}
    lengths = []
    for i, sample in enumerate(samples(work, count)):
        file = folder / "data" / f"{i:08d}"
        if work.windows:
            np.savez(file, **sample)
        else:
            np.save(file, sample["x"])
        lengths.append(1 if work.rows is None else len(next(iter(sample.values()))))
        for name, value in sample.items():
            files[name].write(value.data)
    for out in files.values():
        out.close()
    ends = np.cumsum(lengths)
    maps = {
        name: np.memmap(folder / f"{name}.bin", dtype, "r", shape=(int(ends[-1]), *item))
        for name, (dtype, item) in work.fields.items()
    }
    return Flat(folder, maps, ends - lengths, np.array(lengths))


def limit(work: Workload, flat: Flat) -> Reader:
    """Return what copies each item out of the maps into one buffer."""
    maps = {n: np.memmap(Path(m.filename), m.dtype, "r", shape=m.shape) for n, m in flat.maps.items()}
    most = BATCH * int(STEPS if work.windows else flat.lengths.max())
    out = {name: np.empty((most, *mapped.shape[1:]), mapped.dtype) for name, mapped in maps.items()}

    def copied(items: list[tuple[int, int]]) -> Values:
        for name, mapped in maps.items():
            if work.rows is None:
                rows = np.array([first for first, _ in items])
                np.take(mapped, rows, axis=0, out=out[name][: len(rows)], mode="clip")
                continue
            at = 0
            for first, count in items:
                out[name][at : at + count] = mapped[first : first + count]
                at += count
        return {name: values[: sum(count for _, count in items)] for name, values in out.items()}

    return lambda batches: (copied(flat.items(work, batch)) for batch in batches)


def ways(work: Workload, flat: Flat, cache: Path) -> dict[str, Callable[[], Reader]]:
    """Return every way to read, by name; each opens what it reads."""

    def gathered(verify: str) -> Reader:
        data = CachedDataset(cache, verify=verify)
        return lambda batches: map(data.__getitems__, batches)

    def loader(make: Callable[..., Any], verify: str) -> Reader:
        data = CachedDataset(cache, verify=verify)
        return lambda batches: make(data, batch_sampler=batches, collate_fn=collate_ragged)

    return {
        "limit: copies out of one map": partial(limit, work, flat),
        "__getitems__, manifest": partial(gathered, "manifest"),
        "__getitems__, touch": partial(gathered, "touch"),
        "__getitems__, always": partial(gathered, "always"),
        "DataLoader, touch": partial(loader, DataLoader, "touch"),
        "CachedLoader, touch": partial(loader, CachedLoader, "touch"),
        "CachedLoader, always": partial(loader, CachedLoader, "always"),
    }


def values(work: Workload, batch: Any) -> Values:
    """Return the values of a batch, rows behind one another."""
    whole = collate_ragged(batch) if not isinstance(batch, dict) else batch
    return {n: np.asarray(whole[n]).reshape(-1, *item) for n, (_, item) in work.fields.items()}


def drop(folder: Path) -> None:
    """Write out and drop every file below a folder from the page cache; nothing may have it mapped."""
    for file in folder.rglob("*"):
        if file.is_file():
            opened = os.open(file, os.O_RDONLY)
            os.fsync(opened)
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(opened)


def measure(
    work: Workload, flat: Flat, made: dict[str, Callable[[], Reader]], rounds: int, *, cold: bool
) -> dict[str, list[float]]:
    """Return the GB/s of each way in each round; the first warm one is thrown away."""
    rng, count = np.random.default_rng(1), flat.count(work)
    size = sum(np.dtype(dtype).itemsize * int(np.prod(item)) for dtype, item in work.fields.values())
    opened = {} if cold else {name: way() for name, way in made.items()}
    found: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(rounds + (not cold)):
        for name, way in made.items():
            batches = [rng.choice(count, min(BATCH, count), replace=False).tolist() for _ in range(work.batches)]
            if cold:
                gc.collect()
                drop(flat.folder)
                batches = batches[:10]
            read = way() if cold else opened[name]
            total = sum(rows for batch in batches for _, rows in flat.items(work, batch)) * size
            start = time.perf_counter()
            for _ in read(batches):
                pass
            if turn or cold:
                found[name].append(total / (time.perf_counter() - start) / 1e9)
            del read
    return found


def run(name: str, folder: Path, scale: float, rounds: int) -> float:
    """Measure one workload, print it, and return what the plain DataLoader reaches of the limit."""
    work = WORKLOADS[name]
    count = max(8, int(work.samples * scale))
    flat = write(folder, work, count)
    cache = folder / "cache"
    build(work.schema(name), folder / "data", cache, workers=1)
    made = ways(work, flat, cache)
    some = np.random.default_rng(2).integers(0, flat.count(work), 16).tolist()
    expected = {n: v.copy() for n, v in next(iter(limit(work, flat)([some]))).items()}
    for way, opening in made.items():
        for batch in opening()([some]):
            got = batch if way.startswith("limit") else values(work, batch)
            if not all(np.array_equal(got[n], expected[n]) for n in expected):
                sys.exit(f"{name}: {way} serves other values")
    print(f"\n{name}: {count:,} samples, {sum(m.nbytes for m in flat.maps.values()) / 1e6:,.0f} MB, {rounds} rounds")
    flat.maps = {n: np.memmap(Path(m.filename), m.dtype, "r", shape=m.shape) for n, m in flat.maps.items()}
    reached = 0.0
    for cold in (False, True):
        speeds = measure(work, flat, made, 1 + rounds // 3 if cold else rounds, cold=cold)
        middle = {way: statistics.median(found) for way, found in speeds.items()}
        top = {way: max(found) for way, found in speeds.items()}
        base = next(iter(made))
        print(f"{'cache dropped' if cold else 'page cache':40} {'GB/s':>8} {'of limit':>9} {'best':>8} {'of limit':>9}")
        for way in made:
            shares = middle[way] / middle[base], top[way] / top[base]
            print(f"{way:40} {middle[way]:8.2f} {shares[0]:9.2f} {top[way]:8.2f} {shares[1]:9.2f}")
            if way.startswith("DataLoader") and not cold:
                reached = shares[0]
    return reached


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where to write the data; removed afterwards")
    parser.add_argument("--need", type=float, default=0.6, help="share of the limit that the DataLoader must reach")
    asked = parser.parse_args()
    machine = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}"
    print(f"{machine}, Python {platform.python_version()}, torch {torch.__version__}, batches of {BATCH}")
    reached = {}
    for name in asked.workloads or WORKLOADS:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            reached[name] = run(name, Path(folder, name), asked.scale, asked.rounds)
    if "clouds" in reached:
        print(f"\nclouds: the DataLoader reaches {reached['clouds']:.2f} of the limit; needed {asked.need:.2f}")
    return 0 if reached.get("clouds", asked.need) >= asked.need else 1


if __name__ == "__main__":
    sys.exit(main())
