"""Builds that end too early, reduced: nothing wrong or partial is shown, and the next run completes.

In full: scripts/bench/faults/calls.py, kills.py, power.py and races.py.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def table(repository, script, *options):
    """Run a script; return the numbers of each row of its table."""
    call = [sys.executable, str(repository / f"scripts/bench/faults/{script}.py"), *options]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=880)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(\S.*?)((?: +[\d,]+){6,})$", done.stdout, re.M)
    return {
        name: [int(number.replace(",", "")) for number in numbers.split()] for name, numbers in rows
    }


def test_no_failed_call_leaves_anything_wrong(repository):
    rows = table(repository, "calls", "--stride", "500", "--others", "1", "--real", "1")
    assert len(rows) == 4 * 11 + 4
    assert all(wrong == 0 and trials for trials, *_, wrong in rows.values())
    assert rows["plain: kill"][1] == rows["plain: kill"][0]  # nothing is shown
    trials, *_, right, _ = rows["plain: short write"]
    assert right == trials


def test_no_kill_leaves_anything_wrong(repository, tmp_path):
    rows = table(repository, "kills", "--count", "4", "--folder", str(tmp_path))
    told = [numbers[-1] for name, numbers in rows.items() if name.startswith("control")]
    assert all(told)
    assert len(told) == 2
    assert [rows[name][0] for name in ("1 worker", "2 workers")] == [3, 1]
    assert rows["1 worker"][-1] == rows["2 workers"][-1] == 0


def test_no_power_loss_leaves_anything_wrong(repository):
    rows = table(
        repository, "power", "--random", "1", "--reruns", "80", "--kills", "2", "--stride", "16"
    )
    states, nothing, right, *_, reruns, wrong = rows["all"]
    assert wrong == 0
    assert nothing + right == states > 500
    assert reruns
    assert right > 50
    missed = {
        name.removeprefix("control: without "): row[-1]
        for name, row in rows.items()
        if "control" in name
    }
    assert missed.pop("names where it came from") == 0  # a rename is one step
    assert len(missed) == 8
    assert all(missed.values())


def test_no_race_leaves_anything_wrong(repository):
    rows = table(repository, "races", "--count", "4", "--commands", "1")
    controls = {name: rows.pop(name) for name in list(rows) if name.startswith("control")}
    assert len(controls) == 2
    assert all(wrong for *_, wrong in controls.values())
    assert all(wrong == 0 for *_, wrong in rows.values())
    assert rows["four builders"][:2] == [4, 16]
    assert rows["one of them killed"][3] + rows["one of them killed"][1] == 16
