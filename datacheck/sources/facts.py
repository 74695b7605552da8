"""The facts of a sample besides its data: id, split key, attributes, size and group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from datacheck.errors import FormatError, SchemaError
from datacheck.model.sample import Column
from datacheck.runtime.hashing import digest_array, digest_bytes
from datacheck.schema.linear_regex import Expression
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.patterns import Template, parse
from datacheck.sources.values import plain

_ANY = FieldSpec()
_LONGEST = 1000  # characters of a label
# robosuite's name of the attribute; on a sample's group or on its parent.
_CONVENTION = "macros_image_convention"


@dataclass(frozen=True)
class SampleLocation:
    """Where one sample is, and the placeholder values in its path.

    Args:
        key: the sample's key.
        file: the listing path of its file.
        inner: its path inside the file, "" where the file is the sample.
        names: the values of the placeholders.
        nbytes: size of the file.
    """

    key: str
    file: str
    inner: str
    names: Mapping[str, str]
    nbytes: int


class Facts:
    """The facts that a schema requests.

    Args:
        schema: with the split's ``when:`` block applied.
        placeholders: all placeholder names in the patterns of the samples.
        unique: whether placeholders alone identify a sample; with wildcards they do not.

    Raises:
        SchemaError: ``samples.group`` or ``splits.key`` uses an unknown name.
    """

    def __init__(self, schema: Schema, placeholders: Iterable[str], *, unique: bool = True) -> None:
        allowed_names = {*placeholders, "file"}
        self._unique = unique
        self._attrs = sorted(schema.attrs)
        # Record how images were written.
        self.oriented = any(spec.origin for spec in schema.fields.values())
        self._group = _group(schema, allowed_names)
        self._inner = schema.samples.each is not None and schema.samples.each.startswith("/")
        # Cache: all samples of a file share one group, unless groups inside the file have names.
        self._last = ("", "")
        self._key = schema.splits.key if schema.splits else ""
        self._match = (
            Expression(schema.splits.match) if schema.splits and schema.splits.match else None
        )
        if self._key and self._key not in allowed_names | {"group"} | set(schema.stored):
            msg = (
                f"{schema.name}, splits.key: found {self._key!r}; allowed are a placeholder of "
                f"samples.files "
                f"({', '.join(sorted(allowed_names - {'file'})) or 'it has none'}), file, group, or a field"
            )
            raise SchemaError(msg)

    def group(self, about: SampleLocation) -> str:
        """Return the sample's group, "" where the schema defines none."""
        if self._group is None:
            return ""
        if about.file != self._last[0] or self._inner:
            names = {"file": about.file, **about.names}
            filled = self._group.substitute(
                {name: names.get(name, "") for name in self._group.names}
            )
            self._last = about.file, filled
        return self._last[1]

    def of(
        self, about: SampleLocation, values: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the facts of one sample.

        Args:
            about: the location of the sample.
            values: its fields.
            attrs: attributes of its file or group.

        Raises:
            FormatError: an attribute has a type that is refused.
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

    def columns(
        self, about: SampleLocation, keys: Sequence[str], fields: Mapping[str, Column]
    ) -> dict[str, Column]:
        """Return the facts of many numbered samples of one file.

        Args:
            about: the file; its key and inner path are not used.
            keys: keys of the samples; the last 12 characters are the number.
            fields: columns of the samples.
        """
        names = self._unique and _named(about.names)
        size = np.full(len(keys), about.nbytes, dtype=np.int64)
        facts = {"size": Column(size)}
        # Otherwise the sample's key is its id and need not be stored again.
        if names:
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

    def _label(self, about: SampleLocation, value: Any) -> str | None:
        label: str | None
        if self._key in about.names:
            label = about.names[self._key]
        elif self._key in {"file", "group"}:
            label = about.file if self._key == "file" else self.group(about)
        else:
            label = _shown(value)
        matched_text = None if label is None or self._match is None else self._match.search(label)
        return _short(label if matched_text is None else matched_text)


def _group(schema: Schema, allowed_names: set[str]) -> Template | None:
    if schema.samples.group is None:
        return None
    where = f"{schema.name}, samples.group"
    template = parse(schema.samples.group, where, path=False)
    unknown = [name for name in template.names if name not in allowed_names]
    if unknown or template.wild:
        msg = (
            f"{where}: found {schema.samples.group!r}; allowed are the placeholders "
            f"{', '.join(sorted(allowed_names))}"
        )
        raise SchemaError(msg)
    return template


def _identity(about: SampleLocation) -> str:
    names = _named(about.names)
    if not names:
        return about.key
    return f"{names}:{about.inner}" if about.inner else names


def _named(names: Mapping[str, str]) -> str:
    return "/".join(value for name, value in names.items() if name != "split")


def _short(label: str | None) -> str | None:
    """Shorten a long label to its beginning and its digest, to bound the coordinator's memory."""
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
        plain_value = plain(value, _ANY)
    except FormatError as error:
        msg = f"attribute {name}: {error}"
        raise FormatError(msg, error.code) from error
    if isinstance(plain_value, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", plain_value):
        return np.asarray(int(plain_value), dtype=np.int64)  # some writers store counts as text
    return _short(plain_value) if isinstance(plain_value, str) else plain_value
