"""Files that name samples: texts of one name a line; YAML and JSON lists of names, or of mappings with a path.

A mapping instead of a list has the names as its keys.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.errors import FormatError
from datacheck.formats.base import check_pointer
from datacheck.formats.limits import check_bytes
from datacheck.runtime.beneath import File
from datacheck.schema.model import RECORDS
from datacheck.sources.documents import read_document
from datacheck.sources.roots import Roots

_PATHS = ("filepath", "file", "path")  # where a mapping says which file it speaks of; the first as Mask3D writes it

_TEXT_BYTES, _RECORD_BYTES, _NAMES = 256 << 20, 32 << 20, 5_000_000


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a list.

    Args:
        name: the line of a text, the name or path of a record; "" where there is none.
        is_path: the name is a path, of which only the end may lie below the data folder.
        about: what else a mapping says.
    """

    name: str
    is_path: bool = False
    about: Mapping[str, Any] | None = None


def read_list(root: Path, roots: Mapping[str, Path], path: str) -> list[Listed]:
    """Return the entries of a list in order; blank lines of a text are none.

    Args:
        root, roots: the data folder and the extra ones by name.
        path: of the list, as in a listing.

    Raises:
        FormatError: the list is missing, too large or damaged.
        OSError: the folder that it should be in cannot be opened.
        UnicodeDecodeError: a text that is not UTF-8.
    """
    if not path.lower().endswith(RECORDS):
        return [Listed(line) for line in _lines(Roots(root, roots).file(path))]
    held = read_document(root, roots, path, _RECORD_BYTES)
    records = held.get("records")
    if isinstance(records, list) and len(held) == 1:
        _check_count(len(records))
        return [_listed(record) for record in records]
    return [Listed(name, about=value if isinstance(value, Mapping) else None) for name, value in held.items()]


def _lines(file: File) -> Iterator[str]:
    """Yield the lines of a text that are not blank."""
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


def _listed(record: Any) -> Listed:
    if isinstance(record, Mapping):
        place = next((record[key] for key in _PATHS if isinstance(record.get(key), str)), "")
        return Listed(place.strip(), is_path=True, about=record)
    return Listed("" if record is None else str(record).strip())
