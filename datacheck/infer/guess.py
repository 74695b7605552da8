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
    by_lengths: dict[tuple[int, ...], list[str]] = {}
    for name, field in sorted(seen.items()):
        if field.lengths and (_varied(field) or len(field.lengths) <= 2 or episodes):
            by_lengths.setdefault(tuple(field.lengths), []).append(name)
    if not episodes:
        by_lengths = {
            lengths: names
            for lengths, names in by_lengths.items()
            if len(names) > 1 or not fixed_length(seen[names[0]])
        }
    free = _letters(episodes=episodes)
    axes: dict[tuple[int, ...], Axis] = {}
    for lengths, names in sorted(by_lengths.items(), key=lambda pair: (-len(pair[1]), pair[1])):
        similar = [
            (_astray(axis_lengths, lengths), axis.name)
            for axis_lengths, axis in axes.items()
            if not axis.astray
        ]
        deviating, name = min((pair for pair in similar if pair[0]), default=(0, ""))
        if not episodes and not name and "T" not in {axis.name for axis in axes.values()}:
            name = (
                "T" if any(_stepwise(field_name, seen[field_name]) for field_name in names) else ""
            )
        axes[lengths] = Axis(name or next(free), deviating)
    return {name: axes[lengths] for lengths, names in by_lengths.items() for name in names}


def _stepwise(name: str, field: FieldProfile) -> bool:
    """Tell whether a field has a value for each step in time."""
    base_name = name.rpartition("/")[2].lower()
    return _varied(field) and bool(
        re.search(_STEPS, base_name) or (len(field.item or []) == 2 and joints(field))
    )


def _varied(field: FieldProfile) -> bool:
    return len(set(field.lengths)) > 1 and not (joints(field) and len(field.item or []) == 1)


def _astray(lengths: Sequence[int], other_lengths: Sequence[int]) -> int:
    """Return in how many samples two lengths differ that are equal in nearly all, else 0.

    Also 0 where they may be equal by chance.
    """
    if len(lengths) != len(other_lengths):
        return 0
    pairs = list(zip(lengths, other_lengths, strict=True))
    deviating = sum(a != b for a, b in pairs)
    by_chance = len({a for a, b in pairs if a == b}) <= deviating
    return 0 if by_chance or len(pairs) - deviating < _NEARLY_ALL * len(pairs) else deviating


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
    two_lengths = not seen.item and len(seen.lengths) >= _MANY and len(set(seen.lengths)) == 2
    ((usual, frequency),) = Counter(seen.lengths).most_common(1) if seen.lengths else ((0, 0),)
    return usual if two_lengths and frequency >= _FIXED * len(seen.lengths) else 0


def usual_length(seen: FieldProfile) -> int:
    """Return the length that nearly all samples have, or 0."""
    ((usual, frequency),) = Counter(seen.lengths).most_common(1)
    return usual if frequency >= _NEARLY_ALL * len(seen.lengths) else 0


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
_COLUMNS = ("from its values",)
_FEW_COLORS = 64  # columns with smaller maxima are classes rather than colours
_WIDE = 1.5  # coordinates above it are no shares
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


def _width(profile: FieldProfile) -> int:
    if profile.item:
        return profile.item[-1]
    return profile.lengths[0] if len(set(profile.lengths)) == 1 else 0


def _rows_of(*widths: int) -> Callable[[FieldProfile], bool]:
    return lambda profile: _width(profile) in widths


def _any(profile: FieldProfile) -> bool:
    return profile.low is not None


def _unit_rows(profile: FieldProfile) -> bool:
    return (
        _width(profile) == 4
        and len(profile.norms) == 2
        and profile.norms[0] >= 0.98
        and profile.norms[1] <= 1.02
    )


def _whole(profile: FieldProfile) -> bool:
    return profile.whole and profile.low is not None and not profile.item


def _pixels(profile: FieldProfile) -> bool:
    # Images of one size, or of several.
    return "uint8" in profile.dtypes and max(map(int, profile.ndims), default=0) > 2


def _integers(profile: FieldProfile) -> bool:
    """Tell whether all values have integer types: they are joint names rather than angles."""
    return all(name.startswith(("int", "uint")) for name in profile.dtypes)


def _vector(profile: FieldProfile) -> bool:
    return len(profile.item or []) <= 1 and 1 < _width(profile) <= 64


def _hand(profile: FieldProfile) -> bool:
    return joints(profile) == _HAND and all(name.startswith("float") for name in profile.dtypes)


def _matrix(profile: FieldProfile) -> bool:
    square = (profile.item or [])[-2:] == [4, 4] or (
        profile.item == [4] and set(profile.lengths) == {4}
    )
    return square and all(name.startswith("float") for name in profile.dtypes)


def _in_degrees(name: str, profile: FieldProfile) -> bool:
    largest = max(abs(profile.low or 0.0), abs(profile.high or 0.0))
    named = re.search(_ANGLES, name) and not re.search(RATE_NAMES, name)
    return bool(named) and not profile.whole and _TURN < largest <= _DEGREES


def _flat(profile: FieldProfile) -> bool:
    return not profile.item


def _is_sample_number(profile: FieldProfile) -> bool:
    """Tell whether a field has one whole number per sample, different for most samples."""
    return (
        profile.whole
        and profile.ndims.keys() == {"0"}
        and (profile.climbs >= 0 or not profile.distinct)
    )


def _is_clock(profile: FieldProfile) -> bool:
    """Tell whether values rise; a few samples may have falls, which a scan should report."""
    return profile.rising and profile.falls <= _ASTRAY * profile.samples


def _flags(profile: FieldProfile) -> bool:
    return "bool" in profile.dtypes or (
        profile.whole and profile.low in {0.0, 1.0} and profile.high in {0.0, 1.0}
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
    hint = files if name == ONE_ARRAY else name.rpartition("/")[2]
    if name == UNTYPED and files.lower().endswith(".bin"):
        declared = Guess({"shape": ["N"]}, (_UNTYPED,))  # with a dtype it would count as judged
    else:
        declared = _guess(hint.lower(), seen, axes.get(name))
    # No range for sound: a louder recording is no fault.
    if name == SOUND and files.lower().endswith(".wav") and _integers(seen):
        declared = replace(
            declared, spec={key: value for key, value in declared.spec.items() if key != "range"}
        )
    if seen.samples >= samples:
        return declared
    why = f"in {seen.samples:,} of {samples:,} samples"
    return Guess(declared.spec | {"optional": True}, (*declared.why, why))


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
        has_texts = any(2 * profile.told > profile.samples for profile in fields.values())
        return "row" if has_texts or any(re.fullmatch(_TOKENS, name) for name in fields) else ""
    if files > _SPLIT_FILES or len(fields) != 1:
        return ""
    ((name, profile),) = fields.items()
    if name == RECORDS:
        return "line" if profile.keys and ending.lower() == ".json" else ""
    item = profile.item or []
    lengths = profile.lengths
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
    if not plain or not columns or all(integral for _, _, integral in columns[:3]):
        return {}
    named = bool(re.search(_CLOUD, (files if name in {ONE_ARRAY, _TABLE} else name).lower()))
    wide = (
        min(low for low, _, _ in columns[:3]) < 0 or max(high for _, high, _ in columns[:3]) > _WIDE
    )
    parts: dict[str, tuple[int, Guess]] = {}
    for start, column_spec in (
        _color_and_normal_columns(seen) if named or (wide and name in {ONE_ARRAY, _TABLE}) else ()
    ):
        parts.setdefault(
            "rgb" if column_spec["role"] == "color" else "normal",
            (start, Guess(column_spec, _COLUMNS)),
        )
    if not parts and not (named and len(columns) in {4, 5} and columns[3][0] >= 0):
        return {}
    labelled = bool(parts)
    start = 3 + 3 * len(parts)
    labels = ["label", "instance"]
    while start < len(columns):
        low, high, integral = columns[start]
        if not labelled or not integral or not LEAST_LABEL <= low <= high < _CLASSES or not labels:
            part, spec = _measured_column(start, low, high, whole=bool(integral))
        else:
            part = labels.pop(0)
            spec = {"role": "class" if part == "label" else "instance"} | (
                {"ignore": [int(low)]} if low < 0 else {}
            )
            spec |= (
                {"classes": f"{max(0, int(low))}..{max(0, int(high))}"} if part == "label" else {}
            )
        parts[part] = (start, Guess(spec, _COLUMNS))
        start += 1
    cloud, why = _cloud_guess(seen, seen.low or 0.0, seen.high or 0.0, "")
    parts["xyz"] = (0, Guess({"role": "points"} | cloud, tuple(part for part in why if part)))
    order = sorted(parts, key=lambda part: parts[part][0])
    words = " ".join(f"{part}:3" if part in {"xyz", "rgb", "normal"} else part for part in order)
    table_spec = {key: value for key, value in found.spec.items() if key != "range"} | {
        "columns": words
    }
    return {name: Guess(table_spec, ("columns from their values",))} | {
        f"{name}.{part}": parts[part][1] for part in order
    }


def _color_and_normal_columns(profile: FieldProfile) -> list[tuple[int, dict[str, Any]]]:
    """Return where colours and normals follow the coordinates of a point table, without a gap."""
    triples: list[tuple[int, dict[str, Any]]] = []
    for start in (3, 6):
        three = profile.columns[start : start + 3]
        if len(three) < 3 or len(triples) < (start - 3) // 3:
            break
        low = min(column[0] for column in three)
        high = max(column[1] for column in three)
        integral = all(column[2] for column in three)
        labels = sum(column[1] < _FEW_COLORS for column in three)
        if start in profile.unit:
            triples.append((start, {"role": "normal"}))
        elif low >= 0 and (
            (integral and _FEW_COLORS < high <= 255 and labels < 2) or (not integral and high <= 1)
        ):
            triples.append((start, {"role": "color", "range": "0..1" if high <= 1 else "0..255"}))
    return triples


def _measured_column(
    at: int, low: float, high: float, *, whole: bool
) -> tuple[str, dict[str, Any]]:
    share = low >= 0 and high <= 1 and not whole
    return (
        ("intensity", {"role": "value", "range": "0..1"})
        if share and at == 3
        else (f"column{at}", {})
    )


def _guess(name: str, profile: FieldProfile, axis: Axis | None) -> Guess:
    text_kinds = {"text", "json"} & profile.dtypes.keys()
    if text_kinds and len(profile.dtypes) > len(text_kinds):
        kinds = ", ".join(f"{kind} in {count:,}" for kind, count in sorted(profile.dtypes.items()))
        return Guess({}, (f"{kinds} samples: declare one of them",))
    if text_kinds:
        return _text(name, profile)
    spec, why = _kind(name, profile)
    role = spec.get("role")
    shape = _shape(profile, axis)
    if shape is not None:
        spec["shape"] = shape
    if axis is None and len(set(profile.lengths)) > 1 and (usual := fixed_length(profile)):
        deviating = sum(length != usual for length in profile.lengths)
        why.append(f"of another length in {deviating:,} of {len(profile.lengths):,} samples")
    if axis is not None and axis.astray:
        why.append(
            f"another length than the others with {axis.name} in {axis.astray:,} of "
            f"{profile.samples:,} samples"
        )
    if len(profile.dtypes) == 1 and next(iter(profile.dtypes)) in {"bool", "uint8"}:
        spec["dtype"] = next(iter(profile.dtypes))
    unfinite, broken = _nonfinite(profile)
    limits, reasons = _numbers(role, profile)
    return Guess(spec | unfinite | limits, (*why, *broken, *reasons))


def _kind(name: str, profile: FieldProfile) -> SpecAndReasons:
    """Return the role that name and values suggest, else the unit of angles."""
    role, matched = next(
        ((r, names) for r, names, fits in _ROLES if re.search(names, name) and fits(profile)),
        (None, ""),
    )
    rate = role in {"joint_angle", "position"} and re.search(RATE_NAMES, name)
    if role is not None and not rate and not (role == "timestamp" and re.search(PACE_NAMES, name)):
        return {"role": role}, [
            "role from name and values" if matched else "role from shape and values"
        ]
    return (
        ({"unit": "deg"}, ["unit from name and values"]) if _in_degrees(name, profile) else ({}, [])
    )


def _text(name: str, profile: FieldProfile) -> Guess:
    chat = _chat(profile)
    if chat is not None:
        return chat
    if "json" in profile.dtypes:
        return Guess(
            {"dtype": "json"}, (f"keys {', '.join(profile.keys[:4])}",) if profile.keys else ()
        )
    if profile.longest <= _SHORT and re.search(_IDS, name):
        return Guess({"role": "id", "dtype": "text"}, ("role from name and values",))
    spec: dict[str, Any] = {"role": "text"} if profile.longest > _SHORT else {"dtype": "text"}
    # Fewer empty texts are more likely a fault for a scan to find than intended.
    if 2 * profile.empty < profile.samples:
        return Guess(spec, ("text",))
    return Guess(
        spec | {"optional": True},
        ("text", f"empty in {profile.empty:,} of {profile.samples:,} samples"),
    )


def _chat(profile: FieldProfile) -> Guess | None:
    """Return the guess for messages with keys of OpenAI, ShareGPT or dialogue corpora, or None."""
    names = next((names for names in MESSAGE_NAMES if set(names) <= set(profile.keys)), ())
    why = (f"messages with {' and '.join(names)}",)
    if names == MESSAGE_NAMES[0]:
        return Guess({"role": "chat"}, why)
    threshold = max(1, _ANSWERED * profile.chats)
    answers = [
        name
        for name, count in profile.speakers.items()
        if name.lower() in _ANSWERS and count >= threshold
    ]
    if "speaker" in names and not any(
        name.lower() in {"human", "user"} for name in profile.speakers
    ):
        answers = []  # a play or a meeting: no speaker is a user
    if not names or not answers:
        return None
    # If another speaker answers, "system" gives instructions.
    answer = max(answers, key=lambda name: (name.lower() != "system", profile.speakers[name]))
    return Guess({"role": "chat", "train_on": answer}, why)


def preferences(guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Return the guesses, with each chosen text or chat preferred over its rejected counterpart."""
    result = dict(guesses)
    for name in guesses:
        pair = (name, name.replace("chosen", "rejected"))
        specs = [guesses[field].spec for field in pair if field in guesses]
        kinds = {spec.get("role", spec.get("dtype")) for spec in specs}
        if (
            len(set(pair)) == len(specs) == 2
            and kinds in ({"chat"}, {"text"})
            and re.fullmatch(_CHOSEN, name.lower())
        ):
            for field, preference in zip(pair, ({"preferred_over": pair[1]}, {}), strict=True):
                spec = {key: value for key, value in guesses[field].spec.items() if key != "dtype"}
                result[field] = Guess(spec | {"role": min(kinds)} | preference, guesses[field].why)
    return result


def _shape(profile: FieldProfile, axis: Axis | None) -> list[int | str] | None:
    if len(profile.ndims) != 1 or profile.item is None:
        return None
    if not profile.lengths:
        return list(profile.item)
    if axis is not None:
        return [axis.name, *profile.item]
    fixed = len(profile.lengths) > 2 and (
        len(set(profile.lengths)) == 1 or joints(profile) > 0 or fixed_length(profile) > 0
    )
    return [usual_length(profile) if fixed else "N", *profile.item]


# Non-finite numbers in half of the samples mean missing values if there are at least this many
# samples, or if at least this share of the numbers is non-finite.
_SEVERAL = 4
_MISSING = 0.05


def _nonfinite(profile: FieldProfile) -> SpecAndReasons:
    if not profile.unfinite:
        return {}, []
    why = f"NaN or infinity in {profile.unfinite:,} of {profile.samples:,} samples"
    if 2 * profile.unfinite >= profile.samples and (
        profile.samples >= _SEVERAL or profile.holes >= _MISSING
    ):
        return {"finite": False}, [why]
    # In fewer samples they are more likely a fault for a scan to find than intended.
    return {}, [why, "finite: false where that means missing"]


def _numbers(role: str | None, profile: FieldProfile) -> SpecAndReasons:
    """Return unit and ranges: measured, and widened so that the next sample does not just miss."""
    if profile.low is None or profile.high is None or role in _NO_RANGE:
        return {}, []
    return _GUESS_BY_ROLE.get(role or "", _range_guess)(
        profile, profile.low, profile.high, f"measured {profile.low:.3g}..{profile.high:.3g}"
    )


def _range_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    if profile.climbs >= _CLIMBS:  # a number or time of the sample: the next one exceeds all others
        return {}, [f"rises from sample to sample, {measured}"]
    # Otherwise the ends cannot be widened and written.
    wide = max(-low, high) < _FARTHEST and sys.float_info.min < high - low
    if not wide or "bool" in profile.dtypes:
        return {}, [measured]
    return {"range": _widened(low, high, _SPARE[profile.thinned], _limits(profile))}, [measured]


def _limits(profile: FieldProfile) -> tuple[float, float]:
    """Return the lowest and the highest value that the types of a field can hold."""
    kinds = [np.dtype(name) for name in profile.dtypes]
    bounds = [np.iinfo(kind) if kind.kind in "iu" else None for kind in kinds]
    bounded = [end for end in bounds if end is not None]
    if not bounded or len(bounded) < len(bounds):
        return -math.inf, math.inf
    return float(min(end.min for end in bounded)), float(max(end.max for end in bounded))


def _meters_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    del low, high
    return {"unit": "m"}, ["nothing says the unit", measured + _apart(profile)]


def _cloud_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    if len(profile.sizes) < 2 or profile.sizes[1] <= 0:
        return _meters_guess(profile, low, high, measured)
    small, large = profile.sizes
    size = f"{_round(small / 2, down=True):g}..{_round(large * 2):g}"
    why = f"size measured {small:.3g}..{large:.3g}, a factor 2 left on either side{_apart(profile)}"
    return {"unit": "m", "size": size}, ["nothing says the unit", why]


def _apart(profile: FieldProfile) -> str:
    small, large = profile.sizes or (0.0, 0.0)
    differs = large > _FAR * max(small, sys.float_info.min)
    return "; sizes so far apart that some may be in another unit" if differs else ""


def _joints_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    spec, why = _meters_guess(profile, low, high, measured)
    skeletons = ", ".join(sorted(SKELETONS))
    return spec, [*why, f"with a skeleton ({skeletons}) bones are judged, too"] if joints(
        profile
    ) == _HAND else why


def _angle_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    del profile
    unit = "rad" if max(abs(low), abs(high)) <= _TURN else "deg"
    return {"unit": unit}, [f"unit from the values, {measured}"]


def _class_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    spec: dict[str, Any] = {"classes": f"{max(0, int(low))}..{max(0, int(high))}"}
    return spec | _ignored_labels(profile), [measured + _no_label(low)]


def _instance_guess(
    profile: FieldProfile, low: float, high: float, measured: str
) -> SpecAndReasons:
    del high
    return (_ignored_labels(profile), [measured + _no_label(low)]) if low < 0 else ({}, [])


def _ignored_labels(profile: FieldProfile) -> dict[str, Any]:
    labels = profile.negative if len(profile.negative) <= DISTINCT else profile.negative[:1]
    return {"ignore": labels} if labels else {}


def _no_label(low: float) -> str:
    return f"; {low:.3g} is no label" if low < LEAST_LABEL else ""


def _color_guess(profile: FieldProfile, low: float, high: float, measured: str) -> SpecAndReasons:
    if low < 0:  # normalized to a mean of 0, or to -1..1
        return _range_guess(profile, low, high, measured)
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
    margin = (high - low) * share
    lower = low if low in {-1.0, 0.0} else _round(low - margin, down=True)
    upper = high if high in {0.0, 1.0} else _round(high + margin)
    if low > 0:  # lengths, counts, depths: no value crosses 0
        lower = max(lower, 0.0)
    if high < 0:
        upper = min(upper, 0.0)
    return f"{max(lower, limits[0]):.6g}..{min(upper, limits[1]):.6g}"


def _round(value: float, *, down: bool = False) -> float:
    """Return the value rounded to two digits, never up if `down`, else never down."""
    if not math.isfinite(value):
        return value
    if abs(value) < sys.float_info.min:  # subnormal: the power of ten below it may be 0
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    steps = math.floor(value / unit + 1e-9) if down else math.ceil(value / unit - 1e-9)
    return float(f"{steps * unit:.6g}")
