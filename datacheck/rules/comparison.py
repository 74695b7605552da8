"""Statistics of a comparison with the reference run, and the results that verdicts record.

A verdict records every measure compared, also those that did not drift: a report that shows only
drift looks the same as a report of no comparison at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]

MOST = 120  # measures that a verdict names; it also states the count of all
_CURVES = 6
_POINTS = 62  # quantiles of each side in a curve; with both ends and the KS place fewer than 128
_CLASSES = 8


@dataclass(frozen=True, eq=False)
class DriftResult:
    """The result of comparing one measure with the reference, yielded by a judge.

    Args:
        field, measure, unit: the compared quantity.
        effect: the distance between the sides, in the unit of the rule's limit.
        drifted: it is reported as a finding.
        samples, groups: compared counts, of this run and of the reference.
        q: its false-discovery rate; None where the sides were too close to be tested.
        chance: the distance that 95 of 100 permutations of the groups do not exceed; None where it
            was not tested.
        median: of this run and of the reference, None for values without an order.
        curve: of the worst measures, see `cumulative`.
        classes: for shares of classes, those that moved most: name, share here, share in the
            reference.
        split: the judged split; the engine fills it in, as the judge does not know it.
    """

    field: str
    measure: str
    unit: str
    effect: float
    drifted: bool
    samples: tuple[int, int]
    groups: tuple[int, int]
    q: float | None = None
    chance: float | None = None
    median: tuple[float, float] | None = None
    curve: Mapping[str, Any] | None = None
    classes: tuple[tuple[str, float, float], ...] = ()
    split: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        record: dict[str, Any] = {
            "field": self.field,
            "measure": self.measure,
            "unit": self.unit,
            "split": self.split,
            "effect": _rounded(self.effect),
            "drifted": self.drifted,
            "q": _rounded(self.q),
            "chance": _rounded(self.chance),
            "samples": _sides(self.samples),
            "groups": _sides(self.groups),
        }
        record |= {} if self.median is None else {"median": _sides(self.median)}
        record |= {} if self.curve is None else {"curve": dict(self.curve)}
        names = [
            {"name": name, "here": share, "reference": reference_share}
            for name, share, reference_share in self.classes[:_CLASSES]
        ]
        return record | ({"classes": names} if names else {})


def _sides(pair: tuple[float, float]) -> dict[str, float]:
    return {"here": pair[0], "reference": pair[1]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def comparison_json(compared: Iterable[DriftResult]) -> dict[str, Any]:
    """Return the measures of a verdict as JSON values: drifted ones first, then by effect.

    Returns:
        ``count`` of all, how many ``drifted``, ``measures``: at most 120, of which only six keep
            their curves.
    """
    order = sorted(
        compared,
        key=lambda result: (
            not result.drifted,
            -result.effect,
            result.split,
            result.field,
            result.measure,
        ),
    )
    drawn = {*top_measures(result for result in order if result.curve is not None)}
    kept = [result if result in drawn else replace(result, curve=None) for result in order[:MOST]]
    drifted = sum(result.drifted for result in order)
    return {
        "count": len(order),
        "drifted": drifted,
        "measures": [result.as_dict() for result in kept],
    }


class _Sized(Protocol):
    @property
    def field(self) -> str: ...

    @property
    def effect(self) -> float: ...


Sized = TypeVar("Sized", bound=_Sized)


def top_measures(measures: Iterable[Sized]) -> list[Sized]:
    """Return the six most informative measures: the worst of each field, then the second of each.

    Measures of one field are alike, so other fields come first.
    """
    places: dict[str, int] = {}
    ranked = []
    for measure in sorted(measures, key=lambda measure: -measure.effect):
        places[measure.field] = places.get(measure.field, -1) + 1
        ranked.append((places[measure.field], measure))
    ranked.sort(key=lambda pair: pair[0])
    return [measure for _, measure in ranked[:_CURVES]]


def cumulative(here: Array, reference: Array) -> dict[str, Any]:
    """Return the cumulative counts of both sides, and where their shares differ most.

    Args:
        here, reference: finite float64, at least one each.

    Returns:
        ``at``: at most 128 of the values, ascending: all of them where they are few, else quantiles
            of each side, the ends and the place of the largest difference.
        ``here``, ``reference``: count of the values of each side at or below each of ``at``.
        ``ks``, ``ks_at``: the largest difference of the shares over all values, and the first value
            that has it.

    Reference: the two-sided Kolmogorov-Smirnov statistic; ties count on both sides.
    """
    sides = [np.sort(here), np.sort(reference)]
    values = np.unique(np.concatenate(sides))
    below = [np.searchsorted(side, values, side="right") for side in sides]
    differences = np.abs(below[0] / len(here) - below[1] / len(reference))
    peak = int(np.argmax(differences))
    kept = np.arange(len(values))
    if len(values) > 2 * _POINTS:
        marks = [side[np.arange(1, _POINTS + 1) * len(side) // (_POINTS + 1)] for side in sides]
        ends = values[[0, peak, -1]]
        kept = np.unique(np.searchsorted(values, np.concatenate([*marks, ends])))
    return {
        "at": values[kept].tolist(),
        "here": below[0][kept].tolist(),
        "reference": below[1][kept].tolist(),
        "ks": float(differences[peak]),
        "ks_at": float(values[peak]),
    }


Distance = Callable[[Array, Array], Array]

_SEED = 20_260_101
_BINS = 64
_USUAL = 0.95
_HELD = 1 << 24  # numbers of a batch of permutations


def wasserstein(positions: Array) -> Distance:
    """Return the function that computes W1 between histograms over the same bins.

    Its unit is that of the positions.

    Shapes:
        positions: float64 (bins), ascending: where the values of each bin lie (their mean)
        the histograms: (..., bins); the distances: float64 (...)

    Reference: W1 of one dimension is the area between the two cumulative distributions.
    """
    gaps = np.diff(positions)

    def distance(first: Array, second: Array) -> Array:
        differences = np.cumsum(_shares(first), axis=-1) - np.cumsum(_shares(second), axis=-1)
        distances: Array = np.abs(differences[..., :-1]) @ gaps
        return distances

    return distance


def total_variation(first: Array, second: Array) -> Array:
    """Return half the summed differences of shares: 0 for equal histograms, 1 for disjoint ones.

    Shapes:
        first, second: (..., bins)
        returns: float64 (...)
    """
    variation: Array = np.abs(_shares(first) - _shares(second)).sum(axis=-1) / 2
    return variation


def _shares(counts: Array) -> Array:
    total = counts.sum(axis=-1, keepdims=True)
    shares: Array = counts / np.where(total > 0, total, 1)
    return shares


def histograms(values: Array, units: Array, count: int) -> tuple[Array, Array]:
    """Return the histogram of each group, over bins with equal shares of all values.

    Shapes:
        values: float64 (samples), finite
        units: int64 (samples): the group of each, below `count`
        returns: counts, float64 (count, bins), and mean value of each bin, float64 (bins); at most
            64 bins, fewer where values repeat
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
    """Return the standard deviation within both sides; of all values where neither side varies."""
    squares = len(first) * first.var() + len(second) * second.var()
    within = float(np.sqrt(squares / max(1, len(first) + len(second) - 2)))
    return within or float(np.concatenate([first, second]).std())


class PermutationResult(NamedTuple):
    """A permutation test: its p-value, and the distance that 95 of 100 permutations keep within."""

    p_value: float
    usual: float


class Permutations:
    """Random assignments of groups to two sides of the same sizes; identical in every run.

    Args:
        first: bool (groups): the groups that really are on the first side.
    """

    def __init__(self, first: Array) -> None:
        self._first = first
        self._known = np.zeros((0, len(first)), bool)

    def chance(self, counts: Array, distance: Distance, rounds: int) -> PermutationResult:
        """Return the result of a permutation test of the distance between the sides.

        The p-value is (1 + permutations at least as far apart) / (1 + rounds).

        Shapes:
            counts: float64 (groups, bins), whole numbers: their sums are exact in any order
        """
        total = counts.sum(axis=0)
        mine = self._first.astype(np.float64) @ counts
        observed = float(distance(mine, total - mine))
        dealt = self._permuted_sides(rounds)
        distances = np.empty(rounds)
        step = max(1, _HELD // max(1, len(self._first)))
        for start in range(0, rounds, step):
            sides = dealt[start : start + step].astype(np.float64) @ counts
            distances[start : start + step] = distance(sides, total - sides)
        as_far = int((distances >= observed * (1 - 1e-9)).sum())
        return PermutationResult(
            (1 + as_far) / (1 + rounds),
            float(np.quantile(distances, _USUAL, method="inverted_cdf")),
        )

    def _permuted_sides(self, rounds: int) -> Array:
        # Always from the same seed: more rounds leave the first ones unchanged.
        if len(self._known) < rounds:
            rng = np.random.Generator(np.random.PCG64(_SEED))
            self._known = rng.permuted(
                np.broadcast_to(self._first, (rounds, len(self._first))), axis=1
            )
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
