"""``datacheck cache gc``: what it prints, removes, and with which exit code it ends."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from datacheck.cache import open_cache
from datacheck.cli.main import run
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache


@pytest.fixture
def caches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []
    for number in range(3):
        one = make_cache(
            tmp_path / "cache",
            {"x": ArraySpec("int64", (9,))},
            [{"x": np.arange(9)}],
            key=f"{number:016x}",
        )
        then = time.time() - number * 10 * 86400
        os.utime(one, (then, then))
        made.append(one)
    return made


def said(capsys, *words, code=0):
    assert run(["cache", "gc", *words]) == code
    return capsys.readouterr().out.splitlines()


def test_nothing_is_removed_before_it_is_asked_for(caches, capsys):
    lines = said(capsys)
    assert [line.split()[0] for line in lines] == ["stays", "stays", "stays", "Nothing"]
    lines = said(capsys, "--keep", "1")
    assert [line.split()[0] for line in lines[:2]] == ["stays", "would"]
    assert "20 days old (2 newer)" in lines[2]
    assert lines[3].endswith("would be freed. Nothing was removed: --delete does it.")
    assert all(one.exists() for one in caches)


def test_delete_removes_what_was_shown(caches, capsys):
    size = sum(p.stat().st_size for p in caches[2].rglob("*") if p.is_file())
    lines = said(capsys, "cache", "--older-than", "2w", "--delete")
    assert [line.split()[0] for line in lines[:3]] == ["stays", "stays", "removed"]
    assert lines[-1] == f"{size / 1e6:.3g} MB freed"
    assert [one.exists() for one in caches] == [True, True, False]
    assert said(capsys, "--delete")[-1] == "Nothing to remove."


def test_what_is_read_stays_and_what_is_strange_ends_with_1(caches, tmp_path, capsys):
    opened = open_cache(caches[1])
    (caches[2] / "notes.txt").write_text("mine")
    lines = said(capsys, "--keep", "0", "--delete", code=1)
    assert any("(in use)" in line and caches[1].name in line for line in lines)
    (left,) = tmp_path.glob("cache/tiny/all/.trash/*/notes.txt")
    assert any(
        f"{left.relative_to(tmp_path)}: no file of this cache, left" in line for line in lines
    )
    assert opened.gather("x", [0]).shape == (1, 9)
    assert run(["cache", "ls"]) == 0
    listed = capsys.readouterr().out
    assert "moved aside, in" in listed
    assert caches[1].name in listed


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nowhere"], "no such folder"),
        (["--older-than", "7"], "7d"),
        (["--older-than", "-7d"], "7d"),
        (["s3://bucket/caches", "--keep", "1"], "caches in buckets are not collected"),
        (["--older-than", "d"], "7d"),
        (["--keep", "-1"], "-1"),
        (["cache/tiny/all/0000000000000000"], "a cache"),
    ],
)
def test_wrong_requests_end_with_2(caches, capsys, words, what):
    assert run(["cache", "gc", *words]) == 2
    assert what in capsys.readouterr().err
