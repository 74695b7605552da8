"""The child's side of ``datacheck init``: what files hold inside that may be samples of their own.

`inner_groups` runs in an expendable child and answers with JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import chain, islice, takewhile
from typing import Any

from datacheck.errors import DatacheckError, MissingDependencyError, UsageError
from datacheck.formats import conll
from datacheck.formats.base import format_of, open_container
from datacheck.formats.json_objects import Document, is_media, squad_questions
from datacheck.formats.jsonl import BOM, head
from datacheck.formats.tabbed import HEAD_BYTES, SUFFIXES, is_table
from datacheck.formats.table_rows import RowsByFile, named_path
from datacheck.formats.textfile import Columns, NamedTable, NumberTable
from datacheck.infer.number_tables import rows_of
from datacheck.infer.profile import MOST_NAME
from datacheck.model.row_keys import storable
from datacheck.model.sample import Container
from datacheck.runtime.beneath import File
from datacheck.schema.patterns import PATTERN_SIGNS
from datacheck.sources.listing import limit_files
from datacheck.sources.named_files import MEDIA
from datacheck.sources.roots import Roots
from datacheck.workers.wire import answers, natural, text

Beat = Callable[[int], None]

# Kinds of `InnerSamples`. RECORDS and LINES are also the names that formats give to the only field
# of such a file.
RECORDS = "records"  # a list of JSON objects
LINES = "lines"  # a text
TABLE = "table"  # lines of columns
SENTENCES = "sentences"  # of words and tags
GROUPS = "groups"  # groups of values of one file
FILES = "files"  # a document with a record for each of many files
ROWS = "rows"  # a table of numbers whose rows are samples
WORDS = "words"  # a text of a few short lines, such as the names of classes

# Flat arrays of episodes, cut at these ends (diffusion policy's replay buffers).
_EPISODE_ENDS = "meta/episode_ends"
# Groups of this name are episodes, even if a file has only one.
_EPISODE_GROUP = re.compile(r"/(?:demo|episode|ep|traj|trajectory)_?\*$")
# Names of keys, or of values that are not read, that an answer holds.
_MOST_NAMES = 50
# Numbers of categories that an answer holds (LVIS has 1,203), and names of files.
_MOST_CLASSES = 10_000
_MOST_DIGITS = 9  # of the number of a class
# Keys of the document of a YOLO dataset, beside the names of its classes.
_YOLO_SPLITS = frozenset({"train", "val", "test"})
_MOST_FILES = 1_000_000
# Share of the cells of a column of a table that name files.
_MOST_NAMED = 0.9
_ID = re.compile(r"[\w./-]+")
_FIRST_WORD = re.compile(r"[^/_.-]*[/_.-]?")
# Share of the names in mappings by file above which they are not those of the same files.
_NEARLY_DISJOINT = 0.9
# Bytes of a document that show whether it begins as a list.
_HEAD_BYTES = 1 << 10


@dataclass(frozen=True)
class InnerSamples:
    """What a file says of samples inside it.

    Args:
        kind: `RECORDS` of a list of JSON objects or of the questions of SQuAD, `LINES` of a text,
            `TABLE`, `SENTENCES`, `GROUPS`, `FILES`, `ROWS` or `WORDS`.
        pattern: of groups, as in ``samples.each``: "/data/demo_*", "ends:meta/episode_ends", "key",
            or "" for a file without similar groups. Of files: the name of their
            list, mapping or column, "" for the document itself.
        count: of records, lines, words, or gaps in the tracks of a table.
        keys: of the first record.
        files: the paths of the first files.
        classes: numbers of the categories of a COCO document, or of the classes in the document
            of a YOLO dataset, or in the rows of a table.
        known: whether the list of the files is that of COCO or of nerfstudio.
        views: of a table, its columns whose names differ from one another by their start only, with
            this start: {"center": "IMG/center_", "left": "IMG/left_"}.
        groups: of files: the pattern of the groups of arrays, which are the samples if the files
            are not there.
        columns: of a table of numbers whose rows are samples or points of tracks, as a schema names
            them.
    """

    kind: str
    pattern: str = ""
    count: int = 0
    keys: Sequence[str] = ()
    files: Sequence[str] = ()
    classes: Sequence[int] = ()
    known: bool = False
    views: Mapping[str, str] = field(default_factory=dict)
    groups: str = ""
    columns: str = ""


@answers(
    {
        "found": {
            text: {
                "kind": text,
                "pattern": text,
                "count": natural,
                "keys": [text],
                "files": [text],
                "classes": [int],
                "known": bool,
                "views": {text: text},
                "groups": text,
                "columns": text,
            }
        }
    },
    raises=(UsageError, MissingDependencyError),
)
def inner_groups(task: dict[str, Any], beat: Beat) -> dict[str, Any]:
    """Return what each file of a task says of samples inside it.

    Args:
        task: root, roots (none), items (a path each).
        beat: called with an item's number before it is touched.

    Returns:
        found: `InnerSamples` by path, without the files that cannot be read.
    """
    found = {}
    folders = Roots(task["root"], {})
    for number, data in enumerate(task["items"]):
        beat(number)
        limit_files(beat, (task, [data["path"]]))
        try:
            found[data["path"]] = asdict(_inner_samples(data["path"], folders))
        except DatacheckError:
            continue
    return {"found": found}


def _inner_samples(path: str, folders: Roots) -> InnerSamples:
    file = folders.file(path)
    if kind := _kind_of_lines(path, file):
        return InnerSamples(kind)
    with closing(open_container(file)) as container:
        names = container.names()
        if names == [LINES] and format_of(path) is None:
            return InnerSamples(LINES, count=len(container.read(LINES)))
        if records := _records_in(container, file):
            keys = [key[:MOST_NAME] for key in list(records[0])[:_MOST_NAMES]]
            return InnerSamples(RECORDS, count=len(records), keys=storable(keys))
        described = next(
            (of(container) for kind, of in _LAYOUTS if isinstance(container, kind)), None
        )
        if described is not None:
            return described
        text = container.read("text") if names == ["text"] else None
        if isinstance(text, str) and _are_words(lines := text.split("\n")):
            return InnerSamples(WORDS, count=sum(map(bool, map(str.strip, lines))))
        pattern = "key" if container.keys() else _inner_pattern(storable(names))
        return InnerSamples(GROUPS, pattern, classes=_yolo_classes(container, names))


def _number_rows(table: NumberTable) -> InnerSamples:
    """Return what the rows of a table of numbers are."""
    names = table.column_names() if isinstance(table, NamedTable) else ()
    rows = rows_of(table.read("table"), names)
    if rows is None:
        return InnerSamples(GROUPS)
    kind = ROWS if rows.classes else GROUPS
    return InnerSamples(kind, rows.pattern, rows.gaps, classes=rows.classes, columns=rows.columns)


def _are_words(lines: Sequence[str]) -> bool:
    return len(lines) <= _MOST_NAMES and all(len(line) <= MOST_NAME for line in lines)


def _kind_of_lines(path: str, file: File) -> str:
    """Return `SENTENCES` or `TABLE` if the lines of a text are such, "" otherwise."""
    if not path.lower().endswith((*SUFFIXES, *conll.SUFFIXES)):
        return ""
    beginning = head(file, HEAD_BYTES)
    if conll.Layout.of(beginning) is not None:
        return SENTENCES
    return TABLE if is_table(path, beginning) else ""


def _records_in(container: Container, file: File) -> Sequence[Mapping[str, Any]]:
    """Return the JSON objects of a list, or the questions of SQuAD; () for anything else."""
    records: Any = None
    if container.names() == [RECORDS] and _is_list(file):
        records = container.read(RECORDS)
    elif isinstance(container, Document):
        records = squad_questions(container.whole())
    return records if records is not None and _are_records(records) else ()


def _yolo_classes(container: Container, names: Sequence[str]) -> list[int]:
    """Return the numbers of the classes that the document of a YOLO dataset names, ascending."""
    if "names" not in names or not _YOLO_SPLITS.intersection(names):
        return []
    value = container.read("names")
    if isinstance(value, list):
        return list(range(min(len(value), _MOST_CLASSES)))
    if not isinstance(value, Mapping) or not all(_is_class(key) for key in value):
        return []
    return sorted(int(key) for key in value)[:_MOST_CLASSES]


def _is_class(key: Any) -> bool:
    return str(key).isdecimal() and len(str(key)) < _MOST_DIGITS


def _file_records(document: Document) -> InnerSamples:
    """Return what a JSON object says of files that its records name."""
    lists = document.file_lists()
    pattern = _inner_pattern(storable(document.names()))
    if not lists:
        return InnerSamples(GROUPS, pattern)
    name = max(lists, key=lambda key: (len(lists[key]), key))
    files = list(islice(lists[name], _MOST_FILES))
    if not files:
        return InnerSamples(FILES, known=True, groups=pattern)
    if _are_splits(document, lists):
        return InnerSamples(GROUPS, pattern)
    known = document.has_known_layout(name)  # `groups` replaces the values
    groups = document.groups("/".join([name, *("*" for _ in files[0].split("/"))]))
    start = f"{groups[0]}/" if groups else ""
    keys = sorted(key[len(start) :] for key in document.names() if key.startswith(start))
    if not groups:
        return InnerSamples(GROUPS, pattern)
    return InnerSamples(
        FILES,
        storable([name])[0],
        len(lists[name]),
        storable([key[:MOST_NAME] for key in keys[:_MOST_NAMES]]),
        storable(files),
        document.category_ids()[:_MOST_CLASSES],
        known=known,
        groups=pattern,
    )


def _file_rows(table: Columns) -> InnerSamples:
    """Return what a table says of files that its rows name.

    The first column of names with the ending of a file decides, without one the first of names that
    all differ.
    """
    columns = table.whole()
    names = {
        name: [named_path(cell) or "" for cell in cells]
        for name, cells in columns.items()
        if isinstance(cells, list) and not PATTERN_SIGNS.union("/").intersection(name)
    }
    with_ending = {name: paths for name, paths in names.items() if _have_endings(paths)}
    ids = (name for name, paths in names.items() if _are_ids(paths))
    column = next(chain(with_ending, ids), None)
    if column is None:
        return InnerSamples(GROUPS)
    files = list(dict.fromkeys(filter(None, names[column])))
    keys = RowsByFile(columns, column).value_names
    return InnerSamples(
        FILES,
        storable([column])[0],
        len(files),
        storable([key[:MOST_NAME] for key in keys[:_MOST_NAMES]]),
        storable(files[:_MOST_FILES]),
        views=_views(column, with_ending),
    )


_LAYOUTS: Sequence[tuple[type, Callable[[Any], InnerSamples]]] = (
    (Document, _file_records),
    (Columns, _file_rows),
    (NumberTable, _number_rows),
)


def _have_endings(paths: Sequence[str]) -> bool:
    return sum(path.lower().endswith(MEDIA) for path in paths) > _MOST_NAMED * len(paths)


def _are_ids(paths: Sequence[str]) -> bool:
    return len(set(paths)) == len(paths) and all(map(_ID.fullmatch, paths))


def _views(column: str, columns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the columns whose names differ by their start only, with this start; {} for one."""
    starts = {
        name: _starts(columns[column], paths)
        for name, paths in columns.items()
        if column in columns and name != column
    }
    own = next((start for start, other in starts.values() if other), "")
    others = {name: other for name, (start, other) in starts.items() if other and start == own}
    return {column: own, **others} if others else {}


def _starts(paths: Sequence[str], others: Sequence[str]) -> tuple[str, str]:
    """Return the starts in which nearly all pairs of names differ, ("", "") without them."""
    pairs = [(one, two) for one, two in zip(paths, others, strict=True) if one and two]
    if not pairs:
        return "", ""
    one, two = pairs[0]
    ends = zip(reversed(one), reversed(two), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    rest = _FIRST_WORD.sub("", one[len(one) - same :], count=1)
    start, other = one[: len(one) - len(rest)], two[: len(two) - len(rest)]
    alike = sum(
        one.startswith(start) and two == other + one.removeprefix(start) for one, two in pairs
    )
    return (start, other) if rest and alike > _MOST_NAMED * len(paths) else ("", "")


def _are_splits(document: Document, lists: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether mappings by file name different files: ``train`` and ``val``.

    `samples.each` names one of them, so a draft would leave out the samples of the others.
    """
    if any(isinstance(document.whole().get(name), list) for name in lists):
        return False
    by_media = [records for records in lists.values() if any(map(is_media, records))]
    total = sum(map(len, by_media))
    return len(by_media) > 1 and len(set().union(*by_media)) > _NEARLY_DISJOINT * total


def _is_list(place: File) -> bool:
    """Tell whether a document begins as a list; an object may have its records under that name."""
    with place.open(buffering=0) as file:
        return file.read(_HEAD_BYTES).removeprefix(BOM).lstrip().startswith(b"[")


def _are_records(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 2:
        return False
    return all(isinstance(record, Mapping) for record in value)


def _inner_pattern(names: list[str]) -> str:
    """Return the pattern of most groups that differ in a number, or the only group, or ""."""
    if _EPISODE_ENDS in names:
        return f"ends:{_EPISODE_ENDS}"
    groups = {
        group
        for name in names
        for group in _parent_groups(name)
        if not PATTERN_SIGNS.intersection(group)
    }
    numbered = Counter(
        "/" + re.sub(r"\d+$", "*", group) for group in groups if re.search(r"\d+$", group)
    )
    candidates = [
        (count, -len(pattern), pattern)
        for pattern, count in numbered.items()
        if count > 1 or _EPISODE_GROUP.search(pattern)
    ]
    if candidates:
        return max(candidates)[-1]
    heads = {name.partition("/")[0] for name in names}
    has_one_group = len(heads) == 1 and all("/" in name for name in names)
    return f"/{heads.pop()}" if has_one_group and heads <= groups else ""


def _parent_groups(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:size]) for size in range(1, len(parts))]
