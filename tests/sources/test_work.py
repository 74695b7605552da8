"""What a listing comes to: items, splits, lists that disagree with files, files left over."""

import json
import os
import re
import sys
import time

import pytest
from rich._emoji_codes import EMOJI  # a list of emoji that is not ours

from datacheck.errors import SchemaError, UsageError
from datacheck.schema import patterns
from datacheck.schema.load import load_schema
from datacheck.schema.model import Schema
from datacheck.schema.patterns import Template
from datacheck.sources import check_alone, list_files, matches, plan_work
from datacheck.sources import planning as work_of
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries, Entry
from tests.sources.schemas import schema

GROUP = '{"zarr_format": 3, "node_type": "group"}'
HO3D = {"files": r"{split}/{seq}/meta/{frame:\d{4}}.pkl", "list": "{split}.txt"}


def plan(root, spec, roots=None):
    return plan_work(spec, list_files(root, roots))


def write(root, *paths, text="x"):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def said(work):
    return [(note.code, note.key, note.missing, note.split) for note in work.notes]


def test_a_file_of_another_ending_costs_no_expression(tmp_path, monkeypatch):
    """Every built-in schema is held against every file of a folder: of a million files this took seconds for each."""
    write(tmp_path, "a/0000.pkl", "a/0001.PKL", *(f"a/{i}.png" for i in range(5)))
    tried, match = [], Template.match
    monkeypatch.setattr(
        Template, "match", lambda self, path: tried.append(path) or match(self, path)
    )
    assert matches(schema(r"{seq}/{frame:\d{4}}.pkl"), list_files(tmp_path)) == 1
    assert tried == ["a/0000.pkl"]


def test_items_come_in_path_order_with_split_names_and_size(tmp_path):
    write(
        tmp_path,
        "val/b/meta/0000.pkl",
        "train/a/meta/0001.pkl",
        "train/a/meta/0000.pkl",
        text="1234",
    )
    items = plan(tmp_path, schema(HO3D["files"])).items
    assert [
        (i.path, i.split, i.names["seq"], i.names["frame"], i.nbytes, i.keys) for i in items
    ] == [
        ("train/a/meta/0000.pkl", "train", "a", "0000", 4, None),
        ("train/a/meta/0001.pkl", "train", "a", "0001", 4, None),
        ("val/b/meta/0000.pkl", "val", "b", "0000", 4, None),
    ]


def test_the_first_pattern_that_matches_claims_a_file(tmp_path):
    write(tmp_path, "x_1.npy", "y.npy", "z.txt")
    spec = schema(["{a}_{b}.npy", "{c}.npy"])
    assert [(i.path, i.names) for i in plan(tmp_path, spec).items] == [
        ("x_1.npy", {"a": "x", "b": "1"}),
        ("y.npy", {"c": "y"}),
    ]
    assert matches(spec, list_files(tmp_path)) == 2


def test_what_nothing_claims_is_left_over(tmp_path):
    write(
        tmp_path, "a.npy", "a.txt", "b.txt", "notes.md", "train.txt", "meshes/a.obj", "meshes/b.obj"
    )
    fields = {"points": {}, "labels": {"file": "{id}.txt"}, "mesh": {"file": "meshes/{id}.obj"}}
    assert list(plan(tmp_path, schema("{id}.npy", fields)).unclaimed) == [
        "b.txt",
        "meshes/b.obj",
        "notes.md",
        "train.txt",
    ]


def test_files_below_extra_roots_are_never_left_over(tmp_path):
    write(tmp_path, "data/a.npy", "objects/a/mesh.obj", "objects/unused/mesh.obj")
    spec = schema(
        "{id}.npy",
        {"points": {}, "mesh": {"file": "{objects}/{id}/mesh.obj", "at": "points"}},
        roots={"objects": ""},
    )
    work = plan(tmp_path / "data", spec, {"objects": tmp_path / "objects"})
    assert ([i.path for i in work.items], list(work.unclaimed)) == (["a.npy"], [])


def test_a_data_folder_whose_name_begins_with_an_at_sign_is_left_over(tmp_path):
    write(tmp_path, "a.npy", "@eaDir/a.mcap")
    assert list(plan(tmp_path, schema("*.npy")).unclaimed) == ["@eaDir/a.mcap"]


def test_companions_named_inside_files_are_not_left_over(tmp_path):
    write(tmp_path, "a.hdf5", "a_demo_0.json", "b.json")
    spec = schema(
        {"files": "{task}.hdf5", "each": "/data/{demo}"},
        {"actions": {}, "words": {"file": "{task}_{demo}.json"}},
    )
    assert list(plan(tmp_path, spec).unclaimed) == ["b.json"]


def test_an_open_pattern_claims_known_formats_only(tmp_path):
    write(tmp_path, "a.npy", "d/b.jsonl", "c.py", "README.md", "LICENSE")
    work = plan(tmp_path, schema("**/*", {"*": {}}))
    assert [item.path for item in work.items] == ["a.npy", "d/b.jsonl"]
    assert list(work.unclaimed) == ["LICENSE", "README.md", "c.py"]


# -------------------------------------------------------------------------------------------- lists


def test_listed_and_present_are_items_and_the_rest_are_notes(tmp_path):
    write(tmp_path, *(f"train/a/meta/{n:04d}.pkl" for n in range(4)), "evaluation/b/meta/0000.pkl")
    write(tmp_path, "train.txt", text="\ufeffa/0000\r\na/0002\r\n\r\n  a/0009  \r\nc/0000\r\n")
    write(tmp_path, "evaluation.txt", text="b/0000\n")
    work = plan(tmp_path, schema(HO3D))
    assert [(i.path, i.split) for i in work.items] == [
        ("evaluation/b/meta/0000.pkl", "evaluation"),
        ("train/a/meta/0000.pkl", "train"),
        ("train/a/meta/0002.pkl", "train"),
    ]
    assert said(work) == [
        ("DC105", "train/a/meta/0001.pkl", False, "train"),
        ("DC105", "train/a/meta/0003.pkl", False, "train"),
        ("DC105", "train/a/meta/0009.pkl", True, "train"),
        ("DC105", "train/c/meta/0000.pkl", True, "train"),
    ]
    assert list(work.unclaimed) == []


def test_a_list_calls_no_sample_of_another_split_missing(tmp_path):
    """Its key would be that of the good sample, which no build takes twice, and whose verdict is one."""
    write(tmp_path, "train/0.npy", "evil/1.npy")
    write(tmp_path, "train.txt", text="0\n")
    write(tmp_path, "evil.txt", text="1\ntrain/0.npy\ntrain/0.npy/inner\ntrain/5.npy\n")
    work = plan(tmp_path, schema({"files": "{split}/{id}.npy", "list": "{split}.txt"}))
    assert [item.path for item in work.items] == ["evil/1.npy", "train/0.npy"]
    assert said(work) == [
        ("DC105", "evil.txt: train/0.npy", True, "evil"),
        ("DC105", "evil.txt: train/0.npy/inner", True, "evil"),
        ("DC105", "train/5.npy", True, "evil"),
    ]


def test_what_cannot_be_listed_is_a_sample_that_cannot_be_read(tmp_path, monkeypatch):
    write(tmp_path, "a/0.npy", "locked/0.npy")
    scandir = os.scandir

    def refusing(folder):
        if isinstance(folder, int) and os.readlink(f"/proc/self/fd/{folder}").endswith("/locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    work = plan(tmp_path, schema("{split}/{id}.npy"))
    assert [item.path for item in work.items] == ["a/0.npy"]
    assert said(work) == [("DC101", "locked", True, "")]
    assert work.notes[0].reason == "not listed: folder cannot be read: permission denied"


def test_a_listed_store_that_cannot_be_listed_is_no_other_sample(tmp_path):
    write(tmp_path, "train/a.zarr/.zgroup", f"train/a.zarr/{'b/' * 66}0", "train/b.zarr/.zgroup")
    write(tmp_path, "train.txt", text="a\nb\n")
    work = plan(tmp_path, schema({"files": "{split}/{id}.zarr", "list": "{split}.txt"}))
    assert said(work) == [
        ("DC105", "train.txt: a", True, "train"),
        ("DC101", "train/a.zarr", True, ""),
    ]


@pytest.mark.parametrize(
    ("file", "inside"),
    [
        ("{id}/note.txt", True),
        ("{id}/a/note.txt", True),
        ("{id}.txt", False),
        ("notes/{id}.txt", False),
        ("{any}/note.txt", True),
        ("notes/{any}.txt", False),
    ],
)
def test_of_a_store_that_is_data_itself_no_field_lies_in_another_file(tmp_path, file, inside):
    """The folder above is the root, so a link in the store could lead to any file there."""
    write(tmp_path, "s.zarr/zarr.json", text=GROUP)
    spec = schema("{id}", {"note": {"role": "text", "file": file}})
    plan_work(spec, list_files(tmp_path))  # the control: the folder above is DATA, and the root
    if not inside:
        plan_work(spec, list_files(tmp_path, only="s.zarr"))
        return
    with pytest.raises(
        UsageError,
        match=r"may lie in the Zarr folder s\.zarr, which is DATA itself. Name the folder",
    ):
        plan_work(spec, list_files(tmp_path, only="s.zarr"))


@pytest.mark.parametrize(
    "promise",
    [
        {"fields": {"x": {"file": "{id}.npy"}}},
        {"fields": {"x": {"stats": {"file": "norm.json", "optional": True}}}},
        {"fields": {"x": {}}, "loader": {"keep_classes": "labels.yaml"}},
        {"fields": {"x": {}}, "when": {"split=train": {"x": {"file": "{id}.npy"}}}},
        {"fields": {"x": {"file": "{more}/{id}.npy"}}, "roots": {"more": "beside"}},
    ],
)
def test_a_marker_that_makes_a_store_of_data_opens_no_file_beside_it(tmp_path, promise):
    """Without the marker the schema means files in DATA; with it they would be those of the folder above."""
    write(tmp_path, "s/zarr.json", "s.zarr/zarr.json", "s/a/zarr.json", text=GROUP)
    spec = Schema.model_validate(
        {"datacheck": 1, "name": "t", "samples": {"files": "{id}"}, **promise}
    )
    spec = spec.placed((), tmp_path)
    for listing in (list_files(tmp_path), list_files(tmp_path, only="s.zarr")):
        check_alone(spec, listing.alone)
    listing = list_files(tmp_path, only="s")
    with pytest.raises(
        UsageError, match=r"would lie beside DATA.* Remove the marker .* from s, or name .*s\.zarr"
    ):
        check_alone(spec, listing.alone)
    with pytest.raises(UsageError, match="would lie beside DATA"):
        plan_work(spec, listing)


@pytest.mark.parametrize("path", ["tok", "../tok"])
def test_a_marker_that_makes_a_store_of_data_moves_no_tokenizer(tmp_path, path):
    """A relative path is one from DATA; with the marker it was one from the folder above."""
    write(tmp_path, "s/zarr.json", "s.zarr/zarr.json", text=GROUP)
    told = {
        "datacheck": 1,
        "name": "t",
        "samples": {"files": "{id}"},
        "fields": {"x": {"role": "tokens"}},
    }
    spec = Schema.model_validate({**told, "tokenizer": {"path": path}})
    check_alone(spec, list_files(tmp_path).alone, spec.tokenizer)
    with pytest.raises(UsageError, match=r"tokenizer\.path: .* would lie beside DATA"):
        check_alone(spec, list_files(tmp_path, only="s").alone, spec.tokenizer)
    elsewhere = Schema.model_validate({**told, "tokenizer": {"path": "/models/tok"}})
    check_alone(elsewhere, list_files(tmp_path, only="s").alone, elsewhere.tokenizer)


def test_a_marker_that_makes_a_store_of_data_lets_files_of_extra_roots_be_read(tmp_path):
    write(tmp_path, "s/zarr.json", text=GROUP)
    more = {"fields": {"x": {"file": "{more}/{id}.npy"}}, "roots": {"more": "beside"}}
    spec = Schema.model_validate(
        {"datacheck": 1, "name": "t", "samples": {"files": "{id}"}, **more}
    )
    write(tmp_path, "elsewhere/s.npy")
    work = plan_work(spec, list_files(tmp_path, {"more": tmp_path / "elsewhere"}, only="s"))
    assert [item.path for item in work.items] == ["s"]


def test_a_marker_that_makes_one_store_of_several_is_told(tmp_path):
    """Files of the stores are in no other entry of the listing: a scan of the others would say OK."""
    write(
        tmp_path,
        "a/s0/zarr.json",
        "a/s1/zarr.json",
        "b/s2/zarr.json",
        "b/s2/x/zarr.json",
        text=GROUP,
    )
    spec = schema("{part}/{id}")
    assert [item.path for item in plan_work(spec, list_files(tmp_path)).items] == [
        "a/s0",
        "a/s1",
        "b/s2",
    ]
    assert plan_work(spec, list_files(tmp_path)).notes == []
    write(tmp_path, "a/zarr.json", text=GROUP)
    work = plan_work(spec, list_files(tmp_path))
    assert [item.path for item in work.items] == ["b/s2"]
    (note,) = work.notes
    assert (note.code, note.key, note.missing) == ("DC101", "a", True)
    assert note.reason.startswith(
        "a marker of Zarr in it makes one Zarr folder of a/s0 and 1 more, which samples.file"
    )
    # The store itself is a sample
    assert plan_work(schema("**/{id}"), list_files(tmp_path)).notes == []


def test_a_split_without_its_list_is_taken_whole_and_said(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl", "val/b/meta/0000.pkl", "val/b/meta/0001.pkl")
    write(tmp_path, "train.txt", text="a/0000\n")
    work = plan(tmp_path, schema(HO3D))
    assert len(work.items) == 3
    assert said(work) == [("DC105", "val.txt", False, "val")]
    assert "all 2 matching files are taken" in work.notes[0].reason


def test_no_list_at_all_takes_everything(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl", "val/b/meta/0000.pkl")
    work = plan(tmp_path, schema(HO3D))
    assert len(work.items) == 2
    assert said(work) == [
        ("DC105", "train.txt", False, "train"),
        ("DC105", "val.txt", False, "val"),
    ]


def test_one_file_of_a_listed_dataset_is_no_missing_list(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl")
    write(tmp_path, "train.txt", text="a/0000\n")
    work = plan_work(schema(HO3D), list_files(tmp_path, only="train/a/meta/0000.pkl"))
    assert ([item.split for item in work.items], said(work)) == (["train"], [])


def test_a_line_twice_is_a_note_and_one_item(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl")
    write(tmp_path, "train.txt", text="a/0000\na/0000\n")
    work = plan(tmp_path, schema(HO3D))
    assert len(work.items) == 1
    assert said(work) == [("DC105", "a/0000", False, "train")]
    assert "more than once in train.txt" in work.notes[0].reason


def test_a_line_that_stands_often_is_told_once(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl", "train/a/meta/0001.pkl")
    write(tmp_path, "train.txt", text="a/0000\na/0001\n" * 3)
    assert sorted(said(plan(tmp_path, schema(HO3D)))) == [
        ("DC105", "a/0000", False, "train"),
        ("DC105", "a/0001", False, "train"),
    ]


def test_many_empty_entries_are_not_told_one_by_one(tmp_path):
    write(tmp_path, "a.npy")
    write(tmp_path, "all.json", text='["a", ' + "null, " * 2_999 + "null]")
    work = plan(tmp_path, schema({"files": "{id}.npy", "list": {"train": "all.json"}}))
    assert [i.path for i in work.items] == ["a.npy"]
    assert len(work.notes) == 1_001
    assert [note.reason for note in work.notes if not note.missing] == [
        "has 2,000 more empty entries"
    ]


def test_lines_that_cannot_name_a_file_are_missing_samples(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl")
    write(tmp_path, "train.txt", text="a/0000\nonly\n../../x\n../x\n")
    work = plan(tmp_path, schema(HO3D))
    assert len(work.items) == 1
    assert {(note.key, note.missing) for note in work.notes} == {
        ("only", True),
        ("../../x", True),
        ("../x", True),
    }
    assert "does not fill {seq} and {frame}" in next(
        n.reason for n in work.notes if n.key == "only"
    )


def test_the_list_may_be_what_says_the_split(tmp_path):
    write(tmp_path, "npz/a.npy", "npz/b.npy", "npz/c.npy", "npz/d.npy")
    write(tmp_path, "train.txt", text="a\nb\n")
    write(tmp_path, "val.txt", text="b\nc\n")
    work = plan(tmp_path, schema({"files": "npz/{id}.npy", "list": "{split}.txt"}))
    assert [(i.path, i.split) for i in work.items] == [
        ("npz/a.npy", "train"),
        ("npz/b.npy", "train"),
        ("npz/c.npy", "val"),
    ]
    assert [(n.key, n.reason) for n in work.notes] == [
        ("npz/b.npy", "listed in train.txt and in val.txt; the first counts"),
        ("npz/d.npy", "no list names this file, so it is not read"),
    ]


def test_lists_that_name_one_file_again_and_again_are_not_told_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(work_of, "_MOST_FAULTS", 3)
    write(tmp_path, "npz/a.npy")
    for number in range(9):
        write(tmp_path, f"s{number}.txt", text="a\n")
    reasons = [
        n.reason
        for n in plan(tmp_path, schema({"files": "npz/{id}.npy", "list": "{split}.txt"})).notes
    ]
    assert sum(reason.endswith("the first counts") for reason in reasons) == 3
    assert sum(reason.startswith("has 1 more lines that name") for reason in reasons) == 5


def test_lists_that_name_the_same_files_cost_no_step_for_each_file(tmp_path, monkeypatch):
    steps = []

    class Paths(list):
        def __iter__(self):
            steps.append(len(self))
            return super().__iter__()

    made = work_of._Lists._index

    def index(self, found):
        full = made(self, found)
        full.paths = {key: Paths(paths) for key, paths in full.paths.items()}
        return full

    monkeypatch.setattr(work_of, "_MOST_FAULTS", 10)
    monkeypatch.setattr(work_of._Lists, "_index", index)
    for number in range(20):
        write(tmp_path, f"d{number:02}/a.npy")
        write(tmp_path, f"s{number:02}.txt", text="a\n")
    work = plan(tmp_path, schema({"files": "**/{id}.npy", "list": "{split}.txt"}))
    assert {item.split for item in work.items} == {"s00"}
    assert sum(note.reason.endswith("the first counts") for note in work.notes) == 10
    assert sum("has 20 more lines" in note.reason for note in work.notes) == 18
    assert sum(steps) == 20


def test_lists_of_too_many_lines_in_all_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(work_of, "_MOST_LINES", 3)
    write(tmp_path, "npz/a.npy", "npz/b.npy")
    for name in ("one", "two"):
        write(tmp_path, f"{name}.txt", text="a\nb\n")
    work = plan(tmp_path, schema({"files": "npz/{id}.npy", "list": "{split}.txt"}))
    assert [(item.path, item.split) for item in work.items] == [
        ("npz/a.npy", "one"),
        ("npz/b.npy", "one"),
    ]
    (note,) = work.notes
    assert (
        note.reason
        == "the list cannot be read, so all files are taken: lists have more than 3 lines in all"
    )


def test_a_long_list_takes_no_lines_of_short_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(work_of, "_MOST_LINES", 3)
    write(tmp_path, "npz/a.npy", "npz/b.npy")
    write(tmp_path, "aaa.txt", text="0\n" * 3)
    write(tmp_path, "train.txt", text="a\n")
    write(tmp_path, "val.txt", text="b\n")
    work = plan(tmp_path, schema({"files": "npz/{id}.npy", "list": "{split}.txt"}))
    assert [(item.path, item.split) for item in work.items] == [
        ("npz/a.npy", "train"),
        ("npz/b.npy", "val"),
    ]
    assert [note.key for note in work.notes] == ["aaa.txt"]


def test_of_what_an_entry_says_only_the_counts_are_held(tmp_path):
    write(tmp_path, "npz/a.npy")
    write(
        tmp_path, "one.json", text=json.dumps([{"path": "npz/a.npy", "junk": [[]] * 9, "len": 3}])
    )
    spec = schema({"files": "npz/{id}.npy", "list": "{split}.json", "counts": {"len": "P"}})
    lists = work_of._Lists(spec, list_files(tmp_path))
    assert [names.about for names in lists._lists] == [{"a": {"len": 3}}]


def test_one_list_for_all_splits(tmp_path):
    write(tmp_path, "train/a.npy", "val/b.npy", "val/c.npy")
    write(tmp_path, "scenes.txt", text="train/a\nval/b\n")
    work = plan(tmp_path, schema({"files": "{split}/{scene}.npy", "list": "scenes.txt"}))
    assert [(i.path, i.split) for i in work.items] == [
        ("train/a.npy", "train"),
        ("val/b.npy", "val"),
    ]
    assert said(work) == [("DC105", "val/c.npy", False, "val")]


def test_each_split_may_have_a_list_of_its_own_name(tmp_path):
    lists = {"train": "train_list.txt", "validation": "val_list.txt", "test": "lists/test.txt"}
    write(tmp_path, "train/a.npy", "train/b.npy", "validation/c.npy", "test/d.npy")
    write(tmp_path, "train_list.txt", text="a\nz\n")
    write(tmp_path, "val_list.txt", text="c\n")
    write(tmp_path, "val.txt", text="not a list\n")
    work = plan(tmp_path, schema({"files": "{split}/{scene}.npy", "list": lists}))
    assert [(i.path, i.split) for i in work.items] == [
        ("test/d.npy", "test"),
        ("train/a.npy", "train"),
        ("validation/c.npy", "validation"),
    ]
    assert said(work) == [
        ("DC105", "lists/test.txt", False, "test"),
        ("DC105", "train/b.npy", False, "train"),
        ("DC105", "train/z.npy", True, "train"),
    ]
    assert list(work.unclaimed) == ["val.txt"]


def test_lists_may_say_the_split_of_files_in_one_folder(tmp_path):
    write(tmp_path, "a.npy", "b.npy", "c.npy")
    write(tmp_path, "tr.txt", text="a\n")
    write(tmp_path, "va.txt", text="b\n")
    work = plan(
        tmp_path, schema({"files": "{id}.npy", "list": {"train": "tr.txt", "val": "va.txt"}})
    )
    assert [(i.path, i.split) for i in work.items] == [("a.npy", "train"), ("b.npy", "val")]
    assert said(work) == [("DC105", "c.npy", False, "")]


def test_a_list_whose_lines_fit_no_file_is_told(tmp_path):
    write(tmp_path, "a.npy")
    write(tmp_path, "train.txt", text="a.npy\n")
    (note,) = plan(tmp_path, schema({"files": "{id}.npy", "list": "{split}.txt"})).notes
    assert note.reason == (
        "no such list (train.txt has such a name, but no line of it names a file here): all 1 "
        "matching files are taken"
    )


DATABASE = {
    "files": "{split:train|val}/{scene}.npy",
    "list": "{split}_database.yaml",
    "counts": {"file_len": "P"},
}
POINTS = {"xyz": {"shape": ["P", 3]}}


def test_a_list_of_mappings_names_files_by_the_end_of_their_path_and_counts_their_rows(tmp_path):
    write(tmp_path, "train/a.npy", "train/b.npy", "train/c.npy", "train/d.npy")
    entries = [
        {"filepath": "data/processed/train/a.npy", "file_len": 30, "scene": 1},
        {"file": "./data/processed/train/b.npy", "file_len": True},
        "c",
        {"path": "/elsewhere/val/d.npy", "file_len": 4},
        {"filepath": r"data\processed\train\d.npy", "file_len": 1 << 63},
    ]
    write(tmp_path, "train_database.yaml", text=json.dumps(entries))
    write(tmp_path, "label_database.yaml", text="1: {name: wall}\n")
    work = plan(tmp_path, schema(DATABASE, POINTS))
    assert [i.path for i in work.items] == [
        "train/a.npy",
        "train/b.npy",
        "train/c.npy",
        "train/d.npy",
    ]
    assert [(n.code, n.key, n.about) for n in work.notes] == [
        (
            "DC105",
            "/elsewhere/val/d.npy",
            {"list": "train_database.yaml", "line": "/elsewhere/val/d.npy"},
        ),
        ("DC111", "train/a.npy", {"file_len": 30}),
    ]
    assert list(work.unclaimed) == ["label_database.yaml"]


@pytest.mark.parametrize(
    "other", ["data/.cache/train/b.npy", "/elsewhere/train/b.npy", "train/b.npy"]
)
def test_an_entry_of_another_folder_than_the_rest_names_no_sample(tmp_path, other):
    """The loader opens the path as it stands: another file than the one that is judged."""
    write(tmp_path, "train/a.npy", "train/b.npy", "train/c.npy")
    entries = [{"filepath": f"data/train/{name}.npy"} for name in "ac"]
    write(tmp_path, "train_database.yaml", text=json.dumps([*entries, {"filepath": other}]))
    work = plan(tmp_path, schema(DATABASE, POINTS))
    assert [i.path for i in work.items] == ["train/a.npy", "train/c.npy"]
    said = "which leads to another folder than most entries do (data/...)"
    # Train/b.npy is another sample
    key = "train_database.yaml: train/b.npy" if other == "train/b.npy" else other
    assert [n.key for n in work.notes if said in n.reason] == [key]


@pytest.mark.parametrize("end", ["yaml", "yml", "json"])
def test_entries_without_a_name_are_missing_samples_with_their_place(end, tmp_path):
    write(tmp_path, "train/a.npy", "train/b.npy", "train/c.npy")
    write(
        tmp_path,
        f"train_database.{end}",
        text='[null, {"filepath": "train/a.npy"}, "b", {"scene": 3}, {}, 7, ""]',
    )
    write(tmp_path, f"config_database.{end}", text='[null, "x"]')
    spec = {"files": "{split}/{scene}.npy", "list": "{split}_database." + end}
    work = plan(tmp_path, schema(spec, POINTS))
    assert [i.path for i in work.items] == ["train/a.npy", "train/b.npy"]
    assert [(n.key, n.missing) for n in work.notes] == [
        ("train/7.npy", True),
        ("train/c.npy", False),
        *((f"train_database.{end}[{place}]", True) for place in (0, 3, 4, 6)),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{a: {file_len: 3}, z: {file_len: 3}}",
            ["listed in train_database.yaml as 'z', but there is no such", ""],
        ),
        ("", ["no list names this file, so it is not read"]),
        ("[", ["the list cannot be read"]),
        ("!!python/object:os.system [a]", ["the list cannot be read"]),
    ],
)
def test_a_list_may_be_a_mapping_empty_or_broken(text, said, tmp_path):
    write(tmp_path, "train/a.npy")
    write(tmp_path, "train_database.yaml", text=text)
    work = plan(tmp_path, schema(DATABASE, POINTS))
    assert [
        n.reason[: len(s)]
        for n, s in zip(sorted(work.notes, key=lambda n: n.code), said, strict=True)
    ] == said


@pytest.mark.parametrize(
    "files", ["{split:train|val}/{scene}.npy", "**/{split:train|val}/{scene}.npy"]
)
def test_a_record_with_many_folders_takes_no_more_time_than_a_short_one(
    files, tmp_path, monkeypatch
):
    write(tmp_path, "train/a.npy", "train/b.npy")
    entries = [{"filepath": "x/" * 1900 + "train/a.npy"}, {"filepath": "x/" * 3000 + "train/b.npy"}]
    write(tmp_path, "train_database.json", text=json.dumps(entries))
    held, match = [], Template.match
    monkeypatch.setattr(
        Template, "match", lambda self, path: held.append(len(path)) or match(self, path)
    )
    work = plan(tmp_path, schema({"files": files, "list": "{split}_database.json"}, POINTS))
    assert [i.path for i in work.items] == ["train/a.npy"]
    assert max(held) < 200  # of the long path the end is tried, of one that no system opens nothing
    assert [n.missing for n in work.notes] == [False, True]


def test_a_long_line_that_names_no_file_counts_by_its_digest(tmp_path):
    name = "é" * 120 + "/" + "b" * 120
    write(tmp_path, f"{name}.npy")
    long = ["x" * 200_000 + end for end in "01"]
    write(tmp_path, "all.txt", text="\n".join([name, *long, long[0], "\x01" * 900, "z" * 800]))
    work = plan(tmp_path, schema({"files": "{a}/{b}.npy", "list": "all.txt"}))
    assert [i.path for i in work.items] == [f"{name}.npy"]
    missing = [note for note in work.notes if note.missing]
    assert len({note.key for note in missing}) == 4
    assert all(len(json.dumps([note.key, note.reason])) < 2_000 for note in work.notes)
    (key, other) = sorted(note.key for note in missing if note.key.startswith("xx"))
    assert key.startswith("x" * 100 + "… (200,001 characters, ")
    assert key != other
    assert [
        "more than once" in note.reason for note in work.notes if note.key in {key, other}
    ].count(True) == 1
    assert "z" * 800 in {note.key for note in missing}


def test_other_text_files_are_no_lists(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl")
    write(tmp_path, "train.txt", text="a/0000\n")
    write(tmp_path, "README.txt", text="This is a data set.\nPlease cite us.\n")
    work = plan(tmp_path, schema(HO3D))
    assert (said(work), list(work.unclaimed)) == ([], ["README.txt"])
    constrained = HO3D | {"files": r"{split:train|evaluation}/{seq}/meta/{frame:\d{4}}.pkl"}
    work = plan(tmp_path, schema(constrained))
    assert (said(work), list(work.unclaimed)) == ([], ["README.txt"])


def test_the_list_of_a_known_split_without_any_file_is_missing_samples(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl")
    write(tmp_path, "train.txt", text="a/0000\n")
    write(tmp_path, "evaluation.txt", text="b/0000\n")
    for more in (
        {"splits": {"key": "seq", "disjoint": ["train", "evaluation"]}},
        {"when": {"split=evaluation": {"joints": {"shape": [3]}}}},
    ):
        work = plan(tmp_path, schema(HO3D, {"joints": {"shape": [21, 3]}}, **more))
        assert said(work) == [("DC105", "evaluation/b/meta/0000.pkl", True, "evaluation")]


def test_lists_work_with_wildcards_between_the_names(tmp_path):
    write(tmp_path, "train/part1/a.npy", "train/part2/b.npy", "train/part2/c.npy")
    write(tmp_path, "train.txt", text="a\nb\nz\n")
    work = plan(tmp_path, schema({"files": "{split}/**/{id}.npy", "list": "{split}.txt"}))
    assert [i.path for i in work.items] == ["train/part1/a.npy", "train/part2/b.npy"]
    assert said(work) == [
        ("DC105", "train/part2/c.npy", False, "train"),
        ("DC105", "z", True, "train"),
    ]


def test_a_list_that_is_no_text_is_a_note(tmp_path):
    write(tmp_path, "train/a/meta/0000.pkl")
    (tmp_path / "train.txt").write_bytes(b"\xff\xfe\x00")
    work = plan(tmp_path, schema(HO3D))
    assert len(work.items) == 1
    assert "cannot be read" in next(n.reason for n in work.notes if n.key == "train.txt")


def test_a_list_with_nothing_to_name_is_a_schema_error(tmp_path):
    with pytest.raises(SchemaError, match=re.escape("mine, samples.list")):
        plan(tmp_path, schema({"files": "{split}.npy", "list": "{split}.txt"}))


def test_malformed_patterns_are_schema_errors(tmp_path):
    write(tmp_path, "a.npy")
    with pytest.raises(SchemaError, match=re.escape("mine, samples.files")):
        plan(tmp_path, schema("{a"))
    with pytest.raises(SchemaError, match=re.escape("mine, fields.x.file")):
        plan(tmp_path, schema("{a}.npy", {"x": {"file": "*.txt"}}))


def calls(function) -> int:
    """How many calls a function makes, of Python and of C: its work, on any machine under any load."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_of_planning_grows_as_the_files_do(tmp_path):
    def planned(count):
        names = [f"train/S{n // 100:02d}/meta/{n % 100:04d}.pkl" for n in range(count)]
        write(
            tmp_path,
            "train.txt",
            text="".join(f"S{n // 100:02d}/{n % 100:04d}\n" for n in range(count)),
        )
        listing = Listing(
            tmp_path, Entries.of([Entry(name, 1, 0, 0, 0, 0) for name in [*names, "train.txt"]])
        )
        spec = schema(HO3D, {"image": {"file": "{split}/{seq}/rgb/{frame}.jpg"}})
        work = plan_work(spec, listing)
        assert (len(work.items), len(work.notes)) == (count, 0)
        return calls(lambda: plan_work(spec, listing))

    once, twice = planned(1500), planned(3000)
    assert 1500 < once < twice < 2.1 * once
    # The control: each with each
    few, many = ([[str.islower] * n for _ in range(n)] for n in (40, 80))
    assert calls(lambda: [[f("x") for f in row] for row in many]) > 2.1 * calls(
        lambda: [[f("x") for f in row] for row in few]
    )


# --------------------------------------------------------------------------------------------- junk


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("._x.npy", "left behind by another program"),
        (".DS_Store", "left behind by another program"),
        ("Thumbs.db", "left behind by another program"),
        ("x.npy.part", "left behind by another program"),
        ("x.npy~", "left behind by another program"),
        ("x\u200b.npy", "has a character that nobody sees"),
        ("\u202egpj.npy", "has a character that nobody sees"),
        ("x\n.npy", "has a character that nobody sees"),
        ("x.npy ", "begins or ends with a space"),
        (" x.npy", "begins or ends with a space"),
        ("a\u200db.npy", "has a character that nobody sees"),
        ("\u200d👧.npy", "has a character that nobody sees"),
        ("👧\u200d.npy", "has a character that nobody sees"),
        ("👩\u200d\u200d👧.npy", "has a character that nobody sees"),
        ("👩\u200d👧\u200b.npy", "has a character that nobody sees"),
        ("帧👩\u200d👩\u200d👧.npy", ""),
        (".gitattributes", ""),
        ("\u00e9.npy", ""),
        ("a b.npy", ""),
        ("x.template", ""),
    ],
)
def test_junk_is_told_by_its_name_and_what_others_wrote_is_no_sample(tmp_path, name, reason):
    write(tmp_path, "d/good.npy", f"d/{name}")
    work = plan(tmp_path, schema("d/*.npy"))
    assert [(n.code, n.reason) for n in work.notes] == ([("DC107", reason)] if reason else [])
    read = [item.path for item in work.items]
    assert "d/good.npy" in read
    assert len(read) == 1 or not reason.startswith("left")


def test_the_emoji_that_are_joined_of_several_are_no_junk(tmp_path):
    joined = sorted({emoji for emoji in EMOJI.values() if "\u200d" in emoji})
    assert len(joined) > 500
    write(tmp_path, *(f"{n} {emoji}.npy" for n, emoji in enumerate(joined)))
    assert plan(tmp_path, schema("*.npy")).notes == []


# --------------------------------------------------------------------------------------- companions


def images(root, frames, *, lack=(), empty=()):
    """Write frames of HO3D, each with an image beside it but for some."""
    for frame in frames:
        write(root, f"train/A/meta/{frame:04d}.pkl")
        if frame not in lack:
            write(
                root,
                f"train/A/rgb/{frame:04d}.{'jpg' if frame % 2 else 'png'}",
                text="" if frame in empty else "x",
            )


def lacking(root):
    spec = schema(HO3D["files"]).model_copy(update={"samples": load_schema("ho3d").samples})
    work = plan(root, spec)
    assert list(work.unclaimed) == []
    return [
        (n.about["name"], n.split, n.about["lack"], n.about["empty"])
        for n in work.notes
        if n.code == "DC129"
    ]


def test_a_companion_that_some_samples_lack_is_named(tmp_path):
    """24 of 360 images were gone, and a scan said nothing."""
    images(tmp_path, range(20), lack=(3, 8), empty=(5,))
    gone = ["train/A/meta/0003.pkl", "train/A/meta/0008.pkl"]
    assert lacking(tmp_path) == [("rgb", "train", gone, ["train/A/meta/0005.pkl"])]


def test_companions_that_nobody_has_or_everybody_are_not_missed(tmp_path):
    images(tmp_path, range(20))  # either ending will do; nobody has a depth map
    write(tmp_path, "evaluation/B/meta/0000.pkl")  # nothing was copied for this split
    assert lacking(tmp_path) == []


@pytest.mark.parametrize(
    ("below", "splits", "lack"),
    [
        ("{take}/{id}", {}, ["a_.npy"]),
        ("{split}/{id}", {"1/2": "a*.npy", "1": "b*.npy"}, []),  # no sample of 1/2 has one
    ],
)
def test_a_companion_whose_path_no_names_make_is_lacking(tmp_path, below, splits, lack):
    """An empty name, or a split with a slash, is part of no path: it ended the scan."""
    write(tmp_path, "a_.npy", "b_1.npy", "rgb/1/b.jpg")
    spec = schema(
        {
            "files": "{id}_{take:[0-9]*}.npy",
            "split": splits,
            "list": "{split}.txt",
            "companions": {"rgb": f"rgb/{below}.jpg"},
        },
        {"x": {}, "m": {"file": f"m/{below}.png", "optional": True}},
    )
    work = plan(tmp_path, spec)
    assert [item.path for item in work.items] == ["a_.npy", "b_1.npy"]
    assert [path for n in work.notes if n.code == "DC129" for path in n.about["lack"]] == lack


@pytest.mark.parametrize("name", ["train.txt", "train.json"])
def test_a_list_that_is_a_pointer_names_no_samples(tmp_path, name):
    """Its three lines were three samples that are not there."""
    write(tmp_path, "train/a.npy", "train/b.npy")
    write(
        tmp_path, name, text="version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n"
    )
    work = plan(tmp_path, schema({"files": "{split}/{id}.npy", "list": "{split}" + name[5:]}))
    assert [item.path for item in work.items] == ["train/a.npy", "train/b.npy"]
    assert [(n.key, n.reason) for n in work.notes] == [
        (
            name,
            "the list cannot be read, so all files are taken: a Git LFS pointer, not the data: git "
            "lfs pull",
        )
    ]


def test_a_split_may_be_told_by_a_pattern_of_its_own(tmp_path):
    write(tmp_path, "a.npy", "b_eval.npy", "c.npy", "train/d.npy")
    split = {"held": "*_eval.npy", "fit": ["a.npy", "d.npy"]}
    spec = schema({"files": ["{id}.npy", "{split}/{id}.npy"], "split": split})
    assert {i.path: (i.split, i.names) for i in plan(tmp_path, spec).items} == {
        "a.npy": ("fit", {"split": "fit", "id": "a"}),
        "b_eval.npy": ("held", {"split": "held", "id": "b_eval"}),
        "c.npy": ("", {"id": "c"}),
        "train/d.npy": ("train", {"split": "train", "id": "d"}),
    }


RECORDS = """
- {filepath: train/a.npy, file_len: 12}
- null
- {filepath: train/b.npy, file_len: 30}
- {filepath: train/gone.npy, file_len: 7}
"""


@pytest.mark.parametrize("lists", [{}, {"list": {"train": "train_list.txt"}}])
def test_records_beside_a_list_state_numbers_and_choose_nothing(tmp_path, lists):
    """ExCap3D reads a database besides its lists: a null entry ends training, and nobody looked at it."""
    write(tmp_path, "train/a.npy", "train/b.npy", "train/c.npy")
    write(tmp_path, "train_list.txt", text="a\nc\n")
    write(tmp_path, "train_database.yaml", text=RECORDS)
    write(tmp_path, "label_database.yaml", text="3: null\n")
    files = "{split:train|test}/{id}.npy"
    samples = {
        "files": files,
        "records": "{split}_database.yaml",
        "counts": {"file_len": "P"},
    } | lists
    work = plan(tmp_path, schema(samples))
    listed = (
        ["train/a.npy", "train/c.npy"] if lists else ["train/a.npy", "train/b.npy", "train/c.npy"]
    )
    assert [item.path for item in work.items] == listed
    assert [
        (n.key, n.missing, n.split) for n in work.notes if n.reason.startswith("is an empty entry")
    ] == [("train_database.yaml[1]", True, "train")]
    stated = {n.key: dict(n.about) for n in work.notes if n.code == "DC111"}
    assert stated == {"train/a.npy": {"file_len": 12}, "train/b.npy": {"file_len": 30}}
    assert [path for path in work.unclaimed if path.endswith("yaml")] == ["label_database.yaml"]


def test_records_that_cannot_be_read_are_told(tmp_path):
    write(tmp_path, "train/a.npy")
    write(tmp_path, "train_database.yaml", text="{")
    samples = {"files": "{split}/{id}.npy", "records": "{split}_database.yaml"}
    (note,) = plan(tmp_path, schema(samples)).notes
    assert (note.code, note.key) == ("DC105", "train_database.yaml")
    assert note.reason.startswith("the records cannot be read: not YAML")


def test_unions_among_many_lists_are_found_in_a_moment(tmp_path):
    write(tmp_path, *(f"lists/s{n}.txt" for n in range(1000)), text="0000")
    write(tmp_path, "lists/s1s2.txt", text="0000")
    write(tmp_path, "meta/0000.pkl")
    began = time.process_time()
    work = plan(tmp_path, schema({"files": r"meta/{frame:\d{4}}.pkl", "list": "lists/{split}.txt"}))
    assert time.process_time() - began < 10
    assert not [note for note in work.notes if "s1s2" in note.reason]


@pytest.mark.parametrize("files", ["{split}/**/{id}.npy", "{split}/x/{id}.npy"])
def test_a_record_names_the_longest_end_of_its_path_that_its_own_list_may_name(tmp_path, files):
    write(tmp_path, "train/x/a.npy", "train/x/b.npy")
    paths = [f"val/x/y/train/x/{name}.npy" for name in ("a", "lost")]
    write(tmp_path, "train.json", text=json.dumps([{"path": path} for path in paths]))
    work = plan(tmp_path, schema({"files": files, "list": "{split}.json"}))
    assert [item.path for item in work.items] == ["train/x/a.npy"]
    ((lost, missing), (unlisted, _)) = sorted((note.reason, note.missing) for note in work.notes)
    assert (missing, unlisted) == (True, "no list names this file, so it is not read")
    assert lost.startswith("listed in train.json as 'lost', but ")


def test_records_of_deep_paths_take_little_more_time_than_of_flat_ones(tmp_path):
    write(tmp_path, "train/a.npy")
    spec, seconds = schema({"files": "{split}/**/{id}.npy", "list": "{split}.json"}), []
    for between in ("_", "/"):  # 65 levels, each of which could be the first
        names = [between.join([*"abcd" * 16, f"{number}.npy"]) for number in range(20_000)]
        write(
            tmp_path,
            "train.json",
            text=json.dumps([{"path": name} for name in ["train/a.npy", *names]]),
        )
        began = time.process_time()
        work = plan(tmp_path, spec)
        seconds.append(time.process_time() - began)
        assert sum(note.missing for note in work.notes) == 20_000
    assert seconds[1] < 9 * seconds[0]


@pytest.mark.parametrize(
    ("names", "reasons"),
    [
        (["a-0-of-1", "b-0-of-2", "b-1-of-2"], []),
        (["m-1-of-2", "m-2-of-2"], []),
        (["t-00000-of-00002"], ["1 of 2 shards are here by their names; the first absent one is "]),
        (["t-00002-of-00003"], ["1 of 3 shards are here by their names; the first absent one is "]),
        (["one-of-2", "x-5-of-2", "cat-1-of-a"], []),
        (["t-000000000-of-999999999"], ["1 of 999,999,999 shards are here by their names; "]),
    ],
)
def test_shards_that_are_absent_by_the_names_of_others_are_noted(tmp_path, names, reasons):
    write(tmp_path, *(f"d/{name}.npy" for name in names))
    notes = plan(tmp_path, schema({"files": "**/*.npy"})).notes
    assert len(notes) == len(reasons)
    assert all(n.reason.startswith(r) for n, r in zip(notes, reasons, strict=True))
    assert all(n.key == f"d/{names[0]}.npy" and not n.missing for n in notes)


def test_the_first_absent_shard_is_named(tmp_path):
    write(tmp_path, *(f"x.tfrecord-0000{n}-of-00004" for n in (0, 1, 3)))
    (note,) = plan(tmp_path, schema({"files": "*.tfrecord-*"})).notes
    assert note.reason.endswith("the first absent one is x.tfrecord-00002-of-00004")


@pytest.mark.parametrize("key", ["list", "records"])
def test_a_list_whose_paths_take_too_long_is_left_out_and_said(tmp_path, monkeypatch, key):
    """A list of 340 kB held a scan for a minute; 32 MB would have done so for more than an hour."""
    monkeypatch.setattr(work_of, "_LIST_SECONDS", 0.2)
    monkeypatch.setattr(work_of, "_ENTRY_SECONDS", 0.0)
    files = [tmp_path / f"x{number}y.npy" for number in range(3)]
    for path in files:
        path.write_bytes(b"a")
    entries = [{"file": "x" * 3_000 + f"{number}.npy"} for number in range(500)]
    (tmp_path / "train.json").write_text(json.dumps(entries))
    pattern = schema({"files": r"{id:(?:x*\d*){200}y}.npy", key: "{split}.json"})
    work = plan(tmp_path, pattern)
    assert sorted(item.path for item in work.items) == [path.name for path in files]
    (note,) = [note for note in work.notes if note.key == "train.json"]
    assert "comparing its paths takes more than 0 s of processor time" in note.reason


@pytest.mark.parametrize(
    ("samples", "fields", "where"),
    [
        ({"files": "{id:(?:x*){1000}y}.npy"}, {}, "samples.files"),
        ({"files": "{id}.txt", "list": "{split:(?:x*){1000}y}.npy"}, {}, "samples.list"),
        (
            {"files": "{id}.txt", "each": "/{n}"},
            {"file": "{n:(?:x*){1000}y}.npy"},
            "file of the fields",
        ),
        (
            {"files": "{id}.txt", "companions": {"more": "{id:(?:x*){1000}y}.npy"}},
            {},
            "samples.companions",
        ),
    ],
)
def test_patterns_that_take_too_long_are_one_message(tmp_path, monkeypatch, samples, fields, where):
    """Each name takes a thousand steps at each of 4,000 letters: an hour for all of them."""
    monkeypatch.setattr(patterns, "_MATCHING_SECONDS", 0.5)
    monkeypatch.setattr(patterns, "_NAME_SECONDS", 0)
    monkeypatch.setattr(patterns, "_PATTERN_SECONDS", 0)
    names = ["x" * 4000 + f"{number}.npy" for number in range(1000)]
    listing = Listing(tmp_path, Entries.of([Entry(name, 1, 0, 0, 0, 0) for name in names]))
    document = {"datacheck": 1, "name": "mine", "samples": samples, "fields": {"x": fields}}
    match = work_of.unopened_companions if "companions" in samples else plan_work
    with pytest.raises(SchemaError, match=rf"{where}: matching .* 1,000 names takes more"):
        match(Schema.model_validate(document), listing)
