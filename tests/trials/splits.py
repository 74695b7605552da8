"""Splits and copies: samples on both sides of a split, twice in one, and splits that are too small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Samples, Size, Trial, changed, sample

_SPLIT = {
    "fields": {
        "xyz": {"role": "points", "shape": ["P", 3]},
        "label": {"role": "class", "shape": ["P"], "classes": 5},
    },
    "splits": {"key": "room", "disjoint": ["train", "val"]},
}
_ROOMS, _TAKES = 60, 4


def _scenes(rng: np.random.Generator) -> Samples:
    """Takes of rooms; every fifth room is held out."""
    made = []
    for room in range(_ROOMS):
        split = "val" if room % 5 == 0 else "train"
        for take in range(_TAKES):
            xyz = (rng.normal(size=(40, 3)) + rng.normal(size=3)).astype(np.float32)
            fields = {"xyz": xyz, "label": rng.integers(0, 5, 40)}
            made.append(
                sample(f"{split}/r{room:02d}_{take}", fields, split=split, split_key=f"r{room:02d}")
            )
    return made


def _copied(source: Piece, key: str, rng: np.random.Generator, **facts: str) -> Piece:
    """Return a copy under another name, its points in another order."""
    order = rng.permutation(len(source.fields["xyz"]))
    fields = {name: value[order] for name, value in source.fields.items()}
    return Piece(key, fields, source.origin, source.group, {**source.facts, "id": key, **facts})


def _leaked(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Put copies of training samples into val, under names of their own."""
    train = [piece for split, piece in samples if split == "train"]
    keys = [f"val/copy{i:03d}" for i in range(int(size))]
    for i, (key, place) in enumerate(
        zip(keys, rng.choice(len(train), len(keys), replace=False), strict=True)
    ):
        samples.append(("val", _copied(train[int(place)], key, rng, split_key=f"n{i:02d}")))
    return keys


def _shared(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Move single takes of training rooms to val."""
    places = [
        i
        for i, (split, piece) in enumerate(samples)
        if split == "train" and piece.key.endswith("_0")
    ]
    keys = []
    for place in rng.choice(places, int(size), replace=False).tolist():
        samples[place] = "val", samples[place][1]
        keys.append(samples[place][1].key)
    return keys


def _doubled(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Put copies of training samples into train, behind the rest."""
    train = [piece for split, piece in samples if split == "train"]
    keys = [f"zz{i:03d}" for i in range(int(size))]
    for key, place in zip(keys, rng.choice(len(train), len(keys), replace=False), strict=True):
        samples.append(("train", _copied(train[int(place)], key, rng)))
    return keys


def _lost(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Keep only so many samples of val."""
    places = [i for i, (split, _) in enumerate(samples) if split == "val"]
    keep = set(rng.choice(places, int(size), replace=False).tolist())
    samples[:] = [one for i, one in enumerate(samples) if i in keep or one[0] != "val"]
    return []


def _without_class(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Turn a class of val into another one."""
    lost = int(rng.integers(5))
    for place, (split, piece) in enumerate(samples):
        if split == "val":
            label = piece.fields["label"].copy()
            label[label == lost] = (lost + int(size)) % 5
            samples[place] = split, changed(piece, label=label)
    return []


_FEW = (Size("1 sample", 1), Size("5 samples", 5), Size("20 samples", 20))
LEAKED = Trial("copied-into-val", "DC801", _SPLIT, _scenes, _leaked, _FEW)
SHARED = Trial("room-on-both-sides", "DC802", _SPLIT, _scenes, _shared, _FEW)
DOUBLED = Trial("copied-within-train", "DC803", _SPLIT, _scenes, _doubled, _FEW)
SMALL = Trial("tiny-split", "DC805", _SPLIT, _scenes, _lost, (Size("1 of 193", 1),), "small")
NO_CLASS = Trial(
    "class-lost-in-val", "DC805", _SPLIT, _scenes, _without_class, (Size("one class", 1),), "class"
)
