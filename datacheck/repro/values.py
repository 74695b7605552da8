"""Compares two sets of named contents (files, samples), and the values of those that changed."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    from datacheck.sources.base import Item
    from datacheck.sources.listing import Listing


_COPIED = 4096  # length limit of a name as the origin of copies, which is repeated for each copy

Content = Any  # a digest, or several: hashable, and equal for equal content


@dataclass(frozen=True)
class TreeDiff:
    """The differences of two sets of named contents; every name that differs has one entry.

    Args:
        added: only in the second, with a content that no name of the first has lost.
        removed: only in the first, with a content that no added name has.
        changed: in both, with a content that no other name had before, or that another one still
            has.
        renamed: (name in the first, name in the second) of the same content.
        swapped: pairs in both that have exchanged contents; the smaller name first.
        reordered: in both; by name, the name that held its content before and lost it.
        copies: by added or changed name, the name of the first that had the same content; names of
            more than 4,096 letters are left out.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    swapped: list[tuple[str, str]] = field(default_factory=list)
    reordered: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.added
            or self.removed
            or self.changed
            or self.renamed
            or self.swapped
            or self.reordered
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the differences as JSON values."""
        return {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "renamed": [list(pair) for pair in self.renamed],
            "swapped": [list(pair) for pair in self.swapped],
            "reordered": self.reordered,
            "copies": self.copies,
        }


def tree_diff(first: Mapping[str, Content], second: Mapping[str, Content]) -> TreeDiff:
    """Return the differences of two sets of named contents.

    Args:
        first, second: contents by name; contents are compared by ``==`` and hashed.

    Notes:
        The order of names changes nothing. Swaps are matched first, then renames (names with the
        same last part first), then contents that another name held before; equal contents are
        paired in the order of their names.
    """
    shared_names = first.keys() & second.keys()
    differing = sorted(name for name in shared_names if first[name] != second[name])
    removed = sorted(first.keys() - shared_names)
    added = sorted(second.keys() - shared_names)
    if not (differing or removed or added):
        return TreeDiff()
    swapped = _swaps(first, second, differing)
    paired = {name for pair in swapped for name in pair}
    unpaired = [name for name in differing if name not in paired]
    renamed = _renames(first, second, removed, added)
    old_names = {old_name for old_name, _ in renamed}
    new_names = {new_name for _, new_name in renamed}
    removed, added = (
        [name for name in removed if name not in old_names],
        [name for name in added if name not in new_names],
    )
    moved_pairs = _pairs(
        ((first[name], name) for name in [*unpaired, *removed]),
        ((second[name], name) for name in unpaired),
    )
    reordered = {name: before for before, name in sorted(moved_pairs, key=lambda pair: pair[1])}
    changed = [name for name in unpaired if name not in reordered]
    first_names = _first_names(first, {second[name] for name in [*added, *changed]})
    copies = {
        name: first_names[second[name]]
        for name in [*added, *changed]
        if second[name] in first_names
    }
    return TreeDiff(added, removed, changed, renamed, swapped, reordered, copies)


def _swaps(
    first: Mapping[str, Content], second: Mapping[str, Content], differing: list[str]
) -> list[tuple[str, str]]:
    """Return pairs of names that have exchanged contents."""
    waiting: dict[tuple[Content, Content], deque[str]] = defaultdict(deque)
    swapped = []
    for name in differing:
        before = first[name]
        after = second[name]
        if partners := waiting[after, before]:
            swapped.append((partners.popleft(), name))
        else:
            waiting[before, after].append(name)
    return sorted(swapped)


def _renames(
    first: Mapping[str, Content],
    second: Mapping[str, Content],
    removed: list[str],
    added: list[str],
) -> list[tuple[str, str]]:
    """Return pairs (gone, come) of equal content; names with the same last part pair first."""
    renamed: list[tuple[str, str]] = []
    for part in (_last_part, lambda _: ""):
        old_names = {old_name for old_name, _ in renamed}
        new_names = {new_name for _, new_name in renamed}
        renamed += _pairs(
            (((first[name], part(name)), name) for name in removed if name not in old_names),
            (((second[name], part(name)), name) for name in added if name not in new_names),
        )
    return sorted(renamed)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


def _pairs(
    before: Iterable[tuple[Content, str]], after: Iterable[tuple[Content, str]]
) -> list[tuple[str, str]]:
    """Pair names of equal content, in the order given; each name is used once."""
    holders: dict[Content, list[str]] = defaultdict(list)
    for content, name in before:
        holders[content].append(name)
    ahead = {content: iter(names) for content, names in holders.items()}
    pairs = ((next(ahead[content], None), name) for content, name in after if content in ahead)
    return [(old_name, name) for old_name, name in pairs if old_name is not None]


def _first_names(first: Mapping[str, Content], contents: set[Content]) -> dict[Content, str]:
    """Return the smallest name with each of these contents, among names of at most `_COPIED`."""
    content_names: dict[Content, str] = {}
    for name in sorted(
        name for name, content in first.items() if content in contents and len(name) <= _COPIED
    ):
        content_names.setdefault(first[name], name)
    return content_names


Array = np.ndarray[Any, Any]
# By name of a file or key of a sample: the change of each field
ValueChanges = dict[str, dict[str, Any]]

MOST = 200  # files whose values are compared; the others are only known to differ
MOST_SAMPLES = 1000  # limits: samples whose changes are described
_FIELDS = 100  # fields of each
_FILES = "datacheck.repro.values:compare_files"
_ITEMS = "datacheck.repro.values:compare_items"


def file_changes(first: Listing, second: Listing, pairs: Sequence[tuple[str, str]]) -> ValueChanges:
    """Return how the values of files differ, by the second's path, if a format can read them."""
    task = {
        "first": folders_json(first.root, first.roots),
        "second": folders_json(second.root, second.roots),
    }
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
    from datacheck.runtime.sandbox import Sandbox  # noqa: PLC0415  as above
    from datacheck.workers.parallel import ordered_map  # noqa: PLC0415  as above

    changes: ValueChanges = {}
    box = Sandbox(tuple(place for side in ("first", "second") for place in _places(task[side])))
    for outcome in ordered_map(function, [task | {"items": items}] if items else [], sandbox=box):
        for payload in outcome.payloads:
            changes |= payload
        for death in outcome.deaths:
            name = death.item[1] if isinstance(death.item[1], str) else death.item[1]["path"]
            changes[name] = {
                "": {"said": f"cannot be compared: {death.how.strip().splitlines()[-1]}"}
            }
    return changes


def _places(side: Mapping[str, Any]) -> list[str]:
    """Return the folders of one side."""
    return [side["root"], *side["roots"].values()]


# ------------------------------------------------------------------------------------- in the child


@answers({text: {text: {"said": text}}}, raises=(UsageError, MissingDependencyError))
def compare_files(task: dict[str, Any], beat: Callable[[int], None]) -> ValueChanges:
    """Compare pairs of files of known formats (see `parallel.run_task`)."""
    from datacheck.formats.base import format_of, open_container  # noqa: PLC0415  as above
    from datacheck.sources.roots import Roots  # noqa: PLC0415  as above

    changes: ValueChanges = {}
    for number, (first_path, second_path) in enumerate(task["items"]):
        beat(number)
        sides = ((task["first"], first_path), (task["second"], second_path))
        _limit(beat, sides)
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


def _limit(beat: Callable[[int], None], sides: Iterable[tuple[Mapping[str, Any], str]]) -> None:
    """Limit memory and processor time for a pair of files by their size."""
    from datacheck.sources.base import size_of  # noqa: PLC0415  as above
    from datacheck.workers.child import Pulse  # noqa: PLC0415  as above

    if isinstance(beat, Pulse):
        beat.files(
            sum(
                size_of(
                    Path(side["root"]),
                    {name: Path(place) for name, place in side["roots"].items()},
                    path,
                )
                for side, path in sides
            )
        )


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
    from datacheck.sources.base import Item  # noqa: PLC0415  as above

    sources = [source_of(task["first"]), source_of(task["second"])]
    changes: ValueChanges = {}
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
