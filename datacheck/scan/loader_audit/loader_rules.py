"""Choose the rules for a loader, and judge its samples by them.

A fault is reported once, where it comes from. So what the loader itself spoils (DC905) suppresses
the rules that would report the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datacheck.model.finding import Finding, Verdict
from datacheck.model.table import Note
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.selection import CONTRACT, NONDETERMINISM, Choice, for_loader, served
from datacheck.scan.judging import Criteria, choose_criteria
from datacheck.scan.loader_audit.contract_checks import INDEX_FAULTS, ContractChecks
from datacheck.scan.loader_audit.file_comparison import loader_failures
from datacheck.scan.loader_audit.first_pass import FirstPass
from datacheck.scan.prior_results import PriorResults
from datacheck.scan.scan_run import Audit, Request, ScanRun
from datacheck.scan.scanned_dataset import with_stated_values
from datacheck.sources.lerobot import StepRates

_UNREADABLE = "DC101"
_DUPLICATE = "DC803"


def choose_loader_criteria(audit: Audit, request: Request, prior: PriorResults) -> Criteria:
    """Choose the rules that judge a loader's samples.

    The schema in force is that of the split that the loader serves.

    Raises:
        UsageError: an option of a rule is wrong, or a file that the schema names.
    """
    root = Path.cwd() if audit.files is None else request.data
    resolved, _ = with_stated_values(audit.schema.placed((), root), root, request.roots)
    in_force = served(resolved.for_split(audit.split))
    # The size of the data, which decides for a scan of files, is not known beforehand.
    level = request.level or "numeric"
    criteria = choose_criteria(
        StepRates(in_force, {}, []), level, prior, request.paths, allow_unread=False
    )
    return replace(criteria, choices=[for_loader(choice) for choice in criteria.choices])


def judge_loader(
    criteria: Criteria,
    first_pass: FirstPass,
    checks: ContractChecks,
    files: ScanRun | None,
    split: str,
) -> tuple[RuleResults, list[str]]:
    """Judge the samples of a loader; return the results, and sentences on what a baseline hides.

    Args:
        criteria: what they are judged by.
        first_pass: the samples.
        checks: the checks of the contract.
        files: the scan of the files that the loader reads, or None.
        split: the split that it serves.
    """
    prior = criteria.prior

    def judged(choices: Sequence[Choice], notes: Sequence[Note]) -> RuleResults:
        rows = first_pass.table
        schema = criteria.rates.schema
        return judge(rows, schema, choices, notes, first_pass.crashes, prior.reference)

    notes = list(checks.notes)
    choices = _without_nondeterminism(criteria.choices, checks)
    results = judged(choices, notes)
    if files is not None:
        notes += loader_failures(results, first_pass.table.keys, files, split)
    if codes := _caused_rules(notes):
        results = judged([_suppressed_by_contract(choice, codes) for choice in choices], notes)
    findings = [_with_loader_fix(finding) for finding in results.findings]
    return prior.without_known(replace(results, findings=findings), first_pass.table)


def _without_nondeterminism(choices: Sequence[Choice], checks: ContractChecks) -> list[Choice]:
    """Return the choices; the rule on nondeterminism is skipped where it can tell nothing.

    That is so if no sample was read twice, or if the index does not decide which sample is served.
    """
    why = "" if checks.probed else "no sample was read a second time"
    if any(n.code == CONTRACT and n.about["kind"] in INDEX_FAULTS for n in checks.notes):
        why = f"{CONTRACT}: the index that is asked for is not the one that is served"
    if not why:
        return list(choices)
    return [
        replace(choice, verdict=Verdict.SKIP, why=why)
        if choice.rule.code == NONDETERMINISM and not choice.verdict
        else choice
        for choice in choices
    ]


def _with_loader_fix(finding: Finding) -> Finding:
    if finding.code != _UNREADABLE:
        return finding
    return replace(
        finding, fix="Mend the loader or the data that it reads, or leave these samples out."
    )


def _caused_rules(notes: Sequence[Note]) -> set[str]:
    """Return the rules whose findings the loader causes; they do not judge its samples."""
    kinds = {note.about["kind"] for note in notes if note.code == CONTRACT}
    caused = {
        note.about["rule"]
        for note in notes
        if note.code == CONTRACT and note.about["kind"] == "made"
    }
    return caused | ({_DUPLICATE} if "substituted" in kinds else set())


def _suppressed_by_contract(choice: Choice, codes: set[str]) -> Choice:
    rule = choice.rule
    follows = rule.code in codes or not codes.isdisjoint(rule.suppressed_by)
    return (
        replace(choice, rule=replace(rule, suppressed_by=(*rule.suppressed_by, CONTRACT)))
        if follows
        else choice
    )
