"""What a build finds may be anybody's: records of shards, an earlier cache. It is held to the plan, or made anew."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from datacheck.build import record
from datacheck.build.builder import build_cache
from datacheck.cache.verify import verify
from datacheck.digest import digest_file, digest_head
from datacheck.errors import StorageError
from tests.build.make import tree
from tests.build.rebuild import dataset, shards
from tests.build.rebuild import job as job_of
from tests.build.test_resume import golden, job, made, stagings, stopped  # noqa: F401  fixtures

WRONG = {
    "made": np.ones(10**6, bool), "digest": np.zeros(2, np.int64), "lengths": {}, "present": {}, "reasons": [(99, "x")],
    "origins": np.zeros(0, np.uint8), "origin_lengths": np.array([-1, 2**62]), "chunks": {}, "sizes": {}, "files": {},
    "g": 99,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_record_of_another_shape_is_not_gone_on_with(job, made, golden, tmp_path, name):  # noqa: F811
    """Its digest fits: whoever wrote it."""
    stopped(job, tmp_path / "out", 3)
    (folder,) = stagings(tmp_path / "out")
    records = folder / "work" / "records"
    found = replace(record.found(records, 0), **{name: WRONG[name]})
    record.write(records, found)
    if name == "g":
        (records / "0").unlink()
    made.clear()
    built = build_cache(job, tmp_path / "out")
    assert (built.kept, tree(built.path)) == (2, golden)
    assert 0 in made


@pytest.mark.parametrize("what", ["sparse", "pipe", "folder"])
def test_what_is_no_record_is_neither_waited_for_nor_read(job, made, golden, tmp_path, what):  # noqa: F811
    stopped(job, tmp_path / "out", 3)
    (folder,) = stagings(tmp_path / "out")
    path = folder / "work" / "records" / "1"
    path.unlink()
    {"sparse": path.touch, "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[what]()
    if what == "sparse":
        os.truncate(path, 1 << 40)
    with pytest.raises(StorageError, match="records/1: "):
        record.found(path.parent, 1)
    if what != "folder":  # over a folder no record can be written
        made.clear()
        built = build_cache(job, tmp_path / "out")
        assert (built.kept, tree(built.path)) == (2, golden)


@pytest.mark.parametrize("what", ["pipe", "link", "folder"])
def test_shards_of_an_earlier_cache_that_are_no_files_are_made(tmp_path, what):
    dataset(tmp_path / "data")
    first = build_cache(job_of(tmp_path / "data"), tmp_path / "out")
    path = shards(first.path)[min(shards(first.path))]
    path.rename(tmp_path / "away")
    if what == "link":
        path.symlink_to(tmp_path / "away")
    else:
        os.mkfifo(path) if what == "pipe" else path.mkdir()
    second = build_cache(job_of(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out")
    assert len(second.reuse.lost) == 1
    assert verify(second.path) == []
    assert (tmp_path / "away").stat().st_nlink == 1  # no name of another file is a shard


@pytest.mark.parametrize("digest", [digest_file, lambda path: digest_head(path, 10)])
def test_a_digest_is_of_a_plain_file(tmp_path, digest):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        digest(tmp_path / "pipe")
