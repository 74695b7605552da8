"""Files that name samples: texts of one name a line; YAML and JSON lists of names, or of mappings with a path.

A mapping instead of a list has the names as its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datacheck.formats.base import open_container
from datacheck.schema.model import RECORDS

_PATHS = ("filepath", "file", "path")  # where a mapping says which file it speaks of; the first as Mask3D writes it


@dataclass(frozen=True)
class Listed:
    """One entry of a list.

    Args:
        name: the line of a text, the name or path of a record; "" where there is none.
        is_path: the name is a path, of which only the end may lie below the data folder.
        about: what else a mapping says.
    """

    name: str
    is_path: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


def read_list(path: Path) -> list[Listed]:
    """Return the entries of a list in order; blank lines of a text are none.

    Raises:
        FormatError: the file is damaged.
        OSError: it cannot be read.
        UnicodeDecodeError: a text that is not UTF-8.
    """
    if path.suffix.lower() not in RECORDS:
        lines = (line.strip() for line in path.read_bytes().decode("utf-8-sig").splitlines())
        return [Listed(line) for line in lines if line]
    with open_container(path) as container:
        held = {name: container.read(name) for name in container.names()}
    if isinstance(records := held.get("records"), list) and len(held) == 1:
        return [_listed(record) for record in records]
    return [Listed(name, about=value if isinstance(value, Mapping) else {}) for name, value in held.items()]


def _listed(record: Any) -> Listed:
    if isinstance(record, Mapping):
        place = next((record[key] for key in _PATHS if isinstance(record.get(key), str)), "")
        return Listed(place.strip(), is_path=True, about=record)
    return Listed("" if record is None else str(record).strip())
