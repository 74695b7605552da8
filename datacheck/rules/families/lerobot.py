"""Rules about LeRobot datasets: contradicting documents, numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows, Texts
from datacheck.rules.base import Columns, RuleContext, count_phrase, format_number, measure, rule
from datacheck.rules.measures import lost_digits, no_lerobot, reduced
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_SHOWN = 5  # contradictions in one message
_FIRST_ROW = "first_row"  # attribute of an episode: rows of all episodes before it
# By the kind of a contradiction: its severity, and the repair.
_CONTRADICTIONS = {
    "totals": (
        Severity.ERROR,
        "Find out whether episodes are missing. If none is, correct the totals in meta/info.json.",
    ),
    "counts": (Severity.WARNING, "Correct the number in meta/info.json."),
    "keys": (Severity.ERROR, "Write the value into meta/info.json."),
    "templates": (
        Severity.ERROR,
        "Write {episode_chunk} in place of {chunk_index} in meta/info.json.",
    ),
    "dtypes": (
        Severity.WARNING,
        "Correct the dtype in meta/info.json, or write the column with the declared one.",
    ),
    "splits": (Severity.WARNING, "Correct the ranges of splits in meta/info.json."),
    "positions": (
        Severity.ERROR,
        "Number the episodes from 0 without gaps, in the order of meta/episodes and of the rows.",
    ),
    "tasks": (Severity.WARNING, "Correct the texts in meta/tasks, or merge the tasks."),
    "version": (
        Severity.WARNING,
        "Convert the dataset with LeRobot's own converter, or correct codebase_version.",
    ),
    "features": (Severity.ERROR, "Correct the features in meta/info.json."),
    "names": (Severity.WARNING, "Correct the names of the feature in meta/info.json."),
    "videos": (Severity.ERROR, "Write the template of the videos into video_path."),
    "statistics": (Severity.ERROR, "Compute the statistics again from the data."),
    "missing": (Severity.WARNING, "Compute the statistics again, for all features and no others."),
    "rows": (Severity.WARNING, "Compute the statistics again from all episodes."),
    "modality": (Severity.ERROR, "Correct meta/modality.json by the features of meta/info.json."),
}


@rule("DC114", "metadata-mismatch", Severity.ERROR, Level.DATASET, per="sample", unless=no_lerobot)
def metadata_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The documents in the meta folder of a LeRobot dataset contradict each other.

    What:
        ``total_episodes`` and ``total_frames`` of ``meta/info.json`` are the number of episodes in
        ``meta/episodes`` and the sum of their lengths; ``fps`` is there, and sizes of files are
        above 0. Episodes are numbered from 0 in the order of
        the table. The columns that LeRobot needs are features; a picture has three sizes; with
        videos, ``video_path`` is a template, and templates have only numbers that LeRobot fills in.
        Statistics in ``meta/stats.json`` are possible: finite,
        as many as the feature has numbers, the standard deviation not below 0 and at most half of
        the range, mean and quantiles between smallest and largest value, quantiles in order, those
        of colours within 0 and 1. What
        ``meta/modality.json`` of GR00T takes lies within the features (errors). Warnings:
        other totals; numbers stored with another width than declared;
        splits that leave the episodes or share some; tasks without text, with a
        placeholder or with the text of another one; names of another number, twice, or with ``/``; features
        without statistics and statistics without a feature; statistics of another number of rows;
        an unknown ``codebase_version``.
    Why it matters:
        LeRobot looks an episode up by its position: behind a gap, each episode gets the tasks, the
        rows and the videos of another one, without an error. A normalizer with impossible
        statistics trains, and moves the robot to other places.
    Measure:
        The documents of the meta folder alone, held against each other. Up to 20 contradictions of
        a kind are named. Other rules compare the rows: DC111 lengths, DC228 statistics.
    When it is wrong:
        A tool keeps its own totals there on purpose: waive the document.
    Options:
        none
    Bad::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
        listing:
          - {code: DC114, key: meta/info.json, reason: total_episodes is 8, about: {kind: totals}}

    Good::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}

    Fix:
        Correct the document that is wrong: ``meta/info.json`` by the episodes, or the episodes by
        the rows.
    Reference:
        axol pull request 158: after a crash the info counted 8 episodes, the table 6; a gap in the
        numbers shifted the videos of all later episodes. lerobot pull request 3091.
    """
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for note in case.notes:
        by_kind.setdefault(note.about.get("kind", ""), []).append((note.key, note.reason))
    for kind, (severity, fix) in _CONTRADICTIONS.items():
        found = by_kind.get(kind, [])
        if found:
            yield Failure(
                np.zeros(len(rows), bool),
                f"{_sentence(found)}.",
                measured={"contradictions": [f"{name}: {words}" for name, words in found[:20]]},
                severity=severity,
                fix=fix,
                kind=kind,
            )


def _sentence(found: Sequence[tuple[str, str]]) -> str:
    """Return the first contradictions, each document named once, and the count of the others."""
    shown: dict[str, list[str]] = {}
    for document, words in found[:_SHOWN]:
        shown.setdefault(document, []).append(words)
    phrases = [f"{document}: {'; '.join(words)}" for document, words in shown.items()]
    rest = len(found) - _SHOWN
    return "; ".join(phrases) + (f"; and {rest:,} more" if rest > 0 else "")


_INDEX, _FRAME = "index", "frame_index"
_NUMBER_AGAIN = "Number the rows again from 0, in the order of meta/episodes."


@measure("row_numbers", per="sample", uses=("fields.shape",))
def row_numbers(block: Block, schema: Schema) -> Columns:
    """The numbers that LeRobot writes into the rows of an episode.

    `index:begins`, `frame_index:begins`: the number of the first row; `:breaks`: rows whose number
    is not one above the row before; `index:rows_before`: rows of all episodes before this one by
    their stated lengths; `index:rows_lacking`: stated length less the rows of this one.
    """
    del schema
    columns: dict[str, Measured] = {}
    for name in (_INDEX, _FRAME):
        column = block.fields.get(name)
        if column is None or column.lengths is None or column.values.dtype.kind not in "iu":
            continue
        if column.values.shape[1:] not in {(), (1,)}:
            continue
        numbers = column.values.ravel().astype(np.int64)
        steps = np.diff(numbers, prepend=0) != 1
        present = column.lengths > 0
        starts = column.starts[present]
        steps[starts] = False
        first = np.zeros(len(block), np.int64)
        first[present] = numbers[starts]
        columns[f"{name}:begins"] = Measured(first, present)
        columns[f"{name}:breaks"] = Measured(reduced(np.add, steps, column.lengths), present)
    before, length = (block.facts.get(f"attrs/{name}") for name in (_FIRST_ROW, "length"))
    if before is None or before.kind != "array" or f"{_INDEX}:begins" not in columns:
        return columns
    rows = block.fields[_INDEX].lengths
    every = np.ones(len(block), bool)
    columns[f"{_INDEX}:rows_before"] = Measured(before.values, every)
    if length is not None and length.kind == "array":
        columns[f"{_INDEX}:rows_lacking"] = Measured(length.values - rows, every)
    return columns


@rule(
    "DC514",
    "wrong-row-numbers",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(row_numbers,),
    suppressed_by=("DC109", "DC122", "DC123"),
    unless=no_lerobot,
)
def wrong_row_numbers(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The rows of an episode are not numbered as LeRobot looks them up.

    What:
        ``index`` counts the rows of all episodes: an episode begins with the number of rows before
        it, and each row is one above the row before (errors). ``frame_index`` counts the rows of an
        episode from 0 (warning).
    Why it matters:
        LeRobot finds the steps of a window by ``index`` and by the row range of the episode. With
        other numbers it serves steps of another episode, or pads steps that exist.
    Measure:
        First number of each episode, and rows whose number is not one above the row before. The
        expected first number is the sum of the lengths of the episodes before, in the order of
        ``meta/episodes``.
    When it is wrong:
        The files are a part of a larger dataset and keep its numbers: LeRobot cannot load them so;
        another loader can. Switch the rule off for it.
    Options:
        none
    Bad::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {index: {shape: [T], dtype: int64}}}
        samples:
          - {index: [0, 1, 2], facts: {attrs/first_row: 0}}
          - {index: [4, 5, 6], facts: {attrs/first_row: 3}}

    Good::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {index: {shape: [T], dtype: int64}}}
        samples:
          - {index: [0, 1, 2], facts: {attrs/first_row: 0}}
          - {index: [3, 4, 5], facts: {attrs/first_row: 3}}

    Fix:
        Number the rows again in the order of ``meta/episodes``.
    Reference:
        lerobot issue 1919: with scrambled row ranges nearly all steps count as padding.
    """
    del case
    yield from _wrong_index(rows)
    yield from _wrong_frames(rows)


def _wrong_index(rows: Rows) -> Iterator[Failure]:
    measured = rows.measured(f":{_INDEX}:begins")
    if not measured.any():
        return
    first, breaks = rows[f":{_INDEX}:begins"], rows[f":{_INDEX}:breaks"]
    broken = measured & (breaks > 0)
    known = measured & ~broken & rows.measured(f":{_INDEX}:rows_before")
    if broken.any():
        yield Failure(
            broken,
            f"{count_phrase(broken, 'have', 'episode')} rows whose index is not one above the row before: "
            f"{int(breaks[broken].sum()):,} such rows.",
            measured={"rows": int(breaks[broken].sum())},
            fix=_NUMBER_AGAIN,
            kind="order",
            order=breaks.astype(np.float64),
        )
    if not known.any():
        return
    expected = rows[f":{_INDEX}:rows_before"] - _lacking_before(rows)
    shifted = known & (first != expected)
    if shifted.any():
        at = int(np.argmax(shifted))
        yield Failure(
            shifted,
            f"{count_phrase(shifted, 'begin', 'episode')} at the wrong index: the first at "
            f"{int(first[at]):,}, expected {int(expected[at]):,}.",
            measured={"index": int(first[at])},
            expected={"index": int(expected[at])},
            fix=_NUMBER_AGAIN,
            kind="shift",
        )


def _lacking_before(rows: Rows) -> Array:
    """Return the rows that episodes before lack against their stated lengths: another rule's fault."""
    name = f":{_INDEX}:rows_lacking"
    lacking = np.zeros(len(rows), np.int64)
    known = rows.measured(name) & rows.measured(f":{_INDEX}:rows_before")
    if not known.any() or not rows[name][known].any():
        return lacking
    for _, places in Texts.of([path.rpartition("data/")[0] for path in rows.files]).places():
        inside = places[known[places]]
        ordered = inside[np.argsort(rows[f":{_INDEX}:rows_before"][inside], kind="stable")]
        own = rows[name][ordered]
        lacking[ordered] = np.cumsum(own) - own
    return lacking


def _wrong_frames(rows: Rows) -> Iterator[Failure]:
    measured = rows.measured(f":{_FRAME}:begins")
    if not measured.any():
        return
    first, breaks = rows[f":{_FRAME}:begins"], rows[f":{_FRAME}:breaks"]
    wrong = measured & ((first != 0) | (breaks > 0))
    if wrong.any():
        yield Failure(
            wrong,
            f"{count_phrase(wrong, 'have', 'episode')} a frame_index that does not count 0, 1, 2 ... up to the "
            f"last row: {int((first[wrong] != 0).sum()):,} begin with another number, "
            f"{int((breaks[wrong] > 0).sum()):,} have gaps or repeats.",
            measured={
                "begin": int((first[wrong] != 0).sum()),
                "breaks": int((breaks[wrong] > 0).sum()),
            },
            severity=Severity.WARNING,
            fix="Number the rows of each episode from 0, once it is certain that no row is missing.",
            kind="frames",
        )


# By the kind of a video's fault: its severity, a phrase for several episodes, and the repair.
_VIDEO_FAULTS = {
    "unreadable": (
        Severity.ERROR,
        "a video that cannot be read",
        "Restore the video, or write it again.",
    ),
    "frames": (
        Severity.ERROR,
        "another number of frames than of rows",
        "Leave the episodes out, or convert them again from the raw recording.",
    ),
    "span": (
        Severity.ERROR,
        "a span of the video that is not as long as their rows",
        "Correct from_timestamp and to_timestamp in meta/episodes, or convert the dataset again.",
    ),
    "gap": (
        Severity.ERROR,
        "a span that reaches into that of another episode in the video",
        "Correct from_timestamp and to_timestamp in meta/episodes, or convert the dataset again.",
    ),
    "end": (
        Severity.ERROR,
        "rows behind the end of the video",
        "Restore the whole video, or leave the episodes out.",
    ),
    "time": (
        Severity.ERROR,
        "frames too far from the times of their rows",
        "Encode the video again at the dataset's fps, or raise tolerance_s after looking at it.",
    ),
    "rounding": (
        Severity.ERROR,
        "rows whose frames LeRobot misses by rounding",
        "Set tolerance_s of LeRobotDataset to the value above, or write shorter video files "
        "(video_files_size_in_mb).",
    ),
    "surplus": (
        Severity.INFO,
        "unused frames in the video",
        "Leave it: no loader reads them. To save their bytes, encode the video again without them.",
    ),
    "info": (
        Severity.WARNING,
        "a video of another codec or rate than the feature states",
        "Correct the info of the feature in meta/info.json.",
    ),
    "size": (
        Severity.ERROR,
        "a video of another size than the feature declares",
        "Correct the shape in meta/info.json, or encode the video again.",
    ),
}


@rule(
    "DC515",
    "episode-video-mismatch",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    span="all",
    unless=no_lerobot,
)
def episode_video(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The video of an episode does not have a frame for each of its rows.

    What:
        A video of one episode has as many frames as the episode has rows. In a video of several
        episodes, each span (``from_timestamp`` to ``to_timestamp``) is as long as its rows and
        does not reach into another one. Each row has a frame within 0.0001 s, as LeRobot demands:
        also in float32, with which LeRobot compares times, and whose numbers are 0.00012 s apart
        from 1,024 s of a video on.
        The pictures have the size that the feature declares, and the file can be read (errors).
        Another codec or rate than the feature states is a warning; frames that belong to no episode,
        such as those of episodes that were left out, are for information.
    Why it matters:
        LeRobot takes the frame by its time. A span that begins too late shows the frames of the
        next episode to the policy, without an error; a row without a near frame ends the training.
    Measure:
        The headers of the videos (number of frames, display times, size) against the lengths and
        spans in ``meta/episodes``; no picture is decoded. Up to 20,000 videos are read.
    When it is wrong:
        The training takes frames in another way than LeRobot does: switch the rule off.
    Options:
        none
    Bad::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
          - {key: "a:1", x: {normal: [4]}}
        listing:
          - {code: DC515, key: "a:1", reason: 118 frames for 120 rows, about: {kind: frames, camera: top}}

    Good::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 3, x: {normal: [4]}}

    Fix:
        Convert the episodes again from the raw recording, or leave them out.
    Reference:
        lerobot issue 3177: from_timestamp drifts over joined videos; issue 4109: frames and rows
        differ. AgiBot-World issue 149. ``decode_video_frames`` of LeRobot compares in float32.
    """
    keys = {key: row for row, key in enumerate(rows.keys)}
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for note in case.notes:
        row = keys.get(note.key)
        if row is not None:  # the rows of the others could not be read
            group = note.about.get("kind", ""), note.about.get("camera", "")
            found.setdefault(group, []).append((row, note.reason))
    for (kind, camera), episodes in sorted(found.items()):
        if kind not in _VIDEO_FAULTS:
            continue
        severity, phrase, fix = _VIDEO_FAULTS[kind]
        mask = np.zeros(len(rows), bool)
        mask[[row for row, _ in episodes]] = True
        row, reason = episodes[0]
        yield Failure(
            mask,
            f"{camera}: {count_phrase(mask, 'have', 'episode')} {phrase}; the first: "
            f"{rows.keys[row].rpartition('/')[2]}: {reason}.",
            measured={"episodes": int(mask.sum())},
            severity=severity,
            fix=fix,
            kind=f"{kind}:{camera}",
        )


_TIME = "timestamp"


@measure("row_times", per="sample", uses=("fields.shape", "fields.role"))
def row_times(block: Block, schema: Schema) -> Columns:
    """The time stamps of an episode's rows, in seconds.

    `timestamp:begins`, `timestamp:ends`; `timestamp:step_least`, `timestamp:step_most`: smallest
    and largest difference of neighbouring rows; `timestamp:count`: number of rows.
    """
    spec = schema.fields.get(_TIME)
    column = block.fields.get(_TIME)
    if spec is None or spec.role != "timestamp" or (spec.unit or "s") != "s" or column is None:
        return {}
    if column.lengths is None or column.values.dtype.kind != "f" or column.values.ndim != 1:
        return {}
    times = column.values.astype(np.float64)
    present = column.lengths > 1
    starts = column.starts[present]
    stops = starts + column.lengths[present] - 1
    steps = np.diff(times, append=0.0)
    first, last = np.zeros(len(block)), np.zeros(len(block))
    first[present], last[present] = times[starts], times[stops]
    # The step behind an episode's last row leads to another episode: repeat one of its own.
    steps[stops] = steps[starts]
    values = {
        "begins": first,
        "ends": last,
        "step_least": reduced(np.minimum, steps, column.lengths),
        "step_most": reduced(np.maximum, steps, column.lengths),
        "count": column.lengths,
    }
    return {f"{_TIME}:{name}": Measured(array, present) for name, array in values.items()}


_TOLERANCE = 1e-4  # s; `tolerance_s` of LeRobot
_OF_A_PERIOD = 0.1  # by which a step that skips rows may differ from whole periods
_TIMES_AGAIN = (
    "Write the time stamps again as frame_index / fps; if the rate did vary, load with a tolerance_s "
    "above the deviation."
)
_ROWS_LOST = (
    "Whole steps are missing: restore their rows, or split the episode there. Other time stamps "
    "would hide the gap."
)


def _no_rate(schema: Schema) -> str:
    if schema.episode is None or schema.episode.fps is None:
        return no_lerobot(schema) or "the dataset states no fps"
    return no_lerobot(schema)


@rule(
    "DC516",
    "time-off-frame",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(row_times,),
    suppressed_by=("DC109", "DC122", "DC206", "DC221", "DC502", "DC503"),
    unless=_no_rate,
    paced=True,
)
def time_off_frame(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The time stamp of a row is not its number divided by the rate.

    What:
        Time stamps of an episode begin at 0, and neighbouring rows are ``1 / fps`` apart within
        0.0001 s, LeRobot's ``tolerance_s``. A deviation of half a step or more is an error: the
        nearest frame is then another one.
    Why it matters:
        LeRobot 2.1 refuses to load such a dataset. LeRobot 3 adds the time stamp to the start of
        the episode in its video: it takes a neighbouring frame, or stops in the middle of an epoch.
    Measure:
        First and last time stamp, smallest and largest difference. DC502 judges gaps and jumps,
        DC503 the rate.
    When it is wrong:
        The time stamps are those of a recording with a varying rate, and no video is read by them:
        switch the rule off.
    Options:
        none
    Bad::

        schema:
          samples: {files: ["*.parquet"], each: episode}
          episode: {fps: 10}
          fields: {timestamp: {role: timestamp, shape: [T], unit: s, dtype: float64}}
        samples:
          - {n: 2, timestamp: [0.0, 0.1, 0.2, 0.3]}
          - {timestamp: [3.0, 3.1, 3.2, 3.3]}

    Good::

        schema:
          samples: {files: ["*.parquet"], each: episode}
          episode: {fps: 10}
          fields: {timestamp: {role: timestamp, shape: [T], unit: s, dtype: float64}}
        samples:
          - {n: 3, timestamp: [0.0, 0.1, 0.2, 0.3]}

    Fix:
        Write the time stamps again as ``frame_index / fps``, or load with a larger
        ``tolerance_s``. If the time stamps skip whole steps, restore the rows that are missing
        there, or split the episode: other time stamps would hide the gap.
    Reference:
        lerobot issue 933: "one or several timestamps unexpectedly violate the tolerance".
    """
    measured = rows.measured(f":{_TIME}:count")
    if not measured.any() or case.schema.episode is None or case.schema.episode.fps is None:
        return
    period = 1 / case.schema.episode.fps
    first, last = rows[f":{_TIME}:begins"], rows[f":{_TIME}:ends"]
    # LeRobot stores 32-bit numbers, which round.
    allowed = _TOLERANCE + 2 * np.spacing(np.abs(last).astype(np.float32)).astype(np.float64)
    longest, shortest = rows[f":{_TIME}:step_most"] - period, rows[f":{_TIME}:step_least"] - period
    # Whole periods are missing, and no other step is off: rows are lost, or the recording paused.
    periods = np.rint(rows[f":{_TIME}:step_most"] / period)
    has_gap = (np.abs(longest - (periods - 1) * period) < _OF_A_PERIOD * period) & (
        np.abs(shortest) < _OF_A_PERIOD * period
    )
    deviations = {
        "step": (np.maximum(np.abs(longest), np.abs(shortest)), "steps that differ from 1 / fps"),
        "start": (np.abs(first), "a first time stamp other than 0"),
        "drift": (
            np.abs(last - first - (rows[f":{_TIME}:count"] - 1) * period),
            "a last time stamp that the number of rows does not give",
        ),
    }
    named = np.zeros(len(rows), bool)
    for kind, (deviation, phrase) in deviations.items():
        off = measured & ~named & (deviation > allowed)
        named |= off
        severe = deviation >= period / 2
        gap = has_gap if kind == "step" else np.zeros(len(rows), bool)
        for mask, name, fix in (
            (off & severe & gap, f"{kind}-gap", _ROWS_LOST),
            (off & severe & ~gap, f"{kind}-frames", _TIMES_AGAIN),
            (off & ~severe, kind, _TIMES_AGAIN),
        ):
            if mask.any():
                worst = float(deviation[mask].max())
                yield Failure(
                    mask,
                    f"{count_phrase(mask, 'have', 'episode')} {phrase}: by up to {format_number(worst, 's')}; "
                    f"LeRobot allows {_TOLERANCE:g} s.",
                    measured={"deviation": worst},
                    expected={"deviation": _TOLERANCE},
                    severity=Severity.WARNING if name == kind else Severity.ERROR,
                    fix=fix,
                    kind=name,
                    order=deviation,
                )


# The statistics that `stats/<field>` has of an episode, in order.
_STATED = ("min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99")
_EPISODE_SHARES = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
_WHOLE_SHARES = _EPISODE_SHARES[[0, 1, 3, 4]]  # those that policies normalize by
# Shares of a column's scale: what rounded statistics may be off by.
_ROUNDED = 0.01
_DEVIATIONS = ("range", "mean", "std", "quantiles")


@measure("episode_statistics", per="sample", uses=("fields.shape",))
def episode_statistics(block: Block, schema: Schema) -> Columns:
    """How far statistics in the meta folder are from the rows of each episode, by field.

    `<field>:stated_rows`: the count that the statistics state, less the rows. `<field>:stats_off` (range,
    mean, std, quantiles): the largest deviation of a column in parts of its scale, NaN where not
    stated; `<field>:stats_worst`: column, stated and found value of each. Where ``meta/stats.json`` has
    quantiles, for q01, q10, q90, q99 of each column: `<field>:q_whole`, its value; `<field>:q_low`,
    `<field>:q_high`: where the episode's quantile lies by any definition; `<field>:q_below`,
    `<field>:q_upto`: rows clearly below the value, and not clearly above it; `<field>:q_rows`: all.
    """
    columns: dict[str, Measured] = {}
    for name in schema.fields:
        column = block.fields.get(name)
        if column is None or not {f"stats/{name}", f"quantiles/{name}"} & block.facts.keys():
            continue  # the values of other columns, such as chats, may not be parsed yet
        if column.lengths is None or column.values.dtype.kind != "f":
            continue
        stated = _fact(block, f"stats/{name}", column, len(_STATED))
        whole = _fact(block, f"quantiles/{name}", column, 6)
        if stated is None and whole is None:
            continue
        for key, values in _compared(column, stated, whole).items():
            columns[f"{name}:{key}"] = Measured(values, column.lengths > 1)
    return columns


def _fact(block: Block, name: str, column: Column, rows: int) -> Array | None:
    """Return a fact as (episodes, rows, columns of the field), None where it is of another size."""
    fact = block.facts.get(name)
    width = prod(column.values.shape[1:])
    if fact is None or fact.kind != "array" or fact.values.size != len(block) * rows * width:
        return None
    return fact.values.reshape(len(block), rows, width).astype(np.float64)


def _compared(column: Column, stated: Array | None, whole: Array | None) -> dict[str, Array]:
    """Return the measurements of one field, see `episode_statistics`."""
    count, width = len(column), prod(column.values.shape[1:])
    lengths = np.array([len(column[i]) for i in range(count)], np.int64)
    rows_off = np.zeros(count)
    off, worst = np.full((count, 4), np.nan), np.zeros((count, 12))
    brackets, near = np.zeros((2, count, 4 * width)), np.zeros((2, count, 4 * width))
    for i in range(count):
        values = np.sort(column[i].reshape(-1, width).astype(np.float64), axis=0)
        if len(values) < 2:
            continue
        low, high = _bracket(values, _EPISODE_SHARES)
        if stated is not None:
            rows_off[i] = stated[i, 4, 0] - len(values)
            off[i], worst[i] = _deviations(values, stated[i], low, high)
        if whole is not None:
            brackets[:, i] = low[[0, 1, 3, 4]].ravel(), high[[0, 1, 3, 4]].ravel()
            room = _ROUNDED * (whole[i, 5] - whole[i, 4])
            below = [(values < q - room).sum(axis=0) for q in whole[i, :4]]
            upto = [(values <= q + room).sum(axis=0) for q in whole[i, :4]]
            near[:, i] = np.ravel(below), np.ravel(upto)
    found: dict[str, Array] = {"stated_rows": rows_off, "stats_off": off, "stats_worst": worst}
    if stated is None:
        found = {}
    if whole is not None:
        found |= {
            "q_low": brackets[0],
            "q_high": brackets[1],
            "q_below": near[0],
            "q_upto": near[1],
        }
        found |= {"q_whole": whole.reshape(count, -1), "q_rows": lengths}
    return found


def _bracket(ordered: Array, shares: Array) -> tuple[Array, Array]:
    """Return the least and largest value that a definition gives for each quantile of sorted rows.

    Definitions differ by a rank; LeRobot counts in 5,000 bins of equal width.
    """
    place = shares * len(ordered)
    first = np.clip(np.floor(place).astype(int) - 1, 0, len(ordered) - 1)
    last = np.clip(np.ceil(place).astype(int), 0, len(ordered) - 1)
    bin_width = (ordered[-1] - ordered[0]) / 5000
    return ordered[first] - bin_width, ordered[last] + bin_width


def _deviations(ordered: Array, stated: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return deviation and worst column of range, mean, std and quantiles of one episode."""
    size = np.abs(ordered).max(axis=0)
    scale = np.maximum(ordered[-1] - ordered[0], np.maximum(1e-3 * size, 1e-9))
    found: dict[str, Array] = {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": ordered.mean(axis=0),
        "std": ordered.std(axis=0),
    }
    lost = len(ordered) * float(np.finfo(np.float32).eps) * size
    is_rounded = np.abs(stated[3] ** 2 - found["std"] ** 2) <= lost_digits(len(ordered), size)
    parts: dict[str, tuple[Array, Array, Array]] = {
        "range": (stated[:2], np.stack([found["min"], found["max"]]), scale),
        "mean": (
            stated[2:3],
            np.clip(stated[2:3], found["mean"] - lost, found["mean"] + lost),
            scale,
        ),
        "std": (np.where(is_rounded, found["std"], stated[3])[None], found["std"][None], scale),
        "quantiles": (stated[5:], np.clip(stated[5:], low, high), scale),
    }
    off, worst = np.full(4, np.nan), np.zeros((4, 3))
    for i, name in enumerate(_DEVIATIONS):
        values, expected, unit = parts[name]
        if np.isnan(values).any():
            continue
        deviation = np.abs(values - expected) / unit
        row, place = np.unravel_index(int(np.argmax(deviation)), deviation.shape)
        off[i] = deviation[row, place]
        worst[i] = place, values[row, place], expected[row, place]
    return off, worst.ravel()


_STATISTICS_AGAIN = (
    "Rows were changed or lost since, or the statistics are wrong: find out which. If the rows are "
    "right, compute the statistics of these episodes again, then those of the dataset."
)
_PHRASES = {
    "range": "smallest and largest values",
    "mean": "means",
    "std": "standard deviations",
    "quantiles": "quantiles",
}


@rule(
    "DC519",
    "episode-statistics",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(episode_statistics,),
    suppressed_by=("DC109", "DC122", "DC123", "DC221"),
    unless=no_lerobot,
    defaults={"off": 0.01},
)
def wrong_episode_statistics(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The statistics in the meta folder are not those of the episodes' rows.

    What:
        The statistics of each episode (``stats/...`` in ``meta/episodes``, or
        ``meta/episodes_stats.jsonl``) are those of its rows: count, smallest and largest value,
        mean, standard deviation and quantiles of state and action. q01, q10, q90 and q99 of
        ``meta/stats.json`` are those of all rows, or what LeRobot combines from the episodes.
    Why it matters:
        LeRobot 2.1 normalizes by the statistics of the episodes; LeRobot 3 computes those of a
        merged or edited dataset from them. pi0.5 and MolmoAct2 scale by q01 and q99: a wrong
        quantile moves the robot to other places.
    Measure:
        Difference in parts of the column's range in the episode (at least a thousandth of the
        largest value). LeRobot computes means and deviations in 32 bits: what that loses is left out. A quantile
        of an episode may be any value within a rank of it. A quantile of the dataset is accepted if it is
        within ``off`` of the range of the quantile of all rows, of the mean of the episodes'
        quantiles by their rows (LeRobot 0.4 to 0.6), or of the smallest (q01, q10) or largest (q90,
        q99) of the episodes (later versions).
    When it is wrong:
        The statistics are of other values on purpose, such as of relative actions: switch the rule
        off.
    Options:
        off: largest difference (0.01).
    Bad::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {shape: [T]}}}
        samples:
          - {x: [0.0, 1.0, 2.0, 3.0], facts: {stats/x: [0, 3, 1.5, 1.118, 4, 0, 0, 1.5, 3, 3]}}
          - {x: [0.0, 1.0, 2.0, 7.0], facts: {stats/x: [0, 3, 1.5, 1.118, 4, 0, 0, 1.5, 3, 3]}}

    Good::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {shape: [T]}}}
        samples:
          - {x: [0.0, 1.0, 2.0, 3.0], facts: {stats/x: [0, 3, 1.5, 1.118, 4, 0, 0, 1.5, 3, 3]}}

    Fix:
        Compute the statistics again, of the episodes first.
    Reference:
        lerobot/datasets/compute_stats.py: get_feature_stats, aggregate_feature_stats.
    """
    limit = float(case.options["off"])
    for name in case.schema.fields:
        if rows.measured(f":{name}:stats_off").any():
            yield from _wrong_statistics(rows, name, limit)
        if rows.measured(f":{name}:q_whole").any():
            yield from _wrong_quantiles(rows, name, limit)


def _wrong_statistics(rows: Rows, name: str, limit: float) -> Iterator[Failure]:
    measured = rows.measured(f":{name}:stats_off")
    lacking = rows[f":{name}:stated_rows"]
    miscounted = measured & (np.abs(lacking) > 0)
    if miscounted.any():
        at = int(np.argmax(miscounted))
        yield Failure(
            miscounted,
            f"{count_phrase(miscounted, 'have', 'episode')} statistics of {name} with another count "
            f"than their rows: the first counts {format_number(abs(float(lacking[at])))} too "
            f"{'many' if lacking[at] > 0 else 'few'}.",
            measured={"rows": float(lacking[at])},
            fix=_STATISTICS_AGAIN,
            kind=f"count:{name}",
        )
    off = np.nan_to_num(rows[f":{name}:stats_off"])
    worst = rows[f":{name}:stats_worst"].reshape(len(rows), 4, 3)
    # An episode with several wrong statistics is reported once, under the first kind.
    reported = np.zeros(len(rows), bool)
    for i, part in enumerate(_DEVIATIONS):
        wrong = measured & ~reported & (off[:, i] > limit)
        reported |= wrong
        if not wrong.any():
            continue
        at = int(np.argmax(np.where(wrong, off[:, i], 0)))
        column, stated, found = worst[at, i]
        yield Failure(
            wrong,
            f"{count_phrase(wrong, 'have', 'episode')} {_PHRASES[part]} of {name} in the meta folder that "
            f"are not those of their rows: up to {format_number(float(stated))} stated, "
            f"{format_number(float(found))} found (dimension {int(column)}).",
            measured={"found": float(found)},
            expected={"stated": float(stated)},
            fix=_STATISTICS_AGAIN,
            kind=f"{part}:{name}",
            order=off[:, i],
        )


def _wrong_quantiles(rows: Rows, name: str, limit: float) -> Iterator[Failure]:
    """Yield a failure for each dataset with quantiles that no definition gives."""
    measured = rows.measured(f":{name}:q_whole")
    folders = Texts.of([path.rpartition("data/")[0] for path in rows.files])
    for folder, places in folders.places():
        mine = places[measured[places]]
        if not len(mine) or len(mine) < len(places):
            continue  # of some episodes alone nothing follows
        stated = rows[f":{name}:q_whole"][mine[0]].reshape(6, -1)
        counts = rows[f":{name}:q_rows"][mine].astype(np.float64)
        misfit = _misfits(rows, name, mine, counts, stated, limit)
        if misfit.max() <= limit:
            continue
        row, column = np.unravel_index(int(np.argmax(misfit)), misfit.shape)
        quantile = ("q01", "q10", "q90", "q99")[row]
        yield Failure(
            np.zeros(len(rows), bool),
            f"{folder}meta/stats.json: {quantile} of {name}, dimension {int(column)}, is "
            f"{format_number(float(stated[row, column]))}: neither the quantile of all rows, nor the "
            f"mean, the smallest or the largest of the episodes' quantiles.",
            measured={"off": float(misfit[row, column])},
            fix="Compute the statistics again from all episodes.",
            kind=f"whole:{name}",
        )


def _misfits(
    rows: Rows, name: str, mine: Array, counts: Array, stated: Array, limit: float
) -> Array:
    """Return how far each quantile is from what any definition gives, in parts of the range.

    Shapes:
        returns: float64 (4, columns), 0 where a definition explains the value
    """
    shape = (len(mine), 4, stated.shape[1])
    low, high = (rows[f":{name}:{key}"][mine].reshape(shape) for key in ("q_low", "q_high"))
    below, upto = (rows[f":{name}:{key}"][mine].reshape(shape) for key in ("q_below", "q_upto"))
    total = counts.sum()
    exact = _WHOLE_SHARES[:, None] * total
    is_exact = (below.sum(axis=0) <= exact + 1) & (upto.sum(axis=0) >= exact - 1)
    weights = (counts / total)[:, None, None]
    scale = np.maximum(stated[5] - stated[4], 1e-9 + 1e-3 * np.abs(stated[4:]).max(axis=0))
    least = np.array([True, True, False, False])[:, None]
    means = (weights * low).sum(axis=0), (weights * high).sum(axis=0)
    ends = (
        np.where(least, low.min(axis=0), low.max(axis=0)),
        np.where(least, high.min(axis=0), high.max(axis=0)),
    )
    misfits = [
        np.maximum(np.maximum(bottom - stated[:4], stated[:4] - top), 0) / scale
        for bottom, top in (means, ends)
    ]
    return np.where(is_exact, 0.0, np.minimum(*misfits))
