"""Every command and example of the README and the docs is run, or says why not."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.docs.pages import blocks, pages
from tests.docs.run import Runner, compare
from tests.docs.stages import RecordedRuns, stage

EVERY = {page: blocks(REPOSITORY, page) for page in pages(REPOSITORY)}
RUN = [page for page, found in EVERY.items() if any(block.runs for block in found)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, forked_python):
    return RecordedRuns(tmp_path_factory.mktemp("recorded"), forked_python)


@pytest.mark.parametrize("page", RUN)
def test_what_a_page_shows_is_what_happens(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "NO_COLOR", "COLUMNS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    runner = Runner(*stage(page, request))
    for block in EVERY[page]:
        if block.runs:
            try:
                runner.run(block)
            except Exception as error:
                error.add_note(f"in {block.place}")
                raise


def test_no_block_is_neither_run_nor_marked():
    assert [
        block.place for found in EVERY.values() for block in found if block.runs and not block.how
    ] == []


def test_whatever_another_test_runs_is_read_by_that_test():
    for block in (block for found in EVERY.values() for block in found if block.mark == "run by"):
        test = REPOSITORY / block.said
        assert test.is_file(), f"{block.place}: there is no {block.said}"
        assert Path(block.page).name in test.read_text(encoding="utf-8"), (
            f"{block.said} does not read {block.page}"
        )


def test_whatever_is_not_run_says_why_and_can_be_read_by_a_machine_at_least():
    for block in (block for found in EVERY.values() for block in found if block.mark == "not run:"):
        assert len(block.said.split()) >= 3, block.place
        if block.kind == "python":
            ast.parse(block.text)
        if block.kind == "yaml":
            assert list(yaml.safe_load_all(block.text))


def test_most_blocks_are_run():
    """Benchmarks apart, whose blocks are the figures of a machine."""
    counts = Counter(
        b.mark == "not run:"
        for page, found in EVERY.items()
        for b in found
        if "benchmarks" not in page
    )
    assert counts[True] < counts[False] / 3


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("FAIL 2 of 3", "FAIL  2 of 4"),
        ("a\nb", "a\nc\nb"),
        ("a\n...\nc", "a\nb"),
        ("3 samples\n", "13 samples\n"),
    ],
)
def test_output_that_differs_is_seen(shown, said):
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        compare(shown, said, "page.md:1")


@pytest.mark.parametrize(
    ("shown", "said"), [("a\n...\nc", "x\na\nb\nb\nc\nd"), ("took 0.3 s", "took 12 s")]
)
def test_what_no_two_runs_have_in_common_is_let_pass(shown, said):
    compare(shown, said, "page.md:1")


def test_a_block_without_a_mark_and_without_a_command_is_seen(tmp_path):
    (tmp_path / "page.md").write_text(
        "Text\n\n    some figure\n\n<!-- not run: a figure of ours -->\n\n    another\n"
    )
    first, second = blocks(tmp_path, "page.md")
    assert (first.how, first.runs, second.runs) == ("", True, False)
