"""Rules about instances: remaining ones after the loader's steps, ids, ground truths, masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.label_counts import funnel, loader_steps
from datacheck.rules.measures import flat, is_numeric, of_role, one_of, reduced
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]


def _no_instance_field(schema: Schema) -> str:
    return "" if any(schema.of_role("instance")) else "no field of role instance"


_SUPPRESSED_BY = ("DC109", "DC121", "DC122", "DC123", "DC221", "DC405")


@rule(
    "DC401",
    "no-instances",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(funnel,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_instance_field,
)
def no_instances(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A scene has no instances at all.

    What:
        In every scene, at least one point has an instance id of 0 or more that is not in
        ``ignore``.
    Why it matters:
        The scene gives an empty target: the whole batch is dropped, or the ranks wait for one
        another.
    Measure:
        Number of distinct instance ids in the file, before any step of the loader.
    When it is wrong:
        Scenes without objects are intended: ``DC401: off``, and DC402 with it.
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
    measured = rows.measured("funnel")
    none = measured & (rows["funnel"][:, 0] == 0) if measured.any() else measured
    if none.any():
        names = [name for name, _ in case.schema.of_role("instance")]
        yield Failure(
            none,
            f"{count_phrase(none, 'have')} no point with an instance id in {names[0]}: none is 0 "
            f"or more and not ignored.",
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
    "keep_classes": "every instance is of a class that the label table lacks, or has with "
    "validation: false",
    "drop_classes": "every instance is of a class that the loader drops",
    "min_points": "every instance is smaller than min_points",
    "captions": "no caption has the id of an instance: captions of another scene, or other ids",
}


@rule(
    "DC402",
    "no-effective-instances",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(funnel,),
    suppressed_by=(*_SUPPRESSED_BY, "DC104", "DC201", "DC222", "DC401", "DC404"),
    defaults={"margin": 0.25},
    unless=_no_instance_field,
)
def no_effective_instances(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """No instance of a scene is left after the loader's own steps.

    What:
        Instances are counted as training sees them: those with a class, then those left after each
        step of ``loader`` in its order. At least one, or ``min_instances``, must remain. The step
        that removes the last instance of a scene is named. DC401 reports scenes without any
        instance.
    Why it matters:
        One rank without a target stops all ranks, and training hangs. Drawing another sample
        instead leads to recursion.
    Measure:
        A funnel per scene. Each voxel keeps its point with the lowest row, an instance has the
        class of its first point, and a clip gives expected counts. If the largest instance is
        within 25 % of ``min_points``, the loader's own voxels may decide otherwise, and the finding
        is a warning.
    When it is wrong:
        The loader does something else: declare its steps in its order.
    Options:
        margin: relative distance from ``min_points`` within which a finding is a warning (0.25).
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
    measured = rows.measured("funnel")
    if not measured.any():
        return
    steps = loader_steps(case.schema)
    least = max([spec.min_instances or 1 for _, spec in case.schema.of_role("instance")], default=1)
    margin = float(case.options["margin"])
    limit = dict(steps).get("min_points")
    few = measured & (rows["funnel"][:, -1] < least)
    near = measured & False
    if limit is not None and "largest" in rows:
        near = measured & rows.measured("largest") & (np.abs(rows["largest"] / limit - 1) <= margin)
        near &= few | (rows["funnel"][:, -1] == least)
    if (few & ~near).any():
        yield _emptied(rows, few & ~near, least, steps)
    if near.any():
        text = (
            f"the largest instance of {pluralize(int(near.sum()))} is within {100 * margin:g} % "
            f"of min_points {limit}."
        )
        fix = "Lower min_points, or leave these scenes out."
        yield Failure(near, text, severity=Severity.WARNING, kind="near", fix=fix)


def _emptied(rows: Rows, few: Array, least: int, steps: tuple[tuple[str, Any], ...]) -> Failure:
    stages = ("stored", "labelled", *(name for name, _ in steps))
    lost = np.argmax(rows["funnel"][few] < least, axis=1)
    reasons = {stages[int(i)]: int((lost == i).sum()) for i in np.unique(lost)}
    phrases = [
        f"{n:,} {_REASONS.get(stage, f'lost the last at {stage}')}" for stage, n in reasons.items()
    ]
    most = max(reasons, key=lambda stage: reasons[stage])
    cause = Cause(_CAUSES.get(most, f"the step {most} takes them"), most, explains=reasons[most])
    what = "no instance" if least == 1 else f"fewer than {least} instances"
    return Failure(
        few,
        f"{count_phrase(few, 'have')} {what} left after the loader's steps: {first_few(phrases, 6)}.",
        measured={"lost_at": reasons},
        expected={"instances": f"{least}.."},
        cause=cause,
        fix="Leave them out by valid.json, on all ranks alike; never draw another sample in "
        "__getitem__.",
    )


@rule(
    "DC403",
    "tiny-instances",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(funnel,),
    suppressed_by=(*_SUPPRESSED_BY, "DC201", "DC222", "DC401", "DC402", "DC404"),
    defaults={"share": 0.1, "vanish": 0.5},
    unless=lambda s: (
        _no_instance_field(s)
        or ("" if loader_steps(s) else "neither loader nor min_points is declared")
    ),
)
def tiny_instances(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Many instances of a scene are too small to reach training.

    What:
        Few instances are dropped by ``min_points`` after the steps before it (including voxels),
        and few lose all their points to a random ``clip``.
    Why it matters:
        The loss never sees these instances, but the metric does: small classes stay at zero.
    Measure:
        Share of the scene's instances that ``min_points`` removes. An instance of n points vanishes
        in a clip from N to c points with probability (1 - c/N)^n; the sum over the instances is the
        expected number that is lost in each epoch.
    When it is wrong:
        Fragments are expected: raise ``share``. If no scene exceeds it, smaller losses are reported
        as info.
    Options:
        share: largest share of a scene's instances that may be too small (0.1).
        vanish: largest expected number of instances per epoch that a clip may take from a scene
        (0.5).
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
        Use smaller voxels or a larger clip, or merge the fragments; otherwise leave their classes
        out of the metric.
    Reference:
        ExCap3D drops instances below 100 points; at a clip to 30 %, 30 points are enough to
        survive.
    """
    measured = rows.measured("funnel")
    if not measured.any():
        return
    names = [name for name, _ in loader_steps(case.schema)]
    if "min_points" in names:
        stage = 2 + names.index("min_points")
        before = rows["funnel"][:, stage - 1]
        after = rows["funnel"][:, stage]
        lost = np.where(measured & (after > 0), before - after, 0)  # DC402 reports scenes with none
        many = measured & (lost > float(case.options["share"]) * before)
        limit = dict(loader_steps(case.schema))["min_points"]
        if many.any():
            yield _tiny(many, lost, before, limit, None)
        if not many.any() and lost.any():
            yield _tiny(lost > 0, lost, before, limit, Severity.INFO)
    vanish = np.where(measured, rows["vanish"], 0.0)
    rare = measured & (vanish > float(case.options["vanish"]))
    if rare.any():
        yield _clipped(rare, vanish, dict(loader_steps(case.schema))["clip"])


def _clipped(rare: Array, vanish: Array, clip: int) -> Failure:
    return Failure(
        rare,
        f"a clip to {clip:,} points takes {float(np.median(vanish[rare])):.2g} instances (median) "
        f"from "
        f"{pluralize(int(rare.sum()))} in every epoch.",
        measured={"vanish": float(np.median(vanish[rare]))},
        cause=Cause("instances of few points, of which a random clip often leaves none", "clip"),
        fix="Clip less, or voxel before the clip.",
        kind="clip",
        order=vanish,
    )


def _tiny(
    where: Array, lost: Array, before: Array, limit: int, severity: Severity | None
) -> Failure:
    return Failure(
        where,
        f"{int(lost[where].sum()):,} of {int(before[where].sum()):,} instances in "
        f"{pluralize(int(where.sum()))} have "
        f"fewer than {limit:,} points when the loader counts them.",
        measured={"tiny": int(lost[where].sum()), "instances": int(before[where].sum())},
        expected={"points": f"{limit}.."},
        severity=severity,
        fix="Smaller voxels, a lower min_points, or merge the fragments.",
        kind="tiny" if severity is None else "few",
        order=lost,
    )


_HIGHEST = 1 << 62  # largest id: a column holds 64 bits

_ENCODING_SUPPRESSED_BY = ("DC109", "DC121", "DC122", "DC123", "DC221")
_STRIP = 1 << 14  # rows that stay in the cache of a core


def _encoded(schema: Schema) -> list[tuple[str, str, str]]:
    """Return (ground truth, class field, instance field) of each field that encodes two others."""
    pairs = [(name, spec.encodes) for name, spec in schema.of_role("ground_truth") if spec.encodes]
    return [
        (name, *pair)
        for name, pair in pairs
        if all(p in schema.fields and not schema.fields[p].absent for p in pair)
    ]


@measure(
    "truth",
    version=2,
    per="sample",
    uses=("fields.role", "fields.encodes", "fields.ignore", "fields.absent"),
)
def truth(block: Block, schema: Schema) -> Columns:
    """Agreement of a ground truth with ``class * 1000 + instance + 1``.

    For each field that encodes two others, counts of rows: `<field>:rows`; `:wrong` ones; `:plain`
    ones that lack the 1; `:class` and `:instance`: wrong in this part. `:shuffled`: whether it
    holds the right numbers in another order; `:high`: the largest instance id.
    """
    columns: dict[str, Measured] = {}
    for name, class_name, instance_name in _encoded(schema):
        fields = [block.fields.get(n) for n in (name, class_name, instance_name)]
        if any(c is None or c.lengths is None or not is_numeric(c) for c in fields):
            continue
        agreements = [
            _agreement([c[i].reshape(-1) for c in fields if c is not None])
            for i in range(len(block))
        ]
        present = np.array([bool(row) for row in agreements])
        for stat in ("rows", "wrong", "plain", "class", "instance", "shuffled"):
            columns[f"{name}:{stat}"] = Measured(
                np.array([row.get(stat, 0) for row in agreements]), present
            )
        ignored = schema.spec(instance_name).ignore
        high = [
            _highest(fields[2][i].reshape(-1), ignored) if fields[2] is not None else -1
            for i in range(len(block))
        ]
        columns[f"{name}:high"] = Measured(np.array(high, dtype=np.int64), present)
    return dict(columns)


def _highest(ids: Array, ignored: tuple[int, ...]) -> int:
    top = _largest(ids)
    # Rare: an ignored mark such as 255 is the largest number.
    return _largest(ids[~one_of(ids, ignored)]) if top in ignored else top


def _largest(ids: Array) -> int:
    top = ids.max() if len(ids) else -1
    return max(-1, min(int(top), _HIGHEST)) if np.isfinite(top) else -1


def _encoded_pair(stored: Array, classes: Array, ids: Array) -> tuple[Array, Array]:
    """Return the stored and the expected ground truth: int64 (rows)."""
    wanted = classes.astype(np.int64)
    wanted *= 1000
    wanted += ids.astype(np.int64)
    wanted += 1
    return stored.astype(np.int64, copy=False), wanted


def _agreement(values: list[Array]) -> dict[str, int]:
    """Return counts of one sample's rows; empty where lengths differ or a number is not finite."""
    if len({len(v) for v in values}) != 1:
        return {}
    if any(v.dtype.kind == "f" and not np.isfinite(v.sum()) for v in values):
        return {}
    parts = [
        [v[start : start + _STRIP] for v in values] for start in range(0, len(values[0]), _STRIP)
    ]
    wrong = sum(int(np.count_nonzero(np.not_equal(*_encoded_pair(*part)))) for part in parts)
    if not wrong:
        return {"rows": len(values[0]), "wrong": 0}
    stored, wanted = _encoded_pair(*values)
    return {
        "rows": len(stored),
        "wrong": wrong,
        "plain": int(np.count_nonzero(stored == wanted - 1)),
        "class": int(np.count_nonzero(stored // 1000 != wanted // 1000)),
        "instance": int(np.count_nonzero(stored % 1000 != wanted % 1000)),
        "shuffled": int(np.array_equal(np.sort(stored), np.sort(wanted))),
    }


@rule(
    "DC410",
    "instance-overflow",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(truth,),
    suppressed_by=_ENCODING_SUPPRESSED_BY,
    defaults={"most": 998},
    unless=lambda s: "" if _encoded(s) else "no ground truth encodes class and instance",
)
def instance_overflow(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An instance id is too large for the ground truth that encodes it.

    What:
        Instance ids stay below 999 if the ground truth is ``class * 1000 + instance + 1``.
    Why it matters:
        A larger id carries over into the class: the evaluation silently scores against another
        class.
    Measure:
        The largest instance id of each scene.
    When it is wrong:
        These files are not used for evaluation: remove ``encodes``.
    Options:
        most: the largest id that fits (998).
    Bad::

        schema: {fields: {id: {role: instance, shape: [P]}, label: {role: class, shape: [P]},
                          gt: {role: ground_truth, shape: [P], encodes: [label, id]}}}
        samples:
          - {id: [0, 1, 1], label: [5, 5, 5], gt: [5001, 5002, 5002]}
          - {id: [2, 1, 0], label: [5, 6, 7], gt: [5003, 6002, 7001]}
          - {id: [2, 1, 1203], label: [5, 6, 7], gt: [5003, 6002, 8204]}

    Good::

        schema: {fields: {id: {role: instance, shape: [P]}, label: {role: class, shape: [P]},
                          gt: {role: ground_truth, shape: [P], encodes: [label, id]}}}
        samples:
          - {id: [0, 1, 1], label: [5, 5, 5], gt: [5001, 5002, 5002]}
          - {id: [2, 1, 998], label: [5, 6, 7], gt: [5003, 6002, 7999]}

    Fix:
        Number the instances of each scene from 0, and write the ground truth again.
    Reference:
        Mask3D and ExCap3D store ``semantic * 1000 + instance + 1``; ScanNet++ object ids are not
        dense.
    """
    most = int(case.options["most"])
    for truth, _, name in _encoded(case.schema):
        column = f":{truth}:high"
        measured = rows.measured(column)
        bad = measured & (rows[column] > most) if measured.any() else measured
        if bad.any():
            yield Failure(
                bad,
                f"{count_phrase(bad, 'have')} instance ids up to {int(rows[column][bad].max()):,} "
                f"in {name}; {truth} has room "
                f"for {most}.",
                measured={"high": int(rows[column][bad].max())},
                expected={"high": f"..{most}"},
                fix="Number the instances of each scene from 0 and write the ground truth again.",
                order=rows[column],
                extra=(name, truth),
            )


@rule(
    "DC411",
    "ground-truth-mismatch",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(truth,),
    suppressed_by=(*_ENCODING_SUPPRESSED_BY, "DC410"),
    unless=lambda s: "" if _encoded(s) else "no ground truth encodes class and instance",
)
def ground_truth_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The ground truth of the evaluation does not match the labels used for training.

    What:
        Every row of the ground truth is ``class * 1000 + instance + 1`` of the same row, also where
        both are ignored.
    Why it matters:
        A correct model is scored as wrong, because training and evaluation disagree about the
        scene.
    Measure:
        Rows that differ, in class or in instance; whether the same numbers occur in another order.
    When it is wrong:
        The data use another encoding: remove ``encodes``.
    Options:
        none
    Bad::

        schema: {fields: {id: {role: instance, shape: [P]}, label: {role: class, shape: [P]},
                          gt: {role: ground_truth, shape: [P], encodes: [label, id]}}}
        samples:
          - {id: [0, 1, 1], label: [5, 5, 5], gt: [5001, 5002, 5002]}
          - {id: [2, 1, 0], label: [5, 6, 7], gt: [5003, 6002, 7001]}
          - {id: [2, 1, 1], label: [5, 6, 6], gt: [5003, 6002, 9002]}

    Good::

        schema: {fields: {id: {role: instance, shape: [P]}, label: {role: class, shape: [P]},
                          gt: {role: ground_truth, shape: [P], encodes: [label, id]}}}
        samples:
          - {id: [0, 1, 1], label: [5, 5, 5], gt: [5001, 5002, 5002]}
          - {id: [2, 1, 0], label: [5, 6, 7], gt: [5003, 6002, 7001]}

    Fix:
        Write the ground truth again from the labels.
    Reference:
        Mask3D's fix_bugs_in_labels rewrites the labels of three ScanNet scenes, but not their
        ground truth.
    """
    for name, class_name, instance_name in _encoded(case.schema):
        measured = rows.measured(f":{name}:wrong")
        if not measured.any():
            continue
        stats = {
            s: rows[f":{name}:{s}"]
            for s in ("rows", "wrong", "plain", "class", "instance", "shuffled")
        }
        bad = measured & (stats["wrong"] > 0)
        if bad.any():
            total = {s: int(values[bad].sum()) for s, values in stats.items()}
            cause = _encoding_cause(stats, bad)
            yield Failure(
                bad,
                f"{name} differs from {class_name} * 1000 + {instance_name} + 1 in "
                f"{total['wrong']:,} of "
                f"{total['rows']:,} rows of {pluralize(int(bad.sum()))}: {total['class']:,} in the "
                f"class, "
                f"{total['instance']:,} in the instance.",
                measured=total,
                expected={"wrong": 0},
                cause=cause,
                fix="Write the ground truth again from the labels.",
                kind=cause.kind if cause is not None else "",
                order=stats["wrong"],
                extra=(name,),
            )


def _encoding_cause(stats: dict[str, Array], bad: Array) -> Cause | None:
    reasons = {
        "offset": (
            "the instance is stored without the 1 that is added",
            stats["plain"] == stats["wrong"],
        ),
        "order": ("the same numbers stand in another order of rows", stats["shuffled"] > 0),
        "class": ("the classes were changed on one side only", (stats["instance"] == 0)),
        "instance": ("the instances were numbered again on one side only", (stats["class"] == 0)),
        "other": ("labels of another scene", stats["wrong"] > 0.5 * stats["rows"]),
    }
    unexplained = bad.copy()
    explained: dict[str, int] = {}
    for kind, (_, holds) in reasons.items():  # the first reason that holds explains a scene
        explained[kind] = int((unexplained & holds).sum())
        unexplained &= ~holds
    most = max(explained, key=lambda kind: explained[kind])
    return Cause(reasons[most][0], most, explains=explained[most]) if explained[most] else None


@measure("coverage", applies=of_role("mask"), uses=("ignore",))
def coverage(column: Column, spec: FieldSpec) -> Columns:
    """Coverage of a mask: `set`, the share of non-zero values among those not ignored."""
    if not is_numeric(column):
        return {}
    values, lengths = flat(column)
    on = values != 0
    count = lengths
    if spec.ignore:
        ignored = one_of(values, spec.ignore)
        on &= ~ignored
        count = lengths - reduced(np.add, ignored, lengths)
    share = reduced(np.add, on, lengths) / np.maximum(count, 1)
    return {"set": Measured(share.astype(np.float64), count > 0)}


@rule(
    "DC407",
    "degenerate-mask",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(coverage,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("mask"),
    defaults={"most": 0.5},
)
def degenerate_mask(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A mask is empty or full, or covers another share than declared.

    What:
        The share of set values lies in ``share``; if none is declared, a mask is neither empty nor
        full.
    Why it matters:
        A loss over an empty mask is 0 / 0; a full mask selects what it should leave out.
    Measure:
        Share of values other than 0, without those in ``ignore``.
    When it is wrong:
        Empty masks have a meaning (no object in view): declare ``share: 0..1``.
    Options:
        most: if more than this share of all masks is empty, or full, that is normal for the data
        and not reported (0.5).
    Bad::

        schema: {fields: {m: {role: mask, shape: [P]}}}
        samples:
          - {n: 3, m: {choice: [40], among: [0, 1]}}
          - {m: {full: [40], value: 0}}

    Good::

        schema: {fields: {m: {role: mask, shape: [P]}}}
        samples:
          - {n: 4, m: {choice: [40], among: [0, 1]}}

    Fix:
        Render the masks again, or leave the samples out.
    Reference:
        SceneLeapUltra puts zeros where the mesh of an object is empty, and its mask then selects
        points that do not exist.
    """
    measured = rows.measured("set")
    if not measured.any():
        return
    share = rows["set"]
    allowed = case.spec.share
    if allowed is not None:
        low = allowed.low if allowed.low is not None else 0.0
        high = allowed.high if allowed.high is not None else 1.0
        unusual = measured & ((share < low) | (share > high))
        if unusual.any():
            yield _odd_coverage(
                unusual, share, f"; {allowed} is allowed", {"share": str(allowed)}, "share"
            )
        return
    for kind, value in (("empty", 0.0), ("full", 1.0)):
        unusual = measured & (share == value)
        if 0 < unusual.sum() <= float(case.options["most"]) * measured.sum():
            yield _odd_coverage(
                unusual,
                share,
                f", {pluralize(int(unusual.sum()), 'mask')} of {int(measured.sum()):,}",
                {},
                kind,
            )


def _odd_coverage(
    unusual: Array, share: Array, rest: str, expected: dict[str, Any], kind: str
) -> Failure:
    low = 100 * float(share[unusual].min())
    high = 100 * float(share[unusual].max())
    span = f"{low:.3g} %" if low == high else f"{low:.3g} to {high:.3g} %"
    return Failure(
        unusual,
        f"{count_phrase(unusual, 'have')} masks of which {span} is set{rest}.",
        measured={"low": low / 100, "high": high / 100},
        expected=expected,
        fix="Render the masks again, or declare share: low..high.",
        kind=kind,
        order=np.abs(share - 0.5),
    )
