"""Allocate large arrays that begin at a cache line.

malloc starts a large array 16 bytes into a page, but files are read and mapped from the start of a
page. On some processors (AMD since Zen 3) the copy instruction that C libraries and kernels choose
moves bytes between these two at less than half of its speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_LINE = 64
_LEAST = 1 << 16  # bytes; aligning smaller arrays takes longer than it saves


def empty(shape: Sequence[int], dtype: str | np.dtype[Any] | type[np.generic]) -> Array:
    """Return an uninitialized contiguous array, as `np.empty`; a large one begins at a cache line.

    Args:
        shape: of the array.
        dtype: of a fixed size, no objects.
    """
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    if size < _LEAST:
        return np.empty(shape, kind)
    memory = np.empty(size + _LINE, np.uint8)
    skipped = -memory.__array_interface__["data"][0] % _LINE
    aligned: Array = memory[skipped : skipped + size].view(kind).reshape(shape)
    return aligned
