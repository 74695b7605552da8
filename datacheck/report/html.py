"""report.html: the contents of result.json, samples.parquet and previews.json in one file.

The page opens no data. User text enters it as JSON only, and from there text nodes; it is never
parsed as markup.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.errors import UsageError
from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, Measured, Table, Texts
from datacheck.report.field_figures import (
    BINS,
    VECTORS,
    bins_of,
    common_schema,
    fields,
    measured_column,
    order_of_rows,
)
from datacheck.report.fitness import error_codes, fitness
from datacheck.report.plots import plots
from datacheck.report.split_tables import class_shares, drifts, overlaps
from datacheck.report.words import relative_to_cwd
from datacheck.rules.base import pluralize
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
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

MOST_ROWS = 5_000
_SCRIPTS = ("dom.js", "charts.js")
_PICTURE_SCRIPTS = ("twgl.js", "scene.js", "space.js", "widgets.js", "pictures.js")
_STYLES = ("page.css", "pictures.css")
_MEASURES = 4  # columns of the sample table beside key, split, status, codes
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
# In UTF-8: "<", U+007F to U+009F, and noncharacters, which are parse errors in HTML even within a
# script.
_NOT_HTML = re.compile(
    rb"[<\x7f]|\xc2[\x80-\x9f]|\xef(?:\xb7[\x90-\xaf]|\xbf[\xbe\xbf])|[\xf0-\xf4][\x8f\x9f\xaf\xbf]\xbf[\xbe\xbf]"
)
# Pictures also get what the other parts leave of the page: always some hundred kB.
_PICTURE_BYTES = 1_500_000
_PAGE_BYTES = 2_800_000
_MAX_KEY_CHARS = 500  # characters of a key, a reason or a split in the sample table
_STATUS = ("not fit", "warned", "fit", "fit")
_UNREAD = {UNREADABLE: "unreadable", SKIPPED: "skipped"}


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
    unfit = None
    if isinstance(run, ScanRun):
        folder = Path(run.report.folder)
        table = run.table
        unfit = ~run.valid
    elif (run_folder := run_in(Path(run))) is not None:
        folder = run_folder
    else:
        msg = f"{run}: is no finished run. Name the folder of one, for example .datacheck/latest"
        raise UsageError(msg)
    # Documents of an older run may be damaged or foreign: report their errors as such.
    fresh = isinstance(run, ScanRun) and "rescored" not in run.report.run
    with nullcontext() if fresh else reading(folder):
        page_bytes = page(
            run_summary(folder, table, unfit, drawn, compared=isinstance(run, ScanRun))
        )
    fsops.write_file(folder / PAGE, page_bytes, mode=0o666)
    return folder / PAGE


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
    table, failing = table or read_table(folder / SAMPLES), read_failing(folder / SAMPLES)
    schema = read_schema(folder)
    text = read_text(folder / SCHEMA, links=False)
    unfit = _unfit(folder, table, failing) if unfit is None else unfit
    ranks = _ranks(failing, [*result["findings"], *result.get("suppressed", [])], unfit)
    reference = reference_of(result["run"], schema) if compared else None
    drawn_as = common_schema(schema)
    of_fields = list(fields(table, drawn_as, unfit, reference))
    order = order_of_rows(failing, ranks, MOST_ROWS)
    verdict = result["verdict"]
    samples = result["dataset"]["samples"]
    run = _result_within_budget(result) | {
        "fitness": fitness(
            samples["listed"], verdict["valid"], error_codes(result), verdict["exit_code"]
        ),
        "folder": shlex.quote(relative_to_cwd(folder)),
        "reference": reference is not None,
        "schema_text": text
        if size_of(text) <= _BYTE_BUDGETS["schema"]
        else shortened(text, _BYTE_BUDGETS["schema"] // 6),
        "fields": items_within(of_fields, _BYTE_BUDGETS["fields"]),
        "all_fields": len(of_fields),
        "plots": items_within(plots(table, drawn_as, unfit), _BYTE_BUDGETS["plots"]),
        "overlaps": _overlaps(table, schema, failing),
        "classes": items_within(
            _classes(table, schema, failing, reference), _BYTE_BUDGETS["classes"]
        ),
        "drifts": [
            drift | {"measures": items_within(drift["measures"], _BYTE_BUDGETS["drifts"])}
            for drift in drifts(result["rules"], schema)
        ],
        "of_samples": {"total": len(table), "failing": int(np.count_nonzero(_fails(failing)))},
    }
    # if all other parts use up their budgets, less is left for the rows
    room = min(_BYTE_BUDGETS["rows"], _PAGE_BYTES - size_of(run))
    run["samples"] = _samples(table, failing, ranks, order, of_fields, room)
    remaining_bytes = _PAGE_BYTES - size_of(run)
    order = order[: len(run["samples"]["rows"])]
    run["brushes"] = brushes(
        table, run["fields"], order, min(_BYTE_BUDGETS["brushes"], remaining_bytes // 2), size_of
    )
    run["parquet"] = repr(str(Path(relative_to_cwd(folder)) / SAMPLES))
    if drawn is not None:
        drawn()
    return run | {
        "previews": pictures(
            folder, min(_PICTURE_BYTES, remaining_bytes - size_of(run["brushes"])), size_of
        )
    }


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


def _samples(
    table: Table,
    failing: Texts,
    ranks: Array,
    order: Array,
    of_fields: Iterable[Mapping[str, Any]],
    room: int,
) -> dict[str, Any]:
    """Return the rows of the sample table that fit into `room`, and the titles of its measures."""
    measures = [
        (f["name"], f["measures"][0])
        for f in of_fields
        if f["measures"] and f["measures"][0]["edges"]
    ]
    measure_columns = [
        (pair, measured_column(table.columns, pair[1]["column"])) for pair in measures
    ]
    shown_columns = [
        (pair, column)
        for pair, column in measure_columns
        if column is not None and column.values.ndim == 1
    ][:_MEASURES]
    places = order.tolist()
    columns = [
        [shortened(table.keys[row], _MAX_KEY_CHARS) for row in places],
        [shortened(table.splits[row], _MAX_KEY_CHARS) for row in places],
        [_UNREAD.get(table.status[row]) or _STATUS[ranks[row]] for row in places],
        [failing[row] for row in places],
        [shortened(table.reasons[row], _MAX_KEY_CHARS) for row in places],
        *(_rounded(column, order) for _, column in shown_columns),
    ]
    titles = [
        {"field": name, "label": m["label"], "unit": m["unit"]} for (name, m), _ in shown_columns
    ]
    return {"rows": items_within(zip(*columns, strict=True), room), "measures": titles}


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


def _rounded(column: Measured, order: Array) -> list[float | None]:
    values = column.values[order].tolist()
    present = column.present[order].tolist()
    if column.values.dtype.kind != "f":
        return [v if is_present else None for v, is_present in zip(values, present, strict=True)]
    return [
        float(f"{v:.5g}") if is_present and math.isfinite(v) else None
        for v, is_present in zip(values, present, strict=True)
    ]


# ------------------------------------------------------------------------------------------- bounds


def items_within(items: Iterable[Any], room: int) -> list[Any]:
    """Return the first items that fit into `room` bytes of the page."""
    kept = []
    for item in items:
        room -= size_of(item) + 1
        if room < 0:
            break
        kept.append(item)
    return kept


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with an ellipsis if it had more.

    Characters that UTF-8 cannot hold are escaped.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 2]} …"


def size_of(value: Any) -> int:
    """Return the bytes that a value takes in the page."""
    return len(_json(value))


def _json(value: Any) -> bytes:
    """Return JSON without text that a browser would read as a tag, a comment or the script's end.

    Also escapes characters that HTML does not allow.
    """
    return _NOT_HTML.sub(_escaped, orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


def _escaped(match: re.Match[bytes]) -> bytes:
    units = match[0].decode().encode("utf-16-be")
    return b"".join(
        b"\\u%02x%02x" % (high, low) for high, low in zip(units[::2], units[1::2], strict=True)
    )


# --------------------------------------------------------------------------------------------- page


@dataclass(frozen=True)
class PageKind:
    """The properties that pages of one kind share besides the template.

    Args:
        command: the command that writes them; the title until the script sets one.
        top, contents, without: words in the template: the header's label, the target of the skip
            link, and the text for browsers without scripts.
        scripts: those of this kind, after the common ones.
    """

    command: str
    top: str
    contents: str
    without: str
    scripts: tuple[str, ...]


_RUN_PAGE = PageKind(
    "datacheck scan",
    "Verdict",
    "findings",
    "The same is in result.json and samples.parquet beside it.",
    (
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


def page(run: Mapping[str, Any]) -> bytes:
    """Return the bytes of a run's page."""
    return render_page(_RUN_PAGE, run, pictured=run.get("previews") is not None)


def render_page(kind: PageKind, said: Mapping[str, Any], *, pictured: bool) -> bytes:
    """Return a page: the template with data, scripts and styles; its policy forbids other scripts.

    Args:
        kind: of the page.
        said: JSON values; strings are untrusted.
        pictured: whether the page shows pictures of samples.
    """
    page_folder = Path(__file__).with_name("page")
    scripts = (*_SCRIPTS, *(_PICTURE_SCRIPTS if pictured else ()), *kind.scripts)
    styles = _STYLES[: 1 + pictured]
    style, script = (
        b"\n".join((page_folder / name).read_bytes() for name in names)
        for names in (styles, scripts)
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    words = {"policy": policy} | {
        name: getattr(kind, name) for name in ("command", "top", "contents", "without")
    }
    parts = {name: word.encode() for name, word in words.items()} | {
        "style": style,
        "script": script,
    }
    parts["run"] = _json(said)
    return re.sub(
        rb"\{\{(\w+)\}\}",
        lambda match: parts[match[1].decode()],
        (page_folder / "page.html").read_bytes(),
    )


def _hash(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def pictures(folder: Path, room: int, size: Callable[[Any], int]) -> dict[str, Any] | None:
    """Return the pictures of a run's worst samples; None if it has no previews.

    Args:
        folder: of the run.
        room: bytes that they may take in the page.
        size: returns the bytes that a value takes in the page.

    Notes:
        The worst samples come first in the file, so the least important pictures are left out.
    """
    previews = read_previews(folder)
    if previews is None:
        return None
    overlays = []
    omitted = 0
    for overlay in previews.get("overlays", []):  # few, and small
        overlay_bytes = size(overlay) + 1
        if overlay_bytes > room // 4:
            omitted += 1
            continue
        room -= overlay_bytes
        overlays.append(overlay)
    kept = pictures_within(previews, room, size)
    notes = (
        [f"joints of {pluralize(omitted, 'field')} not overlaid: the page has no more room"]
        if omitted
        else []
    )
    return kept | {"overlays": overlays, "left_out": [*kept["left_out"], *notes]}


def pictures_within(
    found: Mapping[str, Any], room: int, size: Callable[[Any], int]
) -> dict[str, Any]:
    """Return the first pictures that fit into `room` bytes of a page, and notes on those left out.

    Args:
        found: samples, the places among them for each row of pictures (finding), and notes on those
            already left out.
        room, size: see `pictures`.
    """
    kept: list[Any] = []
    room -= size([found["findings"], found["left_out"]]) + 200
    for sample in found["samples"]:
        room -= size(sample) + 1
        if room < 0:
            break
        kept.append(sample)
    omitted = len(found["samples"]) - len(kept)
    notes = (
        [f"{pluralize(omitted, 'sample')} not drawn: the page has no more room"] if omitted else []
    )
    places = {
        name: [place for place in sample_places if place < len(kept)]
        for name, sample_places in found["findings"].items()
    }
    return {"samples": kept, "findings": places, "left_out": [*found["left_out"], *notes]}


# As `page/brush.js` reads them: a sign for each bin; then below and above the bins, not finite, and
# missing (the last of `_SIGNS`, index -1).
SIGNS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
EXTRA_SIGNS = "-_!"
_SIGNS = np.frombuffer(f"{SIGNS}{EXTRA_SIGNS}.".encode(), np.uint8)
_ENTRY = 32  # bytes of the page for the names in an entry


def brushes(
    table: Table,
    fields: Iterable[Mapping[str, Any]],
    rows: Array,
    room: int,
    size_of: Callable[[Any], int],
) -> dict[str, dict[str, Any]]:
    """Return, by measured column, the data for selecting a range of its histogram.

    Args:
        table: of the run.
        fields: as in the page.
        rows: the rows of the sample table, in its order.
        room: bytes of the page.
        size_of: returns the bytes that a value takes in the page.

    Returns:
        ``value`` (an expression of `pyarrow.compute`), ``whole`` (each bin is one integer) and, for
        as many columns as fit, ``bins`` (a sign for each row). The first measure of each field
        comes first.
    """
    assert len(SIGNS) == BINS
    entries: dict[str, dict[str, Any]] = {}
    drawn = [
        (measure, column)
        for measure in _histograms_in_turn(fields)
        if (column := measured_column(table.columns, measure["column"]))
    ]
    for measure, column in drawn:
        entry = {
            "value": expression(table.columns, measure["column"]),
            "whole": _has_integer_bins(measure, column),
        }
        room -= size_of({measure["column"]: entry}) + _ENTRY
        if room < 0:
            return entries
        entries[measure["column"]] = entry
    for measure, column in drawn:
        room -= len(rows)
        if room < 0:
            break
        entries[measure["column"]]["bins"] = (
            _SIGNS[bins_of(column, measure, rows)].tobytes().decode()
        )
    return entries


def _histograms_in_turn(fields: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the first histogram of every field, then the second, ..."""
    drawn = [[measure for measure in field["measures"] if measure["edges"]] for field in fields]
    for turn in range(max(map(len, drawn), default=0)):
        yield from (measures[turn] for measures in drawn if turn < len(measures))


def _has_integer_bins(measure: Mapping[str, Any], column: Measured) -> bool:
    low, high = measure["edges"][:2]
    return column.values.dtype.kind in "biu" and high - low == 1 and low % 1 == 0.5


def expression(columns: Mapping[str, Measured], name: str) -> str:
    """Return Python code of a pyarrow expression for the values that a measure's histogram counts.

    Notes:
        Always float64, as the histogram counts: pyarrow would otherwise round a limit to the
        column's type.
    """
    head, _, stat = name.rpartition(":")
    numerator, _, denominator = stat.partition("/")
    if denominator:
        dividend, divisor = (
            _double(_field(column_name), columns[column_name].values)
            for column_name in (f"{head}:{numerator}", f"{head}:{denominator}")
        )
        return f"pc.if_else({_field(f'{head}:{denominator}')} > 0, pc.divide({dividend}, {divisor}), None)"
    values = columns[name].values
    if values.ndim == 2 and stat in VECTORS:
        return _of_vector(_field(name), stat, values)
    value = _double(_field(name), values)
    if stat == "prompt_bytes":
        return f"pc.if_else({value} < {UNKNOWN_LENGTH}, {value}, None)"
    return f"pc.round({value} * 1e5) / 1e5" if stat in {"shortest", "longest"} else value


def _field(name: str) -> str:
    return f"pc.field({name!r})"


def _double(value: str, values: Array) -> str:
    return value if values.dtype == np.float64 else f"{value}.cast('double', safe=False)"


def _of_vector(field: str, stat: str, values: Array) -> str:
    """Return the code for the lowest, the highest or the first component.

    The lowest or highest is infinite, and so not counted, if a component is NaN.
    """
    if stat == "dims":
        return _double(f"pc.list_element({field}, 0)", values)
    end = "float('-inf')" if stat == "min" else "float('inf')"
    components = (
        f"{_double(f'pc.list_element({field}, n)', values)} for n in range({values.shape[1]})"
    )
    return f"pc.{stat}_element_wise(*[pc.if_else(pc.is_nan(x), {end}, x) for x in ({components})])"
