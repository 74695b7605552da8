"""``datacheck cache build``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.info import PathOrUrl
from datacheck.cli.say import say
from datacheck.cli.scan import root_option, scheduler_option, workers_option
from datacheck.report.words import format_bytes

if TYPE_CHECKING:
    from datacheck.build.builder import Built
    from datacheck.build.reuse import Reuse

_SHOWN = 3
_HELP = """Scan DATA and build a checksummed cache of the samples of each split.

PIPELINE is a built-in pipeline or schema, or a YAML file of either; a schema alone is the pipeline without transforms.
The cache is a Zarr v3 group in DIR/<pipeline>/<split>/<key>; DIR may be s3://bucket/prefix. Equal inputs give the same
key and the same bytes, so what is there already is not built again. Shards and samples that the newest cache of the
split has already are linked or copied from it, after a check of every byte (in folders only).
"""
_COMPRESS = "none, zstd or zstd:LEVEL (1 to 22). Default: as the pipeline says, else none."

_MISSING = (
    "Go without up to N samples that this machine could not read, or whose sizes no cache "
    "holds. Default: 0."
)

_STAGING = "Where a cache for a URL grows before it is sent. Default: ~/.cache/datacheck/staging."


def pipeline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose caches: pipeline, data, folder, extra roots, split and codec."""
    folder = click.Path(path_type=Path)
    for option in (
        click.option("--compress", metavar="CODEC", help=_COMPRESS),
        click.option("--split", metavar="NAME", help="This split only."),
        root_option,
        click.option(
            "--out",
            type=PathOrUrl(),
            metavar="DIR|URL",
            help="The folder of caches. Default: cache.",
        ),
        click.option(
            "--data", type=folder, metavar="DIR", help="The data. Default: as the pipeline says."
        ),
        click.argument("pipeline", metavar="PIPELINE|SCHEMA"),
    ):
        command = option(command)
    return command


@click.command("build", help=_HELP)
@pipeline_options
@click.option("--staging", type=PathOrUrl(), metavar="DIR", help=_STAGING)
@workers_option
@scheduler_option
@click.option(
    "--no-reuse",
    "reuse",
    flag_value=False,
    default=True,
    help="Make everything anew; ask no earlier cache.",
)
@click.option(
    "--check",
    "check",
    flag_value="some",
    help="Make some shards a second time; exit 6 where one differs.",
)
@click.option(
    "--check-all", "check", flag_value="all", help="The same with all shards: twice the time."
)
@click.option("--allow-missing", type=click.IntRange(0), default=0, metavar="N", help=_MISSING)
def build(pipeline: str, **options: Any) -> None:
    """Scan, build, and print what was built."""
    from datacheck.pipeline import build as build_caches
    from datacheck.report.progress import progress_bar

    with progress_bar() as progress:
        caches = build_caches(pipeline, progress=progress, **options)
    for cache in caches:
        say(*built_lines(cache))
    say(*_unlisted_lines(caches[0].unlisted if caches else ()))
    if (
        sum(count for cache in caches for count, _ in cache.unfit.values())
        > options["allow_missing"]
    ):
        click.get_current_context().exit(1)


def built_lines(one: Built) -> Iterator[str]:
    """Yield the lines on one built cache."""
    invalid = one.made - one.valid
    missing = one.samples - one.made
    yield f"{one.path}{' (unchanged: it was built before)' if one.reused else ''}"
    yield from _unfit_lines(one.unfit)
    counts = f"{one.valid:,} valid, {invalid:,} invalid, {missing:,} not made"
    yield (
        f"    {one.samples:,} sample{'' if one.samples == 1 else 's'}: {counts}; "
        f"{format_bytes(one.nbytes)}"
    )
    if one.kept:
        yield (
            f"    {one.kept:,} shard{' was' if one.kept == 1 else 's were'} there from a run before"
        )
    if one.reuse is not None:
        yield from _reuse_lines(one.reuse, one.shards)
    if one.checked:
        yield (
            f"    {one.checked:,} shard{' was' if one.checked == 1 else 's were'} made a second "
            f"time: the same bytes"
        )
    if one.moved is not None:
        yield f"    a damaged cache stood in its place; it lies in {one.moved}"
    yield from _refused_lines(one.not_made)
    if one.left_out:
        yield (
            "    fields that fewer than half of the samples have and no cache can hold are left "
            "out:"
        )
    yield from _first_lines(one.left_out, "        ")


def _unfit_lines(unfit: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    """Yield lines on samples that are fit but do not fit the cache, and on what to do."""
    for name, (count, shape) in unfit.items():
        who = f"{count:,} sample{' that the scan found fit is' if count == 1 else 's that the scan found fit are'}"
        yield f"    {who} not in this cache, which holds {name} as {shape} only."
    if unfit:
        name = next(iter(unfit))
        yield (
            "        In a cache the arrays of a field may differ in the size of their first axis "
            "only. Bring them to"
        )
        yield f"        one shape in a step of your own (pipelines/README.md), for {name} say:"
        yield (
            f"        transforms: [{{steps:resized: {{fields: {{{name}: {{shape: [...], dtype: "
            f"...}}}}}}}}]"
        )


def _unlisted_lines(refused: Sequence[tuple[str, str]]) -> Iterator[str]:
    if refused:
        yield "These folders could not be listed; their samples are in no cache:"
    yield from _first_lines([f"{path}: {reason}" for path, reason in refused], "    ")


def _first_lines(lines: Sequence[str], indent: str, more: str = "") -> Iterator[str]:
    yield from (f"{indent}{line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"{indent}... and {len(lines) - _SHOWN:,} more{more}"


def _reuse_lines(reuse: Reuse, shards: int) -> Iterator[str]:
    also = f"; {reuse.copied:,} samples of the others were copied" if reuse.copied else ""
    yield f"    {reuse.linked:,} of {shards:,} shards are those of {reuse.path}{also}"
    if reuse.lost:
        lost = "1 more is" if len(reuse.lost) == 1 else f"{len(reuse.lost):,} more are"
        yield f"    {lost} damaged there and made anew: datacheck cache verify {reuse.path}"


def _refused_lines(not_made: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not_made:
        who = (
            "1 readable sample does"
            if len(not_made) == 1
            else f"{len(not_made):,} readable samples do"
        )
        yield (
            f"    {who} not fit the cache, or a transform refused "
            f"{'it' if len(not_made) == 1 else 'them'}:"
        )
    yield from _first_lines(
        [f"{key}: {reason}" for key, reason in not_made], "        ", "; all are in build.json"
    )
