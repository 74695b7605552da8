"""Rotations: quaternions and matrices that are none, and such that were read by another convention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.model.sample import Piece
from datacheck.testing.draw import Array, curves, quaternion_product, rotation, unit_vectors
from tests.trials.base import Samples, Size, Trial, changed, edited, sample, some

_QUATERNIONS = {"fields": {"q": {"role": "quaternion", "shape": ["G", 4], "order": "wxyz"}}}
_TRANSFORMS = {"fields": {"t": {"role": "transform", "shape": ["G", 4, 4], "unit": "m"}}}
_GRASPS = {
    "fields": {
        "g": {"role": "pose", "shape": ["G", 7], "columns": "pos:3 quat:4"},
        "g.pos": {"role": "position", "unit": "m", "near": "o"},
        "g.quat": {"role": "quaternion", "order": "wxyz"},
        "o": {"role": "position", "shape": [3], "unit": "m"},
    }
}
_UPRIGHT = {"fields": {"q": {"role": "quaternion", "shape": [4], "order": "wxyz"}}}
_VECTORS = {"fields": {"r": {"role": "rotvec", "shape": ["T", 3], "unit": "rad"}}}


def _random(rng: np.random.Generator, count: int) -> Array:
    q = rng.standard_normal((count, 4))
    out: Array = q / np.sqrt(np.einsum("ij,ij->i", q, q))[:, None]
    return out


def _quaternions(rng: np.random.Generator) -> Samples:
    dtype = (np.float32, np.float64)[int(rng.integers(2))]
    return [
        sample(f"s{i:03d}", {"q": _random(rng, int(rng.integers(30, 90))).astype(dtype)})
        for i in range(40)
    ]


def _transforms(rng: np.random.Generator) -> Samples:
    found = []
    for i in range(40):
        count = int(rng.integers(1, 20))
        t = np.tile(np.eye(4), (count, 1, 1))
        t[:, :3, :3] = rotation(rng.uniform(-3, 3, (count, 3)))
        t[:, :3, 3] = rng.normal(0, 0.5, (count, 3))
        found.append(sample(f"s{i:03d}", {"t": t.astype(np.float32)}))
    return found


def _zeroed(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    q = piece.fields["q"].copy()
    q[rng.choice(len(q), max(1, int(value * len(q))), replace=False)] = 0.0
    return changed(piece, q=q)


def _skewed(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    t = piece.fields["t"].copy()
    t[int(rng.integers(len(t))), 0, :3] *= 1 + value
    return changed(piece, t=t)


def _mirrored(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    return changed(piece, t=piece.fields["t"] * np.array([[-1], [1], [1], [1]], np.float32))


def _grasps(rng: np.random.Generator) -> Samples:
    """Hands around objects; their z axis points at them, give or take 20 degrees."""
    found = []
    for i in range(30):
        count = int(rng.integers(30, 120))
        away = unit_vectors(rng, count)
        away[:, 2] = np.abs(away[:, 2]) + 0.05
        away /= np.sqrt(np.einsum("ij,ij->i", away, away))[:, None]
        toward = -away
        turn = np.stack([1 + toward[:, 2], -toward[:, 1], toward[:, 0], 0 * toward[:, 0]], axis=1)
        roll = rng.uniform(-np.pi, np.pi, count) / 2
        q = quaternion_product(
            turn, np.stack([np.cos(roll), 0 * roll, 0 * roll, np.sin(roll)], axis=1)
        )
        q = q / np.sqrt(np.einsum("ij,ij->i", q, q))[:, None] + 0.08 * rng.standard_normal(
            (count, 4)
        )
        q /= np.sqrt(np.einsum("ij,ij->i", q, q))[:, None]
        centre = rng.normal(0, 0.1, 3)
        pose = np.concatenate([centre + away * rng.uniform(0.14, 0.26, (count, 1)), q], axis=1)
        found.append(sample(f"s{i:03d}", {"g": pose, "o": centre + rng.normal(0, 0.02, 3)}))
    return found


def _rolled(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    g = piece.fields["g"].copy()
    g[:, 3:] = np.roll(g[:, 3:], -1, axis=1)
    return changed(piece, g=g)


def _standing(rng: np.random.Generator) -> Samples:
    half = rng.uniform(-np.pi, np.pi, 60) / 2
    return [
        sample(f"s{i:03d}", {"q": np.array([np.cos(a), 0.0, 0.0, np.sin(a)])})
        for i, a in enumerate(half)
    ]


def _scalar_last(samples: Samples, value: float, rng: np.random.Generator) -> Sequence[str]:
    places = range(len(samples)) if value == 1 else some(samples, value, rng, least=2)
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, q=np.roll(piece.fields["q"], -1))
    return [samples[p][1].key for p in places if abs(float(samples[p][1].fields["q"][2])) > 1e-3]


def _vectors(rng: np.random.Generator) -> Samples:
    """A hand that points down and turns: shortest rotation vectors near pi."""
    found = []
    for i in range(20):
        steps = int(rng.integers(60, 160))
        r = rng.uniform(1.0, 2.4) * unit_vectors(rng, 1) + 0.3 * curves(rng, steps, 3)
        found.append(sample(f"s{i:03d}", {"r": r}))
    return found


def _euler(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    """Roll, pitch and yaw of a hand whose yaw goes round `value` times."""
    steps = len(piece.fields["r"])
    yaw = np.linspace(0.3, 0.3 + 2 * np.pi * value, steps)
    yaw = (yaw + np.pi) % (2 * np.pi) - np.pi
    return changed(
        piece, r=np.stack([np.full(steps, 2.9), 0.4 * curves(rng, steps, 1)[:, 0], yaw], axis=1)
    )


def _long(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    r = piece.fields["r"].copy()
    r[int(rng.integers(len(r)))] = value / np.sqrt(3)
    return changed(piece, r=r)


ZERO = Trial(
    "zero-quaternions",
    "DC304",
    _QUATERNIONS,
    _quaternions,
    edited(0.1, _zeroed),
    (Size("one row", 0.0), Size("5 % of the rows", 0.05)),
    cause="zero",
    also=frozenset({"DC222"}),
)
SCALED = Trial(
    "scaled-quaternions",
    "DC304",
    _QUATERNIONS,
    _quaternions,
    edited(0.1, lambda p, v, _: changed(p, q=p.fields["q"] * np.float32(1 + v))),
    (Size("0.05 %", 5e-4, documented=False), Size("1 %", 0.01), Size("x2", 1.0)),
    cause="scaled",
)
SKEWED = Trial(
    "one-skewed-matrix",
    "DC304",
    _TRANSFORMS,
    _transforms,
    edited(0.1, _skewed),
    (Size("0.01 %", 1e-4, documented=False), Size("1 %", 0.01), Size("20 %", 0.2)),
    cause="skew",
)
MIRRORED = Trial(
    "mirrored-matrices",
    "DC304",
    _TRANSFORMS,
    _transforms,
    edited(0.1, _mirrored),
    (Size("x reversed", 0.0),),
    cause="mirror",
)
TRANSPOSED = Trial(
    "transposed-matrices",
    "DC304",
    _TRANSFORMS,
    _transforms,
    edited(0.1, lambda p, v, _: changed(p, t=np.swapaxes(p.fields["t"], 1, 2).copy())),
    (Size("column-major", 0.0),),
    cause="transposed",
)
ROLLED_SOME = Trial(
    "some-quaternions-xyzw",
    "DC305",
    _GRASPS,
    _grasps,
    edited(0.1, _rolled),
    (Size("10 % of the objects", 0.0),),
    cause="xyzw",
)
ROLLED_ALL = Trial(
    "all-quaternions-xyzw",
    "DC305",
    _GRASPS,
    _grasps,
    edited(1.0, _rolled),
    (Size("all objects", 0.0),),
    cause="xyzw",
)
STANDING = Trial(
    "standing-things-xyzw",
    "DC305",
    _UPRIGHT,
    _standing,
    _scalar_last,
    (Size("10 %", 0.1), Size("all", 1.0)),
    cause="xyzw",
)
EULER = Trial(
    "euler-angles-as-rotvec",
    "DC312",
    _VECTORS,
    _vectors,
    edited(0.2, _euler),
    (Size("one turn", 1.0), Size("three turns", 3.0)),
    cause="euler",
    also=frozenset({"DC607"}),
)
LONG = Trial(
    "rotvec-too-long",
    "DC312",
    _VECTORS,
    _vectors,
    edited(0.2, _long),
    (Size("one of 7 rad", 7.0), Size("one of 10 rad", 10.0)),
    cause="long",
    also=frozenset({"DC607"}),
)
