"""Loading, reduced: one digest in every cell, no process that hangs, and controls that are told."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow]


def run(repository, script, *options):
    call = [sys.executable, str(repository / f"scripts/bench/faults/{script}.py"), *options]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_way_of_loading_serves_the_same(repository, tmp_path):
    asked = [
        "--workers",
        "0",
        "2",
        "--starts",
        "fork",
        "--worlds",
        "1",
        "2",
        "--folder",
        str(tmp_path),
    ]
    kinds = ["shuffled, random crops", "windows", "two caches mixed"]
    said = run(repository, "loading", *asked, "--kinds", *kinds)
    # In process, threads 4 times, 2 workers twice; 2 worlds
    assert len(re.findall(r"\b[0-9a-f]{16}\b", said)) == 14
    assert len(set(re.findall(r"\b[0-9a-f]{16}\b", said))) == 1
    told = dict(re.findall(r"^control: (.*): differs in (\d of \d)", said, re.M))
    assert told == {
        "global random numbers": "7 of 7",
        "an epoch of its own": "1 of 7",
        "bad samples left out": "7 of 7",
    }
    assert "42 cells: of each kind one digest, the expected one" in said


def test_loading_that_ends_in_any_way_ends(repository, tmp_path):
    said = run(repository, "hangs", "--count", "12", "--starts", "fork", "--folder", str(tmp_path))
    rows = re.findall(r"^(\w[\w ]*?) +(\d+) +(\d+) +(\d+) +(\d+) +[\d.]+$", said, re.M)
    assert len(rows) == 12  # ways to end
    assert all(numbers == ["1", "0", "0", "0"] for _, *numbers in rows)  # runs; hung, left, wrong
    assert "a run that hangs and a process that is left were told" in said
