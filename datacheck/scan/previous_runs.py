"""Previous runs: the state that a scan keeps for the next one, and comparisons with earlier runs.

``listing.npz`` holds columns and a JSON head, stored as `numpy.savez` does.
"""

from __future__ import annotations

import contextlib
import io
import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck import __version__
from datacheck.errors import StorageError, UsageError
from datacheck.formats.base import formats
from datacheck.model.finding import Report, Severity, Verdict
from datacheck.model.sample import Depth
from datacheck.model.table import SKIPPED, Note, Table, Texts
from datacheck.rules.base import Measure
from datacheck.rules.measures import in_form
from datacheck.rules.selection import Choice, variants
from datacheck.runtime.documents import Arrays
from datacheck.runtime.hashing import digest_value
from datacheck.scan import run_documents
from datacheck.scan.run_documents import LISTING, SAMPLES, parse_head, read_result, read_started
from datacheck.scan.samples import read_table
from datacheck.scan.worker import is_plain
from datacheck.schema.model import ANY, Schema, pixels
from datacheck.sources.base import Item
from datacheck.sources.listing import Listing, carried_digests
from datacheck.sources.roots import Entries

Array = np.ndarray[Any, Any]

FORMAT = "datacheck.listing/2"
LISTING_BYTES = 8 << 30  # at about 130 bytes a file
STAMPS = 5  # numbers per file

Slot = tuple[str, str]  # an item's path and split


class Slots(Mapping[Slot, tuple[str, ...]]):
    """Items by path and split, and the files that each item's rows came from.

    Args:
        paths: of the items, sorted.
        splits: of the items.
        companions: by place, all files of an item that has more than one file.
    """

    def __init__(
        self, paths: Sequence[str], splits: Sequence[str], companions: Mapping[int, tuple[str, ...]]
    ) -> None:
        self.paths = paths
        self.splits = Texts.of(splits)
        self.companions = companions

    @staticmethod
    def of(items: Mapping[Slot, Sequence[str]]) -> Slots:
        """Return the slots of a dict, sorted."""
        slots = sorted(items)
        companions = {i: tuple(items[s]) for i, s in enumerate(slots) if list(items[s]) != [s[0]]}
        return Slots([path for path, _ in slots], [split for _, split in slots], companions)

    def find(self, path: str, split: str) -> int:
        """Return the place of an item, -1 if it does not exist."""
        place = bisect_left(self.paths, path)
        while place < len(self.paths) and self.paths[place] == path:
            if self.splits[place] == split:
                return place
            place += 1
        return -1

    def __getitem__(self, slot: Slot) -> tuple[str, ...]:
        place = self.find(*slot)
        if place < 0:
            raise KeyError(slot)
        return self.companions.get(place) or (self.paths[place],)

    def __iter__(self) -> Iterator[Slot]:
        return zip(self.paths, self.splits, strict=True)

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True, eq=False)
class PreviousRun:
    """The state of an earlier scan, finished or not.

    Args:
        listing: files as they were, with digests.
        key: digest of `measured`.
        items: the files that each item's rows came from.
        table: those rows.
        undeclared: fields in the data that the schema does not list.
        when: when the scan began, "" for parts of an interrupted one.
        measured: the result of `previous_runs.measured`.
        notes: notes on the listing, and on changes since the run before.
        compared: there was a run before.
        unclaimed: files that no sample uses.
        whole: every sample is there, read, and from files with known digests, so unchanged data
            need not be read again.
        crashes, deaths: measurements and items on which datacheck's own code failed.
        pairs: results of the second read of pairs of samples, by the digest of the question.
        only: the scanned file where DATA is one file; None for a folder.
        folder: the finished run that has exactly these rows, or ``Path()``.
        written: everything else equals that run's ``listing.npz``.
    """

    listing: Listing
    key: str
    items: Slots
    table: Table
    undeclared: Sequence[str] = ()
    when: str = ""
    measured: Sequence[Any] = ()
    notes: Sequence[Note] = ()
    compared: bool = False
    unclaimed: Sequence[str] = ()
    whole: bool = False
    crashes: Sequence[dict[str, str]] = ()
    deaths: Sequence[dict[str, str]] = ()
    pairs: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    only: str | None = None
    folder: Path = Path()
    written: bool = False


def state_bytes(past: PreviousRun) -> memoryview:
    """Return the bytes of ``listing.npz``: the state of a run without its rows.

    Notes:
        Every file of `items`, and every unclaimed one, must be in the listing.
    """
    listing, items = past.listing, past.items
    entries = listing.entries
    head = {
        "format": FORMAT,
        "key": past.key,
        "measured": list(past.measured),
        "root": str(listing.root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in sorted(listing.roots.items())},
        "only": past.only,
        "skipped": [list(pair) for pair in listing.skipped],
        "undeclared": list(past.undeclared),
        "splits": list(items.splits.words),
        "notes": [_note_json(note) for note in past.notes],
        "compared": past.compared,
        "whole": past.whole,
        "crashes": list(past.crashes),
        "deaths": list(past.deaths),
        "pairs": {question: sorted(columns) for question, columns in sorted(past.pairs.items())},
    }
    file_index = dict(zip(entries.paths, range(len(entries)), strict=True))
    several = sorted(items.companions)
    arrays: dict[str, Any] = {
        "head": np.frombuffer(orjson.dumps(head), np.uint8),
        "paths": np.frombuffer("\0".join(entries.paths).encode(), np.uint8),
        "numbers": entries.numbers,
        "digests": entries.digests,
        "items": np.array([file_index[path] for path in items.paths], np.int32),
        "splits": items.splits.rows,
        "several": np.array(several, np.int32),
        "counts": np.array([len(items.companions[place]) for place in several], np.int32),
        "files": np.array(
            [file_index[file] for place in several for file in items.companions[place]], np.int32
        ),
        "unclaimed": np.array([file_index[path] for path in past.unclaimed], np.int32),
    }
    marks = {
        path: file_marks
        for path, file_marks in sorted(listing.marks.items())
        if len(file_marks) and path in file_index
    }
    arrays["marked"] = np.array([file_index[path] for path in marks], np.int32)
    arrays |= {f"marks/{number}": file_marks for number, file_marks in enumerate(marks.values())}
    for question, columns in past.pairs.items():
        arrays |= {
            f"pairs/{question}/{number}": columns[name]
            for number, name in enumerate(sorted(columns))
        }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getbuffer()


def _note_json(note: Note) -> list[Any]:
    return [note.code, note.key, note.reason, note.missing, note.split, dict(note.about)]


def read_state(folder: Path) -> PreviousRun:
    """Return the state of a finished run.

    Raises:
        Exception: of many kinds, where the run is damaged or of another version.
    """
    table = read_table(folder / SAMPLES)
    with Arrays(folder / LISTING, LISTING_BYTES, links=False) as arrays:
        head = parse_head(
            arrays["head"].tobytes(), len(table) + len(arrays) + len(arrays["digests"])
        )
        if head["format"] != FORMAT:
            msg = f"{folder / LISTING}: {head['format']}"
            raise ValueError(msg)
        entries = _entries(arrays)
        listing = Listing(
            Path(head["root"]),
            entries,
            [(path, reason) for path, reason in head["skipped"]],
            {name: Path(path) for name, path in head["roots"].items()},
            marks=_marks(arrays, entries),
        )
        unclaimed = _places(arrays, "unclaimed", len(entries))
        pairs = {
            question: {
                name: arrays[f"pairs/{question}/{number}"] for number, name in enumerate(names)
            }
            for question, names in head["pairs"].items()
        }
        return PreviousRun(
            listing=listing,
            key=head["key"],
            items=_slots(arrays, entries.paths, head["splits"]),
            table=table,
            undeclared=head["undeclared"],
            when=read_started(folder),
            measured=head["measured"],
            notes=[Note(*fields) for fields in head["notes"]],
            compared=head["compared"],
            unclaimed=[entries.paths[i] for i in unclaimed.tolist()],
            whole=head["whole"],
            crashes=head["crashes"],
            deaths=head["deaths"],
            pairs=pairs,
            only=head["only"],
            folder=folder,
            written=True,
        )


def _entries(arrays: Arrays) -> Entries:
    """Return the files of a ``listing.npz``.

    Raises:
        ValueError: its columns do not fit one another.
    """
    numbers = arrays["numbers"]
    digests = arrays["digests"]
    octets = arrays["paths"].tobytes()
    count = octets.count(b"\0") + 1 if len(numbers) else 0  # checked before decoding the paths
    if numbers.dtype != np.int64 or numbers.shape != (count, STAMPS) or digests.shape != (count,):
        msg = (
            f"{LISTING} is damaged: {count:,} paths, {numbers.shape} numbers, {digests.shape} "
            f"digests"
        )
        raise ValueError(msg)
    if digests.dtype != "S32" and count:
        msg = f"{LISTING} is damaged: digests of type {digests.dtype.str}"
        raise ValueError(msg)
    paths = octets.decode().split("\0") if count else []
    if count and digests.view(np.uint8).max() >= 128:
        msg = f"{LISTING} is damaged: a digest is none"
        raise ValueError(msg)
    return Entries(paths, numbers, digests)


def _marks(arrays: Arrays, entries: Entries) -> dict[str, Array]:
    """Return where lines of large files begin, by path; {} for files of earlier versions.

    Raises:
        ValueError: the positions cannot be line starts of these files.
    """
    by_path = {}
    for number, place in enumerate(
        _places(arrays, "marked", len(entries)).tolist() if "marked" in arrays else ()
    ):
        marks = by_path[entries.paths[place]] = arrays[f"marks/{number}"]
        well_formed = (
            marks.dtype == np.int64 and marks.ndim == 2 and marks.shape[1] == 2 and len(marks)
        )
        if (
            not well_formed
            or marks.min() <= 0
            or (np.diff(marks, axis=0) <= 0).any()
            or marks[-1, 0] > entries.sizes[place]
        ):
            msg = f"{LISTING} is damaged: no lines begin at the bytes that it says"
            raise ValueError(msg)
    return by_path


def _places(arrays: Arrays, name: str, most: int) -> Array:
    """Return a column of whole numbers from 0 to below `most`, int32.

    Raises:
        ValueError: it holds other values.
    """
    places = arrays[name]
    if (
        places.dtype != np.int32
        or places.ndim != 1
        or (len(places) and not 0 <= places.min() <= places.max() < most)
    ):
        msg = f"{LISTING} is damaged: {name!r} holds other than whole numbers below {most:,}"
        raise ValueError(msg)
    return places


def _slots(arrays: Arrays, paths: Sequence[str], splits: Sequence[str]) -> Slots:
    """Return the items of a ``listing.npz``.

    Raises:
        ValueError: they do not fit its files.
    """
    items = _places(arrays, "items", len(paths))
    words = _places(arrays, "splits", len(splits))
    several = _places(arrays, "several", len(items))
    counts = _places(arrays, "counts", len(arrays["files"]) + 1)
    files = _places(arrays, "files", len(paths))
    if len(words) != len(items) or len(counts) != len(several) or counts.sum() != len(files):
        msg = f"{LISTING} is damaged: its items, splits and files are not as many"
        raise ValueError(msg)
    file_numbers = iter(files.tolist())
    companions = {
        place: tuple(paths[next(file_numbers)] for _ in range(count))
        for place, count in zip(several.tolist(), counts.tolist(), strict=True)
    }
    return Slots([paths[i] for i in items.tolist()], Texts(splits, words), companions)


def last_finished(folders: Sequence[Path]) -> PreviousRun | None:
    """Return the state of the first of these runs that can be read, or None."""
    for folder in folders:
        # Any error: a damaged run counts as none.
        with contextlib.suppress(Exception):
            return read_state(folder)
    return None


CHANGED = "DC108"
_TABLE_VERSION = 3
# The keys of a field's declaration that decide how files are read.
_READING = ("at", "file", "columns", "shape", "dtype", "absent")


def measured(
    schema: Schema, measures: Sequence[Measure], level: Depth = "deep", *, outside: bool = True
) -> list[Any]:
    """Return everything besides the files' bytes that decides what rows hold, as JSON values.

    Thresholds are not part of it.

    Args:
        schema: the schema in force.
        measures: the measurements.
        level: how deep the scan reads; it counts only where another level would read something
            else.
        outside: as in `Measure.settings`.

    Returns:
        Versions; the settings that decide which files are read; then per variant of the schema how
        its fields are read, and the settings of each measurement.
    """
    schema_json = schema.as_dict()
    versions = {
        "version": __version__,
        "table": _TABLE_VERSION,
        "formats": {name: list(kind.suffixes) for name, kind in sorted(formats().items())},
    }
    every = variants(schema)
    depth_independent = level != "structure" and all(
        v.stored and ANY not in v.fields and not pixels(v) for v in every
    )
    files = {
        key: schema_json.get(key) for key in ("samples", "near_names", "columns", "attrs", "splits")
    }
    if schema.reads_unlisted:
        files["fields that the schema does not list"] = True
    parts: list[Any] = [
        versions,
        files | {"when": sorted(schema.when), "level": "" if depth_independent else level},
    ]
    for variant in every:
        fields = {
            name: {key: value for key, value in spec.items() if key in _READING}
            for name, spec in variant.as_dict().get("fields", {}).items()
        }
        parts.append([fields, [m.settings(variant, outside=outside) for m in measures]])
    return parts


def measured_key(schema: Schema, measures: Sequence[Measure], level: Depth = "deep") -> str:
    """Return the digest of `measured`."""
    return digest_value(measured(schema, measures, level))


@dataclass(eq=False)
class ReusedRows:
    """Rows of earlier scans that are still valid.

    Args:
        listing: the new listing with every digest that is still known.
        done: bool (items): items whose rows are reused.
        companions: by place, all files of a done item that has more than one file.
        tables: the reused rows.
        undeclared: undeclared fields of the scans that the rows come from.
        partly: some rows of one of these scans are not reused.
    """

    listing: Listing
    done: Array
    companions: dict[int, tuple[str, ...]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    undeclared: set[str] = field(default_factory=set)
    partly: bool = False


def unchanged(listing: Listing, key: str, past: PreviousRun) -> bool:
    """Tell whether a past scan measured the same, and no file has changed, come or gone since."""
    if not past.whole or past.key != key or listing.skipped != past.listing.skipped:
        return False
    before, now = past.listing.entries, listing.entries
    if before.paths != now.paths or not before.settled().all():
        return False
    return bool(now.same(before, np.arange(len(now))).all())


def reuse_rows(
    listing: Listing,
    items: Sequence[Item],
    files_of: Callable[[Item], list[str]],
    key: str,
    pasts: Sequence[PreviousRun],
) -> ReusedRows:
    """Return the rows of items whose files have not changed since a past scan with the same key.

    Args:
        listing: the new listing.
        items: the items to scan.
        files_of: returns the files that reading an item opens now.
        key: the new scan's `measured_key`.
        pasts: newest first.

    Notes:
        A companion that has come or gone since is a change. Samples that were skipped (a library
        was missing) are read again.
    """
    reused = ReusedRows(listing, np.zeros(len(items), bool))
    for past in pasts:
        digests = carried_digests(listing, past.listing)
        digest_known = digests != b""
        places = {path: listing.entries.find(path) for path in past.listing.marks}
        marks = {
            path: past.listing.marks[path]
            for path, place in places.items()
            if place >= 0 and digest_known[place]
        }
        reused.listing = replace(reused.listing, marks=marks | dict(reused.listing.marks))
        reused.listing = reused.listing.with_digests(
            np.where(digest_known, digests, reused.listing.entries.digests)
        )
        if past.key != key:
            continue
        reused_slots: set[Slot] = set()
        skipped = _skipped(past.table)
        for place, item in enumerate(items):
            slot = item.path, item.split
            if reused.done[place] or slot in skipped or (before := past.items.get(slot)) is None:
                continue
            files = files_of(item)
            file_places = [listing.entries.find(file) for file in files]
            if files == list(before) and min(file_places) >= 0 and digest_known[file_places].all():
                reused.done[place] = True
                reused_slots.add(slot)
                if len(files) > 1:
                    reused.companions[place] = tuple(listing.entries.paths[i] for i in file_places)
        if reused_slots:
            reused.partly |= len(reused_slots) < len(past.items)
            reused.undeclared.update(past.undeclared)
            reused.tables.append(_rows_of(past.table, reused_slots))
            share_keys(reused.tables[-1], listing)
    return reused


def _skipped(table: Table) -> set[Slot]:
    return {
        (table.files[i], table.splits[i]) for i in np.flatnonzero(table.status == SKIPPED).tolist()
    }


def _rows_of(table: Table, slots: Collection[Slot]) -> Table:
    mask = np.fromiter(
        (slot in slots for slot in zip(table.files, table.splits, strict=True)),
        dtype=bool,
        count=len(table),
    )
    return table if mask.all() else table.take(np.flatnonzero(mask))


def share_keys(table: Table, listing: Listing) -> None:
    """Replace a table's keys by equal texts of the listing, so that each path is stored once."""
    entries = listing.entries
    if table.files is table.keys:
        places = [entries.find(key) for key in table.keys]
        pairs = zip(places, table.keys, strict=True)
        table.keys = table.files = [
            entries.paths[place] if place >= 0 else key for place, key in pairs
        ]


def changed_only(past: PreviousRun, listing: Listing) -> PreviousRun:
    """Reduce a past scan to the input of `changes`: the files whose digest is another one now."""
    before, now = past.listing.entries, listing.entries
    places = before.places_in(now)
    changed = places >= 0
    changed[changed] = before.digests[changed] != now.digests[places[changed]]
    changed_listing = replace(past.listing, entries=before.take(np.flatnonzero(changed)))
    return PreviousRun(
        changed_listing, past.key, Slots([], [], {}), Table(), when=past.when, folder=past.folder
    )


def comparable(choice: Choice, *, compared: bool) -> Choice:
    """Return the choice; not applicable if its rule needs an earlier scan and there is none."""
    if choice.rule.code != CHANGED or compared or choice.verdict is not None:
        return choice
    return replace(
        choice,
        verdict=Verdict.NOT_APPLICABLE,
        why="there is no earlier scan of these data to compare with",
    )


def changes(listing: Listing, past: PreviousRun | None, items: Sequence[Item]) -> list[Note]:
    """Return a note for every file whose content differs from the last finished scan.

    Args:
        listing: the new listing with digests.
        past: that scan.
        items: give each file's split.
    """
    if past is None or not len(past.listing.entries):
        return []
    split = {item.path: item.split for item in items}
    notes = []
    for old in past.listing.entries:
        entry = listing.by_path.get(old.path)
        if entry is not None and old.digest and entry.digest and old.digest != entry.digest:
            size = f"{old.size:,} bytes" + (
                "" if old.size == entry.size else f", now {entry.size:,}"
            )
            message = f"its content has changed since the scan of {past.when} ({size})"
            notes.append(Note(CHANGED, entry.path, message, split=split.get(entry.path, "")))
    return notes


_ROOM = 20_000  # bytes for the ids of findings


def same_data_run(past: PreviousRun | None, listing: Listing, only: str | None) -> Path | None:
    """Return the folder of an earlier run if it scanned the same data, else None.

    One ``--output`` folder may hold runs of any data.
    """
    if past is None or past.folder == Path() or past.only != only:
        return None
    return past.folder if _folders(past.listing) == _folders(listing) else None


def _folders(listing: Listing) -> tuple[Path, dict[str, Path]]:
    return listing.root.resolve(), {name: path.resolve() for name, path in listing.roots.items()}


def changes_since(report: Report, folder: Path | None) -> dict[str, Any]:
    """Return ``since`` of a report's run: errors and warnings that are new or gone.

    Args:
        report: of a scan.
        folder: of the run before it.

    Returns:
        {} where that run is None, cannot be read, or has lost findings to truncation.

    Notes:
        Findings that a baseline suppresses count as known. A finding is gone only if its rule was
        judged this time. ``other`` names the differences besides the data (schema, version, depth,
        reference), since findings may come and go with them. DC108 is left out: it reports changed
        files itself.
    """
    if folder is None:
        return {}
    try:
        document = read_result(folder)
        missing = {"findings", "suppressed"} & {*document.get("left_out", {})}
        return {} if missing else {"since": _finding_changes(report, document)}
    except (OSError, ValueError, LookupError):
        return {}


def _finding_changes(report: Report, before: dict[str, Any]) -> dict[str, Any]:
    earlier = before["run"]
    run = report.run
    judged = {v.code for v in report.verdicts if v.verdict in {Verdict.PASS, Verdict.FAIL}} - {
        CHANGED
    }
    reported = [
        record
        for record in [*before["findings"], *before.get("suppressed", [])]
        if record["severity"] != "info"
    ]
    known_ids = {record["id"] for record in reported}
    ids = {f.id for f in [*report.findings, *report.suppressed] if f.severity is not Severity.INFO}
    fresh = {f.id for f in report.findings if f.code != CHANGED} & ids - known_ids
    pairs = {
        "schema": (before["schema"]["digest"], report.schema["digest"]),
        "version": (earlier["version"], run["version"]),
        "depth": (earlier["level"], run["level"]),
        "reference": tuple(record.get("reference", {}).get("run") for record in (earlier, run)),
    }
    return {
        "run": str(earlier["id"]),
        "started": str(earlier["started"]),
        "new": _count_and_ids(finding.id for finding in report.findings if finding.id in fresh),
        "gone": _count_and_ids(
            record["id"]
            for record in reported
            if record["id"] not in ids and record["rule"] in judged
        ),
        "other": [aspect for aspect, (record, current) in pairs.items() if record != current],
    }


def _count_and_ids(names: Iterable[str]) -> dict[str, Any]:
    """Return the number of different findings, and the ids of the first of them."""
    distinct = list(dict.fromkeys(names))
    room = _ROOM
    ids = []
    for name in distinct:
        room -= len(orjson.dumps(name))
        if room < 0:
            break
        ids.append(name)
    return {"count": len(distinct), "ids": ids}


def read_reference(folder: Path, schema: Schema) -> Table:
    """Return the rows of a finished run.

    Args:
        folder: the folder of a run: ``.datacheck/<run>``, or ``.datacheck/latest``.
        schema: the schema in force; a schema of another name measures other things.

    Raises:
        UsageError: there is no finished run, it cannot be read, or it was made with a schema of
            another name.
    """
    place = run_documents.run_in(folder)
    if place is None:
        msg = (
            f"{folder}: is no finished run. --reference names the folder of one, for example "
            f".datacheck/latest"
        )
        raise UsageError(msg)
    try:
        name = read_result(place)["schema"]["name"]
        table = read_table(place / run_documents.SAMPLES) if name == schema.name else None
        if table is not None and is_plain(schema) and not in_form(table.columns):
            msg = "its columns have another form than those of a scan"
            raise ValueError(msg)  # noqa: TRY301  handled below like any other damage
    except Exception as error:
        raise run_documents.unread(folder, error) from error
    if table is None:
        msg = (
            f"{folder}: was made with schema {name}, not {schema.name}: their rows cannot be "
            f"compared."
        )
        raise UsageError(msg)
    return table


def named_reference(folder: Path | None) -> dict[str, dict[str, str]]:
    """Return ``reference`` of a report's run: id and folder, relative to the working folder.

    {} without a reference.

    Notes:
        ``.datacheck/latest`` points to another run as soon as this run is published, so the folder
        is the link's target.
    """
    place = None if folder is None else run_documents.run_in(folder)
    if place is None:
        return {}
    try:
        run = read_result(place)["run"]["id"]
    except (OSError, ValueError) as error:
        raise run_documents.unread(place, error) from error
    return {"reference": {"run": run, "folder": os.path.relpath(place.resolve())}}


def reference_of(run: Mapping[str, Any], schema: Schema) -> Table | None:
    """Return the rows that a finished run was compared with, or None.

    None where the run has no reference, or the reference is gone or damaged.

    Args:
        run: ``run`` of its result.json.
        schema: that of the run.
    """
    stored = run.get("reference")
    if stored is None:
        return None
    folder = Path(stored["folder"])
    try:
        same_run = named_reference(folder).get("reference", {}).get("run") == stored["run"]
        return read_reference(folder, schema) if same_run else None
    except (UsageError, StorageError, OSError, LookupError, TypeError, ValueError):
        # Damaged or unreadable since: the page is drawn without it.
        return None
