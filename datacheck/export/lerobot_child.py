"""Write the rows and the meta folder of an exported LeRobot dataset, in a child process.

The child reads the files of the dataset, which may be malicious, and may write into one folder
only. It copies no video: it answers which ones the export needs.

Three passes over the rows: which tasks the episodes have, the rows themselves with the statistics
of each episode, and the columns of the new files for the quantiles. A batch of rows, the numbers of
one episode and 256 MiB of a column are held at once.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, StorageError
from datacheck.export.lerobot_stats import (
    STATISTICS,
    RunningStatistics,
    Statistics,
    exact_quantiles,
    joined,
)
from datacheck.formats.limits import path_below
from datacheck.formats.parquet import ParquetFile
from datacheck.model.arrow_arrays import flattened, list_lengths, numbers
from datacheck.runtime import fsops
from datacheck.runtime.beneath import File
from datacheck.runtime.documents import parse_json
from datacheck.sources.lerobot import (
    EPISODE,
    INFO,
    ROW,
    STATISTIC_LINES,
    TASK,
    Meta,
    is_v3,
    meta_files,
    read_info,
    read_meta,
    read_spans,
    read_statistics,
    video_features,
)
from datacheck.sources.lines import numbered
from datacheck.sources.roots import Roots
from datacheck.workers.wire import answers, natural, text

Array = np.ndarray[Any, Any]

DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}"
_EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_FRAME = "frame_index"
_TIME = "timestamp"
_REQUIRED = (_TIME, _FRAME, EPISODE, ROW, TASK)
_WHOLE = (EPISODE, ROW, TASK)
_DTYPES = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)} | {
    "bool",
    "float16",
    "float32",
    "float64",
}
_PICTURES = ("image", "video")
# Further documents of LeRobot and GR00T that hold for the export as well.
_DOCUMENTS = ("meta/modality.json", "meta/subtasks.parquet")
_DOCUMENT_BYTES = 64 << 20
# Columns that GR00T fills with numbers of tasks.
_ANNOTATION = "annotation."
# LeRobot reads the files in the order of their paths, and pads the numbers to three digits.
_CHUNK_FILES = 1_000
_MOST_CHUNKS = 1_000
_FILE_MB = 100
_VIDEO_MB = 200
_MOST_MB = 1_000_000
_FLUSHED = 1_000  # episodes
_SUFFIX = re.compile(r"\.[0-9A-Za-z]{1,8}")


@answers(
    {
        "episodes": natural,
        "rows": natural,
        "videos": [(text, text)],
        "notes": [text],
        "refused": text,
    },
    raises=(StorageError, MissingDependencyError),
    of_items=True,
)
def write(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Write the rows and the meta folder of the export (see `parallel.run_task`).

    Args:
        task: root: the data folder; folder: of the dataset in it, which ends in "/" or is "";
            stamps: by path below the root, the status that a file must have; valid: keys of the
            valid episodes; to: the new folder.
        beat: called while the work goes on.

    Returns:
        The number of episodes and rows; videos: paths in the dataset's folder and in the export;
        notes: sentences about what the export lacks; refused: why nothing can be exported, else "".
    """
    beat(0)
    roots = Roots(task["root"], {})
    roots.expected.update((path, tuple(stamp)) for path, stamp in task["stamps"].items())
    to = Path(task["to"])
    try:
        with fsops.guarded(to):
            _check_meta(roots, task["folder"])
            export = _Export(_Dataset.read(roots, task["folder"]), set(task["valid"]), to, beat)
            export.write()
            _check_meta(roots, task["folder"])  # nothing has changed while it was read
    except FormatError as error:
        return {"episodes": 0, "rows": 0, "videos": [], "notes": [], "refused": str(error)}
    return {
        "episodes": len(export.kept),
        "rows": export.rows,
        "videos": list(export.videos.items()),
        "notes": export.notes,
        "refused": "",
    }


def _check_meta(roots: Roots, folder: str) -> None:
    """Raise unless the meta folder is the one that was scanned.

    Files that are opened by their names in the dataset's folder have no stamp of their own.

    Raises:
        StorageError: a file has changed, is missing or is new.
    """
    meta = f"{folder}meta/"
    for path in (path for path in roots.expected if path.startswith(meta)):
        _check_unchanged(roots, path)
    base = roots.file(folder)
    documents = [name for name in (STATISTIC_LINES, *_DOCUMENTS) if (base / name).is_file()]
    for name in [*meta_files(base), *documents]:
        if folder + name not in roots.expected:
            msg = f"{folder}{name}: is new since the scan. Scan again. Nothing is exported."
            raise StorageError(msg)


def _check_unchanged(roots: Roots, path: str) -> None:
    try:
        os.close(roots.descriptor(path))
    except OSError as error:
        how = "has changed" if error.errno == errno.ESTALE else "cannot be opened any more"
        msg = f"{path}: {how} since the scan. Scan again. Nothing is exported."
        raise StorageError(msg) from error


class _Feature(NamedTuple):
    """A numeric feature: its dtype and the shape of a row."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Dataset:
    """A dataset to export.

    Args:
        roots: opens its files.
        folder: its folder below the data folder, which ends in "/" or is "".
        info: its info, as stored.
        meta: its episodes, files and tasks.
    """

    roots: Roots
    folder: str
    info: dict[str, Any]
    meta: Meta

    @staticmethod
    def read(roots: Roots, folder: str) -> _Dataset:
        """Read the meta folder.

        Raises:
            FormatError: it is damaged, or lacks what every LeRobot dataset has.
        """
        base = roots.file(folder)
        read_info(base)  # refuses large and damaged documents
        try:
            info = parse_json((base / INFO).read_bytes())
        except ValueError as error:
            msg = f"{INFO}: {error}"
            raise FormatError(msg) from error
        dataset = _Dataset(roots, folder, info, read_meta(base))
        for name, (dtype, _) in dataset.meta.features.items():
            if dtype not in _DTYPES:
                msg = f"{INFO}: feature {name[:60]!r} has the unknown dtype {dtype[:60]!r}"
                raise FormatError(msg)
        numbers = dataset.numbers
        for name in _REQUIRED:
            if name not in numbers or numbers[name].shape != (1,):
                msg = f"{INFO}: has no feature {name} of shape [1], which LeRobot requires"
                raise FormatError(msg)
            kind = numbers[name].dtype.kind
            if (name in _WHOLE and kind not in "iu") or (name == _FRAME and kind == "b"):
                msg = f"{INFO}: {name} has the dtype {numbers[name].dtype}, not an integer one"
                raise FormatError(msg)
        _ = dataset.rate  # raises without a valid one
        if dataset.meta.tasks is None:
            msg = "has no table of tasks, which LeRobot requires"
            raise FormatError(msg)
        return dataset

    @property
    def base(self) -> File:
        """The dataset's folder."""
        return self.roots.file(self.folder)

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """All features; `read_meta` has checked that each states dtype and shape."""
        return dict(self.info["features"])

    @property
    def numbers(self) -> dict[str, _Feature]:
        """The numeric features."""
        return {
            name: _Feature(np.dtype(dtype), shape)
            for name, (dtype, shape) in self.meta.features.items()
        }

    @property
    def columns(self) -> list[str]:
        """The features that the data files hold."""
        return [name for name, feature in self.features.items() if feature["dtype"] != "video"]

    @property
    def rate(self) -> float:
        """Steps per second."""
        rate = self.info.get("fps")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1e-6 <= rate <= 1e9:
            msg = f"{INFO}: states no fps"
            raise FormatError(msg)
        return float(rate)

    def opened(self, path: str) -> ParquetFile:
        """Open a data file by its path in the dataset's folder.

        Raises:
            StorageError: it has changed since the scan, or cannot be opened any more.
        """
        file = self.roots.file(self.folder + path)
        _check_unchanged(self.roots, self.folder + path)
        return ParquetFile(file)


def _place(number: int) -> tuple[int, int]:
    """Return the chunk of a file, and its number there.

    Raises:
        FormatError: the chunk has four digits, so that its path would be sorted before others.
    """
    chunk, file = divmod(number, _CHUNK_FILES)
    if chunk >= _MOST_CHUNKS:
        msg = f"needs more than {_CHUNK_FILES * _MOST_CHUNKS:,} files, which LeRobot cannot order"
        raise FormatError(msg)
    return chunk, file


class _Files:
    """Parquet files ``chunk-000/file-000``, a new one as soon as one is large.

    Args:
        to: the export's folder.
        template: of the paths below it.
        limit: bytes.
    """

    def __init__(self, to: Path, template: str, limit: int) -> None:
        self._to, self._template, self._limit = to, template, limit
        self.paths: list[Path] = []
        self._writer: Any = None
        self._file: Any = None
        self._schema: Any = None

    def begin(self, schema: Any) -> tuple[int, int]:
        """Begin an episode with rows of this schema; return the chunk and the file it goes to."""
        if self._writer is not None and (
            self._file.tell() >= self._limit or not self._schema.equals(schema)
        ):
            self.close()
        if self._writer is None:
            self._open(schema)
        return _place(len(self.paths) - 1)

    def _open(self, schema: Any) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415  in the child only

        chunk, number = _place(len(self.paths))
        path = self._to / self._template.format(chunk_index=chunk, file_index=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._writer, self._schema = pq.ParquetWriter(self._file, schema), schema
        self.paths.append(path)

    def write(self, batch: Any) -> None:
        """Write rows as one row group."""
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def close(self) -> None:
        """Finish the last file."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._writer = self._file = None

    def abandon(self) -> None:
        """Close the last file, finished or not; for exports that fail."""
        if self._writer is not None:
            with suppress(Exception):  # the first error is the one to report
                self._writer.close()
            with suppress(OSError):
                self._file.close()
            self._writer = self._file = None


def _size(stated: Any, default: float) -> float:
    """Return a size that an info states, or the default if it states no number above 0."""
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    return stated if is_number and 0 < stated < math.inf else default


class _Part(NamedTuple):
    """The rows of a batch that belong to one episode."""

    episode: int
    start: int
    stop: int


def _parts(numbers: Array) -> Iterator[_Part]:
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield _Part(int(numbers[start]), start, stop)


@dataclass
class _Current:
    """The episode that is being written: its numbers so far."""

    episode: int
    chunk: int
    file: int
    first: int
    rows: int = 0
    values: dict[str, list[Array]] = field(default_factory=dict)


class _Export:
    """An export in the making.

    Args:
        dataset: the source.
        valid: keys of the valid episodes.
        to: the new folder.
        beat: called while the work goes on.

    Attributes:
        kept: numbers of the exported episodes in the source, in order.
        rows: number of rows written.
        videos: by path in the source, path in the export.
        notes: sentences about what the export lacks.
    """

    def __init__(
        self, dataset: _Dataset, valid: set[str], to: Path, beat: Callable[[int], None]
    ) -> None:
        self._dataset, self._to, self._beat = dataset, to, partial(beat, 0)
        meta = dataset.meta
        self._path_of = {number: path for path, numbers in meta.files.items() for number in numbers}
        order = list(meta.lengths) if is_v3(dataset.info) else sorted(meta.lengths)
        self.kept = [
            number
            for number in order
            if numbered(dataset.folder + self._path_of[number], number) in valid
            and meta.lengths[number]
        ]
        self.rows = 0
        self.videos: dict[str, str] = {}
        self.notes: list[str] = []
        self._numbers: dict[str, RunningStatistics] = {}
        self._new = {number: place for place, number in enumerate(self.kept)}

    def write(self) -> None:
        """Write everything but the videos; nothing if no episode is kept.

        Raises:
            FormatError: the dataset is damaged, or contradicts its meta folder.
            OSError: the operating system refuses.
        """
        if not self.kept:
            return
        tasks = self._read_tasks()
        self._number_tasks({task for numbers in tasks.values() for task in numbers})
        self._check_ranges()
        spans = self._place_videos()
        pictures = self._read_pictures()
        with ExitStack() as failing:
            self._files = _Files(self._to, DATA_PATH, self._limit())
            episodes = _Files(self._to, _EPISODES_PATH, self._limit())
            failing.callback(self._files.abandon)
            failing.callback(episodes.abandon)
            complete = {n: found for n, found in pictures.items() if joined(found) is not None}
            table = _EpisodeTable(episodes, self._dataset.numbers, complete, list(spans))
            for current, stats in self._write_rows():
                place = self._new[current.episode]
                row = {
                    EPISODE: place,
                    "tasks": [self._texts[n] for n in tasks[current.episode]],
                    "length": current.rows,
                    "data/chunk_index": current.chunk,
                    "data/file_index": current.file,
                    "dataset_from_index": current.first,
                    "dataset_to_index": current.first + current.rows,
                }
                table.add(row, {camera: of[place] for camera, of in spans.items()}, stats)
            self._files.close()
            table.close()
        self._write_statistics(pictures)
        self._write_tasks()
        self._write_info()
        self._copy_documents()

    def _limit(self) -> int:
        size = _size(self._dataset.info.get("data_files_size_in_mb"), _FILE_MB)
        return int(min(size, _MOST_MB) * (1 << 20))

    # -------------------------------------------------------------------------------------- tasks

    def _read_tasks(self) -> dict[int, list[int]]:
        """Return the numbers of the tasks of each kept episode, in order of first occurrence.

        Raises:
            FormatError: the rows contradict the meta folder.
        """
        tasks: dict[int, dict[int, None]] = {}
        counts: dict[int, int] = {}
        last = None
        for path, opened in self._opened_files():
            for rows, episode in self._kept_rows(path, opened, [EPISODE, TASK]):
                if episode in counts and episode != last:
                    msg = f"{path}: the rows of episode {episode} do not lie together"
                    raise FormatError(msg)
                last = episode
                counts[episode] = counts.get(episode, 0) + rows.num_rows
                found = self._whole(rows, TASK, path).tolist()
                tasks.setdefault(episode, {}).update(dict.fromkeys(found))
        self._check_rows(counts, tasks)
        return {number: list(found) for number, found in tasks.items()}

    def _check_rows(self, counts: Mapping[int, int], tasks: Mapping[int, Iterable[int]]) -> None:
        """Raise unless rows, order and tasks of the kept episodes are those of the meta folder."""
        lengths, known = self._dataset.meta.lengths, self._dataset.meta.tasks or {}
        for number in self.kept:
            if counts.get(number, 0) != lengths[number]:
                msg = (
                    f"{self._path_of[number]}: holds {counts.get(number, 0):,} rows of episode "
                    f"{number}; the meta folder says {lengths[number]:,}"
                )
                raise FormatError(msg)
            if unknown := set(tasks[number]) - known.keys():
                msg = f"episode {number}: task {min(unknown)} has no text in the meta folder"
                raise FormatError(msg)
        if list(counts) != self.kept:
            msg = "the data files do not hold the episodes in the order of the meta folder"
            raise FormatError(msg)

    def _opened_files(self) -> Iterator[tuple[str, ParquetFile]]:
        """Yield path and content of each data file with a kept episode, in order."""
        for path in dict.fromkeys(self._path_of[number] for number in self.kept):
            with closing(self._dataset.opened(path)) as opened:
                self._check_columns(opened.arrow_schema.names, path)
                yield path, opened

    def _check_columns(self, names: Sequence[str], path: str) -> None:
        for name in self._dataset.columns:
            if name not in names:
                msg = f"{path}: has no column {name}, which {INFO} declares"
                raise FormatError(msg)

    def _kept_rows(
        self, path: str, opened: ParquetFile, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[Any, int]]:
        """Yield the rows of kept episodes in batches of one episode, with its number."""
        for batch in opened.record_batches(columns):
            self._beat()
            for part in _parts(self._whole(batch, EPISODE, path)):
                if part.episode in self._new and self._path_of[part.episode] == path:
                    yield batch.slice(part.start, part.stop - part.start), part.episode

    def _whole(self, batch: Any, name: str, path: str) -> Array:
        return _values_of(batch, name, self._dataset.numbers[name], path).reshape(-1)

    def _number_tasks(self, used: set[int]) -> None:
        """Set the texts of the exported tasks by their numbers in the source, in order."""
        known = self._dataset.meta.tasks or {}
        annotated = [name for name in self._dataset.numbers if name.startswith(_ANNOTATION)]
        if annotated and sorted(known) != list(range(len(known))):
            msg = (
                f"{annotated[0]} may hold numbers of tasks, and these have gaps, which LeRobot "
                f"v3.0 cannot store"
            )
            raise FormatError(msg)
        if annotated and len(used) < len(known):
            self.notes.append(
                f"all {len(known):,} tasks are kept, because {annotated[0]} may hold their numbers"
            )
        self._texts = {n: known[n] for n in sorted(known if annotated else used)}
        self._old_tasks = np.array(list(self._texts), np.int64)  # ascending

    def _check_ranges(self) -> None:
        """Raise unless the dtypes of the row numbers hold the new numbers."""
        lengths = [self._dataset.meta.lengths[number] for number in self.kept]
        counts = {_FRAME: max(lengths), ROW: sum(lengths), EPISODE: len(lengths)}
        for name, total in (counts | {TASK: len(self._texts)}).items():
            dtype = self._dataset.numbers[name].dtype
            is_float = dtype.kind == "f"
            largest = 2 ** (np.finfo(dtype).nmant + 1) if is_float else np.iinfo(dtype).max
            if total - 1 > largest:
                msg = (
                    f"{INFO}: {name} has the dtype {dtype}, whose largest exact number is "
                    f"{largest:,}; the export counts to {total - 1:,}. LeRobot writes int64"
                )
                raise FormatError(msg)

    def _write_tasks(self) -> None:
        import pyarrow as pa  # noqa: PLC0415  in the child only

        texts = list(self._texts.values())
        table = pa.table(
            {TASK: pa.array(range(len(texts)), pa.int64()), _TEXTS: pa.array(texts, pa.string())}
        )
        self._write_table("meta/tasks.parquet", table.replace_schema_metadata(_PANDAS))

    def _write_table(self, name: str, table: Any) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415  in the child only

        with (self._to / name).open("wb") as file:
            pq.write_table(table, file)

    # --------------------------------------------------------------------------------------- rows

    def _write_rows(self) -> Iterator[tuple[_Current, dict[str, Statistics]]]:
        """Write the rows of the kept episodes; yield each episode with its statistics."""
        current: _Current | None = None
        foreign: set[str] = set()
        for path, opened in self._opened_files():
            schema = self._schema(opened.arrow_schema, path, foreign)
            for rows, episode in self._kept_rows(path, opened):
                if current is not None and current.episode != episode:
                    yield current, self._statistics_of(current)
                    current = None
                if current is None:
                    current = _Current(episode, *self._files.begin(schema), self.rows)
                self._write_part(rows, schema, current, path)
        if current is not None:
            yield current, self._statistics_of(current)
        if foreign:
            names = ", ".join(sorted(foreign)[:5])
            self.notes.append(f"columns that {INFO} does not declare are left out: {names}")

    def _schema(self, stored: Any, path: str, foreign: set[str]) -> Any:
        """Return the schema of the rows that are written; collect the columns that are left out."""
        import pyarrow as pa  # noqa: PLC0415  in the child only

        declared = self._dataset.columns
        numbers = self._dataset.numbers
        fields = [
            pa.field(name, pa.from_numpy_dtype(numbers[name].dtype))
            if name in _REQUIRED and name != _TIME
            else stored.field(name)
            for name in stored.names
            if name in declared
        ]
        foreign.update(set(stored.names) - set(declared))
        # The features that Hugging Face's datasets store there are those of all columns.
        metadata = stored.metadata if len(fields) == len(stored.names) else None
        return pa.schema(fields, metadata=metadata)

    def _write_part(self, rows: Any, schema: Any, current: _Current, path: str) -> None:
        import pyarrow as pa  # noqa: PLC0415  in the child only

        count = rows.num_rows
        first = current.rows
        task = self._whole(rows, TASK, path)
        replaced = {
            _FRAME: np.arange(first, first + count),
            ROW: np.arange(self.rows, self.rows + count),
            EPISODE: np.full(count, self._new[current.episode]),
            TASK: np.searchsorted(self._old_tasks, task),
        }
        for name, feature in self._dataset.numbers.items():
            values = (
                replaced[name].astype(feature.dtype)[:, None]
                if name in replaced
                else _values_of(rows, name, feature, path)
            )
            current.values.setdefault(name, []).append(values)
        arrays = [
            pa.array(replaced[field.name], field.type)
            if field.name in replaced
            else rows.column(field.name)
            for field in schema
        ]
        self._files.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
        current.rows += count
        self.rows += count

    def _statistics_of(self, current: _Current) -> dict[str, Statistics]:
        stats = {}
        for name, parts in current.values.items():
            # Its shape is that of rows: one that the info only claims may not fit into memory.
            if name not in self._numbers:
                self._numbers[name] = RunningStatistics(self._dataset.numbers[name].shape)
            stats[name] = self._numbers[name].add(np.concatenate(parts))
        return stats

    # ------------------------------------------------------------------------------------- videos

    def _place_videos(self) -> dict[str, list[tuple[int, int, float, float]]]:
        """Return chunk, file, start and stop [s] of each kept episode, by camera.

        Raises:
            FormatError: the meta folder does not say where a video lies.
        """
        spans: dict[str, list[tuple[int, int, float, float]]] = {}
        for camera in video_features(self._dataset.info):
            template = VIDEO_PATH + self._suffix()
            found = {
                span.episode: span
                for span in read_spans(self._dataset.base, camera, self._dataset.info)
            }
            numbers: dict[str, int] = {}
            spans[camera] = []
            for episode in self.kept:
                span = found.get(episode)
                if span is None or path_below(span.path) is None:
                    msg = f"{camera}: the meta folder names no video of episode {episode}"
                    raise FormatError(msg)
                if not span.has_start:
                    msg = (
                        f"the episodes have no videos/{camera}/from_timestamp, which LeRobot v3.0 "
                        f"requires"
                    )
                    raise FormatError(msg)
                if span.path in self.videos and span.path not in numbers:
                    msg = f"{span.path}: is the video of two cameras"
                    raise FormatError(msg)
                number = numbers.setdefault(span.path, len(numbers))
                chunk, file = _place(number)
                target = template.format(video_key=camera, chunk_index=chunk, file_index=file)
                if "/" in camera or path_below(target) != target:
                    msg = f"{camera}: LeRobot v3.0 stores no feature of this name"
                    raise FormatError(msg)
                self.videos[span.path] = target
                length = self._dataset.meta.lengths[episode] / self._dataset.rate
                stop = span.start + length if span.stop is None else span.stop
                spans[camera].append((chunk, file, span.start, stop))
        return spans

    def _suffix(self) -> str:
        suffix = PurePosixPath(str(self._dataset.info.get("video_path"))).suffix
        return suffix if _SUFFIX.fullmatch(suffix) else ".mp4"

    # --------------------------------------------------------------------------------- statistics

    def _read_pictures(self) -> dict[str, dict[str, Array]]:
        """Return the statistics of pictures in the kept episodes, by feature and statistic."""
        names = [n for n, f in self._dataset.features.items() if f["dtype"] in _PICTURES]
        if not names:
            return {}
        try:
            stored = read_statistics(self._dataset.base, names)
        except FormatError:  # the export does without, and says so
            return {name: {} for name in names}
        places = {number: place for place, number in enumerate(stored.episodes.tolist())}
        rows = [places.get(number, -1) for number in self.kept]
        if min(rows) < 0:
            return {name: {} for name in names}
        found: dict[str, dict[str, Array]] = {name: {} for name in names}
        for (name, key), array in stored.columns.items():
            kept = array[rows]
            if kept.dtype.kind in "biuf" and (key != "count" or np.isfinite(kept).all()):
                # JSON lines give floats.
                found[name][key] = kept.astype(np.int64 if key == "count" else np.float64)
        return found

    def _write_statistics(self, pictures: Mapping[str, Mapping[str, Array]]) -> None:
        found: dict[str, Statistics | None] = {}
        for name in self._dataset.features:
            if name in pictures:
                found[name] = joined(pictures[name])
            elif name in self._dataset.numbers:
                running, feature = self._numbers[name], self._dataset.numbers[name]
                quantiles = exact_quantiles(
                    partial(self._column, name, feature),
                    self.rows,
                    feature.shape,
                    feature.dtype.itemsize,
                )
                found[name] = running.result(quantiles)
        lacking = [name for name, stats in found.items() if stats is None]
        if images := [name for name in lacking if name in pictures]:
            self.notes.append(
                f"meta/stats.json has no statistics of {', '.join(images)}: the source has none "
                f"for each episode"
            )
        if numbers := [name for name in lacking if name not in pictures]:
            self.notes.append(
                f"meta/stats.json has no statistics of {', '.join(numbers)}: the values hold NaN "
                f"or infinity"
            )
        stats = {name: stats for name, stats in found.items() if stats is not None}
        self._write_json("meta/stats.json", stats)

    def _column(self, name: str, feature: _Feature) -> Iterator[Array]:
        for path in self._files.paths:
            with closing(ParquetFile(path)) as opened:
                for batch in opened.record_batches([name]):
                    self._beat()
                    yield _values_of(batch, name, feature, path.name)

    # ---------------------------------------------------------------------------------- documents

    def _write_info(self) -> None:
        info = self._dataset.info
        videos = bool(video_features(info))
        changed = {
            "codebase_version": "v3.0",
            "total_episodes": len(self.kept),
            "total_frames": self.rows,
            "total_tasks": len(self._texts),
            "chunks_size": _CHUNK_FILES,
            "data_files_size_in_mb": _size(info.get("data_files_size_in_mb"), _FILE_MB),
            "video_files_size_in_mb": _size(info.get("video_files_size_in_mb"), _VIDEO_MB),
            "fps": info.get("fps"),
            "splits": self._splits(),
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH + self._suffix() if videos else None,
        }
        gone = () if is_v3(info) else ("total_chunks", "total_videos")
        kept = {name: value for name, value in info.items() if name not in gone}
        self._write_json(INFO, kept | changed)

    def _splits(self) -> dict[str, str]:
        """Return the splits of the source in the new numbers; "train" if they are no ranges."""
        order = list(self._dataset.meta.lengths)
        if not is_v3(self._dataset.info):
            order.sort()
        before = np.concatenate([[0], np.cumsum([number in self._new for number in order])])
        splits = self._dataset.info.get("splits")
        ranges: dict[str, str] = {}
        for name, value in splits.items() if isinstance(splits, Mapping) else ():
            match = _RANGE.fullmatch(value) if isinstance(value, str) else None
            if match is None or not int(match[1]) <= int(match[2]) <= len(order):
                self.notes.append(f"the splits of {INFO} are replaced: {name[:60]!r} is no range")
                ranges.clear()
                break
            ranges[name] = f"{before[int(match[1])]}:{before[int(match[2])]}"
        return ranges or {"train": f"0:{len(self.kept)}"}

    def _write_json(self, name: str, value: Any) -> None:
        data = json.dumps(value, indent=4, ensure_ascii=False, allow_nan=False)
        path = self._to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode("utf-8", "surrogatepass"))

    def _copy_documents(self) -> None:
        for name in _DOCUMENTS:
            document = self._dataset.base / name
            if document.is_file():
                if document.stat().st_size > _DOCUMENT_BYTES:
                    self.notes.append(f"{name} is left out: it is too large")
                    continue
                (self._to / name).write_bytes(document.read_bytes())


_RANGE = re.compile(r"(\d{1,12}):(\d{1,12})")
_TEXTS = "__index_level_0__"
# pandas reads the texts of tasks as the index of the table, as LeRobot expects.
_PANDAS = {
    "pandas": json.dumps(
        {
            "index_columns": [_TEXTS],
            "column_indexes": [
                {
                    "name": None,
                    "field_name": None,
                    "pandas_type": "unicode",
                    "numpy_type": "object",
                    "metadata": {"encoding": "UTF-8"},
                }
            ],
            "columns": [
                {
                    "name": TASK,
                    "field_name": TASK,
                    "pandas_type": "int64",
                    "numpy_type": "int64",
                    "metadata": None,
                },
                {
                    "name": None,
                    "field_name": _TEXTS,
                    "pandas_type": "unicode",
                    "numpy_type": "object",
                    "metadata": None,
                },
            ],
            "creator": {"library": "pyarrow", "version": "0"},
            "pandas_version": "2.0.0",
        }
    )
}


class _EpisodeTable:
    """The table of episodes, written in pieces of 1,000 rows.

    Args:
        files: where it goes.
        numbers: the numeric features.
        pictures: by feature and statistic, the values of all episodes.
        cameras: names of the videos.
    """

    def __init__(
        self,
        files: _Files,
        numbers: Mapping[str, _Feature],
        pictures: Mapping[str, Mapping[str, Array]],
        cameras: Sequence[str],
    ) -> None:
        self._files, self._pictures = files, pictures
        self._schema = _episode_schema(numbers, pictures, cameras)
        self._rows: list[dict[str, Any]] = []
        self._place = 0

    def add(
        self,
        row: dict[str, Any],
        spans: Mapping[str, tuple[int, int, float, float]],
        stats: Mapping[str, Statistics],
    ) -> None:
        """Add an episode."""
        for camera, span in spans.items():
            row |= {f"videos/{camera}/{key}": v for key, v in zip(_SPAN, span, strict=True)}
        for name, values in stats.items():
            row |= {f"stats/{name}/{key}": value for key, value in values.items()}
        for name, columns in self._pictures.items():
            row |= {f"stats/{name}/{key}": a[self._place].tolist() for key, a in columns.items()}
        self._rows.append(row)
        self._place += 1
        if len(self._rows) >= _FLUSHED:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415  in the child only

        chunk, file = self._files.begin(self._schema)
        place = {"meta/episodes/chunk_index": chunk, "meta/episodes/file_index": file}
        rows = [row | place for row in self._rows]
        self._files.write(pa.RecordBatch.from_pylist(rows, schema=self._schema))
        self._rows.clear()

    def close(self) -> None:
        """Write the last rows."""
        if self._rows:
            self._flush()
        self._files.close()


_SPAN = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")


def _episode_schema(
    numbers: Mapping[str, _Feature],
    pictures: Mapping[str, Mapping[str, Array]],
    cameras: Iterable[str],
) -> Any:
    import pyarrow as pa  # noqa: PLC0415  in the child only

    whole, real = pa.int64(), pa.float64()
    types = {
        EPISODE: whole,
        "tasks": pa.list_(pa.string()),
        "length": whole,
        "data/chunk_index": whole,
        "data/file_index": whole,
        "dataset_from_index": whole,
        "dataset_to_index": whole,
    }
    for camera in cameras:
        types |= dict(
            zip((f"videos/{camera}/{k}" for k in _SPAN), (whole, whole, real, real), strict=True)
        )
    for name, feature in numbers.items():
        exact = {"b": whole, "i": whole, "u": pa.uint64()}.get(feature.dtype.kind, real)
        for key in STATISTICS:
            leaf = exact if key in {"min", "max"} else real
            types[f"stats/{name}/{key}"] = (
                pa.list_(whole) if key == "count" else _nested(leaf, len(feature.shape))
            )
    for name, columns in pictures.items():
        for key in STATISTICS:
            if key in columns:
                leaf = whole if key == "count" else real
                types[f"stats/{name}/{key}"] = _nested(leaf, columns[key].ndim - 1)
    types |= {"meta/episodes/chunk_index": whole, "meta/episodes/file_index": whole}
    return pa.schema(list(types.items()))


def _nested(leaf: Any, depth: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415  in the child only

    for _ in range(depth):
        leaf = pa.list_(leaf)
    return leaf


def _values_of(batch: Any, name: str, feature: _Feature, path: str) -> Array:
    """Return a column of a batch as numbers.

    Shapes:
        returns: (rows, *shape)

    Raises:
        FormatError: it holds nulls, or values of another type or shape than declared.
    """
    import pyarrow as pa  # noqa: PLC0415  in the child only

    column = batch.column(name)
    for level in count():
        if column.null_count:
            msg = f"{path}: {name} has empty values (null)"
            raise FormatError(msg)
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if not is_list and not pa.types.is_fixed_size_list(column.type):
            break
        axis = feature.shape[level] if level < len(feature.shape) else 1
        widths = list_lengths(column)
        if is_list and (widths != axis).any():
            msg = f"{path}: {name} has another shape than {INFO} declares"
            raise FormatError(msg)
        column = flattened(column)
    try:
        values = (
            numbers(column)
            if pa.types.is_primitive(column.type) and not pa.types.is_temporal(column.type)
            else np.asarray(column.to_numpy(zero_copy_only=False))
        )
        shaped = values.reshape(batch.num_rows, *feature.shape)
    except (pa.ArrowException, ValueError) as error:
        msg = f"{path}: {name} has another shape than {INFO} declares"
        raise FormatError(msg) from error
    if shaped.dtype != feature.dtype:
        msg = f"{path}: {name} is of type {shaped.dtype}; {INFO} declares {feature.dtype}"
        raise FormatError(msg)
    return shaped
