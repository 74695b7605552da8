"""Whole shards may be kept on this machine: within a limit, by many processes, never in place of what was written."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from torch.utils.data import DataLoader

from datacheck import CachedDataset, open_cache
from datacheck.cache import shards as keeping
from datacheck.cache.codec import Codec
from datacheck.cache.shards import ShardCache
from datacheck.errors import CorruptionError, UsageError
from datacheck.runtime import fsops, machine
from datacheck.runtime.fsops import System
from tests.cache.make import make_cache
from tests.s3.conftest import fresh
from tests.s3.make import SPECS, committed, files_of, flip, samples

WRITTEN = samples()
IMAGES = np.stack([sample["image"] for sample in WRITTEN])
SHARD = 4 * 256 * 300 + 4 * 16 + 4  # of images


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("cache"), SPECS, WRITTEN, k=4)


@pytest.fixture(scope="module")
def place(folder, server):
    return committed(folder, fresh())


@pytest.fixture
def near(tmp_path):
    return tmp_path / "near"


def images(near: Path) -> dict[str, int]:
    """The files that are kept, with their sizes."""
    return {path.name: path.stat().st_size for path in near.iterdir() if path.name != "LOCK"}


def digests(folder: Path) -> dict[int, str]:
    found = sorted((folder / "fields/image").glob("c.*"))
    return {
        int(path.name.split(".")[1]): xxhash.xxh3_128_hexdigest(path.read_bytes()) for path in found
    }


def age(near: Path, *names: str) -> None:
    """Nobody has used them for long; the first for longest."""
    for i, name in enumerate(names):
        os.utime(near / name, (i, i))


def fetched(seen: list[str], field: str = "image") -> int:
    return sum(bool(re.search(rf"/[0-9a-f]{{32}}/fields/{field}/c\.", line)) for line in seen)


def test_a_shard_is_fetched_whole_and_once(folder, place, near, proxy):
    for _ in range(2):  # by another cache the second time
        cache = open_cache(place, shards_in=near)
        for order in ([5], [6, 4], [5]):
            np.testing.assert_array_equal(cache.gather("image", order), IMAGES[order])
    assert fetched(proxy.seen) == 1
    assert images(near) == {digests(folder)[1]: SHARD}
    (kept,) = (path for path in near.iterdir() if path.name != "LOCK")
    assert kept.read_bytes() == (folder / "fields/image/c.1.0.0").read_bytes()
    values, _ = cache.gather_ragged("points", range(13))
    np.testing.assert_array_equal(values, np.concatenate([sample["points"] for sample in WRITTEN]))
    assert cache.texts("say", [3, 12]) == ["sample 3", "sample 12"]


def test_compressed_shards_are_kept_too(url, near, tmp_path):
    folder = make_cache(tmp_path / "zstd", SPECS, WRITTEN, k=4, codec=Codec("zstd", 1))
    open_cache(committed(folder, url), shards_in=near).gather("image", [5])
    assert set(images(near)) == {digests(folder)[1]}  # and not every shard whose index was read
    for _ in range(2):
        cache = open_cache(url, shards_in=near)
        np.testing.assert_array_equal(cache.gather("image", range(13)), IMAGES)
    assert set(images(near)) == set(digests(folder).values())


def test_nothing_is_kept_unless_it_is_asked_for(place, near, monkeypatch):
    monkeypatch.chdir(near.parent)
    open_cache(place).gather("image", range(13))
    assert list(near.parent.iterdir()) == []
    monkeypatch.setenv("DATACHECK_SHARDS_IN", str(near))
    monkeypatch.setenv("DATACHECK_SHARDS_BYTES", "4e5")
    np.testing.assert_array_equal(CachedDataset(place)[7]["image"].numpy(), IMAGES[7])
    assert 0 < sum(images(near).values()) <= 400_000


# ---------------------------------------------------------------------------------------- the limit


def test_the_longest_unused_gives_way_and_what_is_in_use_does_not(folder, place, near):
    named = digests(folder)
    cache = open_cache(place, shards_in=near, shards_bytes=2 * SHARD + 10)
    for i in (0, 4, 8):
        np.testing.assert_array_equal(cache.gather("image", [i]), IMAGES[[i]])
    assert set(images(near)) == {named[0], named[1]}  # both are in use
    age(near, named[1], named[0])
    np.testing.assert_array_equal(cache.gather("image", [8, 9]), IMAGES[8:10])
    assert set(images(near)) == {named[0], named[2]}
    cache.gather("image", [1])  # in use again
    age(near, named[2])
    np.testing.assert_array_equal(cache.gather("image", range(13)), IMAGES)
    assert named[0] in images(near)
    assert sum(images(near).values()) <= 2 * SHARD + 10


def test_what_gave_way_is_served_where_it_is_mapped_and_then_fetched_again(folder, place, near):
    named = digests(folder)
    one, other = (open_cache(place, shards_in=near, shards_bytes=SHARD) for _ in range(2))
    np.testing.assert_array_equal(one.gather("image", [0]), IMAGES[:1])
    age(near, named[0])
    np.testing.assert_array_equal(other.gather("image", [4]), IMAGES[4:5])
    assert set(images(near)) == {named[1]}
    np.testing.assert_array_equal(one.gather("image", [0, 4]), IMAGES[[0, 4]])
    assert set(images(near)) == {named[1]}
    age(near, named[1])
    np.testing.assert_array_equal(one.gather("image", [0]), IMAGES[:1])
    assert set(images(near)) == {named[0]}


def test_a_limit_below_one_shard_keeps_none(place, near):
    cache = open_cache(place, shards_in=near, shards_bytes=100)
    np.testing.assert_array_equal(cache.gather("image", [0]), IMAGES[:1])
    assert images(near) == {}


def test_whatever_happens_the_limit_holds_and_values_are_right(place, near):
    rng = np.random.default_rng(0)
    limit = 2 * SHARD + 50_000
    cache = open_cache(place, shards_in=near, shards_bytes=limit)
    for step in range(80):
        order = rng.integers(0, 13, 3)
        np.testing.assert_array_equal(cache.gather("image", order), IMAGES[order])
        values, _ = cache.gather_ragged("points", order)
        np.testing.assert_array_equal(values, np.concatenate([WRITTEN[i]["points"] for i in order]))
        kept = images(near)
        assert sum(kept.values()) <= limit
        name = sorted(kept)[rng.integers(len(kept))] if kept else None
        if name is None or step % 4 == 0:
            continue
        if step % 4 == 1:
            age(near, name)
        elif step % 4 == 2:
            (near / name).unlink()
        else:
            damage(near / name, int(rng.integers(kept[name])))


# ---------------------------------------------------------------------------------- what may happen


def damage(path: Path, at: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def test_a_copy_that_rots_is_not_served(folder, place, near, proxy):
    cache = open_cache(place, shards_in=near)
    cache.gather("image", [5])
    damage(near / digests(folder)[1], 80_000)
    for _ in range(2):
        np.testing.assert_array_equal(cache.gather("image", [4, 5, 6]), IMAGES[4:7])
    assert images(near) == {}
    np.testing.assert_array_equal(
        open_cache(place, shards_in=near).gather("image", [5]), IMAGES[5:6]
    )
    assert set(images(near)) == {digests(folder)[1]}


def test_a_copy_that_is_short_is_not_mapped(folder, place, near):
    open_cache(place, shards_in=near).gather("image", [5])
    kept = near / digests(folder)[1]
    kept.chmod(0o644)
    os.truncate(kept, 100)
    np.testing.assert_array_equal(
        open_cache(place, shards_in=near).gather("image", [5]), IMAGES[5:6]
    )


def test_a_damaged_shard_is_told_and_not_kept(folder, url, near):
    committed(folder, url)
    cache = open_cache(url, shards_in=near)
    flip(f"{files_of(url)}/fields/image/c.1.0.0", 90_000)
    np.testing.assert_array_equal(cache.gather("image", [4]), IMAGES[4:5])
    with pytest.raises(CorruptionError, match=r"image/c\.1\.0\.0.*sample 5"):
        cache.gather("image", [5])
    assert images(near) == {}


class Full(System):
    def write(self, descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_once_and_samples_are_fetched(place, near, monkeypatch):
    cache = open_cache(place, shards_in=near)
    monkeypatch.setattr(fsops, "SYSTEM", Full())
    with pytest.warns(RuntimeWarning, match="no more shards are kept.*no space left") as told:
        np.testing.assert_array_equal(cache.gather("image", range(13)), IMAGES)
    cache.gather("image", [0])
    assert len(told) == 1
    assert images(near) == {}


KILLED = """
import sys, time
from datacheck import open_cache
from datacheck.cache.bucket import Bucket
def pieces(self, path, size):
    yield memoryview(b"x" * 1000)
    print("begun", flush=True)
    time.sleep(600)
Bucket.pieces = pieces
open_cache(sys.argv[1], shards_in=sys.argv[2]).gather("image", [5])
"""


def test_what_a_killed_process_left_is_removed(folder, place, near, repository):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, place, near], stdout=subprocess.PIPE, cwd=repository
    )
    assert process.stdout.readline() == b"begun\n"
    cache = open_cache(place, shards_in=near)
    # While another fetches: from afar
    np.testing.assert_array_equal(cache.gather("image", [5]), IMAGES[5:6])
    assert [name for name in images(near) if not name.endswith(".partial")] == []
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(images(near)) == 1
    np.testing.assert_array_equal(cache.gather("image", [5]), IMAGES[5:6])
    assert images(near) == {digests(folder)[1]: SHARD}


def test_workers_share_what_is_kept(place, near, monkeypatch):
    monkeypatch.setattr(keeping, "_IDLE_S", -60.0)  # all gives way at once, also what is in use
    limit = 3 * SHARD
    dataset = CachedDataset(place, fields=["image"], shards_in=near, shards_bytes=limit)
    dataset[0]
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        np.testing.assert_array_equal(
            torch.cat([batch["image"] for batch in loader]).numpy(), IMAGES
        )
    kept = images(near)
    assert 0 < sum(kept.values()) <= limit
    for name in kept:
        assert xxhash.xxh3_128_hexdigest((near / name).read_bytes()) == name


# ----------------------------------------------------------------------------------------- refusals


def test_a_folder_where_maps_are_not_safe_is_refused(place, near, monkeypatch):
    monkeypatch.setattr(machine, "is_local", lambda _: False)
    with pytest.raises(UsageError, match=r"near: lies on a network file system"):
        open_cache(place, shards_in=near)


@pytest.mark.parametrize("limit", ["many", "-1", "nan", "inf"])
def test_a_limit_that_is_none(place, near, limit, monkeypatch):
    monkeypatch.setenv("DATACHECK_SHARDS_BYTES", limit)
    with pytest.raises(UsageError, match=f"'{limit}' is not a number of bytes"):
        open_cache(place, shards_in=near)


def test_a_folder_of_caches_keeps_nothing(folder, near):
    open_cache(folder, shards_in=near).gather("image", [0])
    assert not near.exists()
    assert ShardCache.from_options(None, None) is None
