"""Runs that the user may not read: the machine's refusal, which is one sentence and exit code 3."""

import os
import shutil
import subprocess

import pytest

from tests.cli.conftest import COMMAND

_OF_ROOT = ("dac_override", "dac_read_search")  # with these permissions mean nothing


@pytest.fixture
def ordinary():
    """What a command line begins with so that permissions hold, also where the tests run as root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("run by root, and there is no setpriv")
    without = ",".join(f"-{name}" for name in _OF_ROOT)
    return ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"]


@pytest.fixture
def closed(here, place):
    """Close a part of a finished run; it is open again behind the test, which is to remove it."""
    here("scan", "data", "--schema", "plain.yaml")
    shut = []

    def closed(name):
        path = (place / ".datacheck" / name).resolve()
        shut.append((path, path.stat().st_mode))
        path.chmod(0)

    yield closed
    for path, mode in shut:
        path.chmod(mode)


@pytest.mark.parametrize("part", [".", "latest", "latest/result.json", "latest/listing.npz"])
@pytest.mark.parametrize("run", [".datacheck", ".datacheck/latest"])
def test_a_run_that_may_not_be_read_is_exit_3_and_one_sentence(place, closed, ordinary, part, run):
    closed(part)
    done = subprocess.run(
        [*ordinary, *COMMAND, "report", run],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "permission denied. Check the path and its permissions." in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("rescore", "RUN"),
        ("baseline", "RUN"),
        ("card", "RUN"),
        ("view", "0.npy", "--run", "RUN"),
        ("split", "RUN", "--by", "key", "--train", "1", "--to", "lists"),
        ("scan", "data", "--schema", "plain.yaml", "--reference", "RUN"),
    ],
)
def test_so_says_every_command_that_takes_a_run(place, closed, ordinary, command):
    (place / ".datacheck").rename(place / "other")
    (place / ".datacheck").mkdir()
    run = place / "other/latest"
    mode = run.resolve().stat().st_mode
    run.resolve().chmod(0)
    try:
        done = subprocess.run(
            [*ordinary, *COMMAND, *(str(run) if word == "RUN" else word for word in command)],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    finally:
        run.resolve().chmod(mode)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "other/latest: permission denied." in done.stderr


def test_a_run_that_may_be_read_and_not_written_is_printed(place, closed, ordinary):
    closed("latest/report.html")  # no part of what is printed
    run = (place / ".datacheck/latest").resolve()
    run.chmod(0o555)
    try:
        done = subprocess.run(
            [*ordinary, *COMMAND, "report", ".datacheck"],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    finally:
        run.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")


def test_data_that_are_not_there_are_a_wrong_request_also_without_a_temporary_folder(
    here, monkeypatch
):
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr("tempfile._get_default_tempdir", _nowhere)
    monkeypatch.setattr("tempfile.tempdir", None)
    code, out, err = here("scan", "/nonexistent")
    assert (code, out, err) == (
        2,
        "",
        "datacheck: /nonexistent: no such file or folder. Check the path.\n",
    )


def _nowhere(*dirs):
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_a_manifest_needs_no_working_folder_that_is_its_own(place, ordinary):
    (place / ".datacheck").mkdir(mode=0)
    made = [*ordinary, *COMMAND, "manifest", "data", "-o", "made.json"]
    done = subprocess.run(made, cwd=place, capture_output=True, text=True, timeout=800, check=False)
    (place / ".datacheck").chmod(0o755)
    assert (done.returncode, (place / "made.json").exists()) == (0, True)
    assert (
        "cannot be written, so the next manifest of these data reads all files again."
        in done.stderr + done.stdout
    )


def test_a_scan_where_the_folder_of_runs_is_closed_names_another(place, closed, ordinary):
    closed(".")
    done = subprocess.run(
        [*ordinary, *COMMAND, "scan", "data", "--schema", "plain.yaml"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert ".datacheck: nothing can be written there. Choose another folder" in done.stderr
    assert "--output DIR" in done.stderr
