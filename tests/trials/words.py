"""Texts that say nothing, and files that begin with a byte order mark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Samples, Size, Trial, changed, sample, some

_WORDS = [
    "robot",
    "puts",
    "bowl",
    "on",
    "plate",
    "and",
    "opens",
    "drawer",
    "of",
    "cabinet",
    "slowly",
    "twice",
]


def _texts(rng: np.random.Generator) -> Samples:
    return [sample(f"t{i:03d}", {"text": " ".join(rng.choice(_WORDS, 30))}) for i in range(200)]


def _emptied(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, size, rng)
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, text=str(rng.choice(["", "  \n", "None"])))
    return [samples[place][1].key for place in places]


EMPTY = Trial(
    "empty-text",
    "DC705",
    {"fields": {"text": {"role": "text"}}},
    _texts,
    _emptied,
    (Size("1 %", 0.01), Size("10 %", 0.1)),
    also=frozenset({"DC803", "DC702"}),
)


def _marked(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Put a byte order mark before the first line: all lines of that file are read together, and say so."""
    del size, rng
    for place, (split, piece) in enumerate(samples):
        facts = dict(piece.facts) | {"bom": np.asarray(place == 0)}
        samples[place] = split, Piece(piece.key, piece.fields, piece.origin, piece.group, facts)
    return [samples[0][1].key]


MARKED = Trial(
    "byte-order-mark",
    "DC701",
    {"fields": {"text": {"role": "text"}}},
    _texts,
    _marked,
    (Size("one file", 1.0),),
    cause="bom",
)
