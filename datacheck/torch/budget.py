"""How many samples may fail at run time before a run is stopped, counted over all processes of a loader."""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import UsageError
from datacheck.torch.order import MAX_ITEMS, whole_number

INVALID = "known to be invalid"  # the reason of substitutes for samples that never failed here

_REASONS, _LISTED, _TEXT = 32, 1000, 120
_MEMORY = np.dtype(
    [
        ("epoch", "<i8"),
        ("served", "<i8"),  # of this epoch
        ("failed", "<i8"),  # of this epoch
        ("run", "<i8"),  # failures since one was served
        ("counts", "<i8", _REASONS),
        ("reasons", f"S{_TEXT}", _REASONS),
        ("listed", "<i8", (_LISTED, 4)),  # epoch, item, candidate, reason
    ]
)
_JUDGED_FROM = 10_000  # samples; before so many (or a whole epoch) a share says little


class Failure(NamedTuple):
    """One failure: `tried` is the item that failed in the place of `item`, or `item` itself."""

    epoch: int
    item: int
    tried: int
    reason: str


class Budget:
    """What may fail at run time before the run is stopped, and what has failed.

    Args:
        share: of the samples of an epoch, 0 to 1; judged over 10,000 samples, or a whole epoch of fewer.
        run: failures without a sample in between, and candidates for one item, 1 or more.

    Raises:
        UsageError: a value is not one of these.

    Notes:
        Counts are those of this process and its workers, forked or spawned, in memory that they share. Each rank has
        its own and stops alone: where there are several, `guard` stops them together. A worker that is killed leaves no
        lock behind. A pickled budget starts anew, except in a new worker.
    """

    def __init__(self, share: float = 0.01, run: int = 100) -> None:
        self.run = whole_number("budget: run", run, 1, MAX_ITEMS)
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            msg = f"budget: share={share!r}; a share of the samples is a number from 0 to 1"
            raise UsageError(msg)
        self.share = share
        self._share_memory(_new_file())

    def _share_memory(self, file: int) -> None:
        self._file = file
        weakref.finalize(self, os.close, file)
        self._now: Any = np.frombuffer(mmap.mmap(file, _MEMORY.itemsize), _MEMORY)
        self._lock = os.getpid(), threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        file = DupFd(self._file) if get_spawning_popen() is not None else None
        return {"share": self.share, "run": self.run, "file": file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.share, self.run, file = state["share"], state["run"], state["file"]
        self._share_memory(_new_file() if file is None else file.detach())

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        if self._lock[0] != os.getpid():  # another thread of the parent may have held it when this process was forked
            self._lock = os.getpid(), threading.Lock()
        with self._lock[1]:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield self._now
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    # ------------------------------------------------------------------------------------------ counting

    def serve(self, epoch: int, count: int) -> None:
        """Count samples that were served."""
        if count:
            with self._locked() as now:
                _served(now, epoch, count)

    def replace(self, count: int) -> None:
        """Count substitutes for samples that are known to be invalid; they are no failures."""
        if count:
            with self._locked() as now:
                now["counts"][0, _slot(now, INVALID)] += count

    def fail(self, failure: Failure, before: int, items: int) -> str | None:
        """Count a failure.

        Args:
            failure: what failed.
            before: samples served since the last count.
            items: of the dataset.

        Returns:
            Why the run must stop; None where it may go on.
        """
        with self._locked() as now:
            _served(now, failure.epoch, before)
            slot = _slot(now, failure.reason)
            place = int(now["failed"][0])
            if place < _LISTED:
                now["listed"][0, place] = failure.epoch, failure.item, failure.tried, slot
            now["counts"][0, slot] += 1
            now["failed"] += 1
            now["run"] += 1
            return self._exceeded(now, items)

    def _exceeded(self, now: Any, items: int) -> str | None:
        failed, served, run = (int(now[name][0]) for name in ("failed", "served", "run"))
        if run >= self.run:
            return f"{run} samples failed in a row; allowed are fewer than {self.run}"
        if failed > math.ceil(self.share * max(served + failed, min(items, _JUDGED_FROM))):
            epoch = int(now["epoch"][0])
            return (
                f"{failed} of {served + failed:,} samples failed in epoch {epoch}; allowed are {self.share:.3g} of them"
            )
        return None

    # ------------------------------------------------------------------------------------------ what was counted

    @property
    def served(self) -> int:
        """Samples that went through a transform in the newest epoch."""
        return int(self._now["served"][0])

    @property
    def failed(self) -> int:
        """Failures of the newest epoch."""
        return int(self._now["failed"][0])

    @property
    def reasons(self) -> dict[str, int]:
        """How many samples were replaced for each reason, in all epochs; after 31 reasons the rest is one."""
        with self._locked() as now:
            texts, counts = now["reasons"][0].tolist(), now["counts"][0].tolist()
        return {text.decode("utf-8", "replace"): count for text, count in zip(texts, counts, strict=True) if count}

    @property
    def failures(self) -> list[Failure]:
        """The first 1,000 failures of the newest epoch, in the order in which they came."""
        with self._locked() as now:
            listed = now["listed"][0, : min(int(now["failed"][0]), _LISTED)].tolist()
            texts = [text.decode("utf-8", "replace") for text in now["reasons"][0].tolist()]
        return [Failure(epoch, item, tried, texts[slot]) for epoch, item, tried, slot in listed]


def budget_of(given: Any) -> Budget:
    """Return the budget that is asked for; a new one where it is None.

    Raises:
        UsageError: it is none.
    """
    if given is not None and not isinstance(given, Budget):
        msg = f"budget={given!r}; Budget(share=..., run=...) is wanted"
        raise UsageError(msg)
    return given or Budget()


def _new_file() -> int:
    """Return a file without a name, of zeros; its lock ends with the process that holds it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("datacheck-budget")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.truncate(file, _MEMORY.itemsize)
    return file


def _served(now: Any, epoch: int, count: int) -> None:
    if epoch > now["epoch"][0]:
        now["epoch"], now["served"], now["failed"] = epoch, 0, 0
    if count:
        now["served"] += count
        now["run"] = 0


def _slot(now: Any, reason: str) -> int:
    """Return where a reason is counted; the last place is that of all that are too many."""
    text = reason.encode("utf-8", "replace")[:_TEXT].decode("utf-8", "ignore").strip("\0 \n").encode() or b"no reason"
    texts = now["reasons"][0]
    for slot in range(_REASONS - 1):
        if texts[slot] in (text, b""):
            texts[slot] = text
            return slot
    texts[-1] = b"other reasons"
    return _REASONS - 1
