"""The encodings of MDS columns: from the stored bytes of one value to an array, text or JSON.

Each column of an MDS shard names one encoding. `array_type` parses those of arrays and numbers,
such as ``ndarray:float32:4096,6`` or ``int16``; `decoder` returns the function that decodes a
value. A list of pictures and a raw PIL picture have no decoder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import format_of, parse_container
from datacheck.formats.limits import text
from datacheck.formats.parsed import from_json, parse_json
from datacheck.model.sample import Array

Decoder = Callable[[bytes], Any]

# The byte by which a value of encoding ``ndarray`` states its dtype, as Streaming writes it.
_DTYPE_CODES: dict[int, np.dtype[Any]] = {
    8: np.dtype("u1"),
    9: np.dtype("i1"),
    16: np.dtype("<u2"),
    17: np.dtype("<i2"),
    18: np.dtype("<f2"),
    32: np.dtype("<u4"),
    33: np.dtype("<i4"),
    34: np.dtype("<f4"),
    64: np.dtype("<u8"),
    65: np.dtype("<i8"),
    66: np.dtype("<f8"),
}
_NUMBERS = {dtype.name: dtype for dtype in _DTYPE_CODES.values()} | {"int": np.dtype("<i8")}
_NDARRAY = re.compile(r"ndarray(?::(?P<dtype>\w+)(?::(?P<shape>\d{1,12}(?:,\d{1,12})*))?)?")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """What an encoding declares about its arrays.

    Args:
        dtype: None: each value starts with the code of its dtype.
        shape: None: each value states its shape, before the numbers.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None

    @property
    def value_bytes(self) -> int | None:
        """The size of each value; None if it varies."""
        if self.dtype is None or self.shape is None:
            return None
        return math.prod(self.shape) * self.dtype.itemsize

    def decode(self, data: bytes) -> Array:
        """Return the array that `data` stores.

        Raises:
            FormatError: dtype, shape and number of bytes do not fit together.
        """
        dtype, shape, start = self.dtype, self.shape, 0
        if dtype is None:
            dtype = _stated_dtype(data)
            start = 1
        if shape is None:
            shape, start = _stated_shape(data, start)
        needed = math.prod(shape) * dtype.itemsize
        stored = len(data) - start
        if needed != stored:
            msg = f"shape {list(shape)} of {dtype} needs {needed:,} bytes, found {stored:,}"
            raise FormatError(msg)
        if stored == 0:  # np.frombuffer refuses an empty buffer
            return np.empty(shape, dtype)
        return np.frombuffer(data, dtype, offset=start).reshape(shape)


def _stated_dtype(data: bytes) -> np.dtype[Any]:
    if not data:
        msg = "an array without the code of its dtype"
        raise FormatError(msg)
    dtype = _DTYPE_CODES.get(data[0])
    if dtype is None:
        msg = f"the code {data[0]} of a dtype is not known"
        raise FormatError(msg)
    return dtype


def _stated_shape(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the shape that a value states from byte `start` on, and where its numbers start.

    The first byte holds the number of axes, and in its two low bits the width of their sizes.
    """
    head = data[start : start + 1]
    axes = head[0] >> 2 if head else 0
    width = 1 << (head[0] & 3) if head else 1
    stop = start + 1 + axes * width
    if stop > len(data):
        msg = "an array whose shape is cut short"
        raise FormatError(msg)
    sizes = np.frombuffer(data[start + 1 : stop], f"<u{width}")
    return tuple(sizes.tolist()), stop


def array_type(encoding: str) -> ArrayType | None:
    """Return what an encoding of arrays or numbers declares; None for any other encoding.

    Raises:
        FormatError: the encoding begins like one of arrays, but is not known.
    """
    if encoding in _NUMBERS:
        return ArrayType(_NUMBERS[encoding], ())
    if not encoding.startswith("ndarray"):
        return None
    match = _NDARRAY.fullmatch(encoding)
    if match is None or (match["dtype"] is not None and match["dtype"] not in _NUMBERS):
        msg = f"the encoding {encoding[:60]!r} is not known"
        raise FormatError(msg)
    dtype = None if match["dtype"] is None else _NUMBERS[match["dtype"]]
    shape = None if match["shape"] is None else tuple(map(int, match["shape"].split(",")))
    return ArrayType(dtype, shape)


def decoder(encoding: str) -> Decoder | None:
    """Return the function that decodes values of an encoding; None if they cannot be read.

    Raises:
        FormatError: see `array_type`.
    """
    declared = array_type(encoding)
    return _DECODERS.get(encoding) if declared is None else declared.decode


def _bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def _json(data: bytes) -> Any:
    return from_json(parse_json(data))


# Possessive quantifiers (++): a million digits before a letter would otherwise take a day.
_INTEGER = re.compile(r"-?\d{1,19}")
_FLOAT = re.compile(r"-?\d++(?:\.\d*+)?(?:e[-+]?\d++)?|-?inf|nan")


def _integer(data: bytes) -> Array:
    return np.asarray(int(_number_text(_INTEGER, data)), "<i8")


def _float(data: bytes) -> Array:
    return np.asarray(float(_number_text(_FLOAT, data)), "<f8")


def _number_text(pattern: re.Pattern[str], data: bytes) -> str:
    number = text(data)
    if not pattern.fullmatch(number):
        msg = f"{number[:40]!r} where a number is expected"
        raise FormatError(msg)
    return number


# What the formats of pictures and pickles call the value of a file that holds one.
_SINGLE_NAMES = frozenset({"image", "array", "records", "value"})


def _file_value(suffix: str, data: bytes) -> Any:
    """Return the one value of a picture or a pickle, whose bytes are a whole file."""
    file_format = format_of(suffix)
    assert file_format is not None
    with parse_container(file_format, data) as container:
        names = container.names()
        if len(names) != 1 or names[0] not in _SINGLE_NAMES:
            msg = f"a pickled mapping of {len(names)} values; write each as a column"
            raise FormatError(msg)
        return container.read(names[0])


_DECODERS: dict[str, Decoder] = {
    "bytes": _bytes,
    "str": text,
    "str_decimal": text,
    "json": _json,
    "str_int": _integer,
    "str_float": _float,
    "jpeg": partial(_file_value, ".jpg"),
    "png": partial(_file_value, ".png"),
    "pkl": partial(_file_value, ".pkl"),
}
