"""Rule about the decoded pictures of videos: damaged, black, frozen, foreign or of another camera."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Note, Rows
from datacheck.plugins import is_installed
from datacheck.rules.base import Columns, Info, RuleContext, Skip, count_phrase, measure, rule
from datacheck.rules.measures import no_lerobot
from datacheck.schema.model import FieldSpec, Schema

_PARTS = 16  # of an episode, each with its range of motion
_WIDEST = 32  # numbers of a row
_MOVES = 0.1  # share of the range over all episodes
_MOVING_SHARE = 0.25  # of the numbers of a row


@measure(
    "clip_motion",
    per="sample",
    uses=("fields.shape", "fields.role"),
    outside=lambda schema: is_installed("av"),
    depth="deep",
)
def clip_motion(block: Block, schema: Schema) -> Columns:
    """Where the numbers of an episode move, for each field of rows of up to 32 numbers.

    `<field>:parts_low`, `<field>:parts_high`: smallest and largest value of each number in each 16th of
    the episode; `<field>:count`: rows.
    """
    columns: dict[str, Measured] = {}
    for name, spec in schema.fields.items():
        column = block.fields.get(name)
        if column is None or column.lengths is None or not _is_motion(column, spec):
            continue
        width = column.values.shape[1]
        present = column.lengths > 0
        ends = np.zeros((2, len(block), _PARTS, width), np.float32)
        for place in np.flatnonzero(present).tolist():
            start, rows = int(column.starts[place]), int(column.lengths[place])
            for part in range(_PARTS):
                # Neighbouring parts share a row, so that no step is lost between them.
                values = column.values[
                    start + rows * part // _PARTS : start + rows * (part + 1) // _PARTS + 1
                ][: rows - rows * part // _PARTS]
                ends[0, place, part], ends[1, place, part] = values.min(axis=0), values.max(axis=0)
        lowest, highest = ends.reshape(2, len(block), _PARTS * width)
        columns[f"{name}:parts_low"] = Measured(lowest, present)
        columns[f"{name}:parts_high"] = Measured(highest, present)
        columns[f"{name}:count"] = Measured(column.lengths, present)
    return columns


def _is_motion(column: Column, spec: FieldSpec) -> bool:
    if column.peeked or spec.is_text:
        return False
    values = column.values
    return values.dtype.kind == "f" and values.ndim == 2 and 0 < values.shape[1] <= _WIDEST


# By the kind of a fault of pictures: its severity, a phrase for several episodes, and the repair.
_PICTURE_FAULTS = {
    "undecodable": (
        Severity.ERROR,
        "pictures that cannot be decoded",
        "Write the video again from the raw recording, or leave the episodes out.",
    ),
    "black": (
        Severity.WARNING,
        "black pictures",
        "Look at the pictures. Leave the episodes out, or leave the camera out.",
    ),
    "frozen": (
        Severity.WARNING,
        "pictures that stay the same while the robot moves",
        "Look at the pictures. Leave the episodes out, or cut them before that.",
    ),
    "next": (
        Severity.WARNING,
        "pictures at the end that go on in the next episode",
        "Compare from_timestamp and to_timestamp in meta/episodes with the pictures, and correct "
        "them or leave out the last rows.",
    ),
    "same": (
        Severity.WARNING,
        "the same pictures from two cameras",
        "Find out which camera the pictures are of, and restore the video of the other one.",
    ),
}


@rule(
    "DC517",
    "bad-video-pictures",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(clip_motion,),
    unless=no_lerobot,
    span="all",
    depth="deep",
)
def bad_video_pictures(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip | Info]:
    """Pictures of a video are damaged, black, frozen, of the next episode or of another camera.

    What:
        The pictures of an episode can be decoded (error). Warnings: pictures are black; pictures
        stay the same for a second or longer while the robot moves; the last pictures of an episode
        go on in the next one of the same file; two cameras have the same pictures.
    Why it matters:
        A policy learns from what it sees. A damaged picture ends the training in the middle of an
        epoch; a black, frozen or foreign one trains without an error.
    Measure:
        Only with ``--level deep`` and PyAV (``pip install 'datacheck[video]'``). Of each episode
        and camera, the first and the last picture and 8 between them are decoded (key frames, where
        there are some), and the last 8 where another episode follows in the file; each is scaled
        down to 64 x 64 grey pixels. Grey levels are 0 to 255.
        Undecodable: the decoder reports damage, has no picture for a row, or needs more than 512 MiB
        for one. Episodes for which more than 1,000 pictures must be decoded on the way to one count
        as skipped.
        Black: mean and standard deviation at most 3, in all pictures of an episode, or in 3 and a
        third of them where at most half of the episodes have such pictures.
        Frozen: 3 pictures in a row over at least a second differ by less than 0.1 on average, and a
        quarter of the state's numbers (of the action's, without a state) move by a tenth of their
        range over all episodes. The camera is judged with 3 other episodes and 20 other pairs of
        pictures, of which at most 5 % are still.
        Next: one jump of 8 or more on average among the last 8 pictures, 8 times larger than all
        other changes there and than the change to the first picture of the next episode.
        Same: 3 or more pictures of the same rows, all equal, and not of one colour.
        Depth maps are not judged as black or frozen.
    When it is wrong:
        A camera is covered on purpose, or the episodes are cut from one recording and the picture
        jumps just before a cut: waive the episodes.
    Options:
        none
    Bad::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {role: value, shape: [T, 4]}}}
        samples:
          - {n: 2, x: {ramp: [60, 4]}}
          - {key: "a:1", x: {ramp: [60, 4]}}
        listing:
          - {code: DC517, key: "a:1", reason: 9 decoded pictures of row 0 to 59 (2.0 s) are the same,
             about: {kind: frozen, camera: top, first: 0, last: 59}}

    Good::

        schema: {samples: {files: ["*.parquet"], each: episode}, fields: {x: {role: value, shape: [T, 4]}}}
        samples:
          - {n: 2, x: {ramp: [60, 4]}}
          - {key: "a:1", x: {ramp: [60, 4], to: 0.05}}
        listing:
          - {code: DC517, key: "a:1", reason: 9 decoded pictures of row 0 to 59 (2.0 s) are the same,
             about: {kind: frozen, camera: top, first: 0, last: 59}}

    Fix:
        Look at the pictures, then leave the episodes out or write their videos again.
    Reference:
        lerobot issue 3177: spans that drift show the first pictures of the next episode.
    """
    places = {key: row for row, key in enumerate(rows.keys)}
    found: dict[tuple[str, str], list[Note]] = {}
    for note in case.notes:
        kind = note.about.get("kind", "")
        if kind == "library":
            yield Skip(np.ones(len(rows), bool), note.reason)
        elif kind == "seen":
            yield Info(note.reason)
        elif kind == "unread":
            mask = np.zeros(len(rows), bool)
            mask[[places[note.key]] if note.key in places else []] = True
            yield Skip(mask, note.reason)
        elif kind != "frozen" or _moves(rows, case.schema, places.get(note.key), note.about):
            found.setdefault((kind, note.about.get("camera", "")), []).append(note)
    for (kind, camera), notes in sorted(found.items()):
        severity, phrase, fix = _PICTURE_FAULTS[kind]
        mask = np.zeros(len(rows), bool)
        mask[[places[note.key] for note in notes if note.key in places]] = True
        first = f"{notes[0].key.rpartition('/')[2]}: {notes[0].reason}"
        yield Failure(
            mask,
            f"{camera}: {count_phrase(mask, 'have')} {phrase}; the first: {first}.",
            measured={"episodes": len(notes)},
            severity=severity,
            fix=fix,
            kind=f"{kind}:{camera}",
        )


def _moves(rows: Rows, schema: Schema, place: int | None, about: Mapping[str, Any]) -> bool:
    """Tell whether the robot clearly moves between two rows of an episode, by its state if any."""
    if place is None:
        return False
    roles = {name: spec.role for name, spec in schema.fields.items()}
    known = [name for name in roles if rows.measured(f":{name}:parts_low").any()]
    states = [name for name in known if roles[name] != "action"]
    return any(
        _moves_in(rows, name, place, int(about["first"]), int(about["last"]))
        for name in states or known
    )


def _moves_in(rows: Rows, name: str, place: int, first: int, last: int) -> bool:
    measured = rows.measured(f":{name}:parts_low")
    if not measured[place]:
        return False
    lowest = rows[f":{name}:parts_low"].reshape(len(rows), _PARTS, -1)
    highest = rows[f":{name}:parts_high"].reshape(len(rows), _PARTS, -1)
    count = int(rows[f":{name}:count"][place])
    inside = [
        part
        for part in range(_PARTS)
        if first <= count * part // _PARTS and count * (part + 1) // _PARTS <= last
    ]
    if not inside:
        return False
    scale = highest[measured].max(axis=(0, 1)) - lowest[measured].min(axis=(0, 1))
    moved = highest[place, inside].max(axis=0) - lowest[place, inside].min(axis=0)
    moving = (scale > 0) & (moved >= _MOVES * scale)
    return bool(moving.sum() >= max(1, np.ceil(_MOVING_SHARE * len(scale))))
