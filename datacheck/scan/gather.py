"""Every row of a scan: those of an earlier one where nothing has changed, and what is read anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.finding import Progress
from datacheck.scan import history
from datacheck.scan.coverage import looked_into
from datacheck.scan.measuring import Job, measure
from datacheck.scan.places import Journal
from datacheck.scan.state import Past, Slots
from datacheck.scan.unlisted import Kept
from datacheck.scan.worker import unread_rows
from datacheck.sources import open_source
from datacheck.sources.base import Item, Unread, Work
from datacheck.sources.listing import Listing
from datacheck.table import SKIPPED, Table, concatenate

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Gathered:
    """What is known of the data before anything is judged.

    Args:
        state: the rows and all that the next scan wants to know.
        kept_files, kept_samples: how many come from an earlier scan.
        last: folder of the finished scan of the same data before this one, if any.
    """

    state: Past
    kept_files: int
    kept_samples: int
    last: Path | None = None


def as_before(past: Past, listing: Listing) -> Gathered:
    """Return what a past scan knew of data that have not changed since.

    Args:
        past: that scan; `history.unchanged` holds.
        listing: the new listing.
    """
    same = replace(past.listing, root=listing.root, roots=listing.roots, refused=listing.refused, alone=listing.alone)
    notes = [note for note in past.notes if note.code != history.CHANGED]
    written = past.compared and len(notes) == len(past.notes)
    state = replace(past, listing=same, notes=notes, compared=True, written=written)
    return Gathered(state, len(past.items), len(past.table) - sum(note.missing for note in notes))


def anew(
    job: Job, listing: Listing, work: Work, measured: Sequence[Any], key: str, pasts: Sequence[Past],
    last: Past | None, journal: Journal, progress: Progress | None, only: str | None = None,
) -> Gathered:  # fmt: skip
    """Return the rows of all samples; files that have changed since the past scans are read.

    Args:
        job: how files are read.
        listing, work: the files, and what they come to.
        measured, key: `history.measured` and its digest.
        pasts: scans whose rows may be kept, newest first.
        last: the finished one, to compare contents with.
        journal: keeps each finished part.
        progress: called after each task.
        only: the one file that is scanned, None for a folder.
    """
    source = open_source(job.schema, job.root, job.roots)
    kept = history.keep(listing, work.items, source.files, key, pasts)
    before = int(kept.done.sum()), sum(map(len, kept.tables))
    places = np.flatnonzero(~kept.done)
    todo = [work.items[place] for place in places.tolist()]
    fresh = measure(job, source, kept.listing, todo, journal, progress, before[0])
    kept.done[places[fresh.done]] = True
    kept.companions |= {int(places[place]): files for place, files in fresh.companions.items()}
    used = _used(work.items, kept, listing)
    # Digests of files in use only: the listing's own must not depend on earlier scans.
    fresh.entries.digests = np.where(used, fresh.entries.digests, b"").astype("S32")
    marks = {path: np.array(some, np.int64).reshape(-1, 2) for path, some in source.marks.items()}
    listing = replace(listing, entries=fresh.entries, marks=dict(kept.listing.marks) | marks)
    rows = Kept(job.schema, [*kept.tables, *fresh.rows.tables(), _missing(work)])
    if kept.tables and rows.lack(partly=kept.partly):
        return anew(job, listing, work, measured, key, (), last, journal, progress, only)
    table = concatenate(rows.tables())
    whole = bool(
        kept.done.all() and (listing.entries.digests[used] != b"").all() and not (table.status == SKIPPED).any()
    )
    notes = [*work.notes, *history.changes(listing, last, work.items), *looked_into(listing, work.unclaimed)]
    state = Past(
        only=only, listing=listing, key=key, items=_slots(work.items, kept), table=table,
        undeclared=sorted(rows.named(kept.undeclared | fresh.rows.named(fresh.undeclared))), measured=measured,
        notes=notes, compared=last is not None,
        unclaimed=work.unclaimed, whole=whole, crashes=list(fresh.crashes.values()), deaths=fresh.deaths,
    )  # fmt: skip
    return Gathered(state, *before)


def _used(items: Sequence[Item], kept: history.Kept, listing: Listing) -> Array:
    """Return bool (files): those that some item's rows came from.

    Notes:
        An item with a file that is not listed (DATA was one file) is then taken out of what is kept.
    """
    find: Callable[[str], int] = listing.entries.find
    used = np.zeros(len(listing.entries), bool)
    for place in np.flatnonzero(kept.done).tolist():
        where = [find(file) for file in kept.companions.get(place, (items[place].path,))]
        used[[i for i in where if i >= 0]] = True
        if min(where) < 0:
            kept.done[place] = False
            del kept.companions[place]
    return used


def _slots(items: Sequence[Item], kept: history.Kept) -> Slots:
    places = np.flatnonzero(kept.done).tolist()
    return Slots(
        [items[place].path for place in places],
        [items[place].split for place in places],
        {number: kept.companions[place] for number, place in enumerate(places) if place in kept.companions},
    )


def _missing(work: Work) -> Table:
    """Return a row for each note on a sample that cannot be read: one table, as there may be 100,000 of them."""
    notes = [note for note in work.notes if note.missing]
    unread = [Unread(note.key, note.code, note.reason) for note in notes]
    return unread_rows(unread, [note.key for note in notes], [note.split for note in notes])
