"""Compares the values of files and samples that differ; children read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from datacheck.errors import DatacheckError, MissingDependencyError, UsageError
from datacheck.model.row_keys import storable_names
from datacheck.repro.sample_digests import folders_json, items_of, keys, source_of, task_of, values
from datacheck.workers.wire import answers, text

if TYPE_CHECKING:
    from datacheck.cache.diff import ValueChange
    from datacheck.model.sample import Container
    from datacheck.schema.model import Schema
    from datacheck.sources import Item
    from datacheck.sources.listing import Listing

Array = np.ndarray[Any, Any]
# By name of a file or key of a sample: the change of each field
ValueChanges = dict[str, dict[str, Any]]

MOST = 200  # files whose values are compared; the others are only known to differ
MOST_SAMPLES = 1000  # limits: samples whose changes are described
_FIELDS = 100  # fields of each
_FILES = "datacheck.repro.values:compare_files"
_ITEMS = "datacheck.repro.values:compare_items"


def file_changes(
    first: Path, second: Path, roots: Mapping[str, Path], pairs: Sequence[tuple[str, str]]
) -> ValueChanges:
    """Return how the values of files differ, by the second's path, if a format can read them.

    Args:
        first, second: the data folders.
        roots: extra folders of both, by name.
        pairs: listing paths in the first and in the second.
    """
    task = {"first": folders_json(first, roots), "second": folders_json(second, roots)}
    return _compare_in_child(_FILES, task, [list(pair) for pair in pairs[:MOST]])


def sample_changes(
    schema: Schema, first: Listing, second: Listing, files: Iterable[str]
) -> ValueChanges:
    """Return how the fields of samples differ, by key.

    Args:
        schema: how to read samples.
        first, second: the data.
        files: paths of the files that differ; samples of other files are not read.
    """
    # Importing `datacheck.repro` must stay light
    from datacheck.sources import open_source  # noqa: PLC0415

    changed = set(files)
    source = open_source(schema, first.root, first.roots)
    second_items = {(item.path, item.split): item for item in items_of(schema, second)}
    pairs: list[tuple[Item, Item]] = []
    for item in items_of(schema, first):
        counterpart = second_items.get((item.path, item.split))
        if (
            counterpart is not None
            and len(pairs) < MOST
            and not changed.isdisjoint(source.files(item))
        ):
            pairs.append((item, counterpart))
    task = {
        "first": task_of(schema, first.root, first.roots),
        "second": task_of(schema, second.root, second.roots),
    }
    return _compare_in_child(
        _ITEMS, task, [[item.as_dict(), counterpart.as_dict()] for item, counterpart in pairs]
    )


def _compare_in_child(function: str, task: dict[str, Any], items: list[Any]) -> ValueChanges:
    from datacheck.sources.roots import sandbox_of  # noqa: PLC0415  as above
    from datacheck.workers.parallel import ordered_map  # noqa: PLC0415  as above

    changes: ValueChanges = {}
    first, second = task["first"], task["second"]
    roots = {name: Path(folder) for name, folder in first["roots"].items()}
    second_folders = [second["root"], *second["roots"].values()]
    box = sandbox_of(Path(first["root"]), roots, read=second_folders)
    for outcome in ordered_map(function, [task | {"items": items}] if items else [], sandbox=box):
        for payload in outcome.payloads:
            changes |= payload
        for death in outcome.deaths:
            name = death.item[1] if isinstance(death.item[1], str) else death.item[1]["path"]
            changes[name] = {
                "": {"said": f"cannot be compared: {death.how.strip().splitlines()[-1]}"}
            }
    return changes


# ------------------------------------------------------------------------------------- in the child


@answers({text: {text: {"said": text}}}, raises=(UsageError, MissingDependencyError))
def compare_files(task: dict[str, Any], beat: Callable[[int], None]) -> ValueChanges:
    """Compare pairs of files of known formats (see `parallel.run_task`)."""
    from datacheck.formats.base import format_of, open_container  # noqa: PLC0415  as above
    from datacheck.sources.listing import limit_files  # noqa: PLC0415  as above
    from datacheck.sources.roots import Roots  # noqa: PLC0415  as above

    changes: ValueChanges = {}
    for number, (first_path, second_path) in enumerate(task["items"]):
        beat(number)
        sides = ((task["first"], first_path), (task["second"], second_path))
        limit_files(beat, *((side, [path]) for side, path in sides))
        places = [Roots(side["root"], side["roots"]).file(path) for side, path in sides]
        if not all(place.is_dir() or format_of(place.name) for place in places):
            continue
        try:
            with open_container(places[0]) as x, open_container(places[1]) as y:
                differences = _container_changes(x, y)
        except (DatacheckError, KeyError) as error:
            differences = {"": {"said": f"cannot be compared: {error}"}}
        if differences:
            changes[second_path] = differences
    return changes


def _container_changes(x: Container, y: Container) -> dict[str, Any]:
    value_pairs = {
        stored_name: (_value(x, name), _value(y, name))
        for stored_name, name in storable_names({*x.names(), *y.names()}).items()
    }
    return dict(islice(_changed_values(value_pairs), MOST_SAMPLES))


def _changed_values(
    value_pairs: Mapping[str, tuple[Array | None, Array | None]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and change of the values that differ."""
    for name in sorted(value_pairs):
        if (description := describe_change(*value_pairs[name])) is not None:
            yield name, description


def _value(container: Container, name: str) -> Array | None:
    if name not in container.names():
        return None
    value = container.read(name)
    if isinstance(value, str):
        return np.frombuffer(value.encode("utf-8", "surrogatepass"), np.uint8)
    if not isinstance(value, np.ndarray):
        return np.frombuffer(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), np.uint8)
    return value


@answers({text: {text: {"said": text}}}, raises=(UsageError, MissingDependencyError))
def compare_items(task: dict[str, Any], beat: Callable[[int], None]) -> ValueChanges:
    """Compare the samples of pairs of items by key (see `parallel.run_task`)."""
    from datacheck.sources import Item  # noqa: PLC0415  as above
    from datacheck.sources.listing import limit_files  # noqa: PLC0415  as above

    sources = [source_of(task["first"]), source_of(task["second"])]
    changes: ValueChanges = {}
    for number, pair in enumerate(task["items"]):
        beat(number)
        busy = partial(_busy, beat, number)
        limit_files(
            beat,
            *(
                (task[side], source.files(Item.from_dict(item)))
                for side, source, item in zip(("first", "second"), sources, pair, strict=True)
            ),
        )
        before, after = (
            dict(_samples(source.read_all([Item.from_dict(item)], busy)))
            for source, item in zip(sources, pair, strict=True)
        )
        for key in sorted(before.keys() & after.keys()):
            x = before[key]
            y = after[key]
            value_pairs = {name: (x.get(name), y.get(name)) for name in {*x, *y}}
            if differences := dict(islice(_changed_values(value_pairs), _FIELDS)):
                changes[key] = differences
            if len(changes) == MOST_SAMPLES:
                return changes
    return changes


def _busy(beat: Callable[[int], None], number: int, _: int) -> None:
    beat(number)


def _samples(blocks: Iterable[Any]) -> Iterator[tuple[str, Mapping[str, Array]]]:
    for block in blocks:
        # A block without fields is a sample that could not be made: its file is reported.
        if hasattr(block, "fields"):
            columns = {name: list(values(block, name)) for name in block.fields}
            for i, key in enumerate(keys(block)):
                yield key, {name: column[i] for name, column in columns.items()}


def describe_change(x: Array | None, y: Array | None) -> dict[str, Any] | None:
    """Return the difference of two values as JSON values; None if they are equal.

    It holds a sentence and its numbers.
    """
    from datacheck.cache.diff import compare_values  # noqa: PLC0415  as above

    if x is not None and y is not None and x.dtype != y.dtype:
        return {"said": f"{_shape(x)}, then {_shape(y)}"}
    numeric = all(value is None or value.dtype.kind in "biufc" for value in (x, y))
    change = compare_values(x, y, number=numeric)
    return None if change is None else change_json(change)


def change_json(found: ValueChange) -> dict[str, Any]:
    """Return a change as JSON values."""
    shapes = {"before": found.before, "after": found.after}
    shape_lists = {name: None if shape is None else list(shape) for name, shape in shapes.items()}
    if found.before != found.after:
        return {"said": str(found), **shape_lists}
    numbers = {"largest": found.largest, "relative": found.relative, "first": list(found.first)}
    return {"said": str(found), **shape_lists, "values": found.values, **numbers}


def _shape(value: Array) -> str:
    return f"{value.dtype.name} {list(value.shape)}"
