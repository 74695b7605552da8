"""Random batches of 64 from caches and from the stores of others, against the limit: copies out of a memory map.

    python scripts/bench/read.py [WORKLOAD ...] [--scale 1] [--rounds 30] [--seconds 0.1] [--cold 2]
    [--folder DIR]
                                 [--peers PYTHON[:NAME,...] ...] [--need 0.6]

clouds     float32 [4096, 6], 98 KB each
joints     float32 [21, 3], 252 B each
ragged     clouds of 9,000 to 500,000 points of three float32
windows    64 steps of episodes with two pictures [128, 128, 3]: 6.3 MB each

Files are built into caches as anybody's are. All ways take turns and are given the same batches; of
each, the bytes of a batch are compared once with those of the flat files. First with the data in
the page cache, each for `--seconds` of `--rounds` rounds, after a round of all batches that does
not count; then `--cold` times a few batches from files that were dropped from it, with the time
that opening takes, and what share of the bytes disks have read. Medians, and the best. Rounds are
short and many: other work on a machine slows it for seconds, which so meets all ways alike.

peers      see readers.py; --peers names a Python and which it has (datasets, arrowdatasets,
webdataset, zarr,
           streaming, litdata, lance, arrayrecord, tensorstore, robomimic). Each runs in a process
           of its own. None but ArrayRecord checks what it reads. TensorStore copies by threads, and
           so does ours where a field of a batch is large (windows, ragged); the limit is one
           thread. WebDataset cannot be asked for samples: it serves others, shuffled.

Ends with 1 where the plain DataLoader stays below `--need` of the limit for clouds, or where a peer
is faster in the page cache than `__getitems__` as it is by default. Peers that are faster than
`CachedLoader` are named beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from flat import Data, checksum
from readers import STORES
from ways import BATCH, LIMIT, OURS, THREADS, Asked, Ours, Peer, ours

from datacheck.pipeline import build
from datacheck.schema.model import Schema

STEPS = 64
Values = dict[str, np.ndarray]
Ways = dict[str, Ours | Peer]
Speeds = dict[str, list[tuple[float, float]]]  # GB/s, and the share that came from a disk


@dataclass(frozen=True)
class Workload:
    """What is read: samples (at scale 1), their fields, their rows where they differ, batches that are drawn."""

    samples: int
    fields: dict[str, tuple[str, tuple[int, ...]]]
    rows: tuple[int, int] | None
    batches: int
    cold: int
    windows: bool = False

    def schema(self, name: str) -> Schema:
        """Return how the files are to be read."""
        axis = [] if self.rows is None else ["T" if self.windows else "P"]
        fields = {
            n: {"shape": [*axis, *item], "dtype": dtype} for n, (dtype, item) in self.fields.items()
        }
        files = {"samples": {"files": "*.npz" if self.windows else "*.npy"}}
        cut = {"windows": {"length": STEPS}} if self.windows else {}
        return Schema.model_validate(
            {"datacheck": 1, "name": name, **files, **cut, "fields": fields}
        )


PICTURE = ("uint8", (128, 128, 3))
WORKLOADS = {
    "clouds": Workload(8000, {"x": ("float32", (4096, 6))}, None, 100, 10),
    "joints": Workload(20000, {"x": ("float32", (21, 3))}, None, 200, 100),
    "ragged": Workload(200, {"x": ("float32", (3,))}, (9_000, 500_000), 6, 1),
    "windows": Workload(24, {"left": PICTURE, "right": PICTURE}, (150, 250), 4, 1, windows=True),
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


def write(folder: Path, work: Workload, count: int) -> Data:
    """Write the samples as files, and the flat ones."""
    (folder / "data").mkdir(parents=True)
    (folder / "flat").mkdir()
    with ExitStack() as stack:
        files = {
            name: stack.enter_context((folder / "flat" / f"{name}.bin").open("wb"))
            for name in work.fields
        }
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
    ragged, steps = work.rows is not None and not work.windows, STEPS if work.windows else 0
    said = {"fields": work.fields, "lengths": lengths, "ragged": ragged, "steps": steps}
    (folder / "flat" / "data.json").write_text(json.dumps(said))
    return Data(folder / "flat")


def drawn(data: Data, rng: np.random.Generator, batches: int) -> list[Asked]:
    """Draw batches."""
    size = min(BATCH, len(data))
    numbers = [rng.choice(len(data), size, replace=False).tolist() for _ in range(batches)]
    items = [data.items(some) for some in numbers]
    return [Asked(n, i, sum(count for _, count in i)) for n, i in zip(numbers, items, strict=True)]


def checked(name: str, data: Data, ways: Ways) -> None:
    """Compare a batch of each way with the flat files."""
    asked = drawn(data, np.random.default_rng(2), 1)[0]
    maps = data.maps()
    for way, one in ways.items():
        found, items = one.check(asked)
        expected = {
            n: [rows[first : first + count] for first, count in items] for n, rows in maps.items()
        }
        if len(items) != len(asked.items) or found != checksum(data, expected):
            sys.exit(f"{name}: {way} serves other values")


def measured(
    work: Workload, data: Data, ways: Ways, asked: argparse.Namespace, *, cold: bool
) -> Speeds:
    """Return what each way reads in each round; the first warm one is thrown away."""
    rng, found = np.random.default_rng(1), {way: [] for way in ways}
    for turn in range(asked.cold if cold else asked.rounds + 1):
        batches = drawn(data, rng, work.cold if cold else work.batches)
        for way, one in ways.items():
            # 0: each batch once
            speed = one.read(batches, asked.seconds if turn and not cold else 0, cold=cold)
            if turn or cold:
                found[way].append(speed)
    return found


def table(speeds: Speeds, *, cold: bool) -> dict[str, float]:
    """Print what was read, and return the median GB/s of each way."""
    found = {way: [speed for speed, _ in rounds] for way, rounds in speeds.items()}
    middle = {way: statistics.median(some) for way, some in found.items()}
    best = {way: max(some) for way, some in found.items()}
    title = "cache dropped" if cold else "page cache"
    print(
        f"{title:32}{'GB/s':>9}{'of limit':>10}{'of ours':>9}{'best':>9}{'of limit':>10}"
        + "  from disk" * cold
    )
    for way, rounds in speeds.items():
        shares = middle[way] / middle[LIMIT], middle[way] / middle[OURS], best[way] / best[LIMIT]
        disk = f"{statistics.median(share for _, share in rounds):11.2f}" if cold else ""
        print(
            f"{way:32}{middle[way]:9.3f}{shares[0]:10.3f}{shares[1]:9.3f}{best[way]:9.3f}{shares[2]:10.3f}{disk}"
        )
    return middle


def run(name: str, folder: Path, asked: argparse.Namespace) -> dict[str, float]:
    """Measure one workload, print it, and return the median GB/s in the page cache."""
    work = WORKLOADS[name]
    count = max(8, int(work.samples * asked.scale))
    data = write(folder, work, count)
    build(work.schema(name), folder / "data", folder / "cache", workers=1)
    size = data.rows * data.row_bytes / 1e6
    print(
        f"\n{name}: {count:,} samples, {size:,.0f} MB, {len(data):,} items, {asked.rounds} rounds",
        flush=True,
    )
    with ExitStack() as stack:
        ways: Ways = {
            way: stack.enter_context(closing(one))
            for way, one in ours(data, folder / "cache").items()
        }
        for said in asked.peers:
            python, _, names = said.partition(":")
            for peer in names.split(",") if names else STORES:
                one = stack.enter_context(closing(Peer(data, folder / peer, python, peer)))
                ways[f"{peer} {one.version}"] = one
        checked(name, data, ways)
        os.sync()  # no writing beside the reading
        middle = table(measured(work, data, ways, asked, cold=False), cold=False)
        for one in ways.values():
            if isinstance(one, Ours):
                one.close()  # they map the same files
        if asked.cold:
            table(measured(work, data, ways, asked, cold=True), cold=True)
    return middle


def verdict(middle: dict[str, dict[str, float]], need: float) -> int:
    """Print what was reached in the page cache; return the exit status."""
    status = 0
    for name, speeds in middle.items():
        peers = [way for way in speeds if way.partition(" ")[0] in STORES]
        faster = {
            one: [way for way in peers if speeds[way] > speeds[one]] for one in (OURS, THREADS)
        }
        for one, some in faster.items():
            if peers:
                print(f"{name}: peers that are faster than {one}: {', '.join(some) or 'none'}")
        status |= bool(faster[OURS])
    if "clouds" in middle:
        reached = middle["clouds"]["DataLoader, touch"] / middle["clouds"][LIMIT]
        print(f"clouds: the DataLoader reaches {reached:.2f} of the limit; needed {need:.2f}")
        status |= reached < need
    return int(status)


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; all"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--seconds", type=float, default=0.1, help="of each way in a round, in the page cache"
    )
    parser.add_argument("--cold", type=int, default=2, help="rounds with the cache dropped")
    parser.add_argument("--folder", help="where to write the data; removed afterwards")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PYTHON[:NAME,...]")
    parser.add_argument(
        "--need", type=float, default=0.6, help="share of the limit that the DataLoader must reach"
    )
    asked = parser.parse_args()
    machine = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}"
    print(
        f"{machine}, Python {platform.python_version()}, torch {torch.__version__}, batches of "
        f"{BATCH}"
    )
    middle = {}
    for name in asked.workloads or WORKLOADS:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            middle[name] = run(name, Path(folder, name), asked)
    print()
    return verdict(middle, asked.need)


if __name__ == "__main__":
    sys.exit(main())
