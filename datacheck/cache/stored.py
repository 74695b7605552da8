"""One array of a cache: its shards are checked when it is first used, its inner chunks as `verify` says.

Everything that is served comes through here.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

import google_crc32c
import numpy as np

from datacheck.cache import layout
from datacheck.cache.layout import Grid
from datacheck.cache.maps import ForeignRows, MappedRows, ReadRows, Rows
from datacheck.cache.problem import REBUILD, Problem
from datacheck.cache.store import Folder, Store
from datacheck.digest import digest64, digest_bytes
from datacheck.errors import CorruptionError, UsageError

Array = np.ndarray[Any, Any]
Verify = Literal["manifest", "touch", "always", "full"]
Files = Mapping[str, tuple[int, str]]

_OPEN_FILES = 128  # of one array that is read and not mapped


@dataclass(frozen=True)
class Place:
    """Where a cache lies and how it is read.

    Args:
        store: the files of the cache.
        files: size and digest of each file, from the manifest.
        mapped: whether to map (else positioned reads).
        verify: which chunks to check: "manifest" none, "touch" each once, "always" each time.
    """

    store: Store
    files: Files
    mapped: bool
    verify: Verify

    def fail(self, what: str) -> NoReturn:
        """Raise the exception for damage: the cache, what was found, what to do."""
        msg = f"{self.store.where}: {what}. {REBUILD}"
        raise CorruptionError(msg)

    def read(self, path: str) -> bytes:
        """Return a whole file, checked against the manifest.

        Raises:
            CorruptionError: it is not there, or its bytes are others.
            StorageError: the operating system refuses.
        """
        try:
            raw = self.store.read(path)
        except FileNotFoundError:
            self.fail(f"{path}: missing")
        found = digest_bytes(raw)
        if path not in self.files or found != self.files[path][1]:
            expected = self.files[path][1] if path in self.files else "no such file"
            self.fail(f"{path}: expected xxh3_128 {expected}, found {found}")
        return raw


def shard_chunks(place: Place, path: str, grid: Grid, g: int) -> tuple[int, bool]:
    """Return how many inner chunks shard `g` holds, and whether they lie as this format writes them.

    Raises:
        CorruptionError: size or crc32c is wrong.
    """
    name = f"{path}/{grid.shard_file(g)}"
    size, said = layout.index_bytes(grid), place.files.get(name, (-1, ""))[0]
    length = place.store.size(name)
    if length is None:
        place.fail(f"{name}: missing")
    if length != said:
        place.fail(f"{name}: {length:,} bytes, the manifest says {said:,}")
    tail = bytearray(min(size, length))
    place.store.read_into(name, length - len(tail), memoryview(tail))
    raw = bytes(tail)
    if len(raw) < size or struct.pack("<I", google_crc32c.value(raw[:-4])) != raw[-4:]:
        place.fail(f"{name}: the crc32c of the shard index does not match")
    used = int((np.frombuffer(raw[:-4], dtype="<u8")[::2] != layout.ABSENT).sum())
    return used, raw == layout.pack_index(grid, used) and length == used * grid.chunk_bytes + size


class StoredArray:
    """One array of a cache.

    Args:
        place: where the cache is and how it is read.
        path: the array's path in it.
        document: its ``zarr.json``.
        samples_of: says which samples a range of rows belongs to, for messages.
        ragged: whether shards may hold fewer rows than their share.

    Notes:
        Opened when first used. A forked child uses the maps of its parent.
    """

    def __init__(
        self,
        place: Place,
        path: str,
        document: Mapping[str, Any],
        samples_of: Callable[[str, int, int], str],
        *,
        ragged: bool = False,
    ) -> None:
        self._place, self.path, self._samples_of, self._ragged = place, path, samples_of, ragged
        grid = layout.grid_of(document)
        self._foreign = grid is None
        try:
            self.grid = layout.foreign_grid(document) if grid is None else grid
        except (KeyError, ValueError, IndexError, TypeError) as error:
            place.fail(f"{path}/{layout.ZARR}: not an array of this format ({error})")
        self.dtype = np.dtype(self.grid.dtype).newbyteorder("<")
        self.chunks = -(-self.grid.shape[0] // self.grid.chunk)
        self.seen: Array = np.zeros(self.chunks, np.uint8)  # 1: checked. `Cache` puts it in memory that forks share

    @cached_property
    def used_chunks(self) -> list[int]:
        """Present inner chunks of each shard; opening the array checks every shard's index.

        Raises:
            CorruptionError: an index is damaged or a chunk is missing.
        """
        grid, share = self.grid, self.grid.chunks_per_shard
        if self._foreign:
            return [share] * grid.shards
        found = [shard_chunks(self._place, self.path, grid, g) for g in range(grid.shards)]
        self._foreign = not all(in_order for _, in_order in found)
        for g, (held, _) in enumerate(found):
            expected = min(share, self.chunks - g * share)
            if held != expected and not self._ragged:
                self._place.fail(f"{self.path}/{grid.shard_file(g)}: holds {held} of {expected} chunks")
        return [held for held, _ in found]

    @cached_property
    def used_rows(self) -> Array:
        """Int64 (shards): rows that may be read of each shard."""
        return np.asarray(self.used_chunks, dtype=np.int64) * self.grid.chunk

    @cached_property
    def rows(self) -> Rows:
        """The rows, opened."""
        used, store = self.used_chunks, self._place.store
        names = [f"{self.path}/{self.grid.shard_file(g)}" for g in range(self.grid.shards)]
        folder = store.folder
        if folder is None:
            if self._foreign:
                msg = f"{store.where}: {self.path} needs zarr, which reads folders only. Copy the cache to a disk."
                raise UsageError(msg)
            return ReadRows(self.grid, store, names)
        if self._foreign:
            return ForeignRows(folder / self.path, self.grid)
        if self._place.mapped:
            # no more maps (vm.max_map_count) or addresses: positioned reads serve the same bytes
            with contextlib.suppress(OSError):
                return MappedRows(self.grid, [folder / name for name in names], used)
        return ReadRows(self.grid, Folder(folder, _OPEN_FILES), names)

    @cached_property
    def expected(self) -> Array:
        """Uint64 (inner chunks): the digests, checked against the manifest.

        Raises:
            CorruptionError: they are not what was written.
        """
        if self.chunks == 0:
            return np.zeros(0, np.uint64)
        grid = layout.table_grid("uint64", self.chunks)
        path = f"{layout.digests_path(self.path)}/{grid.shard_file(0)}"
        raw = self._place.read(path)
        if len(raw) < self.chunks * 8:
            self._place.fail(f"{path}: too short for {self.chunks} digests")
        return np.frombuffer(raw, dtype="<u8", count=self.chunks)

    def take(self, indices: Array, out: Array | None = None) -> Array:
        """Return the rows at `indices`, in that order, copied.

        Args:
            indices: int64, each in [0, rows): the caller has checked it.
            out: where to; made where it is None.

        Raises:
            CorruptionError: a chunk is not what was written.
        """
        if out is None:
            out = np.empty((len(indices), *self.grid.item), self.dtype)
        if self._place.verify != "manifest" and self.grid.chunk > 1:
            self._check(indices // self.grid.chunk)
        self.rows.take(indices, out)
        if self._place.verify != "manifest" and self.grid.chunk == 1:
            self._check(indices, out)
        return out

    def spans(self, starts: Array, lengths: Array, out: Array, at: Array) -> None:
        """Copy rows [starts[i], starts[i] + lengths[i]) to out[at[i]:], for every i.

        Raises:
            CorruptionError: rows that are not in use are asked for, or a chunk is not what was written.
        """
        self.check_bounds(starts, lengths)
        if self._place.verify != "manifest":
            first, last = starts // self.grid.chunk, (starts + lengths - 1) // self.grid.chunk
            counts = np.where(lengths > 0, last - first + 1, 0)
            inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            self._check(np.repeat(first, counts) + inside)
        rows = self.rows
        for start, length, to in zip(starts.tolist(), lengths.tolist(), at.tolist(), strict=True):
            if length:
                rows.span(start, start + length, out[to : to + length])

    def all(self) -> Array:
        """Return a whole table (an array of one shard), copied."""
        out, rows = np.empty(self.grid.shape, self.dtype), self.grid.shape[0]
        self.spans(np.zeros(1, np.int64), np.array([rows]), out, np.zeros(1, np.int64))
        return out

    def unchecked(self) -> Array:
        """Return a whole table without a check: for messages about damage only."""
        out = np.empty(self.grid.shape, self.dtype)
        if len(out):
            self.rows.span(0, len(out), out)
        return out

    def check_bounds(self, starts: Array, lengths: Array) -> None:
        """Check that rows [starts[i], starts[i] + lengths[i]) are in use.

        Raises:
            CorruptionError: they are not.
        """
        if (lengths < 0).any():
            self._place.fail(f"{self.path}: the row table holds a negative length")
        taken = lengths > 0
        starts, lengths = starts[taken], lengths[taken]
        shard = starts // self.grid.shard
        known = (starts >= 0) & (shard < self.grid.shards)
        end = starts + lengths - shard * self.grid.shard
        if not known.all() or (end > self.used_rows[shard]).any() or (lengths > self.grid.shard).any():
            self._place.fail(f"{self.path}: the row table points at rows that are not there")

    def _check(self, chunks: Array, served: Array | None = None) -> None:
        """Check inner chunks; `served[i]` is chunk `chunks[i]` where it has been copied already."""
        if self._place.verify != "always":
            new = np.flatnonzero(self.seen[chunks] == 0)
            if not new.size:
                return
            chunks, served = chunks[new], None if served is None else served[new]
        expected = self.expected
        numbers, first = np.unique(chunks, return_index=True)
        for number, i in zip(numbers.tolist(), first.tolist(), strict=True):
            found = digest64(self.rows.chunk(number) if served is None else served[i])
            if found != expected[number]:
                self._place.fail(str(self.blame(number, found)))
        self.seen[numbers] = 1

    def blame(self, number: int, found: int) -> Problem:
        """Return what is wrong with a chunk."""
        g, j = divmod(number, self.grid.chunks_per_shard)
        first = number * self.grid.chunk
        samples = self._samples_of(self.path, first, min(self.grid.shape[0], first + self.grid.chunk))
        what = f"chunk {j}: expected xxh3_64 {int(self.expected[number]):016x}, found {found:016x}"
        return Problem(f"{self.path}/{self.grid.shard_file(g)}", what, shard=g, samples=samples)
