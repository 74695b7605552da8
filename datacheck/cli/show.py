"""What ``scan`` and ``rescore`` print of a run, in the format that was asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datacheck.scan import ScanRun


def show(run: ScanRun, form: str, badge: Path | None = None, *, previews: bool = False) -> None:
    """Write the page of a finished run, and its badge; print what it says, also where the page cannot be written.

    Args:
        run: what was found.
        form: text, json, sarif, junit or github; of the last the job's summary is written too, where there is a job.
        badge: file for the badge, None for none.
        previews: read the worst samples again and draw them.

    Raises:
        OutOfSpaceError: the page, the badge or the summary does not fit on the disk.
        StorageError: another refusal.
    """
    from datacheck.report.html import write_page

    page = False
    try:
        if badge is not None:
            _write_badge(run, badge)
        if previews:
            from datacheck.preview.run import write_previews

            write_previews(run)
        write_page(run)
        page = True
    finally:
        _print(run, form, page=page)


def _print(run: ScanRun, form: str, *, page: bool) -> None:
    if form == "text":
        from datacheck.report.text import print_report

        print_report(run.report, page=page)
        return
    sys.stdout.buffer.write(_bytes(run, form))
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if form == "github" and place:
        from datacheck.report.github import summary

        with Path(place).open("ab") as file:
            file.write(summary(_said(run)).encode())


def _said(run: ScanRun) -> dict[str, Any]:
    import orjson

    from datacheck.report.json import result_bytes

    said: dict[str, Any] = orjson.loads(result_bytes(run.report.folder))
    return said


def _bytes(run: ScanRun, form: str) -> bytes:
    if form == "sarif":
        from datacheck.report.sarif import sarif
        from datacheck.scan.store import dump_json

        return dump_json(sarif(_said(run), _places(run), Path.cwd()))
    if form == "junit":
        from datacheck.report.junit import junit

        return junit(_said(run))
    if form == "github":
        from datacheck.report.github import commands

        return commands(_said(run)).encode()
    from datacheck.report.json import result_bytes

    return result_bytes(run.report.folder)


def _places(run: ScanRun) -> dict[str, Path]:
    """Return of each example the file that it is in; of a loader nobody knows."""
    if not run.listing.entries:
        return {}
    root, table = Path(run.listing.root).absolute(), run.table
    places = {}
    for finding in [*run.report.findings, *run.report.suppressed]:
        wanted = set(finding.examples)
        for row in finding.rows.tolist():
            if not wanted:
                break
            if (key := table.keys[row]) in wanted:
                wanted.remove(key)
                places[key] = root / table.files[row]
    return places


def _write_badge(run: ScanRun, place: Path) -> None:
    from datacheck import fsops
    from datacheck.report.badge import badge
    from datacheck.scan.store import dump_json

    fsops.write_file(place, dump_json(badge(_said(run))), mode=0o666)
