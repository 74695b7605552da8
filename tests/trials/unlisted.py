"""Fields that the schema does not list: NaN, another unit, a sample that stands still, a turned quaternion."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trials.base import Plant, Samples, Size, Trial, edited_field, sample

Array = np.ndarray[Any, Any]

_SCHEMA = {"fields": {"action": {"role": "action", "shape": ["T", 7]}}}
_POS, _QUAT = "obs/eef_pos", "obs/eef_quat"


def _demos(rng: np.random.Generator) -> Samples:
    """Demos of an arm, of which the schema lists the actions; a hand's place [m] and orientation are stored, too."""
    found: Samples = []
    for i in range(40):
        steps = int(rng.integers(60, 140))
        time = np.arange(steps)[:, None]
        action = np.sin(rng.uniform(0.05, 0.2, 7) * time + rng.uniform(0, 6, 7)) + 0.3 * rng.normal(
            size=(steps, 7)
        )
        place = [0.1, 0.0, 0.9] + 0.1 * np.sin(
            rng.uniform(0.02, 0.1, 3) * time + rng.uniform(0, 6, 3)
        )
        quat = np.array([1.0, 0, 0, 0]) + 0.2 * np.sin(
            rng.uniform(0.02, 0.1, 4) * time + rng.uniform(0, 6, 4)
        )
        quat /= np.sqrt((quat**2).sum(axis=1, keepdims=True))
        found.append(sample(f"demo_{i}", {"action": action, _POS: place, _QUAT: quat}))
    return found


def _scaled(value: Array, by: float, rng: np.random.Generator) -> Array:
    del rng
    return value * by


def _still(value: Array, rows: float, rng: np.random.Generator) -> Array:
    """Repeat a row: the first for a value of 0, else zeros."""
    del rng
    return np.repeat(value[:1], len(value), axis=0) if rows == 0 else np.zeros_like(value)


def _turned(value: Array, by: float, rng: np.random.Generator) -> Array:
    del rng
    return np.roll(value, int(by), axis=1)


def _not_numbers(value: Array, share: float, rng: np.random.Generator) -> Array:
    out = value.copy()
    rows = rng.choice(len(out), max(1, round(share * len(out))), replace=False)
    out[rows, int(rng.integers(out.shape[1]))] = np.nan
    return out


def _plant(name: str, change: Any) -> Plant:
    return edited_field(0.05, name, change)


SCALED = Trial(
    "unlisted-in-another-unit",
    "DC130",
    _SCHEMA,
    _demos,
    _plant(_POS, _scaled),
    (
        Size("x10", 10, documented=False),
        Size("x39.37 (inches)", 39.37, documented=False),
        Size("x100 (cm)", 100),
        Size("x1000 (mm)", 1000),
    ),
    cause="large",
)
STILL = Trial(
    "unlisted-stands-still",
    "DC130",
    _SCHEMA,
    _demos,
    _plant(_POS, _still),
    (Size("its first row", 0), Size("zeros", 1)),
    cause="still",
)
TURNED = Trial(
    "unlisted-quaternion-turned",
    "DC130",
    _SCHEMA,
    _demos,
    _plant(_QUAT, _turned),
    (Size("w last", -1), Size("the other way", 1)),
    cause="order",
)
NOT_NUMBERS = Trial(
    "unlisted-nan",
    "DC221",
    _SCHEMA,
    _demos,
    _plant(_POS, _not_numbers),
    (Size("one number", 0), Size("half of a column", 0.5)),
)
