"""Run functions in an expendable child process: start it, watch it, limit it, end it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import itertools
import math
import mmap
import os
import re
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from datacheck import errors
from datacheck.errors import DatacheckError, MissingDependencyError, StorageError, UsageError
from datacheck.plugins import module_folders, require, resolve
from datacheck.runtime.sandbox import Sandbox, enter, lower_limit, wanted
from datacheck.workers import budget
from datacheck.workers.budget import WHOLE, ItemBudget, Limits, check_machine, written_memory
from datacheck.workers.fork_server import fork
from datacheck.workers.wire import (
    FRAME,
    UNLIMITED,
    FrameLimits,
    Json,
    TooLargeError,
    answers,
    check_answer,
    decode,
    encode,
    may_be_of_items,
    may_raise,
)

# Shared memory, so that a heartbeat takes no system call: current item; number of heartbeats; bytes
# of the item's files, or -1.
COUNTER = struct.Struct("<qqq")
_LEAK_BYTES = 256 << 20  # memory that a child may keep after an item ran out of memory
_WRITTEN_BYTES = 1 << 20  # largest file that a reading child may write: its messages
STOPPED_S = 10.0  # a child stopped by a signal is given up after this
# A child computes its whole answer before it sends the first byte; only copying takes time.
_ANSWER_S = 60.0
_ANSWER_RATE = 10 << 20
_TICKS = os.sysconf("SC_CLK_TCK")


class Pulse:
    """Heartbeat of a child: reports the current item, and limits its memory by its files' size.

    Args:
        counter: shared memory of `COUNTER`.
    """

    def __init__(self, counter: mmap.mmap) -> None:
        self._counter, self._beats = counter, itertools.count(1)
        self._item, self._nbytes = 0, -1
        self._memory: Sequence[int] = (0, 0, 0)
        self._start: int | None = None

    def begin(self, memory: Sequence[int]) -> None:
        """Begin a task with the memory terms of its items (`ItemBudget.memory_terms`)."""
        self._memory = memory
        self._nbytes = -1
        self(0)

    def __call__(self, item: int) -> None:
        """Report that an item begins or makes progress."""
        if item != self._item:
            self._item, self._nbytes = item, -1
        COUNTER.pack_into(self._counter, 0, item, next(self._beats), self._nbytes)

    def files(self, nbytes: int) -> None:
        """Report the size of the item's files, which limits its memory and its processor time."""
        self._nbytes = nbytes
        base, step, most = self._memory
        self._limit(min(base + step * nbytes, most))
        self(self._item)

    @property
    def sized(self) -> bool:
        """Whether the item's memory is limited by its size."""
        return self._nbytes >= 0

    def end(self) -> None:
        """Lift the memory limit."""
        if self._start is not None:
            self._limit(-1)
        budget.BY_SIZE = False

    def leaked(self) -> bool:
        """Return whether an item that ran out of memory leaves much memory allocated."""
        gc.collect()
        return written_memory() - (self._start or 0) > _LEAK_BYTES

    def _limit(self, more: int) -> None:
        import resource  # noqa: PLC0415  not on every platform, needed in children only

        if self._start is None:
            self._start = written_memory()
            lower_limit(resource.RLIMIT_FSIZE, _WRITTEN_BYTES)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = hard if more < 0 else self._start + more
        resource.setrlimit(resource.RLIMIT_DATA, (soft if hard < 0 else min(soft, hard), hard))
        budget.BY_SIZE = more >= 0


class OverdueError(Exception):
    """A child takes too long.

    Args:
        text: description for the user.
        kind: see `Death`.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Watchdog:
    """Time limits of a child: wall-clock time between heartbeats, processor time for each item.

    Args:
        signs: returns the current item, the number of heartbeats, and the bytes of its files.
        budget: returns the budget of an item that reports the size of its files.
        pid: of the child.
        task: its items.
        silence_s: seconds without a heartbeat.
        start_s: seconds before the first one.
        whole_s: seconds in all, despite heartbeats: a compromised child may send them forever.
    """

    def __init__(
        self,
        signs: Callable[[], tuple[int, int, int]],
        budget: Callable[[Any], ItemBudget],
        pid: int,
        task: Mapping[str, Any],
        silence_s: float,
        start_s: float,
        whole_s: float = math.inf,
    ) -> None:
        self._signs, self._budget, self._pid = signs, budget, pid
        self._items = task.get("items") or [None]
        self._silence_s, self._start_s = silence_s, max(silence_s, start_s)
        self._since, self._sign, self._waited = time.monotonic(), signs(), _waited(pid)
        self._whole_s, self._end = whole_s, self._since + self._start_s + whole_s
        self._at: int | None = None
        self._began = 0.0
        self._answering: float | None = None

    def note_answer(self, nbytes: int) -> None:
        """Record that the child is sending its answer of `nbytes` bytes.

        Raises:
            OverdueError: sending takes too long.
        """
        self._since, self._waited = time.monotonic(), _waited(self._pid)
        self._answering = self._answering or self._since
        limit = max(self._silence_s, _ANSWER_S) + nbytes / _ANSWER_RATE
        if self._since - self._answering > limit:
            msg = f"still answering after {limit:.0f} s"
            raise OverdueError(msg, "silent")

    def look(self) -> None:
        """Check whether the child takes too long.

        Raises:
            OverdueError: it does.
        """
        sign = self._signs()
        if time.monotonic() > self._end:
            msg = f"not finished after {self._whole_s:,.0f} s, although it gives signs of life"
            raise OverdueError(msg, "endless")
        if sign != self._sign:
            self._since, self._sign, self._waited = time.monotonic(), sign, _waited(self._pid)
        item_index, beats, nbytes = sign
        limit = self._silence_s if beats else self._start_s
        if nbytes >= 0:
            allowed = self._budget(self._items[clamp_place(item_index, len(self._items))])
            limit = min(limit, allowed.silence_s)
            self._check_processor(item_index, allowed.seconds(nbytes))
        silent = time.monotonic() - self._since
        if silent > min(limit, STOPPED_S) and _is_stopped(self._pid):
            msg = f"the process that reads was stopped by a signal, for {min(limit, STOPPED_S):g} s"
            raise OverdueError(msg, "killed")
        # Time that the child spent waiting for a processor does not count.
        if silent > limit and silent - (_waited(self._pid) - self._waited) > limit:
            msg = f"still {'busy' if beats else 'starting'} after {limit:g} s"
            raise OverdueError(msg, "silent")

    def _check_processor(self, item_index: int, limit: float) -> None:
        used = _processor_time(self._pid)
        if item_index != self._at:
            self._at, self._began = item_index, used
        if used - self._began > limit:
            msg = (
                f"still busy after {limit:.0f} s of processor time, too much for a file of its size"
            )
            raise OverdueError(msg, "busy")


def clamp_place(place: int, count: int) -> int:
    """Return the index of the current item, clamped: a compromised child may report any number."""
    return max(0, min(place, count - 1))


def _is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except OSError:  # it has just ended
        return False


def _waited(pid: int) -> float:
    """Return the seconds that a runnable process has waited for a processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # it has just ended, or the kernel does not count
        return 0.0


def _processor_time(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


_POLL_S = 0.2
_NOISE_BYTES = 32 << 10  # of what a parser prints
_TAIL_BYTES = 2000
_PR_SET_PDEATHSIG = 1
# exit codes by which a child reports the reason
_NO_MEMORY = 77
_NO_SANDBOX = 78
_LIMITED = 79
_IMPORT = "datacheck.workers.child:import_library"
_NOTHING = "datacheck.workers.child:nothing"
# No parser causes these signals: they come from outside.
_EXTERNAL_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
_LETTERS = 100_000  # characters kept of an error's text


@dataclass(frozen=True)
class Death:
    """An item that killed or hung its child, or that raised an unhandled exception.

    Args:
        item: the item.
        how: description for the user.
        crash: whether datacheck's own code failed.
        kind: "memory" or "busy": it exceeded the budget of its size; "silent": no heartbeat;
            "endless": it took too long in all; "crashed": a signal of its parser ended the child;
            "killed": another process killed or stopped the child.
        machine: whether this machine may be to blame, so the death says nothing about the item.
    """

    item: Json
    how: str
    crash: bool = False
    kind: str = ""
    machine: bool = False


@dataclass(frozen=True)
class ChildSpec:
    """The configuration of a child.

    Args:
        name: its name in messages.
        environment: variables besides the parent's own.
        start_s: seconds to start and to import its function.
        limited: limit its memory from the start; otherwise the function calls `limit_memory`.
        sandbox: the files it may reach; None: those of its user.
        beside: also import modules from the working folder, before all others.
        doubted: distrust its answers, because it reads data. Otherwise it runs what the user named,
            and its answers are trusted.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 120.0
    limited: bool = True
    sandbox: Sandbox | None = None
    beside: bool = False
    doubted: bool = True


PARSER = ChildSpec("the parser")

# The arguments after the four of `serve` are module folders. PYTHONPATH would not do: it takes
# effect before our first line, so a sitecustomize.py in one of the folders would run.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[5:]; del sys.argv[5:]; from datacheck.workers.child "
    "import serve; serve()"
)

# ------------------------------------------------------------------------------------------- inside


@answers(type(None), raises=(MissingDependencyError,))
def import_library(task: dict[str, Json], beat: Pulse) -> None:
    """Import a library, so that the caller learns whether it is installed."""
    del beat
    require(task["library"], "")


def nothing(task: dict[str, Json], beat: Pulse) -> None:
    """Do nothing, so that the caller learns whether a child can start."""
    del task, beat


def serve() -> None:
    """Serve tasks from standard input until it closes."""
    orders = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    pulse = _prepare(*sys.argv[1:5])
    while head := orders.read(FRAME.size):
        order = decode(head + orders.read(sum(FRAME.unpack(head))))
        pieces: list[bytes | memoryview] = []
        answer: dict[str, Json]
        try:
            work = _task_function(order["function"])
            pulse.begin(order["memory"])  # imports are done: later failures are an item's
            answer = {"payload": work(order["task"], pulse)}
            pieces = encode(answer)  # still under the memory limit of the last item
        except MemoryError:
            if not pulse.sized:
                os._exit(_LIMITED if _is_limited() else _NO_MEMORY)  # the parent names the item
            answer = {"memory": True}
        except DatacheckError as error:
            answer = {"raised": type(error).__name__, "text": str(error)}
        except Exception:  # noqa: BLE001  the parent reports it as a crash with this traceback
            answer = {"crash": traceback.format_exc()}
        pulse.end()
        if _is_limited():
            os._exit(_LIMITED)  # the item's result means nothing under a foreign limit
        if "memory" in answer and pulse.leaked():
            os._exit(_NO_MEMORY)
        answers.writelines(pieces or encode(answer))
        answers.flush()


def _task_function(function: str) -> Any:
    """Return a function by name.

    If a module of datacheck exists but fails to import, the machine is to blame: the process exits.
    """
    try:
        return resolve(function)
    except UsageError as error:
        if function.startswith("datacheck.") and not isinstance(
            error.__cause__, AttributeError | ModuleNotFoundError
        ):
            os._exit(_NO_MEMORY)
        raise


def _prepare(counter: str, memory: str, parent: str, sandbox: str) -> Pulse:
    """Limit this process before it reads anything; return its heartbeat."""
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # a library that prints to standard output must not break the frames
    end_with_parent(int(parent))
    pulse = Pulse(mmap.mmap(int(counter), COUNTER.size))
    if sandbox:
        try:
            enter(Sandbox.decoded(sandbox))
        except OSError as error:
            os.write(2, str(error.strerror).encode())
            os._exit(_NO_SANDBOX)
    _set_limits[:] = _memory_limits()
    if int(memory):
        limit_memory(int(memory))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # Parsers create many short-lived objects; at the default threshold, collection took a third of
    # their time.
    gc.set_threshold(50_000)
    return pulse


def limit_memory(limit: int, *, mapped: bool = True) -> None:
    """Limit this process to `limit` bytes beyond its current memory.

    Args:
        limit: bytes.
        mapped: limit the address space; otherwise limit writable memory, so that files of any size
            may be mapped.
    """
    import resource  # noqa: PLC0415  not on every platform, needed in children only

    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        pages = file.read().split()
    used = int(pages[0 if mapped else 5]) * resource.getpagesize()
    kind = resource.RLIMIT_AS if mapped else resource.RLIMIT_DATA
    _, hard_limit = resource.getrlimit(kind)
    limit = used + limit if hard_limit == resource.RLIM_INFINITY else min(used + limit, hard_limit)
    resource.setrlimit(kind, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _set_limits[:] = _memory_limits()


_set_limits: list[int] = []  # the memory limits that this process set itself


def _memory_limits() -> list[int]:
    import resource  # noqa: PLC0415  as above

    soft_limits = (
        resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    )
    return [sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in soft_limits]


def _is_limited() -> bool:
    """Return whether another process lowered our memory limits.

    If so, a failure says nothing about the file.
    """
    return any(
        current < earlier for current, earlier in zip(_memory_limits(), _set_limits, strict=False)
    )


def end_with_parent(parent: int = 0) -> None:
    """Make the kernel kill this process when its parent ends, for whatever reason.

    Args:
        parent: its pid, if known. The parent may have ended before this call, which only the pid
            reveals.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(0)


# ------------------------------------------------------------------------------------------ outside

_LIBRARY = re.compile(r"\w+")  # the message about a missing library begins with its name
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Blocks of the same size come and go: returning their memory each time cost a fifth of a build
# (glibc only).
_ALLOCATION = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(256 << 20))
# The search for plug-ins would read the metadata of each installed package.
_START = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}


class Process(Protocol):
    """A process: `subprocess.Popen` or `fork_server.Forked`."""

    pid: int
    returncode: int | None

    @property
    def stdin(self) -> IO[bytes] | None:
        """Pipe to the process."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Pipe from the process."""

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or raise `subprocess.TimeoutExpired`."""

    def kill(self) -> None:
        """Kill the process and its group."""


class _SealedFile:
    """Memory that a child may write but not resize: else our map of it could kill this process.

    The map is all that this process uses, so the position and the flags of the open file, which the
    child shares, are of no effect here.
    """

    def __init__(self, name: str, size: int) -> None:
        self._descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        fcntl.fcntl(
            self._descriptor,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
        )
        self.map = mmap.mmap(self._descriptor, size)

    def fileno(self) -> int:
        return self._descriptor

    def clear(self) -> None:
        """Let the child write from the start, over nothing."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.map[:] = bytes(len(self.map))

    def tail(self) -> bytes:
        """Return the last bytes that were written."""
        return self.map[:].rstrip(b"\0")[-_TAIL_BYTES:]

    def close(self) -> None:
        self.map.close()
        os.close(self._descriptor)


class _TemporaryFile:
    """A file for all that a trusted child prints."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
        self.fileno, self.close = self._file.fileno, self._file.close

    def clear(self) -> None:
        self._file.seek(0)  # the child writes at the same position
        self._file.truncate()

    def tail(self) -> bytes:
        self._file.seek(max(0, self._file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return self._file.read()


class _Started(subprocess.Popen[bytes]):
    """A separately started process."""

    def kill(self) -> None:
        """Kill the process and its group, which it may have left if it has no sandbox."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        super().kill()


class Child:
    """One expendable process and its protocol; starts on first use, restarts after a death.

    Attributes:
        budget: returns the budget of an item that reports the size of its files.
    """

    def __init__(self, limits: Limits, program: ChildSpec = PARSER) -> None:
        self.budget: Callable[[Json], ItemBudget] = lambda _: WHOLE
        self._limits, self._program = limits, program
        self._process: Process | None = None
        self._over = threading.Event()
        self._counter = _SealedFile("datacheck-counter", COUNTER.size)
        # What the child prints. A parser may not fill the disk by it; the user's own code, which a
        # refused `print` would end, may.
        self._noise = (
            _SealedFile("datacheck-stderr", _NOISE_BYTES) if program.doubted else _TemporaryFile()
        )

    def _start(self) -> Process:
        # Even if there is a process: another thread may have started it meanwhile, and be closing it.
        if self._over.is_set():
            raise RuntimeError(self._program.name)
        if self._process is None or self._process.poll() is not None:
            self.close()  # the pipes of a dead child
            check_machine()
            program, memory = self._program, self._limits.memory_b
            environment = (
                _ALLOCATION
                | _START
                | os.environ
                | dict.fromkeys(_THREADS, "1")
                | dict(program.environment)
            )
            environment.pop("PYTHONPATH", None)
            arguments = [
                str(self._counter.fileno()),
                str(memory if program.limited else 0),
                str(os.getpid()),
                "",
            ]
            if program.sandbox is not None and wanted():
                arguments[-1] = program.sandbox.encoded()
            self._process = self._spawn(arguments, environment)
            # Checked a second time: `end` either saw the new process or set `_over` before this.
            if self._over.is_set():
                self.close()
                raise RuntimeError(program.name)  # to the thread that still waits for an answer
            assert self._process is not None
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                # non-blocking: a child may never read its input, or may stop while it writes
                os.set_blocking(pipe.fileno(), False)
        assert self._process is not None
        return self._process

    def _spawn(self, arguments: list[str], environment: dict[str, str]) -> Process:
        """Start a process: a fork of the server, or a new interpreter for the user's modules."""
        folders = [*([str(Path.cwd())] if self._program.beside else []), *module_folders()]
        if self._program.doubted:
            forked = fork(
                arguments[1],
                arguments[3],
                environment,
                self._counter.fileno(),
                self._noise.fileno(),
                folders,
            )
            if forked is not None:
                return forked
        return _Started(
            [sys.executable, "-P", "-c", _BOOT, *arguments, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise.fileno(),
            pass_fds=[self._counter.fileno()],
            env=environment,
            process_group=0,
        )

    @property
    def running(self) -> bool:
        """Whether there is a process; a new one has no state of earlier tasks."""
        return self._process is not None and self._process.poll() is None

    def run(
        self, function: str, task: dict[str, Json], patience: float = 0.0
    ) -> tuple[Json, Death | None]:
        """Run ``function(task, beat)`` in the child; return (answer, None) or (None, death).

        Args:
            function: ``module:function``.
            task: JSON arguments; the items are in ``items``.
            patience: allowed seconds without a heartbeat, if more than the limit's.
        """
        process = self._start()
        COUNTER.pack_into(self._counter.map, 0, 0, 0, -1)
        self._noise.clear()
        memory = self.budget(self._item(task)).memory_terms
        limits = _answer_limits(task) if self._program.doubted else UNLIMITED
        silence = max(patience, self._limits.item_s)
        items = len(task.get("items") or [None])
        total_s = (
            self._limits.task_s(silence, items, file_bytes(task))
            if self._program.doubted
            else math.inf
        )
        watch = Watchdog(
            self.signs, self.budget, process.pid, task, silence, self._program.start_s, total_s
        )
        pieces = encode({"function": function, "task": task, "memory": memory})
        try:
            frame = self._exchange(process, watch, pieces, limits)
        except OverdueError as error:
            self.close()
            return None, Death(
                self._item(task), str(error), kind=error.kind, machine=error.kind == "killed"
            )
        except TooLargeError as error:
            return None, self._too_large(task, error)
        if frame is None:
            return None, self._death(function, task, process.wait())
        callee = resolve(function) if self._program.doubted else None
        return self._read_answer(frame, limits, callee, task)

    def _read_answer(
        self, frame: bytearray, limits: FrameLimits, function: Any, task: dict[str, Json]
    ) -> tuple[Json, Death | None]:
        """Return the result of an answer, as `run` does; an invalid answer ends the child."""
        try:
            answer = decode(frame, room=limits)
            if "payload" in answer:
                check_answer(function, answer["payload"], task)
                return answer["payload"], None
            if "memory" in answer:
                return None, self._no_memory(task)
            if "crash" in answer:
                return None, Death(self._item(task), _error_text(answer["crash"]), crash=True)
            raised = _error(str(answer["raised"]), _error_text(answer["text"]))
        except TooLargeError as error:
            return None, self._too_large(task, error)
        except Exception as error:  # noqa: BLE001  a compromised child may answer anything
            self.close()
            why = f"{type(error).__name__}: {_one_line(str(error))}"
            how = (
                f"{self._program.name} answered nonsense ({why}). A damaged file does not do "
                f"that: please report this"
            )
            return None, Death(self._item(task), how)
        if self._program.doubted and not self._ends_command(function, task, raised):
            self.close()
            return None, Death(
                self._item(task), f"{self._program.name} gave up: {_one_line(str(raised))}"
            )
        raise raised

    def _ends_command(self, function: Any, task: dict[str, Json], raised: DatacheckError) -> bool:
        """Return whether an error ends the command; a compromised child may raise any error.

        Raises:
            UsageError: another child, which reads no items, raises the same error for this task.
        """
        if not may_raise(function, raised) or may_be_of_items(function) or not task.get("items"):
            return may_raise(function, raised)
        library = (
            _LIBRARY.match(str(raised)) if isinstance(raised, MissingDependencyError) else None
        )
        with contextlib.closing(Child(self._limits, self._program)) as probe:
            if library is None:
                probe.run(f"{function.__module__}:{function.__qualname__}", task | {"items": []})
                return False
            try:
                probe.run(_IMPORT, {"library": library[0]})
            except MissingDependencyError:
                return True
            return False

    def _too_large(self, task: dict[str, Json], error: TooLargeError) -> Death:
        self.close()
        return Death(
            self._item(task), f"{self._program.name} answered too much: {error}", kind="memory"
        )

    def _death(self, function: str, task: dict[str, Json], code: int) -> Death:
        """Return the death of a child that has ended.

        Raises:
            StorageError: the machine refuses the sandbox.
        """
        self.close()
        if code == _NO_SANDBOX and function == _NOTHING:
            msg = (
                f"this machine refuses the sandbox ({self._last_words()}). Run the same command "
                f"with --no-sandbox."
            )
            raise StorageError(msg)
        # A compromised child may exit with this code, too. A child that reads nothing is honest: it
        # raises the `StorageError` above if the machine really refuses.
        if code == _NO_SANDBOX:
            with contextlib.closing(Child(self._limits, self._program)) as probe:
                probe.run(_NOTHING, {})
        if code == _NO_MEMORY and self._nbytes() >= 0:
            return self._no_memory(task)
        # Without a heartbeat the child had not finished its imports, so no item is to blame.
        at_work = self.signs()[1] > 0
        killed = -code in _EXTERNAL_SIGNALS or code == _LIMITED or not at_work
        how = _ended(self._program.name, code, self._last_words())
        kind = "killed" if killed else "crashed" if code is not None and code < 0 else ""
        return Death(self._item(task), how, kind=kind, machine=killed)

    def at(self) -> int:
        """Return the index of the current item."""
        return self.signs()[0]

    def signs(self) -> tuple[int, int, int]:
        """Return the current item, the number of heartbeats, its files' bytes (-1: unknown)."""
        item, beats, nbytes = COUNTER.unpack_from(self._counter.map, 0)
        return item, beats, nbytes

    def _item(self, task: dict[str, Json]) -> Json:
        items = task.get("items") or [None]
        return items[clamp_place(self.at(), len(items))]

    def _nbytes(self) -> int:
        return self.signs()[2]

    def _no_memory(self, task: dict[str, Json]) -> Death:
        item = self._item(task)
        nbytes = self._nbytes()
        allowed = self.budget(item).memory(nbytes)
        limit = self._limits.memory_b
        if limit < allowed:
            return Death(
                item, f"needs more than {limit:,} bytes of memory", kind="memory", machine=True
            )
        how = f"needs more than {allowed:,} bytes of memory, too much for a file of its size"
        return Death(item, how, kind="memory")

    def _exchange(
        self,
        process: Process,
        watch: Watchdog,
        pieces: Iterable[bytes | memoryview],
        limits: FrameLimits,
    ) -> bytearray | None:
        """Send a task and return the answer; None if the child has ended."""
        try:
            self._send(process, watch, pieces)
            return self._receive(process, watch, limits)
        except (BrokenPipeError, EOFError):
            while True:  # a compromised child may close its pipes and keep running
                try:
                    process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    watch.look()
                else:
                    return None

    def _send(
        self, process: Process, watch: Watchdog, pieces: Iterable[bytes | memoryview]
    ) -> None:
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_WRITE)
            for piece in pieces:
                unsent = memoryview(piece)
                while unsent:
                    if selector.select(_POLL_S):
                        with contextlib.suppress(BlockingIOError):
                            unsent = unsent[os.write(pipe, unsent) :]
                    elif process.poll() is not None:
                        raise EOFError
                    else:
                        watch.look()

    def _receive(self, process: Process, watch: Watchdog, limits: FrameLimits) -> bytearray:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        received = bytearray()
        expected = FRAME.size
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(received) < expected:
                if selector.select(_POLL_S):
                    try:
                        piece = os.read(pipe, 1 << 20)
                    except BlockingIOError:
                        watch.look()
                        continue
                    if not piece:
                        raise EOFError
                    received += piece
                    if expected == FRAME.size and len(received) >= expected:
                        expected += sum(FRAME.unpack_from(received))
                        limits.check_head(received)
                    watch.note_answer(expected)
                elif process.poll() is not None:
                    # no end of file: a process that the child started may hold the pipe open
                    raise EOFError
                else:
                    watch.look()
        return received

    def _last_words(self) -> str:
        lines = self._noise.tail().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    def end(self) -> None:
        """End the process while another thread may be running a task in it; no new one starts.

        Notes:
            Waits for nothing, so that an interrupt can hardly come in between.
        """
        self._over.set()
        process = self._process  # the other thread may close it at any moment
        if process is not None and process.returncode is None:
            process.kill()

    def close(self) -> None:
        """End the process and every process that it started; safe to call twice."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
            self._noise.close()
            self._counter.close()


def _error(name: str, text: str) -> DatacheckError:
    """Return the exception that a child raised; a compromised child may name any class."""
    kind = getattr(errors, name, None)
    return (
        kind(text)
        if isinstance(kind, type) and issubclass(kind, DatacheckError)
        else StorageError(text)
    )


def _ended(name: str, code: int | None, words: str) -> str:
    if code == _NO_MEMORY:
        return "needs more memory than a sample may take"
    if code == _LIMITED:
        return f"{name} was limited to less memory than it began with"
    how = f"ended with status {code}"
    if code is not None and code < 0:
        signal_names = {entry.value: entry.name for entry in signal.Signals}  # not all have a name
        how = f"was killed by {signal_names.get(-code, f'signal {-code}')}"
    return f"{name} {how}" + (f" ({words})" if words else "")


def _error_text(text: Json) -> str:
    """Return the end of a child's error text, encodable as UTF-8."""
    message = str(text)[-_LETTERS:].encode("utf-8", "backslashreplace").decode()
    return message.strip() or "it does not say why"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200].encode("utf-8", "backslashreplace").decode()


def file_bytes(task: Any) -> int:
    """Return the bytes of a task's files, as far as the task says.

    The reports of its child do not count.
    """
    if isinstance(task, list | tuple):
        return sum(map(file_bytes, task))
    if not isinstance(task, dict):
        return 0
    if task.get("part"):
        return int(task["part"][1] - task["part"][0])
    inner: int = sum(file_bytes(task.get(name)) for name in ("items", "item", "reads", "sides"))
    listed_bytes: int = sum(size for _, size, *_ in task.get("files") or ())
    return max(inner + int(task.get("nbytes") or 0), listed_bytes, int(task.get("file_bytes") or 0))


_MOST_TEXT = 480 << 20
_MOST_VALUES = 30_000_000
_MOST_ARRAYS = 2 << 30


def _answer_limits(task: Mapping[str, Json]) -> FrameLimits:
    """Return the size limits of an answer, by the bytes of the files that it is made from."""
    nbytes = task.get("nbytes", 0)
    for item in task.get("items") or ():
        if isinstance(item, dict):
            part = item.get("part")
            nbytes += part[1] - part[0] if part else item.get("nbytes") or 0
    return FrameLimits(
        # a line of a packed (compressed) file may take a hundred times its size as JSON
        text=(32 << 20) + min(64 * nbytes, _MOST_TEXT),
        values=2_000_000 + min(16 * nbytes, _MOST_VALUES),
        arrays=(128 << 20) + min(64 * nbytes, _MOST_ARRAYS),
        alike=(512 << 20) + 1024 * nbytes,  # a row of one byte may have hundreds of columns
    )
