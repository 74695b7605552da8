"""Workflow commands and the job's summary: read as GitHub reads them they give our words back, and no text acts."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from datacheck.report.exports.github import MAX_SUMMARY_BYTES, commands, summary
from datacheck.report.words import clean, finding_lines, finding_title
from tests.report.hostile import HOSTILE, hostile_result, leaks


def said(run):
    return json.loads(Path(run.report.folder, "result.json").read_bytes())


def runner(output):
    """What the runner of GitHub Actions makes of a step's output: (command, properties, message) of each line.

    As its ActionCommand.TryParseV2 does: lines at CR and LF, spaces before ``::`` do not count,
    properties at commas.
    """
    found = []
    for line in re.split(r"\r\n|\r|\n", output):
        parts = re.fullmatch(r"\s*::([a-z-]+)(?: (.*?))?::(.*)", line)
        if line.strip():
            assert parts, line
            pairs = [pair.partition("=") for pair in (parts[2] or "").split(",")]
            found.append(
                (
                    parts[1],
                    {name: unescaped(value) for name, _, value in pairs},
                    unescaped(parts[3]),
                )
            )
    return found


def unescaped(text):
    for code, sign in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, sign)
    return text


def many(document, errors, warnings, infos):
    severities = ["error"] * errors + ["warning"] * warnings + ["info"] * infos
    base = document["findings"][0]
    return {
        **document,
        "crashes": [],
        "findings": [{**base, "severity": severity} for severity in severities],
    }


def test_a_finding_is_one_annotation_with_a_title_and_all_that_is_known(runs):
    document = said(runs["broken"])
    found = {title["title"]: (kind, message) for kind, title, message in runner(commands(document))}
    (finding,) = [f for f in document["findings"] if f["rule"] == "DC224"]
    kind, message = found["DC224 out-of-range · x (2 of 10 samples)"]
    assert kind == finding["severity"]
    assert message.splitlines()[0] == finding["message"]
    assert message.splitlines()[-1] == f"fix: {finding['fix']}"
    assert "  3.npy" in message.splitlines()


def test_a_clean_run_says_nothing(runs):
    assert said(runs["clean"])["findings"] == []
    assert commands(said(runs["clean"])) == ""


@pytest.mark.parametrize(
    ("given", "shown", "more"),
    [
        ((3, 2, 1), (3, 2, 1), 0),
        ((10, 10, 10), (10, 10, 10), 0),
        ((11, 10, 0), (10, 10, 1), 1),
        ((25, 12, 3), (10, 10, 4), 17),
        ((0, 0, 11), (0, 0, 10), 2),
        ((11, 0, 10), (10, 0, 10), 2),
    ],
)
def test_ten_of_a_kind_are_shown_and_the_last_notice_counts_the_rest(given, shown, more):
    found = runner(commands(many(hostile_result("x"), *given)))
    assert (
        tuple([kind for kind, _, _ in found].count(k) for k in ("error", "warning", "notice"))
        == shown
    )
    if more:
        assert found[-1][2] == f"{more} more in the job's summary and in result.json"
        assert sum(shown) - 1 + more == sum(given)


def test_a_crash_comes_first(runs):
    kind, properties, message = runner(commands(said(runs["crash"])))[0]
    assert (kind, properties) == ("error", {"title": "own:raises crashed"})
    assert message.startswith("KeyError: 'y'\non ")


def without_old_commands(text):
    """Some runners look for ``##vso[`` anywhere in a line."""
    return text.replace("##[", r"\x23#[").replace("##vso[", r"\x23#vso[")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_the_data_is_a_command(name):
    document = hostile_result(HOSTILE[name])
    output = commands(document)
    assert output.encode("utf-8")
    assert leaks(output) == set()
    found = runner(output)
    assert [kind for kind, _, _ in found] == ["error", "error", "warning"]
    assert all(list(properties) == ["title"] for _, properties, _ in found)
    for (_, properties, message), finding in zip(found[1:], document["findings"], strict=True):
        title = clean(finding_title(finding))
        title = title if len(title) <= 200 else f"{title[:198]} …"
        assert properties["title"] == without_old_commands(title)
        assert message == without_old_commands("\n".join(finding_lines(finding)[1:]))


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_at_all_stays_in_its_place(text):
    assert [kind for kind, _, _ in runner(commands(hostile_result(text)))] == [
        "error",
        "error",
        "warning",
    ]
    assert tags(summary(hostile_result(text))) == tags(summary(hostile_result("x")))


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))

    def handle_endtag(self, tag):
        self.found.append((f"/{tag}", []))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.found.append(("comment", data))


def rendered(markdown):
    """The page that an independent reader makes of the Markdown, as (tags, text)."""
    page = _Tags()
    page.feed(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(markdown))
    page.close()
    return page


def tags(markdown):
    return rendered(markdown).found


def test_the_summary_has_the_verdict_and_every_finding(runs):
    document = said(runs["faults"])
    page = rendered(summary(document))
    listed, valid = document["dataset"]["samples"]["listed"], document["verdict"]["valid"]
    assert f"FAIL: {valid:,} of {listed:,} samples are fit for training" in page.text
    assert all(finding["fix"] in page.text for finding in document["findings"])
    assert [tag for tag, _ in page.found].count("details") == len(document["findings"]) + bool(
        document["unchecked"]
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_the_data_is_markup(name):
    text = summary(hostile_result(HOSTILE[name]))
    assert text.encode("utf-8")
    assert leaks(text) == set()
    assert tags(text) == tags(summary(hostile_result("x")))
    assert all(not attributes for _, attributes in tags(text))


def test_a_summary_is_cut_between_findings_and_says_so():
    document = many(hostile_result("<b>" * 300), 3000, 0, 0)
    text = summary(document)
    assert len(text.encode()) < MAX_SUMMARY_BYTES + 200
    opened = [tag for tag, _ in tags(text)]
    shown = opened.count("details")
    assert shown == opened.count("/details") == opened.count("pre")
    assert f"{3001 - shown:,} more in result.json" in text  # and what was not looked at
