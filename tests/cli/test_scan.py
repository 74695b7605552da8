import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from datacheck.errors import OutOfSpaceError
from datacheck.runtime import fsops
from tests.cli.conftest import COMMAND, SLOWLY


def plant_nan(place):
    np.save(place / "data/3.npy", np.array([1, np.nan, 2, 3], np.float32))


def test_a_clean_folder_is_exit_0_and_says_so_on_one_screen(here, place):
    code, out, err = here("scan", "data", "--schema", "plain.yaml")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 60
    assert (
        lines[3]
        == "OK  all 10 samples are fit for training: nothing found; 100 % of the bytes read"
    )
    assert lines[-1] == "OK  nothing found · exit 0"
    assert "\x1b" not in out


def test_a_folder_of_which_most_was_not_read_is_no_green_one(here, place):
    (place / "data/run.rrd").write_bytes(b"RRF2\0\0\0\0" + bytes(100_000))
    code, out, _ = here("scan", "data", "--schema", "plain.yaml")
    assert code == 1
    assert (
        out.splitlines()[3]
        == "FAIL  most of the data was not read: 1 error, 0 warnings; 1 % of the bytes read"
    )
    assert "error DC113 unread-data" in out
    assert here("rescore", ".datacheck/latest")[0] == 1
    code, out, _ = here("scan", "data", "--schema", "plain.yaml", "--allow-unread")
    assert code == 0
    assert (
        out.splitlines()[3]
        == "OK  all 10 samples are fit for training: nothing found; 1 % of the bytes read"
    )
    assert here("rescore", ".datacheck/latest")[0] == 0
    assert here("report", ".datacheck/latest")[0] == 0


def test_a_broken_sample_is_exit_1_and_named(here, place):
    plant_nan(place)
    code, out, _ = here("scan", "data", "--schema", "plain.yaml")
    assert code == 1
    assert "FAIL  1 of 10 samples is not fit for training" in out
    assert "error DC221 non-finite · x" in out
    assert "    3.npy" in out.splitlines()
    assert out.splitlines()[-1] == "FAIL  1 error, 0 warnings · exit 1"


def test_the_page_of_the_run_is_beside_its_result_and_named_on_the_screen(here, place):
    plant_nan(place)
    _, out, _ = here("scan", "data", "--schema", "plain.yaml")
    (line,) = (line for line in out.splitlines() if line.startswith("page "))
    page = place / line.split()[1]
    assert page == page.parent / "report.html"
    assert b'"message":"1 sample holds NaN or infinity' in page.read_bytes()
    assert (place / ".datacheck/latest/report.html").samefile(page)


def test_what_was_found_is_printed_where_the_page_cannot_be_written(here, place, monkeypatch):
    def full(run, **_):
        raise OutOfSpaceError(f"{run.report.folder}/report.html: no space left")

    plant_nan(place)
    monkeypatch.setattr("datacheck.report.html.write_page", full)
    code, out, err = here("scan", "data", "--schema", "plain.yaml")
    assert code == 5
    assert "error DC221 non-finite · x" in out
    assert "no space left" in err
    assert "report.html" not in out


def test_json_prints_exactly_result_json(here, place):
    plant_nan(place)
    code, out, err = here("scan", "data", "--schema", "plain.yaml", "--format", "json")
    assert (code, err) == (1, "")
    assert out == (place / ".datacheck/latest/result.json").read_text()
    assert (
        json.loads(out)["run"]["command"] == "datacheck scan data --schema plain.yaml --format json"
    )


@pytest.mark.parametrize(
    ("fail_on", "severity", "code"),
    [
        ("error", "error", 1),
        ("error", "warning", 0),
        ("warning", "warning", 1),
        ("never", "error", 0),
    ],
)
def test_the_threshold_of_the_exit_code_can_be_chosen(here, place, fail_on, severity, code):
    plant_nan(place)
    with (place / "plain.yaml").open("a") as file:
        file.write(f"rules: {{DC221: {severity}}}\n")
    assert here("scan", "data", "--schema", "plain.yaml", "--fail-on", fail_on)[0] == code


def test_the_schema_that_was_chosen_is_said(here, place):
    lines = [
        {"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    ] * 3
    (place / "text").mkdir()
    (place / "text/sft_t2t_mini.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    code, out, err = here("scan", "text")
    assert code in {0, 1}
    assert err.startswith("schema minimind_sft (its file patterns fit")
    assert "schema minimind_sft" in out.splitlines()[0]
    for i in range(10):
        (place / f"text/notes_{i}.txt").write_text("a")
    assert (
        "(its file patterns fit 1 of 11 files; choose another with --schema)\n"
        in here("scan", "text")[2]
    )


def test_a_working_folder_that_takes_nothing_names_the_option_for_another(here, monkeypatch):
    monkeypatch.setattr(fsops.os, "access", lambda path, mode: not mode & os.W_OK)  # as read-only
    code, out, err = here("scan", "data", "--schema", "plain.yaml")
    assert (code, out) == (3, "")
    assert (
        "nothing can be written there. Choose another folder to work in (a scan also takes "
        "--output DIR)" in err
    )


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["n" * 300], "nnn: file name too long"),
        (["empty", "--schema", "files"], "empty: holds no files"),
        (["empty"], "empty: holds no files. Check the path."),
        (["hidden"], "holds no files that can be scanned (1 left out; .x: hidden"),
        (["data", "--schema", "hod3"], "'hod3'"),
        (["data", "--schema", "broken.yaml"], "broken.yaml:4: not valid YAML"),
        (["data", "--schema", "typo.yaml"], "typo.yaml:5"),
        (["data", "--schema", "ho3d"], "none of its 10 files fits schema ho3d"),
        (["data", "--schema", "plain.yaml", "--root", "objects"], "write NAME=DIR"),
        (
            ["data", "--schema", "plain.yaml", "--root", "meshes=data"],
            "no extra folder called 'meshes'",
        ),
        (["data", "--schema", "plain.yaml", "--output", "."], "holds the data"),
        (["data", "--schema", "rule.yaml"], "rule.yaml:7, rules.DC2211"),
    ],
)
def test_a_wrong_request_is_one_message_and_exit_2(here, place, args, said):
    (place / "empty").mkdir()
    (place / "hidden").mkdir()
    (place / "hidden/.x").touch()
    plain = (place / "plain.yaml").read_text()
    (place / "broken.yaml").write_text("datacheck: 1\nname: x\nfields: [1,\n")
    (place / "typo.yaml").write_text(plain.replace("role:", "roel:").lstrip("\n"))
    (place / "rule.yaml").write_text(plain + "rules: {DC2211: off}\n")
    code, out, err = here("scan", *args)
    assert (code, out) == (2, ""), err
    assert said in err
    assert "Traceback" not in err


def test_a_full_disk_is_exit_5_and_nothing_is_half_written(command, place, monkeypatch):
    # Cut off in a fresh clone, it fails all later starts
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    code, out, err = command("scan", "data", "--schema", "plain.yaml", preexec_fn=limit)
    assert (code, out) == (5, "")
    assert "cannot write" in err
    assert "Traceback" not in err
    assert not (place / ".datacheck/latest").exists()
    assert command("scan", "data", "--schema", "plain.yaml")[0] == 0


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 1), (signal.SIGINT, 130, 2)],
)
def test_an_interrupted_scan_says_so_and_goes_on_later(
    start, command, place, number, code, workers
):
    many = place / "many"
    many.mkdir()
    for i in range(400):
        shutil.copy(place / "data/0.npy", many / f"{i:05d}.npy")
        # Else it would count as just written
        os.utime(many / f"{i:05d}.npy", (1_000_000_000, 1_000_000_000))
    slow = [sys.executable, "-c", SLOWLY]
    options = {"start_new_session": True, "program": slow}
    process = start("scan", "many", "--schema", "plain.yaml", "--workers", workers, **options)
    parts = place / ".datacheck"
    while len(list(parts.glob(".work-*/part-*"))) < 2 and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    out, err = process.communicate(timeout=800)
    assert (process.returncode, out) == (code, ""), err
    assert err.splitlines()[-1].startswith("datacheck: interrupted. ")
    assert "of 400 files are done and kept: the same command goes on." in err
    assert "Traceback" not in err
    assert not (parts / "latest").exists()
    code, out, _ = command("scan", "many", "--schema", "plain.yaml")
    assert code == 0
    assert "files unchanged, not opened" in out


def test_a_reader_that_has_seen_enough_is_no_error(start, place):
    process = start("scan", "data", "--schema", "plain.yaml")
    process.stdout.close()
    process.wait(800)
    err = process.stderr.read()
    process.stderr.close()
    assert err == ""


# ----------------------------------------------------------------------------------------- terminal


def on_a_terminal(place, repository, *args, **env):
    """Run with standard output and error on a pseudo-terminal; return the exit code and what was drawn."""
    env = (
        os.environ
        | {"TERM": "xterm-256color", "COLUMNS": "100", "PYTHONPATH": str(repository)}
        | env
    )
    env = {k: v for k, v in env.items() if v}
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args], cwd=place, stdout=terminal, stderr=terminal, env=env
    )
    os.close(terminal)
    drawn = b""
    while True:
        try:
            piece = os.read(controller, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        drawn += piece
    os.close(controller)
    return process.wait(800), drawn.decode()


def test_on_a_terminal_there_are_colours_and_a_bar(place, repository):
    plant_nan(place)
    code, drawn = on_a_terminal(
        place, repository, "scan", "data", "--schema", "plain.yaml", CI="", NO_COLOR=""
    )
    assert code == 1
    assert "\x1b[1;31m" in drawn
    assert "scanning" in drawn
    assert "error" in drawn


@pytest.mark.parametrize("quiet", ["CI", "NO_COLOR"])
def test_neither_colour_nor_bar_where_they_are_not_wanted(place, repository, quiet):
    plant_nan(place)
    env = {"CI": "", "NO_COLOR": "", quiet: "1"}
    _, drawn = on_a_terminal(place, repository, "scan", "data", "--schema", "plain.yaml", **env)
    assert "\x1b[1;31m" not in drawn
    assert ("scanning" in drawn) == (quiet == "NO_COLOR")


def test_names_that_would_act_on_a_terminal_are_spelled_out(here, place):
    (place / "data/evil\x1b]0;owned\x07.npy").write_bytes(b"no array")
    code, out, _ = here("scan", "data", "--schema", "plain.yaml")
    assert code == 1
    assert "\x1b" not in out
    assert "\x07" not in out
    assert r"evil\x1b]0;owned\x07.npy" in out


def test_an_output_that_is_not_utf8_gets_what_it_can_show(command, place):
    (place / "data/数.npy").write_bytes(b"no array")
    code, out, err = command(
        "scan", "data", "--schema", "plain.yaml", env={"PYTHONIOENCODING": "ascii"}
    )
    assert (code, err) == (1, "")
    assert out.isascii()
    assert r"\u6570.npy" in out


PATIENT = (
    "from datacheck.preview import run_previews; run_previews._SECONDS = 300.0; "
    "from datacheck.cli.main import main; main()"
)


def test_pictures_of_the_worst_samples_are_kept_unless_they_are_not_wanted(place, command):
    np.save(place / "data/3.npy", np.full(4, 1e6, np.float32))
    patient = [sys.executable, "-c", PATIENT]
    assert (
        command("scan", "data", "--schema", "plain.yaml", "--output", "with", program=patient)[0]
        == 1
    )
    said = json.loads((place / "with/previews.json").read_text())
    assert [sample["key"] for sample in said["samples"]] == ["3.npy"]
    assert (
        command("scan", "data", "--schema", "plain.yaml", "--output", "without", "--no-previews")[0]
        == 1
    )
    assert not (place / "without/previews.json").exists()
    assert (place / "without/report.html").is_file()


def test_a_limit_of_memory_is_a_fault_of_the_machine_and_of_no_file(place):
    command = 'ulimit -v 450000; exec "$0" -m datacheck scan data --schema plain.yaml'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "460,800,000 bytes of memory (ulimit -v)" in done.stderr
    assert not (place / ".datacheck/latest").exists()
