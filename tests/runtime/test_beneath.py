"""Files by handle: with ``openat2`` and without."""

import contextlib
import errno
import os
import threading

import pytest

from datacheck.runtime import beneath
from datacheck.runtime.beneath import ConfinedFolder, open_regular, read_file


@pytest.fixture(params=["openat2", "walked"])
def folder(request, tmp_path, monkeypatch):
    if request.param == "walked":
        monkeypatch.setattr(beneath, "_kernel", lambda: None)
    elif beneath._kernel() is None:
        pytest.skip("this kernel has no openat2, or seccomp forbids it")
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    with ConfinedFolder(root) as opened:
        yield opened


def read(folder, path, *, links=True):
    descriptor = folder.open(path, links=links)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_links_that_stay_inside_are_followed(folder):
    os.symlink("../file", f"{folder.real}/below/relative")
    os.symlink(f"{folder.real}/file", f"{folder.real}/below/absolute")
    os.symlink("below", f"{folder.real}/folder")
    for path in ("file", "below/relative", "below/absolute", "folder/relative", "below/../file"):
        assert read(folder, path) == b"inside"


@pytest.mark.parametrize("path", ["below/relative", "below/absolute", "folder/relative"])
def test_no_link_is_followed_where_links_are_refused(folder, path):
    os.symlink("../file", f"{folder.real}/below/relative")
    os.symlink(f"{folder.real}/file", f"{folder.real}/below/absolute")
    os.symlink("below", f"{folder.real}/folder")
    with pytest.raises(OSError, match=r"."):
        folder.open(path, links=False)


@pytest.mark.parametrize(
    "goal", ["../../secret", "{0}/../secret", "/etc/passwd", "/proc/self/fd/0", "/dev/zero"]
)
def test_links_out_are_refused(folder, goal):
    os.symlink(goal.format(folder.real), f"{folder.real}/below/out")
    with pytest.raises(OSError, match="a link out of the data folder"):
        folder.open("below/out")


@pytest.mark.parametrize("path", ["../secret", "below/../../secret", ".."])
def test_paths_out_are_refused(folder, path):
    with pytest.raises(OSError, match="a link out of the data folder"):
        folder.open(path)


def test_a_pipe_and_a_socket_are_refused_at_once(folder):
    os.mkfifo(f"{folder.real}/pipe")
    with pytest.raises(OSError, match="not a regular file"):
        folder.open("pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(f"{folder.real}/pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular("/dev/zero")


def test_a_file_above_the_limit_is_refused_before_it_is_read(folder):
    assert folder.read("file", 6) == read_file(f"{folder.real}/file", 6) == b"inside"
    with open(f"{folder.real}/sparse", "wb") as file:
        file.truncate(1 << 40)
    for call in (
        lambda: folder.read("sparse", 1000),
        lambda: read_file(f"{folder.real}/sparse", 1000),
    ):
        with pytest.raises(
            OSError, match=r"1,099,511,627,776 bytes; at most 1,000 are read"
        ) as caught:
            call()
        assert caught.value.errno == errno.EFBIG


def test_a_file_without_a_size_is_read_to_the_limit_only():
    assert read_file("/proc/self/status", 1 << 20).startswith(b"Name:")  # says that it has 0 bytes
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_file("/proc/self/status", 10)


def test_nothing_outside_is_opened_while_links_and_files_change_places(folder, tmp_path):
    """A control in the test: the plain way meets the file outside within the same time."""
    os.symlink(tmp_path / "secret", f"{folder.real}/link")
    os.link(f"{folder.real}/file", f"{folder.real}/swapped")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for name in ("link", "file"):
                if name == "link":
                    os.symlink(tmp_path / "secret", f"{folder.real}/next")
                else:
                    os.link(f"{folder.real}/file", f"{folder.real}/next")
                os.replace(f"{folder.real}/next", f"{folder.real}/swapped")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen, plain = set(), set()
        while len(plain) < 2 or not seen or len(seen) > 1:
            with open(f"{folder.real}/swapped", "rb") as file:
                plain.add(file.read())
            for _ in range(200):
                with contextlib.suppress(OSError):
                    seen.add(read(folder, "swapped"))
            assert b"outside" not in seen
    finally:
        stop.set()
        swapper.join()
    assert (seen, plain) == ({b"inside"}, {b"inside", b"outside"})
