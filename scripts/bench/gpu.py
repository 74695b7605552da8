"""Random batches of 64 on a GPU: how fast they arrive, and how long training steps wait for them.

    python scripts/bench/gpu.py [WORKLOAD ...] [--scale 1] [--rounds 7] [--seconds 1] [--workers 8]
    [--step 5]
                                [--folder DIR]

The workloads are those of `read.py`. All ways take turns and serve the same batches from the page
cache; of each way, one batch is compared on the GPU with the flat files.

limit                    copies of one batch in pinned memory to the GPU, one after the other
CachedLoader, device     `CachedLoader(..., device="cuda")`
CachedLoader, .to        the same without a device; the loop copies each batch
DataLoader, N workers    PyTorch's loader over `CachedDataset`, in pinned memory, copied with
non_blocking flat files, N workers    PyTorch's loader over memory maps of the flat files, likewise:
what people write themselves

First batches are only counted (GB/s, of the limit). Then a training loop runs matrix products of
`--step` milliseconds on each batch; printed is the share of its time in which the GPU waits for
data: 1 - (time with one batch that lies on the GPU) / (time with the loader). Medians over rounds.
Ends with 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flat import Data
from read import WORKLOADS, write
from torch.utils.data import DataLoader, Dataset

from datacheck.pipeline import build
from datacheck.torch import CachedDataset, CachedLoader, collate_ragged

BATCH = 64
Batch = dict[str, torch.Tensor]
Way = Callable[[list[list[int]]], Iterable[Batch]]


class Flat(Dataset[Batch]):
    """Memory maps of the flat files."""

    def __init__(self, data: Data) -> None:
        self.data, self._maps = data, None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> Batch:
        self._maps = self._maps or self.data.maps()  # opened in each worker
        ((first, count),) = self.data.items([number])
        rows = slice(first, first + count) if self.data.steps else first
        return {
            name: torch.from_numpy(np.array(values[rows])) for name, values in self._maps.items()
        }


def placed(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Copy each batch to the GPU."""
    for batch in batches:
        yield {name: value.to("cuda", non_blocking=True) for name, value in batch.items()}


def ways(data: Data, cache: Path, workers: int) -> dict[str, Way]:
    """Return every way to read, by name."""
    ours = CachedDataset(cache)
    pinned: dict[str, Any] = {"num_workers": workers, "pin_memory": True, "prefetch_factor": 4}
    joined = {"collate_fn": collate_ragged}
    return {
        "CachedLoader, device": lambda order: CachedLoader(
            ours, batch_sampler=order, device="cuda", **joined
        ),
        "CachedLoader, .to": lambda order: placed(
            CachedLoader(ours, batch_sampler=order, **joined)
        ),
        f"DataLoader, {workers} workers": lambda order: placed(
            DataLoader(ours, batch_sampler=order, **joined, **pinned)
        ),
        f"flat files, {workers} workers": lambda order: placed(
            DataLoader(Flat(data), batch_sampler=order, **pinned)
        ),
    }


def size(batch: Batch) -> int:
    """Return the bytes of the arrays of a batch."""
    return sum(value.nbytes for value in batch.values())


def check(name: str, data: Data, found: Batch, numbers: list[int]) -> None:
    """End unless a batch holds what the flat files do."""
    items = data.items(numbers)
    for field, rows in data.maps().items():
        expected = np.stack(
            [rows[first : first + count] if data.steps else rows[first] for first, count in items]
        )
        if not np.array_equal(found[field].cpu().numpy(), expected):
            sys.exit(f"{name} serves other values in {field}")


def arrive(loader: Iterable[Batch], seconds: float) -> float:
    """Return the GB/s at which batches arrive; the time to start workers does not count."""
    batches, total = iter(loader), 0
    next(batches)
    start = time.perf_counter()
    for batch in batches:
        total += size(batch)
        if time.perf_counter() - start > seconds:
            break
    torch.cuda.synchronize()
    return total / (time.perf_counter() - start) / 1e9


def train(loader: Iterable[Batch], steps: int, products: int, weights: torch.Tensor) -> float:
    """Return the seconds of a training loop, without its first step."""
    start = 0.0
    for number, batch in enumerate(loader):
        state = weights + next(iter(batch.values())).reshape(-1)[0].float()
        for _ in range(products):
            state = torch.tanh(state @ weights)
        if number == 0:
            torch.cuda.synchronize()
            start = time.perf_counter()
        if number == steps:
            break
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(name: str, folder: Path, asked: argparse.Namespace) -> None:
    """Measure one workload and print it."""
    work = WORKLOADS[name]
    data = write(folder, work, max(8, int(work.samples * asked.scale)))
    build(work.schema(name), folder / "data", folder / "cache", workers=1)
    rng = np.random.default_rng(0)
    order = [rng.choice(len(data), BATCH, replace=False).tolist() for _ in range(2000)]
    readers = ways(data, folder / "cache", asked.workers)
    host: Batch = {}
    for way, open_ in readers.items():
        batch = next(iter(open_(order[:1])))
        check(way, data, batch, order[0])
        host = {field: value.cpu().pin_memory() for field, value in batch.items()}
    here = next(iter(placed([host])))
    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
    train([here] * 20, 19, 10, weights)
    one = train([here] * 20, 19, 10, weights) / 190
    products, steps = max(1, round(asked.step / 1000 / one)), 100
    limits, floors = [], []
    speeds: dict[str, list[float]] = {way: [] for way in readers}
    times: dict[str, list[float]] = {way: [] for way in readers}
    for _ in range(asked.rounds):
        limits.append(arrive(placed(host for _ in iter(int, 1)), asked.seconds))
        floors.append(train((here for _ in range(steps + 1)), steps, products, weights))
        for way, open_ in readers.items():
            speeds[way].append(arrive(open_(order), asked.seconds))
            times[way].append(train(open_(order[: steps + 1]), steps, products, weights))
    limit, floor = statistics.median(limits), statistics.median(floors)
    print(
        f"\n{name}: {len(data):,} items, {size(host) / 1e6:.1f} MB a batch, a step of "
        f"{floor / steps * 1e3:.1f} ms"
    )
    print(f"{'':32}{'GB/s':>9}{'of limit':>10}{'GPU waits':>11}")
    print(f"{'limit: one pinned batch':32}{limit:9.3f}{1:10.3f}{0:11.3f}")
    for way in readers:
        speed, took = statistics.median(speeds[way]), statistics.median(times[way])
        print(f"{way:32}{speed:9.3f}{speed / limit:10.3f}{1 - floor / took:11.3f}", flush=True)


def main() -> int:
    """Run the benchmark; return the exit status."""
    kinds = [name for name, work in WORKLOADS.items() if work.rows is None or work.windows]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(kinds)}; all"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in a round")
    parser.add_argument("--workers", type=int, default=8, help="of PyTorch's loaders")
    parser.add_argument(
        "--step", type=float, default=5.0, help="milliseconds of work for each batch"
    )
    parser.add_argument("--folder", help="where to write the data; removed afterwards")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch finds no GPU on this machine", file=sys.stderr)
        return 2
    print(
        f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, ",
        end="",
    )
    print(f"torch {torch.__version__}, batches of {BATCH}")
    for name in asked.workloads or kinds:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            measure(name, Path(folder, name), asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
