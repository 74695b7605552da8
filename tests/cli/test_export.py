"""``datacheck cache export``: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from datacheck.cli.main import run
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, valid = [True] * 4 + [False], [True, False, True, True, True]
    return make_cache(
        tmp_path / "cache",
        {"x": ArraySpec("int64", ())},
        [{"x": i} for i in range(5)],
        made=made,
        valid=valid,
    )


def test_it_says_what_was_written_and_left_out(cache, tmp_path, capsys):
    assert run(["cache", "export", "cache", "--to", "one", "--as", "npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("one: 3 samples in 4 files, ")
    assert lines[1:] == ["    left out: 1 not made, 1 not valid"]
    assert json.loads((tmp_path / "one/export.json").read_text())["left_out"] == {
        "not made": 1,
        "not valid": 1,
    }
    assert [int(np.load(p)["x"]) for p in sorted(tmp_path.glob("one/sample/*.npz"))] == [0, 2, 3]
    assert run(["cache", "export", "cache", "--to", "two", "--as", "webdataset", "--invalid"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["    left out: 1 not made"]


@pytest.mark.parametrize("to", [".", "../here"])
def test_the_working_folder_is_not_replaced(cache, tmp_path, monkeypatch, capsys, to):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run(["cache", "export", "../cache", "--to", to, "--as", "npz"]) == 2
    assert f"{to}: is there already, and nothing is overwritten" in capsys.readouterr().err
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["cache", "--to", "cache", "--as", "npz"], 2, "is there already"),
        (["cache", "--to", "new", "--as", "robomimic"], 2, "robomimic needs a field actions"),
        (["cache", "--to", "new", "--as", "parquet"], 2, "parquet"),
        (["nowhere", "--to", "new", "--as", "npz"], 2, "no such folder"),
        (["cache", "--as", "npz"], 2, "--to"),
        (
            ["cache", "--to", "s3://bucket/new", "--as", "npz"],
            2,
            "s3://bucket/new: exports go to a folder",
        ),
    ],
)
def test_wrong_requests_end_with_2(cache, tmp_path, capsys, words, code, said):
    assert run(["cache", "export", *words]) == code
    assert said in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache"]


def test_damage_ends_with_7(cache, tmp_path, capsys):
    file = cache / "fields/x/c.0"
    file.write_bytes(b"\1" + file.read_bytes()[1:])
    assert run(["cache", "export", "cache", "--to", "new", "--as", "npz"]) == 7
    assert "datacheck cache repair" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache"]
