"""Synthetic LeRobot datasets: clean by arithmetic and by a scan; each fault is named by its code, and nothing else."""

from __future__ import annotations

import json
import shutil
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.scan import scan
from datacheck.sources.named_files import read_named_files
from datacheck.testing import faults, synth
from datacheck.testing.lerobot import CAMERAS
from datacheck.workers.wire import check_answer

SMALL = {"episodes": 7, "rows_files": 4, "video_files": 3}
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_rows(folder):
    return pa.concat_tables(pq.read_table(p) for p in sorted(folder.glob("data/*/*.parquet")))


def vectors(table, name):
    return np.array(table[name].to_pylist())


def header(path):
    """Return codec, height, width, frame rate and frames of an MP4 file; its frames end with it."""
    data = path.read_bytes()

    def numbers(kind, form, skip=4):
        at = data.index(kind) + 4 + skip
        return struct.unpack(form, data[at : at + struct.calcsize(form)])

    *_, scale, length = numbers(b"mdhd", ">4I")
    runs, count, ticks = numbers(b"stts", ">3I")
    same, frames = numbers(b"stsz", ">2I")
    sizes = numbers(b"stsz", f">{frames}I", 12)
    places = numbers(b"stco", f">{frames}I", 8)
    codec, width, height = numbers(b"stsd", ">4s24x2H", 12)
    assert (runs, same, count, length) == (1, 0, frames, frames * ticks)
    assert places[0] == data.index(b"mdat") + 4
    np.testing.assert_array_equal(np.diff(places), sizes[:-1])
    assert places[-1] + sizes[-1] == len(data)
    return codec, height, width, scale / ticks, frames


def check_statistics(stats, table):
    for name in ("action", "observation.state", "timestamp", "index", "task_index"):
        values = vectors(table, name).reshape(len(table), -1)
        expected = {
            "min": values.min(axis=0),
            "max": values.max(axis=0),
            "mean": [np.sum(column) / len(column) for column in values.T],
            "std": [np.sqrt(np.mean((c - c.mean()) ** 2)) for c in values.T],
            "count": [len(values)],
        }
        # Linear interpolation between the two nearest of the sorted values.
        ordered = np.sort(values, axis=0)
        for key, share in (("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99)):
            place = share * (len(values) - 1)
            low = int(place)
            high = min(low + 1, len(values) - 1)
            expected[key] = ordered[low] + (place - low) * (ordered[high] - ordered[low])
        assert stats[name].keys() == expected.keys()
        for key, numbers in expected.items():
            np.testing.assert_allclose(stats[name][key], numbers, rtol=1e-6, atol=1e-9)


def check_rows(table, lengths):
    np.testing.assert_array_equal(table["index"], np.arange(sum(lengths)))
    steps = np.concatenate([np.arange(n) for n in lengths])
    np.testing.assert_array_equal(table["frame_index"], steps)
    np.testing.assert_array_equal(table["episode_index"], np.repeat(range(len(lengths)), lengths))
    np.testing.assert_array_equal(table["timestamp"], (steps / 30).astype(np.float32))
    for name in ("action", "observation.state"):
        values = vectors(table, name)
        assert values.shape == (sum(lengths), 7)
        inside = np.diff(steps) == 1
        # Degrees, and the gripper's percent, per 30th of a second.
        assert np.abs(np.diff(values, axis=0)[inside]).max() < 8
        assert np.ptp(values, axis=0).min() > 10


def test_version_3_agrees_with_its_documents(tmp_path):
    synth.write("lerobot", tmp_path, seed=3, **SMALL)
    info, table = read_json(tmp_path / "meta/info.json"), read_rows(tmp_path)
    episodes = pq.read_table(tmp_path / EPISODES).to_pydict()
    lengths = episodes["length"]
    check_rows(table, lengths)
    check_statistics(read_json(tmp_path / "meta/stats.json"), table)
    assert (info["total_episodes"], info["total_frames"]) == (7, len(table)) == (7, sum(lengths))
    assert info["total_tasks"] == pq.read_metadata(tmp_path / "meta/tasks.parquet").num_rows == 3
    assert episodes["data/file_index"] == [0, 0, 0, 0, 1, 1, 1]
    assert episodes["dataset_to_index"] == np.cumsum(lengths).tolist()
    for camera in CAMERAS:
        assert episodes[f"videos/{camera}/file_index"] == [0, 0, 0, 1, 1, 1, 2]
        starts, stops = (episodes[f"videos/{camera}/{e}_timestamp"] for e in ("from", "to"))
        np.testing.assert_allclose(np.subtract(stops, starts) * 30, lengths)
        assert [starts[i] for i in (0, 3, 6)] == [0, 0, 0]
        for i in (1, 2, 4, 5):
            assert starts[i] == stops[i - 1]
        for number, mine in enumerate((lengths[:3], lengths[3:6], lengths[6:])):
            path = tmp_path / f"videos/{camera}/chunk-000/file-{number:03d}.mp4"
            assert header(path) == (b"png ", 48, 64, 30, sum(mine))


def test_version_2_1_agrees_with_its_documents(tmp_path):
    synth.write("lerobot_v21", tmp_path, seed=3, episodes=5)
    info, table = read_json(tmp_path / "meta/info.json"), read_rows(tmp_path)
    episodes = read_lines(tmp_path / "meta/episodes.jsonl")
    lengths = [episode["length"] for episode in episodes]
    check_rows(table, lengths)
    for line in read_lines(tmp_path / "meta/episodes_stats.jsonl"):
        number = line["episode_index"]
        path = tmp_path / f"data/chunk-000/episode_{number:06d}.parquet"
        check_statistics(line["stats"], pq.read_table(path))
        for camera in CAMERAS:
            path = tmp_path / f"videos/chunk-000/{camera}/episode_{number:06d}.mp4"
            assert header(path) == (b"png ", 48, 64, 30, lengths[number])
    keys = ("total_episodes", "total_frames", "total_videos", "total_chunks", "total_tasks")
    assert [info[key] for key in keys] == [5, sum(lengths), 10, 1, 3]


def test_the_motion_of_an_episode_does_not_depend_on_how_many_others_there_are(tmp_path):
    synth.write("lerobot", tmp_path / "few", episodes=3)
    synth.write("lerobot", tmp_path / "many", episodes=6)
    few, many = read_rows(tmp_path / "few"), read_rows(tmp_path / "many")
    assert few.equals(many.slice(0, len(few)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("system", ["lerobot", "lerobot_v21"])
def test_a_clean_dataset_raises_no_error_and_no_warning(system, seed, clean_data, tmp_path):
    run = scan(clean_data(system, seed), output=tmp_path / "scan")
    assert run.report.schema["name"] == "lerobot"
    assert [f.message for f in run.report.findings if f.severity != "info"] == []
    assert run.report.valid == len(run.table) == 24
    judged = {v.code: v.verdict for v in run.report.verdicts}
    expected = ["DC114", "DC514", "DC515", "DC516"] + ["DC228"] * (system == "lerobot")
    assert {code: judged[code] for code in expected} == dict.fromkeys(expected, "pass")


BATCHES = [(s, b) for s in ("lerobot", "lerobot_v21") for b in faults.batches_of(s)]
# A fault that has a second finding: a negative deviation, and none, are other statistics than those of the data, and
# so are exchanged quantiles; spans that drift by half a frame or more end in the first picture of the next episode.
FOLLOWS = {
    ("lerobot", 0): {"DC228": "DC114"},
    ("lerobot", 1): {"DC519": "DC114"},
    ("lerobot", 2): {"DC517": "DC515"},
}


@pytest.mark.parametrize(("system", "batch"), BATCHES)
def test_each_fault_is_named_by_its_code_and_kind_and_nothing_else_is_said(
    system, batch, clean_data, tmp_path
):
    shutil.copytree(clean_data(system, 4), tmp_path / "data")
    chosen = [fault.name for fault in faults.faults_of(system, batch=batch)]
    planted = faults.plant(system, tmp_path / "data", chosen, seed=4)
    assert len(planted) == len(chosen)
    run = scan(tmp_path / "data", "lerobot", output=tmp_path / "scan")
    said = [
        (f.code, f.kind, {run.table.keys[int(i)] for i in f.rows})
        for f in run.report.findings
        if f.severity != "info"
    ]
    for p in planted:
        assert any(
            code == p.code and (not p.kind or kind == p.kind) and keys >= set(p.keys)
            for code, kind, keys in said
        ), p
    for code, kind, keys in said:
        causes = {code, FOLLOWS.get((system, batch), {}).get(code)}
        mine = [p for p in planted if p.code in causes]
        assert mine, (code, kind)
        allowed = {key for p in mine for key in (*p.keys, *p.others)}
        assert keys <= allowed or any(not p.keys for p in mine), (code, kind, keys - allowed)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    synth.write("lerobot", folder, seed=1, episodes=12, video_files=6)
    return folder


def broken(clean, tmp_path, name):
    folder = tmp_path / "data"
    shutil.copytree(clean, folder)
    [planted] = faults.plant("lerobot", folder, [name], seed=2)
    return folder, planted


def number(key):
    return int(key.rpartition(":")[2])


def test_spans_drift_by_4_ms_with_each_episode(clean, tmp_path):
    folder, planted = broken(clean, tmp_path, "drifting-spans")
    camera = planted.kind.partition(":")[2]
    before, after = (pq.read_table(f / EPISODES) for f in (clean, folder))
    numbers = [number(key) for key in planted.keys]
    assert numbers in (list(range(1, 5)), list(range(7, 11)))
    for end, first in (("from", 0), ("to", 1)):
        name = f"videos/{camera}/{end}_timestamp"
        moved = np.subtract(after[name], before[name])
        expected = np.zeros(12)
        start = numbers[0] - 1
        expected[start : start + 6] = 0.004 * (first + np.arange(6))
        np.testing.assert_allclose(moved, expected, atol=1e-12)


def test_a_gap_is_in_the_table_and_in_the_rows(clean, tmp_path):
    folder, _ = broken(clean, tmp_path, "gap-in-episode-index")
    numbers = pq.read_table(folder / EPISODES)["episode_index"].to_pylist()
    [gap] = set(range(13)) - set(numbers)
    assert 1 < gap < 11
    rows = np.array(read_rows(folder)["episode_index"])
    assert numbers == np.unique(rows).tolist() == sorted(numbers)


@pytest.mark.parametrize(("name", "rate", "lost"), [("other-rate", 25, 0), ("frames-lost", 30, 8)])
def test_a_video_has_another_rate_or_fewer_frames(name, rate, lost, clean, tmp_path):
    folder, planted = broken(clean, tmp_path, name)
    camera = planted.kind.partition(":")[2]
    file = number(planted.keys[-1]) // 6
    path = f"videos/{camera}/chunk-000/file-{file:03d}.mp4"
    *_, frames = header(clean / path)
    assert header(folder / path) == (b"png ", 48, 64, rate, frames - lost)


@pytest.mark.parametrize(
    ("name", "column", "changed", "expected"),
    [
        ("index-repeated", "index", 1, -1),
        ("index-shifted", "index", None, 100),
        ("frame-index-from-1", "frame_index", None, 1),
        ("late-stamp", "timestamp", 1, 0.006),
        ("from-three-seconds", "timestamp", None, 3),
    ],
)
def test_rows_of_one_episode_are_changed_as_named(name, column, changed, expected, clean, tmp_path):
    folder, planted = broken(clean, tmp_path, name)
    before, after = read_rows(clean), read_rows(folder)
    moved = np.subtract(after[column].to_numpy(), before[column].to_numpy())
    mine = before["episode_index"].to_numpy() == number(planted.keys[0])
    hit = moved != 0
    assert not (hit & ~mine).any()
    assert hit.sum() == (mine.sum() if changed is None else changed)
    np.testing.assert_allclose(moved[hit], expected, atol=1e-6)
    assert before.drop_columns([column]).equals(after.drop_columns([column]))


def test_documents_beside_an_index_have_the_declared_answer(tmp_path):
    """An answer of another shape would end the child, and each item would be tried again alone."""
    synth.write("lerobot_v21", tmp_path, episodes=2)
    task = {"index": "meta/info.json", "root": str(tmp_path), "roots": {}, "most": 9}
    task["items"] = [{"path": "meta/info.json"}, {"path": "meta/modality.json"}]
    answer = json.loads(json.dumps(read_named_files(task, lambda _: None)))
    assert [record["path"] for record in answer] == ["meta/info.json", "meta/modality.json"]
    check_answer(read_named_files, answer, task)
