"""Check schema and pipeline files and format the faults for users.

A fault reads ``path:line, key: what was found; what is allowed``.
"""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from datacheck.errors import ManyLines, SchemaError
from datacheck.schema.grammar import ANGLE, LENGTH, SAMPLES, SPATIAL_ROLES, SUM, TIME, suggestion
from datacheck.schema.model import ANY, RECORDS, FieldSpec, Schema, parse_columns
from datacheck.schema.patterns import parse

Where = tuple[str | int, ...]
Complaint = tuple[Where, str]
Model = TypeVar("Model", bound=BaseModel)


class FileLine(NamedTuple):
    """A line of a file, 1-based."""

    origin: str
    line: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.line}"


Lines = Mapping[Where, FileLine]


def raise_complaints(complaints: Iterable[Complaint], lines: Lines) -> None:
    """Raise one error that lists all complaints in line order, one per line.

    Does nothing without complaints.

    Args:
        complaints: (key path, message); a path without a known line gets the line of its nearest
            known ancestor.
        lines: as `datacheck.schema.load.read_yaml` returns them.

    Raises:
        SchemaError: there is a complaint.
    """
    placed = sorted(
        (_place(where, lines), _dotted(where), message) for where, message in complaints
    )
    messages = list(
        dict.fromkeys(
            f"{place}{', ' + key if key else ''}: {message}" for place, key, message in placed
        )
    )
    if messages:
        raise SchemaError(ManyLines.of(messages))


def to_model(model: type[Model], data: object, lines: Lines, also: Sequence[str] = ()) -> Model:
    """Return `data` as a model.

    Args:
        model: a pydantic model that forbids unknown keys.
        data, lines: as `datacheck.schema.load.read_yaml` returns them.
        also: further top-level keys that the file may have; they count as suggestions for
            misspellings.

    Raises:
        SchemaError: `data` does not fit; lists every fault with its line, what is allowed, and the
            nearest known word.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise_complaints(
            [
                _translate(dict(detail), model, data, also)
                for detail in error.errors(include_url=False)
            ],
            lines,
        )
        raise  # unreachable: `raise_complaints` raises, as every ValidationError has details


def describe(value: object) -> str:
    """Return a value from a file in words: "the text 'x'", "the number 3", "a list"."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        bare = "true, yes or on" if value else "false, no or off"
        return f"{str(value).lower()} (a bare {bare})"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
    if isinstance(value, int | float):
        return f"the number {value!r}"
    return "a list" if isinstance(value, Sequence) else "a mapping"


def _place(where: Where, lines: Lines) -> FileLine:
    for size in range(len(where), -1, -1):
        if where[:size] in lines:
            return lines[where[:size]]
    return FileLine("<schema>", 1)


def _dotted(where: Where) -> str:
    dotted_key = ""
    for part in where:
        dotted_key += f"[{part}]" if isinstance(part, int) else f".{part}" if dotted_key else part
    return dotted_key


def _translate(
    detail: dict[str, Any], model: type[BaseModel], data: object, also: Sequence[str]
) -> Complaint:
    where, value = _known_part(detail["loc"], data)
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        known_keys = _keys_at(model, where[:-1])
        return where, _unknown_key(
            str(where[-1]), known_keys if where[:-1] else sorted([*known_keys, *also])
        )
    if kind == "missing":
        return where, f"{detail['loc'][-1]} is missing; it is required"
    if kind == "value_error":
        return where, str(context["error"])
    return (
        where,
        f"found {describe(value)}; {_allowed(kind, context, value) or _lowered(detail['msg'])}",
    )


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _allowed(kind: str, context: Mapping[str, Any], value: object) -> str:
    """Return what is allowed and a suggestion, or "" for errors without a wording here."""
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        near = suggestion(value, words) if isinstance(value, str) else ""
        return f"allowed: {', '.join(words) or context['expected']}{near}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    words_of = (words for start, words in _KINDS.items() if kind.startswith(start))
    allowed = next(words_of, "")
    return f"{allowed} is allowed{_hint(kind, value)}" if allowed else ""


_BOUNDS = {
    "greater_than": "a number above {gt} is allowed",
    "greater_than_equal": "a number of at least {ge} is allowed",
    "less_than_equal": "a number of at most {le} is allowed",
    "too_long": "at most {max_length} items are allowed",
}
_KINDS = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping of keys",
    "model": "a mapping of keys",
}


def _hint(kind: str, value: object) -> str:
    if value is None:
        return "; write {} for one without keys" if kind.startswith(("dict", "model")) else ""
    if kind.startswith("string"):
        return (
            ". Text with braces stands in quotes"
            if isinstance(value, Mapping)
            else ": put it in quotes"
        )
    meant_value = ""
    if kind.startswith("bool"):
        meant_value = _TRUTH.get(str(value).lower(), "")
    elif kind.startswith(("int", "float")):
        meant_value = _as_number(value)
    elif kind.startswith(("tuple", "list")) and isinstance(value, str | int | float):
        meant_value = f"[{value}]"
    return f". Did you mean {meant_value}?" if meant_value else ""


_TRUTH = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}


def _as_number(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d{1,3})?", value):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    return str(int(number)) if number.is_integer() else repr(number)


def _known_part(loc: tuple[Any, ...], data: object) -> tuple[Where, object]:
    """Return the longest prefix of `loc` that exists in `data`, and the value there.

    pydantic appends names of its own to `loc`.
    """
    where: list[str | int] = []
    for part in loc:
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        )
        if not inside:
            break
        data = data[part]  # type: ignore[index]  # checked just above
        where.append(part)
    return tuple(where), data


def _unknown_key(key: str, known_keys: Sequence[str]) -> str:
    return f"unknown key {key!r}" + (
        suggestion(key, known_keys) or f"; known are {', '.join(known_keys) or 'none'}"
    )


def _keys_at(model: type[BaseModel], where: Where) -> list[str]:
    """Return the keys that the model accepts at a path."""
    kind: Any = model
    for part in where:
        members = _classes_of(kind)
        fields = next(
            (m.model_fields for m in members if isinstance(m, type) and issubclass(m, BaseModel)),
            {},
        )
        if part in fields:
            kind = fields[str(part)].annotation
        else:
            kind = next(
                (typing.get_args(m)[-1] for m in members if typing.get_origin(m) is dict), None
            )
    for member in _classes_of(kind):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return sorted(member.model_fields)
    return []


def _classes_of(kind: Any) -> list[Any]:
    """Return the members of an annotation: ``Annotated[X, ...]`` is X, ``X | None`` is both."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _classes_of(typing.get_args(kind)[0])
    if origin in {types.UnionType, typing.Union}:
        return [member for arg in typing.get_args(kind) for member in _classes_of(arg)]
    return [kind]


_PLACED = SPATIAL_ROLES | {"pose"}
_WORDS = frozenset({"text", "chat", "captions"})
_LABELS = frozenset({"class", "instance", "segment", "labels", "tokens", "mask", "id"})
READ_BY: Mapping[str, frozenset[str]] = {
    "size": _PLACED,
    "distance": _PLACED | {"depth"},
    "near": _PLACED | {"depth"},
    "centered": frozenset({"points", "joints"}),
    "centered_on": frozenset({"points", "joints"}),
    "up": frozenset({"points"}),
    "extrinsics": frozenset({"points", "joints", "depth"}),
    "scale": frozenset({"depth", "points"}),
    "channels": frozenset({"depth"}),
    "origin": frozenset({"image"}),
    "robot": frozenset({"joint_angle", "action"}),
    "max_speed": frozenset({"position", "joint_angle", "rotvec", "action"}),
    "drives": frozenset({"action", "gripper"}),
    "lag": frozenset({"action", "gripper"}),
    "values": frozenset({"gripper", "value", "done", "reward"}),
    "posed_by": frozenset({"points"}),
    "rests": frozenset({"points"}),
    "indexes": frozenset({"faces"}),
    "encloses": frozenset({"boxes"}),
    "pixels_of": frozenset({"boxes", "value"}),
    "annotates": frozenset({"captions", "boxes", "id"}),
    "encodes": frozenset({"ground_truth"}),
    "share": frozenset({"mask", "depth"}),
    "preferred_over": frozenset({"chat", "text"}),
    "label_of": frozenset({"labels"}),
    "shift": frozenset({"labels"}),
    "frame": _PLACED | {"normal", "depth", "rotvec", "quaternion", "transform"},
    "intrinsics": SPATIAL_ROLES | {"depth", "image"},
    "image_size": SPATIAL_ROLES | {"depth", "image", "intrinsics"},
    "skeleton": frozenset({"joints"}),
    "order": frozenset({"quaternion", "pose"}),
    "ignore": _LABELS | {"image", "depth"},
    "classes": frozenset({"class", "segment", "labels", "tokens"}),
    "min_instances": frozenset({"instance"}),
    "min_points": frozenset({"instance", "points", "pose"}),
    "must_be": frozenset({"flag", "mask", "value", "class", "id"}),
    "speakers": frozenset({"chat"}),
    "train_on": frozenset({"chat"}),
    "min_trained_tokens": frozenset({"chat", "text", "tokens", "labels"}),
}
_NUMERIC = ("unit", "range", "sentinels", "columns")
_UNIT_KINDS: Mapping[str, Mapping[str, float]] = {
    "a length": LENGTH,
    "an angle": ANGLE,
    "a time": TIME,
}
_UNIT_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SPATIAL_ROLES, ("a length",)),
    "depth": ("a length",),
    "rotvec": ("an angle",),
    "joint_angle": ("an angle", "a length"),  # prismatic joints
    "timestamp": ("a time",),
}


def check(schema: Schema) -> list[Complaint]:
    """Return the faults of a schema whose keys are all well-formed, in no particular order."""
    names = _names(schema)
    return [
        *_samples(schema, names),
        *_columns(schema),
        *_fields(schema, schema.fields, ("fields",), names),
        *_sections(schema, names),
        *_when(schema, names),
        *_rules(schema),
    ]


def _names(schema: Schema) -> list[str]:
    """Return the placeholders of the file patterns and of groups inside a file, in order."""
    inside = schema.samples.each or ""
    patterns = [*schema.samples.files, inside] if inside.startswith("/") else schema.samples.files
    return list(dict.fromkeys(name for pattern in patterns for name in _placeholders(pattern)))


def _template(
    text: str, where: Where, allowed: Iterable[str], *, path: bool = True
) -> Iterator[Complaint]:
    known_names = list(dict.fromkeys(allowed))
    try:
        used = parse(text, "", path=path).names
    except SchemaError as error:
        yield where, str(error)
        return
    for name in used:
        if name not in known_names:
            near = (
                suggestion(name, known_names) or f"; known are {', '.join(known_names) or 'none'}"
            )
            yield where, f"nothing is called {{{name}}} in {text!r}{near}"


def _samples(schema: Schema, names: list[str]) -> Iterator[Complaint]:
    samples = schema.samples
    if not samples.files:
        yield ("samples", "files"), "no pattern; name the files, for example '*.npy'"
    for pattern in samples.files:
        yield from _template(pattern, ("samples", "files"), names)
    yield from _list(samples.list, samples.files, names) if samples.list is not None else ()
    yield from _counts(samples.records or samples.list or "") if samples.counts else ()
    yield from _records(samples.records, names) if samples.records is not None else ()
    yield from _companions(schema)
    for split, pattern in (
        (split, pattern) for split, patterns in samples.split.items() for pattern in patterns
    ):
        yield from _template(pattern, ("samples", "split", split), _placeholders(pattern))
    if samples.group is not None:
        yield from _template(samples.group, ("samples", "group"), [*names, "file"], path=False)
    yield from _each(samples.each, names)
    for root in schema.roots:
        if root in names or not re.fullmatch(r"[A-Za-z_]\w*", root):
            yield (
                ("roots", root),
                f"a root needs a name of its own, of letters, digits and _; found {root!r}",
            )
        for place in _places_of(schema.roots[root]):
            yield from _template(place, ("roots", root), ())


def _places_of(places: str | tuple[str, ...]) -> tuple[str, ...]:
    return (places,) * bool(places) if isinstance(places, str) else places


def _companions(schema: Schema) -> Iterator[Complaint]:
    known_names = [name for pattern in schema.samples.files for name in _placeholders(pattern)]
    for name, patterns in schema.samples.companions.items():
        where: Where = ("samples", "companions", name)
        if not patterns:
            yield where, "no pattern; name its files, for example '{split}/rgb/{id}.png'"
        for pattern in patterns:
            yield from _template(pattern, where, [*known_names, *schema.roots])
            if "*" in pattern:
                yield where, f"{pattern!r} may stand for many files; a companion is one file"


def _counts(lists: str | dict[str, str]) -> Iterator[Complaint]:
    paths = lists.values() if isinstance(lists, dict) else [lists]
    if not any(path.lower().endswith(RECORDS) for path in paths):
        yield (
            ("samples", "counts"),
            f"only the entries of a YAML or JSON list state numbers ({', '.join(RECORDS)})",
        )


def _records(records: str, names: list[str]) -> Iterator[Complaint]:
    where: Where = ("samples", "records")
    yield from _template(records, where, [*names, "split"])
    if not records.lower().endswith(RECORDS):
        yield where, f"{records!r} is no list of mappings; allowed are {', '.join(RECORDS)}"


def _each(each: str | None, names: list[str]) -> Iterator[Complaint]:
    where = ("samples", "each")
    if each is None or re.fullmatch(r"line|row|key|episode|ends:[^/\s].*", each):
        return
    if each.startswith("/") and each.strip("/"):
        yield from _template(each.strip("/"), where, names)
        return
    near = suggestion(each, ["line", "row", "key", "episode"])
    yield (
        where,
        f"cannot read {each!r}; allowed are line, row, key, episode, /group/pattern_* and "
        f"ends:path{near}",
    )


def _allows(pattern: str, split: str) -> bool:
    try:
        return parse(pattern, "").allows("split", split) is not False
    except SchemaError:
        return True  # reported elsewhere


def _list(
    lists: str | dict[str, str], files: Iterable[str], names: list[str]
) -> Iterator[Complaint]:
    where: Where = ("samples", "list")
    if isinstance(lists, str):
        yield from _template(lists, where, [*names, "split"])
        used = set(_placeholders(lists))
    else:
        for split, path in lists.items():
            yield from _template(path, (*where, split), ())
            if not any(_allows(pattern, split) for pattern in files):
                yield (*where, split), f"no pattern of files allows a split called {split!r}"
        used = {"split"}
    if not set(names) - used:
        yield (
            where,
            "its lines fill placeholders of files that its own name does not use, and there is none",
        )


def _placeholders(pattern: str) -> tuple[str, ...]:
    """Return the placeholders in a pattern; () if malformed, which is reported elsewhere."""
    try:
        return parse(pattern, "", path=False).names
    except SchemaError:
        return ()


def _columns(schema: Schema) -> Iterator[Complaint]:
    for name, (start, stop) in parse_columns(schema.columns).items() if schema.columns else ():
        shape = schema.fields[name].shape if name in schema.fields else None
        if shape is None:
            continue
        declared = shape[-1] if len(shape) > 1 else 1
        if isinstance(declared, int) and declared != stop - start:
            yield (
                ("fields", name, "shape"),
                f"{declared} column{'s' * (declared != 1)} in the shape, {stop - start} in "
                f"columns: "
                f"write {name}:{declared} there or another shape here",
            )


def _fields(
    schema: Schema, fields: Mapping[str, FieldSpec], base: Where, names: list[str]
) -> Iterator[Complaint]:
    for name, spec in fields.items():
        where = (*base, name)
        yield from _roles(spec, where)
        yield from _shapes(spec, where)
        yield from _references(schema, name, spec, where)
        if spec.file is not None:
            yield from _template(spec.file, (*where, "file"), [*names, *schema.roots])
        if spec.file is not None and spec.at:
            yield from _template(spec.at, (*where, "at"), names, path=False)
        yield from _attribute(schema, spec, where)
        yield from _places(schema, name, spec, where)


def _roles(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    given_keys = spec.model_fields_set
    for key, roles in READ_BY.items():
        if key in given_keys and getattr(spec, key) not in {None, ()} and spec.role not in roles:
            listed = ", ".join(sorted(roles))
            role_phrase = f"role {spec.role}" if spec.role else "no role"
            yield (*where, key), f"a field with {role_phrase} has no {key}; it is read for {listed}"
    for key in _NUMERIC if spec.is_text else ():
        if key in given_keys and getattr(spec, key) not in {None, ()}:
            yield (*where, key), f"a field of text has no {key}"
    if spec.role in _WORDS and spec.dtype not in {None, "text", "json"}:
        yield (*where, "dtype"), f"role {spec.role} is text or JSON, not {spec.dtype}"
    if spec.dtype in {"text", "json"} and spec.role not in {None, "id", "value", *_WORDS}:
        yield (*where, "dtype"), f"role {spec.role} is numbers, not {spec.dtype}"
    if spec.role == "depth" and (spec.near is None) != (spec.distance is None):
        yield (
            (*where, "near" if spec.distance is None else "distance"),
            "a depth map needs both near and distance",
        )
    yield from _unit(spec, where)


def _unit(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    kinds = _UNIT_OF.get(spec.role or "", ())
    if not kinds or spec.unit in {None, "px", "1"}:
        return
    if not any(spec.unit in _UNIT_KINDS[kind] for kind in kinds):
        allowed = ", ".join(unit for kind in kinds for unit in _UNIT_KINDS[kind])
        yield (
            (*where, "unit"),
            f"{spec.unit} is not {' or '.join(kinds)}, as role {spec.role} needs; allowed are "
            f"{allowed}",
        )


_LAST: Mapping[str, tuple[int, ...]] = {
    "quaternion": (4,),
    "intrinsics": (3, 4),
    "transform": (3, 4),
}


def _shapes(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    last = spec.shape[-1] if spec.shape else None
    if not isinstance(last, int):
        return
    allowed = _LAST.get(spec.role or "")
    if allowed and last not in allowed:
        yield (
            (*where, "shape"),
            f"the last axis of a {spec.role} is {' or '.join(map(str, allowed))}; found {last}",
        )
    if spec.columns:
        width = max(stop for _, stop in parse_columns(spec.columns).values())
        if width != last:
            yield (
                (*where, "columns"),
                f"{width} columns are named, but the last axis of the shape is {last}",
            )


_NAMES_FIELD: Mapping[str, frozenset[str]] = {
    "near": _PLACED,
    "intrinsics": frozenset({"intrinsics"}),
    "extrinsics": frozenset({"transform"}),
    "centered_on": _PLACED,
    "posed_by": frozenset({"pose", "transform"}),
    "drives": frozenset({"position", "joint_angle", "rotvec", "pose", "gripper", "value"}),
    "indexes": frozenset({"points"}),
    "encloses": frozenset({"points"}),
    "pixels_of": frozenset({"image"}),
    "annotates": frozenset({"instance", "segment"}),
    "preferred_over": frozenset({"chat", "text"}),
    "label_of": frozenset({"tokens"}),
}


def _references(schema: Schema, name: str, spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    for key, roles in _NAMES_FIELD.items():
        other = getattr(spec, key)
        if other is None:
            continue
        known_names = [n for n in schema.fields if n not in {name, ANY}]
        if other not in known_names:
            yield (
                (*where, key),
                f"no other field is called {other!r}{suggestion(other, known_names) or _listed(known_names)}",
            )
        elif schema.fields[other].role not in roles:
            yield (
                (*where, key),
                f"{other} has no role that fits; {key} names a field of role "
                f"{', '.join(sorted(roles))}",
            )


def _listed(known_names: Iterable[str]) -> str:
    return f"; there are {', '.join(known_names) or 'none'}"


_OF_EPISODES = ("@length", "@task", "@tasks")  # from the meta folder of a LeRobot dataset


def _attribute(schema: Schema, spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    """Check that an attribute's sample is a file, a group or an episode.

    Companions, lines, rows and slices of arrays have no attributes.
    """
    each = schema.samples.each
    if spec.at is None or not spec.at.startswith("@"):
        return
    if spec.file is not None and spec.file.lower().endswith(".xml"):
        return  # attributes of XML elements are ordinary values of the file
    if spec.file is not None:
        yield (
            (*where, "at"),
            f"{spec.at} names an attribute of the sample itself; a field with file has none",
        )
    elif each == "episode":
        if spec.at not in _OF_EPISODES:
            yield (*where, "at"), f"{spec.at} is no attribute of an episode{_listed(_OF_EPISODES)}"
    elif each is not None and not each.startswith("/"):
        yield (
            (*where, "at"),
            f"{spec.at} names an attribute; samples that are cut by {each} have none",
        )


def _places(schema: Schema, name: str, spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    """Refuse locations for column parts and for ``"*"``, which are not stored themselves."""
    field, _, part = name.rpartition(".")
    if field in schema.fields and schema.fields[field].columns and part not in schema.parts(field):
        known = list(schema.parts(field))
        yield where, f"{field} has no column {part!r}{suggestion(part, known) or _listed(known)}"
    if name != ANY and schema.part_of(name) is None:
        return
    for key in ("at", "file", "columns"):
        if getattr(spec, key) is not None:
            what = "stands for fields that are not listed" if name == ANY else f"is part of {field}"
            yield (*where, key), f"{name} {what} and cannot have {key}"


def _sections(schema: Schema, names: list[str]) -> Iterator[Complaint]:
    axes = {
        axis
        for spec in schema.fields.values()
        for axis in spec.shape or ()
        if isinstance(axis, str)
    }
    timed = any((spec.ragged or "").startswith("T") for spec in schema.fields.values())
    for key in ("episode", "windows"):
        if getattr(schema, key) is not None and not timed:
            yield (key,), f"{key} needs a field whose first axis is time: shape: [T, ...]"
    for where, counts in (
        (("attrs",), schema.attrs),
        (("samples", "counts"), schema.samples.counts),
    ):
        for name, axis in counts.items():
            axis = axis.removeprefix(SUM) if isinstance(axis, str) else axis
            if isinstance(axis, str) and axis not in {*axes, SAMPLES}:
                yield (
                    (*where, name),
                    f"no field has an axis {axis}{suggestion(axis, axes) or _listed(sorted(axes))}",
                )
    yield from _loader(schema)
    yield from _splits(schema, names)


def _loader(schema: Schema) -> Iterator[Complaint]:
    if schema.loader is None:
        return
    if not any(True for _ in schema.of_role("instance")):
        yield (
            ("loader",),
            "its steps count instances; declare the field that holds them with role: instance",
        )
    for step, role in (("voxel", "points"), ("drop_classes", "class"), ("keep_classes", "class")):
        if schema.loader.get(step) is not None and not any(True for _ in schema.of_role(role)):
            yield ("loader", step), f"this step needs a field of role {role}"
    captions = schema.loader.get("captions")
    if captions is not None and (
        captions not in schema.fields or schema.fields[captions].role != "captions"
    ):
        known = [name for name, _ in schema.of_role("captions")]
        yield (
            ("loader", "captions"),
            f"{captions!r} is no field of role "
            f"captions{suggestion(captions, known) or _listed(known)}",
        )


def _splits(schema: Schema, names: list[str]) -> Iterator[Complaint]:
    splits = schema.splits
    if splits is None:
        return
    known = [*names, "file", *(["group"] if schema.samples.group else []), *schema.stored]
    if splits.key not in known:
        near = suggestion(splits.key, known) or f"; known are {', '.join(known)}"
        yield (
            ("splits", "key"),
            f"{splits.key!r} is neither a placeholder of files, nor file, group or a field{near}",
        )
    if splits.disjoint and not _has_splits(schema, names):
        yield ("splits", "disjoint"), f"there are no splits to compare: {_NO_SPLIT}"


def _when(schema: Schema, names: list[str]) -> Iterator[Complaint]:
    for key, changes in schema.when.items():
        where: Where = ("when", key)
        match = re.fullmatch(r"split=(\S+)", key)
        if match is None:
            yield (
                where,
                f"cannot read {key!r}; a condition is written split=name, for example "
                f"split=evaluation",
            )
            continue
        if not _has_splits(schema, names):
            yield where, f"no sample has a split: {_NO_SPLIT}"
        unknown = [
            n
            for n, change in changes.items()
            if n not in schema.fields and not _is_new_field(change)
        ]
        for name in unknown:
            near = suggestion(name, schema.fields) or _listed(schema.fields)
            yield (*where, name), f"no field is called {name!r}{near}"
        changed = schema.for_split(match[1]) if not unknown else schema
        yield from _fields(
            changed, {n: changed.fields[n] for n in changes if n in changed.fields}, where, names
        )


_NO_SPLIT = "neither samples.files nor samples.list has a {split} placeholder"


def _has_splits(schema: Schema, names: list[str]) -> bool:
    lists = schema.samples.list or ""
    is_named = "split" in names or bool(schema.samples.split)
    return is_named or not isinstance(lists, str) or "split" in _placeholders(lists)


def _is_new_field(change: FieldSpec) -> bool:
    """Return whether a change declares a new field rather than keys of an existing one."""
    return bool({"role", "shape", "dtype"} & change.model_fields_set)


def _rules(schema: Schema) -> Iterator[Complaint]:
    for code in schema.rules:
        if not re.fullmatch(r"[A-Z]{2,8}\d{3}", code) and code not in schema.checks:
            yield (
                ("rules", code),
                f"cannot read {code!r}; a rule is named by its code, for example DC221",
            )
    for name in schema.checks:
        if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", name):
            yield ("checks",), f"cannot read {name!r}; a check is written package.module:function"
