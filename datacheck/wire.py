"""Values between processes: JSON with the arrays beside it. Never pickle: children parse hostile files."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

Json = Any
FRAME = struct.Struct("<QQ")  # bytes of JSON, bytes of arrays


def encode(value: Json) -> bytes:
    """Return a frame: JSON with the arrays taken out, then their bytes."""
    arrays: list[np.ndarray[Any, Any]] = []

    def default(item: object) -> object:
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            arrays.append(np.ascontiguousarray(item))
            return {"$array": len(arrays) - 1, "dtype": item.dtype.str, "shape": list(item.shape)}
        if isinstance(item, np.generic):
            return item.item()
        msg = f"{type(item).__name__} cannot be sent between processes"
        raise TypeError(msg)

    head = json.dumps(value, default=default).encode()
    body = b"".join(a.tobytes() for a in arrays)
    return FRAME.pack(len(head), len(body)) + head + body


def decode(frame: bytes) -> Json:
    """Return the value of a frame made by `encode`; arrays are writable copies."""
    head_size, body_size = FRAME.unpack_from(frame)
    head = frame[FRAME.size : FRAME.size + head_size]
    body = bytearray(frame[FRAME.size + head_size : FRAME.size + head_size + body_size])
    place = 0

    def hook(item: dict[str, Any]) -> Any:
        nonlocal place
        if "$array" not in item:
            return item
        dtype = np.dtype(item["dtype"])
        count = int(np.prod(item["shape"], dtype=np.int64))
        array = np.frombuffer(body, dtype=dtype, count=count, offset=place).reshape(item["shape"])
        place += count * dtype.itemsize
        return array

    return json.loads(head, object_hook=hook)
