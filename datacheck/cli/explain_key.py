"""``datacheck cache explain-key``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.build import pipeline_options
from datacheck.cli.say import say
from datacheck.cli.scan import workers_option

if TYPE_CHECKING:
    from datacheck.pipeline import Explained

_HELP = """Say why the build of a pipeline would not find the newest cache: which part of its key differs, and how.

Nothing is built. Ends with 0 where the cache is there, with 1 where a build would make another one.
"""


@click.command("explain-key", help=_HELP)
@pipeline_options
@workers_option
@click.pass_context
def explain_key(ctx: click.Context, /, pipeline: str, **options: Any) -> None:
    """Scan, compare the key with that of the newest cache, and print the differences."""
    from datacheck.pipeline import explain
    from datacheck.report.progress import progress_bar

    with progress_bar() as progress:
        explanations = explain(pipeline, progress=progress, **options)
    for explanation in explanations:
        say(*explained_lines(explanation))
    ctx.exit(int(any(explanation.path != explanation.newest for explanation in explanations)))


def explained_lines(one: Explained) -> Iterator[str]:
    """Yield the lines on one split."""
    if one.newest is None:
        yield f"{one.path}\n    not built, and there is no older cache to compare with"
        return
    yield f"{one.path}{' (built; nothing differs)' if one.newest == one.path else ''}"
    if one.newest != one.path:
        newest = str(one.newest).rpartition("/")[2]
        yield (
            f"    {'built; the newest' if one.built else 'not built; the newest'} cache is {newest}"
        )
    for difference in one.differences:
        yield f"    {difference.where}: {_short(difference.before)} -> {_short(difference.now)}"


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
