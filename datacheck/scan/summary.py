"""From what a scan knows to its Report: the head, the verdicts, a sentence for all that was not looked at."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import numpy as np

from datacheck import __version__
from datacheck.finding import Report, Verdict
from datacheck.judging.bench import NOT_READ
from datacheck.judging.judge import Judged
from datacheck.sample import Depth
from datacheck.scan.coverage import Coverage
from datacheck.scan.state import Past
from datacheck.schema.model import ANY, Schema
from datacheck.schema.pixels import pixels
from datacheck.table import CHECKED, SKIPPED, UNREADABLE, Note, Table, Texts

_NAMED = 3
_TOLD_S = 0.001
_RATE = "DC503"  # of a note on LeRobot datasets whose info.json give different rates
_RULES = 6  # as many are named by code and name


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of a scan besides what the judges say.

    Args:
        schema: the schema in force.
        data: the data as the user named them.
        state: rows and files.
        began: seconds since 1970.
        kept_files, kept_samples: how many come from an earlier scan.
        level: how deep the scan read.
        silenced: what a baseline hides, and which of its entries match nothing any more.
        coverage: what of the files was looked at; None for a scan of a loader.
    """

    schema: Schema
    data: Path
    state: Past
    began: float
    kept_files: int
    kept_samples: int
    level: Depth = "numeric"
    silenced: Sequence[str] = ()
    coverage: Coverage | None = None


def report_of(facts: Facts, command: str, fail_on: str, judged: Judged) -> Report:
    """Return the report of a scan; its folder is not known yet."""
    began, table, listing = datetime.fromtimestamp(facts.began, UTC), facts.state.table, facts.state.listing
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
        "rule_seconds": {code: round(s, 3) for code, s in judged.seconds.items() if s >= _TOLD_S},
    }
    counts = {
        "listed": len(table),
        "checked": int((table.status == CHECKED).sum()),
        "unreadable": int((table.status == UNREADABLE).sum()),
        "skipped": int((table.status == SKIPPED).sum()),
    }
    splits = {
        split: {"samples": len(rows), "valid": int(judged.valid[rows].sum())}
        for split, rows in Texts.of(table.splits).places()
    }
    dataset = {
        "name": facts.schema.name,
        "root": str(facts.data),
        "digest": listing.digest,
        "files": len(listing.entries),
        "bytes": listing.nbytes,
        "samples": counts,
        "splits": {name: count for name, count in splits.items() if name},
    }
    if facts.coverage is not None:
        dataset["read"] = facts.coverage.as_dict()
    schema = {"name": facts.schema.name, "digest": facts.schema.digest}
    crashes = [*judged.crashes, *facts.state.deaths]
    return Report(
        run, dataset, schema, judged.verdicts, judged.findings, int(judged.valid.sum()),
        list(_unchecked(facts, judged)), crashes, suppressed=judged.suppressed,
    )  # fmt: skip


def _tokenized(table: Table) -> int:
    """Return of how many samples the tokens were counted, the slowest of all measurements."""
    found = np.zeros(len(table), bool)
    for name in table.columns:  # a column is read when it is asked for
        if name.startswith(":") and name.endswith(":trained"):
            found |= table.columns[name].present
    return int(found.sum())


def _unchecked(facts: Facts, judged: Judged) -> Iterable[str]:
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
        some = rules if len(rules) <= _RULES else [rule.partition(" ")[0] for rule in rules]
        yield f"{', '.join(some)}: {why}"
    unread = [name for name in sorted(pixels(facts.schema)) if f"{name}:ndim" in state.table.columns]
    if unread and facts.level == "numeric":
        yield f"pixels of {', '.join(unread)}: only shape and dtype were read; --level deep also compares by them"
    passed = [name.removesuffix(NOT_READ) for name in state.undeclared if name.endswith(NOT_READ)]
    met = [name for name in state.undeclared if not name.endswith(NOT_READ)]
    if met and ANY not in facts.schema.fields:
        yield _undeclared(met, "judged by what needs no promise only")
    if passed:
        yield _undeclared(passed, "not judged (not read, or there are too many)")
    yield from _unopened(state.unclaimed, facts.coverage)
    if listing.skipped:
        named = "; ".join(f"{path}: {reason}" for path, reason in listing.skipped[:_NAMED])
        yield f"{_count(len(listing.skipped), 'name')} left out ({named}{_more(len(listing.skipped))})"


def _without_rate(notes: Sequence[Note]) -> Iterable[str]:
    for note in notes:
        if note.code == _RATE:
            yield f"{note.key}: {note.reason}, so what needs the steps a second was not judged there"


def _skipped_samples(table: Table) -> Iterable[str]:
    reasons = Counter(Texts.of(table.reasons).take(table.status == SKIPPED))
    for reason, count in sorted(reasons.items()):
        yield f"{_count(count, 'sample')}: {reason.partition(' ')[2]}"


def _undeclared(names: Sequence[str], what: str) -> str:
    shown = ", ".join(name or "''" for name in names[:8]) + ("" if len(names) <= 8 else f" … {len(names) - 8} more")
    return f"{_count(len(names), 'field')} that the schema does not list, {what}: {shown}"


def _unopened(paths: Sequence[str], found: Coverage | None) -> Iterable[str]:
    if paths:
        kinds = Counter(PurePosixPath(path).suffix or "no suffix" for path in paths)
        shown = ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items(), key=lambda k: (-k[1], k[0]))[:6])
        more = " …" if len(kinds) > 6 else ""
        yield f"{_count(len(paths), 'file')} that no sample uses ({shown}{more}), such as {paths[0]}"
    named = [] if found is None else [kind for kind in found.kinds if kind.way]
    for kind in named[:_NAMED]:
        yield f"{kind.name} ({_count(kind.files, 'file')}, such as {kind.first}) was not read: {kind.way}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _more(number: int) -> str:
    return f" … {number - _NAMED} more" if number > _NAMED else ""
