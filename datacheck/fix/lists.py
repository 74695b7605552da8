"""Lists of samples and files of lines: what names nothing, stands twice or cannot be parsed is left out."""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from pathlib import Path

from datacheck.digest import shortened
from datacheck.errors import UsageError
from datacheck.fix import REJECTED, Asked, Edit, Plan, Repair
from datacheck.runtime.beneath import File
from datacheck.schema.model import RECORDS
from datacheck.sources.work import PLACE
from datacheck.table import UNREADABLE

_BOM = b"\xef\xbb\xbf"
_LONGEST = 255  # bytes of the name of a file


def _cleaned_lists(asked: Asked) -> Plan:
    """Drop from each list the lines that name no file, and all but the first of equal lines."""
    lists = {shortened(path, PLACE): path for path in asked.run.listing.by_path}
    gone: dict[str, set[str]] = {}
    for note in asked.run.work.notes:
        if note.code == LISTS.code and "list" in note.about:
            lines = gone.setdefault(lists[note.about["list"]], set())
            lines.update([note.about["line"]] if note.missing else [])
    if not gone:
        msg = "DC105: no line of a list is wrong; files that no list names are for you to add."
        raise UsageError(msg)
    records = sorted(path for path in gone if path.lower().endswith(RECORDS))
    unclear = tuple(
        f"{path}: only lists of lines are repaired. Let the preprocessing write it again." for path in records
    )
    if len(records) == len(gone):
        raise UsageError(unclear[0])
    edits = {path: Edit("datacheck.fix.lists:without", sorted(gone[path])) for path in gone.keys() - {*records}}
    return Plan(edits, unclear)


def without(gone: list[str], source: File, goal: Path) -> None:
    """Write a list without these lines (as `shortened` names them), and of equal ones only the first."""
    left_out = set(gone)
    with source.open() as stored, io.TextIOWrapper(stored, encoding="utf-8-sig") as text:  # as a scan cuts its lines
        lines = [line.strip() for line in text]
    kept = [line for line in dict.fromkeys(lines) if line and shortened(line, PLACE) not in left_out]
    goal.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _cleaned_lines(asked: Asked) -> Plan:
    """Keep the lines that can be read, without byte order mark; the others go into FILE.rejected beside the copy."""
    table = asked.run.table
    bad: dict[str, set[int]] = {}
    for finding in asked.findings:
        for row in finding.rows.tolist():
            numbers = bad.setdefault(table.files[row], set())
            if table.status[row] == UNREADABLE:
                numbers.add(_line_of(table.keys[row], table.files[row]))
    packed = sorted(path for path in bad if not path.lower().endswith((".jsonl", ".ndjson")))
    unclear = tuple(_packed(path) for path in packed)
    for path in packed:
        del bad[path]
    if unclear and not bad:
        raise UsageError(unclear[0])
    if not bad:
        msg = "DC701: no line is bad; empty ones are for your loader to skip."
        raise UsageError(msg)
    return Plan(
        {path: Edit("datacheck.fix.lists:good_lines", sorted(numbers)) for path, numbers in bad.items()}, unclear
    )


def _packed(path: str) -> str:
    unpack = " Unpack it first." if path.lower().endswith(".gz") else ""
    return f"{path}: only .jsonl and .ndjson files are repaired line by line.{unpack}"


def _line_of(key: str, path: str) -> int:
    number = key[-12:]
    if not (number.isascii() and number.isdecimal()):
        msg = f"{path}: only files whose lines are the samples (each: line) are repaired line by line."
        raise UsageError(msg)
    return int(number)


def good_lines(bad: list[int], source: File, goal: Path) -> None:
    """Write the lines that are not empty; those of these numbers into FILE.rejected.

    Raises:
        UsageError: the name of the file is too long for that.
    """
    gone = set(bad)
    if gone and len(os.fsencode(goal.name + REJECTED)) > _LONGEST:
        msg = f"{source}: its name is too long for a copy with {REJECTED} behind it. Rename the file."
        raise UsageError(msg)
    with ExitStack() as held:
        lines, good = held.enter_context(source.open("rb")), held.enter_context(goal.open("wb"))
        rejected = held.enter_context(goal.with_name(goal.name + REJECTED).open("wb")) if gone else good
        for number, line in enumerate(lines):
            text = line.removeprefix(_BOM) if number == 0 else line
            if number in gone:
                rejected.write(line.rstrip(b"\r\n") + b"\n")
            elif not text.isspace():
                good.write(text.rstrip(b"\r\n") + b"\n")


LISTS = Repair("DC105", "lists without the lines that name no file or stand twice", _cleaned_lists)
LINES = Repair("DC701", "JSON lines without the bad ones, which go to FILE.rejected", _cleaned_lines, renumbers=True)
