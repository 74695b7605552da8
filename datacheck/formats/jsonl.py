"""JSON lines (.jsonl, .ndjson, gzip of them), read as a stream: a file may be far larger than memory.

A line that is no JSON is a `FormatError` with code DC701 in its place, so that the other lines are still read.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, check_bytes, foreign, parse_json
from datacheck.sample import Container

_LINE_BYTES = 16 << 20
_CODE = "DC701"
_BOM = b"\xef\xbb\xbf"


def lines(path: Path, start_line: int = 0, stop_line: int | None = None) -> Iterator[tuple[int, Any]]:
    """Yield (line number, parsed value), or (line number, `FormatError`) for a line that is no JSON.

    Args:
        path: JSON lines, gzip of JSON lines, or a .json file that holds one list (its elements are the lines).
        start_line: first line wanted, from 0.
        stop_line: the line to stop before; None reads to the end.

    Raises:
        FormatError: a .json file that is neither a document nor lines, or a damaged gzip file.

    Notes:
        Blank lines hold no record and are passed over; they count. A byte order mark at the start is passed over.
        A file that ends in the middle of a record has a bad last line; one without a final newline is complete.
    """
    if path.name.lower().endswith((".json", ".json.gz")):
        document = _document(path)
        if document is not None:
            yield from list(enumerate(document))[start_line:stop_line]
            return
    with _opened(path) as file:
        yield from _parsed(file, start_line, stop_line)


def _opened(path: Path) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb", buffering=1 << 20)


def _parsed(file: BinaryIO, start_line: int, stop_line: int | None) -> Iterator[tuple[int, Any]]:
    for number, (offset, raw) in enumerate(_physical(file)):
        if number == stop_line:
            return
        if number < start_line or raw.isspace():
            continue
        if len(raw) > _LINE_BYTES:
            yield number, _bad(number, offset, f"more than {_LINE_BYTES >> 20} MiB long")
            continue
        try:
            value: Any = parse_json(raw.removeprefix(_BOM) if number == 0 else raw)
        except FormatError as error:
            value = _bad(number, offset, str(error))
        yield number, value


def _bad(number: int, offset: int, why: str) -> FormatError:
    return FormatError(f"line {number + 1} (byte {offset:,}): {why}", _CODE)


def _physical(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, line with its end); of a line that is too long, one byte more than the cap."""
    read, offset = partial(file.readline, _LINE_BYTES + 1), 0
    try:
        while line := read():
            yield offset, line
            rest = line
            offset += len(rest)
            while len(rest) > _LINE_BYTES and not rest.endswith(b"\n"):
                rest = read()
                offset += len(rest)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"damaged gzip file: {error}"
        raise FormatError(msg) from error


def _document(path: Path) -> list[Any] | None:
    """Return the elements of a .json file that is one document, None for one of JSON lines."""
    with _opened(path) as file, foreign("damaged file"):
        first = file.readline(_LINE_BYTES)
        lines_follow = first.lstrip().startswith(b"{") and _is_json(first) and file.read(1)
        if lines_follow:
            return None
        data = first + file.read(TEXT_BYTES)
    check_bytes(len(data), "the file", TEXT_BYTES)
    root = parse_json(data.removeprefix(_BOM))
    return root if isinstance(root, list) else [root]


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except FormatError:
        return False
    return True


class _Lines(Container):
    """All lines of one file as a list; large files are read line by line instead (``samples: {each: line}``)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return ["records"]

    def read(self, name: str) -> Any:
        if name != "records":
            raise KeyError(name)
        check_bytes(self._path.stat().st_size, "the file as one value; read it with 'each: line'", TEXT_BYTES)
        records = []
        for _, value in lines(self._path):
            if isinstance(value, FormatError):
                raise value
            records.append(value)
        return records

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        if name != "records":
            raise KeyError(name)
        return (), "json"


def _open(path: Path, hint: Hint) -> Container:
    del hint
    path.stat()
    return _Lines(path)


JSONL = Format("jsonl", (".jsonl.gz", ".json.gz", ".ndjson", ".jsonl"), _open)
