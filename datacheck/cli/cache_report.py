"""``datacheck cache report``: write an HTML page about one cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.cache_verify import CHECKED, NO_MANIFEST, REPAIR
from datacheck.cli.options import path_argument, split_option
from datacheck.cli.output import say

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
    metavar="FILE",
    help="Write the page to FILE.",
)
@click.option(
    "--full", "depth", flag_value="full", help="Check every byte, as datacheck cache verify does."
)
@click.option(
    "--quick",
    "depth",
    flag_value="quick",
    default=True,
    help="Check the names and sizes of files; this is the default.",
)
@split_option
@click.pass_context
def report(
    ctx: click.Context, path: Path | str, file: Path, depth: Depth, split: str | None
) -> None:
    """Write an HTML page about the cache at PATH: fields, sizes, samples and problems.

    The exit code is 7 if the cache is damaged.
    """
    from datacheck.report.cache_page import COMMAND, cache_page, cache_summary
    from datacheck.report.words import format_bytes
    from datacheck.rules.base import pluralize
    from datacheck.runtime import outputs

    cache = _choose_cache(path, split)
    _check_output(file, cache)
    summary = cache_summary(cache, depth)
    page = cache_page(summary)
    outputs.write_output(file, page, COMMAND, outputs.generated_by(COMMAND))
    problems = summary["checked"]["all_problems"]
    verdict = pluralize(problems, "problem") if problems else f"intact ({CHECKED[depth]})"
    say(f"{cache}: {verdict}")
    say(f"{file}: {format_bytes(len(page))}; open it in a browser")
    if problems:
        ctx.exit(7)


def _choose_cache(path: Path | str, split: str | None) -> Path | str:
    """Return the only finished cache at or below a path.

    Raises:
        UsageError: there is no finished cache, or more than one; the message names those found.
        CorruptionError: a cache has lost its manifest.
    """
    from datacheck.cache.find import choose_cache, find_caches
    from datacheck.errors import UsageError

    try:
        return choose_cache(path, split)
    except UsageError:
        if not any(find_caches(path)):
            _raise_if_damaged_or_unfinished(path)
        raise


def _raise_if_damaged_or_unfinished(path: Path | str) -> None:
    from datacheck.cache.find import find_without_manifest, unfinished_builds
    from datacheck.errors import CorruptionError, UsageError

    damaged = next(find_without_manifest(path), None) if isinstance(path, Path) else None
    if damaged is not None:
        msg = f"{damaged}: {NO_MANIFEST}. Run {REPAIR}."
        raise CorruptionError(msg) from None
    builds = unfinished_builds(path)
    if builds:
        others = f", and {len(builds) - 1:,} more" if len(builds) > 1 else ""
        msg = (
            f"{path}: no finished cache; an unfinished build lies in {builds[0]}{others}. Run the "
            f"same datacheck cache build again: it goes on from there."
        )
        raise UsageError(msg) from None


def _check_output(file: Path, cache: Path | str) -> None:
    """Raise if the page cannot be written, before hours of checking.

    A page in the cache itself is refused, because a foreign file there counts as damage.
    """
    from datacheck.errors import StorageError, UsageError
    from datacheck.report.cache_page import COMMAND
    from datacheck.runtime import outputs

    if isinstance(cache, Path) and Path(os.path.realpath(file)).is_relative_to(
        os.path.realpath(cache)
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
