"""Plan the reads: match a listing with a schema.

The plan has the files to read, notes on list entries without a file, and unclaimed files.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, itemgetter
from pathlib import PurePosixPath
from typing import Any

from datacheck.errors import FormatError, SchemaError, UsageError
from datacheck.formats.base import format_of, store_markers
from datacheck.formats.foreign import is_ancillary, unsupported_format
from datacheck.model.table import NOT_LISTED, Note
from datacheck.runtime.hashing import shortened
from datacheck.schema.model import Schema, TokenizerSpec, file_templates
from datacheck.schema.patterns import Template, limited_matching, parse
from datacheck.sources.base import Item, Work
from datacheck.sources.fields import companion_template, rooted_template
from datacheck.sources.listing import DEPTH, Listing
from datacheck.sources.loader_tables import ListEntry, read_list
from datacheck.sources.roots import HOLE, locate, root_of
from datacheck.workers.budget import OutOfTimeError, limited_time

_LIST = "DC105"
_COUNTS = "DC111"
_LACKING = "DC129"
_EMPTY = "is an empty entry: it names no sample"
_MOST_EMPTY = 1_000  # entries of one list that are reported one by one
_MOST_LINES = 5_000_000  # lines of all lists together
# Processor time [s] in which the entries of a list are compared with the patterns, and the extra
# time for each entry.
_LIST_SECONDS = 20.0
_ENTRY_SECONDS = 1e-3
# Faulty lines of all lists together: lines without a file, or naming a file again. Each becomes a
# row or a note.
_MOST_FAULTS = 100_000
# Bytes of a faulty line as a key; bytes of the line and of its list's path in a note. `shortened`
# cuts longer ones.
_LINE = 1_000
_PLACE = 300
_PATH = 4_096  # bytes of a path in a record; no system opens a longer one
# characters of a quoted line, and of the reason why it names no file
_QUOTED = 100
_WHY = 200
_SPLIT = "split"
_UNREADABLE = "DC101"
_NO_BYTES = "DC103"
_JUNK = "DC107"
_CLUTTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
_PACKED = ".mds.zstd"
_SHARD = re.compile(r"(.*)-([0-9]{1,9})-of-([0-9]{1,9})([^/]*)", re.DOTALL)
_LEFT_BEHIND = ("~", ".tmp", ".part", ".crdownload", ".swp")
# A zero-width joiner between two emoji joins them into one. A variation selector or a skin tone may
# follow the first.
_EMOJI = "[\u2190-\u27ff\u2900-\u2bff\U0001f000-\U0001faff]"
_JOINED = re.compile(f"(?<={_EMOJI})\ufe0f?\u200d(?={_EMOJI})")


@dataclass(frozen=True, slots=True)
class _MatchedFile:
    path: str
    names: dict[str, str]
    template: int
    nbytes: int


def matches(schema: Schema, listing: Listing) -> int:
    """Return how many files match the patterns of ``samples.files``; reads no list.

    Raises:
        SchemaError: a pattern is malformed.
    """
    return sum(1 for _ in _matched_files(schema, listing))


def plan_work(schema: Schema, listing: Listing) -> Work:
    """Return the items to read in path order, notes, and unclaimed files.

    Args:
        schema: the schema of the dataset.
        listing: all files.

    Raises:
        SchemaError: a pattern is malformed, or two patterns are inconsistent.
        UsageError: DATA is a Zarr folder, and the schema looks for fields in other files of this
            folder; also see `check_alone`.

    Notes:
        A folder that the system refused to list counts as one unreadable sample: it may hold any
        number of samples. The first pattern of ``samples.files`` that matches a file claims it. A
        pattern without a fixed ending claims files of known formats only. Files below extra roots
        are claimed as companions and never count as unclaimed. If an MDS shard exists both plain
        and compressed, as Streaming may leave it, the plain one is read, as Streaming does.
    """
    schema = schema.located(listing.root, listing.roots).placed(listing.roots)
    where = f"{schema.name}, samples.files"
    with limited_matching(where, len(listing.entries), len(schema.samples.files)):
        matched_files = _without_packed(list(_matched_files(schema, listing)))
    check_alone(schema, listing.alone)
    _check_inside(schema, listing.alone, matched_files)
    lists = _Lists(schema, listing)
    items = lists.choose(matched_files)
    companions = companion_patterns(schema)
    claimed = (
        {f.path for f in matched_files}
        | set(lists.files)
        | _companions(_companion_templates(schema), matched_files)
    )
    claimed |= _companions(
        [t for templates in companions.values() for t in templates], matched_files
    )
    leftover = [
        path
        for path in listing.entries.paths
        if path not in claimed and not root_of(listing.roots, path)[0]
    ]
    patterns = [t for t in _companion_templates(schema) if not set(t.names) <= _known(schema)]
    with limited_matching(f"{schema.name}, file of the fields", len(leftover)):
        unclaimed = [path for path in leftover if not any(t.match(path) for t in patterns)]
    notes = [
        *lists.notes,
        *_junk_notes(listing),
        *_companion_notes(companions, items, listing),
        *_empty_file_notes(unclaimed, listing),
        *_shard_notes(f.path for f in matched_files),
    ]
    notes += [
        Note(_UNREADABLE, path, NOT_LISTED + cause, missing=True) for path, cause in listing.refused
    ]
    notes += _merged_store_notes(file_templates(schema), listing, claimed)
    return Work(sorted(items, key=lambda item: item.path), sorted(notes, key=_by_key), unclaimed)


def check_alone(schema: Schema, alone: str, tokenizer: TokenizerSpec | None = None) -> None:
    """Refuse a schema that names files next to DATA where DATA is a Zarr folder only by its marker.

    Args:
        schema: the schema of the dataset.
        alone: as in a listing.
        tokenizer: as the schema file declares it; a relative path is below DATA.

    Raises:
        UsageError: the schema names such files. Without the marker they would be files in DATA, so
            the author of DATA could choose which files next to it are read.
    """
    if not alone or alone.endswith(".zarr"):
        return
    named_files = [
        (f"fields.{name}.stats", spec.stats.file)
        for name, spec in schema.fields.items()
        if spec.stats
    ]
    table = schema.loader.get("keep_classes") if schema.loader is not None else None
    named_files += [("loader.keep_classes", table if isinstance(table, str) else None)]
    splits = [schema, *(schema.for_split(key.removeprefix("split=")) for key in schema.when)]
    named_files += [
        (f"fields.{name}.file", spec.file)
        for split_schema in splits
        for name, spec in split_schema.fields.items()
    ]
    extra = tuple(f"{{{name}}}/" for name in schema.roots)
    if tokenizer is not None and tokenizer.path is not None and not tokenizer.path.startswith("/"):
        named_files.append(("tokenizer.path", tokenizer.path))
    for where, text in named_files:
        if text and not text.startswith(extra):
            msg = (
                f"{schema.name}, {where}: {text!r} would lie beside DATA, of which a marker of "
                f"Zarr in it makes one "
                f"sample. Remove the marker ({', '.join(sorted(store_markers()))}) from {alone}, "
                f"or name the folder "
                f"{alone}.zarr where it is one Zarr store."
            )
            raise UsageError(msg)


def _merged_store_notes(
    templates: Sequence[Template], listing: Listing, claimed: Collection[str]
) -> Iterator[Note]:
    """Yield a note for each unused Zarr folder that merges the Zarr folders that patterns name."""
    for store, nodes in sorted(listing.nodes.items()):
        if store in claimed or store not in listing.by_path:  # links that are not followed
            continue
        named_paths = sorted(path for path in nodes if _matches_any(path, templates))
        if named_paths:
            more_text = f" and {len(named_paths) - 1:,} more" if len(named_paths) > 1 else ""
            reason = (
                f"a marker of Zarr in it makes one Zarr folder of {named_paths[0]}{more_text}, which "
                f"samples.files names. Remove "
                f"the marker ({', '.join(sorted(store_markers()))}) from {store}"
            )
            yield Note(_UNREADABLE, store, reason, missing=True)


def _check_inside(schema: Schema, alone: str, matched_files: Sequence[_MatchedFile]) -> None:
    """Refuse fields in files of a Zarr folder that is DATA itself.

    Links in the Zarr folder would lead into the folder above.

    Raises:
        UsageError: the schema has such fields.
    """
    for template in _companion_templates(schema) if alone else ():
        for sample in matched_files:
            path = template.substitute(
                {name: sample.names.get(name, HOLE) for name in template.names}
            )
            first_part, *other_parts = PurePosixPath(path).parts
            if other_parts and (first_part == alone or HOLE in first_part):
                msg = (
                    f"{template.where}: {template.text!r} may lie in the Zarr folder {alone}, "
                    f"which is DATA itself. "
                    "Name the folder above it as DATA."
                )
                raise UsageError(msg)


def place_text(text: str) -> str:
    """Return a path, or a line of a list, as notes have it: `shortened` if it is long."""
    return shortened(text, _PLACE)


def unopened_companions(schema: Schema, listing: Listing) -> set[str]:
    """Return files of ``samples.companions`` that are neither a sample nor hold a field.

    Nothing opens these files.

    Args:
        schema: the schema of the dataset.
        listing: all files.

    Raises:
        SchemaError: a pattern is malformed.
    """
    if not schema.samples.companions:
        return set()
    schema = schema.located(listing.root, listing.roots).placed(listing.roots)
    companions = [
        template for templates in companion_patterns(schema).values() for template in templates
    ]
    opened = [*file_templates(schema), *_companion_templates(schema)]
    tails = tuple(template.tail for template in companions)
    candidates = (
        path
        for path in listing.entries.paths
        if path.endswith(tails) and _matches_any(path, companions)
    )
    where = f"{schema.name}, samples.companions"
    with limited_matching(where, len(listing.entries)):
        return {path for path in candidates if not _matches_any(path, opened)}


def _matches_any(path: str, templates: Sequence[Template]) -> bool:
    return any(template.match(path) is not None for template in templates)


def _is_count(value: Any) -> bool:
    # Excludes booleans, and integers that overflow the comparison.
    return type(value) is int and abs(value) < 1 << 62


def _by_key(note: Note) -> tuple[str, str]:
    return note.key, note.reason


def _junk_notes(listing: Listing) -> Iterator[Note]:
    """Yield notes on leftovers of other programs, and on invisible characters and outer spaces."""
    names = [e.path for e in listing.entries]
    suspect = [
        p
        for p in names
        if p.endswith(_LEFT_BEHIND) or not (p.isascii() and p.isprintable()) or " " in p
    ]
    for path in [*suspect, *(path for path, _ in listing.skipped)]:
        name = path.rpartition("/")[2]
        if name in _CLUTTER or name.startswith("._") or name.endswith(_LEFT_BEHIND):
            yield Note(_JUNK, path, "left behind by another program")
        elif any(unicodedata.category(c) in {"Cc", "Cf"} for c in _JOINED.sub("", path)):
            yield Note(_JUNK, path, "has a character that nobody sees")
        elif any(part != part.strip() for part in path.split("/")):
            yield Note(_JUNK, path, "begins or ends with a space")


def _shard_notes(paths: Iterable[str]) -> Iterator[Note]:
    """Yield a note for each set of shards of which some are absent by their names.

    Notes:
        A warning, because a user may want only a part of a large dataset.
    """
    shards: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        if "-of-" in path and (match := _SHARD.fullmatch(path)) is not None:
            shards.setdefault(match.group(1, 3, 4), []).append(match[2])
    for (start, total, end), words in sorted(shards.items()):
        numbers, count = set(map(int, words)), int(total)
        first = 1 if count in numbers else 0  # some writers count from 1
        if min(numbers) < first or max(numbers) >= first + count or len(numbers) == count:
            continue
        absent = next(n for n in range(first, first + count) if n not in numbers)
        name = f"{start}-{absent:0{len(words[0])}}-of-{total}{end}"
        reason = (
            f"{len(numbers):,} of {count:,} shards are here by their names; the first absent one is "
            f"{place_text(name)}"
        )
        yield Note(_LIST, f"{start}-{words[0]}-of-{total}{end}", reason)


def _empty_file_notes(unclaimed: Sequence[str], listing: Listing) -> Iterator[Note]:
    """Yield notes on unclaimed files of 0 bytes whose data format is never empty."""
    for path in unclaimed:
        if listing.by_path[path].size == 0 and not is_ancillary(path):
            file_format = format_of(path)
            if (
                unsupported_format(path) is not None
                if file_format is None
                else not file_format.may_be_empty
            ):
                yield Note(_NO_BYTES, path, "0 bytes")


def _matched_files(schema: Schema, listing: Listing) -> Iterator[_MatchedFile]:
    templates = file_templates(schema)
    splits = _split_patterns(schema)
    tails = tuple(template.tail for template in templates)
    for path, nbytes in zip(listing.entries.paths, listing.entries.sizes.tolist(), strict=True):
        # Takes a tenth of the time of a regular expression, for most files of most schemas.
        if not path.endswith(tails):
            continue
        for number, template in enumerate(templates):
            names = template.match(path)
            if names is not None and (template.tail or _readable(listing, path)):
                split = next((split for split, t in splits if t.match(path) is not None), "")
                yield _MatchedFile(
                    path, {_SPLIT: split} | names if split else names, number, nbytes
                )
                break


def _split_patterns(schema: Schema) -> list[tuple[str, Template]]:
    """Return the patterns of ``samples.split`` in order, each with its split."""
    where = f"{schema.name}, samples.split"
    return [
        (name, parse(text, f"{where}.{name}"))
        for name, texts in schema.samples.split.items()
        for text in texts
    ]


def _without_packed(matched_files: list[_MatchedFile]) -> list[_MatchedFile]:
    """Drop compressed files whose plain version is listed: their samples would count twice."""
    if not any(f.path.endswith(_PACKED) for f in matched_files):
        return matched_files
    paths = {f.path for f in matched_files}
    return [
        f
        for f in matched_files
        if not (f.path.endswith(_PACKED) and f.path.removesuffix(".zstd") in paths)
    ]


def _readable(listing: Listing, path: str) -> bool:
    if format_of(path) is not None:
        return True
    place = locate(listing.root, listing.roots, path)
    return any((place / marker).is_file() for marker in store_markers())


def without_sample(schema: Schema, listing: Listing, keys: Iterable[str]) -> list[str]:
    """Return files that a field's ``file`` may name but that belong to no sample.

    Only fields whose file depends on the name of a sample inside its file count: a picture that a
    document of annotations should name.

    Args:
        schema, listing: as for `plan_work`.
        keys: of all samples.
    """
    schema = schema.located(listing.root, listing.roots).placed(listing.roots)
    known, each = _known(schema), schema.samples.each or ""
    templates = [t for t in _companion_templates(schema) if not set(t.names) <= known]
    if not templates or not each.startswith("/"):
        return []
    inner = parse(each.strip("/"), f"{schema.name}, samples.each")
    others = [t for t in _companion_templates(schema) if set(t.names) <= known]
    others += [t for patterns in companion_patterns(schema).values() for t in patterns]
    of_file: dict[str, dict[str, str]] = {}
    used = set[str]()
    for key in keys:
        path, _, group = key.partition(":/")
        if path not in of_file:
            named = (template.match(path) for template in file_templates(schema))
            of_file[path] = next((names for names in named if names is not None), {})
        names = of_file[path] | (inner.match(group) or {})
        for template in templates:
            with suppress(KeyError, FormatError):
                used.add(template.fill(names))
    return [
        path
        for path in listing.entries.paths
        if path not in used
        and path not in of_file
        and not root_of(listing.roots, path)[0]
        and _matches_any(path, templates)
        and not _matches_any(path, others)
    ]


def _known(schema: Schema) -> set[str]:
    return {name for template in file_templates(schema) for name in template.names}


def _companion_templates(schema: Schema) -> list[Template]:
    schemas = [schema, *(schema.for_split(key.removeprefix("split=")) for key in schema.when)]
    templates = (
        companion_template(s, name)
        for s in schemas
        for name in s.stored
        if not s.fields[name].absent
    )
    return list(dict.fromkeys(t for t in templates if t is not None))


def companion_patterns(schema: Schema) -> dict[str, list[Template]]:
    """Return the patterns of each entry of ``samples.companions``."""
    return {
        name: [
            rooted_template(schema, text, f"{schema.name}, samples.companions.{name}")
            for text in patterns
        ]
        for name, patterns in schema.samples.companions.items()
    }


def _companion_notes(
    companions: Mapping[str, Sequence[Template]], items: Sequence[Item], listing: Listing
) -> Iterator[Note]:
    """Yield a note for each companion that is missing or empty for some files of a split.

    Notes:
        Uses the listing only and opens no file. A companion that all files of a split lack was not
        copied, and gives no note.
    """
    sizes = (
        dict(zip(listing.entries.paths, listing.entries.sizes.tolist(), strict=True))
        if companions
        else {}
    )
    for name, templates in companions.items():
        lack = dict[str, list[str]]()
        empty = dict[str, list[str]]()
        have = set[str]()
        for item in items:
            usable = [t for t in templates if set(t.names) <= item.names.keys()]
            if not usable:
                continue
            largest_size = max(sizes.get(_filled_path(t, item.names), -1) for t in usable)
            if largest_size > 0:
                have.add(item.split)
            else:
                (lack if largest_size < 0 else empty).setdefault(item.split, []).append(item.path)
        for split in sorted(have | empty.keys()):
            about = {"name": name, "lack": lack.get(split, []), "empty": empty.get(split, [])}
            if about["lack"] or about["empty"]:
                yield Note(_LACKING, templates[0].text, "", split=split, about=about)


def _companions(templates: Sequence[Template], matched_files: list[_MatchedFile]) -> set[str]:
    return {
        _filled_path(t, f.names)
        for t in templates
        for f in matched_files
        if set(t.names) <= f.names.keys()
    } - {""}


def _filled_path(template: Template, names: Mapping[str, str]) -> str:
    """Return the path for these names; "" for an invalid name, such as "" or a split "a/b"."""
    try:
        return template.fill(names)
    except FormatError:
        return ""


# -------------------------------------------------------------------------------------------- lists


@dataclass
class _ListFile:
    """The content of one list file, and the placeholder values in its path."""

    path: str
    names: dict[str, str]
    lines: list[str] = field(default_factory=list)
    # Facts of lines that are mappings.
    about: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)  # indices of entries without a name
    # Lines whose path leads to another folder than most, with the folder of most lines.
    apart: dict[str, str] = field(default_factory=dict)


@dataclass
class _Index:
    """Files by pattern number, placeholder values shared with a list's path, and list line."""

    paths: dict[tuple[int, tuple[str, ...], str], list[str]] = field(default_factory=dict)
    scopes: set[tuple[int, tuple[str, ...]]] = field(default_factory=set)


class _Lists:
    """The list files that name the samples of each split, compared with the files found."""

    def __init__(self, schema: Schema, listing: Listing) -> None:
        self._schema = schema
        self._listing = listing
        self._refused = {path for path, _ in listing.refused}
        self._templates = file_templates(schema)
        self._levels = max(
            (DEPTH + 2 if "**" in t.text else t.text.count("/") + 1 for t in self._templates),
            default=0,
        )
        self.notes: list[Note] = []
        self._lists: list[_ListFile] = []
        self._faults = self._lines = 0
        self._broken: list[str] = []
        self._known = self._parsed()
        self._names = tuple(
            dict.fromkeys(name for t, names in self._known for name in (*names, *t.names))
        )
        self._check()
        self._read_lists()
        self._records = self._read_records()

    @property
    def files(self) -> list[str]:
        """Paths of the list files."""
        return [*(names.path for names in (*self._lists, *self._records)), *self._broken]

    def _parsed(self) -> list[tuple[Template, dict[str, str]]]:
        """Return the patterns of the list paths, each with the names that the schema assigns."""
        lists = self._schema.samples.list
        where = f"{self._schema.name}, samples.list"
        if isinstance(lists, str):
            return [(parse(lists, where), {})]
        return [(parse(path, where), {_SPLIT: split}) for split, path in (lists or {}).items()]

    def _check(self) -> None:
        if self._known and all(set(t.names) <= set(self._names) for t in self._templates):
            template = self._known[0][0]
            msg = (
                f"{template.where}: the lines of {template.text!r} have nothing to name: "
                f"samples.files has no "
                "placeholder that the list does not use. Write a file pattern with one, for "
                "example {split}/{id}.npy"
            )
            raise SchemaError(msg)

    def _read_lists(self) -> None:
        paths = self._listing.entries.paths
        with limited_matching(f"{self._schema.name}, samples.list", len(paths)):
            matched_lists = [
                (size, path, names | given_names)
                for path, size in zip(paths, self._listing.entries.sizes.tolist(), strict=True)
                for template, given_names in self._known
                if (names := template.match(path)) is not None
            ]
        # Small lists first, so that a large one cannot use up their share of the line limit.
        for _, path, names in sorted(matched_lists, key=itemgetter(0)):
            self._read_list(path, names)
        self._lists.sort(key=attrgetter("path"))

    def _read_list(self, path: str, names: dict[str, str]) -> None:
        if self._other_kind(names):
            return
        named = self._named_or_noted(path, names, "the list cannot be read, so all files are taken")
        if named is not None:
            self._lists.append(named)

    def _named_or_noted(self, path: str, names: dict[str, str], failure: str) -> _ListFile | None:
        """Return the content of a list; None, with a note, where it cannot be read or compared."""
        entries = self._entries(path, names, failure)
        if entries is None:
            return None
        seconds = _LIST_SECONDS + len(entries) * _ENTRY_SECONDS
        try:
            with limited_time(seconds):
                return self._named(path, names, entries)
        except OutOfTimeError:
            self._broken.append(path)
            reason = f"comparing its paths takes more than {seconds:,.0f} s of processor time"
            self._note(path, f"{failure}: {reason}", names.get(_SPLIT, ""))
            return None

    def _entries(self, path: str, names: Mapping[str, str], failure: str) -> list[ListEntry] | None:
        """Return the entries of a list; None, with a note, if unreadable or over the line limit."""
        try:
            entries = read_list(self._listing.root, self._listing.roots, path)
        except (OSError, UnicodeDecodeError, FormatError) as error:
            reason = str(error)
        else:
            self._lines += len(entries)
            if self._lines <= _MOST_LINES:
                return entries
            reason = f"lists have more than {_MOST_LINES:,} lines in all"
        self._broken.append(path)
        self._note(path, f"{failure}: {reason}", names.get(_SPLIT, ""))
        return None

    def _other_kind(self, names: Mapping[str, str]) -> bool:
        """Return whether a path's names fit no sample, as in ``label_database.yaml``."""
        return any(
            t.allows(name, value) is False for t in self._templates for name, value in names.items()
        )

    def _read_records(self) -> list[_ListFile]:
        """Return the entries of ``samples.records``, which select no samples."""
        text = self._schema.samples.records
        record_lists = list[_ListFile]()
        template = None if text is None else parse(text, f"{self._schema.name}, samples.records")
        for path in self._listing.entries.paths if template is not None else ():
            names = template.match(path) if template is not None else None
            if names is None or self._other_kind(names):
                continue
            named = self._named_or_noted(path, names, "the records cannot be read")
            if named is not None:
                record_lists.append(named)
        return record_lists

    def _named(self, path: str, names: dict[str, str], entries: Sequence[ListEntry]) -> _ListFile:
        list_file = _ListFile(path, names)
        entry_paths = [entry.name for entry in entries if entry.is_path and entry.name]
        templates = (
            [(template, template.given(names)) for template in self._templates]
            if entry_paths
            else []
        )
        paths = {name: self._line(name, names, templates) for name in entry_paths}
        above = Counter(folder for folder, _ in paths.values() if folder is not None).most_common(1)
        for number, entry in enumerate(entries):
            if entry.name:
                line = entry.name
                folder, short = paths.get(line, (None, line))
                if folder is not None and folder == above[0][0]:
                    line = short
                elif folder is not None:
                    list_file.apart[line] = above[0][0]
                list_file.lines.append(line)
                about = entry.about or {}
                if stated := {
                    key: about[key]
                    for key in self._schema.samples.counts
                    if _is_count(about.get(key))
                }:
                    list_file.about.setdefault(line, stated)
            else:
                list_file.empty.append(number)
        return list_file

    def _line(
        self, path: str, names: Mapping[str, str], templates: Sequence[tuple[Template, Template]]
    ) -> tuple[str | None, str]:
        """Split an entry's path into the folder above a sample's file and the file's list line.

        Args:
            path: path of a list entry.
            names: placeholder values of the list.
            templates: file patterns, each with its form for these names.

        Notes:
            Returns (None, path) where no suffix of the path matches a sample.
        """
        if len(path.encode("utf-8", "surrogatepass")) > _PATH:
            return None, path
        first_part, *other_parts = path.replace("\\", "/").split("/")
        parts = [
            *([] if first_part == "." else [first_part]),
            *(part for part in other_parts if part not in {"", "."}),
        ]
        # No pattern matches more levels than it has, and no listing goes deeper. Each suffix is
        # matched with each pattern: without this limit a long path would take quadratic time.
        for start in range(max(0, len(parts) - self._levels), len(parts)):
            end = "/".join(parts[start:])
            for template, given in templates:
                if (matched_names := given.match(end)) is not None:
                    matched_names |= names
                    return "/".join(parts[:start]), "/".join(
                        matched_names[name] for name in self._free(template)
                    )
        return None, path

    def _is_list(self, list_file: _ListFile, index: _Index) -> bool:
        """Return whether the file is a list, not another text file whose name fits the pattern."""
        disjoint_splits = self._schema.splits.disjoint if self._schema.splits else ()
        split = list_file.names.get(_SPLIT, "")
        if (
            not list_file.names
            or not isinstance(self._schema.samples.list, str)
            or split in disjoint_splits
            or f"split={split}" in self._schema.when
        ):
            return True
        if any(
            t.allows(name, value)
            for t in self._templates
            for name, value in list_file.names.items()
        ):
            return True
        scopes = {(n, self._scope(t, list_file.names)) for n, t in enumerate(self._templates)}
        if any(scope in index.scopes for scope in scopes if scope[1]):
            return True
        return any(
            (n, scope, line) in index.paths for n, scope in scopes for line in list_file.lines
        )

    def _note(
        self,
        key: str,
        reason: str,
        split: str,
        *,
        missing: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self.notes.append(Note(_LIST, key, reason, missing, split, about or {}))

    def choose(self, found: list[_MatchedFile]) -> list[Item]:
        """Return the items of listed files and of files that no list covers."""
        index = self._index(found) if self._known or self._records else _Index()
        self._note_records(index)
        if not self._known:
            return [self._item(f, f.names.get(_SPLIT, "")) for f in found]
        ignored_paths = [
            list_file.path for list_file in self._lists if not self._is_list(list_file, index)
        ]
        ignored, broken = set(ignored_paths), set(self._broken)
        self._lists = [list_file for list_file in self._lists if list_file.path not in ignored]
        explanation = (
            f" ({ignored_paths[0]} has such a name, but no line of it names a file here)"
            if ignored_paths
            else ""
        )
        listed = self._compare_with_files(index)
        covered = {
            (n, self._scope(t, list_file.names))
            for list_file in self._lists
            for n, t in enumerate(self._templates)
        }
        items = []
        unlisted = dict[str, list[_MatchedFile]]()
        for f in found:
            split = f.names.get(_SPLIT, "")
            if f.path in listed:
                items.append(self._item(f, listed[f.path].names.get(_SPLIT, split)))
            elif (f.template, self._scope(self._templates[f.template], f.names)) in covered:
                self._note(f.path, "no list names this file, so it is not read", split)
            else:
                items.append(self._item(f, split))
                unlisted.setdefault(split, []).append(f)
        for split, files in sorted(unlisted.items()):
            name = self._expected(files[0].names)
            if name and name not in broken and not self._hidden(name):
                self._note(
                    name,
                    f"no such list{explanation}: all {len(files)} matching files are taken",
                    split,
                )
        return items

    def _note_records(self, index: _Index) -> None:
        """Note the empty entries of records, and the counts that other entries state."""
        for list_file in self._records:
            scopes = [(n, self._scope(t, list_file.names)) for n, t in enumerate(self._templates)]
            self._note_empty(list_file)
            for line, about in list_file.about.items():
                for path in (
                    path for n, scope in scopes for path in index.paths.get((n, scope, line), ())
                ):
                    self._count(path, about, list_file.names.get(_SPLIT, ""))

    def _note_empty(self, list_file: _ListFile) -> None:
        for number in list_file.empty[:_MOST_EMPTY]:
            self._note(
                f"{list_file.path}[{number}]", _EMPTY, list_file.names.get(_SPLIT, ""), missing=True
            )
        if more_count := len(list_file.empty[_MOST_EMPTY:]):
            self._note(
                list_file.path,
                f"has {more_count:,} more empty entries",
                list_file.names.get(_SPLIT, ""),
            )

    def _hidden(self, name: str) -> bool:
        """Return whether a list exists outside the listing, because a single file was requested."""
        file = locate(self._listing.root, self._listing.roots, name)
        return name not in self._listing.by_path and file.is_file()

    def _expected(self, names: Mapping[str, str]) -> str:
        """Return the path of the list that should name a sample, "" if the schema has no list."""
        for template, given_names in self._known:
            if names.items() >= given_names.items():
                is_complete = set(template.names) <= names.keys() and not template.wild
                return (is_complete and _filled_path(template, names)) or template.text
        return ""

    def _item(self, matched_file: _MatchedFile, split: str) -> Item:
        return Item(matched_file.path, split, matched_file.names, None, matched_file.nbytes)

    def _scope(self, template: Template, names: Mapping[str, str]) -> tuple[str, ...]:
        """Return the placeholder values that a list's path and a file's path share."""
        return tuple(names[name] for name in self._names if name in template.names)

    def _free(self, template: Template) -> list[str]:
        return [name for name in template.names if name not in self._names]

    def _index(self, matched_files: list[_MatchedFile]) -> _Index:
        index = _Index()
        for f in matched_files:
            template = self._templates[f.template]
            ident = "/".join(f.names[name] for name in self._free(template))
            scope = self._scope(template, f.names)
            index.paths.setdefault((f.template, scope, ident), []).append(f.path)
            index.scopes.add((f.template, scope))
        return index

    def _compare_with_files(self, index: _Index) -> dict[str, _ListFile]:
        """Return the list of each listed file; note lines without a file and duplicate lines."""
        listed: dict[str, _ListFile] = {}
        for list_file in sorted(self._lists, key=self._is_union):
            scopes = [(n, self._scope(t, list_file.names)) for n, t in enumerate(self._templates)]
            self._note_empty(list_file)
            fault_count = self._faults
            for line, count in Counter(list_file.lines).items():
                hits = [(n, scope, line) for n, scope in scopes if (n, scope, line) in index.paths]
                self._faults += (count > 1) + (not hits)
                if hits or self._faults <= _MOST_FAULTS:
                    self._mark(listed, list_file, line, [index.paths[hit] for hit in hits], count)
            if (more_faults := self._faults - max(fault_count, _MOST_FAULTS)) > 0:
                reason = (
                    f"has {more_faults:,} more lines that name no file, or one that stands there or in "
                    f"another list before"
                )
                self._note(list_file.path, reason, list_file.names.get(_SPLIT, ""))
        return listed

    def _is_union(self, list_file: _ListFile) -> bool:
        return list_file.names.get(_SPLIT, "") in self._unions

    @cached_property
    def _unions(self) -> set[str]:
        """Splits that are the union of two others by their names: trainval with train and val."""
        splits = {list_file.names.get(_SPLIT, "") for list_file in self._lists} - {""}
        return {
            name
            for name in splits
            if any({name[:cut], name[cut:]} <= splits for cut in range(1, len(name)))
        }

    def _mark(
        self,
        listed: dict[str, _ListFile],
        list_file: _ListFile,
        line: str,
        hits: list[list[str]],
        count: int,
    ) -> None:
        split = list_file.names.get(_SPLIT, "")
        place = place_text(list_file.path)
        if count > 1 and self._faults <= _MOST_FAULTS:
            about = {"list": place}
            self._note(
                shortened(line, _LINE), f"stands more than once in {place}", split, about=about
            )
        if not hits:
            key, reason = self._absent(line, list_file)
            if self._is_taken(key):
                key = f"{place}: {shortened(line, _LINE)}"
            quoted = repr(line) if len(line) <= _QUOTED else f"{line[:_QUOTED]!r}..."
            about = {"list": place, "line": place_text(line)}
            self._note(
                key, f"listed in {place} as {quoted}, {reason}", split, missing=True, about=about
            )
        for paths in hits:
            self._mark_files(listed, list_file, line, paths)

    def _mark_files(
        self, listed: dict[str, _ListFile], list_file: _ListFile, line: str, paths: list[str]
    ) -> None:
        """Assign the files that a line names to its list, or note that an earlier list has them.

        A line names all files of a group, so all of them are listed if the first one is.
        """
        split = list_file.names.get(_SPLIT, "")
        if paths[0] not in listed:
            for path in paths:
                listed[path] = list_file
                self._count(path, list_file.about.get(line, {}), split)
        elif not self._is_union(list_file):
            first_list = place_text(listed[paths[0]].path)
            reason = f"listed in {first_list} and in {place_text(list_file.path)}; the first counts"
            for path in paths[: max(0, _MOST_FAULTS - self._faults)]:
                self._note(path, reason, split)
            self._faults += len(paths)

    def _is_taken(self, key: str) -> bool:
        """Return whether a file, or a file above this path, has this key already.

        A list line for a missing sample must not get the key of an existing sample.
        """
        # No listing goes deeper.
        find = self._listing.entries.find
        path = "/".join(key.split("/")[: DEPTH + 1])
        while path and find(path) < 0 and path not in self._refused:
            path = path.rpartition("/")[0]
        return bool(path)

    def _count(self, path: str, about: Mapping[str, Any], split: str) -> None:
        """Note the counts that an entry states for its file."""
        if about:
            self.notes.append(Note(_COUNTS, path, "", split=split, about=about))

    def _absent(self, line: str, list_file: _ListFile) -> tuple[str, str]:
        """Return the key of a listed sample that does not exist, and the reason."""
        if (short := shortened(line, _LINE)) != line:
            return short, f"which is longer than {_LINE:,} bytes, and no file here has such a name"
        if line in list_file.apart:
            return (
                line,
                f"which leads to another folder than most entries do "
                f"({list_file.apart[line] or '.'}/...)",
            )
        values = line.split("/")
        fits = [t for t in self._templates if len(self._free(t)) == len(values)]
        if not fits:
            free = " and ".join("{" + name + "}" for name in self._free(self._templates[0]))
            return line, f"which does not fill {free} of {self._templates[0].text}"
        template = fits[0]
        placeholders = dict(zip(self._free(template), values, strict=True)) | list_file.names
        if template.wild or not set(template.names) <= placeholders.keys():
            return line, f"but no file matches {template.text}"
        try:
            return template.fill(placeholders), "but there is no such file"
        except FormatError as error:
            return line, f"which names no file: {str(error)[:_WHY]}"
