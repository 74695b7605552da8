"""Episodes of LeRobot datasets (v2, v3): rows of a Parquet file that share an ``episode_index``.

``meta/info.json`` says what the columns are; ``meta/episodes.jsonl`` (v2) or the files below ``meta/episodes`` (v3) say
which episodes there are, how long each is, and in which file it lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.sample import Block, Column, Container
from datacheck.schema.model import FieldSpec
from datacheck.sources.base import Item, Part, Unread
from datacheck.sources.fields import Shelf
from datacheck.sources.lines import numbered
from datacheck.sources.listing import locate
from datacheck.sources.ragged import RaggedSource
from datacheck.sources.strips import Array, Span, Strips
from datacheck.sources.values import read_value

_INDEX, _LENGTH = "episode_index", "length"
_INFO, _LINES, _TABLES = "meta/info.json", "meta/episodes.jsonl", "meta/episodes"
_WHERE = ("data/chunk_index", "data/file_index")
_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_PLACE = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")
_NUMBERS = re.compile(r"u?int\d+|float\d+|bool")  # other features are texts, pictures and videos


class _Meta(NamedTuple):
    """What the meta folder of one dataset says.

    Args:
        features: (dtype, shape of a step) of the columns that hold numbers.
        lengths: steps of each episode.
        files: the episodes of each file, by its path below the dataset's folder.
    """

    features: Mapping[str, tuple[str, tuple[int, ...]]]
    lengths: Mapping[int, int]
    files: Mapping[str, list[int]]


class EpisodeSource(RaggedSource):
    """Samples that are episodes of a LeRobot dataset; the number in a key is the episode's own."""

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's episodes, then those that should lie in it and do not.

        Raises:
            FormatError: the file or the meta folder cannot be read, or they do not fit together.
        """
        found: set[int] = set()
        for part in super().parts(item, shelf):
            if isinstance(part, Block):
                found.update(int(key[-12:]) for key in part.keys)
            yield part
        folder, inner = _folder(item.path)
        listed = self._meta(folder).files.get(inner, ()) if item.keys is None else ()
        for number in sorted(set(listed) - found):
            yield Unread(numbered(item.path, number), "DC105", f"{folder}meta names it, but the file does not hold it")

    def files(self, item: Item) -> list[str]:
        """Return the file, and those of the meta folder that speak of it."""
        folder, _ = _folder(item.path)
        base = locate(self.root, self.roots, folder or ".")
        meta = [_INFO, _LINES, *sorted(p.relative_to(base).as_posix() for p in (base / _TABLES).glob("*/*.parquet"))]
        return [*super().files(item), *(folder + name for name in meta if (base / name).is_file())]

    def spans(self, item: Item, container: Container, strips: Strips) -> tuple[Array, list[Span]]:
        """Return the numbers of the episodes, and their rows.

        Raises:
            FormatError: the file does not say, or says something else than the meta folder.
        """
        meta = self._meta(_folder(item.path)[0])
        _check_columns(container, meta)
        index = read_value(container, _INDEX, FieldSpec(dtype="int64"), _INDEX)
        if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "iu":
            msg = f"{_INDEX}: found no column of whole numbers"
            raise FormatError(msg)
        strips.keep(len(index), f"{_INDEX} has {len(index)}")
        starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 1))
        numbers = index[starts].astype(np.int64)
        if len(numbers) and (int(numbers[0]) < 0 or bool((np.diff(numbers) <= 0).any())):
            msg = f"{_INDEX}: its numbers fall, or begin below 0; the rows of an episode lie together, in order"
            raise FormatError(msg)
        strange = next((n for n in numbers.tolist() if n not in meta.lengths), None)
        if strange is not None:
            msg = f"holds episode {strange}, which meta/episodes does not name"
            raise FormatError(msg)
        stops = [*starts.tolist()[1:], len(index)]
        return numbers, list(zip(starts.tolist(), stops, strict=True))

    def _block(
        self, item: Item, strips: Strips, numbers: Sequence[int], spans: list[Span], extra: dict[str, str]
    ) -> Block:
        block = super()._block(item, strips, numbers, spans, extra)
        if _LENGTH not in self.schema.attrs:
            return block
        lengths = self._meta(_folder(item.path)[0]).lengths
        told = Column(np.array([lengths[n] for n in numbers], dtype=np.int64))
        return replace(block, facts=block.facts | {f"attrs/{_LENGTH}": told})

    def _meta(self, folder: str) -> _Meta:
        known: dict[str, _Meta] = self.__dict__.setdefault("_known", {})  # of one task: a meta folder may change
        if folder not in known:
            known[folder] = _read(locate(self.root, self.roots, folder or "."))
        return known[folder]


def _folder(path: str) -> tuple[str, str]:
    """Return (the dataset's folder with a "/" at its end or "", the rest) of a data file's path."""
    head, data, rest = path.rpartition("data/")
    return head, data + rest


def _check_columns(container: Container, meta: _Meta) -> None:
    names = set(container.names())
    for name, (dtype, shape) in sorted(meta.features.items()):
        if name not in names:
            msg = f"{name}: {_INFO} names it, but the file has no such column"
            raise FormatError(msg)
        found, kind = container.peek(name)
        step = found[1:]
        if kind == "json" or np.dtype(kind).name != dtype or (step != shape and (step, shape) != ((), (1,))):
            seen = "lists of different lengths" if kind == "json" else f"{list(step)} {np.dtype(kind).name}"
            msg = f"{name}: {seen}, but {_INFO} declares {list(shape)} {dtype}"
            raise FormatError(msg)


# ------------------------------------------------------------------------------------------------ the meta folder


def _read(base: Path) -> _Meta:
    """Return what the meta folder of the dataset in `base` says.

    Raises:
        FormatError: it is not there, or damaged.
    """
    info = _values(base / _INFO, _INFO)
    features = info.get("features")
    if not isinstance(features, Mapping):
        msg = f"{_INFO}: found no features"
        raise FormatError(msg)
    if (base / _LINES).is_file():
        rows = _of_lines(base / _LINES)
        template = str(info.get("data_path") or "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet")
    else:
        rows = [row for path in sorted((base / _TABLES).glob("*/*.parquet")) for row in _of_table(path)]
        template = str(info.get("data_path") or _DATA)
    if not rows:
        msg = f"found neither {_LINES} nor files below {_TABLES}, so no length of an episode is known"
        raise FormatError(msg)
    lengths = {row[_INDEX]: row[_LENGTH] for row in rows}
    if len(lengths) < len(rows):
        msg = f"{_TABLES}: an episode stands there twice"
        raise FormatError(msg)
    chunk = _whole(info.get("chunks_size", 1000), f"{_INFO}, chunks_size") or 1000
    files: dict[str, list[int]] = {}
    for row in rows:
        names = {key.rpartition("/")[2]: value for key, value in row.items()}
        files.setdefault(_filled(template, names | {"episode_chunk": row[_INDEX] // chunk}), []).append(row[_INDEX])
    return _Meta(dict(_features(features)), lengths, files)


def _features(features: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    for name, said in features.items():
        dtype, shape = (said.get("dtype"), said.get("shape")) if isinstance(said, Mapping) else (None, None)
        if not isinstance(dtype, str) or not isinstance(shape, list):
            msg = f"{_INFO}: feature {name[:60]!r} says no dtype or shape"
            raise FormatError(msg)
        if _NUMBERS.fullmatch(dtype):
            yield name, (dtype, tuple(_whole(size, f"{_INFO}, shape of {name[:60]!r}") for size in shape))


def _of_lines(path: Path) -> list[dict[str, int]]:
    records = _values(path, _LINES).get("records")
    rows = [record if isinstance(record, Mapping) else {} for record in records] if isinstance(records, list) else []
    return [{key: _whole(row.get(key), f"{_LINES}, {key}") for key in (_INDEX, _LENGTH)} for row in rows]


def _of_table(path: Path) -> list[dict[str, int]]:
    where = f"{_TABLES}/{path.parent.name}/{path.name}"
    values = _values(path, where, (_INDEX, _LENGTH, *_WHERE))
    columns = {key: value.tolist() for key, value in values.items() if isinstance(value, np.ndarray)}
    if len(columns) < len(values):
        msg = f"{where}: {', '.join(sorted(set(values) - set(columns)))} is no column of numbers"
        raise FormatError(msg)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [{key: _whole(value, f"{where}, {key}") for key, value in row.items()} for row in rows]


def _values(path: Path, where: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of a file of the meta folder: those of these names, or all."""
    try:
        with open_container(path) as container:
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


def _filled(template: str, names: Mapping[str, int]) -> str:
    """Return a path for these numbers; what else a template asks for stays as it is, and no file has such a name."""

    def shown(found: re.Match[str]) -> str:
        name, width = found.groups()
        return str(names[name]).zfill(int(width or 1)) if name in names else found[0]

    return _PLACE.sub(shown, template)
