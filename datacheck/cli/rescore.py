"""``datacheck report``, ``rescore`` and ``baseline``: use a finished run, without its data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from datacheck.cli.say import say
from datacheck.cli.scan import (
    badge_option,
    baseline_option,
    fail_on_option,
    format_option,
    output_option,
    reference_option,
    run_argument,
    unread_option,
)

_HELP = """Judge a finished RUN again, with other thresholds, without touching the data.

RUN is a folder that a scan has left behind (.datacheck/latest). The result is a run of its own, as of a scan.
"""
_SCHEMA_HELP = (
    "Schema to judge by. Default: that of the run, without its own checks: nothing that "
    "a run names is imported."
)


@click.command("report")
@run_argument
@format_option
@badge_option
@click.pass_context
def report(ctx: click.Context, /, run: Path, form: str, badge: Path | None) -> None:
    """Print what a finished RUN found, as its scan did or in another format, and exit with its code.

    RUN is a folder that scan (also of a --loader) or rescore has left behind (.datacheck/latest).
    Nothing is read of the data and nothing is judged.
    """
    from datacheck.cli.show import show_finished

    ctx.exit(show_finished(run, form, badge))


@click.command("rescore", help=_HELP)
@run_argument
@click.option("--schema", metavar="NAME|FILE", help=_SCHEMA_HELP)
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
    """Judge the run, print the report, and exit with its code."""
    from datacheck.cli.show import show
    from datacheck.scan import paths_of, schema_for
    from datacheck.scan.rescore import Rescore
    from datacheck.scan.rescore import rescore as judge_again

    command = shlex.join(["datacheck", *sys.argv[1:]])
    chosen = None if schema is None else schema_for(run, schema)
    paths = [] if chosen is None else paths_of(chosen, schema)
    done = judge_again(Rescore(run, command=command, paths=paths, **options), chosen)
    show(done, form, badge)
    ctx.exit(done.report.exit_code)


@click.command("baseline")
@run_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("baseline.json"),
    show_default=True,
    metavar="FILE",
    help="Where it goes; a file that exists is never overwritten.",
)
@click.option("--schema", metavar="NAME|FILE", help=_SCHEMA_HELP)
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    help="Why these findings are left as they are; kept in the file.",
)
@reference_option
def baseline(
    run: Path, output: Path, schema: str | None, reason: str, reference: Path | None
) -> None:
    """Write down every error and warning of a finished RUN, so that scan --baseline tells only what is new.

    The samples stay out of what is fit for training, and one that is not in the file is always
    told.
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
    request = Rescore(
        run, reference=reference, paths=[] if chosen is None else paths_of(chosen, schema)
    )
    baseline_bytes, findings, samples, notes = baseline_of(request, reason, chosen)
    fsops.write_file(output, baseline_bytes, mode=0o666)
    for note in notes:
        say(note, err=True)
    summary = f"{pluralize(findings, 'finding')} of {pluralize(samples, 'sample')}"
    say(f"{output}: {summary}. Use it: datacheck scan DATA --baseline {output}")
