"""Read episodes of LeRobot datasets (v2, v3): rows of a Parquet file by ``episode_index``.

The meta folder supplies attributes of an episode (``at: "@task"``): `length`; `tasks`, the texts of
its steps in order of first occurrence; `task`, the text if all steps have the same one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.jsonfile import parse_small
from datacheck.formats.limits import check_bytes, check_samples
from datacheck.model.sample import Block, Column, Container
from datacheck.runtime.beneath import File
from datacheck.schema.model import FieldSpec
from datacheck.sources.base import Item, Part, Unread
from datacheck.sources.fields import Shelf
from datacheck.sources.groups import RaggedSource
from datacheck.sources.lines import numbered
from datacheck.sources.row_slices import Array, RowSlices, Span
from datacheck.sources.values import read_value

_LENGTH = "length"


class EpisodeSource(RaggedSource):
    """Samples that are episodes of a LeRobot dataset; keys contain the dataset's episode number."""

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's episodes, then the listed episodes that the file lacks.

        Raises:
            FormatError: the file or the meta folder is unreadable, or they contradict each other.
        """
        read_numbers: set[int] = set()
        for part in super().parts(item, shelf):
            if isinstance(part, Block):
                read_numbers.update(int(key[-12:]) for key in part.keys)
            yield part
        folder, inner = folder_of(item.path)
        listed = self._meta(folder).files.get(inner, ()) if item.keys is None else ()
        for number in sorted(set(listed) - read_numbers):
            yield Unread(
                numbered(item.path, number),
                "DC105",
                f"{folder}meta names it, but the file does not hold it",
            )

    def files(self, item: Item) -> list[str]:
        """Return the file, and the files of the meta folder that describe it."""
        folder, _ = folder_of(item.path)
        cache: dict[str, list[str]] = self.__dict__.setdefault("_beside_all", {})  # as `_known`
        if folder not in cache:
            cache[folder] = [folder + name for name in meta_files(self.file(folder))]
        return [*super().files(item), *cache[folder]]

    def spans(
        self, item: Item, container: Container, strips: RowSlices
    ) -> tuple[Array, list[Span]]:
        """Return the numbers and rows of the episodes.

        Raises:
            FormatError: the file has no valid episode column, or contradicts the meta folder.
        """
        meta = self._meta(folder_of(item.path)[0])
        _check_columns(container, meta)
        index = read_value(container, EPISODE, FieldSpec(dtype="int64"), EPISODE)
        if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "iu":
            msg = f"{EPISODE}: found no column of whole numbers"
            raise FormatError(msg)
        strips.keep(len(index), f"{EPISODE} has {len(index)}")
        starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 1))
        self.check_count(item, len(starts))
        numbers = index[starts].astype(np.int64)
        if len(numbers) and (int(numbers[0]) < 0 or bool((np.diff(numbers) <= 0).any())):
            msg = (
                f"{EPISODE}: its numbers fall, or begin below 0; the rows of an episode lie "
                f"together, in order"
            )
            raise FormatError(msg)
        unknown_number = next((n for n in numbers.tolist() if n not in meta.lengths), None)
        if unknown_number is not None:
            msg = f"holds episode {unknown_number}, which meta/episodes does not name"
            raise FormatError(msg)
        self._check_place(item, meta, numbers.tolist())
        spans = list(zip(starts.tolist(), [*starts.tolist()[1:], len(index)], strict=True))
        fields, _ = self.way(item.split)
        if fields.noted:
            names = _tasks_of(container, meta, spans)
            for number, span, tasks in zip(numbers.tolist(), spans, names, strict=True):
                task = tasks[0] if tasks is not None and len(tasks) == 1 else None
                attributes = {_LENGTH: meta.lengths[number], "tasks": tasks, "task": task}
                fields.add_noted(strips.noted.setdefault(span, {}), attributes)
        return numbers, spans

    def _check_place(self, item: Item, meta: Meta, numbers: Sequence[int]) -> None:
        """Refuse a file with an episode of another file: LeRobot reads all files as one sequence.

        Raises:
            FormatError: the meta folder assigns the episode to another existing file.
        """
        folder, inner = folder_of(item.path)
        foreign_numbers = set(numbers).difference(meta.files.get(inner, ()))
        for other_path, listed in meta.files.items() if foreign_numbers else ():
            shared_numbers = foreign_numbers.intersection(listed)
            if shared_numbers and self.file(folder + other_path).is_file():
                msg = f"holds episode {min(shared_numbers)}, which meta/episodes names in {other_path}"
                raise FormatError(msg)

    def _block(
        self,
        item: Item,
        strips: RowSlices,
        numbers: Sequence[int],
        spans: list[Span],
        extra: dict[str, str],
    ) -> Block:
        block = super()._block(item, strips, numbers, spans, extra)
        if _LENGTH not in self.schema.attrs:
            return block
        lengths = self._meta(folder_of(item.path)[0]).lengths
        length_column = Column(np.array([lengths[n] for n in numbers], dtype=np.int64))
        return replace(block, facts=block.facts | {f"attrs/{_LENGTH}": length_column})

    def _meta(self, folder: str) -> Meta:
        # Kept for one task only: a meta folder may change.
        cache: dict[str, Meta] = self.__dict__.setdefault("_known", {})
        if folder not in cache:
            cache[folder] = read_meta(self.file(folder))
        return cache[folder]


def _tasks_of(container: Container, meta: Meta, spans: Sequence[Span]) -> list[list[str] | None]:
    """Return each episode's task texts in order of first occurrence, None where unknown.

    Raises:
        FormatError: a number has no task.
    """
    index = (
        None if meta.tasks is None else read_value(container, TASK, FieldSpec(dtype="int64"), TASK)
    )
    if meta.tasks is None or index is None:
        return [None] * len(spans)
    if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "iu":
        msg = f"{TASK}: found no column of whole numbers"
        raise FormatError(msg)
    episode_tasks = list[list[str] | None]()
    for start, stop in spans:
        numbers = list(dict.fromkeys(index[start:stop].tolist()))
        unknown_number = next((n for n in numbers if n not in meta.tasks), None)
        if unknown_number is not None:
            msg = f"{TASK}: found {unknown_number}, which meta/tasks does not name"
            raise FormatError(msg)
        episode_tasks.append([meta.tasks[n] for n in numbers])
    return episode_tasks


def _check_columns(container: Container, meta: Meta) -> None:
    names = set(container.names())
    for name, (dtype, shape) in sorted(meta.features.items()):
        if name not in names:
            msg = f"{name}: {INFO} names it, but the file has no such column"
            raise FormatError(msg)
        stored_shape, stored_dtype = container.peek(name)
        step = stored_shape[1:]
        if (
            stored_dtype == "json"
            or np.dtype(stored_dtype).name != dtype
            or (step != shape and (step, shape) != ((), (1,)))
        ):
            description = (
                "lists of different lengths"
                if stored_dtype == "json"
                else f"{list(step)} {np.dtype(stored_dtype).name}"
            )
            msg = f"{name}: {description}, but {INFO} declares {list(shape)} {dtype}"
            raise FormatError(msg)


INFO = "meta/info.json"
EPISODE = "episode_index"
TASK = "task_index"
_LINES = "meta/episodes.jsonl"
_TABLES = "meta/episodes"
_TASK_LINES = "meta/tasks.jsonl"
_TASK_TABLE = "meta/tasks.parquet"
_WHERE = ("data/chunk_index", "data/file_index")
# Row range of an episode in the sequence of all files.
_ROWS = ("dataset_from_index", "dataset_to_index")
_OLD = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_NEW = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
# Limits the width: a huge one would make a path of megabytes.
_PLACE = re.compile(r"\{(\w+)(?::([0-9,_<>=^+ -]{0,6}[dxXob]?))?\}")
_NUMBERS = re.compile(r"u?int\d+|float\d+|bool")  # other features are texts, pictures and videos
_INFO_BYTES = 4 << 20
_VIDEOS = 100_000  # videos whose paths are checked
# LeRobot writes tables of up to 100 MB, and each data file is read with all of them.
_MOST_TABLES = 1_000
_LONGEST = 255  # bytes of a file name


class Meta(NamedTuple):
    """The contents of a dataset's meta folder.

    Args:
        features: (dtype, shape of a step) of the numeric columns.
        lengths: steps of each episode.
        files: the episodes of each file, by its path below the dataset's folder.
        tasks: texts by number; None where no file has them.
    """

    features: Mapping[str, tuple[str, tuple[int, ...]]]
    lengths: Mapping[int, int]
    files: Mapping[str, list[int]]
    tasks: Mapping[int, str] | None


def folder_of(path: str) -> tuple[str, str]:
    """Split a data file's path into (the dataset's folder with a final "/" or "", the rest)."""
    head, data, rest = path.rpartition("data/")
    return head, data + rest


def meta_files(base: File) -> list[str]:
    """Return the paths below the dataset's folder of the meta files that are read."""
    try:
        tables = [f"{_TABLES}/{path.parent.name}/{path.name}" for path in _tables(base)]
    except FormatError:  # reading the meta folder reports it
        tables = []
    candidates = [INFO, _LINES, *tables, _TASK_LINES, _TASK_TABLE]
    return [name for name in candidates if (base / name).is_file()]


def read_rate(base: File) -> float | None:
    """Return the steps per second of a dataset, None if its info does not state them.

    Raises:
        FormatError: the info is missing or damaged, or the rate is not a number that a schema
            accepts.
    """
    rate = _info(base).get("fps")
    number = rate.item() if isinstance(rate, np.ndarray) and rate.ndim == 0 else rate
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 1e-6 <= number <= 1e9:
        msg = (
            f"{INFO}, fps: found {str(number)[:40]!r} where a number from 0.000001 to "
            f"1,000,000,000 is expected"
        )
        raise FormatError(msg)
    return float(number)


def read_meta(base: File) -> Meta:
    """Return the contents of the meta folder of the dataset in `base`.

    Raises:
        FormatError: the folder is missing or damaged.
    """
    info = _info(base)
    tables = _tables(base)
    features = info.get("features")
    if not isinstance(features, Mapping):
        msg = f"{INFO}: found no features"
        raise FormatError(msg)
    new = _is_new(info)
    if (base / _LINES).is_file() and not (new and tables):
        rows = _of_lines(base / _LINES)
        template = str(info.get("data_path") or _OLD)
    else:
        rows = [row for path in tables for row in _of_table(path)]
        _check_rows(tables, rows)
        template = str(info.get("data_path") or _NEW)
    if not rows:
        msg = (
            f"found neither {_LINES} nor files below {_TABLES}, so no length of an episode is known"
        )
        raise FormatError(msg)
    lengths = {row[EPISODE]: row[_LENGTH] for row in rows}
    if len(lengths) < len(rows):
        msg = f"{_TABLES}: an episode stands there twice"
        raise FormatError(msg)
    chunk = _whole(info.get("chunks_size", 1000), f"{INFO}, chunks_size") or 1000
    files: dict[str, list[int]] = {}
    for row in rows:
        names = {key.rpartition("/")[2]: value for key, value in row.items()}
        files.setdefault(
            _filled(template, names | {"episode_chunk": row[EPISODE] // chunk}), []
        ).append(row[EPISODE])
    return Meta(dict(_features(features)), lengths, files, _tasks(base, new=new))


def read_videos(base: File) -> list[str]:
    """Return the sorted paths of at most 100,000 videos that the dataset's meta folder names.

    Raises:
        FormatError: the meta folder is missing or damaged.
    """
    info = _info(base)
    tables = _tables(base)
    template = info.get("video_path")
    features = info.get("features")
    if not isinstance(template, str) or not isinstance(features, Mapping):
        return []
    names = [
        name
        for name, feature in features.items()
        if isinstance(feature, Mapping) and feature.get("dtype") == "video"
    ]
    chunk = _whole(info.get("chunks_size", 1000), f"{INFO}, chunks_size") or 1000
    old = (base / _LINES).is_file() and not (_is_new(info) and tables)
    video_paths: set[str] = set()
    for name in names:
        if old:
            rows = [
                {"episode_chunk": row[EPISODE] // chunk, **row} for row in _of_lines(base / _LINES)
            ]
        else:
            where = {f"videos/{name}/{key}": key for key in ("chunk_index", "file_index")}
            rows = [
                {where.get(key, key): value for key, value in row.items()}
                for path in tables
                for row in _of_table(path, (EPISODE, *where))
            ]
        video_paths.update(
            _filled(template, {**row, "video_key": name})
            for row in rows[: _VIDEOS - len(video_paths)]
        )
    return sorted(video_paths)


def _is_new(info: Mapping[str, Any]) -> bool:
    # A converted dataset may keep its old files as well.
    return str(info.get("codebase_version")).startswith("v3")


def _info(base: File) -> dict[str, Any]:
    """Return the info from a single open.

    The coordinator parses it as well, so the checked bytes must be the parsed bytes.
    """
    try:
        with (base / INFO).open() as file:
            size = os.fstat(file.fileno()).st_size
            check_bytes(size, INFO, _INFO_BYTES)
            return parse_small(file.read(size))
    except OSError as error:
        msg = f"{INFO}: {error.strerror or error}"
        raise FormatError(msg) from error
    except FormatError as error:
        msg = str(error) if str(error).startswith(INFO) else f"{INFO}: {error}"
        raise FormatError(msg, error.code) from error


def _tables(base: File) -> list[File]:
    """Return the tables of episodes.

    Raises:
        FormatError: there are too many tables.
    """
    tables = base / _TABLES
    paths = (tables / chunk / name for chunk in _names(tables) for name in _names(tables / chunk))
    table_paths = [path for path in paths if path.suffix == ".parquet"]
    if len(table_paths) > _MOST_TABLES:
        msg = f"{_TABLES}: holds {len(table_paths):,} tables; at most {_MOST_TABLES:,} are read"
        raise FormatError(msg)
    return [path for path in table_paths if path.is_file()]


def _names(folder: File) -> list[str]:
    try:
        return folder.names()
    except OSError:  # absent, or not a folder
        return []


def _features(features: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    for name, feature in features.items():
        dtype, shape = (
            (feature.get("dtype"), feature.get("shape"))
            if isinstance(feature, Mapping)
            else (None, None)
        )
        if not isinstance(dtype, str) or not isinstance(shape, list):
            msg = f"{INFO}: feature {name[:60]!r} says no dtype or shape"
            raise FormatError(msg)
        if _NUMBERS.fullmatch(dtype):
            yield (
                name,
                (dtype, tuple(_whole(size, f"{INFO}, shape of {name[:60]!r}") for size in shape)),
            )


def _of_lines(path: File) -> list[dict[str, int]]:
    return [
        {key: _whole(row.get(key), f"{_LINES}, {key}") for key in (EPISODE, _LENGTH)}
        for row in _lines(path, _LINES)
    ]


def _lines(path: File, where: str) -> list[Mapping[str, Any]]:
    records = _values(path, where).get("records")
    return (
        [record if isinstance(record, Mapping) else {} for record in records]
        if isinstance(records, list)
        else []
    )


def _of_table(
    path: File, names: Sequence[str] = (EPISODE, _LENGTH, *_WHERE)
) -> list[dict[str, int]]:
    where = f"{_TABLES}/{path.parent.name}/{path.name}"
    values = _values(path, where, names)
    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    if len(arrays) < len(values):
        msg = f"{where}: {', '.join(sorted(set(values) - set(arrays)))} is no column of numbers"
        raise FormatError(msg)
    # Each row becomes a dict.
    check_samples(max((array.size for array in arrays.values()), default=0), path.stat().st_size)
    columns = {key: value.tolist() for key, value in arrays.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [{key: _whole(value, f"{where}, {key}") for key, value in row.items()} for row in rows]


def _check_rows(tables: Sequence[File], episodes: Sequence[Mapping[str, int]]) -> None:
    """Refuse tables with wrong row ranges: LeRobot uses them to read steps from all files as one.

    Raises:
        FormatError: a range is wrong, or only some tables have ranges.
    """
    row_ranges = (
        [row for path in tables for row in _of_table(path, _ROWS)] if _name_rows(tables) else []
    )
    begin = 0
    for episode, rows in zip(episodes, row_ranges, strict=bool(row_ranges)):
        end = begin + episode[_LENGTH]
        if (rows[_ROWS[0]], rows[_ROWS[1]]) != (begin, end):
            msg = (
                f"{_TABLES}: episode {episode[EPISODE]} has the rows {rows[_ROWS[0]]:,} to "
                f"{rows[_ROWS[1]]:,} "
                f"({_ROWS[0]}, {_ROWS[1]}); by its {episode[_LENGTH]:,} steps they are {begin:,} "
                f"to {end:,}"
            )
            raise FormatError(msg)
        begin = end


def _name_rows(tables: Sequence[File]) -> bool:
    """Return whether any table has row ranges; then all must have them."""
    for table in tables:
        with open_container(table) as container:
            if set(_ROWS) <= set(container.names()):
                return True
    return False


def _tasks(base: File, *, new: bool) -> dict[int, str] | None:
    """Return the texts of tasks by number, None where no file has them.

    Raises:
        FormatError: the file is damaged, or a number is duplicated or out of order.
    """
    lines = (base / _TASK_LINES).is_file()
    table = (base / _TASK_TABLE).is_file()
    if lines and not (new and table):
        rows = _lines(base / _TASK_LINES, _TASK_LINES)
        where = _TASK_LINES
        pairs = [(row.get(TASK), row.get("task")) for row in rows]
    elif table:
        pairs = _of_task_table(base / _TASK_TABLE)
        where = _TASK_TABLE
    else:
        return None
    texts: dict[int, str] = {}
    for index, task in pairs:
        number = _whole(index, f"{where}, {TASK}")
        if not isinstance(task, str) or number in texts:
            msg = (
                f"{where}: task {number} "
                f"{'stands there twice' if number in texts else 'has no text'}"
            )
            raise FormatError(msg)
        texts[number] = task
    return texts


def _of_task_table(path: File) -> list[tuple[Any, Any]]:
    """Return (number, text) of each row.

    pandas writes the texts as the table's index, under one of two names.
    """
    values = _values(path, _TASK_TABLE)
    texts = [name for name in ("task", "__index_level_0__") if isinstance(values.get(name), list)]
    numbers = values.get(TASK)
    if not texts or not isinstance(numbers, np.ndarray):
        msg = (
            f"{_TASK_TABLE}: has no column "
            f"{'of texts' if isinstance(numbers, np.ndarray) else TASK}"
        )
        raise FormatError(msg)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        msg = (
            f"{_TASK_TABLE}: {TASK} does not count from 0, and LeRobot takes the row in place of "
            f"the number"
        )
        raise FormatError(msg)
    return list(zip(numbers.tolist(), values[texts[0]], strict=True))


def _values(path: File, where: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of a meta file: the given names, or all."""
    if not path.is_file():  # opening a pipe would block
        msg = f"{where}: No such file"
        raise FormatError(msg)
    try:
        # A separate handle, closed afterwards: a dataset has hundreds of tables.
        with open_container(path.with_name(path.name)) as container:
            return {name: container.read(name) for name in names or container.names()}
    except KeyError as error:
        msg = f"{where}: has no column {error.args[0]}"
        raise FormatError(msg) from error
    except FormatError as error:
        msg = f"{where}: {error}"
        raise FormatError(msg, error.code) from error


def _whole(value: Any, where: str) -> int:
    number = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if type(number) is not int or not 0 <= number < 10**12:
        msg = f"{where}: found {str(value)[:40]!r} where a whole number from 0 on is expected"
        raise FormatError(msg)
    return number


def _filled(template: str, names: Mapping[str, int | str]) -> str:
    """Return the path that the template gives for these numbers.

    Raises:
        FormatError: the template needs more than formatted numbers, so its paths are unknown.
    """
    if strange := re.search(r"[{}][^{}]{0,40}", _PLACE.sub("", template)):
        msg = (
            f"{INFO}: the template of a path has {strange[0]!r}; numbers are filled in, such as "
            f"{{file_index:03d}}"
        )
        raise FormatError(msg)

    def shown(placeholder: re.Match[str]) -> str:
        name, form = placeholder.groups()
        try:
            text = format(names[name], form or "")
        except (KeyError, ValueError) as error:
            msg = (
                f"{INFO}: the template of a path has {placeholder[0]!r}, for which there is no number "
                f"of that form"
            )
            raise FormatError(msg) from error
        if len(text) > _LONGEST:
            msg = (
                f"{INFO}: the template of a path has {placeholder[0]!r}, which makes a name of "
                f"{len(text):,} letters"
            )
            raise FormatError(msg)
        return text

    return _PLACE.sub(shown, template)
