"""Children that are forked of a server: what they are, how they end, and whom they outlive."""

import contextlib
import errno
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from datacheck.workers import fork_server
from datacheck.workers.child import Child, Limits
from datacheck.workers.fork_server import Forked

HERE = "tests.trunk.test_fork_server"


def told(task, beat):
    beat(0)
    with os.scandir("/proc/self/fd") as found:
        held = sorted(int(entry.name) for entry in found)
    return {
        "pid": os.getpid(),
        "server": os.getppid(),
        "group": os.getpgid(0),
        "here": str(Path.cwd()),
        "said": os.environ.get("SAID", ""),
        "held": held,
        "path": sys.path,
        "umask": os.umask(0o022),
        "nice": os.nice(0),
        "random": "numpy.random" in sys.modules,
        "threads": len(os.listdir("/proc/self/task")),
    }


def ended(task, beat):
    beat(0)
    os._exit(task["code"]) if task["code"] >= 0 else os.kill(os.getpid(), -task["code"])


def shut(task, beat):
    """What a child may do that was taken over: no more pipes, and no end."""
    beat(0)
    for descriptor in range(3, 8):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    time.sleep(600)


def limited(task, beat):
    """What becomes of a process that another program leaves without memory."""
    beat(0)
    resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))
    if task["items"] == ["fails"]:
        bytearray(1 << 30)
    return {}


def starting(task, beat):
    beat(0)
    return subprocess.Popen(["sleep", "600"]).pid


def gone(pid, seconds=30.0):
    """Wait until a process is no more, or a zombie that somebody else has to bury."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def child():
    with contextlib.closing(Child(Limits())) as made:
        yield made


def test_children_have_one_server_and_are_what_a_new_process_would_be(child, monkeypatch, tmp_path):
    first, _ = child.run(f"{HERE}:told", {})
    monkeypatch.setenv("SAID", "é")
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Child(Limits())) as other:
        second, _ = other.run(f"{HERE}:told", {})
        assert isinstance(other._process, Forked)
    assert first["server"] == second["server"] != os.getpid()
    assert (second["here"], second["said"], first["said"]) == (str(tmp_path), "é", "")
    assert second["pid"] == second["group"] != first["pid"]
    assert "" not in second["path"]
    # three of each process, the counter twice, the two pipes of `serve`, and the folder that is
    # being listed
    assert second["held"] == [*range(8)]
    assert not second["random"]  # all children would draw the same numbers
    # Others would be gone in a fork
    assert len(os.listdir(f"/proc/{second['server']}/task")) == second["threads"] == 1


@pytest.mark.parametrize(
    ("code", "said"), [(5, "ended with status 5"), (-signal.SIGSEGV, "killed by SIGSEGV")]
)
def test_how_a_child_has_ended_is_known(child, code, said):
    _, death = child.run(f"{HERE}:ended", {"code": code})
    assert said in death.how
    assert child.run(f"{HERE}:told", {})[1] is None


def test_what_a_child_has_started_ends_with_it(child):
    pid, _ = child.run(f"{HERE}:starting", {})
    child.close()
    assert gone(pid)


def test_variables_that_count_at_the_start_ask_for_another_server_and_earlier_children_go_on(
    child, monkeypatch
):
    fork_server._close_all()
    monkeypatch.setattr(fork_server, "_IDLE_S", 0.2)
    first, _ = child.run(f"{HERE}:told", {})
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    with contextlib.closing(Child(Limits())) as other:
        second, _ = other.run(f"{HERE}:told", {})
        assert second["server"] != first["server"]
        assert child.run(f"{HERE}:told", {})[0]["pid"] == first["pid"]
    child.close()
    assert gone(first["server"])


@pytest.mark.parametrize("doomed", ["server", "child"])
def test_another_child_takes_the_place_of_one_that_was_killed(child, doomed):
    first, _ = child.run(f"{HERE}:told", {})
    os.kill(first["server" if doomed == "server" else "pid"], signal.SIGKILL)
    assert gone(first["pid"])
    _, death = child.run(f"{HERE}:told", {"items": ["a"]})
    assert death is None or death.kind == "killed"
    assert child.run(f"{HERE}:told", {})[1] is None


def test_a_server_that_is_stopped_holds_nobody_up(child, monkeypatch):
    monkeypatch.setattr("datacheck.workers.fork_server._EXIT_S", 0.5)
    found, _ = child.run(f"{HERE}:told", {})
    os.kill(found["server"], signal.SIGSTOP)
    try:
        _, death = child.run(f"{HERE}:ended", {"code": 5})
        assert "killed by SIGKILL" in death.how
    finally:
        os.kill(found["server"], signal.SIGCONT)


@pytest.mark.parametrize("name", ["fork", "pidfd_open"])
def test_a_server_that_cannot_fork_says_so_to_whoever_asks_and_goes_on(monkeypatch, name):
    def refuse(*_):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair()
    mine, exits = socket.socketpair()
    fork, forked = os.fork, []
    monkeypatch.setattr(os, "fork", lambda: forked.append(pid := fork()) or pid)
    with ours, theirs, mine, tempfile.TemporaryFile() as file:
        socket.send_fds(
            ours, [(2).to_bytes(4, "little") + b"[]"], [exits.fileno(), *[file.fileno()] * 5]
        )
        exits.close()
        monkeypatch.setattr(fork_server, "_run_child", lambda *_: os._exit(0))
        monkeypatch.setattr(os, name, refuse)
        fork_server._fork(theirs, selectors.DefaultSelector(), fork_server._limits())
        assert mine.recv(5) == (-errno.EAGAIN).to_bytes(4, "little", signed=True)
        assert mine.recv(1) == b""
        assert theirs.fileno() >= 0
    assert len(forked) == (name == "pidfd_open")
    for pid in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)  # it was waited for


@pytest.mark.parametrize("how", ["off", ""])
def test_a_child_without_pipes_that_goes_on_is_ended(monkeypatch, how):
    monkeypatch.setenv("DATACHECK_FORK", how)
    with contextlib.closing(Child(Limits(item_s=0.5))) as child:
        _, death = child.run(f"{HERE}:shut", {"items": ["a"]})
    assert (death.item, death.kind, death.machine) == ("a", "silent", False)


def test_a_child_has_the_umask_and_the_priority_of_its_parent(child):
    first, _ = child.run(f"{HERE}:told", {})
    before = os.umask(0o077)
    try:
        with contextlib.closing(Child(Limits())) as other:
            second, _ = other.run(f"{HERE}:told", {})
    finally:
        os.umask(before)
    assert (first["umask"], second["umask"]) == (before, 0o077)
    assert (first["nice"], second["nice"]) == (os.nice(0), os.nice(0))
    with contextlib.closing(Child(Limits())) as again:
        assert again.run(f"{HERE}:told", {})[0]["server"] == first["server"]


def test_a_server_that_somebody_has_limited_forks_no_more(child):
    first, _ = child.run(f"{HERE}:told", {})
    most = resource.prlimit(first["server"], resource.RLIMIT_FSIZE)
    resource.prlimit(first["server"], resource.RLIMIT_FSIZE, (1 << 20, most[1]))
    with contextlib.closing(Child(Limits())) as other:
        assert other.run(f"{HERE}:told", {})[0]["server"] != first["server"]
    assert child.run(f"{HERE}:told", {})[0]["pid"] == first["pid"]


@pytest.mark.parametrize("item", ["reads", "fails"])
def test_what_a_child_says_that_somebody_left_without_memory_is_no_verdict(child, item):
    _, death = child.run(f"{HERE}:limited", {"items": [item]})
    assert (death.kind, death.machine) == ("killed", True)
    assert "limited to less memory than it began with" in death.how


def test_no_item_is_to_blame_for_a_child_that_could_not_import_what_reads_it(child):
    _, death = child.run("tests.trunk.dying:read", {"items": ["a"]})
    assert (death.kind, death.machine) == ("killed", True)
    _, death = child.run(f"{HERE}:ended", {"items": ["a"], "code": 1})
    assert (death.kind, death.machine) == ("", False)


def test_a_descriptor_that_is_used_again_at_once_belongs_to_the_new_child(child):
    """The server finds two ends and a request together; what the first closes, the new child may get."""
    first, _ = child.run(f"{HERE}:told", {})
    os.kill(first["server"], signal.SIGSTOP)
    time.sleep(0.05)
    child._process._exits.close()
    os.kill(first["pid"], signal.SIGKILL)
    with contextlib.closing(Child(Limits())) as other:
        found = []
        asking = threading.Thread(target=lambda: found.append(other.run(f"{HERE}:told", {})[0]))
        asking.start()
        time.sleep(0.1)
        os.kill(first["server"], signal.SIGCONT)
        asking.join()
        assert found[0]["server"] == first["server"]
        os.kill(found[0]["pid"], signal.SIGTERM)
        assert other._process.wait(800) == -signal.SIGTERM


def test_a_child_is_waited_for_where_more_than_a_thousand_files_are_open(child):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2_000:
        pytest.skip("this machine allows no 2,000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(1_100):
                stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
            child.run(f"{HERE}:told", {})
            used = time.process_time()
            with pytest.raises(subprocess.TimeoutExpired):
                child._process.wait(0.5)
            assert time.process_time() - used < 0.25
            child.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_servers_end_at_once_children_are_programs_of_their_own(monkeypatch):
    started = []
    monkeypatch.setattr(fork_server, "_failed", False)
    monkeypatch.setattr(fork_server, "_SERVERS", {})
    monkeypatch.setattr(fork_server, "_BOOT", "pass")
    real = fork_server._Server
    monkeypatch.setattr(
        fork_server, "_Server", lambda *given: started.append(real(*given)) or started[-1]
    )
    for _ in range(2):
        with contextlib.closing(Child(Limits())) as child:
            assert child.run(f"{HERE}:told", {})[0]["server"] == os.getpid()
    assert len(started) == 2


PARENT = """
import os, signal, sys, time
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from datacheck.workers.child import Child, Limits
child = Child(Limits())
found, death = child.run("tests.trunk.test_fork_server:told", {})
if sys.argv[1] == "fork":  # as a loader's worker: it has a server of its own
    pid = os.fork()
    if not pid:
        other = Child(Limits())
        mine, death = other.run("tests.trunk.test_fork_server:told", {})
        os._exit(0 if death is None and mine["server"] != found["server"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert child.run("tests.trunk.test_fork_server:told", {})[0]["pid"] == found["pid"]
if sys.argv[1] == "left" and not os.fork():  # holds the sockets and pipes of its parent
    os.close(1), os.close(2)
    time.sleep(600)
print(found["pid"], found["server"], flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["alone", "fork", "left", "ignored"])
def test_neither_children_nor_server_outlive_a_parent_that_is_killed(how, repository):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=repository,
        process_group=0,
    ) as process:
        out, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
        assert [gone(int(pid)) for pid in out.split()] == [True, True]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the one that was left


def test_exit_codes_are_known_where_the_parent_ignores_the_end_of_children(repository):
    code = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from datacheck.workers.child import Child, Limits
_, death = Child(Limits()).run("tests.trunk.test_fork_server:ended", {"code": 5})
print(death.how)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=repository, check=False
    )
    assert "ended with status 5" in done.stdout, done.stderr
