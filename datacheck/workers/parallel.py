"""Ordered map over tasks in expendable children: one, several of this process, or those of a Dask cluster.

The unit that may die is one *item* of a task (a file). What lies before the item that killed its
child is run again, it alone is tried once more, and what lies behind it goes on. Where somebody
else killed the child, or the machine has less memory than the item may take, it is tried more
often, and on other machines of a cluster. The only door to Dask.
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
from queue import SimpleQueue
from typing import Any

from datacheck import __version__
from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.runtime.sandbox import Sandbox
from datacheck.workers.budget import LIMITS, WHOLE, FailureHistory, ItemBudget, Limits
from datacheck.workers.child import PARSER, Child, ChildSpec, Death, clamp_place
from datacheck.workers.wire import Json

__all__ = ["Child", "Death", "Limits", "TaskResult", "Tasks", "ordered_map", "run_task"]

_CONNECT_S = 10.0
_DASHBOARD_S, _PAGE_BYTES = 2.0, 1 << 16
_WORKERS_S = 300.0  # a cluster that grows with its work may need some time for the first
_LOOK_S = 1.0  # how often whoever waits for a worker looks whether there is one
_AWAY = "scheduler-connection-lost"  # Dask's word
_LOST = (
    "the connection to the Dask scheduler was lost. Look after it, then run the same command again."
)
_MACHINES, _TRIES = (
    3,
    8,
)  # on which an item is tried that a machine could not do; how often, where others take it
_WAITING = 16  # tasks that a cluster without a worker is shown, so that it grows


@dataclass
class TaskResult:
    """What came of one task: payloads, the items that could not be done, and the Dask worker that ran it."""

    task: Json
    payloads: list[Json] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    worker: str = ""


_Same = Callable[[Json], Hashable] | None
Tasks = dict[str, Json] | list[dict[str, Json]]  # one task, or a series of them


def run_task(
    child: Child, function: str, task: dict[str, Json], offenders: FailureHistory | None = None
) -> TaskResult:
    """Run one task to its end, whatever its items do to the child.

    Args:
        child: the process to use.
        function: ``module:function`` with the signature ``(task, beat) -> payload``; it calls
            ``beat(i)`` before it touches item i of ``task["items"]``, and again while a long item
            is making progress; ``beat.files(nbytes)`` tells the size of its files, by which its
            memory and its processor time are limited (`Pulse`).
        task: JSON arguments; ``items`` is the list that may be cut. ``without``: arguments for one
            more try of an item that has ended its child, without what is none of the item's and may
            have done it (a tokenizer).
        offenders: what failed in other tasks.
    """
    offenders = offenders or FailureHistory()
    outcome = _run(child, function, task, offenders)
    less: dict[str, Json] = task.get("without") or {}
    for death in [death for death in outcome.deaths if less and not (death.machine or death.crash)]:
        again = _run(child, function, task | less | {"items": [death.item]}, offenders, less=True)
        if not again.deaths:
            outcome.payloads += again.payloads
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
    places = {id(item): place for place, item in enumerate(task["items"])}
    made: list[tuple[int, Json]] = []  # in the order of the items, whichever was tried first
    accused: Json = None  # what was read when others may have taken the time or the memory: it is tried by itself
    wrong = False  # one of them was good, so where the child says that it is tells nothing
    killed: Counter[int] = (
        Counter()
    )  # how often somebody else has killed the child of an item, by the item's identity
    while waiting:
        asked, alone = waiting.popleft()
        items, linked = _untried(asked, offenders, less=less)
        outcome.deaths += linked
        if linked and not items:
            continue
        child.budget = _full_budget if alone else offenders.budget
        with _SERIAL_LOCK if alone else nullcontext():
            began = time.monotonic()
            payload, death = child.run(function, task | {"items": items})
            took = time.monotonic() - began
        if death is None:
            wrong |= len(items) == 1 and items[0] is accused
            made.append((places[id(items[0])] if items else 0, payload))
            continue
        place = clamp_place(child.at(), len(items))
        offenders.lost(death.kind, took)
        if death.kind in LIMITS and len(items) > 1:
            accused = items[place]
            waiting.extendleft(
                (part, False)
                for part in reversed(_split_items(items, place, death.kind, halve=wrong))
            )
            continue
        death = replace(
            death, item=items[place]
        )  # a child that still runs may have said another one meanwhile
        death, final = _judge_death(
            death, offenders, took, killed, alone=alone, sole=len(items) == 1
        )
        if final:
            outcome.deaths.append(death)
            _remember(death, offenders, less=less)
        elif death.kind == "memory":
            child.close()  # the next one starts with the limits of the machine, whatever this one had left
        again = [
            (items[:place], False),
            ([] if final else [items[place]], True),
            (items[place + 1 :], False),
        ]
        waiting.extendleft(reversed([(part, lone) for part, lone in again if part]))
    outcome.payloads = [payload for _, payload in sorted(made, key=itemgetter(0))]
    return outcome


def _untried(
    items: list[Json], offenders: FailureHistory, *, less: bool
) -> tuple[list[Json], list[Death]]:
    """Return the items to try, and the deaths of those whose file has ended by a limit under another name."""
    left: list[Json] = []
    deaths = list[Death]()
    for item in items:
        how, kind = offenders.known(item, less=less)
        if how:
            deaths.append(Death(item, how, kind=kind))
        else:
            left.append(item)
    return left, deaths


def _remember(death: Death, offenders: FailureHistory, *, less: bool) -> None:
    if death.kind in LIMITS and not death.machine:
        offenders.ended(death.item, death.how, death.kind, less=less)


def _split_items(items: list[Json], place: int, kind: str, *, halve: bool) -> list[list[Json]]:
    """Return the parts of a task in which items are tried again, after a death for which one of them may be to blame.

    Args:
        items: at least two.
        place: of the one that the child said it was at: what it had read of others may have been
            measured then.
        kind: of the death.
        halve: one that was tried by itself for that reason was good.
    """
    if kind == "endless":  # the child chose which one it says it is at
        return [[item] for item in items]
    if halve:
        return [items[: len(items) // 2], items[len(items) // 2 :]]
    return [part for part in ([items[place]], items[:place], items[place + 1 :]) if part]


def _killed_again(death: Death, times: int) -> tuple[Death, bool]:
    """Return what to say of an item whose child somebody else has killed so often, and whether it is given up."""
    how = f"{death.how}, {times} times: memory is short, or another program does it"
    return replace(death, how=how), times == _KILLED


_KILLED = 4  # times that a child is killed by somebody else before its item is given up
_SERIAL_LOCK = threading.Lock()  # of items that take much memory one at a time is tried


def _full_budget(item: Json) -> ItemBudget:
    del item
    return WHOLE


def _judge_death(
    death: Death,
    offenders: FailureHistory,
    took: float,
    killed: Counter[int],
    *,
    alone: bool,
    sole: bool,
) -> tuple[Death, bool]:
    """Return what to say of a death, and whether its item is not tried again."""
    if death.kind == "killed":
        killed[id(death.item)] += 1
        return _killed_again(death, killed[id(death.item)])
    if death.kind in {"memory", "busy"} and not alone:
        reason = offenders.refused(death.item, death.kind)
        return (replace(death, how=reason), True) if reason else (death, False)
    final = alone or death.kind in {"silent", "endless"} or (sole and death.crash)
    if final and death.kind and not death.machine:
        offenders.failed(death.item, death.kind, took)
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
    """Run the tasks of a series on a Dask worker, in the one child that this thread of it has for this run.

    Notes:
        A worker may have several threads, and a child answers one at a time. It may outlive many
        runs, and a child keeps the modules of a user as they were when it imported them.
    """
    if getattr(_THREAD_STATE, "run", "") != run:
        limits = replace(
            limits, memory_b=min(limits.memory_b, Limits().memory_b)
        )  # this machine may have less
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
    """Yield the outcome of every task, in task order.

    Args:
        function: see `run_task`; a name, so that a task is JSON all through.
        tasks: JSON arguments, each with ``items``; taken one by one as work goes on. A list of them
            is a series: one child does them one after another, so that it can read on in a file
                where the last one stopped. None stands
            for the wish to see the next outcome first: what comes then depends on it.
        workers: how many children of this process work at once.
        scheduler: address of a running Dask scheduler; the children of its workers are used
            instead.
        limits: for each item.
        environment: variables for the children, besides those of the process that starts them.
        sandbox: what the children may reach; None: what their user may.
        same: returns what an item reads, the same for links to one file: where one ends by a limit,
            the others are not
            tried. None: each item is.
        told: called with a line about the cluster: where its dashboard is; that it has no workers,
            and is waited for.

    Raises:
        UsageError: this is no address of a scheduler.
        StorageError: it cannot be reached; its workers die again and again, or have another
            datacheck; or it has had none, or said nothing, for five minutes.

    Notes:
        Bounded work in flight. The result depends on the tasks only, never on who ran them or in
        which order.
    """
    limits, program = (
        limits or Limits(),
        replace(PARSER, environment=dict(environment or {}), sandbox=sandbox),
    )
    if scheduler is not None:
        run, todo = (
            partial(
                _on_worker,
                function,
                limits=limits,
                program=program,
                run=uuid.uuid4().hex,
                same=same,
            ),
            iter(tasks),
        )
        for first in islice(todo, 1):  # who has nothing to do needs no cluster
            yield from _on_dask(run, chain([first], todo), scheduler, told)
        return
    with (
        contextlib.ExitStack() as leaving
    ):  # an interrupt while one child ends leaves no other one out
        children = [Child(limits, program) for _ in range(max(1, workers))]
        for child in children:
            leaving.callback(child.close)
            leaving.callback(
                child.end
            )  # once more: an interrupt may have come before those of `_on_children`
        yield from _on_children(function, tasks, children, same)


def _on_children(
    function: str, tasks: Iterable[Tasks | None], children: Sequence[Child], same: _Same = None
) -> Iterator[TaskResult]:
    """Run tasks on children of this process, each served by one thread; one child needs none.

    Notes:
        Dask would take two seconds to start and 100 MB for each worker, whose only work is to wait
        for such a child.
    """
    offenders = FailureHistory(len(children), same)
    if len(children) == 1:
        every = chain.from_iterable(_series(task) for task in tasks if task is not None)
        yield from (run_task(children[0], function, task, offenders) for task in every)
        return
    idle: SimpleQueue[Child] = SimpleQueue()
    for child in children:
        idle.put(child)
    run = partial(_on_idle, function, idle, offenders)
    threads, waiting = ThreadPoolExecutor(len(children)), deque[_PendingTask]()
    with contextlib.ExitStack() as leaving:
        leaving.callback(threads.shutdown, cancel_futures=True)
        for child in children:
            leaving.callback(child.end)  # before that: no thread waits for one then
        for task in tasks:  # the next may be long in coming
            if task is not None:
                found: SimpleQueue[TaskResult | None] = SimpleQueue()
                done = threads.submit(run, _series(task), found)
                waiting.append(_PendingTask(done, isinstance(task, list), found))
            if task is None or waiting[0].done.done():
                yield from _next_outcome(waiting)
            yield from _drain_until(
                waiting, 2 * len(children)
            )  # with more under way, children would wait for the caller
        while waiting:
            yield from _next_outcome(waiting)


@dataclass
class _PendingTask:
    """A task or a series that is under way: its future, and where outcomes come before it is done."""

    done: Any
    series: bool
    found: SimpleQueue[TaskResult | None] = field(default_factory=SimpleQueue)


def _under_way(waiting: Sequence[_PendingTask]) -> int:
    """Return how many are not yielded yet; where a series comes first, which takes long, how many are not done yet."""
    first_takes_long = waiting and waiting[0].series
    return sum(not one.done.done() for one in waiting) if first_takes_long else len(waiting)


def _on_idle(
    function: str,
    idle: SimpleQueue[Child],
    offenders: FailureHistory,
    series: Sequence[dict[str, Json]],
    found: SimpleQueue[TaskResult | None],
) -> None:
    child = idle.get()
    try:
        for task in series:
            found.put(run_task(child, function, task, offenders))
    finally:
        idle.put(child)
        found.put(None)


def _drain_until(waiting: deque[_PendingTask], most: int) -> Iterator[TaskResult]:
    """Yield outcomes until fewer than `most` are under way."""
    while _under_way(waiting) >= most:
        yield from _next_outcome(waiting)


def _next_outcome(waiting: deque[_PendingTask]) -> Iterator[TaskResult]:
    """Yield the next outcome of what was given first; none where it was a series that has no other one."""
    given = waiting[0]
    outcome = given.found.get()
    if outcome is not None:
        yield outcome
    if outcome is None or not given.series:
        waiting.popleft()
        given.done.result()  # raises what ended it


def _on_dask(
    run: partial[list[TaskResult]],
    tasks: Iterator[Tasks | None],
    scheduler: str,
    told: Callable[[str], None],
) -> Iterator[TaskResult]:
    import distributed  # noqa: PLC0415  0.5 s that only a run on a cluster should pay

    with _client(distributed, scheduler) as client:
        if link := _dashboard(client):
            told(f"Dask dashboard: {link}")
        if not _threads(client):
            _result(
                client, _submit(client, int), told
            )  # a cluster that grows with its work has some now
        _same_datacheck(distributed, client)
        waiting: deque[_PendingTask] = deque()
        fill = partial(_fill, client, run, enumerate(tasks), waiting)
        while True:
            fill()
            if not waiting:
                return
            first = waiting[0]
            outcomes = _result(client, first.done, told, fill if first.series else lambda: None)
            waiting.popleft()
            for outcome in outcomes:
                yield _retry_elsewhere(client, run, outcome, told)


def _fill(
    client: Any,
    run: partial[list[TaskResult]],
    todo: Iterator[tuple[int, Tasks | None]],
    waiting: deque[_PendingTask],
) -> None:
    """Give a cluster as much to do as its workers need ahead."""
    ahead = max(_WAITING, 2 * sum((_threads(client) or {}).values()))  # workers come and go
    for number, task in islice(todo, max(0, ahead - _under_way(waiting))):
        if task is None:
            break
        # as one callable: Dask looks for futures in all that it is given as arguments, value by
        # value
        key = f"datacheck-{run.keywords['run']}-{number:08d}"
        future = _submit(client, partial(run, _series(task)), key=key)
        waiting.append(_PendingTask(future, isinstance(task, list)))


def _retry_elsewhere(
    client: Any, run: partial[list[TaskResult]], outcome: TaskResult, told: Callable[[str], None]
) -> TaskResult:
    """Return the outcome of a task whose items that a machine could not do were tried on others, too."""
    tried = {outcome.worker}
    for _ in range(_TRIES):
        items = [death.item for death in outcome.deaths if death.machine]
        others = sorted(set(_threads(client) or {}) - tried) if items and outcome.worker else []
        if not others or len(tried) == _MACHINES:
            break
        task = outcome.task | {"items": items}
        # a wish, no order: it may leave the cluster before it begins, or an idle worker takes the
        # task from it
        future = _submit(
            client, partial(run, [task]), workers=[others[0]], allow_other_workers=True
        )
        (again,) = _result(client, future, told)
        tried.add(again.worker)
        outcome.payloads += again.payloads
        outcome.deaths = [*(death for death in outcome.deaths if not death.machine), *again.deaths]
    return outcome


def _threads(client: Any) -> dict[str, int] | None:
    """Return how many threads each worker has; None where the scheduler does not say."""
    scheduler = client.scheduler  # None behind a client that has given up
    with contextlib.suppress(
        OSError, TimeoutError
    ):  # whoever waits for a result learns what became of it
        if scheduler is not None and client.status == "running":
            threads: dict[str, int] = client.sync(scheduler.ncores, callback_timeout=_CONNECT_S)
            return threads
    return None


def _submit(client: Any, function: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
    """Return the future of a task that Dask runs as often as it is given.

    Raises:
        StorageError: the scheduler was lost a while ago.
    """
    from distributed.client import ClosedClientError  # noqa: PLC0415  as above

    try:
        return client.submit(function, *arguments, pure=False, **how)
    except ClosedClientError as error:
        raise StorageError(_LOST) from error


def _dashboard(client: Any) -> str:
    """Return the address of the dashboard; "" where none answers: it may be off, bound elsewhere, or lack bokeh."""
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
    """Return what a task gives.

    Args:
        client, future, told: of which cluster, of which task, and who is told of it.
        meanwhile: called about once in a second as long as the task is not done.

    Raises:
        StorageError: no worker does it, or the scheduler is gone.
    """
    alone: tuple[bool, float] | None = None
    patience = _CONNECT_S
    while True:
        status = future.status  # before we ask: a TimeoutError may be the task's own
        try:
            return future.result(timeout=patience if status == "finished" else _LOOK_S)
        except DatacheckError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and status not in {"error", "cancelled"}:
                if (
                    status == "finished"
                ):  # what is cut short is sent from its beginning, over a slow link without end
                    patience *= 2
                meanwhile()
                alone = _alone(
                    client, alone, told
                )  # or "lost" with its worker: another makes it again
                continue
            raise StorageError(_why(client, future, error)) from error


def _why(client: Any, future: Any, error: Exception) -> str:
    """Return why there is no answer, and what to do."""
    from distributed.scheduler import KilledWorker  # noqa: PLC0415  as above

    said = (str(error) or type(error).__name__).rstrip(".")
    if isinstance(error, KilledWorker):
        return (
            f"the Dask workers died: {said}. Look into their logs; give them more memory, or "
            f"use fewer."
        )
    if future.status == "error":  # it is what became of the task, not of the way to it
        return f"the Dask cluster could not run a task: {said}. Look into the logs of its workers."
    reason = getattr(error, "reason", _AWAY)
    if (
        reason != _AWAY and client.status == "running"
    ):  # another client did it, such as by `restart`
        return f"the Dask scheduler dropped our tasks ({reason}). Run the same command again."
    return _LOST


def _alone(
    client: Any, since: tuple[bool, float] | None, told: Callable[[str], None]
) -> tuple[bool, float] | None:
    """Return whether there is no word of the scheduler (or else no worker), and since when; None where there are some.

    Raises:
        StorageError: for too long.

    Notes:
        One that is stopped closes no connection; the system beneath it answers for it.
    """
    scheduler, asked = client.scheduler, time.monotonic()
    if scheduler is None:
        raise StorageError(_LOST)
    if threads := _threads(client):
        return None
    silent, start = threads is None, f"dask worker {scheduler.address}"
    if since is None or since[0] != silent:
        lacks = (
            "does not answer; waiting {0:g} s"
            if silent
            else "has no workers; waiting {0:g} s for one: {1}"
        )
        told(f"{scheduler.address}: the scheduler {lacks.format(_WORKERS_S, start)}")
        return silent, asked
    if time.monotonic() - since[1] > _WORKERS_S:
        lacked, then = "not answered", "Look after it, then run the same command again."
        if not silent:
            lacked, then = "had no workers", f"Start one: {start}"
        msg = f"{scheduler.address}: the scheduler has {lacked} for {_WORKERS_S:g} s. {then}"
        raise StorageError(msg)
    return since


@contextlib.contextmanager
def _client(distributed: Any, scheduler: str) -> Iterator[Any]:
    import asyncio  # noqa: PLC0415  as above

    import dask  # noqa: PLC0415

    quiet = {"distributed.admin.tick.limit": "1h", "distributed.scheduler.worker-saturation": 1.0}
    with (
        dask.config.set(quiet),
        distributed.utils.silence_logging_cmgr(logging.CRITICAL),
    ):  # what is wrong, we say
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
    """Raise unless a Dask server is there: a client waits without end for the first word of anything else."""
    import asyncio  # noqa: PLC0415  as above

    how = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.comm.connect(scheduler, timeout=_CONNECT_S, **how), _CONNECT_S + 1
    )
    await comm.close()


def _same_datacheck(distributed: Any, client: Any) -> None:
    """Raise where a worker lacks datacheck or has another: it would end on our first task, and not say why.

    Notes:
        A worker that is busy does not answer in time; its tasks look again (`numerics`).
    """
    asked = {
        address: _submit(client, pkgutil.resolve_name, "datacheck:__version__", workers=[address])
        for address in _threads(client) or {}
    }
    with contextlib.suppress(
        TimeoutError, CancelledError
    ):  # of a lost scheduler our first task says more
        distributed.wait(list(asked.values()), timeout=_CONNECT_S)
    for address, future in sorted(asked.items()):
        has = "no datacheck that can be imported" if future.status == "error" else ""
        if future.status == "finished":
            with contextlib.suppress(Exception):  # the worker or the scheduler ends just now
                version = future.result(timeout=_CONNECT_S)
                has = "" if version == __version__ else f"datacheck {version}"
        if has:
            msg = (
                f"the Dask worker {address} has {has}, not {__version__}. Give all workers the "
                f"same environment."
            )
            raise StorageError(msg)
