"""Boxes of a detector in the form of COCO, whose stated areas show how the boxes were written."""

from __future__ import annotations

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Samples, Size, Trial, changed, edited, sample

_SCHEMA = {
    "fields": {
        "box": {"role": "boxes", "shape": ["N", 4], "unit": "px", "areas": "area"},
        "area": {"shape": ["N"]},
    }
}
_COUNT, _WIDTH, _HEIGHT = 40, 640, 480


def _pictures(rng: np.random.Generator) -> Samples:
    """Pictures with one to five boxes each: corners, and areas to two digits."""
    made: Samples = []
    for number in range(_COUNT):
        count = int(rng.integers(1, 6))
        low = rng.uniform(5, (_WIDTH / 2, _HEIGHT / 2), (count, 2))
        sides = rng.uniform(10, (_WIDTH / 2, _HEIGHT / 2), (count, 2))
        fields = {
            "box": np.round(np.concatenate([low, low + sides], axis=1), 2),
            "area": np.round(sides.prod(axis=1), 2),
        }
        made.append(sample(f"p{number:02d}", fields))
    return made


def _as_corners(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    """Read corners as if the last two numbers were width and height, in one box or in all."""
    box = piece.fields["box"].copy()
    chosen = slice(None) if value else int(rng.integers(len(box)))
    box[chosen, 2:] += box[chosen, :2]
    return changed(piece, box=box)


def _shrunk(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    """Boxes of a picture that was made smaller, with the areas of the large one."""
    del rng
    return changed(piece, box=piece.fields["box"] * value)


_YOLO_SCHEMA = {
    "fields": {
        "image": {"role": "image", "shape": ["H", "W", 3]},
        "box": {
            "role": "boxes",
            "shape": ["N", 4],
            "unit": "1",
            "box_format": "cxcywh",
            "pixels_of": "image",
        },
    }
}
_SMALL = np.array([64, 48])


def _labelled(rng: np.random.Generator) -> Samples:
    """Pictures with one to five boxes each: centre and size in fractions."""
    made: Samples = []
    for number in range(_COUNT):
        size = rng.uniform(0.05, 0.5, (int(rng.integers(1, 6)), 2))
        centre = rng.uniform(size / 2, 1 - size / 2)
        fields = {
            "image": rng.integers(0, 255, (_SMALL[1], _SMALL[0], 3), dtype=np.uint8),
            "box": np.round(np.concatenate([centre, size], axis=1), 6),
        }
        made.append(sample(f"p{number:02d}", fields))
    return made


def _multiplied(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    """Boxes in pixels, of the picture or of a larger one."""
    del rng
    return changed(piece, box=piece.fields["box"] * np.tile(_SMALL, 2) * value)


_TWO_SCHEMA = {
    "fields": {
        "image": {"role": "image", "shape": ["H", "W", 3]},
        "csv": {"role": "boxes", "shape": ["N", 4], "unit": "px", "pixels_of": "image"},
        "xml": {"role": "boxes", "shape": ["M", 4], "unit": "px", "pixels_of": "image"},
    }
}


def _annotated_twice(rng: np.random.Generator) -> Samples:
    """Pictures with one to five boxes each, in two annotations that count pixels from 0 and 1."""
    made: Samples = []
    for number in range(_COUNT):
        low = rng.integers(1, _SMALL // 3, (int(rng.integers(1, 6)), 2))
        box = np.hstack([low, 2 * low + rng.integers(2, _SMALL // 3 - 2, low.shape)])
        image = rng.integers(0, 255, (_SMALL[1], _SMALL[0], 3), dtype=np.uint8)
        made.append(sample(f"p{number:02d}", {"image": image, "csv": box, "xml": box[::-1] - 1}))
    return made


def _as_sides(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    """Write width and height in place of a corner, in one annotation."""
    del rng, value
    box = piece.fields["xml"].copy()
    box[:, 2:] -= box[:, :2]
    return changed(piece, xml=box)


TWO_ANNOTATIONS = Trial(
    "width-in-one-annotation",
    "DC409",
    _TWO_SCHEMA,
    _annotated_twice,
    edited(0.2, _as_sides),
    (Size("in all boxes", 1.0),),
    "sides",
)
FRACTIONS = Trial(
    "fractions-in-pixels",
    "DC409",
    _YOLO_SCHEMA,
    _labelled,
    edited(0.2, _multiplied),
    (Size("of the picture", 1.0),),
    "pixels",
)

CORNERS, OLD_AREAS = (
    Trial(
        "corners-as-sides",
        "DC414",
        _SCHEMA,
        _pictures,
        edited(0.2, _as_corners),
        (Size("one box", 0.0), Size("all boxes", 1.0)),
        "corners",
    ),
    Trial(
        "areas-of-another-size",
        "DC414",
        _SCHEMA,
        _pictures,
        edited(0.2, _shrunk),
        (Size("x0.5", 0.5), Size("x0.98", 0.98, documented=False)),
    ),
)
