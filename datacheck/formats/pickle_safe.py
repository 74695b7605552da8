"""Pickles (HO3D's meta files, SceneLeap's saved dicts), read without running their code.

The unpickler may call a handful of functions, all defined below, and each returns a plain record of
this module: NumPy code never gets an unchecked argument from the file. A pickle that names anything
else is refused. joblib writes the numbers of each array after its wrapper, in the middle of the
pickle; they are read from there.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import math
import operator
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.limits import (
    DEPTH,
    FIELDS,
    FLOOR_BYTES,
    TEXT_BYTES,
    check_bytes,
    check_keys,
    expand,
    wrap_errors,
)
from datacheck.formats.parsed import from_json, from_python
from datacheck.model.sample import Array
from datacheck.workers import budget

_NDARRAY = "ndarray"  # stands for the name numpy.ndarray: a mark that cannot be called


_PLAIN_FLAGS = (False, True)  # aligned: no; a copy: yes


class _Dtype:
    """A pickled dtype; `value` is complete once BUILD has set its byte order and members."""

    __slots__ = ("built", "used", "value")

    def __init__(self, name: Any, *flags: Any) -> None:
        if len(flags) > len(_PLAIN_FLAGS) or any(map(operator.ne, flags, _PLAIN_FLAGS)):
            msg = f"a pickled dtype with the flags {str(flags)[:40]}, which NumPy does not write"
            raise FormatError(msg)
        self.built = False
        self.used = False
        if not isinstance(name, str) or name[:1] not in tuple("biufcSUVOMm?"):
            msg = f"pickled dtype {str(name)[:40]!r} is not read"
            raise FormatError(msg)
        kind = name[0]
        if kind == "O":
            name = "O"
        elif kind in "Mm":  # dates and durations as their counts
            name = "i8"
        self.value: np.dtype[Any] = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        if self.built or self.used:  # NumPy would then swap the bytes of existing arrays
            msg = "a pickled dtype whose state is set twice, or after an array used it"
            raise FormatError(msg)
        self.built = True
        _, order, _, names, members, size = state[:6]
        if names:
            named = {str(name): members[name] for name in names}
            spec = {
                "names": list(named),
                "formats": [member[0].value for member in named.values()],
                "offsets": [int(member[1]) for member in named.values()],
                "itemsize": int(size),
            }
            self.value = np.dtype(spec)  # type: ignore[call-overload]
        elif order in {"<", ">"}:
            self.value = self.value.newbyteorder(order)


class _ArrayRecord:
    """A pickled array: checked shape, dtype and data."""

    __slots__ = ("axes", "built", "objects", "value")
    axes: int  # of an object array
    built: bool
    value: Array
    objects: Any  # flat list for an object array, or the one object of an array without axes

    def __new__(cls) -> Self:
        # Pickles create the records of joblib without calling __init__.
        record = super().__new__(cls)
        record.axes = 0
        record.built = False
        record.value = np.empty(0)
        record.objects = None
        return record

    def __setstate__(self, state: Any) -> None:
        if self.built or len(state) not in {4, 5}:
            msg = (
                f"a pickled array whose state is set twice, or that has {len(state)} parts; "
                f"NumPy writes 5"
            )
            raise FormatError(msg)
        self.built = True
        shape, dtype, fortran, data = state[-4:]
        dtype.used = True
        if dtype.value.hasobject and isinstance(data, list):
            if math.prod(_shape(shape)) != len(data):
                msg = f"a pickled object array of shape {shape} holds {len(data)} objects"
                raise FormatError(msg)
            self.axes = len(shape)
            # A copy, as in NumPy: later changes to the list do not affect the array.
            self.objects = list(data) if shape else data[0]
        else:
            self.value = _array(data, dtype, shape, "F" if fortran else "C")


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(n) is int and n >= 0 for n in sizes) or len(sizes) > DEPTH:
        msg = f"pickled array of shape {str(shape)[:60]}"
        raise FormatError(msg)
    return sizes


def _array(data: Any, dtype: Any, shape: Any, order: Any = "C") -> Array:
    sizes = _shape(shape)
    kind = dtype.value
    dtype.used = True
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    if kind.hasobject or kind.itemsize == 0 or math.prod(sizes) * kind.itemsize != len(raw):
        msg = f"a pickled array of shape {sizes} and type {kind} holds {len(raw):,} bytes"
        raise FormatError(msg)
    flat = np.frombuffer(raw, dtype=kind)
    return flat.reshape(sizes[::-1]).T if order == "F" else flat.reshape(sizes)


def _reconstruct(subtype: Any, shape: Any, _: Any) -> _ArrayRecord:
    if subtype is not _NDARRAY or shape != (0,):
        msg = "a pickled array of a foreign class"
        raise FormatError(msg)
    return _ArrayRecord()


def _scalar(dtype: Any, data: Any = b"") -> Array:
    return _array(data, dtype, ())


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> _ArrayRecord:
    """Return the record of an array; `axes` transposes an array in order "K" (NumPy 2.3)."""
    record = _ArrayRecord()
    transposed = order == "K" and axes is not None
    record.value = _array(data, dtype, shape, "C" if transposed else order)
    if transposed:
        record.value = record.value.transpose(axes)
    return record


class _JoblibRecord(_ArrayRecord):
    """An array that joblib writes after its wrapper; each pickle's subclass holds the bytes."""

    __slots__ = ()
    data: bytes
    stream: io.BytesIO  # over `data`; the unpickler stops it where the array begins

    def __setstate__(self, state: Any) -> None:
        if self.built or not isinstance(state, dict) or state.get("subclass") is not _NDARRAY:
            msg = "an array of joblib whose state is set twice, or of a foreign class"
            raise FormatError(msg)
        self.built = True
        sizes = _shape(state.get("shape"))
        dtype = state.get("dtype")
        if not isinstance(dtype, _Dtype):
            msg = "an array of joblib without a type"
            raise FormatError(msg)
        dtype.used = True
        if dtype.value.hasobject:
            self._read_objects()
        else:
            self._read_numbers(state, sizes, dtype.value)

    def _read_objects(self) -> None:
        """Read a pickle within the pickle, as joblib writes it."""
        # The same choice as in `load`.
        kind: Any = _Unpickler if budget.BY_SIZE else _PlainUnpickler
        found = kind(self.stream, encoding="latin1").load()
        if not isinstance(found, _ArrayRecord) or found.objects is None:
            msg = "an array of objects that joblib did not write"
            raise FormatError(msg)
        self.axes = found.axes
        self.objects = found.objects

    def _read_numbers(
        self, state: Mapping[str, Any], sizes: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        if state.get("numpy_array_alignment_bytes") is not None:
            padding = int.from_bytes(self.stream.read(1), "little")
            self.stream.seek(padding, io.SEEK_CUR)
        count = math.prod(sizes)
        nbytes = count * dtype.itemsize
        offset = self.stream.tell()
        if dtype.itemsize == 0 or offset + nbytes > len(self.data):
            left = max(0, len(self.data) - offset)
            msg = f"an array of shape {sizes} and type {dtype} needs {nbytes:,} bytes, {left:,} follow"
            raise FormatError(msg)
        flat = np.empty(0, dtype)
        if count:  # np.frombuffer refuses an empty buffer
            flat = np.frombuffer(self.data, dtype, count, offset)
        is_fortran = state.get("order") == "F"
        self.value = flat.reshape(sizes[::-1]).T if is_fortran else flat.reshape(sizes)
        self.stream.seek(nbytes, io.SEEK_CUR)


def _encode(value: str, encoding: str = "latin1") -> bytes:
    if encoding not in {"latin1", "latin-1", "iso-8859-1"}:
        msg = f"pickled bytes in encoding {encoding[:20]!r}"
        raise FormatError(msg)
    return value.encode("latin1")


def _no_bytes() -> bytes:
    return b""  # protocols 0 to 2 write empty bytes as this call


class _PlainDict(dict[Any, Any]):
    """Stands for an OrderedDict; drops attributes beyond its entries (of a model's state)."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


def _mapping(*items: Any) -> _PlainDict:
    return _PlainDict(*items)


class _Call:
    """One allowed function; it has no attributes that the BUILD opcode could replace."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, state: Any) -> None:
        msg = "a pickle that changes a function"
        raise FormatError(msg)


_DTYPE = _Call(_Dtype)
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _DTYPE,
    ("_codecs", "encode"): _Call(_encode),
    ("__builtin__", "bytes"): _Call(_no_bytes),
    ("collections", "OrderedDict"): _Call(_mapping),
}
for _root in ("numpy.core", "numpy._core"):
    for _module in ("multiarray", "_multiarray_umath"):
        _ALLOWED[f"{_root}.{_module}", "_reconstruct"] = _Call(_reconstruct)
        _ALLOWED[f"{_root}.{_module}", "scalar"] = _Call(_scalar)
    _ALLOWED[f"{_root}.numeric", "_frombuffer"] = _Call(_frombuffer)


class _AllowedGlobals:
    """Restricts the lookups of an unpickler to the names in `allowed`."""

    allowed: Mapping[tuple[str, str], Any] = _ALLOWED
    stored: Callable[[Any], Any] | None = None

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return self.allowed[module_name, global_name]
        except KeyError:
            msg = (
                f"the pickle asks for {module_name}.{global_name}; only arrays and plain values "
                f"are read"
            )
            raise FormatError(msg, "DC110") from None

    def persistent_load(self, pid: Any, /) -> Any:
        if self.stored is not None:
            return self.stored(pid)
        msg = "the pickle refers to an object outside itself"
        raise FormatError(msg, "DC110")


class _Unpickler(_AllowedGlobals, pickle.Unpickler):  # noqa: S301
    pass


class _PlainUnpickler(_AllowedGlobals, pickle._Unpickler):  # noqa: SLF001
    """The unpickler in pure Python: a large memo index takes no memory."""


class ExtraGlobals(NamedTuple):
    """Names that a pickle may use besides NumPy's, for a format that contains a pickle.

    Args:
        names: by module and name; records, results of `call`, or text.
        stored: returns the object for an identifier of an object outside the pickle.
    """

    names: Mapping[tuple[str, str], Any]
    stored: Callable[[Any], Any]


def call(function: Callable[..., Any]) -> Any:
    """Wrap a function for `ExtraGlobals.names`, so that no pickle can change it."""
    return _Call(function)


def record_of(array: Array) -> Any:
    """Wrap an array that an `ExtraGlobals.names` function returns; no pickle can change it."""
    record = _ArrayRecord()
    record.built = True
    record.value = array
    return record


def load(stream: io.BytesIO, outside: ExtraGlobals | None = None) -> Any:
    """Return the object of one pickle, arrays as records; leaves the stream after the pickle.

    Raises:
        FormatError: as for `unpickle`.
    """
    data = stream.getvalue()
    appended = _JOBLIB in data
    kind: Any = _Unpickler
    # With BY_SIZE a child process has the memory limit already. The checks below are skipped then,
    # since looking at each opcode takes a quarter of the time.
    if not budget.BY_SIZE:
        # The data between the opcodes would confuse `_check_memo`.
        if appended or outside is not None:
            kind = _PlainUnpickler
        else:
            _check_memo(data)
    copyreg.clear_extension_cache()  # cached EXT opcodes would bypass find_class
    with wrap_errors("damaged pickle"):
        unpickler = kind(stream, encoding="latin1")
        if appended:
            own = type(
                "_Appended", (_JoblibRecord,), {"__slots__": (), "data": data, "stream": stream}
            )
            unpickler.allowed = {**_ALLOWED, ("joblib.numpy_pickle", _JOBLIB.decode()): own}
        if outside is not None:
            unpickler.allowed = {**unpickler.allowed, **outside.names}
            unpickler.stored = outside.stored
        return unpickler.load()


_JOBLIB = b"NumpyArrayWrapper"


def unpickle(data: bytes, sole: str = "", prefix: str = "") -> dict[str, Any]:
    """Return the values of one pickle; runs nothing that it names.

    Args:
        data: the whole pickle, of any protocol; text of Python 2 is read as latin-1.
        sole: name of the value where the pickle holds no mapping; "" for "array", "records" (a
            list) or "value".
        prefix: put before the names of a mapping.

    Returns:
        Values by name: a mapping's entries (nested ones as ``outer/inner``, without entries that
        are None), or the sole value. A list of mappings that hold arrays, if it is the whole pickle
        or an entry of its mapping, is read as groups: ``07/observations``. A value that is refused
        is a `FormatError` under its name.

    Raises:
        FormatError: damaged, or it asks for something other than arrays, text, numbers, lists and
            mappings.
    """
    return values_of(_loaded(data), len(data), sole, prefix)


def values_of(root: Any, nbytes: int, sole: str = "", prefix: str = "") -> dict[str, Any]:
    """Return the object that `load` returned as values by name, as `unpickle` does.

    Args:
        root: the object.
        nbytes: number of bytes that hold it.
        sole, prefix: as for `unpickle`.

    Raises:
        FormatError: the object is far larger than its bytes, nested too deep, or has keys that are
            no names.
    """
    check_keys(len(root) if isinstance(root, dict) else 0)
    if isinstance(root, tuple) and root and all(isinstance(item, _ArrayRecord) for item in root):
        root = dict(enumerate(root))  # coordinates, colours, labels
    root = _unwrapped(root, _budget(nbytes), DEPTH)
    values: dict[str, Any] = {}
    if isinstance(root, dict):
        for key, item in root.items():
            if _are_groups(item, len(values), within=True):
                _flatten(prefix, {key: _numbered(item)}, values)
            else:
                _flatten(prefix, {key: item}, values)
    elif _are_groups(root):
        _flatten(prefix, _numbered(root), values)
    else:
        _add(sole or _sole_name(root), root, values)
    return values


def _sole_name(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "array"
    return "records" if isinstance(value, list) else "value"


def unpickle_whole(data: bytes) -> Any:
    """Return the objects of one pickle unchanged, so that they can be pickled again.

    Runs nothing that the pickle names.

    Raises:
        FormatError: as for `unpickle`, or it holds an array of objects that has axes.
    """
    return _materialized(_loaded(data), _budget(len(data)), DEPTH)


def _loaded(data: bytes) -> Any:
    check_bytes(len(data), "the pickle", TEXT_BYTES)
    stream = io.BytesIO(data)
    root = load(stream)
    if stream.tell() != len(data):
        msg = f"{len(data) - stream.tell():,} bytes follow the pickle"
        raise FormatError(msg)
    return root


# Matches every opcode that may hold a memo index of 2^24 or more.
_FAR_INDEX = re.compile(rb"r[\s\S]{3}[\x01-\xff]|p\d{8}")


def _check_memo(data: bytes) -> None:
    """Refuse memo indices beyond the pickle's bytes: the unpickler allocates up to the index.

    Raises:
        FormatError: there is such an index.
    """
    if _FAR_INDEX.search(data) is not None and (index := _far_index(data)):
        msg = f"damaged pickle: memo index {index:,} in {len(data):,} bytes"
        raise FormatError(msg)


def _far_index(data: bytes) -> int:
    with contextlib.suppress(Exception):  # the unpickler reports damage
        for code, index, _ in pickletools.genops(data):
            if code.name in {"LONG_BINPUT", "PUT"} and isinstance(index, int) and index > len(data):
                return index
    return 0


class _ExpansionBudget:
    """Limit on the expansion of one pickle, whose few bytes may name a large value a million times.

    Args:
        nodes: values and list entries that may be visited.
        nbytes: bytes of texts and arrays.
    """

    def __init__(self, nodes: int, nbytes: int) -> None:
        self.nodes = nodes
        self.nbytes = nbytes

    def pay(self, nodes: int, nbytes: int) -> None:
        self.nodes -= nodes
        self.nbytes -= nbytes
        if self.nodes < 0 or self.nbytes < 0:
            msg = "the pickle is far larger than its bytes: it names its values again and again"
            raise FormatError(msg)


def _budget(nbytes: int) -> _ExpansionBudget:
    return _ExpansionBudget(1000 + 2 * nbytes, FLOOR_BYTES + 2 * nbytes)


def _materialized(item: Any, budget: _ExpansionBudget, depth: int) -> Any:
    """Return `item` with records replaced by their arrays."""
    if depth == 0:
        msg = f"a pickle nested more than {DEPTH} deep"
        raise FormatError(msg)
    budget.pay(1, 0)
    if isinstance(item, _ArrayRecord):
        if item.axes:
            msg = "the pickle holds an array of objects"
            raise FormatError(msg)
        return (
            item.value if item.objects is None else _materialized(item.objects, budget, depth - 1)
        )
    if isinstance(item, dict):
        return {key: _materialized(value, budget, depth - 1) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return type(item)(_materialized(value, budget, depth - 1) for value in item)
    # An array outside a record is a single number.
    return item[()] if isinstance(item, np.ndarray) else item


def _unwrapped(item: Any, budget: _ExpansionBudget, depth: int) -> Any:
    """Return `item` with records replaced by their contents."""
    if depth == 0:
        msg = f"a pickle nested more than {DEPTH} deep"
        raise FormatError(msg)
    nbytes = 0
    if isinstance(item, str | bytes | bytearray):
        nbytes = len(item)
    elif isinstance(item, np.ndarray):
        nbytes = item.nbytes
    budget.pay(1, nbytes)
    if type(item) in {str, int, float, bool, type(None)}:
        return item
    if isinstance(item, _ArrayRecord):
        return _unwrapped(item.value if item.objects is None else item.objects, budget, depth - 1)
    if isinstance(item, dict):
        return {key: _unwrapped(value, budget, depth - 1) for key, value in item.items()}
    if isinstance(item, list | tuple):
        parts = [_unwrapped(value, budget, depth - 1) for value in item]
        budget.pay(sum(part.size for part in parts if isinstance(part, np.ndarray)), 0)
        return parts
    return item


def _flatten(prefix: str, mapping: dict[Any, Any], values: dict[str, Any]) -> None:
    for key, item in mapping.items():
        # A tuple such as ("S1", "54138969"): a subject's camera.
        parts = key if isinstance(key, tuple) and key else (key,)
        if any(isinstance(part, bool) or not isinstance(part, str | int) for part in parts):
            msg = (
                f"a mapping key of type {type(key).__name__}; text, whole numbers and tuples of "
                f"them are read"
            )
            raise FormatError(msg)
        name = f"{prefix}{','.join(map(str, parts))}"
        if isinstance(item, dict) and all(isinstance(k, str) for k in item):
            _flatten(f"{name}/", item, values)
        elif name in values:
            msg = f"two values are named {name}"
            raise FormatError(msg)
        else:
            _add(name, item, values)


def _are_groups(value: Any, others: int = 0, *, within: bool = False) -> bool:
    """Return whether a value is a list of mappings that become groups of values.

    The mappings must hold arrays or lists of numbers, and must not be too many for one file.

    Args:
        value: a value of a pickle.
        others: how many other values the pickle has.
        within: whether the value is an entry of a mapping; there, lists of numbers without arrays
            (boxes of annotations) stay JSON.

    Notes:
        No rule would check such numbers as JSON, and one NaN among them would make the whole list
        unreadable.
    """
    if not isinstance(value, list) or not all(
        isinstance(item, dict) and all(map(_is_name, item)) for item in value
    ):
        return False
    few = others + sum(map(len, value)) <= FIELDS
    numbers = (entry for item in value for entry in item.values() if _holds_numbers(entry))
    return few and any(isinstance(entry, np.ndarray) or not within for entry in numbers)


def _numbered(items: list[Any]) -> dict[str, Any]:
    """Return the items of a list by number, zero-padded so that bytewise order is list order."""
    width = len(str(len(items) - 1))
    return {f"{number:0{width}}": item for number, item in enumerate(items)}


def _is_name(key: Any) -> bool:
    return isinstance(key, str)


def _holds_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return isinstance(from_json(value), np.ndarray)
    return isinstance(value, np.ndarray) and value.ndim > 0


def _add(name: str, item: Any, values: dict[str, Any]) -> None:
    try:
        value = from_python(item)
    except FormatError as error:
        values[name] = FormatError(f"{name}: {error}")
        return
    if isinstance(value, np.ndarray):
        values.update(expand(name, value))
    elif value is not None:
        values[name] = value
