"""``datacheck report``, ``rescore`` and ``baseline``: use a finished run, without its data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from datacheck.cli.options import (
    badge_option,
    baseline_option,
    fail_on_option,
    format_option,
    output_option,
    reference_option,
    run_argument,
    unread_option,
)
from datacheck.cli.output import say, say_notes

_schema_option = click.option(
    "--schema",
    metavar="NAME|FILE",
    show_default="the schema of the run, without checks in Python: no module that a run names is "
    "imported",
    help="Judge by this schema.",
)


@click.command("report")
@run_argument
@format_option
@badge_option
@click.pass_context
def report(ctx: click.Context, /, run: Path, form: str, badge: Path | None) -> None:
    """Print the report of a finished RUN, in any format, and exit with its exit code.

    RUN is the folder that scan or rescore wrote, such as .datacheck/latest. No data are read and no
    rule is judged.
    """
    from datacheck.cli.run_output import show_finished

    ctx.exit(show_finished(run, form, badge))


@click.command("rescore")
@run_argument
@_schema_option
@output_option
@format_option
@badge_option
@fail_on_option
@reference_option
@baseline_option
@unread_option
@click.pass_context
def rescore(
    ctx: click.Context,
    /,
    run: Path,
    schema: str | None,
    form: str,
    badge: Path | None,
    **options: Any,
) -> None:
    """Judge a finished RUN again, with other thresholds, without reading the data.

    RUN is the folder that a scan wrote, such as .datacheck/latest. The result is a new run, like
    that of a scan.
    """
    from datacheck.cli.run_output import show
    from datacheck.scan import paths_of, schema_for
    from datacheck.scan.rescore import Rescore
    from datacheck.scan.rescore import rescore as judge_again

    command = shlex.join(["datacheck", *sys.argv[1:]])
    chosen = None if schema is None else schema_for(run, schema)
    paths = [] if chosen is None else paths_of(chosen, schema)
    new_run = judge_again(Rescore(run, command=command, paths=paths, **options), chosen)
    show(new_run, form, badge)
    ctx.exit(new_run.report.exit_code)


@click.command("baseline")
@run_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("baseline.json"),
    show_default=True,
    metavar="FILE",
    help="Write the baseline to FILE, which must not exist.",
)
@_schema_option
@click.option(
    "--reason", default="", metavar="TEXT", help="Store in FILE why these findings are accepted."
)
@reference_option
def baseline(
    run: Path, output: Path, schema: str | None, reason: str, reference: Path | None
) -> None:
    """Save the findings of a finished RUN, so that scan --baseline reports new ones only.

    Errors and warnings are saved; their samples stay invalid. A sample that is not in the file is
    always reported.
    """
    from datacheck.errors import UsageError
    from datacheck.rules.base import pluralize
    from datacheck.runtime import fsops
    from datacheck.scan import paths_of, schema_for
    from datacheck.scan.rescore import Rescore, baseline_of

    if output.exists() or output.is_symlink():
        msg = f"{output}: exists, and is not overwritten. Name another file: --output FILE."
        raise UsageError(msg)
    chosen = None if schema is None else schema_for(run, schema)
    paths = [] if chosen is None else paths_of(chosen, schema)
    request = Rescore(run, reference=reference, paths=paths)
    baseline_bytes, findings, samples, notes = baseline_of(request, reason, chosen)
    fsops.write_file(output, baseline_bytes, mode=0o666)
    say_notes(notes)
    summary = f"{pluralize(findings, 'finding')} of {pluralize(samples, 'sample')}"
    say(f"{output}: {summary}. Use it: datacheck scan DATA --baseline {output}")
