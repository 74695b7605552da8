"""Which classes the training loader keeps, read from the table that it reads (``loader: {keep_classes: FILE}``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datacheck.errors import FormatError
from datacheck.schema.model import Schema
from datacheck.sources.documents import read_document
from datacheck.table import Note

_STEP, _CODE = "keep_classes", "DC404"
_BYTES = 1 << 20  # ten times those of thousands of classes; YAML takes seconds for each megabyte
_USED = "validation"  # as Mask3D calls it: whether the class is trained and evaluated
_NAMED = 10


def with_label_table(schema: Schema, root: Path, roots: Mapping[str, Path]) -> tuple[Schema, list[Note]]:
    """Return the schema with the classes of its label table in place of the file's name, and what is wrong with it.

    Args:
        schema: whose loader may have the step ``keep_classes`` with a file.
        root, roots: the data folder and the extra ones.

    Notes:
        A table is a mapping of class numbers to what is known of each. Classes with ``validation: false`` are dropped,
        unless all of them are, as by Mask3D. Without the file, or where it cannot be read, the step takes nothing.
    """
    path = schema.loader.get(_STEP) if schema.loader is not None else None
    if schema.loader is None or not isinstance(path, str) or not _exists(root / path):
        return schema, []
    try:
        held = read_document(root, roots, path, _BYTES)
    except (FormatError, OSError) as error:
        return schema, [Note(_CODE, path, f"cannot be read: {error}")]
    entries = {int(name): entry for name, entry in held.items() if re.fullmatch(r"-?\d{1,9}", name)}
    if not entries:
        some = ", ".join(sorted(held)[:_NAMED]) or "nothing"
        return schema, [Note(_CODE, path, f"names no class: its keys are no class numbers ({some})")]
    bad = sorted(number for number, entry in entries.items() if not isinstance(entry, Mapping))
    notes = [Note(_CODE, path, _null(bad))] if bad else []
    used = [n for n, e in entries.items() if isinstance(e, Mapping) and e.get(_USED) is not False]
    kept = sorted(used or entries)
    data: dict[str, Any] = schema.model_dump(exclude_unset=True, mode="json")
    data["loader"][_STEP] = kept
    return Schema.model_validate(data), notes


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is longer than the system allows
        return False


def _null(numbers: list[int]) -> str:
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    some = ", ".join(map(str, numbers[:_NAMED])) + more
    return f"has no entry for {some}: there is null, or no mapping, where the loader reads name and validation"
