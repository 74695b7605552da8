"""What a robot's columns mean: both sides of every limit, and data that only look like a fault."""

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.rules.families.robots import gaps, turn_jumps
from datacheck.schema.model import FieldSpec
from datacheck.testing.draw import curves
from tests.rules.harness import judged, measured, schema_of
from tests.trials.memory import scan_pieces
from tests.trials.robots import JOINTS, SCHEMA, _episodes, _two_arms, arm, follower

ROBOTS = ("DC521", "DC522", "DC523", "DC524", "DC525")
PAIR = {
    "fields": {"action": {"role": "action", "shape": ["T", "A"]}, "state": {"shape": ["T", "S"]}}
}


def results(samples, schema=SCHEMA):
    return scan_pieces(schema_of(schema), samples)


def told(samples, schema=SCHEMA):
    """Return the codes of this family's findings."""
    return sorted({f.code for f in results(samples, schema).findings if f.code in ROBOTS})


def verdict(samples, code, schema=SCHEMA):
    return next(v for v in results(samples, schema).verdicts if v.code == code).verdict


def demos(change, seed=0):
    """Return the clean demonstrations with `change(number, fields, generator)` over their fields."""
    rng = np.random.default_rng(seed)
    return [
        (split, Piece(p.key, dict(p.fields) | change(i, p.fields, rng), p.origin, p.group, p.facts))
        for i, (split, p) in enumerate(_episodes(rng))
    ]


# ------------------------------------------------------------------------------------------- DC521


def _delta(i, fields, rng):
    return {"action": np.diff(fields["state"], axis=0, append=fields["state"][-1:])}


def _velocity(i, fields, rng):
    return {"action": np.gradient(fields["state"], 1 / 30, axis=0).astype(np.float32)}


def _normalised(i, fields, rng):
    return {"action": (fields["action"] / 180).astype(np.float32)}


def _unit_gripper(i, fields, rng):
    """A command of 0 to 1 beside fingers in metres: the only column of another unit."""
    action, state = fields["action"].copy(), fields["state"].copy()
    action[:, 5] /= 100
    state[:, 5] *= 0.08 / 100
    return {"action": action, "state": state}


def _gripper_offset(i, fields, rng):
    action = fields["action"].copy()
    action[:, 5] = fields["state"][:, 5] + 25
    return {"action": action}


def _ahead(i, fields, rng):
    """The target lies 20 steps ahead, as that of a planner."""
    state = fields["state"]
    return {"action": np.concatenate([state[20:], np.repeat(state[-1:], 20, axis=0)])}


def _other_zero(i, fields, rng):
    """All joints count from another zero: two conventions, and no joint that stands out."""
    return {"action": fields["action"] + np.float32([30, -40, 35, 25, -50, 20])}


def _unlike(i, fields, rng):
    """Nothing to do with the state, as a pose of the hand beside joint angles."""
    steps = len(fields["state"])
    return {"action": (30 + 20 * curves(rng, steps, 6)).astype(np.float32)}


def _full_turn(i, fields, rng):
    action = fields["action"].copy()
    action[:, 4] += 360
    return {"action": action}


def _one_episode(i, fields, rng):
    action = fields["action"].copy()
    action[:, 2] += 30 * (i == 3)
    return {"action": action}


def _both_signs(i, fields, rng):
    """A joint with play: it lags its command on one side in some episodes, on the other in others."""
    action = fields["action"].copy()
    action[:, 2] += 20 if i % 2 else -20
    return {"action": action}


def _scaled(i, fields, rng):
    action = fields["action"].copy()
    action[:, 1] *= 1.4
    return {"action": action}


LOOKALIKES = [
    _delta,
    _velocity,
    _normalised,
    _unit_gripper,
    _gripper_offset,
    _ahead,
    _other_zero,
    _unlike,
    _full_turn,
    _one_episode,
    _both_signs,
    _scaled,
]


@pytest.mark.parametrize("change", LOOKALIKES, ids=lambda change: change.__name__)
def test_actions_that_differ_from_the_state_for_another_reason_have_no_offset(change):
    for seed in range(3):
        assert told(demos(change, seed)) == []


def test_actions_that_follow_no_state_are_skipped():
    assert verdict(demos(_delta), "DC521") == "skip"
    assert verdict(demos(lambda *_: {}), "DC521") == "pass"


def test_an_offset_names_the_joint_its_size_and_every_episode():
    def change(i, fields, rng):
        action = fields["action"].copy()
        action[:, 2] += 20
        return {"action": action}

    (found,) = [f for f in results(demos(change)).findings if f.code in ROBOTS]
    assert (found.code, found.cause, len(found.rows)) == ("DC521", None, 24)
    assert "column 2 (elbow_flex)" in found.message
    assert found.measured["columns"] == [2]
    # 20 degrees, and the 2 that this joint hangs on the other side of its command
    assert found.measured["offsets"][0] == pytest.approx(20 - 2, abs=1.0)


def test_columns_of_other_names_are_not_compared():
    def shifted(i, fields, rng):
        action = fields["action"].copy()
        action[:, 2] += 20
        return {"action": action}

    samples = demos(shifted)
    assert told(samples) == ["DC521"]
    for _, piece in samples:
        piece.facts["names/action"] = ",".join(JOINTS[::-1])
    assert told(samples) == []


def test_the_median_difference_is_measured_at_the_lag_of_the_state():
    rng = np.random.default_rng(5)
    action = curves(rng, 200, 2)
    state = np.concatenate([np.zeros((4, 2)), action])[:200] - [0.0, 0.25]
    block = _block(action=action, state=state)
    columns = gaps.function(block, schema_of(PAIR))
    assert columns["action~state:gap"].values[0] == pytest.approx([0.0, 0.25], abs=1e-12)
    assert columns["action~state:gap_spread"].values[0] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert columns["action~state:follow"].values[0] == pytest.approx([1.0, 1.0])
    assert columns["action~state:gain"].values[0] == pytest.approx([1.0, 1.0])


def _block(**fields):
    return stack([Piece("e", fields, Origin("e"))])[0]


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (29, 3)])
def test_short_episodes_are_measured_by_none(shape):
    schema = schema_of(PAIR)
    table = measured(
        schema, [("", Piece("e", {n: np.zeros(shape) for n in ("action", "state")}, Origin("e")))]
    )
    verdicts = {v.code: v.verdict for v in judged(schema, table).verdicts}
    assert {verdicts[code] for code in ("DC521", "DC523", "DC524", "DC525")} == {"skip"}


# ------------------------------------------------------------------------------------------- DC522


def jumps(values, unit=None):
    rows = np.asarray(values, np.float64)[:, None]
    columns = turn_jumps.function(
        Column(rows, np.array([len(rows)])), FieldSpec(shape=("T", 1), unit=unit)
    )
    return int(columns["turned"].values[0, 0]), float(columns["turn_size"].values[0, 0])


RAMP = np.linspace(0.0, 1.0, 200)


@pytest.mark.parametrize(
    ("turn", "values"),
    [
        (2 * np.pi, (2 + 3 * RAMP + np.pi) % (2 * np.pi) - np.pi),
        (2 * np.pi, (5 + 3 * RAMP) % (2 * np.pi)),
        (360.0, (150 + 100 * RAMP + 180) % 360 - 180),
        (360.0, (300 + 100 * RAMP) % 360),
        (4096.0, np.round(4000 + 600 * RAMP) % 4096),
        (16384.0, (np.round(8000 + 900 * RAMP) + 8192) % 16384 - 8192),
    ],
)
def test_an_angle_that_wraps_is_found_with_its_turn(turn, values):
    assert jumps(values) == (1, pytest.approx(turn))


def test_an_encoder_that_counts_a_turn_more_for_some_rows_jumps_twice():
    values = np.sin(6 * RAMP)
    values[50:80] += 2 * np.pi
    assert jumps(values) == (2, pytest.approx(2 * np.pi))


def test_jumps_inside_the_range_of_degrees_are_no_turn_in_radians():
    """Another joint shows that the field holds degrees: a glitch of 6.3 of them is no turn."""
    values = np.sin(6 * RAMP)
    values[50:80] += 6.3
    both = np.stack([values, 90 * np.cos(3 * RAMP)], axis=1)
    columns = turn_jumps.function(Column(both, np.array([200])), FieldSpec(shape=("T", 2)))
    assert columns["turned"].values.tolist() == [[0, 0]]
    assert jumps(values) == (2, pytest.approx(2 * np.pi))


def test_a_declared_unit_decides_the_turn():
    values = 100 + np.sin(6 * RAMP)
    values[50:] += 360
    assert jumps(values, "deg") == (1, pytest.approx(360.0))
    assert jumps(values) == (0, 0.0)  # a single jump from no end of a turn to the other


@pytest.mark.parametrize(
    "values",
    [
        np.where(RAMP < 0.5, 0.0, 255.0),  # a gripper of 8 bits
        np.where(RAMP < 0.5, 0.0, 1024.0),  # a switch: nothing else moves
        np.where(RAMP < 0.5, RAMP, RAMP + 5.0),  # a jump of no full turn
        np.where(RAMP < 0.5, RAMP, RAMP + 7.0),
        np.sin(6 * RAMP) * 3.1,
        360 * (np.floor(20 * RAMP) % 2) + RAMP,  # often: no encoder
        np.random.default_rng(0).uniform(-np.pi, np.pi, 200),  # noise
        np.zeros(200),
    ],
)
def test_other_jumps_are_no_wrap(values):
    assert jumps(values) == (0, 0.0)


def test_an_angle_that_wraps_in_many_episodes_is_told_without_a_finding():
    def change(i, fields, rng):
        state = fields["state"].copy()
        state[:, 4] = (np.linspace(100, 260, len(state)) + 180) % 360 - 180
        return {"state": state} if i < 12 else {}

    said = results(demos(change))
    assert [f.code for f in said.findings if f.code == "DC522"] == []
    (why,) = [v.why for v in said.verdicts if v.code == "DC522"]
    assert "column 4 jumps by a full turn in 12 episodes of 24" in why


# ------------------------------------------------------------------------------------------- DC523


def still(*joints, episodes, names=("action", "state")):
    """Return a change that stops joints in some episodes."""

    def change(i, fields, rng):
        out = {}
        for name in names if i in episodes else ():
            values = fields[name].copy()
            values[:, joints] = values[0, joints]
            out[name] = values
        return out

    return change


def test_a_joint_that_dies_is_named_with_its_episode():
    found = [
        f
        for f in results(demos(still(3, episodes={5}, names=("state",)))).findings
        if f.code == "DC523"
    ]
    assert [f.rows.tolist() for f in found] == [[5]]
    assert "column 3 (wrist_flex) in 1 episode of 24" in found[0].message


def stops(*joints, episodes, rows=80, names=("state",)):
    """Return a change that stops joints in the last rows of some episodes."""

    def change(i, fields, rng):
        out = {}
        for name in names if i in episodes else ():
            values = fields[name].copy()
            values[-rows:, joints] = values[-rows, joints]
            out[name] = values
        return out

    return change


def test_joints_that_stop_while_their_commands_go_on_are_named():
    findings = results(demos(stops(1, 2, episodes={3, 9}))).findings
    found = [f for f in findings if f.code == "DC523"]
    assert [f.rows.tolist() for f in found] == [[3, 9]]
    assert found[0].kind == "stuck state"
    assert found[0].measured == {"columns": [1, 2], "steps": 79}


@pytest.mark.parametrize(
    "change",
    [
        stops(1, 2, episodes={3}, names=("action", "state")),  # an arm that has nothing to do
        stops(0, 1, 2, 3, 4, 5, episodes={3}),  # the whole state: DC506
        stops(1, 2, episodes=set(range(8))),  # a third of the episodes
        stops(1, 2, episodes={3}, rows=30),
        stops(5, episodes={3}),  # a gripper that holds
        lambda i, fields, rng: stops(1, episodes={i}, rows=30 + 2 * i)(i, fields, rng),
    ],
    ids=["no command", "all", "often", "short", "gripper", "rests everywhere"],
)
def test_joints_that_stand_still_for_another_reason_are_not_stuck(change):
    assert "DC523" not in told(demos(change))


@pytest.mark.parametrize(
    "change",
    [
        still(3, episodes=set(range(0, 24, 2))),  # every episode of one task
        still(3, episodes=set(range(8))),  # a third of the episodes
        still(5, episodes={2}),  # a gripper: DC524
        still(0, 1, 2, 3, 4, 5, episodes={4}),  # the whole robot: DC504
    ],
)
def test_joints_that_rest_for_another_reason_are_not_dead(change):
    assert "DC523" not in told(demos(change))


def test_a_joint_that_moves_little_in_some_episodes_may_rest_in_one():
    def change(i, fields, rng):
        state = fields["state"].copy()
        state[:, 3] = state[0, 3] + (state[:, 3] - state[0, 3]) * (
            0.0 if i == 5 else (0.02 * (i % 3) + 0.001)
        )
        return {"state": state}

    assert "DC523" not in told(demos(change))


def test_a_command_in_bursts_may_be_absent():
    """A 3D mouse: rotations are 0 except where the operator turns it."""

    def change(i, fields, rng):
        steps = len(fields["action"])
        action = np.zeros((steps, 6), np.float32)
        action[:, :3] = curves(rng, steps, 3)
        for j in (3, 4):
            start = int(rng.integers(0, steps - 30))
            action[start : start + 25, j] = curves(rng, 25, 1)[:, 0] * (i != 7)
        return {"action": action}

    assert "DC523" not in told(demos(change))


# ------------------------------------------------------------------------------------------- DC524


def test_a_gripper_that_rests_in_all_episodes_of_a_task_is_normal():
    assert told(demos(still(5, episodes=set(range(0, 24, 2))))) == []


def test_a_task_without_a_grasp_asks_for_none():
    def change(i, fields, rng):
        return still(5, episodes={2})(i, fields, rng) | {"task": "push the block aside"}

    assert told(demos(change)) == []
    assert told(demos(still(5, episodes={2}))) == ["DC524"]


def test_words_that_only_contain_a_verb_are_none():
    def change(i, fields, rng):
        return still(5, episodes={2})(i, fields, rng) | {"task": "replace nothing, input the text"}

    assert told(demos(change)) == []


def test_grippers_without_a_name_are_skipped():
    samples = demos(still(5, episodes={2}))
    for _, piece in samples:
        for name in ("action", "state"):
            del piece.facts[f"names/{name}"]
    assert "DC524" not in told(samples)
    assert verdict(samples, "DC524") == "skip"


def test_one_gripper_of_two_may_rest():
    samples = _two_arms(np.random.default_rng(0))
    for name in ("action", "state"):
        values = samples[4][1].fields[name].copy()
        values[:, 5] = values[0, 5]
        samples[4][1].fields[name] = values
    assert "DC524" not in told(samples)
    for name in ("action", "state"):
        values = samples[4][1].fields[name].copy()
        values[:, 11] = values[0, 11]
        samples[4][1].fields[name] = values
    assert "DC524" in told(samples)


# ------------------------------------------------------------------------------------------- DC525


def test_a_mirrored_task_is_not_exchanged_arms():
    """The left arm does what the right one does elsewhere; both begin at their own homes."""
    samples = _two_arms(np.random.default_rng(1))
    split, piece = samples[6]
    fields = dict(piece.fields)
    for name in ("action", "state"):
        values = fields[name].copy()
        moved = values - values[:1]
        fields[name] = values[:1] + np.roll(moved, 6, axis=1)
    samples[6] = split, Piece(piece.key, fields, piece.origin, piece.group, piece.facts)
    assert "DC525" not in told(samples)


def test_arms_that_cannot_be_told_apart_are_skipped():
    rng = np.random.default_rng(2)
    sides = [f"{side}_{joint}" for side in ("left", "right") for joint in JOINTS]
    samples = []
    for i in range(20):
        (a, s), (b, t) = arm(rng, 150), arm(rng, 150)
        fields = {"action": np.hstack([a, b]), "state": np.hstack([s, t]), "task": "lift"}
        facts = {f"names/{name}": ",".join(sides) for name in ("action", "state")}
        samples.append(
            ("", Piece(f"e{i:02d}", fields, Origin("e"), "", {"id": f"e{i:02d}"} | facts))
        )
    assert told(samples) == []
    assert verdict(samples, "DC525") == "skip"


def test_a_follower_of_the_trials_is_behind_its_leader():
    """A control of the generator: its lag is found, and no constant remains."""
    rng = np.random.default_rng(3)
    command = 30 * curves(rng, 300, 3)
    block = _block(action=command, state=follower(command, rng))
    columns = gaps.function(block, schema_of(PAIR))
    assert np.abs(columns["action~state:gap"].values).max() < 0.3
