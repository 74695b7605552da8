"""Run the blocks of a page in its working folder, and hold what they print against what the page shows."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from datacheck.cli import main as cli
from datacheck.pipelinefile import load_pipeline
from datacheck.schema.load import load_schema
from tests.docs.pages import Block

# 1 is an answer of these
FINDINGS = {"scan", "report", "rescore", "diff", "repro", "cache diff", "cache explain-key"}
CHANGING = [  # what no two runs have in common
    (re.compile(r"\d{8}T\d{6}Z-(\w+)-[0-9a-f]{8}"), r"TIME-\1"),
    (re.compile(r"\b[\d.,]+ (ms|s|min)\b"), "SECONDS"),
    # Of a cache: each change of a rule or a transform gives another one
    (re.compile(r"\b[0-9a-f]{16}\b"), "KEY"),
]


class Runner:
    """What the blocks of one page share: the working folder is the current one, Python names are kept.

    Args:
        words: what stands for the page's placeholders, `DATA` and the like; several texts: one
            command for each.
        names: what Python code of the page may use.
    """

    def __init__(self, words: dict[str, str | tuple[str, ...]], names: dict[str, Any]) -> None:
        self.words = words
        self.names = {"__name__": "page", **names}

    def run(self, block: Block) -> None:
        """Run one block; AssertionError, or its own exception, where it is not as the page says."""
        text = block.text
        if block.mark == "alone":
            self._alone(block)
        elif block.how == "file":
            Path(block.said).parent.mkdir(parents=True, exist_ok=True)
            Path(block.said).write_text(text, encoding="utf-8")
        elif block.how == "shown":
            compare(text, self._printed(block.said), block.place)
        elif block.how == "python":
            self._python(text, block)
        elif block.how == "yaml":
            load_yaml(text)
        elif block.how == "json":
            json.loads(text)
        else:
            self._commands(block)

    def _python(self, text: str, block: Block) -> None:
        (code,) = self._filled(text)
        exec(compile("\n" * (block.line - 1) + code, block.page, "exec"), self.names)

    def _typed(self, line: str, block: Block) -> str:
        (code,) = self._filled(line)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(code, block.place, "single"), self.names)
        return said.getvalue()

    def _alone(self, block: Block) -> None:
        (code,) = self._filled(block.text)
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, f"{block.place}: {run.stderr}"

    def _commands(self, block: Block) -> None:
        for line, shown in commands(block.text):
            if line.startswith(">>> "):
                compare(shown or "...", self._typed(line[4:], block), block.place)
            elif line != "python":
                said = self._printed(line)
                if shown:
                    compare(shown, said, block.place)

    def _printed(self, line: str) -> str:
        return "".join(self._one(one) for one in self._filled(line))

    def _one(self, line: str) -> str:
        line, _, code_said = line.removesuffix(")").partition(" (exit ")
        line, _, file = line.partition(" > ")
        program, *args = shlex.split(line)
        if program == "cat":
            return "".join(Path(name).read_text(encoding="utf-8") for name in args)
        assert program == "datacheck", line
        code, said = called(args)
        asked = args[0] in FINDINGS or " ".join(args[:2]) in FINDINGS
        assert code in ({int(code_said)} if code_said else {0, 1} if asked else {0}), (
            f"{line}: exit {code}\n{said}"
        )
        if file:
            Path(file).write_text(said, encoding="utf-8")
        return said

    def _filled(self, text: str) -> list[str]:
        """Return the text with words in the place of its placeholders, once for each choice."""
        found = [text]
        for name, value in self.words.items():
            pattern = re.compile(
                rf"(?<![\w/.]){re.escape(name)}(?!\w)" if name.isupper() else re.escape(name)
            )
            choices = value if isinstance(value, tuple) else (value,)
            hit = any(pattern.search(one) for one in found)
            found = [
                pattern.sub(lambda _, c=c: c, one)
                for one in found
                for c in (choices if hit else choices[:1])
            ]
        return found


def called(args: list[str]) -> tuple[int, str]:
    """Run the command line in this process; return exit code and what it and its children printed."""
    before, sys.argv = sys.argv, ["datacheck", *args]
    try:
        with tempfile.TemporaryFile(
            "w+", encoding="utf-8"
        ) as out:  # has a number, which children are given
            # a line of progress comes each 30 s: on a busy machine it would stand among what a page shows
            quiet = mock.patch("datacheck.report.progress._LINE_S", math.inf)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), quiet:
                code = cli.run()
            out.flush()
            out.seek(0)
            return code, out.read()
    finally:
        sys.argv = before


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with the output below it; of a list of commands what stands behind is left out."""
    if "$ " not in text[:2]:
        for line in text.splitlines():
            for one in re.split(r"\s{2,}(?=datacheck )", line):
                if command := re.split(r"\s{2,}|\s+# ", one.strip())[0]:
                    yield command, ""
        return
    for part in re.split(r"^(?=\$ |>>> )", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield re.split(r"\s{2,}# ", line.removeprefix("$ "))[0], shown.strip("\n")


def compare(shown: str, said: str, place: str) -> None:
    """Hold printed lines against those of a page, where a line of `...` stands for any lines."""
    wanted, found = (
        [_same(line) for line in text.strip("\n").splitlines()] for text in (shown, said)
    )
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in wanted
    )
    assert re.search(f"^{pattern}", "\n".join([*found, ""]), re.MULTILINE), (
        f"{place}: it prints\n{said}"
    )


def _same(line: str) -> str:
    for pattern, text in CHANGING:
        line = pattern.sub(text, line)
    return re.sub(r"\s+", " ", line).strip()


def load_yaml(text: str) -> None:
    """Load a schema or a pipeline as the command line would; other documents only have to be YAML."""
    documents = list(yaml.safe_load_all(text))
    if not isinstance(documents[0], dict) or "datacheck" not in documents[0]:
        return
    path = Path("page.yaml")
    path.write_text(text, encoding="utf-8")
    (load_pipeline if "schema" in documents[0] else load_schema)(path)
