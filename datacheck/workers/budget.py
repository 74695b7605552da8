"""Limits of a child, budgets by file size, and the history of failed items.

Every item is first tried with a small budget. An item that exceeds it is tried once more, alone,
with the full budget for its size. After a few similar failures, or a minute spent on failures,
items that exceed the small budget get no second try. After ten minutes the small budget shrinks.
Links to a file that failed are not tried. A good file of ordinary cost is never affected.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from datacheck.errors import StorageError

_MOST_BYTES = 8 << 30  # memory of a child: a value of 4 GiB, and room to measure it
_LEAST_BYTES = 2 << 30
_START_BYTES = 512 << 20  # address space of a child with all its libraries
_SHARE = 2  # a child takes at most 1 / _SHARE of the machine's memory
_PER_BYTE = 32  # memory for each byte of a file: JSON of small objects takes 25
# Heartbeats alone do not keep a child alive: it may send them forever. A task may take this many
# silence limits, and one more for every so many items.
_SILENCES = 20
_PER_SILENCE = 6
BY_SIZE = False  # whether the current item's memory is limited by the size of its files
# Kinds of failures by a limit. Several good items of one task may exceed a limit together.
LIMITS = {"memory", "busy", "silent", "endless"}
_REFUSED = {  # why an item over its first budget gets no second try
    "busy": "takes too long for its size",
    "memory": "needs too much memory for its size",
    "crashed": "crashes its parser",
}
ALIKE = 5  # similar failures after which others like them get no second try
OFFENCES_S = 60.0  # seconds per worker spent on failed items before second tries stop
LOST_S = 600.0  # seconds per worker lost to tries that hit a limit before first tries get shorter


def usable_memory() -> int:
    """Return the bytes of memory this process may use: the machine's, or its cgroup's limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return limits[0]
    for line in groups:
        _, kinds, path = line.split(":", 2)
        root = Path("/sys/fs/cgroup")
        name = "memory.max"
        if kinds:
            root, name = root / "memory", "memory.limit_in_bytes"
        if kinds and "memory" not in kinds.split(","):
            continue
        group_folder = root / path.lstrip("/")
        limits += [
            _number(folder / name)
            for folder in (group_folder, *group_folder.parents)
            if folder.is_relative_to(root)
        ]
    return min(size for size in limits if size > 0)


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such cgroup here, or "max"
        return 0


def _memory(workers: int = 1) -> int:
    usable = usable_memory()
    least = min(_LEAST_BYTES, usable * 3 // 4)
    return min(_MOST_BYTES, max(least, usable // _SHARE // workers))


def check_machine() -> None:
    """Raise if this process may not take the memory that a child needs.

    Otherwise a file would be blamed for it.

    Raises:
        StorageError: the limit of the address space or of data is too low, and cannot be raised
            here.
    """
    import resource  # noqa: PLC0415  not on every platform

    needed = _START_BYTES + FIRST.memory_b
    for kind, name in ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")):
        _, limit = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < needed:
            msg = (
                f"this process may take {limit:,} bytes of memory ({name}); reading files needs "
                f"{needed:,}. Raise the "
                "limit, then run the same command again."
            )
            raise StorageError(msg)


@dataclass(frozen=True)
class Limits:
    """The limits of one child.

    Args:
        item_s: seconds without a heartbeat; a child that is silent for longer is killed.
        memory_b: bytes beyond what the interpreter starts with, of address space or of writable
            memory (see `child.limit_memory`). Default: half of the machine's memory, at least 2 GiB
            (or three quarters of the machine's) and at most 8 GiB.
        own_code: whether the user's functions run in the child: they may take any time.
    """

    item_s: float = 60.0
    memory_b: int = field(default_factory=_memory)
    own_code: bool = False

    @staticmethod
    def of_file(item_s: float, nbytes: int) -> Limits:
        """Return the limits of a child that may hold a whole file of this size in memory."""
        return Limits(item_s, WHOLE.memory(nbytes))

    def task_s(self, silence_s: float, items: int, nbytes: int) -> float:
        """Return the wall-clock limit [s] of a task whose child still sends heartbeats.

        The limit applies to a child that reads untrusted data; it is infinite for `own_code`.

        Args:
            silence_s: allowed seconds without a heartbeat.
            items: items of the task.
            nbytes: bytes of the task's files, as far as known.

        Notes:
            The limit is 20 times `silence_s` and more even for a single item, so that a slow disk
            does not reach it. A task of many items that reaches it is not lost: its items are tried
            one by one.
        """
        if self.own_code:
            return math.inf
        return _SILENCES * silence_s + items * silence_s / _PER_SILENCE + nbytes / WHOLE.rate


@dataclass(frozen=True)
class ItemBudget:
    """The resources of an item: a base, plus more for every byte of its files.

    Args:
        memory_b: bytes of writable memory for an empty file.
        cpu_s: seconds of processor time for an empty file.
        rate: bytes of a file that allow one more second.
        silence_s: seconds of wall-clock time without a heartbeat, if fewer than `Limits.item_s`.
        most_b: bytes of memory for a file of any size.
    """

    memory_b: int
    cpu_s: float
    rate: float
    silence_s: float = float("inf")
    most_b: int = _MOST_BYTES

    def memory(self, nbytes: int) -> int:
        """Return the bytes of memory for an item whose files have `nbytes` bytes."""
        return min(self.memory_b + _PER_BYTE * nbytes, self.most_b)

    @property
    def memory_terms(self) -> list[int]:
        """The terms of `memory` for the child: base, step per byte, maximum."""
        return [self.memory_b, _PER_BYTE, self.most_b]

    def seconds(self, nbytes: int) -> float:
        """Return the seconds of processor time for an item whose files have `nbytes` bytes."""
        return self.cpu_s + nbytes / self.rate


# Good files take a tenth of the first budget. The second one fits volumes and masks that are stored
# 500:1 (docs/limits.md).
FIRST = ItemBudget(768 << 20, 3.0, 500e3)
WHOLE = ItemBudget(1536 << 20, 10.0, 100e3)
# For items like others that failed, and for all items once much time is lost. In the latter case
# its limit of silence does not apply.
BRIEF = ItemBudget(768 << 20, 1.0, 500e3, 10.0)

FailureClass = tuple[str, int, str]  # suffix, magnitude of the size, kind of failure


class FailureHistory:
    """The failures of one run so far, shared by all its workers.

    Args:
        workers: number of children that work at once.
        same: returns a key of the item's file, equal for links to one file; None: no two items
            share a file.
    """

    def __init__(self, workers: int = 1, same: Callable[[Any], Hashable] | None = None) -> None:
        self._lock = threading.Lock()
        self._alike: Counter[FailureClass] = Counter()
        self._left_s, self._lost_s = OFFENCES_S * workers, LOST_S * workers
        self._share_b = _memory(workers)
        self._same = same
        # item, description of the failure, kind of failure
        self._ended: dict[Hashable, tuple[Any, str, str]] = {}
        # sizes of those items: `same` is only called for an item of such a size
        self._sizes: set[int] = set()

    def budget(self, item: Any) -> ItemBudget:
        """Return the budget of an item's first try."""
        with self._lock:
            often_failed = any(
                self._alike[_failure_class(item, kind)] >= ALIKE
                for kind in ("busy", "silent", "endless")
            )
            time_lost = self._lost_s <= 0
        budget = BRIEF if often_failed or time_lost else FIRST
        # With only much time lost, silence keeps its limit: waiting for a slow disk is no offence.
        silence_s = BRIEF.silence_s if often_failed else FIRST.silence_s
        return replace(budget, silence_s=silence_s, most_b=self._share_b)

    def failed(self, item: Any, kind: str, seconds: float) -> None:
        """Record that an item failed for good, and how long that took."""
        with self._lock:
            self._alike[_failure_class(item, kind)] += 1
            self._left_s -= seconds

    def lost(self, kind: str, seconds: float) -> None:
        """Record the duration of a try that ended in a death of this kind."""
        with self._lock:
            self._lost_s -= seconds if kind in LIMITS else 0.0

    def ended(self, item: Any, how: str, kind: str, *, less: bool) -> None:
        """Record that an item hit a limit, so that no link to its file is tried.

        Args:
            item, how, kind: the item, the description of its failure, and the limit.
            less: whether the item was tried without a part that may be to blame (a tokenizer).
        """
        if self._same is not None:
            with self._lock:
                self._ended.setdefault((less, self._same(item)), (item, how, kind))
                self._sizes.add(_size(item))

    def known(self, item: Any, *, less: bool) -> tuple[str, str]:
        """Return (description, kind) if the item's file has already hit a limit; else "", ""."""
        if self._same is None or _size(item) not in self._sizes:
            return "", ""
        key = less, self._same(item)
        with self._lock:
            first_item, how, kind = self._ended.get(key, (None, "", ""))
        if first_item is None or first_item["path"] == item["path"]:
            return how, kind
        return f"not read, as it is the same file as {first_item['path']}: {how}", kind

    def refused(self, item: Any, kind: str) -> str:
        """Return why an item over its first budget gets no second try; "" if it gets one."""
        too = _REFUSED[kind]
        with self._lock:
            if self._alike[_failure_class(item, kind)] >= ALIKE:
                return f"not read, like {ALIKE} others of its kind and size: it {too}"
            if self._left_s <= 0:
                return f"not read, as {OFFENCES_S:g} s for each worker went into others: it {too}"
        return ""


def _failure_class(item: Any, kind: str) -> FailureClass:
    if not isinstance(item, dict):
        return "", 0, kind
    suffixes = "".join(PurePosixPath(str(item.get("path", ""))).suffixes[-2:]).lower()
    return suffixes, _size(item).bit_length() // 2, kind


def _size(item: Any) -> int:
    return int(item.get("nbytes") or 0) if isinstance(item, dict) else 0


class OutOfTimeError(TimeoutError):
    """The body took more processor time than allowed."""


@contextmanager
def limited_time(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` when the body uses more than `seconds` of the process's CPU time.

    The time of all threads of the process counts.

    Notes:
        Works only in the main thread, where Python handles signals, and only while SIGVTALRM has
        its default handler. Elsewhere the body runs without a limit.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGVTALRM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGVTALRM, _end)
    # repeats, because a library may catch the first exception
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds / 10)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def _end(*_: object) -> None:
    raise OutOfTimeError


def written_memory() -> int:
    """Return the bytes of writable memory of this process."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[5]) * mmap.PAGESIZE


@contextmanager
def limited_memory(nbytes: int) -> Iterator[None]:
    """Raise `MemoryError` when the body takes `nbytes` bytes more than the process has now.

    Notes:
        Only in a process whose memory is limited by the size of a file (`BY_SIZE`): limits of other
        processes are not ours to change.
    """
    if not BY_SIZE:
        yield
        return
    import resource  # noqa: PLC0415  not on every platform, needed in children only

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    least = written_memory() + nbytes
    resource.setrlimit(resource.RLIMIT_DATA, (least if soft < 0 else min(soft, least), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
