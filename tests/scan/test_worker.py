from dataclasses import replace

import numpy as np
import pytest
import zarr

from datacheck.model.table import CHECKED, UNREADABLE, Table, concatenate
from datacheck.rules.measurement import known_measures
from datacheck.runtime.beneath import ConfinedFolder
from datacheck.runtime.hashing import digest_file
from datacheck.scan import worker
from datacheck.scan.worker import measure_items
from datacheck.sources.base import Item
from datacheck.sources.roots import Entry
from datacheck.workers.child import Pulse
from datacheck.workers.wire import check_answer
from tests.scan.conftest import make_schema


def task_for(root, *paths, schema=None, measures=()):
    schema = schema or make_schema({"x": {}})
    items = [Item(p, "", {}, None, (root / p).stat().st_size).as_dict() for p in paths]
    said = {"schema": schema.as_dict(), "root": str(root), "roots": {}, "items": items}
    return said | {"measures": list(measures), "level": "numeric"}


def run(root, *paths, **options):
    beats = []
    payload = measure_items(task_for(root, *paths, **options), beats.append)
    return payload, Table.from_wire(payload["table"]), beats


@pytest.fixture
def folder(tmp_path):
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.arange(6.0, dtype=np.float32).reshape(2, 3))
    return tmp_path


def test_rows_come_with_the_digest_and_the_state_of_every_file(folder):
    payload, table, beats = run(
        folder, "a.npy", "b.npy", measures=sorted(known_measures(make_schema({"x": {}})))
    )
    assert (table.keys, table.files, table.status.tolist()) == (
        ["a.npy", "b.npy"],
        ["a.npy", "b.npy"],
        [CHECKED] * 2,
    )
    assert table.nbytes.tolist() == [24, 24]
    entries = [Entry(*e) for e in payload["entries"]]
    assert [(e.path, e.digest) for e in entries] == [
        (n, digest_file(folder / n)) for n in ("a.npy", "b.npy")
    ]
    assert entries[0].inode == (folder / "a.npy").stat().st_ino
    assert payload["items"] == [["a.npy", "", ["a.npy"]], ["b.npy", "", ["b.npy"]]]
    assert list(dict.fromkeys(beats)) == [0, 1]
    assert payload["crashes"] == []


def test_a_damaged_file_is_an_unreadable_row_and_the_others_are_measured(folder):
    (folder / "b.npy").write_bytes((folder / "b.npy").read_bytes()[:-1])
    _, table, _ = run(folder, "a.npy", "b.npy", "c.npy")
    assert table.status.tolist() == [CHECKED, UNREADABLE, CHECKED]
    assert table.reasons[1].startswith("DC101 ")
    assert table.reasons[0] == ""


def test_a_file_that_vanished_since_it_was_listed_is_an_unreadable_row(folder):
    task = task_for(folder, "a.npy", "b.npy")
    (folder / "b.npy").unlink()
    payload = measure_items(task, lambda i: None)
    table = Table.from_wire(payload["table"])
    assert table.status.tolist() == [CHECKED, UNREADABLE]
    assert "no such file" in table.reasons[1].lower()
    assert [e[0] for e in payload["entries"]] == ["a.npy"]


def test_a_file_that_may_not_be_opened_is_an_unreadable_row(folder, monkeypatch):
    real = ConfinedFolder.open

    def refuse(self, path, **options):
        if path == "b.npy":
            raise PermissionError(13, "Permission denied", path)
        return real(self, path, **options)

    monkeypatch.setattr(ConfinedFolder, "open", refuse)
    worker._digest.cache_clear()
    payload, table, _ = run(folder, "a.npy", "b.npy")
    assert table.status.tolist() == [CHECKED, UNREADABLE]
    assert "permission denied" in table.reasons[1].lower()
    assert {e[0]: e[6] for e in payload["entries"]}["b.npy"] is None


def test_what_was_measured_of_a_file_that_changed_meanwhile_is_thrown_away(folder, monkeypatch):
    real, seen = worker.stat_entry, []

    def restless(root, path, roots=None):
        seen.append(path)
        entry = real(root, path, roots)
        return (
            entry._replace(mtime_ns=entry.mtime_ns + seen.count(path)) if path == "b.npy" else entry
        )

    monkeypatch.setattr(worker, "stat_entry", restless)
    payload, table, _ = run(
        folder, "a.npy", "b.npy", "c.npy", measures=sorted(known_measures(make_schema({"x": {}})))
    )
    assert table.status.tolist() == [CHECKED, UNREADABLE, CHECKED]
    assert "changed while it was read" in table.reasons[1]
    assert not any(c.present[1] for c in table.columns.values())
    assert "b.npy" not in [e[0] for e in payload["entries"]]


def test_names_in_a_file_that_changed_meanwhile_are_not_reported(folder, monkeypatch):
    """By then they may be those of a file that lies outside of the folder."""
    np.savez(folder / "b.npz", x=np.zeros(3), **{"of another file": np.zeros(2)})
    schema = make_schema({"x": {}, "*": {}})

    def undeclared():
        task = task_for(folder, "b.npz", schema=schema)
        return measure_items(task, lambda number: None)["undeclared"]

    real, seen = worker.stat_entry, []

    def restless(root, path, roots=None):
        seen.append(path)
        entry = real(root, path, roots)
        return entry._replace(mtime_ns=entry.mtime_ns + len(seen))

    assert any("of another file" in name for name in undeclared())
    monkeypatch.setattr(worker, "stat_entry", restless)
    assert undeclared() == []


def test_a_file_that_grew_after_it_was_listed_is_read_again_by_the_next_scan(folder):
    task = task_for(folder, "a.npy", "b.npy")
    np.save(folder / "b.npy", np.zeros((9, 3), np.float32))
    payload = measure_items(task, lambda i: None)
    table = Table.from_wire(payload["table"])
    assert table.status.tolist() == [CHECKED, UNREADABLE]
    assert "scan again" in table.reasons[1]
    # No digest of b.npy: its row cannot be kept
    assert [e[0] for e in payload["entries"]] == ["a.npy"]


def test_an_item_without_a_sample_is_said(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_group("data")
    schema = make_schema({"x": {}}, samples={"files": "*.hdf5", "each": "/data/demo_*"})
    _, table, _ = run(tmp_path, "a.hdf5", schema=schema)
    assert table.status.tolist() == [UNREADABLE]
    assert "/data/demo_*" in table.reasons[0]


def test_rows_that_lack_a_measurement_are_not_for_keeping(folder, monkeypatch):
    from datacheck.rules.base import Measure

    def broken(column, spec):
        raise RuntimeError(column)

    monkeypatch.setattr(
        worker, "known_measures", lambda schema: {"broken": Measure("broken", 1, "field", broken)}
    )
    payload, table, _ = run(folder, "a.npy", measures=["broken"])
    assert payload["items"] == []
    assert payload["crashes"][0]["measure"] == "broken"
    assert table.status.tolist() == [CHECKED]


def test_a_sample_on_which_a_measurement_of_ours_fails_is_unreadable_and_the_others_are_measured(
    folder, monkeypatch
):
    """It stopped the rules that need the measurement for all samples, and the scan ended with exit code 4."""
    from datacheck.rules.base import Measure

    def torn(column, spec):
        if (column.values < 0).any():
            raise IndexError("7 is out of bounds")
        return {"least": np.array([column[i].min() for i in range(len(column))])}

    torn.__module__ = "datacheck.rules.families.torn"
    monkeypatch.setattr(
        worker, "known_measures", lambda schema: {"torn": Measure("torn", 1, "field", torn)}
    )
    np.save(folder / "b.npy", np.full((2, 3), -1, np.float32))
    payload, table, _ = run(folder, "a.npy", "b.npy", "c.npy", measures=["torn"])
    assert payload["crashes"] == []
    assert (table.keys, table.status.tolist()) == (
        ["a.npy", "b.npy", "c.npy"],
        [CHECKED, UNREADABLE, CHECKED],
    )
    assert table.reasons[1].startswith(
        "DC101 the measurement torn fails on it (IndexError: 7 is out of bounds), a fault"
    )
    assert table.columns["x:least"].present.tolist() == [True, False, True]
    check_answer(
        measure_items, payload, task_for(folder, "a.npy", "b.npy", "c.npy", measures=["torn"])
    )


def test_a_file_that_many_samples_use_is_digested_once(folder, monkeypatch):
    from datacheck.sources import listing

    calls = []
    real = listing.digest_file
    monkeypatch.setattr(
        listing, "digest_file", lambda path, *more: calls.append(str(path)) or real(path, *more)
    )
    worker._digest.cache_clear()
    schema = make_schema(
        {"x": {}, "mesh": {"file": "mesh.npz"}}, samples={"files": "{id:[abc]}.npy"}
    )
    np.savez(folder / "mesh.npz", np.zeros(3))
    payload, table, _ = run(folder, "a.npy", "b.npy", "c.npy", schema=schema)
    assert table.status.tolist() == [CHECKED] * 3
    assert payload["items"][0][2] == ["a.npy", "mesh.npz"]
    assert [c[-8:] for c in calls] == ["mesh.npz"]


def test_rows_of_files_of_other_tasks_are_no_answer(folder):
    task = task_for(folder, "a.npy", "b.npy")
    payload = measure_items(task, lambda i: None)
    check_answer(measure_items, payload, task)
    _, other, _ = run(folder, "c.npy")
    whole = Table.from_wire(payload["table"])
    for table in (
        concatenate([whole, other]),
        whole.take(np.array([0])),
        replace(whole, files=["a.npy", "c.npy"]),
        replace(whole, splits=["", "val"]),
    ):
        with pytest.raises(ValueError, match="the answer"):
            check_answer(measure_items, payload | {"table": table.as_wire()}, task)


def test_rows_are_of_the_splits_in_which_their_files_stand(folder):
    task = task_for(folder, "a.npy", "b.npy")
    task["items"][1]["split"] = "val"
    payload = measure_items(task, lambda i: None)
    check_answer(measure_items, payload, task)
    swapped = replace(Table.from_wire(payload["table"]), splits=["val", ""])
    with pytest.raises(ValueError, match="the answer"):
        check_answer(measure_items, payload | {"table": swapped.as_wire()}, task)


class Said(Pulse):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def __call__(self, item):
        pass

    def files(self, nbytes):
        self.told.append(nbytes)


def test_the_memory_of_an_item_is_allowed_for_what_was_written_of_its_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5 << 20, 1), np.float32))
    whole = (tmp_path / "a.npy").stat().st_size
    with (tmp_path / "b.npy").open("wb") as file:
        np.save(file, np.zeros(5, np.float32))
        file.truncate(64 << 20)
    with (tmp_path / "c.npy").open("wb") as file:
        file.truncate(100)  # so small a file may have any holes
    store = tmp_path / "d.zarr"
    zarr.open_group(store, mode="w", zarr_format=2).create_array("x", data=np.arange(4.0))
    with (store / "x" / "1").open("wb") as file:
        file.truncate(64 << 20)

    def told(name):
        measure_items(task_for(tmp_path, name, schema=make_schema({"x": {}})), said := Said())
        return said.told[-1]

    assert told("a.npy") == whole
    assert told("b.npy") == 16 << 20  # of so small a file any part may be missing
    assert told("c.npy") == 100
    assert told("d.zarr") == 16 << 20


def test_holes_have_no_samples(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones((3_000_000, 1), np.int8))
    rows = make_schema({"x": {}}, samples={"files": "*.npy", "each": "row"})
    table = Table.from_wire(
        measure_items(task_for(tmp_path, "a.npy", schema=rows), lambda i: None)["table"]
    )
    assert len(table) == 3_000_000
    with path.open("rb+") as file:
        file.truncate(4096)
        file.truncate(3_000_128)
    table = Table.from_wire(
        measure_items(task_for(tmp_path, "a.npy", schema=rows), lambda i: None)["table"]
    )
    assert len(table) == 1
    assert "3,000,000 samples or more in a file of 4,096 bytes" in table.reasons[0]
