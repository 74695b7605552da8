"""``datacheck cache verify``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.info import path_argument, split_option
from datacheck.cli.say import say

if TYPE_CHECKING:
    from datacheck.cache.problem import Problem

_SHOWN = 20
_CHECKED = {
    "quick": "manifest, files and sizes",
    "full": "every byte",
    "values": "every byte and every sample",
}


class _Share(click.ParamType[tuple[int, int]]):
    name = "N/T"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Parse ``2/7``."""
        n, _, t = str(value).partition("/")
        if not (n.isdecimal() and t.isdecimal() and 1 <= int(n) <= int(t)):
            self.fail(f"{value!r} is not N/T with 1 <= N <= T, as in 1/7", param, ctx)
        return int(n), int(t)


@click.command()
@path_argument
@click.option(
    "--quick",
    "depth",
    flag_value="quick",
    help="The manifest, the set of files and their sizes only.",
)
@click.option("--full", "depth", flag_value="full", default=True, help="Every byte (the default).")
@click.option(
    "--values",
    "depth",
    flag_value="values",
    help="Every byte; every sample's digest from what is served.",
)
@click.option(
    "--subset",
    type=_Share(),
    help="Of the shards the N-th of T parts only, all else: a part each night.",
)
@click.option(
    "--expect",
    metavar="DIGEST",
    help="The digest or content root that it must have (see cache info).",
)
@click.option(
    "--drop-cache",
    is_flag=True,
    help="Ask the system to read from the disk, not from memory; it may not.",
)
@split_option
@click.pass_context
def verify(
    ctx: click.Context,
    path: Path | str,
    depth: str,
    subset: tuple[int, int] | None,
    expect: str | None,
    drop_cache: bool,  # noqa: FBT001  click's
    split: str | None,
) -> None:
    """Check that finished caches are what was written; the exit code is 7 where one is not."""
    from datacheck.cache.find import choose_cache, find_caches, find_links
    from datacheck.errors import DatacheckError, StorageError, UsageError

    unlisted: list[StorageError] = []
    folders: list[Path | str] = list(find_caches(path, unlisted=unlisted)) if split is None else []
    refused: list[DatacheckError] = [*unlisted]
    for error in unlisted:
        say(f"not checked: {error}")
    for link in find_links(path) if folders and isinstance(path, Path) else ():
        say(f"not checked: {link} is a link; name what it leads to")
    damaged = split is None and isinstance(path, Path) and _headless(path)
    for folder in folders or ([] if damaged else [choose_cache(path, split)]):
        try:
            damaged |= _damaged(folder, depth, subset, expect, drop=drop_cache)
        except (StorageError, UsageError) as error:  # still check the others
            say(f"{folder}: not checked. {error}")
            refused.append(error)
    if damaged:
        say(
            "Repair it: run datacheck cache repair with the words of the datacheck cache build "
            "that made it."
        )
        ctx.exit(7)
    if refused:
        raise refused[0]


def _headless(path: Path) -> bool:
    """Report caches that have lost their manifest; no other check finds them."""
    from datacheck.cache.find import find_without_manifest

    folders = list(find_without_manifest(path))
    for folder in folders:
        say(f"{folder}: its manifest is gone, though it lies where a finished cache does")
    return bool(folders)


def _damaged(
    folder: Path | str,
    depth: str,
    subset: tuple[int, int] | None,
    expect: str | None,
    *,
    drop: bool,
) -> bool:
    """Verify one cache, print its problems, and return whether there are any."""
    from datacheck.cache.store import FolderStore
    from datacheck.cache.verify import verify as verify_cache

    if drop and isinstance(folder, Path):
        FolderStore(folder).drop()
    problems = verify_cache(folder, depth, subset=subset, expect=expect)  # type: ignore[arg-type]  # click's words
    part = f", part {subset[0]} of {subset[1]}" if subset else ""
    say(f"{folder}: {_counted(len(problems)) if problems else f'intact ({_CHECKED[depth]}{part})'}")
    say(*problem_lines(problems))
    return bool(problems)


def problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield a line for each of the first problems, and the number of further ones."""
    from datacheck.report.words import clean

    yield from (f"    {clean(str(problem), spaces=True)}" for problem in problems[:_SHOWN])
    if len(problems) > _SHOWN:
        yield f"    ... and {len(problems) - _SHOWN:,} more"


def _counted(problems: int) -> str:
    return "1 problem" if problems == 1 else f"{problems:,} problems"
