"""Judge the pictures of LeRobot's videos, from the few that children decode of each clip.

The notes name what the evidence decides: a comparison with the other episodes of a camera keeps
resting scenes and dark rooms out. Whether the robot moved is for the rule to say, which sees the
rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from datacheck.formats.pictures import EXTRA, LIBRARY
from datacheck.model.table import Note
from datacheck.plugins import is_installed
from datacheck.schema.model import Schema
from datacheck.sources.base import Work
from datacheck.sources.lerobot import INFO
from datacheck.sources.lerobot_clips import Clip
from datacheck.sources.listing import Listing
from datacheck.sources.named_files import is_index
from datacheck.sources.roots import sandbox_of
from datacheck.workers.parallel import Limits, TaskResult, ordered_map

Array = np.ndarray[Any, Any]

CODE = "DC517"
_LIMITS = Limits(item_s=60)
_CLIPS_PER_TASK = 64
_UNSURE = ("killed", "silent", "endless", "busy")
_MOST_NOTES = 10_000
# A picture of at most this mean and spread, of 255 grey levels, is black.
_BLACK = 3.0
_BLACK_SHARE = 0.3
_OFTEN = 0.5
# Pictures that differ by less are still.
_STILL = 0.1
_STILL_S = 1.0
_LEAST_INTERVALS = 20
_LEAST_OTHERS = 3
_SELDOM = 0.05
# A jump to the next episode: grey levels, and how many times larger than all changes around it.
_JUMP = 8.0
_SHARPER = 8.0
_LEAST_SAME = 3


def with_pictures(
    work: Work,
    schema: Schema,
    listing: Listing,
    *,
    workers: Callable[[int], int] = lambda tasks: 1,
    scheduler: str | None = None,
) -> Work:
    """Add notes on the pictures of LeRobot datasets: what is wrong with them, and what was looked at.

    Args:
        work: the plan for the listing.
        schema: the schema of the dataset.
        listing: all files.
        workers: returns how many processes run a number of tasks.
        scheduler: address of a Dask scheduler to use instead.

    Raises:
        StorageError: no child could be started.
        MissingDependencyError: a worker of the cluster lacks PyAV.
    """
    if schema.samples.each != "episode":
        return work
    paths = sorted(path for path in listing.entries.paths if is_index(path, INFO))
    places = {
        "root": str(listing.root.absolute()),
        "roots": {root: str(folder.absolute()) for root, folder in listing.roots.items()},
    }
    sandbox = sandbox_of(listing.root, listing.roots)
    listed = ordered_map(
        "datacheck.sources.lerobot_clips:list_clips",
        [places | {"items": [{"path": path} for path in paths]}] if paths else [],
        limits=_LIMITS,
        sandbox=sandbox,
    )
    datasets = [
        record for outcome in list(listed) for payload in outcome.payloads for record in payload
    ]
    files = [file for record in datasets for file in record["files"]]
    notes = [_beyond(record) for record in datasets if record["left"]]
    if files and not is_installed(LIBRARY):
        reason = f"{LIBRARY} is not installed: pip install 'datacheck[{EXTRA}]'"
        notes.append(Note(CODE, files[0]["path"], reason, about={"kind": "library"}))
    elif files:
        tasks = [places | {"items": items} for items in _batches(files)]
        outcomes = ordered_map(
            "datacheck.sources.lerobot_clips:read_clips",
            tasks,
            workers=workers(len(tasks)),
            scheduler=scheduler,
            limits=_LIMITS,
            sandbox=sandbox,
        )
        clips = _by_path(outcomes)
        for record in datasets:
            notes += _of_dataset(record["files"], clips)
    return replace(
        work, notes=sorted([*work.notes, *notes], key=lambda note: (note.key, note.reason))
    )


def _beyond(record: Mapping[str, Any]) -> Note:
    reason = f"{record['left']:,} clips lie beyond those that are decoded"
    return Note(CODE, record["folder"] + INFO, reason, about={"kind": "library"})


def _batches(files: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the files in tasks of at least 64 clips."""
    batch: list[Mapping[str, Any]] = []
    count = 0
    for file in files:
        batch.append(file)
        count += len(file["clips"])
        if count >= _CLIPS_PER_TASK:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def _by_path(outcomes: Iterator[TaskResult]) -> dict[str, list[Clip]]:
    """Return the clips of each video; those of one that ended its child have this as their fault."""
    clips: dict[str, list[Clip]] = {}
    for outcome in outcomes:
        for payload in outcome.payloads:
            for record in payload:
                clips[record["path"]] = [Clip(*values) for values in record["clips"]]
        for death in outcome.deaths:
            how = death.how.strip().splitlines()[-1]
            keys = [key for key, *_ in death.item["clips"]]
            # A fault of datacheck, or a slow machine, says nothing about the video.
            unsure = death.crash or death.machine or death.kind in _UNSURE
            clips[death.item["path"]] = [
                Clip(key, unread=how) if unsure else Clip(key, fault=how) for key in keys
            ]
    return clips


def _of_dataset(
    files: Sequence[Mapping[str, Any]], clips: Mapping[str, Sequence[Clip]]
) -> list[Note]:
    by_camera: dict[str, list[Clip]] = defaultdict(list)
    rates = {file["camera"]: file["fps"] for file in files}
    depths = {file["camera"] for file in files if file["depth"]}
    for file in files:
        by_camera[file["camera"]] += clips.get(file["path"], ())
    notes: list[Note] = []
    for camera, of_camera in by_camera.items():
        notes += _unseen(camera, of_camera)
        notes += _next_episode(camera, of_camera)
        if camera not in depths:  # a depth map may be 0, and hardly changes
            notes += _black(camera, of_camera)
            notes += _frozen(camera, of_camera, rates[camera])
    notes += _same(by_camera)
    if len(notes) > _MOST_NOTES:
        reason = f"{len(notes) - _MOST_NOTES:,} further remarks on pictures are left out"
        notes = [*notes[:_MOST_NOTES], Note(CODE, notes[0].key, reason, about={"kind": "library"})]
    seen = [clip for of_camera in by_camera.values() for clip in of_camera if clip.rows]
    if seen:
        pictures = sum(len(clip.rows) for clip in seen)
        reason = f"{pictures:,} pictures of {len(seen):,} clips"
        notes.append(Note(CODE, seen[0].key, reason, about={"kind": "seen"}))
    return notes


def _note(clip: Clip, kind: str, camera: str, words: str, **about: Any) -> Note:
    return Note(CODE, clip.key, words, about={"kind": kind, "camera": camera, **about})


def _unseen(camera: str, clips: Sequence[Clip]) -> Iterator[Note]:
    for clip in clips:
        if clip.fault:
            yield _note(clip, "undecodable", camera, clip.fault)
        elif clip.unread:
            yield _note(clip, "unread", camera, f"{camera}: {clip.unread}")


def _black(camera: str, clips: Sequence[Clip]) -> Iterator[Note]:
    """Yield notes on black clips, and on clips with black pictures where this is unusual."""
    dark = [
        sum(m <= _BLACK and s <= _BLACK for m, s in zip(clip.mean, clip.spread, strict=True))
        for clip in clips
    ]
    seen = sum(bool(clip.rows) for clip in clips)
    usual = sum(count > 0 for count in dark) > _OFTEN * seen
    for clip, count in zip(clips, dark, strict=True):
        total = len(clip.rows)
        partly = count >= _LEAST_SAME and count >= _BLACK_SHARE * total and not usual and seen > 1
        if count and (count == total or partly):
            all_of = "all" if count == total else f"{count} of"
            yield _note(clip, "black", camera, f"{all_of} {total} decoded pictures are black")


def _frozen(camera: str, clips: Sequence[Clip], rate: float) -> Iterator[Note]:
    """Yield notes on long spans of still pictures of a camera whose pictures change elsewhere."""
    still = [np.array(clip.change[1:]) < _STILL for clip in clips]
    total = sum(map(len, still))
    for clip, mine in zip(clips, still, strict=True):
        others = total - len(mine)
        others_still = sum(int(each.sum()) for each in still) - int(mine.sum())
        episodes = sum(len(each) > 1 for each in still) - (len(mine) > 1)
        if others < _LEAST_INTERVALS or episodes < _LEAST_OTHERS or others_still > _SELDOM * others:
            continue
        for first, last in _runs(mine):
            begin, end = clip.rows[first], clip.rows[last]
            seconds = (end - begin) / rate
            # A picture of one colour is no evidence of a camera that stands still.
            if last - first >= 2 and seconds >= _STILL_S and clip.spread[first] > _BLACK:
                words = (
                    f"{last - first + 1} decoded pictures of row {begin:,} to {end:,} "
                    f"({seconds:.1f} s) are the same"
                )
                yield _note(clip, "frozen", camera, words, first=begin, last=end)
                break


def _runs(mask: Array) -> list[tuple[int, int]]:
    """Return (first picture, last picture) of each run of still intervals, the longest first."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    runs = [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    return sorted(runs, key=lambda run: (run[0] - run[1], run))


def _next_episode(camera: str, clips: Sequence[Clip]) -> Iterator[Note]:
    for clip in clips:
        if clip.foreign and clip.jump >= max(_JUMP, _SHARPER * clip.others):
            pictures = "picture" if clip.foreign == 1 else f"{clip.foreign} pictures"
            words = (
                f"the last {pictures} differ by {clip.jump:.0f} of 255 grey levels from those "
                f"before, and by at most {clip.others:.1f} from the first of the next episode"
            )
            yield _note(clip, "next", camera, words)


def _same(by_camera: Mapping[str, Sequence[Clip]]) -> Iterator[Note]:
    """Yield notes on episodes of which two cameras have the same pictures."""
    by_key: dict[str, dict[str, Clip]] = defaultdict(dict)
    for camera, clips in by_camera.items():
        for clip in clips:
            if clip.rows:
                by_key[clip.key][camera] = clip
    for of_key in by_key.values():
        for one, two in combinations(of_key, 2):
            same = _shared(of_key[one], of_key[two])
            if same >= _LEAST_SAME:
                words = f"all {same} pictures decoded of both are the same"
                yield _note(of_key[one], "same", f"{one} and {two}", words)


def _shared(first: Clip, second: Clip) -> int:
    """Return how many pictures two clips share if all of the same rows are equal, else 0.

    Pictures of one colour do not count: two cameras may both be covered.
    """
    other = dict(zip(second.rows, second.digests, strict=True))
    pairs = [
        (digest, other[row])
        for row, digest, spread in zip(first.rows, first.digests, first.spread, strict=True)
        if row in other and spread > _BLACK
    ]
    return len(pairs) if all(a == b for a, b in pairs) else 0
