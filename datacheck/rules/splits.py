"""Rules about splits and copies: nothing stands on both sides, nothing stands twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.digest import digest64
from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, listed, measure, rule, those
from datacheck.rules.measures import is_numeric, positions
from datacheck.sample import Block, Column
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_LEAST_BYTES = 24  # less than two positions says nothing about identity
_NOT_CONTENT = frozenset({"id", "flag", "timestamp", "intrinsics"})
_FIRST = ("train", "training")
_SHOWN, _LONGEST = 3, 60
_PIECE = 1 << 18  # points digested at a time


def _mixed(keys: Array) -> Array:
    """Return uint64 keys stirred so that every bit depends on every bit (the finaliser of splitmix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    stirred: Array = keys ^ (keys >> np.uint64(31))
    return stirred


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
        for start in range(0, int(lengths[i]), _PIECE):  # the whole cloud in float64 would be many times its size
            rows = _row_keys(points[:, start : start + _PIECE].astype(np.float64) * (1e5 / size))
            total[:1] += rows.sum(dtype=np.uint64)  # a slice: an array wraps around in silence, a number warns
            total[1] ^= np.bitwise_xor.reduce(rows)
        out[i] = digest64(total.tobytes())
    return out


def _row_keys(cells: Array) -> Array:
    """Return one stirred uint64 per point of rounded float64 coordinates (3, points)."""
    x, y, z = np.round(cells).astype(np.int64).view(np.uint64)
    return _mixed(x * np.uint64(0x9E3779B97F4A7C15) ^ _mixed(y) ^ _mixed(z * np.uint64(0xD1B54A32D192ED03)))


def _plain(column: Column) -> Array:
    """Return a digest per sample of its bytes; of text without regard to white space."""
    if column.kind == "text":
        texts = [" ".join(text.split()).encode("utf-8", "surrogatepass") for text in column.objects]
        return np.array([digest64(text) for text in texts], dtype=np.uint64)
    values = np.ascontiguousarray(column.values)
    head = f"{values.dtype.str}{values.shape[1:]}".encode()
    lengths = np.ones(len(column), np.int64) if column.lengths is None else column.lengths
    row = values.nbytes // len(values) if len(values) else 0
    data: Any = values.reshape(-1).view(np.uint8) if values.nbytes else b""
    stops = np.cumsum(lengths) * row
    starts = stops - lengths * row
    digests = [digest64(data[a:b]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.array(digests, dtype=np.uint64) ^ np.uint64(digest64(head))


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
        total = _mixed(total ^ found ^ np.uint64(digest64(name.encode())))
        item = column.values.nbytes // max(1, len(column.values))
        size += item * (1 if column.lengths is None else column.lengths)
    return {"content": Measured(total.view(np.int64), size >= _LEAST_BYTES)}


@measure("identity", per="sample", uses=("splits",), depth="structure")
def identity(block: Block, schema: Schema) -> Columns:
    """What samples must not share across splits: `split_key`, text ("" where nothing is known)."""
    del schema
    column = block.facts.get("split_key")
    if column is None:
        return {"split_key": [""] * len(block)}
    return {"split_key": [str(v) for v in column.objects] if column.kind != "array" else list(map(str, column.values))}


def _ranks(rows: Rows, schema: Schema) -> tuple[list[str], Array]:
    """Return the splits to hold against each other, the one that keeps its samples first, and each row's place there.

    Notes:
        -1 for rows of other splits. Without a declared order train comes first, then name order.
    """
    present = set(rows.splits) - {""}
    declared = [s for s in (schema.splits.disjoint if schema.splits else ()) if s in present]
    order = declared or sorted(present, key=lambda s: (s not in _FIRST, s))
    places = {split: i for i, split in enumerate(order)}
    return order, np.array([places.get(split, -1) for split in rows.splits], dtype=np.int64)


def _repeats(values: Array, known: Array, rank: Array) -> Array:
    """Return per row the lowest rank among the known rows of equal value."""
    lowest = np.full(len(values), np.iinfo(np.int64).max)
    if known.any():
        _, which = np.unique(values[known], return_inverse=True)
        best = np.full(int(which.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(best, which, rank[known])
        lowest[known] = best[which]
    return lowest


def _crossings(
    rows: Rows, values: Array, known: Array, schema: Schema, words: str, *, named: bool = False
) -> Iterator[Failure]:
    """Yield per split the rows whose value stands in an earlier split too; `named`: the values mean something."""
    order, rank = _ranks(rows, schema)
    known = known & (rank >= 0)
    lowest = _repeats(values, known, rank)
    for place, split in enumerate(order):
        mask = known & (rank == place) & (lowest < place)
        if not mask.any():
            continue
        total = int((known & (rank == place)).sum())
        others = listed(order[int(i)] for i in np.unique(lowest[mask]))
        whole = int(mask.sum()) >= 0.9 * total
        pairs = _shared(rows, values, mask, known & (rank < place)) if named else []
        more = len(np.unique(values[mask])) - _SHOWN
        pairs += [f"{counted(more, 'other key')}"] if named and more > 0 else []
        yield Failure(
            mask,
            f"{split} {words} {others}: {'; '.join([f'{int(mask.sum()):,} of its {counted(total)}', *pairs])}.",
            measured={"shared": int(mask.sum()), "of": total, "split": split},
            cause=Cause(f"{split} is {others} again", "same-split", explains=int(mask.sum())) if whole else None,
            fix=f"Take them out of {split}, or split again by what they share.",
            kind=split,
        )


def _shared(rows: Rows, values: Array, here: Array, there: Array) -> list[str]:
    """Return what two sides share, and where it first stands on each: ``SiBF1: evaluation/SiBF10 and train/SiBF11``."""
    said = []
    for key in np.unique(values[here])[:_SHOWN].tolist():
        first, other = (int(np.flatnonzero(side & (values == key))[0]) for side in (here, there))
        said.append(f"{key[:_LONGEST]}: {_where(rows, first)} and {_where(rows, other)}")
    return said


def _where(rows: Rows, place: int) -> str:
    one = rows.where(np.arange(len(rows)) == place)
    return f"{one.splits[0]}/{one.groups[0]}" if one.groups[0] else one.keys[0]


@rule(
    "DC801", "split-overlap", Severity.ERROR, Level.DATASET, per="sample", measures=(content,),
    needs=("DC109", "DC602"),
    span="all",
)  # fmt: skip
def split_overlap(rows: Rows, case: Case) -> Iterator[Failure]:
    """The same sample stands in two splits.

    What:
        No content of one split occurs in another, under whatever name. The copy in the later split is named: splits in
        the order of ``splits: {disjoint: ...}``, else train first.
    Why it matters:
        Validation measures memory, and every choice made by it is wrong.
    Measure:
        Digest of the content, of episodes that of the actions; points in any order, rounded to 1e-5 of their size; text
        without white space.
    When it is wrong:
        Two splits are meant to overlap: leave one out of ``disjoint``.
    Options:
        none
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}, splits: {key: file, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, xyz: {box: [50, 3]}}
          - {split: train, xyz: [[0, 0, 0.5], [1, 2, 3.0], [4, 5, 6.5]]}
          - {split: val, xyz: [[4, 5, 6.5], [0, 0, 0.5], [1, 2, 3.0]]}
          - {n: 3, split: val, xyz: {box: [50, 3]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}, splits: {key: file, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, xyz: {box: [50, 3]}}
          - {n: 3, split: val, xyz: {box: [50, 3]}}

    Fix:
        Take the copies out of the later split.
    Reference:
        SceneLeap's configuration names one directory as train, val and test.
    """
    known = rows.measured("content")
    if known.any():
        yield from _crossings(rows, rows["content"], known, case.schema, "shares samples with")


@rule(
    "DC802", "group-leak", Severity.ERROR, Level.DATASET, per="sample", measures=(identity,), needs=("DC801",),
    span="all", unless=lambda schema: "" if schema.splits is not None else "the schema names no splits: {key: ...}",
)  # fmt: skip
def group_leak(rows: Rows, case: Case) -> Iterator[Failure]:
    """Samples that belong together are on both sides of a split.

    What:
        No object, room, recording or subject (``splits: {key: ...}``) occurs in two splits.
    Why it matters:
        Neighbouring frames of one video on both sides are nearly copies.
    Measure:
        The declared key of every sample, after ``match``.
    When it is wrong:
        The key is too coarse: refine ``match``.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: seq, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, x: {normal: [8]}, facts: {split_key: ABF1}}
          - {n: 2, split: val, x: {normal: [8]}, facts: {split_key: ABF1}}
          - {n: 2, split: val, x: {normal: [8]}, facts: {split_key: SM1}}

    Good::

        schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: seq, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, x: {normal: [8]}, facts: {split_key: ABF1}}
          - {n: 2, split: val, x: {normal: [8]}, facts: {split_key: SM1}}

    Fix:
        Split by the key, not by sample.
    Reference:
        UTNet splits the frames of HO3D at random; in HULKs 98 % of the test frames share a recording with train.
    """
    known = rows.measured("split_key")
    if known.any():
        keys = rows["split_key"].astype(str)
        yield from _crossings(rows, keys, known & (keys != ""), case.schema, "shares keys with", named=True)


@rule(
    "DC803", "exact-duplicate", Severity.WARNING, Level.PAIR, per="sample", measures=(content,),
    needs=("DC109", "DC602", "DC801"), span="all", defaults={"share": 0.001},
)  # fmt: skip
def exact_duplicate(rows: Rows, case: Case) -> Iterator[Failure]:
    """A sample stands more than once.

    What:
        Samples of equal content; the first in key order stays, later ones are named. Copies across splits are DC801.
    Why it matters:
        Copies count twice in training and hide behind different names.
    Measure:
        As DC801.
    When it is wrong:
        Repetition is meant: ``duplicates: {exact: off}``. The schema also says how bad it is (error, warning, info).
    Options:
        share: share of copies up to which nothing is said (0.001).
    Bad::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "The first of three different sentences."}
          - {t: "The second of three different sentences."}
          - {t: "The  second of three different sentences. "}

    Good::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "The first of three different sentences."}
          - {t: "The second of three different sentences."}
          - {t: "The third of three different sentences."}

    Fix:
        Drop the later copies.
    Reference:
        Chinese web corpora lose 0.3 % to near-copies; the small lora_identity.jsonl repeats its prompts.
    """
    severity, known = case.schema.duplicates.exact, rows.measured("content")
    if severity == "off" or not known.any():
        return
    _, rank = _ranks(rows, case.schema)
    place = rank * len(rows) + np.arange(len(rows))
    copy = known & (_repeats(rows["content"], known, place) < place)
    if copy.sum() > float(case.options["share"]) * int(known.sum()):
        yield Failure(
            copy,
            f"{those(copy, 'repeat')} what an earlier one holds.",
            measured={"copies": int(copy.sum())},
            severity=Severity(severity),
            fix="Drop the later copies, or say duplicates: {exact: off} where they are meant.",
        )
