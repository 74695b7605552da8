"""Samples without bytes: rows, lines and shards that give far more samples than their files can hold."""

import gzip
import json
import struct

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.errors import FormatError, TooManySamplesError
from datacheck.formats.base import open_container
from datacheck.formats.limits import (
    SAMPLES,
    SAMPLES_FREE,
    SAMPLES_PER_BYTE,
    check_samples,
    check_shape,
)
from datacheck.model.table import UNREADABLE, Table
from datacheck.scan.worker import measure_items
from datacheck.sources import Item, Unread, open_source
from tests.sources.schemas import schema

ROWS = 20 * SAMPLES_FREE  # of 1 byte or 8, which compress to less than a thousandth


def parts(path, each, fields=None):
    source = open_source(schema({"files": "*", "each": each}, fields or {"*": {}}), path.parent)
    return list(source.read_all([Item(path.name, nbytes=path.stat().st_size)], lambda place: None))


def refused(path, each, fields=None):
    """The one thing that is said of a file without a single block in front of it."""
    (unread,) = parts(path, each, fields)
    assert unread.alone
    return unread.reason


def rows_npz(path):
    np.savez_compressed(path, x=np.zeros(ROWS, np.uint8))


def rows_parquet(path):
    pq.write_table(pa.table({"x": pa.array(np.zeros(ROWS, np.uint8))}), path)


def rows_hdf5(path):
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=np.zeros(ROWS, np.uint8), chunks=(1 << 20,), compression="gzip"
        )


def rows_npy(path):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (16000000, 0), }".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head.encode())


@pytest.mark.parametrize(
    ("name", "write"),
    [("x.npz", rows_npz), ("x.parquet", rows_parquet), ("x.h5", rows_hdf5), ("x.npy", rows_npy)],
    ids=["npz", "parquet", "hdf5", "rows without bytes"],
)
def test_rows_that_take_no_room_are_refused(tmp_path, name, write):
    write(tmp_path / name)
    assert "samples or more in a file of" in refused(tmp_path / name, "row")


def test_ends_of_episodes_that_take_no_room_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(4), ends=np.full(ROWS, 4))
    assert "samples or more in a file of" in refused(tmp_path / "x.npz", "ends:ends")


def test_lines_of_a_packed_file_that_take_no_room_are_refused_before_they_are_read(tmp_path):
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b'{"x":1}\n' * (2 * SAMPLES_FREE)))
    assert "samples or more in a file of" in refused(tmp_path / "x.jsonl.gz", "line")


def test_lines_of_a_packed_file_that_hides_its_size_are_refused_with_those_before_them(tmp_path):
    data = gzip.compress(b'{"x":1}\n' * (2 * SAMPLES_FREE))
    (tmp_path / "x.jsonl.gz").write_bytes(data + gzip.compress(b"", 0))
    found = parts(tmp_path / "x.jsonl.gz", "line")
    assert isinstance(found[-1], Unread)
    assert "samples or more in a file of" in found[-1].reason
    said = schema({"files": "*", "each": "line"}, {"*": {}}).as_dict()
    item = Item("x.jsonl.gz", nbytes=(tmp_path / "x.jsonl.gz").stat().st_size).as_dict()
    task = {
        "schema": said,
        "root": str(tmp_path),
        "roots": {},
        "items": [item],
        "measures": [],
        "level": "numeric",
    }
    table = Table.from_wire(measure_items(task, lambda place: None)["table"])
    assert (table.keys, table.status.tolist()) == (["x.jsonl.gz"], [UNREADABLE])


def test_a_packed_list_that_takes_no_room_is_refused(tmp_path):
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(b"[0" + b",0" * (2 * SAMPLES_FREE) + b"]"))
    assert "samples or more in a file of" in refused(tmp_path / "x.json.gz", "line")


def test_a_packed_shard_of_samples_without_bytes_is_refused(tmp_path):
    head = json.dumps(
        {
            "format": "mds",
            "version": 2,
            "column_names": [],
            "column_encodings": [],
            "column_sizes": [],
        }
    )
    count = ROWS
    start = 8 + 4 * count + len(head)
    data = struct.pack("<I", count) + struct.pack("<I", start) * (count + 1) + head.encode()
    with pa.output_stream(tmp_path / "x.mds.zstd", compression="zstd") as stream:
        stream.write(data)
    assert "samples or more in a file of" in refused(tmp_path / "x.mds.zstd", "key")


def test_the_bytes_of_companions_count(tmp_path, monkeypatch):
    monkeypatch.setattr("datacheck.sources.base.SAMPLES_FREE", 100)
    monkeypatch.setattr("datacheck.formats.limits.SAMPLES_FREE", 100)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(20_000, np.uint8))
    assert (tmp_path / "a.npz").stat().st_size * SAMPLES_PER_BYTE < 20_000
    np.save(tmp_path / "a.npy", np.zeros((20_000, 3), np.uint8))
    said = schema({"files": "{n}.npz", "each": "row"}, {"x": {}, "y": {"file": "{n}.npy"}})
    item = Item("a.npz", "", {"n": "a"}, nbytes=(tmp_path / "a.npz").stat().st_size)
    found = list(open_source(said, tmp_path).read_all([item], lambda place: None))
    assert sum(map(len, found)) == 20_000


@pytest.mark.parametrize(
    ("count", "stored", "fits"),
    [
        (SAMPLES_FREE, 0, True),
        (SAMPLES_FREE + 1, 0, False),
        (10_000_000, 20_000_000, True),
        (SAMPLES_PER_BYTE * 100_000, 100_000, True),
        (SAMPLES_PER_BYTE * 100_000 + 1, 100_000, False),
        (20_000_000, 233_000, False),
        (SAMPLES, 1 << 60, True),
        (SAMPLES + 1, 1 << 60, False),
    ],
)
def test_what_a_file_may_give_goes_by_its_bytes(count, stored, fits):
    if fits:
        check_samples(count, stored)
    else:
        with pytest.raises(TooManySamplesError, match=f"{count:,} samples"):
            check_samples(count, stored)


def test_ordinary_empty_arrays_have_a_shape(tmp_path):
    for shape in [(0, 3), (0,), (7, 0), (0, 1080, 1920, 3), (1 << 24, 0), (1 << 40,)]:
        check_shape(shape)
    with pytest.raises(FormatError, match="has no values"):
        check_shape((0, (1 << 24) + 1))


@pytest.mark.parametrize("level", ["structure", "numeric", None])
@pytest.mark.parametrize("shape", [(0, 1 << 40), (1 << 40, 0), (0, 1 << 60)])
def test_an_array_without_values_has_no_absurd_shape(tmp_path, shape, level):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (tmp_path / "x.npy").write_bytes(
        b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head.encode()
    )
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", shape, "f4")
    source = open_source(schema("*", {"*": {}}), tmp_path, level=level)
    items = [Item(name, nbytes=(tmp_path / name).stat().st_size) for name in ("x.npy", "x.h5")]
    found = list(source.read_all(items, lambda place: None))
    assert [unread.key for unread in found] == ["x.npy", "x.h5"]


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("element", ["vertex 9000000000000000000", "face 1"])
def test_elements_of_a_ply_file_without_properties_are_refused(tmp_path, form, element):
    (tmp_path / "x.ply").write_text(f"ply\nformat {form} 1.0\nelement {element}\nend_header\n")
    with pytest.raises(FormatError, match="but no property: they have no bytes"):
        open_container(tmp_path / "x.ply")
    (tmp_path / "x.ply").write_text(f"ply\nformat {form} 1.0\nelement vertex 0\nend_header\n")
    assert open_container(tmp_path / "x.ply").names() == []


def test_rows_of_a_parquet_file_without_columns_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}).select([]), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match="but no column"):
        open_container(tmp_path / "x.parquet")


def test_points_of_a_las_file_have_bytes(tmp_path):
    laspy = pytest.importorskip("laspy")
    cloud = laspy.create(point_format=0, file_version="1.2")
    cloud.x = cloud.y = cloud.z = np.zeros(4)
    cloud.write(tmp_path / "x.las")
    data = bytearray((tmp_path / "x.las").read_bytes())
    data[105:107] = bytes(2)
    (tmp_path / "x.las").write_bytes(data)
    with pytest.raises(FormatError, match="a point has at least 20"):
        open_container(tmp_path / "x.las")
