"""Writes and reads samples.parquet; checks its metadata (rows, columns, pages) before Arrow does.

Arrow trusts these numbers: it allocates as much as they say, and some wrong numbers end the
process. The footer and the headers of pages are Thrift structs in the compact protocol.

Reference:
    https://github.com/apache/parquet-format: parquet.thrift; https://github.com/apache/thrift:
    compact protocol
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, overload

import numpy as np
import orjson

from datacheck.errors import DamagedRunError
from datacheck.model.arrow_arrays import numbers as numbers_of
from datacheck.model.arrow_arrays import present as present_in
from datacheck.model.row_keys import NumberedKeys
from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, WIDEST, Measured, Table, Texts
from datacheck.runtime.documents import open_document
from datacheck.runtime.hashing import digest64
from datacheck.schema.model import MOST_FIELDS

# Bytes of all columns in memory: a constant, plus a factor of the file's bytes, plus bytes for each
# row, whose key is a path.
MOST_BYTES = 192 << 20
MOST_RATIO = 80
MOST_EACH = 4096
# Bytes of all keys: a constant, plus bytes for each row, plus a factor of their stored bytes.
MOST_KEY_BYTES = 64 << 20
MOST_KEY_EACH = 512
MOST_KEY_RATIO = 16
FOOTER_BYTES = 16 << 20
ROW_GROUP = 65_536
_MARK = b"PAR1"
_COLUMNS = 50 * MOST_FIELDS
_DEEP = 16
_PAGE_HEAD = 4096
_LZ4 = {0, 5, 7}  # uncompressed, LZ4, LZ4_RAW
_TYPES = range(8)
_ENCODINGS = {0, 2, 3, 4, 8}
_DICTIONARY = 2  # page type
_KEYS = b"key"  # the one text column that is not read as a dictionary
# Two types; bytes of a key as a Python string, besides its letters.
_TEXT = 6
_FIXED_BYTES = 7
_KEY = 64
_SMALL = 1 << 16  # bytes of a column, which LZ4 expands to 16 MB at most
# Bytes of a value in memory, by type; for a text those of its number.
_WIDTH = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4, 7: 8}


_Wanted = Mapping[int, Any]  # fields of a struct by number, each with the wanted fields inside it
_ALL: Final[_Wanted] = {}
_NOTHING: Final[_Wanted] = {}  # compared with `_ALL` by identity
_COLUMN = dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 9, 11), _ALL)
# The fields of the footer that are checked here.
_FOOTER = {2: dict.fromkeys((1, 2, 4, 5), _ALL), 3: _ALL, 4: {1: {3: _COLUMN}, 3: _ALL}}


class _Thrift:
    """Reads structs of Thrift's compact protocol as {number of the field: value}.

    Args:
        data: bytes that begin with a struct.

    Notes:
        In memory a struct or list takes a hundred times its bytes, so at most one per 8 bytes is
        kept. Those that Arrow writes have at least twice as many bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._left = 1000 + len(data) // 8  # structs and lists
        self._kinds: dict[int, Callable[[int, _Wanted], Any]] = {
            1: lambda deep, wanted: True,
            2: lambda deep, wanted: False,
            3: lambda deep, wanted: self._byte(),
            4: self._number,
            5: self._number,
            6: self._number,
            7: lambda deep, wanted: self._bytes(8),
            8: lambda deep, wanted: self._bytes(self._varint()),
            9: self._list,
            10: self._list,
            12: self.struct,
        }

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                msg = "a number of more than 64 bits"
                raise ValueError(msg)
        return number | byte << shift

    def _number(self, deep: int = 0, wanted: _Wanted = _ALL) -> int:
        del deep, wanted
        encoded = self._varint()
        return (encoded >> 1) ^ -(encoded & 1)

    def _keep(self, deep: int, wanted: _Wanted) -> None:
        self._left -= wanted is not _NOTHING
        if deep > _DEEP or self._left < 0:
            msg = "nested too deep, or of more parts than its bytes can be"
            raise ValueError(msg)

    def struct(self, deep: int = 0, wanted: _Wanted = _ALL) -> dict[int, Any]:
        """Return the wanted fields of a struct; the other fields are parsed and dropped."""
        self._keep(deep, wanted)
        fields: dict[int, Any] = {}
        numbers: set[int] = set()
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            # Refused, since other readers use the other of two fields, or 16 bits of the number.
            if field in numbers or not 0 <= field < 1 << 15:
                msg = f"field {field} of a struct stands twice, or has an unknown number"
                raise ValueError(msg)
            numbers.add(field)
            inner_wanted = (
                wanted if wanted is _ALL or wanted is _NOTHING else wanted.get(field, _NOTHING)
            )
            value = self._kinds[head & 15](deep + 1, inner_wanted)
            if inner_wanted is not _NOTHING:
                fields[field] = value
        return fields

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
        if count > len(self._data) - self.at:  # each value takes at least a byte
            msg = "it ends too soon"
            raise ValueError(msg)
        kind = head & 15
        read_value = self._kinds[3 if kind in {1, 2} else kind]
        values = (read_value(deep + 1, wanted) for _ in range(count))
        if wanted is not _NOTHING:
            return list(values)
        deque(values, maxlen=0)
        return []


def check(file: BinaryIO) -> int:
    """Check a Parquet file; return the bytes that its columns take in memory.

    A list counts as one number.

    Args:
        file: open.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, not as `samples.table_bytes` writes it, or expands too much.
    """
    size = file.seek(0, os.SEEK_END)
    try:
        footer = _Thrift(_footer(file, size)).struct(wanted=_FOOTER)
        groups = footer[4]
        memory = _check_groups(footer, size)
        names = [part[4] for part in _leaves(footer)]
        for chunk, name in (
            (c[3], n) for group in groups if group[3] for c, n in zip(group[1], names, strict=True)
        ):
            if chunk[1] == _TEXT or chunk[7] > _SMALL:
                _check_pages(file, chunk, plain=name == _KEYS)
    except (LookupError, TypeError, AttributeError) as error:
        msg = f"a damaged Parquet file ({type(error).__name__})"
        raise ValueError(msg) from error
    check_memory(memory, size, footer[3])
    return memory


def check_memory(memory: int, size: int, rows: int) -> None:
    """Refuse columns that take far more memory than a file of that size and number of rows.

    Raises:
        ValueError: the columns take more.
    """
    if memory > (limit := MOST_BYTES + MOST_RATIO * size + MOST_EACH * rows):
        msg = (
            f"its columns take {memory:,} bytes of memory; at most {limit:,} are allowed for a "
            f"file of {size:,}"
        )
        raise ValueError(msg)


def _leaves(footer: dict[int, Any]) -> list[dict[int, Any]]:
    return [part for part in footer[2][1:] if 5 not in part]


def _check_groups(footer: dict[int, Any], size: int) -> int:
    rows = footer[3]
    groups = footer[4]
    leaves = _leaves(footer)
    if rows < 0 or sum(group[3] for group in groups) != rows or len(leaves) > _COLUMNS:
        msg = (
            f"{rows:,} rows and {len(leaves):,} columns are declared, its row groups have others, "
            f"or too many"
        )
        raise ValueError(msg)
    if any(part.get(2, 0) > _WIDTH[_FIXED_BYTES] for part in leaves):
        msg = "a column of wide values"
        raise ValueError(msg)
    key = [part[4] for part in leaves].index(_KEYS)
    memory = keys = key_bytes = stored = 0
    for group in groups:
        chunks = [chunk[3] for chunk in group[1]]
        types = [chunk[1] for chunk in chunks]  # must agree with the tree's, which Arrow uses
        if types != [part[1] for part in leaves] or not 0 <= group[3] <= ROW_GROUP:
            msg = f"a row group of {group[3]:,} rows and {len(chunks)} columns, or of other types"
            raise ValueError(msg)
        memory += sum(_memory(chunk, group[3], size) for chunk in chunks) + _KEY * group[3]
        keys += chunks[key][7]
        key_bytes += chunks[key][6]
        stored += sum(chunk[7] for chunk in chunks)
    if stored > size:  # bounds the walk through all pages
        msg = f"columns of {stored:,} stored bytes in a file of {size:,}"
        raise ValueError(msg)
    if rows > keys + ROW_GROUP:  # keys differ, so LZ4 needs three bytes for each
        msg = f"{rows:,} rows with {keys:,} bytes of keys"
        raise ValueError(msg)
    # Keys become Python strings, and are joined again where they are written.
    limit = MOST_KEY_BYTES + MOST_KEY_EACH * rows + MOST_KEY_RATIO * keys
    if key_bytes > limit:
        msg = f"keys of {key_bytes:,} bytes; at most {limit:,} are allowed for {rows:,} rows"
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
        ValueError: its metadata is not as a run writes it.
    """
    kind = chunk[1]
    values = chunk[5]
    large = chunk[6]
    stored = chunk[7]
    valid_types = kind in _TYPES and chunk[4] in _LZ4 and set(chunk[2]) <= _ENCODINGS
    in_file = 4 <= _first(chunk) <= _first(chunk) + stored <= size or not rows
    if not (valid_types and in_file and 0 <= values <= WIDEST * max(1, rows) and large >= 0):
        msg = f"the column {chunk[3][0][:80]!r} is not as datacheck writes it"
        raise ValueError(msg)
    return int(values) * (_WIDTH[kind] + 1) + (int(large) if kind == _TEXT else 0)


def _first(chunk: dict[int, Any]) -> int:
    """Return where the pages of a column begin; field 11 is the offset of its dictionary."""
    return int(min(chunk[9], chunk.get(11, chunk[9])))


def _check_pages(file: BinaryIO, chunk: dict[int, Any], *, plain: bool) -> None:
    """Refuse pages that together exceed their column, and dictionaries with more words than rows.

    Args:
        file: open.
        chunk: the column's metadata in the footer.
        plain: whether every text must be stored in full. A dictionary, or an encoding that shares
            prefixes, expands a few bytes to a gigabyte unless the column is read as a dictionary.
    """
    place = _first(chunk)
    large = chunk[6]
    stop = place + chunk[7]
    while place < stop:
        file.seek(place)
        header = _Thrift(file.read(min(_PAGE_HEAD, stop - place)))
        page = header.struct()
        large -= page[2]
        place += header.at + page[3]
        if page[2] < 0 or page[3] < 0 or large < 0 or place > stop:
            msg = "a page is larger than its column"
            raise ValueError(msg)
        few = page[1] != _DICTIONARY or page[7][1] <= chunk[5]
        # Page type 0 is a data page, and encoding 0 is PLAIN.
        if not few or (plain and (page[1] or page[5][2])):
            msg = f"the column {chunk[3][0][:80]!r} is not as datacheck writes it"
            raise ValueError(msg)


Array = np.ndarray[Any, Any]

CODES = "codes"

SAMPLES_BYTES = 64 << 30
_ROW_GROUP = ROW_GROUP
_NUMBER = 9  # bytes of a number in a list, and of the flag whether it is present
_OCTETS = np.iinfo(np.int32).max  # bytes of the texts of one array
_LONG = 1 << 12  # bytes of a word: a scan hardly ever writes a longer one
_FEW = 1000  # keys that are read one by one before the whole column is read
_FIXED = ("key", "file", "inner", "split", "group", "status", "reason", "nbytes", CODES)
_STATUS = {CHECKED: "checked", UNREADABLE: "unreadable", SKIPPED: "skipped"}
_HEAD = b"datacheck"


def table_bytes(table: Table, failing: Texts | None = None) -> memoryview:
    """Return the table as Parquet: one row per sample, absent measurements null.

    Row groups have 65,536 rows.

    Args:
        table: the rows.
        failing: per row, the codes that it fails, separated by spaces.
    """
    import pyarrow as pa  # noqa: PLC0415  takes 0.1 s, which only a finished scan should pay
    import pyarrow.parquet as pq  # noqa: PLC0415

    failing = failing or Texts([""], np.zeros(len(table), np.int32))
    head = {"files_are_keys": table.files is table.keys, CODES: codes_digest(failing)}
    sink = pa.BufferOutputStream()
    writer: Any = None
    for start in range(0, max(len(table), 1), _ROW_GROUP):
        batch = _arrow(table, failing, slice(start, start + _ROW_GROUP))
        if writer is None:
            schema = batch.schema.with_metadata({_HEAD: orjson.dumps(head)})
            texts = [
                column.name
                for column in schema
                if pa.types.is_string(column.type) and column.name != "key"
            ]
            writer = pq.ParquetWriter(
                sink,
                schema,
                compression="lz4",
                use_dictionary=texts,
                write_batch_size=_ROW_GROUP,
                # Nothing reads statistics, and writing them takes as long as a quarter of the rows.
                write_statistics=False,
            )
        writer.write_table(batch.replace_schema_metadata(schema.metadata))
    writer.close()
    pa.default_memory_pool().release_unused()
    return memoryview(sink.getvalue())


def codes_digest(failing: Texts) -> str:
    """Return a digest of the column `codes`, equal for runs whose rows fail the same codes."""
    words = failing.present()
    # Numbers of `present` words only, so repeated and unused words do not change the digest.
    numbers = {word: number for number, word in enumerate(words)}
    rows = np.array([numbers.get(word, -1) for word in failing.words], np.int32)[failing.rows]
    return f"{digest64(chr(0).join(words).encode()):016x}{digest64(rows.data):016x}"


def _arrow(table: Table, failing: Texts, rows: slice) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    status = Texts(list(_STATUS.values()), table.status.astype(np.int32))
    texts: dict[str, Sequence[str]] = {
        "key": table.keys,
        "file": table.files,
        "inner": table.inner,
        "split": table.splits,
        "group": table.groups,
        "status": status,
        "reason": table.reasons,
        CODES: failing,
    }
    columns = {
        name: _numbers(pa, table.nbytes[rows])
        if name == "nbytes"
        else _arrow_texts(pa, texts[name][rows])
        for name in _FIXED
    }
    for name, column in sorted(table.columns.items()):
        columns[name] = _arrow_column(pa, column.values[rows], column.present[rows])
    return pa.table(columns)


def _arrow_texts(pa: Any, texts: Sequence[str]) -> Any:
    # With more words than texts, most words are in rows of other groups.
    if isinstance(texts, Texts) and len(texts.words) <= len(texts):
        words = [word.encode() for word in texts.words]
        rows = texts.rows
        lengths = np.array([*map(len, words), 0])[rows]
        constant = len(rows) and rows.min() == rows.max()
        octets = (
            words[rows[0]] * len(rows)
            if constant
            else b"".join([words[row] for row in rows.tolist()])
        )
        return _strings(pa, octets, lengths)
    if isinstance(texts, NumberedKeys):
        octets, stops = texts.octets()
        return _strings(pa, octets, np.diff(stops, prepend=0))
    return _strings(pa, *_encoded(texts))


def _encoded(texts: Sequence[str]) -> tuple[bytes, Array]:
    """Return the concatenated UTF-8 of texts, and the number of bytes of each."""
    octets = "".join(texts).encode()
    lengths = [*map(len, texts)]
    if len(octets) > sum(lengths):
        lengths = [len(text.encode()) for text in texts]
    return octets, np.array(lengths, np.int64)


def _strings(pa: Any, octets: Any, lengths: Array, present: Array | None = None) -> Any:
    """Return an array of texts, from buffers.

    All other ways to make one import pandas if it is installed (0.15 s).
    """
    ends = np.concatenate([[0], np.cumsum(lengths)])
    chunks: list[Any] = []
    row = 0
    while row < len(lengths) or not chunks:
        stop = max(row + 1, int(np.searchsorted(ends, ends[row] + _OCTETS, side="right")) - 1)
        stop = min(stop, len(lengths))
        part = None if present is None else present[row:stop]
        offsets = pa.py_buffer((ends[row : stop + 1] - ends[row]).astype(np.int32))
        texts = pa.py_buffer(octets[ends[row] : ends[stop]])
        chunks.append(pa.StringArray.from_buffers(stop - row, offsets, texts, _validity(pa, part)))
        row = stop
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks)


def _validity(pa: Any, present: Array | None) -> Any:
    return None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))


def _arrow_column(pa: Any, values: Array, present: Array) -> Any:
    validity = None if present.all() else present
    if values.dtype.kind in "OU":
        if validity is None and len(values) and not values.strides[0]:  # one text for all rows
            return _arrow_texts(pa, Texts([values[0]], np.zeros(len(values), np.int32)))
        return _strings(pa, *_encoded(np.where(present, values, "").tolist()), validity)
    if values.ndim == 1:
        return _numbers(pa, values, validity)
    flat = _numbers(pa, values.reshape(-1))
    kind = pa.list_(flat.type, values.shape[1])
    return pa.FixedSizeListArray.from_buffers(
        kind, len(values), [_validity(pa, validity)], children=[flat]
    )


def _numbers(pa: Any, values: Array, present: Array | None = None) -> Any:
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    data = np.packbits(values, bitorder="little") if values.dtype.kind == "b" else values
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [_validity(pa, present), pa.py_buffer(data)]
    )


# ------------------------------------------------------------------------------------------ reading


class _StoredKeys(Sequence[str]):
    """The keys of a file. Single keys are read one by one, since most scans name few samples."""

    def __init__(self, file: _SamplesFile) -> None:
        self._file = file
        self._asked = 0
        self._texts: list[str] | None = None

    def _all(self) -> list[str]:
        if self._texts is None:
            self._texts = self._file.keys()
        return self._texts

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        """Return one text, or a slice of them."""
        if (
            self._texts is None
            and isinstance(place, int)
            and 0 <= place < len(self)
            and self._asked < _FEW
        ):
            self._asked += 1
            return self._file.key(place)
        return self._all()[place]

    def __len__(self) -> int:
        return self._file.count

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())


class _StoredColumns(MutableMapping[str, Measured]):
    """The measured columns of a file, each read when it is first accessed."""

    def __init__(self, file: _SamplesFile, names: Sequence[str]) -> None:
        self._file = file
        self._known: dict[str, Measured | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Measured:
        column = self._known[name]
        if column is None:
            column = self._known[name] = self._file.measured(name)
        return column

    def __setitem__(self, name: str, column: Measured) -> None:
        self._known[name] = column

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


# Stamp and memory of the last checked file: a command opens one file several times.
_checked: tuple[tuple[int, ...], int] = ((), 0)


def _check(path: Path) -> int:
    """Return the bytes that all columns take in memory (see `check`); cached for the last file."""
    global _checked
    with open_document(path, SAMPLES_BYTES, links=False) as file:
        status = os.fstat(file.fileno())
        stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if stamp != _checked[0]:
            _checked = stamp, check(file)
        return _checked[1]


def _width(pa: Any, kind: Any) -> int:
    """Return the numbers per row of a list column, else 0.

    Raises:
        ValueError: no scan writes columns of that type.
    """
    lists = pa.types.is_fixed_size_list(kind)
    inner = kind.value_type if lists else kind
    plain = pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)
    if not (plain or pa.types.is_string(kind)) or (lists and not 0 < kind.list_size <= WIDEST):
        msg = f"a column of type {str(kind)[:80]}, which no scan writes"
        raise ValueError(msg)
    return int(kind.list_size) if lists else 0


class _SamplesFile:
    """An open samples.parquet."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._pa, self._path = pa, path
        # The memory of list columns is added when they are read.
        self._memory, self._size = _check(path), path.stat().st_size
        plain = pq.ParquetFile(path, memory_map=True)
        self._widths = {column.name: _width(pa, column.type) for column in plain.schema_arrow}
        self.names: list[str] = plain.schema_arrow.names
        self.head: dict[str, Any] = orjson.loads(plain.schema_arrow.metadata[_HEAD])
        texts = [column.name for column in plain.schema_arrow if pa.types.is_string(column.type)]
        self._file = pq.ParquetFile(
            path,
            memory_map=True,
            metadata=plain.metadata,
            read_dictionary=[t for t in texts if t != "key"],
        )
        self.count: int = plain.metadata.num_rows
        self._groups: dict[int, Any] = {}  # row groups of the key column

    def chunks(self, name: str) -> list[Any]:
        """Return a column in chunks.

        Raises:
            DamagedRunError: it cannot be read, or lacks rows.
        """
        with self._reading(name):
            self._memory += _NUMBER * self._widths.pop(name, 0) * self.count
            check_memory(self._memory, self._size, self.count)
            chunks: list[Any] = self._file.read(columns=[name], use_threads=False)[name].chunks
            self._memory += sum(
                _wide(chunk.dictionary) for chunk in chunks if hasattr(chunk, "dictionary")
            )
            check_memory(self._memory, self._size, self.count)
        if (rows := sum(map(len, chunks))) != self.count:
            raise self._damaged(name, f"{rows:,} rows for {self.count:,}")
        return chunks

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._damaged(name, f"{type(error).__name__}: {str(error)[:200]}") from error

    def _damaged(self, name: str, why: str) -> DamagedRunError:
        return DamagedRunError(
            f"{self._path}: the column {name[:80]!r} cannot be read ({why}). Scan the data again."
        )

    def key(self, row: int) -> str:
        """Return one key; reads its row group."""
        group, place = divmod(row, _ROW_GROUP)
        with self._reading("key"):
            if group not in self._groups:
                self._groups[group] = self._file.read_row_group(
                    group, columns=["key"], use_threads=False
                )["key"]
            return str(self._groups[group][place])

    def keys(self) -> list[str]:
        """Return the column of keys."""
        name = "key"
        chunks = self.chunks(name)
        if any(chunk.null_count for chunk in chunks):
            raise self._damaged(name, "a sample has none")
        with self._reading(name):
            return [key for chunk in chunks for key in chunk.to_pylist()]

    def texts(self, name: str) -> Texts:
        """Return a column of texts with few different words; "" where a text is absent."""
        numbers = {"": 0}
        rows = [np.zeros(0, np.int32)]
        chunks = self.chunks(name)
        with self._reading(name):
            for chunk in chunks:
                # `to_numpy` would import pandas if it is installed.
                every = chunk.dictionary.to_pylist()
                words = [numbers.setdefault(word, len(numbers)) for word in every]
                places = np.array([*words, 0], np.int32)
                rows.append(
                    places[np.where(present_in(chunk), numbers_of(chunk.indices), len(words))]
                )
            return Texts(list(numbers), np.concatenate(rows))

    def measured(self, name: str) -> Measured:
        """Return a measured column; absent values are zero or ""."""
        chunks = self.chunks(name)
        with self._reading(name):
            kind = chunks[0].type
            present = np.concatenate([present_in(chunk) for chunk in chunks])
            if self._pa.types.is_dictionary(kind):
                return Measured(np.concatenate([_words(chunk) for chunk in chunks]), present)
            values = np.concatenate([_values(chunk) for chunk in chunks])
            if not present.all():
                values[~present] = 0
            return Measured(values, present)


def _wide(words: Any) -> int:
    """Return the additional bytes of long words as Python strings.

    With an emoji, a string takes four bytes for each letter.
    """
    return 3 * max(0, int(words.nbytes) - _LONG * len(words))


def _values(chunk: Any) -> Array:
    width = getattr(chunk.type, "list_size", None)
    if width is None:
        return numbers_of(chunk)
    return numbers_of(chunk.values)[
        chunk.offset * width : (chunk.offset + len(chunk)) * width
    ].reshape(len(chunk), width)


def _words(chunk: Any) -> Array:
    """Return the texts of a dictionary array as objects, "" where a text is absent."""
    words = np.empty(len(chunk.dictionary) + 1, dtype=object)
    words[:-1], words[-1] = chunk.dictionary.to_pylist(), ""
    return words[np.where(present_in(chunk), numbers_of(chunk.indices), len(words) - 1)]


def read_table(path: Path) -> Table:
    """Return the table in a samples.parquet; keys and measured columns are read on access.

    Raises:
        Exception: of many kinds, where the file is damaged.
    """
    file = _SamplesFile(path)
    status = file.texts("status")
    numbers = {text: number for number, text in _STATUS.items()} | {"": CHECKED}
    keys = _StoredKeys(file)
    return Table(
        keys=keys,
        files=keys if file.head["files_are_keys"] else file.texts("file"),
        inner=file.texts("inner"),
        splits=file.texts("split"),
        groups=file.texts("group"),
        reasons=file.texts("reason"),
        status=np.array([numbers[word] for word in status.words], np.int8)[status.rows],
        nbytes=file.measured("nbytes").values,
        columns=_StoredColumns(file, [name for name in file.names if name not in _FIXED]),
    )


def read_failing(path: Path) -> Texts:
    """Return per row of a file the codes that it fails, separated by spaces."""
    return _SamplesFile(path).texts(CODES)


def read_codes(path: Path) -> str:
    """Return the digest of the column `codes` of a file."""
    digest: str = _SamplesFile(path).head[CODES]
    return digest
