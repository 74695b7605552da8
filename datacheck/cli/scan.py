"""``datacheck scan``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from datacheck.errors import UsageError

_HELP = """Find the broken samples of DATA, a folder or a file.

\b
Leaves .datacheck/latest/ behind:
  result.json      every rule with its verdict, every finding
  samples.parquet  one row per sample with everything that was measured
  valid.json       which samples not to train on, and why
"""


def _roots(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """Return the folders of ``--root NAME=DIR``."""
    del ctx, param
    roots = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not (name and equals and folder):
            msg = f"--root {value}: write NAME=DIR, for example --root objects=/data/meshes"
            raise UsageError(msg)
        roots[name] = Path(folder)
    return roots


root_option = click.option(
    "--root",
    "roots",
    metavar="NAME=DIR",
    multiple=True,
    callback=_roots,
    help="An extra folder that the schema names (meshes, for instance). May be repeated.",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Worker processes. Default: one for small data, one per core for large.",
)
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS", help="Use the workers of this Dask scheduler (tcp://host:8786)."
)


@click.command("scan", help=_HELP)
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--schema", metavar="NAME|FILE", help="Built-in schema or YAML file. Default: the built-in one that fits."
)
@root_option
@workers_option
@scheduler_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the results. Default: a new one in .datacheck.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed; json is exactly result.json.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "never"]),
    default="error",
    show_default=True,
    help="From which severity on the exit code is 1.",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="A finished run of other or earlier data (.datacheck/latest) to compare with: rules DC901 to DC903.",
)
@click.option(
    "--level",
    type=click.Choice(["structure", "numeric", "deep"]),
    default="numeric",
    show_default=True,
    help="How deep to read: headers only, all values but pixels, everything.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Known findings (datacheck baseline RUN) that are not told again; new samples always are.",
)
@click.option("--rehash", is_flag=True, default=False, help="Read every file, also those that look unchanged.")
@click.pass_context
def scan(ctx: click.Context, /, data: Path, schema: str | None, form: str, **options: Any) -> None:
    """Scan, print, and exit with the report's code."""
    from datacheck.report.json import result_bytes
    from datacheck.report.progress import progress_bar
    from datacheck.report.text import print_report
    from datacheck.scan import Request, paths_of, run_scan, schema_for

    chosen = schema_for(data, schema)
    if schema is None:
        click.echo(f"schema {chosen.name} (its file patterns fit; choose another with --schema)", err=True)
    command = shlex.join(["datacheck", *sys.argv[1:]])
    request = Request(data, command=command, paths=paths_of(schema), **options)
    with progress_bar() as progress:
        run = run_scan(chosen, request, progress)
    if form == "json":
        sys.stdout.buffer.write(result_bytes(run.report.folder))
    else:
        print_report(run.report)
    ctx.exit(run.report.exit_code)
