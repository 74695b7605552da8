"""Guesses the axes, roles, units and ranges of fields from their names and profiles."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from datacheck.infer.profile import DISTINCT, LEAST_LABEL, FieldProfile
from datacheck.schema.grammar import (
    JOINT_COUNTS,
    JOINT_NAMES,
    PACE_NAMES,
    POINT_NAMES,
    RATE_NAMES,
    SKELETONS,
)
from datacheck.tokenization import MESSAGE_NAMES

_NEARLY_ALL = 0.8  # share of samples; the others rather have a fault that a scan should find
# that share for lengths of rows of numbers, and the fewest samples for it
_FIXED = 0.9
_MANY = 20
# Names of fields with a value for each step.
_STEPS = (
    r"^acts?$|action|^rew(?:ards?)?$|^dones?$|terminal|^frame_index$|^time_?steps?$|^rotations$"
)


class Axis(NamedTuple):
    """The first axis of a field.

    Args:
        name: its name.
        astray: in how many samples its length differs from the other fields with this axis.
    """

    name: str
    astray: int = 0


def name_axes(seen: Mapping[str, FieldProfile], *, episodes: bool) -> dict[str, Axis]:
    """Return the first axis of each field whose length differs between samples.

    Fields of equal lengths share an axis.

    Args:
        seen: the fields.
        episodes: the samples are episodes, so the axis that most fields share is time.

    Notes:
        Lengths that are equal in nearly all samples are one axis: in the other samples, some values
        are cut off.
    """
    together: dict[tuple[int, ...], list[str]] = {}
    for name, field in sorted(seen.items()):
        if field.lengths and (_varied(field) or len(field.lengths) <= 2 or episodes):
            together.setdefault(tuple(field.lengths), []).append(name)
    if not episodes:
        together = {
            lengths: names
            for lengths, names in together.items()
            if len(names) > 1 or not fixed_length(seen[names[0]])
        }
    free = _letters(episodes=episodes)
    axes: dict[tuple[int, ...], Axis] = {}
    for lengths, names in sorted(together.items(), key=lambda pair: (-len(pair[1]), pair[1])):
        near = [
            (_astray(other, lengths), axis.name) for other, axis in axes.items() if not axis.astray
        ]
        off, name = min((pair for pair in near if pair[0]), default=(0, ""))
        if not episodes and not name and "T" not in {axis.name for axis in axes.values()}:
            name = "T" if any(_stepwise(one, seen[one]) for one in names) else ""
        axes[lengths] = Axis(name or next(free), off)
    return {name: axes[lengths] for lengths, names in together.items() for name in names}


def _stepwise(name: str, field: FieldProfile) -> bool:
    """Tell whether a field has a value for each step in time."""
    said = name.rpartition("/")[2].lower()
    return _varied(field) and bool(
        re.search(_STEPS, said) or (len(field.item or []) == 2 and joints(field))
    )


def _varied(field: FieldProfile) -> bool:
    return len(set(field.lengths)) > 1 and not (joints(field) and len(field.item or []) == 1)


def _astray(one: Sequence[int], two: Sequence[int]) -> int:
    """Return in how many samples two lengths differ that are equal in nearly all, else 0.

    Also 0 where they may be equal by chance.
    """
    if len(one) != len(two):
        return 0
    pairs = list(zip(one, two, strict=True))
    off = sum(a != b for a, b in pairs)
    by_chance = len({a for a, b in pairs if a == b}) <= off
    return 0 if by_chance or len(pairs) - off < _NEARLY_ALL * len(pairs) else off


def _letters(*, episodes: bool) -> Iterator[str]:
    yield "T" if episodes else "P"
    yield from "NMKGVFQRS"
    yield from (f"N{number}" for number in count(1))


def joints(seen: FieldProfile) -> int:
    """Return the number of 3D joints that nearly all samples have in each of their steps, or 0."""
    *sizes, width = [*([usual_length(seen)] if seen.lengths else []), *(seen.item or [])] or [0]
    return sizes[-1] if sizes and width == 3 and sizes[-1] in JOINT_COUNTS else 0


def fixed_length(seen: FieldProfile) -> int:
    """Return the length of rows of numbers in nearly all samples if the others share another one.

    Else 0.
    """
    # Exactly two lengths: a single one leaves nothing to decide.
    alike = not seen.item and len(seen.lengths) >= _MANY and len(set(seen.lengths)) == 2
    ((usual, many),) = Counter(seen.lengths).most_common(1) if seen.lengths else ((0, 0),)
    return usual if alike and many >= _FIXED * len(seen.lengths) else 0


def usual_length(seen: FieldProfile) -> int:
    """Return the length that nearly all samples have, or 0."""
    ((usual, many),) = Counter(seen.lengths).most_common(1)
    return usual if many >= _NEARLY_ALL * len(seen.lengths) else 0


_SHORT = 80  # bytes; only longer texts get the role text
_TURN = 2 * math.pi + 0.1
# The largest angle in degrees, and names of angles.
_DEGREES = 720.0
_ANGLES = r"(?:^|_)(?:angles?|rotations?|euler)(?:$|_)"
_HAND = 21  # this many rows of three numbers are joints, under any name
# Files of many samples are few (train.npy, val.npy, test.npy) and have many rows; a sequence of
# steps is shorter, or there are more files.
_SPLIT_FILES = 6
_MANY_ROWS = 256
_CLIMBS = 8  # the numbers of fewer samples may rise by chance
# Share of the span by which a range is widened, by `FieldProfile.thinned`: if only some samples
# were read, others may exceed their range.
_SPARE = {False: 0.1, True: 1.0}
_FAR = 20  # factor from the smallest to the largest cloud above which their units may differ
_CLASSES = 10_000  # larger labels are tokens
_FARTHEST = 1e307  # larger numbers cannot be widened
_CLOUD = r"point|xyz|cloud|^pc|_pc|lidar|velodyne|scan|\.pts|\.xyz"
_TABLE = "table"
# Columns with smaller maxima are classes rather than colours; coordinates above 1.5 are no shares.
_COLUMNS = ("from its values",)
_FEW_COLORS = 64
_WIDE = 1.5
_TOKENS = r"(?:input|token)_ids|tokens"  # names of token columns
# field name in a file of one array, and of one list
ONE_ARRAY = "array"
RECORDS = "records"
SOUND = "samples"  # field name of the sound in a .wav
# Speakers that answer a user.
_ANSWERS = frozenset({"gpt", "assistant", "model", "bot", "agent", "system"})
# Share of the chats that must have an answer. With fewer, another speaker answers, or they are no
# chats.
_ANSWERED = 0.9
# Names of answers only, not "chosen_model": the two answers differ, all else may be equal.
_CHOSEN = r"(?:{0}[_-]?)?chosen(?:[_-]?{0})?".format(
    r"(?:answer|response|reply|completion|output|text|message|summary)s?"
)
_ASTRAY = 0.1  # share of samples with falling time above which a field is no clock
_IDS = r"^(?:__index_level_\d+__|unnamed: 0|(?:(?:row|sample|example)_)?(?:id|idx|index)|[gu]?uid)$"
UNTYPED = "bytes"  # field name for the content of a .bin that is not float32
_UNTYPED = (
    "unknown: no float32 coordinates; labels, a mask or tokens, of uint8, uint16, uint32 or "
    "int64: say which"
)


SpecAndReasons = tuple[dict[str, Any], list[str]]


@dataclass(frozen=True)
class Guess:
    """The guessed declaration of a field, with reasons.

    Args:
        spec: keys of the declaration.
        why: the reasons, one short phrase each.
    """

    spec: dict[str, Any]
    why: tuple[str, ...]


def _width(seen: FieldProfile) -> int:
    if seen.item:
        return seen.item[-1]
    return seen.lengths[0] if len(set(seen.lengths)) == 1 else 0


def _rows_of(*widths: int) -> Callable[[FieldProfile], bool]:
    return lambda seen: _width(seen) in widths


def _any(seen: FieldProfile) -> bool:
    return seen.low is not None


def _unit_rows(seen: FieldProfile) -> bool:
    return (
        _width(seen) == 4
        and len(seen.norms) == 2
        and seen.norms[0] >= 0.98
        and seen.norms[1] <= 1.02
    )


def _whole(seen: FieldProfile) -> bool:
    return seen.whole and seen.low is not None and not seen.item


def _pixels(seen: FieldProfile) -> bool:
    # Images of one size, or of several.
    return "uint8" in seen.dtypes and max(map(int, seen.ndims), default=0) > 2


def _integers(seen: FieldProfile) -> bool:
    """Tell whether all values have integer types: they are joint names rather than angles."""
    return all(name.startswith(("int", "uint")) for name in seen.dtypes)


def _vector(seen: FieldProfile) -> bool:
    return len(seen.item or []) <= 1 and 1 < _width(seen) <= 64


def _hand(seen: FieldProfile) -> bool:
    return joints(seen) == _HAND and all(name.startswith("float") for name in seen.dtypes)


def _matrix(seen: FieldProfile) -> bool:
    square = (seen.item or [])[-2:] == [4, 4] or (seen.item == [4] and set(seen.lengths) == {4})
    return square and all(name.startswith("float") for name in seen.dtypes)


def _in_degrees(said: str, seen: FieldProfile) -> bool:
    largest = max(abs(seen.low or 0.0), abs(seen.high or 0.0))
    named = re.search(_ANGLES, said) and not re.search(RATE_NAMES, said)
    return bool(named) and not seen.whole and _TURN < largest <= _DEGREES


def _flat(seen: FieldProfile) -> bool:
    return not seen.item


def _is_sample_number(seen: FieldProfile) -> bool:
    """Tell whether a field has one whole number per sample, different for most samples."""
    return seen.whole and seen.ndims.keys() == {"0"} and (seen.climbs >= 0 or not seen.distinct)


def _is_clock(seen: FieldProfile) -> bool:
    """Tell whether values rise; a few samples may have falls, which a scan should report."""
    return seen.rising and seen.falls <= _ASTRAY * seen.samples


def _flags(seen: FieldProfile) -> bool:
    return "bool" in seen.dtypes or (
        seen.whole and seen.low in {0.0, 1.0} and seen.high in {0.0, 1.0}
    )


# (role, pattern of the name, test of the values); the first match is taken.
_ROLES: tuple[tuple[str, str, Callable[[FieldProfile], bool]], ...] = (
    ("image", r"rgb|image|img|colou?r|frames?$", _pixels),
    (
        "intrinsics",
        r"intrin|cam_?mat|^k$|camera_matrix",
        lambda s: s.item == [3] and s.lengths[:1] == [3],
    ),
    ("transform", r"", _matrix),
    ("joints", JOINT_NAMES, lambda s: joints(s) > 0),
    ("depth", r"depth", lambda s: len(s.item or []) >= 1),
    ("normal", r"normal", _rows_of(3)),
    ("color", r"rgb|colou?r", _rows_of(3, 4)),
    ("quaternion", r"quat|ori|rot", _unit_rows),
    ("action", r"^acts?$|action|command|ctrl", _vector),
    ("joint_angle", r"qpos|joint|finger|gripper", lambda s: _vector(s) and not _integers(s)),
    ("position", r"pos$|position|trans|tcp|eef|origin", _rows_of(3)),
    ("faces", r"faces?|triangles?|vertex_ind", lambda s: s.whole and _width(s) in {3, 4}),
    ("joints", r"", _hand),
    ("points", POINT_NAMES, lambda s: bool(s.item) and _width(s) == 3),
    ("id", _IDS, _is_sample_number),
    (
        "timestamp",
        r"time|stamp|(?<![a-z])dates?(?![a-z])",
        lambda s: _flat(s) and _is_clock(s) and not _flags(s),
    ),
    ("reward", r"reward|^rew$", _flat),
    ("done", r"done|terminal|is_last", lambda s: _flat(s) and _flags(s) and s.ends in ([], [1, 1])),
    ("mask", r"mask", _flags),
    ("flag", r"^is_|error|valid|flag|success", lambda s: _flags(s) and not s.lengths),
    ("instance", r"inst|(^|_)ins(_|$)", _whole),
    ("class", r"class|label|semantic|categor", lambda s: _whole(s) and (s.high or 0) < _CLASSES),
    ("segment", r"seg", _whole),
)


def names_role(name: str) -> bool:
    """Tell whether a word of a name tells a role ("rotate" does, "carrot" does not)."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return any(names and re.match(f"(?:{names})", word) for _, names, _ in _ROLES for word in words)


def guess(
    name: str, seen: FieldProfile, axes: Mapping[str, Axis], samples: int, files: str = ""
) -> Guess:
    """Return the guessed declaration of a field.

    Args:
        name: of the field.
        seen: its profile.
        axes: the first axis by field.
        samples: how many samples were profiled.
        files: names of folder and files, which say more than the field name of a file's one array.
    """
    said = files if name == ONE_ARRAY else name.rpartition("/")[2]
    if name == UNTYPED and files.lower().endswith(".bin"):
        found = Guess({"shape": ["N"]}, (_UNTYPED,))  # with a dtype it would count as judged
    else:
        found = _guess(said.lower(), seen, axes.get(name))
    # No range for sound: a louder recording is no fault.
    if name == SOUND and files.lower().endswith(".wav") and _integers(seen):
        found = replace(
            found, spec={key: value for key, value in found.spec.items() if key != "range"}
        )
    if seen.samples >= samples:
        return found
    why = f"in {seen.samples:,} of {samples:,} samples"
    return Guess(found.spec | {"optional": True}, (*found.why, why))


def inner_samples(fields: Mapping[str, FieldProfile], files: int, ending: str) -> str:
    """Return ``samples.each`` where few files more likely hold many samples than one each, or "".

    Such files have one array each, whose rows are skeletons; a JSON list of mappings (instructions
    and answers, preferences); or a table with a column of tokens, or of texts or lists that differ
    from row to row.

    Args:
        fields: their profiles, with each file read as one sample.
        files: how many files there are.
        ending: of their names.
    """
    if ending.lower() in {".parquet", ".arrow", ".feather"}:
        told = any(2 * seen.told > seen.samples for seen in fields.values())
        return "row" if told or any(re.fullmatch(_TOKENS, name) for name in fields) else ""
    if files > _SPLIT_FILES or len(fields) != 1:
        return ""
    ((name, seen),) = fields.items()
    if name == RECORDS:
        return "line" if seen.keys and ending.lower() == ".json" else ""
    item = seen.item or []
    lengths = seen.lengths
    skeletons = (
        len(item) == 2
        and item[0] in JOINT_COUNTS
        and item[1] == 3
        and min(lengths, default=0) >= _MANY_ROWS
    )
    return "row" if name == ONE_ARRAY and skeletons else ""


def cut(name: str, seen: FieldProfile, found: Guess, files: str = "") -> dict[str, Guess]:
    """Return the guesses for a table of points and for its columns, by name.

    The columns are coordinates, colours, normals, labels and others.

    Args:
        name, seen, files: as in `guess`.
        found: the result of `guess` for the whole field.

    Returns:
        {} where the values do not show that the first three columns are coordinates.
    """
    shape = found.spec.get("shape") or []
    columns = seen.columns
    plain = (
        len(shape) == 2
        and shape[0] != "T"
        and found.spec.keys() <= {"shape", "range", "finite", "optional"}
    )
    if not plain or not columns or all(whole for _, _, whole in columns[:3]):
        return {}
    named = bool(re.search(_CLOUD, (files if name in {ONE_ARRAY, _TABLE} else name).lower()))
    wide = (
        min(low for low, _, _ in columns[:3]) < 0 or max(high for _, high, _ in columns[:3]) > _WIDE
    )
    parts: dict[str, tuple[int, Guess]] = {}
    for at, says in (
        _color_and_normal_columns(seen) if named or (wide and name in {ONE_ARRAY, _TABLE}) else ()
    ):
        parts.setdefault(
            "rgb" if says["role"] == "color" else "normal", (at, Guess(says, _COLUMNS))
        )
    if not parts and not (named and len(columns) in {4, 5} and columns[3][0] >= 0):
        return {}
    labelled = bool(parts)
    at = 3 + 3 * len(parts)
    labels = ["label", "instance"]
    while at < len(columns):
        low, high, whole = columns[at]
        if not labelled or not whole or not LEAST_LABEL <= low <= high < _CLASSES or not labels:
            one, spec = _measured_column(at, low, high, whole=bool(whole))
        else:
            one = labels.pop(0)
            spec = {"role": "class" if one == "label" else "instance"} | (
                {"ignore": [int(low)]} if low < 0 else {}
            )
            spec |= (
                {"classes": f"{max(0, int(low))}..{max(0, int(high))}"} if one == "label" else {}
            )
        parts[one] = (at, Guess(spec, _COLUMNS))
        at += 1
    cloud, why = _cloud_guess(seen, seen.low or 0.0, seen.high or 0.0, "")
    parts["xyz"] = (0, Guess({"role": "points"} | cloud, tuple(one for one in why if one)))
    order = sorted(parts, key=lambda one: parts[one][0])
    words = " ".join(f"{one}:3" if one in {"xyz", "rgb", "normal"} else one for one in order)
    kept = {key: value for key, value in found.spec.items() if key != "range"} | {"columns": words}
    return {name: Guess(kept, ("columns from their values",))} | {
        f"{name}.{one}": parts[one][1] for one in order
    }


def _color_and_normal_columns(seen: FieldProfile) -> list[tuple[int, dict[str, Any]]]:
    """Return where colours and normals follow the coordinates of a point table, without a gap."""
    found: list[tuple[int, dict[str, Any]]] = []
    for at in (3, 6):
        three = seen.columns[at : at + 3]
        if len(three) < 3 or len(found) < (at - 3) // 3:
            break
        low = min(one[0] for one in three)
        high = max(one[1] for one in three)
        whole = all(one[2] for one in three)
        labels = sum(one[1] < _FEW_COLORS for one in three)
        if at in seen.unit:
            found.append((at, {"role": "normal"}))
        elif low >= 0 and (
            (whole and _FEW_COLORS < high <= 255 and labels < 2) or (not whole and high <= 1)
        ):
            found.append((at, {"role": "color", "range": "0..1" if high <= 1 else "0..255"}))
    return found


def _measured_column(
    at: int, low: float, high: float, *, whole: bool
) -> tuple[str, dict[str, Any]]:
    share = low >= 0 and high <= 1 and not whole
    return (
        ("intensity", {"role": "value", "range": "0..1"})
        if share and at == 3
        else (f"column{at}", {})
    )


def _guess(said: str, seen: FieldProfile, axis: Axis | None) -> Guess:
    written = {"text", "json"} & seen.dtypes.keys()
    if written and len(seen.dtypes) > len(written):
        kinds = ", ".join(f"{kind} in {count:,}" for kind, count in sorted(seen.dtypes.items()))
        return Guess({}, (f"{kinds} samples: declare one of them",))
    if written:
        return _text(said, seen)
    spec, why = _kind(said, seen)
    role = spec.get("role")
    shape = _shape(seen, axis)
    if shape is not None:
        spec["shape"] = shape
    if axis is None and len(set(seen.lengths)) > 1 and (usual := fixed_length(seen)):
        others = sum(length != usual for length in seen.lengths)
        why.append(f"of another length in {others:,} of {len(seen.lengths):,} samples")
    if axis is not None and axis.astray:
        why.append(
            f"another length than the others with {axis.name} in {axis.astray:,} of "
            f"{seen.samples:,} samples"
        )
    if len(seen.dtypes) == 1 and next(iter(seen.dtypes)) in {"bool", "uint8"}:
        spec["dtype"] = next(iter(seen.dtypes))
    unfinite, broken = _nonfinite(seen)
    more, reasons = _numbers(role, seen)
    return Guess(spec | unfinite | more, (*why, *broken, *reasons))


def _kind(said: str, seen: FieldProfile) -> SpecAndReasons:
    """Return the role that name and values suggest, else the unit of angles."""
    role, named = next(
        ((r, names) for r, names, fits in _ROLES if re.search(names, said) and fits(seen)),
        (None, ""),
    )
    rate = role in {"joint_angle", "position"} and re.search(RATE_NAMES, said)
    if role is not None and not rate and not (role == "timestamp" and re.search(PACE_NAMES, said)):
        return {"role": role}, [
            "role from name and values" if named else "role from shape and values"
        ]
    return ({"unit": "deg"}, ["unit from name and values"]) if _in_degrees(said, seen) else ({}, [])


def _text(said: str, seen: FieldProfile) -> Guess:
    chat = _chat(seen)
    if chat is not None:
        return chat
    if "json" in seen.dtypes:
        return Guess({"dtype": "json"}, (f"keys {', '.join(seen.keys[:4])}",) if seen.keys else ())
    if seen.longest <= _SHORT and re.search(_IDS, said):
        return Guess({"role": "id", "dtype": "text"}, ("role from name and values",))
    spec: dict[str, Any] = {"role": "text"} if seen.longest > _SHORT else {"dtype": "text"}
    # Fewer empty texts are more likely a fault for a scan to find than intended.
    if 2 * seen.empty < seen.samples:
        return Guess(spec, ("text",))
    return Guess(
        spec | {"optional": True}, ("text", f"empty in {seen.empty:,} of {seen.samples:,} samples")
    )


def _chat(seen: FieldProfile) -> Guess | None:
    """Return the guess for messages with keys of OpenAI, ShareGPT or dialogue corpora, or None."""
    names = next((names for names in MESSAGE_NAMES if set(names) <= set(seen.keys)), ())
    why = (f"messages with {' and '.join(names)}",)
    if names == MESSAGE_NAMES[0]:
        return Guess({"role": "chat"}, why)
    most = max(1, _ANSWERED * seen.chats)
    answers = [
        name for name, count in seen.speakers.items() if name.lower() in _ANSWERS and count >= most
    ]
    if "speaker" in names and not any(name.lower() in {"human", "user"} for name in seen.speakers):
        answers = []  # a play or a meeting: no speaker is a user
    if not names or not answers:
        return None
    # If another speaker answers, "system" gives instructions.
    answer = max(answers, key=lambda name: (name.lower() != "system", seen.speakers[name]))
    return Guess({"role": "chat", "train_on": answer}, why)


def preferences(guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Return the guesses, with each chosen text or chat preferred over its rejected counterpart."""
    found = dict(guesses)
    for name in guesses:
        pair = (name, name.replace("chosen", "rejected"))
        specs = [guesses[one].spec for one in pair if one in guesses]
        kinds = {spec.get("role", spec.get("dtype")) for spec in specs}
        if (
            len(set(pair)) == len(specs) == 2
            and kinds in ({"chat"}, {"text"})
            and re.fullmatch(_CHOSEN, name.lower())
        ):
            for one, more in zip(pair, ({"preferred_over": pair[1]}, {}), strict=True):
                spec = {key: value for key, value in guesses[one].spec.items() if key != "dtype"}
                found[one] = Guess(spec | {"role": min(kinds)} | more, guesses[one].why)
    return found


def _shape(seen: FieldProfile, axis: Axis | None) -> list[int | str] | None:
    if len(seen.ndims) != 1 or seen.item is None:
        return None
    if not seen.lengths:
        return list(seen.item)
    if axis is not None:
        return [axis.name, *seen.item]
    same = len(seen.lengths) > 2 and (
        len(set(seen.lengths)) == 1 or joints(seen) > 0 or fixed_length(seen) > 0
    )
    return [usual_length(seen) if same else "N", *seen.item]


# Non-finite numbers in half of the samples mean missing values if there are at least this many
# samples, or if at least this share of the numbers is non-finite.
_SEVERAL = 4
_MISSING = 0.05


def _nonfinite(seen: FieldProfile) -> SpecAndReasons:
    if not seen.unfinite:
        return {}, []
    why = f"NaN or infinity in {seen.unfinite:,} of {seen.samples:,} samples"
    if 2 * seen.unfinite >= seen.samples and (seen.samples >= _SEVERAL or seen.holes >= _MISSING):
        return {"finite": False}, [why]
    # In fewer samples they are more likely a fault for a scan to find than intended.
    return {}, [why, "finite: false where that means missing"]


def _numbers(role: str | None, seen: FieldProfile) -> SpecAndReasons:
    """Return unit and ranges: measured, and widened so that the next sample does not just miss."""
    if seen.low is None or seen.high is None or role in _NO_RANGE:
        return {}, []
    return _GUESS_BY_ROLE.get(role or "", _range_guess)(
        seen, seen.low, seen.high, f"measured {seen.low:.3g}..{seen.high:.3g}"
    )


def _range_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    if seen.climbs >= _CLIMBS:  # a number or time of the sample: the next one exceeds all others
        return {}, [f"rises from sample to sample, {measured}"]
    # Otherwise the ends cannot be widened and written.
    wide = max(-low, high) < _FARTHEST and sys.float_info.min < high - low
    if not wide or "bool" in seen.dtypes:
        return {}, [measured]
    return {"range": _widened(low, high, _SPARE[seen.thinned], _limits(seen))}, [measured]


def _limits(seen: FieldProfile) -> tuple[float, float]:
    """Return the lowest and the highest value that the types of a field can hold."""
    kinds = [np.dtype(name) for name in seen.dtypes]
    ends = [np.iinfo(kind) if kind.kind in "iu" else None for kind in kinds]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return -math.inf, math.inf
    return float(min(end.min for end in known)), float(max(end.max for end in known))


def _meters_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    del low, high
    return {"unit": "m"}, ["nothing says the unit", measured + _apart(seen)]


def _cloud_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    if len(seen.sizes) < 2 or seen.sizes[1] <= 0:
        return _meters_guess(seen, low, high, measured)
    small, large = seen.sizes
    size = f"{_round(small / 2, down=True):g}..{_round(large * 2):g}"
    why = f"size measured {small:.3g}..{large:.3g}, a factor 2 left on either side{_apart(seen)}"
    return {"unit": "m", "size": size}, ["nothing says the unit", why]


def _apart(seen: FieldProfile) -> str:
    small, large = seen.sizes or (0.0, 0.0)
    far = large > _FAR * max(small, sys.float_info.min)
    return "; sizes so far apart that some may be in another unit" if far else ""


def _joints_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    said, why = _meters_guess(seen, low, high, measured)
    known = ", ".join(sorted(SKELETONS))
    return said, [*why, f"with a skeleton ({known}) bones are judged, too"] if joints(
        seen
    ) == _HAND else why


def _angle_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    del seen
    unit = "rad" if max(abs(low), abs(high)) <= _TURN else "deg"
    return {"unit": unit}, [f"unit from the values, {measured}"]


def _class_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    said: dict[str, Any] = {"classes": f"{max(0, int(low))}..{max(0, int(high))}"}
    return said | _ignored_labels(seen), [measured + _no_label(low)]


def _instance_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    del high
    return (_ignored_labels(seen), [measured + _no_label(low)]) if low < 0 else ({}, [])


def _ignored_labels(seen: FieldProfile) -> dict[str, Any]:
    few = seen.negative if len(seen.negative) <= DISTINCT else seen.negative[:1]
    return {"ignore": few} if few else {}


def _no_label(low: float) -> str:
    return f"; {low:.3g} is no label" if low < LEAST_LABEL else ""


def _color_guess(seen: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    if low < 0:  # normalized to a mean of 0, or to -1..1
        return _range_guess(seen, low, high, measured)
    return {"range": "0..1" if high <= 1 else "0..255"}, [measured]


_GUESS_BY_ROLE: Mapping[str, Callable[[FieldProfile, float, float, str], SpecAndReasons]] = {
    "points": _cloud_guess,
    "joints": _joints_guess,
    "position": _meters_guess,
    "joint_angle": _angle_guess,
    "class": _class_guess,
    "instance": _instance_guess,
    "color": _color_guess,
}
_NO_RANGE = frozenset(
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


def _widened(low: float, high: float, share: float, limits: tuple[float, float]) -> str:
    """Return a range widened by a share of the span; ends at 0, 1 and -1 are taken as exact."""
    spare = (high - low) * share
    first = low if low in {-1.0, 0.0} else _round(low - spare, down=True)
    last = high if high in {0.0, 1.0} else _round(high + spare)
    if low > 0:  # lengths, counts, depths: no value crosses 0
        first = max(first, 0.0)
    if high < 0:
        last = min(last, 0.0)
    return f"{max(first, limits[0]):.6g}..{min(last, limits[1]):.6g}"


def _round(value: float, *, down: bool = False) -> float:
    """Return the value rounded to two digits, never up if `down`, else never down."""
    if not math.isfinite(value):
        return value
    if abs(value) < sys.float_info.min:  # subnormal: the power of ten below it may be 0
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    steps = math.floor(value / unit + 1e-9) if down else math.ceil(value / unit - 1e-9)
    return float(f"{steps * unit:.6g}")
