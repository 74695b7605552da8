"""``datacheck cache export``: write the samples of a cache for other loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from datacheck.cli.options import PathOrUrl, path_argument, split_option
from datacheck.cli.output import say

if TYPE_CHECKING:
    from pathlib import Path

    from datacheck.build.export import Format


@click.command("export")
@path_argument
@click.option(
    "--to", type=PathOrUrl(), required=True, metavar="DIR", help="Write into the new folder DIR."
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["robomimic", "webdataset", "npz"]),
    required=True,
    help="Write robomimic HDF5, WebDataset tar files, or one .npz per sample.",
)
@click.option(
    "--valid-only/--invalid",
    "valid",
    default=True,
    show_default=True,
    help="Leave out samples with error findings, or export them, too.",
)
@split_option
def export(path: Path | str, to: Path | str, form: Format, valid: bool, split: str | None) -> None:  # noqa: FBT001  click's
    """Export the samples of a cache for other loaders.

    Samples are written in key order, and those left out are counted. Every byte is verified while
    it is read. DIR must not exist; it appears whole or not at all. Equal caches give equal bytes.
    """
    from datacheck.build.export import export as export_cache
    from datacheck.report.words import format_bytes
    from datacheck.rules.base import pluralize

    exported = export_cache(path, to, form, invalid=not valid, split=split)
    samples = pluralize(exported.samples, "sample")
    files = pluralize(exported.files, "file")
    say(f"{exported.path}: {samples} in {files}, {format_bytes(exported.nbytes)}")
    if exported.left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in exported.left_out.items())
        say(f"    left out: {reasons}")
