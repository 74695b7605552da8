"""What builders left in a bucket that are gone can be removed; caches and builders at work keep what is theirs."""

from __future__ import annotations

import time

import pytest

from datacheck.build import gc_bucket
from datacheck.cache.verify import verify
from datacheck.cli.main import run
from tests.cache.make import make_cache
from tests.s3.make import SPECS, committed, copied, everything, listed, put, samples

DAY = 86400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    written = [{"pose": sample["pose"]} for sample in samples(3)]
    return make_cache(tmp_path_factory.mktemp("cache"), {"pose": SPECS["pose"]}, written, k=4)


@pytest.fixture
def later(monkeypatch):
    """So many seconds have gone by."""

    def go_by(seconds):
        now = time.time()
        monkeypatch.setattr(gc_bucket.time, "time", lambda: now + seconds)

    return go_by


def test_attempts_go_when_their_builder_has_been_silent_for_a_day(folder, url, capsys, later):
    key = f"{url}/p/all/{folder.name}"
    committed(folder, key)
    before = everything(key)
    copied(folder, f"{key}/{'a' * 32}")  # whole, but for its commit
    put(f"{url}/p/all/fedcba9876543210/{'b' * 32}/zarr.json", b"{}")
    put(f"{url}/.{'c' * 32}", b"")
    put(f"{url}/.notes", b"mine")
    every = listed(url)
    assert run(["cache", "gc", url, "--delete"]) == 0
    assert "its builder may be at work" in capsys.readouterr().out
    assert listed(url) == every
    later(DAY + 60)
    assert run(["cache", "gc", url, "--older-than", "2d", "--delete"]) == 0
    assert run(["cache", "gc", url]) == 0
    said = capsys.readouterr().out
    assert said.count("would remove") == 3
    assert key + "/" + "a" * 32 in said
    assert listed(url) == every
    assert run(["cache", "gc", url, "--delete"]) == 0
    assert capsys.readouterr().out.count("removed  ") == 3
    assert everything(key) == before
    assert verify(key) == []
    assert set(listed(url)) == {f"p/all/{folder.name}/{path}" for path in before} | {".notes"}


def test_what_goes_on_or_is_committed_meanwhile_stays(folder, url, later):
    key, other = f"{url}/p/all/0123456789abcdef", f"{url}/p/all/fedcba9876543210"
    copied(folder, f"{key}/{'a' * 32}")
    copied(folder, f"{other}/{'b' * 32}")
    later(DAY + 60)
    found = gc_bucket.survey(url)
    assert [one.goes for one in found] == [True, True]
    put(f"{key}/{'a' * 32}/more", b"of a builder that goes on")
    committed(folder, other, "b" * 32)
    every = listed(url)
    assert [gc_bucket.remove(one) for one in found] == [False, False]
    assert listed(url) == every


def test_objects_that_no_build_writes_stay_and_are_named(folder, url, later, capsys):
    attempt = f"{url}/p/all/0123456789abcdef/{'a' * 32}"
    copied(folder, attempt)
    for name in ("notes.txt", "fields/pose/data.npy", "samples/key"):
        put(f"{attempt}/{name}", b"mine")
    later(DAY + 60)
    assert run(["cache", "gc", url, "--delete"]) == 1
    said = capsys.readouterr().out
    below = f"p/all/0123456789abcdef/{'a' * 32}"
    assert sorted(listed(url)) == sorted(
        f"{below}/{n}" for n in ("fields/pose/data.npy", "notes.txt", "samples/key")
    )
    assert f"{attempt}/notes.txt: not written by a build, left" in said


def test_a_damaged_commit_leaves_all_attempts(folder, url, later, capsys):
    key = f"{url}/p/all/0123456789abcdef"
    committed(folder, key)
    put(f"{key}/commit.json", b"[" * 100_000)
    later(DAY + 60)
    assert gc_bucket.survey(url) == []
    assert run(["cache", "ls", url]) == 0
    assert "cannot be used: s3://" in capsys.readouterr().out
