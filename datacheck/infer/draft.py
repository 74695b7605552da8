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
    for cut_path, beside in _cuts(paths):
        if beside and not _parts(_groups(paths[:_FIRST], cut_path)):
            continue
        groups = _groups(paths, cut_path)
        parts = _parts(groups)
        of_splits = SPLITS.issuperset(key.rpartition("/")[2] for key in groups) or SPLITS & {
            p.name for p in parts
        }
        covered = sum(len(part.paths) for part in parts)
        if len(groups) > 1 and not of_splits and covered >= _NEARLY_ALL * len(paths):
            found = patterns([(part.paths, part.ending) for part in parts])
            if found:
                return [
                    replace(part, pattern=pattern)
                    for part, pattern in zip(parts, found, strict=True)
                ]
    return []


def _groups(paths: Sequence[str], cut_path: Cut) -> dict[str, dict[str, str]]:
    """Return the paths by sample name and part name."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        found = cut_path(path)
        if found is not None:
            groups[found[0]].setdefault(found[1], path)
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
    ends = [found.start() for found in re.finditer(r"[._-]", name)]
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
    having: dict[str, list[str]] = defaultdict(list)
    for group in groups.values():
        for rest, path in group.items():
            having[rest].append(path)
    least = ceil(_NEARLY_ALL * len(groups))
    whole = [rest for rest in sorted(having) if len(having[rest]) >= least]
    some = [
        rest
        for rest in sorted(having)
        if len(groups) / 10 <= len(having[rest]) < least and len(having[rest]) > 1
    ]
    names = [re.sub(r"[\d._/-]+", " ", rest).strip() for rest in (*whole, *some)]
    if len(whole) < 2 or len(names) > _MOST_PARTS or len(set(names)) < len(names) or "" in names:
        return []
    needed = set(whole)
    complete = [group for group in groups.values() if group.keys() >= needed] or list(
        groups.values()
    )
    stems = [re.sub(r"\W+", "_", rest.rpartition(".")[0]).strip("_") for rest in (*whole, *some)]
    return [
        Part(
            stem if stems.count(stem) == 1 or not stem else re.sub(r"\W+", "_", rest).strip("_"),
            rest.rpartition("/")[2],
            tuple(sorted(having[rest])),
            tuple(sorted(group[rest] for group in complete if rest in group)),
            "",
            rest in some,
        )
        for stem, rest in zip(stems, (*whole, *some), strict=True)
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
        more = self.failed - len(self.unread)
        looked = self.samples + self.failed
        notes += [f"could not be read: {more:,} more of {looked:,} that were looked at"] * (
            more > 0
        )
        notes += [f"of a kind that is not read: {first_few(self.passed, _PASSED)}"] * bool(
            self.passed
        )
        said = "left out, as no cache can hold a field of such a name or shape: "
        return notes + [said + first_few([name[:_SHOWN] for name in self.odd], _PASSED)] * bool(
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
    known = _draft_corpus(data, listing, readable) or (
        _draft_builtin(listing, readable, data) if readable else None
    )
    if known is not None:
        return known
    if not readable:
        raise UsageError(unreadable(data, listing))
    # Empty files say nothing, so they count only if there are no others.
    readable = [path for path in readable if listing.by_path[path].size] or readable
    parts = group_files(readable)
    several = _draft_parts(data, parts, listing) if parts else None
    if several is not None:
        return several
    of_records = _draft_records(data, listing, readable)
    if of_records is not None:
        return of_records
    kind, paths = _main_kind(readable, listing)
    (pattern,) = patterns([(paths, kind)])
    depths = len({path.count("/") for path in paths})
    alike = [] if depths > 1 else _other_endings(readable, listing, kind, pattern, data)
    paths = sorted([*paths, *(path for more, _ in alike for path in more)])
    why = (
        f"{len(paths):,} files at {depths} depths" if depths > 1 else pluralize(len(paths), "file")
    )
    # Without placeholders, because one name with two endings would be two samples of one name.
    files = (
        [re.sub(r"\{\w+\}", "*", text) for text in (pattern, *(text for _, text in alike))]
        if alike
        else pattern
    )
    said: dict[str, Any] = {"datacheck": 1, "name": _name(data), "samples": {"files": files}}
    each = _each(root, kind, _evenly_spaced(paths, 5))
    if each:
        said["samples"] |= {"each": each}
    said |= _stated_counts(kind, listing)
    look = _profile_files(_any_field_schema(said), listing)
    inner = "" if each or _are_tables(look) else inner_samples(look.fields, len(paths), kind)
    if inner:
        said["samples"] |= {"each": inner}
        why += f", each {'row' if inner == 'row' else 'element'} of which looks like a sample"
        look = _profile_files(_any_field_schema(said), listing)
    fields, samples = look.fields, look.samples
    few = (
        2 * _size(listing, paths) < _size(listing, readable)
        or kind.lower() in _PICTURES
        or UNTYPED in fields
    )
    if not each and not inner and len(paths) < len(readable) and few:
        return _draft_any_files(data, listing, readable, look)
    _check_fields(root, paths, look)
    axes = name_axes(fields, episodes="demo" in each or "episode" in each)
    guesses = _guesses(fields, axes, samples, f"{_name(data)} {pattern}")
    return _finished_draft(
        _with_guessed_patterns(said, listing, paths),
        guesses,
        samples,
        [*_undescribed_notes(listing, set(paths)), *look.notes],
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
    for name, seen in sorted(fields.items()):
        found = guess(name, seen, axes, samples, files)
        guesses |= cut(name, seen, found, files) or {name: found}
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
        (some, end)
        for end in (".json", *_LINES)
        if (some := [p for p in paths if p.lower().endswith(end)])
    ]
    files = [re.sub(r"\{\w+\}", "*", text) for text in patterns(ends)]
    if len(records) < len(documents) or any(
        not path.endswith(end) for some, end in ends for path in some
    ):
        files = paths  # a pattern would match other documents, too
    if files is paths and (
        len(paths) > _DOCUMENTS or any(set(path) & set("{}*?[]") for path in paths)
    ):
        return None
    said = {"datacheck": 1, "name": _name(data), "samples": {"files": files, "each": "line"}}
    look = _profile_files(_any_field_schema(said), listing)
    _check_fields(listing.root, paths, look)
    guesses = _guesses(
        look.fields,
        name_axes(look.fields, episodes=False),
        look.samples,
        f"{_name(data)} {files[0]}",
    )
    why = (
        f"{pluralize(len(paths), 'file')}, each {'line or ' if lines else ''}element of which "
        f"looks like a sample"
    )
    notes = [*_undescribed_notes(listing, set(paths)), *look.notes]
    return _finished_draft(
        _with_guessed_patterns(said, listing, paths), guesses, look.samples, notes, why
    )


def _draft_corpus(data: Path, listing: Listing, readable: Sequence[str]) -> Draft | None:
    """Return a draft of a parallel corpus, None if there is none or most data are other files."""
    corpus = corpus_of(listing.entries.paths, partial(_lines, listing.root))
    if corpus is None or _size(listing, corpus.paths) < _size(listing, readable):
        return None
    (first, pattern), *_ = corpus.sides.items()
    guesses = dict[str, Guess]()
    for side, file in sorted(corpus.sides.items()):
        place = {} if side == first else {"file": file}
        spare = {"optional": True} if side in corpus.optional else {}
        why = (
            "some texts have none"
            if spare
            else "language from the ending"
            if len(side) < 3
            else "from the ending"
        )
        guesses[side] = Guess({**place, "at": LINES, "role": "text", **spare}, (why,))
    said = {"datacheck": 1, "name": _name(data), "samples": {"files": pattern, "each": "row"}}
    why = f"the lines of files of one name correspond: {first_few(sorted(corpus.sides), _PASSED)}"
    notes = _undescribed_notes(listing, set(corpus.paths))
    return _finished_draft(
        _with_guessed_patterns(said, listing, corpus.paths), guesses, corpus.lines, notes, why
    )


def _lines(root: Path, paths: Sequence[str]) -> dict[str, int]:
    """Return the number of lines by path, without files that are not text."""
    found = {path: inner.split("\n") for path, inner in _inner_patterns(root, paths).items()}
    return {path: int(count[0]) for path, (kind, *count) in found.items() if kind == LINES}


def _record_lists(inner: Mapping[str, str], listing: Listing) -> list[str]:
    """Return the documents that are lists of many records.

    Small ones count only if they share a key with the large ones.
    """
    lists = {
        path: found.split("\n")[1:] for path, found in inner.items() if found.startswith(RECORDS)
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
        2 * seen.samples <= look.samples for seen in look.fields.values()
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
    said: Mapping[str, Any], listing: Listing, described: Sequence[str]
) -> dict[str, Any]:
    """Return a draft's head; a scan fails by DC113 where its patterns leave out most bytes.

    The patterns are a guess, not a choice of the user.
    """
    known = [path for path in listing.entries.paths if format_of(path) is not None]
    if 2 * _size(listing, described) >= _size(listing, known):
        return dict(said)
    return {**said, "rules": {"DC113": {"left_out": True}}}


def _draft_any_files(
    data: Path, listing: Listing, readable: Sequence[str], look: SampleProfile
) -> Draft:
    """Return a draft that reads all files, each as a sample: no one kind of file is the data."""
    kinds = Counter[str]()
    for path in readable:
        kinds[PurePosixPath(path).suffix] += listing.by_path[path].size
    whole = max(1, kinds.total())
    shares = ", ".join(f"{kind} {100 * size / whole:.0f} %" for kind, size in kinds.most_common(3))
    why = (
        f"several kinds of files, none of them the data alone ({shares} of the bytes): each file "
        f"is a sample"
    )
    lines = [
        f"# Drafted by datacheck init from {pluralize(look.samples, 'sample')}. What is marked "
        f"{_MARK!r} is a guess: "
        "read it, mend it.",
        *(
            f"# {_inert(note)}"
            for note in [*_undescribed_notes(listing, set(readable)), *look.notes]
        ),
        "# Of one kind of files alone more is judged: draft a schema for a folder that holds that "
        "kind.",
        "datacheck: 1",
        f"name: {_name(data)}",
        f"extends: {FILES}    {_MARK}: {_inert(why)}",
    ]
    text = "\n".join(lines) + "\n"
    parse_schema(text)
    return Draft(text, 0, look.samples, tuple(look.notes))


def _undescribed_notes(listing: Listing, described: Container[str]) -> list[str]:
    """Return notes on files that a draft does not describe, and on those without a reader."""
    others = [path for path in listing.entries.paths if path not in described]
    known = [path for path in others if format_of(path) is not None]
    unknown = [path for path in others if format_of(path) is None]
    notes = [f"not described: {by_ending(known)}"] * bool(known)
    notes += [f"no format reads: {by_ending(unknown)}"] * bool(unknown)
    for path, reason in listing.skipped[:1]:
        more = (
            f" ({len(listing.skipped) - 1:,} more are left out)" if len(listing.skipped) > 1 else ""
        )
        notes.append(f"left out: {path}: {reason}{more}")
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
    looks = {
        part: _profile_files(
            _any_field_schema(head | {"samples": {"files": part.pattern}}),
            _sublisting(listing, part.whole),
            len(part.paths),
        )
        for part in parts
    }
    kept = [part for part in parts if looks[part].fields]
    if (
        len(kept) < 2
        or not _hold_different_fields(kept, looks)
        or any(_holds_samples(part, listing) for part in kept)
    ):
        return None
    main = min(kept, key=partial(_rank, kept, listing))
    fields: dict[str, FieldProfile] = {}
    places: dict[str, tuple[Part, dict[str, Any]]] = {}
    unsaid: list[str] = []
    # Parts with one array come first: the array gets the part's name.
    for part in sorted(kept, key=lambda one: (len(looks[one].fields) > 1, one is not main)):
        several = len(looks[part].fields) > 1
        for inner, seen in looks[part].fields.items():
            name = _free_name(part, inner if several or not part.name else part.name, inner, fields)
            place: dict[str, Any] = {} if part is main else {"file": part.pattern}
            if several and (part is not main or name != inner):
                if _is_ambiguous_at(inner, part.pattern):
                    unsaid.append(inner)
                    continue
                place["at"] = inner
            fields[name], places[name] = (
                seen,
                (part, place | ({"optional": True} if part.optional else {})),
            )
    axes = name_axes(fields, episodes=False)
    guesses = {}
    for name, seen in sorted(fields.items()):
        part, place = places[name]
        found = guess(name, seen, axes, looks[part].samples, f"{_name(data)} {part.pattern}")
        guesses[name] = replace(found, spec=place | found.spec)
    left = _undescribed_notes(listing, {path for part in kept for path in part.paths})
    left += [
        f"left out, as at: means something else by such a name: {first_few(unsaid, _PASSED)}"
    ] * bool(unsaid)
    unread = [note for part in parts for note in looks[part].notes]
    most = max(looks[part].samples for part in kept)
    why = f"{len(main.paths):,} samples of {len(kept)} files each"
    said = _with_guessed_patterns(
        head | {"samples": {"files": main.pattern}},
        listing,
        [path for one in kept for path in one.paths],
    )
    return _finished_draft(said, guesses, most, [*left, *unread], why)


def _hold_different_fields(parts: Sequence[Part], looks: Mapping[Part, SampleProfile]) -> bool:
    """Tell whether the files of a sample differ in their fields, or in the roles of their names."""
    first, *others = (looks[part].fields for part in parts)
    if any(
        len(first) != len(other) or (len(first) > 1 and first.keys() != other.keys())
        for other in others
    ):
        return True
    if any(
        not one.like(two)
        for other in others
        for one, two in zip(*map(_sorted, (first, other)), strict=True)
    ):
        return True
    return len(first) == 1 and sum(names_role(part.name) for part in parts) > 1


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
    within = any(one.ending != part.ending and one.ending.endswith(part.ending) for one in parts)
    size = sum(listing.by_path[path].size for path in _evenly_spaced(part.paths, MOST))
    return part.optional, within, _ending(part.paths[0]).lower() in _BESIDE, -size, part.name


def _free_name(part: Part, name: str, inner: str, taken: Container[str]) -> str:
    """Return an unused name for a field."""
    own = part.name or re.sub(r"\W+", "_", part.ending).strip("_")
    while name in taken or name == "*":  # "*" stands for fields that are not listed
        name, inner = f"{own}_{inner}", f"{inner}_"
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
    own = {path for path in readable if not _is_auxiliary(path)} or set(readable)
    found = []
    for name, schema in schemas.items():
        if matches(schema, listing) and 2 * len(
            own.intersection(plan_work(schema, listing).unclaimed)
        ) <= len(own):
            look = _profile_files(_with_any(schema), listing)
            if _has_most_fields(schema, look):
                found.append(_BuiltinFit(name, schema, look))
    found = found or list(_renamed_builtins(schemas, listing, readable))
    return _draft_extending(found[0], listing, data) if len(found) == 1 else None


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
    found: list[tuple[float, _BuiltinFit]] = []
    for name, schema in schemas.items():
        if (
            any(PurePosixPath(text).suffix not in _STORES for text in schema.samples.files)
            or schema.samples.list
        ):
            continue
        renamed = schema.model_copy(
            update={"samples": schema.samples.model_copy(update={"files": (pattern,)})}
        )
        look = _profile_files(_with_any(renamed), listing)
        held = _matching_fields(schema, look)
        required = {
            field for field, spec in schema.stored.items() if not spec.optional and not spec.absent
        }
        if required <= held and 2 * len(held) >= len(schema.stored) and look.samples:
            found.append((len(held) / len(schema.stored), _BuiltinFit(name, schema, look, pattern)))
    best = max((share for share, _ in found), default=0.0)
    yield from (fit for share, fit in found if share == best)


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


def _fits_spec(seen: FieldProfile, spec: FieldSpec) -> bool:
    written = {"text", "json"} & seen.dtypes.keys()
    if written or spec.is_text:
        return bool(written) == spec.is_text
    if spec.shape is None or seen.item is None or len(seen.ndims) != 1:
        return True
    first = [usual_length(seen)] if seen.lengths else []
    return fits([*first, *seen.item], spec)


def _has_most_fields(schema: Schema, look: SampleProfile) -> bool:
    """Tell whether files have at least half of the fields that a schema requires.

    Files of another layout may have the same names.
    """
    wanted = {name for name, spec in schema.stored.items() if not spec.optional}
    # The files are damaged, or have the schema's names and another content.
    if not look.samples:
        return not any(NO_GROUP in reason for reason in look.unread)
    return 2 * len(wanted & look.fields.keys()) >= len(wanted)


def _draft_extending(fit: _BuiltinFit, listing: Listing, data: Path) -> Draft:
    """Return a draft that extends a built-in schema by what differs.

    That is file names, names of fields, absent fields, and additional fields.
    """
    schema, look = fit.schema, fit.look
    guesses: dict[str, Guess] = {}
    more = {
        name: seen
        for name, seen in look.fields.items()
        if name not in schema.fields and name not in _KEPT
    }
    notes = []
    for name, spec in sorted(schema.stored.items()):
        near = look.taken.get(name, "")
        if near:
            guesses[name] = Guess({"at": near}, ("called so in these samples",))
            more.pop(near, None)
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
        {*schema.fields, *more, *(name for change in schema.when.values() for name in change)}
    )
    if exceeded:
        guesses[ANY] = Guess({}, (exceeded,))
    else:
        guesses |= {
            name: guess(name, seen, axes, look.samples, str(data))
            for name, seen in sorted(more.items())
        }
    described = set(listing.entries.paths).difference(plan_work(schema, listing).unclaimed)
    if fit.files:
        template = file_templates(
            schema.model_copy(update={"samples": SamplesSpec(files=(fit.files,))})
        )[0]
        described = {path for path in listing.entries.paths if template.match(path) is not None}
    notes = [*_undescribed_notes(listing, described), *notes, *look.notes]
    kept = (
        f"{pluralize(len(described), 'file')} of its "
        f"layout{', under other names' if fit.files else ''}"
    )
    works = (
        "" if fit.files or guesses else f"; datacheck scan DATA --schema {fit.name} works as it is"
    )
    fields = {name: found.spec for name, found in guesses.items()}
    said = {
        "datacheck": 1,
        "name": f"my_{fit.name}",
        "samples": {"files": fit.files or "*"},
        "fields": fields,
    }
    lines = dump_schema(Schema.model_validate(said)).rstrip("\n").split("\n")
    lines = [line for line in lines if fit.files or not line.startswith("samples:")]
    place = next(i for i, line in enumerate(lines) if line.startswith("name:")) + 1
    lines = list(_commented(lines, guesses, "all files of that ending"))
    lines.insert(place, f"extends: {fit.name}    {_MARK}: {kept}{works}")
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
        _NEXT_TO_NOTHING * sum(of[e] for e in data) <= sum(of[e] for e in pictures)
        for of in (numbers, sizes)
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
    main = (
        _profile_files(_any_field_schema({**head, "samples": {"files": pattern}}), listing).fields
        if kinds
        else {}
    )
    found = list[tuple[list[str], str]]()
    for ending, paths in sorted(kinds.items()):
        (text,) = patterns([(paths, ending)])
        fields = _profile_files(
            _any_field_schema({**head, "samples": {"files": text}}), listing
        ).fields
        if (
            fields
            and main.keys() == fields.keys()
            and all(_same_kind(seen, fields[name]) for name, seen in main.items())
        ):
            found.append((paths, text))
    return found


def _same_kind(one: FieldProfile, other: FieldProfile) -> bool:
    """Tell whether fields are alike; arrays of several widths are tables of several kinds."""
    written = bool({"text", "json"} & one.dtypes.keys())
    return one.like(other) and (written or (one.item is not None and one.item == other.item))


def _ending(path: str) -> str:
    """Return the ending of a path in its own spelling, because patterns are case-sensitive."""
    found = format_of(path)
    name = unnumbered(path)
    known = (s for s in (found.suffixes if found else ()) if name.lower().endswith(s))
    return name[-len(next(known, PurePosixPath(path).suffix)) or len(path) :] + NUMBER * (
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
    found = Counter(
        "" if inner.startswith(RECORDS) else inner
        for inner in _inner_patterns(root, paths).values()
    )
    own = [text for text in found if text.count("/") == 1 and not text.endswith("*")]
    # Each file has one group under a name of its own.
    if len(own) > 1 and len(own) == found.total():
        return "/*"
    for text in own:
        del found[text]
    return found.most_common(1)[0][0] if found else ""


def _inner_patterns(root: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return the pattern of the samples inside each readable file; see `profile.inner_groups`."""
    task = {"root": str(root.absolute()), "items": [{"path": path} for path in paths]}
    found: dict[str, str] = {}
    for outcome in ordered_map(
        _GROUPS, [task], limits=Limits(item_s=30), sandbox=sandbox_of(root, {})
    ):
        for payload in outcome.payloads:
            found |= payload["found"]
    return found


def _any_field_schema(said: Mapping[str, Any]) -> Schema:
    """Return a schema that says only where the samples are, and reads all fields."""
    return Schema.model_validate({**said, "fields": {"*": {}}})


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
    taken = dict[str, str]()
    for outcome in ordered_map(_LOOK, [task], sandbox=sandbox_of(listing.root, {})):
        unread += [f"{death.item['path']}: {death.how}".splitlines()[0] for death in outcome.deaths]
        failed += len(outcome.deaths)
        for payload in outcome.payloads:
            samples += payload["samples"]
            unread += payload["unread"]
            failed += payload["failed"]
            passed.update(payload["passed"])
            taken |= payload["taken"]
            found = {
                name: FieldProfile(**seen)
                for name, seen in payload["fields"].items()
                if name not in fields
            }
            for seen in found.values():
                seen.thinned |= len(chosen) < (files or len(items))
            fields |= found
    # "" names no field.
    few = {name for name, seen in fields.items() if not name or 2 * seen.samples < samples}
    odd = sorted(name for name in few if not _is_stored(name, fields[name]))
    kept = {name: seen for name, seen in fields.items() if name not in odd}
    return SampleProfile(kept, samples, unread[:3], failed, sorted(passed), taken, odd)


def _is_stored(name: str, seen: FieldProfile) -> bool:
    """Tell whether a cache can hold a field of such a name and shape."""
    parts = [quote(part, errors="surrogatepass") for part in name.split("/")]
    short = (
        all(0 < len(part) <= _NAME for part in parts)
        and sum(map(len, parts)) <= _PATH
        and "\0" not in name
    )
    return short and 0 not in (seen.item or ()) and max(map(int, seen.ndims), default=0) < _AXES


# --------------------------------------------------------------------------------------------- text


def _finished_draft(
    said: Mapping[str, Any],
    guesses: Mapping[str, Guess],
    samples: int,
    notes: Sequence[str],
    why: str,
) -> Draft:
    if exceeded := exceeded_limit(guesses):
        guesses = {ANY: Guess({}, (exceeded,))}
    fields = {name: found.spec for name, found in guesses.items()}
    schema = Schema.model_validate({**said, "fields": fields})
    made = f"Drafted by datacheck init from {pluralize(samples, 'sample')}."
    lines = [
        f"# {made} What is marked {_MARK!r} is a guess: read it, mend it.",
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
