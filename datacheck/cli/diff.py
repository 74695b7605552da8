"""``datacheck diff``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.cache_diff import counted_lines, stored, verdict_line
from datacheck.cli.info import PathOrUrl
from datacheck.cli.manifest import (
    deep_option,
    format_option,
    print_notes,
    schema_of,
    schema_option,
    workers_option,
)
from datacheck.cli.say import say
from datacheck.cli.scan import root_option

if TYPE_CHECKING:
    from datacheck.repro.compare import Comparison
    from datacheck.repro.values import TreeDiff

_FIELDS_SHOWN = 4


@click.command()
@click.argument("first", metavar="A", type=PathOrUrl())
@click.argument("second", metavar="B", type=PathOrUrl())
@schema_option
@root_option
@deep_option
@workers_option
@format_option
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
    """Show what differs between A and B; the exit code is 1 where anything does.

    Two datasets (folders, files or their manifests), two caches, or two recorded runs (see
    datacheck repro diff). Files and samples that were added, removed, changed, renamed, swapped or
    otherwise reordered are named; where both data are there, also by how much values differ.
    """
    from datacheck.report.progress import progress_bar
    from datacheck.repro.compare import compare, kinds_of

    kinds = kinds_of(first, second)
    if kinds[0] == "run":
        _of_runs(ctx, str(first), str(second), form)
        return
    data = next(
        (Path(p) for p, kind in zip((first, second), kinds, strict=True) if kind != "manifest"),
        Path(),
    )
    with progress_bar() as progress:
        comparison = compare(
            first, second, schema=schema_of(data, schema), progress=progress, **options
        )
    if form == "json":
        from datacheck.report.words import json_of

        click.echo(json_of(comparison.as_dict()))
    else:
        say(*_comparison_lines(comparison))
        print_notes(comparison.notes)
    if comparison:
        ctx.exit(1)


def _of_runs(ctx: click.Context, first: str, second: str, form: str) -> None:
    """Run ``datacheck repro diff``."""
    from datacheck.plugins import resolve

    command: click.Command = resolve("datacheck.cli.repro_diff:diff")
    with command.make_context("diff", [first, second, "--format", form], parent=ctx) as inner:
        command.invoke(inner)


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    from datacheck.report.words import clean

    for name, about in (("first ", comparison.first), ("second", comparison.second)):
        yield clean(f"{name}  {about['path']}: {_side_text(about)}", spaces=True)
    if not comparison:
        yield "no difference"
        return
    yield from counted_lines("stored otherwise", comparison.stored.items(), stored)
    yield from _tree_lines(
        "file", comparison.files, (comparison.values,) if comparison.samples is None else ()
    )
    if comparison.samples is not None:
        yield from _tree_lines("sample", comparison.samples, (comparison.values, comparison.fields))
    yield from counted_lines("samples judged otherwise", comparison.verdicts.items(), verdict_line)


def _side_text(about: Mapping[str, Any]) -> str:
    if about["kind"] == "cache":
        return f"a cache of {about['samples']:,} samples, content root {about['content_root']}"
    samples = f", {about['samples']:,} samples" if "samples" in about else ""
    kind = {"manifest": "a manifest of ", "dataset": "", "file": ""}[about["kind"]]
    return f"{kind}{about['files']:,} files{samples}, root {about['root']}"


def _changed_fields(changes: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the differing fields of a sample or file, from the first mapping that has its name."""
    fields = next((mapping[name] for mapping in changes if name in mapping), ())
    if not isinstance(fields, Mapping):
        return ", ".join(fields)
    field_texts = [
        f"{name} {changes['said']}".strip()
        for name, changes in list(fields.items())[:_FIELDS_SHOWN]
    ]
    return "; ".join(
        [
            *field_texts,
            *(
                [f"{len(fields) - _FIELDS_SHOWN:,} more fields"]
                if len(fields) > _FIELDS_SHOWN
                else []
            ),
        ]
    )


def _tree_lines(
    item_kind: str, tree: TreeDiff, changes: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    def with_more(name: str) -> str:
        return ": ".join([name, *filter(None, [_changed_fields(changes, name), _copy(tree, name)])])

    kinds: list[tuple[Collection[Any], Callable[[Any], str], str]] = [
        (tree.removed, str, "{} only in the first"),
        (tree.added, with_more, "{} only in the second"),
        (tree.changed, with_more, "{} changed"),
        (tree.renamed, lambda pair: f"{pair[0]}, then {pair[1]}", "{} renamed"),
        (
            tree.swapped,
            lambda pair: f"{pair[0]} and {pair[1]} have each other's content",
            "pairs of {} swapped",
        ),
        (tree.reordered.items(), lambda pair: f"{pair[0]} has what {pair[1]} had", "{} reordered"),
    ]
    for items, line, template in kinds:
        names = f"{item_kind}s" if len(items) > 1 or "pairs" in template else item_kind
        yield from counted_lines(
            template.format(names).replace("pairs", "pairs" if len(items) > 1 else "pair"),
            items,
            line,
        )


def _copy(tree: TreeDiff, name: str) -> str:
    return f"the same as {tree.copies[name]} in the first" if name in tree.copies else ""
