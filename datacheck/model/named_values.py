"""The value that a user's dataset returns for an index, as named arrays, texts and JSON values."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import xxhash

from datacheck.runtime.hashing import canonical_json

Array = np.ndarray[Any, Any]
NamedValues = dict[str, Any]

_DEPTH = 16  # of lists and dicts in each other


class RefusedError(Exception):
    """A loader returned something that is neither numbers nor text."""


def named_values(sample: Any, whole: Collection[str] = ()) -> NamedValues:
    """Return the values of a sample by name.

    Args:
        sample: a dict (nested ones are joined with ``/``), a tuple or list (names ``0``, ``1``,
            ...; a named tuple's own names), or a single value (``0``).
        whole: names whose dict or list without arrays stays one JSON value.

    Raises:
        RefusedError: a value is neither an array, a tensor in main memory, an image, a number,
            text, nor a list or dict of these.

    Notes:
        ``None`` is left out. Arrays are little-endian and C-contiguous; bfloat16 becomes float32.
    """
    top = _items(sample)
    values: NamedValues = {}
    for name, value in [("0", sample)] if top is None else top:
        for full, part in _named(name, value, whole, 0):
            if full in values:
                msg = f"{full}: two values have this name"
                raise RefusedError(msg)
            _check_text(full, part)
            values[full] = part
    return values


def _check_text(name: str, value: Any) -> None:
    """Refuse names and texts with a lone surrogate: neither files nor terminals can hold them."""
    try:
        name.encode()
        if isinstance(value, str):
            value.encode()
        elif not isinstance(value, np.ndarray):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        escaped_name = name.encode("utf-8", "backslashreplace").decode()
        msg = f"{escaped_name}: text that is no UTF-8 (half of a surrogate pair)"
        raise RefusedError(msg) from error


def _items(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, Mapping):
        return [(_key(key), item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return [(str(place), item) for place, item in enumerate(value)]
    return None


def _key(key: Any) -> str:
    if isinstance(key, str | int | np.integer):
        return str(key)
    msg = f"a key of type {_type(key)}; keys are text"
    raise RefusedError(msg)


def _named(
    name: str, value: Any, whole_names: Collection[str], depth: int
) -> Iterator[tuple[str, Any]]:
    if value is None:
        return
    if depth > _DEPTH:
        msg = f"{name[:60]}: nested too deeply"
        raise RefusedError(msg)
    if isinstance(value, list | tuple | Mapping):
        plain = _plain(value, depth)
        if plain is not None and (name in whole_names or not isinstance(value, Mapping)):
            array = None if name in whole_names else _numbers(plain)
            yield name, plain if array is None else array
            return
        for key, item in _items(value) or []:
            yield from _named(f"{name}/{key}", item, whole_names, depth + 1)
        return
    yield name, _value(name, value)


def _plain(value: Any, depth: int) -> Any:
    """Return lists and dicts of text and Python numbers only as JSON; None for anything else."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if depth > _DEPTH:
        return None
    if isinstance(value, list | tuple):
        items = [_plain(item, depth + 1) for item in value]
        return (
            None
            if any(a is None and b is not None for a, b in zip(items, value, strict=True))
            else items
        )
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        entries = {key: _plain(item, depth + 1) for key, item in value.items()}
        return (
            None
            if any(entries[key] is None and value[key] is not None for key in entries)
            else entries
        )
    return None


def _numbers(value: Any) -> Array | None:
    """Return a rectangular list of numbers as an array, None for any other list."""
    if not isinstance(value, list) or not value:
        return None
    try:
        array = np.array(value)
    except (ValueError, OverflowError):
        return None
    return np.ascontiguousarray(array) if array.dtype.kind in "biuf" else None


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str | PurePath | bytes):
        return _text(name, value) if isinstance(value, bytes) else str(value)
    if isinstance(value, bool | int | float | np.generic | np.ndarray) and not isinstance(
        value, np.ma.MaskedArray
    ):
        return _array(name, np.asarray(value), value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _array(name, _tensor(name, value, torch), value)
    if type(value).__module__.partition(".")[0] == "PIL" and hasattr(value, "getbands"):
        return _array(name, np.asarray(value), value)
    raise RefusedError(_refusal(name, _type(value)))


def _refusal(name: str, kind: str) -> str:
    return (
        f"{name}: {kind}; a loader returns arrays, tensors, images, numbers, text, and lists or "
        f"dicts of these"
    )


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(_refusal(name, "bytes that are no UTF-8")) from error


def _tensor(name: str, value: Any, torch: Any) -> Array:
    if value.device.type != "cpu":
        msg = (
            f"{name}: a tensor on {value.device}; a loader returns tensors in main memory (.cpu())"
        )
        raise RefusedError(msg)
    if value.layout is not torch.strided or value.is_quantized:
        raise RefusedError(_refusal(name, "a sparse or quantized tensor"))
    value = value.detach().resolve_conj().resolve_neg()
    if value.dtype is torch.bfloat16 or str(value.dtype).startswith("torch.float8"):
        value = value.to(torch.float32)
    array: Array = value.numpy()
    return array


def _array(name: str, array: Array, value: Any) -> Any:
    kind = array.dtype.kind
    if kind in "US":
        texts = array.tolist()
        return _plain_text(name, texts)
    if kind == "T" or array.dtype.hasobject or kind not in "biuf":
        raise RefusedError(_refusal(name, f"{_type(value)} of {array.dtype}"))
    if kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    shape = array.shape  # np.ascontiguousarray turns a scalar into a row
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(shape)


def _plain_text(name: str, texts: Any) -> Any:
    if isinstance(texts, list):
        return [_plain_text(name, text) for text in texts]
    return _text(name, texts) if isinstance(texts, bytes) else texts


def _type(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def digest_values(values: NamedValues) -> dict[str, int]:
    """Return xxh3_64 over dtype, shape and bytes of each value, by name."""
    return {name: _digest(value) for name, value in values.items()}


def _digest(value: Any) -> int:
    hasher = xxhash.xxh3_64()
    if isinstance(value, np.ndarray):
        hasher.update(f"{value.dtype.str}{value.shape}\0".encode())
        hasher.update(value.reshape(-1).data if value.size else b"")
    else:
        hasher.update(
            value.encode("utf-8", "surrogatepass") if isinstance(value, str) else _json(value)
        )
    return hasher.intdigest()


def _json(value: Any) -> bytes:
    try:
        return canonical_json(value)
    except ValueError:  # NaN
        return repr(value).encode("utf-8", "surrogatepass")
