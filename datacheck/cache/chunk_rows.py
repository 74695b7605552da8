"""Rows of arrays whose inner chunks are fetched or decoded whole: remote, compressed, foreign.

A call sorts the wanted rows by their chunks, so that it fetches and decodes each chunk once. A chunk
is checked before any of its rows is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.layout import Grid
from datacheck.cache.shard_maps import chunk_counts, chunks_of
from datacheck.cache.store import Store
from datacheck.errors import CorruptionError

Array = np.ndarray[Any, Any]
# A byte range of a file, as `Store.parts` takes it: path, offset, size.
Part = tuple[str, int, int]

_REQUEST_BYTES = 32 << 20  # stored bytes per request


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
