"""The kinds of sources: whole files, groups, shard keys, rows, ranges of rows, and episodes.

`open_source` picks the kind for a schema by ``samples.each``. Lines have a module of their own.
`SourceSetup` lets a child open the same source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError, SchemaError
from datacheck.model.row_keys import storable, storable_names
from datacheck.model.sample import Block, Column, Container, Depth, Origin, Piece
from datacheck.runtime.hashing import shortened
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.patterns import Template, parse
from datacheck.sources.base import Item, Part, Source, Unread
from datacheck.sources.fields import Attributes, ContainerNames, Shelf, near_name
from datacheck.sources.lerobot import (
    EPISODE,
    FIRST_ROW,
    INFO,
    LENGTH,
    ROW,
    STATISTIC_LINES,
    STATISTICS,
    STATS,
    TASK,
    EpisodeColumns,
    Meta,
    folder_of,
    is_dtype,
    is_v3,
    meta_files,
    read_info,
    read_meta,
    read_statistics,
    statistic_lines,
    whole_quantiles,
)
from datacheck.sources.lines import LineSource, Spans, numbered
from datacheck.sources.row_slices import (
    LEAST_BYTES,
    Array,
    RowSlices,
    RowSliceSource,
    Span,
    per_sample,
)
from datacheck.sources.values import read_value


class FileSource(Source):
    """Samples that are whole files; the key is the file's path."""

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the single sample of the file.

        Raises:
            FormatError: the file cannot be read.
        """
        for key in [item.path] if item.keys is None else item.keys:
            yield (
                self._piece(item, shelf)
                if key == item.path
                else Unread(key, "DC101", f"not a sample of {item.path}")
            )

    def _piece(self, item: Item, shelf: Shelf) -> Part:
        fields, facts = self.way(item.split)
        with self.opened(item, fields.hint) as container:
            container_names = ContainerNames(container)
            values = fields.read(container, "", container_names)
            self.left_out(item.path, values)
            attrs = container.attrs() if fields.reads_attributes or facts.oriented else {}
            fields.add_noted(values, attrs)
            unlisted_values = self.others(item, container, values, known=container_names)
            self.note_unread(item, container, container.passed)
        about = item.location
        try:
            absent_facts = self.with_companions(values, item, item.names, shelf)
        except FormatError as error:
            return Unread(item.path, error.code, str(error), facts.group(about))
        sample_facts, group = self.facts(item, about, values, attrs)
        return Piece(
            item.path,
            unlisted_values | fields.drop_unasked(values),
            Origin(item.path),
            group,
            sample_facts | absent_facts,
        )


NO_GROUP = "holds no group like"
_TEXT = FieldSpec(dtype="json")
_MOST_NAME_BYTES = 1_000  # as JSON, of a group that a list in the file names


_MASKS = "mask"  # where robomimic and LIBERO keep lists of samples
_MOST_OUTSIDE = 64  # names of one file outside of its samples
_MORE_OUTSIDE = "more outside of the samples"


def _is_list(container: Container, name: str, lists: str) -> bool:
    """Return whether a value is a list of samples: text, or nothing, below the group of lists."""
    if not name.startswith(lists):
        return False
    try:
        return container.stores_text(name) or 0 in container.peek(name)[0]
    except (KeyError, FormatError):
        return False


class GroupSource(Source):
    """Samples that are groups in a file; keys are ``file.hdf5:/data/demo_3``, in bytewise order."""

    @cached_property
    def pattern(self) -> Template:
        """The parsed ``samples.each``.

        Raises:
            SchemaError: the pattern is malformed.
        """
        text = self.schema.samples.each or ""
        template = parse(text.strip("/"), f"{self.schema.name}, samples.each")
        if "**" in text:
            msg = (
                f"{template.where}: found {text!r}; '*' stands for one level of groups, '**' is "
                f"not allowed here"
            )
            raise SchemaError(msg)
        return template

    @property
    def inner_names(self) -> tuple[str, ...]:
        """Placeholders of ``samples.each``."""
        return self.pattern.names

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's groups, one in memory at a time.

        Raises:
            FormatError: the file cannot be opened, or holds no matching group.
        """
        fields, _ = self.way(item.split)
        with self.opened(item, fields.hint) as container:
            groups = self._groups(container)
            attributes = Attributes(container)
            self.check_count(item, len(groups))
            container_names = ContainerNames(container)
            if fields.everything:
                # A file that cannot list its names fails once, not with each sample.
                container_names.below()
            if item.keys is None and not groups:
                raise FormatError(self._nothing())
            start = f"{item.path}:/"
            for key in [start + group for group in groups] if item.keys is None else item.keys:
                group = key.removeprefix(start)
                if group in groups and key != group:
                    yield self._piece(
                        item, group, *groups[group], attributes, container_names, shelf
                    )
                else:
                    yield Unread(key, "DC101", f"not a sample of {item.path}")
            if item.keys is None and self.is_scan and (self.unlisted or fields.everything):
                self._note_outside(item, container, container_names, groups)
            for name, reason in container.unmatched().items() if item.keys is None else ():
                yield Unread(start + name, "DC101", reason)
            if item.keys is None and self.schema.samples.masks:
                yield from self._absent(
                    item, container, container_names, self.schema.samples.masks.strip("/"), groups
                )

    def _absent(
        self,
        item: Item,
        container: Container,
        container_names: ContainerNames,
        folder: str,
        groups: Mapping[str, object],
    ) -> Iterator[Unread]:
        """Yield missing groups that lists inside the file name (robomimic's filter keys).

        Raises:
            TooManySamplesError: they name more groups than the file's bytes can hold.
        """
        start = f"{folder}/"
        outer = next(iter(groups)).rpartition("/")[0]
        lacking: dict[str, str] = {}
        for name in container_names.below(start):
            listed = read_value(container, name, _TEXT, name)
            # Texts that are not UTF-8 are read as bytes.
            if isinstance(listed, np.ndarray) and listed.dtype == np.uint8 and listed.size:
                reason = "holds a name that is not UTF-8, so the samples that it names are unknown"
                yield Unread(f"{item.path}:/{name}", "DC105", f"/{name} {reason}")
            for entry in listed if isinstance(listed, list) else []:
                group = str(entry) if "/" in str(entry) else f"{outer}/{entry}".lstrip("/")
                if group.strip("/") not in groups:
                    lacking.setdefault(shortened(group.strip("/"), _MOST_NAME_BYTES), name)
            self.check_count(item, len(groups) + len(lacking))
        for group, name in sorted(lacking.items()):
            yield Unread(
                f"{item.path}:/{group}",
                "DC105",
                f"/{name} names it, but the file holds no such group",
            )

    def note_passed(
        self, item: Item, container: Container, container_names: ContainerNames, prefix: str
    ) -> None:
        """Note the entries of a group that become no field."""
        self.note_unread(item, container, container_names.passed(prefix))

    def _note_outside(
        self,
        item: Item,
        container: Container,
        container_names: ContainerNames,
        groups: Mapping[str, tuple[str, dict[str, str]]],
    ) -> None:
        """Note the values of a file outside of all samples: they are neither read nor judged.

        Notes:
            Lists of samples, which robomimic and LIBERO write beside the samples, are silent, and
            so are values that a field of the schema names.
        """
        fields, _ = self.way(item.split)
        used = {place.at.strip("/") for place in fields.own if place.at.startswith("/")}
        lists = f"{(self.schema.samples.masks or _MASKS).strip('/')}/"
        try:
            names = container_names.outside(f"{stored}/" for stored, _ in groups.values())
            unused = (
                name for name in names if name not in used and not _is_list(container, name, lists)
            )
            outside = list(islice(unused, _MOST_OUTSIDE + 1))
        except FormatError:  # more objects than are listed
            outside = [""]
        if outside:
            self.partly.add(item.path)
            shown = [f"/{shortened(name, _MOST_NAME_BYTES)}" for name in outside[:_MOST_OUTSIDE]]
            more = [_MORE_OUTSIDE] if len(outside) > _MOST_OUTSIDE else []
            self.passed.update(storable([*shown, *more]))

    def _nothing(self) -> str:
        return f"{NO_GROUP} {self.schema.samples.each}"

    def _groups(self, container: Container) -> dict[str, tuple[str, dict[str, str]]]:
        """Return by group its name in the container and its placeholders, in bytewise order."""
        anything = self.pattern.substitute(dict.fromkeys(self.pattern.names, "*"))
        groups = storable_names({group.strip("/") for group in container.groups("/" + anything)})
        candidates = (
            (group, stored_name, self.pattern.match(group))
            for group, stored_name in sorted(groups.items())
        )
        return {
            group: (stored_name, inner)
            for group, stored_name, inner in candidates
            if inner is not None
        }

    def _piece(
        self,
        item: Item,
        group: str,
        stored_name: str,
        inner: dict[str, str],
        attributes: Attributes,
        container_names: ContainerNames,
        shelf: Shelf,
    ) -> Part:
        fields, facts = self.way(item.split)
        key = f"{item.path}:/{group}"
        placeholders = {**item.names, **inner}
        inner_path = "" if inner else f"/{group}"
        about = item.location_of(key, inner_path, placeholders)
        try:
            values = fields.read(attributes.container, f"{stored_name}/", container_names)
            self.left_out(item.path, values)
            absent_facts = self.with_companions(values, item, placeholders, shelf)
            attrs = attributes.of(stored_name) if fields.reads_attributes or facts.oriented else {}
            fields.add_noted(values, attrs)
            unlisted_values = self.others(
                item, attributes.container, values, f"{stored_name}/", container_names
            )
            self.note_passed(item, attributes.container, container_names, f"{stored_name}/")
            sample_facts, label = self.facts(item, about, values, attrs)
        except FormatError as error:
            return Unread(key, error.code, str(error), facts.group(about))
        return Piece(
            key,
            unlisted_values | fields.drop_unasked(values),
            Origin(item.path, f"/{group}"),
            label,
            sample_facts | absent_facts,
        )


class KeySource(GroupSource):
    """Samples that the format itself delimits: the keys of a tar shard, ``shard-000.tar:/0007``."""

    @property
    def inner_names(self) -> tuple[str, ...]:
        """Always empty: keys have no placeholders."""
        return ()

    def _note_outside(
        self,
        item: Item,
        container: Container,
        container_names: ContainerNames,
        groups: Mapping[str, tuple[str, dict[str, str]]],
    ) -> None:
        """Do nothing: a shard has nothing outside of its keys."""

    def note_passed(
        self, item: Item, container: Container, container_names: ContainerNames, prefix: str
    ) -> None:
        """Keep what was noted when the file was opened: it counts the columns of all samples."""

    def _nothing(self) -> str:
        return "holds no key: samples.each: key is for shards (.tar, .mds)"

    def _groups(self, container: Container) -> dict[str, tuple[str, dict[str, str]]]:
        return {
            key: (stored_name, {}) for key, stored_name in storable_names(container.keys()).items()
        }


class RowSource(RowSliceSource):
    """Samples that are entries of the first axis of every field."""

    def spans(
        self, item: Item, container: Container, strips: RowSlices
    ) -> tuple[Array, Sequence[Span]]:
        """Return one span per row, counted from 0.

        Raises:
            FormatError: the fields differ in length.
        """
        del container
        declared = [name for name in strips.lengths if name in strips.declared]
        lengths = {
            name: strips.lengths[name]
            for name in declared or strips.lengths
            if strips.lengths[name] >= 0
        }
        if not lengths:
            msg = "holds none of the fields, so there are no rows"
            raise FormatError(msg)
        total = Counter(lengths.values()).most_common(1)[0][0]
        first_field = min(name for name, length in lengths.items() if length == total)
        if not declared and set(lengths.values()) != {total}:
            length_list = ", ".join(f"{name} {length}" for name, length in sorted(lengths.items()))
            msg = f"its arrays differ in length ({length_list}); name the fields that are cut into rows"
            raise FormatError(msg)
        self.check_count(item, total)
        strips.keep(total, f"{first_field} has {total}")
        return np.arange(total), Spans(range(total))

    def cut_when_read(self, item: Item) -> bool:
        """Return whether the file is large enough to read in parts.

        Files with companions or columns are read whole.
        """
        fields, _ = self.way(item.split)
        alone = not fields.companions and not fields.columns
        return item.keys is None and item.nbytes >= LEAST_BYTES and alone

    def column(self, value: Any, lengths: Array) -> Column:
        """Return the column of samples with one row each."""
        if isinstance(value, list):
            return per_sample(value)
        if value.ndim == 1:
            return Column(value)
        size = value.shape[1]
        rows = value.reshape(len(value) * size, *value.shape[2:])
        return Column(rows, np.full(len(lengths), size, dtype=np.int64))


class RaggedSource(RowSliceSource):
    """Samples that are rows ``[ends[i-1], ends[i])`` of every field.

    The schema has ``each: "ends:meta/episode_ends"``.
    """

    @property
    def ends(self) -> str:
        """The name of the array of ends."""
        return (self.schema.samples.each or "").removeprefix("ends:").strip("/")

    def spans(
        self, item: Item, container: Container, strips: RowSlices
    ) -> tuple[Array, list[Span]]:
        """Return one span per episode, counted from 0.

        Raises:
            FormatError: the ends are missing or decrease, or a field has another length.
        """
        ends = read_value(container, self.ends, FieldSpec(dtype="int64"), self.ends)
        if not isinstance(ends, np.ndarray) or ends.ndim != 1 or ends.dtype.kind not in "iu":
            description = "nothing" if ends is None else "no list of whole numbers"
            msg = f"{self.ends}: found {description} where the ends of the episodes should be"
            raise FormatError(msg)
        self.check_count(item, len(ends))
        stops = [0, *map(int, ends)]
        drop_index = next((i for i, (a, b) in enumerate(pairwise(stops)) if b < a), None)
        if drop_index is not None:
            msg = (
                f"{self.ends}: entry {drop_index} is {stops[drop_index + 1]}, less than the one before it "
                f"({stops[drop_index]})"
            )
            raise FormatError(msg)
        strips.leave_out(self.ends)
        strips.keep(stops[-1], f"{self.ends} ends at {stops[-1]}")
        return np.arange(len(ends)), list(pairwise(stops))

    def column(self, value: Any, lengths: Array) -> Column:
        """Return the column of samples of these lengths."""
        if isinstance(value, list):
            stops = np.concatenate([[0], np.cumsum(lengths)])
            return Column.of([value[a:b] for a, b in pairwise(stops)])
        return Column(value, lengths)


_WIDEST = 64  # columns of a field whose statistics are compared with the rows


class EpisodeSource(RaggedSource):
    """Samples that are episodes of a LeRobot dataset: rows of a Parquet file by ``episode_index``.

    Keys contain the dataset's episode number. The meta folder supplies attributes of an episode
    (``at: "@task"``): `length`; `tasks`, the texts of its steps in order of first occurrence; `task`,
    the text if all steps have the same one. The names of a field's columns are the fact
    ``names/<field>``.
    """

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
            base = self.opener.file(folder)
            compared = [name for name in (STATS, STATISTIC_LINES) if (base / name).is_file()]
            names = [*meta_files(base), *(compared if self.is_scan else ())]
            cache[folder] = [folder + name for name in names]
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
                attributes = {LENGTH: meta.lengths[number], "tasks": tasks, "task": task}
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
            if shared_numbers and self.opener.file(folder + other_path).is_file():
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
        meta = self._meta(folder_of(item.path)[0])
        stated: dict[str, Mapping[int, int]] = {}
        if LENGTH in self.schema.attrs:
            stated[LENGTH] = meta.lengths
        if ROW in self.schema.fields:
            stated[FIRST_ROW] = meta.first_rows
        facts = {
            f"attrs/{name}": Column(np.array([of[n] for n in numbers], dtype=np.int64))
            for name, of in stated.items()
        }
        for name, spec in self.schema.fields.items():
            text = meta.names.get(spec.at or name)
            if text and name in block.fields:
                facts[f"names/{name}"] = Column.of([text] * len(numbers))
        if self.is_scan:
            facts |= self._statistics(item, meta, block, numbers)
        return replace(block, facts=block.facts | facts)

    def _statistics(
        self, item: Item, meta: Meta, block: Block, numbers: Sequence[int]
    ) -> dict[str, Column]:
        """Return what the meta folder states of the values of each field of decimal numbers.

        Shapes:
            stats/<field>: float64 (episodes, 10 * columns): `STATISTICS` in order, NaN where absent
            quantiles/<field>: float64 (episodes, 6 * columns): of the whole dataset, see
                `whole_quantiles`
        """
        names = {
            at: name
            for name in self.schema.fields
            if name in block.fields and (at := self._feature(name, meta))
        }
        try:
            stated, whole = self._stated(folder_of(item.path)[0], list(names), numbers)
        except FormatError:  # the audit of the documents reports it
            return {}
        facts: dict[str, Column] = {}
        for at, name in names.items():
            width = prod(meta.features[at][1])
            table = _table_of(stated, at, numbers, width)
            if not np.isnan(table).all():
                facts[f"stats/{name}"] = Column(table)
            if at in whole and whole[at].shape[1] == width:
                rows = np.tile(whole[at].reshape(1, -1), (len(numbers), 1))
                facts[f"quantiles/{name}"] = Column(rows)
        return facts

    def _stated(
        self, folder: str, features: Sequence[str], numbers: Sequence[int]
    ) -> tuple[EpisodeColumns, Mapping[str, Array]]:
        """Return the statistics of episodes, tables with those of all, and quantiles of all rows.

        Raises:
            FormatError: a document is damaged.
        """
        base = self.opener.file(folder)
        cache: dict[str, _Stated] = self.__dict__.setdefault("_stated_in", {})  # as `_known`
        if folder not in cache:
            tables = read_statistics(base, features) if is_v3(read_info(base)) else None
            cache[folder] = _Stated(tables, statistic_lines(base), whole_quantiles(base, features))
        known = cache[folder]
        if known.tables is not None:
            return known.tables, known.whole
        places = [known.lines[number] for number in numbers if number in known.lines]
        return read_statistics(base, features, places), known.whole

    def _feature(self, name: str, meta: Meta) -> str:
        """Return the feature of decimal numbers that a field is read from, "" for others."""
        at = self.schema.fields[name].at or name
        if at not in meta.features and self.schema.near_names:
            at = near_name(at, meta.features)
        dtype, shape = meta.features.get(at, ("", ()))
        is_clock = self.schema.fields[name].role == "timestamp"
        return at if dtype.startswith("float") and prod(shape) <= _WIDEST and not is_clock else ""

    def _meta(self, folder: str) -> Meta:
        # Kept for one task only: a meta folder may change.
        cache: dict[str, Meta] = self.__dict__.setdefault("_known", {})
        if folder not in cache:
            cache[folder] = read_meta(self.opener.file(folder))
        return cache[folder]


class _Stated(NamedTuple):
    """What the meta folder of a dataset states of the values: see `read_statistics`."""

    tables: EpisodeColumns | None
    lines: Mapping[int, int]
    whole: Mapping[str, Array]


def _table_of(stated: EpisodeColumns, name: str, numbers: Sequence[int], width: int) -> Array:
    """Return the statistics of a feature: float64 (episodes, 10 * columns), NaN where absent."""
    places = {number: place for place, number in enumerate(stated.episodes.tolist())}
    mine = [places.get(number, -1) for number in numbers]
    table = np.full((len(numbers), len(STATISTICS), width), np.nan)
    for row, statistic in enumerate(STATISTICS):
        values = stated.columns.get((name, statistic))
        if values is None or not len(values) or values[0].size not in {1, width}:
            continue
        wide = values.reshape(len(values), -1)
        table[:, row] = np.where(np.array(mine)[:, None] < 0, np.nan, wide[mine])
    return table.reshape(len(numbers), -1)


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
            or not is_dtype(stored_dtype, dtype)
            or (step != shape and (step, shape) != ((), (1,)))
        ):
            description = (
                "lists of different lengths"
                if stored_dtype == "json"
                else f"{list(step)} {np.dtype(stored_dtype).name}"
            )
            msg = f"{name}: {description}, but {INFO} declares {list(shape)} {dtype}"
            raise FormatError(msg)


# --------------------------------------------------------------------------------------- the choice

_WORDS: dict[str, type[Source]] = {
    "line": LineSource,
    "row": RowSource,
    "key": KeySource,
    "episode": EpisodeSource,
}


def open_source(
    schema: Schema,
    root: Path,
    roots: Mapping[str, Path] | None = None,
    *,
    fields: frozenset[str] | None = None,
    level: Depth | None = None,
) -> Source:
    """Return the source that reads a schema's files, as ``samples.each`` says.

    Args:
        schema: the schema of the dataset.
        root, roots: the data folder, and extra folders by name.
        fields: read only these fields; None reads all.
        level: how deep a scan reads, see `FieldMap`; None for a build.

    Raises:
        SchemaError: ``samples.each`` or a pattern is malformed.
        UsageError: an extra folder that a field needs was not given.
    """
    each = schema.samples.each
    source_class: type[Source]
    if each is None:
        source_class = FileSource
    elif each in _WORDS:
        source_class = _WORDS[each]
    elif each.startswith("/") and each.strip("/"):
        source_class = GroupSource
    elif each.startswith("ends:") and each.removeprefix("ends:").strip("/"):
        source_class = RaggedSource
    else:
        msg = (
            f"{schema.name}, samples.each: found {each!r}; allowed are line, row, key, episode, "
            f"groups of a "
            f"container ('/data/demo_*'), and ends of episodes ('ends:meta/episode_ends')"
        )
        raise SchemaError(msg)
    return source_class(schema, root, roots or {}, fields, level)


@dataclass(frozen=True, eq=False)
class SourceSetup:
    """What a source is opened from, here or in a child.

    Args:
        schema: of the dataset.
        root, roots: the data folder, and extra folders by name; absolute paths in a task.
    """

    schema: Schema
    root: Path
    roots: Mapping[str, Path]

    def absolute(self) -> SourceSetup:
        """Return the setup with absolute folders: children may run in other folders."""
        roots = {name: path.absolute() for name, path in self.roots.items()}
        return SourceSetup(self.schema, self.root.absolute(), roots)

    def as_dict(self) -> dict[str, Any]:
        """Return the setup as JSON values: a part of a task."""
        return {
            "schema": self.schema.as_dict(),
            "root": str(self.root),
            "roots": {name: str(path) for name, path in sorted(self.roots.items())},
        }

    @staticmethod
    def from_dict(task: Mapping[str, Any]) -> SourceSetup:
        """Return the setup of a task."""
        return SourceSetup(
            Schema.model_validate(task["schema"]),
            Path(task["root"]),
            {name: Path(path) for name, path in task["roots"].items()},
        )

    def open(self, *, fields: frozenset[str] | None = None, level: Depth | None = None) -> Source:
        """Return the source; see `open_source`."""
        return open_source(self.schema, self.root, self.roots, fields=fields, level=level)
