"""``datacheck rescore``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from datacheck.cli.scan import baseline_option, fail_on_option, format_option, output_option, reference_option

_HELP = """Judge a finished RUN again, with other thresholds, without touching the data.

RUN is a folder that a scan has left behind (.datacheck/latest). The result is a run of its own, as of a scan.
"""


@click.command("rescore", help=_HELP)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--schema", metavar="NAME|FILE", help="Schema with the other thresholds. Default: that of the run.")
@output_option
@format_option
@fail_on_option
@reference_option
@baseline_option
@click.pass_context
def rescore(ctx: click.Context, /, run: Path, schema: str | None, form: str, **options: Any) -> None:
    """Judge, print, and exit with the report's code."""
    from datacheck.report.json import result_bytes
    from datacheck.report.text import print_report
    from datacheck.scan import paths_of, schema_for
    from datacheck.scan.again import Rescore
    from datacheck.scan.again import rescore as judge_again

    command = shlex.join(["datacheck", *sys.argv[1:]])
    chosen = None if schema is None else schema_for(run, schema)
    done = judge_again(Rescore(run, command=command, paths=paths_of(schema), **options), chosen)
    if form == "json":
        sys.stdout.buffer.write(result_bytes(done.report.folder))
    else:
        print_report(done.report)
    ctx.exit(done.report.exit_code)
