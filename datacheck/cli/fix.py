"""``datacheck fix``: write a copy of a dataset in which the findings of one rule are repaired."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.options import root_option, schema_option
from datacheck.cli.output import first_lines, say

if TYPE_CHECKING:
    from datacheck.fix import Repaired


@click.command("fix")
@click.argument("code")
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Write the copy to DIR, which must not exist.",
)
@schema_option
@root_option
@click.option(
    "--scale",
    type=float,
    metavar="FACTOR",
    show_default="the factor that the finding names",
    help="With units: multiply lengths by FACTOR.",
)
@click.option("--link", is_flag=True, help="Hard-link unchanged files instead of copying them.")
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
    """Write a copy of DATA in which the findings of rule CODE are repaired; DATA are never changed.

    Safe repairs exist for units (DC201, DC202), lists (DC105), JSON lines (DC701) and statistics
    (DC228). The exit code is 1 if some findings could not be repaired.
    """
    from datacheck.fix import fix as repair_copy
    from datacheck.report.progress import progress_bar
    from datacheck.scan import Request, paths_of, run_scan, schema_for

    code = code.upper()
    chosen = schema_for(data, schema)
    command = shlex.join(["datacheck", *sys.argv[1:]])
    with progress_bar() as progress:
        paths = paths_of(chosen, schema)
        run = run_scan(chosen, Request(data, roots, command=command, paths=paths), progress)
        result = repair_copy(
            run, chosen, code, target, scale=scale, link=link, paths=paths, progress=progress
        )
    say(*_result_lines(result, code, target, schema))
    if result.left or result.unclear:
        ctx.exit(1)


def _result_lines(result: Repaired, code: str, target: Path, schema: str | None) -> Iterator[str]:
    from datacheck.rules.base import pluralize

    yield from first_lines([f"repaired {path}" for path in result.changed], indent="")
    yield from first_lines([f"not repaired: {reason}" for reason in result.unclear], indent="")
    failed = f"{code} still fails after the repair, or another rule then does"
    yield from first_lines([f"not repaired: {path} ({failed})" for path in result.left], indent="")
    yield from first_lines(
        [f"warning: left out of the copy: {path}: {reason}" for path, reason in result.dropped],
        indent="",
    )
    repaired = pluralize(len(result.changed), "file")
    left_out = f", {pluralize(len(result.dropped), 'name')} left out" if result.dropped else ""
    scan = ["datacheck", "scan", str(target)]
    if schema:
        scan += ["--schema", schema]
    yield (
        f"{target}: {repaired} repaired, {result.copied:,} unchanged{left_out}. "
        f"Check it: {shlex.join(scan)}"
    )
