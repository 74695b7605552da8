"""Checks whether the keys of a schema fit one another.

Each value is already well-formed (`datacheck.schema.model`). Here a key must be one that its
field's role has, a reference must name a field of a fitting role, a placeholder must occur in the
file patterns, and so on. Each check yields its faults as (key path, message).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from datacheck.errors import SchemaError
from datacheck.masks import TEMPLATES
from datacheck.schema.complaints import Complaint, Where
from datacheck.schema.grammar import ANGLE, LENGTH, SAMPLES, SPATIAL_ROLES, SUM, TIME, suggestion
from datacheck.schema.model import ANY, RECORDS, FieldSpec, Schema, parse_columns
from datacheck.schema.patterns import parse

_PLACED = SPATIAL_ROLES | {"pose"}
_TEXTS = frozenset({"text", "chat", "captions", "answers"})
_LABELS = frozenset({"class", "instance", "segment", "labels", "tokens", "mask", "id"})


def check(schema: Schema) -> list[Complaint]:
    """Return the faults of a schema whose keys are all well-formed, in no particular order."""
    placeholders = _placeholders_of_samples(schema)
    return [
        *_check_samples(schema, placeholders),
        *_check_columns(schema),
        *_check_fields(schema, schema.fields, ("fields",), placeholders),
        *_check_time(schema),
        *_check_counted_axes(schema),
        *_check_loader(schema),
        *_check_splits(schema, placeholders),
        *_check_when(schema, placeholders),
        *_check_tokenizer(schema),
        *_check_rules(schema),
    ]


# ------------------------------------------------------------------------------------------ patterns


def _placeholders_of_samples(schema: Schema) -> list[str]:
    """Return the placeholders of the file patterns and of groups inside a file, in order."""
    patterns = list(schema.samples.files)
    if schema.samples.each is not None and schema.samples.each.startswith("/"):
        patterns.append(schema.samples.each)
    return list(dict.fromkeys(name for text in patterns for name in _placeholders(text)))


def _placeholders(pattern: str) -> tuple[str, ...]:
    """Return the placeholders in a pattern; () if malformed, which is reported elsewhere."""
    try:
        return parse(pattern, "", path=False).names
    except SchemaError:
        return ()


def _check_pattern(
    pattern: str, where: Where, placeholders: Iterable[str], *, path: bool = True
) -> Iterator[Complaint]:
    """Check that a pattern is well-formed and has these placeholders only."""
    try:
        used = parse(pattern, "", path=path).names
    except SchemaError as error:
        yield where, str(error)
        return
    known = list(dict.fromkeys(placeholders))
    for name in used:
        if name not in known:
            yield where, f"unknown placeholder {{{name}}} in {pattern!r}{_near(name, known)}"


def _near(name: str, known: Sequence[str]) -> str:
    return suggestion(name, known) or f"; known are {', '.join(known) or 'none'}"


def _existing(name: str, known: Iterable[str]) -> str:
    names = list(known)
    return suggestion(name, names) or f"; there are {', '.join(names) or 'none'}"


# ------------------------------------------------------------------------------------------- samples


def _check_samples(schema: Schema, placeholders: list[str]) -> Iterator[Complaint]:
    samples = schema.samples
    if not samples.files:
        yield ("samples", "files"), "no pattern; name the files, for example '*.npy'"
    for pattern in samples.files:
        yield from _check_pattern(pattern, ("samples", "files"), placeholders)
    for split, patterns in samples.split.items():
        for pattern in patterns:
            # These patterns only tell the split, so their placeholders are free.
            yield from _check_pattern(pattern, ("samples", "split", split), _placeholders(pattern))
    if samples.group is not None:
        group_names = [*placeholders, "file"]
        yield from _check_pattern(samples.group, ("samples", "group"), group_names, path=False)
    yield from _check_lists(schema, placeholders)
    yield from _check_records(schema, placeholders)
    yield from _check_companions(schema)
    yield from _check_each(samples.each, placeholders)
    yield from _check_roots(schema, placeholders)


def _check_lists(schema: Schema, placeholders: list[str]) -> Iterator[Complaint]:
    lists = schema.samples.list
    where: Where = ("samples", "list")
    if lists is None:
        return
    if isinstance(lists, str):
        yield from _check_pattern(lists, where, [*placeholders, "split"])
        used = set(_placeholders(lists))
    else:
        for split, path in lists.items():
            yield from _check_pattern(path, (*where, split), ())
            if not any(_allows(pattern, split) for pattern in schema.samples.files):
                yield (*where, split), f"no pattern of files allows a split called {split!r}"
        used = {"split"}
    if used.issuperset(placeholders):
        yield (
            where,
            "the lines of a list name what placeholders of files stand for, but the name of the "
            "list already uses all of them",
        )


def _allows(pattern: str, split: str) -> bool:
    try:
        return parse(pattern, "").allows("split", split) is not False
    except SchemaError:
        return True  # reported elsewhere


def _check_records(schema: Schema, placeholders: list[str]) -> Iterator[Complaint]:
    records = schema.samples.records
    if schema.samples.counts and not _may_count(records or schema.samples.list or ""):
        yield (
            ("samples", "counts"),
            f"only a YAML or JSON list has numbers to compare ({', '.join(RECORDS)})",
        )
    if records is None:
        return
    where: Where = ("samples", "records")
    yield from _check_pattern(records, where, [*placeholders, "split"])
    if not records.lower().endswith(RECORDS):
        yield where, f"{records!r} cannot hold mappings; allowed are {', '.join(RECORDS)}"


def _may_count(lists: str | dict[str, str]) -> bool:
    paths = lists.values() if isinstance(lists, dict) else [lists]
    return any(path.lower().endswith(RECORDS) for path in paths)


def _check_companions(schema: Schema) -> Iterator[Complaint]:
    file_names = [name for pattern in schema.samples.files for name in _placeholders(pattern)]
    for name, patterns in schema.samples.companions.items():
        where: Where = ("samples", "companions", name)
        if not patterns:
            yield where, "no pattern; name its files, for example '{split}/rgb/{id}.png'"
        for pattern in patterns:
            yield from _check_pattern(pattern, where, [*file_names, *schema.roots])
            if "*" in pattern:
                yield where, f"{pattern!r} may match many files; a companion is one file"


def _check_each(each: str | None, placeholders: list[str]) -> Iterator[Complaint]:
    where: Where = ("samples", "each")
    if each is None or re.fullmatch(r"line|row|key|episode|ends:[^/\s].*", each):
        return
    if each.startswith("/") and each.strip("/"):
        yield from _check_pattern(each.strip("/"), where, placeholders)
        return
    near = suggestion(each, ["line", "row", "key", "episode"])
    yield (
        where,
        f"cannot read {each!r}; allowed are line, row, key, episode, /group/pattern_* and "
        f"ends:path{near}",
    )


def _check_roots(schema: Schema, placeholders: list[str]) -> Iterator[Complaint]:
    for root, places in schema.roots.items():
        where: Where = ("roots", root)
        if root in placeholders or not re.fullmatch(r"[A-Za-z_]\w*", root):
            yield (
                where,
                f"found {root!r}; the name of a root has letters, digits and _ only, and is no "
                f"placeholder of files",
            )
        for place in (places,) if isinstance(places, str) else places:
            # "" is a root without a default place, which is allowed for a single place only.
            if place or isinstance(places, tuple):
                yield from _check_pattern(place, where, ())


# -------------------------------------------------------------------------------------------- fields


def _check_columns(schema: Schema) -> Iterator[Complaint]:
    """Check that the columns of files are as wide as the shapes of the fields in them."""
    if not schema.columns:
        return
    for name, (start, stop) in parse_columns(schema.columns).items():
        shape = schema.fields[name].shape if name in schema.fields else None
        if shape is None:
            continue
        declared = shape[-1] if len(shape) > 1 else 1
        if isinstance(declared, int) and declared != stop - start:
            noun = "column" if declared == 1 else "columns"
            yield (
                ("fields", name, "shape"),
                f"{declared} {noun} in the shape, {stop - start} in columns: write "
                f"{name}:{declared} there or another shape here",
            )


def _check_fields(
    schema: Schema, fields: Mapping[str, FieldSpec], base: Where, placeholders: list[str]
) -> Iterator[Complaint]:
    for name, spec in fields.items():
        where = (*base, name)
        yield from _check_keys_of_role(spec, where)
        yield from _check_dtype(spec, where)
        yield from _check_unit(spec, where)
        yield from _check_shape(spec, where)
        yield from _check_references(schema, name, spec, where)
        yield from _check_file(schema, spec, where, placeholders)
        yield from _check_attribute(schema, spec, where)
        yield from _check_part(schema, name, spec, where)


# The roles whose rules read a key. Keys that are not here are for all roles.
READ_BY: Mapping[str, frozenset[str]] = {
    "size": _PLACED,
    "distance": _PLACED | {"depth"},
    "near": _PLACED | {"depth"},
    "centered": frozenset({"points", "joints"}),
    "centered_on": frozenset({"points", "joints"}),
    "up": frozenset({"points"}),
    "extrinsics": frozenset({"points", "joints", "depth", "boxes"}),
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
    "areas": frozenset({"boxes"}),
    "pixels_of": frozenset({"boxes", "value"}),
    "box_format": frozenset({"boxes"}),
    "annotates": frozenset({"captions", "boxes", "id"}),
    "encodes": frozenset({"ground_truth"}),
    "share": frozenset({"mask", "depth"}),
    "continues": frozenset({"chat"}),
    "tools": frozenset({"chat"}),
    "images": frozenset({"chat"}),
    "videos": frozenset({"chat"}),
    "audios": frozenset({"chat"}),
    "preferred_over": frozenset({"chat", "text"}),
    "spans_of": frozenset({"answers"}),
    "unanswerable": frozenset({"answers"}),
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
# Keys that texts and JSON values cannot have.
_NUMERIC_KEYS = frozenset({"unit", "range", "sentinels", "columns"})


def _check_keys_of_role(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    declared = {key for key in spec.model_fields_set if getattr(spec, key) not in {None, ()}}
    for key, roles in READ_BY.items():
        if key in declared and spec.role not in roles:
            role = f"role {spec.role}" if spec.role else "no role"
            yield (
                (*where, key),
                f"a field with {role} cannot have {key}; it is for {', '.join(sorted(roles))}",
            )
    if spec.is_text:
        for key in sorted(declared & _NUMERIC_KEYS):
            yield (*where, key), f"a field of text cannot have {key}"
    if spec.role == "depth" and (spec.near is None) != (spec.distance is None):
        missing = "near" if spec.distance is None else "distance"
        yield (*where, missing), "a depth map needs both near and distance"


def _check_dtype(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    has_text = spec.dtype in {"text", "json"}
    if spec.role in _TEXTS and spec.dtype is not None and not has_text:
        yield (*where, "dtype"), f"role {spec.role} needs text or json; found {spec.dtype}"
    if has_text and spec.role not in {None, "id", "value", *_TEXTS}:
        yield (*where, "dtype"), f"role {spec.role} needs numbers; found {spec.dtype}"


_UNIT_KINDS: Mapping[str, Mapping[str, float]] = {
    "a length": LENGTH,
    "an angle": ANGLE,
    "a time": TIME,
}
# The kinds of units that the values of a role can have.
_UNITS_OF_ROLE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SPATIAL_ROLES, ("a length",)),
    "depth": ("a length",),
    "rotvec": ("an angle",),
    "joint_angle": ("an angle", "a length"),  # prismatic joints
    "timestamp": ("a time",),
}


def _check_unit(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    kinds = _UNITS_OF_ROLE.get(spec.role or "", ())
    if not kinds or spec.unit in {None, "px", "1"}:
        return
    if not any(spec.unit in _UNIT_KINDS[kind] for kind in kinds):
        allowed = ", ".join(unit for kind in kinds for unit in _UNIT_KINDS[kind])
        yield (
            (*where, "unit"),
            f"{spec.unit} is not {' or '.join(kinds)}, as role {spec.role} needs; allowed are "
            f"{allowed}",
        )


# Sizes that the last axis of a role can have: a camera matrix may be 3 x 3 or 3 x 4.
_LAST_AXIS: Mapping[str, tuple[int, ...]] = {
    "quaternion": (4,),
    "intrinsics": (3, 4),
    "transform": (3, 4),
}


def _check_shape(spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    last = spec.shape[-1] if spec.shape else None
    if not isinstance(last, int):
        return
    allowed = _LAST_AXIS.get(spec.role or "")
    if allowed and last not in allowed:
        yield (
            (*where, "shape"),
            f"the last axis of a {spec.role} has size {' or '.join(map(str, allowed))}; found "
            f"{last}",
        )
    if spec.columns:
        width = max(stop for _, stop in parse_columns(spec.columns).values())
        if width != last:
            yield (
                (*where, "columns"),
                f"{width} columns are named, but the last axis of the shape has size {last}",
            )


# Roles of the field that a key names; empty: any.
_REFERENCES: Mapping[str, frozenset[str]] = {
    "near": _PLACED,
    "intrinsics": frozenset({"intrinsics"}),
    "extrinsics": frozenset({"transform"}),
    "centered_on": _PLACED,
    "posed_by": frozenset({"pose", "transform"}),
    "drives": frozenset({"position", "joint_angle", "rotvec", "pose", "gripper", "value"}),
    "indexes": frozenset({"points"}),
    "encloses": frozenset({"points"}),
    "areas": frozenset(),
    "pixels_of": frozenset({"image"}),
    "annotates": frozenset({"instance", "segment"}),
    "continues": frozenset({"chat"}),
    "tools": frozenset(),
    "images": frozenset(),
    "videos": frozenset(),
    "audios": frozenset(),
    "preferred_over": frozenset({"chat", "text"}),
    "spans_of": frozenset({"text"}),
    "unanswerable": frozenset(),
    "label_of": frozenset({"tokens"}),
}


def _check_references(
    schema: Schema, name: str, spec: FieldSpec, where: Where
) -> Iterator[Complaint]:
    others = [other for other in schema.fields if other not in {name, ANY}]
    for key, roles in _REFERENCES.items():
        other = getattr(spec, key)
        if other is None:
            continue
        if other not in others:
            yield (*where, key), f"no other field is called {other!r}{_existing(other, others)}"
        elif roles and schema.fields[other].role not in roles:
            role = schema.fields[other].role
            found = f"role {role}" if role else "no role"
            yield (
                (*where, key),
                f"{key} needs a field of role {', '.join(sorted(roles))}; {other} has {found}",
            )


def _check_file(
    schema: Schema, spec: FieldSpec, where: Where, placeholders: list[str]
) -> Iterator[Complaint]:
    if spec.file is None:
        return
    yield from _check_pattern(spec.file, (*where, "file"), [*placeholders, *schema.roots])
    if spec.at:
        yield from _check_pattern(spec.at, (*where, "at"), placeholders, path=False)


# Attributes from the meta folder of a LeRobot dataset.
_EPISODE_ATTRIBUTES = ("@length", "@task", "@tasks")


def _check_attribute(schema: Schema, spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    """Check that an attribute's sample is a file, a group or an episode.

    Companions, lines, rows and slices of arrays have no attributes.
    """
    where = (*where, "at")
    each = schema.samples.each
    if spec.at is None or not spec.at.startswith("@"):
        return
    if spec.file is not None:
        # Attributes of XML elements are ordinary values of the file.
        if not spec.file.lower().endswith(".xml"):
            yield (
                where,
                f"{spec.at} is an attribute of the sample itself; a field with file has none",
            )
    elif each == "episode":
        if spec.at not in _EPISODE_ATTRIBUTES:
            known = _existing(spec.at, _EPISODE_ATTRIBUTES)
            yield where, f"an episode has no attribute {spec.at}{known}"
    elif each is not None and not each.startswith("/"):
        yield where, f"{spec.at} is an attribute; samples of each: {each} have none"


def _check_part(schema: Schema, name: str, spec: FieldSpec, where: Where) -> Iterator[Complaint]:
    """Refuse locations for column parts and for ``"*"``, which are not stored themselves."""
    field, _, part = name.rpartition(".")
    parts = schema.parts(field)
    if parts and part not in parts:
        yield where, f"{field} has no column {part!r}{_existing(part, parts)}"
    if name != ANY and schema.part_of(name) is None:
        return
    for key in ("at", "file", "columns"):
        if getattr(spec, key) is not None:
            what = "stands for fields that are not listed" if name == ANY else f"is part of {field}"
            yield (*where, key), f"{name} {what} and cannot have {key}"


# ------------------------------------------------------------------------------------ other sections


def _check_tokenizer(schema: Schema) -> Iterator[Complaint]:
    """Yield settings of the tokenizer that its trainer does not have."""
    spec = schema.tokenizer
    if spec is None:
        return
    keys = {"assistant_only_loss": "trl", "template": "llamafactory", "start": "minimind"}
    for key, trainer in {**keys, "end": "minimind"}.items():
        if key in spec.model_fields_set and spec.trainer != trainer:
            yield ("tokenizer", key), f"{key} is a setting of trainer: {trainer}"
    if spec.template is not None and spec.template not in TEMPLATES:
        msg = f"datacheck does not know the template {spec.template!r} of LLaMA-Factory"
        yield ("tokenizer", "template"), msg + _near(spec.template, list(TEMPLATES))


def _check_time(schema: Schema) -> Iterator[Complaint]:
    if any((spec.ragged or "").startswith("T") for spec in schema.fields.values()):
        return
    for key in ("episode", "windows"):
        if getattr(schema, key) is not None:
            yield (key,), f"{key} needs a field whose first axis is time: shape: [T, ...]"


def _check_counted_axes(schema: Schema) -> Iterator[Complaint]:
    """Check that the axes that attributes and lists count are axes of fields."""
    shapes = [spec.shape or () for spec in schema.fields.values()]
    axes = {axis for shape in shapes for axis in shape if isinstance(axis, str)}
    for where, counts in (
        (("attrs",), schema.attrs),
        (("samples", "counts"), schema.samples.counts),
    ):
        for name, counted in counts.items():
            if isinstance(counted, int):
                continue
            axis = counted.removeprefix(SUM)
            if axis != SAMPLES and axis not in axes:
                near = _existing(axis, sorted(axes))
                yield (*where, name), f"no field has an axis {axis}{near}"


# The role of the field that a step of the loader needs.
_ROLE_OF_STEP = {"voxel": "points", "drop_classes": "class", "keep_classes": "class"}


def _check_loader(schema: Schema) -> Iterator[Complaint]:
    if schema.loader is None:
        return
    if not any(schema.of_role("instance")):
        yield (
            ("loader",),
            "its steps count instances; declare the field that holds them with role: instance",
        )
    for step, role in _ROLE_OF_STEP.items():
        if schema.loader.get(step) is not None and not any(schema.of_role(role)):
            yield ("loader", step), f"this step needs a field of role {role}"
    captions = schema.loader.get("captions")
    known = sorted(name for name, spec in schema.fields.items() if spec.role == "captions")
    if captions is not None and captions not in known:
        yield (
            ("loader", "captions"),
            f"{captions!r} is not a field of role captions{_existing(captions, known)}",
        )


def _check_splits(schema: Schema, placeholders: list[str]) -> Iterator[Complaint]:
    splits = schema.splits
    if splits is None:
        return
    group = ["group"] if schema.samples.group else []
    known = [*placeholders, "file", *group, *schema.stored]
    if splits.key not in known:
        yield (
            ("splits", "key"),
            f"{splits.key!r} is neither a placeholder of files, nor file, group or a "
            f"field{_near(splits.key, known)}",
        )
    if splits.disjoint and not _has_splits(schema, placeholders):
        yield ("splits", "disjoint"), f"there are no splits to compare: {_NO_SPLIT}"


_NO_SPLIT = "neither samples.files nor samples.list has a {split} placeholder"


def _has_splits(schema: Schema, placeholders: list[str]) -> bool:
    if "split" in placeholders or schema.samples.split:
        return True
    lists = schema.samples.list or ""
    return not isinstance(lists, str) or "split" in _placeholders(lists)


def _check_when(schema: Schema, placeholders: list[str]) -> Iterator[Complaint]:
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
        if not _has_splits(schema, placeholders):
            yield where, f"no sample has a split: {_NO_SPLIT}"
        unknown = [
            name
            for name, change in changes.items()
            if name not in schema.fields and not _is_new_field(change)
        ]
        for name in unknown:
            near = _existing(name, schema.fields)
            yield (*where, name), f"no field is called {name!r}{near}"
        changed = schema if unknown else schema.for_split(match[1])
        specs = {name: changed.fields[name] for name in changes if name in changed.fields}
        yield from _check_fields(changed, specs, where, placeholders)


def _is_new_field(change: FieldSpec) -> bool:
    """Return whether a change declares a new field rather than keys of an existing one."""
    return not change.model_fields_set.isdisjoint({"role", "shape", "dtype"})


def _check_rules(schema: Schema) -> Iterator[Complaint]:
    for code in schema.rules:
        if not re.fullmatch(r"[A-Z]{2,8}\d{3}", code) and code not in schema.checks:
            yield (
                ("rules", code),
                f"cannot read {code!r}; a rule is named by its code, for example DC221",
            )
    for name in schema.checks:
        if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", name):
            yield ("checks",), f"cannot read {name!r}; a check is written package.module:function"
