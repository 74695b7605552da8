"""What ``scan``, ``rescore`` and ``report`` print of a run, in the format that was asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datacheck.finding import Report
    from datacheck.scan import ScanRun
    from datacheck.scan.state import Past


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
            _write_badge(run.report, badge)
        if previews:
            from datacheck.preview.run import write_previews

            write_previews(run)
        write_page(run)
        page = True
    finally:
        _print(run.report, run, form, page=page)


def show_finished(report: Report, kept: Past, form: str, badge: Path | None = None) -> None:
    """Print what a finished run says, as the scan did; of its files none is written.

    Args:
        report, kept: from `finished`.
        form, badge: as of `show`.

    Raises:
        OutOfSpaceError: the badge or the summary does not fit on the disk.
        StorageError: another refusal.
    """
    from datacheck.scan.store import PAGE

    if badge is not None:
        _write_badge(report, badge)
    _print(report, kept, form, page=Path(report.folder, PAGE).is_file())


def _print(report: Report, rows: ScanRun | Past, form: str, *, page: bool) -> None:
    if form == "text":
        from datacheck.report.text import print_report

        print_report(report, page=page)
        return
    sys.stdout.buffer.write(_bytes(report, rows, form))
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if form == "github" and place:
        from datacheck.report.github import summary

        with Path(place).open("ab") as file:
            file.write(summary(_said(report)).encode())


def _said(report: Report) -> dict[str, Any]:
    import orjson

    from datacheck.report.json import result_bytes

    said: dict[str, Any] = orjson.loads(result_bytes(report.folder))
    return said


def _bytes(report: Report, rows: ScanRun | Past, form: str) -> bytes:
    if form == "sarif":
        from datacheck.report.sarif import sarif
        from datacheck.scan.store import dump_json

        return dump_json(sarif(_said(report), _places(report, rows), Path.cwd()))
    if form == "junit":
        from datacheck.report.junit import junit

        return junit(_said(report))
    if form == "github":
        from datacheck.report.github import commands

        return commands(_said(report)).encode()
    from datacheck.report.json import result_bytes

    return result_bytes(report.folder)


def _places(report: Report, rows: ScanRun | Past) -> dict[str, Path]:
    """Return of each example the file that it is in; of a loader nobody knows."""
    wanted = {key for finding in [*report.findings, *report.suppressed] for key in finding.examples}
    if not wanted or not rows.listing.entries:
        return {}
    root, files = Path(rows.listing.root).absolute(), rows.table.files
    return {key: root / files[row] for row, key in enumerate(rows.table.keys) if key in wanted}


def _write_badge(report: Report, place: Path) -> None:
    from datacheck import fsops
    from datacheck.report.badge import badge
    from datacheck.scan.store import dump_json

    fsops.write_file(place, dump_json(badge(_said(report))), mode=0o666)
