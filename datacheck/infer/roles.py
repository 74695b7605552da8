"""Guesses the role of a field from its name and its values.

The name alone is not enough: "rot" is a quaternion only if its rows have length 1, and "label" is a
class only if its values are small whole numbers. `_ROLES` lists the roles in the order in which
they are tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from datacheck.infer.axes import joint_count
from datacheck.infer.base import Guess
from datacheck.infer.profile import FieldProfile
from datacheck.schema.grammar import JOINT_NAMES, PACE_NAMES, POINT_NAMES, RATE_NAMES

# Labels from here on are tokens of a vocabulary rather than classes.
MOST_CLASSES = 10_000
# One turn in radians, with a margin for rounding: larger angles are in degrees.
TURN = 2 * math.pi + 0.1
# The joints of a hand: rows of as many points are joints under any name.
HAND_JOINTS = 21
# Names of identifiers: columns that tables write for their rows, and ids.
ID_NAMES = (
    r"^(?:__index_level_\d+__|unnamed: 0|(?:(?:row|sample|example)_)?(?:id|idx|index)|[gu]?uid)$"
)

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
    return not profile.whole and TURN < largest <= _MOST_DEGREES


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
    return joint_count(profile) > 0


def _is_hand(profile: FieldProfile) -> bool:
    return joint_count(profile) == HAND_JOINTS and _has_float_type(profile)


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
    is_one_number = profile.whole and profile.ndims.keys() == {"0"}
    return is_one_number and (profile.rises >= 0 or not profile.distinct)


def _is_clock(profile: FieldProfile) -> bool:
    """Tell whether values rise; a few samples may have falls, which a scan should report."""
    if profile.item or _is_flag(profile):
        return False
    return profile.mostly_rising and profile.falling_samples <= _FALLING_SAMPLES * profile.samples


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
    _Role("timestamp", r"time|stamp|(?<![a-z])dates?(?![a-z])", _is_clock),
    _Role("reward", r"reward|^rew$", _is_scalar_or_series),
    _Role("done", r"done|terminal|is_last", _is_done),
    _Role("mask", r"mask", _is_flag),
    _Role("flag", r"^is_|error|valid|flag|success", _is_sample_flag),
    _Role("instance", r"inst|(^|_)ins(_|$)", _is_label),
    _Role("class", r"class|label|semantic|categor", _is_class),
    _Role("segment", r"seg", _is_label),
)
