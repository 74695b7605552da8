"""What a cache of ten million samples takes to open, and what workers hold of it, epoch after epoch.

    python scripts/bench/opening.py [--samples 10000000] [--epochs 50] [--rounds 7] [--folder DIR]
    [--cache PATH]

opening   10,000,000 samples of 252 B, one in 1,000 not finite, made by the real builder (minutes, 7
GB of disk). Each
          round is a fresh process, or a fresh worker; imports are not counted
epochs    2,000 samples with a cloud, joints, a number and a text, a transform, 50 epochs: the
memory of each worker
          and its open files after the first epoch and after the last
windows   10,000,000 windows over 20,000 episodes in a worker

Memory is PSS, as the kernel says it: what is shared counts by its share. "with files" counts mapped
files of the cache too, which the system may take back at any time. "busy" is processor time, which
other work changes less. Two controls must be told: workers that keep a copy of what they serve, and
that leave a file open. Ends with 1 where a limit is missed: 50 ms and 20 MB to open, 1 MB of an
epoch, no further open file, 10 MB for windows.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from datacheck.cache import open_cache
from datacheck.torch import CachedDataset, CachedLoader, Windows, collate_ragged

OPEN_S, OPEN_BYTES, EPOCH_BYTES, WINDOWS_BYTES = 0.05, 20e6, 1e6, 10e6
_COMMAND = [
    sys.executable,
    "-c",
    "import sys; from datacheck.cli.main import main; sys.exit(main())",
]


def pss(process: int | str = "self", files: str = "") -> float:
    """Return the PSS of a process [bytes]; with `files`, without what it has mapped of files below that folder."""
    kib, counted = 0, True
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        head = line.split()
        if not head[0].endswith(":"):
            counted = not files or files not in line
        elif head[0] == "Pss:" and counted:
            kib += int(head[1])
    return kib * 1024.0


# --------------------------------------------------------------------------------------- the caches


def build(here: Path, schema: str) -> Path:
    """Build the cache of the data beside a schema by the real command."""
    (here / "schema.yaml").write_text(schema)
    call = [*_COMMAND, "cache", "build", "schema.yaml", "--data", "data", "--workers", "1"]
    done = subprocess.run(call, cwd=here, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout + done.stderr)
    shutil.rmtree(here / "data")
    return here / "cache"


def rows(here: Path, count: int) -> Path:
    """Build many tiny samples: the rows of four files."""
    rng = np.random.Generator(np.random.Philox(0))
    for i in range(4):
        array = np.lib.format.open_memmap(
            here / f"data/{i}.npy", "w+", np.float32, (count // 4, 21, 3)
        )
        for first in range(0, len(array), 100_000):
            array[first : first + 100_000] = rng.random(
                array[first : first + 100_000].shape, np.float32
            )
        array[::1000] = np.nan
    fields = "{value: {shape: [21, 3], dtype: float32}}"
    return build(
        here,
        f"datacheck: 1\nname: tiny\nsamples: {{files: '*.npy', each: row}}\nfields: {fields}\n",
    )


def clouds(here: Path, count: int = 2000) -> Path:
    """Build samples of several fields."""
    rng = np.random.Generator(np.random.Philox(1))
    for i in range(count):
        cloud = rng.standard_normal((int(rng.integers(50, 500)), 3)).astype(np.float32)
        joints = rng.standard_normal((21, 3)).astype(np.float32)
        np.savez(
            here / f"data/{i:05d}.npz",
            cloud=cloud,
            joints=joints,
            number=np.int64(i),
            say=np.array(f"no. {i}"),
        )
    fields = (
        "{cloud: {role: points, shape: [P, 3], dtype: float32, unit: m}, number: {shape: []}, say: "
        "{role: text}, "
        "joints: {role: joints, shape: [21, 3], unit: m}}"
    )
    return build(
        here, f"datacheck: 1\nname: clouds\nsamples: {{files: '*.npz'}}\nfields: {fields}\n"
    )


def episodes(here: Path, count: int = 20_000) -> Path:
    """Build episodes of 507 steps, of which 500 begin a window of 8."""
    for i in range(10):
        with h5py.File(here / f"data/{i}.hdf5", "w") as file:
            for demo in range(count // 10):
                file[f"data/demo_{demo}/step"] = (np.arange(507) % 100).astype(np.int8)
    fields = "{step: {shape: [T], dtype: int8}}"
    said = "datacheck: 1\nname: steps\nsamples: {files: '*.hdf5', each: '/data/demo_*'}\n"
    return build(here, f"{said}fields: {fields}\n")


# ---------------------------------------------------------------------------------------- measuring


def timed(make: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return seconds and seconds of processors that something takes, and what it returns."""
    began, busy = time.perf_counter(), time.process_time()
    made = make()
    return (time.perf_counter() - began, time.process_time() - busy), made


class Asked(Dataset):
    """Says what opening a dataset in a worker takes, and what the worker has taken on since."""

    def __init__(self, data: CachedDataset, files: str) -> None:
        self.data, self.files, self.first = data, files, 0.0
        self.opened: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, items: list[int]) -> list[tuple[float, ...]]:
        if self.opened is None:
            whole, self.first = pss(), pss("self", self.files)
            took = timed(self.data.open)[0]
            self.opened = (*took, pss() - whole, pss("self", self.files) - self.first)
        self.data.__getitems__(items)
        return [(*self.opened, pss("self", self.files) - self.first)]


def in_a_worker(data: CachedDataset, files: str, start: str, batches: int = 1) -> tuple[float, ...]:
    """Return seconds and bytes that opening takes in a worker, and the bytes after some batches."""
    loader = DataLoader(
        Asked(data, files),
        batch_size=1000,
        shuffle=True,
        num_workers=1,
        collate_fn=list,
        multiprocessing_context=start,
    )
    return max(some[0] for some, _ in zip(loader, range(batches), strict=False))


def child(what: str, path: str) -> None:
    """Open in this fresh process; print seconds and bytes."""
    if what.startswith("worker"):
        print(json.dumps(in_a_worker(CachedDataset(path), path, what.split()[1])[:4]))
        return
    makes: dict[str, Callable[[], Any]] = {
        "open_cache": lambda: open_cache(path),
        "CachedDataset": lambda: CachedDataset(path),
        "CachedDataset, skip": lambda: CachedDataset(path, on_invalid="skip"),
    }
    whole, own = pss(), pss("self", path)
    took, made = timed(makes[what])
    print(json.dumps((*took, pss() - whole, pss("self", path) - own)))
    del made


def opening(path: Path, rounds: int) -> bool:
    """Print what opening takes; return whether all is in its limits."""
    names = ("open_cache", "CachedDataset", "CachedDataset, skip", "worker fork", "worker spawn")
    print(
        f"{len(open_cache(path)):,} "
        f"samples{'':24}{'seconds':>10}{'busy':>9}{'MB':>8}{'with files':>12}"
    )
    good = True
    for name in names:
        found = []
        for _ in range(rounds):
            call = [sys.executable, __file__, "--child", name, "--cache", str(path)]
            found.append(
                json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)
            )
        seconds, busy, whole, own = (
            statistics.median(column) for column in zip(*found, strict=True)
        )
        print(f"{name:42}{seconds:10.4f}{busy:9.4f}{own / 1e6:8.1f}{whole / 1e6:12.1f}", flush=True)
        good &= seconds < OPEN_S and whole < OPEN_BYTES
    return good


def transformed(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Turn a cloud."""
    return row | {"cloud": row["cloud"] * float(rng.random())}


KEPT: list[Any] = []


def leaking(row: dict[str, Any]) -> dict[str, Any]:
    """Keep a copy of each cloud."""
    KEPT.append(row["cloud"].clone())
    return row


def leaving(row: dict[str, Any]) -> dict[str, Any]:
    """Open a file, now and then."""
    if int(row["number"]) % 200 == 0:
        KEPT.append(os.open("/dev/null", os.O_RDONLY))
    return row


def epochs(
    path: Path, count: int, start: str, transform: Callable[..., Any] = transformed
) -> tuple[float, int, int]:
    """Return by how many bytes an epoch the fullest worker grows, and the most open files, first and last.

    Notes:
        With start "" a CachedLoader in this process.
    """
    data = CachedDataset(path, transform=transform)
    batches = data.sampler(50)
    if start:
        context = multiprocessing.get_context(start)
        how = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": context}
        loader: Any = DataLoader(data, batch_sampler=batches, collate_fn=collate_ragged, **how)
    else:
        loader = CachedLoader(data, batch_sampler=batches, collate_fn=collate_ragged)
    memory, files = [], []
    for _ in range(count):
        for batch in loader:
            del batch
        pids = [worker.pid for worker in loader._iterator._workers] if start else [os.getpid()]  # noqa: SLF001
        memory.append([pss(pid) for pid in pids])
        files.append(max(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids))  # noqa: PTH208
    grown = max(
        (last - first) / (count - 1) for first, last in zip(memory[0], memory[-1], strict=True)
    )
    return grown, files[0], files[-1]


def growth(path: Path, count: int) -> bool:
    """Print how workers grow; return whether they stay in their limits, and controls do not."""
    print(
        f"{f'{count} epochs of 2,000 samples':42}{'MB/epoch':>10}{'files after the first':>23}{'after the last':>16}"
    )
    good = True
    for name, start in (
        ("2 workers, fork", "fork"),
        ("2 workers, spawn", "spawn"),
        ("CachedLoader, here", ""),
    ):
        grown, first, last = epochs(path, count, start)
        print(f"{name:42}{grown / 1e6:10.3f}{first:23}{last:16}", flush=True)
        good &= grown < EPOCH_BYTES and first == last
    for name, transform in (
        ("control: copies are kept", leaking),
        ("control: files are left open", leaving),
    ):
        grown, first, last = epochs(path, 5, "fork", transform)
        print(f"{name:42}{grown / 1e6:10.3f}{first:23}{last:16}", flush=True)
        good &= grown >= EPOCH_BYTES if transform is leaking else first != last
    return good


def windows(path: Path) -> bool:
    """Print what windows take in a worker."""
    good = True
    for start in ("fork", "spawn"):
        data = CachedDataset(path, windows=Windows(8))
        *_, own, after = in_a_worker(data, str(path), start, 100)
        count = f"{len(data):,} windows, worker {start}"
        print(
            f"{count:42}{own / 1e6:8.1f} MB opened, {after / 1e6:.1f} MB after 100 batches of 1,000",
            flush=True,
        )
        good &= max(own, after) < WINDOWS_BYTES
    return good


def main() -> int:
    """Print the tables; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default=None, help="where to write; removed afterwards")
    parser.add_argument(
        "--cache", type=Path, default=None, help="a cache to open that was made before"
    )
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, str(asked.cache))
        return 0
    machine = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}"
    print(
        f"{machine}, Python {platform.python_version()}, torch {torch.__version__}, {asked.rounds} "
        f"rounds",
        flush=True,
    )

    def measured(make: Callable[[Path], Path], measure: Callable[[Path], bool]) -> bool:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            (Path(name) / "data").mkdir()
            return measure(make(Path(name)))

    opens = functools.partial(opening, rounds=asked.rounds)
    good = [
        opens(asked.cache)
        if asked.cache
        else measured(functools.partial(rows, count=asked.samples), opens)
    ]
    good.append(measured(clouds, functools.partial(growth, count=asked.epochs)))
    good.append(measured(functools.partial(episodes, count=asked.episodes), windows))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
