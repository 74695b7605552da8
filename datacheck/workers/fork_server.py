"""Fork server: forks children that read data from a process with only its libraries imported.

Starting Python and importing datacheck takes 0.4 s, a fork 6 ms. The server is a separate program,
reads no data and holds no state of its parent, so a child is equivalent to a new process. The
server ends with its parent, and after a while without children.
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
    "import sys; sys.path[:] = sys.argv[3:]; from datacheck.workers.fork_server import serve; "
    "serve(int(sys.argv[1]), float(sys.argv[2]))"
)
# Imported before the first fork: what nearly every child needs. Plug-ins are listed, not loaded.
# Libraries that start threads (PyArrow) are left to the children. `np.unique` imports `numpy.ma`.
_IMPORTED = (
    "datacheck.workers.child",
    "datacheck.scan.worker",
    "datacheck.build.shard_worker",
    "numpy.ma",
)
_PACKAGES = ("datacheck.formats", "datacheck.rules", "datacheck.transforms")
_SERVE = "datacheck.workers.child:serve"
_IDLE_S = 10.0  # an idle server exits after this
# seconds for a server to start and fork its first child; to fork another one
_START_S = 120.0
_ANSWER_S = 20.0
_EXIT_S = 5.0  # for the server to report an exit code; a stopped server never does
_SIZE = struct.Struct("<I")
_NUMBER = struct.Struct("<i")
# Descriptors sent with a request: the socket for the exit code, the working folder, and the child's
# descriptors 0 to 3: standard input, output and error, and the counter.
_FDS = 6
# Variables that are only read when Python starts or a library is imported.
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
    """A server has ended or does not answer."""


class Forked:
    """A child of the server, with the methods of `subprocess.Popen`.

    Args:
        pid: of the child.
        handle: pidfd of the child; a pid could be another process's by the time it is used.
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
        """Return the exit code; None while the child runs."""
        with self._lock:
            if self.returncode is None and self._has_ended(0):
                self.returncode = self._exit_code()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the child to end; return its exit code.

        Raises:
            subprocess.TimeoutExpired: the child still runs after `timeout` seconds.
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
        """Read the exit code; return SIGKILL's if the server was killed.

        A killed server reports none, and the kernel kills its children.
        """
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
    """A server and the socket for requests."""

    def __init__(self, environment: Mapping[str, str], folders: Sequence[str]) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            try:
                super().__init__(
                    [sys.executable, "-P", "-c", _BOOT, str(os.getpid()), str(_IDLE_S), *folders],
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
        self.answer_s = _START_S  # the server imports before its first answer

    def __del__(self, *_: Any) -> None:
        """Suppress the warning about a running process: the server ends when its socket closes."""


_LOCK = threading.Lock()
_SERVERS: dict[str, _Server] = {}  # by `_key`
_CLOSED: list[_Server] = []  # get no more requests, run until their children end
_failed = False  # two servers in a row failed: do not fork on this machine


def fork(
    memory: str,
    sandbox: str,
    environment: Mapping[str, str],
    counter: int,
    errors: int,
    folders: Sequence[str],
) -> Forked | None:
    """Start a child; return None if this machine cannot fork one.

    Args:
        memory, sandbox: see `child.serve`.
        environment: all variables of the child.
        counter, errors: descriptors of the shared memory and of a file for standard error.
        folders: module folders.
    """
    global _failed
    if _failed or environment.get("DATACHECK_FORK") == "off" or not _has_pidfds():
        return None
    with _LOCK:
        key = _key(environment, folders)
        for _ in range(2):  # an idle server may end during the request
            try:
                server = _server(key, environment, folders)
            except OSError:  # starting a separate process will fail, too, and report why
                return None
            try:
                return _request(server, [memory, sandbox, dict(environment)], counter, errors)
            except _GoneError:
                _close(key)
        _failed = True
    return None


@functools.cache
def _has_pidfds() -> bool:
    """Return whether pidfds work: Linux 5.3, and no seccomp filter of a container against them."""
    try:
        handle = os.pidfd_open(os.getpid())
        signal.pidfd_send_signal(handle, 0)
        os.close(handle)
    except (AttributeError, OSError):
        return False
    return True


def _key(environment: Mapping[str, str], folders: Sequence[str]) -> str:
    """Return the inherited state that a child cannot get after its server has started."""
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
    for server_key, server in list(_SERVERS.items()):
        if server.poll() is not None:
            _close(server_key)
    if key not in _SERVERS:
        _SERVERS[key] = _Server(environment, folders)
    return _SERVERS[key]


def _close(key: str) -> None:
    """Stop requests to a server; it ends when its last child has ended."""
    server = _SERVERS.pop(key, None)
    if server is not None:
        server.control.close()
        _CLOSED.append(server)


def _close_all() -> None:
    for key in list(_SERVERS):
        _close(key)


def _after_fork() -> None:
    """Forget the servers in a forked process: they belong to the process that started them."""
    global _LOCK  # another thread of that process may hold it
    _LOCK = threading.Lock()
    _close_all()
    _CLOSED.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)


def _request(server: _Server, order: list[Any], counter: int, errors: int) -> Forked | None:
    """Request a child; return None if the server cannot fork now.

    Raises:
        _GoneError: the server has ended or does not answer.
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
        descriptors = [
            their_exits.fileno(),
            folder,
            stdin.fileno(),
            stdout.fileno(),
            errors,
            counter,
        ]
        exits.settimeout(server.answer_s)
        try:
            socket.send_fds(server.control, [_SIZE.pack(len(request))], descriptors)
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


def serve(parent: int, idle_s: float) -> None:
    """Fork children until the parent ends or closes the socket, or the server is idle for a while.

    Args:
        parent: its pid. The socket alone does not tell: a process forked from the parent may still
            hold its other end when the parent has ended.
        idle_s: seconds without children after which the server ends.
    """
    # If the parent ignores SIGCHLD, this process inherits that, and the kernel would reap children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    watched = os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    control = socket.socket(fileno=0)
    limits = _limits()
    for name in _IMPORTED:
        resolve(f"{name}:")
    for name in _PACKAGES:
        import_all(name)
    known_plugins(tuple(sys.path))
    gc.collect()
    gc.freeze()  # children share the memory that no collection touches
    with selectors.DefaultSelector() as selector:
        # the parent has ended: exit, and the kernel kills the children (PR_SET_PDEATHSIG)
        selector.register(watched, selectors.EVENT_READ, lambda: os._exit(0))
        selector.register(control, selectors.EVENT_READ, lambda: _fork(control, selector, limits))
        while True:
            events = selector.select(idle_s)
            for key, _ in events:
                # otherwise an earlier event closed the descriptor, and it may be open again
                if selector.get_map().get(key.fd) is key:
                    key.data()
            children = len(selector.get_map()) - (1 if control.fileno() < 0 else 2)
            if not children and (not events or control.fileno() < 0):
                return


def _fork(
    control: socket.socket, selector: selectors.BaseSelector, limits: Sequence[tuple[int, int]]
) -> None:
    """Fork the requested child; close the socket if no more requests will be served.

    Args:
        control, selector: of the server.
        limits: the server's resource limits when it started. Children would inherit limits that
            another process has set since, so a limited server forks no more.
    """
    head, descriptors, *_ = socket.recv_fds(control, _SIZE.size, _FDS)
    order = (
        _read(control, _SIZE.unpack(head)[0])
        if len(head) == _SIZE.size and _limits() == limits
        else None
    )
    if order is None:  # the parent has ended or closed the socket, or the limits changed
        selector.unregister(control)
        control.close()
    elif len(descriptors) == _FDS:
        exits = socket.socket(fileno=descriptors[0])
        server = os.getpid()
        try:
            pid = os.fork()
            if not pid:
                _run_child(json.loads(order), descriptors[1:], server)
            _watch(selector, pid, exits)
        except OSError as error:  # out of pids, memory or descriptors
            with contextlib.suppress(OSError):
                exits.sendall(_NUMBER.pack(-(error.errno or 1)))
            exits.close()
        descriptors = descriptors[1:]
    for descriptor in descriptors:
        os.close(descriptor)


def _read(control: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        piece = control.recv(size - len(received))
        if not piece:
            return None
        received += piece
    return bytes(received)


def _watch(selector: selectors.BaseSelector, pid: int, exits: socket.socket) -> None:
    """Send the child's pidfd to the requester; reap it when it ends or the requester hangs up.

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
    """Kill a child and its group, which may outlive it; reap it and return its exit code."""
    for kill in (os.killpg, os.kill):  # until `waitpid`, no other process can get its pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_child(order: list[Any], descriptors: Sequence[int], server: int) -> None:
    """Become the requested child; never returns."""
    try:
        memory, sandbox, environment = order
        os.setpgid(0, 0)
        os.fchdir(descriptors[0])
        for number, descriptor in enumerate(descriptors[1:]):
            os.dup2(descriptor, number)
        # close the descriptors of the server and of its other children
        with os.scandir("/proc/self/fd") as entries:
            open_fds = [int(entry.name) for entry in entries]
        for descriptor in open_fds:
            if descriptor >= len(descriptors) - 1:
                with contextlib.suppress(OSError):  # the scan's own descriptor is closed already
                    os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = ["3", memory, str(server), sandbox]
        resolve(_SERVE)()
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child that returned would go on as a second server
        os.write(2, traceback.format_exc().encode())
    os._exit(1)
