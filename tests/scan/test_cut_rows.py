"""A large file of rows that is read in parts gives what reading it whole gives."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.errors import FormatError
from datacheck.formats import hdf5, npy, parquet
from datacheck.model.table import CHECKED, UNREADABLE
from datacheck.runtime.hashing import digest_file
from datacheck.scan import Request, measuring, run_scan
from datacheck.scan.worker import measure_items
from datacheck.schema.load import parse_schema
from datacheck.sources import fields, kinds, row_slices
from datacheck.workers.wire import check_answer
from tests.scan.test_worker import task_for

SCHEMA = """
datacheck: 1
name: rows
samples: {files: ["*.npy", "*.npz", "*.hdf5", "*.parquet"], each: row}
fields: {joints: {shape: [6], dtype: float32}, "*": {}}
"""
LISTED = SCHEMA.replace(', "*": {}', "")
COUNT = 150


@pytest.fixture
def cut(monkeypatch):
    """Return what lets files of kilobytes be cut as if they had gigabytes."""

    def small():
        monkeypatch.setattr(kinds, "LEAST_BYTES", 1000)
        monkeypatch.setattr(row_slices, "PART_ROWS", 40)
        monkeypatch.setattr(row_slices, "_PART_FILE_BYTES", 1)
        monkeypatch.setattr(npy, "_FIRST_READ", 1000)

    return small


def joints(count=COUNT):
    values = np.random.default_rng(0).normal(size=(count, 6)).astype("f4")
    values[77, 3] = np.nan
    values[120] = 1e30
    return values


def write(path, values):
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez_compressed(
            path, joints=values, origin=np.zeros(3), weight=np.arange(len(values)), said=["x"] * 3
        )
    elif path.suffix == ".hdf5":
        with h5py.File(path, "w") as file:
            file.create_dataset("joints", data=values, chunks=(7, 6), compression="gzip")
            file["weight"] = np.arange(len(values))
            file["origin"] = np.zeros(3)  # of the file, not of a row
    else:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 6)
        text = pa.array([f"row {i}" for i in range(len(values))])
        lists = pa.array(np.arange(6.0 * len(values)).reshape(-1, 2, 3).tolist())
        columns = {
            "joints": flat,
            "lists": lists,
            "said": text,
            "n": pa.array(np.arange(len(values))),
            "code": text.dictionary_encode(),
        }
        pq.write_table(pa.table(columns), path, row_group_size=50)


def scan(folder, output, schema=SCHEMA, **more):
    run = run_scan(parse_schema(schema), Request(folder / "data", output=folder / output, **more))
    return run, [
        (folder / output / name).read_bytes() for name in ("samples.parquet", "valid.json")
    ]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "names",
    [["a.npy"], ["a.npz"], ["a.hdf5"], ["a.parquet"], ["a.npy", "b.npy", "c.parquet", "d.npy"]],
)
def test_parts_say_what_the_whole_says(in_tmp, here, cut, names, workers):
    (in_tmp / "data").mkdir()
    for name in names:
        write(in_tmp / "data" / name, joints())
    whole, files = scan(in_tmp, "whole", workers=workers)
    assert here == [[None] * len(names)]
    here.clear()
    cut()
    parts, found = scan(in_tmp, "cut", workers=workers)
    assert sorted(map(tuple, here)) == sorted(
        [([0, -1],), ([40, 80],), ([80, 120],), ([120, 150],)] * len(names)
    )
    assert found == files
    assert whole.table.status.tolist() == [CHECKED] * COUNT * len(names)
    assert [f.message for f in parts.report.findings] == [f.message for f in whole.report.findings]
    assert any(f.failed for f in parts.report.findings)
    digests = [digest_file(in_tmp / "data" / name) for name in names]
    assert [entry.digest for entry in parts.listing.entries] == digests


def test_a_file_has_no_more_parts_than_its_bytes_are_worth(in_tmp, here, cut, monkeypatch):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.npy", joints())  # 3,728 bytes
    cut()
    monkeypatch.setattr(row_slices, "_PART_FILE_BYTES", 2000)
    scan(in_tmp, "cut")
    assert here == [[[0, -1]], [[50, 100]], [[100, 150]]]


@pytest.mark.parametrize("name", ["a.npz", "a.hdf5", "a.parquet"])
@pytest.mark.parametrize("small", [1 << 20, 1000])  # of 1200 bytes they are; the joints have 3600
def test_numbers_that_the_schema_does_not_list_keep_no_file_whole(
    in_tmp, here, cut, monkeypatch, name, small
):
    (in_tmp / "data").mkdir()
    monkeypatch.setattr(fields, "_SMALL", small)
    write(in_tmp / "data" / name, joints())
    whole, files = scan(in_tmp, "whole", schema=LISTED)
    assert {"weight:max", "n:max"} & whole.table.columns.keys()
    here.clear()
    cut()
    _, found = scan(in_tmp, "cut", schema=LISTED)
    assert here == [[[0, -1]], [[40, 80]], [[80, 120]], [[120, 150]]]
    assert found == files


def test_of_numbers_that_the_schema_does_not_list_a_part_reads_its_own_rows_and_damage_is_no_fault(
    in_tmp, here, cut, monkeypatch
):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.hdf5", joints())
    asked = []
    inner = hdf5._Hdf5.read_rows

    def read_rows(self, name, start, stop):
        if name == "weight":
            asked.append((start, stop))
            if start == 80:
                msg = "damaged"
                raise FormatError(msg)
        return inner(self, name, start, stop)

    monkeypatch.setattr(hdf5._Hdf5, "read_rows", read_rows)
    cut()
    run, _ = scan(in_tmp, "cut", schema=LISTED)
    assert asked == [(0, 40), (40, 80), (80, 120), (120, 150)]
    assert run.table.status.tolist() == [CHECKED] * COUNT
    assert (
        run.table.columns["weight:max"].present.tolist() == [True] * 80 + [False] * 40 + [True] * 30
    )


def test_an_unchanged_file_is_not_cut_again(in_tmp, here, cut):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.npy", joints())
    os.utime(in_tmp / "data/a.npy", ns=(10**9, 10**9))
    cut()
    _, first = scan(in_tmp, "out")
    here.clear()
    _, second = scan(in_tmp, "out")
    assert here == []
    assert second == first


@pytest.mark.parametrize("bad", [3, 100])
def test_a_file_with_a_bad_row_is_refused_as_a_whole(in_tmp, here, cut, bad):
    (in_tmp / "data").mkdir()
    values = joints().tolist()
    values[bad] = None
    column = pa.array(values, pa.list_(pa.float32(), 6))
    pq.write_table(pa.table({"joints": column}), in_tmp / "data/a.parquet", row_group_size=50)
    write(in_tmp / "data/b.parquet", joints())
    whole, files = scan(in_tmp, "whole")
    cut()
    parts, found = scan(in_tmp, "cut")
    assert found == files
    assert parts.table.status.tolist() == [UNREADABLE] + [CHECKED] * COUNT
    assert (
        parts.table.reasons[0]
        == f"DC101 joints: entry {bad} is empty (null)"
        == whole.table.reasons[0]
    )


def test_fields_of_different_lengths_are_met_in_the_first_part(in_tmp, here, cut):
    (in_tmp / "data").mkdir()
    with h5py.File(in_tmp / "data/a.hdf5", "w") as file:
        file["joints"] = joints()
        file["weight"] = np.arange(COUNT - 1)
        file["joints2"] = joints()
    _, files = scan(in_tmp, "whole")
    cut()
    _, found = scan(in_tmp, "cut")
    assert found == files


@pytest.mark.parametrize("kind", ["lists of different lengths", "columns behind one another"])
def test_what_cannot_be_read_row_by_row_is_one_part(in_tmp, here, cut, kind):
    (in_tmp / "data").mkdir()
    if kind == "lists":
        column = pa.array([[1.0] * 6 for _ in range(COUNT)], pa.list_(pa.float32()))
        pq.write_table(
            pa.table({"joints": column}), in_tmp / "data/a.parquet", use_dictionary=False
        )
    else:
        np.save(in_tmp / "data/a.npy", np.asfortranarray(joints()))
    _, files = scan(in_tmp, "whole")
    here.clear()
    cut()
    _, found = scan(in_tmp, "cut")
    assert here == [[[0, -1]]]
    assert found == files


def test_a_file_that_changes_between_its_parts_is_no_sample(in_tmp, here, cut, monkeypatch):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.npy", joints())
    cut()
    inner = measuring.ordered_map

    def changing(*args, **more):
        for number, outcome in enumerate(inner(*args, **more)):
            if number == 1:
                write(in_tmp / "data/a.npy", -joints())
            yield outcome

    monkeypatch.setattr(measuring, "ordered_map", changing)
    run, _ = scan(in_tmp, "out")
    assert set(run.table.status.tolist()) == {UNREADABLE}
    assert {reason.partition(";")[0] for reason in run.table.reasons} == {
        "DC101 it changed while it was read"
    }


@pytest.mark.parametrize("cut", [(1 << 40, 1 << 20), (10**6, 1), (1, 0)])
def test_a_child_that_was_taken_over_cannot_ask_for_parts_without_end(in_tmp, cut):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.npy", joints())
    task = task_for(in_tmp / "data", "a.npy")
    answer = measure_items(task, lambda place: None)
    check_answer(measure_items, answer, task)
    with pytest.raises(Exception, match="the answer"):
        check_answer(measure_items, answer | {"cut": list(cut)}, task)


def test_the_parser_of_parquet_is_asked_for_the_rows_of_a_part_only(in_tmp, here, cut, monkeypatch):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.parquet", joints())
    asked = []
    inner = parquet.ParquetFile.read_rows

    def read_rows(self, name, start, stop):
        asked.append((name, start, stop))
        return inner(self, name, start, stop)

    monkeypatch.setattr(parquet.ParquetFile, "read_rows", read_rows)
    cut()
    scan(in_tmp, "cut")
    assert [a[1:] for a in asked if a[0] == "joints"] == [(0, 40), (40, 80), (80, 120), (120, 150)]
