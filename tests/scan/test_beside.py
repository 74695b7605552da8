"""Files that are gone are told where what lies beside them speaks of them, and nothing is told where nothing does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from datacheck.schema.load import load_schema
from datacheck.sources import plan_work, with_indexes
from datacheck.sources.beside import alone, documents, lost, names_in
from datacheck.sources.listing import list_files


def listed(root):
    return list_files(root, {}, None)


def put(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")


def notes(root):
    return [(note.key, note.reason) for note in alone(listed(root))]


# ------------------------------------------------------------------------------------------------ companions

KITTI = [f"{folder}/{frame:06}{end}" for folder, end in (("velodyne", ".bin"), ("image_2", ".png"), ("label_2", ".txt"))
         for frame in range(3)]  # fmt: skip


def test_a_label_that_one_frame_lacks_is_told(tmp_path):
    put(tmp_path, *KITTI)
    assert notes(tmp_path) == []
    (tmp_path / "label_2/000001.txt").unlink()
    assert notes(tmp_path) == [("label_2/000001.txt", "not there, but files of that name are in image_2, velodyne")]


def test_splits_above_the_folders_are_the_samples_own(tmp_path):
    put(tmp_path, *(f"{split}/{path}" for split in ("train", "val") for path in KITTI))
    (tmp_path / "val/image_2/000000.png").unlink()
    assert [key for key, _ in notes(tmp_path)] == ["val/image_2/000000.png"]


def test_files_of_one_folder_with_several_endings_are_held_against_one_another(tmp_path):
    put(tmp_path, *(f"data/{n}{end}" for n in "abcd" for end in (".ply", ".json", ".jpg")))
    (tmp_path / "data/c.jpg").unlink()
    assert [key for key, _ in notes(tmp_path)] == ["data/c.jpg"]


@pytest.mark.parametrize(
    "paths",
    [
        [f"{who}/{n:03}.npy" for who, count in (("anna", 9), ("ben", 9), ("carl", 8)) for n in range(count)],
        [f"{who}/{n:03}{end}" for who, count in (("anna", 9), ("ben", 9), ("carl", 8)) for n in range(count)
         for end in (".jpg", ".txt")],
        [*(f"images/{n}.jpg" for n in range(20)), *(f"labels/{n}.txt" for n in range(19))],
        [*KITTI, "label_2/000007.txt"],
        [path for path in KITTI if not path.startswith("label_2")] + ["label_2/000000.txt"],
        [*(f"a/{n}.jpg" for n in range(10)), *(f"b/{n}.txt" for n in range(10)), *(f"c/{n}.npy" for n in range(7))],
    ],
    ids=["people", "people with labels", "two kinds", "one too many", "most are gone", "a third is gone"],
)  # fmt: skip
def test_what_may_well_be_meant_is_not_told(tmp_path, paths):
    put(tmp_path, *paths)
    assert notes(tmp_path) == []


# ------------------------------------------------------------------------------------------------ documents


def transforms(root, count, folder="images"):
    frames = [{"file_path": f"./{folder}/{n:04}.jpg", "transform_matrix": np.eye(4).tolist()} for n in range(count)]
    (root / "transforms.json").write_text(json.dumps({"frames": frames}))


def told(root, schema="files"):
    listing = listed(root)
    schema = load_schema(schema)
    found = with_indexes(plan_work(schema, listing), schema, listing)
    return [(note.key, note.reason) for note in found.notes if note.code == "DC105"]


def test_pictures_that_a_document_names_and_that_are_gone_are_told(tmp_path):
    put(tmp_path, *(f"images/{n:04}.jpg" for n in range(9)))
    transforms(tmp_path, 9)
    assert told(tmp_path) == []
    (tmp_path / "images/0004.jpg").unlink()
    assert told(tmp_path) == [("images/0004.jpg", "not there, but named by transforms.json, as are 8 that are there")]


def test_pictures_that_were_never_copied_are_not_missed(tmp_path):
    put(tmp_path, *(f"images/{n:04}.jpg" for n in range(4)))
    transforms(tmp_path, 9)
    assert told(tmp_path) == []


def test_pictures_in_another_folder_are_found_by_the_end_of_their_path(tmp_path):
    put(tmp_path, *(f"train2017/{n:04}.jpg" for n in range(9)))
    (tmp_path / "annotations").mkdir()
    said = {"images": [{"file_name": f"{n:04}.jpg"} for n in range(10)]}
    (tmp_path / "annotations/instances.json").write_text(json.dumps(said))
    assert [key for key, _ in told(tmp_path)] == ["0009.jpg"]


@pytest.mark.parametrize(
    "name", ["../../x.jpg", "/etc/x.jpg", "http://host/x.jpg", "a photo, x.jpg", "x" * 400 + ".jpg"]
)
def test_texts_that_are_no_names_of_files_below_are_passed_over(tmp_path, name):
    (tmp_path / "x.json").write_text(json.dumps({"a": [name, "y.jpg"]}))
    assert names_in(tmp_path / "x.json") == ["y.jpg"]


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe", b"", b"[" * 100_000])
def test_a_damaged_document_names_nothing(tmp_path, data):
    (tmp_path / "x.json").write_bytes(data)
    assert names_in(tmp_path / "x.json") == []


def test_documents_of_a_folder_without_such_files_are_not_read(tmp_path):
    put(tmp_path, "a.json", "b.csv")
    assert documents(load_schema("files"), listed(tmp_path), []) == []
    put(tmp_path, "c.jpg")
    assert documents(load_schema("files"), listed(tmp_path), []) == ["a.json"]


def test_names_in_the_lists_of_two_splits_are_told(tmp_path):
    put(tmp_path, "x.npy")
    named = {f"{split}.txt": [f"{split}{n}" for n in range(20)] for split in ("train", "test", "val")}
    assert list(lost(named, listed(tmp_path))) == []
    named["train.txt"] = [*named["train.txt"], "test3"]
    named["all.txt"] = named["test.txt"]
    (note,) = lost(named, listed(tmp_path))
    assert (note.key, note.reason) == ("test3", "in the lists of two splits, test.txt and train.txt")
