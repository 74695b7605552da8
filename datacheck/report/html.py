"""report.html: the contents of result.json, samples.parquet and previews.json in one file.

The page opens no data. `run_summary` collects what it shows as JSON values, part by part within a
budget of bytes; `write_page` renders them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, Measured, Table, Texts
from datacheck.report.brushes import brushes
from datacheck.report.field_figures import fields
from datacheck.report.fitness import error_codes, fitness
from datacheck.report.plots import plots
from datacheck.report.rendering import (
    PageKind,
    items_within,
    pictures_within,
    render_page,
    shortened,
    size_of,
)
from datacheck.report.shown_measures import common_schema, measured_column
from datacheck.report.split_tables import class_shares, drifts, overlaps
from datacheck.report.words import relative_to_cwd
from datacheck.rules.base import pluralize
from datacheck.runtime import fsops
from datacheck.scan.prior_results import reference_of
from datacheck.scan.run_documents import (
    PAGE,
    SAMPLES,
    SCHEMA,
    read_previews,
    read_result,
    read_schema,
    read_valid,
    reading,
    run_in,
)
from datacheck.scan.samples import read_failing, read_table
from datacheck.scan.scan_run import ScanRun
from datacheck.schema.load import read_text
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_RUN_PAGE = PageKind(
    command="datacheck scan",
    top="Verdict",
    contents="findings",
    without="The same is in result.json and samples.parquet beside it.",
    scripts=(
        "plots.js",
        "overlay.js",
        "drifts.js",
        "classes.js",
        "brush.js",
        "parts.js",
        "samples.js",
        "page.js",
    ),
)
# Each part of the page has a budget, so that the page stays below 3 MB for any dataset.
_BYTE_BUDGETS = {
    "findings": 750_000,
    "suppressed": 100_000,
    "rules": 250_000,
    "unchecked": 150_000,
    "crashes": 150_000,
    "fields": 450_000,
    "rows": 600_000,
    "schema": 100_000,
    "pairs": 20_000,
    "plots": 200_000,
    "brushes": 250_000,
    "drifts": 80_000,
    "classes": 50_000,
}
# Pictures also get what the other parts leave of the page: always some hundred kB.
_PICTURE_BYTES = 1_500_000
_PAGE_BYTES = 2_800_000
MOST_ROWS = 5_000  # of the sample table
_MEASURES = 4  # columns of the sample table beside key, split, status, codes
_MAX_KEY_CHARS = 500  # of a key, a reason or a split in the sample table


def write_page(
    run: ScanRun | str | Path, table: Table | None = None, drawn: Callable[[], object] | None = None
) -> Path:
    """Write the report.html of a finished run next to its result.json; return its path.

    Args:
        run: the result of `scan_dataset`, or the folder of a run (``.datacheck`` for the newest).
            Given a folder, no other run is opened, so the page does not show the run that it was
            compared with.
        table: with a folder, the rows of its samples.parquet, if already loaded.
        drawn: called before the pictures are read; it waits until they are written.

    Raises:
        UsageError: the folder is not that of a finished run, or cannot be read.
        OutOfSpaceError: the disk is full.
        StorageError: any other refusal; no partial file is left under the final name.
    """
    if isinstance(run, ScanRun):
        folder = Path(run.report.folder)
        # A rescored run reads documents of an older run, as a page of a folder does.
        is_fresh = "rescored" not in run.report.run
        with nullcontext() if is_fresh else reading(folder):
            page_bytes = page(run_summary(folder, run.table, ~run.valid, drawn))
    else:
        folder = _finished_run(run)
        with reading(folder):
            page_bytes = page(run_summary(folder, table, drawn=drawn, compared=False))
    fsops.write_file(folder / PAGE, page_bytes, mode=0o666)
    return folder / PAGE


def _finished_run(run: str | Path) -> Path:
    folder = run_in(Path(run))
    if folder is None:
        msg = f"{run}: is no finished run. Name the folder of one, for example .datacheck/latest"
        raise UsageError(msg)
    return folder


def page(summary: Mapping[str, Any]) -> bytes:
    """Return the bytes of a run's page, from its `run_summary`."""
    return render_page(_RUN_PAGE, summary, pictured=summary.get("previews") is not None)


@dataclass(frozen=True, eq=False)
class _RunRows:
    """The rows of a run, and what is wrong with each.

    Args:
        failing: the codes that each row fails.
        unfit: bool (rows): not fit for training.
        ranks: int64 (rows), indices into `_STATUS`.
    """

    table: Table
    schema: Schema
    failing: Texts
    unfit: Array
    ranks: Array


def run_summary(
    folder: Path,
    table: Table | None = None,
    unfit: Array | None = None,
    drawn: Callable[[], object] | None = None,
    *,
    compared: bool = True,
) -> dict[str, Any]:
    """Return the data of a run's page, as JSON values of at most 2.8 MB.

    Args:
        folder: of the run.
        table, unfit: its rows, and bool (rows): not fit for training; None: read from the folder.
        drawn: see `write_page`.
        compared: open the run that this one was compared with. Its path comes from the folder, so
            pass False for a folder that another user may have written.
    """
    result = read_result(folder)
    rows = _read_rows(folder, result, table, unfit)
    reference = reference_of(result["run"], rows.schema) if compared else None
    every_field = list(fields(rows.table, common_schema(rows.schema), rows.unfit, reference))
    summary = _result_within_budget(result)
    summary |= _overview(folder, result, has_reference=reference is not None)
    summary |= _figures(result, rows, every_field, reference)
    # If all other parts use up their budgets, less is left for the rows.
    room = min(_BYTE_BUDGETS["rows"], _PAGE_BYTES - size_of(summary))
    order = order_of_rows(rows.failing, rows.ranks, MOST_ROWS)
    summary["samples"] = _samples(rows, order, every_field, room)
    shown_rows = order[: len(summary["samples"]["rows"])]
    room = _PAGE_BYTES - size_of(summary)
    brush_room = min(_BYTE_BUDGETS["brushes"], room // 2)
    summary["brushes"] = brushes(rows.table, summary["fields"], shown_rows, brush_room)
    summary["parquet"] = repr(str(Path(relative_to_cwd(folder)) / SAMPLES))
    if drawn is not None:
        drawn()
    room -= size_of(summary["brushes"])
    summary["previews"] = _pictures(folder, min(_PICTURE_BYTES, room))
    return summary


def _read_rows(
    folder: Path, result: Mapping[str, Any], table: Table | None, unfit: Array | None
) -> _RunRows:
    if table is None:
        table = read_table(folder / SAMPLES)
    failing = read_failing(folder / SAMPLES)
    schema = read_schema(folder)
    if unfit is None:
        unfit = _unfit(folder, table, failing)
    findings = [*result["findings"], *result.get("suppressed", [])]
    return _RunRows(table, schema, failing, unfit, _ranks(failing, findings, unfit))


def _unfit(folder: Path, table: Table, failing: Texts) -> Array:
    """Return bool (rows): samples that valid.json leaves out.

    The codes do not tell, because a rule can find both errors and warnings.
    """
    excluded = read_valid(folder, len(table))["excluded"]
    unfit: Array = table.status != CHECKED
    for row in np.flatnonzero(_fails(failing)).tolist() if excluded else ():
        unfit[row] |= table.keys[row] in excluded
    return unfit


def _ranks(failing: Texts, findings: Iterable[Mapping[str, Any]], unfit: Array) -> Array:
    """Return int64 (rows), indices into `_STATUS`.

    0 is not fit, 1 has a warning, 2 information, 3 nothing.
    """
    rule_severities: dict[str, set[str]] = {}
    for finding in findings:
        rule_severities.setdefault(finding["rule"], set()).add(finding["severity"])
    informs = {
        code
        for code, severities in rule_severities.items()
        if "info" in severities and "warning" not in severities
    }
    ranks = [
        min((2 if code in informs else 1 for code in word.split()), default=3)
        for word in failing.words
    ]
    return np.where(unfit, 0, np.array(ranks, np.int64)[failing.rows])


def _fails(failing: Texts) -> Array:
    fails: Array = np.array([bool(word) for word in failing.words], bool)[failing.rows]
    return fails


# ------------------------------------------------------------------------------------------- parts


def _overview(folder: Path, result: Mapping[str, Any], *, has_reference: bool) -> dict[str, Any]:
    listed = result["dataset"]["samples"]["listed"]
    verdict = result["verdict"]
    schema_text = read_text(folder / SCHEMA, links=False)
    if size_of(schema_text) > _BYTE_BUDGETS["schema"]:
        # An escaped character takes six bytes of the page.
        schema_text = shortened(schema_text, _BYTE_BUDGETS["schema"] // 6)
    return {
        "fitness": fitness(listed, verdict["valid"], error_codes(result), verdict["exit_code"]),
        "folder": shlex.quote(relative_to_cwd(folder)),
        "reference": has_reference,
        "schema_text": schema_text,
    }


def _figures(
    result: Mapping[str, Any],
    rows: _RunRows,
    every_field: list[dict[str, Any]],
    reference: Table | None,
) -> dict[str, Any]:
    """Return the charts and tables of the page, except for that of the samples."""
    table, schema, failing = rows.table, rows.schema, rows.failing
    charts = plots(table, common_schema(schema), rows.unfit)
    shares = _classes(table, schema, failing, reference)
    return {
        "fields": items_within(every_field, _BYTE_BUDGETS["fields"]),
        "all_fields": len(every_field),
        "plots": items_within(charts, _BYTE_BUDGETS["plots"]),
        "overlaps": _overlaps(table, schema, failing),
        "classes": items_within(shares, _BYTE_BUDGETS["classes"]),
        "drifts": [
            drift | {"measures": items_within(drift["measures"], _BYTE_BUDGETS["drifts"])}
            for drift in drifts(result["rules"], schema)
        ],
        "of_samples": {"total": len(table), "failing": int(np.count_nonzero(_fails(failing)))},
    }


def _result_within_budget(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without the last findings, rules and sentences that exceed their budgets."""
    small_parts = {
        name: result[name] for name in ("format", "run", "dataset", "schema", "verdict", "files")
    }
    lists = {
        "findings": result["findings"],
        "suppressed": result.get("suppressed", []),
        "rules": [
            {"code": code} | {name: rule[name] for name in rule if name != "compared"}
            for code, rule in result["rules"].items()
        ],
        "unchecked": result["unchecked"],
        "crashes": result["crashes"],
    }
    kept = {name: items_within(items, _BYTE_BUDGETS[name]) for name, items in lists.items()}
    prior_counts = result.get("left_out", {})
    left_out = {
        name: prior_counts.get(name, 0) + len(items) - len(kept[name])
        for name, items in lists.items()
    }
    return small_parts | kept | {"left_out": prior_counts | left_out}


def _overlaps(table: Table, schema: Schema, failing: Texts) -> dict[str, Any] | None:
    """Return the overlaps of splits, with the keys of example samples."""
    overlap_data = overlaps(table, schema, failing)
    if overlap_data is None:
        return None
    for kind in ("samples", "groups"):
        pairs = overlap_data[kind]["pairs"] if kind in overlap_data else []
        for pair in pairs:
            pair["name"] = shortened(pair["name"], _MAX_KEY_CHARS)
            pair["keys"] = [shortened(table.keys[row], _MAX_KEY_CHARS) for row in pair.pop("rows")]
        pairs[:] = items_within(pairs, _BYTE_BUDGETS["pairs"])
    overlap_data["splits"] = [shortened(name, _MAX_KEY_CHARS) for name in overlap_data["splits"]]
    return overlap_data


def _classes(
    table: Table, schema: Schema, failing: Texts, reference: Table | None
) -> Iterable[dict[str, Any]]:
    """Yield the class shares, with names shortened to the limit."""
    for class_share in class_shares(table, schema, failing, reference):
        names = {
            part: [shortened(name, _MAX_KEY_CHARS) for name in class_share[part]]
            for part in ("splits", "without")
        }
        yield class_share | names | {"field": shortened(class_share["field"], _MAX_KEY_CHARS)}


# ----------------------------------------------------------------------------------- sample table

_STATUS = ("not fit", "warned", "fit", "fit")  # by rank
_UNREAD = {UNREADABLE: "unreadable", SKIPPED: "skipped"}


def order_of_rows(failing: Texts, ranks: Array, most: int) -> Array:
    """Return the rows to show, worst first: all with findings, or some of each kind if too many.

    Args:
        failing: per row, the codes that it fails; rows with equal codes are of one kind.
        ranks: int64 (rows): 0 not fit, 1 warning, 2 information, 3 nothing.
        most: rows.

    Returns:
        int64 rows by rank; rows without findings come last, evenly spread over the dataset.
    """
    bad = np.flatnonzero(ranks < 3)
    if len(bad) > most:
        turn = _turns(failing.rows[bad])
        bad = np.sort(bad[np.lexsort((bad, turn, ranks[bad]))[:most]])
    bad = bad[np.argsort(ranks[bad], kind="stable")]
    good = np.flatnonzero(ranks == 3)
    room = min(most - len(bad), len(good))
    evenly_spread = np.arange(room) * len(good) // max(room, 1)
    return np.concatenate([bad, good[evenly_spread]])


def _turns(kinds: Array) -> Array:
    """Return the turn of each row: 0 for the first one of its kind, 1 for the second, ..."""
    by_kind = np.argsort(kinds, kind="stable")
    _, starts, sizes = np.unique(kinds[by_kind], return_index=True, return_counts=True)
    turns = np.empty(len(kinds), np.int64)
    turns[by_kind] = np.arange(len(kinds)) - np.repeat(starts, sizes)
    return turns


class _MeasureColumn(NamedTuple):
    """A column of the sample table: its title (field, label, unit) and its values."""

    title: dict[str, str]
    values: Measured


def _samples(
    rows: _RunRows, order: Array, every_field: Iterable[Mapping[str, Any]], room: int
) -> dict[str, Any]:
    """Return the rows of the sample table that fit into `room`, and the titles of its measures."""
    table = rows.table
    measures = _measure_columns(table, every_field)
    numbers = order.tolist()
    columns: list[list[Any]] = [
        [shortened(table.keys[row], _MAX_KEY_CHARS) for row in numbers],
        [shortened(table.splits[row], _MAX_KEY_CHARS) for row in numbers],
        [_UNREAD.get(table.status[row]) or _STATUS[rows.ranks[row]] for row in numbers],
        [rows.failing[row] for row in numbers],
        [shortened(table.reasons[row], _MAX_KEY_CHARS) for row in numbers],
    ]
    columns += [_rounded(measure.values, order) for measure in measures]
    return {
        "rows": items_within(zip(*columns, strict=True), room),
        "measures": [measure.title for measure in measures],
    }


def _measure_columns(
    table: Table, every_field: Iterable[Mapping[str, Any]]
) -> list[_MeasureColumn]:
    """Return the first measure of the first fields that have one that varies."""
    columns: list[_MeasureColumn] = []
    for field in every_field:
        if len(columns) == _MEASURES:
            break
        if not field["measures"] or not field["measures"][0]["edges"]:
            continue
        measure = field["measures"][0]
        column = measured_column(table.columns, measure["column"])
        if column is not None and column.values.ndim == 1:
            title = {"field": field["name"], "label": measure["label"], "unit": measure["unit"]}
            columns.append(_MeasureColumn(title, column))
    return columns


def _rounded(column: Measured, order: Array) -> list[float | None]:
    values = column.values[order].tolist()
    present = column.present[order].tolist()
    if column.values.dtype.kind != "f":
        return [v if is_present else None for v, is_present in zip(values, present, strict=True)]
    return [
        float(f"{v:.5g}") if is_present and math.isfinite(v) else None
        for v, is_present in zip(values, present, strict=True)
    ]


# ----------------------------------------------------------------------------------------- pictures


def _pictures(folder: Path, room: int) -> dict[str, Any] | None:
    """Return the pictures of a run's worst samples; None if it has no previews.

    Args:
        folder: of the run.
        room: bytes that they may take in the page.

    Notes:
        The worst samples come first in the file, so the least important pictures are left out.
    """
    previews = read_previews(folder)
    if previews is None:
        return None
    overlays = []
    omitted = 0
    for overlay in previews.get("overlays", []):  # few, and small
        overlay_bytes = size_of(overlay) + 1
        if overlay_bytes > room // 4:
            omitted += 1
            continue
        room -= overlay_bytes
        overlays.append(overlay)
    kept = pictures_within(previews, room)
    if omitted:
        kept["left_out"].append(
            f"joints of {pluralize(omitted, 'field')} not overlaid: the page has no more room"
        )
    return kept | {"overlays": overlays}
