"""The type of every value in the JSON documents of a run, by which they are checked when they are read.

Keys that are not here are allowed: later versions may add some.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, with_config
from typing_extensions import TypedDict

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Severities = Literal["error", "warning", "info"]
Levels = Literal["file", "sample", "group", "dataset", "pair"]
_DEEP = 64
_LONGEST = 1_000  # characters


def _shallow(value: Any) -> Any:
    waiting, level = [value], 0
    while waiting:
        waiting = [one for each in waiting for one in _inner(each)]
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


Word = Annotated[str, AfterValidator(_shown)]  # of ours, so that no output need spell it out
Code = Word  # DC123; of an own check package.module:function, and what a plug-in calls its rule
Time = Annotated[str, Field(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\z")]
Version = Annotated[str, Field(pattern=r"\A[0-9A-Za-z][0-9A-Za-z.!+_-]{0,63}\z")]
Counts = dict[str, Count]
Hidden = dict[Code, Count]
Plain = Annotated[Any, AfterValidator(_shallow)]
Named = Annotated[dict[str, Any], AfterValidator(_shallow)]
_LAX = with_config(ConfigDict(extra="allow", strict=True, allow_inf_nan=False))


@_LAX
class _Named(TypedDict):
    count: Count
    ids: list[str]


@_LAX
class _Reference(TypedDict):
    run: Word
    folder: str


@_LAX
class _Since(TypedDict):
    run: Word
    started: Time
    new: _Named
    gone: _Named
    other: list[Word]


@_LAX
class _Run(TypedDict):
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
    reference: NotRequired[_Reference]
    since: NotRequired[_Since]


@_LAX
class _Started(TypedDict):
    started: Time


@_LAX
class Began(TypedDict):
    """Of ``result.json`` when the run began."""

    run: _Started


@_LAX
class _Samples(TypedDict):
    listed: Count
    checked: Count
    unreadable: Count
    skipped: Count


@_LAX
class _Split(TypedDict):
    samples: Count
    valid: Count


@_LAX
class _Unread(TypedDict):
    format: str
    files: Count
    bytes: Count
    first: str


@_LAX
class _Read(TypedDict):
    bytes: Count
    opened: Count
    partly: Count
    left: Count
    fields: Count
    fields_read: Count
    unread: list[_Unread]


@_LAX
class _Dataset(TypedDict):
    name: str
    root: str
    digest: Word
    files: Count
    bytes: Count
    samples: _Samples
    splits: dict[str, _Split]
    read: NotRequired[_Read]


@_LAX
class _Schema(TypedDict):
    name: str
    digest: Word


@_LAX
class _Severities(TypedDict):
    error: Count
    warning: Count
    info: Count


@_LAX
class _Verdict(TypedDict):
    status: Literal["pass", "fail", "crash"]
    exit_code: Literal[0, 1, 4]
    counts: _Severities
    valid: Count


@_LAX
class _Sides(TypedDict):
    here: Number
    reference: Number


@_LAX
class _Class(TypedDict):
    name: str
    here: Number
    reference: Number


@_LAX
class _Curve(TypedDict):
    at: Annotated[list[Number], Field(min_length=1, max_length=128)]
    here: Annotated[list[Count], Field(min_length=1, max_length=128)]
    reference: Annotated[list[Count], Field(min_length=1, max_length=128)]
    ks: Number
    ks_at: Number


@_LAX
class _Compared(TypedDict):
    field: str
    measure: str
    unit: str
    split: str
    effect: Number
    drifted: bool
    q: Number | None
    chance: Number | None
    samples: _Sides
    groups: _Sides
    median: NotRequired[_Sides]
    curve: NotRequired[_Curve]
    classes: NotRequired[list[_Class]]


@_LAX
class _Measures(TypedDict):
    count: Count
    drifted: Count
    measures: list[_Compared]


@_LAX
class _Rule(TypedDict):
    name: str
    status: Literal["pass", "fail", "skip", "crash", "not_applicable", "off"]
    level: Levels
    severity: Severities
    options: Named
    checked: NotRequired[Count]
    failed: NotRequired[Count]
    skipped: NotRequired[Hidden]
    unseen: NotRequired[list[str]]
    why: NotRequired[str]
    compared: NotRequired[_Measures]


@_LAX
class _Cause(TypedDict):
    text: str
    kind: str
    factor: Number | None
    explains: Count | None
    alternatives: list[str]


@_LAX
class _Finding(TypedDict):
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
    measured: Named
    expected: Named
    cause: _Cause | None
    examples: list[str]
    more: Count
    hides: Hidden
    fix: str
    suppressed: NotRequired[str]


@_LAX
class _Crash(TypedDict):
    rule: Code
    at: str
    traceback: str


@_LAX
class Result(TypedDict):
    """``result.json``."""

    format: str
    run: _Run
    dataset: _Dataset
    schema: _Schema
    verdict: _Verdict
    rules: dict[Code, _Rule]
    findings: list[_Finding]
    unchecked: list[str]
    crashes: list[_Crash]
    suppressed: NotRequired[list[_Finding]]
    left_out: NotRequired[Counts]


Steps = Annotated[list[Count], Field(min_length=2, max_length=2)]


@_LAX
class Valid(TypedDict):
    """``valid.json``."""

    format: NotRequired[Literal["datacheck.valid/1"]]
    excluded: dict[str, list[str]]
    ranges: NotRequired[dict[str, list[Steps]]]


@_LAX
class _Drawn(TypedDict):
    key: str
    split: str
    fields: list[Named]


@_LAX
class _Overlay(TypedDict):
    field: str


@_LAX
class Previews(TypedDict):
    """``previews.json``."""

    format: str
    samples: list[_Drawn]
    findings: dict[str, list[Count]]
    left_out: list[str]
    overlays: NotRequired[list[_Overlay]]


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Noted = Annotated[tuple[str, str, str, StrictBool, str, Named], Field(strict=False)]  # JSON has no tuples


@_LAX
class _Measuring(TypedDict):
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
    roots: dict[str, str]
    only: str | None
    skipped: list[Pair]
    undeclared: list[str]
    splits: list[str]
    notes: list[Noted]
    compared: bool
    whole: bool
    crashes: list[_Measuring]
    deaths: list[_Crash]
    pairs: dict[str, list[str]]
