"""The samples of a cache, field by field, in blocks that fit into memory whatever a sample or a codec is like."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from datacheck.cache.reader import Cache

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 64 << 20
_VALUE_BYTES = 128  # of an array that stands for a value, beside its numbers


def sample_bytes(cache: Cache, names: Collection[str], numbers: Array) -> Array:
    """Return int64 (samples): the bytes of these fields of samples, decoded."""
    specs = [cache.fields[name] for name in names]
    sizes = np.full(len(numbers), sum(spec.item_bytes for spec in specs if spec.dim is None), np.int64)
    for spec in specs:
        if spec.dim is not None:
            sizes += cache.lengths(spec.dim, numbers) * spec.item_bytes
    return sizes


def blocks(sizes: Array, most: int = BLOCK_BYTES, *, fields: int = 0) -> Iterator[slice]:
    """Yield runs of samples that fit into memory.

    Args:
        sizes: bytes of each sample, int64 (samples).
        most: bytes of a run, unless one sample alone has more.
        fields: of each sample; each value becomes an array, which takes more than a number in it.
    """
    ends, first = np.cumsum(sizes + fields * _VALUE_BYTES), 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, stop)
        first = stop


def column(cache: Cache, name: str, numbers: Array) -> list[Array | None]:
    """Return a field of samples, None of those that lack it or were not made."""
    has, rows, ends = whole_column(cache, name, numbers)
    values = list(rows) if ends is None else np.split(rows, ends[:-1]) if len(ends) else []
    return [np.asarray(value) if ok else None for value, ok in zip(values, has.tolist(), strict=True)]


def whole_column(cache: Cache, name: str, numbers: Array) -> tuple[Array, Array, Array | None]:
    """Return which samples have a field, its values stacked, and where each sample's rows end; None: it is fixed.

    Shapes:
        returns: bool (samples); (samples, *item), or (rows of all samples, *item); int64 (samples)
    """
    has = cache.made[numbers]
    present = cache.present(name, numbers)
    if present is not None:
        has &= present
    if cache.fields[name].dim is None:
        return has, cache.gather(name, numbers), None
    rows, lengths = cache.gather_ragged(name, numbers)
    return has, rows, np.cumsum(lengths)
