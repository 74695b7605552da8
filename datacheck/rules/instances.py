"""Rules about labels and instances: what is left of a scene after the loader's own steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, listed, measure, rule, those
from datacheck.rules.measures import flat, is_numeric, of_role, reduced
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Range, Schema
from datacheck.table import Measured, Rows
from datacheck.voxel import occupied

Array = np.ndarray[Any, Any]

_MARKS = (255, 65535)  # what unsigned labels use for "ignore"


def _one_of(values: Array, numbers: tuple[int, ...]) -> Array:
    found = np.zeros(values.shape, bool)
    for number in numbers:
        found |= values == number
    return found


def _in_classes(values: Array, spec: FieldSpec) -> Array:
    """Tell which values are classes: whole numbers of 0 or more, of the declared ones where there are any."""
    whole = values == np.floor(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    declared = spec.classes
    if declared is None:
        found = values >= 0
    elif isinstance(declared, int):
        found = (values >= 0) & (values < declared)
    elif isinstance(declared, Range):
        low, high = declared.low, declared.high
        found = (values >= (-np.inf if low is None else low)) & (values <= (np.inf if high is None else high))
    else:
        found = np.isin(values, declared)
    return np.asarray(found & whole & ~_one_of(values, spec.ignore), dtype=bool)


@measure("labels", applies=of_role("class", "instance"), uses=("classes", "ignore"))
def labels(column: Column, spec: FieldSpec) -> Columns:
    """What label values there are, by kind.

    Counts: `count` of values; `ignored` ones, declared as such; `negative` and `mark` (255, 65535) ones, undeclared;
    `outside` the classes otherwise. `lowest` negative, `marked` value, `low` and `high` of those outside, `top` class.
    """
    if not is_numeric(column):
        return {}
    values, lengths = flat(column)
    ignored, good = _one_of(values, spec.ignore), _in_classes(values, spec)
    negative = (values < 0) & ~ignored & ~good
    mark = _one_of(values, _MARKS) & ~ignored & ((spec.classes is None) | ~good)
    outside = ~(ignored | good | negative | mark)
    good &= ~mark

    def extreme(ufunc: np.ufunc, where: Array) -> Array:
        other = np.inf if ufunc is np.minimum else -np.inf
        found = reduced(ufunc, np.where(where, values.astype(np.float64), other), lengths)
        return np.where(np.isfinite(found), found, 0)

    kinds = {"ignored": ignored, "negative": negative, "mark": mark, "outside": outside}
    columns = {name: reduced(np.add, where, lengths) for name, where in kinds.items()} | {"count": lengths}
    zeros = np.zeros(len(column))
    columns["lowest"] = extreme(np.minimum, negative) if negative.any() else zeros
    columns["marked"] = extreme(np.maximum, mark) if mark.any() else zeros
    columns["low"] = extreme(np.minimum, outside) if outside.any() else zeros
    columns["high"] = extreme(np.maximum, outside) if outside.any() else zeros
    columns["top"] = extreme(np.maximum, good)
    return columns


@rule(
    "DC404", "class-out-of-range", Severity.ERROR, Level.SAMPLE, measures=(labels,),
    needs=("DC109", "DC122", "DC221"), applies=lambda s: of_role("class")(s) and s.classes is not None,
)  # fmt: skip
def class_out_of_range(rows: Rows, case: Case) -> Iterator[Failure]:
    """A label is none of the declared classes.

    What:
        Every value of a class field is in ``classes`` or in ``ignore``. Values below 0, and 255 or 65535, are DC405's.
    Why it matters:
        On a GPU it is an assertion that names another line, in the middle of an epoch.
    Measure:
        Count, smallest and largest of the values outside.
    When it is wrong:
        The loader maps these values away: list them in ``ignore``.
    Options:
        none
    Bad::

        schema: {fields: {label: {role: class, shape: [P], classes: 0..40}}}
        samples:
          - {n: 3, label: {choice: [50], among: [0, 7, 40]}}
          - {label: {choice: [50], among: [7, 50, 149]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], classes: 0..40}}}
        samples:
          - {n: 4, label: {choice: [50], among: [0, 7, 40]}}

    Fix:
        Map the labels again, or correct ``classes``.
    Reference:
        ScanNet issues 20 and 86: labels 50 and 149 in three scenes.
    """
    known = rows.measured("outside")
    bad = known & (rows["outside"] > 0) if known.any() else known
    if bad.any():
        low, high = float(rows["low"][bad].min()), float(rows["high"][bad].max())
        span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        classes = case.spec.classes
        allowed = f"0..{classes - 1}" if isinstance(classes, int) else str(classes)
        yield Failure(
            bad,
            f"{those(bad, 'hold')} labels that are no class ({span}, "
            f"{counted(int(rows['outside'][bad].sum()), 'value')}), allowed {allowed}.",
            measured={"low": low, "high": high, "values": int(rows["outside"][bad].sum())},
            expected={"classes": allowed},
            fix="Map the labels again, or correct classes in the schema.",
            order=rows["outside"],
        )


@rule(
    "DC405", "ignore-label", Severity.ERROR, Level.DATASET, measures=(labels,),
    needs=("DC109", "DC122", "DC221"), applies=of_role("class", "instance"),
)  # fmt: skip
def ignore_label(rows: Rows, case: Case) -> Iterator[Failure]:
    """Labels that mean "no label" are not the declared ones, or a sample holds nothing else.

    What:
        No undeclared value below 0, no undeclared 255 or 65535 among classes; no sample whose classes are all ignored.
    Why it matters:
        A loss with ``ignore_index: 255`` learns -100 as a class, or indexes with it.
    Measure:
        Counts of declared and of likely undeclared marks.
    When it is wrong:
        255 is a class: declare ``classes``.
    Options:
        none
    Bad::

        schema: {fields: {label: {role: class, shape: [P], ignore: [-100]}}}
        samples:
          - {n: 3, label: {choice: [50], among: [0, 7, -100]}}
          - {label: {choice: [50], among: [0, 7, -1]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], ignore: [-100]}}}
        samples:
          - {n: 4, label: {choice: [50], among: [0, 7, -100]}}

    Fix:
        Declare the mark that the data use, or map it to the one that the loss expects.
    Reference:
        ExCap3D: the configuration says 255, the data -100, the raw files -1.
    """
    known = rows.measured("count")
    if not known.any():
        return
    if (negative := known & (rows["negative"] > 0)).any():
        yield _mark(rows, case, negative, "lowest", "negative")
    mark = known & (rows["mark"] > 0) & (case.spec.role == "class")
    mark &= rows["marked"] > float(np.max(rows["top"][known])) + 1  # with classes all around it is one of them
    if mark.any():
        yield _mark(rows, case, mark, "marked", "mark")
    used = rows["ignored"] + rows["negative"] + np.where(mark, rows["mark"], 0)
    nothing = known & (used == rows["count"]) & (rows["count"] > 0) & (case.spec.role == "class")
    nothing &= ~negative & ~mark
    if nothing.any():
        fix = "Annotate these samples, or leave them out: nothing can be learnt from them."
        yield Failure(nothing, f"every label of {counted(int(nothing.sum()))} is ignored.", kind="all", fix=fix)


def _mark(rows: Rows, case: Case, where: Array, stat: str, kind: str) -> Failure:
    values = [f"{v:g}" for v in sorted(set(rows[stat][where]))]
    declared = f"ignore: [{', '.join(map(str, case.spec.ignore))}]" if case.spec.ignore else "nothing to ignore"
    unused = case.spec.ignore and not (rows["ignored"][where] > 0).any()
    text = f"these samples use {listed(values)} where the schema says {listed(map(str, case.spec.ignore))}"
    return Failure(
        where,
        f"{those(where, 'hold')} {listed(values)}; the schema declares {declared}.",
        measured={"values": values, "count": int(rows["negative" if kind == "negative" else "mark"][where].sum())},
        expected={"ignore": list(case.spec.ignore)},
        cause=Cause(text, "ignore") if unused else None,
        fix="Declare ignore: [...] as the data have it, or map the labels.",
        kind=kind,
    )


@dataclass(eq=False)
class _Scene:
    """One scene on its way through the loader: which points are left, and which instances live.

    Args:
        ids, which: instance ids in rising order; of each point the place of its instance there, -1 for none.
        classes: of each point, or None.

    Attributes:
        rows, weight: points that are left; expected number of points that each of all points stands for.
        lives, size: bool and float64: per instance; None where the size is to be counted again.
    """

    ids: Array
    which: Array
    classes: Array | None
    xyz: Array | None
    captions: frozenset[int]

    def __post_init__(self) -> None:
        self.rows, self.weight = np.arange(len(self.which)), np.ones(len(self.which))
        self.lives: Array = np.ones(len(self.ids), bool)
        self.size: Array | None = None

    def sizes(self) -> Array:
        """Return the expected number of points of each instance, and 0 for those that live no more."""
        if self.size is None:
            which = self.which[self.rows] + 1
            self.size = np.bincount(which, weights=self.weight[self.rows], minlength=len(self.ids) + 1)[1:]
        return np.where(self.lives, self.size, 0.0)

    def first_classes(self) -> Array:
        """Return the class of the first point of each instance that is left, as Mask3D takes it; -1 without one."""
        first = np.full(len(self.ids) + 1, -1)
        first[self.which[self.rows[::-1]]] = self.rows[::-1]  # of several the last written stays: the lowest row
        first = first[: len(self.ids)]
        return np.where(first >= 0, self.classes[first], -1) if self.classes is not None else first

    def step(self, name: str, value: Any) -> float:
        """Take one step of the loader; return the size of the largest instance that ``min_points`` met, else NaN."""
        largest = np.nan
        if name == "clip":
            self.weight, self.size = self.weight * min(1.0, value / max(1, len(self.rows))), None
        elif name == "voxel" and self.xyz is not None:
            kept, points = occupied(self.xyz[self.rows], float(value))
            self.rows, self.size = self.rows[kept], None
            self.weight[self.rows] = 1 - (1 - self.weight[self.rows]) ** points
        elif name == "drop_classes" and self.classes is not None:
            self.lives = self.lives & ~np.isin(self.first_classes(), value)
        elif name == "min_points":
            size = self.sizes()
            largest = float(size.max()) if len(size) and size.max() > 0 else np.nan
            self.lives = self.lives & (size >= value)
        elif name == "captions":
            self.lives = self.lives & np.array([int(i) in self.captions for i in self.ids], dtype=bool)
        return largest


def _numbered(ids: Array, good: Array) -> tuple[Array, Array]:
    """Return the distinct ids of the `good` points in rising order, and of each point its place there, -1 for none."""
    numbers, which = ids[good].astype(np.int64), np.full(len(ids), -1)
    if len(numbers) and numbers.max() < 1 << 20:
        known = np.flatnonzero(np.bincount(numbers))
        table = np.zeros(int(numbers.max()) + 1, np.int64)
        table[known] = np.arange(len(known))
        which[good] = table[numbers]
    else:
        known, which[good] = np.unique(numbers, return_inverse=True)
    return known, which


def _captioned(block: Block, name: str | None, i: int) -> frozenset[int]:
    """Return the instance ids that have a caption."""
    column = block.fields.get(name or "")
    told = column.objects[i] if column is not None and column.kind == "json" else {}
    told = told.get("objects", told) if isinstance(told, dict) else {}
    return frozenset(int(k) for k in told if k.isdecimal()) if isinstance(told, dict) else frozenset()


def loader_steps(schema: Schema) -> tuple[tuple[str, Any], ...]:
    """Return the loader's steps, then ``min_points`` of the instance field where the loader has none."""
    steps = schema.loader.steps if schema.loader is not None else ()
    least = next((spec.min_points for _, spec in schema.of_role("instance")), None)
    return (*steps, ("min_points", least)) if least and "min_points" not in dict(steps) else steps


@measure(
    "funnel", per="sample",
    uses=("loader", "fields.role", "fields.ignore", "fields.classes", "fields.min_points", "fields.absent"),
)  # fmt: skip
def funnel(block: Block, schema: Schema) -> Columns:
    """Instances at each stage: `funnel` (stored, with a class, then after each step of the loader).

    `largest`: expected points of the largest instance that met ``min_points``, where there is that step.
    """
    names = {role: next((n for n, _ in schema.of_role(role)), "") for role in ("instance", "class", "points")}
    found = {role: block.fields.get(name) for role, name in names.items()}
    ids, labels_, points = found["instance"], found["class"], found["points"]
    steps = loader_steps(schema)
    if ids is None or ids.lengths is None or not is_numeric(ids) or len(steps) > 60:
        return {}
    counts = np.zeros((len(block), 2 + len(steps)), np.int64)
    largest = np.full(len(block), np.nan)
    fits = np.ones(len(block), bool)
    spec, class_spec = schema.spec(names["instance"]), schema.spec(names["class"])
    captions = dict(steps).get("captions")
    for i in range(len(block)):
        mine = ids[i].reshape(-1)
        classes = None if labels_ is None else labels_[i].reshape(-1)
        xyz = None if points is None else points[i][..., :3].reshape(-1, 3)
        fits[i] = all(other is None or len(other) == len(mine) for other in (classes, xyz))
        if not fits[i]:
            continue
        good = (mine >= 0) & ~_one_of(mine, spec.ignore)
        counts[i, 0] = len(_numbered(mine, good)[0])
        numbered = _numbered(mine, good if classes is None else good & _in_classes(classes, class_spec))
        scene = _Scene(*numbered, classes, xyz, _captioned(block, captions, i))
        counts[i, 1] = len(scene.ids)
        for place, (name, value) in enumerate(steps):
            size = scene.step(name, value)
            largest[i] = size if name == "min_points" else largest[i]
            counts[i, 2 + place] = np.count_nonzero(scene.sizes())
    return {"funnel": Measured(counts, fits), "largest": Measured(largest, fits & ~np.isnan(largest))}


_REASONS = {"stored": "has no instance", "labelled": "has no class for any instance"}


@rule(
    "DC402", "no-effective-instances", Severity.ERROR, Level.SAMPLE, per="sample", measures=(funnel,),
    needs=("DC109", "DC121", "DC122", "DC123", "DC201", "DC221", "DC404", "DC405"), defaults={"margin": 0.25},
    unless=lambda s: "" if any(s.of_role("instance")) else "no field of role instance",
)  # fmt: skip
def no_effective_instances(rows: Rows, case: Case) -> Iterator[Failure]:
    """No instance is left of a scene after the loader's own steps.

    What:
        Instances are counted as training sees them: with a class, then after each step of ``loader`` in its order.
    Why it matters:
        One rank without a target stops all ranks: training hangs. Drawing another sample instead recurses.
    Measure:
        A funnel per scene. Voxels keep their lowest row, an instance has its first point's class, clip gives the
        expected count. Within 25 % of ``min_points`` the loader's own voxels may decide otherwise: a warning.
    When it is wrong:
        The loader does something else: write its steps in its order.
    Options:
        margin: how near to ``min_points`` a finding is a warning (0.25).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}, id: {role: instance, shape: [P], ignore: [-1]}},
                 loader: {voxel: 0.02, min_points: 10}}
        samples:
          - {n: 2, xyz: {box: [60, 3]}, id: {choice: [60], among: [0, 1]}}
          - {xyz: {box: [60, 3]}, id: {full: [60], value: -1, dtype: int64}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}, id: {role: instance, shape: [P], ignore: [-1]}},
                 loader: {voxel: 0.02, min_points: 10}}
        samples:
          - {n: 3, xyz: {box: [60, 3]}, id: {choice: [60], among: [0, 1]}}

    Fix:
        Leave the scenes out before training starts, on all ranks alike.
    Reference:
        Mask3D returns an empty list for the whole batch; OpenPCDet issue 1104.
    """
    known = rows.measured("funnel")
    if not known.any():
        return
    steps = loader_steps(case.schema)
    least = max([spec.min_instances or 1 for _, spec in case.schema.of_role("instance")], default=1)
    margin, limit = float(case.options["margin"]), dict(steps).get("min_points")
    few, near = known & (rows["funnel"][:, -1] < least), known & False
    if limit is not None and "largest" in rows:
        near = known & rows.measured("largest") & (np.abs(rows["largest"] / limit - 1) <= margin)
        near &= few | (rows["funnel"][:, -1] == least)
    if (few & ~near).any():
        yield _emptied(rows, few & ~near, least, steps)
    if near.any():
        text = f"the largest instance of {counted(int(near.sum()))} is within {100 * margin:g} % of min_points {limit}."
        fix = "Lower min_points, or leave these scenes out."
        yield Failure(near, text, severity=Severity.WARNING, kind="near", fix=fix)


def _emptied(rows: Rows, few: Array, least: int, steps: tuple[tuple[str, Any], ...]) -> Failure:
    stages = ("stored", "labelled", *(name for name, _ in steps))
    lost = np.argmax(rows["funnel"][few] < least, axis=1)
    reasons = {stages[int(i)]: int((lost == i).sum()) for i in np.unique(lost)}
    said = [f"{n:,} {_REASONS.get(stage, f'lost the last at {stage}')}" for stage, n in reasons.items()]
    what = "no instance" if least == 1 else f"fewer than {least} instances"
    return Failure(
        few,
        f"{those(few, 'have')} {what} left after the loader's steps: {listed(said, 6)}.",
        measured={"lost_at": reasons},
        expected={"instances": f"{least}.."},
        fix="Leave them out by valid.json, on all ranks alike; never draw another sample in __getitem__.",
    )
