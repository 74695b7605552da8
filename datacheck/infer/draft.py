"""Drafts a schema for ``datacheck init``: groups files into samples, profiles some, writes YAML."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from datacheck.errors import UsageError
from datacheck.formats.base import format_of, unnumbered
from datacheck.formats.tfrecord import INFO, SHARD_LENGTH
from datacheck.infer.guess import (
    UNTYPED,
    Guess,
    cut,
    guess,
    inner_samples,
    name_axes,
    names_role,
    preferences,
    usual_length,
)
from datacheck.infer.profile import LINES, RECORDS, FieldProfile
from datacheck.rules.base import first_few, pluralize
from datacheck.scan.suggest import NUMBER, SPLITS, by_ending, corpus_of, patterns, unreadable
from datacheck.schema.load import FILES, WHOLE, builtin, dump_schema, load_schema, parse_schema
from datacheck.schema.model import ANY, FieldSpec, SamplesSpec, Schema, exceeded_limit
from datacheck.sources import matches, plan_work
from datacheck.sources.base import file_templates
from datacheck.sources.fields import fits
from datacheck.sources.groups import NO_GROUP
from datacheck.sources.lerobot import EPISODE
from datacheck.sources.listing import Listing, list_files, target
from datacheck.sources.roots import sandbox_of
from datacheck.workers.parallel import Limits, ordered_map

_NEARLY_ALL = 0.9
_MOST_PARTS = 24
_FIRST = 20_000  # paths that must show parts before all paths are grouped
_MOST_NAMES = 6  # words of a file name that may be the sample's own name


Cut = Callable[[str], "tuple[str, str] | None"]


@dataclass(frozen=True, eq=False)
class Part:
    """One kind of file of multi-file samples.

    Args:
        name: its name besides the sample's own name, "" where only the format tells it apart.
        ending: the common end of all its file names.
        paths: of all samples that have it.
        whole: of the samples that lack only optional parts, or of all samples if there are none
            such: their lengths can be compared.
        pattern: of all paths; the values of the placeholders in one part's path give the paths of
            the others.
        optional: more than a few samples lack it.
    """

    name: str
    ending: str
    paths: tuple[str, ...]
    whole: tuple[str, ...]
    pattern: str
    optional: bool = False


def group_files(paths: Sequence[str]) -> list[Part]:
    """Return the parts that samples consist of.

    [] where each file is a sample, or no pattern describes the parts.

    Args:
        paths: relative POSIX paths of all readable files.

    Notes:
        Nearly all samples have each part. There are at least two, and together they are nearly all
        files. Names that differ in digits only are steps or views, not parts. Names of splits are
        neither sample names nor part names.
    """
    for cut_path, adjacent in _cuts(paths):
        if adjacent and not _parts(_groups(paths[:_FIRST], cut_path)):
            continue
        groups = _groups(paths, cut_path)
        parts = _parts(groups)
        of_splits = SPLITS.issuperset(key.rpartition("/")[2] for key in groups) or SPLITS & {
            p.name for p in parts
        }
        covered = sum(len(part.paths) for part in parts)
        if len(groups) > 1 and not of_splits and covered >= _NEARLY_ALL * len(paths):
            part_patterns = patterns([(part.paths, part.ending) for part in parts])
            if part_patterns:
                return [
                    replace(part, pattern=pattern)
                    for part, pattern in zip(parts, part_patterns, strict=True)
                ]
    return []


def _groups(paths: Sequence[str], cut_path: Cut) -> dict[str, dict[str, str]]:
    """Return the paths by sample name and part name."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        sample_part = cut_path(path)
        if sample_part is not None:
            groups[sample_part[0]].setdefault(sample_part[1], path)
    return groups


def _cuts(paths: Sequence[str]) -> Iterator[tuple[Cut, bool]]:
    """Yield ways to split a path into sample name and part name.

    Each comes with whether the files of a sample are then next to each other in the listing.
    """
    depth = max(path.count("/") for path in paths)
    yield _by_folder, True
    for words in range(_MOST_NAMES, 0, -1):
        yield partial(_by_words, words=words), True
    # A second dot may be in the sample's name, or in the ending.
    dotted = any(path.rpartition("/")[2].count(".") > 1 for path in paths)
    for level in range(depth):
        yield partial(_by_level, level=level, cut=str.partition), False
        if dotted:
            yield partial(_by_level, level=level, cut=str.rpartition), False


def _by_folder(path: str) -> tuple[str, str] | None:
    folder, slash, name = path.rpartition("/")
    return (folder, slash + name) if slash else None


def _by_words(path: str, words: int) -> tuple[str, str] | None:
    folder, slash, name = path.rpartition("/")
    ends = [match.start() for match in re.finditer(r"[._-]", name)]
    return (
        (folder + slash + name[: ends[words - 1]], name[ends[words - 1] :])
        if len(ends) >= words
        else None
    )


def _by_level(
    path: str, level: int, cut: Callable[[str, str], tuple[str, str, str]]
) -> tuple[str, str] | None:
    parts = path.split("/")
    if level >= len(parts) - 1:
        return None
    stem, dot, ending = cut(parts[-1], ".")
    return "/".join([*parts[:level], *parts[level + 1 : -1], stem]), f"{parts[level]}/{dot}{ending}"


def _parts(groups: Mapping[str, Mapping[str, str]]) -> list[Part]:
    paths_by_part: dict[str, list[str]] = defaultdict(list)
    for group in groups.values():
        for part, path in group.items():
            paths_by_part[part].append(path)
    least = ceil(_NEARLY_ALL * len(groups))
    common = [part for part in sorted(paths_by_part) if len(paths_by_part[part]) >= least]
    optional = [
        part
        for part in sorted(paths_by_part)
        if len(groups) / 10 <= len(paths_by_part[part]) < least and len(paths_by_part[part]) > 1
    ]
    names = [re.sub(r"[\d._/-]+", " ", part).strip() for part in (*common, *optional)]
    if len(common) < 2 or len(names) > _MOST_PARTS or len(set(names)) < len(names) or "" in names:
        return []
    required = set(common)
    complete = [group for group in groups.values() if group.keys() >= required] or list(
        groups.values()
    )
    stems = [
        re.sub(r"\W+", "_", part.rpartition(".")[0]).strip("_") for part in (*common, *optional)
    ]
    return [
        Part(
            stem if stems.count(stem) == 1 or not stem else re.sub(r"\W+", "_", part).strip("_"),
            part.rpartition("/")[2],
            tuple(sorted(paths_by_part[part])),
            tuple(sorted(group[part] for group in complete if part in group)),
            "",
            part in optional,
        )
        for stem, part in zip(stems, (*common, *optional), strict=True)
    ]


MOST = 200  # samples that are profiled
_FILES = 40  # files that are read
_VIDEOS = frozenset({".mp4", ".m4v", ".mov"})
_STORES = frozenset({".hdf5", ".h5", ".zarr"})
_KEPT = frozenset({"index", EPISODE})  # columns by which LeRobot finds its rows
_SHOWN = 100  # characters of a name in a note
_PASSED = 6  # names in one line
# A cache cannot hold a field beyond these: bytes of a part of its name, and of the name; its axes.
_NAME = 240
_PATH = 2000
_AXES = 62
_PICTURES = frozenset({".jpg", ".jpeg", ".png"})
_LINES = (".jsonl", ".ndjson", ".jsonl.gz")
# JSON documents that are read; mean number of records from which on they are samples.
_DOCUMENTS = 200
_MANY = 20
# Files that accompany data more often than they are the data.
_BESIDE = _PICTURES | {".yaml", ".yml", ".json", ".xml", ".txt"}
_NEXT_TO_NOTHING = 10  # factor in number and bytes by which pictures outweigh the other data
_MARK = "# inferred"
_GROUPS = "datacheck.infer.profile:inner_groups"
_LOOK = "datacheck.infer.profile:look"


@dataclass(frozen=True)
class Draft:
    """A drafted schema.

    Args:
        text: YAML with comments.
        fields: how many fields it declares.
        samples: how many samples were profiled.
        notes: sentences for the user.
    """

    text: str
    fields: int
    samples: int
    notes: tuple[str, ...]


class SampleProfile(NamedTuple):
    """The profile of a few samples.

    Args:
        fields: by name.
        samples: how many were read.
        unread: why others could not be read, for a few of them.
        failed: how many could not be read.
        passed: names of values of an unsupported kind.
        taken: near names, by the field that they were read for.
        odd: names of fields that no cache can hold and few samples have (a build leaves them out
            if no schema lists them), or that are empty.
    """

    fields: dict[str, FieldProfile]
    samples: int
    unread: list[str]
    failed: int
    passed: list[str]
    taken: dict[str, str]
    odd: list[str]

    @property
    def notes(self) -> list[str]:
        """Sentences on the values and samples that were not read."""
        notes = [f"could not be read: {reason}" for reason in self.unread]
        unlisted = self.failed - len(self.unread)
        total = self.samples + self.failed
        notes += [f"could not be read: {unlisted:,} more of {total:,} that were looked at"] * (
            unlisted > 0
        )
        notes += [f"of a kind that is not read: {first_few(self.passed, _PASSED)}"] * bool(
            self.passed
        )
        prefix = "left out, as no cache can hold a field of such a name or shape: "
        return notes + [prefix + first_few([name[:_SHOWN] for name in self.odd], _PASSED)] * bool(
            self.odd
        )


def draft(data: Path) -> Draft:
    """Draft a schema for a folder or file.

    Raises:
        UsageError: the data are missing, or no format reads any of them.
    """
    root, only = target(data)
    listing = list_files(root, {}, only)
    readable = [path for path in listing.entries.paths if format_of(path) is not None]
    special_draft = _draft_corpus(data, listing, readable) or (
        _draft_builtin(listing, readable, data) if readable else None
    )
    if special_draft is not None:
        return special_draft
    if not readable:
        raise UsageError(unreadable(data, listing))
    # Empty files say nothing, so they count only if there are no others.
    readable = [path for path in readable if listing.by_path[path].size] or readable
    parts = group_files(readable)
    parts_draft = _draft_parts(data, parts, listing) if parts else None
    if parts_draft is not None:
        return parts_draft
    records_draft = _draft_records(data, listing, readable)
    if records_draft is not None:
        return records_draft
    kind, paths = _main_kind(readable, listing)
    (pattern,) = patterns([(paths, kind)])
    depths = len({path.count("/") for path in paths})
    similar = [] if depths > 1 else _other_endings(readable, listing, kind, pattern, data)
    paths = sorted([*paths, *(path for more_paths, _ in similar for path in more_paths)])
    why = (
        f"{len(paths):,} files at {depths} depths" if depths > 1 else pluralize(len(paths), "file")
    )
    # Without placeholders, because one name with two endings would be two samples of one name.
    files = (
        [re.sub(r"\{\w+\}", "*", text) for text in (pattern, *(text for _, text in similar))]
        if similar
        else pattern
    )
    head: dict[str, Any] = {"datacheck": 1, "name": _name(data), "samples": {"files": files}}
    each = _each(root, kind, _evenly_spaced(paths, 5))
    if each:
        head["samples"] |= {"each": each}
    head |= _stated_counts(kind, listing)
    profile = _profile_files(_any_field_schema(head), listing)
    inner = "" if each or _are_tables(profile) else inner_samples(profile.fields, len(paths), kind)
    if inner:
        head["samples"] |= {"each": inner}
        why += f", each {'row' if inner == 'row' else 'element'} of which looks like a sample"
        profile = _profile_files(_any_field_schema(head), listing)
    fields, samples = profile.fields, profile.samples
    few = (
        2 * _size(listing, paths) < _size(listing, readable)
        or kind.lower() in _PICTURES
        or UNTYPED in fields
    )
    if not each and not inner and len(paths) < len(readable) and few:
        return _draft_any_files(data, listing, readable, profile)
    _check_fields(root, paths, profile)
    axes = name_axes(fields, episodes="demo" in each or "episode" in each)
    guesses = _guesses(fields, axes, samples, f"{_name(data)} {pattern}")
    return _finished_draft(
        _with_guessed_patterns(head, listing, paths),
        guesses,
        samples,
        [*_undescribed_notes(listing, set(paths)), *profile.notes],
        why,
    )


def _stated_counts(kind: str, listing: Listing) -> dict[str, Any]:
    """Return the key that compares record counts with those that TensorFlow Datasets states."""
    stated = any(PurePosixPath(path).name == INFO for path in listing.entries.paths)
    return {"attrs": {SHARD_LENGTH: "samples"}} if stated and kind.startswith(".tfrecord") else {}


def _guesses(
    fields: Mapping[str, FieldProfile], axes: Mapping[str, Any], samples: int, files: str
) -> dict[str, Guess]:
    guesses: dict[str, Guess] = {}
    for name, profile in sorted(fields.items()):
        field_guess = guess(name, profile, axes, samples, files)
        guesses |= cut(name, profile, field_guess, files) or {name: field_guess}
    return preferences(guesses)


def _draft_records(data: Path, listing: Listing, readable: Sequence[str]) -> Draft | None:
    """Return a draft of records in JSON lists and JSON lines.

    None where these are not most of the data.
    """
    documents = [path for path in readable if path.lower().endswith(".json")]
    lines = [path for path in readable if path.lower().endswith(_LINES)]
    if (
        not documents
        or len(documents) > _DOCUMENTS
        or 2 * _size(listing, documents + lines) < _size(listing, readable)
    ):
        return None
    inner = _inner_patterns(listing.root, documents)
    records = _record_lists(inner, listing)
    # Damaged documents are included, so that a scan reports them.
    records += [path for path in documents if path not in inner] if records else []
    paths = sorted(records + lines)
    if not records or 2 * _size(listing, paths) < _size(listing, readable):
        return None
    ends = [
        (members, end)
        for end in (".json", *_LINES)
        if (members := [p for p in paths if p.lower().endswith(end)])
    ]
    files = [re.sub(r"\{\w+\}", "*", text) for text in patterns(ends)]
    if len(records) < len(documents) or any(
        not path.endswith(end) for members, end in ends for path in members
    ):
        files = paths  # a pattern would match other documents, too
    if files is paths and (
        len(paths) > _DOCUMENTS or any(set(path) & set("{}*?[]") for path in paths)
    ):
        return None
    head = {"datacheck": 1, "name": _name(data), "samples": {"files": files, "each": "line"}}
    profile = _profile_files(_any_field_schema(head), listing)
    _check_fields(listing.root, paths, profile)
    guesses = _guesses(
        profile.fields,
        name_axes(profile.fields, episodes=False),
        profile.samples,
        f"{_name(data)} {files[0]}",
    )
    why = (
        f"{pluralize(len(paths), 'file')}, each {'line or ' if lines else ''}element of which "
        f"looks like a sample"
    )
    notes = [*_undescribed_notes(listing, set(paths)), *profile.notes]
    return _finished_draft(
        _with_guessed_patterns(head, listing, paths), guesses, profile.samples, notes, why
    )


def _draft_corpus(data: Path, listing: Listing, readable: Sequence[str]) -> Draft | None:
    """Return a draft of a parallel corpus, None if there is none or most data are other files."""
    corpus = corpus_of(listing.entries.paths, partial(_lines, listing.root))
    if corpus is None or _size(listing, corpus.paths) < _size(listing, readable):
        return None
    (main_side, pattern), *_ = corpus.sides.items()
    guesses = dict[str, Guess]()
    for side, file in sorted(corpus.sides.items()):
        place = {} if side == main_side else {"file": file}
        optional = {"optional": True} if side in corpus.optional else {}
        why = (
            "some texts have none"
            if optional
            else "language from the ending"
            if len(side) < 3
            else "from the ending"
        )
        guesses[side] = Guess({**place, "at": LINES, "role": "text", **optional}, (why,))
    head = {"datacheck": 1, "name": _name(data), "samples": {"files": pattern, "each": "row"}}
    why = f"the lines of files of one name correspond: {first_few(sorted(corpus.sides), _PASSED)}"
    notes = _undescribed_notes(listing, set(corpus.paths))
    return _finished_draft(
        _with_guessed_patterns(head, listing, corpus.paths), guesses, corpus.lines, notes, why
    )


def _lines(root: Path, paths: Sequence[str]) -> dict[str, int]:
    """Return the number of lines by path, without files that are not text."""
    summaries = {path: inner.split("\n") for path, inner in _inner_patterns(root, paths).items()}
    return {path: int(count[0]) for path, (kind, *count) in summaries.items() if kind == LINES}


def _record_lists(inner: Mapping[str, str], listing: Listing) -> list[str]:
    """Return the documents that are lists of many records.

    Small ones count only if they share a key with the large ones.
    """
    lists = {
        path: summary.split("\n")[1:]
        for path, summary in inner.items()
        if summary.startswith(RECORDS)
    }
    # With few records per document, they are the steps of a sample rather than samples.
    if sum(int(count) for count, *_ in lists.values()) < _MANY * len(lists):
        return []
    keys = {path: set(names) for path, (_, *names) in lists.items()}
    largest = max((_size(listing, [path]) for path in keys), default=0)
    large = [path for path in keys if _NEXT_TO_NOTHING * _size(listing, [path]) >= largest]
    common = set[str]().union(*(keys[path] for path in large))
    return sorted(path for path in keys if path in large or keys[path] & common)


def _are_tables(look: SampleProfile) -> bool:
    """Tell whether hardly any column is in most files.

    The files are then tables of several kinds, not rows of one.
    """
    return bool(look.fields) and all(
        2 * profile.samples <= look.samples for profile in look.fields.values()
    )


def _check_fields(root: Path, paths: Sequence[str], look: SampleProfile) -> None:
    if not look.fields:
        why = (
            f"could be read. {'; '.join(look.unread)}"
            if look.unread
            else "holds a field: they are empty."
        )
        msg = f"{root}: none of {pluralize(min(len(paths), _FILES), 'file')} {why}"
        raise UsageError(msg)


def _size(listing: Listing, paths: Sequence[str]) -> int:
    return sum(listing.by_path[path].size for path in paths)


def _with_guessed_patterns(
    head: Mapping[str, Any], listing: Listing, described: Sequence[str]
) -> dict[str, Any]:
    """Return a draft's head; a scan fails by DC113 where its patterns leave out most bytes.

    The patterns are a guess, not a choice of the user.
    """
    readable = [path for path in listing.entries.paths if format_of(path) is not None]
    if 2 * _size(listing, described) >= _size(listing, readable):
        return dict(head)
    return {**head, "rules": {"DC113": {"left_out": True}}}


def _draft_any_files(
    data: Path, listing: Listing, readable: Sequence[str], profile: SampleProfile
) -> Draft:
    """Return a draft that reads all files, each as a sample: no one kind of file is the data."""
    kinds = Counter[str]()
    for path in readable:
        kinds[PurePosixPath(path).suffix] += listing.by_path[path].size
    total_bytes = max(1, kinds.total())
    shares = ", ".join(
        f"{kind} {100 * size / total_bytes:.0f} %" for kind, size in kinds.most_common(3)
    )
    why = (
        f"several kinds of files, none of them the data alone ({shares} of the bytes): each file "
        f"is a sample"
    )
    lines = [
        f"# Drafted by datacheck init from {pluralize(profile.samples, 'sample')}. What is marked "
        f"{_MARK!r} is a guess: "
        "read it, mend it.",
        *(
            f"# {_inert(note)}"
            for note in [*_undescribed_notes(listing, set(readable)), *profile.notes]
        ),
        "# Of one kind of files alone more is judged: draft a schema for a folder that holds that "
        "kind.",
        "datacheck: 1",
        f"name: {_name(data)}",
        f"extends: {FILES}    {_MARK}: {_inert(why)}",
    ]
    text = "\n".join(lines) + "\n"
    parse_schema(text)
    return Draft(text, 0, profile.samples, tuple(profile.notes))


def _undescribed_notes(listing: Listing, described: Container[str]) -> list[str]:
    """Return notes on files that a draft does not describe, and on those without a reader."""
    undescribed = [path for path in listing.entries.paths if path not in described]
    readable = [path for path in undescribed if format_of(path) is not None]
    unknown = [path for path in undescribed if format_of(path) is None]
    notes = [f"not described: {by_ending(readable)}"] * bool(readable)
    notes += [f"no format reads: {by_ending(unknown)}"] * bool(unknown)
    for path, reason in listing.skipped[:1]:
        suffix = (
            f" ({len(listing.skipped) - 1:,} more are left out)" if len(listing.skipped) > 1 else ""
        )
        notes.append(f"left out: {path}: {reason}{suffix}")
    return notes


def _is_ambiguous_at(name: str, pattern: str) -> bool:
    """Tell whether ``at:`` takes a name for a sample attribute or for a placeholder.

    In XML, ``@name`` is a value.
    """
    return (
        (name.startswith("@") and not pattern.lower().endswith(".xml"))
        or "{" in name
        or "}" in name
    )


def _draft_parts(data: Path, parts: Sequence[Part], listing: Listing) -> Draft | None:
    """Return a draft of samples of several files each, None where each file is rather a sample.

    The samples' own file is the largest; the fields of the other files have a ``file``.
    """
    head = {"datacheck": 1, "name": _name(data)}
    profiles = {
        part: _profile_files(
            _any_field_schema(head | {"samples": {"files": part.pattern}}),
            _sublisting(listing, part.whole),
            len(part.paths),
        )
        for part in parts
    }
    nonempty = [part for part in parts if profiles[part].fields]
    if (
        len(nonempty) < 2
        or not _hold_different_fields(nonempty, profiles)
        or any(_holds_samples(part, listing) for part in nonempty)
    ):
        return None
    main = min(nonempty, key=partial(_rank, nonempty, listing))
    fields: dict[str, FieldProfile] = {}
    places: dict[str, tuple[Part, dict[str, Any]]] = {}
    ambiguous: list[str] = []
    # Parts with one array come first: the array gets the part's name.
    for part in sorted(
        nonempty, key=lambda member: (len(profiles[member].fields) > 1, member is not main)
    ):
        several = len(profiles[part].fields) > 1
        for inner, profile in profiles[part].fields.items():
            name = _free_name(part, inner if several or not part.name else part.name, inner, fields)
            place: dict[str, Any] = {} if part is main else {"file": part.pattern}
            if several and (part is not main or name != inner):
                if _is_ambiguous_at(inner, part.pattern):
                    ambiguous.append(inner)
                    continue
                place["at"] = inner
            fields[name], places[name] = (
                profile,
                (part, place | ({"optional": True} if part.optional else {})),
            )
    axes = name_axes(fields, episodes=False)
    guesses = {}
    for name, profile in sorted(fields.items()):
        part, place = places[name]
        field_guess = guess(
            name, profile, axes, profiles[part].samples, f"{_name(data)} {part.pattern}"
        )
        guesses[name] = replace(field_guess, spec=place | field_guess.spec)
    notes = _undescribed_notes(listing, {path for part in nonempty for path in part.paths})
    notes += [
        f"left out, as at: means something else by such a name: {first_few(ambiguous, _PASSED)}"
    ] * bool(ambiguous)
    unread = [note for part in parts for note in profiles[part].notes]
    sample_count = max(profiles[part].samples for part in nonempty)
    why = f"{len(main.paths):,} samples of {len(nonempty)} files each"
    full_head = _with_guessed_patterns(
        head | {"samples": {"files": main.pattern}},
        listing,
        [path for member in nonempty for path in member.paths],
    )
    return _finished_draft(full_head, guesses, sample_count, [*notes, *unread], why)


def _hold_different_fields(parts: Sequence[Part], profiles: Mapping[Part, SampleProfile]) -> bool:
    """Tell whether the files of a sample differ in their fields, or in the roles of their names."""
    first_fields, *other_fields = (profiles[part].fields for part in parts)
    if any(
        len(first_fields) != len(other)
        or (len(first_fields) > 1 and first_fields.keys() != other.keys())
        for other in other_fields
    ):
        return True
    if any(
        not profile.like(other_profile)
        for other in other_fields
        for profile, other_profile in zip(*map(_sorted, (first_fields, other)), strict=True)
    ):
        return True
    return len(first_fields) == 1 and sum(names_role(part.name) for part in parts) > 1


def _sorted(fields: Mapping[str, FieldProfile]) -> list[FieldProfile]:
    return [fields[name] for name in sorted(fields)]


def _holds_samples(part: Part, listing: Listing) -> bool:
    ending = _ending(part.paths[0])
    return ending.lower() not in _BESIDE and bool(
        _each(listing.root, ending, _evenly_spaced(part.paths, 5))
    )


def _rank(parts: Sequence[Part], listing: Listing, part: Part) -> tuple[Any, ...]:
    """Return a sort key: the part with the lowest is the samples' own file."""
    # The pattern of this part then matches the files of another part, too.
    overlapping = any(
        other.ending != part.ending and other.ending.endswith(part.ending) for other in parts
    )
    size = sum(listing.by_path[path].size for path in _evenly_spaced(part.paths, MOST))
    return part.optional, overlapping, _ending(part.paths[0]).lower() in _BESIDE, -size, part.name


def _free_name(part: Part, name: str, inner: str, taken: Container[str]) -> str:
    """Return an unused name for a field."""
    prefix = part.name or re.sub(r"\W+", "_", part.ending).strip("_")
    while name in taken or name == "*":  # "*" stands for fields that are not listed
        name, inner = f"{prefix}_{inner}", f"{inner}_"
    return name


def _sublisting(listing: Listing, paths: Sequence[str]) -> Listing:
    index = np.array([listing.entries.find(path) for path in _evenly_spaced(paths, _FILES)])
    return replace(listing, entries=listing.entries.take(index))


class _BuiltinFit(NamedTuple):
    """A built-in schema that fits files, their profile, and their pattern if it is another one."""

    name: str
    schema: Schema
    look: SampleProfile
    files: str = ""


def _draft_builtin(listing: Listing, readable: Sequence[str], data: Path) -> Draft | None:
    """Return a draft that extends the one built-in schema that fits most files.

    None where no schema or several fit.
    """
    schemas = {name: load_schema(name) for name in builtin() if name not in {FILES, *WHOLE}}
    main_paths = {path for path in readable if not _is_auxiliary(path)} or set(readable)
    fitting = []
    for name, schema in schemas.items():
        if matches(schema, listing) and 2 * len(
            main_paths.intersection(plan_work(schema, listing).unclaimed)
        ) <= len(main_paths):
            profile = _profile_files(_with_any(schema), listing)
            if _has_most_fields(schema, profile):
                fitting.append(_BuiltinFit(name, schema, profile))
    fitting = fitting or list(_renamed_builtins(schemas, listing, readable))
    return _draft_extending(fitting[0], listing, data) if len(fitting) == 1 else None


def _is_auxiliary(path: str) -> bool:
    """Tell whether a file accompanies data rather than being the data: pictures, videos, notes."""
    return PurePosixPath(path).suffix.lower() in _BESIDE | _VIDEOS


def _renamed_builtins(
    schemas: Mapping[str, Schema], listing: Listing, readable: Sequence[str]
) -> Iterator[_BuiltinFit]:
    """Yield the built-in robot schemas that best fit the content of files with other names."""
    kind, paths = _main_kind(readable, listing)
    if kind.lower() not in _STORES:
        return
    (pattern,) = patterns([(paths, kind)])
    ranked: list[tuple[float, _BuiltinFit]] = []
    for name, schema in schemas.items():
        if (
            any(PurePosixPath(text).suffix not in _STORES for text in schema.samples.files)
            or schema.samples.list
        ):
            continue
        renamed = schema.model_copy(
            update={"samples": schema.samples.model_copy(update={"files": (pattern,)})}
        )
        profile = _profile_files(_with_any(renamed), listing)
        matching = _matching_fields(schema, profile)
        required = {
            field for field, spec in schema.stored.items() if not spec.optional and not spec.absent
        }
        if required <= matching and 2 * len(matching) >= len(schema.stored) and profile.samples:
            ranked.append(
                (len(matching) / len(schema.stored), _BuiltinFit(name, schema, profile, pattern))
            )
    best = max((share for share, _ in ranked), default=0.0)
    yield from (fit for share, fit in ranked if share == best)


def _with_any(schema: Schema) -> Schema:
    """Return a schema that also reads unlisted fields."""
    return schema.model_copy(update={"fields": schema.fields | {"*": FieldSpec()}})


def _matching_fields(schema: Schema, look: SampleProfile) -> set[str]:
    """Return the fields of a schema that samples have in the declared kind and sizes."""
    return {
        name
        for name, spec in schema.stored.items()
        if name in look.fields and _fits_spec(look.fields[name], spec)
    }


def _fits_spec(profile: FieldProfile, spec: FieldSpec) -> bool:
    text_kinds = {"text", "json"} & profile.dtypes.keys()
    if text_kinds or spec.is_text:
        return bool(text_kinds) == spec.is_text
    if spec.shape is None or profile.item is None or len(profile.ndims) != 1:
        return True
    first = [usual_length(profile)] if profile.lengths else []
    return fits([*first, *profile.item], spec)


def _has_most_fields(schema: Schema, profile: SampleProfile) -> bool:
    """Tell whether files have at least half of the fields that a schema requires.

    Files of another layout may have the same names.
    """
    required = {name for name, spec in schema.stored.items() if not spec.optional}
    # The files are damaged, or have the schema's names and another content.
    if not profile.samples:
        return not any(NO_GROUP in reason for reason in profile.unread)
    return 2 * len(required & profile.fields.keys()) >= len(required)


def _draft_extending(fit: _BuiltinFit, listing: Listing, data: Path) -> Draft:
    """Return a draft that extends a built-in schema by what differs.

    That is file names, names of fields, absent fields, and additional fields.
    """
    schema, look = fit.schema, fit.look
    guesses: dict[str, Guess] = {}
    extra = {
        name: profile
        for name, profile in look.fields.items()
        if name not in schema.fields and name not in _KEPT
    }
    notes = []
    for name, spec in sorted(schema.stored.items()):
        actual_name = look.taken.get(name, "")
        if actual_name:
            guesses[name] = Guess({"at": actual_name}, ("called so in these samples",))
            extra.pop(actual_name, None)
        elif (
            look.samples
            and name not in look.fields
            and not spec.optional
            and not schema.when
            and not spec.file
        ):
            guesses[name] = Guess(
                {"optional": True}, (f"in none of {pluralize(look.samples)} that were looked at",)
            )
        elif name in look.fields and not _fits_spec(look.fields[name], spec):
            notes.append(
                f"{name}: not of the shape {list(spec.shape or ())} or the kind that {fit.name} "
                f"declares"
            )
    axes = name_axes(
        look.fields, episodes=any("T" in (spec.shape or ()) for spec in schema.stored.values())
    )
    exceeded = exceeded_limit(
        {*schema.fields, *extra, *(name for change in schema.when.values() for name in change)}
    )
    if exceeded:
        guesses[ANY] = Guess({}, (exceeded,))
    else:
        guesses |= {
            name: guess(name, profile, axes, look.samples, str(data))
            for name, profile in sorted(extra.items())
        }
    described = set(listing.entries.paths).difference(plan_work(schema, listing).unclaimed)
    if fit.files:
        template = file_templates(
            schema.model_copy(update={"samples": SamplesSpec(files=(fit.files,))})
        )[0]
        described = {path for path in listing.entries.paths if template.match(path) is not None}
    notes = [*_undescribed_notes(listing, described), *notes, *look.notes]
    layout = (
        f"{pluralize(len(described), 'file')} of its "
        f"layout{', under other names' if fit.files else ''}"
    )
    advice = (
        "" if fit.files or guesses else f"; datacheck scan DATA --schema {fit.name} works as it is"
    )
    fields = {name: field_guess.spec for name, field_guess in guesses.items()}
    document = {
        "datacheck": 1,
        "name": f"my_{fit.name}",
        "samples": {"files": fit.files or "*"},
        "fields": fields,
    }
    lines = dump_schema(Schema.model_validate(document)).rstrip("\n").split("\n")
    lines = [line for line in lines if fit.files or not line.startswith("samples:")]
    place = next(i for i, line in enumerate(lines) if line.startswith("name:")) + 1
    lines = list(_commented(lines, guesses, "all files of that ending"))
    lines.insert(place, f"extends: {fit.name}    {_MARK}: {layout}{advice}")
    text = "\n".join([*(f"# {_inert(note)}" for note in notes), *lines]) + "\n"
    parse_schema(text)
    return Draft(text, len(schema.fields | fields), look.samples, tuple(notes))


def _main_kind(paths: Sequence[str], listing: Listing) -> tuple[str, list[str]]:
    """Return the ending that most files of the main format have, and these files.

    Notes:
        Pictures, videos and notes are the main format only if there are no other files, or next to
        none: six arrays of labels next to a thousand pictures.
    """
    numbers = Counter[str]()
    sizes = Counter[str]()
    for path in paths:
        numbers[_ending(path)] += 1
        sizes[_ending(path)] += listing.by_path[path].size
    data = [ending for ending in numbers if ending.lower() not in _BESIDE | _VIDEOS]
    pictures = [ending for ending in numbers if ending.lower() in _PICTURES]
    few = all(
        _NEXT_TO_NOTHING * sum(measure[e] for e in data) <= sum(measure[e] for e in pictures)
        for measure in (numbers, sizes)
    )
    chosen = pictures if pictures and data and few else data or list(numbers)
    ending = max(chosen, key=lambda e: (numbers[e], sizes[e], e))
    return ending, [path for path in paths if _ending(path) == ending]


def _other_endings(
    readable: Sequence[str], listing: Listing, kind: str, pattern: str, data: Path
) -> list[tuple[list[str], str]]:
    """Return paths and pattern of files with other endings but the same fields as the main kind."""
    kinds: dict[str, list[str]] = {}
    for path in readable:
        if format_of(path) is format_of(f"x{kind}") and kind.lower() not in _BESIDE:
            kinds.setdefault(_ending(path), []).append(path)
    kinds.pop(kind, None)
    head = {"datacheck": 1, "name": _name(data)}
    main_fields = (
        _profile_files(_any_field_schema({**head, "samples": {"files": pattern}}), listing).fields
        if kinds
        else {}
    )
    similar = list[tuple[list[str], str]]()
    for ending, paths in sorted(kinds.items()):
        (text,) = patterns([(paths, ending)])
        fields = _profile_files(
            _any_field_schema({**head, "samples": {"files": text}}), listing
        ).fields
        if (
            fields
            and main_fields.keys() == fields.keys()
            and all(_same_kind(profile, fields[name]) for name, profile in main_fields.items())
        ):
            similar.append((paths, text))
    return similar


def _same_kind(one: FieldProfile, other: FieldProfile) -> bool:
    """Tell whether fields are alike; arrays of several widths are tables of several kinds."""
    is_text = bool({"text", "json"} & one.dtypes.keys())
    return one.like(other) and (is_text or (one.item is not None and one.item == other.item))


def _ending(path: str) -> str:
    """Return the ending of a path in its own spelling, because patterns are case-sensitive."""
    file_format = format_of(path)
    name = unnumbered(path)
    suffixes = (
        s for s in (file_format.suffixes if file_format else ()) if name.lower().endswith(s)
    )
    return name[-len(next(suffixes, PurePosixPath(path).suffix)) or len(path) :] + NUMBER * (
        name != path
    )


def _name(data: Path) -> str:
    return (re.sub(r"[^A-Za-z0-9_.-]+", "_", data.resolve().stem).strip("._-") or "dataset")[:60]


def _evenly_spaced(paths: Sequence[str], count: int) -> list[str]:
    step = max(1, len(paths) // count)
    return list(paths[::step][:count])


def _each(root: Path, ending: str, paths: Sequence[str]) -> str:
    """Return ``samples.each``: lines, groups or episodes in the files; "" if a file is a sample."""
    if ending.lower() in _LINES:
        return "line"
    pattern_counts = Counter(
        "" if inner.startswith(RECORDS) else inner
        for inner in _inner_patterns(root, paths).values()
    )
    named_groups = [
        text for text in pattern_counts if text.count("/") == 1 and not text.endswith("*")
    ]
    # Each file has one group under a name of its own.
    if len(named_groups) > 1 and len(named_groups) == pattern_counts.total():
        return "/*"
    for text in named_groups:
        del pattern_counts[text]
    return pattern_counts.most_common(1)[0][0] if pattern_counts else ""


def _inner_patterns(root: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return the pattern of the samples inside each readable file; see `profile.inner_groups`."""
    task = {"root": str(root.absolute()), "items": [{"path": path} for path in paths]}
    patterns_by_path: dict[str, str] = {}
    for outcome in ordered_map(
        _GROUPS, [task], limits=Limits(item_s=30), sandbox=sandbox_of(root, {})
    ):
        for payload in outcome.payloads:
            patterns_by_path |= payload["found"]
    return patterns_by_path


def _any_field_schema(head: Mapping[str, Any]) -> Schema:
    """Return a schema that says only where the samples are, and reads all fields."""
    return Schema.model_validate({**head, "fields": {"*": {}}})


def _profile_files(schema: Schema, listing: Listing, files: int = 0) -> SampleProfile:
    """Profile some files of a listing.

    Args:
        schema: names the files.
        listing: the files to choose from.
        files: how many files there are in all, if `listing` is a part of them.
    """
    items = plan_work(schema, listing).items
    chosen = [items[i] for i in range(0, len(items), max(1, len(items) // _FILES))][:_FILES]
    task = {
        "schema": schema.as_dict(),
        "root": str(listing.root.absolute()),
        "items": [item.as_dict() for item in chosen],
        "most": MOST,
    }
    fields: dict[str, FieldProfile] = {}
    samples = 0
    failed = 0
    unread = list[str]()
    passed = set[str]()
    near_names = dict[str, str]()
    for outcome in ordered_map(_LOOK, [task], sandbox=sandbox_of(listing.root, {})):
        unread += [f"{death.item['path']}: {death.how}".splitlines()[0] for death in outcome.deaths]
        failed += len(outcome.deaths)
        for payload in outcome.payloads:
            samples += payload["samples"]
            unread += payload["unread"]
            failed += payload["failed"]
            passed.update(payload["passed"])
            near_names |= payload["taken"]
            new_profiles = {
                name: FieldProfile(**profile)
                for name, profile in payload["fields"].items()
                if name not in fields
            }
            for profile in new_profiles.values():
                profile.thinned |= len(chosen) < (files or len(items))
            fields |= new_profiles
    # "" names no field.
    few = {name for name, profile in fields.items() if not name or 2 * profile.samples < samples}
    unstorable = sorted(name for name in few if not _is_stored(name, fields[name]))
    stored = {name: profile for name, profile in fields.items() if name not in unstorable}
    return SampleProfile(
        stored, samples, unread[:3], failed, sorted(passed), near_names, unstorable
    )


def _is_stored(name: str, profile: FieldProfile) -> bool:
    """Tell whether a cache can hold a field of such a name and shape."""
    parts = [quote(part, errors="surrogatepass") for part in name.split("/")]
    short = (
        all(0 < len(part) <= _NAME for part in parts)
        and sum(map(len, parts)) <= _PATH
        and "\0" not in name
    )
    return (
        short and 0 not in (profile.item or ()) and max(map(int, profile.ndims), default=0) < _AXES
    )


# --------------------------------------------------------------------------------------------- text


def _finished_draft(
    head: Mapping[str, Any],
    guesses: Mapping[str, Guess],
    samples: int,
    notes: Sequence[str],
    why: str,
) -> Draft:
    if exceeded := exceeded_limit(guesses):
        guesses = {ANY: Guess({}, (exceeded,))}
    fields = {name: field_guess.spec for name, field_guess in guesses.items()}
    schema = Schema.model_validate({**head, "fields": fields})
    origin = f"Drafted by datacheck init from {pluralize(samples, 'sample')}."
    lines = [
        f"# {origin} What is marked {_MARK!r} is a guess: read it, mend it.",
        *(f"# {_inert(note)}" for note in notes),
        *_commented(dump_schema(schema).rstrip("\n").split("\n"), guesses, why),
    ]
    text = "\n".join(lines) + "\n"
    parse_schema(text)  # a draft that does not load would be worse than none
    return Draft(text, len(fields), samples, tuple(notes))


def _inert(comment: str) -> str:
    """Return a comment with line breaks and the like escaped, so that no name in it can end it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in comment)


def _commented(lines: Sequence[str], guesses: Mapping[str, Guess], why: str) -> Iterator[str]:
    names = iter(guesses)
    inside = False
    for line in lines:
        # These keys only: a name of several lines may begin at the margin, too.
        if line.startswith(("fields:", "rules:")):
            inside = line.startswith("fields:")
        if line == "  DC113: {left_out: true}":
            line += (
                f"    {_MARK}: the patterns leave out most bytes; take this line out if that "
                f"is meant"
            )
        # A long name has a line of its own: "  ? name".
        elif inside and line[:2] == "  " and line[2] not in " ?":
            reasons = _inert("; ".join(guesses[next(names)].why))
            line += f"    {_MARK}{': ' if reasons else ''}{reasons}"
        elif line.startswith("samples:"):
            line += f"    {_MARK}: {why}"
        yield line
