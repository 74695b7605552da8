"""A configuration as plain JSON: dicts, dataclasses, OmegaConf, argparse; what has no such form is said by its type."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
import os
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from datacheck.digest import canonical_json, digest_array, digest_bytes
from datacheck.repro.environment.secret import credential, names_password, names_secret

_DEPTH = 64


def resolved(config: Any) -> Any:
    """Return a configuration as JSON values, the same for equal configurations.

    Args:
        config: a mapping (OmegaConf's are), dataclass, argparse.Namespace, or what they hold.

    Notes:
        Paths, enumerations, NumPy numbers, dtypes and devices become texts or numbers, functions and classes their
        names, sets sorted lists, arrays digests; NaN and infinity {"float": "nan"}, whole numbers of 64 bits and more
        {"int": "0x..."}. Anything else becomes {"type": its type}: two such values look equal. A text is not written
        that is under a name such as ``hub_token`` at any level, or looks like a credential; nor a whole number under
        the name of a password.
    """
    return _plain(config, "", ())


def _plain(value: Any, name: str, within: tuple[int, ...]) -> Any:  # noqa: PLR0911  one return for each kind
    if _hidden(value, name):
        return {"secret": True}
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return _number(value) if isinstance(value, int | float) else value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        held = value.item()  # longdouble gives itself
        known = not isinstance(held, np.generic)
        return _plain(held, name, within) if known else {"type": _type(value), "text": str(value)}
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    if id(value) in within or len(within) > _DEPTH:
        return {"type": _type(value), "within": "itself" if id(value) in within else "too many levels"}
    return _held(value, name, (*within, id(value)))


def _hidden(value: Any, name: str) -> bool:
    """Tell what is not written: texts and bytes by name or looks, whole numbers under the name of a password."""
    if isinstance(value, str | bytes | bytearray):
        return names_secret(name) or (isinstance(value, str) and credential(value))
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and names_password(name)


def _held(value: Any, name: str, within: tuple[int, ...]) -> Any:
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    elif isinstance(value, argparse.Namespace | types.SimpleNamespace):
        value = vars(value)
    elif callable(getattr(value, "model_dump", None)):  # pydantic
        value = _dumped(value)
    if isinstance(value, Mapping):
        hidden = names_secret(name)
        return {str(key): _item(value, key, name if hidden else str(key), within) for key in value}
    if isinstance(value, Set):
        return sorted((_plain(item, name, within) for item in value), key=canonical_json)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_item(value, i, name, within) for i in range(len(value))]
    return _other(value)


def _dumped(model: Any) -> Any:
    try:
        return model.model_dump()
    except Exception as error:
        if "KeyboardInterrupt" in str(error):  # pydantic makes an error of its own of it, at times without a cause
            raise KeyboardInterrupt from error
        return {"type": _type(model), "unresolved": type(error).__name__}


def _item(held: Any, key: Any, name: str, within: tuple[int, ...]) -> Any:
    try:
        item = held[key]
    except Exception as error:  # noqa: BLE001  an interpolation of OmegaConf that leads nowhere
        return {"unresolved": type(error).__name__}
    return _plain(item, name, within)


def _other(value: Any) -> Any:
    kind = _type(value)
    if kind in {"torch.dtype", "torch.device", "torch.Size"} or kind.startswith("numpy.dtype"):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": len(value), "digest": digest_bytes(value)}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return {"dtype": value.dtype.str, "shape": list(value.shape), "digest": digest_array(value)}
    return {"type": kind}


def _number(value: float) -> Any:
    if isinstance(value, int):
        return value if value.bit_length() < 64 else {"int": hex(value)}  # most that read JSON would lose digits
    return float(value) if math.isfinite(value) else {"float": str(float(value))}


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
