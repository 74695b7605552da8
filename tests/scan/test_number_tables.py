"""Tables of numbers without a schema: points of tracks, samples with a class, and tables of neither."""

import numpy as np
import pytest

from datacheck.formats.table_rows import RowsByNumber
from datacheck.infer.draft import draft
from datacheck.infer.number_tables import rows_of
from datacheck.scan import scan
from datacheck.schema.load import parse_schema


def walks(rng, tracks=150, step=10):
    """Return rows (frame, id, x, y) of people that walk through a scene of 15 m, sorted by frame."""
    rows = []
    for track in range(1, tracks + 1):
        steps, start = int(rng.integers(12, 30)), int(rng.integers(0, 200))
        angle = rng.uniform(0, 2 * np.pi) + rng.normal(0, 0.1, steps).cumsum()
        speed = rng.uniform(0.2, 0.6)
        way = np.stack([np.cos(angle), np.sin(angle)], axis=1).cumsum(axis=0) * speed
        place = np.clip(rng.uniform(3, 12, 2) + way, 0.1, 15)
        frames = (start + np.arange(steps)) * step
        rows.append(np.column_stack([frames, np.full(steps, track), place]))
    table = np.concatenate(rows)
    return table[np.lexsort((table[:, 1], table[:, 0]))]


def written(folder, tables, head="", between="\t", ending=".txt"):
    folder.mkdir(parents=True)
    for name, table in tables.items():
        lines = [between.join(f"{number:.10g}" for number in row) for row in table.tolist()]
        (folder / f"{name}{ending}").write_text(
            "\n".join([*([head] if head else []), *lines]) + "\n"
        )
    return folder


def findings(folder):
    run = scan(folder, output=folder.with_name(folder.name + "-out"))
    return {
        f.code: (f.severity.value, sorted(run.table.keys[row] for row in f.rows))
        for f in run.report.findings
    }


@pytest.fixture(scope="module")
def scenes():
    rng = np.random.default_rng(0)
    return {name: walks(rng) for name in ("hotel", "zara", "campus")}


def keys(name, tracks):
    return sorted(f"{name}.txt:/column1/{track}" for track in tracks)


def test_each_track_is_a_sample(tmp_path, scenes):
    folder = written(tmp_path / "d", scenes)
    schema = parse_schema(draft(folder).text)
    assert (schema.samples.each, schema.fields["table"].columns) == (
        "/column1/*",
        "frame track position:2",
    )
    assert [schema.fields[f"table.{part}"].role for part in ("frame", "position")] == [
        "timestamp",
        "position",
    ]
    assert findings(folder) == {}


def test_tracks_in_another_unit_are_named(tmp_path, scenes):
    table = scenes["zara"].copy()
    table[np.isin(table[:, 1], [3, 4, 5, 6, 7]), 2:] *= 100
    folder = written(tmp_path / "d", scenes | {"zara": table})
    assert findings(folder) == {"DC230": ("warning", keys("zara", [3, 4, 5, 6, 7]))}


def test_tracks_near_an_axis_in_another_unit_are_named_too(tmp_path, scenes):
    """One coordinate of them alone is as small as those of the others."""
    table = scenes["zara"].copy()
    table[np.isin(table[:, 1], [3, 4]), 2] *= 0.01
    table[np.isin(table[:, 1], [5, 6, 7]), 3] *= 0.01
    table[np.isin(table[:, 1], [3, 4, 5, 6, 7]), 2:] *= 100
    folder = written(tmp_path / "d", scenes | {"zara": table})
    assert findings(folder) == {"DC230": ("warning", keys("zara", [3, 4, 5, 6, 7]))}


def test_a_scene_of_another_size_is_no_other_unit(tmp_path, scenes):
    table = scenes["zara"][np.isin(scenes["zara"][:, 1], range(30))].copy()
    table[:, 2:] += 600_000  # as coordinates of a map
    assert findings(written(tmp_path / "d", scenes | {"zara": table})) == {}
    table[:, 2:] = (table[:, 2:] - 600_000) * 40  # as pixels
    assert findings(written(tmp_path / "e", scenes | {"zara": table})) == {}


def test_a_time_step_that_changes_inside_a_file_is_named(tmp_path, scenes):
    table = scenes["hotel"].copy()
    late = table[:, 0] > 2000
    table[late, 0] = 2000 + 2.5 * (table[late, 0] - 2000)
    folder = written(tmp_path / "d", scenes | {"hotel": table})
    code, named = findings(folder)["DC503"]
    tracks = np.unique(table[:, 1])
    slow = [int(t) for t in tracks if np.median(np.diff(table[table[:, 1] == t, 0])) == 25]
    assert code == "warning"
    assert set(named) <= set(keys("hotel", slow))
    assert len(named) >= 0.6 * len(slow)


def test_tracks_that_exchange_their_ids_are_named(tmp_path, scenes):
    table = scenes["campus"].copy()
    swapped = []
    for frame in (500, 900, 1300, 1700):
        ids = table[table[:, 0] == frame, 1]
        inner = [t for t in ids if np.ptp(table[table[:, 1] == t, 0]) > 150 and t not in swapped]
        places = {t: table[(table[:, 0] == frame) & (table[:, 1] == t), 2:][0] for t in inner}
        there = [
            t
            for t in inner
            if table[table[:, 1] == t, 0].min() < frame - 40
            and table[table[:, 1] == t, 0].max() > frame + 40
        ]
        a, b = max(
            ((a, b) for a in there for b in there if a < b),
            key=lambda pair: np.linalg.norm(places[pair[0]] - places[pair[1]]),
        )
        later = table[:, 0] >= frame
        one, two = later & (table[:, 1] == a), later & (table[:, 1] == b)
        table[one, 1], table[two, 1] = b, a
        swapped += [a, b]
    folder = written(tmp_path / "d", scenes | {"campus": table})
    assert findings(folder) == {"DC505": ("warning", keys("campus", map(int, swapped)))}


def test_a_table_with_a_header_names_its_columns(tmp_path, scenes):
    tables = {name: table[:, [1, 0, 2, 3]] for name, table in scenes.items()}
    head = "track_id,frame,x,y"
    folder = written(tmp_path / "d", tables, head, ",", ".csv")
    schema = parse_schema(draft(folder).text)
    assert schema.samples.each == "/track_id/*"
    assert schema.fields["table"].columns == "track frame position:2"
    tables["zara"][tables["zara"][:, 0] < 6, 2:] *= 100
    folder = written(tmp_path / "e", tables, head, ",", ".csv")
    named = sorted(f"zara.csv:/track_id/{track}" for track in range(1, 6))
    assert findings(folder) == {"DC230": ("warning", named)}


def test_tracks_of_things_that_are_hidden_for_a_while(tmp_path, scenes):
    """Detections are missing in most tracks of MOT: neither the gaps nor the steps over them are faults."""
    rng = np.random.default_rng(4)
    hidden = {name: table[rng.uniform(size=len(table)) > 0.05] for name, table in scenes.items()}
    table = hidden["zara"]
    hidden["zara"] = table[~((table[:, 1] % 50 == 0) & (table[:, 0] % 400 > 100))]
    folder = written(tmp_path / "d", hidden)
    schema = parse_schema(draft(folder).text)
    assert schema.fields["table.frame"].role == "timestamp"
    assert "table.position" not in schema.fields
    assert findings(folder) == {}


@pytest.mark.parametrize(
    "name", ["position", "1st_speed", "h\u00f6he", "\u00b5", "frame", "a:2", "{b}"]
)
def test_a_further_column_of_tracks_may_have_any_name(tmp_path, scenes, name):
    table = np.column_stack([scenes["zara"], np.ones(len(scenes["zara"]))])
    folder = written(tmp_path / "d", {"zara": table}, f"t,track_id,x,y,{name}", ",", ".csv")
    assert findings(folder).keys() <= {"DC223", "DC227"}
    assert parse_schema(draft(folder).text).fields


@pytest.mark.parametrize("name", ["a{b}_id", "*_id", "a/id"])
def test_a_name_with_signs_of_patterns_is_no_column_of_tracks(scenes, name):
    assert rows_of(scenes["zara"], ("t", name, "x", "y")) is None


def test_numbers_beyond_those_that_floats_tell_apart_are_no_tracks():
    numbers = np.array([1.0, 2.0**53, 2.0**53 + 2, 1e300, np.inf, np.nan, 1.5])
    rows = RowsByNumber({"table": numbers[:, None]}, "id", numbers)
    assert rows.groups("/id/*") == ["id/1", f"id/{2**53}"]
    assert list(rows.unmatched) == ["id[2]"]


def test_tables_that_only_look_like_tracks():
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(np.arange(30), np.arange(40)), axis=-1).reshape(-1, 2)
    wave = np.stack([np.sin(grid[:, 0] / 9), np.cos(grid[:, 1] / 9)], axis=1)
    assert rows_of(np.concatenate([grid, wave], axis=1), ()) is None
    # A cloud with labels, and a recording with a state for each row.
    cloud = np.column_stack([rng.uniform(0, 5, (500, 3)), rng.integers(0, 9, (500, 2))])
    assert rows_of(cloud, ()) is None
    walk = rng.normal(size=(400, 3)).cumsum(axis=0)
    recording = np.column_stack([np.arange(400), np.arange(400) // 80, walk])
    assert rows_of(recording, ()) is None
    assert rows_of(np.zeros((0, 5)), ()) is None
    assert rows_of(np.full((200, 5), np.nan), ()) is None
    assert rows_of(np.full((200, 12), np.inf), ()) is None


def hands(rng, rows=1200, classes=4):
    """Return rows (class, 42 numbers), in blocks of classes, each divided by its largest number."""
    shapes = rng.normal(size=(classes, 42))
    labels = np.repeat(np.arange(classes), rows // classes)
    values = shapes[labels] + rng.normal(0, 0.1, (rows, 42))
    return np.column_stack([labels, values / np.abs(values).max(axis=1, keepdims=True)])


def test_rows_with_a_class_are_samples(tmp_path):
    table = hands(np.random.default_rng(2))
    folder = written(tmp_path / "d", {"keypoints": table}, "", ",", ".csv")
    (folder / "keypoints_label.csv").write_text("open\nclose\npoint\nok\n")
    schema = parse_schema(draft(folder).text)
    assert (schema.samples.each, schema.fields["table"].columns) == ("row", "label values:42")
    assert findings(folder) == {}
    table[100:140, 0] = 4
    table[[500, 700, 900], 1:] *= 120
    folder = written(tmp_path / "e", {"keypoints": table}, "", ",", ".csv")
    (folder / "keypoints_label.csv").write_text("open\nclose\npoint\nok\n")
    found = findings(folder)
    rows = {code: [int(key.rpartition(":")[2]) for key in of] for code, (_, of) in found.items()}
    assert rows == {"DC404": list(range(100, 140)), "DC226": [500, 700, 900]}


def test_all_classes_of_a_table_count_and_those_of_files_that_were_not_looked_into():
    labels = np.repeat([0, 1, 2], 50_000)
    values = np.random.default_rng(4).uniform(0.1, 0.9, (150_000, 12))
    values[:, 0] = 1.0  # the largest number of each row
    assert rows_of(np.column_stack([labels, values]), ()).classes == [0, 1, 2]


def test_classes_are_not_declared_where_not_all_files_were_looked_into(tmp_path):
    rng = np.random.default_rng(5)
    tables = {f"part{number:02d}": hands(rng, 200) for number in range(11)}
    tables["part07"][:20, 0] = 9
    schema = parse_schema(draft(written(tmp_path / "d", tables, "", ",", ".csv")).text)
    assert schema.fields["table.label"].classes is None


@pytest.mark.parametrize("levels", [2, 3])
def test_a_matrix_of_few_levels_is_no_table_of_samples(levels):
    matrix = np.random.default_rng(6).integers(0, levels, (300, 20))
    assert rows_of(matrix, ()) is None


@pytest.mark.parametrize("table", [np.arange(60.0), np.zeros((0, 5)), np.zeros((4, 5, 6))])
def test_arrays_that_are_no_tables_are_passed_over(table):
    assert rows_of(table, ()) is None


def test_rows_in_blocks_of_classes_may_be_a_recording(tmp_path):
    rng = np.random.default_rng(3)
    walk = rng.normal(size=(1000, 12)).cumsum(axis=0)
    recording = np.column_stack([np.repeat([0, 1, 2, 0, 1], 200), walk])
    assert rows_of(recording, ()) is None
    shuffled = recording[rng.permutation(1000)]
    assert rows_of(shuffled, ()).columns == "label values:12"
    assert rows_of(np.roll(shuffled, -1, axis=1), ()).columns == "values:12 label"
    assert rows_of(np.column_stack([shuffled, np.arange(1000)]), ()) is None  # numbered in time
    normals = rng.normal(size=(1000, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    labels = rng.integers(0, 5, 1000)
    cloud = np.column_stack(
        [rng.uniform(size=(1000, 3)), normals, rng.uniform(size=(1000, 3)), labels]
    )
    assert rows_of(cloud, ()) is None
