"""The terminal report: at most 60 lines that answer "can I train on this?".

The worst findings come first; what was not checked comes last. Text from data (names, messages) is
never parsed as markup; characters that a terminal would act on are escaped.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from datacheck.model.finding import Cause, Finding, Report, Severity, Verdict
from datacheck.report.fitness import fitness
from datacheck.report.words import clean, format_bytes, plain, relative_to_cwd, spans
from datacheck.scan.run_documents import PAGE

LINES = 60
_WIDEST = 110
_DEFAULT_WIDTH = 100
_MAX_UNCHECKED = 6
_MAX_SPLITS = 8  # with their numbers of valid samples
_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}


def report_printer(
    report: Report, console: Console | None = None, *, page: bool = False
) -> Callable[[], None]:
    """Build the report's lines now; return a function that prints them.

    Args:
        report: the report of a scan.
        console: where to print; None: standard output, without colour if CI or NO_COLOR is set.
        page: whether the run's folder also holds a report.html.
    """
    console = console or _console()
    lines = report_lines(report, _width(console), page=page, encoding=console.encoding)
    lines = [plain(line, console.encoding) for line in lines]

    def put() -> None:
        for line in lines:
            console.print(line, soft_wrap=True)

    return put


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error: Rich would exit with 1, the exit code for findings."""
        raise BrokenPipeError


def _console() -> Console:
    colourless = bool(os.environ.get("CI") or os.environ.get("NO_COLOR"))
    return _Console(highlight=False, markup=False, emoji=False, no_color=colourless or None)


def _width(console: Console) -> int:
    has_width = console.is_terminal or "COLUMNS" in os.environ
    return max(40, min(console.width, _WIDEST)) if has_width else _DEFAULT_WIDTH


def report_lines(
    report: Report, width: int, *, page: bool = False, encoding: str = "utf-8"
) -> list[Text]:
    """Return the report's lines: at most 60, each at most `width` cells unless a name is longer.

    Args:
        report: the report of a scan.
        width: cells.
        page: whether the run's folder also holds a report.html.
        encoding: of the output; a command that it cannot show exactly is left out.
    """
    head = [*_head(report, width), Text()]
    foot = _foot(report, width, encoding, page=page)
    return [*head, *_blocks(report.findings, width, LINES - len(head) - len(foot)), *foot]


def _blocks(findings: Sequence[Finding], width: int, room: int) -> list[Text]:
    """Return the findings, each as long as the room allows.

    Every finding gets a line; then the first gets its full form, the others their short form, then
    their full form.
    """
    shown = findings if len(findings) < room else findings[: room - 2]
    subjects = Counter(_subject(finding) for finding in shown)
    blocks = [
        _FindingBlock(finding, width, name_kind=subjects[_subject(finding)] > 1)
        for finding in shown
    ]
    room -= len(blocks) + 2
    for block in blocks[:1]:
        room = block.grow(block.full, room)
    for block in blocks:
        room = block.grow(block.short, room)
    for block in blocks:
        room = block.grow(block.full, room)
    lines = [line for block in blocks for line in block.lines]
    if len(shown) < len(findings):
        left_out = len(findings) - len(shown)
        lines.append(Text(f"… and {left_out} more findings in result.json", "dim"))
    if lines and lines[-1].plain:
        lines.append(Text())
    return lines


class _FindingBlock:
    """The lines of a finding: its title, until a longer form fits.

    Args:
        name_kind: another finding has the same rule, fields and split; its kind differs.
    """

    def __init__(self, finding: Finding, width: int, *, name_kind: bool) -> None:
        title = _title(finding, width, finding.kind if name_kind else "")
        self.full = [title, *_block(finding, width), Text()]
        self.short = [title, *_short(finding, width), Text()]
        self.lines = [title]

    def grow(self, form: list[Text], room: int) -> int:
        """Take a longer form if it fits into `room` more lines; return the room that is left."""
        more = len(form) - len(self.lines)
        if self.lines is self.full or more > room:
            return room
        self.lines = form
        return room - more


# --------------------------------------------------------------------------------------------- head


def _head(report: Report, width: int) -> list[Text]:
    dataset = report.dataset
    inputs = (
        f"datacheck {report.run['version']} · schema {report.schema['name']} · {dataset['root']}"
    )
    size = format_bytes(dataset["bytes"])
    if dataset["files"]:
        size = f"{_count(dataset['files'], 'file')}, {size}"
    samples = _count(dataset["samples"]["listed"], "sample")
    seconds = f"{report.run['seconds']:.1f} s{_unchanged_files(report)}"
    return [
        *_wrapped(Text(clean(inputs), "dim"), width, 0, 2),
        *_wrapped(Text(f"{size} · {samples} · {seconds}", "dim"), width, 0),
        Text(),
        *_wrapped(_fitness_line(report), width, 0),
    ]


def _unchanged_files(report: Report) -> str:
    unchanged = report.run["kept_files"]
    return f" ({_count(unchanged, 'file')} unchanged, not opened)" if unchanged else ""


def _fitness_line(report: Report) -> Text:
    errors = {finding.code for finding in report.findings if finding.severity is Severity.ERROR}
    fit = fitness(report.dataset["samples"]["listed"], report.valid, errors, report.exit_code)
    return Text.assemble(
        _verdict(report),
        "  ",
        (fit, "bold"),
        f": {_tally(report)}{_read_share(report.dataset.get('read'))}",
    )


def _read_share(read_stats: Mapping[str, Any] | None) -> str:
    """Return how much of the data was read."""
    if read_stats is None or not read_stats["bytes"]:
        return ""
    total = read_stats["bytes"]
    opened = f"{_percent_read(read_stats['opened'], total)} of the bytes"
    text = f"; {opened} read"
    if read_stats["partly"]:
        text = f"; {opened} opened, {_percent_read(read_stats['partly'], total)} only in part"
    if read_stats["fields_read"] < read_stats["fields"]:
        text += f", {read_stats['fields_read']} of {read_stats['fields']} fields"
    return text


def _percent_read(nbytes: int, total: int) -> str:
    """Return a share in percent; never 100 % for less than all, nor 0 % for more than nothing."""
    share = nbytes / total * 100
    if 0 < share < 1:
        return "< 1 %"
    if share < 100:
        share = min(99, share)
    return f"{share:.0f} %"


def _verdict(report: Report) -> tuple[str, str]:
    """Return the word for the exit code, and its style."""
    if report.exit_code == 0:
        return "OK", "bold green"
    if report.exit_code == 1:
        return "FAIL", "bold red"
    return "CRASH", "bold magenta"


def _tally(report: Report) -> str:
    counts = report.counts()
    if not any(counts.values()) and not report.crashes:
        return "nothing new found" if report.suppressed else "nothing found"
    parts = [_count(counts["error"], "error"), _count(counts["warning"], "warning")]
    if counts["info"]:
        parts.append(f"{counts['info']} for information")
    if report.crashes:
        parts.append(_count(len(report.crashes), "crash", "crashes"))
    return ", ".join(parts)


# ------------------------------------------------------------------------------------------- blocks


def _block(finding: Finding, width: int) -> list[Text]:
    lines = _short(finding, width, message=4, cause=3, keys=3)
    if finding.hides:
        lines += _entry(
            "hides", Text(f"{_hidden(finding)}: not judged on these samples", "dim"), width, most=1
        )
    if finding.fix:
        lines += _entry("fix", Text(clean(finding.fix)), width, most=3)
    return lines


def _short(
    finding: Finding, width: int, *, message: int = 2, cause: int = 2, keys: int = 1
) -> list[Text]:
    lines = _wrapped(Text(clean(finding.message)), width, 2, message)
    if finding.cause is not None and finding.cause.text not in finding.message:
        cause_text = _cause(finding.cause, finding.failed)
        lines += _wrapped(Text(f"= {clean(cause_text)}", "cyan"), width, 2, cause)
    return [*lines, *_examples(finding, width, keys)]


def _hidden(finding: Finding) -> str:
    hidden = sorted(finding.hides.items())
    return ", ".join(
        clean(code if count == finding.failed else f"{code} ({count:,})") for code, count in hidden
    )


def _subject(finding: Finding) -> tuple[str, tuple[str, ...], str]:
    return finding.code, finding.fields, finding.split


def _title(finding: Finding, width: int, kind: str) -> Text:
    """Return the first line of a finding.

    `kind` is set if another finding has the same rule, fields and split.
    """
    scope_parts = [
        clean(part) for part in (", ".join(map(_field, finding.fields)), finding.split, kind)
    ]
    left = Text.assemble(
        (finding.severity.value, _COLOURS[finding.severity]),
        " ",
        (clean(finding.code), "bold"),
        " ",
        (clean(finding.name), "bold"),
        "".join(f" · {part}" for part in scope_parts if part),
    )
    right = _extent(finding)
    if len(right) > width // 2:
        right = f"{finding.failed:,} of {finding.of:,}" if finding.failed else ""
    gap = width - left.cell_len - len(right)
    if gap < 2:
        left.truncate(max(10, width - len(right) - 2), overflow="ellipsis")
        gap = max(2, width - left.cell_len - len(right))
    return left.append(" " * gap + right, "dim") if right else left


def _field(name: str) -> str:
    return "fields not in the schema" if name == "*" else name


def _extent(finding: Finding) -> str:
    if not finding.failed:
        return "the dataset as a whole"
    return (
        f"{finding.failed:,} of {_count(finding.of, 'sample')} "
        f"({_percent(finding.failed / max(1, finding.of))})"
    )


def _percent(share: float) -> str:
    if share < 0.0005:
        return "< 0.1 %"
    if share == 1:
        return "100 %"
    if share >= 0.9995:
        return "> 99.9 %"
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.1f} %"


def _cause(cause: Cause, failed: int) -> str:
    text = cause.text
    if cause.explains is not None and failed and f"{cause.explains:,} of" not in text:
        text += f" (explains {cause.explains:,} of {failed:,})"
    others = [alternative for alternative in cause.alternatives if alternative not in cause.text]
    if others:
        text += f"; or {' or '.join(others)}"
    return text


def _examples(finding: Finding, width: int, most: int) -> list[Text]:
    """Return as many keys as fit into `most` lines, and the number of further ones."""
    keys = [clean(key, spaces=True) for key in finding.examples]
    for count in range(len(keys), 0, -1):
        more = finding.failed - count
        words = keys[:count]
        if more > 0:
            words.append(f"… {more:,} more")
        lines = _rows(words, width)
        if len(lines) <= most or count == 1:
            return [Text(f"    {line}") for line in lines]
    return []


def _rows(words: Sequence[str], width: int) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(lines[-1]) + cell_len(word) + 6 <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines


# --------------------------------------------------------------------------------------------- foot


def _foot(report: Report, width: int, encoding: str, *, page: bool) -> list[Text]:
    lines = _entry("checked", Text(_rules(report)), width, 0)
    sentences = [*_crashes(report), *report.unchecked]
    for number, sentence in enumerate(sentences[:_MAX_UNCHECKED]):
        lines += _entry("not seen" if number == 0 else "", Text(clean(sentence)), width, 0, 2)
    if len(sentences) > _MAX_UNCHECKED:
        lines += _entry(
            "",
            Text(f"… and {len(sentences) - _MAX_UNCHECKED} more in result.json: unchecked", "dim"),
            width,
            0,
        )
    if "since" in report.run:
        lines += _entry("since", Text(clean(_changes_since(report.run["since"]))), width, 0, 2)
    lines += _entry("valid", Text(_valid(report)), width, 0, 3)
    # not wrapped: a path broken into lines cannot be copied
    folder = clean(f"{relative_to_cwd(Path(report.folder))}/", spaces=True)
    lines.append(Text.assemble(("results   ", "dim"), folder))
    if page:
        lines.append(Text.assemble(("page      ", "dim"), folder + PAGE))
    for number, command in enumerate(_next_commands(report, encoding)):  # not wrapped either
        lines.append(Text.assemble(("          " if number else "next      ", "dim"), command))
    return [*lines, Text(), *_wrapped(_last_line(report), width, 0)]


def _next_commands(report: Report, encoding: str) -> Iterable[str]:
    """Yield the next commands to type: explain the worst finding, view its worst sample.

    Commands that cannot be printed exactly are left out.
    """
    worst = report.findings[0] if report.findings else None
    if worst is None or worst.severity is Severity.INFO:
        return
    if not worst.code.startswith("-"):
        yield f"datacheck explain {shlex.quote(clean(worst.code))}"
    key = worst.examples[0] if worst.examples else ""
    if not report.dataset["files"] or not key or key.startswith("-"):
        return  # samples of a loader have no file
    folder = Path(report.folder)
    newest = os.path.realpath(folder) == os.path.realpath(".datacheck/latest")
    run_option = "" if newest else f" --run {shlex.quote(relative_to_cwd(folder))}"
    command = f"datacheck view {shlex.quote(key)}{run_option}"
    # an escaped name is not the sample's name
    if command == clean(command, spaces=True) == plain(Text(command), encoding).plain:
        yield command


def _rules(report: Report) -> str:
    counts = Counter(verdict.verdict for verdict in report.verdicts)
    words = {
        Verdict.FAIL: "failed",
        Verdict.PASS: "passed",
        Verdict.SKIP: "had nothing to look at",
        Verdict.CRASH: "crashed",
        Verdict.NOT_APPLICABLE: "do not apply",
        Verdict.OFF: "off",
    }
    if counts[Verdict.NOT_APPLICABLE] == 1:
        words[Verdict.NOT_APPLICABLE] = "does not apply"
    tally = ", ".join(
        f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict]
    )
    return f"{_count(len(report.verdicts), 'rule')}: {tally}"


def _changes_since(comparison: Mapping[str, Any]) -> str:
    """Return the changes since the previous scan, and which inputs besides the data changed."""
    when = comparison["started"].replace("T", " ").replace("Z", " UTC")
    scan = f"the scan of {when}"
    if comparison["other"]:
        others = " and ".join(f"another {input_name}" for input_name in comparison["other"])
        scan += f" (with {others})"
    new = comparison["new"]["count"]
    resolved = comparison["gone"]["count"]
    counts = []
    if new:
        counts.append(_count(new, "new finding"))
    if resolved:
        counts.append(f"{resolved:,} no longer found")
    return f"{scan}: {', '.join(counts) or 'nothing new'}"


def _crashes(report: Report) -> Iterable[str]:
    for crash in report.crashes:
        error_line = crash["traceback"].strip().splitlines()[-1]
        yield (
            f"{crash['rule'] or 'reader'} crashed on {crash['at']}: {error_line} (traceback in "
            f"result.json)"
        )


def _valid(report: Report) -> str:
    samples = report.dataset["samples"]
    text = f"{report.valid:,} of {_count(samples['listed'], 'sample')}"
    splits = report.dataset["splits"]
    if splits:
        parts = [f"{name} {c['valid']:,} of {c['samples']:,}" for name, c in splits.items()]
        more = " …" if len(parts) > _MAX_SPLITS else ""
        text += f" ({' · '.join(parts[:_MAX_SPLITS])}{more})"
    unread = [f"{samples[kind]:,} {kind}" for kind in ("unreadable", "skipped") if samples[kind]]
    if unread:
        text += f"; {', '.join(unread)}"
    if report.valid < samples["listed"]:
        text += "; those left out are named in valid.json"
    return clean(text)


def _last_line(report: Report) -> Text:
    return Text.assemble(_verdict(report), f"  {_tally(report)} · exit {report.exit_code}")


# -------------------------------------------------------------------------------------------- lines


def _wrapped(text: Text, width: int, indent: int, most: int = 99) -> list[Text]:
    """Return a paragraph as indented lines; one longer than `most` lines ends in an ellipsis."""
    room = max(20, width - indent)
    # first shorten the text: cutting a line takes time proportional to the whole text
    text = text[: room * (most + 1)]
    lines = [text[start:stop] for start, stop in spans(text.plain, room)]
    if len(lines) > most:
        lines = lines[:most]
        lines[-1].truncate(room - 2)
        lines[-1].rstrip()
        lines[-1].append(" …")
    return [Text(" " * indent).append_text(line) for line in lines]


def _entry(word: str, text: Text, width: int, indent: int = 2, most: int = 99) -> list[Text]:
    """Return a label followed by a paragraph in its own column."""
    column = indent + (6 if indent else 10)
    lines = _wrapped(text, width, column, most)
    lines[0] = Text.assemble(" " * indent, (word.ljust(column - indent), "dim"), lines[0][column:])
    return lines


def _count(number: int, word: str, plural: str = "") -> str:
    return f"{number:,} {word if number == 1 else plural or word + 's'}"
