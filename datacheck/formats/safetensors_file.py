"""Files of safetensors: each tensor under its name.

The header (JSON behind its length) is parsed here; the bytes of the tensors are read on access, or
mapped. bfloat16 becomes float32, which represents it exactly. The texts under "__metadata__" are no
values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    CountedContainer,
    check_bytes,
    check_keys,
    check_names,
    check_shape,
    stored,
    wrap_errors,
)
from datacheck.formats.parsed import parse_json
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_LENGTH = 8  # bytes of the header's length
_HEADER_BYTES = 100_000_000  # the format's own limit
_METADATA = "__metadata__"
_BRAIN = "BF16"
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    _BRAIN: "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_UNREAD = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "C64", "F4", "F6_E2M3", "F6_E3M2"}


class _Tensor(NamedTuple):
    kind: str
    shape: tuple[int, ...]
    start: int  # in the file
    stop: int


class _Tensors(CountedContainer):
    counted = "tensors"

    def __init__(self, path: AnyPath, tensors: Mapping[str, _Tensor]) -> None:
        self._path = path
        self._tensors = tensors
        self._known = len(tensors)

    def names(self) -> list[str]:
        return sorted(self._tensors)

    def read(self, name: str) -> Array:
        tensor = self._readable(name)
        return self._rows(tensor, tensor.start, tensor.shape)

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        tensor = self._readable(name)
        return tensor.shape, "<f4" if tensor.kind == _BRAIN else _DTYPES[tensor.kind]

    def sliced(self, name: str) -> int | None:
        shape = self._tensors[name].shape
        return shape[0] if shape else None

    def read_rows(self, name: str, start: int, stop: int) -> Array:
        tensor = self._readable(name)
        if not tensor.shape:
            return self.read(name)[start:stop]
        count = max(0, min(stop, tensor.shape[0]) - start)
        width = math.prod(tensor.shape[1:]) * np.dtype(_DTYPES[tensor.kind]).itemsize
        return self._rows(tensor, tensor.start + start * width, (count, *tensor.shape[1:]))

    def _readable(self, name: str) -> _Tensor:
        tensor = self._tensors[name]
        if tensor.kind in _UNREAD:
            msg = f"{name}: values of type {tensor.kind} are not read"
            raise FormatError(msg)
        return tensor

    def _rows(self, tensor: _Tensor, start: int, shape: tuple[int, ...]) -> Array:
        dtype = np.dtype(_DTYPES[tensor.kind])
        check_bytes(math.prod(shape) * dtype.itemsize, "a tensor")
        values = stored(self._path, dtype, shape, start)
        if tensor.kind != _BRAIN:
            return values
        wide = values.astype("<u4")
        wide <<= 16
        return wide.view("<f4")


def _open(path: AnyPath, hint: Hint) -> _Tensors:
    del hint
    size = path.stat().st_size
    with wrap_errors("the file cannot be read"), path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, _HEADER_BYTES):
            msg = f"not a safetensors file: a header of {length:,} bytes in a file of {size:,}"
            raise FormatError(msg)
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        msg = "not a safetensors file: its header is no mapping"
        raise FormatError(msg)
    entries = {name: entry for name, entry in header.items() if name != _METADATA}
    check_keys(len(entries))
    check_names(entries)
    base = _LENGTH + length
    tensors = {name: _tensor(name, entry, base) for name, entry in entries.items()}
    _check_layout(tensors, base, size)
    return _Tensors(path, tensors)


def _tensor(name: str, entry: Any, base: int) -> _Tensor:
    """Return the tensor of one entry of the header; `base` is where the bytes of all begin."""
    fields = entry if isinstance(entry, dict) else {}
    kind, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (
        isinstance(kind, str)
        and (kind in _DTYPES or kind in _UNREAD)
        and _are_counts(shape)
        and _are_counts(offsets)
        and len(offsets) == 2
        and offsets[0] <= offsets[1]
    ):
        msg = f"{name}: no tensor of safetensors: {str(entry)[:100]}"
        raise FormatError(msg)
    start, stop = offsets
    if kind in _DTYPES:
        check_shape(tuple(shape))
        nbytes = math.prod(shape) * np.dtype(_DTYPES[kind]).itemsize
        if nbytes != stop - start:
            msg = f"{name}: {kind} {shape} has {nbytes:,} bytes, {stop - start:,} are stored"
            raise FormatError(msg)
    return _Tensor(kind, tuple(shape), base + start, base + stop)


def _are_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_layout(tensors: Mapping[str, _Tensor], base: int, size: int) -> None:
    """Check that the tensors lie one behind the other and fill the file, as the format demands.

    Raises:
        FormatError: two share bytes, bytes belong to none, or the file is cut short.
    """
    end = base
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if tensor.start != end:
            msg = f"{name} starts at byte {tensor.start:,}; the tensor before ends at {end:,}"
            raise FormatError(msg)
        end = tensor.stop
    if end != size:
        how = "the file is cut short" if end > size else "the rest belongs to no tensor"
        msg = f"the tensors end at byte {end:,}, the file at {size:,}: {how}"
        raise FormatError(msg)


SAFETENSORS = Format("safetensors", (".safetensors",), _open)
