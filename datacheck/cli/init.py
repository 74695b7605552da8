"""``datacheck init``."""

from __future__ import annotations

from pathlib import Path

import click

from datacheck.cli.say import say


@click.command("init")
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("datacheck.yaml"),
    show_default=True,
    metavar="FILE",
    help="Where the draft goes; a file that exists is never overwritten.",
)
def init(data: Path, output: Path) -> None:
    """Draft a schema for DATA: file pattern, fields, roles, units, measured ranges. Every guess is marked."""
    from datacheck.errors import UsageError
    from datacheck.infer.draft import draft
    from datacheck.rules.base import pluralize
    from datacheck.runtime import fsops
    from datacheck.scan.suggest import typed

    if output.exists() or output.is_symlink():
        msg = f"{output}: exists, and is not overwritten. Name another file: --output FILE."
        raise UsageError(msg)
    schema_draft = draft(data)
    fsops.write_file(output, schema_draft.text.encode(), mode=0o666)
    say(*schema_draft.text.removesuffix("\n").split("\n"))
    say(
        f"{output}: {pluralize(schema_draft.fields, 'field')} drafted. Read every line marked '# "
        f"inferred', mend it, then: "
        f"datacheck scan {typed(data)} --schema {typed(output)}",
        err=True,
    )
