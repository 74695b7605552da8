"""What a samples.parquet says of itself, checked before Arrow reads it: rows, sizes of columns, sizes of pages.

Arrow believes these numbers: it allocates what they say, and of some it ends the process. The footer and the headers of
pages are Thrift structs in the compact protocol.

Reference:
    https://github.com/apache/parquet-format: parquet.thrift; https://github.com/apache/thrift: compact protocol
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from datacheck.schema.model import MOST_FIELDS
from datacheck.table import WIDEST

# Of all columns in memory: so many, and so many for each byte of the file and for each row, whose key is a path.
MOST_BYTES, MOST_RATIO, MOST_EACH = 192 << 20, 80, 4096
FOOTER_BYTES = 16 << 20
ROW_GROUP = 65_536
_MARK = b"PAR1"
_COLUMNS, _DEEP = 50 * MOST_FIELDS, 16
_PAGE_HEAD = 4096
_LZ4 = {0, 5, 7}  # uncompressed, LZ4, LZ4_RAW
_TYPES, _ENCODINGS = range(8), {0, 2, 3, 4, 8}
_DICTIONARY = 2  # type of a page
_KEYS = b"key"  # the one column of texts that is not read as a dictionary
_TEXT, _FIXED, _KEY = 6, 7, 64  # types; bytes of a key as text, besides its letters
_SMALL = 1 << 16  # bytes of a column: LZ4 makes 16 MB of them at most
_WIDTH = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4, 7: 8}  # bytes of a value in memory, by type; of a text its number


_Wanted = Mapping[int, Any]  # fields of a struct by number, and those of the structs in each
_ALL: Final[_Wanted] = {}
_NOTHING: Final[_Wanted] = {}  # told from the other by identity
_COLUMN = dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 9, 11), _ALL)
_FOOTER = {2: dict.fromkeys((1, 2, 4, 5), _ALL), 3: _ALL, 4: {1: {3: _COLUMN}, 3: _ALL}}  # what is looked at here


class _Thrift:
    """Reads structs of Thrift's compact protocol as {number of the field: value}.

    Args:
        data: bytes that begin with a struct.

    Notes:
        A struct or list in memory takes a hundred times its bytes: of those that are kept there is at most one for each
        8 bytes, of which those that Arrow writes take twice as many.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._left = 1000 + len(data) // 8  # structs and lists
        self._kinds: dict[int, Callable[[int, _Wanted], Any]] = {
            1: lambda deep, wanted: True, 2: lambda deep, wanted: False, 3: lambda deep, wanted: self._byte(),
            4: self._number, 5: self._number, 6: self._number, 7: lambda deep, wanted: self._bytes(8),
            8: lambda deep, wanted: self._bytes(self._varint()), 9: self._list, 10: self._list, 12: self.struct,
        }  # fmt: skip

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while (byte := self._byte()) >= 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                msg = "a number of more than 64 bits"
                raise ValueError(msg)
        return found | byte << shift

    def _number(self, deep: int = 0, wanted: _Wanted = _ALL) -> int:
        del deep, wanted
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _keep(self, deep: int, wanted: _Wanted) -> None:
        self._left -= wanted is not _NOTHING
        if deep > _DEEP or self._left < 0:
            msg = "nested too deep, or of more parts than its bytes can be"
            raise ValueError(msg)

    def struct(self, deep: int = 0, wanted: _Wanted = _ALL) -> dict[int, Any]:
        """Return the wanted fields of a struct; what is not wanted is read and not kept."""
        self._keep(deep, wanted)
        found: dict[int, Any] = {}
        seen: set[int] = set()
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            if field in seen or not 0 <= field < 1 << 15:  # other readers take another one of two, or 16 bits of it
                msg = f"field {field} of a struct stands twice, or has an unknown number"
                raise ValueError(msg)
            seen.add(field)
            within = wanted if wanted is _ALL or wanted is _NOTHING else wanted.get(field, _NOTHING)
            value = self._kinds[head & 15](deep + 1, within)
            if within is not _NOTHING:
                found[field] = value
        return found

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            msg = "it ends too soon"
            raise ValueError(msg)
        self.at += size
        return self._data[self.at - size : self.at]

    def _list(self, deep: int, wanted: _Wanted) -> list[Any]:
        self._keep(deep, wanted)
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        if count > len(self._data) - self.at:  # each takes a byte at least
            msg = "it ends too soon"
            raise ValueError(msg)
        kind = head & 15
        read = self._kinds[3 if kind in {1, 2} else kind]
        values = (read(deep + 1, wanted) for _ in range(count))
        if wanted is not _NOTHING:
            return list(values)
        deque(values, maxlen=0)
        return []


def check(file: BinaryIO) -> int:
    """Return the bytes of memory that all columns of a Parquet file take, of lists one number each.

    Args:
        file: open.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, not as `samples.table_bytes` writes it, or expands too much.
    """
    size = file.seek(0, os.SEEK_END)
    try:
        said = _Thrift(_footer(file, size)).struct(wanted=_FOOTER)
        groups = said[4]
        memory = _check_groups(said, size)
        names = [part[4] for part in _leaves(said)]
        for chunk, name in ((c[3], n) for group in groups if group[3] for c, n in zip(group[1], names, strict=True)):
            if chunk[1] == _TEXT or chunk[7] > _SMALL:
                _check_pages(file, chunk, plain=name == _KEYS)
    except (LookupError, TypeError, AttributeError) as error:
        msg = f"a damaged Parquet file ({type(error).__name__})"
        raise ValueError(msg) from error
    check_memory(memory, size, said[3])
    return memory


def check_memory(memory: int, size: int, rows: int) -> None:
    """Refuse columns that take far more memory than a file of that size and so many rows.

    Raises:
        ValueError: they do.
    """
    if memory > (most := MOST_BYTES + MOST_RATIO * size + MOST_EACH * rows):
        msg = f"its columns take {memory:,} bytes of memory; at most {most:,} are allowed for a file of {size:,}"
        raise ValueError(msg)


def _leaves(said: dict[int, Any]) -> list[dict[int, Any]]:
    return [part for part in said[2][1:] if 5 not in part]


def _check_groups(said: dict[int, Any], size: int) -> int:
    rows, groups = said[3], said[4]
    names = _leaves(said)
    if rows < 0 or sum(group[3] for group in groups) != rows or len(names) > _COLUMNS:
        msg = f"{rows:,} rows and {len(names):,} columns are declared, its row groups have others, or too many"
        raise ValueError(msg)
    if any(part.get(2, 0) > _WIDTH[_FIXED] for part in names):
        msg = "a column of wide values"
        raise ValueError(msg)
    memory = keys = stored = 0
    for group in groups:
        chunks = [chunk[3] for chunk in group[1]]
        types = [chunk[1] for chunk in chunks]  # Arrow goes by the tree's
        if types != [part[1] for part in names] or not 0 <= group[3] <= ROW_GROUP:
            msg = f"a row group of {group[3]:,} rows and {len(chunks)} columns, or of other types"
            raise ValueError(msg)
        memory += sum(_memory(chunk, group[3], size) for chunk in chunks) + _KEY * group[3]
        keys += chunks[0][7]
        stored += sum(chunk[7] for chunk in chunks)
    if stored > size:  # each is walked page by page
        msg = f"columns of {stored:,} stored bytes in a file of {size:,}"
        raise ValueError(msg)
    if rows > keys + ROW_GROUP:  # keys differ, and LZ4 needs three bytes for each
        msg = f"{rows:,} rows with {keys:,} bytes of keys"
        raise ValueError(msg)
    return memory


def _footer(file: BinaryIO, size: int) -> bytes:
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if size < 12 or tail[4:] != _MARK or length > size - 12:
        msg = "not a Parquet file, or cut off"
        raise ValueError(msg)
    if length > FOOTER_BYTES + size // 4:
        msg = f"a footer of {length:,} bytes"
        raise ValueError(msg)
    file.seek(size - 8 - length)
    return file.read(length)


def _memory(chunk: dict[int, Any], rows: int, size: int) -> int:
    """Return the bytes that a column of a row group takes in memory.

    Raises:
        ValueError: what is said of it is not what a run writes.
    """
    kind, values, large, stored = chunk[1], chunk[5], chunk[6], chunk[7]
    known = kind in _TYPES and chunk[4] in _LZ4 and set(chunk[2]) <= _ENCODINGS
    within = 4 <= _first(chunk) <= _first(chunk) + stored <= size or not rows
    if not (known and within and 0 <= values <= WIDEST * max(1, rows) and large >= 0):
        msg = f"the column {chunk[3][0][:80]!r} is not as datacheck writes it"
        raise ValueError(msg)
    return int(values) * (_WIDTH[kind] + 1) + (int(large) if kind == _TEXT else 0)


def _first(chunk: dict[int, Any]) -> int:
    """Return where the pages of a column begin; 11 is that of its dictionary."""
    return int(min(chunk[9], chunk.get(11, chunk[9])))


def _check_pages(file: BinaryIO, chunk: dict[int, Any], *, plain: bool) -> None:
    """Refuse pages that are together larger than their column, and a dictionary of more words than it has rows.

    Args:
        file: open.
        chunk: what the footer says of the column.
        plain: whether every text must be there in full: a dictionary, or what each shares with the one before, makes
            a gigabyte of a few bytes where texts are not read as a dictionary.
    """
    place, large = _first(chunk), chunk[6]
    stop = place + chunk[7]
    while place < stop:
        file.seek(place)
        header = _Thrift(file.read(min(_PAGE_HEAD, stop - place)))
        said = header.struct()
        large -= said[2]
        place += header.at + said[3]
        if said[2] < 0 or said[3] < 0 or large < 0 or place > stop:
            msg = "a page is larger than its column"
            raise ValueError(msg)
        few = said[1] != _DICTIONARY or said[7][1] <= chunk[5]
        if not few or (plain and (said[1] or said[5][2])):  # 0 is a page of data, and PLAIN
            msg = f"the column {chunk[3][0][:80]!r} is not as datacheck writes it"
            raise ValueError(msg)
