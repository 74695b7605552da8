"""Nothing in a hostile folder runs, whichever command is called in it, as `datacheck` or as `python -m datacheck`."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.hostile import executed
from tests.hostile.commands import (
    DATA,
    OF_CACHE,
    OF_DOCUMENT,
    OF_RUN,
    OF_TRAINING,
    RUN,
    TABLES,
    TRAIN,
    filled,
    without_sandbox,
)
from tests.hostile.ground import MODULE, SCRIPT, plain_samples

COMMANDS = sorted({command for table in TABLES for command in table})


def hostile(ground):
    """Write every canary of code into the place."""
    plain_samples(ground.place)
    for make in executed.CANARIES.values():
        make(ground)
    executed.hostile_run(ground, (ground.place / RUN).resolve())
    (cache,) = (path.parent for path in (ground.place / "caches").rglob("manifest.json"))
    executed.hostile_cache(ground, cache)
    executed.hostile_journal(ground, ground.place / ".datacheck" / ".work-plain-00000000")
    (ground.place / "tagged.yaml").write_text(executed.yaml_with_tags(ground, "tagged.yaml"))


def asked(command):
    """Yield all that is asked of one command."""
    places = {
        "DATA": ".",
        "SCHEMA": "all.yaml",
        "KEY": "s0.npy",
        "RUN": RUN,
        "CACHE": "caches",
        "TRAINED": "runs/a",
    }
    for table in (DATA, OF_RUN, OF_CACHE, OF_TRAINING, OF_DOCUMENT):
        yield from (
            filled(words, **places, DOCUMENT="tagged.yaml") for words in table.get(command, ())[:1]
        )


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_what_lies_in_the_folder_it_is_called_in(command, ground):
    hostile(ground)
    wrong = {}
    for words in asked(command):
        ended = ground.run(SCRIPT, *words)
        if ground.ran(ended) or not ended.sound:
            wrong[" ".join(words)] = (ground.ran(ended), ended.code, ended.text[-600:])
    assert wrong == {}


def of_python_itself():
    """Return the modules that `python -m` imports, of a working folder too, before a line of ours is read."""
    line = "import runpy, sys; print(*sys.modules)"
    names = subprocess.run(
        [sys.executable, "-P", "-c", line], capture_output=True, text=True, check=True
    ).stdout.split()
    return {"datacheck", *names}


@pytest.mark.parametrize("command", COMMANDS)
def test_nor_does_it_as_a_module_of_python(command, ground):
    hostile(ground)
    for name in of_python_itself():
        (ground.place / f"{name}.py").unlink(missing_ok=True)
        shutil.rmtree(ground.place / name, ignore_errors=True)
    words = next(iter(asked(command)))
    ended = ground.run(*MODULE, *words)
    assert (ground.ran(ended), ended.sound) == ([], True), ended.text[-600:]


def test_as_a_module_that_python_looks_for_elsewhere_it_needs_no_exception(ground):
    hostile(ground)
    ended = ground.run(sys.executable, "-P", "-m", "datacheck", "scan", ".", "--schema", "all.yaml")
    assert (ground.ran(ended), ended.sound) == ([], True), ended.text[-600:]


def test_nothing_runs_without_the_sandbox_either(ground):
    hostile(ground)
    ended = ground.run(SCRIPT, *without_sandbox(), "scan", ".", "--schema", "all.yaml")
    assert (ground.ran(ended), ended.sound) == ([], True), ended.text[-600:]


def test_a_training_process_runs_nothing_of_a_cache(ground):
    hostile(ground)
    train = ground.base / "bin" / "train.py"
    train.write_text(TRAIN)
    ended = ground.run(sys.executable, train, "caches")
    assert (ground.ran(ended), ended.sound) == ([], True), ended.text[-600:]
