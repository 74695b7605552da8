"""Rules about a ground truth that encodes class and instance in one number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, those
from datacheck.rules.measures import is_numeric, one_of
from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_HIGHEST = 1 << 62  # of an id: a column holds 64 bits

_BEFORE = ("DC109", "DC121", "DC122", "DC123", "DC221")
_STRIP = 1 << 14  # rows that stay in the cache of a core


def _encoded(schema: Schema) -> list[tuple[str, str, str]]:
    """Return (ground truth, class field, instance field) of each field that encodes two others."""
    pairs = [(name, spec.encodes) for name, spec in schema.of_role("ground_truth") if spec.encodes]
    return [
        (name, *pair) for name, pair in pairs if all(p in schema.fields and not schema.fields[p].absent for p in pair)
    ]


@measure("truth", version=2, per="sample", uses=("fields.role", "fields.encodes", "fields.ignore", "fields.absent"))
def truth(block: Block, schema: Schema) -> Columns:
    """How a ground truth agrees with ``class * 1000 + instance + 1``, for each field that encodes two others.

    Counts of rows: `<field>:rows`; `:wrong` ones; `:plain` ones that lack the 1; `:class` and `:instance`: wrong in
    this part. `:shuffled`: whether it holds the right numbers in another order; `:high`: the largest instance id.
    """
    columns: dict[str, Measured] = {}
    for name, class_name, instance_name in _encoded(schema):
        fields = [block.fields.get(n) for n in (name, class_name, instance_name)]
        if any(c is None or c.lengths is None or not is_numeric(c) for c in fields):
            continue
        found = [_agreement([c[i].reshape(-1) for c in fields if c is not None]) for i in range(len(block))]
        present = np.array([bool(row) for row in found])
        for stat in ("rows", "wrong", "plain", "class", "instance", "shuffled"):
            columns[f"{name}:{stat}"] = Measured(np.array([row.get(stat, 0) for row in found]), present)
        ignored = schema.spec(instance_name).ignore
        high = [_highest(fields[2][i].reshape(-1), ignored) if fields[2] is not None else -1 for i in range(len(block))]
        columns[f"{name}:high"] = Measured(np.array(high, dtype=np.int64), present)
    return dict(columns)


def _highest(ids: Array, ignored: tuple[int, ...]) -> int:
    top = _largest(ids)
    return _largest(ids[~one_of(ids, ignored)]) if top in ignored else top  # rare: 255 may stand for none


def _largest(ids: Array) -> int:
    top = ids.max() if len(ids) else -1
    return max(-1, min(int(top), _HIGHEST)) if np.isfinite(top) else -1


def _compared(told: Array, classes: Array, ids: Array) -> tuple[Array, Array]:
    """Return what a ground truth says, and what it should say: int64 (rows)."""
    wanted = classes.astype(np.int64)
    wanted *= 1000
    wanted += ids.astype(np.int64)
    wanted += 1
    return told.astype(np.int64, copy=False), wanted


def _agreement(values: list[Array]) -> dict[str, int]:
    """Return counts of rows of one sample; nothing where the lengths differ or a number is none."""
    if len({len(v) for v in values}) != 1:
        return {}
    if any(v.dtype.kind == "f" and not np.isfinite(v.sum()) for v in values):
        return {}
    parts = [[v[start : start + _STRIP] for v in values] for start in range(0, len(values[0]), _STRIP)]
    wrong = sum(int(np.count_nonzero(np.not_equal(*_compared(*part)))) for part in parts)
    if not wrong:
        return {"rows": len(values[0]), "wrong": 0}
    told, wanted = _compared(*values)
    return {
        "rows": len(told),
        "wrong": wrong,
        "plain": int(np.count_nonzero(told == wanted - 1)),
        "class": int(np.count_nonzero(told // 1000 != wanted // 1000)),
        "instance": int(np.count_nonzero(told % 1000 != wanted % 1000)),
        "shuffled": int(np.array_equal(np.sort(told), np.sort(wanted))),
    }


@rule(
    "DC410", "instance-overflow", Severity.ERROR, Level.SAMPLE, per="sample", measures=(truth,), needs=_BEFORE,
    defaults={"most": 998},
    unless=lambda s: "" if _encoded(s) else "no ground truth encodes class and instance",
)  # fmt: skip
def instance_overflow(rows: Rows, case: Case) -> Iterator[Failure]:
    """An instance id is too large for the ground truth that encodes it.

    What:
        Ids stay below 999 where the ground truth is ``class * 1000 + instance + 1``.
    Why it matters:
        A larger id spills into the class: the evaluation scores against another class, without a word.
    Measure:
        The largest instance id of each scene.
    When it is wrong:
        Nothing is evaluated from these files: drop ``encodes``.
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
        Number the instances of each scene from 0 and write the ground truth again.
    Reference:
        Mask3D and ExCap3D store ``semantic * 1000 + instance + 1``; ScanNet++ object ids are not dense.
    """
    most = int(case.options["most"])
    for truth, _, name in _encoded(case.schema):
        column = f":{truth}:high"
        known = rows.measured(column)
        bad = known & (rows[column] > most) if known.any() else known
        if bad.any():
            yield Failure(
                bad,
                f"{those(bad, 'have')} instance ids up to {int(rows[column][bad].max()):,} in {name}; {truth} has room "
                f"for {most}.",
                measured={"high": int(rows[column][bad].max())},
                expected={"high": f"..{most}"},
                fix="Number the instances of each scene from 0 and write the ground truth again.",
                order=rows[column],
                extra=(name, truth),
            )


@rule(
    "DC411", "ground-truth-mismatch", Severity.ERROR, Level.SAMPLE, per="sample", measures=(truth,),
    needs=(*_BEFORE, "DC410"), unless=lambda s: "" if _encoded(s) else "no ground truth encodes class and instance",
)  # fmt: skip
def ground_truth_mismatch(rows: Rows, case: Case) -> Iterator[Failure]:
    """The ground truth of the evaluation is not that of the labels that are trained on.

    What:
        Every row of the ground truth is ``class * 1000 + instance + 1`` of the same row, also where both are ignored.
    Why it matters:
        A model that is right is scored as wrong: training and evaluation disagree about what is there.
    Measure:
        Rows that differ, in class or in instance; whether the same numbers stand there in another order.
    When it is wrong:
        The encoding is another one: drop ``encodes``.
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
        Mask3D's fix_bugs_in_labels rewrites the labels of three ScanNet scenes, but not their ground truth.
    """
    for name, class_name, instance_name in _encoded(case.schema):
        known = rows.measured(f":{name}:wrong")
        if not known.any():
            continue
        stats = {s: rows[f":{name}:{s}"] for s in ("rows", "wrong", "plain", "class", "instance", "shuffled")}
        bad = known & (stats["wrong"] > 0)
        if bad.any():
            total = {s: int(values[bad].sum()) for s, values in stats.items()}
            cause = _why(stats, bad)
            yield Failure(
                bad,
                f"{name} differs from {class_name} * 1000 + {instance_name} + 1 in {total['wrong']:,} of "
                f"{total['rows']:,} rows of {counted(int(bad.sum()))}: {total['class']:,} in the class, "
                f"{total['instance']:,} in the instance.",
                measured=total,
                expected={"wrong": 0},
                cause=cause,
                fix="Write the ground truth again from the labels.",
                kind=cause.kind if cause is not None else "",
                order=stats["wrong"],
                extra=(name,),
            )


def _why(stats: dict[str, Array], bad: Array) -> Cause | None:
    reasons = {
        "offset": ("the instance is stored without the 1 that is added", stats["plain"] == stats["wrong"]),
        "order": ("the same numbers stand in another order of rows", stats["shuffled"] > 0),
        "class": ("the classes were changed on one side only", (stats["instance"] == 0)),
        "instance": ("the instances were numbered again on one side only", (stats["class"] == 0)),
        "other": ("labels of another scene", stats["wrong"] > 0.5 * stats["rows"]),
    }
    left = bad.copy()
    explained: dict[str, int] = {}
    for kind, (_, holds) in reasons.items():  # the first that holds of a scene explains it
        explained[kind] = int((left & holds).sum())
        left &= ~holds
    most = max(explained, key=lambda kind: explained[kind])
    return Cause(reasons[most][0], most, explains=explained[most]) if explained[most] else None
