"""What the page says of classes: of the labels of each split, and of the reference, the share of each class (DC903)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.rules.classes import PLACES, class_names, declared
from datacheck.rules.content import ranks
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Table, Texts

Array = np.ndarray[Any, Any]

MOST_CLASSES, MOST_SPLITS = 30, 12
_NAMED = 12  # classes that no sample has
_PIECE = 32_768
_NOT_JUDGED = frozenset({"DC109", "DC404"})  # as of DC903: placeholders, and labels that stand in another's place


def class_shares(
    table: Table, schema: Schema, failing: Texts, reference: Table | None = None
) -> Iterator[dict[str, Any]]:
    """Yield of each field of classes how many labels of each split are of each class.

    Args:
        table: rows; a column is read when it is asked for, and let go again.
        schema: the schema in force.
        failing: per row, the codes that it fails, with spaces between.
        reference: the rows of the run that this one is compared with; of them all are counted.

    Returns:
        ``splits`` and ``of`` how many labels (each a ``what``) and ``samples`` they have, ``rows``: the ``name`` of a
        class and its ``counts`` by split, those first of which the shares differ most. ``rest``: the same of all
        other classes, how far their shares differ at ``most`` (None where nothing is beside them), and how many of them
        each split lacks. ``then``: what the reference has of the same splits, None where it has no labels of them.
    """
    judged = np.array([_NOT_JUDGED.isdisjoint(word.split()) for word in failing.words], bool)[failing.rows]
    present = Texts.of(table.splits).present()
    first = ranks(table.rows(np.arange(len(table))), schema)[0]
    order = [*first, *(name for name in present if name not in first)]
    for name in sorted(head for head, _, stat in (n.rpartition(":") for n in table.columns) if stat == "classes"):
        column = None if name.startswith(":") else _column(table, name)
        if column is not None:
            made = _field(table, schema.spec(name), name, (column, judged), order, reference)
            if made is not None:
                yield made | {"what": _what(schema, name, made)}


def _column(table: Table, name: str) -> Measured | None:
    column = table.columns.get(f"{name}:classes")
    if column is None or column.values.dtype.kind not in "iu" or column.values.shape[1:] != (PLACES,):
        return None  # a check of the user's may call its columns as it likes
    return column


def _field(
    table: Table, spec: FieldSpec, name: str, rows: tuple[Measured, Array], order: list[str], reference: Table | None
) -> dict[str, Any] | None:
    column, judged = rows
    counts, samples = _counted(column, table, judged, order)
    labelled = np.flatnonzero(counts.sum(axis=1) > 0).tolist()
    if not labelled:
        return None
    kept, names = labelled[:MOST_SPLITS], class_names(spec)
    past = None if reference is None else _column(reference, name)
    then = None
    if reference is not None and past is not None:
        then = _counted(past, reference, np.ones(len(reference), bool), [order[n] for n in kept])[0]
    now, known = counts[kept], set(declared(spec))
    places = {c % PLACES for c in known}
    nowhere = sorted(places - set(np.flatnonzero(counts.any(axis=0)).tolist()))
    return {
        "field": name, "splits": [order[n] for n in kept], "more_splits": len(labelled) - len(kept),
        "without": [name for n, name in enumerate(order) if n not in labelled][:MOST_SPLITS],
        "samples": samples[kept].tolist(), "of": now.sum(axis=1).tolist(),
        "left_out": int(np.count_nonzero(column.present & ~judged)),
        "folded": len(places) < len(known) if known else not _small(table, name),
        "nowhere": {"many": len(nowhere), "names": [names[place] for place in nowhere[:_NAMED]]},
        **_rows(now, then, names),
    }  # fmt: skip


def _counted(column: Measured, table: Table, judged: Array, order: list[str]) -> tuple[Array, Array]:
    """Return int64 (splits, 64), how many labels are of each class, and (splits) how many samples have some."""
    places = {name: place for place, name in enumerate(order)}
    splits = Texts.of(table.splits)
    rank = np.array([places.get(word, -1) for word in splits.words], np.int64)[splits.rows]
    rank = np.where(column.present & judged, rank, -1)
    counts = np.zeros((len(order), PLACES), np.int64)
    for start in range(0, len(rank), _PIECE):  # that stays in the caches
        part, of = column.values[start : start + _PIECE], rank[start : start + _PIECE]
        for place in np.unique(of[of >= 0]).tolist():
            counts[place] += part[of == place].sum(axis=0, dtype=np.int64)
    return counts, np.bincount(rank[rank >= 0], minlength=len(order))


def _rows(now: Array, then: Array | None, names: list[str]) -> dict[str, Any]:
    """Return ``rows``, ``rest`` and ``then``.

    Shapes:
        now, then: int64 (splits, 64)
    """
    both = now if then is None else np.concatenate([now, then])
    both = both[both.sum(axis=1) > 0]
    shares = both / both.sum(axis=1, keepdims=True)
    spread = np.round(np.ptp(shares, axis=0), 12) if len(both) > 1 else shares[0]  # as far apart: by number
    met = np.flatnonzero(both.any(axis=0))
    met = met[np.argsort(-spread[met], kind="stable")]
    first, others = met[:MOST_CLASSES].tolist(), met[MOST_CLASSES:]
    rest = None
    if len(others):
        lacking = np.count_nonzero(now[:, others] == 0, axis=1).tolist()
        most = float(spread[others].max()) if len(both) > 1 else None
        rest = {"classes": len(others), "most": most, "lacking": lacking} | _sums(now, then, others)
    return {
        "rows": [{"name": names[place]} | _sums(now, then, np.array([place])) for place in first], "rest": rest,
        "then": None if then is None else [int(many) or None for many in then.sum(axis=1)],
    }  # fmt: skip


def _sums(now: Array, then: Array | None, places: Array) -> dict[str, Any]:
    return {"counts": now[:, places].sum(axis=1).tolist(),
            "then": None if then is None else then[:, places].sum(axis=1).tolist()}  # fmt: skip


def _small(table: Table, name: str) -> bool:
    """Tell whether all classes are known to have a place of their own though none is declared."""
    ends = [table.columns.get(f"{name}:{stat}") for stat in ("min", "max")]
    if any(end is None or end.values.dtype.kind not in "biuf" for end in ends):
        return False
    low, high = (end.values[end.present] for end in ends if end is not None)
    return bool(len(low) and len(high) and low.min() >= 0 and high.max() < PLACES)


def _what(schema: Schema, name: str, made: dict[str, Any]) -> str:
    """Return what has a label: a point, a sample, or nothing that is known."""
    along = schema.spec(name).ragged
    if along is not None and any(spec.ragged == along for _, spec in schema.of_role("points")):
        return "point"
    return "sample" if made["of"] == made["samples"] else "label"
