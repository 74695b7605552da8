"""A rule's page, from its docstring: as Markdown for the docs, as text for the terminal."""

from __future__ import annotations

import re
import textwrap

from datacheck.rules.base import Rule

_EXAMPLES = ("Bad", "Good")


def first_sentence(rule: Rule) -> str:
    """Return what is wrong, in one sentence."""
    return rule.doc.partition("\n")[0].replace("``", "`")


def sections(rule: Rule) -> dict[str, str]:
    """Return the text below each heading of the page ("What", "Why it matters", ...), in order."""
    parts = re.split(r"^(\S.*?):+$", rule.doc, flags=re.MULTILINE)
    return {head: textwrap.dedent(body).strip("\n") for head, body in zip(parts[1::2], parts[2::2], strict=True)}


def _identity(rule: Rule) -> str:
    said = [rule.severity.value, f"per {rule.level.value}"]
    if rule.needs:
        said.append(f"not judged on samples that fail {', '.join(rule.needs)}")
    return "; ".join(said)


def markdown(rule: Rule) -> str:
    """Return the page as Markdown, examples included."""
    text = f"# {rule.code} {rule.name}\n\n{first_sentence(rule)}\n\n*{_identity(rule)}*\n"
    for head, body in sections(rule).items():
        if head in _EXAMPLES:
            text += f"\n## {head}\n\n```yaml\n{body.strip()}\n```\n"
        else:
            text += f"\n## {head}\n\n{_options(body) if head == 'Options' else ' '.join(body.split())}\n".replace(
                "``", "`"
            )
    return text


def _options(body: str) -> str:
    """Return the options as a list, one line each; ``none`` as it is."""
    lines = re.sub(r"(?<=[.)]) (?=[a-z_]+: )", "\n", " ".join(body.split())).splitlines()
    return "\n".join(f"- {line}" for line in lines) if lines != ["none"] else "none"


def plain(rule: Rule, width: int = 100) -> str:
    """Return the page as text of at most `width` columns."""
    lines = [f"{rule.code} {rule.name}   {_identity(rule)}", "", *textwrap.wrap(first_sentence(rule), width)]
    for head, body in sections(rule).items():
        lines += ["", head]
        if head in _EXAMPLES:
            lines += textwrap.indent(body.strip(), "  ").splitlines()
        else:
            said = _options(body) if head == "Options" else " ".join(body.split())
            for line in said.replace("``", "`").splitlines():
                lines += textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"
