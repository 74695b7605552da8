"""The Chinese pages say what the English ones say, and cannot fall behind them."""

import re
from collections import Counter
from dataclasses import replace
from importlib import resources

import pytest
from rich.cells import cell_len

from datacheck.report.rule_pages import EXAMPLES, HEADINGS, chinese, english, english_digest, plain
from datacheck.rules import catalogue

FOLDER = resources.files("datacheck.rules") / "zh"
EACH = pytest.mark.parametrize("rule", [pytest.param(r, id=r.code) for r in catalogue().values()])
UNIT = r"(?: ?(?:%|kB|MB|MiB|mm|cm|m|ms|rad/s|rad|Hz)(?![A-Za-z/]))?"
NUMBER = re.compile(rf"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e\d+)?{UNIT}")


def facts(text, *, options=False):
    """What a translation may not change: codes, code in backticks, numbers with units, names of options."""
    found = set(re.findall(r"`[^`]+`", text)) | set(re.findall(r"DC\d+", text))
    found |= {number.rstrip(",").strip() for number in NUMBER.findall(text)}
    if options:
        heads = re.findall(r"^- ([a-z_]+(?::?[,、] ?[a-z_]+)*)[:：]", text, flags=re.MULTILINE)
        found |= {f"option {name}" for head in heads for name in re.findall(r"[a-z_]+", head)}
    return found


def lost(head, original, translated):
    """The facts of a section that its translation does not have."""
    return facts(original, options=head == "Options") - facts(translated, options=head == "Options")


def written(rule):
    return (FOLDER / f"{rule.code}.md").read_text(encoding="utf-8")


def test_every_rule_has_a_page_and_no_page_is_left_behind():
    assert sorted(p.name for p in FOLDER.iterdir() if p.name != "README.md") == [
        f"{code}.md" for code in catalogue()
    ]


@EACH
def test_a_page_is_made_from_the_english_one_of_today(rule):
    _, digest, *_ = (line for line in written(rule).splitlines() if line)
    assert digest == f"<!-- english: {english_digest(rule)} -->", (
        f"{rule.code}: the English page has changed; bring datacheck/rules/zh/{rule.code}.md in "
        f"step, "
        f"then write into it <!-- english: {english_digest(rule)} -->"
    )


@EACH
def test_a_page_has_the_same_headings_in_the_same_order(rule):
    title, _, first, *rest = (line for line in written(rule).splitlines() if line)
    assert title == f"# {rule.code} {rule.name}"
    assert not first.startswith("#")
    told = [head for head in english(rule).sections if head not in EXAMPLES]
    assert [line[3:] for line in rest if line.startswith("#")] == [HEADINGS[head] for head in told]
    assert all(chinese(rule).sections.values())


@EACH
def test_a_page_has_the_codes_options_and_numbers_of_the_english_one(rule):
    page, said = english(rule), chinese(rule)
    assert lost("first", page.first, said.first) == set()
    for head, body in page.sections.items():
        assert lost(head, body, said.sections[head]) == set(), head
        assert re.search("[\u4e00-\u9fff]", said.sections[head]) or head in EXAMPLES
    names = {fact.removeprefix("option ") for fact in facts(said.sections["Options"], options=True)}
    assert set(rule.defaults) <= names


@EACH
def test_options_are_as_many_and_in_the_same_order(rule):
    original, translated = (
        page.sections["Options"].splitlines() for page in (english(rule), chinese(rule))
    )
    names = [re.match("- ([a-z_]+)", line)[1] for line in original if line != "none"]
    assert (
        translated == ["无"] or [re.match("- ([a-z_]+)", line)[1] for line in translated] == names
    )
    assert len(translated) == len(original)


def test_the_guards_see_what_a_translation_loses():
    page = english(catalogue()["DC201"])
    assert page.sections["Options"] == (
        "- rescue: share of the offenders that a factor must bring into range to be named (0.9)."
    )
    assert lost("Options", page.sections["Options"], "- rescue：某个倍数（0.9）。") == set()
    assert lost("Options", page.sections["Options"], "- share：某个倍数（0.8）。") == {
        "option rescue",
        "0.9",
    }
    said = lost(
        "What",
        "At most 20 % of DC109, 3 mm, 8,192 points of `size`.",
        "DC10 最多 20 m，81,92 点，`siz`。",
    )
    assert said == {"20 %", "DC109", "3 mm", "8,192", "`size`"}


def test_the_digest_is_of_what_is_said_and_not_of_where_lines_end():
    rule = catalogue()["DC201"]
    today = english_digest(rule)

    def told(doc):
        def judge(rows, case):
            yield from ()

        judge.__doc__ = doc
        return english_digest(replace(rule, judge=judge))

    assert told(rule.doc) == today
    assert (
        told(rule.doc.replace("``size``: diagonal of the", "``size``:\n    diagonal of the"))
        == today
    )
    assert told(rule.doc.replace("(0.9)", "(0.8)")) != today
    # An example is no part of the Chinese file
    assert told(rule.doc.replace("size: 1500", "size: 1600")) == today
    assert chinese(replace(rule, code="X201")) is None


@pytest.mark.parametrize("width", [60, 80, 110])
def test_on_the_terminal_a_page_keeps_to_its_cells_and_begins_no_line_with_closing_punctuation(
    width,
):
    for code, rule in catalogue().items():
        page = chinese(rule)
        shown = plain(rule, page, width)
        examples = [line.strip() for head in EXAMPLES for line in page.sections[head].splitlines()]
        assert shown.startswith(f"{code} {rule.name}   ")
        heads = [line for line in shown.splitlines() if line in HEADINGS.values()]
        assert heads == [HEADINGS[head] for head in english(rule).sections]
        for line in shown.splitlines():
            assert cell_len(line) <= width or line.strip() in examples, code
            assert line.strip()[:1] not in {*"，。、；：？！）》」』”"}, code


def test_the_first_line_names_severity_level_roles_and_needs():
    rule = catalogue()["DC201"]
    said = "错误；按样本判断；针对 role 为 joints、points、pose、position 的字段；"
    assert (
        chinese(rule).identity == said + "未通过 DC109、DC122、DC125、DC221、DC222 的样本不作判断"
    )
    kinds = Counter(chinese(r).identity.partition("；")[0] for r in catalogue().values())
    severities = Counter(r.severity.value for r in catalogue().values())
    assert kinds == Counter(
        {"错误": severities["error"], "警告": severities["warning"], "提示": severities["info"]}
    )
