"""Units: clouds, hands and joints in another unit than declared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.trials.base import Plant, Samples, Size, Trial, changed, edited_field, sample, some

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_GRASPED = {
    "fields": {"xyz": {"role": "points", "shape": ["P", 3], "unit": "m", "size": "0.02..0.6"}}
}


def _clouds(rng: np.random.Generator) -> Samples:
    """Objects that a hand can hold, 6 to 30 cm across."""
    sizes = np.exp(rng.uniform(np.log(0.06), np.log(0.3), 300))
    return [
        sample(
            f"s{i:04d}",
            {"xyz": (rng.uniform(-0.5, 0.5, (60, 3)) * s / np.sqrt(3) + 0.2).astype(np.float32)},
        )
        for i, s in enumerate(sizes)
    ]


def _scaled(share: float) -> Plant:
    return edited_field(share, "xyz", lambda xyz, factor, _: xyz * np.float32(factor), 3)


_KINDS = {1000.0: "mm", 100.0: "cm", 1 / 0.0254: "in"}
_FACTORS = (
    Size("x39.37 (inches)", 1 / 0.0254),
    Size("x100 (cm)", 100.0),
    Size("x1000 (mm)", 1000.0),
)
SCALED_SOME = Trial(
    "one-percent-scaled",
    "DC201",
    _GRASPED,
    _clouds,
    _scaled(0.01),
    _FACTORS,
    cause=lambda f: _KINDS[f],
)
SCALED_ALL = Trial(
    "all-scaled", "DC201", _GRASPED, _clouds, _scaled(1.0), _FACTORS, cause=lambda f: _KINDS[f]
)

_UNDECLARED = {"fields": {"xyz": {"role": "points", "shape": ["P", 3], "unit": "m"}}}
MIXED = Trial("two-units", "DC203", _UNDECLARED, _clouds, _scaled(0.1), _FACTORS, cause="mixed")


def _cameras(rng: np.random.Generator) -> Samples:
    """Cameras 3 to 5 m from an object, turned about the vertical axis."""
    found: Samples = []
    for i in range(100):
        angle, far = rng.uniform(0, 2 * np.pi), rng.uniform(3, 5)
        cos, sin = np.cos(angle), np.sin(angle)
        pose = np.eye(4)
        pose[:3, :3] = [[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]
        pose[:3, 3] = [far * cos, far * sin, rng.uniform(0.2, 2)]
        found.append(sample(f"c{i:03d}", {"pose": pose}))
    return found


def _translated(pose: Array, factor: float, rng: np.random.Generator) -> Array:
    del rng
    pose = pose.copy()
    pose[:3, 3] *= factor
    return pose


MIXED_POSES = Trial(
    "poses-in-two-units",
    "DC203",
    {"fields": {"pose": {"role": "transform", "shape": [4, 4], "unit": "m"}}},
    _cameras,
    edited_field(0.1, "pose", _translated, 3),
    _FACTORS,
    cause="mixed",
)


_NEAR = {
    "fields": {
        "palm": {
            "role": "position",
            "shape": ["G", 3],
            "unit": "m",
            "near": "object",
            "distance": "0.02..0.5",
        },
        "object": {"role": "position", "shape": [3], "unit": "m"},
    }
}


def _grasps(rng: np.random.Generator) -> Samples:
    """Palms 5 to 25 cm from an object that stands anywhere on a table."""
    made = []
    for i in range(60):
        centre = rng.uniform([-1, -1, 0.02], [1, 1, 0.3])
        way = rng.normal(size=(40, 3))
        way *= rng.uniform(0.05, 0.25, (40, 1)) / np.linalg.norm(way, axis=1, keepdims=True)
        made.append(sample(f"g{i:03d}", {"palm": centre + way, "object": centre}))
    return made


def _moved_away(samples: Samples, metres: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, 0.05, rng)
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, palm=piece.fields["palm"] + np.array([metres, 0, 0]))
    return [samples[place][1].key for place in places]


FAR_FROM_OBJECT = Trial(
    "far-from-object",
    "DC201",
    _NEAR,
    _grasps,
    _moved_away,
    (Size("1 m away", 1.0), Size("3 m away", 3.0)),
)
