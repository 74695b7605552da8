import os
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from datacheck.cli import main as cli
from datacheck.cli.commands import COMMANDS
from datacheck.errors import (
    CorruptionError,
    DatacheckError,
    FormatError,
    ManyLines,
    MissingDependencyError,
    NondeterministicBuildError,
    OutOfSpaceError,
    SchemaError,
    StorageError,
    UsageError,
)
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache

HEAVY = {
    "dask",
    "distributed",
    "h5py",
    "numpy",
    "orjson",
    "pyarrow",
    "pydantic",
    "rich",
    "torch",
    "yaml",
    "zarr",
}


@pytest.fixture
def failing(monkeypatch):
    """Make ``datacheck scan`` raise what is given."""
    import click

    def failing(error):
        @click.command("scan")
        def scan():
            raise error

        monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: scan)
        return cli.run(["scan"])

    return failing


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FormatError("x"), 1),
        (UsageError("x"), 2),
        (SchemaError("x"), 2),
        (StorageError("x"), 3),
        (MissingDependencyError("x"), 3),
        (DatacheckError("x"), 4),
        (OutOfSpaceError("x"), 5),
        (NondeterministicBuildError("x"), 6),
        (CorruptionError("x"), 7),
        (KeyboardInterrupt(), 130),
        (cli.Terminated(), 143),
        (RuntimeError("x"), 4),
        (MemoryError(), 3),
        (MemoryError("Unable to allocate 3 GiB\nmore"), 3),
        (OSError(36, "File name too long", "n"), 3),
        (OSError(28, "No space left on device"), 5),
    ],
)
def test_every_exception_has_its_exit_code_and_no_traceback_is_shown(failing, capsys, error, code):
    assert failing(error) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("datacheck: ")
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_line_of_an_error_is_no_command_to_github(failing, capsys):
    failing(SchemaError(ManyLines.of(["x", "::error::owned ##[stop-commands]y"])))
    assert capsys.readouterr().err == "datacheck: x\n\\x3a:error::owned \\x23#[stop-commands]y\n"


def test_no_name_in_an_error_is_a_line_of_ours(failing, capsys):
    forged = "a\ndatacheck: OK, nothing found\r\x1b[2K"
    shown = "a\\ndatacheck: OK, nothing found\\r\\x1b[2K"
    failing(FormatError(f"{forged}: damaged"))
    assert capsys.readouterr().err == f"datacheck: {shown}: damaged\n"
    failing(OSError(36, "File name too long", forged))
    assert capsys.readouterr().err.startswith(f"datacheck: {shown}: file name too long.")
    failing(UsageError(ManyLines.of([f"{forged}: 2 caches", f"    {forged}"])))
    assert capsys.readouterr().err == f"datacheck: {shown}: 2 caches\n    {shown}\n"


def test_a_name_that_no_result_can_hold_is_refused(capsys):
    assert cli.run(["scan", "d\udcff"]) == 2
    assert capsys.readouterr().err == (
        "datacheck: b'd\\xff': is not UTF-8. Rename it, or name it through a link.\n"
    )


def test_a_working_folder_that_is_gone_is_said(failing, capsys):
    assert failing(FileNotFoundError(2, "No such file or directory")) == 3
    assert capsys.readouterr().err.startswith(
        "datacheck: the working folder: no such file or directory."
    )


def test_the_traceback_of_a_fault_of_ours_is_in_a_file(failing, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing(ZeroDivisionError("division\nby zero"))
    said = capsys.readouterr().err
    (file,) = tmp_path.iterdir()
    assert str(file) in said
    assert "ZeroDivisionError: division" in said
    assert "Traceback (most recent call last)" in file.read_text()


def test_what_an_interrupted_command_has_done_is_said(failing, capsys):
    stop = KeyboardInterrupt()
    stop.add_note("3 of 9 files are done and kept.")
    failing(stop)
    assert capsys.readouterr().err == "datacheck: interrupted. 3 of 9 files are done and kept.\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["scn"], "Did you mean scan?"),
        (["frobnicate"], "Known are scan, "),
        (["scan", "--shema", "x"], "--schema"),
        (["scan"], "name the data to scan"),
        (["scan", "x", "--workers", "0"], "--workers"),
        (["scan", "x", "--format", "xml"], "--format"),
    ],
)
def test_a_mistyped_command_line_is_exit_2_with_a_suggestion(capsys, args, said):
    assert cli.run(args) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["scan", "--help"]])
def test_help_is_exit_0(capsys, args):
    assert cli.run(args) == 0
    assert "Usage: datacheck" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == "datacheck 0.1.0\n"


def test_every_command_of_the_list_exists(capsys):
    for name in COMMANDS:
        assert cli.run([name, "--help"]) == 0, name
    assert "Commands" in capsys.readouterr().out


def test_help_loads_nothing_but_click_and_a_few_files():
    script = (
        "import sys\nfrom datacheck.cli import main\nmain.run(['--help'])\nprint('loaded', "
        "*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    loaded = run.stdout.rpartition("loaded ")[2].split()
    ours = {name for name in loaded if name.partition(".")[0] == "datacheck"}
    assert ours
    assert all(
        f"datacheck.{heavy}" not in ours for heavy in ("scan", "rules", "schema", "cache", "build")
    )
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


def test_sigterm_ends_as_143():
    script = (
        "import os\nfrom datacheck.cli import main as m\n"
        "m.LazyGroup.get_command = lambda *_: os.kill(os.getpid(), 15)\nm.main(['scan'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (143, "datacheck: interrupted.\n")


def test_python_runs_the_command_line_as_a_module(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "datacheck", "scan", tmp_path / "none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "none: no such file or folder" in run.stderr


SPEAKING = """
import sys, click
from datacheck.cli import main as m

@click.command("scan")
@click.pass_context
def scan(ctx):
    sys.stdout.buffer.write(b"x" * {size})
    ctx.exit(1)

m.LazyGroup.get_command = lambda *_: scan
m.main(["scan"])
"""
# Which would be cut
BUFFERING = [{"PYTHONUNBUFFERED": value, "PYTHONDONTWRITEBYTECODE": "1"} for value in ("", "1")]


@pytest.mark.parametrize("variables", BUFFERING)
# Within the buffer, a little more, much more
@pytest.mark.parametrize("size", [5_000, 12_000, 100_000])
def test_an_output_that_is_cut_short_is_an_error(tmp_path, variables, size):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))

    with (tmp_path / "out").open("wb") as out:
        run = subprocess.run(
            [sys.executable, "-c", SPEAKING.format(size=size)],
            env=os.environ | variables,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=limited,
        )
    assert run.returncode == 5
    assert run.stderr.startswith(
        "datacheck: standard output: cannot write, file too large. Free some space"
    )
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("variables", BUFFERING)
def test_a_reader_that_has_seen_enough_changes_no_exit_code(variables):
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "-c", SPEAKING.format(size=100)],
        env=os.environ | variables,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, "")


def without_reader(place, *words):
    """Return the exit code and the errors of a command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "datacheck", *map(str, words)],
        cwd=place,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    return done.returncode, done.stderr


def test_a_command_without_a_reader_ends_with_its_own_code(place):
    """A damaged cache counted as intact if the output of its check went to `true` or `head`."""
    cache = make_cache(place, {"x": ArraySpec("uint8", (4096,))}, [{"x": np.ones(4096, "u1")}] * 2)
    damaged = next(cache.glob("fields/x/c.*"))
    assert without_reader(place, "cache", "verify", cache) == (0, "")
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert without_reader(place, "cache", "verify", cache)[0] == 7

    assert without_reader(place, "scan", "data", "--schema", "plain.yaml")[0] == 0
    np.save(place / "data/0.npy", np.full(4, 900.0, np.float32))
    for form in ("text", "json"):
        assert (
            without_reader(place, "scan", "data", "--schema", "plain.yaml", "--format", form)[0]
            == 1
        )

    shutil.copytree(place / "data", place / "other")
    for form in ("text", "json"):
        words = ("diff", "data", "other", "--format", form)
        assert without_reader(place, *words)[0] == 0
    np.save(place / "other/1.npy", np.zeros(4, np.float32))
    for form in ("text", "json"):
        assert without_reader(place, "diff", "data", "other", "--format", form)[0] == 1


def test_an_output_that_closes_before_the_result_is_known_is_141(failing):
    assert failing(BrokenPipeError()) == 141


def test_a_closed_output_is_no_fault():
    run = subprocess.run(
        [sys.executable, "-c", SPEAKING.format(size=100)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        preexec_fn=lambda: os.close(1),
    )
    assert (run.returncode, run.stderr) == (1, "")


def test_a_second_sigterm_does_not_interrupt_the_message_of_the_first(monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def ended(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)

    report = cli._report_error

    def interrupted(error):
        os.kill(os.getpid(), signal.SIGTERM)
        return report(error)

    monkeypatch.setattr(cli, "_run_command", ended)
    monkeypatch.setattr(cli, "_report_error", interrupted)
    signal.signal(signal.SIGTERM, cli._terminate)
    try:
        assert cli.run(["scan"]) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == "datacheck: interrupted.\n"
