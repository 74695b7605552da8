"""Joints of every built-in robot: clean motion, planted faults, and what is said of their cause."""

import itertools

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece
from tests.rules.harness import judged, measured, schema_of
from tests.rules.robot_sources import NAMES, rows_of

CODES = ("DC202", "DC603", "DC604")
# Robots of which no two joints exclude one another's motion: an exchange there is not visible.
ALIKE = {"aloha", "gen3", "iiwa14", "so101", "ur10e", "ur5e", "vx300s"}


def findings(schema, *arrays):
    schema = schema_of(schema) if isinstance(schema, str) else schema
    pieces = [("", Piece(f"s{i:03d}", {"q": q}, Origin(""))) for i, q in enumerate(arrays)]
    return [f for f in judged(schema, measured(schema, pieces)).findings if f.code in CODES]


def schema_for(robot, width, role="joint_angle", unit="rad"):
    return (
        f"fields: {{q: {{role: {role}, shape: [T, {width}], unit: {unit}, robot: {robot}}}}}\n"
        "episode: {fps: 1}"
    )


def motion(robot, seed, steps=80):
    """Return a period of each joint over 0.9 of its limits.

    The fastest step is the amplitude times 2 pi / 79: 0.45 rad for a joint of +-2 pi, which is below
    every speed limit at one step a second.
    """
    rng = np.random.default_rng(seed)
    ends = [(-1.0, 1.0) if low is None else (low, high) for _, low, high, _ in rows_of(robot)]
    low, high = np.array(ends).T
    phase = np.linspace(0, 2 * np.pi, steps)[:, None] + rng.uniform(0, 2 * np.pi, len(ends))
    return (low + high) / 2 + 0.9 * (high - low) / 2 * np.sin(phase)


def joint_with_an_end(robot):
    """Return the first joint that turns less than 7 rad: a full turn brings it out of its limits."""
    return next(
        place
        for place, (_, low, high, _) in enumerate(rows_of(robot))
        if low is not None and high - low < 7
    )


def excluding(robot):
    """Return two joints of which each moves where the other cannot, None where there are none."""
    rows = rows_of(robot)
    for one, other in itertools.combinations(range(len(rows)), 2):
        ends = [rows[place][1:3] for place in (one, other)]
        if None in {*ends[0], *ends[1]}:
            continue
        moved = [
            ((low + high) / 2 - 0.45 * (high - low), (low + high) / 2 + 0.45 * (high - low))
            for low, high in ends
        ]
        if all(
            max(low - far[0], far[1] - high) > 0.05
            for (low, high), far in zip(ends, reversed(moved), strict=True)
        ):
            return one, other
    return None


@pytest.mark.parametrize("role", ["joint_angle", "action"])
@pytest.mark.parametrize("robot", NAMES)
def test_motion_within_the_limits_is_silent(robot, role):
    width = len(rows_of(robot))
    clean = [motion(robot, seed) for seed in range(4)]
    assert findings(schema_for(robot, width, role), *clean) == []
    degrees = map(np.rad2deg, clean)
    assert findings(schema_for(robot, width, role, "deg"), *degrees) == []
    both = [np.concatenate([q, q], axis=1) for q in clean]
    assert findings(schema_for(robot, 2 * width, role), *both) == []


@pytest.mark.parametrize("robot", NAMES)
def test_degrees_are_named(robot):
    clean = [motion(robot, seed) for seed in range(4)]
    arrays = [np.rad2deg(clean[0]), np.rad2deg(clean[1]), *clean[2:]]
    width = len(rows_of(robot))
    for role, code in (("joint_angle", "DC202"), ("action", "DC603")):
        (found,) = findings(schema_for(robot, width, role), *arrays)
        assert (found.code, found.rows.tolist(), found.cause.kind) == (code, [0, 1], "deg")


@pytest.mark.parametrize("role", ["joint_angle", "action"])
@pytest.mark.parametrize("robot", NAMES)
def test_a_joint_off_by_a_full_turn_is_named(robot, role):
    place = joint_with_an_end(robot)
    arrays = [motion(robot, seed) for seed in range(4)]
    arrays[1][:, place] += 2 * np.pi
    arrays[2][40:, place] -= 2 * np.pi
    name, low, high, _ = rows_of(robot)[place]
    found = findings(schema_for(robot, len(rows_of(robot)), role), *arrays)
    (finding,) = [f for f in found if f.code != "DC604"]
    assert (finding.code, finding.rows.tolist()) == ("DC603", [1, 2])
    assert (finding.cause.kind, finding.cause.text) == ("turn", f"off by a full turn: {name}")
    assert finding.measured["name"] == name
    far = max(arrays[1][:, place].max() - high, low - arrays[2][:, place].min())
    assert finding.measured["degrees"] == pytest.approx(np.rad2deg(far))
    assert f"joint {name} (column {place + 1})" in finding.message


@pytest.mark.parametrize("robot", NAMES)
def test_two_exchanged_joints_are_named_where_their_limits_show_it(robot):
    pair = excluding(robot)
    assert (pair is None) == (robot in ALIKE)
    if pair is None:
        return
    order = np.arange(len(rows_of(robot)))
    order[list(pair)] = pair[::-1]
    arrays = [motion(robot, seed) for seed in range(4)]
    (found,) = findings(
        schema_for(robot, len(order)), arrays[0][:, order], arrays[1][:, order], *arrays[2:]
    )
    one, other = (rows_of(robot)[place][0] for place in pair)
    assert (found.code, found.rows.tolist(), found.cause.kind) == ("DC603", [0, 1], "order")
    assert found.cause.text == f"{one} and {other} are exchanged"


@pytest.mark.parametrize("robot", NAMES)
def test_a_wrong_width_is_reported(robot):
    width = len(rows_of(robot))
    arrays = [motion(robot, seed) for seed in range(4)]
    after = [np.concatenate([q, np.full((len(q), 1), 0.03)], axis=1) for q in arrays]
    (found,) = findings(schema_for(robot, width + 1), *after)
    assert (found.code, found.kind, found.failed) == ("DC603", "width", 4)
    assert (found.measured["columns"], found.expected["columns"]) == (width + 1, width)
    # Every other joint of a Gen3 turns without end, so its joints may as well begin a column later.
    if robot == "gen3":
        assert found.cause is None
        assert "which columns are the joints is unknown" in found.message
    else:
        assert found.cause.text.startswith(f"column {width + 1} would be")
    (found,) = findings(schema_for(robot, width - 1), *(q[:, 1:] for q in arrays))
    assert (found.kind, found.cause) == ("width", None)


def test_the_columns_of_a_gripper_before_the_joints_and_of_two_arms():
    arrays = [motion("panda", seed) for seed in range(4)]
    grip = np.full((80, 1), 0.03)
    (found,) = findings(schema_for("panda", 8), *(np.hstack([grip, q]) for q in arrays))
    assert "column 1 would be the gripper, which opens up to 0.08 m" in found.message
    (found,) = findings(schema_for("panda", 16), *(np.hstack([q, grip, q, grip]) for q in arrays))
    assert "columns 8 and 16 would be the gripper" in found.message
    (found,) = findings(schema_for("panda", 9), *(np.hstack([q, grip, grip]) for q in arrays))
    assert "columns 8 and 9 would be the gripper" in found.message
    # Of an arm that stands still, columns 2 to 8 fit joints 1 to 7 as well.
    still = np.full((80, 8), 0.0)
    still[:, [3, 4]] = -0.5
    (found,) = findings(schema_for("panda", 8), *[still] * 4)
    assert (found.kind, found.cause) == ("width", None)


def test_a_cause_is_unknown_where_no_reading_or_more_than_one_fits():
    # Joint 4 off by 1.5 rad: neither a turn, nor degrees, nor another joint.
    arrays = [motion("panda", seed) for seed in range(4)]
    arrays[0][:, 3] += 1.5
    (found,) = findings(schema_for("panda", 7), *arrays)
    assert (found.rows.tolist(), found.cause) == ([0], None)
    assert found.fix.startswith("The cause is unknown")
    # Joint 1 stands at 3.5: a full turn and half a turn bring it to -2.78 and 0.36.
    still = np.tile([3.5, 0.0, 0.0, -1.5, 0.0, 1.5, 0.0], (80, 1))
    (found,) = findings(schema_for("panda", 7), still, *arrays[1:])
    assert (found.rows.tolist(), found.cause) == ([0], None)
    # Joint 6 stands at -0.3, where joints 1, 2, 3, 5 and 7 could be.
    still = np.tile([0.0, 0.0, 0.0, -1.5, 0.0, -0.3, 0.0], (80, 1))
    (found,) = findings(schema_for("panda", 7), still, *arrays[1:])
    assert (found.measured["name"], found.cause) == ("panda_joint6", None)
    # Two samples of different causes.
    mixed = [motion("panda", seed) for seed in range(4)]
    mixed[0][:, 3] += 2 * np.pi
    mixed[1] = mixed[1][:, [0, 3, 2, 1, 4, 5, 6]]
    (found,) = findings(schema_for("panda", 7), *mixed)
    assert (found.rows.tolist(), found.cause) == ([0, 1], None)


def test_a_known_order_and_the_reverse_are_named():
    order = [1, 0, 2, 3, 5, 4, 6, 7, 9, 8, 10, 11, 12, 13, 14, 15]  # along the fingers
    arrays = [motion("leap", seed) for seed in range(5)]
    arrays[3] = arrays[3][:, order]
    (found,) = findings(schema_for("leap", 16), *arrays)
    assert (found.rows.tolist(), found.cause.kind) == ([3], "order")
    assert found.cause.text == "the columns are in the order along the fingers"
    arrays = [motion("allegro", seed) for seed in range(4)]
    (found,) = findings(schema_for("allegro", 16), arrays[0][:, ::-1], *arrays[1:])
    assert (found.rows.tolist(), found.cause.text) == ([0], "the columns are in reverse order")
    # Of a Panda in reverse, joints 2 and 6 alone are beyond limits: they may be exchanged as well.
    arrays = [motion("panda", seed) for seed in range(4)]
    (found,) = findings(schema_for("panda", 7), arrays[0][:, ::-1], *arrays[1:])
    assert (found.rows.tolist(), found.cause) == ([0], None)


def test_joints_without_end_are_not_judged_and_others_of_the_robot_are():
    q = motion("gen3", 0)
    q[:, 0] = np.linspace(0, 30, len(q))  # joint 1 turns nearly five times
    assert findings(schema_for("gen3", 7), q, motion("gen3", 1)) == []
    q = motion("gen3", 0)
    q[:, 0] = np.linspace(0, 6, len(q))
    q[5:9, 1] = 2.24 + np.deg2rad(3)
    found = findings(schema_for("gen3", 7), q, motion("gen3", 1))
    (finding,) = [f for f in found if f.code != "DC604"]
    assert (finding.code, finding.measured["name"]) == ("DC603", "joint_2")
    assert finding.measured["degrees"] == pytest.approx(3)


def test_a_joint_in_metres_is_judged_in_millimetres(tmp_path):
    from datacheck.schema.load import load_schema

    (tmp_path / "arm.yaml").write_text(
        "datacheck: 1\nname: scara\nabout: lift and turn\njoints:\n"
        "  - {name: lift, unit: m, range: 0..0.8, speed: 0.5}\n  - {name: turn, range: -1..1}\n"
    )
    (tmp_path / "s.yaml").write_text(
        "datacheck: 1\nname: s\nsamples: {files: '*.npy'}\nepisode: {fps: 10}\n"
        "fields: {q: {role: joint_angle, shape: [T, 2], unit: rad, robot: ./arm.yaml}}\n"
    )
    schema = load_schema(tmp_path / "s.yaml")
    q = np.stack([np.linspace(0, 0.8, 80), np.linspace(-1, 1, 80)], axis=1)
    assert findings(schema, q, q) == []
    high = q.copy()
    high[-1, 0] += 0.0009  # a millimetre is allowed
    assert findings(schema, high, q) == []
    high[-1, 0] += 0.0031
    (found,) = findings(schema, high, q)
    assert (found.measured["name"], found.measured["degrees"]) == ("lift", pytest.approx(4.0))
    assert "joint lift (column 1) by up to 4 mm; 0..0.8 m is allowed" in found.message
    # 0.07 m at 10 steps a second is 0.7 m/s of 0.5; the joint without a speed may jump.
    fast = q.copy()
    fast[:40, 0], fast[40:, 0] = 0.1, 0.17
    fast[40:, 1] -= 0.9
    (found,) = findings(schema, fast, q)
    assert (found.code, found.measured["factor"]) == ("DC604", pytest.approx(1.4))
    assert "joint lift of the scara" in found.message


@pytest.mark.parametrize("robot", [name for name in NAMES if rows_of(name)[0][3] is not None])
def test_speeds_are_those_of_the_profile(robot):
    name, low, _, speed = rows_of(robot)[0]
    middle = [-0.5 if row[1] is None else (row[1] + row[2]) / 2 for row in rows_of(robot)]
    q = np.tile(middle, (80, 1))
    q[:, 0] = (-1.0 if low is None else low) + 0.01
    schema = schema_for(robot, len(middle)).replace("fps: 1", "fps: 100")
    for factor, wanted in ((1.19, []), (1.21, ["DC604"])):
        jump = q.copy()
        jump[40:, 0] += factor * speed / 100
        found = findings(schema, jump, q)
        assert [f.code for f in found] == wanted
        # The columns of a LEAP hand have two orders, so their number is stated.
        assert all(f"joint {1 if robot == 'leap' else name} of" in f.message for f in found)


@pytest.mark.parametrize("robot", [name for name in NAMES if rows_of(name)[0][3] is None])
def test_without_stated_speeds_no_speed_is_judged(robot):
    clean = motion(robot, 0)
    assert findings(schema_for(robot, clean.shape[1]).replace("fps: 1", "fps: 1000"), clean) == []
