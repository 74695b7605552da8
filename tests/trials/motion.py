"""Joint angles over time: a robot beyond its limits, too fast, wrapped; a subject whose shape changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from datacheck.model.sample import Piece
from datacheck.testing.draw import Array, curves
from tests.trials.base import Plant, Samples, Size, Trial, changed, edited_field, sample

Change = Callable[[Array, float, np.random.Generator], Array]

_PANDA = {
    "fields": {"q": {"role": "joint_angle", "shape": ["T", 7], "unit": "rad", "robot": "panda"}},
    "episode": {"fps": 20},
}
_ANGLES = {"fields": {"q": {"role": "joint_angle", "shape": ["T", 3], "unit": "rad"}}}
_SHAPES = {
    "samples": {"files": "*", "group": "{seq}"},
    "fields": {"beta": {"role": "shape", "shape": [10]}, "x": {"role": "value", "shape": [4]}},
}
_MIDDLE = np.array([0.0, 0.0, 0.0, -1.57, 0.0, 1.87, 0.0])
_HALF = np.array([2.9, 1.76, 2.9, 1.5, 2.9, 1.88, 2.9])


def _arms(rng: np.random.Generator) -> Samples:
    """Episodes of 60 to 300 steps that use most of each joint's range at everyday speed; some touch a limit."""
    found = []
    for i in range(24):
        steps = int(rng.integers(60, 300))
        q = _MIDDLE + _HALF * np.clip(1.04 * curves(rng, steps, 7, cycles=0.15), -0.999, 0.999)
        found.append(sample(f"s{i:03d}", {"q": q.astype(np.float32 if i % 2 else np.float64)}))
    return found


def _changed(name: str, change: Change, share: float = 0.1) -> Plant:
    return edited_field(share, name, lambda values, value, rng: change(values.copy(), value, rng))


def _moved(q: Array, degrees: float, rng: np.random.Generator) -> Array:
    joint = int(rng.integers(7))
    start = int(rng.integers(0, len(q) // 2))
    q[start : start + 5, joint] = (_MIDDLE + _HALF)[joint] + np.deg2rad(degrees) * np.ones(5)
    return q


def _jumped(q: Array, radians: float, rng: np.random.Generator) -> Array:
    """The arm goes on from elsewhere, as after dropped frames; it stays within its limits."""
    half, joint = len(q) // 2, int(rng.integers(7))
    q[half:, joint] = q[half - 1, joint] - np.sign(q[half - 1, joint] - _MIDDLE[joint]) * radians
    return q


def _hurried(q: Array, times: float, rng: np.random.Generator) -> Array:
    return q[:: int(times)].copy()


def _turning(rng: np.random.Generator) -> Samples:
    """Joints that stay clear of the cut."""
    return [
        sample(f"s{i:03d}", {"q": 2.6 * curves(rng, int(rng.integers(60, 200)), 3)})
        for i in range(20)
    ]


def _circled(q: Array, turns: float, rng: np.random.Generator) -> Array:
    steps = np.linspace(0, 2 * np.pi * turns, len(q)) + 1.0
    q[:, int(rng.integers(3))] = (steps + np.pi) % (2 * np.pi) - np.pi
    return q


def _cut(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    """One joint stands at pi in all episodes; in some of them it is written as -pi."""
    keys = []
    for place, (split, piece) in enumerate(samples):
        q = piece.fields["q"].copy()
        q[:, 1] = (np.pi - 0.02 + 0.001 * rng.standard_normal(len(q))) * (
            -1 if place < share * len(samples) else 1
        )
        samples[place] = split, changed(piece, q=q)
        keys.append(piece.key)
    return keys


def _hands(rng: np.random.Generator) -> Samples:
    """Eight sequences with one shape each, stored in two precisions."""
    found = []
    for number in range(8):
        beta = rng.normal(0, 0.8, 10)
        for frame in range(25):
            fields = {
                "beta": beta.astype(np.float32) if frame % 2 else beta,
                "x": rng.normal(size=4),
            }
            found.append(sample(f"q{number}/{frame:03d}", fields, group=f"q{number}"))
    return found


def _refitted(samples: Samples, frames: float, rng: np.random.Generator) -> Sequence[str]:
    """Give so many frames of one sequence (all of them: 25) shapes of their own."""
    group = f"q{int(rng.integers(8))}"
    places = [i for i, (_, piece) in enumerate(samples) if piece.group == group][: int(frames)]
    for place in places:
        split, piece = samples[place]
        samples[place] = split, _other(piece, rng)
    return [samples[place][1].key for place in places]


def _other(piece: Piece, rng: np.random.Generator) -> Piece:
    return changed(
        piece, beta=piece.fields["beta"] + rng.choice([-1, 1], 10) * rng.uniform(0.05, 0.2, 10)
    )


BEYOND = Trial(
    "joint-beyond-limit",
    "DC603",
    _PANDA,
    _arms,
    _changed("q", _moved),
    (
        Size("half a degree", 0.5, documented=False),
        Size("2 degrees", 2.0),
        Size("30 degrees", 30.0),
    ),
    cause="limit",
    also=frozenset({"DC604", "DC505"}),
)
JUMP = Trial(
    "joint-jump",
    "DC604",
    _PANDA,
    _arms,
    _changed("q", _jumped),
    (Size("0.05 rad", 0.05, documented=False), Size("0.3 rad", 0.3), Size("1 rad", 1.0)),
    cause="jump",
    also=frozenset({"DC505"}),
)
HURRIED = Trial(
    "wrong-rate",
    "DC604",
    _PANDA,
    _arms,
    _changed("q", _hurried, share=1.0),
    (Size("2 times", 2.0, documented=False), Size("12 times", 12.0)),
    cause="rate",
    also=frozenset({"DC505"}),
)
WRAPPED = Trial(
    "wrapped-angle",
    "DC607",
    _ANGLES,
    _turning,
    _changed("q", _circled),
    (Size("once", 1.0), Size("3 times", 3.0)),
    cause="wrap",
    also=frozenset({"DC505"}),
)
CUT = Trial(
    "pi-and-minus-pi",
    "DC607",
    _ANGLES,
    _turning,
    _cut,
    (Size("in 10 %", 0.1), Size("in half", 0.5)),
    cause="cut",
)
OTHER_SHAPE = Trial(
    "frames-of-another-shape",
    "DC608",
    _SHAPES,
    _hands,
    _refitted,
    (Size("1 frame", 1.0), Size("8 frames", 8.0)),
    cause="frames",
)
DRIFT = Trial(
    "shape-per-frame",
    "DC608",
    _SHAPES,
    _hands,
    _refitted,
    (Size("all frames", 25.0),),
    cause="drift",
)
