"""The rows of a table: of samples that were measured, and of samples that could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from datacheck.model.row_keys import storable, storable_keys
from datacheck.model.sample import Block, Origins
from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, Measured, Table, Texts
from datacheck.sources.base import Unread, Work

Array = np.ndarray[Any, Any]


def unread_rows(
    unread: Sequence[Unread], file: str | Sequence[str], split: str | Sequence[str]
) -> Table:
    """Return the rows of samples that could not be read.

    Args:
        unread: the samples.
        file, split: one for all of them, or one for each.
    """
    count = len(unread)
    return Table(
        keys=storable([u.key for u in unread]),
        files=[file] * count if isinstance(file, str) else file,
        inner=_repeated("", count),
        splits=[split] * count if isinstance(split, str) else split,
        groups=storable([u.group for u in unread]),
        status=np.array([SKIPPED if u.skipped else UNREADABLE for u in unread], dtype=np.int8),
        reasons=storable([f"{u.code} {u.reason}" for u in unread]),
        nbytes=np.zeros(count, np.int64),
    )


def missing_rows(work: Work) -> Table:
    """Return a table with one row for each note on a sample without a readable file.

    One table for all notes, because there may be 100,000 of them.
    """
    notes = [note for note in work.notes if note.missing]
    unread = [Unread(note.key, note.code, note.reason) for note in notes]
    return unread_rows(unread, [note.key for note in notes], [note.split for note in notes])


def checked_rows(block: Block, columns: dict[str, Measured]) -> Table:
    """Return the rows of a measured block."""
    count = len(block)
    files: Sequence[str]
    inner: Sequence[str]
    if isinstance(block.origins, Origins):
        files = _repeated(storable([block.origins.file])[0], count)
        inner = _repeated("", count)
    else:
        files = storable([origin.file for origin in block.origins])
        inner = storable([origin.inner for origin in block.origins])
    return Table(
        keys=storable_keys(block.keys),
        files=files,
        inner=inner,
        splits=_repeated(block.split, count),
        groups=_groups(block),
        status=np.full(count, CHECKED, np.int8),
        reasons=_repeated("", count),
        nbytes=_sample_bytes(block),
        columns=columns,
    )


def _groups(block: Block) -> Sequence[str]:
    first_group = block.groups[0] if block.groups else ""
    constant = not block.groups or block.groups.count(first_group) == len(block)
    return _repeated(storable([first_group])[0], len(block)) if constant else storable(block.groups)


def _repeated(text: str, count: int) -> Texts:
    return Texts([text], np.zeros(count, np.int32))


def _sample_bytes(block: Block) -> Array:
    total = np.zeros(len(block), np.int64)
    for column in block.fields.values():
        item = 1  # text and JSON: lengths are bytes
        if column.kind == "array":
            item = prod(column.values.shape[1:]) * column.values.dtype.itemsize
        total += item if column.lengths is None else column.lengths * item
    return total
