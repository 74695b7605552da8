"""JSON files: a mapping gives its entries, a list "records", anything else "value"; numbers become arrays.

A file of several JSON lines that is merely named .json gives "records" too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes, from_json, parse_json

_BOM = b"\xef\xbb\xbf"


def _document(data: bytes) -> Any:
    try:
        return parse_json(data)
    except FormatError as error:
        lines = [line for line in data.split(b"\n") if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith(b"{") for line in lines[:2]):
            raise
        try:
            return [parse_json(line) for line in lines]
        except FormatError:
            raise error from None


def _open(path: Path, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    root = _document(path.read_bytes().removeprefix(_BOM))
    if isinstance(root, dict):
        values = {key: from_json(value) for key, value in root.items() if value is not None}
        return Values(values)
    if root is None:
        return Values({})
    return Values({"records": root} if isinstance(root, list) else {"value": from_json(root)})


JSON = Format("json", (".json",), _open)
