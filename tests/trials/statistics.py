"""Statistics: clipped values, samples, rows or labels far from the rest, a normaliser of other data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datacheck.model.sample import Piece
from tests.trials.base import Samples, Size, Trial, changed, edited, edited_field, sample, some

_ACTION: dict[str, Any] = {"fields": {"a": {"role": "action", "shape": ["T", 3]}}}
_SCALE = np.array([1.0, 0.3, 20.0])


def _actions(rng: np.random.Generator) -> Samples:
    """Smooth motions of three very different dimensions."""
    found: Samples = []
    for i in range(60):
        steps = int(rng.integers(60, 140))
        phase, speed = rng.uniform(0, 6, 3), rng.uniform(0.05, 0.2, 3)
        waves = np.sin(speed * np.arange(steps)[:, None] + phase) + 0.3 * rng.normal(
            size=(steps, 3)
        )
        found.append(sample(f"e{i:03d}", {"a": _SCALE * waves + [0.1, 0.0, 5.0]}))
    return found


def _clip(samples: Samples, at: float, rng: np.random.Generator) -> Sequence[str]:
    del rng
    for place, (split, piece) in enumerate(samples):
        a = piece.fields["a"].copy()
        a[:, 0] = np.minimum(a[:, 0], at)
        samples[place] = split, changed(piece, a=a)
    return ()


CLIPPED = Trial(
    "clipped-actions",
    "DC225",
    _ACTION,
    _actions,
    _clip,
    (Size("a few", 1.3), Size("many", 1.0), Size("half", 0.4)),
    cause="clipped",
)


def _by_task(rng: np.random.Generator) -> Samples:
    """The same motions, ten tasks of six episodes, with a gripper of two states that one task leaves alone."""
    found: Samples = []
    for number, (_, piece) in enumerate(_actions(rng)):
        a, task = piece.fields["a"], number // 6
        gripper = np.where((np.arange(len(a)) > len(a) // 2) & (task != 3), 1.0, -1.0)
        found.append(sample(piece.key, {"a": np.column_stack([a, gripper])}, group=f"task{task}"))
    return found


def _still(samples: Samples, tasks: float, rng: np.random.Generator) -> Sequence[str]:
    """Record an axis as what it was at the start, in every episode of some tasks."""
    axis, keys = int(rng.integers(3)), []
    still = {f"task{t}" for t in rng.choice(10, int(tasks), replace=False).tolist()}
    for place, (split, piece) in enumerate(samples):
        if piece.group in still:
            a = piece.fields["a"].copy()
            a[:, axis] = 0.1
            samples[place] = split, changed(piece, a=a)
            keys.append(piece.key)
    return keys


DEAD = Trial(
    "dead-axis-of-a-task",
    "DC223",
    {"fields": {"a": {"role": "action", "shape": ["T", 4]}}},
    _by_task,
    _still,
    (Size("one task", 1), Size("two tasks", 2)),
    cause="dead in group",
    also=frozenset({"DC226", "DC523"}),
)


def _tactile(rng: np.random.Generator) -> Samples:
    """The same motions, each of 67 times as many dimensions."""
    ones = np.linspace(1.0, 2.0, 67)
    return [
        (split, changed(piece, a=np.concatenate([piece.fields["a"] * by for by in ones], axis=1)))
        for split, piece in _actions(rng)
    ]


def _unplug(samples: Samples, count: float, rng: np.random.Generator) -> Sequence[str]:
    """Record some dimensions as zero in all episodes."""
    dead = rng.choice(201, int(count), replace=False)
    for place, (split, piece) in enumerate(samples):
        a = piece.fields["a"].copy()
        a[:, dead] = 0
        samples[place] = split, changed(piece, a=a)
    return ()


DEAD_OF_MANY = Trial(
    "dead-axis-of-201",
    "DC223",
    {"fields": {"a": {"role": "action", "shape": ["T", 201]}}},
    _tactile,
    _unplug,
    (Size("one", 1), Size("twenty", 20)),
    cause="",
)


def _enlarge(samples: Samples, by: float, rng: np.random.Generator) -> Sequence[str]:
    place = some(samples, 0.01, rng)[0]
    split, piece = samples[place]
    samples[place] = split, changed(piece, a=piece.fields["a"] * by)
    return [piece.key]


STRAY = Trial(
    "one-wild-episode",
    "DC226",
    _ACTION,
    _actions,
    _enlarge,
    (Size("x30", 30), Size("x1000", 1000)),
    cause="largest value, far",
    also=frozenset({"DC230"}),
)

_SOUND: dict[str, Any] = {"fields": {"x": {"shape": ["N"]}, "rate": {"shape": []}}}


def _sounds(rng: np.random.Generator) -> Samples:
    """Recordings of 16 bits at 8,000 Hz, some louder than others."""
    found: Samples = []
    for i in range(60):
        loud = rng.uniform(500, 5000)
        sound = np.clip(rng.normal(0, loud, int(rng.integers(2000, 6000))), -32768, 32767).astype(
            np.int16
        )
        found.append(sample(f"s{i:03d}", {"x": sound, "rate": np.array(8000)}))
    return found


SILENT = Trial(
    "silent-recordings",
    "DC226",
    _SOUND,
    _sounds,
    edited_field(0.05, "x", lambda x, to, _: np.full_like(x, to)),
    (Size("zeros", 0), Size("an offset", 12)),
    cause="constant",
)
HISSING = Trial(
    "muted-recordings",
    "DC226",
    _SOUND,
    _sounds,
    edited_field(0.05, "x", lambda x, to, rng: rng.integers(-to, to + 1, len(x)).astype(np.int16)),
    (Size("one bit", 1), Size("two bits", 2)),
    cause="nearly constant",
)
RATED = Trial(
    "another-rate",
    "DC226",
    _SOUND,
    _sounds,
    edited_field(0.05, "rate", lambda rate, by, _: np.array(int(rate * by))),
    (Size("x2", 2), Size("x1.1", 1.1)),
    cause="pace",
)

_STATS: dict[str, Any] = {
    "fields": {
        "a": {
            "role": "action",
            "shape": ["T", 3],
            "stats": {
                "mean": [0.1, 0.0, 5.0],
                "std": [0.768, 0.23, 15.36],
                "min": [-5, -2, -100],
                "max": [5, 2, 110],
            },
        }
    }
}


def _shift(samples: Samples, how: float, rng: np.random.Generator) -> Sequence[str]:
    del rng
    for place, (split, piece) in enumerate(samples):
        a = piece.fields["a"]
        samples[place] = split, changed(piece, a=a * how if how >= 2 else a + how * _SCALE)
    return ()


STALE = Trial(
    "statistics-of-other-data",
    "DC228",
    _STATS,
    _actions,
    _shift,
    (Size("a third of a deviation", 0.3), Size("doubled", 2), Size("x100", 100)),
    cause=lambda how: "scaled" if how >= 2 else "",
)


def _labelled(rng: np.random.Generator) -> Samples:
    """Clouds with labels of up to twenty classes, and key points of a few frames each."""
    found: Samples = []
    for i in range(40):
        points, frames = int(rng.integers(150, 400)), int(rng.integers(12, 40))
        fields = {
            "xyz": rng.normal(size=(points, 3)),
            "label": rng.integers(0, int(rng.integers(4, 21)), points),
            "joints": rng.normal(size=(frames, 21, 3)),
        }
        found.append(sample(f"c{i:03d}", fields))
    return found


def _rows_scaled(field: str, share: float) -> Callable[[Piece, float, np.random.Generator], Piece]:
    """Return what multiplies `share` of the rows of a field, one at least."""

    def change(piece: Piece, factor: float, rng: np.random.Generator) -> Piece:
        values = piece.fields[field].copy()
        values[rng.choice(len(values), max(1, round(share * len(values))), replace=False)] *= factor
        return changed(piece, **{field: values})

    return change


def _far_label(piece: Piece, label: float, rng: np.random.Generator) -> Piece:
    labels = piece.fields["label"].copy()
    labels[rng.integers(len(labels))] = int(label)
    return changed(piece, label=labels)


_LABELLED: dict[str, Any] = {
    "fields": {
        "xyz": {"role": "points", "shape": ["N", 3]},
        "label": {"role": "class", "shape": ["N"]},
        "joints": {"role": "joints", "shape": ["K", 21, 3]},
    }
}
_FACTORS = (Size("x300", 300, documented=False), Size("x1000", 1000), Size("x10,000", 10_000))
_DISTANT = frozenset({"DC205", "DC226", "DC302"})

ROWS = Trial(
    "a-twentieth-of-the-rows",
    "DC229",
    _LABELLED,
    _labelled,
    edited(0.1, _rows_scaled("xyz", 0.05)),
    _FACTORS,
    cause="xyz, rows",
    also=_DISTANT,
)

FRAMES = Trial(
    "one-frame-of-few",
    "DC229",
    _LABELLED,
    _labelled,
    edited(0.1, _rows_scaled("joints", 0)),
    _FACTORS,
    cause="joints, rows",
    also=_DISTANT,
)

LABEL = Trial(
    "label-that-no-class-has",
    "DC229",
    _LABELLED,
    _labelled,
    edited(0.1, _far_label),
    (Size("30", 30, documented=False), Size("200", 200), Size("1000", 1000)),
    cause="label, label",
    also=_DISTANT,
)


def _motions(rng: np.random.Generator) -> Samples:
    """Demos of a cart with a pole: place [m], angle [rad] and the rates of both."""
    found: Samples = []
    for i in range(60):
        time = np.arange(int(rng.integers(80, 160)))[:, None]
        waves = np.sin(rng.uniform(0.05, 0.2, 4) * time + rng.uniform(0, 6, 4)) + 0.05 * rng.normal(
            size=(len(time), 4)
        )
        found.append(
            sample(f"d{i:03d}", {"obs": waves * rng.uniform(0.5, 1.0, 4) * [1.0, 0.3, 2.0, 4.0]})
        )
    return found


def _angles_scaled(piece: Piece, factor: float, rng: np.random.Generator) -> Piece:
    del rng
    return changed(piece, obs=piece.fields["obs"] * np.array([1.0, factor, 1.0, factor]))


def _whole_numbers(piece: Piece, factor: float, rng: np.random.Generator) -> Piece:
    del rng
    return changed(piece, obs=np.trunc(piece.fields["obs"] * factor))


_OBSERVED: dict[str, Any] = {"fields": {"obs": {"role": "value", "shape": ["T", 4]}}}

ODD_UNIT = Trial(
    "two-columns-in-another-unit",
    "DC230",
    _OBSERVED,
    _motions,
    edited(0.1, _angles_scaled),
    (Size("degrees", 57.2958), Size("x100", 100), Size("x1000", 1000)),
    cause="unit",
    also=frozenset({"DC226"}),
)

ROUNDED = Trial(
    "cast-to-whole-numbers",
    "DC230",
    _OBSERVED,
    _motions,
    edited(0.1, _whole_numbers),
    (Size("cast", 1), Size("cast, doubled before", 2)),
    cause="rounded",
)


def _channels(rng: np.random.Generator) -> Samples:
    """Recordings of eight noisy channels as whole numbers, as an armband writes them."""
    return [
        sample(
            f"s{i:03d}",
            {"emg": np.rint(rng.normal(0, rng.uniform(5, 40), (300, 8))).astype(np.int16)},
        )
        for i in range(40)
    ]


def _one_dead(piece: Piece, value: float, rng: np.random.Generator) -> Piece:
    emg = piece.fields["emg"].copy()
    emg[:, 2] = int(value)
    return changed(piece, emg=emg)


DEAD_CHANNEL = Trial(
    "dead-channel",
    "DC230",
    {"fields": {"emg": {"shape": ["N", 8]}}},
    _channels,
    edited(0.1, _one_dead),
    (Size("0", 0), Size("-128", -128)),
)


def _streets(rng: np.random.Generator) -> Samples:
    """Clouds of streets, wide and flat, with an intensity."""
    found: Samples = []
    for i in range(40):
        places = rng.normal(size=(300, 3)) * [
            30 * rng.uniform(0.8, 1.2),
            20 * rng.uniform(0.8, 1.2),
            3.0,
        ] + [0, 0, 1.5]
        found.append(
            sample(f"s{i:03d}", {"cloud": np.column_stack([places, rng.uniform(0, 1, 300)])})
        )
    return found


def _y_up(piece: Piece, other: float, rng: np.random.Generator) -> Piece:
    del rng
    order = [0, 1, 2, 3]
    order[int(other)], order[2] = 2, int(other)
    return changed(piece, cloud=piece.fields["cloud"][:, order])


EXCHANGED = Trial(
    "two-axes-exchanged",
    "DC230",
    {"fields": {"cloud": {"role": "value", "shape": ["P", 4]}}},
    _streets,
    edited(0.1, _y_up),
    (Size("y and z", 1), Size("x and z", 0)),
    cause="exchanged",
)


def _channels(rng: np.random.Generator) -> Samples:
    """Series of five channels, each with a usual value of its own that differs between samples."""
    usual = 2.5 * rng.permutation(5)
    scatter = rng.uniform(0.2, 0.6, 5)
    return [
        sample(
            f"s{i:03d}",
            {
                "series": usual
                + scatter * rng.normal(size=5)
                + scatter * rng.normal(size=(int(rng.integers(10, 40)), 5))
            },
        )
        for i in range(200)
    ]


def _two_exchanged(piece: Piece, other: float, rng: np.random.Generator) -> Piece:
    del rng
    order = list(range(5))
    order[0], order[int(other)] = int(other), 0
    return changed(piece, series=piece.fields["series"][:, order])


CHANNELS = Trial(
    "two-channels-exchanged",
    "DC230",
    {"fields": {"series": {"shape": ["P", 5]}}},
    _channels,
    edited(0.1, _two_exchanged),
    (Size("first and second", 1), Size("first and last", 4)),
    cause="channels",
)
