"""What a training imports and loads after its start belongs to its environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.util import find_spec

import pytest
import xxhash

from datacheck.repro.captures import differences

SCRIPT = """
import ctypes, os, sys, torch
from datacheck.repro import Recorder
with Recorder("runs", name=sys.argv[1]) as recorder:
    import early_planted
    ctypes.CDLL(os.path.abspath("_planted.so"))
    recorder.step(torch.zeros(2), 1.0)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), 9)
    import late_planted
"""


@pytest.fixture
def environment(tmp_path, repository, forked_python):
    """Run the script; return what its run says of its environment."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "early_planted.py").write_text("x = 1\n")
    (tmp_path / "late_planted.py").write_text("x = 2\n")
    shutil.copy(find_spec("_bisect").origin, tmp_path / "_planted.so")

    def environment(name):
        env = os.environ | {"PYTHONPATH": str(repository)}
        subprocess.run(
            [forked_python, "train.py", name],
            cwd=tmp_path,
            env=env,
            check=name != "killed",
            timeout=800,
        )
        return json.loads((tmp_path / "runs" / name / "env.json").read_text())

    return environment


def test_what_is_loaded_later_is_written_and_compared(environment, tmp_path):
    said = environment("a")
    assert said["code"]["early_planted.py"] == xxhash.xxh3_128_hexdigest(b"x = 1\n")
    assert said["code"]["late_planted.py"] == xxhash.xxh3_128_hexdigest(b"x = 2\n")
    assert said["native"]["_planted.so"]["digest"] == xxhash.xxh3_128_hexdigest(
        (tmp_path / "_planted.so").read_bytes()
    )
    killed = environment("killed")
    assert "early_planted.py" in killed["code"]
    assert "late_planted.py" not in killed["code"]
    assert differences(said, killed) == differences(killed, said) == []  # it may have come to it
    (tmp_path / "late_planted.py").write_text("x = 3\n")
    assert [(d.section, d.name) for d in differences(said, environment("b"))] == [
        ("code", "late_planted.py")
    ]
