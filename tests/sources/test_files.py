"""One file is one sample: fields, companions, columns, what is missing, what is damaged."""

import json
import pickle

import h5py
import numpy as np
import pytest

from datacheck.errors import FormatError, SchemaError, UsageError
from datacheck.sources import Item, Unread, list_files, open_source, plan_work
from tests.sources.schemas import every, facts, schema


def reading(root, spec, roots=None, fields=None):
    work = plan_work(spec, list_files(root, roots))
    source = open_source(spec, root, roots or {}, fields=fields)
    return source, work.items


def only(root, spec, roots=None, fields=None):
    source, (item,) = reading(root, spec, roots, fields)
    (sample,) = every(source, item)[0].values()
    return sample


def test_a_folder_of_npy_files_needs_one_field_of_any_name(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((5, 3), ">f4"))
    sample = only(tmp_path, schema("*.npy", {"points": {}}))
    assert list(sample) == ["points"]
    assert sample["points"].shape == (5, 3)
    assert sample["points"].dtype == np.dtype("<f4")


def test_fields_by_name_and_by_at(tmp_path):
    np.savez(tmp_path / "a.npz", points=np.zeros((4, 3)), lab=np.arange(4), more=np.ones(2))
    spec = schema("*.npz", {"points": {}, "labels": {"at": "lab"}})
    assert sorted(only(tmp_path, spec)) == ["labels", "points"]
    spec = schema("*.npz", {"points": {}, "labels": {"at": "lab"}, "*": {}})
    assert sorted(only(tmp_path, spec)) == ["labels", "more", "points"]
    assert sorted(only(tmp_path, schema("*.npz"))) == ["lab", "more", "points"]


def test_missing_and_none_are_simply_absent(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"joints": None, "pose": np.zeros(3)}))
    assert sorted(only(tmp_path, schema("*.pkl", {"joints": {}, "pose": {}, "beta": {}}))) == [
        "pose"
    ]


def test_a_wrong_name_is_not_the_sole_value_when_there_are_two(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(3))
    assert only(tmp_path, schema("*.npz", {"points": {}})) == {}


def test_absent_fields_are_not_read(tmp_path):
    np.savez(tmp_path / "a.npz", joints=np.zeros(3), pose=np.zeros(3))
    spec = schema("*.npz", {"joints": {}, "pose": {"absent": True}})
    assert sorted(only(tmp_path, spec)) == ["joints"]


def test_columns_are_cut_and_narrow_files_lack_the_last(tmp_path):
    table = np.arange(24, dtype=np.float32).reshape(2, 12)
    np.save(tmp_path / "wide.npy", table)
    np.save(tmp_path / "narrow.npy", table[:, :10])
    spec = schema(
        "*.npy",
        {"xyz": {}, "rgb": {}, "semantic": {}, "instance": {}},
        columns="xyz:3 rgb:3 normal:3 segment semantic instance",
    )
    source, items = reading(tmp_path, spec)
    narrow, wide = (next(iter(every(source, item)[0].values())) for item in items)
    assert sorted(wide) == ["instance", "rgb", "semantic", "xyz"]
    np.testing.assert_array_equal(wide["rgb"], [[3, 4, 5], [15, 16, 17]])
    np.testing.assert_array_equal(wide["instance"], [11, 23])
    assert sorted(narrow) == ["rgb", "xyz"]


@pytest.mark.parametrize("shape", [(4, 13), (12,), (2, 3, 4)])
def test_tables_that_do_not_fit_the_columns_are_refused(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape))
    with pytest.raises(FormatError, match=r"columns: found \[.*the schema declares \[N, 12\]"):
        only(tmp_path, schema("*.npy", {"xyz": {}}, columns="xyz:3 rest:9"))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            ["1.5"] * 30 + ["5;82", "", "2.5", "6;1"],
            "v: line 33 holds '5;82', .* no number; 2 of 33 cells are none",
        ),
        (["1.5"] * 30 + ["five"], "v: line 33 holds 'five', which is no number; the other 30 are"),
        (
            ["2016-07-01 00:00:00"] * 3 + ["01/07/2016 03:00"] * 9,
            "v: line 6 holds '01/07/2016 03:00', .* no date ",
        ),
        (
            ["?", "2016-07-01", "2016-07-02"],
            r"v: line 2 holds '\?', which is no date as YYYY-MM-DD",
        ),
        (["Rome", "Oslo"], "v: line 2 holds 'Rome', which is no number; 2 of 2 cells are none"),
        (
            ["2016-07-01", "2016-13-01"],
            "v: a column of texts: not all of its cells are a date .* that exists",
        ),
    ],
)
def test_a_column_says_which_cell_is_no_number(tmp_path, cells, said):
    """One cell with a comma in the place of a point said "a list that holds more than numbers"."""
    lines = ["v,name", *(f"{cell},Rome" for cell in cells)]
    lines[1] = lines[1].replace(",Rome", ',"a\nb"')
    (tmp_path / "a.csv").write_text("\n".join(lines))
    declared = schema("*.csv", {"v": {"role": "value", "shape": ["T"]}, "name": {}})
    with pytest.raises(FormatError, match=said):
        only(tmp_path, declared)


def test_a_csv_table_of_numbers_gives_the_columns_that_a_schema_names(tmp_path):
    """Beside words each column had its name, without any the file had "table" alone."""
    (tmp_path / "a.csv").write_text("t,x,y,y\n1,2.5,3,4\n4,5,6,7\n")
    found = only(
        tmp_path, schema("*.csv", {"t": {}, "x": {"shape": ["T"]}, "y": {"optional": True}})
    )
    assert {name: value.tolist() for name, value in found.items()} == {"t": [1, 4], "x": [2.5, 5]}
    found = only(tmp_path, schema("*.csv", {"speed": {"at": "x"}, "table": {}}))
    assert found["speed"].tolist() == [2.5, 5]
    assert found["table"].shape == (2, 4)
    assert sorted(only(tmp_path, schema("*.csv", {"*": {}}))) == ["table"]


def test_a_csv_table_with_a_header_is_one_value(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1.5,2,3\n4,5,6\n")
    np.testing.assert_array_equal(
        only(tmp_path, schema("*.csv", {"points": {}}))["points"], [[1.5, 2, 3], [4, 5, 6]]
    )
    sample = only(tmp_path, schema("*.csv", {"xy": {}, "z": {}}, columns="xy:2 z"))
    np.testing.assert_array_equal(sample["z"], [3, 6])


def test_raw_files_are_read_as_declared(tmp_path):
    np.arange(10, dtype="<f4").tofile(tmp_path / "a.bin")
    sample = only(tmp_path, schema("*.bin", {"points": {"shape": ["P", 5], "dtype": "float32"}}))
    np.testing.assert_array_equal(sample["points"], np.arange(10).reshape(2, 5))


# --------------------------------------------------------------------------------------- companions


def companions(tmp_path):
    data, meshes = tmp_path / "data", tmp_path / "meshes"
    (data / "gt").mkdir(parents=True)
    (meshes / "a").mkdir(parents=True)
    for name in ("a", "b"):
        np.save(data / f"{name}.npy", np.zeros((2, 3)))
    (data / "gt/a.txt").write_text("3001\n-100099\n")
    (meshes / "a/mesh.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    return schema(
        "{id}.npy",
        {
            "points": {},
            "gt": {"file": "gt/{id}.txt"},
            "verts": {"file": "{objects}/{id}/mesh.obj", "at": "points"},
            "faces": {"file": "{objects}/{id}/mesh.obj"},
        },
        roots={"objects": ""},
    )


def test_companions_are_fields_and_missing_ones_are_named(tmp_path):
    pytest.importorskip("datacheck.formats.obj")
    spec = companions(tmp_path)
    source, (a, b) = reading(tmp_path / "data", spec, {"objects": tmp_path / "meshes"})
    sample = every(source, a)[0]["a.npy"]
    np.testing.assert_array_equal(sample["gt"], [3001, -100099])
    assert sample["gt"].dtype == np.int64
    assert (sample["verts"].shape, sample["faces"].shape) == ((3, 3), (1, 3))
    assert source.files(a) == ["a.npy", "@objects/a/mesh.obj", "gt/a.txt"]
    assert sorted(every(source, b)[0]["b.npy"]) == ["points"]
    assert {k: v for k, v in facts(source, b)["b.npy"].items() if k.startswith("absent/")} == {
        "absent/gt": "gt/b.txt",
        "absent/verts": "@objects/b/mesh.obj",
        "absent/faces": "@objects/b/mesh.obj",
    }
    assert source.files(b) == ["b.npy"]


@pytest.mark.parametrize(("name", "take"), [("a", ""), ("a" * 240, "1")])
def test_a_companion_whose_path_no_names_make_is_no_file_of_its_sample(tmp_path, name, take):
    """An empty name, or a path that is too long for the system, ended the scan."""
    (tmp_path / "m/1").mkdir(parents=True)
    np.save(tmp_path / f"{name}_{take}.npy", np.zeros(3))
    file = "m/{take}/{id}_and_a_long_suffix.png"
    spec = schema("{id}_{take:[0-9]*}.npy", {"points": {}, "m": {"file": file, "optional": True}})
    source, (item,) = reading(tmp_path, spec)
    assert source.files(item) == [f"{name}_{take}.npy"]


def test_a_damaged_companion_is_an_unread_sample_that_names_it(tmp_path):
    spec = companions(tmp_path)
    (tmp_path / "data/gt/b.txt").write_bytes(b"\x00\xff")
    source, (_, b) = reading(tmp_path / "data", spec, {"objects": tmp_path / "meshes"})
    samples, unread = every(source, b)
    assert samples == {}
    assert [(u.key, u.code, u.skipped) for u in unread] == [("b.npy", "DC101", False)]
    assert "gt/b.txt: " in unread[0].reason


def test_a_folder_that_a_field_needs_is_asked_for(tmp_path):
    spec = companions(tmp_path)
    with pytest.raises(UsageError, match="--root objects=DIR"):
        open_source(spec, tmp_path / "data")


def test_an_extra_folder_has_a_default_place_in_the_data(tmp_path):
    (tmp_path / "meta").mkdir()
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "meta/a.json").write_text('{"weight": 2.5}')
    spec = schema(
        "{id}.npy", {"points": {}, "weight": {"file": "{extra}/{id}.json"}}, roots={"extra": "meta"}
    )
    source, (item,) = reading(tmp_path, spec)
    assert every(source, item)[0]["a.npy"]["weight"] == 2.5
    assert list(plan_work(spec, list_files(tmp_path)).unclaimed) == []


def test_json_companions_whole_by_name_and_by_path(tmp_path):
    np.save(tmp_path / "s1.npy", np.zeros(3))
    (tmp_path / "s1.json").write_text(json.dumps({"objects": {"7": "a chair"}}))
    (tmp_path / "all.json").write_text(json.dumps({"s1": {"words": ["red"], "n": 3}, "s2": {}}))
    spec = schema(
        "{id}.npy",
        {
            "points": {},
            "whole": {"role": "captions", "file": "{id}.json"},
            "captions": {"role": "captions", "file": "{id}.json", "at": "objects"},
            "words": {"dtype": "json", "file": "all.json", "at": "{id}/words"},
            "n": {"file": "all.json", "at": "{id}/n"},
            "lost": {"file": "all.json", "at": "{id}/none"},
        },
    )
    source, (item,) = reading(tmp_path, spec)
    sample = every(source, item)[0]["s1.npy"]
    assert sample["whole"] == {"objects": {"7": "a chair"}}
    assert sample["captions"] == {"7": "a chair"}
    assert sample["words"] == ["red"]
    assert sample["n"] == 3
    assert "lost" not in sample
    assert facts(source, item)["s1.npy"]["absent/lost"] == "all.json, s1/none"


def test_a_companion_with_many_values_asks_which(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.savez(tmp_path / "a.npz", p=np.zeros(1), q=np.ones(1))
    source, (item,) = reading(tmp_path, schema("{id}.npy", {"x": {}, "y": {"file": "{id}.npz"}}))
    _, (unread,) = every(source, item)
    assert "a.npz: holds p, q; say which is fields.y with at:" in unread.reason


# -------------------------------------------------------------------------------------------- facts


def test_facts_tell_id_size_split_key_and_attributes(tmp_path):
    (tmp_path / "train/ABF10").mkdir(parents=True)
    with h5py.File(tmp_path / "train/ABF10/0007.h5", "w") as file:
        file["x"] = np.zeros(3)
        file.attrs["num_samples"] = "  12 "
        file.attrs["fps"] = 20.5
    spec = schema(
        {"files": "{split}/{seq}/{frame}.h5", "group": "{split}:{seq}"},
        {"x": {}},
        attrs={"num_samples": "T", "fps": "F", "lost": "L"},
        splits={"key": "seq", "match": r"^(ABF1)\d$"},
    )
    source, (item,) = reading(tmp_path, spec)
    assert facts(source, item)["train/ABF10/0007.h5"] == {
        "id": "ABF10/0007",
        "size": item.nbytes,
        "split_key": "ABF1",
        "attrs/num_samples": 12,
        "attrs/fps": 20.5,
    }
    (block,) = source.read(item)
    assert (block.split, block.groups) == ("train", ["train:ABF10"])
    assert block.facts["attrs/num_samples"].values.dtype == np.int64


def test_the_split_key_is_the_whole_value_where_the_pattern_finds_nothing(tmp_path):
    np.save(tmp_path / "ZZ.npy", np.zeros(1))
    source, (item,) = reading(
        tmp_path, schema("{seq}.npy", {"x": {}}, splits={"key": "seq", "match": r"^ABF\d"})
    )
    assert facts(source, item)["ZZ.npy"]["split_key"] == "ZZ"


def test_a_long_part_of_a_split_key_that_the_pattern_finds_is_shortened(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scene"] = "s" * 40_000 + "-1"
    source, (item,) = reading(
        tmp_path,
        schema("{id}.h5", {"scene": {"dtype": "text"}}, splits={"key": "scene", "match": r"s+"}),
    )
    key = facts(source, item)["a.h5"]["split_key"]
    assert key.startswith("s" * 1000 + "…")
    assert len(key) < 1100


def test_the_id_is_the_key_where_placeholders_do_not_tell_samples_apart(tmp_path):
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d/0.npy", np.zeros(1))
    source, (item,) = reading(tmp_path, schema("**/{id}.npy", {"x": {}}))
    assert facts(source, item)["d/0.npy"]["id"] == "d/0.npy"
    source, (item,) = reading(tmp_path, schema("d/*.npy", {"x": {}}))
    assert facts(source, item)["d/0.npy"]["id"] == "d/0.npy"


def test_the_split_key_may_be_a_field_that_nobody_asked_for(tmp_path):
    (tmp_path / "a.json").write_text('{"x": [1, 2], "room": "kitchen"}')
    spec = schema(
        "*.json", {"x": {"dtype": "float32"}, "room": {"role": "id"}}, splits={"key": "room"}
    )
    source, (item,) = reading(tmp_path, spec, fields=frozenset({"x"}))
    assert list(every(source, item)[0]["a.json"]) == ["x"]
    assert facts(source, item)["a.json"]["split_key"] == "kitchen"


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"splits": {"key": "nothing"}}, "splits.key"),
        ({"samples": {"files": "{id}.npy", "group": "{seq}"}}, "samples.group"),
        ({"samples": {"files": "{id}.npy", "each": "lines"}}, "samples.each"),
        ({"samples": {"files": "{id}.npy", "each": "/a/**"}}, "samples.each"),
    ],
)
def test_schemas_that_do_not_fit_together_are_refused_by_name(tmp_path, more, where):
    samples = more.pop("samples", "{id}.npy")
    with pytest.raises(SchemaError, match=where):
        open_source(schema(samples, {"x": {}}, **more), tmp_path)


# ------------------------------------------------------------------------------------------- faults


def test_a_damaged_file_is_a_format_error(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY garbage")
    source, (item,) = reading(tmp_path, schema("*.npy", {"x": {}}))
    with pytest.raises(FormatError):
        list(source.read(item))


def test_a_file_that_is_gone_or_changed_since_the_listing_is_a_format_error(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npy", {"x": {}}))
    np.save(tmp_path / "a.npy", np.zeros(4))
    with pytest.raises(FormatError, match="changed after it was listed: 152 bytes then, 160 now"):
        list(source.read(item))
    (tmp_path / "a.npy").unlink()
    with pytest.raises(FormatError, match="no such file"):
        list(source.read(item))


def test_a_file_that_is_written_while_it_is_read_is_a_format_error(tmp_path, monkeypatch):
    from datacheck.sources import fields

    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npz", {"x": {}}))
    read = fields.FieldMap.read

    def meanwhile(self, *args):
        values = read(self, *args)
        np.savez(tmp_path / "a.npz", x=np.ones(5))
        return values

    monkeypatch.setattr(fields.FieldMap, "read", meanwhile)
    with pytest.raises(FormatError, match="changed while it was read"):
        list(source.read(item))


@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_file_that_is_written_while_it_is_read_whole_is_a_format_error(
    tmp_path, monkeypatch, more
):
    from datacheck.sources import opening

    np.save(tmp_path / "a.npy", np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npy", {"x": {}}))
    read = opening.os.read

    def meanwhile(file, size):
        data = read(file, size)
        (tmp_path / "a.npy").write_bytes(b"other" + data[5:] + more)
        return data

    monkeypatch.setattr(opening.os, "read", meanwhile)
    with pytest.raises(FormatError, match="changed while it was read"):
        list(source.read(item))


def test_a_file_of_another_size_than_listed_is_a_format_error(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npy", {"x": {}}))
    np.save(tmp_path / "a.npy", np.zeros(4))
    with pytest.raises(FormatError, match="changed after it was listed: 152 bytes then, 160 now"):
        list(source.read(item))


def test_a_file_that_is_read_whole_is_opened_once_and_its_digest_is_known(tmp_path, monkeypatch):
    from datacheck.runtime.beneath import ConfinedFolder
    from datacheck.runtime.hashing import digest_file

    np.save(tmp_path / "a.npy", np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npy", {"x": {}}))
    opened, real = [], ConfinedFolder.open
    monkeypatch.setattr(
        ConfinedFolder,
        "open",
        lambda self, path, **how: opened.append(path) or real(self, path, **how),
    )
    assert len(list(source.read(item))) == 1
    assert opened == ["a.npy"]
    monkeypatch.undo()
    assert source.digests == {"a.npy": digest_file(tmp_path / "a.npy")}


def a_table(root, dtype="<f4", rows=40_000, **how):
    table = np.random.default_rng(0).normal(0, 90, (rows, 8)).astype(dtype)
    np.save(root / "a.npy", np.asarray(table, **how))
    spec = schema("*.npy", {"xyz": {}, "c": {}}, columns="xyz:3 c rest:4")
    (item,) = plan_work(spec, list_files(root, None)).items
    return table, open_source(spec, root, {}, level="numeric"), item


@pytest.mark.parametrize(
    ("dtype", "how"),
    [("<f4", {}), ("<f8", {}), ("<i2", {}), (">f4", {}), ("<f4", {"order": "F"}), ("<c8", {})],
)
@pytest.mark.parametrize("piece", [1 << 20, 1000])
def test_a_scan_turns_large_tables_while_it_reads_them(tmp_path, monkeypatch, dtype, how, piece):
    from datacheck.runtime.hashing import digest_file

    monkeypatch.setattr("datacheck.sources.opening._PIECE_BYTES", piece)
    table, source, item = a_table(tmp_path, dtype, 80_000, **how)
    if dtype == "<c8":
        with pytest.raises(FormatError, match="columns"):
            list(source.read(item))
    else:
        (block,) = source.read(item)
        np.testing.assert_array_equal(block.fields["xyz"].values, table[:, :3])
        np.testing.assert_array_equal(block.fields["c"].values, table[:, 3])
        assert block.fields["xyz"].values.dtype == np.dtype(dtype).newbyteorder("=")
        assert block.fields["xyz"].planes.base is not None  # nothing is copied once more
    assert source.digests == {"a.npy": digest_file(tmp_path / "a.npy")}


def tables_of_a_scan(root, tables, rest):
    for number, table in enumerate(tables):
        np.save(root / f"{number:02d}.npy", table)
    spec = schema("*.npy", {"xyz": {}, "c": {}}, columns=f"xyz:3 c rest:{rest}")
    items = plan_work(spec, list_files(root, None)).items
    blocks, unread = [], []
    for part in open_source(spec, root, {}, level="numeric").read_all(items, lambda _: None):
        (unread if isinstance(part, Unread) else blocks).append(part)
    found = {int(key[:2]): block[i].fields for block in blocks for i, key in enumerate(block.keys)}
    for number, fields in found.items():
        np.testing.assert_array_equal(fields["xyz"], tables[number][:, :3])
        np.testing.assert_array_equal(fields["c"], tables[number][:, 3])
    return blocks, unread


@pytest.mark.parametrize("rest", [4, 99_999])  # declared columns that no file has take no room
def test_large_tables_of_a_scan_lie_side_by_side_and_are_not_copied_into_their_block(
    tmp_path, monkeypatch, rest
):
    from datacheck.sources import base, opening

    monkeypatch.setattr(opening, "_PLANAR_BYTES", 1000)
    monkeypatch.setattr(base, "COLUMN_BYTES", 4 * 600)
    real = opening.os.readv
    broken = iter([False, False, True])  # the third table breaks off
    monkeypatch.setattr(
        opening.os, "readv", lambda file, views: 0 if next(broken, False) else real(file, views)
    )
    rng = np.random.default_rng(0)
    tables = [
        rng.normal(size=(rows, 8)).astype(np.float32) for rows in (100, 150, 200, 250, 300, 700)
    ]
    blocks, unread = tables_of_a_scan(tmp_path, tables, rest)
    assert [u.key for u in unread] == ["02.npy"]
    assert [block.keys for block in blocks] == [
        ["00.npy", "01.npy", "03.npy"],
        ["04.npy"],
        ["05.npy"],
    ]
    steps = [block.fields["xyz"].values.strides for block in blocks]
    # A copy would be as long as its rows
    assert steps == [(4, 4 * 600), (4, 4 * 600), (4, 4 * 700)]


@pytest.mark.parametrize(("most", "blocks"), [(1 << 20, [2, 2]), (4000, [1, 1, 1, 1])])
def test_a_table_of_many_columns_makes_no_block_of_any_size(tmp_path, monkeypatch, most, blocks):
    from datacheck.sources import base

    monkeypatch.setattr(base, "COLUMN_BYTES", 100)  # 10,000 bytes of 100 columns: two tables
    monkeypatch.setattr(base, "TABLE_BYTES", most)
    for number in range(4):
        np.savez(tmp_path / f"{number}.npz", np.full((10, 100), number, np.float32))
    spec = schema("*.npz", {"a": {}, "b": {}}, columns="a:50 b:50")
    items = plan_work(spec, list_files(tmp_path, None)).items
    found = open_source(spec, tmp_path, {}, level="numeric").read_all(items, lambda _: None)
    assert [len(block.keys) for block in found] == blocks


def test_tables_of_two_kinds_in_turn_take_no_more_room_than_they_have_rows(tmp_path, monkeypatch):
    from datacheck.sources import opening

    monkeypatch.setattr(opening, "_PLANAR_BYTES", 1000)
    opener, room = opening.Opener(tmp_path, {}, whole=True, together=1 << 17), []
    for number, dtype in enumerate(["f4", "f4", "f8", "f4", "f8", "f8", "f8"]):
        np.save(tmp_path / f"{number}.npy", np.full((100, 8), number, dtype))
        nbytes = (tmp_path / f"{number}.npy").stat().st_size
        table = opener.parsed(
            opener.takes(f"{number}.npy", nbytes), f"{number}.npy", nbytes, None
        ).read("array")
        np.testing.assert_array_equal(table, np.full((100, 8), number))
        room.append(table.base.nbytes)
    large = (1 << 20) + 64  # with what is skipped up to a cache line
    assert room == [large, large, 6400, 3200, 6400, large, large]


@pytest.mark.parametrize("left", [0, 100])
def test_a_table_that_is_written_while_it_is_turned_is_a_format_error(tmp_path, monkeypatch, left):
    from datacheck.sources import opening

    _, source, item = a_table(tmp_path)
    read = opening.os.readv

    def meanwhile(file, views):
        (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[: left or None] + b"x")
        return read(file, views)

    monkeypatch.setattr(opening.os, "readv", meanwhile)
    with pytest.raises(FormatError, match="changed while it was read"):
        list(source.read(item))


def test_an_absent_library_is_a_skipped_sample(tmp_path, monkeypatch):
    from datacheck.errors import MissingDependencyError
    from datacheck.sources import opening

    def absent(*_):
        raise MissingDependencyError("laspy is not installed: pip install 'datacheck[clouds]'")

    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npz", {"x": {}}))
    monkeypatch.setattr(opening, "open_container", absent)
    (unread,) = list(source.read(item))
    assert unread == Unread(
        "a.npz", "DC101", "laspy is not installed: pip install 'datacheck[clouds]'", skipped=True
    )


def test_asking_for_keys_of_a_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    source, _ = reading(tmp_path, schema("*.npy", {"x": {}}))
    assert list(every(source, Item("a.npy", keys=("a.npy",)))[0]) == ["a.npy"]
    assert every(source, Item("a.npy", keys=())) == ({}, [])
    assert [u.key for u in every(source, Item("a.npy", keys=("b.npy",)))[1]] == ["b.npy"]


def test_items_survive_json():
    item = Item("a.npy", "train", {"id": "a"}, ("a.npy",), 7)
    assert Item.from_dict(json.loads(json.dumps(item.as_dict()))) == item
    assert Item.from_dict(Item("a").as_dict()) == Item("a")


def test_samples_of_many_files_share_blocks(tmp_path):
    for number in range(10):
        np.save(tmp_path / f"{number}.npy", np.full((number % 3 + 1, 2), number, np.float32))
    np.save(tmp_path / "5.npy", np.zeros((2, 2), np.int32))
    (tmp_path / "7.npy").write_bytes(b"broken")
    source, items = reading(tmp_path, schema("{id}.npy", {"x": {}}))
    beats = []
    found = list(source.read_all(items, beats.append))
    assert beats == list(range(10))
    (unread,) = [part for part in found if isinstance(part, Unread)]
    assert unread.key == "7.npy"
    blocks = [part for part in found if not isinstance(part, Unread)]
    assert [block.keys for block in blocks] == [
        [f"{n}.npy" for n in (0, 1, 2, 3, 4, 6, 8, 9)],
        ["5.npy"],
    ]
    np.testing.assert_array_equal(blocks[0].fields["x"].lengths, [1, 2, 3, 1, 2, 1, 3, 1])


def test_files_of_different_splits_never_share_a_block(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        for number in range(2):
            np.save(tmp_path / split / f"{number}.npy", np.zeros(3))
    source, items = reading(tmp_path, schema("{split}/{id}.npy", {"x": {}}))
    blocks = list(source.read_all(items, lambda _: None))
    assert [(b.split, len(b)) for b in blocks] == [("train", 2), ("val", 2)]


def test_blocks_are_cut_at_their_size(tmp_path, monkeypatch):
    from datacheck.sources import base

    monkeypatch.setattr(base, "BLOCK_BYTES", 100)
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", np.zeros(5))  # 40 bytes: two fit
    source, items = reading(tmp_path, schema("{id}.npy", {"x": {}}))
    assert [len(b) for b in source.read_all(items, lambda _: None)] == [2, 2, 1]
    monkeypatch.setattr(base, "BLOCK_SAMPLES", 1)
    assert [len(b) for b in source.read_all(items, lambda _: None)] == [1] * 5
    monkeypatch.setattr(base, "BLOCK_BYTES", 10)
    assert [len(b) for b in source.read_all(items, lambda _: None)] == [1] * 5


def test_sources_are_picklable(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    source, (item,) = reading(tmp_path, schema("*.npy", {"x": {}}))
    again = pickle.loads(pickle.dumps(source))  # noqa: S301  our own object
    assert list(every(again, item)[0]) == ["a.npy"]


def test_a_large_table_is_read_strip_by_strip_and_holds_the_same(tmp_path, monkeypatch):
    from datacheck.sources import values

    table = np.random.default_rng(0).random((6000, 5)).astype(np.float32)
    np.save(tmp_path / "a.npy", table)
    monkeypatch.setattr(values, "_LARGE_BYTES", 100)
    monkeypatch.setattr(values, "_STRIP", 64)
    fields = {"xyz": {"shape": ["P", 3]}, "c": {"shape": ["P"]}, "d": {"shape": ["P"]}}
    spec = schema("*.npy", fields, columns="xyz:3 c d")
    source = open_source(spec, tmp_path, level="numeric")
    (block,) = list(source.read(Item("a.npy")))  # a listed size of 0 is not read whole
    for name, wanted in (("xyz", table[:, :3]), ("c", table[:, 3]), ("d", table[:, 4])):
        np.testing.assert_array_equal(block.fields[name].values, wanted)
    (plain,) = list(open_source(spec, tmp_path).read(Item("a.npy")))
    assert plain.fields["xyz"].values.flags.c_contiguous
