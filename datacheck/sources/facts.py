"""What is known of a sample beside its data: id, split key, attributes, size, group, missing companions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from datacheck.digest import digest_array
from datacheck.errors import FormatError, SchemaError
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.patterns import Template, parse
from datacheck.sources.values import plain

_ANY = FieldSpec()


@dataclass(frozen=True)
class About:
    """One sample: where it is and what its path says.

    Args:
        key: the sample's key.
        file: the listing path of its file.
        inner: its place inside the file, "" where the file is the sample.
        names: what the placeholders stand for.
        nbytes: size of the file.
    """

    key: str
    file: str
    inner: str
    names: Mapping[str, str]
    nbytes: int


class Facts:
    """The facts that a schema asks for.

    Args:
        schema: with the split's ``when:`` block applied.
        placeholders: every name that the patterns of the samples know.
        unique: whether placeholders alone tell samples apart; with wildcards they do not.

    Raises:
        SchemaError: ``samples.group`` or ``splits.key`` names what does not exist.
    """

    def __init__(self, schema: Schema, placeholders: Iterable[str], *, unique: bool = True) -> None:
        known = {*placeholders, "file"}
        self._unique = unique
        self._attrs = sorted(schema.attrs)
        self._group = _group(schema, known)
        self._key = schema.splits.key if schema.splits else ""
        self._match = re.compile(schema.splits.match) if schema.splits and schema.splits.match else None
        if self._key and self._key not in known | {"group"} | set(schema.stored):
            msg = (
                f"{schema.name}, splits.key: found {self._key!r}; allowed are a placeholder of samples.files "
                f"({', '.join(sorted(known - {'file'})) or 'it has none'}), file, group, or a field"
            )
            raise SchemaError(msg)

    def group(self, about: About) -> str:
        """Return the sample's group, "" where the schema names none."""
        if self._group is None:
            return ""
        names = {"file": about.file, **about.names}
        return self._group.substitute({name: names.get(name, "") for name in self._group.names})

    def of(self, about: About, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of one sample.

        Args:
            about: where it is.
            values: its fields.
            attrs: attributes of its file or group.

        Raises:
            FormatError: an attribute is of a kind that is refused.
        """
        facts: dict[str, Any] = {
            "id": _identity(about) if self._unique else about.key,
            "size": np.asarray(about.nbytes, dtype=np.int64),
        }
        key = self._split_key(about, values)
        if key is not None:
            facts["split_key"] = key
        for name in self._attrs:
            value = _attribute(name, attrs.get(name))
            if value is not None:
                facts[f"attrs/{name}"] = value
        return facts

    def _split_key(self, about: About, values: Mapping[str, Any]) -> str | None:
        if not self._key:
            return None
        known = {**about.names, "file": about.file, "group": self.group(about)}
        value = known[self._key] if self._key in known else _label(values.get(self._key))
        if value is None or self._match is None:
            return value
        found = self._match.search(value)
        if found is None:
            return value
        return found[1] or "" if self._match.groups else found[0]


def _group(schema: Schema, known: set[str]) -> Template | None:
    if schema.samples.group is None:
        return None
    where = f"{schema.name}, samples.group"
    template = parse(schema.samples.group, where, path=False)
    unknown = [name for name in template.names if name not in known]
    if unknown or template.wild:
        msg = f"{where}: found {schema.samples.group!r}; allowed are the placeholders {', '.join(sorted(known))}"
        raise SchemaError(msg)
    return template


def _identity(about: About) -> str:
    names = "/".join(value for name, value in about.names.items() if name != "split")
    if not names:
        return about.key
    return f"{names}:{about.inner}" if about.inner else names


def _label(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        return str(value.item()) if value.ndim == 0 else digest_array(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _attribute(name: str, value: Any) -> Any:
    try:
        found = plain(value, _ANY)
    except FormatError as error:
        msg = f"attribute {name}: {error}"
        raise FormatError(msg, error.code) from error
    if isinstance(found, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", found):
        return np.asarray(int(found), dtype=np.int64)  # some writers store counts as text
    return found
