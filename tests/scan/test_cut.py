"""A large file of lines that is read in parts gives what reading it whole gives."""

from __future__ import annotations

import gzip
import json
import os
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.formats import jsonl
from datacheck.model.table import CHECKED, UNREADABLE
from datacheck.runtime.hashing import digest_file
from datacheck.scan import Request, file_parts, measuring, run_scan
from datacheck.schema.load import parse_schema
from datacheck.sources import Item, lines

SCHEMA = """
datacheck: 1
name: texts
samples: {files: "*.jsonl", each: line, group: "{file}"}
fields: {text: {role: text, min_trained_tokens: 1}, n: {role: value, optional: true}}
"""
SECOND = 10**9


@pytest.fixture
def small_parts(monkeypatch):
    """Cut files of kilobytes as if they had gigabytes; only the coordinator cuts."""
    monkeypatch.setattr(lines, "_CUT_BYTES", 1000)
    monkeypatch.setattr(jsonl, "_PART_BYTES", 2000)
    monkeypatch.setattr(jsonl, "_COUNTED_BYTES", 512)


def write(path, count=200, end=b"\n", last=True):
    """Write lines of which some are blank, broken, or of another kind."""
    odd = {
        5: b"",
        17: b"{",
        40: b'{"text": "a"},{"text": "b"}',
        77: b"  ",
        110: b'{"text": 5}',
        150: b'{"text": "\xff"}',
    }
    good = [
        json.dumps({"text": f"{i} 你好\u3000" + "word " * (i % 9), "n": i}).encode()
        for i in range(count)
    ]
    path.write_bytes(
        end.join(odd.get(i, line) for i, line in enumerate(good)) + (end if last else b"")
    )
    os.utime(path, ns=(SECOND, SECOND))
    return path


def scan(data, output, **more):
    progress = more.pop("progress", None)
    run = run_scan(parse_schema(SCHEMA), Request(data, output=output, **more), progress)
    return run, {name: (output / name).read_bytes() for name in ("samples.parquet", "valid.json")}


@given(
    st.lists(st.sampled_from([b"a", b"", b"long" * 9, b"\r", b"x" * 70]), max_size=30),
    st.booleans(),
    st.integers(1, 90),
    st.integers(1, 4),
    st.integers(1, 50),
)
def test_parts_are_whole_lines_and_come_to_the_file(
    tmp_path_factory, texts, end, nbytes, most, counted
):
    path = tmp_path_factory.mktemp("parts") / "a.jsonl"
    path.write_bytes(b"\n".join(texts) + (b"\n" if end else b""))
    data = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("_PART_BYTES", nbytes),
            ("PART_LINES", most),
            ("_COUNTED_BYTES", counted),
        ):
            patch.setattr(jsonl, name, value)
        found = list(jsonl.parts(path))
    assert [digest for _, digest in found] == [""] * (len(found) - 1) + [digest_file(path)]
    spans = [span for span, _ in found]
    assert b"".join(data[start:stop] for start, stop, _ in spans) == data
    for start, _, line in spans:
        assert line == data[:start].count(b"\n")
        assert start == 0 or data[start - 1 : start] == b"\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_parts_say_what_the_whole_says_whatever_the_workers(in_tmp, monkeypatch, end, last):
    (in_tmp / "data").mkdir()
    path = write(in_tmp / "data/a.jsonl", end=end, last=last)
    whole, files = scan(in_tmp / "data", in_tmp / "whole")
    assert {CHECKED, UNREADABLE} == set(whole.table.status.tolist())
    monkeypatch.setattr(lines, "_CUT_BYTES", 1000)
    monkeypatch.setattr(jsonl, "_PART_BYTES", 2000)
    monkeypatch.setattr(jsonl, "_COUNTED_BYTES", 512)
    for workers in (1, 2):
        parts, found = scan(in_tmp / "data", in_tmp / f"cut{workers}", workers=workers)
        assert found["samples.parquet"] == files["samples.parquet"]
        assert found["valid.json"] == files["valid.json"]
        assert [entry.digest for entry in parts.listing.entries] == [digest_file(path)]
        assert parts.table.keys == whole.table.keys


@pytest.mark.usefixtures("small_parts")
def test_an_unchanged_file_is_not_cut_again(in_tmp, monkeypatch):
    (in_tmp / "data").mkdir()
    write(in_tmp / "data/a.jsonl")
    _, first = scan(in_tmp / "data", in_tmp / "out")
    monkeypatch.setattr(jsonl, "parts", lambda path: pytest.fail("the file was read"))
    run, second = scan(in_tmp / "data", in_tmp / "out")
    assert second["samples.parquet"] == first["samples.parquet"]
    assert run.report.run["kept_files"] == 1


@pytest.mark.usefixtures("small_parts")
def test_a_scan_that_is_stopped_between_parts_goes_on_to_the_same_rows(in_tmp):
    (in_tmp / "data").mkdir()
    for name in ("a", "b", "c"):
        write(in_tmp / f"data/{name}.jsonl")
    _, wanted = scan(in_tmp / "data", in_tmp / "whole")
    for stop in (2, 5, 9):

        def interrupt(tick, seen=[0], stop=stop):  # noqa: B006
            seen[0] += 1
            if seen[0] > stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scan(in_tmp / "data", in_tmp / "out", progress=interrupt)
    _, found = scan(in_tmp / "data", in_tmp / "out")
    assert found["samples.parquet"] == wanted["samples.parquet"]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("size", ["same", "other"])
def test_a_file_that_changes_between_its_parts_is_no_sample(in_tmp, size):
    (in_tmp / "data").mkdir()
    path = write(in_tmp / "data/a.jsonl")
    write(in_tmp / "data/b.jsonl")
    ticks = []

    def change(tick):
        ticks.append(tick)
        if len(ticks) == 3:
            data = path.read_bytes().replace(b"word", b"WORD")
            path.write_bytes(data if size == "same" else data + b'{"text": "more"}\n')

    run, _ = scan(in_tmp / "data", in_tmp / "out", progress=change)
    mine = np.array([file == "a.jsonl" for file in run.table.files])
    assert set(run.table.status[mine].tolist()) == {UNREADABLE}
    assert {run.table.reasons[i].partition(";")[0] for i in np.flatnonzero(mine)} == {
        "DC101 it changed while it was read"
    }
    assert len(set(run.table.keys)) == len(run.table.keys)
    assert (run.table.status[~mine] == CHECKED).sum() > 100
    again, _ = scan(in_tmp / "data", in_tmp / "out")
    assert (again.table.status == CHECKED).sum() > 300


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["kill", "bug"])
def test_a_part_that_kills_its_reader_loses_no_other_part(in_tmp, monkeypatch, kind):
    monkeypatch.setattr(measuring, "_MEASURE", "tests.scan.misbehaving:measure_parts")
    (in_tmp / "data").mkdir()
    write(in_tmp / f"data/{kind}.jsonl")
    run, _ = scan(in_tmp / "data", in_tmp / "out")
    first = next(jsonl.parts(in_tmp / f"data/{kind}.jsonl"))[0]
    lost = [
        key
        for key, status in zip(run.table.keys, run.table.status, strict=True)
        if status == UNREADABLE
    ]
    assert lost.count(f"{kind}.jsonl") == 1
    assert len(set(run.table.keys)) == len(run.table.keys)
    assert (run.table.status == CHECKED).any()
    assert max(int(key[-12:]) for key in run.table.keys if ":" in key) < 60
    assert first.line == 0


@pytest.mark.usefixtures("small_parts")
def test_a_file_of_blank_lines_is_one_row_that_says_so(in_tmp):
    (in_tmp / "data").mkdir()
    (in_tmp / "data/a.jsonl").write_bytes(b" \n" * 5000)
    run, _ = scan(in_tmp / "data", in_tmp / "out")
    assert (run.table.keys, run.table.reasons) == (["a.jsonl"], ["DC101 holds no line"])


PACKED = SCHEMA.replace("*.jsonl", "*.jsonl.gz")


def packed(folder, **odd):
    (folder / "data").mkdir()
    path = folder / "data/a.jsonl.gz"
    path.write_bytes(gzip.compress(write(folder / "a.jsonl").read_bytes(), mtime=0, **odd))
    os.utime(path, ns=(SECOND, SECOND))
    return path


def scan_packed(folder, output, **more):
    run = run_scan(parse_schema(PACKED), Request(folder / "data", output=folder / output, **more))
    return run, [
        (folder / output / name).read_bytes() for name in ("samples.parquet", "valid.json")
    ]


@pytest.fixture
def small_packed(monkeypatch):
    """Return what lets packed files of kilobytes be cut into parts of 40 lines."""

    def small():
        monkeypatch.setattr(lines, "_LEAST_BYTES", 100)
        monkeypatch.setattr(jsonl, "PART_LINES", 40)
        monkeypatch.setattr(jsonl, "_PIECE_BYTES", 500)

    return small


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_parts_of_a_packed_file_say_what_the_whole_says_and_come_as_a_series_for_each_child(
    in_tmp, here, small_packed, workers
):
    path = packed(in_tmp)
    whole, files = scan_packed(in_tmp, "whole", workers=workers)
    assert here == [[None]]
    assert {CHECKED, UNREADABLE} == set(whole.table.status.tolist())
    here.clear()
    small_packed()
    parts, found = scan_packed(in_tmp, "cut", workers=workers)
    assert here[0] == [[0, -1]]
    others = [[[start, start + 40]] for start in (40, 80, 120, 160)]
    series = [one if isinstance(one, tuple) else (one,) for one in here[1:]]
    assert [part for one in series for part in one] == others
    assert len(series) == 1  # so small a file is worth one child
    assert found == files
    assert [entry.digest for entry in parts.listing.entries] == [digest_file(path)]


@pytest.mark.parametrize(("count", "most"), [(1, 4), (3, 4), (4, 4), (7, 4), (9, 2), (5, 1)])
def test_the_parts_of_a_packed_file_are_about_as_many_for_each_child(count, most):
    parts = [Item("a", rows=(place, place + 1)) for place in range(count)]
    series = list(file_parts._cut_series(parts, most))
    assert [part for one in series for part in one] == parts
    assert len(series) == min(count, most)
    lengths = [len(one) for one in series]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("place", [0.3, 0.97])
def test_a_packed_file_that_is_damaged_anywhere_is_refused_as_a_whole(
    in_tmp, here, small_packed, place
):
    path = packed(in_tmp)
    data = path.read_bytes()
    path.write_bytes(data[: int(place * len(data))])
    os.utime(path, ns=(SECOND, SECOND))
    whole, files = scan_packed(in_tmp, "whole")
    assert whole.table.keys == ["a.jsonl.gz"]
    assert "damaged gzip file" in whole.table.reasons[0]
    here.clear()
    small_packed()
    _, found = scan_packed(in_tmp, "cut")
    assert here == [[[0, -1]]]
    assert found == files


def test_children_read_a_large_packed_file_in_parts(in_tmp):
    draw = random.Random(0)
    text = "".join(
        f'{{"text": "{draw.getrandbits(128):032x}", "n": {i}}}\n' for i in range(530_000)
    ).encode()
    (in_tmp / "data").mkdir()
    (in_tmp / "data/a.jsonl.gz").write_bytes(gzip.compress(text, 1))
    ticks = []
    request = Request(in_tmp / "data", output=in_tmp / "out", workers=2)
    # The measures of texts would take four fifths of the time
    schema = parse_schema(PACKED.replace("text: {role: text, min_trained_tokens: 1}, ", ""))
    run = run_scan(schema, request, lambda tick: ticks.append((tick.files, tick.samples)))
    assert run.table.keys == [f"a.jsonl.gz:{i:012d}" for i in range(530_000)]
    assert (run.table.status == CHECKED).all()
    assert run.table.columns["n:max"].values.ravel().tolist() == list(range(530_000))
    assert ticks[-1] == (1, 530_000)
    assert len(ticks) >= 4  # one for each part, though only the last brings the file
