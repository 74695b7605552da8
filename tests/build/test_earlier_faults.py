"""An earlier cache that is damaged, removed or elsewhere costs time and nothing else; it is never written into."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from datacheck.build import builder, make_shards
from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.cache.find import find_caches
from datacheck.cache.manifest import exclusive_lock
from datacheck.cache.verify import verify
from datacheck.errors import OutOfSpaceError, StorageError
from datacheck.runtime import fsops
from tests.build.make import tree
from tests.build.rebuild import FIELDS, agree, dataset, flip, job, rebuilt, shards, small, write
from tests.cache.test_hostile import sealed


@pytest.fixture
def orders(monkeypatch):
    return small(monkeypatch)


# ---------------------------------------------------------------------------------- what is damaged


@pytest.mark.parametrize(
    "how", ["flipped", "index", "digests", "emptied", "missing", "longer", "folder"]
)
def test_a_damaged_shard_is_never_linked(tmp_path, orders, how):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    victim = next(p for n, p in shards(first.path).items() if n.startswith("fields/near/c.3"))
    if how in {"flipped", "index"}:
        flip(victim, 5 if how == "flipped" else -3)
    elif how == "digests":
        victim = first.path / "digests/fields/near/c.0"
        flip(victim)
    elif how in {"emptied", "longer"}:
        victim.chmod(0o644)
        victim.write_bytes(b"" if how == "emptied" else victim.read_bytes() + b"more")
        victim.chmod(0o444)
    else:
        victim.unlink()
        if how == "folder":
            victim.mkdir()
    orders.clear()
    asked = job(tmp_path / "data", invalid={"001.npz": ("DC201",)})
    second = build_cache(asked, tmp_path / "out")
    lost = list(range(second.shards)) if how == "digests" else [3]
    assert (second.reuse.linked, second.reuse.lost) == (second.shards - len(lost), lost)
    assert [order["g"] for order in orders] == lost
    agree(second, build_cache(asked, tmp_path / "fresh"))


@pytest.mark.parametrize("how", ["flipped", "missing", "gone"])
def test_samples_that_cannot_be_copied_are_made_from_their_sources(
    tmp_path, orders, how, monkeypatch
):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    write(tmp_path / "data", "0000.npz", 2)  # all others move
    victim = next(p for n, p in shards(first.path).items() if n.startswith("fields/cloud/c.3"))
    if how == "flipped":
        flip(victim, 5)
    elif how == "missing":
        victim.unlink()
    else:
        real = make_shards.ordered_map
        monkeypatch.setattr(
            make_shards,
            "ordered_map",
            lambda *a, **k: (shutil.rmtree(first.path, ignore_errors=True), real(*a, **k))[1],
        )
    asked = job(tmp_path / "data")
    orders.clear()
    second = build_cache(asked, tmp_path / "out")
    lost = second.reuse.lost
    assert lost == ([3] if how == "flipped" else list(range(second.shards)))
    # Asked for once as copies, then as what to make
    assert len(orders) == second.shards + len(lost)
    agree(second, build_cache(asked, tmp_path / "fresh"))


def test_a_damaged_cache_gives_what_is_whole_to_the_one_in_its_place(tmp_path, orders):
    dataset(tmp_path / "data")
    asked = job(tmp_path / "data")
    first = build_cache(asked, tmp_path / "out")
    golden = tree(first.path)
    next(p for n, p in shards(first.path).items() if n.startswith("fields/near/c.3")).unlink()
    orders.clear()
    second = build_cache(asked, tmp_path / "out")
    assert second.moved is not None
    assert (second.reuse.path, second.reuse.lost) == (second.moved, [3])
    assert [order["g"] for order in orders] == [3]
    assert tree(second.path) == golden


# -------------------------------------------------------------------------------------------- links


class Refusing(fsops.System):
    """Links are refused; from one call on the file is not there any more."""

    def __init__(self, code, since=0):
        self.code, self.left = code, since

    def link(self, source, target, folder=None):
        self.left -= 1
        if self.left < 0:
            raise OSError(self.code, os.strerror(self.code))
        super().link(source, target, folder)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_are_refused_shards_are_copied(tmp_path, orders, monkeypatch, code):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    monkeypatch.setattr(fsops, "SYSTEM", Refusing(code))
    orders.clear()
    second = build_cache(job(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out")
    assert (second.reuse.linked, orders) == (second.shards, [])
    assert {
        p.stat().st_nlink for p in (*shards(first.path).values(), *shards(second.path).values())
    } == {1}
    assert verify(second.path) == []


def test_a_cache_that_is_removed_meanwhile_gives_what_it_still_has(tmp_path, orders, monkeypatch):
    dataset(tmp_path / "data")
    build_cache(job(tmp_path / "data"), tmp_path / "out")
    monkeypatch.setattr(fsops, "SYSTEM", Refusing(errno.ENOENT, 12))
    asked = job(tmp_path / "data", invalid={"001.npz": ("DC201",)})
    second = build_cache(asked, tmp_path / "out")
    assert second.reuse.linked == 12 // len(FIELDS)
    assert second.reuse.lost == list(range(second.reuse.linked, second.shards))
    monkeypatch.undo()
    assert verify(second.path) == []


def test_a_cache_that_is_asked_is_held_against_removal(tmp_path, orders, monkeypatch):
    dataset(tmp_path / "data", 12)
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    free = []
    real = make_shards.ordered_map

    def looked(*given, **more):
        free.append(exclusive_lock(first.path))
        return real(*given, **more)

    monkeypatch.setattr(make_shards, "ordered_map", looked)
    build_cache(job(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out")
    assert free
    assert set(free) == {None}
    held = exclusive_lock(first.path)
    assert held is not None
    held.close()


def test_no_room_for_copies_ends_the_build(tmp_path, orders, monkeypatch):
    dataset(tmp_path / "data")
    build_cache(job(tmp_path / "data"), tmp_path / "out")
    monkeypatch.setattr(fsops, "SYSTEM", Refusing(errno.ENOSPC, 7))
    with pytest.raises(OutOfSpaceError):
        build_cache(job(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out")


@pytest.mark.parametrize("rows", [6000, 1])
def test_an_index_is_never_written_into_a_linked_shard(tmp_path, orders, rows):
    """The fullest shard has more rows than before, or fewer: all indices are others then."""
    data = tmp_path / "data"
    dataset(data)
    lengthen(data / "002.npz", 3000)
    first = build_cache(job(data), tmp_path / "out")
    lengthen(data / "002.npz", rows)
    one = rebuilt(job(data), tmp_path)  # which also says that no byte of the first is another
    assert one.reuse.linked == one.shards - 1
    dims = [
        json.loads((path / layout.ZARR).read_text())["attributes"]["datacheck"]["dims"]
        for path in (first.path, one.path)
    ]
    assert dims[0] != dims[1]
    own = {
        name.split("/")[1] for name, path in shards(one.path).items() if path.stat().st_nlink == 1
    }
    assert own == {"cloud", "near", "joints", "score", "weight"}
    ragged = [
        path for name, path in shards(one.path).items() if "/cloud/" in name or "/near/" in name
    ]
    assert {path.stat().st_nlink for path in ragged} == {1}
    assert verify(first.path) == verify(one.path) == []


def lengthen(path, rows):
    with np.load(path) as sample:
        np.savez(
            path,
            **{
                **sample,
                "cloud": np.ones((rows, 2), np.float32),
                "near": np.ones((rows, 3), np.float16),
            },
        )


@pytest.mark.parametrize(
    "when", ["datacheck.build.make_shards.ordered_map", "datacheck.build.finish.CacheFinisher.run"]
)
def test_a_build_that_ended_after_linking_goes_on(tmp_path, orders, monkeypatch, when):
    dataset(tmp_path / "data")
    build_cache(job(tmp_path / "data"), tmp_path / "out")
    write(tmp_path / "data", "013.npz", 1013)
    asked = job(tmp_path / "data")

    def ending(*_, **__):
        raise StorageError("ended")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(when, ending)
        with pytest.raises(StorageError, match="ended"):
            build_cache(asked, tmp_path / "out")
    short = [*tmp_path.glob("out/*/*/.building/**/fields/near/c.5.0")]
    if when.endswith("run"):  # a linked file has its index: without it is not what the record says
        raw = short[0].read_bytes()
        short[0].unlink()
        short[0].write_bytes(raw[:-30])
    second = build_cache(asked, tmp_path / "out")
    assert second.kept + second.reuse.linked == second.shards - (not when.endswith("run"))
    assert second.reuse.linked == 1 or not when.endswith("run")
    agree(second, build_cache(asked, tmp_path / "fresh"))


# -------------------------------------------------------------------------------- in real processes


@pytest.mark.parametrize("again", [False, True], ids=["first run", "second run"])
def test_no_task_can_write_into_a_shard_of_an_earlier_cache(tmp_path, orders, monkeypatch, again):
    """What a task may write are the folders of its order: no file there may be one of the earlier cache's."""
    dataset(tmp_path / "data")
    build_cache(job(tmp_path / "data"), tmp_path / "out")
    write(tmp_path / "data", "013.npz", 1013)
    if again:  # the run before came so far that all shards were under their last name
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                builder.CacheFinisher,
                "run",
                lambda self: (_ for _ in ()).throw(StorageError("ended")),
            )
            with pytest.raises(StorageError, match="ended"):
                build_cache(job(tmp_path / "data"), tmp_path / "out")
        for path in tmp_path.rglob("records/*"):
            path.unlink()
    shared = []

    def seen(*args, sandbox, **kwargs):
        shared.extend(
            path
            for place in sandbox.write
            for path in Path(place).rglob("*")
            if path.is_file() and path.stat().st_nlink > 1
        )
        return real(*args, sandbox=sandbox, **kwargs)

    real = make_shards.ordered_map
    monkeypatch.setattr(make_shards, "ordered_map", seen)
    second = build_cache(job(tmp_path / "data"), tmp_path / "out")
    assert second.reuse.linked > 0
    assert shared == []
    assert verify(second.path) == []


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_file_is_opened_but_the_changed_one(tmp_path, monkeypatch, workers):
    """All others are gone by the time the build begins."""
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 11)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 12)
    data = tmp_path / "data"
    dataset(data, 16)
    build_cache(job(data), tmp_path / "out")
    write(data, "007.npz", 1007)
    write(data, "0120.npz", 1012)  # moves all that follow
    asked = job(data)
    fresh = build_cache(asked, tmp_path / "fresh")
    for path in data.iterdir():
        if path.name not in {"007.npz", "0120.npz"}:
            path.unlink()
    one = build_cache(asked, tmp_path / "out", workers=workers)
    assert one.reuse.linked > 0
    assert one.reuse.copied > 0
    agree(one, fresh)


# ---------------------------------------------------------------------------------- what is hostile


@pytest.mark.parametrize("length", [1 << 40, 1 << 62, -5, 0])
def test_lengths_of_an_earlier_cache_that_no_shard_has_are_not_taken(tmp_path, orders, length):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    table = first.path / "rows/P/length/c.0"
    lengths = np.frombuffer(table.read_bytes()[: first.samples * 8], "<i8").copy()
    lengths[np.flatnonzero(lengths)[0]] = length
    table.chmod(0o644)
    with table.open("r+b") as file:
        file.write(lengths.tobytes())
    sealed(first.path)
    asked = job(tmp_path / "data", invalid={"001.npz": ("DC201",)})
    second = build_cache(asked, tmp_path / "out")
    assert verify(second.path) == []
    agree(second, build_cache(asked, tmp_path / "fresh"))


def test_a_process_that_writes_shards_does_not_displace_a_proven_one(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 11)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 12)
    dataset(tmp_path / "data", 16)
    build_cache(job(tmp_path / "data"), tmp_path / "out")
    write(tmp_path / "data", "013.npz", 1013)
    displaced = []

    def hostile(*args, sandbox, **kwargs):
        linked = Path(sandbox.write[0]).with_name("linked")
        found = [] if displaced else sorted(path for path in linked.rglob("*") if path.is_file())
        for number, path in enumerate(found):
            other = Path(sandbox.write[0]) / path.relative_to(linked)
            displaced.append(other)
            if number % 2:
                other.mkdir()
            else:
                other.write_bytes(b"of my own")
        if found:
            (Path(sandbox.write[0]) / "fields/joints/link").symlink_to(tmp_path)
            os.mkfifo(Path(sandbox.write[0]) / "fields/joints/pipe")
        return real(*args, sandbox=sandbox, **kwargs)

    real = make_shards.ordered_map
    monkeypatch.setattr(make_shards, "ordered_map", hostile)
    second = build_cache(job(tmp_path / "data"), tmp_path / "out")
    assert len(displaced) > 4
    assert second.reuse.linked > 1
    assert [
        path for path in second.path.rglob("*") if not path.is_dir() and not path.is_file()
    ] == []
    assert [path for path in second.path.rglob("*") if path.is_symlink()] == []
    assert verify(second.path) == []
    monkeypatch.setattr(make_shards, "ordered_map", real)
    agree(second, build_cache(job(tmp_path / "data"), tmp_path / "fresh"))


@pytest.mark.parametrize("how", ["bytes", "longer"])
@pytest.mark.parametrize("field", ["joints", "cloud"])
def test_a_shard_that_another_process_changes_is_not_published(tmp_path, monkeypatch, field, how):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 11)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 12)
    dataset(tmp_path / "data", 16)

    def hostile(*args, sandbox, **kwargs):
        yield from real(*args, sandbox=sandbox, **kwargs)
        victim = next(Path(sandbox.write[0]).glob(f"fields/{field}/c.0*"))
        if how == "bytes":
            flip(victim, 3)
        else:
            with victim.open("ab") as file:
                file.write(b"more")

    real = make_shards.ordered_map
    monkeypatch.setattr(make_shards, "ordered_map", hostile)
    if how == "longer" and field == "cloud":  # its end is the index, which is written last
        build_cache(job(tmp_path / "data"), tmp_path / "out")
    else:
        with pytest.raises(StorageError, match="not what was written"):
            build_cache(job(tmp_path / "data"), tmp_path / "out")
        assert list(find_caches(tmp_path / "out")) == []
    monkeypatch.setattr(make_shards, "ordered_map", real)
    built = build_cache(job(tmp_path / "data"), tmp_path / "out")
    assert verify(built.path) == []
    agree(built, build_cache(job(tmp_path / "data"), tmp_path / "fresh"))


def test_a_build_goes_on_with_shards_that_were_linked(tmp_path, orders):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    asked = job(tmp_path / "data", invalid={"001.npz": ("DC201",)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            builder, "CacheFinisher", lambda *_: (_ for _ in ()).throw(StorageError("ended"))
        )
        with pytest.raises(StorageError, match="ended"):
            build_cache(asked, tmp_path / "out")
    orders.clear()
    second = build_cache(asked, tmp_path / "out")
    assert (second.kept, orders) == (second.shards, [])
    assert all(
        p.stat().st_ino == shards(first.path)[n].stat().st_ino
        for n, p in shards(second.path).items()
    )
    agree(second, build_cache(asked, tmp_path / "fresh"))
