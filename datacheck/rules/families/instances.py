"""Rules about instances: what is left of a scene after the loader's own steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, counted, listed, rule, those
from datacheck.rules.funnel import funnel, loader_steps
from datacheck.schema.model import Schema
from datacheck.table import Rows

Array = np.ndarray[Any, Any]


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
    "keep_classes": "every instance is of a class that the label table lacks, or has with validation: false",
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
