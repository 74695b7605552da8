"""``datacheck scan``."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.say import say
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.scan import ScanRun

_HELP = """Find the broken samples of DATA, a folder or a file, or of what your own loader returns (--loader).

\b
Leaves .datacheck/latest/ behind:
  result.json      every rule with its verdict, every finding
  samples.parquet  one row per sample with everything that was measured
  valid.json       which samples not to train on, and why
  previews.json    pictures of the worst samples of each finding
  report.html      all of it as one page for the browser
"""


_FEW = 10  # if less than a tenth of the files fit, print how many: the schema may be wrong


def _roots(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """Parse the folders of ``--root NAME=DIR``."""
    del ctx, param
    roots = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not (name and equals and folder):
            msg = f"--root {value}: write NAME=DIR, for example --root objects=/data/meshes"
            raise UsageError(msg)
        roots[name] = Path(folder)
    return roots


def _badge(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Return the file of ``--badge``, after checking before the scan that it may be written."""
    del ctx, param
    from datacheck.report.exports.badge import is_badge
    from datacheck.runtime import outputs

    if value is not None:
        outputs.check_output(value, "datacheck scan --badge", is_badge)
    if value is not None and not value.parent.is_dir():
        msg = f"--badge {value}: there is no folder {value.parent}. Make it, or name another file."
        raise UsageError(msg)
    return value


# not checked by click: an unreadable folder is a storage error, not a wrong request
run_path = click.Path(path_type=Path, readable=False)
run_argument = click.argument("run", type=run_path)
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
    "--scheduler",
    metavar="ADDRESS",
    help="Use the workers of this Dask scheduler (tcp://host:8786).",
)

output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the results. Default: a new one in .datacheck.",
)
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "junit", "github"]),
    default="text",
    show_default=True,
    help="What is printed; json is exactly result.json. github also writes the job's summary.",
)
badge_option = click.option(
    "--badge",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_badge,
    help="Also write JSON from which shields.io draws a badge.",
)
fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "never"]),
    default="error",
    show_default=True,
    help="From which severity on the exit code is 1.",
)
reference_option = click.option(
    "--reference",
    type=run_path,
    metavar="RUN",
    help="A finished run of other or earlier data (.datacheck/latest) to compare with: rules DC901 "
    "to DC903.",
)
baseline_option = click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Known findings (datacheck baseline RUN) that are not told again; new samples always are.",
)
unread_option = click.option(
    "--allow-unread",
    is_flag=True,
    default=False,
    help="Do not fail when most bytes are in files that were not opened (DC113).",
)


@click.command("scan", help=_HELP)
@click.argument("data", type=click.Path(path_type=Path), required=False)
@click.option(
    "--schema",
    metavar="NAME|FILE",
    help="Built-in schema or YAML file. Default: the built-in one that fits.",
)
@click.option(
    "--loader",
    metavar="MODULE:FUNCTION",
    help="Scan what your own loader returns: FUNCTION() gives a dataset with __len__ and "
    "__getitem__. DATA are then "
    "the files that it reads, scanned to tell what the loader makes up.",
)
@click.option(
    "--files-schema",
    metavar="NAME|FILE",
    help="With --loader and DATA: the schema of DATA, where it is another one.",
)
@click.option("--split", metavar="NAME", help="With --loader: the split that it serves.")
@click.option(
    "--compare",
    type=click.IntRange(0),
    metavar="N",
    help="With --loader: read at most N samples a second time. Default: 2000.",
)
@root_option
@workers_option
@scheduler_option
@output_option
@format_option
@badge_option
@fail_on_option
@reference_option
@click.option(
    "--level",
    type=click.Choice(["structure", "numeric", "deep"]),
    default=None,
    help="How deep to read: headers only, all values but pixels, everything. Default: deep where "
    "the files have 64 MB "
    "at most, else numeric.",
)
@baseline_option
@unread_option
@click.option(
    "--rehash", is_flag=True, default=False, help="Read every file, also those that look unchanged."
)
@click.option(
    "--previews/--no-previews",
    default=True,
    show_default=True,
    help="Read the worst samples once more and draw them in report.html.",
)
@click.pass_context
def scan(
    ctx: click.Context,
    /,
    form: str,
    badge: Path | None,
    previews: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Scan, print the report, and exit with its code."""
    from datacheck.cli.show import show
    from datacheck.preview.run_previews import PreviewProcess
    from datacheck.report.progress import progress_bar

    command = shlex.join(["datacheck", *sys.argv[1:]])
    data_exists = options["data"] is not None and os.path.exists(options["data"])  # noqa: PTH110  returns False on errors
    drawn = previews and data_exists and options["loader"] is None
    with (
        PreviewProcess(options["data"], options["roots"])
        if drawn
        else nullcontext() as preview_process
    ):
        with progress_bar() as progress:
            run = _run(command=command, progress=progress, **options)
        show(run, form, badge, preview_process)
    ctx.exit(run.report.exit_code)


def _run(data: Path | None, schema: str | None, loader: str | None, **options: Any) -> ScanRun:
    from datacheck.scan import fitting, scan_loader
    from datacheck.scan import scan as scan_files
    from datacheck.scan.start import check_layout

    of_loader = {name: options.pop(name) for name in ("files_schema", "split", "compare")}
    if loader is not None:
        of_loader["split"] = of_loader["split"] or ""
        return scan_loader(loader, schema, data, **of_loader, **options)
    loader_options = [name for name, value in of_loader.items() if value is not None]
    if loader_options:
        msg = f"--{loader_options[0].replace('_', '-')} goes with --loader MODULE:FUNCTION"
        raise UsageError(msg)
    if data is None:
        msg = "name the data to scan, a folder or a file, or a loader: --loader MODULE:FUNCTION"
        raise UsageError(msg)
    if schema is not None:
        return scan_files(data, schema, **options)
    fits, count, files = fitting(data)
    few = f" {count:,} of {files:,} files" if count * _FEW < files else ""
    say(f"schema {fits.name} (its file patterns fit{few}; choose another with --schema)", err=True)
    run = scan_files(data, fits, **options)
    check_layout(run, data)
    return run
