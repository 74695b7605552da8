"""Centres and camera frames: hands and clouds that were centred, mirrored, or moved out of view."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from datacheck.model.sample import Piece
from datacheck.testing.draw import Array, rotation, unit_vectors
from datacheck.testing.ho3d import articulated, placed
from tests.trials.base import (
    Plant,
    Samples,
    Size,
    Trial,
    changed,
    edited,
    edited_field,
    sample,
    some,
)

_HANDS = {
    "fields": {
        "j": {
            "role": "joints",
            "shape": [21, 3],
            "unit": "m",
            "frame": "camera_opengl",
            "centered": "no",
            "intrinsics": "k",
            "image_size": [640, 480],
        },
        "k": {"role": "intrinsics", "shape": [3, 3], "unit": "px"},
    }
}
_CLOUDS = {
    "fields": {
        "p": {"role": "points", "shape": ["P", 3], "unit": "m", "centered_on": "c"},
        "c": {"role": "position", "shape": [3], "unit": "m"},
    }
}
_UNSAID = {"fields": {"p": {"role": "points", "shape": ["P", 3], "unit": "m"}}}


def _hands(rng: np.random.Generator) -> Samples:
    """Hands in view of an OpenGL camera, each in another pose."""
    found = []
    for i in range(60):
        turn = unit_vectors(rng, 1) * rng.uniform(0.4, 1.8)
        joints = placed(rng, articulated(rng, 1, rng.uniform(0.85, 1.15)), turn)[0]
        focal = 617 + 3 * rng.standard_normal()
        k = np.array(
            [
                [focal, 0, 312 + rng.standard_normal()],
                [0, focal, 241 + rng.standard_normal()],
                [0, 0, 1],
            ]
        )
        found.append(sample(f"s{i:03d}", {"j": joints, "k": k}))
    return found


def _some(share: float, name: str, change: Callable[[Array, float], Array]) -> Plant:
    return edited_field(share, name, lambda values, value, _: change(values, value))


def _stored(rng: np.random.Generator) -> Samples:
    """Bodies from which a stored centre was subtracted once; it is not exactly their centroid."""
    base = rng.normal(0, 0.03, 3)
    found = []
    for i in range(60):
        size = rng.uniform(0.1, 0.5)
        points = rng.uniform(-0.5, 0.5, (300, 3)) * rng.uniform(0.3, 1, 3) * size
        points = points @ rotation(rng.normal(size=(1, 3)))[0].T + base + rng.normal(0, 0.02, 3)
        fields = {
            "p": points.astype(np.float32),
            "c": unit_vectors(rng, 1)[0] * rng.uniform(0.25, 0.9),
        }
        found.append(sample(f"s{i:03d}", fields))
    return found


def _again(share: float) -> Plant:
    """Return a plant that subtracts the stored centre so many times in all."""

    def moved(piece: Piece, times: float, _: np.random.Generator) -> Piece:
        return changed(
            piece,
            p=piece.fields["p"] + np.float32(1 - times) * piece.fields["c"].astype(np.float32),
        )

    return edited(share, moved)


def _scattered(rng: np.random.Generator) -> Samples:
    found = []
    for i in range(100):
        points = rng.normal(0, 0.2, (200, 3)) + rng.normal(0, 0.5, 3)
        found.append(sample(f"s{i:03d}", {"p": points.astype(np.float32)}))
    return found


def _centred(piece: Piece) -> Piece:
    points = piece.fields["p"].astype(np.float64)
    return changed(piece, p=(points - points.mean(axis=0)).astype(np.float32))


def _half_centred(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, share, rng, least=2)
    for place in places:
        samples[place] = samples[place][0], _centred(samples[place][1])
    odd = (
        places
        if 2 * len(places) <= len(samples)
        else sorted(set(range(len(samples))) - set(places))
    )
    return [samples[place][1].key for place in odd]


_FLIP = np.array([1.0, -1.0, -1.0])

ROOT = Trial(
    "hand-at-the-root",
    "DC301",
    _HANDS,
    _hands,
    _some(0.1, "j", lambda j, v: j - j[0] + v * j[0]),
    (Size("exactly", 0.0),),
    cause="root",
)
CENTROID = Trial(
    "hand-at-its-mean",
    "DC301",
    _HANDS,
    _hands,
    _some(1.0, "j", lambda j, v: j - j.mean(axis=0)),
    (Size("exactly", 0.0),),
    cause="centroid",
)
TWICE = Trial(
    "centre-subtracted-twice",
    "DC301",
    _CLOUDS,
    _stored,
    _again(0.1),
    (Size("10 %", 2.0),),
    cause="double",
)
TWICE_ALL = Trial(
    "all-centres-subtracted-twice",
    "DC301",
    _CLOUDS,
    _stored,
    _again(1.0),
    (Size("all", 2.0),),
    cause="double",
)
NEVER = Trial(
    "centre-never-subtracted",
    "DC301",
    _CLOUDS,
    _stored,
    _again(0.1),
    (Size("10 %", 0.0),),
    cause="never",
)
NEVER_ALL = Trial(
    "no-centre-subtracted",
    "DC301",
    _CLOUDS,
    _stored,
    _again(1.0),
    (Size("all", 0.0),),
    cause="never",
)
MIXED = Trial(
    "some-centred",
    "DC302",
    _UNSAID,
    _scattered,
    _half_centred,
    (Size("2 %", 0.02), Size("40 %", 0.4), Size("95 %", 0.95)),
)
OPENCV = Trial(
    "opencv-for-opengl",
    "DC303",
    _HANDS,
    _hands,
    _some(0.1, "j", lambda j, v: j * _FLIP),
    (Size("10 %", 0.0),),
    cause="camera_opencv",
)
OPENCV_ALL = Trial(
    "all-opencv-for-opengl",
    "DC303",
    _HANDS,
    _hands,
    _some(1.0, "j", lambda j, v: j * _FLIP),
    (Size("all", 0.0),),
    cause="camera_opencv",
)
GONE = Trial(
    "hand-out-of-view",
    "DC606",
    _HANDS,
    _hands,
    _some(0.05, "j", lambda j, v: j + np.array([v, 0, 0])),
    (Size("15 cm aside", 0.15, documented=False), Size("1 m aside", 1.0)),
    also=frozenset({"DC303"}),
)
