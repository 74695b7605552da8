"""What a rule has held against the reference run, whether it found something or not: effects, and curves of the worst.

A page that shows only what drifted cannot be told from one that looked at nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]

MOST = 120  # measures that a verdict names; it says of how many
_CURVES = 6
_POINTS = 62  # quantiles of each side that a curve is kept at; with the ends and the KS place fewer than 128
_CLASSES = 8


@dataclass(frozen=True, eq=False)
class Compared:
    """What a judge yields of one measure that it has held against the reference.

    Args:
        field, measure, unit: what it is of.
        effect: how far the sides lie apart, in what the rule's limit is in.
        drifted: it is told as a finding.
        samples, groups: of this run and of the reference, as many as were looked at.
        q: its false-discovery rate; None where it lay too near to be tested.
        chance: what 95 of 100 deals of the groups to the sides do not exceed; None where it was not tested.
        median: of this run and of the reference, None of what has no order.
        curve: of the worst, see `cumulative`.
        classes: of shares of classes, those that moved most: name, share here, share in the reference.
        split: that was judged; the judge does not know it.
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

    def said(self) -> dict[str, Any]:
        """Return it as JSON values."""
        said: dict[str, Any] = {
            "field": self.field, "measure": self.measure, "unit": self.unit, "split": self.split,
            "effect": _short(self.effect), "drifted": self.drifted, "q": _short(self.q), "chance": _short(self.chance),
            "samples": _sides(self.samples), "groups": _sides(self.groups),
        }  # fmt: skip
        said |= {} if self.median is None else {"median": _sides(self.median)}
        said |= {} if self.curve is None else {"curve": dict(self.curve)}
        names = [{"name": name, "here": here, "reference": then} for name, here, then in self.classes[:_CLASSES]]
        return said | ({"classes": names} if names else {})


def _sides(pair: tuple[float, float]) -> dict[str, float]:
    return {"here": pair[0], "reference": pair[1]}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def bounded(compared: Iterable[Compared]) -> dict[str, Any]:
    """Return the measures of a verdict as JSON values, those that drifted first, then the largest effects.

    Returns:
        ``count`` of all, how many ``drifted``, ``measures``: of more than 120 the last are left out, and only six of
        those that drifted keep their curves.
    """
    order = sorted(compared, key=lambda one: (not one.drifted, -one.effect, one.split, one.field, one.measure))
    drawn = {*foremost(one for one in order if one.curve is not None)}
    kept = [one if one in drawn else replace(one, curve=None) for one in order[:MOST]]
    drifted = sum(one.drifted for one in order)
    return {"count": len(order), "drifted": drifted, "measures": [one.said() for one in kept]}


class _Sized(Protocol):
    @property
    def field(self) -> str: ...

    @property
    def effect(self) -> float: ...


Sized = TypeVar("Sized", bound=_Sized)


def foremost(measures: Iterable[Sized]) -> list[Sized]:
    """Return the six that tell most: the worst of each field, then the second of each; measures of one are alike."""
    places: dict[str, int] = {}
    ranked = []
    for one in sorted(measures, key=lambda one: -one.effect):
        places[one.field] = places.get(one.field, -1) + 1
        ranked.append((places[one.field], one))
    ranked.sort(key=lambda pair: pair[0])
    return [one for _, one in ranked[:_CURVES]]


def cumulative(here: Array, reference: Array) -> dict[str, Any]:
    """Return how many values of each side lie at or below some places, and where the two shares differ most.

    Args:
        here, reference: finite float64, at least one each.

    Returns:
        ``at``: at most 128 of the values, ascending: all of them where they are few, else quantiles of each side, the
        ends and the place of the largest difference. ``here``, ``reference``: values of each side at or below each.
        ``ks``, ``ks_at``: the largest difference of the shares over all values, and the first value that has it.

    Reference: the statistic of Kolmogorov and Smirnov, two-sided; ties count on both sides.
    """
    sides = [np.sort(here), np.sort(reference)]
    values = np.unique(np.concatenate(sides))
    below = [np.searchsorted(side, values, side="right") for side in sides]
    apart = np.abs(below[0] / len(here) - below[1] / len(reference))
    most = int(np.argmax(apart))
    kept = np.arange(len(values))
    if len(values) > 2 * _POINTS:
        marks = [side[np.arange(1, _POINTS + 1) * len(side) // (_POINTS + 1)] for side in sides]
        ends = values[[0, most, -1]]
        kept = np.unique(np.searchsorted(values, np.concatenate([*marks, ends])))
    return {
        "at": values[kept].tolist(), "here": below[0][kept].tolist(), "reference": below[1][kept].tolist(),
        "ks": float(apart[most]), "ks_at": float(values[most]),
    }  # fmt: skip
