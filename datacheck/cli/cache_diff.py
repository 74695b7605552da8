"""``datacheck cache diff``: compare two caches sample by sample and field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.options import PathOrUrl, split_option
from datacheck.cli.output import counted_lines, say

if TYPE_CHECKING:
    from datacheck.cache.diff import Diff, ValueChange

RECORDED_DIGESTS = (
    "(by the digests of samples that the caches record; datacheck cache verify --values compares "
    "them with the values)"
)


@click.command()
@click.argument("first", type=PathOrUrl())
@click.argument("second", type=PathOrUrl())
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME",
    show_default="all",
    help="Compare this field; repeatable.",
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
    """Compare the samples and fields of two caches; the exit code is 1 if any differs."""
    from datacheck.cache import open_cache
    from datacheck.cache.diff import diff as diff_caches

    first_cache = open_cache(first, split=split)
    second_cache = open_cache(second, split=split)
    difference = diff_caches(first_cache, second_cache, fields or None)
    say(
        f"first   {first_cache.path}: {len(first_cache):,} samples",
        f"second  {second_cache.path}: {len(second_cache):,} samples",
        *_diff_lines(difference),
    )
    if difference:
        ctx.exit(1)
    say("no difference" + (f" in {', '.join(fields)}" if fields else ""), RECORDED_DIGESTS)


def _diff_lines(difference: Diff) -> Iterator[str]:
    from datacheck.cache.diff import MOST_CHANGES

    yield from counted_lines("stored otherwise", difference.fields.items(), storage_line)
    yield from counted_lines("only in the first", difference.removed)
    yield from counted_lines("only in the second", difference.added)
    yield from counted_lines("changed", difference.changed.items(), _change_line)
    if difference.unread:
        yield (
            f"{difference.unread:,} more samples that both have were not looked at, as "
            f"{MOST_CHANGES:,} values had changed before"
        )
    yield from counted_lines("judged otherwise", difference.verdicts.items(), verdict_line)


def _change_line(item: tuple[str, Mapping[str, ValueChange]]) -> str:
    key, changes = item
    return f"{key}: {'; '.join(f'{name} {change}' for name, change in changes.items())}"


def storage_line(item: tuple[str, tuple[str, str]]) -> str:
    """Return a line on how each of two caches stores a field."""
    name, (before, after) = item
    return f"{name}: {before or 'none'}, then {after or 'none'}"


def verdict_line(item: tuple[str, tuple[Sequence[str], Sequence[str]]]) -> str:
    """Return a line with the codes that make a sample invalid in each of two caches."""
    key, (before, after) = item
    return f"{key}: {', '.join(before) or 'valid'}, then {', '.join(after) or 'valid'}"
