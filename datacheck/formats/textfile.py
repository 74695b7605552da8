"""Text files (.txt, .csv, .tsv, .xyz, .pts, gzip of the first three): "table", the entries of a JSON object, or "text".

A .csv or .tsv of numbers with a header line gives "table" and "columns", and each column under its
name on request. A .csv or .tsv with a header line, where a column holds words or times, gives each
column by its name: numbers, times as seconds since 1970 (empty cells are NaN), words as a list of
texts. Members of archives are not split into columns. The rows of such a table can also be read by the
file that each names (`table_rows`).

A table may start with one line of column names (then also "columns") or with its number of rows
(.pts, .xyz). Before that, lines that begin with "#" are skipped (trajectories of TUM RGB-D and
EuRoC); the last of them may hold the names. Integers stay int64. One number per row gives [N], more
give [N, columns].
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.kitti_text import kitti_values
from datacheck.formats.limits import (
    FLOOR_BYTES,
    TEXT_BYTES,
    Values,
    check_bytes,
    damaged_gzip,
    text,
)
from datacheck.formats.parsed import conflict, from_json, parse_json
from datacheck.formats.table_rows import RowsByFile, RowsByNumber
from datacheck.model.arrow_arrays import numbers, present
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

# Possessive quantifiers ("++"): a number can be read in one way only, so a long line cannot take
# forever.
_NUMBER = r"[-+]?(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?|(?i:nan|infinity|inf))"
_FIRST = re.compile(rf"\s*+{_NUMBER}(?:(?:\s*+[,;]\s*+|\s++){_NUMBER})*+\s*+[,;]?\s*+")
_WHOLE = re.compile(r"[-+\d\s]+")
_BETWEEN = re.compile(r"\s*[,;]\s*|\s+")
# Fewest rows of a table that counts as broken instead of as text, and the share of odd rows that
# it may have.
_ROWS = 20
_MAX_BAD_SHARE = 0.02
_HEAD = 64  # bytes that show whether a JSON object follows
_BLOCK = 1 << 17  # bytes of numbers that stay in a core's cache
# Steps that join neighbouring digits: pairs, then fours, then eights.
_JOINED = [
    (np.uint64(1 + (10**width << 8 * width)), np.uint64(8 * width), np.uint64(mask))
    for width, mask in ((1, 0x00FF00FF00FF00FF), (2, 0x0000FFFF0000FFFF), (4, 0x00000000FFFFFFFF))
]


def _table(body: str) -> Array | None:
    """Return the numbers of a rectangular table, None for any other text.

    The first line must hold numbers only.
    """
    head = body.lstrip("\n\r").partition("\n")[0]
    if not _FIRST.fullmatch(head):
        return None
    plain = body.replace(",", " ").replace(";", " ") if "," in head or ";" in head else body
    for dtype in (np.int64, np.float64) if _WHOLE.fullmatch(plain) else (np.float64,):
        try:
            table = np.loadtxt(io.StringIO(plain), dtype=dtype, comments=None, ndmin=2)
        except (ValueError, OverflowError):
            continue
        return table[:, 0] if table.shape[1] == 1 else table
    return None


def _column(data: bytes) -> Array | None:
    """Return the numbers of a text with one number of digits only per line, None for other texts.

    Labels of millions of points are stored like this; it takes an eighth of the time of `_table`.
    """
    if not data[:1].isdigit() or data.translate(None, b"0123456789\n"):
        return None
    parts: list[Array] = []
    start = 0
    while start < len(data):
        stop = data.rfind(b"\n", start, start + _BLOCK) + 1
        stop = stop if stop > start else len(data)
        part = _parse_digits(data[start:stop])
        if part is None:
            values = np.fromstring(data, np.int64, sep="\n")
            # np.fromstring stops at the largest int64 for any number above it.
            return values if values.max() < np.iinfo(np.int64).max else None
        parts.append(part)
        start = stop
    return np.concatenate(parts)


def _parse_digits(data: bytes) -> Array | None:
    """Return the numbers of lines of digits, None if one has more than eight digits.

    Eight digits are loaded as one 64-bit number. Neighbouring digits are joined to pairs, the pairs
    to fours, the fours to the number.

    Reference:
        Lemire, Quickly parsing eight digits, 2018.
    """
    # Padded: the last number is loaded as eight bytes as well.
    octets = np.frombuffer(data + bytes(8), np.uint8)
    ends = np.flatnonzero(octets[: len(data)] == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    lengths = np.diff(ends, prepend=-1) - 1
    if not lengths.all():  # drop empty lines
        ends, lengths = ends[lengths > 0], lengths[lengths > 0]
    if lengths.max(initial=0) > 8:
        return None
    values: Array = np.ndarray((len(octets) - 7,), "<u8", octets, strides=(1,))[ends - lengths]
    # Shifts out the bytes after the number and zeros in before it.
    values <<= (64 - 8 * lengths).astype(np.uint64)
    values &= np.uint64(0x0F0F0F0F0F0F0F0F)
    for factor, bits, mask in _JOINED:
        values *= factor
        values >>= bits
        values &= mask
    return values.view(np.int64)


def _values(body: str) -> dict[str, Any]:
    table = _table(body)
    if table is not None:
        return {"table": table}
    notes, rest = _skip_comments(body)
    table = _table(rest) if notes else None
    header = notes[-1].lstrip("# ") if notes else ""
    if table is None:
        header, _, rest = body.lstrip("\n\r").partition("\n")
        table = _table(rest)
        if table is None:
            _refuse_broken(body)
            return {"text": body}
    if [header.strip()] == [str(len(table))]:  # the first line is the number of rows
        return {"table": table}
    width = table.shape[1] if table.ndim == 2 else 1
    for between in (r"[,;\s]+", r"\s*[,;]\s*"):  # separators as in "x y z" and "x [m], y [m]"
        names = [name for name in re.split(between, header.strip()) if name]
        if len(names) == width and not any(_FIRST.fullmatch(name) for name in names):
            return {"table": table, "columns": names}
    return {"table": table} if notes else {"text": body}


# A comment, an empty line, or an empty cell between others.
_LEFT = re.compile(r"^\s*(#|$)|^\s*[,;]|[,;]\s*[,;]")


def _refuse_broken(body: str) -> None:
    """Refuse a table with a few broken rows; as text, no rule would check anything in it.

    Raises:
        FormatError: nearly all lines are numbers, with the same count on each.
    """
    if body.count("\n") < _ROWS:
        return
    notes, rest = _skip_comments(body)
    first_line, *lines = rest.strip("\n\r").split("\n")
    if _FIRST.fullmatch(first_line) is None:  # the names of the columns, or no table
        notes, first_line, lines = [*notes, first_line], lines[0] if lines else "", lines[1:]
    if len(lines) < _ROWS or _FIRST.fullmatch(first_line) is None:
        return
    widths = [len(_BETWEEN.split(line.strip(" \t\r,;"))) for line in (first_line, *lines)]
    width = sorted(widths)[len(widths) // 2]
    pairs = enumerate(zip((first_line, *lines), widths, strict=True), len(notes) + 1)
    bad_lines = [
        (line_number, n)
        for line_number, (line, n) in pairs
        if (n != width or not _FIRST.fullmatch(line)) and not _LEFT.search(line)
    ]
    if width > 1 and 0 < len(bad_lines) <= _MAX_BAD_SHARE * len(widths):
        _refuse_conflict(body.encode("utf-8"))
        (line_number, count), more = (
            bad_lines[0],
            f", as {len(bad_lines) - 1:,} more" if len(bad_lines) > 1 else "",
        )
        problem = f"has {count} columns" if count != width else "holds more than numbers"
        msg = (
            f"line {line_number:,} {problem}{more}; the other {len(widths) - len(bad_lines):,} are rows of {width} "
            f"numbers"
        )
        raise FormatError(msg)


def _refuse_conflict(data: bytes) -> None:
    """Refuse a table with the markers of a git merge conflict."""
    if where := conflict(data):
        raise FormatError(where)


def _refuse_conflict_outside(data: bytes) -> None:
    """Refuse conflict markers outside of quoted cells; a quoted cell may be about them."""
    if not data.count(b'"', 0, data.find(b"<<<<<<< ")) % 2:
        _refuse_conflict(data)


def _skip_comments(body: str) -> tuple[list[str], str]:
    """Return the "#" lines at the start of a text, and the rest."""
    notes = list[str]()
    offset = 0
    while body.startswith("#", offset):
        end = body.find("\n", offset)
        end = len(body) if end < 0 else end
        notes.append(body[offset:end].strip())
        offset = end + 1
    return notes, body[offset:]


_KEY = re.compile(rb'\s*+\{\s*+"[^"\\]{0,200}"\s*+:')


def _document(data: bytes) -> Values | None:
    """Return the entries of a text that is one JSON object, None for other texts.

    Raises:
        FormatError: the text is a JSON object whose end is missing.
    """
    if not data[:_HEAD].lstrip().startswith(b"{"):
        return None
    try:
        document = parse_json(data)
    except FormatError as error:
        cause = error.__cause__
        if (
            isinstance(cause, json.JSONDecodeError)
            and cause.pos == len(cause.doc)
            and _KEY.match(data)
        ):
            msg = f"a JSON object without its end: the file is cut short behind byte {len(data):,}"
            raise FormatError(msg) from error
        return None
    values = {key: from_json(value) for key, value in document.items() if value is not None}
    return Values(values, [key for key, value in document.items() if value is None])


def _open(path: AnyPath, hint: Hint) -> Values:
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    data = _read(path)
    values = _parse(data, hint)
    between = _BETWEEN_CELLS.get(path.name.lower().removesuffix(_PACKED)[-4:])
    if values.names() == ["table"] and values.read("table").ndim == 2:
        return NumberTable({"table": values.read("table")})
    if between is not None and values.names() == ["columns", "table"]:
        return NamedTable({name: values.read(name) for name in values.names()})
    if between is None or values.names() != ["text"]:
        return values
    try:
        columns = _columns(data.removeprefix(_BOM), between)
    except _RaggedError as error:
        return BrokenTable(values.read("text"), error)
    if columns is None:
        _refuse_conflict_outside(data)
    return values if columns is None else Columns(columns, path, between)


def _read(path: AnyPath) -> bytes:
    """Return the bytes of a file, unpacked.

    Raises:
        FormatError: a damaged gzip file, or one that unpacks to far more than texts do.
    """
    if not path.name.lower().endswith(_PACKED):
        return path.read_bytes()
    stored = path.stat().st_size
    most = min(TEXT_BYTES, max(FLOOR_BYTES, _MAX_RATIO * stored))
    data = bytearray()
    try:
        with path.open("rb") as raw, gzip.open(raw) as file:
            while part := file.read(_PACKED_BYTES):
                data += part
                if 0 in part:  # as in a bomb of zeros
                    break
                if len(data) > most:
                    msg = f"unpacks to more than {most:,} bytes, from {stored:,}; at most {_MAX_RATIO}:1 is read"
                    raise FormatError(msg)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged_gzip(error) from error
    return bytes(data)


class _RaggedError(FormatError):
    """A few rows of a table have another number of cells than its header line."""


class BrokenTable(Values):
    """A text that would be a table but for a few rows; reading a column raises the reason.

    Args:
        body: the text.
        why: what is wrong with the table.
    """

    def __init__(self, body: str, why: FormatError) -> None:
        super().__init__({"text": body})
        self._why = why

    def read(self, name: str) -> Any:
        """Return the text.

        Raises:
            FormatError: for any other name.
        """
        if name not in self._values:
            raise self._why
        return super().read(name)


class NumberTable(Values):
    """A table of numbers; its rows can also be read by the whole number in one column."""

    def column_names(self) -> list[str]:
        """Return the names of the columns: ``column0`` and so on, without a header."""
        return [f"column{index}" for index in range(self._values["table"].shape[-1])]

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match ``/column1/*``, and from then on list their values by name."""
        column = pattern.strip("/").partition("/")[0]
        if not isinstance(self._values, RowsByNumber):
            names = self.column_names()
            table = self._values["table"]
            if table.ndim != 2 or names.count(column) != 1:
                return super().groups(pattern)
            self._values = RowsByNumber({"table": table}, column, table[:, names.index(column)])
        return self._values.groups(pattern)

    def unmatched(self) -> Mapping[str, str]:
        """Return the reason for the rows that no group holds, by the first of them."""
        return self._values.unmatched if isinstance(self._values, RowsByNumber) else {}


class NamedTable(NumberTable):
    """A table of numbers with a header line; each column can also be read by its name."""

    def column_names(self) -> list[str]:
        """Return the names in the header."""
        return list(self._values["columns"])

    def read(self, name: str) -> Any:
        """Return the table, the names, or one column.

        Raises:
            KeyError: there is no such name.
        """
        if name in self._values or self.column_names().count(name) != 1:
            return super().read(name)
        names, table = self.column_names(), self._values["table"]
        return np.ascontiguousarray(table.reshape(len(table), -1)[:, names.index(name)])


class Columns(Values):
    """The columns of a table with a header line, or its rows by the file or number in one column.

    Args:
        columns: by name.
        path: the file.
        between: separator of the cells.
    """

    def __init__(self, columns: dict[str, Any], path: AnyPath, between: str) -> None:
        super().__init__(columns)
        self._path, self._between = path, between

    def whole(self) -> Mapping[str, Any]:
        """Return the columns by name, in the order of the header."""
        return self._values

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match ``/column/*``, and from then on list their values by name."""
        column = pattern.strip("/").partition("/")[0]
        if not isinstance(self._values, RowsByFile | RowsByNumber):
            cells = self._values.get(column)
            if cells is None:
                return super().groups(pattern)
            is_text = isinstance(cells, list)
            self._values = (
                RowsByFile(self._values, column)
                if is_text
                else RowsByNumber(self._values, column, cells)
            )
        return self._values.groups(pattern)

    def unmatched(self) -> Mapping[str, str]:
        """Return the reason for each row that no group holds, by its name."""
        if isinstance(self._values, RowsByFile | RowsByNumber):
            return self._values.unmatched
        return {}

    def why_text(self, name: str) -> str:
        """Return why a column declared as numbers or times is text; reads the file again."""
        if isinstance(self._values, RowsByFile | RowsByNumber):
            name = self._values.column_of(name)
        data = _read(self._path).removeprefix(_BOM)
        column_index = _names_of_columns(data, self._between).index(name)
        rows = _rows(data, self._between)
        next(rows)
        cells = [
            (line, row[column_index])
            for line, row in rows
            if len(row) > column_index and row[column_index] not in _EMPTY
        ]
        fit = {
            what: [form.fullmatch(cell) is not None for _, cell in cells]
            for what, form in _FORMS.items()
        }
        # The first cell decides the kind: the first cell of another kind then shows where the file
        # changes.
        what = next((what for what, fits in fit.items() if fits[:1] == [True]), "")
        what = what or max(fit, key=lambda what: sum(fit[what]))
        misfits = [cell for cell, fits in zip(cells, fit[what], strict=True) if not fits]
        if not misfits:
            return f"a column of texts: not all of its cells are a {what} that exists"
        (line, cell), count = misfits[0], len(misfits)
        more = (
            f"; {count:,} of {len(cells):,} cells are none"
            if count > 1
            else f"; the other {len(cells) - 1:,} are"
        )
        return f"line {line:,} holds {cell[:_SHOWN]!r}, which is no {what}{more}"


_SHOWN = 40  # characters of a cell
_FORMS = {
    "number": re.compile(rf"\s*+{_NUMBER}\s*+"),
    "date as YYYY-MM-DD hh:mm:ss": re.compile(
        r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::?\d\d(?::?\d\d(?:\.\d{1,9})?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?"
    ),
}
_PACKED = ".gz"
_PACKED_BYTES = 2 << 20
_MAX_RATIO = 64  # bytes of text per packed byte
_BETWEEN_CELLS = {".csv": ",", ".tsv": "\t"}
_BOM = b"\xef\xbb\xbf"
# Bytes of the header line; most columns; fewest rows.
_NAMES_BYTES = 1 << 16
_COLUMNS = 4096
_LEAST = 2
_EMPTY = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?|\d\d?[/.]\d\d?[/.]\d{2,4}|\d\d?:\d\d")


def _columns(data: bytes, between: str) -> dict[str, Any] | None:
    """Return the columns of a table with a header line, None for a text that is no such table."""
    names = _names_of_columns(data, between)
    if not 2 <= len(names) <= _COLUMNS or any(map(_no_name, names)):
        return None
    import pyarrow as pa  # noqa: PLC0415  0.1 s, for such tables only
    import pyarrow.csv as tables  # noqa: PLC0415  as above

    ragged = _RaggedRowCounter(data.count(b"\n"))
    try:
        table = tables.read_csv(
            pa.py_buffer(data),
            tables.ReadOptions(use_threads=False, block_size=len(data) + 1),
            tables.ParseOptions(
                delimiter=between, newlines_in_values=True, invalid_row_handler=ragged
            ),
            tables.ConvertOptions(null_values=_EMPTY, check_utf8=True),
        )
        if table.num_rows < _LEAST or table.num_columns != len(names):
            return None
        if ragged.rows or ragged.notes:
            _refuse_ragged(data, between, ragged.rows, table.num_rows)
            return None
        _refuse_open_quote(data, between)
        columns = {name: _of_column(pa, table.column(index)) for index, name in enumerate(names)}
    except pa.ArrowInvalid:  # many rows differ in length
        return None
    return {name: values for name, values in columns.items() if values is not None}


class _RaggedRowCounter:
    """Counts the rows of a table that have another number of cells than its header line.

    Args:
        lines: number of lines of the text. If too many rows are ragged, the text is no table, and
            the parser stops.
    """

    def __init__(self, lines: int) -> None:
        self._most = _MAX_BAD_SHARE * lines + 1
        self.rows = self.notes = 0

    def __call__(self, row: Any) -> str:
        if row.text.lstrip()[:1] in {"", "#"}:
            self.notes += 1
        else:
            self.rows += 1
        return "skip" if self.rows + self.notes <= self._most else "error"


def _refuse_ragged(data: bytes, between: str, ragged: int, fitting: int) -> None:
    """Refuse a table with a few rows of the wrong length; as text, no rule would check it.

    Raises:
        FormatError: nearly all rows have a cell for each name.
    """
    if not ragged or ragged + fitting < _ROWS or ragged > _MAX_BAD_SHARE * (ragged + fitting):
        return
    _refuse_conflict_outside(data)
    more = f", and {ragged - 1:,} more do not fit" if ragged > 1 else ""
    rows = _rows(data, between)
    width = len(next(rows)[1])
    for line, cells in rows:
        count = len(cells)
        if (
            count not in {0, width}
            and not cells[0].lstrip().startswith("#")
            and any(map(str.strip, cells))
        ):
            cells_text = f"{count:,} cell{'' if count == 1 else 's'}"
            msg = (
                f"line {line:,} has {cells_text}, the header names {width:,}{more}; the other "
                f"{fitting:,} rows fit"
            )
            raise _RaggedError(msg)


def _refuse_open_quote(data: bytes, between: str) -> None:
    """Refuse a table with a quote that does not close, which swallows the rows after it.

    Raises:
        FormatError: the file is cut within a cell, or a quote is one too many.
    """
    if not data.count(b'"') % 2:
        return
    line = 1
    try:
        for start, cells in _rows(data, between, strict=True):
            line = start + 1 + sum(cell.count("\n") for cell in cells)
    except csv.Error as error:
        if "end of data" in str(error):
            msg = (
                f"line {line:,} opens a quote that does not close: the file is cut there, or the "
                f"quote is wrong"
            )
            raise FormatError(msg) from None


def _rows(data: bytes, between: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the line at which each row starts, and its cells, of any length."""
    limit = csv.field_size_limit(TEXT_BYTES)
    try:
        rows = csv.reader(
            io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""),
            delimiter=between,
            strict=strict,
        )
        line = 1
        for row in rows:
            yield line, row
            line = rows.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _names_of_columns(data: bytes, between: str) -> list[str]:
    """Return the cells of the first line; an unnamed first one is the index that pandas writes."""
    header_line = data[:_NAMES_BYTES].partition(b"\n")[0].decode("utf-8", "replace")
    try:
        names = next(csv.reader([header_line.rstrip("\r")], delimiter=between), [])
    except csv.Error:
        return []
    return _numbered(["index", *names[1:]] if names[:1] == [""] else names)


def _numbered(names: list[str]) -> list[str]:
    """Return names of which each occurs once: a second ``score`` is ``score_2``."""
    if len(set(names)) == len(names):
        return names
    taken, given = set(names), dict[str, None]()
    following = dict[str, int]()  # the number to try next, so that many equal names take no time
    for name in names:
        free, number = name, following.get(name, 2)
        while free in given or (free != name and free in taken):
            free, number = f"{name}_{number}", number + 1
        following[name] = number
        given[free] = None
    return list(given)


def _no_name(name: str) -> bool:
    return not name.strip() or _FIRST.fullmatch(name) is not None or _DATE.match(name) is not None


def _of_column(pa: Any, column: Any) -> Any:
    """Return the values of a column, None if it is empty."""
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        micros = column.cast(pa.timestamp("us"), safe=False)
        return _numbers(micros) / 1e6
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(column)
    column = column if pa.types.is_string(kind) else column.cast(pa.string())
    return ["" if text is None else text for text in column.to_pylist()]


def _numbers(column: Any) -> Array:
    """Return the numbers of a column; an empty cell is NaN."""
    values = np.concatenate([numbers(chunk) for chunk in column.chunks])
    if not column.null_count:
        return values
    return np.where(np.concatenate([present(chunk) for chunk in column.chunks]), values, np.nan)


def _parse(data: bytes, hint: Hint) -> Values:
    del hint
    check_bytes(len(data), "the file", TEXT_BYTES)
    column = _column(data)
    if column is not None:
        return Values({"table": column})
    if b"\0" in data:
        msg = f"byte {data.index(0)} is zero: this is no text file"
        raise FormatError(msg)
    document = _document(data)
    if document is not None:
        return document
    body = text(data, "the file")
    values = _values(body)
    return Values((kitti_values(body) or values) if values.keys() == {"text"} else values)


TEXT = Format("text", (".txt", ".csv", ".tsv", ".xyz", ".pts"), _open, member=_parse)
# Members of archives with these endings stay bytes.
PACKED_TEXT = Format("gzip_text", (".csv.gz", ".tsv.gz", ".txt.gz"), _open)


def is_text(head: bytes) -> bool:
    """Return whether a file with these first bytes is UTF-8 text.

    Control characters other than NUL are allowed: texts from the web contain them.
    """
    if 0 in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _parse_lines(data: bytes, hint: Hint) -> Values:
    del hint
    check_bytes(len(data), "the file", TEXT_BYTES)
    if 0 in data:
        msg = f"byte {data.index(0)} is zero: this is no text file"
        raise FormatError(msg)
    lines = text(data, "the file").split("\n")
    if not lines[-1]:
        lines.pop()  # no line follows the last line feed
    return Values(
        {"lines": [line.removesuffix("\r") for line in lines] if b"\r" in data else lines}
    )


def _open_lines(path: AnyPath, hint: Hint) -> Values:
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    return _parse_lines(path.read_bytes(), hint)


LINES = Format("lines", (), _open_lines, parse=_parse_lines, fits=is_text)
# Members of archives with these endings stay bytes.
COLUMNS = Format("columns", (".dict", ".tab"), _open_lines)
