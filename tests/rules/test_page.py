"""docs/rules.md says what the rules say."""

import runpy


def test_the_page_of_the_rules_is_up_to_date(repository):
    made = runpy.run_path(str(repository / "scripts" / "make_rules.py"))
    said = (repository / "docs" / "rules.md").read_text(encoding="utf-8")
    assert said == made["page"](), "run python scripts/make_rules.py"


def test_every_option_of_every_rule_is_on_it(repository):
    from datacheck.rules import catalogue

    sections = (repository / "docs" / "rules.md").read_text(encoding="utf-8").split("\n## ")[1:]
    pages = dict(zip((text[:5] for text in sections), sections, strict=True))
    assert sorted(pages) == sorted(catalogue())
    for code, rule in catalogue().items():
        options = pages[code].partition("- **Options** ")[2]
        assert all(f"{name}:" in options for name in rule.defaults), code
