"""``datacheck cache report``: where the page goes, what is printed, and with which exit code it ends."""

from __future__ import annotations

import os

import numpy as np
import pytest

from datacheck.cache.find import find_caches
from datacheck.cache.verify import verify
from datacheck.cli.main import run
from datacheck.model.sample import ArraySpec
from tests.cache.make import KEY, make_cache, unprivileged

SPECS = {"x": ArraySpec("float32", (2,))}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = [{"x": np.full(2, i, np.float32)} for i in range(5)]
    return make_cache(tmp_path / "cache", SPECS, data, k=2, valid=[True, True, False, True, True])


def report(capsys, *words):
    code = run(["cache", "report", *map(str, words)])
    return code, capsys.readouterr()


def test_the_page_is_written_into_the_working_folder_and_not_into_the_cache(
    cache, tmp_path, capsys
):
    code, said = report(capsys, "cache")
    assert code == 0
    assert said.out.splitlines()[0] == f"cache/tiny/all/{KEY}: intact (manifest, files and sizes)"
    assert said.out.splitlines()[1].startswith("cache-report.html: ")
    page = (tmp_path / "cache-report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert '"samples":5,"made":5,"valid":4' in page
    assert verify(cache) == []


def test_a_place_may_be_named_and_every_byte_be_read(cache, tmp_path, capsys):
    code, said = report(capsys, cache, "-o", tmp_path / "page.html", "--full")
    assert code == 0
    assert f"{cache}: intact (every byte)" in said.out
    assert (tmp_path / "page.html").exists()
    page = (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").write_text(page + "<!-- before -->")
    assert report(capsys, cache, "-o", tmp_path / "page.html")[0] == 0
    assert not (tmp_path / "page.html").read_text().endswith("<!-- before -->")


def test_the_page_of_a_damaged_cache_is_written_and_the_exit_code_is_7(cache, tmp_path, capsys):
    (cache / "fields/x/c.1.0").unlink()
    code, said = report(capsys, "cache")
    assert code == 7
    assert "1 problem" in said.out
    assert '"what":"missing"' in (tmp_path / "cache-report.html").read_text()
    code, _ = report(capsys, "cache", "-o", cache / "page.html")
    assert code == 2


def test_the_manifest_that_is_damaged_is_no_traceback(cache, tmp_path, capsys):
    (cache / "manifest.json").write_text("{")
    code, said = report(capsys, "cache")
    assert (code, said.err) == (7, "")
    assert "its own digest does not match" in (tmp_path / "cache-report.html").read_text()


def test_a_cache_that_lost_its_manifest_is_told_from_an_unfinished_build(cache, tmp_path, capsys):
    (cache / "manifest.json").unlink()
    code, said = report(capsys, "cache")
    assert code == 7
    assert "its manifest is gone" in said.err
    build = tmp_path / f"cache/tiny/all/.building/{KEY}.1"
    build.parent.mkdir()
    cache.rename(build)
    for place in ("cache", build):
        code, said = report(capsys, place)
        assert code == 2
        assert (
            f"an unfinished build lies in "
            f"{'cache/tiny/all/.building' if place == 'cache' else build.parent}" in said.err
        )
        assert "Run the same datacheck cache build again" in said.err
    assert not (tmp_path / "cache-report.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere"], 2, "no such folder"),
        (["cache"], 2, "2 finished caches. Name one of them, or its split:"),
        (["cache", "--split", "test"], 2, "no finished cache; there is all, val"),
        (["cache", "--split", "val"], 0, ""),
        (["cache/tiny/all", "-o", "cache/tiny/all/0123456789abcdef/x"], 3, "no such file"),
        (["cache/tiny/all", "-o", f"cache/tiny/all/{KEY}/fields/x.html"], 2, "lies in the cache"),
        (["cache/tiny/all", "-o", "."], 2, "is a directory"),
        (["cache/tiny/all", "-o", "nowhere/page.html"], 3, "nowhere/page.html: no such file"),
    ],
)
def test_a_wrong_request_is_one_message(cache, tmp_path, capsys, words, code, said):
    make_cache(tmp_path / "cache", SPECS, [], split="val")
    found, shown = report(capsys, *words)
    assert found == code
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert all(verify(one) == [] for one in find_caches(tmp_path))


def test_a_file_that_may_not_be_read_is_told(cache, capsys):
    (cache / "samples/made/c.0").chmod(0)
    with unprivileged():
        code, said = report(capsys, "cache")
    assert code == 3
    assert "samples/made/c.0" in said.err


def test_a_name_is_no_command_to_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = make_cache(tmp_path / "a\x1b[2J", SPECS, [])
    code, said = report(capsys, cache, "-o", "b\x1b[2J.html")
    assert code == 0
    assert "\x1b" not in said.out
    assert "b\\x1b[2J.html" in said.out


@pytest.mark.parametrize(
    ("place", "code"), [("nowhere/page.html", 3), ("pipe", 2), ("closed/page.html", 3)]
)
def test_a_place_where_no_page_can_go_is_told_before_anything_is_read(
    cache, tmp_path, capsys, monkeypatch, place, code
):
    def read(*_):
        raise AssertionError

    monkeypatch.setattr("datacheck.report.cache_page.cache_summary", read)
    (tmp_path / "closed").mkdir(mode=0o555)
    os.mkfifo(tmp_path / "pipe")
    with unprivileged():
        found, said = report(capsys, "cache", "-o", place)
    assert found == code
    assert said.err.startswith(f"datacheck: {place}: ")
    assert ("another place with -o" in said.err) == (code == 3) != ("Name a new file" in said.err)
    assert (tmp_path / "pipe").is_fifo()
