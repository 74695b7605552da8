"""Print the report of a run, write its page and badge: for ``scan``, ``rescore``, ``report``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datacheck.model.finding import Report
    from datacheck.scan import ScanRun
    from datacheck.scan.run_state import RunState


def show(
    run: ScanRun,
    form: str,
    badge: Path | None = None,
    start_previews: Callable[[ScanRun], Callable[[], object]] | None = None,
) -> None:
    """Write the page and the badge of a new run, and print its report.

    The report is printed even if the page cannot be written.

    Args:
        run: the run.
        form: text, json, sarif, junit or github; github also writes the job's summary, within a
            job.
        badge: file for the badge; None for none.
        start_previews: starts to draw the worst samples of a run; returns a function that waits
            until they are drawn. None: no pictures.

    Raises:
        OutOfSpaceError: the page, the badge or the summary does not fit on the disk.
        StorageError: any other refusal of the operating system.
    """
    from datacheck.report.html import write_page

    page_written = False
    try:
        if badge is not None:
            from datacheck.report.exports.badge import write_badge

            write_badge(badge, _badge_bytes(run.report))
        write_page(run, drawn=None if start_previews is None else start_previews(run))
        page_written = True
    finally:
        _render(run.report, run, form, page=page_written).print()


def show_finished(folder: Path, form: str, badge: Path | None = None) -> int:
    """Print the report of a finished run, as its scan did; return its exit code.

    The run's files stay unchanged.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        form, badge: see `show`.

    Raises:
        UsageError: the run does not exist or cannot be read; nothing has been printed.
        OutOfSpaceError: the badge or the summary does not fit on the disk.
        StorageError: any other refusal of the operating system.
    """
    from datacheck.report.exports.badge import write_badge
    from datacheck.scan.run_documents import PAGE
    from datacheck.scan.run_state import finished

    def read(report: Report, previous_run: RunState) -> tuple[int, bytes, _Rendered]:
        page_exists = Path(report.folder, PAGE).is_file()
        rendered = _render(report, previous_run, form, page=page_exists)
        badge_bytes = b"" if badge is None else _badge_bytes(report)
        return report.exit_code, badge_bytes, rendered

    exit_code, badge_bytes, rendered = finished(folder, read)
    if badge is not None:
        write_badge(badge, badge_bytes)
    rendered.print()
    return exit_code


@dataclass(frozen=True)
class _Rendered:
    """A report that is ready to print, so that nothing of a damaged run is printed.

    Args:
        write: writes the report to standard output.
        job_summary: what to append to the summary of a GitHub job.
    """

    write: Callable[[], Any]
    job_summary: bytes = b""

    def print(self) -> None:
        # the reader has closed the pipe; the exit code is still the report's
        with contextlib.suppress(BrokenPipeError):
            self.write()
        if self.job_summary:
            with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("ab") as file:
                file.write(self.job_summary)


def _render(report: Report, run: ScanRun | RunState, form: str, *, page: bool) -> _Rendered:
    if form == "text":
        from datacheck.report.text import report_printer

        return _Rendered(report_printer(report, page=page))
    output = _report_bytes(report, run, form)
    summary = _job_summary(report) if form == "github" else b""
    return _Rendered(lambda: sys.stdout.buffer.write(output), summary)


def _report_bytes(report: Report, run: ScanRun | RunState, form: str) -> bytes:
    from datacheck.report.words import escaped_json
    from datacheck.scan.run_documents import dump_json, result_bytes

    if form == "sarif":
        from datacheck.report.exports.sarif import sarif

        log = sarif(_result_json(report), _example_files(report, run), Path.cwd())
        return escaped_json(dump_json(log))
    if form == "junit":
        from datacheck.report.exports.junit import junit

        return junit(_result_json(report))
    if form == "github":
        from datacheck.report.exports.github import commands

        return commands(_result_json(report)).encode()
    return escaped_json(result_bytes(report.folder))


def _job_summary(report: Report) -> bytes:
    from datacheck.report.exports.github import summary

    if not os.environ.get("GITHUB_STEP_SUMMARY"):
        return b""
    return summary(_result_json(report)).encode()


def _result_json(report: Report) -> dict[str, Any]:
    import orjson

    from datacheck.scan.run_documents import result_bytes

    result: dict[str, Any] = orjson.loads(result_bytes(report.folder))
    return result


def _example_files(report: Report, run: ScanRun | RunState) -> dict[str, Path]:
    """Return the file of each example; none for a loader, whose files are unknown."""
    example_keys = {
        key for finding in [*report.findings, *report.suppressed] for key in finding.examples
    }
    if not example_keys or not run.listing.entries:
        return {}
    root = Path(run.listing.root).absolute()
    files = run.table.files
    return {key: root / files[row] for row, key in enumerate(run.table.keys) if key in example_keys}


def _badge_bytes(report: Report) -> bytes:
    from datacheck.report.exports.badge import badge
    from datacheck.scan.run_documents import dump_json

    return dump_json(badge(_result_json(report)))
