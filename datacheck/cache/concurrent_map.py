"""Calls side by side that wait for a server: who waits for them can be interrupted, and the process end meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def concurrent_map(function: Callable[[T], R], items: Iterable[T], count: int) -> Iterator[R]:
    """Call a function for every item, so many at a time, and yield what it returns in their order.

    Args:
        function: may be called by any thread.
        items: their arguments.
        count: threads.

    Raises:
        Exception: what the first item that failed has raised. Calls that had not begun are left out
            then, as where nobody asks for more; who had begun goes on.

    Notes:
        A process that ends does not wait for these threads, as it would for those of an executor
        however long a server is silent.
    """
    todo: list[tuple[T, Future[R]]] = [(item, Future()) for item in items]
    waiting = iter(todo)
    lock, ended = threading.Lock(), threading.Event()

    def work() -> None:
        while not ended.is_set():
            with lock:
                mine = next(waiting, None)
            if mine is None:
                return
            try:
                mine[1].set_result(function(mine[0]))
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                ended.set()
                mine[1].set_exception(error)

    for _ in range(min(count, len(todo))):
        threading.Thread(target=work, name="datacheck-request", daemon=True).start()
    try:
        for _, future in todo:
            yield future.result()
    finally:
        ended.set()
