"""Compare a scan with the run before it on the same data: which files and findings have changed.

Rule DC108 reports the files; the report states the findings that are new or gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from datacheck.model.finding import Report, Severity, Verdict
from datacheck.model.table import Note
from datacheck.rules.selection import Choice
from datacheck.scan.run_documents import read_result
from datacheck.scan.run_state import RunState
from datacheck.sources.base import Item
from datacheck.sources.listing import Listing

CHANGED = "DC108"


def comparable(choice: Choice, *, compared: bool) -> Choice:
    """Return the choice; not applicable if its rule needs an earlier scan and there is none."""
    if choice.rule.code != CHANGED or compared or choice.verdict is not None:
        return choice
    return replace(
        choice,
        verdict=Verdict.NOT_APPLICABLE,
        why="there is no earlier scan of these data to compare with",
    )


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


_ROOM = 20_000  # bytes for the ids of findings


def same_data_run(past: RunState | None, listing: Listing, only: str | None) -> Path | None:
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
