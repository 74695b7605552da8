"""What a person is told about a wrong schema or pipeline file: ``path:line, key: what was found; what is allowed``."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from datacheck.errors import ManyLines, SchemaError
from datacheck.schema.values import meant

Where = tuple[str | int, ...]
Complaint = tuple[Where, str]
Model = TypeVar("Model", bound=BaseModel)


class Place(NamedTuple):
    """A line of a file, 1-based."""

    origin: str
    line: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.line}"


Lines = Mapping[Where, Place]


def refuse(complaints: Iterable[Complaint], lines: Lines) -> None:
    """Raise one error that lists all complaints in line order, one per line; nothing happens where there are none.

    Args:
        complaints: (key path, message); a path that no line is known for is placed at its nearest known ancestor.
        lines: as `datacheck.schema.load.read_yaml` returns them.

    Raises:
        SchemaError: there is a complaint.
    """
    placed = sorted((_place(where, lines), _dotted(where), message) for where, message in complaints)
    said = list(dict.fromkeys(f"{place}{', ' + key if key else ''}: {message}" for place, key, message in placed))
    if said:
        raise SchemaError(ManyLines.of(said))


def to_model(model: type[Model], data: object, lines: Lines, also: Sequence[str] = ()) -> Model:
    """Return `data` as a model.

    Args:
        model: a pydantic model that forbids unknown keys.
        data, lines: as `datacheck.schema.load.read_yaml` returns them.
        also: top-level keys that the file may have and the model does not (they are suggested for misspellings).

    Raises:
        SchemaError: it does not fit; every fault is listed with its line, what is allowed, and the nearest known word.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        refuse([_translate(dict(detail), model, data, also) for detail in error.errors(include_url=False)], lines)
        raise  # refuse always raises here: an error without details does not exist


def found(value: object) -> str:
    """Return what stands in a file, in words: "the text 'x'", "the number 3", "a list"."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        bare = "true, yes or on" if value else "false, no or off"
        return f"{str(value).lower()} (a bare {bare})"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
    if isinstance(value, int | float):
        return f"the number {value!r}"
    return "a list" if isinstance(value, Sequence) else "a mapping"


def _place(where: Where, lines: Lines) -> Place:
    for size in range(len(where), -1, -1):
        if where[:size] in lines:
            return lines[where[:size]]
    return Place("<schema>", 1)


def _dotted(where: Where) -> str:
    said = ""
    for part in where:
        said += f"[{part}]" if isinstance(part, int) else f".{part}" if said else part
    return said


def _translate(detail: dict[str, Any], model: type[BaseModel], data: object, also: Sequence[str]) -> Complaint:
    where, value = _known_part(detail["loc"], data)
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys_at(model, where[:-1])
        return where, _unknown_key(str(where[-1]), known if where[:-1] else sorted([*known, *also]))
    if kind == "missing":
        return where, f"{detail['loc'][-1]} is missing; it is required"
    if kind == "value_error":
        return where, str(context["error"])
    return where, f"found {found(value)}; {_allowed(kind, context, value) or _lowered(detail['msg'])}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _allowed(kind: str, context: Mapping[str, Any], value: object) -> str:
    """Return what is allowed and what was probably meant, or "" for a kind of error that has no words of its own."""
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        near = meant(value, words) if isinstance(value, str) else ""
        return f"allowed: {', '.join(words) or context['expected']}{near}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    words_of = (words for start, words in _KINDS.items() if kind.startswith(start))
    allowed = next(words_of, "")
    return f"{allowed} is allowed{_hint(kind, value)}" if allowed else ""


_BOUNDS = {
    "greater_than": "a number above {gt} is allowed",
    "greater_than_equal": "a number of at least {ge} is allowed",
    "less_than_equal": "a number of at most {le} is allowed",
    "too_long": "at most {max_length} items are allowed",
}
_KINDS = {
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


def _hint(kind: str, value: object) -> str:
    if value is None:
        return "; write {} for one without keys" if kind.startswith(("dict", "model")) else ""
    if kind.startswith("string"):
        return ". Text with braces stands in quotes" if isinstance(value, Mapping) else ": put it in quotes"
    meant_value = ""
    if kind.startswith("bool"):
        meant_value = _TRUTH.get(str(value).lower(), "")
    elif kind.startswith(("int", "float")):
        meant_value = _as_number(value)
    elif kind.startswith(("tuple", "list")) and isinstance(value, str | int | float):
        meant_value = f"[{value}]"
    return f". Did you mean {meant_value}?" if meant_value else ""


_TRUTH = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}


def _as_number(value: object) -> str:
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
    """Return the longest head of `loc` that exists in `data`, and what stands there: pydantic adds names of its own."""
    where: list[str | int] = []
    for part in loc:
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        )
        if not inside:
            break
        data = data[part]  # type: ignore[index]  # checked just above
        where.append(part)
    return tuple(where), data


def _unknown_key(key: str, known: Sequence[str]) -> str:
    return f"unknown key {key!r}" + (meant(key, known) or f"; known are {', '.join(known) or 'none'}")


def _keys_at(model: type[BaseModel], where: Where) -> list[str]:
    """Return the keys that the model knows at a path."""
    kind: Any = model
    for part in where:
        members = _classes_of(kind)
        fields = next((m.model_fields for m in members if isinstance(m, type) and issubclass(m, BaseModel)), {})
        if part in fields:
            kind = fields[str(part)].annotation
        else:
            kind = next((typing.get_args(m)[-1] for m in members if typing.get_origin(m) is dict), None)
    for member in _classes_of(kind):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return sorted(member.model_fields)
    return []


def _classes_of(kind: Any) -> list[Any]:
    """Return the members of an annotation: ``Annotated[X, ...]`` is X, ``X | None`` is both."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _classes_of(typing.get_args(kind)[0])
    if origin in {types.UnionType, typing.Union}:
        return [member for arg in typing.get_args(kind) for member in _classes_of(arg)]
    return [kind]
