"""Ordered map over tasks in expendable children: in process, on local Dask workers, or on a Dask cluster.

The unit that may die is one *item* of a task (a file). What lies before the item that killed its child is run again, it
alone is tried once more, and what lies behind it goes on. The only door to Dask.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from datacheck.child import Child, Death, Limits
from datacheck.errors import StorageError, UsageError
from datacheck.wire import Json

__all__ = ["Child", "Death", "Limits", "Outcome", "ordered_map", "run_task"]

_CONNECT_S = 10.0
_WORKERS_S = 300.0  # a cluster that grows with its work may need some time for the first


@dataclass
class Outcome:
    """What came of one task: payloads in item order, and the items that could not be done."""

    task: Json
    payloads: list[Json] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)


def run_task(child: Child, function: str, task: dict[str, Json]) -> Outcome:
    """Run one task to its end, whatever its items do to the child.

    Args:
        child: the process to use.
        function: ``module:function`` with the signature ``(task, beat) -> payload``; it calls ``beat(i)`` before it
            touches item i of ``task["items"]``, and again while a long item is making progress.
        task: JSON arguments; ``items`` is the list that may be cut.
    """
    outcome = Outcome(task)
    waiting: deque[tuple[list[Json], bool]] = deque([(list(task["items"]), False)])
    while waiting:
        items, alone = waiting.popleft()
        payload, death = child.run(function, task | {"items": items})
        if death is None:
            outcome.payloads.append(payload)
        elif len(items) == 1 and (alone or death.crash or "busy" in death.how):
            outcome.deaths.append(death)
        else:
            place = min(child.at(), len(items) - 1)
            again = [(items[:place], False), ([items[place]], True), (items[place + 1 :], False)]
            waiting.extendleft(reversed([(part, lone) for part, lone in again if part]))
    return outcome


_HERE = threading.local()


def _on_worker(function: str, task: dict[str, Json], limits: tuple[float, int], run: str) -> Outcome:
    """Run a task on a Dask worker, in the one child that this thread of it has for this run.

    Notes:
        A worker may have several threads, and a child answers one at a time. It may outlive many runs, and a child
        keeps the modules of a user as they were when it imported them.
    """
    if getattr(_HERE, "run", "") != run:
        _HERE.run, _HERE.child = run, Child(Limits(*limits))
    return run_task(_HERE.child, function, task)


def ordered_map(
    function: str,
    tasks: Iterable[dict[str, Json]],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    limits: Limits | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of every task, in task order.

    Args:
        function: see `run_task`; a name, so that a task is JSON all through.
        tasks: JSON arguments, each with ``items``; taken one by one as work goes on.
        workers: 1: one child of this process; more: so many local Dask worker processes.
        scheduler: address of a running Dask scheduler; its workers are used instead.
        limits: for each item.

    Raises:
        StorageError: the scheduler cannot be reached, or its workers die again and again.

    Notes:
        Bounded work in flight. The result depends on the tasks only, never on who ran them or in which order.
    """
    limits = limits or Limits()
    if scheduler is None and workers <= 1:
        child = Child(limits)
        try:
            for task in tasks:
                yield run_task(child, function, task)
        finally:
            child.close()
    else:
        yield from _on_dask(function, tasks, workers, scheduler, limits)


def _on_dask(
    function: str, tasks: Iterable[dict[str, Json]], workers: int, scheduler: str | None, limits: Limits
) -> Iterator[Outcome]:
    import distributed  # noqa: PLC0415  0.5 s that only a parallel run should pay

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(_client(distributed, workers, scheduler))
        ahead = 2 * max(1, workers, len(client.scheduler_info(n_workers=-1)["workers"]))
        waiting: deque[Any] = deque()
        todo, run = iter(enumerate(tasks)), uuid.uuid4().hex
        while True:
            while len(waiting) < ahead and (following := next(todo, None)) is not None:
                number, task = following
                # as one callable: Dask looks for futures in all that it is given as arguments, value by value
                call = partial(_on_worker, function, task, (limits.item_s, limits.memory_b), run)
                waiting.append(client.submit(call, key=f"datacheck-{run}-{number:08d}", pure=False))
            if not waiting:
                return
            yield _result(distributed, client, waiting.popleft())


def _result(distributed: Any, client: Any, future: Any) -> Outcome:
    while True:
        try:
            outcome: Outcome = future.result(timeout=_WORKERS_S)
        except TimeoutError as error:
            if not client.scheduler_info()["workers"]:
                address = client.scheduler.address
                msg = f"{address}: the scheduler has had no workers for a while. Start one: dask worker {address}"
                raise StorageError(msg) from error
        except CancelledError as error:
            msg = "the connection to the Dask scheduler was lost. Look after it, then run the same command again."
            raise StorageError(msg) from error
        except (distributed.scheduler.KilledWorker, OSError) as error:
            msg = f"the Dask workers died: {error}. Give them more memory, or use fewer (--workers)."
            raise StorageError(msg) from error
        else:
            return outcome


@contextlib.contextmanager
def _client(distributed: Any, workers: int, scheduler: str | None) -> Iterator[Any]:
    import dask  # noqa: PLC0415  as above

    quiet = {"distributed.admin.tick.limit": "1h", "distributed.scheduler.worker-saturation": 1.0}
    with dask.config.set(quiet), contextlib.ExitStack() as stack:
        if scheduler is None:
            with _apart():
                cluster = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                    dashboard_address="127.0.0.1:0", silence_logs=50,
                )  # fmt: skip
            stack.enter_context(cluster)
            yield stack.enter_context(distributed.Client(cluster))
            return
        stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))  # what is wrong, we say
        try:
            client = distributed.Client(scheduler, timeout=_CONNECT_S)
        except (OSError, TimeoutError, ValueError) as error:
            msg = f"{scheduler}: no Dask scheduler answers there ({error}). Start one: dask scheduler"
            raise (UsageError if isinstance(error, ValueError) else StorageError)(msg) from error
        yield stack.enter_context(client)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Start processes that do not see Ctrl-C, which is ours to handle, and do not run the user's script once more."""
    main = vars(sys.modules["__main__"])
    known = {name: main.get(name) for name in ("__file__", "__spec__")}
    main.update(dict.fromkeys(known))
    ours = threading.current_thread() is threading.main_thread()  # elsewhere signals are another's business
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ours else None
    safe = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # as -P of a child
    try:
        yield
    except RuntimeError as error:
        msg = f"the local Dask workers did not start: {error} Use --workers 1, or a cluster (--scheduler)."
        raise StorageError(msg) from error
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
        if safe is None:
            del os.environ["PYTHONSAFEPATH"]
        main.update(known)
