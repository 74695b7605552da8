"""Processors of this process, not of the machine."""

import os
import subprocess
import sys

from datacheck.runtime.machine import usable_cpus


def test_only_processors_that_this_process_may_use_are_counted():
    script = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    script += "from datacheck.runtime.machine import usable_cpus; print(usable_cpus())"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
        == b"1\n"
    )
    assert usable_cpus() == len(os.sched_getaffinity(0))


def test_a_system_that_knows_no_affinity_has_all(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert usable_cpus() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus() == 1


def test_nobody_else_counts_processors(repository):
    counting = [
        p.name for p in (repository / "datacheck").rglob("*.py") if "cpu_count" in p.read_text()
    ]
    # That of the machine is said beside it
    assert sorted(counting) == ["hardware.py", "machine.py"]
