"""A store gives the files of a cache; what reads a cache needs nothing else, so a cache need not be a folder."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import xxhash

from datacheck.cache import Cache, open_cache, reader
from datacheck.cache import verify as verifying
from datacheck.cache.obstore_client import ObstoreClient
from datacheck.cache.store import FolderStore, open_store
from datacheck.cache.verify import verify
from datacheck.errors import CorruptionError, StorageError, UsageError
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache

SPECS = {"cloud": ArraySpec("float32", (64,)), "points": ArraySpec("float64", (3,), "P")}


class Elsewhere:
    """The files of a folder without the folder, as a bucket gives them."""

    where, folder = "bucket", None

    def __init__(self, folder):
        self.kept = {path: (folder / path).read_bytes() for path, _ in FolderStore(folder).files()}

    def size(self, path):
        return len(self.kept[path]) if path in self.kept else None

    def read(self, path, most=None):
        if path not in self.kept:
            raise FileNotFoundError(path)
        return self.kept[path]

    def read_into(self, path, start, view):
        view[:] = self.kept[path][start : start + len(view)]

    def parts(self, wanted):
        return [memoryview(self.kept[path])[start : start + size] for path, start, size in wanted]

    def prefetch(self, paths):
        self.soon = list(paths)

    def keep(self, shards, files):
        raise AssertionError

    def discard(self, path):
        return False

    def files(self):
        yield from ((path, len(raw)) for path, raw in self.kept.items())

    def digest(self, path):
        return xxhash.xxh3_128_hexdigest(self.kept[path])


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return [
        {"cloud": rng.random(64, dtype=np.float32), "points": rng.random((i % 4, 3))}
        for i in range(10)
    ]


@pytest.fixture
def folder(tmp_path, samples):
    return make_cache(tmp_path / "out", SPECS, samples, k=4)


def test_a_cache_that_is_no_folder_is_read_and_checked(folder, samples, monkeypatch):
    store = Elsewhere(folder)
    for module in (reader, verifying):
        monkeypatch.setattr(module, "open_store", lambda where: store)
    cache = Cache("bucket://tiny", verify="full")
    assert set(store.soon) == {
        path for path in store.kept if path.endswith("zarr.json") and "digests/" not in path
    }
    assert cache.path == "bucket"
    order = [9, 0, 5]
    np.testing.assert_array_equal(
        cache.gather("cloud", order), [samples[i]["cloud"] for i in order]
    )
    values, lengths = cache.gather_ragged("points", order)
    np.testing.assert_array_equal(values, np.concatenate([samples[i]["points"] for i in order]))
    assert lengths.tolist() == [1, 0, 1]
    assert verify("bucket://tiny") == []
    raw = store.kept["fields/cloud/c.1.0"]
    store.kept["fields/cloud/c.1.0"] = raw[:9] + bytes([raw[9] ^ 1]) + raw[10:]
    (problem,) = verify("bucket://tiny")
    assert (problem.file, problem.shard) == ("fields/cloud/c.1.0", 1)
    with pytest.raises(CorruptionError, match=r"bucket: fields/cloud/c\.1\.0"):
        Cache("bucket://tiny").gather("cloud", [6])


def test_a_url_that_no_store_is_there_for_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (open_cache, verify, open_store):
        with pytest.raises(
            UsageError, match="https://: caches lie in folders or behind s3://, gs://, az://"
        ):
            call("https://bucket/cache")


def test_a_folder_lists_everything_and_marks_what_is_no_file(tmp_path):
    (tmp_path / "b/c").mkdir(parents=True)
    for name, size in {"b/x": 3, "b.json": 1, "a": 0}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "place").symlink_to("b")
    os.mkfifo(tmp_path / "pipe")
    listed = list(FolderStore(tmp_path).files())
    assert listed == [
        ("a", 0),
        ("b.json", 1),
        ("b/x", 3),
        ("link", -1),
        ("pipe", -1),
        ("place", -1),
    ]


def test_a_file_that_goes_while_a_folder_is_listed_is_named(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/x").write_bytes(b"x")
    listed = os.scandir

    def scandir(path):
        if not str(path).endswith("b/"):
            return listed(path)
        with listed(path) as entries:
            found = list(entries)
        (tmp_path / "b/x").unlink()
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError, match=r"b/x: No such file or directory"):
        list(FolderStore(tmp_path).files())


def test_a_folder_may_be_as_deep_as_paths_are_long(tmp_path):
    folders = [tmp_path / ("d/" * depth) for depth in range(1, 1501)]
    for folder in folders:
        folder.mkdir()
    (folders[-1] / "x").write_bytes(b"x")
    try:
        assert list(FolderStore(tmp_path).files()) == [("d/" * 1500 + "x", 1)]
    finally:
        (folders[-1] / "x").unlink()
        for folder in reversed(folders):  # who clears up after tests cannot go so deep
            folder.rmdir()


def test_a_folder_answers_for_each_file(tmp_path):
    store = FolderStore(tmp_path)
    (tmp_path / "x").write_bytes(b"0123456789")
    view = memoryview(bytearray(4))
    store.read_into("x", 3, view)
    assert bytes(view) == b"3456"
    assert (store.size("x"), store.size("none"), store.size("x/y")) == (10, None, None)
    assert store.digest("x") == xxhash.xxh3_128_hexdigest(b"0123456789")
    for absent in ("none", "x/y"):
        with pytest.raises(FileNotFoundError):
            store.read(absent)
        with pytest.raises(StorageError, match=absent):
            store.digest(absent)
        with pytest.raises(StorageError, match=absent):
            store.read_into(absent, 0, view)
    with pytest.raises(CorruptionError, match="ends too early"):
        store.read_into("x", 8, view)


def test_what_is_no_file_is_never_waited_for(tmp_path):
    store = FolderStore(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "zeros"):
        with pytest.raises(CorruptionError, match=f"{name}: no plain file"):
            store.read(name)
        with pytest.raises(CorruptionError, match=f"{name}: no plain file"):
            store.read_into(name, 0, memoryview(bytearray(1)))


@pytest.mark.parametrize("kept", [0, 2])
def test_no_more_files_stay_open_than_asked_for(tmp_path, kept):
    store = FolderStore(tmp_path, kept)
    before = len(os.listdir("/proc/self/fd"))
    for i in range(5):
        (tmp_path / f"{i}").write_bytes(b"x")
        store.read_into(f"{i}", 0, memoryview(bytearray(1)))
    assert len(os.listdir("/proc/self/fd")) == before + kept


def test_the_system_is_asked_of_each_file_while_it_is_open(folder, monkeypatch):
    asked, real = [], os.posix_fadvise

    def noted(descriptor, *how):
        real(descriptor, *how)  # raises of a closed one
        asked.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "posix_fadvise", noted)
    FolderStore(folder).drop()
    assert sorted(asked) == sorted(
        str(p) for p in folder.rglob("*") if p.is_file() and p.stat().st_size
    )


def test_dropping_what_memory_holds_changes_nothing(folder):
    (folder / "link").symlink_to("nowhere")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    FolderStore(folder).drop()
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_a_file_that_lies_deep_is_found(tmp_path):
    deep = tmp_path / "a/" / ("a/" * 400)
    deep.mkdir(parents=True)
    (deep / "x").write_bytes(b"12345")
    most = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        found = open_store(tmp_path).size("a/" * 401 + "x")
    finally:
        sys.setrecursionlimit(most)
    assert found == 5


def test_an_answer_of_a_bucket_that_does_not_end_is_cut_at_the_limit(monkeypatch):
    """A server stated 100 bytes and sent gigabytes; all of them were kept."""
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = ObstoreClient("s3://bucket")
    sent = []

    class Endless:
        def __init__(self):
            self.meta = {"size": 100}

        def stream(self, **_):
            while True:
                sent.append(1 << 20)
                yield bytes(1 << 20)

    monkeypatch.setattr(client._obstore, "get", lambda *_: Endless())
    with pytest.raises(CorruptionError, match=r"more than the 5,242,880 bytes"):
        client.get(["manifest.json"], [5 << 20])
    assert sum(sent) == 6 << 20
