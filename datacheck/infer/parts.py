"""Drafts a schema for samples of several files each: ``0001.points.npy`` with ``0001.label.npy``.

`group_files` splits paths into the name of a sample and the name of a part: the kind of file within
a sample. It tries several ways to split and takes the first in which nearly all samples have the
same parts. `draft_parts` profiles the parts and tells whether each of their files is rather a sample.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from datacheck.infer.axes import name_axes
from datacheck.infer.data_files import ACCOMPANYING, DataFiles, ending_of, is_accompanying
from datacheck.infer.guess import guess, with_picture_boxes
from datacheck.infer.profile import FieldProfile
from datacheck.infer.profiling import (
    MOST_FILES,
    MOST_SAMPLES,
    MOST_SHOWN,
    SampleProfile,
    any_field_schema,
    evenly_spaced,
    guess_each,
    look_into_some,
    profile_files,
)
from datacheck.infer.roles import names_role
from datacheck.infer.suggest import SPLITS, around_split, patterns
from datacheck.infer.writing import Draft, Guess, write_draft
from datacheck.infer.yolo import with_yolo_boxes
from datacheck.rules.base import first_few

# Share of the samples that must have a part, and of the files that must belong to parts. The others
# are a fault that a scan should find.
_NEARLY_ALL = 0.9
# One in so many samples must have an optional part.
_ONE_IN_OPTIONAL = 10
# More kinds of files than a sample has parts.
_MOST_PARTS = 24
# Optional parts with the same fields from which on they are samples of their own.
_FEWEST_RECORDINGS = 2
# Paths that must show parts before all paths are grouped, which takes long for millions of files.
_FIRST_PATHS = 20_000
# Words of a file name that may be the sample's own name.
_MOST_NAME_WORDS = 6
# Levels of folders that are tried: each costs a pass over all paths.
_MOST_LEVELS = 8

# Returns the names of sample and part in a path, None where it has none.
SplitPath = Callable[[str], "tuple[str, str] | None"]


@dataclass(frozen=True, eq=False)
class Part:
    """One kind of file of multi-file samples.

    Args:
        name: its name besides the sample's own name, "" where only the format tells it apart.
        ending: the common end of all its file names.
        paths: of all samples that have it.
        by_sample: the same paths by the name of the sample.
        complete: of the samples that lack only optional parts, or of all samples if there are no
            such samples: their lengths can be compared.
        pattern: of all paths; the values of the placeholders in one part's path give the paths of
            the others.
        optional: more than a few samples lack it.
    """

    name: str
    ending: str
    paths: tuple[str, ...]
    by_sample: Mapping[str, str]
    complete: tuple[str, ...]
    pattern: str = ""
    optional: bool = False


@dataclass(frozen=True)
class _PartField:
    """A field of one part of multi-file samples, and where the schema finds it."""

    part: Part
    profile: FieldProfile
    location: dict[str, Any]


def draft_parts(files: DataFiles) -> Draft | None:
    """Return a draft of samples of several files each, None where each file is rather a sample.

    The samples' own file is the largest; the fields of the other files have a ``file``.
    """
    profiles = {part: _profile_part(part, files) for part in group_files(files.readable)}
    parts = [part for part, profile in profiles.items() if profile.fields]
    if len(parts) < 2 or not _hold_different_fields(parts, profiles):
        return None
    if any(_holds_samples(part, files) for part in parts):
        return None
    alike = _like_recordings(parts, profiles)
    if alike and not _share_lengths(alike, files):
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
        files.with_left_out_check(files.head(files=main.pattern), described),
        with_yolo_boxes(
            with_picture_boxes(guesses),
            {name: field.profile for name, field in fields.items()},
            files,
        ),
        max(profiles[part].samples for part in parts),
        notes,
        f"{len(main.paths):,} samples of {len(parts)} files each",
    )


def _profile_part(part: Part, files: DataFiles) -> SampleProfile:
    return _profile_paths(part, evenly_spaced(part.complete, MOST_FILES), files)


def _profile_paths(part: Part, paths: Sequence[str], files: DataFiles) -> SampleProfile:
    schema = any_field_schema(files.head(files=part.pattern))
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


def _like_recordings(
    parts: Sequence[Part], profiles: Mapping[Part, SampleProfile]
) -> Sequence[Part]:
    """Return the parts of one ending that may be recordings beside a file for all of them, or [].

    ``s1/walk.npy``, ``s1/run.npy``, ``s1/skeleton.txt``: parts with the same fields, several of
    which other samples lack each. Pictures are views of one sample.
    """
    optional = [part for part in parts if part.optional]
    endings = {ending_of(part.paths[0]) for part in optional}
    if len(optional) < _FEWEST_RECORDINGS or len(endings) > 1 or is_accompanying(min(endings)):
        return []
    alike = [part for part in parts if ending_of(part.paths[0]) in endings]
    first, *others = (profiles[part].fields for part in alike)
    if len(alike) == len(parts) or any(_differ(first, other) for other in others):
        return []
    return alike


def _share_lengths(parts: Sequence[Part], files: DataFiles) -> bool:
    """Tell whether the parts of a sample have one length in nearly all samples.

    Joints of one trial do (``s1/hip.npy``, ``s1/knee.npy``), recordings of their own do not. Without
    lengths to compare, the answer is yes.
    """
    counts = Counter(sample for part in parts for sample in part.by_sample)
    samples = evenly_spaced(sorted(s for s, count in counts.items() if count > 1), MOST_FILES)
    lengths: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for part in parts:
        sample_of = {part.by_sample[s]: s for s in samples if s in part.by_sample}
        if not sample_of:
            continue
        profile = _profile_paths(part, sorted(sample_of), files)
        columns = [field.lengths for field in profile.fields.values() if field.lengths]
        # A file that could not be read leaves it open which length is whose.
        if any(len(column) != len(sample_of) for column in columns):
            continue
        for path, *sizes in zip(sorted(sample_of), *columns, strict=True):
            lengths[sample_of[path]].add(tuple(sizes))
    agree = sum(len(sizes) == 1 for sizes in lengths.values())
    return agree >= _NEARLY_ALL * len(lengths)


def _holds_samples(part: Part, files: DataFiles) -> bool:
    """Tell whether the files of a part hold many samples each."""
    ending = ending_of(part.paths[0])
    if ending.lower() in ACCOMPANYING:
        return False
    inner = look_into_some(files.listing.root, ending, part.paths)
    return guess_each(ending, part.paths, inner) != ""


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
    prefix = part.name or _identifier(part.ending)
    while name in taken or name == "*":  # "*" stands for fields that are not listed
        name = f"{prefix}_{inner_name}"
        inner_name += "_"
    return name


def _is_ambiguous_at(name: str, pattern: str) -> bool:
    """Tell whether ``at:`` takes a name for a sample attribute or for a placeholder."""
    # In XML, "@name" is a value.
    is_attribute = name.startswith("@") and not pattern.lower().endswith(".xml")
    return is_attribute or "{" in name or "}" in name


# --------------------------------------------------------------------------------------- grouping


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
    for split_path, is_adjacent in _ways_to_split(paths):
        if is_adjacent and not _find_parts(_group(paths[:_FIRST_PATHS], split_path)):
            continue
        groups = _group(paths, split_path)
        parts = _find_parts(groups)
        covered = sum(len(part.paths) for part in parts)
        if len(groups) < 2 or covered < _NEARLY_ALL * len(paths) or _are_splits(groups, parts):
            continue
        part_patterns = patterns([(part.paths, part.ending) for part in parts])
        if part_patterns:
            return [
                replace(part, pattern=pattern)
                for part, pattern in zip(parts, part_patterns, strict=True)
            ]
    return []


def _ways_to_split(paths: Sequence[str]) -> Iterator[tuple[SplitPath, bool]]:
    """Yield ways to split a path into sample name and part name.

    Each comes with whether the files of a sample are then next to each other in the listing.
    """
    yield _split_by_folder, True
    for words in range(_MOST_NAME_WORDS, 0, -1):
        yield partial(_split_by_words, words=words), True
    # A second dot may be in the sample's name, or in the ending.
    has_two_dots = any(path.rpartition("/")[2].count(".") > 1 for path in paths)
    for level in _levels_of_parts(paths):
        yield partial(_split_by_level, level=level, split_name=str.partition), False
        if has_two_dots:
            yield partial(_split_by_level, level=level, split_name=str.rpartition), False
    for level in _levels_of_parts(paths):
        yield partial(_split_by_split, level=level), False


def _levels_of_parts(paths: Sequence[str]) -> list[int]:
    """Return the levels whose folders can be parts: few names that hold nearly all files."""
    names: dict[int, Counter[str]] = defaultdict(Counter)
    for path in paths:
        for level, name in enumerate(path.split("/")[:-1]):
            names[level][name] += 1
    few = [
        level
        for level, counts in sorted(names.items())
        if sum(count for _, count in counts.most_common(_MOST_PARTS)) >= _NEARLY_ALL * len(paths)
    ]
    return few[:_MOST_LEVELS]


def _split_by_folder(path: str) -> tuple[str, str] | None:
    """Split ``scene1/points.npy``: the folder is the sample."""
    folder, slash, name = path.rpartition("/")
    return (folder, slash + name) if slash else None


def _split_by_words(path: str, words: int) -> tuple[str, str] | None:
    """Split ``scene_1_points.npy``: the first words of the file name are the sample."""
    folder, slash, name = path.rpartition("/")
    word_ends = [match.start() for match in re.finditer(r"[._-]", name)]
    if len(word_ends) < words:
        return None
    end = word_ends[words - 1]
    return folder + slash + name[:end], name[end:]


def _split_by_level(
    path: str, level: int, split_name: Callable[[str, str], tuple[str, str, str]]
) -> tuple[str, str] | None:
    """Split ``points/scene1.npy``: a folder is the part, the other names are the sample."""
    *folders, name = path.split("/")
    if level >= len(folders):
        return None
    stem, dot, ending = split_name(name, ".")
    sample = [*folders[:level], *folders[level + 1 :], stem]
    return "/".join(sample), f"{folders[level]}/{dot}{ending}"


def _split_by_split(path: str, level: int) -> tuple[str, str] | None:
    """Split ``trainannot/scene1.png``: beside the name of a split, a folder names the part."""
    *folders, name = path.split("/")
    around = around_split(folders[level]) if level < len(folders) else None
    if around is None:
        return None
    before, after, split = around
    stem, dot, ending = name.partition(".")
    sample = [*folders[:level], split, *folders[level + 1 :], stem]
    return "/".join(sample), f"{before}{after}/{dot}{ending}"


def _group(paths: Sequence[str], split_path: SplitPath) -> dict[str, dict[str, str]]:
    """Return the paths by sample name and part name."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        names = split_path(path)
        if names is not None:
            sample, part = names
            groups[sample].setdefault(part, path)
    return groups


def _are_splits(groups: Mapping[str, Mapping[str, str]], parts: Sequence[Part]) -> bool:
    """Tell whether the samples, or some parts, are named like splits."""
    sample_names = {sample.rpartition("/")[2] for sample in groups}
    return sample_names <= SPLITS or any(part.name in SPLITS for part in parts)


def _find_parts(groups: Mapping[str, Mapping[str, str]]) -> list[Part]:
    """Return the parts of grouped paths, still without patterns; [] if these are no samples."""
    paths_by_part: dict[str, list[str]] = defaultdict(list)
    for group in groups.values():
        for part, path in group.items():
            paths_by_part[part].append(path)
    counts = {part: len(paths) for part, paths in sorted(paths_by_part.items())}
    fewest = ceil(_NEARLY_ALL * len(groups))
    required = [part for part, count in counts.items() if count >= fewest]
    optional = [part for part, count in counts.items() if _is_optional(count, len(groups), fewest)]
    parts = [*required, *optional]
    if len(required) < 2 or len(parts) > _MOST_PARTS or not _differ_in_letters(parts):
        return []
    complete = [group for group in groups.values() if group.keys() >= set(required)]
    comparable = complete or list(groups.values())
    return [
        Part(
            name,
            part.rpartition("/")[2],
            tuple(sorted(paths_by_part[part])),
            {sample: group[part] for sample, group in groups.items() if part in group},
            tuple(sorted(group[part] for group in comparable if part in group)),
            optional=part in optional,
        )
        for part, name in _short_names(parts).items()
    ]


def _is_optional(count: int, samples: int, fewest: int) -> bool:
    return count > 1 and samples / _ONE_IN_OPTIONAL <= count < fewest


def _differ_in_letters(parts: Sequence[str]) -> bool:
    """Tell whether parts have different names even without digits: others are steps or views."""
    names = {re.sub(r"[\d._/-]+", " ", part).strip() for part in parts}
    return len(names) == len(parts) and "" not in names


def _short_names(parts: Sequence[str]) -> dict[str, str]:
    """Return a name by part: without its ending where the ending does not tell parts apart."""
    stems = {part: _identifier(part.rpartition(".")[0]) for part in parts}
    used = list(stems.values())
    return {
        part: stem if not stem or used.count(stem) == 1 else _identifier(part)
        for part, stem in stems.items()
    }


def _identifier(text: str) -> str:
    """Return a text with an underscore in place of other signs."""
    return re.sub(r"\W+", "_", text).strip("_")
