"""A build writes, moves and removes in its own folders only, whatever links lie where it looks for earlier builds."""

from __future__ import annotations

import os
import shutil

import pytest

from datacheck.build import gc, publish, staging
from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.cache.verify import verify
from datacheck.errors import StorageError
from datacheck.runtime import folders, fsops
from tests.build.make import tree
from tests.build.test_gc import cache, files, sweep
from tests.build.test_resume import edited, golden, job, made, stagings, stopped

__all__ = ["golden", "job", "made"]  # fixtures


def told(folder):
    return {
        str(p.relative_to(folder)): (p.stat().st_mode, p.is_file() and p.read_bytes())
        for p in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "where",
    [
        "",
        "work",
        "work/records",
        "work/shards",
        "work/shards/fields",
        "work/shards/fields/cloud",
        "work/whole",
        "work/records/0",
        "OWNER",
    ],
)
def test_a_link_in_what_an_ended_build_left_leads_nowhere(job, made, golden, tmp_path, where):
    out, outside = tmp_path / "out", tmp_path / "outside"
    stopped(job, out, 3)
    (left,) = stagings(out)
    shutil.copytree(left, outside)
    (outside / "diary.txt").write_text("dear diary")
    place = left / where
    if folders.is_real(place):
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(outside / where)
    before = told(outside)
    built = build_cache(job, out)
    assert tree(built.path) == golden
    assert verify(built.path) == []
    assert not any(path.is_symlink() for path in built.path.rglob("*"))
    assert told(outside) == before


def test_a_shard_that_is_a_link_is_not_written_into(job, made, golden, tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    stopped(job, out, 3)
    (left,) = stagings(out)
    outside.mkdir()
    shards = [path for path in (left / "work/shards").rglob("c.*") if os.access(path, os.W_OK)]
    for number, path in enumerate(shards):
        path.rename(outside / str(number))
        path.symlink_to(outside / str(number))
    before = told(outside)
    built = build_cache(job, out)
    assert (tree(built.path), told(outside)) == (golden, before)


def test_a_link_in_the_place_of_the_folder_of_builds_is_refused(job, made, tmp_path):
    built = build_cache(job, tmp_path / "out")
    shutil.rmtree(built.path)
    outside = tmp_path / "outside"
    (outside / f"{built.path.name}.{'1' * 32}").mkdir(parents=True)
    (outside / f".{built.path.name}.x.gone").mkdir()
    (built.path.parent / layout.BUILDING).symlink_to(outside)
    with pytest.raises(
        StorageError, match=r"\.building: is a link.*Remove it and run the same command again"
    ):
        build_cache(job, tmp_path / "out")
    staging.remove_abandoned(built.path.parent, built.path.name)
    assert len(told(outside)) == 2


@pytest.mark.parametrize("command", ["build", "gc", "set_aside"])
def test_a_trash_that_is_a_link_takes_nothing(job, made, tmp_path, command):
    built = build_cache(job, tmp_path / "out")
    (tmp_path / "outside").mkdir()
    (built.path.parent / layout.TRASH).symlink_to(tmp_path / "outside")
    edited(built.path / layout.MANIFEST, lambda raw: raw if command == "gc" else b"{}")
    run = {
        "build": lambda: build_cache(job, tmp_path / "out"),
        "gc": lambda: sweep(tmp_path / "out", 0),
        "set_aside": lambda: publish.set_aside(built.path, built.path.parent),
    }[command]
    with pytest.raises(StorageError, match=r"\.trash: is a link"):
        run()
    assert built.path.is_dir()
    assert files(tmp_path / "outside") == []


def test_a_link_that_takes_the_place_of_the_trash_is_not_followed(tmp_path, monkeypatch):
    made = cache(tmp_path, 1)
    trash, outside = made.parent / layout.TRASH, tmp_path / "outside"
    outside.mkdir()

    def exchanged(path, **_):
        path.symlink_to(outside)

    monkeypatch.setattr(fsops, "make_directory", exchanged)
    with pytest.raises(StorageError):
        publish.set_aside(made, made.parent)
    assert trash.is_symlink()
    assert (made.is_dir(), files(outside)) == (True, [])


# ---------------------------------------------------------------------------------------------- gc


def test_of_a_build_only_what_a_build_writes_is_removed(tmp_path):
    build = tmp_path / "tiny/all/.building" / f"{'a' * 16}.{'1' * 32}"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_text("mine")
    ours = [
        "OWNER",
        ".OWNER.0123456789ab.partial",
        "work/attempt",
        "work/records/0",
        "work/records/.1.0123456789ab.partial",
        "again/12",
        "work/shards/fields/a/b/c.0.0",
        "work/shards/fields/x/.c.0.0123456789ab.partial",
        "work/whole/zarr.json",
        "work/whole/fields/x/zarr.json",
        "work/whole/manifest.json",
        "work/whole/build.json",
        "work/whole/sources.json",
        "work/whole/inputs.json",
        "work/whole/findings.json",
        "work/whole/samples/key/c.0",
    ]
    foreign = [
        "notes.txt",
        "work/notes.txt",
        "work/records/notes",
        "work/shards/model.pt",
        "work/whole/fields/x/data.npy",
        "work/OWNER",
        "c.0",
        ".partial",
        "work/whole/fields/manifest.json",
    ]
    for name in [*ours, *foreign]:
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_text("{}")
    (build / "work/records/2").symlink_to(outside / "0")
    (build / "work/whole/present").symlink_to(outside)
    foreign += ["work/records/2", "work/whole/present"]
    (found,) = sweep(tmp_path)
    (rest,) = (tmp_path / "tiny/all/.building").iterdir()
    assert sorted(str(path.relative_to(rest)) for path in found.strange) == sorted(foreign)
    assert files(rest) == sorted(foreign)
    assert files(outside) == ["0"]
    (again,) = sweep(tmp_path)  # until somebody looks at it
    assert len(again.strange) == len(foreign)


@pytest.mark.parametrize("kind", ["build", "cache", "trash"])
def test_a_folder_that_became_a_link_since_it_was_looked_at_is_left(tmp_path, kind):
    made = cache(tmp_path, 1)
    path = {
        "build": made.parent / ".building" / f"{'a' * 16}.{'1' * 32}",
        "cache": made,
        "trash": made.parent / ".trash" / f"{'b' * 16}.{'2' * 32}",
    }[kind]
    if kind != "cache":
        path.parent.mkdir()
        shutil.copytree(made, path if kind == "trash" else path / "work/whole")
        if kind == "build":
            (path / "OWNER").touch()
    (found,) = (one for one in gc.survey(tmp_path, 0) if one.path == path)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    before = told(tmp_path / "moved")
    gc.remove(found)
    assert told(tmp_path / "moved") == before


def test_a_manifest_that_names_files_elsewhere_removes_none(tmp_path):
    """Of a damaged cache the names of the format count, of each of its folders by handle."""
    made = cache(tmp_path, 1)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/c.0").write_text("mine")
    shutil.rmtree(made / "samples/key")
    (made / "samples/key").symlink_to(tmp_path / "outside")
    sweep(tmp_path, 0)
    assert files(tmp_path / "outside") == ["c.0"]
