"""Images: "image" [H, W] or [H, W, C] as stored (uint8, uint16, ...).

Palette images give their indices.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import plain, wrap_errors
from datacheck.model.sample import Container
from datacheck.plugins import require
from datacheck.runtime.beneath import AnyPath

_PIXELS = 179_000_000  # Pillow's own limit, above which it raises an error
# JPEG includes files of several pictures (MPO).
_KINDS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP")
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_MOST_SEGMENTS = 10_000
_START_OF_SCAN = 0xDA
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})  # markers of a JPEG
# Bits of a pixel as stored, by Pillow's name.
_BITS = {
    **dict.fromkeys(("1", "1;I", "1;R", "1;IR"), 1),
    **dict.fromkeys(("L", "P", "R", "G", "B", "A"), 8),
    **dict.fromkeys(("I;16", "I;16B"), 16),
    "RGB": 24,
    **dict.fromkeys(("RGBA", "RGBX", "CMYK", "F;32F", "F;32BF"), 32),
}
_HEAD = 4 << 10
_TAIL = 64 << 10
_COLOURS = {2: "RGB", 4: "gray with alpha", 6: "RGBA"}  # by the colour type in a PNG header
# Largest values that Pillow does not rescale, by the kind of PPM.
_STORED = {b"2": {255, 65535}, b"5": {255, 65535}, b"3": {255}, b"6": {255}}
_CHANNELS = {
    "1": 1,
    "L": 1,
    "P": 1,
    "I": 1,
    "F": 1,
    "LA": 2,
    "PA": 2,
    "RGB": 3,
    "YCbCr": 3,
    "LAB": 3,
    "HSV": 3,
}
_TYPES = {"1": "|b1", "I": "<i4", "F": "<f4", "I;16": "<u2", "I;16B": "<u2", "I;16L": "<u2"}


class _Image(Container):
    """An image whose header was read; the pixels are decoded on access."""

    def __init__(self, source: AnyPath | bytes) -> None:
        self._source = source
        self._pillow = require("PIL.Image", "images")
        with wrap_errors("damaged image"):
            file = io.BytesIO(source) if isinstance(source, bytes) else source
            self._image = self._pillow.open(file, formats=_KINDS)
            self._least_bytes = _least_bytes(self._image)
        width, height = self._image.size
        if width * height > _PIXELS:
            self._image.close()
            msg = f"an image of {width:,} x {height:,} pixels; at most {_PIXELS:,} are read"
            raise FormatError(msg)

    def names(self) -> list[str]:
        return ["image"]

    def read(self, name: str) -> Any:
        if name != "image":
            raise KeyError(name)
        self._check_end()
        self._check_depth()
        with wrap_errors("damaged image"):
            return plain(np.asarray(self._image))

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        if name != "image":
            raise KeyError(name)
        self._check_end()
        self._check_depth()
        width, height = self._image.size
        mode = self._image.mode
        channels = 1 if mode.startswith("I;16") else _CHANNELS.get(mode, 4)
        return (height, width, *([channels] if channels > 1 else [])), _TYPES.get(mode, "|u1")

    def _check_end(self) -> None:
        """Check that the file holds all pixels: `peek` would not notice missing ones.

        Notes:
            Some cameras append data of their own, so the end mark of a JPEG or PNG file may be
            anywhere in the last 64 KiB, behind the header of a JPEG: a thumbnail in it has an end
            mark of its own.
        """
        size = self._size()
        if self._least_bytes > size:
            msg = f"truncated image: it has {size:,} bytes and needs {self._least_bytes:,}"
            raise FormatError(msg)
        mark = _ENDS.get(self._image.format or "")
        if mark is None:
            return
        start = max(2, size - _TAIL)
        tail = self._part(start, _TAIL)
        if tail.endswith(mark):
            return
        scan_start = 2 if mark == _ENDS["PNG"] else self._scan_start()
        if mark not in tail[max(0, scan_start - start) :]:
            msg = "truncated image: it has no end mark"
            raise FormatError(msg)

    def _scan_start(self) -> int:
        """Return where the first scan of a JPEG begins; 2 if its segments are damaged."""
        place = 2
        for _ in range(_MOST_SEGMENTS):
            head = self._part(place, 4)
            if len(head) < 4 or head[0] != 0xFF:
                return 2
            if head[1] == _START_OF_SCAN:
                return place
            if head[1] == 0xFF:  # fill bytes
                place += 1
            elif head[1] in _WITHOUT_LENGTH:
                place += 2
            else:
                place += 2 + int.from_bytes(head[2:], "big")
        return 2

    def _check_depth(self) -> None:
        """Refuse images that Pillow would convert: 16-bit colours, values of other ranges."""
        head = self._part(0, _HEAD)
        if self._image.format == "PNG" and head[24:25] == b"\x10" and head[25] in _COLOURS:
            msg = (
                f"16-bit {_COLOURS[head[25]]}, of which Pillow keeps 8 bits. Write the image as "
                f".npy or as 16-bit gray"
            )
            raise FormatError(msg)
        if self._image.format == "PPM":
            kind, *words = re.sub(rb"#[^\r\n]*", b"", head).split(None, 4)
            # "?": not in the first bytes, or damaged.
            largest = words[2] if len(words) > 2 and words[2].isdigit() else b"?"
            if kind[1:] in _STORED and (
                largest == b"?" or int(largest[:9]) not in _STORED[kind[1:]]
            ):
                msg = (
                    f"values up to {largest[:9].decode()}, which Pillow scales. Write the image "
                    f"as .png or .npy"
                )
                raise FormatError(msg)

    def _size(self) -> int:
        return len(self._source) if isinstance(self._source, bytes) else self._source.stat().st_size

    def _part(self, start: int, size: int) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[start : start + size]
        with self._source.open("rb") as file:
            file.seek(start)
            return file.read(size)

    def close(self) -> None:
        self._image.close()


def _least_bytes(image: Any) -> int:
    """Return the least size of a file that holds all pixels of an opened image, 0 if unknown.

    The last row may be short: some writers omit its padding.
    """
    if image.format not in {"BMP", "PPM", "TIFF"}:
        return 0
    least = 0
    for codec, (_, top, _, bottom), offset, args in image.tile:
        if codec == "raw":
            mode, stride = (args, 0) if isinstance(args, str) else args[:2]
            row = stride or image.size[0] * _BITS.get(mode, 0) // 8
            least = max(least, offset + row * max(bottom - top - 1, 0) + 1)
    if image.format == "TIFF" and not least:
        offsets, counts = (
            image.tag_v2.get(strips) or image.tag_v2.get(tiles) or ()
            for strips, tiles in ((273, 324), (279, 325))
        )
        least = max((sum(pair) for pair in zip(offsets, counts, strict=False)), default=0)
    return int(least)


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Image(path)


def _open_member(data: bytes, hint: Hint) -> Container:
    del hint
    return _Image(data)


_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_SUFFIXES = (".jpeg", ".tiff", ".webp", ".png", ".jpg", ".bmp", ".tif", ".ppm", ".pgm")
IMAGE = Format("image", _SUFFIXES, _open, magic=_MAGIC, member=_open_member)
