"""Tables of a run's page that compare splits and runs: class shares, drifts and overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import Measured, Rows, Table, Texts
from datacheck.report.shown_measures import STATISTICS, label
from datacheck.rules.label_counts import PLACES, class_names, declared
from datacheck.rules.similarity import ranks
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

MOST_CLASSES = 30
MOST_SPLITS = 12
_MAX_ABSENT_NAMED = 12  # classes named that no sample has
_CHUNK_ROWS = 32_768  # fit into the CPU caches
# As in DC903: samples of placeholders, and labels out of range, which would count as another class
# (modulo `PLACES`).
_NOT_COUNTED = frozenset({"DC109", "DC404"})


def _fails_none_of(failing: Texts, codes: frozenset[str]) -> Array:
    """Return bool (rows): the row fails none of some rules."""
    fails_none = [codes.isdisjoint(word.split()) for word in failing.words]
    return np.array(fails_none, bool)[failing.rows]


# ------------------------------------------------------------------------------------ class shares


def class_shares(
    table: Table, schema: Schema, failing: Texts, reference: Table | None = None
) -> Iterator[dict[str, Any]]:
    """Yield, for each field of classes, the number of labels by class and split (DC903).

    Args:
        table: rows; each column is read when needed, then released.
        schema: the schema in force.
        failing: per row, the codes that it fails, separated by spaces.
        reference: the rows of the run that this one is compared with; all of them are counted.

    Returns:
        ``splits``; ``of``, the number of labels in each (one label per ``what``); ``samples``, the
        number of samples with labels. ``rows``: the ``name`` of a class and its ``counts`` by
        split; classes whose shares differ most come first. ``rest``: the same for all other classes
        together, ``most``, the largest difference of their shares (None if there is nothing to
        compare), and the number of them that each split lacks. ``then``: the labels of the same
        splits in the reference, None if it has none.
    """
    judged = _fails_none_of(failing, _NOT_COUNTED)
    ranked_splits, _ = ranks(table.rows(np.arange(len(table))), schema)
    others = [name for name in Texts.of(table.splits).present() if name not in ranked_splits]
    order = [*ranked_splits, *others]
    for name in _fields_of_classes(table):
        counted = _count_labels(table, name, judged, order)
        if counted is None or not (counted.labels.sum(axis=1) > 0).any():
            continue
        before = None
        if reference is not None:
            every_row = np.ones(len(reference), bool)
            before = _count_labels(reference, name, every_row, order)
        shares = _shares(table, schema.spec(name), name, counted, before)
        yield shares | {"what": _labelled_unit(schema, name, shares)}


def _fields_of_classes(table: Table) -> list[str]:
    suffix = ":classes"
    heads = (name.removesuffix(suffix) for name in table.columns if name.endswith(suffix))
    return sorted(head for head in heads if not head.startswith(":"))


def _column(table: Table, name: str) -> Measured | None:
    column = table.columns.get(f"{name}:classes")
    if (
        column is None
        or column.values.dtype.kind not in "iu"
        or column.values.shape[1:] != (PLACES,)
    ):
        return None  # a user's check may have written a column of this name
    return column


class _LabelCounts(NamedTuple):
    """The labels of a field.

    Args:
        splits: names of the splits.
        labels: int64 (splits, 64): labels by class.
        samples: int64 (splits): samples with labels.
        left_out: samples with labels that are not counted.
    """

    splits: list[str]
    labels: Array
    samples: Array
    left_out: int


def _count_labels(table: Table, name: str, judged: Array, order: list[str]) -> _LabelCounts | None:
    column = _column(table, name)
    if column is None:
        return None
    numbers = {split: number for number, split in enumerate(order)}
    splits = Texts.of(table.splits)
    rank = np.array([numbers.get(word, -1) for word in splits.words], np.int64)[splits.rows]
    rank = np.where(column.present & judged, rank, -1)
    labels = np.zeros((len(order), PLACES), np.int64)
    for start in range(0, len(rank), _CHUNK_ROWS):
        chunk = column.values[start : start + _CHUNK_ROWS]
        chunk_ranks = rank[start : start + _CHUNK_ROWS]
        for number in np.unique(chunk_ranks[chunk_ranks >= 0]).tolist():
            labels[number] += chunk[chunk_ranks == number].sum(axis=0, dtype=np.int64)
    samples = np.bincount(rank[rank >= 0], minlength=len(order))
    left_out = int(np.count_nonzero(column.present & ~judged))
    return _LabelCounts(order, labels, samples, left_out)


def _shares(
    table: Table, spec: FieldSpec, name: str, counted: _LabelCounts, before: _LabelCounts | None
) -> dict[str, Any]:
    labelled = np.flatnonzero(counted.labels.sum(axis=1) > 0).tolist()
    shown = labelled[:MOST_SPLITS]
    now = counted.labels[shown]
    names = class_names(spec)
    declared_classes = set(declared(spec))
    places = {number % PLACES for number in declared_classes}
    absent = sorted(places - set(np.flatnonzero(counted.labels.any(axis=0)).tolist()))
    unlabelled = [split for n, split in enumerate(counted.splits) if n not in labelled]
    return {
        "field": name,
        "splits": [counted.splits[n] for n in shown],
        "more_splits": len(labelled) - len(shown),
        "without": unlabelled[:MOST_SPLITS],
        "samples": counted.samples[shown].tolist(),
        "of": now.sum(axis=1).tolist(),
        "left_out": counted.left_out,
        "folded": _is_folded(table, name, declared_classes),
        "nowhere": {
            "many": len(absent),
            "names": [names[place] for place in absent[:_MAX_ABSENT_NAMED]],
        },
        **_class_rows(now, None if before is None else before.labels[shown], names),
    }


def _class_rows(now: Array, then: Array | None, names: list[str]) -> dict[str, Any]:
    """Return ``rows``, ``rest`` and ``then``.

    Shapes:
        now, then: int64 (splits, 64)
    """
    all_counts = now if then is None else np.concatenate([now, then])
    all_counts = all_counts[all_counts.sum(axis=1) > 0]
    shares = all_counts / all_counts.sum(axis=1, keepdims=True)
    # rounded, so that ties are ordered by class number
    spread = np.round(np.ptp(shares, axis=0), 12) if len(all_counts) > 1 else shares[0]
    occurring = np.flatnonzero(all_counts.any(axis=0))
    occurring = occurring[np.argsort(-spread[occurring], kind="stable")]
    shown_classes = occurring[:MOST_CLASSES].tolist()
    others = occurring[MOST_CLASSES:]
    rest = None
    if len(others):
        lacking = np.count_nonzero(now[:, others] == 0, axis=1).tolist()
        most = float(spread[others].max()) if len(all_counts) > 1 else None
        rest = {"classes": len(others), "most": most, "lacking": lacking} | _sums(now, then, others)
    return {
        "rows": [
            {"name": names[place]} | _sums(now, then, np.array([place])) for place in shown_classes
        ],
        "rest": rest,
        "then": None if then is None else [int(many) or None for many in then.sum(axis=1)],
    }


def _sums(now: Array, then: Array | None, places: Array) -> dict[str, Any]:
    return {
        "counts": now[:, places].sum(axis=1).tolist(),
        "then": None if then is None else then[:, places].sum(axis=1).tolist(),
    }


def _is_folded(table: Table, name: str, classes: set[int]) -> bool:
    """Return whether two classes may share a count, which is that of a class modulo `PLACES`."""
    if classes:
        return len({number % PLACES for number in classes}) < len(classes)
    low = _numbers(table, f"{name}:min")
    high = _numbers(table, f"{name}:max")
    all_small = len(low) and len(high) and low.min() >= 0 and high.max() < PLACES
    return not all_small


def _numbers(table: Table, column_name: str) -> Array:
    """Return the measured numbers of a column; none if there is no such column."""
    column = table.columns.get(column_name)
    if column is None or column.values.dtype.kind not in "biuf":
        return np.zeros(0)
    return column.values[column.present]


def _labelled_unit(schema: Schema, name: str, field_shares: dict[str, Any]) -> str:
    """Return what each label belongs to: "point", "sample", or "label" if unknown."""
    along = schema.spec(name).ragged
    if along is not None and any(spec.ragged == along for _, spec in schema.of_role("points")):
        return "point"
    return "sample" if field_shares["of"] == field_shares["samples"] else "label"


# ------------------------------------------------------------------------------------------- drifts

_PART = " of component "
# Labels of measures without a histogram in the page.
_LABELS = {
    "top": "highest class",
    "middle": "middle of the box",
    "centroid": "centroid",
    "first": "first point",
    "behind": "share behind",
    "count": "numbers",
    "placed": "finite points",
}


def drifts(rules: Mapping[str, Mapping[str, Any]], schema: Schema) -> Iterator[dict[str, Any]]:
    """Yield what each rule that compared distributions has recorded.

    That is its code, name, limits and measures.

    Args:
        rules: ``rules`` of a result.json.
        schema: that of the run.
    """
    for code, rule in rules.items():
        compared = rule.get("compared")
        if not compared:
            continue
        measures = [
            measure | {"label": _label(schema, measure["field"], measure["measure"])}
            for measure in compared["measures"]
        ]
        yield {
            "code": code,
            "name": rule["name"],
            **compared,
            "measures": measures,
            "effect": rule["options"].get("effect"),
            "false_discoveries": rule["options"].get("false_discoveries"),
        }


def _label(schema: Schema, field: str, measure: str) -> str:
    """Return the page's label of a rule's measure.

    "max of component 0" is labelled as the highest value of component 0.
    """
    stat, _, part = measure.partition(_PART)
    if stat == "length":
        stat = "dims"
    text = label(schema.spec(field), stat) if stat in STATISTICS else _LABELS.get(stat, stat)
    return f"{text}, component {part}" if part else text


# ----------------------------------------------------------------------------------------- overlaps


_MAX_PAIRS = 12  # examples named in all
_PAIRS_PER_SPLIT_PAIR = 3  # examples named for any two splits
# Placeholders are all equal: DC801 skips them, too.
_NOT_COMPARED = frozenset({"DC109", "DC602"})


def overlaps(table: Table, schema: Schema, failing: Texts) -> dict[str, Any] | None:
    """Return the samples and groups that splits share; None without two comparable splits.

    None also if there are too many splits, or if nothing was measured of it.

    Args:
        table: rows; two of their columns are read.
        schema: the schema in force; it defines the order of the splits.
        failing: per row, the codes that it fails, separated by spaces.

    Returns:
        ``splits`` in that order; for ``samples`` (by content) and ``groups`` (by split key):
        ``of``, the number in each split; ``shared``, the number of the first split (outer list)
        that also occur in the second; and ``pairs``: two splits, the group ("" for samples), and
        the first row of each split that has it.
    """
    rows = table.rows(np.arange(len(table)))
    order, rank = ranks(rows, schema)
    if not 2 <= len(order) <= MOST_SPLITS:
        return None
    judged = _fails_none_of(failing, _NOT_COMPARED)
    overlap_data = {}
    for values in _compared_values(rows):
        places = np.flatnonzero(values.known & judged & (rank >= 0))
        if len(places):
            overlap_data[values.kind] = _overlap_counts(values, places, rank[places], len(order))
    return {"splits": order} | overlap_data if overlap_data else None


class _ComparedValues(NamedTuple):
    """What the rows of two splits may share: their content, or their group.

    Args:
        kind: "samples" or "groups".
        known: bool (rows): measured.
        numbers: int64 (rows): equal where the rows share it.
        names: of the groups, by number; none for samples.
    """

    kind: str
    known: Array
    numbers: Array
    names: Sequence[str]


def _compared_values(rows: Rows) -> Iterator[_ComparedValues]:
    if "content" in rows:
        yield _ComparedValues("samples", rows.measured("content"), rows["content"], [])
    if "split_key" in rows:
        keys = Texts.of(rows["split_key"].tolist())
        is_named = np.array([word != "" for word in keys.words], bool)[keys.rows]
        known = rows.measured("split_key") & is_named
        yield _ComparedValues("groups", known, keys.rows.astype(np.int64), keys.words)


def _overlap_counts(
    compared: _ComparedValues, places: Array, rank: Array, splits: int
) -> dict[str, Any]:
    """Return ``of``, ``shared`` and ``pairs`` of some rows.

    Shapes:
        places, rank: int64 (rows): the row in the table, and its split
    """
    numbers = compared.numbers[places]
    names = compared.names
    if not names:
        # The usual case, checked in a third of the time.
        if _all_distinct(numbers):
            return {
                "of": np.bincount(rank, minlength=splits).tolist(),
                "shared": [[0] * splits for _ in range(splits)],
                "pairs": [],
            }
        _, numbers = np.unique(numbers, return_inverse=True)
    # A cell is one value in one split. Counting is enough: it avoids sorting all rows.
    cells = np.bincount(numbers * splits + rank)
    filled = np.flatnonzero(cells)
    value, split = np.divmod(filled, splits)
    in_several = np.bincount(value)[value] > 1
    shared_values, shared_index = np.unique(value[in_several], return_inverse=True)
    counts = np.zeros((len(shared_values), splits), np.int64)
    counts[shared_index, split[in_several]] = cells[filled[in_several]]
    present = (counts > 0).astype(np.int64)
    # Of groups the shared ones are counted, of samples all those of a shared content.
    shared = (present if names else counts).T @ present
    np.fill_diagonal(shared, 0)
    pairs = []
    for first_split, second_split, index in islice(_shared_values(counts, shared), _MAX_PAIRS):
        has_value = numbers == shared_values[index]
        pairs.append(
            {
                "splits": [first_split, second_split],
                "name": names[shared_values[index]] if names else "",
                "rows": [
                    int(places[np.argmax(has_value & (rank == side))])
                    for side in (first_split, second_split)
                ],
            }
        )
    return {
        "of": np.bincount(split if names else rank, minlength=splits).tolist(),
        "shared": shared.tolist(),
        "pairs": pairs,
    }


def _all_distinct(values: Array) -> bool:
    values = np.sort(values)  # `np.unique` hashes, which takes ten times as long
    return not bool((values[1:] == values[:-1]).any())


def _shared_values(counts: Array, shared: Array) -> Iterator[tuple[int, int, int]]:
    """Yield (split, split, index of a value that both have).

    Splits that share most come first, and for each pair its most frequent values.
    """
    pairs = sorted(
        combinations(range(len(shared)), 2), key=lambda pair: -int(shared[pair[1], pair[0]])
    )
    for first_split, second_split in pairs:
        common = np.flatnonzero((counts[:, first_split] > 0) & (counts[:, second_split] > 0))
        frequency = counts[common, first_split] + counts[common, second_split]
        for place in common[np.argsort(-frequency, kind="stable")[:_PAIRS_PER_SPLIT_PAIR]].tolist():
            yield first_split, second_split, place
