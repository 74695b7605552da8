"""Readers of the rows of one array: mapped, by positioned reads, in memory, or by whole chunks.

A `RowReader` copies rows. `ChunkRows` serves arrays whose inner chunks are fetched or decoded whole
(remote, compressed, foreign): a call sorts the wanted rows by their chunks, so that it fetches and
decodes each chunk once, and checks a chunk before any of its rows is copied. The functions at the
top turn the numbers of samples into runs of rows, and runs of rows into inner chunks.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from datacheck.cache import layout
from datacheck.cache.addresses import AddressRange
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.layout import Grid
from datacheck.cache.problem import corrupt
from datacheck.cache.store import FolderStore, Store
from datacheck.errors import CorruptionError
from datacheck.runtime.aligned import empty

Array = np.ndarray[Any, Any]

# A byte range of a file, as `Store.parts` takes it: path, offset, size.
Part = tuple[str, int, int]

_INT64 = np.dtype(np.int64)
_LARGEST = 2**63 - 1
# Bytes per call: of a larger range Linux reads ahead only one disk request.
_AHEAD = 1 << 20
_REQUEST_BYTES = 32 << 20  # stored bytes per request


def sample_numbers(indices: Sequence[int] | Array) -> Array:
    """Return whole numbers as int64.

    Raises:
        IndexError: a number is 2**63 or more.
        TypeError: the indices are no whole numbers (a bool mask, floats, a slice), or no list.
    """
    numbers = np.asarray(indices)
    if numbers.dtype == _INT64 and numbers.ndim == 1:
        return numbers
    if numbers.size and numbers.dtype.kind not in "iu":
        kind = type(numbers.flat[0]).__name__ if numbers.dtype == object else numbers.dtype
        msg = f"indices are whole numbers of 64 bits, not {kind}"
        raise TypeError(msg)
    # As int64 it would turn negative.
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > _LARGEST:
        msg = f"index {numbers.max()} is out of range"
        raise IndexError(msg)
    if numbers.ndim != 1:
        msg = f"indices of {numbers.ndim} axes; a list of whole numbers is wanted"
        raise TypeError(msg)
    return numbers.astype(np.int64, copy=False)


def all_below(numbers: Array, limit: int) -> bool:
    """Return whether all int64 numbers are in [0, limit)."""
    in_range = numbers.view(np.uint64) < limit  # as uint64, negative numbers are large
    return b"\0" not in in_range.tobytes()  # for a batch, half the time of `all`


def runs(start: Array, length: Array, shard: int) -> Array:
    """Return where runs of adjacent rows in one shard begin; each run is copied at once."""
    breaks = (start[1:] != start[:-1] + length[:-1]) | (start[1:] % shard == 0)
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(start)), dtype=bool), breaks]))


def split_bytes(values: Array, lengths: Array) -> list[bytes]:
    """Return the bytes of each of several concatenated texts."""
    joined = values.tobytes()
    return [joined[start:end] for start, end in _between(lengths)]


def split_views(values: Array, lengths: Array) -> list[memoryview]:
    """Return a view of each of several concatenated texts."""
    joined = values.data
    return [joined[start:end] for start, end in _between(lengths)]


def _between(lengths: Array) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(lengths).tolist()
    return zip([0, *ends], ends, strict=False)


def chunk_counts(starts: Array, lengths: Array, chunk: int) -> Array:
    """Return in how many inner chunks rows [starts[i], starts[i] + lengths[i]) lie."""
    counts: Array = (starts + lengths - 1) // chunk - starts // chunk + 1
    return np.where(lengths > 0, counts, 0)


def chunks_of(starts: Array, lengths: Array, chunk: int) -> Array:
    """Return the inner chunks of rows [starts[i], starts[i] + lengths[i]), maybe with repeats."""
    counts = chunk_counts(starts, lengths, chunk)
    first_of_span = np.repeat(starts // chunk, counts)
    # 0, 1, 2, ... from the first chunk of each span on
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    chunks: Array = first_of_span + offsets
    return chunks


# -------------------------------------------------------------------------------- rows of any place


class RowReader(Protocol):
    """Reads the rows of one array."""

    def take(self, indices: Array, out: Array) -> None:
        """Copy the rows at `indices` into `out`, in that order."""

    def span(self, start: int, stop: int, out: Array) -> None:
        """Copy rows [start, stop), which lie in one shard, into `out`."""

    def chunk(self, number: int) -> Any:
        """Return the bytes of an inner chunk."""


class MappedRows:
    """Rows in one address range that maps all shard files.

    Args:
        grid: how the array is cut.
        store: the folder of the shard files.
        files: their paths in it, in order.
        used: present inner chunks of each shard.

    Raises:
        OSError: the operating system grants no (further) map.
        CorruptionError: a file is no longer a plain file, or is shorter than its chunks.

    Notes:
        Shards whose size is a multiple of a page follow each other without a gap, which makes the
        whole array contiguous. Others start at the next page. Rows of absent chunks are not mapped.
        Also valid in forked children.
    """

    def __init__(
        self, grid: Grid, store: FolderStore, files: Sequence[str], used: Sequence[int]
    ) -> None:
        shard_bytes = grid.shard * grid.row_bytes
        stride = -(-shard_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        addresses = AddressRange(max(1, stride * len(files)))
        for shard, path in enumerate(files):
            length = used[shard] * grid.chunk_bytes
            if length:
                file = store.descriptor(path)
                # Access to a map beyond the end of its file kills the process (SIGBUS).
                if os.fstat(file.number).st_size < length:
                    raise corrupt(store.where, path, "ends too early")
                addresses.place(shard * stride, length, file.number)
        self._grid = grid
        self._chunks_per_shard = grid.chunks_per_shard
        self._chunk_bytes = grid.chunk_bytes
        self._stride = stride
        self._addresses = addresses
        self._bytes = np.asarray(addresses)
        dtype = np.dtype(grid.dtype).newbyteorder("<")
        item_strides = np.empty(grid.item, dtype).strides
        self._shards: Array = np.ndarray(
            (len(files), grid.shard, *grid.item),
            dtype,
            self._bytes,
            strides=(stride, grid.row_bytes, *item_strides),
        )
        # The whole array, where no shard is followed by a gap.
        self._rows: Array | None = None
        if stride == shard_bytes:
            self._rows = np.ndarray((len(files) * grid.shard, *grid.item), dtype, self._bytes)

    def take(self, indices: Array, out: Array) -> None:
        """See `RowReader`."""
        if self._rows is not None:
            # "clip", because mode "raise" gathers into a second buffer.
            np.take(self._rows, indices, axis=0, out=out, mode="clip")
        else:
            out[...] = self._shards[indices // self._grid.shard, indices % self._grid.shard]

    def span(self, start: int, stop: int, out: Array) -> None:
        """See `RowReader`."""
        shard, row = divmod(start, self._grid.shard)
        out[...] = self._shards[shard, row : row + stop - start]

    def forget(self) -> None:
        """Release the pages that were read, so that they do not count as this process's memory."""
        self._addresses.forget()

    def view(self, start: int, stop: int) -> Array:
        """Return a read-only view of rows [start, stop), which lie in one shard."""
        shard, row = divmod(start, self._grid.shard)
        rows: Array = self._shards[shard, row : row + stop - start]
        return rows

    def chunk(self, number: int) -> Any:
        """See `RowReader`."""
        shard, chunk = divmod(number, self._chunks_per_shard)
        start = shard * self._stride + chunk * self._chunk_bytes
        return self._bytes[start : start + self._chunk_bytes]

    def will_need(self, chunks: Array) -> None:
        """Read inner chunks ahead together; a copy would wait for one after the other.

        The chunks are given in ascending order.
        """
        if not chunks.size:
            return
        shards, chunks_in_shard = np.divmod(chunks, self._chunks_per_shard)
        size = self._chunk_bytes
        starts = shards * self._stride + chunks_in_shard * size
        # Adjacent chunks are one range; the first chunk begins one.
        first_of_range = np.flatnonzero(np.diff(starts, prepend=starts[0] - size - 1) != size)
        last_of_range = np.append(first_of_range[1:], len(starts)) - 1
        range_starts = starts[first_of_range].tolist()
        range_ends = (starts[last_of_range] + size).tolist()
        for start, end in zip(range_starts, range_ends, strict=True):
            for offset in range(start, end, _AHEAD):
                self._addresses.will_need(offset, min(_AHEAD, end - offset))


class ReadRows:
    """Rows through positioned reads, for stores where a mapped file could vanish.

    Args:
        grid: how the array is cut.
        store: the store of the shard files.
        files: their paths in it, in order.
    """

    def __init__(self, grid: Grid, store: Store, files: Sequence[str]) -> None:
        self._grid = grid
        self._store = store
        self._files = files

    def _read(self, shard: int, offset: int, view: memoryview) -> None:
        self._store.read_into(self._files[shard], offset, view)

    def take(self, indices: Array, out: Array) -> None:
        """See `RowReader`."""
        if not out.flags.c_contiguous:  # reshape would copy, and the rows would go to the copy
            msg = "rows are read into C-contiguous arrays only"
            raise ValueError(msg)
        raw = out.reshape(-1).view(np.uint8).data
        size = self._grid.row_bytes
        shard = self._grid.shard
        order = np.argsort(indices, kind="stable")  # ascending offsets: read-ahead helps
        rows = indices[order]
        breaks = (np.diff(rows) != 1) | (np.diff(order) != 1) | (rows[1:] % shard == 0)
        firsts = np.flatnonzero(np.concatenate([np.ones(min(1, len(rows)), bool), breaks]))
        counts = np.diff([*firsts, len(rows)])
        # Rows that follow each other in the file and in `out` are read at once.
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
            number, row = divmod(int(rows[first]), shard)
            target = int(order[first])
            self._read(number, row * size, raw[target * size : (target + count) * size])

    def span(self, start: int, stop: int, out: Array) -> None:
        """See `RowReader`."""
        shard, row = divmod(start, self._grid.shard)
        if stop > start:
            self._read(shard, row * self._grid.row_bytes, memoryview(out.data).cast("B"))

    def chunk(self, number: int) -> Any:
        """See `RowReader`."""
        shard, chunk = divmod(number, self._grid.chunks_per_shard)
        raw = empty([self._grid.chunk_bytes], np.uint8)
        self._read(shard, chunk * self._grid.chunk_bytes, raw.data)
        return raw


class MemoryRows:
    """Rows of a table held in memory.

    Args:
        grid: how the array is cut: into one shard, or none.
        raw: the file of that shard.
    """

    def __init__(self, grid: Grid, raw: bytes) -> None:
        self._grid = grid
        self._raw = np.frombuffer(raw, np.uint8)
        dtype = np.dtype(grid.dtype).newbyteorder("<")
        nbytes = prod(grid.shape) * dtype.itemsize
        self._rows: Array = self._raw[:nbytes].view(dtype).reshape(grid.shape)

    def take(self, indices: Array, out: Array) -> None:
        """See `RowReader`."""
        np.take(self._rows, indices, axis=0, out=out, mode="clip")

    def span(self, start: int, stop: int, out: Array) -> None:
        """See `RowReader`."""
        out[...] = self._rows[start:stop]

    def chunk(self, number: int) -> Any:
        """See `RowReader`."""
        return self._raw[number * self._grid.chunk_bytes : (number + 1) * self._grid.chunk_bytes]


# ----------------------------------------------------------------------- chunks that are read whole


class ChunkRows:
    """Rows of inner chunks that are fetched whole; one call requests each of its chunks once.

    Args:
        grid: how the array is cut.
        codec: the codec of the chunks.
        store: the store of the shard files.
        files: their paths in it, in order.
        indices: offset and stored size of the inner chunks of each shard; int (chunks, 2) [bytes].
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
        indices: Sequence[Array],
        check: Callable[[int, Array | None], None],
    ) -> None:
        self._grid = grid
        self._codec = codec
        self._store = store
        self._files = files
        self._indices = indices
        self._check = check
        self._dtype = np.dtype(grid.dtype).newbyteorder("<")
        self._last: tuple[int, Array] | None = None

    def take(self, indices: Array, out: Array) -> None:
        """See `RowReader`."""
        chunk = self._grid.chunk
        positions = _positions_by_chunk(indices // chunk)
        chunk_rows = self._read_chunks(list(positions))
        for (number, group), rows in zip(positions.items(), chunk_rows, strict=True):
            out[group] = rows[indices[group] - number * chunk]

    def span(self, start: int, stop: int, out: Array) -> None:
        """See `RowReader`."""
        self.copy_spans(np.array([start]), np.array([stop - start]), out, np.zeros(1, np.int64))

    def copy_spans(self, starts: Array, lengths: Array, out: Array, targets: Array) -> None:
        """Copy rows [starts[i], starts[i] + lengths[i]) to out[targets[i]:], for every i."""
        pieces = _cut_at_chunks(starts, lengths, targets, self._grid.chunk)
        copies = list(
            zip(
                pieces.starts.tolist(),
                pieces.lengths.tolist(),
                pieces.targets.tolist(),
                strict=True,
            )
        )
        positions = _positions_by_chunk(pieces.chunks)
        chunk_rows = self._read_chunks(list(positions))
        for group, rows in zip(positions.values(), chunk_rows, strict=True):
            for i in group.tolist():
                start, length, target = copies[i]
                out[target : target + length] = rows[start : start + length]

    def chunk(self, number: int) -> Any:
        """See `RowReader`; returns the decoded bytes.

        Raises:
            CorruptionError: the chunk does not decode.
        """
        (stored,) = self._store.parts([self._part(number)])
        return self._decode(stored)

    def _part(self, number: int) -> Part:
        """Return where a chunk is stored."""
        shard, chunk = divmod(number, self._grid.chunks_per_shard)
        offset, size = self._indices[shard][chunk].tolist()
        return self._files[shard], offset, size

    def _read_chunks(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Yield the rows of chunks, given in ascending order."""
        for raw in self._checked_chunks(numbers):
            yield raw.view(self._dtype).reshape(self._grid.chunk, *self._grid.item)

    def _checked_chunks(self, numbers: Sequence[int]) -> Iterator[Array]:
        last = self._last  # read once, because another thread may replace it
        if last is not None and numbers and last[0] == numbers[0]:
            self._check(*last)
            yield last[1]
            numbers = numbers[1:]
        for request in self._requests(numbers):
            fetched = self._store.parts(list(request.values()))
            for (number, part), stored in zip(request.items(), fetched, strict=True):
                raw = self._checked_chunk(number, part, stored)
                # Keep small chunks only: a single row may have any size, other writers make larger
                # chunks, and a cache may have thousands of fields.
                if self._grid.chunk > 1 and raw.nbytes <= layout.CHUNK_BYTES:
                    self._last = number, raw
                yield raw

    def _requests(self, numbers: Sequence[int]) -> Iterator[dict[int, Part]]:
        """Yield chunks and where they are stored, as many at a time as one request may fetch."""
        request: dict[int, Part] = {}
        request_bytes = 0
        for number in numbers:
            part = self._part(number)
            size = part[2]
            if request and request_bytes + size > _REQUEST_BYTES:
                yield request
                request = {}
                request_bytes = 0
            request[number] = part
            request_bytes += size
        if request:
            yield request

    def _checked_chunk(self, number: int, part: Part, stored: memoryview) -> Array:
        """Decode and check a chunk; if a local copy of its file is damaged, fetch it once more."""
        try:
            return self._decode_and_check(number, stored)
        except CorruptionError:
            if not self._store.discard(part[0]):
                raise
        (refetched,) = self._store.parts([part])
        return self._decode_and_check(number, refetched)

    def _decode_and_check(self, number: int, stored: memoryview) -> Array:
        try:
            raw = self._decode(stored)
        except CorruptionError:
            self._check(number, None)
            raise
        self._check(number, raw)
        return raw

    def _decode(self, stored: memoryview) -> Array:
        if self._codec == PLAIN:
            return np.frombuffer(stored, np.uint8)
        raw: Array = np.empty(self._grid.chunk_bytes, np.uint8)
        self._codec.decode(stored, raw.data)
        return raw


class ForeignRows(ChunkRows):
    """Rows of the files of other writers; a chunk of no stored bytes consists of the fill value."""

    def _decode(self, stored: memoryview) -> Array:
        grid = self._grid
        if not len(stored):
            rows = layout.fill_array(grid.dtype, (grid.chunk, *grid.item))
            return rows.reshape(-1).view(np.uint8)
        if self._codec == PLAIN and len(stored) != grid.chunk_bytes:
            msg = f"{len(stored):,} bytes where a chunk has {grid.chunk_bytes:,}"
            raise CorruptionError(msg)
        return super()._decode(stored)


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Spans of rows, cut where a chunk ends, so that each piece lies in one chunk.

    Shapes:
        all: int64 (pieces)

    Args:
        chunks: the number of the piece's chunk.
        starts: the first row, counted from the start of the chunk.
        lengths: the rows.
        targets: the row of the output that the first row is copied to.
    """

    chunks: Array
    starts: Array
    lengths: Array
    targets: Array


def _cut_at_chunks(starts: Array, lengths: Array, targets: Array, chunk: int) -> _Pieces:
    """Cut rows [starts[i], starts[i] + lengths[i]) at the ends of chunks of `chunk` rows."""
    spans = np.repeat(np.arange(len(starts)), chunk_counts(starts, lengths, chunk))
    chunks = chunks_of(starts, lengths, chunk)
    chunk_starts = chunks * chunk
    span_starts = starts[spans]
    piece_starts = np.maximum(span_starts, chunk_starts)
    piece_stops = np.minimum(span_starts + lengths[spans], chunk_starts + chunk)
    return _Pieces(
        chunks,
        piece_starts - chunk_starts,
        piece_stops - piece_starts,
        targets[spans] + piece_starts - span_starts,
    )


def _positions_by_chunk(chunks: Array) -> dict[int, Array]:
    """Return the positions at which each chunk number stands, by number in ascending order."""
    if not len(chunks):
        return {}
    order = np.argsort(chunks, kind="stable")
    boundaries = np.flatnonzero(np.diff(chunks[order])) + 1
    return {int(chunks[group[0]]): group for group in np.split(order, boundaries)}
