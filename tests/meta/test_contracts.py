"""The architecture is a test: import contracts hold, and a planted breach is caught."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


@pytest.fixture
def copy(tmp_path, repository):
    shutil.copytree(
        repository / "datacheck",
        tmp_path / "datacheck",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(repository / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder):
    return subprocess.run(LINT, cwd=folder, capture_output=True, text=True, check=False)


def test_every_contract_is_kept(copy):
    run = lint(copy)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("cache/reader.py", "import datacheck.scan"),
        ("rules/numbers.py", "from datacheck.formats import base"),
        ("torch/dataset.py", "import datacheck.transforms"),
        ("torch/dataset.py", "import datacheck.rules.engine"),
        ("rules/measurement.py", "import datacheck.scan"),
        ("scan/run.py", "import dask"),
        ("report/exports/junit.py", "import pytest"),
        ("cli/scan.py", "import datacheck.pytest_plugin"),
        ("cache/reader.py", "import obstore"),
        ("build/shard_worker.py", "import numcodecs"),
        ("runtime/hashing.py", "import datacheck.model.sample"),
        ("core.py", "import datacheck.errors"),
        ("scan/run_documents.py", "import datacheck.cache.layout"),
        ("repro/compare.py", "import datacheck.repro.run_diff"),
        ("rules/families/units.py", "import datacheck.rules.engine"),
        ("rules/families/units.py", "import datacheck.rules.families.frames"),
        ("model/sample.py", "import datacheck.model.table"),
        ("workers/wire.py", "import datacheck.workers.child"),
        ("build/shard_worker.py", "import datacheck.build.prepare"),
        ("runtime/hashing.py", "import datacheck.runtime.numerics"),
    ],
)
def test_a_planted_breach_is_caught(copy, module, line):
    path = copy / "datacheck" / module
    text = path.read_text() if path.exists() else '"""New."""\n'
    path.write_text(f"{text}\n\ndef planted() -> None:\n    {line}\n")
    assert lint(copy).returncode != 0
