"""Split lists that keep related samples together; the same for the same data in any order.

Groups are ordered by a hash of their name and the seed, and laid out on a line as long as the
number of samples. Each group goes to the split that its midpoint falls into. New groups move other
groups only where a boundary between splits passes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.table import Table
from datacheck.rules.base import pluralize
from datacheck.runtime import fsops
from datacheck.runtime.hashing import digest64
from datacheck.scan import run_documents
from datacheck.scan.run_documents import read_schema, read_valid
from datacheck.scan.samples import read_table
from datacheck.schema.model import Schema, file_templates
from datacheck.schema.patterns import Template, limited_matching, parse

Array = np.ndarray[Any, Any]

_COLUMNS = ("group", "file", "key")


def read_run(folder: Path) -> tuple[Table, Array, Schema]:
    """Return the rows of a finished run, a bool per row (valid or not), and the run's schema.

    Raises:
        UsageError: the run is damaged.
        StorageError: this user may not read it.
    """
    try:
        table = read_table(folder / run_documents.SAMPLES)
        excluded = read_valid(folder, len(table))["excluded"]
        schema = read_schema(folder)
    except Exception as error:
        raise run_documents.unread(folder, error) from error
    return table, np.array([key not in excluded for key in table.keys], dtype=bool), schema


def units(table: Table, by: str, schema: Schema | None) -> list[str]:
    """Return for each sample the name of the unit that it must stay together with.

    Args:
        table: the rows of a run.
        by: ``group``, ``file``, ``key`` (each sample on its own), ``split_key`` (the schema's
            ``splits``), or a placeholder of the schema's file patterns.
        schema: has the placeholders; without a schema there are none.

    Raises:
        UsageError: the data have no such key, or not for every sample.
    """
    if by in _COLUMNS:
        unit_names = list({"group": table.groups, "file": table.files, "key": table.keys}[by])
    elif by == "split_key" and ":split_key" in table.columns:
        unit_names = [str(name) for name in table.columns[":split_key"].values]
    else:
        unit_names = _placeholder(table, by, schema)
    lacking = [key for key, name in zip(table.keys, unit_names, strict=True) if not name]
    if lacking and len(lacking) < len(unit_names):
        problem = f"{len(lacking):,} of {len(unit_names):,} samples have none, such as {lacking[0]}"
        msg = f"--by {by}: {problem}. Choose another key."
        raise UsageError(msg)
    if lacking:
        msg = f"--by {by}: the samples have none; known are {', '.join(_known(table, schema))}."
        raise UsageError(msg)
    return unit_names


def _placeholder(table: Table, by: str, schema: Schema | None) -> list[str]:
    templates = [] if schema is None else file_templates(schema)
    if not any(by in template.names for template in templates):
        msg = f"--by {by}: there is no such key; known are {', '.join(_known(table, schema))}."
        raise UsageError(msg)
    return [names.get(by, "") for _, names in _matches(table, templates)]


def _known(table: Table, schema: Schema | None) -> list[str]:
    table_names = [name for name in _COLUMNS if name != "group" or any(table.groups)]
    split_names = (
        ["split_key"]
        if ":split_key" in table.columns and any(table.columns[":split_key"].values)
        else []
    )
    template_names = [
        name
        for template in (file_templates(schema) if schema is not None else [])
        for name in template.names
    ]
    return list(dict.fromkeys([*table_names, *split_names, *template_names]))


def _matches(table: Table, templates: Sequence[Template]) -> list[tuple[int, dict[str, str]]]:
    """Return for each sample the number of the first pattern that fits its file, and its names.

    Raises:
        SchemaError: the patterns take too much time.
    """
    by_file = dict.fromkeys(table.files, (0, dict[str, str]()))
    where = templates[0].where if templates else ""
    with limited_matching(where, len(by_file)):
        for file in by_file:
            matches = ((number, t.match(file)) for number, t in enumerate(templates))
            found = ((number, names) for number, names in matches if names is not None)
            by_file[file] = next(found, (0, {}))
    return [by_file[file] for file in table.files]


def merged_units(table: Table, names: Sequence[str]) -> Array:
    """Return the number of each sample's unit; units that share a sample of equal content are one.

    Shapes:
        returns: int64 (samples)
    """
    numbers: dict[str, int] = {}
    unit = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    parents = list(range(len(numbers)))

    def top(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    content = table.columns.get(":content")
    if content is not None:
        unit_by_content: dict[int, int] = {}
        for place in np.flatnonzero(content.present).tolist():
            first_unit = unit_by_content.setdefault(int(content.values[place]), int(unit[place]))
            first_root = top(first_unit)
            second_root = top(int(unit[place]))
            parents[max(first_root, second_root)] = min(first_root, second_root)
    tops = np.array([top(number) for number in range(len(parents))], dtype=np.int64)
    merged: Array = tops[unit] if len(unit) else unit
    return merged


def assign_splits(
    names: Sequence[str], unit: Array, shares: Mapping[str, float], seed: int
) -> list[str]:
    """Return the split of each sample.

    Args:
        names: the name of each sample's unit.
        unit: the number of each sample's unit.
        shares: of the samples, by split; they add up to 1.
        seed: another seed gives other splits.

    Raises:
        UsageError: a split stays empty, because there are too few units.
    """
    label: dict[int, str] = {}
    for number, name in zip(unit.tolist(), names, strict=True):
        label[number] = min(label.get(number, name), name)
    sizes = np.bincount(unit, minlength=1)
    order = sorted(label, key=lambda n: (digest64(f"{seed}\0{label[n]}".encode()), label[n]))
    ends = np.cumsum([sizes[n] for n in order])
    middles = (ends - np.array([sizes[n] for n in order]) / 2) / max(1, len(unit))
    splits = [split for split, share in shares.items() if share > 0]
    bounds = np.cumsum([shares[split] for split in splits])
    chosen = np.minimum(np.searchsorted(bounds, middles, side="right"), len(splits) - 1)
    empty = [split for place, split in enumerate(splits) if not (chosen == place).any()]
    if empty:
        msg = (
            f"{empty[0]} would be empty: {pluralize(len(order), 'group')}, the largest with "
            f"{int(sizes.max()):,} of "
            f"{len(unit):,} samples. Choose a finer --by, another share, or another --seed."
        )
        raise UsageError(msg)
    split_of = {number: splits[int(place)] for number, place in zip(order, chosen, strict=True)}
    return [split_of[number] for number in unit.tolist()]


def list_lines(table: Table, schema: Schema | None) -> list[str]:
    """Return the list line of each sample.

    It is the sample's key, or the form that the schema's lists have (``ABF10/0003``).
    """
    lists = None if schema is None else schema.samples.list
    if schema is None or lists is None or schema.samples.each is not None:
        return list(table.keys)
    list_names = set(parse(lists, "").names) if isinstance(lists, str) else {"split"}
    templates = file_templates(schema)
    free_names = [
        [name for name in template.names if name not in list_names] for template in templates
    ]
    lines = []
    for file, (number, names) in zip(table.files, _matches(table, templates), strict=True):
        parts = free_names[number] if names else []
        lines.append("/".join(names[name] for name in parts) or file)
    return lines


def can_be_listed(line: str) -> bool:
    """Tell whether a list keeps a name unchanged.

    It has no line break, no space at either end, and no byte order mark at its start.
    """
    return line.splitlines() == [line.strip()] and not line.startswith("\ufeff")


def write_lists(folder: Path, lists: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Write ``train.txt`` and so on; return the files by split.

    Raises:
        UsageError: one of the files exists, or the folder is a link.
        StorageError: the file system refuses.
    """
    paths = {split: folder / f"{split}.txt" for split in lists}
    if folder.is_symlink():
        msg = (
            f"{folder}: is a link, and nothing is written through one. Name the folder itself: "
            f"--to DIR."
        )
        raise UsageError(msg)
    existing = [path for path in paths.values() if path.exists() or path.is_symlink()]
    if existing:
        msg = f"{existing[0]}: exists already. Split lists are never overwritten; choose another --to."
        raise UsageError(msg)
    fsops.make_directory(folder)
    for split, path in paths.items():
        text = "".join(f"{line}\n" for line in lists[split])
        fsops.write_file(path, text.encode("utf-8", "backslashreplace"), mode=0o666)
    return paths
