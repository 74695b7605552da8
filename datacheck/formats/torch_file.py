"""Files of torch.save: a zip of a pickle and its storages, or the format before PyTorch 1.6.

The older format is pickles and storages one after another. The pickle goes through the unpickler of
`pickle_safe`, nothing of PyTorch is imported or run, and a view of a storage is checked against its
bounds before it is made. Values are those of the pickle; a lone tensor is "array".
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    DEPTH,
    TEXT_BYTES,
    Values,
    check_bytes,
    check_expansion,
    wrap_errors,
)
from datacheck.formats.pickle_safe import ExtraGlobals, call, load, record_of, unpickle, values_of
from datacheck.formats.zip_extents import check_extents
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_ZIP = b"PK\x03\x04"
_PICKLE = "/data.pkl"
# of files written before PyTorch 1.6
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_TYPES = {
    "Double": "f8",
    "Float": "f4",
    "Half": "f2",
    "BFloat16": "bf",
    "Long": "i8",
    "Int": "i4",
    "Short": "i2",
    "Char": "i1",
    "Byte": "u1",
    "Bool": "?",
    "ComplexFloat": "c8",
    "ComplexDouble": "c16",
}
_DTYPES = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    "bfloat16": "bf",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "bool": "?",
    "complex64": "c8",
    "complex128": "c16",
}
_UNTYPED = "u1"


class _Storage:
    """A flat array of numbers that tensors are views of; no pickle can change it."""

    __slots__ = ("_wide", "code", "data", "order")

    def __init__(self, data: bytes, code: str, order: str = "<") -> None:
        self.data, self.code, self.order = data, code, order
        self._wide: Array | None = None  # bfloat16 as float32, shared by all views

    def __setstate__(self, state: Any) -> None:
        msg = "a pickle that changes a storage"
        raise FormatError(msg)

    def numbers(self, code: str) -> Array:
        """Return the numbers; bfloat16 as float32, which represents it exactly."""
        if code == "bf":
            if self._wide is None:
                high = np.frombuffer(self.data, f"{self.order}u2").astype("<u4")
                high <<= 16
                self._wide = high.view("<f4")
            return self._wide
        return np.frombuffer(self.data, code if code == "?" else f"{self.order}{code}")


def _are_sizes(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= DEPTH
        and all(type(n) is int and n >= 0 for n in value)
    )


def _view(storage: Any, offset: Any, sizes: Any, strides: Any, code: str, lazy: Any) -> Any:
    """Return a tensor.

    Args:
        storage, offset, sizes, strides: the storage, and the view of it.
        code: code of the dtype.
        lazy: operations still to be applied: {"neg": True}, {"conj": True}; None for none.
    """
    if not isinstance(storage, _Storage) or not all(map(_are_sizes, ((offset,), sizes, strides))):
        msg = f"a tensor of shape {str(sizes)[:60]} with strides {str(strides)[:60]}"
        raise FormatError(msg)
    flat = storage.numbers(code)
    last_index = offset + sum(
        (size - 1) * stride for size, stride in zip(sizes, strides, strict=False)
    )
    if len(sizes) != len(strides) or (0 not in sizes and last_index >= len(flat)):
        msg = (
            f"a tensor of shape {list(sizes)}, strides {list(strides)}, offset {offset} in "
            f"{len(flat):,} numbers"
        )
        raise FormatError(msg)
    if 0 in sizes:
        return record_of(np.empty(sizes, flat.dtype))
    check_expansion(math.prod(sizes) * flat.itemsize, len(storage.data), "a tensor")
    steps = [stride * flat.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(flat[offset:], sizes, steps, writeable=False)
    return record_of(_materialized(view, lazy or {}))


def _materialized(values: Array, lazy: Any) -> Array:
    """Apply the operations that PyTorch deferred.

    The imaginary part of a conjugate, for example, is stored as a negated view.
    """
    if (
        not isinstance(lazy, dict)
        or not lazy.keys() <= {"neg", "conj"}
        or (lazy.get("neg") and values.dtype == bool)
    ):
        msg = f"a tensor with more to it: {str(lazy)[:60]}"
        raise FormatError(msg)
    values = np.conj(values) if lazy.get("conj") else values
    return np.negative(values) if lazy.get("neg") else values


def _tensor(
    storage: Any,
    offset: Any,
    sizes: Any,
    strides: Any,
    grad: Any = None,
    hooks: Any = None,
    lazy: Any = None,
) -> Any:
    del grad, hooks
    return _view(storage, offset, sizes, strides, getattr(storage, "code", ""), lazy)


def _typed_tensor(
    storage: Any,
    offset: Any,
    sizes: Any,
    strides: Any,
    grad: Any,
    hooks: Any,
    kind: Any,
    lazy: Any = None,
) -> Any:
    del grad, hooks
    if not isinstance(kind, str) or kind not in _DTYPES:
        msg = f"a tensor of type {str(kind)[:40]}, which is not read"
        raise FormatError(msg)
    return _view(storage, offset, sizes, strides, _DTYPES[kind], lazy)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _size(sizes: Any = ()) -> tuple[Any, ...]:
    return tuple(sizes)


def _device(kind: Any, *_: Any) -> str:
    return str(kind)


_NAMES: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): call(_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): call(_tensor),
    ("torch._utils", "_rebuild_tensor_v3"): call(_typed_tensor),
    ("torch._utils", "_rebuild_parameter"): call(_parameter),
    ("torch", "Size"): call(_size),
    ("torch", "device"): call(_device),
    **{("torch", f"{kind}Storage"): code for kind, code in _TYPES.items()},
    **{("torch", name): name for name in _DTYPES},
    ("torch.storage", "UntypedStorage"): _UNTYPED,
    ("torch", "UntypedStorage"): _UNTYPED,
}


def _storage_loader(read: Callable[[str, str, int], _Storage]) -> Callable[[Any], _Storage]:
    """Return a function from a storage's identifier to the storage.

    An identifier is ("storage", type, key, device, number of elements).
    """
    storages: dict[str, _Storage] = {}

    def stored(pid: Any) -> _Storage:
        plain = (
            isinstance(pid, tuple)
            and len(pid) in {5, 6}
            and pid[0] == "storage"
            and isinstance(pid[2], str)
        )
        plain = (
            plain
            and isinstance(pid[1], str)
            and pid[1] in _TYPES.values()
            and type(pid[4]) is int
            and pid[4] >= 0
        )
        if not plain or any(pid[5:]):
            msg = f"an object outside the pickle that is no storage: {str(pid)[:60]}"
            raise FormatError(msg)
        if pid[2] not in storages:
            storages[pid[2]] = read(pid[2], pid[1], pid[4])
        return storages[pid[2]]

    return stored


def _width(code: str) -> int:
    return 2 if code == "bf" else np.dtype(code).itemsize


def _check_length(key: str, code: str, count: int, nbytes: int) -> None:
    if count * _width(code) != nbytes:
        msg = (
            f"storage {key}: {count:,} numbers of {_width(code)} bytes are declared, {nbytes:,} "
            f"bytes are there"
        )
        raise FormatError(msg)


def _zip_values(archive: zipfile.ZipFile) -> dict[str, Any]:
    members = {info.filename: info for info in archive.infolist()}
    # PyTorch takes the root from the first member, and ignores case in names.
    root = next(iter(members), "").partition("/")[0]
    unique_names = len({name.lower() for name in members}) == len(archive.infolist())
    if (
        not unique_names
        or root + _PICKLE not in members
        or not all(name.startswith(f"{root}/") for name in members)
    ):
        msg = (
            "no file of torch.save: a zip without one data.pkl, with two members of one name, or "
            "with two roots"
        )
        raise FormatError(msg)
    check_bytes(sum(info.file_size for info in archive.infolist()), "the members together")

    def read(name: str) -> bytes:
        info = members.get(f"{root}/{name}")
        if info is None:
            msg = f"{name} is not in the file"
            raise FormatError(msg)
        check_expansion(info.file_size, info.compress_size, name)
        with wrap_errors(name):
            data = archive.read(info)
        if len(data) != info.file_size:
            msg = f"{name}: {info.file_size:,} bytes are declared, {len(data):,} unpacked"
            raise FormatError(msg)
        return data

    order = read("byteorder").strip() if f"{root}/byteorder" in members else b"little"
    if order not in {b"little", b"big"}:
        msg = f"the byte order {order[:20]!r}"
        raise FormatError(msg)

    def storage(key: str, code: str, count: int) -> _Storage:
        data = read(f"data/{key}")
        _check_length(key, code, count, len(data))
        return _Storage(data, code, "<" if order == b"little" else ">")

    pickled = read(_PICKLE[1:])
    check_bytes(len(pickled), "the pickle", TEXT_BYTES)
    loaded = load(io.BytesIO(pickled), ExtraGlobals(_NAMES, _storage_loader(storage)))
    return values_of(loaded, sum(info.file_size for info in members.values()))


def _check_directory(file: IO[bytes], size: int, archive: zipfile.ZipFile) -> None:
    """Refuse a zip whose directory is not where Python looks for it.

    PyTorch follows the offset in the end record instead.

    Raises:
        FormatError: the directory is elsewhere, or bytes follow the end.
    """
    file.seek(max(0, size - _END64 - _LOCATOR - _END))
    tail = file.read(_END64 + _LOCATOR + _END)
    end = tail[-_END:]
    locator = tail[-_END - _LOCATOR : -_END]
    end64 = tail[:_END64]
    count = _number(end, 10, 2)
    directory_start = _number(end, 16, 4)
    directory_end = size - _END
    valid = end[:4] == b"PK\5\6"
    if locator[:4] == b"PK\6\7":
        count, directory_start, directory_end = (
            _number(end64, 32, 8),
            _number(end64, 48, 8),
            directory_end - _LOCATOR - _END64,
        )
        valid &= end64[:4] == b"PK\6\6" and _number(locator, 8, 8) == directory_end
    infos = archive.infolist()
    nbytes = sum(
        _ENTRY + len(info.orig_filename.encode()) + len(info.extra) + len(info.comment)
        for info in infos
    )
    if (
        not valid
        or count != len(infos)
        or directory_start != archive.start_dir
        or directory_start + nbytes != directory_end
    ):
        msg = (
            "its end does not say where the directory of its members is; PyTorch may read other "
            "members"
        )
        raise FormatError(msg)


def _number(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "little")


# sizes of the parts of a zip, in bytes
_END = 22
_LOCATOR = 20
_END64 = 56
_ENTRY = 46


def _legacy_values(data: bytes) -> dict[str, Any]:
    """Return the values of a file from before PyTorch 1.6, with storages after the pickle.

    Notes:
        The pickle is read twice: its declarations of the storages tell where they are.
    """
    stream = io.BytesIO(data)
    if load(stream) != _MAGIC:  # a plain pickle with another suffix
        return unpickle(data)
    version = load(stream)
    system = load(stream)
    if version != _VERSION or not isinstance(system, dict) or not system.get("little_endian", True):
        msg = (
            f"version {str(version)[:20]} of PyTorch's older files, or of another byte order; "
            f"1001 is read"
        )
        raise FormatError(msg)
    start = stream.tell()
    declared: dict[str, tuple[str, int]] = {}
    left = len(data)

    def declare(key: str, code: str, count: int) -> _Storage:
        nonlocal left
        declared[key] = code, count
        left -= _width(code) * count
        check_bytes(len(data) - left, "the storages", len(data))
        return _Storage(bytes(count * _width(code)), code)

    load(stream, ExtraGlobals(_NAMES, _storage_loader(declare)))
    keys = load(stream)
    if (
        not isinstance(keys, list)
        or not all(isinstance(key, str) for key in keys)
        or set(keys) != declared.keys()
    ):
        msg = "the storages that follow are not those that the pickle names"
        raise FormatError(msg)
    storages: dict[str, bytes] = {}
    for key in keys:
        code, count = declared[key]
        written = int.from_bytes(stream.read(8), "little")
        storages[key] = stream.read(count * _width(code))
        _check_length(key, code, written, len(storages[key]))
    if stream.read(1):
        msg = "bytes follow the last storage"
        raise FormatError(msg)

    def storage(key: str, code: str, count: int) -> _Storage:
        _check_length(key, code, count, len(storages[key]))
        return _Storage(storages[key], code)

    stream.seek(start)
    return values_of(load(stream, ExtraGlobals(_NAMES, _storage_loader(storage))), len(data))


def _values(file: IO[bytes], size: int) -> Values:
    head = file.read(len(_ZIP))
    file.seek(0)
    if head == _ZIP:
        with wrap_errors("damaged file of torch.save"), zipfile.ZipFile(file) as archive:
            _check_directory(file, size, archive)
            check_extents(archive)
            return Values(_zip_values(archive))
    check_bytes(size, "the file", TEXT_BYTES)
    return Values(_legacy_values(file.read()))


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    with path.open("rb") as file:
        return _values(file, path.stat().st_size)


def _open_member(data: bytes, hint: Hint) -> Values:
    del hint
    return _values(io.BytesIO(data), len(data))


# .init and .pruned_init: initial states of LIBERO's tasks.
TORCH = Format(
    "torch", (".pt", ".pth", ".ckpt", ".pruned_init", ".init"), _open, member=_open_member
)
