"""What a build finds may be anybody's: records of shards, an earlier cache. It is held to the plan, or made anew."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from datacheck.build import provenance
from datacheck.build.builder import build_cache
from datacheck.build.staging import Staging
from datacheck.cache.verify import verify
from datacheck.errors import StorageError
from datacheck.runtime.hashing import digest_file, digest_head, digest_parts
from datacheck.workers.wire import FRAME
from tests.build.make import saved_record, tree
from tests.build.rebuild import dataset, shards
from tests.build.rebuild import job as job_of
from tests.build.test_resume import golden, job, made, stagings, stopped  # noqa: F401  fixtures

WRONG = {
    "made": np.ones(10**6, bool),
    "digest": np.zeros(2, np.int64),
    "lengths": {},
    "present": {},
    "reasons": [(99, "x")],
    "origins": np.zeros(0, np.uint8),
    "origin_lengths": np.array([-1, 2**62]),
    "chunks": {},
    "sizes": {},
    "files": {},
    "g": 99,
}


def of(name, change):
    """Change what a record says of its first field."""

    def changed(found):
        said = dict(getattr(found, name))
        field = next(iter(found.files))
        return replace(found, **{name: said | {field: change(said.get(field, (9, "0" * 32)))}})

    return changed


INNER = {
    "size is a text": of("files", lambda file: ("a", file[1])),
    "size is a fraction": of("files", lambda file: (float(file[0]), file[1])),
    "size is huge": of("files", lambda file: (1 << 70, file[1])),
    "size is negative": of("files", lambda file: (-5, file[1])),
    "digest is none": of("files", lambda file: (file[0], None)),
    "digest is short": of("files", lambda file: (file[0], "ab")),
    "whole is a text": of("whole", lambda file: ("a", "b")),
    "more chunks": of("chunks", lambda some: np.zeros(len(some) + 1, np.uint64)),
    "chunks are texts": of("chunks", lambda some: np.full(len(some), "zz")),
    "sizes are texts": of("sizes", lambda some: np.full(len(some), "zz")),
    "sizes are negative": of("sizes", lambda some: np.full(len(some), -1)),
    "sizes are more than the file": of("sizes", lambda some: np.full(len(some), 2**63, np.uint64)),
    "origins are texts": lambda found: replace(found, origins=np.full(found.origins.shape, "zz")),
    "a reason is a number": lambda found: replace(found, reasons=[(0, 5)]),
    "a reason is long": lambda found: replace(found, reasons=[(0, "x" * 200_000)]),
    "made is a list": lambda found: replace(found, made=[1, 2, 3]),
}


@pytest.mark.parametrize("change", INNER.values(), ids=INNER)
def test_a_record_that_a_worker_has_made_up_ends_the_build(
    job,  # noqa: F811
    made,  # noqa: F811
    tmp_path,
    monkeypatch,
    change,
):
    read = provenance.read
    monkeypatch.setattr(provenance, "read", lambda *asked: change(read(*asked)))
    with pytest.raises(StorageError, match=r"records/0: does not fit the plan of this build\."):
        build_cache(job, tmp_path / "out")


@pytest.mark.parametrize("change", INNER.values(), ids=INNER)
def test_a_record_with_other_values_is_not_gone_on_with(job, made, golden, tmp_path, change):  # noqa: F811
    stopped(job, tmp_path / "out", 3)
    (folder,) = stagings(tmp_path / "out")
    records = folder / "work" / "records"
    answer = provenance.write(records, change(saved_record(records, 0)))
    Staging(folder).note_finished([answer])
    made.clear()
    built = build_cache(job, tmp_path / "out")
    assert (built.kept, tree(built.path)) == (2, golden)


def test_a_shard_that_another_task_has_forged_is_made_again(job, made, golden, tmp_path):  # noqa: F811
    """A task may write into the folders of all shards: a shard and its record may agree, and lie."""
    stopped(job, tmp_path / "out", 3)
    (folder,) = stagings(tmp_path / "out")
    records = folder / "work" / "records"
    one = saved_record(records, 0)
    written = {record: name for name, record in (one.files | one.whole).items()}
    name, path = next(
        (name, path)
        for path in (folder / "work" / "shards").rglob("c.0*")
        if (name := written.get((path.stat().st_size, digest_file(path)))) is not None
    )
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(bytes(size))
    forged = {name: (size, digest_file(path))}
    whole = one.whole | forged if name in one.whole else one.whole
    provenance.write(records, replace(one, files=one.files | forged, whole=whole))
    made.clear()
    built = build_cache(job, tmp_path / "out")
    assert (built.kept, tree(built.path)) == (2, golden)
    assert 0 in made


def test_a_record_of_rows_that_are_alike_takes_no_memory(job, made, tmp_path):  # noqa: F811
    stopped(job, tmp_path / "out", 3)
    (folder,) = stagings(tmp_path / "out")
    records = folder / "work" / "records"
    provenance.write(
        records, replace(saved_record(records, 0), made=np.broadcast_to(np.True_, 100))
    )
    assert saved_record(records, 0).made.shape == (100,)
    raw = (records / "0").read_bytes()[:-32].replace(b"[100]", b"[1000000000000]")
    _, body = FRAME.unpack_from(raw)
    raw = FRAME.pack(len(raw) - FRAME.size - body, body) + raw[FRAME.size :]
    (records / "0").unlink()
    (records / "0").write_bytes(raw + digest_parts([raw]).encode())
    assert saved_record(records, 0) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_record_of_another_shape_is_not_gone_on_with(job, made, golden, tmp_path, name):  # noqa: F811
    """Its digest fits: whoever wrote it."""
    stopped(job, tmp_path / "out", 3)
    (folder,) = stagings(tmp_path / "out")
    records = folder / "work" / "records"
    found = replace(saved_record(records, 0), **{name: WRONG[name]})
    Staging(folder).note_finished([provenance.write(records, found)])
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
        saved_record(path.parent, 1)
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
    second = build_cache(
        job_of(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out"
    )
    assert len(second.reuse.lost) == 1
    assert verify(second.path) == []
    assert (tmp_path / "away").stat().st_nlink == 1  # no name of another file is a shard


@pytest.mark.parametrize("digest", [digest_file, lambda path: digest_head(path, 10)])
def test_a_digest_is_of_a_plain_file(tmp_path, digest):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        digest(tmp_path / "pipe")
