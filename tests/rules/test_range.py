"""Values outside their declared range: ends, marks, dtypes."""

import numpy as np
import pytest

from tests.rules.harness import judged, measured, pieces_of, schema_of


def findings(values, **spec):
    """Judge samples of one field; return (code, failed, measured) of each finding."""
    schema = schema_of({"fields": {"a": {"role": "value", "shape": ["T"]} | spec}})
    samples = pieces_of([{"a": {"full": [1], "value": 0}} for _ in values])
    for (_, piece), value in zip(samples, values, strict=True):
        piece.fields["a"] = value
    return [
        (f.code, f.failed, f.measured) for f in judged(schema, measured(schema, samples)).findings
    ]


def test_both_ends_are_inside_and_the_next_number_is_not():
    inside = np.array([-1.0, 1.0])
    assert findings([inside], range="-1..1") == []
    assert findings([np.nextafter(inside, 2)], range="-1..1")[0][:2] == ("DC224", 1)
    assert findings([np.nextafter(inside, -2)], range="-1..1")[0][:2] == ("DC224", 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_end_counts_as_the_dtype_of_the_field_rounds_it(dtype):
    ends = np.array([-0.3, 0.1, 0.3], dtype=dtype)
    assert findings([ends], range="-0.3..0.3") == []
    assert findings([ends[1:2], np.array([0.2], dtype)], range="0.1..0.1") == [
        ("DC224", 1, {"lowest": float(dtype(0.2)), "highest": float(dtype(0.2))})
    ]


def test_an_open_end_holds_back_nothing():
    values = [np.array([-1e30, 5]), np.array([3, 7.5])]
    assert findings(values, range="..7") == [("DC224", 1, {"lowest": 3.0, "highest": 7.5})]
    assert findings(values, range="3..") == [("DC224", 1, {"lowest": -1e30, "highest": 5.0})]


def test_declared_marks_and_allowed_gaps_do_not_count():
    gaps = np.array([0.5, np.nan, np.inf, -999])
    assert findings([gaps], range="0..1", finite=False, sentinels=[-999]) == []
    assert findings([gaps], range="0..1", finite=False)[0] == (
        "DC224",
        1,
        {"lowest": -999.0, "highest": 0.5},
    )
    labels = np.array([3, 255, 7], np.uint8)
    assert findings([labels], role="mask", range="0..40", ignore=[255]) == []
    assert findings([labels], role="mask", range="0..40")[0][2] == {"lowest": 3.0, "highest": 255.0}
    assert findings([np.array([-999.0, -999])], range="0..1", sentinels=[-999]) == []


def test_not_finite_numbers_are_reported_as_that_and_not_twice():
    assert [code for code, _, _ in findings([np.array([0.5, np.inf])], range="0..1")] == ["DC221"]


def test_large_integers_are_compared_exactly():
    assert findings([np.array([2**24 + 1])], range=f"0..{2**24}")[0][:2] == ("DC224", 1)
    assert findings([np.array([2**24])], range=f"0..{2**24}") == []


def test_samples_of_other_widths_are_judged_by_their_own_values():
    values = [np.full((5, 2), 0.6), np.full((5, 3), 0.7)]
    # A warning
    assert [code for code, *_ in findings(values, shape=["T", "A"], range="0.5..1")] == ["DC126"]


def test_an_empty_sample_is_inside():
    assert findings([np.zeros(0), np.array([0.5])], range="0..1") == []
