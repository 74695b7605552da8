"""MP4 and QuickTime video: the facts of the header alone; no picture is decoded.

Value: "times", seconds since the first frame. The boxes of ISO/IEC 14496-12 are walked without
reading the pictures. The video track with the most frames (the first of several) is used: ``mdhd``
gives the clock, ``stts`` the duration of each frame, ``ctts`` the delay from its decoding to its
display, ``stsd`` the codec and the size of the pictures. ``stsz`` must count the same frames, and
they must lie in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import Values, check_bytes, wrap_errors
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_MOST_BOXES = 100_000
_MOST_FRAMES = 1 << 24  # six days at 30 frames a second
_HEADER_BYTES = 256 << 20
_INDEX = "the header"
_FIRST = frozenset(
    {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"uuid", b"styp"}
)


class VideoTrack(NamedTuple):
    """The facts of a video that its header states.

    Args:
        times: float64 (frames) [s], display times, ascending, from 0.
        codec: four letters of the sample entry, such as ``avc1`` or ``av01``; "" where there is none.
        height, width: of the pictures, in pixels; 0 where there is no sample entry.
    """

    times: Array
    codec: str
    height: int
    width: int


class _Box(NamedTuple):
    kind: bytes
    start: int  # of its content
    stop: int


def _top_boxes(file: IO[bytes], size: int) -> Iterator[_Box]:
    offset = 0
    for number in range(_MOST_BOXES):
        if offset >= size:
            return
        file.seek(offset)
        head = file.read(16)
        if number == 0 and head[4:8] not in _FIRST:
            msg = f"not an MP4 file: it starts with {head[:8]!r}"
            raise FormatError(msg)
        box = _box(head, offset, size, "the file")
        yield box
        offset = box.stop
    msg = f"more than {_MOST_BOXES:,} boxes"
    raise FormatError(msg)


def _box(head: bytes, offset: int, end: int, what: str) -> _Box:
    """Return the box at byte `offset`; `head` holds its first 16 bytes, or all that are left."""
    if len(head) < 8:
        msg = f"{len(head)} bytes are left at byte {offset:,} of {what}; a box has at least 8"
        raise FormatError(msg)
    size, kind = struct.unpack(">I4s", head[:8])
    start = offset + 8
    if size == 1:
        if len(head) < 16:
            msg = f"box {_kind_text(kind)} at byte {offset:,} is cut short"
            raise FormatError(msg)
        size = struct.unpack(">Q", head[8:16])[0]
        start = offset + 16
    stop = end if size == 0 else offset + size  # 0 means up to the end
    if stop < start or stop > end:
        msg = (
            f"box {_kind_text(kind)} at byte {offset:,} says {size:,} bytes; {end - offset:,} are left: "
            f"the file is cut short"
        )
        raise FormatError(msg)
    return _Box(kind, start, stop)


def _kind_text(kind: bytes) -> str:
    return repr(kind.decode("latin1"))


def _child_boxes(data: bytes, box: _Box) -> Iterator[_Box]:
    offset, count = box.start, 0
    while box.stop - offset >= 8:  # QuickTime ends some boxes with four zero bytes
        count += 1
        child = _box(data[offset : min(offset + 16, box.stop)], offset, box.stop, _INDEX)
        if count > _MOST_BOXES or child.stop <= offset:
            msg = f"more than {_MOST_BOXES:,} boxes in one"
            raise FormatError(msg)
        yield child
        offset = child.stop


def _single_box(data: bytes, box: _Box, *path: bytes) -> _Box:
    for kind in path:
        inner = next((b for b in _child_boxes(data, box) if b.kind == kind), None)
        if inner is None:
            msg = f"box {_kind_text(box.kind)} has no {_kind_text(kind)}"
            raise FormatError(msg)
        box = inner
    return box


def _clock(data: bytes, media: _Box) -> int:
    box = _single_box(data, media, b"mdhd")
    offset = box.start + (20 if data[box.start : box.start + 1] == b"\1" else 12)
    if offset + 4 > box.stop:
        msg = "box 'mdhd' is cut short"
        raise FormatError(msg)
    (scale,) = struct.unpack(">I", data[offset : offset + 4])
    if scale == 0:
        msg = "the video's clock has 0 ticks a second"
        raise FormatError(msg)
    return int(scale)


def _runs(data: bytes, box: _Box, dtype: str) -> Array:
    """Return the (count, value) rows of a run-length coded table: int64 (rows, 2)."""
    head = data[box.start : box.start + 8]
    count = int.from_bytes(head[4:8], "big") if len(head) == 8 else -1
    if count < 0 or box.start + 8 + 8 * count > box.stop:
        msg = (
            f"box {_kind_text(box.kind)} is shorter than the {max(count, 0):,} entries that it "
            f"declares"
        )
        raise FormatError(msg)
    rows = np.frombuffer(data, [("count", ">u4"), ("value", dtype)], count, box.start + 8)
    return np.stack([rows["count"].astype(np.int64), rows["value"].astype(np.int64)], axis=1)


def _expand_runs(runs: Array, frames: int, kind: str) -> Array:
    # No overflow: each count is below 2^32, and so is the number of rows.
    total = int(runs[:, 0].sum())
    if total != frames:
        msg = f"box {kind!r} is about {total:,} frames, box 'stsz' about {frames:,}"
        raise FormatError(msg)
    return np.repeat(runs[:, 1], runs[:, 0])


def _frames(data: bytes, table: _Box) -> int:
    box = _single_box(data, table, b"stsz")
    if box.stop - box.start < 12:
        msg = "box 'stsz' is cut short"
        raise FormatError(msg)
    same, count = struct.unpack(">II", data[box.start + 4 : box.start + 12])
    if count > _MOST_FRAMES or (same == 0 and box.start + 12 + 4 * count > box.stop):
        msg = (
            f"box 'stsz' declares {count:,} frames; it lists fewer, or more than "
            f"{_MOST_FRAMES:,} are read"
        )
        raise FormatError(msg)
    return int(count)


def _check_places(data: bytes, table: _Box, frames: int, size: int) -> None:
    """Check that the frames of a track lie in a file of `size` bytes, if the track says where.

    A box of pictures without a size reaches to the end of the file, also of one that is cut short.
    """
    inner = {box.kind: box for box in _child_boxes(data, table)}
    kind = b"co64" if b"co64" in inner else b"stco"
    if kind not in inner:
        return
    width = 8 if kind == b"co64" else 4
    start = inner[kind].start + 8
    count = int.from_bytes(data[start - 4 : start], "big")
    if start + width * count > inner[kind].stop:
        msg = f"box {_kind_text(kind)} is shorter than the {count:,} entries that it declares"
        raise FormatError(msg)
    places = np.frombuffer(data, f">u{width}", count, start)
    sizes = inner[b"stsz"].start + 4
    same = int.from_bytes(data[sizes : sizes + 4], "big")
    listed = np.frombuffer(data, ">u4", 0 if same else frames, sizes + 8)
    total = frames * same + int(listed.sum(dtype=np.int64))
    stop = max(int(places.max()), int(places.min()) + total) if frames and count else 0
    if stop > size:
        msg = f"its frames reach to byte {stop:,} at least, the file has {size:,}: it is cut short"
        raise FormatError(msg)


def _times(data: bytes, track: _Box, size: int) -> Array:
    """Return the display times of a track's frames: float64 (frames) [s], ascending, from 0."""
    media = _single_box(data, track, b"mdia")
    table = _single_box(data, media, b"minf", b"stbl")
    frames = _frames(data, table)
    _check_places(data, table, frames, size)
    durations = _expand_runs(_runs(data, _single_box(data, table, b"stts"), ">u4"), frames, "stts")
    times = np.cumsum(durations) - durations
    offsets_box = next((b for b in _child_boxes(data, table) if b.kind == b"ctts"), None)
    if offsets_box is not None:
        times = np.sort(times + _expand_runs(_runs(data, offsets_box, ">i4"), frames, "ctts"))
    return (times - times[0]) / _clock(data, media) if frames else np.zeros(0)


def _track(data: bytes, track: _Box, size: int) -> VideoTrack:
    times = _times(data, track, size)
    table = _single_box(data, track, b"mdia", b"minf", b"stbl")
    entries = next((b for b in _child_boxes(data, table) if b.kind == b"stsd"), None)
    # Of the first entry: 8 bytes of its box, 24 of other facts, then width and height.
    start = 0 if entries is None else entries.start + 8
    if entries is None or start + 36 > entries.stop:
        return VideoTrack(times, "", 0, 0)
    width, height = struct.unpack(">HH", data[start + 32 : start + 36])
    return VideoTrack(times, data[start + 4 : start + 8].decode("latin1"), height, width)


def _is_video(data: bytes, track: _Box) -> bool:
    box = _single_box(data, track, b"mdia", b"hdlr")
    return data[box.start + 8 : box.start + 12] == b"vide"


def _header(path: AnyPath) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        boxes = list(_top_boxes(file, size))
        movie = next((b for b in boxes if b.kind == b"moov"), None)
        if movie is None:
            msg = "no box 'moov': not an MP4 file, or a recording that was not finished"
            raise FormatError(msg)
        if any(b.kind == b"moof" for b in boxes):
            msg = (
                "a fragmented MP4 ('moof'): write it again as one piece, for example with ffmpeg "
                "-c copy"
            )
            raise FormatError(msg)
        check_bytes(movie.stop - movie.start, _INDEX, _HEADER_BYTES)
        file.seek(movie.start)
        return file.read(movie.stop - movie.start)


def read_video(path: AnyPath) -> VideoTrack:
    """Return the facts of the video track with the most frames, the first of several.

    Raises:
        FormatError: the file is no MP4, is damaged, or has no video.
    """
    with wrap_errors("damaged MP4"):
        data = _header(path)
        tracks = [b for b in _child_boxes(data, _Box(b"moov", 0, len(data))) if b.kind == b"trak"]
        size = path.stat().st_size
        videos = [_track(data, track, size) for track in tracks if _is_video(data, track)]
    if not videos:
        msg = f"no video among {len(tracks)} tracks"
        raise FormatError(msg)
    return max(videos, key=lambda video: len(video.times))


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    return Values({"times": read_video(path).times})


MP4 = Format(
    "mp4",
    (".mp4", ".m4v", ".mov"),
    _open,
    magic=tuple(bytes([0, 0, 0, n]) + b"ftyp" for n in range(16, 64, 4)),
)
