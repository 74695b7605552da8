"""Rows of arrays are samples."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import FormatError
from datacheck.formats import npy
from datacheck.sources import Item, open_source, row_slices
from tests.sources.schemas import every, facts, schema


def rows(root, fields, files="*.npz", **more):
    return open_source(schema({"files": files, "each": "row"}, fields, **more), root)


def key(number, file="a.npz"):
    return f"{file}:{number:012d}"


def test_rows_of_one_array_under_any_name(tmp_path):
    joints = np.arange(4 * 21 * 3, dtype=np.float32).reshape(4, 21, 3)
    np.save(tmp_path / "rhd.npy", joints)
    source = rows(tmp_path, {"joints": {"shape": [21, 3]}}, "*.npy")
    samples, _ = every(source, Item("rhd.npy"))
    assert list(samples) == [key(n, "rhd.npy") for n in range(4)]
    for number, sample in enumerate(samples.values()):
        np.testing.assert_array_equal(sample["joints"], joints[number])
    (block,) = source.read(Item("rhd.npy"))
    assert block.fields["joints"].stacked().shape == (4, 21, 3)
    assert block.origins[3].rows == (3, 4)


def test_scalars_texts_and_vectors_side_by_side(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        imgname=["x.png", "y.png"],
        scale=np.array([1.5, 2.5]),
        box=np.zeros((2, 0)),
        center=np.eye(2),
    )
    source = rows(
        tmp_path, {"imgname": {"role": "text"}, "*": {}}, splits={"key": "imgname", "match": r"^\w"}
    )
    samples, _ = every(source, Item("a.npz"))
    assert samples[key(1)]["imgname"] == "y.png"
    assert (samples[key(1)]["scale"].shape, float(samples[key(1)]["scale"])) == ((), 2.5)
    np.testing.assert_array_equal(samples[key(1)]["center"], [0, 1])
    assert samples[key(1)]["box"].shape == (0,)
    told = facts(source, Item("a.npz"))
    assert told[key(1)]["split_key"] == "y"
    assert "id" not in told[key(1)]  # it is called by its key and by nothing else


def test_columns_of_a_table_and_companions_are_cut_into_rows(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4))
    (tmp_path / "a.txt").write_text("7\n8\n9\n")
    source = rows(
        tmp_path,
        {"xyz": {}, "label": {}, "gt": {"file": "{id}.txt"}},
        "{id}.npy",
        columns="xyz:3 label",
    )
    samples, _ = every(source, Item("a.npy", names={"id": "a"}))
    sample = samples[key(2, "a.npy")]
    np.testing.assert_array_equal(sample["xyz"], [8, 9, 10])
    assert (float(sample["label"]), int(sample["gt"])) == (11.0, 9)


def test_declared_fields_of_different_lengths_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(FormatError, match="y has 4 rows, x has 3"):
        list(rows(tmp_path, {"x": {}, "y": {}}).read(Item("a.npz")))
    with pytest.raises(FormatError, match=r"differ in length \(x 3, y 4\)"):
        list(rows(tmp_path, {}).read(Item("a.npz")))


def test_undeclared_values_of_another_length_are_left_out(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), classes=np.zeros(10), version=np.array(2))
    samples, _ = every(rows(tmp_path, {"x": {}, "*": {}}), Item("a.npz"))
    assert [sorted(s) for s in samples.values()] == [["x"]] * 3


def test_a_declared_scalar_of_the_file_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), version=np.array(2))
    with pytest.raises(FormatError, match="version: one value for the whole file"):
        list(rows(tmp_path, {"x": {}, "version": {}}).read(Item("a.npz")))


@pytest.mark.parametrize("array", [np.zeros((0, 3)), None])
def test_files_without_rows_are_refused(tmp_path, array):
    np.savez(
        tmp_path / "a.npz", **({} if array is None else {"x": array}), z=np.zeros(1), w=np.zeros(1)
    )
    with pytest.raises(FormatError, match=r"no sample|no rows"):
        list(rows(tmp_path, {"x": {}}).read(Item("a.npz")))


def test_blocks_are_cut_and_large_arrays_are_read_in_slices(tmp_path, monkeypatch):
    values = np.arange(600, dtype=np.float64).reshape(100, 6)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(10, 6))
        file["small"] = np.arange(100)
    monkeypatch.setattr(row_slices, "BLOCK_BYTES", 56 * 30)
    monkeypatch.setattr(row_slices, "_WHOLE_BYTES", 1000)
    from datacheck.formats import hdf5

    read, asked = hdf5._Hdf5.read_rows, []
    monkeypatch.setattr(
        hdf5._Hdf5,
        "read_rows",
        lambda self, name, a, b: asked.append((name, a, b)) or read(self, name, a, b),
    )
    source = rows(tmp_path, {"x": {}, "small": {}}, "*.h5")
    blocks = list(source.read(Item("a.h5")))
    assert [len(b) for b in blocks] == [30, 30, 30, 10]
    np.testing.assert_array_equal(np.concatenate([b.fields["x"].stacked() for b in blocks]), values)
    assert asked == [("x", 0, 30), ("x", 30, 60), ("x", 60, 90), ("x", 90, 100)]
    asked.clear()
    samples, _ = every(source, Item("a.h5", keys=tuple(key(n, "a.h5") for n in (3, 4, 5, 50))))
    assert asked == [("x", 3, 6), ("x", 50, 51)]
    np.testing.assert_array_equal(samples[key(50, "a.h5")]["x"], values[50])


@given(st.lists(st.integers(0, 12), max_size=8, unique=True))
def test_reading_some_keys_is_reading_all_and_choosing(tmp_path_factory, numbers):
    root = tmp_path_factory.mktemp("rows")
    np.savez(root / "a.npz", x=np.arange(20).reshape(10, 2), t=[f"t{n}" for n in range(10)])
    source = rows(root, {"x": {}, "t": {"role": "text"}})
    everything, _ = every(source, Item("a.npz"))
    samples, unread = every(source, Item("a.npz", keys=tuple(key(n) for n in numbers)))
    assert list(samples) == [key(n) for n in numbers if n < 10]
    assert [u.key for u in unread] == [key(n) for n in numbers if n >= 10]
    for name, sample in samples.items():
        np.testing.assert_array_equal(sample["x"], everything[name]["x"])
        assert sample["t"] == everything[name]["t"]


def test_large_files_say_where_reading_can_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(row_slices, "LEAST_BYTES", 100)
    values = np.arange(100, dtype=np.float32)
    np.savez_compressed(tmp_path / "a.npz", x=values)
    np.save(tmp_path / "a.npy", values)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(10,))
    pq.write_table(
        pa.table({"x": values, "y": np.arange(100)}), tmp_path / "a.parquet", row_group_size=30
    )
    found = {}
    for name in ("a.npz", "a.npy", "a.h5", "a.parquet"):
        source, nbytes = rows(tmp_path, {"x": {}}, f"*{name[1:]}"), (tmp_path / name).stat().st_size
        monkeypatch.setattr(source.opener, "takes", lambda *_: None)  # as if it were large
        points = source.seek_points(Item(name, nbytes=nbytes))
        found[name] = None if points is None else points.tolist()
        assert source.seek_points(Item(name, nbytes=99)) is None  # read whole each time
    assert found == {"a.npz": [0], "a.npy": None, "a.h5": None, "a.parquet": [0, 30, 60, 90]}


def test_episodes_say_where_reading_can_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(row_slices, "LEAST_BYTES", 100)
    monkeypatch.setattr(npy._Npz, "seek_points", lambda *_: np.array([0, 25, 60, 90]))
    np.savez(tmp_path / "a.npz", x=np.arange(100.0), ends=[20, 50, 60, 95, 100])
    source = open_source(schema({"files": "*.npz", "each": "ends:ends"}, {"x": {}}), tmp_path)
    points = source.seek_points(Item("a.npz", nbytes=(tmp_path / "a.npz").stat().st_size))
    # Of episodes at 0, 20, 50, 60 and 95 the first at or behind 0, 25, 60, 90
    assert points.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "points"), [("a.jsonl.gz", [0]), ("a.jsonl", None), ("a.json.gz", None)]
)
def test_packed_lines_are_read_from_the_first(tmp_path, name, points):
    source = open_source(
        schema({"files": "*.json*", "each": "line"}, {"text": {"role": "text"}}), tmp_path
    )
    found = source.seek_points(Item(name, nbytes=1))
    assert (None if found is None else found.tolist()) == points
