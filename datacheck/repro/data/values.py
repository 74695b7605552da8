"""How the values of two files, or of the samples in them, differ: read in an expendable child, as a scan reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from datacheck.errors import DatacheckError, MissingDependencyError, UsageError
from datacheck.numbered import storable_names
from datacheck.repro.data.samples import items_of, keys, source_of, task_of, values, where
from datacheck.shapes import answers, text

if TYPE_CHECKING:
    from datacheck.cache.diff import Change
    from datacheck.sample import Container
    from datacheck.schema.model import Schema
    from datacheck.sources.base import Item
    from datacheck.sources.listing import Listing

Array = np.ndarray[Any, Any]
Told = dict[str, dict[str, Any]]  # by name of a file or key of a sample: what each field says

MOST = 200  # files whose values are compared; of the others it is known that they differ
MOST_SAMPLES, _FIELDS = 1000, 100  # of which it is told how they differ; fields of each
_FILES = "datacheck.repro.data.values:compare_files"
_ITEMS = "datacheck.repro.data.values:compare_items"


def of_files(first: Listing, second: Listing, pairs: Sequence[tuple[str, str]]) -> Told:
    """Return how the named values of files differ, by the second's path; of those that no format reads nothing."""
    task = {"first": where(first.root, first.roots), "second": where(second.root, second.roots)}
    return _told(_FILES, task, [list(pair) for pair in pairs[:MOST]])


def of_samples(schema: Schema, first: Listing, second: Listing, files: Iterable[str]) -> Told:
    """Return how the fields of samples differ, by key.

    Args:
        schema: what a sample is.
        first, second: the data.
        files: paths of those whose content differs; samples of other files are not read.
    """
    from datacheck.sources import open_source  # noqa: PLC0415  `datacheck.repro` is light

    changed = set(files)
    source = open_source(schema, first.root, first.roots)
    others = {(item.path, item.split): item for item in items_of(schema, second)}
    pairs: list[tuple[Item, Item]] = []
    for item in items_of(schema, first):
        other = others.get((item.path, item.split))
        if other is not None and len(pairs) < MOST and not changed.isdisjoint(source.files(item)):
            pairs.append((item, other))
    task = {"first": task_of(schema, first.root, first.roots), "second": task_of(schema, second.root, second.roots)}
    return _told(_ITEMS, task, [[item.as_dict(), other.as_dict()] for item, other in pairs])


def _told(function: str, task: dict[str, Any], items: list[Any]) -> Told:
    from datacheck.parallel import ordered_map  # noqa: PLC0415  as above
    from datacheck.runtime.sandbox import Sandbox  # noqa: PLC0415  as above

    told: Told = {}
    box = Sandbox(tuple(place for side in ("first", "second") for place in _places(task[side])))
    for outcome in ordered_map(function, [task | {"items": items}] if items else [], sandbox=box):
        for payload in outcome.payloads:
            told |= payload
        for death in outcome.deaths:
            name = death.item[1] if isinstance(death.item[1], str) else death.item[1]["path"]
            told[name] = {"": {"said": f"cannot be compared: {death.how.strip().splitlines()[-1]}"}}
    return told


def _places(side: Mapping[str, Any]) -> list[str]:
    """Return the folders of one side."""
    return [side["root"], *side["roots"].values()]


# ------------------------------------------------------------------------------------------ in the child


@answers({text: {text: {"said": text}}}, raises=(UsageError, MissingDependencyError))
def compare_files(task: dict[str, Any], beat: Callable[[int], None]) -> Told:
    """Compare pairs of files of known formats (see `parallel.run_task`)."""
    from datacheck.formats.base import format_of, open_container  # noqa: PLC0415  as above
    from datacheck.sources.roots import Roots  # noqa: PLC0415  as above

    told: Told = {}
    for number, (one, other) in enumerate(task["items"]):
        beat(number)
        sides = ((task["first"], one), (task["second"], other))
        _limit(beat, sides)
        places = [Roots(side["root"], side["roots"]).file(path) for side, path in sides]
        if not all(place.is_dir() or format_of(place.name) for place in places):
            continue
        try:
            with open_container(places[0]) as x, open_container(places[1]) as y:
                found = _of_containers(x, y)
        except (DatacheckError, KeyError) as error:
            found = {"": {"said": f"cannot be compared: {error}"}}
        if found:
            told[other] = found
    return told


def _limit(beat: Callable[[int], None], sides: Iterable[tuple[Mapping[str, Any], str]]) -> None:
    """Limit what a pair of files may take, by their size."""
    from datacheck.pulse import Pulse  # noqa: PLC0415  as above
    from datacheck.sources.limited import size_of  # noqa: PLC0415  as above

    if isinstance(beat, Pulse):
        beat.files(
            sum(
                size_of(Path(side["root"]), {name: Path(place) for name, place in side["roots"].items()}, path)
                for side, path in sides
            )
        )


def _of_containers(x: Container, y: Container) -> dict[str, Any]:
    both = {told: (_value(x, name), _value(y, name)) for told, name in storable_names({*x.names(), *y.names()}).items()}
    return dict(islice(_different(both), MOST_SAMPLES))


def _different(both: Mapping[str, tuple[Array | None, Array | None]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and how the two values differ, of those that do."""
    for name in sorted(both):
        if (said := described(*both[name])) is not None:
            yield name, said


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
def compare_items(task: dict[str, Any], beat: Callable[[int], None]) -> Told:
    """Compare the samples of pairs of items by key (see `parallel.run_task`)."""
    from datacheck.sources.base import Item  # noqa: PLC0415  as above

    sources = [source_of(task["first"]), source_of(task["second"])]
    told: Told = {}
    for number, pair in enumerate(task["items"]):
        beat(number)
        busy = partial(_busy, beat, number)
        _limit(
            beat,
            [
                (side, path)
                for name, source, item in zip(("first", "second"), sources, pair, strict=True)
                for side in [task[name]]
                for path in source.files(Item.from_dict(item))
            ],
        )
        before, now = (
            dict(_samples(source.read_all([Item.from_dict(item)], busy)))
            for source, item in zip(sources, pair, strict=True)
        )
        for key in sorted(before.keys() & now.keys()):
            x, y = before[key], now[key]
            both = {name: (x.get(name), y.get(name)) for name in {*x, *y}}
            if found := dict(islice(_different(both), _FIELDS)):
                told[key] = found
            if len(told) == MOST_SAMPLES:
                return told
    return told


def _busy(beat: Callable[[int], None], number: int, _: int) -> None:
    beat(number)


def _samples(blocks: Iterable[Any]) -> Iterator[tuple[str, Mapping[str, Array]]]:
    for block in blocks:
        if hasattr(block, "fields"):  # else it is a sample that cannot be made: its file says so
            columns = {name: list(values(block, name)) for name in block.fields}
            for i, key in enumerate(keys(block)):
                yield key, {name: column[i] for name, column in columns.items()}


def described(x: Array | None, y: Array | None) -> dict[str, Any] | None:
    """Return how two values differ as JSON values: a sentence and its numbers; None where they are equal."""
    from datacheck.cache.diff import change  # noqa: PLC0415  as above

    if x is not None and y is not None and x.dtype != y.dtype:
        return {"said": f"{_shape(x)}, then {_shape(y)}"}
    plain = all(value is None or value.dtype.kind in "biufc" for value in (x, y))
    found = change(x, y, number=plain)
    return None if found is None else of_change(found)


def of_change(found: Change) -> dict[str, Any]:
    """Return a change as JSON values."""
    shapes = {"before": found.before, "after": found.after}
    said = {name: None if shape is None else list(shape) for name, shape in shapes.items()}
    if found.before != found.after:
        return {"said": str(found), **said}
    numbers = {"largest": found.largest, "relative": found.relative, "first": list(found.first)}
    return {"said": str(found), **said, "values": found.values, **numbers}


def _shape(value: Array) -> str:
    return f"{value.dtype.name} {list(value.shape)}"
