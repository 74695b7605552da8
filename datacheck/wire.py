"""Values between processes: JSON with the arrays beside it. Never pickle: children parse hostile files."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

Json = Any
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
            arrays.append(np.ascontiguousarray(item))
            return {mark: len(arrays) - 1, "dtype": item.dtype.str, "shape": list(item.shape)}
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


def decode(frame: bytes | bytearray) -> Json:
    """Return the value of a frame made by `encode`; arrays are copies, so that the frame can go."""
    head_size, _ = FRAME.unpack_from(frame)
    view = memoryview(frame)[FRAME.size :]
    place = head_size
    mark, _, text = str(view[:head_size], "utf-8").partition("\n")

    def hook(item: dict[str, Any]) -> Any:
        nonlocal place
        if mark not in item:
            return item
        dtype = np.dtype(item["dtype"])
        count = int(np.prod(item["shape"], dtype=np.int64))
        array = np.frombuffer(view, dtype=dtype, count=count, offset=place).reshape(item["shape"]).copy()
        place += count * dtype.itemsize
        return array

    return json.loads(text, object_hook=hook)
