"""What rules against a reference have compared: statistics are those of SciPy, and all that was compared is named."""

import json

import numpy as np
import pytest

from datacheck.model.table import Measured
from datacheck.rules.comparison import (
    DriftResult,
    Permutations,
    comparison_json,
    cumulative,
    top_measures,
    total_variation,
)
from datacheck.rules.families.drift import class_drift, distribution_drift
from datacheck.rules.label_counts import PLACES
from tests.rules.harness import scan
from tests.rules.test_drift import drift, judged, table_of

RNG = np.random.default_rng(0)
SIDES = {
    "apart": (RNG.normal(1, 1, 500), RNG.normal(0, 1, 300)),
    "many": (RNG.normal(0.1, 1, 30_000), RNG.normal(0, 1, 50)),
    "ties": (RNG.integers(0, 5, 200).astype(float), RNG.integers(1, 6, 90).astype(float)),
    "many ties": (
        RNG.integers(0, 400, 5000).astype(float),
        RNG.integers(9, 500, 5000).astype(float),
    ),
    "the same": (np.arange(9.0), np.arange(9.0)),
    "constants": (np.full(20, 3.0), np.full(10, 1.0)),
    "one constant": (np.full(20, 3.0), np.full(10, 3.0)),
    "one each": (np.array([2.0]), np.array([5.0])),
    "huge": (np.array([-1e308, 1e308, 0.0]), np.array([1e308, 5e-324, -0.0, 1.0])),
    "side by side": (RNG.uniform(0, 1, 5000), RNG.uniform(7, 8, 5000)),
}


@pytest.mark.parametrize("name", SIDES)
def test_the_largest_difference_is_that_of_kolmogorov_and_smirnov(name):
    stats = pytest.importorskip("scipy.stats")
    here, reference = SIDES[name]
    said, true = cumulative(here, reference), stats.ks_2samp(here, reference)
    assert said["ks"] == pytest.approx(true.statistic, abs=1e-12)
    below = abs((here <= said["ks_at"]).mean() - (reference <= said["ks_at"]).mean())
    assert below == pytest.approx(true.statistic, abs=1e-12)


@pytest.mark.parametrize("name", SIDES)
def test_a_curve_is_a_few_exact_points_of_both_distributions(name):
    here, reference = SIDES[name]
    said = cumulative(here, reference)
    at = said["at"]
    assert 1 <= len(at) <= 128
    assert at == sorted({*at})
    assert said["here"] == [int((here <= value).sum()) for value in at]
    assert said["reference"] == [int((reference <= value).sum()) for value in at]
    assert (at[0], at[-1]) == (min(here.min(), reference.min()), max(here.max(), reference.max()))
    assert said["ks_at"] in at
    # Between two points lies no large part of a side
    for side, values in (("here", here), ("reference", reference)):
        steps = np.diff([0, *said[side]]) - [int((values == value).sum()) for value in at]
        assert steps.max() <= max(1, len(values) / 62)


def test_every_measure_is_told_whether_it_drifted_or_not():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    columns = [
        {"x:v": np.round(rng.normal(move, 1, 60), 1), "y:v": rng.integers(0, 9, 60)}
        for move in (2.0, 0.0)
    ]
    found = {
        one.field: one for one in judged(*map(table_of, columns)) if isinstance(one, DriftResult)
    }
    assert {name: one.drifted for name, one in found.items()} == {"x": True, "y": False}
    for name, one in found.items():
        now, then = (side[f"{name}:v"].astype(float) for side in columns)
        sd = np.sqrt((60 * now.var() + 60 * then.var()) / 118)
        distance = stats.wasserstein_distance(now, then) / sd
        assert one.effect == pytest.approx(distance, rel=0.05 if len({*now, *then}) > 64 else 1e-9)
        assert (one.samples, one.groups, one.median) == (
            (60, 60),
            (60, 60),
            (np.median(now), np.median(then)),
        )
    near, far = found["y"], found["x"]
    assert near.effect < 0.2
    assert (near.q, near.chance, near.curve) == (None, None, None)  # too near to be tested
    assert far.q <= 0.05
    assert 0 < far.chance < far.effect
    assert far.curve["ks"] == pytest.approx(
        stats.ks_2samp(columns[0]["x:v"], columns[1]["x:v"]).statistic
    )


def test_what_is_nan_or_infinite_or_never_changes_is_not_compared():
    rng = np.random.default_rng(2)
    values, same = rng.normal(0, 1, 40), np.full(40, 7.0)
    broken = np.where(np.arange(40) < 15, np.nan, values + 5)
    broken[15] = np.inf
    now = table_of(
        {"x:v": broken, "y:v": same, "x:huge": np.full(40, 1e308) * rng.choice([-1, 1], 40)}
    )
    then = table_of({"y:v": same, "x:v": Measured(values, np.arange(40) < 20), "x:huge": same})
    (one,) = [one for one in judged(now, then) if isinstance(one, DriftResult)]
    assert (one.field, one.samples, one.drifted) == ("x", (24, 20), True)
    assert (one.curve["here"][-1], one.curve["reference"][-1]) == (24, 20)


def test_chance_is_what_95_of_100_deals_do_not_exceed():
    counts = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = Permutations(np.array([True, False])).chance(counts, total_variation, 199)
    # Both ways to deal two groups are as far apart
    assert (found.p_value, found.usual) == (1.0, 1.0)
    same = Permutations(np.arange(8) < 4).chance(np.ones((8, 2)), total_variation, 199)
    assert (same.p_value, same.usual) == (1.0, 0.0)
    rng = np.random.default_rng(3)
    counts = rng.multinomial(20, [0.2, 0.3, 0.5], 60).astype(float)
    deals = []
    for _ in range(5000):
        order = rng.permutation(60)
        a, b = counts[order[:30]].sum(axis=0), counts[order[30:]].sum(axis=0)
        deals.append(np.abs(a / a.sum() - b / b.sum()).sum() / 2)
    found = Permutations(np.arange(60) < 30).chance(counts, total_variation, 1999)
    # Steps are of 1 / 300
    assert found.usual == pytest.approx(np.quantile(deals, 0.95), abs=0.0034)


def test_of_classes_the_shares_that_moved_most_are_told():
    schema = {"fields": {"label": {"role": "class", "classes": 4}}}
    sides = [
        table_of({"label:classes": np.tile(np.pad(counts, (0, PLACES - 4)), (20, 1))})
        for counts in ([1, 2, 3, 4], [4, 2, 3, 1])
    ]
    (one,) = [one for one in judged(*sides, class_drift, schema) if isinstance(one, DriftResult)]
    assert one.effect == pytest.approx(0.3)
    assert one.drifted
    assert one.classes == (("0", 0.1, 0.4), ("3", 0.4, 0.1), ("1", 0.2, 0.2), ("2", 0.3, 0.3))
    assert [side["name"] for side in one.as_dict()["classes"]] == ["0", "3", "1", "2"]
    (one,) = [
        one
        for one in judged(sides[0], sides[0], class_drift, schema)
        if isinstance(one, DriftResult)
    ]
    assert (one.effect, one.drifted, one.classes, one.samples) == (0.0, False, (), (20, 20))
    assert drift(sides[0], sides[0], class_drift, schema) == []


def made(field, effect, *, drifted=True, **more):
    curve = {"at": [1.0], "here": [1], "reference": [1], "ks": 0.0, "ks_at": 1.0}
    return DriftResult(
        field, "v", "m", effect, drifted, (1, 1), (1, 1), curve=curve if drifted else None, **more
    )


def test_curves_are_kept_of_the_worst_of_each_field_first():
    several = [made("a", 9 - n / 10) for n in range(8)] + [made("b", 1.0), made("c", 2.0)]
    assert [(one.field, one.effect) for one in top_measures(several)] == [
        ("a", 9.0),
        ("c", 2.0),
        ("b", 1.0),
        ("a", 8.9),
        ("a", 8.8),
        ("a", 8.7),
    ]
    assert [one.effect for one in top_measures(several[:8])] == [9.0, 8.9, 8.8, 8.7, 8.6, 8.5]
    said = comparison_json(several)
    assert (said["count"], said["drifted"]) == (10, 10)
    assert [one["effect"] for one in said["measures"] if "curve" in one] == [
        9.0,
        8.9,
        8.8,
        8.7,
        2.0,
        1.0,
    ]


def test_what_a_verdict_names_is_bounded_and_begins_with_what_drifted():
    many = [made(f"f{n:03d}", 0.1 + n, drifted=False) for n in range(200)] + [
        made("x", 0.3),
        made("y", 0.5),
    ]
    said = comparison_json(many)
    assert (said["count"], said["drifted"], len(said["measures"])) == (202, 2, 120)
    assert [one["field"] for one in said["measures"][:3]] == ["y", "x", "f199"]
    assert len(json.dumps(said)) < 60_000


def test_a_scan_keeps_what_was_compared_by_split():
    text = """
    schema: {fields: {xyz: {role: points, shape: [P, 3], unit: m}}, rules: {DC901: off}}
    samples: [{n: 12, split: a, xyz: {box: [50, 3], at: [0, 0, 5]}}, {n: 12, split: b, xyz: {box: [50, 3]}}]
    reference: [{n: 12, split: a, xyz: {box: [50, 3]}}, {n: 12, split: b, xyz: {box: [50, 3]}}]
    """
    found, _ = scan(text)
    (verdict,) = [one for one in found.verdicts if one.code == distribution_drift.code]
    measures = verdict.compared["measures"]
    assert {one["split"] for one in measures if one["drifted"]} == {"a"}
    assert {one["split"] for one in measures} == {"a", "b"}
    assert verdict.compared["count"] == len(measures)
    assert sum("curve" in one for one in measures) == 6
    assert all(
        one["measure"] and one["samples"] == {"here": 12, "reference": 12} for one in measures
    )
