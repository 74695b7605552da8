"""``datacheck cache diff``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from datacheck.cli.info import PathOrUrl, split_option
from datacheck.cli.say import say

if TYPE_CHECKING:
    from datacheck.cache.diff import Diff, ValueChange

Item = TypeVar("Item")

_SHOWN = 20
_LETTERS = 10_000  # characters of a line


@click.command()
@click.argument("first", type=PathOrUrl())
@click.argument("second", type=PathOrUrl())
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME",
    help="Compare this field; may be given again.",
)
@split_option
@click.pass_context
def diff(
    ctx: click.Context,
    first: Path | str,
    second: Path | str,
    fields: tuple[str, ...],
    split: str | None,
) -> None:
    """Show which samples and fields differ between two caches; the exit code is 1 where any does."""
    from datacheck.cache import open_cache
    from datacheck.cache.diff import diff as diff_caches

    a, b = (open_cache(path, split=split) for path in (first, second))
    cache_diff = diff_caches(a, b, fields or None)
    say(
        f"first   {a.path}: {len(a):,} samples",
        f"second  {b.path}: {len(b):,} samples",
        *_diff_lines(cache_diff),
    )
    if cache_diff:
        ctx.exit(1)
    say("no difference" + (f" in {', '.join(fields)}" if fields else ""))


def _diff_lines(cache_diff: Diff) -> Iterator[str]:
    from datacheck.cache.diff import MOST_CHANGES

    yield from counted_lines("stored otherwise", cache_diff.fields.items(), stored)
    yield from counted_lines("only in the first", cache_diff.removed)
    yield from counted_lines("only in the second", cache_diff.added)
    yield from counted_lines("changed", cache_diff.changed.items(), _change_line)
    if cache_diff.unread:
        yield (
            f"{cache_diff.unread:,} more samples that both have were not looked at, as "
            f"{MOST_CHANGES:,} values had changed before"
        )
    yield from counted_lines("judged otherwise", cache_diff.verdicts.items(), verdict_line)


def _change_line(item: tuple[str, Mapping[str, ValueChange]]) -> str:
    key, changes = item
    return f"{key}: {'; '.join(f'{name} {change}' for name, change in changes.items())}"


def counted_lines(
    what: str, items: Collection[Item], line: Callable[[Item], str] = str
) -> Iterator[str]:
    """Yield the number of items, and a line for each of the first ones.

    There may be millions of items, with long names.
    """
    from datacheck.report.words import clean

    if items:
        yield f"{len(items):,} {what}"
    for item in islice(items, _SHOWN):
        text = line(item)
        yield f"    {clean(text if len(text) <= _LETTERS else f'{text[:_LETTERS]} ...', spaces=True)}"
    if len(items) > _SHOWN:
        yield f"    ... and {len(items) - _SHOWN:,} more"


def stored(item: tuple[str, tuple[str, str]]) -> str:
    """Return a line on how each of two caches stores a field."""
    name, (before, after) = item
    return f"{name}: {before or 'none'}, then {after or 'none'}"


def verdict_line(item: tuple[str, tuple[Sequence[str], Sequence[str]]]) -> str:
    """Return a line with the codes that make a sample invalid in each of two caches."""
    key, (before, after) = item
    return f"{key}: {', '.join(before) or 'valid'}, then {', '.join(after) or 'valid'}"
