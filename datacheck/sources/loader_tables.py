"""Read documents about a whole dataset: lists of samples, label tables, statistics.

This process parses small JSON files; a child parses everything else.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.formats.base import check_pointer, open_container
from datacheck.formats.jsonl import named_values, parse_small
from datacheck.formats.limits import check_bytes
from datacheck.model.table import Note
from datacheck.runtime.documents import count_values
from datacheck.runtime.hashing import shortened
from datacheck.schema.model import RECORDS, Schema, StatsSpec
from datacheck.sources.fields import near_name
from datacheck.sources.listing import limit_files, stat_entry
from datacheck.sources.roots import Roots, sandbox_of
from datacheck.workers.parallel import Limits, ordered_map
from datacheck.workers.wire import answers, check

_HERE_BYTES = 1 << 20  # JSON of this size takes its parser some tens of megabytes at most
_VALUES = 2_000_000  # each takes about 64 bytes in the caller
_LIMITS = Limits(item_s=60.0)
_READ = "datacheck.sources.loader_tables:read_values"


def read_document(root: Path, roots: Mapping[str, Path], path: str, limit: int) -> dict[str, Any]:
    """Return the values of a JSON, YAML or other document; null becomes None.

    Args:
        root, roots: the data folder and the extra ones by name.
        path: listing path of the document.
        limit: maximum size of the document in bytes.

    Raises:
        FormatError: the document is missing, too large or damaged, or its parser died.
        OSError: its folder cannot be opened.
    """
    try:
        with Roots(root, roots).file(path).open() as file:
            size = os.fstat(file.fileno()).st_size
            check_bytes(size, "the document", limit)
            if size <= _HERE_BYTES and path.lower().endswith(".json"):
                return parse_small(file.read(size))
    except OSError as error:
        raise FormatError(error.strerror or str(error)) from error
    task = {
        "root": str(root.absolute()),
        "roots": {name: str(folder.absolute()) for name, folder in roots.items()},
        "items": [path],
        "nbytes": size,
    }
    for outcome in list(
        ordered_map(_READ, [task], limits=_LIMITS, sandbox=sandbox_of(root, roots))
    ):
        for death in outcome.deaths:
            raise FormatError(death.how.strip().splitlines()[-1])
        for payload in outcome.payloads:
            if "fault" in payload:
                raise FormatError(payload["fault"], payload["code"])
            return dict(payload["values"])
    return {}


def _values(folders: Roots, path: str) -> dict[str, Any]:
    with open_container(folders.file(path)) as container:
        values = named_values(container)
    if count_values(values, _VALUES) > _VALUES:
        msg = f"has more than {_VALUES:,} values, the limit of a document about a dataset"
        raise FormatError(msg)
    return values


def _is_read(answer: Any) -> bool:
    answer_types = (
        [("values", [(str, object)])] if "values" in answer else [("fault", str), ("code", str)]
    )
    check(answer, dict(answer_types))
    return True


@answers(_is_read, raises=(MissingDependencyError,))
def read_values(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Return the values of one document, or its fault (see `parallel.run_task`)."""
    beat(0)
    limit_files(beat, (task, task["items"]))
    try:
        values = _values(Roots(task["root"], task["roots"]), task["items"][0])
        return {"values": list(values.items())}
    except FormatError as error:
        return {"fault": str(error), "code": error.code}


# Keys under which a mapping names its file; Mask3D writes the first one.
_PATHS = ("filepath", "file", "path")

_TEXT_BYTES = 256 << 20
_RECORD_BYTES = 32 << 20
_NAMES = 5_000_000


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a list.

    Args:
        name: the line of a text, the name or path in a record; "" without one.
        is_path: the name is a path, of which only the end may be below the data folder.
        about: the whole mapping of the record.
    """

    name: str
    is_path: bool = False
    about: Mapping[str, Any] | None = None


def read_list(root: Path, roots: Mapping[str, Path], path: str) -> list[ListEntry]:
    """Return the entries of a list in order, without blank lines.

    Args:
        root, roots: the data folder and the extra ones by name.
        path: listing path of the list.

    Raises:
        FormatError: the list is missing, too large or damaged.
        OSError: its folder cannot be opened.
        UnicodeDecodeError: the text is not UTF-8.
    """
    if not path.lower().endswith(RECORDS):
        return [ListEntry(line) for line in _lines(Roots(root, roots), path)]
    document = read_document(root, roots, path, _RECORD_BYTES)
    records = document.get("records")
    if isinstance(records, list) and len(document) == 1:
        _check_count(len(records))
        return [_list_entry(record) for record in records]
    return [
        ListEntry(name, about=value if isinstance(value, Mapping) else None)
        for name, value in document.items()
    ]


def _lines(folders: Roots, path: str) -> Iterator[str]:
    """Yield the non-blank lines of a text."""
    file = folders.file(path)
    try:
        lines = io.TextIOWrapper(file.open(), encoding="utf-8-sig")
    except OSError as error:
        raise FormatError(error.strerror or str(error)) from error
    count = 0
    with lines:
        check_bytes(os.fstat(lines.fileno()).st_size, "the list", _TEXT_BYTES)
        for part in lines:
            if not count:
                check_pointer(part.encode())
            if line := part.strip():
                count += 1
                _check_count(count)
                yield line


def _check_count(count: int) -> None:
    if count > _NAMES:
        msg = f"names more than {_NAMES:,} samples; cut the list into several splits"
        raise FormatError(msg)


def _list_entry(record: Any) -> ListEntry:
    if isinstance(record, Mapping):
        place = next((record[key] for key in _PATHS if isinstance(record.get(key), str)), "")
        return ListEntry(place.strip(), is_path=True, about=record)
    return ListEntry("" if record is None else str(record).strip())


_STEP = "keep_classes"
_CODE = "DC404"
# Ten times the size of a table with thousands of classes; YAML takes seconds per megabyte.
_TABLE_BYTES = 1 << 20
_USED = "validation"  # Mask3D's key: whether the class is trained and evaluated
_NAMED = 10


def with_label_table(
    schema: Schema, root: Path, roots: Mapping[str, Path]
) -> tuple[Schema, list[Note]]:
    """Replace the file name of the schema's label table by its classes; return notes on faults.

    Args:
        schema: its loader may have the step ``keep_classes`` with a file.
        root, roots: the data folder and the extra ones.

    Notes:
        A table maps class numbers to the properties of each class. Classes with ``validation:
        false`` are dropped, unless that drops all classes; Mask3D does the same. If the file is
        missing or unreadable, the step has no effect.
    """
    path = schema.loader.get(_STEP) if schema.loader is not None else None
    if schema.loader is None or not isinstance(path, str) or not _exists(root / path):
        return schema, []
    try:
        document = read_document(root, roots, path, _TABLE_BYTES)
    except (FormatError, OSError) as error:
        return schema, [Note(_CODE, path, f"cannot be read: {error}")]
    entries = {
        int(name): entry for name, entry in document.items() if re.fullmatch(r"-?\d{1,9}", name)
    }
    if not entries:
        first_keys = ", ".join(sorted(document)[:_NAMED]) or "nothing"
        return schema, [
            Note(_CODE, path, f"names no class: its keys are no class numbers ({first_keys})")
        ]
    bad_numbers = sorted(
        number for number, entry in entries.items() if not isinstance(entry, Mapping)
    )
    notes = [Note(_CODE, path, _null(bad_numbers))] if bad_numbers else []
    used_numbers = [
        n for n, e in entries.items() if isinstance(e, Mapping) and e.get(_USED) is not False
    ]
    class_numbers = sorted(used_numbers or entries)
    data: dict[str, Any] = schema.model_dump(exclude_unset=True, mode="json")
    data["loader"][_STEP] = class_numbers
    return Schema.model_validate(data), notes


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name exceeds the system's limit
        return False


def _null(numbers: list[int]) -> str:
    more_text = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    number_list = ", ".join(map(str, numbers[:_NAMED])) + more_text
    return (
        f"has no entry for {number_list}: there is null, or no mapping, where the loader reads name "
        f"and validation"
    )


_STATISTICS_BYTES = 64 << 20
_STALE = "DC228"
_STATISTICS = ("mean", "std", "min", "max")


def with_stats(schema: Schema, root: Path, roots: Mapping[str, Path]) -> tuple[Schema, list[Note]]:
    """Fill in the statistics that a schema takes from files; return notes on unreadable files.

    Args:
        schema: its fields may have ``stats: {file: ..., at: ...}``.
        root, roots: the data folder and the extra ones; ``{name}/stats.json`` is below an extra
            one.

    Raises:
        UsageError: a required file is missing or damaged, or has no numbers at that place.

    Notes:
        Numbers in the schema take precedence over numbers in the file. A field with an absent
        optional file keeps only the schema's statistics. So does a field with a damaged optional
        file, with a note.
    """
    stats_specs = {
        name: spec.stats
        for name, spec in schema.fields.items()
        if spec.stats is not None and spec.stats.file
    }
    if not stats_specs:
        return schema, []
    notes: list[Note] = []
    data = schema.model_dump(exclude_unset=True, mode="json")
    for name, stats in stats_specs.items():
        where = f"{schema.name}, fields.{name}.stats"
        path = path_of(stats, roots)
        if stats.optional and stat_entry(root, path, roots) is None:
            own_values = {
                key: value
                for key, value in data["fields"][name].pop("stats").items()
                if key in _STATISTICS
            }
            data["fields"][name] |= {"stats": own_values} if own_values else {}
            continue
        near = schema.near_names and stats.optional
        try:
            data["fields"][name]["stats"] = (
                _read(stats, root, roots, where, near=near) | data["fields"][name]["stats"]
            )
        except UsageError as error:
            if not stats.optional:
                raise
            notes.append(Note(_STALE, path, str(error), about={"field": name}))
    return Schema.model_validate(data), notes


def path_of(stats: StatsSpec, roots: Mapping[str, Path]) -> str:
    """Return the listing path of a statistics file; ``{name}/...`` is below an extra root."""
    text = stats.file or ""
    head, _, rest = text.partition("/")
    return f"@{head[1:-1]}/{rest}" if head[1:-1] in roots and head == f"{{{head[1:-1]}}}" else text


def _read(
    stats: StatsSpec, root: Path, roots: Mapping[str, Path], where: str, *, near: bool
) -> dict[str, list[float]]:
    """Return the statistics that a file holds.

    Args:
        stats: names the file and the place in it.
        root, roots: the data folder and the extra ones.
        where: place in the schema, for messages.
        near: whether a similar name may stand for the place, and neither of them is no fault.

    Raises:
        UsageError: the file is unreadable, or has no statistics at that place.
    """
    text = stats.file or ""
    try:
        document = {
            n: v
            for n, v in read_document(root, roots, path_of(stats, roots), _STATISTICS_BYTES).items()
            if v is not None
        }
    except (FormatError, OSError) as error:
        msg = f"{where}: {text}: {error}. Name a JSON or YAML file below the data folder."
        raise UsageError(msg) from error
    stored, names = stored_at(document, stats.at)
    if near and not names:
        stored, names = stored_at(document, near_name(stats.at or "", document) or stats.at)
    statistics = {
        name: _numbers(stored[key], f"{where}: {text}, {name}") for name, key in names.items()
    }
    if not statistics and not near:
        names_there = ", ".join(shortened(name, 60) for name in sorted(document)[:8])
        msg = (
            f"{where}: {text} holds no {', '.join(_STATISTICS)} "
            f"{f'at {stats.at!r}' if stats.at else ''}; it holds "
            f"{names_there or 'nothing'}. Say with at: where they stand."
        )
        raise UsageError(msg)
    return statistics


def stored_at(held: Mapping[str, Any], at: str | None) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return the mapping that holds the statistics, and its keys for mean, std, min, max.

    Args:
        held: the contents of the file.
        at: ``a/b``: the mapping at a, b; or the mapping at a, with keys ``b_mean`` and so on. None:
            the whole file.
    """
    place: Any = held
    levels = at.split("/") if at else []
    for number, level in enumerate(levels):
        if not isinstance(place, Mapping):
            return {}, {}
        if level not in place:
            head = "/".join(levels[number:]) + "_"
            return place, {name: head + name for name in _STATISTICS if head + name in place}
        place = place[level]
    return (
        (place, {name: name for name in _STATISTICS if name in place})
        if isinstance(place, Mapping)
        else ({}, {})
    )


def _numbers(value: Any, where: str) -> list[float]:
    try:
        array = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        msg = f"{where}: is no list of numbers"
        raise UsageError(msg) from error
    if not len(array) or not np.isfinite(array).all():
        msg = (
            f"{where}: {'is empty' if not len(array) else 'holds NaN or infinity'}; a list of "
            f"numbers is needed"
        )
        raise UsageError(msg)
    numbers: list[float] = array.tolist()
    return numbers
