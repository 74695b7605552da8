"""Rules about annotations of instances and segments: classes, captions, ids, boxes and groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, measure, pluralize, rule
from datacheck.rules.label_counts import ContingencyTable, contingency_table
from datacheck.rules.measures import annotated, column_of, in_classes, is_numeric, listed_in, one_of
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

PURITY = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 1.0)
WORST = 8  # most mixed instances of a scene, whose two main classes are recorded


def _judged_classes(
    values: Array, spec: FieldSpec, dropped: tuple[int, ...]
) -> tuple[Array, Array]:
    """Tell which numbers are classes, and which of these the loader keeps."""
    good = in_classes(values, spec)
    return good, good & ~one_of(values, dropped)


def _annotating_fields(schema: Schema, *roles: str) -> list[tuple[str, FieldSpec]]:
    """Return the fields that annotate a field of one of these roles."""
    annotating = (
        (name, spec)
        for name, spec in sorted(schema.fields.items())
        if spec.annotates and not spec.absent
    )
    return [
        (name, spec) for name, spec in annotating if schema.spec(spec.annotates or "").role in roles
    ]


def _instances(schema: Schema) -> tuple[str, str]:
    """Return the names of the instance and of the class field, "" where there is none."""
    names = [next((n for n, _ in schema.of_role(role)), "") for role in ("instance", "class")]
    return names[0], names[1]


@measure(
    "objects",
    version=2,
    per="sample",
    uses=(
        "loader",
        "fields.role",
        "fields.ignore",
        "fields.classes",
        "fields.absent",
        "fields.annotates",
    ),
)
def objects(block: Block, schema: Schema) -> Columns:
    """Classes and annotations of each instance's points.

    `objects`: instances; `mixed`: for each share of `PURITY`, instances whose most frequent class
    has a smaller share of their points with a class; `first`: those among them whose first point
    has another class than most; `worst_id`: the one with the smallest share; `purity`: the eight
    smallest shares, ascending; `between`: the two most frequent classes of each of them, in turn.
    For each field that annotates them: `<field>:told` ids, `:absent` ids without a point, `:bare`
    instances without an id among `:wanted`, those that the loader keeps by class.
    """
    name, class_name = _instances(schema)
    ids = block.fields.get(name)
    classes = block.fields.get(class_name)
    if ids is None or ids.lengths is None or not is_numeric(ids):
        return {}
    classes = classes if classes is not None and is_numeric(classes) else None
    columns = (
        (n, spec, column_of(block, schema, n)) for n, spec in _annotating_fields(schema, "instance")
    )
    linked = [(n, spec, column) for n, spec, column in columns if column is not None]
    stat_rows: list[dict[str, Any]] = []
    for i in range(len(block)):
        own = None if classes is None else classes[i].reshape(-1)
        row, kept, every = _scene_counts(contingency_table(ids, classes, i), own, schema)
        for field, spec, column in linked if row else ():
            row |= _annotation_counts(field, spec, column, i, kept, every)
        stat_rows.append(row)
    return {stat: _stat_column(stat_rows, stat) for stat in sorted(frozenset().union(*stat_rows))}


def _stat_column(stat_rows: list[dict[str, Any]], stat: str) -> Measured:
    present = np.array([stat in row for row in stat_rows])
    nothing = np.zeros_like(next(row[stat] for row in stat_rows if stat in row))
    return Measured(np.array([row.get(stat, nothing) for row in stat_rows]), present)


def _scene_counts(
    pairs: ContingencyTable | None, classes: Array | None, schema: Schema
) -> tuple[dict[str, Any], frozenset[int], frozenset[int]]:
    """Return one scene's counts, the instances that the loader keeps by class, and all of them."""
    if pairs is None:
        return {}, frozenset(), frozenset()
    ids = pairs.ids
    numbers = pairs.classes
    cells = pairs.cells
    name, class_name = _instances(schema)
    mine = (cells.sum(axis=1) > 0) & (ids >= 0) & ~one_of(ids, schema.spec(name).ignore)
    dropped = tuple(schema.loader.get("drop_classes") or ()) if schema.loader is not None else ()
    good, kept = _judged_classes(numbers, schema.spec(class_name), dropped)
    if classes is None:
        good = kept = np.ones(1, bool)
    labelled = np.where(good, cells, 0)
    size = labelled.sum(axis=1)
    top = labelled.argmax(axis=1) if len(numbers) else np.zeros(len(ids), np.int64)
    share = np.where(mine & (size > 0), labelled.max(axis=1, initial=0) / np.maximum(size, 1), 1.0)
    row: dict[str, Any] = {"objects": int(mine.sum())}
    if classes is not None:
        below = share[:, None] < PURITY
        row["mixed"] = below.sum(axis=0)
        row["first"] = (below & _first_differs(pairs, classes, top, share < 1)[:, None]).sum(axis=0)
        row["worst_id"] = int(ids[share.argmin()]) if len(share) else -1
        row |= _worst(labelled, share, top, numbers)
    keeps = mine & (size > 0) & (kept[top] if len(kept) else False)
    return row, frozenset(ids[keeps].tolist()), frozenset(ids[mine].tolist())


def _worst(labelled: Array, share: Array, top: Array, numbers: Array) -> dict[str, Array]:
    """Return the smallest shares of a scene and the two main classes of each of these instances.

    Where fewer instances are mixed the shares are 1 and the classes 0.
    """
    order = np.argsort(share, kind="stable")[:WORST]
    order = order[share[order] < 1]
    shares = np.ones(WORST)
    between = np.zeros((WORST, 2), np.int64)
    shares[: len(order)] = share[order]
    rest = labelled[order]
    rest[np.arange(len(order)), top[order]] = 0
    if len(order):
        between[: len(order)] = np.stack(
            [numbers[top[order]], numbers[rest.argmax(axis=1)]], axis=1
        )
    return {"purity": shares, "between": between.reshape(-1)}


def _first_differs(pairs: ContingencyTable, classes: Array, top: Array, mixed: Array) -> Array:
    """Return bool (instances): mixed ones whose first point has another class than most points."""
    differs = np.zeros(len(mixed), bool)
    if mixed.any():
        width = pairs.cells.shape[1]
        rows = np.flatnonzero(np.repeat(mixed, width).take(pairs.code))[::-1]
        first = np.zeros(len(mixed), np.int64)
        # Rows are reversed: the lowest row of an instance is written last and stays.
        first[pairs.code[rows] // width] = rows
        differs[mixed] = classes[first[mixed]] != pairs.classes[top[mixed]]
    return differs


def _annotation_counts(
    field: str, spec: FieldSpec, column: Column, i: int, kept: frozenset[int], every: frozenset[int]
) -> dict[str, int]:
    """Return the counts of one annotation; boxes are counted, other annotations name ids."""
    if spec.role == "boxes":
        total = int(column.shape(i)[0]) if column.lengths is not None else 1
        absent = max(0, total - len(every))
        bare = max(0, len(kept) - total)
    else:
        names = annotated(column, i)
        total = len(names)
        absent = len(names - every)
        bare = len(kept - names)
    return {
        f"{field}:told": total,
        f"{field}:absent": absent,
        f"{field}:bare": bare,
        f"{field}:wanted": len(kept),
    }


@measure("groups", per="sample", uses=("fields.role", "fields.absent", "fields.annotates"))
def groups(block: Block, schema: Schema) -> Columns:
    """Groups of segments: counts of the segments that they name.

    `<field>:told` segments, `:absent` ones without a point, `:again` groups that repeat an earlier
    one.
    """
    columns: dict[str, Measured] = {}
    for name, spec in _annotating_fields(schema, "segment"):
        annotations = column_of(block, schema, name)
        ids = block.fields.get(spec.annotates or "")
        if annotations is None or ids is None or ids.lengths is None or not is_numeric(ids):
            continue
        counts = np.zeros((3, len(block)), np.int64)
        for i in range(len(block)):
            named = annotated(annotations, i)
            counts[:, i] = (
                len(named),
                len(named - frozenset(np.unique(ids[i]).tolist())),
                _duplicate_groups(annotations, i),
            )
        for stat, values in zip(("told", "absent", "again"), counts, strict=True):
            columns[f"{name}:{stat}"] = Measured(values, np.ones(len(block), bool))
    return dict(columns)


def _duplicate_groups(column: Column, i: int) -> int:
    """Return how many groups repeat the label and the segments of an earlier one.

    Groups without segments do not count.
    """
    listed = column.objects[i] if column.kind == "json" else None
    records = (
        [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []
    )
    seen = [(str(r.get("label")), frozenset(map(str, listed_in(r, "segments")))) for r in records]
    seen = [pair for pair in seen if pair[1]]
    return len(seen) - len(set(seen))


_SUPPRESSED_BY = ("DC109", "DC121", "DC122", "DC123", "DC221", "DC401", "DC404", "DC405")


@rule(
    "DC406",
    "instance-class-conflict",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(objects,),
    suppressed_by=_SUPPRESSED_BY,
    defaults={"warning": 0.95, "error": 0.9},
    unless=lambda s: "" if all(_instances(s)) else "no fields of role instance and class",
)
def instance_class_conflict(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Points of one instance have different classes.

    What:
        Within one instance, nearly all points that have a class have the same class.
    Why it matters:
        Loaders take the class of an instance from its first point. If a tenth of the points are
        wrong, the target is wrong in a tenth of the point orders.
    Measure:
        For each instance, the share of its most frequent class among its points that have a class.
    When it is wrong:
        Instance ids are unique only within a class: make them unique within the scene.
    Options:
        warning: a share below this value is a warning (0.95).
        error: a share below this value is an error (0.9). Each limit is one of 0.5, 0.6, 0.7, 0.8,
        0.85, 0.9, 0.95, 0.98, 0.99, 1.
    Bad::

        schema: {fields: {id: {role: instance, shape: [P]}, label: {role: class, shape: [P], classes: 0..9}}}
        samples:
          - {n: 2, id: {choice: [90], among: [1, 2, 3]}, label: {full: [90], value: 4, dtype: int64}}
          - {id: {choice: [90], among: [1, 2, 3]}, label: {choice: [90], among: [4, 4, 4, 5]}}

    Good::

        schema: {fields: {id: {role: instance, shape: [P]}, label: {role: class, shape: [P], classes: 0..9}}}
        samples:
          - {n: 3, id: {choice: [90], among: [1, 2, 3]}, label: {full: [90], value: 4, dtype: int64}}

    Fix:
        Give every point of an instance the class of the instance, or split the instance.
    Reference:
        Mask3D's get_instance_masks takes the class of an instance from its first point.
    """
    measured = rows.measured("mixed")
    if not measured.any():
        return
    places = {word: place_of(float(case.options[word])) for word in ("error", "warning")}
    worse = np.where(measured, rows["mixed"][:, places["error"]], 0) > 0
    bad = np.where(measured, rows["mixed"][:, max(places.values())], 0) > 0
    if worse.any():
        yield _mixed(rows, worse, places["error"], Severity.ERROR)
    if (bad & ~worse).any():
        yield _mixed(rows, bad & ~worse, max(places.values()), Severity.WARNING)


def place_of(share: float) -> int:
    """Return the place in `PURITY` of the share nearest to this one."""
    return int(np.argmin(np.abs(np.array(PURITY) - share)))


def _mixed(rows: Rows, where: Array, purity_index: int, severity: Severity) -> Failure:
    count = rows["mixed"][where, purity_index]
    early = rows["first"][where, purity_index]
    worst = rows["purity"][where, 0]
    place = int(np.argmin(worst))
    many = int(count.sum())
    early_count = int(early.sum())
    words = (
        f"the first point of {pluralize(early_count, 'instance')} has another class than most, and "
        f"loaders take that one"
    )
    worst_class, other_class = rows["between"][where][place, :2].tolist()
    return Failure(
        where,
        f"{pluralize(many, 'instance')} in {pluralize(int(where.sum()))} "
        f"{'has' if many == 1 else 'have'} less than "
        f"{100 * PURITY[purity_index]:g} % of the points in one class; the worst, "
        f"{int(rows['worst_id'][where][place])}, "
        f"{100 * float(worst[place]):.3g} % in class {worst_class} and most others in {other_class}.",
        measured={
            "instances": many,
            "worst": float(worst[place]),
            "first": early_count,
            "classes": [worst_class, other_class],
        },
        expected={"share": f"{PURITY[purity_index]:g}.."},
        cause=Cause(words, "first", explains=int(np.count_nonzero(early))) if early_count else None,
        severity=severity,
        fix="Relabel their points, or split the instances.",
        kind="impure" if severity is Severity.ERROR else "mixed",
        order=1 - rows["purity"][:, 0],
    )


@rule(
    "DC408",
    "orphan-annotation",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(objects, groups),
    suppressed_by=(*_SUPPRESSED_BY, "DC402"),
    defaults={"bare": 0.1},
    unless=lambda s: (
        "" if _annotating_fields(s, "instance", "segment") else "no field says what it annotates"
    ),
)
def orphan_annotation(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An annotation names an instance or segment without points, or an instance has no annotation.

    What:
        A field that ``annotates`` an instance field names only ids that have points, and it names
        nearly all instances whose class the loader keeps. Boxes have no ids, so only their number
        is compared. A field that ``annotates`` a segment field names only segments that have
        points, as numbers or in the ``segments`` of its groups, and no two groups have the same
        label and segments.
    Why it matters:
        An id without points is a target without a mask. An instance without a caption is dropped,
        or raises a KeyError. Groups made for another segmentation assemble each object from pieces
        of others.
    Measure:
        The differences of both sets of ids in both directions, and the share of instances that are
        annotated; groups that repeat the label and the segments of another group. Segments without
        a group are normal.
    When it is wrong:
        Only some of the instances are meant to be annotated: raise ``bare``.
    Options:
        bare: share of a scene's instances that may have no annotation (0.1).
    Bad::

        schema: {fields: {id: {role: instance, shape: [P]}, told: {role: captions, annotates: id}}}
        samples:
          - {n: 2, id: {choice: [90], among: [1, 2, 3]}, told: {json: {"1": a, "2": b, "3": c}}}
          - {id: {choice: [90], among: [1, 2, 3]}, told: {json: {"1": a, "2": b, "3": c, "9": d}}}

    Good::

        schema: {fields: {id: {role: instance, shape: [P]}, told: {role: captions, annotates: id}}}
        samples:
          - {n: 3, id: {choice: [90], among: [1, 2, 3]}, told: {json: {"1": a, "2": b, "3": c}}}

    Fix:
        Export the annotations and the labels from the same version of the source.
    Reference:
        Reason3D: with a whitelist of 100 classes, 96 % of the target ids had no point, and mIoU was
        11.0 instead of 22.95. ScanNet issues 38, 47 and 51: aggregations that do not match the
        segments, and one that lists every group twice.
    """
    for name, spec in _annotating_fields(case.schema, "instance", "segment"):
        measured = rows.measured(f":{name}:told")
        if not measured.any():
            continue
        annotations, absent = (rows[f":{name}:{s}"] for s in ("told", "absent"))
        orphaned = measured & (absent > 0)
        if orphaned.any():
            yield _orphans(
                orphaned,
                name,
                annotations,
                absent,
                case.schema.spec(spec.annotates or "").role or "",
            )
        yield from _repeated(rows, name, measured)
        yield from _bare(rows, name, measured, float(case.options["bare"]))


def _repeated(rows: Rows, name: str, measured: Array) -> Iterator[Failure]:
    if f":{name}:again" not in rows:
        return
    repeats = rows[f":{name}:again"]
    twice = measured & (repeats > 0)
    if twice.any():
        yield Failure(
            twice,
            f"{name}: {pluralize(int(repeats[twice].sum()), 'group')} in "
            f"{pluralize(int(twice.sum()))} "
            f"{'has' if repeats[twice].sum() == 1 else 'have'} the label and the segments of another "
            f"one.",
            measured={"groups": int(repeats[twice].sum())},
            expected={"groups": 0},
            fix="Remove the second of them: it is the same object again.",
            kind="repeated",
            order=repeats,
            extra=(name,),
        )


def _bare(rows: Rows, name: str, measured: Array, share: float) -> Iterator[Failure]:
    if f":{name}:bare" not in rows:
        return
    bare, wanted = (rows[f":{name}:{s}"] for s in ("bare", "wanted"))
    few = measured & (bare > share * wanted)
    if few.any():
        covered = 100 * float(np.median(1 - bare[few] / np.maximum(1, wanted[few])))
        yield Failure(
            few,
            f"{name}: {int(bare[few].sum()):,} of {int(wanted[few].sum()):,} instances in "
            f"{pluralize(int(few.sum()))} have none; {covered:.3g} % of a scene is covered "
            f"(median).",
            measured={"bare": int(bare[few].sum()), "instances": int(wanted[few].sum())},
            expected={"bare": f"..{share:g}"},
            fix="Annotate the rest, or drop these instances in the loader: captions.",
            kind="bare",
            order=bare,
            extra=(name,),
        )


def _orphans(orphaned: Array, name: str, annotations: Array, absent: Array, role: str) -> Failure:
    # Segments need only a majority: some vertex numbers match by chance in any scene.
    every = orphaned & (
        (absent == annotations) | ((2 * absent > annotations) & (role == "segment"))
    )
    words = (
        "most of their segments do not occur" if role == "segment" else "none of their ids occurs"
    )
    cause = Cause(f"{words}: made for another scene, or numbered otherwise", "other-scene")
    return Failure(
        orphaned,
        f"{name}: {int(absent[orphaned].sum()):,} of {int(annotations[orphaned].sum()):,} in "
        f"{pluralize(int(orphaned.sum()))} belong to no "
        f"{role} that has a point.",
        measured={
            "absent": int(absent[orphaned].sum()),
            "annotations": int(annotations[orphaned].sum()),
            "scenes": int(every.sum()),
        },
        expected={"absent": 0},
        cause=cause if every.any() else None,
        fix="Export annotation and labels from one version of the source.",
        kind="orphan",
        order=absent,
        extra=(name,),
    )
