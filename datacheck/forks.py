"""A process from which children are forked, with their libraries imported: to start Python and NumPy takes 0.3 s.

The server is started with `subprocess`, reads no data and holds no state of the parent, so a child is what a new
process would be. It ends with its parent, and by itself where nobody has asked for a child in a while.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import resource
import select
import selectors
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from datacheck.registry import resolve

_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from datacheck.forks import serve; serve()"
_IMPORTED = ("datacheck.child", "datacheck.scan.worker")  # before the first fork
_SERVE = "datacheck.child:serve"
_IDLE_S = 10.0  # without a child or a wish for one, after which the server ends
_WAIT_S = 0.2  # after which is looked whether another thread has heard of a child's end
_REAPED_S = 5.0  # that the server may take to give the number of a child back
_START_S = 120.0  # that the server may take to answer
_SIZE, _NUMBER = struct.Struct("<I"), struct.Struct("<i")
_CONTROL = 3  # descriptor of the server's socket
_FDS = 5  # standard input, output and errors of a child, the counter, the socket on which its end is said
_AT_START = ("PYTHON", "LD_", "MALLOC", "GLIBC", "LC_", "LANG", "OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_")
_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")


class Forked:
    """A child of the server, as `subprocess.Popen` shows one.

    Args:
        pid: of the child; no other process has it before the child's end was read.
        ended: where the server says how it has ended.
        stdin, stdout: its pipes.
    """

    def __init__(self, pid: int, ended: socket.socket, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended, self._lock = ended, threading.Lock()

    def poll(self) -> int | None:
        """Return how it has ended, None where it runs."""
        with self._lock:
            if self.returncode is None:
                try:
                    said = self._ended.recv(_NUMBER.size, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return None
                except OSError:
                    said = b""
                # without a word, the server was killed, and its children with it
                self.returncode = _NUMBER.unpack(said)[0] if len(said) == _NUMBER.size else -signal.SIGKILL
                self._let_go()
            return self.returncode

    def _let_go(self) -> None:
        """Give the number of the process back, and wait until the server has done so."""
        with contextlib.suppress(OSError), self._ended:
            self._ended.shutdown(socket.SHUT_WR)
            self._ended.settimeout(_REAPED_S)
            self._ended.recv(1)

    def wait(self) -> int:
        """Return how it has ended, once it has; as killed, where the server was stopped and does not say so."""
        ended: float | None = None
        while (code := self.poll()) is None:
            with contextlib.suppress(OSError, ValueError):  # another thread has read it
                select.select([self._ended], [], [], _WAIT_S)
            ended = (ended or time.monotonic()) if _has_ended(self.pid) else None
            if ended is not None and time.monotonic() - ended > _REAPED_S:
                with self._lock:
                    self.returncode = -signal.SIGKILL
                    self._ended.close()
        return code

    def kill(self) -> None:
        """Kill it and its group, where it runs."""
        with self._lock:
            if self.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)


def _has_ended(pid: int) -> bool:
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return said.rpartition(")")[2].split()[0] == "Z"


# ---------------------------------------------------------------------------------------------- outside

_LOCK = threading.Lock()
_SERVERS: list[tuple[object, socket.socket]] = []  # one at most, and for which children it is
_ENDING: list[int] = []  # servers that nobody asks any more


def fork(
    arguments: Sequence[str], environment: Mapping[str, str], counter: int, noise: int, folders: Sequence[str]
) -> Forked | None:
    """Start a child, or return None where none can be forked here.

    Args:
        arguments: for `child.serve`, without the counter's number, which is 3 in the child.
        environment: all variables of the child.
        counter, noise: descriptors: shared memory, and a file for its standard error.
        folders: of modules.
    """
    if not hasattr(os, "pidfd_open") or environment.get("DATACHECK_FORK") == "off":
        return None
    try:
        here = str(Path.cwd())
    except OSError:  # it was removed
        return None
    order = json.dumps([arguments, dict(environment), here, list(folders)]).encode()
    with _LOCK:
        for _ in range(2):  # one that was idle may end while it is asked
            server = _server(environment, folders)
            made = None if server is None else _asked(server, order, counter, noise)
            if made is not None:
                return made
            _forget()
    return None


def _forget() -> None:
    """Ask the server for no more children; it ends when those that it has have ended."""
    for _, control in _SERVERS:
        control.close()
    _SERVERS.clear()
    _reap()


def _reap() -> None:
    for pid in list(_ENDING):
        with contextlib.suppress(OSError):  # waited for by whoever waits for any child
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _ENDING.remove(pid)


def _in_fork() -> None:
    """Leave the server to the process that has started it: this one was forked from that."""
    global _LOCK  # another thread of that process may hold it
    _LOCK = threading.Lock()
    _ENDING.clear()
    _forget()


os.register_at_fork(after_in_child=_in_fork)
atexit.register(_forget)


def _server(environment: Mapping[str, str], folders: Sequence[str]) -> socket.socket | None:
    key = (
        {name: value for name, value in environment.items() if name.startswith(_AT_START)}, list(folders),
        [resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS],
        os.sched_getaffinity(0), os.getresuid(), os.getresgid(),
    )  # fmt: skip
    for known, control in _SERVERS:
        if known == key:
            return control
    _forget()
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid = os.posix_spawn(
                sys.executable, [sys.executable, "-P", "-c", _BOOT, *folders], dict(environment),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL),
                    *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(_CONTROL)),
                ], setpgroup=0,
            )  # fmt: skip
        except OSError:
            ours.close()
            return None
    _ENDING.append(pid)
    ours.settimeout(_START_S)
    _SERVERS.append((key, ours))
    return ours


def _asked(server: socket.socket, order: bytes, counter: int, noise: int) -> Forked | None:
    mine, theirs = socket.socketpair()
    orders, sends = os.pipe()
    reads, answers = os.pipe()
    given = [orders, answers, noise, counter, theirs.fileno()]
    try:
        socket.send_fds(server, [_SIZE.pack(len(order))], given)
        server.sendall(order)
        mine.settimeout(_START_S)
        theirs.close()
        (pid,) = _NUMBER.unpack(mine.recv(_NUMBER.size))
        mine.settimeout(None)
    except BaseException as error:
        for descriptor in (sends, reads):
            os.close(descriptor)
        mine.close()
        _forget()  # it may have heard half of the order
        if not isinstance(error, OSError | struct.error):
            raise
        return None
    finally:
        theirs.close()
        os.close(orders)
        os.close(answers)
    return Forked(pid, mine, os.fdopen(sends, "wb", 0), os.fdopen(reads, "rb", 0))


# ---------------------------------------------------------------------------------------------- inside


def serve() -> None:
    """Fork children until the other end of the socket closes, or nobody has wanted one for a while."""
    os.closerange(_CONTROL + 1, 1 << 20)  # of a parent whose descriptors may be inherited
    control = socket.socket(fileno=_CONTROL)
    for name in _IMPORTED:
        resolve(f"{name}:")
    gc.collect()
    gc.freeze()  # children share what nobody looks at
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ, None)
        while (ready := selector.select(_IDLE_S)) or len(selector.get_map()) > 1 or control.fileno() < 0:
            for key, _ in ready:
                if callable(key.data):
                    key.data()
                elif not _fork(control, selector):
                    selector.unregister(control)  # the parent has ended, or asks another server
                    control.close()
            if control.fileno() < 0 and not selector.get_map():
                return


def _fork(control: socket.socket, selector: selectors.BaseSelector) -> bool:
    """Fork the child that is asked for; return whether one was."""
    head, given, *_ = socket.recv_fds(control, _SIZE.size, _FDS)
    if len(head) < _SIZE.size:
        return False
    order = bytearray()
    (size,) = _SIZE.unpack(head)
    while len(order) < size:
        piece = control.recv(size - len(order))
        if not piece:
            return False
        order += piece
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError:  # no number or no memory is left: whoever asks sees the end of the socket
        for each in given:
            os.close(each)
        return True
    if not pid:
        _become(json.loads(order), given, server)
    for each in given[:-1]:
        os.close(each)
    said = socket.socket(fileno=given[-1])
    handle = os.pidfd_open(pid)
    with contextlib.suppress(OSError):
        said.sendall(_NUMBER.pack(pid))
    selector.register(handle, selectors.EVENT_READ, _told(selector, handle, said, pid))
    selector.register(said, selectors.EVENT_READ, _reaped(selector, handle, said, pid))
    return True


def _told(selector: selectors.BaseSelector, handle: int, said: socket.socket, pid: int) -> Callable[[], None]:
    """Return what says how a child has ended; its number stays taken until that was heard."""

    def tell() -> None:
        with contextlib.suppress(OSError, KeyError):  # nobody wants to hear of it any more
            selector.unregister(handle)
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert found is not None
            code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            said.sendall(_NUMBER.pack(code))

    return tell


def _reaped(selector: selectors.BaseSelector, handle: int, said: socket.socket, pid: int) -> Callable[[], None]:
    """Return what ends a child of which nobody wants to hear any more."""

    def reap() -> None:
        selector.unregister(said)
        with contextlib.suppress(KeyError):
            selector.unregister(handle)
        os.close(handle)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        said.close()  # whoever waits for that knows that the number is free

    return reap


def _become(order: list[object], given: Sequence[int], server: int) -> None:
    """Be the child that is asked for; never returns."""
    try:
        arguments, environment, folder, folders = order
        os.setpgid(0, 0)
        for number, descriptor in enumerate(given[:-1]):
            os.dup2(descriptor, number)
        os.closerange(len(given) - 1, 1 << 20)  # the server's own among them
        os.environ.clear()
        os.environ.update(environment)  # type: ignore[call-overload]
        with contextlib.suppress(OSError):
            os.chdir(str(folder))
        sys.path[:] = folders  # type: ignore[call-overload]
        sys.argv[1:] = ["3", *arguments]  # type: ignore[misc]
        sys.argv[3] = str(server)
        resolve(_SERVE)()
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child that goes on as a second server would fork for ever
        os.write(2, traceback.format_exc().encode())
    os._exit(1)
