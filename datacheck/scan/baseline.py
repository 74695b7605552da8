"""Baselines: known findings that later scans do not report again.

A baseline hides findings only: the samples stay invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.errors import UsageError
from datacheck.model.finding import Finding, RuleVerdict, Severity, Verdict
from datacheck.model.table import Table
from datacheck.rules.base import pluralize
from datacheck.rules.engine import RuleResults
from datacheck.runtime.beneath import read_file
from datacheck.runtime.documents import MIB, VALUES, parse_json
from datacheck.runtime.hashing import digest_value, shortened

Array = np.ndarray[Any, Any]

FORMAT = "datacheck.baseline/1"
BASELINE_BYTES = 64 * MIB  # about 27 bytes for each failing sample of a finding: two million
_TOLD = 100  # entries without a match that are reported one by one
# Characters of a code or of field names in a message; of the reason, which each finding repeats.
_NAME = 200
_REASON = 1_000
# (code, fields) to digests: of the failing samples' keys, and of findings without samples.
Known = Mapping[tuple[str, str], frozenset[str]]


@dataclass(frozen=True, eq=False)
class Baseline:
    """Known findings.

    Args:
        path: of its file.
        schema: name of the schema that they were found with.
        known: by code and fields, the digests of the failing keys, and of the findings about the
            whole dataset.
        whole: whether `known` has digests of findings about the whole dataset. Files of earlier
            versions do not: there each entry stands for all such findings.
        reason: why the findings are accepted.
    """

    path: str
    schema: str
    known: Known
    reason: str = ""
    whole: bool = True

    @property
    def why(self) -> str:
        """Why a finding is suppressed."""
        return f"known to the baseline {self.path}" + (f": {self.reason}" if self.reason else "")


def accepted(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that a baseline holds: errors and warnings."""
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def make(findings: Sequence[Finding], table: Table, schema: str, made: str, reason: str) -> bytes:
    """Return ``datacheck.baseline/1``: every error and warning of a run.

    Args:
        findings: of the run.
        table: its rows.
        schema: name of its schema.
        made: when, as text.
        reason: why the findings are accepted.
    """
    known: dict[str, dict[str, set[str]]] = {}
    for finding in accepted(findings):
        fields = known.setdefault(finding.code, {}).setdefault("+".join(finding.fields), set())
        fields.update(_digests(finding, table))
    document = {
        "format": FORMAT,
        "schema": schema,
        "made": made,
        "reason": reason,
        "whole": True,
        "known": {
            code: {name: sorted(keys) for name, keys in sorted(f.items())}
            for code, f in sorted(known.items())
        },
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _digests(finding: Finding, table: Table) -> list[str]:
    """Return a digest for each failing sample, or one for a finding about the whole dataset.

    Two findings about the whole dataset are the same if rule, fields, kind, split and the expected
    values are the same: with other statistics in a file, say, it is another finding.
    """
    if len(finding.rows):
        return [digest_value(table.keys[int(row)])[-16:] for row in finding.rows]
    expected = orjson.dumps(finding.expected, option=orjson.OPT_SORT_KEYS).decode()
    return [digest_value(["dataset", finding.id, expected])[-16:]]


def read(path: Path) -> Baseline:
    """Return the baseline in a file.

    Raises:
        UsageError: there is no such file, or it is not a baseline.
    """
    try:
        data = read_file(path, BASELINE_BYTES)
        document = parse_json(data, VALUES + len(data) // 16)
        accepted = {
            (str(code), str(name)): _texts(keys)
            for code, fields in document["known"].items()
            for name, keys in fields.items()
        }
        if document["format"] != FORMAT:
            msg = (
                f"{path}: its format is {shortened(str(document['format']), _NAME)!r}, known is "
                f"{FORMAT!r}. Make it again: "
                f"datacheck baseline RUN."
            )
            raise UsageError(msg)
        return Baseline(
            str(path),
            str(document["schema"]),
            accepted,
            shortened(str(document.get("reason", "")), _REASON),
            document.get("whole") is True,
        )
    except OSError as error:
        msg = (
            f"{path}: {(error.strerror or str(error)).lower()}. datacheck baseline RUN --output "
            f"{path} makes one."
        )
        raise UsageError(msg) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        msg = f"{path}: is no baseline ({why}). Make it again: datacheck baseline RUN."
        raise UsageError(msg) from error


def _texts(keys: Any) -> frozenset[str]:
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        msg = "the keys of a finding are no list of texts"
        raise TypeError(msg)
    return frozenset(keys)


def apply(baseline: Baseline, judged: RuleResults, table: Table) -> tuple[RuleResults, list[str]]:
    """Return the results without known findings, and sentences on what the baseline does.

    The sentences say how many findings it hides, and which of its entries no longer match anything.

    Notes:
        Only findings and verdicts change; which samples are valid does not. A key that is not in
        the baseline is never hidden. Hidden findings are in `RuleResults.suppressed`.
    """
    used: dict[tuple[str, str], set[str]] = {}
    hidden: dict[str, int] = {}
    parted = [_split_finding(finding, baseline, table, used, hidden) for finding in judged.findings]
    findings = [new for new, _ in parted if new is not None]
    suppressed = [old for _, old in parted if old is not None]
    failing = {f.code for f in findings if f.severity is not Severity.INFO}
    verdicts = [
        _muted_verdict(v, hidden[v.code], v.code in failing) if v.code in hidden else v
        for v in judged.verdicts
    ]
    samples = len({int(row) for finding in suppressed for row in finding.rows})
    counts = pluralize(len(suppressed), "finding") + (
        f" of {pluralize(samples, 'sample')}" if samples else ""
    )
    notes = [f"{counts} known to the baseline {baseline.path}: not told again"]
    new = replace(judged, findings=findings, verdicts=verdicts, suppressed=suppressed)
    return new, [*(notes if suppressed else []), *_stale_entries(baseline, used)]


def _split_finding(
    finding: Finding,
    baseline: Baseline,
    table: Table,
    used: dict[tuple[str, str], set[str]],
    hidden: dict[str, int],
) -> tuple[Finding | None, Finding | None]:
    """Return the new part of a finding, and the known part; None for an empty part."""
    slot = finding.code, "+".join(finding.fields)
    if finding.severity is Severity.INFO or slot not in baseline.known:
        return finding, None
    known = baseline.known[slot]
    digests = _digests(finding, table)
    new = np.array([digest not in known for digest in digests], dtype=bool)
    used.setdefault(slot, set()).update(digests)
    if new.all() and (len(finding.rows) or baseline.whole):
        return finding, None
    hidden[finding.code] = hidden.get(finding.code, 0) + (
        int((~new).sum()) if len(finding.rows) else 0
    )
    if not len(finding.rows) or not new.any():
        return None, replace(finding, suppressed=baseline.why)
    keys = [table.keys[int(row)] for row in finding.rows]
    note = f" {int((~new).sum()):,} of these {len(new):,} samples are known to the baseline."
    fresh = replace(_finding_subset(finding, keys, new), message=finding.message + note)
    return fresh, replace(_finding_subset(finding, keys, ~new), suppressed=baseline.why)


def _finding_subset(finding: Finding, keys: Sequence[str], mask: Array) -> Finding:
    rows = finding.rows[mask]
    worst = tuple(row for row in finding.worst if row in rows)
    ranges = None if finding.ranges is None else finding.ranges[mask]
    return replace(
        finding, rows=rows, examples=tuple(compress(keys, mask))[:3], worst=worst, ranges=ranges
    )


def _muted_verdict(verdict: RuleVerdict, hidden: int, failing: bool) -> RuleVerdict:  # noqa: FBT001  private
    hidden_note = (
        f"{pluralize(hidden, 'failing sample')} known to the baseline"
        if hidden
        else "known to the baseline"
    )
    why = "; ".join(part for part in (verdict.why, hidden_note) if part)
    fails = verdict.verdict is Verdict.FAIL and not failing
    return replace(verdict, verdict=Verdict.PASS if fails else verdict.verdict, why=why)


def _stale_entries(baseline: Baseline, used: Mapping[tuple[str, str], Any]) -> Iterator[str]:
    """Yield a sentence for the first 100 entries without a match, and one for the rest."""
    count = 0
    for slot, keys in sorted(baseline.known.items()):
        stale = len(keys - used.get(slot, set()))
        if not stale and slot in used:
            continue
        count += 1
        if count <= _TOLD:
            subject = (
                f"{stale:,} of its {len(keys):,} samples and findings" if keys else "its entry"
            )
            code, fields = (shortened(text, _NAME) for text in slot)
            rule_fields = f"{code} {fields or 'of whole samples'}"
            yield f"DC005 baseline {baseline.path}: {rule_fields}: {subject} no longer fail: make it again"
    if count > _TOLD:
        yield (
            f"DC005 baseline {baseline.path}: {count - _TOLD:,} more entries match no failing "
            f"sample"
        )
