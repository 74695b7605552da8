"""``datacheck init`` drafts a schema that loads, says what is guessed, and raises nothing on its own data."""

import json
import math
import pickle
import shlex
import shutil

import h5py
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from datacheck.cli.schema import init
from datacheck.errors import UsageError
from datacheck.infer.axes import name_axes
from datacheck.infer.draft import draft
from datacheck.infer.guess import guess
from datacheck.infer.profile import FieldProfile
from datacheck.infer.worker import profile_samples
from datacheck.pipeline import build
from datacheck.scan import Request, run_scan, scan
from datacheck.schema.load import load_schema, parse_schema
from datacheck.sources import plan_work
from datacheck.sources.listing import list_files
from datacheck.testing.synth import SYSTEMS, write
from tests.formats.reading import CORPUS
from tests.scan.test_guess import cloud
from tests.sources.test_episodes import v2 as lerobot


def clouds(folder, count=12):
    for i in range(count):
        rng = np.random.default_rng(i)
        n = 100 + 7 * i
        split = "train" if i % 3 else "val"
        (folder / split).mkdir(parents=True, exist_ok=True)
        normal = rng.normal(size=(n, 3))
        np.savez(
            folder / split / f"scan_{i}.npz",
            points=rng.uniform(0, 1.5, (n, 3)).astype(np.float32),
            normals=(normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32),
            label=rng.integers(-1, 9, n),
            colors=rng.integers(0, 256, (n, 3), dtype=np.uint8),
            quat=np.array([1.0, 0, 0, 0]) if i % 2 else np.array([0, 1.0, 0, 0]),
            score=np.float64(i / 20),
        )


def demos(folder):
    folder.mkdir()
    for i in range(3):
        with h5py.File(folder / f"run_{i}.h5", "w") as file:
            for d in range(4):
                rng, steps = np.random.default_rng([i, d]), 30 + 5 * d + i
                group = file.create_group(f"data/demo_{d}")
                group["actions"] = rng.uniform(-1, 1, (steps, 7))
                group["obs/ee_pos"] = rng.uniform(0, 0.5, (steps, 3))
                group["obs/joint_pos"] = rng.uniform(-2, 2, (steps, 7))
                group["obs/rgb"] = rng.integers(0, 255, (steps, 8, 8, 3), dtype=np.uint8)
                group["dones"] = np.arange(steps) == steps - 1


def test_clouds_get_a_pattern_roles_shapes_and_widened_ranges(tmp_path):
    clouds(tmp_path / "d")
    found = draft(tmp_path / "d")
    schema = parse_schema(found.text)
    assert schema.samples.files == ("{split}/{id}.npz",)
    roles = {name: spec.role for name, spec in schema.fields.items()}
    assert roles == {
        "points": "points",
        "normals": "normal",
        "label": "class",
        "colors": "color",
        "quat": "quaternion",
        "score": None,
    }
    assert [schema.fields[n].shape for n in ("points", "normals", "label", "colors")] == [
        ("P", 3),
        ("P", 3),
        ("P",),
        ("P", 3),
    ]
    size = schema.fields["points"].size
    assert size.low <= 2.59 / 2 + 0.05  # the boxes are about 1.5 * sqrt(3) = 2.6 across
    assert size.high >= 2 * 2.5
    assert schema.fields["label"].ignore == (-1,)
    assert str(schema.fields["label"].classes) == "0..8"
    assert sum("    # inferred" in line for line in found.text.splitlines()) == 1 + 6


@pytest.mark.parametrize("name", ["b\u2028c", "b\u2029c", "b\x85c", "b\u202ec", "b\u200bc", "手"])
def test_a_name_of_odd_characters_is_drafted_as_it_is_and_not_shown_as_another(tmp_path, name):
    for i in range(3):
        (tmp_path / "d").mkdir(exist_ok=True)
        np.savez(tmp_path / f"d/{i}.npz", **{name: np.arange(4.0) + i})
    text = draft(tmp_path / "d").text
    assert list(parse_schema(text).fields) == [name]
    assert all(line.isprintable() for line in text.split("\n"))
    assert ("手" in text) == (name == "手")


def test_groups_inside_files_are_episodes_whose_fields_share_time(tmp_path):
    demos(tmp_path / "d")
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.samples.each == "/data/demo_*"
    assert {n: s.role for n, s in schema.fields.items()} == {
        "actions": "action",
        "dones": "done",
        "obs/ee_pos": "position",
        "obs/joint_pos": "joint_angle",
        "obs/rgb": "image",
    }
    assert {s.shape[0] for s in schema.fields.values()} == {"T"}
    assert schema.fields["obs/joint_pos"].unit == "rad"


@pytest.mark.parametrize(("steps", "role"), [(1, "done"), (5, None), (0, None)])
def test_marks_that_stay_set_after_success_are_no_ends_of_episodes(
    tmp_path, monkeypatch, steps, role
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    with h5py.File(tmp_path / "d/low.h5", "w") as file:
        for d in range(4):
            group = file.create_group(f"data/demo_{d}")
            group["actions"] = np.random.default_rng(d).uniform(-1, 1, (30 + d, 7))
            group["dones"] = (np.arange(30 + d) >= 30 + d - steps).astype(np.int64)
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.fields["dones"].role == role
    report = run_scan(schema, Request(tmp_path / "d")).report
    assert "DC512" not in [f.rule for f in report.findings]


def centred(folder):
    folder.mkdir()
    for i in range(6):
        np.savez(folder / f"{i}.npz", colors=np.random.default_rng(i).uniform(-1, 1, (90 + i, 3)))


def oddly_named(folder):
    folder.mkdir()
    names = (
        "@q",
        "@",
        "`r",
        "- e",
        "%p",
        "*j",
        "&k",
        "yes",
        "null",
        "~",
        "..",
        "a/b",
        "{i}",
        "b: {c: d}",
        "",
        " ",
    )
    for i in range(6):
        (folder / f"{i}.json").write_text(json.dumps({name: [0.5 * i, 2.0] for name in names}))


@pytest.mark.parametrize("make", [centred, clouds, demos, oddly_named])
def test_the_draft_raises_no_error_on_its_own_data(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "d")
    report = run_scan(parse_schema(draft(tmp_path / "d").text), Request(tmp_path / "d")).report
    assert [f.id for f in report.findings if f.severity == "error"] == []
    assert report.exit_code == 0


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_system_that_a_built_in_schema_knows_is_extended(tmp_path, system):
    write(system, tmp_path / "d", seed=1)
    found = draft(tmp_path / "d")
    parse_schema(found.text)
    if system != "minimind":  # three datasets in one folder
        assert f"extends: {system}" in found.text


def test_what_cannot_be_drafted_is_refused(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.xyzzy").write_bytes(b"?")
    with pytest.raises(UsageError, match="no format reads any of its 1 files"):
        draft(tmp_path / "d")
    (tmp_path / "d/b.npy").write_bytes(b"not an array")
    with pytest.raises(UsageError, match="could be read"):
        draft(tmp_path / "d")
    with pytest.raises(UsageError):
        draft(tmp_path / "nothing")
    (tmp_path / "d/b.npy").unlink()
    h5py.File(tmp_path / "d/b.h5", "w").close()
    with pytest.raises(UsageError, match="none of 1 file holds a field: they are empty"):
        draft(tmp_path / "d")


def test_one_large_file_that_cannot_be_read_does_not_keep_the_others_from_being_read(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x.h5").write_bytes(np.random.default_rng(0).bytes(1 << 20))
    for number in range(20):
        image = Image.fromarray(np.full((8, 8, 3), 10 * number, np.uint8))
        image.save(tmp_path / f"d/{number:02d}.png")
    drafted = draft(tmp_path / "d")
    scanned = run_scan(parse_schema(drafted.text), Request(tmp_path / "d", output=tmp_path / "run"))
    status = dict(zip(scanned.table.files, scanned.table.status.tolist(), strict=True))
    assert [name for name, bad in status.items() if bad] == ["x.h5"]
    assert len(status) == 21


def test_strange_names_and_values_still_make_a_schema_that_loads(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(4):
        np.savez(
            tmp_path / f"d/f{i}.npz",
            **{
                "a b: {c}": np.full(3, np.nan),
                "# no": np.array(["x"]),
                "on": np.zeros((0, 3)),
                "ö/é": np.arange(i + 1),
            },
        )
    schema = parse_schema(draft(tmp_path / "d").text)
    assert set(schema.fields) >= {"# no", "on", "ö/é"}
    assert schema.fields["a b: {c}"].finite is False


def test_nan_in_a_few_samples_is_a_fault_and_in_all_of_them_a_mark(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(4):
        few = np.full(5, np.nan if i == 2 else 1.0)
        np.savez(
            tmp_path / f"d/{i}.npz", few=few, half=np.array([1.0, np.inf]) if i % 2 else np.ones(2)
        )
    text = draft(tmp_path / "d").text
    schema = parse_schema(text)
    assert schema.fields["few"].finite is True
    assert schema.fields["half"].finite is False
    assert "NaN or infinity in 1 of 4 samples; finite: false where that means missing" in text
    assert "NaN or infinity in 2 of 4 samples; measured" in text


@pytest.mark.parametrize(
    ("names", "shape", "files", "each"),
    [
        (["train", "val"], (300, 21, 3), ("{split}.npy",), "row"),
        (["all"], (3000, 42, 3), ("all.npy",), "row"),
        (["all"], (100, 21, 3), ("all.npy",), ""),  # so many steps has a sequence
        ([f"{i:02d}" for i in range(20)], (300, 21, 3), ("{id}.npy",), ""),
        (["all"], (300, 224, 3), ("all.npy",), ""),
        (["all"], (300, 3), ("all.npy",), ""),
    ],
)
def test_rows_of_few_files_of_skeletons_are_samples(tmp_path, names, shape, files, each):
    (tmp_path / "hand_joints").mkdir()
    for name in names:
        np.save(
            tmp_path / f"hand_joints/{name}.npy", np.random.default_rng(0).random(shape, np.float32)
        )
    schema = parse_schema(draft(tmp_path / "hand_joints").text)
    assert (schema.samples.files, schema.samples.each or "") == (files, each)
    if each:
        assert (schema.fields["array"].role, schema.fields["array"].shape) == ("joints", shape[1:])


def test_an_array_without_a_name_is_called_as_its_folder_is(tmp_path):
    (tmp_path / "clouds").mkdir()
    for i in range(3):
        np.save(
            tmp_path / f"clouds/{i}.npy", np.random.default_rng(i).random((50 + i, 3), np.float32)
        )
    assert parse_schema(draft(tmp_path / "clouds").text).fields["array"].role == "points"


def test_more_fields_than_a_schema_may_declare_are_drafted_as_any(tmp_path):
    (tmp_path / "d").mkdir()
    for count, declared in ((1_000, 1_000), (1_001, 1)):
        (tmp_path / "d/1.jsonl").write_text(json.dumps({f"a{n:04}": n for n in range(count)}))
        made = draft(tmp_path / "d").text
        assert len(parse_schema(made).fields) == declared
        assert (
            "'*': {}    # inferred: 1,001 fields; a schema declares at most 1,000\n" in made
        ) == (declared == 1)


def test_more_fields_than_a_schema_may_declare_are_drafted_as_any_beside_those_of_a_built_in_one(
    tmp_path,
):
    robomimic(
        tmp_path / "d/demo.hdf5",
        "actions",
        ("states", *(f"obs/a{n:04}" for n in range(1_000))),
        demos=2,
    )
    made = draft(tmp_path / "d").text
    assert "extends: robomimic" in made
    assert "'*': {}    # inferred: 1,010 fields; a schema declares at most 1,000\n" in made
    assert list(parse_schema(made).fields) == [*load_schema("robomimic").fields, "*"]


ODD = {
    "no name": {"": "a"},
    "a NUL": {"a\0b": np.zeros(3)},
    "a long name": {"n" * 250: np.zeros(3)},
    "a long name of three bytes a letter": {"\u6c49" * 60: np.zeros(3)},
    "an axis of size 0": {"odd": np.zeros((4, 0))},
    "many axes": {"odd": np.zeros([1] * 63)},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_field_of_one_sample_that_no_cache_can_hold_is_named_and_not_drafted(tmp_path, odd):
    """A build leaves such a field out where no schema lists it, and refuses one that it is to store."""
    (tmp_path / "d").mkdir()
    for i in range(12):
        values = {"x": np.random.default_rng(i).random(4)} | (odd if i == 5 else {})
        (tmp_path / f"d/{i:02}.pkl").write_bytes(pickle.dumps(values))
    made = draft(tmp_path / "d").text
    schema = parse_schema(made)
    assert list(schema.fields) == ["x"]
    assert "left out, as no cache can hold a field of such a name or shape: " in made
    (built,) = build(schema, tmp_path / "d", tmp_path / "cache")
    assert (built.samples, built.valid) == (12, 12)


def test_an_empty_name_is_drafted_for_no_sample(tmp_path):
    """Rules crashed on a field that is called so."""
    (tmp_path / "d").mkdir()
    for i in range(6):
        points = np.random.default_rng(i).random((21, 3))
        (tmp_path / f"d/{i:02}.pkl").write_bytes(pickle.dumps({"x": points[0], "": points}))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert list(schema.fields) == ["x"]
    assert run_scan(schema, Request(tmp_path / "d", output=tmp_path / "run")).report.exit_code == 0


@pytest.mark.parametrize(
    "name", ["@a", "@", "{x}{0}{", "{id}", "}", "*", "a[0]", "a:b", "-rf", "/a", "a//b", " "]
)
def test_names_in_a_file_beside_the_samples_own_end_no_draft(tmp_path, name):
    """Of one of them `at:` would mean an attribute, or a placeholder."""
    (tmp_path / "d").mkdir()
    for i in range(12):
        rng = np.random.default_rng(i)
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(
            tmp_path / f"d/{i:02}.png"
        )
        said = {"label": i % 3, "box": rng.random(4).tolist()} | ({name: "a"} if i == 5 else {})
        (tmp_path / f"d/{i:02}.json").write_text(json.dumps(said))
    made = draft(tmp_path / "d").text
    fields = parse_schema(made).fields
    assert {"label", "box"} <= fields.keys()
    assert ("left out, as at:" in made) == (name[:1] in ("@", "{", "}"))


def test_empty_files_and_a_video_beside_a_table_do_not_hide_it(tmp_path):
    """A LeRobot dataset whose meta files are empty is drafted from its table."""
    folder = tmp_path / "d"
    for name in ("meta/episodes.jsonl", "meta/tasks.jsonl", "meta/info.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "data").mkdir()
    pq.write_table(
        pa.table({"x": pa.array([[1.0, 2.0]] * 9)}), folder / "data/episode_000000.parquet"
    )
    assert list(parse_schema(draft(folder).text).fields) == ["x"]


def test_no_name_of_a_file_or_field_breaks_the_lines_of_a_draft(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(6):
        np.savez(
            tmp_path / f"d/{i}.npz",
            **{"deep/" * 30: np.arange(4.0), "a\nb": np.arange(3.0), "c": np.ones(2)},
        )
    (tmp_path / "d/1\n- |\x1b.npz").write_bytes(b"no archive")
    text = draft(tmp_path / "d").text
    assert "\n# could not be read: 1\\n- |\\x1b.npz: damaged .npz" in text
    assert [line.partition(":")[0] for line in text.splitlines() if ": measured" in line] == [
        "  ",
        "  c",
        "  ",
    ]
    assert set(parse_schema(text).fields) == {"deep/" * 30, "a\nb", "c"}


@pytest.mark.parametrize("dtype", [np.uint64, np.int64])
def test_time_stamps_that_fall_are_none_whatever_their_type(tmp_path, dtype):
    (tmp_path / "d").mkdir()
    for i in range(4):
        rising = np.arange(10, dtype=dtype) * 3
        np.savez(tmp_path / f"d/{i}.npz", time_a=rising, time_b=rising[::-1])
    schema = parse_schema(draft(tmp_path / "d").text)
    assert (schema.spec("time_a").role, schema.spec("time_b").role) == ("timestamp", None)


@pytest.mark.parametrize(("bad", "role"), [(2, "timestamp"), (3, None)])
def test_a_clock_that_runs_backwards_in_a_few_files_is_one(tmp_path, monkeypatch, bad, role):
    """Two blocks of rows in the wrong order in three of 58 files: the column was no clock, and nothing judged it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    for i in range(20):
        rows = np.arange(100)
        if i < bad:
            rows = np.concatenate([rows[50:], rows[:50]])
        days = np.datetime64("2020-01-01T00:00") + 5 * rows.astype("timedelta64[m]")
        lines = [f"{str(day).replace('T', ' ')}:00,{math.sin(n + i)}" for n, day in enumerate(days)]
        (tmp_path / f"d/{i}.csv").write_text("\n".join(["timestamp,value", *lines]))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.fields["timestamp"].role == role
    told = [
        one
        for one in run_scan(schema, Request(tmp_path / "d")).report.findings
        if one.code == "DC502"
    ]
    assert [(one.kind, one.failed) for one in told] == ([("order", bad)] if role else [])


def test_a_field_that_some_samples_lack_is_optional():
    seen = FieldProfile(
        samples=3, dtypes={"float64": 3}, ndims={"1": 3}, item=[], low=0.2, high=0.8
    )
    assert guess("x", seen, {}, 4).spec == {"shape": [], "range": "0.14..0.86", "optional": True}


def test_fields_of_equal_lengths_share_a_name_and_others_do_not():
    seen = {
        n: FieldProfile(lengths=lengths)
        for n, lengths in {"a": [3, 4], "b": [3, 4], "c": [9, 9, 9], "d": [5, 1]}.items()
    }
    assert name_axes(seen, episodes=False) == {"a": ("P", 0), "b": ("P", 0), "d": ("N", 0)}
    assert name_axes(seen, episodes=True)["a"].name == "T"


def test_every_file_of_lines_is_looked_into_however_long_the_first_ones_are(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / f"d/{name}.jsonl").write_text(
            "".join(f'{{"{name}": "text {i}"}}\n' for i in range(500))
        )
    found = draft(tmp_path / "d")
    assert sorted(parse_schema(found.text).fields) == ["a", "b", "c"]
    assert found.samples <= 200


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["A.NPY", "B.NPY", "c.npy"], ("*.NPY", "c.npy")),  # of two endings: none is left out
        (
            ["train/train/x.npy", "train/test/x.npy", "val/test/x.npy"],
            ("{split}/{folder2}/{id}.npy",),
        ),
        (["train/val.npy", "val/train.npy", "val/val.npy"], ("{split}/{id}.npy",)),
    ],
)
def test_a_pattern_fits_every_file_that_it_was_made_for(tmp_path, names, files):
    rng = np.random.default_rng(0)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / name).open("wb") as file:
            np.save(file, rng.normal(size=(8, 3)))
    drafted = parse_schema(draft(tmp_path).text)
    assert drafted.samples.files == files
    listing = list_files(tmp_path)
    assert {item.path for item in plan_work(drafted, listing).items} == set(names)


@pytest.mark.parametrize(
    "values",
    [
        [-1e308, 1e308],
        [0.0, 5e-324],
        [-5e-324, 5e-324],
        [1e-310, 3e-310],
        [0.0, 1.75e308],
        [-1.75e308, 0.0],
        [1.7e308, 1.75e308],
        [5e-309 + 5e-324, 5.5e-308 + 5e-324],
    ],
)
def test_the_range_of_the_largest_and_smallest_numbers_holds_them(tmp_path, values):
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", x=np.array(values))
    spec = parse_schema(draft(tmp_path).text).fields["x"]
    assert spec.range is None or (spec.range.low <= values[0] and values[1] <= spec.range.high)


@pytest.mark.parametrize("role", ["label", "instance"])
def test_a_mark_among_many_labels_is_drafted_as_ignored(tmp_path, role):
    (tmp_path / "d").mkdir()
    for i in range(6):
        labels = np.concatenate([np.full(50, -100), np.arange(150)])
        np.savez(tmp_path / f"d/{i}.npz", **{role: labels[i:]})
    assert parse_schema(draft(tmp_path / "d").text).fields[role].ignore == (-100,)


@pytest.mark.parametrize("odd", [-(2**63), -1e300, -(10**18)])
@pytest.mark.parametrize("role", ["label", "instance"])
@pytest.mark.parametrize("many", [9, 150])
def test_what_nan_becomes_as_a_whole_number_is_no_mark(tmp_path, role, many, odd):
    (tmp_path / "d").mkdir()
    for i in range(6):
        labels = np.arange(-1, many, dtype=np.float64 if isinstance(odd, float) else np.int64)
        np.savez(
            tmp_path / f"d/{i}.npz", **{role: np.append(labels[i:], odd) if i == 5 else labels[i:]}
        )
    text = draft(tmp_path / "d").text
    assert parse_schema(text).fields[role].ignore == (-1,)
    assert f"; {odd:.3g} is no label" in text


def test_a_column_with_what_is_no_label_has_no_classes(tmp_path):
    (tmp_path / "rooms").mkdir()
    for i in range(4):
        array = cloud(i, "xyz", "rgb", "label").astype(np.float64)
        array[0, 6] = -1e300 if i == 3 else -1
        np.save(tmp_path / "rooms" / f"{i}.npy", array)
    fields = parse_schema(draft(tmp_path / "rooms").text).fields
    assert {name: spec.role for name, spec in fields.items()} == {
        "array": None,
        "array.xyz": "points",
        "array.rgb": "color",
        "array.column6": None,
    }


def test_sizes_that_are_far_apart_are_said_to_be(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(6):
        cloud = np.random.default_rng(i).uniform(0, 1, (50 + i, 3))
        np.savez(tmp_path / f"d/{i}.npz", points=cloud * (1000 if i == 3 else 1))
    assert "some may be in another unit" in draft(tmp_path / "d").text


def lines(folder, count=10_000):
    folder.mkdir()
    rng = np.random.default_rng(0)
    score, words = rng.normal(size=count), rng.integers(1, 900, count)
    rows = (
        {
            "id": i,
            "made": 1.6e9 + 0.5 * i,
            "label": i * 10 // count,
            "score": float(score[i]),
            "words": int(words[i]),
            "turn": "left" if i % 2 else i,
        }
        for i in range(count)
    )
    (folder / "train.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))


def test_a_draft_of_a_few_lines_of_many_fits_all_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "d")
    drafted = draft(tmp_path / "d")
    schema = parse_schema(drafted.text)
    assert drafted.samples == 200
    # The next sample has a larger one
    assert (schema.fields["id"].role, schema.fields["id"].range) == ("id", None)
    assert schema.fields["made"].range is None
    assert "made: {shape: []}    # inferred: rises from sample to sample, measured " in drafted.text
    # Sorted by it: the first thousand have one
    assert str(schema.fields["label"].classes) == "0..9"
    assert schema.fields["words"].range.low == 0  # none is below, and all are above
    assert schema.fields["score"].range.high < 20
    assert "turn: {}    # inferred: int64 in " in drafted.text  # a text, or a number, by turns
    told = run_scan(schema, Request(tmp_path / "d")).report.findings
    assert [(one.code, one.kind) for one in told] == [("DC126", "turn")]
    with (tmp_path / "d/train.jsonl").open("ab") as file:
        file.write(
            b"\n"
            + orjson.dumps(
                {"id": 10_000, "made": 2e9, "label": 3, "score": 400, "words": 3, "turn": 1}
            )
        )
    told = run_scan(schema, Request(tmp_path / "d")).report.findings
    assert [one.fields for one in told if one.code == "DC224"] == [("score",)]


def test_the_range_of_all_samples_is_a_little_wider_and_that_of_a_few_three_times_as_wide(tmp_path):
    for name, count in (("all", 200), ("few", 201)):
        (tmp_path / name).mkdir()
        values = np.resize([-10.0, 90.0], count)
        (tmp_path / name / "a.jsonl").write_bytes(
            b"\n".join(orjson.dumps({"x": float(x)}) for x in values)
        )
    ranges = [
        parse_schema(draft(tmp_path / name).text).fields["x"].range for name in ("all", "few")
    ]
    assert [(r.low, r.high) for r in ranges] == [(-20, 100), (-110, 190)]


@pytest.mark.parametrize(("count", "ranged"), [(8, True), (20, False), (20_000, False)])
def test_a_number_that_rises_from_row_to_row_has_no_range(tmp_path, count, ranged):
    (tmp_path / "d").mkdir()
    rows = ({"frame": i, "wave": math.cos(i), "equal": i // 2} for i in range(count))
    (tmp_path / "d/a.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    fields = parse_schema(draft(tmp_path / "d").text).fields
    assert [fields[name].range is not None for name in ("frame", "wave", "equal")] == [
        ranged,
        True,
        True,
    ]


def test_files_that_are_only_called_as_a_built_in_schema_wants_are_drafted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    for i, name in enumerate(("lift", "door", "stack")):
        with h5py.File(
            tmp_path / f"d/{name}_demo.hdf5", "w"
        ) as file:  # LIBERO's name, robosuite's fields
            group = file.create_group("data/demo_1")
            rng = np.random.default_rng(i)
            group["actions"] = rng.uniform(-1, 1, (40 + i, 7))
            group["states"] = rng.normal(size=(40 + i, 32))
            group["joint_torques"] = rng.normal(0, 30, (40 + i, 7))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.samples.each == "/data/demo_*"  # one in each file
    assert {name: spec.role for name, spec in schema.fields.items()} == {
        "actions": "action",
        "states": None,
        "joint_torques": None,
    }
    assert run_scan(schema, Request(tmp_path / "d")).report.findings == []


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("joint_pos", "joint_angle"),
        ("joint_vel", None),
        ("robot_joint_velocity", None),
        ("gripper_qvel", None),
        ("joint_pos_cos", None),
        ("joint_torques", None),
        ("finger_force", None),
        ("joint_accel", None),
        ("joint_level", "joint_angle"),
        ("wheel_joint", "joint_angle"),
    ],
)
def test_how_fast_and_how_strong_joints_move_are_no_angles(name, role):
    seen = FieldProfile(1, {"float32": 1}, {"2": 1}, [7], [50], -1.5, 1.25, whole=False)
    assert guess(name, seen, {}, 1).spec.get("role") == role


@pytest.mark.parametrize(("dtype", "role"), [("float64", "joint_angle"), ("int64", None)])
def test_whole_numbers_that_name_joints_are_no_angles(dtype, role):
    """`"LeftJoints": [9, 10, 11, 12, 13, 14]` were angles in degrees that never change."""
    assert (
        guess("LeftJoints", FieldProfile(3, {dtype: 3}, {"1": 3}, [6], [], 9, 14), {}, 3).spec.get(
            "role"
        )
        == role
    )


@pytest.mark.parametrize(
    ("dtype", "ends", "wanted"),
    [
        ("uint8", (3, 250), "0..255"),
        ("int8", (-120, 120), "-128..127"),
        ("uint16", (5, 100), "0..110"),
        ("bool", (0, 1), None),
        ("float32", (3, 250), "0..280"),
        ("float32", (-50, -20), "-53..-17"),
        ("float32", (-50, -1), "-55..0"),
    ],
)
def test_a_range_ends_where_the_type_does(dtype, ends, wanted):
    seen = FieldProfile(1, {dtype: 1}, {"1": 1}, [], [50], *map(float, ends), whole=True)
    assert guess("x", seen, {}, 1).spec.get("range") == wanted


def test_elements_of_json_lists_are_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    for name, count in (("alpaca", 90), ("identity", 9)):
        rows = [
            {
                "instruction": f"Say {i} " * 20,
                "input": "" if i % 3 else "x " * 50,
                "output": f"{name} {i}",
            }
            for i in range(count)
        ]
        (tmp_path / f"d/{name}.json").write_bytes(orjson.dumps(rows))
    (tmp_path / "d/notes").write_text("nothing")
    drafted = draft(tmp_path / "d")
    schema = parse_schema(drafted.text)
    assert (schema.samples.each, drafted.samples) == ("line", 99)
    assert schema.fields.keys() == {"instruction", "input", "output"}
    assert "2 files, each element of which looks like a sample" in drafted.text
    report = run_scan(schema, Request(tmp_path / "d")).report
    assert report.findings == []
    assert (
        "input: {role: text, optional: true}    # inferred: text; empty in 66 of 99 samples"
        in drafted.text
    )
    for i in range(7):  # a list of each sample: its steps, its objects
        (tmp_path / f"d/more_{i}.json").write_bytes(orjson.dumps([{"x": i}, {"x": 2}]))
    assert parse_schema(draft(tmp_path / "d").text).samples.each is None


def test_a_draft_counts_what_it_could_not_read_and_does_not_describe(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(12):
        np.save(tmp_path / f"d/{i:02}.npy", np.arange(6.0).reshape(2, 3))
        if i < 5:
            (tmp_path / f"d/{i:02}.npy").write_bytes(b"not an array")
    for ending in ("ply", "off", "obj", "las", "pcd", "json", "csv"):
        (tmp_path / f"d/one.{ending}").write_bytes(b"{}")
    (tmp_path / "d/out.npy").symlink_to("/proc/self/status")
    notes = draft(tmp_path / "d").notes
    assert sum(note.startswith("could not be read: 0") for note in notes) == 3
    assert "could not be read: 2 more of 12 that were looked at" in notes
    (others,) = [note for note in notes if note.startswith("not described: ")]
    assert others.endswith(", 1 file of other kinds")  # six of seven kinds are named
    assert sum(note.startswith("left out: out.npy") for note in notes) == 1


def test_values_of_a_kind_that_is_not_read_are_named(tmp_path):
    (tmp_path / "d").mkdir()
    pq.write_table(
        pa.table({"x": [0.5, 1.0], "picture": [{"bytes": b"a"}, {"bytes": b"b"}]}),
        tmp_path / "d/a.parquet",
    )
    assert draft(tmp_path / "d").notes == ("of a kind that is not read: picture",)


def test_a_nan_in_one_demo_of_a_pickled_list_costs_that_demo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    demos = [
        {"obs": np.random.default_rng(d).normal(size=(20 + d, 4)), "task": "pick"}
        for d in range(25)
    ]
    demos[7]["obs"][3, 1] = np.nan
    (tmp_path / "d/demos.pkl").write_bytes(pickle.dumps(demos))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.samples.each == "/*"
    run = run_scan(schema, Request(tmp_path / "d"))
    (found,) = run.report.findings
    assert (found.code, tuple(found.fields), tuple(found.examples)) == (
        "DC221",
        ("obs",),
        ("demos.pkl:/07",),
    )
    assert (int(run.valid.sum()), len(run.valid)) == (24, 25)


def test_the_command_that_follows_a_draft_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clouds(tmp_path / "my data")
    done = CliRunner().invoke(init, ["my data", "-o", "a b.yaml"])
    assert done.exit_code == 0, done.output
    command = done.stderr.rpartition("then: ")[2]
    assert shlex.split(command) == ["datacheck", "scan", "my data", "--schema", "a b.yaml"]


def test_a_lerobot_dataset_with_more_videos_than_tables_is_extended(tmp_path):
    folder = lerobot(tmp_path / "d")
    for i in range(12):
        path = folder / f"videos/chunk-000/observation.images.top/episode_{i:06}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"frames")
    found = draft(folder)
    assert (
        "extends: lerobot    # inferred: 4 files of its layout; datacheck scan DATA --schema "
        "lerobot works" in found.text
    )
    assert parse_schema(found.text).fields.keys() == load_schema("lerobot").fields.keys()
    assert any("12 .mp4 files" in note for note in found.notes)


def robomimic(path, actions, names=(), demos=6):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for d in range(demos):
            rng, steps = np.random.default_rng(d), 60 + d
            group = file.create_group(f"data/demo_{d}")
            group.attrs["num_samples"] = steps
            group[actions] = rng.uniform(-1, 1, (steps, 7))
            for name in names:
                group[name] = rng.normal(size=(steps, 3))


ROBOMIMIC = (
    "states",
    "obs/object",
    "obs/robot0_eef_pos",
    "obs/robot0_joint_pos",
    "obs/robot0_gripper_qpos",
    "obs/force",
)


def test_a_draft_that_extends_says_what_differs(tmp_path, monkeypatch):
    """Other file names, another name of the actions, one field more."""
    monkeypatch.chdir(tmp_path)
    robomimic(tmp_path / "d/lift.h5", "action", ROBOMIMIC)
    text = draft(tmp_path / "d").text
    assert "extends: robomimic" in text
    schema, parent = parse_schema(text), load_schema("robomimic")
    assert schema.samples.files == ("lift.h5",)
    assert schema.fields["actions"].at == "action"
    assert schema.fields.keys() - parent.fields.keys() == {"obs/force"}
    run = run_scan(schema, Request(tmp_path / "d"))
    assert (len(run.valid), "DC121" in [f.code for f in run.report.findings]) == (6, False)


@pytest.mark.parametrize(("actions", "names"), [("actions", ("force",)), ("controls", ROBOMIMIC)])
def test_demos_that_only_have_groups_like_those_of_a_built_in_schema_are_drafted(
    tmp_path, actions, names
):
    robomimic(tmp_path / "d/lift.h5", actions, names)
    text = draft(tmp_path / "d").text
    assert "extends" not in text
    assert parse_schema(text).fields.keys() == {actions, *names}


def test_a_field_that_no_sample_holds_is_optional_in_a_draft_that_extends(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(3):
        with h5py.File(tmp_path / f"d/episode_{i}.hdf5", "w") as file:
            file["observations/qpos"] = np.random.default_rng(i).normal(size=(200, 14))
    text = draft(tmp_path / "d").text
    assert "extends: aloha" in text
    assert (
        "  action: {optional: true}    # inferred: in none of 3 samples that were looked at" in text
    )


def _pictures(folder, count, side=32):
    folder.mkdir(parents=True)
    for i in range(count):
        noise = np.random.default_rng(i).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{i:03d}.png")


def test_a_folder_of_which_no_kind_of_files_is_the_data_is_drafted_file_by_file(tmp_path):
    """Pictures beside the annotations and poses that make them a dataset: 4 % of the bytes were read, and it was OK."""
    data = tmp_path / "data"
    _pictures(data / "images", 6)
    (data / "poses.json").write_bytes(orjson.dumps({"frames": [[0.5, 1.0]] * 6}))
    np.savez(data / "annotations.npz", joints=np.ones((6, 17, 3)))
    made = draft(data)
    assert parse_schema(made.text).fields.keys() == load_schema("files").fields.keys()
    run = run_scan(parse_schema(made.text), Request(data, output=tmp_path / "run"))
    assert (len(run.table.keys), run.report.findings) == (8, [])
    np.savez(data / "annotations.npz", joints=np.full((6, 17, 3), np.nan))
    run = run_scan(parse_schema(made.text), Request(data, output=tmp_path / "other"))
    assert [finding.code for finding in run.report.findings] == ["DC221"]


def test_few_arrays_beside_many_pictures_are_not_the_data(tmp_path):
    _pictures(tmp_path / "raw", 30)
    np.save(tmp_path / "labels.npy", np.arange(30))
    assert "extends: files" in draft(tmp_path).text
    np.save(tmp_path / "labels.npy", np.arange(30_000.0))  # as many bytes as the pictures
    assert parse_schema(draft(tmp_path).text).samples.files == ("labels.npy",)


def test_the_kind_with_more_bytes_is_the_data_where_there_are_as_many_of_another(tmp_path):
    for i in range(2):
        (tmp_path / f"mesh_{i}.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
        with h5py.File(tmp_path / f"grasps_{i}_of.h5", "w") as file:
            file["transforms"] = np.tile(np.eye(4), (100, 1, 1))
    assert "transforms" in parse_schema(draft(tmp_path).text).fields


def test_a_draft_of_lines_counts_what_it_leaves_out(tmp_path):
    for name in ("train", "test"):
        texts = [orjson.dumps({"q": f"what is {i} of {name}?"}) + b"\n" for i in range(20)]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(texts))
    assert "rules" not in draft(tmp_path).text
    pq.write_table(
        pa.table({"x": np.random.default_rng(0).normal(size=2000)}), tmp_path / "more.parquet"
    )
    assert parse_schema(draft(tmp_path).text).rules["DC113"].model_extra == {"left_out": True}


@pytest.mark.parametrize(
    ("holes", "samples", "marks"), [(30, 1, False), (100, 1, True), (1, 8, True)]
)
def test_few_nan_of_one_sample_are_no_mark(tmp_path, holes, samples, marks):
    for i in range(samples):
        values = np.random.default_rng(i).uniform(size=(100, 10))
        values.reshape(-1)[:holes] = np.nan
        np.save(tmp_path / f"table_{i}.npy", values)
    assert (parse_schema(draft(tmp_path).text).fields["array"].finite is False) == marks


def test_files_of_two_endings_that_hold_the_same_are_described_together(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for n in range(10):
        for ending, rows in ((".pkl", 100), (".pickle", 50)):
            (tmp_path / "d").mkdir(exist_ok=True)
            (tmp_path / f"d/task{n}{ending}").write_bytes(pickle.dumps(rng.normal(size=(rows, 9))))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert set(schema.samples.files) == {"*.pickle", "*.pkl"}
    monkeypatch.chdir(tmp_path)
    assert [f.code for f in run_scan(schema, Request(tmp_path / "d")).report.findings] == []
    for n in range(10):
        (tmp_path / f"d/task{n}.pickle").write_bytes(pickle.dumps({"other": rng.normal(size=3)}))
    assert len(parse_schema(draft(tmp_path / "d").text).samples.files) == 1


def test_the_one_group_of_each_file_is_the_sample_whatever_it_is_called(tmp_path):
    for n, name in enumerate(("walk", "run", "kick a ball", "jump_level2")):
        inner = {"dof": np.full((30 + n, 23), n / 9), "fps": 30}
        (tmp_path / f"{n}.pkl").write_bytes(pickle.dumps({name: inner}))
    schema = parse_schema(draft(tmp_path).text)
    assert schema.samples.each == "/*"
    assert set(schema.fields) == {"dof", "fps"}


def test_tables_of_several_kinds_are_not_rows_of_one(tmp_path):
    for n in range(2):
        for name in ("poses", "boxes", "cameras"):
            columns = {f"{name}_{c}": np.arange(50.0) for c in "xy"} | {
                f"{name}_id": [f"{n}{i}" for i in range(50)]
            }
            pq.write_table(pa.table(columns), tmp_path / f"{name}{n}.parquet")
    schema = parse_schema(draft(tmp_path).text)
    assert schema.samples.each is None
    assert len(schema.fields) == 9


def test_shards_behind_whose_ending_a_number_stands_have_one_pattern(tmp_path):
    data = (CORPUS / "tfrecord/y_rlds.tfrecord-00000-of-00001").read_bytes()
    for split in ("train", "val"):
        for n in range(3):
            (tmp_path / f"bridge-{split}.tfrecord-0000{n}-of-00003").write_bytes(data)
    schema = parse_schema(draft(tmp_path).text)
    assert (schema.samples.files, schema.samples.each) == (
        ("{id}-{split}.tfrecord-{shard}",),
        "key",
    )
    work = plan_work(schema, list_files(tmp_path, {}, None))
    assert sorted(item.split for item in work.items) == ["train"] * 3 + ["val"] * 3


@pytest.mark.parametrize(
    ("stated", "told"), [(None, {}), ("2", {}), ("3", {"val": 2}), ("none", {})]
)
def test_records_are_counted_against_what_tensorflow_datasets_states(
    tmp_path, monkeypatch, stated, told
):
    """Each shard of the corpus has two records."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    data = (CORPUS / "tfrecord/y_rlds.tfrecord-00000-of-00001").read_bytes()
    for name in (
        "train.tfrecord-00000-of-00001",
        "val.tfrecord-00000-of-00002",
        "val.tfrecord-00001-of-00002",
    ):
        (tmp_path / f"d/bridge-{name}").write_bytes(data)
    splits = [
        {"name": "train", "shardLengths": ["2"]},
        {"name": "val", "shardLengths": ["2", stated]},
        "x",
    ]
    if stated is not None:
        (tmp_path / "d/dataset_info.json").write_bytes(orjson.dumps({"splits": splits}))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.attrs == ({} if stated is None else {"shardLengths": "samples"})
    found = [
        one
        for one in run_scan(schema, Request(tmp_path / "d")).report.findings
        if one.code == "DC111"
    ]
    assert {one.split: one.failed for one in found} == told
    assert all("states shardLengths: 3 where there are 2" in one.message for one in found)


@pytest.mark.parametrize(("each", "rising"), [(1, True), (3, False), (20, False)])
def test_many_rows_of_one_time_are_no_clock(tmp_path, each, rising):
    for n in range(6):
        np.savez(tmp_path / f"{n}.npz", time=np.arange(120) // each, x=np.arange(120.0))
    assert (parse_schema(draft(tmp_path).text).fields["time"].role == "timestamp") == rising


def test_bytes_of_no_known_type_are_no_read_data(tmp_path, monkeypatch):
    for n in range(10):
        (tmp_path / "d").mkdir(exist_ok=True)
        np.random.default_rng(n).integers(0, 256, 4001).astype(np.uint8).tofile(
            tmp_path / f"d/r{n}.bin"
        )
    monkeypatch.chdir(tmp_path)
    for schema in (parse_schema(draft(tmp_path / "d").text), load_schema("files")):
        (finding,) = run_scan(schema, Request(tmp_path / "d")).report.findings
        assert finding.code == "DC113"
        assert ".bin of a type that nothing says (10 files, all" in finding.message
    (tmp_path / "clouds").mkdir()
    np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32).tofile(
        tmp_path / "clouds/0.bin"
    )
    assert run_scan(load_schema("files"), Request(tmp_path / "clouds")).report.findings == []


def test_of_very_many_names_a_draft_holds_no_more_than_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("datacheck.infer.worker._MOST_PROFILES", 3)
    np.savez(tmp_path / "1.npz", **{f"a{n}": np.zeros((4, 3)) for n in range(9)})
    items = [item.as_dict() for item in plan_work(load_schema("files"), list_files(tmp_path)).items]
    task = {
        "schema": load_schema("files").as_dict(),
        "root": str(tmp_path),
        "roots": {},
        "items": items,
        "most": 9,
    }
    assert sorted(profile_samples(task, lambda _: None)["fields"]) == ["a0", "a1", "a2"]


def test_records_in_json_lists_and_lines_are_samples_and_other_documents_are_not(tmp_path):
    """As folders of corpora are: what says where they are, and a small table, lie beside them."""
    folder = tmp_path / "d"
    folder.mkdir()
    rows = [{"instruction": f"Say {i} " * 20, "output": f"yes {i}"} for i in range(60)]
    (folder / "alpaca.json").write_bytes(orjson.dumps(rows))
    (folder / "more.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows[:9]))
    (folder / "info.json").write_bytes(orjson.dumps({"alpaca": {"file_name": "alpaca.json"}}))
    (folder / "slots.json").write_bytes(orjson.dumps([{"slot": "a"}, {"slot": "b"}]))
    drafted = draft(folder)
    schema = parse_schema(drafted.text)
    assert (schema.samples.each, schema.samples.files) == ("line", ("alpaca.json", "more.jsonl"))
    assert schema.fields.keys() == {"instruction", "output"}
    assert "not described: 2 .json files" in drafted.notes
    assert len(run_scan(schema, Request(folder)).table) == 69
    (folder / "broken.json").write_bytes(b"<html>gone</html>")  # it may be one of them
    assert parse_schema(draft(folder).text).samples.files == (
        "alpaca.json",
        "broken.json",
        "more.jsonl",
    )
    # Now the lists are not the data
    (folder / "large.json").write_bytes(orjson.dumps({"text": "x" * 100_000}))
    assert parse_schema(draft(folder).text).samples.files == ("more.jsonl",)


def test_records_at_several_depths_are_samples(tmp_path):
    """No pattern fits lists and lines at two depths: init once called the files empty."""
    rows = [{"instruction": f"Say {i} " * 20, "output": f"yes {i}"} for i in range(60)]
    (tmp_path / "d/lists").mkdir(parents=True)
    (tmp_path / "d/lists/all.json").write_bytes(orjson.dumps(rows))
    (tmp_path / "d/more.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows[:9])))
    samples = parse_schema(draft(tmp_path / "d").text).samples
    assert (samples.each, samples.files) == ("line", ("lists/all.json", "more.jsonl"))


def test_a_list_of_other_records_that_is_small_beside_the_rest_is_no_part_of_them(tmp_path):
    """The tables of a corpus of dialogues say what its services are: complete, however small."""
    for i in range(4):
        rows = [{"dialogue": f"{i}-{n}", "turns": f"What is {n}? " * 9} for n in range(100)]
        (tmp_path / f"dialogues_{i}.json").write_bytes(orjson.dumps(rows))
    services = [{"service": f"s{n}", "slots": "place"} for n in range(25)]
    (tmp_path / "schema.json").write_bytes(orjson.dumps(services))
    assert (tmp_path / "schema.json").stat().st_size * 100 > (
        tmp_path / "dialogues_0.json"
    ).stat().st_size
    files = parse_schema(draft(tmp_path).text).samples.files
    assert files == tuple(f"dialogues_{i}.json" for i in range(4))


def test_files_that_are_called_as_those_of_a_layout_and_hold_other_groups_are_drafted(tmp_path):
    (tmp_path / "d").mkdir()
    with h5py.File(tmp_path / "d/demo.hdf5", "w") as file:
        for i in range(5):
            file[f"demo_{i}/action"] = np.random.default_rng(i).normal(size=(30, 2))
    lines = []
    run = scan(tmp_path / "d", output=tmp_path / "out", report=lines.append)
    assert lines[1].startswith(
        "schema robomimic is not the right one: no file holds a group like /data/demo_"
    )
    assert run.table.keys == [f"demo.hdf5:/demo_{i}" for i in range(5)]
    assert run.report.exit_code == 0
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.samples.each == "/demo_*"
    assert schema.fields.keys() == {"action"}


def test_rows_of_numbers_that_nearly_all_have_one_length_are_of_that_length(tmp_path):
    (tmp_path / "d").mkdir()
    for i in range(60):
        np.save(
            tmp_path / f"d/{i:02}.npy",
            np.random.default_rng(i).normal(size=21 if i in {7, 30, 31} else 50),
        )
    text = draft(tmp_path / "d").text
    assert "array: {shape: [50]," in text
    assert "of another length in 3 of 40 samples" in text  # as many files are looked into
    run = run_scan(parse_schema(text), Request(tmp_path / "d", output=tmp_path / "out"))
    assert [key for key, codes in zip(run.table.keys, run.codes, strict=True) if codes] == [
        "07.npy",
        "30.npy",
        "31.npy",
    ]
    for i in range(0, 60, 9):  # now they have many lengths
        np.save(tmp_path / f"d/{i:02}.npy", np.random.default_rng(i).normal(size=22 + i))
    assert "array: {shape: [P]," in draft(tmp_path / "d").text


def test_many_lists_of_like_size_are_lists_of_records(tmp_path):
    for i in range(130):
        rows = [{"instruction": f"Say {i} {n} " * 9, "output": "yes"} for n in range(40)]
        (tmp_path / f"{i:03}.json").write_bytes(orjson.dumps(rows))
    assert parse_schema(draft(tmp_path).text).samples.each == "line"


def test_a_draft_of_a_folder_with_a_line_break_in_its_name_fits_its_files(in_tmp):
    """The comment of its pattern stood within the pattern, which then fitted no file."""
    for name in ("a\nb", "a\rb", "a: #b\n\nc"):
        folder = in_tmp / "data" / name
        folder.mkdir(parents=True)
        for i in range(6):
            np.save(folder / f"{i}.npy", np.random.default_rng(i).normal(size=(20 + i, 3)))
        schema = parse_schema(draft(in_tmp / "data").text)
        found = plan_work(schema, list_files(in_tmp / "data"))
        assert len(found.items) == 6
        shutil.rmtree(in_tmp / "data")


def test_an_attribute_of_an_xml_element_is_drafted_and_read_as_a_value(in_tmp):
    """LabelImg writes ``verified="yes"``: the draft named an attribute of a sample, which its own scan refused."""
    for i in range(6):
        for name in ("images", "annotations"):
            (in_tmp / "data" / name).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(in_tmp / f"data/images/{i}.jpg")
        box = f"<xmin>{i}</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax>"
        (in_tmp / f"data/annotations/{i}.xml").write_text(
            '<annotation verified="yes"><size><width>64</width><height>48</height><depth>3</depth></size>'
            f"<object><name>cup</name><bndbox>{box}</bndbox></object></annotation>"
        )
    schema = parse_schema(draft(in_tmp / "data").text)
    assert schema.fields["@verified"].file == "annotations/{id}.xml"
    report = run_scan(schema, Request(in_tmp / "data")).report
    assert (report.valid, [f.code for f in report.findings]) == (6, [])


def test_a_column_of_dates_is_drafted_as_time(in_tmp):
    """As numbers in a measured range, rows out of order were fit, and those of next year a false error."""
    (in_tmp / "data").mkdir()
    for i in range(6):
        days = np.datetime64(f"201{i}-01-01") + np.arange(40)
        rows = "".join(
            f"{day} 00:00:00,{n * 0.37 + i:.2f},{n % 7}\n" for n, day in enumerate(days.tolist())
        )
        (in_tmp / f"data/{i}.csv").write_text("date,candidate,update\n" + rows)
    schema = parse_schema(draft(in_tmp / "data").text)
    assert {n for n, s in schema.fields.items() if s.role == "timestamp"} == {"date"}
    lines = (in_tmp / "data/3.csv").read_text().split("\n")
    (in_tmp / "data/3.csv").write_text("\n".join([lines[0], *lines[21:41], *lines[1:21]]) + "\n")
    assert [
        f.code
        for f in run_scan(schema, Request(in_tmp / "data")).report.findings
        if f.severity == "error"
    ] == ["DC502"]


@pytest.mark.parametrize("name", ["{b}_{}", "{{_{}", "{{files:x<90}}_{}", "}}{}", "**{}", "\\{}"])
def test_groups_whose_names_hold_signs_of_patterns_are_no_samples(tmp_path, name):
    (data := tmp_path / "data").mkdir()
    for i in range(3):
        with h5py.File(data / f"{i}.h5", "w") as file:
            for number in range(3):
                group = name.replace("{}", str(number)).replace("{{", "{").replace("}}", "}")
                file[f"{group}/v"] = np.arange(9.0) + number + 10 * i
    assert parse_schema(draft(data).text).samples.each is None
    assert scan(data, output=tmp_path / "out").report.exit_code in {0, 1}


def test_one_file_with_other_groups_does_not_decide_what_a_sample_is(tmp_path):
    for i in range(20):
        with h5py.File(tmp_path / f"good{i:02d}.h5", "w") as file:
            file["scene/points"] = np.random.default_rng(i).normal(size=(40, 3))
            file["scene/labels"] = np.arange(40) % 5
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(3):
            file[f"x/f{number}/v"] = np.arange(9.0) + number
    assert parse_schema(draft(tmp_path).text).samples.each is None


def recordings(folder, names, length=lambda subject, number: 60 + subject + 7 * number):
    """Write folders of 20 subjects: the first recording of all, the others of some, one skeleton."""
    for subject in range(20):
        place = folder / f"s{subject:02d}"
        place.mkdir(parents=True)
        for number, (name, columns) in enumerate(names.items()):
            if number == 0 or (subject + 3 * number) % 5:
                rng = np.random.default_rng([subject, number])
                values = rng.normal(size=(length(subject, number), columns))
                np.save(place / f"{name}.npy", values)
        (place / "skeleton.txt").write_text("0 1 2 3\n4 5 6 7\n")


def test_recordings_beside_one_file_for_the_folder_are_samples_each(tmp_path):
    """DC129 said of each subject without a run that a part is missing."""
    recordings(tmp_path / "d", {"walk": 6, "run": 6, "jump": 6})
    assert parse_schema(draft(tmp_path / "d").text).samples.files == ("{folder1}/{id}.npy",)
    run = scan(tmp_path / "d", output=tmp_path / "out", level="deep")
    assert len(run.table) == 20 + 16 + 16
    assert not [f for f in run.report.findings if f.code == "DC129"]
    assert any("20 files that no sample uses" in sentence for sentence in run.report.unchecked)


@pytest.mark.parametrize(
    ("names", "lacking"),
    [
        ({"pose": 6, "force": 3, "touch": 16}, {"force": 4, "touch": 4}),
        ({"pose": 6, "mirrored": 6}, {"mirrored": 4}),
    ],
)
def test_parts_that_some_samples_lack_are_still_named(tmp_path, names, lacking):
    recordings(tmp_path / "d", names, length=lambda subject, number: 60)
    run = scan(tmp_path / "d", output=tmp_path / "out", level="deep")
    found = {f.fields[0]: f.failed for f in run.report.findings if f.code == "DC129"}
    assert (len(run.table), found) == (20, lacking)


@pytest.mark.parametrize("length", [lambda subject, _: 40 + 3 * subject, lambda *_: 60])
def test_parts_of_one_length_are_of_one_sample(tmp_path, length):
    """Joints of one trial were taken for recordings of their own: no missing one was named."""
    recordings(tmp_path / "d", {"hip": 6, "knee": 6, "ankle": 6}, length)
    run = scan(tmp_path / "d", output=tmp_path / "out", level="deep")
    found = {f.fields[0]: f.failed for f in run.report.findings if f.code == "DC129"}
    assert (len(run.table), found) == (20, {"knee": 4, "ankle": 4})


def table_of_classes(path, words):
    path.parent.mkdir()
    rows = [f"{i},{value:.5f},{word}" for i, (word, value) in enumerate(words)]
    path.write_text("\n".join(["id,x,label", *rows, ""]))


@pytest.mark.parametrize(("odd", "count"), [("horze", 2), ("Horse", 3), ("horse ", 1), ("", 0)])
def test_classes_of_shuffled_rows_are_read_row_by_row(tmp_path, odd, count):
    words = np.array(["horse"] * 400 + ["sheep"] * 300 + [odd] * count)
    rng = np.random.default_rng(0)
    rng.shuffle(words)
    data = tmp_path / "d"
    table_of_classes(data / "a.csv", zip(words, rng.normal(size=len(words)), strict=True))
    assert parse_schema(draft(data).text).samples.each == "row"
    findings = scan(data, output=tmp_path / "out", level="deep").report.findings
    expected = [("DC413", ("label",), count)] if count else []
    assert [(f.code, f.fields, f.failed) for f in findings] == expected


def test_words_that_hold_for_a_while_are_steps_of_a_recording(tmp_path):
    words = ["rest", "walk", "rest", "jump", "rest"]
    values = np.random.default_rng(0).normal(size=500)
    rows = [(words[i // 100], value) for i, value in enumerate(values)]
    table_of_classes(tmp_path / "d/a.csv", rows)
    assert parse_schema(draft(tmp_path / "d").text).samples.each is None


def _cycle(words, rows):
    return [words[i % len(words)] for i in range(rows)]


@pytest.mark.parametrize("walks", [True, False])
@pytest.mark.parametrize(
    ("files", "words"),
    [
        (8, None),  # actions by chance
        (1, ["imu", "gps"]),
        (4, ["left", "left", "right", "right"]),
    ],
)
def test_words_of_recordings_that_often_change_are_no_classes_of_shuffled_rows(
    tmp_path, walks, files, words
):
    """Of two sensors in turn, and of actions by chance, each row was a sample."""
    rng = np.random.default_rng(0)
    for number in range(files):
        column = words and _cycle(words, 300)
        column = column or rng.choice(["up", "down", "left", "right"], 300).tolist()
        values = rng.normal(size=300)
        rows = zip(column, values.cumsum() if walks else values, strict=True)
        table_of_classes(tmp_path / f"d{number}/x.csv", rows)
    assert parse_schema(draft(tmp_path).text).samples.each is None


def test_numbers_that_follow_one_another_are_those_of_a_recording(tmp_path):
    rng = np.random.default_rng(0)
    words, steps = rng.choice(["up", "down"], 400).tolist(), rng.normal(size=400)
    table_of_classes(tmp_path / "a/x.csv", zip(words, steps.cumsum(), strict=True))
    table_of_classes(tmp_path / "b/x.csv", zip(words, steps, strict=True))
    assert parse_schema(draft(tmp_path / "a").text).samples.each is None
    assert parse_schema(draft(tmp_path / "b").text).samples.each == "row"
