"""``datacheck cache build``, ``explain-key`` and ``repair``: the commands that take a pipeline.

Each passes its options to the function of `datacheck.pipeline` that does the work, and prints what
comes back, one block of lines for each cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import PathOrUrl, root_option, scheduler_option, workers_option
from datacheck.cli.output import first_lines, say

if TYPE_CHECKING:
    from datacheck.build.builder import Built
    from datacheck.build.repair import RepairedCache
    from datacheck.build.reuse import Reuse
    from datacheck.pipeline import Explained

_MOST_REFUSALS = 3  # of one cause, so that the result of each cache stays in sight
_MOST_LETTERS = 160  # of a value of the key


def pipeline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument PIPELINE and the options that choose its caches."""
    for option in (
        click.option(
            "--compress",
            metavar="CODEC",
            show_default="the pipeline's, else none",
            help="Compress arrays with none, zstd or zstd:LEVEL (1 to 22).",
        ),
        click.option("--split", metavar="NAME", help="Use this split only."),
        root_option,
        click.option(
            "--out",
            type=PathOrUrl(),
            metavar="DIR|URL",
            show_default="cache",
            help="Keep all caches below this folder or URL.",
        ),
        click.option(
            "--data",
            type=click.Path(path_type=Path),
            metavar="DIR",
            show_default="the pipeline's",
            help="Read the data from DIR.",
        ),
        click.argument("pipeline", metavar="PIPELINE|SCHEMA"),
    ):
        command = option(command)
    return command


# -------------------------------------------------------------------------------------------- build


@click.command("build")
@pipeline_options
@click.option(
    "--staging",
    type=PathOrUrl(),
    metavar="DIR",
    show_default="~/.cache/datacheck/staging",
    help="Build a cache for a URL in DIR before it is uploaded.",
)
@workers_option
@scheduler_option
@click.option(
    "--no-reuse",
    "reuse",
    flag_value=False,
    default=True,
    help="Build every shard instead of linking those of an earlier cache.",
)
@click.option(
    "--check",
    "check",
    flag_value="some",
    help="Build some shards twice, and exit with code 6 if the bytes differ.",
)
@click.option(
    "--check-all",
    "check",
    flag_value="all",
    help="Build all shards twice, in twice the time, and exit with code 6 if the bytes differ.",
)
@click.option(
    "--allow-missing",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Accept up to N samples that are unreadable on this machine or whose shape no cache can "
    "hold.",
)
def build(pipeline: str, **options: Any) -> None:
    """Scan data and build a checksummed cache of the samples of each split.

    PIPELINE is a built-in pipeline or schema, or a YAML file of either; a schema alone is a
    pipeline without transforms.

    A cache is a Zarr v3 group in DIR/<pipeline>/<split>/<key>; DIR may be s3://bucket/prefix. Equal
    inputs give the same key and the same bytes, so an existing cache is not built again. In
    folders, shards and samples that the newest cache of the split already holds are linked or
    copied from it after every byte is verified.

    The exit code is 1 if a cache holds no valid sample, or lacks samples that passed the scan.
    """
    from datacheck.pipeline import build as build_caches
    from datacheck.report.progress import progress_bar

    with progress_bar() as progress:
        caches = build_caches(pipeline, progress=progress, **options)
    for cache in caches:
        say(*_built_lines(cache))
    if caches:
        say(*_unlisted_lines(caches[0].unlisted))
    missing = sum(count for cache in caches for count, _ in cache.unfit.values())
    if missing > options["allow_missing"] or any(_serves_nothing(cache) for cache in caches):
        click.get_current_context().exit(1)


def _serves_nothing(cache: Built) -> bool:
    return cache.samples > 0 and cache.valid == 0


def _built_lines(cache: Built) -> Iterator[str]:
    from datacheck.report.words import format_bytes
    from datacheck.rules.base import pluralize

    yield f"{cache.path}{' (unchanged: it was built before)' if cache.reused else ''}"
    yield from _unfit_lines(cache.unfit)
    invalid = cache.made - cache.valid
    missing = cache.samples - cache.made
    counts = f"{cache.valid:,} valid, {invalid:,} invalid, {missing:,} not made"
    yield f"    {pluralize(cache.samples, 'sample')}: {counts}; {format_bytes(cache.nbytes)}"
    if _serves_nothing(cache):
        yield "    No sample is valid, so a training can read nothing from this cache."
    if _serves_nothing(cache) and cache.made:
        yield "        The faults of the samples: datacheck scan, with the same data and schema"
    if cache.kept:
        yield f"    {pluralize(cache.kept, 'shard')} kept from an unfinished build"
    if cache.reuse is not None:
        yield from _reuse_lines(cache.reuse, cache.shards)
    if cache.checked:
        yield f"    {pluralize(cache.checked, 'shard')} built twice, with equal bytes"
    if cache.moved is not None:
        yield f"    a damaged cache in its place was moved to {cache.moved}"
    yield from _not_made_lines(cache.not_made)
    if cache.left_out:
        yield "    fields left out, as most samples lack them and no cache can hold them:"
    yield from first_lines(cache.left_out, most=_MOST_REFUSALS, indent=" " * 8)


def _unfit_lines(unfit: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    """Yield lines on valid samples whose shape does not fit the cache, and on what to do."""
    from datacheck.rules.base import pluralize

    if not unfit:
        return
    for name, (count, shape) in unfit.items():
        left_out = f"{pluralize(count, 'sample')} that passed the scan"
        yield f"    {left_out} cannot be stored in this cache, which holds {name} as {shape} only."
    name = next(iter(unfit))
    yield (
        "        In a cache the arrays of a field may differ in the size of their first axis only. "
        "Bring them to"
    )
    yield f"        one shape in a step of your own (pipelines/README.md), for {name} write:"
    resize = f"{{steps:resized: {{fields: {{{name}: {{shape: [...], dtype: ...}}}}}}}}"
    yield f"        transforms: [{resize}]"


def _reuse_lines(reuse: Reuse, shards: int) -> Iterator[str]:
    copied = f"; {reuse.copied:,} samples of other shards copied" if reuse.copied else ""
    yield f"    {reuse.linked:,} of {shards:,} shards linked from {reuse.path}{copied}"
    if reuse.lost:
        yield (
            f"    {len(reuse.lost):,} more damaged there, and rebuilt here: "
            f"datacheck cache verify {reuse.path}"
        )


def _not_made_lines(not_made: Sequence[tuple[str, str]]) -> Iterator[str]:
    from datacheck.rules.base import pluralize

    if not not_made:
        return
    samples = pluralize(len(not_made), "readable sample")
    yield f"    {samples} left out, refused by a transform or of another shape than the cache:"
    yield from first_lines(
        [f"{key}: {reason}" for key, reason in not_made],
        most=_MOST_REFUSALS,
        indent=" " * 8,
        more="; build.json lists all",
    )


def _unlisted_lines(unlisted: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not unlisted:
        return
    yield "These folders could not be listed; their samples are in no cache:"
    yield from first_lines([f"{path}: {reason}" for path, reason in unlisted], most=_MOST_REFUSALS)


# -------------------------------------------------------------------------------------- explain-key


@click.command("explain-key")
@pipeline_options
@workers_option
@click.pass_context
def explain_key(ctx: click.Context, /, pipeline: str, **options: Any) -> None:
    """Explain why a build would not reuse the newest cache: which parts of its key differ, and how.

    Nothing is built. The exit code is 0 if the newest cache of each split has the key of a build
    now, and 1 if not.
    """
    from datacheck.pipeline import explain
    from datacheck.report.progress import progress_bar

    with progress_bar() as progress:
        explanations = explain(pipeline, progress=progress, **options)
    for explanation in explanations:
        say(*_explained_lines(explanation))
    ctx.exit(int(any(explanation.path != explanation.newest for explanation in explanations)))


def _explained_lines(explanation: Explained) -> Iterator[str]:
    if explanation.newest is None:
        yield f"{explanation.path}"
        yield "    not built, and there is no older cache to compare with"
        return
    if explanation.newest == explanation.path:
        yield f"{explanation.path} (built; nothing differs)"
    else:
        state = "built" if explanation.built else "not built"
        newest = str(explanation.newest).rpartition("/")[2]
        yield f"{explanation.path}"
        yield f"    {state}; the newest cache is {newest}"
    for difference in explanation.differences:
        yield f"    {difference.where}: {_short(difference.before)} -> {_short(difference.now)}"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


# ------------------------------------------------------------------------------------------- repair


@click.command("repair")
@pipeline_options
@workers_option
@scheduler_option
def repair(pipeline: str, **options: Any) -> None:
    """Verify every byte of a pipeline's caches, and rebuild the damaged shards.

    Give the arguments of the cache build that made the caches, and the same data. Intact shards are
    linked, damaged ones are rebuilt, and the repaired cache replaces the damaged one in one step;
    the damaged one is kept in .trash.

    If the data, the schema or the pipeline changed since the build, nothing is repaired, and the
    error names the differences.
    """
    from datacheck.pipeline import repair as repair_caches
    from datacheck.report.progress import progress_bar

    with progress_bar() as progress:
        repaired_caches = repair_caches(pipeline, progress=progress, **options)
    for cache in repaired_caches:
        say(*_repaired_lines(cache))


def _repaired_lines(cache: RepairedCache) -> Iterator[str]:
    from datacheck.rules.base import pluralize

    if not cache.problems:
        yield f"{cache.path}: intact (every byte); nothing to repair"
        return
    yield f"{cache.path}: {pluralize(len(cache.problems), 'problem')}"
    yield from first_lines(cache.problems)
    yield (
        f"    repaired: {cache.rebuilt:,} of {cache.shards:,} shards rebuilt, tables and documents "
        f"written again"
    )
    if cache.moved is not None:
        yield f"    the damaged cache was moved to {cache.moved}"
