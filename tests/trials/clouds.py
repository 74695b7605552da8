"""Clouds: too few points, the same points again, and rooms that lie on their side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.trials.base import Plant, Samples, Size, Trial, changed, edited_field, sample, some

Array = np.ndarray[Any, Any]

_CLOUDS = {
    "fields": {
        "xyz": {"role": "points", "shape": ["P", 3], "unit": "m", "up": "z", "min_points": 64}
    }
}


def _rooms(rng: np.random.Generator) -> Samples:
    """Floors, ceilings and walls of rooms 3 to 8 m wide and 2.3 to 3 m high; some corners are stored twice."""
    made: Samples = []
    for i in range(40):
        size = np.append(rng.uniform(3, 8, 2), rng.uniform(2.3, 3.0))
        points = rng.uniform(0, 1, (int(rng.integers(300, 3000)), 3)) * size
        axis = rng.choice(3, len(points), p=[0.15, 0.15, 0.7])
        points[np.arange(len(points)), axis] = np.where(
            rng.random(len(points)) < 0.8, 0, size[axis]
        )
        points[: len(points) // 20] = points[-(len(points) // 20) :]
        made.append(sample(f"r{i:02d}", {"xyz": points.astype(np.float32)}))
    return made


def _each(share: float, change: Callable[[Array, float], Array]) -> Plant:
    return edited_field(share, "xyz", lambda xyz, value, _: change(xyz, value), 1)


def _padded(points: Array, share: float) -> Array:
    """Repeat one point, as loaders pad, until `share` of all are copies of it."""
    return np.concatenate(
        [points, np.repeat(points[:1], int(len(points) * share / (1 - share)), axis=0)]
    )


def _on_their_side(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    for place in some(samples, share, rng):
        split, piece = samples[place]
        samples[place] = split, changed(piece, xyz=piece.fields["xyz"][:, [0, 2, 1]])
    return []


FEW = Trial(
    "few-points",
    "DC124",
    _CLOUDS,
    _rooms,
    _each(0.1, lambda points, count: points[: int(count)]),
    (Size("63 of 64", 63.0), Size("5", 5.0), Size("none", 0.0)),
    also=frozenset({"DC103"}),
)
PADDED = Trial(
    "padded-by-copies",
    "DC227",
    _CLOUDS,
    _rooms,
    _each(0.1, _padded),
    (Size("10 %", 0.1, documented=False), Size("25 %", 0.25), Size("90 %", 0.9)),
)
TURNED = Trial(
    "y-up-rooms",
    "DC308",
    _CLOUDS,
    _rooms,
    _on_their_side,
    (Size("30 % of them", 0.3, documented=False), Size("70 % of them", 0.7), Size("all", 1.0)),
    cause="y",
)
