"""Drift is told by groups: chance alarms stay rare, a real shift is found, a small or unknowable one is not named."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Column
from datacheck.model.table import CHECKED, Measured, Table
from datacheck.rules.base import RuleContext, Skip
from datacheck.rules.comparison import (
    DriftResult,
    Permutations,
    discovery_rates,
    histograms,
    pooled_sd,
    total_variation,
    wasserstein,
)
from datacheck.rules.families.drift import class_drift, distribution_drift, version_change
from datacheck.rules.label_counts import shares
from datacheck.schema.model import FieldSpec
from tests.rules.harness import codes, scan, schema_of


def table_of(columns, groups=None, keys=None):
    n = len(next(iter(columns.values())))
    keys = keys or [f"{i:07d}" for i in range(n)]
    return Table(
        keys=keys,
        files=keys,
        inner=[""] * n,
        splits=[""] * n,
        groups=groups or [""] * n,
        status=np.full(n, CHECKED, np.int8),
        reasons=[""] * n,
        nbytes=np.zeros(n, np.int64),
        columns={
            name: v if isinstance(v, Measured) else Measured(np.asarray(v), np.ones(n, bool))
            for name, v in columns.items()
        },
    )


def rows_of(table):
    return table.rows(np.arange(len(table)))


def judged(now, then, rule=distribution_drift, schema=None, **options):
    schema = schema_of(schema or {"fields": {"x": {"role": "value"}, "y": {"role": "value"}}})
    case = RuleContext(
        schema, "", FieldSpec(), {**rule.defaults, **options}, reference=rows_of(then)
    )
    return list(rule.judge(rows_of(now), case))


def drift(*sides, **options):
    """What is found, without what was compared."""
    return [said for said in judged(*sides, **options) if not isinstance(said, DriftResult)]


def episodes(rng, count, frames, shift=0.0, sd=1.0):
    """Samples in episodes whose means vary as much as their frames do (an intraclass correlation of 0.5)."""
    means = np.repeat(rng.normal(0, np.sqrt(0.5), count), frames)
    values = sd * (means + rng.normal(0, np.sqrt(0.5), count * frames)) + shift
    return values, [f"e{i:04d}" for i in np.repeat(np.arange(count), frames)]


def pair(rng, shift, count=30, frames=20, features=1):
    sides = []
    for move in (shift, 0.0):
        columns = {}
        for f in range(features):
            values, groups = episodes(rng, count, frames, move if f == 0 else 0.0)
            columns[f"x:f{f:02d}"] = values
        sides.append(table_of(columns, groups))
    return sides


# --------------------------------------------------------------------------------------- statistics


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=40),
    st.lists(st.floats(-50, 50), min_size=1, max_size=40),
)
def test_the_distance_is_the_area_between_the_step_functions(first, second):
    values = np.unique(np.array(first + second).round(2))[:60]
    a, b = np.isin(values, np.array(first).round(2)), np.isin(values, np.array(second).round(2))
    if not a.any() or not b.any():
        return
    area = 0.0
    for left, right in pairwise(values.tolist()):
        below = [float((values[side] <= left).mean()) for side in (a, b)]
        area += abs(below[0] - below[1]) * (right - left)
    assert float(wasserstein(values)(a.astype(float), b.astype(float))) == pytest.approx(
        area, abs=1e-9
    )


def test_bins_keep_every_value_and_lie_where_their_values_do():
    rng = np.random.default_rng(0)
    values, units = rng.normal(size=5000), rng.integers(0, 40, 5000)
    counts, positions = histograms(values, units, 40)
    assert counts.shape == (40, 64)
    np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(units, minlength=40))
    assert counts.sum(axis=0) @ positions / 5000 == pytest.approx(values.mean(), abs=1e-12)
    counts, positions = histograms(np.array([3.0, 3.0, 3.0, 7.0]), np.zeros(4, int), 1)
    assert (positions.tolist(), counts.tolist()) == ([3.0, 7.0], [[3.0, 1.0]])
    counts, positions = histograms(np.full(5, 2.0), np.arange(5), 5)
    assert (positions.tolist(), counts.sum()) == ([2.0], 5.0)


def test_total_variation_and_pooled_sd_by_hand():
    assert float(total_variation(np.array([1.0, 1.0]), np.array([3.0, 1.0]))) == pytest.approx(0.25)
    assert float(total_variation(np.array([2.0, 0.0]), np.array([0.0, 9.0]))) == 1.0
    assert pooled_sd(np.array([0.0, 2.0]), np.array([10.0, 14.0])) == pytest.approx(
        np.sqrt((2 + 8) / 2)
    )
    assert pooled_sd(np.array([1.0, 1.0]), np.array([3.0, 3.0])) == 1.0


def test_rates_are_those_of_the_step_up_procedure():
    np.testing.assert_allclose(
        discovery_rates(np.array([0.01, 0.5, 0.02, 0.03])), [0.04, 0.5, 0.04, 0.04]
    )
    assert discovery_rates(np.zeros(0)).tolist() == []


def test_a_p_value_counts_the_deals_that_are_as_far_apart():
    first = np.array([True] * 4 + [False] * 4)
    counts = np.array([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)
    # Chance gives 2 in 70
    assert Permutations(first).chance(counts, total_variation, 199).p_value <= (1 + 12) / 200
    assert Permutations(first).chance(np.ones((8, 2)), total_variation, 199).p_value == 1.0
    again = [Permutations(first).chance(counts, total_variation, 999) for _ in range(2)]
    assert again[0] == again[1]


# -------------------------------------------------------------------------------------------- DC902


def test_chance_alarms_are_rare_though_frames_of_an_episode_are_alike():
    """Frames taken for independent would call nearly all of these drifted."""
    alarms = 0
    for seed in range(200):
        now, then = pair(np.random.default_rng(seed), 0.0, features=4)
        # The effect alone would forgive most: judge by q only
        alarms += bool(drift(now, then, effect=0.0))
    assert alarms <= 18  # 5 % of 200 is 10; 18 is beyond the 99th percentile
    assert alarms >= 1


def test_a_shift_of_seven_tenths_is_found_among_many_measures():
    found = [
        drift(*pair(np.random.default_rng(seed), 0.7, count=60, features=12)) for seed in range(25)
    ]
    assert sum(bool(f) for f in found) >= 24
    assert all(
        f[0].measured["measure"] == "f00" and 0.4 < f[0].measured["effect"] < 1.1
        for f in found
        if f
    )


def test_a_tiny_shift_of_very_many_samples_is_not_named():
    rng = np.random.default_rng(1)
    now, then = (table_of({"x:v": rng.normal(move, 1, 40_000)}) for move in (0.15, 0.0))
    assert drift(now, then) == []
    assert [f.extra for f in drift(now, then, effect=0.1)] == [("x",)]


@pytest.mark.parametrize(("count", "skipped"), [(9, True), (10, False)])
def test_fewer_than_ten_groups_are_never_a_pass(count, skipped):
    now, then = pair(np.random.default_rng(0), 5.0, count=count)
    said = drift(now, then)
    assert [isinstance(s, Skip) for s in said] == [skipped]
    if skipped:
        assert "not enough groups" in said[0].reason
        assert said[0].mask.all()
    many, _ = pair(np.random.default_rng(0), 5.0, count=30)
    assert isinstance(drift(many, then)[0], Skip) is skipped  # one small side is enough


def test_samples_are_the_unit_where_the_schema_says_so():
    now, then = pair(np.random.default_rng(0), 5.0, count=2)
    assert isinstance(drift(now, then)[0], Skip)
    assert [f.extra for f in drift(now, then, unit="sample")] == [("x",)]


def test_the_worst_measure_is_named_with_effect_and_groups():
    rng = np.random.default_rng(3)
    now, then = (
        table_of(
            {
                "x:max": rng.normal([m, 0], 1, (50, 2)),
                "x:box": rng.normal(m / 2, 1, 50),
                "y:v": rng.normal(0, 1, 50),
            }
        )
        for m in (4.0, 0.0)
    )
    (failure,) = drift(
        now, then, schema={"fields": {"x": {"role": "points", "unit": "m"}, "y": {}}}
    )
    assert failure.measured["measure"] == "max of component 0"
    assert failure.cause.kind == "larger"
    assert not failure.mask.any()
    assert " m here; so do box (" in failure.message
    assert "50 groups here, 50 in the reference;" in failure.message


def test_spread_alone_is_drift_and_is_called_so():
    rng = np.random.default_rng(4)
    now, then = (table_of({"x:v": rng.normal(0, sd, 400)}) for sd in (3.0, 1.0))
    (failure,) = drift(now, then)
    assert failure.cause.kind == "spread"


def test_texts_nan_constants_and_unlisted_fields_are_left_out():
    rng = np.random.default_rng(5)
    odd = {
        "x:dtype": np.array(["float32"] * 40, object),
        "x:c": np.ones(40),
        "x:nan": np.full(40, np.nan),
        "x:huge": np.full(40, 1e308) * rng.choice([-1, 1], 40),
        "z:v": rng.normal(9, 1, 40),
        "x:ndim": np.full(40, 2),
        ":content": rng.integers(0, 2**62, 40),
        "x:wide": rng.normal(9, 1, (40, 40)),
    }
    then = odd | {
        "z:v": rng.normal(0, 1, 40),
        "x:ndim": np.full(40, 1),
        "x:wide": rng.normal(0, 1, (40, 40)),
    }
    assert drift(table_of(odd), table_of(then)) == []
    far = table_of({"x:far": np.full(40, 2.0**1010)}), table_of({"x:far": rng.normal(0, 1e-6, 40)})
    assert judged(*far) == []  # infinitely many standard deviations
    assert [
        f.measured["median"]
        for f in drift(table_of({"x:c": np.ones(40)}), table_of({"x:c": np.full(40, 3)}))
    ] == [[3.0, 1.0]]


def test_a_million_samples_are_judged_in_seconds():
    rng = np.random.default_rng(6)
    n = 1_000_000
    now, then = (
        table_of(
            {f"x:f{i}": rng.normal(m, 1, n).astype(np.float32) for i in range(12)}, keys=[""] * n
        )
        for m in (0.0, 0.5)
    )
    began = time.process_time()
    (failure,) = drift(now, then)
    assert time.process_time() - began < 10
    assert "1,000 of 1,000,000 groups here" in failure.message


# -------------------------------------------------------------------------------------------- DC903


def test_class_counts_are_those_of_numpy_and_ignored_ones_do_not_count():
    rng = np.random.default_rng(7)
    lengths = np.array([5, 0, 9])
    values = rng.integers(0, 5, 14)
    counts = shares.function(Column(values, lengths), FieldSpec(role="class", ignore=(3,)))[
        "classes"
    ]
    kept = [values[:5], values[:0], values[5:]]
    for row, part in zip(counts.values, kept, strict=True):
        np.testing.assert_array_equal(row[:5], np.bincount(part[part != 3], minlength=5))
    assert counts.present.tolist() == [bool((part != 3).any()) for part in kept]
    odd = shares.function(
        Column(np.array([1.0, np.nan, np.inf, -1.0, 66.0]), np.array([5])),
        FieldSpec(role="class", ignore=(-1,)),
    )["classes"].values
    assert (odd[0, 1], odd[0, 2], odd.sum()) == (1, 1, 2)


def classes(rng, count, shift):
    p = np.array([0.4 - shift, 0.3 + shift, 0.2, 0.1])
    return table_of(
        {
            "label:classes": np.stack(
                [np.bincount(rng.choice(4, 60, p=p), minlength=64) for _ in range(count)]
            )
        }
    )


@pytest.mark.parametrize(("shift", "found"), [(0.3, True), (0.05, False), (0.0, False)])
def test_class_shares_that_moved_are_named(shift, found):
    rng = np.random.default_rng(8)
    schema = {"fields": {"label": {"role": "class", "classes": 4}}}
    said = drift(classes(rng, 60, shift), classes(rng, 60, 0.0), class_drift, schema)
    assert bool(said) is found
    if found:
        assert said[0].measured["effect"] == pytest.approx(0.3, abs=0.05)
        assert said[0].cause.kind in {"rarer", "commoner"}


def test_sides_with_labels_in_too_few_groups_are_not_compared():
    rng, schema = (
        np.random.default_rng(9),
        {"fields": {"label": {"role": "class"}, "seg": {"role": "class"}}},
    )
    full = [classes(rng, 30, 0.0).columns["label:classes"] for _ in range(4)]
    part = Measured(full[0].values * (np.arange(30) < 3)[:, None], np.arange(30) < 3)
    none = Measured(np.zeros((30, 64), int), np.zeros(30, bool))
    for lacks, said in ((none, "0 here and 30"), (part, "3 here and 30")):
        why = (
            f"not enough groups with labels of label to compare: {said} in the reference, 10 are "
            f"needed on each side"
        )
        now, then = table_of({"x:v": np.zeros(30)}), table_of({"x:v": np.zeros(30)})
        now.columns["label:classes"], then.columns["label:classes"] = lacks, full[1]
        (skip,) = judged(now, then, class_drift, schema)
        assert (skip.reason, skip.mask.all()) == (why, True)
        now.columns["seg:classes"], then.columns["seg:classes"] = full[2:]
        told, other = judged(now, then, class_drift, schema)
        assert (told.words, other.field, other.drifted) == (why, "seg", False)


def test_the_classes_of_a_place_are_the_declared_ones():
    text = """
    schema: {fields: {label: {role: class, shape: [P], classes: [64, 1, 2]}}, rules: {DC901: off, DC902: off}}
    samples: [{n: 12, label: {choice: [50], among: [64, 1]}}]
    reference: [{n: 12, label: {choice: [50], among: [1, 2]}}]
    """
    (finding,) = scan(text)[0].findings
    assert "class 64 0.0% -> " in finding.message


# -------------------------------------------------------------------------------------------- DC901


def versions(now, then, **options):
    return drift(now, then, version_change, **options)


def keyed(keys, content, **columns):
    return table_of({":content": np.array(content), **columns}, keys=list(keys))


def test_added_removed_and_changed_samples_are_told():
    found = versions(keyed("abce", [1, 2, 9, 5]), keyed("abcd", [1, 2, 3, 4]))
    assert {f.kind: (f.mask.tolist(), f.severity) for f in found} == {
        "added": ([False, False, False, True], None),
        "removed": ([False] * 4, "warning"),
        "changed": ([False, False, True, False], None),
    }
    assert "such as d" in next(f for f in found if f.kind == "removed").message


@pytest.mark.parametrize(("gone", "severity"), [(5, None), (6, "warning")])
def test_more_than_one_in_twenty_gone_is_a_warning(gone, severity):
    keys = [f"{i:03d}" for i in range(100)]
    (found,) = versions(keyed(keys[gone:], range(gone, 100)), keyed(keys, range(100)))
    assert (found.kind, found.severity) == ("removed", severity)


def test_the_same_version_says_nothing_and_what_was_not_measured_is_not_changed():
    same = keyed("abc", [1, 2, 3])
    assert versions(same, same) == []
    part = keyed("abc", [1, 2, 3])
    part.columns[":content"] = Measured(np.array([1, 7, 9]), np.array([True, False, True]))
    (found,) = versions(part, same)
    assert found.mask.tolist() == [False, False, True]


def test_a_field_that_has_another_dtype_or_shape_is_named():
    def form(dtype, width):
        n = 2
        return {
            "x:dtype": np.array([dtype] * n, object),
            "x:ndim": np.full(n, 2),
            "x:dims": np.array([[50, width], [60, width]]),
        }

    found = versions(
        keyed("ab", [1, 2], **form("float32", 3)), keyed("ab", [1, 2], **form("float64", 6))
    )
    assert [f.message for f in found] == ["x was float64 [*, 6], it is float32 [*, 3]."]
    assert [
        f.message for f in versions(keyed("ab", [1, 2]), keyed("ab", [1, 2], **form("float64", 6)))
    ] == ["x was float64 [*, 6], it is absent."]


def test_findings_of_drift_do_not_make_samples_invalid():
    found, _ = scan("""
    schema: {fields: {xyz: {role: points, shape: [P, 3]}}}
    samples: [{n: 12, xyz: {box: [50, 3]}}]
    reference: [{n: 12, xyz: {box: [50, 3], size: 3}}]
    """)
    assert codes(found) == ["DC901", "DC902"]
    assert found.valid.all()
