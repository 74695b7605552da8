"""Read the files that indexes, lists of splits and other documents name, in a child."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from heapq import heappop, heappush
from pathlib import PurePosixPath
from sys import getsizeof
from typing import Any

import orjson

from datacheck.errors import FormatError, MissingDependencyError
from datacheck.formats.base import open_container
from datacheck.formats.limits import path_below
from datacheck.formats.mds import INDEX, named_shards
from datacheck.formats.parsed import parse_json
from datacheck.runtime.beneath import File
from datacheck.sources.file_columns import file_columns
from datacheck.sources.lerobot import (
    INFO,
    PathTemplateError,
    meta_files,
    read_info,
    read_meta,
    read_rate,
    read_videos,
)
from datacheck.sources.lerobot_audit import AUDITED, contradictions, dataset_facts
from datacheck.sources.lerobot_videos import check_videos
from datacheck.sources.lines import numbered
from datacheck.sources.listing import limit_files
from datacheck.sources.roots import Roots
from datacheck.workers.wire import answers, natural, text

TABLES = (".csv", ".tsv")
MEDIA = (
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
    ".wav",
    ".flac",
    ".mp3",
    ".ogg",
)
LISTS = re.compile(
    r"(?:^|/)(?:(?P<train>train|training)|val|valid|validation|test|testing|eval|evaluation)\.(?:txt|lst)\Z"
)
# The cameras of LLFF: a row for each picture of the folders beside, by the order of their names.
POSES = "poses_bounds.npy"
_POSED = re.compile(r"images(?:_\d+(?:x\d+)?)?")
_POSED_SUFFIXES = (".jpg", ".jpeg", ".png")
UNPAIRED = "each row is the camera of one, by the order of their names"
INDEXES = {"key": INDEX, "episode": INFO}  # by `samples.each`
_ID = re.compile(r"[\w./-]{1,200}")
_NAME = re.compile(rf"[\w./\\ ()+-]{{1,300}}(?:{'|'.join(map(re.escape, MEDIA))})", re.IGNORECASE)
_SHOWN = 100  # characters of a name in a sentence
_MOST_NAMES = 100_000  # of a single document
MOST_NAMED = 200_000  # of all documents
_MOST_MEMORY = 64 << 20  # bytes of these names
# The beginnings or ends of sentences that a child returns.
LOST_VIDEOS = "names videos that are not there"
OUTSIDE = "names files outside of its folder, which are not looked for"
NO_TEMPLATE = "names videos by a template that cannot be filled"
UNCOMPARED = "names files that are not compared with those there"
FAR_MORE = "as the indexes together name far more than there are"


@answers(
    [
        {
            "path": text,
            "read": [text],
            "files": [([text], text)],
            "faults": [text],
            "contradictions": [(text, text, text)],
            "videos": [(text, text, text, text)],
            "facts": [
                {
                    "cameras": {text: object},
                    "widths": {text: int | None},
                    "statistics": {text: [text]},
                    "tasks": bool,
                    "modality": bool,
                }
            ],
            "named": [text],
            "columns": [{"names": [text], "rows": natural, "conflicting": [text]}],
        }
    ],
    raises=(MissingDependencyError,),
)
def read_named_files(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the files that each index of a task names.

    Args:
        task: index (its name, None without one), most (limit for the files of all indexes), root,
            roots, items (each with its ``path``).
        beat: called with an item's number before the item is read.

    Returns:
        path; read: listing paths of the index's own files; files: for each named file its possible
        paths, and a phrase about its samples; faults: errors in the index, or what was not
        compared; named: files that a document other than an index names anywhere, and columns:
        those of a table that name files (`file_columns`); [] if all documents together name too
        many. Of a LeRobot dataset: contradictions: kind, path and words
        of each one between its documents; videos: kind, key of the sample, camera and words of each
        fault of a video; facts: what a policy asks of it.
    """
    folders = Roots(task["root"], task["roots"])
    records = list[dict[str, Any]]()
    shares = _Shares(task["most"])
    for number, item in enumerate(task["items"]):
        beat(number)
        path: str = item["path"]
        place = folders.file(path)
        try:
            limit_files(beat, (task, _files_of(path, task["index"], place)))
            if is_index(path, task["index"]):
                index_record = (
                    _of_mds(path, place)
                    if task["index"] == INDEX
                    else _of_lerobot(path, place.parent.parent, partial(beat, number))
                )
                records.append(
                    {
                        "contradictions": [],
                        "videos": [],
                        "facts": [],
                        **index_record,
                        "named": [],
                        "columns": [],
                    }
                )
                shares.add(records[-1])
            else:
                records.append(_of_document(path, place))
        except FormatError:  # reading the files next to it reports the reason
            continue
    for record, count in shares.cut():
        record["faults"].append(
            f"names {count:,} files, of which {count_files(record):,} are looked for, {FAR_MORE}"
        )
    # The coordinator holds every name in memory.
    if (count := sum(map(_count_named, records))) > MOST_NAMED:
        reason = f"documents and lists name {count:,} in all, at most {MOST_NAMED:,} are compared"
        records = _without_names(records, reason)
    elif (
        memory := sum(sum(map(getsizeof, _names_of(record))) for record in records)
    ) > _MOST_MEMORY:
        reason = (
            f"the names in documents and lists take {memory:,} bytes of memory, at most "
            f"{_MOST_MEMORY:,} are compared"
        )
        records = _without_names(records, reason)
    return records


def _of_document(path: str, place: File) -> dict[str, Any]:
    lists = ("read", "files", "faults", "contradictions", "videos", "facts", "named", "columns")
    record: dict[str, Any] = {"path": path, **{name: [] for name in lists}}
    if place.name == POSES:
        record["faults"] = _unpaired(place)
    elif path.lower().endswith(TABLES):
        record["columns"] = columns_in(place)
        if any(not column["names"] for column in record["columns"]):
            reason = f"a column names more than {_MOST_NAMES:,}"
            record["faults"] = [f"{UNCOMPARED}: {reason}"]
    else:
        record["named"] = names_in(place)
    return record


def _unpaired(place: File) -> list[str]:
    """Return in how many folders of pictures other numbers are than rows of cameras."""
    with closing(open_container(place)) as container:
        shape, _ = container.peek(container.names()[0])
    rows = shape[0] if shape else 0
    faults = []
    for name in filter(_POSED.fullmatch, place.parent.names()):
        folder = place.parent / name
        names = folder.names() if folder.is_dir() else []
        pictures = sum(name.lower().endswith(_POSED_SUFFIXES) for name in names)
        if pictures not in {0, rows}:
            faults.append(f"has {rows:,} rows, and {name} holds {pictures:,} pictures: {UNPAIRED}")
    return faults


def _without_names(records: Sequence[dict[str, Any]], reason: str) -> list[dict[str, Any]]:
    """Return records without the names of documents; the first one that had any says why."""
    first_record = next(record for record in records if _count_named(record))
    first_record["faults"].append(f"{UNCOMPARED}: {reason}")
    return [record | {"named": [], "columns": []} for record in records]


def is_index(path: str, name: str | None) -> bool:
    """Return whether a file is an index of this name."""
    return name is not None and f"/{path}".endswith(f"/{name}")


def count_files(index: Mapping[str, Any]) -> int:
    """Return the number of files that an index names."""
    return len(index["files"])


def _count_named(record: Mapping[str, Any]) -> int:
    return sum(1 for _ in _names_of(record))


def _names_of(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a document, those of all columns if it is a table."""
    yield from record["named"]
    for column in record["columns"]:
        yield from column["names"]


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
        heappush(self._longest, (-count_files(index), -len(self._indexes)))
        self._indexes.append((index, count_files(index)))
        self._left -= count_files(index)
        while self._left < 0:
            kept, number = heappop(self._longest)
            less = min(-kept, -self._left)
            del self._indexes[-number][0]["files"][-kept - less :]
            heappush(self._longest, (kept + less, number))
            self._left += less

    def cut(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield each index that was cut, and the number of files that it names."""
        return ((index, count) for index, count in self._indexes if count_files(index) < count)


def _files_of(path: str, index: str | None, place: File) -> list[str]:
    """Return the paths of the files that reading an index or a document opens."""
    if index != INFO or not is_index(path, index):
        return [path]
    folder = path.removesuffix(INFO)
    base = place.parent.parent
    return [folder + name for name in (*meta_files(base), *AUDITED) if (base / name).is_file()]


def _of_mds(path: str, place: File) -> dict[str, Any]:
    folder = path.removesuffix(INDEX)
    shards, outside = named_shards(place)
    files = [
        ([folder + name for name in names], f"{str(samples)[:20]} samples")
        for names, samples in shards
    ]
    count = len(shards) + len(outside)
    faults = _outside_faults(outside, f"{count:,} shards")
    return {"path": path, "read": [path] if count else [], "files": files, "faults": faults}


def _of_lerobot(path: str, base: File, beat: Callable[[], None]) -> dict[str, Any]:
    folder = path.removesuffix(INFO)
    faults = []
    try:
        read_rate(base)
    except FormatError as error:
        faults.append(str(error).removeprefix(f"{INFO}, "))
    faults += _lost_videos(base)
    meta, info = read_meta(base), read_info(base)
    named = meta.files
    inside = {name: numbers for name, numbers in named.items() if path_below(name) is not None}
    outside = [name for name in named if name not in inside]
    faults += _outside_faults(outside, f"{len(named):,} files of episodes")
    files = [([folder + name], _episodes_phrase(numbers)) for name, numbers in inside.items()]
    videos = check_videos(base, info, meta, beat)
    if not videos.is_whole:
        faults.append(f"{UNCOMPARED}: all videos but the first {videos.read:,}")
    documents = [*meta_files(base), *(name for name in AUDITED if (base / name).is_file())]
    keys = {
        number: numbered(folder + name, number)
        for name, numbers in named.items()
        for number in numbers
    }
    return {
        "path": path,
        "read": [folder + name for name in documents],
        "files": files,
        "faults": faults,
        "contradictions": [
            (kind, folder + document, words) for kind, document, words in contradictions(base, meta)
        ],
        "videos": [
            (fault.kind, keys[fault.episode], fault.camera, fault.words) for fault in videos.faults
        ],
        "facts": [dataset_facts(base, info, meta)],
    }


def _lost_videos(base: File) -> list[str]:
    """Return sentences about missing videos that a meta folder names, [] if there are none."""
    try:
        video_paths = read_videos(base)
    except PathTemplateError as error:
        return [f"{NO_TEMPLATE}: {str(error).removeprefix(f'{INFO}: ')}"]
    # It has no video paths, or in another form: the expected videos are unknown.
    except FormatError:
        return []
    inside = [path for path in video_paths if path_below(path) is not None]
    missing = [path for path in inside if not (base / path).is_file()]
    lost = (
        [f"{LOST_VIDEOS}: {len(missing):,} of {len(inside):,}, such as {missing[0]}"]
        if missing
        else []
    )
    outside = [path for path in video_paths if path_below(path) is None]
    return lost + _outside_faults(outside, f"{len(video_paths):,} videos")


def _outside_faults(outside: Sequence[str], named: str) -> list[str]:
    """Return a sentence about the paths that leave the folder of an index, [] for none."""
    return (
        [f"{OUTSIDE}: {len(outside):,} of {named}, such as {outside[0][:_SHOWN]!r}"]
        if outside
        else []
    )


def _episodes_phrase(numbers: Sequence[int]) -> str:
    phrase = f"episode {min(numbers)}" + (f" to {max(numbers)}" if len(numbers) > 1 else "")
    return (
        phrase
        if len(numbers) < 3
        else f"{len(numbers)} episodes, {phrase.removeprefix('episode ')}"
    )


def names_in(place: File) -> list[str]:
    """Return the sorted file names in JSON or JSON lines, or the lines of a list.

    Args:
        place: path of the document.

    Returns:
        [] for a damaged document, for one with too many names, and for a list of something other
        than names.
    """
    try:
        data = place.read_bytes()
        if LISTS.search(place.name):
            line_names = [
                line.strip().removeprefix("./")
                for line in data.decode("utf-8").splitlines()
                if line.strip()
            ]
            unique_names = sorted(set(line_names))
            # Numbers and classes repeat many times.
            is_distinct = len(line_names) < 2 * len(unique_names) <= 2 * _MOST_NAMES
            return unique_names if is_distinct and all(map(_ID.fullmatch, unique_names)) else []
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


def columns_in(place: File) -> list[dict[str, Any]]:
    """Return the columns of a table that may name files, [] for a damaged table."""
    try:
        tabs = place.name.lower().endswith(".tsv")
        return file_columns(place.read_bytes(), MEDIA, _MOST_NAMES, tabs=tabs)
    except OSError:
        return []


def _file_name(text: str) -> str:
    """Return a text as a file's path below a folder, "" if it is not one."""
    if len(text) > 310 or not text.lower().endswith(MEDIA) or not _NAME.fullmatch(text):
        return ""
    parts = PurePosixPath(text.replace("\\", "/")).parts
    return "/".join(parts) if ".." not in parts and parts[:1] != ("/",) and _is_text(text) else ""


def _is_text(item: str) -> bool:
    try:
        orjson.dumps(item)
    except TypeError:
        return False
    return True
