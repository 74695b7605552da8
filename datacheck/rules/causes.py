"""This module compares the possible causes of samples that are out of range.

Each possible change of the values is undone on paper. The failing samples must then look like the
good ones in all that is known of them (size, bones, distance), not only in the quantity whose range
they left. Where there are too few good samples the declared ranges take their place. A cause is
named only where one change fits, no other does, and the samples are alike enough to tell its factor
from any other.
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

_LEAST = 8  # good samples that say how the others should look
_FEW = 3  # offenders below which a person should look
_SLACK = 0.1  # of a logarithm: samples of one dataset differ that much without a reason
_ERRORS = (
    2.5  # standard errors between the medians of offenders and good samples that chance explains
)
_WIDER = 3.0  # mended offenders spread at most so much wider than good samples
_SURE, _SURE_COMMON = (
    0.3,
    0.5,
)  # of a logarithm: within more room a known factor is not distinguished from any other


@dataclass(frozen=True, eq=False)
class CandidateCause:
    """What may have been done to the values.

    Args:
        kind, words: as of `Cause`.
        factor: by which values are multiplied to mend them; None where no factor does.
        looks: logarithms of quantities of the mended samples, float64 (rows) by name; not finite
            where unknown.
        allowed: bool (rows): the mended sample is within all declared ranges.
        certain: nothing else that is not tried here has the same effect.
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
        """What mends it, in words."""
        return self.words if self.factor is None else f"x{self.factor:.4g} ({self.kind})"


@dataclass(frozen=True)
class NormalRange:
    """How samples look in one quantity that nothing is wrong with.

    Args:
        middle: a logarithm.
        room: how far the median of the offenders may be from it.
        blur: how far apart two factors may be that this does not distinguish; by itself the room.
        spread: among the good samples; None where ranges take their place.
    """

    middle: float
    room: float
    blur: float
    spread: float | None = None

    def fits(self, looks: Array) -> bool:
        """Tell whether mended offenders look like this."""
        values = _finite(looks)
        if not len(values) or abs(float(np.median(values)) - self.middle) > self.room:
            return False
        return (
            self.spread is None or len(values) < _LEAST or _spread(values) <= _WIDER * self.spread
        )


def range_from_limits(low: float | None, high: float | None) -> NormalRange | None:
    """Return how samples look by a range alone: their median in its middle half, by logarithm; None for an open one."""
    if not low or not high or not 0 < low < high:
        return None
    middle, width = math.log(low * high) / 2, math.log(high / low)
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
    """Return the change that explains the offenders, those that may as alternatives, None where none does.

    Shapes:
        bad, good: bool (rows)

    Args:
        changes: what may have happened.
        looks: of the samples as they are.
        ranges: what declared ranges say of some quantities, where there are too few good samples.
        groups: of the rows; samples of one group are alike, so many of them tell no more than one.
        share: of the offenders that a change must bring into range.

    Returns:
        A cause with `kind` where one change is clearly better than all others; one without `kind`
        and `factor`, the possible ones as its alternatives, where the samples do not decide.
    """
    count = int(bad.sum())
    fitting = [c for c in changes if int((bad & c.allowed).sum()) >= max(1.0, share * count)]
    seen = _normal_ranges(looks, bad, good, groups)
    usual = seen or {name: said for name, said in ranges.items() if said is not None}
    likely = [
        c for c in fitting if all(said.fits(c.looks[name][bad]) for name, said in usual.items())
    ]
    blur = min((said.blur for said in usual.values()), default=math.inf)
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
    """Return how the good samples look; nothing where they are too few, or as few as to be offenders by chance."""
    found = {}
    parts = (
        1 / _independent_count(groups, bad) + 1 / _independent_count(groups, good)
        if bad.any() and good.any()
        else 0.0
    )
    for name, values in looks.items():
        fine, off = _finite(values[good]), _finite(values[bad])
        if len(off) and len(fine) >= max(_LEAST, 0.1 * len(off)):
            spread = _spread(fine)
            error = math.sqrt(math.pi / 2 * max(parts, 1 / len(off) + 1 / len(fine))) * spread
            room = _ERRORS * error + _SLACK
            found[name] = NormalRange(float(np.median(fine)), room, room, spread)
    return found


def logarithms(values: Array) -> Array:
    """Return the logarithms of values above 0, NaN for others."""
    with np.errstate(all="ignore"):
        return np.log(np.where(values > 0, values, np.nan))


def _independent_count(groups: Texts, mask: Array) -> int:
    """Return how many samples tell something of their own: one of each group, all that are in none."""
    mine = groups.rows[mask]
    single = np.array([not word for word in groups.words], dtype=bool)[mine]
    return int(single.sum()) + len(np.unique(mine[~single]))


def _finite(values: Array) -> Array:
    return values[np.isfinite(values)]


def _spread(values: Array) -> float:
    return max(1.4826 * float(np.median(np.abs(values - np.median(values)))), _SLACK / 2)
