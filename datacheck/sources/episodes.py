"""Episodes of LeRobot datasets (v2, v3): rows of a Parquet file that share an ``episode_index``.

What the meta folder says of an episode are its attributes (``at: "@task"``): `length`; `tasks`, the texts of its steps
in the order in which they first occur; `task`, the one text where all of its steps have the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from datacheck.errors import FormatError
from datacheck.sample import Block, Column, Container
from datacheck.schema.model import FieldSpec
from datacheck.sources.base import Item, Part, Unread
from datacheck.sources.fields import Shelf
from datacheck.sources.lerobot import EPISODE, INFO, TASK, Meta, folder_of, meta_files, read_meta
from datacheck.sources.lines import numbered
from datacheck.sources.ragged import RaggedSource
from datacheck.sources.strips import Array, Span, Strips
from datacheck.sources.values import read_value

_LENGTH = "length"


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
        folder, inner = folder_of(item.path)
        listed = self._meta(folder).files.get(inner, ()) if item.keys is None else ()
        for number in sorted(set(listed) - found):
            yield Unread(numbered(item.path, number), "DC105", f"{folder}meta names it, but the file does not hold it")

    def files(self, item: Item) -> list[str]:
        """Return the file, and those of the meta folder that speak of it."""
        folder, _ = folder_of(item.path)
        known: dict[str, list[str]] = self.__dict__.setdefault("_beside_all", {})  # as `_known`
        if folder not in known:
            known[folder] = [folder + name for name in meta_files(self.file(folder))]
        return [*super().files(item), *known[folder]]

    def spans(self, item: Item, container: Container, strips: Strips) -> tuple[Array, list[Span]]:
        """Return the numbers of the episodes, and their rows.

        Raises:
            FormatError: the file does not say, or says something else than the meta folder.
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
            msg = f"{EPISODE}: its numbers fall, or begin below 0; the rows of an episode lie together, in order"
            raise FormatError(msg)
        strange = next((n for n in numbers.tolist() if n not in meta.lengths), None)
        if strange is not None:
            msg = f"holds episode {strange}, which meta/episodes does not name"
            raise FormatError(msg)
        self._check_place(item, meta, numbers.tolist())
        spans = list(zip(starts.tolist(), [*starts.tolist()[1:], len(index)], strict=True))
        fields, _ = self.way(item.split)
        if fields.noted:
            names = _tasks_of(container, meta, spans)
            for number, span, tasks in zip(numbers.tolist(), spans, names, strict=True):
                task = tasks[0] if tasks is not None and len(tasks) == 1 else None
                said = {_LENGTH: meta.lengths[number], "tasks": tasks, "task": task}
                fields.add_noted(strips.noted.setdefault(span, {}), said)
        return numbers, spans

    def _check_place(self, item: Item, meta: Meta, numbers: Sequence[int]) -> None:
        """Refuse a file with an episode of another one: LeRobot reads all files behind one another.

        Raises:
            FormatError: the meta folder names another file that is there.
        """
        folder, inner = folder_of(item.path)
        others = set(numbers).difference(meta.files.get(inner, ()))
        for other, listed in meta.files.items() if others else ():
            both = others.intersection(listed)
            if both and self.file(folder + other).is_file():
                msg = f"holds episode {min(both)}, which meta/episodes names in {other}"
                raise FormatError(msg)

    def _block(
        self, item: Item, strips: Strips, numbers: Sequence[int], spans: list[Span], extra: dict[str, str]
    ) -> Block:
        block = super()._block(item, strips, numbers, spans, extra)
        if _LENGTH not in self.schema.attrs:
            return block
        lengths = self._meta(folder_of(item.path)[0]).lengths
        told = Column(np.array([lengths[n] for n in numbers], dtype=np.int64))
        return replace(block, facts=block.facts | {f"attrs/{_LENGTH}": told})

    def _meta(self, folder: str) -> Meta:
        known: dict[str, Meta] = self.__dict__.setdefault("_known", {})  # of one task: a meta folder may change
        if folder not in known:
            known[folder] = read_meta(self.file(folder))
        return known[folder]


def _tasks_of(container: Container, meta: Meta, spans: Sequence[Span]) -> list[list[str] | None]:
    """Return the texts of the tasks of each episode in the order in which they first occur, None where none is told.

    Raises:
        FormatError: a number names no task.
    """
    index = None if meta.tasks is None else read_value(container, TASK, FieldSpec(dtype="int64"), TASK)
    if meta.tasks is None or index is None:
        return [None] * len(spans)
    if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "iu":
        msg = f"{TASK}: found no column of whole numbers"
        raise FormatError(msg)
    found = list[list[str] | None]()
    for start, stop in spans:
        numbers = list(dict.fromkeys(index[start:stop].tolist()))
        strange = next((n for n in numbers if n not in meta.tasks), None)
        if strange is not None:
            msg = f"{TASK}: found {strange}, which meta/tasks does not name"
            raise FormatError(msg)
        found.append([meta.tasks[n] for n in numbers])
    return found


def _check_columns(container: Container, meta: Meta) -> None:
    names = set(container.names())
    for name, (dtype, shape) in sorted(meta.features.items()):
        if name not in names:
            msg = f"{name}: {INFO} names it, but the file has no such column"
            raise FormatError(msg)
        found, kind = container.peek(name)
        step = found[1:]
        if kind == "json" or np.dtype(kind).name != dtype or (step != shape and (step, shape) != ((), (1,))):
            seen = "lists of different lengths" if kind == "json" else f"{list(step)} {np.dtype(kind).name}"
            msg = f"{name}: {seen}, but {INFO} declares {list(shape)} {dtype}"
            raise FormatError(msg)
