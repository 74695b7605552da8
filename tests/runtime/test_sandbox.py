"""What a child in a sandbox cannot do; the same child without one can, which shows that each attempt is a real one."""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from datacheck.runtime import sandbox
from datacheck.runtime.sandbox import Sandbox
from datacheck.workers.child import PARSER, Child, Limits

HERE = "tests.runtime.test_sandbox:attempts"


def hold_in_socket():
    one, other = socket.socketpair()
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def send_file():
    one, other = socket.socketpair()
    with one, other:
        socket.send_fds(one, [b"x"], [0])


def send_datagram(path):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.send(b"to the other of the pair")
        one.sendto(b"x", str(path))


def attempts(task, beat):
    """Try what a child that was taken over would try; return the name of each attempt that worked."""
    beat(0)
    outside, inside, port = Path(task["outside"]), Path(task["inside"]), task["port"]
    tries = {
        "read a file outside": lambda: (outside / "secret").read_bytes(),
        "list a folder outside": lambda: os.listdir(outside),
        "read the parent's variables": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "read by a link that leads out": lambda: (inside / "out").read_bytes(),
        "write a file outside": lambda: (outside / "made").write_bytes(b"x"),
        "remove a file outside": lambda: (outside / "doomed").unlink(),
        "change the mode of a file outside": lambda: (outside / "secret").chmod(0o600),
        "change the times of a file outside": lambda: os.utime(outside / "secret", (1, 1)),
        "read an attribute of a file outside": lambda: os.listxattr(outside / "secret"),
        "change the mode of a file of the data": lambda: mode(inside / "file"),
        "write beside the data": lambda: (inside / "made").write_bytes(b"x"),
        "cut a file of the data": lambda: os.truncate(inside / "file", 1),
        "leave a link beside the data": lambda: os.symlink(outside, inside / "link"),
        "leave a pipe there": lambda: os.mkfifo(inside / "pipe"),
        "write a temporary file": lambda: tempfile.TemporaryFile().close(),
        "hold memory that no limit counts": lambda: os.close(os.memfd_create("more")),
        "hold it in a pipe": lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETPIPE_SZ, 1 << 20),
        "leave its group of processes": lambda: os.setpgid(0, os.getpgid(os.getppid())),
        "leave its session": leave_session,
        "outlive the parent": lambda: asked(ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)),
        "schedule itself before others": lambda: os.sched_setscheduler(
            0, os.SCHED_BATCH, os.sched_param(0)
        ),
        "change the flags of a file": lambda: flags(inside / "file"),
        "hold up who writes": lambda: lease(inside / "file"),
        "change the mode in a new way": lambda: call(
            452, -100, os.fsencode(outside / "secret"), 0o600, 0
        ),
        "make a socket": lambda: socket.socket().close(),
        "connect to a server": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
        "start a program": lambda: subprocess.run(["true"], check=True),
        "fork": fork,
        "send a signal to the parent": lambda: os.kill(os.getppid(), 0),
        "be traced": trace,
        "limit the parent": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)),
        "read the parent's limits": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU),
        "bind the parent to a core": lambda: os.sched_setaffinity(
            os.getppid(), os.sched_getaffinity(0)
        ),
        "schedule the parent": lambda: os.sched_setscheduler(
            os.getppid(), os.SCHED_OTHER, os.sched_param(0)
        ),
        "slow the parent down": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 0),
        "have the parent signalled by a pipe": lambda: fcntl.fcntl(
            os.pipe()[0], fcntl.F_SETOWN, os.getppid()
        ),
        "have it killed": lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, signal.SIGKILL),
        "have it signalled by a socket": own_socket,
        "share memory": lambda: call(29, 0, 4096, 0o600),
        "make a queue of messages": lambda: call(68, 0, 0o600),
        "make a semaphore": lambda: call(64, 0, 1, 0o600),
        "hold the parent": lambda: os.close(os.pidfd_open(os.getppid())),
        "set its priority of reading": lambda: call(251, 1, os.getppid(), 0),
        "hold memory in a socket": hold_in_socket,
        "send open files": send_file,
        "hold memory in locks": lambda: lock(inside / "file"),
        "send a message to a socket outside": lambda: send_datagram(outside / "socket"),
        "make rules of files": lambda: call(444, 0, 0, 1),
        "have the machine write all to its disk": lambda: call(306, os.open(inside, os.O_RDONLY)),
        "hear of files outside": lambda: call(254, call(294, 0), os.fsencode(outside), 0x100),
    }
    return [name for name, attempt in tries.items() if worked(attempt)]


def own_socket():
    one, other = socket.socketpair()
    with one, other:
        fcntl.ioctl(one, 0x8901, struct.pack("i", os.getppid()))  # FIOSETOWN


def asked(code):
    if code:
        raise OSError(code, "refused")


def flags(path):
    with path.open("rb") as file:
        found = bytearray(8)
        fcntl.ioctl(file, 0x80086601, found)  # FS_IOC_GETFLAGS
        fcntl.ioctl(file, 0x40086602, bytes(found))  # FS_IOC_SETFLAGS


def lock(path):
    with path.open("rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH, 1)


def lease(path):
    with path.open("rb") as file:
        fcntl.fcntl(file, 1024, fcntl.F_RDLCK)  # F_SETLEASE


def leave_session():
    # That of the kernel: the first of a group stays in its session
    with contextlib.suppress(PermissionError):
        os.setpgid(0, os.getpgid(os.getppid()))
    os.setsid()


def call(number, *arguments):
    """Make a system call of x86-64, by its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(number, *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), "refused")
    if number in {29, 68, 64}:
        # Removes it
        libc.syscall(*{29: (31, found, 0), 68: (71, found, 0), 64: (66, found, 0, 0)}[number])


def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def trace():
    if ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")


def worked(attempt):
    try:
        attempt()
    except OSError:
        return False
    return True


@pytest.fixture
def place(tmp_path):
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
    for name in ("outside/secret", "outside/doomed", "inside/file"):
        (tmp_path / name).write_bytes(b"12345678")
    (tmp_path / "inside/out").symlink_to(tmp_path / "outside/secret")
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with socket.create_server(("127.0.0.1", 0)) as server, datagrams:
        datagrams.bind(str(tmp_path / "outside/socket"))
        yield {
            "items": [0],
            "outside": str(tmp_path / "outside"),
            "inside": str(tmp_path / "inside"),
            "port": server.getsockname()[1],
        }


def run(place, box, function=HERE):
    with contextlib.closing(Child(Limits(), replace(PARSER, sandbox=box))) as child:
        return child.run(function, place)


needs_all = pytest.mark.skipif(
    not (sandbox._landlock_version() >= 6 and sandbox._has_seccomp()),
    reason="this kernel lacks a part of the sandbox (Landlock 6, seccomp)",
)


@needs_all
def test_a_child_in_a_sandbox_can_do_none_of_this(place):
    assert run(place, Sandbox((place["inside"],))) == ([], None)


def test_a_child_without_one_can_do_all_of_it(place, monkeypatch):
    monkeypatch.setenv("DATACHECK_SANDBOX", "off")
    done, death = run(place, Sandbox((place["inside"],)))
    assert death is None
    assert len(done) == 49
    assert (Path(place["outside"]) / "made").exists()
    assert not (Path(place["outside"]) / "doomed").exists()


def allowed(task, beat):
    """What a parser needs."""
    beat(0)
    ran = []
    thread = threading.Thread(target=lambda: ran.append("thread"))
    thread.start()
    thread.join()
    inside = Path(task["inside"])
    one, other = socket.socketpair()  # asyncio's, which zarr runs on
    one.send(b"x")
    one.close()
    other.close()
    import h5py  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import zarr  # noqa: F401

    return [*ran, (inside / "file").read_bytes().decode(), sorted(os.listdir(inside))]


def test_a_child_in_a_sandbox_reads_the_data_starts_threads_and_imports_what_is_installed(place):
    done, death = run(place, Sandbox((place["inside"],)), "tests.runtime.test_sandbox:allowed")
    assert (done, death) == (["thread", "12345678", ["file", "out"]], None)


def mode(path):
    with path.open("rb") as file:
        os.fchmod(file.fileno(), 0o444)


def writing(task, beat):
    beat(0)
    inside, outside = Path(task["inside"]), Path(task["outside"])
    (inside / "new").mkdir()
    (inside / "new/a").write_bytes(b"x")
    (inside / "new/a").rename(inside / "b")
    (inside / "b").open("r+b").close()
    with open(os.open(inside / "c", os.O_WRONLY | os.O_CREAT, 0o444), "wb") as file:
        file.write(b"y")  # a file that is made read-only is written by the handle that made it
        refused = {
            "write a file outside": lambda: (outside / "made").write_bytes(b"x"),
            "make a socket": lambda: socket.socket().close(),
            "change the mode of a file outside": lambda: (outside / "secret").chmod(0o777),
            "change the times of a file outside": lambda: os.utime(outside / "secret", (1, 1)),
            "change the owner of a file outside": lambda: os.chown(
                outside / "secret", os.getuid(), os.getgid()
            ),
            "change an attribute of a file outside": lambda: os.setxattr(
                outside / "secret", "user.a", b"x"
            ),
            "read an attribute of a file outside": lambda: os.listxattr(outside / "secret"),
            "make a file unreadable": lambda: os.fchmod(file.fileno(), 0),
            "let a file be a program": lambda: os.fchmod(file.fileno(), 0o555),
            "let it run as its owner": lambda: os.fchmod(file.fileno(), 0o4444),
        }
        return [name for name, attempt in refused.items() if worked(attempt)]


@needs_all
def test_a_child_that_writes_does_so_in_its_folders_only(place):
    assert run(place, Sandbox((), (place["inside"],)), "tests.runtime.test_sandbox:writing") == (
        [],
        None,
    )
    assert (Path(place["inside"]) / "b").read_bytes() == b"x"
    assert (Path(place["inside"]) / "c").read_bytes() == b"y"


def limiting(task, beat):
    """Change what is one's own."""
    beat(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_child_in_a_sandbox_may_limit_itself(place):
    assert run(place, Sandbox((place["inside"],)), "tests.runtime.test_sandbox:limiting") == (
        64,
        None,
    )


def hiding(task, beat):
    beat(0)
    os.setpgid(0, os.getpgid(os.getppid()))
    time.sleep(600)


def test_a_child_that_has_left_its_group_is_ended(place, monkeypatch):
    monkeypatch.setenv("DATACHECK_SANDBOX", "off")  # which refuses it
    with contextlib.closing(Child(Limits(item_s=0.5))) as child:
        _, death = child.run("tests.runtime.test_sandbox:hiding", place)
    assert "0.5 s" in death.how


def aborting(task, beat):
    beat(0)
    os.abort()


def test_a_child_in_a_sandbox_may_end_itself(place):
    _, death = run(place, Sandbox((place["inside"],)), "tests.runtime.test_sandbox:aborting")
    assert signal.SIGABRT.name in death.how


def test_a_kernel_without_either_part_still_runs_children(place, monkeypatch):
    code = (
        "from datacheck.runtime import sandbox\n"
        "sandbox._landlock_version = lambda: 0\nsandbox._has_seccomp = lambda: False\n"
        "sandbox.enter(sandbox.Sandbox(('/nowhere',)))\nprint(sandbox.sandbox_parts())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "none: this kernel has neither landlock nor seccomp\n"


def test_an_old_landlock_lets_no_file_be_cut(place):
    file = f"{place['outside']}/secret"
    code = (
        "import os\nfrom datacheck.runtime import sandbox\nsandbox._landlock_version = lambda: 2\n"
        f"sandbox.enter(sandbox.Sandbox(({place['inside']!r},)))\nos.truncate({file!r}, 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr
    assert Path(file).read_bytes() == b"12345678"


def test_an_old_landlock_lets_no_file_be_emptied_by_opening(place):
    file = f"{place['inside']}/file"
    code = (
        "import os\nfrom datacheck.runtime import sandbox\nsandbox._landlock_version = lambda: 2\n"
        f"sandbox.enter(sandbox.Sandbox(({place['inside']!r},)))\nprint(os.read(os.open({file!r}, "
        f"os.O_RDONLY), 2))\n"
        f"os.open({file!r}, os.O_RDONLY | os.O_TRUNC)"
    )
    before = Path(file).read_bytes()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, "PermissionError" in done.stderr) == (f"{before[:2]!r}\n", True)
    assert Path(file).read_bytes() == before


def lowering(task, beat):
    beat(0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 2000))
    sandbox.lower_limit(resource.RLIMIT_FSIZE, 5000)  # the user has allowed less
    first = resource.getrlimit(resource.RLIMIT_FSIZE)
    sandbox.lower_limit(resource.RLIMIT_FSIZE, 500)
    return [*first, *resource.getrlimit(resource.RLIMIT_FSIZE)]


def test_a_limit_is_lowered_and_never_raised(place):
    assert run(place, None, "tests.runtime.test_sandbox:lowering") == ([1000, 2000, 500, 500], None)
