"""``datacheck explain`` and ``datacheck rules``: what the rules are, and what a schema makes of them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.scan.overview import Entry


def _width() -> int:
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))


@click.command("explain")
@click.argument("rule")
def explain(rule: str) -> None:
    """Say what RULE (DC201, or its name length-unit) checks, why it matters, when it is wrong and what to do."""
    from datacheck.report.pages import plain
    from datacheck.rules import catalogue

    known = catalogue()
    found = [r for r in known.values() if rule.lower() in {r.code.lower(), r.name}]
    if not found:
        msg = f"no rule is called {rule!r}{_meant(rule) or '.'} datacheck rules lists all {len(known)}."
        raise UsageError(msg)
    click.echo(plain(found[0], _width()), nl=False)


def _meant(word: str) -> str:
    from datacheck.rules import catalogue
    from datacheck.schema.values import meant

    return meant(word, [name for r in catalogue().values() for name in (r.code, r.name)])


@click.command("rules")
@click.option("--family", metavar="NAME|HUNDREDS", help="Only one family: units, frames ... or DC2, DC30.")
@click.option("--role", metavar="ROLE", help="Only rules that look at fields of this role.")
@click.option("--schema", metavar="NAME|FILE", help="Say of each rule whether it runs under this schema, or why not.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(family: str | None, role: str | None, schema: str | None, form: str) -> None:
    """List the rules: code, severity, name, what is wrong."""
    from pathlib import Path

    from datacheck.scan import schema_for
    from datacheck.scan.overview import entries

    found = entries(family, role, None if schema is None else schema_for(Path(schema), schema))
    if form == "json":
        click.echo(_json(found))
        return
    for entry in found:
        click.echo("\n".join(_lines(entry, _width())))
    click.echo(f"\n{len(found)} rules; datacheck explain CODE says more.")


def _lines(entry: Entry, width: int) -> list[str]:
    from datacheck.report.pages import first_sentence

    rule = entry.rule
    deep = "" if entry.depth == "numeric" else f" [{entry.depth}]"
    head = f"{rule.code}  {rule.severity.value:<7}  {rule.name:<26}  "
    what = textwrap.shorten(first_sentence(rule) + deep, max(20, width - len(head)), placeholder=" …")
    runs = textwrap.wrap(entry.runs, width, initial_indent=" " * 16, subsequent_indent=" " * 18)
    return [head + what, *runs]


def _json(found: Sequence[Entry]) -> str:
    import json

    return json.dumps([entry.as_dict() for entry in found], indent=2, ensure_ascii=False)
