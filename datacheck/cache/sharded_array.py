"""The arrays of a cache: shard indices, rows of chunks, and checks of chunks against digests."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import proxy

import google_crc32c
import numpy as np

from datacheck.cache import layout, parsing
from datacheck.cache.codec import PLAIN, Codec, most_stored
from datacheck.cache.concurrent_map import concurrent_map
from datacheck.cache.layout import Grid
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.problem import Problem
from datacheck.cache.shard_maps import MappedRows, MemoryRows, ReadRows, RowReader, chunks_of
from datacheck.cache.store import FolderStore, Store
from datacheck.errors import CorruptionError, UsageError
from datacheck.runtime.aligned import empty
from datacheck.runtime.hashing import digest64, digests64

Array = np.ndarray[Any, Any]


def read_index(
    place: CacheFiles, store: Store, name: str, grid: Grid, *, first: bool = False
) -> Array:
    """Return offset and stored size of each inner chunk of a shard file.

    Both are `layout.ABSENT` for an absent chunk.

    Shapes:
        returns: uint64 (inner chunks, 2) [bytes]

    Args:
        place: the files of the cache.
        store: the store to read from.
        name: path of the shard.
        grid: how the array is cut.
        first: whether the index is at the start of the file; else at its end.

    Raises:
        CorruptionError: the size or the crc32c is wrong, the index points outside of the file, or a
            chunk has more bytes than any codec produces.
    """
    size = layout.index_bytes(grid)
    expected = place.files.get(name, (-1, ""))[0]
    length = store.size(name)
    if length is None:
        place.fail(f"{name}: missing")
    if length != expected:
        what = (
            f"{length:,} bytes, the manifest says {expected:,}" if length >= 0 else "no plain file"
        )
        place.fail(f"{name}: {what}")
    raw = bytearray(min(size, length))
    store.read_into(name, 0 if first else length - len(raw), memoryview(raw))
    if len(raw) < size or struct.pack("<I", google_crc32c.value(bytes(raw[:-4]))) != raw[-4:]:
        place.fail(f"{name}: the crc32c of the shard index does not match")
    index = np.frombuffer(raw[:-4], dtype="<u8").reshape(-1, 2)
    present = index[index[:, 0] != layout.ABSENT]
    data_size = np.uint64(length - (0 if first else size))
    if (present[:, 0] > data_size).any() or (present[:, 1] > data_size - present[:, 0]).any():
        place.fail(f"{name}: the shard index points outside of the file")
    check_stored(place, name, grid, present[:, 1])
    return index


def check_stored(place: CacheFiles, name: str, grid: Grid, sizes: Array) -> None:
    """Raise if stored chunks have more bytes than a codec produces.

    Reading such chunks would take out of proportion to the data they decode to.

    Shapes:
        sizes: uint64 (inner chunks) [bytes] as stored
    """
    limit = most_stored(grid.chunk_bytes)
    if len(sizes) and int(sizes.max()) > limit:
        what = (
            f"a chunk of {int(sizes.max()):,} bytes; at most {limit:,} are read of "
            f"{grid.chunk_bytes:,} decoded"
        )
        place.fail(f"{name}: {what}")


def chunk_sizes(
    place: CacheFiles, store: Store, path: str, grid: Grid, g: int
) -> tuple[Array, bool]:
    """Return the stored sizes of the present inner chunks of shard `g`.

    The second value tells whether the chunks are placed as this format prescribes.

    Raises:
        CorruptionError: see `read_index`.
    """
    name = f"{path}/{grid.shard_file(g)}"
    index = read_index(place, store, name, grid)
    sizes = index[index[:, 0] != layout.ABSENT, 1]
    size_matches = sum(sizes.tolist()) + layout.index_bytes(grid) == place.files[name][0]
    return sizes, size_matches and index.tobytes() == layout.pack_index(grid, sizes)[:-4]


def table_bytes(dtype: str, rows: int) -> int:
    """Return the largest file size of a table of `rows` rows, for any cut into chunks [bytes]."""
    return rows * (np.dtype(dtype).itemsize + 16) + 2 * layout.CHUNK_BYTES


_BLOCK_BYTES = 32 << 20  # stored bytes per request


class ChunkRows:
    """Rows of inner chunks that are fetched whole; one call requests each of its chunks once.

    Args:
        grid: how the array is cut.
        codec: the codec of the chunks.
        store: the store of the shard files.
        files: their paths in it, in order.
        sizes: stored size of the present inner chunks of each shard, which are packed.
        check: called with the number of a chunk and its bytes (None: decoding failed) before any of
            it is served; raises if the chunk must not be served.

    Notes:
        Keeps the last chunk of several rows that it served, if it has 64 KiB or less. Threads may
        share an instance.
    """

    def __init__(
        self,
        grid: Grid,
        codec: Codec,
        store: Store,
        files: Sequence[str],
        sizes: Sequence[Array],
        check: Callable[[int, Array | None], None],
    ) -> None:
        self._grid, self._codec, self._store, self._files, self._check = (
            grid,
            codec,
            store,
            files,
            check,
        )
        self._ends = [np.cumsum(shard_sizes, dtype=np.int64) for shard_sizes in sizes]
        self._last: tuple[int, Array] | None = None

    def take(self, indices: Array, out: Array) -> None:
        """See `RowReader`."""
        order = np.argsort(indices, kind="stable")
        numbers = indices[order] // self._grid.chunk
        groups = np.split(order, np.flatnonzero(np.diff(numbers)) + 1) if order.size else []
        chunk_numbers = [int(indices[group[0]]) // self._grid.chunk for group in groups]
        for number, rows, group in zip(
            chunk_numbers, self._read_chunks(chunk_numbers), groups, strict=True
        ):
            out[group] = rows[indices[group] - number * self._grid.chunk]

    def span(self, start: int, stop: int, out: Array) -> None:
        """See `RowReader`."""
        self.spans(np.array([start]), np.array([stop - start]), out, np.zeros(1, np.int64))

    def spans(self, starts: Array, lengths: Array, out: Array, at: Array) -> None:
        """Copy rows [starts[i], starts[i] + lengths[i]) to out[at[i]:], for every i."""
        size = self._grid.chunk
        first_chunk = starts // size
        counts = np.where(lengths > 0, (starts + lengths - 1) // size - first_chunk + 1, 0)
        span = np.repeat(np.arange(len(starts)), counts)
        number = (
            np.repeat(first_chunk, counts)
            + np.arange(len(span))
            - np.repeat(np.cumsum(counts) - counts, counts)
        )
        order = np.argsort(number, kind="stable")
        span, number = span[order], number[order]
        low = np.maximum(starts[span], number * size)
        high = np.minimum((starts + lengths)[span], (number + 1) * size)
        target = at[span] + low - starts[span]
        chunk_offsets = low - number * size
        boundaries = np.flatnonzero(np.diff(number)) + 1
        groups = np.split(np.arange(len(span)), boundaries) if len(span) else []
        for rows, members in zip(
            self._read_chunks([int(number[group[0]]) for group in groups]), groups, strict=True
        ):
            for i in members.tolist():
                count = high[i] - low[i]
                out[target[i] : target[i] + count] = rows[
                    chunk_offsets[i] : chunk_offsets[i] + count
                ]

    def chunk(self, number: int) -> Any:
        """See `RowReader`; returns the decoded bytes.

        Raises:
            CorruptionError: the chunk does not decode.
        """
        (stored,) = self._store.parts([self._part(number)])
        return self._decoded(stored)

    def _part(self, number: int) -> tuple[str, int, int]:
        g, j = divmod(number, self._grid.chunks_per_shard)
        start = int(self._ends[g][j - 1]) if j else 0
        return self._files[g], start, int(self._ends[g][j]) - start

    def _decoded(self, stored: memoryview) -> Array:
        if self._codec == PLAIN:
            return np.frombuffer(stored, np.uint8)
        raw: Array = np.empty(self._grid.chunk_bytes, np.uint8)
        self._codec.decode(stored, raw.data)
        return raw

    def _read_chunks(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Yield the rows of chunks, given in ascending order."""
        dtype = np.dtype(self._grid.dtype).newbyteorder("<")
        for raw in self._stored_chunks(numbers):
            yield raw.view(dtype).reshape(self._grid.chunk, *self._grid.item)

    def _stored_chunks(self, numbers: Sequence[int]) -> Iterator[Array]:
        cached = self._last
        todo = list(numbers)
        if cached is not None and todo and cached[0] == todo[0]:
            self._check(*cached)
            yield cached[1]
            del todo[0]
        for block in self._blocks(todo):
            for number, stored in zip(
                block, self._store.parts([self._part(n) for n in block]), strict=True
            ):
                raw = self._checked(number, stored)
                # Keep small chunks only: a single row may have any size, other writers make larger
                # chunks, and a cache may have thousands of fields.
                if self._grid.chunk > 1 and raw.nbytes <= layout.CHUNK_BYTES:
                    self._last = number, raw
                yield raw

    def _blocks(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        block: list[int] = []
        size = 0
        for number in numbers:
            stored = self._part(number)[2]
            if block and size + stored > _BLOCK_BYTES:
                yield block
                block = []
                size = 0
            block.append(number)
            size += stored
        if block:
            yield block

    def _checked(self, number: int, stored: memoryview) -> Array:
        """Return the verified chunk; if a local copy is damaged, drop it and read the file."""
        try:
            return self._verified(number, stored)
        except CorruptionError:
            if not self._store.discard(self._part(number)[0]):
                raise
        (reread,) = self._store.parts([self._part(number)])
        return self._verified(number, reread)

    def _verified(self, number: int, stored: memoryview) -> Array:
        try:
            raw = self._decoded(stored)
        except CorruptionError:
            self._check(number, None)
            raise
        self._check(number, raw)
        return raw


_INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


@dataclass(frozen=True)
class ChunkStorage:
    """How the chunks of an array are named and stored.

    Args:
        codec: the codec of each chunk.
        separator: between the parts of a file's name.
        sharded: whether a file holds several chunks and their index; else one chunk.
        first: whether the index is at the start of the file.
    """

    codec: Codec
    separator: str = "."
    sharded: bool = True
    first: bool = False

    def files(self, path: str, grid: Grid) -> Iterator[str]:
        """Yield the shard files of an array, in order."""
        prefix = f"{path}/c{self.separator}"
        suffix = f"{self.separator}0" * len(grid.item)
        return (f"{prefix}{g}{suffix}" for g in range(grid.shards))


def parse_chunk_storage(document: Mapping[str, Any]) -> tuple[Grid, ChunkStorage]:
    """Return how an array is cut and stored.

    Raises:
        KeyError, TypeError, ValueError: the array is stored in an unsupported way.
    """
    shape = document["shape"]
    regular = document["chunk_grid"]
    shard = regular["configuration"]["chunk_shape"]
    codecs = document["codecs"]
    sharded = len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed"
    inner = (
        codecs[0]["configuration"]
        if sharded
        else {"chunk_shape": shard, "codecs": codecs, "index_codecs": _INDEX}
    )
    chunk = inner["chunk_shape"]
    index_location = inner.get("index_location", "end")
    if regular["name"] != "regular" or shard[1:] != shape[1:] or chunk[1:] != shape[1:]:
        msg = f"cut into {shard} and {chunk}; only the first axis of {shape} may be cut"
        raise ValueError(msg)
    if inner["index_codecs"] != _INDEX or index_location not in {"start", "end"}:
        msg = "an index that is not bytes and crc32c"
        raise ValueError(msg)
    grid = Grid(layout.parse_dtype(document), tuple(shape), shard[0], chunk[0])
    return grid, ChunkStorage(
        _codec(inner["codecs"], grid), _separator(document), sharded, index_location == "start"
    )


def _codec(codecs: Any, grid: Grid) -> Codec:
    """Return the codec of inner codecs; raise `ValueError` for codecs outside this format."""
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if np.dtype(grid.dtype).itemsize == 1:
        plain.append({"name": "bytes"})
    codec = Codec.of(codecs[1:]) if codecs[:1] and codecs[0] in plain else None
    if codec is None:
        names = ", ".join(
            str(entry["name"] if isinstance(entry, Mapping) else entry)[:40] for entry in codecs[:4]
        )
        msg = f"codecs {names}; a cache holds little-endian bytes, plain or in zstd with a checksum"
        raise ValueError(msg)
    return codec


def _separator(document: Mapping[str, Any]) -> str:
    encoding = document["chunk_key_encoding"]
    separator = encoding.get("configuration", {}).get("separator", "/")
    if encoding["name"] != "default" or separator not in {"/", "."}:
        msg = f"chunk_key_encoding {str(encoding)[:80]}"
        raise ValueError(msg)
    return str(separator)


def _absent(index: Array) -> Array:
    """Return which chunks consist of the fill value: absent chunks and chunks of no bytes."""
    absent: Array = (index[:, 0] == layout.ABSENT) | (index[:, 1] == 0)
    return absent


def _check_no_overlap(place: CacheFiles, name: str, stored: Array) -> None:
    """Raise if chunks overlap: a small file could then stand for any number of rows."""
    stored = stored[np.argsort(stored[:, 0], kind="stable")]
    if (stored[1:, 0] < (stored[:, 0] + stored[:, 1])[:-1]).any():
        place.fail(f"{name}: the shard index has chunks that lie over each other")


class ForeignRows(ChunkRows):
    """Rows of files of other writers, with chunks in any order and gaps between them.

    An absent chunk consists of the fill value.

    Args:
        grid: how the array is cut.
        chain: how its chunks are stored.
        place: the files of the cache, in a folder.
        path: path of the array.
        store: the store to read from.
        check: see `ChunkRows`.

    Raises:
        CorruptionError: a file is missing, or its index is damaged or invalid.
    """

    def __init__(
        self,
        grid: Grid,
        chain: ChunkStorage,
        place: CacheFiles,
        path: str,
        store: Store,
        check: Callable[[int, Array | None], None],
    ) -> None:
        files = list(chain.files(path, grid))
        super().__init__(grid, chain.codec, store, files, [], check)
        if chain.sharded:
            self._index = [
                read_index(place, store, name, grid, first=chain.first) for name in files
            ]
            for name, index in zip(files, self._index, strict=True):
                _check_no_overlap(place, name, index[~_absent(index)])
        else:
            sizes = [place.files.get(name, (-1, ""))[0] for name in files]
            missing = next(
                (name for name, size in zip(files, sizes, strict=True) if size < 0), None
            )
            if missing is not None:
                place.fail(f"{missing}: missing")
            self._index = [np.array([[0, size]], np.uint64) for size in sizes]
            for name, index in zip(files, self._index, strict=True):
                check_stored(place, name, grid, index[:, 1])
        limit = parsing.ABSENT_BYTES if path.startswith("fields/") else parsing.ABSENT_TABLE_BYTES
        absent = sum(int(_absent(index).sum()) for index in self._index) * grid.chunk_bytes
        if absent > limit:
            place.fail(f"{path}: {absent:,} bytes of chunks that are not stored; at most {limit:,}")

    def _part(self, number: int) -> tuple[str, int, int]:
        g, j = divmod(number, self._grid.chunks_per_shard)
        start, size = self._index[g][j].tolist()
        return (self._files[g], 0, 0) if start == layout.ABSENT else (self._files[g], start, size)

    def _decoded(self, stored: memoryview) -> Array:
        if not len(stored):
            return (
                layout.fill_array(self._grid.dtype, (self._grid.chunk, *self._grid.item))
                .reshape(-1)
                .view(np.uint8)
            )
        if self._codec == PLAIN and len(stored) != self._grid.chunk_bytes:
            msg = f"{len(stored):,} bytes where a chunk has {self._grid.chunk_bytes:,}"
            raise CorruptionError(msg)
        return super()._decoded(stored)


_OPEN_FILES = 127  # open files of an array that is not mapped, in addition to its folder
_CONCURRENT_READS = 16  # concurrent requests for indices
_RATIO = 1 << 15  # best ratio of zstd: 4 bytes for a block of 128 KiB of equal bytes
_CHECKED = 1 << 23  # bytes copied before they are digested, still in the CPU cache
# Arrays fetched by chunks from an object store; all others are small.
_FETCHED = ("fields/", layout.sample_path("key"), layout.sample_path("origin"))


def _check_codec(path: str, codec: Codec) -> None:
    """Raise `ValueError` for a compressed table.

    Uncompressed tables bound the samples of a cache by its bytes.
    """
    if codec != PLAIN and not path.startswith("fields/"):
        msg = f"codec {codec}; only fields may be compressed"
        raise ValueError(msg)


class StoredArray:
    """One array of a cache.

    Args:
        place: the files of the cache and how to read them.
        path: the array's path in the cache.
        document: its ``zarr.json``.
        samples_of: describes the samples of a range of rows, for messages.
        ragged: whether shards may hold fewer rows than their share.

    Notes:
        Files are opened at first use. A forked child uses the maps of its parent.
    """

    def __init__(
        self,
        place: CacheFiles,
        path: str,
        document: Mapping[str, Any],
        samples_of: Callable[[str, int, int], str],
        *,
        ragged: bool = False,
    ) -> None:
        self._place, self.path, self._samples_of, self._ragged = place, path, samples_of, ragged
        ours = layout.grid_of(document)
        self._foreign, self._always = ours is None, place.verify == "always"
        with place.checked_content(f"{path}/{layout.ZARR}"):
            self.grid, self._chain = (
                parse_chunk_storage(document) if ours is None else (ours[0], ChunkStorage(ours[1]))
            )
            parsing.check_chunk(self.grid)
            _check_codec(path, self._chain.codec)
        self.codec = self._chain.codec
        self.dtype, self._row_bytes = (
            np.dtype(self.grid.dtype).newbyteorder("<"),
            self.grid.row_bytes,
        )
        self.chunks = -(-self.grid.shape[0] // self.grid.chunk)
        if self.chunks > place.size:  # checked before memory is allocated per chunk
            place.fail(
                f"{path}/{layout.ZARR}: {self.chunks:,} chunks, more than the cache has bytes"
            )
        digest_size = place.files.get(self._digest_file, (0, ""))[0]
        if 8 * self.chunks > digest_size and not path.startswith("digests/"):
            place.fail(
                f"{path}/{layout.ZARR}: {self.chunks:,} chunks, and {self._digest_file} has "
                f"{digest_size:,} bytes"
            )
        # 1: checked. `Cache` replaces it by memory shared with forked children.
        self.seen: Array = np.zeros(self.chunks, np.uint8)

    @property
    def files(self) -> Iterator[str]:
        """The shard files, in order; lazy, because an unchecked document may claim any number."""
        return self._chain.files(self.path, self.grid)

    @property
    def _digest_file(self) -> str:
        return (
            f"{layout.digests_path(self.path)}/"
            f"{layout.table_grid('uint64', self.chunks).shard_file(0)}"
        )

    @cached_property
    def _sizes(self) -> list[Array]:
        """Stored sizes of the present inner chunks of each shard, from every shard's index.

        Raises:
            CorruptionError: an index is damaged or a chunk is missing.
        """
        grid, share = self.grid, self.grid.chunks_per_shard
        if self._foreign:
            return [
                layout.plain_sizes(grid, min(share, self.chunks - g * share))
                for g in range(grid.shards)
            ]
        # Remote and uncompressed: no index is needed, and each fetched chunk is checked by its
        # digest.
        if self.codec == PLAIN and self._place.store.folder is None:
            shard_sizes = [(self._plain_sizes(g), True) for g in range(grid.shards)]
        else:
            shard_sizes = self._indexed()
        self._foreign = not all(ours for _, ours in shard_sizes)
        for g, (sizes, _) in enumerate(shard_sizes):
            if self.codec == PLAIN and (sizes != grid.chunk_bytes).any():
                self._place.fail(
                    f"{self.path}/{grid.shard_file(g)}: its chunks are not of {grid.chunk_bytes:,} "
                    f"bytes"
                )
            expected = min(share, self.chunks - g * share)
            if len(sizes) != expected and not self._ragged:
                self._place.fail(
                    f"{self.path}/{grid.shard_file(g)}: holds {len(sizes)} of {expected} chunks"
                )
        return [sizes for sizes, _ in shard_sizes]

    def _indexed(self) -> list[tuple[Array, bool]]:
        grid = self.grid
        place = self._place
        store = self._place.store
        if store.folder is not None:
            one_file = FolderStore(store.folder, 1)
            return [chunk_sizes(place, one_file, self.path, grid, g) for g in range(grid.shards)]
        return list(
            concurrent_map(
                lambda g: chunk_sizes(place, store, self.path, grid, g),
                range(grid.shards),
                _CONCURRENT_READS,
            )
        )

    def _plain_sizes(self, g: int) -> Array:
        """Return the chunk sizes of an uncompressed shard, computed from its file size."""
        name = f"{self.path}/{self.grid.shard_file(g)}"
        payload = self._place.files.get(name, (-1, ""))[0] - layout.index_bytes(self.grid)
        used, remainder = divmod(payload, max(1, self.grid.chunk_bytes))
        if payload < 0 or remainder or used > self.grid.chunks_per_shard:
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
        """Int64 (shards): the readable rows of each shard."""
        return np.asarray(self.used_chunks, dtype=np.int64) * self.grid.chunk

    @cached_property
    def held_rows(self) -> int:
        """The readable rows of all shards."""
        return int(self.used_rows.sum())

    @cached_property
    def most_rows(self) -> int:
        """An upper bound for the rows, from the sizes of the files; opens no file."""
        stored_bytes = sum(self._place.files.get(name, (0, ""))[0] for name in self.files)
        stored_bytes *= 1 if self.codec == PLAIN else _RATIO
        return min(self.chunks * self.grid.chunk, stored_bytes // max(1, self._row_bytes))

    @cached_property
    def rows(self) -> RowReader:
        """The reader of the rows; opens the files."""
        used, store = self.used_chunks, self._place.store
        names = list(self.files)
        folder = store.folder
        if folder is None:
            if self._foreign:
                msg = (
                    f"{store.where}: {self.path} is not cut by this format; such are read in "
                    f"folders only. Copy it."
                )
                raise UsageError(msg)
            if not self.path.startswith(_FETCHED):  # every batch needs the tables
                return MemoryRows(self.grid, self._table(names[0]) if names else b"")
            return self._read(store, names)
        folder_store = FolderStore(folder, _OPEN_FILES)
        if self._foreign:
            return ForeignRows(
                self.grid, self._chain, self._place, self.path, folder_store, self._check_weakly
            )
        if self._place.mapped and self.codec == PLAIN:
            # Out of maps (vm.max_map_count) or addresses, positioned reads return the same bytes.
            with contextlib.suppress(OSError):
                return MappedRows(self.grid, folder_store, names, used)
        return self._read(folder_store, names)

    def _read(self, store: Store, names: list[str]) -> RowReader:
        if self.codec == PLAIN and store.folder is not None:
            return ReadRows(self.grid, store, names)
        return ChunkRows(self.grid, self.codec, store, names, self._sizes, self._check_weakly)

    @property
    def _check_weakly(self) -> Callable[[int, Array | None], None]:
        # A weak proxy instead of a bound method: a reference cycle would keep files and maps open.
        return partial(StoredArray._check_decoded, proxy(self))

    def _table(self, name: str) -> bytes:
        limit = table_bytes(self.grid.dtype, self.grid.shape[0])
        if self._place.verify != "manifest":
            return self._place.read(name, limit)
        try:
            raw = self._place.store.read(name, limit)
        except FileNotFoundError:
            self._place.fail(f"{name}: missing")
        if len(raw) != self._place.files.get(name, (-1, ""))[0]:
            self._place.fail(f"{name}: {len(raw):,} bytes, the manifest says otherwise")
        return raw

    @cached_property
    def expected(self) -> Array:
        """Uint64 (inner chunks): the expected digests, checked against the manifest.

        Raises:
            CorruptionError: the file of the digests is damaged.
        """
        if self.chunks == 0:
            return np.zeros(0, np.uint64)
        raw = self._place.read(self._digest_file, table_bytes("uint64", self.chunks))
        if len(raw) < self.chunks * 8:
            self._place.fail(f"{self._digest_file}: too short for {self.chunks} digests")
        return np.frombuffer(raw, dtype="<u8", count=self.chunks).astype(np.uint64, copy=False)

    def output_array(self, out: Array | None, shape: tuple[int, ...]) -> Array:
        """Return the array to fill: `out`, or new memory if it is None.

        `shape` is the shape without that of a row.

        Raises:
            UsageError: `out` has another shape or dtype, or is not C-contiguous.
        """
        shape = (*shape, *self.grid.item)
        out = empty(shape, self.dtype) if out is None else out
        if out.shape != shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            msg = (
                f"{self.path}: out is {out.dtype} {list(out.shape)}; contiguous {self.dtype} "
                f"{list(shape)} is wanted"
            )
            raise UsageError(msg)
        return out

    def take(self, indices: Array, out: Array | None = None) -> Array:
        """Return the rows at `indices`, in that order, copied.

        Args:
            indices: int64, each in [0, rows), checked by the caller.
            out: the array to fill; None: allocate one.

        Raises:
            CorruptionError: a chunk is damaged.
        """
        out = self.output_array(out, (len(indices),))
        chunks = indices // self.grid.chunk if self.grid.chunk > 1 else indices
        if self._checks and len(indices) and (self._always or self._has_unchecked(chunks)):
            self._take_checked(indices, chunks, out)
        else:
            self.rows.take(indices, out)
        return out

    def _take_checked(self, indices: Array, chunks: Array, out: Array) -> None:
        """Copy and digest rows in parts that fit into the CPU cache."""
        rows = self.rows
        size = self._row_bytes
        numbers = []
        digests = []
        step = max(1, _CHECKED // max(1, size))
        self._prefetch(chunks)
        for start in range(0, len(indices), step):
            part = slice(start, start + step)
            target = out[part]
            part_chunks = chunks[part]
            if self.grid.chunk > 1:
                part_chunks = self._chunks_to_check(np.unique(part_chunks))
                digests.append(digests64(map(rows.chunk, part_chunks.tolist())))
            rows.take(indices[part], target)
            if self.grid.chunk == 1:
                digests.append(digests64(np.ndarray((len(target), size), np.uint8, target)))
            numbers.append(part_chunks)
        self._compare(numbers, digests)

    def spans(self, starts: Array, lengths: Array, out: Array, at: Array) -> None:
        """Copy rows [starts[i], starts[i] + lengths[i]) to out[at[i]:], for every i.

        Raises:
            CorruptionError: the rows are not in use, or a chunk is damaged.
        """
        self.check_bounds(starts, lengths)
        rows = self.rows
        if isinstance(rows, ChunkRows):
            return rows.spans(starts, lengths, out, at)
        unchecked = (
            self._chunks_to_check(chunks_of(starts, lengths, self.grid.chunk))
            if self._checks
            else starts[:0]
        )
        # In ascending order neighbours share a chunk, and read-ahead helps.
        order = np.argsort(starts, kind="stable")
        ordered = zip(*(column[order].tolist() for column in (starts, lengths, at)), strict=True)
        if unchecked.size:
            self._prefetch(unchecked)
            return self._spans_checked(ordered, out)
        for start, length, target in ordered:
            if length:
                rows.span(start, start + length, out[target : target + length])
        return None

    def _spans_checked(self, ordered: Iterable[tuple[int, int, int]], out: Array) -> None:
        """Copy (start, length, to), sorted by start, in parts that are digested in the CPU cache.

        Notes:
            Copying reads memory faster than digesting does, so of a chunk that is copied whole the
            copy is digested.
        """
        rows = self.rows
        chunk = self.grid.chunk
        size = self.grid.chunk_bytes
        last_chunk = -1
        numbers = []
        digests = []
        piece = max(1, _CHECKED // max(1, size)) * chunk
        copied = out.reshape(-1).view(np.uint8).data
        for start, length, target in ordered:
            low = start
            stop = start + length
            base = (target - start) * self.grid.row_bytes
            while low < stop:
                high = min(stop, (low // piece + 1) * piece)
                end = (high - 1) // chunk
                numbers.append(
                    self._chunks_to_check(np.arange(max(last_chunk + 1, low // chunk), end + 1))
                )
                rows.span(low, high, out[target + low - start : target + high - start])
                whole_chunks = range(-(-low // chunk), high // chunk)
                parts = ((base + n * size, n) for n in numbers[-1].tolist())
                digests.append(
                    digests64(
                        [
                            copied[position : position + size]
                            if n in whole_chunks
                            else rows.chunk(n)
                            for position, n in parts
                        ]
                    )
                )
                low, last_chunk = high, max(last_chunk, end)
        self._compare(numbers, digests)

    def view(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) read-only: a view of a map, else a copy.

        Raises:
            CorruptionError: the rows are not in use, or a chunk is damaged.
        """
        starts = np.array([start])
        lengths = np.array([stop - start])
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
        out = empty(self.grid.shape, self.dtype)
        rows = self.grid.shape[0]
        self.spans(np.zeros(1, np.int64), np.array([rows]), out, np.zeros(1, np.int64))
        if isinstance(self.rows, MappedRows):
            self.rows.forget()  # the copy is in use from here on
        return out

    def unchecked(self) -> Array:
        """Return a whole table without checks, for messages about damage only."""
        out = empty(self.grid.shape, self.dtype)
        if len(out):
            self.rows.span(0, len(out), out)
        return out

    def check_bounds(self, starts: Array, lengths: Array) -> None:
        """Check that rows [starts[i], starts[i] + lengths[i]) are in use.

        Raises:
            CorruptionError: some are not.
        """
        if (lengths < 0).any():
            self._place.fail(f"{self.path}: the row table holds a negative length")
        nonempty = lengths > 0
        starts, lengths = starts[nonempty], lengths[nonempty]
        shard = starts // self.grid.shard
        shard_exists = (starts >= 0) & (shard < self.grid.shards)
        end = starts + lengths - shard * self.grid.shard
        if (
            not shard_exists.all()
            or (end > self.used_rows[shard]).any()
            or (lengths > self.grid.shard).any()
        ):
            self._place.fail(f"{self.path}: the row table points at rows that are not there")

    def check_size(self, rows: int, most: int = parsing.SAMPLE_BYTES) -> None:
        """Check that this many rows of one sample fit into memory.

        Raises:
            UsageError: they have more than `most` bytes.
        """
        size = rows * self._row_bytes
        if size > most:
            what = "Read it by windows."
            if most != parsing.SAMPLE_BYTES:
                what = (
                    "As a text it takes a multiple of them. Leave the field out with fields=[...]."
                )
            msg = (
                f"{self.path}: a sample has {size:,} bytes; at most {most:,} are served at once. "
                f"{what}"
            )
            raise UsageError(msg)

    def _check(self, chunks: Array) -> None:
        unchecked = np.sort(self._chunks_to_check(chunks), kind="stable")
        # Like np.unique, whose import of numpy.ma adds 10 ms to opening a cache.
        unchecked = unchecked[np.diff(unchecked, prepend=-1) > 0]
        self._compare([unchecked], [digests64(map(self.rows.chunk, unchecked.tolist()))])

    def _has_unchecked(self, chunks: Array) -> bool:
        """Return whether some inner chunks have not been checked."""
        return b"\0" in self.seen[chunks].tobytes()  # for a batch, a third of the time of `all`

    def _chunks_to_check(self, chunks: Array) -> Array:
        """Return the inner chunks that are to be checked."""
        return chunks if self._always else chunks[self.seen[chunks] == 0]

    def _prefetch(self, chunks: Array) -> None:
        """Prefetch inner chunks that are not verified yet."""
        if len(chunks) > 1 and isinstance(self.rows, MappedRows) and self._has_unchecked(chunks):
            self.rows.will_need(np.unique(chunks[self.seen[chunks] == 0]))

    def _compare(self, chunks: list[Array], digests: list[Array]) -> None:
        """Mark inner chunks as checked; raise if a digest is not the expected one."""
        numbers, actual = (
            arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            for arrays in (chunks, digests)
        )
        expected = self.expected[numbers]
        if actual.tobytes() != expected.tobytes():
            differing = np.flatnonzero(actual != expected)
            i = differing[numbers[differing].argmin()]  # the first one is named
            self._place.fail(str(self.chunk_problem(int(numbers[i]), int(actual[i]))))
        self.seen[numbers] = 1

    @cached_property
    def _checks(self) -> bool:
        """Whether chunks are checked before rows are read.

        Readers that fetch whole chunks check them on arrival instead.
        """
        return self._place.verify != "manifest" and not isinstance(
            self.rows, ChunkRows | MemoryRows
        )

    def _check_decoded(self, number: int, raw: Array | None) -> None:
        """Check an inner chunk that was decoded or fetched; `raw` is None if decoding failed."""
        if raw is None:
            self._place.fail(str(self.chunk_problem(number, None)))
        seen = (
            self._place.verify == "touch"
            and self.seen[number]
            and self._place.store.folder is not None
        )
        if self._place.verify == "manifest" or seen:
            return
        digest = digest64(raw.data)
        if digest != self.expected[number]:
            self._place.fail(str(self.chunk_problem(number, digest)))
        self.seen[number] = 1

    def digest(self, number: int) -> int:
        """Return the current xxh3_64 of an inner chunk; 0 if absent or if decompression fails."""
        try:
            return digest64(self.rows.chunk(number))
        except CorruptionError:
            return 0

    def chunk_problem(self, number: int, found: int | None) -> Problem:
        """Return the problem of a chunk; `found` is its digest, or None if it does not decode."""
        g, j = divmod(number, self.grid.chunks_per_shard)
        first_row = number * self.grid.chunk
        samples = self._samples_of(
            self.path, first_row, min(self.grid.shape[0], first_row + self.grid.chunk)
        )
        is_now = (
            f"expected xxh3_64 {int(self.expected[number]):016x}, found {found:016x}"
            if found is not None
            else ""
        )
        field = layout.field_name(self.path) if self.path.startswith("fields/") else ""
        what = f"chunk {j}: {is_now or 'it does not decompress'}"
        return Problem(f"{self.path}/{self.grid.shard_file(g)}", what, field, g, samples)
