"""The valid episodes of a LeRobot dataset come out as a v3.0 dataset: rows, documents, statistics, videos."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.errors import DatacheckError, OutOfSpaceError, StorageError, UsageError
from datacheck.export import lerobot, lerobot_child, lerobot_stats
from datacheck.export.lerobot import export
from datacheck.export.verdict import ScannedSamples
from datacheck.plugins import resolve
from datacheck.runtime import fsops
from datacheck.sources import list_files
from datacheck.sources.lerobot import read_statistics
from datacheck.workers.child import Death
from datacheck.workers.parallel import TaskResult
from tests.build.test_resume import Refusing
from tests.export import make

KEPT = [0, 2, 4]
MAKERS = {
    "v2.0": lambda folder: make.v2(folder, "v2.0"),
    "v2.1": lambda folder: make.v2(folder, "v2.1"),
    "v3.0": make.v3,
}


def verdict(folder, kept=KEPT, under=""):
    """The verdict of a scan in which these episodes are valid."""
    is_v3 = (folder / under / "meta/tasks.parquet").exists()
    paths = [
        f"{under}data/chunk-000/file-{make.FILES[i]:03d}.parquet"
        if is_v3
        else f"{under}data/chunk-000/episode_{i:06d}.parquet"
        for i in range(5)
    ]
    keys = {f"{path}:{i:012d}": i in kept for i, path in enumerate(paths)}
    return ScannedSamples(list_files(folder), keys)


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(folder):
    paths = sorted((folder / "data").glob("*/*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in paths]).to_pydict()


def episodes_of(folder):
    return pq.read_table(folder / "meta/episodes").to_pydict()


@pytest.fixture(params=MAKERS)
def exported(request, tmp_path):
    source = MAKERS[request.param](tmp_path / "source")
    before = digests(source)
    result = export(verdict(source), tmp_path / "out")
    assert digests(source) == before
    return request.param, source, tmp_path / "out", result


def test_rows_keep_their_values_and_get_new_numbers(exported):
    _, _, out, result = exported
    found = rows_of(out)
    parts = [make.rows(episode) for episode in KEPT]
    names = ("action", "observation.state", "matrix", "next.done", "comment", "wrist")
    for name in (*names, "timestamp", "frame_index"):
        want = [
            v.tolist() if isinstance(v, np.ndarray | np.generic) else v
            for part in parts
            for v in list(part[name])
        ]
        assert found[name] == want, name
    lengths = [make.LENGTHS[episode] for episode in KEPT]
    assert found["index"] == list(range(sum(lengths)))
    assert found["episode_index"] == np.repeat([0, 1, 2], lengths).tolist()
    # Episodes 0 and 2 have task 0, episode 4 has task 3, now the second one.
    assert found["task_index"] == np.repeat([0, 0, 1], lengths).tolist()
    assert found.keys() == make.rows(0).keys()
    assert (result.episodes, result.of, result.rows) == (3, 5, 18)
    assert result.left_out == {"not valid": 2}


def test_the_meta_folder_describes_the_export(exported):
    version, source, out, _ = exported
    info, old = (json.loads((f / "meta/info.json").read_text()) for f in (out, source))
    assert info["features"] == old["features"]
    assert {n: info[n] for n in ("mine", "robot_type", "fps", "chunks_size")} == {
        "mine": {"kept": [1, 2.5]},
        "robot_type": "arm",
        "fps": 10,
        "chunks_size": 1000,
    }
    assert {
        n: v for n, v in info.items() if n.startswith(("total", "code", "splits", "data_"))
    } == {
        "codebase_version": "v3.0",
        "total_episodes": 3,
        "total_frames": 18,
        "total_tasks": 2,
        "splits": {"train": "0:2", "val": "2:3"},
        "data_path": make.V3,
        "data_files_size_in_mb": 50 if version == "v3.0" else 100,
    }
    assert info["video_path"] == make.V3_VIDEO
    tasks = pq.read_table(out / "meta/tasks.parquet")
    assert tasks.to_pydict() == {
        "task_index": [0, 1],
        "__index_level_0__": ["lift the cup", "wipe"],
    }
    episodes = episodes_of(out)
    assert episodes["episode_index"] == [0, 1, 2]
    assert episodes["tasks"] == [["lift the cup"], ["lift the cup"], ["wipe"]]
    assert episodes["length"] == [5, 7, 6]
    assert episodes["dataset_from_index"] == [0, 5, 12]
    assert episodes["dataset_to_index"] == [5, 12, 18]
    for name in ("data/chunk_index", "data/file_index", "meta/episodes/file_index"):
        assert episodes[name] == [0, 0, 0]


def test_tasks_are_the_index_that_pandas_reads(exported):
    pandas = pytest.importorskip("pandas", reason="LeRobot reads the tasks with pandas")
    frame = pandas.read_parquet(exported[2] / "meta/tasks.parquet")
    assert frame.index.tolist() == ["lift the cup", "wipe"]
    assert frame.loc["wipe"].task_index == 1
    assert frame.index.name is None


def test_videos_are_the_files_of_the_source(exported):
    version, _, out, _ = exported
    episodes = episodes_of(out)
    for camera in make.CAMERAS:
        files = [make.VIDEOS[camera][e] if version == "v3.0" else e for e in KEPT]
        new = {file: number for number, file in enumerate(dict.fromkeys(files))}
        assert episodes[f"videos/{camera}/file_index"] == [new[file] for file in files]
        assert episodes[f"videos/{camera}/chunk_index"] == [0, 0, 0]
        if version == "v3.0":
            times = [make.spans(camera)[e] for e in KEPT]
        else:
            times = [(0.0, make.LENGTHS[e] / make.FPS) for e in KEPT]
        assert episodes[f"videos/{camera}/from_timestamp"] == [start for start, _ in times]
        assert episodes[f"videos/{camera}/to_timestamp"] == [stop for _, stop in times]
        names = {
            f"file-{number:03d}.mp4": f"{camera} {file}".encode() * 1000
            for file, number in new.items()
        }
        folder = out / f"videos/{camera}/chunk-000"
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == names
    assert not any(path.is_symlink() for path in out.rglob("*"))


def new_rows():
    """The numbers of the exported rows, by feature."""
    parts = [make.rows(episode) for episode in KEPT]
    names = ("action", "observation.state", "matrix", "next.done", "timestamp", "frame_index")
    found = {name: np.concatenate([part[name] for part in parts]) for name in names}
    lengths = [make.LENGTHS[episode] for episode in KEPT]
    found["index"] = np.arange(18)
    found["episode_index"] = np.repeat([0, 1, 2], lengths)
    found["task_index"] = np.repeat([0, 0, 1], lengths)
    return {n: v[:, None] if v.ndim == 1 else v for n, v in found.items()}


def check_statistics(found, values):
    numbers = values.astype(np.float64)
    want = {
        "min": numbers.min(0),
        "max": numbers.max(0),
        "mean": numbers.mean(0),
        "std": numbers.std(0),
        "count": [len(values)],
        **{name: np.quantile(numbers, share, axis=0) for name, share in make.QUANTILES.items()},
    }
    assert found.keys() == want.keys()
    for name, value in want.items():
        assert np.shape(found[name]) == np.shape(value)
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_statistics_of_numbers_are_those_of_the_exported_rows(exported):
    _, _, out, _ = exported
    stats = json.loads((out / "meta/stats.json").read_text())
    episodes = episodes_of(out)
    starts = np.cumsum([0, 5, 7, 6])
    for name, values in new_rows().items():
        check_statistics(stats[name], values)
        for episode in range(3):
            keys = [k for k in episodes if k.startswith(f"stats/{name}/")]
            found = {key.rpartition("/")[2]: episodes[key][episode] for key in keys}
            check_statistics(found, values[starts[episode] : starts[episode + 1]])
    assert "comment" not in stats


def test_statistics_of_pictures_are_joined_from_those_of_the_episodes(exported):
    version, _, out, result = exported
    stats = json.loads((out / "meta/stats.json").read_text())
    episodes = episodes_of(out)
    for number, name in enumerate([*make.CAMERAS, "wrist"]):
        if version == "v2.0":
            assert name not in stats
            assert name in "".join(result.notes)
            continue
        parts = [make.picture_stats(e, number) for e in KEPT]
        counts = np.array([part["count"][0] for part in parts])
        means = np.array([part["mean"] for part in parts])
        weights = (counts / counts.sum()).reshape(3, 1, 1, 1)
        mean = (means * weights).sum(0)
        second = (np.array([part["std"] for part in parts]) ** 2 + means**2) * weights
        np.testing.assert_allclose(stats[name]["mean"], mean, rtol=1e-12)
        np.testing.assert_allclose(stats[name]["std"], np.sqrt(second.sum(0) - mean**2), rtol=1e-9)
        assert stats[name]["min"] == np.min([part["min"] for part in parts], 0).tolist()
        assert stats[name]["max"] == np.max([part["max"] for part in parts], 0).tolist()
        assert stats[name]["count"] == [counts.sum()]
        for key in make.QUANTILES:
            want = (np.array([part[key] for part in parts]) * weights).sum(0)
            np.testing.assert_allclose(stats[name][key], want, rtol=1e-12)
        for key, value in parts[1].items():
            assert episodes[f"stats/{name}/{key}"][1] == value
    assert bool(result.notes) == (version == "v2.0")


def test_equal_exports_have_equal_bytes(exported, tmp_path):
    _, source, out, _ = exported
    export(verdict(source), tmp_path / "again")
    assert digests(tmp_path / "again") == digests(out)


def test_large_data_become_several_files_of_whole_episodes(tmp_path):
    source = make.v3(tmp_path / "source")
    info = json.loads((source / "meta/info.json").read_text())
    # LeRobot reads chunk-1000 before chunk-101: chunks are as large as their names allow.
    info |= {"data_files_size_in_mb": 1e-6, "chunks_size": 1}
    (source / "meta/info.json").write_text(json.dumps(info))
    export(verdict(source), tmp_path / "out")
    assert json.loads((tmp_path / "out/meta/info.json").read_text())["chunks_size"] == 1000
    episodes = episodes_of(tmp_path / "out")
    assert episodes["data/chunk_index"] == [0, 0, 0]
    assert episodes["data/file_index"] == [0, 1, 2]
    names = sorted(
        p.relative_to(tmp_path / "out/data") for p in (tmp_path / "out/data").glob("*/*")
    )
    assert [str(name) for name in names] == [
        "chunk-000/file-000.parquet",
        "chunk-000/file-001.parquet",
        "chunk-000/file-002.parquet",
    ]
    assert rows_of(tmp_path / "out")["index"] == list(range(18))
    stats = json.loads((tmp_path / "out/meta/stats.json").read_text())
    check_statistics(stats["action"], new_rows()["action"])


def change(path, **columns):
    """Replace columns of a Parquet file, or add them."""
    table = pq.read_table(path)
    for name, values in columns.items():
        if name in table.column_names:
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
        else:
            table = table.append_column(name, pa.array(values))
    pq.write_table(table, path)


def test_numbers_of_tasks_in_annotations_stay_right(tmp_path):
    """GR00T stores numbers of tasks in columns that begin with annotation."""
    source = make.v3(tmp_path / "source")
    info = json.loads((source / "meta/info.json").read_text())
    info["features"]["annotation.human.step"] = {"dtype": "int64", "shape": [1], "names": None}
    (source / "meta/info.json").write_text(json.dumps(info))
    (source / "meta/modality.json").write_text("{}")
    for number, count in ((0, 15), (1, 10)):
        change(
            source / f"data/chunk-000/file-{number:03d}.parquet",
            **{"annotation.human.step": np.full(count, 2)},
        )
    result = export(verdict(source), tmp_path / "out")
    tasks = pq.read_table(tmp_path / "out/meta/tasks.parquet").to_pydict()
    assert tasks["__index_level_0__"] == make.TASKS
    found = rows_of(tmp_path / "out")
    assert set(found["annotation.human.step"]) == {2}
    assert set(found["task_index"]) == {0, 3}
    assert (tmp_path / "out/meta/modality.json").read_text() == "{}"
    assert "all 4 tasks are kept" in "".join(result.notes)


def test_what_an_export_lacks_is_told(tmp_path):
    source = make.v2(tmp_path / "source")
    for episode in range(5):
        values = make.rows(episode)["matrix"].tolist()
        values[0][1][0] = float("nan") if episode == 2 else 0.0
        path = source / f"data/chunk-000/episode_{episode:06d}.parquet"
        change(path, matrix=values, extra=[1] * len(values))
    result = export(verdict(source), tmp_path / "out")
    stats = json.loads((tmp_path / "out/meta/stats.json").read_text())
    assert "matrix" not in stats
    assert "action" in stats
    assert "extra" not in rows_of(tmp_path / "out")
    assert any("matrix" in note and "NaN" in note for note in result.notes)
    assert any("extra" in note for note in result.notes)
    assert len(result.notes) == 2


def drop(path, *names):
    """Remove columns of a Parquet file."""
    pq.write_table(pq.read_table(path).drop_columns(list(names)), path)


def test_the_end_of_a_span_follows_from_its_start_and_length(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source")
    names = [f"videos/{camera}/to_timestamp" for camera in make.CAMERAS]
    drop(source / "meta/episodes/chunk-000/file-000.parquet", *names)
    export(verdict(source), tmp_path / "out")
    episodes = episodes_of(tmp_path / "out")
    for camera in make.CAMERAS:
        for key, end in (("from", 0), ("to", 1)):
            want = [make.spans(camera)[e][end] for e in KEPT]
            assert episodes[f"videos/{camera}/{key}_timestamp"] == pytest.approx(want)


@pytest.mark.parametrize("ends", [["from"], ["from", "to"]])
def test_a_dataset_without_the_starts_of_spans_is_refused(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source")
    camera = make.CAMERAS[1]
    names = [f"videos/{camera}/{end}_timestamp" for end in ends]
    drop(source / "meta/episodes/chunk-000/file-000.parquet", *names)
    refused(source, tmp_path / "out", f"no videos/{camera}/from_timestamp")


@pytest.mark.parametrize("key", ["min", "std", "count", "q01"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_statistics_of_pictures_with_nan_are_left_out(tmp_path, monkeypatch, key, bad):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source")
    path = source / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    name = f"stats/wrist/{key}"
    values = table[name].to_pylist()
    values[2] = [bad] if key == "count" else [[[bad]]] * 3
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, pa.array(values)), path)
    result = export(verdict(source), tmp_path / "out")
    stats = json.loads((tmp_path / "out/meta/stats.json").read_text())
    assert "wrist" not in stats
    assert make.CAMERAS[0] in stats
    assert [note for note in result.notes if "no statistics of wrist:" in note]


def test_statistics_of_pictures_that_cannot_be_read_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v2(tmp_path / "source")
    (source / "meta/episodes_stats.jsonl").write_text("no JSON\n")
    result = export(verdict(source), tmp_path / "out")
    stats = json.loads((tmp_path / "out/meta/stats.json").read_text())
    assert "action" in stats
    assert not {"wrist", *make.CAMERAS} & stats.keys()
    assert "wrist" in "".join(result.notes)


# ----------------------------------------------------------------------------------- what is refused


def refused(source, to, match, kept=KEPT, error=UsageError):
    given = verdict(source, kept)
    with pytest.raises(error, match=match):
        export(given, to)
    assert not to.exists() or to == source / "inside"
    assert list(to.parent.glob(".*.partial")) == []


def test_a_target_that_exists_or_lies_in_the_data_is_refused(tmp_path):
    source = make.v3(tmp_path / "source")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        export(verdict(source), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    refused(source, source / "inside", "lies in the data")
    assert not (source / "inside").exists()


def test_data_without_a_valid_episode_or_without_one_dataset_are_refused(tmp_path):
    source = make.v3(tmp_path / "one/source")
    refused(source, tmp_path / "out", "none of the 5 episodes is valid", kept=[])
    with pytest.raises(
        UsageError, match=r"could judge no episode: its schema .* or the files cannot be read"
    ):
        export(ScannedSamples(list_files(source), {"a.npy": True}), tmp_path / "out")
    make.v3(tmp_path / "one/other")
    refused(tmp_path / "one", tmp_path / "out", "holds 2 LeRobot datasets")
    (tmp_path / "none").mkdir()
    refused(tmp_path / "none", tmp_path / "out", "holds no LeRobot dataset")


def test_a_dataset_below_the_scanned_folder_is_exported(tmp_path):
    make.v3(tmp_path / "data/robot")
    export(verdict(tmp_path / "data", under="robot/"), tmp_path / "out")
    assert len(rows_of(tmp_path / "out")["index"]) == 18


def test_files_that_changed_since_the_scan_are_refused(tmp_path):
    for number, name in enumerate(
        ["data/chunk-000/file-001.parquet", f"videos/{make.CAMERAS[1]}/chunk-000/file-001.mp4"]
    ):
        source = make.v3(tmp_path / f"source{number}")
        given = verdict(source)
        data = (source / name).read_bytes()
        (source / name).write_bytes(data + data)
        with pytest.raises((UsageError, StorageError), match=f"{name}: .*changed"):
            export(given, tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
@pytest.mark.parametrize("how", ["info", "episodes", "added", "removed", "statistics"])
def test_a_meta_folder_that_changed_since_the_scan_is_refused(tmp_path, monkeypatch, version, how):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = MAKERS[version](tmp_path / "source")
    meta = source / "meta"
    is_v3 = version == "v3.0"
    episodes = meta / ("episodes/chunk-000/file-000.parquet" if is_v3 else "episodes.jsonl")
    if how == "statistics":
        (meta / "episodes_stats.jsonl").unlink(missing_ok=True)
    given = verdict(source)
    if how == "info":
        (meta / "info.json").write_text((meta / "info.json").read_text() + "\n")
    elif how == "episodes":
        os.utime(episodes, ns=(0, 0))  # the same bytes at another time
    elif how == "added":
        added = meta / ("episodes/chunk-000/file-001.parquet" if is_v3 else "tasks.parquet")
        shutil.copy(episodes, added)
    elif how == "removed":
        episodes.unlink()
    else:
        (meta / "episodes_stats.jsonl").write_text("")
    match = {"info": "has changed", "episodes": "has changed", "removed": "cannot be opened"}
    with pytest.raises(StorageError, match=match.get(how, "is new") + ".* since the scan"):
        export(given, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def test_a_meta_folder_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source")
    given = verdict(source)

    def change_then_read(base, names):
        os.utime(source / "meta/tasks.parquet", ns=(0, 0))
        return read_statistics(base, names)

    monkeypatch.setattr(lerobot_child, "read_statistics", change_then_read)
    with pytest.raises(StorageError, match=r"tasks.parquet: has changed since the scan"):
        export(given, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_video_is_refused(tmp_path):
    source = make.v3(tmp_path / "source")
    (source / f"videos/{make.CAMERAS[0]}/chunk-000/file-001.mp4").unlink()
    refused(source, tmp_path / "out", "file-001.mp4: this video is missing")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"task_index": [9] * 15}, "task 9 has no text"),
        ({"episode_index": [0] * 8 + [2] * 7}, "holds 8 rows of episode 0"),
        ({"episode_index": [2] * 7 + [1] * 3 + [0] * 5}, "in the order of the meta folder"),
        ({"episode_index": [0, 0, 2, 0, 0, 0] + [1] * 3 + [2] * 6}, "do not lie together"),
    ],
)
def test_rows_that_contradict_the_meta_folder_are_refused(tmp_path, columns, match):
    source = make.v3(tmp_path / "source")
    change(source / "data/chunk-000/file-000.parquet", **columns)
    refused(source, tmp_path / "out", match)


def inline(function, tasks, **_):
    for task in tasks:
        yield TaskResult(task, [resolve(function)(task, lambda _: None)])


def change_info(source, features=(), **values):
    path = source / "meta/info.json"
    info = json.loads(path.read_text()) | values
    for name, declared in dict(features).items():
        info["features"].setdefault(name, {}).update(declared)
    path.write_text(json.dumps({name: value for name, value in info.items() if value is not None}))


@pytest.mark.parametrize(
    ("death", "error"),
    [
        (Death(None, "Traceback\nKeyError: x", crash=True), DatacheckError),
        (Death(None, "no memory", kind="memory", machine=True), StorageError),
        (Death(None, "was killed", kind="killed"), StorageError),
        (Death(None, "took 3 GB", kind="memory"), UsageError),
        (Death(None, "segmentation fault"), UsageError),
    ],
)
def test_the_kind_of_error_says_why_the_child_ended(tmp_path, monkeypatch, death, error):
    source = make.v3(tmp_path / "source", videos=False)
    monkeypatch.setattr(lerobot, "ordered_map", lambda *_, **__: ended(death))
    with pytest.raises(DatacheckError, match=death.how.splitlines()[-1]) as caught:
        export(verdict(source), tmp_path / "out")
    assert type(caught.value) is error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def ended(death):
    yield TaskResult(None, [], deaths=[death])


def test_more_files_than_their_names_can_order_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    monkeypatch.setattr(lerobot_child, "_CHUNK_FILES", 2)
    for most, files in ((2, None), (1, "needs more than 2 files")):
        monkeypatch.setattr(lerobot_child, "_MOST_CHUNKS", most)
        source = make.v3(tmp_path / f"source{most}", videos=False)
        change_info(source, data_files_size_in_mb=1e-6)
        if files is None:
            export(verdict(source), tmp_path / "out2")
            found = episodes_of(tmp_path / "out2")
            assert found["data/chunk_index"] == [0, 0, 1]
            assert found["data/file_index"] == [0, 1, 0]
        else:
            refused(source, tmp_path / "out1", files)


@pytest.mark.parametrize("place", ["outer", "inner", "state"])
def test_rows_of_varying_width_are_refused(tmp_path, monkeypatch, place):
    """The number of values is right, their rows are not."""
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source", videos=False)
    matrix = [value for e in range(3) for value in make.rows(e)["matrix"].tolist()]
    state = [value for e in range(3) for value in make.rows(e)["observation.state"].tolist()]
    if place == "outer":
        matrix[0].append(matrix[1].pop())
    elif place == "inner":
        matrix[0][0].append(matrix[0][1].pop())
    else:
        state[0].append(state[1].pop())
    path = source / "data/chunk-000/file-000.parquet"
    change(path, **{"matrix": matrix, "observation.state": state})
    refused(source, tmp_path / "out", "has another shape")


def test_large_numbers_of_tasks_take_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v2(tmp_path / "source", videos=False)
    large = 999_999_999_999
    tasks = [
        {"task_index": large if i == 3 else i, "task": task} for i, task in enumerate(make.TASKS)
    ]
    make.write_lines(source / "meta/tasks.jsonl", tasks)
    for episode in (3, 4):
        path = source / f"data/chunk-000/episode_{episode:06d}.parquet"
        change(path, task_index=[large] * make.LENGTHS[episode])
    export(verdict(source), tmp_path / "out")
    assert rows_of(tmp_path / "out")["task_index"] == [0] * 12 + [1] * 6


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"action": {"dtype": "int7"}}, "'action' has the unknown dtype 'int7'"),
        ({"action": {"dtype": "float128"}}, "'action' has the unknown dtype 'float128'"),
        ({"index": {"dtype": "float32"}}, "index has the dtype float32, not an integer one"),
        ({"episode_index": {"dtype": "bool"}}, "episode_index has the dtype bool"),
        ({"task_index": {"dtype": "float64"}}, "task_index has the dtype float64"),
        ({"frame_index": {"dtype": "bool"}}, "frame_index has the dtype bool"),
        ({"lacking": {"dtype": "float32", "shape": [1]}}, "has no column lacking"),
        ({"lacking": {"dtype": "float32", "shape": [10**11, 10**11]}}, "has no column lacking"),
        ({"lacking": {"dtype": "float32", "shape": [1] * 100}}, "has no column lacking"),
    ],
)
def test_features_that_cannot_be_written_are_refused(tmp_path, monkeypatch, features, match):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source", videos=False)
    change_info(source, features)
    refused(source, tmp_path / "out", match)


def test_row_numbers_that_their_dtype_cannot_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    monkeypatch.setattr(make, "LENGTHS", [70, 3, 40, 3, 19])  # 129 kept rows: 0 to 128
    source = make.v3(tmp_path / "source", videos=False)
    change_info(source, {"index": {"dtype": "int8"}})
    refused(source, tmp_path / "out", "index has the dtype int8, .* 127; the export counts to 128")


def test_frame_numbers_that_float16_cannot_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    monkeypatch.setattr(make, "LENGTHS", [2050, 3, 4, 3, 5])  # 2,049 lies between two float16
    source = make.v3(tmp_path / "source", videos=False)
    change_info(source, {"frame_index": {"dtype": "float16"}})
    refused(source, tmp_path / "out", "frame_index has the dtype float16, .* 2,048; .* to 2,049")


@pytest.mark.parametrize("name", ["action", "episode_index"])
def test_two_columns_of_one_name_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source", videos=False)
    path = source / "data/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column(name, table[name]), path)
    refused(source, tmp_path / "out", "two columns have one name")


@pytest.mark.parametrize("fps", [None, 0, "10", True])
def test_a_dataset_without_a_rate_is_refused(tmp_path, monkeypatch, fps):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source", videos=False)
    change_info(source, fps=fps)
    refused(source, tmp_path / "out", "states no fps")


@pytest.mark.parametrize("size", [0, "100", True, -1])
def test_sizes_that_are_none_become_those_of_lerobot(tmp_path, monkeypatch, size):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source", videos=False)
    names = ("data_files_size_in_mb", "video_files_size_in_mb", "chunks_size")
    change_info(source, **dict.fromkeys(names[:2], size))
    export(verdict(source), tmp_path / "out")
    info = json.loads((tmp_path / "out/meta/info.json").read_text())
    assert [info[name] for name in names] == [100, 200, 1000]


def test_a_video_that_changes_while_it_is_copied_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    source = make.v3(tmp_path / "source")
    video = source / f"videos/{make.CAMERAS[0]}/chunk-000/file-000.mp4"
    copy_file = fsops.copy_file

    def copy_then_change(descriptor, goal, *args, **options):
        copy_file(descriptor, goal, *args, **options)
        video.write_bytes(video.read_bytes()[::-1])

    monkeypatch.setattr(fsops, "copy_file", copy_then_change)
    with pytest.raises(StorageError, match=r"file-000.mp4: changed while it was copied"):
        export(verdict(source), tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize("kind", ["create", "copy_range", "mkdir", "sync", "rename"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, kind):
    source = make.v3(tmp_path / "source")
    monkeypatch.setattr(lerobot, "ordered_map", inline)
    given = verdict(source)
    for number in range(40):
        monkeypatch.setattr(fsops, "SYSTEM", Refusing(kind, number, errno.ENOSPC))
        try:
            export(given, tmp_path / "out")
        except (OutOfSpaceError, StorageError):
            assert kind != "copy_range"  # the bytes are then read and written
        else:
            break
        finally:
            monkeypatch.setattr(fsops, "SYSTEM", fsops.System())
        assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]
    assert number or kind == "copy_range"
    assert len(rows_of(tmp_path / "out")["index"]) == 18


def test_a_disk_that_is_full_while_the_rows_are_written_leaves_nothing(tmp_path, monkeypatch):
    source = make.v3(tmp_path / "source")
    monkeypatch.setattr(lerobot, "ordered_map", inline)

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", refuse)
    given = verdict(source)
    with pytest.raises(OutOfSpaceError):
        export(given, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


# ------------------------------------------------------------------------------------------ quantiles


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "uint8"])
@pytest.mark.parametrize("held", [1, 1 << 20])
def test_quantiles_are_those_of_numpy(monkeypatch, dtype, held):
    monkeypatch.setattr(lerobot_stats, "_HELD_BYTES", held)
    random = np.random.default_rng(5)
    for count in (1, 2, 3, 10, 101, 500):
        values = (random.normal(size=(count, 2, 3)) * 50).astype(dtype)
        pieces = np.array_split(values, min(count, 4))
        found = lerobot_stats.exact_quantiles(
            lambda pieces=pieces: iter(pieces), count, (2, 3), values.itemsize
        )
        want = np.quantile(values.astype(np.float64), list(make.QUANTILES.values()), axis=0)
        np.testing.assert_allclose(found, want, rtol=1e-13)


# --------------------------------------------------------------------------------------- with lerobot


def test_lerobot_loads_the_same_items(tmp_path):
    """Each item of the export, and each window, equals the one of the source."""
    pytest.importorskip("lerobot", reason="lerobot is not installed")
    torch = pytest.importorskip("torch", reason="lerobot needs PyTorch")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    source = make.v3(tmp_path / "source", videos=False)
    for path in (source / "data").rglob("*.parquet"):  # pictures that decode
        change_pictures(path)
    export(verdict(source), tmp_path / "out")
    windows = {"action": [-0.2, -0.1, 0.0, 0.1, 0.2], "wrist": [-0.1, 0.0]}
    for deltas in (None, windows):
        old, new = (
            LeRobotDataset("a/b", root=root, episodes=episodes, delta_timestamps=deltas)
            for root, episodes in ((source, KEPT), (tmp_path / "out", None))
        )
        assert len(old) == len(new) == 18
        for place in range(18):
            one, other = old[place], new[place]
            assert one.keys() == other.keys()
            assert int(other["index"]) == place
            assert KEPT[int(other["episode_index"])] == int(one["episode_index"])
            for name in one.keys() - {"index", "episode_index", "task_index"}:
                same = (
                    torch.equal(one[name], other[name])
                    if isinstance(one[name], torch.Tensor)
                    else one[name] == other[name]
                )
                assert same, (place, name)


def change_pictures(path: Path) -> None:
    import io

    from PIL import Image

    pictures = []
    for row in range(pq.read_metadata(path).num_rows):
        file = io.BytesIO()
        Image.fromarray(np.full((2, 2, 3), 7 * row, np.uint8)).save(file, "PNG")
        pictures.append({"bytes": file.getvalue(), "path": None})
    change(path, wrist=pictures)
