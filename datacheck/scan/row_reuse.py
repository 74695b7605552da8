"""Which rows of earlier scans are still valid: those of items whose files have not changed since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from datacheck.model.table import SKIPPED, Table
from datacheck.scan.rows import share_keys
from datacheck.scan.run_state import RunState, Slot, Slots
from datacheck.sources.base import Item
from datacheck.sources.listing import Listing, carried_digests

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


def unchanged(listing: Listing, key: str, past: RunState) -> bool:
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
