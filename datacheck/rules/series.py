"""Helpers of the rules about episodes: the time axis, steps between rows, and motion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from datacheck.model.sample import Block, Column
from datacheck.rules.measures import is_numeric, leaf, norms, quantile, reduced
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_STATE = ("joint_angle", "position")
RUNS = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    15,
    20,
    25,
    30,
    40,
    50,
    60,
    75,
    100,
    120,
    150,
    200,
    300,
    500,
    1000,
)  # steps
SLOW = 0.01  # share of the field's own 99th percentile of speed, up to which a step is still


def time_field(schema: Schema) -> str:
    """Return the field whose first axis is an episode's time, "" without one.

    An action comes first, then a time stamp, then any required field ``[T, ...]``.
    """
    for roles in (("action",), ("timestamp",)):
        for name, spec in schema.of_role(*roles):
            if spec.ragged and schema.part_of(name) is None:
                return name
    stored = sorted(schema.stored.items())
    return next(
        (
            name
            for name, spec in stored
            if spec.ragged == "T" and not spec.absent and not spec.optional
        ),
        "",
    )


def states(schema: Schema) -> list[str]:
    """Return the fields that hold the robot's state at each step."""
    axis = schema.fields[time_field(schema)].ragged if time_field(schema) else None
    stored = [(n, s) for n, s in schema.of_role(*_STATE) if schema.part_of(n) is None and leaf(s)]
    return [name for name, spec in stored if spec.ragged is not None and spec.ragged == axis]


def series(block: Block, names: Sequence[str]) -> list[Column]:
    """Return the fields' columns in the block that are rows of numbers over time."""
    columns = [block.fields[n] for n in names if n in block.fields and is_numeric(block.fields[n])]
    return [c for c in columns if c.lengths is not None and c.values.ndim == 2]


def steps(column: Column, fits: Array) -> tuple[Array, Array]:
    """Return the differences of neighbouring rows and their count, for the samples that fit.

    Shapes:
        fits: bool (samples): those with at least two rows
        returns: float64 (components, steps); int64 (samples), 0 for those that do not fit
    """
    assert column.lengths is not None
    values = np.ascontiguousarray(
        column.values[np.repeat(fits, column.lengths)].T, dtype=np.float64
    )
    return differences(values, np.where(fits, column.lengths, 0)), np.where(
        fits, column.lengths - 1, 0
    )


def differences(values: Array, counts: Array) -> Array:
    """Return the differences of neighbouring rows within samples.

    Shapes:
        values: float64 (components, rows)
        counts: int64 (samples) [rows]
        returns: float64 (components, steps): one less than rows for each sample that has any
    """
    inner = np.ones(values.shape[1], bool)
    inner[(np.cumsum(counts) - counts)[counts > 0]] = False
    inner_steps: Array = np.diff(values, axis=1, prepend=0.0)[:, inner]
    return inner_steps


def moving(
    columns: Sequence[Column], beside: Sequence[Column] = ()
) -> tuple[Array, Array, Array] | None:
    """Return which steps move in any of the fields; None where no sample fits.

    A sample fits where all of these columns, and those `beside` them, have equally many rows, and
    more than one.

    Shapes:
        returns: moving steps, bool (steps); their count, int64 (samples); samples that fit, bool
            (samples)
    """
    if not columns or columns[0].lengths is None:
        return None
    lengths = columns[0].lengths
    fits = np.logical_and.reduce([c.lengths == lengths for c in (*columns, *beside)]) & (
        lengths > 1
    )
    if not fits.any():
        return None
    count = np.where(fits, lengths - 1, 0)
    moves = np.zeros(int(count.sum()), bool)
    for column in columns:
        speed = norms(steps(column, fits)[0])
        moves |= speed > SLOW * np.repeat(np.nan_to_num(quantile(speed, count, 0.99)), count)
    return moves, count, fits


def runs(flags: Array, count: Array) -> tuple[Array, Array, Array]:
    """Return the runs of True within samples: their sample, their first step and their length.

    Shapes:
        flags: bool (steps); count: int64 (samples)
        returns: int64 (runs of True) each
    """
    if not len(flags):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    sample = np.repeat(np.arange(len(count)), count)
    begins = np.ones(len(flags), bool)
    begins[1:] = (flags[1:] != flags[:-1]) | (sample[1:] != sample[:-1])
    first = np.flatnonzero(begins)
    length = np.diff(np.append(first, len(flags)))
    true = flags[first]
    return sample[first][true], first[true], length[true]


def long_runs(sample: Array, length: Array, samples: int) -> Array:
    """Return how many steps lie in runs of at least each of `RUNS`: int64 (samples, lengths)."""
    total = [np.bincount(sample[length >= k], length[length >= k], samples) for k in RUNS]
    return np.stack(total, axis=1).astype(np.int64)


def least_run(seconds: float, fps: float | None, steps: int) -> int:
    """Return the place in `RUNS` of the longest run within `seconds`, or `steps` without a rate."""
    wanted = seconds * fps if fps else float(steps)
    return max(0, int(np.searchsorted(RUNS, wanted + 1e-9, side="right")) - 1)


def ends(moves: Array, count: Array) -> tuple[Array, Array]:
    """Return the count of steps before each sample's first motion and after its last.

    A sample without motion has all steps before and 0 after.
    """
    step_index = np.arange(len(moves)) - np.repeat(np.cumsum(count) - count, count)
    most = np.repeat(count, count)
    head = np.minimum(reduced(np.minimum, np.where(moves, step_index, most), count), count)
    tail = np.minimum(
        reduced(np.minimum, np.where(moves, most - 1 - step_index, most), count), count
    )
    return head, np.where(head == count, 0, tail)
