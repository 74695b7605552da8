"""Judge a finished run again without its data: with other thresholds, or to make a baseline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.finding import Severity
from datacheck.model.sample import Depth
from datacheck.model.table import Rows
from datacheck.plugins import add_module_folders
from datacheck.rules import rules_for
from datacheck.rules.base import Measure, Rule, RuleContext, first_few
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.selection import choose_rules, for_files, measures_of
from datacheck.scan import previous_runs, run_dir, run_documents
from datacheck.scan.baseline import apply as apply_baseline
from datacheck.scan.baseline import make
from datacheck.scan.baseline import read as read_baseline
from datacheck.scan.pairs import CachedSecondRead
from datacheck.scan.previous_runs import PreviousRun, named_reference, read_reference, read_state
from datacheck.scan.run import FailOn, ScanRun, publish
from datacheck.scan.run_dir import read_run
from datacheck.scan.run_documents import read_schema
from datacheck.scan.summary import (
    RunContext,
    coverage,
    notes_with_unread,
    report_of,
    without_unread_rule,
)
from datacheck.schema.model import Schema
from datacheck.sources import with_label_table, with_rate, with_stats
from datacheck.sources.indexes import StepRates
from datacheck.sources.listing import stat_entry
from datacheck.sources.loader_tables import path_of

Array = np.ndarray[Any, Any]

_NAMED = 5


@dataclass(frozen=True)
class Rescore:
    """The options of a rescore.

    Args:
        run: the folder of a run, or a folder of runs, for the newest.
        output: folder for the results; None: a new one in ``.datacheck``.
        fail_on: the lowest severity that makes the exit code 1.
        command: the command line, for the record.
        reference: folder of a finished run to compare with.
        baseline: file of known findings, which are not reported again.
        paths: folders with the modules of the checks of a schema that the caller names.
        allow_unread: as in `Request`; also on if it was on in the run.
    """

    run: Path
    output: Path | None = None
    fail_on: FailOn = "error"
    command: str = ""
    reference: Path | None = None
    baseline: Path | None = None
    paths: Sequence[str] = ()
    allow_unread: bool = False


def rescore(request: Rescore, schema: Schema | None = None) -> ScanRun:
    """Judge the rows of a finished run and write a new run; the data are not read.

    Args:
        request: which run, and how.
        schema: has other thresholds; None: the run's own, without its own checks (see
            `without_checks`).

    Raises:
        UsageError: there is no such run, the schema needs measurements that the run lacks, or an
            option, a waiver, the reference or the baseline is wrong.
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk refuses.

    Notes:
        The findings are those of a fresh scan of the same data with that schema, plus the run's
        findings on changes since the run before it.
    """
    began = time.time()
    past, document, own_schema = _finished(request.run)
    request = replace(
        request, allow_unread=request.allow_unread or document["run"].get("allow_unread", False)
    )
    declared, trusted = (own_schema, False) if schema is None else (schema, True)
    baseline = None if request.baseline is None else read_baseline(request.baseline)
    past, rated = _with_rate(_in_place(declared, past, trusted=trusted), past)
    schema = rated.schema
    place = run_dir.run_location(
        schema, past.listing.root, past.only, past.listing.roots, request.output
    )
    journal = run_dir.Journal(place, past.key, "-rescore")
    level: Depth = document["run"].get("level", "numeric")
    with journal.held(), run_documents.reading(request.run):
        judged = _judged(request, past, rated, level, trusted=trusted)
        judged, silenced = (
            (judged, []) if baseline is None else apply_baseline(baseline, judged, past.table)
        )
        data = Path(document["dataset"]["root"])
        silenced = [
            *silenced,
            *([] if trusted else not_run(declared, f"datacheck rescore {request.run}")),
        ]
        read_coverage = coverage(past, schema, level)
        facts = RunContext(
            declared,
            data,
            past,
            began,
            len(past.items),
            len(past.table),
            level,
            silenced,
            read_coverage,
        )
        report = report_of(facts, request.command, request.fail_on, judged)
        report = replace(
            report,
            run=report.run
            | {"rescored": document["run"]["id"]}
            | named_reference(request.reference),
        )
        if request.allow_unread:
            report = replace(report, run=report.run | {"allow_unread": True})
        folder = publish(report, declared, judged, past, past.pairs, place, journal)
    report = replace(report, folder=str(folder))
    return ScanRun(
        report, past.table, past.listing, judged.valid, judged.codes, rated.of_all(schema)
    )


def baseline_of(
    request: Rescore, reason: str, schema: Schema | None = None
) -> tuple[bytes, int, int, list[str]]:
    """Return a baseline of a finished run: its bytes, numbers of findings and samples, and notes.

    Args:
        request: which run; `output`, `fail_on` and `baseline` do not matter.
        reason: why these findings are accepted.
        schema: as in `rescore`.

    Raises:
        UsageError: there is no such run, or its rows lack measurements that its schema needs.
    """
    past, document, own_schema = _finished(request.run)
    declared, trusted = (own_schema, False) if schema is None else (schema, True)
    past, rated = _with_rate(_in_place(declared, past, trusted=trusted), past)
    with run_documents.reading(request.run):
        judged = _judged(
            request, past, rated, document["run"].get("level", "numeric"), trusted=trusted
        )
    accepted = [finding for finding in judged.findings if finding.severity is not Severity.INFO]
    samples = {int(row) for finding in accepted for row in finding.rows}
    data = make(accepted, past.table, declared.name, document["run"]["started"], reason)
    notes = [] if trusted else not_run(declared, f"datacheck baseline {request.run}")
    return data, len(accepted), len(samples), notes


def without_checks(schema: Schema) -> Schema:
    """Return the schema of a run without its own checks.

    Otherwise whoever shares a run would choose which modules its reader imports.
    """
    rules = {code: spec for code, spec in schema.rules.items() if code not in schema.checks}
    return schema.model_copy(update={"checks": (), "rules": rules}) if schema.checks else schema


def not_run(schema: Schema, command: str) -> list[str]:
    """Return a sentence that names the checks of a run's schema that did not run, and the remedy.

    Empty where the schema has no checks of its own.
    """
    if not schema.checks:
        return []
    more = f" and {len(schema.checks) - _NAMED} more" if len(schema.checks) > _NAMED else ""
    names = f"{', '.join(schema.checks[:_NAMED])}{more}"
    why = "modules that only the schema.yaml of a run names are not imported"
    return [f"own checks not run ({names}): {why}. Name the schema: {command} --schema FILE"]


def _in_place(schema: Schema, past: PreviousRun, *, trusted: bool) -> Schema:
    """Return a schema with its folders, and with the statistics and classes that files now hold.

    Args:
        schema, past: of a run.
        trusted: the caller named the schema. Otherwise each such file must be as it was scanned:
            whoever shares a run may name any folder in it.

    Raises:
        UsageError: such a file is not as it was scanned, or it holds no statistics.
    """
    root, roots = past.listing.root, past.listing.roots
    loader = schema.loader.get("keep_classes") if schema.loader is not None else None
    named = [
        path_of(spec.stats, roots)
        for spec in schema.fields.values()
        if spec.stats and spec.stats.file
    ]
    for path in [*named, *([loader] if isinstance(loader, str) else [])]:
        if (
            not trusted
            and stat_entry(root, path, roots) is not None
            and not past.listing.holds(path)
        ):
            msg = (
                f"{path}: the schema of the run names it, but it is not what was scanned. Scan the "
                f"data again, or name "
                "the schema (--schema FILE)"
            )
            raise UsageError(msg)
    return with_label_table(with_stats(schema.placed(roots, root), root, roots)[0], root, roots)[0]


def _with_rate(schema: Schema, past: PreviousRun) -> tuple[PreviousRun, StepRates]:
    """Return the run, and the rates of LeRobot datasets whose documents are as scanned.

    The run has notes on the other datasets.
    """
    rated = with_rate(schema, past.listing, sorted(set(past.table.files)))
    new_notes = [note for note in rated.notes if note not in past.notes]
    return replace(
        past, notes=[*past.notes, *new_notes], written=past.written and not new_notes
    ), rated


def _judged(
    request: Rescore, past: PreviousRun, rated: StepRates, level: Depth, *, trusted: bool
) -> RuleResults:
    """Judge all rows by a schema.

    Args:
        request, past: which run.
        rated: the schema, with its folders in place.
        level: how deep the run has read.
        trusted: the caller named the schema; otherwise nothing that it names is imported or opened.

    Raises:
        UsageError: the schema needs measurements that the run lacks, or an option, a waiver or the
            reference is wrong.
    """
    schema = rated.schema
    reference = None if request.reference is None else read_reference(request.reference, schema)
    if trusted:
        add_module_folders(request.paths)
    else:
        schema = without_checks(schema)
    choices = choose_rules(schema, rules_for(schema), level)
    measures = measures_of(choices, level)
    needed = previous_runs.measured(schema, measures, level, outside=trusted)
    try:
        missing = list(missing_measurements(past.measured, needed, measures))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise run_documents.unread(request.run, error) from error
    _check(request.run, past, missing)
    second = _NoSecondRead()
    choices = [
        for_files(previous_runs.comparable(choice, compared=past.compared)) for choice in choices
    ]
    choices = without_unread_rule(choices, unread=request.allow_unread)
    notes = notes_with_unread(past.notes, coverage(past, schema, level))
    remembering = CachedSecondRead(second, past.pairs)
    rates = rated.of(past.table.files)
    judged = judge(past.table, schema, choices, notes, past.crashes, reference, remembering, rates)
    run_documents.check_crashes(judged.crashes, past.crashes, request.run)
    _check(
        request.run,
        past,
        [f"rule {code} compares samples in pairs" for code in sorted(second.rule_codes)],
    )
    return judged


def _finished(folder: Path) -> tuple[PreviousRun, dict[str, Any], Schema]:
    past, document, schema = read_run(
        folder, lambda place, document: (read_state(place), document, read_schema(place))
    )
    if not past.measured:
        msg = (
            f"{folder}: is of a loader, and its samples must be read to be judged, since nothing "
            f"tells whether its "
            f"code has changed. Scan it again: --loader {document['dataset']['root']}; datacheck "
            f"report {folder} prints "
            "what it found"
        )
        raise UsageError(msg)
    return past, document, schema


def _check(run: Path, past: PreviousRun, missing: Sequence[str]) -> None:
    if missing:
        more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        msg = (
            f"{run}: these rows cannot answer that, the data must be read: "
            f"{'; '.join(missing[:_NAMED])}{more}. "
            f"Scan {past.listing.root} with that schema."
        )
        raise UsageError(msg)


class _NoSecondRead:
    """A `PairReader` that reads nothing and remembers which rules asked for a second read."""

    def __init__(self) -> None:
        self.rule_codes: set[str] = set()

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> Mapping[str, Array]:
        del case, split, rows, pairs
        self.rule_codes.add(rule.code)
        return {}


# ----------------------------------------------------------------------------- missing measurements


def missing_measurements(
    have: Sequence[Any], want: Sequence[Any], measures: Sequence[Measure]
) -> Iterator[str]:
    """Yield phrases that say why rows measured as in `have` cannot be judged as in `want`.

    Args:
        have, want: from `previous_runs.measured`.
        measures: the measurements of `want`.
    """
    if have[0] != want[0]:
        yield (
            f"the run was made by another version of datacheck or other plug-ins "
            f"({have[0].get('version')})"
        )
        return
    differing = [key for key, value in want[1].items() if value != have[1].get(key)]
    yield from (
        f"{key!r} decides which samples there are and what is known of them, and is another"
        for key in differing
    )
    if len(have) == len(want):
        yield from _causes(
            have[2:], want[2:], {measure.name for measure in measures if measure.per == "field"}
        )


def _causes(have: Sequence[Any], want: Sequence[Any], per_field: set[str]) -> Iterator[str]:
    """Yield the differences in how fields are read and measured, with the measurements affected."""
    causes: dict[str, dict[str, None]] = {}
    for before, now in zip(have, want, strict=True):
        for phrase in _read_otherwise(before[0], now[0]):
            causes.setdefault(phrase, {})
        for phrase, name in _unmeasured(before[1], now[1], per_field):
            causes.setdefault(phrase, {})[name] = None
    for phrase, names in causes.items():
        yield phrase + (f" (measured by {first_few(names)})" if names else "")


def _read_otherwise(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        if name not in before or name not in now:
            yield f"field {name!r} {'was' if name in now else 'is'} not declared"
        for key in sorted({*before.get(name, {}), *now.get(name, {})}):
            if name in before and name in now and before[name].get(key) != now[name].get(key):
                yield f"field {name!r} is read otherwise: another {key!r}"


def _unmeasured(
    before: Sequence[Any], now: Sequence[Any], per_field: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a difference and the measurement that it affects."""
    earlier = {settings["name"]: settings for settings in before}
    for settings in now:
        name = settings["name"]
        old = earlier.get(settings["name"])
        if old is None:
            yield "what no rule of the run has asked for", name
        elif (
            settings["version"] != old["version"]
            or settings.get("outside", old["outside"]) != old["outside"]
        ):
            yield "a tokenizer, or a check of your own, that has changed", name
        else:
            for phrase in _used_otherwise(
                old["uses"], settings["uses"], per_field=name in per_field
            ):
                yield phrase, name


def _used_otherwise(
    before: Mapping[str, Any], now: Mapping[str, Any], *, per_field: bool
) -> Iterator[str]:
    for key, values in now.items():
        old = before.get(key)
        # A field that is no longer used does not matter, unless a measurement sees all at once.
        if key == "fields":
            dropped = set() if per_field else set(old or ()) - set(values)
            yield from (
                f"field {name!r}, which was not measured"
                for name in values
                if name not in (old or ())
            )
            yield from (f"without field {name!r}" for name in sorted(dropped))
        elif per_field or key.startswith("fields."):
            for name in now["fields"]:
                if name in before["fields"] and values.get(name) != (old or {}).get(name):
                    yield f"another {key.removeprefix('fields.')!r} of field {name!r}"
        elif values != old:
            yield f"another {key!r}"
