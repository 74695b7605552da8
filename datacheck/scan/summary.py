"""The report of a scan: counts, coverage, changes since the last run, and what was not checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import orjson

from datacheck import __version__
from datacheck.model.finding import Report, Severity, Verdict
from datacheck.model.sample import Depth
from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, Note, Table, Texts
from datacheck.rules.engine import RuleResults
from datacheck.rules.measurement import NOT_READ
from datacheck.rules.selection import CHANGED
from datacheck.scan.coverage import ReadCoverage
from datacheck.scan.run_documents import read_result
from datacheck.scan.run_state import RunState
from datacheck.schema.model import ANY, Schema, pixels

_NAMED = 3
_LEAST_SECONDS = 0.001
_RATE = "DC503"  # the note on LeRobot datasets whose info.json files give different rates
_SINCE_BYTES = 20_000  # for the ids of findings that are new or gone
_FEWEST_WORDS = 20  # lists of words that DC413 judges
_PROBED = 1_000  # samples that show whether a field holds JSON values
_RULES = 6  # up to this many rules are named with code and name, more by code


@dataclass(frozen=True, eq=False)
class RunContext:
    """The facts of a scan that do not come from the rules.

    Args:
        schema: the schema in force.
        data: the data as the user named them.
        state: rows and files.
        began: seconds since 1970.
        kept_files, kept_samples: how many come from an earlier scan.
        level: how deep the scan read.
        silenced: what a baseline hides, and which of its entries no longer match anything.
        coverage: how much of the files was read; None for a scan of a loader.
        remarks: what else ``result.json`` states of the run.
        last: folder of the last finished scan of the same data, or None.
    """

    schema: Schema
    data: Path
    state: RunState
    began: float
    kept_files: int
    kept_samples: int
    level: Depth = "numeric"
    silenced: Sequence[str] = ()
    coverage: ReadCoverage | None = None
    remarks: Mapping[str, Any] = field(default_factory=dict)
    last: Path | None = None


def report_of(facts: RunContext, command: str, fail_on: str, judged: RuleResults) -> Report:
    """Return the report of a scan, without its folder, which is not known yet."""
    began = datetime.fromtimestamp(facts.began, UTC)
    table = facts.state.table
    slow_rules = {code: s for code, s in judged.seconds.items() if s >= _LEAST_SECONDS}
    run = {
        "id": began.strftime("%Y%m%dT%H%M%SZ"),
        "started": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(time.time() - facts.began, 3),
        "version": __version__,
        "command": command,
        "level": facts.level,
        "fail_on": fail_on,
        "kept_files": facts.kept_files,
        "kept_samples": facts.kept_samples,
        "tokenized": _tokenized(table),
        "rule_seconds": {code: round(s, 3) for code, s in slow_rules.items()},
        **facts.remarks,
    }
    report = Report(
        run,
        _dataset(facts, judged),
        {"name": facts.schema.name, "digest": facts.schema.digest},
        judged.verdicts,
        judged.findings,
        int(judged.valid.sum()),
        list(_unchecked(facts, judged)),
        [*judged.crashes, *facts.state.deaths],
        suppressed=judged.suppressed,
    )
    return replace(report, run=run | _changes_since(report, facts.last))


def _dataset(facts: RunContext, judged: RuleResults) -> dict[str, Any]:
    table = facts.state.table
    listing = facts.state.listing
    counts = {
        "listed": len(table),
        "checked": int((table.status == CHECKED).sum()),
        "unreadable": int((table.status == UNREADABLE).sum()),
        "skipped": int((table.status == SKIPPED).sum()),
    }
    splits = {
        split: {"samples": len(rows), "valid": int(judged.valid[rows].sum())}
        for split, rows in Texts.of(table.splits).places()
        if split
    }
    dataset = {
        "name": facts.schema.name,
        "root": str(facts.data),
        "digest": listing.digest,
        "files": len(listing.entries),
        "bytes": listing.nbytes,
        "samples": counts,
        "splits": splits,
    }
    if facts.coverage is not None:
        dataset["read"] = facts.coverage.as_dict()
    return dataset


def _tokenized(table: Table) -> int:
    """Return how many samples had their tokens counted, the slowest of all measurements."""
    tokenized = np.zeros(len(table), bool)
    for name in table.columns:  # names only: a column is read when it is accessed
        if name.startswith(":") and name.endswith(":trained"):
            tokenized |= table.columns[name].present
    return int(tokenized.sum())


def _unchecked(facts: RunContext, judged: RuleResults) -> Iterable[str]:
    listing, state = facts.state.listing, facts.state
    yield from _skipped_samples(state.table)
    yield from facts.silenced
    yield from _without_rate(state.notes)
    unseen: dict[str, list[str]] = {}
    for verdict in judged.verdicts:
        why = verdict.why if verdict.verdict is Verdict.SKIP else "; ".join(verdict.unseen)
        if why:
            unseen.setdefault(why, []).append(f"{verdict.code} {verdict.name}")
    for why, rules in unseen.items():
        rule_names = rules if len(rules) <= _RULES else [rule.partition(" ")[0] for rule in rules]
        yield f"{', '.join(rule_names)}: {why}"
    unread = [
        name for name in sorted(pixels(facts.schema)) if f"{name}:ndim" in state.table.columns
    ]
    if unread and facts.level == "numeric":
        yield (
            f"pixels of {', '.join(unread)}: only shape and dtype were read; --level deep also "
            f"compares by them"
        )
    passed = [name.removesuffix(NOT_READ) for name in state.undeclared if name.endswith(NOT_READ)]
    undeclared = [name for name in state.undeclared if not name.endswith(NOT_READ)]
    if undeclared and ANY not in facts.schema.fields:
        yield _undeclared(undeclared, "judged by what needs no promise only")
    if passed:
        yield _undeclared(passed, "not judged (not read, or there are too many)")
    yield from _unjudged_values(state.table, facts.schema)
    yield from _unopened(state.unclaimed, facts.coverage)
    if listing.skipped:
        named = "; ".join(f"{path}: {reason}" for path, reason in listing.skipped[:_NAMED])
        yield (
            f"{_count(len(listing.skipped), 'name')} left out "
            f"({named}{_more(len(listing.skipped))})"
        )


def _without_rate(notes: Sequence[Note]) -> Iterable[str]:
    for note in notes:
        if note.code == _RATE:
            yield (
                f"{note.key}: {note.reason}, so what needs the steps a second was not judged there"
            )


def _skipped_samples(table: Table) -> Iterable[str]:
    reasons = Counter(Texts.of(table.reasons).take(table.status == SKIPPED))
    for reason, count in sorted(reasons.items()):
        yield f"{_count(count, 'sample')}: {reason.partition(' ')[2]}"


def _undeclared(names: Sequence[str], judgement: str) -> str:
    listed = ", ".join(name or "''" for name in names[:8]) + (
        "" if len(names) <= 8 else f" … {len(names) - 8} more"
    )
    return f"{_count(len(names), 'field')} that the schema does not list, {judgement}: {listed}"


def _unjudged_values(table: Table, schema: Schema) -> Iterable[str]:
    """Yield a sentence on values that were read, but that no rule looks into."""
    if set(schema.fields) == {ANY} and schema.samples.each is None:
        yield (
            "each file is a sample by itself: the schema says neither what it holds nor which files "
            "belong together"
        )
    nested = [
        name
        for name, spec in sorted(schema.fields.items())
        if spec.role is None
        and not _are_words(table, f"{name}:spelled")
        and _is_nested(table, f"{name}:dtype")
    ]
    if nested:
        listed = ", ".join(nested[:_NAMED]) + _more(len(nested))
        yield f"what is inside of {listed} (lists or JSON values): no rule judges it without a role"


def _is_nested(table: Table, name: str) -> bool:
    """Tell whether a field holds JSON values in most samples that have it, of many the first."""
    if name not in table.columns:
        return False
    column = table.columns[name]
    dtypes = Counter(column.values[np.flatnonzero(column.present)[:_PROBED]].tolist())
    return 2 * dtypes["json"] > dtypes.total()


def _are_words(table: Table, name: str) -> bool:
    """Tell whether a field holds lists of words in as many samples as DC413 judges."""
    if name not in table.columns:
        return False
    column = table.columns[name]
    rows = np.flatnonzero(column.present)[:_PROBED]
    return sum(map(bool, column.values[rows].tolist())) >= _FEWEST_WORDS


def _unopened(paths: Sequence[str], read_coverage: ReadCoverage | None) -> Iterable[str]:
    if paths:
        kinds = Counter(PurePosixPath(path).suffix or "no suffix" for path in paths)
        counts = ", ".join(
            f"{kind} {count:,}"
            for kind, count in sorted(kinds.items(), key=lambda k: (-k[1], k[0]))[:6]
        )
        ellipsis = " …" if len(kinds) > 6 else ""
        yield (
            f"{_count(len(paths), 'file')} that no sample uses ({counts}{ellipsis}), such as {paths[0]}"
        )
    named = [] if read_coverage is None else [kind for kind in read_coverage.kinds if kind.way]
    for kind in named[:_NAMED]:
        yield (
            f"{kind.name} ({_count(kind.files, 'file')}, such as {kind.first}) was not read: "
            f"{kind.way}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _more(number: int) -> str:
    return f" … {number - _NAMED} more" if number > _NAMED else ""


# ------------------------------------------------------------------------------------------- since


def _changes_since(report: Report, folder: Path | None) -> dict[str, Any]:
    """Return ``since`` of a report's run: errors and warnings that are new or gone.

    Args:
        report: of a scan.
        folder: of the run before it.

    Returns:
        {} where that run is None, cannot be read, or has lost findings to truncation.

    Notes:
        Findings that a baseline suppresses count as known. A finding is gone only if its rule was
        judged this time. ``other`` names the differences besides the data (schema, version, depth,
        reference), since findings may come and go with them. DC108 is left out: it reports changed
        files itself.
    """
    if folder is None:
        return {}
    try:
        document = read_result(folder)
        missing = {"findings", "suppressed"} & {*document.get("left_out", {})}
        return {} if missing else {"since": _finding_changes(report, document)}
    except (OSError, ValueError, LookupError):
        return {}


def _finding_changes(report: Report, before: dict[str, Any]) -> dict[str, Any]:
    earlier = before["run"]
    run = report.run
    judged = {v.code for v in report.verdicts if v.verdict in {Verdict.PASS, Verdict.FAIL}} - {
        CHANGED
    }
    reported = [
        record
        for record in [*before["findings"], *before.get("suppressed", [])]
        if record["severity"] != "info"
    ]
    known_ids = {record["id"] for record in reported}
    ids = {f.id for f in [*report.findings, *report.suppressed] if f.severity is not Severity.INFO}
    fresh = {f.id for f in report.findings if f.code != CHANGED} & ids - known_ids
    pairs = {
        "schema": (before["schema"]["digest"], report.schema["digest"]),
        "version": (earlier["version"], run["version"]),
        "depth": (earlier["level"], run["level"]),
        "reference": tuple(record.get("reference", {}).get("run") for record in (earlier, run)),
    }
    return {
        "run": str(earlier["id"]),
        "started": str(earlier["started"]),
        "new": _count_and_ids(finding.id for finding in report.findings if finding.id in fresh),
        "gone": _count_and_ids(
            record["id"]
            for record in reported
            if record["id"] not in ids and record["rule"] in judged
        ),
        "other": [aspect for aspect, (record, current) in pairs.items() if record != current],
    }


def _count_and_ids(names: Iterable[str]) -> dict[str, Any]:
    """Return the number of different findings, and the ids of the first of them."""
    distinct = list(dict.fromkeys(names))
    room = _SINCE_BYTES
    ids = []
    for name in distinct:
        room -= len(orjson.dumps(name))
        if room < 0:
            break
        ids.append(name)
    return {"count": len(distinct), "ids": ids}
