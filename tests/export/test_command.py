"""``datacheck export``: from data or a finished run to a dataset in which a scan finds nothing."""

from __future__ import annotations

import json

import pytest

from datacheck.cli.main import run
from datacheck.scan.run_documents import read_result, read_valid
from tests.export import make
from tests.export.test_lerobot import change, digests


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Episode 1 has a NaN in its action."""
    monkeypatch.chdir(tmp_path)
    folder = make.v3(tmp_path / "source", videos=False)
    actions = [a.tolist() for episode in (0, 1, 2) for a in make.rows(episode)["action"]]
    actions[6][1] = float("nan")
    change(folder / "data/chunk-000/file-000.parquet", action=actions)
    return folder


def test_a_scan_of_the_export_finds_nothing(source, tmp_path, capsys, repository):
    assert run(["scan", "source", "--output", "run"]) == 1
    assert list(read_valid(tmp_path / "run", 5)["excluded"]) == [
        "data/chunk-000/file-000.parquet:000000000001"
    ]
    capsys.readouterr()
    assert run(["export", "run", "--as", "lerobot", "--to", "out"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("out: 4 of 5 episodes, 22 rows in 5 files, ")
    assert "    left out: 1 not valid" in out.splitlines()
    info = json.loads((tmp_path / "out/meta/info.json").read_text())
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, 22, 2)
    assert run(["scan", "out", "--output", "again"]) == 0
    assert read_result(tmp_path / "again")["findings"] == []
    # The commands of the page: from the data, which are scanned first, and from that scan.
    page = (repository / "docs/export-lerobot.md").read_text(encoding="utf-8")
    commands = [
        line.split()[1:] for line in page.splitlines() if line.startswith("    datacheck export")
    ]
    assert len(commands) == 2
    for number, words in enumerate(commands):
        names = {"DATA": "source", "DIR": f"page{number}"}
        assert run([names.get(word, word) for word in words]) == 0
        assert digests(tmp_path / f"page{number}") == digests(tmp_path / "out")


def test_wrong_requests_end_with_exit_code_2(source, tmp_path, capsys):
    assert run(["scan", "source", "--output", "run"]) == 1
    (tmp_path / "there").mkdir()
    (tmp_path / "there/mine").write_text("mine")
    for words, said in (
        (["run", "--to", "there"], "is there already"),
        (["source", "--to", "source/inside"], "lies in the data"),
        (["run", "--to", "out", "--schema", "lerobot"], "has its schema already"),
        (["none", "--to", "out"], "none"),
    ):
        capsys.readouterr()
        assert run(["export", *words, "--as", "lerobot"]) == 2
        assert said in capsys.readouterr().err
    assert digests(tmp_path / "there").keys() == {"mine"}
    assert not (tmp_path / "out").exists()
    assert source.exists()
