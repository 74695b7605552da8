"""Digests of many files: what is read, what is refused, and in which order it is said."""

import json
import os

import pytest
import xxhash

from datacheck.sources import hashing
from datacheck.sources.entries import clamped
from datacheck.sources.listing import list_files, stat_entry


def digest(root, *items, roots=None, beat=lambda _: None):
    """Return the digests of some files as text, what they looked like, and what was refused."""
    task = {"root": str(root), "roots": {n: str(p) for n, p in (roots or {}).items()}, "items": list(items)}
    said = hashing.digest_files(task, beat)
    return [row.tobytes().hex() for row in said["digests"]], said["numbers"].tolist(), said["refused"]


def hashed(data):
    return xxhash.xxh3_128_hexdigest(data)


@pytest.fixture
def timeless(monkeypatch):
    """Let every file be of the year 1653 and have an inode of 64 bits, as some file systems say."""

    class Status:
        def __init__(self, status):
            self.status = status

        def __getattr__(self, name):
            return -(10**19) if name == "st_mtime_ns" else 2**64 - 1 if name == "st_ino" else getattr(self.status, name)

    fstat, stat = os.fstat, os.stat
    monkeypatch.setattr(os, "fstat", lambda fd: Status(fstat(fd)))
    monkeypatch.setattr(os, "stat", lambda path, **more: Status(stat(path, **more)))


def test_numbers_that_no_column_holds_are_its_first_or_its_last():
    assert clamped((5, -(2**63) - 1, 2**63, -(2**63))) == (5, -(2**63), 2**63 - 1, -(2**63))


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
            return os.stat(self.entry.path, **more)

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
    assert len(beats) >= 1 + 2 + 2 * 3  # the item, its files as they are found, every MiB of the large one
