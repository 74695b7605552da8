import contextlib
import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from datacheck.errors import OutOfSpaceError, StorageError, SyncFailedError, UsageError
from datacheck.runtime import folders, fsops
from datacheck.runtime.fsops import System


def test_a_file_appears_whole_and_nothing_else_stays(tmp_path):
    fsops.write_file(tmp_path / "x", [b"ab", memoryview(b"cd")])
    assert (tmp_path / "x").read_bytes() == b"abcd"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_its_own_error_and_leaves_nothing(tmp_path, monkeypatch, number):
    (tmp_path / "x").write_bytes(b"old")

    def refuse(descriptor, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fsops.os, "write", refuse)
    with pytest.raises(OutOfSpaceError, match="Free some space"):
        fsops.write_file(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(fsops.os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    fsops.write_file(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_a_real_file_size_limit_is_out_of_space(tmp_path):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            fsops.write_file(tmp_path / "x", b"x" * 5000)
        except OutOfSpaceError:
            os._exit(5)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(StorageError, match="no such file"):
        fsops.write_file(tmp_path / "no" / "x", b"")


def test_a_place_that_cannot_be_written_is_known_before_the_work(tmp_path, monkeypatch):
    fsops.check_writable(tmp_path / "a/b")
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file: not a directory"):
        fsops.check_writable(tmp_path / "file/b")
    # As on a disk mounted read-only
    monkeypatch.setattr(fsops.os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="nothing can be written there"):
        fsops.check_writable(tmp_path / "a/b")


class Log(System):
    """Notes every call on a path or a descriptor, and fails those asked for."""

    def __init__(self, **failing):
        self.calls, self.failing, self.names = [], failing, {}

    def note(self, name, what):
        self.calls.append((name, self.names.get(what, what)))
        if name in self.failing:
            raise OSError(self.failing[name], os.strerror(self.failing[name]))

    def create(self, path, mode, folder=None):
        self.note("create", path)
        self.names[descriptor := super().create(path, mode, folder)] = path
        return descriptor

    def open(self, path, flags):
        self.names[descriptor := super().open(path, flags)] = path
        return descriptor

    def sync(self, descriptor):
        self.note("sync", descriptor)
        super().sync(descriptor)

    def rename(self, source, target, folder=None, to=None):
        self.note("rename", target)
        super().rename(source, target, folder, to)

    def mkdir(self, path, *more):
        self.note("mkdir", path)
        super().mkdir(path, *more)

    def link(self, source, target, folder=None):
        self.note("link", target)
        super().link(source, target, folder)

    def exchange(self, one, other, folder=None, to=None):
        self.note("exchange", one)
        super().exchange(one, other, folder, to)


def logged(monkeypatch, **failing):
    log = Log(**failing)
    monkeypatch.setattr(fsops, "SYSTEM", log)
    return log


def test_bytes_are_durable_before_the_name_is_there(tmp_path, monkeypatch):
    log = logged(monkeypatch)
    fsops.write_file(tmp_path / "x", b"ab")
    assert [name for name, _ in log.calls] == ["create", "sync", "rename"]
    fsops.write_file(tmp_path / "y", b"ab", sync=False)
    assert [name for name, _ in log.calls[3:]] == ["create", "rename"]
    fsops.sync_files([tmp_path / "y", tmp_path])
    assert log.calls[5:] == [("sync", tmp_path / "y"), ("sync", tmp_path)]


def test_a_file_is_born_with_its_permissions(tmp_path):
    before = os.umask(0o022)
    try:
        fsops.write_file(tmp_path / "x", b"ab")
        fsops.write_file(tmp_path / "y", b"ab", mode=0o666)
        os.umask(0o077)
        fsops.write_file(tmp_path / "z", b"ab")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "xyz"] == [
        0o444,
        0o644,
        0o400,
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_the_device_did_not_take_is_an_error_of_its_own(tmp_path, monkeypatch, number):
    log = logged(monkeypatch, sync=number)
    with pytest.raises(SyncFailedError, match="cannot be relied on"):
        fsops.write_file(tmp_path / "x", b"ab")
    assert os.listdir(tmp_path) == []
    assert [name for name, _ in log.calls].count("sync") == 1  # a second try would seem to succeed


def test_a_tail_may_be_written_twice_and_replaces_what_is_there(tmp_path):
    path = tmp_path / "x"
    fsops.write_file(path, b"payload")
    for tail in (b"a long tail", b"tail", b"tail"):
        fsops.write_tail(path, 7, tail)
        assert path.read_bytes() == b"payload" + tail
        assert stat.S_IMODE(path.stat().st_mode) & 0o222 == 0
        before = path.stat()
        fsops.write_tail(path, 7, tail)  # the file may be a link to one of a published cache
        assert path.stat() == before


@pytest.mark.parametrize("mode", [0o444, 0o644])
def test_a_tail_is_never_written_into_a_file_of_another_name(tmp_path, mode):
    published, ours = tmp_path / "published", tmp_path / "ours"
    published.write_bytes(b"payload, index of R")
    published.chmod(mode)
    fsops.link(published, ours)
    before = published.stat()
    fsops.write_tail(ours, 7, b", index of R")
    after = published.stat()  # the time of access changes where the tail is read in another second
    assert (after.st_ino, after.st_mode, after.st_size, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_size,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    fsops.write_tail(ours, 7, b", another")
    assert (published.read_bytes(), ours.read_bytes()) == (
        b"payload, index of R",
        b"payload, another",
    )
    assert (published.stat().st_mode, published.stat().st_mtime_ns) == (
        before.st_mode,
        before.st_mtime_ns,
    )
    assert stat.S_IMODE(ours.stat().st_mode) == 0o444


def test_a_file_that_somebody_may_write_is_copied_and_not_linked(tmp_path):
    (tmp_path / "x").write_bytes(b"ab")
    (tmp_path / "x").chmod(0o644)
    fsops.link_or_copy(tmp_path / "x", tmp_path / "y")
    (tmp_path / "x").write_bytes(b"cd")
    assert (tmp_path / "y").read_bytes() == b"ab"
    assert stat.S_IMODE((tmp_path / "y").stat().st_mode) == 0o444


def test_every_new_folder_is_durable_in_its_parent(tmp_path, monkeypatch):
    log = logged(monkeypatch)
    a, b = tmp_path / "a", tmp_path / "a/b"
    fsops.make_directory(b)
    made = [("mkdir", a), ("sync", tmp_path), ("mkdir", b), ("sync", a)]
    assert log.calls == [("sync", tmp_path.parent), *made]
    fsops.make_directory(b)  # who made it may have been killed before the sync
    assert log.calls[5:] == [("sync", a)]
    fsops.make_directory(b / "c", sync=False)
    assert log.calls[6:] == [("mkdir", b / "c")]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        fsops.make_directory(tmp_path / "file")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_the_folder_above_what_was_there_need_not_be_ours(tmp_path, monkeypatch, number):
    log = logged(monkeypatch, sync=number)
    fsops.make_directory(tmp_path)
    assert log.calls == [("sync", tmp_path.parent)]


def test_a_folder_whose_name_the_disk_does_not_take_is_told(tmp_path, monkeypatch):
    logged(monkeypatch, sync=errno.EIO)
    with pytest.raises(SyncFailedError):
        fsops.make_directory(tmp_path)


def test_names_change_places_or_stay(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert fsops.exchange(tmp_path / "a", tmp_path / "b")
    assert [os.listdir(tmp_path / name) for name in "ab"] == [["b"], ["a"]]
    with pytest.raises(FileNotFoundError):
        fsops.exchange(tmp_path / "a", tmp_path / "none")
    logged(monkeypatch, exchange=errno.EINVAL)
    assert not fsops.exchange(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == ["b"]


def test_a_link_that_is_refused_becomes_a_copy(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"ab" * 1_000_000)
    (tmp_path / "x").chmod(0o444)
    fsops.link_or_copy(tmp_path / "x", tmp_path / "linked")
    assert (tmp_path / "linked").stat().st_ino == (tmp_path / "x").stat().st_ino
    logged(monkeypatch, link=errno.EXDEV)
    assert not fsops.link(tmp_path / "x", tmp_path / "y")
    fsops.link_or_copy(tmp_path / "x", tmp_path / "y")
    assert (tmp_path / "y").read_bytes() == (tmp_path / "x").read_bytes()
    assert (tmp_path / "y").stat().st_ino != (tmp_path / "x").stat().st_ino
    logged(monkeypatch, link=errno.ENOSPC)
    with pytest.raises(OutOfSpaceError):
        fsops.link(tmp_path / "x", tmp_path / "z")


def test_a_tree_goes_without_following_links(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/file").touch(mode=0o444)
    (tmp_path / "tree/link").symlink_to(tmp_path / "kept")
    fsops.remove_empty(tmp_path / "tree")
    assert (tmp_path / "tree").is_dir()
    for _ in range(2):  # absent is fine
        folders.remove_tree(tmp_path / "tree")
        fsops.remove_file(tmp_path / "tree/deep/file")
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["file"]


HOLDER = """
import sys
from pathlib import Path
from datacheck.runtime import folders, fsops
held = fsops.hold(Path(sys.argv[1]), shared=sys.argv[2] == "shared")
print(held is not None, flush=True)
sys.stdin.read()
"""


def holder(path, how):
    line = [sys.executable, "-c", HOLDER, str(path), how]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip() == "True"


def test_a_lock_lives_as_long_as_its_process_and_its_hold(tmp_path):
    path = tmp_path / "x"
    path.touch(mode=0o444)
    process, held = holder(path, "alone")
    assert held
    assert fsops.hold(path, shared=True) is None
    assert fsops.hold(path, shared=False) is None
    process.kill()
    process.communicate()
    with fsops.hold(path, shared=True):
        process, held = holder(path, "shared")
        assert held
        process.communicate("")
        assert fsops.hold(path, shared=False) is None
    with fsops.hold(path, shared=False) as mine:
        mine.close()
        assert fsops.hold(path, shared=False) is not None
    with pytest.raises(FileNotFoundError):
        fsops.hold(tmp_path / "none", shared=True)


@pytest.mark.parametrize(
    ("code", "hint"),
    [(errno.EIO, "Check the disk"), (errno.EROFS, "for writing"), (errno.EACCES, "permissions")],
)
def test_a_refusal_says_what_to_do(code, hint):
    said = str(fsops.as_storage_error(OSError(code, os.strerror(code)), "a/b"))
    assert said.startswith(f"a/b: {os.strerror(code).lower()}. ")
    assert hint in said


@pytest.mark.parametrize(
    ("code", "fails"), [(errno.EINVAL, False), (errno.EIO, True), (errno.EROFS, True)]
)
def test_a_file_system_may_have_nothing_to_sync(tmp_path, monkeypatch, code, fails):
    def refusing(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fsops.SYSTEM, "sync", refusing)
    with pytest.raises(SyncFailedError) if fails else contextlib.nullcontext():
        fsops.sync_directory(tmp_path)


@contextlib.contextmanager
def blinking(folder):
    """Another process that makes a folder and removes it, again and again."""
    child = os.fork()
    if not child:
        while True:
            with contextlib.suppress(OSError):
                os.mkdir(folder)
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_folder_that_another_process_makes_and_removes_can_be_written_and_made(tmp_path):
    folder = tmp_path / "there"
    with blinking(folder):
        for _ in range(1_000):
            fsops.check_writable(folder)
            fsops.check_writable(folder / "below")
            fsops.make_directory(folder, sync=False)
    fsops.make_directory(folder)
    assert folder.is_dir()


def test_a_folder_below_one_that_another_process_makes_and_removes_can_be_made(tmp_path):
    folder = tmp_path / "there"
    with blinking(folder):
        for _ in range(300):
            fsops.make_directory(folder / "below/deep", sync=False)
            folders.remove_tree(folder / "below")
            assert not (folder / "below").exists()


@pytest.mark.parametrize(("sync", "when"), [(False, "mkdir"), (True, "mkdir"), (True, "sync")])
def test_a_parent_that_is_removed_meanwhile_is_made_again(tmp_path, monkeypatch, sync, when):
    class Removing(Log):
        def mkdir(self, path, *more):
            self.remove("mkdir", path == tmp_path / "a/b")
            super().mkdir(path, *more)

        def open(self, path, flags):
            self.remove("sync", path == tmp_path / "a")
            return super().open(path, flags)

        def remove(self, call, here):
            if here and (call, self.calls.count(("mkdir", tmp_path / "a"))) == (when, 1):
                shutil.rmtree(tmp_path / "a")

    monkeypatch.setattr(fsops, "SYSTEM", log := Removing())
    fsops.make_directory(tmp_path / "a/b", sync=sync)
    assert (tmp_path / "a/b").is_dir()
    assert log.calls.count(("mkdir", tmp_path / "a")) == 2


def test_a_folder_that_can_never_be_made_ends(tmp_path, monkeypatch):
    logged(monkeypatch, mkdir=errno.ENOENT)  # as in a working folder that is gone
    with pytest.raises(StorageError, match="no such file"):
        fsops.make_directory(tmp_path / "a", sync=False)


@pytest.mark.parametrize("below", ["", "/below"])
@pytest.mark.parametrize("name", ["file", "dangling", "loop"])
def test_what_is_no_folder_is_refused_at_once_where_a_folder_is_to_be(
    tmp_path, monkeypatch, name, below
):
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    log = logged(monkeypatch)
    with pytest.raises(StorageError, match=f"{name}: file exists"):
        fsops.make_directory(tmp_path / f"{name}{below}")
    assert [call for call in log.calls if call[0] == "mkdir"] == [("mkdir", tmp_path / name)]
    with pytest.raises(
        StorageError, match=f"{name}: ({'not a directory' if name == 'file' else 'is a link'})"
    ):
        fsops.check_writable(tmp_path / f"{name}{below}")


def test_a_link_to_a_folder_is_one(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    fsops.check_writable(tmp_path / "link/below")
    fsops.make_directory(tmp_path / "link/below")
    assert (tmp_path / "folder/below").is_dir()


def test_a_name_that_no_file_can_have_is_refused_with_what_to_do(tmp_path):
    for act in (fsops.check_writable, fsops.make_directory):
        with pytest.raises(UsageError, match=r"a\\x00b.*: holds the character NUL.*Leave it out"):
            act(tmp_path / "a\0b")
