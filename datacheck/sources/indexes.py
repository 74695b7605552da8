"""Find files that are missing although documents name them or neighboring folders have them.

No schema declares these files, so notes appear only where most of the named files exist.
"""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate, chain, islice, product
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import orjson

from datacheck.errors import FormatError, MissingDependencyError
from datacheck.formats.foreign import is_ancillary
from datacheck.formats.mds_index import INDEX, named_shards
from datacheck.formats.parsed import parse_json
from datacheck.model.table import Note, Texts
from datacheck.runtime.beneath import File
from datacheck.schema.load import builtin
from datacheck.schema.model import EpisodeSpec, Schema
from datacheck.schema.patterns import Template
from datacheck.sources.base import Work, file_templates, limit_files
from datacheck.sources.lerobot import INFO, folder_of, meta_files, read_meta, read_rate, read_videos
from datacheck.sources.listing import Listing
from datacheck.sources.planning import companion_patterns, place_text, plan_work
from datacheck.sources.roots import Roots, sandbox_of
from datacheck.workers.parallel import Death, Limits, ordered_map
from datacheck.workers.wire import answers, text

_COMPANION_CODE = "DC105"
_DOCUMENTS = (".json", ".jsonl")
_TABLES = (".csv", ".tsv")
_CELLS = re.compile(r"[,;\t\r\n]")
_READ_BYTES = 1 << 20
_LISTS = re.compile(
    r"(?:^|/)(?:(?P<train>train|training)|val|valid|validation|test|testing|eval|evaluation)\.(?:txt|lst)\Z"
)
_ID = re.compile(r"[\w./-]{1,200}")
# Names in a list of a split, some of which are in the list of another split as well.
_LEAST_LISTED = 10
_OF_A_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test|eval)", re.IGNORECASE)
_ENDING = re.compile(r"\.[^./]*\Z")
_MEDIA = (
    ".jpg",
    ".jpeg",
    ".png",
    ".bmp",
    ".tif",
    ".tiff",
    ".webp",
    ".exr",
    ".npy",
    ".npz",
    ".ply",
    ".pcd",
    ".obj",
    ".mp4",
    ".h5",
    ".hdf5",
    ".pkl",
)
_NAME = re.compile(rf"[\w./\\ ()+-]{{1,300}}(?:{'|'.join(map(re.escape, _MEDIA))})", re.IGNORECASE)
# Documents of a dataset; bytes and names of a single one.
_MOST_DOCUMENTS = 500
_MOST_BYTES = 16 << 20
_MOST_NAMES = 100_000
# bytes of all documents, and names in them
_MOST_IN_ALL = 64 << 20
MOST_NAMED = 200_000
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
        if _LISTS.search(path) and 0 < listing.by_path[path].size <= _MOST_BYTES
    ]
    readable, over_limit = _readable(lists, listing)
    if any(path.lower().endswith(_MEDIA) for path in entries.paths):
        all_files = "*" in schema.fields or schema.name not in builtin()
        unclaimed_paths = set(unclaimed)
        sizes = zip(entries.paths, entries.sizes.tolist(), strict=True)
        candidates = [
            path
            for path, size in sizes
            if 0 < size <= _MOST_BYTES and (all_files or path in unclaimed_paths)
        ]
        other_documents, documents_over = _readable(
            [path for path in candidates if path.lower().endswith(_DOCUMENTS)], listing
        )
        tables, tables_over = _readable(
            [path for path in candidates if path.lower().endswith(_TABLES)], listing
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


def names_in(place: File) -> list[str]:
    """Return the sorted file names in JSON, JSON lines or a table, or the lines of a list.

    Args:
        place: path of the document.

    Returns:
        [] for a damaged document, for one with too many names, and for a list of something other
        than names.
    """
    try:
        data = place.read_bytes()
        if _LISTS.search(place.name):
            line_names = [
                line.strip().removeprefix("./")
                for line in data.decode("utf-8").splitlines()
                if line.strip()
            ]
            unique_names = sorted(set(line_names))
            # Numbers and classes repeat many times.
            is_distinct = len(line_names) < 2 * len(unique_names) <= 2 * _MOST_NAMES
            return unique_names if is_distinct and all(map(_ID.fullmatch, unique_names)) else []
        if place.name.lower().endswith(_TABLES):
            return _in_cells(data)
        lines = data.splitlines() if place.name.lower().endswith(".jsonl") else [data]
        waiting: list[Any] = [parse_json(line, deep=True) for line in lines if line.strip()]
    except (FormatError, OSError, UnicodeDecodeError):
        return []
    names = set[str]()
    while waiting and len(names) <= _MOST_NAMES:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and (name := _file_name(item)):
            names.add(name)
    return sorted(names) if len(names) <= _MOST_NAMES else []


def _in_cells(data: bytes) -> list[str]:
    """Return the file names in the cells of a table; ignores quotes around a cell."""
    cells = set[str]()
    lowered = data.lower()
    # Tables of numbers are skipped at once.
    if any(ending.encode() in lowered for ending in _MEDIA):
        file = io.StringIO(data.decode("utf-8"))
        while lines := file.readlines(_READ_BYTES):
            cell_texts = (
                cell.strip(" \"'") for cell in dict.fromkeys(_CELLS.split("".join(lines)))
            )
            cells.update(cell for cell in cell_texts if cell.lower().endswith(_MEDIA))
            if len(cells) > _MOST_NAMES:
                return []
    return sorted({name for cell in cells if (name := _file_name(cell))})


def _file_name(text: str) -> str:
    """Return a text as a file's path below a folder, "" if it is not one."""
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


def lost_file_notes(named: Mapping[str, Sequence[str]], listing: Listing) -> Iterator[Note]:
    """Yield a note for each file that documents name but no folder has, if most named files exist.

    Args:
        named: names of files by path of the document; for a list of a split, its lines.
        listing: all files.
    """
    lists = {path: set(names) for path, names in named.items() if _LISTS.search(path)}
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
        kind = _LISTS.search(path)
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

_INDEXES = {"key": INDEX, "episode": INFO}  # by `samples.each`
_CODE = "DC105"
_PACKED = "DC101"
_GONE = (_CODE, "it is gone")
_LIMITS = Limits(item_s=60)
# How many files of all indexes are looked up, in addition to the number of listed files.
_MOST_MISSING = 100_000
# budget for notes on missing files: each is a row, too
_MISSING_BYTES = 32 << 20
_A_NOTE = 200
_INFO_BYTES = 16 << 20  # info.json files of all LeRobot datasets whose rate is read
_RATE = "DC503"
_MOST_RATES = 100  # distinct rates; each is evaluated separately
_MOST_TOLD = 10_000  # files known only from documents or neighboring files
_LOST_VIDEOS = "names videos that are not there"
_UNCOMPARED = "names files that are not compared with those there"
_FAR_MORE = "as the indexes together name far more than there are"
_OF_GONE = "of the files that indexes name"
# A child returns sentences only; these are their beginnings or ends.
_KINDS = {
    _LOST_VIDEOS: "videos",
    _UNCOMPARED: "uncompared",
    _FAR_MORE: "unsought",
    _OF_GONE: "unsought",
}


class StepRates(NamedTuple):
    """The step rates (steps per second) of LeRobot datasets.

    Args:
        schema: with the rate that most files have, if it declares none itself.
        others: by folder of each dataset with another rate, this rate; None where it states none.
        notes: on datasets without a rate, if another one states one, and on datasets whose rate is
            not evaluated.
    """

    schema: Schema
    others: Mapping[str, float | None]
    notes: list[Note]

    def of_all(self, schema: Schema) -> Schema:
        """Return the schema without a rate if datasets differ: a page shows samples of all."""
        if not self.others or schema.episode is None:
            return schema
        return schema.model_copy(
            update={"episode": schema.episode.model_copy(update={"fps": None})}
        )

    def of(self, files: Sequence[str]) -> Array | None:
        """Return the rate per file, NaN if unknown; None if all files have the schema's rate."""
        if not self.others:
            return None
        fps = self.schema.episode.fps if self.schema.episode is not None else None
        texts = Texts.of(files)
        rates = [self.others.get(folder_of(path)[0], fps) for path in texts.words]
        return np.array([np.nan if rate is None else rate for rate in rates], np.float64)[
            texts.rows
        ]


def with_rate(schema: Schema, listing: Listing, paths: Iterable[str] | None = None) -> StepRates:
    """Return the schema with the step rate of LeRobot datasets, if it declares none itself.

    Args:
        schema: the schema of the dataset.
        listing: all files.
        paths: files of samples; only their datasets are read, and only documents that are unchanged
            since the listing. None: all files that the schema matches.

    Notes:
        If datasets state different rates, each file has the rate of its own dataset: an odd one
        does not decide for the others.
    """
    if schema.samples.each != "episode" or (
        schema.episode is not None and schema.episode.fps is not None
    ):
        return StepRates(schema, {}, [])
    files, rates = _rates(schema, listing, paths)
    counts = Counter[float]()
    for folder, rate in rates.items():
        if rate is not None:
            counts[rate] += files[folder]
    common_rates = [
        rate
        for rate, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_RATES]
    ]
    used_rates = {
        folder: rate if rate in common_rates else None
        for folder in files
        for rate in [rates.get(folder)]
    }
    rare_folders = [
        folder
        for folder, rate in used_rates.items()
        if rate is None and rates.get(folder) is not None
    ]
    lacking_folders = [
        folder for folder, rate in used_rates.items() if rate is None and rates.get(folder) is None
    ]
    notes = (
        [Note(_RATE, lacking_folders[0] + INFO, _why(lacking_folders, rates, listing))]
        if lacking_folders and (common_rates or not rates)
        else []
    )
    if rare_folders:  # otherwise, adding many datasets could keep another one from being evaluated
        reason = (
            f"tells a rate beside the {len(common_rates)} that most files "
            f"have{_more(rare_folders, 'with another rate')}"
        )
        notes.append(Note(_CODE, rare_folders[0] + INFO, reason, about={"kind": "rates"}))
    if not common_rates:
        return StepRates(schema, {}, notes)
    episode = schema.episode or EpisodeSpec()
    schema = schema.model_copy(
        update={"episode": episode.model_copy(update={"fps": common_rates[0]})}
    )
    return StepRates(
        schema,
        {folder: rate for folder, rate in used_rates.items() if rate != common_rates[0]},
        notes,
    )


def _why(lacking: Sequence[str], rates: Mapping[str, float | None], listing: Listing) -> str:
    """Return why the first dataset's rate is unknown, and how many others lack one."""
    reason = "tells no rate"
    if lacking[0] not in rates and not listing.holds(lacking[0] + INFO):
        reason = "is not what was scanned"
    elif lacking[0] not in rates:
        reason = (
            f"is not read: the info.json of all datasets have more than {_INFO_BYTES >> 20} MiB"
        )
    return reason + _more(lacking, "without one")


def _more(folders: Sequence[str], what: str) -> str:
    return f" ({len(folders) - 1:,} more {what})" if len(folders) > 1 else ""


def _rates(
    schema: Schema, listing: Listing, paths: Iterable[str] | None
) -> tuple[dict[str, int], dict[str, float | None]]:
    """Return the file count of each LeRobot dataset by folder, and the rates that were read.

    Notes:
        Reads the smallest documents first, so that a large one does not displace the others.
    """
    try:
        file_paths = (
            [item.path for item in plan_work(schema, listing).items] if paths is None else paths
        )
    except FormatError:
        return {}, {}
    files = dict(sorted(Counter(folder_of(path)[0] for path in file_paths).items()))
    entries = {folder: listing.by_path.get(folder + INFO) for folder in files}
    sizes = {folder: 0 if entry is None else entry.size for folder, entry in entries.items()}
    datasets = Roots(listing.root, listing.roots)
    bytes_left = _INFO_BYTES
    rates = dict[str, float | None]()
    for folder, size in sorted(sizes.items(), key=itemgetter(1)):
        bytes_left -= size
        if entries[folder] is None:
            rates[folder] = None
        elif bytes_left >= 0 and (paths is None or listing.holds(folder + INFO)):
            rates[folder] = _rate(datasets, folder)
    return files, rates


def _rate(datasets: Roots, folder: str) -> float | None:
    try:
        return read_rate(datasets.file(folder))
    except (FormatError, OSError):  # reading the episodes reports it
        return None


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
    name = _INDEXES.get(schema.samples.each or "")
    indexes = {path for path in listing.entries.paths if _is_index(path, name)}
    document_paths, over_limit = documents(schema, listing, work.unclaimed)
    paths = sorted(indexes) + [path for path in document_paths if path not in indexes]
    notes, read_paths, named_files = (
        _read_indexes(paths, name, schema, listing) if paths else ([], set(), {})
    )
    if over_limit:
        reason = f"one of {len(over_limit):,} lists and documents beyond those that are read"
        notes.append(_note(over_limit[0], f"{_UNCOMPARED}: {reason}"))
    noted_keys = {(note.code, note.key) for note in work.notes}
    notes = [*work.notes, *(note for note in notes if (note.code, note.key) not in noted_keys)]
    # Another rule reports missing companions.
    companions = [
        template for templates in companion_patterns(schema).values() for template in templates
    ]
    # The least certain come last.
    for new_notes in (lost_file_notes(named_files, listing), missing_sibling_notes(listing)):
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
) -> tuple[list[Note], set[str], dict[str, list[str]]]:
    """Return notes on files that indexes name, paths of the indexes' own files, and named files."""
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
    sandbox = sandbox_of(listing.root, listing.roots)
    bytes_left = _MISSING_BYTES
    for outcome in list(
        ordered_map("datacheck.sources.indexes:look", [task], limits=_LIMITS, sandbox=sandbox)
    ):
        notes += [
            _death_note(death, name)
            for death in outcome.deaths
            if _is_index(death.item["path"], name)
        ]
        for payload in outcome.payloads:
            # Small indexes first, so that a large one does not use up the budget of the others.
            for index_record in sorted(payload, key=_count):
                own_files.update(index_record["read"])
                named_files |= (
                    {index_record["path"]: index_record["named"]} if index_record["named"] else {}
                )
                notes += [_note(index_record["path"], reason) for reason in index_record["faults"]]
                missing = _missing(index_record, templates, listing) if bytes_left > 0 else ()
                for note in missing:
                    bytes_left -= _A_NOTE + len(note.key) + len(note.reason)
                    notes.append(note)
                    if bytes_left <= 0:
                        break
    if bytes_left <= 0:
        count = sum(note.missing for note in notes)
        notes.append(_note(paths[0], f"{_OF_GONE} and that are gone {count:,} are told"))
    return notes, own_files, named_files


def _is_index(path: str, name: str | None) -> bool:
    return name is not None and f"/{path}".endswith(f"/{name}")


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


@answers(
    [{"path": text, "read": [text], "files": [([text], text)], "faults": [text], "named": [text]}],
    raises=(MissingDependencyError,),
)
def look(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the files that each index of a task names.

    Args:
        task: index (its name, None without one), most (limit for the files of all indexes), root,
            roots, items (each with its ``path``).
        beat: called with an item's number before the item is read.

    Returns:
        path; read: listing paths of the index's own files; files: for each named file its possible
        paths, and a phrase about its samples; faults: errors in the index, or what was not
        compared; named: files that a document other than an index names anywhere, [] if all
        documents together name too many.
    """
    folders = Roots(task["root"], task["roots"])
    records = list[dict[str, Any]]()
    shares = _Shares(task["most"])
    for number, item in enumerate(task["items"]):
        beat(number)
        path: str = item["path"]
        place = folders.file(path)
        try:
            limit_files(beat, _files_of(path, task["index"], place), task["root"], task["roots"])
            if _is_index(path, task["index"]):
                index_record = (
                    _of_mds(path, place)
                    if task["index"] == INDEX
                    else _of_lerobot(path, place.parent.parent)
                )
                records.append({**index_record, "named": []})
                shares.add(records[-1])
            else:
                records.append(
                    {"path": path, "read": [], "files": [], "faults": [], "named": names_in(place)}
                )
        except FormatError:  # reading the files next to it reports the reason
            continue
    for record, count in shares.cut():
        record["faults"].append(
            f"names {count:,} files, of which {_count(record):,} are looked for, {_FAR_MORE}"
        )
    # The coordinator holds every name in memory.
    if (count := sum(len(record["named"]) for record in records)) > MOST_NAMED:
        reason = f"documents and lists name {count:,} in all, at most {MOST_NAMED:,} are compared"
        first_record = next(record for record in records if record["named"])
        first_record["faults"].append(f"{_UNCOMPARED}: {reason}")
        records = [record | {"named": []} for record in records]
    return records


def _count(index: Mapping[str, Any]) -> int:
    return len(index["files"])


class _Shares:
    """Limits the files that all indexes may name together; indexes with few files come first.

    Args:
        most: limit for the files of all indexes.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        # A heap of (files kept, index number), both negative.
        self._longest: list[tuple[int, int]] = []
        self._indexes: list[tuple[dict[str, Any], int]] = []

    def add(self, index: dict[str, Any]) -> None:
        """Add an index, and cut the indexes with most files to fit the limit."""
        heappush(self._longest, (-_count(index), -len(self._indexes)))
        self._indexes.append((index, _count(index)))
        self._left -= _count(index)
        while self._left < 0:
            kept, number = heappop(self._longest)
            less = min(-kept, -self._left)
            del self._indexes[-number][0]["files"][-kept - less :]
            heappush(self._longest, (kept + less, number))
            self._left += less

    def cut(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield each index that was cut, and the number of files that it names."""
        return ((index, count) for index, count in self._indexes if _count(index) < count)


def _files_of(path: str, index: str | None, place: File) -> list[str]:
    """Return the paths of the files that reading an index or a document opens."""
    if index != INFO or not _is_index(path, index):
        return [path]
    folder = path.removesuffix(INFO)
    return [folder + name for name in meta_files(place.parent.parent)]


def _of_mds(path: str, place: File) -> dict[str, Any]:
    folder = path.removesuffix(INDEX)
    shards = named_shards(place)
    files = [
        ([folder + name for name in names], f"{str(samples)[:20]} samples")
        for names, samples in shards
    ]
    return {"path": path, "read": [path] if shards else [], "files": files, "faults": []}


def _of_lerobot(path: str, base: File) -> dict[str, Any]:
    folder = path.removesuffix(INFO)
    faults = []
    try:
        read_rate(base)
    except FormatError as error:
        faults.append(str(error).removeprefix(f"{INFO}, "))
    faults += _lost_videos(base)
    files = [
        ([folder + name], _episodes_phrase(numbers))
        for name, numbers in read_meta(base).files.items()
    ]
    return {
        "path": path,
        "read": [folder + name for name in meta_files(base)],
        "files": files,
        "faults": faults,
    }


def _lost_videos(base: File) -> list[str]:
    """Return a sentence about missing videos that a meta folder names, [] if there are none."""
    try:
        video_paths = read_videos(base)
    # It has no video paths, or in another form: the expected videos are unknown.
    except FormatError:
        return []
    safe_paths = [
        path
        for path in video_paths
        if {"", ".", ".."}.isdisjoint(path.split("/")) and "\0" not in path
    ]
    missing_paths = [path for path in safe_paths if not (base / path).is_file()]
    return (
        [
            f"{_LOST_VIDEOS}: {len(missing_paths):,} of {len(safe_paths):,}, such as {missing_paths[0]}"
        ]
        if missing_paths
        else []
    )


def _episodes_phrase(numbers: Sequence[int]) -> str:
    phrase = f"episode {min(numbers)}" + (f" to {max(numbers)}" if len(numbers) > 1 else "")
    return (
        phrase
        if len(numbers) < 3
        else f"{len(numbers)} episodes, {phrase.removeprefix('episode ')}"
    )
