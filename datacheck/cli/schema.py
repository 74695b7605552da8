"""``datacheck init`` and ``datacheck schema``: draft a schema from data, check one without data."""

from __future__ import annotations

from pathlib import Path

import click

from datacheck.cli.output import say


@click.command("init")
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("datacheck.yaml"),
    show_default=True,
    metavar="FILE",
    help="Write the draft to FILE, which must not exist.",
)
def init(data: Path, output: Path) -> None:
    """Draft a schema for DATA: file pattern, fields, roles, units and measured ranges.

    Every guess is marked with '# inferred'.
    """
    from datacheck.errors import UsageError
    from datacheck.infer.draft import draft
    from datacheck.infer.suggest import typed
    from datacheck.rules.base import pluralize
    from datacheck.runtime import fsops

    if output.exists() or output.is_symlink():
        msg = f"{output}: exists, and is not overwritten. Name another file: --output FILE."
        raise UsageError(msg)
    schema_draft = draft(data)
    fsops.write_file(output, schema_draft.text.encode(), mode=0o666)
    say(*schema_draft.text.removesuffix("\n").split("\n"))
    say(
        f"{output}: {pluralize(schema_draft.fields, 'field')} drafted. Check every line marked "
        f"'# inferred', correct it, then: "
        f"datacheck scan {typed(data)} --schema {typed(output)}",
        err=True,
    )


@click.group("schema")
def schema() -> None:
    """Check a schema file."""


@schema.command(short_help="Check a schema file and locate its mistakes.")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check the schema FILE.

    Each mistake is reported with its line, the allowed values and the likely correction.
    """
    from datacheck.model.finding import Verdict
    from datacheck.rules import rules_for
    from datacheck.rules.base import pluralize
    from datacheck.rules.selection import choose_rules
    from datacheck.scan import schema_for

    file_schema = schema_for(file, file)
    choices = choose_rules(file_schema, rules_for(file_schema))
    running = sum(choice.verdict is None for choice in choices)
    off = ", ".join(choice.rule.code for choice in choices if choice.verdict is Verdict.OFF)
    fields = pluralize(len(file_schema.fields), "field")
    say(
        f"{file}: schema {file_schema.name} is well formed: {fields}, "
        f"{running} of {len(choices)} rules run{', off: ' + off if off else ''} "
        f"(datacheck rules --schema {file} lists them)"
    )
