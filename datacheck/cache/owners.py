"""Which samples the rows of an array belong to, for messages: read without a check, as something is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from datacheck.cache import layout
from datacheck.errors import DatacheckError
from datacheck.sample import ArraySpec

if TYPE_CHECKING:
    from datacheck.cache.stored import StoredArray

Array = np.ndarray[Any, Any]

KEY = 1_000  # bytes of a key that are told: each damaged file of a shard tells the same two
_KEPT = 8  # tables in memory: a cache may have a thousand damaged shards


class Owners:
    """The samples of rows.

    Args:
        table: returns an array of the cache; raises where it is damaged itself.
        fields: the fields of the cache.

    Notes:
        Every method raises what reading a damaged cache raises (`DatacheckError`, `OSError`, `ValueError`,
        `LookupError`), and trusts what it reads.
    """

    def __init__(self, table: Callable[[str], StoredArray], fields: Mapping[str, ArraySpec]) -> None:
        self._read = lru_cache(_KEPT)(lambda path: table(path).unchecked())
        self._dims = {layout.field_path(name): spec.dim for name, spec in fields.items()}
        self._dims |= {layout.sample_path("key"): layout.KEY_DIM, layout.sample_path("origin"): layout.ORIGIN_DIM}

    def of(self, path: str, first: int, stop: int) -> tuple[int, int]:
        """Return the samples [low, high) that have rows in [first, stop) of an array; (0, 0) where none has."""
        dim = self._dims.get(path)
        if dim is None:
            return first, stop
        start, length = (self._read(layout.rows_path(dim, what)) for what in ("start", "length"))
        inside = np.flatnonzero((length > 0) & (start < stop) & (start + length > first))
        return (int(inside[0]), int(inside[-1]) + 1) if inside.size else (0, 0)

    def named(self, low: int, high: int) -> str:
        """Return the numbers and keys of the samples [low, high), in words."""
        if high <= low:
            msg = "no samples"
            raise LookupError(msg)
        ends = [self._key(low), self._key(high - 1)]
        return f"{numbered(low, high)}, {ends[0]}" + (f" to {ends[1]}" if high - low > 1 else "")

    def _key(self, index: int) -> str:
        tables = [self._read(layout.rows_path(layout.KEY_DIM, what)) for what in ("start", "length")]
        start, length = (int(table[index]) for table in tables)
        values = self._read(layout.sample_path("key"))
        told = values[start : start + min(length, KEY)].tobytes().decode("utf-8", "replace")
        return told if length <= KEY else f"{told}..."


def numbered(low: int, high: int) -> str:
    """Return the numbers of the samples [low, high), in words."""
    return f"sample {low}" if high - low == 1 else f"samples {low} to {high - 1}"


def samples_of(arrays: Mapping[str, StoredArray], fields: Mapping[str, ArraySpec], path: str, a: int, b: int) -> str:
    """Name the samples of rows [a, b) of an array, for a message; unchecked, something is damaged."""
    owners = Owners(arrays.__getitem__, fields)
    try:
        return owners.named(*owners.of(path, a, b))
    except (DatacheckError, OSError, ValueError, LookupError):  # the tables that would tell are damaged, too
        return "samples unknown"
