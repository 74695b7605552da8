"""Rules about clouds of points: enough of them, and not the same ones again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, those
from datacheck.rules.measures import form, of_role, positions, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows
from datacheck.voxel import finals

Array = np.ndarray[Any, Any]


@rule(
    "DC124", "too-few-points", Severity.ERROR, Level.SAMPLE, measures=(form,), needs=("DC109", "DC122"),
    applies=lambda spec: spec.role == "points",
)  # fmt: skip
def too_few_points(rows: Rows, case: Case) -> Iterator[Failure]:
    """A cloud has fewer points than the schema asks for, or none.

    What:
        A field of role points has at least ``min_points`` points; one where the schema says nothing.
    Why it matters:
        Sampling 20,000 points out of 5 repeats each of them 4,000 times; no surface is left to learn from.
    Measure:
        Size of the first axis.
    When it is wrong:
        Small clouds are meant: lower ``min_points``. Empty ones are meant: switch the rule off.
    Options:
        none
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3], min_points: 64}}}
        samples:
          - {n: 2, xyz: {box: [200, 3]}}
          - {xyz: {box: [5, 3]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3], min_points: 64}}}
        samples:
          - {n: 2, xyz: {box: [200, 3]}}
          - {xyz: {box: [64, 3]}}

    Fix:
        Leave the samples out, or sample the surface again.
    Reference:
        A Lyft sweep of 5 points in the tests of mmdetection3d.
    """
    least = case.spec.min_points or 1
    if "dims" not in rows:
        return
    count = rows["dims"][:, 0]
    few = rows.measured("dims") & (count < least)
    if few.any():
        yield Failure(
            few,
            f"{those(few, 'have')} fewer than {least:,} points; the smallest has {int(count[few].min()):,}."
            if least > 1
            else f"{those(few, 'have')} no points.",
            measured={"smallest": int(count[few].min())},
            expected={"min_points": least},
            fix="Leave them out, or sample the surface again.",
            order=-count,
        )


_STRIP = 16384  # rows that stay in the cache of a core
_ODD = tuple(np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64))


def _mixed(xyz: Array) -> Array:
    """Return 64 bits of each position: equal for equal ones, for others not (1 in 2**64 pairs).

    Shapes:
        xyz: float (3, rows)
        returns: uint64 (rows)
    """
    mixed: Array = np.zeros(xyz.shape[1], np.uint64)
    for start in range(0, len(mixed), _STRIP):
        values, strip = xyz[:, start : start + _STRIP], mixed[start : start + _STRIP]
        bits = (values + xyz.dtype.type(0)).view(np.dtype(f"u{xyz.dtype.itemsize}"))  # -0 + 0 is 0
        bits ^= bits >> bits.dtype.type(4 * xyz.dtype.itemsize)  # round numbers have their ones at the top only
        for axis, odd in zip(bits, _ODD, strict=True):
            strip += axis * odd
    return mixed


@measure("repeats", applies=of_role("points"))
def repeats(column: Column, spec: FieldSpec) -> Columns:
    """Points that are exactly another one again: `placed` (finite points), `copies` (those less the distinct ones)."""
    del spec
    found = positions(column)
    if found is None:
        return {}
    xyz, lengths = found
    xyz = xyz if xyz.dtype.kind == "f" else xyz.astype(np.float64)
    count = np.ones(len(column), np.int64) if lengths is None else lengths
    if not np.isfinite(xyz.sum()):
        whole: Array = np.logical_and.reduce(np.isfinite(xyz), axis=0)
        xyz, count = xyz[:, whole], reduced(np.add, whole, lengths)
    room = np.uint64(max(1, len(count).bit_length()))  # the sample in front, so that one table serves all of them
    mixed = _mixed(xyz)
    mixed >>= room
    mixed |= np.repeat(np.arange(len(count), dtype=np.uint64) << (np.uint64(64) - room), count)
    again = np.flatnonzero(~finals(mixed))
    copies = np.bincount(np.searchsorted(np.cumsum(count), again, side="right"), minlength=len(count))
    return {"placed": count, "copies": Measured(copies, count > 0)}


@rule(
    "DC227", "duplicate-points", Severity.WARNING, Level.SAMPLE, measures=(repeats,),
    needs=("DC109", "DC122", "DC221", "DC222"), applies=repeats.applies, defaults={"share": 0.2},
)  # fmt: skip
def duplicate_points(rows: Rows, case: Case) -> Iterator[Failure]:
    """Many points of a cloud are exactly the same.

    What:
        At most 20 % of the points of a cloud are copies of another one.
    Why it matters:
        Padding by repetition weighs some places more; farthest-point sampling and neighbours see fewer points than
        there seem to be; normals of zero-sized neighbourhoods are NaN.
    Measure:
        Points less distinct points, by exact value; points with NaN or infinity are left out.
    When it is wrong:
        A mesh repeats the corners of each face on purpose: raise ``share``, or switch the rule off.
    Options:
        share: share of copies allowed (0.2).
    Bad::

        schema: {fields: {p: {role: points, shape: [P, 3]}}}
        samples:
          - {n: 3, p: {box: [60, 3]}}
          - {p: [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.4, 0.2, 0.3], [0.1, 0.9, 0.3]]}

    Good::

        schema: {fields: {p: {role: points, shape: [P, 3]}}}
        samples:
          - {n: 3, p: {box: [60, 3]}}
          - {p: [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.4, 0.2, 0.3], [0.1, 0.9, 0.3]]}

    Fix:
        Merge equal points, and sample again without replacement.
    Reference:
        Exporters write the corners of every face: 66 % copies in one mesh of trimesh's collection.
    """
    known = rows.measured("copies")
    if not known.any():
        return
    share = np.where(known, rows["copies"] / np.maximum(rows["placed"], 1), 0)
    bad = share > float(case.options["share"])
    if bad.any():
        median = float(np.median(share[bad]))
        yield Failure(
            bad,
            f"{those(bad, 'hold')} points that are copies of another one ({100 * median:.3g} % of them, median).",
            measured={"share": median, "points": int(rows["copies"][bad].sum())},
            expected={"share": f"..{float(case.options['share']):g}"},
            fix="Merge equal points, and sample again without replacement.",
            order=share,
        )
