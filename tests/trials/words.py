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


_TAGGED = {"fields": {"words": {"dtype": "json"}, "tags": {"dtype": "json"}}}


def _tagged(rng: np.random.Generator) -> Samples:
    """Sentences with names of one word, each followed by a comma."""
    found: Samples = []
    for number in range(400):
        words, tags = [f"s{number}"], ["O"]
        for _ in range(int(rng.integers(2, 6))):
            words += [
                *map(str, rng.choice(_WORDS, 4)),
                str(rng.choice(["Oslo", "Lima", "Quito"])),
                ",",
            ]
            tags += ["O"] * 4 + [f"B-{rng.choice(['LOC', 'ORG', 'PER'])}", "O"]
        found.append(sample(f"t{number:03d}", {"words": words, "tags": tags}))
    return found


def _late(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, size, rng, 5)
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, tags=["O", *piece.fields["tags"][:-1]])
    return [samples[place][1].key for place in places]


def _joined(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    first = int(rng.integers(len(samples) - int(size)))
    parts = [piece.fields for _, piece in samples[first : first + int(size)]]
    split, piece = samples[first]
    joined = {name: [word for part in parts for word in part[name]] for name in ("words", "tags")}
    samples[first : first + int(size)] = [(split, changed(piece, **joined))]
    return [piece.key]


LATE = Trial(
    "tags-one-word-late",
    "DC719",
    _TAGGED,
    _tagged,
    _late,
    (Size("2 %", 0.02), Size("10 %", 0.1)),
    "late",
)
JOINED = Trial(
    "sentences-joined",
    "DC719",
    _TAGGED,
    _tagged,
    _joined,
    (Size("20", 20), Size("60", 60)),
    "joined",
)


def _renamed(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Give a class another name in a block of so many sentences."""
    first = int(rng.integers(len(samples) - int(size)))
    named = []
    for place in range(first, first + int(size)):
        split, piece = samples[place]
        tags = [tag.replace("PER", "PERS") for tag in piece.fields["tags"]]
        if tags != piece.fields["tags"]:
            named.append(piece.key)
        samples[place] = split, changed(piece, tags=tags)
    return named


RENAMED = Trial(
    "class-renamed-in-a-block",
    "DC413",
    _TAGGED,
    _tagged,
    _renamed,
    (Size("30 sentences", 30), Size("100 sentences", 100)),
    "block",
)


_ANSWERED = {
    "fields": {"question": {"role": "text"}, "answer": {"role": "text"}},
    "rules": {"DC803": "off", "DC718": "off"},
}


def _answered(rng: np.random.Generator) -> Samples:
    """Questions about a person, an object and a number, and answers that name person and object."""
    found = []
    for number in range(600):
        name, thing = ("".join(rng.choice(list("abcdefghiklmnoprstu"), 7)) for _ in range(2))
        question = f"How often does {name} visit the {thing} when {rng.integers(10, 99)} are open?"
        parts = [
            f"{name} is there every week",
            f"the {thing} is far",
            f"{rng.integers(10, 99)} times",
        ]
        told = ", and ".join(rng.permutation(parts))
        found.append(sample(f"t{number:03d}", {"question": question, "answer": f"{told}."}))
    return found


def _moved(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Give each question of a block the answer to the one before."""
    first = int(rng.integers(1, len(samples) - int(size)))
    answers = [piece.fields["answer"] for _, piece in samples]
    for place in range(first, first + int(size)):
        split, piece = samples[place]
        samples[place] = split, changed(piece, answer=answers[place - 1])
    return [samples[place][1].key for place in range(first, first + int(size))]


MOVED = Trial(
    "answers-one-row-late",
    "DC720",
    _ANSWERED,
    _answered,
    _moved,
    (Size("60", 60, documented=False), Size("200", 200)),
    "before",
)
