"""A Python that has imported PyTorch already: each of its processes is forked of one server.

A new process takes 2.5 s of a processor to import PyTorch and 2 s more for its first optimizer.
`python` writes an executable file that takes the arguments, variables, working folder and files of
`python`, and answers with the exit code or signal of the process that was forked for it. What an
interpreter reads at its start (options like -O, PYTHONHASHSEED) a fork cannot have; such a command
goes to the real interpreter.

One server serves all workers of pytest. It ends when the last of them has.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import closing
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_PRELOADED = (
    "torch",
    "torch._dynamo",  # the first optimizer imports it
    "torch.utils.data",
    "pytest",  # a process of multiprocessing imports the module of its test
    "datacheck.cli.scan",
    "datacheck.scan.run",
    "datacheck.repro.trial",
    "datacheck.repro.captures",
)
_ENTRY = "<forked>"  # of sys.path: there the server's PyTorch is found
_INSTALLED: list[str] = []  # the entries of sys.path that every Python of this environment has

_CLIENT = """#!{executable} -IS
import json, os, signal, socket, sys

words, variables = sys.argv[1:], dict(os.environ)
set_at_start = {{
    name: value
    for name, value in variables.items()
    if name.startswith("PYTHON") and name != "PYTHONPATH"
}}
if set_at_start != {set_at_start!r} or words[0] not in ("-c", "-m") and words[0].startswith("-"):
    os.execv({executable!r}, [{executable!r}, *words])
inherited = [n for n in range(256) if os.path.exists(f"/proc/self/fd/{{n}}") and os.get_inheritable(n)]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([words, os.getcwd(), variables, inherited]).encode()
    socket.send_fds(server, [b"run " + len(request).to_bytes(8)], inherited)
    server.sendall(request)
    for number in inherited[3:]:
        os.close(number)
    answer = server.recv(4)
if not answer:
    sys.exit("the server of forked processes has ended")
code = int.from_bytes(answer, signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def python(
    folder: Path, repository: Path, modules: tuple[str, ...] = (), base: str = sys.executable
) -> tuple[Path, socket.socket]:
    """Start the server unless it runs.

    Args:
        folder: shared by all workers of pytest.
        repository: the root of the checkout.
        modules: imported besides PyTorch.
        base: starts the server; a forked Python again, for one that has imported more.

    Returns:
        the executable, and a connection, which keeps the server alive until it is closed.
    """
    name = "-".join(["python-forked", *modules])
    address = f"\0datacheck-{folder.stat().st_ino}-{name}"
    executable = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = socket.socket(socket.AF_UNIX)
        try:
            held.connect(address)
        except ConnectionRefusedError:
            _start(address, repository, modules, base)
            held.connect(address)
            _write(executable, address)
        held.sendall(b"hold")
    return executable, held


def _start(address: str, repository: Path, modules: tuple[str, ...], base: str) -> None:
    code = f"from tests.forked import serve; serve({address!r}, {modules!r})"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_NUM_THREADS") and name != "PYTHONHASHSEED"
    }
    server = subprocess.Popen(
        [base, "-c", code],
        env=kept | {"PYTHONPATH": str(repository)},
        cwd=repository,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None
    with server.stdout as ready:
        assert ready.readline() == b"ready\n"
    server.returncode = 0  # it may outlive this worker


def _write(executable: Path, address: str) -> None:
    set_at_start = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PYTHON") and name not in {"PYTHONPATH", "PYTHONHASHSEED"}
    }
    text = _CLIENT.format(executable=sys.executable, address=address, set_at_start=set_at_start)
    executable.write_text(text)
    executable.chmod(0o755)


# ------------------------------------------------------------------------------------------- server


def serve(address: str, modules: tuple[str, ...]) -> None:
    """Fork a process for each request until no worker holds a connection."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has no threads of its parent
    from datacheck.formats.base import formats
    from datacheck.plugins import resolve
    from datacheck.repro.captures import capture

    for name in (*_PRELOADED, *modules):
        resolve(name)
    formats()
    capture()  # digests of installed packages and libraries stay in memory
    own = {"", _ENTRY, *os.environ["PYTHONPATH"].split(os.pathsep)}
    _INSTALLED[:] = [entry for entry in sys.path if entry not in own]
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    os.dup2(2, 1)
    held = [_accepted(listener, [])]
    while held := [one for one in held if one is not None]:
        ready, _, _ = select.select([listener, *held], [], [], 1.0)
        held = [one for one in held if one not in ready]
        if listener in ready:
            held.append(_accepted(listener, held))
        while _reaped():
            pass


def _accepted(listener: socket.socket, held: list[socket.socket]) -> socket.socket | None:
    """Take a request; return the connection if it is one to be held, else fork a process for it."""
    connection, _ = listener.accept()
    word, fds, _, _ = socket.recv_fds(connection, 12, 256)
    if word == b"hold":
        return connection
    if os.fork() == 0:
        for other in (listener, *held):
            other.close()
        _attend(connection, int.from_bytes(word[4:]), fds)
    connection.close()
    for fd in fds:
        os.close(fd)
    return None


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _attend(connection: socket.socket, size: int, fds: list[int]) -> None:
    """Start the process, wait for it, send its exit code; kill it if whoever asked is gone."""
    received = b""
    while len(received) < size:
        received += connection.recv(size - len(received))
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(*json.loads(received), fds)
    for fd in fds:
        os.close(fd)
    with closing(os.fdopen(os.pidfd_open(pid))) as process:
        ready, _, _ = select.select([process, connection], [], [])
        if process not in ready:
            os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        connection.sendall(code.to_bytes(4, signed=True))
    finally:
        os._exit(0)


def _become(
    words: list[str], folder: str, variables: dict[str, str], numbers: list[int], fds: list[int]
) -> None:
    """Run what `python` would with these words, and end."""
    apart = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(apart, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.setsid()
    code = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        _forget()
        _run(words)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if not isinstance(error.code, int | None):
            sys.stderr.write(f"{error.code}\n")
    except BaseException as error:  # noqa: BLE001  as Python shows it
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals is globals():
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


def _forget() -> None:
    """Take back what a new process would not have: random states, modules, search paths."""
    numpy, torch = sys.modules["numpy"], sys.modules.pop("torch")
    random.seed()
    numpy.random.set_bit_generator(numpy.random.MT19937())  # as in a new process, without a seed
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    before = os.environ.get("PYTHONPATH", "")
    given = [os.path.abspath(place) for place in before.split(os.pathsep) if place]
    sys.path[:] = [*given, _ENTRY, *_INSTALLED]
    sys.path_hooks.insert(0, lambda entry: _finder(entry, torch))
    # A process of multiprocessing takes over the search path of its parent
    sys.meta_path.insert(0, _Torch(torch))
    importlib.invalidate_caches()


def _run(words: list[str]) -> None:
    kind = words[0]
    if kind == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *words[2:]]
        text, name = words[1], "<string>"
    else:
        path = Path(kind)
        sys.path.insert(0, str(path.resolve().parent))
        sys.argv = words
        text, name = path.read_text(), str(path.absolute())
        main.__file__ = name
    exec(compile(text, name, "exec"), main.__dict__)


def _finder(entry: str, torch: ModuleType) -> _Torch:
    if entry != _ENTRY:
        raise ImportError
    return _Torch(torch)


class _Torch:
    """Finds the PyTorch of the server, so that its import is one, hooks included."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.spec = torch.__spec__

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "torch":
            return None
        spec = ModuleSpec("torch", _Torch(self.torch), origin=self.torch.__file__, is_package=True)
        spec.submodule_search_locations = list(self.torch.__path__)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.torch

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec
