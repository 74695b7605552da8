"""Which item is served at which place of which epoch: pure functions, no permutation in memory, no PyTorch."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from datacheck.errors import UsageError

Array = np.ndarray[Any, Any]

_ITEM_BITS = 40
MAX_ITEMS = 1 << _ITEM_BITS
MAX_EPOCH = (1 << (63 - _ITEM_BITS)) - 2


def whole_number(name: str, value: Any, least: int = 0, most: int = MAX_EPOCH) -> int:
    """Return `value` as an int.

    Raises:
        UsageError: it is no whole number of [least, most].
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        msg = f"{name}={value!r} is no whole number from {least} to {most}"
        raise UsageError(msg)
    return number


def pack(epoch: int, items: Array) -> Array:
    """Return one number per item that says epoch and item: ``(epoch + 1) << 40 | item``.

    Shapes:
        items: int64 (items), each in [0, 2**40)
        returns: int64 (items)

    Args:
        epoch: 0 to 8,388,606.

    Raises:
        UsageError: the epoch is out of range.
    """
    packed: Array = items | ((whole_number("epoch", epoch) + 1) << _ITEM_BITS)
    return packed


def unpack(numbers: Array, epoch: int) -> tuple[Array, Array]:
    """Return epoch and item of numbers; a plain index (below 2**40, or negative) is of `epoch`.

    Shapes:
        numbers: int64 (items)
        returns: int64 (items), int64 (items)
    """
    packed = numbers >= MAX_ITEMS
    epochs = np.where(packed, (numbers >> _ITEM_BITS) - 1, epoch)
    return epochs, np.where(packed, numbers & (MAX_ITEMS - 1), numbers)
