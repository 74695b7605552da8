"""Rules about statistics: saturated values, outliers, stale normalisation statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.causes import CandidateCause, explain, logarithms
from datacheck.rules.measures import (
    MOST_COMPONENTS,
    components,
    form,
    in_classes,
    is_numeric,
    leaf,
    lost_digits,
    no_lerobot,
    norms,
    numbers,
    one_of,
    place,
    reduced,
    too_wide,
)
from datacheck.rules.series import series, states, steps, time_field
from datacheck.schema.grammar import (
    ANGLE,
    JOINT_COUNTS,
    JOINT_NAMES,
    LENGTH,
    PACE_NAMES,
    POINT_NAMES,
    RATE_NAMES,
    SPATIAL_ROLES,
)
from datacheck.schema.model import FieldSpec, Range, Schema

Array = np.ndarray[Any, Any]

_WIDEST = 64
_PEAKS = frozenset({"action", "joint_angle", "value"})
_STRAYS = frozenset({"points", "joints", "position", "pose", "action", "joint_angle", "value"})
_ALIKE = 10.0  # the other samples lie within this factor
# Samples of so many rows whose largest numbers lie within the factor: so many times their median is
# far, if at most so many are.
_LONG_ENOUGH = 16
_MUCH_ALIKE = 2.0
_FAR_OF_ALIKE = 5.0
_FEW_OF_ALIKE = 0.1
_FULL = 255.0
_SAME_PACE = 2e-4  # relative difference of rates that rounding explains; 30 and 29.97 differ
_NEARLY_ALL = 0.9  # share of the samples above which the others are exceptions
# For numbers other than rates: that share, least size of a non-label, most distinct values.
_ALL_BUT_FEW = 0.95
_NO_LABEL = 100
_SETTINGS = 4
# Fewest samples with one number far beyond all others, and fewest distinct numbers of the others.
_FEWEST = 3
_KINDS = 8
# Long samples that hardly vary: rows, largest share of the samples, of the usual variation, and of
# that of any other sample.
_MANY_ROWS = 256
_FEW_STILL = 0.05
_STILL = 0.002
_TIMES_STILL = 10.0
_SEVERAL = 16  # so many equal numbers are no coincidence
# Least spread of a logarithm: a sample that differs by less than half is no outlier, however alike
# the others are.
_STEADY = 0.05


@measure(
    "piles",
    version=3,
    applies=lambda s: leaf(s) and s.role == "action" and not s.values,
    uses=("shape",),
)
def piles(column: Column, spec: FieldSpec) -> Columns:
    """Frequency of a sample's extremes, per component: `piled` rows, `at_low`, `at_high`.

    Floats only. `whole`: there are several rows and all numbers are integers.
    """
    if not is_numeric(column) or column.values.dtype.kind != "f":
        return {}
    values, lengths, fits = components(column, spec)
    if lengths is None:
        ones = np.ones((len(column), len(values)), np.int64)
        return {
            "piled": Measured(fits.astype(np.int64), fits),
            "at_low": Measured(ones, fits),
            "at_high": Measured(ones, fits),
            "whole": Measured(np.zeros(len(column), bool), fits),
        }
    low = reduced(np.minimum, values, lengths)
    high = reduced(np.maximum, values, lengths)
    at_low = reduced(np.add, values == np.repeat(low, lengths, axis=1), lengths)
    at_high = reduced(np.add, values == np.repeat(high, lengths, axis=1), lengths)
    whole = reduced(np.minimum, (values == np.rint(values)).all(axis=0).view(np.uint8), lengths) > 0
    present = lengths > 0
    return {
        "whole": Measured(whole, present),
        "piled": Measured(lengths, present),
        "at_low": Measured(at_low.T.astype(np.int64), present),
        "at_high": Measured(at_high.T.astype(np.int64), present),
    }


@rule(
    "DC225",
    "saturated",
    Severity.WARNING,
    Level.DATASET,
    measures=(piles, numbers, form),
    applies=piles.applies,
    suppressed_by=("DC109", "DC122", "DC202", "DC221", "DC222", "DC224"),
    defaults={"share": 0.01, "binary": 0.5, "least": 1000},
)
def saturated(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Many values lie exactly at the minimum or maximum, which is not a declared range end.

    What:
        At most 1 % of the values of an action dimension are exactly its smallest or its largest
        value, unless that value is an end of the declared ``range``.
    Why it matters:
        A sensor or a converter clipped the values: what was beyond is lost, and the policy learns
        the clipped value.
    Measure:
        Number of values equal to the extreme of the split, per dimension, over all samples in which
        the dimension changes (fields of at most 64 dimensions).
    When it is wrong:
        The end is real: declare it as ``range``. A dimension with more than half of its values at
        its ends is a switch and is only reported as info.
    Options:
        share: largest share of values at one end (0.01).
        binary: share at both ends above which the dimension is a switch (0.5).
        least: fewest rows to judge (1000).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, rules: {DC225: {least: 50}}}
        samples:
          - {a: {ramp: [60, 2], to: 1.5, clip: 1.2}}
          - {a: {ramp: [60, 2], to: 1.5, clip: 1.2}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, rules: {DC225: {least: 50}}}
        samples:
          - {n: 2, a: {ramp: [60, 2], to: 1.5}}

    Fix:
        Find what clipped the values and record them again, or declare the end with ``range``.
    Reference:
        Wikipedia, "Clipping (signal processing)"; robosuite clips actions to -1..1 before they are
        stored.
    """
    measured = rows.measured("piled", "whole", "min")
    wide = measured & too_wide(rows, case.spec)
    if wide.any():
        yield Skip(wide, f"more than {MOST_COMPONENTS} dimensions")
    measured &= ~wide
    if not measured.any():
        return
    measured &= ~_few_whole(rows, measured)
    total = int(rows["piled"][measured].sum())
    if total < int(case.options["least"]):
        return
    for severity, piled_ends in _piled(rows.where(measured), case, total).items():
        if piled_ends:
            yield Failure(
                np.zeros(len(rows), bool),
                f"{first_few(text for _, text in sorted(piled_ends))} exactly "
                f"({pluralize(total, 'row')}).",
                measured={"share": -min(piled_ends)[0]},
                severity=severity,
                kind="switch" if severity is Severity.INFO else "clipped",
                fix="Find who clipped, rounded or cast the values, or declare the end with range.",
            )


def _few_whole(rows: Rows, measured: Array) -> Array:
    """Tell which samples, fewer than half, hold integers only: rounded (DC230), not clipped."""
    whole: Array = measured & (rows["whole"] > 0)
    return whole & (2 * int(whole.sum()) < int(measured.sum()))


def _piled(rows: Rows, case: RuleContext, total: int) -> dict[Severity, list[tuple[float, str]]]:
    """Return the ends with too many values, by severity: (negative share, text) of each.

    Ends of switches have severity INFO, those of other dimensions WARNING.
    """
    least = rows["min"].min(axis=0)
    most = rows["max"].max(axis=0)
    # A constant goal was not clipped.
    moves = (rows["min"] < rows["max"]) | (rows["piled"] == 1)[:, None]
    at_low = np.where(moves & (rows["min"] == least), rows["at_low"], 0).sum(axis=0) / total
    at_high = np.where(moves & (rows["max"] == most), rows["at_high"], 0).sum(axis=0) / total
    ends = case.spec.range or Range()
    piled_ends: dict[Severity, list[tuple[float, str]]] = {Severity.WARNING: [], Severity.INFO: []}
    for i in np.flatnonzero(most > least):
        switch = at_low[i] + at_high[i] > float(case.options["binary"])
        near = 1e-3 * float(most[i] - least[i])
        for value, part, end in ((least[i], at_low[i], ends.low), (most[i], at_high[i], ends.high)):
            if part > float(case.options["share"]) and (
                end is None or abs(float(value) - end) > near
            ):
                phrase = (
                    f"{100 * part:.3g} % of dimension {int(i)} at "
                    f"{format_number(float(value), case.spec.unit)}"
                )
                piled_ends[Severity.INFO if switch else Severity.WARNING].append(
                    (-float(part), phrase)
                )
    return piled_ends


def _scalars(rows: Rows, case: RuleContext) -> Iterator[tuple[str, Array, Array]]:
    """Yield (name, values, known) of the scalars in which a sample may be an outlier."""
    spec = case.spec
    for stat, label in (("box", "size"), ("norm", "distance from the origin")):
        if stat in rows and (stat != "box" or "norm" not in rows):
            yield label, rows[stat], rows.measured(stat)
    if spec.role in _PEAKS and "min" in rows:
        peak = np.maximum(np.abs(rows["min"]), np.abs(rows["max"])).max(axis=1)
        yield "largest value", peak, rows.measured("min")
    if spec.ragged and "dims" in rows:
        yield (
            "number of rows",
            rows["dims"][:, 0].astype(np.float64),
            rows.measured("dims") & (rows["ndim"] > 0),
        )


@rule(
    "DC226",
    "outlier-sample",
    Severity.INFO,
    Level.SAMPLE,
    measures=(place, numbers, form),
    suppressed_by=(
        "DC109",
        "DC122",
        "DC125",
        "DC201",
        "DC202",
        "DC203",
        "DC221",
        "DC222",
        "DC224",
        "DC602",
    ),
    applies=lambda s: leaf(s) and (s.role is None or s.role in _STRAYS) and not s.pixels_of,
    defaults={"z": 8.0, "far": 20.0, "least": 30, "distinct": 10},
)
def outlier_sample(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """A sample differs greatly from all others in size, position, values or length.

    What:
        The rule compares the size of clouds and skeletons, the distance of positions from the
        origin, the largest value of actions, joint angles and values, and the number of rows. For
        floating-point numbers without a role, or in too few samples for z, it compares the largest
        value if all other samples lie within a decade. For numbers without a role, it reports:
        samples with one value throughout if nine tenths vary, and long ones that hardly vary, as a
        muted microphone gives (also with the role ``value``); another rate (``rate``,
        ``sampling_rate``, ``fps``, ``dt``, ``frame_time``) than nine tenths have; another number
        than 19 of 20 have; one whole number in at least three samples that is three times all
        others, which count from 0 or 1.
    Why it matters:
        The sample may be one that was never meant to be kept; inspecting it costs a minute.
    Measure:
        Robust z = (x - median) / (1.4826 MAD), of the logarithm if all values are above 0 (scatter
        at least 0.05), within the group if groups are large enough, else over the split. A size,
        distance or value beyond ``far`` is a warning, or an error if a unit explains it. Without a
        role: ``far`` times the median, or 5 times it in samples of 16 rows or more, if all others
        lie within a factor of 2. A sample of one value needs at least 16 numbers, and the others
        must go beyond that value on both sides. A constant 0 is not reported for speeds, forces and
        differences, known by their names. At most 5 % of the samples of 256 rows or more are nearly
        constant if they vary by 0.2 % of what is usual, and a tenth of what any other does (peak to
        peak, not for such quantities). Constant samples, other rates and numbers far beyond all
        others are warnings. Other single numbers are ignored if they are whole numbers below 100
        (labels or counts) or have more than four distinct values.
    When it is wrong:
        Rare values are rare: declare what is allowed, or raise ``far``.
    Options:
        z: |z| above which a sample is reported (8).
        far: |z| above which the finding is more than info (20).
        least: fewest samples for z (30). Half of them are enough for rates and other numbers. From
        a quarter on, samples without a role and those too few for z, except of positions, are
        compared with ``far`` times the median; fewer are skipped.
        distinct: fewest distinct values (10).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, rules: {DC226: {least: 12, distinct: 5}}}
        samples:
          - {n: 14, a: {normal: [30, 2]}}
          - {a: {normal: [30, 2], scale: 10000}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, rules: {DC226: {least: 12, distinct: 5}}}
        samples:
          - {n: 15, a: {normal: [30, 2]}}

    Fix:
        Inspect the sample. If such samples are wrong, declare ``range``, ``size`` or ``episode:
        {length: ...}``.
    Reference:
        Iglewicz and Hoaglin, 1993; their limit of 3.5 would report 3.3 % of clean log-normal sizes,
        8 reports none.
    """
    measured = rows.measured("min")
    least = int(case.options["least"])
    # A place far from those of few others is no evidence of another unit.
    fewest = least if case.spec.role in {"position", "pose"} else -(-least // 4)
    if 0 < int(measured.sum()) < fewest:
        yield Skip(measured, f"fewer than {pluralize(fewest)}")
        return
    if case.spec.role in {None, "value"}:
        yield from _constant(rows, case)
        yield from _nearly_still(rows, case)
    if case.spec.role is None:
        yield from _much_larger(rows, case)
        yield from _other_setting(rows, case)
        yield from _far_number(rows, case)
    elif measured.any() and int(measured.sum()) < least:
        yield from _much_larger(rows, case)
    else:
        yield from _far_by_z(rows, case)


def _far_by_z(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    for label, values, measured in _scalars(rows, case):
        judged = measured & np.isfinite(values)
        outliers, z = _robust_z(rows, values, judged, case)
        beyond = outliers & (np.abs(z) > float(case.options["far"])) & (label != "number of rows")
        for mask, grave in ((beyond, True), (outliers & ~beyond, False)):
            if mask.any():
                yield _standing_out(
                    rows, case, label, values, mask, judged & ~outliers, z, grave=grave
                )


def _much_larger(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield samples whose numbers are many times as large as all others', which are alike.

    The cause is probably another unit.
    """
    measured = rows.measured("min", "dtype")
    if not measured.any():
        return
    measured &= np.array([str(dtype).startswith("float") for dtype in rows["dtype"]], bool)
    low, high = rows["min"].min(axis=1), rows["max"].max(axis=1)
    peak = np.maximum(np.abs(low), np.abs(high))
    measured &= np.isfinite(peak) & (peak > 0)
    # Both ends, as the largest number of each sample is 1 where all are normalised by it.
    few = _kinds(low, high, measured) < min(int(case.options["distinct"]), int(measured.sum()))
    if 4 * int(measured.sum()) < int(case.options["least"]) or few:
        return
    ratio = np.where(measured, peak, 0.0) / float(np.median(peak[measured]))
    outliers = ratio >= float(case.options["far"])
    rest = peak[measured & ~outliers]
    are_many = int(measured.sum()) >= int(case.options["least"])
    if not outliers.any() and are_many and _are_long(rows, measured):
        # The largest of many numbers are much more alike, and fewer times are as clear.
        outliers = ratio >= _FAR_OF_ALIKE
        rest = peak[measured & ~outliers]
        if outliers.sum() > _FEW_OF_ALIKE * measured.sum() or rest.max() > _MUCH_ALIKE * rest.min():
            return
    if outliers.any() and float(rest.max()) <= _ALIKE * float(rest.min()):
        yield Failure(
            outliers,
            f"{count_phrase(outliers, 'hold')} numbers up to {format_number(float(peak[outliers].max()))}; "
            f"the others reach "
            f"{format_number(float(rest.min()))} to {format_number(float(rest.max()))}.",
            measured={"ratio": float(ratio.max()), "median": float(np.median(rest))},
            severity=Severity.WARNING,
            kind="much larger",
            fix="Look at them; declare role, unit and range if such samples are wrong.",
            order=ratio,
        )


def _constant(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield samples of one constant value where nearly all others vary.

    The others must also go beyond that value on both sides.
    """
    measured = rows.measured("min", "dims")
    if not measured.any():
        return
    low = rows["min"].min(axis=1)
    high = rows["max"].max(axis=1)
    measured &= (np.maximum(rows["dims"], 1).prod(axis=1) >= _SEVERAL) & np.isfinite(low + high)
    still = measured & (low == high)
    if not still.any() or int(measured.sum()) < int(case.options["least"]):
        return
    varies = measured & ~still
    resting = re.search(_AT_REST, case.name.lower())
    values, value_index = np.unique(low[still], return_inverse=True)
    # Counts start at 0, and some stay 0. Each value is judged by itself, so that one at an end of
    # the range does not hide another.
    around = np.searchsorted(np.sort(low[varies]), values) - np.searchsorted(
        np.sort(high[varies]), values, "right"
    )
    fits = (around >= _NEARLY_ALL * int(measured.sum())) & ((values != 0) | (resting is None))
    still[still] = fits[value_index]
    values = values[fits]
    if (
        not still.any()
        or _kinds(low, high, varies & (low < values[0]) & (high > values[-1]))
        < case.options["distinct"]
    ):
        return
    yield Failure(
        still,
        f"{count_phrase(still, 'hold')} one value throughout "
        f"({first_few(map(format_number, values.tolist()))}); the other "
        f"{int(varies.sum()):,} vary.",
        measured={"values": values[:10].tolist()},
        severity=Severity.WARNING,
        kind="constant",
        fix="Look at them: a sensor may have been dead, or the file never filled. Leave out those "
        "that hold nothing.",
    )


def _nearly_still(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield long samples that hardly vary where all others vary far more: a muted microphone."""
    measured = rows.measured("min", "dims")
    if not measured.any() or re.search(_AT_REST, case.name.lower()):
        return
    span = (rows["max"] - rows["min"]).max(axis=1)
    measured &= np.isfinite(span) & (span > 0) & (rows["dims"][:, 0] >= _MANY_ROWS)
    total = int(measured.sum())
    if total < int(case.options["least"]):
        return
    ordered = np.sort(span[measured])
    few = max(1, int(_FEW_STILL * total))
    gaps = ordered[1 : few + 1] / ordered[:few]
    place = int(np.argmax(gaps))
    usual = float(np.median(ordered))
    if gaps[place] < _TIMES_STILL or ordered[place] > _STILL * usual:
        return
    still = measured & (span <= ordered[place])
    yield Failure(
        still,
        f"{count_phrase(still, 'vary')} by at most {format_number(float(ordered[place]))}; the other "
        f"{int((measured & ~still).sum()):,} vary by {format_number(float(ordered[place + 1]))} or "
        f"more.",
        measured={"span": float(ordered[place]), "others": float(ordered[place + 1])},
        severity=Severity.WARNING,
        kind="nearly constant",
        fix="Look at them: a microphone may have been muted, or a sensor unplugged. Leave out those "
        "that hold nothing.",
        order=-span,
    )


def _kinds(low: Array, high: Array, which: Array) -> int:
    """Return how many distinct pairs of smallest and largest value there are: switches have few."""
    return len(np.unique(np.stack([low[which], high[which]]), axis=1).T)


def _are_long(rows: Rows, measured: Array) -> bool:
    """Tell whether all of these samples have `_LONG_ENOUGH` rows or more."""
    if "dims" not in rows or not rows["dims"].shape[1]:  # scalars
        return False
    long = rows.measured("dims") & (rows["dims"][:, 0] >= _LONG_ENOUGH)
    return bool(long[measured].all())


def _other_setting(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield samples whose one number differs from that of nearly all others.

    The number is a rate, or another setting of a recording.
    """
    measured = rows.measured("min", "ndim")
    if not measured.any():
        return
    values = rows["min"][:, 0]
    pace = re.search(PACE_NAMES, case.name.lower()) is not None
    measured &= (rows["ndim"] == 0) & np.isfinite(values)
    total = int(measured.sum())
    if 2 * total < int(case.options["least"]):
        return
    usual = float(np.median(values[measured]))
    deviating = measured & (np.abs(values - usual) > (_SAME_PACE * abs(usual) if pace else 0))
    count = total - int(deviating.sum())
    if not deviating.any() or count < (_NEARLY_ALL if pace else _ALL_BUT_FEW) * total:
        return
    settings = np.unique(values[deviating])
    if not pace and not _is_setting(settings, usual):
        return
    others = [format_number(float(value), case.spec.unit) for value in settings]
    most = format_number(usual, case.spec.unit)
    if most in others:  # equal in three digits
        others = [f"{value:.9g}" for value in settings.tolist()]
        most = f"{usual:.9g}"
    yield Failure(
        deviating,
        f"{count_phrase(deviating, 'have')} {case.name} {first_few(others)}; the other {count:,} have "
        f"{most}.",
        measured={"usual": usual},
        severity=Severity.WARNING if pace else None,
        kind="pace" if pace else "setting",
        fix="Look at how they were made: correct the number where it alone is wrong, or resample "
        "their data."
        if pace
        else "Look at how they were made: another setting may have been in force.",
    )


def _is_setting(others: Array, usual: float) -> bool:
    """Tell whether the distinct values of a field are settings rather than labels or counts."""
    values = np.append(others, usual)
    labels = (values == np.floor(values)).all() and np.abs(values).max() < _NO_LABEL
    return not labels and usual != 0 and len(values) <= _SETTINGS


def _far_number(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield samples that share one integer far beyond those of all others.

    The integers of the others leave few gaps.
    """
    measured = rows.measured("min", "ndim")
    if not measured.any():
        return
    values = rows["min"][:, 0]
    measured &= (rows["ndim"] == 0) & np.isfinite(values)
    largest = float(values[measured].max(initial=0))
    far = measured & (values == largest)
    if (
        int(measured.sum()) < int(case.options["least"])
        or not _FEWEST <= int(far.sum()) <= (1 - _NEARLY_ALL) * measured.sum()
    ):
        return
    others = np.unique(values[measured & ~far])
    high = float(others[-1])
    dense = (others == np.floor(others)).all() and others[0] in {0, 1} and 2 * len(others) > high
    if (
        not dense
        or len(others) < _KINDS
        or not 3 * (high + 1) <= largest <= _LAST_LABEL
        or largest in _IGNORED
    ):
        return
    yield Failure(
        far,
        f"{count_phrase(far, 'have')} {case.name} {format_number(largest)}; the other "
        f"{int((measured & ~far).sum()):,} have "
        f"{format_number(float(others[0]))} to {format_number(high)}.",
        measured={"value": largest, "rest": high},
        severity=Severity.WARNING,
        kind="far number",
        fix="Look at them: as a label it is one that no class has. Where it is meant, declare "
        "role: class and classes.",
    )


def _standing_out(
    rows: Rows,
    case: RuleContext,
    label: str,
    values: Array,
    bad: Array,
    good: Array,
    z: Array,
    *,
    grave: bool,
) -> Failure:
    cause = _unit_of(rows, case, values, bad, good) if grave else None
    typical = float(np.median(values[good])) if good.any() else float(np.median(values[bad]))
    worst = float(values[int(np.argmax(np.where(bad, np.abs(z), 0)))])
    clear = cause is not None and cause.factor is not None
    return Failure(
        bad,
        f"{count_phrase(bad, 'stand')} out by {label}: up to |z| = "
        f"{format_number(float(np.abs(z[bad]).max()))} at "
        f"{format_number(worst)}; usual is {format_number(typical)}.",
        measured={"z": float(np.abs(z[bad]).max()), "median": typical},
        cause=cause,
        severity=(Severity.ERROR if clear else Severity.WARNING) if grave else None,
        kind=f"{label}, far" if grave else label,
        fix="Look at them; declare range, size or length if such samples are wrong.",
        order=np.abs(z),
    )


def _unit_of(rows: Rows, case: RuleContext, values: Array, bad: Array, good: Array) -> Cause | None:
    """Return the cause of outliers that another unit explains, None where the field has no unit."""
    spec = case.spec
    units = ANGLE if spec.role == "joint_angle" or spec.unit in ANGLE else LENGTH
    if spec.unit is None and spec.role in {"action", "value"}:
        return None
    own = units.get(spec.unit or "", 1.0)
    # The size tells a change of unit from a mere move, which leaves it unchanged.
    sizes = {"value": values} | ({"size": rows["box"]} if "box" in rows else {})
    changes = []
    for unit, size in units.items():
        for by, kind, words in (
            (size / own, unit, unit),
            (own / size, f"twice-{unit}", f"converted from {unit} twice"),
        ):
            looks = {name: logarithms(numbers * by) for name, numbers in sizes.items()}
            common = unit in {"mm", "cm", "deg"}
            if size != own:
                changes.append(
                    CandidateCause(kind, f"probably {words}", by, looks, values > 0, common=common)
                )
    looks = {name: logarithms(numbers) for name, numbers in sizes.items()}
    return explain(changes, looks, {}, bad, good, rows.groups)


def _robust_z(rows: Rows, values: Array, measured: Array, case: RuleContext) -> tuple[Array, Array]:
    """Return which samples are outliers, and every z (0 where it is not judged)."""
    z = np.zeros(len(rows))
    judged = np.zeros(len(rows), bool)
    least = int(case.options["least"])
    groups = list(rows.by_group())
    for _, places in groups:
        inside = places[measured[places]]
        if len(inside) >= least and len(groups) > 1:
            z[inside], judged[inside] = _robust(values[inside], case), True
    rest = measured & ~judged
    if int(rest.sum()) >= least:
        z[rest] = _robust(values[rest], case)
    return np.abs(z) > float(case.options["z"]), z


def _robust(values: Array, case: RuleContext) -> Array:
    if len(np.unique(values)) < int(case.options["distinct"]):
        return np.zeros(len(values))
    positive = bool((values > 0).all())
    values = np.log(values) if positive else values
    off = values - np.median(values)
    scatter = 1.4826 * float(np.median(np.abs(off)))
    if scatter == 0:
        return np.zeros(len(values))
    deviations: Array = off / (max(scatter, _STEADY) if positive else scatter)
    return deviations


# -------------------------------------------------------------------------------------- normalisers


_RECOMPUTE = "Compute the statistics again from the training split."


@measure("moments", version=2, applies=lambda s: leaf(s) and s.stats is not None)
def moments(column: Column, spec: FieldSpec) -> Columns:
    """Mean and variance per column of the last axis, in float64.

    `n` rows, `average`, `variance`, `lower`, `upper`. No row for samples without values, or with
    more than 64 columns.
    """
    del spec
    if not is_numeric(column):
        return {}
    values, lengths = column.values, column.lengths
    flat = values.ndim == 1
    width = 1 if flat else int(values.shape[-1])
    if (
        flat
        and lengths is not None
        and column.uniform is not None
        and 0 < column.uniform <= _WIDEST
    ):
        # Each sample is one vector.
        values, lengths, width = (values.reshape(len(column), -1), None, column.uniform)
    inner = 1 if values.ndim < 3 else prod(values.shape[1:-1])
    if not 0 < width <= _WIDEST:
        return {}
    count = (np.ones(len(column), np.int64) if lengths is None else lengths) * inner
    table = np.ascontiguousarray(values.reshape(-1, width).T, dtype=np.float64)
    present = count > 0
    size = np.maximum(count, 1)
    mean = reduced(np.add, table, count) / size
    spread = reduced(np.add, (table - np.repeat(mean, count, axis=1)) ** 2, count) / size
    low = reduced(np.minimum, table, count)
    high = reduced(np.maximum, table, count)
    columns = {"average": mean.T, "variance": spread.T, "lower": low.T, "upper": high.T}
    return {"n": Measured(count, present)} | {
        name: Measured(value, present) for name, value in columns.items()
    }


@rule(
    "DC228",
    "stale-stats",
    Severity.ERROR,
    Level.DATASET,
    measures=(moments,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=moments.applies,
    defaults={"mean": 0.1, "std": (0.8, 1.25), "beyond": 0.01, "splits": ("", "train", "training")},
)
def stale_stats(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The normaliser's statistics do not match the training data.

    What:
        The ``stats`` of a field, declared in the schema or read from a file, match mean, standard
        deviation, smallest and largest value of the training split (of all samples if there are no
        splits).
    Why it matters:
        Inputs with mean 3 and spread 100 train, but badly; a policy trained with other statistics
        moves to other places.
    Measure:
        |mean - stored| in standard deviations; stored / recomputed standard deviation; how far the
        data exceed the stored smallest and largest value, as a share of the stored range. Colours
        of 0..255 may have statistics of 0..1, over all points or with equal weight for each scene,
        as Mask3D's preprocessing computes them. A deviation that is off by what LeRobot loses in 32
        bits is a warning. Of several LeRobot datasets, only the one with the statistics is judged.
    When it is wrong:
        The statistics cover several datasets on purpose: leave ``stats`` out here.
    Options:
        mean: largest difference in standard deviations (0.1).
        std: allowed ratio (0.8..1.25).
        beyond: largest share of the range by which data may exceed it (0.01).
        splits: splits that are training data (no split, train, training).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2], stats: {mean: [0, 0], std: [100, 100]}}}}
        samples:
          - {n: 4, a: {normal: [200, 2]}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2], stats: {mean: [0, 0], std: [1, 1], min: [-6], max: [6]}}}}
        samples:
          - {n: 20, a: {normal: [200, 2]}}

    Fix:
        Recompute the statistics from these data.
    Reference:
        LIBERO with RDT: 0.003 in ``dataset_stat.json`` where a single task has 0.33; OpenVLA keeps
        one set per dataset.
    """
    yield from _unreadable_stats(rows, case)
    measured = _described(rows, case)
    stats = case.spec.stats
    splits = case.options["splits"]
    if not measured.any() or stats is None:
        return
    if not set(rows.splits) & set(splits):
        if not set(rows.table.splits) & set(splits):
            yield Skip(
                measured, f"no split is called {' or '.join(filter(None, splits))} (option splits)"
            )
        return
    actual = _pooled(rows, measured)
    width = len(actual["mean"])
    stored = {
        name: np.array(getattr(stats, name), dtype=np.float64)
        for name in ("mean", "std", "min", "max")
    }
    stored = {name: values for name, values in stored.items() if len(values)}
    mismatched = {
        name: len(values) for name, values in stored.items() if len(values) not in {1, width}
    }
    if mismatched:
        phrases = [f"{count} of {name}" for name, count in mismatched.items()]
        words = (
            f"the statistics have {first_few(phrases)}, the field has {pluralize(width, 'column')}"
        )
        yield _stale(rows, case, words, None, "width", stored, actual)
        return
    as_stored, stored = (
        stored,
        {name: np.broadcast_to(values, (width,)) for name, values in stored.items()},
    )
    problems = _problems(stored, actual, case)
    if problems and case.spec.role == "color":
        equal_weighted = _pooled(rows, measured, alike=True)
        unit = _FULL if _in_unit_range(stored, actual) else 1.0
        if any(
            not _problems(_scaled(stored, unit), candidate, case)
            for candidate in (actual, equal_weighted)
        ):
            return
        ours = _scaled(actual, 1 / unit)
        ours_alike = _scaled(equal_weighted, 1 / unit)
        words = f"of {int(measured.sum()):,} samples: {first_few(_problems(stored, ours, case))}"
        yield _stale(
            rows,
            case,
            words,
            _mismatch_cause(stored, ours, case) or _mismatch_cause(stored, ours_alike, case),
            "values",
            as_stored,
            actual,
        )
        return
    if problems:
        words = f"of {int(measured.sum()):,} samples: {first_few(problems)}"
        cause = _rounding(rows, case, measured, stored, actual)
        failure = _stale(
            rows,
            case,
            words,
            cause or _mismatch_cause(stored, actual, case),
            "values",
            as_stored,
            actual,
        )
        yield replace(failure, severity=Severity.WARNING) if cause else failure


def _rounding(
    rows: Rows,
    case: RuleContext,
    measured: Array,
    stored: dict[str, Array],
    actual: dict[str, Array],
) -> Cause | None:
    """Return LeRobot's 32-bit arithmetic as the cause where it explains all differences."""
    if no_lerobot(case.schema) or "std" not in stored:
        return None
    size = np.maximum(np.abs(actual["min"]), np.abs(actual["max"]))
    lost = lost_digits(int(rows["n"][measured].max()), size)
    is_lost = np.abs(stored["std"] ** 2 - actual["std"] ** 2) <= lost
    std = np.where(is_lost, actual["std"], stored["std"])
    if _problems({**stored, "std": std}, actual, case):
        return None
    text = "LeRobot computes std in 32 bits, which loses the digits of a column that hardly moves"
    return Cause(text, "rounding")


def _described(rows: Rows, case: RuleContext) -> Array:
    """Return which measured rows the statistics describe: those of their own LeRobot dataset."""
    measured = rows.measured("n")
    file = case.spec.stats.file if case.spec.stats is not None else None
    if not file or no_lerobot(case.schema):
        return measured
    folder = file.rpartition("meta/")[0]
    inside: Array = np.array([path.rpartition("data/")[0] == folder for path in rows.files], bool)
    return measured & inside


def _unreadable_stats(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield a failure if the file with a field's statistics exists but cannot be read."""
    for note in case.notes:
        if note.about["field"] == case.name:
            yield Failure(np.zeros(len(rows), bool), note.reason, kind="table", fix=_RECOMPUTE)


def _stale(
    rows: Rows,
    case: RuleContext,
    words: str,
    cause: Cause | None,
    kind: str,
    stored: dict[str, Array],
    actual: dict[str, Array],
) -> Failure:
    file = case.spec.stats.file if case.spec.stats is not None else None
    # The format that datacheck/fix/edits.py can write.
    repairable = file is not None and file.lower().endswith(".json")
    return Failure(
        np.zeros(len(rows), bool),
        f"{words}.",
        cause=cause,
        kind=cause.kind if cause else kind,
        measured={name: values.tolist() for name, values in actual.items()},
        expected={name: values.tolist() for name, values in stored.items()},
        fix=f"{_RECOMPUTE[:-1]}: datacheck fix DC228 writes such a copy."
        if repairable
        else _RECOMPUTE,
    )


def _pooled(rows: Rows, measured: Array, *, alike: bool = False) -> dict[str, Array]:
    """Return mean, std, min and max over all rows of all samples, per column.

    With `alike` each sample has the same weight.
    """
    n = (
        np.ones((int(measured.sum()), 1))
        if alike
        else rows["n"][measured].astype(np.float64)[:, None]
    )
    average = rows["average"][measured]
    variance = rows["variance"][measured]
    mean = (n * average).sum(axis=0) / n.sum()
    std = np.sqrt((n * (variance + (average - mean) ** 2)).sum(axis=0) / n.sum())
    return {
        "mean": mean,
        "std": std,
        "min": rows["lower"][measured].min(axis=0),
        "max": rows["upper"][measured].max(axis=0),
    }


def _in_unit_range(stored: dict[str, Array], actual: dict[str, Array]) -> bool:
    """Tell whether the statistics are of colours in 0..1 where the data have 0..255."""
    ends = [float(stored[name].max()) for name in ("mean", "std", "min", "max") if name in stored]
    # Above 2, because colours of 0..1 may reach 1.01.
    return bool(ends) and max(ends) <= 1 and float(actual["max"].max()) > 2


def _scaled(stored: dict[str, Array], by: float) -> dict[str, Array]:
    return {name: values * by for name, values in stored.items()}


def _problems(stored: dict[str, Array], actual: dict[str, Array], case: RuleContext) -> list[str]:
    """Return the differences above the limits, the worst dimension of each statistic."""
    problems = []
    spread = np.maximum(actual["std"], 1e-12)
    if "mean" in stored:
        off = np.abs(stored["mean"] - actual["mean"]) / spread
        i = int(np.argmax(off))
        if (
            off[i] > float(case.options["mean"])
            and abs(stored["mean"][i] - actual["mean"][i]) > 1e-9
        ):
            problems.append(
                f"mean {format_number(stored['mean'][i])} stored, "
                f"{format_number(actual['mean'][i])} found (dimension {i})"
            )
    if "std" in stored:
        low, high = map(float, case.options["std"])
        moving = actual["std"] > 1e-9  # a normaliser may give a constant any spread
        ratio = np.where(moving, stored["std"] / spread, 1.0)
        off = np.abs(np.log(np.maximum(ratio, 1e-12)))
        i = int(np.argmax(off))
        if not low <= ratio[i] <= high:
            problems.append(
                f"std {format_number(stored['std'][i])} stored, {format_number(actual['std'][i])} "
                f"found (dimension {i})"
            )
    if "min" in stored and "max" in stored:
        span = np.maximum(stored["max"] - stored["min"], 1e-12)
        off = np.maximum(stored["min"] - actual["min"], actual["max"] - stored["max"]) / span
        i = int(np.argmax(off))
        if off[i] > float(case.options["beyond"]):
            problems.append(
                f"{format_number(stored['min'][i])}..{format_number(stored['max'][i])} stored, "
                f"{format_number(actual['min'][i])}..{format_number(actual['max'][i])} found "
                f"(dimension {i})"
            )
    return problems


def _mismatch_cause(
    stored: dict[str, Array], actual: dict[str, Array], case: RuleContext
) -> Cause | None:
    """Return the cause that explains every dimension: squares in place of spreads, or a factor."""
    if "std" in stored:
        squares = actual["std"] ** 2 + actual["mean"] ** 2
        for by in (1.0, _FULL**2):
            if np.allclose(stored["std"] * by, squares, rtol=0.02):
                text = (
                    "std holds the mean of squares, as Mask3D's databases do: std = sqrt(it - "
                    "mean^2)"
                )
                return Cause(text, "squares")
        ratio = actual["std"] / np.maximum(stored["std"], 1e-300)
        by = float(np.median(ratio))
        if by > 0 and not _problems(_scaled(stored, by), actual, case):
            return Cause(
                f"all of them are off by one factor: x{by:.4g} makes them fit", "scaled", by
            )
    return None


# ratio of an outlier to all other rows: among many rows, among few
_FAR = 30.0
_FAR_FEW = 300.0
# Fewest rows that define the usual; fewest that are judged at all, where each row is an array.
_MANY = 50
_LEAST = 4
_SHARE = 0.2  # a larger share of the rows is no exception
_PROBED = 64  # rows sampled for a first estimate
# Most distinct labels; fewest values of a labelled sample; sampled values.
_LABELS = 64
_LABEL_VALUES = 100
_PIXELS = 1 << 20
_USUAL_LABEL = 30
_FAR_LABEL = 50
_LAST_LABEL = 1000
_LABEL_FACTOR = 5
_IGNORED = frozenset({250, 253, 254, 255})  # frequent numbers of ignored labels


_LABELLED = frozenset({"class", "segment"})
_PLACES = SPATIAL_ROLES | {"pose", "transform"}
# Names of quantities that are 0 at rest.
_AT_REST = RATE_NAMES + r"|veloc|speed|force|delta|displ|motion|diff|error|resid|reward|contact"
_NO_PLACES = (
    RATE_NAMES + r"|normal|rgb|colou?r|flow|delta|offset|displ|motion|diff|grad|noise|error|resid"
)


@measure(
    "far_rows",
    per="sample",
    uses=("fields.role", "fields.shape", "fields.ignore", "fields.classes", "fields.pixels_of"),
)
def far_rows(block: Block, schema: Schema) -> Columns:
    """Field with few rows far larger than all others: `far_field` (its name), and counts.

    `far_rows` counts these rows, out of `far_of`; `far_low` is the smallest and `far_high` the
    largest of them, `far_rest` the largest of the others; `far_label` is 1 where these are labels.
    """
    outliers: dict[int, tuple[str, _OutlierRows]] = {}
    for name, column in block.fields.items():
        if (
            not is_numeric(column)
            or column.peeked
            or column.lengths is None
            or column.values.dtype.kind not in "fiu"
        ):
            continue
        spec = schema.spec(name)
        labels = column.values.dtype.kind != "f"
        if not (_holds_labels(spec) if labels else _holds_places(name, column, spec)):
            continue
        for sample, outlier in _outliers(column, spec):
            outliers.setdefault(sample, (name, outlier))
    if not outliers:
        return {}
    present = np.isin(np.arange(len(block)), list(outliers))
    names = np.array(
        [outliers[sample][0] if sample in outliers else "" for sample in range(len(block))],
        dtype=object,
    )
    values = np.zeros((len(block), len(_OutlierRows._fields)))
    for sample, (_, outlier) in outliers.items():
        values[sample] = outlier
    columns = {
        f"far_{part}": Measured(values[:, index], present)
        for index, part in enumerate(_OutlierRows._fields)
    }
    return {"far_field": Measured(names, present), **columns}


class _OutlierRows(NamedTuple):
    rows: float
    of: float
    low: float
    high: float
    rest: float
    label: float


def _holds_labels(spec: FieldSpec) -> bool:
    """Tell whether integers of a field may be labels; without a role not those of time steps."""
    plain = spec.role in {None, "value"} and spec.pixels_of is None
    return spec.role in _LABELLED or (plain and not (spec.ragged or "").startswith("T"))


def _holds_places(name: str, column: Column, spec: FieldSpec) -> bool:
    """Tell whether a field holds coordinates: by its role, else by its name and shape.

    Notes:
        Forces, velocities, deltas and hidden states are near zero in most rows and large in few:
        only coordinates are all of one size. A field with a time axis may be any of those. A field
        without declared axes is judged only if it has a few rows with as many joints as skeletons
        have.
    """
    if spec.role not in {None, "value"}:
        return spec.role in _PLACES
    item = column.values.shape[1:]
    base_name = name.rpartition("/")[2].lower()
    if (spec.ragged or "").startswith("T") or re.search(_NO_PLACES, base_name):
        return False
    if _says_no_axes(spec):
        return len(item) == 2 and item[0] in JOINT_COUNTS and item[1] in {3, 4}
    if item[-1:] != (3,):
        return False
    return bool(
        re.search(POINT_NAMES, base_name)
        or (item[0] in JOINT_COUNTS and re.search(JOINT_NAMES, base_name))
    )


def _says_no_axes(spec: FieldSpec) -> bool:
    return spec.role in {None, "value"} and not spec.shape


def _outliers(column: Column, spec: FieldSpec) -> Iterator[tuple[int, _OutlierRows]]:
    """Yield the samples with few rows that are far larger than the others."""
    labels = column.values.dtype.kind != "f"
    wide = column.values.ndim > 2
    for sample, length in enumerate(column.lengths.tolist() if column.lengths is not None else ()):
        if length < (_LEAST if wide and not labels else 2 if labels else _MANY):
            continue
        if not labels and length >= _MANY and _says_no_axes(spec):
            continue
        values = np.asarray(column[sample])
        outlier = _label_outlier(values, spec) if labels else _row_outliers(values, wide=wide)
        if outlier is not None:
            yield sample, outlier


def _row_outliers(values: Array, *, wide: bool) -> _OutlierRows | None:
    # Single numbers may be rewards and events, which are rare and large.
    if values.ndim < 2 or values.shape[1] < 2:
        return None
    flat = values.reshape(len(values), -1)
    probed = np.abs(flat[:: max(1, len(flat) // _PROBED)]).max(axis=1, initial=0)
    usual = float(np.median(probed[np.isfinite(probed)])) if np.isfinite(probed).any() else 0.0
    if max(abs(float(flat.max(initial=0))), abs(float(flat.min(initial=0)))) < _FAR * usual:
        return None
    every = np.abs(flat).max(axis=1, initial=0).astype(np.float64)
    peaks = np.sort(every[np.isfinite(every)])
    few = len(peaks) < _MANY
    first = len(peaks) - (1 if few else max(1, int(_SHARE * len(peaks))))
    if first < 1 or (few and not wide):
        return None
    below = peaks[first - 1 : -1]
    above = peaks[first:]
    steps = np.where(below > 0, above / np.maximum(below, np.finfo(np.float64).tiny), 0)
    gap_place = first + int(np.argmax(steps))
    if steps.max() < (_FAR_FEW if few else _FAR):
        return None
    large = np.abs(flat[np.isfinite(every) & (every >= peaks[gap_place])])
    large = large[large > peaks[gap_place - 1]]
    # One repeated integer is a mark for missing values.
    if large.min() == large.max() == np.round(large[0]):
        return None
    return _OutlierRows(
        len(peaks) - gap_place, len(peaks), peaks[gap_place], peaks[-1], peaks[gap_place - 1], 0
    )


def _label_outlier(values: Array, spec: FieldSpec) -> _OutlierRows | None:
    """Return the undeclared label far beyond the few other labels, None without one."""
    flat = values.reshape(-1)
    flat = flat[~one_of(flat, spec.ignore)] if spec.ignore else flat
    if len(flat) < _LABEL_VALUES or not _FAR_LABEL <= int(flat.max()) <= _LAST_LABEL:
        return None
    distinct = np.unique(flat[:: max(1, len(flat) // _PIXELS)])
    if not 3 <= len(distinct) <= _LABELS or int(distinct[-1]) in _IGNORED:
        return None
    largest = int(distinct[-1])
    second_largest = int(distinct[-2])
    if spec.classes is not None and in_classes(distinct[-1:], spec)[0]:
        return None
    if not 1 <= second_largest < _USUAL_LABEL or largest < max(
        _FAR_LABEL, _LABEL_FACTOR * (second_largest + 1)
    ):
        return None
    return _OutlierRows(
        int(np.count_nonzero(flat == largest)), len(flat), largest, largest, second_largest, 1
    )


@rule("DC229", "outlier-rows", Severity.WARNING, Level.SAMPLE, per="sample", measures=(far_rows,))
def outlier_rows(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A few rows are far larger than all others, or one label far exceeds all other labels.

    What:
        Within a sample, no few rows of coordinates (points, joints, positions, poses) have a
        largest number 30 times that of all other rows; a few rows are at most a fifth. In an array
        of 4 to 49 tables, no single table is 300 times as large. Among labels of few kinds, the
        largest is not both at least 50 and five times all others, unless ``classes`` or ``ignore``
        declares it.
    Why it matters:
        Some rows are in millimetres or in pixels. A label that belongs to no class stops the
        training, or is trained on.
    Measure:
        The largest absolute number of each row, sorted: the largest ratio between neighbours.
        Numbers without a role count as coordinates if their name says points or joints, a row has
        three numbers, and their ``shape`` has no time axis; in fields without a ``shape``, 4 to 49
        rows of 14 to 70 joints with three or four numbers count.
    When it is wrong:
        Such rows are intended: switch the rule off. Rows that repeat one whole number (-9999) count
        as sentinels for missing data and are not reported. A repeated label is reported; only 250,
        253, 254 and 255 count as labels that training ignores.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: points, shape: [N, 3]}}}
        samples:
          - {n: 2, x: {normal: [100, 3]}}
          - {x: {normal: [100, 3], far: 5}}

    Good::

        schema: {fields: {x: {role: points, shape: [N, 3]}}}
        samples:
          - {n: 3, x: {normal: [100, 3]}}

    Fix:
        Inspect these rows: the numbers do not show why they differ. Declare an intended label in
        ``classes``, and one that training ignores in ``ignore``.
    Reference:
        A table of key points had a twentieth of its rows in pixels and the others relative to the
        wrist, and nothing reported it.
    """
    del case
    if ":far_field" not in rows:
        return
    measured = rows.measured(":far_field")
    names = rows[":far_field"]
    label = rows[":far_label"] > 0
    for name in sorted(set(names[measured])):
        for labels in (False, True):
            affected = measured & (names == name) & (label == labels)
            if affected.any():
                yield _outlier_failure(rows, name, affected, labels=labels)


def _outlier_failure(rows: Rows, name: str, affected: Array, *, labels: bool) -> Failure:
    count = int(rows[":far_rows"][affected].sum())
    total_rows = int(rows[":far_of"][affected].sum())
    low = float(rows[":far_low"][affected].min())
    high = float(rows[":far_high"][affected].max())
    rest = float(rows[":far_rest"][affected].max())
    between = (
        format_number(low) if low == high else f"{format_number(low)} to {format_number(high)}"
    )
    what = (
        f"{pluralize(count, 'label')} of {total_rows:,} {'is' if count == 1 else 'are'} {between}; the "
        f"others reach {format_number(rest)}"
        if labels
        else f"the largest number of {pluralize(count, 'row')} of {total_rows:,} is {between}, of the "
        f"others {format_number(rest)}"
    )
    return Failure(
        affected,
        f"{name}, {pluralize(int(affected.sum()), 'sample')}: {what}.",
        measured={"rows": count, "of": total_rows, "low": low, "high": high, "rest": rest},
        fix="Look at them. Declare the label in classes where it is meant, in ignore where "
        "training ignores it."
        if labels
        else "Look at these rows: the numbers do not say why they differ.",
        kind=f"{name}, {'label' if labels else 'rows'}",
        extra=(name,),
    )


_MOST_COLUMNS = 32


def _trajectory_fields(schema: Schema) -> list[str]:
    """Return the field that represents the trajectory: the first position, else joint angles."""
    names = states(schema) if time_field(schema) else []
    positions = [name for name in names if schema.fields[name].role == "position"]
    return (positions or names)[:1]


@measure("course", per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def course(block: Block, schema: Schema) -> Columns:
    """Trajectory of an episode as a whole, by its first position, else joint angles.

    `rows`; `path`, its total length; `jerk`, root mean square of the third differences; `end`, its
    last row.
    """
    columns = series(block, _trajectory_fields(schema))
    if not columns or columns[0].values.shape[1] > _MOST_COLUMNS or columns[0].lengths is None:
        return {}
    column = columns[0]
    lengths = columns[0].lengths
    fits = lengths > 3
    if not fits.any():
        return {}
    change, count = steps(column, fits)
    path = reduced(np.add, norms(change), count)
    third = np.diff(change, n=2, axis=1)
    inside = (
        np.arange(change.shape[1] - 2) - np.repeat(np.cumsum(count) - count, count)[:-2]
        < np.repeat(count, count)[:-2] - 2
    )
    size = np.where(inside, norms(third) ** 2, 0.0)
    sample = np.repeat(np.arange(len(count)), count)[:-2]
    jerk = np.sqrt(np.bincount(sample, size, len(count)) / np.maximum(count - 2, 1))
    end_rows = np.zeros((len(column), column.values.shape[1]))
    end_rows[fits] = column.values[(column.starts + lengths - 1)[fits]]
    good = fits & np.isfinite(path) & np.isfinite(end_rows).all(axis=1)
    columns_ = {"rows": lengths, "path": path, "jerk": jerk, "end": end_rows}
    return {name: Measured(values, good) for name, values in columns_.items()}


@rule(
    "DC510",
    "episode-outlier",
    Severity.INFO,
    Level.GROUP,
    per="sample",
    measures=(course,),
    suppressed_by=("DC109", "DC121", "DC122", "DC123", "DC201", "DC202", "DC221", "DC222", "DC501"),
    defaults={"z": 5.0, "least": 20},
    unless=lambda s: "" if _trajectory_fields(s) else "no joint angles or positions over time",
)
def episode_outlier(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An episode is unlike the others of its group.

    What:
        Length, path length, jerk and end position are close to those of the other episodes.
    Why it matters:
        Deviating episodes are worth watching: failed demonstrations, recordings of another task, a
        robot that was pushed.
    Measure:
        Logarithms compared with median and MAD, within each group of at least 20 episodes, and over
        all remaining episodes together; for the end position, its distance from the median end. A
        MAD of 0 gives no score.
    When it is wrong:
        The task is free play: ``DC510: off``.
    Options:
        z: robust deviation above which an episode is reported (5).
        least: fewest episodes for the comparison (20).
    Bad::

        schema: {fields: {x: {role: position, shape: [T, 3], unit: m}, a: {role: action, shape: [T, 1]}}}
        samples:
          - {n: 25, x: {walk: [40, 3], scale: 0.01}, a: {normal: [40, 1]}}
          - {x: {walk: [40, 3], scale: 0.01, at: 3.0}, a: {normal: [40, 1]}}

    Good::

        schema: {fields: {x: {role: position, shape: [T, 3], unit: m}, a: {role: action, shape: [T, 1]}}}
        samples:
          - {n: 25, x: {walk: [40, 3], scale: 0.01}, a: {normal: [40, 1]}}

    Fix:
        Watch these episodes, and leave out those that failed.
    Reference:
        Outliers of demonstrations are found on logarithms: 3.3 % of clean log-normal data exceed a
        plain score of 3.5.
    """
    measured = rows.measured("path")
    if measured.sum() < int(case.options["least"]):
        return
    score = {name: np.zeros(len(rows)) for name in ("length", "path", "jerk", "end")}
    for where in _groups(rows, measured, int(case.options["least"])):
        for name, values in _values(rows, where).items():
            score[name][where] = _scores(values)
    for name, deviations in score.items():
        outliers = measured & (np.abs(deviations) > float(case.options["z"]))
        if outliers.any():
            most = float(deviations[outliers][np.argmax(np.abs(deviations[outliers]))])
            yield Failure(
                outliers,
                f"{name} of {pluralize(int(outliers.sum()), 'episode')} is unlike that of the others "
                f"(deviation {most:.3g}).",
                measured={"z": most},
                expected={"z": f"..{float(case.options['z']):g}"},
                fix="Watch them; leave out those that failed.",
                kind=name,
                order=np.abs(deviations),
            )


def _groups(rows: Rows, measured: Array, least: int) -> Iterator[Array]:
    """Yield the rows of each large group, then all others together if they are enough."""
    rest = measured.copy()
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine) >= max(1, least):
            where = np.zeros(len(measured), bool)
            where[mine] = True
            rest[mine] = False
            yield where
    if rest.sum() >= least:
        yield rest


def _values(rows: Rows, where: Array) -> dict[str, Array]:
    end = rows["end"][where]
    away = norms((end - np.median(end, axis=0)).T)
    return {
        "length": rows["rows"][where],
        "path": rows["path"][where],
        "jerk": rows["jerk"][where],
        "end": away,
    }


def _scores(values: Array) -> Array:
    """Return robust deviations of the logarithms of positive numbers; 0 without a spread."""
    positive = values > 0
    if positive.sum() < 2:
        return np.zeros(len(values))
    logs = np.log(np.where(positive, values, 1.0))
    middle = np.median(logs[positive])
    spread = 1.4826 * float(np.median(np.abs(logs[positive] - middle)))
    if spread <= 0 or len(np.unique(values)) < 10:
        return np.zeros(len(values))
    return np.where(positive, (logs - middle) / spread, 0.0)
