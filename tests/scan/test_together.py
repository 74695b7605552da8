"""Samples of several files: which files are one sample, and what ``init`` drafts of them."""

import h5py
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from datacheck.infer.draft import draft
from datacheck.infer.parts import group_files
from datacheck.scan import Request, run_scan
from datacheck.schema.load import parse_schema
from datacheck.schema.patterns import parse

RNG = np.random.default_rng(0)


def array(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def by_words(folder):
    for i in range(12):
        n, at = 200 + i, folder / ("val" if i % 3 else "train")
        ids = RNG.integers(0, 5, n)
        array(at / f"scene{i:04d}_00_label.npy", ids % 3)
        array(at / f"scene{i:04d}_00_ins_label.npy", ids)
        array(at / f"scene{i:04d}_00_vert.npy", RNG.uniform(0, 4, (n, 3)))


def by_folder(folder):
    for i, name in enumerate("abcdefghijkl"):
        array(folder / f"{name}/points.npy", RNG.uniform(0, 4, (200 + i, 3)))
        array(folder / f"{name}/label.npy", RNG.integers(0, 9, 200 + i))
        (folder / f"{name}/meta.json").write_bytes(orjson.dumps({"weight": 0.1 * i, "what": name}))


def by_level(folder):
    for i in range(12):
        array(folder / f"depth/{i:04d}.npy", RNG.uniform(0.5, 4, (8, 8)).astype(np.float32))
        for kind in ("rgb", "mask"):
            (folder / kind).mkdir(exist_ok=True)
            Image.fromarray(RNG.integers(0, 2, (8, 8, 3), dtype=np.uint8)).save(
                folder / kind / f"{i:04d}.png"
            )


def by_ending(folder):
    folder.mkdir()
    for i in range(12):
        np.savez(
            folder / f"ep_{i}.npz",
            action=RNG.normal(size=(40 + i, 7)),
            q=RNG.normal(size=(40 + i, 2)),
        )
        (folder / f"ep_{i}.json").write_bytes(orjson.dumps({"success": i % 2 == 0, "task": "push"}))


LAYOUTS = {
    by_words: (
        "{split}/{id}_vert.npy",
        {
            "vert": ("points", None),
            "label": ("class", "{split}/{id}_label.npy"),
            "ins_label": ("instance", "{split}/{id}_ins_label.npy"),
        },
    ),
    by_folder: (
        "{folder1}/points.npy",
        {
            "points": ("points", None),
            "label": ("class", "{folder1}/label.npy"),
            "weight": (None, "{folder1}/meta.json"),
            "what": (None, "{folder1}/meta.json"),
        },
    ),
    by_level: (
        "depth/{id}.npy",
        {
            "depth": ("depth", None),
            "rgb": ("image", "rgb/{id}.png"),
            "mask": ("mask", "mask/{id}.png"),
        },
    ),
    by_ending: (
        "{id}.npz",
        {
            "action": ("action", None),
            "q": (None, None),
            "success": ("flag", "{id}.json"),
            "task": (None, "{id}.json"),
        },
    ),
}


@pytest.mark.parametrize("make", LAYOUTS)
def test_files_of_one_sample_are_drafted_together_and_fit_their_own_draft(
    tmp_path, monkeypatch, make
):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "d")
    schema = parse_schema(draft(tmp_path / "d").text)
    pattern, fields = LAYOUTS[make]
    assert schema.samples.files == (pattern,)
    assert {name: (spec.role, spec.file) for name, spec in schema.fields.items()} == fields
    run = run_scan(schema, Request(tmp_path / "d"))
    assert [f.id for f in run.report.findings if f.severity == "error"] == []
    assert len(run.table) == 12
    measured = {name.split(":")[0] for name in run.table.columns}
    assert measured >= fields.keys()


def test_a_file_that_a_sample_lacks_is_told_by_the_scan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    by_folder(tmp_path / "d")
    schema = parse_schema(draft(tmp_path / "d").text)
    (tmp_path / "d/c/label.npy").unlink()
    (found,) = (
        f
        for f in run_scan(schema, Request(tmp_path / "d")).report.findings
        if f.severity == "error"
    )
    assert (found.fields, found.examples) == (("label",), ("c/points.npy",))


def test_a_draft_of_samples_of_which_one_lacks_a_file_is_that_of_the_others(tmp_path):
    by_folder(tmp_path / "d")
    (tmp_path / "d/c/label.npy").unlink()
    fields = parse_schema(draft(tmp_path / "d").text).fields
    # One axis, held to one length
    assert (fields["points"].shape, fields["label"].shape) == (("P", 3), ("P",))


def test_what_only_some_samples_have_is_optional(tmp_path):
    by_folder(tmp_path / "d")
    for name in "abc":
        (tmp_path / f"d/{name}/note.txt").write_text("wet")
    assert parse_schema(draft(tmp_path / "d").text).fields["note"].optional


def arrays(path, **values):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **values)


def drafted(folder):
    schema = parse_schema(draft(folder).text)
    return schema.samples.files[0], {
        name: (spec.file, spec.at) for name, spec in schema.fields.items()
    }


def test_no_field_of_one_file_stands_for_another_files(tmp_path):
    for i in range(4):
        arrays(
            tmp_path / f"s{i}/points.npz",
            label=RNG.normal(size=(30, 2)),
            xyz=RNG.normal(size=(30, 3)),
        )
        array(tmp_path / f"s{i}/label.npy", RNG.integers(0, 4, 30))
        (tmp_path / f"s{i}/a.json").write_bytes(orjson.dumps({"label": 1, "*": 2}))
    meta = "{folder1}/a.json"
    assert drafted(tmp_path) == (
        "{folder1}/points.npz",
        {
            "label": ("{folder1}/label.npy", None),
            "points_label": (None, "label"),
            "xyz": (None, None),
            "a_label": (meta, "label"),
            "a_*": (meta, "*"),
        },
    )


def test_parts_that_only_their_formats_tell_apart_are_called_what_they_hold(tmp_path):
    for i in range(4):
        Image.fromarray(RNG.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        (tmp_path / f"{i}.txt").write_text("a cat")
    assert drafted(tmp_path) == ("{id}.png", {"image": (None, None), "text": ("{id}.txt", None)})


def test_what_only_samples_of_one_folder_have_is_not_read_for_those_of_others(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for i in range(8):
        for folder in "ab":
            array(tmp_path / f"d/{folder}/{i}_vert.npy", RNG.normal(size=(30, 3)))
            array(tmp_path / f"d/{folder}/{i}_label.npy", RNG.integers(0, 4, 30))
        (tmp_path / f"d/a/{i}_note.txt").write_text("wet")
    schema = parse_schema(draft(tmp_path / "d").text)
    run = run_scan(schema, Request(tmp_path / "d"))
    known = next(
        column for name, column in run.table.columns.items() if name.startswith("note:")
    ).present
    assert [key for key, has in zip(run.table.keys, known, strict=True) if has] == [
        f"a/{i}_vert.npy" for i in range(8)
    ]


def test_keys_that_only_some_files_have_are_optional(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(8):
        array(tmp_path / f"d/{i}/points.npy", RNG.normal(size=(30 + i, 3)))
        (tmp_path / f"d/{i}/meta.json").write_bytes(
            orjson.dumps({"a": i, **({"note": "wet"} if i % 2 else {})})
        )
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.fields["note"].optional
    assert not schema.fields["a"].optional
    assert [
        f.id
        for f in run_scan(schema, Request(tmp_path / "d")).report.findings
        if f.severity == "error"
    ] == []


def test_a_part_is_looked_at_without_files_of_others_that_end_alike(tmp_path):
    for i in range(4):
        array(tmp_path / f"{i}.npy", RNG.normal(size=(30 + i, 3)))
        array(tmp_path / f"{i}_label.npy", RNG.integers(0, 4, 30 + i))
    fields = parse_schema(draft(tmp_path).text).fields
    assert (fields["array"].shape[1:], fields["array"].file, fields["label"].role) == (
        (3,),
        "{id}.npy",
        "class",
    )


@pytest.mark.parametrize("junk", [b"junk", b"{}"])
def test_a_part_that_nothing_can_be_read_of_is_left_out(tmp_path, junk):
    by_folder(tmp_path)
    for meta in tmp_path.glob("*/meta.json"):
        meta.write_bytes(junk)
    found = draft(tmp_path)
    assert parse_schema(found.text).fields.keys() == {"points", "label"}
    assert "not described: 12 .json files" in found.notes


def test_files_of_several_samples_are_no_parts_of_one(tmp_path):
    for i in range(3):
        (tmp_path / f"h/{i}").mkdir(parents=True)
        (tmp_path / f"l/{i}").mkdir(parents=True)
        with h5py.File(tmp_path / f"h/{i}/demos.hdf5", "w") as file:
            for demo in range(3):
                file[f"data/demo_{demo}/actions"] = RNG.normal(size=(20, 7))
        (tmp_path / f"l/{i}/chat.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
        for kind in "hl":
            (tmp_path / f"{kind}/{i}/meta.json").write_bytes(orjson.dumps({"b": i}))
    assert [parse_schema(draft(tmp_path / kind).text).samples.each for kind in "hl"] == [
        "/data/demo_*",
        "line",
    ]


def test_classes_of_pictures_and_tasks_of_demos_are_no_parts(tmp_path):
    # "ori" and "rot" say rotations where words begin so
    for n, name in enumerate(("cat", "dog", "gorilla", "carrot")):
        (tmp_path / f"p/{name}").mkdir(parents=True)
        for i in range(6):
            # A grey one in each, of many sizes but the cats
            size = (8, 8 + i * (n > 0), 3) if i + n != 4 else (8, 9)
            Image.fromarray(RNG.integers(0, 255, size, dtype=np.uint8)).save(
                tmp_path / f"p/{name}/{i}.png"
            )
            arrays(
                tmp_path / f"m/{i}/point_{name}.npz",
                poses=RNG.normal(size=(9, 72)),
                trans=RNG.normal(size=(9, 3)),
            )
    assert [drafted(tmp_path / data)[0] for data in "pm"] == [
        "{folder1}/{id}.png",
        "{folder1}/{id}.npz",
    ]
    # Of whatever size
    assert parse_schema(draft(tmp_path / "p").text).fields["image"].role == "image"


def test_files_that_hold_the_same_are_samples_of_their_own(tmp_path):
    for i in range(5):
        for name in ("walk", "run", "jump"):
            array(tmp_path / f"motion/s{i}/{name}.npy", RNG.normal(size=(50 + i, 72)))
            array(tmp_path / f"eyes/{name}/{i}.npy", RNG.normal(size=(50 + i, 72)))
    for data, pattern in (("motion", "{folder1}/{id}.npy"), ("eyes", "{folder1}/{id}.npy")):
        assert parse_schema(draft(tmp_path / data).text).samples.files == (pattern,)


def test_a_file_of_many_samples_is_no_part_of_one(tmp_path):
    for task in "abc":
        (tmp_path / "d" / task).mkdir(parents=True)
        (tmp_path / "d" / task / "about.json").write_bytes(orjson.dumps({"task": task}))
        with h5py.File(tmp_path / "d" / task / "demos.h5", "w") as file:
            for demo in range(3):
                file[f"data/demo_{demo}/actions"] = RNG.normal(size=(30 + demo, 7))
    schema = parse_schema(draft(tmp_path / "d").text)
    assert (schema.samples.files, schema.samples.each) == (("{folder1}/{id}.h5",), "/data/demo_*")


@pytest.mark.parametrize(
    "paths",
    [
        [f"seq{s}/{i:04d}.png" for s in range(3) for i in range(20)],  # frames
        [f"s{s}/view_{i}.png" for s in range(3) for i in range(4)],
        [f"{split}/{name}.npy" for split in ("train", "val") for name in ("images", "labels")],
        [f"scan_{i}.npz" for i in range(9)],
        [f"{folder}/{i}.npy" for folder in ("a", "b") for i in range(9) if (folder, i) != ("b", 3)][
            ::2
        ],
        ["a.npy"],
        ["a.npy", "b.json", "c/d.txt"],
    ],
)
def test_frames_views_splits_and_single_files_are_no_parts(paths):
    assert group_files(paths) == []


@pytest.mark.parametrize("folder", ["da{ta} [1]", "a*b", "x\\y", "v1.0", "ü n"])
@pytest.mark.parametrize(
    "layout", ["{0}/{1}_{2}", "{0}/{2}/{1}_v1.0", "{2}/{0}/{1}", "{1}/{0}.{2}"]
)
def test_patterns_of_parts_name_each_file_of_each_sample(folder, layout):
    found = group_files(
        [layout.format(folder, i, part) + ".npy" for i in range(5) for part in ("vert", "label")]
    )
    assert len(found) == 2
    main, other = (parse(part.pattern, "") for part in found)
    assert sorted(other.fill(main.match(path)) for path in found[0].paths) == list(found[1].paths)


@pytest.mark.parametrize("part", ["la*bel", "l{1}", "la\\bel", "{id}"])
def test_parts_that_no_pattern_can_name_are_none(part):
    assert group_files([f"{i}/{name}.npy" for i in range(5) for name in ("vert", part)]) == []
    assert group_files([f"{name}/{i}.npy" for i in range(5) for name in ("vert", part)]) == []


@pytest.mark.parametrize("path", ["@vert/{}.npy", "@x/{}/vert.npy"])
def test_files_that_are_called_as_those_of_another_root_are_no_parts(path):
    assert (
        group_files(
            [path.format(i).replace("vert", part) for i in range(5) for part in ("vert", "label")]
        )
        == []
    )


def test_parts_at_several_depths_are_none():
    assert (
        group_files([f"{at}/{n}.npy" for at in ("a/1", "a/2", "b/c/3") for n in ("vert", "label")])
        == []
    )


@given(
    st.lists(
        st.from_regex(r"[a-z]{1,6}\d{1,4}", fullmatch=True), min_size=2, max_size=20, unique=True
    ),
    st.lists(
        st.sampled_from(["points.npy", "label.npy", "meta.json", "rgb.png", "ins_label.npy"]),
        min_size=2,
        unique=True,
    ),
    st.sampled_from(["{}/{}", "data/{}/{}", "{}_{}", "x/{}.{}"]),
)
def test_every_part_has_one_file_of_every_sample(samples, parts, layout):
    paths = sorted(layout.format(sample, part) for sample in samples for part in parts)
    found = group_files(paths)
    assert sorted(path for part in found for path in part.paths) == paths
    assert [len(part.paths) for part in found] == [len(samples)] * len(parts)
    assert all(path.endswith(part.ending) for part in found for path in part.paths)
    assert len({part.name for part in found}) == len(parts)
