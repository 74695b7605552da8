"""The files of a run: their JSON forms and limits, writing, and reading with checks.

result.json has less than 1 MB: it leaves out the excess and says how much; samples.parquet has all
rows.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, compress
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StrictBool,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from datacheck.errors import DamagedRunError, DatacheckError, UsageError
from datacheck.model.finding import Cause, Finding, Report, RuleVerdict, Verdict
from datacheck.model.table import Table
from datacheck.runtime import folders, fsops
from datacheck.runtime.beneath import read_file
from datacheck.runtime.documents import MIB, VALUES, parse_json, read_json
from datacheck.schema.model import Schema
from datacheck.sources.roots import MOST_ROOTS

MOST_BYTES = 900_000

# Characters of a sentence, of a path (useless when cut), of a traceback.
_TEXT = 1_000
_NAME = 4_200
_TRACE = 4_000
_SHORT = 300  # characters of a sentence about a rule, and of a name
_LIST = 128  # numbers, names or options kept of a list
_FINDING = 40_000  # bytes; a larger finding is stored without its numbers
_COMPARED = 120_000  # bytes of a rule's comparisons; their full count stays
_UNSEEN = 3
_UNCHECKED = 50
_CRASHES = 20
_SPLITS = 200
_BOUND_DEPTH = 6


def truncated(document: Mapping[str, Any], size: Callable[[Any], int]) -> dict[str, Any]:
    """Return a result of less than 1 MB.

    Args:
        document: ``datacheck.result/1``; findings come worst first, and the last are left out first.
        size: returns the bytes of a value in the file.

    Notes:
        ``left_out`` counts the findings, sentences, crashes and splits that are not in the file, if
        any. Findings that a baseline suppresses come after all others.
    """
    full = dict(document)
    dataset = dict(full["dataset"])
    splits = full["dataset"]["splits"]
    dataset["splits"] = {_cut(name, _SHORT): splits[name] for name in list(splits)[:_SPLITS]}
    crashes = [_crash(crash) for crash in full["crashes"][:_CRASHES]]
    rules = {code: _truncated_rule(rule, size) for code, rule in full["rules"].items()}
    unchecked = [_cut(text, _TEXT) for text in full["unchecked"][:_UNCHECKED]]
    full |= {
        "dataset": dataset,
        "rules": rules,
        "unchecked": unchecked,
        "crashes": crashes,
        "findings": [],
    }
    full["run"] = {
        name: _cut(v, _NAME) if isinstance(v, str) else v for name, v in full["run"].items()
    }
    suppressed = document.get("suppressed", [])
    full |= {"suppressed": []} if suppressed else {}
    room = MOST_BYTES - size(full)
    for number, finding in enumerate([*document["findings"], *suppressed]):
        short = _truncated_value(finding, _TEXT) | {
            "examples": [_cut(key, _NAME) for key in finding["examples"]]
        }
        if size(short) > _FINDING:
            short |= {"measured": {}, "expected": {}}
        room -= size({"findings": [short]})
        if room < 0:
            break
        full["findings" if number < len(document["findings"]) else "suppressed"].append(short)
    left_out = {
        name: len(before) - len(after)
        for name, before, after in (
            ("findings", document["findings"], full["findings"]),
            ("suppressed", suppressed, full.get("suppressed", [])),
            ("unchecked", document["unchecked"], unchecked),
            ("crashes", document["crashes"], crashes),
            ("splits", splits, dataset["splits"]),
        )
        if len(after) < len(before)
    }
    return full | ({"left_out": left_out} if left_out else {})


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 2]} …"


def _crash(crash: Mapping[str, str]) -> dict[str, str]:
    trace = crash["traceback"]
    return {name: _cut(text, _SHORT) for name, text in crash.items()} | {
        "traceback": trace
        if len(trace) <= _TRACE
        else f"… {trace[2 - _TRACE :]}"  # the end says what happened
    }


def _truncated_rule(rule: Mapping[str, Any], size: Callable[[Any], int]) -> dict[str, Any]:
    short: dict[str, Any] = _truncated_value(rule, _SHORT)
    if "compared" in short:
        ends = accumulate(
            size({"measures": [measure]}) for measure in short["compared"]["measures"]
        )
        count = sum(end <= _COMPARED for end in ends)
        short["compared"] |= {"measures": short["compared"]["measures"][:count]}
    return short | ({"unseen": short["unseen"][:_UNSEEN]} if "unseen" in short else {})


def _truncated_value(value: Any, text: int, depth: int = 0) -> Any:
    """Return JSON values with long texts, lists and dicts cut."""
    if isinstance(value, str):
        return _cut(value, text)
    if isinstance(value, Mapping):
        entries = list(value.items())[:_LIST] if depth < _BOUND_DEPTH else []
        return {
            _cut(str(name), _SHORT): _truncated_value(item, text, depth + 1)
            for name, item in entries
        }
    if isinstance(value, Sequence):
        return (
            [_truncated_value(item, text, depth + 1) for item in value[:_LIST]]
            if depth < _BOUND_DEPTH
            else []
        )
    return value


RESULT = "result.json"
SAMPLES = "samples.parquet"
VALID = "valid.json"
LISTING = "listing.npz"
SCHEMA = "schema.yaml"
# The folder of all runs; the link in it to the newest.
RUNS = ".datacheck"
LATEST = "latest"
RESULT_FAMILY = "datacheck.result/"
RESULT_FORMAT = f"{RESULT_FAMILY}1"
PAGE = "report.html"  # written into the finished folder by `report/`
PREVIEWS = "previews.json"  # written into the finished folder by `preview/`
PREVIEWS_FORMAT = "datacheck.previews/1"
NAMES = (RESULT, SAMPLES, VALID, LISTING, SCHEMA)
_REPORT = (
    "; if nobody has changed the run, please report this"  # where datacheck itself is at fault
)


# Whole numbers from here on are no float64.
_LARGEST = 1 << 1023


def dump_json(value: object) -> bytes:
    """Return JSON for people and programs: indented, keys in the given order, final line feed.

    Notes:
        Whole numbers beyond 64 bits, as damaged data may state, are written as fractions.
    """
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(value, option=options)
    except TypeError:
        return orjson.dumps(_with_short_numbers(value), option=options)


def _with_short_numbers(value: Any) -> Any:
    """Return JSON values with whole numbers beyond 64 bits as fractions."""
    if isinstance(value, Mapping):
        return {key: _with_short_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_short_numbers(item) for item in value]
    is_large = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return (float(value) if abs(value) < _LARGEST else str(value)) if is_large else value


# -------------------------------------------------------------------------------------- result.json


def result(report: Report) -> dict[str, Any]:
    """Return ``datacheck.result/1``: the report as JSON values of less than 1 MB (`truncated`)."""
    document = {
        "format": RESULT_FORMAT,
        "run": report.run,
        "dataset": report.dataset,
        "schema": report.schema,
        "verdict": {
            "status": _status(report),
            "exit_code": report.exit_code,
            "counts": report.counts(),
            "valid": report.valid,
        },
        "rules": {v.code: _rule_json(v) for v in report.verdicts},
        "findings": [_finding(f) for f in report.findings],
        **({"suppressed": [_finding(f) for f in report.suppressed]} if report.suppressed else {}),
        "unchecked": report.unchecked,
        "crashes": report.crashes,
        "files": {"samples": SAMPLES, "valid": VALID, "listing": LISTING, "schema": SCHEMA},
    }
    return truncated(document, lambda value: len(dump_json(value)))


def _status(report: Report) -> str:
    return {0: "pass", 1: "fail"}.get(report.exit_code, "crash")


def _rule_json(verdict: RuleVerdict) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": verdict.name,
        "status": verdict.verdict.value,
        "level": verdict.level.value,
        "severity": verdict.severity.value,
    }
    if verdict.verdict not in {Verdict.NOT_APPLICABLE, Verdict.OFF}:
        record |= {"checked": verdict.checked, "failed": verdict.failed, "skipped": verdict.skipped}
        record |= {"unseen": list(verdict.unseen)} if verdict.unseen else {}
    record |= ({"why": verdict.why} if verdict.why else {}) | {
        "options": _with_lists(verdict.options)
    }
    return record | ({"compared": dict(verdict.compared)} if verdict.compared else {})


def _finding(finding: Finding) -> dict[str, Any]:
    share = finding.failed / finding.of if finding.of else 0.0
    record = {
        "id": finding.id,
        "rule": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "level": finding.level.value,
        "fields": list(finding.fields),
        "split": finding.split,
        "kind": finding.kind,
        "message": finding.message,
        "failed": finding.failed,
        "of": finding.of,
        "share": round(share, 6),
        "measured": _with_lists(finding.measured),
        "expected": _with_lists(finding.expected),
        "cause": _cause(finding.cause),
        "examples": list(finding.examples),
        "more": max(0, finding.failed - len(finding.examples)),
        "hides": dict(sorted(finding.hides.items())),
        "fix": finding.fix,
    }
    return record | ({"suppressed": finding.suppressed} if finding.suppressed else {})


def _cause(cause: Cause | None) -> dict[str, Any] | None:
    if cause is None:
        return None
    return {
        "text": cause.text,
        "kind": cause.kind,
        "factor": cause.factor,
        "explains": cause.explains,
        "alternatives": list(cause.alternatives),
    }


def _with_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(v) if isinstance(v, set | frozenset | tuple) else v for name, v in values.items()
    }


def valid(report: Report, table: Table, codes: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return ``datacheck.valid/1``: samples unfit for training, with reasons; fit ranges."""
    return {
        "format": "datacheck.valid/1",
        "dataset": report.dataset["name"],
        "listing": report.dataset["digest"],
        "samples": len(table),
        "valid": report.valid,
        "excluded": {table.keys[i]: list(codes[i]) for i in compress(range(len(codes)), codes)},
        "ranges": {
            table.keys[row]: steps
            for row, steps in sorted(ranges([*report.findings, *report.suppressed]).items())
        },
    }


def ranges(findings: Iterable[Finding]) -> dict[int, list[list[int]]]:
    """Return the steps to train on in rows that fail only in part: ``[first, last + 1]``, in order.

    Notes:
        Ranges from several findings on one row are intersected.
    """
    by_row: dict[int, list[list[int]]] = {}
    for rows, finding_ranges in ((f.rows, f.ranges) for f in findings if f.ranges is not None):
        for row, row_ranges in zip(rows.tolist(), finding_ranges.tolist(), strict=True):
            nonempty = [[first, stop] for first, stop in row_ranges if first < stop]
            earlier = by_row.get(row, nonempty)
            intersections = ([max(a, c), min(b, d)] for a, b in earlier for c, d in nonempty)
            by_row[row] = [[first, stop] for first, stop in intersections if first < stop]
    return by_row


# ------------------------------------------------------------------------------------------- folder


def run_in(folder: Path) -> Path | None:
    """Return the finished run in a folder: the folder itself or its newest run; None if none.

    Raises:
        StorageError: the folder cannot be read.
        UsageError: the only run is behind a link that no scan has made. Otherwise whoever hands
            over a folder of runs would choose what is read, and where a page is written.

    Notes:
        The named folder itself may be a link. In a folder ``.datacheck``, only links like those
        that scans make are followed.
    """
    elsewhere = None
    for place in (folder / LATEST, folder):
        if _is_file(place / RESULT, folder) and _is_file(place / SAMPLES, folder):
            if (place == folder and place.absolute().parent.name != RUNS) or _is_sibling_link(
                place
            ):
                return place
            elsewhere = elsewhere or place
    if elsewhere is not None:
        msg = (
            f"{elsewhere}: is a link, but to no run beside it, as scans make them. Name the "
            f"folder that it leads to."
        )
        raise UsageError(msg)
    return None


def finished_run(run: str | Path) -> Path:
    """Return the finished run in a folder: the folder itself or its newest run.

    Raises:
        StorageError: the folder cannot be read.
        UsageError: there is none, or see `run_in`.
    """
    folder = run_in(Path(run))
    if folder is None:
        msg = f"{run}: is no finished run. Name the folder of one, for example .datacheck/latest"
        raise UsageError(msg)
    return folder


def _is_sibling_link(place: Path) -> bool:
    """Tell whether a path is a folder, or a link to a folder next to it, given by name."""
    try:
        goal = place.readlink()
    except OSError:
        return folders.is_real(place)
    return str(goal) == goal.name != ".." and folders.is_real(place.parent / goal)


def _is_file(path: Path, folder: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except PermissionError as error:  # newer versions of Python return False instead
        raise fsops.as_storage_error(error, folder) from error
    except (OSError, ValueError):
        return False


def unread(folder: Path, error: Exception) -> DatacheckError:
    """Return the error to raise for a run that cannot be read: a refused access, or a damaged run.

    Args:
        folder: as the user named it.
        error: what reading raised.
    """
    if isinstance(error, DamagedRunError):
        return error
    if isinstance(error, PermissionError):
        return fsops.as_storage_error(error, error.filename or folder)
    plain = isinstance(error, OSError | ValueError)
    why = str(error) if plain else f"{type(error).__name__}: {error}"
    msg = (
        f"{folder}: this run cannot be read ({why[:200]}). Scan the data "
        f"again{'' if plain else _REPORT}."
    )
    return DamagedRunError(msg)


def check_crashes(
    crashes: Sequence[Mapping[str, str]], known: Sequence[Mapping[str, str]], folder: Path
) -> None:
    """Refuse the rows of an earlier run on which a built-in rule crashes: no scan writes such rows.

    Args:
        crashes: of rules.
        known: of measurements, which the earlier run reported.
        folder: of the run that the rows come from.

    Raises:
        DamagedRunError: a built-in rule crashed.
    """
    reported = {crash["traceback"] for crash in known}
    # A colon marks a user's own check, which may raise.
    fresh = [c for c in crashes if ":" not in c["rule"] and c["traceback"] not in reported]
    if fresh:
        why = fresh[0]["traceback"].strip().splitlines()[-1][:200]
        msg = (
            f"{folder}: rule {fresh[0]['rule']} fails on the rows of this run ({why}). Scan the "
            f"data again{_REPORT}."
        )
        raise DamagedRunError(msg)


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raise errors from reading a finished run as `DamagedRunError`.

    Args:
        folder: as the user named it.

    Raises:
        DamagedRunError: instead of any error that is not datacheck's own.
        MemoryError: the machine has too little.
    """
    try:
        yield
    except (DatacheckError, MemoryError):
        raise
    except Exception as error:
        raise unread(folder, error) from error


def write_run(
    folder: Path, files: Mapping[str, bytes | memoryview | Path], descriptor: int
) -> None:
    """Write a run's files into a new folder; a path becomes a hard link to that file, or a copy.

    Args:
        folder: its path.
        files: by name.
        descriptor: of the folder.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: any other refusal; no half-written file has a final name.
    """
    for name, data in files.items():
        if isinstance(data, Path):
            fsops.link_or_copy(data, folder / name, descriptor)
        else:
            # Later runs of the same data link to the same file, so it must not be written again.
            mode = 0o444 if name == SAMPLES else 0o666
            fsops.write_file(folder / name, data, mode=mode, folder=descriptor)
    fsops.sync_directory(folder)


Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Severities = Literal["error", "warning", "info"]
Levels = Literal["file", "sample", "group", "dataset", "pair"]
_DEEP = 64
_LONGEST = 1_000  # characters


def _shallow(value: Any) -> Any:
    waiting = [value]
    level = 0
    while waiting:
        waiting = [inner_value for container in waiting for inner_value in _inner(container)]
        level += 1
        if level > _DEEP:
            msg = f"more than {_DEEP} levels deep"
            raise ValueError(msg)
    return value


def _inner(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _shown(word: str) -> str:
    if not word.isprintable() or word != " ".join(word.split()) or len(word) > _LONGEST:
        msg = f"no word of at most {_LONGEST:,} characters that can be printed as it is"
        raise ValueError(msg)
    return word


Word = Annotated[str, AfterValidator(_shown)]  # printable, so that no output need escape it
Code = Word  # DC123; package.module:function of an own check; a plug-in's name for its rule
Time = Annotated[str, Field(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\z")]
Version = Annotated[str, Field(pattern=r"\A[0-9A-Za-z][0-9A-Za-z.!+_-]{0,63}\z")]
Counts = dict[str, Count]
Hidden = dict[Code, Count]
Plain = Annotated[Any, AfterValidator(_shallow)]
ShallowDict = Annotated[dict[str, Any], AfterValidator(_shallow)]
_LAX = with_config(ConfigDict(extra="allow", strict=True, allow_inf_nan=False))


@_LAX
class _IdsJson(TypedDict):
    count: Count
    ids: list[str]


@_LAX
class _ReferenceJson(TypedDict):
    run: Word
    folder: str


@_LAX
class _SinceJson(TypedDict):
    run: Word
    started: Time
    new: _IdsJson
    gone: _IdsJson
    other: list[Word]


@_LAX
class _RunJson(TypedDict):
    id: Word
    started: Time
    seconds: Annotated[float, Field(ge=0, le=1e12)]
    version: Version
    command: str
    fail_on: Literal["error", "warning", "never"]
    kept_files: Count
    kept_samples: Count
    level: NotRequired[Literal["structure", "numeric", "deep"]]
    tokenized: NotRequired[Count]
    rule_seconds: NotRequired[dict[Code, Number]]
    allow_unread: NotRequired[bool]
    rescored: NotRequired[Word]
    reference: NotRequired[_ReferenceJson]
    since: NotRequired[_SinceJson]


@_LAX
class _StartedJson(TypedDict):
    started: Time


@_LAX
class BeganJson(TypedDict):
    """Of ``result.json`` when the run began."""

    run: _StartedJson


@_LAX
class _SamplesJson(TypedDict):
    listed: Count
    checked: Count
    unreadable: Count
    skipped: Count


@_LAX
class _SplitJson(TypedDict):
    samples: Count
    valid: Count


@_LAX
class _UnreadJson(TypedDict):
    format: str
    files: Count
    bytes: Count
    first: str


@_LAX
class _ReadJson(TypedDict):
    bytes: Count
    opened: Count
    partly: Count
    left: Count
    fields: Count
    fields_read: Count
    unread: list[_UnreadJson]


@_LAX
class _DatasetJson(TypedDict):
    name: str
    root: str
    digest: Word
    files: Count
    bytes: Count
    samples: _SamplesJson
    splits: dict[str, _SplitJson]
    read: NotRequired[_ReadJson]


@_LAX
class _SchemaJson(TypedDict):
    name: str
    digest: Word


@_LAX
class _SeveritiesJson(TypedDict):
    error: Count
    warning: Count
    info: Count


@_LAX
class _VerdictJson(TypedDict):
    status: Literal["pass", "fail", "crash"]
    exit_code: Literal[0, 1, 4]
    counts: _SeveritiesJson
    valid: Count


@_LAX
class _SidesJson(TypedDict):
    here: Number
    reference: Number


@_LAX
class _ClassJson(TypedDict):
    name: str
    here: Number
    reference: Number


@_LAX
class _CurveJson(TypedDict):
    at: Annotated[list[Number], Field(min_length=1, max_length=128)]
    here: Annotated[list[Count], Field(min_length=1, max_length=128)]
    reference: Annotated[list[Count], Field(min_length=1, max_length=128)]
    ks: Number
    ks_at: Number


@_LAX
class _ComparisonJson(TypedDict):
    field: str
    measure: str
    unit: str
    split: str
    effect: Number
    drifted: bool
    q: Number | None
    chance: Number | None
    samples: _SidesJson
    groups: _SidesJson
    median: NotRequired[_SidesJson]
    curve: NotRequired[_CurveJson]
    classes: NotRequired[list[_ClassJson]]


@_LAX
class _MeasuresJson(TypedDict):
    count: Count
    drifted: Count
    measures: list[_ComparisonJson]


@_LAX
class _RuleJson(TypedDict):
    name: str
    status: Literal["pass", "fail", "skip", "crash", "not_applicable", "off"]
    level: Levels
    severity: Severities
    options: ShallowDict
    checked: NotRequired[Count]
    failed: NotRequired[Count]
    skipped: NotRequired[Hidden]
    unseen: NotRequired[list[str]]
    why: NotRequired[str]
    compared: NotRequired[_MeasuresJson]


@_LAX
class _CauseJson(TypedDict):
    text: str
    kind: str
    factor: Number | None
    explains: Count | None
    alternatives: list[str]


@_LAX
class _FindingJson(TypedDict):
    id: str
    rule: Code
    name: str
    severity: Severities
    level: Levels
    fields: list[str]
    split: str
    kind: str
    message: str
    failed: Count
    of: Count
    share: Annotated[float, Field(ge=0, le=1)]
    measured: ShallowDict
    expected: ShallowDict
    cause: _CauseJson | None
    examples: list[str]
    more: Count
    hides: Hidden
    fix: str
    suppressed: NotRequired[str]


@_LAX
class _CrashJson(TypedDict):
    rule: Code
    at: str
    traceback: str


@_LAX
class Result(TypedDict):
    """``result.json``."""

    format: str
    run: _RunJson
    dataset: _DatasetJson
    schema: _SchemaJson
    verdict: _VerdictJson
    rules: dict[Code, _RuleJson]
    findings: list[_FindingJson]
    unchecked: list[str]
    crashes: list[_CrashJson]
    suppressed: NotRequired[list[_FindingJson]]
    left_out: NotRequired[Counts]


Steps = Annotated[list[Count], Field(min_length=2, max_length=2)]


@_LAX
class Valid(TypedDict):
    """``valid.json``."""

    format: NotRequired[Literal["datacheck.valid/1"]]
    excluded: dict[str, list[str]]
    ranges: NotRequired[dict[str, list[Steps]]]


@_LAX
class _PreviewJson(TypedDict):
    key: str
    split: str
    fields: list[ShallowDict]


@_LAX
class _OverlayJson(TypedDict):
    field: str


@_LAX
class Previews(TypedDict):
    """``previews.json``."""

    format: str
    samples: list[_PreviewJson]
    findings: dict[str, list[Count]]
    left_out: list[str]
    overlays: NotRequired[list[_OverlayJson]]


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
# Not strict, because JSON has no tuples.
Noted = Annotated[tuple[str, str, str, StrictBool, str, ShallowDict], Field(strict=False)]


@_LAX
class _MeasureCrashJson(TypedDict):
    measure: str
    key: str
    traceback: str


@_LAX
class Head(TypedDict):
    """The head of ``listing.npz``."""

    format: str
    key: str
    measured: list[Plain]
    root: str
    roots: Annotated[dict[str, str], Field(max_length=MOST_ROOTS)]
    only: str | None
    skipped: list[Pair]
    undeclared: list[str]
    splits: list[str]
    notes: list[Noted]
    compared: bool
    whole: bool
    crashes: list[_MeasureCrashJson]
    deaths: list[_CrashJson]
    pairs: dict[str, list[str]]


RESULT_BYTES = 32 * MIB  # a scan writes less than 1 MB
_RESULT_TEXT = 100_000  # letters of one text in result.json; a scan writes at most 4,200
# plus bytes for each sample
VALID_BYTES = 4 * MIB
VALID_BYTES_EACH = 32_768
PREVIEWS_BYTES = 32 * MIB  # a scan writes at most 1.5 MB
# Of the head of listing.npz; plus bytes for each sample and file.
HEAD_BYTES = 64 * MIB
HEAD_BYTES_EACH = 32_768
_VALUES_EACH = 32


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _checked(kind: Any, value: Any, name: str) -> Any:
    """Return a value after checking that all its parts have the types that a run writes.

    Raises:
        ValueError: a part has another type; the message names the first.
    """
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        error_details = error.errors(include_url=False, include_context=False, include_input=False)[
            0
        ]
        location = ".".join(map(str, error_details["loc"]))
        msg = f"{name} is damaged: {location or 'it'}: {error_details['msg']}"
        raise ValueError(msg) from None
    return value


def read_result(folder: Path) -> dict[str, Any]:
    """Return the result.json of a run.

    Raises:
        OSError: it is missing, not a regular file, or larger than the limit.
        ValueError: it is damaged, or of another format.
    """
    document = read_json(folder / RESULT, RESULT_BYTES, links=False)
    stored_format = document.get("format") if isinstance(document, dict) else None
    if stored_format != RESULT_FORMAT:
        msg = f"{RESULT} is of format {str(stored_format)[:40]!r}, and this datacheck reads {RESULT_FORMAT!r}"
        raise ValueError(msg)
    result: dict[str, Any] = _checked(Result, document, RESULT)
    _check_texts(result)
    verdict = result["verdict"]
    crashed = bool(result["crashes"]) or "crashes" in result.get("left_out", {})
    status_code = {"pass": 0, "fail": 1, "crash": 4}[verdict["status"]]
    passes_wrongly = verdict["status"] == "pass" and _fails(result)
    if (
        status_code != verdict["exit_code"]
        or crashed != (verdict["status"] == "crash")
        or passes_wrongly
    ):
        msg = (
            f"{RESULT} is damaged: verdict.status, verdict.exit_code, findings and crashes "
            f"contradict one another"
        )
        raise ValueError(msg)
    return result


def _fails(result: Mapping[str, Any]) -> bool:
    """Return whether a result has, or counts, findings that make the exit code 1."""
    failing = {"error": {"error"}, "warning": {"error", "warning"}}.get(
        result["run"]["fail_on"], set()
    )
    counts = result["verdict"]["counts"]
    return any(counts[severity] for severity in failing) or any(
        finding["severity"] in failing for finding in result["findings"]
    )


def check_valid(valid: Mapping[str, Any], document: Mapping[str, Any], samples: int) -> None:
    """Refuse a result.json that counts more fit samples than the run's other files have.

    Raises:
        ValueError: the files contradict one another.
    """
    most = samples - len(valid["excluded"])
    if (count := document["verdict"]["valid"]) > most:
        msg = f"{RESULT} counts {count:,} fit samples; {VALID} leaves {most:,} of {samples:,}"
        raise ValueError(msg)


def _check_texts(result: Mapping[str, Any]) -> None:
    """Refuse a text that no scan writes: outputs escape, wrap and copy every letter.

    Raises:
        ValueError: a text is longer than the limit.
    """
    waiting: list[Any] = [result]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and len(value) > _RESULT_TEXT:
            msg = (
                f"{RESULT} has a text of {len(value):,} letters; at most {_RESULT_TEXT:,} are read"
            )
            raise ValueError(msg)
        waiting += [*value, *value.values()] if isinstance(value, dict) else ()
        waiting += value if isinstance(value, list) else ()


def result_bytes(folder: str) -> bytes:
    """Return the bytes of the result.json in a run's folder."""
    return read_file(Path(folder, RESULT), RESULT_BYTES, links=False)


def read_started(folder: Path) -> str:
    """Return when a run began, as text.

    Raises:
        OSError, ValueError: as in `read_result`.
    """
    document = read_json(folder / RESULT, RESULT_BYTES, links=False)
    started: str = _checked(BeganJson, document, RESULT)["run"]["started"]
    return started


def read_valid(folder: Path, samples: int) -> dict[str, Any]:
    """Return the valid.json of a run with that number of samples.

    Raises:
        OSError, ValueError: as in `read_result`.
    """
    limit = VALID_BYTES + VALID_BYTES_EACH * samples
    document = read_json(folder / VALID, limit, VALUES + _VALUES_EACH * samples, links=False)
    checked: dict[str, Any] = _checked(Valid, document, VALID)
    return checked


def read_previews(folder: Path) -> dict[str, Any] | None:
    """Return the previews.json of a run; None where it is missing or cannot be read."""
    try:
        document = read_json(folder / PREVIEWS, PREVIEWS_BYTES, links=False)
        checked: dict[str, Any] = _checked(Previews, document, PREVIEWS)
    except (OSError, ValueError):  # no previews were made, or the file is damaged
        return None
    return checked if checked["format"] == PREVIEWS_FORMAT else None


def read_schema(folder: Path) -> Schema:
    """Return the schema of a run without following the files and code that it names.

    Raises:
        SchemaError: it cannot be read, or is wrong.
    """
    from datacheck.schema.load import parse_schema  # noqa: PLC0415  YAML is not needed with a Schema

    return parse_schema(read_schema_text(folder), str(folder / SCHEMA), files=False)


def read_schema_text(folder: Path) -> str:
    """Return the text of the schema of a run.

    Raises:
        SchemaError: it cannot be read.
    """
    from datacheck.schema.load import read_text  # noqa: PLC0415  YAML is not needed with a Schema

    return read_text(folder / SCHEMA, links=False)


def parse_head(data: bytes, rows: int) -> dict[str, Any]:
    """Return the JSON head of a listing.npz with that number of rows (samples and files).

    Raises:
        ValueError: it is larger than the limit, or damaged.
    """
    limit = HEAD_BYTES + HEAD_BYTES_EACH * rows
    if len(data) > limit:
        msg = f"the head of {LISTING} has {len(data):,} bytes; at most {limit:,} are read"
        raise ValueError(msg)
    head: dict[str, Any] = _checked(
        Head, parse_json(data, VALUES + _VALUES_EACH * rows), f"the head of {LISTING}"
    )
    return head
