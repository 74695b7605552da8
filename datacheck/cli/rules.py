"""``datacheck explain`` and ``datacheck rules``: the rules, and which of them a schema runs."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from datacheck.cli.say import say
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.rules.base import Rule
    from datacheck.rules.overview import RuleEntry


def _width() -> int:
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))


@click.command("explain")
@click.argument("rule")
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="English or Chinese.",
)
def explain(rule: str, lang: str) -> None:
    """Say what RULE (DC201, or its name length-unit) checks, why it matters, when it is wrong and what to do."""
    from datacheck.rules import catalogue

    rules_by_code = catalogue()
    matches = [r for r in rules_by_code.values() if rule.lower() in {r.code.lower(), r.name}]
    if not matches:
        msg = (
            f"no rule is called {rule!r}{_suggestion(rule) or '.'} datacheck rules lists all "
            f"{len(rules_by_code)}."
        )
        raise UsageError(msg)
    _print_page(matches[0], lang)


def _print_page(rule: Rule, lang: str) -> None:
    """Print a rule's page, and how to get it in the other language.

    It is in English if there is no Chinese page, or if the output cannot show Chinese.
    """
    import sys

    from rich.text import Text

    from datacheck.report.rule_pages import chinese, english, plain
    from datacheck.report.words import can_encode
    from datacheck.report.words import plain as sayable

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    page = chinese(rule)
    hint = f"中文: datacheck explain {rule.code} --lang zh"
    why = "" if page else f"{rule.code} is a rule of a plug-in and has no Chinese page"
    if page and not can_encode(hint, encoding):
        why = (
            f"standard output is {encoding}, which has no Chinese characters "
            f"(PYTHONIOENCODING=utf-8 has them)"
        )
    chosen = "zh" if page and lang == "zh" and not why else "en"
    if lang == "zh" and why:
        click.echo(f"{why}; this is the English one.", err=True)
    hint = f"English: datacheck explain {rule.code}" if chosen == "zh" else "" if why else hint
    shown_page = page if page and chosen == "zh" else english(rule)
    text = "\n".join(
        [
            plain(rule, shown_page, _width()),
            *_command_lines(rule, chosen),
            *(["", hint] if hint else []),
        ]
    )
    click.echo(sayable(Text(text), encoding).plain)


_COMMAND_WORDS = {
    "en": (
        "To type",
        "a copy, repaired",
        "schema: this share may fail",
        "schema: these are fine",
        "rules like it",
    ),
    "zh": ("可以输入", "修复后的副本", "schema：允许的比例", "schema：这些没有错", "同类规则"),
}


def _command_lines(rule: Rule, lang: str) -> Iterator[str]:
    """Yield the commands and schema lines that go with a rule, ready to type."""
    from datacheck.fix import repairs

    head, repaired, allowed, right, others = _COMMAND_WORDS[lang]
    yield head
    if rule.code in repairs():
        yield _with_comment(f"datacheck fix {rule.code} DATA --to DIR", repaired)
    yield _with_comment(f"rules: {{{rule.code}: {{allow: 0.5%}}}}", allowed)
    yield _with_comment(f"rules: {{{rule.code}: {{ignore: [KEY], reason: TEXT}}}}", right)
    if rule.code.startswith("DC"):  # codes of plug-ins belong to no family
        yield _with_comment(f"datacheck rules --family {rule.code[:4]}", others)


def _with_comment(typed: str, note: str) -> str:
    return f"  {typed:<47}# {note}"


def _suggestion(word: str) -> str:
    from datacheck.rules import catalogue
    from datacheck.schema.grammar import suggestion

    return suggestion(word, [name for r in catalogue().values() for name in (r.code, r.name)])


@click.command("rules")
@click.option(
    "--family", metavar="NAME|HUNDREDS", help="Only one family: units, frames ... or DC2, DC30."
)
@click.option("--role", metavar="ROLE", help="Only rules that look at fields of this role.")
@click.option(
    "--schema",
    metavar="NAME|FILE",
    help="Say of each rule whether it runs under this schema, or why not.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def rules(family: str | None, role: str | None, schema: str | None, form: str) -> None:
    """List the rules: code, severity, name, what is wrong."""
    from pathlib import Path

    from datacheck.rules.overview import rule_entries
    from datacheck.scan import schema_for

    entries = rule_entries(
        family, role, None if schema is None else schema_for(Path(schema), schema)
    )
    if form == "json":
        click.echo(_json(entries))
        return
    for entry in entries:
        say(*_lines(entry, _width()))
    click.echo(f"\n{len(entries)} rules; datacheck explain CODE says more.")


def _lines(entry: RuleEntry, width: int) -> list[str]:
    from datacheck.report.rule_pages import first_sentence
    from datacheck.report.words import wrapped

    rule = entry.rule
    deep = "" if entry.depth == "numeric" else f" [{entry.depth}]"
    head = f"{rule.code}  {rule.severity.value:<7}  {rule.name:<26}  "
    description = textwrap.shorten(
        first_sentence(rule) + deep, max(20, width - len(head)), placeholder=" …"
    )
    # wrapped by cells, because field names may be in any language
    runs = wrapped(entry.runs, width - 18) if entry.runs else []
    return [
        head + description,
        *(" " * (16 if number == 0 else 18) + line for number, line in enumerate(runs)),
    ]


def _json(entries: Sequence[RuleEntry]) -> str:
    import json

    return json.dumps([entry.as_dict() for entry in entries], indent=2, ensure_ascii=False)
