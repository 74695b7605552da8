"""Rules about directions: normals are unit vectors, up is up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, those
from datacheck.rules.measures import is_numeric, leaf, of_role, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

OFF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_MOST = 4096  # points of a cloud whose second moments are taken
_STRIP = 1 << 16  # normals that stay in the cache of a core
_NEEDS = ("DC109", "DC122", "DC221")


@measure("normals", applies=of_role("normal"))
def normals(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of normals: `normals`, how many; `off`: those further from 1 than each of `OFF`; `none`: those of 0."""
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 2 or column.values.shape[1] != 3:
        return {}
    exact = column.values.dtype.kind == "f" and column.values.dtype.itemsize >= 4
    xyz = column.planes if exact else column.planes.astype(np.float32)
    counts = column.lengths
    off = np.zeros((len(column), len(OFF)), np.int64)
    strips, low, high = [], (1 - OFF[0]) ** 2, (1 + OFF[0]) ** 2
    fine = True  # mostly all is well
    for start in range(0, xyz.shape[1], _STRIP):
        x, y, z = xyz[:, start : start + _STRIP]
        strips.append(x * x + y * y + z * z)
        fine = fine and bool(low <= strips[-1].min() and strips[-1].max() <= high)
    if not fine:
        square = np.concatenate(strips)
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


@measure("flatness", applies=lambda s: leaf(s) and s.role == "points" and s.up is not None)
def flatness(column: Column, spec: FieldSpec) -> Columns:
    """In which direction a cloud is flattest: `flat_axis` (3), a unit vector; `flatness`: how many times flatter.

    From the second moments of at most 4,096 points, evenly taken.
    """
    del spec
    values, lengths = column.values, column.lengths
    if not is_numeric(column) or lengths is None or values.ndim != 2 or values.shape[1] < 3:
        return {}
    moments = np.zeros((len(column), 3, 3))
    for i, (start, count) in enumerate(zip(column.starts, lengths, strict=True)):
        part = values[start : start + count : max(1, -(-count // _MOST)), :3].astype(np.float64)
        part -= part.mean(axis=0) if count else 0.0
        moments[i] = part.T @ part / max(1, len(part))
    known = (lengths > 3) & np.isfinite(moments).all(axis=(1, 2))
    size, axes = np.linalg.eigh(np.where(known[:, None, None], moments, np.eye(3)))
    known &= size[:, 1] > 0
    ratio = np.sqrt(size[:, 1] / np.maximum(size[:, 0], 1e-12 * np.maximum(size[:, 1], 1e-300)))
    return {"flat_axis": Measured(axes[:, :, 0], known), "flatness": Measured(ratio, known)}


@rule(
    "DC308", "up-axis", Severity.INFO, Level.DATASET, measures=(flatness,), needs=(*_NEEDS, "DC201"),
    applies=lambda s: leaf(s) and s.role == "points" and s.up is not None,
    defaults={"angle": 20.0, "flat": 1.3, "share": 0.5},
)  # fmt: skip
def up_axis(rows: Rows, case: Case) -> Iterator[Failure]:
    """Most clouds are flattest along another axis than the one that is declared to point up.

    What:
        Rooms, streets and tables are wider than high: the direction in which a cloud varies least is near the declared
        ``up``, in most samples.
    Why it matters:
        Augmentation turns about the vertical and cuts at the floor: about another axis it makes rooms that lie on
        their side.
    Measure:
        Eigenvector of the smallest second moment, where it is clearly the smallest; its angle to ``up``. Which end is
        up it does not tell.
    When it is wrong:
        Towers, corridors, single objects.
    Options:
        angle: degrees between both (20). flat: how much flatter than the next direction a cloud must be to be judged
        (1.3). share: share of these that may point elsewhere (0.5).
    Bad::

        schema: {fields: {p: {role: points, shape: [P, 3], unit: m, up: y}}}
        samples:
          - {n: 4, p: {room: 400}}

    Good::

        schema: {fields: {p: {role: points, shape: [P, 3], unit: m, up: z}}}
        samples:
          - {n: 4, p: {room: 400}}

    Fix:
        Turn the clouds, or declare the axis that points up.
    Reference:
        ScanNet is z up, most meshes of games and cameras are y up.
    """
    known = rows.measured("flatness")
    if not known.any():
        return
    clear = known & (rows["flatness"] >= float(case.options["flat"]))
    axis = "xyz".index((case.spec.up or "z")[-1])
    angle = np.rad2deg(np.arccos(np.clip(np.abs(rows["flat_axis"][:, axis]), 0, 1)))
    off = clear & (angle > float(case.options["angle"]))
    if int(off.sum()) > float(case.options["share"]) * max(1, int(clear.sum())):
        names = np.argmax(np.abs(rows["flat_axis"][off]), axis=1)
        often = int(np.argmax(np.bincount(names, minlength=3)))
        yield Failure(
            off,
            f"{int(off.sum()):,} of {int(clear.sum()):,} flat clouds are flattest along {'xyz'[often]}, "
            f"{float(np.median(angle[off])):.3g} degrees from {case.spec.up} (median), which is declared to point up.",
            measured={"angle": float(np.median(angle[off])), "axis": "xyz"[often]},
            expected={"up": case.spec.up},
            cause=Cause(f"probably {'xyz'[often]} points up", "xyz"[often], explains=int((names == often).sum())),
            fix=f"Turn the clouds, or declare up: {'xyz'[often]}.",
            kind="xyz"[often],
            order=angle,
        )
