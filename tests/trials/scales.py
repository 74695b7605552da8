"""Scales: depth maps, clocks, colours and grippers on another scale than declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.trials.base import Plant, Samples, Size, Trial, edited_field, sample


def _each(share: float, field: str, change: Callable[[Any, float], Any], least: int = 3) -> Plant:
    return edited_field(share, field, lambda values, value, _: change(values, value), least)


# -------------------------------------------------------------------------------------------- depth

_DEPTH = {
    "fields": {
        "depth": {"role": "depth", "shape": ["H", "W"], "unit": "m", "scale": 0.001, "ignore": [0]}
    }
}


def _depths(rng: np.random.Generator) -> Samples:
    """Table tops and rooms, 0.5 to 4 m away, in millimetres, a tenth without depth."""
    found: Samples = []
    for i in range(60):
        far = np.exp(rng.uniform(np.log(0.5), np.log(4.0)))
        depth = 1000 * far * rng.uniform(0.7, 1.3, (24, 32))
        depth[rng.random((24, 32)) < 0.1] = 0
        found.append(sample(f"d{i:03d}", {"depth": np.minimum(depth, 65000).astype(np.float32)}))
    return found


DEPTH_SOME = Trial(
    "some-depths-in-metres",
    "DC204",
    _DEPTH,
    _depths,
    _each(0.05, "depth", lambda d, f: d * np.float32(f)),
    (Size("metres", 0.001), Size("a hundred times", 100.0)),
    cause=lambda f: {0.001: "1/1", 100.0: ""}[f],
)
DEPTH_ALL = Trial(
    "all-depths-in-metres",
    "DC204",
    _DEPTH,
    _depths,
    _each(1.0, "depth", lambda d, f: d * np.float32(f)),
    (Size("metres", 0.001), Size("a thousand times", 1000.0)),
)

_UNIT = 0.00012498664727900177  # metres of one step of HO3D's depth
_HAND_DEPTH = {
    "root": {"role": "position", "shape": [3], "unit": "m"},
    "depth": {
        "role": "depth",
        "shape": [24, 32, 3],
        "unit": "m",
        "channels": [1, 256],
        "scale": _UNIT,
        "near": "root",
        "distance": "..0.3",
        "share": "0.1..",
    },
}


def _coded(metres: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return uint8 (..., 3): low byte, high byte, nothing."""
    steps = np.clip(np.round(metres / _UNIT), 0, 65535).astype(np.int64)
    return np.stack([steps % 256, steps // 256, 0 * steps], axis=-1).astype(np.uint8)


def _metres(coded: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray((coded[..., 0] + 256.0 * coded[..., 1]) * _UNIT)


def _hands(rng: np.random.Generator) -> Samples:
    """Hands 0.35 to 0.9 m in front of an OpenGL camera, within 0.2 m of what else it sees; holes of 5 to 60 %."""
    found: Samples = []
    for i in range(60):
        z = -rng.uniform(0.35, 0.9)
        depth = -z + rng.uniform(-0.1, 0.2) + 0.08 * rng.standard_normal((24, 32))
        depth[rng.random((24, 32)) < rng.uniform(0.05, 0.6)] = 0
        root = np.array([*rng.uniform(-0.1, 0.1, 2), z])
        found.append(sample(f"h{i:03d}", {"root": root, "depth": _coded(np.maximum(depth, 0))}))
    return found


def _pixels(change: Callable[[Any, float, np.random.Generator], Any]) -> Plant:
    return edited_field(
        0.05, "depth", lambda image, value, rng: _coded(change(_metres(image), value, rng)), 3
    )


def _trial(name: str, cause: str, plant: Plant, *sizes: Size) -> Trial:
    return Trial(name, "DC204", {"fields": _HAND_DEPTH}, _hands, plant, sizes, cause=cause)


DEPTH_ELSEWHERE = _trial(
    "depth-of-another-camera",
    "apart",
    _pixels(lambda d, by, _: np.where(d > 0, d + by, 0)),
    Size("1 m", 1.0),
    Size("3 m", 3.0),
)
DEPTH_MILLIMETRES = _trial(
    "depth-in-other-steps",
    "1/1000",
    _pixels(lambda d, by, _: d * by),
    Size("millimetres", 1000 * _UNIT),
)
DEPTH_HOLES = _trial(
    "depth-without-pixels",
    "share",
    _pixels(lambda d, left, rng: np.where(rng.random(d.shape) < left, d, 0)),
    Size("3 % left", 0.03),
    Size("none", 0.0),
)

# --------------------------------------------------------------------------------------------- time

_CLOCK = {
    "episode": {"fps": 20},
    "fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}},
}


def _clocks(rng: np.random.Generator) -> Samples:
    """Episodes at 20 frames a second with a jitter of half a millisecond, from any start."""
    found: Samples = []
    for i in range(60):
        steps = int(rng.integers(20, 120))
        times = rng.uniform(0, 1000) + 0.05 * np.arange(steps) + rng.normal(0, 5e-4, steps)
        found.append(sample(f"e{i:03d}", {"t": times}))
    return found


_UNITS = {1e3: "ms", 1e6: "us", 1e9: "ns", 20.0: "index"}
_SIZES = (Size("milliseconds", 1e3), Size("nanoseconds", 1e9), Size("frame numbers", 20.0))
TIME_SOME = Trial(
    "one-clock-in-fifty",
    "DC206",
    _CLOCK,
    _clocks,
    _each(0.02, "t", lambda t, f: t * f, 1),
    _SIZES,
    cause=lambda f: _UNITS[f],
)
TIME_ALL = Trial(
    "every-clock",
    "DC206",
    _CLOCK,
    _clocks,
    _each(1.0, "t", lambda t, f: t * f),
    _SIZES,
    cause=lambda f: _UNITS[f],
)


def _stopped(times: Any, steps: float) -> Any:
    """Give that many steps in the middle the time of the one before."""
    half = len(times) // 2
    return np.where(
        (np.arange(len(times)) >= half) & (np.arange(len(times)) < half + steps),
        times[half - 1],
        times,
    )


def _paused(times: Any, steps: float) -> Any:
    """Leave out that many steps in the middle."""
    return times + 0.05 * steps * (np.arange(len(times)) >= len(times) // 2)


STOPPED = Trial(
    "clock-stands-still",
    "DC502",
    _CLOCK,
    _clocks,
    _each(0.05, "t", _stopped),
    (Size("1 step", 1.0), Size("9 steps", 9.0)),
    also=frozenset({"DC503"}),
)
BACKWARDS = Trial(
    "clock-runs-backwards",
    "DC502",
    _CLOCK,
    _clocks,
    _each(0.05, "t", lambda t, _: t[::-1]),
    (Size("all steps", 0.0),),
)
PAUSED = Trial(
    "gap-in-time",
    "DC502",
    _CLOCK,
    _clocks,
    _each(0.05, "t", _paused),
    (Size("1 step", 1.0), Size("40 steps", 40.0)),
    also=frozenset({"DC503"}),
)

# ------------------------------------------------------------------------------------------- ranges

_COMMANDS = {"fields": {"a": {"role": "action", "shape": ["T", 7], "range": "-1..1"}}}


def _commands(rng: np.random.Generator) -> Samples:
    """Commands that a controller clipped to -1..1."""
    steps = rng.integers(40, 200, 60)
    return [
        sample(f"e{i:03d}", {"a": np.clip(rng.normal(0, 0.5, (n, 7)), -1, 1).astype(np.float32)})
        for i, n in enumerate(steps)
    ]


def _beyond(commands: Any, most: float) -> Any:
    """Let one number of one step be larger than allowed."""
    return np.where(
        np.arange(commands.size).reshape(commands.shape) == commands.size // 2,
        np.float32(most),
        commands,
    )


BEYOND = Trial(
    "command-beyond-range",
    "DC224",
    _COMMANDS,
    _commands,
    _each(0.05, "a", _beyond),
    (Size("1.001", 1.001), Size("1.24", 1.24), Size("-30", -30.0)),
)

# ----------------------------------------------------------------------------------- between fields

_GRASP = {
    "fields": {
        "hand": {"role": "position", "shape": ["G", 3], "unit": "m", "near": "pose.pos"},
        "pose": {"role": "pose", "shape": [7], "columns": "pos:3 quat:4"},
        "pose.pos": {"role": "position", "unit": "m"},
        "verts": {"role": "points", "shape": ["V", 3], "unit": "m", "posed_by": "pose"},
    }
}


def _grasps(rng: np.random.Generator) -> Samples:
    """Objects of 6 to 30 cm, grasped from a hand's length away."""
    found: Samples = []
    for i in range(80):
        size = np.exp(rng.uniform(np.log(0.06), np.log(0.3)))
        place = np.array([*rng.uniform(-0.2, 0.2, 2), 0.1])
        way = rng.normal(size=(20, 3))
        way /= np.sqrt((way**2).sum(axis=1, keepdims=True))
        hand = place + way * (size / 2 + rng.uniform(0.02, 0.08, (20, 1)))
        verts = rng.uniform(-0.5, 0.5, (60, 3)) * size / np.sqrt(3)
        turn = rng.normal(size=4)
        pose = np.concatenate([place, turn / np.sqrt((turn**2).sum())])
        found.append(sample(f"g{i:03d}", {"hand": hand, "verts": verts, "pose": pose}))
    return found


MESHES = Trial(
    "meshes-in-another-unit",
    "DC208",
    _GRASP,
    _grasps,
    _each(1.0, "verts", lambda v, f: v * f),
    (
        Size("a hundredth", 1e-2),
        Size("a thousandth", 1e-3),
        Size("x1000 (mm)", 1000.0, documented=False),
    ),
)

# ------------------------------------------------------------------------------------------ colours

_COLOR = {"fields": {"rgb": {"role": "color", "shape": ["P", 3], "range": "0..255"}}}


def _colors(rng: np.random.Generator) -> Samples:
    """Scenes as dark and as bright as real ones: means from 0.08 to 0.85 of full scale."""
    found: Samples = []
    for i in range(60):
        mean = float(np.clip(rng.normal(0.45, 0.12), 0.08, 0.85))
        rgb = 255 * np.clip(mean + rng.normal(0, 0.25, (200, 3)) + rng.normal(0, 0.03, 3), 0, 1)
        found.append(sample(f"c{i:03d}", {"rgb": np.round(rgb).astype(np.float32)}))
    return found


def _recolor(rgb: Any, value: float) -> Any:
    if value == -1:
        return (rgb / 255 - 0.45) / 0.25
    return 128 + rgb / 100 if value == 0 else rgb * np.float32(value)


COLOR_SOME = Trial(
    "some-colours-rescaled",
    "DC205",
    _COLOR,
    _colors,
    _each(0.05, "rgb", _recolor),
    (Size("divided by 255", 1 / 255), Size("normalised", -1.0), Size("one colour", 0.0)),
    cause=lambda v: {-1.0: "signed", 0.0: "flat"}.get(v, "unit"),
)
COLOR_ALL = Trial(
    "all-colours-rescaled",
    "DC205",
    _COLOR,
    _colors,
    _each(1.0, "rgb", _recolor),
    (Size("divided by 255", 1 / 255), Size("normalised", -1.0)),
    cause=lambda v: "signed" if v == -1 else "unit",
)

# ----------------------------------------------------------------------------------------- grippers

_GRIPPER = {
    "fields": {
        "grip": {"role": "gripper", "shape": ["T"], "values": [-1, 1], "drives": "fingers"},
        "fingers": {"role": "value", "shape": ["T", 2], "unit": "m"},
    }
}


def _grips(rng: np.random.Generator) -> Samples:
    """Grasps of things of any width: fingers follow within a few steps and stop at the thing."""
    found: Samples = []
    for i in range(60):
        steps = int(rng.integers(60, 150))
        grip = np.full(steps, -1.0)
        for _ in range(int(rng.integers(1, 3))):
            start = int(rng.integers(5, steps - 20))
            grip[start : start + int(rng.integers(12, 40))] = 1.0
        width, opening = rng.uniform(0.0, 0.02), [0.04]
        for told in grip[:-1].tolist():
            goal = 0.04 if told < 0 else width
            opening.append(opening[-1] + 0.35 * (goal - opening[-1]))
        half = np.array(opening) + rng.normal(0, 2e-5, steps)
        found.append(
            sample(f"p{i:03d}", {"grip": grip, "fingers": np.stack([half, -half], axis=1)})
        )
    return found


def _regrip(grip: Any, value: float) -> Any:
    return -grip if value == 0 else (grip + 1) / 2 * value


GRIP_SOME = Trial(
    "some-grippers-other",
    "DC207",
    _GRIPPER,
    _grips,
    _each(0.05, "grip", _regrip),
    (Size("flipped", 0.0), Size("0 and 1", 1.0), Size("0 and 255", 255.0)),
    cause=lambda v: {0.0: "inverted", 1.0: "0/1", 255.0: "0/255"}[v],
)
GRIP_ALL = Trial(
    "all-grippers-other",
    "DC207",
    _GRIPPER,
    _grips,
    _each(1.0, "grip", _regrip),
    (Size("flipped", 0.0), Size("0 and 1", 1.0)),
    cause=lambda v: {0.0: "inverted", 1.0: "0/1"}[v],
)
