"""Drafts a schema for ``datacheck init``.

`draft` tries the shapes that a dataset can have, the most specific first: a parallel corpus, the
layout of a built-in schema, samples of several files, records in JSON lists, and one kind of file
with a sample in each file or inside the files. The first shape that fits most of the data is
profiled (`profiling`), its fields are guessed (`guess`), and the schema is written (`writing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.formats.base import format_of
from datacheck.formats.tfrecord import INFO, SHARD_LENGTH
from datacheck.infer.axes import Axis, name_axes
from datacheck.infer.base import Guess
from datacheck.infer.data_files import (
    ACCOMPANYING,
    JSON_LINES,
    OUTWEIGHED,
    PICTURES,
    DataFiles,
    ending_of,
    without_placeholders,
)
from datacheck.infer.extending import draft_extending
from datacheck.infer.guess import UNTYPED, guess, inner_samples
from datacheck.infer.parts import Part, group_files, identifier
from datacheck.infer.point_table import guess_point_table
from datacheck.infer.profile import FieldProfile
from datacheck.infer.profiling import (
    MOST_FILES,
    MOST_SAMPLES,
    MOST_SHOWN,
    SampleProfile,
    any_field_schema,
    evenly_spaced,
    find_inner_samples,
    profile_files,
)
from datacheck.infer.roles import names_role
from datacheck.infer.texts import guess_preferences
from datacheck.infer.worker import GROUPS, LINES, RECORDS, InnerSamples
from datacheck.infer.writing import Draft, any_files_text, write_draft
from datacheck.rules.base import first_few, pluralize
from datacheck.scan.suggest import Corpus, corpus_of, patterns, unreadable
from datacheck.sources.listing import Listing, list_files, target

# JSON documents that are looked into, and that a schema names one by one.
_MOST_DOCUMENTS = 200
# Mean number of records of a JSON list from which on they are samples. Fewer are rather the steps
# of one sample.
_FEWEST_RECORDS = 20
# Files that are looked into for samples inside.
_FEW_FILES = 5
# Endings that the reason of a draft names, with their share of the bytes.
_SHOWN_KINDS = 3
# Letters of the ending of a language: "de", but not "src".
_LANGUAGE_LETTERS = 2


def draft(data: Path) -> Draft:
    """Draft a schema for a folder or file.

    Raises:
        UsageError: the data are missing, or no format reads any of them.
    """
    root, only = target(data)
    listing = list_files(root, {}, only)
    readable = tuple(path for path in listing.entries.paths if format_of(path) is not None)
    files = DataFiles(data, listing, readable)
    corpus_draft = _draft_corpus(files)
    if corpus_draft is not None:
        return corpus_draft
    if not readable:
        raise UsageError(unreadable(data, listing))
    extending_draft = draft_extending(files)
    if extending_draft is not None:
        return extending_draft
    # Empty files say nothing, so they count only if there are no others.
    files = files.nonempty()
    return _draft_parts(files) or _draft_records(files) or _draft_main_kind(files)


# ------------------------------------------------------------------------------- a parallel corpus


def _draft_corpus(files: DataFiles) -> Draft | None:
    """Return a draft of a parallel corpus, None if there is none or most data are other files."""
    listing = files.listing
    corpus = corpus_of(listing.entries.paths, partial(_count_lines, listing.root))
    if corpus is None or files.size(corpus.paths) < files.size(files.readable):
        return None
    main_side = next(iter(corpus.sides))
    guesses = {side: _guess_side(side, main_side, corpus) for side in sorted(corpus.sides)}
    head = files.head(files=corpus.sides[main_side], each="row")
    sides = first_few(sorted(corpus.sides), MOST_SHOWN)
    why = f"the lines of files of one name correspond: {sides}"
    notes = files.notes(set(corpus.paths))
    return write_draft(
        _with_guessed_patterns(head, files, corpus.paths), guesses, corpus.lines, notes, why
    )


def _count_lines(root: Path, paths: Sequence[str]) -> dict[str, int]:
    """Return the number of lines by path, without files that are not text."""
    inner = find_inner_samples(root, paths)
    return {path: samples.count for path, samples in inner.items() if samples.kind == LINES}


def _guess_side(side: str, main_side: str, corpus: Corpus) -> Guess:
    """Return the guess for the texts of one language of a corpus."""
    spec: dict[str, Any] = {"at": LINES, "role": "text"}
    if side != main_side:
        spec["file"] = corpus.sides[side]
    if side in corpus.optional:
        return Guess(spec | {"optional": True}, ("some texts have none",))
    is_language = len(side) <= _LANGUAGE_LETTERS
    return Guess(spec, ("language from the ending" if is_language else "from the ending",))


# ------------------------------------------------------------------------ samples of several files


@dataclass(frozen=True)
class _PartField:
    """A field of one part of multi-file samples, and where the schema finds it."""

    part: Part
    profile: FieldProfile
    location: dict[str, Any]


def _draft_parts(files: DataFiles) -> Draft | None:
    """Return a draft of samples of several files each, None where each file is rather a sample.

    The samples' own file is the largest; the fields of the other files have a ``file``.
    """
    listing = files.listing
    profiles = {part: _profile_part(part, files) for part in group_files(files.readable)}
    parts = [part for part, profile in profiles.items() if profile.fields]
    if len(parts) < 2 or not _hold_different_fields(parts, profiles):
        return None
    if any(_holds_samples(part, listing) for part in parts):
        return None
    main = min(parts, key=partial(_rank, parts, files))
    fields, ambiguous = _locate_fields(parts, main, profiles)
    axes = name_axes({name: field.profile for name, field in fields.items()}, episodes=False)
    guesses = {}
    for name, field in sorted(fields.items()):
        hint = f"{files.name} {field.part.pattern}"
        declared = guess(name, field.profile, axes, profiles[field.part].samples, hint)
        guesses[name] = Guess(field.location).plus(declared)
    described = {path for part in parts for path in part.paths}
    notes = files.notes(described)
    if ambiguous:
        names = first_few(ambiguous, MOST_SHOWN)
        notes.append(f"left out, as at: means something else by such a name: {names}")
    for profile in profiles.values():
        notes += profile.notes
    return write_draft(
        _with_guessed_patterns(files.head(files=main.pattern), files, described),
        guesses,
        max(profiles[part].samples for part in parts),
        notes,
        f"{len(main.paths):,} samples of {len(parts)} files each",
    )


def _profile_part(part: Part, files: DataFiles) -> SampleProfile:
    schema = any_field_schema(files.head(files=part.pattern))
    paths = evenly_spaced(part.complete, MOST_FILES)
    entries = files.listing.entries
    some = entries.take(np.array([entries.find(path) for path in paths]))
    return profile_files(schema, replace(files.listing, entries=some), len(part.paths))


def _hold_different_fields(parts: Sequence[Part], profiles: Mapping[Part, SampleProfile]) -> bool:
    """Tell whether the files of a sample differ in their fields, or in the roles of their names."""
    first, *others = (profiles[part].fields for part in parts)
    if any(_differ(first, other) for other in others):
        return True
    return len(first) == 1 and sum(names_role(part.name) for part in parts) > 1


def _differ(fields: Mapping[str, FieldProfile], others: Mapping[str, FieldProfile]) -> bool:
    if len(fields) != len(others):
        return True
    # The only field of a file has its name from the format or the file.
    if len(fields) > 1 and fields.keys() != others.keys():
        return True
    pairs = zip(sorted(fields), sorted(others), strict=True)
    return any(not fields[name].is_like(others[other_name]) for name, other_name in pairs)


def _holds_samples(part: Part, listing: Listing) -> bool:
    """Tell whether the files of a part hold many samples each."""
    ending = ending_of(part.paths[0])
    if ending.lower() in ACCOMPANYING:
        return False
    return _guess_each(listing.root, ending, part.paths) != ""


def _rank(parts: Sequence[Part], files: DataFiles, part: Part) -> tuple[Any, ...]:
    """Return a sort key: the part with the lowest is the samples' own file."""
    # The pattern of this part then matches the files of another part, too.
    is_overlapping = any(
        other.ending != part.ending and other.ending.endswith(part.ending) for other in parts
    )
    is_accompanying = ending_of(part.paths[0]).lower() in ACCOMPANYING
    size = files.size(evenly_spaced(part.paths, MOST_SAMPLES))
    return part.optional, is_overlapping, is_accompanying, -size, part.name


def _locate_fields(
    parts: Sequence[Part], main: Part, profiles: Mapping[Part, SampleProfile]
) -> tuple[dict[str, _PartField], list[str]]:
    """Return the fields of all parts by name, and the names that ``at:`` would misunderstand."""
    fields: dict[str, _PartField] = {}
    ambiguous: list[str] = []
    # Parts with one array come first: the array gets the part's name.
    for part in sorted(
        parts, key=lambda member: (len(profiles[member].fields) > 1, member is not main)
    ):
        has_several = len(profiles[part].fields) > 1
        for inner_name, profile in profiles[part].fields.items():
            wanted = inner_name if has_several or not part.name else part.name
            name = _free_name(part, wanted, inner_name, fields)
            location: dict[str, Any] = {} if part is main else {"file": part.pattern}
            if has_several and (part is not main or name != inner_name):
                if _is_ambiguous_at(inner_name, part.pattern):
                    ambiguous.append(inner_name)
                    continue
                location["at"] = inner_name
            if part.optional:
                location["optional"] = True
            fields[name] = _PartField(part, profile, location)
    return fields, ambiguous


def _free_name(part: Part, name: str, inner_name: str, taken: Container[str]) -> str:
    """Return an unused name for a field."""
    prefix = part.name or identifier(part.ending)
    while name in taken or name == "*":  # "*" stands for fields that are not listed
        name = f"{prefix}_{inner_name}"
        inner_name += "_"
    return name


def _is_ambiguous_at(name: str, pattern: str) -> bool:
    """Tell whether ``at:`` takes a name for a sample attribute or for a placeholder."""
    # In XML, "@name" is a value.
    is_attribute = name.startswith("@") and not pattern.lower().endswith(".xml")
    return is_attribute or "{" in name or "}" in name


# ----------------------------------------------------------------------------- records in JSON lists


def _draft_records(files: DataFiles) -> Draft | None:
    """Return a draft of records in JSON lists and JSON lines.

    None where these are not most of the data.
    """
    documents = [path for path in files.readable if path.lower().endswith(".json")]
    lines = [path for path in files.readable if path.lower().endswith(JSON_LINES)]
    if not documents or len(documents) > _MOST_DOCUMENTS:
        return None
    if not files.are_half([*documents, *lines]):
        return None
    inner = find_inner_samples(files.listing.root, documents)
    records = _record_lists(inner, files)
    if not records:
        return None
    # Damaged documents are included, so that a scan reports them.
    records += [path for path in documents if path not in inner]
    paths = sorted([*records, *lines])
    if not files.are_half(paths):
        return None
    described = _record_patterns(paths, has_other_documents=len(records) < len(documents))
    if not described:
        return None
    head = files.head(files=described, each="line")
    why = (
        f"{pluralize(len(paths), 'file')}, each {'line or ' if lines else ''}element of which "
        f"looks like a sample"
    )
    profile = profile_files(any_field_schema(head), files.listing)
    return _draft_profiled(
        head, files, paths, profile, why, hint=f"{files.name} {described[0]}", episodes=False
    )


def _record_lists(inner: Mapping[str, InnerSamples], files: DataFiles) -> list[str]:
    """Return the documents that are lists of many records.

    Small ones count only if they share a key with the large ones.
    """
    lists = {path: samples for path, samples in inner.items() if samples.kind == RECORDS}
    if sum(samples.count for samples in lists.values()) < _FEWEST_RECORDS * len(lists):
        return []
    sizes = {path: files.size([path]) for path in lists}
    largest = max(sizes.values(), default=0)
    large = {path for path, size in sizes.items() if OUTWEIGHED * size >= largest}
    common = {key for path in large for key in lists[path].keys}
    return sorted(path for path in lists if path in large or common.intersection(lists[path].keys))


def _record_patterns(paths: list[str], *, has_other_documents: bool) -> list[str]:
    """Return the patterns of records, or else their paths; [] if they cannot be listed."""
    paths_by_ending = {
        ending: [path for path in paths if path.lower().endswith(ending)]
        for ending in (".json", *JSON_LINES)
    }
    kinds = [(members, ending) for ending, members in paths_by_ending.items() if members]
    has_lower_endings = all(path.endswith(end) for members, end in kinds for path in members)
    described = [without_placeholders(pattern) for pattern in patterns(kinds)]
    if described and has_lower_endings and not has_other_documents:
        return described
    # No pattern fits all of them, or it would match other documents, or miss capital endings.
    has_signs = any(not set(path).isdisjoint("{}*?[]") for path in paths)
    return [] if has_signs or len(paths) > _MOST_DOCUMENTS else paths


# ----------------------------------------------------------------------------------- one kind of file


@dataclass(frozen=True)
class _MainFiles:
    """The files of the main kind.

    Args:
        ending: of most of them.
        paths: of all of them.
        pattern: of the files with this ending.
        patterns: of all of them, as a schema names them.
        why: the reason for them.
    """

    ending: str
    paths: list[str]
    pattern: str
    patterns: str | list[str]
    why: str


def _draft_main_kind(files: DataFiles) -> Draft:
    """Return a draft of one kind of file, or of all files where no kind is the data alone."""
    main = _find_main_files(files)
    head = files.head(files=main.patterns)
    each = _guess_each(files.listing.root, main.ending, main.paths)
    if each:
        head["samples"]["each"] = each
    head |= _stated_counts(main.ending, files.listing)
    profile = profile_files(any_field_schema(head), files.listing)
    why = main.why
    inner = ""
    if not each and not _are_tables_of_several_kinds(profile):
        inner = inner_samples(profile.fields, len(main.paths), main.ending)
    if inner:
        head["samples"]["each"] = inner
        why += f", each {'row' if inner == 'row' else 'element'} of which looks like a sample"
        profile = profile_files(any_field_schema(head), files.listing)
    if not each and not inner and _are_few(main, files, profile):
        return _draft_any_files(files, profile)
    has_episodes = "demo" in each or "episode" in each
    hint = f"{files.name} {main.pattern}"
    return _draft_profiled(head, files, main.paths, profile, why, hint=hint, episodes=has_episodes)


def _find_main_files(files: DataFiles) -> _MainFiles:
    ending, paths = files.main_kind()
    (pattern,) = patterns([(paths, ending)])
    depths = len({path.count("/") for path in paths})
    if depths > 1:
        why = f"{len(paths):,} files at {depths} depths"
        return _MainFiles(ending, sorted(paths), pattern, pattern, why)
    similar = _similar_kinds(files, ending, pattern)
    all_paths = sorted([*paths, *(path for members in similar.values() for path in members)])
    why = pluralize(len(all_paths), "file")
    if not similar:
        return _MainFiles(ending, all_paths, pattern, pattern, why)
    # Without placeholders, because one name with two endings would be two samples of one name.
    all_patterns = [without_placeholders(text) for text in (pattern, *similar)]
    return _MainFiles(ending, all_paths, pattern, all_patterns, why)


def _similar_kinds(files: DataFiles, ending: str, pattern: str) -> dict[str, list[str]]:
    """Return the files with other endings but the fields of the main kind, by pattern."""
    if ending.lower() in ACCOMPANYING:
        return {}
    main_format = format_of(f"x{ending}")
    kinds: dict[str, list[str]] = {}
    for path in files.readable:
        if format_of(path) is main_format and ending_of(path) != ending:
            kinds.setdefault(ending_of(path), []).append(path)
    if not kinds:
        return {}
    main_fields = _fields_of(files, pattern)
    similar = {}
    for other_ending, paths in sorted(kinds.items()):
        (other_pattern,) = patterns([(paths, other_ending)])
        if main_fields and _are_same_fields(main_fields, _fields_of(files, other_pattern)):
            similar[other_pattern] = paths
    return similar


def _fields_of(files: DataFiles, pattern: str) -> dict[str, FieldProfile]:
    return profile_files(any_field_schema(files.head(files=pattern)), files.listing).fields


def _are_same_fields(
    fields: Mapping[str, FieldProfile], others: Mapping[str, FieldProfile]
) -> bool:
    if fields.keys() != others.keys():
        return False
    return all(_is_same_kind(profile, others[name]) for name, profile in fields.items())


def _is_same_kind(profile: FieldProfile, other: FieldProfile) -> bool:
    """Tell whether fields are alike; arrays of several widths are tables of several kinds."""
    is_text = not profile.dtypes.keys().isdisjoint({"text", "json"})
    has_same_width = profile.item is not None and profile.item == other.item
    return profile.is_like(other) and (is_text or has_same_width)


def _guess_each(root: Path, ending: str, paths: Sequence[str]) -> str:
    """Return ``samples.each``: lines, groups or episodes in the files; "" if a file is a sample."""
    if ending.lower() in JSON_LINES:
        return "line"
    inner = find_inner_samples(root, evenly_spaced(paths, _FEW_FILES))
    counts = Counter(
        samples.pattern if samples.kind == GROUPS else "" for samples in inner.values()
    )
    own_names = [text for text in counts if text.count("/") == 1 and not text.endswith("*")]
    # Each file has one group under a name of its own.
    if len(own_names) > 1 and len(own_names) == counts.total():
        return "/*"
    for text in own_names:
        del counts[text]
    return counts.most_common(1)[0][0] if counts else ""


def _stated_counts(ending: str, listing: Listing) -> dict[str, Any]:
    """Return the key that compares record counts with those that TensorFlow Datasets states."""
    is_stated = any(PurePosixPath(path).name == INFO for path in listing.entries.paths)
    if not is_stated or not ending.startswith(".tfrecord"):
        return {}
    return {"attrs": {SHARD_LENGTH: "samples"}}


def _are_tables_of_several_kinds(profile: SampleProfile) -> bool:
    """Tell whether hardly any column is in most files."""
    fields = profile.fields.values()
    return bool(fields) and all(2 * field.samples <= profile.samples for field in fields)


def _are_few(main: _MainFiles, files: DataFiles, profile: SampleProfile) -> bool:
    """Tell whether the files of the main kind are not the data alone."""
    if len(main.paths) == len(files.readable):
        return False
    is_picture = main.ending.lower() in PICTURES
    return is_picture or UNTYPED in profile.fields or not files.are_half(main.paths)


def _draft_any_files(files: DataFiles, profile: SampleProfile) -> Draft:
    """Return a draft that reads all files, each as a sample: no one kind of file is the data."""
    sizes = Counter[str]()
    for path in files.readable:
        sizes[PurePosixPath(path).suffix] += files.size([path])
    total = max(1, sizes.total())
    shares = ", ".join(
        f"{ending} {100 * size / total:.0f} %" for ending, size in sizes.most_common(_SHOWN_KINDS)
    )
    why = (
        f"several kinds of files, none of them the data alone ({shares} of the bytes): each file "
        f"is a sample"
    )
    notes = [*files.notes(set(files.readable)), *profile.notes]
    text = any_files_text(files.name, profile.samples, notes, why)
    return Draft(text, 0, profile.samples, tuple(profile.notes))


# ----------------------------------------------------------------------------------- all shapes


def _draft_profiled(
    head: Mapping[str, Any],
    files: DataFiles,
    paths: Sequence[str],
    profile: SampleProfile,
    why: str,
    *,
    hint: str,
    episodes: bool,
) -> Draft:
    """Return a draft of files of one kind.

    Args:
        head: the keys of the schema before ``fields``.
        files: of the dataset.
        paths: the files that the schema describes.
        profile: of some of these.
        why: the reason for ``samples``.
        hint: names of folder and files, for the guesses.
        episodes: whether samples are episodes.
    """
    if not profile.fields:
        raise UsageError(_no_fields(files.listing.root, len(paths), profile))
    axes = name_axes(profile.fields, episodes=episodes)
    return write_draft(
        _with_guessed_patterns(head, files, paths),
        _guess_fields(profile, axes, hint),
        profile.samples,
        [*files.notes(set(paths)), *profile.notes],
        why,
    )


def _guess_fields(profile: SampleProfile, axes: Mapping[str, Axis], hint: str) -> dict[str, Guess]:
    guesses: dict[str, Guess] = {}
    for name, field in sorted(profile.fields.items()):
        declared = guess(name, field, axes, profile.samples, hint)
        guesses |= guess_point_table(name, field, declared, hint) or {name: declared}
    return guess_preferences(guesses)


def _no_fields(root: Path, count: int, profile: SampleProfile) -> str:
    """Return the message for files without a field."""
    files = pluralize(min(count, MOST_FILES), "file")
    if profile.unread:
        return f"{root}: none of {files} could be read. {'; '.join(profile.unread)}"
    return f"{root}: none of {files} holds a field: they are empty."


def _with_guessed_patterns(
    head: Mapping[str, Any], files: DataFiles, described: Iterable[str]
) -> dict[str, Any]:
    """Return a draft's head; a scan fails by DC113 where its patterns leave out most bytes.

    The patterns are a guess, not a choice of the user.
    """
    if files.are_half(described):
        return dict(head)
    return {**head, "rules": {"DC113": {"left_out": True}}}
