"""Make samples of a loader's answers: by the schema's fields, each with a key of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.model.sample import Container, Origin, Piece, value_bytes
from datacheck.runtime.hashing import digest64
from datacheck.scan.loader_audit.loader_process import Answer
from datacheck.schema.model import Schema
from datacheck.schema.patterns import Template, parse
from datacheck.sources.base import Unread
from datacheck.sources.fields import FieldMap


def whole_fields(schema: Schema) -> list[str]:
    """Return the loader's names of the fields that are one text or JSON value."""
    return sorted(spec.at or name for name, spec in schema.stored.items() if spec.is_text)


class _SampleContainer(Container):
    """The named values of one sample, in the role of an opened file."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def names(self) -> list[str]:
        return sorted(self._values)

    def read(self, name: str) -> Any:
        return self._values[name]


class SampleBuilder:
    """Turns a loader's answers into pieces of blocks.

    Args:
        schema: from `served`, of the split.
        factory: the loader, as the origin of the samples.
    """

    def __init__(self, schema: Schema, factory: str) -> None:
        self._map, self._factory = FieldMap(schema.model_copy(update={"columns": None})), factory
        # For loaders that return the one array that the schema cuts into columns.
        self._table = FieldMap(schema)
        self._id = next((name for name, _ in schema.of_role("id")), "")
        group = schema.samples.group
        self._group: Template | None = (
            None if group is None else parse(group, "samples.group", path=False)
        )
        self.keys: list[str] = []
        self._known: set[str] = set()

    def piece(self, answer: Answer) -> Piece | Unread:
        """Return the sample, or why it is missing; append its key (call this in index order)."""
        index = int(answer["index"])
        number = f"{index:012d}"
        if "error" in answer:
            self.keys.append(self._new(number))
            last_line = str(answer["error"]).strip().splitlines()[-1]
            error_place = f" ({answer['where']})" if answer["where"] else ""
            return Unread(
                self.keys[-1],
                "DC101",
                f"datacheck failed on it: {last_line}"
                if "crash" in answer
                else last_line + error_place,
            )
        try:
            fields = self._table if len(answer["values"]) == 1 else self._map
            values = fields.read(_SampleContainer(answer["values"]))
        except FormatError as error:
            self.keys.append(self._new(number))
            return Unread(self.keys[-1], error.code, str(error))
        name = _word(values.get(self._id))
        key = self._new(name or number, number)
        self.keys.append(key)
        size = np.asarray(sum(map(value_bytes, values.values())), dtype=np.int64)
        return Piece(
            key,
            values,
            Origin(self._factory, number),
            self._of_group(values),
            {"id": key, "size": size},
        )

    def _new(self, key: str, number: str = "") -> str:
        key = key.encode("utf-8", "backslashreplace").decode()
        unique = key if key not in self._known else f"{key}#{number}"
        self._known.add(unique)
        return unique

    def _of_group(self, values: Mapping[str, Any]) -> str:
        if self._group is None:
            return ""
        return self._group.substitute({name: _word(values.get(name)) for name in self._group.names})


def _word(value: Any) -> str:
    """Return an identifier as text, "" if the value is not an identifier."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu":
        return f"{int(value.reshape(-1)[0]):012d}"
    return ""


def sample_digest(digests: Mapping[str, int]) -> int:
    """Return one digest of a whole sample, never 0."""
    return (
        digest64(
            "".join(f"{name}\0{digest:016x}\0" for name, digest in sorted(digests.items())).encode()
        )
        or 1
    )
