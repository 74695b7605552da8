"""A baseline: findings that are known and not told again. It silences, it does not heal: the samples stay invalid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.digest import digest_value
from datacheck.errors import UsageError
from datacheck.finding import Finding, RuleVerdict, Severity, Verdict
from datacheck.judging.judge import Judged
from datacheck.table import Table

FORMAT = "datacheck.baseline/1"
Known = Mapping[tuple[str, str], frozenset[str]]  # (code, fields) to digests of keys


@dataclass(frozen=True, eq=False)
class Baseline:
    """Known findings.

    Args:
        path: of its file.
        schema: name of the schema that they were found with.
        known: digests of the keys that fail, by code and fields; an empty set for a finding about the whole dataset.
    """

    path: str
    schema: str
    known: Known


def make(findings: Sequence[Finding], table: Table, schema: str, made: str, reason: str) -> bytes:
    """Return ``datacheck.baseline/1``: every error and warning of a run, so that it is not told again.

    Args:
        findings: of the run.
        table: its rows.
        schema: name of its schema.
        made: when, as text.
        reason: why these are left as they are.
    """
    known: dict[str, dict[str, set[str]]] = {}
    for finding in findings:
        if finding.severity is not Severity.INFO:
            fields = known.setdefault(finding.code, {}).setdefault("+".join(finding.fields), set())
            fields.update(_digest(table.keys[int(row)]) for row in finding.rows)
    said = {
        "format": FORMAT, "schema": schema, "made": made, "reason": reason,
        "known": {code: {name: sorted(keys) for name, keys in sorted(f.items())} for code, f in sorted(known.items())},
    }  # fmt: skip
    return orjson.dumps(said, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _digest(key: str) -> str:
    return digest_value(key)[-16:]


def read(path: Path) -> Baseline:
    """Return the baseline of a file.

    Raises:
        UsageError: there is no such file, or it is no baseline.
    """
    try:
        said = orjson.loads(path.read_bytes())
        known = {
            (str(code), str(name)): frozenset(map(str, keys))
            for code, fields in said["known"].items()
            for name, keys in fields.items()
        }
        if said["format"] != FORMAT:
            msg = (
                f"{path}: its format is {said['format']!r}, known is {FORMAT!r}. Make it again: datacheck baseline RUN."
            )
            raise UsageError(msg)
        return Baseline(str(path), str(said["schema"]), known)
    except OSError as error:
        msg = f"{path}: {(error.strerror or str(error)).lower()}. datacheck baseline RUN --output {path} makes one."
        raise UsageError(msg) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path}: is no baseline ({type(error).__name__}: {error}). Make it again: datacheck baseline RUN."
        raise UsageError(msg) from error


def apply(baseline: Baseline, judged: Judged, table: Table) -> tuple[Judged, list[str]]:
    """Return what is new beside a baseline, and sentences: what it hides, which entries match nothing any more.

    Notes:
        Only findings and verdicts change; which samples are valid does not. A key that the baseline does not hold is
        never hidden.
    """
    used: dict[tuple[str, str], set[str]] = {}
    hidden: dict[str, int] = {}
    findings = [f for finding in judged.findings for f in _fresh(finding, baseline.known, table, used, hidden)]
    failing = {f.code for f in findings if f.severity is not Severity.INFO}
    verdicts = [_quiet(v, hidden[v.code], v.code in failing) if v.code in hidden else v for v in judged.verdicts]
    told = [f"{sum(hidden.values()):,} failing samples known to the baseline {baseline.path} are not told again"]
    return replace(judged, findings=findings, verdicts=verdicts), [*(told if hidden else []), *_stale(baseline, used)]


def _fresh(
    finding: Finding, known: Known, table: Table, used: dict[tuple[str, str], set[str]], hidden: dict[str, int]
) -> Iterator[Finding]:
    slot = finding.code, "+".join(finding.fields)
    if finding.severity is Severity.INFO or slot not in known:
        yield finding
        return
    keys = [table.keys[int(row)] for row in finding.rows]
    digests = [_digest(key) for key in keys]
    new = np.array([digest not in known[slot] for digest in digests], dtype=bool)
    used.setdefault(slot, set()).update(digests)
    hidden[finding.code] = hidden.get(finding.code, 0) + int((~new).sum())
    if not len(new) or new.all() or not new.any():
        if len(new) and new.all():
            yield finding
        return
    rest = f" {int((~new).sum()):,} of these {len(new):,} samples are known to the baseline."
    examples = tuple(key for key, fresh in zip(keys, new, strict=True) if fresh)[:3]
    yield replace(finding, rows=finding.rows[new], examples=examples, message=finding.message + rest)


def _quiet(verdict: RuleVerdict, hidden: int, failing: bool) -> RuleVerdict:  # noqa: FBT001  private
    told = f"{hidden:,} failing samples known to the baseline" if hidden else "known to the baseline"
    why = "; ".join(part for part in (verdict.why, told) if part)
    fails = verdict.verdict is Verdict.FAIL and not failing
    return replace(verdict, verdict=Verdict.PASS if fails else verdict.verdict, why=why)


def _stale(baseline: Baseline, used: Mapping[tuple[str, str], Any]) -> Iterator[str]:
    for (code, fields), keys in sorted(baseline.known.items()):
        gone = len(keys - used.get((code, fields), set()))
        if gone or (code, fields) not in used:
            what = f"{gone:,} of its {len(keys):,} samples" if keys else "its entry"
            who = f"{code} {fields or 'of whole samples'}"
            yield f"DC005 baseline {baseline.path}: {who}: {what} no longer fail: make it again"
