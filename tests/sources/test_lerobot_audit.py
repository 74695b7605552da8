"""The documents of a LeRobot dataset's meta folder are held against each other."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from datacheck.scan import scan
from datacheck.sources.lerobot import read_meta
from datacheck.sources.lerobot_audit import contradictions
from datacheck.sources.roots import Roots
from tests.sources.test_episodes import FEATURES, LENGTHS, info_of, rows, v2, v3


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Scans leave their results in the working directory."""
    monkeypatch.chdir(tmp_path)


def statistics(folder, **changed):
    """Write the statistics of all rows, computed with NumPy; `changed` replaces whole features."""
    stats = {}
    for name in FEATURES:
        values = np.concatenate([rows(i)[name] for i in range(4)]).astype(np.float64)
        values = values.reshape(len(values), -1)
        stats[name] = {
            "min": values.min(0).tolist(),
            "max": values.max(0).tolist(),
            "mean": values.mean(0).tolist(),
            "std": values.std(0).tolist(),
            "count": [len(values)],
            "q01": np.quantile(values, 0.01, axis=0).tolist(),
            "q99": np.quantile(values, 0.99, axis=0).tolist(),
        }
    for name, change in changed.items():
        stats[name] = stats.get(name, {}) | change if change is not None else None
    kept = {name: value for name, value in stats.items() if value is not None}
    (folder / "meta/stats.json").write_text(json.dumps(kept))
    return stats


def found(folder):
    base = Roots(folder, {}).file("")
    return [(c.kind, c.document, c.words) for c in contradictions(base, read_meta(base))]


@pytest.mark.parametrize("make", [v2, v3])
def test_documents_that_agree_have_no_contradiction(tmp_path, make):
    folder = make(tmp_path / "data")
    statistics(folder)
    info_of(folder, splits={"train": "0:3", "val": "3:4"}, total_chunks=1, total_videos=0)
    assert found(folder) == []
    assert scan(folder).report.findings == []


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"total_episodes": 6}, "totals", "total_episodes is 6; the episodes' table names 4"),
        (
            {"total_frames": 999},
            "totals",
            f"total_frames is 999; the episodes' lengths add up to {sum(LENGTHS)}",
        ),
        ({"total_episodes": None}, "totals", "has no total_episodes; the episodes' table names 4"),
        ({"chunks_size": 0}, "keys", "chunks_size is 0; it must be above 0"),
        (
            {"video_files_size_in_mb": -1},
            "keys",
            "video_files_size_in_mb is -1; it must be above 0",
        ),
        ({"total_tasks": 1}, "counts", "total_tasks is 1; the tasks' table has 3"),
        ({"splits": {"train": "0:9"}}, "splits", "split 'train' is '0:9'; the episodes are 0 to 3"),
        (
            {"splits": {"train": "0:3", "val": "2:4"}},
            "splits",
            "the splits 'train' and 'val' share the episodes 2 to 2",
        ),
        (
            {"splits": {"train": "all"}},
            "splits",
            "split 'train' is 'all'; a range such as '0:4' is expected",
        ),
        (
            {"codebase_version": "v9.9"},
            "version",
            "codebase_version is 'v9.9'; v2.0, v2.1, v3.0 are known",
        ),
    ],
)
def test_a_wrong_statement_of_the_info_is_named(tmp_path, changed, kind, words):
    folder = v3(tmp_path / "data")
    info_of(folder, **changed)
    assert found(folder) == [(kind, "meta/info.json", words)]


def test_totals_of_version_2_count_videos_and_chunks(tmp_path):
    folder = v2(tmp_path / "data")
    info_of(folder, total_videos=3, total_chunks=2)
    assert [words for _, _, words in found(folder)] == [
        "total_videos is 3; its episodes and cameras make 0",
        "total_chunks is 2; its episodes fill 1",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total_episodes", [1, 2]),
        ("total_frames", "many"),
        ("codebase_version", [1, 2]),
        ("splits", [1, 2]),
        ("splits", {"train": [0, 4]}),
        ("chunks_size", 1000),
    ],
)
def test_values_of_another_kind_end_no_scan(tmp_path, name, value):
    folder = v3(tmp_path / "data")
    info_of(folder, **{name: value})
    statistics(folder, action={"count": [[1], [1, 2]]})
    run = scan(folder)
    assert run.report.exit_code == 1
    assert {finding.code for finding in run.report.findings} == {"DC114"}


def test_a_template_of_version_3_in_version_2_is_named_and_its_episodes_are_read(tmp_path):
    folder = v2(tmp_path / "data")
    statistics(folder)
    template = json.loads((folder / "meta/info.json").read_text())["data_path"]
    info_of(
        folder,
        data_path=template.replace("{episode_chunk", "{chunk_index"),
        total_chunks=1,
        total_videos=0,
    )
    words = "data_path with {chunk_index}; LeRobot v2 fills in {episode_chunk}"
    assert found(folder) == [("templates", "meta/info.json", words)]
    run = scan(folder)
    assert [(f.code, f.kind) for f in run.report.findings] == [("DC114", "templates")]
    assert (len(run.table.keys), int(run.valid.sum())) == (4, 4)


@pytest.mark.parametrize("make", [v2, v3])
def test_floats_of_another_width_are_named_and_read(tmp_path, make):
    folder = make(tmp_path / "data")
    statistics(folder)
    features = json.loads((folder / "meta/info.json").read_text())["features"]
    features["action"]["dtype"] = "float64"
    info_of(folder, features=features, total_chunks=1, total_videos=0)
    ((kind, document, words),) = found(folder)
    assert (kind, document) == ("dtypes", "meta/info.json")
    assert words.startswith("feature 'action' is float64; data/chunk-000/")
    assert words.endswith(".parquet stores float32")
    run = scan(folder)
    assert [(f.code, f.kind) for f in run.report.findings] == [("DC114", "dtypes")]
    assert int(run.valid.sum()) == 4


def test_integers_in_place_of_floats_are_still_refused(tmp_path):
    folder = v2(tmp_path / "data")
    features = json.loads((folder / "meta/info.json").read_text())["features"]
    features["action"]["dtype"] = "int64"
    info_of(folder, features=features, total_chunks=1, total_videos=0)
    (finding, *_) = scan(folder).report.findings
    assert finding.code == "DC101"
    assert "float32, but meta/info.json declares" in finding.message


def test_lines_of_version_2_may_be_in_any_order(tmp_path):
    """LeRobot 2 sorts them."""
    folder = v2(tmp_path / "data")
    path = folder / "meta/episodes.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert found(folder) == []
    assert scan(folder).report.findings == []


def test_a_single_number_describes_a_grey_picture(tmp_path):
    folder = v3(tmp_path / "data")
    info_of(folder, features=FEATURES | {"depth": {"dtype": "image", "shape": [4, 6, 1]}})
    one = {"min": [[[0.0]]], "max": [[[1.0]]], "mean": [[[0.5]]], "std": [[[0.2]]]}
    statistics(folder, depth=one)
    assert found(folder) == []


@pytest.mark.parametrize(
    ("stated", "high", "wanted"),
    [
        ({}, 1.0, []),
        ({}, 255.0, ["'top': the max is 255; LeRobot scales colours to 0 to 1"]),
        ({"video.is_depth_map": True}, 255.0, []),
    ],
)
def test_statistics_of_colours_lie_within_0_and_1(tmp_path, stated, high, wanted):
    folder = v3(tmp_path / "data")
    feature = {"dtype": "video", "shape": [4, 4, 3], "info": stated}
    info_of(folder, features=FEATURES | {"top": feature})
    numbers = {"min": 0.0, "max": high, "mean": 0.4, "std": 0.2}
    statistics(folder, top={name: [[[value]]] * 3 for name, value in numbers.items()})
    assert [words for _, _, words in found(folder)] == wanted


def test_a_gap_in_the_numbers_of_episodes_is_an_error(tmp_path):
    folder = v3(tmp_path / "data", numbers=(0, 1, 3, 4))
    ((kind, document, words),) = found(folder)
    assert (kind, document) == ("positions", "meta/episodes")
    assert words.startswith("episode 3 has position 2 of 4: LeRobot looks episodes up by position")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["lift", "", "push"], "task 1 has no text"),
        (["lift", "TODO", "push"], "task 1 has the text 'TODO', a placeholder"),
        (["lift", "push", "lift "], "tasks 0, 2 have one text: 'lift'"),
    ],
)
def test_tasks_without_a_text_of_their_own_are_named(tmp_path, texts, words):
    folder = v2(tmp_path / "data")
    lines = [{"task_index": i, "task": text} for i, text in enumerate(texts)]
    path = folder / "meta/tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert found(folder) == [("tasks", "meta/tasks", words)]


def test_a_missing_table_of_tasks_is_named(tmp_path):
    folder = v3(tmp_path / "data")
    (folder / "meta/tasks.parquet").unlink()
    assert ("tasks", "meta/tasks") in [(kind, document) for kind, document, _ in found(folder)]


@pytest.mark.parametrize(
    ("features", "kind", "words"),
    [
        (
            {"action": {"dtype": "float32", "shape": [2], "names": ["x", "y", "z"]}},
            "names",
            "3 names for 2",
        ),
        (
            {"action": {"dtype": "float32", "shape": [2], "names": {"motors": ["x", "x"]}}},
            "names",
            "has the name x more than once",
        ),
        (
            {"arm/left": {"dtype": "float32", "shape": [1], "names": None}},
            "names",
            "to create or merge datasets with a '/' in the name arm/left",
        ),
        ({"top": {"dtype": "image", "shape": [4]}}, "features", "has the shape [4]"),
        ({"top": {"dtype": "video", "shape": [4, 4, 3]}}, "videos", "video_path is no template"),
    ],
)
def test_features_that_cannot_be_are_named(tmp_path, features, kind, words):
    folder = v3(tmp_path / "data")
    info_of(folder, features=FEATURES | features, video_path=None)
    ((found_kind, _, found_words),) = found(folder)
    assert found_kind == kind
    assert words in found_words


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"action": {"std": [-1.0, 1.0]}}, "statistics", "'action': the std -1 is below 0"),
        ({"action": {"mean": [9e9, 0.0]}}, "statistics", "mean 9e+09 outside of its min and max"),
        ({"action": {"std": [1e3, 1.0]}}, "statistics", "has the std 1000"),
        ({"action": {"min": [1e3, 0.0]}}, "statistics", "min 1000 above the max"),
        (
            {"action": {"q01": [1.0, 0.0], "q99": [0.5, 0.0]}},
            "statistics",
            "q01 1 above the q99 0.5",
        ),
        ({"action": {"mean": [0.0]}}, "statistics", "mean has 1 numbers; the feature has 2"),
        ({"action": {"mean": [0.0, None]}}, "statistics", "NaN or infinity in mean"),
        ({"action": {"count": [5]}}, "rows", "'action' counts 5 rows; the episodes have 19"),
        ({"action": None}, "missing", "has no statistics of feature action"),
        ({"hand": {"mean": [0.0]}}, "missing", "which meta/info.json does not declare"),
    ],
)
def test_statistics_that_no_data_can_have_are_named(tmp_path, changed, kind, words):
    folder = v3(tmp_path / "data")
    statistics(folder, **changed)
    ((found_kind, document, found_words),) = found(folder)
    assert (found_kind, document) == (kind, "meta/stats.json")
    assert words in found_words


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"state": {"arm": {"start": 0, "end": 4}}},
            "state 'arm' takes the numbers 0 to 4 of 'observation.state', which has 3",
        ),
        (
            {"action": {"x": {"start": 0, "end": 1, "original_key": "hand"}}},
            "action 'x' takes the feature 'hand', which meta/info.json does not declare",
        ),
        (
            {"video": {"top": {"original_key": "observation.images.top"}}},
            "video 'top' takes the feature 'observation.images.top', which meta/info.json does not "
            "declare",
        ),
        ({"state": {"arm": {"start": 2, "end": 1}}}, "state 'arm' has the start 2 and the end 1"),
    ],
)
def test_modalities_that_leave_the_features_are_named(tmp_path, document, words):
    folder = v3(tmp_path / "data")
    (folder / "meta/modality.json").write_text(json.dumps(document))
    assert found(folder) == [("modality", "meta/modality.json", words)]


def test_a_scan_reports_them_for_the_dataset_as_a_whole(tmp_path):
    folder = v3(tmp_path / "data")
    info_of(folder, total_episodes=6, total_frames=20, total_tasks=2)
    run = scan(folder)
    first, second = run.report.findings
    assert (first.code, first.severity, first.kind) == ("DC114", "error", "totals")
    assert first.message == (
        "meta/info.json: total_episodes is 6; the episodes' table names 4; total_frames is 20; the "
        "episodes' lengths add up to 19."
    )
    assert (second.code, second.severity, second.kind) == ("DC114", "warning", "counts")
    assert run.report.exit_code == 1
    assert run.valid.all()


def change_rows(folder, name, values):
    path = folder / "data/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index(name)
    pq.write_table(table.set_column(at, name, [values]), path, row_group_size=4)


@pytest.mark.parametrize(
    ("name", "values", "codes"),
    [
        ("index", [0, 1, 2, 3, 4, 6, 7, 8, *range(8, 15)], [(), ("DC514",), (), ()]),
        ("index", [0, 1, 2, 4, 5, 5, 6, 7, *range(8, 15)], [("DC514",), (), (), ()]),
        ("index", range(7, 22), [("DC514",), ("DC514",), ("DC514",), ()]),
    ],
)
def test_rows_with_other_numbers_are_named(tmp_path, name, values, codes):
    folder = v3(tmp_path / "data")
    change_rows(folder, name, list(values))
    assert scan(folder).codes == codes


def test_rows_that_are_lacking_are_told_once(tmp_path):
    """A wrong length moves the expected numbers of all later episodes: that is the length's fault."""
    folder = v2(tmp_path / "data", [5, 3, 8, 4])
    assert scan(folder).codes == [(), (), ("DC111",), ()]


@pytest.mark.parametrize(
    ("change", "kind", "severity"),
    [
        (lambda t: t + np.array([0, 0, 0.006, 0, 0, *[0] * 10]), "step", "warning"),
        (lambda t: t + np.array([3.0] * 5 + [0.0] * 10), "start-frames", "error"),
        (lambda t: t + np.array([0.001] * 5 + [0.0] * 10), "start", "warning"),
    ],
)
def test_time_stamps_off_the_frames_are_named(tmp_path, change, kind, severity):
    folder = v3(tmp_path / "data")
    times = np.concatenate([rows(i)["timestamp"] for i in range(3)])
    change_rows(folder, "timestamp", change(times).astype(np.float32))
    (finding,) = scan(folder).report.findings
    assert (finding.code, finding.kind, finding.severity) == ("DC516", kind, severity)
    assert finding.failed == 1


@pytest.mark.parametrize(("late", "kind"), [(20.0, "step-gap"), (20.5, "step-frames")])
def test_whole_steps_that_are_missing_are_no_reason_for_new_time_stamps(tmp_path, late, kind):
    """Rows were lost behind the third row of an episode, or its clock jumped."""
    folder = v3(tmp_path / "data")
    times = np.concatenate([rows(i)["timestamp"] for i in range(3)])
    period = float(times[1] - times[0])
    times[3:5] += late * period
    change_rows(folder, "timestamp", times.astype(np.float32))
    found = [f for f in scan(folder).report.findings if f.code == "DC516"]
    assert [(f.kind, f.severity, f.failed) for f in found] == [(kind, "error", 1)]
    assert found[0].fix.startswith("Whole steps are missing") == (kind == "step-gap")
