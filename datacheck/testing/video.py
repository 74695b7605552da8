"""MP4 files whose pictures are PNG images, after ISO/IEC 14496-12: written without an encoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

_TICKS = 512  # of the clock per frame, as FFmpeg writes it
_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
CODEC = "png"  # as FFmpeg names it
_ENTRY = b"png "  # of this codec in a table of samples


def _box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def _full(kind: bytes, *parts: bytes, flags: int = 0) -> bytes:
    return _box(kind, struct.pack(">I", flags), *parts)


def _numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def png(picture: np.ndarray[Any, Any]) -> bytes:
    """Return a picture as PNG.

    Shapes:
        picture: uint8 (height, width, 3), RGB
    """
    height, width, _ = picture.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def mp4(frames: Sequence[bytes], rate: int, height: int, width: int) -> bytes:
    """Return a video of constant rate, its header before its pictures.

    Args:
        frames: each picture as PNG.
        rate: frames per second.
        height, width: of the pictures, in pixels.
    """
    start = _box(b"ftyp", b"isom", _numbers(512), b"isomiso2mp41")
    # The header's size does not depend on the position that it states.
    place = len(start) + len(_movie(frames, rate, height, width, 0)) + 8
    return start + _movie(frames, rate, height, width, place) + _box(b"mdat", *frames)


def _movie(frames: Sequence[bytes], rate: int, height: int, width: int, place: int) -> bytes:
    count, scale = len(frames), rate * _TICKS
    length = count * _TICKS
    unity = struct.pack(">IH10x", 0x10000, 0x100)  # rate 1, volume 1
    header = _full(b"mvhd", _numbers(0, 0, scale, length), unity, _MATRIX, bytes(24), _numbers(2))
    track = _full(
        b"tkhd",
        _numbers(0, 0, 1, 0, length),
        bytes(16),
        _MATRIX,
        _numbers(width << 16, height << 16),
        flags=3,
    )
    entry = _box(
        _ENTRY,
        struct.pack(">6xH16x", 1),
        struct.pack(">HHIIIH32sHh", width, height, 72 << 16, 72 << 16, 0, 1, b"", 24, -1),
    )
    places = list(accumulate(map(len, frames), initial=place))[:-1]
    table = _box(
        b"stbl",
        _full(b"stsd", _numbers(1), entry),
        _full(b"stts", _numbers(1, count, _TICKS)),
        _full(b"stsc", _numbers(1, 1, 1, 1)),
        _full(b"stsz", _numbers(0, count), _numbers(*map(len, frames))),
        _full(b"stco", _numbers(count), _numbers(*places)),
    )
    media = _box(
        b"mdia",
        _full(b"mdhd", _numbers(0, 0, scale, length), struct.pack(">HH", 0x55C4, 0)),
        _full(b"hdlr", bytes(4), b"vide", bytes(12), b"VideoHandler\0"),
        _box(
            b"minf",
            _full(b"vmhd", bytes(8), flags=1),
            _box(b"dinf", _full(b"dref", _numbers(1), _full(b"url ", flags=1))),
            table,
        ),
    )
    return _box(b"moov", header, _box(b"trak", track, media))
