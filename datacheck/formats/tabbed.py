"""Lines of columns without a header, each line a record (.txt, .tsv, .tab, .dict, .txt.gz, .tsv.gz).

The columns "column0", "column1" lie between tabs (pairs of sentences with a label), or behind the
first two spaces (pronunciation dictionaries; one space in a .dict). A file of one column has the
column "text". Most of the first lines decide how many columns a file has, and which of them hold
numbers. Comments (";;;", "#") at the start of a file are skipped like empty lines.

A line with another number of columns gives a `FormatError` with code DC701 in its place, and the
other lines are still read.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from datacheck.errors import FormatError

SUFFIXES = (".txt", ".tsv", ".tab", ".dict", ".txt.gz", ".tsv.gz")
HEAD_BYTES = 1 << 16  # of a file: they show its columns
_LINE_BYTES = 16 << 20
_CODE = "DC701"
_BOM = b"\xef\xbb\xbf"
_LEXICON = ".dict"
# Between the columns: of any file, and of a pronunciation dictionary.
_TAB = re.compile("\t")
_SPACES = re.compile(" {2,}")
_SPACE = re.compile(r"[ \t]+")
# Share of the first lines with the usual number of columns, from which on a file is a table.
_USUAL_SHARE = 0.9
_FEWEST_LINES = 2
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,14})")
_FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,17})?(?:[eE][-+]?\d{1,2})?")
_NAME = re.compile(r"[^\W\d][\w.-]*")
# Endings of files that usually begin with the names of their columns.
_HEADED = (".tsv", ".tsv.gz")
# Names of columns that are seldom content, also with a number behind them ("sentence1").
_SURE_NAME = re.compile(
    r"[# ]*(?:answer|category|class|context|hypothesis|id|idx|index|input|labels?|output|premise|"
    r"question|sentence|source|target|text|translation|words?)[\d_ ]*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Layout:
    """How the lines of a file are cut into columns.

    Args:
        between: what separates the columns.
        width: number of columns.
        numbers: the type of each column of numbers, by its place.
        start: number of the first line behind the comments at the start.
    """

    between: re.Pattern[str]
    width: int
    numbers: dict[int, type[int] | type[float]]
    start: int = 0

    @classmethod
    def of(cls, name: str, head: bytes) -> Layout:
        """Return the layout of a file with this name and these first bytes."""
        start, lines = _lines(head)
        between = _separator(name, lines)
        rows = [_cells(line, between) for line in lines]
        width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 1
        whole = [row for row in rows if len(row) == width]
        numbers: dict[int, type[int] | type[float]] = {}
        for place in range(width if width > 1 else 0):
            cells = [row[place] for row in whole]
            if all(map(_FLOAT.fullmatch, cells)):
                numbers[place] = int if all(map(_INTEGER.fullmatch, cells)) else float
        return cls(between, width, numbers, start)

    def values(self, number: int, offset: int, data: bytes, blank: object) -> list[Any]:
        """Return the content of each line: a record, `FormatError` or `blank`.

        Args:
            number, offset: of the first line and of its first byte, from 0.
            data: whole lines.
            blank: stands for an empty line, and for a comment at the start of the file.
        """
        values = list[Any]()
        for raw in io.BytesIO(data):
            line = raw.removeprefix(_BOM) if number == 0 else raw
            try:
                skipped = number < self.start or line.isspace()
                values.append(blank if skipped else self._record(line))
            except FormatError as error:
                where = f"line {number + 1} (byte {offset:,})"
                values.append(FormatError(f"{where}: {error}", _CODE))
            number, offset = number + 1, offset + len(raw)
        return values

    def _record(self, raw: bytes) -> dict[str, Any]:
        if len(raw) > _LINE_BYTES:
            msg = f"more than {_LINE_BYTES >> 20} MiB long"
            raise FormatError(msg)
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        for byte, name in ((b"\0", "a zero byte"), (b"\r", "a carriage return")):
            if byte in line:
                msg = f"holds {name} at byte {line.index(byte)} of the line"
                raise FormatError(msg)
        try:
            cells = _cells(line.decode(), self.between)
        except UnicodeDecodeError as error:
            msg = f"not UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
            raise FormatError(msg) from None
        if len(cells) != self.width:
            columns = "1 column" if len(cells) == 1 else f"{len(cells):,} columns"
            msg = f"{columns}; most of the first lines of the file have {self.width:,}"
            raise FormatError(msg)
        if self.width == 1:
            return {"text": cells[0]}
        return {f"column{place}": self._value(place, cell) for place, cell in enumerate(cells)}

    def _value(self, place: int, cell: str) -> Any:
        kind = self.numbers.get(place)
        if kind is int and _INTEGER.fullmatch(cell):
            return int(cell)
        return float(cell) if kind is not None and _FLOAT.fullmatch(cell) else cell


def is_table(name: str, head: bytes) -> bool:
    """Return whether a file looks like lines of columns without a header.

    False where the first line may hold names of columns, and for a table of numbers.
    """
    _, lines = _lines(head)
    if len(lines) < _FEWEST_LINES or b"\0" in head or is_json(head):
        return False
    layout = Layout.of(name, head)
    rows = [_cells(line, layout.between) for line in lines]
    whole = [row for row in rows if len(row) == layout.width]
    if layout.width < 2 or len(whole) < max(_FEWEST_LINES, _USUAL_SHARE * len(rows)):
        return False
    columns = list(zip(*whole, strict=True))
    if len(layout.numbers) == layout.width or not all(any(column) for column in columns):
        return False
    if name.lower().endswith(_LEXICON) or rows[0] != whole[0]:
        return True
    is_header = _is_header if name.lower().endswith(_HEADED) else _may_be_names
    return not is_header(columns)


def is_json(head: bytes) -> bool:
    """Return whether the first line looks like a value of JSON lines."""
    return head.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


def _may_be_names(columns: list[tuple[str, ...]]) -> bool:
    """Return whether the first line may name the columns: single words that do not occur again."""
    return _names_numbers(columns) or all(
        _NAME.fullmatch(first.lstrip("# ")) and first not in others for first, *others in columns
    )


def _is_header(columns: list[tuple[str, ...]]) -> bool:
    """Return whether the first line names the columns, unless its content speaks against it.

    A cell that is a number, or that occurs again in a column of few distinct values (a label), is
    content.
    """
    if _names_numbers(columns):
        return True
    sure = [_SURE_NAME.fullmatch(first) is not None for first, *_ in columns]
    labels = [
        first in others and 2 * len({first, *others}) <= len(others) + 1
        for first, *others in columns
    ]
    if all(sure) or any(s and not label for s, label in zip(sure, labels, strict=True)):
        return True
    return not any(labels) and not any(_FLOAT.fullmatch(c[0]) or c[0].isdecimal() for c in columns)


def _names_numbers(columns: list[tuple[str, ...]]) -> bool:
    """Return whether a column has a word in the first line and only numbers below it."""
    return any(
        not _FLOAT.fullmatch(first) and all(map(_FLOAT.fullmatch, others))
        for first, *others in columns
    )


def _lines(head: bytes) -> tuple[int, list[str]]:
    """Return the complete lines of the first bytes of a file that are not empty.

    Comments at the start are left out; the number of the first line behind them comes first.
    """
    lines = head.removeprefix(_BOM).split(b"\n")
    if len(head) >= HEAD_BYTES and len(lines) > 1:
        lines.pop()
    texts = [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]
    numbers = (i for i, text in enumerate(texts) if text.strip() and not _is_comment(text))
    start = next(numbers, len(texts))
    return start, [text for text in texts[start:] if text.strip()]


def _is_comment(line: str) -> bool:
    # A line with "#" and a tab is a record ("#fun\t1") or names columns ("#id\ttext").
    return line.startswith(";;;") or (line.startswith("#") and "\t" not in line)


def _separator(name: str, lines: list[str]) -> re.Pattern[str]:
    for between in (_TAB, _SPACES):
        fitting = sum(_fits(line, between) for line in lines)
        if lines and fitting >= _USUAL_SHARE * len(lines):
            return between
    return _SPACE if name.lower().endswith(_LEXICON) else _TAB


def _fits(line: str, between: re.Pattern[str]) -> bool:
    return "\t" in line if between is _TAB else re.match(r"\S+ {2,}\S", line) is not None


def _cells(line: str, between: re.Pattern[str]) -> list[str]:
    return line.split("\t") if between is _TAB else between.split(line.strip(), maxsplit=1)
