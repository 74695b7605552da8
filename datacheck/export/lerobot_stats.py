"""The statistics of a LeRobot dataset: of each episode, and of all rows.

LeRobot normalizes by them. It joins the quantiles of episodes by their mean, which are not the
quantiles of the rows where episodes differ; here the quantiles of numbers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Statistics = dict[str, Any]  # by name: nested lists of numbers

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
STATISTICS = ("min", "max", "mean", "std", "count", *QUANTILES)
_HELD_BYTES = 256 << 20  # values of all rows that are sorted at once


class RunningStatistics:
    """The statistics of a numeric feature over all episodes, but for the quantiles.

    Args:
        shape: of one row.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.count = 0
        self._mean = np.zeros(shape)
        self._squares = np.zeros(shape)  # sum of squared distances from the mean
        self._low = np.zeros(shape)
        self._high = np.zeros(shape)

    def add(self, values: Array) -> Statistics:
        """Add an episode and return its own statistics.

        Shapes:
            values: (rows, *shape); at least one row
        """
        numbers = values.astype(np.float64)
        low, high = values.min(axis=0), values.max(axis=0)
        with np.errstate(all="ignore"):  # NaN and infinity give NaN
            mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
            quantiles = np.quantile(numbers, list(QUANTILES.values()), axis=0)
            self._low = np.minimum(self._low, low) if self.count else low
            self._high = np.maximum(self._high, high) if self.count else high
            self._join(len(values), mean, deviation)
        return {
            **_as_lists(min=_plain(low), max=_plain(high), mean=mean, std=deviation),
            "count": [len(values)],
            **_as_lists(**dict(zip(QUANTILES, quantiles, strict=True))),
        }

    def _join(self, count: int, mean: Array, deviation: Array) -> None:
        """Join the moments of two sets of rows (Chan, Golub and LeVeque)."""
        total = self.count + count
        distance = mean - self._mean
        self._squares = (
            self._squares + deviation**2 * count + distance**2 * (self.count * count / total)
        )
        self._mean = self._mean + distance * (count / total)
        self.count = total

    def result(self, quantiles: Array) -> Statistics | None:
        """Return the statistics of all rows; None if one of them is NaN or infinite.

        Shapes:
            quantiles: (5, *shape)
        """
        with np.errstate(all="ignore"):
            deviation = np.sqrt(self._squares / self.count)
        found = [self._low, self._high, self._mean, deviation, quantiles]
        if not all(np.isfinite(array).all() for array in found):
            return None
        return {
            **_as_lists(min=_plain(self._low), max=_plain(self._high)),
            **_as_lists(mean=self._mean, std=deviation),
            "count": [self.count],
            **_as_lists(**dict(zip(QUANTILES, quantiles, strict=True))),
        }


def _plain(array: Array) -> Array:
    """Return truth values as 0 and 1, other numbers unchanged."""
    return array.astype(np.int64) if array.dtype == bool else array


def _as_lists(**arrays: Array) -> Statistics:
    return {name: array.tolist() for name, array in arrays.items()}


def exact_quantiles(
    pieces: Callable[[], Iterable[Array]], count: int, shape: tuple[int, ...], itemsize: int
) -> Array:
    """Return the quantiles of all rows, as `numpy.quantile` does by default.

    Args:
        pieces: returns the values of all rows, piece by piece; called once or more.
        count: of all rows.
        shape: of one row.
        itemsize: bytes of one number.

    Shapes:
        returns: float64 (5, *shape)

    Notes:
        At most 256 MiB of values are held at once, but never less than one number of each row.
    """
    width = prod(shape)
    at_once = max(1, min(width, _HELD_BYTES // max(1, count * itemsize)))
    result = np.zeros((len(QUANTILES), width))
    for first in range(0, width, at_once):
        stop = min(width, first + at_once)
        held: Array | None = None
        row = 0
        for piece in pieces():
            flat = piece.reshape(len(piece), width)[:, first:stop]
            if held is None:
                held = np.empty((stop - first, count), flat.dtype)
            held[:, row : row + len(flat)] = flat.T
            row += len(flat)
        if held is not None:
            for number in range(stop - first):
                result[:, first + number] = _quantiles_of(held[number])
    return result.reshape(len(QUANTILES), *shape)


def _quantiles_of(values: Array) -> Array:
    """Return the quantiles of one number of all rows, which are sorted in place.

    Shapes:
        values: (rows)
        returns: float64 (5)
    """
    if values.dtype.kind == "f" and np.isnan(values).any():
        return np.full(len(QUANTILES), np.nan)
    places = np.array(list(QUANTILES.values())) * (len(values) - 1)
    below = np.floor(places).astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    values.partition(sorted({*below.tolist(), *above.tolist()}))
    low, high = values[below].astype(np.float64), values[above].astype(np.float64)
    share = places - below
    with np.errstate(all="ignore"):
        # The two forms of NumPy: each is exact at its own end.
        between: Array = np.where(
            share >= 0.5, high - (high - low) * (1 - share), low + (high - low) * share
        )
    return np.where(low == high, low, between)


def joined(columns: Mapping[str, Array]) -> Statistics | None:
    """Return the statistics of pictures from those of the episodes, as LeRobot joins them.

    Args:
        columns: by statistic, the values of all episodes.

    Returns:
        None if the smallest set is incomplete, does not fit together, or holds NaN or infinity.

    Shapes:
        columns: (episodes, *shape); ``count``: (episodes, 1)

    Notes:
        The quantiles are the means of the episodes' quantiles, weighted by their counts.
    """
    if not {"min", "max", "mean", "std", "count"} <= columns.keys():
        return None
    counts = columns["count"].astype(np.float64)
    shape = columns["mean"].shape
    others = [array.shape == shape for name, array in columns.items() if name != "count"]
    if not all(others) or counts.shape != (shape[0], 1) or bool((counts <= 0).any()):
        return None
    with np.errstate(all="ignore"):  # what overflows is refused below
        weights = counts.reshape(-1, *[1] * (len(shape) - 1)) / counts.sum()
        mean = (columns["mean"] * weights).sum(axis=0)
        spread = columns["std"] ** 2 + (columns["mean"] - mean) ** 2
        found = {
            "min": columns["min"].min(axis=0),
            "max": columns["max"].max(axis=0),
            "mean": mean,
            "std": np.sqrt((spread * weights).sum(axis=0)),
        }
        quantiles = {
            name: (columns[name] * weights).sum(axis=0) for name in QUANTILES if name in columns
        }
    used = [*columns.values(), *found.values(), *quantiles.values()]
    if not all(np.isfinite(array).all() for array in used):
        return None
    return {**_as_lists(**found), "count": [int(counts.sum())], **_as_lists(**quantiles)}
