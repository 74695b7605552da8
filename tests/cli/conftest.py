import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from datacheck.cli import main as cli

COMMAND = [sys.executable, "-c", "from datacheck.cli.main import main; main()"]

# The same, but slowly: tasks of 20 files, and a tenth of a second after each.
SLOWLY = """
import time
from datacheck.scan import measuring, run_dir
measuring.TASK_ITEMS = 20
add = run_dir.Journal.add
run_dir.Journal.add = lambda self, *parts: (add(self, *parts), time.sleep(0.1))
from datacheck.cli.main import main
main()
"""

PLAIN = """
datacheck: 1
name: plain
samples: {files: "*.npy"}
fields:
  x: {role: value, shape: [4], range: -100..100}
"""


@pytest.fixture
def place(tmp_path):
    """A folder with ten good files, a schema, and a way to run the command line there as a process of its own."""
    (tmp_path / "data").mkdir()
    for i in range(10):
        np.save(
            tmp_path / f"data/{i}.npy", np.random.default_rng(i).normal(size=4).astype(np.float32)
        )
    (tmp_path / "plain.yaml").write_text(PLAIN)
    return tmp_path


@pytest.fixture
def start(place, repository):
    """Start the command line; returns the process."""

    def start(*args, **options):
        env = {k: v for k, v in os.environ.items() if k not in {"CI", "NO_COLOR", "COLUMNS"}}
        env = (
            env
            | {"PYTHONPATH": str(repository), "PYTHONWARNINGS": "default"}
            | options.pop("env", {})
        )
        program = options.pop("program", COMMAND)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*program, *map(str, args)], cwd=place, env=env, **pipes, **options)

    return start


@pytest.fixture
def command(start):
    """Run the command line to its end; returns (exit code, standard output, standard error)."""

    def command(*args, **options):
        process = start(*args, **options)
        out, err = process.communicate(timeout=800)
        assert process.returncode >= 0, signal.Signals(-process.returncode)
        return process.returncode, out, err

    return command


@pytest.fixture
def here(place, capsys, monkeypatch):
    """Run the command line in this process; returns (exit code, standard output, standard error)."""
    monkeypatch.chdir(place)
    for name in ("CI", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def here(*args):
        monkeypatch.setattr(sys, "argv", ["datacheck", *map(str, args)])
        code = cli.run()
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return here
