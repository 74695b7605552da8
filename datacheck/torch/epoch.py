"""The epoch of plain indices, in memory that the workers of a DataLoader share: persistent ones see a new one too."""

from __future__ import annotations

import mmap
from multiprocessing.context import get_spawning_popen
from typing import Any

import torch

from datacheck.torch.order import whole_number


class SharedEpoch:
    """A number that this process sets and its workers read.

    Notes:
        Forked workers share anonymous memory; spawned ones share a file of /dev/shm, made when the first is spawned.
    """

    def __init__(self) -> None:
        self._cell = torch.frombuffer(mmap.mmap(-1, 8), dtype=torch.int64)

    def get(self) -> int:
        """Return the epoch."""
        return int(self._cell.item())

    def set(self, epoch: int) -> None:
        """Set the epoch, 0 or more.

        Raises:
            UsageError: it is no such number.
        """
        self._cell[0] = whole_number("epoch", epoch)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:  # on its way to a spawned worker
            self._cell.share_memory_()
        return self.__dict__
