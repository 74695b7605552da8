"""``datacheck cache diff``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.info import Place, split_option
from datacheck.cli.say import say

if TYPE_CHECKING:
    from datacheck.cache.diff import Diff

_SHOWN = 20


@click.command()
@click.argument("first", type=Place())
@click.argument("second", type=Place())
@click.option("--field", "fields", multiple=True, metavar="NAME", help="Compare this field; may be given again.")
@split_option
@click.pass_context
def diff(ctx: click.Context, first: Path | str, second: Path | str, fields: tuple[str, ...], split: str | None) -> None:
    """Show which samples and fields differ between two caches; the exit code is 1 where any does."""
    from datacheck.cache import open_cache
    from datacheck.cache.diff import diff as diff_caches

    a, b = (open_cache(path, split=split) for path in (first, second))
    found = diff_caches(a, b, fields or None)
    say(f"first   {a.path}: {len(a):,} samples", f"second  {b.path}: {len(b):,} samples", *_told(found))
    if found:
        ctx.exit(1)
    say("no difference" + (f" in {', '.join(fields)}" if fields else ""))


def _told(found: Diff) -> Iterator[str]:
    yield from listed(
        "stored otherwise", [f"{n}: {_or_none(x)}, then {_or_none(y)}" for n, (x, y) in found.fields.items()]
    )
    yield from listed("only in the first", found.removed)
    yield from listed("only in the second", found.added)
    yield from listed(
        "changed", [f"{key}: {'; '.join(f'{n} {c}' for n, c in of.items())}" for key, of in found.changed.items()]
    )
    yield from listed(
        "judged otherwise", [f"{key}: {verdict(x)}, then {verdict(y)}" for key, (x, y) in found.verdicts.items()]
    )


def listed(what: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield how many there are of what, and the first of them."""
    from datacheck.report.words import clean

    if lines:
        yield f"{len(lines):,} {what}"
    yield from (f"    {clean(line, spaces=True)}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"    ... and {len(lines) - _SHOWN:,} more"


def _or_none(said: str) -> str:
    return said or "none"


def verdict(codes: Sequence[str]) -> str:
    """Return the codes that make a sample invalid, in words."""
    return ", ".join(codes) or "valid"
