"""Rows of inner chunks that are had whole: compressed ones, and those that lie in an object store.

Nothing is served of a chunk before it was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.layout import Grid
from datacheck.cache.store import Store
from datacheck.errors import CorruptionError

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 32 << 20  # stored, that are asked for together


class ChunkRows:
    """Rows of inner chunks that are fetched whole; those of one call are asked for together, each once.

    Args:
        grid: how the array is cut.
        codec: what each chunk went through.
        store: where the shard files are.
        files: their paths in it, in order.
        sizes: stored size of the present inner chunks of each shard, which lie one behind the other.
        check: called with the number of a chunk and its bytes (None: they do not decode) before any of it is served;
            raises where it must not be.

    Notes:
        Holds the last chunk of several rows that it served, where that has 64 KiB or less. Threads may share it.
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
        self._grid, self._codec, self._store, self._files, self._check = grid, codec, store, files, check
        self._ends = [np.cumsum(some, dtype=np.int64) for some in sizes]
        self._last: tuple[int, Array] | None = None

    def take(self, indices: Array, out: Array) -> None:
        """See `Rows`."""
        order = np.argsort(indices, kind="stable")
        numbers = indices[order] // self._grid.chunk
        groups = np.split(order, np.flatnonzero(np.diff(numbers)) + 1) if order.size else []
        wanted = [int(indices[some[0]]) // self._grid.chunk for some in groups]
        for number, rows, some in zip(wanted, self._served(wanted), groups, strict=True):
            out[some] = rows[indices[some] - number * self._grid.chunk]

    def span(self, start: int, stop: int, out: Array) -> None:
        """See `Rows`."""
        self.spans(np.array([start]), np.array([stop - start]), out, np.zeros(1, np.int64))

    def spans(self, starts: Array, lengths: Array, out: Array, at: Array) -> None:
        """Copy rows [starts[i], starts[i] + lengths[i]) to out[at[i]:], for every i."""
        size = self._grid.chunk
        first = starts // size
        counts = np.where(lengths > 0, (starts + lengths - 1) // size - first + 1, 0)
        span = np.repeat(np.arange(len(starts)), counts)
        number = np.repeat(first, counts) + np.arange(len(span)) - np.repeat(np.cumsum(counts) - counts, counts)
        order = np.argsort(number, kind="stable")
        span, number = span[order], number[order]
        low = np.maximum(starts[span], number * size)
        high = np.minimum((starts + lengths)[span], (number + 1) * size)
        to, inside = at[span] + low - starts[span], low - number * size
        cuts = np.flatnonzero(np.diff(number)) + 1
        groups = np.split(np.arange(len(span)), cuts) if len(span) else []
        for rows, some in zip(self._served([int(number[group[0]]) for group in groups]), groups, strict=True):
            for i in some.tolist():
                count = high[i] - low[i]
                out[to[i] : to[i] + count] = rows[inside[i] : inside[i] + count]

    def chunk(self, number: int) -> Any:
        """See `Rows`; decoded.

        Raises:
            CorruptionError: it does not decode.
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

    def _served(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Yield the rows of chunks, given in ascending order."""
        dtype = np.dtype(self._grid.dtype).newbyteorder("<")
        for raw in self._raw(numbers):
            yield raw.view(dtype).reshape(self._grid.chunk, *self._grid.item)

    def _raw(self, numbers: Sequence[int]) -> Iterator[Array]:
        last, todo = self._last, list(numbers)
        if last is not None and todo and last[0] == todo[0]:
            self._check(*last)
            yield last[1]
            del todo[0]
        for block in self._blocks(todo):
            for number, stored in zip(block, self._store.parts([self._part(n) for n in block]), strict=True):
                raw = self._checked(number, stored)
                # one row may be of any size, and other writers make larger chunks; there may be thousands of fields
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
                block, size = [], 0
            block.append(number)
            size += stored
        if block:
            yield block

    def _checked(self, number: int, stored: memoryview) -> Array:
        """Return a chunk that is what was written: if need be not of a copy that lies nearer, but of the file."""
        try:
            return self._good(number, stored)
        except CorruptionError:
            if not self._store.discard(self._part(number)[0]):
                raise
        (again,) = self._store.parts([self._part(number)])
        return self._good(number, again)

    def _good(self, number: int, stored: memoryview) -> Array:
        try:
            raw = self._decoded(stored)
        except CorruptionError:
            self._check(number, None)
            raise
        self._check(number, raw)
        return raw
