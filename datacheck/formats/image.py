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
        """Check that a JPEG or PNG file has its end mark: `peek` would not notice missing pixels.

        Notes:
            Some cameras append data of their own, so the mark may be anywhere in the last 64 KiB.
        """
        mark = _ENDS.get(self._image.format or "")
        if mark is None:
            return
        if mark not in self._tail():
            msg = "truncated image: it has no end mark"
            raise FormatError(msg)

    def _check_depth(self) -> None:
        """Refuse images that Pillow would convert: 16-bit colours, values of other ranges."""
        head = self._head()
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

    def _head(self) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[:_HEAD]
        with self._source.open("rb") as file:
            return file.read(_HEAD)

    def _tail(self) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[max(2, len(self._source) - _TAIL) :]
        with self._source.open("rb") as file:
            file.seek(max(2, self._source.stat().st_size - _TAIL))
            return file.read()

    def close(self) -> None:
        self._image.close()


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Image(path)


def _open_member(data: bytes, hint: Hint) -> Container:
    del hint
    return _Image(data)


_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_SUFFIXES = (".jpeg", ".tiff", ".webp", ".png", ".jpg", ".bmp", ".tif", ".ppm", ".pgm")
IMAGE = Format("image", _SUFFIXES, _open, magic=_MAGIC, member=_open_member)
