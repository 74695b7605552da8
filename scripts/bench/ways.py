"""Ways to read batches: the limit, ours, and those of peers in processes of their own."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from flat import Data, Items, checksum, drop, fetched, paced
from torch.utils.data import DataLoader

from datacheck.runtime.aligned import empty
from datacheck.torch import CachedDataset, CachedLoader, collate_ragged

BATCH = 64
LIMIT = "limit: copies out of one map"
OURS, THREADS = "__getitems__, touch", "CachedLoader, touch"
Reader = Callable[[Iterable["Asked"]], Iterable[Any]]


@dataclass(frozen=True)
class Asked:
    """A batch: which items, and their rows in the flat files."""

    numbers: list[int]
    items: Items
    rows: int


def limit(data: Data, buffers: int) -> Reader:
    """Return what copies each item out of the maps into buffers, one after the other."""
    maps = data.maps()
    most = BATCH * int(data.steps or data.lengths.max())
    outs = [
        {n: empty((most, *m.shape[1:]), m.dtype) for n, m in maps.items()} for _ in range(buffers)
    ]
    turns = itertools.cycle(outs)

    def copied(asked: Asked) -> dict[str, Any]:
        out, rows = next(turns), asked.rows
        if rows == len(asked.items):
            first = np.array([first for first, _ in asked.items])
            for name, mapped in maps.items():
                np.take(mapped, first, axis=0, out=out[name][:rows], mode="clip")
        else:
            for name, mapped in maps.items():
                at = 0
                for first, count in asked.items:
                    out[name][at : at + count] = mapped[first : first + count]
                    at += count
        return {name: values[:rows] for name, values in out.items()}

    return lambda batches: map(copied, batches)


def digested(data: Data) -> Reader:
    """Return what copies as `limit` does, and digests each copy: what `always` cannot be faster than in one thread."""
    copy = limit(data, 1)

    def read(batches: Iterable[Asked]) -> Iterator[Any]:
        for asked in batches:
            (batch,) = copy([asked])
            starts = itertools.accumulate((count for _, count in asked.items), initial=0)
            for first, stop in itertools.pairwise(starts):
                for values in batch.values():
                    xxhash.xxh3_64_digest(values[first:stop])
            yield batch

    return read


class Ours:
    """A way to read in this process."""

    def __init__(self, data: Data, folder: Path, opening: Callable[[], Reader]) -> None:
        self.data, self.folder, self._opening = data, folder, opening
        self._reader: Reader | None = opening()

    def check(self, asked: Asked) -> tuple[int, Items]:
        """Return the checksum of a batch, and its items."""
        assert self._reader is not None
        (batch,) = self._reader([asked])
        whole = batch if isinstance(batch, dict) else collate_ragged(batch)
        return checksum(
            self.data, {name: np.asarray(whole[name]) for name in self.data.fields}
        ), asked.items

    def read(self, batches: list[Asked], seconds: float, *, cold: bool) -> tuple[float, float]:
        """Return GB/s, and the share of the bytes that came from a disk."""
        if cold:
            drop(self.folder)
        begun: list[Asked] = []
        before, start = fetched(), time.perf_counter()
        reader = self._reader = self._reader or self._opening()
        # As a peer, it lets a batch go before the next
        deque(reader(paced(batches, seconds, begun)), maxlen=0)
        took = time.perf_counter() - start
        size, disk = sum(one.rows for one in begun) * self.data.row_bytes, fetched() - before
        del reader
        if cold:
            self.close()
        return size / took / 1e9, disk / size

    def close(self) -> None:
        """Let go of what was opened: what is mapped stays in memory."""
        self._reader = None
        gc.collect()


class Turn(list):
    """The batch sampler of a loader that is used for all passes, as a training loop uses one: a list, known before."""

    def serves(self, batches: Iterable[Asked], loader: Iterable[Any]) -> Iterable[Any]:
        """Return a loader that will serve these batches."""
        self._batches = batches
        return loader

    def __iter__(self) -> Iterator[list[int]]:
        return (one.numbers for one in self._batches)


def ours(data: Data, cache: Path) -> dict[str, Ours]:
    """Return every way of ours, and the limits, by name."""

    def gathered(verify: str) -> Reader:
        dataset = CachedDataset(cache, verify=verify)
        return lambda batches: (dataset.__getitems__(one.numbers) for one in batches)

    def loader(make: Callable[..., Any], verify: str) -> Reader:
        turn = Turn()
        made = make(
            CachedDataset(cache, verify=verify), batch_sampler=turn, collate_fn=collate_ragged
        )
        return lambda batches: turn.serves(batches, made)

    limits = {
        LIMIT: partial(limit, data, 1),
        "the same, four buffers in turn": partial(limit, data, 4),
    }
    limits["the same, one, digested"] = partial(digested, data)
    ways = {
        "__getitems__, manifest": partial(gathered, "manifest"),
        OURS: partial(gathered, "touch"),
        "__getitems__, always": partial(gathered, "always"),
        "DataLoader, touch": partial(loader, DataLoader, "touch"),
        THREADS: partial(loader, CachedLoader, "touch"),
        "CachedLoader, always": partial(loader, CachedLoader, "always"),
    }
    return {name: Ours(data, data.folder, way) for name, way in limits.items()} | {
        name: Ours(data, cache, way) for name, way in ways.items()
    }


class Peer:
    """A way to read in a process of its own."""

    def __init__(self, data: Data, folder: Path, python: str, name: str) -> None:
        self.data, self._name = data, name
        folder.mkdir()
        self._errors = (folder / "errors").open("w+")
        command = [
            python,
            str(Path(__file__).with_name("reading.py")),
            name,
            str(data.folder),
            str(folder / "store"),
        ]
        place = {"TMPDIR": str(folder), "DATA_OPTIMIZER_CACHE_FOLDER": str(folder / "litdata")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | place | {"PYTHONPATH": ""},
        )
        self.version = self._line().strip()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            msg = f"{self._name} ended:\n{self._errors.read()[-2000:]}"
            raise SystemExit(msg)
        return line

    def _answer(
        self, batches: list[Asked], *, cold: bool = False, check: bool = False, seconds: float = 0
    ) -> Any:
        assert self._process.stdin is not None
        asked = {
            "batches": [one.items for one in batches],
            "cold": cold,
            "check": check,
            "seconds": seconds,
        }
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return json.loads(self._line())

    def check(self, asked: Asked) -> tuple[int, Items]:
        """See `Ours`."""
        found, served = self._answer([asked], check=True)
        return found, served or asked.items

    def read(self, batches: list[Asked], seconds: float, *, cold: bool) -> tuple[float, float]:
        """See `Ours`."""
        took, rows, disk = self._answer(batches, cold=cold, seconds=seconds)
        size = rows * self.data.row_bytes
        return size / took / 1e9, disk / size

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._errors.close()
