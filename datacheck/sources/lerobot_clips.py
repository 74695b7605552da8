"""Decode sampled pictures of the clips of a LeRobot dataset, in a child.

A clip is the video of one episode and camera. Its first and last pictures and eight between them
are decoded; before another episode in the same file, the last eight pictures are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError
from datacheck.formats.limits import path_below
from datacheck.formats.mp4 import read_video
from datacheck.formats.pictures import Picture, Pictures, TooFarError
from datacheck.runtime.hashing import digest_bytes
from datacheck.sources.lerobot import (
    INFO,
    Meta,
    Span,
    read_info,
    read_meta,
    read_rate,
    read_spans,
    video_features,
)
from datacheck.sources.lines import numbered
from datacheck.sources.listing import limit_files
from datacheck.sources.roots import Roots
from datacheck.workers.wire import answers, finite, natural, text

BETWEEN = 8  # pictures between the first and the last one
TAIL = 8  # pictures at the end of a clip that another episode follows in the file
MOST_CLIPS = 100_000
# Decoding costs processor time that the size of a well compressed file does not show.
_BYTES_PER_CLIP = 2 << 20
_HALF = 0.5


@answers(
    [{"folder": text, "files": [{"path": text, "camera": text, "clips": list}], "left": natural}],
    raises=(MissingDependencyError,),
)
def list_clips(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the clips of each dataset of a task.

    Args:
        task: root, roots, items (each with the ``path`` of an info).
        beat: called with an item's number before the item is read.

    Returns:
        folder: of the dataset, with a final "/"; files: path, camera, fps, `depth` (a depth map)
        and clips of each video: [key of the episode, rows, start, stop or None] in the order of
        the file; left: clips beyond the first 100,000. Datasets without pictures to judge, and
        those whose meta folder is damaged, are left out: other rules report it.
    """
    folders = Roots(task["root"], task["roots"])
    records = []
    left = MOST_CLIPS
    for number, item in enumerate(task["items"]):
        beat(number)
        limit_files(beat, (task, [item["path"]]))
        base = folders.file(item["path"]).parent.parent
        try:
            files = list(_videos(base, item["path"].removesuffix(INFO)))
        except FormatError:
            continue
        kept = []
        for file in files:
            left -= len(file["clips"])
            kept += [file] if left >= 0 else []
        record = {"folder": item["path"].removesuffix(INFO), "files": kept}
        records.append(record | {"left": max(0, -left)})
    return records


def _videos(base: Any, folder: str) -> Iterator[dict[str, Any]]:
    info = read_info(base)
    rate = read_rate(base)
    cameras = video_features(info)
    if rate is None or not cameras:
        return
    meta = read_meta(base)
    keys = {
        number: numbered(folder + path, number)
        for path, numbers in meta.files.items()
        for number in numbers
    }
    for camera in cameras:
        stated = info["features"][camera].get("info")
        depth = isinstance(stated, Mapping) and bool(stated.get("video.is_depth_map"))
        by_path: dict[str, list[Span]] = {}
        for span in read_spans(base, camera, info):
            by_path.setdefault(span.path, []).append(span)
        for path, spans in by_path.items():
            clips = [list(clip) for clip in _clips(spans, meta, keys)]
            if path_below(path) is not None and clips:
                yield {
                    "path": folder + path,
                    "camera": camera,
                    "fps": rate,
                    "depth": depth,
                    "clips": clips,
                }


def _clips(
    spans: Sequence[Span], meta: Meta, keys: Mapping[int, str]
) -> Iterator[tuple[str, int, float, float | None]]:
    for span in spans:
        if meta.lengths.get(span.episode, 0) > 0:
            yield keys[span.episode], meta.lengths[span.episode], span.start, span.stop


class Clip(NamedTuple):
    """What was measured of the pictures of one episode and camera.

    Args:
        key: of the episode.
        fault: why a picture cannot be decoded, "" if all can.
        unread: why pictures were not looked at, "" if they were.
        rows: the rows of the episode whose pictures were decoded, ascending.
        digests: of the small grey pictures, one for each row.
        mean, spread: mean and standard deviation of each, in grey levels from 0 to 255.
        change: mean absolute difference to the picture before; 0 for the first.
        jump: mean absolute difference at the largest jump among the last pictures; 0 without one.
        foreign: pictures behind that jump.
        others: the largest difference between neighbouring pictures around the jump, among them that
            between the last picture and the first one of the next episode.
    """

    key: str
    fault: str = ""
    unread: str = ""
    rows: Sequence[int] = ()
    digests: Sequence[str] = ()
    mean: Sequence[float] = ()
    spread: Sequence[float] = ()
    change: Sequence[float] = ()
    jump: float = 0.0
    foreign: int = 0
    others: float = 0.0


@answers(
    [
        {
            "path": text,
            "clips": [
                (
                    text,
                    text,
                    text,
                    [natural],
                    [text],
                    [finite],
                    [finite],
                    [finite],
                    finite,
                    natural,
                    finite,
                )
            ],
        }
    ],
    raises=(MissingDependencyError,),
)
def read_clips(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return what was measured of the clips of each video of a task.

    Args:
        task: root, roots, items (each a file of `list_clips`).
        beat: called with an item's number before the item and each picture is read.

    Returns:
        path: of the video; clips: the values of each `Clip`.
    """
    folders = Roots(task["root"], task["roots"])
    records = []
    for number, item in enumerate(task["items"]):
        beat(number)
        file = folders.file(item["path"])
        try:
            size = file.stat().st_size
        except OSError:  # the list of the named files reports it
            clips = [Clip(key, unread="the video is not there") for key, *_ in item["clips"]]
        else:
            files = getattr(beat, "files", None)
            if files is not None:
                files(size + _BYTES_PER_CLIP * len(item["clips"]))
            clips = list(_read(file, item, partial(beat, number)))
        records.append({"path": item["path"], "clips": [list(clip) for clip in clips]})
    return records


def _read(file: Any, item: Mapping[str, Any], beat: Callable[[], None]) -> Iterator[Clip]:
    """Yield the clips of one video."""
    keys = [key for key, *_ in item["clips"]]
    try:
        times = read_video(file).times
    except FormatError:
        yield from (Clip(key, unread="the header of the video cannot be read") for key in keys)
        return
    try:
        pictures = Pictures(file)
    except FormatError as error:
        yield from (Clip(key, fault=str(error)) for key in keys)
        return
    try:
        yield from _each(pictures, item, float(times[-1]) if len(times) else -1.0, beat)
    finally:
        pictures.close()


def _each(
    pictures: Pictures, item: Mapping[str, Any], end: float, beat: Callable[[], None]
) -> Iterator[Clip]:
    clips, rate = item["clips"], item["fps"]
    first: Picture | None = None  # of the next clip, if the clip before has looked at it
    for place, (key, rows, start, _) in enumerate(clips):
        beat()
        following = clips[place + 1][2] if place + 1 < len(clips) else None
        # A gap in the table is not judged here.
        if following is not None and abs(following - start - rows / rate) * rate > _HALF:
            following = None
        # That rows lie behind the end of the video is not judged here.
        reached = max(-1.0, float(np.floor((end - start) * rate + _HALF)))
        inside = int(min(rows, reached + 1))
        if inside <= 0:
            yield Clip(key, unread="its rows lie behind the end of the video")
            first = None
            continue
        sampler = _Sampler(pictures, start, rate, inside, beat)
        try:
            clip, first = sampler.clip(key, first, following if inside == rows else None)
            yield clip
        except TooFarError as error:
            yield Clip(key, unread=str(error))
            first = None
        except FormatError as error:
            yield Clip(key, fault=str(error))
            first = None


class _Sampler:
    """Decodes the pictures of one clip.

    Args:
        pictures: of the video.
        start: of the clip in the video, in seconds.
        rate: rows a second.
        rows: of the episode, as far as the video reaches.
        beat: called before each picture.
    """

    def __init__(
        self, pictures: Pictures, start: float, rate: float, rows: int, beat: Callable[[], None]
    ) -> None:
        self._pictures, self._start, self._rate, self._rows = pictures, start, rate, rows
        self._beat = beat

    def clip(
        self, key: str, first: Picture | None, following: float | None
    ) -> tuple[Clip, Picture | None]:
        """Return the clip, and the first picture of the episode that follows in the file.

        Args:
            key: of the episode.
            first: its first picture, if it is known.
            following: start of the next episode in the video, None without one.

        Raises:
            FormatError: a picture cannot be decoded.
            TooFarError: too many pictures would have to be decoded.
        """
        last = self._rows - 1
        sampled = [(0, self._row(0) if first is None else first)]
        wanted = sorted({round(last * share / (BETWEEN + 1)) for share in range(1, BETWEEN + 1)})
        tail = max(0, self._rows - TAIL) if following is not None else last
        for row in wanted:
            if sampled[-1][0] < row < tail:
                picture = self._row(row, sampled[-1][1].time)
                at = int(np.clip(round((picture.time - self._start) * self._rate), 0, row))
                if at > sampled[-1][0]:
                    sampled.append((at, picture))
        end = [
            (row, self._row(row)) for row in range(tail, self._rows) if row > sampled[-1][0]
        ] or [sampled[-1]]
        foreign = (
            self._pictures.at(following - _HALF / self._rate) if following is not None else None
        )
        if sampled[-1][0] != end[-1][0]:
            sampled.append(end[-1])
        ending = _jump([picture for _, picture in end], foreign) if foreign is not None else {}
        return _measured(key, sampled, ending), foreign

    def _row(self, row: int, after: float | None = None) -> Picture:
        """Return the picture of a row; with `after`, one between that time and the row."""
        self._beat()
        time = self._start + (row - _HALF) / self._rate
        picture = (
            self._pictures.at(time)
            if after is None
            else self._pictures.at(time, after + _HALF / self._rate, exact=False)
        )
        if picture is None:
            msg = f"no picture for row {row:,}, at {self._start + row / self._rate:.3f} s"
            raise FormatError(msg)
        return picture


def _difference(first: Picture, second: Picture) -> float:
    if first.grey.shape != second.grey.shape:
        return 255.0
    return float(np.abs(first.grey.astype(np.int16) - second.grey.astype(np.int16)).mean())


def _jump(end: Sequence[Picture], following: Picture) -> dict[str, Any]:
    """Return the largest jump among the last pictures of a clip, and the changes around it."""
    steps = [_difference(a, b) for a, b in zip(end, [*end[1:], following], strict=True)]
    if len(steps) < TAIL:
        return {}
    place = int(np.argmax(steps[:-1]))
    rest = max(step for number, step in enumerate(steps) if number != place)
    return {"jump": steps[place], "foreign": len(steps) - 1 - place, "others": rest}


def _measured(key: str, sampled: Sequence[tuple[int, Picture]], ending: Mapping[str, Any]) -> Clip:
    greys = [picture.grey for _, picture in sampled]
    changes = [0.0, *(_difference(a, b) for (_, a), (_, b) in pairwise(sampled))]
    return Clip(
        key,
        rows=[row for row, _ in sampled],
        digests=[digest_bytes(grey.tobytes() + bytes(grey.shape)) for grey in greys],
        mean=[float(grey.mean()) for grey in greys],
        spread=[float(grey.std()) for grey in greys],
        change=changes,
        **ending,
    )
