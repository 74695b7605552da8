"""Directions: normals that are absent or no unit vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.testing.draw import Array, unit_vectors
from tests.trials.base import Samples, Size, Trial, changed, sample, some

_NORMALS = {
    "fields": {
        "xyz": {"role": "points", "shape": ["P", 3]},
        "normal": {"role": "normal", "shape": ["P", 3]},
    }
}


def _clouds(rng: np.random.Generator) -> Samples:
    """Unit normals in several precisions; a few of a thousand are zero, as at isolated vertices."""
    found = []
    for i in range(30):
        normals = unit_vectors(rng, int(rng.integers(300, 3000)))
        normals[rng.choice(len(normals), len(normals) // 500, replace=False)] = 0.0
        dtype = (np.float16, np.float32, np.float64)[i % 3]
        fields = {"xyz": rng.uniform(0, 1, normals.shape), "normal": normals.astype(dtype)}
        found.append(sample(f"s{i:03d}", fields))
    return found


def _broken(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    """Halve `share` of the normals of some samples; all of them become zero at 1."""
    places = some(samples, 0.1, rng, least=2)
    for place in places:
        split, piece = samples[place]
        normals: Array = piece.fields["normal"].copy()
        normals[: int(np.ceil(share * len(normals)))] *= 0 if share == 1 else 0.5
        samples[place] = split, changed(piece, normal=normals)
    return [samples[place][1].key for place in places]


HALVED = Trial(
    "half-length-normals",
    "DC311",
    _NORMALS,
    _clouds,
    _broken,
    (
        Size("0.5 % of them", 0.005, documented=False),
        Size("3 % of them", 0.03),
        Size("half of them", 0.5),
    ),
    cause="length",
)
ABSENT = Trial(
    "no-normals", "DC311", _NORMALS, _clouds, _broken, (Size("all of them", 1.0),), cause="absent"
)
