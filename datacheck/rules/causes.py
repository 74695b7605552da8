"""Compares the possible causes of samples that are out of range.

Each candidate change of the values is reversed in the statistics. The failing samples must then
look like the good ones in every known quantity (size, bones, distance), not only in the quantity
that left its range. Where there are too few good samples the declared ranges take their place. A
cause is named only where exactly one change fits, and where the samples are alike enough to
distinguish its factor from any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.model.finding import Cause
from datacheck.model.table import Texts

Array = np.ndarray[Any, Any]
LogQuantities = Mapping[str, Array]

_LEAST = 8  # good samples needed to derive normal ranges
_FEW = 3  # with fewer offenders the message asks to look at them first
_SLACK = 0.1  # of a logarithm: natural variation between samples of one dataset
# Standard errors between the medians of offenders and good samples that chance explains.
_ERRORS = 2.5
_WIDER = 3.0  # corrected offenders spread at most this many times wider than good samples
# Of a logarithm: with a larger blur a known factor cannot be distinguished from any other.
_SURE = 0.3
_SURE_COMMON = 0.5


@dataclass(frozen=True, eq=False)
class CandidateCause:
    """A change that may have happened to the values.

    Args:
        kind, words: as of `Cause`.
        factor: the factor that corrects the values; None where no factor does.
        looks: logarithms of quantities of the corrected samples, float64 (rows) by name; not finite
            where unknown.
        allowed: bool (rows): the corrected sample is within all declared ranges.
        certain: no other change outside of the candidates has the same effect.
        common: it happens so often that an unknown factor near it is far less likely.
    """

    kind: str
    words: str
    factor: float | None
    looks: LogQuantities
    allowed: Array
    certain: bool = True
    common: bool = False

    @property
    def description(self) -> str:
        """The correction, in words."""
        return self.words if self.factor is None else f"x{self.factor:.4g} ({self.kind})"


@dataclass(frozen=True)
class NormalRange:
    """The normal values of one quantity, from good samples or declared ranges.

    Args:
        middle: a logarithm.
        room: the largest distance of the offenders' median from it.
        blur: distance within which two factors are indistinguishable; by itself the room.
        spread: among the good samples; None where ranges take their place.
    """

    middle: float
    room: float
    blur: float
    spread: float | None = None

    def fits(self, looks: Array) -> bool:
        """Tell whether corrected offenders lie in this range and do not spread much wider."""
        values = _finite(looks)
        if not len(values) or abs(float(np.median(values)) - self.middle) > self.room:
            return False
        return (
            self.spread is None or len(values) < _LEAST or _spread(values) <= _WIDER * self.spread
        )


def range_from_limits(low: float | None, high: float | None) -> NormalRange | None:
    """Return the normal range of a declared range, None for an open one.

    The median lies in the middle half of the declared range, by logarithm.
    """
    if not low or not high or not 0 < low < high:
        return None
    middle = math.log(low * high) / 2
    width = math.log(high / low)
    return NormalRange(middle, width / 4, width / 4)


def explain(
    changes: Iterable[CandidateCause],
    looks: LogQuantities,
    ranges: Mapping[str, NormalRange | None],
    bad: Array,
    good: Array,
    groups: Texts,
    share: float = 0.9,
) -> Cause | None:
    """Return the change that explains the offenders, or the possible ones as alternatives.

    Shapes:
        bad, good: bool (rows)

    Args:
        changes: the candidates.
        looks: logarithms of the quantities of the uncorrected samples.
        ranges: normal ranges from the declared ones, used where there are too few good samples.
        groups: of the rows; samples of one group are alike, so many of them count as one.
        share: of the offenders that a change must bring into range.

    Returns:
        A cause with `kind` where one change is clearly better than all others; one without `kind`
        and `factor`, the possible ones as its alternatives, where the samples do not decide; None
        where no change explains the offenders.
    """
    count = int(bad.sum())
    fitting = [c for c in changes if int((bad & c.allowed).sum()) >= max(1.0, share * count)]
    seen = _normal_ranges(looks, bad, good, groups)
    usual = seen or {
        name: normal_range for name, normal_range in ranges.items() if normal_range is not None
    }
    likely = [
        c
        for c in fitting
        if all(normal_range.fits(c.looks[name][bad]) for name, normal_range in usual.items())
    ]
    blur = min((normal_range.blur for normal_range in usual.values()), default=math.inf)
    if len(likely) == 1 and _is_distinct(likely[0], blur) and (seen or len(fitting) == 1):
        (change,) = likely
        saved = int((bad & change.allowed).sum())
        by = "" if change.factor is None else f"x{change.factor:.4g} "
        text = f"{change.words}: {by}brings {saved:,} of {count:,} into range"
        text += " (few samples: look at them first)" if count < _FEW else ""
        return Cause(text, change.kind, change.factor, saved)
    return _ambiguous_cause(likely, bad)


def _is_distinct(change: CandidateCause, blur: float) -> bool:
    return change.certain and blur <= (_SURE_COMMON if change.common else _SURE)


def _ambiguous_cause(changes: Sequence[CandidateCause], bad: Array) -> Cause | None:
    if not changes:
        return None
    ways = tuple(change.description for change in changes)
    verb = "bring" if len(ways) > 1 else "brings"
    saved = max(int((bad & change.allowed).sum()) for change in changes)
    text = (
        f"not clear: {' and '.join(ways)} {verb} {saved:,} of {int(bad.sum()):,} into range, "
        f"and so may others"
    )
    return Cause(text, alternatives=ways)


def _normal_ranges(
    looks: LogQuantities, bad: Array, good: Array, groups: Texts
) -> dict[str, NormalRange]:
    """Return the normal range of each quantity that enough good samples have.

    A quantity needs at least 8 good samples, and one for every ten offenders.
    """
    ranges = {}
    parts = (
        1 / _independent_count(groups, bad) + 1 / _independent_count(groups, good)
        if bad.any() and good.any()
        else 0.0
    )
    for name, values in looks.items():
        fine = _finite(values[good])
        off = _finite(values[bad])
        if len(off) and len(fine) >= max(_LEAST, 0.1 * len(off)):
            spread = _spread(fine)
            error = math.sqrt(math.pi / 2 * max(parts, 1 / len(off) + 1 / len(fine))) * spread
            room = _ERRORS * error + _SLACK
            ranges[name] = NormalRange(float(np.median(fine)), room, room, spread)
    return ranges


def logarithms(values: Array) -> Array:
    """Return the logarithms of values above 0, NaN for others."""
    with np.errstate(all="ignore"):
        return np.log(np.where(values > 0, values, np.nan))


def _independent_count(groups: Texts, mask: Array) -> int:
    """Return the count of independent samples: one of each group, and all without a group."""
    mine = groups.rows[mask]
    single = np.array([not word for word in groups.words], dtype=bool)[mine]
    return int(single.sum()) + len(np.unique(mine[~single]))


def _finite(values: Array) -> Array:
    return values[np.isfinite(values)]


def _spread(values: Array) -> float:
    return max(1.4826 * float(np.median(np.abs(values - np.median(values)))), _SLACK / 2)
