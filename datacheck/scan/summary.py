"""The report of a scan: counts, read coverage, and what was not checked."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import translate
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from datacheck import __version__
from datacheck.errors import FormatError
from datacheck.formats.base import format_of
from datacheck.formats.foreign import (
    HEAD_BYTES,
    UNSUPPORTED,
    UnsupportedFormat,
    is_ancillary,
    unsupported_format,
)
from datacheck.model.finding import Report, Verdict
from datacheck.model.sample import Depth
from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, Note, Table, Texts
from datacheck.rules import catalogue
from datacheck.rules.engine import RuleResults
from datacheck.rules.measurement import NOT_READ
from datacheck.rules.selection import Choice, options_of
from datacheck.scan.previous_runs import PreviousRun
from datacheck.schema.model import ANY, Schema, pixels
from datacheck.sources.listing import Listing
from datacheck.sources.planning import unopened_companions
from datacheck.sources.roots import NOT_WHOLE, Roots, encoded_digest, root_of

UNREAD = "DC113"
_MOST_LISTED = 2  # formats without a reader that an error names
_PEEKED = 16  # suffixes without a known format whose first bytes are read
_DESCRIBE = (
    "describe them in the schema, or scan them with one of their own (--schema files reads "
    "every file)"
)
_UNTYPED = ".bin"  # other files with this suffix are read whole at each level that reads values
_DECLARE = (
    "declare the field with its dtype and shape, or scan what your loader returns (--loader "
    "MODULE:FUNCTION)"
)
_SKIPPED = "a library that reads it is not installed"


@dataclass(frozen=True)
class UnreadKind:
    """Files of one kind that were not opened.

    Args:
        name: their format, or their suffix.
        way: how to get them read.
        files, nbytes: how many, and their bytes.
        first: path of the first one.
        chosen: datacheck can read them, but the schema's patterns leave them out: a choice, unless
            the patterns are guessed.
    """

    name: str
    way: str
    files: int
    nbytes: int
    first: str
    chosen: bool = False


@dataclass(frozen=True)
class ReadCoverage:
    """How much of a dataset was read. Readmes, licences, code and the like count nowhere.

    Args:
        nbytes: bytes of all files that count.
        opened: bytes of the files that samples were read from.
        partly: bytes of the opened files whose values were not all read: pixels, at most levels.
        left: bytes of unopened files that need not be read: companions (``samples.companions``)
            without a field, and files that `not_read` of DC113 names.
        fields: how many fields were met, listed or not.
        fields_read: how many of them had their values read, not only the header.
        kinds: the unopened files that the schema does not mention, those with most bytes first.
        patterns_guessed: the schema's patterns were drafted, not chosen (`left_out` of DC113), so
            the files that they leave out count as unread.
    """

    nbytes: int
    opened: int
    partly: int = 0
    left: int = 0
    fields: int = 0
    fields_read: int = 0
    kinds: Sequence[UnreadKind] = field(default_factory=list)
    patterns_guessed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the coverage as in ``result.json``."""
        return {
            "bytes": self.nbytes,
            "opened": self.opened,
            "partly": self.partly,
            "left": self.left,
            "fields": self.fields,
            "fields_read": self.fields_read,
            "unread": [
                {
                    "format": kind.name,
                    "files": kind.files,
                    "bytes": kind.nbytes,
                    "first": kind.first,
                }
                for kind in self.kinds
            ],
        }

    def notes(self) -> list[Note]:
        """Return the notes that the rule about unread data judges: one for each kind."""
        kinds = [kind for kind in self.kinds if self.patterns_guessed or not kind.chosen]
        passed = sum(kind.nbytes for kind in self.kinds) - sum(kind.nbytes for kind in kinds)
        counted = self.nbytes - self.left - passed
        return [
            Note(
                UNREAD,
                kind.first,
                kind.name,
                about={
                    "files": kind.files,
                    "bytes": kind.nbytes,
                    "of": counted,
                    "way": _DESCRIBE if kind.chosen else kind.way,
                },
            )
            for kind in kinds
        ]


def coverage(past: PreviousRun, schema: Schema, level: Depth) -> ReadCoverage:
    """Return how much of the data a scan has read.

    Args:
        past: the scan's files and rows.
        schema: the schema in force.
        level: how deep the scan read.
    """
    entries = past.listing.entries
    sizes = entries.sizes
    lacking = {
        path for path in Texts.of(past.table.files).take(past.table.status == SKIPPED) if path
    }
    unopened = [path for path in past.unclaimed if not is_ancillary(path)]
    ancillary_bytes = _bytes(past.listing, [path for path in past.unclaimed if is_ancillary(path)])
    in_root = np.array([not root_of(past.listing.roots, path)[0] for path in entries.paths], bool)
    nbytes = int(sizes[in_root].sum()) - ancillary_bytes
    patterns = [re.compile(translate(text)) for text in _not_read(schema)]
    declared_unread = {
        path for path in unopened if any(pattern.match(path) for pattern in patterns)
    }
    companions = unopened_companions(schema, past.listing).difference(past.unclaimed)
    declared_unread |= {path for path in companions if not root_of(past.listing.roots, path)[0]}
    format_names = {note.key: note.reason for note in past.notes if note.code == UNREAD}
    unread = [
        (path, _named(path, format_names)) for path in unopened if path not in declared_unread
    ]
    unread += [(path, (_name(path), _SKIPPED)) for path in sorted(lacking)]
    partly_read = in_root & (entries.digests == encoded_digest(NOT_WHOLE))
    if level != "structure":
        untyped = [
            entries.paths[place]
            for place in np.flatnonzero(partly_read)
            if entries.paths[place].lower().endswith(_UNTYPED)
        ]
        unread += [
            (path, (f"{_UNTYPED} of a type that nothing says", _DECLARE)) for path in untyped
        ]
    kinds = _kinds(past.listing, unread)
    passed = _bytes(past.listing, declared_unread)
    opened = max(0, nbytes - passed - sum(kind.nbytes for kind in kinds))
    partly = min(opened, int(sizes[partly_read].sum()))
    fields_met, fields_read = _fields(past, schema, level)
    guessed = bool(options_of(schema, catalogue()[UNREAD])["left_out"])
    return ReadCoverage(nbytes, opened, partly, passed, fields_met, fields_read, kinds, guessed)


def _fields(past: PreviousRun, schema: Schema, level: Depth) -> tuple[int, int]:
    """Return how many fields were met, and how many had their values read."""
    met_fields = {
        name.removesuffix(":ndim") for name in past.table.columns if name.endswith(":ndim")
    } - {""}
    met_fields = {name for name in met_fields if schema.part_of(name) is None}
    headers = {"deep": set(), "numeric": met_fields & pixels(schema), "structure": met_fields}[
        level
    ]
    # For fields that the schema does not list, rows hold the measurements of all of them together.
    # A field that was read in some samples and skipped in others has both names.
    named = met_fields.union(name for name in past.undeclared if not name.endswith(NOT_READ))
    passed = {name.removesuffix(NOT_READ) for name in past.undeclared} - named
    return len(named) + len(passed), len(named) - len(headers)


def notes_with_unread(notes: Sequence[Note], found: ReadCoverage) -> list[Note]:
    """Return the notes for the rules: unread kinds replace the notes on first bytes."""
    return [*(note for note in notes if note.code != UNREAD), *found.notes()]


def without_unread_rule(choices: Sequence[Choice], *, unread: bool) -> list[Choice]:
    """Return the choices; with `unread` (``--allow-unread``) the rule about unread data is off."""
    if not unread:
        return list(choices)
    off = partial(replace, verdict=Verdict.OFF, why="--allow-unread")
    return [off(choice) if choice.rule.code == UNREAD else choice for choice in choices]


def _not_read(schema: Schema) -> Iterable[str]:
    patterns: Iterable[str] = options_of(schema, catalogue()[UNREAD])["not_read"]
    return [str(text) for text in patterns]


def _bytes(listing: Listing, paths: Iterable[str]) -> int:
    places = [listing.entries.find(path) for path in paths]
    return int(listing.entries.sizes[[place for place in places if place >= 0]].sum())


def _kinds(listing: Listing, files: Iterable[tuple[str, tuple[str, str]]]) -> list[UnreadKind]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for path, kind in files:
        grouped.setdefault(kind, []).append(path)
    kinds = [
        UnreadKind(
            name,
            way,
            len(paths),
            _bytes(listing, paths),
            min(paths),
            not way and format_of(paths[0]) is not None,
        )
        for (name, way), paths in grouped.items()
    ]
    return sorted(kinds, key=lambda kind: (-kind.nbytes, kind.name))


def _named(path: str, format_names: Mapping[str, str]) -> tuple[str, str]:
    """Return the format or suffix of a file that no sample uses, and how to get it read."""
    unsupported = None if format_of(path) is not None else unsupported_format(path)
    if unsupported is None and format_of(path) is None:
        name = format_names.get(PurePosixPath(path).suffix)
        unsupported = next((candidate for candidate in UNSUPPORTED if candidate.name == name), None)
    return (_name(path), "") if unsupported is None else (unsupported.name, unsupported.way)


def _name(path: str) -> str:
    return PurePosixPath(path).suffix or "no suffix"


def first_bytes_notes(listing: Listing, unclaimed: Sequence[str]) -> list[Note]:
    """Return a note by suffix for unused files whose format only their first bytes tell."""
    return [Note(UNREAD, suffix, name) for suffix, name in _looked_into(listing, unclaimed)]


def _looked_into(listing: Listing, unclaimed: Sequence[str]) -> Iterator[tuple[str, str]]:
    unknown: dict[str, str] = {}
    for path in unclaimed:
        if unsupported_format(path) is None and format_of(path) is None and not is_ancillary(path):
            unknown.setdefault(PurePosixPath(path).suffix, path)
    folders = Roots(listing.root, listing.roots)
    for suffix, path in sorted(unknown.items())[:_PEEKED]:
        try:
            with folders.file(path).open("rb") as file:
                unsupported = unsupported_format("", file.read(HEAD_BYTES))
        except (OSError, FormatError):  # gone, or refused: nothing to report either way
            continue
        if unsupported is not None:
            yield suffix, unsupported.name


def foreign_lines(listing: Listing) -> list[str]:
    """Return a line for each of the largest formats without a reader: its name, and a way in."""
    byte_counts: Counter[UnsupportedFormat] = Counter()
    examples: dict[UnsupportedFormat, str] = {}
    for path, nbytes in zip(listing.entries.paths, listing.entries.sizes.tolist(), strict=True):
        if format_of(path) is None and (file_format := unsupported_format(path)) is not None:
            byte_counts[file_format] += nbytes
            examples.setdefault(file_format, path)
    return [
        f"no format reads {file_format.name} ({examples[file_format]}): {file_format.way}"
        for file_format, _ in byte_counts.most_common(_MOST_LISTED)
    ]


_NAMED = 3
_LEAST_SECONDS = 0.001
_RATE = "DC503"  # the note on LeRobot datasets whose info.json files give different rates
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
    """

    schema: Schema
    data: Path
    state: PreviousRun
    began: float
    kept_files: int
    kept_samples: int
    level: Depth = "numeric"
    silenced: Sequence[str] = ()
    coverage: ReadCoverage | None = None


def report_of(facts: RunContext, command: str, fail_on: str, judged: RuleResults) -> Report:
    """Return the report of a scan, without its folder, which is not known yet."""
    began = datetime.fromtimestamp(facts.began, UTC)
    table = facts.state.table
    listing = facts.state.listing
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
        "rule_seconds": {
            code: round(s, 3) for code, s in judged.seconds.items() if s >= _LEAST_SECONDS
        },
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
        run,
        dataset,
        schema,
        judged.verdicts,
        judged.findings,
        int(judged.valid.sum()),
        list(_unchecked(facts, judged)),
        crashes,
        suppressed=judged.suppressed,
    )


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
