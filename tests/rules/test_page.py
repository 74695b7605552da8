"""docs/rules says what the rules say."""

import runpy

from datacheck.report.rule_pages import english, plain, sections
from datacheck.rules import catalogue


def test_the_pages_of_the_rules_are_up_to_date(repository):
    made = runpy.run_path(str(repository / "scripts" / "make_rules.py"))["pages"]()
    folder = repository / "docs" / "rules"
    assert {p.name for p in folder.iterdir()} == set(made), "run python scripts/make_rules.py"
    for name, text in made.items():
        assert (folder / name).read_text(encoding="utf-8") == text, (
            f"{name}: run python scripts/make_rules.py"
        )


def test_every_option_of_every_rule_is_on_its_page():
    for code, rule in catalogue().items():
        assert all(f"{name}:" in sections(rule)["Options"] for name in rule.defaults), code


def test_a_page_on_the_terminal_keeps_to_its_width_and_says_everything():
    for code, rule in catalogue().items():
        page = plain(rule, english(rule), 80)
        examples = sections(rule)["Bad"] + sections(rule)["Good"]
        assert page.startswith(f"{code} {rule.name}")
        assert all(len(line) <= 80 or line.strip() in examples for line in page.splitlines()[1:]), (
            code
        )
        words = " ".join(page.split())
        assert all(
            text.split()[0].replace("``", "`") in words for text in sections(rule).values()
        ), code


def test_two_options_that_are_told_together_have_a_line_of_their_own():
    lines = english(catalogue()["DC306"]).sections["Options"].splitlines()
    assert [line.split(":")[0] for line in lines] == ["- off", "- narrow"]
