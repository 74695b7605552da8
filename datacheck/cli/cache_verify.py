"""``datacheck cache verify``: compare finished caches with their checksums."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import path_argument, split_option
from datacheck.cli.output import first_lines, say

if TYPE_CHECKING:
    from datacheck.cache.verify import Depth
    from datacheck.errors import DatacheckError, StorageError

CHECKED = {
    "quick": "manifest, files and sizes",
    "full": "every byte",
    "values": "every byte and every sample",
}
REPAIR = "datacheck cache repair with the arguments of the datacheck cache build that made it"
NO_MANIFEST = "its manifest is gone, and the cache cannot be read without it"


class _ShardPart(click.ParamType[tuple[int, int]]):
    name = "N/T"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Parse ``2/7``."""
        number, _, total = str(value).partition("/")
        if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
            self.fail(f"{value!r} is not N/T with 1 <= N <= T, as in 1/7", param, ctx)
        return int(number), int(total)


@click.command()
@path_argument
@click.option(
    "--quick", "depth", flag_value="quick", help="Check the manifest, names and sizes of files."
)
@click.option(
    "--full",
    "depth",
    flag_value="full",
    default=True,
    help="Check every byte, too; this is the default.",
)
@click.option(
    "--values",
    "depth",
    flag_value="values",
    help="Check every byte, and the digest of every sample as it is served.",
)
@click.option(
    "--subset", type=_ShardPart(), help="Check part N of T of the shards, and everything else."
)
@click.option(
    "--expect",
    metavar="DIGEST",
    help="Require this digest or content root (see datacheck cache info).",
)
@click.option(
    "--drop-cache",
    is_flag=True,
    help="Drop the files from the page cache first, to read them from the disk (best effort).",
)
@split_option
@click.pass_context
def verify(
    ctx: click.Context,
    path: Path | str,
    depth: Depth,
    subset: tuple[int, int] | None,
    expect: str | None,
    drop_cache: bool,  # noqa: FBT001  click's
    split: str | None,
) -> None:
    """Verify that the finished caches at or below PATH are as they were written.

    The exit code is 7 if a cache is damaged.
    """
    from datacheck.cache.find import choose_cache, find_caches
    from datacheck.errors import StorageError, UsageError

    unlisted: list[StorageError] = []
    caches = list(find_caches(path, unlisted=unlisted)) if split is None else []
    refused: list[DatacheckError] = [*unlisted]
    for error in unlisted:
        say(f"not checked: {error}")
    if caches and isinstance(path, Path):
        _say_links(path)
    damaged = split is None and isinstance(path, Path) and _say_caches_without_manifest(path)
    if not caches and not damaged:
        caches = [choose_cache(path, split)]
    for cache in caches:
        try:
            damaged |= _say_problems(cache, depth, subset, expect, drop=drop_cache)
        except (StorageError, UsageError) as error:  # still check the others
            say(f"{cache}: not checked. {error}")
            refused.append(error)
    if damaged:
        say(f"Repair it: run {REPAIR}.")
        ctx.exit(7)
    if refused:
        raise refused[0]


def _say_links(path: Path) -> None:
    from datacheck.cache.find import find_links

    for link in find_links(path):
        say(f"not checked: {link} is a link; name its target")


def _say_caches_without_manifest(path: Path) -> bool:
    """Print the caches that have lost their manifest, which no other check finds."""
    from datacheck.cache.find import find_without_manifest

    folders = list(find_without_manifest(path))
    for folder in folders:
        say(f"{folder}: {NO_MANIFEST}")
    return bool(folders)


def _say_problems(
    cache: Path | str,
    depth: Depth,
    subset: tuple[int, int] | None,
    expect: str | None,
    *,
    drop: bool,
) -> bool:
    """Verify a cache, print its problems, and return whether there are any."""
    from datacheck.cache.store import FolderStore
    from datacheck.cache.verify import verify as verify_cache
    from datacheck.rules.base import pluralize

    if drop and isinstance(cache, Path):
        FolderStore(cache).drop()
    problems = verify_cache(cache, depth, subset=subset, expect=expect)
    if problems:
        say(f"{cache}: {pluralize(len(problems), 'problem')}")
        say(*first_lines(problems))
    else:
        part = f", part {subset[0]} of {subset[1]}" if subset else ""
        say(f"{cache}: intact ({CHECKED[depth]}{part})")
        if expect is not None and depth != "values":
            say("    --expect was compared with recorded digests; --values checks the samples, too")
    return bool(problems)
