"""Single pictures of a video, decoded with PyAV: small, grey, by their time.

The only module that uses PyAV. A video is untrusted: call this in an expendable child. One thread
decodes; a picture is scaled down to at most 64 x 64 pixels as soon as it is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import floor
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.model.sample import Array
from datacheck.plugins import require
from datacheck.runtime.beneath import File
from datacheck.workers.budget import limited_memory

LIBRARY, EXTRA = "av", "video"
SIDE = 64  # pixels; larger pictures are scaled down
_MOST_PIXELS = 1 << 26  # of a picture: 8,192 x 8,192
_MEMORY_BYTES = 512 << 20  # for opening a file and for each picture
_MOST_PLAYED = 2  # times that edits may show each picture
_MOST_TICKS = 1 << 62  # FFmpeg counts in 64 bits
_MOST_FORWARD = 1_000  # pictures decoded on the way to one picture
# AREA | ACCURATE_RND | BITEXACT: otherwise the last bits may depend on the processor and on where
# memory lies.
_SCALING = 0x20 | 0x40000 | 0x80000


class Picture(NamedTuple):
    """A decoded picture.

    Args:
        time: of its display, in seconds.
        grey: uint8 (height, width), at most 64 x 64.
    """

    time: float
    grey: Array


class Pictures:
    """The pictures of a video file.

    Args:
        file: an MP4 or QuickTime file.

    Raises:
        FormatError: the file cannot be opened, or has no video that can be decoded.
        MissingDependencyError: PyAV is not installed.
    """

    def __init__(self, file: File) -> None:
        self._av = require(LIBRARY, EXTRA)
        self._file = file  # holds the descriptor that the library opens again
        self._frames: Iterator[Any] = iter(())
        self._last: float | None = None  # time of the newest decoded picture
        self._scale = self._av.video.reformatter.VideoReformatter()
        with self._faults():
            # Of this container only: a list of other files would open them.
            self._container = self._av.open(os.fspath(file), format="mov")
            videos = self._container.streams.video
            if not videos:
                msg = "no video that can be decoded"
                raise FormatError(msg)
            self._stream = max(videos, key=lambda stream: stream.frames)
            self._stream.thread_type = "NONE"
            self._stream.codec_context.thread_count = 1
            self._stream.codec_context.options = {"max_pixels": str(_MOST_PIXELS)}
            self._index = self._stream.index_entries
            if len(self._index) > _MOST_PLAYED * self._stream.frames > 0:
                msg = (
                    f"its list of edits shows {len(self._index):,} pictures; "
                    f"{self._stream.frames:,} are stored"
                )
                raise FormatError(msg)

    def close(self) -> None:
        """Close the file."""
        self._frames = iter(())
        self._container.close()

    def at(self, time: float, after: float = -np.inf, *, exact: bool = True) -> Picture | None:
        """Return the first picture that is displayed at a time or later; None behind the last one.

        Args:
            time: in seconds.
            after: the picture's time is larger than this one.
            exact: otherwise the key frame before `time` is returned, if it lies after `after`.

        Raises:
            FormatError: the video is damaged there.
            TooFarError: too many pictures lie between a key frame and `time`, or no video reaches
                that far.
        """
        key_frame = self._key_before(time)
        exact |= key_frame <= after
        near = self._last is not None and key_frame <= self._last < time
        try:
            with self._faults():
                if not (near and exact):
                    self._seek(time)
                return self._next(time, after, exact=exact)
        except FormatError:
            self._last = None  # the library decodes nothing more before a seek
            raise

    def _next(self, time: float, after: float, *, exact: bool) -> Picture | None:
        for count, frame in enumerate(self._frames):
            self._last = at = self._time(frame)
            if at > after and (at >= time or not exact):
                # Pictures on the way, behind a seek, may lack what they refer to.
                if frame.is_corrupt:
                    msg = f"the picture at {at:.3f} s is damaged"
                    raise FormatError(msg)
                return Picture(at, self._grey(frame))
            if count == _MOST_FORWARD:
                break
        else:
            return None
        msg = f"no key frame within {_MOST_FORWARD:,} pictures before {time:.3f} s"
        raise TooFarError(msg)

    def _seek(self, time: float) -> None:
        self._container.seek(self._ticks(time), stream=self._stream)
        self._frames = self._container.decode(self._stream)
        self._last = None

    def _key_before(self, time: float) -> float:
        """Return the time of the key frame from which a seek to `time` would decode."""
        place = self._index.search_timestamp(self._ticks(time))
        if place < 0:
            return -np.inf
        return float(self._index[place].timestamp * self._stream.time_base)

    def _ticks(self, time: float) -> int:
        """Return a time in the stream's unit, earlier by the frames that decoding holds back.

        Raises:
            TooFarError: the time has no such number.
        """
        rate = self._stream.average_rate
        delay = float(self._stream.codec_context.has_b_frames / rate) if rate else 0.0
        ticks = (time - delay) / float(self._stream.time_base)
        if not abs(ticks) < _MOST_TICKS:
            msg = f"{time:g} s is no time in a video"
            raise TooFarError(msg)
        return floor(ticks)

    def _time(self, frame: Any) -> float:
        if frame.pts is None:
            msg = "a picture has no time"
            raise FormatError(msg)
        return float(frame.pts * self._stream.time_base)

    def _grey(self, frame: Any) -> Array:
        small = self._scale.reformat(
            frame,
            width=min(SIDE, frame.width),
            height=min(SIDE, frame.height),
            format="gray",
            interpolation=_SCALING,
            threads=1,
        )
        grey: Array = small.to_ndarray()
        return grey

    def _faults(self) -> AbstractContextManager[None]:
        return _faults(self._av.error.FFmpegError)


class TooFarError(Exception):
    """A picture is out of reach: too many must be decoded before it, or no video is that long."""


@contextmanager
def _faults(kind: type[Exception]) -> Iterator[None]:
    """Turn errors of the library into `FormatError`, and limit its memory."""
    try:
        with limited_memory(_MEMORY_BYTES):
            yield
    except MemoryError:
        msg = f"a picture takes more than {_MEMORY_BYTES >> 20} MiB of memory"
        raise FormatError(msg) from None
    except kind as error:
        msg = f"cannot be decoded: {getattr(error, 'strerror', None) or 'damaged'}"
        raise FormatError(msg) from None
