"""Repairs go into a copy, mend what they name and nothing else, and a scan of the copy is clean."""

import gzip
import json
import os
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import h5py
import numpy as np
import pytest

from datacheck.errors import FormatError, OutOfSpaceError, StorageError, UsageError
from datacheck.fix import Asked, Edit, Plan, Repair, fix, repairs
from datacheck.fix.edits import _scaling_plan, write_values
from datacheck.rules import catalogue
from datacheck.scan import Request, run_scan
from datacheck.scan.rescore import Rescore, rescore
from datacheck.schema.load import load_schema, parse_schema
from datacheck.sources.roots import Roots
from datacheck.testing import faults, synth

CLOUDS = """
datacheck: 1
name: clouds
samples: {files: "*.npy"}
fields: {points: {role: points, shape: [P, 3], unit: m, size: 0.6..4}}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


def cloud(seed):
    return np.random.default_rng(seed).uniform(0, 1, (50, 3)).astype(np.float32)


def scanned(schema, data):
    return run_scan(schema, Request(data))


def codes(run):
    return sorted({f.code for f in run.report.findings})


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_clouds_in_mm_are_metres_in_the_copy_and_the_data_stay_as_they_are(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i in {1, 4} else 1))
    (place / "data/notes.txt").write_text("hello")
    before, schema = tree(place / "data"), parse_schema(CLOUDS)
    made = fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    assert (made.changed, made.copied) == (("1.npy", "4.npy"), 5)
    assert tree(place / "data") == before
    after = tree(place / "copy")
    assert {name for name in before if before[name] != after[name]} == {"1.npy", "4.npy"}
    np.testing.assert_allclose(np.load(place / "copy/1.npy"), cloud(1), rtol=1e-6)
    assert np.load(place / "copy/1.npy").dtype == np.float32
    assert codes(scanned(schema, place / "copy")) == []


@pytest.mark.parametrize("name", ["1.NPY", "1.NPZ"])
def test_a_name_that_ends_in_capitals_keeps_its_place(place, name):
    """`numpy.save` adds an ending to such a name."""
    for i in range(6):
        with (place / f"data/{i}.npy" if i != 1 else place / "data" / name).open("wb") as file:
            points = cloud(i) * (1000 if i == 1 else 1)
            np.savez(file, points=points) if name == "1.NPZ" and i == 1 else np.save(file, points)
    schema = parse_schema(CLOUDS.replace("*.npy", "*"))
    made = fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    assert (made.changed, made.copied, len(tree(place / "copy"))) == ((name,), 5, 6)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_part_of_a_structured_array_is_left_to_people(place, ending):
    table = np.zeros(4, [("x", "f4"), ("y", "f4")])
    path = place / f"data/a.{ending}"
    np.save(path, table) if ending == "npy" else np.savez(path, a=table)
    spot = {
        "name": "array.x" if ending == "npy" else "a.x",
        "columns": None,
        "row": None,
        "factor": 10.0,
    }
    with pytest.raises(UsageError, match="part of a structured array"):
        write_values([spot], Roots(place / "data", {}).file(path.name), place / f"b.{ending}")


def test_other_members_of_an_npz_stay_as_they_are(place):
    """Also those with the names of parameters of `numpy.savez`, which that would take for its own."""
    for i in range(6):
        np.savez(place / f"data/{i}.npz", points=cloud(i) * (1000 if i == 1 else 1))
    with zipfile.ZipFile(place / "data/1.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        for name in ("allow_pickle", "file"):
            with archive.open(f"{name}.npy", "w") as member:
                np.save(member, np.arange(3))
    schema = parse_schema(CLOUDS.replace("*.npy", "*.npz"))
    fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    with (
        zipfile.ZipFile(place / "copy/1.npz") as after,
        zipfile.ZipFile(place / "data/1.npz") as before,
    ):
        assert (
            after.namelist() == before.namelist() == ["points.npy", "allow_pickle.npy", "file.npy"]
        )
        assert [after.read(n) == before.read(n) for n in before.namelist()] == [False, True, True]
    np.testing.assert_allclose(np.load(place / "copy/1.npz")["points"], cloud(1), rtol=1e-6)


def test_what_a_file_packs_does_not_fill_the_memory(place):
    """A member that no schema names is read all the same, as it has to be written again."""
    for i in range(6):
        points = cloud(i) * (1000 if i == 1 else 1)
        more = {
            f"m{n}": np.broadcast_to(np.float32(0), (200_000_000,)) for n in range(3 * (i == 1))
        }
        np.savez_compressed(place / f"data/{i}.npz", points=points, **more)
    schema = parse_schema(CLOUDS.replace("*.npy", "*.npz"))
    run = scanned(schema, place / "data")
    assert codes(run) == ["DC201"]
    with pytest.raises(UsageError, match=r"1\.npz: cannot be repaired \(m0: 800,000,128 bytes"):
        fix(run, schema, "DC201", place / "copy")
    assert sorted(p.name for p in place.iterdir() if not p.name.startswith(".")) == ["data"]


def test_a_file_of_holes_is_not_copied(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    with (place / "data/notes.bin").open("wb") as file:
        file.truncate(1 << 40)
    schema = parse_schema(CLOUDS)
    with pytest.raises(UsageError, match=r"notes\.bin: a sparse file"):
        fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    assert not (place / "copy").exists()


def test_holes_stay_holes_in_the_copy(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    with (place / "data/holes.bin").open("wb") as file:
        for start in (8 << 20, 40 << 20):
            file.seek(start)
            file.write(b"data" * 1024)
        file.truncate(64 << 20)
    with (place / "data/empty.bin").open("wb") as file:
        file.truncate(64 << 20)
    schema = parse_schema(CLOUDS)
    fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    for name in ("holes.bin", "empty.bin"):
        assert (place / "copy" / name).read_bytes() == (place / "data" / name).read_bytes()
        stored = 512 * (place / "data" / name).stat().st_blocks
        assert 512 * (place / "copy" / name).stat().st_blocks <= max(stored, 1 << 20)


def test_a_copy_for_which_the_disk_has_no_room_is_refused_before_it_is_written(place, monkeypatch):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    with (place / "data/empty.bin").open("wb") as file:
        file.truncate(64 << 20)  # a hole, which needs no room
    needed = sum((place / f"data/{i}.npy").stat().st_size for i in range(6) if i != 1)
    schema = parse_schema(CLOUDS)
    run = scanned(schema, place / "data")
    disk = SimpleNamespace(f_bavail=needed - 1, f_frsize=1, f_blocks=1)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    with pytest.raises(
        OutOfSpaceError, match=f"needs {needed:,} bytes or more, {needed - 1:,} are"
    ):
        fix(run, schema, "DC201", place / "copy")
    assert {path.name for path in place.iterdir()} <= {"data", ".datacheck"}
    disk.f_bavail = needed
    assert fix(run, schema, "DC201", place / "copy").copied == 6


def test_a_copy_has_neither_the_mode_nor_the_attributes_that_somebody_gave_the_data(place):
    """With them a program of another user became one that runs with the rights of who repairs."""
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    (place / "data/tool.bin").write_bytes(b"#!/bin/sh\n")
    os.utime(place / "data/tool.bin", ns=(5, 7))
    for name in ("tool.bin", "1.npy"):
        (place / "data" / name).chmod(0o6777)
    schema = parse_schema(CLOUDS)
    fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    (place / "plain").touch()
    for name in ("tool.bin", "1.npy"):
        assert (place / "copy" / name).stat().st_mode == (place / "plain").stat().st_mode
    assert (place / "copy/tool.bin").stat().st_mtime_ns == 7


@pytest.mark.parametrize("text", ["0\n0\n1\n", "0\n9\n1\n"], ids=["twice", "absent"])
def test_a_list_with_a_long_path_is_repaired(place, text):
    """Findings shorten it."""
    folder = place / "data" / ("a" * 200) / ("s" * 200)
    folder.mkdir(parents=True)
    for i in range(2):
        np.save(folder / f"{i}.npy", cloud(i))
    (folder.with_name(f"{folder.name}.txt")).write_text(text)
    schema = parse_schema(
        "{datacheck: 1, name: t, samples: {files: '{a}/{split}/{id}.npy', list: "
        "'{a}/{split}.txt'}, fields: {x: {}}}"
    )
    made = fix(scanned(schema, place / "data"), schema, "DC105", place / "copy")
    assert [(place / "copy" / path).read_text() for path in made.changed] == ["0\n1\n"]


def test_a_name_with_an_at_sign_is_copied_like_any_other(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    (place / "data/@d").mkdir()
    for name in ("@x.npy", "@d/y.npy"):
        np.save(place / "data" / name, cloud(7))
    schema = parse_schema(CLOUDS.replace('"*.npy"', '"**/*.npy"'))
    fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    assert tree(place / "copy").keys() == tree(place / "data").keys()


def test_only_files_whose_lines_are_samples_are_repaired_line_by_line(place):
    (place / "data/a.jsonl").write_text('{"a": 1}\n{bad\n')
    schema = parse_schema("{datacheck: 1, name: t, samples: {files: '*.jsonl'}, fields: {'*': {}}}")
    with pytest.raises(UsageError, match=r"^a\.jsonl: only files whose lines are the samples"):
        fix(scanned(schema, place / "data"), schema, "DC701", place / "copy")


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_in_a_store_is_left_out_and_said(place, link):
    store = place / "data/x.zarr"
    (store / "a").mkdir(parents=True)
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    head = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [4],
        "dtype": "<f4",
        "compressor": None,
        "filters": None,
    }
    (store / "a/.zarray").write_text(json.dumps({**head, "fill_value": 0, "order": "C"}))
    np.arange(4, dtype="<f4").tofile(store / "a/0")
    os.mkfifo(store / "a/.pipe")
    (place / "data/all.txt").write_text("x\nnothing\n")
    schema = parse_schema(
        "{datacheck: 1, name: z, samples: {files: '{id}.zarr', list: all.txt}, fields: {a: {shape: "
        "[4]}}}"
    )
    made = fix(scanned(schema, place / "data"), schema, "DC105", place / "copy", link=link)
    assert made.dropped == (
        ("x.zarr/a/.pipe", "not a regular file (a device, a socket or a pipe)"),
    )
    assert sorted(path.name for path in (place / "copy/x.zarr").rglob("*")) == [
        ".zarray",
        ".zgroup",
        "0",
        "a",
    ]


def test_a_file_that_cannot_be_opened_is_named(place, monkeypatch):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    schema = parse_schema(CLOUDS)
    run = scanned(schema, place / "data")
    (place / "data/3.npy").unlink()
    with pytest.raises(StorageError, match=r"data/3\.npy: no such file"):
        fix(run, schema, "DC201", place / "copy")


def test_hard_links_take_the_place_of_copies(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i in {1, 4} else 1))
    schema = parse_schema(CLOUDS)
    made = fix(scanned(schema, place / "data"), schema, "DC201", place / "copy", link=True)
    assert (made.changed, made.copied) == (("1.npy", "4.npy"), 4)
    same = [
        name
        for name in sorted(tree(place / "data"))
        if (place / "data" / name).samefile(place / "copy" / name)
    ]
    assert same == ["0.npy", "2.npy", "3.npy", "5.npy"]


def test_only_the_part_and_the_rows_that_fail_are_multiplied(place):
    schema = parse_schema("""
datacheck: 1
name: rows
samples: {files: "*.npz", each: row}
fields:
  pose: {shape: [5], columns: "pos:3 rest:2"}
  pose.pos: {role: position, unit: m, distance: 0.1..3}
""")
    pose = np.tile([0.5, 0.25, 1.0, 7.0, 8.0], (20, 1))
    pose[3, :3] *= 1000
    np.savez(place / "data/a.npz", pose=pose)
    fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    np.testing.assert_allclose(
        np.load(place / "copy/a.npz")["pose"], np.tile([0.5, 0.25, 1.0, 7.0, 8.0], (20, 1))
    )


def test_joint_angles_in_degrees_inside_hdf5_become_radians(place):
    schema = parse_schema("""
datacheck: 1
name: demos
samples: {files: "*.h5", each: "/data/demo_*"}
fields: {obs/q: {role: joint_angle, shape: [T, 7], unit: rad}}
""")
    q = np.random.default_rng(0).uniform(-2.5, 2.5, (40, 7))
    with h5py.File(place / "data/a.h5", "w") as file:
        file["data/demo_0/obs/q"], file["data/demo_1/obs/q"], file["data/demo_1/other"] = (
            q,
            np.rad2deg(q),
            np.arange(3),
        )
    fix(scanned(schema, place / "data"), schema, "DC202", place / "copy")
    with h5py.File(place / "copy/a.h5") as file:
        np.testing.assert_allclose(file["data/demo_1/obs/q"][...], q, rtol=1e-6)
        np.testing.assert_array_equal(file["data/demo_0/obs/q"][...], q)
        np.testing.assert_array_equal(file["data/demo_1/other"][...], np.arange(3))


@pytest.mark.parametrize("link", ["hard", "soft"])
def test_values_that_two_samples_share_are_multiplied_once(place, link):
    schema = parse_schema("""
datacheck: 1
name: t
samples: {files: "*.h5", each: "/data/demo_*"}
fields: {q: {role: joint_angle, shape: [T, 7], unit: rad}}
""")
    q = np.random.default_rng(0).uniform(-2.5, 2.5, (40, 7))
    with h5py.File(place / "data/a.h5", "w") as file:
        file["data/demo_0/q"], file["data/demo_1/q"] = q, np.rad2deg(q)
        file["data/demo_2/q"] = (
            file["data/demo_1/q"] if link == "hard" else h5py.SoftLink("/data/demo_1/q")
        )
    fix(scanned(schema, place / "data"), schema, "DC202", place / "copy", scale=np.pi / 180)
    with h5py.File(place / "copy/a.h5") as file:
        np.testing.assert_allclose(file["data/demo_2/q"][...], q, rtol=1e-6)


def test_values_that_two_findings_name_in_part_are_left_to_people(place):
    path = place / "data/a.npz"
    np.savez(path, q=np.ones((4, 7)))
    spots = [
        {"name": "q", "columns": columns, "row": None, "factor": 0.5} for columns in (None, (0, 3))
    ]
    with pytest.raises(UsageError, match="several findings name"):
        write_values(spots, Roots(place / "data", {}).file("a.npz"), place / "b.npz")


@pytest.mark.parametrize(
    ("system", "fault", "code"),
    [
        ("ho3d", "joints-in-mm", "DC201"),
        ("libero", "positions-in-mm", "DC201"),
        ("ho3d", "missing-pickle", "DC105"),
        ("scannetpp", "points-in-mm", "DC201"),
        ("minimind", "bad-json", "DC701"),
    ],
)
def test_planted_faults_are_gone_from_the_copy(place, system, fault, code):
    synth.write(system, place / "d", seed=3)
    faults.plant(system, place / "d", [fault], seed=3)
    schema = load_schema("minimind_sft" if system == "minimind" else system)
    first = scanned(schema, place / "d")
    assert code in codes(first)
    # A few rooms of many sizes: they do not say which factor it was
    unclear = system == "scannetpp"
    fix(first, schema, code, place / "copy", scale=0.001 if unclear else None)
    assert code not in codes(scanned(schema, place / "copy"))


def test_a_pickled_dict_stays_one(place):
    synth.write("sceneleap", place / "d", seed=3)
    faults.plant("sceneleap", place / "d", ["grasps-in-mm"], seed=3)
    schema = load_schema("sceneleap")
    made = fix(scanned(schema, place / "d"), schema, "DC201", place / "copy")
    for path in made.changed:
        before = pickle.loads((place / "d" / path).read_bytes().partition(b"\n")[2])  # noqa: S301  our own file
        after = pickle.loads((place / "copy" / path).read_bytes().partition(b"\n")[2])  # noqa: S301
        before, after = before.item(), after.item()
        assert before.keys() == after.keys()
        np.testing.assert_allclose(
            after["grasp_qpos"][:, :3], before["grasp_qpos"][:, :3] / 1000, rtol=1e-6
        )
        np.testing.assert_array_equal(after["grasp_qpos"][:, 3:], before["grasp_qpos"][:, 3:])


@pytest.mark.parametrize("ending", ["pkl", "npy"])
def test_other_values_of_a_pickle_stay_as_they_are(place, ending):
    more = {
        "none": None,
        "empty": {},
        "meta": {"a": 1, "b": "two"},
        7: (1, [2.0, True]),
        "bytes": b"\0\xff",
        "one": np.float32(3),
        "more": np.arange(4, dtype=np.int8).reshape(2, 2),
    }
    for i in range(6):
        held = {"in": {"points": cloud(i) * (1000 if i == 1 else 1)}} | more
        path = place / f"data/{i}.{ending}"
        path.write_bytes(pickle.dumps(held)) if ending == "pkl" else np.save(
            path, held, allow_pickle=True
        )
    schema = parse_schema(
        CLOUDS.replace("*.npy", f"*.{ending}").replace("points: {", "in/points: {")
    )
    assert fix(scanned(schema, place / "data"), schema, "DC201", place / "copy").changed == (
        f"1.{ending}",
    )
    copy = place / f"copy/1.{ending}"
    after = (
        pickle.loads(copy.read_bytes())  # noqa: S301
        if ending == "pkl"
        else np.load(copy, allow_pickle=True).item()
    )
    np.testing.assert_allclose(after.pop("in")["points"], cloud(1), rtol=1e-6)
    np.testing.assert_array_equal(after.pop("more"), more.pop("more"))
    assert type(after["one"]) is np.float32
    assert after == more


def test_a_pickle_of_what_cannot_be_pickled_again_is_left_to_people(place):
    for i in range(6):
        held = {
            "points": cloud(i) * (1000 if i == 1 else 1),
            "objects": np.array([None, 1], dtype=object),
        }
        (place / f"data/{i}.pkl").write_bytes(pickle.dumps(held))
    schema = parse_schema(CLOUDS.replace("*.npy", "*.pkl"))
    with pytest.raises(
        UsageError, match=r"1\.pkl: cannot be repaired \(the pickle holds an array of objects"
    ):
        fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")


def test_bad_lines_are_kept_aside(place):
    lines = [b'\xef\xbb\xbf{"text": "a"}', b'{"text": "b"', b"", b'{"text": "c"}\r']
    (place / "data/pretrain_x.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '*.jsonl', each: line}\nfields: {text: {role: "
        "text}}\n"
    )
    fix(scanned(schema, place / "data"), schema, "DC701", place / "copy")
    assert (place / "copy/pretrain_x.jsonl").read_bytes() == b'{"text": "a"}\n{"text": "c"}\n'
    assert (place / "copy/pretrain_x.jsonl.rejected").read_bytes() == b'{"text": "b"\n'


def test_rejected_lines_do_not_take_the_place_of_earlier_ones(place):
    (place / "data/a.jsonl").write_text('{"text": "a"}\n{"text": "b"\n')
    (place / "data/a.jsonl.rejected").write_text("of the repair before")
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '*.jsonl', each: line}\nfields: {text: {role: "
        "text}}\n"
    )
    with pytest.raises(UsageError, match=r"a\.jsonl\.rejected: is in the data already"):
        fix(scanned(schema, place / "data"), schema, "DC701", place / "copy")
    assert not (place / "copy").exists()


def test_a_byte_order_mark_is_a_warning_that_the_copy_is_free_of(place):
    (place / "data/a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\n\n{"text": "two"}\n')
    (place / "data/b.jsonl").write_bytes(b'{"text": "three"}\n{"text": "four"}\n\n')
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '*.jsonl', each: line}\nfields: {text: {role: "
        "text}}\n"
    )
    run = scanned(schema, place / "data")
    found = {f.kind: f for f in run.report.findings if f.code == "DC701"}
    assert {kind: (f.severity.value, f.examples) for kind, f in found.items()} == {
        "bom": ("warning", ("a.jsonl:000000000000",)),
        "empty": ("info", ()),
    }
    assert found["empty"].message == "1 empty line between others in 1 file, such as a.jsonl (1)."
    assert run.valid.all()
    assert fix(run, schema, "DC701", place / "copy").changed == ("a.jsonl",)
    assert (place / "copy/a.jsonl").read_bytes() == b'{"text": "one"}\n{"text": "two"}\n'
    assert sorted(tree(place / "copy")) == ["a.jsonl", "b.jsonl"]
    assert codes(scanned(schema, place / "copy")) == []


def test_lines_of_text_are_repaired_like_json_lines(place):
    (place / "data/a.txt").write_bytes(b"one\t1\n\ntwo\nthree\t3\nfour\t4\n")
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '*.txt', each: line}\nfields: {column0: {role: "
        "text}, column1: {}}\n"
    )
    fix(scanned(schema, place / "data"), schema, "DC701", place / "copy")
    assert (place / "copy/a.txt").read_bytes() == b"one\t1\nthree\t3\nfour\t4\n"
    assert (place / "copy/a.txt.rejected").read_bytes() == b"two\n"


def test_sentences_of_words_and_tags_are_repaired_by_hand(place):
    """Their numbers are not those of lines, and the empty lines between them must stay."""
    text = "In O\nOslo B-LOC\n. O\n\nNo O\nrain O\n. O\n\n"
    (place / "data/a.txt").write_text("\ufeff" + text * 9 + "alone\n\n" + text)
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '*.txt', each: line}\nfields: {words: {dtype: "
        "json}, tags: {dtype: json}}\nduplicates: {exact: off}\n"
    )
    run = scanned(schema, place / "data")
    assert [f.examples for f in run.report.findings] == [("a.txt:000000000018",)]
    with pytest.raises(UsageError, match=r"a\.txt: sentences .* are repaired by hand"):
        fix(run, schema, "DC701", place / "copy")


def test_lines_of_another_kind_are_bad_too(place):
    (place / "data/a.jsonl").write_bytes(b'{"q": "one", "a": "1"}\n[1, 2]\n"three"\n')
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '*.jsonl', each: line}\nfields: {q: {role: text}, "
        "a: {role: text}}\n"
    )
    fix(scanned(schema, place / "data"), schema, "DC701", place / "copy")
    assert (place / "copy/a.jsonl.rejected").read_bytes() == b'[1, 2]\n"three"\n'
    assert codes(scanned(schema, place / "copy")) == []


STATS = """
datacheck: 1
name: t
samples: {files: "*.npy"}
fields: {a: {role: %s, shape: [T, 2], stats: {%s}}}
"""


def test_stale_statistics_are_those_of_the_data_in_the_copy(place):
    arrays = [np.random.default_rng(i).normal(3, 2, (50, 2)) for i in range(8)]
    for i, array in enumerate(arrays):
        np.save(place / f"data/{i}.npy", array)
    held = {"arm": {"a_mean": [[0.0], [0.0]], "a_std": 100.0, "count": 7}, "other": [1]}
    (place / "data/stats.json").write_text(json.dumps(held))
    schema = parse_schema(STATS % ("action", "file: stats.json, at: arm/a"))
    run = scanned(schema, place / "data")
    assert codes(run) == ["DC228"]
    assert fix(run, schema, "DC228", place / "copy").changed == ("stats.json",)
    made, every = json.loads((place / "copy/stats.json").read_text()), np.concatenate(arrays)
    np.testing.assert_allclose(made["arm"]["a_mean"], every.mean(0)[:, None])
    np.testing.assert_allclose(made["arm"]["a_std"], every.std(0))
    assert (made["arm"]["count"], made["other"]) == (7, [1])
    assert codes(scanned(schema, place / "copy")) == []
    assert {f.code for f in rescore(Rescore(Path(run.report.folder))).report.findings} == {"DC228"}


def test_statistics_of_colours_keep_their_unit(place):
    rng = np.random.default_rng(0)
    for i in range(8):
        np.save(place / f"data/{i}.npy", rng.integers(0, 256, (400, 2)).astype(np.float32))
    (place / "data/stats.json").write_text(json.dumps({"mean": [0.1, 0.1], "std": [0.3, 0.3]}))
    schema = parse_schema(STATS % ("color", "file: stats.json"))
    fix(scanned(schema, place / "data"), schema, "DC228", place / "copy")
    np.testing.assert_allclose(
        json.loads((place / "copy/stats.json").read_text())["mean"], 0.5, atol=0.05
    )


def test_statistics_in_the_schema_are_said_not_written(place):
    np.save(place / "data/0.npy", np.arange(40.0).reshape(20, 2))
    schema = parse_schema(STATS % ("action", "mean: [0, 0], std: [1, 1]"))
    with pytest.raises(
        UsageError, match=r"stand in the schema itself. Write there: mean: \[19.0, 20.0\]"
    ):
        fix(scanned(schema, place / "data"), schema, "DC228", place / "copy")


@pytest.mark.parametrize(
    ("values", "spot", "expected"),
    [
        ([1000, 2000], {}, ("float32", [1, 2])),
        ([1000, 2**24 + 1000], {}, ("float64", [1, 16778.216])),
        ([1000, 2**53 + 1], {}, "int64, which cannot hold"),
        ([[1000, 30000001]], {"row": 0}, "int64, which cannot hold"),
        ([[1000, 30000001]], {"columns": [0, 1]}, "int64, which cannot hold"),
        (np.float16([70, 1]), {"factor": 1000.0}, "float16 cannot hold"),
        (np.array([True, False]), {}, "bool, which cannot hold"),
    ],
)
def test_no_other_number_of_an_array_changes_and_none_is_lost(place, values, spot, expected):
    np.save(place / "data/a.npy", values)
    said = {"name": "", "columns": None, "row": None, "factor": 0.001} | spot
    asked = [said], Roots(place / "data", {}).file("a.npy"), place / "b.npy"
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            write_values(*asked)
        return
    write_values(*asked)
    after = np.load(place / "b.npy")
    assert after.dtype == expected[0]
    np.testing.assert_allclose(after, expected[1], rtol=1e-7)


@pytest.mark.parametrize("sign", ["\u2028", "\x0c", "\x85"])
def test_a_list_is_cut_into_lines_as_the_scan_cuts_it(place, sign):
    names = ["a", f"b{sign}c", "d"]
    for number, name in enumerate(names):
        np.save(place / f"data/{name}.npy", cloud(number))
    lines = [*names, "absent"]
    (place / "data/train.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    schema = parse_schema(
        CLOUDS.replace('{files: "*.npy"}', '{files: "{id}.npy", list: "{split}.txt"}')
    )
    fix(scanned(schema, place / "data"), schema, "DC105", place / "copy")
    with (place / "copy/train.txt").open(encoding="utf-8") as file:
        assert [line.removesuffix("\n") for line in file] == names


def test_a_file_whose_name_is_no_text_is_named_though_another_has_its_escaped_name(place):
    np.save(place / "data/a.npy", cloud(1))
    (place / "data/train.txt").write_text("a\nabsent\n")
    folder = os.fsencode(place / "data") + b"/"
    for name in (b"t\xff.csv", rb"t\xff.csv"):
        Path(os.fsdecode(folder + name)).write_bytes(b"1\n")
    schema = parse_schema(
        CLOUDS.replace('{files: "*.npy"}', '{files: "{id}.npy", list: "{split}.txt"}')
    )
    repaired = fix(scanned(schema, place / "data"), schema, "DC105", place / "copy")
    assert [path for path, _ in repaired.dropped] == [r"t\xff.csv"]
    assert sorted(os.listdir(os.fsencode(place / "copy"))) == [
        b"a.npy",
        rb"t\xff.csv",
        b"train.txt",
    ]


def test_a_list_whose_repair_loses_a_sample_is_put_back(place, monkeypatch):
    for name in "ab":
        np.save(place / f"data/{name}.npy", cloud(1))
    (place / "data/train.txt").write_text("a\nb\nabsent\n")
    schema = parse_schema(
        CLOUDS.replace('{files: "*.npy"}', '{files: "{id}.npy", list: "{split}.txt"}')
    )
    run = scanned(schema, place / "data")
    plan = repairs()["DC105"].plan(Asked(run, schema, ()))
    wrong = {path: Edit(edit.function, ["absent", "b"]) for path, edit in plan.edits.items()}
    repair = Repair("DC105", "too much", lambda _: Plan(wrong))
    monkeypatch.setattr("datacheck.fix.repairs", lambda: {"DC105": repair})
    with pytest.raises(UsageError, match="samples that were fit no longer are"):
        fix(run, schema, "DC105", place / "copy")


def test_a_list_whose_name_stands_in_a_line_of_another_is_repaired(place, monkeypatch):
    """A list is put back where a line of it still fails, whatever the lines of another list say."""
    for name in "ab":
        np.save(place / f"data/{name}.npy", cloud(1))
    (place / "data/one.txt").write_text("a\nabsent\n")
    (place / "data/two.txt").write_text("b\nlisted in one.txt as\n")
    schema = parse_schema(
        CLOUDS.replace('{files: "*.npy"}', '{files: "{id}.npy", list: "{split}.txt"}')
    )
    run = scanned(schema, place / "data")
    edits = repairs()["DC105"].plan(Asked(run, schema, ())).edits
    # Which leaves its line where it is
    edits = edits | {"two.txt": Edit(edits["two.txt"].function, [])}
    monkeypatch.setattr(
        "datacheck.fix.repairs", lambda: {"DC105": Repair("DC105", "half", lambda _: Plan(edits))}
    )
    made = fix(run, schema, "DC105", place / "copy")
    assert (made.changed, made.left) == (("one.txt",), ("two.txt",))
    assert (place / "copy/one.txt").read_text() == "a\n"


@pytest.mark.parametrize("length", [101, 299, 301, 1_001])
def test_long_lines_that_name_no_file_are_left_out_of_a_list(place, length):
    """A finding quotes 100 characters of a line, its key holds 1,000 bytes, and its note names a line by 300."""
    np.save(place / "data/a.npy", cloud(1))
    (place / "data/train.txt").write_text(f"a\n{'x' * length}\n")
    schema = parse_schema(
        CLOUDS.replace('{files: "*.npy"}', '{files: "{id}.npy", list: "{split}.txt"}')
    )
    fix(scanned(schema, place / "data"), schema, "DC105", place / "copy")
    assert (place / "copy/train.txt").read_text() == "a\n"


def test_what_is_not_safe_is_refused_and_nothing_is_written(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    schema = parse_schema(CLOUDS)
    run = scanned(schema, place / "data")
    for code, target, said in [
        ("DC221", place / "copy", "no repair that is safe"),
        ("DC105", place / "copy", "found nothing"),
        ("DC201", place / "data", "exists"),
        ("DC201", place / "data/copy", "lies in the data"),
    ]:
        with pytest.raises(UsageError, match=said):
            fix(run, schema, code, target)
    os.remove(place / "data/3.npy")
    with pytest.raises(StorageError):
        fix(run, schema, "DC201", place / "copy")
    assert sorted(p.name for p in place.iterdir()) == [".datacheck", "data"]


def test_factors_that_fit_equally_well_must_be_chosen(place):
    for i in range(6):
        np.save(place / f"data/{i}.npy", cloud(i) * (100 if i == 1 else 1))
    schema = parse_schema(CLOUDS.replace("0.6..4", "0.5..5"))
    run = scanned(schema, place / "data")
    with pytest.raises(UsageError, match=r"these fit: x0.01 \(cm\).*Find out which"):
        fix(run, schema, "DC201", place / "copy")
    fix(run, schema, "DC201", place / "copy", scale=0.01)
    np.testing.assert_allclose(np.load(place / "copy/1.npy"), cloud(1), rtol=1e-6)


def test_lists_of_mappings_are_left_to_those_who_write_them(place):
    np.save(place / "data/a.npy", cloud(0))
    (place / "data/all.json").write_text(
        '[{"file": "a.npy"}, {"file": "b.npy"}, {"file": "a.npy"}, null]'
    )
    schema = parse_schema(
        CLOUDS.replace("{files:", "{list: all.json, files:").replace('"*.npy"', '"{id}.npy"')
    )
    run = scanned(schema, place / "data")
    kinds = {f.kind: f.severity.value for f in run.report.findings if f.code == "DC105"}
    assert kinds == {"none": "error", "missing": "error", "stands more than once": "warning"}
    with pytest.raises(UsageError, match=r"all.json: only lists of lines are repaired"):
        fix(run, schema, "DC105", place / "copy")


def test_every_repair_is_of_a_rule_that_exists():
    assert set(repairs()) <= set(catalogue())


@pytest.mark.parametrize("kind", ["external storage", "external link"])
def test_no_value_is_written_into_another_file(place, kind):
    outside = place / "secret"
    if kind == "external storage":
        outside.write_bytes(np.ones(12, np.float32).tobytes())
    else:
        with h5py.File(outside, "w") as file:
            file["points"] = np.ones((4, 3), np.float32)
    before = outside.read_bytes()
    with h5py.File(place / "data/a.h5", "w") as file:
        if kind == "external storage":
            file.create_dataset("points", (4, 3), np.float32, external=[(str(outside), 0, 48)])
        else:
            file["points"] = h5py.ExternalLink(str(outside), "points")
    said = [{"name": "points", "columns": None, "row": None, "factor": 2.0}]
    with pytest.raises(FormatError, match=r"other files|another file"):
        write_values(said, Roots(place / "data", {}).file("a.h5"), place / "copy.h5")
    assert outside.read_bytes() == before


DEGREES = """
datacheck: 1
name: arms
samples: {files: "*.npy"}
fields: {q: {role: joint_angle, shape: [T, 7], unit: rad}}
"""


def test_values_that_no_cause_explains_are_left_to_people(place):
    """Radians times 1000 are no degrees: converted as such they stayed out of range, and the next scan said degrees."""
    for i in range(12):
        np.save(
            place / f"data/{i:02d}.npy",
            np.random.default_rng(i).uniform(-2.5, 2.5, (40, 7)) * (1000 if i == 1 else 1),
        )
    schema = parse_schema(DEGREES)
    run = scanned(schema, place / "data")
    assert next(f for f in run.report.findings if f.code == "DC202").cause is None
    with pytest.raises(
        UsageError, match=r"no known factor explains these samples, so none is applied"
    ):
        fix(run, schema, "DC202", place / "copy")
    assert not (place / "copy").exists()


def test_a_finding_without_a_clear_cause_does_not_stop_the_repair_of_the_others(place):
    """In one file: the first arm of demo 1 in degrees, the second arm of demo 2 times 1000, which is no unit."""
    rng = np.random.default_rng(0)
    with h5py.File(place / "data/all.hdf5", "w") as file:
        for i in range(12):
            for arm in ("left", "right"):
                values = rng.uniform(-2.5, 2.5, (40, 7))
                values *= {("left", 1): 180 / np.pi, ("right", 2): 1000}.get((arm, i), 1)
                file[f"data/demo_{i}/{arm}"] = values
    schema = parse_schema("""
datacheck: 1
name: arms
samples: {files: "*.hdf5", each: "/data/demo_*"}
fields:
  left: {role: joint_angle, shape: [T, 7], unit: rad}
  right: {role: joint_angle, shape: [T, 7], unit: rad}
""")
    made = fix(scanned(schema, place / "data"), schema, "DC202", place / "copy")
    assert (made.changed, made.left) == (("all.hdf5",), ())
    (why,) = made.unclear
    assert "right" in why
    assert "no known factor explains these samples" in why
    with h5py.File(place / "data/all.hdf5") as before, h5py.File(place / "copy/all.hdf5") as after:
        for i in range(12):
            factor = np.pi / 180 if i == 1 else 1
            np.testing.assert_allclose(
                after[f"data/demo_{i}/left"], before[f"data/demo_{i}/left"][()] * factor
            )
            np.testing.assert_array_equal(
                after[f"data/demo_{i}/right"], before[f"data/demo_{i}/right"]
            )


def test_what_a_factor_does_not_mend_is_left_as_it_was(place):
    """Two files are out of range by other factors: the one that the user names mends one of them."""
    for i in range(12):
        np.save(place / f"data/{i:02d}.npy", cloud(i) * {1: 1000, 2: 0.2}.get(i, 1))
    schema = parse_schema(CLOUDS)
    run = scanned(schema, place / "data")
    made = fix(run, schema, "DC201", place / "copy", scale=0.001)
    assert (made.changed, made.left, made.copied) == (("01.npy",), ("02.npy",), 11)
    np.testing.assert_allclose(np.load(place / "copy/01.npy"), cloud(1), rtol=1e-6)
    assert (place / "copy/02.npy").read_bytes() == (place / "data/02.npy").read_bytes()
    assert sorted(p.name for p in place.iterdir()) == [".datacheck", "copy", "data"]
    with pytest.raises(UsageError, match=r"01.npy and 1 more: DC201 still fails once repaired"):
        fix(run, schema, "DC201", place / "other", scale=1e-6)
    assert sorted(p.name for p in place.iterdir()) == [".datacheck", "copy", "data"]


def test_a_sample_that_was_fit_is_not_spoiled(place):
    """One array holds rows that fail and rows that do not: a repair of the whole array would move the good ones."""
    for i in range(12):
        np.save(place / f"data/{i:02d}.npy", cloud(i) * (1000 if i == 1 else 1))
    schema = parse_schema(CLOUDS)
    run = scanned(schema, place / "data")
    edited = {
        "03.npy": Edit(
            "datacheck.fix.edits:write_values",
            [{"name": "", "columns": None, "row": None, "factor": 1e3}],
        )
    }
    (repair,) = (r for r in repairs().values() if r.code == "DC201")
    right = repair.plan(
        Asked(run, schema, tuple(f for f in run.report.findings if f.code == "DC201"))
    )
    with mock.patch.dict(
        repairs(), DC201=Repair("DC201", "", lambda asked: Plan({**right.edits, **edited}))
    ):
        made = fix(run, schema, "DC201", place / "copy")
    assert (made.changed, made.left) == (("01.npy",), ("03.npy",))
    np.testing.assert_array_equal(np.load(place / "copy/03.npy"), cloud(3))


LINES = parse_schema(
    "{datacheck: 1, name: t, samples: {files: ['**/*.jsonl', '**/*.jsonl.gz'], each: line}, "
    "fields: {'*': {}}}"
)
BROKEN = '{"a": 1}\n{bad\n'


def test_links_in_a_store_are_left_out_and_said(place):
    """Ten links in each of three folders made 1.1 GB of 1.1 MB, and a link to its own folder ended the repair."""
    store = place / "data/x.zarr"
    (store / "g").mkdir(parents=True)
    (store / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    (store / "g/0").write_bytes(b"12345678")
    (store / "a").symlink_to(".")
    (store / "b").symlink_to("g")
    (store / "c").symlink_to("g/0")
    (place / "data/a.jsonl").write_text(BROKEN)
    made = fix(scanned(LINES, place / "data"), LINES, "DC701", place / "copy")
    assert made.changed == ("a.jsonl",)
    assert sorted(path.name for path in (place / "copy/x.zarr").rglob("*")) == [
        "0",
        "g",
        "zarr.json",
    ]
    why = "a link in a Zarr folder, which no reader follows"
    assert made.dropped == tuple((f"x.zarr/{name}", why) for name in "abc")


def test_what_the_listing_leaves_out_is_said(place, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "more.jsonl"
    outside.write_text(BROKEN)
    data = place / "data"
    (data / "a.jsonl").write_text(BROKEN)
    (data / ".hidden.jsonl").write_text(BROKEN)
    (data / "out.jsonl").symlink_to(outside)
    Path(os.fsdecode(os.fsencode(data) + b"/\xff.jsonl")).write_text(BROKEN)
    run = scanned(LINES, data)
    made = fix(run, LINES, "DC701", place / "copy")
    assert [path for path, _ in made.dropped] == [".hidden.jsonl", "\\xff.jsonl", "out.jsonl"]
    assert made.dropped == tuple(sorted(run.listing.skipped))


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("b.jsonl.gz", "Unpack it first"),
        (246 * "b" + ".jsonl", "its name is too long"),
        ("b.jsonl", "is in the data already"),
    ],
    ids=["packed", "long", "taken"],
)
def test_a_file_that_cannot_be_repaired_keeps_no_other_from_it(place, odd, why):
    (place / "data/a.jsonl").write_text(BROKEN)
    (place / "data" / odd).write_bytes(
        gzip.compress(BROKEN.encode()) if odd.endswith(".gz") else BROKEN.encode()
    )
    if odd == "b.jsonl":
        (place / "data/b.jsonl.rejected").write_text("mine")
    made = fix(scanned(LINES, place / "data"), LINES, "DC701", place / "copy")
    assert made.changed == ("a.jsonl",)
    assert len(made.unclear) == 1
    assert odd in made.unclear[0]
    assert why in made.unclear[0]
    assert (place / "copy/a.jsonl").read_text() == '{"a": 1}\n'
    assert (place / "copy" / odd).read_bytes() == (place / "data" / odd).read_bytes()


def test_a_folder_with_the_name_of_rejected_lines_leaves_only_that_file_unrepaired(place):
    (place / "data/b.jsonl.rejected").mkdir()
    names = ("a.jsonl", "b.jsonl", "b.jsonl.rejected/c.jsonl")
    for name in names:
        (place / "data" / name).write_text(BROKEN)
    made = fix(scanned(LINES, place / "data"), LINES, "DC701", place / "copy")
    assert made.changed == (names[0], names[2])
    assert made.unclear == (
        "b.jsonl: rejected lines would go to b.jsonl.rejected, which is in the data. Move or rename "
        "that.",
    )
    assert (place / "copy/b.jsonl").read_text() == BROKEN
    assert (place / "copy/b.jsonl.rejected/c.jsonl").read_text() == '{"a": 1}\n'


@pytest.mark.parametrize("error", [UsageError("{copy}: no sample."), KeyboardInterrupt()])
def test_a_scan_of_the_copy_that_fails_leaves_nothing_and_names_no_hidden_folder(
    place, monkeypatch, error
):
    (place / "data/a.jsonl").write_text(BROKEN)
    run = scanned(LINES, place / "data")

    def scan(schema, request, progress):
        request.output.parent.joinpath("finished part").write_text("")
        if isinstance(error, UsageError):
            raise UsageError(str(error).format(copy=request.data))
        error.add_note("the same command goes on.")
        raise error

    monkeypatch.setattr("datacheck.fix.run_scan", scan)
    with pytest.raises(type(error)) as caught:
        fix(run, LINES, "DC701", place / "out" / "copy")
    assert not list((place / "out").iterdir())
    assert getattr(caught.value, "__notes__", []) == []
    assert ".part" not in str(caught.value)


@pytest.mark.parametrize("link", [False, True])
def test_a_file_that_lies_in_a_store_is_repaired_there(place, link):
    """The whole store was copied, and the file "in the data already, from an earlier repair"."""
    store = place / "data/x.zarr"
    (store / "g").mkdir(parents=True)
    (store / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    (store / "g/a.jsonl").write_text(BROKEN)
    (store / "g/more.jsonl").write_text('{"a": 2}\n')
    made = fix(scanned(LINES, place / "data"), LINES, "DC701", place / "copy", link=link)
    assert (made.changed, made.unclear) == (("x.zarr/g/a.jsonl",), ())
    assert tree(place / "copy") == {
        "x.zarr/g/a.jsonl": b'{"a": 1}\n',
        "x.zarr/g/a.jsonl.rejected": b"{bad\n",
        "x.zarr/g/more.jsonl": b'{"a": 2}\n',
        "x.zarr/zarr.json": (store / "zarr.json").read_bytes(),
    }


def test_a_long_name_is_no_fault_where_nothing_is_rejected(place):
    long = 251 * "b" + ".npy"
    for i in range(6):
        np.save(
            place / "data" / (long if i == 1 else f"{i}.npy"), cloud(i) * (1000 if i == 1 else 1)
        )
    schema = parse_schema(CLOUDS)
    made = fix(scanned(schema, place / "data"), schema, "DC201", place / "copy")
    assert (made.changed, made.unclear) == ((long,), ())
    np.testing.assert_allclose(np.load(place / "copy" / long), cloud(1), rtol=1e-6)


def test_a_cloud_of_text_keeps_no_other_from_its_repair(place):
    for i in range(12):
        np.save(place / f"data/{i}.npy", cloud(i) * (1000 if i == 1 else 1))
    np.savetxt(place / "data/t.xyz", cloud(20) * 1000)
    schema = parse_schema(CLOUDS.replace('"*.npy"', '["*.npy", "*.xyz"]'))
    run = scanned(schema, place / "data")
    made = fix(run, schema, "DC201", place / "copy")
    assert made.changed == ("1.npy",)
    assert [why.partition(": ")[::2] for why in made.unclear] == [
        (
            "t.xyz",
            "values are repaired in .npy, .npz, .h5, .hdf5, .pkl, .pickle only. Convert the file, "
            "or declare its "
            "unit.",
        )
    ]
    assert (place / "copy/t.xyz").read_bytes() == (place / "data/t.xyz").read_bytes()


def test_a_list_of_mappings_keeps_no_other_list_from_its_repair(place):
    for name in ("a", "b"):
        (place / "data" / name).mkdir()
        np.save(place / f"data/{name}/0.npy", cloud(0))
    (place / "data/a.json").write_text('["0", "0"]')
    (place / "data/b.txt").write_text("0\n0\n")
    schema = parse_schema(
        "{datacheck: 1, name: t, samples: {files: '{split}/{id}.npy', list: {a: a.json, b: "
        "b.txt}}, fields: {x: {}}}"
    )
    made = fix(scanned(schema, place / "data"), schema, "DC105", place / "copy")
    assert made.changed == ("b.txt",)
    assert made.unclear == (
        "a.json: only lists of lines are repaired. Let the preprocessing write it again.",
    )
    assert (place / "copy/b.txt").read_text() == "0\n"


def test_a_finding_without_samples_is_an_error_that_names_it(tmp_path):
    """It was an IndexError."""
    finding = SimpleNamespace(id="DC201:x", rows=np.zeros(0, np.int64), fields=("x",), cause=None)
    asked = SimpleNamespace(
        run=SimpleNamespace(table=None), schema=None, findings=(finding,), scale=0.001
    )
    with pytest.raises(UsageError, match="DC201:x: names no samples"):
        _scaling_plan(asked)
