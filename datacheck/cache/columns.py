"""The samples of a cache, field by field, in blocks that fit into memory whatever a sample or a codec is like."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from datacheck.cache.reader import Cache

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 64 << 20


def sample_bytes(cache: Cache, names: Collection[str], numbers: Array) -> Array:
    """Return int64 (samples): the bytes of these fields of samples, decoded."""
    specs = [cache.fields[name] for name in names]
    sizes = np.full(len(numbers), sum(spec.item_bytes for spec in specs if spec.dim is None), np.int64)
    for spec in specs:
        if spec.dim is not None:
            sizes += cache.lengths(spec.dim, numbers) * spec.item_bytes
    return sizes


def blocks(sizes: Array, most: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield runs of samples of `most` bytes together, or of one sample that has more; `sizes`: int64 (samples)."""
    ends, first = np.cumsum(sizes), 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, stop)
        first = stop


def column(cache: Cache, name: str, numbers: Array) -> list[Array | None]:
    """Return a field of samples, None of those that lack it or were not made."""
    has = cache.made[numbers]
    present = cache.present(name, numbers)
    if present is not None:
        has &= present
    if cache.fields[name].dim is None:
        values = list(cache.gather(name, numbers))
    else:
        rows, lengths = cache.gather_ragged(name, numbers)
        values = np.split(rows, np.cumsum(lengths)[:-1]) if len(numbers) else []
    return [np.asarray(value) if ok else None for value, ok in zip(values, has.tolist(), strict=True)]
