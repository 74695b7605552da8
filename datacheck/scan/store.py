"""What a run leaves behind: result.json, samples.parquet, valid.json, listing.json, and how to read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck import fsops
from datacheck.finding import Cause, Finding, Report, RuleVerdict, Verdict
from datacheck.table import CHECKED, SKIPPED, UNREADABLE, Measured, Table

Array = np.ndarray[Any, Any]

RESULT, SAMPLES, VALID, LISTING = "result.json", "samples.parquet", "valid.json", "listing.json"
NAMES = (RESULT, SAMPLES, VALID, LISTING)

_ROW_GROUP = 65_536
_FIXED = ("key", "file", "inner", "split", "group", "status", "reason", "nbytes")
_STATUS = {CHECKED: "checked", UNREADABLE: "unreadable", SKIPPED: "skipped"}


def dump_json(value: object) -> bytes:
    """Return JSON for people and programs: indented, keys in the order given, ends with a line feed."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


# ------------------------------------------------------------------------------------------ result.json


def result(report: Report) -> dict[str, Any]:
    """Return ``datacheck.result/1``: everything a report says, as JSON values."""
    return {
        "format": "datacheck.result/1",
        "run": report.run,
        "dataset": report.dataset,
        "schema": report.schema,
        "verdict": {
            "status": _status(report), "exit_code": report.exit_code, "counts": report.counts(), "valid": report.valid,
        },
        "rules": {v.code: _rule(v) for v in report.verdicts},
        "findings": [_finding(f) for f in report.findings],
        "unchecked": report.unchecked,
        "crashes": report.crashes,
        "files": {"samples": SAMPLES, "valid": VALID, "listing": LISTING},
    }  # fmt: skip


def _status(report: Report) -> str:
    return {0: "pass", 1: "fail"}.get(report.exit_code, "crash")


def _rule(verdict: RuleVerdict) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": verdict.name, "status": verdict.verdict.value, "level": verdict.level.value,
        "severity": verdict.severity.value,
    }  # fmt: skip
    if verdict.verdict not in {Verdict.NOT_APPLICABLE, Verdict.OFF}:
        said |= {"checked": verdict.checked, "failed": verdict.failed, "skipped": verdict.skipped}
        said |= {"unseen": list(verdict.unseen)} if verdict.unseen else {}
    return said | ({"why": verdict.why} if verdict.why else {}) | {"options": _plain(verdict.options)}


def _finding(finding: Finding) -> dict[str, Any]:
    share = finding.failed / finding.of if finding.of else 0.0
    return {
        "id": finding.id, "rule": finding.code, "name": finding.name, "severity": finding.severity.value,
        "level": finding.level.value, "fields": list(finding.fields), "split": finding.split, "kind": finding.kind,
        "message": finding.message, "failed": finding.failed, "of": finding.of, "share": round(share, 6),
        "measured": _plain(finding.measured), "expected": _plain(finding.expected), "cause": _cause(finding.cause),
        "examples": list(finding.examples), "more": max(0, finding.failed - len(finding.examples)),
        "hides": dict(sorted(finding.hides.items())), "fix": finding.fix,
    }  # fmt: skip


def _cause(cause: Cause | None) -> dict[str, Any] | None:
    if cause is None:
        return None
    return {
        "text": cause.text, "kind": cause.kind, "factor": cause.factor, "explains": cause.explains,
        "alternatives": list(cause.alternatives),
    }  # fmt: skip


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, set | frozenset | tuple) else v for name, v in values.items()}


def valid(report: Report, table: Table, codes: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return ``datacheck.valid/1``: which samples of which listing must not be trained on, and why."""
    return {
        "format": "datacheck.valid/1",
        "dataset": report.dataset["name"],
        "listing": report.dataset["digest"],
        "samples": len(table),
        "valid": report.valid,
        "excluded": {table.keys[i]: list(why) for i, why in enumerate(codes) if why},
    }


# ---------------------------------------------------------------------------------------- samples.parquet


def table_bytes(table: Table) -> Any:
    """Return the table as Parquet: one row per sample, absent measurements null, row groups of 65,536."""
    import pyarrow as pa  # noqa: PLC0415  0.2 s that only a finished scan should pay
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    writer: Any = None
    for start in range(0, max(len(table), 1), _ROW_GROUP):
        batch = _arrow(table, slice(start, start + _ROW_GROUP))
        if writer is None:
            writer = pq.ParquetWriter(sink, batch.schema, compression="zstd")
        writer.write_table(batch)
    writer.close()
    pa.default_memory_pool().release_unused()
    return memoryview(sink.getvalue())


def _arrow(table: Table, rows: slice) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    texts = [table.keys, table.files, table.inner, table.splits, table.groups]
    columns: dict[str, Any] = {
        name: pa.array(values[rows], pa.string()) for name, values in zip(_FIXED[:5], texts, strict=True)
    }
    columns["status"] = pa.array([_STATUS[int(s)] for s in table.status[rows]], pa.string())
    columns["reason"] = pa.array(table.reasons[rows], pa.string())
    columns["nbytes"] = pa.array(table.nbytes[rows])
    for name, column in sorted(table.columns.items()):
        columns[name] = _arrow_column(pa, column.values[rows], ~column.present[rows])
    return pa.table(columns)


def _arrow_column(pa: Any, values: Array, absent: Array) -> Any:
    if values.dtype.hasobject:
        return pa.array([None if gone else v for v, gone in zip(values, absent, strict=True)], pa.string())
    if values.ndim == 1:
        return pa.array(values, mask=absent)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(absent))


def read_table(path: Path) -> Table:
    """Return the table that `table_bytes` made."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    status = {text: number for number, text in _STATUS.items()}
    dictionaries = [name for name in _FIXED if name not in {"key", "nbytes"}]
    with pq.ParquetFile(path, memory_map=True, read_dictionary=dictionaries) as stored:

        def column(name: str) -> Any:  # one after the other: all of them at once take several times the memory
            return stored.read(columns=[name])[name]

        keys: list[str] = column("key").to_pylist()
        files = _texts(column("file"))
        table = Table(
            keys=keys, files=list(keys) if files == keys else files, inner=_texts(column("inner")),
            splits=_texts(column("split")), groups=_texts(column("group")), reasons=_texts(column("reason")),
            status=np.array([status[text] for text in _texts(column("status"))], dtype=np.int8),
            nbytes=column("nbytes").to_numpy(),
            columns={name: _measured(column(name)) for name in stored.schema_arrow.names if name not in _FIXED},
        )  # fmt: skip
    pa.default_memory_pool().release_unused()
    return table


def _texts(column: Any) -> list[str]:
    """Return a column of texts, equal ones as one object."""
    known: dict[str, str] = {}
    found: list[str] = []
    for chunk in column.chunks:
        words = [known.setdefault(word, word) for word in chunk.dictionary.to_pylist()]
        found += [words[number] for number in chunk.indices.to_pylist()]
    return found


def _measured(chunked: Any) -> Measured:
    import pyarrow as pa  # noqa: PLC0415

    array = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
    present = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string(array.type):
        texts = array.fill_null("").dictionary_encode()
        words = np.array(texts.dictionary.to_pylist(), dtype=object)
        return Measured(words[texts.indices.to_numpy(zero_copy_only=False)], present)
    if pa.types.is_fixed_size_list(array.type):
        flat = array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size)
        flat = flat.fill_null(_zero(flat.type))
        values = flat.to_numpy(zero_copy_only=False).reshape(len(array), array.type.list_size)
        return Measured(values, present)
    values = array.fill_null(_zero(array.type)).to_numpy(zero_copy_only=False)
    return Measured(values, present)


def _zero(kind: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.scalar(np.zeros(1, kind.to_pandas_dtype())[0], kind)


# ------------------------------------------------------------------------------------------------ folder


def write_run(folder: Path, files: Mapping[str, bytes | memoryview]) -> None:
    """Write a run's files into a new folder.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: another refusal; nothing is half-written under a final name.
    """
    fsops.make_directory(folder)
    for name, data in files.items():
        fsops.write_file(folder / name, data)
    fsops.sync_directory(folder)
