"""Which caches lie beside one, and what is there where none is finished."""

from __future__ import annotations

import os

from datacheck.cache.find import beside, unfinished_at
from datacheck.sample import ArraySpec
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
    assert beside(c) == ([d, b], [a])
    assert beside(a) == ([c, d, b], [])
    assert beside(b) == ([], [a, c, d])


def test_a_link_to_a_cache_is_that_cache(tmp_path):
    a, b = caches(tmp_path, [10, 20])
    (tmp_path / "latest").symlink_to(b)
    assert beside(tmp_path / "latest") == ([a], [])


def test_unfinished_builds_are_told_from_above_and_from_within(tmp_path):
    build = tmp_path / "p/all/.building/0123456789abcdef.1"
    build.mkdir(parents=True)
    assert unfinished_at(tmp_path) == unfinished_at(tmp_path / "p/all") == unfinished_at(build) == [str(build)]
    assert unfinished_at(tmp_path / "nowhere") == []
