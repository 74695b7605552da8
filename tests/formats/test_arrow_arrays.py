"""Arrow arrays are read from their buffers: the values equal those of pyarrow, and pandas stays out."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from datacheck.formats import arrow_columns
from datacheck.model.arrow_arrays import flattened, list_lengths, numbers, present
from tests.meta.test_imports import loaded

KINDS = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
]
SLICES = [(0, 40), (0, 0), (3, 20), (8, 8), (13, 27)]


@pytest.mark.parametrize(("start", "count"), SLICES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_are_those_of_arrow(kind, start, count):
    values = [bool(i % 3) if kind == pa.bool_() else i for i in range(40)]
    rows = pa.array(np.array(values), pa.bool_() if kind == pa.bool_() else None).cast(kind)
    rows = rows.slice(start, count)
    expected = rows.to_numpy(zero_copy_only=False)
    found = numbers(rows)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert present(rows).tolist() == [True] * count


@pytest.mark.parametrize(("start", "count"), SLICES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_null_entries_are_absent_and_the_others_have_their_values(kind, start, count):
    values = [None if i % 5 == 2 else (i % 2 if kind == pa.bool_() else i) for i in range(40)]
    rows = pa.array(values, pa.int8()).cast(kind).slice(start, count)
    assert present(rows).tolist() == [value is not None for value in rows.to_pylist()]
    valid = rows.drop_null().to_numpy(zero_copy_only=False)
    assert np.array_equal(numbers(rows)[present(rows)], valid)


@pytest.mark.parametrize(
    "kind",
    [
        pa.date32(),
        pa.date64(),
        pa.time32("ms"),
        pa.time64("ns"),
        pa.timestamp("us"),
        pa.timestamp("s", "Asia/Tokyo"),
        pa.duration("ms"),
    ],
    ids=str,
)
def test_dates_and_times_are_counts(kind):
    rows = pa.array([0, 1, 86_400_000, 5], pa.int64())
    rows = (rows.cast(pa.int32()) if kind.bit_width == 32 else rows).cast(kind)
    assert numbers(rows).tolist() == [0, 1, 86_400_000, 5]
    assert arrow_columns._values(pa, rows, 0, 1).dtype == np.dtype("<i8")


def test_an_interval_is_no_number():
    rows = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(pa.ArrowNotImplementedError):
        arrow_columns._values(pa, rows, 0, 1)


@pytest.mark.parametrize(("start", "count"), [(0, 6), (1, 4), (2, 0), (5, 1)])
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)], ids=str
)
def test_lists_have_the_lengths_and_items_that_arrow_gives(kind, absent, start, count):
    fixed = hasattr(kind, "list_size")
    lists = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]
    lists = lists if fixed else [[1], [2, 3], [], [4, 5, 6], [7], [8, 9]]
    lists[3] = None if absent else lists[3]
    rows = pa.array(lists, kind).slice(start, count)
    expected = [0 if entry is None else len(entry) for entry in rows.to_pylist()]
    assert list_lengths(rows).tolist() == expected
    assert flattened(rows).to_pylist() == pc.list_flatten(rows).to_pylist()


READ = """
from pathlib import Path
from datacheck.formats.base import open_container
with open_container(Path({path!r})) as container:
    names = container.names()
    assert len(names) == {count}
    for name in names:
        container.peek(name), container.read(name)
"""


def test_a_table_is_read_without_pandas(tmp_path):
    pytest.importorskip("pandas", reason="where there is none, none can be imported")
    columns = {
        "x": np.arange(9.0),
        "y": pa.array([None, *range(8)], pa.float32()),
        "lists": pa.array([[i, i] for i in range(9)], pa.list_(pa.int64())),
        "day": pa.array([dt.date(2020, 1, 1 + i) for i in range(9)]),
        "words": pa.array(["a", None, "b"] * 3).dictionary_encode(),
        "flag": [True, False, True] * 3,
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    rows = [f"2020-01-0{i},{i},{i / 8},true,,a" for i in range(1, 9)]
    (tmp_path / "a.csv").write_text(
        "\n".join(["day,n,x,flag,none,word", *rows, "2020-02-01,,1,,,"])
    )
    for name, count in (("a.parquet", 6), ("a.csv", 5)):
        script = READ.format(path=str(tmp_path / name), count=count)
        assert "pandas" not in loaded(script)
    assert "pandas" in loaded(script + "\nimport pyarrow; pyarrow.array([1.5]).to_numpy()")
