"""Tables of a run's page that compare splits: class shares, counts, drifts and overlaps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, dropwhile, islice, pairwise
from typing import Any

import numpy as np

from datacheck.model.table import Measured, Rows, Table, Texts
from datacheck.report.shown_measures import STATISTICS, label, option
from datacheck.rules.base import pluralize
from datacheck.rules.families.annotations import PURITY, WORST, instance_class_conflict, place_of
from datacheck.rules.label_counts import PLACES, class_names, declared, loader_steps, size_edges
from datacheck.rules.placement import APPROACHES
from datacheck.rules.similarity import ranks
from datacheck.rules.text_bytes import BITS, LETTERS, SCRIPTS
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

MOST_CLASSES = 30
MOST_SPLITS = 12
_MAX_ABSENT_NAMED = 12  # classes named that no sample has
_CHUNK_ROWS = 32_768
# As in DC903: samples of placeholders, and labels out of range, which would count as another class
# (modulo `PLACES`).
_NOT_JUDGED = frozenset({"DC109", "DC404"})


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
    judged = np.array([_NOT_JUDGED.isdisjoint(word.split()) for word in failing.words], bool)[
        failing.rows
    ]
    present = Texts.of(table.splits).present()
    ranked_splits = ranks(table.rows(np.arange(len(table))), schema)[0]
    order = [*ranked_splits, *(name for name in present if name not in ranked_splits)]
    for name in sorted(
        head for head, _, stat in (n.rpartition(":") for n in table.columns) if stat == "classes"
    ):
        column = None if name.startswith(":") else _column(table, name)
        if column is not None:
            field_shares = _field(
                table, schema.spec(name), name, (column, judged), order, reference
            )
            if field_shares is not None:
                yield field_shares | {"what": _labelled_unit(schema, name, field_shares)}


def _column(table: Table, name: str) -> Measured | None:
    column = table.columns.get(f"{name}:classes")
    if (
        column is None
        or column.values.dtype.kind not in "iu"
        or column.values.shape[1:] != (PLACES,)
    ):
        return None  # a user's check may have written a column of this name
    return column


def _field(
    table: Table,
    spec: FieldSpec,
    name: str,
    rows: tuple[Measured, Array],
    order: list[str],
    reference: Table | None,
) -> dict[str, Any] | None:
    column, judged = rows
    counts, samples = _label_counts(column, table, judged, order)
    labelled = np.flatnonzero(counts.sum(axis=1) > 0).tolist()
    if not labelled:
        return None
    shown_splits = labelled[:MOST_SPLITS]
    names = class_names(spec)
    reference_column = None if reference is None else _column(reference, name)
    then = None
    if reference is not None and reference_column is not None:
        then = _label_counts(
            reference_column,
            reference,
            np.ones(len(reference), bool),
            [order[n] for n in shown_splits],
        )[0]
    now = counts[shown_splits]
    declared_classes = set(declared(spec))
    places = {c % PLACES for c in declared_classes}
    nowhere = sorted(places - set(np.flatnonzero(counts.any(axis=0)).tolist()))
    return {
        "field": name,
        "splits": [order[n] for n in shown_splits],
        "more_splits": len(labelled) - len(shown_splits),
        "without": [name for n, name in enumerate(order) if n not in labelled][:MOST_SPLITS],
        "samples": samples[shown_splits].tolist(),
        "of": now.sum(axis=1).tolist(),
        "left_out": int(np.count_nonzero(column.present & ~judged)),
        "folded": len(places) < len(declared_classes)
        if declared_classes
        else not _has_small_labels(table, name),
        "nowhere": {
            "many": len(nowhere),
            "names": [names[place] for place in nowhere[:_MAX_ABSENT_NAMED]],
        },
        **_class_rows(now, then, names),
    }


def _label_counts(
    column: Measured, table: Table, judged: Array, order: list[str]
) -> tuple[Array, Array]:
    """Return int64 (splits, 64) labels by class, and int64 (splits) samples with labels."""
    places = {name: place for place, name in enumerate(order)}
    splits = Texts.of(table.splits)
    rank = np.array([places.get(word, -1) for word in splits.words], np.int64)[splits.rows]
    rank = np.where(column.present & judged, rank, -1)
    counts = np.zeros((len(order), PLACES), np.int64)
    for start in range(0, len(rank), _CHUNK_ROWS):  # chunks that fit into the CPU caches
        part = column.values[start : start + _CHUNK_ROWS]
        part_ranks = rank[start : start + _CHUNK_ROWS]
        for place in np.unique(part_ranks[part_ranks >= 0]).tolist():
            counts[place] += part[part_ranks == place].sum(axis=0, dtype=np.int64)
    return counts, np.bincount(rank[rank >= 0], minlength=len(order))


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


def _has_small_labels(table: Table, name: str) -> bool:
    """Return whether all labels are known to lie below `PLACES`.

    Then no two classes share a count, even without declared classes.
    """
    ends = [table.columns.get(f"{name}:{stat}") for stat in ("min", "max")]
    if any(end is None or end.values.dtype.kind not in "biuf" for end in ends):
        return False
    low, high = (end.values[end.present] for end in ends if end is not None)
    return bool(len(low) and len(high) and low.min() >= 0 and high.max() < PLACES)


def _labelled_unit(schema: Schema, name: str, field_shares: dict[str, Any]) -> str:
    """Return what each label belongs to: "point", "sample", or "label" if unknown."""
    along = schema.spec(name).ragged
    if along is not None and any(spec.ragged == along for _, spec in schema.of_role("points")):
        return "point"
    return "sample" if field_shares["of"] == field_shares["samples"] else "label"


Plot = dict[str, Any]

_MAX_ROWS = 10  # orders of speakers, pairs of classes
# lower bounds of the ranges in which numbers of equal samples are counted
_SIZES = (2, 3, 4, 5, 9, 17, 33, 65, 129, 1025)
_MAX_OPTION_CHARS = 60  # characters


def counts(table: Table, name: str, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the bar charts of a field ("": of the sample as a whole).

    Each row has a name and two counts: of fit samples and of the others.

    Args:
        table, schema, unfit: see `report.plots.plots`.
    """
    if name == next((field for field, _ in schema.of_role("instance")), None):
        yield from _funnel(table, schema, unfit)
        yield from _sizes(table, schema, unfit)
        yield from _mixed_instances(table, schema, unfit)
    if (spec := schema.spec(name)).near and f":{name}:approach" in table.columns:
        yield from _approach_directions(
            table.columns[f":{name}:approach"], f"Which way {name} comes to {spec.near}", unfit
        )
    if f"{name}:turns" in table.columns and schema.spec(name).role == "chat":
        yield from _speaker_orders(table, f"{name}:turns", unfit)
    if f"{name}:scripts" in table.columns:
        yield from _letter_scripts(table, f"{name}:scripts", unfit)
    if not name and ":content" in table.columns:
        yield from _duplicate_counts(table, unfit)


def _funnel(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the number of instances left after each step of the loader, over all samples."""
    steps = loader_steps(schema)
    column = table.columns.get(":funnel")
    if column is None or column.values.shape[1:] != (2 + len(steps),) or not column.present.any():
        return
    names = ["stored", "with a class", *(f"{step} {_option_text(value)}" for step, value in steps)]
    parts = [column.values[column.present & mask].astype(np.int64) for mask in (~unfit, unfit)]
    remaining = [part.sum(axis=0).tolist() for part in parts]
    none = sum((part == 0).sum(axis=0) for part in parts).tolist()
    yield {
        "kind": "bars",
        "title": "Instances left after each step of the loader",
        "what": "instance",
        "rows": [
            {
                "name": step,
                "parts": [a, b],
                "said": f"none left in {pluralize(empty)}" if empty else "",
            }
            for step, a, b, empty in zip(names, *remaining, none, strict=True)
        ],
        "about": f"All instances of {pluralize(int(column.present.sum()))}; behind clip and voxel "
        f"what is expected.",
    }


def _sizes(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the numbers of instances by their points at ``min_points``, over all samples."""
    steps = loader_steps(schema)
    column = table.columns.get(":sizes")
    edges = size_edges(steps)
    if (
        column is None
        or column.values.shape[1:] != (len(edges) + 1,)
        or not column.values[column.present].any()
    ):
        return
    least = dict(steps)["min_points"]
    names = [
        f"fewer than {edges[0]:,}",
        *(_span(low, high) for low, high in pairwise(edges)),
        f"{edges[-1]:,} and more",
    ]
    parts = [
        column.values[column.present & mask].astype(np.int64).sum(axis=0).tolist()
        for mask in (~unfit, unfit)
    ]
    rows = [
        {"name": name, "parts": [a, b], "said": "dropped" if high <= least and a + b else ""}
        for name, high, a, b in zip(names, [*edges, math.inf], *parts, strict=True)
    ]
    yield {
        "kind": "bars",
        "title": f"Points of each instance where min_points {least:,} meets it",
        "what": "instance",
        "rows": list(dropwhile(lambda row: not any(row["parts"]), rows)),
        "about": f"All instances of {pluralize(int(column.present.sum()))} that are left by then; "
        f"behind clip and voxel "
        "what is expected.",
    }


def _mixed_instances(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the most frequent class pairs in instances for which DC406 finds too low a purity."""
    purity, between = (table.columns.get(name) for name in (":purity", ":between"))
    if purity is None or between is None or purity.values.shape[1:] != (WORST,):
        return
    if (
        purity.values.dtype.kind != "f"
        or between.values.dtype.kind != "i"
        or between.values.shape[1:] != (2 * WORST,)
    ):
        return
    least = PURITY[
        max(
            place_of(option(schema, instance_class_conflict, word)) for word in ("warning", "error")
        )
    ]
    owner, nth = np.nonzero(purity.present[:, None] & (purity.values < least))
    if not len(owner):
        return
    names, code = np.unique(
        between.values[owner[:, None], 2 * nth[:, None] + [0, 1]], return_inverse=True
    )
    pairs, pair_numbers = np.unique(
        np.sort(code.reshape(-1, 2), axis=1) @ [len(names), 1], return_inverse=True
    )
    rows = []
    for n in np.argsort(-np.bincount(pair_numbers), kind="stable")[:_MAX_ROWS].tolist():
        pair_owners = owner[pair_numbers == n]
        class_name, other_class = (names[place] for place in divmod(int(pairs[n]), len(names)))
        parts = [int(np.count_nonzero(mask[pair_owners])) for mask in (~unfit, unfit)]
        rows.append(
            {
                "name": f"{class_name} and {other_class}",
                "parts": parts,
                "said": f"in {pluralize(len(np.unique(pair_owners)))}",
            }
        )
    about = "The two classes that most of the points of such an instance have"
    about += (
        f"; the {_MAX_ROWS} most frequent pairs of {len(pairs):,}" if len(pairs) > _MAX_ROWS else ""
    )
    full = int(np.count_nonzero(np.bincount(owner) == WORST))
    about += (
        f"; of {pluralize(full)} with {WORST} or more of them the {WORST} worst" if full else ""
    )
    yield {
        "kind": "bars",
        "title": f"Classes of instances with less than {100 * least:g} % of their points in one",
        "what": "instance",
        "rows": rows,
        "about": f"{about}.",
    }


def _approach_directions(column: Measured, title: str, unfit: Array) -> Iterator[Plot]:
    """Yield the directions from which hands approach an object."""
    if column.values.shape[1:] != (APPROACHES,) or column.values.dtype.kind not in "iu":
        return
    parts = [
        column.values[column.present & mask].astype(np.int64).sum(axis=0).tolist()
        for mask in (~unfit, unfit)
    ]
    if any(map(sum, parts)):
        yield {
            "kind": "approach",
            "title": title,
            "counts": parts,
            "about": f"Of {pluralize(int(column.present.sum()))}: the cosine between the way to "
            f"the centre and up.",
        }


def _span(low: int, high: int) -> str:
    return f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"


def _option_text(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _MAX_OPTION_CHARS else f"{text[: _MAX_OPTION_CHARS - 2]} …"


def _speaker_orders(table: Table, name: str, unfit: Array) -> Iterator[Plot]:
    """Yield the most frequent orders of speakers."""
    column = table.columns[name]
    if column.values.dtype.kind not in "OU" or column.values.ndim != 1:
        return
    texts = Texts.of(column.values.tolist())
    parts = [
        np.bincount(texts.rows[column.present & mask], minlength=len(texts.words))
        for mask in (~unfit, unfit)
    ]
    totals = parts[0] + parts[1]
    order = np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]
    shown_orders = order[:_MAX_ROWS].tolist()
    rest = order[_MAX_ROWS:]
    if not len(order):
        return
    rows = [
        {"name": texts.words[n] or "no turn", "parts": [int(part[n]) for part in parts], "said": ""}
        for n in shown_orders
    ]
    if len(rest):
        rows.append(
            {
                "name": f"{len(rest):,} others",
                "parts": [int(part[rest].sum()) for part in parts],
                "said": "",
            }
        )
    yield {
        "kind": "bars",
        "title": "Who speaks when",
        "what": "sample",
        "rows": rows,
        "about": "The most frequent orders of speakers; what comes again at once is counted.",
    }


def _letter_scripts(table: Table, name: str, unfit: Array) -> Iterator[Plot]:
    """Yield, by script, the samples with mostly that script, and those with any character of it."""
    column = table.columns[name]
    if column.values.dtype.kind not in "iu" or column.values.ndim != 1:
        return
    main_script = column.values >> BITS
    size = len(LETTERS) + 1
    if not column.present.any() or main_script.min() < 0 or main_script.max() >= size:
        return
    parts = [
        np.bincount(main_script[column.present & mask], minlength=size).tolist()
        for mask in (~unfit, unfit)
    ]
    sample_counts = [
        int(np.count_nonzero(column.present & (column.values >> place & 1 > 0)))
        for place in range(len(SCRIPTS))
    ]
    rows = [
        {"name": word, "parts": [a, b], "said": f"in {pluralize(many)} at all" if many else ""}
        for word, a, b, many in zip(
            SCRIPTS.values(),
            *([*part[1:], *[0] * (len(SCRIPTS) - len(LETTERS))] for part in parts),
            sample_counts,
            strict=True,
        )
    ]
    rows.append({"name": "no letter", "parts": [part[0] for part in parts], "said": ""})
    yield {
        "kind": "bars",
        "title": "Letters by script",
        "what": "sample",
        "rows": [row for row in rows if row["said"] or any(row["parts"])],
        "about": "Samples by the script of most of their letters (blocks of Unicode), and how many "
        "hold any of it.",
    }


def _duplicate_counts(table: Table, unfit: Array) -> Iterator[Plot]:
    """Yield the numbers of samples by the size of their group of equal samples."""
    column = table.columns[":content"]
    rows = np.flatnonzero(column.present)
    if column.values.dtype.kind not in "iu" or not len(rows):
        return
    order = rows[np.argsort(column.values[rows])]
    starts = np.flatnonzero(np.diff(column.values[order], prepend=column.values[order[:1]] - 1))
    sizes = np.diff(np.append(starts, len(order)))
    if not (sizes > 1).any():
        return
    size_ranges = np.searchsorted(_SIZES, sizes, side="right")  # 0: alone
    owner = np.repeat(size_ranges, sizes)
    parts = [np.bincount(owner[mask[order]], minlength=len(_SIZES) + 1) for mask in (~unfit, unfit)]
    groups = np.bincount(size_ranges, minlength=len(_SIZES) + 1).tolist()
    names = ["", *(_span(low, high) for low, high in pairwise(_SIZES))]
    names.append(f"{_SIZES[-1]:,} and more")
    yield {
        "kind": "bars",
        "title": "Samples of equal content",
        "what": "sample",
        "rows": [
            {
                "name": f"{names[n]} equal",
                "parts": [int(part[n]) for part in parts],
                "said": f"in {pluralize(groups[n], 'group')}",
            }
            for n in range(1, len(groups))
            if groups[n]
        ],
        "about": f"{int(groups[0]):,} of {len(order):,} samples "
        f"{'has' if groups[0] == 1 else 'have'} no other of the "
        "same content.",
    }


_PART = " of component "
# labels of measures without a histogram in the page
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
        if compared:
            measures = [
                measure | {"label": _label(schema, measure["field"], measure["measure"])}
                for measure in compared["measures"]
            ]
            limits = {name: rule["options"].get(name) for name in ("effect", "false_discoveries")}
            yield {"code": code, "name": rule["name"]} | compared | {"measures": measures} | limits


def _label(schema: Schema, field: str, measure: str) -> str:
    """Return the page's label of a rule's measure.

    "max of component 0" is labelled as the highest value of component 0.
    """
    stat, _, part = measure.partition(_PART)
    stat = {"length": "dims"}.get(stat, stat)
    text = label(schema.spec(field), stat) if stat in STATISTICS else _LABELS.get(stat, stat)
    return f"{text}, component {part}" if part else text


_MAX_PAIRS = 12
_PAIRS_PER_SPLIT_PAIR = 3  # examples named for any two splits
# placeholders are all equal: DC801 skips them, too
_OVERLAPS_NOT_JUDGED = frozenset({"DC109", "DC602"})


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
    judged = np.array(
        [_OVERLAPS_NOT_JUDGED.isdisjoint(word.split()) for word in failing.words], bool
    )[failing.rows]
    overlap_data = {
        kind: _overlap_counts(values[places], rank[places], len(order), places, names)
        for kind, measured, values, names in _compared_values(rows)
        if len(places := np.flatnonzero(measured & judged & (rank >= 0)))
    }
    return {"splits": order} | overlap_data if overlap_data else None


def _compared_values(rows: Rows) -> Iterator[tuple[str, Array, Array, list[str]]]:
    """Yield what is compared, where it is known, a number for each row, and the numbers' names.

    Shapes:
        known: bool (rows)
        numbers: int64 (rows)
    """
    if "content" in rows:
        yield "samples", rows.measured("content"), rows["content"], []
    if "split_key" in rows:
        keys = Texts.of(rows["split_key"].tolist())
        named = np.array([word != "" for word in keys.words], bool)[keys.rows]
        yield (
            "groups",
            rows.measured("split_key") & named,
            keys.rows.astype(np.int64),
            [*keys.words],
        )


def _overlap_counts(
    values: Array, rank: Array, splits: int, places: Array, names: list[str]
) -> dict[str, Any]:
    """Return ``of``, ``shared`` and ``pairs`` of some rows.

    Shapes:
        values, rank, places: int64 (rows): the compared value, the split, the row in the table
    """
    none = [[0] * splits for _ in range(splits)]
    if not names and _all_distinct(values):  # the usual case, checked in a third of the time
        return {"of": np.bincount(rank, minlength=splits).tolist(), "shared": none, "pairs": []}
    distinct_values, value_numbers = (
        (np.arange(len(names)), values) if names else np.unique(values, return_inverse=True)
    )
    cells = np.bincount(
        value_numbers * splits + rank
    )  # counting is enough: avoids sorting all rows
    filled_cells = np.flatnonzero(cells)
    sizes, (value, split) = cells[filled_cells], np.divmod(filled_cells, splits)
    split_sizes = np.bincount(split if names else rank, minlength=splits).tolist()
    several = np.bincount(value)[value] > 1
    shared_values, number = np.unique(value[several], return_inverse=True)
    counts = np.zeros((len(shared_values), splits), np.int64)
    counts[number, split[several]] = sizes[several]
    present = (counts > 0).astype(np.int64)
    shared = (present if names else counts).T @ present
    np.fill_diagonal(shared, 0)
    pairs = [
        {
            "splits": [first_split, second_split],
            "name": names[distinct_values[shared_values[shared_index]]] if names else "",
            "rows": [
                int(
                    places[
                        np.argmax((value_numbers == shared_values[shared_index]) & (rank == side))
                    ]
                )
                for side in (first_split, second_split)
            ],
        }
        for first_split, second_split, shared_index in islice(
            _shared_values(counts, shared), _MAX_PAIRS
        )
    ]
    return {"of": split_sizes, "shared": shared.tolist(), "pairs": pairs}


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
