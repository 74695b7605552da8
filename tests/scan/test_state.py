"""A run comes back from its folder as it was written, whatever the names are; texts in columns are lists of texts."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.table import Note, Texts
from datacheck.scan.run_state import RunState, Slots, last_finished, read_state, state_bytes
from datacheck.scan.samples import codes_digest, table_bytes
from datacheck.sources.listing import Listing, carried_digests
from datacheck.sources.roots import NOT_WHOLE, Entries, Entry
from tests.scan.conftest import make_table

# What a file may be called: no NUL and no half characters (such names are not listed), but line
# feeds and 200 letters.
NAME = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
) | st.just("a\nb/" + "x" * 200)
NUMBER = st.integers(-(2**63) + 1, 2**63 - 1)
DIGEST = st.none() | st.just(NOT_WHOLE) | st.text("0123456789abcdef", min_size=32, max_size=32)
ENTRY = st.builds(Entry, NAME, st.integers(0, 2**63 - 1), NUMBER, NUMBER, NUMBER, NUMBER, DIGEST)

NOW = "2026-01-02T03:04:05Z"


@given(st.lists(ENTRY, max_size=8, unique_by=lambda entry: entry.path), NAME)
def test_entries_in_columns_are_the_entries(found, other):
    entries = Entries.of(found)
    expected = sorted(found, key=lambda entry: entry.path.encode())
    assert list(entries) == expected
    assert [entries[entries.find(entry.path)] for entry in expected] == expected
    assert (entries.find(other) >= 0) == any(entry.path == other for entry in found)
    assert entries[1:3] == expected[1:3]
    assert Listing(Path("/data"), entries).by_path == {entry.path: entry for entry in found}


@given(st.lists(ENTRY, max_size=6, unique_by=lambda entry: entry.path), st.data())
def test_a_run_comes_back_from_its_files(tmp_path_factory, found, data):
    folder = tmp_path_factory.mktemp("run")
    entries = Entries.of(found)
    paths = entries.paths
    companions = {i: (paths[i], *paths[:1]) for i in range(len(paths)) if data.draw(st.booleans())}
    splits = [data.draw(st.sampled_from(["", "train", "ä"])) for _ in paths]
    note = Note("DC105", "k\ney", "because", missing=True, split="train", about={"kind": "x"})
    past = RunState(
        Listing(Path("/data"), entries, [("a", "why")], {"more": Path("/more")}),
        "key",
        Slots(paths, splits, companions),
        make_table(paths),
        ["u"],
        NOW,
        [{"version": "1"}],
        [note],
        compared=True,
        unclaimed=paths[1:],
        whole=True,
        crashes=[{"measure": "m", "key": "k", "traceback": "t"}],
        deaths=[{"rule": "", "at": "k", "traceback": "t"}],
        pairs={"asked": {"b": np.array([1.0, np.nan]), "a": np.ones(2)}},
        only="one",
    )
    (folder / "listing.npz").write_bytes(state_bytes(past))
    (folder / "samples.parquet").write_bytes(table_bytes(past.table))
    (folder / "result.json").write_text(
        json.dumps({"run": {"started": NOW}, "schema": {"digest": "some"}})
    )
    back = read_state(folder)
    names = (
        "key",
        "undeclared",
        "when",
        "measured",
        "notes",
        "compared",
        "unclaimed",
        "whole",
        "crashes",
        "only",
    )
    assert [getattr(back, name) for name in names] == [getattr(past, name) for name in names]
    assert (back.listing.entries, back.listing.skipped) == (entries, [("a", "why")])
    assert (back.listing.root, back.listing.roots) == (Path("/data"), {"more": Path("/more")})
    assert dict(back.items) == dict(past.items)
    assert (back.table.keys, back.table.files) == (past.table.keys, past.table.keys)
    np.testing.assert_array_equal(back.pairs["asked"]["b"], [1, np.nan])
    np.testing.assert_array_equal(back.pairs["asked"]["a"], [1, 1])


@pytest.mark.parametrize("name", ["listing.npz", "samples.parquet", "result.json"])
def test_a_damaged_run_and_one_of_an_older_version_count_as_none(tmp_path, name):
    past = RunState(Listing(Path("/d"), Entries.of([])), "k", Slots([], [], {}), make_table(""))
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "listing.npz").write_bytes(state_bytes(past))
        (folder / "samples.parquet").write_bytes(table_bytes(past.table))
        (folder / "result.json").write_text(
            json.dumps({"run": {"started": NOW}, "schema": {"digest": "some"}})
        )
    whole = (tmp_path / "1" / name).read_bytes()
    (tmp_path / "1" / name).write_bytes(whole[: len(whole) // 2])
    found = last_finished([tmp_path / "1", tmp_path / "2"])
    assert found is not None
    assert found.folder == tmp_path / "2"
    (tmp_path / "1" / name).unlink()
    (tmp_path / "1/listing.json").write_text('{"format": "datacheck.listing/1"}')
    assert last_finished([tmp_path / "1"]) is None


@pytest.mark.parametrize("count", [1000, 1001])
def test_a_run_has_at_most_a_thousand_extra_folders(tmp_path, count):
    """`card` resolved each of 100,000, and compared it with each file: hours for a run of 2 MB."""
    roots = {f"r{number}": Path("/") for number in range(count)}
    past = RunState(
        Listing(Path("/d"), Entries.of([]), roots=roots), "k", Slots([], [], {}), make_table("")
    )
    (tmp_path / "listing.npz").write_bytes(state_bytes(past))
    (tmp_path / "samples.parquet").write_bytes(table_bytes(past.table))
    (tmp_path / "result.json").write_text(
        json.dumps({"run": {"started": NOW}, "schema": {"digest": "some"}})
    )
    if count > 1000:
        with pytest.raises(ValueError, match=r"listing\.npz is damaged: roots: .* at most 1000"):
            read_state(tmp_path)
    else:
        assert len(read_state(tmp_path).listing.roots) == 1000


@given(st.lists(st.tuples(NAME, st.sampled_from(["", "a", "b"])), max_size=8, unique=True))
def test_slots_are_found_by_path_and_split(slots):
    made = Slots.of(
        {slot: [slot[0]] if i % 2 else [slot[0], "more"] for i, slot in enumerate(slots)}
    )
    assert dict(made) == {
        slot: (slot[0],) if i % 2 else (slot[0], "more") for i, slot in enumerate(slots)
    }
    assert made.get(("no such path", "")) is None


def test_only_what_has_not_changed_and_is_settled_keeps_its_digest():
    old = Entries.of(
        [
            Entry(p, 1, 10**10, 1, 1, 10**11, digest * 32)
            for p, digest in (("a", "1"), ("b", "2"), ("c", "3"))
        ]
    )
    new = Entries.of(
        [
            Entry("a", 1, 10**10, 1, 1, 0),
            Entry("b", 2, 10**10, 1, 1, 0),
            Entry("d", 1, 10**10, 1, 1, 0),
        ]
    )
    found = carried_digests(Listing(Path("/d"), new), Listing(Path("/d"), old))
    assert found.tolist() == [b"1" * 32, b"", b""]


@given(st.lists(st.text(max_size=3), max_size=12), st.data())
def test_texts_in_a_column_are_a_list_of_texts(texts, data):
    column = Texts.of(texts)
    index = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=9)) if texts else []
    assert column == texts
    assert list(column.take(np.array(index, dtype=np.int64))) == [texts[i] for i in index]
    assert list(column[1:3]) == texts[1:3]
    assert column.present() == sorted(set(texts))
    assert {text: rows.tolist() for text, rows in column.places()} == {
        text: [i for i, other in enumerate(texts) if other == text] for text in texts
    }


def test_two_columns_of_codes_are_the_same_if_every_row_is():
    one = Texts(["", "DC201", "DC303"], np.array([0, 1, 1]))
    assert codes_digest(one) == codes_digest(Texts(["DC201", "", "DC201"], np.array([1, 0, 2])))
    assert codes_digest(one) != codes_digest(Texts(["", "DC201"], np.array([1, 0, 1])))
    assert codes_digest(one) != codes_digest(Texts(["", "DC202"], np.array([0, 1, 1])))
