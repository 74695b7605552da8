"""Numbers beside the fields that a schema lists: what is read of them, and what it is to the listed ones."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from datacheck.errors import FormatError
from datacheck.formats import hdf5, limits
from datacheck.formats.base import open_container
from datacheck.model.sample import Peeked
from datacheck.model.table import Table
from datacheck.rules.measurement import MeasurementRunner
from datacheck.rules.measures import finite, form, numbers, unlisted_fields
from datacheck.sources import Item, open_source
from datacheck.sources.fields import FieldMap
from tests.sources.schemas import schema

DEMOS = {"files": "*.hdf5", "each": "/data/demo_*"}
LISTED = {"actions": {"shape": ["T", 2]}, "obs/picture": {"role": "image", "optional": True}}


@pytest.fixture
def demos(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for demo in range(2):
            group = file.create_group(f"data/demo_{demo}")
            group["actions"] = np.zeros((5, 2))
            group["obs/eef_pos"] = np.full((5, 3), float(demo))
            group["obs/picture"] = np.zeros((5, 4, 4, 3), np.uint8)
            group["obs/wrist"] = np.zeros((5, 4, 4, 3), np.uint8)
            group["obs/large"] = np.zeros((5, 1 << 16))
            group["language"] = "lift"
            group["ready"] = np.ones(5, bool)
        file["elsewhere"] = np.zeros(3)
    return tmp_path


def blocks(folder, spec, *, unlisted=True, level="numeric"):
    source = open_source(spec, folder, level=level)
    source.unlisted = unlisted
    path = folder / "a.hdf5"
    return source, list(source.read(Item(path.name, nbytes=path.stat().st_size)))


def test_numbers_beside_the_listed_fields_are_read_and_pixels_texts_flags_and_large_ones_are_not(
    demos,
):
    source, (block,) = blocks(demos, schema(DEMOS, LISTED))
    assert sorted(block.fields) == ["actions", "obs/eef_pos", "obs/picture"]
    assert block.fields["obs/eef_pos"].values[:, 0].tolist() == [0.0] * 5 + [1.0] * 5
    # The report names them as not read.
    assert source.passed == {"/elsewhere", "obs/large", "obs/wrist"}


def test_a_build_and_whoever_asks_for_listed_fields_only_get_no_others(demos):
    _, (block,) = blocks(demos, schema(DEMOS, LISTED), unlisted=False)
    assert sorted(block.fields) == ["actions", "obs/picture"]


def test_a_sample_that_holds_too_many_others_is_as_good_as_before(demos):
    with h5py.File(demos / "a.hdf5", "a") as file:
        for number in range(65):
            file[f"data/demo_0/more/{number}"] = np.zeros(3)
    _, found = blocks(demos, schema(DEMOS, LISTED))
    assert [sorted(block.fields) for block in found] == [
        ["actions", "obs/picture"],
        ["actions", "obs/eef_pos", "obs/picture"],
    ]


def test_what_cannot_be_read_beside_the_listed_fields_is_no_fault_of_the_sample(demos):
    with h5py.File(demos / "a.hdf5", "a") as file:
        file["data/demo_0/records"] = np.zeros(3, [("a", "f4"), ("b", "i8")])
    _, found = blocks(demos, schema(DEMOS, LISTED))
    assert [key for block in found for key in block.keys] == [
        "a.hdf5:/data/demo_0",
        "a.hdf5:/data/demo_1",
    ]


def test_a_file_that_is_a_sample_gives_them_too(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(4), y=np.ones((3, 3)))
    source = open_source(schema({"files": "*.npz"}, {"x": {}}), tmp_path, level="numeric")
    source.unlisted = True
    (block,) = source.read(Item("a.npz", nbytes=(tmp_path / "a.npz").stat().st_size))
    assert sorted(block.fields) == ["x", "y"]


def test_they_are_measured_and_no_part_of_the_sample(demos):
    spec = schema(DEMOS, LISTED)
    _, (block,) = blocks(demos, spec)
    bench = MeasurementRunner(spec, [finite, form, numbers])
    listed, others = bench.parted(block)
    assert (sorted(listed.fields), sorted(others.fields)) == (
        ["actions", "obs/picture"],
        ["obs/eef_pos"],
    )
    columns = bench.measure(listed) | bench.measure_unlisted(others)
    assert columns["obs/eef_pos:max"].values.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert columns["*:nonfinite"].values.tolist() == [0, 0]
    assert unlisted_fields(Table(columns=columns), spec) == ["obs/eef_pos"]
    assert bench.undeclared == {"obs/eef_pos"}


@pytest.mark.parametrize(
    ("fields", "rules", "reads"),
    [
        ({"x": {}}, {}, True),
        ({"x": {}, "*": {}}, {}, False),  # the schema speaks of them
        ({}, {}, False),  # every value is read anyway
        ({"x": {}}, {"DC130": "off"}, False),
        ({"x": {}}, {"DC130": "info"}, True),
    ],
)
def test_who_asks_for_them(fields, rules, reads):
    assert schema(DEMOS, fields, rules=rules).reads_unlisted is reads


def test_flat_arrays_that_are_cut_into_episodes_give_them_too(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        x=np.zeros((6, 2)),
        y=np.arange(6.0),
        ends=np.array([2, 6]),
        other=np.zeros(5),
    )
    spec = schema({"files": "*.npz", "each": "ends:ends"}, {"x": {"shape": ["T", 2]}})
    source = open_source(spec, tmp_path, level="numeric")
    source.unlisted = True
    (block,) = source.read(Item("a.npz", nbytes=(tmp_path / "a.npz").stat().st_size))
    assert sorted(block.fields) == ["x", "y"]  # neither the ends nor what has another length
    assert block.fields["y"].lengths.tolist() == [2, 4]


WORDS = ["lift", "place"]


def write_hdf5(path):
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = np.zeros(2), np.ones(2)
        file["bytes"] = np.array(WORDS, "S")
        file["words"], file["word"] = WORDS, "lift"
        file["table"] = np.zeros(2, [("z", "f4"), ("name", "S4")])


def write_parquet(path):
    columns = {"x": [0.0, 0.0], "y": [1.0, 1.0], "words": WORDS, "lists": [WORDS, WORDS]}
    pq.write_table(pa.table(columns | {"code": pa.array(WORDS).dictionary_encode()}), path)


def write_npz(path):
    np.savez_compressed(
        path, x=np.zeros(2), y=np.ones(2), words=np.array(WORDS), bytes=np.array(WORDS, "S")
    )


def write_zarr(path):
    group = zarr.open_group(path, mode="w", zarr_format=2)
    for name, value in {
        "x": np.zeros(2),
        "y": np.ones(2),
        "words": np.array(WORDS),
        "bytes": np.array(WORDS, "S"),
    }.items():
        group.create_array(name, data=value)


@pytest.mark.parametrize(
    ("name", "write", "found"),
    [
        ("a.hdf5", write_hdf5, ["table.z", "y"]),
        ("a.parquet", write_parquet, ["y"]),
        ("a.npz", write_npz, ["y"]),
        ("a.zarr", write_zarr, ["y"]),
    ],
)
def test_texts_that_the_schema_does_not_list_stay_unread(tmp_path, monkeypatch, name, write, found):
    write(tmp_path / name)
    read = []
    with open_container(tmp_path / name) as container:
        for method in ("read", "read_rows"):
            inner = getattr(type(container), method)
            monkeypatch.setattr(
                type(container),
                method,
                lambda self, at, *rows, inner=inner: (read.append(at), inner(self, at, *rows))[1],
            )
        values, passed = FieldMap(schema({"files": name}, {"x": {}})).unlisted(container, (0, 0))
    assert (sorted(values), passed) == (found, [])
    assert sorted(set(read)) == found


@pytest.mark.parametrize("each", [{"each": "/data/demo_*"}, {}])
def test_a_file_that_cannot_tell_its_names_gives_the_listed_fields(tmp_path, monkeypatch, each):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name in ["x", *map(str, range(10))]:
            file[f"data/demo_0/{name}"] = np.zeros(3)
    monkeypatch.setattr(hdf5, "_OBJECTS", 5)
    monkeypatch.setattr(hdf5, "FIELDS", 2)
    monkeypatch.setattr(limits, "FIELDS", 2)
    listed = {"x": {} if each else {"at": "data/demo_0/x"}, "missing": {}, "gone": {}}
    _, (block,) = blocks(tmp_path, schema({"files": "*.hdf5"} | each, listed, near_names=True))
    assert sorted(block.fields) == ["x"]
    with pytest.raises(
        FormatError, match="more than 5 objects" if each else "holds 13 objects or more; at most 2"
    ):
        blocks(tmp_path, schema({"files": "*.hdf5"} | each, listed | {"*": {}}))


@pytest.mark.parametrize("each", [{"each": "/data/demo_*"}, {"each": "row"}, {}])
def test_what_was_taken_for_a_listed_field_is_not_read_again(tmp_path, each):
    group = "data/demo_0/" if each.get("each", "").startswith("/") else ""
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name in ("actions", "other"):
            file[group + name] = np.zeros((3, 2))
    fields = {"action": {}, "state": {"optional": True}}
    _, (block,) = blocks(tmp_path, schema({"files": "*.hdf5"} | each, fields, near_names=True))
    assert sorted(block.fields) == ["action", "other"]


def test_what_is_read_at_once_has_the_room_of_what_is_in_memory(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name in "xyz":
            file[name] = np.zeros((1 << 17) + 1)  # 8 bytes more than are read of small ones
    fields = FieldMap(schema({"files": "*.hdf5"}, {"x": {}}))
    size = 8 * ((1 << 17) + 1)
    with open_container(tmp_path / "a.hdf5") as container:
        found, passed = fields.unlisted(container, (0, size), later=lambda name, seen: name == "y")
        assert (found, passed) == ({"y": Peeked(((1 << 17) + 1,), np.dtype("f8"))}, ["z"])
        found, passed = fields.unlisted(container, (size, 0), later=lambda name, seen: name == "y")
        assert (sorted(found), passed) == (["z"], ["y"])
