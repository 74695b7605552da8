"""Images: "image" [H, W] or [H, W, C] as stored (uint8, uint16, ...); palette images give their indices."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import foreign, plain
from datacheck.registry import require
from datacheck.runtime.beneath import Place
from datacheck.sample import Container

_PIXELS = 179_000_000  # Pillow's own limit for an error
_KINDS = ("PNG", "JPEG", "MPO", "BMP", "PPM", "TIFF", "WEBP")
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_TAIL = 64 << 10
_CHANNELS = {"1": 1, "L": 1, "P": 1, "I": 1, "F": 1, "LA": 2, "PA": 2, "RGB": 3, "YCbCr": 3, "LAB": 3, "HSV": 3}
_TYPES = {"1": "|b1", "I": "<i4", "F": "<f4", "I;16": "<u2", "I;16B": "<u2", "I;16L": "<u2"}


class _Image(Container):
    """An image whose header was read; the pixels are decoded when they are asked for."""

    def __init__(self, source: Place | bytes) -> None:
        self._source = source
        self._pillow = require("PIL.Image", "images")
        with foreign("damaged image"):
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
        with foreign("damaged image"):
            return plain(np.asarray(self._image))

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        if name != "image":
            raise KeyError(name)
        self._check_end()
        width, height = self._image.size
        mode = self._image.mode
        channels = 1 if mode.startswith("I;16") else _CHANNELS.get(mode, 4)
        return (height, width, *([channels] if channels > 1 else [])), _TYPES.get(mode, "|u1")

    def _check_end(self) -> None:
        """See that a JPEG or PNG file has its end mark: who peeks would not notice that pixels are missing.

        Notes:
            Some cameras append data of their own, so the mark may stand anywhere in the last 64 KB.
        """
        mark = _ENDS.get(self._image.format or "")
        if mark is None:
            return
        if mark not in self._tail():
            msg = "truncated image: it has no end mark"
            raise FormatError(msg)

    def _tail(self) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[max(2, len(self._source) - _TAIL) :]
        with self._source.open("rb") as file:
            file.seek(max(2, self._source.stat().st_size - _TAIL))
            return file.read()

    def close(self) -> None:
        self._image.close()


def _open(path: Place, hint: Hint) -> Container:
    del hint
    return _Image(path)


def _inside(data: bytes, hint: Hint) -> Container:
    del hint
    return _Image(data)


_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_SUFFIXES = (".jpeg", ".tiff", ".webp", ".png", ".jpg", ".bmp", ".tif", ".ppm", ".pgm")
IMAGE = Format("image", _SUFFIXES, _open, magic=_MAGIC, member=_inside)
