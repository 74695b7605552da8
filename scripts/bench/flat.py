"""Samples as flat files: what the limit of reading copies, what peers write and what all are checked against."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Items = list[list[int]]  # first row and number of rows of each item of a batch
Batch = dict[str, Any]  # arrays, or lists of arrays


class Data:
    """The samples of a workload, each field behind one another in a file without a head.

    A row is what the limit copies: a sample, or a point of a ragged cloud, or a frame of an
    episode. A record is what peers store: a sample, of an episode a frame.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        said = json.loads((folder / "data.json").read_text())
        self.lengths = np.array(said["lengths"])
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.steps: int = said["steps"]  # of a window; 0: samples are served whole
        self.ragged: bool = said["ragged"]
        self.fields: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            name: (np.dtype(dtype), tuple(item)) for name, (dtype, item) in said["fields"].items()
        }
        self.rows = int(self.lengths.sum())
        self.row_bytes = sum(
            dtype.itemsize * int(np.prod(item)) for dtype, item in self.fields.values()
        )

    def __len__(self) -> int:
        """Return how many items there are."""
        return int((self.lengths - self.steps + 1).sum()) if self.steps else len(self.lengths)

    def items(self, numbers: list[int]) -> Items:
        """Return the rows of numbered items."""
        if not self.steps:
            return [[int(self.starts[n]), int(self.lengths[n])] for n in numbers]
        ends = np.cumsum(self.lengths - self.steps + 1)
        episodes = np.searchsorted(ends, numbers, side="right")
        first = self.starts[episodes] + numbers - (ends - self.lengths + self.steps - 1)[episodes]
        return [[int(row), self.steps] for row in first]

    def maps(self) -> dict[str, Array]:
        """Return a new map of each field."""
        return {
            name: np.memmap(self.folder / f"{name}.bin", dtype, "r", shape=(self.rows, *item))
            for name, (dtype, item) in self.fields.items()
        }

    def record(self, number: int) -> dict[str, Array]:
        """Return one record."""
        if not self.ragged:
            return {name: np.array(rows[number]) for name, rows in self.maps().items()}
        first, count = int(self.starts[number]), int(self.lengths[number])
        return {name: np.array(rows[first : first + count]) for name, rows in self.maps().items()}

    def records(self) -> range:
        """Return the numbers of all records."""
        return range(len(self.lengths) if self.ragged else self.rows)

    def numbers(self, items: Items) -> list[int]:
        """Return the records of a batch."""
        if self.ragged:
            return np.searchsorted(self.starts, [first for first, _ in items]).tolist()
        return [row for first, count in items for row in range(first, first + count)]

    def batch(self, records: Sequence[dict[str, Any]]) -> Batch:
        """Return records as a batch."""
        if self.ragged:
            return {name: [record[name] for record in records] for name in self.fields}
        return {name: np.stack([record[name] for record in records]) for name in self.fields}

    def packed(self, record: dict[str, Array]) -> bytes:
        """Return a record, or rows, as bytes."""
        return b"".join(record[name].tobytes() for name in self.fields)

    def unpacked(self, raw: bytes, *, rows: bool = False) -> dict[str, Array]:
        """Return the record, or the rows, of bytes."""
        count, at, record = len(raw) // self.row_bytes, 0, {}
        for name, (dtype, item) in self.fields.items():
            values = np.frombuffer(raw, dtype, count * int(np.prod(item)), at)
            record[name] = values.reshape((-1, *item) if rows or self.ragged else item)
            at += values.nbytes
        return record


def checksum(data: Data, batch: Batch) -> int:
    """Return the crc32 of the bytes of a batch, field by field."""
    found = 0
    for name in data.fields:
        values = batch[name]
        for value in values if isinstance(values, list) else [values]:
            found = zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, found)
    return found


def paced(batches: Iterable[Any], seconds: float, begun: list[Any]) -> Iterator[Any]:
    """Yield batches again and again until a time is over, or each once (0 s); they are put into `begun` too."""
    stop = time.perf_counter() + seconds
    while True:
        for batch in batches:
            begun.append(batch)
            yield batch
            if seconds and time.perf_counter() > stop:
                return
        if not seconds:
            return


def drop(folder: Path) -> None:
    """Write out and drop every file below a folder from the page cache; nothing may have it mapped."""
    for file in folder.rglob("*"):
        if file.is_file():
            opened = os.open(file, os.O_RDONLY)
            os.fsync(opened)
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(opened)


def fetched() -> int:
    """Return how many bytes disks have read for this process."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
