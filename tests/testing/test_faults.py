"""A fault must do what its name says, to the samples that it names, and to nothing else."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from functools import lru_cache
from pathlib import Path

import h5py
import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.testing import faults, synth

LISTS = {
    "train.txt",
    "evaluation.txt",
    "train_list.txt",
    "val_list.txt",
    "train_database.yaml",
    "meta/info.json",
    "meta/episodes_stats.jsonl",
}


@pytest.fixture(scope="module")
def clean(clean_data):
    """A folder with the clean dataset of each system."""
    systems = sorted({fault.system for fault in faults.FAULTS})
    (folder,) = {clean_data(system, 0).parent for system in systems}
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        f.relative_to(folder).as_posix(): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file()
    }


tree_of_clean = lru_cache(1)(tree)  # tests of one system follow each other


def pick_of(system, name, clean, tmp_path, seed=0):
    folder = tmp_path / system
    shutil.copytree(clean / system, folder)
    return folder, faults.plant(system, folder, [name], seed=seed)


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda f: f"{f.system}-{f.name}")
def test_a_fault_changes_what_it_names_and_nothing_else(fault, clean, tmp_path):
    folder, planted = pick_of(fault.system, fault.name, clean, tmp_path)
    before, after = tree_of_clean(clean / fault.system), tree(folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed
    assert re.fullmatch(r"DC\d{3}", fault.code)
    assert {p.code for p in planted} == {fault.code}
    if not any(p.keys for p in planted):  # a fault of the dataset as a whole
        return
    named = {key.partition(":")[0] for p in planted for key in (*p.keys, *p.others)}
    for name in changed - named - LISTS:
        stems = [Path(n).stem.partition("_vh_clean")[0] for n in named]
        assert any(stem in name for stem in stems), f"{name} was changed and belongs to no victim"


@pytest.mark.parametrize("system", synth.SYSTEMS)
def test_all_faults_together_hit_distinct_samples_and_the_same_ones_every_time(
    system, clean, tmp_path
):
    runs = []
    for name in "ab":
        shutil.copytree(clean / system, tmp_path / name)
        runs.append(faults.plant(system, tmp_path / name, seed=5))
    assert runs[0] == runs[1]
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    keys = [key for p in runs[0] for key in p.keys]
    assert len(set(keys)) == len(keys)
    assert len(runs[0]) == len(faults.faults_of(system)) >= 8


def test_unknown_faults_and_small_datasets_are_said(clean, tmp_path):
    with pytest.raises(UsageError, match="no fault 'grasp-in-mm'; known are grasps-in-mm"):
        faults.plant("sceneleap", tmp_path, ["grasp-in-mm"])
    synth.write("sceneleap", tmp_path, train=1, test=1)
    with pytest.raises(UsageError, match="1 untouched samples are needed for a fault, 0 are left"):
        faults.plant("sceneleap", tmp_path, ["nan-row", "zero-placeholder"])


def _record(folder, key):
    return np.load(folder / key, allow_pickle=True).item()


def test_grasps_in_mm_are_a_thousand_times_as_far(clean, tmp_path):
    folder, [planted] = pick_of("sceneleap", "grasps-in-mm", clean, tmp_path)
    a, b = (_record(f, planted.keys[0])["grasp_qpos"] for f in (clean / "sceneleap", folder))
    np.testing.assert_allclose(b[:, :3], 1000 * a[:, :3])
    np.testing.assert_array_equal(b[:, 3:], a[:, 3:])


def test_one_bit_changes_for_a_changed_byte(clean, tmp_path):
    folder, [planted] = pick_of("sceneleap", "changed-byte", clean, tmp_path)
    a, b = (np.fromfile(f / planted.keys[0], np.uint8) for f in (clean / "sceneleap", folder))
    assert np.unpackbits(a ^ b).sum() == 1
    old, new = (_record(f, planted.keys[0])["grasp_qpos"] for f in (clean / "sceneleap", folder))
    assert np.abs(old - new).max() < 1e-15
    assert not np.array_equal(old, new)


def test_a_leaked_object_has_different_grasps_in_both_splits(clean, tmp_path):
    folder, [planted] = pick_of("sceneleap", "leaked-object", clean, tmp_path)
    a, b = (_record(folder, key)["grasp_qpos"] for key in (*planted.keys, *planted.others))
    assert not (a[:, None] == b[None]).all(axis=2).any()
    assert Path(planted.keys[0]).name == Path(planted.others[0]).name


def _joints(folder, key):
    return pickle.loads((folder / key).read_bytes(), encoding="latin1")["handJoints3D"]  # noqa: S301


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("joints-in-mm", lambda j: 1000 * j),
        ("root-relative", lambda j: j - j[0]),
        ("opencv-camera", lambda j: np.stack([j[:, 0], -j[:, 1], -j[:, 2]], axis=1)),
        ("collapsed-joints", lambda j: np.tile(j[0], (21, 1))),
    ],
)
def test_joints_are_moved_as_named(name, expected, clean, tmp_path):
    folder, [planted] = pick_of("ho3d", name, clean, tmp_path)
    for key in planted.keys:
        np.testing.assert_allclose(
            _joints(folder, key), expected(_joints(clean / "ho3d", key)), rtol=1e-12
        )


def test_rolled_tips_put_the_thumb_last_and_break_rigidity(clean, tmp_path):
    folder, [planted] = pick_of("ho3d", "tips-rolled", clean, tmp_path)
    before, after = (
        np.stack([_joints(f, k) for k in planted.keys]) for f in (clean / "ho3d", folder)
    )
    np.testing.assert_array_equal(after[:, 20], before[:, 16])
    np.testing.assert_array_equal(after[:, 16], before[:, 17])
    bone = np.linalg.norm(after[:, 20] - after[:, 9], axis=1)
    assert bone.std() > 0.003
    assert len(planted.keys) >= 50


def test_a_leaked_camera_shares_a_recording_with_train(clean, tmp_path):
    folder, [planted] = pick_of("ho3d", "leaked-camera", clean, tmp_path)
    ours, theirs = ({k.split("/")[1] for k in keys} for keys in (planted.keys, planted.others))
    assert {n[:-1] for n in ours} == {n[:-1] for n in theirs}
    assert not ours & theirs
    listed = (folder / "evaluation.txt").read_text().split()
    assert {f"evaluation/{s.split('/')[0]}/meta/{s.split('/')[1]}.pkl" for s in listed} >= set(
        planted.keys
    )


@pytest.mark.parametrize("name", ["no-instances", "only-dropped-classes", "too-small-instances"])
def test_scenes_without_an_effective_instance(name, clean, tmp_path):
    folder, [planted] = pick_of("scannetpp", name, clean, tmp_path)
    cloud = np.load(folder / planted.keys[0])
    ids, counts = np.unique(cloud[cloud[:, 11] >= 0, 11], return_counts=True)
    kept = [
        i
        for i, n in zip(ids, counts, strict=True)
        if n > 5 and cloud[cloud[:, 11] == i, 10].max() > 2
    ]
    assert kept == []
    truth = np.loadtxt(folder / "instance_gt" / planted.keys[0].replace(".npy", ".txt"))
    np.testing.assert_array_equal(truth, cloud[:, 10] * 1000 + cloud[:, 11] + 1)


def _demo(folder, key):
    path, _, inner = key.partition(":")
    with h5py.File(folder / path) as file:
        arrays = {}
        file[inner].visititems(
            lambda n, i: arrays.update({n: i[()]}) if isinstance(i, h5py.Dataset) else None
        )
        counted = sum(int(file["data"][d].attrs["num_samples"]) for d in file["data"])
        assert counted == file["data"].attrs["total"]
        return arrays, int(file[inner].attrs["num_samples"])


def test_a_short_demo_is_short_in_every_array(clean, tmp_path):
    folder, [planted] = pick_of("libero", "short-demo", clean, tmp_path)
    arrays, count = _demo(folder, planted.keys[0])
    assert {len(a) for a in arrays.values()} == {count} == {50}


def test_an_idle_demo_stands_still_most_of_the_time(clean, tmp_path):
    folder, [planted] = pick_of("libero", "idle-demo", clean, tmp_path)
    arrays, _ = _demo(folder, planted.keys[0])
    still = (np.diff(arrays["obs/joint_states"], axis=0) == 0).all(axis=1)
    assert still.mean() > 0.6


def test_lines_are_broken_where_named(clean, tmp_path):
    for name in ("bad-json", "not-utf8", "bad-json-pretrain", "bad-json-dpo"):
        folder, [planted] = pick_of("minimind", name, clean, tmp_path / name)
        file, _, number = planted.keys[0].partition(":")
        for i, line in enumerate((folder / file).read_bytes().splitlines()):
            if i == int(number):
                with pytest.raises(ValueError):  # noqa: PT011  JSONDecodeError or UnicodeDecodeError
                    json.loads(line)
            else:
                json.loads(line)


def test_a_long_prompt_is_longer_than_any_context(clean, tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="the extra 'text' is not installed")
    folder, [planted] = pick_of("minimind", "long-prompt", clean, tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    file, _, number = planted.keys[0].partition(":")
    record = json.loads((folder / file).read_text("utf-8").splitlines()[int(number)])
    # Every answer comes after it
    first = next(m for m in record["conversations"] if m["role"] == "user")
    assert len(tokenizer.encode(first["content"]).ids) > 2000
