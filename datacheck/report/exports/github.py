"""Results for GitHub Actions: workflow commands, which become annotations, and a job summary.

Both show a limited part of a result; a last line counts the rest.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from datacheck.errors import COMMAND
from datacheck.report.fitness import dataset_sentence, error_codes
from datacheck.report.words import clean, finding_lines, finding_title, last_line

MAX_ANNOTATIONS = 10  # of each kind: GitHub shows no more for a step
MAX_SUMMARY_BYTES = 512 * 1024  # GitHub accepts 1 MiB for each step
_MAX_TITLE_CHARS = 200
_ANNOTATION_KINDS = {"error": "error", "warning": "warning", "info": "notice"}  # by severity
_STATUS_MARKS = {"pass": "✅ OK", "fail": "❌ FAIL", "crash": "💥 CRASH"}


# ----------------------------------------------------------------------------------------- commands


def commands(result: Mapping[str, Any]) -> str:
    """Return a result as workflow commands, one per line: at most ten of a kind.

    The last notice counts the rest.

    Args:
        result: ``datacheck.result/1``.
    """
    every: dict[str, list[str]] = {kind: [] for kind in _ANNOTATION_KINDS.values()}
    for crash in result["crashes"]:
        message = f"{clean(last_line(crash['traceback']))}\non {clean(crash['at'])}"
        every["error"].append(_command("error", _crash_title(crash), message))
    for finding in result["findings"]:
        kind = _ANNOTATION_KINDS[finding["severity"]]
        message = "\n".join(finding_lines(finding)[1:])
        every[kind].append(_command(kind, finding_title(finding), message))
    shown = {kind: lines[:MAX_ANNOTATIONS] for kind, lines in every.items()}
    hidden = _left_out(result) + sum(len(every[kind]) - len(shown[kind]) for kind in every)
    if hidden:
        notices = shown["notice"][: MAX_ANNOTATIONS - 1]  # the line below takes one place
        hidden += len(shown["notice"]) - len(notices)
        rest = f"{hidden:,} more in the job's summary and in result.json"
        shown["notice"] = [*notices, _command("notice", "datacheck", rest)]
    return "".join(line for lines in shown.values() for line in lines)


def _command(kind: str, title: str, message: str) -> str:
    title = clean(title)
    if len(title) > _MAX_TITLE_CHARS:
        title = f"{title[: _MAX_TITLE_CHARS - 2]} …"
    title = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={title}::{_escaped(message)}\n"


def _escaped(text: str) -> str:
    text = COMMAND.sub(r"\\x23#", text)  # of other runners, which may stand anywhere in a line
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _crash_title(crash: Mapping[str, str]) -> str:
    return f"{crash['rule'] or 'reader'} crashed"


def _left_out(result: Mapping[str, Any]) -> int:
    """Return how many findings and crashes did not fit into result.json."""
    left_out = result.get("left_out", {})
    count: int = left_out.get("findings", 0) + left_out.get("crashes", 0)
    return count


# ------------------------------------------------------------------------------------------ summary


def summary(result: Mapping[str, Any]) -> str:
    """Return a result as a job summary: Markdown in which all foreign text is escaped HTML.

    Args:
        result: ``datacheck.result/1``.
    """
    mark = _STATUS_MARKS[result["verdict"]["status"]]
    text = f"### {mark}: {_fitness(result)}\n\n{_overview(result)}\n\n"
    omitted = _left_out(result)
    is_full = False
    for block in _blocks(result):
        # A block is included whole or not at all: part of one would leave markup unclosed.
        is_full = is_full or len((text + block).encode()) > MAX_SUMMARY_BYTES
        if is_full:
            omitted += 1
        else:
            text += block
    if omitted:
        text += f"{omitted:,} more in result.json\n\n"
    return text


def _fitness(result: Mapping[str, Any]) -> str:
    listed = result["dataset"]["samples"]["listed"]
    verdict = result["verdict"]
    if verdict["valid"] == listed:
        about_dataset = dataset_sentence(listed, error_codes(result), verdict["exit_code"])
        if about_dataset:
            return about_dataset
    return f"{verdict['valid']:,} of {listed:,} samples are fit for training"


def _overview(result: Mapping[str, Any]) -> str:
    counts = result["verdict"]["counts"]
    texts = {
        "data": result["dataset"]["root"],
        "schema": result["schema"]["name"],
        "findings": ", ".join(_count(count, severity) for severity, count in counts.items()),
    }
    rows = (
        f"<tr><th>{name}</th><td><code>{_html(text)}</code></td></tr>\n"
        for name, text in texts.items()
    )
    return f"<table>\n{''.join(rows)}</table>"


def _count(count: int, severity: str) -> str:
    if severity == "info":
        return f"{count:,} for information"
    return f"{count:,} {severity}{'' if count == 1 else 's'}"


def _blocks(result: Mapping[str, Any]) -> Iterator[str]:
    for crash in result["crashes"]:
        lines = [f"on {crash['at']}", *crash["traceback"].strip().splitlines()]
        yield _details(_crash_title(crash), "\n".join(_html(line) for line in lines))
    for finding in result["findings"]:
        title = f"{finding['severity']} {finding_title(finding)}"
        yield _details(title, "\n".join(html.escape(line) for line in finding_lines(finding)[1:]))
    if result["unchecked"]:
        yield _details("not looked at", "\n".join(_html(line) for line in result["unchecked"]))


def _details(title: str, escaped: str) -> str:
    """Return a collapsible block.

    Inside ``pre``, Markdown and GitHub's @names and #numbers have no effect.
    """
    return (
        f"<details><summary><code>{_html(title)}</code></summary>\n\n"
        f"<pre>{escaped}</pre>\n\n</details>\n\n"
    )


def _html(text: str) -> str:
    return html.escape(clean(text, spaces=True))
