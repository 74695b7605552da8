"""Files that others speak of and that are not there: named by a document, or like those of the folders beside.

Nothing here is declared by a schema, so it is told only where most of what is spoken of is there.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, product
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

_CODE = "DC105"
_DOCUMENTS = (".json", ".jsonl")
_TABLES = (".csv", ".tsv")
_CELLS, _READ_BYTES = re.compile(r"[,;\t\r\n]"), 1 << 20
_LISTS = re.compile(
    r"(?:^|/)(?:(?P<train>train|training)|val|valid|validation|test|testing|eval|evaluation)\.(?:txt|lst)\Z"
)
_ID = re.compile(r"[\w./-]{1,200}")
_LEAST_LISTED = 10  # names in a list of a split, of which some stand in another's, too
_OF_A_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test|eval)", re.IGNORECASE)
_ENDING = re.compile(r"\.[^./]*\Z")
_MEDIA = (
    ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".exr", ".npy", ".npz", ".ply", ".pcd", ".obj", ".mp4",
    ".h5", ".hdf5", ".pkl",
)  # fmt: skip
_NAME = re.compile(rf"[\w./\\ ()+-]{{1,300}}(?:{'|'.join(map(re.escape, _MEDIA))})", re.IGNORECASE)
_MOST_DOCUMENTS, _MOST_BYTES, _MOST_NAMES = 500, 16 << 20, 100_000  # documents of a dataset; of one of them
_MOST_IN_ALL, MOST_NAMED = 64 << 20, 200_000  # bytes of all documents, and names in them
_MOST_FILES = 200_000  # that are held against one another
_TOLD = 1_000  # names that are told of one reason
_LEAST_THERE, _SHARE_THERE = 2, 2 / 3
_LEVELS = 2  # of folders in which those beside one another are held against one another
_KINDS, _LEAST = 2, 3  # kinds of files that have all of a folder's names; how many names these are
_SHARE_GONE = 0.2


# ------------------------------------------------------------------------------------------------ documents


def documents(schema: Schema, listing: Listing, unclaimed: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the lists of splits and the documents that may name files, and those that are too many to be read.

    Args:
        schema: the dataset's promise.
        listing: every file there is.
        unclaimed: files that no sample uses.

    Notes:
        The built-in schemas say themselves what lies beside their documents. Tables are read where they are few: many
        are recordings.
    """
    entries = listing.entries
    lists = [path for path in entries.paths if _LISTS.search(path) and 0 < listing.by_path[path].size <= _MOST_BYTES]
    found, left = _readable(lists, listing)
    if any(path.lower().endswith(_MEDIA) for path in entries.paths):
        every, own = "*" in schema.fields or schema.name not in builtin(), set(unclaimed)
        sizes = zip(entries.paths, entries.sizes.tolist(), strict=True)
        others = [path for path, size in sizes if 0 < size <= _MOST_BYTES and (every or path in own)]
        more, rest = _readable([path for path in others if path.lower().endswith(_DOCUMENTS)], listing)
        tables, many = _readable([path for path in others if path.lower().endswith(_TABLES)], listing)
        found, left = found + more + ([] if many else tables), left + rest
    return found, left


def _readable(paths: list[str], listing: Listing) -> tuple[list[str], list[str]]:
    """Return as many as are read, those near the top of the data first, and the others."""
    ordered = sorted(paths, key=lambda path: (path.count("/"), path))
    sizes = accumulate(listing.by_path[path].size for path in ordered[:_MOST_DOCUMENTS])
    count = sum(size <= _MOST_IN_ALL for size in sizes)
    return ordered[:count], ordered[count:]


def names_in(place: File) -> list[str]:
    """Return the names of files that a JSON document, JSON lines or a table hold as texts, sorted; lines of a list.

    Args:
        place: of the document.

    Returns:
        [] for a damaged document, for one of too many names, and for a list of other things than names.
    """
    try:
        data = place.read_bytes()
        if _LISTS.search(place.name):
            said = [line.strip().removeprefix("./") for line in data.decode("utf-8").splitlines() if line.strip()]
            named = sorted(set(said))
            few = len(said) < 2 * len(named) <= 2 * _MOST_NAMES  # numbers and classes stand there again and again
            return named if few and all(map(_ID.fullmatch, named)) else []
        if place.name.lower().endswith(_TABLES):
            return _in_cells(data)
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
        elif isinstance(item, str) and (name := _file(item)):
            found.add(name)
    return sorted(found) if len(found) <= _MOST_NAMES else []


def _in_cells(data: bytes) -> list[str]:
    """Return the names of files in the cells of a table; quotes around a cell do not count."""
    cells = set[str]()
    low = data.lower()
    if any(ending.encode() in low for ending in _MEDIA):  # tables of numbers are passed over in a moment
        file = io.StringIO(data.decode("utf-8"))
        while lines := file.readlines(_READ_BYTES):
            part = (cell.strip(" \"'") for cell in dict.fromkeys(_CELLS.split("".join(lines))))
            cells.update(cell for cell in part if cell.lower().endswith(_MEDIA))
            if len(cells) > _MOST_NAMES:
                return []
    return sorted({name for cell in cells if (name := _file(cell))})


def _file(text: str) -> str:
    """Return the name of a file below a folder that a text is, "" where it is none."""
    if len(text) > 310 or not text.lower().endswith(_MEDIA) or not _NAME.fullmatch(text):
        return ""
    parts = PurePosixPath(text.replace("\\", "/")).parts
    return "/".join(parts) if ".." not in parts and parts[:1] != ("/",) and _is_text(text) else ""


def _is_text(item: str) -> bool:
    try:
        orjson.dumps(item)
    except TypeError:
        return False
    return True


def lost(named: Mapping[str, Sequence[str]], listing: Listing) -> Iterator[Note]:
    """Yield a note for each file that documents name and that no folder has, where most that they name are there.

    Args:
        named: names of files by the path of the document; of a list of a split, its lines.
        listing: every file there is.
    """
    lists = {path: set(names) for path, names in named.items() if _LISTS.search(path)}
    yield from _in_both(lists, listing.entries.paths)
    folders: dict[str, list[str]] = defaultdict(list)
    for document in named:
        if document not in lists:
            folders[document.rpartition("/")[0]].append(document)
    wanted = {name for within in folders.values() for document in within for name in named[document]}
    own = {part for path in listing.entries.paths for part in path.split("/")[:-1]}
    below = {name: _below(name) for name in wanted if name.partition("/")[0] not in own}
    there = {name for _, name in _ends(listing.entries.paths, wanted.union(below.values()))}
    for folder, within in sorted(folders.items()):
        every = {name for document in within for name in named[document]}
        gone = sorted(name for name in every - there if below.get(name) not in there)
        have = len(every) - len(gone)
        if gone and have >= max(_LEAST_THERE, _SHARE_THERE * len(every)):
            who = within[0] if len(within) == 1 else f"the documents of {folder or 'the folder'}"
            reason = f"not there, but named by {who}, as are {have:,} that are there"
            yield from _first(gone, reason, "gone")


def _below(name: str) -> str:
    """Return a name below its first folder, which may be that of the data: ``data/rgb/1.png`` where DATA is ``data``.

    A name in one folder alone stays as it is: others in other folders may be called as its file is.
    """
    _, _, rest = name.partition("/")
    return rest if "/" in rest else name


def _ends(paths: Iterable[str], wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the ends of paths, whole names of folders and files, that are wanted, and what stands before each."""
    depths = sorted({name.count("/") + 1 for name in wanted})
    for path in paths if depths else ():
        parts = path.split("/")
        for depth in depths:
            if depth > len(parts):
                break
            end = "/".join(parts[-depth:])
            if end in wanted:
                yield "/".join(parts[:-depth]), end


def _in_both(lists: Mapping[str, set[str]], paths: Sequence[str]) -> Iterator[Note]:
    """Yield a note for each file that the list of a folder for training names, and one for validation or tests too.

    Notes:
        Lists of other things than names of files are not compared. In a folder of a split (``testing/000001.bin``) a
        name may be of another file than in that of the other split: it is passed over.
    """
    folders: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for path, names in sorted(lists.items()):
        kind = _LISTS.search(path)
        if kind and len(names) >= _LEAST_LISTED:
            folders[path.rpartition("/")[0]][kind["train"] is None].append(path)
    pairs = [pair for two in folders.values() for pair in product(*two) if lists[pair[0]] & lists[pair[1]]]
    wanted = {name for pair in pairs for path in pair for name in lists[path]}
    every = chain(paths, (_ENDING.sub("", path) for path in paths))
    there = {name for before, name in _ends(every, wanted) if not _OF_A_SPLIT.search(before)}
    for one, other in pairs:
        if all(2 * len(lists[path] & there) > len(lists[path]) for path in (one, other)):
            reason = f"in the lists of two splits, {one} and {other}"
            yield from _first(sorted(lists[one] & lists[other] & there), reason, "twice")


def _first(names: Sequence[str], reason: str, kind: str) -> Iterator[Note]:
    """Yield notes on the first names; where there are more, the reason says how many."""
    more = f" (the first {_TOLD:,} of {len(names):,})" if len(names) > _TOLD else ""
    return (Note(_CODE, name, reason + more, about={"kind": kind}) for name in names[:_TOLD])


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
    groups: dict[tuple[str, str], dict[tuple[str, str], set[str]]] = {}
    for path in paths:
        above, _, name = path.rpartition("/")
        stem, dot, ending = name.rpartition(".")
        if not stem:
            continue
        for before, folder, behind in _places(above):
            groups.setdefault((before, behind), {}).setdefault((folder, dot + ending), set()).add(stem)
    told = set[str]()
    for (before, behind), kinds in sorted(groups.items()):
        for folder, names, beside in _lacking(kinds):
            gone = [path for name in names if (path := f"{before}{folder}{behind}{name}") not in told]
            told.update(gone)
            yield from _first(gone, f"not there, but files of that name are in {', '.join(beside)}", "gone")


def _places(folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield what stands before a name, of which others stand beside, and behind it: of files, of the last folders."""
    yield folder and f"{folder}/", "", ""
    above, behind = folder, "/"
    for _ in range(_LEVELS):
        if above:
            above, _, name = above.rpartition("/")
            yield above and f"{above}/", name, behind
            behind = f"/{name}{behind}"


def _lacking(kinds: Mapping[tuple[str, str], set[str]]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield a folder, the names of the files that one kind lacks there, and the first kinds that have them."""
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
    theirs = {ending.lower() for _, ending in complete}
    beside = sorted(folder or ending for folder, ending in complete)[:4]
    for (folder, ending), stems in sorted(kinds.items()):
        gone = whole - stems
        few = len(gone) <= max(1, _SHARE_GONE * len(whole))
        if stems < whole and few and (len(theirs) > 1 or ending.lower() not in theirs):
            yield folder, [stem + ending for stem in sorted(gone)], beside
