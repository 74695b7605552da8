"""Trajectories without roles: rows in another unit, a turned quaternion, frozen rows, a clock set back."""

from __future__ import annotations

import numpy as np

from tests.trials.base import Samples, Size, Trial, edited_field, sample

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_SCHEMA = {"fields": {"table": {}}}
_COUNT, _ROWS = 12, 1500


def _trajectories(rng: np.random.Generator) -> Samples:
    """Tables as a TUM file has them: time [s], place [m], orientation (x, y, z, w)."""
    made: Samples = []
    for number in range(_COUNT):
        time = 1.3e9 + np.cumsum(rng.uniform(0.009, 0.011, _ROWS))
        place = np.cumsum(rng.normal(0, 0.004, (_ROWS, 3)), axis=0) + rng.uniform(0.5, 2, 3)
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        angle = np.cumsum(rng.normal(0, 0.002, _ROWS)) + rng.uniform(0.3, 1)
        turn = np.concatenate(
            [np.sin(angle / 2)[:, None] * axis, np.cos(angle / 2)[:, None]], axis=1
        )
        table = np.concatenate([time[:, None], place, turn], axis=1)
        made.append(sample(f"t{number:02d}", {"table": table}))
    return made


def _part(rng: np.random.Generator, rows: int) -> slice:
    first = int(rng.integers(100, _ROWS - rows - 100))
    return slice(first, first + rows)


def _scaled(value: Array, by: float, rng: np.random.Generator) -> Array:
    value = value.copy()
    value[_part(rng, 150), 1:4] *= by
    return value


def _turned(value: Array, by: float, rng: np.random.Generator) -> Array:
    value, part = value.copy(), _part(rng, 150)
    value[part, 4:] = np.roll(value[part, 4:], int(by), axis=1)
    return value


def _frozen(value: Array, rows: float, rng: np.random.Generator) -> Array:
    value, part = value.copy(), _part(rng, int(rows))
    value[part, 1:] = value[part.start, 1:]
    return value


def _set_back(value: Array, seconds: float, rng: np.random.Generator) -> Array:
    """Set the clock back, but not to where it began: that would be a new recording."""
    value = value.copy()
    value[int(rng.integers(500, _ROWS - 100)) :, 0] -= seconds
    return value


SCALED_ROWS, TURNED_ROWS, FROZEN_ROWS, CLOCK = (
    Trial(
        "rows-in-another-unit",
        "DC231",
        _SCHEMA,
        _trajectories,
        edited_field(0.1, "table", _scaled),
        (Size("x1000", 1000), Size("x10", 10, documented=False)),
        "unit",
        also=frozenset({"DC226", "DC229", "DC230"}),
    ),
    Trial(
        "quaternion-of-some-rows",
        "DC231",
        _SCHEMA,
        _trajectories,
        edited_field(0.1, "table", _turned),
        (Size("w first", 1), Size("the other way", -1)),
        "order",
    ),
    Trial(
        "rows-frozen",
        "DC231",
        _SCHEMA,
        _trajectories,
        edited_field(0.1, "table", _frozen),
        (Size("50 rows", 50, documented=False), Size("150 rows", 150)),
    ),
    Trial(
        "clock-set-back",
        "DC231",
        _SCHEMA,
        _trajectories,
        edited_field(0.1, "table", _set_back),
        (Size("0.5 s", 0.5), Size("3 s", 3)),
    ),
)
