"""Files that are gone are told where what lies beside them speaks of them, and nothing is told where nothing does."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from datacheck.schema.load import load_schema
from datacheck.sources import indexes, named_files, plan_work, with_indexes
from datacheck.sources.indexes import documents, lost_file_notes, missing_sibling_notes
from datacheck.sources.listing import Listing, list_files
from datacheck.sources.named_files import names_in
from datacheck.sources.roots import Entries, Entry


def listed(root):
    return list_files(root, {}, None)


def of(*paths, size=1):
    """A listing of files that need not be there."""
    return Listing(
        Path("data"), Entries.of([Entry(path, size, 0, 0, 0, 0) for path in sorted(paths)])
    )


def put(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")


def notes(root):
    return [(note.key, note.reason) for note in missing_sibling_notes(listed(root))]


# ------------------------------------------------------------------------------------------ cameras


def camera_notes(root):
    schema = load_schema("files")
    work = with_indexes(plan_work(schema, listed(root)), schema, listed(root))
    return [(note.key, note.reason) for note in work.notes]


def test_cameras_of_llff_are_as_many_as_the_pictures_of_each_folder(tmp_path):
    put(tmp_path, *(f"fern/{f}/{i:03}.JPG" for f in ("images", "images_4") for i in range(20)))
    put(tmp_path, "fern/sparse/0/images.bin", "fern/images/a.txt")
    np.save(tmp_path / "fern/poses_bounds.npy", np.zeros((20, 17)))
    assert camera_notes(tmp_path) == []
    (tmp_path / "fern/images_4/007.JPG").unlink()
    unpaired = "each row is the camera of one, by the order of their names"
    reason = f"has 20 rows, and images_4 holds 19 pictures: {unpaired}"
    assert ("fern/poses_bounds.npy", reason) in camera_notes(tmp_path)


@pytest.mark.parametrize("poses", [np.zeros(()), np.array([{}], object), b"cut"])
def test_odd_cameras_of_llff_are_no_crash(tmp_path, poses):
    put(tmp_path, *(f"images/{i:03}.jpg" for i in range(20)), "poses_bounds.npy")
    if isinstance(poses, np.ndarray):
        np.save(tmp_path / "poses_bounds.npy", poses, allow_pickle=True)
    assert len(camera_notes(tmp_path)) < 2


# --------------------------------------------------------------------------------------- companions

KITTI = [
    f"{folder}/{frame:06}{end}"
    for folder, end in (("velodyne", ".bin"), ("image_2", ".png"), ("label_2", ".txt"))
    for frame in range(3)
]


def test_a_label_that_one_frame_lacks_is_told(tmp_path):
    put(tmp_path, *KITTI)
    assert notes(tmp_path) == []
    (tmp_path / "label_2/000001.txt").unlink()
    assert notes(tmp_path) == [
        ("label_2/000001.txt", "not there, but files of that name are in image_2, velodyne")
    ]


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
        [
            f"{who}/{n:03}.npy"
            for who, count in (("anna", 9), ("ben", 9), ("carl", 8))
            for n in range(count)
        ],
        [
            f"{who}/{n:03}{end}"
            for who, count in (("anna", 9), ("ben", 9), ("carl", 8))
            for n in range(count)
            for end in (".jpg", ".txt")
        ],
        [*(f"images/{n}.jpg" for n in range(20)), *(f"labels/{n}.txt" for n in range(19))],
        [*KITTI, "label_2/000007.txt"],
        [path for path in KITTI if not path.startswith("label_2")] + ["label_2/000000.txt"],
        [
            *(f"a/{n}.jpg" for n in range(10)),
            *(f"b/{n}.txt" for n in range(10)),
            *(f"c/{n}.npy" for n in range(7)),
        ],
    ],
    ids=[
        "people",
        "people with labels",
        "two kinds",
        "one too many",
        "most are gone",
        "a third is gone",
    ],
)
def test_what_may_well_be_meant_is_not_told(tmp_path, paths):
    put(tmp_path, *paths)
    assert notes(tmp_path) == []


@pytest.mark.parametrize(("below", "gone"), [("a", ["txt/a/0.txt"]), ("a/b", [])])
def test_folders_far_above_are_not_held_against_one_another(below, gone):
    paths = [f"{kind}/{below}/{n}.{kind}" for kind in ("ply", "jpg", "txt") for n in range(5)]
    assert [
        note.key
        for note in missing_sibling_notes(
            of(*(path for path in paths if path != f"txt/{below}/0.txt"))
        )
    ] == gone


def test_more_files_than_memory_is_for_are_not_compared():
    assert [note.key for note in missing_sibling_notes(of(*KITTI[:-1]))] == KITTI[-1:]
    assert (
        list(missing_sibling_notes(of(*KITTI[:-1], *(f"other/{n}" for n in range(200_000))))) == []
    )


# ---------------------------------------------------------------------------------------- documents


def transforms(root, count, folder="images"):
    frames = [
        {"file_path": f"./{folder}/{n:04}.jpg", "transform_matrix": np.eye(4).tolist()}
        for n in range(count)
    ]
    (root / "transforms.json").write_text(json.dumps({"frames": frames}))


def told(root, schema="files"):
    listing = listed(root)
    schema = load_schema(schema)
    found = with_indexes(plan_work(schema, listing), schema, listing)
    return [(note.key, note.reason) for note in found.notes if note.code == "DC105"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("labels.csv", "images/{:04}.jpg,{},7.5"),
        ("labels.tsv", "3\t./images/{:04}.jpg\t{}"),
        ("labels.csv", '{1};"images/{0:04}.jpg"'),
    ],
)
def test_pictures_that_a_table_names_and_that_are_gone_are_told(tmp_path, name, line):
    put(tmp_path, *(f"images/{n:04}.jpg" for n in range(9)))
    (tmp_path / name).write_text("image,x,y\n" + "\n".join(line.format(n, n / 3) for n in range(9)))
    assert told(tmp_path) == []
    (tmp_path / "images/0004.jpg").unlink()
    assert told(tmp_path) == [
        ("images/0004.jpg", f"not there, but named by {name}, as are 8 that are there")
    ]


def test_tables_that_are_many_are_recordings_and_no_lists():
    files = load_schema("files")
    tables = [f"{n:03}.csv" for n in range(501)]
    assert documents(files, of("1.jpg", *tables[:500]), []) == (tables[:500], [])
    assert documents(files, of("1.jpg", "a.json", *tables), []) == (["a.json"], [])


def test_pictures_that_a_document_names_and_that_are_gone_are_told(tmp_path):
    put(tmp_path, *(f"images/{n:04}.jpg" for n in range(9)))
    transforms(tmp_path, 9)
    assert told(tmp_path) == []
    (tmp_path / "images/0004.jpg").unlink()
    assert told(tmp_path) == [
        ("images/0004.jpg", "not there, but named by transforms.json, as are 8 that are there")
    ]


def test_pictures_that_were_never_copied_are_not_missed(tmp_path):
    put(tmp_path, *(f"images/{n:04}.jpg" for n in range(4)))
    transforms(tmp_path, 9)
    assert told(tmp_path) == []


def test_pictures_named_from_the_folder_above_are_there(tmp_path):
    put(
        tmp_path,
        *(f"images/{n:04}.jpg" for n in range(9)),
        *(f"other/{n:04}.jpg" for n in range(3)),
    )
    transforms(tmp_path, 9, "images")
    # The folder is data
    (tmp_path / "more.json").write_text(json.dumps([f"data/other/{n:04}.jpg" for n in range(4)]))
    assert [key for key, _ in told(tmp_path)] == ["data/other/0003.jpg"]
    # Another folder of these data
    (tmp_path / "more.json").write_text(json.dumps(["images/other/0001.jpg"]))
    assert [key for key, _ in told(tmp_path)] == ["images/other/0001.jpg"]
    # 0001.jpg is no file of data
    (tmp_path / "more.json").write_text(json.dumps(["other/0009.jpg", "data/0001.jpg"]))
    assert [key for key, _ in told(tmp_path)] == ["data/0001.jpg", "other/0009.jpg"]


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
    assert documents(load_schema("files"), listed(tmp_path), []) == ([], [])
    put(tmp_path, "c.jpg")
    assert documents(load_schema("files"), listed(tmp_path), []) == (["a.json", "b.csv"], [])


def test_a_name_that_many_files_end_in_is_looked_up_in_linear_time():
    paths = [f"{n:06}/model.obj" for n in range(20_000)]
    named, began = {"models.json": [*paths, "x/model.obj"]}, time.process_time()
    (note,) = lost_file_notes(named, of(*paths))
    assert (note.key, note.reason) == (
        "x/model.obj",
        "not there, but named by models.json, as are 20,000 that are there",
    )
    assert time.process_time() - began < 5


def test_a_file_of_which_an_index_tells_an_error_has_no_warning_in_its_place(tmp_path):
    stems = [f"shard.{n:05}" for n in range(4)]
    put(tmp_path, *(f"{stem}{end}" for stem in stems for end in (".mds", ".npy", ".txt")))
    shards = [
        {"format": "mds", "samples": 1, "raw_data": {"basename": f"{stem}.mds"}} for stem in stems
    ]
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    (tmp_path / "shard.00002.mds").unlink()
    listing, schema = listed(tmp_path), load_schema("mds")
    found = with_indexes(plan_work(schema, listing), schema, listing)
    assert [(n.key, n.missing) for n in found.notes if n.code == "DC105"] == [
        ("shard.00002.mds", True)
    ]


# ---------------------------------------------------------------------------------- lists of splits


def lists(**named):
    """Lists of splits: of each which of 60 files it names, and the note on those in two."""
    return {f"{split}.txt": [f"scene{n:02}" for n in numbers] for split, numbers in named.items()}


SCENES = [f"scenes/scene{n:02}.npy" for n in range(60)]


def twice(named, *paths):
    return [(note.key, note.reason) for note in lost_file_notes(named, of(*(paths or SCENES)))]


def test_files_in_the_lists_of_two_splits_are_told():
    named = lists(train=range(20), test=range(20, 40), val=range(40, 60))
    assert twice(named) == []
    named["train.txt"].append("scene23")
    named["all.txt"] = named["test.txt"]
    assert twice(named) == [("scene23", "in the lists of two splits, train.txt and test.txt")]
    named["val.txt"].append("scene03")
    assert [key for key, _ in twice(named)] == ["scene23", "scene03"]


def test_lists_may_name_files_by_their_path():
    named = {
        name: [f"scenes/{line}.npy" for line in lines]
        for name, lines in lists(train=range(20), val=range(19, 40)).items()
    }
    assert [key for key, _ in twice(named)] == ["scenes/scene19.npy"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("val", "test"),
        ("val", "validation"),
        ("valid", "eval"),
        ("train", "training"),
        ("test", "testing"),
    ],
)
def test_one_split_under_two_names_is_not_told(one, other):
    assert twice(lists(**{one: range(20), other: range(20)})) == []


def test_a_copy_of_a_list_is_no_list():
    named = lists(train=range(20))
    assert twice({**named, "test.txt.bak": named["train.txt"]}) == []


def test_lists_of_two_folders_are_not_compared():
    named = lists(train=range(20), test=range(20))
    assert twice({f"{name[:-4]}lists/{name}": lines for name, lines in named.items()}) == []


@pytest.mark.parametrize("paths", [["scenes/a.npy"], SCENES[:7]], ids=["none", "a third"])
def test_lines_that_mostly_name_no_files_are_not_compared(paths):
    assert twice(lists(train=range(20), test=range(20)), *paths) == []


def test_names_that_every_split_gives_in_its_own_folder_are_not_told():
    named = lists(train=range(20), test=range(20))
    assert (
        twice(
            named,
            *(
                f"{folder}/velodyne/scene{n:02}.bin"
                for folder in ("training", "testing")
                for n in range(20)
            ),
        )
        == []
    )


def test_lines_that_stand_again_and_again_are_no_names(tmp_path):
    (tmp_path / "train.txt").write_text("".join(f"{n % 10}\n" for n in range(100)))
    assert names_in(tmp_path / "train.txt") == []
    (tmp_path / "train.txt").write_text("./a/1.npy\n./a/2.npy\n")
    assert names_in(tmp_path / "train.txt") == ["a/1.npy", "a/2.npy"]


def test_documents_that_name_too_many_files_name_none(tmp_path, monkeypatch):
    monkeypatch.setattr(named_files, "MOST_NAMED", 4)
    for name, count in (("a.json", 2), ("b.json", 2), ("c.json", 1)):
        (tmp_path / name).write_text(json.dumps([f"{name[0]}{n}.npy" for n in range(count)]))
    task = {"index": None, "most": 9, "root": str(tmp_path), "roots": {}}
    task["items"] = [{"path": "a.json"}, {"path": "b.json"}]
    found = named_files.read_named_files(task, lambda _: None)
    assert [one["named"] for one in found] == [["a0.npy", "a1.npy"], ["b0.npy", "b1.npy"]]
    assert [one["faults"] for one in found] == [[], []]
    task["items"].append({"path": "c.json"})
    found = named_files.read_named_files(task, lambda _: None)
    assert [one["named"] for one in found] == [[], [], []]
    said = f"{named_files.UNCOMPARED}: documents and lists name 5 in all, at most 4 are compared"
    assert [one["faults"] for one in found] == [[said], [], []]
    assert indexes._note("a.json", said).about == {"kind": "uncompared"}


def test_of_many_names_the_first_are_told_and_how_many_there_are(monkeypatch):
    monkeypatch.setattr(indexes, "_TOLD", 3)
    paths = [f"{n:02}.jpg" for n in range(30)]
    reason = "not there, but named by a.json, as are {} that are there"
    for there, more in ((27, ""), (26, " (the first 3 of 4)")):
        found = [
            (note.key, note.reason)
            for note in lost_file_notes({"a.json": paths}, of(*paths[:there]))
        ]
        assert found == [(path, reason.format(there) + more) for path in paths[there : there + 3]]


def test_of_many_findings_beside_one_another_the_rest_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(indexes, "_MOST_TOLD", 2)
    put(tmp_path, *(f"images/{n:04}.jpg" for n in range(9)))
    rest = ("images/0011.jpg", "not told one by one, 2 names from this one on, after 2 that are")
    for names, more in ((11, []), (13, [rest])):
        transforms(tmp_path, names)
        found = told(tmp_path)
        assert [key for key, _ in found[:2]] == ["images/0009.jpg", "images/0010.jpg"]
        assert found[2:] == more


def test_of_too_many_lists_those_near_the_top_are_read_and_the_others_counted():
    paths = [f"{n:03}/{split}.txt" for n in range(251) for split in ("test", "train")]
    files = load_schema("files")
    assert documents(files, of(*paths[:500]), []) == (paths[:500], [])
    found, left = documents(files, of(*paths, "train.txt"), [])
    assert (found, left) == (["train.txt", *paths[:499]], paths[499:])
    # 64 MiB in all
    assert documents(files, of(*paths[:5], size=15 << 20), []) == (paths[:4], paths[4:5])


def test_lists_that_are_not_read_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(indexes, "_MOST_DOCUMENTS", 2)
    put(tmp_path, *(f"x/{n}.npy" for n in range(4)))
    for path in ("train.txt", "val.txt", "a/test.txt", "b/test.txt"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("".join(f"{n}\n" for n in range(4)))
    said = dict(told(tmp_path))
    assert said["a/test.txt"].endswith("one of 2 lists and documents beyond those that are read")
