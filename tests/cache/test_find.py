"""Which caches lie beside one, and what is there where none is finished."""

from __future__ import annotations

import os

import pytest

from datacheck.cache.find import (
    choose_cache,
    find_builds,
    find_caches,
    find_links,
    find_trash,
    find_without_manifest,
    neighbouring_caches,
    unfinished_builds,
)
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache


def caches(place, times):
    """Caches of no samples that were published at these times, in that order."""
    made = []
    for number, when in enumerate(times):
        folder = make_cache(place, {"x": ArraySpec("float32", ())}, [], key=f"{number:016x}")
        os.utime(folder, (when, when))
        made.append(folder)
    return made


def test_caches_beside_one_are_told_by_when_they_were_published(tmp_path):
    a, b, c, d = caches(tmp_path, [40, 10, 30, 20])
    assert neighbouring_caches(c) == ([d, b], [a])
    assert neighbouring_caches(a) == ([c, d, b], [])
    assert neighbouring_caches(b) == ([], [a, c, d])


def test_a_link_to_a_cache_is_that_cache(tmp_path):
    a, b = caches(tmp_path, [10, 20])
    (tmp_path / "latest").symlink_to(b)
    assert neighbouring_caches(tmp_path / "latest") == ([a], [])


def test_unfinished_builds_are_told_from_above_and_from_within(tmp_path):
    build = tmp_path / "p/all/.building/0123456789abcdef.1"
    build.mkdir(parents=True)
    assert (
        unfinished_builds(tmp_path)
        == unfinished_builds(tmp_path / "p/all")
        == unfinished_builds(build)
        == [str(build)]
    )
    assert unfinished_builds(tmp_path / "nowhere") == []


def test_nothing_is_found_behind_a_link_below_the_folder_that_is_named(tmp_path):
    """Who hands a folder of caches over could lead each command to any cache of its user."""
    outside = make_cache(tmp_path / "outside", {"x": ArraySpec("float32", ())}, [])
    split = outside.parent
    (split / ".building/0123456789abcdef.1").mkdir(parents=True)
    (split / ".trash/old").mkdir(parents=True)
    headless = split / ("f" * 16)
    headless.mkdir()
    (headless / "zarr.json").touch()
    every = find_caches, find_without_manifest, find_builds, find_trash
    assert [len(list(find(tmp_path / "outside"))) for find in every] == [1, 1, 1, 1]
    shared = tmp_path / "shared"
    for place, goal in {
        "pipeline": split.parent,
        "p/split": split,
        "p/all/key": outside,
        "p/all/headless": headless,
        "p/all/.building": split / ".building",
        "p/all/.trash": split / ".trash",
        "p/one/.building/b": split / ".building/0123456789abcdef.1",
    }.items():
        (shared / place).parent.mkdir(parents=True, exist_ok=True)
        (shared / place).symlink_to(goal)
    (shared / "p/file").symlink_to(outside / "zarr.json")
    (shared / "p/loop").symlink_to("loop")
    assert [list(find(shared)) for find in every] == [[], [], [], []]
    links = ["pipeline", "p/split", "p/all/headless", "p/all/key"]
    assert list(find_links(shared)) == [shared / name for name in links]
    with pytest.raises(
        UsageError, match=r"no finished cache; \S+pipeline is a link, which is not followed"
    ):
        choose_cache(shared)
    (tmp_path / "mine").symlink_to(tmp_path / "outside")
    named = tmp_path / "mine" / outside.relative_to(tmp_path / "outside")
    assert choose_cache(tmp_path / "mine") == named
    assert choose_cache(shared / "pipeline") == shared / "pipeline/all" / outside.name
