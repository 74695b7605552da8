"""Number helpers of previews: subsampling, rounding, encoding for JSON."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MIX = np.uint64(0x9E3779B97F4A7C15)


class NotDrawableError(Exception):
    """There is nothing to draw; the message is the end of a sentence about the field."""


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
