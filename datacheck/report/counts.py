"""What the page counts of whole samples: instances from step to step of the loader, orders of speakers, copies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import dropwhile, pairwise
from typing import Any

import numpy as np

from datacheck.report.measures import option
from datacheck.rules.base import counted
from datacheck.rules.beside import APPROACHES
from datacheck.rules.families.annotations import PURITY, WORST, instance_class_conflict, place_of
from datacheck.rules.funnel import loader_steps, size_edges
from datacheck.rules.scripts import BITS, LETTERS, SCRIPTS
from datacheck.schema.model import Schema
from datacheck.table import Measured, Table, Texts

Array = np.ndarray[Any, Any]
Plot = dict[str, Any]

_MOST = 10  # orders of speakers
_SIZES = (2, 3, 4, 5, 9, 17, 33, 65, 129, 1025)  # samples that are equal: from which on they are counted together
_SAID = 60  # characters


def counts(table: Table, name: str, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the counts of a field ("": of the sample as a whole): rows of a name, and what fit samples and others have.

    Args:
        table, schema, unfit: as of `plots`.
    """
    if name == next((field for field, _ in schema.of_role("instance")), None):
        yield from _funnel(table, schema, unfit)
        yield from _sizes(table, schema, unfit)
        yield from _mixed(table, schema, unfit)
    if (spec := schema.spec(name)).near and f":{name}:approach" in table.columns:
        yield from _approach(table.columns[f":{name}:approach"], f"Which way {name} comes to {spec.near}", unfit)
    if f"{name}:turns" in table.columns and schema.spec(name).role == "chat":
        yield from _orders(table, f"{name}:turns", unfit)
    if f"{name}:scripts" in table.columns:
        yield from _letters(table, f"{name}:scripts", unfit)
    if not name and ":content" in table.columns:
        yield from _copies(table, unfit)


def _funnel(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield how many instances are left after each step of the loader, over all samples."""
    steps, column = loader_steps(schema), table.columns.get(":funnel")
    if column is None or column.values.shape[1:] != (2 + len(steps),) or not column.present.any():
        return
    names = ["stored", "with a class", *(f"{step} {_said(value)}" for step, value in steps)]
    parts = [column.values[column.present & mask].astype(np.int64) for mask in (~unfit, unfit)]
    left = [part.sum(axis=0).tolist() for part in parts]
    none = sum((part == 0).sum(axis=0) for part in parts).tolist()
    yield {
        "kind": "bars", "title": "Instances left after each step of the loader", "what": "instance",
        "rows": [
            {"name": step, "parts": [a, b], "said": f"none left in {counted(empty)}" if empty else ""}
            for step, a, b, empty in zip(names, *left, none, strict=True)
        ],
        "about": f"All instances of {counted(int(column.present.sum()))}; behind clip and voxel what is expected.",
    }  # fmt: skip


def _sizes(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield how many instances have how many points where ``min_points`` meets them, over all samples."""
    steps, column = loader_steps(schema), table.columns.get(":sizes")
    edges = size_edges(steps)
    if column is None or column.values.shape[1:] != (len(edges) + 1,) or not column.values[column.present].any():
        return
    least = dict(steps)["min_points"]
    names = [
        f"fewer than {edges[0]:,}",
        *(_span(low, high) for low, high in pairwise(edges)),
        f"{edges[-1]:,} and more",
    ]
    parts = [column.values[column.present & mask].astype(np.int64).sum(axis=0).tolist() for mask in (~unfit, unfit)]
    rows = [
        {"name": name, "parts": [a, b], "said": "dropped" if high <= least and a + b else ""}
        for name, high, a, b in zip(names, [*edges, math.inf], *parts, strict=True)
    ]
    yield {
        "kind": "bars", "title": f"Points of each instance where min_points {least:,} meets it", "what": "instance",
        "rows": list(dropwhile(lambda row: not any(row["parts"]), rows)),
        "about": f"All instances of {counted(int(column.present.sum()))} that are left by then; behind clip and voxel "
        "what is expected.",
    }  # fmt: skip


def _mixed(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield which two classes most points of an instance have where DC406 finds too few of them in one."""
    purity, between = (table.columns.get(name) for name in (":purity", ":between"))
    if purity is None or between is None or purity.values.shape[1:] != (WORST,):
        return
    if purity.values.dtype.kind != "f" or between.values.dtype.kind != "i" or between.values.shape[1:] != (2 * WORST,):
        return
    least = PURITY[max(place_of(option(schema, instance_class_conflict, word)) for word in ("warning", "error"))]
    owner, nth = np.nonzero(purity.present[:, None] & (purity.values < least))
    if not len(owner):
        return
    names, code = np.unique(between.values[owner[:, None], 2 * nth[:, None] + [0, 1]], return_inverse=True)
    pairs, which = np.unique(np.sort(code.reshape(-1, 2), axis=1) @ [len(names), 1], return_inverse=True)
    rows = []
    for n in np.argsort(-np.bincount(which), kind="stable")[:_MOST].tolist():
        mine = owner[which == n]
        one, other = (names[place] for place in divmod(int(pairs[n]), len(names)))
        parts = [int(np.count_nonzero(mask[mine])) for mask in (~unfit, unfit)]
        rows.append({"name": f"{one} and {other}", "parts": parts, "said": f"in {counted(len(np.unique(mine)))}"})
    about = "The two classes that most of the points of such an instance have"
    about += f"; the {_MOST} most frequent pairs of {len(pairs):,}" if len(pairs) > _MOST else ""
    full = int(np.count_nonzero(np.bincount(owner) == WORST))
    about += f"; of {counted(full)} with {WORST} or more of them the {WORST} worst" if full else ""
    yield {
        "kind": "bars", "title": f"Classes of instances with less than {100 * least:g} % of their points in one",
        "what": "instance", "rows": rows, "about": f"{about}.",
    }  # fmt: skip


def _approach(column: Measured, title: str, unfit: Array) -> Iterator[Plot]:
    """Yield in which directions hands come to a thing."""
    if column.values.shape[1:] != (APPROACHES,) or column.values.dtype.kind not in "iu":
        return
    parts = [column.values[column.present & mask].astype(np.int64).sum(axis=0).tolist() for mask in (~unfit, unfit)]
    if any(map(sum, parts)):
        yield {
            "kind": "approach", "title": title, "counts": parts,
            "about": f"Of {counted(int(column.present.sum()))}: the cosine between the way to the centre and up.",
        }  # fmt: skip


def _span(low: int, high: int) -> str:
    return f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"


def _said(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _SAID else f"{text[: _SAID - 2]} …"


def _orders(table: Table, name: str, unfit: Array) -> Iterator[Plot]:
    """Yield which orders of speakers are most frequent."""
    column = table.columns[name]
    if column.values.dtype.kind not in "OU" or column.values.ndim != 1:
        return
    texts = Texts.of(column.values.tolist())
    parts = [np.bincount(texts.rows[column.present & mask], minlength=len(texts.words)) for mask in (~unfit, unfit)]
    both = parts[0] + parts[1]
    order = np.argsort(-both, kind="stable")[: np.count_nonzero(both)]
    first, rest = order[:_MOST].tolist(), order[_MOST:]
    if not len(order):
        return
    rows = [{"name": texts.words[n] or "no turn", "parts": [int(part[n]) for part in parts], "said": ""} for n in first]
    if len(rest):
        rows.append({"name": f"{len(rest):,} others", "parts": [int(part[rest].sum()) for part in parts], "said": ""})
    yield {
        "kind": "bars", "title": "Who speaks when", "what": "sample", "rows": rows,
        "about": "The most frequent orders of speakers; what comes again at once is counted.",
    }  # fmt: skip


def _letters(table: Table, name: str, unfit: Array) -> Iterator[Plot]:
    """Yield in how many samples the letters are of which script, and how many hold any character of it."""
    column = table.columns[name]
    if column.values.dtype.kind not in "iu" or column.values.ndim != 1:
        return
    first, size = column.values >> BITS, len(LETTERS) + 1
    if not column.present.any() or first.min() < 0 or first.max() >= size:
        return
    parts = [np.bincount(first[column.present & mask], minlength=size).tolist() for mask in (~unfit, unfit)]
    held = [int(np.count_nonzero(column.present & (column.values >> place & 1 > 0))) for place in range(len(SCRIPTS))]
    rows = [
        {"name": word, "parts": [a, b], "said": f"in {counted(many)} at all" if many else ""}
        for word, a, b, many in zip(
            SCRIPTS.values(), *([*part[1:], *[0] * (len(SCRIPTS) - len(LETTERS))] for part in parts), held, strict=True
        )
    ]
    rows.append({"name": "no letter", "parts": [part[0] for part in parts], "said": ""})
    yield {
        "kind": "bars", "title": "Letters by script", "what": "sample",
        "rows": [row for row in rows if row["said"] or any(row["parts"])],
        "about": "Samples by the script of most of their letters (blocks of Unicode), and how many hold any of it.",
    }  # fmt: skip


def _copies(table: Table, unfit: Array) -> Iterator[Plot]:
    """Yield how many samples are equal to how many others."""
    column = table.columns[":content"]
    rows = np.flatnonzero(column.present)
    if column.values.dtype.kind not in "iu" or not len(rows):
        return
    order = rows[np.argsort(column.values[rows])]
    starts = np.flatnonzero(np.diff(column.values[order], prepend=column.values[order[:1]] - 1))
    sizes = np.diff(np.append(starts, len(order)))
    if not (sizes > 1).any():
        return
    each = np.searchsorted(_SIZES, sizes, side="right")  # 0: alone
    owner = np.repeat(each, sizes)
    parts = [np.bincount(owner[mask[order]], minlength=len(_SIZES) + 1) for mask in (~unfit, unfit)]
    groups = np.bincount(each, minlength=len(_SIZES) + 1).tolist()
    names = ["", *(_span(low, high) for low, high in pairwise(_SIZES))]
    names.append(f"{_SIZES[-1]:,} and more")
    yield {
        "kind": "bars", "title": "Samples of equal content", "what": "sample",
        "rows": [
            {"name": f"{names[n]} equal", "parts": [int(part[n]) for part in parts],
             "said": f"in {counted(groups[n], 'group')}"}
            for n in range(1, len(groups)) if groups[n]
        ],
        "about": f"{int(groups[0]):,} of {len(order):,} samples {'has' if groups[0] == 1 else 'have'} no other of the "
        "same content.",
    }  # fmt: skip
