"""Rules about streams: sensors that freeze, dark frames, ends of episodes, video lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.measures import form, is_numeric, of_role, reduced
from datacheck.rules.series import (
    RUNS,
    least_run,
    long_runs,
    moving,
    runs,
    series,
    states,
    time_field,
)
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

_PIXELS = frozenset({"image", "depth"})
# Without positions: objects may rest.
_OTHER = frozenset({None, "value", "joint_angle", "color", "rotvec", "quaternion"})
# Roles that may show motion of the robot where no state is declared.
_MOVING = frozenset({None, "value", "joint_angle", "position"})
_LEAST = 6  # fewest numbers per row: fewer are often equal without a fault (a gripper at rest)
# Share of episodes in which a camera stands still, where the moving stream may not be a robot's.
_UNSURE = 0.2
# Share of moving steps of the other episodes that repeat a row: simulated objects rest, sensors do
# not.
_RESTS = 0.02
# Most that one episode contributes to that share: an episode at half rate must not decide for all.
_MUCH = 0.5
# Most fields of each kind that are examined: a file may have thousands
_STREAMS = 64
_WITNESSES = 9
_FEW = 0.05  # largest share of episodes whose stream stops
_EPISODES = 20  # fewest episodes


def _axis(spec: FieldSpec) -> str | int | None:
    """Return the first axis of rows of numbers: its name, or its size where lengths are fixed."""
    return spec.ragged or (spec.shape[0] if spec.shape and len(spec.shape) > 1 else None)


def _over_time(schema: Schema) -> dict[str, FieldSpec]:
    """Return the fields whose first axis is time.

    Notes:
        Where all episodes have one length, an axis of the actions' length is time, and so is one of
        a step more or less, as observations have.
    """
    axis: str | int | None = (
        schema.fields[time_field(schema)].ragged if time_field(schema) else None
    )
    if axis is None:
        axis = next(
            (
                _axis(spec)
                for name, spec in schema.of_role("action")
                if schema.part_of(name) is None
            ),
            None,
        )
    axes = {axis, axis - 1, axis + 1} if isinstance(axis, int) else {axis}
    stored = sorted(schema.stored.items())
    return {
        name: s for name, s in stored if not s.is_text and _axis(s) is not None and _axis(s) in axes
    }


def _streams_and_witnesses(schema: Schema, roles: frozenset[str | None]) -> dict[str, list[str]]:
    """Return the fields that may stand still, each with the fields that show the robot's motion.

    Notes:
        The latter are the declared states, else any other rows of numbers. Commands do not count
        for pictures: a robot may not follow them.
    """
    state_fields = states(schema)[:_WITNESSES]
    every = _over_time(schema)
    moving = _MOVING if roles == _PIXELS else _MOVING | {"action"}
    rows: dict[str | int | None, list[str]] = {}
    for name, spec in every.items():
        if len(spec.shape or ()) == 2 and spec.role in moving:  # no clocks and counters
            rows.setdefault(_axis(spec), []).append(name)
    streams = {}
    for name in islice((n for n, spec in every.items() if spec.role in roles), _STREAMS):
        witnesses = state_fields or rows.get(_axis(every[name]), [])[:_WITNESSES]
        if others := [n for n in witnesses if n != name]:
            streams[name] = others
    return streams


def _repeats_previous(column: Column, fits: Array) -> Array:
    """Tell for each step of the samples that fit whether the row equals the one before.

    Notes:
        Rows of one constant value do not count: DC511 judges black pictures, and the velocity of an
        object at rest is 0.
    """
    lengths = column.lengths
    assert lengths is not None
    rows = column.values.reshape(len(column.values), -1)
    inner = np.repeat(fits, lengths)
    inner[column.starts[fits]] = False
    later = np.flatnonzero(inner)
    few = rows[:, :: max(1, rows.shape[1] // 8)]
    same: Array = (few[later] == few[later - 1]).all(axis=1)
    hits = later[same]
    # Rows are compared in full only where eight sampled values are equal.
    for start in range(0, len(hits), 256):
        part = hits[start : start + 256]
        equal_rows = (rows[part] == rows[part - 1]).all(axis=1) & (
            rows[part] != rows[part, :1]
        ).any(axis=1)
        same[np.searchsorted(later, part)] = equal_rows
    return same


def _frozen(block: Block, schema: Schema, watched: Mapping[str, Sequence[str]]) -> Columns:
    columns: dict[str, Measured] = {}
    declared = bool(states(schema))
    motions: dict[tuple[tuple[str, ...], bytes], tuple[Array, Array, Array] | None] = {}
    for name, witnesses in watched.items():
        column = block.fields.get(name)
        if (
            column is None
            or column.lengths is None
            or not is_numeric(column)
            or column.values.ndim < 2
        ):
            continue
        kind = tuple(witnesses), column.lengths.tobytes()
        if kind not in motions:  # most fields have the same witnesses
            rows = series(block, witnesses)
            # Undeclared integers may be counters.
            motions[kind] = moving(
                [c for c in rows if declared or c.values.dtype.kind == "f"], [column]
            )
        motion = motions[kind]
        if motion is None:
            continue
        moves, count, fits = motion
        same = _repeats_previous(column, fits)
        sample, first, length = runs(same, count)
        moved = np.concatenate([[0], np.cumsum(moves)])
        while_moving = moved[first + length] - moved[first] >= 0.5 * length
        stats = {
            "frozen": long_runs(sample[while_moving], length[while_moving], len(block)),
            "alike": long_runs(sample, length, len(block)),
            "repeats": np.bincount(
                np.repeat(np.arange(len(block)), count)[same & moves], minlength=len(block)
            ),
            "moves": np.bincount(
                np.repeat(np.arange(len(block)), count)[moves], minlength=len(block)
            ),
            "steps": count,
        }
        columns |= {f"{name}:{stat}": Measured(values, fits) for stat, values in stats.items()}
    return dict(columns)


_USES = ("fields.role", "fields.shape", "fields.absent")


@measure("frozen", version=3, per="sample", uses=_USES)
def frozen(block: Block, schema: Schema) -> Columns:
    """Repeated rows of a stream, for each numeric field over time with 6 or more numbers per row.

    `<field>:frozen`: steps in runs of at least each of `series.RUNS` during half of which another
    field moves; `:alike`: in any such run; `:repeats`: repeated rows while another field moves, of
    `:moves`; `:steps`.
    """
    watched = _streams_and_witnesses(schema, _OTHER)
    wide = {
        n: others
        for n, others in watched.items()
        if n in block.fields and _width(block.fields[n]) >= _LEAST
    }
    return _frozen(block, schema, wide)


def _width(column: Column) -> int:
    return prod(column.values.shape[1:]) if column.values.dtype.kind == "f" else 0


@measure("frozen_pixels", version=3, per="sample", uses=_USES, depth="deep")
def frozen_pixels(block: Block, schema: Schema) -> Columns:
    """The columns of `frozen` for pictures and depth maps."""
    return _frozen(block, schema, _streams_and_witnesses(schema, _PIXELS))


def _no_streams(schema: Schema) -> str:
    return "" if _streams_and_witnesses(schema, _OTHER) else "no two fields of numbers over time"


def _no_pictures(schema: Schema) -> str:
    return (
        ""
        if _streams_and_witnesses(schema, _PIXELS)
        else "no pictures over time beside fields of numbers"
    )


_SUPPRESSED_BY = ("DC109", "DC121", "DC122", "DC123", "DC221")


@rule(
    "DC506",
    "frozen-stream",
    Severity.WARNING,
    Level.GROUP,
    per="sample",
    measures=(frozen,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_streams,
    defaults={"seconds": 1.0, "steps": 20, "often": 0.5},
    paced=True,
)
def frozen_stream(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A sensor repeats one row while the robot moves.

    What:
        No row of 6 or more numbers in a stream that otherwise changes is repeated for a second
        while a joint or a position moves. If no field has these roles, motion of another stream or
        of the action counts. DC513 judges images.
    Why it matters:
        The policy learns to act on observations that are seconds old.
    Measure:
        Runs of rows that equal the previous row; in at least half of a run's steps, a field moves
        by more than 1 % of the 99th percentile of its speed. A stream is judged in an episode if it
        changes at 90 % of the steps outside the long runs and these runs cover less than half of
        the steps. With at least 20 episodes, longer runs count too if at most a twentieth of the
        episodes has them. In the other episodes, at most 2 % of the moving steps may repeat a row
        (mean over the episodes, each counted as at most half). Positions are not judged, because
        objects may rest; rows whose numbers are all equal do not count.
    When it is wrong:
        The stream is slower than the rows on purpose: raise ``seconds``.
    Options:
        seconds: longest time for which a stream may stand still, in seconds (1).
        steps: the same limit in steps, if the schema gives no ``fps`` (20).
        often: if more than this share of the episodes has such runs, that is normal for the stream
        and not reported (0.5).
    Bad::

        schema: {episode: {fps: 10}, fields: {q: {role: joint_angle, shape: [T, 2], unit: rad},
                 s: {role: value, shape: [T, 6]}}}
        samples:
          - {n: 2, q: {ramp: [60, 2]}, s: {ramp: [60, 6]}}
          - {q: {ramp: [60, 2]}, s: {ramp: [60, 6], moves: 40}}

    Good::

        schema: {episode: {fps: 10}, fields: {q: {role: joint_angle, shape: [T, 2], unit: rad},
                 s: {role: value, shape: [T, 6]}}}
        samples:
          - {n: 3, q: {ramp: [60, 2]}, s: {ramp: [60, 6]}}

    Fix:
        Record again, or cut the episode where the stream stands still.
    Reference:
        In robot recordings of several sensors, one stream stalls while the others run on.
    """
    place = _place(case)
    for name, witnesses in _streams_and_witnesses(case.schema, _OTHER).items():
        measured = rows.measured(f":{name}:steps")
        if not measured.any():
            continue
        steps = rows[f":{name}:steps"]
        longest_runs = rows[f":{name}:alike"]
        still = np.where(measured, rows[f":{name}:frozen"][:, place], 0)
        long = longest_runs[:, place]
        rest = steps - longest_runs[:, place]
        bad = (still > 0) & (longest_runs[:, 0] - long <= 0.1 * rest)
        for_good = bad & (long >= 0.5 * steps) & (rest >= RUNS[place])
        stops = measured.sum() >= _EPISODES and for_good.sum() <= _FEW * measured.sum()
        bad &= (long < 0.5 * steps) | (for_good if stops else False)
        others = measured & ~bad
        repeats, moves = (rows[f":{name}:{stat}"][others] for stat in ("repeats", "moves"))
        rests = _holds_still(repeats, moves)
        if (
            bad.any()
            and not rests
            and (bad.sum() == 1 or bad.sum() <= float(case.options["often"]) * measured.sum())
        ):
            why = "the sensor or its driver stopped, or what it sees came to rest"
            yield _stalled(name, witnesses, why, bad, still, steps, case)


def _holds_still(repeats: Array, moves: Array) -> bool:
    """Tell whether a stream rests while others move, like an object and unlike a sensor.

    Episodes have equal weight.
    """
    moving = moves > 0
    shares = np.minimum(repeats[moving] / moves[moving], _MUCH)
    return bool(shares.sum() > _RESTS * len(shares))


@rule(
    "DC513",
    "frozen-pictures",
    Severity.WARNING,
    Level.GROUP,
    per="sample",
    measures=(frozen_pixels,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_pictures,
    defaults={"seconds": 1.0, "steps": 20, "repeats": 0.5},
    depth="deep",
    paced=True,
)
def frozen_pictures(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A camera repeats one image while the robot moves.

    What:
        No image or depth map is repeated for a second while a joint or a position moves, and at
        most half of the images taken in motion repeat the previous one. If no field has these
        roles, another stream of numbers beside the images shows the motion; long repeats are then
        reported only if at most a fifth of the episodes has them, and the share of repeated images
        is not judged.
    Why it matters:
        The policy learns to act on an image that is seconds old.
    Measure:
        Images that equal the previous one, pixel by pixel, and runs of them as in DC506. DC511
        judges images of one value.
    When it is wrong:
        The camera is slower than the rows on purpose: raise ``seconds`` and ``repeats``.
    Options:
        seconds: longest time for which a camera may stand still, in seconds (1).
        steps: the same limit in steps, if the schema gives no ``fps`` (20).
        repeats: largest share of repeated images while the robot moves (0.5).
    Bad::

        schema: {episode: {fps: 10}, fields: {q: {role: joint_angle, shape: [T, 2], unit: rad},
                 rgb: {role: image, shape: [T, 4, 4, 3]}}}
        samples:
          - {n: 2, q: {ramp: [20, 2]}, rgb: {film: 20}}
          - {q: {ramp: [20, 2]}, rgb: {film: 20, stops: 5}}

    Good::

        schema: {episode: {fps: 10}, fields: {q: {role: joint_angle, shape: [T, 2], unit: rad},
                 rgb: {role: image, shape: [T, 4, 4, 3]}}}
        samples:
          - {n: 3, q: {ramp: [20, 2]}, rgb: {film: 20}}

    Fix:
        Record again, cut the episode there, or keep the rows at which the image changes.
    Reference:
        In robot recordings of several cameras, one stream stalls while the others run on.
    """
    place = _place(case)
    for name, witnesses in _streams_and_witnesses(case.schema, _PIXELS).items():
        measured = rows.measured(f":{name}:steps")
        if not measured.any():
            continue
        still = np.where(measured, rows[f":{name}:frozen"][:, place], 0)
        sure = bool(states(case.schema))
        if (still > 0).any() and (sure or (still > 0).sum() <= _UNSURE * measured.sum()):
            steps = rows[f":{name}:steps"]
            yield _stalled(
                name, witnesses, "the camera or its driver stopped", still > 0, still, steps, case
            )
        repeats = rows[f":{name}:repeats"]
        moves = rows[f":{name}:moves"]
        many = measured & sure & (still == 0) & (repeats > float(case.options["repeats"]) * moves)
        if many.any():
            yield _repeating(
                name, many, repeats / np.maximum(1, moves), float(case.options["repeats"])
            )


def _place(case: RuleContext) -> int:
    fps = case.schema.episode.fps if case.schema.episode is not None else None
    return least_run(float(case.options["seconds"]), fps, int(case.options["steps"]))


def _repeating(name: str, many: Array, share: Array, most: float) -> Failure:
    typical = float(np.median(share[many]))
    rows = format_number(1 / max(1e-9, 1 - typical))
    return Failure(
        many,
        f"{name}: {100 * typical:.3g} % of the pictures taken in motion repeat the one before "
        f"(median), in "
        f"{pluralize(int(many.sum()))}.",
        measured={"repeats": typical},
        expected={"repeats": f"..{most:g}"},
        cause=Cause(f"the camera is slower than the rows: about 1 picture for {rows} rows", "slow"),
        fix="Keep the rows at which the picture changes, or record at the rate of the camera.",
        kind="repeats",
        order=share,
        extra=(name,),
    )


def _stalled(
    name: str,
    witnesses: Sequence[str],
    what: str,
    bad: Array,
    still: Array,
    steps: Array,
    case: RuleContext,
) -> Failure:
    fps = case.schema.episode.fps if case.schema.episode is not None else None
    typical = float(np.median(still[bad]))
    long = format_number(typical / fps, "s") if fps else pluralize(int(typical), "step")
    moves = "the robot moves" if states(case.schema) else f"{' or '.join(witnesses[:3])} moves"
    return Failure(
        bad,
        f"{name} repeats one row for {long} (median) while {moves}, in {pluralize(int(bad.sum()))}.",
        measured={"steps": typical, "whole": int((bad & (still == steps)).sum())},
        cause=Cause(f"the last row was stored again: {what}", "frozen", explains=int(bad.sum())),
        fix="Record again, or cut the episode where the stream stands still.",
        kind="frozen",
        order=still / np.maximum(1, steps),
        extra=(name,),
    )


DARK = (0.5, 1.0, 2.0, 4.0, 8.0)  # mean brightness of a frame, of 255


def _frames(column: Column, spec: FieldSpec) -> tuple[Array, Array] | None:
    """Return the count of numbers in each frame, and the count of frames of each sample."""
    values, lengths = column.values, column.lengths
    rank = values.ndim - (lengths is None)
    if lengths is None or rank < 2:
        return None
    item = prod(values.shape[1:])
    if rank == 4 or (rank == 3 and (spec.ragged or "").startswith("T")):
        return np.full(len(values), item), lengths
    return lengths * item, np.ones(len(column), np.int64)


def _white(low: Array, high: Array, dtype: np.dtype[Any]) -> Array:
    """Return the brightest possible value of each sample, from its extremes; 0 for no brightness.

    Floats below 0 are normalised, those up to 1 are shares of white.
    """
    if dtype.kind == "u":
        return np.full(len(low), 255.0 if dtype.itemsize == 1 else 65_535.0)
    white = np.where((high <= 1) & (dtype.kind == "f"), 1.0, 255.0)
    return np.where((low >= 0) & np.isfinite(high), white, 0.0)


@measure("frames", version=2, applies=of_role("image"), uses=("shape",), depth="deep")
def frames(column: Column, spec: FieldSpec) -> Columns:
    """Brightness of a sample's frames.

    `frames`; `dark`: how many have a mean below each of `DARK`, of 255, or are of one value;
    `flat`: those of one value; `first_dark`: the first below the last of `DARK`, -1 for none.
    """
    frame_sizes = (
        _frames(column, spec) if is_numeric(column) and column.values.dtype.kind != "b" else None
    )
    if frame_sizes is None:
        return {}
    (size, count), pixels = frame_sizes, column.values.reshape(-1)
    low, high = (
        reduced(ufunc, pixels, size).astype(np.float64) for ufunc in (np.minimum, np.maximum)
    )
    white = _white(reduced(np.minimum, low, count), reduced(np.maximum, high, count), pixels.dtype)
    mean = (
        reduced(np.add, pixels, size)
        / np.maximum(size, 1)
        * np.repeat(255 / np.maximum(white, 1), count)
    )
    flat = low == high
    dark = (mean[:, None] < DARK) | flat[:, None]
    frame_index = np.arange(len(mean)) - np.repeat(np.cumsum(count) - count, count)
    first = reduced(np.minimum, np.where(dark[:, -1], frame_index, len(mean)), count)
    columns = {
        "frames": count,
        "dark": reduced(np.add, np.ascontiguousarray(dark.T), count).T,
        "flat": reduced(np.add, flat, count),
        "first_dark": np.where(first < len(mean), first, -1),
    }
    seen = (reduced(np.add, size, count) > 0) & (white > 0)
    return {name: Measured(values, seen) for name, values in columns.items()}


@rule(
    "DC511",
    "dark-frames",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(frames,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("image"),
    defaults={"dark": 2.0, "share": 0.01},
    depth="deep",
)
def dark_frames(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Frames are black or of one colour.

    What:
        At most 1 % of the frames of a sample are black or have one value throughout.
    Why it matters:
        A camera that was covered, or not yet running, teaches the policy to act without seeing.
    Measure:
        Mean brightness of each frame, scaled to 0..255; frames in which every value is the same.
    When it is wrong:
        The scene is dark on purpose: lower ``dark``, or raise ``share``.
    Options:
        dark: mean brightness, of 255, below which a frame is black (2; one of 0.5, 1, 2, 4, 8).
        share: largest share of a sample's frames that may be black or of one value (0.01).
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
        A renderer without a context, or a camera that is not open yet, returns frames of zeros
        without an error.
    """
    measured = rows.measured("frames")
    if not measured.any():
        return
    place = int(np.argmin(np.abs(np.array(DARK) - float(case.options["dark"]))))
    dark = np.where(measured, rows["dark"][:, place], 0)
    bad = measured & (dark > float(case.options["share"]) * rows["frames"])
    if not bad.any():
        return
    flat = int(rows["flat"][bad].sum())
    whole = bad & (dark == rows["frames"])
    start = bad & ~whole & (rows["first_dark"] == 0)
    cause = Cause(
        "the camera was not running yet: the dark frames begin with the first",
        "start",
        explains=int(start.sum()),
    )
    if whole.sum() >= max(1, start.sum()):
        cause = Cause(
            "the camera showed nothing, or values of 0 to 1 were stored as whole numbers",
            "whole",
            explains=int(whole.sum()),
        )
    yield Failure(
        bad,
        f"{int(dark[bad].sum()):,} of {int(rows['frames'][bad].sum()):,} frames of "
        f"{pluralize(int(bad.sum()))} are "
        f"darker than {DARK[place]:g} of 255 or of one value ({flat:,}).",
        measured={
            "dark": int(dark[bad].sum()),
            "frames": int(rows["frames"][bad].sum()),
            "flat": flat,
        },
        expected={"share": f"..{float(case.options['share']):g}"},
        cause=cause if whole.any() or start.any() else None,
        fix="Write them again where their source shows something; else cut these steps off, or "
        "leave the samples out.",
        order=dark / np.maximum(1, rows["frames"]),
    )


@measure("ending", applies=of_role("done", "reward"))
def ending(column: Column, spec: FieldSpec) -> Columns:
    """Steps at which a mark over time is set (not 0): `set`, their count; `tail`, `first`.

    `tail`: set steps at the end without a gap; `first`: the first set step, -1 without one.
    """
    del spec
    if (
        not is_numeric(column)
        or column.lengths is None
        or column.values.shape[1:] not in {(), (1,)}
    ):
        return {}
    lengths = column.lengths
    on = column.values.reshape(-1) != 0
    step_index = np.arange(len(on)) - np.repeat(column.starts, lengths)
    last_off = reduced(np.maximum, np.where(on, -1, step_index), lengths)
    first = reduced(np.minimum, np.where(on, step_index, len(on)), lengths)
    columns = {
        "set": reduced(np.add, on, lengths),
        "tail": lengths - 1 - last_off,
        "first": np.where(first < len(on), first, -1),
    }
    return {name: Measured(values, lengths > 0) for name, values in columns.items()}


def _judged(spec: FieldSpec) -> bool:
    return of_role("done")(spec) or (
        of_role("reward")(spec) and bool(spec.values) and set(spec.values) <= {0.0, 1.0}
    )


@rule(
    "DC512",
    "episode-end",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(ending,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=_judged,
    defaults={"tail": 1},
)
def episode_end(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The end mark is not at the end of the episode.

    What:
        ``done`` is set at the last step and at no other step. The same holds for a reward whose
        ``values`` are 0 and 1, which may also never be set.
    Why it matters:
        A mark in the middle means that two episodes were joined: windows across it jump from one
        scene to another.
    Measure:
        Number of steps at which the mark is set, and how many of them form an unbroken run at the
        end.
    When it is wrong:
        The mark stays set after success: raise ``tail``.
    Options:
        tail: largest number of steps at the end that may be set (1).
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
        Split the episodes at the mark, or write the mark again.
    Reference:
        LIBERO's create_dataset.py writes zeros and a one at the last step.
    """
    measured = rows.measured("set")
    if not measured.any():
        return
    marked = rows["set"]
    tail = rows["tail"]
    never = measured & (marked == 0) & (case.spec.role == "done")
    if never.any():
        fix = "Write the mark at the last step, or leave out episodes that were cut off."
        text = (
            f"{count_phrase(never, 'have')} no step at which {case.name} is set: the episode "
            f"was cut off, or the mark lost."
        )
        yield Failure(never, text, measured={"set": 0}, fix=fix, kind="never")
    early = measured & (marked > 0) & (marked > tail)
    if early.any():
        yield _merged_episodes(rows, case, early)
    long = measured & (marked == tail) & (tail > int(case.options["tail"]))
    if long.any():
        yield Failure(
            long,
            f"{count_phrase(long, 'have')} {case.name} set for {int(np.median(tail[long])):,} "
            f"steps at the end (median), "
            f"allowed {int(case.options['tail'])}.",
            measured={"tail": int(np.median(tail[long]))},
            expected={"tail": f"..{int(case.options['tail'])}"},
            fix="Cut the episode at the first mark, or raise tail.",
            kind="long",
            order=tail,
        )


def _merged_episodes(rows: Rows, case: RuleContext, early: Array) -> Failure:
    more = rows["set"] - rows["tail"]
    first = int(np.median(rows["first"][early]))
    both = int((early & (rows["tail"] > 0)).sum())
    return Failure(
        early,
        f"{count_phrase(early, 'have')} {pluralize(int(more[early].sum()), 'step')} before the end "
        f"at which {case.name} is set; "
        f"the first is step {first:,} (median).",
        measured={"inside": int(more[early].sum()), "first": first},
        cause=Cause("more than one episode in one, not cut at the mark", "joined", explains=both)
        if both
        else None,
        fix="Split the episodes behind each mark.",
        kind="early",
        order=more,
    )


@measure("video", applies=of_role("video"))
def video(column: Column, spec: FieldSpec) -> Columns:
    """Length of a video by the times of its frames: `frames`; `span` [s] from first to last."""
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 1:
        return {}
    lengths = column.lengths
    full = lengths > 0
    span = np.zeros(len(column))
    times = column.values.astype(np.float64)
    span[full] = times[(column.starts + lengths - 1)[full]] - times[column.starts[full]]
    return {"frames": lengths, "span": Measured(span, full)}


@rule(
    "DC508",
    "video-mismatch",
    Severity.ERROR,
    Level.GROUP,
    measures=(video, form),
    suppressed_by=("DC109", "DC121", "DC122", "DC123"),
    applies=of_role("video"),
    defaults={"drift": 1.0},
    unless=lambda s: "" if time_field(s) else "no field with a time axis",
    paced=True,
)
def video_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A video has more or fewer frames than its episode has rows, or another duration.

    What:
        The video has as many frames as the time axis has rows; with ``episode: {fps: ...}``, the
        time from the first to the last frame also matches.
    Why it matters:
        Rows are paired with frames by number, so one lost frame shifts every later image.
    Measure:
        Frames and times from the header of the file; the images are not decoded.
    When it is wrong:
        The video covers several episodes: pair it by time, and leave the role out.
    Options:
        drift: largest number of frames by which video and rows may run apart (1).
    Bad::

        schema: {episode: {fps: 10}, fields: {a: {role: action, shape: [T, 2]}, cam: {role: video}}}
        samples:
          - {n: 2, a: {normal: [5, 2]}, cam: [0.0, 0.1, 0.2, 0.3, 0.4]}
          - {a: {normal: [6, 2]}, cam: [0.0, 0.1, 0.2, 0.3, 0.4]}

    Good::

        schema: {episode: {fps: 10}, fields: {a: {role: action, shape: [T, 2]}, cam: {role: video}}}
        samples:
          - {n: 3, a: {normal: [5, 2]}, cam: [0.0, 0.1, 0.2, 0.3, 0.4]}

    Fix:
        Encode the video again from the frames of the episode, at its rate.
    Reference:
        LeRobot looks up frames by ``index / fps``; encoders drop and repeat frames to keep a rate.
    """
    column = f"{time_field(case.schema)}:dims"
    measured = rows.measured("frames") & rows.measured(column)
    if not measured.any():
        return
    frames = rows["frames"]
    steps = rows[column][:, 0]
    wrong = measured & (frames != steps)
    if wrong.any():
        yield _counts(wrong, frames, steps)
    fps = case.schema.episode.fps if case.schema.episode is not None else None
    if fps is None:
        return
    measured &= ~wrong & rows.measured("span")
    drift = np.abs(np.where(measured, rows["span"] * fps - (steps - 1), 0.0))
    off = measured & (drift > float(case.options["drift"]) + 1e-6)
    if off.any():
        rate = float(np.median((frames[off] - 1) / np.maximum(rows["span"][off], 1e-9)))
        yield Failure(
            off,
            f"{count_phrase(off, 'last')} another time than their rows at {fps:g} a second: by "
            f"{format_number(np.median(drift[off]))} "
            "frames (median).",
            measured={"drift": float(np.median(drift[off])), "rate": rate},
            expected={"drift": f"..{float(case.options['drift']):g}"},
            cause=Cause(f"the video runs at {rate:.4g} frames a second", "rate", rate / fps),
            fix="Encode it again at the rate of the rows, or correct episode: {fps: ...}.",
            kind="drift",
            order=drift,
        )


def _counts(wrong: Array, frames: Array, steps: Array) -> Failure:
    more = (frames - steps)[wrong]
    ratio = frames[wrong] / np.maximum(1, steps[wrong])
    typical = float(np.median(ratio))
    near = [
        k for k in (2, 3, 4, 5, 6) if abs(typical / k - 1) < 0.05 or abs(typical * k - 1) < 0.05
    ]
    cause = None
    if near:
        every = f"{near[0]} frames a row" if typical > 1 else f"a frame for every {near[0]} rows"
        cause = Cause(f"another rate: {every}", "rate", typical)
    elif (np.abs(more) == 1).all():
        cause = Cause(
            "one frame is lost or added, as encoders do at the ends", "one", explains=len(more)
        )
    return Failure(
        wrong,
        f"{count_phrase(wrong, 'have')} {int(np.median(frames[wrong])):,} frames for "
        f"{int(np.median(steps[wrong])):,} rows "
        f"(median); {pluralize(int(np.abs(more).sum()), 'frame')} too many or too few.",
        measured={"frames": int(np.median(frames[wrong])), "rows": int(np.median(steps[wrong]))},
        cause=cause,
        fix="Encode the video again from the frames of the episode.",
        kind="frames",
        order=np.abs(frames - steps),
    )
