"""DC231: rows that do not go on from the rows before them, with the faults written by hand."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.model.sample import Origin, Piece
from datacheck.rules.families import sequences
from tests.rules.harness import judged, measured, schema_of

FIELDS = {"x": {}}
TOKENS = {"x": {"role": "tokens", "shape": ["L"]}}


def findings(*arrays, fields=FIELDS):
    schema = schema_of({"fields": fields})
    pieces = [("", Piece(f"s{i}", {"x": np.asarray(a)}, Origin(""))) for i, a in enumerate(arrays)]
    found = judged(schema, measured(schema, pieces)).findings
    return {f.kind.partition(", ")[2]: (f.rows.tolist(), f) for f in found if f.code == "DC231"}


def trajectory(rows=2000, seed=0):
    """Time, place and orientation (x, y, z, w), as in a TUM file."""
    rng = np.random.default_rng(seed)
    time = 1_305_031_098.0 + np.cumsum(rng.uniform(0.009, 0.011, rows))
    place = np.cumsum(rng.normal(0, 0.004, (rows, 3)), axis=0) + np.array([1.3, 0.6, 1.6])
    angle = np.cumsum(rng.normal(0, 0.002, rows)) + 0.4
    axis = np.array([0.6, 0.0, 0.8])
    turned = np.concatenate([np.sin(angle / 2)[:, None] * axis, np.cos(angle / 2)[:, None]], axis=1)
    return np.concatenate([time[:, None], place, turned], axis=1)


def test_a_trajectory_is_right():
    assert findings(*(trajectory(seed=seed) for seed in range(8))) == {}


def test_rows_in_another_unit_are_named_with_their_factor():
    rows = trajectory()
    rows[700:900, 1:4] *= 1000
    found = findings(trajectory(seed=1), rows)
    assert found.keys() == {"scaled"}
    failed, finding = found["scaled"]
    assert failed == [1]
    assert "rows 700 to 899" in finding.message
    assert "x1,000" in finding.cause.text


def test_a_block_that_no_unit_explains_has_no_cause():
    rows = trajectory()
    rows[700:900, 1] += 40_000
    (_, finding) = findings(rows)["apart"]
    assert finding.cause is None


def test_a_clock_that_goes_back_is_named_and_one_that_begins_anew_is_not():
    rows = trajectory()
    rows[1000:, 0] -= 4
    failed, finding = findings(rows)["backwards"]
    assert failed == [0]
    assert "rows 999 to 1,000" in finding.message
    anew = trajectory()
    anew[1000:, 0] -= anew[1000, 0] - anew[0, 0]
    assert findings(anew) == {}


@pytest.mark.parametrize("turn", [2 * np.pi, 360, 65_536])
def test_an_angle_that_wraps_does_not_go_back(turn):
    angle = np.cumsum(np.full(2000, turn / 1000)) + turn / 3
    wrapped = np.where(np.arange(2000) < 1200, angle, angle - turn)
    assert findings(wrapped) == {}


@pytest.mark.parametrize("shift", [1, -1])
def test_a_quaternion_in_the_other_order_is_named(shift):
    rows = trajectory()
    rows[300:600, 4:] = np.roll(rows[300:600, 4:], shift, axis=1)
    failed, finding = findings(rows)["quaternion"]
    assert failed == [0]
    assert "rows 300 to 599 of column 4" in finding.message
    assert "scalar part" in finding.cause.text


def test_negated_quaternions_are_the_same_rotation():
    rows = trajectory()
    rows[300:600, 4:] *= -1
    assert findings(rows) == {}


def test_frozen_rows_and_columns_are_named():
    rows = trajectory()
    rows[500:700, 1:] = rows[500, 1:]  # the clock goes on
    failed, finding = findings(trajectory(seed=1), rows)["frozen"]
    assert failed == [1]
    assert "rows 500 to 699 repeat themselves" in finding.message
    rows = trajectory()
    rows[500:800, 2] = rows[500, 2]
    assert "rows 500 to 799 of column 2" in findings(rows)["frozen"][1].message


def test_rests_at_the_ends_and_rests_of_all_samples_are_natural():
    rows = trajectory()
    rows[:300, 1:] = rows[300, 1:]
    rows[-300:, 1:] = rows[-300, 1:]
    assert findings(rows) == {}
    resting = [trajectory(seed=seed) for seed in range(6)]
    for table in resting[:3]:
        table[500:900, 1:] = table[500, 1:]
    assert findings(*resting) == {}
    # several rests of one length
    rows = trajectory()
    for first in (200, 600, 1100):
        rows[first : first + 150, 1:] = rows[first, 1:]
    assert findings(rows) == {}


def test_whole_numbers_and_declared_roles_are_not_judged():
    counts = np.repeat(np.arange(40), 50).astype(np.float64)
    counts[500:900] = 10
    assert findings(counts) == {}
    rows = trajectory()
    rows[500:700] = rows[500]
    assert findings(rows, fields={"x": {"role": "points", "shape": ["N", 8]}}) == {}


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_cloud_in_any_order_is_silent(seed):
    rng = np.random.default_rng(seed)
    cloud = rng.normal(0, rng.uniform(0.1, 100), (int(rng.integers(100, 3000)), 3))
    assert findings(cloud) == {}


def test_numbers_that_are_not_finite_are_left_to_other_rules():
    rows = trajectory()
    rows[700:900, 1:4] *= 1000
    rows[5, 2] = np.nan
    assert findings(rows) == {}


def test_tables_without_columns_and_without_rows_have_no_fault():
    assert findings(np.zeros((1000, 0)), np.zeros((0, 3)), np.zeros((1000, 0), int)) == {}


def test_a_column_that_rests_for_most_of_the_rows_is_a_thing_that_lies_still():
    table = trajectory()
    table[300:600, 2] = table[300, 2]
    assert findings(table)["frozen"][0] == [0]
    table[300:1200, 2] = table[300, 2]
    assert findings(table) == {}


@pytest.mark.parametrize(
    ("length", "first", "count", "told"),
    [
        (100_000, 0, 4_096, True),
        (100_000, 40_001, 4_095, False),
        (100_000, 40_001, 4_096, True),
        (100_000, 95_000, 5_000, False),  # padding of a long sample
        (100_000, 94_000, 5_000, True),  # one that goes on after it
        (600_000, 500_001, 99_999, True),  # the end of a stream
        (600_000, 594_001, 5_999, False),
    ],
)
def test_a_run_of_one_token_in_a_stream_is_named(length, first, count, told):
    tokens = np.random.Generator(np.random.Philox(3)).permutation(length).astype(np.uint32) + 1
    tokens[first : first + count] = 0
    found = findings(tokens, fields=TOKENS)
    if not told:
        assert found == {}
        return
    _, failure = found["frozen"]
    last = first + count - 1
    assert failure.message == f"x, 1 sample: tokens {first:,} to {last:,} are all 0."


def test_a_thousandth_of_a_stream_is_silent():
    stream = np.random.Generator(np.random.Philox(4)).permutation(5_000_000)
    stream[9_000:14_000] = 7  # 5,000 of 5,000,000
    assert findings(stream, fields=TOKENS) == {}


def test_the_longest_of_several_runs_is_that_of_a_loop():
    rng = np.random.Generator(np.random.Philox(5))
    for _ in range(20):
        tokens = rng.integers(1, 50, 70_000).astype(np.uint16)
        for _ in range(3):
            start = int(rng.integers(0, 60_000))
            tokens[start : start + int(rng.integers(3_900, 5_000))] = rng.integers(1, 5)
        runs, begin = [], 0
        for place in [*(np.flatnonzero(np.diff(tokens.astype(int))) + 1).tolist(), len(tokens)]:
            runs.append((place - begin, -begin))
            begin = place
        length, start = max(run for run in runs if run[0] - run[1] < len(tokens))
        found = findings(tokens, fields=TOKENS)
        assert bool(found) is (length >= 4_096)
        if found:
            expected = f"tokens {-start:,} to {length - start - 1:,} are all {tokens[-start]}."
            assert found["frozen"][1].message.endswith(expected)


def test_a_stream_of_many_tokens_takes_the_memory_of_a_block():
    tokens = np.random.Generator(np.random.Philox(6)).integers(0, 65, 40_000_000, np.uint16)
    tracemalloc.start()
    assert sequences._same_tokens(tokens) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
