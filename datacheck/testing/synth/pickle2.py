"""Pickles as Python 2 wrote them (protocol 2, byte strings, NumPy 1 names): the encoding of the HO3D annotations.

Python 3 cannot write these: its strings are Unicode opcodes. Only what an annotation holds is covered.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np


def dumps(record: Mapping[str, Any]) -> bytes:
    """Return the pickle of a dict of arrays, byte strings, integers, None, and lists of these."""
    items = b"".join(_text(key) + _value(value) for key, value in record.items())
    return b"\x80\x02}(" + items + b"u."


def _text(text: str) -> bytes:
    data = text.encode("latin1")
    return (b"U" + bytes([len(data)]) if len(data) < 256 else b"T" + struct.pack("<i", len(data))) + data


def _value(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_value, value)) + b"e"
    return _array(value)


def _integer(value: int) -> bytes:
    return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)


def _tuple(values: tuple[int, ...]) -> bytes:
    parts = b"".join(map(_integer, values))
    return b"(" + parts + b"t" if not 1 <= len(values) <= 3 else parts + (b"\x85", b"\x86", b"\x87")[len(values) - 1]


def _array(array: np.ndarray[Any, Any]) -> bytes:
    kind = array.dtype.str
    order = _text("|" if kind[0] == "|" else "<")
    dtype = b"cnumpy\ndtype\n" + _text(kind[1:]) + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    data = np.ascontiguousarray(array).tobytes()
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return made + b"(K\x01" + _tuple(array.shape) + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"tb"
