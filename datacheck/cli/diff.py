"""``datacheck diff``: compare two datasets, manifests, caches or recorded runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.cache_diff import RECORDED_DIGESTS, storage_line, verdict_line
from datacheck.cli.manifest import load_schema_of, manifest_options
from datacheck.cli.options import PathOrUrl
from datacheck.cli.output import counted_lines, echo, say, say_notes

if TYPE_CHECKING:
    from datacheck.repro.compare import Comparison, TreeDiff

_MOST_FIELDS = 4  # of a sample, so that it takes one line


@click.command()
@click.argument("first", metavar="A", type=PathOrUrl())
@click.argument("second", metavar="B", type=PathOrUrl())
@manifest_options
@click.pass_context
def diff(
    ctx: click.Context,
    /,
    first: Path | str,
    second: Path | str,
    schema: str | None,
    form: str,
    **options: Any,
) -> None:
    """Compare A and B: two datasets, manifests, caches or recorded runs.

    A dataset is a folder, a file or a manifest of either. The names of files and samples that were
    added, removed, changed, renamed, swapped or reordered are printed; if both data are available,
    also by how much their values differ. For recorded runs see datacheck repro diff.

    The exit code is 1 if anything differs.
    """
    from datacheck.report.progress import progress_bar
    from datacheck.repro.compare import compare, kinds_of

    kinds = kinds_of(first, second)
    if kinds[0] == "run":
        _diff_runs(ctx, str(first), str(second), form)
        return
    # the schema that fits is found by files, which a manifest does not have
    paths = [
        Path(path) for path, kind in zip((first, second), kinds, strict=True) if kind != "manifest"
    ]
    data = paths[0] if paths else Path()
    with progress_bar() as progress:
        comparison = compare(
            first, second, schema=load_schema_of(data, schema), progress=progress, **options
        )
    if form == "json":
        from datacheck.report.words import json_of

        echo(json_of(comparison.as_dict()))
    else:
        say(*_comparison_lines(comparison))
        say_notes(comparison.notes)
    if comparison:
        ctx.exit(1)


def _diff_runs(ctx: click.Context, first: str, second: str, form: str) -> None:
    """Run ``datacheck repro diff``."""
    from datacheck.cli.repro_diff import diff as command

    with command.make_context("diff", [first, second, "--format", form], parent=ctx) as inner:
        command.invoke(inner)


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield f"first   {comparison.first['path']}: {_side_text(comparison.first)}"
    yield f"second  {comparison.second['path']}: {_side_text(comparison.second)}"
    if not comparison:
        yield "no difference"
        if comparison.first["kind"] == "cache":
            yield RECORDED_DIGESTS
        return
    yield from counted_lines("stored otherwise", comparison.stored.items(), storage_line)
    if comparison.samples is None:
        yield from _tree_lines("file", comparison.files, [comparison.values])
    else:
        yield from _tree_lines("file", comparison.files, [])
        yield from _tree_lines("sample", comparison.samples, [comparison.values, comparison.fields])
    yield from counted_lines("samples judged otherwise", comparison.verdicts.items(), verdict_line)


def _side_text(side: Mapping[str, Any]) -> str:
    if side["kind"] == "cache":
        return f"a cache of {side['samples']:,} samples, content root {side['content_root']}"
    kind = "a manifest of " if side["kind"] == "manifest" else ""
    samples = f", {side['samples']:,} samples" if "samples" in side else ""
    return f"{kind}{side['files']:,} files{samples}, root {side['root']}"


def _tree_lines(noun: str, tree: TreeDiff, changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names that differ, by kind of difference.

    Args:
        noun: what the names are of, file or sample.
        tree: the differences.
        changes: by name, how its fields differ; the first mapping that has a name counts.
    """

    def with_details(name: str) -> str:
        copied = f"the same as {tree.copies[name]} in the first" if name in tree.copies else ""
        return ": ".join(filter(None, [name, _changed_fields(changes, name), copied]))

    def nouns(count: int) -> str:
        return noun if count == 1 else f"{noun}s"

    yield from counted_lines(f"{nouns(len(tree.removed))} only in the first", tree.removed)
    yield from counted_lines(
        f"{nouns(len(tree.added))} only in the second", tree.added, with_details
    )
    yield from counted_lines(f"{nouns(len(tree.changed))} changed", tree.changed, with_details)
    yield from counted_lines(
        f"{nouns(len(tree.renamed))} renamed",
        tree.renamed,
        lambda pair: f"{pair[0]}, then {pair[1]}",
    )
    yield from counted_lines(
        f"{'pair' if len(tree.swapped) == 1 else 'pairs'} of {noun}s swapped",
        tree.swapped,
        lambda pair: f"{pair[0]} and {pair[1]} have each other's content",
    )
    yield from counted_lines(
        f"{nouns(len(tree.reordered))} reordered",
        tree.reordered.items(),
        lambda pair: f"{pair[0]} has what {pair[1]} had",
    )
    if tree.more_copies:
        one = tree.more_copies == 1
        copies = "copy is" if one else "copies are"
        yield f"{tree.more_copies:,} more {copies} listed without {'its' if one else 'their'} origin"


def _changed_fields(changes: Sequence[Mapping[str, Any]], name: str) -> str:
    fields = next((mapping[name] for mapping in changes if name in mapping), ())
    if not isinstance(fields, Mapping):  # digests tell which fields differ, not how
        return ", ".join(fields)
    texts = [
        f"{field} {change['said']}".strip() for field, change in list(fields.items())[:_MOST_FIELDS]
    ]
    if len(fields) > _MOST_FIELDS:
        texts.append(f"{len(fields) - _MOST_FIELDS:,} more fields")
    return "; ".join(texts)
