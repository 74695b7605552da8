"""Building a cache of one large file reads each part of it once, however many shards it comes to."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.build import job as job_module
from datacheck.build import make_shards, plan
from datacheck.build.job import even_fields
from datacheck.build.shard_worker import write_shards
from datacheck.cache import layout, open_cache
from datacheck.formats import jsonl, npy
from datacheck.pipeline import build, job_of
from datacheck.pipelinefile import of_schema
from datacheck.scan import Request, measuring, run_scan
from datacheck.scan.worker import measure_items
from datacheck.sources import lines, opening, row_slices
from datacheck.workers import parallel
from datacheck.workers.parallel import TaskResult
from datacheck.workers.wire import decode, encode
from tests.build.make import schema_of

COUNT = 1500
ROWS = 8000
HELD = {}  # by process what it has read in part
TASKS = []
FUNCTIONS = {
    "measure_items": measure_items,
    "write_shards": write_shards,
    "find_seek_points": plan.find_seek_points,
}
ROW = {"joints": {"role": "joints", "shape": [21, 3], "dtype": "float32"}}
LINES = schema_of({"text": {"role": "text"}}, files="*.jsonl", samples={"each": "line"})


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Work in this process, and cut kilobytes as if they were gigabytes."""

    def in_turn(function, tasks, workers=1, **_):
        for number, series in enumerate(task for task in tasks if task is not None):
            with process(number % workers):
                for task in parallel._series(series):
                    TASKS.append(decode(b"".join(encode(task))))
                    before = rchar()
                    answer = FUNCTIONS[function.partition(":")[2]](task, lambda place: None)
                    Counted.calls += rchar() - before
                    yield TaskResult(task, [answer])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "ordered_map", in_turn)
    monkeypatch.setattr(make_shards, "ordered_map", in_turn)
    monkeypatch.setattr(plan, "ordered_map", in_turn)
    monkeypatch.setattr(plan, "LEAST_BYTES", 1000)
    monkeypatch.setattr(job_module, "LEAST_BYTES", 1000)
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 14)
    for module, name, value in (
        (lines, "_CUT_BYTES", 1000),
        (jsonl, "_PART_BYTES", 50_000),
        (jsonl, "_COUNTED_BYTES", 512),
        (jsonl, "_MARK_BYTES", 700),
        (jsonl, "_PIECE_BYTES", 2048),
    ):
        monkeypatch.setattr(module, name, value)
    yield
    HELD.clear()


@contextmanager
def process(number):
    """Let this process have read what the process of that number has read, and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        held, on = HELD.setdefault(number, (opening._OpenLargeFile(), jsonl._ForwardReader()))
        patch.setattr(opening, "_HELD", held)
        patch.setattr(jsonl, "READ_ON", on)
        yield


def rchar():
    """Return how many bytes this process has read, of any file."""
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])


class Counted(io.BytesIO):
    """A file that counts what is read of it; and what the tasks have read in all."""

    total = calls = 0

    def read(self, size=-1):
        data = super().read(size)
        Counted.total += len(data)
        return data


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(Counted, "total", 0)
    monkeypatch.setattr(jsonl, "_opened", lambda path: Counted(path.read_bytes()))
    return Counted


def write(folder, name="a.jsonl", last=True):
    """Write lines of which some are blank or broken."""
    folder.mkdir(exist_ok=True)
    odd = {5: "", 400: "{", 777: '{"text": 5}', 1200: "x" * 5000}
    texts = [json.dumps({"text": f"{i} " + "word " * (i % 50)}) for i in range(COUNT)]
    said = "\n".join(odd.get(i, line) for i, line in enumerate(texts)) + "\n" * last
    (folder / name).write_text(said)
    os.utime(folder / name, ns=(10**9, 10**9))
    return (folder / name).stat().st_size


@pytest.mark.parametrize("last", [True, False])
def test_lines_are_read_once(tmp_path, counted, last):
    size = write(tmp_path / "data", last=last)
    run = run_scan(LINES, Request(tmp_path / "data", output=tmp_path / "run"))
    assert len(run.listing.marks["a.jsonl"]) > 100
    counted.total = 0
    (built,) = build(LINES, tmp_path / "data", tmp_path / "out", run=run)
    assert built.shards > 10
    assert counted.total <= 1.1 * size
    cache = open_cache(built.path)
    made = np.flatnonzero(cache.made)
    for key, text in zip(cache.keys(made), cache.texts("text", made), strict=True):
        assert text == f"{int(key[-12:])} " + "word " * (int(key[-12:]) % 50)
    assert int(cache.made.sum()) == COUNT - 4 == built.samples - 3  # a blank line is no sample


def test_a_scan_that_opens_nothing_knows_where_lines_begin(tmp_path, counted):
    size = write(tmp_path / "data")
    one = run_scan(LINES, Request(tmp_path / "data", output=tmp_path / "run"))
    write(tmp_path / "data", "b.jsonl")
    # Of an earlier scan in part
    run = run_scan(LINES, Request(tmp_path / "data", output=tmp_path / "run"))
    again = run_scan(LINES, Request(tmp_path / "data", output=tmp_path / "run"))  # and as a whole
    for found in (run, again):
        np.testing.assert_array_equal(found.listing.marks["a.jsonl"], one.listing.marks["a.jsonl"])
        assert len(found.listing.marks) == 2
    counted.total = 0
    build(LINES, tmp_path / "data", tmp_path / "out", run=again)
    assert counted.total <= 1.1 * 2 * size


def test_marks_begin_lines(tmp_path):
    write(tmp_path / "data")
    run = run_scan(LINES, Request(tmp_path / "data", output=tmp_path / "run"))
    data = (tmp_path / "data/a.jsonl").read_bytes()
    for place, line in run.listing.marks["a.jsonl"].tolist():
        assert data[place - 1 : place] == b"\n"
        assert data[:place].count(b"\n") == line


@pytest.mark.parametrize("change", ["none known", "an earlier version"])
def test_without_marks_the_same_cache_is_made(tmp_path, change):
    write(tmp_path / "data")
    run = run_scan(LINES, Request(tmp_path / "data", output=tmp_path / "run"))
    (built,) = build(LINES, tmp_path / "data", tmp_path / "out", run=run)
    marks = dict(run.listing.marks)
    run.listing.marks.clear()
    assert {
        path: some.tolist() for path, some in job_of(of_schema(LINES), run, "").marks.items()
    } == {path: some.tolist() for path, some in marks.items()}
    if change == "an earlier version":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "_CUT_BYTES", 1 << 30)
            assert not job_of(of_schema(LINES), run, "").marks
            (other,) = build(LINES, tmp_path / "data", tmp_path / "other", run=run)
    else:
        (other,) = build(LINES, tmp_path / "data", tmp_path / "other", run=run)
    files = [
        sorted(p for p in b.path.rglob("*") if p.is_file() and p.name != "build.json")
        for b in (built, other)
    ]
    assert [p.relative_to(built.path) for p in files[0]] == [
        p.relative_to(other.path) for p in files[1]
    ]
    assert all(one.read_bytes() == two.read_bytes() for one, two in zip(*files, strict=True))


def write_rows(path):
    """Write rows of which a library reads many at once: packed members, chunks, one row group."""
    rows = np.random.default_rng(0).random((ROWS, 21, 3), np.float32)
    path.parent.mkdir()
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez_compressed(path, joints=rows)
    elif path.suffix == ".hdf5":
        with h5py.File(path, "w") as file:
            file.create_dataset("joints", data=rows, chunks=(150, 3, 3))
    else:
        inner = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 3)
        column = pa.FixedSizeListArray.from_arrays(inner, 21)
        if path.name == "lists.parquet":
            column = column.cast(pa.list_(pa.list_(pa.float32())))
        size = 100 if path.name == "groups.parquet" else ROWS
        pq.write_table(
            pa.table({"joints": column}), path, use_dictionary=False, row_group_size=size
        )
    os.utime(path, ns=(10**9, 10**9))
    return rows


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "name", ["a.npy", "a.npz", "a.hdf5", "a.parquet", "lists.parquet", "groups.parquet"]
)
def test_rows_are_read_once(tmp_path, monkeypatch, name, workers):
    rows = write_rows(tmp_path / "data" / name)
    size = (tmp_path / "data" / name).stat().st_size
    schema = schema_of(ROW, files=f"*.{name.partition('.')[2]}", samples={"each": "row"})
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", size // 4)
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 15)
    monkeypatch.setattr(opening, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(npy, "_FIRST_READ", 1000)
    monkeypatch.setattr(row_slices, "LEAST_BYTES", 1000)
    run = run_scan(schema, Request(tmp_path / "data", output=tmp_path / "run"))
    monkeypatch.setattr(Counted, "calls", 0)
    HELD.clear()
    TASKS.clear()
    (built,) = build(schema, tmp_path / "data", tmp_path / "out", run=run, workers=workers)
    assert built.shards > 30
    # Arrow reads so much of each file's end
    footers = (1 + workers) * (64 << 10) if name.endswith("parquet") else 0
    assert size < Counted.calls <= 1.1 * size + footers
    orders = [order for task in TASKS for order in task["items"] if "g" in order]
    # Its 128 keys take 4,000 bytes twice
    assert max(len(json.dumps(order)) for order in orders) < 1000
    assert len(HELD) == (1 if name in {"a.npz", "a.parquet", "lists.parquet"} else workers)
    cache = open_cache(built.path)
    np.testing.assert_array_equal(cache.gather("joints", np.arange(ROWS)), rows)


def test_only_what_the_scan_found_to_be_arrays_is_taken_as_even(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for name, lengths in (("a", [2] * 8), ("b", [2] * 7 + [3])):
        table = {"even": [[1.0, 2.0]] * 8, "own": [[1.0] * length for length in lengths]}
        pq.write_table(pa.table(table), tmp_path / f"data/{name}.parquet")
    schema = schema_of({"even": {}, "own": {}}, files="*.parquet", samples={"each": "row"})
    monkeypatch.setattr(job_module, "LEAST_BYTES", 1)
    job = job_of(
        of_schema(schema), run_scan(schema, Request(tmp_path / "data", output=tmp_path / "run")), ""
    )
    assert even_fields(job) == {0: ("even", "own"), 1: ("even",)}


@pytest.mark.parametrize("workers", [1, 3])
def test_packed_lines_are_unpacked_once(tmp_path, monkeypatch, workers):
    write(tmp_path / "data")
    path = tmp_path / "data/a.jsonl"
    rng = np.random.default_rng(0)
    lines_of = [json.dumps({"text": f"{i} {rng.bytes(100).hex()}"}) for i in range(COUNT)]
    path.unlink()
    path.with_name("a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines_of).encode()))
    schema = schema_of({"text": {"role": "text"}}, files="*.jsonl.gz", samples={"each": "line"})
    run = run_scan(schema, Request(tmp_path / "data", output=tmp_path / "run"))
    opened = []
    inner = jsonl._opened
    monkeypatch.setattr(jsonl, "_opened", lambda path: opened.append(path.name) or inner(path))
    monkeypatch.setattr(jsonl, "marked", lambda path: False)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 15)
    (built,) = build(schema, tmp_path / "data", tmp_path / "out", run=run, workers=workers)
    assert built.shards > 10
    assert opened == ["a.jsonl.gz"]
    cache = open_cache(built.path)
    assert cache.texts("text", np.arange(COUNT)) == [json.loads(line)["text"] for line in lines_of]
