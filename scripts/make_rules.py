"""Write docs/rules/: a page for every rule, as its docstring says it, and a table of all of them."""

from pathlib import Path

from datacheck.report.rule_pages import first_sentence, markdown
from datacheck.rules import catalogue

FOLDER = Path(__file__).parents[1] / "docs" / "rules"
HEAD = """# Rules

`python scripts/make_rules.py` writes these pages from the code of the rules.

- `datacheck explain DC201` prints a page, `datacheck explain DC201 --lang zh` the \
[Chinese page](../../datacheck/rules/zh), `datacheck rules` the table.
- A schema sets the severity, `allow`, `ignore` and the options of a rule under `rules:`, see \
[schemas/README.md](../../schemas/README.md#rules). `result.json` lists all options of the run.
- The examples are tests: a *Bad* example raises its own rule and no other, a *Good* example \
raises nothing.
- The examples describe samples in a short notation: `{box: [50, 3], size: 1.5}` is a cloud of \
50 points with a size of 1.5, `n: 8` repeats a sample.

| code | name | severity | per | what is wrong |
| --- | --- | --- | --- | --- |
"""


def pages() -> dict[str, str]:
    """Return the files of docs/rules by name."""
    rules = list(catalogue().values())
    rows = [
        f"| [{r.code}]({r.code}.md) | {r.name} | {r.severity.value} | {r.level.value} | "
        f"{first_sentence(r)} |\n"
        for r in rules
    ]
    return {"README.md": HEAD + "".join(rows)} | {f"{r.code}.md": markdown(r) for r in rules}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
