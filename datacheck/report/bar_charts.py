"""Bar charts of a run's page: counts of instances, classes, speakers, scripts and equal samples.

Every bar has two counts: of fit samples and of the others. A column of the expected name may come
from a check of the user, so each chart looks at the form of its column first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import dropwhile, pairwise
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import Measured, Table, Texts
from datacheck.report.shown_measures import option
from datacheck.rules.base import pluralize
from datacheck.rules.families.annotations import PURITY, WORST, instance_class_conflict, place_of
from datacheck.rules.label_counts import loader_steps, size_edges
from datacheck.rules.placement import APPROACHES
from datacheck.rules.text_bytes import BITS, LETTERS, SCRIPTS
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]
Plot = dict[str, Any]

_MAX_ROWS = 10  # orders of speakers, pairs of classes
_MAX_OPTION_CHARS = 60


def bar_charts(table: Table, name: str, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the bar charts of a field ("": of the sample as a whole).

    Args:
        table, schema, unfit: see `report.plots.plots`.
    """
    spec = schema.spec(name)
    first_instances = next((field for field, _ in schema.of_role("instance")), None)
    if name == first_instances:
        yield from _funnel(table, schema, unfit)
        yield from _sizes(table, schema, unfit)
        yield from _mixed_instances(table, schema, unfit)
    if spec.near and f":{name}:approach" in table.columns:
        title = f"Which way {name} comes to {spec.near}"
        yield from _approach_directions(table.columns[f":{name}:approach"], title, unfit)
    if f"{name}:turns" in table.columns and spec.role == "chat":
        yield from _speaker_orders(table.columns[f"{name}:turns"], unfit)
    if f"{name}:scripts" in table.columns:
        yield from _letter_scripts(table.columns[f"{name}:scripts"], unfit)
    if not name and ":content" in table.columns:
        yield from _duplicate_counts(table.columns[":content"], unfit)


class _Parts(NamedTuple):
    """Something of fit samples, and the same of the others."""

    fit: Array
    unfit: Array


def _rows_of(column: Measured, unfit: Array) -> _Parts:
    """Return int64 rows with a value, by fitness."""
    return _Parts(np.flatnonzero(column.present & ~unfit), np.flatnonzero(column.present & unfit))


def _sums(column: Measured, unfit: Array) -> _Parts:
    """Return the sum of each component, by fitness."""
    fit, others = _rows_of(column, unfit)
    return _Parts(
        column.values[fit].astype(np.int64).sum(axis=0),
        column.values[others].astype(np.int64).sum(axis=0),
    )


def _counts(numbers: Array, rows: _Parts, length: int) -> _Parts:
    """Return how often each number below `length` occurs, by fitness."""
    return _Parts(
        np.bincount(numbers[rows.fit], minlength=length),
        np.bincount(numbers[rows.unfit], minlength=length),
    )


def _bar(name: str, fit: int, unfit: int, note: str = "") -> dict[str, Any]:
    return {"name": name, "parts": [int(fit), int(unfit)], "said": note}


def _chart(title: str, what: str, rows: list[dict[str, Any]], about: str) -> Plot:
    return {"kind": "bars", "title": title, "what": what, "rows": rows, "about": about}


# ---------------------------------------------------------------------------------------- instances


def _funnel(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the number of instances left after each step of the loader, over all samples."""
    steps = loader_steps(schema)
    column = table.columns.get(":funnel")
    if column is None or column.values.shape[1:] != (2 + len(steps),) or not column.present.any():
        return
    names = ["stored", "with a class", *(f"{step} {_option_text(value)}" for step, value in steps)]
    left = _sums(column, unfit)
    without = (column.values[column.present].astype(np.int64) == 0).sum(axis=0)
    rows = []
    for name, fit, others, empty in zip(names, *left, without.tolist(), strict=True):
        rows.append(_bar(name, fit, others, f"none left in {pluralize(empty)}" if empty else ""))
    samples = pluralize(int(column.present.sum()))
    yield _chart(
        "Instances left after each step of the loader",
        "instance",
        rows,
        f"All instances of {samples}; the numbers after clip and voxel are expected values.",
    )


def _sizes(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the numbers of instances by their points at ``min_points``, over all samples."""
    steps = loader_steps(schema)
    column = table.columns.get(":sizes")
    edges = size_edges(steps)
    if column is None or column.values.shape[1:] != (len(edges) + 1,):
        return
    if not column.values[column.present].any():
        return
    least = dict(steps)["min_points"]
    names = [
        f"fewer than {edges[0]:,}",
        *(_span(low, high) for low, high in pairwise(edges)),
        f"{edges[-1]:,} and more",
    ]
    rows = []
    counts = _sums(column, unfit)
    for name, high, fit, others in zip(names, [*edges, math.inf], *counts, strict=True):
        is_dropped = high <= least and fit + others > 0
        rows.append(_bar(name, fit, others, "dropped" if is_dropped else ""))
    samples = pluralize(int(column.present.sum()))
    yield _chart(
        f"Points of each instance at min_points {least:,}",
        "instance",
        list(dropwhile(lambda row: not any(row["parts"]), rows)),
        f"All instances of {samples} that are left at this step; the numbers after clip and voxel are expected values.",
    )


def _mixed_instances(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the most frequent class pairs in instances for which DC406 finds too low a purity."""
    purity = table.columns.get(":purity")
    between = table.columns.get(":between")
    if purity is None or between is None or not _is_purity(purity, between):
        return
    levels = [
        place_of(option(schema, instance_class_conflict, severity))
        for severity in ("warning", "error")
    ]
    least = PURITY[max(levels)]
    # `owner` is the row of an instance; a row holds the classes of its worst instances in pairs.
    owner, nth = np.nonzero(purity.present[:, None] & (purity.values < least))
    if not len(owner):
        return
    classes, class_numbers = np.unique(
        between.values[owner[:, None], 2 * nth[:, None] + [0, 1]], return_inverse=True
    )
    # A pair as one number: single numbers are sorted faster than rows.
    codes = np.sort(class_numbers.reshape(-1, 2), axis=1) @ [len(classes), 1]
    pairs, pair_numbers = np.unique(codes, return_inverse=True)
    rows = []
    for number in np.argsort(-np.bincount(pair_numbers), kind="stable")[:_MAX_ROWS].tolist():
        pair_owners = owner[pair_numbers == number]
        first, second = divmod(int(pairs[number]), len(classes))
        of_unfit = int(np.count_nonzero(unfit[pair_owners]))
        rows.append(
            _bar(
                f"{classes[first]} and {classes[second]}",
                len(pair_owners) - of_unfit,
                of_unfit,
                f"in {pluralize(len(np.unique(pair_owners)))}",
            )
        )
    about = "The two classes that most of the points of such an instance have"
    if len(pairs) > _MAX_ROWS:
        about += f"; the {_MAX_ROWS} most frequent pairs of {len(pairs):,}"
    full = int(np.count_nonzero(np.bincount(owner) == WORST))
    if full:
        about += f"; of {pluralize(full)} with {WORST} or more of them the {WORST} worst"
    yield _chart(
        f"Classes of instances with less than {100 * least:g} % of their points in one",
        "instance",
        rows,
        f"{about}.",
    )


def _is_purity(purity: Measured, between: Measured) -> bool:
    has_kinds = purity.values.dtype.kind == "f" and between.values.dtype.kind == "i"
    shapes = purity.values.shape[1:], between.values.shape[1:]
    return has_kinds and shapes == ((WORST,), (2 * WORST,))


def _approach_directions(column: Measured, title: str, unfit: Array) -> Iterator[Plot]:
    """Yield the directions from which hands approach an object."""
    if column.values.shape[1:] != (APPROACHES,) or column.values.dtype.kind not in "iu":
        return
    counts = _sums(column, unfit)
    if any(part.sum() for part in counts):
        samples = pluralize(int(column.present.sum()))
        yield {
            "kind": "approach",
            "title": title,
            "counts": [part.tolist() for part in counts],
            "about": f"Of {samples}: the cosine between the way to the centre and up.",
        }


def _span(low: int, high: int) -> str:
    return f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"


def _option_text(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _MAX_OPTION_CHARS else f"{text[: _MAX_OPTION_CHARS - 2]} …"


# -------------------------------------------------------------------------------------------- texts


def _speaker_orders(column: Measured, unfit: Array) -> Iterator[Plot]:
    """Yield the most frequent orders of speakers."""
    if column.values.dtype.kind not in "OU" or column.values.ndim != 1:
        return
    texts = Texts.of(column.values.tolist())
    counts = _counts(texts.rows, _rows_of(column, unfit), len(texts.words))
    totals = counts.fit + counts.unfit
    order = np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]
    if not len(order):
        return
    rows = [
        _bar(texts.words[number] or "no turn", counts.fit[number], counts.unfit[number])
        for number in order[:_MAX_ROWS].tolist()
    ]
    rest = order[_MAX_ROWS:]
    if len(rest):
        name = f"{len(rest):,} others"
        rows.append(_bar(name, counts.fit[rest].sum(), counts.unfit[rest].sum()))
    yield _chart(
        "Who speaks when",
        "sample",
        rows,
        "The most frequent orders of speakers; repeats in a row are counted.",
    )


def _letter_scripts(column: Measured, unfit: Array) -> Iterator[Plot]:
    """Yield, by script, the samples with mostly that script, and those with any character of it."""
    if column.values.dtype.kind not in "iu" or column.values.ndim != 1:
        return
    # The upper bits hold the script of most letters (0: no letter), the lower a bit for each script.
    main_script = column.values >> BITS
    if not column.present.any() or main_script.min() < 0 or main_script.max() > len(LETTERS):
        return
    counts = _counts(main_script, _rows_of(column, unfit), len(SCRIPTS) + 1)
    rows = []
    for place, script in enumerate(SCRIPTS.values()):
        has_script = column.present & (column.values >> place & 1 > 0)
        samples = int(np.count_nonzero(has_script))
        note = f"in {pluralize(samples)} at all" if samples else ""
        rows.append(_bar(script, counts.fit[1 + place], counts.unfit[1 + place], note))
    rows.append(_bar("no letter", counts.fit[0], counts.unfit[0]))
    yield _chart(
        "Letters by script",
        "sample",
        [row for row in rows if row["said"] or any(row["parts"])],
        "Samples by the script of most of their letters (blocks of Unicode), and how many hold any "
        "of it.",
    )


# ------------------------------------------------------------------------------------ equal samples

# Lower bounds of the ranges in which numbers of equal samples are counted.
_SIZES = (2, 3, 4, 5, 9, 17, 33, 65, 129, 1025)


def _duplicate_counts(column: Measured, unfit: Array) -> Iterator[Plot]:
    """Yield the numbers of samples by the size of their group of equal samples."""
    rows = np.flatnonzero(column.present)
    if column.values.dtype.kind not in "iu" or not len(rows):
        return
    order = rows[np.argsort(column.values[rows])]
    content = column.values[order]
    starts = np.flatnonzero(np.diff(content, prepend=content[:1] - 1))
    sizes = np.diff(np.append(starts, len(order)))
    if not (sizes > 1).any():
        return
    size_ranges = np.searchsorted(_SIZES, sizes, side="right")  # 0: no equal sample
    range_of_sample = np.repeat(size_ranges, sizes)
    is_unfit = unfit[order]
    counts = _counts(range_of_sample, _Parts(~is_unfit, is_unfit), len(_SIZES) + 1)
    groups = np.bincount(size_ranges, minlength=len(_SIZES) + 1).tolist()
    names = [_span(low, high) for low, high in pairwise(_SIZES)]
    names.append(f"{_SIZES[-1]:,} and more")
    alone, *others = groups
    yield _chart(
        "Samples of equal content",
        "sample",
        [
            _bar(
                f"{names[number - 1]} equal",
                counts.fit[number],
                counts.unfit[number],
                f"in {pluralize(group_count, 'group')}",
            )
            for number, group_count in enumerate(others, 1)
            if group_count
        ],
        f"{alone:,} of {len(order):,} samples {'has' if alone == 1 else 'have'} no duplicate.",
    )
