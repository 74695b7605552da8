"""The page of a cache in a bucket says what that of the same cache in a folder says."""

from __future__ import annotations

import pytest

from datacheck.build.builder import build_cache
from datacheck.cache import bucket
from datacheck.cache.find import neighbouring_caches, unfinished_builds
from datacheck.cli.main import run
from datacheck.report.cache_page import cache_summary
from tests.build import rebuild
from tests.s3.conftest import fresh
from tests.s3.make import committed, copied, delete, files_of, listed


@pytest.fixture(scope="module")
def places(tmp_path_factory, server):
    """Two builds in a folder and in a bucket."""
    place, url = tmp_path_factory.mktemp("built"), fresh()
    with pytest.MonkeyPatch.context() as patch:
        rebuild.small(patch)
        rebuild.dataset(place / "data", 12)
        made = []
        for seed in (0, 1):
            rebuild.write(place / "data", "000.npz", seed)
            made.append(build_cache(rebuild.job(place / "data"), place / "out").path)
    return made, [committed(path, f"{url}/tiny/all/{path.name}") for path in made]


@pytest.fixture
def in_order(places, monkeypatch):
    """Let the second be the newer one, whatever the clock of the server can tell apart."""
    newest = bucket.newest_buckets
    urls = places[1]
    monkeypatch.setattr(
        bucket, "newest_buckets", lambda url: sorted(newest(url), key=urls.index, reverse=True)
    )
    return places


def test_the_page_is_that_of_the_folder(in_order):
    (_, folder), (first, url) = in_order
    here, there = cache_summary(folder), cache_summary(url)
    assert (there["place"], there["changed"]["path"]) == (url, first)
    for said in (here, there):
        del said["place"], said["quoted"], said["checked"]["when"], said["changed"]["path"]
    assert there == here
    assert there["changed"]["changed"]["all"] == 1
    assert any(row[5] for row in there["shards"])


def test_caches_beside_one_are_found_in_the_bucket(places):
    _, urls = places
    for url in urls:
        older, newer = neighbouring_caches(url)
        assert [*older, *newer] == [one for one in urls if one != url]


def test_a_copy_without_a_commit_and_a_missing_file(places, url, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    copied(places[0][0], f"{url}/tiny/all/{places[0][0].name}")
    assert run(["cache", "report", url]) == 0
    name = next(name for name in listed(url) if name.endswith("fields/joints/c.0.0.0"))
    delete(f"{url}/{name}")
    capsys.readouterr()
    assert run(["cache", "report", url]) == 7
    assert "1 problem" in capsys.readouterr().out
    assert "fields/joints/c.0.0.0" in (tmp_path / "cache-report.html").read_text()


def test_an_attempt_that_was_not_committed_is_an_unfinished_build(
    places, url, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    cache = committed(places[0][0], f"{url}/tiny/all/{places[0][0].name}")
    attempt = files_of(cache)
    delete(f"{cache}/commit.json")
    assert unfinished_builds(url) == [attempt]
    assert run(["cache", "report", url]) == 2
    assert f"an unfinished build lies in {attempt}" in capsys.readouterr().err
    assert run(["cache", "report", f"{url}/nowhere"]) == 2
