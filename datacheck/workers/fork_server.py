"""Fork server: children that read data are forked of a process that has imported datacheck and its libraries, no more.

To start Python and import these takes 0.4 s, a fork 6 ms. The server is a program of its own, reads
no data and holds no state of its parent, so a child is what a new process would be. The server ends
with its parent, and when it has been idle for a while.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import resource
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from datacheck.plugins import import_all, known_plugins, resolve

_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; from datacheck.workers.fork_server import serve; "
    "serve(int(sys.argv[1]))"
)
# Before the first fork: what nearly every child needs; of plug-ins it is known which there are, but
# none is loaded.
_IMPORTED = ("datacheck.workers.child", "datacheck.scan.worker", "datacheck.build.shard_worker")
_PACKAGES = ("datacheck.formats", "datacheck.rules", "datacheck.transforms")
_SERVE = "datacheck.workers.child:serve"
_IDLE_S = 10.0  # an idle server exits after this
_START_S, _ANSWER_S = (
    120.0,
    20.0,
)  # for a server to start and fork its first child; to fork another one
_EXIT_S = 5.0  # for the server to report an exit code; one that was stopped never does
_SIZE, _NUMBER = struct.Struct("<I"), struct.Struct("<i")
# Descriptors that go with a request: the socket on which the exit code is reported, the working
# folder, and what the child has as 0 to 3: standard input, output and errors, and the counter.
_FDS = 6
# Variables that count when Python starts or a library is imported.
_AT_START = (
    "PYTHON",
    "LD_",
    "MALLOC",
    "GLIBC",
    "LC_",
    "LANG",
    "TZ",
    "OMP_",
    "GOMP_",
    "KMP_",
    "OPENBLAS_",
    "GOTO_",
    "MKL_",
    "NUMEXPR_",
    "NUMPY_",
    "NPY_",
    "PYDANTIC_",
)
_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")


class _GoneError(Exception):
    """A server has ended, or does not answer."""


class Forked:
    """A child of the server, with the methods of `subprocess.Popen`.

    Args:
        pid: of the child.
        handle: pidfd of the child, which never means another process.
        exits: socket on which the server reports the exit code.
        stdin, stdout: pipes to and from the child.
    """

    def __init__(
        self, pid: int, handle: int, exits: socket.socket, stdin: BinaryIO, stdout: BinaryIO
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._handle, self._exits, self._lock = handle, exits, threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, None where the child runs."""
        with self._lock:
            if self.returncode is None and self._has_ended(0):
                self.returncode = self._exit_code()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the child has ended.

        Raises:
            subprocess.TimeoutExpired: it runs after so many seconds.
        """
        self._has_ended(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(_SERVE, timeout or 0)
        return code

    def kill(self) -> None:
        """Kill the child; the server kills its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _exit_code(self) -> int:
        """Read the exit code; a server that was killed reports none, and its children were killed with it."""
        code = b""
        with contextlib.suppress(OSError), self._exits:
            self._exits.settimeout(_EXIT_S)
            code = self._exits.recv(_NUMBER.size)
        return int(_NUMBER.unpack(code)[0]) if len(code) == _NUMBER.size else -signal.SIGKILL

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handle)


# ------------------------------------------------------------------------------------ in the parent


class _Server(subprocess.Popen[bytes]):
    """A server and the socket on which it is asked for children."""

    def __init__(self, environment: Mapping[str, str], folders: Sequence[str]) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            try:
                super().__init__(
                    [sys.executable, "-P", "-c", _BOOT, str(os.getpid()), *folders],
                    env=dict(environment),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
            except BaseException:
                self.control.close()
                raise
        self.control.settimeout(_ANSWER_S)
        self.answer_s = _START_S  # before its first answer it has to import

    def __del__(self, *_: Any) -> None:
        """Warn of nothing: it ends when its socket closes."""


_LOCK = threading.Lock()
_SERVERS: dict[str, _Server] = {}  # by what children have of the parent
_CLOSED: list[_Server] = []  # that go on while they have children
_failed = False  # two servers in a row: this machine has none


def fork(
    memory: str,
    sandbox: str,
    environment: Mapping[str, str],
    counter: int,
    errors: int,
    folders: Sequence[str],
) -> Forked | None:
    """Start a child, or return None where none can be forked here.

    Args:
        memory, sandbox: as `child.serve` takes them.
        environment: all variables of the child.
        counter, errors: descriptors: shared memory, and a file for its standard error.
        folders: of modules.
    """
    global _failed
    if _failed or environment.get("DATACHECK_FORK") == "off" or not _has_pidfds():
        return None
    with _LOCK:
        key = _key(environment, folders)
        for _ in range(2):  # one that was idle may end while it is asked
            try:
                server = _server(key, environment, folders)
            except OSError:  # as a child of its own will say
                return None
            try:
                return _request(server, [memory, sandbox, dict(environment)], counter, errors)
            except _GoneError:
                _close(key)
        _failed = True
    return None


@functools.cache
def _has_pidfds() -> bool:
    """Tell whether the kernel has pidfds: Linux 5.3, and no filter of a container against them."""
    try:
        handle = os.pidfd_open(os.getpid())
        signal.pidfd_send_signal(handle, 0)
        os.close(handle)
    except (AttributeError, OSError):
        return False
    return True


def _key(environment: Mapping[str, str], folders: Sequence[str]) -> str:
    """Return what a child has of the parent and cannot be given after its server has started."""
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    umask = next((line for line in status.splitlines() if line.startswith("Umask")), "")
    return repr(
        (
            sorted(pair for pair in environment.items() if pair[0].startswith(_AT_START)),
            list(folders),
            umask,
            _limits(),
            os.getpriority(os.PRIO_PROCESS, 0),
            sorted(os.sched_getaffinity(0)),
            os.getresuid(),
            os.getresgid(),
            os.getgroups(),
        )
    )


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS]


def _server(key: str, environment: Mapping[str, str], folders: Sequence[str]) -> _Server:
    _CLOSED[:] = [server for server in _CLOSED if server.poll() is None]
    for known, server in list(_SERVERS.items()):
        if server.poll() is not None:
            _close(known)
    if key not in _SERVERS:
        _SERVERS[key] = _Server(environment, folders)
    return _SERVERS[key]


def _close(key: str) -> None:
    """Ask a server for no more children; it ends when those that it has have ended."""
    server = _SERVERS.pop(key, None)
    if server is not None:
        server.control.close()
        _CLOSED.append(server)


def _close_all() -> None:
    for key in list(_SERVERS):
        _close(key)


def _after_fork() -> None:
    """Leave the servers to the process that has started them: this one was forked of it."""
    global _LOCK  # another thread of that process may hold it
    _LOCK = threading.Lock()
    _close_all()
    _CLOSED.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)


def _request(server: _Server, order: list[Any], counter: int, errors: int) -> Forked | None:
    """Ask for a child; return None where the server cannot fork now.

    Raises:
        _GoneError: the server has ended, or does not answer.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        exits, their_exits = socket.socketpair()
        ours.enter_context(exits)
        theirs.enter_context(their_exits)
        stdin, to_child = _pipe()
        theirs.enter_context(stdin)
        ours.enter_context(to_child)
        from_child, stdout = _pipe()
        ours.enter_context(from_child)
        theirs.enter_context(stdout)
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        theirs.callback(os.close, folder)
        request = json.dumps(order).encode()
        given = [their_exits.fileno(), folder, stdin.fileno(), stdout.fileno(), errors, counter]
        exits.settimeout(server.answer_s)
        try:
            socket.send_fds(server.control, [_SIZE.pack(len(request))], given)
            server.control.sendall(request)
            theirs.close()
            answer, handles, *_ = socket.recv_fds(exits, _NUMBER.size, 1)
            (pid,) = _NUMBER.unpack(answer)
        except (OSError, struct.error) as error:
            raise _GoneError from error
        server.answer_s = _ANSWER_S
        if not handles:
            return None
        os.set_inheritable(handles[0], False)  # noqa: FBT003
        ours.pop_all()
        return Forked(pid, handles[0], exits, to_child, from_child)


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    reads, writes = os.pipe()
    return os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0)


# ------------------------------------------------------------------------------------ in the server


def serve(parent: int) -> None:
    """Fork children until the parent ends or closes the socket, or has wanted none for a while.

    Args:
        parent: its pid: a process that was forked of it may hold the other end of the socket when
            it has ended.
    """
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # the kernel would bury children where the parent ignores it
    watched = os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    control, limits = socket.socket(fileno=0), _limits()
    for name in _IMPORTED:
        resolve(f"{name}:")
    for name in _PACKAGES:
        import_all(name)
    known_plugins(tuple(sys.path))
    gc.collect()
    gc.freeze()  # children share the memory that no collection touches
    with selectors.DefaultSelector() as selector:
        selector.register(
            watched, selectors.EVENT_READ, lambda: os._exit(0)
        )  # its children end with it
        selector.register(control, selectors.EVENT_READ, lambda: _fork(control, selector, limits))
        while True:
            ready = selector.select(_IDLE_S)
            for key, _ in ready:
                if (
                    selector.get_map().get(key.fd) is key
                ):  # else closed by an event before, perhaps open again
                    key.data()
            children = len(selector.get_map()) - (1 if control.fileno() < 0 else 2)
            if not children and (not ready or control.fileno() < 0):
                return


def _fork(
    control: socket.socket, selector: selectors.BaseSelector, limits: Sequence[tuple[int, int]]
) -> None:
    """Fork the child that is asked for; close the socket where no more will be.

    Args:
        control, selector: of the server.
        limits: those that it had when it started: one that somebody has limited since is no parent
            of children.
    """
    head, given, *_ = socket.recv_fds(control, _SIZE.size, _FDS)
    order = (
        _read(control, _SIZE.unpack(head)[0])
        if len(head) == _SIZE.size and _limits() == limits
        else None
    )
    if order is None:  # the parent has ended, or asks another server
        selector.unregister(control)
        control.close()
    elif len(given) == _FDS:
        exits = socket.socket(fileno=given[0])
        server = os.getpid()
        try:
            pid = os.fork()
            if not pid:
                _run_child(json.loads(order), given[1:], server)
            _watch(selector, pid, exits)
        except OSError as error:  # no pid, no memory, no descriptor is left
            with contextlib.suppress(OSError):
                exits.sendall(_NUMBER.pack(-(error.errno or 1)))
            exits.close()
        given = given[1:]
    for descriptor in given:
        os.close(descriptor)


def _read(control: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        piece = control.recv(size - len(found))
        if not piece:
            return None
        found += piece
    return bytes(found)


def _watch(selector: selectors.BaseSelector, pid: int, exits: socket.socket) -> None:
    """Hand the child to whoever asked for it; end it when it has ended, or when that one closes the socket.

    Raises:
        OSError: no descriptor is left; the child is killed.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        _bury(pid)
        raise

    def end() -> None:
        selector.unregister(handle)
        selector.unregister(exits)
        code = _bury(pid)
        with contextlib.suppress(OSError):
            exits.sendall(_NUMBER.pack(code))
        exits.close()
        os.close(handle)

    with contextlib.suppress(OSError):
        socket.send_fds(exits, [_NUMBER.pack(pid)], [handle])
    selector.register(handle, selectors.EVENT_READ, end)
    selector.register(exits, selectors.EVENT_READ, end)


def _bury(pid: int) -> int:
    """Kill a child and its group, which it may have outlived, and return its exit code."""
    for kill in (os.killpg, os.kill):  # until it is waited for, no other process has its pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_child(order: list[Any], given: Sequence[int], server: int) -> None:
    """Be the child that is asked for; never returns."""
    try:
        memory, sandbox, environment = order
        os.setpgid(0, 0)
        os.fchdir(given[0])
        for number, descriptor in enumerate(given[1:]):
            os.dup2(descriptor, number)
        with os.scandir("/proc/self/fd") as found:  # the server's own, and those of other children
            held = [int(entry.name) for entry in found]
        for descriptor in held:
            if descriptor >= len(given) - 1:
                with contextlib.suppress(OSError):  # the one that listed them
                    os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = ["3", memory, str(server), sandbox]
        resolve(_SERVE)()
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child that goes on as a second server would fork for ever
        os.write(2, traceback.format_exc().encode())
    os._exit(1)
