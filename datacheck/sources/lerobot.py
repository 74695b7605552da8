"""The meta folder of LeRobot datasets (v2, v3): episodes and their files, tasks, videos, step rate.

`kinds.EpisodeSource` reads the episodes themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.jsonl import lines as read_lines
from datacheck.formats.jsonl import parse_small
from datacheck.formats.limits import check_bytes, check_samples, path_below
from datacheck.model.table import Note, Texts
from datacheck.runtime.beneath import File
from datacheck.schema.model import EpisodeSpec, Schema
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Roots
from datacheck.sources.row_slices import Array

INFO = "meta/info.json"
EPISODE = "episode_index"
ROW = "index"
TASK = "task_index"
LENGTH = "length"
FIRST_ROW = "first_row"
_LINES = "meta/episodes.jsonl"
_TABLES = "meta/episodes"
_TASK_LINES = "meta/tasks.jsonl"
_TASK_TABLE = "meta/tasks.parquet"
_WHERE = ("data/chunk_index", "data/file_index")
# Row range of an episode in the sequence of all files.
_ROWS = ("dataset_from_index", "dataset_to_index")
_OLD = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_NEW_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_NEW = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
# Limits the width: a huge one would make a path of megabytes.
_PLACE = re.compile(r"\{(\w+)(?::([0-9,_<>=^+ -]{0,6}[dxXob]?))?\}")
_NUMBERS = re.compile(r"u?int\d+|float\d+|bool")  # other features are texts, pictures and videos
_INFO_BYTES = 4 << 20
_VIDEOS = 100_000  # videos whose paths are checked
# LeRobot writes tables of up to 100 MB, and each data file is read with all of them.
_MOST_TABLES = 1_000
_MOST_CAMERAS = 1_000
_LONGEST = 255  # bytes of a file name
_LONGEST_PATH = 4_096
_NAMES = 2_000  # characters of the names of a feature's columns: each episode keeps them


class PathTemplateError(FormatError):
    """A template of paths that cannot be filled, so the files of the dataset are unknown."""


class Meta(NamedTuple):
    """The contents of a dataset's meta folder.

    Args:
        features: (dtype, shape of a step) of the numeric columns.
        lengths: steps of each episode, in the order of the documents.
        files: the episodes of each file, by its path below the dataset's folder.
        tasks: texts by number; None where no file has them.
        first_rows: by episode the number of rows in all episodes before it.
        names: of the columns of a feature, separated by commas, where the info states one for each.
    """

    features: Mapping[str, tuple[str, tuple[int, ...]]]
    lengths: Mapping[int, int]
    files: Mapping[str, list[int]]
    tasks: Mapping[int, str] | None
    first_rows: Mapping[int, int]
    names: Mapping[str, str]


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
    number = read_info(base).get("fps")
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
    info = read_info(base)
    tables = _tables(base)
    features = info.get("features")
    if not isinstance(features, Mapping):
        msg = f"{INFO}: found no features"
        raise FormatError(msg)
    video_features(info)  # refuses too many
    new = is_v3(info)
    if (base / _LINES).is_file() and not (new and tables):
        # LeRobot 2 sorts the lines.
        rows = sorted(_of_lines(base / _LINES), key=itemgetter(EPISODE))
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
    lengths = {row[EPISODE]: row[LENGTH] for row in rows}
    if len(lengths) < len(rows):
        msg = f"{_TABLES}: an episode stands there twice"
        raise FormatError(msg)
    chunk = _whole(info.get("chunks_size", 1000), f"{INFO}, chunks_size") or 1000
    files: dict[str, list[int]] = {}
    for row in rows:
        names = {key.rpartition("/")[2]: value for key, value in row.items()}
        files.setdefault(_filled(template, _chunk(row, chunk) | names), []).append(row[EPISODE])
    first_rows = dict(zip(lengths, accumulate(lengths.values(), initial=0), strict=False))
    numeric = dict(_features(features))
    column_names = {
        name: text
        for name, (_, shape) in numeric.items()
        if (text := _column_names(features[name].get("names"), shape))
    }
    return Meta(numeric, lengths, files, _tasks(base, new=new), first_rows, column_names)


class Span(NamedTuple):
    """Where the video of an episode lies.

    Args:
        episode: its number.
        path: of the video below the dataset's folder, as the template gives it.
        start, stop: [s] in the video; a stop of None where the file holds one episode.
        has_start: whether the start is known; LeRobot v3 reads no video of an episode without it.
    """

    episode: int
    path: str
    start: float
    stop: float | None
    has_start: bool = True


def read_videos(base: File) -> list[str]:
    """Return the sorted paths of at most 100,000 videos that the dataset's meta folder names.

    Raises:
        PathTemplateError: the template of the paths cannot be filled.
        FormatError: the meta folder is missing or damaged.
    """
    video_paths: set[str] = set()
    info = read_info(base)
    for name in video_features(info):
        if (room := _VIDEOS - len(video_paths)) > 0:
            video_paths.update(span.path for span in read_spans(base, name, info)[:room])
    return sorted(video_paths)


def video_features(info: Mapping[str, Any]) -> list[str]:
    """Return the names of the features that are videos.

    Raises:
        FormatError: there are more than 1,000; each reads the tables of episodes.
    """
    features = info.get("features")
    names = [
        name
        for name, feature in (features.items() if isinstance(features, Mapping) else ())
        if isinstance(feature, Mapping) and feature.get("dtype") == "video"
    ]
    if len(names) > _MOST_CAMERAS:
        msg = f"{INFO}: declares {len(names):,} videos; at most {_MOST_CAMERAS:,} are read"
        raise FormatError(msg)
    return names


def read_spans(base: File, camera: str, info: Mapping[str, Any]) -> list[Span]:
    """Return where the meta folder says that the video of each episode lies, in its order.

    Args:
        base: the dataset's folder.
        camera: name of a feature that is a video.
        info: the values of its info.

    Raises:
        PathTemplateError: the template of the paths cannot be filled.
        FormatError: the meta folder is missing or damaged.
    """
    tables = _tables(base)
    template = info.get("video_path", _NEW_VIDEO if is_v3(info) else None)
    if not isinstance(template, str):
        return []
    chunk = _whole(info.get("chunks_size", 1000), f"{INFO}, chunks_size") or 1000
    if (base / _LINES).is_file() and not (is_v3(info) and tables):
        return [
            Span(
                row[EPISODE],
                _filled(template, _chunk(row, chunk) | row | {"video_key": camera}),
                0.0,
                None,
            )
            for row in _of_lines(base / _LINES)
        ]
    where = {f"videos/{camera}/{key}": key for key in ("chunk_index", "file_index")}
    try:
        rate = read_rate(base)
    except FormatError:  # reading the rate reports it
        rate = None
    spans = []
    for path in tables:
        rows = _of_table(path, (EPISODE, *where))
        times = _times(path, camera, len(rows), rate)
        for row, (start, stop, has_start) in zip(rows, times, strict=True):
            numbers = {where.get(key, key): value for key, value in row.items()}
            video_path = _filled(template, {**numbers, "video_key": camera})
            spans.append(Span(row[EPISODE], video_path, start, stop, has_start))
    return spans


def _times(
    path: File, camera: str, count: int, rate: float | None
) -> list[tuple[float, float | None, bool]]:
    """Return start and stop of each episode in its video, and whether the start is known.

    A missing end follows from the other one and the episode's length; without both, a video counts
    as that of one episode, (0, None).
    """
    where = f"{_TABLES}/{path.parent.name}/{path.name}"
    first, last = (f"videos/{camera}/{end}_timestamp" for end in ("from", "to"))
    with open_container(path) as container:
        present = [name for name in (first, last, LENGTH) if name in container.names()]
    if not {first, last} & set(present):
        return [(0.0, None, False)] * count
    if {first, last} <= set(present):
        present = [first, last]  # the length is not needed
    columns = _time_columns(path, where, present, count)
    starts, stops = columns.get(first), columns.get(last)
    seconds: Sequence[float | None] = [None] * count
    if rate is not None and LENGTH in columns:
        seconds = [length / rate for length in columns[LENGTH]]
    if starts is None:
        assert stops is not None
        return [
            (0.0 if length is None else stop - length, stop, False)
            for stop, length in zip(stops, seconds, strict=True)
        ]
    if stops is None:
        return [
            (start, None if length is None else start + length, True)
            for start, length in zip(starts, seconds, strict=True)
        ]
    return [(start, stop, True) for start, stop in zip(starts, stops, strict=True)]


def _time_columns(
    path: File, where: str, names: Sequence[str], count: int
) -> dict[str, list[float]]:
    """Return columns of finite numbers.

    Raises:
        FormatError: one holds other values, or has another length than `count`.
    """
    values = _values(path, where, names)
    columns = {}
    for name in names:
        column = values[name]
        if not isinstance(column, np.ndarray) or column.shape != (count,):
            msg = f"{where}, {name}: is no column of numbers"
            raise FormatError(msg)
        column = column.astype(np.float64)
        if not np.isfinite(column).all():
            msg = f"{where}, {name}: holds NaN or infinity"
            raise FormatError(msg)
        columns[name] = column.tolist()
    return columns


class EpisodeColumns(NamedTuple):
    """Values of a dataset's episodes, row by row as in its meta folder.

    Args:
        episodes: int64 (rows): numbers of the episodes.
        columns: by (feature, statistic): an array whose first axis are the rows.
    """

    episodes: Array
    columns: Mapping[tuple[str, str], Array]


STATISTICS = ("min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99")
STATISTIC_LINES = "meta/episodes_stats.jsonl"
STATS = "meta/stats.json"
STATS_BYTES = 64 << 20
# The number of an episode in a line; its statistics are a mapping and do not match.
_NUMBER = re.compile(rb'"episode_index"\s*:\s*(\d{1,12})')


def read_statistics(
    base: File, features: Sequence[str], lines: Sequence[int] | None = None
) -> EpisodeColumns:
    """Return the statistics that the meta folder has of these features in each episode.

    A statistic that some episodes lack, or that differs in shape between episodes, is left out.

    Args:
        base: the dataset's folder.
        features: their names.
        lines: where the lines begin that are read, from `statistic_lines`; None: all. Tables are
            read whole.

    Raises:
        FormatError: the meta folder is missing or damaged.
    """
    if is_v3(read_info(base)):
        return _statistics_of_tables(_tables(base), features)
    path = base / STATISTIC_LINES
    if not path.is_file():
        return EpisodeColumns(np.zeros(0, np.int64), {})
    chosen = (line for _, line in read_lines(path)) if lines is None else _lines_at(path, lines)
    return _statistics_of_lines(chosen, features)


def statistic_lines(base: File) -> dict[int, int]:
    """Return by episode where its line of statistics begins [byte], without parsing the lines."""
    places: dict[int, int] = {}
    path = base / STATISTIC_LINES
    if path.is_file():
        with path.open() as file:
            place = 0
            for line in file:
                if number := _NUMBER.search(line):
                    places[int(number[1])] = place
                place += len(line)
    return places


def _lines_at(path: File, places: Sequence[int]) -> Iterator[Any]:
    with path.open() as file:
        for place in places:
            file.seek(place)
            yield parse_small(file.readline())


def _statistics_of_tables(tables: Sequence[File], features: Sequence[str]) -> EpisodeColumns:
    wanted = {f"stats/{name}/{key}": (name, key) for name in features for key in STATISTICS}
    parts: dict[tuple[str, str], list[Array]] = {}
    episodes: list[Array] = []
    for path in tables:
        with open_container(path) as container:
            present = [name for name in container.names() if name in wanted]
        where = f"{_TABLES}/{path.parent.name}/{path.name}"
        values = _values(path, where, [EPISODE, *present])
        episodes.append(np.asarray(values[EPISODE], dtype=np.int64))
        for name in present:
            if isinstance(values[name], np.ndarray):
                parts.setdefault(wanted[name], []).append(values[name])
    return EpisodeColumns(
        np.concatenate(episodes) if episodes else np.zeros(0, np.int64),
        _whole_columns(parts, len(tables)),
    )


def _statistics_of_lines(lines: Iterable[Any], features: Sequence[str]) -> EpisodeColumns:
    parts: dict[tuple[str, str], list[Array]] = {}
    episodes: list[int] = []
    for line in lines:
        if not isinstance(line, Mapping):
            msg = f"{STATISTIC_LINES}: {line}"
            raise line if isinstance(line, FormatError) else FormatError(msg)
        episodes.append(_whole(line.get(EPISODE), f"{STATISTIC_LINES}, {EPISODE}"))
        stats = line.get("stats")
        for name in features:
            feature = stats.get(name) if isinstance(stats, Mapping) else None
            known = feature if isinstance(feature, Mapping) else {}
            for key in (key for key in STATISTICS if key in known):
                with contextlib.suppress(TypeError, ValueError):  # no array of numbers
                    array = np.asarray(known[key], dtype=np.float64)
                    parts.setdefault((name, key), []).append(array[None])
    return EpisodeColumns(np.array(episodes, np.int64), _whole_columns(parts, len(episodes)))


_WHOLE = ("q01", "q10", "q90", "q99", "min", "max")


def whole_quantiles(base: File, features: Sequence[str]) -> dict[str, Array]:
    """Return q01, q10, q90, q99, min and max of ``meta/stats.json`` by feature.

    Shapes:
        returns: float64 (6, columns), only features that have all six

    Raises:
        FormatError: the document is damaged.
    """
    stats = read_json(base, STATS, STATS_BYTES) if (base / STATS).is_file() else {}
    found = {}
    for name in features:
        feature = stats.get(name)
        if isinstance(feature, Mapping) and set(_WHOLE) <= feature.keys():
            with contextlib.suppress(TypeError, ValueError):  # no numbers: the audit reports it
                rows = [np.asarray(feature[key], np.float64).reshape(-1) for key in _WHOLE]
                found[name] = np.stack(rows)
    return found


def _whole_columns(
    parts: Mapping[tuple[str, str], Sequence[Array]], count: int
) -> dict[tuple[str, str], Array]:
    """Return the joined parts of each column that has all `count` parts, in one shape."""
    return {
        key: np.concatenate(arrays)
        for key, arrays in parts.items()
        if len(arrays) == count and len({array.shape[1:] for array in arrays}) == 1
    }


def is_dtype(stored: str, declared: str) -> bool:
    """Return whether LeRobot reads a stored dtype as the declared one: floats of any width."""
    kinds = [np.dtype(name).kind for name in (stored, declared)]
    return np.dtype(stored).name == declared or kinds == ["f", "f"]


def is_v3(info: Mapping[str, Any]) -> bool:
    """Return whether a dataset is of version 3; a converted one may keep its old files as well."""
    return str(info.get("codebase_version")).startswith("v3")


def read_info(base: File) -> dict[str, Any]:
    """Return the values of a dataset's info; single numbers are Python numbers.

    Raises:
        FormatError: the info is missing, too large or damaged.
    """
    return read_json(base, INFO, _INFO_BYTES)


def read_json(base: File, name: str, limit: int) -> dict[str, Any]:
    """Return the values of a JSON document of a dataset as Python values, from a single open.

    The coordinator parses documents as well, so the checked bytes must be the parsed bytes.

    Args:
        base: the dataset's folder.
        name: path of the document below it.
        limit: largest size in bytes.

    Raises:
        FormatError: the document is missing, too large or damaged.
    """
    try:
        with (base / name).open() as file:
            size = os.fstat(file.fileno()).st_size
            check_bytes(size, name, limit)
            values = parse_small(file.read(size))
    except OSError as error:
        msg = f"{name}: {error.strerror or error}"
        raise FormatError(msg) from error
    except FormatError as error:
        msg = str(error) if str(error).startswith(name) else f"{name}: {error}"
        raise FormatError(msg, error.code) from error
    return {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }


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


def _column_names(names: Any, shape: tuple[int, ...]) -> str:
    """Return the names of a feature's columns, separated by commas; "" unless each has its own."""
    while isinstance(names, Mapping) and len(names) == 1:  # {"motors": [...]}
        names = next(iter(names.values()))
    if not isinstance(names, list) or len(shape) != 1 or len(names) != shape[0]:
        return ""
    texts = [name for name in names if isinstance(name, str) and name and "," not in name]
    if len(set(texts)) < len(names) or sum(map(len, texts)) > _NAMES:
        return ""
    return ",".join(texts)


def _of_lines(path: File) -> list[dict[str, int]]:
    return [
        {key: _whole(row.get(key), f"{_LINES}, {key}") for key in (EPISODE, LENGTH)}
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
    path: File, names: Sequence[str] = (EPISODE, LENGTH, *_WHERE)
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
        end = begin + episode[LENGTH]
        if (rows[_ROWS[0]], rows[_ROWS[1]]) != (begin, end):
            msg = (
                f"{_TABLES}: episode {episode[EPISODE]} has the rows {rows[_ROWS[0]]:,} to "
                f"{rows[_ROWS[1]]:,} "
                f"({_ROWS[0]}, {_ROWS[1]}); by its {episode[LENGTH]:,} steps they are {begin:,} "
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


def _chunk(row: Mapping[str, Any], size: int) -> dict[str, int]:
    """Return the number of an episode's chunk, also under its name in v3: some writers use that."""
    return dict.fromkeys(("episode_chunk", "chunk_index"), row[EPISODE] // size)


@lru_cache(maxsize=2)
def _pieces(template: str) -> tuple[tuple[tuple[str, str, str, str], ...], str]:
    """Return (text before, placeholder, name, format) of each placeholder, and the text behind.

    Raises:
        PathTemplateError: the template needs more than formatted numbers, so its paths are unknown.
    """
    if strange := re.search(r"[{}][^{}]{0,40}", _PLACE.sub("", template)):
        msg = (
            f"{INFO}: the template of a path has {strange[0]!r}; numbers are filled in, such as "
            f"{{file_index:03d}}"
        )
        raise PathTemplateError(msg)
    pieces, place = [], 0
    for found in _PLACE.finditer(template):
        pieces.append((template[place : found.start()], found[0], found[1], found[2] or ""))
        place = found.end()
    return tuple(pieces), template[place:]


def _filled(template: str, names: Mapping[str, int | str]) -> str:
    """Return the path that the template gives for these numbers, normalised if it stays below.

    Raises:
        PathTemplateError: the template needs more than formatted numbers, or makes a longer path
            than any file has.
    """
    pieces, rest = _pieces(template)
    parts = list[str]()
    for before, placeholder, name, form in pieces:
        try:
            text = format(names[name], form)
        except (KeyError, ValueError) as error:
            msg = (
                f"{INFO}: the template of a path has {placeholder!r}, for which there is no number "
                f"of that form"
            )
            raise PathTemplateError(msg) from error
        if len(text) > _LONGEST:
            msg = (
                f"{INFO}: the template of a path has {placeholder!r}, which makes a name of "
                f"{len(text):,} letters"
            )
            raise PathTemplateError(msg)
        parts += (before, text)
    path = "".join((*parts, rest))
    if len(path) > _LONGEST_PATH:  # each episode would hold one
        msg = (
            f"{INFO}: the template of a path makes one of {len(path):,} characters; at most "
            f"{_LONGEST_PATH:,} are read"
        )
        raise PathTemplateError(msg)
    return path_below(path) or path


# --------------------------------------------------------------------------------------- step rates

_ALL_INFO_BYTES = 16 << 20  # info.json files of all LeRobot datasets whose rate is read
_RATE = "DC503"
_RARE_RATE = "DC105"
_MOST_RATES = 100  # distinct rates; each is evaluated separately


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
        notes.append(Note(_RARE_RATE, rare_folders[0] + INFO, reason, about={"kind": "rates"}))
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
            f"is not read: the info.json of all datasets have more than {_ALL_INFO_BYTES >> 20} MiB"
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
    # A child reads episodes and plans nothing.
    from datacheck.sources.planning import plan_work  # noqa: PLC0415

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
    bytes_left = _ALL_INFO_BYTES
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
