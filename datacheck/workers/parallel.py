"""Ordered map over tasks in expendable children: one, several of this process, or a Dask cluster's.

The unit of failure is one *item* of a task (a file). If an item kills its child, the items before
it run again, the item is tried once more alone, and the items after it go on. If another process
killed the child, or the machine has less memory than the item may take, the item is tried more
often, and on other machines of a cluster. Only this module uses Dask.
"""

from __future__ import annotations

import contextlib
import logging
import pkgutil
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any

from datacheck import __version__
from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.runtime.sandbox import Sandbox
from datacheck.workers.budget import LIMITS, WHOLE, FailureHistory, ItemBudget, Limits
from datacheck.workers.child import PARSER, Child, ChildSpec, Death, clamp_place
from datacheck.workers.wire import Json

__all__ = ["Child", "Death", "Limits", "TaskResult", "Tasks", "ordered_map", "run_task"]

_CONNECT_S = 10.0
_DASHBOARD_S = 2.0
_PAGE_BYTES = 1 << 16
_WORKERS_S = 300.0  # an adaptive cluster may need some time to start its first worker
_LOOK_S = 1.0  # between checks, for a signal or for a worker, while waiting
_AWAY = "scheduler-connection-lost"  # the reason that Dask gives
_LOST = (
    "the connection to the Dask scheduler was lost. Look after it, then run the same command again."
)
# Distinct machines on which a failed item is tried; tries, as another worker may take the task.
_MACHINES = 3
_TRIES = 8
_WAITING = 16  # tasks submitted to a cluster without workers, so that it scales up


@dataclass
class TaskResult:
    """Result of one task: payloads, failed items, and the address of the Dask worker that ran it.

    The address is only set if an item failed that another machine may be able to do.
    """

    task: Json
    payloads: list[Json] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    worker: str = ""


_Same = Callable[[Json], Hashable] | None
Tasks = dict[str, Json] | list[dict[str, Json]]  # one task, or a series of them


def run_task(
    child: Child, function: str, task: dict[str, Json], offenders: FailureHistory | None = None
) -> TaskResult:
    """Run one task to its end, restarting the child as often as items kill it.

    Args:
        child: the process to use.
        function: ``module:function`` with the signature ``(task, beat) -> payload``. It calls
            ``beat(i)`` before it touches item i of ``task["items"]``, and again while a long item
            makes progress. ``beat.files(nbytes)`` reports the size of the item's files, which
            limits its memory and its processor time (`Pulse`).
        task: JSON arguments; ``items`` is the list that may be split. ``without``: arguments for
            one more try of an item that ended its child, without a part that is not the item's and
            may be to blame (a tokenizer).
        offenders: failures of other tasks.
    """
    offenders = offenders or FailureHistory()
    outcome = _run(child, function, task, offenders)
    less: dict[str, Json] = task.get("without") or {}
    for death in [death for death in outcome.deaths if less and not (death.machine or death.crash)]:
        retried = _run(child, function, task | less | {"items": [death.item]}, offenders, less=True)
        if not retried.deaths:
            outcome.payloads += retried.payloads
            outcome.deaths.remove(death)
    return outcome


def _run(
    child: Child,
    function: str,
    task: dict[str, Json],
    offenders: FailureHistory,
    *,
    less: bool = False,
) -> TaskResult:
    outcome = TaskResult(task)
    waiting: deque[tuple[list[Json], bool]] = deque([(list(task["items"]), False)])
    indices = {id(item): index for index, item in enumerate(task["items"])}
    results: list[tuple[int, Json]] = []  # (first item's index, payload), to restore item order
    # The item at which a task hit a limit. Others may have used up the limit: it is tried alone.
    accused: Json = None
    unreliable = False  # an accused item was good alone, so the child's reported item tells nothing
    # by id of the item: how often another process has killed its child
    killed: Counter[int] = Counter()
    while waiting:
        batch, alone = waiting.popleft()
        items, linked = _untried(batch, offenders, less=less)
        outcome.deaths += linked
        if linked and not items:
            continue
        child.budget = _full_budget if alone else offenders.budget
        with _SERIAL_LOCK if alone else nullcontext():
            started_s = time.monotonic()
            payload, death = child.run(function, task | {"items": items})
            elapsed_s = time.monotonic() - started_s
        if death is None:
            unreliable |= len(items) == 1 and items[0] is accused
            results.append((indices[id(items[0])] if items else 0, payload))
            continue
        index = clamp_place(child.at(), len(items))
        offenders.lost(death.kind, elapsed_s)
        if death.kind in LIMITS and len(items) > 1:
            accused = items[index]
            waiting.extendleft(
                (part, False)
                for part in reversed(_split_items(items, index, death.kind, halve=unreliable))
            )
            continue
        # the child may still run and report another item than `death` names
        death = replace(death, item=items[index])
        death, final = _judge_death(
            death, offenders, elapsed_s, killed, alone=alone, sole=len(items) == 1
        )
        if final:
            outcome.deaths.append(death)
            _remember(death, offenders, less=less)
        elif death.kind == "memory":
            child.close()  # the next child starts with full memory limits
        retries = [
            (items[:index], False),
            ([] if final else [items[index]], True),
            (items[index + 1 :], False),
        ]
        waiting.extendleft(reversed([(part, lone) for part, lone in retries if part]))
    outcome.payloads = [payload for _, payload in sorted(results, key=itemgetter(0))]
    return outcome


def _untried(
    items: list[Json], offenders: FailureHistory, *, less: bool
) -> tuple[list[Json], list[Death]]:
    """Return the items to try, and deaths for the others: their file already hit a limit."""
    untried: list[Json] = []
    deaths = list[Death]()
    for item in items:
        how, kind = offenders.known(item, less=less)
        if how:
            deaths.append(Death(item, how, kind=kind))
        else:
            untried.append(item)
    return untried, deaths


def _remember(death: Death, offenders: FailureHistory, *, less: bool) -> None:
    if death.kind in LIMITS and not death.machine:
        offenders.ended(death.item, death.how, death.kind, less=less)


def _split_items(items: list[Json], place: int, kind: str, *, halve: bool) -> list[list[Json]]:
    """Return the parts in which to try the items of a task again after it hit a limit.

    One of the items may be to blame.

    Args:
        items: at least two.
        place: index of the item that the child reported. The limit may include the time or memory
            of items read before it.
        kind: of the death.
        halve: split in halves, because an item that was tried alone for that reason was good.
    """
    if kind == "endless":  # a compromised child may report any item
        return [[item] for item in items]
    if halve:
        return [items[: len(items) // 2], items[len(items) // 2 :]]
    return [part for part in ([items[place]], items[:place], items[place + 1 :]) if part]


def _killed_again(death: Death, times: int) -> tuple[Death, bool]:
    """Return the death of an item whose child was killed `times` times, and whether it is final."""
    how = f"{death.how}, {times} times: memory is short, or another program does it"
    return replace(death, how=how), times == _KILLED


_KILLED = 4  # an item is given up after other processes killed its child this often
_SERIAL_LOCK = threading.Lock()  # second tries may take much memory: one at a time


def _full_budget(item: Json) -> ItemBudget:
    del item
    return WHOLE


def _judge_death(
    death: Death,
    offenders: FailureHistory,
    elapsed_s: float,
    killed: Counter[int],
    *,
    alone: bool,
    sole: bool,
) -> tuple[Death, bool]:
    """Return the death with its description, and whether it is final (no further try)."""
    if death.kind == "killed":
        killed[id(death.item)] += 1
        return _killed_again(death, killed[id(death.item)])
    if death.kind in {"memory", "busy", "crashed"} and not alone:
        reason = offenders.refused(death.item, death.kind)
        return (replace(death, how=reason), True) if reason else (death, False)
    final = alone or death.kind in {"silent", "endless"} or (sole and death.crash)
    if final and death.kind and not death.machine:
        offenders.failed(death.item, death.kind, elapsed_s)
    return death, final


_THREAD_STATE = threading.local()


def _on_worker(
    function: str,
    series: Sequence[dict[str, Json]],
    limits: Limits,
    program: ChildSpec,
    run: str,
    same: _Same = None,
) -> list[TaskResult]:
    """Run the tasks of a series on a Dask worker, in this thread's child for this run.

    Notes:
        A worker may have several threads, and a child answers one at a time. A worker may outlive
        many runs, but a child keeps the user's modules as they were when it imported them, so each
        run has its own child.
    """
    if getattr(_THREAD_STATE, "run", "") != run:
        # this machine may have less memory than the one that set the limits
        limits = replace(limits, memory_b=min(limits.memory_b, Limits().memory_b))
        _THREAD_STATE.run, _THREAD_STATE.child, _THREAD_STATE.offenders = (
            run,
            Child(limits, program),
            FailureHistory(same=same),
        )
    outcomes = [
        run_task(_THREAD_STATE.child, function, task, _THREAD_STATE.offenders) for task in series
    ]
    for outcome in outcomes:
        if any(death.machine for death in outcome.deaths):
            from distributed import get_worker  # noqa: PLC0415  as below

            with contextlib.suppress(ValueError):  # none, as in tests
                outcome.worker = get_worker().address
    return outcomes


def _series(tasks: Tasks) -> Sequence[dict[str, Json]]:
    return [tasks] if isinstance(tasks, dict) else tasks


def ordered_map(
    function: str,
    tasks: Iterable[Tasks | None],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    same: _Same = None,
    told: Callable[[str], None] = lambda _: None,
) -> Iterator[TaskResult]:
    """Yield the result of every task, in task order.

    Args:
        function: see `run_task`; a name, so that tasks are pure JSON.
        tasks: JSON arguments, each with ``items``; taken one by one as work goes on. A list of
            tasks is a series: one child runs them in order, so that it can continue reading a file
            where the last task stopped. None asks for the next result first: later tasks depend on
            it.
        workers: number of children of this process that work at once.
        scheduler: address of a running Dask scheduler; the children of its workers are used
            instead.
        limits: for each item.
        environment: variables for the children, besides those of the process that starts them.
        sandbox: the files that children may reach; None: those of their user.
        same: returns a key of the item's file, equal for links to one file: if one item hits a
            limit, the others are not tried. None: every item is tried.
        told: called with a line about the cluster: its dashboard, or that it has no workers yet.

    Raises:
        UsageError: `scheduler` is not the address of a scheduler.
        StorageError: the scheduler cannot be reached; its workers die repeatedly, or have another
            version of datacheck; or it has had no workers, or has not answered, for five minutes.

    Notes:
        The work in flight is bounded. The results depend on the tasks only, never on the workers
        that ran them or on the order.
    """
    limits, program = (
        limits or Limits(),
        replace(PARSER, environment=dict(environment or {}), sandbox=sandbox),
    )
    if scheduler is not None:
        run = partial(
            _on_worker, function, limits=limits, program=program, run=uuid.uuid4().hex, same=same
        )
        todo = iter(tasks)
        for first in islice(todo, 1):  # without tasks, do not connect
            yield from _on_dask(run, chain([first], todo), scheduler, told)
        return
    # with an ExitStack, an interrupt while one child is closed does not skip the others
    with contextlib.ExitStack() as leaving:
        children = [Child(limits, program) for _ in range(max(1, workers))]
        for child in children:
            leaving.callback(child.close)
            # again, because an interrupt may come before the callbacks of `_on_children`
            leaving.callback(child.end)
        yield from _on_children(function, tasks, children, same)


def _on_children(
    function: str, tasks: Iterable[Tasks | None], children: Sequence[Child], same: _Same = None
) -> Iterator[TaskResult]:
    """Run tasks on children of this process, each served by one thread; one child needs no thread.

    Notes:
        Dask would take two seconds to start, and 100 MB for each worker that only waits for a
        child.
    """
    offenders = FailureHistory(len(children), same)
    if len(children) == 1:
        all_tasks = chain.from_iterable(_series(task) for task in tasks if task is not None)
        yield from (run_task(children[0], function, task, offenders) for task in all_tasks)
        return
    idle: SimpleQueue[Child] = SimpleQueue()
    for child in children:
        idle.put(child)
    run = partial(_on_idle, function, idle, offenders)
    threads = ThreadPoolExecutor(len(children))
    waiting = deque[_PendingTask]()
    with contextlib.ExitStack() as leaving:
        leaving.callback(threads.shutdown, cancel_futures=True)
        for child in children:
            # runs before `shutdown`, so that no thread still waits for a child
            leaving.callback(child.end)
        for task in tasks:  # taking the next task may block for long
            if task is not None:
                results: SimpleQueue[TaskResult | None] = SimpleQueue()
                future = threads.submit(run, _series(task), results)
                waiting.append(_PendingTask(future, isinstance(task, list), results))
            if task is None or waiting[0].done.done():
                yield from _next_outcome(waiting)
            # twice the children, so that none of them waits for the caller
            yield from _drain_until(waiting, 2 * len(children))
        while waiting:
            yield from _next_outcome(waiting)


@dataclass
class _PendingTask:
    """A submitted task or series: its future, and the queue of results that precede its end."""

    done: Any
    series: bool
    found: SimpleQueue[TaskResult | None] = field(default_factory=SimpleQueue)


def _under_way(waiting: Sequence[_PendingTask]) -> int:
    """Return how many submitted tasks are not yielded yet.

    If a series comes first, which takes long, return how many are not done yet.
    """
    first_takes_long = waiting and waiting[0].series
    return sum(not pending.done.done() for pending in waiting) if first_takes_long else len(waiting)


def _on_idle(
    function: str,
    idle: SimpleQueue[Child],
    offenders: FailureHistory,
    series: Sequence[dict[str, Json]],
    results: SimpleQueue[TaskResult | None],
) -> None:
    child = idle.get()
    try:
        for task in series:
            results.put(run_task(child, function, task, offenders))
    finally:
        idle.put(child)
        results.put(None)


def _drain_until(waiting: deque[_PendingTask], most: int) -> Iterator[TaskResult]:
    """Yield results until fewer than `most` tasks are under way."""
    while _under_way(waiting) >= most:
        yield from _next_outcome(waiting)


def _waited_for(results: SimpleQueue[TaskResult | None]) -> TaskResult | None:
    """Return the next result of a queue.

    Notes:
        Python may miss a signal that arrives just before a wait without a limit.
    """
    while True:
        try:
            return results.get(timeout=_LOOK_S)
        except Empty:
            continue


def _next_outcome(waiting: deque[_PendingTask]) -> Iterator[TaskResult]:
    """Yield the next result of the first submitted task; nothing if its series has no more."""
    pending = waiting[0]
    outcome = _waited_for(pending.found)
    if outcome is not None:
        yield outcome
    if outcome is None or not pending.series:
        waiting.popleft()
        pending.done.result()  # raises what ended it


def _on_dask(
    run: partial[list[TaskResult]],
    tasks: Iterator[Tasks | None],
    scheduler: str,
    report: Callable[[str], None],
) -> Iterator[TaskResult]:
    import distributed  # noqa: PLC0415  0.5 s that only a run on a cluster should pay

    with _client(distributed, scheduler) as client:
        if link := _dashboard(client):
            report(f"Dask dashboard: {link}")
        if not _threads(client):
            # submit a no-op: an adaptive cluster scales up for it
            _result(client, _submit(client, int), report)
        _same_datacheck(distributed, client)
        waiting: deque[_PendingTask] = deque()
        fill = partial(_fill, client, run, enumerate(tasks), waiting)
        while True:
            fill()
            if not waiting:
                return
            pending = waiting[0]
            outcomes = _result(
                client, pending.done, report, fill if pending.series else lambda: None
            )
            waiting.popleft()
            for outcome in outcomes:
                yield _retry_elsewhere(client, run, outcome, report)


def _fill(
    client: Any,
    run: partial[list[TaskResult]],
    todo: Iterator[tuple[int, Tasks | None]],
    waiting: deque[_PendingTask],
) -> None:
    """Submit as many tasks as the cluster's workers need queued."""
    queued_count = max(_WAITING, 2 * sum((_threads(client) or {}).values()))  # workers come and go
    for number, task in islice(todo, max(0, queued_count - _under_way(waiting))):
        if task is None:
            break
        # One callable, because Dask searches every value of the arguments for futures.
        key = f"datacheck-{run.keywords['run']}-{number:08d}"
        future = _submit(client, partial(run, _series(task)), key=key)
        waiting.append(_PendingTask(future, isinstance(task, list)))


def _retry_elsewhere(
    client: Any, run: partial[list[TaskResult]], outcome: TaskResult, report: Callable[[str], None]
) -> TaskResult:
    """Return a task's result after trying items that a machine could not do on other machines."""
    tried = {outcome.worker}
    for _ in range(_TRIES):
        items = [death.item for death in outcome.deaths if death.machine]
        other_workers = (
            sorted(set(_threads(client) or {}) - tried) if items and outcome.worker else []
        )
        if not other_workers or len(tried) == _MACHINES:
            break
        task = outcome.task | {"items": items}
        # Only a preference: the worker may leave the cluster, or an idle worker may steal the task.
        future = _submit(
            client, partial(run, [task]), workers=[other_workers[0]], allow_other_workers=True
        )
        (retried,) = _result(client, future, report)
        tried.add(retried.worker)
        outcome.payloads += retried.payloads
        outcome.deaths = [
            *(death for death in outcome.deaths if not death.machine),
            *retried.deaths,
        ]
    return outcome


def _threads(client: Any) -> dict[str, int] | None:
    """Return the number of threads of each worker; None if the scheduler does not answer."""
    scheduler = client.scheduler  # None once the client has given up
    # Errors are left to the wait for a result, which reports them.
    with contextlib.suppress(OSError, TimeoutError):
        if scheduler is not None and client.status == "running":
            threads: dict[str, int] = client.sync(scheduler.ncores, callback_timeout=_CONNECT_S)
            return threads
    return None


def _submit(client: Any, function: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
    """Return the future of a task; Dask runs it every time, even with equal arguments.

    Raises:
        StorageError: the connection to the scheduler was lost.
    """
    from distributed.client import ClosedClientError  # noqa: PLC0415  as above

    try:
        return client.submit(function, *arguments, pure=False, **how)
    except ClosedClientError as error:
        raise StorageError(_LOST) from error


def _dashboard(client: Any) -> str:
    """Return the address of the dashboard; "" if none answers.

    It may be off, bound to another interface, or lack bokeh.
    """
    from http.client import HTTPException  # noqa: PLC0415  with the next

    with contextlib.suppress(KeyError, OSError, TimeoutError, ValueError, HTTPException):
        from urllib.request import ProxyHandler, build_opener  # noqa: PLC0415  0.05 s, on a cluster only

        link = str(client.dashboard_link or "")
        with build_opener(ProxyHandler({})).open(link, timeout=_DASHBOARD_S) as page:
            return "" if b"needs bokeh" in page.read(_PAGE_BYTES) else link
    return ""


def _result(
    client: Any,
    future: Any,
    told: Callable[[str], None],
    meanwhile: Callable[[], None] = lambda: None,
) -> Any:
    """Return the result of a future.

    Args:
        client, future: of the cluster and of the task.
        told: see `ordered_map`.
        meanwhile: called about once a second until the task is done.

    Raises:
        StorageError: no worker runs the task, or the scheduler is gone.
    """
    no_workers: tuple[bool, float] | None = None
    patience = _CONNECT_S
    while True:
        status = future.status  # read first: a TimeoutError may be the task's own
        try:
            return future.result(timeout=patience if status == "finished" else _LOOK_S)
        except DatacheckError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and status not in {"error", "cancelled"}:
                # An interrupted transfer starts over, over a slow link forever: wait longer.
                if status == "finished":
                    patience *= 2
                meanwhile()
                # the status may also be "lost" with its worker: another worker runs it again
                no_workers = _alone(client, no_workers, told)
                continue
            raise StorageError(_why(client, future, error)) from error


def _why(client: Any, future: Any, error: Exception) -> str:
    """Return the message for a result that did not arrive: the reason, and what to do."""
    from distributed.scheduler import KilledWorker  # noqa: PLC0415  as above

    message = (str(error) or type(error).__name__).rstrip(".")
    if isinstance(error, KilledWorker):
        return (
            f"the Dask workers died: {message}. Look into their logs; give them more memory, or "
            f"use fewer."
        )
    if future.status == "error":  # the task itself failed, not the connection
        return (
            f"the Dask cluster could not run a task: {message}. Look into the logs of its workers."
        )
    reason = getattr(error, "reason", _AWAY)
    # another client dropped them, such as by `restart`
    if reason != _AWAY and client.status == "running":
        return f"the Dask scheduler dropped our tasks ({reason}). Run the same command again."
    return _LOST


def _alone(
    client: Any, since: tuple[bool, float] | None, report: Callable[[str], None]
) -> tuple[bool, float] | None:
    """Return (whether the scheduler is silent, since when); None if there are workers.

    False means that the scheduler answers but has no workers.

    Raises:
        StorageError: the state has lasted too long.

    Notes:
        A stopped scheduler closes no connection: its operating system still answers for it.
    """
    scheduler = client.scheduler
    now = time.monotonic()
    if scheduler is None:
        raise StorageError(_LOST)
    if threads := _threads(client):
        return None
    silent = threads is None
    start = f"dask worker {scheduler.address}"
    if since is None or since[0] != silent:
        lacks = (
            "does not answer; waiting {0:g} s"
            if silent
            else "has no workers; waiting {0:g} s for one: {1}"
        )
        report(f"{scheduler.address}: the scheduler {lacks.format(_WORKERS_S, start)}")
        return silent, now
    if time.monotonic() - since[1] > _WORKERS_S:
        lacked, then = "not answered", "Look after it, then run the same command again."
        if not silent:
            lacked = "had no workers"
            then = f"Start one: {start}"
        msg = f"{scheduler.address}: the scheduler has {lacked} for {_WORKERS_S:g} s. {then}"
        raise StorageError(msg)
    return since


@contextlib.contextmanager
def _client(distributed: Any, scheduler: str) -> Iterator[Any]:
    import asyncio  # noqa: PLC0415  as above

    import dask  # noqa: PLC0415

    quiet = {"distributed.admin.tick.limit": "1h", "distributed.scheduler.worker-saturation": 1.0}
    # our own messages report what is wrong
    with dask.config.set(quiet), distributed.utils.silence_logging_cmgr(logging.CRITICAL):
        try:
            with ThreadPoolExecutor(1) as thread:  # the caller may have a loop of its own
                thread.submit(asyncio.run, _reach(distributed, scheduler)).result()
            client = distributed.Client(scheduler, timeout=_CONNECT_S)
        except Exception as error:
            why = str(error) or "no word of it"
            msg = f"{scheduler}: no Dask scheduler answers there ({why}). Start one: dask scheduler"
            raise (StorageError if isinstance(error, OSError | ImportError) else UsageError)(
                msg
            ) from error
        with client:
            yield client


async def _reach(distributed: Any, scheduler: str) -> None:
    """Raise unless a Dask server answers: a client would wait forever for any other server."""
    import asyncio  # noqa: PLC0415  as above

    how = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.comm.connect(scheduler, timeout=_CONNECT_S, **how), _CONNECT_S + 1
    )
    await comm.close()


def _same_datacheck(distributed: Any, client: Any) -> None:
    """Raise if a worker lacks datacheck or has another version.

    Such a worker would fail on the first task without saying why.

    Notes:
        A busy worker does not answer in time; its tasks check again (`numerics`).
    """
    futures = {
        address: _submit(client, pkgutil.resolve_name, "datacheck:__version__", workers=[address])
        for address in _threads(client) or {}
    }
    # if the scheduler is lost, our first task reports it better
    with contextlib.suppress(TimeoutError, CancelledError):
        distributed.wait(list(futures.values()), timeout=_CONNECT_S)
    for address, future in sorted(futures.items()):
        installed = "no datacheck that can be imported" if future.status == "error" else ""
        if future.status == "finished":
            with contextlib.suppress(Exception):  # the worker or the scheduler is just ending
                version = future.result(timeout=_CONNECT_S)
                installed = "" if version == __version__ else f"datacheck {version}"
        if installed:
            msg = (
                f"the Dask worker {address} has {installed}, not {__version__}. Give all workers the "
                f"same environment."
            )
            raise StorageError(msg)
