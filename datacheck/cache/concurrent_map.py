"""Concurrent calls that wait for a server, in daemon threads.

The waiting thread can be interrupted, and the process can exit while calls are pending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 1.0  # the longest wait: Python may miss a signal that arrives just before one


def concurrent_map(function: Callable[[T], R], items: Iterable[T], count: int) -> Iterator[R]:
    """Call a function for every item in `count` threads, and yield the results in item order.

    Args:
        function: called from any thread.
        items: its arguments.
        count: how many calls run at a time.

    Raises:
        Exception: the exception of the first item that failed. Calls that have not begun are
            dropped then, as when the iterator is closed early; calls that have begun run to their
            end.

    Notes:
        A process does not wait for these threads at exit. It would wait for those of an executor,
        for as long as a server does not answer.
    """
    todo: list[tuple[T, Future[R]]] = [(item, Future()) for item in items]
    waiting = iter(todo)
    lock = threading.Lock()
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            with lock:
                pair = next(waiting, None)
            if pair is None:
                return
            try:
                pair[1].set_result(function(pair[0]))
            except BaseException as error:  # noqa: BLE001  future.result() raises it
                ended.set()
                pair[1].set_exception(error)

    for _ in range(min(count, len(todo))):
        threading.Thread(target=work, name="datacheck-request", daemon=True).start()
    try:
        for _, future in todo:
            while not future.done():
                wait([future], _LOOK_S)
            yield future.result()
    finally:
        ended.set()
