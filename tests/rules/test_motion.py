"""Joints of robots and shapes of subjects: both sides of every limit, orders of columns, causes, odd input."""

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece
from datacheck.rules.families.motion import wraps
from datacheck.rules.robot_limits import MARGINS, beyond, pace
from datacheck.schema.grammar import ROBOTS
from datacheck.schema.model import FieldSpec
from datacheck.schema.robots import load_robot
from tests.rules.harness import PANDA, codes, judged, measured, schema_of


def findings(schema, *fields, groups=()):
    schema = schema_of(schema)
    groups = groups or [""] * len(fields)
    samples = [
        ("", Piece(f"s{i:03d}", one, Origin(""), group))
        for i, (one, group) in enumerate(zip(fields, groups, strict=True))
    ]
    return judged(schema, measured(schema, samples)).findings


ARM = "fields: {q: {role: joint_angle, shape: [T, 7], unit: UNIT, robot: panda}}"
TIMED = ARM.replace("UNIT", "rad") + "\nepisode: {fps: 20}"
HAND = "fields: {q: {role: joint_angle, shape: [G, 16], unit: rad, robot: leap}}"


def home(steps=50):
    return np.array(PANDA) + 0.01 * np.random.default_rng(0).standard_normal((steps, 7))


# ------------------------------------------------------------------------------------------ DC603


def test_every_order_of_a_robot_names_each_joint_once():
    for robot in map(load_robot, ROBOTS):
        assert all(low < high for low, high in robot.limits)
        assert len(robot.speeds) == robot.size
        assert max(len(MARGINS), robot.size) * len(robot.columns) <= 64
        assert all(sorted(order) == list(range(robot.size)) for order in robot.columns.values())


@pytest.mark.parametrize(
    ("degrees", "wanted"), [(0.0, []), (0.9, []), (1.1, ["DC603"]), (-1.1, [])]
)
@pytest.mark.parametrize("unit", ["rad", "deg"])
def test_a_joint_may_be_a_degree_beyond_its_limit(degrees, wanted, unit):
    q = home()
    q[7, 3] = -0.0698 + np.deg2rad(degrees)  # the elbow
    # Beyond a full turn in degrees, or it would pass for radians
    q[:, 0] = np.linspace(-2.5, 2.5, 50)
    found = findings(ARM.replace("UNIT", unit), {"q": np.rad2deg(q) if unit == "deg" else q})
    assert [f.code for f in found] == wanted
    for finding in found:
        assert finding.measured["joint"] == 4
        assert finding.measured["degrees"] == pytest.approx(degrees)
        assert finding.measured["steps"] == 1


def test_one_step_of_many_may_be_beyond_the_limit():
    q = home(3000)
    q[:2, 5] = 3.9
    assert findings(ARM.replace("UNIT", "rad"), {"q": q}) == []
    q[:4, 5] = 3.9
    assert [f.code for f in findings(ARM.replace("UNIT", "rad"), {"q": q})] == ["DC603"]


def fingers(order, seed, count=40):
    rng = np.random.default_rng(seed)
    low, high = np.array([load_robot("leap").limits[joint] for joint in order]).T
    return low + (high - low) * rng.uniform(0, 1, (count, 16))


@pytest.mark.parametrize("order", list(load_robot("leap").columns.values()))
def test_the_order_that_fits_most_samples_is_taken(order):
    samples = [{"q": fingers(order, seed)} for seed in range(5)]
    assert findings(HAND, *samples) == []
    samples[3]["q"][:, 13] = 2.6
    (finding,) = findings(HAND, *samples)
    assert (finding.code, finding.rows.tolist(), finding.measured["joint"]) == ("DC603", [3], 14)


def test_two_arms_are_two_poses_a_step_and_other_widths_are_no_poses():
    spec = FieldSpec(role="joint_angle", unit="rad", robot="panda")
    both = np.concatenate([home(), home() + np.array([0, 0, 0, 5, 0, 0, 0])], axis=1)
    found = beyond.function(Column.of([both, both[:0]]), spec)
    assert found["poses"].values.tolist() == [100, 0]
    assert found["outside"].values[0].tolist() == [50] * len(MARGINS)
    assert found["outside"].present.tolist() == [True, False]
    # Zero is beyond the limit of joint 4, -0.0698, whichever column is the gripper.
    wide = beyond.function(Column.of([np.zeros((4, 8)), np.zeros((0, 8))]), spec)
    assert set(wide) == {"joint_columns", "joint_beside"}
    assert wide["joint_columns"].values.tolist() == [8, 8]
    assert wide["joint_columns"].present.tolist() == [True, False]
    assert wide["joint_beside"].values[0, :2] == pytest.approx(np.rad2deg(0.0698))


@pytest.mark.parametrize("order", ["pos joints quat", "joints quat pos"])
def test_parts_in_another_order_are_told_once_and_not_as_units_and_limits_too(order):
    rng = np.random.default_rng(1)
    schema = """
        fields:
          g: {role: pose, shape: [G, 23], columns: "pos:3 quat:4 joints:16"}
          g.pos: {role: position, unit: m, distance: 0..0.5}
          g.quat: {role: quaternion, order: wxyz}
          g.joints: {role: joint_angle, unit: rad, robot: leap, range: -2.6..2.6}
    """
    samples = []
    for i in range(40):
        quat = rng.normal(size=(30, 4))
        middle = rng.uniform(0.1, 0.9, (30, 16))
        quat /= np.linalg.norm(quat, axis=1)[:, None]
        parts = {"pos": rng.random((30, 3)) / 10, "quat": quat, "joints": middle}
        names = order.split() if i < 6 else ["pos", "quat", "joints"]
        samples.append({"g": np.concatenate([parts[name] for name in names], axis=1)})
    assert {(f.code, f.failed) for f in findings(schema, *samples)} == {("DC125", 6)}
    # Which columns are in another unit cannot be said before their order is known
    for one in samples[:6]:
        one["g"][:, :16] *= 1000
    assert not [f.kind for f in findings(schema, *samples) if f.code == "DC230"]


# ------------------------------------------------------------------------------------------ DC604


# 1.2 x 2.175 rad/s / 20 = 0.1305 rad
@pytest.mark.parametrize(("step", "wanted"), [(0.13, []), (0.14, ["jump"])])
def test_a_step_must_not_be_faster_than_the_joint(step, wanted):
    q = np.tile(PANDA, (400, 1))
    q[100:, 1] += step
    found = findings(
        TIMED, {"q": q}, {"q": home(200) * 0 + PANDA + 0.001 * np.arange(200)[:, None]}
    )
    assert [f.kind for f in found if f.code == "DC604"] == wanted
    assert [f.measured["factor"] for f in found if f.code == "DC604"] == [
        pytest.approx(step * 20 / 2.175) for _ in wanted
    ]


def test_speed_throughout_is_a_wrong_rate_and_nothing_without_a_rate():
    q = np.array(PANDA) + np.array([0.5, 0, 0, 0, 0, 0, 0]) * (np.arange(60) % 2)[:, None]
    assert [(f.code, f.kind) for f in findings(TIMED, {"q": q})] == [("DC604", "rate")]
    assert findings(ARM.replace("UNIT", "rad"), {"q": q}) == []


def test_a_wrap_is_no_speed_and_one_row_no_step():
    spec = FieldSpec(role="joint_angle", shape=["T", 7], unit="rad", robot="panda")
    q = np.tile(PANDA, (9, 1))
    q[:, 6] = np.where(np.arange(9) < 4, 3.1, 3.1 - 2 * np.pi) + 0.001 * np.arange(9)
    found = pace.function(Column.of([q, q[:1], q[:0]]), spec)
    assert found["peak_pace"].values[0] == pytest.approx(0.001 / 2.61)
    assert found["peak_pace"].present.tolist() == [True, False, False]


# ------------------------------------------------------------------------------------------ DC607


def test_angles_without_columns_are_left_to_the_rule_about_shapes():
    schema = schema_of("fields: {q: {role: joint_angle, shape: [T, 7], unit: rad}}")
    pieces = [("", Piece("a", {"q": np.zeros((9, 0))}, Origin("a")))]
    assert set(codes(judged(schema, measured(schema, pieces)))) == {"DC122"}


def test_wraps_are_counted_by_angle_and_by_vector():
    yaw = np.array([3.0, 3.1, -3.1, -3.0, 3.1])
    angles = np.stack([yaw, 0 * yaw], axis=1)
    found = wraps.function(
        Column.of([angles, angles[:1]]), FieldSpec(role="joint_angle", shape=["T", 2], unit="rad")
    )
    assert (found["moves"].values.tolist(), found["wrapped"].values[0]) == ([4, 0], 2)
    assert found["at_plus"].values[0].tolist() == [2, 0]  # 3.1 twice, of which pi is 0.0416 away
    assert found["at_minus"].values[0].tolist() == [1, 0]
    axis = np.array([[0.6, 0.0, 0.8]])
    vector = axis * np.array([[3.1], [3.1 - 2 * np.pi], [0.5]])  # no component jumps by a full turn
    found = wraps.function(
        Column.of([vector]), FieldSpec(role="rotvec", shape=["T", 3], unit="rad")
    )
    assert found["wrapped"].values.tolist() == [1]


ANGLE = "fields: {q: {role: joint_angle, shape: [T, 1], unit: rad}}"


@pytest.mark.parametrize(("minus", "wanted"), [(0, []), (1, []), (2, ["cut"])])
def test_both_sides_of_the_cut_need_a_hundredth_of_the_values(minus, wanted):
    q = np.full((100, 1), 3.14)
    q[:, 0] += 0.001 * np.sin(np.arange(100))
    other = -q[: max(minus, 1)] if minus else q[:1]
    found = findings(ANGLE, {"q": q}, {"q": other})
    assert [f.kind for f in found if f.code == "DC607"] == wanted


def test_prismatic_joints_have_no_cut():
    q = np.where(np.arange(40) % 2, 3.14, -3.14)[:, None] * np.ones((1, 2))
    assert findings(ANGLE.replace("[T, 1], unit: rad", "[T, 2], unit: cm"), {"q": q}) == []


# ------------------------------------------------------------------------------------------ DC608

SHAPES = (
    'samples: {files: "*", group: "{seq}"}\nfields: {b: {role: shape, shape: [10]}, x: {role: '
    "value, shape: [2]}}"
)


def shapes(*offsets):
    rng = np.random.default_rng(0)
    beta = rng.normal(size=10)
    return [{"b": beta + offset, "x": rng.normal(size=2)} for offset in offsets]


@pytest.mark.parametrize(
    ("offsets", "kind", "rows"),
    [
        ([0.0] * 6, None, []),
        ([0.0] * 5 + [0.0009], None, []),
        ([0.0] * 5 + [0.0011], "frames", [5]),
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], "drift", [0, 1, 2, 3, 4, 5]),
        ([0.3], None, []),
    ],
)
def test_a_subject_has_one_shape(offsets, kind, rows):
    found = findings(SHAPES, *shapes(*offsets), groups=["a"] * len(offsets))
    assert [(f.code, f.kind, f.rows.tolist()) for f in found] == (
        [("DC608", kind, rows)] if kind else []
    )


def test_other_subjects_have_other_shapes():
    assert findings(SHAPES, *shapes(0, 0, 0.5, 0.5), groups=["a", "a", "b", "b"]) == []
