"""Rules about LeRobot datasets: contradicting documents, numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import Block
from datacheck.model.table import Measured, Rows, Texts
from datacheck.rules.base import Columns, RuleContext, count_phrase, format_number, measure, rule
from datacheck.rules.measures import no_lerobot, reduced
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
        ``meta/episodes`` and the sum of their lengths. Episodes are numbered from 0 in the order of
        the table. The columns that LeRobot needs are features; a picture has three sizes; with
        videos, ``video_path`` is a template. Statistics in ``meta/stats.json`` are possible: finite,
        as many as the feature has numbers, the standard deviation not below 0 and at most half of
        the range, mean and quantiles between smallest and largest value, quantiles in order. What
        ``meta/modality.json`` of GR00T takes lies within the features (errors). Warnings:
        other totals; splits that leave the episodes or share some; tasks without text, with a
        placeholder or with the text of another one; names of another number, or twice; features
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
        does not reach into another one. Each row has a frame within 0.0001 s, as LeRobot demands.
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
        differ. AgiBot-World issue 149.
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
        ``tolerance_s``.
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
        for severe in (True, False):
            mask = off & ((deviation >= period / 2) == severe)
            if mask.any():
                worst = float(deviation[mask].max())
                yield Failure(
                    mask,
                    f"{count_phrase(mask, 'have', 'episode')} {phrase}: by up to {format_number(worst, 's')}; "
                    f"LeRobot allows {_TOLERANCE:g} s.",
                    measured={"deviation": worst},
                    expected={"deviation": _TOLERANCE},
                    severity=Severity.ERROR if severe else Severity.WARNING,
                    fix="Write the time stamps again as frame_index / fps; if the rate did vary, "
                    "load with a tolerance_s above the deviation.",
                    kind=f"{kind}-frames" if severe else kind,
                    order=deviation,
                )
