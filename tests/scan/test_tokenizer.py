"""--tokenizer and --trainer: chats are judged by tokens, with a schema, a draft or a loader."""

import json

import pytest

from datacheck.cli.main import run
from datacheck.errors import UsageError
from datacheck.scan.start import scan
from datacheck.testing.minimind import write_tokenizer

ANSWERS = ("A cube with six equal sides.", "The smallest part of a picture, and of no size.")


@pytest.fixture
def chats(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tokenizer(tmp_path / "model")
    (tmp_path / "chats").mkdir()
    rows = [
        [{"role": "user", "content": f"What is a voxel, in {n} words?"},
         {"role": "assistant", "content": f"{n} words: {ANSWERS[n % 2]}"}]
        for n in range(40)
    ]  # fmt: skip
    lines = "".join(json.dumps({"messages": row}) + "\n" for row in rows)
    (tmp_path / "chats" / "train.jsonl").write_text(lines)
    return tmp_path


def failed(found):
    return {(finding.code, finding.kind): len(finding.rows) for finding in found.report.findings}


def test_a_draft_takes_the_tokenizer_and_the_trainer(chats):
    assert failed(scan("chats")) == {}
    assert failed(scan("chats", tokenizer="model", trainer="trl")) == {("DC714", "all"): 40}
    assert failed(scan("chats", tokenizer="model", trainer="axolotl")) == {}


def test_they_replace_those_of_the_schema(chats):
    (chats / "s.yaml").write_text(
        "datacheck: 1\nname: chats\nsamples: {files: '{id}.jsonl', each: line}\n"
        "tokenizer: {path: nowhere, trainer: trl, max_length: 200}\nfields: {messages: {role: chat}}\n"
    )
    assert failed(scan("chats", "s.yaml")) == {}  # nothing can be counted
    assert failed(scan("chats", "s.yaml", tokenizer="model")) == {("DC714", "all"): 40}
    assert failed(scan("chats", "s.yaml", tokenizer="model", trainer="llamafactory")) == {}


def test_a_folder_without_a_tokenizer_is_a_wrong_request(chats, capfd):
    with pytest.raises(UsageError, match="no tokenizer there"):
        scan("chats", tokenizer="chats")
    assert run(["scan", "chats", "--tokenizer", "chats"]) == 2
    assert "tokenizer.json" in capfd.readouterr().err


def test_the_command_line_takes_both(chats, capfd):
    arguments = ["scan", "chats", "--tokenizer", "model", "--trainer", "trl", "--no-previews"]
    assert run(arguments) == 0
    # lines are as wide as the terminal
    assert "the trainer trains on all tokens" in " ".join(capfd.readouterr().out.split())
    assert run(["scan", "chats", "--trainer", "tlr"]) == 2
    assert "llamafactory" in capfd.readouterr().err
