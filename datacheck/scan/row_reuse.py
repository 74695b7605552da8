"""What a scan keeps of earlier ones: the rows of items whose files have not changed since.

Earlier scans are the last finished one, and an interrupted one that has left its finished parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.model.table import SKIPPED, Note, Slot, Table
from datacheck.rules.selection import CHANGED
from datacheck.scan.rows import BoundedTables, share_keys
from datacheck.scan.run_dir import Journal
from datacheck.scan.run_state import RunState, Slots
from datacheck.schema.model import Schema
from datacheck.sources.base import Item
from datacheck.sources.listing import Listing, carried_digests
from datacheck.sources.roots import Entries, Entry

Array = np.ndarray[Any, Any]


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

    def used_files(self, items: Sequence[Item]) -> Array:
        """Return bool (files): files that rows of some item come from.

        Notes:
            An item with a file that is not listed (DATA was one file) is not done afterwards.
        """
        entries = self.listing.entries
        used = np.zeros(len(entries), bool)
        for place in np.flatnonzero(self.done).tolist():
            files = self.companions.get(place, (items[place].path,))
            file_places = [entries.find(file) for file in files]
            used[[i for i in file_places if i >= 0]] = True
            if min(file_places) < 0:
                self.done[place] = False
                del self.companions[place]
        return used

    def slots(self, items: Sequence[Item]) -> Slots:
        """Return the done items, and the files that each item's rows come from."""
        places = np.flatnonzero(self.done).tolist()
        companions = {
            number: self.companions[place]
            for number, place in enumerate(places)
            if place in self.companions
        }
        done = [items[place] for place in places]
        return Slots([item.path for item in done], [item.split for item in done], companions)


def interrupted_run(journal: Journal, root: Path, schema: Schema) -> RunState | None:
    """Return the state of an interrupted scan by its finished parts; None if there are none.

    Args:
        journal: has the parts.
        root: the data folder.
        schema: that of the scan.
    """
    entries: dict[str, Entry] = {}
    items: dict[Slot, Sequence[str]] = {}
    tables = BoundedTables(schema)
    undeclared: set[str] = set()
    for part in journal.parts():
        # `parts` has checked the part. An error here must not be suppressed: rows without their
        # items would come twice.
        for table in part.tables:
            tables.add(table)
        undeclared |= part.undeclared
        entries |= part.entries
        items |= part.items
    if not items:
        return None
    listing = Listing(root, Entries.of(entries.values()))
    rows = tables.table()
    return RunState(listing, journal.key, Slots.of(items), rows, sorted(undeclared))


def unchanged(listing: Listing, key: str, past: RunState) -> bool:
    """Tell whether a past scan measured the same, and no file has changed, come or gone since."""
    if not past.whole or past.key != key or listing.skipped != past.listing.skipped:
        return False
    before, now = past.listing.entries, listing.entries
    if before.paths != now.paths or not before.settled().all():
        return False
    return bool(now.same(before, np.arange(len(now))).all())


def reuse_all(past: RunState, listing: Listing) -> RunState:
    """Return the state of a past scan of data that have not changed since.

    Args:
        past: that scan; `unchanged` holds.
        listing: the new listing.
    """
    new_listing = replace(
        past.listing,
        root=listing.root,
        roots=listing.roots,
        refused=listing.refused,
        alone=listing.alone,
    )
    notes = [note for note in past.notes if note.code != CHANGED]
    written = past.compared and len(notes) == len(past.notes)
    return replace(past, listing=new_listing, notes=notes, compared=True, written=written)


def same_data_run(past: RunState | None, listing: Listing, only: str | None) -> Path | None:
    """Return the folder of an earlier run if it scanned the same data, else None.

    One ``--output`` folder may hold runs of any data.
    """
    if past is None or past.folder == Path() or past.only != only:
        return None
    return past.folder if _folders(past.listing) == _folders(listing) else None


def _folders(listing: Listing) -> tuple[Path, dict[str, Path]]:
    return listing.root.resolve(), {name: path.resolve() for name, path in listing.roots.items()}


def changes(listing: Listing, past: RunState | None, items: Sequence[Item]) -> list[Note]:
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


def reuse_rows(
    listing: Listing,
    items: Sequence[Item],
    files_of: Callable[[Item], list[str]],
    key: str,
    pasts: Sequence[RunState],
) -> ReusedRows:
    """Return the rows of items whose files have not changed since a past scan with the same key.

    Args:
        listing: the new listing.
        items: the items to scan.
        files_of: returns the files that reading an item opens now.
        key: the new scan's `MeasurementSettings.key`.
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
        skipped_slots = _skipped(past.table)
        for place, item in enumerate(items):
            slot = item.path, item.split
            if (
                reused.done[place]
                or slot in skipped_slots
                or (before := past.items.get(slot)) is None
            ):
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
    """Return path and split of the items with skipped samples."""
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
