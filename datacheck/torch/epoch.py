"""The epoch of plain indices, in memory that the workers of a DataLoader share: persistent ones see a new one too."""

from __future__ import annotations

import mmap
from multiprocessing.context import get_spawning_popen
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset

from datacheck.torch.order import whole_number


def tell_epoch(dataset: Any, epoch: int) -> None:
    """Set the epoch of a dataset that has one, also of those in a `Subset` or `ConcatDataset` of PyTorch."""
    if callable(tell := getattr(dataset, "set_epoch", None)):
        tell(epoch)
    elif isinstance(dataset, Subset):
        tell_epoch(dataset.dataset, epoch)
    elif isinstance(dataset, ConcatDataset):
        for one in dataset.datasets:
            tell_epoch(one, epoch)


class SharedEpoch:
    """A number that this process sets and its workers read.

    Notes:
        Forked workers share anonymous memory; spawned ones share a file of /dev/shm, made when the first is spawned.
        A copy, pickled or deep, begins with the same number and goes its own way.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._cell = torch.frombuffer(mmap.mmap(-1, 8), dtype=torch.int64)
        self._cell[0] = epoch

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

    def __setstate__(self, state: dict[str, Any]) -> None:
        cell = state["_cell"]
        SharedEpoch.__init__(self, int(cell.item()))
        if cell.is_shared():  # else it was pickled for no worker, and those of this process are to share a new one
            self._cell = cell
