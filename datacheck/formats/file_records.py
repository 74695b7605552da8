"""JSON documents with a record for each of many files: COCO's pictures, the frames of nerfstudio.

A list of mappings that each name a file of their own can be read as groups: ``/frames/*`` gives the
group ``frames/0001.jpg`` with the values of that record. If the document also has ``annotations``
whose ``image_id`` is the ``id`` of such a record (COCO), the record gets "size" [width, height] and
the values of those that belong to it by key, a row for each: ``bbox`` becomes "boxes" [N, 4] (x_min,
y_min, x_max, y_max), ``category_id`` "classes" [N]; others keep their names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.limits import Values, check_longest, matching, path_below
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
_ANNOTATIONS = "annotations"
_ID = "id"
_OWNER = "image_id"
_CORNERS = 4
_SHOWN = 80  # characters of a name in a message


class Document(Values):
    """A JSON object; a list with a record for each of many files becomes groups on request."""

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match a pattern, and from then on list their values by name.

        Raises:
            FormatError: two records of the list name one file, or a path is too long.
        """
        head = pattern.strip("/").partition("/")[0]
        if not isinstance(self._values, _Spread):
            named = by_file(self._values.get(head))
            if named is None:
                return super().groups(pattern)
            self._values = _Spread(self._values, head, named)
        records, folders = self._values.records, self._values.folders
        found = matching(
            pattern,
            lambda path: folders.get(path, ()),
            lambda path: path in folders or path in records,
        )
        return [group for group in found if group in records]

    def file_lists(self) -> dict[str, Mapping[str, Record]]:
        """Return the records by file of each list that could be groups, by its name."""
        lists: dict[str, Mapping[str, Record]] = {}
        for name, value in self._values.items():
            try:
                records = by_file(value) if name != _ANNOTATIONS else None
            except FormatError:
                continue
            if records is not None:
                lists[name] = records
        return lists

    def category_ids(self) -> list[int]:
        """Return the numbers of the categories of a COCO document, ascending; [] without any."""
        categories = self._values.get("categories")
        if not isinstance(categories, list) or not all(isinstance(c, dict) for c in categories):
            return []
        numbers = [category.get(_ID) for category in categories]
        return sorted({number for number in numbers if type(number) is int})

    def unmatched(self) -> dict[str, str]:
        """Return the reason for each annotation that belongs to no record, by its name."""
        return self._values.unmatched if isinstance(self._values, _Spread) else {}


class _Spread(Mapping[str, Any]):
    """The values of a document, with those of its records in place of a list.

    Args:
        values: of the document.
        head: the name of the list.
        records: of the list, by the path of their file.

    Attributes:
        records: by group.
        folders: the paths inside each path that leads to a group.
        unmatched: reasons for annotations of no record, by name.
    """

    def __init__(self, values: Mapping[str, Any], head: str, records: Mapping[str, Record]) -> None:
        annotations = values.get(_ANNOTATIONS) if head != _ANNOTATIONS else None
        owned, self.unmatched = _owned(annotations, records.values())
        joined = {head, _ANNOTATIONS} if owned is not None else {head}
        self._others = {name: value for name, value in values.items() if name not in joined}
        self._annotations = _Annotations(annotations or []) if owned is not None else None
        self._last: tuple[str, dict[str, Any]] = "", {}
        self.records: dict[str, tuple[Record, Sequence[int]]] = {}
        self.folders: dict[str, list[str]] = defaultdict(list)
        seen = set[str]()
        for path, record in records.items():
            group = f"{head}/{path}"
            key = record.get(_ID)
            numbers = owned.get(key, []) if owned is not None and _is_id(key) else []
            self.records[group] = record, numbers
            while group not in seen:
                seen.add(group)
                outer = group.rpartition("/")[0]
                self.folders[outer].append(group)
                group = outer or group
        check_longest(self.records)

    def _names_of(self, group: str) -> set[str]:
        """Return the names of the values of a group."""
        record, _ = self.records[group]
        names = {key for key, value in record.items() if value is not None}
        return names if self._annotations is None else names | self._annotations.names | {"size"}

    def _values_of(self, group: str) -> dict[str, Any]:
        """Return the values of a group; those of the last group are kept, as a sample reads many."""
        if group != self._last[0]:
            record, numbers = self.records[group]
            values = {key: from_json(value) for key, value in record.items() if value is not None}
            if self._annotations is not None:
                sides = record.get("width"), record.get("height")
                values["size"] = np.array(sides) if all(map(_is_number, sides)) else None
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

    def __iter__(self) -> Any:
        yield from self._others
        for group in self.records:
            for key in self._names_of(group):
                yield f"{group}/{key}"

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Annotations:
    """The values of the annotations of a document by key: arrays where all are alike, else lists."""

    def __init__(self, annotations: Sequence[Record]) -> None:
        keys = dict.fromkeys(key for annotation in annotations for key in annotation)
        self._columns: dict[str, Array | list[Any]] = {}
        for key in keys:
            if key not in {_ID, _OWNER}:
                name, column = _column(key, [annotation.get(key) for annotation in annotations])
                self._columns[name] = column

    @property
    def names(self) -> set[str]:
        """The names of the values."""
        return set(self._columns)

    def of(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the values of some annotations by name."""
        return {
            name: [column[number] for number in numbers]
            if isinstance(column, list)
            else column[numbers]
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
    if key == "bbox" and array.shape[1:] == (_CORNERS,):
        corners = array.astype(np.float64)
        corners[:, 2:] += corners[:, :2]
        return "boxes", corners
    return "classes" if key == "category_id" else key, array


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str)


def _owned(
    annotations: Any, records: Iterable[Record]
) -> tuple[dict[Any, list[int]] | None, dict[str, str]]:
    """Return the places of the annotations of each record, by its id, and reasons for the others.

    (None, {}) if the document has no annotations of records.
    """
    ids = {record[_ID] for record in records if _is_id(record.get(_ID))}
    if not isinstance(annotations, list) or not ids:
        return None, {}
    if not all(isinstance(a, dict) and _is_id(a.get(_OWNER)) for a in annotations):
        return None, {}
    owned: dict[Any, list[int]] = defaultdict(list)
    unmatched = {}
    for place, annotation in enumerate(annotations):
        owner = annotation[_OWNER]
        if owner in ids:
            owned[owner].append(place)
        else:
            reason = f"has {_OWNER} {str(owner)[:_SHOWN]}, which is the id of no picture"
            unmatched[f"{_ANNOTATIONS}/{place}"] = reason
    return owned, unmatched


def by_file(value: Any) -> dict[str, Record] | None:
    """Return the records of a list by the path of the file that each names, None for other values.

    Raises:
        FormatError: two records name one file.
    """
    if not isinstance(value, list) or not value or not all(isinstance(r, dict) for r in value):
        return None
    key = next((key for key in _FILE_KEYS if all(_names_file(r.get(key)) for r in value)), None)
    if key is None:
        return None
    records: dict[str, Record] = {}
    for record in value:
        path = path_below(record[key].replace("\\", "/"))
        if path is None:
            return None
        if path in records:
            msg = f"two records name {path[:_SHOWN]}"
            raise FormatError(msg)
        records[path] = record
    return records


def _names_file(value: Any) -> bool:
    return isinstance(value, str) and value != "" and "\n" not in value
