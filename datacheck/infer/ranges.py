"""Guesses the unit and the allowed values of a numeric field from what was measured.

A measured range is widened, so that the next sample does not just miss it. Roles whose values have
limits by their nature (`_WITHOUT_RANGE`) get no range.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from datacheck.infer.axes import joint_count
from datacheck.infer.base import Guess
from datacheck.infer.profile import DISTINCT, LEAST_LABEL, FieldProfile
from datacheck.infer.roles import HAND_JOINTS, TURN
from datacheck.schema.grammar import SKELETONS

_WITHOUT_RANGE = frozenset(
    {
        "image",
        "mask",
        "flag",
        "done",
        "transform",
        "intrinsics",
        "faces",
        "segment",
        "normal",
        "quaternion",
        "timestamp",
        "id",
    }
)
# Share of the span that a range is widened by on either side.
_MARGIN = 0.1
# The same if only some of the samples were read: one in 200 others exceeds the largest of 200
# normal numbers.
_MARGIN_OF_SOME = 1.0
# The number of a sample, or its time, rises from sample to sample. In fewer samples, numbers may
# rise by chance.
_FEWEST_RISES = 8
# Larger numbers cannot be widened: their margin is infinite.
_MOST_WIDENED = 1e307
# Factor by which the allowed size of a cloud exceeds the measured sizes.
_SIZE_MARGIN = 2
# Factor from the smallest to the largest cloud above which some may be in another unit.
_FAR_APART = 20


def guess_limits(role: str | None, profile: FieldProfile) -> Guess:
    """Return the unit and the ranges that the values of a field suggest."""
    if profile.low is None or profile.high is None or role in _WITHOUT_RANGE:
        return Guess()
    low, high = profile.low, profile.high
    measured = f"measured {low:.3g}..{high:.3g}"
    if role in {"points", "joints", "position"}:
        return _guess_places(role, profile, measured)
    if role == "joint_angle":
        return _guess_angle(low, high, measured)
    if role in {"class", "instance"}:
        return _guess_labels(role, profile, low, high, measured)
    if role == "color" and low >= 0:  # else normalized, to a mean of 0 or to -1..1
        return Guess({"range": "0..1" if high <= 1 else "0..255"}, (measured,))
    return _guess_range(profile, low, high, measured)


def guess_cloud(profile: FieldProfile, measured: str = "") -> Guess:
    """Return unit and size of points.

    Args:
        profile: of the points.
        measured: the reason to state if the points have no size.
    """
    if len(profile.box_diagonals) < 2 or profile.box_diagonals[1] <= 0:
        return _guess_length(profile, measured)
    smallest, largest = profile.box_diagonals
    lower = rounded(smallest / _SIZE_MARGIN, down=True)
    upper = rounded(largest * _SIZE_MARGIN)
    size = (
        f"size measured {smallest:.3g}..{largest:.3g}, a factor {_SIZE_MARGIN} left on either side"
    )
    why = ("nothing says the unit", size + _remark_on_sizes(profile))
    return Guess({"unit": "m", "size": f"{lower:g}..{upper:g}"}, why)


def rounded(value: float, *, down: bool = False) -> float:
    """Return the value rounded to two digits, never up if `down`, else never down."""
    if not math.isfinite(value):
        return value
    if abs(value) < sys.float_info.min:  # subnormal: the power of ten below it may be 0
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    # The quotient of a number of two digits may miss the whole number by a rounding error.
    steps = math.floor(value / unit + 1e-9) if down else math.ceil(value / unit - 1e-9)
    return float(f"{steps * unit:.6g}")


def class_range(low: float, high: float) -> str:
    """Return the classes from the smallest to the largest label; negative labels are no classes."""
    return f"{max(0, int(low))}..{max(0, int(high))}"


def _guess_places(role: str, profile: FieldProfile, measured: str) -> Guess:
    if role == "points":
        return guess_cloud(profile, measured)
    length = _guess_length(profile, measured)
    if role == "position" or joint_count(profile) != HAND_JOINTS:
        return length
    skeletons = ", ".join(sorted(SKELETONS))
    return length.plus(Guess({}, (f"with a skeleton ({skeletons}) bones are judged, too",)))


def _guess_length(profile: FieldProfile, measured: str) -> Guess:
    reasons = ("nothing says the unit", measured + _remark_on_sizes(profile))
    return Guess({"unit": "m"}, tuple(reason for reason in reasons if reason))


def _guess_angle(low: float, high: float, measured: str) -> Guess:
    unit = "rad" if max(abs(low), abs(high)) <= TURN else "deg"
    return Guess({"unit": unit}, (f"unit from the values, {measured}",))


def _guess_labels(
    role: str, profile: FieldProfile, low: float, high: float, measured: str
) -> Guess:
    spec: dict[str, Any] = {}
    if role == "class":
        spec["classes"] = class_range(low, high)
    elif low >= 0:
        return Guess()
    if profile.negative:
        # Very many negative labels are no marks: only the lowest is named.
        are_few = len(profile.negative) <= DISTINCT
        spec["ignore"] = profile.negative if are_few else profile.negative[:1]
    remark = f"; {low:.3g} is no label" if low < LEAST_LABEL else ""
    return Guess(spec, (measured + remark,))


def _guess_range(profile: FieldProfile, low: float, high: float, measured: str) -> Guess:
    if profile.rises >= _FEWEST_RISES:  # the number or time of the next sample exceeds all others
        return Guess({}, (f"rises from sample to sample, {measured}",))
    # Ends that are too large, or too near to each other, cannot be widened and written.
    is_wide = max(-low, high) < _MOST_WIDENED and high - low > sys.float_info.min
    if not is_wide or "bool" in profile.dtypes:
        return Guess({}, (measured,))
    margin = (high - low) * (_MARGIN_OF_SOME if profile.thinned else _MARGIN)
    return Guess({"range": _widened(low, high, margin, _type_limits(profile))}, (measured,))


def _widened(low: float, high: float, margin: float, limits: tuple[float, float]) -> str:
    """Return a range widened within limits; ends at 0, 1 and -1 are taken as exact."""
    lower = low if low in {-1.0, 0.0} else rounded(low - margin, down=True)
    upper = high if high in {0.0, 1.0} else rounded(high + margin)
    if low > 0:  # lengths, counts, depths: no value crosses 0
        lower = max(lower, 0.0)
    if high < 0:
        upper = min(upper, 0.0)
    return f"{max(lower, limits[0]):.6g}..{min(upper, limits[1]):.6g}"


def _type_limits(profile: FieldProfile) -> tuple[float, float]:
    """Return the lowest and the highest value that the types of a field can hold."""
    dtypes = [np.dtype(name) for name in profile.dtypes]
    limits = [np.iinfo(dtype) for dtype in dtypes if dtype.kind in "iu"]
    if not limits or len(limits) < len(dtypes):
        return -math.inf, math.inf
    return float(min(limit.min for limit in limits)), float(max(limit.max for limit in limits))


def _remark_on_sizes(profile: FieldProfile) -> str:
    smallest, largest = profile.box_diagonals or (0.0, 0.0)
    if largest > _FAR_APART * max(smallest, sys.float_info.min):
        return "; sizes so far apart that some may be in another unit"
    return ""
