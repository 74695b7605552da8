"""A rule's page in Chinese, from its file in datacheck/rules/zh; the examples come from the docstring."""

from __future__ import annotations

import re
from importlib import resources

from datacheck.digest import digest_value
from datacheck.report.pages import EXAMPLES, Page, english
from datacheck.rules.base import Rule
from datacheck.scan.overview import roles_of

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
    """Return a rule's page in Chinese, None where there is none: rules of plug-ins have their own page alone."""
    file = resources.files("datacheck.rules") / "zh" / f"{rule.code}.md"
    if not file.is_file():
        return None
    head, *parts = re.split(r"^## (.+)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    said = {heading: body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)}
    texts = {name: body if name in EXAMPLES else said[HEADINGS[name]] for name, body in english(rule).sections.items()}
    return Page(_identity(rule), head.strip().splitlines()[-1], texts, HEADINGS)


def made_from(rule: Rule) -> str:
    """Return the digest of the English page without its examples, as the Chinese one names it: 16 digits.

    Notes:
        Where lines of a docstring end makes no difference.
    """
    page = english(rule)
    told = {head: body for head, body in page.sections.items() if head not in EXAMPLES}
    return digest_value([rule.name, page.first, list(told.items())])[:16]


def _identity(rule: Rule) -> str:
    said = [_SEVERITIES[rule.severity.value], f"按{_LEVELS[rule.level.value]}判断"]
    if (known := roles_of(rule)) is not None:
        roles, others = known
        most = f"针对 role 不是 {'、'.join(others)} 的字段" if roles and others else "针对任意 role 的字段"
        said.append(f"针对 role 为 {'、'.join(roles)} 的字段" if 0 < len(roles) < len(others) else most)
    if rule.needs:
        said.append(f"未通过 {'、'.join(rule.needs)} 的样本不作判断")
    return "；".join(said)
