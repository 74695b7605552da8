"""Hands over a sequence: joints in another order, bones that are not rigid, marks in place of joints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from datacheck.testing.draw import Array, unit_vectors
from datacheck.testing.ho3d import articulated, placed
from tests.trials.base import Samples, Size, Trial, changed, sample

_HANDS = {
    "samples": {"files": "*", "group": "{seq}"},
    "fields": {
        "j": {
            "role": "joints",
            "shape": [21, 3],
            "unit": "m",
            "skeleton": "mano21_ho3d",
            "centered": "no",
        }
    },
}
_FRAMES = 55
_ORDERS = {  # by the value of a size: joints of HO3D's order where the declared order has ...
    1: [*range(16), 17, 18, 20, 19, 16],  # MANO: tips as the chains
    2: [*range(16), 17, 18, 19, 20, 16],  # tips without a thumb in front
    3: [*range(16), 16, 17, 18, 20, 19],  # ring and pinky tips
    4: [*range(7), 10, 11, 12, 7, 8, 9, *range(13, 21)],  # ring and pinky chains
    5: [*range(7), 10, 11, 12, 7, 8, 9, *range(13, 19), 20, 19],  # ring and pinky as a whole
    6: [0, 13, 14, 15, 16, 1, 2, 3, 17, 4, 5, 6, 18, 10, 11, 12, 19, 7, 8, 9, 20],  # OpenPose
}


def _hands(rng: np.random.Generator) -> Samples:
    """Three subjects, each a sequence of one hand that opens and closes before the camera."""
    found = []
    for number in range(3):
        turn = unit_vectors(rng, 1) * rng.uniform(0.4, 1.8) + np.zeros((_FRAMES, 1))
        joints = placed(rng, articulated(rng, _FRAMES, rng.uniform(0.85, 1.15)), turn)
        for frame in range(_FRAMES):
            found.append(sample(f"q{number}/{frame:03d}", {"j": joints[frame]}, group=f"q{number}"))
    return found


def _reordered(samples: Samples, value: float, rng: np.random.Generator) -> Sequence[str]:
    group = f"q{int(rng.integers(3))}"
    return _each(samples, group, lambda j, _: j[_ORDERS[int(value)]])


def _each(
    samples: Samples, group: str, change: Callable[[Array, int], Array], most: int = _FRAMES
) -> list[str]:
    places = [i for i, (_, piece) in enumerate(samples) if piece.group == group][:most]
    for number, place in enumerate(places):
        split, piece = samples[place]
        samples[place] = split, changed(piece, j=change(piece.fields["j"], number))
    return [samples[place][1].key for place in places]


def _breathing(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    """The hand of one sequence grows and shrinks by `share`."""
    size = 1 + share * np.sin(np.arange(_FRAMES))
    return _each(samples, "q1", lambda j, n: j[0] + (j - j[0]) * size[n])


def _marked(samples: Samples, mark: float, rng: np.random.Generator) -> Sequence[str]:
    return _each(samples, "q2", lambda j, _: np.full_like(j, mark), 6)


ORDER = Trial(
    "joints-in-another-order",
    "DC605",
    _HANDS,
    _hands,
    _reordered,
    (
        Size("MANO", 1),
        Size("ring and pinky chains", 4),
        Size("ring and pinky", 5),
        Size("OpenPose", 6),
    ),
    cause="order",
)
TIPS = Trial(
    "tips-permuted",
    "DC605",
    _HANDS,
    _hands,
    _reordered,
    (Size("thumb last", 2), Size("ring and pinky", 3)),
    cause="order",
)
BREATHING = Trial(
    "bones-that-breathe",
    "DC601",
    _HANDS,
    _hands,
    _breathing,
    (Size("0.5 %", 0.005, documented=False), Size("4 %", 0.04)),
)
MARKED = Trial(
    "joints-of-minus-one",
    "DC222",
    _HANDS,
    _hands,
    _marked,
    (Size("-1", -1.0), Size("-1000", -1000.0)),
    cause="sentinel",
    also=frozenset({"DC803"}),
)
