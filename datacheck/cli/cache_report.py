"""``datacheck cache report``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.info import path_argument, split_option
from datacheck.cli.say import say

if TYPE_CHECKING:
    from datacheck.cache.verify import Depth


@click.command()
@path_argument
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("cache-report.html"),
    show_default=True,
    help="Where to.",
)
@click.option(
    "--full", "depth", flag_value="full", help="Also read every byte, as cache verify does."
)
@click.option(
    "--quick",
    "depth",
    flag_value="quick",
    default=True,
    help="The names and sizes of files (the default).",
)
@split_option
@click.pass_context
def report(
    ctx: click.Context, path: Path | str, file: Path, depth: Depth, split: str | None
) -> None:
    """Write a page that shows what a cache holds; the exit code is 7 where it is not what was written."""
    from datacheck.report.cache_page import COMMAND, cache_page, cache_summary
    from datacheck.report.words import format_bytes
    from datacheck.runtime import outputs

    place = _chosen(path, split)
    _check_place(file, place)
    summary = cache_summary(place, depth)
    page = cache_page(summary)
    outputs.write_output(file, page, COMMAND, outputs.generated_by(COMMAND))
    problems = summary["checked"]["all_problems"]
    intact_text = "intact (every byte)" if depth == "full" else "intact (manifest, files and sizes)"
    verdict = f"{problems:,} problem{'' if problems == 1 else 's'}" if problems else intact_text
    say(f"{place}: {verdict}")
    say(f"{file}: {format_bytes(len(page))}; open it in a browser")
    if problems:
        ctx.exit(7)


def _chosen(path: Path | str, split: str | None) -> Path | str:
    """Return the only finished cache at a path.

    Raises:
        UsageError: there is none, or more than one; the message names what is there.
        CorruptionError: a cache has lost its manifest.
    """
    from datacheck.cache.find import (
        choose_cache,
        find_caches,
        find_without_manifest,
        unfinished_builds,
    )
    from datacheck.errors import CorruptionError, UsageError

    try:
        return choose_cache(path, split)
    except UsageError:
        if any(find_caches(path)):
            raise
        headless = next(find_without_manifest(path), None) if isinstance(path, Path) else None
        if headless is not None:
            msg = (
                f"{headless}: its manifest is gone, though it lies where a finished cache does. "
                f"Run datacheck cache "
                "repair with the words of the build that made it."
            )
            raise CorruptionError(msg) from None
        builds = unfinished_builds(path)
        if builds:
            others = f", and {len(builds) - 1:,} more" if len(builds) > 1 else ""
            msg = (
                f"{path}: no finished cache; an unfinished build lies in {builds[0]}{others}. Run "
                f"the same datacheck "
                "cache build again: it goes on from there."
            )
            raise UsageError(msg) from None
        raise


def _check_place(file: Path, place: Path | str) -> None:
    """Raise if the page cannot be written, before hours of checking.

    A page inside of the cache is refused: any foreign file in it counts as damage.
    """
    from datacheck.errors import StorageError, UsageError
    from datacheck.report.cache_page import COMMAND
    from datacheck.runtime import outputs

    if isinstance(place, Path) and Path(os.path.realpath(file)).is_relative_to(
        os.path.realpath(place)
    ):
        msg = f"{file}: lies in the cache, which holds no other files. Name another place with -o."
        raise UsageError(msg)
    outputs.check_output(file, COMMAND, outputs.generated_by(COMMAND))
    if not file.parent.is_dir():
        msg = (
            f"{file}: no such file or folder. Make the folder {file.parent}, or name another "
            f"place with -o."
        )
        raise StorageError(msg)
    if not os.access(file.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        msg = f"{file}: nothing may be written into {file.parent}. Name another place with -o."
        raise StorageError(msg)
