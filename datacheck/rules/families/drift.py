"""Rules that compare a run with another run of the same schema: values, classes, versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.table import Rows
from datacheck.rules.base import Info, RuleContext, Skip, first_few, format_number, pluralize, rule
from datacheck.rules.comparison import (
    DriftResult,
    Permutations,
    cumulative,
    discovery_rates,
    histograms,
    pooled_sd,
    top_measures,
    total_variation,
    wasserstein,
)
from datacheck.rules.label_counts import PLACES, class_names, shares
from datacheck.rules.measures import form, numbers, place, turn
from datacheck.rules.similarity import content

Array = np.ndarray[Any, Any]

_MOST_GROUPS = 1000  # on each side
_MOST_ROWS = 50_000
_SEED = 20_260_102
_WIDEST = 16
_NO_SCALARS = frozenset({"ndim", "bad_row", "classes", "scripts"})
# Roles whose numbers are names, not amounts.
_NAMES = frozenset({"class", "segment", "instance", "id", "flag", "labels", "tokens"})
_IN_UNIT = frozenset(
    {"min", "max", "box", "middle", "centroid", "first", "norm", "near", "p99", "peak", "bone"}
)
_COUNTED = {"unit": "group", "permutations": 199, "false_discoveries": 0.05, "groups": 10}


# ------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class _Side:
    """A deterministic selection of one side's groups: at most 1,000, with at most 50,000 samples.

    Args:
        rows: their samples.
        units: int64 (samples): the number of each one's group.
        count: selected groups; `total`: all groups.
    """

    rows: Rows
    units: Array
    count: int
    total: int


def _side(rows: Rows, unit: str) -> _Side:
    names = rows.groups if unit == "group" else []
    if any(names):
        numbers_of: dict[str, int] = {}
        units = np.array(
            [
                numbers_of.setdefault(name or f"\0{n}", len(numbers_of))
                for n, name in enumerate(names)
            ],
            dtype=np.int64,
        )
        total = len(numbers_of)
    else:
        units = np.arange(len(rows))
        total = len(rows)
    rng = np.random.Generator(np.random.PCG64(_SEED))
    keep = np.ones(len(rows), bool)
    if total > _MOST_GROUPS:
        chosen = np.zeros(total, bool)
        chosen[rng.choice(total, _MOST_GROUPS, replace=False)] = True
        keep = chosen[units]
    if keep.sum() > _MOST_ROWS:
        kept = np.flatnonzero(keep)
        share = np.zeros(len(rows), bool)
        share[kept[rng.choice(len(kept), _MOST_ROWS, replace=False)]] = True
        keep = share
    _, units = np.unique(units[keep], return_inverse=True)
    return _Side(
        rows.where(keep), units.reshape(-1), int(units.max()) + 1 if len(units) else 0, total
    )


def _too_few(rows: Rows, sides: list[_Side], least: int) -> Skip | None:
    return (
        Skip(np.ones(len(rows), bool), few)
        if (few := _shortage("groups", [s.total for s in sides], least))
        else None
    )


def _shortage(what: str, many: list[int], least: int) -> str:
    message = f"not enough {what} to compare: {many[0]:,} here and {many[1]:,} in the reference"
    return f"{message}, {least} are needed on each side" if min(many) < least else ""


def _group_counts(sides: list[_Side]) -> str:
    sampled = any(side.count < side.total for side in sides)
    count_texts = [
        f"{side.count:,}{f' of {side.total:,}' if side.count < side.total else ''}"
        for side in sides
    ]
    return (
        f"{count_texts[0]} groups here, {count_texts[1]} in the "
        f"reference{' (drawn once, always the same)' if sampled else ''}"
    )


@dataclass(eq=False)
class _Feature:
    """One scalar of the samples, on both sides."""

    field: str
    name: str
    unit: str
    now: Array
    then: Array
    effect: float
    counts: Array
    positions: Array
    p_value: float = 1.0
    rate: float = 1.0
    chance: float | None = None

    def compared(self, groups: tuple[int, int], *, drifted: bool, curve: bool) -> DriftResult:
        """Return the result, with the two cumulative distributions if `curve` is set."""
        tested = self.chance is not None
        return DriftResult(
            self.field,
            self.name,
            self.unit,
            self.effect,
            drifted,
            (len(self.now), len(self.then)),
            groups,
            self.rate if tested else None,
            self.chance,
            (float(np.median(self.now)), float(np.median(self.then))),
            cumulative(self.now, self.then) if curve else None,
        )


def _features(sides: list[_Side], case: RuleContext) -> Iterator[_Feature]:
    """Yield every scalar that both sides have, with its distance in standard deviations."""
    for column in sorted(sides[0].rows.table.columns):
        owner, _, stat = column.rpartition(":")
        field = owner.removeprefix(":")
        if field not in case.schema.fields or stat in _NO_SCALARS or column not in sides[1].rows:
            continue
        if stat in {"min", "max"} and case.schema.fields[field].role in _NAMES:
            continue
        values = [side.rows[column] for side in sides]
        if any(v.dtype.kind not in "biuf" for v in values) or {v.ndim for v in values} not in (
            {1},
            {2},
        ):
            continue
        width = min(v.shape[1] if v.ndim > 1 else 1 for v in values)
        measured = [side.rows.measured(column) for side in sides]
        for part in range(width if width <= _WIDEST else 0):
            if stat == "dims" and part:
                continue
            component = [
                v.astype(np.float64) if v.ndim == 1 else v[:, part].astype(np.float64)
                for v in values
            ]
            name = (
                "length"
                if stat == "dims"
                else stat
                if width == 1
                else f"{stat} of component {part}"
            )
            unit = (case.schema.fields[field].unit or "") if stat in _IN_UNIT else ""
            result = _feature(sides, component, measured, int(case.options["groups"]))
            if result is not None:
                yield _Feature(field, name, unit, *result)


def _feature(
    sides: list[_Side], values: list[Array], measured: list[Array], least: int
) -> tuple[Array, Array, float, Array, Array] | None:
    # The standard deviation of numbers of 1e300 overflows: they are not compared.
    with np.errstate(all="ignore"):
        measured = [k & np.isfinite(v) for k, v in zip(measured, values, strict=True)]
        if any(len(np.unique(s.units[k])) < least for s, k in zip(sides, measured, strict=True)):
            return None
        now, then = (v[k] for v, k in zip(values, measured, strict=True))
        scale = pooled_sd(now, then)
        if not (np.isfinite(scale) and scale > 0):
            return None
        units = np.concatenate(
            [sides[0].units[measured[0]], sides[0].count + sides[1].units[measured[1]]]
        )
        counts, positions = histograms(
            np.concatenate([now, then]) / scale, units, sides[0].count + sides[1].count
        )
        halves = counts[: sides[0].count].sum(axis=0), counts[sides[0].count :].sum(axis=0)
        effect = float(wasserstein(positions)(*halves))
        return (now, then, effect, counts, positions) if np.isfinite(effect) else None


def _permutations(sides: list[_Side]) -> Permutations:
    return Permutations(np.arange(sum(side.count for side in sides)) < sides[0].count)


@rule(
    "DC902",
    "distribution-drift",
    Severity.WARNING,
    Level.DATASET,
    per="sample",
    measures=(form, numbers, place, turn),
    suppressed_by=("DC109", "DC201", "DC202", "DC221", "DC222"),
    needs_reference=True,
    defaults=_COUNTED | {"effect": 0.2},
)
def distribution_drift(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip | DriftResult]:
    """The distribution of a field differs from the reference run.

    What:
        Lengths, extremes, positions, sizes, angles and all other numbers that are measured of each
        sample are compared field by field with the same split of the reference.
    Why it matters:
        With another camera, another crop or another robot calibration, each sample is fine but the
        dataset is another one.
    Measure:
        W1 / sd: the area between the two cumulative distributions, divided by the standard
        deviation within the sides. Groups (episodes, scenes; samples if there are none) are
        permuted between the sides at least 199 times; q is the false-discovery rate by Benjamini
        and Hochberg over all measures. Of more than 1,000 groups or 50,000 samples on a side, that
        many are drawn, always the same ones.
    When it is wrong:
        The change is intended: take the new run as the reference.
    Options:
        effect: largest distance of the distributions, in standard deviations (0.2).
        false_discoveries: expected share of chance results among those reported (0.05).
        permutations: fewest permutations (199).
        groups: fewest groups on each side; with fewer, nothing is judged (10).
        unit: permute each ``group`` (default), or each ``sample`` if the samples of a group are
        independent (lines of a file).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m}}, rules: {DC901: off}}
        samples:
          - {n: 12, xyz: {box: [50, 3], at: [0, 0, 0.5]}}
        reference:
          - {n: 12, xyz: {box: [50, 3], at: [0, 0, 0.1]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m}}, rules: {DC901: off}}
        samples:
          - {n: 12, xyz: {box: [50, 3], at: [0, 0, 0.1]}}
        reference:
          - {n: 12, xyz: {box: [50, 3], at: [0, 0, 0.1]}}

    Fix:
        Find out what changed; if the change is intended, take this run as the new reference.
    Reference:
        Tests over frames report drift for 96 % of unchanged episode datasets, tests over episodes
        for 5 %; the population stability index does so for 54 % of those with 10 episodes.
    """
    if case.reference is None:
        return
    sides = [_side(side, str(case.options["unit"])) for side in (rows, case.reference)]
    few = _too_few(rows, sides, int(case.options["groups"]))
    if few is not None:
        yield few
        return
    features = list(_features(sides, case))
    least = float(case.options["effect"])
    most = float(case.options["false_discoveries"])
    _test(features, _permutations(sides), least, most, int(case.options["permutations"]))
    drifted = sorted(
        (f for f in features if f.effect >= least and f.rate <= most),
        key=lambda f: (-f.effect, f.name),
    )
    groups = (sides[0].count, sides[1].count)
    drifted_set = {*drifted}
    drawn = {*top_measures(drifted)}
    yield from (f.compared(groups, drifted=f in drifted_set, curve=f in drawn) for f in features)
    for field in sorted({f.field for f in drifted}):
        yield _drifted(rows, [f for f in drifted if f.field == field], sides, least, most)


def _test(
    features: list[_Feature], dealt: Permutations, effect: float, most: float, rounds: int
) -> None:
    """Fill in p-values and rates; measures below the effect are not tested and count as chance."""
    far = [f for f in features if f.effect >= effect]

    def tested(among: list[_Feature], times: int) -> None:
        for feature in among:
            result = dealt.chance(feature.counts, wasserstein(feature.positions), times)
            feature.p_value, feature.chance = result.p_value, result.usual
        rates = discovery_rates(np.array([f.p_value for f in features]))
        for feature, rate in zip(features, rates.tolist(), strict=True):
            feature.rate = rate

    tested(far, rounds)
    open_ = [f for f in far if f.rate > most >= f.p_value]
    if open_:  # one drift among many measures needs a smaller p than so few permutations can give
        tested(open_, max(rounds, 2 * int(np.ceil(len(features) / most)) - 1))


def _drifted(
    rows: Rows, mine: list[_Feature], sides: list[_Side], least: float, most: float
) -> Failure:
    worst = mine[0]
    then = np.median(worst.then)
    now = np.median(worst.now)
    others = (
        f"; so do {first_few(f'{f.name} ({f.effect:.2g} sd)' for f in mine[1:])}"
        if len(mine) > 1
        else ""
    )
    spread = abs(now - then) < 0.5 * worst.effect * pooled_sd(worst.now, worst.then)
    way = "differently spread" if spread else "larger" if now > then else "smaller"
    return Failure(
        np.zeros(len(rows), bool),
        f"{worst.name} differs by {worst.effect:.2g} sd (q {worst.rate:.2g}): median "
        f"{format_number(then, worst.unit)} in the "
        f"reference, {format_number(now, worst.unit)} here{others}; {_group_counts(sides)}; "
        f"allowed: {least:g} sd, q {most:g}.",
        measured={
            "effect": round(worst.effect, 4),
            "q": round(worst.rate, 4),
            "measure": worst.name,
            "groups": [side.count for side in sides],
            "median": [float(then), float(now)],
        },
        expected={"effect": least, "q": most},
        cause=Cause(f"{worst.name} is {way} than in the reference", way.split()[-1]),
        fix="Find out what changed; where it is meant, take this run as the new reference.",
        extra=(worst.field,),
        kind=worst.field,
    )


# ------------------------------------------------------------------------------------------ classes


@rule(
    "DC903",
    "class-drift",
    Severity.WARNING,
    Level.DATASET,
    per="sample",
    measures=(shares,),
    suppressed_by=("DC109", "DC404"),
    needs_reference=True,
    defaults=_COUNTED | {"effect": 0.1},
    unless=lambda schema: "" if any(schema.of_role("class")) else "no field has role class",
)
def class_drift(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip | Info | DriftResult]:
    """The class shares differ from the reference run.

    What:
        The shares of all class labels of a split are compared with the same split of the reference.
    Why it matters:
        A label map shifted by one, or a filter that lost a class, makes losses and metrics of the
        two versions incomparable.
    Measure:
        Total variation: half the sum of the absolute differences of shares, over classes modulo 64.
        Groups are permuted as in DC902.
    When it is wrong:
        The change is intended: take the new run as the reference.
    Options:
        effect: largest total variation that is allowed (0.1).
        false_discoveries: expected share of chance results among those reported (0.05).
        permutations: fewest permutations (199).
        groups: fewest groups on each side; with fewer, nothing is judged (10).
        unit: permute each ``group`` (default), or each ``sample`` if the samples of a group are
        independent.
    Bad::

        schema: {fields: {label: {role: class, shape: [P], classes: 4}}, rules: {DC901: off}}
        samples:
          - {n: 12, label: {choice: [50], among: [0, 1, 1, 2, 3]}}
        reference:
          - {n: 12, label: {choice: [50], among: [0, 0, 1, 2, 2, 3]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], classes: 4}}, rules: {DC901: off}}
        samples:
          - {n: 12, label: {choice: [50], among: [0, 1, 2, 3]}}
        reference:
          - {n: 12, label: {choice: [50], among: [0, 1, 2, 3]}}

    Fix:
        Compare the label maps of both versions; if the change is intended, take this run as the new
        reference.
    Reference:
        TensorFlow Data Validation compares shares without regard to groups.
    """
    if case.reference is None:
        return
    sides = [_side(side, str(case.options["unit"])) for side in (rows, case.reference)]
    few = _too_few(rows, sides, int(case.options["groups"]))
    if few is not None:
        yield few
        return
    fields, lacking = _labelled(rows, sides, case)
    yield from lacking
    counts = {name: _class_counts(sides, name) for name in fields}
    dealt = _permutations(sides)
    rounds = int(case.options["permutations"])
    chances = [dealt.chance(counts[name], total_variation, rounds) for name in fields]
    rates = discovery_rates(np.array([chance.p_value for chance in chances]))
    least = float(case.options["effect"])
    most = float(case.options["false_discoveries"])
    for name, rate, chance in zip(fields, rates.tolist(), chances, strict=True):
        halves = (
            counts[name][: sides[0].count].sum(axis=0),
            counts[name][sides[0].count :].sum(axis=0),
        )
        effect = float(total_variation(*halves))
        drifted = rate <= most and effect >= least
        yield _class_compared(
            sides, name, case, halves, (effect, rate, chance.usual), drifted=drifted
        )
        if drifted:
            yield _class_drifted(rows, name, case, halves, (effect, rate), sides)


def _labelled(
    rows: Rows, sides: list[_Side], case: RuleContext
) -> tuple[list[str], list[Skip | Info]]:
    """Return the fields with labels in enough groups of both sides, and remarks on the others."""
    names = [
        name
        for name, _ in case.schema.of_role("class")
        if all(f"{name}:classes" in s.rows for s in sides)
    ]
    many = {
        n: [len(np.unique(s.units[s.rows.measured(f"{n}:classes")])) for s in sides] for n in names
    }
    few = {
        n: _shortage(f"groups with labels of {n}", many[n], int(case.options["groups"]))
        for n in names
    }
    fields = [n for n in names if not few[n]]
    why = [few[n] for n in names if few[n]]
    skip = Skip(np.ones(len(rows), bool), "; ".join(why))
    return fields, [Info(reason) for reason in why] if fields else [skip] * bool(why)


def _class_counts(sides: list[_Side], name: str) -> Array:
    """Return the class counts of every group, the first side's first: float64 (groups, 64)."""
    counts = []
    for side in sides:
        total = np.zeros((side.count, PLACES))
        measured = side.rows.measured(f"{name}:classes")
        np.add.at(total, side.units[measured], side.rows[f"{name}:classes"][measured])
        counts.append(total)
    return np.concatenate(counts)


def _class_compared(
    sides: list[_Side],
    name: str,
    case: RuleContext,
    halves: tuple[Array, Array],
    test_result: tuple[float, float, float],
    *,
    drifted: bool,
) -> DriftResult:
    sample_counts = tuple(
        int(np.count_nonzero(side.rows.measured(f"{name}:classes"))) for side in sides
    )
    effect, rate, usual = test_result
    now, then = (half / max(half.sum(), 1.0) for half in halves)
    words = class_names(case.schema.fields[name])
    most = np.argsort(-np.abs(now - then), kind="stable")
    moved = tuple(
        (words[i], float(now[i]), float(then[i])) for i in most.tolist() if now[i] + then[i]
    )
    return DriftResult(
        name,
        "classes",
        "",
        effect,
        drifted,
        (sample_counts[0], sample_counts[1]),
        (sides[0].count, sides[1].count),
        rate,
        usual,
        classes=moved if drifted else (),
    )


def _class_drifted(
    rows: Rows,
    name: str,
    case: RuleContext,
    halves: tuple[Array, Array],
    test_result: tuple[float, float],
    sides: list[_Side],
) -> Failure:
    effect, rate = test_result
    now, then = (half / half.sum() for half in halves)
    words = class_names(case.schema.fields[name])
    most = np.argsort(-np.abs(now - then), kind="stable")[:3]
    shown_ = first_few(f"class {words[i]} {then[i]:.1%} -> {now[i]:.1%}" for i in most.tolist())
    top_class = int(most[0])
    way = "rarer" if now[top_class] < then[top_class] else "commoner"
    return Failure(
        np.zeros(len(rows), bool),
        f"the class shares differ by {effect:.2g} (total variation, q {rate:.2g}): {shown_}; "
        f"{_group_counts(sides)}; "
        f"{float(case.options['effect']):g} is allowed.",
        measured={
            "effect": round(effect, 4),
            "q": round(rate, 4),
            "groups": [side.count for side in sides],
        },
        expected={"effect": float(case.options["effect"])},
        cause=Cause(f"class {words[top_class]} is {way} than in the reference", way),
        fix="Compare the label maps of both versions; where the change is meant, take this run as "
        "the new reference.",
        extra=(name,),
        kind=name,
    )


@rule(
    "DC901",
    "version-change",
    Severity.INFO,
    Level.DATASET,
    per="sample",
    measures=(form, content),
    span="all",
    sees="all",
    needs_reference=True,
    defaults={"removed": 0.05},
)
def version_change(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The dataset differs from that of the reference run.

    What:
        Samples that are new, gone, or have other content under the same key; fields that appeared
        or disappeared, or that have another dtype or item shape.
    Why it matters:
        Results of two versions are not comparable, and it is easily forgotten which version a model
        was trained on.
    Measure:
        Keys; the digest of the content (as in DC801: points in any order, the actions of episodes);
        dtypes, and axes after the first.
    When it is wrong:
        Never; the rule only states what changed. Keys contain the path, so moving a folder makes
        every sample new.
    Options:
        removed: share of the reference's samples that may be gone; more is a warning (0.05).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}}
        samples:
          - {key: a, xyz: {box: [50, 3]}}
          - {key: b, xyz: {box: [50, 3]}}
        reference:
          - {key: a, xyz: {box: [50, 3]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}}
        samples:
          - {key: a, xyz: {box: [50, 3]}}
        reference:
          - {key: a, xyz: {box: [50, 3]}}

    Fix:
        Record the version, and state it with every result.
    Reference:
        DVC and lakeFS version files by digest; neither says which samples differ.
    """
    before = case.reference
    if before is None:
        return
    yield from _samples(rows, before, float(case.options["removed"]))
    for name in sorted(case.schema.stored):
        forms = [_form(side, name) for side in (before, rows)]
        if forms[0] != forms[1] and len(rows) and len(before):
            text = (
                f"{name} was {' and '.join(forms[0]) or 'absent'}, it is "
                f"{' and '.join(forms[1]) or 'absent'}."
            )
            yield Failure(
                np.zeros(len(rows), bool),
                text,
                measured={"before": forms[0], "now": forms[1]},
                fix="Convert one of the versions, or say in the schema which one is meant.",
                kind="form",
                extra=(name,),
            )


def _samples(rows: Rows, before: Rows, most: float) -> Iterator[Failure]:
    then = dict(zip(before.keys, range(len(before)), strict=True))
    before_places = np.array([then.pop(key, -1) for key in rows.keys], dtype=np.int64)
    removed = sorted(then)
    fix = "Record the version, and name it with every result."
    added = before_places < 0
    if added.any():
        text = f"{pluralize(int(added.sum()))} not in the reference."
        yield Failure(added, text, measured={"added": int(added.sum())}, fix=fix, kind="added")
    if removed:
        share = len(removed) / len(before)
        text = (
            f"{len(removed):,} of {pluralize(len(before))} of the reference "
            f"{'are' if len(removed) > 1 else 'is'} gone"
        )
        yield Failure(
            np.zeros(len(rows), bool),
            f"{text} ({share:.1%}), such as {removed[0]}; {most:.1%} may be.",
            measured={"removed": len(removed), "of": len(before)},
            expected={"removed": most},
            severity=Severity.WARNING if share > most else None,
            fix="Find out why they are gone, then record the version.",
            kind="removed",
        )
    changed = np.zeros(len(rows), bool)
    both = rows.measured("content") & ~added
    both[both] &= before.measured("content")[before_places[both]]
    if both.any():
        changed[both] = rows["content"][both] != before["content"][before_places[both]]
    if changed.any():
        text = (
            f"{int(changed.sum()):,} of {pluralize(int(both.sum()))} under the same key hold "
            f"something else."
        )
        yield Failure(
            changed, text, measured={"changed": int(changed.sum())}, fix=fix, kind="changed"
        )


def _form(rows: Rows, name: str) -> list[str]:
    """Return the dtypes and item shapes of a field, sorted: ``float32 [*, 3]``."""
    present = rows.measured(f"{name}:dtype", f"{name}:ndim")
    if not present.any():
        return []
    ndim = rows[f"{name}:ndim"][present]
    dtype = rows[f"{name}:dtype"][present]
    dims = (
        rows[f"{name}:dims"][present]
        if f"{name}:dims" in rows
        else np.zeros((len(ndim), 0), np.int64)
    )
    dims = np.where(np.arange(dims.shape[1])[None, :] < ndim[:, None], dims, -1)
    words, number = np.unique(dtype.astype(str), return_inverse=True)
    kinds = np.unique(np.column_stack([number.reshape(-1), ndim, dims[:, 1:]]), axis=0)
    return sorted(_shape(str(words[word]), axes, sizes) for word, axes, *sizes in kinds.tolist())


def _shape(word: str, axes: int, sizes: list[int]) -> str:
    return f"{word} [{', '.join(['*', *map(str, sizes[: axes - 1])])}]" if axes > 0 else word
