"""Compare what a loader serves with the files that it reads: what it spoils, and what it drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.cache.windows import Windows
from datacheck.model.finding import Finding, Severity
from datacheck.model.table import CHECKED, UNREADABLE, Note, Table
from datacheck.rules.engine import RuleResults
from datacheck.rules.selection import CONTRACT
from datacheck.scan.scan_run import ScanRun
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_CLEARLY_LARGER = 3.0  # factor by which a share of failures must exceed the share in the files
_STANDARD_ERRORS = 3.0  # by which it must exceed it, too
_DROPPED_MOST = 0.5  # if a larger share is missing, the loader counts otherwise and loses nothing


def loader_failures(
    judged: RuleResults, keys: Sequence[str], files: ScanRun, split: str
) -> Iterator[Note]:
    """Yield a note for every sample that fails a rule only as the loader returns it.

    Args:
        judged: the results of the rules on the loader's samples.
        keys: of the rows.
        files: the scan of the files.
        split: the split that the loader serves, "" for all.

    Notes:
        Only rules that judged samples of the files count. Where samples of the files fail too, the
        loader's share of failures must be clearly larger: three times, and by three standard
        errors.
    """
    verdicts = {v.code: v for v in files.report.verdicts}
    checked = {v.code: v.checked for v in judged.verdicts}
    in_split = np.array([not split or s == split for s in files.table.splits], dtype=bool)
    file_findings = _by_code(files.report.findings)
    for code, findings in sorted(_by_code(judged.findings).items()):
        file_verdict = verdicts.get(code)
        if file_verdict is None or not file_verdict.checked:
            continue
        rows = sorted({int(row) for finding in findings for row in finding.rows})
        failed = {
            int(row)
            for finding in file_findings.get(code, ())
            for row in finding.rows
            if in_split[int(row)]
        }
        file_samples = min(
            file_verdict.checked, int((in_split & (files.table.status == CHECKED)).sum())
        )
        if not _clearly_larger(len(rows), checked[code], len(failed), file_samples):
            continue
        about = {
            "kind": "made",
            "rule": code,
            "name": findings[0].name,
            "says": findings[0].message,
            "fields": sorted({name for f in findings for name in f.fields}),
            "severity": findings[0].severity.value,
            "failed": len(failed),
            "of": file_samples,
        }
        for row in rows:
            yield Note(CONTRACT, keys[row], "", about=about)


def _by_code(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        of_values = finding.code == "DC109" or finding.code[2] in "234567"
        if of_values and len(finding.rows) and finding.severity is not Severity.INFO:
            by_code.setdefault(finding.code, []).append(finding)
    return by_code


def _clearly_larger(failed: int, total: int, failed_before: int, total_before: int) -> bool:
    if not failed_before:
        return failed > 0
    share = failed / max(1, total)
    share_before = failed_before / max(1, total_before)
    pooled = (failed + failed_before) / max(1, total + total_before)
    error = (pooled * (1 - pooled) * (1 / max(1, total) + 1 / max(1, total_before))) ** 0.5
    return (
        share >= _CLEARLY_LARGER * share_before and share - share_before >= _STANDARD_ERRORS * error
    )


def length_notes(length: int, split: str, files: ScanRun, schema: Schema) -> tuple[list[Note], str]:
    """Return a note where the loader serves fewer samples than the files hold, and a sentence.

    The sentence says that this is unknown; else it is "".

    Args:
        length: of the loader's dataset.
        split: the split that it serves, "" where the user has not named it.
        files: the scan of the files.
        schema: of the files.
    """
    counts = _counts(files.table, split, schema)
    if any(length == count for _, _, count in counts):
        return [], ""
    larger = [candidate for candidate in counts if candidate[2] > length]
    where, unit, count = min(larger, key=lambda candidate: candidate[2]) if larger else ("", "", 0)
    if not larger or count - length > _DROPPED_MOST * count:
        counts_text = ", ".join(f"{count:,} {unit}{where}" for where, unit, count in counts[:4])
        return (
            [],
            f"whether every sample of the files is served: the loader has {length:,}, the files "
            f"{counts_text}",
        )
    reasons = _reasons(files, split or where.removeprefix(" of "), schema)
    why = [words for words, number in reasons.items() if number == count - length]
    about = {
        "kind": "dropped",
        "length": length,
        "count": count,
        "unit": unit,
        "where": where,
        "why": why,
    }
    return [Note(CONTRACT, "", "", about=about)], ""


def _counts(table: Table, split: str, schema: Schema) -> list[tuple[str, str, int]]:
    """Return (split in words, unit, number) of all counts that a loader may serve."""
    splits = Counter(table.splits)
    names = [split] if split else [*sorted(name for name in splits if name), ""]
    counts = [
        (_of(name, splits), "samples", splits[name] if name else len(table)) for name in names
    ]
    steps = _steps(table, schema)
    if schema.windows is None or steps is None:
        return counts
    spec = schema.windows
    windows = Windows(spec.length, spec.stride, spec.pad, spec.short).counts(steps)
    of_split = {
        name: np.array([s == name for s in table.splits]) if name else np.ones(len(table), bool)
        for name in names
    }
    return counts + [
        (_of(name, splits), "windows", int(windows[of_split[name]].sum())) for name in names
    ]


def _of(name: str, splits: Mapping[str, int]) -> str:
    return f" of {name}" if name else " in all" if len(splits) > 1 else ""


def _steps(table: Table, schema: Schema) -> Array | None:
    """Return the steps of each sample, 0 where unknown: int64 (rows); None without such a field."""
    names = [name for name, spec in sorted(schema.stored.items()) if spec.ragged == "T"]
    for name in sorted(names, key=lambda name: schema.fields[name].role != "action"):
        dims = table.columns.get(f"{name}:dims")
        if dims is not None:
            return np.where(dims.present, dims.values[:, 0], 0).astype(np.int64)
    return None


def _reasons(files: ScanRun, split: str, schema: Schema) -> dict[str, int]:
    """Return possible reasons for missing samples, and the number of samples that each affects."""
    table = files.table
    in_split = np.array(
        [not split or split == "in all" or s == split for s in table.splits], dtype=bool
    )
    counts = {
        "as many as cannot be read": int((in_split & (table.status == UNREADABLE)).sum()),
        "as many as the scan of the files calls unfit": int((in_split & ~files.valid).sum()),
    }
    steps = _steps(table, schema)
    if schema.windows is not None and steps is not None:
        short = (steps > 0) & (steps < schema.windows.length)
        counts[f"as many as are shorter than {schema.windows.length} steps"] = int(
            (in_split & short).sum()
        )
        spec = schema.windows
        padded = (
            Windows(spec.length, spec.stride, spec.pad, spec.short).counts(steps[in_split]).sum()
        )
        inside = Windows(spec.length, spec.stride).counts(steps[in_split]).sum()
        words = (
            f"as many as the windows that reach beyond the end of their episode (pad: {spec.pad})"
        )
        counts[words] = int(padded - inside)
    return {words: count for words, count in counts.items() if count}
