"""Fields that the schema does not list: what few samples hold otherwise than all others; clean fields stay silent."""

import numpy as np
import pytest

from datacheck.model.finding import Severity
from datacheck.model.sample import Origin, Piece
from tests.rules.harness import judged, measured, schema_of


def findings(values, rules=None, fields=None):
    """Return what is said of a field "y" that a schema of "x" does not list."""
    schema = schema_of(
        {"fields": fields or {"x": {"role": "value", "shape": [4]}}, "rules": rules or {}}
    )
    rng = np.random.default_rng(7)
    pieces = [
        ("", Piece(f"s{i:03d}", {"x": rng.normal(size=4), "y": y}, Origin("f")))
        for i, y in enumerate(values)
    ]
    return [f for f in judged(schema, measured(schema, pieces)).findings if f.code == "DC130"]


def walks(count=10, columns=3, scale=1.0):
    rng = np.random.default_rng(1)
    return [scale * np.cumsum(rng.normal(size=(30 + i, columns)), axis=0) for i in range(count)]


def quaternions(count=10, spread=0.1):
    rng = np.random.default_rng(2)
    some = [np.array([1.0, 0, 0, 0]) + spread * rng.normal(size=(40, 4)) for _ in range(count)]
    return [one / np.linalg.norm(one, axis=1, keepdims=True) for one in some]


def rows_of(finding):
    return finding.rows.tolist(), finding.fields, finding.kind, finding.severity


@pytest.mark.parametrize(
    "values", [walks(), walks(columns=4), quaternions(), [np.zeros((20, 3))] * 10]
)
def test_clean_fields_are_silent(values):
    assert findings(values) == []


def test_one_sample_in_millimetres_is_a_warning_on_the_field_and_takes_no_sample_out():
    values = walks()
    values[3] = values[3] * 1000
    (finding,) = findings(values)
    assert rows_of(finding) == ([3], ("y",), "large", Severity.WARNING)
    others = [float(np.abs(one).max()) for one in values]
    del others[3]
    said = f"the others reach {min(others):.3g} to {max(others):.3g}."
    assert finding.message.endswith(said)


def test_numbers_that_differ_among_all_samples_are_no_fault():
    # Forces, counts: no decade holds the others
    values = [one * 10.0**i for i, one in enumerate(walks())]
    assert findings(values) == []


@pytest.mark.parametrize("last", [150, 1_000_000])
def test_whole_numbers_are_names_and_counters_that_have_no_scale(last):
    assert (
        findings([np.full((20, 1), number) for number in (1, 1, 0, 1, 0, 1, 1, 1, 1, last)]) == []
    )


def test_numbers_among_which_there_are_zeros_lie_in_no_decade():
    values = [
        np.full((20, 1), number) for number in (1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 150.0)
    ]
    assert findings(values) == []
    (finding,) = findings([np.maximum(one, 1) for one in values])  # the same without zeros
    assert rows_of(finding)[:3] == ([9], ("y",), "large")


def test_half_of_the_samples_are_no_exception():
    values = [one * (1000 if i % 2 else 1) for i, one in enumerate(walks())]
    assert findings(values) == []


def test_few_samples_are_not_compared():
    values = walks(7)
    values[3] = values[3] * 1000
    assert findings(values) == []
    assert len(findings(values, {"DC130": {"least": 7}})) == 1


def test_a_sample_that_stands_still_while_all_others_move():
    values = walks()
    values[2] = np.zeros_like(values[2])
    (finding,) = findings(values)
    assert rows_of(finding) == ([2], ("y",), "still", Severity.WARNING)
    assert finding.message == "1 sample stands still in all dimensions; 9 others move."


def test_a_single_number_may_well_be_the_same_throughout():
    values = walks(columns=1)
    values[2] = np.zeros_like(values[2])
    assert findings(values) == []


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (np.ones((30, 2)), "floats [N, 2] where 9 hold floats [N, 3]"),
        (np.ones(30), "floats [N] where 9 hold floats [N, 3]"),
        (np.ones((30, 3), np.int64), "whole numbers [N, 3] where 9 hold floats [N, 3]"),
    ],
)
def test_another_shape_or_kind_of_numbers(odd, said):
    values = walks()
    values[5] = odd
    (finding,) = findings(values)
    assert rows_of(finding)[:3] == ([5], ("y",), "form")
    assert finding.message == f"1 sample holds {said}."


def test_float32_among_float64_is_no_other_kind():
    values = walks()
    values[5] = values[5].astype(np.float32)
    assert findings(values) == []


@pytest.mark.parametrize("by", [1, -1])
def test_a_quaternion_in_another_order(by):
    values = quaternions()
    values[4] = np.roll(values[4], by, axis=1)
    (finding,) = findings(values)
    assert rows_of(finding)[:3] == ([4], ("y",), "order")


@pytest.mark.parametrize("by", [1, -1])
def test_a_quaternion_in_another_order_is_found_beside_a_wider_sample(by):
    values = quaternions(12)
    values[4] = np.roll(values[4], by, axis=1)
    values[7] = np.hstack([values[7], np.zeros((40, 3))])
    found = [rows_of(finding)[::2] for finding in findings(values)]
    assert sorted(found, key=str) == [([4], "order"), ([7], "form")]


def test_a_quaternion_that_is_turned_otherwise_is_no_other_order():
    values = quaternions()
    values[4] = values[4][:, [2, 3, 0, 1]]  # by half a turn, which no convention does
    assert findings(values) == []


def test_a_schema_that_lists_or_speaks_of_the_field_is_not_judged_twice():
    values = walks()
    values[3] = values[3] * 1000
    assert findings(values, {"DC130": "off"}) == []
    assert findings(values, fields={"x": {"shape": [4]}, "y": {}}) == []
    assert findings(values, fields={"x": {"shape": [4]}, "*": {}}) == []
