"""A rule's page, from its docstring: as Markdown for the docs, as text for the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from datacheck.rules.base import Rule

RULE_PAGES = ""  # the address below which docs/rules is published, as soon as it has one
EXAMPLES = ("Bad", "Good")


@dataclass(frozen=True)
class Page:
    """A rule's page in one language.

    Args:
        identity: severity, level and what the rule needs, for the first line.
        first: what is wrong, in one sentence.
        sections: text below each heading, one paragraph a line, by the English heading, in order; examples as they are.
        headings: what the page calls a heading, where it is not the English one.
    """

    identity: str
    first: str
    sections: Mapping[str, str]
    headings: Mapping[str, str] = field(default_factory=dict)


def first_sentence(rule: Rule) -> str:
    """Return what is wrong, in one sentence."""
    return rule.doc.partition("\n")[0].replace("``", "`")


def sections(rule: Rule) -> dict[str, str]:
    """Return the text below each heading of the page ("What", "Why it matters", ...), in order."""
    parts = re.split(r"^(\S.*?):+$", rule.doc, flags=re.MULTILINE)
    return {head: textwrap.dedent(body).strip("\n") for head, body in zip(parts[1::2], parts[2::2], strict=True)}


def english(rule: Rule) -> Page:
    """Return the page as the docstring has it."""
    said = sections(rule)
    return Page(_identity(rule), first_sentence(rule), {head: _body(head, body) for head, body in said.items()})


def markdown(rule: Rule) -> str:
    """Return the page as Markdown, examples included."""
    page = english(rule)
    text = f"# {rule.code} {rule.name}\n\n{page.first}\n\n*{page.identity}*\n"
    for head, body in page.sections.items():
        text += f"\n## {head}\n\n" + (f"```yaml\n{body}\n```\n" if head in EXAMPLES else f"{body}\n")
    return text


def plain(rule: Rule, page: Page, width: int = 100) -> str:
    """Return a rule's page as text of at most `width` cells."""
    from datacheck.report.wrapping import wrapped  # noqa: PLC0415  the table of rules needs first sentences alone

    lines = [*wrapped(f"{rule.code} {rule.name}   {page.identity}", width), "", *wrapped(page.first, width)]
    for head, body in page.sections.items():
        lines += ["", page.headings.get(head, head)]
        for line in body.splitlines():
            lines += [f"  {part}" for part in ([line] if head in EXAMPLES else wrapped(line, width - 2))]
    return "\n".join(lines) + "\n"


def _identity(rule: Rule) -> str:
    from datacheck.scan.overview import roles_of  # noqa: PLC0415  the table of rules needs first sentences alone

    said = [rule.severity.value, f"per {rule.level.value}"]
    if (known := roles_of(rule)) is not None:
        roles, others = known
        few = f"{'role' if len(roles) == 1 else 'roles'} {', '.join(roles)}"
        most = f"any role but {', '.join(others)}" if roles and others else "any role"
        said.append(few if 0 < len(roles) < len(others) else most)
    if rule.needs:
        said.append(f"not judged on samples that fail {', '.join(rule.needs)}")
    return "; ".join(said)


def _body(head: str, body: str) -> str:
    if head in EXAMPLES:
        return body.strip()
    return (_options(body) if head == "Options" else " ".join(body.split())).replace("``", "`")


def _options(body: str) -> str:
    """Return the options as a list, one line each; ``none`` as it is."""
    lines = re.sub(r"(?<=[.)]) (?=[a-z_]+:,? )", "\n", " ".join(body.split())).splitlines()
    return "\n".join(f"- {line}" for line in lines) if lines != ["none"] else "none"
