"""Where the rows of each sample lie along each ragged dimension, held to what shards can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.indices import all_below
from datacheck.cache.place import Place
from datacheck.cache.stored import StoredArray

Array = np.ndarray[Any, Any]

_TEXTS = {layout.KEY_DIM: layout.sample_path("key"), layout.ORIGIN_DIM: layout.sample_path("origin")}


class RowTables:
    """The row tables of a cache.

    Args:
        place: the cache.
        arrays: its arrays by path.
        dims: rows of a shard of each ragged dimension of the fields.
    """

    def __init__(self, place: Place, arrays: Mapping[str, StoredArray], dims: Mapping[str, int]) -> None:
        self._place, self._arrays, self._dims = place, arrays, dims

    def __contains__(self, dim: str) -> bool:
        return layout.rows_path(dim, "length") in self._arrays

    def rows(self, dim: str, numbers: Array | None = None) -> tuple[Array, Array]:
        """Return the first row of samples and how many rows they have, int64 (samples) each; of all where None.

        Raises:
            CorruptionError: the table is damaged, or says what cannot be.
        """
        return self._column(dim, "start", numbers), self.lengths(dim, numbers)

    def lengths(self, dim: str, numbers: Array | None = None) -> Array:
        """Return how many rows samples have, int64 (samples); see `rows`."""
        lengths = self._column(dim, "length", numbers)
        most = self._dims.get(dim, 0)
        if dim in _TEXTS:
            most = self._arrays[_TEXTS[dim]].grid.shape[0]
        if not all_below(lengths, most + 1):
            self._place.fail(f"{layout.rows_path(dim, 'length')}: a length is not between 0 and {most:,} rows")
        return lengths

    def check_apart(self, dim: str, numbers: Array) -> None:
        """Fail where rows belong to several of these samples: each would take memory for them."""
        start, length = self.rows(dim, np.unique(numbers))
        start, length = start[length > 0], length[length > 0]
        order = np.argsort(start, kind="stable")
        if (start[order][1:] < (start + length)[order][:-1]).any():
            self._place.fail(f"{layout.rows_path(dim, 'start')}: rows belong to several samples")

    def _column(self, dim: str, what: str, numbers: Array | None) -> Array:
        array = self._arrays[layout.rows_path(dim, what)]
        return array.all() if numbers is None else array.take(numbers)
