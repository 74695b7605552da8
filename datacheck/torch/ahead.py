"""Batches made ahead of the loop by threads, in order."""

from __future__ import annotations

import atexit
import gc
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread, current_thread, get_ident, main_thread
from time import perf_counter
from typing import Any
from weakref import ref

from datacheck.errors import UsageError

Make = Callable[[Sequence[int]], Any]

QUICK = 2e-4  # seconds; to hand a batch to a thread and back takes as long
_TOGETHER = 16  # quick batches that a thread is given at once
_REMEMBERED = 20  # quick batches that must follow slow ones, at least


class _Pace:
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
            over = _REMEMBERED * QUICK
        self._owed = min(_REMEMBERED * QUICK, max(0.0, self._owed + over))
        self.together = 1 if self._owed else min(self._most, 2 * self.together)


class _Line:
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
class _Made:
    """What a thread has made of what it was given: batches, the error that ended it, how long it took, what is left."""

    batches: deque[Any]
    error: BaseException | None
    seconds: float
    left: Sequence[Sequence[int]]

    @property
    def count(self) -> int:
        """How many it tried."""
        return len(self.batches) + (self.error is not None)


def _made(make: Make, asked: Sequence[Sequence[int]]) -> _Made:
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
        return _Made(batches, error, perf_counter() - begun, asked[len(batches) :] if error is None else ())
    finally:
        del error


class _Threads:
    """Threads that make batches; each is started when it is needed.

    Args:
        make: makes a batch.
        most: how many at most.

    Notes:
        Nothing is handed over under a lock of `threading` or `concurrent.futures`: a Ctrl-C just behind its function of
        Python that takes the lock leaves it locked, and a thread that wants it is waited for without end.
    """

    def __init__(self, make: Make, most: int) -> None:
        self._make, self._most = make, most
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._threads: list[Thread] = []

    def ask(self, asked: Sequence[Sequence[int]], beside: int) -> SimpleQueue[_Made]:
        """Let a thread make batches, beside so many that have others to make; return where what it made will be."""
        answer: SimpleQueue[_Made] = SimpleQueue()
        self._tasks.put((asked, answer))
        if len(self._threads) <= min(beside, self._most - 1):
            dropped = ref(self, self._tasks.put)  # ends them, too, where an interrupt comes before `end`
            work, name = (self._make, self._tasks, dropped), f"datacheck-loader_{len(self._threads)}"
            thread = Thread(target=_work, args=work, name=name, daemon=True)
            self._threads.append(thread)
            _STARTED[ref(thread, _STARTED.pop)] = self._tasks
            thread.start()
        return answer

    def check(self) -> None:
        """Raise where nobody would answer.

        Raises:
            UsageError: its threads are those of the process before a fork, or ended with the interpreter.

        Notes:
            At an exit other threads may wait: it is theirs, too.
        """
        if ref(self._threads[0]) not in _STARTED and current_thread() is main_thread():
            msg = "the threads of this pass ended with the interpreter, or are in another process: begin a pass there"
            raise UsageError(msg)

    def end(self, *, wait: bool) -> None:
        """Let threads end behind what they are making; a thread of these waits for none."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        self._tasks.put(None)
        if wait and get_ident() not in [thread.ident for thread in self._threads]:
            _join(self._threads)


def _work(make: Make, tasks: SimpleQueue[Any], _dropped: ref[_Threads]) -> None:
    while isinstance(task := tasks.get(), tuple):
        task[1].put(_made(make, task[0]))
        del task
    tasks.put(task)  # for the next thread


def _join(threads: Sequence[Thread]) -> None:
    for thread in threads:
        if thread.is_alive():
            thread.join()


# No WeakKeyDictionary, which forgets by a function of Python: a Ctrl-C that comes in it is raised there, and lost.
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


# Its last key is the phase that the collector has told; no function of Python, in which a Ctrl-C that comes while it
# works would be raised, and lost.
_COLLECTOR = OrderedDict.fromkeys(["start", "stop"])
_TOLD: Any = _COLLECTOR.move_to_end  # is given the phase and a dict that has entries: moves it to the end
gc.callbacks.append(_TOLD)


def made_ahead(
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
        Who closes or drops it waits for the threads, which finish what they are making. One of these does not, nor does
        anybody while the collector works: that does so in any thread at any time, also where a lock is held that one of
        these wants.
    """
    line, waiting = _Line(indices), deque[SimpleQueue[_Made]]()
    pace = _Pace(_TOGETHER if together else 1)
    pool = _Threads(make, threads)

    def ask(most: int) -> None:
        while len(waiting) < (most if pace.together == 1 else 1) and (asked := line.draw(pace.together)):
            waiting.append(pool.ask(asked, len(waiting)))

    try:
        while True:
            ask(ahead + 1)
            if not waiting:
                break
            pool.check()
            at_once = min(threads, len(waiting))  # quick ones wait for one another, for the interpreter
            made = waiting.popleft().get()
            pace.took(made.seconds / at_once, made.count)
            line.put_back(made.left)  # of several: then nothing else is waiting
            ask(ahead)
            while made.batches:
                yield made.batches.popleft()
            _raised(made)
        _raised(line)
    finally:
        waiting.clear()
        line.error = None
        works = [*_COLLECTOR][-1] == "start"  # in one step: another thread may collect meanwhile
        pool.end(wait=not works)


def _raised(of: _Made | _Line) -> None:
    """Raise the error of a batch or of the indices, if there is one, and forget it: its traceback holds `of`."""
    error, of.error = of.error, None
    try:
        if error is not None:
            raise error
    finally:
        del error
