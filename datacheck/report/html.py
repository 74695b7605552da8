"""report.html: the contents of result.json, samples.parquet and previews.json in one file.

The page opens no data. `run_summary` collects what it shows as JSON values, part by part within a
budget of bytes; `write_page` renders them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.model.table import Table
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
from datacheck.report.sample_table import (
    MOST_KEY_CHARS,
    RunRows,
    brushes,
    order_of_rows,
    read_rows,
    sample_table,
)
from datacheck.report.split_tables import class_shares, drifts, overlaps
from datacheck.report.words import relative_to_cwd
from datacheck.runtime import fsops
from datacheck.scan.prior_results import reference_of
from datacheck.scan.run_documents import (
    PAGE,
    SAMPLES,
    finished_run,
    read_previews,
    read_result,
    read_schema_text,
    reading,
)
from datacheck.scan.scan_run import ScanRun

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
        folder = finished_run(run)
        with reading(folder):
            page_bytes = page(run_summary(folder, table, drawn=drawn, compared=False))
    fsops.write_file(folder / PAGE, page_bytes, mode=0o666)
    return folder / PAGE


def page(summary: Mapping[str, Any]) -> bytes:
    """Return the bytes of a run's page, from its `run_summary`."""
    return render_page(_RUN_PAGE, summary, pictured=summary.get("previews") is not None)


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
    rows = read_rows(folder, result, table, unfit)
    reference = reference_of(result["run"], rows.schema) if compared else None
    every_field = list(fields(rows.table, rows.joint_schema, rows.unfit, reference))
    summary = _result_within_budget(result)
    summary |= _overview(folder, result, has_reference=reference is not None)
    summary |= _figures(result, rows, every_field, reference)
    # If all other parts use up their budgets, less is left for the rows.
    room = min(_BYTE_BUDGETS["rows"], _PAGE_BYTES - size_of(summary))
    order = order_of_rows(rows.failing, rows.ranks, MOST_ROWS)
    summary["samples"] = sample_table(rows, order, every_field, room)
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


# ------------------------------------------------------------------------------------------- parts


def _overview(folder: Path, result: Mapping[str, Any], *, has_reference: bool) -> dict[str, Any]:
    listed = result["dataset"]["samples"]["listed"]
    verdict = result["verdict"]
    schema_text = read_schema_text(folder)
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
    rows: RunRows,
    every_field: list[dict[str, Any]],
    reference: Table | None,
) -> dict[str, Any]:
    """Return the charts and tables of the page, except for that of the samples."""
    charts = plots(rows.table, rows.joint_schema, rows.unfit)
    shares = _classes(rows, reference)
    return {
        "fields": items_within(every_field, _BYTE_BUDGETS["fields"]),
        "all_fields": len(every_field),
        "plots": items_within(charts, _BYTE_BUDGETS["plots"]),
        "overlaps": _overlaps(rows),
        "classes": items_within(shares, _BYTE_BUDGETS["classes"]),
        "drifts": [
            drift | {"measures": items_within(drift["measures"], _BYTE_BUDGETS["drifts"])}
            for drift in drifts(result["rules"], rows.schema)
        ],
        "of_samples": {"total": len(rows.table), "failing": rows.failing_samples},
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


def _overlaps(rows: RunRows) -> dict[str, Any] | None:
    """Return the overlaps of splits, with the keys of example samples."""
    overlap_data = overlaps(rows.table, rows.schema, rows.failing)
    if overlap_data is None:
        return None
    for kind in ("samples", "groups"):
        pairs = overlap_data[kind]["pairs"] if kind in overlap_data else []
        for pair in pairs:
            pair["name"] = shortened(pair["name"], MOST_KEY_CHARS)
            pair["keys"] = [
                shortened(rows.table.keys[row], MOST_KEY_CHARS) for row in pair.pop("rows")
            ]
        pairs[:] = items_within(pairs, _BYTE_BUDGETS["pairs"])
    overlap_data["splits"] = [shortened(name, MOST_KEY_CHARS) for name in overlap_data["splits"]]
    return overlap_data


def _classes(rows: RunRows, reference: Table | None) -> Iterable[dict[str, Any]]:
    """Yield the class shares, with names shortened to the limit."""
    for class_share in class_shares(rows.table, rows.schema, rows.failing, reference):
        names = {
            part: [shortened(name, MOST_KEY_CHARS) for name in class_share[part]]
            for part in ("splits", "without")
        }
        yield class_share | names | {"field": shortened(class_share["field"], MOST_KEY_CHARS)}


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
    return pictures_within(previews, room)
