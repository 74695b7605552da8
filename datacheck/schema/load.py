"""Read schemas from YAML (`load_schema`, `parse_schema`) and choose the schema for a folder.

YAML is read event by event. Every key keeps its line, and only plain values are accepted. Values
that YAML 1.1 would silently convert (``0777``, ``1:30``, dates) are refused with their line.
"""

from __future__ import annotations

import copy
import errno
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import yaml

from datacheck.errors import ManyLines, SchemaError, StorageError, UsageError
from datacheck.runtime.beneath import read_file
from datacheck.schema.grammar import suggestion
from datacheck.schema.model import Schema
from datacheck.schema.validate import (
    Complaint,
    FileLine,
    Lines,
    Where,
    check,
    raise_complaints,
    to_model,
)

__all__ = [
    "builtin",
    "builtin_folder",
    "choose_schema",
    "load_schema",
    "parse_schema",
    "read_yaml",
    "to_model",
]

Kind = Literal["schemas", "pipelines"]
ExtraChecks = Callable[[Schema], Iterable[Complaint]]

MAX_BYTES = 1 << 20
MAX_NODES = 10_000
MAX_DEPTH = 12
MAX_EXTENDS = 8

FILES = "files"  # the schema for any folder; never chosen automatically
# Schemas for folders that several schemas match at once. Such a schema is chosen if at least two of
# its parts match, or if one matches and some of its files are held out: only the whole schema has
# splits.
WHOLE = {"minimind": frozenset({"minimind_dpo", "minimind_pretrain", "minimind_sft"})}


def builtin_folder(kind: Kind) -> Path:
    """Return the folder of the built-in schemas or pipelines, in the package or the checkout.

    Raises:
        StorageError: neither exists: the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / kind, package.parent / kind):
        if folder.is_dir() and any(folder.glob("*.yaml")):
            return folder
    msg = f"{package / kind}: the built-in {kind} are missing. Install datacheck again"
    raise StorageError(msg)


def builtin(kind: Kind = "schemas") -> list[str]:
    """Return the sorted names of the built-in schemas or pipelines."""
    return sorted(path.stem for path in builtin_folder(kind).glob("*.yaml"))


def load_schema(name_or_path: str | Path, also: ExtraChecks = lambda schema: ()) -> Schema:
    """Return a built-in schema by name, or the schema in a file by path.

    Args:
        name_or_path: name or path of the schema.
        also: further checks, for callers that know more than the language, such as the existing
            rules.

    Raises:
        SchemaError: no such name or file, or the file is wrong: lists every fault with line, key
            and what is allowed.
    """
    path = find(str(name_or_path), "schemas")
    return parse_schema(read_text(path), str(path), also)


def parse_schema(
    text: str,
    origin: str = "<schema>",
    also: ExtraChecks = lambda schema: (),
    *,
    files: bool = True,
) -> Schema:
    """Return the schema written in `text`.

    Args:
        text: YAML.
        origin: the file's path, for messages; ``extends:`` paths are relative to its folder.
        also: as for `load_schema`.
        files: whether ``extends:`` may name a file; otherwise only built-in schemas.

    Raises:
        SchemaError: as for `load_schema`.
    """
    data, lines = _extended(*read_yaml(text, origin), origin, (), files=files)
    schema = to_model(Schema, data, lines, also=("extends",))
    raise_complaints([*check(schema), *also(schema)], lines)
    return schema


def choose_schema(
    matches: Callable[[Schema], int], advice: Callable[[], list[str]] = list
) -> Schema:
    """Return the built-in schema whose file patterns match a folder.

    Args:
        matches: returns how many files of the folder a schema's patterns match.
        advice: returns further lines for the message if no schema matches.

    Raises:
        UsageError: no schema matches, or several do; the message lists the candidates and the
            option to use.
    """
    counted = [
        (load_schema(name), name) for name in builtin() if name != FILES and name not in WHOLE
    ]
    fitting = [(count, name, schema) for schema, name in counted if (count := matches(schema))]
    names = {name for _, name, _ in fitting}
    for whole_schema in (
        load_schema(name) for name, parts in WHOLE.items() if names and names <= parts
    ):
        if len(names) > 1 or matches(_held_out(whole_schema)):
            return whole_schema
    if len(fitting) == 1:
        return fitting[0][2]
    if not fitting:
        msg = (
            "no built-in schema fits the files found here. Say what they are: --schema NAME|FILE "
            f"(built in are {', '.join(builtin())}); --schema {FILES} checks any folder"
        )
        raise UsageError(ManyLines.of([msg, *advice()]))
    listed = ", ".join(
        f"{name} ({count} file{'s' if count > 1 else ''})" for count, name, _ in fitting
    )
    # Do not suggest the schema with most files: adding small files would then decide.
    msg = (
        f"several built-in schemas fit the files found here: {listed}. Say what the data are: "
        f"--schema NAME|FILE"
    )
    raise UsageError(msg)


def _held_out(schema: Schema) -> Schema:
    """Return the schema restricted to the files of its evaluation splits."""
    patterns = [
        text
        for split, texts in schema.samples.split.items()
        if split.endswith("_eval")
        for text in texts
    ]
    return schema.model_copy(
        update={"samples": schema.samples.model_copy(update={"files": tuple(patterns)})}
    )


def find(name: str, kind: Kind) -> Path:
    """Return the file of a built-in schema or pipeline, or the path itself if it names a file.

    Raises:
        SchemaError: there is neither.
    """
    builtin_names = builtin(kind)
    if name in builtin_names:
        return builtin_folder(kind) / f"{name}.yaml"
    path = Path(name)
    if path.is_file():
        return path
    noun = kind.removesuffix("s")
    if "/" in name or "\\" in name or path.suffix in {".yaml", ".yml"}:
        state = "is a folder" if path.is_dir() else "no such file"
        msg = f"{name}: {state}; a {noun} is a YAML file or one of {', '.join(builtin_names)}"
        raise SchemaError(msg)
    near = suggestion(name, builtin_names)
    msg = (
        f"no {noun} is called {name!r}; built in are {', '.join(builtin_names)}, a file is named by its "
        f"path{near}"
    )
    raise SchemaError(msg)


def read_text(path: Path, *, links: bool = True) -> str:
    """Return the text of a schema or pipeline file.

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


def _extended(
    data: Any, lines: Lines, origin: str, chain: tuple[str, ...], *, files: bool = True
) -> tuple[dict[str, Any], Lines]:
    """Merge a schema's keys over those of its base."""
    base = data.pop("extends", None)
    if base is None:
        return data, lines
    if not isinstance(base, str):
        raise_complaints([(("extends",), "one name or path is allowed, as text")], lines)
    if not files and base not in builtin():
        raise_complaints(
            [
                (
                    ("extends",),
                    f"{base!r} is not built in, and no other file is read for the schema of a run",
                )
            ],
            lines,
        )
    chain = (*chain, str(Path(origin).resolve()))
    try:
        path = find(base if base in builtin() else str(Path(origin).parent / base), "schemas")
    except SchemaError:
        message = (
            f"no schema {base!r}: neither built in nor a file beside this "
            f"one{suggestion(base, builtin())}"
        )
        raise_complaints([(("extends",), message)], lines)
        raise
    if str(path.resolve()) in chain:
        raise_complaints(
            [(("extends",), f"{base!r} extends itself: {' -> '.join([*chain, str(path)])}")], lines
        )
    if len(chain) >= MAX_EXTENDS:
        raise_complaints(
            [(("extends",), f"more than {MAX_EXTENDS} schemas extend one another")], lines
        )
    below, below_lines = _extended(*read_yaml(read_text(path), str(path)), str(path), chain)
    for key in ("datacheck", "name"):
        below.pop(key, None)
    kept_lines = dict(below_lines)
    return _merge(below, data, kept_lines), kept_lines | dict(lines)


def _merge(
    below: dict[str, Any], above: dict[str, Any], kept: dict[Where, FileLine], where: Where = ()
) -> dict[str, Any]:
    """Merge `above` over `below`: mappings by key, other values replaced; an empty value removes.

    The steps of a loader are an ordered unit and are replaced together. Lines of replaced values
    are removed from `kept`.
    """
    merged = dict(below)
    for key, value in above.items():
        key_path = (*where, key)
        if isinstance(value, dict) and isinstance(below.get(key), dict) and key_path != ("loader",):
            merged[key] = _merge(below[key], value, kept, key_path)
            continue
        for place in [p for p in kept if p[: len(key_path)] == key_path]:
            del kept[place]
        if merged.pop(key, None) is None or value is not None:
            merged[key] = value
    return merged


def read_yaml(text: str, origin: str) -> tuple[dict[str, Any], Lines]:
    """Return a YAML mapping and the line of every key and item.

    Args:
        text: one YAML document.
        origin: the file's path, for messages.

    Returns:
        (data, lines): plain values only (dict, list, str, int, float, bool, None); lines by path,
        ("fields", "xyz") or ("samples", "files", 0).

    Raises:
        SchemaError: a syntax error, a duplicate or non-text key, a tag, a merge key, a second
            document, more than 10,000 values (each use of an alias counts), more than 12 levels, or
            a value that YAML 1.1 reads differently than it looks (0777, 0x1F, 1:30, 1_000,
            2024-01-01, .inf); all with their line.
    """
    reader = _YamlReader(text, origin)
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


class _StopReading(Exception):  # noqa: N818  control flow, not an error
    """A complaint was noted after which the rest of the file is not read."""


_INT = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]\d+)?")


class _YamlReader:
    """Converts the parse events of one document into plain values; records lines and complaints."""

    def __init__(self, text: str, origin: str) -> None:
        self.events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.resolver: Any = yaml.resolver.Resolver()
        self.origin = origin
        self.line = 1
        self.nodes = 0
        self.lines: dict[Where, FileLine] = {(): FileLine(origin, 1)}
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.complaints: list[Complaint] = []

    def document(self) -> Any:
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
        event = next(self.events)
        self.line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            event.value.encode()  # raises for a lone surrogate
        return event

    def _note(self, where: Where, message: str) -> None:
        self.lines[where] = FileLine(self.origin, self.line)
        self.complaints.append((where, message))

    def _stop(self, where: Where, message: str) -> None:
        self._note(where, message)
        raise _StopReading

    def _value(self, event: Any, where: Where) -> Any:
        if where:
            self.lines.setdefault(where, FileLine(self.origin, self.line))
        node_count = self.nodes
        self._count(1, where)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), where)
        if len(where) > MAX_DEPTH:
            self._stop(where, f"more than {MAX_DEPTH} levels deep")
        if event.tag is not None:
            self._note(where, f"the tag {event.tag} is not allowed; write plain values")
        if isinstance(event, yaml.ScalarEvent):
            value = self._plain(event.value, where) if event.implicit[0] else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._list(where)
        else:
            value = self._mapping(where)
        if event.anchor:
            self.anchors[event.anchor] = (value, self.nodes - node_count)
        return value

    def _count(self, nodes: int, where: Where) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            self._stop(
                where, f"more than {MAX_NODES} values; aliases count as often as they are used"
            )

    def _alias(self, anchor: str, where: Where) -> Any:
        if anchor not in self.anchors:
            self._stop(where, f"the alias *{anchor} has no anchor &{anchor} that ends above it")
        value, nodes = self.anchors[anchor]
        self._count(nodes, where)
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
                self._note(
                    (*where, key),
                    f"this key stands twice, first on line {self.lines[*where, key].line}",
                )
            else:
                self.lines[*where, key] = FileLine(self.origin, line)
            mapping[key] = self._value(self._next(), (*where, key))
        return mapping

    def _key(self, event: Any, where: Where) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._stop(
                where,
                "a key is text; found a list, a mapping or an alias as key. Text with braces "
                "stands in quotes",
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
        tag: str = self.resolver.resolve(yaml.ScalarNode, text, (True, False))
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


def _surprise(kind: str, text: str) -> str:
    if kind == "timestamp":
        return "a date"
    if kind == "merge":
        return "a merge key"
    if ":" in text:
        return "a number to the base 60"
    if "_" in text:
        return "a number without the _"
    if kind == "float":
        return "a number that is not finite"
    return (
        "an octal, binary or hexadecimal number"
        if re.match(r"[-+]?0", text)
        else "a number of more than 18 digits"
    )


class _CompactDumper(yaml.SafeDumper):
    """Writes one line per field, rule and split, for readability."""

    depth = 0

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:  # noqa: FBT001
        self.depth += 1
        nested = any(isinstance(value, dict) for value in mapping.values())
        node = super().represent_mapping(
            tag, mapping, flow_style=not (self.depth == 1 or (self.depth == 2 and nested))
        )
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


def dump_schema(schema: Schema) -> str:
    """Return a schema as YAML without defaults; keys and loader steps keep their order.

    The keys of base schemas are included.

    Notes:
        Lossless: ``parse_schema(dump_schema(schema)) == schema``.
    """
    document = schema.as_dict()
    text = ""
    # PyYAML loses some characters (U+0085) unless it escapes them.
    for unescaped in (True, False):
        text = yaml.dump(
            document, Dumper=_CompactDumper, sort_keys=False, allow_unicode=unescaped, width=1 << 20
        )
        # Some unprintable characters reverse the text around them.
        is_printable = all(line.isprintable() for line in text.split("\n"))
        if is_printable and read_yaml(text, "")[0] == document:
            break
    return text
