"""Episodes: too short, idle, jumping, frozen or shifted; videos and marks that do not belong to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datacheck.model.sample import Piece
from datacheck.testing.draw import curves
from tests.trials.base import Plant, Samples, Size, Trial, changed, edited, sample

Array = np.ndarray[Any, Any]
Change = Callable[[Piece, float, np.random.Generator], dict[str, Any]]

FPS = 20.0
_FIELDS: dict[str, Any] = {
    "act": {"role": "action", "shape": ["T", 7], "columns": "move:3 turn:3 grip"},
    "act.move": {"role": "action", "drives": "pos", "lag": 1},
    "pos": {"role": "position", "shape": ["T", 3], "unit": "m"},
    "q": {"role": "joint_angle", "shape": ["T", 7], "unit": "rad"},
    "sensed": {"role": "value", "shape": ["T", 12]},
    "t": {"role": "timestamp", "shape": ["T"], "unit": "s"},
    "done": {"role": "done", "shape": ["T"]},
    "cam": {"role": "video"},
}
_SCHEMA: dict[str, Any] = {"fields": _FIELDS, "episode": {"fps": FPS, "max_idle": 0.3}}


def _demos(rng: np.random.Generator) -> Samples:
    """Thirty pick-and-place demonstrations of three tasks, 4 to 12 seconds at 20 steps a second."""
    return [
        sample(f"d{i:02d}", _demo(rng, int(rng.integers(80, 240))), group=f"task{i % 3}", split="")
        for i in range(30)
    ]


def _demo(rng: np.random.Generator, steps: int) -> dict[str, Any]:
    """A hand that follows velocity commands, stops for some tenths of a second to grasp, and goes on."""
    move = 0.8 * curves(rng, steps, 3, cycles=3.0) + 0.02 * rng.standard_normal((steps, 3))
    turn = 0.3 * curves(rng, steps, 3, cycles=2.0) + 0.01 * rng.standard_normal((steps, 3))
    grasp = int(rng.uniform(0.3, 0.6) * steps)
    move[grasp : grasp + int(rng.integers(2, 8))] = 0.0
    grip = np.where(np.arange(steps) < grasp, -1.0, 1.0)
    path = 0.02 * np.cumsum(move, axis=0)
    pos = rng.normal([0.4, 0.0, 0.3], 0.03) + np.concatenate([np.zeros((1, 3)), path[:-1]])
    mix = np.array(
        [
            [1.0, 0.3, 0.2, -0.5, 0.1, 0.4, 0.2],
            [0.1, 0.8, -0.4, 0.3, 0.6, -0.2, 0.5],
            [0.2, -0.3, 0.7, 0.4, -0.1, 0.5, 0.3],
        ]
    )
    q = 0.3 + 2.0 * pos @ mix + 0.0005 * rng.standard_normal((steps, 7))
    sensed = np.tile(pos, (1, 4)) + 0.01 * rng.standard_normal((steps, 12))
    start = float(rng.uniform(0, 100))
    return {
        "act": np.concatenate([move, turn, grip[:, None]], axis=1),
        "pos": pos,
        "q": q,
        "sensed": sensed,
        "t": start + np.arange(steps) / FPS,
        "done": np.arange(steps) == steps - 1,
        "cam": np.arange(steps) / FPS,
    }


def _plant(share: float, change: Change) -> Plant:
    return edited(share, lambda piece, value, rng: changed(piece, **change(piece, value, rng)), 1)


def _cut(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """The first rows of every field; the mark of the end is set again."""
    steps = int(value)
    short = {name: values[:steps] for name, values in piece.fields.items()}
    return short | {"done": np.arange(steps) == steps - 1}


def _clock(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"t": piece.fields["t"] * value}


def _pause(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """The robot stands still, and is asked to, for that share of the episode; sensors go on."""
    steps = len(piece.fields["act"])
    length = int(value * steps)
    start = int(rng.integers(0, steps - length))
    at = np.concatenate(
        [np.arange(start), np.full(length, start), np.arange(start, steps - length)]
    )
    act = piece.fields["act"][at]
    act[start : start + length, :6] = 0.0
    return {"pos": piece.fields["pos"][at], "q": piece.fields["q"][at], "act": act}


def _stuck(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """The robot stands still although commands go on."""
    return {name: values for name, values in _pause(piece, value, rng).items() if name != "act"}


def _held(values: Array, start: int, length: int) -> Array:
    out = values.copy()
    out[start : start + length] = values[start]
    return np.asarray(out)


def _zero_commands(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """Short pauses of the commands; the robot drifts on."""
    act = piece.fields["act"].copy()
    # That share, neither more nor less
    chosen = rng.choice(len(act), round(value * len(act)), replace=False)
    act[chosen, :6] = 0.0
    return {"act": act}


def _teleport(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    pos = piece.fields["pos"].copy()
    pos[int(rng.integers(10, len(pos) - 10)) :] += value
    return {"pos": pos}


def _stalled(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    sensed = piece.fields["sensed"]
    length = int(value * FPS) + 1
    return {"sensed": _held(sensed, int(rng.integers(10, len(sensed) - length - 10)), length)}


def _shifted(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"act": np.roll(piece.fields["act"], -int(value), axis=0)}


def _lost_frames(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"cam": piece.fields["cam"][: len(piece.fields["cam"]) - int(value)]}


def _slow_video(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"cam": piece.fields["cam"] * value}


def _early_mark(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    done = piece.fields["done"].copy()
    done[int(value * len(done))] = True
    return {"done": done}


def _no_mark(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"done": np.zeros_like(piece.fields["done"])}


def _trial(
    name: str, code: str, change: Change, *sizes: Size, share: float = 0.1, **more: Any
) -> Trial:
    return Trial(
        name, code, more.pop("schema", _SCHEMA), _demos, _plant(share, change), sizes, **more
    )


_WINDOWS = _SCHEMA | {"windows": {"length": 20}}
SHORT = _trial(
    "short-episode",
    "DC501",
    _cut,
    Size("19 of 20 steps", 19.0),
    Size("8 of 20 steps", 8.0),
    schema=_WINDOWS,
    cause="short",
    also=frozenset({"DC510"}),
)
RATES = _trial(
    "wrong-rate",
    "DC503",
    _clock,
    Size("3 % slow", 1.03),
    Size("half the rows", 2.0),
    share=1.0,
    cause=lambda v: {2.0: "thinned"}.get(v, ""),
)
IDLE = _trial(
    "idle-episode",
    "DC504",
    _pause,
    Size("35 %", 0.35),
    Size("50 %", 0.5),
    Size("70 %", 0.7),
    cause="no-op",
)
STUCK = _trial("stuck-robot", "DC504", _stuck, Size("50 %", 0.5), Size("70 %", 0.7), cause="stuck")
NO_OP = _trial(
    "no-op-commands", "DC504", _zero_commands, Size("30 %", 0.3), Size("50 %", 0.5), cause="no-op"
)
TELEPORT = _trial(
    "teleport",
    "DC505",
    _teleport,
    Size("0.1 m", 0.1, documented=False),
    Size("0.5 m", 0.5),
    Size("2 m", 2.0),
    cause="jump",
    also=frozenset({"DC226"}),
)
STALLED = _trial(
    "stalled-sensor", "DC506", _stalled, Size("1 s", 1.0), Size("1.5 s", 1.5), cause="frozen"
)
SHIFTED = _trial(
    "shifted-actions",
    "DC507",
    _shifted,
    Size("1 step", 1.0),
    Size("2 steps", 2.0),
    share=1.0,
    cause=lambda v: f"lag{1 + int(v)}",
)
LOST_FRAMES = _trial(
    "lost-frames",
    "DC508",
    _lost_frames,
    Size("1", 1.0),
    Size("20", 20.0),
    cause=lambda v: "one" if v == 1 else "frames",
)
SLOW_VIDEO = _trial(
    "slow-video",
    "DC508",
    _slow_video,
    Size("20 at 15", 20 / 15),
    Size("30 at 29", 30 / 29),
    cause="rate",
)
JOINED = _trial("joined-episodes", "DC512", _early_mark, Size("in the middle", 0.5), cause="joined")
UNMARKED = _trial("no-mark", "DC512", _no_mark, Size("none", 0.0), cause="never")


def _emptied(samples: Samples, value: float, rng: np.random.Generator) -> Sequence[str]:
    """That share of one task's episodes is cut short."""
    mine = [i for i, (_, piece) in enumerate(samples) if piece.group == "task1"]
    for place in mine[: round(value * len(mine))]:
        split, piece = samples[place]
        samples[place] = split, changed(piece, **_cut(piece, 15.0, rng))
    return []


EMPTIED = Trial(
    "emptied-task",
    "DC509",
    _WINDOWS,
    _demos,
    _emptied,
    (Size("60 %", 0.6), Size("all", 1.0)),
    cause=lambda v: "emptied" if v == 1 else "thinned",
    also=frozenset({"DC501"}),
)


def _alike(rng: np.random.Generator) -> Samples:
    """Demonstrations of one task, of which no two have one length."""
    return [sample(f"d{i:02d}", _demo(rng, 80 + 5 * i), group="task") for i in range(30)]


def _stray(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    """The episode ends somewhere else: a smooth drift on top of its path."""
    pos = piece.fields["pos"]
    return {"pos": pos + value * (np.arange(len(pos)) / len(pos))[:, None] ** 2}


STRAY = Trial(
    "stray-end",
    "DC510",
    _SCHEMA,
    _alike,
    _plant(0.03, _stray),
    (Size("5 m", 5.0), Size("20 m", 20.0)),
    cause="end",
    also=frozenset({"DC226"}),
)


def _films(rng: np.random.Generator) -> Samples:
    """Short films of a spot that moves over a background that is not black; the arm moves with it."""
    found = []
    for i in range(8):
        steps = int(rng.integers(45, 70))
        pos = 0.3 * curves(rng, steps, 3)
        ground = rng.integers(20, 120, (8, 8, 3))
        film = np.broadcast_to(ground, (steps, 8, 8, 3)) + rng.integers(0, 30, (steps, 8, 8, 3))
        found.append(
            sample(
                f"f{i}", {"pos": pos, "act": curves(rng, steps, 2), "rgb": film.astype(np.uint8)}
            )
        )
    return found


def _black(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    film = piece.fields["rgb"].copy()
    film[: int(np.ceil(value * len(film)))] = 1
    return {"rgb": film}


def _halted(piece: Piece, value: float, rng: np.random.Generator) -> dict[str, Any]:
    film, length = piece.fields["rgb"], int(value * FPS) + 1
    return {"rgb": _again(film, int(rng.integers(0, len(film) - length)), length)}


def _again(film: Array, start: int, length: int) -> Array:
    out = film.copy()
    out[start : start + length] = film[start]
    return np.asarray(out)


_FILM = {
    "fields": {
        "pos": {"role": "position", "shape": ["T", 3], "unit": "m"},
        "act": {"role": "action", "shape": ["T", 2]},
        "rgb": {"role": "image", "shape": ["T", 8, 8, 3], "dtype": "uint8"},
    },
    "episode": {"fps": FPS},
}
DARK = Trial(
    "dark-frames",
    "DC511",
    _FILM,
    _films,
    _plant(0.2, _black),
    (Size("5 %", 0.05), Size("all", 1.0)),
    cause=lambda v: "whole" if v == 1 else "start",
    also=frozenset({"DC513"}),
)
HALTED = Trial(
    "halted-camera",
    "DC513",
    _FILM,
    _films,
    _plant(0.2, _halted),
    (Size("1 s", 1.0), Size("2 s", 2.0)),
    cause="frozen",
)
