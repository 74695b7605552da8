"""What is kept of fields that the schema does not list does not depend on the order of files, and fits in memory."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.model.table import Measured, concatenate
from datacheck.scan import Request, run_scan
from datacheck.scan.rows import BoundedTables, MemoryLimit
from datacheck.schema.load import parse_schema
from tests.scan.conftest import make_schema, make_table

SCHEMA = parse_schema("datacheck: 1\nname: s\nsamples: {files: '*'}\nfields: {x: {}}\n")


def rows(count, **widths):
    """Return rows with what was measured of fields, by name the numbers of a row."""
    table = make_table([f"{'-'.join(widths)}{number:03d}" for number in range(count)])
    for name, width in widths.items():
        table.columns[f"{name}:max"] = Measured(np.ones((count, width)), np.ones(count, bool))
        table.columns[f"{name}:ndim"] = Measured(np.ones(count, np.int64), np.ones(count, bool))
    return table


def fields(kept):
    columns = {name.partition(":") for table in kept.tables() for name in table.columns}
    return sorted({name for name, _, stat in columns if stat != "left_out"})


def test_the_first_64_fields_by_name_are_kept_and_listed_ones_always():
    names = [f"f{number:03d}" for number in range(70)]
    for parts in ((names[::2], names[1::2]), (names[1::2], names[::2])):
        kept = BoundedTables(SCHEMA, [rows(1, x=3, **dict.fromkeys(part, 3)) for part in parts])
        assert fields(kept) == [*names[:64], "x"]
        assert kept.holds("f063")
        assert not kept.holds("f064")


# What does not fit is taken out at the end, or at once
@pytest.mark.parametrize("most", [1 << 40, 0])
def test_a_wide_field_of_one_file_counts_for_the_rows_of_all(monkeypatch, most):
    # Of a, each row takes 8 * 2 + 1 and 8 + 1 bytes: of 101 rows 2,626. Of b it takes 8 * 64 + 1
    # and 8 + 1: 52,722.
    tables = [rows(50, a=2, x=4), rows(50, a=1, c=1), rows(1, b=64)]
    for room, left in (
        (2_625, ["x"]),
        (2_626, ["a", "x"]),
        (55_347, ["a", "x"]),
        (55_348, ["a", "b", "x"]),
    ):
        monkeypatch.setattr("datacheck.scan.rows.UNLISTED", MemoryLimit(room, 0, 1 << 40, 64))
        for order in itertools.permutations(tables):
            kept = BoundedTables(SCHEMA)
            for table in order:
                kept.add(table)
                if not most:
                    kept.tables()
            assert fields(kept) == left
            assert sum(map(len, kept.tables())) == 101


def wide(count, first, width):
    """Return rows of the listed field x that hold two columns of so many numbers, and one of a single number."""
    table = make_table([f"{first}{number:04d}" for number in range(count)])
    for stat, numbers in {"lows": width, "highs": width, "max": 1}.items():
        table.columns[f"x:{stat}"] = Measured(
            np.ones((count, numbers), np.float32), np.ones(count, bool)
        )
    return table


def test_wide_columns_of_a_listed_field_are_kept_as_far_as_memory_allows():
    # Two columns of 1,000 numbers are counted with 36,000 bytes a row, of which a row may take
    # 1,024: 128 MiB are left for the other 34,976 bytes of 3,837 rows.
    for rows, left in ((3_837, ["x:highs", "x:lows", "x:max"]), (3_838, ["x:left_out", "x:max"])):
        parts = wide(1_000, "a", 1_000), wide(rows - 1_000, "b", 1_000)
        for order in itertools.permutations(parts):
            tables = BoundedTables(SCHEMA, order).tables()
            assert {name for table in tables for name in table.columns} == set(left)
    few = BoundedTables(SCHEMA, [wide(5_000, "a", 64)]).tables()
    assert set(few[0].columns) == {"x:highs", "x:lows", "x:max"}


def kept_alone(*tables):
    """Return what is kept of some rows and then of these and others, as of a child's, or of an earlier scan."""
    return BoundedTables(
        SCHEMA, [concatenate(BoundedTables(SCHEMA, [table]).tables()) for table in tables]
    )


def test_rows_that_lack_wide_columns_count_as_if_they_held_them():
    every = wide(5_000, "a", 1_000), wide(10, "b", 1_000)
    for order in itertools.permutations(every):
        kept = kept_alone(*order)
        assert {name for table in kept.tables() for name in table.columns} == {
            "x:left_out",
            "x:max",
        }
        assert not kept.lack()
    assert set(kept.tables()[0].columns["x:left_out"].values.tolist()) == {36_000}


def test_rows_that_lack_unlisted_fields_let_no_other_rows_keep_them(monkeypatch):
    """One child has both, and room for one; another has the second alone, which would be judged by its rows alone."""
    monkeypatch.setattr(
        "datacheck.scan.rows.UNLISTED", MemoryLimit(30 * 26 + 10 * 50, 0, 1 << 40, 64)
    )
    for order in itertools.permutations([rows(30, a=2, b=5), rows(10, b=5)]):
        assert fields(kept_alone(*order)) == ["a"]
        assert kept_alone(*order).named({"a", "b"}) == {"a", "b (not read)"}


def test_rows_of_an_earlier_scan_lack_wide_columns_where_they_fit_now():
    """Two samples of them and two new ones would be judged by the new ones alone."""
    before = concatenate(BoundedTables(SCHEMA, [wide(5_000, "a", 1_000)]).tables())
    assert BoundedTables(SCHEMA, [before.take(np.arange(2)), wide(2, "b", 1_000)]).lack()
    assert BoundedTables(SCHEMA, [before.take(np.arange(2))]).lack()
    assert not BoundedTables(SCHEMA, [before, wide(2, "b", 1_000)]).lack()
    assert not BoundedTables(SCHEMA, [wide(2, "b", 1_000)]).lack()
    many = concatenate(
        BoundedTables(SCHEMA, [rows(2, **{f"f{number:03}": 1 for number in range(65)})]).tables()
    )
    assert not BoundedTables(SCHEMA, [many]).lack()
    assert BoundedTables(SCHEMA, [many]).lack(partly=True)
    assert not BoundedTables(SCHEMA, [rows(2, a=1)]).lack(partly=True)


def test_a_later_scan_of_fewer_wide_episodes_judges_as_a_first_one_does(tmp_path, monkeypatch):
    # For ten of them
    monkeypatch.setattr("datacheck.scan.rows.WIDE", MemoryLimit(2 * 100 * 18 * 10, 0, 1 << 40, 64))
    rng = np.random.default_rng(0)

    def write(number):
        values = rng.normal(size=(20, 100)).astype(np.float32)
        values[:, 7] = number // 2  # it moves, but not within the two new ones
        np.save(tmp_path / f"data/{number:02}.npy", values)

    def verdict():
        run = run_scan(schema, Request(tmp_path / "data"))
        return next(v.verdict.value for v in run.report.verdicts if v.code == "DC223")

    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    schema = make_schema(
        {"x": {"role": "action", "shape": ["T", 100], "at": "array"}}, samples={"files": "{id}.npy"}
    )
    for number in range(15):
        write(number)
    assert verdict() == "skip"
    for number in range(13):
        (tmp_path / f"data/{number:02}.npy").unlink()
    for number in (20, 21):
        write(number)
    assert verdict() == "pass"


def test_long_names_of_values_that_are_not_read_take_little_room(tmp_path):
    """Columns of time spans are not read: 40 names of 100,000 characters each."""
    (tmp_path / "data").mkdir()
    spans = pa.array([1, 2], pa.duration("s"))
    for file in range(2):
        names = {f"{file}{number}" + "n" * 100_000: spans for number in range(20)}
        pq.write_table(pa.table({"x": [1.0, 2.0]} | names), tmp_path / f"data/{file}.parquet")
    schema = parse_schema(
        "datacheck: 1\nname: s\nsamples: {files: '*.parquet', each: row}\nfields: {x: {}}\n"
    )
    run_scan(schema, Request(tmp_path / "data", output=tmp_path / "run"))
    assert sum(path.stat().st_size for path in (tmp_path / "run").iterdir()) < 1_000_000
