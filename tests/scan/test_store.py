import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.model.table import Measured, Table, Texts
from datacheck.scan import run_documents, samples
from tests.scan.conftest import make_table

ROWS = 5
PRESENT = np.array([True, False, True, True, False])


def columns():
    return {
        "x:u1": np.arange(ROWS, dtype=np.uint8),
        "x:f4": np.array([1, 2, np.nan, np.inf, 5], np.float32),
        "x:f2": np.full(ROWS, 2, np.float16),
        "x:b": np.array([True, False, False, True, True]),
        "x:u8": np.full(ROWS, 2**64 - 1, np.uint64),
        "x:i8": np.full(ROWS, -(2**62) - 1, np.int64),
        "x:v": np.arange(3 * ROWS, dtype=np.float64).reshape(ROWS, 3),
        "x:bv": np.arange(2 * ROWS).reshape(ROWS, 2) > 4,
        "x:wide": np.arange(6 * ROWS, dtype=np.int16).reshape(ROWS, 6)[:, ::2],
        "x:thousands": np.arange(4096.0 * ROWS).astype(np.float32).reshape(ROWS, 4096),
        ":text": np.array(["", "ä", "b", "c", "d"], dtype=object),
    }


@pytest.mark.parametrize("name", sorted(columns()))
@pytest.mark.parametrize("row_group", [2, 65_536])
def test_a_column_comes_back_from_parquet_bit_by_bit(tmp_path, monkeypatch, name, row_group):
    monkeypatch.setattr(samples, "_ROW_GROUP", row_group)
    values = columns()[name]
    table = make_table("abcde")
    table.columns[name] = Measured(values, PRESENT)
    (tmp_path / "t").write_bytes(samples.table_bytes(table))
    back = samples.read_table(tmp_path / "t").columns[name]
    assert back.values.dtype == values.dtype
    np.testing.assert_array_equal(back.present, PRESENT)
    np.testing.assert_array_equal(back.values[PRESENT], values[PRESENT])


@pytest.mark.parametrize(
    "values",
    [
        np.arange(ROWS, dtype=">i4"),
        np.arange(2.0 * ROWS).astype(">f8").reshape(ROWS, 2),
        np.array(["", "\u00e4", "b", "cc", "d"]),
        np.broadcast_to(np.array("all \u684c"), ROWS),
    ],
    ids=["numbers of another order", "vectors of another order", "texts", "one text"],
)
@pytest.mark.parametrize("present", [PRESENT, np.ones(ROWS, bool)], ids=["some", "all"])
def test_whatever_array_a_measurement_gives_its_values_are_kept(tmp_path, values, present):
    table = make_table("abcde")
    table.columns["x:v"] = Measured(values, present)
    (tmp_path / "t").write_bytes(samples.table_bytes(table))
    back = samples.read_table(tmp_path / "t").columns["x:v"]
    assert back.values[present].tolist() == values[present].tolist()


class Words(list):
    """Texts that are not to be gone through as a whole."""

    def __iter__(self):
        raise AssertionError


def test_for_one_of_many_row_groups_not_all_words_of_a_column_are_gone_through():
    texts = Texts(Words(f"scene {number}" for number in range(9)), np.arange(9, dtype=np.int32))
    assert samples._arrow_texts(pa, texts[3:6]).to_pylist() == ["scene 3", "scene 4", "scene 5"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4), st.integers(0, 2))
def test_names_and_states_come_back(tmp_path_factory, keys, status):
    path = tmp_path_factory.mktemp("t") / "t"
    table = make_table(keys, status=[status] * len(keys), reasons=["DC101 because"] * len(keys))
    path.write_bytes(samples.table_bytes(table))
    back = samples.read_table(path)
    assert (back.keys, back.files, back.reasons) == (table.keys, table.files, table.reasons)
    np.testing.assert_array_equal(back.status, table.status)
    assert back.status.dtype == np.int8


def test_a_few_keys_are_read_by_themselves_and_many_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "_ROW_GROUP", 3)
    monkeypatch.setattr(samples, "_FEW", 6)
    names = [f"key {number}" for number in range(10)]
    (tmp_path / "t").write_bytes(samples.table_bytes(make_table(names)))
    keys = samples.read_table(tmp_path / "t").keys
    assert [keys[place] for place in (9, 0, 5, 3, 2)] == [
        "key 9",
        "key 0",
        "key 5",
        "key 3",
        "key 2",
    ]
    with pytest.raises(IndexError):
        keys[10]
    assert [keys[place] for place in (-1, 4, 7, 8, 6)] == [
        "key 9",
        "key 4",
        "key 7",
        "key 8",
        "key 6",
    ]
    assert keys[2:4] == ["key 2", "key 3"]
    assert list(keys) == names


def test_other_programs_read_the_table(tmp_path):
    table = make_table("abc", x__max=[1.5, None, 3.5], status=[0, 1, 2])
    table.columns["x:v"] = Measured(np.eye(3), np.array([True, False, True]))
    (tmp_path / "t").write_bytes(samples.table_bytes(table))
    rows = pq.read_table(tmp_path / "t").to_pylist()
    assert [row["status"] for row in rows] == ["checked", "unreadable", "skipped"]
    assert [row["x:max"] for row in rows] == [1.5, None, 3.5]
    assert [row["x:v"] for row in rows] == [[1, 0, 0], None, [0, 0, 1]]


@pytest.mark.parametrize("most", [1, 40, 1 << 20])
def test_more_text_than_an_array_holds_is_written_in_several(tmp_path, monkeypatch, most):
    monkeypatch.setattr(samples, "_OCTETS", most)
    keys = ["ein Schlüssel", "", "鍵 🙂", "plain"]
    table = make_table(keys, reasons=["DC101 a", "", "", "DC102 ü"])
    table.columns[":id"] = Measured(
        np.array(["é", "x", "", "y"], object), np.array([True, False, True, True])
    )
    (tmp_path / "t").write_bytes(samples.table_bytes(table))
    rows = pq.read_table(tmp_path / "t").to_pylist()
    assert [row["key"] for row in rows] == keys
    assert [row["reason"] for row in rows] == ["DC101 a", "", "", "DC102 ü"]
    assert [row[":id"] for row in rows] == ["é", None, "", "y"]


def test_an_empty_table_has_no_rows_but_its_columns(tmp_path):
    (tmp_path / "t").write_bytes(samples.table_bytes(Table()))
    assert len(samples.read_table(tmp_path / "t")) == 0
    assert pq.read_table(tmp_path / "t").column_names[:2] == ["key", "file"]


def test_equal_tables_give_equal_bytes():
    one, two = (make_table("ab", x__max=[1, 2]) for _ in range(2))
    assert bytes(samples.table_bytes(one)) == bytes(samples.table_bytes(two))


def test_json_is_readable_and_ends_with_a_line_feed():
    data = run_documents.dump_json({"a": np.int64(3), "nan": float("nan"), "list": [1]})
    assert json.loads(data) == {"a": 3, "nan": None, "list": [1]}
    assert data.endswith(b"}\n")
    assert b'\n  "a": 3' in data


@pytest.fixture
def runs(tmp_path):
    """A folder of runs that somebody gave, without any, and beside it a run of the user's own."""
    own, shared = tmp_path / "own/.datacheck/R", tmp_path / "shared/.datacheck"
    own.mkdir(parents=True)
    shared.mkdir(parents=True)
    (own / run_documents.RESULT).touch()
    (own / run_documents.SAMPLES).touch()
    return own, shared


@pytest.mark.parametrize(
    "link", ["../../own/.datacheck/R", "{own}", "{shared}/linked", "linked", "./linked"]
)
def test_the_newest_run_is_no_run_elsewhere(runs, link):
    """Who hands over a folder of runs would choose what is read and where a page is written."""
    own, shared = runs
    (shared / "linked").symlink_to(own)
    (shared / "latest").symlink_to(link.format(own=own, shared=shared))
    for place in (shared, shared / "latest", shared / "linked"):
        with pytest.raises(UsageError, match="is a link, but to no run beside it"):
            run_documents.run_in(place)


@pytest.mark.parametrize("link", [".", "..", "../.datacheck"])
def test_the_newest_run_is_not_the_folder_of_the_link_either(runs, link):
    _, shared = runs
    for folder in (shared, shared.parent):
        (folder / run_documents.RESULT).touch()
        (folder / run_documents.SAMPLES).touch()
    (shared / "latest").symlink_to(link)
    assert run_documents.run_in(shared) == shared
    with pytest.raises(UsageError, match="is a link, but to no run beside it"):
        run_documents.run_in(shared / "latest")


def test_the_newest_run_is_one_beside_the_link(runs, tmp_path, monkeypatch):
    own, shared = runs
    (own.parent / "latest").symlink_to("R")
    assert (
        run_documents.run_in(own.parent)
        == run_documents.run_in(own.parent / "latest")
        == own.parent / "latest"
    )
    monkeypatch.chdir(own.parent)
    assert run_documents.run_in(Path()) == run_documents.run_in(Path("latest")) == Path("latest")
    for link, goal in {"runs": own.parent, "run": own}.items():  # what is named is the user's own
        (tmp_path / link).symlink_to(goal)
    assert run_documents.run_in(tmp_path / "runs") == tmp_path / "runs/latest"
    assert run_documents.run_in(tmp_path / "run") == tmp_path / "run"
    # Data may have such a link, too: no run is behind it
    (shared / "latest").symlink_to(shared.parent)
    assert run_documents.run_in(shared) is None
