"""Rules about units: values outside physical ranges, and the factor that explains them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.causes import (
    CandidateCause,
    NormalRange,
    explain,
    logarithms,
    range_from_limits,
)
from datacheck.rules.measures import (
    PLACED,
    TURNING,
    is_numeric,
    leaf,
    norms,
    of_role,
    place,
    quantile,
    turn,
    turns,
)
from datacheck.rules.placement import Placement, near, stored, transforms_of
from datacheck.rules.robot_limits import beyond, off_by_turns
from datacheck.rules.skeletons import bones, skeleton_of
from datacheck.schema.grammar import ANGLE, LENGTH, TIME, factor
from datacheck.schema.model import FieldSpec, Range, Schema

Array = np.ndarray[Any, Any]

_COMMON = frozenset({"mm", "cm", "m", "twice-mm", "twice-cm", "relative", "double", "never"})
_CENTRED = 1e-3  # share of the size; a centre so near to the origin is no evidence of distance


@dataclass(frozen=True, eq=False)
class _Check:
    """One physical quantity of a field: label, values, where they are known, allowed range."""

    label: str
    values: Array
    known: Array
    range: Range
    origin: Literal["", "near", "zero"] = ""  # of a distance: where it starts

    def outside(self) -> Array:
        low = -math.inf if self.range.low is None else self.range.low
        high = math.inf if self.range.high is None else self.range.high
        mask: Array = self.known & ((self.values < low) | (self.values > high))
        return mask

    def middle(self, good: Array) -> float:
        """Return a typical allowed value.

        It is the median of the good samples, else the middle of the range.
        """
        fine = good & self.known
        if fine.any():
            return float(np.median(self.values[fine]))
        # No length is below 0.
        low, high = (max(0.0, end or 0.0) for end in (self.range.low, self.range.high))
        return math.sqrt(low * high) or low or high or 1.0


def _checks(rows: Rows, case: RuleContext) -> list[_Check]:
    spec = case.spec
    skeleton = skeleton_of(case.spec)
    checks = []
    if skeleton is not None and "bone" in rows:
        typical = skeleton.median / factor(spec.unit or "m")
        allowed = spec.size or Range(low=typical / 2, high=typical * 2)
        checks.append(
            _Check("median bone", rows["bone"], rows.measured("bone") & (rows["bone"] > 0), allowed)
        )
    if "box" not in rows:
        return checks
    measured = rows.measured("box")
    box = rows["box"]
    if spec.size is not None and skeleton is None:
        label, size = (
            ("distance from the origin", rows["norm"]) if "norm" in rows else ("size", box)
        )
        checks.append(
            _Check(label, size, measured & (size > 0), spec.size, "zero" if "norm" in rows else "")
        )
    if spec.distance is not None and spec.near:
        column = f":{case.name}:near"
        if column in rows:
            checks.append(
                _Check(
                    f"distance from {spec.near}",
                    rows[column],
                    rows.measured(column) & np.isfinite(rows[column]),
                    spec.distance,
                    "near",
                )
            )
    elif spec.distance is not None:
        away, label = (
            (rows["norm"], "distance from the origin") if "norm" in rows else _centre(rows, spec)
        )
        checks.append(_Check(label, away, measured & ~_centred(rows, box), spec.distance, "zero"))
    return checks


def _centre(rows: Rows, spec: FieldSpec) -> tuple[Array, str]:
    joints = spec.role == "joints"
    centre = rows["first" if joints else "centroid"]
    return np.sqrt((centre**2).sum(axis=1)), "distance of the " + ("root" if joints else "centre")


def _centred(rows: Rows, box: Array) -> Array:
    centres = np.stack([rows[name] for name in ("first", "centroid", "middle")])
    away = np.sqrt((centres**2).sum(axis=2)).min(axis=0)
    centred: Array = ((away <= _CENTRED * box) & (box > 0)) | (away == 0)
    return centred


def _factors(unit: str) -> list[tuple[float, str, str]]:
    """Return (factor, kind, words) of the possible corrections: other units, double conversion."""
    own = LENGTH.get(unit, 1.0)
    factors = [(LENGTH[name] / own, name, f"probably {name}") for name in LENGTH if name != unit]
    taken = [f for f, _, _ in factors]
    for f, name, _ in tuple(factors):
        if not any(math.isclose(1 / f, t, rel_tol=1e-9) for t in taken):
            factors.append((1 / f, f"twice-{name}", f"probably converted from {name} twice"))
    return factors


def _changes(
    rows: Rows, case: RuleContext, placed: Placement, checks: list[_Check]
) -> Iterator[CandidateCause]:
    """Yield the candidate causes for positions: other units, subtracted or added centres."""
    spec = case.spec

    def change(
        kind: str, words: str, by: float = 1.0, moved: Array | None = None, *, certain: bool = True
    ) -> CandidateCause:
        allowed = [~replace(c, values=_corrected(c, placed, by, moved)).outside() for c in checks]
        factor = by if moved is None else None
        return CandidateCause(
            kind,
            words,
            factor,
            placed.looks(by, moved),
            np.logical_and.reduce(allowed),
            certain,
            kind in _COMMON,
        )

    for by, kind, words in _factors(spec.unit or ""):
        yield change(kind, words, by)
    if placed.near:
        yield change("relative", f"probably relative to {spec.near}", moved=placed.origin)
        for kind, words, times in (
            ("subtracted-twice", "subtracted twice", 2),
            ("added", "added to them", -1),
        ):
            # Not certain: reversed signs, or a factor 2 of a single position, look the same.
            moved = times * placed.origin
            yield change(kind, f"{spec.near} was {words}", moved=moved, certain=False)
    if f":{case.name}:stored" in rows and _same_unit(case, spec.centered_on):
        centre = rows[f":{case.name}:stored"]
        yield change("double", f"{spec.centered_on} was probably subtracted twice", moved=centre)
        yield change("never", f"{spec.centered_on} was probably never subtracted", moved=-centre)


def _corrected(check: _Check, placed: Placement, by: float, moved: Array | None) -> Array:
    """Return the values of a check once positions are scaled and moved."""
    if not check.origin or (moved is None and (check.origin == "near") != placed.near):
        return check.values * by
    if (check.origin == "near") != placed.near:
        return np.full(len(check.values), np.nan)  # measured from elsewhere: unknown
    return placed.distance(by, moved)


def _same_unit(case: RuleContext, other: str | None) -> bool:
    return factor(case.spec.unit or "m") == factor(case.schema.spec(other or "").unit or "m")


_ADVICE = {
    "relative": "Add the position that they are relative to; turn them first where they follow its "
    "axes.",
    "double": "Subtract the stored centre once, in the files or in the loader.",
    "never": "Subtract the stored centre once, in the files or in the loader.",
}


def _advice(cause: Cause | None) -> str:
    if cause is not None and cause.factor is not None:
        return f"Convert the values (x{cause.factor:.4g}), or correct unit or range."
    return _ADVICE.get(cause.kind if cause else "", "Convert the values, or correct unit or range.")


def _explained(
    rows: Rows, case: RuleContext, checks: list[_Check], bad: Array, share: float
) -> Cause | None:
    if case.spec.near and not _same_unit(case, case.spec.near):
        return None
    placed = Placement.of(rows, case)
    names = {"median bone": "bone", "size": "size"}
    ranges = {
        names.get(c.label, "distance"): range_from_limits(c.range.low, c.range.high)
        for c in checks
        if not c.origin or (c.origin == "near") == placed.near
    }
    measured = np.logical_or.reduce([c.known for c in checks])
    return explain(
        _changes(rows, case, placed, checks),
        placed.looks(),
        ranges,
        bad,
        ~bad & measured,
        rows.groups,
        share,
    )


@rule(
    "DC201",
    "length-unit",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(place, bones, near, stored),
    suppressed_by=("DC109", "DC122", "DC125", "DC221", "DC222"),
    defaults={"rescue": 0.9},
    applies=lambda s: leaf(s) and s.role in PLACED and bool(s.size or s.distance or skeleton_of(s)),
)
def length_unit(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Lengths are not in the declared unit.

    What:
        ``size``: diagonal of the bounding box of points; median bone of joints with a skeleton
        (without ``size``, a factor 2 around its table). ``distance``: distance of points, root or
        positions from the origin, or from the field they are ``near``. Both lie in the declared
        range.
    Why it matters:
        A factor 1000 survives normalisation, crops everything away, or makes a loss of 1e6.
    Measure:
        The declared range alone decides; no statistics are used. The rule then tries units, double
        conversions, and a position (``near``, ``centered_on``) that was subtracted, subtracted
        twice or added on the offenders (the failing samples), each against all others. A cause is
        named if it alone brings 90 % of them into range and makes size, bones and distance similar
        to those of the good samples; without good samples, the median must lie in the middle half
        of the range. If several causes fit, or the samples are too few to tell a known factor from
        any other, they are listed and none is named.
    When it is wrong:
        The range is too narrow for a new kind of object: widen it. Ranges that span more than 10x
        cannot distinguish cm from inch.
    Options:
        rescue: share of the offenders that a factor must bring into range to be named (0.9).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.5..5}}}
        samples:
          - {n: 8, xyz: {box: [50, 3], size: 1.5}}
          - {n: 3, xyz: {box: [50, 3], size: 1500}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.5..5}}}
        samples:
          - {n: 8, xyz: {box: [50, 3], size: 1.5}}

    Fix:
        Convert the values, or declare their actual unit (``unit: mm``).
    Reference:
        graspnet-baseline issue 87; hypersim issue 30; a 3D loss that stays at 75,000.
    """
    checks = _checks(rows, case)
    unit = case.spec.unit or ""
    skeleton = skeleton_of(case.spec)
    unknown = ~np.logical_or.reduce([rows.measured("bone"), *(c.known for c in checks)])
    if skeleton is not None and unknown.any():
        yield Skip(unknown, f"no whole skeletons of {skeleton.joints} joints")
    if not checks:
        return
    bad = np.logical_or.reduce([c.outside() for c in checks])
    if not bad.any():
        return
    main = max(checks, key=lambda c: int(c.outside().sum()))
    off = bad & main.outside()
    middle = float(np.median(main.values[off]))
    good = ~bad & main.known
    others = (
        f"; the others: {format_number(float(np.median(main.values[good])), unit)}"
        if good.any()
        else ""
    )
    cause = _explained(rows, case, checks, bad, float(case.options["rescue"]))
    yield Failure(
        bad,
        f"{main.label} {format_number(middle, unit)} (median of {pluralize(int(bad.sum()))}), "
        f"allowed {main.range}{' ' + unit if unit else ''}{others}.",
        measured={"stat": main.label, "median": middle, "unit": unit},
        expected={"range": [main.range.low, main.range.high], "unit": unit},
        cause=cause,
        fix=_advice(cause),
        kind=cause.kind if cause else "",
        order=np.where(
            off, np.abs(np.log(np.maximum(main.values, 1e-300) / main.middle(good))), 0.0
        ),
    )


@rule(
    "DC202",
    "angle-unit",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(turn, beyond),
    suppressed_by=("DC109", "DC122", "DC125", "DC221", "DC222"),
    defaults={"turn": 2 * math.pi + 0.1},
    applies=lambda s: (
        of_role(*TURNING)(s) and (s.unit in ANGLE or (s.role == "rotvec" and s.unit is None))
    ),
)
def angle_unit(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Angles are in degrees although radians are declared, or the other way round.

    What:
        Declared radians: the 99th percentile of each sample is at most a full turn, or all joints
        of the declared ``robot`` are within their limits but for a full turn, which DC603 judges.
        Declared degrees: at least one sample exceeds a full turn in radians.
    Why it matters:
        One episode in degrees among radians dominates every statistic, and no loader reports it.
    Measure:
        99th percentile of the absolute values, per sample.
    When it is wrong:
        The joints turn continuously: raise ``turn``. Small motions in degrees are not found,
        because they look like radians.
    Options:
        turn: largest angle that counts as radians (2 pi + 0.1).
    Bad::

        schema: {fields: {q: {role: joint_angle, shape: [T, 7], unit: rad}}}
        samples:
          - {n: 5, q: {ramp: [40, 7], to: 1.5}}
          - {n: 3, q: {ramp: [40, 7], to: 86}}

    Good::

        schema: {fields: {q: {role: joint_angle, shape: [T, 7], unit: rad}}}
        samples:
          - {n: 5, q: {ramp: [40, 7], to: 1.5}}

    Fix:
        Convert the angles (x 0.017453), or declare ``unit: deg``.
    Reference:
        DexFuncGrasp issue 9 (one joint in degrees); ROS uses radians, LeRobot degrees.
    """
    if "p99" not in rows:
        return
    measured = rows.measured("p99")
    p99 = rows["p99"]
    most = float(case.options["turn"])
    if case.spec.unit == "deg":
        if measured.any() and 0 < float(p99[measured].max()) < most:
            yield _small_degrees(measured, float(p99[measured].max()))
        return
    bad = measured & (p99 > most)
    robot = case.spec.robot
    if robot is not None and "joint_turned" in rows:
        # Joints that turn without end, or are off by a full turn: DC603 judges them.
        bad &= ~(rows.measured("joint_turned") & off_by_turns(rows, robot, 1.0).any(axis=1))
    if bad.any():
        mended = p99 * ANGLE["deg"]
        change = CandidateCause(
            "deg",
            "probably degrees",
            ANGLE["deg"],
            {"p99": logarithms(mended)},
            measured & (mended <= most),
            common=True,
        )
        # From one radian to a turn. No blur, because angles have no third unit.
        usual = NormalRange(math.log(most) / 2, math.log(most) / 2, 0.0)
        cause = explain(
            [change], {"p99": logarithms(p99)}, {"p99": usual}, bad, measured & ~bad, rows.groups
        )
        middle = float(np.median(p99[bad]))
        yield Failure(
            bad,
            f"angles reach {format_number(middle, 'rad')} (99th percentile, median of "
            f"{pluralize(int(bad.sum()))}), "
            f"allowed {format_number(most, 'rad')}.",
            measured={"stat": "p99", "median": middle, "unit": "rad"},
            expected={"range": [-most, most], "unit": "rad"},
            cause=cause,
            fix="Convert to radians (x 0.017453), or declare unit: deg."
            if cause is not None and cause.kind
            else "Look at them: no known unit explains these angles. Raise turn where joints turn "
            "round and round.",
            kind=cause.kind if cause else "",
            order=p99,
        )


def _small_degrees(measured: Array, most: float) -> Failure:
    return Failure(
        measured & True,
        f"no angle is above {format_number(most, 'deg')} in {pluralize(int(measured.sum()))}: "
        f"probably radians where degrees are "
        "declared.",
        severity=Severity.WARNING,
        kind="rad",
        fix="Declare unit: rad, or switch DC202 off if the motions are that small.",
    )


def _sizes(rows: Rows, spec: FieldSpec) -> list[tuple[str, Array, Array]]:
    """Return the known sizes of samples (label, values, where), the most reliable first."""
    stats = (
        ("bone", "median bone"),
        ("peak", "largest angle"),
        ("norm", "distance"),
        ("box", "size"),
    )
    return [
        (label, rows[stat], rows.measured(stat) & (rows[stat] > 0))
        for stat, label in stats
        if stat in rows and (stat != "peak" or turns(spec))
    ]


@measure("reach", applies=of_role("transform"))
def reach(column: Column, spec: FieldSpec) -> Columns:
    """Distance of transforms from the origin: `norm`, the median over those of a sample."""
    del spec
    transforms = transforms_of(column)
    if transforms is None:
        return {}
    matrix, counts, _ = transforms
    return {"norm": Measured(quantile(norms(matrix[:, :3, 3].T), counts, 0.5), counts > 0)}


@rule(
    "DC203",
    "mixed-units",
    Severity.ERROR,
    Level.DATASET,
    measures=(place, bones, turn, reach),
    suppressed_by=("DC109", "DC122", "DC125", "DC201", "DC202", "DC221", "DC222", "DC602"),
    defaults={
        "gap": 3.0,
        "share": 0.002,
        "near": 0.2,
        "widest": 0.5,
        "factors": (1000.0, 100.0, 39.37, 25.4),
        "turn": 57.3,
    },
    applies=lambda s: of_role(*PLACED, "transform")(s) or turns(s),
)
def mixed_units(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Some samples are in another unit than the others.

    What:
        The sizes do not fall into two clusters that have a wide gap between them and are a known
        factor apart.
    Why it matters:
        Without a declared range, no other rule finds the mixture; statistics over all samples
        describe neither cluster.
    Measure:
        Gap test on the logarithm of size, bone or angle: a gap of more than a factor 3, with at
        least 3 samples and 0.2 % on each side, whose medians are 1000, 100, 39.37 or 25.4 apart.
        The tolerance is 20 %, or three standard errors of the medians if few samples make these
        larger, at most 50 %. All known quantities among distance, size and bones must fit. Angles
        (57.3; also fields without a role that have an angle unit) only give a warning.
    When it is wrong:
        Two kinds of objects in one field differ by a known factor by chance: split the dataset, or
        declare ``size``.
    Options:
        gap: smallest width of the gap, as a factor (3.0).
        share: smallest share of samples on each side (0.002).
        near: tolerance of the factor (0.2).
        widest: largest tolerance that the standard errors may give (0.5).
        factors: known factors between lengths (1000, 100, 39.37, 25.4).
        turn: known factor between angles (57.3).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m}}}
        samples:
          - {n: 9, xyz: {box: [50, 3], size: 1.5}}
          - {n: 4, xyz: {box: [50, 3], size: 1500}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m}}}
        samples:
          - {n: 9, xyz: {box: [50, 3], size: 1.5}}
          - {n: 4, xyz: {box: [50, 3], size: 4}}

    Fix:
        Convert the smaller cluster, and declare ``size`` so that the next mistake is named at once.
    Reference:
        DenseFusion issue 82: divided by 1,000 in one loader and by 10,000 in the other.
    """
    every = _sizes(rows, case.spec)
    if not every:
        return
    label, sizes, measured = every[0]
    split = _widest_gap(np.sort(sizes[measured], kind="stable"), case)
    if split is None:
        return
    low = measured & (sizes <= split)
    high = measured & (sizes > split)
    ratio = float(np.median(sizes[high]) / np.median(sizes[low]))
    fitting = _between(np.log(sizes[low]), np.log(sizes[high]), case)
    for _, values, present in every[1:]:  # another unit changes all quantities
        if (low & present).any() and (high & present).any():
            also = _between(np.log(values[low & present]), np.log(values[high & present]), case)
            fitting = [-abs(f) if -abs(f) in also else f for f in fitting if {f, -f} & set(also)]
    if fitting:
        few = low if low.sum() < high.sum() else high
        heaps = [
            f"{pluralize(int(m.sum()))} at "
            f"{format_number(float(np.median(sizes[m])), case.spec.unit)}"
            for m in (low, high)
        ]
        cause = _mix_of(fitting, few)
        yield Failure(
            few,
            f"{label} falls into two heaps, {first_few(heaps)}: a factor {format_number(ratio)}.",
            measured={
                "stat": label,
                "ratio": ratio,
                "low": int(low.sum()),
                "high": int(high.sum()),
            },
            cause=cause,
            fix="Convert the smaller heap, and declare a range.",
            severity=Severity.WARNING if turns(case.spec) else None,
        )


def _mix_of(fitting: list[float], few: Array) -> Cause:
    """Return the cause of two heaps: the only factor that fits.

    Several factors, or one that fits only roughly, are listed as alternatives.
    """
    if len(fitting) == 1 and fitting[0] > 0:
        return Cause(
            f"two units: x{fitting[0]:g} lies between them", "mixed", fitting[0], int(few.sum())
        )
    ways = tuple(f"mixed units: x{abs(factor):g}" for factor in fitting)
    return Cause(f"not clear: {' or '.join(ways)}, or two kinds of things", alternatives=ways)


def _between(low: Array, high: Array, case: RuleContext) -> list[float]:
    """Return the known factors that may separate two heaps of logarithms, the nearest first.

    Notes:
        A factor that only the standard error of the medians allows is negative.
    """
    log_ratio = float(np.median(high) - np.median(low))
    large = low if len(low) >= len(high) else high  # the spread of few samples is unreliable
    error = math.sqrt(math.pi / 2 * (1 / len(low) + 1 / len(high))) * float(large.std())
    near, widest = (math.log1p(float(case.options[name])) for name in ("near", "widest"))
    room = max(near, min(3 * error, widest))
    factors = [case.options["turn"]] if turns(case.spec) else case.options["factors"]
    off = {float(factor): abs(log_ratio - math.log(float(factor))) for factor in factors}
    fits = sorted((factor for factor in off if off[factor] <= room), key=lambda factor: off[factor])
    return [factor if off[factor] <= near else -factor for factor in fits]


def _widest_gap(ordered: Array, case: RuleContext) -> float | None:
    """Return a value in the widest gap with enough samples on both sides, None if none is wide."""
    least = max(3, math.ceil(float(case.options["share"]) * len(ordered)))
    if len(ordered) < 2 * least:
        return None
    gaps = np.diff(np.log(ordered))[least - 1 : len(ordered) - least]
    place = int(np.argmax(gaps))
    return (
        float(ordered[least - 1 + place])
        if gaps[place] > math.log(float(case.options["gap"]))
        else None
    )


_PIXELS = 1 << 16  # sampled pixels of a depth map: its median needs no more
# Stored units per metre.
_STORED = (1000.0, 256.0, 4000.0, 5000.0, 10000.0, 1 / 0.00012498664727900177, 100.0, 1.0)


@measure(
    "depths",
    version=2,
    applies=of_role("depth"),
    uses=("ignore", "sentinels", "channels"),
    depth="deep",
)
def depths(column: Column, spec: FieldSpec) -> Columns:
    """Depth of a depth map as stored, from a regular sample of its pixels.

    `depth`, the median of the values above 0, and `seen`, their share. Marks for "no depth" are
    left out; samples without a depth have no `depth`.
    """
    if not is_numeric(column):
        return {}
    medians = np.zeros(len(column))
    seen = np.zeros(len(column))
    present = np.zeros((2, len(column)), bool)
    marks = (*spec.ignore, *spec.sentinels)
    for i in range(len(column)):
        values = _stored(column[i], spec)
        valid = values[np.isfinite(values) & (values > 0) & ~np.isin(values, marks)]
        present[:, i] = len(valid), len(values)
        medians[i] = float(np.median(valid)) if len(valid) else 0.0
        seen[i] = len(valid) / max(1, len(values))
    return {"depth": Measured(medians, present[0]), "seen": Measured(seen, present[1])}


def _stored(image: Array, spec: FieldSpec) -> Array:
    """Return sampled values of a depth map in float64, with its channels combined.

    Empty where it has fewer channels than declared.
    """
    count = len(spec.channels)
    if count and (image.ndim < 2 or image.shape[-1] < count):
        return np.zeros(0)
    values = image.reshape(-1, image.shape[-1]) if count else image.reshape(-1, 1)
    # float64 before the product: a channel's factor 256 does not fit into a byte.
    values = values[:: max(1, len(values) // _PIXELS)].astype(np.float64)
    return values[:, :count] @ np.array(spec.channels) if count else values[:, 0]


@rule(
    "DC204",
    "depth-scale",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(depths, place),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=lambda s: (
        of_role("depth")(s) and (s.unit in LENGTH or s.scale is not None or s.share is not None)
    ),
    defaults={"near": 0.1, "far": 20.0, "rescue": 0.9},
)
def depth_scale(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Depth has a wrong scale, disagrees with a nearby field, or covers a wrong share of pixels.

    What:
        The typical depth of each map lies between the options ``near`` and ``far``, in metres, if
        ``unit`` or ``scale`` is declared. If the schema says what the map is ``near``, the
        difference between its typical depth and that of this field lies within ``distance`` (a
        warning). The share of pixels that have a depth lies in ``share`` (a warning).
    Why it matters:
        A depth map that is five or a thousand times too deep still looks like the scene; only the
        points are wrong.
    Measure:
        Median of the valid depths x ``scale``, in metres, with ``channels`` combined. Each common
        scale is then tried on the failing maps: 1000, 256, 4000, 5000, 10000, 8001, 100 or 1 stored
        units per metre, and a factor 100 (BOP's ``depth_scale`` of 0.1 as a divisor instead of a
        factor). The depth of another field is |z| of its first position, or of the centroid of
        points.
    When it is wrong:
        The camera sees closer or farther than a room: set ``near`` and ``far``, or ``distance``. A
        scale that is wrong by less than a factor 10 may not be found if the map is ``near`` no
        field.
    Options:
        near: smallest typical depth, in metres (0.1).
        far: largest typical depth, in metres (20).
        rescue: share of the failing maps that a scale must bring into range to be named (0.9).
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
        BOP: metres = raw x depth_scale / 1000; TUM 5000, VOID 256, YCB 10000; HO3D 0.000125 m per
        unit.
    """
    spec = case.spec
    if "depth" not in rows:
        return
    scale = (1.0 if spec.scale is None else spec.scale) * factor(spec.unit or "m")
    metres = rows["depth"] * scale
    measured = rows.measured("depth") & (spec.unit in LENGTH or spec.scale is not None)
    low = float(case.options["near"])
    high = float(case.options["far"])
    bad = measured & ((metres < low) | (metres > high))
    if bad.any():
        yield _beyond(rows, scale, measured & ~bad, bad, case)
    yield from _depth_mismatch(rows, case, scale, measured & ~bad)
    yield from _holes(rows, case)


def _beyond(rows: Rows, scale: float, good: Array, bad: Array, case: RuleContext) -> Failure:
    """Return the finding of depths outside the limits of a room."""
    stored = rows["depth"]
    metres = stored * scale
    low = float(case.options["near"])
    high = float(case.options["far"])
    usual = float(np.median(metres[good])) if good.any() else math.sqrt(low * high)
    cause = _scale_of(rows, case, scale, bad, good, (low, high))
    return Failure(
        bad,
        f"typical depth {format_number(float(np.median(metres[bad])), 'm')} (median of "
        f"{pluralize(int(bad.sum()))}), allowed "
        f"{low:g}..{high:g} m{f'; the others: {format_number(usual)} m' if good.any() else ''}.",
        measured={"depth": float(np.median(metres[bad])), "stored": float(np.median(stored[bad]))},
        expected={"range": [low, high]},
        cause=cause,
        kind=cause.kind if cause else "",
        fix="Declare the scale that the files have, or convert them.",
        order=np.where(bad, np.abs(np.log(np.maximum(metres, 1e-300) / usual)), 0.0),
    )


def _depth_mismatch(
    rows: Rows, case: RuleContext, scale: float, measured: Array
) -> Iterator[Failure]:
    """Yield maps whose depth differs from that of the field that they are near to."""
    spec = case.spec
    other = case.schema.spec(case.spec.near or "")
    column = f"{spec.near}:{'centroid' if other.role == 'points' else 'first'}"
    if not spec.near or spec.distance is None or column not in rows:
        return
    stored = rows["depth"]
    target_depth = np.abs(rows[column][:, 2]) * factor(other.unit or "m")
    ends = (-math.inf if spec.distance.low is None else spec.distance.low, spec.distance.high)
    low, high = (math.inf if end is None else end * factor(spec.unit or "m") for end in ends)
    gap = np.abs(stored * scale - target_depth)
    bad = measured & rows.measured(column) & (target_depth > 0) & ((gap < low) | (gap > high))
    if bad.any():
        usual = float(np.median(target_depth[bad]))
        cause = _scale_of(
            rows, case, scale, bad, measured & ~bad, (target_depth - high, target_depth + high)
        )
        yield Failure(
            bad,
            f"typical depth {format_number(float(np.median(stored[bad] * scale)), 'm')} (median of "
            f"{pluralize(int(bad.sum()))}), "
            f"{spec.near} {format_number(usual)} m away; "
            f"{format_number(float(np.median(gap[bad])))} m apart (median), allowed "
            f"{spec.distance} {spec.unit or 'm'}.",
            measured={
                "depth": float(np.median(stored[bad] * scale)),
                "apart": float(np.median(gap[bad])),
            },
            expected={"distance": str(spec.distance)},
            cause=cause,
            kind="apart",
            severity=Severity.WARNING,
            fix="Look at them: a depth map of another frame or camera, another scale, or a wider "
            "distance.",
            order=gap,
        )


def _holes(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield maps with a depth at too few or too many of their pixels."""
    allowed = case.spec.share
    if allowed is None or "seen" not in rows:
        return
    seen = rows["seen"]
    low = allowed.low or 0.0
    high = 1.0 if allowed.high is None else allowed.high
    bad = rows.measured("seen") & ((seen < low) | (seen > high))
    if bad.any():
        yield Failure(
            bad,
            f"{100 * float(np.median(seen[bad])):.3g} % of the pixels have a depth (median of "
            f"{pluralize(int(bad.sum()))}); share: {allowed} is allowed.",
            measured={"share": float(np.median(seen[bad]))},
            expected={"share": str(allowed)},
            kind="share",
            severity=Severity.WARNING,
            fix="Render or record them again; leave them out where no depth is to be had.",
            order=-seen,
        )


def _scale_of(
    rows: Rows,
    case: RuleContext,
    scale: float,
    bad: Array,
    good: Array,
    allowed: tuple[Array | float, Array | float],
) -> Cause | None:
    """Return the common scale that explains the offenders."""
    stored = rows["depth"]
    candidates = [
        (1 / count, f"1/{count:.5g}", f"probably {count:,.5g} units per metre") for count in _STORED
    ]
    candidates += [
        (scale * by, "reciprocal", "probably a depth_scale of 0.1 that was taken upside down")
        for by in (0.01, 100.0)
    ]
    changes: list[CandidateCause] = []
    for candidate, kind, words in candidates:
        taken = [scale, *(scale * (change.factor or 0) for change in changes)]
        if any(math.isclose(candidate, other, rel_tol=0.01) for other in taken):
            continue
        metres = stored * candidate
        inside = (metres >= allowed[0]) & (metres <= allowed[1])
        changes.append(
            CandidateCause(
                kind,
                words,
                candidate / scale,
                {"depth": logarithms(metres)},
                inside,
                common=kind in {"1/1000", "1/1"},
            )
        )
    low, high = (float(np.median(np.broadcast_to(ends, len(bad))[bad])) for ends in allowed)
    return explain(
        changes,
        {"depth": logarithms(stored * scale)},
        {"depth": range_from_limits(low, high)},
        bad,
        good,
        rows.groups,
        case.options["rescue"],
    )


# --------------------------------------------------------------------------------------------- time


@measure("tick", applies=of_role("timestamp"))
def tick(column: Column, spec: FieldSpec) -> Columns:
    """Interval of an episode's time stamps, as stored: `tick`, the median step.

    Episodes of fewer than three stamps have no row.
    """
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 1:
        return {}
    ticks = np.zeros(len(column))
    present = column.lengths > 2
    for i in np.flatnonzero(present):
        ticks[i] = float(np.median(np.diff(column[int(i)].astype(np.float64))))
    return {"tick": Measured(ticks, present)}


def _no_rate(schema: Schema) -> str:
    return (
        "" if schema.episode is not None and schema.episode.fps else "episode.fps is not declared"
    )


@rule(
    "DC206",
    "time-unit",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(tick,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=lambda s: of_role("timestamp")(s) and s.unit in TIME,
    unless=_no_rate,
    defaults={"near": 0.05},
    paced=True,
)
def time_unit(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Timestamps are in another unit than declared, or are frame numbers.

    What:
        The usual step between timestamps, in the declared ``unit``, is one frame of ``episode:
        {fps: ...}``.
    Why it matters:
        Velocities are wrong by a factor of a million, and tolerances in seconds accept or reject
        every frame.
    Measure:
        Median step x fps. A ratio near 1000, 1e6, 1e9 or their reciprocals means another unit; a
        ratio near fps means frame numbers.
    When it is wrong:
        The rate really is a thousand times another one: declare its own ``fps``. This rule does not
        judge other ratios.
    Options:
        near: relative tolerance of the ratio (0.05).
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
        Convert the timestamps, or declare their actual unit.
    Reference:
        ROS 2 stamps are in nanoseconds, LeRobot's in seconds: a converted dataset holds whichever
        its author used.
    """
    if "tick" not in rows or case.schema.episode is None or not case.schema.episode.fps:
        return
    fps = case.schema.episode.fps
    own = TIME[case.spec.unit or "s"]
    step = rows["tick"]
    measured = rows.measured("tick") & (rows["tick"] > 0)
    ratio = step * own * fps
    wrong = [(f"{name}", TIME[name] / own) for name in TIME if TIME[name] != own]
    hypotheses = [(f"probably {kind}", kind, by) for kind, by in wrong] + [
        ("frame numbers, not times", "index", 1 / (own * fps))
    ]
    unexplained = measured.copy()
    for words, kind, by in hypotheses:
        bad = unexplained & (np.abs(ratio * by - 1) <= float(case.options["near"]))
        bad &= np.abs(ratio - 1) > float(case.options["near"])
        if bad.any():
            unexplained &= ~bad
            typical = float(np.median(step[bad]))
            yield Failure(
                bad,
                f"timestamps of {pluralize(int(bad.sum()))} step by "
                f"{format_number(typical, case.spec.unit)}; at {format_number(fps)} "
                f"frames per second it would be {format_number(1 / (own * fps), case.spec.unit)}.",
                measured={"step": typical, "ratio": float(np.median(ratio[bad]))},
                expected={"step": 1 / (own * fps), "unit": case.spec.unit},
                cause=Cause(
                    f"{words}: x{by:.4g} gives {format_number(fps)} frames per second",
                    kind,
                    by,
                    int(bad.sum()),
                ),
                kind=kind,
                fix="Convert the timestamps, or declare the unit that they have.",
            )


# ----------------------------------------------------------------------------------- between fields


def _related(schema: Schema) -> list[tuple[str, str]]:
    """Return (field, points): a field with a distance to something, and that thing's points."""
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
    "DC208",
    "cross-field-scale",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(near, place),
    suppressed_by=("DC109", "DC122", "DC201", "DC203", "DC221", "DC222"),
    defaults={"most": 3.0, "least": 0.001},
    unless=lambda schema: (
        "" if _related(schema) else "no field is near points, or near the pose of points"
    ),
)
def cross_field_scale(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Two fields that belong together are in different units.

    What:
        A field that is ``near`` points, or ``near`` a pose by which points are ``posed_by``, lies
        within three times the size of these points.
    Why it matters:
        A hand in metres next to a mesh in millimetres: each is plausible alone, and no grasp
        touches anything.
    Measure:
        Median distance / diagonal of the points, both in metres; then the factor of each unit is
        tried.
    When it is wrong:
        The two fields really are that far apart: raise ``most``.
    Options:
        most: largest distance, in multiples of the size (3).
        least: smallest distance, in multiples of the size (0.001).
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
        Convert the field that is wrong. If ``size`` or ``distance`` is declared, the next scan
        shows which one it is.
    Reference:
        SceneLeap and BOP: meshes and ``scene_gt`` in millimetres, grasps in metres.
    """
    for name, points in _related(case.schema):
        if f":{name}:near" not in rows or f"{points}:box" not in rows:
            continue
        own, other = (
            factor(s.unit or "m") * (s.scale or 1.0) for s in map(case.schema.spec, (name, points))
        )
        size = rows[f"{points}:box"] * other
        measured = (
            rows.measured(f":{name}:near", f"{points}:box")
            & (size > 0)
            & (rows[f":{name}:near"] > 0)
        )
        ratio = rows[f":{name}:near"] * own / np.where(measured, size, 1.0)
        least = float(case.options["least"])
        most = float(case.options["most"])
        bad = measured & ((ratio > most) | (ratio < least))
        if bad.any():
            typical = float(np.median(ratio[bad]))
            yield Failure(
                bad,
                f"{name} lies {format_number(typical)} times the size of {points} away (median of "
                f"{pluralize(int(bad.sum()))}), "
                f"allowed {least:g}..{most:g}.",
                measured={"ratio": typical},
                expected={"range": [least, most]},
                cause=_unit_between(
                    rows, ratio, bad, measured & ~bad, (least, most), (name, points)
                ),
                kind=name,
                fix=f"Convert {name} or {points}; declare size or distance to see which.",
                extra=(name, points),
                order=np.where(bad, np.abs(np.log(np.maximum(ratio, 1e-300))), 0.0),
            )


def _unit_between(
    rows: Rows,
    ratio: Array,
    bad: Array,
    good: Array,
    allowed: tuple[float, float],
    both: tuple[str, str],
) -> Cause | None:
    """Return the cause of a wrong distance between two fields: the unit of one of them."""
    name = both[0]
    sizes = {field: rows[f"{field}:box"] for field in both if f"{field}:box" in rows}

    def looks(by: float, changed_field: str) -> dict[str, Array]:
        quantities = {
            f"size of {field}": logarithms(box * (by if field == changed_field else 1.0))
            for field, box in sizes.items()
        }
        return quantities | {"ratio": logarithms(ratio * (by if changed_field == name else 1 / by))}

    changes = []
    for unit in ("mm", "cm", "in", "ft"):
        for changed_field in both:
            for by, kind, words in (
                (LENGTH[unit], unit, f"probably {changed_field} in {unit}"),
                (
                    1 / LENGTH[unit],
                    f"twice-{unit}",
                    f"probably {changed_field} converted from {unit} twice",
                ),
            ):
                mended = ratio * (by if changed_field == name else 1 / by)
                changes.append(
                    CandidateCause(
                        kind,
                        words,
                        None,
                        looks(by, changed_field),
                        (mended >= allowed[0]) & (mended <= allowed[1]),
                    )
                )
    return explain(
        changes, looks(1.0, name), {"ratio": range_from_limits(*allowed)}, bad, good, rows.groups
    )
