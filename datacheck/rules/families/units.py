"""Rules about units: physical ranges first, then the factor that brings the offenders into range."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Skip, counted, listed, rule, shown
from datacheck.rules.beside import near
from datacheck.rules.bones import bones, skeleton_of
from datacheck.rules.explain import Change, Usual, between, explain, logarithms
from datacheck.rules.measures import PLACED, TURNING, leaf, of_role, place, turn, turns
from datacheck.rules.placed import Placed, stored
from datacheck.schema.model import FieldSpec, Range
from datacheck.schema.units import ANGLE, LENGTH, factor
from datacheck.table import Rows

Array = np.ndarray[Any, Any]

_COMMON = frozenset({"mm", "cm", "m", "twice-mm", "twice-cm", "relative", "double", "never"})
_CENTRED = 1e-3  # a centre this near to the origin, by size, says nothing about distance


@dataclass(frozen=True, eq=False)
class _Check:
    """One physical quantity of a field: what it is called, its values, where they count, what is allowed."""

    label: str
    values: Array
    known: Array
    range: Range
    origin: Literal["", "near", "zero"] = ""  # of a distance: what it is measured from

    def outside(self) -> Array:
        low = -math.inf if self.range.low is None else self.range.low
        high = math.inf if self.range.high is None else self.range.high
        found: Array = self.known & ((self.values < low) | (self.values > high))
        return found

    def middle(self, good: Array) -> float:
        """Return a typical allowed value: the median of the good samples, else the middle of the range."""
        fine = good & self.known
        if fine.any():
            return float(np.median(self.values[fine]))
        low, high = (max(0.0, end or 0.0) for end in (self.range.low, self.range.high))  # no length is below 0
        return math.sqrt(low * high) or low or high or 1.0


def _checks(rows: Rows, case: Case) -> list[_Check]:
    spec, skeleton = case.spec, skeleton_of(case.spec)
    found = []
    if skeleton is not None and "bone" in rows:
        typical = skeleton.median / factor(spec.unit or "m")
        allowed = spec.size or Range(low=typical / 2, high=typical * 2)
        found.append(_Check("median bone", rows["bone"], rows.measured("bone") & (rows["bone"] > 0), allowed))
    if "box" not in rows:
        return found
    known, box = rows.measured("box"), rows["box"]
    if spec.size is not None and skeleton is None:
        label, size = ("distance from the origin", rows["norm"]) if "norm" in rows else ("size", box)
        found.append(_Check(label, size, known & (size > 0), spec.size, "zero" if "norm" in rows else ""))
    if spec.distance is not None and spec.near:
        column = f":{case.name}:near"
        if column in rows:
            found.append(
                _Check(
                    f"distance from {spec.near}",
                    rows[column],
                    rows.measured(column) & np.isfinite(rows[column]),
                    spec.distance,
                    "near",
                )
            )
    elif spec.distance is not None:
        away, label = (rows["norm"], "distance from the origin") if "norm" in rows else _centre(rows, spec)
        found.append(_Check(label, away, known & ~_centred(rows, box), spec.distance, "zero"))
    return found


def _centre(rows: Rows, spec: FieldSpec) -> tuple[Array, str]:
    joints = spec.role == "joints"
    centre = rows["first" if joints else "centroid"]
    return np.sqrt((centre**2).sum(axis=1)), "distance of the " + ("root" if joints else "centre")


def _centred(rows: Rows, box: Array) -> Array:
    centres = np.stack([rows[name] for name in ("first", "centroid", "middle")])
    away = np.sqrt((centres**2).sum(axis=2)).min(axis=0)
    found: Array = ((away <= _CENTRED * box) & (box > 0)) | (away == 0)
    return found


def _factors(unit: str) -> list[tuple[float, str, str]]:
    """Return (factor, kind, words) of what may have been done to values in `unit`: other units, double conversion."""
    own = LENGTH.get(unit, 1.0)
    known = [(LENGTH[name] / own, name, f"probably {name}") for name in LENGTH if name != unit]
    taken = [f for f, _, _ in known]
    for f, name, _ in tuple(known):
        if not any(math.isclose(1 / f, t, rel_tol=1e-9) for t in taken):
            known.append((1 / f, f"twice-{name}", f"probably converted from {name} twice"))
    return known


def _changes(rows: Rows, case: Case, placed: Placed, checks: list[_Check]) -> Iterator[Change]:
    """Yield what may have been done to positions: other units, and centres that were subtracted or added."""
    spec = case.spec

    def change(kind: str, words: str, by: float = 1.0, moved: Array | None = None, *, certain: bool = True) -> Change:
        allowed = [~replace(c, values=_mended(c, placed, by, moved)).outside() for c in checks]
        factor = by if moved is None else None
        return Change(
            kind, words, factor, placed.looks(by, moved), np.logical_and.reduce(allowed), certain, kind in _COMMON
        )

    for by, kind, words in _factors(spec.unit or ""):
        yield change(kind, words, by)
    if placed.near:
        yield change("relative", f"probably relative to {spec.near}", moved=placed.origin)
        for kind, words, times in (("subtracted-twice", "subtracted twice", 2), ("added", "added to them", -1)):
            moved = times * placed.origin  # or signs are reversed, or a single position is scaled by 2
            yield change(kind, f"{spec.near} was {words}", moved=moved, certain=False)
    if f":{case.name}:stored" in rows and _same_unit(case, spec.centered_on):
        centre = rows[f":{case.name}:stored"]
        yield change("double", f"{spec.centered_on} was probably subtracted twice", moved=centre)
        yield change("never", f"{spec.centered_on} was probably never subtracted", moved=-centre)


def _mended(check: _Check, placed: Placed, by: float, moved: Array | None) -> Array:
    """Return the values of a check once positions are scaled and moved."""
    if not check.origin or (moved is None and (check.origin == "near") != placed.near):
        return check.values * by
    if (check.origin == "near") != placed.near:
        return np.full(len(check.values), np.nan)  # measured from elsewhere: it says nothing
    return placed.distance(by, moved)


def _same_unit(case: Case, other: str | None) -> bool:
    return factor(case.spec.unit or "m") == factor(case.schema.spec(other or "").unit or "m")


_ADVICE = {
    "relative": "Add the position that they are relative to; turn them first where they follow its axes.",
    "double": "Subtract the stored centre once, in the files or in the loader.",
    "never": "Subtract the stored centre once, in the files or in the loader.",
}


def _advice(cause: Cause | None) -> str:
    if cause is not None and cause.factor is not None:
        return f"Convert the values (x{cause.factor:.4g}), or correct unit or range."
    return _ADVICE.get(cause.kind if cause else "", "Convert the values, or correct unit or range.")


def _explained(rows: Rows, case: Case, checks: list[_Check], bad: Array, share: float) -> Cause | None:
    if case.spec.near and not _same_unit(case, case.spec.near):
        return None
    placed = Placed.of(rows, case)
    names = {"median bone": "bone", "size": "size"}
    ranges = {
        names.get(c.label, "distance"): between(c.range.low, c.range.high)
        for c in checks
        if not c.origin or (c.origin == "near") == placed.near
    }
    known = np.logical_or.reduce([c.known for c in checks])
    return explain(_changes(rows, case, placed, checks), placed.looks(), ranges, bad, ~bad & known, rows.groups, share)


@rule(
    "DC201", "length-unit", Severity.ERROR, Level.SAMPLE, measures=(place, bones, near, stored),
    needs=("DC109", "DC122", "DC125", "DC221", "DC222"), defaults={"rescue": 0.9},
    applies=lambda s: leaf(s) and s.role in PLACED and bool(s.size or s.distance or skeleton_of(s)),
)  # fmt: skip
def length_unit(rows: Rows, case: Case) -> Iterator[Failure | Skip]:
    """Lengths are not in the declared unit.

    What:
        ``size``: diagonal of the bounding box of points; median bone of joints with a skeleton (without ``size`` a
        factor 2 around its table). ``distance``: how far points, root or positions may be from the origin, or from
        the field they are ``near``.
    Why it matters:
        A factor 1000 survives normalisation, crops everything away, or makes a loss of 1e6.
    Measure:
        The range decides, no statistics. Then units, double conversions, and a position (``near``, ``centered_on``)
        that was subtracted, subtracted twice or added are tried on the offenders, each against all others. A cause is
        named where it brings 90 % of them into range, makes size, bones and distance alike to those of the good
        samples, and no other does; without good samples the median must lie in the middle half of the range. Where
        several fit, or the samples are too few to tell a known factor from any other, they are listed and none is
        named.
    When it is wrong:
        The range is too narrow for a new kind of object: widen it. Ranges wider than 10x cannot tell cm from inch.
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
        Convert the values, or declare the unit they are in (``unit: mm``).
    Reference:
        graspnet-baseline issue 87; hypersim issue 30; a 3D loss that stays at 75,000.
    """
    checks, unit = _checks(rows, case), case.spec.unit or ""
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
    middle, good = float(np.median(main.values[off])), ~bad & main.known
    others = f"; the others: {shown(float(np.median(main.values[good])), unit)}" if good.any() else ""
    cause = _explained(rows, case, checks, bad, float(case.options["rescue"]))
    yield Failure(
        bad,
        f"{main.label} {shown(middle, unit)} (median of {counted(int(bad.sum()))}), "
        f"allowed {main.range}{' ' + unit if unit else ''}{others}.",
        measured={"stat": main.label, "median": middle, "unit": unit},
        expected={"range": [main.range.low, main.range.high], "unit": unit},
        cause=cause,
        fix=_advice(cause),
        kind=cause.kind if cause else "",
        order=np.where(off, np.abs(np.log(np.maximum(main.values, 1e-300) / main.middle(good))), 0.0),
    )


@rule(
    "DC202", "angle-unit", Severity.ERROR, Level.SAMPLE, measures=(turn,),
    needs=("DC109", "DC122", "DC125", "DC221", "DC222"), defaults={"turn": 2 * math.pi + 0.1},
    applies=lambda s: of_role(*TURNING)(s) and (s.unit in ANGLE or (s.role == "rotvec" and s.unit is None)),
)  # fmt: skip
def angle_unit(rows: Rows, case: Case) -> Iterator[Failure]:
    """Angles are in degrees where radians are declared, or the other way round.

    What:
        Declared radians: the 99th percentile of each sample is at most a full turn. Declared degrees: some sample is
        above a full turn in radians.
    Why it matters:
        One episode in degrees among radians dominates every statistic, and no loader complains.
    Measure:
        99th percentile of the absolute values, per sample.
    When it is wrong:
        Joints that turn round and round: raise ``turn``. Small motions in degrees are not seen: they look like radians.
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
        Convert (x 0.017453), or declare ``unit: deg``.
    Reference:
        DexFuncGrasp issue 9 (one joint in degrees); ROS radians met LeRobot degrees.
    """
    if "p99" not in rows:
        return
    known, p99, most = rows.measured("p99"), rows["p99"], float(case.options["turn"])
    if case.spec.unit == "deg":
        if known.any() and 0 < float(p99[known].max()) < most:
            yield _small_degrees(known, float(p99[known].max()))
        return
    bad = known & (p99 > most)
    if bad.any():
        mended = p99 * ANGLE["deg"]
        change = Change(
            "deg", "probably degrees", ANGLE["deg"], {"p99": logarithms(mended)}, known & (mended <= most), common=True
        )
        usual = Usual(
            math.log(most) / 2, math.log(most) / 2, 0.0
        )  # from one radian to a turn; angles have no third unit
        cause = explain([change], {"p99": logarithms(p99)}, {"p99": usual}, bad, known & ~bad, rows.groups)
        middle = float(np.median(p99[bad]))
        yield Failure(
            bad,
            f"angles reach {shown(middle, 'rad')} (99th percentile, median of {counted(int(bad.sum()))}), "
            f"allowed {shown(most, 'rad')}.",
            measured={"stat": "p99", "median": middle, "unit": "rad"},
            expected={"range": [-most, most], "unit": "rad"},
            cause=cause,
            fix="Convert to radians (x 0.017453), or declare unit: deg."
            if cause is not None and cause.kind
            else "Look at them: no known unit explains these angles. Raise turn where joints turn round and round.",
            kind=cause.kind if cause else "",
            order=p99,
        )


def _small_degrees(known: Array, most: float) -> Failure:
    return Failure(
        known & True,
        f"no angle is above {shown(most, 'deg')} in {counted(int(known.sum()))}: probably radians where degrees are "
        "declared.",
        severity=Severity.WARNING,
        kind="rad",
        fix="Declare unit: rad, or switch DC202 off if the motions are that small.",
    )


def _sizes(rows: Rows, spec: FieldSpec) -> list[tuple[str, Array, Array]]:
    """Return what is known of the size of samples (what, values, where), the most telling first."""
    stats = (("bone", "median bone"), ("peak", "largest angle"), ("norm", "distance"), ("box", "size"))
    return [
        (label, rows[stat], rows.measured(stat) & (rows[stat] > 0))
        for stat, label in stats
        if stat in rows and (stat != "peak" or turns(spec))
    ]


@rule(
    "DC203", "mixed-units", Severity.ERROR, Level.DATASET, measures=(place, bones, turn),
    needs=("DC109", "DC122", "DC125", "DC201", "DC202", "DC221", "DC222", "DC602"),
    defaults={
        "gap": 3.0, "share": 0.002, "near": 0.2, "widest": 0.5, "factors": (1000.0, 100.0, 39.37, 25.4), "turn": 57.3,
    },
    applies=lambda s: of_role(*PLACED)(s) or turns(s),
)  # fmt: skip
def mixed_units(rows: Rows, case: Case) -> Iterator[Failure]:
    """Some samples are in another unit than the others.

    What:
        Sizes fall into two heaps with a wide gap between them, and the heaps are a known factor apart.
    Why it matters:
        Without a declared range nothing else sees it; statistics over all samples describe neither heap.
    Measure:
        Gap test on the logarithm of size, bone or angle: more than a factor 3 with at least 3 samples and 0.2 % on each
        side, whose medians are 1000, 100, 39.37 or 25.4 apart: within 20 %, or within three standard errors of the
        medians where few samples leave more room, at most 50 %; in all of distance, size and bones that are known.
        Angles (57.3; also fields without a role whose unit is one of angles) are only a warning.
    When it is wrong:
        Two kinds of things in one field, by chance a known factor apart: split the dataset, or declare ``size``.
    Options:
        gap: width of the gap (3.0). share: least part on each side (0.002). near: tolerance of the factor (0.2).
        widest: most that standard errors may widen it to (0.5). factors: lengths. turn: angles.
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
        Convert the smaller heap, and declare ``size`` so that the next mistake is named at once.
    Reference:
        DenseFusion issue 82: divided by 1,000 in one loader and by 10,000 in the other.
    """
    every = _sizes(rows, case.spec)
    if not every:
        return
    label, sizes, known = every[0]
    split = _widest_gap(np.sort(sizes[known], kind="stable"), case)
    if split is None:
        return
    low, high = known & (sizes <= split), known & (sizes > split)
    apart = float(np.median(sizes[high]) / np.median(sizes[low]))
    fitting = _between(np.log(sizes[low]), np.log(sizes[high]), case)
    for _, values, there in every[1:]:  # a unit changes them all
        if (low & there).any() and (high & there).any():
            also = _between(np.log(values[low & there]), np.log(values[high & there]), case)
            fitting = [-abs(f) if -abs(f) in also else f for f in fitting if {f, -f} & set(also)]
    if fitting:
        few = low if low.sum() < high.sum() else high
        heaps = [f"{counted(int(m.sum()))} at {shown(float(np.median(sizes[m])), case.spec.unit)}" for m in (low, high)]
        cause = _mix_of(fitting, few)
        yield Failure(
            few,
            f"{label} falls into two heaps, {listed(heaps)}: a factor {shown(apart)}.",
            measured={"stat": label, "ratio": apart, "low": int(low.sum()), "high": int(high.sum())},
            cause=cause,
            fix="Convert the smaller heap, and declare a range.",
            severity=Severity.WARNING if turns(case.spec) else None,
        )


def _mix_of(fitting: list[float], few: Array) -> Cause:
    """Return the cause of two heaps: the only factor that fits; several, or one that only roughly does, are listed."""
    if len(fitting) == 1 and fitting[0] > 0:
        return Cause(f"two units: x{fitting[0]:g} lies between them", "mixed", fitting[0], int(few.sum()))
    ways = tuple(f"mixed units: x{abs(factor):g}" for factor in fitting)
    return Cause(f"not clear: {' or '.join(ways)}, or two kinds of things", alternatives=ways)


def _between(low: Array, high: Array, case: Case) -> list[float]:
    """Return the known factors that may lie between two heaps of logarithms, the nearest first.

    Notes:
        One that only the standard error of the medians allows is negative.
    """
    apart = float(np.median(high) - np.median(low))
    large = low if len(low) >= len(high) else high  # the spread of the few says little
    error = math.sqrt(math.pi / 2 * (1 / len(low) + 1 / len(high))) * float(large.std())
    near, widest = (math.log1p(float(case.options[name])) for name in ("near", "widest"))
    room = max(near, min(3 * error, widest))
    factors = [case.options["turn"]] if turns(case.spec) else case.options["factors"]
    off = {float(factor): abs(apart - math.log(float(factor))) for factor in factors}
    fits = sorted((factor for factor in off if off[factor] <= room), key=lambda factor: off[factor])
    return [factor if off[factor] <= near else -factor for factor in fits]


def _widest_gap(ordered: Array, case: Case) -> float | None:
    """Return a value in the widest gap that leaves enough samples on both sides, None where no gap is wide enough."""
    least = max(3, math.ceil(float(case.options["share"]) * len(ordered)))
    if len(ordered) < 2 * least:
        return None
    gaps = np.diff(np.log(ordered))[least - 1 : len(ordered) - least]
    place = int(np.argmax(gaps))
    return float(ordered[least - 1 + place]) if gaps[place] > math.log(float(case.options["gap"])) else None
