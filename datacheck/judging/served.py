"""The schema of samples that a loader returns, made from that of the files."""

from __future__ import annotations

from datacheck.schema.model import Schema
from datacheck.schema.patterns import parse


def served(schema: Schema) -> Schema:
    """Return the schema as it describes what a loader returns: without what only files have.

    Notes:
        Companion files, attributes, split keys and windows go; a group stays where samples can name it by a field.
    """
    data = schema.model_dump(exclude_unset=True, mode="json", exclude={"attrs", "splits", "windows"})
    for fields in (data.get("fields", {}), *data.get("when", {}).values()):
        for spec in fields.values():
            spec.pop("file", None)
    group = schema.samples.group
    names = set() if group is None else set(parse(group, "samples.group", path=False).names)
    data["samples"] = {"files": ["*"]} | ({"group": group} if names and names <= set(schema.fields) else {})
    return Schema.model_validate(data)
