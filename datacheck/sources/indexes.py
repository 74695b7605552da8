"""Find files that are missing although indexes or documents name them or neighboring folders have them.

No schema declares the files of documents and folders, so notes on these appear only where most of
the named files exist.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice, product
from typing import Any

import numpy as np

from datacheck.formats.foreign import is_ancillary
from datacheck.model.table import Note
from datacheck.schema.load import builtin
from datacheck.schema.model import Schema, file_templates
from datacheck.schema.patterns import Template
from datacheck.sources.base import Work
from datacheck.sources.listing import Listing
from datacheck.sources.named_files import (
    FAR_MORE,
    INDEXES,
    LISTS,
    LOST_VIDEOS,
    MEDIA,
    NO_TEMPLATE,
    OUTSIDE,
    POSES,
    TABLES,
    UNCOMPARED,
    UNPAIRED,
    count_files,
    is_index,
)
from datacheck.sources.planning import companion_patterns, place_text
from datacheck.sources.roots import Roots, sandbox_of
from datacheck.sources.table_files import table_faults
from datacheck.workers.parallel import Death, Limits, ordered_map

_COMPANION_CODE = "DC105"
_DOCUMENTS = (".json", ".jsonl")
# Names in a list of a split, some of which are in the list of another split as well.
_LEAST_LISTED = 10
_OF_A_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test|eval)", re.IGNORECASE)
_ENDING = re.compile(r"\.[^./]*\Z")
# Documents of a dataset; bytes of a single one, and of all.
_MOST_DOCUMENTS = 500
_MOST_BYTES = 16 << 20
_MOST_IN_ALL = 64 << 20
_MOST_FILES = 200_000  # files that are compared with one another
_TOLD = 1_000  # names that are reported per reason
_LEAST_THERE = 2
_SHARE_THERE = 2 / 3
_LEVELS = 2  # levels of folders whose siblings are compared
# Kinds of files that have all names of a folder; the number of these names.
_LEAST_KINDS = 2
_LEAST = 3
_SHARE_GONE = 0.2


# ---------------------------------------------------------------------------------------- documents


def documents(
    schema: Schema, listing: Listing, unclaimed: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return documents and lists of splits that may name files, and those over the limit.

    Args:
        schema: the schema of the dataset.
        listing: all files.
        unclaimed: files that no sample uses.

    Notes:
        Built-in schemas declare the files next to their documents themselves. Tables are read only
        if they are few: many tables are recordings.
    """
    entries = listing.entries
    lists = [
        path
        for path in entries.paths
        if LISTS.search(path) and 0 < listing.by_path[path].size <= _MOST_BYTES
    ]
    readable, over_limit = _readable(lists, listing)
    if any(path.lower().endswith(MEDIA) for path in entries.paths):
        all_files = "*" in schema.fields or schema.name not in builtin()
        unclaimed_paths = set(unclaimed)
        sizes = zip(entries.paths, entries.sizes.tolist(), strict=True)
        candidates = [
            path
            for path, size in sizes
            if 0 < size <= _MOST_BYTES and (all_files or path in unclaimed_paths)
        ]
        other_documents, documents_over = _readable(
            [
                path
                for path in candidates
                if path.lower().endswith(_DOCUMENTS) or f"/{path}".endswith(f"/{POSES}")
            ],
            listing,
        )
        tables, tables_over = _readable(
            [path for path in candidates if path.lower().endswith(TABLES)], listing
        )
        readable, over_limit = (
            readable + other_documents + ([] if tables_over else tables),
            over_limit + documents_over,
        )
    return readable, over_limit


def _readable(paths: list[str], listing: Listing) -> tuple[list[str], list[str]]:
    """Return the documents within the limit, in order of depth, and the others."""
    ordered = sorted(paths, key=lambda path: (path.count("/"), path))
    sizes = accumulate(listing.by_path[path].size for path in ordered[:_MOST_DOCUMENTS])
    count = sum(size <= _MOST_IN_ALL for size in sizes)
    return ordered[:count], ordered[count:]


def lost_file_notes(named: Mapping[str, Sequence[str]], listing: Listing) -> Iterator[Note]:
    """Yield a note for each file that documents name but no folder has, if most named files exist.

    Args:
        named: names of files by path of the document; for a list of a split, its lines.
        listing: all files.
    """
    lists = {path: set(names) for path, names in named.items() if LISTS.search(path)}
    yield from _overlap_notes(lists, listing.entries.paths)
    folders: dict[str, list[str]] = defaultdict(list)
    for document in named:
        if document not in lists:
            folders[document.rpartition("/")[0]].append(document)
    wanted_names = {
        name
        for folder_documents in folders.values()
        for document in folder_documents
        for name in named[document]
    }
    folder_names = {part for path in listing.entries.paths for part in path.split("/")[:-1]}
    below = {
        name: _below(name) for name in wanted_names if name.partition("/")[0] not in folder_names
    }
    existing_names = {
        name for _, name in _ends(listing.entries.paths, wanted_names.union(below.values()))
    }
    for folder, folder_documents in sorted(folders.items()):
        all_names = {name for document in folder_documents for name in named[document]}
        missing_names = sorted(
            name for name in all_names - existing_names if below.get(name) not in existing_names
        )
        existing_count = len(all_names) - len(missing_names)
        if missing_names and existing_count >= max(_LEAST_THERE, _SHARE_THERE * len(all_names)):
            naming_phrase = (
                folder_documents[0]
                if len(folder_documents) == 1
                else f"the documents of {folder or 'the folder'}"
            )
            reason = (
                f"not there, but named by {naming_phrase}, as are {existing_count:,} that are there"
            )
            yield from _first(missing_names, reason, "gone")


def table_notes(
    columns: Mapping[str, Sequence[Mapping[str, Any]]],
    named: Mapping[str, Sequence[str]],
    listing: Listing,
) -> Iterator[Note]:
    """Yield a note for each file on which the rows of tables and the folders differ.

    Args:
        columns: of tables that name files, by path.
        named: names of files by path of another document.
        listing: all files.
    """
    others = (name for names in named.values() for name in names)
    for fault in table_faults(columns, others, listing.entries.paths, MEDIA):
        yield from _first(fault.names, fault.reason, fault.kind)


def _below(name: str) -> str:
    """Drop the first folder of a name, which may be DATA: ``data/rgb/1.png`` in ``data``.

    A name with a single folder stays unchanged: other folders may have files of the same name.
    """
    _, _, rest = name.partition("/")
    return rest if "/" in rest else name


def _ends(paths: Iterable[str], wanted_suffixes: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield (rest, suffix) for each wanted suffix of a path, in whole folder and file names."""
    depths = sorted({name.count("/") + 1 for name in wanted_suffixes})
    for path in paths if depths else ():
        parts = path.split("/")
        for depth in depths:
            if depth > len(parts):
                break
            end = "/".join(parts[-depth:])
            if end in wanted_suffixes:
                yield "/".join(parts[:-depth]), end


def _overlap_notes(lists: Mapping[str, set[str]], paths: Sequence[str]) -> Iterator[Note]:
    """Yield a note for each file in both a training list and a validation or test list of a folder.

    Notes:
        Lists of something other than file names are not compared. Files in a split's folder
        (``testing/000001.bin``) are skipped: the same name may denote another file in the other
        split's folder.
    """
    folders: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for path, names in sorted(lists.items()):
        kind = LISTS.search(path)
        if kind and len(names) >= _LEAST_LISTED:
            folders[path.rpartition("/")[0]][kind["train"] is None].append(path)
    pairs = [
        pair
        for list_paths in folders.values()
        for pair in product(*list_paths)
        if lists[pair[0]] & lists[pair[1]]
    ]
    wanted_names = {name for pair in pairs for path in pair for name in lists[path]}
    all_paths = chain(paths, (_ENDING.sub("", path) for path in paths))
    existing_names = {
        name for parent, name in _ends(all_paths, wanted_names) if not _OF_A_SPLIT.search(parent)
    }
    for train_list, other_list in pairs:
        if all(
            2 * len(lists[path] & existing_names) > len(lists[path])
            for path in (train_list, other_list)
        ):
            reason = f"in the lists of two splits, {train_list} and {other_list}"
            yield from _first(
                sorted(lists[train_list] & lists[other_list] & existing_names), reason, "twice"
            )


def _first(names: Sequence[str], reason: str, kind: str) -> Iterator[Note]:
    """Yield notes on the first names; if there are more, the reason has the total."""
    count_text = f" (the first {_TOLD:,} of {len(names):,})" if len(names) > _TOLD else ""
    return (
        Note(_COMPANION_CODE, name, reason + count_text, about={"kind": kind})
        for name in names[:_TOLD]
    )


# --------------------------------------------------------------------------------------- companions


def missing_sibling_notes(listing: Listing) -> Iterator[Note]:
    """Yield a note for each file that one folder or ending lacks while its siblings have it.

    Args:
        listing: all files.

    Notes:
        Folders count as parts of samples only if their files end differently (labels, clouds,
        pictures). Folders of a single ending are more likely samples, or people, one of which has
        fewer steps. At least two complete kinds of files must agree against the kind that lacks a
        few.
    """
    paths = [
        path
        for path in listing.entries.paths
        if not path.startswith("@") and not is_ancillary(path)
    ]
    if len(paths) > _MOST_FILES:
        return
    groups: dict[tuple[str, str], dict[tuple[str, str], set[str]]] = {}
    for path in paths:
        above, _, name = path.rpartition("/")
        stem, dot, ending = name.rpartition(".")
        if not stem:
            continue
        for prefix, folder, suffix in _places(above):
            groups.setdefault((prefix, suffix), {}).setdefault((folder, dot + ending), set()).add(
                stem
            )
    noted_paths = set[str]()
    for (prefix, suffix), kinds in sorted(groups.items()):
        for folder, names, sibling_kinds in _missing_siblings(kinds):
            missing_paths = [
                path
                for name in names
                if (path := f"{prefix}{folder}{suffix}{name}") not in noted_paths
            ]
            noted_paths.update(missing_paths)
            yield from _first(
                missing_paths,
                f"not there, but files of that name are in {', '.join(sibling_kinds)}",
                "gone",
            )


def _places(folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield (before, name, behind) per level: a name that has siblings, and the path around it."""
    yield folder and f"{folder}/", "", ""
    above, behind = folder, "/"
    for _ in range(_LEVELS):
        if above:
            above, _, name = above.rpartition("/")
            yield above and f"{above}/", name, behind
            behind = f"/{name}{behind}"


def _missing_siblings(
    kinds: Mapping[tuple[str, str], set[str]],
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield a folder, the names of its missing files, and the first kinds that have them."""
    folders = [folder for folder, _ in kinds]
    endings = {ending.lower() for _, ending in kinds}
    if (
        len(kinds) <= _LEAST_KINDS
        or len(endings) == 1
        or (any(folders) and len(set(folders)) < len(folders))
    ):
        return
    sets: dict[frozenset[str], list[tuple[str, str]]] = defaultdict(list)
    for kind, stems in kinds.items():
        sets[frozenset(stems)].append(kind)
    common_stems = max(sets, key=lambda stems: (len(sets[stems]), len(stems)))
    complete_kinds = sets[common_stems]
    if (
        len(complete_kinds) < _LEAST_KINDS
        or len(common_stems) < _LEAST
        or 2 * len(complete_kinds) < len(kinds)
    ):
        return
    complete_endings = {ending.lower() for _, ending in complete_kinds}
    sibling_kinds = sorted(folder or ending for folder, ending in complete_kinds)[:4]
    for (folder, ending), stems in sorted(kinds.items()):
        missing_stems = common_stems - stems
        is_few = len(missing_stems) <= max(1, _SHARE_GONE * len(common_stems))
        if (
            stems < common_stems
            and is_few
            and (len(complete_endings) > 1 or ending.lower() not in complete_endings)
        ):
            yield folder, [stem + ending for stem in sorted(missing_stems)], sibling_kinds


Array = np.ndarray[Any, Any]

_CODE = "DC105"
_CONTRADICTION_CODE = "DC114"
_VIDEO_CODE = "DC515"
_FACTS_CODE = "DC518"
_PACKED = "DC101"
_GONE = (_CODE, "it is gone")
_LIMITS = Limits(item_s=60)
# How many files of all indexes are looked up, in addition to the number of listed files.
_MOST_MISSING = 100_000
# budget for notes on missing files: each is a row, too
_MISSING_BYTES = 32 << 20
_A_NOTE = 200
_MOST_TOLD = 10_000  # files known only from documents or neighboring files
_OF_GONE = "of the files that indexes name"
# A child returns sentences only; these are their beginnings or ends.
_KINDS = {
    LOST_VIDEOS: "videos",
    OUTSIDE: "outside",
    NO_TEMPLATE: "outside",
    UNPAIRED: "unpaired",
    UNCOMPARED: "uncompared",
    FAR_MORE: "unsought",
    _OF_GONE: "unsought",
}


def with_indexes(work: Work, schema: Schema, listing: Listing) -> Work:
    """Add a note for each missing file that an index names; an index is not an unclaimed file.

    Args:
        work: the plan for the listing.
        schema: the schema of the dataset.
        listing: all files.

    Raises:
        StorageError: no child could be started.

    Notes:
        An unreadable index is reported when the files next to it are read. Files that no pattern of
        the schema matches are not reported.
    """
    name = INDEXES.get(schema.samples.each or "")
    indexes = {path for path in listing.entries.paths if is_index(path, name)}
    document_paths, over_limit = documents(schema, listing, work.unclaimed)
    paths = sorted(indexes) + [path for path in document_paths if path not in indexes]
    notes, read_paths, named_files, columns = (
        _read_indexes(paths, name, schema, listing) if paths else ([], set(), {}, {})
    )
    if over_limit:
        reason = f"one of {len(over_limit):,} lists and documents beyond those that are read"
        notes.append(_note(over_limit[0], f"{UNCOMPARED}: {reason}"))
    noted_keys = {(note.code, note.key) for note in work.notes}
    notes = [*work.notes, *(note for note in notes if (note.code, note.key) not in noted_keys)]
    # Another rule reports missing companions.
    companions = [
        template for templates in companion_patterns(schema).values() for template in templates
    ]
    # The least certain come last.
    for new_notes in (
        lost_file_notes(named_files, listing),
        table_notes(columns, named_files, listing),
        missing_sibling_notes(listing),
    ):
        noted_paths = {note.key for note in notes if note.missing or note.code == _CODE}
        fresh = (
            note
            for note in new_notes
            if note.key not in noted_paths and _match(note.key, companions) is None
        )
        notes += islice(fresh, _MOST_TOLD)
        if (next_note := next(fresh, None)) is not None:
            rest_count = 1 + sum(1 for _ in fresh)
            reason = (
                f"not told one by one, {rest_count:,} names from this one on, after {_MOST_TOLD:,} "
                f"that are"
            )
            notes.append(replace(next_note, reason=reason))
    return replace(
        work,
        notes=sorted(notes, key=lambda note: (note.key, note.reason)),
        unclaimed=[path for path in work.unclaimed if path not in read_paths],
    )


def _read_indexes(
    paths: Sequence[str], name: str | None, schema: Schema, listing: Listing
) -> tuple[list[Note], set[str], dict[str, list[str]], dict[str, list[dict[str, Any]]]]:
    """Return notes on files that indexes name, paths of the indexes' own files, and named files.

    Named files are those of documents, and the columns of tables, by path.
    """
    roots = {root: str(folder.absolute()) for root, folder in listing.roots.items()}
    task = {
        "index": name,
        "root": str(listing.root.absolute()),
        "roots": roots,
        "most": len(listing.entries) + _MOST_MISSING,
        "items": [{"path": path} for path in paths],
        # Indexes name about as many files as are listed.
        "nbytes": 100 * len(listing.entries) + max(listing.by_path[path].size for path in paths),
    }
    placed = schema.located(listing.root, listing.roots).placed(listing.roots)
    templates = file_templates(placed)
    notes = list[Note]()
    own_files = set[str]()
    named_files: dict[str, list[str]] = {}
    columns: dict[str, list[dict[str, Any]]] = {}
    sandbox = sandbox_of(listing.root, listing.roots)
    bytes_left = _MISSING_BYTES
    for outcome in list(
        ordered_map(
            "datacheck.sources.named_files:read_named_files",
            [task],
            limits=_LIMITS,
            sandbox=sandbox,
        )
    ):
        notes += [
            _death_note(death, name)
            for death in outcome.deaths
            if is_index(death.item["path"], name)
        ]
        for payload in outcome.payloads:
            # Small indexes first, so that a large one does not use up the budget of the others.
            for index_record in sorted(payload, key=count_files):
                own_files.update(index_record["read"])
                named_files |= (
                    {index_record["path"]: index_record["named"]} if index_record["named"] else {}
                )
                if index_record["columns"]:
                    columns[index_record["path"]] = index_record["columns"]
                notes += [_note(index_record["path"], reason) for reason in index_record["faults"]]
                notes += [
                    Note(_CONTRADICTION_CODE, document, words, about={"kind": kind})
                    for kind, document, words in index_record["contradictions"]
                ]
                notes += [
                    Note(_VIDEO_CODE, key, words, about={"kind": kind, "camera": camera})
                    for kind, key, camera, words in index_record["videos"]
                ]
                notes += [
                    Note(_FACTS_CODE, index_record["path"], "", about=facts)
                    for facts in index_record["facts"]
                ]
                missing = _missing(index_record, templates, listing) if bytes_left > 0 else ()
                for note in missing:
                    bytes_left -= _A_NOTE + len(note.key) + len(note.reason)
                    notes.append(note)
                    if bytes_left <= 0:
                        break
    if bytes_left <= 0:
        count = sum(note.missing for note in notes)
        notes.append(_note(paths[0], f"{_OF_GONE} and that are gone {count:,} are told"))
    return notes, own_files, named_files, columns


def _death_note(death: Death, name: str | None) -> Note:
    reason = death.how.strip().splitlines()[-1]
    return Note(
        _PACKED,
        death.item["path"],
        f"{name} cannot be read, so the files that it names are not missed: {reason}",
    )


def _note(path: str, reason: str) -> Note:
    kind = next(
        (
            kind
            for words, kind in _KINDS.items()
            if reason.startswith(words) or reason.endswith(words)
        ),
        "",
    )
    return Note(_CODE, path, reason, about={"kind": kind} if kind else {})


def _missing(
    index_record: Mapping[str, Any], templates: Sequence[Template], listing: Listing
) -> Iterator[Note]:
    """Yield a note for each file that an index names and that is missing or unreadably packed."""
    folders = Roots(listing.root, listing.roots)
    for paths, samples in index_record["files"]:
        fits = [(path, names) for path in paths if (names := _match(path, templates)) is not None]
        existing_paths = [path for path in paths if fits and folders.file(path).is_file()]
        if fits and not any(path in existing_paths for path, _ in fits):
            path, names = fits[0]
            code, detail = (
                (_PACKED, f"only {existing_paths[0]} is there, packed in a way that is not read")
                if existing_paths
                else _GONE
            )
            reason = f"{place_text(index_record['path'])} names it ({samples}), but {detail}"
            yield Note(code, path, reason, missing=True, split=names.get("split", ""))


def _match(path: str, templates: Sequence[Template]) -> Mapping[str, str] | None:
    if not {"", ".", ".."}.isdisjoint(path.split("/")) or "\0" in path:
        return None  # not a path below the data folder: never look elsewhere
    return next(
        (names for template in templates if (names := template.match(path)) is not None), None
    )
