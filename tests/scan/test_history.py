import contextlib
import errno
import fcntl
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.model.table import concatenate
from datacheck.rules import catalogue
from datacheck.rules.base import Measure
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.runtime import fsops
from datacheck.runtime.fsops import System
from datacheck.scan import Request, run_dir, run_scan
from datacheck.scan.measurement_settings import MeasurementSettings
from datacheck.scan.row_reuse import changes, interrupted_run, reuse_all, reuse_rows
from datacheck.scan.run_state import RunState, Slots
from datacheck.schema.load import parse_schema
from datacheck.sources.base import Item
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries, Entry
from datacheck.workers.wire import encode
from tests.scan.conftest import make_schema, make_table

LONG_AGO = 1_000_000_000_000_000_000


def entry(path, *, digest=None, size=1, mtime=LONG_AGO, seen=2 * LONG_AGO):
    return Entry(path, size, mtime, mtime, 7, seen, digest)


def listing(*entries):
    return Listing(Path("/data"), Entries.of(entries))


def past(*entries, files=None, key="k"):
    paths = [e.path for e in entries]
    items = files or {(p, ""): [p] for p in paths}
    table = make_table(
        sorted({path for path, _ in items}), x__max=[1.0] * len({path for path, _ in items})
    )
    return RunState(listing(*entries), key, Slots.of(items), table)


def keep(new, items, key, pasts):
    """Every item that is not called mesh has the mesh for companion where there is one."""

    def files_of(item):
        return [item.path, "mesh"] if "mesh" in new.by_path else [item.path]

    return reuse_rows(new, items, files_of, key, pasts)


def kept(new, *pasts, key="k", items=None):
    items = items or [Item(e.path) for e in new.entries]
    found = keep(new, items, key, pasts)
    done = sorted(item.path for item, kept in zip(items, found.done, strict=True) if kept)
    assert sorted(set(concatenate(found.tables).files)) == done
    return done


def test_rows_of_unchanged_files_are_kept_and_digests_carried():
    old = past(entry("a", digest="1"), entry("b", digest="2"), entry("c", digest="3"))
    new = listing(entry("a"), entry("b", size=9), entry("d"))
    assert kept(new, old) == ["a"]
    assert [e.digest for e in keep(new, [], "k", [old]).listing.entries] == ["1", None, None]


@pytest.mark.parametrize("change", [{"size": 2}, {"mtime": LONG_AGO + 1}])
def test_a_changed_companion_is_a_change(change):
    files = {("a", ""): ["a", "mesh"]}
    old = past(entry("a", digest="1"), entry("mesh", digest="2"), files=files)
    items = [Item("a")]
    assert kept(listing(entry("a"), entry("mesh")), old, items=items) == ["a"]
    assert kept(listing(entry("a"), entry("mesh", **change)), old, items=items) == []
    assert kept(listing(entry("a")), old, items=items) == []


def test_a_companion_that_has_come_is_a_change():
    old = past(entry("a", digest="1"))
    assert kept(listing(entry("a"), entry("mesh")), old, items=[Item("a")]) == []


def test_a_file_seen_too_soon_after_it_was_written_is_read_again():
    young = past(entry("a", digest="1", mtime=LONG_AGO, seen=LONG_AGO + 1_999_999_999))
    assert kept(listing(entry("a")), young) == []


def test_rows_measured_otherwise_are_not_kept_but_digests_are():
    old = past(entry("a", digest="1"), key="other")
    assert kept(listing(entry("a")), old) == []
    assert keep(listing(entry("a")), [], "k", [old]).listing.entries[0].digest == "1"


def test_the_newest_of_several_pasts_wins_and_no_row_comes_twice():
    one, two = past(entry("a", digest="1")), past(entry("a", digest="1"), entry("b", digest="2"))
    assert kept(listing(entry("a"), entry("b")), one, two) == ["a", "b"]


def test_an_item_that_moved_to_another_split_is_measured_again():
    old = past(entry("a", digest="1"))
    assert kept(listing(entry("a")), old, items=[Item("a", "val")]) == []


def test_changed_content_is_noted_with_the_split_of_its_item():
    files = listing(entry("a", digest="1"), entry("b", digest="2", size=5))
    old = RunState(files, "k", Slots.of({}), make_table(""), (), "T")
    new = listing(entry("a", digest="1"), entry("b", digest="9", size=5), entry("c", digest="3"))
    (note,) = changes(new, old, [Item("b", "train")])
    assert (note.code, note.key, note.split) == ("DC108", "b", "train")
    assert note.reason == "its content has changed since the scan of T (5 bytes)"
    assert changes(new, None, []) == []


def test_a_change_that_an_interrupted_scan_has_read_is_still_a_change():
    last = past(
        entry("a", digest="1"),
        entry("b", digest="2"),
        entry("c", digest="3"),
        entry("gone", digest="4"),
    )
    new = listing(entry("a", digest="1"), entry("b", digest="9"), entry("c"))
    assert [note.key for note in changes(new, last, [])] == ["b"]


def measured_key(schema):
    measures = measures_of(choose_rules(schema, catalogue()))
    return MeasurementSettings.of(schema, measures).key


def test_thresholds_are_not_part_of_what_was_measured():
    fields = {
        "x": {"role": "points", "shape": ["P", 3], "unit": "m", "size": "0.1..1", "range": "-1..1"}
    }
    key = measured_key(make_schema(fields))
    wider = {"x": fields["x"] | {"size": "0.1..5", "range": "-9..9"}}
    assert measured_key(make_schema(wider)) == key
    assert (
        measured_key(make_schema(fields, rules={"DC221": {"severity": "warning", "allow": 0.5}}))
        == key
    )
    assert measured_key(make_schema(fields, name="renamed")) == key


@pytest.mark.parametrize(
    "change",
    [
        {"samples": {"files": "*.npz"}},
        {"samples": {"files": "*.npy", "group": "{file}"}},
        {"fields": {"x": {"role": "points", "at": "other"}}},
        {"fields": {"x": {"role": "joints"}}},
        {"fields": {"x": {"role": "points"}, "y": {}}},
        {"when": {"split=val": {"x": "absent"}}},
        {"splits": {"key": "file"}},
    ],
)
def test_what_decides_how_files_are_read_is_part_of_it(change):
    base = {"fields": {"x": {"role": "points"}}}
    fields = (base | change)["fields"]
    rest = {k: v for k, v in change.items() if k != "fields"}
    assert measured_key(make_schema(fields, **rest)) != measured_key(make_schema(base["fields"]))


def test_a_new_version_of_a_measurement_is_another_measurement():
    schema = make_schema()
    one, two = (Measure("m", version, "field", lambda *_: {}) for version in (1, 2))
    keys = {MeasurementSettings.of(schema, [measure]).key for measure in (one, two)}
    assert len(keys) == 2


# ------------------------------------------------------------------------------------------- places


def place(root, output=None, schema=None, only=None):
    return run_dir.run_location(schema or make_schema(), root, only, {}, output)


def test_runs_of_other_data_or_schemas_have_other_places(in_tmp):
    (in_tmp / "a").mkdir()
    (in_tmp / "b").mkdir()
    slots = {
        place(in_tmp / "a").slot,
        place(in_tmp / "b").slot,
        place(in_tmp / "a", only="f").slot,
        place(in_tmp / "a", schema=make_schema(name="other")).slot,
    }
    assert len(slots) == 4
    assert place(Path("a")) == place(in_tmp / "a")


def test_the_name_of_a_schema_cannot_leave_the_folder():
    odd = make_schema()
    slot = run_dir.run_location(
        odd.model_copy(update={"name": "../../etc/x y"}), Path("/data"), None, {}, None
    ).slot
    assert "/" not in slot
    assert not slot.startswith(".")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("data", "holds the data"),
        (".", "holds the data"),
        ("file", "is a file"),
        ("full", "'diary.txt', which no scan"),
    ],
)
def test_an_output_folder_that_is_not_ours_is_refused(in_tmp, output, said):
    (in_tmp / "data").mkdir()
    (in_tmp / "file").write_text("")
    (in_tmp / "full").mkdir()
    (in_tmp / "full/diary.txt").write_text("dear diary")
    with pytest.raises(UsageError, match=said):
        place(in_tmp / "data", Path(output))
    place(in_tmp / "data", Path("new"))


def test_two_runs_in_one_second_have_two_names(in_tmp):
    (in_tmp / "data").mkdir()
    where = place(in_tmp / "data")
    folders = []
    for number in range(2):
        staged = where.beside / ".work-x/run"
        staged.mkdir(parents=True)
        (staged / "result.json").write_text(str(number))
        folders.append(where.publish(staged, "20261120T000000Z"))
    assert len(set(folders)) == 2
    assert (in_tmp / ".datacheck/latest/result.json").read_text() == "1"
    assert next(p.name for p in where.finished()) == folders[1].name


class Faster(System):
    """Another process publishes, or takes away, just before the first renames of this one."""

    def __init__(self, *before, exchanges=True):
        self.before, self.exchanges = list(before), exchanges

    def rename(self, source, target, folder=None, to=None):
        if self.before:
            self.before.pop(0)()
        super().rename(source, target, folder, to)

    def exchange(self, one, other, folder=None, to=None):
        if not self.exchanges:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if self.before:
            self.before.pop(0)()
        super().exchange(one, other, folder, to)


def result(said):
    return json.dumps({"format": "datacheck.result/1", "said": said})


def staged_in(where, said):
    staged = where.beside / ".work-x/run"
    staged.mkdir(parents=True, exist_ok=True)
    (staged / "result.json").write_text(result(said))
    return staged


def test_a_name_that_another_process_takes_at_that_moment_is_not_ours(in_tmp, monkeypatch):
    (in_tmp / "data").mkdir()
    where = place(in_tmp / "data")
    theirs = where.base / f"20261120T000000Z-{where.slot}"
    staged = staged_in(where, "ours")

    def publish():
        theirs.mkdir()
        (theirs / "result.json").write_text("theirs")

    monkeypatch.setattr(fsops, "SYSTEM", Faster(publish))
    ours = where.publish(staged, "20261120T000000Z")
    assert (theirs / "result.json").read_text() == "theirs"
    assert (ours / "result.json").read_text() == result("ours")
    assert (where.base / "latest").resolve() == ours


@pytest.mark.parametrize("exchanges", [True, False])
def test_of_two_that_replace_one_output_the_last_stays(in_tmp, monkeypatch, exchanges):
    (in_tmp / "data").mkdir()
    output = in_tmp / "out"
    where = place(in_tmp / "data", output)
    where.publish(staged_in(where, "before"), "")
    staged = staged_in(where, "ours")

    def publish():
        output.mkdir()
        (output / "result.json").write_text(result("theirs"))

    def take_away():
        shutil.rmtree(output, ignore_errors=True)

    # what this one wants to replace is gone; then another has published; then, once more, it is
    # gone
    before = [lambda: None, take_away, publish, take_away]
    monkeypatch.setattr(fsops, "SYSTEM", faster := Faster(*before, exchanges=exchanges))
    assert where.publish(staged, "") == output
    assert faster.before == []
    assert (output / "result.json").read_text() == result("ours")
    assert list(staged.parent.iterdir()) == []


def tell(folder):
    return sorted(
        (str(path.relative_to(folder)), path.is_file() and path.read_bytes())
        for path in folder.rglob("*")
    )


@pytest.mark.parametrize("name", ["result.json", "schema.yaml", "samples.parquet"])
@pytest.mark.parametrize(
    "content", ["{}", '{"format": "datacheck.valid/1"}', "dear diary", "", None]
)
def test_an_output_folder_with_files_called_as_those_of_a_run_is_refused(in_tmp, name, content):
    (in_tmp / "data").mkdir()
    (output := in_tmp / "out").mkdir()
    os.mkfifo(output / name) if content is None else (output / name).write_text(content)
    before = tell(output)
    with pytest.raises(UsageError, match=r"holds no result\.json that a scan has written"):
        place(in_tmp / "data", output)
    assert tell(output) == before
    (output / name).unlink()
    place(in_tmp / "data", output)  # an empty folder may be replaced
    (output / "result.json").write_text(result("a run"))
    place(in_tmp / "data", output)


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("late", [False, True])
def test_an_output_folder_that_is_no_run_any_more_when_the_scan_ends_is_left_as_it_is(
    in_tmp, monkeypatch, exchanges, late
):
    (in_tmp / "data").mkdir()
    output = in_tmp / "out"
    where = place(in_tmp / "data", output)
    where.publish(staged_in(where, "before"), "")
    staged = staged_in(where, "ours")

    def write():
        (output / "diary.txt").write_text("dear diary")

    monkeypatch.setattr(
        fsops, "SYSTEM", Faster(*([lambda: None, write] if late else [write]), exchanges=exchanges)
    )
    with pytest.raises(UsageError, match=r"'diary\.txt', which no scan has written"):
        where.publish(staged, "")
    assert tell(output) == [
        ("diary.txt", b"dear diary"),
        ("result.json", result("before").encode()),
    ]


def test_an_output_folder_that_becomes_a_link_leads_nowhere(in_tmp):
    (in_tmp / "data").mkdir()
    output, other = in_tmp / "out", in_tmp / "other"
    where = place(in_tmp / "data", output)
    where.publish(staged_in(where, "before"), "")
    staged = staged_in(where, "ours")
    output.rename(other)
    output.symlink_to(other)
    before = tell(other)
    with pytest.raises(UsageError, match="out: holds what cannot be listed"):
        where.publish(staged, "")
    assert (output.readlink(), tell(other)) == (other, before)


# ------------------------------------------------------------------------------------------ journal


def part(path, digest="1"):
    table = make_table([path], x__max=[1.0])
    return {
        "table": table.as_wire(),
        "items": [[path, "", [path]]],
        "entries": [list(entry(path, digest=digest))],
        "undeclared": ["u"],
    }


def journal_for(in_tmp, key="k"):
    (in_tmp / "data").mkdir(exist_ok=True)
    return run_dir.Journal(place(in_tmp / "data"), key)


def test_parts_of_an_interrupted_scan_are_found_again(in_tmp):
    with (journal := journal_for(in_tmp)).held():
        journal.add(part("a"))
        journal.add(part("b"))
    with (again := journal_for(in_tmp)).held():
        found = interrupted_run(again, in_tmp, make_schema())
        assert found.table.keys == ["a", "b"]
        assert [e.digest for e in found.listing.entries] == ["1", "1"]
        assert list(found.undeclared) == ["u"]
        again.add(part("c"))
        assert interrupted_run(again, in_tmp, make_schema()).table.keys == ["a", "b", "c"]
        again.clear()
        assert not again.folder.exists()


def _with(**said):
    return lambda made: made | said


def _table(**said):
    return lambda made: made | {"table": made["table"] | said}


def _texts(**said):
    return lambda made: made | {"table": made["table"] | {"texts": made["table"]["texts"] | said}}


FORGED = {
    "names of two kinds": _with(undeclared=[1, "a"]),
    "a split that is a number": _with(items=[["b", 5, ["b"]]]),
    "files that are none": _with(items=[["b", "", 7]]),
    "a path that is a number": _with(items=[[5, "", ["b"]]]),
    "a size beyond 64 bits": _with(entries=[["b", 2**70, 0, 0, 0, 0, None]]),
    "a size that is text": _with(entries=[["b", "a", 0, 0, 0, 0, None]]),
    "a digest that is a number": _with(entries=[["b", 1, 0, 0, 0, 0, 5]]),
    "a status of another length": _table(status=np.zeros(2, np.int8)),
    "a status that is text": _table(status="no"),
    "no columns": _table(columns=None),
    "a column of another length": _table(columns={"x:max": [np.ones(2), [True]]}),
    "keys of two kinds": _texts(keys=[[1, "b"], None]),
    "a number below 0": _texts(keys=[["b:"], np.zeros(1, np.int32), np.array([-5])]),
    "a text that is not there": _texts(groups=[["b"], np.array([5], np.int32)]),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_part_that_somebody_forged_is_as_good_as_none(in_tmp, forge):
    with (journal := journal_for(in_tmp)).held():
        forged = forge(part("b"))
        journal.add(forged)
        assert interrupted_run(journal, in_tmp, make_schema()) is None
        journal.add(part("a"))
        assert interrupted_run(journal, in_tmp, make_schema()).table.keys == ["a"]


def test_parts_of_many_values_and_of_many_bytes_are_as_good_as_none(in_tmp, monkeypatch):
    with (journal := journal_for(in_tmp)).held():
        journal.add(part("a"))
        journal.add(part("b") | {"undeclared": [[]] * 2_100_000})  # 3 bytes each, and 64 of memory
        assert interrupted_run(journal, in_tmp, make_schema()).table.keys == ["a"]
        journal.add(part("c"))
        size = (journal.folder / "part-00000000").stat().st_size
        monkeypatch.setattr(run_dir, "PARTS_BYTES", size + 10)
        assert interrupted_run(journal, in_tmp, make_schema()).table.keys == ["a"]


@pytest.mark.parametrize("call", ["open", "flock"])
def test_a_scan_that_begins_where_another_ends_has_a_folder(in_tmp, monkeypatch, call):
    journal = journal_for(in_tmp)
    ends = iter([lambda: shutil.rmtree(journal.folder)])  # once, in front of the call
    module = {"open": os, "flock": fcntl}[call]
    plain = getattr(module, call)

    def patched(first, *more, **named):
        of_lock = call == "flock" or first == "lock"
        next(ends, lambda: None)() if of_lock else None
        return plain(first, *more, **named)

    monkeypatch.setattr(module, call, patched)
    with journal.held():
        journal.add(part("a"))
        assert interrupted_run(journal, in_tmp, make_schema()).table.keys == ["a"]
        with (other := journal_for(in_tmp)).held():
            assert other.folder != journal.folder


def test_parts_that_were_measured_otherwise_or_are_damaged_count_as_not_done(in_tmp):
    with (journal := journal_for(in_tmp)).held():
        journal.add(part("a"))
        (journal.folder / "part-00000009").write_bytes(b"\0\1")
        (journal.folder / "part-00000010").write_bytes(b"".join(encode({"key": "k"}))[:-1])
        (journal.folder / "part-00000011").write_bytes(b"".join(encode({"key": "k"})))
        journal.add(part("b"))
        half = journal.folder / "part-00000001"
        half.write_bytes(half.read_bytes().replace(b'"entries"', b'"entriez"'))
        assert interrupted_run(journal, in_tmp, make_schema()).table.keys == ["a"]
    with (other := journal_for(in_tmp, "else")).held():
        assert interrupted_run(other, in_tmp, make_schema()) is None


def test_a_second_scan_of_the_same_data_works_in_a_folder_of_its_own(in_tmp):
    with (one := journal_for(in_tmp)).held(), (two := journal_for(in_tmp)).held():
        assert one.folder != two.folder
        two.add(part("a"))
        with (three := journal_for(in_tmp)).held():
            assert three.folder not in {one.folder, two.folder}
            three.clear()
            assert not three.folder.exists()
    # Two that were killed go on
    with journal_for(in_tmp).held(), (again := journal_for(in_tmp)).held():
        assert interrupted_run(again, in_tmp, make_schema()).table.keys == ["a"]


class Begins(System):
    """Another scan begins as soon as the lock of this one is gone."""

    def __init__(self, scan):
        self.scan = scan

    def unlink(self, path, folder=None):
        super().unlink(path, folder)
        if path.name == "lock" and self.scan:
            scan, self.scan = self.scan, None
            scan()


def test_a_scan_that_begins_while_another_clears_its_folder_keeps_all_of_its_own(
    in_tmp, monkeypatch
):
    other = journal_for(in_tmp)
    with contextlib.ExitStack() as held:

        def begin():
            held.enter_context(other.held())
            other.add(part("b"))

        with (journal := journal_for(in_tmp)).held():
            for name in "abc":
                journal.add(part(name))
            journal.stage({"result.json": b"ours"})
            monkeypatch.setattr(fsops, "SYSTEM", Begins(begin))
            journal.clear()
        assert other.folder == journal.folder
        assert interrupted_run(other, in_tmp, make_schema()).table.keys == ["b"]


def test_where_nothing_can_be_locked_each_scan_has_a_folder(in_tmp, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with (one := journal_for(in_tmp)).held(), (two := journal_for(in_tmp)).held():
        assert one.folder != two.folder


def test_the_digest_of_a_schema_does_not_say_where_its_data_lie(tmp_path, monkeypatch):
    schema = parse_schema(
        "datacheck: 1\nname: chats\nroots: {extra: more}\nsamples: {files: '{id}.jsonl', each: "
        "line}\n"
        "tokenizer: {path: model}\n"
        "fields:\n  text: {role: text}\n  other: {file: '{extra}/{id}.npy', optional: true}\n"
    )
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name / "more").mkdir(parents=True)
        (tmp_path / name / "a.jsonl").write_text('{"text": "a b"}\n')
        monkeypatch.chdir(tmp_path / name)
        for roots in ({}, {"extra": tmp_path / name / "more"}):
            run = run_scan(schema, Request(tmp_path / name, roots, output=tmp_path / f"{name}-out"))
            digests.add(run.report.schema["digest"])
    assert digests == {schema.digest}


def test_a_scan_of_unchanged_data_still_knows_what_could_not_be_listed(tmp_path):
    """Else a build makes a split of the folder, of which no sample can be read."""
    refused = [("locked", "folder cannot be read: permission denied")]
    new = replace(listing(), root=tmp_path, refused=refused, alone="a.zarr")
    found = reuse_all(past(), new).listing
    assert (found.root, found.refused, found.alone) == (tmp_path, refused, "a.zarr")
