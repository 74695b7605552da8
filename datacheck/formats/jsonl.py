"""JSON lines (.jsonl, .ndjson, gzip of them), read as a stream: a file may be far larger than memory.

A line that is no JSON is a `FormatError` with code DC701 in its place, so that the other lines are
still read. Lines are parsed many at a time, in pieces that stay in the processor's cache: one by
one takes three times as long.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import secrets
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import orjson
import xxhash

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, check_bytes, wrap_errors
from datacheck.formats.parsed import parse_json
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath, check_holes, stamp_of

_LINE_BYTES = 16 << 20
_RECORDS = 5_000_000  # lines of one value
_PIECE_BYTES = (
    2 << 20
)  # smaller ones stay in a core's own cache, but each costs what a block of rows costs
_PART_BYTES = 64 << 20
PART_LINES = (
    1 << 18
)  # in a part: rows take memory, too, so that a part of short lines has fewer bytes
_MARK_BYTES = 1 << 20  # between two lines of which is kept where they begin
_COUNTED_BYTES = 256 << 10  # stays in the cache between reading, counting and digesting
_MAX_RATIO = 64  # bytes of text in one
_CODE = "DC701"
BOM = b"\xef\xbb\xbf"
LINES = object()
BLANK = object()


class Span(NamedTuple):
    """A part of a file: bytes [start, stop), and the number of the line that begins at `start`."""

    start: int
    stop: int
    line: int


@dataclass(frozen=True, slots=True)
class LineChunk:
    """Some lines of a file: the number of the first, where it lies, their bytes, how many they are."""

    number: int
    offset: int
    data: bytes
    count: int

    def lines(self, first: int, last: int) -> LineChunk:
        """Return the lines [first, last) of these."""
        if last - first == self.count:
            return self
        ends = _ends(self.data)
        begin, end = (
            int(ends[first - 1]) if first else 0,
            int(ends[last - 1]) if last <= len(ends) else len(self.data),
        )
        return LineChunk(
            self.number + first, self.offset + begin, self.data[begin:end], last - first
        )

    def cut(self, most: int) -> Iterator[LineChunk]:
        """Yield these lines, at most `most` at a time; where they end is looked for once."""
        ends = (
            _ends(self.data)[most - 1 : self.count - 1 : most].tolist() if self.count > most else []
        )
        for place, (begin, end) in enumerate(pairwise([0, *ends, len(self.data)])):
            first = place * most
            count = min(most, self.count - first)
            yield LineChunk(self.number + first, self.offset + begin, self.data[begin:end], count)

    def values(self) -> list[Any]:
        """Return what each line holds: a value, `FormatError` or `BLANK`."""
        return _values(self.number, self.offset, self.data, self.count)


def lines(path: AnyPath) -> Iterator[tuple[int, Any]]:
    """Yield (line number, parsed value), or (line number, `FormatError`) for a line that is no JSON.

    Args:
        path: JSON lines, gzip of JSON lines, or a .json file that holds one list (its elements are
            the lines).

    Raises:
        FormatError: a .json file that is neither a document nor lines, or a damaged gzip file.

    Notes:
        Blank lines hold no record and are passed over; they count. A byte order mark at the start
        is passed over. A file that ends in the middle of a record has a bad last line; one without
        a final newline is complete.
    """
    for first, values in batches(path):
        yield from (
            (number, value) for number, value in enumerate(values, first) if value is not BLANK
        )


def batches(
    path: AnyPath, span: Span | None = None, *, wanted: Sequence[int] | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the first line, what it and the lines behind it hold): values, `FormatError`, or `BLANK`.

    Args:
        path: as for `lines`.
        span: read this part only; of a file that is `splittable`.
        wanted: numbers of lines of the whole file, ascending: no others are parsed but such as lie
            between two of the same piece; None: all are.

    Raises:
        FormatError: as for `lines`.
    """
    elements = _elements(path)
    if elements is not None:
        yield 0, elements
        return
    on = bool(wanted) and path.name.lower().endswith(".gz")
    for piece in READ_ON.pieces(path, wanted[0]) if on and wanted else pieces(path, span):
        if wanted is None:
            yield piece.number, piece.values()
            continue
        begin, end = (
            bisect_left(wanted, piece.number),
            bisect_left(wanted, piece.number + piece.count),
        )
        if begin < end:
            part = piece.lines(wanted[begin] - piece.number, wanted[end - 1] + 1 - piece.number)
            yield part.number, part.values()
        if end == len(wanted):
            return


def pieces(path: AnyPath, span: Span | None = None) -> Iterator[LineChunk]:
    """Yield whole lines of JSON lines, about 2 MiB at a time.

    Args:
        path: JSON lines, or gzip of them.
        span: read this part only; of a file that is `splittable`.

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
    """A packed file that was read up to some line: it cannot be entered in the middle, but read on.

    Notes:
        The shards of a build ask for the lines of a file one after another, often in several tasks
        of one process.
    """

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        self._left: tuple[LineChunk, Iterator[LineChunk]] | None = (
            None  # the last piece, and those behind it
        )

    def pieces(self, path: AnyPath, number: int) -> Iterator[LineChunk]:
        """Yield pieces as `pieces` does; none that ends before a line has to be among them.

        Raises:
            FormatError: a damaged gzip file.
        """
        status = path.stat()
        known = path.name, status.st_dev, *stamp_of(status)
        left, self._left = self._left if known == self._known else None, None
        if left is not None and left[0].number <= number:
            piece, behind = left
            found: Iterator[LineChunk] = chain([piece], behind)
        else:
            behind = pieces(path)
            found = behind
        for piece in found:
            try:
                yield piece
            except GeneratorExit:  # there is enough
                self._known, self._left = known, (piece, behind)
                raise


READ_ON = _ForwardReader()


def records(path: AnyPath) -> list[Any]:
    """Return the values of all lines at once.

    Raises:
        FormatError: a line is no JSON, or the lines are more than 5 million or 1 GiB.
    """
    found, number = list[Any](), 0
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
            found += [value for value in values if value is not BLANK]
            number += len(values)
            if number > _RECORDS:
                msg = f"more than {_RECORDS:,} lines as one value; read them with 'each: line'"
                raise FormatError(msg)
    return found


def parts(path: AnyPath, marks: list[tuple[int, int]] | None = None) -> Iterator[tuple[Span, str]]:
    """Yield the parts of a file that is `splittable`, about 64 MiB of whole lines each, and the file's digest.

    Args:
        path: the file.
        marks: to which (byte, line number) of a line is added for each MiB.

    Yields:
        A span, and "" beside all but the last one; beside that the xxh3_128 of all bytes (as
        `digest_file`).

    Raises:
        OSError: the file cannot be read.

    Notes:
        This is the one pass over the bytes besides parsing them. It cannot be had for less: the
        numbers of a part's lines depend on all lines before it, and the file's digest on all bytes
        in order, so no part can tell by itself. It reads at some gigabytes per second, hands each
        part on as soon as it is counted, and leaves the bytes in the page cache for those who parse
        them.
    """
    hasher, buffer = xxhash.xxh3_128(), bytearray(_COUNTED_BYTES)
    ready: Span | None = None
    start = line = offset = count = marked = 0
    with path.open("rb", buffering=0) as file:
        check_holes(file.fileno())
        while size := file.readinto(buffer):
            if ready is not None:
                yield ready, ""
                ready = None
            data = memoryview(buffer)[:size]
            hasher.update(data)
            count += int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))
            offset += size
            cut = buffer.rfind(b"\n", 0, size) + 1
            if marks is not None and cut and offset - size + cut - marked >= _MARK_BYTES:
                marked = offset - size + cut
                marks.append((marked, line + count))
            if cut and (offset - start >= _PART_BYTES or count >= PART_LINES):
                ready = Span(start, offset - size + cut, line)
                start, line, count = ready.stop, line + count, 0
    if ready is None or start < offset:
        if ready is not None:
            yield ready, ""
        ready = Span(start, offset, line)
    yield ready, hasher.hexdigest()


def splittable(name: str) -> bool:
    """Tell from its name whether parts of a file can be read on their own: plain lines, neither packed nor a list."""
    return name.lower().endswith((".jsonl", ".ndjson"))


def is_overcompressed(path: AnyPath) -> bool:
    """Tell whether a packed file says of itself that it is far larger than lines of different texts would be."""
    with path.open("rb", buffering=0) as file:
        stored = file.seek(0, io.SEEK_END)
        file.seek(max(0, stored - 4))
        return int.from_bytes(file.read(4), "little") > _MAX_RATIO * stored


def marked(path: AnyPath) -> bool:
    """Tell whether a file begins with a byte order mark, on which ordinary parsers of JSON fail."""
    with _opened(path) as file:
        return file.read(len(BOM)) == BOM


def line_count(data: bytes | memoryview) -> int:
    """Return how many lines some bytes that begin with one hold; the last need not have an end."""
    octets = np.frombuffer(data, np.uint8)  # three times as fast as bytes.count
    return int(np.count_nonzero(octets == ord("\n"))) + bool(
        len(octets) and octets[-1] != ord("\n")
    )


def _opened(path: AnyPath) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb", buffering=0)


def _pieces(file: BinaryIO, offset: int = 0, stop: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, whole lines), about 2 MiB each; of a line that is too long, one byte more than the cap."""
    place, rest = offset, b""

    def read(size: int) -> bytes:
        nonlocal place
        data = file.read(size if stop < 0 else min(size, stop - place))
        place += len(data)
        return data

    try:
        while data := read(
            max(_PIECE_BYTES, len(rest))
        ):  # a long line takes few reads, and few copies of its start
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
    except (OSError, EOFError, zlib.error) as error:
        msg = f"damaged gzip file: {error}"
        raise FormatError(msg) from error


def _next_line(read: Callable[[int], bytes]) -> bytes:
    """Read on to the end of a line; return what was read behind it."""
    while data := read(_PIECE_BYTES):
        cut = data.find(b"\n") + 1
        if cut:
            return data[cut:]
    return b""


def _shallow_values(number: int, offset: int, data: bytes) -> list[Any]:
    """Return what each line holds, as `_values`; a value that cannot be written again is a `FormatError`."""
    values = _together(data.removeprefix(BOM) if number == 0 else data, line_count(data))
    try:
        orjson.dumps([values])
    except TypeError:  # one of them is nested too deep: which?
        values = None
    return _parse_each(number, offset, data, deep=False) if values is None else values


def _ends(data: bytes) -> np.ndarray[Any, Any]:
    """Return the place behind each line feed: int64 (line feeds)."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1


def _values(number: int, offset: int, data: bytes, count: int) -> list[Any]:
    """Return what each of `count` lines holds; the first is line `number` and lies at `offset`."""
    found = _together(data.removeprefix(BOM) if number == 0 else data, count)
    return _parse_each(number, offset, data, deep=True) if found is None else found


@cache
def _mark() -> int:
    return secrets.randbits(63)


def _together(data: bytes, count: int) -> list[Any] | None:
    """Return the values of `count` lines parsed in one call, None where a line is not one value or none.

    Notes:
        Between two lines stands a number that no line holds, as whoever wrote them could not
        foresee it. Every second value is that number exactly when each line is one whole value;
        ``1,2`` on one line and ``[1`` and ``2]`` on two show.
    """
    if len(data) > _LINE_BYTES or data.count(b"\r") > data.count(
        b"\r\n"
    ):  # one of them may be too long, or two
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
    found = []
    for raw in io.BytesIO(data):
        found.append(BLANK if raw.isspace() else _parsed(number, offset, raw, deep=deep))
        number, offset = number + 1, offset + len(raw)
    return found


def _parsed(number: int, offset: int, raw: bytes, *, deep: bool) -> Any:
    try:
        if b"\r" in raw.rstrip(b"\r\n"):  # JSON has it for a blank
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
    """Return the value of a .json file, or `LINES` where its first line is a whole object and more follows.

    Raises:
        FormatError: it is neither, or larger than 1 GiB.
    """
    with _opened(path) as raw, io.BufferedReader(cast("io.RawIOBase", raw), _PIECE_BYTES) as file:
        return document_in(file)  # buffered: else a line comes byte by byte


def document_in(file: BinaryIO) -> Any:
    """Return the value that `document` returns, of an open file."""
    with wrap_errors("damaged file"):
        first = file.readline(_LINE_BYTES).removeprefix(BOM)
        if first.lstrip().startswith(b"{"):
            with contextlib.suppress(FormatError):
                value = parse_json(first)
                return LINES if any(not line.isspace() for line in file) else value
        data = bytearray(first)
        while len(data) <= TEXT_BYTES and (part := file.read(_PIECE_BYTES)):
            data += part
    check_bytes(len(data), "the file", TEXT_BYTES)
    return parse_json(bytes(data))


def _elements(path: AnyPath) -> list[Any] | None:
    """Return the elements of a .json file that is one document, None for JSON lines."""
    root = document(path) if path.name.lower().endswith((".json", ".json.gz")) else LINES
    return None if root is LINES else root if isinstance(root, list) else [root]


class _JsonLines(Container):
    """All lines of one file as a list; large files are read line by line instead (``samples: {each: line}``)."""

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


JSONL = Format("jsonl", (".jsonl.gz", ".json.gz", ".ndjson", ".jsonl"), _open)
