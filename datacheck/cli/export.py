"""``datacheck cache export``."""

from __future__ import annotations

from typing import Any

import click

from datacheck.cli.info import PathOrUrl, path_argument, split_option
from datacheck.cli.say import say
from datacheck.report.words import format_bytes

_HELP = """Write the samples of a cache for other loaders: robomimic HDF5, WebDataset tar files, or an .npz per sample.

Only valid samples are written, in key order; what is left out is counted. Every byte is checked while it is read. DIR
must be new: it appears whole or not at all. Equal caches give equal bytes.
"""


@click.command("export", help=_HELP)
@path_argument
@click.option("--to", type=PathOrUrl(), required=True, metavar="DIR", help="The new folder.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["robomimic", "webdataset", "npz"]),
    required=True,
    help="The format.",
)
@click.option(
    "--valid-only/--invalid",
    "valid",
    default=True,
    help="Also what has an error finding. Default: valid.",
)
@split_option
def export(path: Any, to: Any, form: Any, valid: bool, split: str | None) -> None:  # noqa: FBT001  click's
    """Export a cache, and print what was written and left out."""
    from datacheck.build.export import export as export_cache

    done = export_cache(path, to, form, invalid=not valid, split=split)
    files = f"{done.files:,} file{'' if done.files == 1 else 's'}"
    say(
        f"{done.path}: {done.samples:,} sample{'' if done.samples == 1 else 's'} in {files}, "
        f"{format_bytes(done.nbytes)}"
    )
    if done.left_out:
        say(
            "    left out: " + ", ".join(f"{count:,} {why}" for why, count in done.left_out.items())
        )
