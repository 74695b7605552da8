"""``datacheck fix``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from datacheck.cli.say import say
from datacheck.cli.scan import root_option


@click.command("fix")
@click.argument("code")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Path(path_type=Path), required=True, metavar="DIR", help="A new folder.")
@click.option("--schema", metavar="NAME|FILE", help="As for scan. Default: the built-in one that fits.")
@root_option
@click.option("--scale", type=float, metavar="FACTOR", help="For units: the factor, where the finding names none.")
@click.option("--link", is_flag=True, help="Hard-link the files that stay as they are, in place of copying them.")
def fix(
    code: str, data: Path, target: Path, schema: str | None, roots: dict[str, Path], scale: float | None, link: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    """Write a copy of DATA in which what rule CODE finds is repaired; nothing is ever changed in place.

    Safe repairs exist for units (DC201, DC202), lists (DC105), JSON lines (DC701) and statistics (DC228).
    """
    from datacheck.fix import fix as repaired
    from datacheck.report.progress import progress_bar
    from datacheck.rules.base import counted
    from datacheck.scan import Request, paths_of, run_scan, schema_for

    chosen = schema_for(data, schema)
    command = shlex.join(["datacheck", *sys.argv[1:]])
    with progress_bar() as progress:
        run = run_scan(chosen, Request(data, roots, command=command, paths=paths_of(chosen, schema)), progress)
    made = repaired(run, chosen, code.upper(), target, scale=scale, link=link, paths=paths_of(chosen, schema))
    for path in made.changed[:20]:
        say(f"repaired {path}")
    if len(made.changed) > 20:
        say(f"... and {len(made.changed) - 20:,} more")
    for path in made.left[:20]:
        say(f"left as it was: {path} ({code.upper()} still fails once it is repaired, or another rule then does)")
    if len(made.left) > 20:
        say(f"... and {len(made.left) - 20:,} more left as they were")
    for path in made.dropped[:20]:
        say(f"left out {path}: not a regular file (a device, a socket or a pipe)")
    if len(made.dropped) > 20:
        say(f"... and {len(made.dropped) - 20:,} more")
    files = counted(len(made.changed), "file")
    look = shlex.join(["datacheck", "scan", str(target), *(["--schema", schema] if schema else [])])
    say(f"{target}: {files} repaired, {made.copied:,} as they were. Look: {look}")
    if made.left:
        sys.exit(1)
