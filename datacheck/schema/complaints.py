"""Reports the faults of schema and pipeline files: each with its line, its key and what is allowed.

A fault reads ``path:line, key: what was found; what is allowed``. All faults of a file are raised
together as one `SchemaError`, so that a user mends them in one go.
"""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from datacheck.errors import ManyLines, SchemaError
from datacheck.schema.grammar import suggestion

# The keys and list indexes that lead to a value, and a message about it.
Where = tuple[str | int, ...]
Complaint = tuple[Where, str]
Model = TypeVar("Model", bound=BaseModel)

# Characters of a text that a message shows.
_MOST_SHOWN = 60


class FileLine(NamedTuple):
    """A line of a file, 1-based."""

    origin: str
    line: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.line}"


Lines = Mapping[Where, FileLine]


def raise_complaints(complaints: Iterable[Complaint], lines: Lines) -> None:
    """Raise one error that lists all complaints in line order, one per line.

    Does nothing without complaints.

    Args:
        complaints: (key path, message); a path without a known line gets the line of its nearest
            known ancestor.
        lines: as `datacheck.schema.yaml_text.read_yaml` returns them.

    Raises:
        SchemaError: there is a complaint.
    """
    placed = sorted(
        (_line_of(where, lines), _dotted(where), message) for where, message in complaints
    )
    messages = [
        f"{line}, {key}: {message}" if key else f"{line}: {message}"
        for line, key, message in placed
    ]
    if messages:
        raise SchemaError(ManyLines.of(list(dict.fromkeys(messages))))


def complain(where: Where, message: str, lines: Lines) -> NoReturn:
    """Raise an error about one value.

    Raises:
        SchemaError: always.
    """
    raise_complaints([(where, message)], lines)
    raise AssertionError  # unreachable: there is a complaint


def to_model(model: type[Model], data: object, lines: Lines, also: Sequence[str] = ()) -> Model:
    """Return `data` as a model.

    Args:
        model: a pydantic model that forbids unknown keys.
        data, lines: as `datacheck.schema.yaml_text.read_yaml` returns them.
        also: further top-level keys that the file may have; they count as suggestions for
            misspellings.

    Raises:
        SchemaError: `data` does not fit; lists every fault with its line, what is allowed, and the
            nearest known word.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        complaints = [_translate(dict(detail), model, data, also) for detail in details]
        raise_complaints(complaints, lines)
        raise  # unreachable: every ValidationError has details


def describe(value: object) -> str:
    """Return a value from a file in words: "the text 'x'", "the number 3", "a list"."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true (a bare true, yes or on)" if value else "false (a bare false, no or off)"
    if isinstance(value, str):
        shown = value if len(value) <= _MOST_SHOWN else value[: _MOST_SHOWN - 3] + "..."
        return f"the text {shown!r}"
    if isinstance(value, int | float):
        return f"the number {value!r}"
    return "a list" if isinstance(value, Sequence) else "a mapping"


def _line_of(where: Where, lines: Lines) -> FileLine:
    for size in range(len(where), -1, -1):
        if where[:size] in lines:
            return lines[where[:size]]
    return FileLine("<schema>", 1)


def _dotted(where: Where) -> str:
    """Return a key path as text: ``fields.xyz.shape[0]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return text.removeprefix(".")


def _translate(
    detail: dict[str, Any], model: type[BaseModel], data: object, also: Sequence[str]
) -> Complaint:
    """Return one of pydantic's errors in the words of the schema language."""
    where, value = _known_part(detail["loc"], data)
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys_at(model, where[:-1])
        if len(where) == 1:
            known = sorted([*known, *also])
        return where, _unknown_key(str(where[-1]), known)
    if kind == "missing":
        return where, f"{detail['loc'][-1]} is missing; it is required"
    if kind == "value_error":
        return where, str(context["error"])
    allowed = _allowed(kind, context, value) or detail["msg"][:1].lower() + detail["msg"][1:]
    return where, f"found {describe(value)}; {allowed}"


# What is allowed, by the kind of pydantic's error.
_BOUNDS = {
    "greater_than": "a number above {gt} is allowed",
    "greater_than_equal": "a number of at least {ge} is allowed",
    "less_than_equal": "a number of at most {le} is allowed",
    "too_long": "at most {max_length} items are allowed",
}
# The same by the beginning of the kind: "int_type" and "int_parsing" are whole numbers.
_TYPES = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping of keys",
    "model": "a mapping of keys",
}
# The truth values of YAML 1.1, which are texts where they stand in quotes.
_TRUTH_WORDS = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}


def _allowed(kind: str, context: Mapping[str, Any], value: object) -> str:
    """Return what is allowed and a suggestion, or "" for errors without a wording here."""
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        near = suggestion(value, words) if isinstance(value, str) else ""
        return f"allowed: {', '.join(words) or context['expected']}{near}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    for start, allowed in _TYPES.items():
        if kind.startswith(start):
            return f"{allowed} is allowed{_hint(kind, value)}"
    return ""


def _hint(kind: str, value: object) -> str:
    """Return how to write a value that has the wrong type, "" if unknown."""
    if value is None:
        return "; write {} for one without keys" if kind.startswith(("dict", "model")) else ""
    if kind.startswith("string"):
        is_mapping = isinstance(value, Mapping)
        return ". Put text with braces in quotes" if is_mapping else ": put it in quotes"
    meant = _meant_value(kind, value)
    return f". Did you mean {meant}?" if meant else ""


def _meant_value(kind: str, value: object) -> str:
    if kind.startswith("bool"):
        return _TRUTH_WORDS.get(str(value).lower(), "")
    if kind.startswith(("int", "float")):
        return _as_number(value)
    if kind.startswith(("tuple", "list")) and isinstance(value, str | int | float):
        return f"[{value}]"
    return ""


def _as_number(value: object) -> str:
    """Return the number that a text holds: YAML reads ``1e3`` as text."""
    if not isinstance(value, str) or not re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d{1,3})?", value):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    return str(int(number)) if number.is_integer() else repr(number)


def _known_part(loc: tuple[Any, ...], data: object) -> tuple[Where, object]:
    """Return the longest prefix of `loc` that exists in `data`, and the value there.

    pydantic appends names of its own to `loc`.
    """
    where: list[str | int] = []
    for part in loc:
        is_key = isinstance(data, dict) and part in data
        is_index = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if not is_key and not is_index:
            break
        data = data[part]  # type: ignore[index]  # checked just above
        where.append(part)
    return tuple(where), data


def _unknown_key(key: str, known: Sequence[str]) -> str:
    near = suggestion(key, known) or f"; known are {', '.join(known) or 'none'}"
    return f"unknown key {key!r}{near}"


def _keys_at(model: type[BaseModel], where: Where) -> list[str]:
    """Return the keys that the model accepts at a path."""
    annotation: Any = model
    for part in where:
        annotation = _annotation_below(annotation, part)
    inner = _model_in(annotation)
    return sorted(inner.model_fields) if inner is not None else []


def _annotation_below(annotation: Any, key: str | int) -> Any:
    """Return the annotation of the value at a key, None if it has no keys of its own."""
    inner = _model_in(annotation)
    if inner is not None and key in inner.model_fields:
        return inner.model_fields[str(key)].annotation
    for member in _members(annotation):
        if typing.get_origin(member) is dict:
            return typing.get_args(member)[-1]
        if typing.get_origin(member) is tuple and isinstance(key, int):
            return typing.get_args(member)[0]
    return None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return member
    return None


def _members(annotation: Any) -> list[Any]:
    """Return the members of an annotation: ``Annotated[X, ...]`` is X, ``X | None`` is both."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in {types.UnionType, typing.Union}:
        return [member for arg in typing.get_args(annotation) for member in _members(arg)]
    return [annotation]
