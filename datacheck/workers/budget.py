"""What one item may cost: limits of a child, budgets by the size of files, and offenders that are not tried again.

Every item is tried with a small budget first. One that exceeds it is tried once more, alone, with
all that its size justifies. After a few failures that look alike, or a minute spent on failures,
items that exceed the small budget are named without a second try. After ten minutes that budget is
smaller. Links to a file that failed are not tried. A good file of ordinary cost never meets any of
this.
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

_MOST_BYTES = 8 << 30  # of memory for a child: a value of 4 GiB, and room to measure it
_LEAST_BYTES = 2 << 30
_START_BYTES = 512 << 20  # of address space of a child with all its libraries
_SHARE = 2  # a child takes at most this part of the machine's memory
_PER_BYTE = 32  # memory for each byte of a file: JSON of small objects becomes 25
_SILENCES, _PER_SILENCE = (
    20,
    6,
)  # limits of silence that a task may take; items for each further one
BY_SIZE = False  # whether the memory of the item that this process is at is limited by its size
LIMITS = {
    "memory",
    "busy",
    "silent",
    "endless",
}  # kinds of failures; several good items may exceed one together
ALIKE = 5  # failures of one kind after which others like them get no second try
OFFENCES_S = 60.0  # seconds for each worker that failures may take in all
LOST_S = 600.0  # seconds for each worker that tries which ended by a limit may take before first tries are brief


def usable_memory() -> int:
    """Return how many bytes of memory this process may use: those of the machine, or of its control group."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found[0]
    for line in groups:
        _, kinds, path = line.split(":", 2)
        root, name = Path("/sys/fs/cgroup"), "memory.max"
        if kinds:
            root, name = root / "memory", "memory.limit_in_bytes"
        if kinds and "memory" not in kinds.split(","):
            continue
        place = root / path.lstrip("/")
        found += [
            _number(folder / name)
            for folder in (place, *place.parents)
            if folder.is_relative_to(root)
        ]
    return min(size for size in found if size > 0)


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such group here, or "max"
        return 0


def _memory(workers: int = 1) -> int:
    usable = usable_memory()
    least = min(_LEAST_BYTES, usable * 3 // 4)
    return min(_MOST_BYTES, max(least, usable // _SHARE // workers))


def check_machine() -> None:
    """Raise where this process may not take the memory that a child needs: no file is to blame for that.

    Raises:
        StorageError: a limit of the address space or of data is too low, and cannot be raised here.
    """
    import resource  # noqa: PLC0415  not on every platform

    needed = _START_BYTES + FIRST.memory_b
    for kind, name in ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")):
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY and most < needed:
            msg = (
                f"this process may take {most:,} bytes of memory ({name}); reading files needs "
                f"{needed:,}. Raise the "
                "limit, then run the same command again."
            )
            raise StorageError(msg)


@dataclass(frozen=True)
class Limits:
    """What one child may use.

    Args:
        item_s: seconds without a sign of life; a child that is silent for longer is killed.
        memory_b: bytes beyond what the interpreter starts with: of address space, or as
            `limit_memory` is told; by default half of the machine's memory, at least 2 GiB (or
            three quarters of it) and at most 8 GiB.
        own_code: whether functions of the user run in the child: they may take any time.
    """

    item_s: float = 60.0
    memory_b: int = field(default_factory=_memory)
    own_code: bool = False

    def task_s(self, silence_s: float, items: int, nbytes: int) -> float:
        """Return the seconds by the clock after which a doubted child that still gives signs of life is ended.

        Args:
            silence_s: without a sign of life.
            items: of the task.
            nbytes: of the files of the task, as far as they are known.

        Notes:
            20 times the silence and more for an item, even if only a slow disk holds it up. A task
            of many items that
            meets the limit is not lost: they are tried one by one.
        """
        if self.own_code:
            return math.inf
        return _SILENCES * silence_s + items * silence_s / _PER_SILENCE + nbytes / WHOLE.rate


@dataclass(frozen=True)
class ItemBudget:
    """What an item may take: a base, and more for every byte of its files.

    Args:
        memory_b: bytes of memory that it can write, for a file of no bytes.
        cpu_s: seconds of processor time, for a file of no bytes.
        rate: bytes for which one more second is allowed.
        silence_s: seconds by the clock without a sign of life, where they are fewer than the
            limit's.
        most_b: bytes of memory for a file of any size.
    """

    memory_b: int
    cpu_s: float
    rate: float
    silence_s: float = float("inf")
    most_b: int = _MOST_BYTES

    def memory(self, nbytes: int) -> int:
        """Return the bytes of memory for an item whose files have so many bytes."""
        return min(self.memory_b + _PER_BYTE * nbytes, self.most_b)

    @property
    def memory_terms(self) -> list[int]:
        """What a child needs to know: `memory` as its base, its step for each byte, and its most."""
        return [self.memory_b, _PER_BYTE, self.most_b]

    def seconds(self, nbytes: int) -> float:
        """Return the seconds of processor time for an item whose files have so many bytes."""
        return self.cpu_s + nbytes / self.rate


FIRST = ItemBudget(768 << 20, 3.0, 500e3)
WHOLE = ItemBudget(1536 << 20, 10.0, 100e3)
BRIEF = ItemBudget(
    768 << 20, 1.0, 500e3, 10.0
)  # like others that failed; without its silence when much time is lost

FailureClass = tuple[str, int, str]  # ending, magnitude of the size, kind of failure


class FailureHistory:
    """What failed so far in one run, for all its workers.

    Args:
        workers: how many children work at once.
        same: returns what an item reads (the same for links to one file); None: no two items read
            the same.
    """

    def __init__(self, workers: int = 1, same: Callable[[Any], Hashable] | None = None) -> None:
        self._lock = threading.Lock()
        self._alike: Counter[FailureClass] = Counter()
        self._left_s, self._lost_s = OFFENCES_S * workers, LOST_S * workers
        self._share_b = _memory(workers)
        self._same = same
        self._ended: dict[
            Hashable, tuple[Any, str, str]
        ] = {}  # item, what was said of it, kind of failure
        self._sizes: set[int] = set()  # of those: only an item of such a size is looked at

    def budget(self, item: Any) -> ItemBudget:
        """Return the budget of an item's first try."""
        with self._lock:
            slow = any(
                self._alike[_failure_class(item, kind)] >= ALIKE
                for kind in ("busy", "silent", "endless")
            )
            late = self._lost_s <= 0
        budget = BRIEF if slow or late else FIRST
        silence_s = (
            BRIEF.silence_s if slow else FIRST.silence_s
        )  # a file that waits for a disk loses no time
        return replace(budget, silence_s=silence_s, most_b=self._share_b)

    def failed(self, item: Any, kind: str, seconds: float) -> None:
        """Note that an item failed for good, and how long that took."""
        with self._lock:
            self._alike[_failure_class(item, kind)] += 1
            self._left_s -= seconds

    def lost(self, kind: str, seconds: float) -> None:
        """Note how long a try took that ended in a death of this kind."""
        with self._lock:
            self._lost_s -= seconds if kind in LIMITS else 0.0

    def ended(self, item: Any, how: str, kind: str, *, less: bool) -> None:
        """Note that an item has ended by a limit, so that no link to its file is tried.

        Args:
            item, how, kind: which, what is said of it, and by which limit.
            less: it was tried without what may be to blame in its place (a tokenizer).
        """
        if self._same is not None:
            with self._lock:
                self._ended.setdefault((less, self._same(item)), (item, how, kind))
                self._sizes.add(_size(item))

    def known(self, item: Any, *, less: bool) -> tuple[str, str]:
        """Return what to say of an item that reads what has ended by a limit, and by which; "", "" of any other."""
        if self._same is None or _size(item) not in self._sizes:
            return "", ""
        key = less, self._same(item)
        with self._lock:
            first, how, kind = self._ended.get(key, (None, "", ""))
        if first is None or first["path"] == item["path"]:
            return how, kind
        return f"not read, as it is the same file as {first['path']}: {how}", kind

    def refused(self, item: Any, kind: str) -> str:
        """Return why an item that exceeds its first budget is not tried again, "" where it is."""
        too = "takes too long" if kind == "busy" else "needs too much memory"
        with self._lock:
            if self._alike[_failure_class(item, kind)] >= ALIKE:
                return f"not read, like {ALIKE} others of its kind and size: it {too} for its size"
            if self._left_s <= 0:
                return (
                    f"not read, as {OFFENCES_S:g} s for each worker went into others: it {too} "
                    f"for its size"
                )
        return ""


def _failure_class(item: Any, kind: str) -> FailureClass:
    if not isinstance(item, dict):
        return "", 0, kind
    suffixes = "".join(PurePosixPath(str(item.get("path", ""))).suffixes[-2:]).lower()
    return suffixes, _size(item).bit_length() // 2, kind


def _size(item: Any) -> int:
    return int(item.get("nbytes") or 0) if isinstance(item, dict) else 0


class OutOfTimeError(TimeoutError):
    """What was done took more processor time than it may."""


@contextmanager
def limited_time(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` when the body uses more processor time than this, counted over all threads of the process.

    Notes:
        In the main thread only, where Python handles signals, and where nobody else waits for this
        one.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGVTALRM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGVTALRM, _end)
    signal.setitimer(
        signal.ITIMER_VIRTUAL, seconds, seconds / 10
    )  # once more, where somebody caught the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def _end(*_: object) -> None:
    raise OutOfTimeError


def written_memory() -> int:
    """Return how many bytes of memory this process can write."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[5]) * mmap.PAGESIZE


@contextmanager
def limited_memory(nbytes: int) -> Iterator[None]:
    """Raise `MemoryError` when the body takes so many bytes more than there are now.

    Notes:
        In a process whose memory is limited by the size of a file (`BY_SIZE`): the limit of any
        other is not ours.
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
