"""Words and value types of the schema language: shapes, counts, units, roles, ranges, columns.

The closed lists of words stand first (units, frames, roles, dtypes), then one section for each type
of value. The types at the end are annotations for the models in `datacheck.schema.model`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from datacheck.schema.linear_regex import Expression

# Units with their factor to the base unit: metre, radian, second.
LENGTH: dict[str, float] = {"m": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254, "ft": 0.3048}
ANGLE: dict[str, float] = {"rad": 1.0, "deg": math.pi / 180}
TIME: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# Pixels, and numbers without a unit.
OTHER: frozenset[str] = frozenset({"px", "1"})
UNITS: frozenset[str] = frozenset({*LENGTH, *ANGLE, *TIME, *OTHER})

FRAMES: frozenset[str] = frozenset(
    {"camera_opengl", "camera_opencv", "world", "object", "robot_base", "sensor", "root_relative"}
)
CENTRES: frozenset[str] = frozenset({"no", "root", "centroid", "box", "xy"})

# Orders of joints whose bones the rules know.
SKELETONS: frozenset[str] = frozenset({"mano21", "mano21_ho3d", "mano21_openpose"})


def shipped_folder(kind: str, package: Path) -> Path | None:
    """Return the folder of YAML files in the package or the checkout, None if there is none."""
    for folder in (package / kind, package.parent / kind):
        if folder.is_dir() and any(folder.glob("*.yaml")):
            return folder
    return None


# The folder of robot profiles, and the names of the robots that they describe.
ROBOT_FOLDER: Path | None = shipped_folder("robots", Path(__file__).resolve().parent.parent)
ROBOTS: frozenset[str] = frozenset(
    path.stem for path in (ROBOT_FOLDER.glob("*.yaml") if ROBOT_FOLDER else ())
)

SPATIAL_ROLES: frozenset[str] = frozenset({"points", "joints", "position"})
# Typical names of skeleton fields, and their numbers of joints.
JOINT_NAMES = r"joint|keypoint|landmark|kpt|skelet"
JOINT_COUNTS = range(14, 71)
# Typical names of points.
POINT_NAMES = r"point|xyz|cloud|^pc|_pc|coord|vert|scan"
# Typical names of rates of joints.
RATE_NAMES = r"(?:^|_|q)(?:vel(?:$|_|oc)|acc(?:$|_|el)|torque|effort|force|wrench)|_(?:cos|sin)$"
# Typical names of the sampling rate or time step of a recording.
PACE_NAMES = (
    r"(?:^|[./])(?:(?:sampl\w*_?|frame_?)?(?:rate|freq(?:uency)?)|fps|hz|sr|dt|frame_?time)$"
)

ROLES: frozenset[str] = SPATIAL_ROLES | {
    "pose",
    "rotvec",
    "quaternion",
    "transform",
    "action",
    "joint_angle",
    "image",
    "depth",
    "color",
    "normal",
    "segment",
    "class",
    "instance",
    "mask",
    "flag",
    "intrinsics",
    "text",
    "chat",
    "tokens",
    "labels",
    "faces",
    "shape",
    "timestamp",
    "reward",
    "value",
    "captions",
    "answers",
    "id",
    "gripper",
    "done",
    "boxes",
    "video",
    "ground_truth",
}


def factor(unit: str) -> float:
    """Return the factor from a unit to its base unit (metre, radian, second); 1 for other units."""
    for kind in (LENGTH, ANGLE, TIME):
        if unit in kind:
            return kind[unit]
    return 1.0


DTYPES: frozenset[str] = frozenset(
    {"bool", "float16", "float32", "float64", "text", "json"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


# One axis of a shape (``[T, 7]``): a name, or a size.
Dim = int | str
_AXIS_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
# Two sizes that were written as one axis: "4x4".
_PRODUCT = re.compile(r"(\d+)[xX*](\d+)")
# As a count: the number of samples in the file.
SAMPLES = "samples"
# Before an axis: the sum of its sizes over the samples of the file.
SUM = "sum "


def _is_dim(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value >= 0
    return isinstance(value, str) and _AXIS_NAME.match(value) is not None


def parse_dim(value: object) -> Dim:
    """Return one axis: a size of 0 or more, or a name.

    Raises:
        ValueError: the value is neither.
    """
    if isinstance(value, int | str) and _is_dim(value):
        return value
    msg = f"cannot read axis {value!r}; axes are names or integers of 0 or more"
    raise ValueError(msg)


def parse_count(value: object) -> Dim:
    """Return what an attribute counts: a number, an axis, ``samples``, or ``sum T``.

    Raises:
        ValueError: the value is none of these.
    """
    if isinstance(value, str) and value.startswith(SUM):
        axis = value.removeprefix(SUM).strip()
        if _is_dim(axis):
            return SUM + axis
    try:
        return parse_dim(value)
    except ValueError as error:
        msg = f"{error}; an attribute may also count samples, or sum T (an axis added up over them)"
        raise ValueError(msg) from error


def parse_shape(value: object) -> object:
    """Return a list of axes as a tuple; other values pass through to the type check.

    Raises:
        ValueError: an item is not an axis; the message shows the whole shape and, for ``4x4``, a
            correction.
    """
    if not isinstance(value, list | tuple):
        return value
    for item in value:
        if not _is_dim(item):
            msg = (
                f"cannot read axis {item!r} in {format_shape(value)}; axes are names or integers "
                f"of 0 or more"
            )
            if _product(item):
                sizes = [size for axis in value for size in _product(axis) or [axis]]
                msg += f". Did you mean {format_shape(sizes)}?"
            raise ValueError(msg)
    return tuple(value)


def _product(axis: object) -> list[str]:
    """Return the two sizes of ``4x4``, [] for other values."""
    match = _PRODUCT.fullmatch(axis) if isinstance(axis, str) else None
    return [match[1], match[2]] if match is not None else []


def format_shape(dims: Sequence[object]) -> str:
    """Return a shape in the notation of the schema language."""
    return "[" + ", ".join(map(str, dims)) + "]"


# Characters of a word that gets a suggestion, and candidates that are compared with it: the
# comparison takes quadratic time.
_MOST_CHARACTERS = 40
_MOST_CANDIDATES = 400


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known word, or "" where none is near.

    Notes:
        Ties go to the last in sorted order. Long words get no suggestion, and only the first
        candidates count.
    """
    text = str(word).lower()
    if len(text) > _MOST_CHARACTERS:
        return ""
    short = sorted(name for name in known if len(name) <= _MOST_CHARACTERS)[:_MOST_CANDIDATES]
    names = {name.lower(): name for name in short}
    near = difflib.get_close_matches(text, list(names), n=1, cutoff=0.6)
    return f". Did you mean {names[near[0]]!r}?" if near else ""


class Range(BaseModel):
    """A closed interval, written ``low..high``; either side may be open."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{_number(self.low)}..{_number(self.high)}"


# Larger whole numbers keep the form of a float.
_MOST_EXACT = 1e15


def _number(value: float | None) -> str:
    if value is None:
        return ""
    is_exact_integer = float(value).is_integer() and abs(value) < _MOST_EXACT
    return repr(int(value)) if is_exact_integer else repr(value)


def _end(text: str, range_text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        msg = f"{range_text!r} is not a range; write low..high, for example 0.02..0.4"
        raise ValueError(msg)
    return value


def _range(value: object) -> Range:
    if isinstance(value, Range):
        return value
    if not isinstance(value, str) or ".." not in value:
        msg = f"{value!r} is not a range; write low..high, for example 0.02..0.4"
        raise ValueError(msg)
    low, _, high = value.partition("..")
    parsed = Range(low=_end(low, value), high=_end(high, value))
    if parsed.low is None and parsed.high is None:
        msg = f"{value!r} is open on both sides; write at least one end, for example 10.."
        raise ValueError(msg)
    if parsed.low is not None and parsed.high is not None and parsed.low > parsed.high:
        swapped = Range(low=parsed.high, high=parsed.low)
        msg = f"low end {parsed.low:g} is above high end {parsed.high:g}. Did you mean {swapped}?"
        raise ValueError(msg)
    return parsed


def _share(value: object) -> float:
    number: object = value
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?%", value):
        number = float(value[:-1]) / 100
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1:
        return float(number)
    msg = f"{value!r} is not a share; write 0.005 or 0.5%, from 0 to 100%"
    raise ValueError(msg)


def one_of(known: frozenset[str], what: str) -> BeforeValidator:
    """Return the validator of a closed list of words; it accepts None."""

    def check(value: object) -> object:
        if value is None or (isinstance(value, str) and value in known):
            return value
        near = suggestion(value, known)
        msg = f"{value!r} is not a known {what}" + (
            near or f"; known are {', '.join(sorted(known))}"
        )
        raise ValueError(msg)

    return BeforeValidator(check)


def word_off(value: object) -> object:
    """Return "off" for False: YAML 1.1 reads a bare ``off`` as False."""
    return "off" if value is False else value


def word_no(value: object) -> object:
    """Return "no" for False: YAML 1.1 reads a bare ``no`` as False."""
    return "no" if value is False else value


def _strings(value: object) -> object:
    return (value,) if isinstance(value, str) else as_tuple(value)


def as_tuple(value: object) -> object:
    """Return a list as a tuple, other values unchanged."""
    return tuple(value) if isinstance(value, list) else value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _classes(value: object) -> int | Range | tuple[int, ...] | None:
    if value is None or isinstance(value, Range):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, list | tuple) and value and all(_is_int(v) for v in value):
        return tuple(value)
    if isinstance(value, str) and ".." in value:
        return _range(value)
    msg = (
        f"cannot read classes {value!r}; write a count (20), a range (0..40) or a list ([1, 3, 7])"
    )
    raise ValueError(msg)


def _shows_classes(value: Any) -> Any:
    if isinstance(value, Range):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _must_be(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    msg = f"cannot require {value!r}; allowed are true, false or an integer"
    raise ValueError(msg)


def _lists(value: object) -> object:
    if value is None or (isinstance(value, str | dict) and _are_list_names(value)):
        return value
    msg = (
        f"cannot read lists {value!r}; write a pattern ('{{split}}.txt') or a file for each split "
        f"({{val: val_list.txt}})"
    )
    raise ValueError(msg)


def _are_list_names(value: str | dict[Any, Any]) -> bool:
    if isinstance(value, str):
        return True
    names = [*value.keys(), *value.values()]
    return bool(names) and all(isinstance(name, str) for name in names)


def _list_files(value: str | dict[str, str]) -> str | dict[str, str]:
    for path in value.values() if isinstance(value, dict) else [value]:
        _file(path)
    return value


def _regex(value: object) -> object:
    if isinstance(value, str):
        try:
            Expression(value)
        except ValueError as error:
            msg = f"cannot use the regular expression {value!r}: it {error}"
            raise ValueError(msg) from error
    return value


def _file(value: str) -> str:
    if "\0" in value:
        msg = f"{value!r} has a NUL character, which no file name can have; leave it out"
        raise ValueError(msg)
    return value


# Of columns: "pos:3", or "label" for one column.
_PART = re.compile(r"^([A-Za-z_][\w]*)(?::([1-9]\d{0,6}))?$")


def parse_columns(text: str) -> dict[str, tuple[int, int]]:
    """Return {name: (start, stop)} of ``"pos:3 quat:4 flag"`` (a bare name is one column).

    Raises:
        ValueError: a part is not ``name`` or ``name:count``, or a name stands twice.
    """
    parts: dict[str, tuple[int, int]] = {}
    start = 0
    for word in text.split():
        match = _PART.match(word)
        if match is None:
            msg = (
                f"cannot read {word!r} in {text!r}; columns are written name or name:count, for "
                f"example pos:3 quat:4"
            )
            raise ValueError(msg)
        if match[1] in parts:
            msg = f"{match[1]!r} is given twice in {text!r}; each column needs a name of its own"
            raise ValueError(msg)
        stop = start + int(match[2] or 1)
        parts[match[1]] = (start, stop)
        start = stop
    if not parts:
        msg = "no column named; columns are written name or name:count, for example pos:3 quat:4"
        raise ValueError(msg)
    return parts


def _columns(value: object) -> object:
    if isinstance(value, str):
        parse_columns(value)
    return value


Interval = Annotated[Range, BeforeValidator(_range), PlainSerializer(str, return_type=str)]
Share = Annotated[float, BeforeValidator(_share)]
Counts = Annotated[Dim, BeforeValidator(parse_count)]
Shape = Annotated[tuple[Dim, ...], BeforeValidator(parse_shape)]
Strings = Annotated[tuple[str, ...], BeforeValidator(_strings)]
File = Annotated[str, AfterValidator(_file)]
Files = Annotated[tuple[File, ...], BeforeValidator(_strings)]
Classes = Annotated[
    int | Range | tuple[int, ...],
    BeforeValidator(_classes),
    PlainSerializer(_shows_classes, return_type=Any),
]
MustBe = Annotated[bool | int, BeforeValidator(_must_be)]
Lists = Annotated[str | dict[str, str], BeforeValidator(_lists), AfterValidator(_list_files)]
Columns = Annotated[str, BeforeValidator(_columns)]
Regex = Annotated[str, BeforeValidator(_regex)]
