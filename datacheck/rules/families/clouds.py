"""Rules about clouds of points: enough of them, and not the same ones again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, shown, those
from datacheck.rules.measures import extremes, form, of_role, positions, reduced
from datacheck.rules.points import exact_keys, mixed
from datacheck.rules.spacing import spacing
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows
from datacheck.voxel import finals

Array = np.ndarray[Any, Any]


@rule(
    "DC124", "too-few-points", Severity.ERROR, Level.SAMPLE, measures=(form,), needs=("DC109", "DC122"),
    applies=lambda spec: spec.role == "points" or (spec.role == "pose" and spec.min_points is not None),
)  # fmt: skip
def too_few_points(rows: Rows, case: Case) -> Iterator[Failure]:
    """A cloud has fewer points than the schema asks for, or none.

    What:
        A field of role points has at least ``min_points`` points; one where the schema says nothing. So have poses
        (grasps) with ``min_points``: fewer are a warning, none at all is an error.
    Why it matters:
        Sampling 20,000 points out of 5 repeats each of them 4,000 times; no surface is left to learn from. A sampler
        that takes 64 grasps of an object with 12 repeats them, and takes none of an object without any.
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
    if case.spec.role == "pose":
        yield from _too_few_poses(few, count, least)
    elif few.any():
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


def _too_few_poses(few: Array, count: Array, least: int) -> Iterator[Failure]:
    none = few & (count == 0)
    if none.any():
        text = f"{those(none, 'have')} no rows: nothing can be sampled from {'it' if none.sum() == 1 else 'them'}."
        yield Failure(none, text, expected={"min_points": least}, fix="Leave them out.", kind="none")
    if (some := few & ~none).any():
        yield Failure(
            some,
            f"{those(some, 'have')} fewer than {least:,} rows, which the sampler takes; the smallest has "
            f"{int(count[some].min()):,}: rows are repeated.",
            measured={"smallest": int(count[some].min())},
            expected={"min_points": least},
            severity=Severity.WARNING,
            fix="Leave them out, or sample fewer rows.",
            kind="repeated",
            order=-count,
        )


_MANY = 1 << 16  # points from which on a few copies are not looked for
_FEW = 0.01  # share of copies; linear counting is off by 0.0015 of the points (standard deviation)
_TOGETHER = 1 << 16  # points whose copies are looked for in one table, which stays in the cache of a core
_STRIP = 1 << 14  # points that stay in the cache of a core
_EACH = 4  # of clouds that are not large one in so many tells how far points are apart


@measure("repeats", version=4, applies=of_role("points"))
def repeats(column: Column, spec: FieldSpec) -> Columns:
    """Points that are exactly another one again: `placed` (finite points), `copies` (those less the distinct ones).

    In clouds of over 65,536 points `copies` is 0 where about 1 % or fewer are, and exact where more are. `spacing`: how
    far points at other places are apart, see `datacheck.rules.spacing`; of smaller clouds each fourth is asked: to ask
    all takes as long as all else here, and a histogram needs no more.
    """
    del spec
    known, placed = exact_keys(column), positions(column)
    if known is None or placed is None:
        return {}
    (keys, lengths), xyz = known, placed[0]
    count = np.ones(len(column), np.int64) if lengths is None else lengths
    apart = spacing(column, _asked(keys, count))
    if not all(np.isfinite(ends).all() for ends in extremes(column)[:2]):
        whole: Array = np.logical_and.reduce(np.isfinite(xyz), axis=0)
        keys, count = keys[whole], reduced(np.add, whole, lengths)
    stops = np.cumsum(count)
    looked = count > 0
    for i in np.flatnonzero(count > _MANY):
        looked[i] = not _few_copies(keys[stops[i] - count[i] : stops[i]])
    copies = np.zeros(len(count), np.int64)
    together = np.cumsum(np.where(looked, count, 0)) // _TOGETHER
    for number in np.unique(together[looked]):
        some = np.flatnonzero(looked & (together == number))
        parts = [keys[stops[i] - count[i] : stops[i]] for i in some]
        copies[some] = _copies(np.concatenate(parts), count[some])
    found: Columns = {"placed": count, "copies": Measured(copies, count > 0)}
    return found if apart is None else {**found, "spacing": apart}


def _asked(keys: Array, count: Array) -> Array:
    """Return which clouds tell how far their points are apart, by their first and last point and how many there are."""
    asked, filled, stops = count > _MANY, count > 0, np.cumsum(count)
    ends = keys[(stops - count)[filled]] + keys[stops[filled] - 1] + count[filled].astype(np.uint64)
    asked[filled] |= mixed(ends) % _EACH == 0
    return asked


def _few_copies(keys: Array) -> bool:
    """Tell whether about 1 % of the keys or fewer are another one again, a tenth of the work of finding them.

    Notes:
        Linear counting: of m slots that n distinct keys fall into m * exp(-n / m) stay empty.
    """
    bits = (2 * len(keys)).bit_length()
    filled = np.zeros(1 << bits, bool)
    for start in range(0, len(keys), _STRIP):
        filled[(keys[start : start + _STRIP] >> np.uint64(64 - bits)).view(np.int64)] = True
    distinct = -len(filled) * np.log1p(-np.count_nonzero(filled) / len(filled))
    return bool(len(keys) - distinct <= _FEW * len(keys))


def _copies(keys: Array, count: Array) -> Array:
    """Return how many keys of each cloud are another one of it again."""
    room = np.uint64(max(1, len(count).bit_length()))  # the sample in front, so that one table serves all of them
    own = keys >> room
    own |= np.repeat(np.arange(len(count), dtype=np.uint64) << (np.uint64(64) - room), count)
    again = np.flatnonzero(~finals(own))
    return np.bincount(np.searchsorted(np.cumsum(count), again, side="right"), minlength=len(count))


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
        Points less distinct points, by exact value; points with NaN or infinity are left out. In clouds of over 65,536
        points about 1 % of copies or fewer count as none. How far points are apart, of a fourth of the other clouds:
        the median, of up to 32 of them, of the distance to the nearest at another place.
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
        Exporters write the corners of every face: 66 % copies in one mesh of trimesh's collection. Whang et al. 1990, A
        linear-time probabilistic counting algorithm, tells whether there are more than a few.
    """
    known = rows.measured("copies")
    if not known.any():
        return
    share = np.where(known, rows["copies"] / np.maximum(rows["placed"], 1), 0)
    bad = share > float(case.options["share"])
    if bad.any():
        median = float(np.median(share[bad]))
        said = f"{100 * median:.3g} % of them{_others(rows, bad, case)}, median"
        yield Failure(
            bad,
            f"{those(bad, 'hold')} points that are copies of another one ({said}).",
            measured={"share": median, "points": int(rows["copies"][bad].sum())},
            expected={"share": f"..{float(case.options['share']):g}"},
            fix="Merge equal points, and sample again without replacement.",
            order=share,
        )


def _others(rows: Rows, bad: Array, case: Case) -> str:
    known = bad & rows.measured("spacing")
    return (
        f"; others are {shown(float(np.median(rows['spacing'][known])), case.spec.unit)} apart" if known.any() else ""
    )
