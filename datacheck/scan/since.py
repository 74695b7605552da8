"""What a scan has found that the scan of the same data before it had not, and the other way round."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from datacheck.finding import Report, Severity, Verdict
from datacheck.scan.documents import read_result
from datacheck.scan.history import CHANGED
from datacheck.scan.state import Past
from datacheck.sources.listing import Listing

_ROOM = 20_000  # bytes of the names of findings


def of_the_same(past: Past | None, listing: Listing, only: str | None) -> Path | None:
    """Return the folder of an earlier run where it was of the same data; into one --output any data may be scanned."""
    if past is None or past.folder == Path() or past.only != only:
        return None
    return past.folder if _folders(past.listing) == _folders(listing) else None


def _folders(listing: Listing) -> tuple[Path, dict[str, Path]]:
    return listing.root.resolve(), {name: path.resolve() for name, path in listing.roots.items()}


def since(report: Report, folder: Path | None) -> dict[str, Any]:
    """Return ``since`` of a report's run: errors and warnings that the run before had not told, and what it alone told.

    Args:
        report: of a scan.
        folder: of the run before it. Nothing is said where there is none, it cannot be read, or it lacks findings for
            want of room.

    Notes:
        What a baseline knows is told, too. What a rule told that has judged nothing this time is not gone. ``other``
        names what besides the data is another: findings may come and go with it. DC108 says itself what changed.
    """
    if folder is None:
        return {}
    try:
        said = read_result(folder)
        lacks = {"findings", "suppressed"} & {*said.get("left_out", {})}
        return {} if lacks else {"since": _compared(report, said)}
    except (OSError, ValueError, LookupError):
        return {}


def _compared(report: Report, before: dict[str, Any]) -> dict[str, Any]:
    then, run = before["run"], report.run
    judged = {v.code for v in report.verdicts if v.verdict in {Verdict.PASS, Verdict.FAIL}} - {CHANGED}
    told = [one for one in [*before["findings"], *before.get("suppressed", [])] if one["severity"] != "info"]
    known = {one["id"] for one in told}
    ids = {f.id for f in [*report.findings, *report.suppressed] if f.severity is not Severity.INFO}
    fresh = {f.id for f in report.findings if f.code != CHANGED} & ids - known
    pairs = {
        "schema": (before["schema"]["digest"], report.schema["digest"]), "version": (then["version"], run["version"]),
        "depth": (then["level"], run["level"]),
        "reference": tuple(one.get("reference", {}).get("run") for one in (then, run)),
    }  # fmt: skip
    return {
        "run": str(then["id"]), "started": str(then["started"]),
        "new": _named(finding.id for finding in report.findings if finding.id in fresh),
        "gone": _named(one["id"] for one in told if one["id"] not in ids and one["rule"] in judged),
        "other": [what for what, (one, other) in pairs.items() if one != other],
    }  # fmt: skip


def _named(names: Iterable[str]) -> dict[str, Any]:
    """Return how many findings there are, and the first of them."""
    found, room, shown = list(dict.fromkeys(names)), _ROOM, []
    for name in found:
        room -= len(orjson.dumps(name))
        if room < 0:
            break
        shown.append(name)
    return {"count": len(found), "ids": shown}
