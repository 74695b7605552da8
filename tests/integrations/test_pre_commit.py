"""The hook of ``.pre-commit-hooks.yaml``, run by pre-commit itself in a user's repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

PRE_COMMIT = [sys.executable, "-m", "pre_commit"]
GIT = ["git", "-c", "user.name=u", "-c", "user.email=u@example.org"]
CONFIG = """
repos:
- repo: {repo}
  rev: {rev}
  hooks:
  - id: datacheck-scan
    language: system  # as it is installed here: the tests need no network
    args: {args}
"""


@pytest.fixture
def user(place, repository, monkeypatch):
    """A user's repository with data; what writes its configuration and runs commands there."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "PRE_COMMIT"))]:
        monkeypatch.delenv(name)
    home = place.parent / f"{place.name}-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(home / "pre-commit"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("PYTHONPATH", str(repository))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    hooks = home / "datacheck"
    hooks.mkdir()
    shutil.copy(repository / ".pre-commit-hooks.yaml", hooks)
    for folder in (hooks, place):
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "first")
    rev = git(hooks, "rev-parse", "HEAD").strip()

    def run(*args, command=(*PRE_COMMIT, "run", "--all-files", "--color=never")):
        text = CONFIG.format(repo=hooks, rev=rev, args=list(args))
        (place / ".pre-commit-config.yaml").write_text(text)
        git(place, "add", ".pre-commit-config.yaml")
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        told = [
            line
            for line in (done.stdout + done.stderr).splitlines()
            if not line.startswith("[INFO]")
        ]
        return done.returncode, "\n".join(told)

    return run


def git(folder, *args):
    return subprocess.run(
        [*GIT, *args], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_the_file_is_a_manifest_of_hooks(repository):
    file = repository / ".pre-commit-hooks.yaml"
    run = subprocess.run(
        [*PRE_COMMIT, "validate-manifest", str(file)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout + run.stderr) == (0, "")
    (hook,) = yaml.safe_load(file.read_text())
    assert (hook["language"], hook["entry"].split()[0]) == ("python", "datacheck")


def test_a_broken_sample_stops_it_with_the_report(user):
    code, said = user("data", "--schema", "plain.yaml")
    assert code == 1
    assert "datacheck scan" in said.splitlines()[0]
    assert said.splitlines()[0].endswith("Failed")
    assert "error DC221 non-finite · x" in said
    assert "    3.npy" in said.splitlines()


def test_sound_data_pass_and_nothing_is_printed(user, place):
    np.save(place / "data/3.npy", np.zeros(4, np.float32) + 5)
    git(place, "commit", "-qam", "sound")
    code, said = user("data", "--schema", "plain.yaml")
    assert (code, len(said.splitlines())) == (0, 1)
    assert said.rstrip().endswith("Passed")


def test_a_commit_of_broken_data_is_held_up(user, place):
    user("data", "--schema", "plain.yaml", command=(*PRE_COMMIT, "install"))
    commit = (*GIT, "commit", "-m", "second")
    code, said = user("data", "--schema", "plain.yaml", command=commit)
    assert (code, "error DC221 non-finite" in said) == (1, True)
    np.save(place / "data/3.npy", np.zeros(4, np.float32) + 5)
    git(place, "add", "data")
    assert user("data", "--schema", "plain.yaml", command=commit)[0] == 0
    assert git(place, "log", "--format=%s").split() == ["second", "first"]


def test_what_is_wrong_with_its_arguments_is_one_message(user):
    for args, told in (
        ((), "name the data to scan"),
        (("nowhere",), "nowhere: no such file or folder"),
    ):
        code, said = user(*args)
        assert (code, told in said, "Traceback" in said) == (1, True, False)


def test_arguments_are_no_commands(user, place):
    code, said = user("$(touch owned)`touch owned`; touch owned")
    assert (code, "$(touch owned)`touch owned`; touch owned: no such file or folder" in said) == (
        1,
        True,
    )
    assert not (place / "owned").exists()
