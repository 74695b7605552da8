"""What earlier scans of the same data know, so that unchanged files are not opened again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from datacheck import __version__
from datacheck.digest import digest_value
from datacheck.finding import Verdict
from datacheck.formats.base import formats
from datacheck.judging.select import Choice, variants
from datacheck.rules.base import Measure
from datacheck.sample import Depth
from datacheck.scan.state import Past, Slot, Slots
from datacheck.schema.model import ANY, Schema
from datacheck.schema.pixels import pixels
from datacheck.sources.base import Item
from datacheck.sources.listing import Listing, carried
from datacheck.table import SKIPPED, Note, Table

Array = np.ndarray[Any, Any]

CHANGED = "DC108"
_TABLE_VERSION = 3
_READING = ("at", "file", "columns", "shape", "dtype", "absent")  # what of a declaration decides how files are read


def measured(schema: Schema, measures: Sequence[Measure], level: Depth = "deep", *, outside: bool = True) -> list[Any]:
    """Return everything besides the files' bytes that decides what rows hold, as JSON values; no thresholds.

    Args:
        schema: the schema in force.
        measures: what is measured.
        level: how deep the scan reads; it counts only where another level would read something else.
        outside: as of `Measure.settings`.

    Returns:
        versions, what decides which files are read, then per variant of the schema: how its fields are read, and the
        settings of each measurement.
    """
    said = schema.as_dict()
    versions = {
        "version": __version__, "table": _TABLE_VERSION,
        "formats": {name: list(kind.suffixes) for name, kind in sorted(formats().items())},
    }  # fmt: skip
    every = variants(schema)
    alike = level != "structure" and all(v.stored and ANY not in v.fields and not pixels(v) for v in every)
    files = {key: said.get(key) for key in ("samples", "near_names", "columns", "attrs", "splits")}
    if schema.reads_unlisted:
        files["fields that the schema does not list"] = True
    parts: list[Any] = [versions, files | {"when": sorted(schema.when), "level": "" if alike else level}]
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
class Kept:
    """What need not be done again.

    Args:
        listing: the new listing with every digest that is still known.
        done: bool (items): those whose rows are kept.
        companions: by place, all files of such an item that is more than one file.
        tables: these rows.
        undeclared: fields met in the scans that they come from.
        partly: other rows of one of these scans are not kept.
    """

    listing: Listing
    done: Array
    companions: dict[int, tuple[str, ...]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    undeclared: set[str] = field(default_factory=set)
    partly: bool = False


def unchanged(listing: Listing, key: str, past: Past) -> bool:
    """Return whether a past scan measured the same of files none of which has changed, come or gone."""
    if not past.whole or past.key != key or listing.skipped != past.listing.skipped:
        return False
    before, now = past.listing.entries, listing.entries
    if before.paths != now.paths or not before.settled().all():
        return False
    return bool(now.same(before, np.arange(len(now))).all())


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
        A companion that has come or gone since is a change. Samples that were not looked at (an absent library) are
        looked at again.
    """
    kept = Kept(listing, np.zeros(len(items), bool))
    for past in pasts:
        digests = carried(listing, past.listing)
        known = digests != b""
        places = {path: listing.entries.find(path) for path in past.listing.marks}
        marks = {path: past.listing.marks[path] for path, place in places.items() if place >= 0 and known[place]}
        kept.listing = replace(kept.listing, marks=marks | dict(kept.listing.marks))
        kept.listing = kept.listing.with_digests(np.where(known, digests, kept.listing.entries.digests))
        if past.key != key:
            continue
        mine: set[Slot] = set()
        skipped = _skipped(past.table)
        for place, item in enumerate(items):
            slot = item.path, item.split
            if kept.done[place] or slot in skipped or (before := past.items.get(slot)) is None:
                continue
            files = files_of(item)
            where = [listing.entries.find(file) for file in files]
            if files == list(before) and min(where) >= 0 and known[where].all():
                kept.done[place] = True
                mine.add(slot)
                if len(files) > 1:
                    kept.companions[place] = tuple(listing.entries.paths[i] for i in where)
        if mine:
            kept.partly |= len(mine) < len(past.items)
            kept.undeclared.update(past.undeclared)
            kept.tables.append(_rows_of(past.table, mine))
            shared(kept.tables[-1], listing)
    return kept


def _skipped(table: Table) -> set[Slot]:
    return {(table.files[i], table.splits[i]) for i in np.flatnonzero(table.status == SKIPPED).tolist()}


def _rows_of(table: Table, slots: Collection[Slot]) -> Table:
    mask = np.fromiter(
        (slot in slots for slot in zip(table.files, table.splits, strict=True)), dtype=bool, count=len(table)
    )
    return table if mask.all() else table.take(np.flatnonzero(mask))


def shared(table: Table, listing: Listing) -> None:
    """Let a table's keys be the texts that the listing holds already: one for each file, not two."""
    entries = listing.entries
    if table.files is table.keys:
        places = [entries.find(key) for key in table.keys]
        pairs = zip(places, table.keys, strict=True)
        table.keys = table.files = [entries.paths[place] if place >= 0 else key for place, key in pairs]


def changed_only(past: Past, listing: Listing) -> Past:
    """Return of a past scan what `changes` needs to know: files whose content may be another now."""
    before, now = past.listing.entries, listing.entries
    places = before.places_in(now)
    other = places >= 0
    other[other] = before.digests[other] != now.digests[places[other]]
    rest = replace(past.listing, entries=before.take(np.flatnonzero(other)))
    return Past(rest, past.key, Slots([], [], {}), Table(), when=past.when, folder=past.folder)


def comparable(choice: Choice, *, compared: bool) -> Choice:
    """Return the choice, out of play where its rule compares with an earlier scan and there is none."""
    if choice.rule.code != CHANGED or compared or choice.verdict is not None:
        return choice
    return replace(choice, verdict=Verdict.NOT_APPLICABLE, why="there is no earlier scan of these data to compare with")


def changes(listing: Listing, past: Past | None, items: Sequence[Item]) -> list[Note]:
    """Return a note for every file whose content is not what the last finished scan saw.

    Args:
        listing: the new listing with digests.
        past: that scan.
        items: they tell which split a file belongs to.
    """
    if past is None or not len(past.listing.entries):
        return []
    split = {item.path: item.split for item in items}
    notes = []
    for old in past.listing.entries:
        entry = listing.by_path.get(old.path)
        if entry is not None and old.digest and entry.digest and old.digest != entry.digest:
            size = f"{old.size:,} bytes" + ("" if old.size == entry.size else f", now {entry.size:,}")
            said = f"its content has changed since the scan of {past.when} ({size})"
            notes.append(Note(CHANGED, entry.path, said, split=split.get(entry.path, "")))
    return notes
