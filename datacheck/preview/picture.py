"""Images of at most 160 pixels a side, and six frames of a film."""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from typing import Any

import numpy as np

from datacheck.errors import MissingDependencyError
from datacheck.preview.numbers import Array, UnfitError, floats, numeric, shown
from datacheck.registry import require

SIDE = 160
FRAMES = 6
_STRIDE = 10  # averaged over at most so many pixels a side; of larger images some are left out before
_SMALL = 6_000  # bytes up to which a PNG stays one


def image(value: object, *, flip: bool = False) -> dict[str, Any]:
    """Return the preview of an image.

    Shapes:
        value: number (H, W), (H, W, 1 to 4) or (3, H, W)

    Args:
        flip: the first row is the lowest one.

    Raises:
        UnfitError: it has no pixel, or is of another shape.
    """
    pixels, said = _pixels(numeric(value), flip=flip)
    height, width = pixels.shape[:2]
    return {
        "kind": "image", "url": encoded(pixels), "width": width, "height": height,
        "about": f"Image: {'; '.join(said)}.",
    }  # fmt: skip


def film(value: object, *, flip: bool = False, fps: float | None = None) -> dict[str, Any]:
    """Return six frames of a film.

    Shapes:
        value: number (T, H, W) or (T, H, W, C)

    Args:
        flip: the first row of each frame is the lowest one.
        fps: steps a second, None where it is not known.

    Raises:
        UnfitError: it has no frame, or is of another shape.
    """
    frames = numeric(value)
    if frames.ndim not in {3, 4} or not len(frames):
        msg = f"has shape {list(frames.shape)}; films are [T, H, W, C] with a frame and more"
        raise UnfitError(msg)
    places = np.unique(np.linspace(0, len(frames) - 1, min(FRAMES, len(frames))).round().astype(np.int64)).tolist()
    made = [_pixels(frames[place], flip=flip) for place in places]
    height, width = made[0][0].shape[:2]
    about = [f"{len(made)} of {len(frames):,} frames", *made[0][1]]
    if fps:
        about.insert(1, f"{shown(len(frames) / fps)} s")
    return {
        "kind": "film", "of": len(frames), "fps": fps, "width": width, "height": height,
        "frames": [{"at": place, "url": encoded(pixels)} for place, (pixels, _) in zip(places, made, strict=True)],
        "about": f"Film: {'; '.join(about)}.",
    }  # fmt: skip


def _pixels(values: Array, *, flip: bool) -> tuple[Array, list[str]]:
    """Return uint8 (h, w, 1 or 3) of at most 160 a side, and what is to be said of it."""
    shape = list(values.shape)
    if values.ndim == 2:
        values = values[..., None]
    elif values.ndim == 3 and values.shape[0] in {1, 3} and values.shape[2] not in {1, 2, 3, 4}:
        values = values.transpose(1, 2, 0)
    if values.ndim != 3 or values.shape[2] not in {1, 2, 3, 4} or not values.size:
        msg = f"has shape {shape}; images are [H, W] or [H, W, 1 to 4], not empty"
        raise UnfitError(msg)
    said = [f"{values.shape[1]:,} x {values.shape[0]:,} pixels"]
    values = values[..., : 3 if values.shape[2] >= 3 else 1]  # without what is not colour
    if flip:
        values = values[::-1]
        said.append("stored bottom row first, shown upright")
    step = max(1, math.ceil(max(values.shape[:2]) / (SIDE * _STRIDE)))
    part = values[::step, ::step]
    low, high = _range(part, said)
    levels = floats(part)
    bad = ~np.isfinite(levels)
    if bad.any():
        said.append(f"{bad.mean():.2%} of the values not finite, drawn black")
    with np.errstate(over="ignore"):
        share = np.clip((np.where(bad, low, levels) / 2 - low / 2) / max(high / 2 - low / 2, 1e-300), 0, 1)
    small = _shrunk(share * 255)
    return np.rint(small).astype(np.uint8), said


def _range(values: Array, said: list[str]) -> tuple[float, float]:
    """Return what is drawn black and what white."""
    if values.dtype == np.uint8:
        return 0.0, 255.0
    if values.dtype.kind == "b":
        return 0.0, 1.0
    levels = floats(values)
    known = levels[np.isfinite(levels)]
    if not known.size:
        msg = "has no finite pixel"
        raise UnfitError(msg)
    low, high = float(known.min()), float(known.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return 0.0, 1.0
    said.append(f"black is {shown(low)}, white {shown(high)}")
    return low, high


def _shrunk(values: Array) -> Array:
    """Return the means of blocks, so that no side is longer than 160."""
    longest = max(values.shape[:2])
    for axis in (0, 1) if longest > SIDE else ():
        size = values.shape[axis]
        new = max(1, round(size * SIDE / longest))
        edges = np.arange(new + 1) * size // new
        sums = np.add.reduceat(values, edges[:-1], axis=axis)
        counts = np.diff(edges).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        values = sums / counts
    return values


# ------------------------------------------------------------------------------------------------- files


def encoded(pixels: Array) -> str:
    """Return an image as a data URL: a PNG, or a JPEG where that is much smaller and Pillow is there."""
    data = png(pixels)
    if len(data) > _SMALL:
        try:
            pillow = require("PIL.Image", "images")
        except MissingDependencyError:
            return _url("png", data)
        file = io.BytesIO()
        pillow.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).save(file, "JPEG", quality=75)
        return _url("jpeg", file.getvalue())
    return _url("png", data)


def _url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def png(pixels: Array) -> bytes:
    """Return uint8 (h, w, 1 or 3) as the bytes of a PNG file."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with the number of its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
