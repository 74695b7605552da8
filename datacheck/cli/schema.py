"""``datacheck schema``: check a schema file without data."""

from __future__ import annotations

from pathlib import Path

import click

from datacheck.cli.say import say


@click.group("schema")
def schema() -> None:
    """Check a schema file."""


@schema.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check FILE: every fault with its line, what is allowed there, and what was probably meant."""
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
        f"{file}: schema {file_schema.name} is well formed: {fields}, {running} of {len(choices)} rules "
        f"run"
        f"{', off: ' + off if off else ''} (datacheck rules --schema {file} lists them)"
    )
