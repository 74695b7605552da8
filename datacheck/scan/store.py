"""What a run leaves behind: result.json, valid.json and the names of all its files."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import orjson

from datacheck import folders, fsops
from datacheck.errors import DamagedRunError, DatacheckError, UsageError
from datacheck.finding import Cause, Finding, Report, RuleVerdict, Verdict
from datacheck.scan.bounds import bounded
from datacheck.table import Table

RESULT, SAMPLES, VALID, LISTING = "result.json", "samples.parquet", "valid.json", "listing.npz"
SCHEMA = "schema.yaml"
RUNS, LATEST = ".datacheck", "latest"  # the folder of all runs; in it the link that says the name of the newest
RESULT_FAMILY = "datacheck.result/"
RESULT_FORMAT = f"{RESULT_FAMILY}1"
PAGE = "report.html"  # of `report/`, which writes it into the finished folder
PREVIEWS = "previews.json"  # of `preview/`, which writes it there, too
PREVIEWS_FORMAT = "datacheck.previews/1"
NAMES = (RESULT, SAMPLES, VALID, LISTING, SCHEMA)
_REPORT = "; if nobody has changed the run, please report this"  # then the fault is ours


def dump_json(value: object) -> bytes:
    """Return JSON for people and programs: indented, keys in the order given, ends with a line feed."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


# ------------------------------------------------------------------------------------------ result.json


def result(report: Report) -> dict[str, Any]:
    """Return ``datacheck.result/1``: what a report says, as JSON values of less than 1 MB; see `bounded`."""
    said = {
        "format": RESULT_FORMAT,
        "run": report.run,
        "dataset": report.dataset,
        "schema": report.schema,
        "verdict": {
            "status": _status(report), "exit_code": report.exit_code, "counts": report.counts(), "valid": report.valid,
        },
        "rules": {v.code: _rule(v) for v in report.verdicts},
        "findings": [_finding(f) for f in report.findings],
        **({"suppressed": [_finding(f) for f in report.suppressed]} if report.suppressed else {}),
        "unchecked": report.unchecked,
        "crashes": report.crashes,
        "files": {"samples": SAMPLES, "valid": VALID, "listing": LISTING, "schema": SCHEMA},
    }  # fmt: skip
    return bounded(said, lambda value: len(dump_json(value)))


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
    said |= ({"why": verdict.why} if verdict.why else {}) | {"options": _plain(verdict.options)}
    return said | ({"compared": dict(verdict.compared)} if verdict.compared else {})


def _finding(finding: Finding) -> dict[str, Any]:
    share = finding.failed / finding.of if finding.of else 0.0
    said = {
        "id": finding.id, "rule": finding.code, "name": finding.name, "severity": finding.severity.value,
        "level": finding.level.value, "fields": list(finding.fields), "split": finding.split, "kind": finding.kind,
        "message": finding.message, "failed": finding.failed, "of": finding.of, "share": round(share, 6),
        "measured": _plain(finding.measured), "expected": _plain(finding.expected), "cause": _cause(finding.cause),
        "examples": list(finding.examples), "more": max(0, finding.failed - len(finding.examples)),
        "hides": dict(sorted(finding.hides.items())), "fix": finding.fix,
    }  # fmt: skip
    return said | ({"suppressed": finding.suppressed} if finding.suppressed else {})


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
    """Return ``datacheck.valid/1``: which samples of which listing not to train on and why, and of which only parts."""
    return {
        "format": "datacheck.valid/1",
        "dataset": report.dataset["name"],
        "listing": report.dataset["digest"],
        "samples": len(table),
        "valid": report.valid,
        "excluded": {table.keys[i]: list(codes[i]) for i in compress(range(len(codes)), codes)},
        "ranges": {
            table.keys[row]: kept for row, kept in sorted(ranges([*report.findings, *report.suppressed]).items())
        },
    }


def ranges(findings: Iterable[Finding]) -> dict[int, list[list[int]]]:
    """Return of rows that fail in part only which steps to train on: ``[first, behind the last]``, in order.

    Notes:
        What several findings say of a row is all to hold.
    """
    found: dict[int, list[list[int]]] = {}
    for rows, those in ((f.rows, f.ranges) for f in findings if f.ranges is not None):
        for row, some in zip(rows.tolist(), those.tolist(), strict=True):
            kept = [[first, stop] for first, stop in some if first < stop]
            past = found.get(row, kept)
            both = ([max(a, c), min(b, d)] for a, b in past for c, d in kept)
            found[row] = [[first, stop] for first, stop in both if first < stop]
    return found


# ------------------------------------------------------------------------------------------------ folder


def run_in(folder: Path) -> Path | None:
    """Return the finished run that a folder is, or the newest one in a folder of runs; None where there is none.

    Raises:
        StorageError: nobody may look into it.
        UsageError: there is none but behind a link that no scan has made: who hands over a folder of runs would choose
            what is read, and where a page is written.

    Notes:
        A folder that is named may be a link. One in a folder ``.datacheck`` is taken as those that scans make there.
    """
    elsewhere = None
    for place in (folder / LATEST, folder):
        if _is_file(place / RESULT, folder) and _is_file(place / SAMPLES, folder):
            if (place == folder and place.absolute().parent.name != RUNS) or _leads_beside(place):
                return place
            elsewhere = elsewhere or place
    if elsewhere is not None:
        msg = f"{elsewhere}: is a link, but to no run beside it, as scans make them. Name the folder that it leads to."
        raise UsageError(msg)
    return None


def _leads_beside(place: Path) -> bool:
    """Tell whether a path is a folder, or a link that says the name of a folder beside it."""
    try:
        goal = place.readlink()
    except OSError:
        return folders.is_real(place)
    return str(goal) == goal.name != ".." and folders.is_real(place.parent / goal)


def _is_file(path: Path, folder: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except PermissionError as error:  # newer versions of Python call that no file
        raise fsops.refused(error, folder) from error
    except (OSError, ValueError):
        return False


def unread(folder: Path, error: Exception) -> DatacheckError:
    """Return what to raise for a run that cannot be read: a refusal of the machine, else the run is damaged.

    Args:
        folder: as it was named.
        error: what reading raised.
    """
    if isinstance(error, DamagedRunError):
        return error
    if isinstance(error, PermissionError):
        return fsops.refused(error, error.filename or folder)
    plain = isinstance(error, OSError | ValueError)
    why = str(error) if plain else f"{type(error).__name__}: {error}"
    msg = f"{folder}: this run cannot be read ({why[:200]}). Scan the data again{'' if plain else _REPORT}."
    return DamagedRunError(msg)


def check_crashes(crashes: Sequence[Mapping[str, str]], known: Sequence[Mapping[str, str]], folder: Path) -> None:
    """Refuse the rows of an earlier run on which a rule fails: no scan writes such rows.

    Args:
        crashes: of rules.
        known: of measurements, which the earlier run told, too.
        folder: of the run that the rows come from.

    Raises:
        DamagedRunError: a built-in rule failed.
    """
    told = {crash["traceback"] for crash in known}
    fresh = [c for c in crashes if ":" not in c["rule"] and c["traceback"] not in told]  # an own check may raise
    if fresh:
        why = fresh[0]["traceback"].strip().splitlines()[-1][:200]
        msg = f"{folder}: rule {fresh[0]['rule']} fails on the rows of this run ({why}). Scan the data again{_REPORT}."
        raise DamagedRunError(msg)


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raise errors from reading a finished run as `DamagedRunError`.

    Args:
        folder: as it was named.

    Raises:
        DamagedRunError: in the place of any error that is none of datacheck's own.
        MemoryError: the machine has too little.
    """
    try:
        yield
    except (DatacheckError, MemoryError):
        raise
    except Exception as error:
        raise unread(folder, error) from error


def write_run(folder: Path, files: Mapping[str, bytes | memoryview | Path], descriptor: int) -> None:
    """Write a run's files into a new folder; of a path a hard link to that file, or a copy.

    Args:
        folder: what it is called.
        files: by name.
        descriptor: the folder.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: another refusal; nothing is half-written under a final name.
    """
    for name, data in files.items():
        if isinstance(data, Path):
            fsops.link_or_copy(data, folder / name, descriptor)
        else:
            # later runs of the same data give the rows another name: nobody may write into them
            mode = 0o444 if name == SAMPLES else 0o666
            fsops.write_file(folder / name, data, mode=mode, folder=descriptor)
    fsops.sync_directory(folder)
