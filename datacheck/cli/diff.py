"""``datacheck diff``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.cache_diff import listed, verdict
from datacheck.cli.info import Place
from datacheck.cli.manifest import deep_option, format_option, schema_of, schema_option, tell_notes, workers_option
from datacheck.cli.say import say
from datacheck.cli.scan import root_option

if TYPE_CHECKING:
    from datacheck.repro.compare import Comparison
    from datacheck.repro.data.trees import TreeDiff

_FIELDS_SHOWN = 4


@click.command()
@click.argument("first", metavar="A", type=Place())
@click.argument("second", metavar="B", type=Place())
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

    Two datasets (folders, files or their manifests), two caches, or two recorded runs (see datacheck repro diff).
    Files and samples that were added, removed, changed, renamed, swapped or otherwise reordered are named; where both
    data are there, also by how much values differ.
    """
    from datacheck.report.progress import progress_bar
    from datacheck.repro.compare import compare, kinds_of

    kinds = kinds_of(first, second)
    if kinds[0] == "run":
        _of_runs(ctx, str(first), str(second), form)
        return
    data = next((Path(p) for p, kind in zip((first, second), kinds, strict=True) if kind != "manifest"), Path())
    with progress_bar() as progress:
        found = compare(first, second, schema=schema_of(data, schema), progress=progress, **options)
    if form == "json":
        from datacheck.report.words import json_of

        click.echo(json_of(found.as_dict()))
    else:
        say(*_told(found))
        tell_notes(found.notes)
    if found:
        ctx.exit(1)


def _of_runs(ctx: click.Context, first: str, second: str, form: str) -> None:
    """Do what ``datacheck repro diff`` does."""
    from datacheck.registry import resolve

    command: click.Command = resolve("datacheck.cli.repro_diff:diff")
    with command.make_context("diff", [first, second, "--format", form], parent=ctx) as inner:
        command.invoke(inner)


def _told(found: Comparison) -> Iterator[str]:
    from datacheck.report.words import clean

    for name, about in (("first ", found.first), ("second", found.second)):
        yield clean(f"{name}  {about['path']}: {_about(about)}", spaces=True)
    if not found:
        yield "no difference"
        return
    yield from listed(
        "stored otherwise", [f"{n}: {x or 'none'}, then {y or 'none'}" for n, (x, y) in found.stored.items()]
    )
    told = {name: _fields(of) for name, of in found.values.items()}
    yield from _tree("file", found.files, told if found.samples is None else {})
    if found.samples is not None:
        yield from _tree("sample", found.samples, {key: ", ".join(of) for key, of in found.fields.items()} | told)
    pairs = found.verdicts.items()
    yield from listed("samples judged otherwise", [f"{key}: {verdict(x)}, then {verdict(y)}" for key, (x, y) in pairs])


def _about(about: Mapping[str, Any]) -> str:
    if about["kind"] == "cache":
        return f"a cache of {about['samples']:,} samples, content root {about['content_root']}"
    samples = f", {about['samples']:,} samples" if "samples" in about else ""
    kind = {"manifest": "a manifest of ", "dataset": "", "file": ""}[about["kind"]]
    return f"{kind}{about['files']:,} files{samples}, root {about['root']}"


def _fields(of: Mapping[str, Mapping[str, Any]]) -> str:
    told = [f"{name} {said['said']}".strip() for name, said in list(of.items())[:_FIELDS_SHOWN]]
    return "; ".join([*told, *([f"{len(of) - _FIELDS_SHOWN:,} more fields"] if len(of) > _FIELDS_SHOWN else [])])


def _tree(what: str, tree: TreeDiff, said: Mapping[str, str]) -> Iterator[str]:
    def with_more(names: Sequence[str]) -> list[str]:
        return [": ".join([name, *filter(None, [said.get(name, ""), _copy(tree, name)])]) for name in names]

    moved = [f"{name} has what {before} had" for name, before in tree.reordered.items()]
    for lines, said_of in (
        (tree.removed, "{} only in the first"),
        (with_more(tree.added), "{} only in the second"),
        (with_more(tree.changed), "{} changed"),
        ([f"{one}, then {other}" for one, other in tree.renamed], "{} renamed"),
        ([f"{one} and {other} have each other's content" for one, other in tree.swapped], "pairs of {} swapped"),
        (moved, "{} reordered"),
    ):
        names = f"{what}s" if len(lines) > 1 or "pairs" in said_of else what
        yield from listed(said_of.format(names).replace("pairs", "pairs" if len(lines) > 1 else "pair"), lines)


def _copy(tree: TreeDiff, name: str) -> str:
    return f"the same as {tree.copies[name]} in the first" if name in tree.copies else ""
