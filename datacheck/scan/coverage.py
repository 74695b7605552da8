"""How much of the data a scan has read, and which kinds of files it has not opened.

Rule DC113 judges the kinds: it gets one note for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import format_of
from datacheck.formats.foreign import HEAD_BYTES, UNSUPPORTED, is_ancillary, unsupported_format
from datacheck.model.sample import Depth
from datacheck.model.table import SKIPPED, Note, Texts
from datacheck.rules.measurement import NOT_READ
from datacheck.rules.selection import UNREAD
from datacheck.scan.run_state import RunState
from datacheck.schema.globs import Globs, StepLimit
from datacheck.schema.model import Schema, pixels
from datacheck.sources.listing import Listing
from datacheck.sources.planning import unopened_companions
from datacheck.sources.roots import NOT_WHOLE, Roots, encoded_digest, root_of

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


def coverage(
    state: RunState, schema: Schema, level: Depth, unread_options: Mapping[str, Any]
) -> ReadCoverage:
    """Return how much of the data a scan has read.

    Args:
        state: the scan's files and rows.
        schema: the schema in force.
        level: how deep the scan read.
        unread_options: of the rule about unread data.

    Raises:
        SchemaError: its patterns take too long.
    """
    entries = state.listing.entries
    sizes = entries.sizes
    lacking = {
        path for path in Texts.of(state.table.files).take(state.table.status == SKIPPED) if path
    }
    unopened = [path for path in state.unclaimed if not is_ancillary(path)]
    ancillary_bytes = _bytes(
        state.listing, [path for path in state.unclaimed if is_ancillary(path)]
    )
    in_root = np.array([not root_of(state.listing.roots, path)[0] for path in entries.paths], bool)
    nbytes = int(sizes[in_root].sum()) - ancillary_bytes
    patterns = Globs(
        map(str, unread_options["not_read"]),
        f"schema {schema.name}, rules.{UNREAD}.not_read",
        StepLimit(),
    )
    declared_unread = {path for path in unopened if patterns.matching(path)}
    companions = unopened_companions(schema, state.listing).difference(state.unclaimed)
    declared_unread |= {path for path in companions if not root_of(state.listing.roots, path)[0]}
    format_names = {note.key: note.reason for note in state.notes if note.code == UNREAD}
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
    kinds = _kinds(state.listing, unread)
    passed = _bytes(state.listing, declared_unread)
    opened = max(0, nbytes - passed - sum(kind.nbytes for kind in kinds))
    partly = min(opened, int(sizes[partly_read].sum()))
    fields_met, fields_read = _fields(state, schema, level)
    guessed = bool(unread_options["left_out"])
    return ReadCoverage(nbytes, opened, partly, passed, fields_met, fields_read, kinds, guessed)


def _fields(state: RunState, schema: Schema, level: Depth) -> tuple[int, int]:
    """Return how many fields were met, and how many had their values read."""
    met_fields = {
        name.removesuffix(":ndim") for name in state.table.columns if name.endswith(":ndim")
    } - {""}
    met_fields = {name for name in met_fields if schema.part_of(name) is None}
    headers = {"deep": set(), "numeric": met_fields & pixels(schema), "structure": met_fields}[
        level
    ]
    # For fields that the schema does not list, rows hold the measurements of all of them together.
    # A field that was read in some samples and skipped in others has both names.
    named = met_fields.union(name for name in state.undeclared if not name.endswith(NOT_READ))
    passed = {name.removesuffix(NOT_READ) for name in state.undeclared} - named
    return len(named) + len(passed), len(named) - len(headers)


def notes_with_unread(notes: Sequence[Note], found: ReadCoverage) -> list[Note]:
    """Return the notes for the rules: unread kinds replace the notes on first bytes."""
    return [*(note for note in notes if note.code != UNREAD), *found.notes()]


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
