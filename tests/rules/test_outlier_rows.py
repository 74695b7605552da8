"""DC229: few rows far larger than the others and labels far beyond the others are told; what is usual is not."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece
from tests.rules.harness import judged, measured, schema_of

RNG = np.random.default_rng(7)


def findings(values, role="pose", name="x", **declared):
    """Return what is said of a field of one sample, which is looked at on its own."""
    schema = schema_of({"fields": {name: ({"role": role} if role else {}) | declared}})
    pieces = [("", Piece("s0", {name: values}, Origin("f")))]
    return [f for f in judged(schema, measured(schema, pieces)).findings if f.code == "DC229"]


def table(rows=1000, columns=6):
    return RNG.normal(size=(rows, columns)).clip(-3, 3)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.19])
@pytest.mark.parametrize("factor", [300, 1000])
def test_rows_in_another_unit_are_counted(share, factor):
    values = table()
    count = int(share * len(values))
    values[RNG.choice(len(values), count, replace=False)] *= factor
    (finding,) = findings(values)
    assert (finding.measured["rows"], finding.measured["of"]) == (count, 1000)
    assert finding.severity.value == "warning"
    # No unit is guessed, nothing is converted
    assert finding.cause is None or finding.cause.factor is None


@pytest.mark.parametrize("factor", [300, 1000])
def test_one_of_few_tables_in_another_unit_is_told(factor):
    values = RNG.normal(size=(4, 17, 3))
    values[2] *= 10 * factor
    assert len(findings(values, "joints")) == 1


def keypoints():
    values = RNG.normal(size=(400, 21, 3)).clip(-3, 3)
    values[::20] *= 1000
    return values


@pytest.mark.parametrize("role", ["points", "joints", "position", "pose"])
def test_roles_of_coordinates_are_judged_with_a_time_axis_too(role):
    values = table(columns=7 if role == "pose" else 3)
    values[::50] *= 1000
    (finding,) = findings(values, role, shape=["T", values.shape[1]])
    assert finding.measured["rows"] == 20


def test_numbers_without_a_role_are_judged_where_they_are_coordinates():
    (finding,) = findings(keypoints(), None, "keypoints", shape=["N", 21, 3])
    assert (finding.measured["rows"], finding.measured["of"]) == (20, 400)
    assert len(findings(keypoints()[:, 0], "value", "lidar_xyz", shape=["N", 3])) == 1


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("keypoints", {"shape": ["T", 21, 3]}),
        ("keypoints", {}),
        ("keypoint_velocity", {"shape": ["N", 21, 3]}),
        ("keypoint_delta", {"shape": ["N", 21, 3]}),
        ("values", {"shape": ["N", 21, 3]}),
    ],
    ids=["time", "axes unknown", "velocity", "delta", "name"],
)
def test_numbers_without_a_role_that_may_be_no_coordinates_are_not_judged(name, declared):
    assert findings(keypoints(), None, name, **declared) == []


@pytest.mark.parametrize(
    ("rows", "item", "found"), [(6, (21, 3), 1), (6, (24, 4), 1), (60, (21, 3), 0), (6, (6, 3), 0)]
)
def test_of_numbers_that_say_no_axes_a_few_rows_of_joints_are_judged(rows, item, found):
    values = np.random.default_rng(3).normal(size=(rows, *item))
    values[2] *= 1000
    assert len(findings(values, None, "S")) == found


def contact():
    """Return six forces: noise, and 40 steps of 500 in contact."""
    values = RNG.normal(size=(500, 6)) * 0.02
    values[200:240] += RNG.uniform(8, 12, (40, 6))
    return values


def resting():
    """Return seven velocities of an arm at rest that moves once."""
    values = RNG.normal(size=(500, 7)) * 1e-4
    values[300:360] += RNG.uniform(0.3, 0.8, (60, 7))
    return values


def pausing():
    """Return delta actions, of which 85 % do next to nothing."""
    values = RNG.normal(size=(500, 7)) * 1e-5
    values[3::7] = RNG.uniform(0.02, 0.05, (71, 7))
    return values


def hidden():
    """Return hidden states of which the first and a few others have one large entry, as language models do."""
    values = RNG.normal(size=(500, 64)).clip(-3, 3)
    values[:5, 12] = 900.5
    return values


@pytest.mark.parametrize("role", [None, "value", "action", "joint_angle"])
@pytest.mark.parametrize(
    ("values", "name"),
    [(contact(), "force"), (resting(), "qvel"), (pausing(), "delta"), (hidden(), "hidden")],
    ids=["contact", "rest", "no-ops", "hidden"],
)
@pytest.mark.parametrize("axis", ["T", "N"])
def test_what_is_small_in_most_rows_and_no_coordinates_is_not_told(values, name, role, axis):
    assert findings(values, role, name, shape=[axis, values.shape[1]]) == []


def held(values, at, by):
    values[at] = by
    return values


@pytest.mark.parametrize(
    "values",
    [
        table(),
        np.exp(RNG.normal(size=(5000, 3)) * 1.5),  # log-normal: a long tail without a gap
        held(table(), slice(0, 50), -9999.0),  # a mark
        table()
        * np.where(np.arange(1000) < 500, 1, 1000)[:, None],  # half and half is no exception
        held(np.zeros((1000, 2)), slice(0, 20), 0.5),  # sparse events over nothing
        # One column: rewards, events
        np.concatenate([RNG.normal(size=990) / 100, RNG.normal(size=10) * 100]),
        np.diag([1600.0, 1600.0, 1.0]),  # a camera
        RNG.normal(size=(4, 17, 3)) * np.array([1, 2, 5, 40])[:, None, None],
        held(table(), 3, np.inf),
    ],
    ids=["normal", "tail", "mark", "half", "sparse", "rewards", "camera", "few", "infinite"],
)
def test_what_is_usual_is_not_told(values):
    assert findings(values) == []


@pytest.mark.parametrize(("label", "rest"), [(99, 5), (200, 18), (77, 1)])
def test_a_label_far_beyond_all_others_is_told(label, rest):
    values = np.arange(2000) % (rest + 1)
    values[::100] = label
    (finding,) = findings(values, "class")
    assert (finding.measured["rows"], finding.measured["low"], finding.measured["rest"]) == (
        20,
        label,
        rest,
    )


@pytest.mark.parametrize(
    ("label", "rest", "number"),
    [
        (255, 18, 2000),
        (99, 25, 2000),
        (40, 5, 2000),
        (26001, 11, 2000),
        (99, 5, 60),
        (99, 200, 2000),
    ],
    ids=["ignored", "near", "small", "instances", "few", "among"],
)
def test_labels_that_may_well_be_meant_are_not_told(label, rest, number):
    values = np.arange(number) % (rest + 1)
    values[::100] = label
    assert findings(values, "class") == []


@pytest.mark.parametrize("role", ["class", "segment", "value"])
def test_declared_labels_are_not_told(role):
    values = np.arange(2000) % 4
    values[::100] = 100
    assert len(findings(values, role)) == 1
    assert findings(values, role, ignore=[100]) == []
    assert findings(values, role, classes=[0, 1, 2, 3, 100]) == []
    assert findings(values, role, classes="0..100") == []
    assert len(findings(values, role, classes=4, ignore=[101])) == 1


def test_a_label_beyond_the_others_is_told_beside_one_that_is_ignored():
    values = np.arange(2000) % 4
    values[::100], values[1::100] = 100, 200
    (finding,) = findings(values, "class", ignore=[200])
    assert (finding.measured["low"], finding.measured["rest"]) == (100, 3)
    (finding,) = findings(values, "class", ignore=[100])
    assert (finding.measured["low"], finding.measured["rest"]) == (200, 3)


def test_codes_of_steps_are_no_labels():
    values = np.arange(2000) % 4
    values[::100] = 100
    assert findings(values, None, "button", shape=["T"]) == []


def test_depth_and_pictures_have_no_labels():
    values = np.arange(4000).reshape(40, 100) % 6
    values[3] = 200
    assert findings(values.astype(np.uint16), "depth") == []
