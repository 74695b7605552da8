"""The Table: one row per listed sample, columnar, with every scalar that was measured.

Tables merge by concatenation in key order and nothing else merges. A column may be absent for some rows (the
measurement did not apply or did not run); such rows are marked, never filled with a number that looks real.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CHECKED, UNREADABLE, SKIPPED = 0, 1, 2
_TEXTS = ("keys", "files", "inner", "splits", "groups", "reasons")


@dataclass(frozen=True, eq=False)
class Measured:
    """One column: values, and where they exist.

    Shapes:
        values: number or bool (rows) or (rows, k), k at most 64; object (rows) for text
        present: bool (rows)
    """

    values: Array
    present: Array


@dataclass(frozen=True)
class Note:
    """Something known of a key or a file without opening it: a missing file, a file that no list names, a changed one.

    Args:
        code: the rule that reports it.
        key: the sample, or the file's relative path.
        reason: one sentence.
        missing: the sample cannot be read at all; it becomes an UNREADABLE row.
        split: the split it belongs to, or "".
        about: what else is known, JSON values; how a note of this code is told from another by ``kind``.
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
        reasons: why a row is not CHECKED, "" otherwise; starts with the code ("DC101 truncated ...").
        nbytes: int64, bytes of the sample's fields.
        columns: measured columns by name, ``field:stat`` or ``:stat`` for the sample as a whole.
    """

    keys: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    status: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    reasons: list[str] = field(default_factory=list)
    nbytes: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    columns: dict[str, Measured] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, index: Array, field_name: str = "") -> Rows:
        """Return the rows at `index` as a rule about `field_name` ("" for whole samples) sees them."""
        return Rows(self, np.asarray(index, dtype=np.int64), field_name)

    def as_wire(self) -> dict[str, Any]:
        """Return the table as JSON values and arrays (what `parallel.encode` takes)."""
        columns = {
            name: [_packed(m.values.tolist()) if m.values.dtype.hasobject else m.values, m.present]
            for name, m in self.columns.items()
        }
        texts = {name: _packed(getattr(self, name)) for name in _TEXTS if name != "keys"}
        texts["keys"] = [self.keys, None]  # they differ: packing would find out, slowly
        if self.files == self.keys:
            texts["files"] = [[], None]
        return {"texts": texts, "status": self.status, "nbytes": self.nbytes, "columns": columns}

    @staticmethod
    def from_wire(data: dict[str, Any]) -> Table:
        """Return the table of `as_wire`; equal texts of a column share one object."""
        texts = {name: _unpacked(data["texts"][name]) for name in _TEXTS}
        texts["files"] = texts["files"] or list(texts["keys"])
        columns = {
            name: Measured(np.array(_unpacked(values), dtype=object) if isinstance(values, list) else values, present)
            for name, (values, present) in data["columns"].items()
        }
        return Table(**texts, status=data["status"], nbytes=data["nbytes"], columns=columns)

    def take(self, index: Array) -> Table:
        """Return the rows at `index`, in that order."""
        pick = [int(i) for i in index]
        return Table(
            keys=[self.keys[i] for i in pick],
            files=[self.files[i] for i in pick],
            inner=[self.inner[i] for i in pick],
            splits=[self.splits[i] for i in pick],
            groups=[self.groups[i] for i in pick],
            status=self.status[index],
            reasons=[self.reasons[i] for i in pick],
            nbytes=self.nbytes[index],
            columns={name: Measured(m.values[index], m.present[index]) for name, m in self.columns.items()},
        )


def storable(texts: list[str]) -> list[str]:
    """Return texts as every file format can hold them: names come from files, which may hold half a character."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    return texts


def _packed(texts: list[str]) -> list[Any]:
    """Return texts as the different ones and a number for each row; as they are where most differ."""
    if texts and texts.count(texts[0]) == len(texts):
        return [texts[:1], np.zeros(len(texts), np.int32)]
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(text, len(numbers)) for text in texts]
    return [texts, None] if 2 * len(numbers) > len(texts) else [list(numbers), np.array(rows, dtype=np.int32)]


def _unpacked(packed: list[Any]) -> list[str]:
    texts, rows = packed
    if rows is None:
        return list(texts)
    return texts * len(rows) if len(texts) == 1 else [texts[row] for row in rows.tolist()]


def concatenate(tables: Sequence[Table]) -> Table:
    """Return all rows in bytewise key order (stable for equal keys); absent columns are marked absent."""
    tables = [t for t in tables if len(t)]
    names = sorted({name for t in tables for name in t.columns})
    merged = Table(
        keys=[k for t in tables for k in t.keys],
        files=[f for t in tables for f in t.files],
        inner=[i for t in tables for i in t.inner],
        splits=[s for t in tables for s in t.splits],
        groups=[g for t in tables for g in t.groups],
        status=np.concatenate([t.status for t in tables]) if tables else np.zeros(0, np.int8),
        reasons=[r for t in tables for r in t.reasons],
        nbytes=np.concatenate([t.nbytes for t in tables]) if tables else np.zeros(0, np.int64),
        columns={name: _join([(t.columns.get(name), len(t)) for t in tables]) for name in names},
    )
    if all(a <= b for a, b in pairwise(merged.keys)):  # UTF-8 keeps the order of code points
        return merged
    order = np.array(sorted(range(len(merged)), key=merged.keys.__getitem__), dtype=np.int64)
    return merged.take(order)


def _join(parts: list[tuple[Measured | None, int]]) -> Measured:
    known = [m for m, _ in parts if m is not None]
    width = max((m.values.shape[1:] for m in known), default=())
    dtype = np.result_type(*[m.values.dtype for m in known]) if known else np.dtype(np.float64)
    values = []
    for m, size in parts:
        if m is None:
            values.append(np.full((size, *width), "" if dtype.kind == "O" else 0, dtype=dtype))
        elif m.values.shape[1:] == width:
            values.append(m.values.astype(dtype, copy=False))
        else:  # a shorter vector (a field with fewer columns): pad, the extra places mean nothing
            padded = np.zeros((size, *width), dtype=dtype)
            padded[:, : m.values.shape[1]] = m.values
            values.append(padded)
    present = [np.zeros(size, bool) if m is None else m.present for m, size in parts]
    return Measured(np.concatenate(values), np.concatenate(present))


@dataclass(frozen=True, eq=False)
class Rows:
    """What a rule judges: some rows of the table, seen from one field (or from the sample as a whole).

    Args:
        table: the table they are part of.
        index: int64: positions in the table.
        field: the judged field; ``rows["min"]`` is then the column ``field:min``. A name that holds a colon is taken
            as it is: ``rows[":split_key"]`` is a column of the whole sample, ``rows["xyz:min"]`` one of another field.
    """

    table: Table
    index: Array
    field: str = ""

    def __len__(self) -> int:
        return len(self.index)

    def _column(self, name: str) -> Measured | None:
        return self.table.columns.get(name if ":" in name else f"{self.field}:{name}")

    def __contains__(self, name: str) -> bool:
        return self._column(name) is not None

    def __getitem__(self, name: str) -> Array:
        """Return a column's values at these rows.

        Raises:
            KeyError: nothing of that name was measured.
        """
        column = self._column(name)
        if column is None:
            raise KeyError(name)
        return column.values[self.index]

    def where(self, mask: Array) -> Rows:
        """Return only the rows at which `mask` is true."""
        return Rows(self.table, self.index[mask], self.field)

    def measured(self, *names: str) -> Array:
        """Return bool (rows): where all these columns were measured (nowhere if a column does not exist)."""
        mask = np.ones(len(self.index), bool)
        for name in names:
            column = self._column(name)
            mask &= False if column is None else column.present[self.index]
        return mask

    @property
    def keys(self) -> list[str]:
        """Keys of these rows."""
        return [self.table.keys[int(i)] for i in self.index]

    @property
    def splits(self) -> list[str]:
        """Splits of these rows."""
        return [self.table.splits[int(i)] for i in self.index]

    @property
    def groups(self) -> list[str]:
        """Groups of these rows."""
        return [self.table.groups[int(i)] for i in self.index]

    def by_group(self) -> Iterator[tuple[str, Array]]:
        """Yield (group, positions within these rows) in name order."""
        places: dict[str, list[int]] = {}
        for place, i in enumerate(self.index):
            places.setdefault(self.table.groups[int(i)], []).append(place)
        for group in sorted(places):
            yield group, np.array(places[group], dtype=np.int64)
