"""The determinism matrix at a reduced size: one digest in every cell, and a control that differs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_every_cell_has_the_same_digest(repository, tmp_path):
    script = repository / "scripts/bench/faults/matrix.py"
    call = [sys.executable, str(script), "--megabytes", "0.3", "--folder", str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = re.findall(r"^(.*\S) +([0-9a-f]{16}|not here: .*\S) +[0-9.]+ s$", done.stdout, re.M)
    digests = {
        found for name, found in cells if not name.startswith("control") and "not here" not in found
    }
    controls = {found for name, found in cells if name.startswith("control")}
    assert len(digests) == 1
    assert len(controls) == 1
    assert not digests & controls
    assert len(cells) >= 24
    assert sum("not here" in found for _, found in cells) <= 8
