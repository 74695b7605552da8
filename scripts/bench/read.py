"""Random batches of 64 clouds (float32 [4096, 6]) from a cache, against the limit: one `np.take` on one memory map.

    python scripts/bench/read.py [--gigabytes 2] [--rounds 5] [--folder DIR] [--need 0.4]

All figures come from one run, rounds interleaved, data in the page cache; medians. Ends with 1 where the plain
DataLoader stays below `--need` of the limit.
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
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from datacheck.cache import layout, open_cache
from datacheck.cache.manifest import content_root, measure_files, write_manifest
from datacheck.digest import canonical_json, digest64, digest_sample, digest_value
from datacheck.sample import ArraySpec
from datacheck.torch import CachedDataset

ITEM, BATCH = (4096, 6), 64
SPEC = ArraySpec("float32", ITEM)
SAID = {"bench": 1}
KEY = digest_value(SAID)[:16]


class Writer:
    """The least that is a cache: one fixed field, written shard by shard with the layout alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.digests = folder, {}

    def array(self, path: str, grid: layout.Grid, shards, attributes=None) -> None:
        found = []
        for g, rows in enumerate(shards):
            used = -(-len(rows) // grid.chunk)
            whole = layout.fill_array(grid.dtype, (used * grid.chunk, *grid.item))
            whole[: len(rows)] = rows
            file = self.folder / path / grid.shard_file(g)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as out:
                out.write(whole.data)
                out.write(layout.pack_index(grid, layout.plain_sizes(grid, used)))
            raw = whole.reshape(used, -1).view(np.uint8)
            found += [digest64(chunk) for chunk in raw]
        (self.folder / path).mkdir(parents=True, exist_ok=True)
        (self.folder / path / layout.ZARR).write_bytes(canonical_json(layout.array_document(grid, attributes or {})))
        self.digests[path] = found

    def table(self, path: str, values: np.ndarray, attributes=None) -> None:
        self.array(path, layout.table_grid(values.dtype.name, len(values)), [values], attributes)

    def texts(self, what: str, dim: str, kind: str, texts: list[bytes]) -> None:
        lengths = np.array([len(t) for t in texts], dtype=np.int64)
        self.table(layout.rows_path(dim, "start"), np.cumsum(lengths) - lengths)
        self.table(layout.rows_path(dim, "length"), lengths)
        attributes = layout.field_attributes(ArraySpec("uint8", (), dim, kind))
        self.table(layout.sample_path(what), np.frombuffer(b"".join(texts), dtype=np.uint8), attributes)

    def finish(self, root: layout.Root, content: str) -> None:
        for path, found in list(self.digests.items()):
            self.table(layout.digests_path(path), np.array(found, dtype=np.uint64))
        for path in layout.group_paths(self.digests):
            document = layout.group_document({} if path else root.attributes)
            (self.folder / path / layout.ZARR).write_bytes(canonical_json(document))
        for name in (layout.FINDINGS, layout.SOURCES):
            (self.folder / name).write_bytes(b"{}")
        (self.folder / layout.INPUTS).write_bytes(canonical_json({"recipe": "0" * 32, "said": SAID}))
        write_manifest(self.folder, measure_files(self.folder), content)


def write_cache(folder: Path, samples: int) -> int:
    """Write a cache of random clouds; return the number of its shards."""
    writer, k = Writer(folder), layout.samples_per_shard(SPEC.item_bytes, [SPEC])
    rng, digests = np.random.default_rng(0), []

    def shards():
        for first in range(0, samples, k):
            rows = rng.random((min(k, samples - first), *ITEM), dtype=np.float32)
            digests.extend(digest_sample([("points", row)]) for row in rows)
            yield rows

    grid = layout.fixed_grid(SPEC, samples, k)
    writer.array(layout.field_path("points"), grid, shards(), layout.field_attributes(SPEC))
    keys = [f"cloud_{i:08d}.npy".encode() for i in range(samples)]
    writer.texts("key", layout.KEY_DIM, "text", keys)
    writer.texts("origin", layout.ORIGIN_DIM, "json", [canonical_json([{"file": key.decode()}]) for key in keys])
    found = np.array(digests, dtype=np.uint64)
    writer.table(layout.sample_path("digest"), found)
    for what in ("made", "valid"):
        writer.table(layout.sample_path(what), np.ones(samples, dtype=bool))
    lengths, raw = np.array([len(key) for key in keys]), np.frombuffer(b"".join(keys), dtype=np.uint8)
    root = layout.Root(KEY, "bench", "bench", layout.WHOLE, samples, k)
    writer.finish(root, content_root([("points", SPEC.dtype, SPEC.item)], lengths, raw, found))
    return grid.shards


def loader(dataset: CachedDataset) -> Callable[[np.ndarray], None]:
    """Return a pass over a plain DataLoader with the default collate; the order is drawn before the clock starts."""

    def run(order: np.ndarray) -> None:
        for batch in DataLoader(dataset, batch_size=BATCH, num_workers=0, sampler=order.tolist()):
            assert batch["points"].shape[1:] == ITEM

    return run


def batches(call: Callable[[np.ndarray], object]) -> Callable[[np.ndarray], None]:
    """Return a pass that calls `call` with each batch of indices."""

    def run(order: np.ndarray) -> None:
        for first in range(0, len(order), BATCH):
            call(order[first : first + BATCH])

    return run


def contenders(folder: Path, samples: int, flat: Path) -> dict[str, Callable[[np.ndarray], None]]:
    """Return every way to read, by name, the limit first."""
    mapped = np.memmap(flat, dtype=np.float32, mode="r", shape=(samples, *ITEM))
    out = np.empty((BATCH, *ITEM), np.float32)
    sets = {verify: CachedDataset(folder, verify=verify) for verify in ("manifest", "touch", "always")}
    return {
        "limit: np.take(map, out=) of one file": batches(
            lambda i: np.take(mapped, i, axis=0, out=out[: len(i)], mode="clip")
        ),
        "__getitems__, verify=manifest": batches(sets["manifest"].__getitems__),
        "__getitems__, verify=touch (seen)": batches(sets["touch"].__getitems__),
        "__getitems__, verify=always": batches(sets["always"].__getitems__),
        "DataLoader, default collate, touch": loader(sets["touch"]),
        "DataLoader, default collate, manifest": loader(sets["manifest"]),
    }


def measure(ways: dict[str, Callable[[np.ndarray], None]], samples: int, rounds: int) -> dict[str, float]:
    """Return the median GB/s of each way; rounds interleaved, the first one thrown away."""
    rng, speeds = np.random.default_rng(1), {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            order = rng.permutation(samples)
            start = time.perf_counter()
            run(order)
            if turn:
                speeds[name].append(samples * SPEC.item_bytes / (time.perf_counter() - start) / 1e9)
    return {name: statistics.median(found) for name, found in speeds.items()}


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where to write the data; removed afterwards")
    parser.add_argument("--need", type=float, default=0.4, help="share of the limit that the DataLoader must reach")
    asked = parser.parse_args()
    samples = max(BATCH, int(asked.gigabytes * 1e9 / SPEC.item_bytes))
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder, flat = Path(name, "bench", layout.WHOLE, KEY), Path(name, "flat.bin")
        shards = write_cache(folder, samples)
        with flat.open("wb") as file:
            cache = open_cache(folder, verify="manifest")
            for first in range(0, samples, BATCH):
                file.write(cache.gather("points", np.arange(first, min(samples, first + BATCH))).data)
        found = measure(contenders(folder, samples, flat), samples, asked.rounds)
    limit = next(iter(found.values()))
    cpu = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )
    print(f"{samples:,} samples of {SPEC.item_bytes:,} B in {shards} shards, {asked.rounds} rounds, batches of {BATCH}")
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{cpu or platform.processor()}, {os.cpu_count()} cores, {versions}")
    for what, speed in found.items():
        print(f"{what:45} {speed:6.1f} GB/s   {speed / limit:5.2f}")
    reached = found["DataLoader, default collate, touch"] / limit
    print(f"DataLoader reaches {reached:.2f} of the limit; needed {asked.need:.2f}")
    return 0 if reached >= asked.need else 1


if __name__ == "__main__":
    sys.exit(main())
