"""One array of a cache: its shards are checked when it is first used, its inner chunks as `verify` says.

Everything that is served comes through here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any
from weakref import proxy

import numpy as np

from datacheck.aligned import empty
from datacheck.cache import layout, limits
from datacheck.cache.alongside import alongside
from datacheck.cache.chunks import ChunkRows
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.foreign import Chain, ForeignRows, chain_of
from datacheck.cache.indices import chunks_of
from datacheck.cache.maps import HeldRows, MappedRows, ReadRows, Rows
from datacheck.cache.place import Place
from datacheck.cache.problem import Problem
from datacheck.cache.shard_index import chunk_sizes, table_bytes
from datacheck.cache.store import Folder, Store
from datacheck.digest import digest64, digests64
from datacheck.errors import CorruptionError, UsageError

Array = np.ndarray[Any, Any]

_OPEN_FILES = 127  # of one array that is read and not mapped, and their folder
_ALONGSIDE = 16  # requests for indices
_RATIO = 1 << 15  # zstd stores equal bytes in blocks of 4 bytes for 128 KiB
_CHECKED = 1 << 23  # bytes that are digested while they still lie in a near cache
_FETCHED = ("fields/", layout.sample_path("key"), layout.sample_path("origin"))  # by chunks; all else is small


def _check_codec(path: str, codec: Codec) -> None:
    """Raise `ValueError` where a table is compressed: a cache has as many samples as bytes of tables, or nearly."""
    if codec != PLAIN and not path.startswith("fields/"):
        msg = f"codec {codec}; only fields may be compressed"
        raise ValueError(msg)


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
        self, place: Place, path: str, document: Mapping[str, Any], samples_of: Callable[[str, int, int], str], *,
        ragged: bool = False,
    ) -> None:  # fmt: skip
        self._place, self.path, self._samples_of, self._ragged = place, path, samples_of, ragged
        ours = layout.grid_of(document)
        self._foreign, self._always = ours is None, place.verify == "always"
        with place.sound(f"{path}/{layout.ZARR}"):
            self.grid, self._chain = chain_of(document) if ours is None else (ours[0], Chain(ours[1]))
            limits.check_chunk(self.grid)
            _check_codec(path, self._chain.codec)
        self.codec = self._chain.codec
        self.dtype, self._row_bytes = np.dtype(self.grid.dtype).newbyteorder("<"), self.grid.row_bytes
        self.chunks = -(-self.grid.shape[0] // self.grid.chunk)
        if self.chunks > place.size:  # before memory is taken for it
            place.fail(f"{path}/{layout.ZARR}: {self.chunks:,} chunks, more than the cache has bytes")
        said = place.files.get(self._digest_file, (0, ""))[0]
        if 8 * self.chunks > said and not path.startswith("digests/"):
            place.fail(f"{path}/{layout.ZARR}: {self.chunks:,} chunks, and {self._digest_file} has {said:,} bytes")
        self.seen: Array = np.zeros(self.chunks, np.uint8)  # 1: checked. `Cache` puts it in memory that forks share

    @property
    def files(self) -> Iterator[str]:
        """The shard files, in order: before it is known that they are there, a document may say of any number."""
        return self._chain.files(self.path, self.grid)

    @property
    def _digest_file(self) -> str:
        return f"{layout.digests_path(self.path)}/{layout.table_grid('uint64', self.chunks).shard_file(0)}"

    @cached_property
    def _sizes(self) -> list[Array]:
        """Stored sizes of the present inner chunks of each shard; opening the array checks every shard's index.

        Raises:
            CorruptionError: an index is damaged or a chunk is missing.
        """
        grid, share = self.grid, self.grid.chunks_per_shard
        if self._foreign:
            return [layout.plain_sizes(grid, min(share, self.chunks - g * share)) for g in range(grid.shards)]
        if self.codec == PLAIN and self._place.store.folder is None:  # each chunk is checked by its digest as it comes
            found = [(self._said_sizes(g), True) for g in range(grid.shards)]
        else:
            found = self._indexed()
        self._foreign = not all(ours for _, ours in found)
        for g, (sizes, _) in enumerate(found):
            if self.codec == PLAIN and (sizes != grid.chunk_bytes).any():
                self._place.fail(f"{self.path}/{grid.shard_file(g)}: its chunks are not of {grid.chunk_bytes:,} bytes")
            expected = min(share, self.chunks - g * share)
            if len(sizes) != expected and not self._ragged:
                self._place.fail(f"{self.path}/{grid.shard_file(g)}: holds {len(sizes)} of {expected} chunks")
        return [sizes for sizes, _ in found]

    def _indexed(self) -> list[tuple[Array, bool]]:
        grid, place, store = self.grid, self._place, self._place.store
        if store.folder is not None:
            near = Folder(store.folder, 1)
            return [chunk_sizes(place, near, self.path, grid, g) for g in range(grid.shards)]
        return list(alongside(lambda g: chunk_sizes(place, store, self.path, grid, g), range(grid.shards), _ALONGSIDE))

    def _said_sizes(self, g: int) -> Array:
        """Return the sizes that chunks which are not compressed have in a shard of its size."""
        name = f"{self.path}/{self.grid.shard_file(g)}"
        payload = self._place.files.get(name, (-1, ""))[0] - layout.index_bytes(self.grid)
        used, rest = divmod(payload, max(1, self.grid.chunk_bytes))
        if payload < 0 or rest or used > self.grid.chunks_per_shard:
            self._place.fail(f"{name}: no shard of this array has its size")
        return layout.plain_sizes(self.grid, used)

    @cached_property
    def used_chunks(self) -> list[int]:
        """Present inner chunks of each shard.

        Raises:
            CorruptionError: an index is damaged or a chunk is missing.
        """
        return [len(sizes) for sizes in self._sizes]

    @cached_property
    def used_rows(self) -> Array:
        """Int64 (shards): rows that may be read of each shard."""
        return np.asarray(self.used_chunks, dtype=np.int64) * self.grid.chunk

    @cached_property
    def held_rows(self) -> int:
        """Rows of all shards that may be read."""
        return int(self.used_rows.sum())

    @cached_property
    def most_rows(self) -> int:
        """How many rows the files can hold at most, of their sizes alone: no file is opened."""
        held = sum(self._place.files.get(name, (0, ""))[0] for name in self.files)
        held *= 1 if self.codec == PLAIN else _RATIO
        return min(self.chunks * self.grid.chunk, held // max(1, self._row_bytes))

    @cached_property
    def rows(self) -> Rows:
        """The rows, opened."""
        used, store = self.used_chunks, self._place.store
        names, folder = list(self.files), store.folder
        if folder is None:
            if self._foreign:
                msg = f"{store.where}: {self.path} is not cut by this format; such are read in folders only. Copy it."
                raise UsageError(msg)
            if not self.path.startswith(_FETCHED):  # a table that each batch needs
                return HeldRows(self.grid, self._table(names[0]) if names else b"")
            return self._read(store, names)
        near = Folder(folder, _OPEN_FILES)
        if self._foreign:
            return ForeignRows(self.grid, self._chain, self._place, self.path, near, self._check_weakly)
        if self._place.mapped and self.codec == PLAIN:
            # no more maps (vm.max_map_count) or addresses: positioned reads serve the same bytes
            with contextlib.suppress(OSError):
                return MappedRows(self.grid, near, names, used)
        return self._read(near, names)

    def _read(self, store: Store, names: list[str]) -> Rows:
        if self.codec == PLAIN and store.folder is not None:
            return ReadRows(self.grid, store, names)
        return ChunkRows(self.grid, self.codec, store, names, self._sizes, self._check_weakly)

    @property
    def _check_weakly(self) -> Callable[[int, Array | None], None]:
        return partial(StoredArray._check_decoded, proxy(self))  # no method: no cycle holds files and maps

    def _table(self, name: str) -> bytes:
        most = table_bytes(self.grid.dtype, self.grid.shape[0])
        if self._place.verify != "manifest":
            return self._place.read(name, most)
        try:
            raw = self._place.store.read(name, most)
        except FileNotFoundError:
            self._place.fail(f"{name}: missing")
        if len(raw) != self._place.files.get(name, (-1, ""))[0]:
            self._place.fail(f"{name}: {len(raw):,} bytes, the manifest says otherwise")
        return raw

    @cached_property
    def expected(self) -> Array:
        """Uint64 (inner chunks): the digests, checked against the manifest.

        Raises:
            CorruptionError: they are not what was written.
        """
        if self.chunks == 0:
            return np.zeros(0, np.uint64)
        raw = self._place.read(self._digest_file, table_bytes("uint64", self.chunks))
        if len(raw) < self.chunks * 8:
            self._place.fail(f"{self._digest_file}: too short for {self.chunks} digests")
        return np.frombuffer(raw, dtype="<u8", count=self.chunks).astype(np.uint64, copy=False)

    def room(self, out: Array | None, shape: tuple[int, ...]) -> Array:
        """Return where so many rows go: `out`, or new memory where it is None.

        Raises:
            UsageError: `out` is of another shape or dtype, or not C-contiguous.
        """
        shape = (*shape, *self.grid.item)
        out = empty(shape, self.dtype) if out is None else out
        if out.shape != shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            msg = f"{self.path}: out is {out.dtype} {list(out.shape)}; contiguous {self.dtype} {list(shape)} is wanted"
            raise UsageError(msg)
        return out

    def take(self, indices: Array, out: Array | None = None) -> Array:
        """Return the rows at `indices`, in that order, copied.

        Args:
            indices: int64, each in [0, rows): the caller has checked it.
            out: where to; made where it is None.

        Raises:
            CorruptionError: a chunk is not what was written.
        """
        out = self.room(out, (len(indices),))
        chunks = indices // self.grid.chunk if self.grid.chunk > 1 else indices
        if self._checks and len(indices) and (self._always or self._any_new(chunks)):
            self._take_checked(indices, chunks, out)
        else:
            self.rows.take(indices, out)
        return out

    def _take_checked(self, indices: Array, chunks: Array, out: Array) -> None:
        """Copy rows some at a time, so that they lie in a near cache when their chunks are digested."""
        rows, size, numbers, found = self.rows, self._row_bytes, [], []
        step = max(1, _CHECKED // max(1, size))
        self._read_ahead(chunks)
        for first in range(0, len(indices), step):
            part = slice(first, first + step)
            to, of = out[part], chunks[part]
            if self.grid.chunk > 1:
                of = self._due(np.unique(of))
                found.append(digests64(map(rows.chunk, of.tolist())))
            rows.take(indices[part], to)
            if self.grid.chunk == 1:
                found.append(digests64(np.ndarray((len(to), size), np.uint8, to)))
            numbers.append(of)
        self._compare(numbers, found)

    def spans(self, starts: Array, lengths: Array, out: Array, at: Array) -> None:
        """Copy rows [starts[i], starts[i] + lengths[i]) to out[at[i]:], for every i.

        Raises:
            CorruptionError: rows that are not in use are asked for, or a chunk is not what was written.
        """
        self.check_bounds(starts, lengths)
        rows = self.rows
        if isinstance(rows, ChunkRows):
            return rows.spans(starts, lengths, out, at)
        due = self._due(chunks_of(starts, lengths, self.grid.chunk)) if self._checks else starts[:0]
        order = np.argsort(starts, kind="stable")  # neighbours lie in one chunk, and read-ahead helps
        ordered = zip(*(some[order].tolist() for some in (starts, lengths, at)), strict=True)
        if due.size:
            self._read_ahead(due)
            return self._spans_checked(ordered, out)
        for start, length, to in ordered:
            if length:
                rows.span(start, start + length, out[to : to + length])
        return None

    def _spans_checked(self, ordered: Iterable[tuple[int, int, int]], out: Array) -> None:
        """Copy (start, length, to), by start, in pieces that are digested while they lie in a near cache.

        Notes:
            Copying brings bytes from afar faster than digesting does: of a chunk had whole the copy is digested.
        """
        rows, chunk, size, last, numbers, found = self.rows, self.grid.chunk, self.grid.chunk_bytes, -1, [], []
        piece, copied = max(1, _CHECKED // max(1, size)) * chunk, out.reshape(-1).view(np.uint8).data
        for start, length, to in ordered:
            low, stop, zero = start, start + length, (to - start) * self.grid.row_bytes
            while low < stop:
                high = min(stop, (low // piece + 1) * piece)
                end = (high - 1) // chunk
                numbers.append(self._due(np.arange(max(last + 1, low // chunk), end + 1)))
                rows.span(low, high, out[to + low - start : to + high - start])
                whole = range(-(-low // chunk), high // chunk)
                parts = ((zero + n * size, n) for n in numbers[-1].tolist())
                found.append(digests64([copied[at : at + size] if n in whole else rows.chunk(n) for at, n in parts]))
                low, last = high, max(last, end)
        self._compare(numbers, found)

    def view(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) read-only: where they lie in a map, else a copy.

        Raises:
            CorruptionError: rows that are not in use are asked for, or a chunk is not what was written.
        """
        starts, lengths = np.array([start]), np.array([stop - start])
        if isinstance(self.rows, MappedRows) and stop > start:
            self.check_bounds(starts, lengths)
            if self._checks:
                self._check(np.arange(start // self.grid.chunk, (stop - 1) // self.grid.chunk + 1))
            return self.rows.view(start, stop)
        out = empty((max(0, stop - start), *self.grid.item), self.dtype)
        self.spans(starts, lengths, out, np.zeros(1, np.int64))
        out.flags.writeable = False
        return out

    def all(self) -> Array:
        """Return a whole table (an array of one shard), copied."""
        out, rows = empty(self.grid.shape, self.dtype), self.grid.shape[0]
        self.spans(np.zeros(1, np.int64), np.array([rows]), out, np.zeros(1, np.int64))
        if isinstance(self.rows, MappedRows):
            self.rows.forget()  # there is a copy now
        return out

    def unchecked(self) -> Array:
        """Return a whole table without a check: for messages about damage only."""
        out = empty(self.grid.shape, self.dtype)
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

    def check_size(self, rows: int, most: int = limits.SAMPLE_BYTES) -> None:
        """Check that so many rows of one sample may be in memory.

        Raises:
            UsageError: they have more than `most` bytes.
        """
        size = rows * self._row_bytes
        if size > most:
            what = "Read it by windows."
            if most != limits.SAMPLE_BYTES:
                what = "As a text it takes a multiple of them. Leave the field out with fields=[...]."
            msg = f"{self.path}: a sample has {size:,} bytes; at most {most:,} are served at once. {what}"
            raise UsageError(msg)

    def _check(self, chunks: Array) -> None:
        due = np.sort(self._due(chunks), kind="stable")
        due = due[np.diff(due, prepend=-1) > 0]  # as np.unique, which imports numpy.ma: 10 ms of opening a cache
        self._compare([due], [digests64(map(self.rows.chunk, due.tolist()))])

    def _any_new(self, chunks: Array) -> bool:
        """Tell whether some inner chunks have not been checked."""
        return b"\0" in self.seen[chunks].tobytes()  # for a batch, a third of the time of `all`

    def _due(self, chunks: Array) -> Array:
        """Return which of some inner chunks are to be checked."""
        return chunks if self._always else chunks[self.seen[chunks] == 0]

    def _read_ahead(self, chunks: Array) -> None:
        """Have those of some inner chunks read ahead that nobody has read yet."""
        if len(chunks) > 1 and isinstance(self.rows, MappedRows) and self._any_new(chunks):
            self.rows.will_need(np.unique(chunks[self.seen[chunks] == 0]))

    def _compare(self, chunks: list[Array], digests: list[Array]) -> None:
        """Fail where inner chunks have other digests than they should have."""
        numbers, found = (some[0] if len(some) == 1 else np.concatenate(some) for some in (chunks, digests))
        expected = self.expected[numbers]
        if found.tobytes() != expected.tobytes():
            wrong = np.flatnonzero(found != expected)
            i = wrong[numbers[wrong].argmin()]  # the first one is named
            self._place.fail(str(self.blame(int(numbers[i]), int(found[i]))))
        self.seen[numbers] = 1

    @cached_property
    def _checks(self) -> bool:
        """Whether chunks are checked before rows are asked for; those that are had whole are when they come."""
        return self._place.verify != "manifest" and not isinstance(self.rows, ChunkRows | HeldRows)

    def _check_decoded(self, number: int, raw: Array | None) -> None:
        """Check an inner chunk that was decoded, or came from afar; `raw` is None where it does not decode."""
        if raw is None:
            self._place.fail(str(self.blame(number, None)))
        seen = self._place.verify == "touch" and self.seen[number] and self._place.store.folder is not None
        if self._place.verify == "manifest" or seen:
            return
        found = digest64(raw.data)
        if found != self.expected[number]:
            self._place.fail(str(self.blame(number, found)))
        self.seen[number] = 1

    def digest(self, number: int) -> int:
        """Return the xxh3_64 of an inner chunk as it is now; 0, as of an absent one, where it does not decompress."""
        try:
            return digest64(self.rows.chunk(number))
        except CorruptionError:
            return 0

    def blame(self, number: int, found: int | None) -> Problem:
        """Return what is wrong with a chunk: its digest now, or None where it does not decode."""
        g, j = divmod(number, self.grid.chunks_per_shard)
        first = number * self.grid.chunk
        samples = self._samples_of(self.path, first, min(self.grid.shape[0], first + self.grid.chunk))
        is_now = f"expected xxh3_64 {int(self.expected[number]):016x}, found {found:016x}" if found is not None else ""
        field = layout.field_name(self.path) if self.path.startswith("fields/") else ""
        what = f"chunk {j}: {is_now or 'it does not decompress'}"
        return Problem(f"{self.path}/{self.grid.shard_file(g)}", what, field, g, samples)
