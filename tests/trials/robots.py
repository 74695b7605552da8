"""Arms that follow a leader: offsets of a joint, encoders that wrap, dead joints, inert grippers, swapped sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datacheck.model.sample import Piece
from datacheck.testing.draw import Array, curves
from tests.trials.base import Plant, Samples, Size, Trial, changed, edited, sample

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
SCHEMA: dict[str, Any] = {
    "fields": {
        "action": {"role": "action", "shape": ["T", "A"]},
        "state": {"shape": ["T", "S"]},
        "task": {"role": "text"},
    },
    "episode": {"fps": 30},
}
_TICK = 360 / 4096
_HOME = np.array([5.0, -60.0, 55.0, 20.0, -10.0])
_WIDTH = np.array([40.0, 45.0, 45.0, 35.0, 60.0])  # [deg]
_SAG = np.array([0.0, 2.5, -2.0, 1.0, 0.0])  # [deg] that a joint hangs below its command
_TASKS = ("pick up the red cube", "put the pen into the cup")


def follower(commands: Array, rng: np.random.Generator, delay: int = 2) -> Array:
    """Return what position-controlled joints do: late by some steps, behind by a first-order lag."""
    late = np.concatenate([np.repeat(commands[:1], delay, axis=0), commands])[: len(commands)]
    out = np.empty_like(late)
    out[0] = late[0]
    for t in range(1, len(late)):
        out[t] = out[t - 1] + 0.6 * (late[t] - out[t - 1])
    return out + 0.03 * rng.standard_normal(out.shape)


def _ticks(values: Array) -> Array:
    return np.asarray(np.round(values / _TICK) * _TICK, np.float32)


def arm(rng: np.random.Generator, steps: int) -> tuple[Array, Array]:
    """Return action and state of one arm in degrees, and of its gripper (0 closed, 100 open).

    The gripper closes around a thing of some width, on which its fingers stop.
    """
    command = _HOME + _WIDTH * curves(rng, steps, 5, cycles=1.0) + rng.normal(0, 4, 5)
    state = follower(command, rng) - _SAG * rng.uniform(0.7, 1.3, 5)
    closed = np.zeros(steps, bool)
    closed[int(rng.uniform(0.25, 0.45) * steps) : int(rng.uniform(0.7, 0.9) * steps)] = True
    grip = np.where(closed, 3.0, 70.0)[:, None]
    fingers = np.maximum(follower(grip, rng), np.where(closed, 22.0, 0.0)[:, None])
    return _ticks(np.hstack([command, grip])), _ticks(np.hstack([state, fingers]))


def _episodes(rng: np.random.Generator) -> Samples:
    """Twenty-four demonstrations of two tasks, of 4 to 12 seconds at 30 steps a second."""
    found = []
    for i in range(24):
        action, state = arm(rng, int(rng.integers(120, 360)))
        fields = {"action": action, "state": state, "task": _TASKS[i % 2]}
        names = {f"names/{name}": ",".join(JOINTS) for name in ("action", "state")}
        found.append(sample(f"e{i:03d}", fields, **names))
    return found


def _offset(samples: Samples, degrees: float, rng: np.random.Generator) -> Sequence[str]:
    """The leader's zero of one joint is so many degrees off, in all episodes."""
    joint = int(rng.integers(5))
    for place, (split, piece) in enumerate(samples):
        action = piece.fields["action"].copy()
        action[:, joint] += degrees
        samples[place] = split, changed(piece, action=action)
    return [piece.key for _, piece in samples]


def _few(change: Callable[[Piece, float, np.random.Generator], dict[str, Any]]) -> Plant:
    return edited(0.1, lambda piece, value, rng: changed(piece, **change(piece, value, rng)))


def _rezeroed(piece: Piece, turns: float, rng: np.random.Generator) -> dict[str, Any]:
    """The encoder counts a full turn more for some rows."""
    state = piece.fields["state"].copy()
    start = int(rng.integers(10, len(state) - 50))
    state[start : start + 30, int(rng.integers(5))] += 360 * turns
    return {"state": state}


def _rolled(piece: Piece, turns: float, rng: np.random.Generator) -> dict[str, Any]:
    """The wrist rolls on, and its encoder wraps at 180 degrees."""
    out = {}
    roll = np.linspace(0, 360 * turns, len(piece.fields["state"])) + 100
    for name in ("action", "state"):
        values = piece.fields[name].copy()
        values[:, 4] = (values[:, 4] + roll + 180) % 360 - 180
        out[name] = values
    return out


def _dead(piece: Piece, both: float, rng: np.random.Generator) -> dict[str, Any]:
    """One joint keeps its first value, in the state or in action and state."""
    joint = int(rng.integers(5))
    out = {}
    for name in ("action", "state") if both else ("state",):
        values = piece.fields[name].copy()
        values[:, joint] = values[0, joint]
        out[name] = values
    return out


def _inert(piece: Piece, noise: float, rng: np.random.Generator) -> dict[str, Any]:
    """The gripper stays open; its encoder may flicker."""
    out = {}
    for name in ("action", "state"):
        values = piece.fields[name].copy()
        values[:, 5] = 70 + noise * rng.integers(0, 2, len(values))
        out[name] = values
    return out


def _stuck(piece: Piece, share: float, rng: np.random.Generator) -> dict[str, Any]:
    """Two joints keep one value to the end, from so early on; their commands go on."""
    state = piece.fields["state"].copy()
    joint, start = int(rng.integers(4)), round((1 - share) * len(state))
    state[start:, joint : joint + 2] = state[start, joint : joint + 2]
    return {"state": state}


_SIDES = [f"{side}_{joint}" for side in ("left", "right") for joint in JOINTS]
_MOUNT = np.array([25.0, 14.0, -18.0, 9.0, 30.0])  # [deg] by which the arms' homes differ


def _two_arms(rng: np.random.Generator) -> Samples:
    """Thirty demonstrations of two arms that begin near their own homes and do the same each time."""
    found = []
    for i in range(30):
        steps = int(rng.integers(150, 300))
        time = np.linspace(0, 1, steps)[:, None]
        sides = []
        for sign in (1, -1):
            path = (
                _HOME
                + sign * _MOUNT
                + np.array([30, 25, 20, 10, 15]) * time * (1.3 if sign > 0 else 0.7)
            )
            path = path + 0.8 * curves(rng, steps, 5) + rng.normal(0, 0.7, 5)
            grip = np.where(np.abs(time - 0.5) < 0.2, 5.0, 60.0 + 10 * sign)
            sides.append(np.hstack([path, grip]))
        action = _ticks(np.hstack(sides))
        state = _ticks(follower(action.astype(np.float64), rng))
        names = {f"names/{name}": ",".join(_SIDES) for name in ("action", "state")}
        fields = {"action": action, "state": state, "task": "lift the tray"}
        found.append(sample(f"e{i:03d}", fields, **names))
    return found


def _exchanged(piece: Piece, both: float, rng: np.random.Generator) -> dict[str, Any]:
    names = ("action", "state") if both else ("state",)
    return {name: np.roll(piece.fields[name], 6, axis=1) for name in names}


OFFSET = Trial(
    "leader-offset",
    "DC521",
    SCHEMA,
    _episodes,
    _offset,
    (
        Size("5 degrees", 5.0, documented=False),
        Size("17 degrees", 17.0),
        Size("-17 degrees", -17.0),
        Size("40 degrees", 40.0),
    ),
    cause="offset",
)
REZEROED = Trial(
    "extra-turn",
    "DC522",
    SCHEMA,
    _episodes,
    _few(_rezeroed),
    (Size("one turn", 1.0), Size("minus one turn", -1.0)),
    cause="wrap",
)
ROLLED = Trial(
    "encoder-wraps",
    "DC522",
    SCHEMA,
    _episodes,
    _few(_rolled),
    (Size("1 turn", 1.0), Size("2 turns", 2.0)),
    cause="wrap",
)
DEAD = Trial(
    "dead-joint",
    "DC523",
    SCHEMA,
    _episodes,
    _few(_dead),
    (Size("state", 0.0), Size("action and state", 1.0)),
)
STUCK = Trial(
    "joints-stand-still",
    "DC523",
    SCHEMA,
    _episodes,
    _few(_stuck),
    (Size("a fifth", 0.2, documented=False), Size("half", 0.5), Size("four fifths", 0.8)),
)
INERT = Trial(
    "inert-gripper",
    "DC524",
    SCHEMA,
    _episodes,
    _few(_inert),
    (Size("constant", 0.0), Size("one tick", _TICK)),
    also=frozenset({"DC225"}),
)
EXCHANGED = Trial(
    "exchanged-arms",
    "DC525",
    SCHEMA,
    _two_arms,
    _few(_exchanged),
    (Size("state", 0.0), Size("action and state", 1.0)),
    cause="swapped",
    also=frozenset({"DC225"}),
)
