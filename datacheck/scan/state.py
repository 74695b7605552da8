"""What a run keeps for the next one: the files as they were, which rows came from which, and what the listing said.

``listing.npz`` holds columns and a head in JSON, stored as `numpy.savez` does.
"""

from __future__ import annotations

import contextlib
import io
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.runtime.documents import Arrays
from datacheck.scan.documents import parse_head, read_started
from datacheck.scan.samples import read_table
from datacheck.scan.store import LISTING, SAMPLES
from datacheck.sources.entries import Entries
from datacheck.sources.listing import Listing
from datacheck.table import Note, Table, Texts

Array = np.ndarray[Any, Any]

FORMAT = "datacheck.listing/2"
LISTING_BYTES = 8 << 30  # some 130 bytes a file
STAMPS = 5  # numbers of a file

Slot = tuple[str, str]  # an item's path and split


class Slots(Mapping[Slot, tuple[str, ...]]):
    """Items by path and split, and the files that each one's rows came from.

    Args:
        paths: of the items, sorted.
        splits: of the items.
        companions: by place, all files of an item that is more than one file.
    """

    def __init__(self, paths: Sequence[str], splits: Sequence[str], companions: Mapping[int, tuple[str, ...]]) -> None:
        self.paths = paths
        self.splits = Texts.of(splits)
        self.companions = companions

    @staticmethod
    def of(items: Mapping[Slot, Sequence[str]]) -> Slots:
        """Return the slots of a dict."""
        slots = sorted(items)
        companions = {i: tuple(items[s]) for i, s in enumerate(slots) if list(items[s]) != [s[0]]}
        return Slots([path for path, _ in slots], [split for _, split in slots], companions)

    def find(self, path: str, split: str) -> int:
        """Return the place of an item, -1 where there is none."""
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
class Past:
    """What an earlier scan, finished or not, knows.

    Args:
        listing: files as they were, with digests.
        key: digest of what was measured.
        items: the files that each item's rows came from.
        table: those rows.
        undeclared: fields met that the schema does not list.
        when: when the scan began, "" for parts of an interrupted one.
        measured: what was measured, as `history.measured` says it.
        notes: what the listing said, and what had changed since the run before.
        compared: there was a run before.
        unclaimed: files that no sample uses.
        whole: every sample is there, read, and from files with known digests: of unchanged data nothing is missing.
        crashes, deaths: measurements and items on which our own code failed.
        pairs: what a second read found of pairs of samples, by what was asked.
        only: the one file that was scanned, None for a folder.
        folder: the finished run that these rows are all of, if any.
        written: all else is what that run's ``listing.npz`` says, too.
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


def state_bytes(past: Past) -> memoryview:
    """Return all of a run but its rows as the bytes of ``listing.npz``.

    Notes:
        Every file of `items`, and every unclaimed one, is in the listing.
    """
    listing, items = past.listing, past.items
    entries = listing.entries
    head = {
        "format": FORMAT, "key": past.key, "measured": list(past.measured), "root": str(listing.root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in sorted(listing.roots.items())}, "only": past.only,
        "skipped": [list(pair) for pair in listing.skipped], "undeclared": list(past.undeclared),
        "splits": list(items.splits.words), "notes": [_said(note) for note in past.notes], "compared": past.compared,
        "whole": past.whole, "crashes": list(past.crashes), "deaths": list(past.deaths),
        "pairs": {asked: sorted(found) for asked, found in sorted(past.pairs.items())},
    }  # fmt: skip
    known = dict(zip(entries.paths, range(len(entries)), strict=True))
    several = sorted(items.companions)
    arrays: dict[str, Any] = {
        "head": np.frombuffer(orjson.dumps(head), np.uint8),
        "paths": np.frombuffer("\0".join(entries.paths).encode(), np.uint8),
        "numbers": entries.numbers,
        "digests": entries.digests,
        "items": np.array([known[path] for path in items.paths], np.int32),
        "splits": items.splits.rows,
        "several": np.array(several, np.int32),
        "counts": np.array([len(items.companions[place]) for place in several], np.int32),
        "files": np.array([known[file] for place in several for file in items.companions[place]], np.int32),
        "unclaimed": np.array([known[path] for path in past.unclaimed], np.int32),
    }
    marks = {path: some for path, some in sorted(listing.marks.items()) if len(some) and path in known}
    arrays["marked"] = np.array([known[path] for path in marks], np.int32)
    arrays |= {f"marks/{number}": some for number, some in enumerate(marks.values())}
    for asked, found in past.pairs.items():
        arrays |= {f"pairs/{asked}/{number}": found[name] for number, name in enumerate(sorted(found))}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getbuffer()


def _said(note: Note) -> list[Any]:
    return [note.code, note.key, note.reason, note.missing, note.split, dict(note.about)]


def read_state(folder: Path) -> Past:
    """Return a finished run.

    Raises:
        Exception: of many kinds, where the run is damaged or of another version.
    """
    table = read_table(folder / SAMPLES)
    with Arrays(folder / LISTING, LISTING_BYTES, links=False) as arrays:
        head = parse_head(arrays["head"].tobytes(), len(table) + len(arrays) + len(arrays["digests"]))
        if head["format"] != FORMAT:
            msg = f"{folder / LISTING}: {head['format']}"
            raise ValueError(msg)
        entries = _entries(arrays)
        listing = Listing(
            Path(head["root"]), entries, [(path, reason) for path, reason in head["skipped"]],
            {name: Path(path) for name, path in head["roots"].items()}, marks=_marks(arrays, entries),
        )  # fmt: skip
        unclaimed = _places(arrays, "unclaimed", len(entries))
        pairs = {
            asked: {name: arrays[f"pairs/{asked}/{number}"] for number, name in enumerate(found)}
            for asked, found in head["pairs"].items()
        }
        return Past(
            listing=listing, key=head["key"], items=_slots(arrays, entries.paths, head["splits"]), table=table,
            undeclared=head["undeclared"], when=read_started(folder), measured=head["measured"],
            notes=[Note(*said) for said in head["notes"]], compared=head["compared"],
            unclaimed=[entries.paths[i] for i in unclaimed.tolist()], whole=head["whole"],
            crashes=head["crashes"], deaths=head["deaths"], pairs=pairs, only=head["only"], folder=folder, written=True,
        )  # fmt: skip


def _entries(arrays: Arrays) -> Entries:
    """Return the files of a listing.npz.

    Raises:
        ValueError: its columns do not fit one another.
    """
    numbers, digests, octets = arrays["numbers"], arrays["digests"], arrays["paths"].tobytes()
    count = octets.count(b"\0") + 1 if len(numbers) else 0  # before they become texts
    if numbers.dtype != np.int64 or numbers.shape != (count, STAMPS) or digests.shape != (count,):
        msg = f"{LISTING} is damaged: {count:,} paths, {numbers.shape} numbers, {digests.shape} digests"
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
    """Return where lines of large files begin; an earlier version did not write it.

    Raises:
        ValueError: they cannot be lines of these files.
    """
    found = {}
    for number, place in enumerate(_places(arrays, "marked", len(entries)).tolist() if "marked" in arrays else ()):
        marks = found[entries.paths[place]] = arrays[f"marks/{number}"]
        sound = marks.dtype == np.int64 and marks.ndim == 2 and marks.shape[1] == 2 and len(marks)
        if not sound or marks.min() <= 0 or (np.diff(marks, axis=0) <= 0).any() or marks[-1, 0] > entries.sizes[place]:
            msg = f"{LISTING} is damaged: no lines begin at the bytes that it says"
            raise ValueError(msg)
    return found


def _places(arrays: Arrays, name: str, most: int) -> Array:
    """Return whole numbers from 0 to below `most`, int32.

    Raises:
        ValueError: there are others.
    """
    found = arrays[name]
    if found.dtype != np.int32 or found.ndim != 1 or (len(found) and not 0 <= found.min() <= found.max() < most):
        msg = f"{LISTING} is damaged: {name!r} holds other than whole numbers below {most:,}"
        raise ValueError(msg)
    return found


def _slots(arrays: Arrays, paths: Sequence[str], splits: Sequence[str]) -> Slots:
    """Return the items of a listing.npz.

    Raises:
        ValueError: they do not fit its files.
    """
    items, words = _places(arrays, "items", len(paths)), _places(arrays, "splits", len(splits))
    several, counts = _places(arrays, "several", len(items)), _places(arrays, "counts", len(arrays["files"]) + 1)
    files = _places(arrays, "files", len(paths))
    if len(words) != len(items) or len(counts) != len(several) or counts.sum() != len(files):
        msg = f"{LISTING} is damaged: its items, splits and files are not as many"
        raise ValueError(msg)
    rest = iter(files.tolist())
    companions = {
        place: tuple(paths[next(rest)] for _ in range(count))
        for place, count in zip(several.tolist(), counts.tolist(), strict=True)
    }
    return Slots([paths[i] for i in items.tolist()], Texts(splits, words), companions)


def last_finished(folders: Sequence[Path]) -> Past | None:
    """Return the first of these runs whose files can be read, or None."""
    for folder in folders:
        with contextlib.suppress(Exception):  # whatever is wrong with it: a damaged run is as good as none
            return read_state(folder)
    return None
