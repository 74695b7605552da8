"""Numbers of any library as Python's."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from datacheck.errors import UsageError


def as_whole(value: Any) -> int | None:
    """Return a whole number of Python, NumPy or PyTorch; None: it is none, as a bool and a list of one number are."""
    if (
        isinstance(value, bool | np.bool_)
        or getattr(value, "shape", None)
        or "bool" in str(getattr(value, "dtype", ""))
    ):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number of any library as Python's."""
    found = as_whole(value)
    if found is None or found < least:
        msg = f"{name}={value!r} is no whole number of {least} or more"
        raise UsageError(msg)
    return found


def whole_or_none(name: str, value: Any) -> int | None:
    """Return a whole number of any library as Python's, None as it is."""
    return None if value is None else whole(name, value)


def hex_of(value: Any, name: str) -> str:
    """Return a number as the hex digits of a float64."""
    try:
        return float(value.detach() if hasattr(value, "detach") else value).hex()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = f"of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"
        msg = f"{name} is {kind}; one number is wanted"
        raise UsageError(msg) from error
