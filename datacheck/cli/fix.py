"""``datacheck fix``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from datacheck.cli.say import say
from datacheck.cli.scan import root_option


@click.command("fix")
@click.argument("code")
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A new folder.",
)
@click.option(
    "--schema", metavar="NAME|FILE", help="As for scan. Default: the built-in one that fits."
)
@root_option
@click.option(
    "--scale",
    type=float,
    metavar="FACTOR",
    help="For units: the factor, where the finding names none.",
)
@click.option(
    "--link",
    is_flag=True,
    help="Hard-link the files that stay as they are, in place of copying them.",
)
@click.pass_context
def fix(
    ctx: click.Context,
    /,
    code: str,
    data: Path,
    target: Path,
    schema: str | None,
    roots: dict[str, Path],
    scale: float | None,
    link: bool,  # noqa: FBT001
) -> None:
    """Write a copy of DATA in which what rule CODE finds is repaired; nothing is ever changed in place.

    Safe repairs exist for units (DC201, DC202), lists (DC105), JSON lines (DC701) and statistics
    (DC228).
    """
    from datacheck.fix import fix as repaired
    from datacheck.report.progress import progress_bar
    from datacheck.rules.base import pluralize
    from datacheck.scan import Request, paths_of, run_scan, schema_for

    code, chosen = code.upper(), schema_for(data, schema)
    command = shlex.join(["datacheck", *sys.argv[1:]])
    with progress_bar() as progress:
        paths = paths_of(chosen, schema)
        run = run_scan(chosen, Request(data, roots, command=command, paths=paths), progress)
        result = repaired(
            run, chosen, code, target, scale=scale, link=link, paths=paths, progress=progress
        )
    _list("repaired", result.changed)
    _list("left as they were:", result.unclear)
    _list(
        "left as it was:",
        result.left,
        f" ({code} still fails once it is repaired, or another rule then does)",
    )
    _list("warning: left out of the copy:", [f"{path}: {why}" for path, why in result.dropped])
    files = pluralize(len(result.changed), "file")
    left_out = f", {pluralize(len(result.dropped), 'name')} left out" if result.dropped else ""
    look = shlex.join(["datacheck", "scan", str(target), *(["--schema", schema] if schema else [])])
    say(f"{target}: {files} repaired, {result.copied:,} as they were{left_out}. Look: {look}")
    if result.left or result.unclear:
        ctx.exit(1)


def _list(head: str, names: Sequence[str], why: str = "") -> None:
    """Print the first 20 names, and the number of further ones."""
    for name in names[:20]:
        say(f"{head} {name}{why}")
    if len(names) > 20:
        say(f"... and {len(names) - 20:,} more")
