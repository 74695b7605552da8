"""DC230: few samples of which columns are in another unit, rounded or exchanged are told; what is usual is not."""

import math
import re

import numpy as np
import pytest

from datacheck.model.finding import Severity
from datacheck.model.sample import Column, Origin, Piece
from datacheck.rules.families.columns import columns
from datacheck.schema.model import FieldSpec
from tests.rules.harness import judged, measured, schema_of


def findings(values, code="DC230", **declared):
    """Return what is said of a field "x" of these samples."""
    schema = schema_of({"fields": {"x": {"shape": ["T", "M"]} | declared}})
    pieces = [("", Piece(f"s{i:03d}", {"x": x}, Origin("f"))) for i, x in enumerate(values)]
    return [f for f in judged(schema, measured(schema, pieces)).findings if f.code == code]


def motions(count=40, width=4, seed=3):
    """Return smooth motions with noise: of each sample another amplitude, of each column another size."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        time = np.arange(int(rng.integers(60, 120)))[:, None]
        waves = np.sin(rng.uniform(0.05, 0.2, width) * time + rng.uniform(0, 6, width))
        waves += 0.05 * rng.normal(size=waves.shape)
        found.append(waves * rng.uniform(0.4, 1.0, width) * 2.0 ** np.arange(width))
    return found


def clouds(count=20, seed=5):
    """Return flat clouds with an intensity: 25 wide, 20 deep, 3 high."""
    rng = np.random.default_rng(seed)
    sizes = [rng.uniform(0.8, 1.2, 3) * [25, 20, 3] for _ in range(count)]
    return [
        np.column_stack([size * rng.normal(size=(200, 3)), rng.uniform(size=200)]) for size in sizes
    ]


def scaled(values, samples, places, factor):
    return [
        x * np.where(np.isin(np.arange(x.shape[1]), places), factor, 1.0) if i in samples else x
        for i, x in enumerate(values)
    ]


def test_what_is_measured_is_mean_deviation_step_and_whether_numbers_are_whole():
    x = np.column_stack([np.arange(20.0), np.tile([0.5, -0.5], 10)])
    found = columns.function(Column.of([x, x[:4]]), FieldSpec())
    assert found["column_mean"].present.tolist() == [True, False]  # too few rows
    assert found["column_mean"].values[0] == pytest.approx(x.mean(axis=0))
    assert found["column_scatter"].values[0] == pytest.approx(x.std(axis=0))
    assert found["column_step"].values[0] == pytest.approx([1, 1])
    assert found["column_whole"].values[0].tolist() == [True, False]


def test_64_rows_of_a_long_sample_are_looked_at_from_its_first_to_its_end():
    x = np.column_stack([np.arange(6400.0), np.zeros(6400)])
    found = columns.function(Column.of([x]), FieldSpec())
    assert found["column_step"].values[0] == pytest.approx([100, 0])
    assert found["column_mean"].values[0] == pytest.approx([np.arange(0, 6400, 100).mean(), 0])


def test_whole_numbers_and_more_than_64_columns_are_not_measured():
    assert columns.function(Column.of([np.ones((9, 3), np.int64)]), FieldSpec()) == {}
    assert columns.function(Column.of([np.ones((9, 65))]), FieldSpec()) == {}


@pytest.mark.parametrize(
    "values", [motions(), motions(width=2), motions(12), clouds(), [np.zeros((20, 3))] * 12]
)
def test_clean_tables_are_silent(values):
    assert findings(values) == []


@pytest.mark.parametrize("factor", [math.degrees(1), 100, 1000])
def test_two_columns_in_another_unit_are_named_with_their_samples(factor):
    (finding,) = findings(scaled(motions(), {3, 17, 30}, [1, 3], factor))
    assert finding.rows.tolist() == [3, 17, 30]
    assert finding.severity is Severity.WARNING
    assert finding.measured["columns"] == [1, 3]
    assert finding.message.startswith("columns 1 and 3 of 3 samples reach ")


def test_the_unit_is_named_where_the_others_are_alike():
    values = [x / np.abs(x).max(axis=0) for x in motions()]  # all reach 1
    (finding,) = findings(scaled(values, {3, 17}, [1, 2], 100))
    assert (finding.cause.kind, finding.cause.factor) == ("1/100", 0.01)
    assert finding.message == (
        "columns 1 and 2 of 2 samples reach 100 to 100 times what they do in the other 38 (column "
        "1: 100, in the "
        "others 1)."
    )
    (finding,) = findings(scaled(values, {3, 17}, [1, 2], math.degrees(1)))
    assert (finding.cause.kind, finding.cause.factor) == ("deg", pytest.approx(math.pi / 180))


def test_degrees_and_hundredths_are_both_named_where_the_samples_do_not_decide():
    rng = np.random.default_rng(1)
    values = [x * 10 ** rng.uniform(-0.5, 0.5) for x in motions()]
    (finding,) = findings(scaled(values, {3, 17, 20}, [1, 2], math.degrees(1)))
    assert finding.cause.kind == ""
    assert any("deg" in way for way in finding.cause.alternatives)


def test_one_column_needs_a_factor_of_20_and_others_within_a_decade():
    assert len(findings(scaled(motions(), {3}, [1], 100))) == 1
    assert findings(scaled(motions(), {3}, [1], 15)) == []
    # No decade holds the others
    values = [x * [1.0, 10.0 ** (i % 5), 1.0, 1.0] for i, x in enumerate(motions())]
    assert findings(scaled(values, {4}, [1], 1000)) == []


@pytest.mark.parametrize("factor", [30, 400, 30_000])
def test_a_factor_of_no_unit_is_not_told(factor):
    values = [x / np.abs(x).max(axis=0) for x in motions()]
    assert findings(scaled(values, {3, 17, 30}, [1, 3], factor)) == []


def test_half_of_the_samples_and_few_samples_are_not_told():
    assert findings(scaled(motions(), set(range(0, 40, 2)), [1, 3], 100)) == []
    assert findings(scaled(motions(7), {3}, [1, 3], 100)) == []


def test_columns_that_rest_in_all_but_few_samples_are_no_other_unit():
    rng = np.random.default_rng(0)
    # What a sensor says of an arm that stands still
    rest = [0.01 * rng.normal(size=x.shape) for x in motions()]
    values = [
        x if i in {3, 17, 30} else np.column_stack([x[:, :2], r[:, 2:]])
        for i, (x, r) in enumerate(zip(motions(), rest, strict=True))
    ]
    assert findings(values) == []


def test_labels_and_counters_have_no_unit():
    values = [
        np.column_stack([x, np.full(len(x), 100.0 if i == 3 else 1 + i % 3)])
        for i, x in enumerate(motions())
    ]
    assert findings(values) == []


def test_samples_of_whole_numbers_among_fractions_are_rounded():
    values = [np.trunc(x) if i in {3, 4, 17} else x for i, x in enumerate(motions())]
    (finding,) = findings(values)
    assert (finding.rows.tolist(), finding.cause.kind) == ([3, 4, 17], "rounded")
    assert "in all columns, where the other 37 have fractions" in finding.message


def test_only_the_columns_that_have_fractions_elsewhere_are_named():
    gripper = [np.column_stack([x, np.sign(x[:, 0])]) for x in motions()]
    (finding,) = findings([np.trunc(x) if i == 3 else x for i, x in enumerate(gripper)])
    assert finding.measured["columns"] == [0, 1, 2, 3]
    assert findings(gripper) == []


def test_a_sample_that_stands_still_or_of_which_one_column_is_whole_is_not_rounded():
    still = [np.zeros_like(x) if i == 3 else x for i, x in enumerate(motions())]
    one = [
        np.where([True, False, False, False], np.round(x), x) if i == 3 else x
        for i, x in enumerate(motions())
    ]
    assert findings(still) == findings(one) == []


def test_rounded_actions_are_not_called_clipped():
    values = [2 * x for x in motions()]
    values = [np.trunc(x).clip(-1, 1) if i in {3, 4, 17} else x / 4 for i, x in enumerate(values)]
    few = {"role": "action", "shape": ["T", 4]}
    assert findings(values, "DC225", **few) == []
    assert [f.rows.tolist() for f in findings(values, **few)] == [[3, 4, 17]]
    clipped = [x.clip(-0.5, 0.5) for x in values]
    assert findings(clipped, "DC225", **few)


@pytest.mark.parametrize(("one", "other"), [(1, 2), (0, 2)])
def test_axes_that_are_exchanged_in_few_clouds_are_named(one, other):
    order = [0, 1, 2, 3]
    order[one], order[other] = other, one
    values = [x[:, order] if i in {3, 9} else x for i, x in enumerate(clouds())]
    (finding,) = findings(values, shape=["P", 4])
    assert (finding.rows.tolist(), finding.cause.kind, finding.measured["columns"]) == (
        [3, 9],
        "exchanged",
        [one, other],
    )


def test_axes_over_time_and_of_round_things_are_not_judged():
    values = [x[:, [0, 2, 1, 3]] if i in {3, 9} else x for i, x in enumerate(clouds())]
    assert findings(values, shape=["T", 4]) == []  # paths go where they like
    rng = np.random.default_rng(2)
    things = [rng.normal(size=(200, 3)) * rng.permutation([1.0, 0.9, 0.8]) for _ in range(20)]
    assert findings(things, shape=["P", 3]) == []


def test_a_cloud_that_is_narrow_along_another_axis_but_of_another_size_is_no_exchange():
    values = clouds()
    values[3] = values[3] * [0.2, 0.01, 1, 1]  # a wall
    assert findings(values, shape=["P", 4]) == []


def places(rows=3000, seed=4):
    """Return where people stand on a square, of -0.5 to 15, and the number of the frame."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [np.arange(float(rows)), rng.uniform(-0.5, 15, rows), rng.uniform(0, 14, rows)]
    )


@pytest.mark.parametrize(
    ("factor", "share"), [(math.degrees(1), 0.02), (100, 0.02), (1000, 0.02), (1000, 0.05)]
)
def test_few_rows_of_a_column_in_another_unit_are_counted(factor, share):
    x = places()
    odd = np.random.default_rng(6).choice(len(x), int(share * len(x)), replace=False)
    x[odd, 1] *= factor
    (finding,) = findings([x], shape=["P", 3])
    assert (finding.kind, finding.severity) == ("rows", Severity.WARNING)
    assert finding.measured["column"] == 1
    assert finding.measured["factor"] == pytest.approx(factor)
    far = np.flatnonzero(np.abs(x[:, 1]) > 100)
    # What was near 0 is not far away
    assert finding.measured["rows"] == pytest.approx(len(odd), rel=0.3)
    assert f"the first: row {far[0]:,})" in finding.message
    usual = float(re.search(r"in about three quarters at most ([0-9.]+)\.$", finding.message)[1])
    assert np.mean(np.abs(x[:, 1]) <= usual + 0.01) == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    "made",
    [
        lambda rng: rng.standard_cauchy((3000, 3)),
        lambda rng: rng.lognormal(0, 2, (3000, 3)),
        lambda rng: rng.pareto(0.5, (3000, 3)),
        lambda rng: np.where(
            rng.uniform(size=(3000, 3)) < 0.03,
            rng.uniform(5, 20, (3000, 3)),
            0.01 * rng.normal(size=(3000, 3)),
        ),
        lambda rng: (
            rng.normal(size=(3000, 3)) * np.where(rng.uniform(size=(3000, 1)) < 0.03, 1000.0, 1.0)
        ),
        lambda rng: (
            rng.uniform(5, 15, (3000, 3)) * np.where(rng.uniform(size=(3000, 1)) < 0.03, 400.0, 1.0)
        ),
    ],
    ids=["Cauchy", "log-normal", "Pareto", "contacts", "noise and motion", "a factor of no unit"],
)
def test_forces_and_prices_that_are_large_in_few_rows_are_no_other_unit(made):
    assert findings([made(np.random.default_rng(seed)) for seed in range(5)], shape=["P", 3]) == []


def test_a_handful_of_rows_and_short_samples_do_not_say_how_they_are_distributed():
    x = places()
    x[:5, 1] *= 1000
    y = places(150)
    y[::5, 1] *= 1000
    assert findings([x], shape=["P", 3]) == findings([y], shape=["P", 3]) == []


def test_rows_over_time_are_not_judged_one_by_one():
    x = places()
    x[::40, 1] *= 1000
    assert len(findings([x], shape=["P", 3])) == 1
    assert findings([x], shape=["T", 3]) == []


def poses(count=20, joints=4, seed=8):
    """Return a time step and the rotations of joints, w x y z, that seldom turn by more than 90 degrees."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        q = np.array([1.0, 0, 0, 0]) + 0.4 * rng.normal(size=(int(rng.integers(30, 60)), joints, 4))
        q /= np.linalg.norm(q, axis=2, keepdims=True)
        found.append(np.column_stack([np.full(len(q), 0.03), q.reshape(len(q), -1)]))
    return found


def turned(x, by, joints=4):
    return np.column_stack(
        [x[:, 0], np.roll(x[:, 1:].reshape(len(x), joints, 4), by, axis=2).reshape(len(x), -1)]
    )


def test_quaternions_whose_order_is_another_in_few_samples_are_named():
    assert findings(poses()) == []
    (finding,) = findings([turned(x, -1) if i in {3, 9} else x for i, x in enumerate(poses())])
    assert (finding.rows.tolist(), finding.kind) == ([3, 9], "order")
    assert finding.measured["columns"] == [1, 5, 9, 13]
    assert finding.cause.text == "probably x y z w where the others hold w x y z"
    (finding,) = findings([x if i in {3, 9} else turned(x, -1) for i, x in enumerate(poses())])
    assert finding.cause.text == "probably w x y z where the others hold x y z w"


def test_one_joint_that_turns_round_or_one_quaternion_of_a_row_is_no_other_order():
    one = poses(joints=4)
    one[3][:, 1:5] = np.roll(one[3][:, 1:5], -1, axis=1)  # half a turn looks like that, too
    assert findings(one) == []
    assert (
        findings([turned(x, -1, 1) if i == 3 else x for i, x in enumerate(poses(joints=1))]) == []
    )


def test_contacts_that_few_rows_have_are_not_rounded():
    """The 64 rows that are looked at one by one hold zeros only; what is pressed for a moment has fractions."""
    rng = np.random.default_rng(2)
    forces = [np.zeros((1000, 6)) for _ in range(40)]
    for i, x in enumerate(forces):
        for start in range(5, 1000, 400 if i in {3, 17} else 40):
            x[start : start + (1 if i in {3, 17} else 20)] = rng.normal(size=6)
    assert findings(forces) == []


@pytest.mark.parametrize("values", [1e30, 1e300])
def test_huge_numbers_are_not_called_whole(values):
    assert findings([x * values if i == 3 else x for i, x in enumerate(motions())]) == []


def test_commands_that_are_off_on_or_back_have_no_cause():
    commands = [np.sign(x) if i in {3, 17} else np.tanh(x) for i, x in enumerate(motions())]
    (finding,) = findings(commands, role="action")
    assert (finding.rows.tolist(), finding.cause) == ([3, 17], None)
    (finding,) = findings([2 * x for x in commands], role="action")
    assert finding.cause.kind == "rounded"


def test_a_column_that_does_not_change_is_a_setting():
    """A stiffness of 0.1, and of 10 in few samples."""
    assert (
        findings(
            [
                np.column_stack([x, np.full(len(x), 10.0 if i == 3 else 0.1)])
                for i, x in enumerate(motions())
            ]
        )
        == []
    )


@pytest.mark.parametrize("weights", [[0.5], [0.5, 1.0, 2.0]])
def test_rows_of_a_hundredfold_weight_are_no_other_unit(weights):
    rng = np.random.default_rng(3)
    x = places()
    x[:, 1] = rng.choice(weights, len(x)) * np.where(rng.uniform(size=len(x)) < 0.02, 100, 1)
    assert findings([x], shape=["P", 3]) == []


@pytest.mark.parametrize("width", [0, 10**12])
def test_a_child_that_tells_of_no_or_a_million_million_columns_ends_no_rule(width):
    schema = schema_of({"fields": {"x": {"shape": ["T", "M"]}}})
    table = measured(
        schema, [("", Piece(f"s{i:03d}", {"x": x}, Origin("f"))) for i, x in enumerate(motions())]
    )
    table.columns["x:dims"].values[:5, 1] = width
    answer = judged(schema, table)
    assert [v.verdict.value for v in answer.verdicts if v.code == "DC230"] == ["pass"]


@pytest.mark.parametrize(("count", "wanted"), [(8, []), (120, [[2]])])
def test_corners_that_somebody_drew_are_whole_and_a_scanned_cloud_is_not(count, wanted):
    rng = np.random.default_rng(4)
    values = [rng.normal(size=(int(rng.integers(count, count + 40)), 3)) for _ in range(20)]
    values[2] = rng.integers(-2, 3, (count, 3)).astype(float)
    found = findings(values, role="points", shape=["P", 3], unit="m")
    assert [finding.rows.tolist() for finding in found if finding.kind == "rounded"] == wanted


def channels(count=20, rows=100, dtype=np.int16):
    """Return recordings of four noisy channels."""
    rng = np.random.default_rng(1)
    return [np.rint(30 * rng.normal(size=(rows, 4))).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_a_channel_of_one_number_where_all_others_have_a_signal_is_dead(dtype):
    values = channels(dtype=dtype)
    for i in (3, 11):
        values[i][:, 2] = 0
    (found,) = findings(values, shape=["N", 4])
    assert (found.kind, found.rows.tolist(), found.measured["columns"]) == ("dead", [3, 11], [2])
    assert found.severity is Severity.WARNING


def test_channels_that_rest_each_at_a_number_of_its_own_have_no_number_in_the_message():
    values = channels(dtype=np.float32)
    for i, value in enumerate(values[:3]):
        value[:, 2:] = [i, -i - 1]
    (found,) = findings(values, shape=["N", 4])
    assert (found.kind, found.measured["columns"]) == ("dead", [2, 3])
    assert "hold one number throughout in columns 2 and 3" in found.message
    values[9][:] = 4  # still as a whole: no evidence for or against
    (found,) = findings(values, shape=["N", 4])
    assert found.rows.tolist() == [0, 1, 2]
    assert findings(values, role="action", shape=["N", 4]) == []


def test_what_is_not_a_dead_channel():
    dead = channels()
    for value in dead[:5]:
        value[:, 2] = 7
    assert findings(dead, shape=["N", 4]) == []  # a quarter of the samples
    resting = channels()
    resting[3][:, 2] = 0
    resting[4][:, 2] = np.arange(100) // 30  # rests in another sample, too
    assert findings(resting, shape=["N", 4]) == []
    short = channels(rows=40)
    short[3][:, 2] = 0
    assert findings(short, shape=["N", 4]) == []
    few = channels(count=6)
    few[3][:, 2] = 0
    assert findings(few, shape=["N", 4]) == []
    whole = channels()
    whole[3][:] = 5  # of no channel there is a signal: DC226
    assert findings(whole, shape=["N", 4]) == []
    flat = [value.astype(np.float32) for value in channels()]
    flat[3][:, 2] = 0
    assert findings(flat, role="points", shape=["N", 4], unit="m") == []


def quiet_series(count=100, usual=(1.0, -1.0, 3.0, 5.0), seed=7):
    """Return series around values that differ from channel to channel, and a little between samples."""
    rng = np.random.default_rng(seed)
    return [
        np.array(usual) + 0.2 * rng.normal(size=4) + 0.3 * rng.normal(size=(20, 4))
        for _ in range(count)
    ]


def changed(values, samples, change):
    return [change(x.copy()) if i in samples else x for i, x in enumerate(values)]


@pytest.mark.parametrize("count", [5, 20])
@pytest.mark.parametrize("pair", [(0, 1), (2, 3), (1, 3)])
def test_two_channels_that_are_exchanged_in_few_samples_are_named(pair, count):
    order = list(range(4))
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    few = range(30, 30 + count)
    (finding,) = findings(changed(quiet_series(), few, lambda x: x[:, order]))
    assert finding.rows.tolist() == list(few)
    assert (finding.kind, finding.cause, finding.measured["columns"]) == (
        "channels",
        None,
        list(pair),
    )


def test_channels_of_few_samples_that_only_differ_are_not_called_exchanged():
    """Another class: its first channel lies where the second one of the others lies, and not vice versa."""
    values = changed(quiet_series(), range(10), lambda x: x - [2.0, 0, 0, 0])
    assert findings(values) == []


def test_a_mirrored_group_that_differs_in_another_channel_too_is_not_called_exchanged():
    """Left-handed people: both hands change places, and so does the elbow."""
    values = changed(quiet_series(), range(10), lambda x: x[:, [1, 0, 2, 3]] + [0, 0, 1.5, 0])
    assert findings(values) == []


def test_channels_whose_order_differs_by_chance_are_not_called_exchanged():
    """The second channel is the larger one in a sixth of the samples, in which both are nearly equal."""
    assert findings(quiet_series(400, (0.3, 0.0, 3.0, 5.0))) == []


def test_sizes_and_lenses_of_portraits_are_not_called_exchanged():
    """Width, height, focal length and exposure do not change within a sample."""
    rng = np.random.default_rng(2)
    tables = [np.tile(rng.normal([640, 480, 500, 3]), (20, 1)) for _ in range(100)]
    values = changed(tables, range(10), lambda x: x[:, [1, 0, 2, 3]])
    assert findings(values) == []


def test_two_channels_without_others_are_not_judged():
    values = [x[:, :2] for x in changed(quiet_series(), range(10), lambda x: x[:, [1, 0, 2, 3]])]
    assert findings(values) == []


def test_of_many_samples_all_exchanged_ones_are_named():
    """More than are compared at first."""
    few = range(3, 6000, 20)
    values = changed(quiet_series(6000), few, lambda x: x[:, [1, 0, 2, 3]])
    (finding,) = findings(values)
    assert len(finding.rows) == finding.measured["samples"] == len(few)
