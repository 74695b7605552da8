"""What a normaliser believes of a field, read from the file that a schema names (``stats: {file, at}``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.digest import shortened
from datacheck.errors import FormatError, UsageError
from datacheck.schema.model import Schema, StatsSpec
from datacheck.sources.documents import read_document
from datacheck.sources.listing import stat_entry
from datacheck.table import Note

_BYTES = 64 << 20
_STALE = "DC228"
_NAMES = ("mean", "std", "min", "max")


def with_stats(schema: Schema, root: Path, roots: Mapping[str, Path]) -> tuple[Schema, list[Note]]:
    """Return the schema with the statistics of its files filled in, and which optional ones cannot be read.

    Args:
        schema: whose fields may have ``stats: {file: ..., at: ...}``.
        root, roots: the data folder and the extra ones; ``{name}/stats.json`` lies below an extra one.

    Raises:
        UsageError: a file that is not optional is missing, damaged, or does not hold numbers there.

    Notes:
        Numbers of the schema itself count before those of the file. A field whose file is optional and absent has no
        statistics; one whose optional file is damaged has those of the schema, and a note says so.
    """
    named = {name: spec.stats for name, spec in schema.fields.items() if spec.stats is not None and spec.stats.file}
    if not named:
        return schema, []
    notes: list[Note] = []
    data = schema.model_dump(exclude_unset=True, mode="json")
    for name, stats in named.items():
        where, path = f"{schema.name}, fields.{name}.stats", path_of(stats, roots)
        if stats.optional and stat_entry(root, path, roots) is None:
            own = {key: value for key, value in data["fields"][name].pop("stats").items() if key in _NAMES}
            data["fields"][name] |= {"stats": own} if own else {}
            continue
        try:
            data["fields"][name]["stats"] = _read(stats, root, roots, where) | data["fields"][name]["stats"]
        except UsageError as error:
            if not stats.optional:
                raise
            notes.append(Note(_STALE, path, str(error), about={"field": name}))
    return Schema.model_validate(data), notes


def path_of(stats: StatsSpec, roots: Mapping[str, Path]) -> str:
    """Return the listing path of a field's statistics; ``{name}/stats.json`` lies below an extra root."""
    text = stats.file or ""
    head, _, rest = text.partition("/")
    return f"@{head[1:-1]}/{rest}" if head[1:-1] in roots and head == f"{{{head[1:-1]}}}" else text


def _read(stats: StatsSpec, root: Path, roots: Mapping[str, Path], where: str) -> dict[str, list[float]]:
    text = stats.file or ""
    try:
        held = {n: v for n, v in read_document(root, roots, path_of(stats, roots), _BYTES).items() if v is not None}
    except (FormatError, OSError) as error:
        msg = f"{where}: {text}: {error}. Name a JSON or YAML file below the data folder."
        raise UsageError(msg) from error
    found, names = stored_at(held, stats.at)
    told = {name: _numbers(found[key], f"{where}: {text}, {name}") for name, key in names.items()}
    if not told:
        names_there = ", ".join(shortened(name, 60) for name in sorted(held)[:8])
        msg = (
            f"{where}: {text} holds no {', '.join(_NAMES)} {f'at {stats.at!r}' if stats.at else ''}; it holds "
            f"{names_there or 'nothing'}. Say with at: where they stand."
        )
        raise UsageError(msg)
    return told


def stored_at(held: Mapping[str, Any], at: str | None) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return the mapping that holds the statistics, and the key of each by mean, std, min, max.

    Args:
        held: all that the file holds.
        at: ``a/b``: the mapping at a, b; or the one at a, with keys ``b_mean`` and so on. None: the whole file.
    """
    place: Any = held
    levels = at.split("/") if at else []
    for number, level in enumerate(levels):
        if not isinstance(place, Mapping):
            return {}, {}
        if level not in place:
            head = "/".join(levels[number:]) + "_"
            return place, {name: head + name for name in _NAMES if head + name in place}
        place = place[level]
    return (place, {name: name for name in _NAMES if name in place}) if isinstance(place, Mapping) else ({}, {})


def _numbers(value: Any, where: str) -> list[float]:
    try:
        array = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        msg = f"{where}: is no list of numbers"
        raise UsageError(msg) from error
    if not len(array) or not np.isfinite(array).all():
        msg = f"{where}: {'is empty' if not len(array) else 'holds NaN or infinity'}; a list of numbers is needed"
        raise UsageError(msg)
    found: list[float] = array.tolist()
    return found
