"""Ordered map over tasks in expendable children: in process, on local Dask workers, or on a Dask cluster.

The unit that may die is one *item* of a task (a file). A task runs in a child process started with `subprocess`, under
limits of time and memory; the child keeps a counter in shared memory that says which item it is at, so that when it
dies or hangs the culprit is known at once: what lies before it is run again, it alone is tried once more, and what lies
behind it goes on. The only door to Dask.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import mmap
import os
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datacheck import errors
from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.registry import resolve
from datacheck.wire import FRAME, Json, decode, encode

Beat = Callable[[int], None]

_COUNTER = struct.Struct("<qq")  # the item that the child is at; how often it said so
_POLL_S = 0.2
_CONNECT_S = 10.0
_WORKERS_S = 300.0  # a cluster that grows with its work may need some time for the first
_START_S = 120.0  # what a busy machine may take to start a child and import its function
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Limits:
    """What one child may use.

    Args:
        item_s: seconds without a sign of life; a child that is silent for longer is killed.
        memory_b: bytes of address space beyond what the interpreter starts with.
    """

    item_s: float = 60.0
    memory_b: int = 8 << 30


@dataclass(frozen=True)
class Death:
    """An item that killed or hung its child, or an exception that the task's function did not handle."""

    item: Json
    how: str
    crash: bool = False


@dataclass
class Outcome:
    """What came of one task: payloads in item order, and the items that could not be done."""

    task: Json
    payloads: list[Json] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------- child


def child_main() -> None:
    """Serve tasks from standard input until it closes (what ``python -c`` of a child runs)."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints to standard output must not break the frames
    counter = mmap.mmap(int(sys.argv[1]), _COUNTER.size)
    _limit_memory(int(sys.argv[2]))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # never outlive the parent, however it ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    beats = itertools.count(1)
    while head := orders.read(FRAME.size):
        order = decode(head + orders.read(sum(FRAME.unpack(head))))
        answer: dict[str, Json]
        try:
            work = resolve(order["function"])
            _COUNTER.pack_into(counter, 0, 0, next(beats))  # imports are done: from here on an item is to blame
            answer = {"payload": work(order["task"], lambda i: _COUNTER.pack_into(counter, 0, i, next(beats)))}
        except MemoryError:
            os._exit(77)  # the parent names the item
        except DatacheckError as error:
            answer = {"raised": type(error).__name__, "text": str(error)}
        except Exception:  # noqa: BLE001  the parent reports it as a crash with this traceback
            answer = {"crash": traceback.format_exc()}
        answers.writelines(encode(answer))
        answers.flush()


def _limit_memory(limit: int) -> None:
    import resource  # noqa: PLC0415  not on every platform, needed in children only

    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_CHILD = "from datacheck.parallel import child_main; child_main()"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Blocks come and go at the same size: giving their memory back each time cost a fifth of a build (glibc only).
_ALLOCATION = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(256 << 20))


class Child:
    """One expendable process and the way to talk to it; started on first use, restarted after a death."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._shared = os.memfd_create("datacheck-counter")
        os.ftruncate(self._shared, _COUNTER.size)
        self._counter = mmap.mmap(self._shared, _COUNTER.size)
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()  # the pipes of a dead child
            environment = _ALLOCATION | os.environ | dict.fromkeys(_THREADS, "1")
            environment["PYTHONPATH"] = os.pathsep.join(p or str(Path.cwd()) for p in sys.path)
            self._process = subprocess.Popen(  # -P: else Python looks for modules in the working directory: in the data
                [sys.executable, "-P", "-c", _CHILD, str(self._shared), str(self._limits.memory_b)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._noise,
                pass_fds=[self._shared], env=environment,
            )  # fmt: skip
        return self._process

    def run(self, function: str, task: dict[str, Json]) -> tuple[Json, Death | None]:
        """Run ``function(task, beat)`` in the child; return (answer, None) or (None, death)."""
        process = self._start()
        _COUNTER.pack_into(self._counter, 0, 0, 0)
        self._noise.seek(0)  # the child writes at the same position
        self._noise.truncate()
        try:
            assert process.stdin is not None
            process.stdin.writelines(encode({"function": function, "task": task}))
            process.stdin.flush()
            frame = self._receive(process)
        except (BrokenPipeError, EOFError):
            process.wait()
            return None, Death(self._item(task), _ended(process.returncode, self._last_words()))
        except TimeoutError as error:
            self.close()
            return None, Death(self._item(task), str(error))
        answer = decode(frame)
        del frame
        if "crash" in answer:
            return None, Death(self._item(task), answer["crash"], crash=True)
        if "raised" in answer:
            raise getattr(errors, answer["raised"], StorageError)(answer["text"])
        return answer["payload"], None

    def at(self) -> int:
        """Return the item that the child is at."""
        return int(_COUNTER.unpack_from(self._counter, 0)[0])

    def _item(self, task: dict[str, Json]) -> Json:
        items = task.get("items") or [None]
        return items[min(self.at(), len(items) - 1)]

    def _receive(self, process: subprocess.Popen[bytes]) -> bytearray:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        received = bytearray()
        wanted = FRAME.size
        since, sign = time.monotonic(), self._counter[:]
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(received) < wanted:
                if selector.select(_POLL_S):
                    piece = os.read(pipe, 1 << 20)
                    if not piece:
                        raise EOFError
                    received += piece
                    if wanted == FRAME.size and len(received) >= wanted:
                        wanted += sum(FRAME.unpack_from(received))
                    since = time.monotonic()
                elif self._counter[:] != sign:
                    since, sign = time.monotonic(), self._counter[:]
                elif time.monotonic() - since > (
                    self._limits.item_s if any(sign) else max(_START_S, self._limits.item_s)
                ):
                    msg = f"still busy after {self._limits.item_s:g} s"
                    raise TimeoutError(msg)
        return received

    def _last_words(self) -> str:
        self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, self._noise.tell() - 2000))
        lines = self._noise.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
            self._noise.close()
            self._counter.close()
            os.close(self._shared)


def _ended(code: int | None, words: str) -> str:
    if code == 77:
        return "needs more memory than a sample may take"
    if code is not None and code < 0:
        return f"the parser was killed by {signal.Signals(-code).name}" + (f" ({words})" if words else "")
    return f"the parser ended with status {code}" + (f" ({words})" if words else "")


# ---------------------------------------------------------------------------------------------- tasks


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
                call = (function, task, (limits.item_s, limits.memory_b), run)
                waiting.append(client.submit(_on_worker, *call, key=f"datacheck-{run}-{number:08d}", pure=False))
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
