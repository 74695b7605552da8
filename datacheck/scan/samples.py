"""samples.parquet: one row per sample with everything that was measured; columns are read when they are asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import orjson

from datacheck.digest import digest64
from datacheck.errors import DamagedRunError
from datacheck.numbered import Numbered
from datacheck.runtime.documents import open_document
from datacheck.scan import footer
from datacheck.table import CHECKED, SKIPPED, UNREADABLE, WIDEST, Measured, Table, Texts

Array = np.ndarray[Any, Any]

CODES = "codes"

SAMPLES_BYTES = 64 << 30
_ROW_GROUP = footer.ROW_GROUP
_NUMBER = 9  # bytes of a number of a list and of whether it is there
_OCTETS = np.iinfo(np.int32).max  # of the texts of one array
_LONG = 1 << 12  # bytes of a word: what a scan writes is hardly ever longer
_FEW = 1000  # keys that are read one by one before all of them are
_FIXED = ("key", "file", "inner", "split", "group", "status", "reason", "nbytes", CODES)
_STATUS = {CHECKED: "checked", UNREADABLE: "unreadable", SKIPPED: "skipped"}
_HEAD = b"datacheck"


def table_bytes(table: Table, failing: Texts | None = None) -> memoryview:
    """Return the table as Parquet: one row per sample, absent measurements null, row groups of 65,536.

    Args:
        table: the rows.
        failing: per row, the codes that it fails, with spaces between.
    """
    import pyarrow as pa  # noqa: PLC0415  0.1 s that only a finished scan should pay
    import pyarrow.parquet as pq  # noqa: PLC0415

    failing = failing or Texts([""], np.zeros(len(table), np.int32))
    head = {"files_are_keys": table.files is table.keys, CODES: codes_digest(failing)}
    sink = pa.BufferOutputStream()
    writer: Any = None
    for start in range(0, max(len(table), 1), _ROW_GROUP):
        batch = _arrow(table, failing, slice(start, start + _ROW_GROUP))
        if writer is None:
            schema = batch.schema.with_metadata({_HEAD: orjson.dumps(head)})
            texts = [column.name for column in schema if pa.types.is_string(column.type) and column.name != "key"]
            writer = pq.ParquetWriter(
                sink, schema, compression="lz4", use_dictionary=texts, write_batch_size=_ROW_GROUP,
                write_statistics=False,  # nobody asks for them, and they take as long as a quarter of the rows
            )  # fmt: skip
        writer.write_table(batch.replace_schema_metadata(schema.metadata))
    writer.close()
    pa.default_memory_pool().release_unused()
    return memoryview(sink.getvalue())


def codes_digest(failing: Texts) -> str:
    """Return the digest of the column `codes`: whether rows fail what they failed in another run."""
    words = failing.present()
    numbers = {word: number for number, word in enumerate(words)}  # without regard to words twice, or in no row
    rows = np.array([numbers.get(word, -1) for word in failing.words], np.int32)[failing.rows]
    return f"{digest64(chr(0).join(words).encode()):016x}{digest64(rows.data):016x}"


def _arrow(table: Table, failing: Texts, rows: slice) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    status = Texts(list(_STATUS.values()), table.status.astype(np.int32))
    texts: dict[str, Sequence[str]] = {
        "key": table.keys, "file": table.files, "inner": table.inner, "split": table.splits, "group": table.groups,
        "status": status, "reason": table.reasons, CODES: failing,
    }  # fmt: skip
    columns = {
        name: _numbers(pa, table.nbytes[rows]) if name == "nbytes" else _arrow_texts(pa, texts[name][rows])
        for name in _FIXED
    }
    for name, column in sorted(table.columns.items()):
        columns[name] = _arrow_column(pa, column.values[rows], column.present[rows])
    return pa.table(columns)


def _arrow_texts(pa: Any, texts: Sequence[str]) -> Any:
    if isinstance(texts, Texts) and len(texts.words) <= len(texts):  # else most words are in rows of other groups
        words, rows = [word.encode() for word in texts.words], texts.rows
        lengths = np.array([*map(len, words), 0])[rows]
        alike = len(rows) and rows.min() == rows.max()
        octets = words[rows[0]] * len(rows) if alike else b"".join([words[row] for row in rows.tolist()])
        return _strings(pa, octets, lengths)
    if isinstance(texts, Numbered):
        octets, stops = texts.octets()
        return _strings(pa, octets, np.diff(stops, prepend=0))
    return _strings(pa, *_encoded(texts))


def _encoded(texts: Sequence[str]) -> tuple[bytes, Array]:
    """Return the UTF-8 of texts one behind the other, and how many bytes each has."""
    octets, lengths = "".join(texts).encode(), [*map(len, texts)]
    if len(octets) > sum(lengths):
        lengths = [len(text.encode()) for text in texts]
    return octets, np.array(lengths, np.int64)


def _strings(pa: Any, octets: Any, lengths: Array, present: Array | None = None) -> Any:
    """Return an array of texts; all other ways to make one import pandas, where there is one (0.15 s)."""
    ends, octets = np.concatenate([[0], np.cumsum(lengths)]), pa.py_buffer(octets)
    bits = _validity(pa, present)
    if ends[-1] <= _OCTETS:
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends.astype(np.int32)), octets, bits)
    every = pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(ends), octets, bits)
    return pa.chunked_array([every[row : row + 1].cast(pa.string()) for row in range(len(lengths))])


def _validity(pa: Any, present: Array | None) -> Any:
    return None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))


def _arrow_column(pa: Any, values: Array, present: Array) -> Any:
    known = None if present.all() else present
    if values.dtype.kind in "OU":
        if known is None and len(values) and not values.strides[0]:  # one text for all
            return _arrow_texts(pa, Texts([values[0]], np.zeros(len(values), np.int32)))
        return _strings(pa, *_encoded(np.where(present, values, "").tolist()), known)
    if values.ndim == 1:
        return _numbers(pa, values, known)
    flat = _numbers(pa, values.reshape(-1))
    kind = pa.list_(flat.type, values.shape[1])
    return pa.FixedSizeListArray.from_buffers(kind, len(values), [_validity(pa, known)], children=[flat])


def _numbers(pa: Any, values: Array, present: Array | None = None) -> Any:
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    data = np.packbits(values, bitorder="little") if values.dtype.kind == "b" else values
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [_validity(pa, present), pa.py_buffer(data)]
    )


# ------------------------------------------------------------------------------------------------ reading


class _Keys(Sequence[str]):
    """The keys of a file, of which a few are read by themselves: most scans name few samples, or none."""

    def __init__(self, file: _File) -> None:
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
        """Return one text, or some of them."""
        if self._texts is None and isinstance(place, int) and 0 <= place < len(self) and self._asked < _FEW:
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


class _Stored(MutableMapping[str, Measured]):
    """The measured columns of a file, each read when it is first asked for."""

    def __init__(self, file: _File, names: Sequence[str]) -> None:
        self._file = file
        self._known: dict[str, Measured | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Measured:
        found = self._known[name]
        if found is None:
            found = self._known[name] = self._file.measured(name)
        return found

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


_checked: tuple[tuple[int, ...], int] = (), 0  # the last file, and its memory: a command opens one several times


def _check(path: Path) -> int:
    """Return the bytes of memory that all columns take, of lists one number each; see `footer.check`."""
    global _checked
    with open_document(path, SAMPLES_BYTES, links=False) as file:
        status = os.fstat(file.fileno())
        stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if stamp != _checked[0]:
            _checked = stamp, footer.check(file)
        return _checked[1]


def _width(pa: Any, kind: Any) -> int:
    """Return how many numbers a row of a column of lists holds, else 0.

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


class _File:
    """An open samples.parquet."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._pa, self._path = pa, path
        self._memory, self._size = _check(path), path.stat().st_size  # of lists only those that were read
        plain = pq.ParquetFile(path, memory_map=True)
        self._widths = {column.name: _width(pa, column.type) for column in plain.schema_arrow}
        self.names: list[str] = plain.schema_arrow.names
        self.head: dict[str, Any] = orjson.loads(plain.schema_arrow.metadata[_HEAD])
        texts = [column.name for column in plain.schema_arrow if pa.types.is_string(column.type)]
        self._file = pq.ParquetFile(
            path, memory_map=True, metadata=plain.metadata, read_dictionary=[t for t in texts if t != "key"]
        )
        self.count: int = plain.metadata.num_rows
        self._groups: dict[int, Any] = {}  # of keys

    def chunks(self, name: str) -> list[Any]:
        """Return a column in pieces.

        Raises:
            DamagedRunError: it cannot be read, or lacks rows.
        """
        with self._reading(name):
            self._memory += _NUMBER * self._widths.pop(name, 0) * self.count
            footer.check_memory(self._memory, self._size, self.count)
            chunks: list[Any] = self._file.read(columns=[name], use_threads=False)[name].chunks
            self._memory += sum(_wide(chunk.dictionary) for chunk in chunks if hasattr(chunk, "dictionary"))
            footer.check_memory(self._memory, self._size, self.count)
        if (found := sum(map(len, chunks))) != self.count:
            raise self._damaged(name, f"{found:,} rows for {self.count:,}")
        return chunks

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._damaged(name, f"{type(error).__name__}: {str(error)[:200]}") from error

    def _damaged(self, name: str, why: str) -> DamagedRunError:
        return DamagedRunError(f"{self._path}: the column {name[:80]!r} cannot be read ({why}). Scan the data again.")

    def key(self, row: int) -> str:
        """Return one key; its row group is read."""
        group, place = divmod(row, _ROW_GROUP)
        with self._reading("key"):
            if group not in self._groups:
                self._groups[group] = self._file.read_row_group(group, columns=["key"], use_threads=False)["key"]
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
        """Return a column of texts of which few differ; "" where there is none."""
        numbers = {"": 0}
        rows = [np.zeros(0, np.int32)]
        chunks = self.chunks(name)
        with self._reading(name):
            for chunk in chunks:
                every = chunk.dictionary.to_pylist()  # `to_numpy` would import pandas, where there is one
                words = [numbers.setdefault(word, len(numbers)) for word in every]
                places = np.array([*words, 0], np.int32)
                rows.append(places[np.where(_present(chunk), _plain(chunk.indices), len(words))])
            return Texts(list(numbers), np.concatenate(rows))

    def measured(self, name: str) -> Measured:
        """Return a measured column; what is absent is zero or ""."""
        chunks = self.chunks(name)
        with self._reading(name):
            kind = chunks[0].type
            present = np.concatenate([_present(chunk) for chunk in chunks])
            if self._pa.types.is_dictionary(kind):
                return Measured(np.concatenate([_words(chunk) for chunk in chunks]), present)
            values = np.concatenate([_values(chunk) for chunk in chunks])
            if not present.all():
                values[~present] = 0
            return Measured(values, present)


def _wide(words: Any) -> int:
    """Return the bytes that long words take as texts of Python beside their own: with an emoji four for each letter."""
    return 3 * max(0, int(words.nbytes) - _LONG * len(words))


def _present(chunk: Any) -> Array:
    if not chunk.null_count:
        return np.ones(len(chunk), bool)
    return _bits(chunk.buffers()[0], chunk)


def _bits(buffer: Any, chunk: Any) -> Array:
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
    return bits[chunk.offset : chunk.offset + len(chunk)].view(bool)


def _values(chunk: Any) -> Array:
    width = getattr(chunk.type, "list_size", None)
    if width is None:
        return _plain(chunk)
    return _plain(chunk.values)[chunk.offset * width : (chunk.offset + len(chunk)) * width].reshape(len(chunk), width)


def _words(chunk: Any) -> Array:
    """Return the texts of a dictionary array as objects, "" where there is none."""
    words = np.empty(len(chunk.dictionary) + 1, dtype=object)
    words[:-1], words[-1] = chunk.dictionary.to_pylist(), ""
    return words[np.where(_present(chunk), _plain(chunk.indices), len(words) - 1)]


def _plain(chunk: Any) -> Array:
    """Return the numbers of an array, whatever stands where there are none."""
    dtype, data = np.dtype(chunk.type.to_pandas_dtype()), chunk.buffers()[1]
    if dtype.kind == "b":
        return _bits(data, chunk)
    return np.frombuffer(data, dtype, len(chunk), chunk.offset * dtype.itemsize)


def read_table(path: Path) -> Table:
    """Return the table that `table_bytes` made; keys and measured columns are read when they are asked for.

    Raises:
        Exception: of many kinds, where the file is damaged.
    """
    file = _File(path)
    status = file.texts("status")
    numbers = {text: number for number, text in _STATUS.items()} | {"": CHECKED}
    keys = _Keys(file)
    return Table(
        keys=keys,
        files=keys if file.head["files_are_keys"] else file.texts("file"),
        inner=file.texts("inner"),
        splits=file.texts("split"),
        groups=file.texts("group"),
        reasons=file.texts("reason"),
        status=np.array([numbers[word] for word in status.words], np.int8)[status.rows],
        nbytes=file.measured("nbytes").values,
        columns=_Stored(file, [name for name in file.names if name not in _FIXED]),
    )


def read_failing(path: Path) -> Texts:
    """Return per row of a file the codes that it fails, with spaces between."""
    return _File(path).texts(CODES)


def read_codes(path: Path) -> str:
    """Return the digest of the column `codes` of a file."""
    found: str = _File(path).head[CODES]
    return found
