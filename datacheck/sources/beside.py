"""Files that others speak of and that are not there: named by a JSON document, or like those of the folders beside.

Nothing here is declared by a schema, so it is told only where most of what is spoken of is there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any

import orjson

from datacheck.errors import FormatError
from datacheck.formats.foreign import is_beside
from datacheck.formats.parsed import parse_json
from datacheck.runtime.beneath import File
from datacheck.schema.load import builtin
from datacheck.schema.model import Schema
from datacheck.sources.listing import Listing
from datacheck.table import Note

GONE = "not there, but "  # DC105 knows such a note by these words, and
TWICE = "in the lists of two splits, "
_CODE = "DC105"
_DOCUMENTS = (".json", ".jsonl")
_LISTS = re.compile(r"(?:^|/)(?:train|training|val|valid|validation|test|testing|eval|evaluation)\.(?:txt|lst)")
_ID = re.compile(r"[\w./-]{1,200}")
_LEAST_LISTED = 10  # names in a list of a split, of which some stand in another's, too
_MEDIA = (
    ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".exr", ".npy", ".npz", ".ply", ".pcd", ".obj", ".mp4",
    ".h5", ".hdf5", ".pkl",
)  # fmt: skip
_NAME = re.compile(rf"[\w./\\ ()+-]{{1,300}}(?:{'|'.join(map(re.escape, _MEDIA))})", re.IGNORECASE)
_MOST_DOCUMENTS, _MOST_BYTES, _MOST_NAMES = 500, 16 << 20, 100_000  # documents of a dataset; of one of them
_MOST_IN_ALL = 64 << 20
_MOST_FILES = 500_000  # that are held against one another
_TOLD = 1_000  # of the files that are not there
_LEAST_THERE, _SHARE_THERE = 2, 2 / 3
_KINDS, _LEAST = 2, 3  # kinds of files that have all of a folder's names; how many names these are
_SHARE_GONE = 0.2


# ------------------------------------------------------------------------------------------------ documents


def documents(schema: Schema, listing: Listing, unclaimed: Collection[str]) -> list[str]:
    """Return the documents that may name files; [] where there are too many.

    Args:
        schema: the dataset's promise.
        listing: every file there is.
        unclaimed: files that no sample uses.

    Notes:
        The built-in schemas say themselves what lies beside their documents.
    """
    entries = listing.entries
    lists = [path for path in entries.paths if _LISTS.search(path) and 0 < listing.by_path[path].size <= _MOST_BYTES]
    if not any(path.lower().endswith(_MEDIA) for path in entries.paths):
        return lists
    every, left = "*" in schema.fields or schema.name not in builtin(), set(unclaimed)
    sizes = zip(entries.paths, entries.sizes.tolist(), strict=True)
    found = [
        path for path, size in sizes
        if path.lower().endswith(_DOCUMENTS) and 0 < size <= _MOST_BYTES and (every or path in left)
    ]  # fmt: skip
    few = len(found) <= _MOST_DOCUMENTS and sum(listing.by_path[path].size for path in found) <= _MOST_IN_ALL
    return lists + found if few else lists


def names_in(place: File) -> list[str]:
    """Return the names of files that a JSON document or JSON lines hold as texts, sorted; the lines of a list.

    Args:
        place: of the document.

    Returns:
        [] for a damaged document, for one of too many names, and for a list of other things than names.
    """
    try:
        data = place.read_bytes()
        if _LISTS.search(place.name):
            named = sorted({line.strip() for line in data.decode("utf-8").splitlines()} - {""})
            return named if len(named) <= _MOST_NAMES and all(map(_ID.fullmatch, named)) else []
        lines = data.splitlines() if place.name.lower().endswith(".jsonl") else [data]
        waiting: list[Any] = [parse_json(line, deep=True) for line in lines if line.strip()]
    except (FormatError, OSError, UnicodeDecodeError):
        return []
    found = set[str]()
    while waiting and len(found) <= _MOST_NAMES:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and len(item) <= 310 and _NAME.fullmatch(item):
            parts = PurePosixPath(item.replace("\\", "/")).parts
            if ".." not in parts and parts[:1] != ("/",) and _is_text(item):
                found.add("/".join(parts))
    return sorted(found) if len(found) <= _MOST_NAMES else []


def _is_text(item: str) -> bool:
    try:
        orjson.dumps(item)
    except TypeError:
        return False
    return True


def lost(named: Mapping[str, Sequence[str]], listing: Listing) -> Iterator[Note]:
    """Yield a note for each file that documents name and that no folder has, where most that they name are there.

    Args:
        named: names of files by the path of the document.
        listing: every file there is.
    """
    lists = {path: set(names) for path, names in named.items() if _LISTS.search(path)}
    yield from _in_both(lists)
    named = {path: names for path, names in named.items() if path not in lists}
    there: dict[str, list[str]] = defaultdict(list)
    for path in listing.entries.paths:
        there[path.rpartition("/")[2]].append(f"/{path}")
    folders: dict[str, set[str]] = defaultdict(set)
    for document, names in named.items():
        folders[document.rpartition("/")[0]].update(names)
    for folder, every in sorted(folders.items()):
        gone = sorted(n for n in every if not any(p.endswith(f"/{n}") for p in there[n.rpartition("/")[2]]))
        have = len(every) - len(gone)
        if gone and have >= max(_LEAST_THERE, _SHARE_THERE * len(every)):
            within = [document for document in named if document.rpartition("/")[0] == folder]
            who = within[0] if len(within) == 1 else f"the JSON documents of {folder or 'the folder'}"
            reason = f"{GONE}named by {who}, as are {have:,} that are there"
            yield from (Note(_CODE, name, reason) for name in gone[:_TOLD])


def _in_both(lists: Mapping[str, set[str]]) -> Iterator[Note]:
    """Yield a note for each name that stands in the lists of two splits of one folder."""
    for (one, names), (two, others) in combinations(sorted(lists.items()), 2):
        both = sorted(names & others)
        beside = one.rpartition("/")[0] == two.rpartition("/")[0] and min(len(names), len(others)) >= _LEAST_LISTED
        if beside and both:
            yield from (Note(_CODE, name, f"{TWICE}{one} and {two}") for name in both[:_TOLD])


# ------------------------------------------------------------------------------------------------ companions


def alone(listing: Listing) -> Iterator[Note]:
    """Yield a note for each file that lacks in one folder or ending while those beside have one of its name.

    Args:
        listing: every file there is.

    Notes:
        Folders are parts of samples only where their files end differently (labels, clouds, pictures): folders of one
        ending are rather samples, or people, of which one has fewer steps. Two kinds of files with all names agree
        against the one that lacks a few.
    """
    paths = [path for path in listing.entries.paths if not path.startswith("@") and not is_beside(path)]
    if len(paths) > _MOST_FILES:
        return
    groups: dict[tuple[str, ...], dict[tuple[str, str], set[str]]] = {}
    for path in paths:
        *folders, name = path.split("/")
        stem, dot, ending = name.rpartition(".")
        if not stem:
            continue
        for level in range(len(folders)):
            group = (*folders[:level], "*", *folders[level + 1 :])
            groups.setdefault(group, {}).setdefault((folders[level], dot + ending), set()).add(stem)
        groups.setdefault(tuple(folders), {}).setdefault(("", dot + ending), set()).add(stem)
    told = set[str]()
    for group, kinds in sorted(groups.items()):
        for path, beside in _lacking(group, kinds):
            if path not in told:
                told.add(path)
                yield Note(_CODE, path, f"{GONE}files of that name are in {', '.join(beside[:4])}")


def _lacking(group: Sequence[str], kinds: Mapping[tuple[str, str], set[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each file that one kind lacks, and the kinds that have it."""
    folders, endings = [folder for folder, _ in kinds], {ending.lower() for _, ending in kinds}
    if len(kinds) <= _KINDS or len(endings) == 1 or (any(folders) and len(set(folders)) < len(folders)):
        return
    sets: dict[frozenset[str], list[tuple[str, str]]] = defaultdict(list)
    for kind, stems in kinds.items():
        sets[frozenset(stems)].append(kind)
    whole = max(sets, key=lambda stems: (len(sets[stems]), len(stems)))
    complete = sets[whole]
    if len(complete) < _KINDS or len(whole) < _LEAST or 2 * len(complete) < len(kinds):
        return
    for kind, stems in sorted(kinds.items()):
        gone = whole - stems
        few = len(gone) <= max(1, _SHARE_GONE * len(whole))
        if stems < whole and few and any(other[1].lower() != kind[1].lower() for other in complete):
            beside = sorted(folder or ending for folder, ending in complete)
            for stem in sorted(gone)[:_TOLD]:
                yield "/".join([*(kind[0] if part == "*" else part for part in group), stem + kind[1]]), beside
