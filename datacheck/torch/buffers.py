"""Memory of batches, used again when nothing refers to a batch any more: fresh memory costs as much as the copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch

from datacheck.aligned import empty

Array = np.ndarray[Any, Any]
Memory: TypeAlias = Callable[[str, tuple[int, ...], str], torch.Tensor]

_LEAST = 1 << 18  # bytes; below, malloc has them at hand
_ROOM = 1.125  # ragged batches differ: the next is a little larger
_KEPT = 1 << 25  # bytes of a field, however many batches that is


class _Memory:
    """Bytes, and where they lie: NumPy takes a while to say it."""

    __slots__ = ("interface", "of", "size")

    def __init__(self, size: int) -> None:
        self.of, self.size = empty([size], np.uint8), size
        self.interface = self.of.__array_interface__


class _Lent:
    """Bytes that go home when nothing looks at them any more."""

    def __init__(self, memory: _Memory, home: deque[_Memory], spare: int) -> None:
        self._memory, self._home, self._spare = memory, home, spare
        self.__array_interface__ = memory.interface

    def __del__(self) -> None:
        home = self._home
        home.append(self._memory)
        with suppress(IndexError, RuntimeError):  # another thread has just taken or brought some
            while len(home) > self._spare and sum(one.size for one in tuple(home)) > _KEPT:
                home.popleft()


class Buffers:
    """Memory for tensors, by field.

    Args:
        spare: of how many batches memory is kept for each field while nothing refers to it; of more where all of them
            have 32 MiB at most.

    Notes:
        A tensor is the caller's for as long as it, a view of it or an array of it is referred to. Threads may share
        this. Memory that was lent out outlives it.
    """

    def __init__(self, spare: int = 1) -> None:
        self._spare = spare
        self._free: dict[str, deque[_Memory]] = {}

    def empty(self, name: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """Return a contiguous tensor of that NumPy dtype that holds anything."""
        wanted = prod(shape) * np.dtype(dtype).itemsize
        if wanted < _LEAST:
            return torch.from_numpy(np.empty(shape, dtype))
        home = self._free.setdefault(name, deque())
        memory = _taken(home, wanted)
        if memory is None:
            memory = _Memory(int(wanted * _ROOM))
        lent: Array = np.asarray(_Lent(memory, home, self._spare))
        return torch.from_numpy(np.ndarray(shape, dtype, lent))


def _taken(home: deque[_Memory], wanted: int) -> _Memory | None:
    """Return spare memory that fits: one sample must not hold the memory of a batch."""
    try:
        memory = home.pop()
    except IndexError:
        return None
    if wanted <= memory.size <= 2 * wanted:
        return memory
    if memory.size > wanted:
        home.append(memory)
    return None


def pinned(name: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Return a pinned tensor; PyTorch uses its memory again when it is free and copies from it have ended."""
    del name
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind, device="cpu", pin_memory=True)
