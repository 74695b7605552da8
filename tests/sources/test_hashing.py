"""Digests of many files: what is read, what is refused, and in which order it is said."""

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import xxhash

from datacheck.errors import StorageError, UsageError
from datacheck.runtime.beneath import clamp_stamp
from datacheck.sources import file_digests
from datacheck.sources.listing import list_files, stat_entry
from datacheck.sources.roots import Roots


def digest(root, *items, roots=None, beat=lambda _: None):
    """Return the digests of some files as text, what they looked like, and what was refused."""
    task = {
        "root": str(root),
        "roots": {n: str(p) for n, p in (roots or {}).items()},
        "items": list(items),
    }
    said = file_digests.digest_files(task, beat)
    return (
        [row.tobytes().hex() for row in said["digests"]],
        said["numbers"].tolist(),
        said["refused"],
    )


def hashed(data):
    return xxhash.xxh3_128_hexdigest(data)


@pytest.fixture
def timeless(monkeypatch):
    """Let every file be of the year 1653 and have an inode of 64 bits, as some file systems say."""

    class Status:
        def __init__(self, status):
            self.status = status

        def __getattr__(self, name):
            return (
                -(10**19)
                if name == "st_mtime_ns"
                else 2**64 - 1
                if name == "st_ino"
                else getattr(self.status, name)
            )

    fstat, stat = os.fstat, os.stat
    monkeypatch.setattr(os, "fstat", lambda fd: Status(fstat(fd)))
    monkeypatch.setattr(os, "stat", lambda path, **more: Status(stat(path, **more)))


def test_numbers_that_no_column_holds_are_its_first_or_its_last():
    assert clamp_stamp((5, -(2**63) - 1, 2**63, -(2**63))) == (5, -(2**63), 2**63 - 1, -(2**63))


def test_times_before_1677_are_the_same_to_who_lists_and_to_who_reads(tmp_path, timeless):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"y")
    entry = stat_entry(tmp_path, "b")
    assert (entry.mtime_ns, entry.inode) == (-(2**63), 2**63 - 1)
    digests, numbers, refused = digest(tmp_path, "a", "b")
    assert (digests, refused) == ([hashed(b"x"), hashed(b"y")], [])
    assert numbers[1] == list(entry[1:5])
    assert len(numbers) == 2


def test_a_walk_takes_what_a_column_does_not_hold(tmp_path, timeless, monkeypatch):
    class Scan:
        def __init__(self, folder):
            self.found = [Found(entry) for entry in scandir(folder)]

        def __enter__(self):
            return iter(self.found)

        def __exit__(self, *_):
            pass

    class Found:
        def __init__(self, entry):
            self.entry = entry

        def __getattr__(self, name):
            return getattr(self.entry, name)

        def stat(self, **more):
            return os.stat(tmp_path / self.entry.name, **more)

    scandir = os.scandir
    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(os, "scandir", Scan)
    (entry,) = list_files(tmp_path).entries
    assert (entry.size, entry.mtime_ns) == (1, -(2**63))


def test_a_zarr_folder_gives_signs_of_life_for_each_of_its_files_and_each_piece_of_one(tmp_path):
    store = tmp_path / "a.zarr"
    store.mkdir()
    (store / "zarr.json").write_bytes(b"{}")
    (store / "c0").write_bytes(bytes(3 << 20))
    beats = []
    digests, numbers, refused = digest(tmp_path, "a.zarr", beat=beats.append)
    parts = [["c0", hashed(bytes(3 << 20))], ["zarr.json", hashed(b"{}")]]
    assert (digests, refused) == ([hashed(json.dumps(parts, separators=(",", ":")).encode())], [])
    assert numbers == [list(list_files(tmp_path).entries[0][1:5])]
    assert set(beats) == {0}
    # The item, its files as they are found, every MiB of the large one
    assert len(beats) >= 1 + 2 + 2 * 3


def while_listed(data, roots=None, walk=None):
    return file_digests.digest_while_listed(
        data, roots or {}, walk or partial(list_files, data, roots, None), None, None
    )


@pytest.fixture
def opened(monkeypatch):
    """The names of all files that are opened to be read."""
    names = []
    real = Roots.descriptor
    monkeypatch.setattr(
        Roots, "descriptor", lambda self, path: names.append(path) or real(self, path)
    )
    return names


def test_an_extra_root_that_is_missing_is_said_before_a_file_is_read(tmp_path, opened):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_bytes(b"a")
    listed = []
    with pytest.raises(UsageError, match="no such file"):
        list_files(
            tmp_path / "data",
            {"x": tmp_path / "extra"},
            found=lambda paths, _: listed.extend(paths),
        )
    assert listed == []
    with pytest.raises(UsageError):
        while_listed(tmp_path / "data", {"x": tmp_path / "extra"})
    assert opened == []


def test_a_file_beside_those_of_an_extra_root_is_no_conflict(tmp_path):
    for path, data in {"data/@y": b"own", "data/a": b"a", "extra/e": b"extra"}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    roots = {"x": tmp_path / "extra"}
    listing, digests, fault = while_listed(tmp_path / "data", roots)
    assert fault is None
    assert listing.entries.paths == ["@x/e", "@y", "a"]
    assert digests.tolist() == [hashed(data).encode() for data in (b"extra", b"own", b"a")]
    (tmp_path / "data/@x").write_bytes(b"other")
    # Nothing else of the folder is listed
    assert list_files(tmp_path / "data", roots, "a").entries.paths[-1] == "a"


def test_an_error_of_the_walk_comes_before_what_is_left_is_read_and_before_errors_of_reading(
    tmp_path, opened
):
    def failing(found):
        found(["gone"], [1])
        msg = "its links lead to too many folders"
        raise UsageError(msg)

    with pytest.raises(UsageError, match="too many folders"):
        while_listed(tmp_path, walk=failing)
    assert opened == []


def test_an_error_of_the_walk_is_preferred_to_a_reader_that_dies_meanwhile(tmp_path, monkeypatch):
    def failing(found):
        msg = "its links lead to too many folders"
        raise UsageError(msg)

    def dying(root, roots, tasks, *_):
        with pytest.raises(UsageError):
            next(tasks)
        msg = "reading it failed"
        raise StorageError(msg)

    monkeypatch.setattr(file_digests, "_digested", dying)
    with pytest.raises(UsageError, match="too many folders"):
        while_listed(tmp_path, walk=failing)


def test_a_walk_tells_of_folders_without_files_too(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}/empty").mkdir(parents=True)
    told = []
    list_files(tmp_path, found=lambda paths, sizes: told.append((paths, sizes)))
    assert told == [([], [])] * 11  # an interrupt ends the walk here too


def test_a_file_under_a_write_lease_is_waited_for(tmp_path):
    (tmp_path / "leased").write_bytes(b"hello")
    script = (
        "import fcntl, os, signal, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK))\n"
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('leased', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "leased")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"leased\n"
        assert digest(tmp_path, "leased")[::2] == ([hashed(b"hello")], [])
        holder.stdin.close()


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert digest(tmp_path, "pipe")[2] == [
        ["pipe", "not a regular file (a device, a socket or a pipe)"]
    ]


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    (_, _, ((_, reason),)) = digest(tmp_path, "zero")
    assert reason == "a link out of the data folder; copy the file in the place of the link"


def test_a_device_without_end_is_refused_at_once():
    beats = []
    digests, numbers, refused = digest("/dev", "zero", beat=beats.append)
    assert refused == [["zero", "not a regular file (a device, a socket or a pipe)"]]
    assert (digests, numbers, beats) == (["0" * 32], [[0, 0, 0, 0]], [0])


def test_a_file_that_grows_as_fast_as_it_is_read_has_an_end(tmp_path, monkeypatch):
    (tmp_path / "log").write_bytes(bytes(file_digests.READ_BYTES + 1))
    real, reads = os.readv, []

    def growing(descriptor, buffers):
        reads.append(descriptor)
        assert len(reads) < 10
        with (tmp_path / "log").open("ab") as file:
            file.write(bytes(file_digests.READ_BYTES))
        return real(descriptor, buffers)

    monkeypatch.setattr(file_digests.os, "readv", growing)
    before = list_files(tmp_path)
    digests, fault = file_digests.digest_listed(before, np.arange(1), None, None)
    assert digests.tolist() == [b""]
    assert "a file changed: log" in str(fault)


def test_a_file_that_says_less_than_it_has_is_refused():
    found = digest("/proc/self", "status")[2]  # a regular file of 0 bytes
    assert found == [["status", "holds more than the 0 bytes that its size says"]]
