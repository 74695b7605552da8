"""``datacheck cache repair``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.build import pipeline_options
from datacheck.cli.say import say
from datacheck.cli.scan import scheduler_option, workers_option
from datacheck.cli.verify import problem_lines

if TYPE_CHECKING:
    from datacheck.build.repair import RepairedCache

_HELP = """Check the caches of a pipeline byte by byte, and make anew what is damaged.

Takes what cache build takes, and needs the same data: shards that are whole are linked, damaged ones are made again,
and the cache is replaced by one that holds what it held, in one step. The damaged one is kept in .trash. Where data,
schema or pipeline are others than those of the cache nothing is changed, and what differs is said.
"""


@click.command("repair", help=_HELP)
@pipeline_options
@workers_option
@scheduler_option
def repair(pipeline: str, **options: Any) -> None:
    """Scan, verify, rebuild damaged shards, and print what was done."""
    from datacheck.pipeline import repair as repair_caches
    from datacheck.report.progress import progress_bar

    with progress_bar() as progress:
        repaired_caches = repair_caches(pipeline, progress=progress, **options)
    for cache in repaired_caches:
        say(*repair_lines(cache))


def repair_lines(one: RepairedCache) -> Iterator[str]:
    """Yield the lines on one cache."""
    if not one.problems:
        yield f"{one.path}: intact (every byte); nothing to repair"
        return
    yield f"{one.path}: {'1 problem' if len(one.problems) == 1 else f'{len(one.problems):,} problems'}"
    yield from problem_lines(one.problems)
    yield (
        f"    repaired: {one.rebuilt:,} of {one.shards:,} shards made anew, tables and documents "
        f"written again"
    )
    if one.moved is not None:
        yield f"    the damaged cache lies in {one.moved}"
