"""``datacheck repro diff`` as it is called."""

from __future__ import annotations

import json
import re

from datacheck.cli.main import run
from tests.repro.traces import evaluation, make_run

LOSSES = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 9.5}


def test_the_command_line_takes_two_runs_and_repeats_before_the_dashes(tmp_path, capsys):
    runs = [
        make_run(tmp_path / name, lines=[evaluation(9, loss=loss)]) for name, loss in LOSSES.items()
    ]
    a, b, c, d = map(str, runs)
    assert run(["repro", "diff", a, a]) == 0
    assert capsys.readouterr().out.startswith("no difference")
    assert run(["repro", "diff", a, b]) == 1
    assert capsys.readouterr().out.startswith("evaluations differs first: val loss")
    assert run(["repro", "diff", a, b, d, "--", c]) == 0
    assert run(["repro", "diff", a, b, c, "--", d]) == 1
    assert run(["repro", "diff", a, b, "--", d]) == 2


def test_what_is_no_run_ends_with_2_and_one_line(tmp_path, capsys):
    a = make_run(tmp_path / "a")
    assert run(["repro", "diff", str(a), str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert "no recorded run" in said.err


def test_json_holds_nothing_that_a_runner_acts_on(tmp_path, capsys):
    runs = [make_run(tmp_path / name) for name in "ab"]
    config = runs[0] / "config.json"
    document = json.loads(config.read_bytes()) if config.exists() else {}
    config.write_text(
        json.dumps({**document, "config": {"##vso[task.complete]": 1, "x": "##[error]"}})
    )
    assert run(["repro", "diff", *map(str, runs), "--format", "json"]) in {0, 1}
    out = capsys.readouterr().out
    assert "task.complete" in out
    assert not re.search(r"##\w*\[", out)
    assert "##vso[task.complete]" in str(json.loads(out))
