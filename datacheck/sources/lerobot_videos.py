"""Hold the videos of a LeRobot dataset against its episodes, by the headers of the files alone.

A child reads them; no picture is decoded. LeRobot takes the frame that lies nearest to the time of
a step, counted from the start of the episode in its file, and refuses one that lies farther away
than a tolerance of 0.0001 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import check_pointer
from datacheck.formats.limits import path_below
from datacheck.formats.mp4 import VideoTrack, read_video
from datacheck.runtime.beneath import File
from datacheck.runtime.hashing import shortened
from datacheck.sources.lerobot import Meta, PathTemplateError, Span, read_spans, video_features

Array = np.ndarray[Any, Any]

TOLERANCE = 1e-4  # s; what LeRobot allows by default
_MOST_FILES = 20_000
_MOST_FAULTS = 10_000
_MOST_UNKNOWN = 20
_HEAD = 1_024  # bytes in which a placeholder for a file can be seen
# By LeRobot's name of a codec: the sample entries that stand for it in an MP4 file.
_CODECS = {
    "h264": ("avc1", "avc3"),
    "hevc": ("hvc1", "hev1"),
    "av1": ("av01",),
    "mpeg4": ("mp4v",),
    "vp9": ("vp09",),
    "mjpeg": ("jpeg", "mjpg"),
    "png": ("png ",),
}
_HALF = 0.5  # frames by which a span may be off: times are rounded


class VideoFault(NamedTuple):
    """A fault of the video of one episode and camera.

    Args:
        kind: unreadable, frames, span, gap, end, time, rounding, surplus, size or info.
        episode: its number.
        camera: name of the feature.
        words: what was found, and what is expected: a phrase without a full stop.
    """

    kind: str
    episode: int
    camera: str
    words: str


class VideoCheck(NamedTuple):
    """What comes of the videos of a dataset.

    Args:
        faults: at most 10,000.
        read: number of videos whose header was read; their pictures are not.
        unknown: why the videos of a camera could not be looked for.
        is_whole: whether all videos were read; at most 20,000 are.
    """

    faults: list[VideoFault]
    read: int
    unknown: list[str]
    is_whole: bool


def check_videos(
    base: File, info: Mapping[str, Any], meta: Meta, beat: Callable[[], None]
) -> VideoCheck:
    """Hold a dataset's videos against its episodes.

    Args:
        base: the dataset's folder.
        info: the values of its info.
        meta: its episodes.
        beat: called before each video.

    Notes:
        Reads nothing if the rate or the paths are unknown. Missing files are no faults here: the
        list of the named files reports them.
    """
    rate = info.get("fps")
    faults: list[VideoFault] = []
    unknown: list[str] = []
    read = 0
    if not isinstance(rate, int | float) or not 1e-6 <= rate <= 1e9:
        return VideoCheck(faults, read, unknown, is_whole=True)
    for camera in video_features(info):
        try:
            spans = read_spans(base, camera, info)
        except PathTemplateError:  # the list of the named files reports it
            continue
        except FormatError as error:
            unknown.append(f"{shortened(camera, 60)}: {error}")
            continue
        for path, episodes in _by_path(base, spans).items():
            if read >= _MOST_FILES or len(faults) >= _MOST_FAULTS:
                return VideoCheck(faults, read, unknown, is_whole=False)
            beat()
            feature = info["features"][camera]
            found = _of_file(base / path, camera, episodes, meta.lengths, float(rate), feature)
            faults.extend(islice(found, _MOST_FAULTS - len(faults)))
            read += 1
    return VideoCheck(faults, read, unknown[:_MOST_UNKNOWN], is_whole=True)


def _by_path(base: File, spans: Sequence[Span]) -> dict[str, list[Span]]:
    """Return the spans of each video that exists below the dataset's folder."""
    by_path: dict[str, list[Span]] = {}
    for span in spans:
        by_path.setdefault(span.path, []).append(span)
    return {
        path: spans
        for path, spans in by_path.items()
        if path_below(path) is not None and (base / path).is_file()
    }


def _of_file(
    file: File,
    camera: str,
    spans: Sequence[Span],
    lengths: Mapping[int, int],
    rate: float,
    feature: Mapping[str, Any],
) -> Iterator[VideoFault]:
    """Yield the faults of one file, which holds the spans in their order."""
    try:
        with file.open() as opened:
            check_pointer(opened.read(_HEAD))
        video = read_video(file)
    except (FormatError, OSError) as error:
        for span in spans:
            yield VideoFault("unreadable", span.episode, camera, str(error))
        return
    for kind, words in _declared(video, feature):
        yield VideoFault(kind, spans[0].episode, camera, words)
    half = _HALF / rate
    used = np.zeros(len(video.times), bool)
    before = 0.0  # where the episode before ends
    for place, span in enumerate(spans):
        length = lengths[span.episode]
        stop = span.start + length / rate if span.stop is None else span.stop
        following = spans[place + 1].start if place + 1 < len(spans) else np.inf
        # Frames between two episodes may be those of an episode that was left out. A span that
        # reaches into another one is in the wrong place.
        is_apart = before - half <= span.start and stop <= following + half
        fault = _of_span(video.times, span, length, rate, span.start if is_apart else before)
        if fault is not None:
            yield VideoFault(fault[0], span.episode, camera, fault[1])
        used[slice(*np.searchsorted(video.times, [span.start - half, stop - half]))] = True
        before = stop
    surplus = int((~used).sum())
    if spans[0].stop is not None and surplus:
        words = f"{surplus:,} of {len(used):,} frames belong to no episode"
        yield VideoFault("surplus", spans[-1].episode, camera, words)


def _of_span(
    times: Array, span: Span, length: int, rate: float, before: float
) -> tuple[str, str] | None:
    """Return kind and words of the first fault of a span, None without one."""
    if span.stop is None:
        if len(times) != length:
            return "frames", f"{len(times):,} frames for {length:,} rows"
    elif misplaced := _misplaced(span.start, span.stop, length, rate, before):
        return misplaced
    return _unmatched(times, span.start, length, rate)


def _misplaced(
    start: float, stop: float, length: int, rate: float, before: float
) -> tuple[str, str] | None:
    """Return the fault of a span that has another length, or does not follow the one before."""
    if abs(stop - start - length / rate) * rate > _HALF:
        frames = (stop - start) * rate
        return "span", f"{start:g} s to {stop:g} s, {frames:,.1f} frames, for {length:,} rows"
    if abs(start - before) * rate > _HALF:
        words = (
            f"begins at {start:g} s; the episode before in the file ends at {before:g} s, "
            f"{abs(start - before) * rate:,.1f} frames {'earlier' if start > before else 'later'}"
        )
        return "gap", words
    return None


def _unmatched(times: Array, start: float, length: int, rate: float) -> tuple[str, str] | None:
    """Return the fault of rows without a frame near enough."""
    if not length:
        return None
    end = float(times[-1]) if len(times) else -np.inf
    late = length - 1 - max(-1.0, np.floor((end - start) * rate + _HALF))
    if late > 0:
        return "end", f"{int(late):,} of {length:,} rows lie behind the end of the video"
    # Two far frames may span any time: do not make a list of rows as long as a document claims.
    if length > 2 * len(times):
        return "frames", f"{len(times):,} frames for {length:,} rows"
    wanted = start + np.arange(length) / rate
    distance = float(_nearest(times, wanted).max())
    if distance > TOLERANCE:
        words = (
            f"the nearest frame lies up to {distance:.3g} s from its row: LeRobot needs a tolerance_s "
            f"of {_rounded_up(distance):g} or more"
        )
        return "time", words
    return _rounded_apart(times, start, length, rate)


def _rounded_apart(times: Array, start: float, length: int, rate: float) -> tuple[str, str] | None:
    """Return the fault of rows that the rounding of LeRobot takes away from their frames.

    LeRobot adds the start to the row's float32 time stamp, and compares the sum with the time of the
    frame in float32, whose numbers are 0.00012 s apart from 1,024 s on.
    """
    stamps = (np.arange(length) / rate).astype(np.float32)
    wanted = (start + stamps.astype(np.float64)).astype(np.float32)
    distance = _nearest(times.astype(np.float32), wanted)
    far = distance >= TOLERANCE
    if not far.any():
        return None
    words = (
        f"{int(far.sum()):,} of {length:,} rows lie {float(wanted[far][0]):,.1f} s or more behind the "
        f"start of the video, where the 32-bit times of LeRobot are up to {float(distance.max()):.2g} "
        f"s off: it needs a tolerance_s of {_rounded_up(float(distance.max())):g} or more"
    )
    return "rounding", words


def _rounded_up(value: float) -> float:
    """Return a number of two digits that is larger."""
    unit = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float((np.floor(value / unit) + 1) * unit)


def _nearest(times: Array, wanted: Array) -> Array:
    """Return the distance of each wanted time to the nearest of the ascending times."""
    after = np.searchsorted(times, wanted).clip(1, max(1, len(times) - 1))
    left = np.abs(times[after - 1] - wanted)
    right = np.abs(times[np.minimum(after, len(times) - 1)] - wanted)
    nearest: Array = np.minimum(left, right)
    return nearest


def _declared(video: VideoTrack, feature: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield kind and words of each difference between a video and what its feature declares."""
    shape, size = feature.get("shape"), [video.height, video.width]
    # The shape has its axes in either order.
    sizes = shape if isinstance(shape, list) and len(shape) == 3 else [*size, 3]
    if video.height and size not in (sizes[:2], sizes[1:]):
        words = f"pictures of {size[0]} x {size[1]} pixels; the feature declares {str(shape)[:40]}"
        yield "size", words
    stated = feature.get("info") or feature.get("video_info")
    if not isinstance(stated, Mapping):
        return
    rate = stated.get("video.fps")
    step = float(np.median(np.diff(video.times))) if len(video.times) > 1 else 0.0
    # LeRobot writes the whole part of the rate.
    if isinstance(rate, int | float) and step > 0 and abs(1 / step - rate) > max(1.0, 0.01 / step):
        yield "info", f"{1 / step:g} frames a second; the feature states {rate:g}"
    codec = stated.get("video.codec")
    entries = _CODECS.get(codec, ()) if isinstance(codec, str) else ()
    known = {name for names in _CODECS.values() for name in names}
    if entries and video.codec in known and video.codec not in entries:
        yield "info", f"the codec {video.codec!r}; the feature states {codec!r}"
