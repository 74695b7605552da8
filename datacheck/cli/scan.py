"""``datacheck scan``: find broken samples in files, or in what a loader of the user returns."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import (
    badge_option,
    baseline_option,
    fail_on_option,
    format_option,
    output_option,
    reference_option,
    root_option,
    scheduler_option,
    schema_option,
    unread_option,
    workers_option,
)
from datacheck.cli.output import say
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.scan import ScanRun


@click.command("scan")
@click.argument("data", type=click.Path(path_type=Path), required=False)
@schema_option
@click.option(
    "--loader",
    metavar="MODULE:FUNCTION",
    help="Scan the samples of your own loader: FUNCTION() returns a dataset with __len__ and "
    "__getitem__. DATA are then its files, scanned to find samples that the loader invents.",
)
@click.option(
    "--files-schema",
    metavar="NAME|FILE",
    show_default="that of --schema if it fits DATA, else the built-in schema that does",
    help="With --loader and DATA: use this schema for DATA.",
)
@click.option("--split", metavar="NAME", help="With --loader: name the split that it serves.")
@click.option(
    "--compare",
    type=click.IntRange(0),
    metavar="N",
    show_default="2000",
    help="With --loader: read at most N samples a second time and compare them.",
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
    show_default="deep for files of at most 64 MB together, else numeric",
    help="Read headers only, all values except pixels, or everything.",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    show_default="that of the schema",
    help="Judge chats by the tokens of this tokenizer: tokenizer.json and the files beside it.",
)
@click.option(
    "--trainer",
    type=click.Choice(["minimind", "trl", "axolotl", "llamafactory"]),
    default=None,
    show_default="that of the schema, else minimind",
    help="Take the tokens of a chat that are trained on as this program does.",
)
@baseline_option
@unread_option
@click.option(
    "--rehash",
    is_flag=True,
    default=False,
    help="Read every file, even those unchanged since the last scan.",
)
@click.option(
    "--previews/--no-previews",
    default=True,
    show_default=True,
    help="Read the worst samples again and draw them in report.html.",
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
    """Find broken samples in DATA, a folder or a file, or in the samples of a loader (--loader).

    \b
    Writes a run, by default .datacheck/latest/:
      result.json      the verdict of each rule, and all findings
      samples.parquet  all measurements, one row per sample
      valid.json       the samples to leave out of training, and why
      previews.json    pictures of the worst samples of each finding
      report.html      all of these as one page for a browser
    """  # noqa: D301  \b keeps click from joining the lines
    from datacheck.cli.run_output import show
    from datacheck.preview.run_previews import PreviewProcess
    from datacheck.report.progress import progress_bar

    command = shlex.join(["datacheck", *sys.argv[1:]])
    data_exists = options["data"] is not None and os.path.exists(options["data"])  # noqa: PTH110  returns False on errors
    draws = previews and data_exists and options["loader"] is None
    with (
        PreviewProcess(options["data"], options["roots"])
        if draws
        else nullcontext() as preview_process
    ):
        with progress_bar() as progress:
            run = _run(command=command, progress=progress, **options)
        show(run, form, badge, None if preview_process is None else preview_process.write)
    ctx.exit(run.report.exit_code)


def _run(data: Path | None, schema: str | None, loader: str | None, **options: Any) -> ScanRun:
    from datacheck.scan import scan as scan_files
    from datacheck.scan import scan_loader

    loader_options = {name: options.pop(name) for name in ("files_schema", "split", "compare")}
    if loader is not None:
        loader_options["split"] = loader_options["split"] or ""
        return scan_loader(loader, schema, data, **loader_options, **options)
    for name, value in loader_options.items():
        if value is not None:
            msg = f"--{name.replace('_', '-')} goes with --loader MODULE:FUNCTION"
            raise UsageError(msg)
    if data is None:
        msg = "name the data to scan, a folder or a file, or a loader: --loader MODULE:FUNCTION"
        raise UsageError(msg)
    return scan_files(data, schema, report=partial(say, err=True), **options)
