"""Guesses the declarations of fields from their names and profiles.

`guess` declares one field: shape and type, role and limits (`roles`), the kind of a text. Some guesses
need the other fields: `guess_fields` adds the first axes (`axes`), the columns of tables of points,
and which texts are preferred. A guess is made where the values leave little doubt; a fault in few
samples is left to the scan rather than declared as allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from datacheck.infer.axes import Axis, name_axes
from datacheck.infer.inner_samples import RECORDS
from datacheck.infer.profile import LEAST_LABEL, FieldProfile
from datacheck.infer.roles import (
    CLOCK_NAMES,
    ID_NAMES,
    MOST_CLASSES,
    SPLIT_NAMES,
    class_range,
    guess_cloud,
    guess_limits,
    guess_role,
    has_integer_type,
    is_message_time,
)
from datacheck.infer.writing import Guess, class_numbers
from datacheck.schema.grammar import JOINT_COUNTS
from datacheck.schema.model import parse_columns
from datacheck.tokenization import MESSAGE_NAMES

# Field names that formats give to the only array, or to the only table, of a file. The names of the
# files then say more than the name of the field.
_ONE_ARRAY = "array"
_ONE_TABLE = "table"

# Field name for the content of a .bin that is not float32, and the reason to state for it.
UNTYPED = "bytes"
_UNTYPED_REASON = (
    "unknown: no float32 coordinates; labels, a mask or tokens, of uint8, uint16, uint32 or "
    "int64: say which"
)
# Field name for the sound in a .wav.
_SOUND = "samples"
# Columns of NaN that show that the cells of a table may be empty.
_FEWEST_EMPTY = 3
# Non-finite numbers in half of the samples mean missing values if there are at least this many
# samples, or if at least this share of the numbers is non-finite.
_FEWEST_WITH_GAPS = 4
_MISSING_SHARE = 0.05


def guess_fields(
    fields: Mapping[str, FieldProfile], samples: int, files: str, *, episodes: bool
) -> dict[str, Guess]:
    """Return the guesses for all fields, and for the columns of tables of points, by name.

    Args:
        fields: their profiles.
        samples: how many samples were profiled.
        files: names of folder and files.
        episodes: whether samples are episodes.
    """
    axes = name_axes(fields, episodes=episodes)
    guesses: dict[str, Guess] = {}
    for name, profile in sorted(fields.items()):
        declared = guess(name, profile, axes, samples, files)
        guesses |= _guess_point_table(name, profile, declared, files) or {name: declared}
    if files.lower().endswith(_TEXT_TABLES):
        guesses = _with_empty_cells(_without_ranges_of_some(guesses, fields), fields)
    guesses = _with_continuations(_with_preferences(guesses), fields)
    return _with_answers(_with_media(_with_tools(guesses), fields), fields)


def _without_ranges_of_some(
    guesses: Mapping[str, Guess], fields: Mapping[str, FieldProfile]
) -> dict[str, Guess]:
    """Return the guesses, without ranges where a few rows stand for all of a table.

    They do not show how far a column reaches; DC226 compares all of them.
    """
    return {
        name: declared.without("range")
        if name in fields and fields[name].thinned and fields[name].ndims.keys() == {"0"}
        else declared
        for name, declared in guesses.items()
    }


def _with_empty_cells(
    guesses: Mapping[str, Guess], fields: Mapping[str, FieldProfile]
) -> dict[str, Guess]:
    """Return the guesses, with NaN allowed in each column of a table whose cells may be empty.

    Those of a table whose rows are samples, and those of one that has several such columns.
    """
    empty = [name for name, declared in guesses.items() if declared.spec.get("finite") is False]
    allowed = Guess({"finite": False}, ("cells of this table may be empty",))
    return {
        name: declared.plus(allowed)
        if name in fields
        and name not in empty
        and fields[name].nonfinite_samples
        and (len(empty) >= _FEWEST_EMPTY or fields[name].ndims.keys() == {"0"})
        else declared
        for name, declared in guesses.items()
    }


def guess(
    name: str, profile: FieldProfile, axes: Mapping[str, Axis], samples: int, files: str = ""
) -> Guess:
    """Return the guessed declaration of a field.

    Args:
        name: of the field.
        profile: its profile.
        axes: the first axis by field.
        samples: how many samples were profiled.
        files: names of folder and files, which say more than the field name of a file's one array.
    """
    parent, _, last = name.rpartition("/")
    hint = files if name == _ONE_ARRAY else last
    if last.lower() == "position" and "joint" in parent.lower():  # sensor_msgs/JointState
        hint = f"joint_{last}"
    if name == UNTYPED and files.lower().endswith(".bin"):
        # Without a dtype, so that the field does not count as judged.
        declared = Guess({"shape": ["N"]}, (_UNTYPED_REASON,))
    elif {"text", "json"} & profile.dtypes.keys():
        declared = _guess_values(hint.lower(), profile)
    else:
        declared = _guess_array(hint.lower(), profile, axes.get(name))
    if name == _SOUND and files.lower().endswith(".wav") and has_integer_type(profile):
        declared = declared.without("range")  # a louder recording is no fault
    if is_message_time(hint.lower()) and 2 * profile.tied_samples > profile.samples:
        # No clock, and a range of this day's times would refuse another day's.
        spec = declared.without("role").without("range").spec
        declared = Guess(spec, ("several messages have one time",))
    if profile.samples >= samples:
        return declared
    why = f"in {profile.samples:,} of {samples:,} samples"
    return declared.plus(Guess({"optional": True}, (why,)))


def _guess_values(name: str, profile: FieldProfile) -> Guess:
    """Return the guess for texts or JSON values, none if some samples have arrays."""
    if profile.dtypes.keys() <= {"text", "json"}:
        return _guess_text(name, profile)
    kinds = ", ".join(f"{kind} in {count:,}" for kind, count in sorted(profile.dtypes.items()))
    return Guess({}, (f"{kinds} samples: declare one of them",))


def _guess_array(name: str, profile: FieldProfile, axis: Axis | None) -> Guess:
    role = guess_role(name, profile)
    return role.plus(
        _guess_shape(profile, axis),
        _guess_dtype(profile),
        _guess_finite(profile),
        guess_limits(role.spec.get("role"), profile),
    )


def _guess_shape(profile: FieldProfile, axis: Axis | None) -> Guess:
    why = _remark_on_lengths(profile, axis)
    if len(profile.ndims) != 1 or profile.item is None:
        return Guess({}, why)
    if not profile.lengths:
        shape = list(profile.item)
        return Guess({"shape": shape}, why)
    first = _fixed_length(profile) if axis is None else axis.name
    return Guess({"shape": ["N" if first is None else first, *profile.item]}, why)


def _fixed_length(profile: FieldProfile) -> int | None:
    """Return the length that nearly all samples have, None if it is open or the samples are few."""
    is_fixed = (
        len(set(profile.lengths)) == 1 or profile.joint_count > 0 or profile.fixed_row_length > 0
    )
    return profile.usual_length if is_fixed and len(profile.lengths) > 2 else None


def _remark_on_lengths(profile: FieldProfile, axis: Axis | None) -> tuple[str, ...]:
    """Return in how many samples the length differs from the guessed one."""
    if axis is not None and axis.deviating:
        deviating_share = f"{axis.deviating:,} of {profile.samples:,} samples"
        return (f"another length than the others with {axis.name} in {deviating_share}",)
    usual = profile.fixed_row_length if axis is None else 0
    if usual:
        deviating = sum(length != usual for length in profile.lengths)
        return (f"of another length in {deviating:,} of {len(profile.lengths):,} samples",)
    return ()


def _guess_dtype(profile: FieldProfile) -> Guess:
    """Return the type of flags and bytes; other types stay undeclared."""
    dtypes = list(profile.dtypes)
    return Guess({"dtype": dtypes[0]}) if dtypes in (["bool"], ["uint8"]) else Guess()


def _guess_finite(profile: FieldProfile) -> Guess:
    """Return that NaN is allowed if it means missing values in most samples."""
    if not profile.nonfinite_samples:
        return Guess()
    why = f"NaN or infinity in {profile.nonfinite_samples:,} of {profile.samples:,} samples"
    are_gaps = profile.samples >= _FEWEST_WITH_GAPS or profile.nonfinite_share >= _MISSING_SHARE
    if are_gaps and 2 * profile.nonfinite_samples >= profile.samples:
        return Guess({"finite": False}, (why,))
    # In fewer samples they are more likely a fault for a scan to find than intended.
    return Guess({}, (why, "finite: false where that means missing"))


# ----------------------------------------------------------------------------- texts and JSON values

# Bytes of a text up to which it rather is a name or a class: only longer texts get the role text.
_SHORT_TEXT = 80
# Fields of Alpaca, TRL and question answering: their texts are trained on, however short.
_TRAINED_NAMES = frozenset(
    {"instruction", "input", "output", "prompt", "completion", "response", "question", "answer"}
)
_CONTINUING_NAMES = frozenset({"completion", "response"})
_PROMPT_NAMES = frozenset({"prompt", "conversations", "messages"})
# Keys of a JSON value that the reason names.
_SHOWN_KEYS = 4
# Speakers that answer a user, and the user.
_ANSWERING = frozenset({"gpt", "assistant", "model", "bot", "agent", "system"})
_ASKING = frozenset({"human", "user"})
# Share of the chats that must have an answer. With fewer, another speaker answers, or they are no
# chats.
_ANSWERED_CHATS = 0.9
# Names of answers only, not "chosen_model": the two answers differ, all else may be equal.
_ANSWER_NAMES = r"(?:answer|response|reply|completion|output|text|message|summary)s?"
_CHOSEN_NAMES = rf"(?:{_ANSWER_NAMES}[_-]?)?chosen(?:[_-]?{_ANSWER_NAMES})?"


def _guess_text(name: str, profile: FieldProfile) -> Guess:
    """Return the guess for a field of texts or JSON values.

    Args:
        name: lower-case name of the field.
        profile: its profile.
    """
    chat = _guess_chat(profile)
    if chat is not None:
        return chat
    if "json" in profile.dtypes:
        keys = profile.record_keys[:_SHOWN_KEYS]
        return Guess({"dtype": "json"}, (f"keys {', '.join(keys)}",) if keys else ())
    is_short = profile.longest_text <= _SHORT_TEXT and name not in _TRAINED_NAMES
    if is_short and re.search(f"{ID_NAMES}|{SPLIT_NAMES}", name):
        return Guess({"role": "id", "dtype": "text"}, ("role from name and values",))
    text = Guess({"dtype": "text"} if is_short else {"role": "text"}, ("text",))
    # Fewer empty texts are more likely a fault for a scan to find than intended.
    if 2 * profile.empty_texts < profile.samples:
        return text
    why = f"empty in {profile.empty_texts:,} of {profile.samples:,} samples"
    return text.plus(Guess({"optional": True}, (why,)))


def _guess_chat(profile: FieldProfile) -> Guess | None:
    """Return the guess for messages with keys of OpenAI, ShareGPT or dialogue corpora, or None."""
    names = _message_keys(profile)
    if not names:
        return None
    why = (f"messages with {' and '.join(names)}",)
    if names == MESSAGE_NAMES[0]:  # OpenAI's keys: the assistant answers
        return Guess({"role": "chat"}, why)
    answering = _answering_speaker(names, profile)
    return Guess({"role": "chat", "train_on": answering}, why) if answering else None


def _message_keys(profile: FieldProfile) -> Sequence[str]:
    """Return the known keys of speaker and content that the messages have, or ()."""
    for names in MESSAGE_NAMES:
        if set(names) <= set(profile.record_keys):
            return names
    return ()


def _answering_speaker(names: Sequence[str], profile: FieldProfile) -> str:
    """Return the speaker that answers a user in nearly all chats, or ""."""
    has_user = any(name.lower() in _ASKING for name in profile.speakers)
    if "speaker" in names and not has_user:  # a play or a meeting
        return ""
    threshold = max(1, _ANSWERED_CHATS * profile.chat_samples)
    answering = [
        name
        for name, samples in profile.speakers.items()
        if name.lower() in _ANSWERING and samples >= threshold
    ]
    # If another speaker answers, "system" gives instructions.
    others = [name for name in answering if name.lower() != "system"] or answering
    return max(others, key=profile.speakers.__getitem__, default="")


def _with_preferences(guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Return the guesses, with each chosen text or chat preferred over its rejected counterpart."""
    result = dict(guesses)
    for name in guesses:
        rejected = name.replace("chosen", "rejected")
        if rejected not in guesses or not re.fullmatch(_CHOSEN_NAMES, name.lower()):
            continue
        kind = _text_kind(guesses[name])
        if rejected == name or kind is None or kind != _text_kind(guesses[rejected]):
            continue
        role = Guess({"role": kind})
        preferred = Guess({"preferred_over": rejected})
        result[name] = guesses[name].without("dtype").plus(role, preferred)
        result[rejected] = guesses[rejected].without("dtype").plus(role)
    return result


def _with_continuations(
    guesses: Mapping[str, Guess], fields: Mapping[str, FieldProfile]
) -> dict[str, Guess]:
    """Return the guesses, with the chats of answers that continue the chat of their prompt.

    TRL names them ``completion``, or ``chosen`` and ``rejected``; LLaMA-Factory keeps the prompt of
    a preference as ``conversations``, which may hold questions only.
    """
    result = dict(guesses)
    prompts = sorted(name for name in fields.keys() & _PROMPT_NAMES if _message_keys(fields[name]))
    preferred = {name for name, guess in guesses.items() if "preferred_over" in guess.spec}
    answers = preferred | {guesses[name].spec["preferred_over"] for name in preferred}
    if "prompt" in prompts:
        answers |= guesses.keys() & _CONTINUING_NAMES
    chats = sorted(name for name in answers if _text_kind(guesses[name]) == "chat")
    if len(prompts) != 1 or not chats:
        return result
    (prompt,) = prompts
    if _text_kind(guesses[prompt]) != "chat":  # it has questions only
        result[prompt] = Guess({"role": "chat"}, guesses[prompt].why)
    for name in chats:
        result[name] = guesses[name].plus(Guess({"continues": prompt}))
    return result


def _with_tools(guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Return the guesses, with the field ``tools`` as the tools that each chat may call."""
    tools = guesses.get("tools", Guess())
    chats = [name for name, guess in guesses.items() if _text_kind(guess) == "chat"]
    if tools.spec.get("dtype") != "json" and _text_kind(tools) != "text":
        return dict(guesses)
    named = {name: guesses[name].plus(Guess({"tools": "tools"})) for name in chats}
    if named and tools.spec.get("dtype") != "json":  # JSON text is no prose to judge
        named["tools"] = tools.without("role").plus(Guess({"dtype": "text"}))
    return {**guesses, **named}


def _with_media(
    guesses: Mapping[str, Guess], fields: Mapping[str, FieldProfile]
) -> dict[str, Guess]:
    """Return the guesses, with the fields of pictures, videos and sounds that chats refer to.

    They are called ``images`` or ``image``, and so on. Chats without any mark name none: the
    trainer then puts the pictures into the chat itself, as TRL does.
    """
    result = dict(guesses)
    for name in (name for name, guess in guesses.items() if _text_kind(guess) == "chat"):
        for key in fields[name].marked if name in fields else ():
            given = next((field for field in (key, key[:-1]) if field in guesses), None)
            if given is not None:
                result[name] = result[name].plus(Guess({key: given}))
    return result


# Names of answers of extractive question answering, of the text that they are spans of, and of the
# flag of questions without an answer.
_ANSWERS = ("answers", "answer")
_CONTEXTS = ("context", "passage", "paragraph")
_UNANSWERABLE = "is_impossible"
_SPAN_KEYS = frozenset({"text", "answer_start"})


def _with_answers(
    guesses: Mapping[str, Guess], fields: Mapping[str, FieldProfile]
) -> dict[str, Guess]:
    """Return the guesses, with the answers of SQuAD's form as spans of their context."""
    result = dict(guesses)
    answers = next((name for name in _ANSWERS if name in fields), "")
    context = next((name for name in _CONTEXTS if _text_kind(guesses.get(name, Guess()))), "")
    if not context or not answers or not set(fields[answers].record_keys) >= _SPAN_KEYS:
        return result
    spans = {"role": "answers", "spans_of": context}
    if _UNANSWERABLE in guesses:
        spans["unanswerable"] = _UNANSWERABLE
    result[context] = guesses[context].without("dtype").plus(Guess({"role": "text"}))
    why = ("texts with their position, as in SQuAD",)
    result[answers] = guesses[answers].plus(Guess(spans, why))
    return result


# Fields of an annotation of Pascal VOC, as the reader of XML names them.
_VOC_FIELDS = frozenset({"boxes", "names", "size"})


def with_picture_boxes(guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Return the guesses, with the boxes and sizes of Pascal VOC as those of the one picture."""
    pictures = [name for name, guess in guesses.items() if guess.spec.get("role") == "image"]
    if len(pictures) != 1 or not guesses.keys() >= _VOC_FIELDS:
        return dict(guesses)
    boxes = {"role": "boxes", "shape": ["N", 4], "unit": "px", "pixels_of": pictures[0]}
    size = {"role": "value", "shape": [2], "pixels_of": pictures[0]}
    why = ("named as in annotations of Pascal VOC",)
    return {
        **guesses,
        "boxes": guesses["boxes"].without("range").plus(Guess(boxes, why)),
        "size": guesses["size"].without("range").plus(Guess(size, why)),
    }


def _text_kind(guess: Guess) -> str | None:
    """Return "chat" or "text", None for other fields."""
    kind = guess.spec.get("role", guess.spec.get("dtype"))
    return kind if kind in {"chat", "text"} else None


# ---------------------------------------------------------------------------------- tables of points

# Names of clouds and of sensors that record them.
_CLOUD_NAMES = r"point|xyz|cloud|^pc|_pc|lidar|velodyne|scan|\.pts|\.xyz"
# Coordinates beyond it are no shares of 1, such as probabilities.
_MOST_SHARE = 1.5
# Colours of 0..255 reach this value; columns with a smaller maximum are classes.
_FEWEST_COLORS = 64
# Columns of a cloud with a name and coordinates, but without colours and normals: one or two more.
_MEASURED_TABLE_WIDTHS = {4, 5}


class _PointColumn(NamedTuple):
    low: float
    high: float
    is_whole: bool


@dataclass(frozen=True)
class _ColumnGroup:
    """Consecutive columns of the table that are one thing."""

    name: str
    start: int
    width: int
    spec: dict[str, Any]
    why: tuple[str, ...] = ("from its values",)


def _guess_point_table(
    name: str, profile: FieldProfile, table: Guess, files: str = ""
) -> dict[str, Guess]:
    """Return the guesses for a table of points and for its columns, by name.

    Args:
        name: name of the field.
        profile: its profile.
        table: the guess for the whole field.
        files: names of folder and files.

    Returns:
        {} where the values do not show that the first three columns are coordinates.
    """
    columns = [_PointColumn(low, high, bool(whole)) for low, high, whole in profile.columns]
    if not _is_plain_table(table) or not columns or all(c.is_whole for c in columns[:3]):
        return {}
    is_only = name in {_ONE_ARRAY, _ONE_TABLE}
    is_named = re.search(_CLOUD_NAMES, (files if is_only else name).lower()) is not None
    triples: list[_ColumnGroup] = []
    if is_named or (is_only and not _are_shares(columns[:3])):
        triples = _find_triples(columns, profile.unit_triples)
    if not triples and not (is_named and _has_measured_column(columns)):
        return {}
    parts = [
        _coordinates(profile),
        *triples,
        *_other_columns(columns, 3 + 3 * len(triples), profile, has_labels=bool(triples)),
    ]
    words = [part.name if part.width == 1 else f"{part.name}:{part.width}" for part in parts]
    cut = Guess(
        table.without("range").spec | {"columns": " ".join(words)}, ("columns from their values",)
    )
    return {name: cut} | {f"{name}.{part.name}": Guess(part.spec, part.why) for part in parts}


def _is_plain_table(table: Guess) -> bool:
    """Tell whether nothing but shape and range is known of a field of two axes without time."""
    shape = table.spec.get("shape") or []
    is_table = len(shape) == 2 and shape[0] != "T"
    return is_table and table.spec.keys() <= {"shape", "range", "finite", "optional"}


def _are_shares(columns: Sequence[_PointColumn]) -> bool:
    return min(c.low for c in columns) >= 0 and max(c.high for c in columns) <= _MOST_SHARE


def _has_measured_column(columns: Sequence[_PointColumn]) -> bool:
    """Tell whether an intensity or the like follows the coordinates."""
    return len(columns) in _MEASURED_TABLE_WIDTHS and columns[3].low >= 0


def _coordinates(profile: FieldProfile) -> _ColumnGroup:
    cloud = guess_cloud(profile)
    return _ColumnGroup("xyz", 0, 3, {"role": "points"} | cloud.spec, cloud.why)


def _find_triples(
    columns: Sequence[_PointColumn], unit_triples: Sequence[int]
) -> list[_ColumnGroup]:
    """Return the colours and normals that follow the coordinates without a gap."""
    triples: list[_ColumnGroup] = []
    for start in (3, 6):
        triple = columns[start : start + 3]
        if len(triple) < 3:
            break
        if start in unit_triples:
            part = _ColumnGroup("normal", start, 3, {"role": "normal"})
        elif color_range := _color_range(triple):
            part = _ColumnGroup("rgb", start, 3, {"role": "color", "range": color_range})
        else:
            break
        if part.name in {known.name for known in triples}:
            break
        triples.append(part)
    return triples


def _color_range(triple: Sequence[_PointColumn]) -> str:
    """Return the range of three columns of colours, "" if they are none."""
    high = max(c.high for c in triple)
    if min(c.low for c in triple) < 0:
        return ""
    if not all(c.is_whole for c in triple):
        return "0..1" if high <= 1 else ""
    class_columns = sum(c.high < _FEWEST_COLORS for c in triple)
    return "0..255" if _FEWEST_COLORS < high <= 255 and class_columns < 2 else ""


def _other_columns(
    columns: Sequence[_PointColumn], start: int, profile: FieldProfile, *, has_labels: bool
) -> Iterator[_ColumnGroup]:
    """Yield the columns behind colours and normals: labels first, then measurements.

    Args:
        columns: all columns of the table.
        start: where the others begin.
        profile: of the table.
        has_labels: whole numbers are labels, because the table has colours or normals.
    """
    free_names = ["label", "instance"] if has_labels else []
    for number, column in enumerate(columns[start:], start):
        is_label = column.is_whole and column.low >= LEAST_LABEL and column.high < MOST_CLASSES
        if is_label and free_names:
            yield _label_column(free_names.pop(0), number, column, profile)
        elif number == 3 and not column.is_whole and column.low >= 0 and column.high <= 1:
            yield _ColumnGroup("intensity", number, 1, {"role": "value", "range": "0..1"})
        else:
            yield _ColumnGroup(f"column{number}", number, 1, {})


def _label_column(
    name: str, number: int, column: _PointColumn, profile: FieldProfile
) -> _ColumnGroup:
    spec: dict[str, Any] = {"role": "class" if name == "label" else "instance"}
    if column.low < 0:
        spec["ignore"] = [int(column.low)]
    if name == "label":
        spec["classes"] = class_range(column.low, column.high, profile)
    return _ColumnGroup(name, number, 1, spec)


def table_guesses(
    columns: str, classes: Sequence[int], *, of_rows: bool, named: bool, has_gaps: bool
) -> dict[str, Guess]:
    """Return the guesses for a table of numbers whose rows are samples or points of tracks.

    Args:
        columns: names of the columns, as a schema has them.
        classes: numbers of the classes; () where not all are known.
        of_rows: whether each row is a sample, not each track.
        named: whether a file names the classes.
        has_gaps: whether points of tracks are missing: a long step is then no jump.
    """
    width = max(stop for _, stop in parse_columns(columns).values())
    axes: list[str | int] = [width] if of_rows else ["T", width]
    fields = {
        _ONE_TABLE: Guess({"shape": axes, "columns": columns}, ("columns from their values",))
    }
    for name in parse_columns(columns):
        if name == "frame":
            fields[f"{_ONE_TABLE}.frame"] = Guess(
                {"role": "timestamp"}, ("rises along each track",)
            )
        elif name == "position" and not has_gaps:
            fields[f"{_ONE_TABLE}.position"] = Guess(
                {"role": "position"}, ("moves along each track",)
            )
        elif name == "label" and of_rows:
            spec = {"role": "class"} | ({"classes": class_numbers(classes)} if classes else {})
            why = "as many as a file beside it names" if named else "from its values"
            fields[f"{_ONE_TABLE}.label"] = Guess(spec, (why,))
        elif name == "values":
            fields[f"{_ONE_TABLE}.values"] = Guess()
    return fields


# ------------------------------------------------------------------------------ samples inside files

# Files of many samples are few (train.npy, val.npy, test.npy) and have many rows; a sequence of
# steps is shorter, or there are more files.
_MOST_SPLIT_FILES = 6
_FEWEST_SAMPLE_ROWS = 256
# Names of token columns.
_TOKEN_NAMES = r"(?:input|token)_ids|tokens"
_TABLE_ENDINGS = {".parquet", ".arrow", ".feather"}
_TEXT_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def inner_samples(fields: Mapping[str, FieldProfile], files: int, ending: str) -> str:
    """Return ``samples.each`` where few files more likely hold many samples than one each, or "".

    Args:
        fields: their profiles, with each file read as one sample.
        files: how many files there are.
        ending: of their names.
    """
    ending = ending.lower()
    if ending in _TABLE_ENDINGS:
        return "row" if _is_table_of_samples(fields, files) else ""
    if ending in _TEXT_TABLES and not any(map(_is_rising_clock, fields, fields.values())):
        return "row" if _is_table_of_samples(fields, files) else ""
    if files > _MOST_SPLIT_FILES or len(fields) != 1:
        return ""
    ((name, profile),) = fields.items()
    if name == RECORDS and ending == ".json" and profile.record_keys:
        return "line"
    return "row" if name == _ONE_ARRAY and _are_skeletons(profile) else ""


def _is_rising_clock(name: str, profile: FieldProfile) -> bool:
    """Tell whether a column is the time of the rows, which then follow one another."""
    return re.search(CLOCK_NAMES, name.lower()) is not None and profile.mostly_rising


def _is_table_of_samples(fields: Mapping[str, FieldProfile], files: int) -> bool:
    """Tell whether a table has a column of tokens, of texts that differ, or of shuffled words.

    Words are no evidence in many alike files, or beside numbers that follow one another: these are
    recordings.
    """
    if any(re.fullmatch(_TOKEN_NAMES, name) for name in fields):
        return True
    # At least half: a shard may be empty.
    columns = [profile for profile in fields.values() if profile.samples]
    if any(profile.samples <= 2 * profile.varied_lists for profile in columns):
        return True
    if files > _MOST_SPLIT_FILES or any(p.samples <= 2 * p.smooth_samples for p in columns):
        return False
    return any(profile.samples <= 2 * profile.shuffled_lists for profile in columns)


def _are_skeletons(profile: FieldProfile) -> bool:
    """Tell whether the rows of an array are many skeletons."""
    item = profile.item or []
    is_skeleton = len(item) == 2 and item[0] in JOINT_COUNTS and item[1] == 3
    return is_skeleton and min(profile.lengths, default=0) >= _FEWEST_SAMPLE_ROWS
