"""Rules about grippers: the values that a command may have, and which of them opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import column_of, flat, is_numeric, of_role
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_CLOSE = 1e-4  # stored as float32 or after a round trip, a value is still the one it was meant to be
_AHEAD = 3  # steps within which fingers show what they were told
_CONVENTIONS = ((-1.0, 1.0), (0.0, 1.0), (0.0, 255.0))


@measure("told", applies=of_role("gripper"), uses=("values",))
def told(column: Column, spec: FieldSpec) -> Columns:
    """What a gripper is told: `told_low`, `told_high`; shares `between` them, and not declared: `strays`."""
    if not is_numeric(column):
        return {}
    values, lengths = flat(column)
    values = values.astype(np.float64)
    out = np.zeros((4, len(column)))
    known = lengths > 0
    starts = np.cumsum(lengths) - lengths
    for i in np.flatnonzero(known):
        own = values[starts[i] : starts[i] + lengths[i]]
        low, high = own.min(), own.max()
        ends = (np.abs(own - low) <= _CLOSE) | (np.abs(own - high) <= _CLOSE)
        allowed = np.logical_or.reduce([np.abs(own - v) <= _CLOSE for v in spec.values]) if spec.values else ends
        out[:, i] = low, high, 1 - np.mean(ends), 1 - np.mean(allowed)
    names = ("told_low", "told_high", "between", "strays")
    return {name: Measured(row, known) for name, row in zip(names, out, strict=True)}


@measure("grasping", per="sample", uses=("fields.drives", "fields.columns", "fields.lag", "fields.role"))
def grasping(block: Block, schema: Schema) -> Columns:
    """How fingers follow a gripper: ``<field>:follows``, correlation of the command with their opening.

    The opening is the sum of the absolute values of what the command `drives`, 3 steps ahead (and `lag`). No row where
    either never changes.
    """
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        if spec.role != "gripper" or not spec.drives:
            continue
        mine, other = column_of(block, schema, name), column_of(block, schema, spec.drives)
        if mine is None or other is None or not (is_numeric(mine) and is_numeric(other)):
            continue
        value, known = np.zeros(len(block)), np.zeros(len(block), bool)
        for i in range(len(block)):
            told, opening = mine[i], other[i]
            if told.ndim and opening.ndim and len(told) == len(opening):
                value[i], known[i] = _follows(told, opening, spec.lag or 0)
        found[f"{name}:follows"] = Measured(value, known)
    return dict(found)


def _follows(told: Array, seen: Array, lag: int) -> tuple[float, bool]:
    if not told.size or not seen.size:
        return 0.0, False
    command = told.reshape(len(told), -1).astype(np.float64)[:, 0]
    opening = np.abs(seen.reshape(len(seen), -1).astype(np.float64)).sum(axis=1)[max(lag, 0) + _AHEAD :]
    command = command[: len(opening)]
    if len(opening) < 2 * _AHEAD or not np.isfinite(opening).all() or not np.isfinite(command).all():
        return 0.0, False
    command, opening = command - command.mean(), opening - opening.mean()
    size = float(np.sqrt((command**2).sum() * (opening**2).sum()))
    return (float((command * opening).sum()) / size, True) if size > 1e-12 else (0.0, False)


@rule(
    "DC207", "gripper-convention", Severity.WARNING, Level.SAMPLE, measures=(told, grasping),
    needs=("DC109", "DC122", "DC221", "DC224"), applies=of_role("gripper"), defaults={"strays": 0.01, "sure": 0.3},
)  # fmt: skip
def gripper_convention(rows: Rows, case: Case) -> Iterator[Failure]:
    """A gripper command means something else than declared, or than in the other samples.

    What:
        Only declared ``values`` occur; without them all samples use one pair (-1 and 1, 0 and 1, 0 and 255). Where
        ``values: [open, closed]`` and ``drives`` are declared, fingers close when they are told to.
    Why it matters:
        A policy that learnt the other sign opens its hand where it should grasp; success is 0 and the loss is fine.
    Measure:
        Values of each sample; correlation of the command with the opening of the fingers 3 steps later.
    When it is wrong:
        A continuous gripper: declare its ``range`` and no ``values``. Fingers that answer late: declare ``lag``.
    Options:
        strays: share of other values that is let pass (0.01). sure: correlation of the wrong sign that counts (0.3).
    Bad::

        schema: {fields: {grip: {role: gripper, shape: [T], values: [-1, 1]}}}
        samples:
          - {grip: [-1.0, -1.0, 1.0, 1.0, -1.0]}
          - {grip: [-1.0, 1.0, 1.0, 1.0, -1.0]}
          - {grip: [0.0, 0.0, 1.0, 1.0, 0.0]}

    Good::

        schema: {fields: {grip: {role: gripper, shape: [T], values: [-1, 1]}}}
        samples:
          - {grip: [-1.0, -1.0, 1.0, 1.0, -1.0]}
          - {grip: [-1.0, 1.0, 1.0, 1.0, -1.0]}

    Fix:
        Rescale or flip the command in the samples that are named.
    Reference:
        LIBERO: -1 opens, +1 closes; RLDS versions turn it into 1 open, 0 closed; LeRobot issue 1316.
    """
    known = rows.measured("told_low")
    if not known.any():
        return
    spec = case.spec
    if spec.values:
        strays = known & (rows["strays"] > float(case.options["strays"]))
        if strays.any():
            yield _strays(rows, strays, spec)
    else:
        yield from _mixture(rows, known)
    if len(spec.values) == 2 and f":{case.name}:follows" in rows:
        yield from _against(rows, case, f":{case.name}:follows")


def _against(rows: Rows, case: Case, column: str) -> Iterator[Failure]:
    """Yield the samples whose fingers open when they are told to close."""
    opened, closed = case.spec.values
    told = rows.measured(column)
    along = rows[column] * np.sign(opened - closed)  # above 0 where fingers do what they are told
    wrong = told & (along < -float(case.options["sure"]))
    if wrong.any():
        middle = float(np.median(rows[column][wrong]))
        yield Failure(
            wrong,
            f"{case.spec.drives} moves against the command in {int(wrong.sum()):,} of {counted(int(told.sum()))} "
            f"(correlation {shown(middle)}, median); {shown(opened)} is declared to open.",
            measured={"correlation": middle},
            cause=Cause("open and closed are swapped", "inverted", -1.0, int(wrong.sum())),
            kind="inverted",
            fix="Swap values: [open, closed] where all samples are so, else flip the command in these.",
            order=-along,
        )


def _pair(rows: Rows) -> Array:
    """Return int (rows): which pair of values a sample uses, -1 where it cannot be told (one value, continuous)."""
    found = np.full(len(rows), -1)
    for number, (low, high) in enumerate(_CONVENTIONS):
        ends = [np.abs(rows[name] - end) <= _CLOSE for name in ("told_low", "told_high") for end in (low, high)]
        inside = (ends[0] | ends[1]) & (ends[2] | ends[3]) & (rows["between"] <= _CLOSE)
        only = (ends[0], ends[0] & ends[3], ends[3])[number]  # what no other pair has: -1; 0 and 1; 255
        found[inside & only] = number
    return found


def _strays(rows: Rows, strays: Array, spec: FieldSpec) -> Failure:
    pairs = _pair(rows)
    kinds = sorted({_CONVENTIONS[p] for p in pairs[strays] if p >= 0})
    cause = None
    if kinds and (pairs[strays] >= 0).all():
        text = " and ".join(f"{low:g} and {high:g}" for low, high in kinds)
        cause = Cause(f"the command is {text}", f"{kinds[0][0]:g}/{kinds[0][1]:g}", None, int(strays.sum()))
    declared = " and ".join(f"{value:g}" for value in spec.values)
    return Failure(
        strays,
        f"{those(strays, 'have')} commands of {shown(float(rows['told_low'][strays].min()))} to "
        f"{shown(float(rows['told_high'][strays].max()))}; only {declared} are declared.",
        measured={"low": float(rows["told_low"][strays].min()), "high": float(rows["told_high"][strays].max())},
        expected={"values": list(spec.values)},
        cause=cause,
        kind="values",
        fix="Rescale the command, or correct values: [open, closed].",
        order=rows["strays"],
    )


def _mixture(rows: Rows, known: Array) -> Iterator[Failure]:
    pairs = np.where(known, _pair(rows), -1)
    counts = np.bincount(pairs[pairs >= 0], minlength=len(_CONVENTIONS))
    if np.count_nonzero(counts) > 1:
        usual = int(np.argmax(counts))
        few = (pairs >= 0) & (pairs != usual)
        said = " and ".join(f"{low:g}, {high:g}" for (low, high), n in zip(_CONVENTIONS, counts, strict=True) if n)
        yield Failure(
            few,
            f"samples use different commands: {said}; {those(few, 'have')} the rarer one.",
            measured={"counts": counts.tolist()},
            cause=Cause("datasets of two conventions were joined", "mixed", None, int(few.sum())),
            kind="mixed",
            fix="Bring all to one convention, and declare it: values: [open, closed].",
        )
