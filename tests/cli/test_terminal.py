"""Names of folders, files, fields and samples reach a terminal spelled out, whichever command prints them."""

from __future__ import annotations

import ast
import os
import shutil

import numpy as np
import pytest

from datacheck.cli.main import run
from datacheck.cli.output import say
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache

EVIL = "e\x1b[2J\u202e\x9b\r"
SCHEMA = """
datacheck: 1
name: evil
samples: {files: "*.npy"}
fields:
  x: {role: value, shape: [4], range: -100..100}
"""
DATA, CACHES = f"{EVIL}data", f"{EVIL}caches"
COMMANDS = [
    (["scan", DATA, "--schema", "s.yaml"], 1),
    (["scan", DATA], 1),
    (["scan", f"{EVIL}none"], 2),
    (["scan", DATA, "--schema", f"{EVIL}.yaml"], 2),
    (["report", ".datacheck"], 1),
    (["report", ".datacheck", "--format", "github"], 1),
    (["report", ".datacheck", "--format", "json"], 1),
    (["report", ".datacheck", "--format", "sarif"], 1),
    (["report", ".datacheck", "--format", "junit"], 1),
    (["rescore", ".datacheck", "--output", f"{EVIL}out"], 1),
    (["baseline", ".datacheck", "-o", f"{EVIL}.json"], 0),
    (["card", ".datacheck", "-o", f"{EVIL}card.json"], 0),
    (["card", ".datacheck"], 0),
    (["view", f"{EVIL}3.npy", "--no-open", "--out", f"{EVIL}.html"], 0),
    (["view", f"{EVIL}none", "--no-open"], 2),
    (["init", DATA, "-o", f"{EVIL}.yaml"], 0),
    (["schema", "check", f"{EVIL}own.yaml"], 0),
    (
        [
            "split",
            DATA,
            "--schema",
            "s.yaml",
            "--by",
            "key",
            "--train",
            "1",
            "--to",
            f"{EVIL}lists",
        ],
        2,
    ),
    (["manifest", DATA, "-o", f"{EVIL}m.json"], 0),
    (["manifest", DATA, "-o", f"{EVIL}own.yaml"], 2),
    (["diff", DATA, f"{EVIL}other"], 1),
    (["manifest", DATA, "--format", "json"], 0),
    (["diff", DATA, f"{EVIL}other", "--format", "json"], 1),
    (["cache", "ls", CACHES], 0),
    (["cache", "ls", f"{EVIL}data"], 0),
    (["cache", "info", CACHES, "--split", f"{EVIL}a"], 0),
    (["cache", "info", CACHES], 2),
    (["cache", "verify", CACHES], 7),
    (["cache", "diff", f"{CACHES}/tiny/{EVIL}a", f"{CACHES}/tiny/{EVIL}b"], 1),
    (["cache", "report", CACHES, "--split", f"{EVIL}a", "-o", f"{EVIL}c.html"], 0),
    (["cache", "export", CACHES, "--split", f"{EVIL}a", "--as", "npz", "--to", f"{EVIL}npz"], 2),
    (["cache", "export", CACHES, "--split", f"{EVIL}a", "--as", "webdataset", "--to", EVIL], 0),
    (["cache", "gc", CACHES], 0),
    (["cache", "gc", CACHES, "--keep", "0", "--delete"], 1),
    (["cache", "build", f"{EVIL}p.yaml", "--data", DATA, "--out", f"{EVIL}out2"], 0),
    (["cache", "explain-key", f"{EVIL}p.yaml", "--data", DATA, "--out", f"{EVIL}out2"], 1),
    (["cache", "repair", f"{EVIL}p.yaml", "--data", DATA, "--out", f"{EVIL}out2"], 2),
    (["fix", "DC201", DATA, "--schema", "s.yaml", "--to", f"{EVIL}fixed"], 2),
    (["rules", "--schema", f"{EVIL}own.yaml"], 0),
    (["repro", "diff", f"{EVIL}none", f"{EVIL}none"], 2),
    (["repro", "check", f"--{EVIL}"], 2),
    (["explain", EVIL], 2),
    ([EVIL], 2),
]


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    place = tmp_path_factory.mktemp("terminal")
    for folder in (DATA, f"{EVIL}other"):
        (place / folder).mkdir()
        for i in range(5):
            np.save(
                place / folder / f"{EVIL}{i}.npy", np.full(4, np.nan if i == 3 else i, np.float32)
            )
    np.save(place / f"{EVIL}other/{EVIL}0.npy", np.ones(4, np.float32))
    (place / f"{EVIL}other/{EVIL}9.npy").write_bytes(b"new")
    (place / "s.yaml").write_text(SCHEMA)
    (place / f"{EVIL}own.yaml").write_text(SCHEMA)
    (place / f"{EVIL}p.yaml").write_text("datacheck: 1\nname: p\nschema: s.yaml\n")
    for split, value in ((f"{EVIL}a", 0), (f"{EVIL}b", 1)):
        samples = [{f"{EVIL}x": np.full(2, value)}] * 3
        made = make_cache(
            place / CACHES,
            {f"{EVIL}x": ArraySpec("float32", (2,))},
            samples,
            split=split,
            keys=[f"{EVIL}{i}" for i in range(3)],
        )
    (made / f"{EVIL}notes").write_text("mine")
    build = made.parent / ".building" / f"{'a' * 16}.{'1' * 32}"
    (build / "work").mkdir(parents=True)
    (build / f"work/{EVIL}").touch()
    os.utime(build, (1, 1))
    (made.parent / f".trash/{EVIL}").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(place)
        assert run(["scan", DATA, "--schema", "s.yaml"]) == 1
    return place


@pytest.mark.parametrize(("words", "code"), COMMANDS, ids=lambda given: ascii(given)[:60])
def test_no_name_is_a_command_to_a_terminal(once, tmp_path, monkeypatch, capfd, words, code):
    shutil.copytree(once, tmp_path / "place", symlinks=True)
    monkeypatch.chdir(tmp_path / "place")
    found = run(words)
    out, err = capfd.readouterr()
    assert (found, "Traceback" in err) == (code, False), ascii(out + err)
    assert not {sign for sign in out + err if not sign.isprintable()} - {"\n"}, ascii(out + err)
    assert EVIL[:1] in out + err


def test_a_line_break_in_a_name_begins_no_line(capsys):
    say("a\nb", "::error::c", "d")
    assert capsys.readouterr().out == "a\\nb\n\\x3a:error::c\nd\n"
    say()
    assert capsys.readouterr().out == ""


RAW = {  # what is printed as it is: JSON, styled lines without names, text of our own
    "demo.py": 3,
    "diff.py": 1,
    "main.py": 1,
    "manifest.py": 1,
    "output.py": 3,
    "repro_capture.py": 1,
    "repro_check.py": 1,
    "rules.py": 4,
}


def test_commands_print_through_one_door(repository):
    found = {}
    for path in (repository / "datacheck/cli").glob("*.py"):
        calls = [
            ast.unparse(call.func)
            for call in ast.walk(ast.parse(path.read_text()))
            if isinstance(call, ast.Call)
        ]
        raw = sum(name in {"click.echo", "click.secho", "echo", "print"} for name in calls)
        found |= {path.name: raw} if raw else {}
    assert found == RAW
