"""The pages of the documentation as a test reads them: blocks of code, and what each page says about running them.

A block is run where nothing else is said. What is said stands in a comment of the page, which no reader sees:

    <!-- run by tests/torch/test_systems.py -->      another test runs it
    <!-- not run: needs a GPU -->                    nothing does, and why
    <!-- alone -->                                   run, in a process of its own: it changes the process that runs it
    <!-- file: my.yaml -->                           written into the working folder, for what comes behind
    <!-- shown by: datacheck diff A B -->            what this command prints (`cat FILE`: a file); `(exit 7)` behind
    <!-- page run by ... -->, <!-- page not run: ... -->    at the top: of every block that says nothing itself
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

MARK = re.compile(r"<!-- (page )?(run by|not run:|alone|file:|shown by:) ?(.*?) ?-->")
COMMAND = ("datacheck ", "$ ")


@dataclass(frozen=True)
class Block:
    """One block of code.

    Args:
        line: of the page, from 1 on.
        kind: the language behind the fence; of an indented block "".
        mark, said: what the page says of it ("run by", "not run:", ...) and behind that; "" where it says nothing.
    """

    page: str
    line: int
    kind: str
    text: str
    mark: str = ""
    said: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.mark not in {"run by", "not run:"}

    @property
    def how(self) -> str:
        """How it is run: `file`, `shown`, `python`, `yaml`, `json`, `commands`; "" where nothing here knows how."""
        first = self.text.lstrip("\n").partition("\n")[0]
        if self.mark in {"file:", "shown by:"}:
            return self.mark.split()[0].rstrip(":")
        if self.kind in {"python", "yaml", "json"}:
            return self.kind
        if first.startswith(COMMAND):
            return "commands"
        return "python" if first.startswith(("from ", "import ")) and not self.kind else ""


def blocks(repository: Path, page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    found: list[Block] = []
    marks: list[re.Match[str]] = []
    whole: tuple[str, str] = ("", "")
    for token in MarkdownIt("commonmark").parse((repository / page).read_text(encoding="utf-8")):
        if token.type == "html_block":
            marks += MARK.finditer(token.content)
            whole = next(((m[2], m[3]) for m in marks if m[1]), whole)
        elif token.type in {"fence", "code_block"}:
            mark, said = next(((m[2], m[3]) for m in marks if not m[1]), whole)
            line = (token.map or [0])[0] + 1
            found.append(Block(page, line, token.info.strip(), token.content, mark, said))
        if token.type != "html_block":
            marks = []
    return found


def pages(repository: Path) -> list[str]:
    """Return every page that people read, but those of single rules: they are docstrings, whose examples tests run."""
    some = [
        repository / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
    ]
    more = [
        path
        for folder in ("schemas", "pipelines", "docs")
        for path in (repository / folder).rglob("*.md")
    ]
    names = [path.relative_to(repository).as_posix() for path in [*some, *sorted(more)]]
    return [name for name in names if not re.fullmatch(r"docs/rules/DC\d+\.md", name)]
