"""What is known of a sample beside its data: id, split key, attributes, size, group, missing companions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from datacheck.digest import digest_array, digest_bytes
from datacheck.errors import FormatError, SchemaError
from datacheck.sample import Column
from datacheck.schema.linear import Expression
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.patterns import Template, parse
from datacheck.sources.values import plain

_ANY = FieldSpec()
_LONGEST = 1000  # characters of a label
_CONVENTION = "macros_image_convention"  # as robosuite calls it, of a sample's group or the one above


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
        self.oriented = any(spec.origin for spec in schema.fields.values())  # ask how images were written
        self._group = _group(schema, known)
        self._inner = schema.samples.each is not None and schema.samples.each.startswith("/")
        self._last = ("", "")  # all samples of a file have one group, unless groups inside it have names
        self._key = schema.splits.key if schema.splits else ""
        self._match = Expression(schema.splits.match) if schema.splits and schema.splits.match else None
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
        if about.file != self._last[0] or self._inner:
            names = {"file": about.file, **about.names}
            filled = self._group.substitute({name: names.get(name, "") for name in self._group.names})
            self._last = about.file, filled
        return self._last[1]

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
        if self._key and (label := self._label(about, values.get(self._key))) is not None:
            facts["split_key"] = label
        for name in self._attrs:
            value = _attribute(name, attrs.get(name))
            if value is not None:
                facts[f"attrs/{name}"] = value
        if self.oriented and isinstance(convention := attrs.get(_CONVENTION), str):
            facts["image_convention"] = _short(convention)
        return facts

    def columns(self, about: About, keys: Sequence[str], fields: Mapping[str, Column]) -> dict[str, Column]:
        """Return the facts of many numbered samples of one file.

        Args:
            about: the file; its key and place inside are not looked at.
            keys: of the samples; the last 12 characters are their number.
            fields: their columns.
        """
        names = self._unique and _named(about.names)
        size = np.full(len(keys), about.nbytes, dtype=np.int64)
        facts = {"size": Column(size)}
        if names:  # else the identity of a sample is its key, which needs no saying
            facts["id"] = Column.of([f"{names}:{key[-12:]}" for key in keys])
        if not self._key:
            return facts
        column = fields.get(self._key)
        if column is None:
            labels = [self._label(about, None)] * len(keys)
        elif column.kind == "array":
            labels = [self._label(about, column[place]) for place in range(len(keys))]
        else:
            labels = [self._label(about, value) for value in column.objects]
        if any(label is not None for label in labels):
            facts["split_key"] = Column.of([label or "" for label in labels])
        return facts

    def _label(self, about: About, value: Any) -> str | None:
        label: str | None
        if self._key in about.names:
            label = about.names[self._key]
        elif self._key in {"file", "group"}:
            label = about.file if self._key == "file" else self.group(about)
        else:
            label = _shown(value)
        found = None if label is None or self._match is None else self._match.search(label)
        return _short(label) if found is None else found


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
    names = _named(about.names)
    if not names:
        return about.key
    return f"{names}:{about.inner}" if about.inner else names


def _named(names: Mapping[str, str]) -> str:
    return "/".join(value for name, value in names.items() if name != "split")


def _short(label: str | None) -> str | None:
    """Return a label that whoever coordinates can hold: of a long one its beginning and its digest."""
    if label is None or len(label) <= _LONGEST:
        return label
    return f"{label[:_LONGEST]}… ({digest_bytes(label.encode('utf-8', 'surrogatepass'))})"


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return str(value.item()) if value.ndim == 0 else digest_array(np.asarray(value))
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _attribute(name: str, value: Any) -> Any:
    try:
        found = plain(value, _ANY)
    except FormatError as error:
        msg = f"attribute {name}: {error}"
        raise FormatError(msg, error.code) from error
    if isinstance(found, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", found):
        return np.asarray(int(found), dtype=np.int64)  # some writers store counts as text
    return _short(found) if isinstance(found, str) else found
