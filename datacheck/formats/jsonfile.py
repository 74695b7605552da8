"""JSON files: a mapping gives its entries, a list "records", anything else "value"; numbers become arrays.

A file of several JSON lines that is merely named .json gives "records" too.
"""

from __future__ import annotations

from datacheck.formats import jsonl
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import Values
from datacheck.formats.parsed import from_json
from datacheck.runtime.beneath import Place


def _open(path: Place, hint: Hint) -> Values:
    del hint
    root = jsonl.document(path)
    if root is jsonl.LINES:
        root = jsonl.records(path)
    if isinstance(root, dict):
        values = {key: from_json(value) for key, value in root.items() if value is not None}
        return Values(values)
    if root is None:
        return Values({})
    return Values({"records": root} if isinstance(root, list) else {"value": from_json(root)})


JSON = Format("json", (".json",), _open)
