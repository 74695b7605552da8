"""``datacheck export``: write the valid samples of a dataset as a dataset again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import run_path, schema_option, workers_option
from datacheck.cli.output import say

if TYPE_CHECKING:
    from datacheck.export.verdict import ScannedSamples


@click.command("export")
@click.argument("data", type=run_path, metavar="DATA|RUN")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Write into the new folder DIR.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["lerobot"]),
    required=True,
    help="Write a LeRobot v3.0 dataset.",
)
@schema_option
@workers_option
def export(data: Path, to: Path, form: str, schema: str | None, **options: Any) -> None:
    """Export the valid samples of DATA, which is scanned first, or of a finished RUN.

    lerobot: the valid episodes of a LeRobot dataset (v2.0, v2.1 or v3.0) become a v3.0 dataset with
    episodes, rows and tasks counted from 0 and new statistics. Videos are copied, not encoded
    again. DIR must not exist; it appears whole or not at all. The data are never changed.
    """
    del form  # only one format so far
    from datacheck.export.lerobot import export as export_lerobot
    from datacheck.report.words import format_bytes
    from datacheck.rules.base import pluralize

    exported = export_lerobot(_verdict(data, to, schema, options), to)
    rows, files = pluralize(exported.rows, "row"), pluralize(exported.files, "file")
    say(
        f"{exported.path}: {exported.episodes:,} of {pluralize(exported.of, 'episode')}, {rows} in "
        f"{files}, {format_bytes(exported.nbytes)}"
    )
    if exported.left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in exported.left_out.items())
        say(f"    left out: {reasons}")
    say(*(f"    {note}" for note in exported.notes))


def _verdict(
    data: Path, to: Path, schema_name: str | None, options: dict[str, Any]
) -> ScannedSamples:
    """Return the verdict of a finished run, or of a scan of the data now."""
    from datacheck.errors import UsageError
    from datacheck.export.lerobot import check_target
    from datacheck.export.verdict import verdict_of_run, verdict_of_scan
    from datacheck.report.progress import progress_bar
    from datacheck.scan import Request, paths_of, run_scan, schema_for
    from datacheck.scan.run_documents import run_in

    if run_in(data) is not None:
        if schema_name is not None:
            msg = "--schema: a finished run has its schema already. Use datacheck rescore first."
            raise UsageError(msg)
        return verdict_of_run(data)
    check_target(to, data)
    schema = schema_for(data, schema_name)
    command = shlex.join(["datacheck", *sys.argv[1:]])
    request = Request(data, command=command, paths=paths_of(schema, schema_name), **options)
    with progress_bar() as progress:
        return verdict_of_scan(run_scan(schema, request, progress))
