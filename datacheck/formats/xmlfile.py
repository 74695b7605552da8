"""XML files (.xml) as JSON would hold them; Pascal VOC annotations also give training values.

The document's values are the children of its root, each under its name. An element that holds text
only is that text, or the number that JSON would read (007 stays text). Any other element is a
mapping of its attributes ("@name"), its child elements by name, and the text between them
("#text"). Elements of one name are a list. A root of text only is "value". Namespace prefixes stay
part of a name.

A root "annotation" with objects that have a "bndbox", or with a "size" and no object, also gives
"boxes" [N, 4] (x_min, y_min, x_max, y_max as written), "names" (the class of each) and "size"
[width, height] in place of the element. If each object has "difficult" or "truncated", it also
gives an array [N] of that mark.

A document type is refused, and with it every entity and every reference to another file: a few
lines cannot expand to millions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any
from xml.parsers import expat

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import DEPTH, Values, check_bytes, check_keys
from datacheck.formats.parsed import from_json
from datacheck.runtime.beneath import AnyPath

_FILE_BYTES = 64 << 20
_NODES = 1_000_000  # elements and attributes
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,3})?")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")


class _Element:
    """An element during parsing: its contents by name, and its text."""

    __slots__ = ("held", "name", "texts")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name, self.texts = name, list[str]()
        self.held: dict[str, Any] = {f"@{key}": _scalar(value) for key, value in attributes.items()}

    def value(self) -> Any:
        """Return the element as a JSON value."""
        text = "".join(self.texts).strip()
        if not self.held:
            return _scalar(text)
        return {**self.held, "#text": _scalar(text)} if text else self.held


class _TreeBuilder:
    """Builds the tree from the events of expat."""

    def __init__(self) -> None:
        self.root: Any = None
        self.name = ""
        self._open: list[_Element] = []
        self._nodes = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._nodes += 1 + len(attributes)
        if self._nodes > _NODES:
            msg = f"more than {_NODES:,} elements and attributes"
            raise FormatError(msg)
        if len(self._open) >= DEPTH:
            msg = f"nested more than {DEPTH} deep"
            raise FormatError(msg)
        self._open.append(_Element(name, attributes))

    def text(self, data: str) -> None:
        self._open[-1].texts.append(data)

    def end(self, name: str) -> None:
        value = self._open.pop().value()
        if not self._open:
            self.root, self.name = value, name
            return
        children = self._open[-1].held
        if name not in children:
            children[name] = value
        # Of several elements of one name; no single value is a list.
        elif isinstance(children[name], list):
            children[name].append(value)
        else:
            children[name] = [children[name], value]


def _scalar(text: str) -> Any:
    if _NUMBER.fullmatch(text) is None:
        return text
    number = int(text) if text.lstrip("-").isdigit() else float(text)
    return number if math.isfinite(number) else text


def _refused(*_: object) -> None:
    msg = (
        "declares a document type: such XML, its entities and its references to other files are "
        "not read"
    )
    raise FormatError(msg)


def _parsed(data: bytes) -> _TreeBuilder:
    tree = _TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.text
    for handler in ("StartDoctypeDeclHandler", "EntityDeclHandler", "ExternalEntityRefHandler"):
        setattr(parser, handler, _refused)
    try:
        # expat takes it by position only.
        parser.Parse(data, True)  # noqa: FBT003
    except expat.ExpatError as error:
        msg = f"not XML: {error}"
        raise FormatError(msg) from error
    # expat supports single-byte encodings, by the names that Python knows.
    except (ValueError, LookupError) as error:
        msg = f"XML in an encoding that is not read ({error}): write it as UTF-8"
        raise FormatError(msg) from error
    return tree


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file", _FILE_BYTES)
    tree = _parsed(path.read_bytes())
    root = tree.root
    if not isinstance(root, dict):
        return Values({"value": from_json(root)})
    check_keys(len(root))
    values = {name: from_json(value) for name, value in root.items()}
    return Values(values | _annotation(root) if tree.name == "annotation" else values)


# --------------------------------------------------------------------------------------- Pascal VOC


def _annotation(root: dict[str, Any]) -> dict[str, Any]:
    """Return boxes, names and size of a Pascal VOC annotation; {} for another kind (LabelMe)."""
    raw = root.get("object", [])
    objects: list[Any] = raw if isinstance(raw, list) else [raw] if "object" in root else []
    boxed = any(isinstance(item, dict) and "bndbox" in item for item in objects)
    sized = isinstance(root.get("size"), dict)
    if not boxed and (objects or not sized):
        return {}
    values: dict[str, Any] = {"boxes": _value(_boxes, objects), "names": _value(_names, objects)}
    if sized:
        values["size"] = _value(_size, root["size"])
    for mark in ("difficult", "truncated"):
        marks = [item.get(mark) for item in objects if isinstance(item, dict)]
        if marks and all(type(value) is int for value in marks):
            values[mark] = np.array(marks)
    return values


def _value(make: Callable[[Any], Any], part: Any) -> Any:
    """Return a value, or the error that reading it raises; other values stay readable."""
    try:
        return make(part)
    except FormatError as error:
        return error


def _boxes(objects: Sequence[Any]) -> np.ndarray[Any, Any]:
    rows = []
    for number, item in enumerate(objects, 1):
        box = item.get("bndbox") if isinstance(item, dict) else None
        corners = [box.get(name) for name in _CORNERS] if isinstance(box, dict) else []
        if not corners or not all(type(value) in {int, float} for value in corners):
            wrong = next(
                (n for n, v in zip(_CORNERS, corners, strict=False) if type(v) not in {int, float}),
                "bndbox",
            )
            msg = f"object {number} has no {wrong} that is a number"
            raise FormatError(msg)
        rows.append(corners)
    return np.array(rows, np.float64).reshape(-1, 4)


def _names(objects: Sequence[Any]) -> list[str]:
    names = []
    for number, item in enumerate(objects, 1):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, list | dict) or name in {None, ""}:
            msg = f"object {number} has no name, or several"
            raise FormatError(msg)
        names.append(str(name))
    return names


def _size(size: dict[str, Any]) -> np.ndarray[Any, Any]:
    numbers = [size.get("width"), size.get("height")]
    if not all(type(value) is int for value in numbers):
        msg = "size has no width and height that are whole numbers"
        raise FormatError(msg)
    return np.array(numbers, np.int64)


XML = Format("xml", (".xml",), _open)
