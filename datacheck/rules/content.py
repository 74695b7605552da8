"""What a sample holds as one number, equal under whatever name it is stored, and which of equal samples stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.digest import digest64, digests64
from datacheck.rules.base import Columns, measure
from datacheck.rules.measures import is_numeric, positions
from datacheck.rules.texts import words_apart
from datacheck.sample import Block, Column
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_LEAST_BYTES = 24  # less than two positions says nothing about identity
_NOT_CONTENT = frozenset({"id", "flag", "timestamp", "intrinsics"})
_FIRST = ("train", "training")
_PIECE = 1 << 14  # points digested at a time: they stay in the cache of a core


def mixed(keys: Array) -> Array:
    """Return uint64 keys stirred so that every bit depends on every bit (the finaliser of splitmix64)."""
    keys = keys.copy()
    shifted = keys >> np.uint64(30)
    keys ^= shifted
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(keys, np.uint64(27), out=shifted)
    keys ^= shifted
    keys *= np.uint64(0x94D049BB133111EB)
    np.right_shift(keys, np.uint64(31), out=shifted)
    keys ^= shifted
    return keys


def _cloud(column: Column) -> Array | None:
    """Return a digest per sample of a cloud, whatever the order of its points; coordinates rounded to 1e-5 of its size.

    Shapes:
        returns: uint64 (samples)
    """
    xyz, lengths = positions(column) or (np.zeros(0), None)
    if lengths is None:
        return None
    out = np.zeros(len(lengths), np.uint64)
    stops = np.cumsum(lengths)
    for i in np.flatnonzero(lengths):
        points = xyz[:, stops[i] - lengths[i] : stops[i]]
        extent = points.max(axis=1).astype(np.float64) - points.min(axis=1)
        size = float(np.sqrt((extent**2).sum())) or 1.0
        total = np.array([0, 0, lengths[i]], np.uint64)
        for start in range(0, int(lengths[i]), _PIECE):
            rows = _row_keys(np.multiply(points[:, start : start + _PIECE], 1e5 / size, dtype=np.float64))
            total[:1] += rows.sum(dtype=np.uint64)  # a slice: an array wraps around in silence, a number warns
            total[1] ^= np.bitwise_xor.reduce(rows)
        out[i] = digest64(total.tobytes())
    return out


def _row_keys(cells: Array) -> Array:
    """Return one stirred uint64 per point of rounded float64 coordinates (3, points)."""
    x, y, z = np.round(cells).astype(np.int64).view(np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    y *= np.uint64(0xC2B2AE3D27D4EB4F)
    z *= np.uint64(0xD1B54A32D192ED03)
    x += y
    x += z
    return mixed(x)


def _plain(column: Column) -> Array:
    """Return a digest per sample of its bytes; of text without regard to white space."""
    if column.kind == "text":
        return digests64(words_apart(column))
    values = np.ascontiguousarray(column.values)
    head = f"{values.dtype.str}{values.shape[1:]}".encode()
    lengths = np.ones(len(column), np.int64) if column.lengths is None else column.lengths
    row = values.nbytes // len(values) if len(values) else 0
    data: Any = values.reshape(-1).view(np.uint8).data if values.nbytes else b""
    stops = np.cumsum(lengths) * row
    starts = stops - lengths * row
    pieces = (data[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True))
    return digests64(pieces) ^ np.uint64(digest64(head))


@measure("content", per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def content(block: Block, schema: Schema) -> Columns:
    """Digest of what a sample holds: `content`, int64.

    Of episodes the actions; else all fields. Points count in any order, and what runs along the same axis goes with
    them. Identifiers, flags, time stamps and intrinsics do not count; samples of less than 24 bytes have no row.
    """
    stored = schema.stored
    fields = sorted({*block.fields, *block.unread})
    actions = [n for n in fields if n in stored and stored[n].role == "action"]
    names = actions or [n for n in fields if n not in stored or stored[n].role not in _NOT_CONTENT]
    clouds = [n for n in names if n in stored and stored[n].role == "points"]
    along = {stored[n].ragged for n in clouds} - {None}
    names = [n for n in names if n in clouds or n not in stored or stored[n].ragged not in along]
    if block.unread.intersection(names):
        return {}  # without its pixels nobody knows whether a sample is another one again
    total, size = np.zeros(len(block), np.uint64), np.zeros(len(block), np.int64)
    for name in names:
        column = block.fields[name]
        if column.kind == "array" and not is_numeric(column):
            continue
        found = _cloud(column) if name in clouds else None
        found = _plain(column) if found is None else found
        total = mixed(total ^ found ^ np.uint64(digest64(name.encode())))
        item = column.values.nbytes // max(1, len(column.values))
        size += item * (1 if column.lengths is None else column.lengths)
    return {"content": Measured(total.view(np.int64), size >= _LEAST_BYTES)}


def ranks(rows: Rows, schema: Schema) -> tuple[list[str], Array]:
    """Return the splits to hold against each other, the one that keeps its samples first, and each row's place there.

    Notes:
        -1 for rows of other splits. Without a declared order train comes first, then name order.
    """
    present = set(rows.splits) - {""}
    declared = [s for s in (schema.splits.disjoint if schema.splits else ()) if s in present]
    order = declared or sorted(present, key=lambda s: (s not in _FIRST, s))
    places = {split: i for i, split in enumerate(order)}
    splits = rows.splits
    return order, np.array([places.get(split, -1) for split in splits.words], dtype=np.int64)[splits.rows]
