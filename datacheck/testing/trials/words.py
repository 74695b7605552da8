"""Texts that say nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.testing.trials.base import Samples, Size, Trial, changed, sample, some

_WORDS = ["robot", "puts", "bowl", "on", "plate", "and", "opens", "drawer", "of", "cabinet", "slowly", "twice"]


def _texts(rng: np.random.Generator) -> Samples:
    return [sample(f"t{i:03d}", {"text": " ".join(rng.choice(_WORDS, 30))}) for i in range(200)]


def _emptied(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, size, rng)
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, text=str(rng.choice(["", "  \n", "None"])))
    return [samples[place][1].key for place in places]


EMPTY = Trial(
    "empty-text", "DC705", {"fields": {"text": {"role": "text"}}}, _texts, _emptied,
    (Size("1 %", 0.01), Size("10 %", 0.1)), also=frozenset({"DC803", "DC702"}),
)  # fmt: skip
