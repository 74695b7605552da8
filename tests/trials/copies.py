"""Near copies: texts and chats with some words replaced, clouds scanned again, episodes with noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Samples, Size, Trial, sample

Array = np.ndarray[Any, Any]

_NEAR = {"duplicates": {"near": 0.8}}
_TEXT = _NEAR | {"fields": {"text": {"role": "text"}}}
_CHAT = _NEAR | {"fields": {"conversations": {"role": "chat"}}}
_CLOUD = _NEAR | {"fields": {"xyz": {"role": "points", "shape": ["P", 3]}}}
_EPISODE = _NEAR | {"fields": {"action": {"role": "action", "shape": ["T", 7]}}}
_COUNT = 40


def word(rng: np.random.Generator) -> str:
    """Return a word of two to nine letters."""
    return "".join(map(chr, rng.integers(97, 123, int(rng.integers(2, 10))).tolist()))


def phrase(rng: np.random.Generator) -> str:
    """Return two to four Chinese characters."""
    return "".join(map(chr, rng.integers(0x4E00, 0x9000, int(rng.integers(2, 5))).tolist()))


def _words(rng: np.random.Generator, place: int) -> list[str]:
    make = word if place % 2 else phrase
    return [make(rng) for _ in range(int(rng.integers(60, 160)))]


def _edited(words: Sequence[str], share: float, rng: np.random.Generator) -> list[str]:
    """Replace a share of the words, each run of five of them together."""
    out, left = list(words), max(1, round(share * len(words)))
    blocks = rng.permutation(len(words) // 5)
    for block in blocks.tolist():
        for place in range(5 * block, 5 * block + min(5, left)):
            out[place] = word(rng) if words[place].isascii() else phrase(rng)
        left -= min(5, left)
    return out


def _joined(words: Sequence[str]) -> str:
    return (" " if words[0].isascii() else "").join(words)


def _texts(rng: np.random.Generator) -> Samples:
    return [sample(f"t{i:03d}", {"text": _joined(_words(rng, i))}) for i in range(_COUNT)]


def _chats(rng: np.random.Generator) -> Samples:
    made = []
    for i in range(_COUNT):
        turns = [
            {"role": role, "content": _joined(_words(rng, i))}
            for role in ("user", "assistant", "user", "assistant")
        ]
        made.append(sample(f"t{i:03d}", {"conversations": turns}))
    return made


def _clouds(rng: np.random.Generator) -> Samples:
    seeds = rng.integers(0, 1 << 30, 12).tolist()
    return [
        sample(f"t{i:03d}_{seed}", {"xyz": surface(rng, shape(seed), 8192)})
        for i, seed in enumerate(seeds)
    ]


def shape(seed: int) -> Array:
    """Return an object of five boxes, float64 (5, 2, 3): centres and half sizes."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.uniform(-0.5, 0.5, (5, 3)), rng.uniform(0.05, 0.4, (5, 3))], axis=1)


def surface(rng: np.random.Generator, boxes: Array, count: int) -> Array:
    """Return points on the faces of boxes, float32 (count, 3)."""
    which, face = rng.integers(0, len(boxes), count), rng.integers(0, 3, count)
    unit = rng.uniform(-1, 1, (count, 3))
    unit[np.arange(count), face] = np.sign(unit[np.arange(count), face])
    points: Array = (boxes[which, 0] + unit * boxes[which, 1]).astype(np.float32)
    return points


def _scanned(piece: Piece, share: float, rng: np.random.Generator) -> Array:
    """Replace a share of the points by others of the same surface, and move and scale the whole."""
    xyz = piece.fields["xyz"].copy()
    chosen = rng.choice(len(xyz), round(share * len(xyz)), replace=False)
    xyz[chosen] = surface(rng, shape(int(piece.key.rpartition("_")[2])), len(chosen))
    moved: Array = xyz * np.float32(rng.uniform(0.5, 2)) + rng.normal(size=3).astype(np.float32)
    return moved


def course(rng: np.random.Generator, steps: int, width: int = 7) -> Array:
    """Return a smooth motion, float32 (steps, width)."""
    time = np.linspace(0, 1, steps)[:, None, None]
    waves = np.sin(
        2 * np.pi * (rng.uniform(0.2, 3, (width, 4)) * time + rng.uniform(0, 1, (width, 4)))
    )
    motion: Array = (waves * rng.uniform(0.1, 1, (width, 4))).sum(axis=2) * rng.uniform(
        0.2, 2, width
    )
    return motion.astype(np.float32)


def _episodes(rng: np.random.Generator) -> Samples:
    return [
        sample(f"t{i:03d}", {"action": course(rng, int(rng.integers(60, 300)))})
        for i in range(_COUNT)
    ]


def _changed(piece: Piece, size: float, rng: np.random.Generator) -> dict[str, Any]:
    """Return the fields of a near copy."""
    fields = piece.fields
    if "xyz" in fields:
        return {"xyz": _scanned(piece, size, rng)}
    if "action" in fields:
        action = fields["action"]
        return {
            "action": action
            + (size * np.ptp(action, axis=0) * rng.standard_normal(action.shape)).astype("f4")
        }
    if "text" in fields:
        return {"text": _again(fields["text"], size, rng)}
    turns = [
        turn | {"content": _again(turn["content"], size, rng)} for turn in fields["conversations"]
    ]
    return {"conversations": turns}


def _again(text: str, share: float, rng: np.random.Generator) -> str:
    words = text.split() if text.isascii() else [text[i : i + 3] for i in range(0, len(text), 3)]
    return _joined(_edited(words, share, rng))


def _copied(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    keys = []
    for number, place in enumerate(rng.choice(len(samples), 6, replace=False).tolist()):
        split, piece = samples[place]
        keys.append(f"z{number}")
        samples.append(sample(keys[-1], _changed(piece, size, rng), split=split))
    return keys


_WORDS = (
    Size("1 % of the words", 0.01),
    Size("5 % of the words", 0.05),
    Size("30 % of the words", 0.3, documented=False),
)
TEXTS = Trial("edited-text", "DC804", _TEXT, _texts, _copied, _WORDS)
CHATS = Trial("edited-chat", "DC804", _CHAT, _chats, _copied, _WORDS)
CLOUDS = Trial(
    "cloud-scanned-again",
    "DC804",
    _CLOUD,
    _clouds,
    _copied,
    (
        Size("a tenth of the points", 0.1),
        Size("half of the points", 0.5),
        Size("all points", 1.0, documented=False),
    ),
)
EPISODES = Trial(
    "episode-with-noise",
    "DC804",
    _EPISODE,
    _episodes,
    _copied,
    (
        Size("0.1 % of the range", 0.001),
        Size("1 % of the range", 0.01),
        Size("5 % of the range", 0.05, documented=False),
    ),
)
