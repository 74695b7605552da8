"""What earlier scans of the same data know, so that unchanged files are not opened again; what an interrupted one did.

A run lies in ``.datacheck/<run>/``; ``.datacheck/.work-<dataset>/`` holds the parts of a scan that is not finished.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck import __version__, fsops
from datacheck.digest import digest_value
from datacheck.errors import UsageError
from datacheck.finding import Verdict
from datacheck.rules.base import Measure
from datacheck.sample import Depth
from datacheck.scan.select import Choice, variants
from datacheck.scan.store import LISTING, NAMES, RESULT, SAMPLES, read_table
from datacheck.schema.model import ANY, Schema
from datacheck.schema.pixels import pixels
from datacheck.sources.base import Item
from datacheck.sources.listing import Entry, Listing, carried
from datacheck.table import Note, Table, concatenate
from datacheck.wire import decode, encode

CHANGED = "DC108"
_TABLE_VERSION = 1
_READING = ("at", "file", "columns", "shape", "dtype", "absent")  # what of a declaration decides how files are read

Slot = tuple[str, str]  # an item's path and split


def measured_key(schema: Schema, measures: Sequence[Measure], level: Depth = "deep") -> str:
    """Return the digest of everything besides the files' bytes that decides what rows hold; no thresholds.

    Args:
        schema: the schema in force.
        measures: what is measured.
        level: how deep the scan reads; it counts only where another level would read something else.
    """
    said = schema.as_dict()
    parts: list[Any] = [
        __version__,
        _TABLE_VERSION,
        {k: said.get(k) for k in ("samples", "columns", "attrs", "splits")},
    ]
    for variant in variants(schema):
        fields = {
            name: {key: value for key, value in spec.items() if key in _READING}
            for name, spec in variant.as_dict().get("fields", {}).items()
        }
        parts.append([fields, [m.settings(variant) for m in measures]])
    alike = level != "structure" and all(v.stored and ANY not in v.fields and not pixels(v) for v in variants(schema))
    return digest_value([parts, sorted(schema.when), "" if alike else level])


@dataclass(frozen=True, eq=False)
class Past:
    """What an earlier scan, finished or not, knows.

    Args:
        listing: files as they were, with digests.
        key: its `measured_key`.
        items: the files that each item's rows came from; none where that is the item's own file alone.
        table: those rows.
        undeclared: fields met that the schema does not list.
        when: when the scan began, "" for parts of an interrupted one.
    """

    listing: Listing
    key: str
    items: Mapping[Slot, Sequence[str]]
    table: Table
    undeclared: Sequence[str] = ()
    when: str = ""


@dataclass(eq=False)
class Kept:
    """What need not be done again.

    Args:
        listing: the new listing with every digest that is still known.
        items: the items whose rows are kept, and the files behind them.
        tables: these rows.
        undeclared: fields met in the scans that they come from.
    """

    listing: Listing
    items: dict[Slot, Sequence[str]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    undeclared: set[str] = field(default_factory=set)


def keep(
    listing: Listing, items: Sequence[Item], files_of: Callable[[Item], list[str]], key: str, pasts: Sequence[Past]
) -> Kept:
    """Return the rows of items none of whose files has changed since a past scan that measured the same.

    Args:
        listing: the new listing.
        items: what is to be scanned.
        files_of: the files that reading an item opens now.
        key: the new scan's `measured_key`.
        pasts: newest first.

    Notes:
        A companion that has come or gone since is a change.
    """
    kept = Kept(listing)
    wanted = {(item.path, item.split): item for item in items}
    for past in pasts:
        known = carried(listing, past.listing)
        kept.listing = kept.listing.with_digests(known)
        if past.key != key:
            continue
        slots = {
            slot: tuple(files)
            for slot, item in wanted.items()
            if slot in past.items and slot not in kept.items
            and (files := files_of(item)) == list(past.items[slot] or [item.path])
            and all(file in known for file in files)
        }  # fmt: skip
        if slots:
            kept.undeclared.update(past.undeclared)
            kept.tables.append(_rows_of(past.table, slots))
            shared(kept.tables[-1], listing)
            kept.items |= slots
    return kept


def changed_only(past: Past, listing: Listing) -> Past:
    """Return of a past scan what `changes` needs to know: files whose content may be another now."""
    known = listing.by_path
    entries = [e for e in past.listing.entries if e.path in known and known[e.path].digest != e.digest]
    return replace(past, listing=replace(past.listing, entries=entries), items={}, table=Table())


def _rows_of(table: Table, slots: Collection[Slot]) -> Table:
    mask = np.fromiter(
        (slot in slots for slot in zip(table.files, table.splits, strict=True)), dtype=bool, count=len(table)
    )
    return table if mask.all() else table.take(np.flatnonzero(mask))


def shared(table: Table, listing: Listing) -> None:
    """Let a table's keys and files be the texts that the listing holds already: one for each file, not four."""
    known = listing.by_path
    for names in (table.keys, table.files):
        names[:] = [entry.path if (entry := known.get(name)) is not None else name for name in names]


def comparable(choice: Choice, past: Past | None) -> Choice:
    """Return the choice, out of play where its rule compares with an earlier scan and there is none."""
    if choice.rule.code != CHANGED or past is not None or choice.verdict is not None:
        return choice
    return replace(choice, verdict=Verdict.NOT_APPLICABLE, why="there is no earlier scan of these data to compare with")


def changes(listing: Listing, past: Past | None, items: Sequence[Item]) -> list[Note]:
    """Return a note for every file whose content is not what the last finished scan saw.

    Args:
        listing: the new listing with digests.
        past: that scan.
        items: they tell which split a file belongs to.
    """
    if past is None:
        return []
    split = {item.path: item.split for item in items}
    before = past.listing.by_path
    notes = []
    for entry in listing.entries:
        old = before.get(entry.path)
        if old is not None and old.digest and entry.digest and old.digest != entry.digest:
            size = f"{old.size:,} bytes" + ("" if old.size == entry.size else f", now {entry.size:,}")
            said = f"its content has changed since the scan of {past.when} ({size})"
            notes.append(Note(CHANGED, entry.path, said, split=split.get(entry.path, "")))
    return notes


# ----------------------------------------------------------------------------------------------- places


@dataclass(frozen=True)
class Place:
    """Where a scan keeps its results and, until it is done, its parts.

    Args:
        base: the folder of all runs.
        slot: name of dataset and schema in it.
        output: the folder that the user chose for the result, or None.
    """

    base: Path
    slot: str
    output: Path | None = None

    @property
    def work(self) -> Path:
        """The folder of an unfinished scan."""
        if self.output is not None:
            return self.output.absolute().with_name(f".{self.output.absolute().name}.work")
        return self.base / f".work-{self.slot}"

    def finished(self) -> list[Path]:
        """Return folders of finished scans of this dataset, newest first."""
        runs = sorted(self.base.glob(f"*-{self.slot}*/{RESULT}"), reverse=True) if self.base.is_dir() else []
        mine = [self.output / RESULT] if self.output is not None and (self.output / RESULT).is_file() else []
        return [path.parent for path in [*mine, *runs]]

    def publish(self, staged: Path, name: str) -> Path:
        """Give a staged run its final name; return its folder.

        Raises:
            StorageError: the file system refuses.
        """
        if self.output is not None:
            self._replace(staged, self.output)
            return self.output
        target = self.base / f"{name}-{self.slot}"
        number = 2
        while target.exists():
            target = self.base / f"{name}-{self.slot}-{number}"
            number += 1
        _rename(staged, target)
        fsops.point(self.base / "latest", target.name)
        return target

    def _replace(self, staged: Path, target: Path) -> None:
        old = self.work / "old"
        fsops.remove_tree(old)
        if target.exists():
            _rename(target, old)
        _rename(staged, target)
        fsops.remove_tree(old)


def _rename(source: Path, target: Path) -> None:
    try:
        fsops.rename(source, target)
    except OSError as error:
        raise fsops.refused(error, target) from error


def place_of(schema: Schema, root: Path, only: str | None, roots: Mapping[str, Path], output: Path | None) -> Place:
    """Return where a scan of this data keeps its results.

    Raises:
        UsageError: `output` holds something that no scan has written, or is the data folder.
    """
    said = [str(root.resolve()), only, {name: str(path.resolve()) for name, path in roots.items()}, schema.name]
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", schema.name).strip("-.") or "schema"
    if output is not None:
        _check_output(output, root)
    return Place(Path.cwd() / ".datacheck", f"{words}-{digest_value(said)[:8]}", output)


def _check_output(output: Path, root: Path) -> None:
    if output.exists() and not output.is_dir():
        msg = f"{output}: is a file. --output names a folder for the results."
        raise UsageError(msg)
    here, data = output.resolve(), root.resolve()
    if data.is_relative_to(here) or here.is_relative_to(data):
        how = "holds the data" if data.is_relative_to(here) else "lies in the data, and the next scan would read it"
        msg = f"{output}: {how}. --output names a folder of its own for the results."
        raise UsageError(msg)
    strange = sorted(p.name for p in output.iterdir() if p.name not in NAMES) if output.is_dir() else []
    if strange:
        msg = (
            f"{output}: holds {strange[0]!r}, which no scan has written, and --output replaces what is there. "
            f"Name a new folder, or one that an earlier scan made."
        )
        raise UsageError(msg)


def last_finished(place: Place) -> Past | None:
    """Return the newest finished scan whose files can be read, or None."""
    for folder in place.finished():
        with contextlib.suppress(Exception):  # whatever is wrong with it: a damaged run is as good as none
            said = orjson.loads((folder / LISTING).read_bytes())
            when = orjson.loads((folder / RESULT).read_bytes())["run"]["started"]
            items = said["items"]
            paths = zip(items["path"], items["split"], items["files"], strict=True)
            slots = {(path, split): files or () for path, split, files in paths}
            return Past(
                Listing.from_dict(said), said["measured"], slots, read_table(folder / SAMPLES), said["undeclared"], when
            )
    return None


def listing_json(
    listing: Listing, digest: str, key: str, items: Mapping[Slot, Sequence[str]], undeclared: Sequence[str]
) -> bytes:
    """Return ``datacheck.listing/1``: the files of a scan with their digests, and which rows came from which."""
    slots = sorted(items)
    said = {
        "format": "datacheck.listing/1",
        "measured": key,
        "digest": digest,
        **listing.as_dict(),
        "undeclared": list(undeclared),
        "items": {
            "path": [path for path, _ in slots],
            "split": [split for _, split in slots],
            "files": [None if list(items[s]) == [s[0]] else list(items[s]) for s in slots],
        },
    }
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


# ---------------------------------------------------------------------------------------------- journal


class Journal:
    """The finished parts of a scan under way; a later run of the same command goes on from them."""

    def __init__(self, place: Place, key: str) -> None:
        self.folder = place.work
        self._key = key
        self._number = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one process; a second scan of the same data works in a folder of its own."""
        fsops.make_directory(self.folder)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.folder = self.folder.with_name(f"{self.folder.name}-{os.getpid()}")
                fsops.make_directory(self.folder)
            yield
        finally:
            os.close(lock)

    def parts(self, root: Path) -> Past | None:
        """Return what an interrupted scan has done, or None; parts that cannot be read count as not done."""
        entries: dict[str, Entry] = {}
        items: dict[Slot, Sequence[str]] = {}
        tables: list[Table] = []
        undeclared: set[str] = set()
        for path in sorted(self.folder.glob("part-*")):
            with contextlib.suppress(Exception):  # whatever is wrong with it: a damaged part is as good as none
                part = decode(path.read_bytes())
                if part["key"] == self._key:
                    tables += map(Table.from_wire, part["tables"])
                    entries |= {entry[0]: Entry(*entry) for entry in part["entries"]}
                    items |= {(path, split): files for path, split, files in part["items"]}
                    undeclared |= set(part["undeclared"])
            self._number += 1
        if not items:
            return None
        return Past(Listing(root, list(entries.values())), self._key, items, concatenate(tables), sorted(undeclared))

    def add(self, part: Mapping[str, Any], more: Sequence[Any] = ()) -> None:
        """Keep one finished part: table, items, entries, undeclared; and more tables of the same items."""
        said = {"key": self._key, "tables": [part["table"], *more]}
        said |= {name: part[name] for name in ("items", "entries", "undeclared")}
        fsops.write_file(self.folder / f"part-{self._number:08d}", encode(said))
        self._number += 1

    def clear(self) -> None:
        """Forget all parts: the scan is finished, or starts anew."""
        fsops.remove_tree(self.folder)
