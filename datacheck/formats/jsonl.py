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
from datacheck.formats.limits import TEXT_BYTES, check_bytes, foreign
from datacheck.formats.parsed import parse_json
from datacheck.sample import Container

_LINE_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_CODE = "DC701"
_BOM = b"\xef\xbb\xbf"
LINES = object()


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
    elements = _elements(path)
    if elements is not None:
        yield from list(enumerate(elements))[start_line:stop_line]
        return
    with _opened(path) as file:
        for number, (offset, raw) in enumerate(_physical(file)):
            if number == stop_line:
                return
            if number >= start_line and not raw.isspace():
                yield number, _parsed(number, offset, raw)


def records(path: Path) -> list[Any]:
    """Return the values of all lines at once.

    Raises:
        FormatError: a line is no JSON, or the lines come to more than 1 GiB.
    """
    found = []
    with _opened(path) as file:
        for number, (offset, raw) in enumerate(_physical(file)):
            check_bytes(offset + len(raw), "the lines as one value; read them with 'each: line'", TEXT_BYTES)
            value = None if raw.isspace() else _parsed(number, offset, raw)
            if isinstance(value, FormatError):
                raise value
            if not raw.isspace():
                found.append(value)
    return found


def _opened(path: Path) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb", buffering=_PIECE_BYTES)


def _parsed(number: int, offset: int, raw: bytes) -> Any:
    try:
        if len(raw) <= _LINE_BYTES:
            return parse_json(raw.removeprefix(_BOM) if number == 0 else raw)
        why = f"more than {_LINE_BYTES >> 20} MiB long"
    except FormatError as error:
        why = str(error)
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


def document(path: Path) -> Any:
    """Return the value of a .json file, or `LINES` where its first line is a whole object and more follows.

    Raises:
        FormatError: it is neither, or larger than 1 GiB.
    """
    with _opened(path) as file, foreign("damaged file"):
        first = file.readline(_LINE_BYTES).removeprefix(_BOM)
        if first.lstrip().startswith(b"{") and _is_json(first) and any(not line.isspace() for line in file):
            return LINES
        data = bytearray(first)
        while len(data) <= TEXT_BYTES and (part := file.read(_PIECE_BYTES)):
            data += part
    check_bytes(len(data), "the file", TEXT_BYTES)
    return parse_json(bytes(data))


def _elements(path: Path) -> list[Any] | None:
    """Return the elements of a .json file that is one document, None for JSON lines."""
    root = document(path) if path.name.lower().endswith((".json", ".json.gz")) else LINES
    return None if root is LINES else root if isinstance(root, list) else [root]


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
        elements = _elements(self._path)
        return records(self._path) if elements is None else elements

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        if name != "records":
            raise KeyError(name)
        return (), "json"


def _open(path: Path, hint: Hint) -> Container:
    del hint
    path.stat()
    return _Lines(path)


JSONL = Format("jsonl", (".jsonl.gz", ".json.gz", ".ndjson", ".jsonl"), _open)
