"""JSON objects: their values by name, and the records of many files in one of them.

A mapping that holds an array of 16 numbers or more at any depth gives its entries as values of
their own, "emg/data"; so does a list of 16 mappings or more with the same keys and numbers only,
"imu/acceleration" [N, 3]. Other mappings and lists are one value.

A list of mappings that each name a file of their own can be read as groups: ``/frames/*`` gives the
group ``frames/0001.jpg`` with the values of that record. A mapping whose keys name files is read the
same way, also if it is the document: ``/images/*`` then gives the group ``images/0001.jpg``. An
entry that is no mapping is the value "label". If the document also has ``annotations``
whose ``image_id`` is the ``id`` of such a record (COCO), the record gets "size" [width, height] and
the values of those that belong to it by key, a row for each: ``bbox`` becomes "boxes" [N, 4] (x_min,
y_min, x_max, y_max), ``category_id`` "classes" [N]; others keep their names.

A document in the layout of SQuAD is also a list of its questions: `squad_questions`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.limits import (
    TEXT_BYTES,
    Values,
    check_bytes,
    check_keys,
    matching,
    path_below,
)
from datacheck.formats.parsed import from_json, rectangular
from datacheck.model.sample import Array

Record = Mapping[str, Any]

# Keys under which a record names its file.
_FILE_KEYS = (
    "file_name",
    "file_path",
    "filename",
    "filepath",
    "file",
    "image_path",
    "image",
    "path",
)
# Endings of keys that name files, share of the keys that must have one, and fewest keys without.
_MEDIA = re.compile(
    r".*\.(?:jpe?g|png|bmp|webp|tiff?|gif|mp4|m4v|mov|avi|wav|flac|mp3|ogg)", re.IGNORECASE
)
_MOST_NAMED = 0.9
_FEWEST_KEYS = 8
_MAPPING = "mapping"
_LABEL = "label"  # the name of an entry that is no mapping
_LIST_NAME = re.compile(r"[\w -]+(?:\.[\w -]+)*")
_ANNOTATIONS = "annotations"
_BOX, _CATEGORY = "bbox", "category_id"
# Lists of COCO and of nerfstudio, and what a frame of nerfstudio has.
_IMAGES, _FRAMES, _POSE = "images", "frames", "transform_matrix"
# Names of values that are made of several keys.
_JOINED = frozenset({"boxes", "classes", "size"})
_MOST_NAME = 500  # characters of a path
_MOST_FOLDERS = 16
_MOST_CATEGORY = 10**9
# Entries of a list, and share of it, that may name a file once more.
_FEW_REPEATS = 1
_REPEATS = 0.02
# The same in COCO and nerfstudio: with more, each picture has several captions, or each video
# several frames.
_KNOWN_REPEATS = 0.25
_MOST_KEYS = 200  # of annotations; rarer ones are left out
_ID = "id"
_OWNER = "image_id"
_CORNERS = 4
_SHOWN = 80  # characters of a name in a message
# Numbers of an array, and rows of a list, from which on they have a name of their own.
_FEWEST = 16
# Keys of SQuAD that lead to the questions.
_ARTICLES, _PARAGRAPHS, _QUESTIONS = "data", "paragraphs", "qas"
_DEPTH = 8  # levels of names


class Document(Values):
    """A JSON object; a list with a record for each of many files becomes groups on request."""

    def __init__(self, values: Mapping[str, Any], nulls: Sequence[str] = ()) -> None:
        super().__init__(values, nulls)
        self._inner: Mapping[str, Any] | None = None

    def whole(self) -> Mapping[str, Any]:
        """Return the values under the keys of the object."""
        return self._values

    def names(self) -> list[str]:
        """Return the names, sorted; "/" leads into mappings that hold arrays."""
        if isinstance(self._values, _Spread):
            return sorted(self._values)
        return sorted(self._named())

    def read(self, name: str) -> Any:
        """Return one value, by a key of the object or a name.

        Raises:
            KeyError: no value has this name.
        """
        if isinstance(self._values, _Spread) or name in self._values:
            return self._values[name]
        return _inside(self._values, name)

    def _named(self) -> Mapping[str, Any]:
        if self._inner is None:
            self._inner = _by_name(self._values)
            check_keys(len(self._inner))
        return self._inner

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match a pattern, and from then on list their values by name.

        Notes:
            `unmatched` then has each entry of the list that is in no such group.
        """
        head = pattern.strip("/").partition("/")[0]
        if not isinstance(self._values, _Spread):
            if head not in self._values:
                head = ""
            named = self._by_file(head)
            if named is None or not named[0]:
                return super().groups(pattern)
            self._values = _Spread(self._values, head, *named)
        records, folders = self._values.records, self._values.folders
        found = matching(
            pattern,
            lambda path: folders.get(path, ()),
            lambda path: path in folders or path in records,
        )
        groups = [group for group in found if group in records]
        for group in records.keys() - set(groups):
            self._values.unmatched[group] = f"its name does not fit {pattern[:_SHOWN]}"
        return groups

    def file_lists(self) -> dict[str, Mapping[str, Record]]:
        """Return the records by file of each list and mapping that could be groups, by its name.

        Notes:
            Mappings are returned only without a list; the name of the document itself is "".
            The pictures of COCO and the frames of nerfstudio are such a list even if none of them
            names a file below a folder.
        """
        lists: dict[str, Mapping[str, Record]] = {}
        mappings: dict[str, Mapping[str, Record]] = {}
        for name, value in self._values.items():
            if name != _ANNOTATIONS and _LIST_NAME.fullmatch(name):
                named = self._by_file(name)
                if named is not None:
                    (lists if isinstance(value, list) else mappings)[name] = named[0]
        if not lists and (named := self._by_file("")) is not None:
            mappings[""] = named[0]
        return lists or mappings

    def _by_file(self, name: str) -> tuple[dict[str, Record], dict[str, str]] | None:
        """Return what `by_file` does of a list or mapping; the document itself is "".

        None of a mapping most entries of which hold arrays, unless its keys have the endings of
        files: these entries are groups by themselves ("demo_0", "demo.0").
        """
        value = self._values.get(name) if name else self._entries()
        named = by_file(value, known=_is_known(self._values, name))
        if named is None or isinstance(value, list) or any(map(_MEDIA.fullmatch, named[0])):
            return named
        start = f"{name}/" if name else ""
        level = start.count("/") + 1
        groups = {"/".join(key.split("/")[:level]) for key in self._named() if "/" in key}
        arrays = sum(f"{start}{path}" in groups for path in named[0])
        return None if 2 * arrays > len(named[0]) else named

    def _entries(self) -> dict[str, Any]:
        """Return the values under the keys of the object, None for a null."""
        return {**self._values, **dict.fromkeys(self.nulls)}

    def has_known_layout(self, name: str) -> bool:
        """Tell whether a list holds the pictures of COCO, or the frames of nerfstudio."""
        return _is_known(self._values, name)

    def category_ids(self) -> list[int]:
        """Return the numbers of the categories of a COCO document, ascending; [] without any."""
        categories = self._values.get("categories")
        if not isinstance(categories, list) or not all(isinstance(c, dict) for c in categories):
            return []
        numbers = [category.get(_ID) for category in categories]
        return sorted({n for n in numbers if type(n) is int and abs(n) < _MOST_CATEGORY})

    def unmatched(self) -> dict[str, str]:
        """Return the reason for each record and annotation that no group holds, by its name."""
        return self._values.unmatched if isinstance(self._values, _Spread) else {}


def squad_questions(root: Any) -> list[Any] | None:
    """Return a record for each question of a document in SQuAD's layout, None for other values.

    The layout is ``{"data": [{"paragraphs": [{"context", "qas": [{"question", ...}]}]}]}``. A record
    has the values of its question, the context, and the texts and numbers of paragraph and article
    under their keys; a value of the question wins over one of the paragraph, and that over one of
    the article. Entries of another form stand in the list as they are.

    Raises:
        FormatError: the records repeat more text than a value may have.
    """
    articles = root.get(_ARTICLES) if isinstance(root, Mapping) else None
    if not isinstance(articles, list) or not _are_mostly(articles, _PARAGRAPHS):
        return None
    paragraphs = [
        (paragraph, _plain(article))
        for article in articles
        for paragraph in (_entries_of(article, _PARAGRAPHS))
    ]
    if not _are_mostly([paragraph for paragraph, _ in paragraphs], _QUESTIONS):
        return None
    records: list[Any] = []
    nbytes = 0
    for paragraph, shared in paragraphs:
        outer = shared | _plain(paragraph)
        size = sum(len(value) for value in outer.values() if isinstance(value, str))
        for question in _entries_of(paragraph, _QUESTIONS):
            records.append(outer | question if isinstance(question, dict) else question)
            nbytes += size
        check_bytes(nbytes, "the contexts of all questions", TEXT_BYTES)
    return records


def _are_mostly(entries: list[Any], key: str) -> bool:
    """Tell whether most entries have a list under a key."""
    fitting = sum(isinstance(e, dict) and isinstance(e.get(key), list) for e in entries)
    return 2 * fitting > len(entries)


def _entries_of(outer: Any, key: str) -> list[Any]:
    """Return the list under a key; a value without one is its own only entry."""
    entries = outer.get(key) if isinstance(outer, dict) else None
    return entries if isinstance(entries, list) else [outer]


def _plain(outer: Any) -> dict[str, Any]:
    """Return the texts, numbers and flags of a mapping."""
    values = outer.items() if isinstance(outer, dict) else ()
    return {key: value for key, value in values if isinstance(value, str | int | float)}


def _is_known(values: Mapping[str, Any], name: str) -> bool:
    """Tell whether a list is that of a layout whose records name one file each.

    The images of COCO, to which annotations refer by `image_id`, and the frames of nerfstudio.
    """
    records = values.get(name)
    if not isinstance(records, list) or not records:
        return False
    if name == _FRAMES:
        return _most_have(records, _POSE)
    annotations = values.get(_ANNOTATIONS)
    return name == _IMAGES and isinstance(annotations, list) and _most_have(annotations, _OWNER)


def _most_have(entries: list[Any], key: str) -> bool:
    return 2 * sum(isinstance(entry, dict) and key in entry for entry in entries) >= len(entries)


def _inside(values: Mapping[str, Any], name: str) -> Any:
    """Return the value at a path into mappings, or the column of a list of mappings.

    Raises:
        KeyError: there is none.
    """
    value: Any = values
    for level in name.split("/"):
        if isinstance(value, list):
            columns = _columns(value, 1)
            value = {} if columns is None else columns
        if not isinstance(value, Mapping) or value.get(level) is None:
            raise KeyError(name)
        value = value[level]
    return from_json(value)


def _by_name(values: Mapping[str, Any], depth: int = _DEPTH) -> dict[str, Any]:
    """Return values by name; mappings and lists that hold arrays give their entries."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        inner = _entries(value, depth)
        names = {f"{name}/{key}": entry for key, entry in inner.items()} if inner else {}
        if names and not any(other in values for other in names):
            named |= names
        else:
            named[name] = value
    return named


def _entries(value: Any, depth: int) -> dict[str, Any] | None:
    """Return the entries of a mapping or list by name, None if it holds no array."""
    if isinstance(value, dict) and depth and all(key and "/" not in key for key in value):
        entries = {key: from_json(entry) for key, entry in value.items() if entry is not None}
        named = _by_name(entries, depth - 1)
        has_array = any(isinstance(v, np.ndarray) and v.size >= _FEWEST for v in named.values())
        return named if has_array else None
    return _columns(value) if isinstance(value, list) else None


def _columns(rows: list[Any], fewest: int = _FEWEST) -> dict[str, Any] | None:
    """Return the numbers of a list of mappings by key, None if they hold anything else."""
    if len(rows) < fewest or not all(isinstance(row, dict) for row in rows):
        return None
    keys = rows[0].keys()
    if not keys or any(row.keys() != keys or "/" in row for row in rows):
        return None
    try:
        return {key: rectangular([row[key] for row in rows]) for key in keys if key}
    except FormatError:
        return None


class _Spread(Mapping[str, Any]):
    """The values of a document, with those of its records in place of a list.

    Args:
        values: of the document.
        head: the name of the list or mapping, "" for a mapping that is the document.
        records: of the list, by the path of their file.
        odd: reasons for its other entries, by their name below `head`.

    Attributes:
        records: by group, with the numbers of their annotations.
        folders: the paths inside each path that leads to a group.
        unmatched: reasons for records and annotations in no group, by name.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        head: str,
        records: Mapping[str, Record],
        odd: Mapping[str, str],
    ) -> None:
        listed = values.get(head)
        rows = listed if isinstance(listed, list) else []
        annotations = values.get(_ANNOTATIONS) if rows and head != _ANNOTATIONS else None
        entries = [entry for entry in rows if isinstance(entry, dict)]
        owned, unowned = _by_picture(annotations, entries, known=_is_known(values, head))
        self.unmatched = {f"{head}{name}".lstrip("/"): reason for name, reason in odd.items()}
        self.unmatched |= {
            f"{_ANNOTATIONS}[{number}]": reason for number, reason in unowned.items()
        }
        joined = {head, _ANNOTATIONS} if owned is not None else {head}
        if not head:
            joined = {key for key in values if _below(key) in records or f"/{key}" in odd}
        self._others = {name: value for name, value in values.items() if name not in joined}
        self._annotations = (
            _Annotations(annotations or [], chain.from_iterable(owned.values()))
            if owned is not None
            else None
        )
        self._last: tuple[str, dict[str, Any]] = "", {}
        self.records: dict[str, tuple[Record, Sequence[int]]] = {}
        self.folders: dict[str, list[str]] = defaultdict(list)
        has_ids = any(_is_id(record.get(_ID)) for record in records.values())
        seen, taken = set[str](), set[Any]()
        for path, record in records.items():
            group = f"{head}/{path}".lstrip("/")
            key = record.get(_ID)
            is_id = _is_id(key)
            if owned is not None and has_ids and (not is_id or key in taken):
                why = "is also that of another picture" if is_id else "is no number or text"
                self.unmatched[group] = f"{_ID} {_shown(key)} {why}"
                continue
            if is_id:
                taken.add(key)
            numbers = owned.get(key, []) if owned is not None and is_id else []
            self.records[group] = record, numbers
            while group not in seen:
                seen.add(group)
                outer = group.rpartition("/")[0]
                self.folders[outer].append(group)
                group = outer or group

    def _names_of(self, group: str) -> set[str]:
        """Return the names of the values of a group."""
        record, _ = self.records[group]
        names = {key for key, value in record.items() if value is not None}
        if self._annotations is not None:
            names |= self._annotations.names
            names |= {"size"} if _sides(record) is not None else set()
        return names

    def _values_of(self, group: str) -> dict[str, Any]:
        """Return the values of a group; those of the last group are kept, as a sample reads many."""
        if group != self._last[0]:
            record, numbers = self.records[group]
            values = {key: from_json(value) for key, value in record.items() if value is not None}
            if self._annotations is not None:
                sides = _sides(record)
                values |= {} if sides is None else {"size": sides}
                values |= self._annotations.of(numbers)
            self._last = group, values
        return self._last[1]

    def __getitem__(self, name: str) -> Any:
        if name in self._others:
            return self._others[name]
        group, _, key = name.rpartition("/")
        while group and group not in self.records:
            group, _, outer = group.rpartition("/")
            key = f"{outer}/{key}"
        if group not in self.records:
            raise KeyError(name)
        return self._values_of(group)[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._others
        for group in self.records:
            for key in self._names_of(group):
                yield f"{group}/{key}"

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Annotations:
    """The values of the annotations of a document by key: arrays where all are alike, else lists."""

    def __init__(self, annotations: Sequence[Any], numbers: Iterable[int]) -> None:
        chosen = sorted(numbers)
        self._places = {number: place for place, number in enumerate(chosen)}
        records = [annotations[number] for number in chosen]
        keys = Counter(key for record in records for key in record)
        self._columns: dict[str, Array | list[Any]] = {}
        for key, _ in keys.most_common(_MOST_KEYS):
            if key not in {_ID, _OWNER, *_JOINED}:
                name, column = _column(key, [record.get(key) for record in records])
                self._columns[name] = column

    @property
    def names(self) -> set[str]:
        """The names of the values."""
        return set(self._columns)

    def of(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the values of some annotations by name."""
        places = [self._places[number] for number in numbers]
        return {
            name: [column[place] for place in places]
            if isinstance(column, list)
            else column[places]
            for name, column in self._columns.items()
        }


def _column(key: str, values: list[Any]) -> tuple[str, Array | list[Any]]:
    """Return the name and the values of one key of all annotations."""
    try:
        array = rectangular(values)
    except FormatError:
        return key, values
    # Polygons are lists of their own length, also where those of one document happen to be alike.
    if array.ndim > 2 or not array.size:
        return key, values
    if key == _BOX and array.shape[1:] == (_CORNERS,):
        corners = array.astype(np.float64)
        corners[:, 2:] += corners[:, :2]
        return "boxes", corners
    return "classes" if key == _CATEGORY else key, array


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sides(record: Record) -> Array | None:
    """Return the width and height of a picture that its record states, or None."""
    sides = record.get("width"), record.get("height")
    return np.array(sides) if all(map(_is_number, sides)) else None


def _is_id(value: Any) -> bool:
    """Tell whether a value can be an id; pandas writes whole numbers as 1.0."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == _CORNERS and all(map(_is_number, value))


# What an annotation of COCO must have, if most of its document have it.
_NEEDED = {
    _BOX: (_is_box, "is not x, y, width and height"),
    _CATEGORY: (lambda value: type(value) is int, "is no whole number"),
}


def _by_picture(
    annotations: Any, records: Iterable[Record], *, known: bool
) -> tuple[dict[Any, list[int]] | None, dict[int, str]]:
    """Return the places of the annotations of each record, by its id, and reasons for the others.

    (None, {}) if most entries are no annotations of records.

    Args:
        annotations: of the document.
        records: of the pictures.
        known: whether the document is one of COCO: annotations that name a picture then belong to
            pictures, even if most name one that is not there.
    """
    ids = {record[_ID] for record in records if _is_id(record.get(_ID))}
    if not isinstance(annotations, list) or not (ids or known):
        return None, {}
    entries = [entry if isinstance(entry, dict) else {} for entry in annotations]
    has_picture = [_is_id(entry.get(_OWNER)) and entry[_OWNER] in ids for entry in entries]
    belong = sum(_OWNER in entry for entry in entries) if known else sum(has_picture)
    if 2 * belong < len(entries):
        return None, {}
    needed = {
        key: (fits, phrase)
        for key, (fits, phrase) in _NEEDED.items()
        if 2 * sum(fits(entry.get(key)) for entry in entries) > len(entries)
    }
    owned: dict[Any, list[int]] = defaultdict(list)
    unowned = {}
    for place, (entry, is_owned) in enumerate(zip(entries, has_picture, strict=True)):
        odd = next((key for key, (fits, _) in needed.items() if not fits(entry.get(key))), None)
        if not is_owned:
            unowned[place] = f"{_OWNER} {_shown(entry.get(_OWNER))} is the id of no picture"
        elif odd is not None:
            unowned[place] = f"{odd} {_shown(entry.get(odd))} {needed[odd][1]}"
        else:
            owned[entry[_OWNER]].append(place)
    return owned, unowned


def _shown(value: Any) -> str:
    return (
        repr(value)[:_SHOWN]
        if isinstance(value, str | int | float | None)
        else type(value).__name__
    )


def by_file(value: Any, *, known: bool = False) -> tuple[dict[str, Record], dict[str, str]] | None:
    """Return the records of a list or mapping by the path of the file that each names.

    Args:
        value: of any kind.
        known: whether its layout says that each record names a file of its own. Other lists must
            show so: most entries do, and nearly all of these name another one.

    Returns:
        The records, and the reasons for the other entries by their name: "[3]" in a list, "/key" in
        a mapping. None for other values.
    """
    if isinstance(value, Mapping):
        return _by_key(value)
    if not isinstance(value, list) or not value:
        return None
    paths, key = max(
        (([_path(entry, key) for entry in value], key) for key in _FILE_KEYS),
        key=lambda named: sum(path is not None for path in named[0]),
    )
    records: dict[str, Record] = {}
    odd: dict[str, str] = {}
    for number, (entry, path) in enumerate(zip(value, paths, strict=True)):
        if path is None:
            odd[f"[{number}]"] = f"{key} names no file below the folder"
        elif path in records:
            odd[f"[{number}]"] = f"{key} {path[:_SHOWN]} was named before"
        else:
            records[path] = entry
    repeats = len(value) - len(records) - paths.count(None)
    # A list with several entries for a file is a list of something else, such as questions.
    most = _KNOWN_REPEATS if known else _REPEATS
    if repeats > max(_FEW_REPEATS, most * len(value)):
        return None
    return (records, odd) if known or 2 * len(odd) <= len(value) else None


def _by_key(entries: Mapping[str, Any]) -> tuple[dict[str, Record], dict[str, str]] | None:
    """Return the entries of a mapping by the path that their key is, and reasons for others.

    None where few keys have the ending of a file and the entries are too few or of several kinds.
    Where most keys have such an ending, others are about the mapping as a whole ("version").
    """
    named = {key for key in entries if _MEDIA.fullmatch(key)}
    has_endings = 2 * len(named) > len(entries)
    kinds = Counter(_kind(entry) for key, entry in entries.items() if entry is not None)
    if not kinds:
        return None
    kind, count = kinds.most_common(1)[0]
    alike = max(_FEWEST_KEYS, _MOST_NAMED * len(entries))
    if not has_endings and (named or count < alike):
        return None
    records: dict[str, Record] = {}
    odd: dict[str, str] = {}
    for key, entry in entries.items():
        if key not in named and (has_endings or _kind(entry) != kind):
            continue
        path = _below(key)
        reason = _odd_entry(path, entry, records, kind)
        if path is None or reason:
            odd[f"/{key[:_SHOWN]}"] = reason
        else:
            records[path] = entry if isinstance(entry, Mapping) else {_LABEL: entry}
    return (records, odd) if records and 2 * len(odd) <= len(entries) else None


def _odd_entry(path: str | None, entry: Any, records: Mapping[str, Record], kind: str) -> str:
    """Return why an entry of a mapping by file is no record, or ""."""
    if path is None:
        return "its key names no file below the folder"
    if path in records:
        return f"{path[:_SHOWN]} was named before"
    if entry is None:
        return "its entry is null"
    is_other = (kind == _MAPPING) != isinstance(entry, Mapping)
    return "its entry is of another kind than most" if is_other else ""


def is_media(name: str) -> bool:
    """Tell whether a name has the ending of a picture, video or sound."""
    return _MEDIA.fullmatch(name) is not None


def _kind(entry: Any) -> str:
    """Return whether an entry is a mapping, a text or anything else."""
    if isinstance(entry, Mapping):
        return _MAPPING
    return "text" if isinstance(entry, str) else "other"


def _path(entry: Any, key: str) -> str | None:
    """Return the path of the file that a record names, None if it names none below a folder."""
    name = entry.get(key) if isinstance(entry, dict) else None
    return _below(name) if isinstance(name, str) else None


def _below(name: str) -> str | None:
    """Return the path of a file by its name, None if it is not below a folder."""
    if not 0 < len(name) <= _MOST_NAME or not name.isprintable():
        return None
    path = path_below(name.replace("\\", "/"))
    return None if path is None or path.count("/") > _MOST_FOLDERS else path
