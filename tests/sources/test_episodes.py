"""LeRobot datasets: episodes are the rows that share a number, and the meta folder is held against them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.cache import open_cache
from datacheck.errors import FormatError, SchemaError
from datacheck.pipeline import build
from datacheck.scan import scan
from datacheck.scan.rescore import Rescore, rescore
from datacheck.schema.load import load_schema, parse_schema
from datacheck.schema.model import EpisodeSpec, FieldSpec
from datacheck.sources import (
    Item,
    lerobot,
    list_files,
    open_source,
    plan_work,
    with_indexes,
    with_rate,
)
from datacheck.sources.lerobot import _filled
from datacheck.sources.named_files import _lost_videos
from datacheck.sources.roots import Roots
from tests.sources.schemas import every, facts, schema

LENGTHS = [5, 3, 7, 4]
TASKS = ["lift the cup", "café", "never done"]  # of episode i: number i % 2
FPS = 10
FEATURES = {
    "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
    "observation.state": {"dtype": "float32", "shape": [3]},
    **{name: {"dtype": "float32", "shape": [1]} for name in ("timestamp",)},
    **{
        name: {"dtype": "int64", "shape": [1]}
        for name in ("frame_index", "episode_index", "index", "task_index")
    },
}
V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Scans leave their results in the working directory."""
    monkeypatch.chdir(tmp_path)


def rows(episode):
    """The columns of one episode; each number is its own."""
    length = LENGTHS[episode]
    t = np.arange(length)
    return {
        "action": (t[:, None] * np.float32([1, -1]) / 8 + episode).astype(np.float32),
        "observation.state": np.sin(t[:, None] + np.arange(3) + episode).astype(np.float32),
        "timestamp": (t / FPS).astype(np.float32),
        "frame_index": t,
        "episode_index": np.full(length, episode),
        "index": t + sum(LENGTHS[:episode]),
        "task_index": np.full(length, episode % 2),
    }


def table(*episodes, **changed):
    parts = [rows(episode) for episode in episodes]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} | changed
    lists = {
        n: pa.array(v.tolist(), pa.list_(pa.float32())) if v.ndim > 1 else v
        for n, v in columns.items()
    }
    return pa.table(lists)


def info(folder, version, path, **changed):
    (folder / "meta").mkdir(parents=True)
    said = {
        "codebase_version": version,
        "fps": FPS,
        "chunks_size": 1000,
        "data_path": path,
        "features": FEATURES,
        "total_episodes": 4,
        "total_frames": sum(LENGTHS),
        "total_tasks": 3,
    }
    (folder / "meta/info.json").write_text(json.dumps(said | changed))


def v2(folder, lengths=LENGTHS):
    info(folder, "v2.1", V2, total_frames=sum(lengths))
    lines = [{"episode_index": i, "tasks": ["lift"], "length": n} for i, n in enumerate(lengths)]
    (folder / "meta/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tasks = [{"task_index": i, "task": task} for i, task in enumerate(TASKS)]
    (folder / "meta/tasks.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in reversed(tasks))
    )
    (folder / "data/chunk-000").mkdir(parents=True)
    for episode in range(4):
        pq.write_table(table(episode), folder / f"data/chunk-000/episode_{episode:06d}.parquet")
    return folder


def v3(folder, lengths=LENGTHS, numbers=(0, 1, 2, 3)):
    info(folder, "v3.0", V3, total_frames=sum(lengths))
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    said = {"episode_index": list(numbers), "tasks": [["lift"]] * 4, "length": lengths}
    said |= {"data/chunk_index": [0] * 4, "data/file_index": [0, 0, 0, 1]}
    pq.write_table(pa.table(said), folder / "meta/episodes/chunk-000/file-000.parquet")
    tasks(folder)
    (folder / "data/chunk-000").mkdir(parents=True)
    pq.write_table(table(0, 1, 2), folder / "data/chunk-000/file-000.parquet", row_group_size=4)
    pq.write_table(table(3), folder / "data/chunk-000/file-001.parquet")
    return folder


def tasks(folder, numbers=(0, 1, 2), name="__index_level_0__"):
    """What LeRobot 0.4 writes: a pandas frame whose index has the texts and no name; later ones call it task."""
    pq.write_table(
        pa.table({"task_index": list(numbers), name: TASKS}), folder / "meta/tasks.parquet"
    )


def item(folder, path):
    return Item(
        path, "", {"chunk": "000", "file": path[-14:-8]}, nbytes=(folder / path).stat().st_size
    )


def read(folder, path="data/chunk-000/file-000.parquet"):
    return every(open_source(load_schema("lerobot"), folder), item(folder, path))


@pytest.mark.parametrize("make", [v2, v3])
def test_a_cache_of_a_dataset_has_its_episodes(tmp_path, make):
    data = make(tmp_path / "data")
    run = scan(data)
    assert run.schema.name == "lerobot"
    assert run.codes == [()] * 4
    assert [key[-12:] for key in run.table.keys] == [f"{i:012d}" for i in range(4)]
    (built,) = build(load_schema("lerobot"), data, tmp_path / "cache")
    cache = open_cache(built.path, verify="full")
    action, lengths = cache.gather_ragged("action", np.arange(4))
    assert lengths.tolist() == LENGTHS
    assert np.array_equal(action, np.concatenate([rows(i)["action"] for i in range(4)]))
    assert np.array_equal(cache.gather_ragged("state", [2])[0], rows(2)["observation.state"])
    assert np.array_equal(cache.gather_ragged("timestamp", [3])[0], np.float32([0, 0.1, 0.2, 0.3]))
    assert cache.texts("task", np.arange(4)) == [TASKS[0], TASKS[1], TASKS[0], TASKS[1]]
    assert not any("no sample uses" in said for said in run.report.unchecked)


def test_single_episodes_of_a_file_are_read_by_their_own_number(tmp_path):
    folder = v3(tmp_path / "data")
    path = "data/chunk-000/file-000.parquet"
    keys = (f"{path}:000000000002", f"{path}:000000000003", f"{path}:000000000000")
    asked = Item(path, "", {"chunk": "000", "file": "000"}, keys)
    samples, unread = every(open_source(load_schema("lerobot"), folder), asked)
    assert {key: len(sample["action"]) for key, sample in samples.items()} == {
        keys[0]: 7,
        keys[2]: 5,
    }
    assert [lost.key for lost in unread] == [keys[1]]


def test_lengths_are_held_against_the_meta_folder(tmp_path):
    folder = v2(tmp_path / "data", [5, 3, 8, 4])
    path = "data/chunk-000/episode_000002.parquet"
    told = facts(open_source(load_schema("lerobot"), folder), item(folder, path))
    assert told[f"{path}:000000000002"]["attrs/length"] == 8
    assert scan(folder).codes == [(), (), ("DC111",), ()]


def test_an_episode_that_is_not_in_its_file_is_named(tmp_path):
    folder = v3(tmp_path / "data")
    pq.write_table(table(0, 2), folder / "data/chunk-000/file-000.parquet")
    samples, (lost,) = read(folder)
    assert [key[-1] for key in samples] == ["0", "2"]
    assert (lost.key[-1], lost.code) == ("1", "DC105")


def test_an_episode_of_another_file_is_refused(tmp_path):
    """LeRobot reads all files behind one another: the rows of all later episodes would be others."""
    folder = v2(tmp_path / "data")
    more = "data/chunk-000/episode_0000001.parquet"
    pq.write_table(table(1), folder / more)
    run = scan(folder)
    assert [row for row, codes in zip(run.table.keys, run.codes, strict=True) if codes] == [more]
    (reason,) = [reason for reason in run.table.reasons if reason]
    assert (
        reason == "DC101 holds episode 1, which meta/episodes names in "
        "data/chunk-000/episode_000001.parquet"
    )
    (folder / "data/chunk-000/episode_000001.parquet").rename(
        folder / "data/chunk-000/episode_000009.parquet"
    )
    (folder / more).unlink()  # what the meta folder names is not there: a name is no second episode
    assert not any(run.codes[i] for i, key in enumerate(scan(folder).table.keys) if "000009" in key)


WRONG = {
    "episode 2, which meta/episodes does not name": lambda f: remeta(f, numbers=(0, 1, 7, 3)),
    "its numbers fall": lambda f: redata(f, episode_index=np.array([0] * 5 + [2] * 3 + [1] * 7)),
    "info.json names it, but the file has no such column": lambda f: redata(
        f, drop="observation.state"
    ),
    r"action: \[3\] float32, but meta/info.json declares \[2\] float32": lambda f: redata(
        f, action=np.zeros((15, 3))
    ),
    r"timestamp: \[\] int64": lambda f: redata(f, timestamp=np.arange(15)),
    "an episode stands there twice": lambda f: remeta(f, numbers=(0, 1, 1, 3)),
    "found neither meta/episodes.jsonl nor": lambda f: (
        f / "meta/episodes/chunk-000/file-000.parquet"
    ).unlink(),
    "meta/info.json: No such file": lambda f: (f / "meta/info.json").unlink(),
    "meta/info.json: found no features": lambda f: (f / "meta/info.json").write_text("{}"),
    "meta/info.json: feature 'a' says no dtype": lambda f: (f / "meta/info.json").write_text(
        '{"features": {"a": 1}}'
    ),
    "meta/episodes/chunk-000/file-000.parquet: not a Parquet": lambda f: remeta(
        f, data=b"PAR2" * 9
    ),
}


WRONG |= {
    "task_index: found 3, which meta/tasks does not name": lambda f: redata(
        f, task_index=np.full(15, 3)
    ),
    "task_index: found -1, which meta/tasks does not": lambda f: redata(
        f, task_index=np.full(15, -1)
    ),
    "meta/tasks.parquet: task_index does not count from 0": lambda f: tasks(f, (1, 0, 2)),
    "meta/tasks.parquet: has no column of texts": lambda f: tasks(f, name="words"),
    "meta/tasks.parquet: not a Parquet file": lambda f: (f / "meta/tasks.parquet").write_bytes(
        b"PAR2" * 9
    ),
}


WRONG |= {
    r"episode 1 has the rows 4 to 8 \(dataset_from_index, dataset_to_index\); "
    "by its 3 steps they are 5 to 8": lambda f: indices(f, [0, 4, 8, 15], [5, 8, 15, 19]),
    "episode 3 has the rows 1,000 to 1,004": lambda f: indices(
        f, [0, 5, 8, 1000], [5, 8, 15, 1004]
    ),
}


def indices(folder, begins, ends):
    path = folder / "meta/episodes/chunk-000/file-000.parquet"
    old = pq.read_table(path)
    made = old.append_column("dataset_from_index", pa.array(begins))
    pq.write_table(made.append_column("dataset_to_index", pa.array(ends)), path)


def test_the_rows_of_episodes_that_lerobot_reads_are_their_own(tmp_path):
    folder = v3(tmp_path / "data")
    starts = np.cumsum([0, *LENGTHS]).tolist()
    indices(folder, starts[:-1], starts[1:])
    assert len(read(folder)[0]) == 3


def redata(folder, drop="", **changed):
    made = table(0, 1, 2, **changed)
    pq.write_table(
        made.drop_columns([drop]) if drop else made, folder / "data/chunk-000/file-000.parquet"
    )


def remeta(folder, numbers=(0, 1, 2, 3), data=None):
    path = folder / "meta/episodes/chunk-000/file-000.parquet"
    if data is not None:
        path.write_bytes(data)
        return
    old = pq.read_table(path)
    pq.write_table(old.set_column(0, "episode_index", pa.array(numbers)), path)


@pytest.mark.parametrize("reason", WRONG)
def test_a_file_and_a_meta_folder_that_do_not_fit_are_refused(tmp_path, reason):
    folder = v3(tmp_path / "data")
    WRONG[reason](folder)
    with pytest.raises(FormatError, match=reason):
        read(folder)


def test_the_meta_folder_is_among_the_files_of_an_item(tmp_path):
    """So that a scan looks again when only it has changed."""
    folder = v3(tmp_path / "data")
    path = "data/chunk-000/file-001.parquet"
    source = open_source(load_schema("lerobot"), folder)
    meta = ["meta/info.json", "meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"]
    assert source.files(item(folder, path)) == [path, *meta]


@pytest.mark.parametrize(
    "place",
    ["{chunk_index.__class__}", "{chunk_index!s:0>3}", "{chunk_index:c}", "{other:03d}", "{{}}"],
)
def test_a_template_of_the_meta_folder_is_no_program(tmp_path, place):
    folder = v3(tmp_path / "data")
    path = folder / "meta/info.json"
    path.write_text(path.read_text().replace("{chunk_index:03d}", place))
    with pytest.raises(FormatError, match=r"meta/info\.json: the template of a path has"):
        read(folder)


@pytest.mark.parametrize("form", ["06x", "_>6", "d", "_d", "255d"])
def test_a_template_is_filled_as_python_does(form):
    assert _filled(f"data/{{n:{form}}}.parquet", {"n": 26}) == f"data/{format(26, form)}.parquet"


@pytest.mark.parametrize("form", ["06s", "99999999999d", "999d", "c", "+-d"])
def test_a_form_that_is_none_of_a_number_is_refused(form):
    with pytest.raises(FormatError, match="the template of a path has"):
        _filled(f"data/{{n:{form}}}.parquet", {"n": 26})


# ------------------------------------------------------------------------------- tasks, rate, files

TOLD = {
    "names": {"dtype": "json", "at": "@tasks"},
    "steps": {"at": "@length"},
    "task": {"at": "@task", "dtype": "text"},
}
SAMPLES = {"files": "data/chunk-{chunk}/file-{file}.parquet", "each": "episode"}


def test_an_episode_whose_steps_have_several_tasks_has_them_all_and_not_one(tmp_path):
    folder = v3(tmp_path / "data")
    tasks(folder, name="task")
    redata(folder, task_index=np.array([1, 1, 0, 1, 0] + [0] * 3 + [1] * 7))
    source = open_source(schema(SAMPLES, TOLD), folder)
    found, unread = every(source, item(folder, "data/chunk-000/file-000.parquet"))
    assert unread == []
    first, second, third = found.values()
    assert first == {"names": [TASKS[1], TASKS[0]], "steps": 5}
    assert second == {"names": [TASKS[0]], "task": TASKS[0], "steps": 3}
    assert third == {"names": [TASKS[1]], "task": TASKS[1], "steps": 7}


@pytest.mark.parametrize("make", [v2, v3])
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["pan.pos", "lift.pos", "grip"], "pan.pos,lift.pos,grip"),
        ({"motors": ["pan", "lift", "grip"]}, "pan,lift,grip"),
        (None, None),
        (["pan", "lift"], None),
        (["pan", "pan", "grip"], None),
        (["pan", 3, "grip"], None),
        (["pan,lift", "b", "c"], None),
        (["a" * 700, "b" * 700, "c" * 700], None),
        ({"pan": 0, "lift": 1, "grip": 2}, None),
    ],
)
def test_the_names_of_columns_are_a_fact_of_each_episode(tmp_path, make, names, told):
    folder = make(tmp_path / "data")
    state = FEATURES["observation.state"] | {"names": names}
    info_of(folder, features=FEATURES | {"observation.state": state})
    path = sorted((folder / "data/chunk-000").iterdir())[0].relative_to(folder).as_posix()
    said = facts(open_source(load_schema("lerobot"), folder), item(folder, path))
    assert {f.get("names/state") for f in said.values()} == {told}
    assert {f["names/action"] for f in said.values()} == {"x,y"}


def test_without_a_list_of_tasks_there_are_no_texts(tmp_path):
    folder = v3(tmp_path / "data")
    (folder / "meta/tasks.parquet").unlink()
    found, unread = read(folder)
    assert unread == []
    assert not any("task" in sample for sample in found.values())


def test_an_old_list_of_tasks_does_not_count_beside_that_of_version_3(tmp_path):
    folder = v3(tmp_path / "data")
    (folder / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "of old"}))
    (folder / "meta/episodes.jsonl").write_text(json.dumps({"episode_index": 0, "length": 99}))
    found, _ = read(folder)
    assert [sample["task"] for sample in found.values()] == [TASKS[0], TASKS[1], TASKS[0]]
    assert scan(folder).codes == [()] * 4


def test_an_attribute_that_no_episode_has_is_a_fault_of_the_schema():
    with pytest.raises(
        SchemaError, match="an episode has no attribute @success; there are @length, @task, @tasks"
    ):
        parse_schema(
            json.dumps(
                {
                    "datacheck": 1,
                    "name": "a",
                    "samples": SAMPLES,
                    "fields": {"x": {"at": "@success"}},
                }
            )
        )


def codes(run):
    return {finding.code for finding in run.report.findings}


def test_the_rate_of_the_meta_folder_is_held_against_the_time_stamps(tmp_path):
    folder = v3(tmp_path / "data")
    assert "DC503" not in codes(scan(folder))
    info_of(folder, fps=2 * FPS)
    assert "DC503" in codes(scan(folder))
    mine = load_schema("lerobot").model_copy(update={"episode": EpisodeSpec(fps=FPS)})
    assert "DC503" not in codes(scan(folder, mine))  # what the schema says counts


@pytest.mark.parametrize("wrong", ["a", "b", "c"])
def test_each_dataset_is_held_against_its_own_rate(tmp_path, wrong):
    """A second dataset with another rate took the rate from all: DC503 was "not seen" for every sample."""
    v3(tmp_path / "data/a")
    v2(tmp_path / "data/b")
    at_another_rate(v3(tmp_path / "data/c"))
    run = scan(tmp_path / "data", "lerobot", output=tmp_path / "sound")
    assert "DC503" not in codes(run)
    assert next(one.checked for one in run.report.verdicts if one.code == "DC503") == len(run.table)
    assert not any("not judged" in line for line in run.report.unchecked)
    # A page draws samples of all three
    assert run.schema.episode is None or run.schema.episode.fps is None
    info_of(tmp_path / "data" / wrong, fps=4 * FPS)
    run = scan(tmp_path / "data", "lerobot", output=tmp_path / "wrong")
    (finding,) = (one for one in run.report.findings if one.code == "DC503")
    assert {run.table.files[row].split("/")[0] for row in finding.rows} == {wrong}
    assert finding.failed == sum(file.startswith(wrong) for file in run.table.files)
    assert finding.expected == {"fps": 4 * FPS}


def test_a_finished_run_is_judged_again_by_the_rates_that_were_scanned(tmp_path):
    """`rescore` did not ask for the rates: DC503 was gone, and nothing said so."""
    v3(tmp_path / "data/a")
    info_of(v3(tmp_path / "data/b"), fps=2 * FPS)
    run = scan(tmp_path / "data", "lerobot", output=tmp_path / "run")
    assert "DC503" in codes(run)
    again = rescore(Rescore(tmp_path / "run", output=tmp_path / "again"))
    assert [(one.code, one.message) for one in again.report.findings] == [
        (one.code, one.message) for one in run.report.findings
    ]
    info_of(tmp_path / "data/b", fps=FPS)
    again = rescore(Rescore(tmp_path / "run", output=tmp_path / "later"))
    assert "DC503" not in codes(again)
    assert any(
        "b/meta/info.json" in line and "is not what was scanned" in line
        for line in again.report.unchecked
    )


def at_another_rate(folder):
    """Let a dataset run, and say that it runs, at 2.5 times the rate of the others."""
    for path in folder.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("timestamp")
        times = pa.array(table["timestamp"].to_numpy() / 2.5, table.schema.field(place).type)
        pq.write_table(table.set_column(place, table.schema.field(place), times), path)
    info_of(folder, fps=2.5 * FPS)


def test_a_large_document_takes_the_rate_of_no_other_dataset(tmp_path, monkeypatch):
    folder = v3(tmp_path / "data/b")
    v3(tmp_path / "data/a")
    monkeypatch.setattr(lerobot, "_ALL_INFO_BYTES", (folder / "meta/info.json").stat().st_size)
    with (tmp_path / "data/a/meta/info.json").open("a") as file:
        file.write(" " * 100)
    found, others, (note,) = with_rate(load_schema("lerobot"), list_files(tmp_path / "data"))
    assert (found.episode, others) == (EpisodeSpec(fps=FPS), {"a/": None})
    assert note.reason.startswith("is not read: the info.json of all datasets have more than ")


def test_of_many_rates_those_of_most_files_are_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "_MOST_RATES", 2)
    for number, rate in enumerate([FPS, FPS, 7, 7, 5, 6]):
        info_of(v3(tmp_path / f"data/{number}"), fps=rate)
    found, others, (note,) = with_rate(load_schema("lerobot"), list_files(tmp_path / "data"))
    assert (found.episode, others) == (
        EpisodeSpec(fps=7),
        {"0/": FPS, "1/": FPS, "4/": None, "5/": None},
    )
    assert (
        note.reason == "tells a rate beside the 2 that most files have (1 more with another rate)"
    )
    run = scan(tmp_path / "data", "lerobot", output=tmp_path / "run")
    told = {one.message: one.severity.value for one in run.report.findings if one.code == "DC105"}
    assert told == {f"1 name (4/meta/info.json): {note.reason}.": "error"}
    assert run.report.exit_code == 1


def test_datasets_without_a_rate_hide_none_whose_rate_is_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot, "_MOST_RATES", 1)
    for number, rate in enumerate([None, FPS, FPS, 7]):
        info_of(v3(tmp_path / f"data/{number}"), fps=rate)
    notes = with_rate(load_schema("lerobot"), list_files(tmp_path / "data")).notes
    assert [(one.code, one.key) for one in notes] == [
        ("DC503", "0/meta/info.json"),
        ("DC105", "3/meta/info.json"),
    ]


@pytest.mark.parametrize("rate", [0, "10", 1e-7, 1e-320, 1e300])
def test_a_rate_that_is_none_is_told(tmp_path, rate):
    folder = v3(tmp_path / "data")
    text = (folder / "meta/info.json").read_text()
    (folder / "meta/info.json").write_text(
        text.replace(f'"fps": {FPS}', f'"fps": {json.dumps(rate)}')
    )
    run = scan(folder)
    (finding,) = run.report.findings
    assert (finding.code, finding.measured["first"]) == ("DC105", ["meta/info.json"])


def info_of(folder, **changed):
    path = folder / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.parametrize("make", [v2, v3])
def test_a_data_file_that_is_gone_is_named(tmp_path, make):
    folder = make(tmp_path / "data")
    gone = sorted((folder / "data/chunk-000").iterdir())[-1]
    gone.unlink()
    run = scan(folder)
    path = gone.relative_to(folder).as_posix()
    (finding,) = run.report.findings
    assert (finding.code, finding.measured["missing"]) == ("DC105", [path])
    place = run.table.keys.index(path)
    assert run.table.reasons[place].endswith("names it (episode 3), but it is gone")
    assert run.codes[place] == ("DC105",)
    (built,) = build(load_schema("lerobot"), folder, tmp_path / "cache")
    assert (built.samples, built.valid) == (4, 3)


def test_a_meta_folder_that_cannot_be_read_is_told_by_the_files_it_speaks_of(tmp_path):
    folder = v3(tmp_path / "data")
    remeta(folder, data=b"PAR1" + bytes(40) + b"PAR1")
    assert set(scan(folder, "lerobot").codes) == {("DC101",)}


@pytest.mark.parametrize(
    "name", ["meta/info.json", "meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet"]
)
def test_a_pipe_in_the_meta_folder_is_not_waited_for(tmp_path, name):
    folder = v3(tmp_path / "data")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    source = open_source(load_schema("lerobot"), folder)
    if name == "meta/tasks.parquet":
        assert len(read(folder)[0]) == 3
    else:
        with pytest.raises(FormatError, match=r"not a regular file|found neither"):
            every(source, item(folder, "data/chunk-000/file-000.parquet"))
    assert with_rate(load_schema("lerobot"), list_files(folder))[0].episode == (
        None if name == "meta/info.json" else EpisodeSpec(fps=FPS)
    )


@pytest.mark.parametrize(
    "place", ["../data/chunk-{chunk_index:03d}/", "/data/chunk-{chunk_index:03d}/", "\0"]
)
def test_a_meta_folder_that_names_files_elsewhere_is_told_and_none_is_looked_for(tmp_path, place):
    folder = v3(tmp_path / "data")
    info_of(folder, data_path=place + "file-{file_index:03d}.parquet")
    listing, spec = list_files(folder), load_schema("lerobot")
    notes = with_indexes(plan_work(spec, listing), spec, listing).notes
    (note,) = [note for note in notes if note.code != "DC518"]
    assert (note.code, note.key, note.missing) == ("DC105", "meta/info.json", False)
    # The episodes of the helper lie in two files.
    assert "names files outside of its folder" in note.reason
    assert "2 of 2 files of episodes, such as" in note.reason


def test_the_rate_that_a_dataset_tells_now_is_none_of_a_listing_of_before(tmp_path):
    folder = v3(tmp_path / "data")
    spec, listing, path = (
        load_schema("lerobot"),
        list_files(folder),
        "data/chunk-000/file-000.parquet",
    )
    told = with_rate(spec, listing, [path])[0].episode
    assert told == with_rate(spec, listing)[0].episode != spec.episode
    info = folder / "meta/info.json"
    info.write_text(info.read_text() + " ")
    assert with_rate(spec, listing, [path])[0].episode == spec.episode
    assert with_rate(spec, listing)[0].episode == told


def test_a_damaged_document_takes_no_rate_without_a_word(tmp_path):
    v3(tmp_path / "data/a")
    (v3(tmp_path / "data/b") / "meta/info.json").write_text("{")
    found, others, (note,) = with_rate(load_schema("lerobot"), list_files(tmp_path / "data"))
    assert (found.episode, others) == (EpisodeSpec(fps=FPS), {"b/": None})
    assert (note.key, note.reason) == ("b/meta/info.json", "tells no rate")


@pytest.mark.parametrize("told", [FPS, None])
def test_a_dataset_that_tells_no_rate_is_named_and_judged_by_none(tmp_path, told):
    v3(tmp_path / "data/a")
    info_of(v3(tmp_path / "data/b"), fps=told)
    found, others, notes = with_rate(load_schema("lerobot"), list_files(tmp_path / "data"))
    assert (found.episode, others) == (EpisodeSpec(fps=FPS), {} if told else {"b/": None})
    assert [note.reason for note in notes] == ([] if told else ["tells no rate"])
    report = scan(tmp_path / "data", "lerobot", output=tmp_path / "out").report
    said = [
        line
        for line in report.unchecked
        if "what needs the steps a second was not judged there" in line
    ]
    assert len(said) == len(notes)
    (verdict,) = (one for one in report.verdicts if one.code == "DC503")
    assert verdict.checked == (8 if told else 4)
    assert verdict.unseen == (
        ()
        if told
        else ("4 samples not judged: the dataset of their file does not tell its steps a second",)
    )


# ------------------------------------------------------------------------------ LeRobot's own files


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_episodes_that_lerobot_wrote_have_the_values_that_it_was_given(version):
    """What scripts/corpus/peers.py gives them."""
    folder = Path(__file__).parent / "lerobot" / version
    spec = load_schema("lerobot")
    spec = spec.model_copy(
        update={
            "fields": {
                **spec.fields,
                "tasks": FieldSpec(dtype="json", at="@tasks"),
                "*": FieldSpec(),
            }
        }
    )
    listing = list_files(folder)
    work = with_indexes(plan_work(spec, listing), spec, listing)
    # What a policy may ask for is no fault.
    assert [note for note in work.notes if note.code != "DC518"] == []
    assert all("stats" in path for path in work.unclaimed)
    assert with_rate(spec, listing)[0].episode == EpisodeSpec(fps=10)
    found = {}
    for asked in work.items:
        samples, unread = every(open_source(spec, folder), asked)
        assert unread == []
        found |= {int(key[-12:]): sample for key, sample in samples.items()}
    for e, length in enumerate((3, 2, 4)):
        sample, t = found[e], np.arange(length)
        assert np.array_equal(sample["state"], np.float32(np.stack([t * 0 + e, t, e * t], axis=1)))
        assert np.array_equal(sample["action"], np.float32(np.stack([t, -t], axis=1)) / 8)
        assert np.array_equal(sample["matrix"], [[[i, 1], [e, 0.1]] for i in t])
        assert sample["next.done"].tolist() == [i == length - 1 for i in t]
        assert sample["note"] == [f"n{i}" for i in t]
        assert np.array_equal(sample["timestamp"], np.float32(t / 10))
        assert sample["frame_index"].tolist() == t.tolist()
    assert [found[e].get("task") for e in range(3)] == ["lift the cup", "caf\u00e9", None]
    assert found[2]["tasks"] == ["lift the cup", "caf\u00e9"]


def with_videos(folder, version, names=("front", "wrist")):
    """Let a dataset name two cameras, and give it their videos; return the paths."""
    template = {"v2": V2_VIDEO, "v3": V3_VIDEO}[version]
    numbers = {name: said for name, said in FEATURES.items() if said["dtype"] != "video"}
    features = numbers | {name: {"dtype": "video", "shape": [4, 4, 3]} for name in names}
    info_of(folder, features=features, video_path=template)
    if version == "v3":
        path = folder / "meta/episodes/chunk-000/file-000.parquet"
        table = pq.read_table(path)
        for name in names:
            table = table.append_column(f"videos/{name}/chunk_index", pa.array([0] * 4))
            table = table.append_column(f"videos/{name}/file_index", pa.array([0, 0, 1, 1]))
        pq.write_table(table, path)
        paths = [
            f"videos/{name}/chunk-000/file-{file:03d}.mp4" for name in names for file in range(2)
        ]
    else:
        paths = [
            f"videos/chunk-000/{name}/episode_{episode:06d}.mp4"
            for name in names
            for episode in range(4)
        ]
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(bytes(10))
    return paths


V2_VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
V3_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


@pytest.mark.parametrize(("make", "version"), [(v2, "v2"), (v3, "v3")])
def test_videos_that_the_meta_folder_names_and_that_are_gone_are_an_error(tmp_path, make, version):
    folder = make(tmp_path / "data")
    paths = with_videos(folder, version)
    base = Roots(folder, {}).file("")
    assert _lost_videos(base) == []
    (folder / paths[-1]).unlink()
    (said,) = _lost_videos(base)
    assert said == f"names videos that are not there: 1 of {len(paths)}, such as {paths[-1]}"


@pytest.mark.parametrize("prefix", ["./", "videos/../", ".//"])
@pytest.mark.parametrize(("make", "version"), [(v2, "v2"), (v3, "v3")])
def test_videos_that_are_gone_are_missed_however_their_paths_are_written(
    tmp_path, make, version, prefix
):
    folder = make(tmp_path / "data")
    paths = with_videos(folder, version)
    info_of(folder, video_path=prefix + (V2_VIDEO if version == "v2" else V3_VIDEO))
    base = Roots(folder, {}).file("")
    assert _lost_videos(base) == []
    (folder / paths[-1]).unlink()
    (said,) = _lost_videos(base)
    assert said == f"names videos that are not there: 1 of {len(paths)}, such as {paths[-1]}"


@pytest.mark.parametrize("prefix", ["../", "/", "videos/../../"])
def test_videos_outside_of_the_dataset_are_an_error(tmp_path, prefix):
    folder = v3(tmp_path / "data")
    with_videos(folder, "v3")
    info_of(folder, video_path=prefix + V3_VIDEO)
    (finding,) = scan(folder).report.findings
    assert (finding.code, finding.severity) == ("DC105", "error")
    assert "names files outside of its folder" in finding.message
    assert "4 of 4 videos, such as" in finding.message


@pytest.mark.parametrize("template", ["{video_key.x}.mp4", "{unknown:03d}.mp4", "{video_key:d}"])
def test_a_template_of_videos_that_cannot_be_filled_is_an_error(tmp_path, template):
    """Otherwise it would switch the search for lost videos off."""
    folder = v3(tmp_path / "data")
    with_videos(folder, "v3")
    info_of(folder, video_path=template)
    (finding,) = scan(folder).report.findings
    assert (finding.code, finding.severity) == ("DC105", "error")
    assert "names videos by a template that cannot be filled" in finding.message


def test_files_of_episodes_are_missed_however_their_paths_are_written(tmp_path):
    folder = v3(tmp_path / "data")
    template = json.loads((folder / "meta/info.json").read_text())["data_path"]
    info_of(folder, data_path=f"./{template}")
    assert scan(folder).report.findings == []
    gone = sorted((folder / "data").rglob("*.parquet"))[-1]
    gone.unlink()
    (finding,) = scan(folder).report.findings
    assert finding.code == "DC105"
    assert finding.measured["missing"] == [gone.relative_to(folder).as_posix()]


def test_a_scan_of_a_dataset_without_its_videos_is_an_error(tmp_path):
    folder = v3(tmp_path / "data")
    for path in with_videos(folder, "v3"):
        (folder / path).unlink()
    run = scan(folder)
    (finding,) = run.report.findings
    assert (finding.code, finding.severity, finding.fix) == (
        "DC105",
        "error",
        "Restore the videos.",
    )
    assert "4 of 4, such as videos/front/chunk-000/file-000.mp4" in finding.message
    assert run.report.exit_code == 1
    assert run.valid.all()


def test_a_dataset_that_tells_no_places_of_videos_misses_none(tmp_path):
    folder = v3(tmp_path / "data")
    info_of(folder, features=FEATURES | {"front": {"dtype": "video", "shape": [4, 4, 3]}})
    assert _lost_videos(Roots(folder, {}).file("")) == []
    info_of(folder, video_path=V3_VIDEO)  # its table of episodes has no columns for it
    assert _lost_videos(Roots(folder, {}).file("")) == []


@pytest.mark.parametrize("make", [v2, v3])
def test_actions_of_every_episode_are_taken_for_action(tmp_path, make):
    folder = make(tmp_path / "d")
    said = json.loads((folder / "meta/info.json").read_text())
    said["features"]["actions"] = said["features"].pop("action")
    (folder / "meta/info.json").write_text(json.dumps(said))
    for path in (folder / "data").rglob("*.parquet"):
        found = pq.read_table(path)
        pq.write_table(
            found.rename_columns(
                [name.replace("action", "actions") for name in found.column_names]
            ),
            path,
        )
    run = scan(folder, "lerobot")
    (finding,) = [f for f in run.report.findings if f.code == "DC121"]
    assert (str(finding.severity), tuple(finding.fields)) == ("info", ("action",))
    assert finding.message == "4 samples have actions where the schema names action: taken for it."
    assert run.valid.all()
    assert any(name.startswith("action:") for name in run.table.columns)


def test_tables_of_a_meta_folder_are_listed_once_and_are_not_very_many(tmp_path, monkeypatch):
    """4,000 tables and 500 data files, all of 0 bytes, took 166 s: each file named all tables, twice."""
    folder = v3(tmp_path / "data")
    source = open_source(load_schema("lerobot"), folder, {})
    item = Item("data/chunk-000/file-000.parquet")
    before = source.files(item)
    tables = folder / "meta/episodes/chunk-000"
    monkeypatch.setattr("datacheck.sources.kinds.meta_files", lambda base: pytest.fail(str(base)))
    monkeypatch.setattr("datacheck.sources.kinds.meta_files", lambda base: pytest.fail(str(base)))
    assert source.files(item) == before
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datacheck.sources.lerobot._MOST_TABLES", len(list(tables.iterdir())) + 2)
    for number in range(900, 902):
        (tables / f"file-{number}.parquet").touch()
    assert len(open_source(load_schema("lerobot"), folder, {}).files(item)) == len(before) + 2
    (tables / "file-902.parquet").touch()
    source = open_source(load_schema("lerobot"), folder, {})
    assert not any("meta/episodes" in path for path in source.files(item))
    with pytest.raises(FormatError, match=r"meta/episodes: holds . tables; at most 3 are read"):
        every(source, item)
