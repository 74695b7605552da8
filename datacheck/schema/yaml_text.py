"""Reads and writes the YAML of schemas and pipelines: plain values only, each with its line.

YAML is read event by event, so that every key keeps its line. Values that YAML 1.1 would silently
convert (``0777``, ``1:30``, dates) are refused with their line.
"""

from __future__ import annotations

import copy
import errno
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from datacheck.errors import SchemaError
from datacheck.runtime.beneath import read_file
from datacheck.schema.complaints import Complaint, FileLine, Lines, Where, raise_complaints

# A file of a schema that is larger is data that was given in its place.
MAX_BYTES = 1 << 20


def read_text(path: Path, *, links: bool = True) -> str:
    """Return the text of the file of a schema, a robot or a pipeline.

    Args:
        path: the file.
        links: whether to follow a link at this path.

    Raises:
        SchemaError: the file cannot be read, is larger than 1 MB, or is not UTF-8.
    """
    try:
        content = read_file(path, MAX_BYTES, links=links)
    except OSError as error:
        if error.errno == errno.EFBIG:
            msg = f"{path}: more than {MAX_BYTES} bytes; that is data, not a schema"
            raise SchemaError(msg) from error
        msg = f"{path}: cannot be read, {(error.strerror or str(error)).lower()}"
        raise SchemaError(msg) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        msg = f"{path}:{line}: byte {error.start} is not UTF-8; save the file as UTF-8"
        raise SchemaError(msg) from error


# A schema is small: these limits end the reading of other files, and of aliases that multiply.
_MOST_VALUES = 10_000
_MOST_LEVELS = 12
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str, origin: str, *, libyaml: bool = False) -> tuple[dict[str, Any], Lines]:
    """Return a YAML mapping and the line of every key and item.

    Args:
        text: one YAML document.
        origin: the file's path, for messages.
        libyaml: parse with libyaml if PyYAML was built with it, in a tenth of the time. The two
            parsers disagree on rare texts, so it is for the built-in files only.

    Returns:
        (data, lines): plain values only (dict, list, str, int, float, bool, None); lines by path,
        ("fields", "xyz") or ("samples", "files", 0).

    Raises:
        SchemaError: a syntax error, a duplicate or non-text key, a tag, a merge key, a second
            document, more than 10,000 values (each use of an alias counts), more than 12 levels, or
            a value that YAML 1.1 reads differently than it looks (0777, 0x1F, 1:30, 1_000,
            2024-01-01, .inf); all with their line.
    """
    reader = _YamlReader(text, origin, _FAST if libyaml else yaml.SafeLoader)
    try:
        data = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = ", ".join(part for part in (error.problem, error.context) if part)
        raise _not_yaml(origin, line, reason) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _not_yaml(origin, line, error.reason) from error
    except (ValueError, OverflowError) as error:  # escapes like "\UFFFFFFFF" and "\uD83D"
        raise _not_yaml(origin, reader.line, str(error)) from error
    raise_complaints(reader.complaints, reader.lines)
    if not isinstance(data, dict):
        msg = f"{origin}:1: found no keys; a file starts with datacheck: 1"
        raise SchemaError(msg)
    return data, reader.lines


def _not_yaml(origin: str, line: int, reason: object) -> SchemaError:
    return SchemaError(f"{origin}:{line}: not valid YAML: {reason}")


# Whole numbers of at most 18 digits, which fit an int64: no octal 0777, no 1_000.
_INT = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]\d+)?")


class _StopReading(Exception):  # noqa: N818  control flow, not an error
    """A complaint was noted after which the rest of the file is not read."""


class _YamlReader:
    """Converts the parse events of one document into plain values.

    Attributes:
        lines: by path of keys and items.
        complaints: what is not allowed; the values then are of no use.
        line: that of the last event.
    """

    def __init__(self, text: str, origin: str, loader: Any) -> None:
        self.line = 1
        self.lines: dict[Where, FileLine] = {(): FileLine(origin, 1)}
        self.complaints: list[Complaint] = []
        self._events: Iterator[Any] = yaml.parse(text, Loader=loader)
        self._resolver: Any = yaml.resolver.Resolver()
        self._origin = origin
        self._values = 0
        # By anchor: its value, and the number of values in it.
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self) -> Any:
        """Return the only document of the text, None if it is empty."""
        try:
            self._next()  # stream start
            if isinstance(self._next(), yaml.StreamEndEvent):
                return None
            data = self._value(self._next(), ())
            self._next()  # document end
            if not isinstance(self._next(), yaml.StreamEndEvent):
                self._stop((), "a second document (---) begins here; one file holds one")
        except _StopReading:
            return {}
        return data

    def _next(self) -> Any:
        event = next(self._events)
        self.line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            event.value.encode()  # raises for a lone surrogate
        return event

    def _note(self, where: Where, message: str) -> None:
        self.lines[where] = FileLine(self._origin, self.line)
        self.complaints.append((where, message))

    def _stop(self, where: Where, message: str) -> None:
        self._note(where, message)
        raise _StopReading

    def _value(self, event: Any, where: Where) -> Any:
        if where:
            self.lines.setdefault(where, FileLine(self._origin, self.line))
        values_before = self._values
        self._count(1, where)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), where)
        if len(where) > _MOST_LEVELS:
            self._stop(where, f"more than {_MOST_LEVELS} levels deep")
        if event.tag is not None:
            self._note(where, f"the tag {event.tag} is not allowed; write plain values")
        if isinstance(event, yaml.ScalarEvent):
            value = self._plain(event.value, where) if event.implicit[0] else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._list(where)
        else:
            value = self._mapping(where)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._values - values_before)
        return value

    def _count(self, values: int, where: Where) -> None:
        self._values += values
        if self._values > _MOST_VALUES:
            self._stop(where, f"more than {_MOST_VALUES} values; each use of an alias counts")

    def _alias(self, anchor: str, where: Where) -> Any:
        if anchor not in self._anchors:
            self._stop(where, f"the alias *{anchor} has no anchor &{anchor} that ends above it")
        value, values = self._anchors[anchor]
        self._count(values, where)
        return copy.deepcopy(value)

    def _list(self, where: Where) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event, (*where, len(items))))
        return items

    def _mapping(self, where: Where) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, where)
            line = self.line
            if key in mapping:
                first_line = self.lines[*where, key].line
                self._note((*where, key), f"this key is given twice, first on line {first_line}")
            else:
                self.lines[*where, key] = FileLine(self._origin, line)
            mapping[key] = self._value(self._next(), (*where, key))
        return mapping

    def _key(self, event: Any, where: Where) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._stop(
                where,
                "a key is text; found a list, a mapping or an alias as key. Put text with braces "
                "in quotes",
            )
        text: str = event.value
        if event.implicit[0] and event.tag is None:
            if text == "<<":
                self._note(
                    where, "merge keys (<<) are not supported; repeat the keys, or use extends"
                )
            elif self._kind(text) not in {"str", "value"}:
                self._note(
                    (*where, text),
                    f"YAML does not read the key {text} as text; put it in quotes: '{text}'",
                )
        return text

    def _kind(self, text: str) -> str:
        tag: str = self._resolver.resolve(yaml.ScalarNode, text, (True, False))
        return tag.rpartition(":")[2]

    def _plain(self, text: str, where: Where) -> Any:
        """Return the value of an unquoted scalar."""
        kind = self._kind(text)
        if kind in {"str", "value"}:
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in {"true", "yes", "on"}
        if kind == "int" and _INT.fullmatch(text):
            return int(text)
        if kind == "float" and _FLOAT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        self._note(
            where,
            f"YAML reads {text} as {_surprise(kind, text)}; write a decimal number, or quotes for "
            f"text",
        )
        return text


_SURPRISING_KINDS = {"timestamp": "a date", "merge": "a merge key"}


def _surprise(kind: str, text: str) -> str:
    if kind in _SURPRISING_KINDS:
        return _SURPRISING_KINDS[kind]
    if ":" in text:
        return "a number to the base 60"
    if "_" in text:
        return "a number without the _"
    if kind == "float":
        return "a number that is not finite"
    if re.match(r"[-+]?0", text):
        return "an octal, binary or hexadecimal number"
    return "a number of more than 18 digits"


# Width of a line that no value reaches, so that a comment can follow the complete value.
_ONE_LINE = 1 << 20


class _CompactDumper(yaml.SafeDumper):
    """Writes one line per field, rule and split, for readability."""

    depth = 0

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:  # noqa: FBT001
        self.depth += 1
        has_mappings = any(isinstance(value, dict) for value in mapping.values())
        in_block_style = self.depth == 1 or (self.depth == 2 and has_mappings)
        node = super().represent_mapping(tag, mapping, flow_style=not in_block_style)
        self.depth -= 1
        return node

    def represent_str(self, data: str) -> Any:
        """Return a text as one line, so that a comment can follow the complete value."""
        return self.represent_scalar(
            "tag:yaml.org,2002:str", data, style='"' if "\n" in data or "\r" in data else None
        )

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:  # noqa: FBT001
        del flow_style
        return super().represent_sequence(tag, sequence, flow_style=True)


_CompactDumper.add_representer(str, _CompactDumper.represent_str)


def dump_yaml(document: dict[str, Any]) -> str:
    """Return a mapping as YAML that `read_yaml` reads back without loss; keys keep their order."""
    text = ""
    # PyYAML loses some characters (U+0085) unless it escapes them.
    for unescaped in (True, False):
        text = yaml.dump(
            document,
            Dumper=_CompactDumper,
            sort_keys=False,
            allow_unicode=unescaped,
            width=_ONE_LINE,
        )
        # Some unprintable characters reverse the text around them.
        is_printable = all(line.isprintable() for line in text.split("\n"))
        if is_printable and read_yaml(text, "")[0] == document:
            break
    return text
