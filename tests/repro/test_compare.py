"""Whole comparisons: planted changes in real folders, manifests and caches, through the library and the command."""

import json
import os
import random
import shutil
import struct
import sys

import h5py
import numpy as np
import orjson
import pytest

from datacheck.cli import main as cli
from datacheck.errors import StorageError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.repro import manifest, sample_digests, values
from datacheck.repro.compare import TreeDiff, compare, kind_of
from datacheck.schema.load import load_schema, parse_schema
from datacheck.sources.listing import list_files
from tests.cache.make import HalfPair, make_cache

SCHEMA = """
datacheck: 1
name: poses
samples: {files: "{id}.npz"}
fields:
  pose: {role: value, shape: [4], dtype: float32}
  label: {role: value, shape: [], dtype: int64}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def thousand(here):
    """1,000 files in ten folders, and a copy of them."""
    for i in range(1000):
        place = here / f"a/{i % 10}/{i:03d}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(random.Random(i).randbytes(50))
    shutil.copytree("a", "b")
    return here


def poses(folder, count=6):
    folder.mkdir()
    for i in range(count):
        pose = np.arange(4, dtype="f4") + i
        np.savez(folder / f"{i}.npz", pose=pose, label=np.int64(i))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(one, other):
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def run(capsys, *args):
    """Run the command; return (exit code, output, errors)."""
    sys.argv = ["datacheck", *map(str, args)]
    code = cli.run(list(map(str, args)))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


# --------------------------------------------------------------------------------- planted in files


@pytest.mark.parametrize("as_manifests", [0, 1, 2])
def test_one_byte_in_one_of_a_thousand_files_is_named(thousand, as_manifests):
    flip(thousand / "b/7/517.bin")
    places = ["a", "b"]
    for i in range(as_manifests):
        manifest.write(manifest.make(places[i]), f"{i}.json")
        places[i] = f"{i}.json"
    found = compare(*places)
    assert found.files.changed == ["7/517.bin"]
    assert [name for name, said in found.files.as_dict().items() if said] == ["changed"]


def test_two_swapped_files_are_named(thousand, capsys):
    swap(thousand / "b/3/003.bin", thousand / "b/4/104.bin")
    assert compare("a", "b").files.swapped == [("3/003.bin", "4/104.bin")]
    code, out, _ = run(capsys, "diff", "a", "b")
    assert code == 1
    assert "1 pair of files swapped\n    3/003.bin and 4/104.bin have each other's content\n" in out
    assert "changed" not in out


def test_an_unchanged_pair_gives_no_difference(thousand, capsys):
    assert not compare("a", "b")
    code, out, err = run(capsys, "diff", "a", "b")
    assert (code, err) == (0, "")
    assert out.endswith("no difference\n")


def test_what_came_went_was_renamed_and_moved_on(thousand):
    b = thousand / "b"
    (b / "0/000.bin").unlink()
    (b / "new.bin").write_bytes(b"new")
    (b / "1").rename(b / "eleven")
    # Three in a circle
    for name, goes in (("202", "x"), ("212", "202"), ("222", "212"), ("x", "222")):
        (b / f"2/{name}.bin").rename(b / f"2/{goes}.bin")
    found = compare("a", "b").files
    assert (found.removed, found.added, found.changed, found.swapped) == (
        ["0/000.bin"],
        ["new.bin"],
        [],
        [],
    )
    assert found.renamed == [(f"1/{i:03d}.bin", f"eleven/{i:03d}.bin") for i in range(1, 1000, 10)]
    assert found.reordered == {
        "2/202.bin": "2/212.bin",
        "2/212.bin": "2/222.bin",
        "2/222.bin": "2/202.bin",
    }


def test_names_that_a_terminal_would_act_on_are_spelled_out(here, capsys):
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "\x1b[31m\nred").write_text(name)
        (here / name / "größe\u202e").write_text("same")
    code, out, _ = run(capsys, "diff", "a", "b")
    assert code == 1
    assert "    \\x1b[31m\\nred\n" in out
    manifest.write(manifest.make("a"), "m.json")
    assert not compare("m.json", "a")


# ------------------------------------------------------------------------------------------ values


def test_values_are_compared_where_both_data_are_there(here, capsys):
    poses(here / "a")
    shutil.copytree("a", "b")
    with np.load("b/4.npz") as arrays:
        pose = arrays["pose"]
        pose[2] -= 3  # from 6 to 3
        pose[3] += 1  # from 7 to 8
        np.savez("b/4.npz", pose=pose, label=arrays["label"])
    said = compare("a", "b").values
    assert set(said) == {"4.npz"}
    change = {
        "before": [4],
        "after": [4],
        "values": 2,
        "largest": 3.0,
        "relative": 0.5,
        "first": [2],
    }
    assert {name: told for name, told in said["4.npz"]["pose"].items() if name != "said"} == change
    assert set(said["4.npz"]) == {"pose"}
    code, out, _ = run(capsys, "diff", "a", "b")
    assert "4.npz: pose 2 of 4 values, by up to 3 (relative 0.5), first at [2]\n" in out
    assert code == 1


def test_with_a_schema_samples_and_fields_are_named(here, capsys):
    poses(here / "a")
    shutil.copytree("a", "b")
    swap(here / "b/0.npz", here / "b/1.npz")
    np.savez("b/2.npz", pose=np.array([2, 3, 4, 5.5], "f4"), label=np.int64(9))
    (here / "b/3.npz").rename(here / "b/33.npz")
    (here / "poses.yaml").write_text(SCHEMA)
    code, out, _ = run(capsys, "diff", "a", "b", "--schema", "poses.yaml", "--format", "json")
    found = json.loads(out)
    assert (code, found["equal"], found["format"]) == (1, False, "datacheck.diff/1")
    changed, swapped, renamed = ["2.npz"], [["0.npz", "1.npz"]], [["3.npz", "33.npz"]]
    for part in ("files", "samples"):
        assert (found[part]["changed"], found[part]["swapped"], found[part]["renamed"]) == (
            changed,
            swapped,
            renamed,
        )
    assert found["fields"] == {"2.npz": ["label", "pose"]}
    assert found["values"]["2.npz"]["label"]["largest"] == 7
    assert found["values"]["2.npz"]["pose"]["first"] == [3]


def test_manifests_name_the_fields_that_changed(here):
    poses(here / "a")
    (here / "poses.yaml").write_text(SCHEMA)
    schema = load_schema("poses.yaml", lambda _: [])
    manifest.write(manifest.make("a", schema=schema), "a.json")
    np.savez("a/5.npz", pose=np.arange(4, dtype="f4") + 5, label=np.int64(0))
    found = compare("a.json", "a", schema=schema)
    assert (found.samples.changed, found.fields, found.values) == (
        ["5.npz"],
        {"5.npz": ["label"]},
        {},
    )
    bare = compare("a.json", "a")
    assert bare.samples is None
    assert "samples were not compared" in bare.notes[0]


def test_samples_of_two_schemas_of_one_name_are_not_compared(here):
    poses(here / "a")
    for name, text in (
        ("one", SCHEMA),
        ("two", SCHEMA.replace("  label: {role: value, shape: [], dtype: int64}\n", "")),
    ):
        (here / f"{name}.yaml").write_text(text)
        schema = load_schema(f"{name}.yaml", lambda _: [])
        manifest.write(manifest.make("a", schema=schema), f"{name}.json")
    found = compare("one.json", "two.json")
    assert found.samples is None
    assert found.notes[0].startswith("samples were not compared: the first is of poses (")
    assert not found


def test_schemas_that_judge_otherwise_read_the_same_samples(here):
    poses(here / "a")
    for name, text in (
        ("one", SCHEMA),
        ("two", SCHEMA.replace("name: poses", "name: strict") + "rules: {DC201: off}\n"),
    ):
        (here / f"{name}.yaml").write_text(text)
        schema = load_schema(f"{name}.yaml", lambda _: [])
        manifest.write(manifest.make("a", schema=schema), f"{name}.json")
    found = compare("one.json", "two.json")
    assert (found.samples is not None, bool(found), found.notes) == (True, False, ())


def test_other_bytes_of_equal_values_are_a_changed_file_and_no_changed_sample(here):
    poses(here / "a")
    shutil.copytree("a", "b")
    with np.load("a/1.npz") as arrays:
        np.savez_compressed("b/1.npz", **arrays)
    (here / "poses.yaml").write_text(SCHEMA)
    found = compare("a", "b", schema=load_schema("poses.yaml", lambda _: []))
    assert (found.files.changed, bool(found.samples)) == (["1.npz"], False)
    assert compare("a", "b").values == {}


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (np.zeros(3, "f4"), np.zeros(3, "f8"), "float32 [3], then float64 [3]"),
        (np.zeros((2, 3)), np.zeros((2, 4)), "[2, 3], then [2, 4]"),
        (None, np.zeros(3), "only in the second"),
        (np.float32(1), np.float32(2), "1 of 1 values, by up to 1 (relative 0.5)"),
        (np.array([np.nan, 1]), np.array([np.nan, np.inf]), "1 of 2 values, first at [1]"),
        (np.array([True, False]), np.array([True, True]), "1 of 2 values, first at [1]"),
        (np.array([0.0]), np.array([-0.0]), "1 of 1 values, by up to 0"),
    ],
)
def test_how_values_differ_in_words(x, y, said):
    x, y = (None if v is None else np.asarray(v) for v in (x, y))
    assert values.describe_change(x, y)["said"] == said


def test_equal_values_say_nothing():
    assert values.describe_change(np.array([np.nan, -0.0]), np.array([np.nan, -0.0])) is None


def test_a_file_that_a_parser_cannot_read_is_still_a_changed_file(here):
    poses(here / "a", 2)
    shutil.copytree("a", "b")
    (here / "b/1.npz").write_bytes(b"PK no archive")
    found = compare("a", "b")
    assert found.files.changed == ["1.npz"]
    assert "cannot be compared" in found.values["1.npz"][""]["said"]


def test_a_name_in_a_file_that_is_no_utf_8_is_escaped(here):
    for folder, last in (("one", 3.0), ("other", 4.0)):
        (here / folder).mkdir()
        with h5py.File(f"{folder}/a.h5", "w") as file:
            file[b"bad\xff"] = [1.0, 2.0, last]
    (told,) = compare("one", "other").values["a.h5"].items()
    assert told[0].startswith("bad\\")
    assert told[1]["largest"] == 1.0


def test_a_header_that_asks_for_more_memory_than_there_is(here):
    (here / "a").mkdir()
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }"
    head += b" " * (117 - len(head)) + b"\n"
    (here / "a/x.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(8)
    )
    shutil.copytree("a", "b")
    flip(here / "b/x.npy")
    assert compare("a", "b").files.changed == ["x.npy"]


def test_values_of_many_changed_files_are_compared_in_the_first_ones(here, monkeypatch):
    poses(here / "a", 5)
    (here / "b").mkdir()
    for i in range(5):
        np.savez(f"b/{i}.npz", pose=np.zeros(4, "f4"), label=np.int64(-1))
    monkeypatch.setattr(values, "MOST", 2)
    found = compare("a", "b")
    assert list(found.values) == ["0.npz", "1.npz"]
    assert "in 2 of 5 changed files" in found.notes[-1]


def test_of_many_samples_and_fields_the_first_are_told(tmp_path, monkeypatch):
    """Each field of each takes 0.7 kB, and the page shows three of twenty."""
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        rows = [json.dumps({f"f{n:03}": f"{side}{i}" for n in range(101)}) for i in range(20)]
        (tmp_path / side / "x.jsonl").write_text("\n".join(rows))
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '{id}.jsonl', each: line}\nfields: {'*': {}}\n"
    )
    task = {
        side: sample_digests.task_of(schema, tmp_path / name, {})
        for side, name in (("first", "a"), ("second", "b"))
    }
    (item,) = sample_digests.items_of(schema, list_files(tmp_path / "a"))
    task["items"] = [[item.as_dict(), item.as_dict()]]
    assert len(values.compare_items(task, lambda _: None)) == 20
    monkeypatch.setattr(values, "MOST_SAMPLES", 3)
    told = values.compare_items(task, lambda _: None)
    assert list(told) == [f"x.jsonl:{n:012}" for n in range(3)]
    assert all(list(fields) == [f"f{n:03}" for n in range(100)] for fields in told.values())


def test_single_files_are_compared_whatever_they_are_called(here):
    np.save("old.npy", np.array([1.0, 2.0]))
    np.save("new.npy", np.array([1.0, 4.0]))
    found = compare("old.npy", "new.npy")
    assert found.files.changed == ["old.npy"]
    (said,) = found.values.values()
    assert (said["array"]["largest"], said["array"]["first"]) == (2.0, [1])
    shutil.copy("old.npy", "copy.npy")
    assert not compare("old.npy", "copy.npy")


@pytest.mark.parametrize(("one", "other"), [("0.bin", "a.bin"), ("a.bin", "0.bin")])
def test_single_files_are_compared_beside_an_extra_folder_that_lies_between_their_names(
    here, one, other
):
    (here / "more").mkdir()
    for name, content in {one: b"x", other: b"x", "more/f": b"1", "more/g": b"2"}.items():
        (here / name).write_bytes(content)
    assert not compare(one, other, roots={"m": "more"})
    (here / other).write_bytes(b"y")
    found = compare(one, other, roots={"m": "more"})
    assert found.files.as_dict() == TreeDiff(changed=[one]).as_dict()


# ------------------------------------------------------------------------------------------ caches

SPECS = {"x": ArraySpec("float32", (2,))}


def cache(root, values, **more):
    sample_digests = [{"x": np.array(value, "f4")} for value in values]
    return make_cache(
        root, SPECS, sample_digests, keys=[f"k{i}" for i in range(len(values))], k=2, **more
    )


def test_caches_are_compared_by_their_samples(here, capsys):
    one = cache(here / "one", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)])
    two = cache(here / "two", [(0, 0), (2, 2), (1, 1), (3, 5)])
    found = compare(one, two)
    assert (found.samples.swapped, found.samples.changed, found.samples.removed) == (
        [("k1", "k2")],
        ["k3"],
        ["k4"],
    )
    assert found.values["k3"]["x"]["largest"] == 2
    code, out, _ = run(capsys, "diff", one, two)
    assert code == 1
    assert "1 pair of samples swapped\n    k1 and k2 have each other's content\n" in out
    assert "k3: x 1 of 2 values, by up to 2 (relative 0.4), first at [1]\n" in out
    assert run(capsys, "diff", one, cache(here / "three", [(i, i) for i in range(5)]))[0] == 0


def test_keys_with_half_of_a_surrogate_pair_are_json_in_escapes(here, capsys):
    keys = [HalfPair(key) for key in ("a\ud800", "b\x1b")]
    one = make_cache(here / "one", SPECS, [{"x": np.zeros(2, "f4")}] * 2, keys=["a", "b"])
    two = make_cache(here / "two", SPECS, [{"x": np.ones(2, "f4")}] * 2, keys=keys)
    code, out, _ = run(capsys, "diff", one, two, "--format", "json")
    assert code == 1
    assert json.loads(out)["samples"]["added"] == ["a\ud800", "b\x1b"]
    assert r'"a\ud800"' in out
    assert "\x1b" not in out


def test_samples_that_were_not_made_hold_nothing_that_could_move(here):
    one = cache(
        here / "one", [(0, 0), (1, 1), (2, 2)], made=[True, False, True], valid=[True, False, True]
    )
    two = cache(
        here / "two", [(0, 0), (2, 2), (1, 1)], made=[True, True, False], valid=[True, True, False]
    )
    found = compare(one, two).samples
    assert (found.reordered, found.changed, found.swapped) == ({"k1": "k2"}, ["k2"], [])


# ------------------------------------------------------------------------------------- bad requests


def test_what_things_are(here):
    poses(here / "a", 1)
    manifest.write(manifest.make("a"), "m.json")
    (here / "run").mkdir()
    (here / "run/env.json").write_text("{}")
    (here / "run/trace-00000.jsonl").touch()
    cached = cache(here / "c", [(0, 0)])
    kinds = [kind_of(place) for place in ("a", "a/0.npz", "m.json", "run", cached, "s3://bucket/x")]
    assert kinds == ["dataset", "file", "manifest", "run", "cache", "cache"]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("a", "nowhere", "nowhere: no such file or folder"),
        ("nowhere", "a", "nowhere: no such file or folder"),
        ("a/0.npz/x", "a", "no such file or folder"),
        ("pipe", "a", "pipe: is a pipe, a socket or a device"),
        ("a", "text", "text: is no manifest"),
        ("m.json", "text", "text: is no manifest"),
        ("a", "c", "a is a folder and .* a cache. Name two datasets"),
        ("m.json", "run", "m.json is a manifest and run a recorded run"),
        ("cut.json", "m.json", "cut.json: the manifest ends too soon"),
        ("other.json", "m.json", "other.json: is of another version"),
        ("empty", "a", "empty: holds no files"),
        ("a\0b", "a", "a.*b"),
    ],
)
def test_a_request_that_cannot_be_done_gives_one_line(here, capsys, one, other, said):
    poses(here / "a", 1)
    cache(here, [(0, 0)]).rename(here / "c")
    manifest.write(manifest.make("a"), "m.json")
    (here / "cut.json").write_bytes((here / "m.json").read_bytes()[:60])
    (here / "other.json").write_bytes(b'{"format": "datacheck.manifest/2"}')
    (here / "text").write_text("words")
    (here / "empty").mkdir()
    (here / "run").mkdir()
    (here / "run/env.json").write_text("{}")
    (here / "run/trace-00000.jsonl").touch()
    os.mkfifo("pipe")
    with pytest.raises((UsageError, StorageError), match=said):
        compare(one, other)
    if "\0" not in one:
        code, out, err = run(capsys, "diff", one, other)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1


RUN = {"env.json": "{}", "trace-00000.jsonl": '{"kind": "step", "step": 0, "loss": "0x1p0"}\n'}


def data_with(here, kind, names):
    """Two folders that hold the same run or cache, and other texts under each name."""
    for folder in ("one", "two"):
        if kind == "run":
            (here / folder).mkdir()
            for name, text in RUN.items():
                (here / folder / name).write_text(text)
        else:
            cache(here / f"{folder}-built", [(0, 0)]).rename(here / folder)
        for name in names:
            (here / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (here / folder / name).write_text(folder)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("run", name) for name in ("1.json", "sub/1.npy", "model.pt", "trace-000000.jsonl")),
        *(("run", name) for name in ("sub/env.json", "manifest.txt", "notes/a.json")),
        *(("cache", name) for name in ("1.json", "sub/1.npy", "fields/1.json", "c.0", "a.log")),
        *(("cache", name) for name in ("sub/c.0", "trace-00000.jsonl", "sub/zarr.json")),
    ],
)
def test_a_dataset_with_a_run_or_a_cache_in_it_is_not_called_equal(here, capsys, kind, name):
    """Of two such folders only the run or the cache was compared."""
    data_with(here, kind, [name])
    code, out, err = run(capsys, "diff", "one", "two")
    assert (code, out) == (2, "")
    what = "a recorded run" if kind == "run" else "a cache"
    assert f"one: looks like {what}, but holds other files, such as {name}. " in err
    explicit = "repro" if kind == "run" else "cache"
    assert f"datacheck {explicit} diff" in err
    assert run(capsys, explicit, "diff", "one", "two")[0] == (2 if kind == "run" else 0)
    for folder in ("one", "two"):
        assert run(capsys, "manifest", folder, "-o", f"{folder}.json")[0] == 0
    assert run(capsys, "diff", "one.json", "two.json")[0] == 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("run", name) for name in (".DS_Store", ".git/HEAD", "train.log", "slurm/7.out")),
        *(("run", name) for name in ("events.out.tfevents.1.host", "epoch=3.ckpt")),
        *(("run", name) for name in ("checkpoint-5/model.safetensors", "checkpoint_7.pt")),
        ("cache", ".DS_Store"),
    ],
)
def test_logs_and_checkpoints_beside_a_run_do_not_stop_a_comparison(here, capsys, kind, name):
    data_with(here, kind, [name])
    code, _, err = run(capsys, "diff", "one", "two")
    # The runs have no end, so not everything could be compared
    assert code == (2 if kind == "run" else 0)
    assert "looks like" not in err


@pytest.mark.parametrize("form", ["text", "json"])
def test_two_runs_are_handed_on_to_the_command_that_knows_them(here, capsys, form):
    for name, loss in (("one", 1.0), ("two", 2.0), ("three", 1.0)):
        (here / name).mkdir()
        (here / name / "env.json").write_text("{}")
        lines = [
            {"kind": "step", "step": 0, "epoch": 0, "loss": loss.hex()},
            {"kind": "end", "step": 1, "status": "done"},
        ]
        (here / name / "trace-00000.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    for other, code in (("two", 1), ("three", 0)):
        said = run(capsys, "diff", "one", other, "--format", form)
        assert said == run(capsys, "repro", "diff", "one", other, "--format", form)
        assert said[0] == code
    with pytest.raises(UsageError, match="datacheck repro diff"):
        compare("one", "two")


# ----------------------------------------------------------------------------- the command manifest


def test_the_command_writes_what_the_library_makes(thousand, capsys):
    code, out, err = run(capsys, "manifest", "a", "-o", "a.json")
    assert (code, err) == (0, "")
    made = manifest.make("a")
    assert (thousand / "a.json").read_bytes() == manifest.document(made)
    assert out.startswith(f"root {made.root}\n1,000 files, 50 kB: ")
    assert out.endswith("written to a.json\n")
    code, out, _ = run(capsys, "manifest", "a", "--format", "json", "--deep")
    said = orjson.loads(out)
    assert (code, said["root"], said["files"], said["bytes"], said["read"]) == (
        0,
        made.root,
        1000,
        50_000,
        1000,
    )


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nowhere"], 2, "no such file or folder"),
        (["a", "-o", "a/m.json"], 2, "lies in the data"),
        (["a/0.npz", "-o", "a/0.npz"], 2, "lies in the data"),
        (
            ["a", "-o", "text"],
            2,
            "text: exists and was not written by datacheck manifest, so it is not replaced",
        ),
        (["a", "-o", "nowhere/m.json"], 2, "there is no folder"),
        (["a", "-o", "/dev/stdout"], 2, "exists and is a link, so it is not replaced"),
        (["a", "--schema", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["a", "--schema", "chat"], 2, "chat"),
        (["a", "--root", "x=nowhere"], 2, "nowhere"),
    ],
)
def test_a_manifest_that_cannot_be_made_gives_one_line_and_writes_nothing(
    here, capsys, args, code, said
):
    poses(here / "a", 1)
    (here / "text").write_text("words")
    got, out, err = run(capsys, "manifest", *args)
    assert (got, out) == (code, "")
    assert said in err
    assert (here / "text").read_text() == "words"
    assert sorted(p.name for p in here.iterdir() if p.name != ".datacheck") == ["a", "text"]
