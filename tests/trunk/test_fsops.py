import errno
import os
import resource
import signal

import pytest

from datacheck import fsops
from datacheck.errors import OutOfSpaceError, StorageError


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
    monkeypatch.setattr(fsops.os, "access", lambda path, mode: False)  # as on a disk mounted read-only
    with pytest.raises(StorageError, match="nothing can be written there"):
        fsops.check_writable(tmp_path / "a/b")
