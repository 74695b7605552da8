"""Print a run in the chosen format, for ``scan``, ``rescore`` and ``report``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datacheck.model.finding import Report
    from datacheck.preview.run_previews import PreviewProcess
    from datacheck.scan import ScanRun
    from datacheck.scan.run_state import RunState


def show(
    run: ScanRun,
    form: str,
    badge: Path | None = None,
    preview_process: PreviewProcess | None = None,
) -> None:
    """Write the page and the badge of a finished run, and print its report.

    The report is printed even if the page cannot be written.

    Args:
        run: the finished run.
        form: text, json, sarif, junit or github; github also writes the job's summary, within a
            job.
        badge: file for the badge; None for none.
        preview_process: reads the worst samples again and draws them; None: no pictures.

    Raises:
        OutOfSpaceError: the page, the badge or the summary does not fit on the disk.
        StorageError: any other refusal of the operating system.
    """
    from datacheck.report.html import write_page

    page = False
    try:
        if badge is not None:
            _write_badge(badge, _badge(run.report))
        drawn = None if preview_process is None else preview_process.write(run)
        write_page(run, drawn=drawn)
        page = True
    finally:
        _printing(run.report, run, form, page=page)()


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
    from datacheck.scan.run_dir import finished
    from datacheck.scan.run_documents import PAGE

    def made(report: Report, previous_run: RunState) -> tuple[int, bytes, Callable[[], None]]:
        badge_bytes = b"" if badge is None else _badge(report)
        return (
            report.exit_code,
            badge_bytes,
            _printing(report, previous_run, form, page=Path(report.folder, PAGE).is_file()),
        )

    code, badge_bytes, print_report = finished(folder, made)
    if badge is not None:
        _write_badge(badge, badge_bytes)
    print_report()
    return code


def _printing(
    report: Report, rows: ScanRun | RunState, form: str, *, page: bool
) -> Callable[[], None]:
    """Return a function that prints a report.

    The output is built now, so that nothing of a damaged run is printed.
    """
    if form == "text":
        from datacheck.report.text import report_printer

        return partial(_print_and_write, report_printer(report, page=page), b"")
    output = _bytes(report, rows, form)
    return partial(
        _print_and_write,
        lambda: sys.stdout.buffer.write(output),
        _summary(report) if form == "github" else b"",
    )


def _print_and_write(print_report: Callable[[], Any], summary: bytes) -> None:
    # the reader has closed the pipe; the exit code is still the report's
    with contextlib.suppress(BrokenPipeError):
        print_report()
    if summary:
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("ab") as file:
            file.write(summary)


def _summary(report: Report) -> bytes:
    from datacheck.report.ci import summary

    return summary(_result_json(report)).encode() if os.environ.get("GITHUB_STEP_SUMMARY") else b""


def _result_json(report: Report) -> dict[str, Any]:
    import orjson

    from datacheck.report.ci import result_bytes

    result: dict[str, Any] = orjson.loads(result_bytes(report.folder))
    return result


def _bytes(report: Report, rows: ScanRun | RunState, form: str) -> bytes:
    if form == "sarif":
        from datacheck.report.ci import sarif
        from datacheck.report.words import escaped_json
        from datacheck.scan.run_documents import dump_json

        return escaped_json(
            dump_json(sarif(_result_json(report), _places(report, rows), Path.cwd()))
        )
    if form == "junit":
        from datacheck.report.ci import junit

        return junit(_result_json(report))
    if form == "github":
        from datacheck.report.ci import commands

        return commands(_result_json(report)).encode()
    from datacheck.report.ci import result_bytes
    from datacheck.report.words import escaped_json

    return escaped_json(result_bytes(report.folder))


def _places(report: Report, rows: ScanRun | RunState) -> dict[str, Path]:
    """Return the file of each example; none for a loader, whose files are unknown."""
    example_keys = {
        key for finding in [*report.findings, *report.suppressed] for key in finding.examples
    }
    if not example_keys or not rows.listing.entries:
        return {}
    root = Path(rows.listing.root).absolute()
    files = rows.table.files
    return {
        key: root / files[row] for row, key in enumerate(rows.table.keys) if key in example_keys
    }


def _write_badge(path: Path, data: bytes) -> None:
    from datacheck.report.ci import is_badge
    from datacheck.runtime import outputs

    outputs.write_output(path, data, "datacheck scan --badge", is_badge)


def _badge(report: Report) -> bytes:
    from datacheck.report.ci import badge
    from datacheck.scan.run_documents import dump_json

    return dump_json(badge(_result_json(report)))
