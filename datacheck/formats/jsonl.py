"""JSON lines (.jsonl, .ndjson, gzip of them) as a stream, and JSON files.

A file of lines may exceed memory. A line that is not JSON gives a `FormatError` with code DC701 in
its place, and the other lines are still read. Lines are parsed in batches that fit into the
processor's cache: parsing one by one takes three times as long.

A JSON file gives one value per key of an object, "records" of a list, "value" of anything else;
numbers become arrays. A file of JSON lines that is named .json gives "records" too. Read line by
line, a list gives its elements, and a document in SQuAD's layout its questions.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import secrets
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import orjson
import xxhash

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint, parse_container
from datacheck.formats.json_objects import Document, squad_questions
from datacheck.formats.limits import (
    TEXT_BYTES,
    Values,
    check_bytes,
    check_keys,
    damaged_gzip,
    wrap_errors,
)
from datacheck.formats.parsed import from_json, parse_json
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath, check_holes, stamp_of

_LINE_BYTES = 16 << 20
_RECORDS = 5_000_000  # lines read as one value
# A smaller piece stays in a core's own cache, but each piece costs as much as a block of rows.
_PIECE_BYTES = 2 << 20
_PART_BYTES = 64 << 20
# Lines in a part. Rows take memory too, so a part of short lines has fewer bytes.
PART_LINES = 1 << 18
_MARK_BYTES = 1 << 20  # at least this far apart are the lines whose offsets are kept
_COUNTED_BYTES = 256 << 10  # stays in the cache between reading, counting and hashing
_MAX_RATIO = 64  # bytes of text per packed byte
_CODE = "DC701"
BOM = b"\xef\xbb\xbf"
LINES = object()
BLANK = object()


class Span(NamedTuple):
    """A part of a file: bytes [start, stop), and the number of the line at `start`."""

    start: int
    stop: int
    line: int


@dataclass(frozen=True, slots=True)
class LineChunk:
    """Whole lines of a file: number and byte offset of the first, their bytes, and their count."""

    number: int
    offset: int
    data: bytes
    count: int

    def lines(self, first: int, last: int) -> LineChunk:
        """Return the lines [first, last) of this chunk."""
        if last - first == self.count:
            return self
        ends = _ends(self.data)
        begin = int(ends[first - 1]) if first else 0
        end = int(ends[last - 1]) if last <= len(ends) else len(self.data)
        return LineChunk(
            self.number + first, self.offset + begin, self.data[begin:end], last - first
        )

    def cut(self, most: int) -> Iterator[LineChunk]:
        """Yield the lines in chunks of at most `most`; line ends are searched for once."""
        ends = (
            _ends(self.data)[most - 1 : self.count - 1 : most].tolist() if self.count > most else []
        )
        for index, (begin, end) in enumerate(pairwise([0, *ends, len(self.data)])):
            first_line = index * most
            count = min(most, self.count - first_line)
            yield LineChunk(
                self.number + first_line, self.offset + begin, self.data[begin:end], count
            )

    def values(self) -> list[Any]:
        """Return the content of each line: a value, `FormatError` or `BLANK`."""
        return _values(self.number, self.offset, self.data, self.count)


def lines(path: AnyPath) -> Iterator[tuple[int, Any]]:
    """Yield (line number, parsed value), with a `FormatError` as the value of a bad line.

    Args:
        path: JSON lines, gzip of JSON lines, or a .json file that holds one list (its elements are
            the lines).

    Raises:
        FormatError: a .json file that is neither a document nor lines, or a damaged gzip file.

    Notes:
        Blank lines hold no record and are skipped, but they count. A byte order mark at the start
        is skipped. A file that ends in the middle of a record has a bad last line; one without a
        final newline is complete.
    """
    for first, values in batches(path):
        yield from (
            (number, value) for number, value in enumerate(values, first) if value is not BLANK
        )


def batches(
    path: AnyPath, span: Span | None = None, *, wanted: Sequence[int] | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the first line, contents of the lines) for each batch of lines.

    The content of a line is a value, `FormatError` or `BLANK`.

    Args:
        path: as for `lines`.
        span: read this part only; the file must be `splittable`.
        wanted: as for `chunks`: other lines are not parsed.

    Raises:
        FormatError: as for `lines`.
    """
    elements = _elements(path)
    if elements is not None:
        yield 0, elements
        return
    for chunk in chunks(path, span, wanted=wanted):
        yield chunk.number, chunk.values()


def chunks(
    path: AnyPath, span: Span | None = None, *, wanted: Sequence[int] | None = None
) -> Iterator[LineChunk]:
    """Yield the pieces of a file, each cut to the lines from its first to its last wanted one.

    Args:
        path: a file of lines, or gzip of it.
        span: read this part only; the file must be `splittable`.
        wanted: line numbers within the whole file, ascending; None yields all lines.

    Raises:
        FormatError: a damaged gzip file.
    """
    resumes = bool(wanted) and path.name.lower().endswith(".gz")
    for piece in READ_ON.pieces(path, wanted[0]) if resumes and wanted else pieces(path, span):
        if wanted is None:
            yield piece
            continue
        begin = bisect_left(wanted, piece.number)
        end = bisect_left(wanted, piece.number + piece.count)
        if begin < end:
            yield piece.lines(wanted[begin] - piece.number, wanted[end - 1] + 1 - piece.number)
        if end == len(wanted):
            return


def pieces(path: AnyPath, span: Span | None = None) -> Iterator[LineChunk]:
    """Yield whole lines of JSON lines, about 2 MiB at a time.

    Args:
        path: JSON lines, or gzip of them.
        span: read this part only; the file must be `splittable`.

    Raises:
        FormatError: a damaged gzip file.
    """
    start, stop, number = span or Span(0, -1, 0)
    with _opened(path) as file:
        file.seek(start)
        for offset, data in _pieces(file, start, stop):
            piece = LineChunk(number, offset, data, line_count(data))
            yield piece
            number += piece.count


class _ForwardReader:
    """Continues reading a packed file where the last call stopped.

    Notes:
        A gzip file cannot be entered in the middle. The shards of a build read the lines of a file
        one after another, often in several tasks of one process.
    """

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        # The last piece, and an iterator over the pieces after it.
        self._left: tuple[LineChunk, Iterator[LineChunk]] | None = None

    def pieces(self, path: AnyPath, number: int) -> Iterator[LineChunk]:
        """Yield pieces as `pieces` does; may skip pieces that end before line `number`.

        Raises:
            FormatError: a damaged gzip file.
        """
        status = path.stat()
        file_key = path.name, status.st_dev, *stamp_of(status)
        saved, self._left = self._left if file_key == self._known else None, None
        if saved is not None and saved[0].number <= number:
            piece, rest = saved
            stream: Iterator[LineChunk] = chain([piece], rest)
        else:
            rest = pieces(path)
            stream = rest
        for piece in stream:
            try:
                yield piece
            # The caller has all lines it needs: keep the rest for the next call.
            except GeneratorExit:
                self._known, self._left = file_key, (piece, rest)
                raise


READ_ON = _ForwardReader()


def records(path: AnyPath) -> list[Any]:
    """Return the values of all lines at once.

    Raises:
        FormatError: a line is no JSON, or the lines are more than 5 million or 1 GiB.
    """
    all_values = list[Any]()
    number = 0
    with _opened(path) as file:
        for offset, data in _pieces(file):
            check_bytes(
                offset + len(data),
                "the lines as one value; read them with 'each: line'",
                TEXT_BYTES,
            )
            values = _shallow_values(number, offset, data)
            bad = next((value for value in values if isinstance(value, FormatError)), None)
            if bad is not None:
                raise bad
            all_values += [value for value in values if value is not BLANK]
            number += len(values)
            if number > _RECORDS:
                msg = f"more than {_RECORDS:,} lines as one value; read them with 'each: line'"
                raise FormatError(msg)
    return all_values


def parts(path: AnyPath, marks: list[tuple[int, int]] | None = None) -> Iterator[tuple[Span, str]]:
    """Yield the parts of a `splittable` file, about 64 MiB of whole lines each, and its digest.

    Args:
        path: the file.
        marks: receives the (byte, line number) of one line per MiB.

    Yields:
        A span and "", except for the last part: a span and the xxh3_128 of all bytes (as
        `digest_file`).

    Raises:
        OSError: the file cannot be read.

    Notes:
        This is the only pass over the bytes besides parsing. The numbers of a part's lines depend
        on all lines before it, and the digest on all bytes in order, so no part can compute either
        alone. The pass reads at some gigabytes per second, yields each part as soon as it is
        counted, and leaves the bytes in the page cache for the parsers.
    """
    hasher = xxhash.xxh3_128()
    buffer = bytearray(_COUNTED_BYTES)
    pending: Span | None = None
    start = line = offset = count = last_mark = 0
    with path.open("rb", buffering=0) as file:
        check_holes(file.fileno())
        while size := file.readinto(buffer):
            if pending is not None:
                yield pending, ""
                pending = None
            data = memoryview(buffer)[:size]
            hasher.update(data)
            count += int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))
            offset += size
            cut = buffer.rfind(b"\n", 0, size) + 1
            if marks is not None and cut and offset - size + cut - last_mark >= _MARK_BYTES:
                last_mark = offset - size + cut
                marks.append((last_mark, line + count))
            if cut and (offset - start >= _PART_BYTES or count >= PART_LINES):
                pending = Span(start, offset - size + cut, line)
                start, line, count = pending.stop, line + count, 0
    if pending is None or start < offset:
        if pending is not None:
            yield pending, ""
        pending = Span(start, offset, line)
    yield pending, hasher.hexdigest()


def splittable(name: str) -> bool:
    """Return whether parts of a file can be read independently: plain JSON lines by its name."""
    return name.lower().endswith((".jsonl", ".ndjson"))


def is_overcompressed(path: AnyPath) -> bool:
    """Return whether a gzip file declares far more bytes than lines of different texts have."""
    with path.open("rb", buffering=0) as file:
        stored = file.seek(0, io.SEEK_END)
        # The last four bytes of a gzip file are its unpacked size, modulo 2**32.
        file.seek(max(0, stored - 4))
        return int.from_bytes(file.read(4), "little") > _MAX_RATIO * stored


def head(path: AnyPath, size: int) -> bytes:
    """Return the first bytes of a file, unpacked.

    Raises:
        FormatError: a damaged gzip file.
    """
    with _opened(path) as file:
        try:
            return file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise damaged_gzip(error) from error


def marked(path: AnyPath) -> bool:
    """Return whether a file starts with a byte order mark, on which ordinary JSON parsers fail."""
    with _opened(path) as file:
        return file.read(len(BOM)) == BOM


def line_count(data: bytes | memoryview) -> int:
    """Return the number of lines in bytes that start with a line; the last may lack its end."""
    octets = np.frombuffer(data, np.uint8)  # three times as fast as bytes.count
    return int(np.count_nonzero(octets == ord("\n"))) + bool(
        len(octets) and octets[-1] != ord("\n")
    )


def _opened(path: AnyPath) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb", buffering=0)


def _pieces(file: BinaryIO, offset: int = 0, stop: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, whole lines), about 2 MiB each.

    A line longer than the cap is cut to one byte more than the cap.
    """
    place, rest = offset, b""
    # A generator left open until the interpreter ends no longer finds the names of its module.
    damage = OSError, EOFError, zlib.error

    def read(size: int) -> bytes:
        nonlocal place
        data = file.read(size if stop < 0 else min(size, stop - place))
        place += len(data)
        return data

    try:
        # A long line takes few reads, and few copies of its start.
        while data := read(max(_PIECE_BYTES, len(rest))):
            data = rest + data if rest else data
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            if cut:
                yield offset, data[:cut]
                offset += cut
            if len(rest) > _LINE_BYTES:
                yield offset, rest[: _LINE_BYTES + 1]
                rest = _next_line(read)
                offset = place - len(rest)
        if rest:
            yield offset, rest
    except damage as error:
        raise damaged_gzip(error) from error


def _next_line(read: Callable[[int], bytes]) -> bytes:
    """Read on to the end of a line; return the bytes read after it."""
    while data := read(_PIECE_BYTES):
        cut = data.find(b"\n") + 1
        if cut:
            return data[cut:]
    return b""


def _shallow_values(number: int, offset: int, data: bytes) -> list[Any]:
    """Return the content of each line, as `_values`; too deep nesting gives a `FormatError`."""
    values = _together(data.removeprefix(BOM) if number == 0 else data, line_count(data))
    try:
        orjson.dumps([values])
    except TypeError:  # one of the values is nested too deep: parse the lines one by one to find it
        values = None
    return _parse_each(number, offset, data, deep=False) if values is None else values


def _ends(data: bytes) -> np.ndarray[Any, Any]:
    """Return the offset after each line feed: int64 (line feeds)."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1


def _values(number: int, offset: int, data: bytes, count: int) -> list[Any]:
    """Return the content of each of `count` lines; the first is line `number` at byte `offset`."""
    values = _together(data.removeprefix(BOM) if number == 0 else data, count)
    return _parse_each(number, offset, data, deep=True) if values is None else values


@cache
def _mark() -> int:
    return secrets.randbits(63)


def _together(data: bytes, count: int) -> list[Any] | None:
    """Return the values of `count` lines parsed in one call, None unless each line is one value.

    Notes:
        A random number, which no writer of a file can foresee, is put between two lines. Every
        second value is that number exactly when each line is one whole value. So ``1,2`` on one
        line, or ``[1`` and ``2]`` on two, are detected.
    """
    # A line may be too long, or contain a carriage return: parse the lines one by one.
    if len(data) > _LINE_BYTES or data.count(b"\r") > data.count(b"\r\n"):
        return None
    mark = _mark()
    body = (data[:-1] if data.endswith(b"\n") else data).replace(b"\n", b",%d," % mark)
    try:
        values = orjson.loads(b"".join((b"[", body, b"]")))
    except orjson.JSONDecodeError:
        return None
    whole = len(values) == 2 * count - 1 and values[1::2].count(mark) == count - 1
    return values[::2] if whole else None


def _parse_each(number: int, offset: int, data: bytes, *, deep: bool) -> list[Any]:
    values = []
    for raw in io.BytesIO(data):
        values.append(BLANK if raw.isspace() else _parsed(number, offset, raw, deep=deep))
        number, offset = number + 1, offset + len(raw)
    return values


def _parsed(number: int, offset: int, raw: bytes, *, deep: bool) -> Any:
    try:
        if b"\r" in raw.rstrip(b"\r\n"):  # JSON counts a carriage return as white space
            why = (
                "a carriage return within the line, at which a loader that opens the file as "
                "text begins another"
            )
        elif len(raw) <= _LINE_BYTES:
            return parse_json(raw.removeprefix(BOM) if number == 0 else raw, deep=deep)
        else:
            why = f"more than {_LINE_BYTES >> 20} MiB long"
    except FormatError as error:
        why = str(error)
    return FormatError(f"line {number + 1} (byte {offset:,}): {why}", _CODE)


def document(path: AnyPath) -> Any:
    """Return the value of a .json file, or `LINES` for a file of JSON lines.

    A file is JSON lines if its first line is a whole object and more follows.

    Raises:
        FormatError: the file is neither, or larger than 1 GiB.
    """
    # Buffered: an unbuffered readline reads byte by byte.
    with _opened(path) as raw, io.BufferedReader(cast("io.RawIOBase", raw), _PIECE_BYTES) as file:
        return document_in(file)


def document_in(file: BinaryIO) -> Any:
    """Return the value that `document` returns, from an open file."""
    with wrap_errors("damaged file"):
        first_line = file.readline(_LINE_BYTES).removeprefix(BOM)
        if first_line.lstrip().startswith(b"{"):
            with contextlib.suppress(FormatError):
                value = parse_json(first_line)
                return LINES if any(not line.isspace() for line in file) else value
        data = bytearray(first_line)
        while len(data) <= TEXT_BYTES and (part := file.read(_PIECE_BYTES)):
            data += part
    check_bytes(len(data), "the file", TEXT_BYTES)
    return parse_json(bytes(data))


def _elements(path: AnyPath) -> list[Any] | None:
    """Return the elements of a .json file that is one document, None for JSON lines.

    Those of a document in SQuAD's layout are its questions.
    """
    root = document(path) if path.name.lower().endswith((".json", ".json.gz")) else LINES
    if root is LINES:
        return None
    if isinstance(root, list):
        return root
    questions = squad_questions(root)
    return [root] if questions is None else questions


class _JsonLines(Container):
    """All lines of one file as a list.

    With ``samples: {each: line}`` a file is read line by line instead, however large.
    """

    def __init__(self, path: AnyPath) -> None:
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


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    path.stat()
    return _JsonLines(path)


# --------------------------------------------------------------------------------------- JSON files


def _open_json(path: AnyPath, hint: Hint) -> Values:
    del hint
    root = document(path)
    return _named_values(records(path) if root is LINES else root)


def parse_small(data: bytes) -> dict[str, Any]:
    """Return the values of a small file from its bytes, without opening the file again.

    Raises:
        FormatError: the bytes are not JSON, or are a placeholder for the file.
    """
    with parse_container(replace(JSON, parse=_parse_json), data) as container:
        return named_values(container)


def named_values(container: Container) -> dict[str, Any]:
    """Return all values of a document by name, None for null."""
    values: dict[str, Any] = dict.fromkeys(getattr(container, "nulls", ()))
    if isinstance(container, Document):
        return values | dict(container.whole())
    return values | {name: container.read(name) for name in container.names()}


def _parse_json(data: bytes, hint: Hint) -> Values:
    del hint
    root = document_in(io.BytesIO(data))
    if root is LINES:
        root = [
            parse_json(line)
            for line in data.removeprefix(BOM).splitlines()
            if line and not line.isspace()
        ]
    return _named_values(root)


def _named_values(root: Any) -> Values:
    if isinstance(root, dict):
        check_keys(len(root))
        values = {key: from_json(value) for key, value in root.items() if value is not None}
        return Document(values, [key for key, value in root.items() if value is None])
    if root is None:
        return Values({})
    return Values({"records": root} if isinstance(root, list) else {"value": from_json(root)})


JSON = Format("json", (".json",), _open_json)
JSONL = Format("jsonl", (".jsonl.gz", ".json.gz", ".ndjson", ".jsonl"), _open)
