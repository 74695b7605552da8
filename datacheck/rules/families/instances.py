"""Rules about instances: what is left of a scene after the loader's own steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, listed, measure, rule, those
from datacheck.rules.histograms import first_rows, numbered_points, stored_instances
from datacheck.rules.measures import annotated, is_numeric, one_of
from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows
from datacheck.voxel import deciding, occupied, representatives

Array = np.ndarray[Any, Any]


_MANY = 1 << 14  # points of which not every voxel is looked at
_ENOUGH = 4  # times min_points: voxels of an instance that are counted
_PER_INSTANCE = frozenset({"drop_classes", "min_points", "captions"})  # steps that take whole instances


@dataclass(eq=False)
class _Scene:
    """One scene on its way through the loader: which points are left, and which instances live.

    Args:
        ids, which: instance ids in rising order; of each point the place of its instance there from 1, 0 for none.
        size: how many points each has, later the expected number; None where it is to be counted again.
        classes: of each point, or None.

    Attributes:
        rows: points that are left, None for all.
        weight: expected number of points that each of these stands for: one for all, or one each.
        vanish: expected number of instances of which a clip leaves no point.
        lives: bool (instances).
    """

    ids: Array
    which: Array
    size: Array | None
    classes: Array | None
    xyz: Array | None
    captions: frozenset[int]
    rows: Array | None = None
    weight: Array | float = 1.0

    def __post_init__(self) -> None:
        self.vanish = 0.0
        self.lives: Array = np.ones(len(self.ids), bool)

    def _left(self, values: Array) -> Array:
        return values if self.rows is None else values[self.rows]

    def _counted(self) -> Array:
        if self.size is None:
            which = self._left(self.which)
            plain = isinstance(self.weight, float) and self.weight == 1
            weights = None if plain else np.broadcast_to(self.weight, which.shape)
            self.size = np.bincount(which, weights=weights, minlength=len(self.ids) + 1)[1:]
        return self.size

    def sizes(self) -> Array:
        """Return the expected number of points of each instance, and 0 for those that live no more."""
        return np.where(self.lives, self._counted(), 0.0)

    def _first(self) -> Array:
        return first_rows(self._left(self.which), len(self.ids))

    def first_classes(self) -> Array:
        """Return the class of the first point of each instance that is left, as Mask3D takes it; -1 without one."""
        first = self._first()
        rows = first if self.rows is None or not len(self.rows) else self.rows[first]
        return np.where(first >= 0, rows if self.classes is None else self.classes[rows], -1)

    def step(self, name: str, value: Any, later: tuple[tuple[str, Any], ...]) -> float:
        """Take one step of the loader; return the size of the largest instance that ``min_points`` met, else NaN.

        Args:
            name, value: the step.
            later: the steps behind it.
        """
        largest = np.nan
        if name == "clip":
            left = len(self.which) if self.rows is None else len(self.rows)
            if value < left:
                size = self.sizes()
                self.vanish += float(((1 - value / left) ** size[size > 0]).sum())
            self.weight, self.size = self.weight * min(1.0, value / max(1, left)), None
        elif name == "voxel" and self.xyz is not None:
            self._voxels(self._left(self.xyz), float(value), dict(later))
        elif name == "drop_classes" and self.classes is not None:
            self.lives = self.lives & ~one_of(self.first_classes(), tuple(value))
        elif name == "min_points":
            size = self.sizes()
            largest = float(size.max()) if len(size) and size.max() > 0 else np.nan
            self.lives = self.lives & (size >= value)
        elif name == "captions":
            self.lives = self.lives & np.array([int(i) in self.captions for i in self.ids], dtype=bool)
        return largest

    def _voxels(self, xyz: Array, edge: float, later: dict[str, Any]) -> None:
        plain = isinstance(self.weight, float) and self.weight == 1
        if plain and len(xyz) > _MANY and later.keys() <= _PER_INSTANCE:
            owner, least = self._left(self.which), _ENOUGH * later.get("min_points", 1)
            kept = deciding(xyz, edge, owner, self._counted(), self._first(), least)
        elif plain:
            kept = representatives(xyz, edge)
        else:
            kept, points = occupied(xyz, edge)
            each = self.weight[kept] if isinstance(self.weight, np.ndarray) else np.full(len(kept), self.weight)
            self.weight = 1 - (1 - each) ** points
        self.rows, self.size = kept if self.rows is None else self.rows[kept], None


def loader_steps(schema: Schema) -> tuple[tuple[str, Any], ...]:
    """Return the loader's steps, then ``min_points`` of the instance field where the loader has none."""
    steps = schema.loader.steps if schema.loader is not None else ()
    least = next((spec.min_points for _, spec in schema.of_role("instance")), None)
    return (*steps, ("min_points", least)) if least and "min_points" not in dict(steps) else steps


@measure(
    "funnel", version=3, per="sample",
    uses=("loader", "fields.role", "fields.ignore", "fields.classes", "fields.min_points", "fields.absent"),
)  # fmt: skip
def funnel(block: Block, schema: Schema) -> Columns:
    """Instances at each stage: `funnel` (stored, with a class, then after each step of the loader).

    `largest`: expected points of the largest instance that met ``min_points``, where there is that step (above 4 times
    ``min_points`` it may be more than that); `vanish`: expected number of instances of which ``clip`` leaves no point:
    (1 - clip/N)^n of one with n of N points.
    """
    names = {role: next((n for n, _ in schema.of_role(role)), "") for role in ("instance", "class", "points")}
    found = {role: block.fields.get(name) for role, name in names.items()}
    ids, labels_, points = found["instance"], found["class"], found["points"]
    steps = loader_steps(schema)
    if ids is None or ids.lengths is None or not is_numeric(ids) or len(steps) > 60:
        return {}
    counts = np.zeros((len(block), 2 + len(steps)), np.int64)
    largest = np.full(len(block), np.nan)
    vanish, fits = np.zeros(len(block)), np.ones(len(block), bool)
    spec, class_spec = schema.spec(names["instance"]), schema.spec(names["class"])
    told = block.fields.get(dict(steps).get("captions", ""))
    for i in range(len(block)):
        mine = ids[i].reshape(-1)
        classes = None if labels_ is None else labels_[i].reshape(-1)
        xyz = None if points is None else points[i][..., :3].reshape(-1, 3)
        fits[i] = all(other is None or len(other) == len(mine) for other in (classes, xyz))
        if not fits[i]:
            continue
        captions = annotated(told, i) if told is not None else frozenset()
        scene = _Scene(*numbered_points(ids, labels_, i, spec, class_spec), classes, xyz, captions)
        counts[i, 1] = len(scene.ids)
        for place, (name, value) in enumerate(steps):
            size = scene.step(name, value, steps[place + 1 :])
            largest[i] = size if name == "min_points" else largest[i]
            counts[i, 2 + place] = np.count_nonzero(scene.sizes())
        vanish[i] = scene.vanish
    counts[fits, 0] = stored_instances(ids, spec)[fits]
    return {
        "funnel": Measured(counts, fits), "vanish": Measured(vanish, fits),
        "largest": Measured(largest, fits & ~np.isnan(largest)),
    }  # fmt: skip


def _no_instance_field(schema: Schema) -> str:
    return "" if any(schema.of_role("instance")) else "no field of role instance"


_BEFORE = ("DC109", "DC121", "DC122", "DC123", "DC221", "DC405")


@rule(
    "DC401", "no-instances", Severity.ERROR, Level.SAMPLE, per="sample", measures=(funnel,), needs=_BEFORE,
    unless=_no_instance_field,
)  # fmt: skip
def no_instances(rows: Rows, case: Case) -> Iterator[Failure]:
    """A scene has no instance at all.

    What:
        Some point of every scene has an instance id of 0 or more that is not in ``ignore``.
    Why it matters:
        The scene gives an empty target: the whole batch is dropped, or the ranks wait for one another.
    Measure:
        Number of distinct instance ids in the file, before any step of the loader.
    When it is wrong:
        Scenes without objects are wanted: ``DC401: off``, and DC402 with them.
    Options:
        none
    Bad::

        schema: {fields: {id: {role: instance, shape: [P], ignore: [-1]}}}
        samples:
          - {n: 2, id: {choice: [60], among: [-1, 0, 1]}}
          - {id: {full: [60], value: -1, dtype: int64}}

    Good::

        schema: {fields: {id: {role: instance, shape: [P], ignore: [-1]}}}
        samples:
          - {n: 3, id: {choice: [60], among: [-1, 0, 1]}}

    Fix:
        Annotate the scenes, or leave them out by valid.json, on all ranks alike.
    Reference:
        Mask3D: one scene without a target returns an empty list for the whole batch.
    """
    known = rows.measured("funnel")
    none = known & (rows["funnel"][:, 0] == 0) if known.any() else known
    if none.any():
        names = [name for name, _ in case.schema.of_role("instance")]
        yield Failure(
            none,
            f"{those(none, 'have')} no point with an instance id in {names[0]}: none is 0 or more and not ignored.",
            measured={"instances": 0},
            expected={"instances": "1.."},
            fix="Annotate them, or leave them out by valid.json, on all ranks alike.",
            extra=tuple(names[:1]),
        )


_REASONS = {"stored": "has too few instances", "labelled": "has no class for any instance"}
_CAUSES = {
    "stored": "the files hold fewer instances than min_instances",
    "labelled": "no instance has a class that is declared",
    "clip": "the clip leaves no point of any instance",
    "drop_classes": "every instance is of a class that the loader drops",
    "min_points": "every instance is smaller than min_points",
    "captions": "no caption has the id of an instance: captions of another scene, or other ids",
}


@rule(
    "DC402", "no-effective-instances", Severity.ERROR, Level.SAMPLE, per="sample", measures=(funnel,),
    needs=(*_BEFORE, "DC104", "DC201", "DC222", "DC401", "DC404"), defaults={"margin": 0.25}, unless=_no_instance_field,
)  # fmt: skip
def no_effective_instances(rows: Rows, case: Case) -> Iterator[Failure]:
    """No instance is left of a scene after the loader's own steps.

    What:
        Instances are counted as training sees them: with a class, then after each step of ``loader`` in its order. The
        step that takes the last one of a scene is named. Scenes that hold none at all are DC401's.
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
          - {xyz: {box: [60, 3]}, id: {choice: [60], among: [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1]}}

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
    most = max(reasons, key=lambda stage: reasons[stage])
    cause = Cause(_CAUSES.get(most, f"the step {most} takes them"), most, explains=reasons[most])
    what = "no instance" if least == 1 else f"fewer than {least} instances"
    return Failure(
        few,
        f"{those(few, 'have')} {what} left after the loader's steps: {listed(said, 6)}.",
        measured={"lost_at": reasons},
        expected={"instances": f"{least}.."},
        cause=cause,
        fix="Leave them out by valid.json, on all ranks alike; never draw another sample in __getitem__.",
    )


@rule(
    "DC403", "tiny-instances", Severity.WARNING, Level.SAMPLE, per="sample", measures=(funnel,),
    needs=(*_BEFORE, "DC201", "DC222", "DC401", "DC402", "DC404"), defaults={"share": 0.1, "vanish": 0.5},
    unless=lambda s: _no_instance_field(s) or ("" if loader_steps(s) else "neither loader nor min_points is declared"),
)  # fmt: skip
def tiny_instances(rows: Rows, case: Case) -> Iterator[Failure]:
    """Many instances of a scene are too small to reach training.

    What:
        Instances that ``min_points`` drops after the steps before it (voxels among them), and those of which ``clip``
        leaves no point by chance.
    Why it matters:
        The loss never sees them, the metric does: small classes stay at zero.
    Measure:
        Share of the scene's instances that the step takes. An instance of n points vanishes from a clip of N to c
        points with probability (1 - c/N)^n; the sum over instances is the number that is lost each epoch.
    When it is wrong:
        Fragments are expected: raise ``share``. Fewer than that are told as info.
    Options:
        share: share of a scene's instances that may be too small (0.1). vanish: instances per epoch that a clip may
        take from a scene (0.5).
    Bad::

        schema: {fields: {id: {role: instance, shape: [P], ignore: [-1]}}, loader: {min_points: 10}}
        samples:
          - {n: 2, id: {choice: [120], among: [0, 1, 2]}}
          - {id: {choice: [120], among: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]}}

    Good::

        schema: {fields: {id: {role: instance, shape: [P], ignore: [-1]}}, loader: {min_points: 10}}
        samples:
          - {n: 3, id: {choice: [120], among: [0, 1, 2]}}

    Fix:
        Smaller voxels, a larger clip, or merge the fragments; otherwise leave their classes out of the metric.
    Reference:
        ExCap3D drops instances below 100 points; at a clip to 30 % 30 points are enough to survive.
    """
    known = rows.measured("funnel")
    if not known.any():
        return
    names = [name for name, _ in loader_steps(case.schema)]
    if "min_points" in names:
        stage = 2 + names.index("min_points")
        before, after = rows["funnel"][:, stage - 1], rows["funnel"][:, stage]
        lost = np.where(known & (after > 0), before - after, 0)  # none left: DC402 says it
        many = known & (lost > float(case.options["share"]) * before)
        limit = dict(loader_steps(case.schema))["min_points"]
        if many.any():
            yield _tiny(many, lost, before, limit, None)
        if not many.any() and lost.any():
            yield _tiny(lost > 0, lost, before, limit, Severity.INFO)
    vanish = np.where(known, rows["vanish"], 0.0)
    rare = known & (vanish > float(case.options["vanish"]))
    if rare.any():
        yield _clipped(rare, vanish, dict(loader_steps(case.schema))["clip"])


def _clipped(rare: Array, vanish: Array, clip: int) -> Failure:
    return Failure(
        rare,
        f"a clip to {clip:,} points takes {float(np.median(vanish[rare])):.2g} instances (median) from "
        f"{counted(int(rare.sum()))} in every epoch.",
        measured={"vanish": float(np.median(vanish[rare]))},
        cause=Cause("instances of few points, of which a random clip often leaves none", "clip"),
        fix="Clip less, or voxel before the clip.",
        kind="clip",
        order=vanish,
    )


def _tiny(where: Array, lost: Array, before: Array, limit: int, severity: Severity | None) -> Failure:
    return Failure(
        where,
        f"{int(lost[where].sum()):,} of {int(before[where].sum()):,} instances in {counted(int(where.sum()))} have "
        f"fewer than {limit:,} points when the loader counts them.",
        measured={"tiny": int(lost[where].sum()), "instances": int(before[where].sum())},
        expected={"points": f"{limit}.."},
        severity=severity,
        fix="Smaller voxels, a lower min_points, or merge the fragments.",
        kind="tiny" if severity is None else "few",
        order=lost,
    )
