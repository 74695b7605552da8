"""Table: one row per listed sample and one column per measured scalar.

`concatenate` is the only way to merge tables: it joins their rows in key order. A column may be
absent for some rows, because the measurement did not apply or did not run. Such rows are marked as
absent and never filled with a number that looks real.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from datacheck.model.row_keys import NumberedKeys

Array = np.ndarray[Any, Any]

CHECKED = 0
UNREADABLE = 1
SKIPPED = 2
# Columns in which many rows hold the same text.
_REPETITIVE = ("inner", "splits", "groups", "reasons")
_TEXTS = ("keys", "files", *_REPETITIVE)
WIDEST = 4096  # numbers that one value of a column may hold
# Column with the bytes that a field's wide columns would take in a row where a run leaves them out.
# Each number counts `WIDE_NUMBER` bytes, as samples.parquet is written and read.
LEFT_OUT = "left_out"
WIDE_NUMBER = 18
# Prefix of the reason of a row that stands for a folder, which may hold any number of samples.
NOT_LISTED = "not listed: "
# In the reason of a row on which a built-in measurement crashes.
FAULT = "a fault of datacheck: please report it"
_KINDS = "biufOU"

Slot = tuple[str, str]  # an item's path and split; its rows have them as file and split


class Texts(Sequence[str]):
    """A column of texts with many duplicates: the distinct texts and one index per row.

    Shapes:
        rows: int32 (rows), indices into `words`
    """

    def __init__(self, words: Sequence[str], rows: Array) -> None:
        self.words = words
        self.rows = rows

    @staticmethod
    def of(texts: Sequence[str]) -> Texts:
        """Return a column of these texts; `words` are in order of first appearance."""
        if isinstance(texts, Texts):
            return texts
        if isinstance(texts, list) and texts and texts.count(texts[0]) == len(texts):
            return Texts(texts[:1], np.zeros(len(texts), np.int32))
        words = list(dict.fromkeys(texts))  # no Python loop: there may be a million texts
        if len(words) == len(texts):
            return Texts(words, np.arange(len(words), dtype=np.int32))
        numbers = dict(zip(words, range(len(words)), strict=True))
        return Texts(words, np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts)))

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Texts: ...
    def __getitem__(self, place: int | slice) -> str | Texts:
        """Return one text, or the column of a slice of rows."""
        return (
            Texts(self.words, self.rows[place])
            if isinstance(place, slice)
            else self.words[self.rows[place]]
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return map(self.words.__getitem__, self.rows.tolist())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(map(operator.eq, self, other))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def take(self, index: Array) -> Texts:
        """Return the texts at `index`."""
        return Texts(self.words, self.rows[index])

    def holds(self, some: Iterable[str]) -> bool:
        """Return whether any row holds one of these texts."""
        return not self._met.isdisjoint(some)

    @cached_property
    def _met(self) -> frozenset[str]:
        return frozenset(self.present())

    def present(self) -> list[str]:
        """Return the distinct texts of all rows, sorted."""
        met = np.flatnonzero(np.bincount(self.rows, minlength=len(self.words)))
        return sorted(dict.fromkeys(self.words[i] for i in met.tolist()))  # nearly sorted already

    def places(self) -> Iterator[tuple[str, Array]]:
        """Yield (text, int64 indices of its rows), sorted by text."""
        if not len(self):
            return
        order = np.argsort(self.rows, kind="stable")
        numbers, starts = np.unique(self.rows[order], return_index=True)
        parts = np.split(order, starts[1:]) if len(order) else []
        row_groups = dict(zip(numbers.tolist(), parts, strict=True))
        for number in sorted(row_groups, key=self.words.__getitem__):
            yield self.words[number], row_groups[number]


class Measured(NamedTuple):
    """The values of one column and a mask of the rows that have one.

    Shapes:
        values: number or bool (rows) or (rows, k), k at most 4,096; object (rows) for text
        present: bool (rows)
    """

    values: Array
    present: Array


@dataclass(frozen=True)
class Note:
    """A fact about a key or a file that needs no opened file: a missing, unlisted or changed file.

    Args:
        code: the rule that reports it.
        key: the sample, or the file's relative path.
        reason: one sentence.
        missing: the sample cannot be read at all; it becomes an UNREADABLE row.
        split: the split it belongs to, or "".
        about: further facts as JSON values; ``kind`` distinguishes notes of one code.
    """

    code: str
    key: str
    reason: str
    missing: bool = False
    split: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Table:
    """Rows of all samples in key order.

    Args:
        keys, files, splits, groups: one text per row; `files` is relative to the root.
        inner: the path inside the file ("" where the file is the sample).
        status: int8: CHECKED, UNREADABLE or SKIPPED.
        reasons: why a row is not CHECKED, "" otherwise; starts with the code ("DC101 truncated
            ...").
        nbytes: int64, bytes of the sample's fields.
        columns: measured columns by name, ``field:stat`` or ``:stat`` for the sample as a whole.
    """

    keys: Sequence[str] = field(default_factory=list)
    files: Sequence[str] = field(default_factory=list)
    inner: Sequence[str] = field(default_factory=list)
    splits: Sequence[str] = field(default_factory=list)
    groups: Sequence[str] = field(default_factory=list)
    status: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    reasons: Sequence[str] = field(default_factory=list)
    nbytes: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    columns: MutableMapping[str, Measured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _REPETITIVE:
            setattr(self, name, Texts.of(getattr(self, name)))
        if self.files is not self.keys and not isinstance(self.files, Texts):
            self.files = self.keys if self.files == self.keys else Texts.of(self.files)

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, index: Array, field_name: str = "") -> Rows:
        """Return the rows at `index` as a rule about `field_name` sees them ("": whole samples)."""
        return Rows(self, np.asarray(index, dtype=np.int64), field_name)

    def present(self, field_name: str) -> Array:
        """Return bool (rows): where a field has a measurement ("": the sample as a whole)."""
        is_present = np.zeros(len(self), bool)
        names = [name for name in self.columns if name.startswith(field_name)]
        for name in sorted(name for name in names if name.rpartition(":")[0] == field_name):
            if is_present.all():
                break
            is_present |= self.columns[name].present
        return is_present

    def as_wire(self) -> dict[str, Any]:
        """Return the table as JSON values and arrays (what `wire.encode` takes)."""
        columns = {
            name: [_packed(m.values) if m.values.dtype.hasobject else m.values, m.present]
            for name, m in self.columns.items()
        }
        texts = {name: _packed(getattr(self, name)) for name in _TEXTS if name != "keys"}
        if isinstance(self.keys, NumberedKeys):
            texts["keys"] = [self.keys.heads, self.keys.rows, self.keys.numbers]
        else:
            # Keys are unique: packing them would only find that out slowly.
            texts["keys"] = [list(self.keys), None]
        if self.files is self.keys:
            texts["files"] = [[], None]
        return {"texts": texts, "status": self.status, "nbytes": self.nbytes, "columns": columns}

    @staticmethod
    def from_wire(data: dict[str, Any]) -> Table:
        """Return the table of `as_wire`; equal texts of a column share one object.

        Raises:
            ValueError: the data are malformed: a compromised worker or a foreign file wrote them.
        """
        try:
            table = _decode_wire(data)
            sound = _is_sound(table, data)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(_NO_TABLE) from error
        if not sound:
            raise ValueError(_NO_TABLE)
        return table

    @staticmethod
    def is_wire(data: Any) -> bool:
        """Return True for a value of `as_wire`; raise `ValueError` for any other."""
        Table.from_wire(data)
        return True

    def take(self, index: Array) -> Table:
        """Return the rows at `index`, in that order."""
        keys = _take_texts(self.keys, index)
        return Table(
            keys=keys,
            files=keys if self.files is self.keys else _take_texts(self.files, index),
            **{name: _take_texts(getattr(self, name), index) for name in _REPETITIVE},
            status=self.status[index],
            nbytes=self.nbytes[index],
            columns={
                name: Measured(m.values[index], m.present[index])
                for name, m in self.columns.items()
            },
        )


_NO_TABLE = "rows of another form than datacheck gives them"


def _decode_wire(data: dict[str, Any]) -> Table:
    texts = {name: _unpacked(*data["texts"][name]) for name in _TEXTS}
    texts["files"] = texts["files"] or texts["keys"]
    columns = {
        name: Measured(
            _objects(_unpacked(*values)) if isinstance(values, list) else values, present
        )
        for name, (values, present) in data["columns"].items()
    }
    return Table(**texts, status=data["status"], nbytes=data["nbytes"], columns=columns)


def _is_sound(table: Table, data: dict[str, Any]) -> bool:
    """Return whether columns and texts have the types and lengths that a table requires."""
    count = len(table)
    texts = [data["texts"][name][0] for name in _TEXTS]
    packed = [value[0] for value, _ in data["columns"].values() if isinstance(value, list)]
    return (
        all(
            isinstance(text_list, list) and _are_texts(text_list)
            for text_list in (*texts, *packed, list(table.columns))
        )
        and all(_has_rows(getattr(table, name), count) for name in _TEXTS)
        and _is_column(table.status, count, "i1", range(CHECKED, SKIPPED + 1))
        and _is_column(table.nbytes, count, "i8", range(2**63))
        and all(_is_measured(column, count) for column in table.columns.values())
    )


def _are_texts(texts: list[Any]) -> bool:
    # A lone surrogate cannot be encoded.
    return set(map(type, texts)) <= {str} and len("".join(texts).encode()) >= 0


def _is_column(array: Any, count: int, dtype: str, values: range) -> bool:
    """Return whether an array has this dtype and one number in `values` per row."""
    fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == (count,)
    return fits and (not count or (int(array.min()) in values and int(array.max()) in values))


def _has_rows(texts: Sequence[str], count: int) -> bool:
    if isinstance(texts, NumberedKeys):
        heads = sorted(texts.heads)
        numbers = range(10**12)
        prefix_free = not any(b.startswith(a) for a, b in pairwise(heads))
        # Stride 0: a few bytes would claim any number of rows.
        distinct = count < 2 or texts.numbers.strides != (0,)
        return (
            prefix_free
            and distinct
            and _is_column(texts.numbers, count, "i8", numbers)
            and _is_column(texts.rows, count, "i4", range(len(heads)))
        )
    if isinstance(texts, Texts):
        return _is_column(texts.rows, count, "i4", range(len(texts.words)))
    return len(texts) == count


def _is_measured(column: Measured, count: int) -> bool:
    values, present = column
    return (
        isinstance(values, np.ndarray)
        and isinstance(present, np.ndarray)
        and values.dtype.kind in _KINDS
        and values.shape[:1] == present.shape == (count,)
        and present.dtype == bool
        and (
            values.ndim == 1
            or (values.ndim == 2 and 0 < values.shape[1] <= WIDEST and not values.dtype.hasobject)
        )
    )


def _take_texts(texts: Sequence[str], index: Array) -> Sequence[str]:
    return (
        texts.take(index)
        if isinstance(texts, Texts | NumberedKeys)
        else [texts[i] for i in index.tolist()]
    )


def _objects(texts: Sequence[str]) -> Array:
    if not isinstance(texts, Texts):
        return np.array(texts, dtype=object)
    words = np.array(texts.words, dtype=object)
    return (
        np.broadcast_to(words, len(texts)) if len(words) == 1 and len(texts) else words[texts.rows]
    )


def _packed(texts: Sequence[str] | Array) -> list[Any]:
    """Return texts as distinct words and an index per row, or unpacked where most are distinct."""
    if isinstance(texts, np.ndarray):
        is_constant = len(texts) > 0 and not texts.strides[0]  # one text for all rows
        texts = Texts([texts[0]], np.zeros(len(texts), np.int32)) if is_constant else texts.tolist()
    distinct_texts = Texts.of(texts)
    return (
        [list(texts), None]
        if 2 * len(distinct_texts.words) > len(texts)
        else [list(distinct_texts.words), distinct_texts.rows]
    )


def _unpacked(texts: list[str], rows: Array | None, numbers: Array | None = None) -> Sequence[str]:
    return (
        texts
        if rows is None
        else Texts(texts, rows)
        if numbers is None
        else NumberedKeys(texts, rows, numbers)
    )


def concatenate(tables: Sequence[Table]) -> Table:
    """Return all rows in bytewise key order; equal keys keep their order.

    Rows of a table that lacks a column are marked absent in it.

    Notes:
        Removes the columns from the given tables one by one: both copies at once would double the
        memory. A single table that is already in order is returned as it is.
    """
    tables = [t for t in tables if len(t)]
    if len(tables) == 1 and _in_order(tables[0].keys):
        return tables[0]
    names = sorted({name for t in tables for name in t.columns})
    sizes = [len(t) for t in tables]
    keys = NumberedKeys.joined([t.keys for t in tables])
    merged = Table(
        keys=keys,
        files=keys
        if all(t.files is t.keys for t in tables)
        else _concat_texts([t.files for t in tables]),
        **{name: _concat_texts([getattr(t, name) for t in tables]) for name in _REPETITIVE},
        status=np.concatenate([t.status for t in tables]) if tables else np.zeros(0, np.int8),
        nbytes=np.concatenate([t.nbytes for t in tables]) if tables else np.zeros(0, np.int64),
        columns={
            name: _join(list(zip([t.columns.pop(name, None) for t in tables], sizes, strict=True)))
            for name in names
        },
    )
    if _in_order(keys):
        return merged
    order = (
        keys.order()
        if isinstance(keys, NumberedKeys)
        else sorted(range(len(merged)), key=keys.__getitem__)
    )
    return merged.take(np.array(order, dtype=np.int64))


def _in_order(keys: Sequence[str]) -> bool:
    if isinstance(keys, NumberedKeys):
        return keys.in_order()
    # UTF-8 preserves the order of code points, so text order is bytewise order.
    return all(map(operator.le, keys, islice(keys, 1, None)))


def _concat_texts(columns: Sequence[Sequence[str]]) -> Texts:
    """Return columns of texts concatenated into one."""
    numbers: dict[str, int] = {}
    parts = []
    for column in map(Texts.of, columns):
        places = np.array(
            [numbers.setdefault(word, len(numbers)) for word in column.words], dtype=np.int32
        )
        parts.append(places[column.rows])
    return Texts(list(numbers), np.concatenate(parts) if parts else np.zeros(0, np.int32))


def _join(parts: list[tuple[Measured | None, int]]) -> Measured:
    given_columns = [m for m, _ in parts if m is not None]
    # Only a compromised worker sends columns of different kinds. Keep the first kind and mark the
    # other rows as absent.
    if len({_sort(m) for m in given_columns}) > 1:
        parts = [
            (m if m is not None and _sort(m) == _sort(given_columns[0]) else None, size)
            for m, size in parts
        ]
        given_columns = [m for m, _ in parts if m is not None]
    if (
        len(given_columns) == len(parts)
        and (shared := _shared_column(given_columns, sum(size for _, size in parts))) is not None
    ):
        return shared
    width = max((m.values.shape[1:] for m in given_columns), default=())
    dtype = (
        np.result_type(*{m.values.dtype for m in given_columns})
        if given_columns
        else np.dtype(np.float64)
    )
    values = []
    for m, size in parts:
        if m is None:
            values.append(np.full((size, *width), "" if dtype.kind == "O" else 0, dtype=dtype))
        elif m.values.shape[1:] == width:
            values.append(m.values.astype(dtype, copy=False))
        else:
            # A field with fewer columns gives a shorter vector. The padding carries no meaning.
            padded = np.zeros((size, *width), dtype=dtype)
            padded[:, : m.values.shape[1]] = m.values
            values.append(padded)
    present = [np.zeros(size, bool) if m is None else m.present for m, size in parts]
    return Measured(np.concatenate(values), np.concatenate(present))


def _sort(column: Measured) -> tuple[int, str]:
    kind = column.values.dtype.kind
    return column.values.ndim, "number" if kind in "biuf" else kind


def _shared_column(parts: list[Measured], count: int) -> Measured | None:
    """Return the joined column where all parts broadcast the same row; None otherwise."""
    first_part = parts[0]
    if first_part.values.strides[:1] != (0,) or any(
        a.strides[:1] != (0,) for m in parts for a in m
    ):
        return None
    for m in parts:
        row_value, first_value = (
            x.values[:1].tolist() if x.values.dtype.hasobject else x.values[:1].tobytes()
            for x in (m, first_part)
        )
        if (
            m.values.dtype != first_part.values.dtype
            or row_value != first_value
            or m.present[0] != first_part.present[0]
        ):
            return None
    shape = (count, *first_part.values.shape[1:])
    return Measured(
        np.broadcast_to(first_part.values[:1], shape),
        np.broadcast_to(first_part.present[:1], count),
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that a rule evaluates, seen from one field (or from the sample as a whole).

    Args:
        table: the table that the rows belong to.
        index: int64: row numbers in the table.
        field: the field under evaluation: ``rows["min"]`` is the column ``field:min``. A name with
            a colon is a full column name: ``rows[":split_key"]`` is a column of the whole sample,
            ``rows["xyz:min"]`` a column of another field.
    """

    table: Table
    index: Array
    field: str = ""

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def _place(self) -> slice | Array:
        """The rows as an index into columns: a slice where consecutive, to avoid a copy."""
        index = self.index
        if (
            len(index)
            and bool((index[1:] > index[:-1]).all())
            and int(index[-1] - index[0]) + 1 == len(index)
        ):
            return slice(int(index[0]), int(index[-1]) + 1)
        return index

    def _at(self, column: Array) -> Array:
        values = column[self._place].view()
        values.flags.writeable = False  # it may be a view of the table's own data
        return values

    def _texts(self, column: Sequence[str]) -> Texts:
        if isinstance(column, Texts):
            return Texts(column.words, self._at(column.rows))
        # Only the texts of these rows: a table may have as many splits as rows.
        return Texts.of(self._some(column))

    def _some(self, column: Sequence[str]) -> list[str]:
        place = self._place
        return (
            list(column[place]) if isinstance(place, slice) else [column[i] for i in place.tolist()]
        )

    def _column(self, name: str) -> Measured | None:
        return self.table.columns.get(name if ":" in name else f"{self.field}:{name}")

    def __contains__(self, name: str) -> bool:
        return self._column(name) is not None

    def __getitem__(self, name: str) -> Array:
        """Return a read-only column of values at these rows.

        Raises:
            KeyError: no such column.
        """
        if name not in self._taken:
            column = self._column(name)
            if column is None:
                raise KeyError(name)
            self._taken[name] = self._at(column.values)
        return self._taken[name]

    @cached_property
    def _taken(self) -> dict[str, Array]:
        """Cache of columns: rows with gaps are copied, and rules read a column in loops."""
        return {}

    def where(self, mask: Array) -> Rows:
        """Return only the rows at which `mask` is true."""
        return Rows(self.table, self.index[mask], self.field)

    def measured(self, *names: str) -> Array:
        """Return bool (rows): where all these columns have a value (none if one does not exist)."""
        mask = np.ones(len(self.index), bool)
        for name in names:
            column = self._column(name)
            mask &= False if column is None else self._at(column.present)
        return mask

    @property
    def keys(self) -> list[str]:
        """Keys of these rows."""
        return self._some(self.table.keys)

    @property
    def files(self) -> Texts:
        """Files of these rows."""
        return self._texts(self.table.files)

    @property
    def splits(self) -> Texts:
        """Splits of these rows."""
        return self._texts(self.table.splits)

    @property
    def groups(self) -> Texts:
        """Groups of these rows."""
        return self._texts(self.table.groups)

    def by_group(self) -> Iterator[tuple[str, Array]]:
        """Yield (group, positions within these rows) in name order."""
        yield from self.groups.places()
