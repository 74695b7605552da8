"""The demo must hold on every system, and must say so when it does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from datacheck.cli.demo import course_lines
from datacheck.cli.main import run as command
from datacheck.demo import course
from datacheck.demo.course import DemoResult, FaultAnswer
from datacheck.errors import MissingDependencyError
from datacheck.scan import scan
from datacheck.testing import faults, synth
from datacheck.testing.faults import Planted
from tests.pins.pins import DEMOS, SEED, results

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

COLOR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def quick(monkeypatch):
    """Thirty steps instead of three hundred."""
    monkeypatch.setattr(course, "STEPS", 30)


@pytest.mark.parametrize("system", synth.SYSTEMS)
def test_the_whole_way_holds(system, tmp_path, quick):
    done = course.run(system, tmp_path / system, seed=SEED)
    assert results(tmp_path / system / "scan") == json.loads(DEMOS.read_text())[system]
    assert done.differs == []
    assert len(done.answers) == sum(f.system == system for f in faults.FAULTS)
    assert all(answer.found for answer in done.answers)
    assert {severity for severity, _, _ in done.others} <= {"warning", "info"}
    assert done.cache.problems == ()
    assert 0 < done.cache.usable < done.cache.samples
    assert done.training.broken == ()
    assert done.training.substituted > 0
    assert done.samples["listed"] == sum(
        done.samples[k] for k in ("checked", "unreadable", "skipped")
    )
    lines = list(course_lines(done))
    assert len(lines) <= 13 + len(done.answers)
    assert max(len(COLOR.sub("", line)) for line in lines) <= 125


def test_the_command_prints_a_screen_and_leaves_what_it_made(tmp_path, capsys, quick):
    assert command(["demo", "sceneleap", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    count = sum(fault.system == "sceneleap" for fault in faults.FAULTS)
    assert f"PASS  {count} of {count} planted faults found in 1 system" in said
    assert "\x1b" not in said
    assert {p.name for p in (tmp_path / "out" / "sceneleap").iterdir()} == {"data", "scan", "cache"}
    assert command(["demo", "sceneleap", "--out", str(tmp_path / "out")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_temporary_folder_goes_away_unless_it_is_kept(tmp_path, capsys, quick, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert command(["demo", "sceneleap"]) == 0
    assert [p for p in tmp_path.iterdir() if p.name.startswith("datacheck-demo")] == []
    assert command(["demo", "sceneleap", "--keep"]) == 0
    (kept,) = [p for p in tmp_path.iterdir() if p.name.startswith("datacheck-demo")]
    assert f"Kept in {kept}" in capsys.readouterr().out
    assert (kept / "sceneleap" / "data" / "train").is_dir()


def test_a_fault_that_is_not_found_fails_the_demo(tmp_path, capsys, quick, monkeypatch):
    honest = faults.plant

    def one_more(system, folder, *args, **options):
        planted = honest(system, folder, *args, **options)
        untouched = synth.minimind.SFT + ":000000000000"
        assert untouched not in {k for p in planted for k in p.keys}
        return [*planted, Planted((untouched,), "DC701", "a fault that nobody planted")]

    monkeypatch.setattr(faults, "plant", one_more)
    assert command(["demo", "minimind", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert f"1 of {sum(f.system == 'minimind' for f in faults.FAULTS) + 1} faults not found" in said
    assert (
        "DC701 does not name sft_t2t_mini.jsonl:000000000000: a fault that nobody planted" in said
    )
    assert "FAIL (minimind)" in said


def test_an_error_that_nobody_planted_fails_the_demo(tmp_path, quick, monkeypatch):
    honest = faults.plant

    def one_secret(system, folder, *args, **options):
        planted = honest(system, folder, *args, **options)
        return [p for p in planted if p.code != "DC109"]

    monkeypatch.setattr(faults, "plant", one_secret)
    done = course.run("sceneleap", tmp_path / "s", 0)
    assert len(done.differs) == 1
    assert re.match(
        r"DC109 is an error that nothing planted explains: train/\w+\.npy: ", done.differs[0]
    )


def test_a_model_that_met_a_broken_sample_fails_the_demo(tmp_path, quick, monkeypatch):
    """The gate is taken away: every sample is called fit, so broken ones are served."""
    honest = course.build

    def ungated(pipeline, data, out, run):
        run.valid[run.table.status == 0] = True
        return honest(pipeline, data, out, run=run)

    monkeypatch.setattr(course, "build", ungated)
    monkeypatch.setattr(course, "_broken", lambda runs: broken)
    data = tmp_path / "probe"
    synth.write("minimind", data)
    broken = {k for p in faults.plant("minimind", data) for k in p.keys if p.code == "DC702"}
    done = course.run("minimind", tmp_path / "m", 0)
    assert any("broken samples were served" in line for line in done.differs)


def test_a_crashed_rule_and_a_damaged_cache_fail_the_demo(tmp_path):
    done = DemoResult("libero", tmp_path, crashes=["DC501: ValueError"])
    assert list(course._course_failures(done)) == ["a rule crashed: DC501: ValueError"]
    done = DemoResult("libero", tmp_path)
    done.cache = course.CacheResult(("all",), tmp_path, 3, 3, 10, ("all: zarr.json: missing",))
    assert list(course._course_failures(done)) == [
        "the cache does not verify: all: zarr.json: missing"
    ]


def test_a_fault_counts_as_found_only_if_all_its_samples_are_named(tmp_path):
    data = tmp_path / "data"
    synth.write("ho3d", data, train=2, evaluation=1)
    (planted,) = faults.plant("ho3d", data, ["joints-in-mm"])
    run = scan(data, output=tmp_path / "scan")
    more = Planted((*planted.keys, "train/NOBODY/meta/0000.pkl"), "DC201", "one frame too many")
    other = Planted(planted.keys, "DC301", "another code")
    found = [answer.found for answer in course._answers([planted, more, other], [run])]
    assert found == [True, False, False]
    assert course._unexplained([planted], [run]) == []
    fewer = Planted(planted.keys[1:], "DC201", "one frame too few")
    ((severity, code, message),) = course._unexplained([fewer], [run])
    assert (severity, code) == ("error", "DC201")
    assert message.startswith(f"{planted.keys[0]}: ")


@pytest.mark.parametrize(
    ("module", "extra", "system"), [("torch", "torch", "ho3d"), ("tokenizers", "text", "minimind")]
)
def test_a_missing_extra_is_one_clear_line(module, extra, system, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=extra):
        course.require_extras([system])
    assert command(["demo", system]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"datacheck: {module} is not installed: pip install 'datacheck[{extra}]'\n"


def test_a_process_that_never_had_the_extra_says_the_same():
    program = (
        "import sys; sys.modules['torch'] = None; from datacheck.cli.main import main; "
        "sys.argv[1:] = ['demo', 'ho3d']; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr == "datacheck: torch is not installed: pip install 'datacheck[torch]'\n"


def test_an_unwritable_place_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert command(["demo", "minimind", "--out", str(tmp_path / "file" / "out")]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_long_keys_are_shortened_in_the_middle():
    key = "libero_spatial/" + "x" * 60 + "_demo.hdf5:/data/demo_17"
    line = COLOR.sub("", next(x for x in course_lines(_fake(key)) if "DC501" in x))
    assert "libero_spatial/xx" in line
    assert "df5:/data/demo_17" in line
    assert len(line) < 105


def _fake(key):
    done = DemoResult(
        "libero",
        Path(),
        samples=dict.fromkeys(("listed", "checked", "unreadable", "skipped", "valid"), 1),
    )
    done.answers = [
        FaultAnswer(Planted((key,), "DC501", "a demo of 50 steps"), found=True, severity="error")
    ]
    done.seconds = {"scan": 0.1}
    return done
