"""Files of safetensors, as its library writes them, and with headers that it refuses."""

from __future__ import annotations

import json
from typing import Any

import torch
from corpus.put import put
from safetensors.torch import save

X = torch.arange(24, dtype=torch.float32).reshape(4, 6)


def file_of(header: Any, data: bytes = bytes(8)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(start: int, stop: int, *, kind: str = "F32", shape: object = (2,)) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, stop]}


def good() -> None:
    tensors = {
        "x": X,
        "obs/brain": X.bfloat16(),
        "half": X.half(),
        "mask": X > 3,
        "count": torch.arange(4),
        "pixels": torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3),
        "none": torch.zeros(0, 3),
        "number": torch.tensor(3.0, dtype=torch.float64),
    }
    put("safetensors/y_state.safetensors", save(tensors, {"task": "lift the cup"}))
    put("safetensors/y_nothing.safetensors", save({}))


def bad() -> None:
    whole = save({"x": X})
    files = {
        "cut": whole[:-4],
        "more": whole + bytes(4),
        "header_cut": whole[:20],
        "length": (1 << 62).to_bytes(8, "little") + whole[8:],
        "short": b"\0\0\0",
        "list": file_of([1, 2]),
        "json": file_of(b"{'x': 1}"),
        "entry": file_of({"x": [0, 8]}),
        "kind": file_of({"x": tensor(0, 8, kind="I128")}),
        "shape": file_of({"x": tensor(0, 8, shape=[-2])}),
        "size": file_of({"x": tensor(0, 8, shape=[3])}),
        "huge": file_of({"x": tensor(0, 8, shape=[1 << 40, 1 << 40])}),
        "wide": file_of({"x": tensor(0, 0, shape=[0, 1 << 60])}, b""),
        "gap": file_of({"x": tensor(0, 8), "y": tensor(12, 20)}, bytes(20)),
        "shared": file_of({"x": tensor(0, 8), "y": tensor(0, 8)}),
        "backwards": file_of({"x": tensor(8, 0)}),
        "float8": save({"x": X.to(torch.float8_e4m3fn)}),
        "name": file_of({"x" * 2_000: tensor(0, 8)}),
    }
    for name, data in files.items():
        put(f"safetensors/n_{name}.safetensors", data)
