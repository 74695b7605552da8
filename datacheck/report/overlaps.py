"""What splits share, by the measures of the rules on leaks: counts of every two of them, and the worst pairs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice
from typing import Any

import numpy as np

from datacheck.report.classes import MOST_SPLITS
from datacheck.rules.content import ranks
from datacheck.schema.model import Schema
from datacheck.table import Rows, Table, Texts

Array = np.ndarray[Any, Any]

_PAIRS = 12
_OF_TWO = 3  # pairs that are named of any two splits
_NOT_JUDGED = frozenset({"DC109", "DC602"})  # placeholders are all alike: DC801 does not judge them either


def overlaps(table: Table, schema: Schema, failing: Texts) -> dict[str, Any] | None:
    """Return what every two splits share; None where there are not two, too many, or nothing was measured of it.

    Args:
        table: rows; of their columns two are read.
        schema: the schema in force: which splits are held against each other, and in which order.
        failing: per row, the codes that it fails, with spaces between.

    Returns:
        ``splits`` in that order; of ``samples`` (by content) and ``groups`` (by split key) ``of`` how many each split
        has, ``shared`` how many of the one split (outer list) stand in the other, too, and ``pairs``: two splits, the
        group ("" of samples), and of each split the first row that has it.
    """
    rows = table.rows(np.arange(len(table)))
    order, rank = ranks(rows, schema)
    if not 2 <= len(order) <= MOST_SPLITS:
        return None
    judged = np.array([_NOT_JUDGED.isdisjoint(word.split()) for word in failing.words], bool)[failing.rows]
    made = {
        what: _shared(values[places], rank[places], len(order), places, names)
        for what, known, values, names in _compared(rows)
        if len(places := np.flatnonzero(known & judged & (rank >= 0)))
    }
    return {"splits": order} | made if made else None


def _compared(rows: Rows) -> Iterator[tuple[str, Array, Array, list[str]]]:
    """Yield what is compared, bool (rows) where it is known, a number for each row, and what a number stands for."""
    if "content" in rows:
        yield "samples", rows.measured("content"), rows["content"], []
    if "split_key" in rows:
        keys = Texts.of(rows["split_key"].tolist())
        named = np.array([word != "" for word in keys.words], bool)[keys.rows]
        yield "groups", rows.measured("split_key") & named, keys.rows.astype(np.int64), [*keys.words]


def _shared(values: Array, rank: Array, splits: int, places: Array, names: list[str]) -> dict[str, Any]:
    """Return ``of``, ``shared`` and ``pairs`` of some rows.

    Shapes:
        values, rank, places: int64 (rows): what is compared, the split, and the row in the table
    """
    none = [[0] * splits for _ in range(splits)]
    if not names and _differ(values):  # which is the rule, and known in a third of the time
        return {"of": np.bincount(rank, minlength=splits).tolist(), "shared": none, "pairs": []}
    known, which = (np.arange(len(names)), values) if names else np.unique(values, return_inverse=True)
    cells = np.bincount(which * splits + rank)  # no sort of all rows where counting tells the same
    met = np.flatnonzero(cells)
    sizes, (value, split) = cells[met], np.divmod(met, splits)
    of = np.bincount(split if names else rank, minlength=splits).tolist()
    several = np.bincount(value)[value] > 1
    both, number = np.unique(value[several], return_inverse=True)
    counts = np.zeros((len(both), splits), np.int64)
    counts[number, split[several]] = sizes[several]
    there = (counts > 0).astype(np.int64)
    shared = (there if names else counts).T @ there
    np.fill_diagonal(shared, 0)
    pairs = [
        {"splits": [one, other], "name": names[known[both[found]]] if names else "",
         "rows": [int(places[np.argmax((which == both[found]) & (rank == side))]) for side in (one, other)]}
        for one, other, found in islice(_worst(counts, shared), _PAIRS)
    ]  # fmt: skip
    return {"of": of, "shared": shared.tolist(), "pairs": pairs}


def _differ(values: Array) -> bool:
    values = np.sort(values)  # `np.unique` hashes, which takes ten times as long
    return not bool((values[1:] == values[:-1]).any())


def _worst(counts: Array, shared: Array) -> Iterator[tuple[int, int, int]]:
    """Yield (split, split, place of a value that both have): splits that share most first, of two the most frequent."""
    pairs = sorted(combinations(range(len(shared)), 2), key=lambda pair: -int(shared[pair[1], pair[0]]))
    for one, other in pairs:
        mine = np.flatnonzero((counts[:, one] > 0) & (counts[:, other] > 0))
        often = counts[mine, one] + counts[mine, other]
        for place in mine[np.argsort(-often, kind="stable")[:_OF_TWO]].tolist():
            yield one, other, place
