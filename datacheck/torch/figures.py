"""What a probe is given, as arrays: tensors on any device, arrays, lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.errors import UsageError

Array = np.ndarray[Any, Any]


def array_of(value: Any) -> Array:
    """Return a tensor on any device, an array, or lists of these as an array.

    Raises:
        UsageError: rows differ in length.
    """
    if hasattr(value, "detach"):  # a tensor, on whatever device
        value = value.detach().cpu()
        return np.asarray(value.double() if value.is_floating_point() else value)
    if isinstance(value, list | tuple):
        value = [array_of(one) if hasattr(one, "detach") else one for one in value]
    try:
        return np.asarray(value)
    except ValueError as error:
        msg = f"this makes no array: {error}"
        raise UsageError(msg) from error


def both_of(pred: Any, gt: Any) -> tuple[Array, Array]:
    """Return the finite samples of both as float64 (samples, ...).

    Raises:
        UsageError: these are no numbers, or their shapes differ.
    """
    first, second = numbers_of(pred), numbers_of(gt)
    if first.shape != second.shape or first.ndim == 0 or 0 in first.shape[1:]:
        msg = f"pred has shape {list(first.shape)}, gt {list(second.shape)}; both are (samples, ...) and equal"
        raise UsageError(msg)
    axes = tuple(range(1, first.ndim))
    finite = np.isfinite(first).all(axis=axes) & np.isfinite(second).all(axis=axes)
    return first[finite], second[finite]


def numbers_of(value: Any) -> Array:
    """Return real numbers as float64; None is NaN.

    Raises:
        UsageError: they are none.
    """
    array = array_of(value)
    try:
        if array.dtype.kind in "biufO":
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    msg = f"these are no real numbers: {type(value).__name__} of {array.dtype}"
    raise UsageError(msg)
