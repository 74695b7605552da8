"""Guesses what the numbers of a field mean: their role, their unit, and the allowed values.

The name alone is not enough: "rot" is a quaternion only if its rows have length 1, and "label" is a
class only if its values are small whole numbers. `_ROLES` lists the roles in the order in which
they are tried. A measured range is widened, so that the next sample does not just miss it; roles
whose values have limits by their nature (`_WITHOUT_RANGE`) get no range.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from datacheck.infer.profile import DISTINCT, LEAST_LABEL, FieldProfile
from datacheck.infer.writing import Guess
from datacheck.schema.grammar import JOINT_NAMES, PACE_NAMES, POINT_NAMES, RATE_NAMES, SKELETONS

# Labels from here on are tokens of a vocabulary rather than classes.
MOST_CLASSES = 10_000
# One turn in radians, with a margin for rounding: larger angles are in degrees.
_TURN = 2 * math.pi + 0.1
# The joints of a hand: rows of as many points are joints under any name.
_HAND_JOINTS = 21
# Names of identifiers: columns that tables write for their rows, and ids.
ID_NAMES = (
    r"^(?:__index_level_\d+__|unnamed: 0|(?:(?:row|sample|example)_)?(?:id|idx|index)|[gu]?uid)$"
)
# Names of columns with the split of each row: it says where a row is, not what.
SPLIT_NAMES = r"^(?:split|subset|fold|partition)$"
_ANGLE_NAMES = r"(?:^|_)(?:angles?|rotations?|euler)(?:$|_)"
# Two turns: values beyond it are no angles.
_MOST_DEGREES = 720.0
# Deviation of a quaternion's length from 1 that rounding to a few digits explains.
_UNIT_TOLERANCE = 0.02
# Vectors of actions and joints have fewer entries; longer rows are features.
_MOST_VECTOR = 64
# Share of the samples in which the time of a clock may fall: a scan should report those.
_FALLING_SAMPLES = 0.1


def guess_role(name: str, profile: FieldProfile) -> Guess:
    """Return the role that name and values suggest, else the unit of angles.

    Args:
        name: lower-case name of the field.
        profile: its profile.
    """
    fitting = (role for role in _ROLES if re.search(role.names, name) and role.fits(profile))
    match = next(fitting, None)
    if match is not None and not _is_rate(match.role, name):
        source = "name" if match.names else "shape"
        return Guess({"role": match.role}, (f"role from {source} and values",))
    if _is_in_degrees(name, profile):
        return Guess({"unit": "deg"}, ("unit from name and values",))
    return Guess()


def names_role(name: str) -> bool:
    """Tell whether a word of a name tells a role ("rotate" does, "carrot" does not)."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    patterns = [role.names for role in _ROLES if role.names]
    return any(re.match(f"(?:{pattern})", word) for pattern in patterns for word in words)


def is_message_time(name: str) -> bool:
    """Tell whether ROS and MCAP give a name to the times of messages only."""
    return re.search(_MESSAGE_TIMES, name) is not None


def has_integer_type(profile: FieldProfile) -> bool:
    """Tell whether the stored types of all values are integers."""
    return all(name.startswith(("int", "uint")) for name in profile.dtypes)


def _is_rate(role: str, name: str) -> bool:
    """Tell whether a name means the rate of a joint or position, or the pace of a recording."""
    if role == "timestamp":
        return re.search(PACE_NAMES, name) is not None
    return role in {"joint_angle", "position"} and re.search(RATE_NAMES, name) is not None


def _is_in_degrees(name: str, profile: FieldProfile) -> bool:
    if not re.search(_ANGLE_NAMES, name) or re.search(RATE_NAMES, name):
        return False
    largest = max(abs(profile.low or 0.0), abs(profile.high or 0.0))
    return not profile.whole and _TURN < largest <= _MOST_DEGREES


def _width(profile: FieldProfile) -> int:
    """Return the size of the last axis, 0 where it differs between samples."""
    if profile.item:
        return profile.item[-1]
    return profile.lengths[0] if len(set(profile.lengths)) == 1 else 0


def _has_float_type(profile: FieldProfile) -> bool:
    return all(name.startswith("float") for name in profile.dtypes)


def _is_scalar_or_series(profile: FieldProfile) -> bool:
    return not profile.item


def _is_image(profile: FieldProfile) -> bool:
    # Images of one size, or of several.
    return "uint8" in profile.dtypes and max(map(int, profile.ndims), default=0) > 2


def _is_camera_matrix(profile: FieldProfile) -> bool:
    return profile.item == [3] and profile.lengths[:1] == [3]


def _is_transform(profile: FieldProfile) -> bool:
    is_single = profile.item == [4] and set(profile.lengths) == {4}
    is_series = (profile.item or [])[-2:] == [4, 4]
    return (is_single or is_series) and _has_float_type(profile)


def _has_joints(profile: FieldProfile) -> bool:
    return profile.joint_count > 0


def _is_hand(profile: FieldProfile) -> bool:
    return profile.joint_count == _HAND_JOINTS and _has_float_type(profile)


def _has_rows(profile: FieldProfile) -> bool:
    return len(profile.item or []) >= 1


def _is_triple(profile: FieldProfile) -> bool:
    return _width(profile) == 3


def _is_color(profile: FieldProfile) -> bool:
    return _width(profile) in {3, 4}


def _is_unit_quaternion(profile: FieldProfile) -> bool:
    if _width(profile) != 4 or not profile.row_norms:
        return False
    shortest, longest = profile.row_norms
    return shortest >= 1 - _UNIT_TOLERANCE and longest <= 1 + _UNIT_TOLERANCE


def _is_vector(profile: FieldProfile) -> bool:
    return len(profile.item or []) <= 1 and 1 < _width(profile) <= _MOST_VECTOR


def _is_joint_vector(profile: FieldProfile) -> bool:
    # Integers are the numbers of joints rather than their angles.
    return _is_vector(profile) and not has_integer_type(profile)


def _is_faces(profile: FieldProfile) -> bool:
    return profile.whole and _width(profile) in {3, 4}


def _is_points(profile: FieldProfile) -> bool:
    return bool(profile.item) and _width(profile) == 3


def _is_sample_number(profile: FieldProfile) -> bool:
    """Tell whether a field has one whole number per sample, different for most samples."""
    return _is_one_number(profile) and (profile.rises >= 0 or not profile.distinct)


def _is_one_number(profile: FieldProfile) -> bool:
    """Tell whether a field has one whole number per sample."""
    return profile.whole and profile.ndims.keys() == {"0"}


def _is_clock(profile: FieldProfile) -> bool:
    """Tell whether values rise; a few samples may have falls, which a scan should report."""
    if profile.item or _is_flag(profile):
        return False
    return profile.mostly_rising and profile.falling_samples <= _FALLING_SAMPLES * profile.samples


def _is_ros_clock(profile: FieldProfile) -> bool:
    """Tell whether values of a name that ROS and MCAP give to clocks only are mostly rising."""
    return not profile.item and not _is_flag(profile) and profile.mostly_rising


def _is_flag(profile: FieldProfile) -> bool:
    is_0_or_1 = profile.whole and profile.low in {0.0, 1.0} and profile.high in {0.0, 1.0}
    return "bool" in profile.dtypes or is_0_or_1


def _is_done(profile: FieldProfile) -> bool:
    # Set in the last step of an episode only.
    return not profile.item and _is_flag(profile) and profile.trailing_nonzero in ([], [1, 1])


def _is_sample_flag(profile: FieldProfile) -> bool:
    return _is_flag(profile) and not profile.lengths


def _is_label(profile: FieldProfile) -> bool:
    return profile.whole and profile.low is not None and not profile.item


def _is_class(profile: FieldProfile) -> bool:
    return _is_label(profile) and (profile.high or 0) < MOST_CLASSES


class _Role(NamedTuple):
    """A role, the pattern of its names ("" for any), and the test of its values."""

    role: str
    names: str
    fits: Callable[[FieldProfile], bool]


CLOCK_NAMES = r"time|stamp|(?<![a-z])dates?(?![a-z])"
_MESSAGE_TIMES = r"^(?:stamp|log_time|publish_time)$"
# The first role that fits is taken, so a special role stands above the more general one.
_ROLES = (
    _Role("image", r"rgb|image|img|colou?r|frames?$", _is_image),
    _Role("intrinsics", r"intrin|cam_?mat|^k$|camera_matrix", _is_camera_matrix),
    _Role("transform", r"", _is_transform),
    _Role("joints", JOINT_NAMES, _has_joints),
    _Role("depth", r"depth", _has_rows),
    _Role("normal", r"normal", _is_triple),
    _Role("color", r"rgb|colou?r", _is_color),
    _Role("quaternion", r"quat|ori|rot", _is_unit_quaternion),
    _Role("action", r"^acts?$|action|command|ctrl", _is_vector),
    _Role("joint_angle", r"qpos|joint|finger|gripper", _is_joint_vector),
    _Role("position", r"pos$|position|trans|tcp|eef|origin", _is_triple),
    _Role("faces", r"faces?|triangles?|vertex_ind", _is_faces),
    _Role("joints", r"", _is_hand),
    _Role("points", POINT_NAMES, _is_points),
    _Role("id", ID_NAMES, _is_sample_number),
    _Role("id", SPLIT_NAMES, _is_one_number),
    _Role("timestamp", _MESSAGE_TIMES, _is_ros_clock),
    _Role("timestamp", CLOCK_NAMES, _is_clock),
    _Role("reward", r"reward|^rew$", _is_scalar_or_series),
    _Role("done", r"done|terminal|is_last", _is_done),
    _Role("mask", r"mask", _is_flag),
    _Role("flag", r"^is_|error|valid|flag|success", _is_sample_flag),
    _Role("instance", r"inst|(^|_)ins(_|$)", _is_label),
    _Role("class", r"class|label|semantic|categor", _is_class),
    _Role("segment", r"seg", _is_label),
)


# ----------------------------------------------------------------------------------- unit and limits

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


# With this many samples for each class, samples that were not read rarely add a class.
_SAMPLES_FOR_CLASS = 10


def class_range(low: float, high: float, profile: FieldProfile) -> str:
    """Return the classes from the smallest to the largest label; negative labels are no classes.

    Where few samples were read, the range is widened for labels of the others.
    """
    if profile.thinned and profile.samples < _SAMPLES_FOR_CLASS * (high + 1):
        return f"0..{2 * max(0, int(high)) + 10}"
    return f"{max(0, int(low))}..{max(0, int(high))}"


def _guess_places(role: str, profile: FieldProfile, measured: str) -> Guess:
    if role == "points":
        return guess_cloud(profile, measured)
    length = _guess_length(profile, measured)
    if role == "position" or profile.joint_count != _HAND_JOINTS:
        return length
    skeletons = ", ".join(sorted(SKELETONS))
    return length.plus(Guess({}, (f"with a skeleton ({skeletons}) bones are judged, too",)))


def _guess_length(profile: FieldProfile, measured: str) -> Guess:
    reasons = ("nothing says the unit", measured + _remark_on_sizes(profile))
    return Guess({"unit": "m"}, tuple(reason for reason in reasons if reason))


def _guess_angle(low: float, high: float, measured: str) -> Guess:
    unit = "rad" if max(abs(low), abs(high)) <= _TURN else "deg"
    return Guess({"unit": unit}, (f"unit from the values, {measured}",))


def _guess_labels(
    role: str, profile: FieldProfile, low: float, high: float, measured: str
) -> Guess:
    spec: dict[str, Any] = {}
    if role == "class":
        spec["classes"] = class_range(low, high, profile)
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
