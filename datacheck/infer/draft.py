"""Drafts a schema for ``datacheck init``.

`draft` tries the shapes that a dataset can have, the most specific first: a parallel corpus, the
layout of a built-in schema, files of tokens, records that name files, samples of several files,
records in JSON lists, and one kind of file with a sample in each file or inside the files. The first
shape that fits most of the data is profiled (`profiling`), its fields are guessed (`guess`), and the
schema is written (`writing`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from datacheck.errors import UsageError
from datacheck.formats.tfrecord import INFO, SHARD_LENGTH
from datacheck.infer.data_files import (
    ACCOMPANYING,
    JSON_LINES,
    OUTWEIGHED,
    PICTURES,
    DataFiles,
    without_placeholders,
)
from datacheck.infer.extending import draft_extending
from datacheck.infer.file_records import draft_file_records
from datacheck.infer.guess import UNTYPED, guess_fields, inner_samples, table_guesses
from datacheck.infer.inner_samples import LINES, RECORDS, WORDS, InnerSamples
from datacheck.infer.parts import draft_parts
from datacheck.infer.profiling import (
    MOST_FILES,
    MOST_SHOWN,
    SampleProfile,
    any_field_schema,
    find_inner_samples,
    guess_each,
    look_into_some,
    profile_files,
)
from datacheck.infer.suggest import SPLITS, Corpus, corpus_of, patterns, unreadable
from datacheck.infer.writing import Draft, Guess, any_files_text, write_draft
from datacheck.rules.base import first_few, pluralize
from datacheck.schema.model import Schema
from datacheck.schema.patterns import PATTERN_SIGNS

# JSON documents that are looked into, and that a schema names one by one.
_MOST_DOCUMENTS = 200
# Mean number of records of a JSON list from which on they are samples. Fewer are rather the steps
# of one sample.
_FEWEST_RECORDS = 20
_SENTENCE_FIELDS = {"words", "tags"}  # of a file in which they stand in columns
# Keys of records that are chats.
_CHAT_KEYS = frozenset({"conversations", "messages"})
# Endings that the reason of a draft names, with their share of the bytes.
_SHOWN_KINDS = 3
# The file in which nanoGPT states the vocabulary, the size to which it pads that of GPT-2, and the
# fewest ids of a vocabulary.
_TOKENS_ABOUT = "meta.pkl"
_GPT_2 = 50_304
_FEWEST_IDS = 16
# Name of the numbers of a text file, and of files that list the names of classes.
_ONE_TABLE = "table"
# A step in time that no track has, in usual steps.
_NEVER = 1_000_000
_CLASS_LISTS = r"label|class|categor|names"
# Letters of the ending of a language: "de", but not "src".
_LANGUAGE_LETTERS = 2


def draft(data: Path) -> Draft:
    """Draft a schema for a folder or file.

    Raises:
        UsageError: the data are missing, or no format reads any of them.
    """
    files = DataFiles.of(data)
    corpus_draft = _draft_corpus(files)
    if corpus_draft is not None:
        return corpus_draft
    if not files.readable:
        raise UsageError(unreadable(data, files.listing))
    extending_draft = draft_extending(files)
    if extending_draft is not None:
        return extending_draft
    tokens_draft = _draft_token_files(files)
    if tokens_draft is not None:
        return tokens_draft
    # Empty files say nothing, so they count only if there are no others.
    files = files.nonempty()
    by_record, notes = draft_file_records(files)
    if by_record is not None:
        return by_record
    # A document that no rule can judge is no sample: the scan then says that it was not used.
    files = files.without(notes)
    other = draft_parts(files) or _draft_records(files) or _draft_main_kind(files)
    reasons = (f"not described: {path}: {reason}" for path, reason in notes.items())
    return replace(other, notes=(*other.notes, *reasons))


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
        files.with_left_out_check(head, corpus.paths), guesses, corpus.lines, notes, why
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


# ---------------------------------------------------------------------------------- files of tokens


def _draft_token_files(files: DataFiles) -> Draft | None:
    """Return a draft of token ids as nanoGPT writes them: ``train.bin`` of uint16, ``meta.pkl``.

    None where the names, or numbers above the vocabulary in most files, say otherwise.
    """
    paths = [path for path in files.readable if PurePosixPath(path).suffix == ".bin"]
    stems = {PurePosixPath(path).stem for path in paths}
    folders = {PurePosixPath(path).parent for path in paths}
    if (
        "train" not in stems
        or not stems <= SPLITS
        or len(folders) != 1
        or not files.are_half(paths)
    ):
        return None
    about = str(folders.pop() / _TOKENS_ABOUT)
    vocabulary, why = _GPT_2, "GPT-2's, as nanoGPT pads it"
    if about in files.readable:
        head = files.head(files=about)
        stated = profile_files(any_field_schema(head), files.listing).fields.get("vocab_size")
        if stated is not None and stated.whole and stated.low == stated.high:
            vocabulary, why = int(stated.high or 0), f"vocab_size of {_TOKENS_ABOUT}"
    if vocabulary < _FEWEST_IDS:
        return None
    (pattern,) = patterns([(paths, ".bin")])
    # Two ids of 16 bits are a large one of 32. A file that does not fit the others is a fault that a
    # scan should find.
    fitting = {
        dtype: sum(_largest(path, dtype, files) < vocabulary for path in paths)
        for dtype in ("uint32", "uint16")
    }
    dtype = max(fitting, key=lambda name: fitting[name])
    if 2 * fitting[dtype] < len(paths):
        return None
    ids = {"role": "tokens", "shape": ["N"], "dtype": dtype}
    head = {**files.head(files=pattern), "tokenizer": {"vocab": vocabulary}}
    guess = Guess(ids, ("named as files of tokens", f"a vocabulary of {vocabulary:,} ids ({why})"))
    return write_draft(
        head,
        {"tokens": guess},
        len(paths),
        files.notes({*paths, about}),
        f"{pluralize(len(paths), 'file')} of token ids",
    )


def _largest(path: str, dtype: str, files: DataFiles) -> float:
    """Return the largest number of a file of this type, infinity if none can be read."""
    fields = {"tokens": {"role": "tokens", "shape": ["N"], "dtype": dtype}}
    schema = Schema.model_validate({**files.head(files=path), "fields": fields})
    profile = profile_files(schema, files.listing).fields.get("tokens")
    return math.inf if profile is None or profile.high is None else profile.high


# ----------------------------------------------------------------------------- records in JSON lists


def _draft_records(files: DataFiles) -> Draft | None:
    """Return a draft of records in JSON lists and JSON lines.

    None where these are not most of the data. Pictures, videos and sounds beside chats do not count:
    the chats name them.
    """
    documents = [path for path in files.readable if path.lower().endswith(".json")]
    lines = [path for path in files.readable if path.lower().endswith(JSON_LINES)]
    if not documents or len(documents) > _MOST_DOCUMENTS:
        return None
    without_media = files.without_media()
    if not without_media.are_half([*documents, *lines]):
        return None
    inner = find_inner_samples(files.listing.root, documents)
    records = _record_lists(inner, files)
    if not records:
        return None
    has_chats = any(_CHAT_KEYS.intersection(inner[path].keys) for path in records)
    files = without_media if has_chats else files
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
    has_signs = any(PATTERN_SIGNS.intersection(path) for path in paths)
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
    looked_into = look_into_some(files.listing.root, main.ending, main.paths)
    by_table = _draft_number_tables(files, main, looked_into)
    if by_table is not None:
        return by_table
    each = guess_each(main.ending, main.paths, looked_into)
    if each:
        head["samples"]["each"] = each
    head |= _stated_counts(main.ending, files)
    profile = profile_files(any_field_schema(head), files.listing)
    why = main.why
    inner = ""
    if not each and not profile.has_several_tables:
        inner = inner_samples(profile.fields, len(main.paths), main.ending)
    if inner:
        head["samples"]["each"] = inner
        why += f", each {'row' if inner == 'row' else 'element'} of which looks like a sample"
        profile = profile_files(any_field_schema(head), files.listing)
    if each == "line" and profile.fields.keys() >= _SENTENCE_FIELDS:
        # Short sentences recur in any corpus.
        head |= {"duplicates": {"exact": "info"}, "rules": {"DC801": "warning"}}
        why += ", each sentence of which is a sample"
    if not each and not inner and _are_few(main, files, profile):
        return _draft_any_files(files, profile)
    has_episodes = "demo" in each or "episode" in each
    hint = f"{files.name} {main.pattern}"
    return _draft_profiled(head, files, main.paths, profile, why, hint=hint, episodes=has_episodes)


def _draft_number_tables(
    files: DataFiles, main: _MainFiles, looked_into: Mapping[str, InnerSamples]
) -> Draft | None:
    """Return a draft of tables of numbers whose rows are samples or points of tracks, or None.

    Most of the tables must be alike. Of a few files, those of the most bytes that are alike count:
    the names of the classes, or a table of another kind, may lie beside them.
    """
    tables = _alike_tables(files, main, looked_into)
    if tables is None:
        return None
    alike, described, patterns_or_paths = tables
    each, columns = looked_into[alike[0]].pattern, looked_into[alike[0]].columns
    head = files.head(files=patterns_or_paths, each=each)
    profile = profile_files(any_field_schema(head), files.listing)
    if _ONE_TABLE not in profile.fields:
        return None
    classes = sorted({number for path in alike for number in looked_into[path].classes})
    names = _count_class_names(alike, looked_into) if classes else 0
    if names:
        classes = list(range(classes[0], classes[0] + names))
    elif len(alike) < len(described):
        classes = []  # other files may hold others
    has_gaps = any(looked_into[path].count for path in alike)
    if has_gaps:  # things that are hidden for a while: no fault
        head["rules"] = {"DC502": {"share": 1.0, "lost": 1.0, "jump": _NEVER}}
    what = "row" if each == "row" else "track"
    guesses = table_guesses(
        columns, classes, of_rows=what == "row", named=bool(names), has_gaps=has_gaps
    )
    return write_draft(
        files.with_left_out_check(head, described),
        guesses,
        profile.samples,
        [*files.notes(set(described)), *profile.notes],
        f"{pluralize(len(described), 'table')} of numbers, each {what} of which looks like a sample",
    )


def _alike_tables(
    files: DataFiles, main: _MainFiles, looked_into: Mapping[str, InnerSamples]
) -> tuple[list[str], list[str], str | list[str]] | None:
    """Return the alike tables that were looked into, all such tables, and how a schema names these.

    None where they are not most of the data.
    """
    by_rows: dict[tuple[str, str], list[str]] = {}
    for path, inner in looked_into.items():
        if inner.columns:
            by_rows.setdefault((inner.pattern, inner.columns), []).append(path)
    alike = max(by_rows.values(), key=files.size, default=[])
    if len(looked_into) < len(main.paths):
        is_pattern = 2 * len(alike) > len(looked_into)
    else:
        is_pattern = sorted(alike) == main.paths
        if any(map(PATTERN_SIGNS.intersection, alike)) and not is_pattern:
            return None
    described = main.paths if is_pattern else sorted(alike)
    is_seen = is_pattern or len(looked_into) == len(main.paths)
    if not alike or not is_seen or not files.are_half(described):
        return None
    return alike, described, main.patterns if is_pattern else described


def _count_class_names(paths: Sequence[str], looked_into: Mapping[str, InnerSamples]) -> int:
    """Return how many names of classes the one list beside the tables holds, 0 without one."""
    folders = {PurePosixPath(path).parent for path in paths}
    counts = [
        inner.count
        for path, inner in looked_into.items()
        if inner.kind == WORDS
        and PurePosixPath(path).parent in folders
        and re.search(_CLASS_LISTS, PurePosixPath(path).stem.lower())
    ]
    return counts[0] if len(counts) == 1 and counts[0] > 1 else 0


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
    others = files.similar_endings(ending)
    main = _profile_pattern(files, pattern) if others else None
    if main is None or not main.fields:
        return {}
    similar = {}
    for other_ending, paths in others.items():
        (other_pattern,) = patterns([(paths, other_ending)])
        if main.has_same_columns(_profile_pattern(files, other_pattern)):
            similar[other_pattern] = paths
    return similar


def _profile_pattern(files: DataFiles, pattern: str) -> SampleProfile:
    return profile_files(any_field_schema(files.head(files=pattern)), files.listing)


def _stated_counts(ending: str, files: DataFiles) -> dict[str, Any]:
    """Return the key that compares record counts with those that TensorFlow Datasets states."""
    is_stated = any(PurePosixPath(path).name == INFO for path in files.listing.entries.paths)
    if not is_stated or not ending.startswith(".tfrecord"):
        return {}
    return {"attrs": {SHARD_LENGTH: "samples"}}


def _are_few(main: _MainFiles, files: DataFiles, profile: SampleProfile) -> bool:
    """Tell whether the files of the main kind are not the data alone."""
    if len(main.paths) == len(files.readable):
        return False
    is_picture = main.ending.lower() in PICTURES
    unread = not profile.fields or UNTYPED in profile.fields
    return is_picture or unread or not files.are_half(main.paths)


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
    return write_draft(
        files.with_left_out_check(head, paths),
        guess_fields(profile.fields, profile.samples, hint, episodes=episodes),
        profile.samples,
        [*files.notes(set(paths)), *profile.notes],
        why,
    )


def _no_fields(root: Path, count: int, profile: SampleProfile) -> str:
    """Return the message for files without a field."""
    files = pluralize(min(count, MOST_FILES), "file")
    if profile.unread:
        return f"{root}: none of {files} could be read. {'; '.join(profile.unread)}"
    if profile.unsupported:
        fields = first_few(profile.unsupported, MOST_SHOWN)
        return f"{root}: no field of {files} can be read: {fields}."
    return f"{root}: none of {files} holds a field: they are empty."
