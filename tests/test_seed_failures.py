"""The five failures that this project exists for, each in the real layout, each named by one scan."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from datacheck.scan import scan
from datacheck.testing import faults, synth


def finding_of(run, code, severity="error"):
    (found,) = [f for f in run.report.findings if f.code == code and f.severity == severity]
    return found


def named(run, finding):
    return {run.table.keys[int(i)] for i in finding.rows}


def errors(run):
    return {f.code for f in run.report.findings if f.severity == "error"}


def test_a_scene_without_an_effective_instance_is_found_before_training_hangs_on_it(tmp_path):
    """ExCap3D hung at batch 50: every instance of a scene was dropped between the file and the loss."""
    data = tmp_path / "data"
    synth.write("scannetpp", data, train=8, validation=2)
    planted = {}
    for step, name in [
        ("no instance", "no-instances"),
        ("drop_classes", "only-dropped-classes"),
        ("min_points", "too-small-instances"),
        ("captions", "captions-of-another-scene"),
    ]:
        spare = [k for p in planted.values() for k in p.keys]
        (planted[step],) = faults.plant("scannetpp", data, [name], spare=spare)
    run = scan(data, output=tmp_path / "scan")
    raw = finding_of(run, "DC401")
    assert named(run, raw) == set(planted.pop("no instance").keys)
    found = finding_of(run, "DC402")
    assert named(run, found) == {key for p in planted.values() for key in p.keys}
    for step in planted:  # the funnel says at which step each scene lost its last instance
        assert step in found.message, step
    assert errors(run) == {"DC401", "DC402"}
    assert run.report.valid == 10 - 4


def test_joints_in_millimetres_are_named_with_their_factor(tmp_path):
    """UTNet's loss stood at 75,000: nothing said whether the joints were metres."""
    data = tmp_path / "data"
    synth.write("ho3d", data, train=4, evaluation=1)
    (planted,) = faults.plant("ho3d", data, ["joints-in-mm"])
    run = scan(data, output=tmp_path / "scan")
    found = finding_of(run, "DC201")
    assert named(run, found) == set(planted.keys)
    assert found.fields == ("handJoints3D",)
    assert found.cause.factor == pytest.approx(0.001)
    assert found.cause.explains == len(planted.keys)
    assert errors(run) == {"DC201"}


def test_joints_that_are_root_relative_already_are_named(tmp_path):
    """UTNet subtracted the root of joints that had it subtracted; the mean of what is left says nothing."""
    data = tmp_path / "data"
    synth.write("ho3d", data, train=4, evaluation=1)
    (planted,) = faults.plant("ho3d", data, ["root-relative"])
    run = scan(data, output=tmp_path / "scan")
    found = finding_of(run, "DC301")
    assert named(run, found) == set(planted.keys)
    assert "root" in found.message
    assert errors(run) == {"DC301"}


def test_a_demo_shorter_than_the_window_and_the_starts_that_all_demos_lose(tmp_path):
    """RDT cut chunks of 64: a demo of 50 steps gave range(0), and every other demo lost its last 63 starts."""
    data = tmp_path / "data"
    synth.write("libero", data, tasks=2, demos=6, image=0)
    (planted,) = faults.plant("libero", data, ["short-demo"])
    lengths = []
    for path in data.rglob("*.hdf5"):
        with h5py.File(path) as file:
            lengths += [len(demo["actions"]) for demo in file["data"].values()]
    assert sorted(lengths)[0] == 50
    assert sorted(lengths)[1] >= 64
    run = scan(data, output=tmp_path / "scan")
    found = finding_of(run, "DC501")
    assert named(run, found) == set(planted.keys)
    assert "50" in found.message
    assert "64" in found.message
    lost = finding_of(run, "DC501", "warning")
    share = sum(max(0, length - 63) for length in lengths) / sum(lengths)
    assert 0.3 < share < 0.7
    assert f"{100 * share:.1f} %" in lost.message
    assert errors(run) == {"DC501"}


def test_samples_without_a_supervised_token(tmp_path):
    """minimind: with nothing to supervise the loss is 0.0 or NaN, and nobody asks why."""
    data = tmp_path / "data"
    synth.write("minimind", data, pretrain=2, sft=60, dpo=2)
    (silent,) = faults.plant("minimind", data, ["no-answer"])
    (cut,) = faults.plant("minimind", data, ["long-prompt"], spare=silent.keys)
    run = scan(data, "minimind_sft", output=tmp_path / "scan")
    found = {frozenset(named(run, f)): f.message for f in run.report.findings if f.code == "DC702"}
    assert set(found) == {frozenset(silent.keys), frozenset(cut.keys)}  # two causes, told apart
    assert "768" in found[frozenset(cut.keys)]
    assert errors(run) == {"DC702"}
    assert run.report.valid == 58


@pytest.mark.slow
def test_one_changed_byte_in_one_of_a_thousand_files_is_named_by_its_path(tmp_path):
    """SceneLeap's losses differed by 1.0 between two machines, and nothing could say whether the data did."""
    data = tmp_path / "data"
    synth.write("sceneleap", data, train=950, test=50, grasps=70, spread=0.02, low=66, rings=4)
    first = scan(data, output=tmp_path / "scan")
    assert first.report.findings == []
    assert first.report.dataset["samples"]["checked"] == 1000
    (planted,) = faults.plant("sceneleap", data, ["changed-byte"])
    again = scan(data, output=tmp_path / "scan")
    found = finding_of(again, "DC108", "warning")
    assert found.examples == planted.keys
    assert named(again, found) == set(planted.keys)
    assert [f.code for f in again.report.findings] == ["DC108"]
    before = {e.path: e.digest for e in first.listing.entries}
    after = {e.path: e.digest for e in again.listing.entries}
    assert {path for path in before if before[path] != after[path]} == set(planted.keys)
    assert np.unique([len(d) for d in after.values()]).tolist() == [32]
