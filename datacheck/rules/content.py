"""What a sample holds as one number, equal under whatever name it is stored, and which of equal samples stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.digest import digest64, digests64
from datacheck.messages import Messages, data_of
from datacheck.rules.base import Columns, measure
from datacheck.rules.measures import is_numeric
from datacheck.rules.points import content_keys, mixed
from datacheck.rules.texts import words_apart
from datacheck.rules.turns import Turns, is_plain, of_messages, turns_in
from datacheck.sample import Block, Column
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_LEAST_BYTES = 24  # less than two positions says nothing about identity
_NOT_CONTENT = frozenset({"id", "flag", "timestamp", "intrinsics"})
_FIRST = ("train", "training")


def _cloud(column: Column) -> Array | None:
    """Return a digest per sample of a cloud, whatever the order of its points and the dtype of its coordinates.

    Shapes:
        returns: uint64 (samples)
    """
    keys, lengths = content_keys(column) or (np.zeros(0, np.uint64), None)
    if lengths is None:
        return None
    total, odd = (_folded(ufunc, keys, lengths) for ufunc in (np.add, np.bitwise_xor))
    return np.where(lengths > 0, mixed(total ^ mixed(odd ^ mixed(lengths.astype(np.uint64)))), np.uint64(0))


def _folded(ufunc: np.ufunc, keys: Array, lengths: Array) -> Array:
    """Reduce keys to one per sample, 0 for samples without any; sums wrap around."""
    if len(lengths) == 1:
        whole: Array = ufunc.reduce(keys, keepdims=True, dtype=np.uint64)
        return whole
    out, filled = np.zeros(len(lengths), np.uint64), lengths > 0
    if filled.any():
        out[filled] = ufunc.reduceat(keys, (np.cumsum(lengths) - lengths)[filled])
    return out


def _chats(column: Column) -> Array:
    """Return a digest per chat: of who says what where each message is a role and a text, else of its JSON."""
    if isinstance(column, Messages):
        return _said(of_messages(column))
    out = np.zeros(len(column), np.uint64)
    plain = np.array([is_plain(chat) for chat in column.objects], dtype=bool)
    places, rest = np.flatnonzero(plain), np.flatnonzero(~plain)
    turns = turns_in([column.objects[i] for i in places.tolist()])
    assert turns is not None
    out[places] = _said(turns)
    if len(rest):
        out[rest] = _plain(column.take(rest))
    return out


def _said(turns: Turns) -> Array:
    """Return a digest of the messages of each chat."""
    said = turns.said
    assert said.lengths is not None
    words = digests64([word.encode("utf-8", "surrogatepass") for word in turns.words])
    place = np.arange(len(turns.roles)) - np.repeat(turns.starts, turns.counts)
    keys = mixed(place.astype(np.uint64) + (said.lengths.astype(np.uint64) << np.uint64(32)))
    keys = mixed(keys ^ words[turns.roles]) if len(words) else keys
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])
    stops = np.cumsum(turns.counts)
    sizes = np.concatenate([[0], np.cumsum(said.lengths)])
    begins, ends = sizes[stops - turns.counts], sizes[stops]
    data = data_of(said)
    texts = digests64(data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True))
    return mixed(texts ^ (total[stops] - total[stops - turns.counts]))


def _plain(column: Column) -> Array:
    """Return a digest per sample of its bytes; of text without regard to white space, of plain chats who says what."""
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


@measure("content", version=5, per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def content(block: Block, schema: Schema) -> Columns:
    """Digest of what a sample holds: `content`, int64.

    Of episodes the actions; else all fields. Points count in any order, and what runs along the same axis goes with
    them. Identifiers, flags, time stamps and intrinsics do not count; samples of less than 24 bytes have no row, nor
    those of which pictures, or most values, were not read.
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
    if not actions and _lacks_most(block, len(names)):
        return {}
    total, size = np.zeros(len(block), np.uint64), np.zeros(len(block), np.int64)
    for name in names:
        column = block.fields[name]
        if column.kind == "array" and not is_numeric(column):
            continue
        found = _cloud(column) if name in clouds else None
        if found is None:
            chat = column.kind == "json" and name in stored and stored[name].role == "chat"
            found = _chats(column) if chat else _plain(column)
        total = mixed(total ^ found ^ np.uint64(digest64(name.encode())))
        item = column.values.nbytes // max(1, len(column.values)) if column.kind == "array" else 1
        size += item * (1 if column.lengths is None else column.lengths)
    return {"content": Measured(total.view(np.int64), size >= _LEAST_BYTES)}


def _lacks_most(block: Block, read: int) -> bool:
    """Tell whether the file holds bytes that no format reads, or as many such values as were read."""
    unread = block.facts.get("unread")
    return "opaque" in block.facts or (unread is not None and int(unread.values.max(initial=0)) >= read)


def ranks(rows: Rows, schema: Schema) -> tuple[list[str], Array]:
    """Return the splits to hold against each other, the one that keeps its samples first, and each row's place there.

    Notes:
        -1 for rows of other splits. Without a declared order train comes first, then name order.
    """
    present = set(rows.splits.present()) - {""}
    declared = [s for s in (schema.splits.disjoint if schema.splits else ()) if s in present]
    order = declared or sorted(present, key=lambda s: (s not in _FIRST, s))
    places = {split: i for i, split in enumerate(order)}
    splits = rows.splits
    return order, np.array([places.get(split, -1) for split in splits.words], dtype=np.int64)[splits.rows]
