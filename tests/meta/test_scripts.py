"""Every script still starts: one that imports what another no longer has is found before somebody needs its figures."""

import subprocess
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"
SCRIPTS = sorted(
    path for path in BENCH.rglob("*.py") if "argparse" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(BENCH).as_posix())
def test_a_script_starts(script, forked_python):
    run = subprocess.run(
        [forked_python, script, "--help"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("usage: ")


def test_a_batch_is_never_empty_however_slow_the_machine_is(forked_python):
    line = "import recorder; print([recorder.resized(8, 50, took) for took in (25, 50, 5000)])"
    run = subprocess.run(
        [forked_python, "-c", line], cwd=BENCH, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[16, 8, 8]\n"
