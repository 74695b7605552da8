"""Numbers of samples, and the runs of rows that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_INT64 = np.dtype(np.int64)
_LARGEST = 2**63 - 1


def sample_numbers(indices: Sequence[int] | Array) -> Array:
    """Return whole numbers as int64.

    Raises:
        IndexError: one is beyond 2**63.
        TypeError: they are none (a bool mask, floats, a slice), or no list of them.
    """
    numbers = np.asarray(indices)
    if numbers.dtype == _INT64 and numbers.ndim == 1:
        return numbers
    if numbers.size and numbers.dtype.kind not in "iu":
        found = type(numbers.flat[0]).__name__ if numbers.dtype == object else numbers.dtype
        msg = f"indices are whole numbers of 64 bits, not {found}"
        raise TypeError(msg)
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > _LARGEST:  # else it would count from the end
        msg = f"index {numbers.max()} is out of range"
        raise IndexError(msg)
    if numbers.ndim != 1:
        msg = f"indices of {numbers.ndim} axes; a list of whole numbers is wanted"
        raise TypeError(msg)
    return numbers.astype(np.int64, copy=False)


def all_below(numbers: Array, limit: int) -> bool:
    """Tell whether int64 numbers are all in [0, limit)."""
    inside = numbers.view(np.uint64) < limit  # those below 0 are large ones
    return b"\0" not in inside.tobytes()  # for a batch, half the time of `all`


def runs(start: Array, length: Array, shard: int) -> Array:
    """Return where runs of rows that lie one behind the other in one shard begin: each run is copied at once."""
    new = (start[1:] != start[:-1] + length[:-1]) | (start[1:] % shard == 0)
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(start)), dtype=bool), new]))


def cut(values: Array, lengths: Array) -> list[bytes]:
    """Return the bytes of each text of texts that lie one behind the other."""
    whole = values.tobytes()
    return [whole[start:end] for start, end in _between(lengths)]


def parts(values: Array, lengths: Array) -> list[memoryview]:
    """Return each text of texts that lie one behind the other, where it lies."""
    whole = values.data
    return [whole[start:end] for start, end in _between(lengths)]


def _between(lengths: Array) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(lengths).tolist()
    return zip([0, *ends], ends, strict=False)


def chunks_of(starts: Array, lengths: Array, chunk: int) -> Array:
    """Return the inner chunks that rows [starts[i], starts[i] + lengths[i]) lie in, some of them twice."""
    first, last = starts // chunk, (starts + lengths - 1) // chunk
    counts = np.where(lengths > 0, last - first + 1, 0)
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    found: Array = np.repeat(first, counts) + inside
    return found
