"""Whether two sets of groups differ: distances between distributions, and how often chance gives as much.

The unit is the group (an episode, a scene): samples of one group are alike, and a test that takes them for independent
calls every dataset changed. Groups are moved between the sides, never samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Distance = Callable[[Array, Array], Array]

_SEED = 20_260_101
_BINS = 64
_USUAL = 0.95
_HELD = 1 << 24  # numbers of a batch of permutations


def wasserstein(positions: Array) -> Distance:
    """Return the distance W1 between histograms over the same bins, in the unit of the positions.

    Shapes:
        positions: float64 (bins), ascending: where the values of each bin lie (their mean)
        the histograms: (..., bins); the distances: float64 (...)

    Reference: W1 of one dimension is the area between the two cumulative distributions.
    """
    gaps = np.diff(positions)

    def distance(first: Array, second: Array) -> Array:
        apart = np.cumsum(_shares(first), axis=-1) - np.cumsum(_shares(second), axis=-1)
        found: Array = np.abs(apart[..., :-1]) @ gaps
        return found

    return distance


def total_variation(first: Array, second: Array) -> Array:
    """Return half the sum of the differences of shares: 0 for equal histograms, 1 for those that share no bin.

    Shapes:
        first, second: (..., bins)
        returns: float64 (...)
    """
    found: Array = np.abs(_shares(first) - _shares(second)).sum(axis=-1) / 2
    return found


def _shares(counts: Array) -> Array:
    total = counts.sum(axis=-1, keepdims=True)
    shares: Array = counts / np.where(total > 0, total, 1)
    return shares


def histograms(values: Array, units: Array, count: int) -> tuple[Array, Array]:
    """Return how often each group's values fall into bins of equal shares of all values, and where the bins lie.

    Shapes:
        values: float64 (samples), finite
        units: int64 (samples): the group of each, below `count`
        returns: float64 (count, bins), float64 (bins); at most 64 bins, fewer where values repeat
    """
    edges = np.unique(np.quantile(values, np.arange(1, _BINS) / _BINS, method="lower"))
    place = np.searchsorted(edges, values, side="left")
    sizes = np.bincount(place, minlength=len(edges) + 1)
    filled = np.flatnonzero(sizes)
    place = np.searchsorted(filled, place)
    positions = np.bincount(place, weights=values) / sizes[filled]
    counts = np.bincount(units * len(filled) + place, minlength=count * len(filled))
    return counts.reshape(count, len(filled)).astype(np.float64), positions


def pooled_sd(first: Array, second: Array) -> float:
    """Return the standard deviation within the two sides; of all values where neither side varies."""
    squares = len(first) * first.var() + len(second) * second.var()
    within = float(np.sqrt(squares / max(1, len(first) + len(second) - 2)))
    return within or float(np.concatenate([first, second]).std())


class Chance(NamedTuple):
    """What dealing the groups anew gives: the p-value, and what 95 of 100 deals do not exceed."""

    p_value: float
    usual: float


class Permutations:
    """Ways to deal groups to two sides of the same sizes; the same ones in every run.

    Args:
        first: bool (groups): the groups that really are on the first side.
    """

    def __init__(self, first: Array) -> None:
        self._first = first
        self._known = np.zeros((0, len(first)), bool)

    def chance(self, counts: Array, distance: Distance, rounds: int) -> Chance:
        """Return how likely chance makes the sides differ as much as they do, (1 + as far apart) / (1 + rounds).

        Shapes:
            counts: float64 (groups, bins), whole numbers: their sums are exact in any order
        """
        total = counts.sum(axis=0)
        mine = self._first.astype(np.float64) @ counts
        observed = float(distance(mine, total - mine))
        dealt = self._dealt(rounds)
        found, step = np.empty(rounds), max(1, _HELD // max(1, len(self._first)))
        for start in range(0, rounds, step):
            sides = dealt[start : start + step].astype(np.float64) @ counts
            found[start : start + step] = distance(sides, total - sides)
        as_far = int((found >= observed * (1 - 1e-9)).sum())
        return Chance((1 + as_far) / (1 + rounds), float(np.quantile(found, _USUAL, method="inverted_cdf")))

    def _dealt(self, rounds: int) -> Array:
        if len(self._known) < rounds:  # one generator per round count: more rounds do not change the first ones' use
            rng = np.random.Generator(np.random.PCG64(_SEED))
            self._known = rng.permuted(np.broadcast_to(self._first, (rounds, len(self._first))), axis=1)
        return self._known[:rounds]


def discovery_rates(p_values: Array) -> Array:
    """Return the false-discovery rate at which each of many tests counts as found.

    Shapes:
        p_values: float64 (tests)
        returns: float64 (tests)

    Reference: Benjamini and Hochberg 1995, the step-up procedure.
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * count / np.arange(1, count + 1)
    rates = np.empty(count)
    rates[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return rates
