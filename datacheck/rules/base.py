"""The parts of a rule: measures turn blocks into columns, a judge turns rows into failures.

A measurement never decides; a judge compares rows with thresholds. A measurement may serve several
rules; it runs once per block. Columns of a per-field measurement are stored as ``field:stat``,
those of a per-sample one as ``:stat``. A measurement returns arrays, lists of text, or `Measured`
where some samples have no value. It returns no columns for values that it does not apply to.

The functions at the end write numbers, counts and names as the messages of rules do.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import DEPTHS, Depth, Sample
from datacheck.model.table import UNREADABLE, Measured, Note, Rows, Texts
from datacheck.rules.comparison import DriftResult
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]
Columns = Mapping[str, "Array | list[str] | Measured"]

Applies = Callable[[FieldSpec], bool]
AppliesToSchema = Callable[[Schema], str]


@dataclass(frozen=True, eq=False)
class Measure:
    """A measurement: one row per sample.

    A row holds scalars, vectors of at most 4,096 numbers, digests or short texts.

    Args:
        name, version: part of the cache key of its rows; a changed result needs a new version.
        per: "field": called as ``function(column, spec)`` for every present field (and part of a
            field) to which `applies`; "sample": called as ``function(block, schema)``.
        uses: the parts of the schema that change the result, see `settings`: keys of the field's
            declaration ("skeleton"); for a per-sample measurement keys of the schema ("loader") or
            of all declarations ("fields.role").
        outside: what besides file and schema changes the result (a tokenizer's digest), as JSON
            values.
        undeclared: also run for fields that the schema does not list (``"*"``); the columns are
            then added up over those fields under the name ``*``, and the text column ``worst``
            names the field with the largest `worst`.
        worst: the column that decides which undeclared field is named.
        unlisted: also run for each numeric field that the schema does not list, under the field's
            own name, unless the schema declares ``"*"``.
        depth: the shallowest scan in which it runs: "structure" needs shapes and dtypes only,
            "numeric" values, "deep" pixels, or more time than a daily scan should take.
    """

    name: str
    version: int
    per: Literal["field", "sample"]
    function: Callable[..., Columns]
    applies: Applies = lambda spec: not spec.is_text
    uses: tuple[str, ...] = ()
    outside: Callable[[Schema], Any] = lambda schema: None
    undeclared: bool = False
    worst: str = ""
    unlisted: bool = False
    depth: Depth = "numeric"

    def settings(self, schema: Schema, *, outside: bool = True) -> dict[str, Any]:
        """Return what the rows depend on besides the file's bytes: JSON values, part of their key.

        Args:
            schema: the schema in force.
            outside: include dependencies outside the schema; this opens the files that the schema
                names and imports its checks.
        """
        record = schema.as_dict() | {
            "loader": None if schema.loader is None else [list(s) for s in schema.loader.steps]
        }
        declared: dict[str, dict[str, Any]] = record.get("fields", {})
        seen = sorted(
            name for name in declared if self.per == "sample" or self.applies(schema.fields[name])
        )
        values: dict[str, Any] = {"fields": seen}
        for use in self.uses:
            key = use if self.per == "field" else use.removeprefix("fields.")
            if self.per == "field" or use.startswith("fields."):
                values[use] = {name: declared[name][key] for name in seen if key in declared[name]}
            else:
                values[use] = record.get(use)
        settings = {"name": self.name, "version": self.version, "uses": values}
        if outside:
            settings["outside"] = self.outside(schema)
        return settings


def measure(
    name: str, *, version: int = 1, per: Literal["field", "sample"] = "field", **options: Any
) -> Callable[[Callable[..., Columns]], Measure]:
    """Return a decorator that turns a function into a `Measure`, which documents the options."""

    def wrap(function: Callable[..., Columns]) -> Measure:
        # NaN and overflow are results that the rows record, not events to warn about.
        quiet = np.errstate(all="ignore")(function)
        return Measure(name, version, per, quiet, **options)

    return wrap


@dataclass(frozen=True, eq=False)
class Pairs:
    """Values measured on pairs of samples in a second read.

    Shapes:
        first, second: int64 (pairs), positions within the judged rows
        values: float64 (pairs) by name, NaN where a sample could not be read again
    """

    first: Array
    second: Array
    values: Mapping[str, Array]

    def of(self, name: str) -> Array:
        """Return the values of a name, NaN where the second read measured none."""
        return self.values.get(name, np.full(len(self.first), np.nan))


@dataclass(frozen=True, eq=False)
class RuleContext:
    """The context in which a judge runs, besides the rows.

    Args:
        schema: the schema in force for the rows' split.
        name: the judged field, "" for a rule about whole samples.
        spec: its declaration (an empty one for undeclared fields).
        options: the rule's defaults with the schema's ``rules:`` block over them.
        notes: the listing's notes with this rule's code.
        reference: the same rows of the reference run, None without one.
        pairs: results of the second read, for a rule with `Rule.pairs`; None without a second read.
    """

    schema: Schema
    name: str
    spec: FieldSpec
    options: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    reference: Rows | None = None
    pairs: Pairs | None = None


@dataclass(frozen=True, eq=False)
class Skip:
    """A judge's statement that it could not judge some rows: they count as skipped, not as passed.

    Args:
        mask: bool (rows).
        reason: one sentence: what is missing, and how to get it.
    """

    mask: Array
    reason: str


@dataclass(frozen=True, eq=False)
class Info:
    """A judge's remark about data without a defect; it accompanies the verdict, whatever that is.

    Args:
        words: the observation, for example "centred on: root (734 of 734)".
    """

    words: str


Judge = Callable[[Rows, RuleContext], Iterable["Failure | Skip | Info | DriftResult"]]
Pairing = Callable[[Rows, RuleContext], Array]
Compare = Callable[[Sample, Sample, RuleContext], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Rule:
    """One documented, coded test.

    Args:
        code: append-only; the hundreds are the family.
        name: the defect ("non-finite"), so that "waive non-finite" reads as English.
        per: as of its measurement: one judge call per field, or one for all samples.
        measures: the measurements that it needs; the judge's rows hold their columns. See `Rows`
            for how columns are named.
        suppressed_by: codes whose failing samples this rule does not judge (their verdict is skip,
            for that reason). Where both rules are per field only failures of the same field count,
            or of the field that it is a part of.
        applies: for a per-field rule, whether it judges a field.
        unless: for any rule, why it does not apply to a schema at all ("" where it does).
        defaults: options with their default values.
        span: rows that a judge call gets: "split" (each split on its own, default) or "all" (every
            split at once).
        sees: "checked": rows that could be read (default); "all": also unreadable and skipped ones.
        depth: the shallowest scan in which it runs, where its measurements need less.
        pairs, compare: for a rule that needs two samples' arrays at once: which pairs (int64
            (pairs, 2), positions within the rows, at most 10,000), and what to measure of each;
            `RuleContext.pairs` then holds the results.
        needs_reference: it needs `RuleContext.reference` and does not apply without one.
        paced: it uses the rate in ``episode: {fps: ...}``: samples whose files give different rates
            are judged separately for each rate.
    """

    code: str
    name: str
    severity: Severity
    level: Level
    judge: Judge
    per: Literal["field", "sample"] = "field"
    measures: tuple[Measure, ...] = ()
    suppressed_by: tuple[str, ...] = ()
    applies: Applies = lambda spec: not spec.is_text
    unless: AppliesToSchema = lambda schema: ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    span: Literal["split", "all"] = "split"
    sees: Literal["checked", "all"] = "checked"
    depth: Depth = "structure"
    pairs: Pairing | None = None
    compare: Compare | None = None
    needs_reference: bool = False
    paced: bool = False

    @property
    def needed(self) -> Depth:
        """The shallowest scan in which it runs: the deepest of its and its measurements' depths."""
        return max((self.depth, *(m.depth for m in self.measures)), key=DEPTHS.index)

    @property
    def doc(self) -> str:
        """The rule's page: the docstring of its judge."""
        return inspect.cleandoc(self.judge.__doc__ or "")


def rule(
    code: str, name: str, severity: Severity, level: Level, **options: Any
) -> Callable[[Judge], Rule]:
    """Return a decorator that turns a judge into a `Rule`, which documents the options."""

    def wrap(judge: Judge) -> Rule:
        return Rule(code, name, severity, level, judge, **options)

    return wrap


def unique_texts(texts: Array) -> list[str]:
    """Return the distinct texts of a column, sorted."""
    return sorted(set(texts if texts.strides[0] else texts[:1]))


def match_texts(texts: Array, wanted: Callable[[str], bool]) -> Array:
    """Return bool (rows): where a text meets a condition, evaluated once per distinct text."""
    if not texts.strides[0]:  # one text for all rows
        return np.full(len(texts), bool(len(texts)) and wanted(texts[0]))
    distinct = Texts.of(texts.tolist())
    return np.array([wanted(word) for word in distinct.words], bool)[distinct.rows]


_MAX_RANGES = 1000  # runs of consecutive numbers in one list of names
DIGITS = 18  # last digits of a number in a name that count: so many fit into 64 bits
_MAX_NUMBERS = 16  # numbers in a name; the rest of it is text


def natural_key(name: str) -> tuple[str | int, ...]:
    """Return a name split into texts and numbers, so that ``demo_10`` sorts after ``demo_9``."""
    parts = re.split(r"(\d+)", name, maxsplit=_MAX_NUMBERS)
    return tuple(int(part[-DIGITS:]) if i % 2 else part for i, part in enumerate(parts))


@dataclass
class _NameRun:
    """Names that differ in one number, which counts up.

    Args:
        counting: the part of the names that counts up; 0 for a single name.
    """

    first: str
    last: str
    count: int = 1
    counting: int = 0

    def __str__(self) -> str:
        if self.count == 1:
            return self.first
        return f"{self.first} … {self.last} ({self.count:,})"

    def continues_with(self, counting: int) -> bool:
        """Return whether a name belongs to the run, given which part is one above the last name."""
        return bool(counting) and (self.count == 1 or counting == self.counting)

    def append(self, name: str, counting: int) -> None:
        self.last = name
        self.count += 1
        self.counting = counting


def collapse_ranges(names: Iterable[str]) -> list[str]:
    """Return names in natural order, runs of consecutive numbers as "first … last (count)".

    Notes:
        The names of a run differ in one number alone. ``a/0678.pkl`` to ``a/0728.pkl`` give
        ``a/0678.pkl … a/0728.pkl (51)``.
    """
    runs: list[_NameRun] = []
    previous: tuple[str | int, ...] = ()
    for name in sorted(names, key=natural_key):
        parts = natural_key(name)
        counting = _incremented_part(previous, parts)
        if runs and runs[-1].continues_with(counting):
            runs[-1].append(name, counting)
        elif len(runs) == _MAX_RANGES:
            break
        else:
            runs.append(_NameRun(name, name))
        previous = parts
    return [str(run) for run in runs]


def _incremented_part(previous: tuple[str | int, ...], parts: tuple[str | int, ...]) -> int:
    """Return which number of a name is one above the previous name's, all else equal, or 0."""
    if len(previous) != len(parts):
        return 0
    differing = [place for place, part in enumerate(parts) if part != previous[place]]
    if len(differing) != 1:
        return 0
    (place,) = differing
    before = previous[place]
    now = parts[place]
    is_next = isinstance(before, int) and isinstance(now, int) and before + 1 == now
    return place if is_next else 0


def unreadable(rows: Rows, wanted: Callable[[str], bool]) -> Array:
    """Return bool (rows): the unreadable rows whose reason ("DC101 ...") meets a condition."""
    mask: Array = rows.table.status[rows.index] == UNREADABLE
    for place in np.flatnonzero(mask):
        mask[place] = wanted(rows.table.reasons[int(rows.index[place])])
    return mask


def format_number(value: float, unit: str | None = "") -> str:
    """Return a number as messages print it: three digits, thousands with commas, then the unit."""
    size = abs(float(value))
    text = f"{value:,.0f}" if 1000 <= size < 1e7 else f"{value:.3g}"
    return f"{text} {unit}" if unit and unit != "1" else text


def pluralize(count: int, word: str = "sample") -> str:
    """Return a count with its word: ``1 sample``, ``1,200 samples``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def count_phrase(mask: Array, verb: str, word: str = "sample") -> str:
    """Return a count of samples with its verb: ``1 sample holds``, ``3 samples are``."""
    count = int(np.count_nonzero(mask))
    singular = {"have": "has", "are": "is"}.get(verb, f"{verb}s")
    return f"{pluralize(count, word)} {singular if count == 1 else verb}"


def first_few(words: Iterable[str], most: int = 3) -> str:
    """Return the first few words, and how many more there are."""
    every = list(words)
    rest = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + rest
