"""Ordered map over tasks in expendable children: one, several of this process, or those of a Dask cluster.

The unit that may die is one *item* of a task (a file). What lies before the item that killed its child is run again, it
alone is tried once more, and what lies behind it goes on. The only door to Dask.
"""

from __future__ import annotations

import contextlib
import logging
import pkgutil
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any

from datacheck import __version__
from datacheck.child import PARSER, Child, Death, Limits, Program
from datacheck.errors import StorageError, UsageError
from datacheck.wire import Json

__all__ = ["Child", "Death", "Limits", "Outcome", "ordered_map", "run_task"]

_CONNECT_S = 10.0
_WORKERS_S = 300.0  # a cluster that grows with its work may need some time for the first
_WAITING = 16  # tasks that a cluster without a worker is shown, so that it grows


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


def _on_worker(function: str, task: dict[str, Json], limits: Limits, program: Program, run: str) -> Outcome:
    """Run a task on a Dask worker, in the one child that this thread of it has for this run.

    Notes:
        A worker may have several threads, and a child answers one at a time. It may outlive many runs, and a child
        keeps the modules of a user as they were when it imported them.
    """
    if getattr(_HERE, "run", "") != run:
        _HERE.run, _HERE.child = run, Child(limits, program)
    return run_task(_HERE.child, function, task)


def ordered_map(
    function: str,
    tasks: Iterable[dict[str, Json]],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    linked: Callable[[str], None] | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of every task, in task order.

    Args:
        function: see `run_task`; a name, so that a task is JSON all through.
        tasks: JSON arguments, each with ``items``; taken one by one as work goes on.
        workers: how many children of this process work at once.
        scheduler: address of a running Dask scheduler; the children of its workers are used instead.
        limits: for each item.
        environment: variables for the children, besides those of the process that starts them.
        linked: called with the address of Dask's dashboard, where there is one.

    Raises:
        StorageError: the scheduler cannot be reached, its workers die again and again, or have another datacheck.

    Notes:
        Bounded work in flight. The result depends on the tasks only, never on who ran them or in which order.
    """
    limits, program = limits or Limits(), replace(PARSER, environment=dict(environment or {}))
    if scheduler is not None:
        run = partial(_on_worker, function, limits=limits, program=program, run=uuid.uuid4().hex)
        yield from _on_dask(run, tasks, scheduler, linked)
        return
    with contextlib.ExitStack() as leaving:  # an interrupt while one child ends leaves no other one out
        children = [Child(limits, program) for _ in range(max(1, workers))]
        for child in children:
            leaving.callback(child.close)
            leaving.callback(child.end)  # once more: an interrupt may have come before those of `_on_children`
        yield from _on_children(function, tasks, children)


def _on_children(function: str, tasks: Iterable[dict[str, Json]], children: Sequence[Child]) -> Iterator[Outcome]:
    """Run tasks on children of this process, each served by one thread; one child needs none.

    Notes:
        Dask would take two seconds to start and 100 MB for each worker, whose only work is to wait for such a child.
    """
    if len(children) == 1:
        yield from (run_task(children[0], function, task) for task in tasks)
        return
    idle: SimpleQueue[Child] = SimpleQueue()
    for child in children:
        idle.put(child)

    def run(task: dict[str, Json]) -> Outcome:
        child = idle.get()
        try:
            return run_task(child, function, task)
        finally:
            idle.put(child)

    threads, todo, waiting = ThreadPoolExecutor(len(children)), iter(tasks), deque[Future[Outcome]]()
    with contextlib.ExitStack() as leaving:
        leaving.callback(threads.shutdown, cancel_futures=True)
        for child in children:
            leaving.callback(child.end)  # before that: no thread waits for one then
        while True:
            waiting.extend(threads.submit(run, task) for task in islice(todo, 2 * len(children) - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft().result()


def _on_dask(
    run: partial[Outcome], tasks: Iterable[dict[str, Json]], scheduler: str, linked: Callable[[str], None] | None
) -> Iterator[Outcome]:
    import distributed  # noqa: PLC0415  0.5 s that only a run on a cluster should pay

    with _client(distributed, scheduler) as client:
        if linked is not None and (link := _dashboard(client)):
            linked(link)
        waiting: deque[Any] = deque()
        todo = iter(enumerate(tasks))
        while True:
            ahead = _ahead(client)  # workers come and go
            for number, task in islice(todo, max(0, ahead - len(waiting))):
                # as one callable: Dask looks for futures in all that it is given as arguments, value by value
                key = f"datacheck-{run.keywords['run']}-{number:08d}"
                waiting.append(client.submit(partial(run, task), key=key, pure=False))
            if not waiting:
                return
            yield _result(distributed, client, waiting.popleft())


def _ahead(client: Any) -> int:
    """Return how many tasks to keep in flight: two for every thread of the cluster as it is now."""
    with contextlib.suppress(OSError, TimeoutError):  # whoever waits for a result learns what became of it
        threads: dict[str, int] = client.sync(client.scheduler.ncores, callback_timeout=_CONNECT_S)
        return max(_WAITING, 2 * sum(threads.values()))
    return _WAITING


def _dashboard(client: Any) -> str:
    """Return the address of the dashboard; "" where the scheduler has none."""
    with contextlib.suppress(KeyError, OSError, TimeoutError):
        return str(client.dashboard_link or "")
    return ""


def _result(distributed: Any, client: Any, future: Any) -> Outcome:
    while True:
        try:
            outcome: Outcome = future.result(timeout=_WORKERS_S)
        except TimeoutError as error:
            if not client.scheduler_info()["workers"]:
                address = client.scheduler.address
                msg = f"{address}: the scheduler has had no workers for a while. Start one: dask worker {address}"
                raise StorageError(msg) from error
        except (CancelledError, distributed.scheduler.KilledWorker, OSError) as error:
            if future.status == "error":  # it is what became of the task, not of the way to it
                msg = f"the Dask workers died: {error}. Look into their logs; give them more memory, or use fewer."
            else:
                msg = "the connection to the Dask scheduler was lost. Look after it, then run the same command again."
            raise StorageError(msg) from error
        else:
            return outcome


@contextlib.contextmanager
def _client(distributed: Any, scheduler: str) -> Iterator[Any]:
    import dask  # noqa: PLC0415  as above

    quiet = {"distributed.admin.tick.limit": "1h", "distributed.scheduler.worker-saturation": 1.0}
    with dask.config.set(quiet), distributed.utils.silence_logging_cmgr(logging.CRITICAL):  # what is wrong, we say
        try:
            client = distributed.Client(scheduler, timeout=_CONNECT_S)
        except (OSError, TimeoutError, ValueError) as error:
            msg = f"{scheduler}: no Dask scheduler answers there ({error}). Start one: dask scheduler"
            raise (UsageError if isinstance(error, ValueError) else StorageError)(msg) from error
        with client:
            _same_datacheck(distributed, client)
            yield client


def _same_datacheck(distributed: Any, client: Any) -> None:
    """Raise where a worker lacks datacheck or has another: it would end on our first task, and not say why.

    Notes:
        A worker that is busy does not answer in time; its tasks look again (`numerics`).
    """
    asked = {
        address: client.submit(pkgutil.resolve_name, "datacheck:__version__", workers=[address], pure=False)
        for address in client.nthreads()
    }
    with contextlib.suppress(TimeoutError):
        distributed.wait(list(asked.values()), timeout=_CONNECT_S)
    for address, future in sorted(asked.items()):
        if future.status == "finished" and future.result() == __version__:
            continue
        if future.status in {"finished", "error"}:
            has = f"datacheck {future.result()}" if future.status == "finished" else "no datacheck that can be imported"
            msg = f"the Dask worker {address} has {has}, not {__version__}. Give all workers the same environment."
            raise StorageError(msg)
