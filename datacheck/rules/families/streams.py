"""Rules about streams over time: pictures that show something, marks of the end that stand at the end."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, those
from datacheck.rules.measures import is_numeric, of_role, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

DARK = (0.5, 1.0, 2.0, 4.0, 8.0)  # mean brightness of a frame, of 255


def _frames(column: Column, spec: FieldSpec) -> tuple[Array, Array] | None:
    """Return how many numbers each frame has, one frame after another, and how many frames each sample has."""
    values, lengths = column.values, column.lengths
    rank = values.ndim - (lengths is None)
    if lengths is None or rank < 2:
        return None
    item = prod(values.shape[1:])
    if rank == 4 or (rank == 3 and (spec.ragged or "").startswith("T")):
        return np.full(len(values), item), lengths
    return lengths * item, np.ones(len(column), np.int64)


def _white(low: Array, high: Array, dtype: np.dtype[Any]) -> Array:
    """Return what the brightest value of each sample is, from its extremes; 0 where its numbers are no brightness.

    Floats below 0 are normalised, those up to 1 shares of white.
    """
    if dtype.kind == "u":
        return np.full(len(low), 255.0 if dtype.itemsize == 1 else 65_535.0)
    white = np.where((high <= 1) & (dtype.kind == "f"), 1.0, 255.0)
    return np.where((low >= 0) & np.isfinite(high), white, 0.0)


@measure("frames", version=2, applies=of_role("image"), uses=("shape",), depth="deep")
def frames(column: Column, spec: FieldSpec) -> Columns:
    """How bright the frames of a sample are.

    `frames`; `dark`: how many have a mean below each of `DARK`, of 255, or are of one value; `flat`: the latter;
    `first_dark`: the first below the last of `DARK`, -1 for none.
    """
    found = _frames(column, spec) if is_numeric(column) and column.values.dtype.kind != "b" else None
    if found is None:
        return {}
    (size, count), pixels = found, column.values.reshape(-1)
    low, high = (reduced(ufunc, pixels, size).astype(np.float64) for ufunc in (np.minimum, np.maximum))
    white = _white(reduced(np.minimum, low, count), reduced(np.maximum, high, count), pixels.dtype)
    mean = reduced(np.add, pixels, size) / np.maximum(size, 1) * np.repeat(255 / np.maximum(white, 1), count)
    flat = low == high
    dark = (mean[:, None] < DARK) | flat[:, None]
    at = np.arange(len(mean)) - np.repeat(np.cumsum(count) - count, count)
    first = reduced(np.minimum, np.where(dark[:, -1], at, len(mean)), count)
    columns = {
        "frames": count,
        "dark": reduced(np.add, np.ascontiguousarray(dark.T), count).T,
        "flat": reduced(np.add, flat, count),
        "first_dark": np.where(first < len(mean), first, -1),
    }
    seen = (reduced(np.add, size, count) > 0) & (white > 0)
    return {name: Measured(values, seen) for name, values in columns.items()}


@rule(
    "DC511", "dark-frames", Severity.WARNING, Level.SAMPLE, measures=(frames,), needs=("DC109", "DC122", "DC221"),
    applies=of_role("image"), defaults={"dark": 2.0, "share": 0.01}, depth="deep",
)  # fmt: skip
def dark_frames(rows: Rows, case: Case) -> Iterator[Failure]:
    """Frames are black, or of one colour.

    What:
        Nearly every frame of a picture field shows something.
    Why it matters:
        A camera that was covered, or not yet running, teaches the policy to act without seeing.
    Measure:
        Mean brightness of each frame, scaled to 0..255; frames of which every value is the same.
    When it is wrong:
        The scene is dark on purpose: lower ``dark``, or raise ``share``.
    Options:
        dark: mean brightness, of 255, below which a frame is black (2; one of 0.5, 1, 2, 4, 8). share: share of a
        sample's frames that may be (0.01).
    Bad::

        schema: {fields: {rgb: {role: image, shape: [T, 4, 4, 3], dtype: uint8}}}
        samples:
          - {n: 2, rgb: {choice: [30, 4, 4, 3], among: [40, 90, 160], dtype: uint8}}
          - {rgb: {choice: [30, 4, 4, 3], among: [0, 1], dtype: uint8}}

    Good::

        schema: {fields: {rgb: {role: image, shape: [T, 4, 4, 3], dtype: uint8}}}
        samples:
          - {n: 3, rgb: {choice: [30, 4, 4, 3], among: [40, 90, 160], dtype: uint8}}

    Fix:
        Cut these steps off, or leave the samples out.
    Reference:
        A renderer without a context, or a camera that is not open yet, gives frames of zeros without an error.
    """
    known = rows.measured("frames")
    if not known.any():
        return
    place = int(np.argmin(np.abs(np.array(DARK) - float(case.options["dark"]))))
    dark = np.where(known, rows["dark"][:, place], 0)
    bad = known & (dark > float(case.options["share"]) * rows["frames"])
    if not bad.any():
        return
    flat, whole = int(rows["flat"][bad].sum()), bad & (dark == rows["frames"])
    start = bad & ~whole & (rows["first_dark"] == 0)
    cause = Cause(
        "the camera was not running yet: the dark frames begin with the first", "start", explains=int(start.sum())
    )
    if whole.sum() >= max(1, start.sum()):
        cause = Cause(
            "the camera showed nothing, or values of 0 to 1 were stored as whole numbers",
            "whole",
            explains=int(whole.sum()),
        )
    yield Failure(
        bad,
        f"{int(dark[bad].sum()):,} of {int(rows['frames'][bad].sum()):,} frames of {counted(int(bad.sum()))} are "
        f"darker than {DARK[place]:g} of 255 or of one value ({flat:,}).",
        measured={"dark": int(dark[bad].sum()), "frames": int(rows["frames"][bad].sum()), "flat": flat},
        expected={"share": f"..{float(case.options['share']):g}"},
        cause=cause if whole.any() or start.any() else None,
        fix="Write them again where their source shows something; else cut these steps off, or leave the samples out.",
        order=dark / np.maximum(1, rows["frames"]),
    )


@measure("ending", applies=of_role("done", "reward"))
def ending(column: Column, spec: FieldSpec) -> Columns:
    """Where a mark over time is set (not 0): `set` steps; `tail` of them at the end without a gap; `first` one (-1)."""
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.shape[1:] not in {(), (1,)}:
        return {}
    lengths = column.lengths
    on = column.values.reshape(-1) != 0
    at = np.arange(len(on)) - np.repeat(column.starts, lengths)
    last_off = reduced(np.maximum, np.where(on, -1, at), lengths)
    first = reduced(np.minimum, np.where(on, at, len(on)), lengths)
    columns = {
        "set": reduced(np.add, on, lengths),
        "tail": lengths - 1 - last_off,
        "first": np.where(first < len(on), first, -1),
    }
    return {name: Measured(values, lengths > 0) for name, values in columns.items()}


def _judged(spec: FieldSpec) -> bool:
    return of_role("done")(spec) or (of_role("reward")(spec) and bool(spec.values) and set(spec.values) <= {0.0, 1.0})


@rule(
    "DC512", "episode-end", Severity.WARNING, Level.SAMPLE, measures=(ending,), needs=("DC109", "DC122", "DC221"),
    applies=_judged, defaults={"tail": 1},
)  # fmt: skip
def episode_end(rows: Rows, case: Case) -> Iterator[Failure]:
    """The mark of the end is not at the end of the episode.

    What:
        ``done`` is set at the last step and at no other; a reward whose ``values`` are 0 and 1 likewise, or never.
    Why it matters:
        A mark in the middle means two episodes in one: windows across it jump from one scene to another.
    Measure:
        Number of set steps, and how many of them stand at the end without a gap.
    When it is wrong:
        The mark stays set after success: raise ``tail``.
    Options:
        tail: how many steps at the end may be set (1).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2]}, done: {role: done, shape: [T]}}}
        samples:
          - {n: 2, a: {normal: [5, 2]}, done: [0, 0, 0, 0, 1]}
          - {a: {normal: [5, 2]}, done: [0, 1, 0, 0, 1]}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2]}, done: {role: done, shape: [T]}}}
        samples:
          - {n: 3, a: {normal: [5, 2]}, done: [0, 0, 0, 0, 1]}

    Fix:
        Split the episodes at the mark, or write it again.
    Reference:
        LIBERO's create_dataset.py writes zeros and a one at the last step.
    """
    known = rows.measured("set")
    if not known.any():
        return
    marked, tail = rows["set"], rows["tail"]
    never = known & (marked == 0) & (case.spec.role == "done")
    if never.any():
        fix = "Write the mark at the last step, or leave out episodes that were cut off."
        text = f"{those(never, 'have')} no step at which {case.name} is set: the episode was cut off, or the mark lost."
        yield Failure(never, text, measured={"set": 0}, fix=fix, kind="never")
    early = known & (marked > 0) & (marked > tail)
    if early.any():
        yield _joined(rows, case, early)
    long = known & (marked == tail) & (tail > int(case.options["tail"]))
    if long.any():
        yield Failure(
            long,
            f"{those(long, 'have')} {case.name} set for {int(np.median(tail[long])):,} steps at the end (median), "
            f"allowed {int(case.options['tail'])}.",
            measured={"tail": int(np.median(tail[long]))},
            expected={"tail": f"..{int(case.options['tail'])}"},
            fix="Cut the episode at the first mark, or raise tail.",
            kind="long",
            order=tail,
        )


def _joined(rows: Rows, case: Case, early: Array) -> Failure:
    more, first = rows["set"] - rows["tail"], int(np.median(rows["first"][early]))
    both = int((early & (rows["tail"] > 0)).sum())
    return Failure(
        early,
        f"{those(early, 'have')} {counted(int(more[early].sum()), 'step')} before the end at which {case.name} is set; "
        f"the first is step {first:,} (median).",
        measured={"inside": int(more[early].sum()), "first": first},
        cause=Cause("more than one episode in one, not cut at the mark", "joined", explains=both) if both else None,
        fix="Split the episodes behind each mark.",
        kind="early",
        order=more,
    )
