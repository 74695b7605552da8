"""Children that are forked of a server: what they are, how they end, and whom they outlive."""

import contextlib
import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from datacheck import forks
from datacheck.child import Child, Limits
from datacheck.forks import Forked

HERE = "tests.trunk.test_forks"


def told(task, beat):
    beat(0)
    with os.scandir("/proc/self/fd") as found:
        held = sorted(int(entry.name) for entry in found)
    return {
        "pid": os.getpid(), "server": os.getppid(), "group": os.getpgid(0), "here": str(Path.cwd()),
        "said": os.environ.get("SAID", ""), "held": held, "path": sys.path,
    }  # fmt: skip


def ended(task, beat):
    beat(0)
    os._exit(task["code"]) if task["code"] >= 0 else os.kill(os.getpid(), -task["code"])


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
    # three of each process, the counter twice, the two pipes of `serve`, and the folder that is being listed
    assert second["held"] == [*range(8)]


@pytest.mark.parametrize(("code", "said"), [(5, "ended with status 5"), (-signal.SIGSEGV, "killed by SIGSEGV")])
def test_how_a_child_has_ended_is_known(child, code, said):
    _, death = child.run(f"{HERE}:ended", {"code": code})
    assert said in death.how
    assert child.run(f"{HERE}:told", {})[1] is None


def test_what_a_child_has_started_ends_with_it(child):
    pid, _ = child.run(f"{HERE}:starting", {})
    child.close()
    assert gone(pid)


def test_variables_that_count_at_the_start_ask_for_another_server_and_earlier_children_go_on(child, monkeypatch):
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
    monkeypatch.setattr("datacheck.forks._REAPED_S", 0.5)
    found, _ = child.run(f"{HERE}:told", {})
    os.kill(found["server"], signal.SIGSTOP)
    try:
        _, death = child.run(f"{HERE}:ended", {"code": 5})
        assert "killed by SIGKILL" in death.how
    finally:
        os.kill(found["server"], signal.SIGCONT)


def test_a_server_that_can_fork_no_more_says_so_to_whoever_asks_and_goes_on(monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair()
    mine, said = socket.socketpair()
    with ours, theirs, mine, tempfile.TemporaryFile() as file:
        socket.send_fds(ours, [(2).to_bytes(4, "little") + b"[]"], [*[file.fileno()] * 4, said.fileno()])
        said.close()
        monkeypatch.setattr(os, "fork", refuse)
        assert forks._fork(theirs, selectors.DefaultSelector())
        assert mine.recv(1) == b""


PARENT = """
import os, sys
from datacheck.child import Child, Limits
child = Child(Limits())
found, death = child.run("tests.trunk.test_forks:told", {})
if sys.argv[1] == "fork":  # as a loader's worker: it has a server of its own
    pid = os.fork()
    if not pid:
        other = Child(Limits())
        mine, death = other.run("tests.trunk.test_forks:told", {})
        os._exit(0 if death is None and mine["server"] != found["server"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert child.run("tests.trunk.test_forks:told", {})[0]["pid"] == found["pid"]
print(found["pid"], found["server"], flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_neither_children_nor_server_outlive_a_parent_that_is_killed(how, repository):
    done = subprocess.run(
        [sys.executable, "-c", PARENT, how], capture_output=True, text=True, cwd=repository, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [gone(pid) for pid in done.stdout.split()] == [True, True]
