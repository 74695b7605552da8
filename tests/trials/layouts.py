"""Layout: columns in another order, samples of another make-up, ids beyond their dtype, meshes without a surface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Samples, Size, Trial, changed, sample, some

_POSE = {
    "fields": {
        "grasp": {"role": "pose", "shape": ["G", 23], "columns": "pos:3 quat:4 joints:16"},
        "grasp.pos": {"role": "position", "unit": "m"},
        "grasp.quat": {"role": "quaternion", "order": "wxyz"},
        "grasp.joints": {"role": "joint_angle", "unit": "rad"},
    }
}


def _grasps(rng: np.random.Generator) -> Samples:
    """Grasps of 16 joints around an object."""
    found: Samples = []
    for i in range(40):
        count = int(rng.integers(10, 60))
        quat = rng.normal(size=(count, 4))
        quat /= np.sqrt((quat**2).sum(axis=1, keepdims=True))
        place = rng.uniform(-0.2, 0.2, (count, 3)) + np.array([0, 0, 0.3])
        joints = rng.uniform(-0.4, 1.6, (count, 16))
        found.append(sample(f"g{i:03d}", {"grasp": np.concatenate([place, quat, joints], axis=1)}))
    return found


def _reorder(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, share, rng)
    for place in places:
        split, piece = samples[place]
        grasp = piece.fields["grasp"]
        samples[place] = (
            split,
            changed(
                piece, grasp=np.concatenate([grasp[:, :3], grasp[:, 7:], grasp[:, 3:7]], axis=1)
            ),
        )
    return [samples[place][1].key for place in places]


REORDERED = Trial(
    "quaternion-behind-joints",
    "DC125",
    _POSE,
    _grasps,
    _reorder,
    (Size("one object", 0.01), Size("a fifth", 0.2), Size("every object", 1.0)),
    cause="order",
)

_VIEWED = {
    "fields": {
        "state": {"role": "value", "shape": ["T", 12]},
        "wrist": {"role": "value", "shape": ["T", 8], "optional": True},
        "seen": {"role": "value", "shape": ["T", 4], "optional": True},
    }
}


def _viewed(rng: np.random.Generator) -> Samples:
    """Episodes with what a wrist camera saw in all of them, and what another one did in a few."""
    found: Samples = []
    for i in range(60):
        steps = int(rng.integers(20, 60))
        fields = {"state": rng.normal(size=(steps, 12)), "wrist": rng.normal(size=(steps, 8))}
        more = {"seen": rng.normal(size=(steps, 4))} if i % 4 == 0 else {}
        found.append(sample(f"e{i:03d}", fields | more))
    return found


def _unseen(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, share, rng)
    for place in places:
        split, piece = samples[place]
        fields = {name: values for name, values in piece.fields.items() if name != "wrist"}
        samples[place] = split, Piece(piece.key, fields, piece.origin, piece.group, piece.facts)
    return [samples[place][1].key for place in places]


UNSEEN = Trial(
    "camera-of-some-demos",
    "DC129",
    _VIEWED,
    _viewed,
    _unseen,
    (Size("one", 0.01), Size("a tenth", 0.1), Size("two fifths", 0.4)),
    cause="wrist",
)

_OPEN = {
    "fields": {
        "state": {"role": "value", "shape": ["T", "S"]},
        "reward": {"role": "reward", "shape": ["T"]},
    }
}


def _states(rng: np.random.Generator) -> Samples:
    """Episodes of any length with a state of 12 numbers."""
    found: Samples = []
    for i in range(50):
        steps = int(rng.integers(20, 90))
        found.append(
            sample(
                f"e{i:03d}", {"state": rng.normal(size=(steps, 12)), "reward": rng.random(steps)}
            )
        )
    return found


def _widen(samples: Samples, more: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, 0.06, rng)
    for place in places:
        split, piece = samples[place]
        state = piece.fields["state"]
        wide = (
            (100 * state).astype(np.int64)
            if more == 0
            else np.concatenate([state] * (1 + int(more)), axis=1)
        )
        samples[place] = split, changed(piece, state=wide)
    return [samples[place][1].key for place in places]


MIXED = Trial(
    "other-widths",
    "DC126",
    _OPEN,
    _states,
    _widen,
    (Size("24 of 12", 1), Size("36 of 12", 2), Size("whole numbers", 0)),
    cause="state",
)

_LABELLED = {"fields": {"part": {"role": "id", "shape": ["P"]}}}


def _parts(rng: np.random.Generator) -> Samples:
    """Clouds of 200 to 250 parts, numbered from 0."""
    return [
        sample(
            f"c{i:03d}",
            {"part": rng.integers(0, int(rng.integers(200, 250)), 3000).astype(np.uint8)},
        )
        for i in range(30)
    ]


def _overflow(samples: Samples, count: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, 0.1, rng)
    for place in places:
        split, piece = samples[place]
        parts = rng.integers(0, int(count), 3000)
        stored = parts.astype(np.float32) if count > 1e6 else parts.astype(np.uint8)
        samples[place] = split, changed(piece, part=stored)
    return [samples[place][1].key for place in places]


OVERFLOW = Trial(
    "too-many-parts",
    "DC127",
    _LABELLED,
    _parts,
    _overflow,
    (Size("300 in uint8", 300), Size("600 in uint8", 600), Size("40 million in float32", 4e7)),
    cause=lambda count: "float" if count > 1e6 else "full",
    also=frozenset({"DC126"}),
)

_MESH = {
    "fields": {
        "verts": {"role": "points", "shape": ["V", 3]},
        "faces": {"role": "faces", "shape": ["F", 3], "indexes": "verts"},
    }
}


def _meshes(rng: np.random.Generator) -> Samples:
    """Bumpy spheres of rings and sectors, as simplified meshes are: a few faces without an area at the poles."""
    found: Samples = []
    for i in range(30):
        rings, sectors = int(rng.integers(6, 12)), int(rng.integers(6, 14))
        up, around = np.meshgrid(
            np.linspace(0, np.pi, rings), np.arange(sectors) * 2 * np.pi / sectors, indexing="ij"
        )
        radius = 0.1 * rng.uniform(0.9, 1.1, up.shape)
        way = np.stack(
            [np.sin(up) * np.cos(around), np.sin(up) * np.sin(around), np.cos(up)], axis=-1
        )
        points = radius[..., None] * way + np.array([0.3, 0.2, 0.1])
        index = np.arange(rings * sectors).reshape(rings, sectors)
        right = np.roll(index, -1, axis=1)
        below, beside = index[1:], right[1:]
        upper, lower = (
            np.stack([index[:-1], below, right[:-1]], axis=-1),
            np.stack([right[:-1], below, beside], axis=-1),
        )
        faces = np.concatenate([upper, lower])
        found.append(
            sample(f"m{i:03d}", {"verts": points.reshape(-1, 3), "faces": faces.reshape(-1, 3)})
        )
    return found


def _spoil(samples: Samples, how: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, 0.1, rng)
    for place in places:
        split, piece = samples[place]
        faces = piece.fields["faces"].copy()
        if how == 0:
            faces = faces[:2]
        elif how == 1:
            faces = faces + 1
        elif how == 2:
            faces[:, 2] = faces[:, 1]
        else:
            faces[int(rng.integers(len(faces)))] = -1
        samples[place] = split, changed(piece, faces=faces)
    return [samples[place][1].key for place in places]


SPOILED = Trial(
    "meshes-without-surface",
    "DC128",
    _MESH,
    _meshes,
    _spoil,
    (Size("two faces", 0), Size("counted from 1", 1), Size("flat", 2), Size("one face of -1", 3)),
    cause=lambda how: {0: "few", 1: "one-based", 2: "flat", 3: "outside"}[int(how)],
)
