"""Pictures of a run: the worst samples of each finding, bounded, and never more harm than a sample without one."""

import errno
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import orjson
import pytest

from datacheck.errors import OutOfSpaceError
from datacheck.model.table import CHECKED, UNREADABLE
from datacheck.preview import run_previews as pictures
from datacheck.preview import sample_reader
from datacheck.preview.run_previews import choose_samples, worst_rows
from datacheck.preview.single import _findings_of, sample_of_run
from datacheck.scan import scan
from datacheck.scan.run_documents import PREVIEWS, VALID
from datacheck.schema.load import parse_schema

CLOUDS = """
datacheck: 1
name: clouds
samples: {files: "*.npy"}
fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.1..10}}
"""
PATIENCE = 60.0


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Ten clouds of a metre, six of them 100 to 105 times too large; files to die of are named so."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    names = [
        "a",
        "b",
        "c",
        "d",
        "e_large",
        "f_large",
        "kill_large",
        "hang_large",
        "bug_large",
        "g_large",
    ]
    for number, name in enumerate(names):
        points = np.random.default_rng(number).uniform(0, 1, (50, 3))
        np.save(folder / f"{name}.npy", points * (100 + number if "large" in name else 1))
    return folder


def scanned(data):
    return scan(data, parse_schema(CLOUDS), output=data.parent / "run")


def by_key(made):
    return {sample["key"]: sample for sample in made["samples"]}


def test_the_worst_samples_of_a_finding_are_drawn_the_worst_first(data):
    run = scanned(data)
    path = pictures.write_previews(run, PATIENCE)
    made = orjson.loads(path.read_bytes())
    assert path == Path(run.report.folder) / PREVIEWS
    (finding,) = (f for f in run.report.findings if f.code == "DC201")
    keys = [made["samples"][at]["key"] for at in made["findings"][finding.id]]
    assert sorted(keys) == sorted(p.name for p in data.glob("*large*"))
    worst = [run.table.keys[row] for row in finding.worst]
    assert keys[: len(worst)] == worst
    assert all(sample["fields"][0]["kind"] == "cloud" for sample in made["samples"])
    assert made["left_out"] == []


def test_timelines_of_an_idle_episode_say_which_steps_are_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, pause in (("idle", 60), ("lively", 0)):
        step = np.where(np.arange(99) < pause, 0.0, 0.02)
        path = np.concatenate([[0.0], np.cumsum(step)])[:, None]
        np.savez(
            tmp_path / "data" / f"{name}.npz",
            q=path,
            act=np.append(step, 0.0)[:, None],
            rgb=path[:40],
        )
    schema = parse_schema("""
        datacheck: 1
        name: arms
        samples: {files: "*.npz"}
        fields:
          act: {role: action, shape: [T, 1]}
          q: {role: joint_angle, shape: [T, 1], unit: rad}
          rgb: {shape: [T2, 1]}
        episode: {max_idle: 30%}
    """)
    run = scan(tmp_path / "data", schema, output=tmp_path / "run")
    kept = {"idle.npz": [[60, 100]]}
    assert orjson.loads((tmp_path / "run" / VALID).read_bytes())["ranges"] == kept
    viewed = [sample_of_run(tmp_path / "run", "idle.npz")["sample"]]
    (idle,) = (f for f in run.report.findings if f.code == "DC504")
    # By a baseline
    told = replace(run.report, findings=[replace(idle, ranges=None)], suppressed=[idle])
    for report in (run.report, told):
        made = pictures.previews_of(replace(run, report=report), PATIENCE)["samples"]
        viewed += [sample for sample in made if sample["key"] == "idle.npz"]
    assert len(viewed) == 3
    for fields in (sample["fields"] for sample in viewed):
        assert {one["field"]: one.get("ranges") for one in fields} == {
            "act": [[60, 100]],
            "q": [[60, 100]],
            "rgb": None,
        }
    assert all(
        "ranges" not in one
        for one in sample_of_run(tmp_path / "run", "lively.npz")["sample"]["fields"]
    )


def test_a_sample_that_kills_hangs_or_crashes_its_reader_costs_its_own_picture_only(
    data, monkeypatch
):
    run = scanned(data)
    monkeypatch.setattr(sample_reader, "_DRAW", "tests.preview.misbehaving:draw_items")
    patient = sample_reader.PreviewChild.draw
    monkeypatch.setattr(
        sample_reader.PreviewChild,
        "draw",
        lambda child, task, asked, _: patient(child, task, asked, 5.0),
    )
    made = by_key(pictures.previews_of(run, PATIENCE))
    assert "SIGSEGV" in made["kill_large.npy"]["why"]
    assert "still busy" in made["hang_large.npy"]["why"]
    assert "RuntimeError: bug" in made["bug_large.npy"]["why"]
    assert {key for key, one in made.items() if one["fields"]} == {
        "e_large.npy",
        "f_large.npy",
        "g_large.npy",
    }


def test_where_no_time_is_left_it_is_said(data):
    run = scanned(data)
    made = pictures.previews_of(run, 0.0)
    assert made["left_out"] == ["6 samples not drawn: reading again may take 0 s in all"]
    assert all("no time left" in sample["why"] for sample in made["samples"])


def test_a_child_that_dies_before_it_draws_is_told_as_that(data, monkeypatch):
    run = scanned(data)
    monkeypatch.setattr(sample_reader, "_READY", "tests.preview.misbehaving:dies_at_once")
    made = pictures.previews_of(run, PATIENCE)
    assert {sample["why"] for sample in made["samples"]} == {
        "it could not be read again: the parser was killed by SIGSEGV"
    }
    assert made["left_out"] == [
        "6 samples not drawn: it could not be read again: the parser was killed by SIGSEGV"
    ]


def test_where_the_system_starts_no_process_there_are_no_pictures_and_no_more_harm(
    data, monkeypatch
):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    run = scanned(data)
    monkeypatch.setattr("datacheck.workers.child.fork", lambda *_: None)
    monkeypatch.setattr("datacheck.workers.child._Started", refuse)
    made = pictures.previews_of(run, PATIENCE)
    assert all("Resource temporarily unavailable" in sample["why"] for sample in made["samples"])
    with pictures.PreviewProcess(data, {}) as preview_process:
        path = preview_process.write(run)()
    (said,) = orjson.loads(path.read_bytes())["left_out"]
    assert said.startswith("6 samples not drawn: it could not be read again: ")


def test_pictures_stay_within_their_room(data, monkeypatch):
    run = scanned(data)
    monkeypatch.setattr(pictures, "BYTES", 2600)
    made = pictures.previews_of(run, PATIENCE)
    drawn = [sample for sample in made["samples"] if sample["fields"]]
    assert 0 < len(drawn) < 6
    assert sum(len(orjson.dumps(sample)) for sample in drawn) <= 2600
    assert made["left_out"] == [
        f"{6 - len(drawn)} samples not drawn: pictures may take 0.0026 MB in all"
    ]


def test_data_that_changed_or_is_gone_is_not_drawn_and_said_to_be(data):
    run = scanned(data)
    np.save(data / "e_large.npy", np.zeros((3, 3)))
    made = by_key(pictures.previews_of(run, PATIENCE))
    assert "changed after it was listed" in made["e_large.npy"]["why"]
    assert made["f_large.npy"]["fields"]
    shutil.rmtree(data)
    said = orjson.loads(pictures.write_previews(run, PATIENCE).read_bytes())["left_out"]
    assert said == ["6 samples not drawn: no such file or directory"]


def test_an_unreadable_sample_says_what_the_scan_said(data):
    (data / "a.npy").write_bytes(b"no array")
    made = by_key(pictures.previews_of(scanned(data), PATIENCE))
    assert made["a.npy"]["why"].startswith("DC101 not an .npy file")


def test_where_all_that_is_broken_is_unreadable_the_finding_alone_says_so(data):
    for path in data.glob("*_large.npy"):
        path.write_bytes(b"no array")
    run = scanned(data)
    assert pictures.write_previews(run, PATIENCE) is None
    assert not (Path(run.report.folder) / PREVIEWS).exists()


def made_of(rows, worst=()):
    return SimpleNamespace(
        id=f"f{rows[0]}", rows=np.array(rows), worst=tuple(worst), fields=("xyz",)
    )


def table(count):
    status = np.full(count, CHECKED)
    status[0] = UNREADABLE
    names = [f"{n}.npy" for n in range(count)]
    return SimpleNamespace(
        keys=names, splits=[""] * count, files=names, status=status, reasons=["torn"] * count
    )


def test_each_finding_has_its_turn_and_none_more_than_twelve():
    findings = [made_of(range(n * 100, n * 100 + 90)) for n in range(10)]
    chosen, places, said = choose_samples(findings, table(1000))
    assert len(chosen) == 60
    assert [len(mine) for mine in places.values()] == [6] * 10
    assert said == ["60 samples not drawn: at most 60 are"]
    few, places, said = choose_samples(findings[:2], table(1000))
    assert (len(few), [len(mine) for mine in places.values()], said) == (24, [12, 12], [])
    assert (few[0].key, few[0].why) == ("0.npy", "torn")


def test_the_worst_come_before_those_that_are_spread_over_the_finding():
    assert worst_rows(made_of(range(120), [77, 5])) == [
        77,
        5,
        0,
        10,
        20,
        30,
        40,
        50,
        60,
        70,
        80,
        90,
    ]
    assert worst_rows(made_of([3, 4])) == [3, 4]


def test_a_sample_of_two_findings_is_drawn_once_with_the_fields_of_both():
    one, two = made_of([5]), made_of([5])
    two.id, two.fields = "g", ("rgb",)
    chosen, places, _ = choose_samples([one, two], table(10))
    assert (len(chosen), places, chosen[0].first) == (1, {"f5": [0], "g": [0]}, ["xyz", "rgb"])


def test_a_child_that_starts_beside_the_scan_draws_the_same_and_is_gone_behind_it(data):
    with pictures.PreviewProcess(data, {}) as preview_process:
        run = scanned(data)
        path = preview_process.write(run)()
    assert not preview_process._child.running
    assert orjson.loads(path.read_bytes()) == pictures.previews_of(run, PATIENCE)


def test_what_refuses_the_pictures_is_raised_by_who_waits_for_them(data, monkeypatch):
    def full(*_, **__):
        raise OutOfSpaceError("pictures")

    run = scanned(data)
    monkeypatch.setattr(pictures.fsops, "write_file", full)
    with pictures.PreviewProcess(data, {}) as preview_process:
        wait = preview_process.write(run)
        with pytest.raises(OutOfSpaceError, match="pictures"):
            wait()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("started", [False, True])
def test_a_scan_that_ends_early_waits_for_no_child(tmp_path, monkeypatch, started):
    monkeypatch.setattr(sample_reader, "_READY", "tests.preview.misbehaving:never_ready")
    with pictures.PreviewProcess(tmp_path, {}) as preview_process:
        while started and not preview_process._child.running:
            time.sleep(0.01)
    assert not preview_process._child.running


def test_a_sample_of_a_large_split_is_shown_no_finding_of_all_others():
    said = {
        "rule": "DC201",
        "name": "n",
        "severity": "error",
        "fields": [],
        "message": "",
        "fix": "",
    }
    findings = [said | {"split": split, "message": split} for split in ("train", "all others", "")]
    for split, shown in (("train", ["train", ""]), ("small", ["all others", ""])):
        found = _findings_of(findings, ["DC201"], split, {"train", "small"})
        assert [finding["message"] for finding in found] == shown
