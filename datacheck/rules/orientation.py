"""Rules about directions: normals are unit vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, those
from datacheck.rules.measures import is_numeric, of_role, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

OFF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_NEEDS = ("DC109", "DC122", "DC221")


@measure("normals", applies=of_role("normal"))
def normals(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of normals: `normals`, how many; `off`: those further from 1 than each of `OFF`; `none`: those of 0."""
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 2 or column.values.shape[1] != 3:
        return {}
    xyz = column.values if column.values.dtype.kind == "f" else column.values.astype(np.float32)
    if xyz.dtype.itemsize < 4:
        xyz = xyz.astype(np.float32)
    x, y, z = np.ascontiguousarray(xyz.T)
    square = x * x + y * y + z * z
    counts = column.lengths
    count = int(counts.max(initial=0))
    off = np.zeros((len(column), len(OFF)), np.int64)
    if count and not (np.abs(square - 1) <= 2 * OFF[0] - OFF[0] ** 2).all():  # one pass where all is well
        for place, limit in enumerate(OFF):
            wrong = ~((square >= (1 - limit) ** 2) & (square <= (1 + limit) ** 2))
            off[:, place] = reduced(np.add, wrong, counts)
    none = reduced(np.add, square == 0, counts) if off.any() else np.zeros(len(column), np.int64)
    found = {"normals": counts, "off": off, "none": none}
    return {name: Measured(values, counts > 0) for name, values in found.items()}


@rule(
    "DC311", "bad-normals", Severity.WARNING, Level.SAMPLE, measures=(normals,), needs=_NEEDS,
    applies=of_role("normal"), defaults={"off": 0.05, "share": 0.01},
)  # fmt: skip
def bad_normals(rows: Rows, case: Case) -> Iterator[Failure]:
    """Normals are absent, or are no unit vectors.

    What:
        At most 1 % of a sample's normals is further than 5 % from length 1; samples whose normals are all zero are told
        apart: they were written without normals.
    Why it matters:
        A network that was trained with normals gets zeros for some scenes, and nothing says so.
    Measure:
        Length of every normal.
    When it is wrong:
        Lengths carry something, for example an area: give the field another role.
    Options:
        off: how far from 1 (0.05; one of 0.01, 0.02, 0.05, 0.1, 0.2, 0.5). share: share of normals allowed (0.01).
    Bad::

        schema: {fields: {normal: {role: normal, shape: [P, 3]}}}
        samples:
          - {n: 3, normal: {directions: 200}}
          - {normal: {directions: 200, length: 0.5}}

    Good::

        schema: {fields: {normal: {role: normal, shape: [P, 3]}}}
        samples:
          - {n: 4, normal: {directions: 200}}

    Fix:
        Divide by the length; estimate absent normals from the mesh or leave the channels out.
    Reference:
        ExCap3D writes zeros and only logs a warning where the .pth holds no normals.
    """
    known = rows.measured("off")
    if not known.any():
        return
    absent = known & (rows["none"] >= rows["normals"])
    if absent.any():
        yield Failure(
            absent,
            f"{those(absent, 'hold')} no normals: all of them are zero.",
            measured={"share": 1.0},
            cause=Cause("written without normals", "absent", explains=int(absent.sum())),
            fix="Compute them, or leave the channels out for all samples.",
            kind="absent",
        )
    place = int(np.argmin(np.abs(np.array(OFF) - float(case.options["off"]))))
    share = rows["off"][:, place] / np.maximum(rows["normals"], 1)
    bad = known & ~absent & (share > float(case.options["share"]))
    if bad.any():
        yield Failure(
            bad,
            f"{those(bad, 'hold')} normals whose length is more than {OFF[place]:g} from 1 "
            f"({100 * float(np.median(share[bad])):.3g} % of them, median; "
            f"{int(rows['none'][bad].sum()):,} are zero).",
            measured={"share": float(np.median(share[bad])), "zero": int(rows["none"][bad].sum())},
            expected={"length": 1.0},
            fix="Divide them by their length; estimate those that are zero.",
            kind="length",
            order=share,
        )
