"""Parquet: columns have the values that pyarrow was given, whole and in part."""

from __future__ import annotations

import io
import os
import re
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.errors import FormatError
from datacheck.formats import parquet
from datacheck.formats.base import open_container
from datacheck.formats.parquet_extents import check_extents
from tests.formats.reading import CORPUS, read_all

PARQUET = CORPUS / "parquet"


def test_columns_are_arrays_with_an_axis_for_each_level_of_lists():
    found = read_all(PARQUET / "y_types.parquet")
    steps = np.arange(12, dtype="f4").reshape(6, 2) / 4
    for name in ("observation.state", "action"):
        assert np.array_equal(found[name], steps)
        assert found[name].dtype == ("f8" if name == "observation.state" else "f4")
    assert np.array_equal(found["pose"], np.stack([np.eye(2)] * 6))
    assert (found["half"].dtype, found["half"].tolist()) == (np.float16, [0, 0.5, 1, 1.5, 2, 2.5])
    assert (found["index"].dtype, found["index"].tolist()) == (np.uint8, list(range(6)))
    assert found["done"].tolist() == [False] * 5 + [True]
    assert found["time"].tolist() == found["day"].tolist() == list(range(6))
    assert found["task"] == ["a cup", "café", "", "x", "y", "z"]
    assert found["label"] == ["up", "down"] * 3
    assert found["ragged"] == [[1], [], [2, 3], [], [], [4]]
    assert found["words"] == [["a"], [], ["b", "c"], [], [], []]
    assert found["record"] == [{"x": 1}] * 6
    assert "picture" not in found


def test_bytes_say_that_they_are_not_read():
    with (
        open_container(PARQUET / "y_types.parquet") as table,
        pytest.raises(FormatError, match="picture: values of type"),
    ):
        table.read("picture")


CHATS = [
    [
        {"role": "user", "content": "a", "calls": None},
        {"role": "gpt", "content": None, "calls": [1]},
    ],
    [],
    None,
    [{"role": "user", "content": "é\n", "calls": []}],
    [{"role": None, "content": "", "calls": [2, 3]}, None],
]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_records_are_the_values_that_were_written(tmp_path, ending):
    rows = [{"id": i, "chat": CHATS[i % 5], "one": {"x": [[i], []], "y": i / 4}} for i in range(60)]
    table, path = pa.Table.from_pylist(rows), tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=7)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    with open_container(path) as file:
        assert file.names() == ["chat", "id", "one"]
        assert file.passed == []
        for name in ("chat", "one"):
            wanted = [row[name] for row in rows]
            assert (file.peek(name), file.sliced(name)) == (((), "json"), 60)
            assert file.read(name) == wanted
            for start, stop in ((0, 1), (5, 9), (40, 60), (3, 3), (59, 99)):
                assert file.read_rows(name, start, stop) == wanted[start:stop]


@pytest.mark.parametrize(
    "value", [{"a": b"bytes"}, {"a": [{"bytes": b""}]}, {"a": date(2026, 1, 1)}]
)
def test_records_of_bytes_and_dates_are_not_read(tmp_path, value):
    pq.write_table(pa.Table.from_pylist([{"x": value, "n": 1}]), tmp_path / "a.parquet")
    with open_container(tmp_path / "a.parquet") as file:
        assert (file.names(), file.passed) == (["n"], ["x"])
        with pytest.raises(FormatError, match="x: values of type"):
            file.read("x")


def test_records_with_an_infinite_number_are_refused_and_nan_is_null(tmp_path):
    rows = [{"x": [{"y": 1.0}, {"y": None}]}, {"x": [{"y": np.nan}]}, {"x": [{"y": np.inf}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with open_container(tmp_path / "a.parquet") as file:
        with pytest.raises(FormatError, match="a number that is infinite"):
            file.read("x")
        assert file.read_rows("x", 0, 2) == [rows[0]["x"], [{"y": None}]]


def test_what_lies_below_a_null_record_is_not_judged(tmp_path):
    records = pa.StructArray.from_arrays(
        [pa.array([np.inf, 1.0, 2.0])], ["a"], mask=pa.array([True, False, False])
    )
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("x", records.type)])) as writer:
        writer.write_batch(pa.record_batch([records], names=["x"]))
    with open_container(tmp_path / "a.arrow") as file:
        assert file.read("x") == [None, {"a": 1.0}, {"a": 2.0}]


def test_texts_of_a_dictionary_are_read_in_records_and_counted(tmp_path):
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), ["a", "b"])
    pq.write_table(
        pa.table({"x": pa.StructArray.from_arrays([words], ["w"])}), tmp_path / "a.parquet"
    )
    with open_container(tmp_path / "a.parquet") as file:
        assert file.read("x") == [{"w": "b"}, {"w": "a"}, {"w": "b"}]
    many = pa.DictionaryArray.from_arrays(pa.nulls(5000, pa.int8()).fill_null(0), ["x" * 100_000])
    table = pa.table({"x": pa.StructArray.from_arrays([many], ["w"])})
    with pa.ipc.new_file(tmp_path / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    with (
        open_container(tmp_path / "b.arrow") as file,
        pytest.raises(FormatError, match=r"records: .* bytes; at most"),
    ):
        file.read("x")


def test_a_record_with_two_fields_of_one_name_is_not_read(tmp_path):
    kind = pa.struct([("a", pa.int8()), ("a", pa.int8())])
    records = pa.StructArray.from_buffers(
        kind, 1, [None], children=[pa.array([1], pa.int8()), pa.array([2], pa.int8())]
    )
    pq.write_table(pa.table({"x": records, "n": [1]}), tmp_path / "a.parquet")
    with open_container(tmp_path / "a.parquet") as file:
        assert (file.names(), file.passed) == (["n"], ["x"])


def test_empty_records_without_end_are_refused(tmp_path):
    count = 1 << 23  # each takes no byte in the file, and 64 in memory
    items = pa.StructArray.from_arrays([pa.nulls(count)], ["a"])
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), items)
    pq.write_table(pa.table({"x": lists}), tmp_path / "a.parquet")
    with (
        open_container(tmp_path / "a.parquet") as file,
        pytest.raises(FormatError, match="records: 1,073,741,888 bytes; at most"),
    ):
        file.read("x")


def test_a_column_that_is_known_to_be_even_is_not_read_to_know_it(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_LARGE_BYTES", 1000)
    monkeypatch.setattr(parquet, "_BUFFER_BYTES", 1 << 16)
    rows = np.random.default_rng(0).random((5000, 100), np.float32)
    pq.write_table(
        pa.table({"a": rows.tolist()}),
        tmp_path / "a.parquet",
        use_dictionary=False,
        data_page_size=1 << 16,
    )
    size = (tmp_path / "a.parquet").stat().st_size
    read = []
    for known in (True, False):
        os.utime(tmp_path / "a.parquet", (0, known))  # or this process knows it
        with open_container(tmp_path / "a.parquet") as container:
            if known:
                container.assume_uniform("a")
            before = _read_bytes()
            assert container.peek("a") == ((5000, 100), "<f8")
            read.append(_read_bytes() - before)
            np.testing.assert_array_equal(container.read_rows("a", 10, 20), rows[10:20])
    assert read[0] < 0.2 * size < size < read[1]


def _read_bytes():
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])


def test_reading_begins_with_a_row_group(tmp_path):
    pq.write_table(pa.table({"a": np.arange(10)}), tmp_path / "a.parquet", row_group_size=4)
    with open_container(tmp_path / "a.parquet") as container:
        assert container.seek_points("a").tolist() == [0, 4, 8]


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (0, 1), (2, 4), (3, 6), (9, 12), (5, 5)])
def test_rows_are_those_of_the_whole_whatever_row_groups_they_lie_in(start, stop):
    with open_container(PARQUET / "y_groups.parquet") as table:
        assert table.read_rows("x", start, stop).tolist() == list(range(10))[start:stop]
        assert np.array_equal(table.read_rows("v", start, stop), table.read("v")[start:stop])


def test_only_the_row_groups_that_are_asked_for_are_read(tmp_path):
    """The last row group is damaged."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"x": np.arange(90)}),
        path,
        row_group_size=30,
        write_page_checksum=True,
        use_dictionary=False,
        compression="none",
    )
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(70, 75).tobytes())] ^= 1
    path.write_bytes(data)
    with open_container(path) as table:
        assert table.read_rows("x", 10, 60).tolist() == list(range(10, 60))
        with pytest.raises(FormatError, match="CRC"):
            table.read("x")


def test_a_column_far_larger_than_its_bytes_is_not_unpacked(tmp_path):
    zeros = pa.DictionaryArray.from_arrays(np.zeros(1 << 26, "i1"), np.zeros(1))
    pq.write_table(
        pa.table({"x": zeros}), tmp_path / "a.parquet", compression="zstd", row_group_size=1 << 26
    )
    with (
        open_container(tmp_path / "a.parquet") as table,
        pytest.raises(FormatError, match="1100:1"),
    ):
        table.read("x")


@pytest.mark.parametrize("at", [1, 5, 9])
def test_a_header_tells_lists_of_one_length_from_others(tmp_path, at):
    """Whatever row differs: the first one does not speak for all."""
    lists = [[float(i), 1.0] for i in range(10)]
    other = [*lists[:at], [1.0], *lists[at + 1 :]]
    nested = [[row, row] for row in lists]
    uneven = [*nested[:at], [lists[0], [1.0]], *nested[at + 1 :]]
    columns = {
        "even": lists,
        "other": other,
        "nested": nested,
        "uneven": uneven,
        "none": [None, *lists[1:]],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=4)
    with open_container(tmp_path / "a.parquet") as container:
        assert (
            container.peek("even")
            == ((10, 2), "<f8")
            == (container.read("even").shape, container.read("even").dtype.str)
        )
        assert container.peek("nested") == ((10, 2, 2), "<f8")
        assert container.peek("other") == ((), "json")
        assert container.peek("uneven") == ((), "json")
        with pytest.raises(FormatError, match=r"entry 0 is empty \(null\)"):
            container.peek("none")


def test_an_empty_place_is_nan_among_floats_and_an_empty_text_among_texts():
    with open_container(PARQUET / "y_null.parquet") as table:
        np.testing.assert_array_equal(table.read("x"), [1.5, np.nan])
        assert table.read("t") == ["a", ""]
        np.testing.assert_array_equal(table.read("v"), [[1.5], [np.nan]])
        assert table.read_rows("x", 1, 2).dtype == table.peek("x")[1] == "<f8"


@pytest.mark.parametrize(
    "values", [[1, None], [True, None], [date(2026, 1, 1), None], [[1], None], [["a"], None]]
)
def test_other_empty_places_are_refused(tmp_path, values):
    """A whole number has no value that means "none"; with NaN the dtype of a column would depend on its rows."""
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    with (
        open_container(tmp_path / "a.parquet") as table,
        pytest.raises(FormatError, match=r"entry 1 is empty \(null\)"),
    ):
        table.read("x")


def _parquet(rows: int, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": np.random.default_rng(rows).random(rows)}), sink, **options)
    return sink.getvalue().to_pybytes()


def _with_gap(data: bytes, gap: bytes) -> bytes:
    """Return a file with bytes between its columns and its footer."""
    tail = int.from_bytes(data[-8:-4], "little") + 8
    return data[:-tail] + gap + data[-tail:]


@pytest.mark.parametrize("rows", [1, 10, 5000])
def test_two_files_joined_are_refused(tmp_path, rows):
    path = tmp_path / "a.parquet"
    path.write_bytes(_parquet(rows) * 2)
    with pytest.raises(FormatError, match="two Parquet files joined"):
        open_container(path)


def test_bytes_that_no_column_names_have_a_limit(tmp_path):
    path = tmp_path / "a.parquet"
    data = _parquet(100)
    fixed = 65_536 + int.from_bytes(data[-8:-4], "little")
    # Of `most` bytes, all but `fixed` are 1 % of the file, which holds them, too.
    most = fixed + (len(data) + fixed) // 99
    path.write_bytes(_with_gap(data, b"x" * most))
    assert len(read_all(path)["a"]) == 100
    path.write_bytes(_with_gap(data, b"x" * (most + 1)))
    with pytest.raises(FormatError, match=f"{most + 1:,} of .* belong to no column"):
        open_container(path)


def test_zeros_that_no_column_names_are_padding(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(_with_gap(_parquet(100), bytes(3 << 20)))
    assert len(read_all(path)["a"]) == 100


def test_page_indexes_belong_to_a_file(tmp_path):
    path = tmp_path / "a.parquet"
    # 100,000 pages of one value: each takes 8 bytes of least and 8 of greatest value.
    data = _parquet(
        100_000, write_page_index=True, data_page_size=1, write_batch_size=1, use_dictionary=False
    )
    path.write_bytes(data)
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    assert len(data) - footer - 4 - chunk.total_compressed_size > 16 * 100_000
    assert len(read_all(path)["a"]) == 100_000


def _bloom(number: int) -> bytes:
    """Return a Bloom filter of `number` times 64 bytes with its header in the compact protocol."""
    size = 64 * number
    union = b"\x1c\x1c\x00\x00"  # a field of a structure that holds one empty structure
    return b"\x15" + _varint(2 * size) + union * 3 + b"\x00" + b"x" * size


@pytest.mark.parametrize("has_length", [True, False])
def test_bloom_filters_belong_to_a_file(has_length):
    header = len(_bloom(4000)) - 64 * 4000
    start = 4
    # In the footer: field 4 a list of one group, 1 a list of one chunk, 3 its metadata, 14 and 15.
    places = b"\x56" + _varint(2 * start)  # field 14 of metadata, at a distance of 5 from field 9
    places += b"\x15" + _varint(2 * (header + 64 * 4000)) if has_length else b""
    meta = b"\x76" + _varint(0) + b"\x26" + _varint(0) + places + b"\x00"
    footer = b"\x49\x1c" + b"\x19\x1c" + b"\x3c" + meta + b"\x00" + b"\x00" + b"\x00"
    data = b"PAR1" + _bloom(4000) + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    check_extents(io.BytesIO(data), len(data))
    lost = _with_gap(data, b"x" * 100_000)
    with pytest.raises(FormatError, match="belong to no column"):
        check_extents(io.BytesIO(lost), len(lost))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("names", [["a", "a.b"], ["a.b", "a"]])
def test_a_column_named_like_a_field_of_a_record_is_that_column(tmp_path, names):
    values = {"a": [{"b": "inner"}, {"b": "inner"}], "a.b": ["one", "two"]}
    pq.write_table(pa.table({name: values[name] for name in names}), tmp_path / "a.parquet")
    read = read_all(tmp_path / "a.parquet")
    assert list(read["a.b"]) == values["a.b"]
    assert list(read["a"]) == values["a"]
