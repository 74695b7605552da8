"""The page of every rule is a test: its Bad block raises it and nothing else, its Good block raises nothing."""

import re
from pathlib import Path

import numpy as np
import pytest

import datacheck.rules
from datacheck.model.finding import Severity
from datacheck.model.table import Table
from datacheck.rules import catalogue
from datacheck.rules.base import Info, RuleContext, Skip
from datacheck.rules.measures import in_form, is_listed
from datacheck.schema.model import FieldSpec
from tests.rules.harness import codes, scan, schema_of

FAMILIES = {  # module of rules: the first digits of their codes
    "files": {"10", "11"},
    "counts": {"10", "11"},
    "structure": {"12"},
    "clouds": {"12", "22"},
    "columns": {"13", "23"},
    "sequences": {"23"},
    "units": {"20"},
    "images": {"20", "30", "31"},
    "motion": {"20", "50", "60"},
    "numbers": {"22"},
    "statistics": {"22", "51"},
    "rotations": {"30", "31"},
    "cameras": {"30", "31"},
    "frames": {"30", "60"},
    "annotations": {"40"},
    "boxes": {"40", "41"},
    "instances": {"40", "41"},
    "labels": {"40", "41"},
    "episodes": {"50"},
    "robots": {"52"},
    "streams": {"50", "51"},
    "lerobot": {"11", "51"},
    "policies": {"51"},
    "videos": {"51"},
    "joints": {"60"},
    "writing": {"70", "71"},
    "tokens": {"70", "71"},
    "conversations": {"70", "71"},
    "tags": {"71"},
    "tool_calls": {"71"},
    "masks": {"71"},
    "media": {"71"},
    "answers": {"71", "72"},
    "splits": {"80"},
    "drift": {"90"},
    "loaders": {"90"},
}
SECTIONS = ["What:", "Why it matters:", "Measure:", "When it is wrong:", "Options:", "Bad::", "Good::", "Fix:",
            "Reference:"]  # fmt: skip
FIRST_ISSUE = {
    "DC101", "DC105", "DC108", "DC109", "DC121", "DC122", "DC123", "DC124", "DC201", "DC202", "DC203", "DC221",
    "DC222", "DC223", "DC224", "DC227", "DC301", "DC303", "DC402", "DC404", "DC405", "DC501", "DC502", "DC504",
    "DC601", "DC602", "DC605", "DC701", "DC702", "DC801", "DC802", "DC803",
}  # fmt: skip

EVERY = pytest.mark.parametrize("code", sorted(catalogue()))


def sections(doc: str) -> dict[str, str]:
    """Return the text below each heading; a heading is a line at the margin that ends with a colon."""
    parts = re.split(r"^(\S.*:)$", doc, flags=re.MULTILINE)
    return {
        head: re.sub(r"^    ", "", body, flags=re.MULTILINE).strip("\n")
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_catalogue_holds_every_rule_of_the_plan():
    assert set(catalogue()) >= FIRST_ISSUE


@EVERY
@pytest.mark.parametrize("block", ["Bad::", "Good::"])
def test_what_is_measured_of_it_has_the_form_that_an_answer_must_have(code, block):
    _, table = scan(sections(catalogue()[code].doc)[block])
    assert in_form(table.columns)
    assert [name for name in table.columns if not is_listed(name) and ":lacks/" not in name] == []


@EVERY
def test_a_page_has_all_its_sections(code):
    doc = catalogue()[code].doc
    assert list(sections(doc)) == SECTIONS
    assert all(text.strip() for text in sections(doc).values())
    assert doc.split("\n", 1)[0].endswith(".")


@EVERY
def test_the_bad_block_raises_its_own_code_and_no_other(code):
    found, _ = scan(sections(catalogue()[code].doc)["Bad::"])
    assert codes(found) == [code]
    assert all(f.message.endswith(".") and f.fix for f in found.findings)
    causes = [(f.cause.explains, f.failed) for f in found.findings if f.cause is not None]
    assert all(explains is None or 0 < explains <= failed for explains, failed in causes)


@EVERY
def test_the_good_block_raises_nothing(code):
    found, _ = scan(sections(catalogue()[code].doc)["Good::"])
    assert codes(found) == []
    assert catalogue()[code].severity in set(Severity)


@EVERY
def test_the_good_block_is_really_looked_at(code):
    found, _ = scan(sections(catalogue()[code].doc)["Good::"])
    verdict = next(v for v in found.verdicts if v.code == code)
    assert (verdict.verdict, verdict.failed) == ("pass", 0)
    assert verdict.checked > 0


@EVERY
def test_a_rule_lies_in_the_file_of_its_hundreds(code):
    module = catalogue()[code].judge.__module__
    family = module.rpartition(".")[2]
    assert code[2:4] in FAMILIES[family]


@EVERY
def test_every_option_is_described_and_every_needed_code_exists(code):
    rule = catalogue()[code]
    said = sections(rule.doc)["Options:"]
    assert all(f"{name}:" in said for name in rule.defaults)
    assert set(rule.suppressed_by) <= set(catalogue())
    assert code not in rule.suppressed_by


@EVERY
def test_a_judge_that_is_given_no_rows_says_nothing(code):
    rule = catalogue()[code]
    schema = schema_of({"fields": {"x": {"role": "value"}}})
    if rule.unless(schema):
        return
    rows = Table().rows(np.zeros(0, np.int64), "x" if rule.per == "field" else "")
    case = RuleContext(schema, "x" if rule.per == "field" else "", FieldSpec(), dict(rule.defaults))
    assert [s for s in rule.judge(rows, case) if not isinstance(s, Skip | Info)] == []


def test_fields_that_the_schema_does_not_list_are_only_asked_for_finite_numbers():
    text = """
    schema: {}
    samples:
      - {x: {box: [30, 3], size: 1500}, y: {full: [9, 4], value: 0}, z: {full: [3], value: -100}}
      - {x: {box: [30, 3]}, y: {full: [9, 4], value: 0}, z: {full: [5], value: 255}}
    """
    assert codes(scan(text)[0]) == []
    found, _ = scan(text.replace("{full: [3], value: -100}", "[.nan, 1.0]"))
    assert [(f.code, f.severity, f.fields) for f in found.findings] == [
        ("DC221", "warning", ("*",))
    ]
    assert " z" in found.findings[0].message


def test_rules_reach_neither_files_nor_caches(repository):
    for path in sorted(Path(datacheck.rules.__file__).parent.rglob("*.py")):
        assert not re.search(r"datacheck\.(formats|sources|cache|scan|build)", path.read_text()), (
            path
        )
