"""``datacheck cache diff``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.info import Place, split_option

if TYPE_CHECKING:
    from datacheck.cache.diff import Codes, Diff

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
    click.echo(f"first   {a.path}: {len(a):,} samples\nsecond  {b.path}: {len(b):,} samples")
    for line in _told(found):
        click.echo(line)
    if found:
        ctx.exit(1)
    click.echo("no difference" + (f" in {', '.join(fields)}" if fields else ""))


def _told(found: Diff) -> Iterator[str]:
    yield from _listed(
        "stored otherwise", [f"{n}: {_or_none(x)}, then {_or_none(y)}" for n, (x, y) in found.fields.items()]
    )
    yield from _listed("only in the first", found.removed)
    yield from _listed("only in the second", found.added)
    yield from _listed(
        "changed", [f"{key}: {'; '.join(f'{n} {c}' for n, c in of.items())}" for key, of in found.changed.items()]
    )
    yield from _listed(
        "judged otherwise", [f"{key}: {_verdict(x)}, then {_verdict(y)}" for key, (x, y) in found.verdicts.items()]
    )


def _listed(what: str, lines: Sequence[str]) -> Iterator[str]:
    from datacheck.report.words import clean

    if lines:
        yield f"{len(lines):,} {what}"
    yield from (f"    {clean(line, spaces=True)}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"    ... and {len(lines) - _SHOWN:,} more"


def _or_none(said: str) -> str:
    return said or "none"


def _verdict(codes: Codes) -> str:
    return ", ".join(codes) or "valid"
