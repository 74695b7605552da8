"""Build a rule's page from its docstring: Markdown for the docs, text for the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from datacheck.rules.base import Rule
from datacheck.rules.overview import roles_of
from datacheck.runtime.hashing import digest_value

RULE_PAGES = ""  # base URL of the published docs/rules; not published yet
EXAMPLES = ("Bad", "Good")


@dataclass(frozen=True)
class Page:
    """A rule's page in one language.

    Args:
        identity: severity, level and what the rule needs, for the first line.
        first: the problem, in one sentence.
        sections: text by English heading, in order, one paragraph per line; examples unchanged.
        headings: the displayed heading by English heading, if not the English one.
    """

    identity: str
    first: str
    sections: Mapping[str, str]
    headings: Mapping[str, str] = field(default_factory=dict)


def first_sentence(rule: Rule) -> str:
    """Return the rule's problem, in one sentence."""
    return rule.doc.partition("\n")[0].replace("``", "`")


def sections(rule: Rule) -> dict[str, str]:
    """Return the text of each section of the page ("What", "Why it matters", ...), in order."""
    parts = re.split(r"^(\S.*?):+$", rule.doc, flags=re.MULTILINE)
    return {
        head: textwrap.dedent(body).strip("\n")
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def english(rule: Rule) -> Page:
    """Return the page in English, from the docstring."""
    docstring_sections = sections(rule)
    return Page(
        _identity(rule),
        first_sentence(rule),
        {head: _body(head, body) for head, body in docstring_sections.items()},
    )


def markdown(rule: Rule) -> str:
    """Return the page as Markdown, examples included."""
    page = english(rule)
    text = f"# {rule.code} {rule.name}\n\n{page.first}\n\n*{page.identity}*\n"
    for head, body in page.sections.items():
        block = f"```yaml\n{body}\n```" if head in EXAMPLES else body
        text += f"\n## {head}\n\n{block}\n"
    return text


def plain(rule: Rule, page: Page, width: int = 100) -> str:
    """Return a rule's page as text of at most `width` cells."""
    from datacheck.report.words import wrapped  # noqa: PLC0415  not needed for first sentences

    lines = [
        *wrapped(f"{rule.code} {rule.name}   {page.identity}", width),
        "",
        *wrapped(page.first, width),
    ]
    for head, body in page.sections.items():
        lines += ["", page.headings.get(head, head)]
        for line in body.splitlines():
            parts = [line] if head in EXAMPLES else wrapped(line, width - 2)
            lines += [f"  {part}" for part in parts]
    return "\n".join(lines) + "\n"


def _identity(rule: Rule) -> str:
    parts = [rule.severity.value, f"per {rule.level.value}"]
    if (rule_roles := roles_of(rule)) is not None:
        roles, others = rule_roles
        if 0 < len(roles) < len(others):
            parts.append(f"{'role' if len(roles) == 1 else 'roles'} {', '.join(roles)}")
        elif roles and others:
            parts.append(f"any role but {', '.join(others)}")
        else:
            parts.append("any role")
    if rule.suppressed_by:
        parts.append(f"not judged on samples that fail {', '.join(rule.suppressed_by)}")
    return "; ".join(parts)


def _body(head: str, body: str) -> str:
    if head in EXAMPLES:
        return body.strip()
    text = _options(body) if head == "Options" else " ".join(body.split())
    return text.replace("``", "`")


def _options(body: str) -> str:
    """Return the options as a list, one line each; ``none`` stays unchanged."""
    lines = re.sub(r"(?<=[.)]) (?=[a-z_]+:,? )", "\n", " ".join(body.split())).splitlines()
    return "\n".join(f"- {line}" for line in lines) if lines != ["none"] else "none"


HEADINGS = {
    "What": "检查内容",
    "Why it matters": "为何重要",
    "Measure": "测量方法",
    "When it is wrong": "何时误报",
    "Options": "选项",
    "Bad": "错误示例",
    "Good": "正确示例",
    "Fix": "修复方法",
    "Reference": "参考",
}
_SEVERITIES = {"error": "错误", "warning": "警告", "info": "提示"}
_LEVELS = {"file": "文件", "sample": "样本", "group": "组", "dataset": "数据集", "pair": "样本对"}


def chinese(rule: Rule) -> Page | None:
    """Return a rule's page in Chinese; None if it has no translation, as rules of plug-ins."""
    file = resources.files("datacheck.rules") / "zh" / f"{rule.code}.md"
    if not file.is_file():
        return None
    head, *parts = re.split(r"^## (.+)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chinese_sections = {
        heading: body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
    texts = {
        name: body if name in EXAMPLES else chinese_sections[HEADINGS[name]]
        for name, body in english(rule).sections.items()
    }
    return Page(_chinese_identity(rule), head.strip().splitlines()[-1], texts, HEADINGS)


def english_digest(rule: Rule) -> str:
    """Return the digest of the English page without its examples: 16 hex digits.

    The Chinese page names this digest of the text it translates.

    Notes:
        Line breaks of a docstring make no difference.
    """
    page = english(rule)
    hashed_sections = {head: body for head, body in page.sections.items() if head not in EXAMPLES}
    return digest_value([rule.name, page.first, list(hashed_sections.items())])[:16]


def _chinese_identity(rule: Rule) -> str:
    parts = [_SEVERITIES[rule.severity.value], f"按{_LEVELS[rule.level.value]}判断"]
    if (rule_roles := roles_of(rule)) is not None:
        roles, others = rule_roles
        if 0 < len(roles) < len(others):
            parts.append(f"针对 role 为 {'、'.join(roles)} 的字段")
        elif roles and others:
            parts.append(f"针对 role 不是 {'、'.join(others)} 的字段")
        else:
            parts.append("针对任意 role 的字段")
    if rule.suppressed_by:
        parts.append(f"未通过 {'、'.join(rule.suppressed_by)} 的样本不作判断")
    return "；".join(parts)
