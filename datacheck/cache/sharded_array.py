"""The arrays of a cache: `StoredArray` reads rows, and checks chunks against their digests.

The rows come from a reader (`rows`): mapped or read in place where files are local and plain, in
memory for the tables of a remote cache, and by whole chunks where these are remote, compressed or
written by another program. A chunk is checked when it is first read, or each time, as the cache was
opened. The readers of whole chunks check what they fetch; for the others, `StoredArray` digests the
chunks of the rows that it copies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any
from weakref import proxy

import numpy as np

from datacheck.cache import layout, parsing
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.concurrent_map import concurrent_map
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.problem import Problem
from datacheck.cache.row_readers import (
    ChunkRows,
    ForeignRows,
    MappedRows,
    MemoryRows,
    ReadRows,
    RowReader,
    chunks_of,
)
from datacheck.cache.shard_index import (
    ChunkStorage,
    ShardChunks,
    packed_index,
    parse_chunk_storage,
    read_foreign_indices,
    read_shard_chunks,
)
from datacheck.cache.store import FolderStore, Store
from datacheck.errors import CorruptionError, UsageError
from datacheck.runtime.aligned import empty
from datacheck.runtime.hashing import digest64, digests64

Array = np.ndarray[Any, Any]

_OPEN_FILES = 127  # open files of an array that is not mapped, in addition to its folder
_CONCURRENT_READS = 16  # concurrent requests for indices
_RATIO = 1 << 15  # best ratio of zstd: 4 bytes for a block of 128 KiB of equal bytes
_COPY_BYTES = 1 << 23  # bytes copied before they are digested, still in the CPU cache
# Arrays fetched by chunks from an object store; all others are small.
_FETCHED = ("fields/", layout.sample_path("key"), layout.sample_path("origin"))


def table_bytes(dtype: str, rows: int) -> int:
    """Return the largest file size of a table of `rows` rows, for any cut into chunks [bytes]."""
    return rows * (np.dtype(dtype).itemsize + 16) + 2 * layout.CHUNK_BYTES


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
        cache_files: the files of the cache and how to read them.
        path: the array's path in the cache.
        document: its ``zarr.json``.
        samples_of: describes the samples of a range of rows, for messages.
        ragged: whether shards may hold fewer rows than their share.

    Notes:
        Files are opened at first use. A forked child uses the maps of its parent.
    """

    def __init__(
        self,
        cache_files: CacheFiles,
        path: str,
        document: Mapping[str, Any],
        samples_of: Callable[[str, int, int], str],
        *,
        ragged: bool = False,
    ) -> None:
        self.path = path
        self._cache_files = cache_files
        self._samples_of = samples_of
        self._ragged = ragged
        self._always = cache_files.verify == "always"
        own = layout.grid_of(document)
        self._foreign_document = own is None
        with cache_files.checked_content(f"{path}/{layout.ZARR}"):
            if own is None:
                self.grid, self._storage = parse_chunk_storage(document)
            else:
                grid, codec = own
                self.grid = grid
                self._storage = ChunkStorage(codec)
            parsing.check_chunks(self.grid)
            _check_codec(path, self._storage.codec)
        self.codec = self._storage.codec
        self.dtype = np.dtype(self.grid.dtype).newbyteorder("<")
        self._row_bytes = self.grid.row_bytes
        self.chunks = -(-self.grid.shape[0] // self.grid.chunk)
        self._check_chunk_count()
        # 1 for each checked chunk. `Cache` replaces it by memory shared with forked children.
        self.seen: Array = np.zeros(self.chunks, np.uint8)

    def _check_chunk_count(self) -> None:
        """Refuse more chunks than the cache can hold, before memory is allocated for each."""
        document = f"{self.path}/{layout.ZARR}"
        if self.chunks > self._cache_files.size:
            self._cache_files.fail(
                f"{document}: {self.chunks:,} chunks, more than the cache has bytes"
            )
        digest_bytes = self._cache_files.files.get(self._digest_file, (0, ""))[0]
        if 8 * self.chunks > digest_bytes and not self.path.startswith("digests/"):
            self._cache_files.fail(
                f"{document}: {self.chunks:,} chunks, and {self._digest_file} has "
                f"{digest_bytes:,} bytes"
            )

    @property
    def files(self) -> Iterator[str]:
        """The shard files, in order; lazy, because an unchecked document may claim any number."""
        return self._storage.files(self.path, self.grid)

    @property
    def _digest_file(self) -> str:
        table = layout.table_grid("uint64", self.chunks)
        return f"{layout.digests_path(self.path)}/{table.shard_file(0)}"

    # --------------------------------------------------------------------------------------- shards

    @cached_property
    def _shards(self) -> list[ShardChunks]:
        """The present inner chunks of each shard.

        Raises:
            CorruptionError: an index is damaged or a chunk is missing.
        """
        if self._foreign_document:
            # All chunks count as present: `ForeignRows` fills those that are not stored.
            return [
                ShardChunks(
                    layout.plain_sizes(self.grid, self._chunks_of_shard(shard)), packed=False
                )
                for shard in range(self.grid.shards)
            ]
        shards = self._read_shards()
        for number, shard in enumerate(shards):
            self._check_shard(number, shard)
        return shards

    def _read_shards(self) -> list[ShardChunks]:
        grid = self.grid
        store = self._cache_files.store
        if store.folder is not None:
            # Each index is read once, so there is no need to keep more than one file open.
            one_file = FolderStore(store.folder, 1)
            return [self._read_shard(one_file, shard) for shard in range(grid.shards)]
        if self.codec == PLAIN:
            # No index is needed, and each fetched chunk is checked by its digest.
            return [self._shard_by_size(shard) for shard in range(grid.shards)]
        read = partial(self._read_shard, store)
        return list(concurrent_map(read, range(grid.shards), _CONCURRENT_READS))

    def _read_shard(self, store: Store, shard: int) -> ShardChunks:
        return read_shard_chunks(self._cache_files, store, self.path, self.grid, shard)

    def _shard_by_size(self, shard: int) -> ShardChunks:
        """Return the chunks of a plain shard as the size of its file tells them."""
        name = f"{self.path}/{self.grid.shard_file(shard)}"
        file_bytes = self._cache_files.files.get(name, (-1, ""))[0]
        payload = file_bytes - layout.index_bytes(self.grid)
        used, remainder = divmod(payload, max(1, self.grid.chunk_bytes))
        if payload < 0 or remainder or used > self.grid.chunks_per_shard:
            self._cache_files.fail(f"{name}: no shard of this array has its size")
        return ShardChunks(layout.plain_sizes(self.grid, used), packed=True)

    def _check_shard(self, number: int, shard: ShardChunks) -> None:
        """Raise if a shard has chunks of another size than plain ones have, or too few."""
        name = f"{self.path}/{self.grid.shard_file(number)}"
        chunk_bytes = self.grid.chunk_bytes
        if self.codec == PLAIN and (shard.sizes != chunk_bytes).any():
            self._cache_files.fail(f"{name}: its chunks are not of {chunk_bytes:,} bytes")
        present = len(shard.sizes)
        expected = self._chunks_of_shard(number)
        if present != expected and not self._ragged:
            self._cache_files.fail(f"{name}: holds {present} of {expected} chunks")

    def _chunks_of_shard(self, shard: int) -> int:
        """Return how many chunks of the array belong to a shard; the last one may have fewer."""
        per_shard = self.grid.chunks_per_shard
        return min(per_shard, self.chunks - shard * per_shard)

    @cached_property
    def _foreign(self) -> bool:
        """Whether another program wrote the array: its chunks may lie anywhere in their file."""
        return self._foreign_document or not all(shard.packed for shard in self._shards)

    @cached_property
    def used_chunks(self) -> list[int]:
        """Present inner chunks of each shard.

        Raises:
            CorruptionError: an index is damaged or a chunk is missing.
        """
        return [len(shard.sizes) for shard in self._shards]

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
        most_bytes = sum(self._cache_files.files.get(name, (0, ""))[0] for name in self.files)
        if self.codec != PLAIN:
            most_bytes *= _RATIO
        return min(self.chunks * self.grid.chunk, most_bytes // max(1, self._row_bytes))

    # ------------------------------------------------------------------------------ the row reader

    @cached_property
    def rows(self) -> RowReader:
        """The reader of the rows; opens the files."""
        store = self._cache_files.store
        if store.folder is None:
            return self._remote_rows(store)
        return self._local_rows(FolderStore(store.folder, _OPEN_FILES))

    def _remote_rows(self, store: Store) -> RowReader:
        if self._foreign:
            msg = (
                f"{store.where}: {self.path} is not cut by this format; such are read in "
                f"folders only. Copy it."
            )
            raise UsageError(msg)
        if self.path.startswith(_FETCHED):
            return self._chunk_rows(store)
        # Every batch needs the tables, so they are kept in memory.
        name = next(self.files, None)
        return MemoryRows(self.grid, b"" if name is None else self._read_table(name))

    def _local_rows(self, store: FolderStore) -> RowReader:
        if self._foreign:
            indices = read_foreign_indices(
                self._cache_files, store, self.path, self.grid, self._storage
            )
            return ForeignRows(
                self.grid, self.codec, store, list(self.files), indices, self._chunk_check()
            )
        if self.codec != PLAIN:
            return self._chunk_rows(store)
        files = list(self.files)
        if self._cache_files.mapped:
            # Out of maps (vm.max_map_count) or addresses, positioned reads return the same bytes.
            with contextlib.suppress(OSError):
                return MappedRows(self.grid, store, files, self.used_chunks)
        return ReadRows(self.grid, store, files)

    def _chunk_rows(self, store: Store) -> ChunkRows:
        indices = [packed_index(shard.sizes) for shard in self._shards]
        return ChunkRows(
            self.grid, self.codec, store, list(self.files), indices, self._chunk_check()
        )

    def _chunk_check(self) -> Callable[[int, Array | None], None]:
        # A weak proxy instead of a bound method: a reference cycle would keep files and maps open.
        return partial(StoredArray._check_decoded, proxy(self))

    def _read_table(self, name: str) -> bytes:
        limit = table_bytes(self.grid.dtype, self.grid.shape[0])
        if self._cache_files.verify != "manifest":
            return self._cache_files.read(name, limit)
        try:
            raw = self._cache_files.store.read(name, limit)
        except FileNotFoundError:
            self._cache_files.fail(f"{name}: missing")
        if len(raw) != self._cache_files.files.get(name, (-1, ""))[0]:
            self._cache_files.fail(f"{name}: {len(raw):,} bytes, the manifest says otherwise")
        return raw

    # ---------------------------------------------------------------------------------------- rows

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
        """Copy rows and digest their chunks, in parts that fit into the CPU cache.

        `chunks` has the chunk of each row. Where a chunk is one row, its copy is digested: copying
        reads memory faster than digesting does.
        """
        rows = self.rows
        numbers: list[Array] = []
        digests: list[Array] = []
        self._prefetch(chunks)
        step = max(1, _COPY_BYTES // max(1, self._row_bytes))
        for start in range(0, len(indices), step):
            part = slice(start, start + step)
            copied = out[part]
            part_chunks = chunks[part]
            if self.grid.chunk > 1:
                part_chunks = self._chunks_to_check(np.unique(part_chunks))
                digests.append(digests64(map(rows.chunk, part_chunks.tolist())))
                rows.take(indices[part], copied)
            else:
                rows.take(indices[part], copied)
                rows_as_bytes = np.ndarray((len(copied), self._row_bytes), np.uint8, copied)
                digests.append(digests64(rows_as_bytes))
            numbers.append(part_chunks)
        self._compare(numbers, digests)

    def copy_spans(self, starts: Array, lengths: Array, out: Array, targets: Array) -> None:
        """Copy several spans of rows: rows [starts[i], starts[i] + lengths[i]) to out[targets[i]:].

        Shapes:
            starts, lengths, targets: int64 (spans) [rows]

        Raises:
            CorruptionError: the rows are not in use, or a chunk is damaged.
        """
        self.check_bounds(starts, lengths)
        rows = self.rows
        if isinstance(rows, ChunkRows):
            rows.copy_spans(starts, lengths, out, targets)
            return
        # In ascending order neighbours share a chunk, and read-ahead helps.
        order = np.argsort(starts, kind="stable")
        spans = zip(
            starts[order].tolist(), lengths[order].tolist(), targets[order].tolist(), strict=True
        )
        if self._checks:
            unchecked = self._chunks_to_check(chunks_of(starts, lengths, self.grid.chunk))
            if unchecked.size:
                self._prefetch(unchecked)
                self._copy_spans_checked(spans, out)
                return
        for start, length, target in spans:
            if length:
                rows.span(start, start + length, out[target : target + length])

    def _copy_spans_checked(self, spans: Iterable[tuple[int, int, int]], out: Array) -> None:
        """Copy spans and digest their chunks, in parts that fit into the CPU cache.

        Args:
            spans: (start, length, target) of each, by ascending start.
            out: see `copy_spans`.

        Notes:
            Copying reads memory faster than digesting does, so of a chunk that is copied whole the
            copy is digested.
        """
        rows = self.rows
        chunk = self.grid.chunk
        chunk_bytes = self.grid.chunk_bytes
        out_bytes = out.reshape(-1).view(np.uint8).data
        numbers: list[Array] = []
        digests: list[Array] = []
        next_chunk = 0  # all chunks before it are checked: spans may share one
        part_rows = max(1, _COPY_BYTES // max(1, chunk_bytes)) * chunk
        for start, stop, target in _cut_spans(spans, part_rows):
            rows.span(start, stop, out[target : target + stop - start])
            end_chunk = (stop - 1) // chunk + 1
            to_check = self._chunks_to_check(np.arange(max(next_chunk, start // chunk), end_chunk))
            next_chunk = max(next_chunk, end_chunk)
            whole_chunks = range(-(-start // chunk), stop // chunk)
            # Where the copy of row 0 would begin, if it were copied too.
            origin = (target - start) * self._row_bytes
            chunks = [
                out_bytes[origin + number * chunk_bytes : origin + (number + 1) * chunk_bytes]
                if number in whole_chunks
                else rows.chunk(number)
                for number in to_check.tolist()
            ]
            numbers.append(to_check)
            digests.append(digests64(chunks))
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
        self.copy_spans(starts, lengths, out, np.zeros(1, np.int64))
        out.flags.writeable = False
        return out

    def all(self) -> Array:
        """Return a whole table (an array of one shard), copied."""
        out = empty(self.grid.shape, self.dtype)
        zero = np.zeros(1, np.int64)
        self.copy_spans(zero, np.array([self.grid.shape[0]]), out, zero)
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
            self._cache_files.fail(f"{self.path}: the row table holds a negative length")
        nonempty = lengths > 0
        starts = starts[nonempty]
        lengths = lengths[nonempty]
        shards = starts // self.grid.shard
        shards_exist = (starts >= 0).all() and (shards < self.grid.shards).all()
        # Counted from the start of the shard. The sum overflows only where a length exceeds a shard.
        stops = starts + lengths - shards * self.grid.shard
        in_use = (
            shards_exist
            and (stops <= self.used_rows[shards]).all()
            and (lengths <= self.grid.shard).all()
        )
        if not in_use:
            self._cache_files.fail(f"{self.path}: the row table points at rows that are not there")

    def check_size(self, rows: int, most: int = parsing.SAMPLE_BYTES) -> None:
        """Check that this many rows of one sample fit into memory.

        Raises:
            UsageError: they have more than `most` bytes.
        """
        size = rows * self._row_bytes
        if size <= most:
            return
        advice = "Read it by windows."
        if most != parsing.SAMPLE_BYTES:
            advice = "As a text it takes a multiple of them. Leave the field out with fields=[...]."
        msg = (
            f"{self.path}: a sample has {size:,} bytes; at most {most:,} are served at once. "
            f"{advice}"
        )
        raise UsageError(msg)

    # -------------------------------------------------------------------------------------- checks

    @cached_property
    def expected(self) -> Array:
        """Uint64 (inner chunks): the expected digests, checked against the manifest.

        Raises:
            CorruptionError: the file of the digests is damaged.
        """
        if self.chunks == 0:
            return np.zeros(0, np.uint64)
        raw = self._cache_files.read(self._digest_file, table_bytes("uint64", self.chunks))
        if len(raw) < self.chunks * 8:
            self._cache_files.fail(f"{self._digest_file}: too short for {self.chunks} digests")
        return np.frombuffer(raw, dtype="<u8", count=self.chunks).astype(np.uint64, copy=False)

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
        numbers = _joined(chunks)
        actual = _joined(digests)
        expected = self.expected[numbers]
        if actual.tobytes() != expected.tobytes():
            differing = np.flatnonzero(actual != expected)
            first = differing[numbers[differing].argmin()]
            self._cache_files.fail(str(self.chunk_problem(int(numbers[first]), int(actual[first]))))
        self.seen[numbers] = 1

    @cached_property
    def _checks(self) -> bool:
        """Whether chunks are checked before rows are read.

        Readers that fetch whole chunks check them on arrival instead.
        """
        return self._cache_files.verify != "manifest" and not isinstance(
            self.rows, ChunkRows | MemoryRows
        )

    def _check_decoded(self, number: int, raw: Array | None) -> None:
        """Check an inner chunk that was decoded or fetched; `raw` is None if decoding failed."""
        if raw is None:
            self._cache_files.fail(str(self.chunk_problem(number, None)))
        verify = self._cache_files.verify
        if verify == "manifest":
            return
        # From an object store each read is checked: the disk that keeps its shards may rot.
        is_local = self._cache_files.store.folder is not None
        if verify == "touch" and is_local and self.seen[number]:
            return
        digest = digest64(raw.data)
        if digest != self.expected[number]:
            self._cache_files.fail(str(self.chunk_problem(number, digest)))
        self.seen[number] = 1

    def digest(self, number: int) -> int:
        """Return the current xxh3_64 of an inner chunk; 0 if absent or if decompression fails."""
        try:
            return digest64(self.rows.chunk(number))
        except CorruptionError:
            return 0

    def chunk_problem(self, number: int, found: int | None) -> Problem:
        """Return the problem of a chunk; `found` is its digest, or None if it does not decode."""
        shard, chunk = divmod(number, self.grid.chunks_per_shard)
        what = f"chunk {chunk}: it does not decompress"
        if found is not None:
            expected = int(self.expected[number])
            what = f"chunk {chunk}: expected xxh3_64 {expected:016x}, found {found:016x}"
        first_row = number * self.grid.chunk
        stop_row = min(self.grid.shape[0], first_row + self.grid.chunk)
        samples = self._samples_of(self.path, first_row, stop_row)
        field = layout.field_name(self.path) if self.path.startswith("fields/") else ""
        return Problem(f"{self.path}/{self.grid.shard_file(shard)}", what, field, shard, samples)


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _cut_spans(
    spans: Iterable[tuple[int, int, int]], part_rows: int
) -> Iterator[tuple[int, int, int]]:
    """Cut (start, length, target) at multiples of `part_rows`; yield (start, stop, target)."""
    for start, length, target in spans:
        stop = start + length
        low = start
        while low < stop:
            high = min(stop, (low // part_rows + 1) * part_rows)
            yield low, high, target + low - start
            low = high
