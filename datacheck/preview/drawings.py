"""Drawings of single values as JSON: point clouds, timelines, images and films.

The last part subsamples, rounds and encodes values; the other drawings use it, too.
"""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from datacheck.errors import MissingDependencyError
from datacheck.plugins import require
from datacheck.rules.base import pluralize
from datacheck.rules.series import time_field
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

MAX_POINTS = 2048
_LABELS = 12  # distinguishable colours; the rarest labels share the last one
_AXES = "xyz"


class NotDrawableError(Exception):
    """There is nothing to draw; the message is the end of a sentence about the field."""


@dataclass(frozen=True, eq=False)
class Colour:
    """The values that colour the points.

    Shapes:
        values: any (points, 3) of red, green, blue; any (points) of labels

    Args:
        name: of the field.
        ignored: labels that training leaves out.
        names: of labels 0, 1, ..., if they have names.
        declared: returns which labels the schema declares, if it does; the others come first.
    """

    name: str
    values: Array
    ignored: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    declared: Callable[[Array], Array] | None = None


def cloud(
    value: object,
    unit: str = "",
    up: str | None = None,
    colour: Colour | None = None,
    most: int = MAX_POINTS,
) -> dict[str, Any]:
    """Return the preview of a cloud.

    Shapes:
        value: number (points, 3)

    Args:
        unit: of the coordinates; "" if unknown.
        up: the axis that points up ("z", "-y"); None: z.
        colour: None: by height.
        most: maximum number of points.

    Raises:
        NotDrawableError: no point is finite, or the shape is another one.
    """
    points = numeric(value)
    if points.ndim != 2 or points.shape[1] != 3:
        msg = f"has shape {list(points.shape)}; points are [P, 3]"
        raise NotDrawableError(msg)
    if not len(points):
        msg = "has no point"
        raise NotDrawableError(msg)
    finite = np.isfinite(points).all(axis=1)
    places = np.flatnonzero(finite)
    if not len(places):
        msg = f"has {len(points):,} points, none of them finite"
        raise NotDrawableError(msg)
    finite_points = points if len(places) == len(points) else points[places]
    low = floats(finite_points.min(axis=0))
    high = floats(finite_points.max(axis=0))
    chosen = places[spread_indices(len(places), most)]
    encoded_points = quantised(floats(points[chosen]), low, high)
    preview = {
        "kind": "cloud",
        "points": len(points),
        "shown": len(chosen),
        "unfinite": len(points) - len(places),
        "box": [low.tolist(), high.tolist()],
        "unit": unit,
        "up": up or "z",
        "xyz": base64_of(encoded_points),
        "colour": _point_colours(colour, len(points), chosen),
    }
    return preview | {"about": _about(preview, low, high)}


def quantised(points: Array, low: Array, high: Array) -> Array:
    """Return points as uint16 within their bounding box: 0 is `low`, 65535 is `high`."""
    span = high / 2 - low / 2  # halves, because the whole span may overflow float64
    share = np.divide(points / 2 - low / 2, span, out=np.zeros_like(points), where=span > 0)
    numbers: Array = np.rint(np.clip(share, 0, 1) * 65535).astype(np.uint16)
    return numbers


def _point_colours(colour: Colour | None, points: int, chosen: Array) -> dict[str, Any]:
    if colour is None or colour.values.dtype.kind not in "biuf" or len(colour.values) != points:
        return {"by": "height"}
    values = colour.values
    if values.ndim == 2 and values.shape[1] == 3:
        return {"by": "rgb", "name": colour.name, "rgb": base64_of(_rgb_bytes(values, chosen))}
    if values.ndim != 1:
        return {"by": "height"}
    labels, counts = np.unique(values, return_counts=True)
    unknown = _undeclared_labels(labels, colour)
    order = np.lexsort((-counts, ~unknown))  # undeclared labels first: they are the fault to show
    shown_labels = order if len(labels) <= _LABELS else order[: _LABELS - 1]
    number = np.full(len(labels), len(shown_labels), np.uint8)
    number[shown_labels] = np.arange(len(shown_labels))
    names = [
        _label(labels[i], colour) + (" (no class)" if unknown[i] else "")
        for i in shown_labels.tolist()
    ]
    others = (
        [f"{len(labels) - len(shown_labels):,} others"] if len(shown_labels) < len(labels) else []
    )
    many = counts[shown_labels].tolist() + (
        [int(counts.sum() - counts[shown_labels].sum())] if others else []
    )
    return {
        "by": "label",
        "name": colour.name,
        "names": names + others,
        "counts": many,
        "label": base64_of(number[np.searchsorted(labels, values[chosen])]),
    }


def _undeclared_labels(labels: Array, colour: Colour) -> Array:
    """Return bool (labels): the schema does not declare the label."""
    if colour.declared is None:
        return np.zeros(len(labels), bool)
    return ~(colour.declared(labels) | np.isin(labels, list(colour.ignored)))


def _label(value: Any, colour: Colour) -> str:
    if colour.names:
        return colour.names[int(value)]
    text = str(int(value)) if float(value).is_integer() else f"{value:g}"
    return text + (" (ignored)" if value in colour.ignored else "")


def _rgb_bytes(values: Array, chosen: Array) -> Array:
    """Return colours as uint8, taking the values as shares of 1 or of 255 by their range."""
    part = floats(values[chosen])
    finite_values = part[np.isfinite(part)]
    full_scale = 255.0 if len(finite_values) and finite_values.max() > 1 else 1.0
    if values.dtype.kind == "u":
        full_scale = 255.0
    return np.rint(
        np.clip(np.nan_to_num(part / full_scale, nan=0, posinf=1, neginf=0), 0, 1) * 255
    ).astype(np.uint8)


def _about(preview: dict[str, Any], low: Array, high: Array) -> str:
    with np.errstate(over="ignore"):
        edges = " x ".join(number_text(float(edge)) for edge in high - low)
    corner = ", ".join(
        f"{axis} from {number_text(float(start))}" for axis, start in zip(_AXES, low, strict=True)
    )
    parts = [
        pluralize(preview["points"], "point"),
        f"{edges} {preview['unit'] or '(no unit declared)'} ({corner})",
    ]
    if preview["shown"] < preview["points"] - preview["unfinite"]:
        parts.insert(1, f"{preview['shown']:,} drawn")
    if preview["unfinite"]:
        parts.insert(1, f"{preview['unfinite']:,} not finite and not drawn")
    colour = preview["colour"]
    colouring = f"height along {preview['up']}" if colour["by"] == "height" else colour["name"]
    return f"Point cloud: {'; '.join(parts)}; coloured by {colouring}."


POINTS = 200
DIMENSIONS = 24
RANGES = 1000  # of a timeline; each timeline of a sample holds a copy


def timeline(
    value: object, names: Sequence[str] = (), unit: str = "", fps: float | None = None
) -> dict[str, Any]:
    """Return the preview of a series.

    Shapes:
        value: number (T) or (T, ...)

    Args:
        names: of the dimensions, as far as known.
        unit: of the values; "" if unknown.
        fps: steps per second; None if unknown.

    Raises:
        NotDrawableError: it has no step or no dimension.
    """
    values = numeric(value)
    if not values.ndim or not values.size:
        msg = f"has shape {list(values.shape)}: no step to draw"
        raise NotDrawableError(msg)
    flat = values.reshape(len(values), prod(values.shape[1:]))
    dims = [
        _dimension(flat[:, n], _dimension_name(names, n))
        for n in range(min(flat.shape[1], DIMENSIONS))
    ]
    unfinite = sum(dim["unfinite"] for dim in dims)
    notes = [pluralize(len(flat), "step"), pluralize(flat.shape[1], "dimension")]
    if flat.shape[1] > DIMENSIONS:
        notes.append(f"the first {DIMENSIONS} are drawn")
    if unfinite:
        notes.append(f"{pluralize(unfinite, 'value')} not finite and not drawn")
    return {
        "kind": "timeline",
        "steps": len(flat),
        "fps": fps,
        "unit": unit,
        "dims": dims,
        "all_dims": flat.shape[1],
        "about": f"Timeline: {'; '.join(notes)}.",
    }


def mark_trained_ranges(pictures: Sequence[dict[str, Any]], kept: object, schema: Schema) -> None:
    """Add the ranges of steps to train on to the timelines of a sample.

    Args:
        pictures: see `preview.pictures.previews`.
        kept: ``[first, end]`` of each range, as in ``valid.json``; None if the sample has none.
        schema: of the sample; ranges count steps of its episodes' time axis.
    """
    axis = schema.spec(time_field(schema)).ragged
    if not isinstance(kept, list):
        return
    joined = _merged_ranges(kept)
    for picture in pictures:
        if picture["kind"] == "timeline" and schema.spec(picture["field"]).ragged == axis:
            _mark_ranges(picture, joined, picture["steps"])


def _merged_ranges(ranges: Iterable[Any]) -> list[list[int]]:
    """Return sorted ranges, with overlapping and adjacent ones merged."""
    joined: list[list[int]] = []
    for start, stop in sorted((max(0, start), stop) for start, stop in ranges):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], stop)
        elif start < stop:
            joined.append([start, stop])
    return joined


def _mark_ranges(picture: dict[str, Any], joined: Sequence[list[int]], steps: int) -> None:
    count = bisect_left(joined, [steps])
    if count > RANGES:
        picture["about"] += (
            f" Steps not to be trained on are not shaded: valid.json has {count:,} ranges."
        )
    else:
        picture["ranges"] = [[start, min(stop, steps)] for start, stop in joined[:count]]


def names_of(schema: Schema, name: str) -> list[str]:
    """Return the names of a field's dimensions, if its columns have names."""
    names: list[str] = []
    for part, (start, stop) in sorted(schema.parts(name).items(), key=lambda pair: pair[1]):
        names += [str(n) for n in range(len(names), start)]
        names += [part] if stop - start == 1 else [f"{part} {n}" for n in range(stop - start)]
    return names


def _dimension_name(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else str(number)


def _dimension(values: Array, name: str) -> dict[str, Any]:
    numbers = floats(values)
    finite = np.isfinite(numbers)
    places = _drawn_steps(numbers, finite)
    low, high = (numbers[finite].min(), numbers[finite].max()) if finite.any() else (np.nan, np.nan)
    with np.errstate(over="ignore"):
        span = float(high - low)
    return {
        "name": name,
        "at": places.tolist(),
        "values": [rounded(v, span) for v in numbers[places]],
        "low": rounded(low, span),
        "high": rounded(high, span),
        "unfinite": int((~finite).sum()),
    }


def _drawn_steps(values: Array, finite: Array) -> Array:
    """Return the steps to draw: those of the lowest and highest value in each of 100 equal parts.

    Notes:
        If a part has no finite value, a non-finite step represents it: the line has a gap there.
    """
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.arange(POINTS // 2 + 1) * len(values) // (POINTS // 2)
    low = np.where(finite, values, np.inf)
    high = np.where(finite, values, -np.inf)
    steps = set()
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        steps.update(
            {start + int(low[start:stop].argmin()), start + int(high[start:stop].argmax())}
        )
    return np.array(sorted(steps))


SIDE = 160
FRAMES = 6
# each drawn pixel averages at most this many pixels a side; larger images are subsampled first
_STRIDE = 10
_MAX_PNG_BYTES = 6_000  # a larger PNG becomes a JPEG


def image(value: object, *, flip: bool = False) -> dict[str, Any]:
    """Return the preview of an image.

    Shapes:
        value: number (H, W), (H, W, 1 to 4) or (3, H, W)

    Args:
        flip: the first row is the lowest one.

    Raises:
        NotDrawableError: it has no pixel, or the shape is another one.
    """
    pixels, notes = _pixels(numeric(value), flip=flip)
    height, width = pixels.shape[:2]
    return {
        "kind": "image",
        "url": data_url(pixels),
        "width": width,
        "height": height,
        "about": f"Image: {'; '.join(notes)}.",
    }


def film(value: object, *, flip: bool = False, fps: float | None = None) -> dict[str, Any]:
    """Return six frames of a film.

    Shapes:
        value: number (T, H, W) or (T, H, W, C)

    Args:
        flip: the first row of each frame is the lowest one.
        fps: steps per second; None if unknown.

    Raises:
        NotDrawableError: it has no frame, or the shape is another one.
    """
    frames = numeric(value)
    if frames.ndim not in {3, 4} or not len(frames):
        msg = f"has shape {list(frames.shape)}; films are [T, H, W, C] with a frame and more"
        raise NotDrawableError(msg)
    places = np.unique(
        np.linspace(0, len(frames) - 1, min(FRAMES, len(frames))).round().astype(np.int64)
    ).tolist()
    drawn_frames = [_pixels(frames[place], flip=flip) for place in places]
    height, width = drawn_frames[0][0].shape[:2]
    about = [f"{len(drawn_frames)} of {len(frames):,} frames", *drawn_frames[0][1]]
    if fps:
        about.insert(1, f"{number_text(len(frames) / fps)} s")
    return {
        "kind": "film",
        "of": len(frames),
        "fps": fps,
        "width": width,
        "height": height,
        "frames": [
            {"at": place, "url": data_url(pixels)}
            for place, (pixels, _) in zip(places, drawn_frames, strict=True)
        ],
        "about": f"Film: {'; '.join(about)}.",
    }


def _pixels(values: Array, *, flip: bool) -> tuple[Array, list[str]]:
    """Return uint8 (h, w, 1 or 3) of at most 160 a side, and notes on the image."""
    shape = list(values.shape)
    if values.ndim == 2:
        values = values[..., None]
    elif values.ndim == 3 and values.shape[0] in {1, 3} and values.shape[2] not in {1, 2, 3, 4}:
        values = values.transpose(1, 2, 0)
    if values.ndim != 3 or values.shape[2] not in {1, 2, 3, 4} or not values.size:
        msg = f"has shape {shape}; images are [H, W] or [H, W, 1 to 4], not empty"
        raise NotDrawableError(msg)
    notes = [f"{values.shape[1]:,} x {values.shape[0]:,} pixels"]
    values = values[..., : 3 if values.shape[2] >= 3 else 1]  # without an alpha channel
    if flip:
        values = values[::-1]
        notes.append("stored bottom row first, shown upright")
    step = max(1, math.ceil(max(values.shape[:2]) / (SIDE * _STRIDE)))
    part = values[::step, ::step]
    low, high = _black_and_white(part, notes)
    levels = floats(part)
    bad = ~np.isfinite(levels)
    if bad.any():
        notes.append(f"{bad.mean():.2%} of the values not finite, drawn black")
    with np.errstate(over="ignore"):
        share = np.clip(
            (np.where(bad, low, levels) / 2 - low / 2) / max(high / 2 - low / 2, 1e-300), 0, 1
        )
    small = _downscaled(share * 255)
    return np.rint(small).astype(np.uint8), notes


def _black_and_white(values: Array, notes: list[str]) -> tuple[float, float]:
    """Return the values that are drawn black and white."""
    if values.dtype == np.uint8:
        return 0.0, 255.0
    if values.dtype.kind == "b":
        return 0.0, 1.0
    levels = floats(values)
    finite_levels = levels[np.isfinite(levels)]
    if not finite_levels.size:
        msg = "has no finite pixel"
        raise NotDrawableError(msg)
    low = float(finite_levels.min())
    high = float(finite_levels.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return 0.0, 1.0
    notes.append(f"black is {number_text(low)}, white {number_text(high)}")
    return low, high


def _downscaled(values: Array) -> Array:
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


# -------------------------------------------------------------------------------------------- files


def data_url(pixels: Array) -> str:
    """Return an image as a data URL: a PNG, or a JPEG if the PNG is large and Pillow is present."""
    data = png(pixels)
    if len(data) > _MAX_PNG_BYTES:
        try:
            pillow = require("PIL.Image", "images")
        except MissingDependencyError:
            return _url("png", data)
        file = io.BytesIO()
        pillow.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).save(
            file, "JPEG", quality=75
        )
        return _url("jpeg", file.getvalue())
    return _url("png", data)


def _url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def png(pixels: Array) -> bytes:
    """Return uint8 (h, w, 1 or 3) as the bytes of a PNG file."""
    height, width, channels = pixels.shape
    # each row begins with its filter type: 0, none
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# ---------------------------------------------------------------------------------- numbers and text


def numeric(value: object) -> Array:
    """Return an array of numbers unchanged.

    Raises:
        NotDrawableError: the value is not one.
    """
    if not isinstance(value, np.ndarray):
        msg = f"holds {type(value).__name__}, no array of numbers"
        raise NotDrawableError(msg)
    if value.dtype.kind not in "biuf":
        msg = f"holds values of type {value.dtype}, no plain numbers"
        raise NotDrawableError(msg)
    return value


def floats(values: Array) -> Array:
    """Return the values as float64; values out of range become infinite."""
    with np.errstate(all="ignore"):
        return np.asarray(values, dtype=np.float64)


_MIX = np.uint64(0x9E3779B97F4A7C15)


def spread_indices(count: int, most: int) -> Array:
    """Return at most `most` of `count` indices: int64, ascending, deterministic.

    Notes:
        One index from each of `most` equal parts, at a pseudo-random place within it: an even step
        would draw stripes where points lie in rows.
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    number = np.arange(most + 1, dtype=np.int64)
    edges = number * count // most
    sizes = np.diff(edges)
    # a multiplicative hash: the product wraps around
    mixed = ((number[:-1].astype(np.uint64) + np.uint64(1)) * _MIX) >> np.uint64(33)
    return edges[:-1] + mixed.astype(np.int64) % sizes


def rounded(value: float, span: float = 0.0) -> float | None:
    """Return a number with five significant digits; None for one that JSON cannot hold.

    Args:
        span: the range that it is drawn over; a much larger number keeps more digits, so that the
            range has five.
    """
    if not math.isfinite(value):
        return None
    digits = 5
    if 0 < span < abs(value):  # for example a place far from the origin, or a timestamp
        digits = min(17, digits + math.ceil(math.log10(abs(value)) - math.log10(span)))
    near = float(f"{value:.{digits}g}")
    # rounding the largest floats up would give infinity
    return near if math.isfinite(near) else float(value)


def base64_of(values: Array) -> str:
    """Return the bytes of an array, little-endian, row by row."""
    return base64.b64encode(
        np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
    ).decode()


def number_text(value: float) -> str:
    """Return a number as text with four significant digits."""
    return f"{value:.4g}"


def truncated_text(text: str, most: int) -> tuple[str, int]:
    """Return the first `most` characters, encodable as UTF-8, and the number of omitted ones."""
    prefix = text[:most].encode("utf-8", "backslashreplace").decode()
    return prefix[:most], max(0, len(text) - most)
