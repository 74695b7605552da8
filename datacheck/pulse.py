"""Both ends of the counter by which a child says what it is at: `Pulse` in the child, `Watch` in the parent."""

from __future__ import annotations

import gc
import itertools
import math
import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datacheck import budget
from datacheck.budget import Budget, written_memory
from datacheck.runtime.sandbox import lower_limit

COUNTER = struct.Struct("<qqq")  # the item that the child is at; how often it said so; bytes of its files, or -1
_LEAK_BYTES = 256 << 20  # what a child may keep of an item that ran out of memory
_WRITTEN_BYTES = 1 << 20  # of one file that a child writes which reads files: its messages
STOPPED_S = 10.0  # after which a child that somebody has stopped is given up
_ANSWER_S, _ANSWER_RATE = 60.0, 10 << 20  # an answer is complete when it begins to come: what is left is to copy it
_TICKS = os.sysconf("SC_CLK_TCK")


class Pulse:
    """Tells the parent which item the child is at, and limits the memory of an item by the size of its files.

    Args:
        counter: shared memory of `COUNTER`.
    """

    def __init__(self, counter: mmap.mmap) -> None:
        self._counter, self._beats = counter, itertools.count(1)
        self._item, self._nbytes = 0, -1
        self._memory: Sequence[int] = (0, 0, 0)
        self._start: int | None = None

    def begin(self, memory: Sequence[int]) -> None:
        """Begin a task whose items may take so much memory (`Budget.told`)."""
        self._memory = memory
        self._nbytes = -1
        self(0)

    def __call__(self, item: int) -> None:
        """Say that an item begins, or makes progress."""
        if item != self._item:
            self._item, self._nbytes = item, -1
        COUNTER.pack_into(self._counter, 0, item, next(self._beats), self._nbytes)

    def files(self, nbytes: int) -> None:
        """Say how many bytes the files of the item have: by them its memory and its processor time are limited."""
        self._nbytes = nbytes
        base, step, most = self._memory
        self._limit(min(base + step * nbytes, most))
        self(self._item)

    @property
    def sized(self) -> bool:
        """Whether the item's memory is limited by its size."""
        return self._nbytes >= 0

    def end(self) -> None:
        """Take the limit back."""
        if self._start is not None:
            self._limit(-1)
        budget.BY_SIZE = False

    def leaked(self) -> bool:
        """Tell whether an item that ran out of memory leaves much behind."""
        gc.collect()
        return written_memory() - (self._start or 0) > _LEAK_BYTES

    def _limit(self, more: int) -> None:
        import resource  # noqa: PLC0415  not on every platform, needed in children only

        if self._start is None:
            self._start = written_memory()
            lower_limit(resource.RLIMIT_FSIZE, _WRITTEN_BYTES)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = hard if more < 0 else self._start + more
        resource.setrlimit(resource.RLIMIT_DATA, (soft if hard < 0 else min(soft, hard), hard))
        budget.BY_SIZE = more >= 0


class OverdueError(Exception):
    """A child that takes too long.

    Args:
        text: what to say of it.
        kind: see `Death`.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Watch:
    """How long a child may go on: without a sign of life by the clock, with an item by its processor time.

    Args:
        signs: returns the item that the child is at, how often it said so, and the bytes of its files.
        budget: of an item that tells the size of its files.
        pid: of the child.
        task: its items.
        silence_s: without a sign of life.
        start_s: before the first one.
        whole_s: in all, however many signs of life it gives: one that was taken over gives them without end.
    """

    def __init__(
        self, signs: Callable[[], tuple[int, int, int]], budget: Callable[[Any], Budget], pid: int,
        task: Mapping[str, Any], silence_s: float, start_s: float, whole_s: float = math.inf,
    ) -> None:  # fmt: skip
        self._signs, self._budget, self._pid = signs, budget, pid
        self._items = task.get("items") or [None]
        self._silence_s, self._start_s = silence_s, max(silence_s, start_s)
        self._since, self._sign, self._waited = time.monotonic(), signs(), _waited(pid)
        self._whole_s, self._end = whole_s, self._since + self._start_s + whole_s
        self._at: int | None = None
        self._began = 0.0
        self._answering: float | None = None

    def heard(self, nbytes: int) -> None:
        """Note that the child sends its answer, of so many bytes.

        Raises:
            OverdueError: it has done so for too long.
        """
        self._since, self._waited = time.monotonic(), _waited(self._pid)
        self._answering = self._answering or self._since
        limit = max(self._silence_s, _ANSWER_S) + nbytes / _ANSWER_RATE
        if self._since - self._answering > limit:
            msg = f"still answering after {limit:.0f} s"
            raise OverdueError(msg, "silent")

    def look(self) -> None:
        """Look whether the child takes too long.

        Raises:
            OverdueError: it does.
        """
        sign = self._signs()
        if time.monotonic() > self._end:
            msg = f"not finished after {self._whole_s:,.0f} s, although it gives signs of life"
            raise OverdueError(msg, "endless")
        if sign != self._sign:
            self._since, self._sign, self._waited = time.monotonic(), sign, _waited(self._pid)
        place, beats, nbytes = sign
        limit = self._silence_s if beats else self._start_s
        if nbytes >= 0:
            allowed = self._budget(self._items[within(place, len(self._items))])
            limit = min(limit, allowed.silence_s)
            self._check_processor(place, allowed.seconds(nbytes))
        silent = time.monotonic() - self._since
        if silent > min(limit, STOPPED_S) and _is_stopped(self._pid):
            msg = f"the process that reads was stopped by a signal, for {min(limit, STOPPED_S):g} s"
            raise OverdueError(msg, "killed")
        if silent > limit and silent - (_waited(self._pid) - self._waited) > limit:  # it may get no processor
            msg = f"still {'busy' if beats else 'starting'} after {limit:g} s"
            raise OverdueError(msg, "silent")

    def _check_processor(self, place: int, limit: float) -> None:
        used = _processor_time(self._pid)
        if place != self._at:
            self._at, self._began = place, used
        if used - self._began > limit:
            msg = f"still busy after {limit:.0f} s of processor time, too much for a file of its size"
            raise OverdueError(msg, "busy")


def within(place: int, count: int) -> int:
    """Return the place in a task at which a child says that it is: one that was taken over may say any."""
    return max(0, min(place, count - 1))


def _is_stopped(pid: int) -> bool:
    """Tell whether somebody has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except OSError:  # it has just ended
        return False


def _waited(pid: int) -> float:
    """Return how many seconds a process has waited for a processor that others had."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # it has just ended, or the kernel does not count
        return 0.0


def _processor_time(pid: int) -> float:
    """Return how many seconds of processor time a process has taken."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
