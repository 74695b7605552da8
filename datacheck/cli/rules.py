"""``datacheck explain`` and ``datacheck rules``: one rule's page, and the list of rules."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from datacheck.cli.options import json_option
from datacheck.cli.output import echo, say
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.rules.base import Rule
    from datacheck.rules.overview import RuleEntry


def _width() -> int:
    """Return the width of a page in cells: that of the terminal, within what reads well."""
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))


# ------------------------------------------------------------------------------------------ explain


@click.command("explain")
@click.argument("rule")
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="Print the page in English or Chinese.",
)
def explain(rule: str, lang: str) -> None:
    """Explain RULE: what it checks, why it matters, its false positives and how to fix the data.

    RULE is a code (DC201) or a name (length-unit).
    """
    from datacheck.rules import catalogue
    from datacheck.schema.grammar import suggestion

    rules_by_code = catalogue()
    for candidate in rules_by_code.values():
        if rule.lower() in {candidate.code.lower(), candidate.name}:
            _print_page(candidate, lang)
            return
    known = [name for each in rules_by_code.values() for name in (each.code, each.name)]
    hint = suggestion(rule, known) or "."
    msg = f"no rule is called {rule!r}{hint} datacheck rules lists all {len(rules_by_code)}."
    raise UsageError(msg)


def _print_page(rule: Rule, lang: str) -> None:
    """Print a rule's page, and how to get it in the other language.

    It is in English if there is no Chinese page, or if the output cannot show Chinese.
    """
    import sys

    from rich.text import Text

    from datacheck.report.rule_pages import chinese, english, plain
    from datacheck.report.words import plain as printable

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    obstacle = _obstacle_to_chinese(rule, encoding)
    if lang == "zh" and obstacle:
        echo(f"{obstacle}; this is the English one.", err=True)
    chinese_page = chinese(rule)
    if lang == "zh" and chinese_page is not None and not obstacle:
        page, words = chinese_page, _CHINESE
        other_language = f"English: datacheck explain {rule.code}"
    else:
        page, words = english(rule), _ENGLISH
        other_language = "" if obstacle else _chinese_hint(rule)
    lines = [plain(rule, page, _width()), *_command_lines(rule, words)]
    if other_language:
        lines += ["", other_language]
    echo(printable(Text("\n".join(lines)), encoding).plain)


def _obstacle_to_chinese(rule: Rule, encoding: str) -> str:
    """Return why the Chinese page cannot be shown, or an empty text."""
    from datacheck.report.rule_pages import chinese
    from datacheck.report.words import can_encode

    if not chinese(rule):
        return f"{rule.code} is a rule of a plug-in and has no Chinese page"
    if not can_encode(_chinese_hint(rule), encoding):
        return (
            f"standard output is {encoding}, which has no Chinese characters "
            f"(PYTHONIOENCODING=utf-8 has them)"
        )
    return ""


def _chinese_hint(rule: Rule) -> str:
    return f"中文: datacheck explain {rule.code} --lang zh"


class _CommandWords(NamedTuple):
    """The words around the commands of a page, in one language."""

    head: str
    fix: str
    allow: str
    ignore: str
    family: str


_ENGLISH = _CommandWords(
    "Commands",
    "a repaired copy",
    "schema: this share may fail",
    "schema: these are correct",
    "rules of this family",
)
_CHINESE = _CommandWords(
    "相关命令", "修复后的副本", "schema：允许的比例", "schema：这些没有错", "同类规则"
)


def _command_lines(rule: Rule, words: _CommandWords) -> Iterator[str]:
    """Yield the commands and schema lines that go with a rule, ready to type."""
    from datacheck.fix import repairs

    yield words.head
    if rule.code in repairs():
        yield _with_comment(f"datacheck fix {rule.code} DATA --to DIR", words.fix)
    yield _with_comment(f"rules: {{{rule.code}: {{allow: 0.5%}}}}", words.allow)
    yield _with_comment(f"rules: {{{rule.code}: {{ignore: [KEY], reason: TEXT}}}}", words.ignore)
    if rule.code.startswith("DC"):  # codes of plug-ins belong to no family
        yield _with_comment(f"datacheck rules --family {rule.code[:4]}", words.family)


def _with_comment(command: str, comment: str) -> str:
    return f"  {command:<47}# {comment}"


# -------------------------------------------------------------------------------------------- rules


@click.command("rules")
@click.option(
    "--family",
    metavar="NAME|CODE",
    help="List one family only: by name (units, frames) or by the start of its codes (DC2, DC30).",
)
@click.option("--role", metavar="ROLE", help="List only rules on fields of ROLE.")
@click.option(
    "--schema",
    metavar="NAME|FILE",
    help="Show for each rule whether it runs under this schema, and if not, why.",
)
@json_option
def rules(family: str | None, role: str | None, schema: str | None, form: str) -> None:
    """List the rules: code, severity, name and description."""
    from pathlib import Path

    from datacheck.rules.overview import rule_entries
    from datacheck.scan import schema_for

    chosen = None if schema is None else schema_for(Path(schema), schema)
    entries = rule_entries(family, role, chosen)
    if form == "json":
        from datacheck.report.words import json_of

        echo(json_of([entry.as_dict() for entry in entries]))
        return
    for entry in entries:
        say(*_entry_lines(entry, _width()))
    echo(f"\n{len(entries)} rules; datacheck explain CODE says more.")


def _entry_lines(entry: RuleEntry, width: int) -> list[str]:
    from datacheck.report.rule_pages import first_sentence
    from datacheck.report.words import wrapped

    rule = entry.rule
    depth = "" if entry.depth == "numeric" else f" [{entry.depth}]"
    head = f"{rule.code}  {rule.severity.value:<7}  {rule.name:<26}  "
    description = textwrap.shorten(
        first_sentence(rule) + depth, max(20, width - len(head)), placeholder=" …"
    )
    lines = [head + description]
    # wrapped by cells, because field names may be in any language
    for number, line in enumerate(wrapped(entry.runs, width - 18) if entry.runs else []):
        indent = " " * (16 if number == 0 else 18)
        lines.append(indent + line)
    return lines
