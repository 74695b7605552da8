"""JSON files: an object gives one value per key, a list "records", anything else "value".

Numbers become arrays. A file of JSON lines that is named .json gives "records" too.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from datacheck.formats import jsonl
from datacheck.formats.base import Format, Hint, parse_container
from datacheck.formats.limits import Values, check_keys
from datacheck.formats.parsed import from_json, parse_json
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    root = jsonl.document(path)
    return _named(jsonl.records(path) if root is jsonl.LINES else root)


def parse_small(data: bytes) -> dict[str, Any]:
    """Return the values of a small file from its bytes, without opening the file again.

    Raises:
        FormatError: the bytes are not JSON, or are a placeholder for the file.
    """
    with parse_container(replace(JSON, parse=_parse), data) as container:
        return named_values(container)


def named_values(container: Container) -> dict[str, Any]:
    """Return all values of a document by name, None for null."""
    values: dict[str, Any] = dict.fromkeys(getattr(container, "nulls", ()))
    return values | {name: container.read(name) for name in container.names()}


def _parse(data: bytes, hint: Hint) -> Values:
    del hint
    root = jsonl.document_in(io.BytesIO(data))
    if root is jsonl.LINES:
        root = [
            parse_json(line)
            for line in data.removeprefix(jsonl.BOM).splitlines()
            if line and not line.isspace()
        ]
    return _named(root)


def _named(root: Any) -> Values:
    if isinstance(root, dict):
        check_keys(len(root))
        values = {key: from_json(value) for key, value in root.items() if value is not None}
        return Values(values, [key for key, value in root.items() if value is None])
    if root is None:
        return Values({})
    return Values({"records": root} if isinstance(root, list) else {"value": from_json(root)})


JSON = Format("json", (".json",), _open)
