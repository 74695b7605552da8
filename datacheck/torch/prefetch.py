"""Makes batches in threads ahead of the loop, in order, in reused memory."""

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

QUICK = 2e-4  # seconds; handing a batch to a thread and back takes as long
_MOST_BATCHES = 16  # quick batches in one task
_QUICK_AFTER_SLOW = 20  # quick batches required after slow ones, at least


class _TaskSize:
    """How many batches a task has: several while making a batch is quicker than handing it over.

    Args:
        most: upper limit.
    """

    def __init__(self, most: int) -> None:
        self.together = 1
        self._most = most
        self._owed = 0.0

    def took(self, seconds: float, batches: int) -> None:
        """Update the size after a thread took `seconds` for `batches` batches."""
        excess = seconds - batches * QUICK
        if excess > 0 and batches > 1:  # they only seemed quick while other threads shared the load
            excess = _QUICK_AFTER_SLOW * QUICK
        self._owed = min(_QUICK_AFTER_SLOW * QUICK, max(0.0, self._owed + excess))
        self.together = 1 if self._owed else min(self._most, 2 * self.together)


class _IndexQueue:
    """The indices of a pass; some can be put back in front.

    An error of the iterator is kept until the batches drawn before it are served.
    """

    def __init__(self, indices: Iterator[Sequence[int]]) -> None:
        self._indices = indices
        self._front: deque[Sequence[int]] = deque()
        self._over = False
        self.error: Exception | None = None

    def draw(self, count: int) -> list[Sequence[int]]:
        """Return the indices of the next `count` batches; fewer at the end."""
        index_batches: list[Sequence[int]] = []
        while len(index_batches) < count:
            if self._front:
                index_batches.append(self._front.popleft())
                continue
            if self._over:
                break
            try:
                index_batches.append(next(self._indices))
            except StopIteration:
                self._over = True
            except Exception as error:  # noqa: BLE001  raised after the batches drawn before
                self._over, self.error = True, error
        return index_batches

    def put_back(self, asked: Sequence[Sequence[int]]) -> None:
        """Put back the indices drawn last."""
        self._front.extendleft(reversed(asked))


@dataclass(slots=True)
class _CopyResult:
    """The result of a task: batches, the error that ended it, its time, and the rest."""

    batches: deque[Any]
    error: BaseException | None
    seconds: float
    left: Sequence[Sequence[int]]

    @property
    def count(self) -> int:
        """The number of batches tried."""
        return len(self.batches) + (self.error is not None)


def _run_task(make: Make, index_batches: Sequence[Sequence[int]]) -> _CopyResult:
    """Make batches; stop early if they turn out to be slow, so that other threads take the rest."""
    begun = perf_counter()
    batches = deque[Any]()
    error = None
    seconds = 0.0
    try:
        for indices in index_batches:
            if seconds > len(index_batches) * QUICK:
                break
            batches.append(make(indices))
            seconds = perf_counter() - begun
    except BaseException as raised:  # noqa: BLE001  the loop raises it in its place
        error = raised
    try:
        return _CopyResult(
            batches,
            error,
            perf_counter() - begun,
            index_batches[len(batches) :] if error is None else (),
        )
    finally:
        del error


class _ThreadPool:
    """Threads that make batches; each starts when it is needed.

    Args:
        make: makes a batch.
        most: upper limit of threads.

    Notes:
        Nothing is handed over under a lock of `threading` or `concurrent.futures`: these take the
        lock in Python code, and a Ctrl-C right after that leaves it locked, so that a thread that
        wants it waits forever.
    """

    def __init__(self, make: Make, most: int) -> None:
        self._make, self._most = make, most
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._threads: list[Thread] = []

    def submit(self, asked: Sequence[Sequence[int]], beside: int) -> SimpleQueue[_CopyResult]:
        """Give a thread batches, while `beside` tasks are pending; return the result's queue."""
        answer: SimpleQueue[_CopyResult] = SimpleQueue()
        self._tasks.put((asked, answer))
        if len(self._threads) <= min(beside, self._most - 1):
            # Also ends the threads if an interrupt comes before `end`.
            dropped = ref(self, self._tasks.put)
            work = (self._make, self._tasks, dropped)
            name = f"datacheck-loader_{len(self._threads)}"
            thread = Thread(target=_work, args=work, name=name, daemon=True)
            self._threads.append(thread)
            _STARTED[ref(thread, _STARTED.pop)] = self._tasks
            thread.start()
        return answer

    def check(self) -> None:
        """Raise if no thread would answer.

        Raises:
            UsageError: the threads belong to the process before a fork, or ended with the
                interpreter.

        Notes:
            Only the main thread is checked: at exit, other threads may wait here, too.
        """
        if ref(self._threads[0]) not in _STARTED and current_thread() is main_thread():
            msg = (
                "the threads of this pass ended with the interpreter, or are in another process: "
                "begin a pass there"
            )
            raise UsageError(msg)

    def end(self, *, wait: bool) -> None:
        """End the threads after the batches that they are making; a pool thread does not wait."""
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


# Not a WeakKeyDictionary: its callback is Python code, and a Ctrl-C raised inside it is lost.
_STARTED: dict[ref[Thread], SimpleQueue[Any]] = {}


@atexit.register
def _end_all() -> None:
    """End all threads before the interpreter is torn down."""
    threads = []
    for reference, tasks in _STARTED.copy().items():
        tasks.put(None)
        threads += [thread] if (thread := reference()) else []
    _STARTED.clear()
    _join(threads)


os.register_at_fork(after_in_child=_STARTED.clear)


# The last key is the phase that the garbage collector reported last. A method in C, not a Python
# function: a Ctrl-C raised inside a callback in Python would be lost.
_COLLECTOR_PHASES = OrderedDict.fromkeys(["start", "stop"])
# Called with the phase and a dict that is not empty (true as `last`): moves the phase to the end.
_COLLECTOR_CALLBACK: Any = _COLLECTOR_PHASES.move_to_end
gc.callbacks.append(_COLLECTOR_CALLBACK)


def prefetch_batches(
    make: Make, indices: Iterator[Sequence[int]], *, threads: int, ahead: int, together: bool
) -> Generator[Any]:
    """Yield batches in the order of their indices, each made by one of the threads.

    Args:
        make: makes a batch; several threads call it at once.
        indices: the indices of each batch.
        threads: number of threads; they end with the generator.
        ahead: how many batches are requested beyond the one that the loop has.
        together: whether more may be requested, so that one thread makes several quick batches.

    Raises:
        Exception: the error of a batch, or of the indices, after the batches before it.
        UsageError: this process is a fork of the one that began the pass, or the interpreter ends.

    Notes:
        Closing or dropping the generator waits for the threads, which finish the batches that they
        are making. Two callers do not wait: a thread of the pool, and any thread while the garbage
        collector runs, because it may run while the thread holds a lock that the pool needs.
    """
    index_queue = _IndexQueue(indices)
    waiting = deque[SimpleQueue[_CopyResult]]()
    pace = _TaskSize(_MOST_BATCHES if together else 1)
    pool = _ThreadPool(make, threads)

    def ask(most: int) -> None:
        while len(waiting) < (most if pace.together == 1 else 1) and (
            index_batches := index_queue.draw(pace.together)
        ):
            waiting.append(pool.submit(index_batches, len(waiting)))

    try:
        while True:
            ask(ahead + 1)
            if not waiting:
                break
            pool.check()
            # Quick batches wait for one another: they compete for the interpreter lock.
            at_once = min(threads, len(waiting))
            result = waiting.popleft().get()
            pace.took(result.seconds / at_once, result.count)
            index_queue.put_back(result.left)  # of a task of several: no other task is pending
            ask(ahead)
            while result.batches:
                yield result.batches.popleft()
            _raise_error(result)
        _raise_error(index_queue)
    finally:
        waiting.clear()
        index_queue.error = None
        # Copied in one step: another thread may collect meanwhile.
        works = [*_COLLECTOR_PHASES][-1] == "start"
        pool.end(wait=not works)


def _raise_error(of: _CopyResult | _IndexQueue) -> None:
    """Raise and clear the error of a task or of the indices, if any: its traceback holds `of`."""
    error, of.error = of.error, None
    try:
        if error is not None:
            raise error
    finally:
        del error


Array = np.ndarray[Any, Any]
Memory: TypeAlias = Callable[[str, tuple[int, ...], str], torch.Tensor]

_MIN_POOLED_BYTES = 1 << 18  # bytes; malloc serves smaller ones quickly
_GROWTH = 1.125  # sizes of ragged batches vary: leave room for a slightly larger one
_SPARE_BYTES = 1 << 25  # bytes of a field to keep, whatever the number of batches


class _MemoryBlock:
    """Bytes with their array interface, which NumPy takes a while to build."""

    __slots__ = ("interface", "of", "size")

    def __init__(self, size: int) -> None:
        self.of, self.size = empty([size], np.uint8), size
        self.interface = self.of.__array_interface__


class _LentBlock:
    """Bytes that return to the pool when nothing refers to them."""

    def __init__(self, memory: _MemoryBlock, home: deque[_MemoryBlock], spare: int) -> None:
        self._memory, self._home, self._spare = memory, home, spare
        self.__array_interface__ = memory.interface

    def __del__(self) -> None:
        home = self._home
        home.append(self._memory)
        # Another thread has just taken or returned a block
        with suppress(IndexError, RuntimeError):
            while (
                len(home) > self._spare and sum(block.size for block in tuple(home)) > _SPARE_BYTES
            ):
                home.popleft()


class Buffers:
    """Reusable memory for tensors, by field.

    Args:
        spare: number of unused batches whose memory is kept for each field; more if all together
            take at most 32 MiB.

    Notes:
        A tensor belongs to the caller while anything refers to it, a view of it or an array of it.
        Threads may share a `Buffers`. Lent memory outlives it.
    """

    def __init__(self, spare: int = 1) -> None:
        self._spare = spare
        self._free: dict[str, deque[_MemoryBlock]] = {}

    def empty(self, name: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """Return an uninitialised, contiguous tensor of a NumPy dtype."""
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        if nbytes < _MIN_POOLED_BYTES:
            return torch.from_numpy(np.empty(shape, dtype))
        home = self._free.setdefault(name, deque())
        memory = _taken(home, nbytes)
        if memory is None:
            memory = _MemoryBlock(int(nbytes * _GROWTH))
        lent: Array = np.asarray(_LentBlock(memory, home, self._spare))
        return torch.from_numpy(np.ndarray(shape, dtype, lent))


def _taken(home: deque[_MemoryBlock], nbytes: int) -> _MemoryBlock | None:
    """Return spare memory of a fitting size: one sample must not hold the memory of a batch."""
    try:
        memory = home.pop()
    except IndexError:
        return None
    if nbytes <= memory.size <= 2 * nbytes:
        return memory
    if memory.size > nbytes:
        home.append(memory)
    return None


def pinned(name: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Return a pinned tensor; its memory is reused once it is free and copies of it have ended."""
    del name
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind, device="cpu", pin_memory=True)


_PART = 1 << 24  # bytes; for less, starting a thread costs more than it saves
_MOST_COPY_THREADS = 8  # more threads copy no faster


def threads_here() -> int:
    """Return how many threads may copy; 1 in a worker of PyTorch and outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return 1
    allowed: int = torch.get_num_threads()
    return min(_MOST_COPY_THREADS, allowed, usable_cpus())


def parallel_copy(
    copy: Callable[[int, int], object], count: int, size: int, *, parallel: bool = True
) -> None:
    """Call ``copy(first, stop)`` until each of `count` samples is copied.

    Args:
        copy: copies samples [first, stop) of a batch; several threads may call it at once.
        count: samples of the batch.
        size: bytes of the batch.
        parallel: whether the batch may be copied in parts; else `copy` is called once.

    Raises:
        Exception: the error of the first part that failed; all parts have ended then, and no thread
            is left.

    Notes:
        Of two damaged samples, the error names the one that a part reaches first: that depends on
        the number of threads.
    """
    parts = 1
    if parallel and size >= 2 * _PART:
        parts = min(threads_here(), count, size // _PART)
    if parts < 2:
        copy(0, count)
        return
    ends = [count * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        try:
            pending = pool.map(copy, ends[1:-1], ends[2:])
        except RuntimeError:  # no thread is available from the system or an ending interpreter
            copy(0, count)
            return
        copy(0, ends[1])
    for _ in pending:  # raises the error of a part
        pass
