"""Values between processes: JSON with the arrays beside it. Never pickle: children parse hostile files."""

from __future__ import annotations

import json
import struct
from math import prod
from typing import Any, NamedTuple

import numpy as np

Json = Any
_MANY = 64  # rows
_LONGEST = 40  # letters of a dtype's name
FRAME = struct.Struct("<QQ")  # bytes of JSON, bytes of arrays


def encode(value: Json) -> list[bytes | memoryview]:
    """Return a frame in pieces: JSON with the arrays taken out, then their bytes.

    Notes:
        The first line names the key that stands for an array: one that no dict of `value` has.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    mark = "$array"

    def default(item: object) -> object:
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            same = _alike(item)
            arrays.append(np.ascontiguousarray(item[:1] if same else item))
            said = {mark: len(arrays) - 1, "dtype": item.dtype.str, "shape": list(item.shape)}
            return said | {"alike": True} if same else said
        if isinstance(item, np.generic):
            return item.item()
        msg = f"{type(item).__name__} cannot be sent between processes"
        raise TypeError(msg)

    text = json.dumps(value, default=default)
    while text.count(f'"{mark}"') != len(arrays):  # names come from the data, too
        mark += "$"
        arrays.clear()
        text = json.dumps(value, default=default)
    head = f"{mark}\n{text}".encode()
    body = [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    return [FRAME.pack(len(head), sum(map(len, body))), head, *body]


def _alike(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether all of many rows are the same, bit by bit."""
    if array.ndim == 0 or len(array) < _MANY or array.dtype.kind not in "biuf" or not array[0].size:
        return False
    rows = array.view(f"u{array.itemsize}") if array.dtype.kind == "f" and array.itemsize <= 8 else array
    return bool((rows[:_MANY] == rows[0]).all() and (rows == rows[0]).all())


class TooLargeError(ValueError):
    """A frame that takes more memory than it may."""


class Room(NamedTuple):
    """How large a frame may be.

    Args:
        text: bytes of JSON.
        values: in the JSON: each takes up to 72 bytes of memory.
        arrays: bytes of arrays.
        alike: bytes of all arrays of which one row is sent for all, were each row sent.
    """

    text: int
    values: int
    arrays: int
    alike: int

    def check_head(self, frame: bytes | bytearray) -> None:
        """Refuse a frame by its first bytes.

        Raises:
            TooLargeError: it says that it has more bytes.
        """
        for size, most, what in zip(
            FRAME.unpack_from(frame), (self.text, self.arrays), ("text", "arrays"), strict=True
        ):
            if size > most:
                msg = f"{size:,} bytes of {what}; at most {most:,} are read"
                raise TooLargeError(msg)

    def check_text(self, frame: bytes | bytearray, end: int) -> None:
        """Refuse a frame whose JSON, which ends at `end`, has too many values.

        Raises:
            TooLargeError: it has more commas and brackets than that.
        """
        values = sum(frame.count(sign, FRAME.size, end) for sign in b",[{")
        if values > self.values:
            msg = f"about {values:,} values; at most {self.values:,} are read"
            raise TooLargeError(msg)

    def check_alike(self, nbytes: int) -> None:
        """Refuse arrays of which one row stands for all, and that have so many bytes together.

        Raises:
            TooLargeError: they are too many.
        """
        if nbytes > self.alike:
            msg = f"{nbytes:,} bytes of arrays whose rows are alike; at most {self.alike:,} are read"
            raise TooLargeError(msg)


ANY = Room(2**63, 2**63, 2**63, 2**200)


def decode(frame: bytes | bytearray, most: int | None = None, room: Room = ANY) -> Json:
    """Return the value of a frame made by `encode`.

    Args:
        frame: of another process, or of a file.
        most: rows that an array may have of which one is sent for all; None: any number.
        room: how large the frame may be.

    Raises:
        ValueError: an array does not lie within the frame, has more such rows, or a dtype that `encode` never names.
        TooLargeError: the frame has no room.
        Exception: others, of a frame that `encode` has not made.

    Notes:
        Arrays are copies, so that the frame can go. One of many rows that are all the same holds one of them and cannot
        be written to: of a million lines most columns say nothing, and eight bytes each of that add up.
    """
    room.check_head(frame)
    head_size, size = FRAME.unpack_from(frame)
    room.check_text(frame, FRAME.size + head_size)
    if head_size + size != len(frame) - FRAME.size:
        msg = f"a frame of {len(frame):,} bytes that says {head_size:,} and {size:,}"
        raise ValueError(msg)
    view = memoryview(frame)[FRAME.size :]
    place, spread = head_size, 0
    mark, _, text = str(view[:head_size], "utf-8").partition("\n")

    def hook(item: dict[str, Any]) -> Any:
        nonlocal place, spread
        if mark not in item:
            return item
        dtype = _dtype(item["dtype"])
        alike = "alike" in item
        shape = [1, *item["shape"][1:]] if alike else item["shape"]
        count = prod(shape)
        if min(item["shape"], default=0) < 0 or count * dtype.itemsize > len(view) - place:
            msg = f"an array of {item['shape']} {dtype.str} in {len(view) - place:,} bytes"
            raise ValueError(msg)
        if alike and most is not None and item["shape"][0] > most:
            msg = f"{item['shape'][0]:,} rows that are alike; at most {most:,} are read"
            raise ValueError(msg)
        if alike:
            spread += item["shape"][0] * max(1, count * dtype.itemsize)
            room.check_alike(spread)
        array = np.frombuffer(view, dtype=dtype, count=count, offset=place).reshape(shape).copy()
        place += count * dtype.itemsize
        return np.broadcast_to(array, item["shape"]) if alike else array

    return json.loads(text, object_hook=hook)


def _dtype(name: Any) -> np.dtype[Any]:
    """Return the dtype that `encode` calls so; NumPy knows many other names, some of which take any memory."""
    dtype = np.dtype(str(name)[:_LONGEST])
    if dtype.str != name:
        msg = f"an array of dtype {dtype.str}"
        raise ValueError(msg)
    return dtype
