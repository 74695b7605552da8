"""Batches made ahead of the loop by threads, in order."""

from __future__ import annotations

import atexit
import gc
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from queue import Empty, SimpleQueue
from threading import Thread, current_thread, get_ident, main_thread
from time import perf_counter
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
import torch

from datacheck.errors import UsageError
from datacheck.runtime.aligned import empty
from datacheck.runtime.machine import usable_cpus

Make = Callable[[Sequence[int]], Any]

QUICK = 2e-4  # seconds; to hand a batch to a thread and back takes as long
_MOST_BATCHES = 16  # quick batches that a thread is given at once
_QUICK_AFTER_SLOW = 20  # quick batches that must follow slow ones, at least


class _TaskSize:
    """How many batches a thread is given at once: more than one where they are made sooner than handed over.

    Args:
        most: how many at most.
    """

    def __init__(self, most: int) -> None:
        self.together = 1
        self._most = most
        self._owed = 0.0

    def took(self, seconds: float, batches: int) -> None:
        """Learn how long so many batches took a thread."""
        over = seconds - batches * QUICK
        if over > 0 and batches > 1:  # beside other threads they seemed quick
            over = _QUICK_AFTER_SLOW * QUICK
        self._owed = min(_QUICK_AFTER_SLOW * QUICK, max(0.0, self._owed + over))
        self.together = 1 if self._owed else min(self._most, 2 * self.together)


class _IndexQueue:
    """The indices of a pass: some can be put back in front, and an error of theirs waits for its turn."""

    def __init__(self, indices: Iterator[Sequence[int]]) -> None:
        self._indices = indices
        self._front: deque[Sequence[int]] = deque()
        self._over = False
        self.error: Exception | None = None

    def draw(self, count: int) -> list[Sequence[int]]:
        """Return those of the next so many batches; fewer at the end."""
        asked: list[Sequence[int]] = []
        while len(asked) < count:
            if self._front:
                asked.append(self._front.popleft())
                continue
            if self._over:
                break
            try:
                asked.append(next(self._indices))
            except StopIteration:
                self._over = True
            except Exception as error:  # noqa: BLE001  raised behind the batches that were drawn before
                self._over, self.error = True, error
        return asked

    def put_back(self, asked: Sequence[Sequence[int]]) -> None:
        """Take back the last of what was drawn."""
        self._front.extendleft(reversed(asked))


@dataclass(slots=True)
class _TaskResult:
    """What a thread has made of what it was given: batches, the error that ended it, how long it took, what is left."""

    batches: deque[Any]
    error: BaseException | None
    seconds: float
    left: Sequence[Sequence[int]]

    @property
    def count(self) -> int:
        """How many it tried."""
        return len(self.batches) + (self.error is not None)


def _run_task(make: Make, asked: Sequence[Sequence[int]]) -> _TaskResult:
    """Make batches; where they turn out to be slow, others shall make the rest."""
    begun, batches, error, seconds = perf_counter(), deque[Any](), None, 0.0
    try:
        for one in asked:
            if seconds > len(asked) * QUICK:
                break
            batches.append(make(one))
            seconds = perf_counter() - begun
    except BaseException as raised:  # noqa: BLE001  raised in its place, by the loop
        error = raised
    try:
        return _TaskResult(
            batches, error, perf_counter() - begun, asked[len(batches) :] if error is None else ()
        )
    finally:
        del error


class _ThreadPool:
    """Threads that make batches; each is started when it is needed.

    Args:
        make: makes a batch.
        most: how many at most.

    Notes:
        Nothing is handed over under a lock of `threading` or `concurrent.futures`: a Ctrl-C just
        behind its function of Python that takes the lock leaves it locked, and a thread that wants
        it is waited for without end.
    """

    def __init__(self, make: Make, most: int) -> None:
        self._make, self._most = make, most
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._threads: list[Thread] = []

    def submit(self, asked: Sequence[Sequence[int]], beside: int) -> SimpleQueue[_TaskResult]:
        """Let a thread make batches, beside so many that have others to make; return where what it made will be."""
        answer: SimpleQueue[_TaskResult] = SimpleQueue()
        self._tasks.put((asked, answer))
        if len(self._threads) <= min(beside, self._most - 1):
            dropped = ref(
                self, self._tasks.put
            )  # ends them, too, where an interrupt comes before `end`
            work, name = (
                (self._make, self._tasks, dropped),
                f"datacheck-loader_{len(self._threads)}",
            )
            thread = Thread(target=_work, args=work, name=name, daemon=True)
            self._threads.append(thread)
            _STARTED[ref(thread, _STARTED.pop)] = self._tasks
            thread.start()
        return answer

    def check(self) -> None:
        """Raise where nobody would answer.

        Raises:
            UsageError: its threads are those of the process before a fork, or ended with the
                interpreter.

        Notes:
            At an exit other threads may wait: it is theirs, too.
        """
        if ref(self._threads[0]) not in _STARTED and current_thread() is main_thread():
            msg = (
                "the threads of this pass ended with the interpreter, or are in another process: "
                "begin a pass there"
            )
            raise UsageError(msg)

    def end(self, *, wait: bool) -> None:
        """Let threads end behind what they are making; a thread of these waits for none."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        self._tasks.put(None)
        if wait and get_ident() not in [thread.ident for thread in self._threads]:
            _join(self._threads)


def _work(make: Make, tasks: SimpleQueue[Any], _dropped: ref[_ThreadPool]) -> None:
    while isinstance(task := tasks.get(), tuple):
        task[1].put(_run_task(make, task[0]))
        del task
    tasks.put(task)  # for the next thread


def _join(threads: Sequence[Thread]) -> None:
    for thread in threads:
        if thread.is_alive():
            thread.join()


# No WeakKeyDictionary, which forgets by a function of Python: a Ctrl-C that comes in it is raised
# there, and lost.
_STARTED: dict[ref[Thread], SimpleQueue[Any]] = {}


@atexit.register
def _end_all() -> None:
    """Leave no thread to work while the interpreter is taken down."""
    threads = []
    for one, tasks in _STARTED.copy().items():
        tasks.put(None)
        threads += [thread] if (thread := one()) else []
    _STARTED.clear()
    _join(threads)


os.register_at_fork(after_in_child=_STARTED.clear)


# Its last key is the phase that the collector has told; no function of Python, in which a Ctrl-C
# that comes while it works would be raised, and lost.
_COLLECTOR_PHASES = OrderedDict.fromkeys(["start", "stop"])
_COLLECTOR_CALLBACK: Any = (
    _COLLECTOR_PHASES.move_to_end
)  # is given the phase and a dict that has entries: moves it to the end
gc.callbacks.append(_COLLECTOR_CALLBACK)


def prefetch_batches(
    make: Make, indices: Iterator[Sequence[int]], *, threads: int, ahead: int, together: bool
) -> Generator[Any]:
    """Yield batches in the order of their indices, each made by one of the threads.

    Args:
        make: makes a batch; is called by several threads at once.
        indices: of each batch.
        threads: how many; they end with the generator.
        ahead: how many batches are asked for beyond the one that the loop has.
        together: whether more may be asked for, so that one thread makes several that are quick.

    Raises:
        Exception: that of a batch, or of the indices, behind the batches before it.
        UsageError: this process is a fork of the one that began the pass, or the interpreter ends.

    Notes:
        Who closes or drops it waits for the threads, which finish what they are making. One of
        these does not, nor does
        anybody while the collector works: that does so in any thread at any time, also where a lock
            is held that one of
        these wants.
    """
    line, waiting = _IndexQueue(indices), deque[SimpleQueue[_TaskResult]]()
    pace = _TaskSize(_MOST_BATCHES if together else 1)
    pool = _ThreadPool(make, threads)

    def ask(most: int) -> None:
        while len(waiting) < (most if pace.together == 1 else 1) and (
            asked := line.draw(pace.together)
        ):
            waiting.append(pool.submit(asked, len(waiting)))

    try:
        while True:
            ask(ahead + 1)
            if not waiting:
                break
            pool.check()
            at_once = min(
                threads, len(waiting)
            )  # quick ones wait for one another, for the interpreter
            made = waiting.popleft().get()
            pace.took(made.seconds / at_once, made.count)
            line.put_back(made.left)  # of several: then nothing else is waiting
            ask(ahead)
            while made.batches:
                yield made.batches.popleft()
            _raise_error(made)
        _raise_error(line)
    finally:
        waiting.clear()
        line.error = None
        works = [*_COLLECTOR_PHASES][
            -1
        ] == "start"  # in one step: another thread may collect meanwhile
        pool.end(wait=not works)


def _raise_error(of: _TaskResult | _IndexQueue) -> None:
    """Raise the error of a batch or of the indices, if there is one, and forget it: its traceback holds `of`."""
    error, of.error = of.error, None
    try:
        if error is not None:
            raise error
    finally:
        del error


Array = np.ndarray[Any, Any]
Memory: TypeAlias = Callable[[str, tuple[int, ...], str], torch.Tensor]

_MIN_POOLED_BYTES = 1 << 18  # bytes; below, malloc has them at hand
_GROWTH = 1.125  # ragged batches differ: the next is a little larger
_SPARE_BYTES = 1 << 25  # bytes of a field, however many batches that is


class _MemoryBlock:
    """Bytes, and where they lie: NumPy takes a while to say it."""

    __slots__ = ("interface", "of", "size")

    def __init__(self, size: int) -> None:
        self.of, self.size = empty([size], np.uint8), size
        self.interface = self.of.__array_interface__


class _LentBlock:
    """Bytes that go home when nothing looks at them any more."""

    def __init__(self, memory: _MemoryBlock, home: deque[_MemoryBlock], spare: int) -> None:
        self._memory, self._home, self._spare = memory, home, spare
        self.__array_interface__ = memory.interface

    def __del__(self) -> None:
        home = self._home
        home.append(self._memory)
        with suppress(IndexError, RuntimeError):  # another thread has just taken or brought some
            while len(home) > self._spare and sum(one.size for one in tuple(home)) > _SPARE_BYTES:
                home.popleft()


class Buffers:
    """Memory for tensors, by field.

    Args:
        spare: of how many batches memory is kept for each field while nothing refers to it; of more
            where all of them have 32 MiB at most.

    Notes:
        A tensor is the caller's for as long as it, a view of it or an array of it is referred to.
        Threads may share this. Memory that was lent out outlives it.
    """

    def __init__(self, spare: int = 1) -> None:
        self._spare = spare
        self._free: dict[str, deque[_MemoryBlock]] = {}

    def empty(self, name: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """Return a contiguous tensor of that NumPy dtype that holds anything."""
        wanted = prod(shape) * np.dtype(dtype).itemsize
        if wanted < _MIN_POOLED_BYTES:
            return torch.from_numpy(np.empty(shape, dtype))
        home = self._free.setdefault(name, deque())
        memory = _taken(home, wanted)
        if memory is None:
            memory = _MemoryBlock(int(wanted * _GROWTH))
        lent: Array = np.asarray(_LentBlock(memory, home, self._spare))
        return torch.from_numpy(np.ndarray(shape, dtype, lent))


def _taken(home: deque[_MemoryBlock], wanted: int) -> _MemoryBlock | None:
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


_PART = 1 << 24  # bytes; of less, starting a thread takes longer than it saves
_MOST_COPY_THREADS = 8  # threads; more copy no faster


def threads_here() -> int:
    """Return how many threads may copy; 1 in a worker of PyTorch, and where the caller is a thread itself."""
    if threading.current_thread() is not threading.main_thread():
        return 1
    allowed: int = torch.get_num_threads()
    return min(_MOST_COPY_THREADS, allowed, usable_cpus())


def parallel_copy(
    copy: Callable[[int, int], object], count: int, size: int, *, apart: bool = True
) -> None:
    """Call ``copy(first, stop)`` until each of `count` samples is copied.

    Args:
        copy: copies samples [first, stop) of a batch; may be called by several threads at once.
        count: samples of the batch.
        size: their bytes.
        apart: whether parts may be copied apart; else `copy` is called once.

    Raises:
        Exception: that of the first part that failed; all parts have ended then, and no thread is
            left.

    Notes:
        Of two damaged samples that one is named which a part comes upon first: that depends on the
        number of threads.
    """
    parts = min(threads_here(), count, size // _PART) if apart and size >= 2 * _PART else 1
    if parts < 2:
        copy(0, count)
        return
    ends = [count * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        try:
            rest = pool.map(copy, ends[1:-1], ends[2:])
        except RuntimeError:  # the system, or an interpreter that ends, grants no thread
            copy(0, count)
            return
        copy(0, ends[1])
    for _ in rest:  # raises what a part did
        pass
