"""The rows of a table and the folders that they name must have the same files."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from sys import getsizeof

import pytest

from datacheck.schema.load import load_schema
from datacheck.sources import named_files, plan_work, with_indexes
from datacheck.sources.file_columns import file_columns
from datacheck.sources.listing import list_files
from datacheck.sources.named_files import MEDIA
from datacheck.sources.table_files import table_faults

FILES = [f"IMG/{side}_{n:03}.jpg" for n in range(40) for side in ("center", "left")]


def log(prefix="IMG/", rows=range(40)):
    lines = [f"{prefix}center_{n:03}.jpg,{prefix}left_{n:03}.jpg,{n / 80:.4f}" for n in rows]
    return "\n".join(["center,left,steering", *lines])


def faults(table, paths, *others):
    """The faults of one table among the files of a folder."""
    columns = {"log.csv": file_columns(table.encode(), MEDIA, 1_000)}
    found = table_faults(columns, others, paths, MEDIA)
    return [(fault.kind, list(fault.names), fault.reason) for fault in found]


@pytest.mark.parametrize(
    "prefix", ["IMG/", "./IMG/", "../data/IMG/", "/home/x/IMG/", "C:\\sim\\IMG\\", " IMG/"]
)
def test_files_that_are_gone_are_found_however_rows_write_their_folder(prefix):
    assert faults(log(prefix), FILES) == []
    paths = [path for path in FILES if path != "IMG/left_007.jpg"]
    reason = "not there, but named by log.csv, as are 79 that are there"
    assert faults(log(prefix), paths) == [("gone", ["IMG/left_007.jpg"], reason)]


def test_rows_of_two_machines_are_found_by_what_their_paths_share():
    table = log("/home/x/IMG/", range(28)) + "\n" + log("IMG/", range(28, 40))
    assert faults(table, FILES) == []


def test_files_that_no_row_names_are_found():
    rows = [n for n in range(40) if n not in {7, 9}]
    gone = [f"IMG/{side}_{n:03}.jpg" for n in (7, 9) for side in ("center", "left")]
    reason = "in no row: log.csv names 76 other files of IMG/"
    assert faults(log(rows=rows), FILES) == [("unnamed", gone, reason)]
    # A list or a document may name them
    assert faults(log(rows=rows), FILES, *gone[:2], "left_009", "center_009") == []
    # 8 of 72 are more than a tenth
    assert faults(log(rows=range(36)), FILES) == []


def test_a_renamed_file_is_one_that_is_gone_and_one_that_no_row_names():
    paths = [path.replace("left_007", "renamed") for path in FILES]
    assert [(kind, names) for kind, names, _ in faults(log(), paths)] == [
        ("gone", ["IMG/left_007.jpg"]),
        ("unnamed", ["IMG/renamed.jpg"]),
    ]


@pytest.mark.parametrize("between", [",", "\t", ";", "|"])
def test_names_without_an_ending_mean_the_files_of_that_name(between):
    stems = [f"LJ001-{n:04}" for n in range(40)]
    texts = ['he said "no, and left', "so, he did, and went", "yes"]
    texts = [text.replace(",", "").replace('"', "") if between == "," else text for text in texts]
    table = "\n".join(f"{stem}{between}{texts[n % 3]}" for n, stem in enumerate(stems))
    paths = [f"wavs/{stem}.wav" for stem in stems]
    assert faults(table, paths) == []
    reason = "not there, but named by log.csv, as are 39 that are there"
    assert faults(table, paths[:7] + paths[8:]) == [("gone", ["wavs/LJ001-0007.wav"], reason)]
    assert faults(table, paths[1:]) == []  # its name may be that of the column
    assert faults(table, paths[:34]) == []  # 34 of 40 are less than nine tenths


def test_numbers_are_no_names():
    paths = [f"images/{n}.png" for n in range(1, 41)]
    assert faults("age,score\n" + "\n".join(f"{n},{n}.5" for n in range(1, 43)), paths) == []


def test_files_that_were_never_copied_are_counted_only():
    reason = "a column names 40 files, 20 of which are there"
    center = "\n".join(line.partition(",")[0] for line in log().splitlines())
    paths = [path for path in FILES if "center" in path][:20]
    assert faults(center, paths) == [("partly", ["log.csv"], reason)]
    assert faults(center, ["IMG/other.jpg"]) == []


def test_two_rows_for_one_file_that_differ_in_its_label_are_found():
    table = "image,label,x\n" + "\n".join(f"{n:03}.jpg,cat,{n}" for n in range(40))
    paths = [f"{n:03}.jpg" for n in range(40)]
    reason = "log.csv has two rows for this file, which differ in a label"
    assert faults(table + "\n007.jpg,dog,7", paths) == [("rows", ["007.jpg"], reason)]
    assert faults(table + "\n007.jpg,cat,7", paths) == []  # the same row
    assert faults(table + "\n007.jpg,dog,8", paths) == []  # another object in the picture
    # Two pictures of 40 are more than one in a hundred
    assert faults(table + "\n007.jpg,dog,7\n008.jpg,dog,8", paths) == []


def pictures(count=40, ending=".jpg", folder=""):
    return [f"{folder}{n:03}{ending}" for n in range(count)]


def test_two_captions_of_a_picture_are_no_conflict():
    table = "image,caption\n" + "\n".join(f"{n:03}.jpg,text {n}" for n in range(40))
    assert faults(table + "\n007.jpg,another text", pictures()) == []


def test_pictures_that_share_a_mask_are_no_conflict():
    rows = [f"i/{n:03}.jpg,m/{'empty' if n in {3, 9} else n}.png" for n in range(40)]
    masks = [f"m/{n}.png" for n in range(40) if n not in {3, 9}]
    paths = [*pictures(folder="i/"), *masks, "m/empty.png"]
    assert [kind for kind, *_ in faults("image,mask\n" + "\n".join(rows), paths)] == []


@pytest.mark.parametrize("start", [1, 0x37176E00])
def test_ids_some_of_which_look_like_numbers_are_names(start):
    ids = [f"{start + 37 * n:08x}" for n in range(300)]
    assert any(name.isdigit() for name in ids)
    paths = [f"images/{name}.png" for name in ids]
    assert (
        faults("id,depth\n" + "\n".join(f"{name},{n}" for n, name in enumerate(ids)), paths) == []
    )
    reason = "not there, but named by log.csv, as are 299 that are there"
    table = "id\n" + "\n".join(ids)
    assert faults(table, paths[:7] + paths[8:]) == [("gone", [paths[7]], reason)]


def test_the_usual_ending_of_a_column_is_found_once(monkeypatch):
    """Of 100,000 ids of which 8,000 were gone, all endings were counted 8,000 times."""
    counted = []

    class Counted(Counter):
        def __init__(self, values=()):
            super().__init__(values)
            counted.append(len(self))

    monkeypatch.setattr("datacheck.sources.table_files.Counter", Counted)
    ids = [f"{0x37176E00 + 37 * n:08x}" for n in range(300)]
    paths = [f"images/{name}.png" for name in ids[20:]]
    ((kind, names, _),) = faults("id\n" + "\n".join(ids), paths)
    assert (kind, names) == ("gone", [f"images/{name}.png" for name in ids[:20]])
    assert len(counted) < 20


@pytest.mark.parametrize("name", ["it's", "a&b", "x@2x", "a=1", "a[1]", "été", "a b"])
def test_names_with_other_signs_are_names(name):
    paths = [*pictures(100), f"{name}.jpg"]
    assert faults("file\n" + "\n".join(paths), paths) == []


def test_files_of_one_column_may_have_several_endings():
    ids = [f"IMG_{n:03}" for n in range(100)]
    paths = [f"im/{name}{'.PNG' if n % 20 else '.jpg'}" for n, name in enumerate(ids)]
    assert faults("id\n" + "\n".join(ids), paths) == []


def test_rows_of_a_small_table_name_files_as_well():
    """63 pictures of train.csv and 6 of val.csv, whose names are too few to be taken for files."""
    ids = [f"LJ-{n:03}" for n in range(69)]
    tables = {
        name: file_columns("\n".join(["id", *rows]).encode(), MEDIA, 1_000)
        for name, rows in (("train.csv", ids[:63]), ("val.csv", ids[63:]))
    }
    assert list(table_faults(tables, (), [f"wavs/{name}.wav" for name in ids], MEDIA)) == []


def test_a_table_that_names_more_files_than_are_compared_may_name_the_others():
    tables = {
        "a.csv": file_columns("\n".join(pictures(40)).encode(), MEDIA, 1_000),
        "b.csv": [{"names": [], "rows": 0, "conflicting": []}],
    }
    assert list(table_faults(tables, (), pictures(42), MEDIA)) == []


def test_names_are_looked_for_below_the_folder_of_their_table():
    """A picture that another recording has is gone from this one."""
    table = "\n".join(pictures(30, folder="img/")).encode()
    tables = {f"s{n}/labels.csv": file_columns(table, MEDIA, 1_000) for n in (1, 2)}
    paths = [f"s{n}/{path}" for n in (1, 2) for path in pictures(30, folder="img/")]
    paths.remove("s1/img/007.jpg")
    (fault,) = table_faults(tables, (), paths, MEDIA)
    assert (fault.kind, fault.names) == ("gone", ["s1/img/007.jpg"])


def test_names_of_two_folders_accuse_neither():
    paths = [*pictures(60, folder="train/"), *pictures(64, folder="test/")]
    assert faults("\n".join(pictures(60)), paths) == []


def test_names_in_several_folders_are_gone_only_if_no_folder_has_them():
    """The pictures of NIH's chest X-rays lie in twelve folders."""
    paths = [f"images_{n % 4}/{n:03}.png" for n in range(80)]
    table = "\n".join(pictures(80, ".png"))
    assert faults(table, paths) == []
    assert [fault[:2] for fault in faults(table, paths[1:])] == [("gone", ["000.png"])]


def test_a_cell_may_name_several_files():
    rows = [f"{n:03}.jpg;{n:03}_b.jpg,{n}" for n in range(20)]
    paths = [f"im/{n:03}{end}.jpg" for n in range(20) for end in ("", "_b")]
    assert faults("files,x\n" + "\n".join(rows), paths) == []
    reason = "not there, but named by log.csv, as are 39 that are there"
    assert faults("files,x\n" + "\n".join(rows), paths[:-1]) == [("gone", paths[-1:], reason)]


def test_files_that_accompany_others_need_no_row():
    paths = [*pictures(100, ".png", "img/"), "img/003_mask.png", "img/004.depth.png"]
    assert faults("\n".join(pictures(100, ".png", "img/")), paths) == []


def test_a_table_of_boxes_has_no_row_for_a_picture_without_objects():
    rows = [f"{path},{n}" for path in pictures() for n in range(3)]
    assert faults("image,x\n" + "\n".join(rows), [*pictures(), "none.jpg"]) == []


def test_tabs_cut_the_rows_of_a_tsv_whose_texts_have_a_comma():
    table = "\n".join(f"{n:03}.jpg\tred, green" for n in range(40)).encode()
    (column,) = file_columns(table, MEDIA, 1_000, tabs=True)
    assert column["names"] == pictures()


@pytest.mark.parametrize(
    "data",
    [
        b"\xff.jpg",
        b"",
        b"\0",
        b"http://x/1.jpg",
        b".jpg",
        b"a*.jpg",
        b"<b>.jpg",
        b"x" * 500 + b".jpg",
        b'"1.jpg',
    ],
)
def test_texts_that_are_no_names_are_passed_over(data):
    names = [name for one in file_columns(data + b"\n" + data, MEDIA, 9) for name in one["names"]]
    assert [name for name in names if name != "1.jpg"] == []


def test_names_outside_of_the_folder_are_compared_as_texts_only():
    hostile = ["../../etc/1.jpg", "/etc/2.jpg", "a/../3.jpg", "//4.jpg"]
    (column,) = file_columns("\n".join(hostile).encode(), MEDIA, 9)
    assert column["names"] == ["../../etc/1.jpg", "etc/2.jpg", "a/../3.jpg", "4.jpg"]
    (found,) = faults("\n".join([*hostile, "x/5.jpg"]), ["1.jpg", "2.jpg", "3.jpg", "4.jpg"])
    assert found[:2] == ("gone", ["5.jpg"])


def test_more_names_than_are_compared_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(named_files, "_MOST_NAMES", 4)
    for name, count in (("a.csv", 5), ("b.csv", 4)):
        (tmp_path / name).write_text("\n".join(f"{n}.jpg,{n}" for n in range(count)))
    task = {"index": None, "most": 9, "root": str(tmp_path), "roots": {}}
    task["items"] = [{"path": "a.csv"}, {"path": "b.csv"}]
    found = named_files.read_named_files(task, lambda _: None)
    assert [one["faults"] for one in found] == [
        [f"{named_files.UNCOMPARED}: a column names more than 4"],
        [],
    ]
    assert [column["names"] for column in found[1]["columns"]] == [[f"{n}.jpg" for n in range(4)]]


def test_names_that_take_much_memory_are_not_compared_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(named_files, "_MOST_MEMORY", 1000)
    (tmp_path / "a.csv").write_text("a.jpg,1")
    (tmp_path / "b.csv").write_text("\n".join(f"{'Ā' * 90}{n}.jpg,{n}" for n in range(9)))
    task = {"index": None, "most": 9, "root": str(tmp_path), "roots": {}}
    task["items"] = [{"path": "a.csv"}, {"path": "b.csv"}]
    found = named_files.read_named_files(task, lambda _: None)
    ((said,), nothing) = (one["faults"] for one in found)
    assert said.startswith(f"{named_files.UNCOMPARED}: the names in documents and lists take")
    assert not nothing
    assert not any(one["columns"] for one in found)


def test_names_below_many_folders_take_no_memory_for_each_folder():
    names = [f"{'Ā/' * 140}{number}.jpg" for number in range(2000)]
    columns = {"t.csv": [{"names": names, "rows": 0, "conflicting": []}]}
    tracemalloc.start()
    try:
        assert not list(table_faults(columns, (), [f"{n}.jpg" for n in range(2000)], MEDIA))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * sum(map(getsizeof, names))


def test_a_row_of_one_name_many_times_is_read_in_a_moment():
    began = time.process_time()
    columns = file_columns(b"a/b.png," * 1_000_000, MEDIA, 9)
    assert {name for one in columns for name in one["names"]} == {"a/b.png"}
    assert time.process_time() - began < 5


def test_a_scan_tells_what_rows_and_folders_lack(tmp_path):
    for path in [*FILES, "IMG/extra.jpg"]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    (tmp_path / "IMG/left_007.jpg").unlink()
    (tmp_path / "log.csv").write_text(log("/home/x/IMG/"))
    listing, schema = list_files(tmp_path, {}, None), load_schema("files")
    found = with_indexes(plan_work(schema, listing), schema, listing)
    notes = [(note.key, note.about) for note in found.notes if note.code == "DC105"]
    assert notes == [("IMG/extra.jpg", {"kind": "unnamed"}), ("IMG/left_007.jpg", {"kind": "gone"})]
