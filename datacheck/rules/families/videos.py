"""Rules about videos beside the data: as many frames as rows, over the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import form, is_numeric, of_role
from datacheck.rules.series import time_field
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]


@measure("video", applies=of_role("video"))
def video(column: Column, spec: FieldSpec) -> Columns:
    """How long a video is, from the times of its frames: `frames`; `span` [s] from the first to the last of them."""
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
    "DC508", "video-mismatch", Severity.ERROR, Level.GROUP, measures=(video, form),
    needs=("DC109", "DC121", "DC122", "DC123"), applies=of_role("video"), defaults={"drift": 1.0},
    unless=lambda s: "" if time_field(s) else "no field with a time axis", paced=True,
)  # fmt: skip
def video_mismatch(rows: Rows, case: Case) -> Iterator[Failure]:
    """A video has another number of frames than its episode has rows, or lasts another time.

    What:
        As many frames as rows on the time axis; with ``episode: {fps: ...}`` also the same time from first to last.
    Why it matters:
        Rows are paired with frames by number: one lost frame shifts every picture behind it.
    Measure:
        Frames and times from the header of the file; pictures are not decoded.
    When it is wrong:
        The video covers several episodes: pair it by time, and leave the role away.
    Options:
        drift: frames by which video and rows may run apart (1).
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
        LeRobot: frames are looked up by ``index / fps``; encoders drop and repeat frames to keep a rate.
    """
    column = f"{time_field(case.schema)}:dims"
    known = rows.measured("frames") & rows.measured(column)
    if not known.any():
        return
    frames, steps = rows["frames"], rows[column][:, 0]
    wrong = known & (frames != steps)
    if wrong.any():
        yield _counts(wrong, frames, steps)
    fps = case.schema.episode.fps if case.schema.episode is not None else None
    if fps is None:
        return
    known &= ~wrong & rows.measured("span")
    drift = np.abs(np.where(known, rows["span"] * fps - (steps - 1), 0.0))
    off = known & (drift > float(case.options["drift"]) + 1e-6)
    if off.any():
        rate = float(np.median((frames[off] - 1) / np.maximum(rows["span"][off], 1e-9)))
        yield Failure(
            off,
            f"{those(off, 'last')} another time than their rows at {fps:g} a second: by {shown(np.median(drift[off]))} "
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
    near = [k for k in (2, 3, 4, 5, 6) if abs(typical / k - 1) < 0.05 or abs(typical * k - 1) < 0.05]
    cause = None
    if near:
        every = f"{near[0]} frames a row" if typical > 1 else f"a frame for every {near[0]} rows"
        cause = Cause(f"another rate: {every}", "rate", typical)
    elif (np.abs(more) == 1).all():
        cause = Cause("one frame is lost or added, as encoders do at the ends", "one", explains=len(more))
    return Failure(
        wrong,
        f"{those(wrong, 'have')} {int(np.median(frames[wrong])):,} frames for {int(np.median(steps[wrong])):,} rows "
        f"(median); {counted(int(np.abs(more).sum()), 'frame')} too many or too few.",
        measured={"frames": int(np.median(frames[wrong])), "rows": int(np.median(steps[wrong]))},
        cause=cause,
        fix="Encode the video again from the frames of the episode.",
        kind="frames",
        order=np.abs(frames - steps),
    )
