"""Scenes: instances that are missing, tiny or of two classes; captions, boxes and ground truths of other scenes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Plant, Samples, Size, Trial, changed, edited, sample

Array = np.ndarray[Any, Any]

NONE = -100
_FIELDS = {
    "xyz": {"role": "points", "shape": ["P", 3], "unit": "m"},
    "label": {"role": "class", "shape": ["P"], "classes": "0..30", "ignore": [NONE]},
    "id": {"role": "instance", "shape": ["P"], "ignore": [NONE]},
    "segment": {"role": "segment", "shape": ["P"]},
    "told": {"role": "captions", "annotates": "id"},
    "gt": {"role": "ground_truth", "shape": ["P"], "encodes": ["label", "id"]},
    "box": {"role": "boxes", "shape": ["N", 7], "encloses": "xyz"},
}
_SCHEMA = {
    "fields": _FIELDS,
    "loader": {"voxel": 0.05, "drop_classes": [0], "min_points": 10, "captions": "told"},
}


def _rooms(rng: np.random.Generator) -> Samples:
    return [sample(f"s{i:03d}", _room(rng)) for i in range(12)]


def _room(rng: np.random.Generator) -> dict[str, Any]:
    """Five to nine objects of 60 to 400 points in cells of a grid, and points of nothing; some labels are missing."""
    count = int(rng.integers(5, 10))
    sizes = rng.integers(60, 400, count)
    names = np.sort(rng.choice(np.arange(1, 300), count, replace=False))
    which = np.repeat(np.arange(count), sizes)
    extent = rng.uniform(0.4, 0.9, (count, 3))
    middle = np.stack([which_cell(np.arange(count), 3), np.full(count, 0.5)]).T
    middle = np.concatenate([middle[:, :2] * 1.2, rng.uniform(0.3, 0.6, (count, 1))], axis=1)
    xyz = middle[which] + extent[which] * rng.uniform(-0.5, 0.5, (len(which), 3))
    stray = int(rng.integers(20, 80))
    xyz = np.concatenate([xyz, rng.uniform(0, 4, (stray, 3))])
    ids = np.concatenate([names[which], np.full(stray, NONE)])
    classes = rng.integers(1, 31, count)
    label = np.concatenate([classes[which], np.where(rng.uniform(size=stray) < 0.5, 0, NONE)])
    segment = np.concatenate(
        [2 * which + rng.integers(0, 2, len(which)), np.full(stray, 2 * count)]
    )
    segment = np.unique(segment, return_inverse=True)[1]
    yaw = rng.choice([0.0, np.pi / 2], count)
    turned = np.where(yaw[:, None] > 0, extent[:, [1, 0, 2]], extent)
    order = rng.permutation(len(ids))
    return {
        "xyz": xyz[order].astype(np.float32),
        "label": label[order].astype(np.float32),
        "id": ids[order].astype(np.float32),
        "segment": segment[order].astype(np.float32),
        "told": {str(int(name)): {"text": "a thing"} for name in names},
        "gt": (label * 1000 + ids + 1)[order].astype(np.int64),
        "box": np.concatenate([middle, turned + 0.01, yaw[:, None]], axis=1),
    }


def which_cell(number: Array, columns: int) -> Array:
    """Return the column of a grid of so many columns in which each object stands; rows follow one another."""
    return np.asarray(number % columns + 10.0 * (number // columns), dtype=np.float64)


def _each(
    share: float, change: Callable[[Piece, float, np.random.Generator], dict[str, Any]]
) -> Plant:
    return edited(share, lambda piece, value, rng: changed(piece, **change(piece, value, rng)), 1)


def _truth(label: Array, ids: Array) -> Array:
    return np.asarray(label.astype(np.int64) * 1000 + ids.astype(np.int64) + 1)


def _pick(piece: Piece, rng: np.random.Generator) -> Array:
    """Return the rows of one instance, chosen by chance."""
    ids = piece.fields["id"]
    return np.flatnonzero(ids == rng.choice(np.unique(ids[ids >= 0])))


def _nothing(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    ids = np.full_like(piece.fields["id"], NONE)
    return {"id": ids, "gt": _truth(piece.fields["label"], ids)}


def _kept(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """Every instance keeps only so many points."""
    ids = piece.fields["id"].copy()
    for name in np.unique(ids[ids >= 0]):
        ids[np.flatnonzero(ids == name)[int(value) :]] = NONE
    return {"id": ids, "gt": _truth(piece.fields["label"], ids)}


def _split(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """One instance falls into that many fragments of 4 points beside the rest."""
    rows, ids, told = _pick(piece, rng), piece.fields["id"].copy(), dict(piece.fields["told"])
    for k in range(int(value)):
        ids[rows[4 * k : 4 * k + 4]] = 400 + k
        told[str(400 + k)] = {"text": "a part"}
    return {
        "id": ids,
        "told": told,
        "gt": _truth(piece.fields["label"], ids),
        "box": _padded(piece, int(value)),
    }


def _padded(piece: Piece, more: int) -> Array:
    return np.asarray(
        np.concatenate([piece.fields["box"], np.repeat(piece.fields["box"][:1], more, axis=0)])
    )


def _two_classes(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    rows, label = _pick(piece, rng), piece.fields["label"].copy()
    label[rows[: int(np.ceil(value * len(rows)))]] = label[rows[0]] % 30 + 1
    return {"label": label, "gt": _truth(label, piece.fields["id"])}


def _more_told(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {
        "told": piece.fields["told"]
        | {str(700 + i): {"text": "a thing"} for i in range(int(value))}
    }


def _less_told(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    told = dict(piece.fields["told"])
    for name in sorted(told)[: int(value)]:
        del told[name]
    return {"told": told}


def _large_id(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    rows, ids, told = _pick(piece, rng), piece.fields["id"].copy(), dict(piece.fields["told"])
    told[str(int(value))] = told.pop(str(int(ids[rows[0]])))
    ids[rows] = value
    return {"id": ids, "told": told, "gt": _truth(piece.fields["label"], ids)}


def _old_truth(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """The class of that many instances was corrected after the ground truth had been written."""
    label = piece.fields["label"].copy()
    ids = piece.fields["id"]
    for name in np.unique(ids[ids >= 0])[: int(value)]:
        label[ids == name] = label[ids == name] % 30 + 1
    return {"label": label}


def _rolled_truth(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"gt": np.roll(piece.fields["gt"], int(value))}


def _plain_truth(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"gt": piece.fields["gt"] - 1}


def _no_extent(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    box = piece.fields["box"].copy()
    box[: int(value), 3 + int(rng.integers(3))] *= -1.0
    return {"box": box}


def _zero_boxes(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    box = piece.fields["box"]
    return {"box": np.concatenate([box, np.zeros((int(value), 7))])}


def _moved_boxes(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"box": piece.fields["box"] + [value, 0, 0, 0, 0, 0, 0]}


def _exchanged_axes(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """Move a scene by value along x, and write its boxes with x and z exchanged."""
    boxes = piece.fields["box"].copy()
    boxes[:, 0] += value
    boxes[:, [0, 2]] = boxes[:, [2, 0]]
    return {"box": boxes, "xyz": piece.fields["xyz"] + np.float32([value, 0, 0])}


def _segment_gap(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    segment = piece.fields["segment"].copy()
    segment[segment > segment.max() / 2] += np.float32(value)
    return {"segment": segment}


def _trial(
    name: str, code: str, change: Callable[..., dict[str, Any]], *sizes: Size, **more: Any
) -> Trial:
    return Trial(name, code, _SCHEMA, _rooms, _each(0.25, change), sizes, **more)


_ONE, _THREE = Size("1", 1.0), Size("3", 3.0)
NO_INSTANCES = _trial("no-instances", "DC401", _nothing, Size("all points", 0.0))
EMPTIED = _trial(
    "emptied-scene", "DC402", _kept, _THREE, Size("6 points each", 6.0), cause="min_points"
)
FRAGMENTS = _trial("fragments", "DC403", _split, Size("3", 3.0), Size("5", 5.0), cause="tiny")
TWO_CLASSES = _trial(
    "two-classes",
    "DC406",
    _two_classes,
    Size("7 %", 0.07),
    Size("20 %", 0.2),
    Size("40 %", 0.4),
    cause="first",
)
ORPHANS = _trial("orphan-captions", "DC408", _more_told, _ONE, _THREE)
BARE = _trial("missing-captions", "DC408", _less_told, Size("1", 1.0), _THREE, cause="bare")
LARGE_ID = _trial("large-instance-id", "DC410", _large_id, Size("999", 999.0), Size("4000", 4000.0))
OLD_TRUTH = _trial("old-ground-truth", "DC411", _old_truth, _ONE, _THREE, cause="class")
ROLLED_TRUTH = _trial(
    "rows-in-another-order", "DC411", _rolled_truth, _ONE, Size("50", 50.0), cause="order"
)
PLAIN_TRUTH = _trial("ground-truth-without-one", "DC411", _plain_truth, _ONE, cause="offset")
NEGATIVE_BOXES = _trial("negative-size", "DC409", _no_extent, _ONE, _THREE, cause="flat")
ZERO_BOXES = _trial("zero-boxes", "DC409", _zero_boxes, _ONE, Size("20", 20.0), cause="padding")
MOVED_BOXES = _trial(
    "moved-boxes", "DC409", _moved_boxes, Size("30 m", 30.0), Size("1000 m", 1000.0), cause="frame"
)
EXCHANGED_AXES = _trial(
    "exchanged-axes", "DC409", _exchanged_axes, Size("30 m away", 30.0), cause="exchanged"
)
SEGMENT_GAPS = _trial("segment-gaps", "DC412", _segment_gap, _ONE, Size("100", 100.0))


def _clipped_rooms(rng: np.random.Generator) -> Samples:
    """Rooms of 5,000 points, most of which belong to no object: a hundredth of a large scene of ScanNet++."""
    found: Samples = []
    for i in range(12):
        room = _room(rng)
        more = 5000 - len(room["id"])
        found.append(
            sample(
                f"s{i:03d}",
                {
                    "xyz": np.concatenate(
                        [room["xyz"], rng.uniform(0, 4, (more, 3)).astype(np.float32)]
                    ),
                    "label": np.concatenate([room["label"], np.zeros(more, np.float32)]),
                    "id": np.concatenate([room["id"], np.full(more, NONE, np.float32)]),
                },
            )
        )
    return found


def _slivers(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """That many parts of 2 points of an instance become instances of their own."""
    rows, ids = _pick(piece, rng), piece.fields["id"].copy()
    for k in range(int(value)):
        ids[rows[2 * k : 2 * k + 2]] = 400 + k
    return {"id": ids}


def _clip(share: str, points: int, *sizes: Size) -> Trial:
    schema = {
        "fields": {name: _FIELDS[name] for name in ("xyz", "label", "id")},
        "loader": {"clip": points},
    }
    return Trial(
        f"lost-by-a-clip-to-{share}-percent",
        "DC403",
        schema,
        _clipped_rooms,
        _each(0.25, _slivers),
        sizes,
        cause="clip",
    )


# 500,000 points to 300,000 and to 150,000; an instance of 2 points is lost with 0.4^2 and 0.7^2
CLIP_60 = _clip(
    "60", 3000, Size("3 of 2 points", 3.0, documented=False), Size("10 of 2 points", 10.0)
)
CLIP_30 = _clip("30", 1500, Size("3 of 2 points", 3.0), Size("10 of 2 points", 10.0))


def _grouped(rng: np.random.Generator) -> Samples:
    """Scenes of 30 to 60 segments, called by one of their vertices; most of them belong to an object."""
    return [sample(f"g{i:02d}", _groups(rng)) for i in range(12)]


def _groups(rng: np.random.Generator) -> dict[str, Any]:
    count, objects = int(rng.integers(30, 60)), int(rng.integers(5, 12))
    which = np.sort(rng.integers(0, count, 2000))
    segment = np.unique(which, return_index=True)[1][np.unique(which, return_inverse=True)[1]]
    owner = rng.integers(0, objects + 1, count)  # the last owner is none
    own = [np.unique(segment[owner[which] == k]).tolist() for k in range(objects)]
    told = [
        {"id": k, "objectId": k, "segments": mine, "label": f"thing {k % 4}"}
        for k, mine in enumerate(own)
    ]
    return {"segment": segment, "groups": told}


def _absent_segments(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    told = piece.fields["groups"]
    place = int(rng.integers(len(told)))
    more = {"segments": [*told[place]["segments"], *(5000 + i for i in range(int(value)))]}
    return {"groups": [group | more if i == place else group for i, group in enumerate(told)]}


def _other_segments(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"segment": piece.fields["segment"] + int(value)}


def _groups_again(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    told = [group for group in piece.fields["groups"] if group["segments"]]
    return {
        "groups": [*piece.fields["groups"], *({**group, "id": 90} for group in told[: int(value)])]
    }


_SEGMENTED = {
    "segment": {"role": "segment", "shape": ["P"]},
    "groups": {"role": "id", "dtype": "json", "annotates": "segment"},
}
_GROUPED = {"fields": _SEGMENTED, "rules": {"DC412": "off"}}
ABSENT_SEGMENTS = Trial(
    "absent-segments", "DC408", _GROUPED, _grouped, _each(0.25, _absent_segments), (_ONE, _THREE)
)
OTHER_SEGMENTS = Trial(
    "other-segments",
    "DC408",
    _GROUPED,
    _grouped,
    _each(0.25, _other_segments),
    (Size("moved by 1e6", 1e6),),
    cause="other-scene",
)
GROUPS_AGAIN = Trial(
    "groups-twice",
    "DC408",
    _GROUPED,
    _grouped,
    _each(0.25, _groups_again),
    (_ONE, _THREE),
    cause="repeated",
)


def _masks(rng: np.random.Generator) -> Samples:
    """Masks of an object that covers 5 to 60 % of a picture."""
    share = rng.uniform(0.05, 0.6, 40)
    return [
        sample(f"m{i:02d}", {"mask": rng.uniform(size=(24, 32)) < s}) for i, s in enumerate(share)
    ]


def _filled(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"mask": np.full((24, 32), value > 0)}


def _covered(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"mask": rng.uniform(size=(24, 32)) < value}


_MASK = {"role": "mask", "shape": [24, 32]}
DEGENERATE = Trial(
    "degenerate-mask",
    "DC407",
    {"fields": {"mask": _MASK}},
    _masks,
    _each(0.1, _filled),
    (Size("empty", 0.0), Size("full", 1.0)),
    cause=lambda v: "full" if v else "empty",
    also=frozenset({"DC803"}),
)
SHARE = Trial(
    "mask-share",
    "DC407",
    {"fields": {"mask": _MASK | {"share": "0.01..0.75"}}},
    _masks,
    _each(0.1, _covered),
    (Size("90 %", 0.9),),
    cause="share",
)
