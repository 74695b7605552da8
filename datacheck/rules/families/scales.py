"""Rules about scales: of depth maps, of clocks, and of fields that must have one scale among them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown
from datacheck.rules.beside import near
from datacheck.rules.explain import Change, between, explain, logarithms
from datacheck.rules.measures import is_numeric, of_role, place
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import LENGTH, TIME, factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_PIXELS = 1 << 16  # of a depth map that are looked at: its median does not need all
_STORED = (1000.0, 256.0, 4000.0, 5000.0, 10000.0, 1 / 0.00012498664727900177, 100.0, 1.0)  # stored units per metre


@measure("depths", version=2, applies=of_role("depth"), uses=("ignore", "sentinels", "channels"), depth="deep")
def depths(column: Column, spec: FieldSpec) -> Columns:
    """How far a depth map sees, as stored, from every so many of its pixels.

    `depth`, the median of the values above 0, and `seen`, their share. Marks for "no depth" are left out; samples
    without a depth have no `depth`.
    """
    if not is_numeric(column):
        return {}
    found, seen, known = np.zeros(len(column)), np.zeros(len(column)), np.zeros((2, len(column)), bool)
    marks = (*spec.ignore, *spec.sentinels)
    for i in range(len(column)):
        values = _stored(column[i], spec)
        valid = values[np.isfinite(values) & (values > 0) & ~np.isin(values, marks)]
        known[:, i] = len(valid), len(values)
        found[i] = float(np.median(valid)) if len(valid) else 0.0
        seen[i] = len(valid) / max(1, len(values))
    return {"depth": Measured(found, known[0]), "seen": Measured(seen, known[1])}


def _stored(image: Array, spec: FieldSpec) -> Array:
    """Return every so many numbers of a depth map in float64: channels put together, none where they are fewer."""
    count = len(spec.channels)
    if count and (image.ndim < 2 or image.shape[-1] < count):
        return np.zeros(0)
    values = image.reshape(-1, image.shape[-1]) if count else image.reshape(-1, 1)
    values = values[:: max(1, len(values) // _PIXELS)].astype(np.float64)  # first: 256 does not fit into a byte
    return values[:, :count] @ np.array(spec.channels) if count else values[:, 0]


@rule(
    "DC204", "depth-scale", Severity.ERROR, Level.SAMPLE, measures=(depths, place),
    needs=("DC109", "DC122", "DC221"),
    applies=lambda s: of_role("depth")(s) and (s.unit in LENGTH or s.scale is not None or s.share is not None),
    defaults={"near": 0.1, "far": 20.0, "rescue": 0.9},
)  # fmt: skip
def depth_scale(rows: Rows, case: Case) -> Iterator[Failure]:
    """Depth is not in the declared unit once it is multiplied by the declared scale, or not where it should be.

    What:
        The typical depth of each map lies between ``near`` and ``far`` metres. Judged where ``unit`` or ``scale`` is
        declared. Where the schema says what the map is ``near``, its typical depth is that of this field up to
        ``distance`` (a warning); ``share`` is the share of pixels that have a depth (a warning).
    Why it matters:
        A depth map that is five or a thousand times too deep still looks like the scene; only the points are wrong.
    Measure:
        Median of the valid depths x ``scale``, in metres, ``channels`` put together; then each scale that is in use is
        tried on the offenders: 1000, 256, 4000, 5000, 10000, 8001, 100 or 1 stored units per metre, and a factor 100
        (BOP's ``depth_scale`` of 0.1 divided by where it should be multiplied). The depth of another field is |z| of
        its first position, of points of their centroid.
    When it is wrong:
        The camera sees closer or farther than a room: set ``near`` and ``far``, or ``distance``. A scale that is off by
        less than 10 may not be seen where nothing is ``near``.
    Options:
        near: least typical depth in metres (0.1). far: largest (20). rescue: share of the offenders that a scale must
        bring into range to be named (0.9).
    Bad::

        schema: {fields: {d: {role: depth, shape: [12, 16], unit: m}}}
        samples:
          - {n: 9, d: {choice: [12, 16], among: [1.1, 1.5, 2.2]}}
          - {d: {choice: [12, 16], among: [1100.0, 1500.0, 2200.0]}}

    Good::

        schema: {fields: {d: {role: depth, shape: [12, 16], unit: m, scale: 0.001}}}
        samples:
          - {n: 9, d: {choice: [12, 16], among: [1100, 1500, 2200]}}

    Fix:
        Declare the scale of the files (``scale: 0.0002``), or convert them.
    Reference:
        BOP: metres = raw x depth_scale / 1000; TUM 5000, VOID 256, YCB 10000; HO3D 0.000125 m per unit.
    """
    spec = case.spec
    if "depth" not in rows:
        return
    scale = (1.0 if spec.scale is None else spec.scale) * factor(spec.unit or "m")
    metres, known = rows["depth"] * scale, rows.measured("depth") & (spec.unit in LENGTH or spec.scale is not None)
    low, high = float(case.options["near"]), float(case.options["far"])
    bad = known & ((metres < low) | (metres > high))
    if bad.any():
        yield _beyond(rows, scale, known & ~bad, bad, case)
    yield from _apart(rows, case, scale, known & ~bad)
    yield from _holes(rows, case)


def _beyond(rows: Rows, scale: float, good: Array, bad: Array, case: Case) -> Failure:
    """Return the finding of depths that no room has."""
    stored = rows["depth"]
    metres, low, high = stored * scale, float(case.options["near"]), float(case.options["far"])
    usual = float(np.median(metres[good])) if good.any() else math.sqrt(low * high)
    cause = _scale_of(rows, case, scale, bad, good, (low, high))
    return Failure(
        bad,
        f"typical depth {shown(float(np.median(metres[bad])), 'm')} (median of {counted(int(bad.sum()))}), allowed "
        f"{low:g}..{high:g} m{f'; the others: {shown(usual)} m' if good.any() else ''}.",
        measured={"depth": float(np.median(metres[bad])), "stored": float(np.median(stored[bad]))},
        expected={"range": [low, high]},
        cause=cause,
        kind=cause.kind if cause else "",
        fix="Declare the scale that the files have, or convert them.",
        order=np.where(bad, np.abs(np.log(np.maximum(metres, 1e-300) / usual)), 0.0),
    )


def _apart(rows: Rows, case: Case, scale: float, known: Array) -> Iterator[Failure]:
    """Yield which maps see another depth than the field that they are near to lies at."""
    spec, other = case.spec, case.schema.spec(case.spec.near or "")
    column = f"{spec.near}:{'centroid' if other.role == 'points' else 'first'}"
    if not spec.near or spec.distance is None or column not in rows:
        return
    stored, there = rows["depth"], np.abs(rows[column][:, 2]) * factor(other.unit or "m")
    ends = (-math.inf if spec.distance.low is None else spec.distance.low, spec.distance.high)
    low, high = (math.inf if end is None else end * factor(spec.unit or "m") for end in ends)
    gap = np.abs(stored * scale - there)
    bad = known & rows.measured(column) & (there > 0) & ((gap < low) | (gap > high))
    if bad.any():
        usual = float(np.median(there[bad]))
        cause = _scale_of(rows, case, scale, bad, known & ~bad, (there - high, there + high))
        yield Failure(
            bad,
            f"typical depth {shown(float(np.median(stored[bad] * scale)), 'm')} (median of {counted(int(bad.sum()))}), "
            f"{spec.near} {shown(usual)} m away; {shown(float(np.median(gap[bad])))} m apart (median), allowed "
            f"{spec.distance} {spec.unit or 'm'}.",
            measured={"depth": float(np.median(stored[bad] * scale)), "apart": float(np.median(gap[bad]))},
            expected={"distance": str(spec.distance)},
            cause=cause,
            kind="apart",
            severity=Severity.WARNING,
            fix="Look at them: a depth map of another frame or camera, another scale, or a wider distance.",
            order=gap,
        )


def _holes(rows: Rows, case: Case) -> Iterator[Failure]:
    """Yield which maps have a depth at too few or too many of their pixels."""
    allowed = case.spec.share
    if allowed is None or "seen" not in rows:
        return
    seen, low, high = rows["seen"], allowed.low or 0.0, 1.0 if allowed.high is None else allowed.high
    bad = rows.measured("seen") & ((seen < low) | (seen > high))
    if bad.any():
        yield Failure(
            bad,
            f"{100 * float(np.median(seen[bad])):.3g} % of the pixels have a depth (median of "
            f"{counted(int(bad.sum()))}); share: {allowed} is allowed.",
            measured={"share": float(np.median(seen[bad]))},
            expected={"share": str(allowed)},
            kind="share",
            severity=Severity.WARNING,
            fix="Render or record them again; leave them out where no depth is to be had.",
            order=-seen,
        )


def _scale_of(
    rows: Rows, case: Case, scale: float, bad: Array, good: Array, allowed: tuple[Array | float, Array | float]
) -> Cause | None:
    """Return which scale in use explains the offenders."""
    stored = rows["depth"]
    known = [(1 / count, f"1/{count:.5g}", f"probably {count:,.5g} units per metre") for count in _STORED]
    known += [
        (scale * by, "reciprocal", "probably a depth_scale of 0.1 that was taken upside down") for by in (0.01, 100.0)
    ]
    changes: list[Change] = []
    for one, kind, words in known:
        taken = [scale, *(scale * (change.factor or 0) for change in changes)]
        if any(math.isclose(one, other, rel_tol=0.01) for other in taken):
            continue
        metres = stored * one
        inside = (metres >= allowed[0]) & (metres <= allowed[1])
        changes.append(
            Change(kind, words, one / scale, {"depth": logarithms(metres)}, inside, common=kind in {"1/1000", "1/1"})
        )
    low, high = (float(np.median(np.broadcast_to(ends, len(bad))[bad])) for ends in allowed)
    return explain(
        changes,
        {"depth": logarithms(stored * scale)},
        {"depth": between(low, high)},
        bad,
        good,
        rows.groups,
        case.options["rescue"],
    )


# ---------------------------------------------------------------------------------------------- time


@measure("tick", applies=of_role("timestamp"))
def tick(column: Column, spec: FieldSpec) -> Columns:
    """How far apart the timestamps of an episode are, as stored: `tick`, the median step; no row below three stamps."""
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 1:
        return {}
    found, known = np.zeros(len(column)), column.lengths > 2
    for i in np.flatnonzero(known):
        found[i] = float(np.median(np.diff(column[int(i)].astype(np.float64))))
    return {"tick": Measured(found, known)}


def _no_rate(schema: Schema) -> str:
    return "" if schema.episode is not None and schema.episode.fps else "episode.fps is not declared"


@rule(
    "DC206", "time-unit", Severity.ERROR, Level.SAMPLE, measures=(tick,), needs=("DC109", "DC122", "DC221"),
    applies=lambda s: of_role("timestamp")(s) and s.unit in TIME, unless=_no_rate, defaults={"near": 0.05},
    paced=True,
)  # fmt: skip
def time_unit(rows: Rows, case: Case) -> Iterator[Failure]:
    """Timestamps are in another unit than declared, or are no times at all but numbers of frames.

    What:
        The usual step between timestamps, in the declared ``unit``, is one frame of ``episode: {fps: ...}``.
    Why it matters:
        Velocities are off by a million, and tolerances in seconds accept or refuse every frame.
    Measure:
        Median step x fps; near 1000, 1e6, 1e9 or their reciprocals it is a unit, near fps it is a frame number.
    When it is wrong:
        A rate that is really a thousand times another one: declare its own ``fps``. Other ratios are for other rules.
    Options:
        near: tolerance of the ratio (0.05).
    Bad::

        schema: {episode: {fps: 20}, fields: {t: {role: timestamp, shape: [T], unit: s}}}
        samples:
          - {n: 3, t: [0.0, 0.05, 0.1, 0.15, 0.2]}
          - {t: [0.0, 50.0, 100.0, 150.0, 200.0]}

    Good::

        schema: {episode: {fps: 20}, fields: {t: {role: timestamp, shape: [T], unit: ms}}}
        samples:
          - {n: 3, t: [0.0, 50.0, 100.0, 150.0, 200.0]}

    Fix:
        Convert the timestamps, or declare the unit that they have.
    Reference:
        ROS 2 stamps are nanoseconds, LeRobot's seconds: a converted dataset holds whichever its author took.
    """
    if "tick" not in rows or case.schema.episode is None or not case.schema.episode.fps:
        return
    fps, own = case.schema.episode.fps, TIME[case.spec.unit or "s"]
    step, known = rows["tick"], rows.measured("tick") & (rows["tick"] > 0)
    ratio = step * own * fps
    wrong = [(f"{name}", TIME[name] / own) for name in TIME if TIME[name] != own]
    told = [(f"probably {kind}", kind, by) for kind, by in wrong] + [
        ("frame numbers, not times", "index", 1 / (own * fps))
    ]
    left = known.copy()
    for words, kind, by in told:
        bad = left & (np.abs(ratio * by - 1) <= float(case.options["near"]))
        bad &= np.abs(ratio - 1) > float(case.options["near"])
        if bad.any():
            left &= ~bad
            typical = float(np.median(step[bad]))
            yield Failure(
                bad,
                f"timestamps of {counted(int(bad.sum()))} step by {shown(typical, case.spec.unit)}; at {shown(fps)} "
                f"frames per second it would be {shown(1 / (own * fps), case.spec.unit)}.",
                measured={"step": typical, "ratio": float(np.median(ratio[bad]))},
                expected={"step": 1 / (own * fps), "unit": case.spec.unit},
                cause=Cause(f"{words}: x{by:.4g} gives {shown(fps)} frames per second", kind, by, int(bad.sum())),
                kind=kind,
                fix="Convert the timestamps, or declare the unit that they have.",
            )


# ---------------------------------------------------------------------------------------------- between fields


def _related(schema: Schema) -> list[tuple[str, str]]:
    """Return (field, points): how far the field lies from something, and the points that are this something."""
    pairs = []
    for name, spec in sorted(schema.fields.items()):
        if not spec.near or spec.role == "depth":
            continue
        part = schema.part_of(spec.near)
        poses = {spec.near, part[0] if part else spec.near}
        posed = [n for n, s in schema.of_role("points") if s.posed_by in poses]
        sized = [spec.near] if schema.spec(spec.near).role == "points" else posed
        pairs += [(name, points) for points in sized if points != name]
    return pairs


@rule(
    "DC208", "cross-field-scale", Severity.ERROR, Level.SAMPLE, per="sample", measures=(near, place),
    needs=("DC109", "DC122", "DC201", "DC203", "DC221", "DC222"), defaults={"most": 3.0, "least": 0.001},
    unless=lambda schema: "" if _related(schema) else "no field is near points, or near the pose of points",
)  # fmt: skip
def cross_field_scale(rows: Rows, case: Case) -> Iterator[Failure]:
    """Two fields that belong together are in different units.

    What:
        What is ``near`` points, or near a pose by which points are ``posed_by``, lies within three times their size.
    Why it matters:
        A hand in metres beside a mesh in millimetres: each is plausible alone, and no grasp touches anything.
    Measure:
        Median distance / diagonal of the points, both in metres; then the factor of each unit is tried.
    When it is wrong:
        The two are that far apart: raise ``most``.
    Options:
        most: largest distance, in sizes (3). least: smallest (0.001).
    Bad::

        schema: {fields: {hand: {role: position, shape: [T, 3], unit: m, near: verts},
                          verts: {role: points, shape: [V, 3], unit: m}}}
        samples:
          - {n: 2, hand: {box: [9, 3], size: 0.2, at: [0.5, 0.5, 0.5]}, verts: {box: [30, 3], size: 0.2}}
          - {hand: {box: [9, 3], size: 0.2, at: [0.5, 0.5, 0.5]}, verts: {box: [30, 3], size: 0.002}}

    Good::

        schema: {fields: {hand: {role: position, shape: [T, 3], unit: m, near: verts},
                          verts: {role: points, shape: [V, 3], unit: m}}}
        samples:
          - {n: 3, hand: {box: [9, 3], size: 0.2, at: [0.5, 0.5, 0.5]}, verts: {box: [30, 3], size: 0.2}}

    Fix:
        Convert the one that is wrong: declare ``size`` or ``distance``, and the next scan says which.
    Reference:
        SceneLeap and BOP: meshes and ``scene_gt`` in millimetres, grasps in metres.
    """
    for name, points in _related(case.schema):
        if f":{name}:near" not in rows or f"{points}:box" not in rows:
            continue
        own, other = (factor(s.unit or "m") * (s.scale or 1.0) for s in map(case.schema.spec, (name, points)))
        size = rows[f"{points}:box"] * other
        known = rows.measured(f":{name}:near", f"{points}:box") & (size > 0) & (rows[f":{name}:near"] > 0)
        ratio = rows[f":{name}:near"] * own / np.where(known, size, 1.0)
        least, most = float(case.options["least"]), float(case.options["most"])
        bad = known & ((ratio > most) | (ratio < least))
        if bad.any():
            typical = float(np.median(ratio[bad]))
            yield Failure(
                bad,
                f"{name} lies {shown(typical)} times the size of {points} away (median of {counted(int(bad.sum()))}), "
                f"allowed {least:g}..{most:g}.",
                measured={"ratio": typical},
                expected={"range": [least, most]},
                cause=_unit_between(rows, ratio, bad, known & ~bad, (least, most), (name, points)),
                kind=name,
                fix=f"Convert {name} or {points}; declare size or distance to see which.",
                extra=(name, points),
                order=np.where(bad, np.abs(np.log(np.maximum(ratio, 1e-300))), 0.0),
            )


def _unit_between(
    rows: Rows, ratio: Array, bad: Array, good: Array, allowed: tuple[float, float], both: tuple[str, str]
) -> Cause | None:
    """Return the unit of which of the two fields explains that one lies too far from the other, or too near."""
    name = both[0]
    sizes = {field: rows[f"{field}:box"] for field in both if f"{field}:box" in rows}

    def looks(by: float, of: str) -> dict[str, Array]:
        found = {f"size of {field}": logarithms(box * (by if field == of else 1.0)) for field, box in sizes.items()}
        return found | {"ratio": logarithms(ratio * (by if of == name else 1 / by))}

    changes = []
    for unit in ("mm", "cm", "in", "ft"):
        for of in both:
            for by, kind, words in (
                (LENGTH[unit], unit, f"probably {of} in {unit}"),
                (1 / LENGTH[unit], f"twice-{unit}", f"probably {of} converted from {unit} twice"),
            ):
                mended = ratio * (by if of == name else 1 / by)
                changes.append(
                    Change(kind, words, None, looks(by, of), (mended >= allowed[0]) & (mended <= allowed[1]))
                )
    return explain(changes, looks(1.0, name), {"ratio": between(*allowed)}, bad, good, rows.groups)
