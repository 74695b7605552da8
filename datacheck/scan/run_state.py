"""The state of a scan: its rows, and all that the next scan needs to keep them.

A finished run stores the rows in ``samples.parquet`` and the rest in ``listing.npz``, which holds
columns and a JSON head as `numpy.savez` stores them. `finished` reads the state together with the
report that the run has stored in ``result.json``.
"""

from __future__ import annotations

import contextlib
import io
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from datacheck.model.finding import Cause, Finding, Level, Report, RuleVerdict, Severity, Verdict
from datacheck.model.table import Note, Slot, Table, Texts
from datacheck.rules.base import pluralize
from datacheck.runtime.documents import Arrays
from datacheck.scan import run_documents
from datacheck.scan.run_documents import LISTING, SAMPLES, parse_head, read_result, read_started
from datacheck.scan.samples import read_table
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries

Array = np.ndarray[Any, Any]

FORMAT = "datacheck.listing/2"
LISTING_BYTES = 8 << 30  # at about 130 bytes a file
STAMPS = 5  # numbers per file


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
class RunState:
    """The state of a scan, finished or not.

    Args:
        listing: files as they were, with digests.
        key: digest of `measured`.
        items: the files that each item's rows came from.
        table: those rows.
        undeclared: fields in the data that the schema does not list.
        when: when the scan began, "" for parts of an interrupted one.
        measured: `MeasurementSettings.as_json`.
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

    @staticmethod
    def of_loader(
        factory: str, table: Table, undeclared: Iterable[str], deaths: Sequence[dict[str, str]]
    ) -> RunState:
        """Return the state of the audit of a loader: without files, so no later scan reuses rows.

        Args:
            factory: the loader.
            table, undeclared, deaths: as above.
        """
        listing = Listing(Path(factory), Entries.of([]))
        slots = Slots([], [], {})
        return RunState(listing, "", slots, table, undeclared=sorted(undeclared), deaths=deaths)


def state_bytes(past: RunState) -> memoryview:
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


def read_state(folder: Path) -> RunState:
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
        return RunState(
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


def last_finished(folders: Sequence[Path]) -> RunState | None:
    """Return the state of the first of these runs that can be read, or None."""
    for folder in folders:
        # Any error: a damaged run counts as none.
        with contextlib.suppress(Exception):
            return read_state(folder)
    return None


# ------------------------------------------------------------------------------------ finished run


Read = TypeVar("Read")

_LEFT_OUT = {
    "findings": "more finding",
    "suppressed": "more known finding",
    "unchecked": "more sentence",
}


@dataclass(frozen=True, eq=False)
class _StoredFinding(Finding):
    """A finding of a result.json, which has the number of its samples but not their rows."""

    count: int = 0

    @property
    def failed(self) -> int:
        """How many samples fail."""
        return self.count


@dataclass(frozen=True, eq=False)
class _StoredReport(Report):
    """A report that may lack its last findings; the verdict is that of all findings."""

    verdict: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the command line returned."""
        return int(self.verdict["exit_code"])

    def counts(self) -> dict[str, int]:
        """Return the number of findings by severity."""
        return dict(self.verdict["counts"])


def finished(folder: Path, read: Callable[[Report, RunState], Read]) -> Read:
    """Return the result of `read` on the report and the state of a finished run.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        read: as for `read_run`.

    Raises:
        UsageError: there is no such run, or it cannot be read.
        StorageError: this user may not read it.
    """

    def checked(place: Path, document: dict[str, Any]) -> Read:
        state = read_state(place)
        samples = len(state.table)
        run_documents.check_valid(run_documents.read_valid(place, samples), document, samples)
        return read(_report(document, place.resolve()), state)

    return read_run(folder, checked)


def read_run(folder: Path, read: Callable[[Path, dict[str, Any]], Read]) -> Read:
    """Return the result of `read` on a finished run's folder and result.json.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        read: any error that it raises is reported as a fault of the run.

    Raises:
        UsageError: there is no such run, or it cannot be read.
        StorageError: this user may not read it.
    """
    place = run_documents.finished_run(folder)
    try:
        return read(place, read_result(place))
    except Exception as error:
        raise run_documents.unread(folder, error) from error


def _report(document: Mapping[str, Any], place: Path) -> Report:
    counts = [
        (count, _LEFT_OUT[name])
        for name, count in document.get("left_out", {}).items()
        if name in _LEFT_OUT
    ]
    left_out = [
        f"{pluralize(count, unit)}, for which result.json has no room" for count, unit in counts
    ]
    return _StoredReport(
        document["run"],
        document["dataset"],
        document["schema"],
        [_verdict(code, rule) for code, rule in document["rules"].items()],
        [_finding(record) for record in document["findings"]],
        document["verdict"]["valid"],
        [*document["unchecked"], *left_out],
        document["crashes"],
        str(place),
        [_finding(record) for record in document.get("suppressed", [])],
        verdict=document["verdict"],
    )


def _verdict(code: str, rule: Mapping[str, Any]) -> RuleVerdict:
    return RuleVerdict(
        code,
        rule["name"],
        Verdict(rule["status"]),
        Severity(rule["severity"]),
        Level(rule["level"]),
        rule.get("checked", 0),
        rule.get("failed", 0),
        rule.get("skipped", {}),
        tuple(rule.get("unseen", ())),
        rule.get("why", ""),
        rule["options"],
        rule.get("compared", {}),
    )


def _finding(record: Mapping[str, Any]) -> Finding:
    cause = record["cause"]
    return _StoredFinding(
        record["rule"],
        record["name"],
        Severity(record["severity"]),
        Level(record["level"]),
        tuple(record["fields"]),
        record["message"],
        np.zeros(0, np.int64),
        record["of"],
        tuple(record["examples"]),
        record["measured"],
        record["expected"],
        cause and Cause(**cause | {"alternatives": tuple(cause["alternatives"])}),
        record["fix"],
        record["kind"],
        record["hides"],
        record["split"],
        record.get("suppressed", ""),
        count=record["failed"],
    )
