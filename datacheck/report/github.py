"""``--format github``: workflow commands that GitHub Actions shows as annotations, and the summary of the job.

GitHub shows ten errors, ten warnings and ten notices of a step and drops the rest silently: what is beyond is counted.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from datacheck.report.fitness import errors_of, whole
from datacheck.report.words import clean, finding_lines, finding_title, last_line

MOST = 10  # annotations of a kind
MOST_BYTES = 512 * 1024  # of a summary; GitHub takes 1 MiB of a step
_KINDS = {"error": "error", "warning": "warning", "info": "notice"}
_TITLE = 200


def commands(said: Mapping[str, Any]) -> str:
    """Return a result as workflow commands, a line each: at most ten of a kind, the last notice counts the rest.

    Args:
        said: ``datacheck.result/1``.
    """
    lines: dict[str, list[str]] = {kind: [] for kind in _KINDS.values()}
    for crash in said["crashes"]:
        title = f"{crash['rule'] or 'reader'} crashed"
        lines["error"].append(
            _command("error", title, f"{clean(last_line(crash['traceback']))}\non {clean(crash['at'])}")
        )
    for finding in said["findings"]:
        kind = _KINDS[finding["severity"]]
        lines[kind].append(_command(kind, finding_title(finding), "\n".join(finding_lines(finding)[1:])))
    beyond = {kind: max(0, len(found) - MOST) for kind, found in lines.items()}
    beyond["notice"] += sum(said.get("left_out", {}).get(name, 0) for name in ("findings", "crashes"))
    if any(beyond.values()):
        shown = lines["notice"][: MOST - 1]
        count = sum(beyond.values()) + len(lines["notice"][:MOST]) - len(shown)
        more = f"{count:,} more in the job's summary and in result.json"
        lines["notice"] = [*shown, _command("notice", "datacheck", more)]
    return "".join(line for found in lines.values() for line in found[:MOST])


def _command(kind: str, title: str, message: str) -> str:
    said = clean(title)
    said = said if len(said) <= _TITLE else f"{said[: _TITLE - 2]} …"
    name = _escaped(said).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{_escaped(message)}\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# ------------------------------------------------------------------------------------------------ summary


def summary(said: Mapping[str, Any]) -> str:
    """Return a result as the summary of a job: Markdown in which all that is not ours stands as escaped HTML.

    Args:
        said: ``datacheck.result/1``.
    """
    listed, valid = said["dataset"]["samples"]["listed"], said["verdict"]["valid"]
    mark = {"pass": "✅ OK", "fail": "❌ FAIL", "crash": "💥 CRASH"}[said["verdict"]["status"]]
    counts = said["verdict"]["counts"]
    fit = f"{valid:,} of {listed:,} samples are fit for training"
    if valid == listed:
        fit = whole(listed, errors_of(said), said["verdict"]["exit_code"]) or fit
    head = f"### {mark}: {fit}\n\n"
    told = ", ".join(f"{count:,} {_plural(name, count)}" for name, count in counts.items())
    about = [("data", said["dataset"]["root"]), ("schema", said["schema"]["name"]), ("findings", told)]
    rows = "".join(f"<tr><th>{name}</th><td><code>{_cell(text)}</code></td></tr>\n" for name, text in about)
    text = f"{head}<table>\n{rows}</table>\n\n"
    left = 0
    for block in _blocks(said):
        # a block is there as a whole or not at all: half of one would be markup that nobody closes
        if left or len((text + block).encode()) > MOST_BYTES:
            left += 1
        else:
            text += block
    left += sum(said.get("left_out", {}).get(name, 0) for name in ("findings", "crashes"))
    return text + (f"{left:,} more in result.json\n\n" if left else "")


def _blocks(said: Mapping[str, Any]) -> Iterator[str]:
    for crash in said["crashes"]:
        lines = [f"on {crash['at']}", *crash["traceback"].strip().splitlines()]
        yield _details(f"{crash['rule'] or 'reader'} crashed", "\n".join(_cell(line) for line in lines))
    for finding in said["findings"]:
        title = f"{finding['severity']} {finding_title(finding)}"
        yield _details(title, "\n".join(html.escape(line) for line in finding_lines(finding)[1:]))
    if said["unchecked"]:
        yield _details("not looked at", "\n".join(_cell(line) for line in said["unchecked"]))


def _details(title: str, escaped: str) -> str:
    """Return a part that can be unfolded; within ``pre`` neither Markdown nor GitHub's names and numbers count."""
    return f"<details><summary><code>{_cell(title)}</code></summary>\n\n<pre>{escaped}</pre>\n\n</details>\n\n"


def _cell(text: str) -> str:
    return html.escape(clean(text, spaces=True))


def _plural(word: str, count: int) -> str:
    return "for information" if word == "info" else word if count == 1 else f"{word}s"
