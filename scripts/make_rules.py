"""Write docs/rules.md: the page of every rule, as its docstring says it, without the examples that are its tests."""

import re
from pathlib import Path

from datacheck.rules import catalogue
from datacheck.rules.base import Rule

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
HEAD = """# Rules

Written by `python scripts/make_rules.py` from the rules themselves. A schema sets severity, `allow`, `ignore` and the
options of a rule under `rules:`, see [schemas/README.md](../schemas/README.md#rules). `result.json` names all options
in force.

| code | name | severity | what is wrong |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the text of docs/rules.md."""
    rules = list(catalogue().values())
    rows = [f"| [{r.code}](#{r.code.lower()}-{r.name}) | {r.name} | {r.severity.value} | {_first(r)} |" for r in rules]
    return HEAD + "\n".join(rows) + "\n" + "".join(map(_entry, rules))


def _first(rule: Rule) -> str:
    return rule.doc.partition("\n")[0]


def _entry(rule: Rule) -> str:
    parts = re.split(r"^(\S.*?):+$", rule.doc, flags=re.MULTILINE)
    said = {head: body for head, body in zip(parts[1::2], parts[2::2], strict=True) if head not in {"Bad", "Good"}}
    lines = [f"- **{head}** {text}" for head, body in said.items() if (text := " ".join(body.split())) != "none"]
    hidden = f" Not judged on samples that fail {', '.join(rule.needs)}." if rule.needs else ""
    text = f"\n## {rule.code} {rule.name}\n\n{_first(rule)}{hidden}\n\n" + "\n".join(lines) + "\n"
    return text.replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
