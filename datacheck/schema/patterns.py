r"""File patterns with names: ``{split}/{seq}/meta/{frame:\d{4}}.pkl``, ``*`` and ``**``; match and fill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import comb
from typing import Any

from datacheck.errors import FormatError, SchemaError
from datacheck.schema import linear
from datacheck.schema.linear import Growth

_FORMAT_SPEC = re.compile(r"0?\d*[ds]")  # {frame:04d}: how Python prints, not what a name looks like


@dataclass(frozen=True, slots=True)
class _Name:
    name: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class _Wild:
    text: str  # "*", "**" (the rest of the path) or "**/" (any number of folders)


_Part = str | _Name | _Wild
_FOLDERS = _Wild("**/")
_LENGTHS = (16, 32, 48, 64, 80, 100, 128, 160, 200, 256, 512, 1024, 4096)


@dataclass(frozen=True)
class _Ways:
    """How many ways to match a path `re` tries at most.

    Args:
        folders: how many parts stand for any number of folders.
        levels: of each level that is matched on its own, as nothing in it can match "/".
        others: of all other levels together.
    """

    folders: int
    levels: tuple[Growth, ...]
    others: Growth

    def at(self, path: str) -> int:
        """Return the most ways for one path."""
        return self.of(path.count("/"), max(map(len, path.split("/"))), len(path))

    def of(self, depth: int, longest: int, length: int) -> int:
        """Return the most ways for a path of so many folders, characters in its longest level, and in all."""
        each = sum(level.at(longest) for level in self.levels)
        return comb(depth + self.folders, self.folders) * self.others.at(length) * max(1, each)


@dataclass(frozen=True)
class Template:
    """A parsed pattern.

    Args:
        text: the pattern as written.
        where: the schema key that holds it, for messages.
        parts: literal text, names and wildcards in order.
        names: placeholders in order of their first appearance.
        regex: what `re` matches where it is quick.
        growth: how many ways it may try.
    """

    text: str
    where: str
    parts: tuple[_Part, ...]
    names: tuple[str, ...]
    regex: re.Pattern[str]
    growth: _Ways

    @property
    def tail(self) -> str:
        """The fixed end of every path that matches; "" where the pattern leaves it open."""
        last = self.parts[-1]
        return last if isinstance(last, str) else ""

    @property
    def wild(self) -> bool:
        """Whether names alone do not say which path is meant."""
        return any(isinstance(part, _Wild) for part in self.parts)

    def allows(self, name: str, value: str) -> bool | None:
        """Tell whether the constraint of a placeholder allows `value`; None where it has none."""
        rules = [part.rule for part in self.parts if isinstance(part, _Name) and part.name == name and part.rule]
        return linear.Expression(rules[0]).fits(value) if rules else None

    def match(self, path: str) -> dict[str, str] | None:
        """Return what the placeholders stand for in `path`, or None where it does not match.

        Notes:
            A placeholder and ``*`` never cross "/". Of several ways to match, earlier placeholders are shortest.

        Raises:
            SchemaError: names that stand twice can be too many things.
        """
        names: dict[str, str] | None
        if len(path) > self._quick and self.growth.at(path) > linear.WAYS:
            names = self._slowly(path)
        else:
            found = self.regex.fullmatch(path)
            names = None if found is None else found.groupdict()
        return None if names is None or any("/" in value for value in names.values()) else names

    @cached_property
    def _quick(self) -> int:
        """The most characters of a path for which `re` is quick, whatever they are."""
        return max((n for n in _LENGTHS if self.growth.of(n // 2, n, n) <= linear.WAYS), default=0)

    @cached_property
    def _program(self) -> linear.Program:
        seen = set[str]()
        source = "".join(_expression(part, seen) for part in self.parts)
        return linear.Program(source, self.regex.groupindex.values())

    def _slowly(self, path: str) -> dict[str, str] | None:
        try:
            spans = self._program.spans(path, [0], whole=True)
        except OverflowError as error:
            why = f"{path[:80]!r} can be read in too many ways; say what its names look like: {{name:\\d+}}"
            raise _wrong(self.text, self.where, why) from error
        if spans is None:
            return None
        return {name: path[slice(*spans[number])] for name, number in self.regex.groupindex.items()}

    def given(self, names: Mapping[str, str]) -> Template:
        """Return the pattern of those paths in which placeholders have these values."""
        parts = (names.get(part.name, part) if isinstance(part, _Name) else part for part in self.parts)
        return _compiled(self.text, self.where, tuple(parts))

    def fill(self, names: Mapping[str, str]) -> str:
        """Return the path for these names.

        Raises:
            KeyError: a placeholder has no value.
            FormatError: a value cannot be part of a path; names may come from inside files.
        """
        for name in self.names:
            if names[name] in {"", ".", ".."} or "/" in names[name] or "\0" in names[name]:
                msg = f"{names[name]!r} cannot be part of a path ({{{name}}} in {self.text})"
                raise FormatError(msg)
        return self.substitute(names)

    def substitute(self, names: Mapping[str, str]) -> str:
        """Return the text for these names, whatever they hold: for labels, not for paths."""
        return self._form % names

    @cached_property
    def _form(self) -> str:
        """The text with ``%(name)s`` in the place of each name: files are as many as samples."""
        return "".join(f"%({p.name})s" if isinstance(p, _Name) else _shown(p).replace("%", "%%") for p in self.parts)


def _shown(part: _Wild | str) -> str:
    return part.text if isinstance(part, _Wild) else part


@lru_cache(maxsize=512)
def parse(text: str, where: str, *, path: bool = True) -> Template:
    """Return the pattern of `text`.

    Args:
        text: ``{name}`` is one or more characters without "/", ``{name:regex}`` what the expression matches, ``*`` any
            characters without "/", ``**/`` any number of folders; everything else stands for itself.
        where: the schema key, for messages.
        path: the pattern is of paths: relative, without "." and "..".

    Raises:
        SchemaError: the pattern is malformed.
    """
    parts = tuple(_split(text, where))
    if not parts:
        raise _wrong(text, where, "it is empty")
    if path:
        _check_path(text, where, parts)
    _check_neighbours(text, where, parts)
    return _compiled(text, where, parts)


def _compiled(text: str, where: str, parts: tuple[_Part, ...]) -> Template:
    names = tuple(dict.fromkeys(part.name for part in parts if isinstance(part, _Name)))
    trees = _trees(text, where, parts)
    levels = [_level(level, parts, trees) for level in _levels(parts)]
    seen: set[str] = set()
    source = "".join(_joined(level, seen, once=alone and growth != Growth(1)) for level, growth, alone in levels)
    try:
        regex = re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise _wrong(text, where, f"its regular expression is malformed: {error}") from error
    if set(regex.groupindex) != set(names):
        raise _wrong(text, where, "a constraint may not name groups of its own: write (?:...)")
    others = Growth()
    for _, growth, alone in levels:
        others = others if alone else others.and_then(growth)
    ways = _Ways(sum(part == _FOLDERS for part in parts), tuple(growth for _, growth, alone in levels if alone), others)
    return Template(text, where, parts, names, regex, ways)


def _trees(text: str, where: str, parts: Sequence[_Part]) -> dict[str, Any]:
    """Return the constraints of placeholders, parsed.

    Raises:
        SchemaError: one is malformed, or cannot be matched in linear time.
    """
    trees = {}
    for part in parts:
        if isinstance(part, _Name) and part.rule:
            try:
                trees[part.rule] = linear.parsed(part.rule)
            except ValueError as error:
                raise _wrong(text, where, f"its regular expression {error}") from error
    return trees


def _levels(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts of each level, its "/" with it."""
    level: list[_Part] = []
    for part in parts:
        if part == _FOLDERS and not level:
            yield [part]
        elif isinstance(part, str):
            *before, last = part.split("/")
            for piece in before:
                yield [*level, piece + "/"]
                level = []
            level += [last] if last else []
        else:
            level.append(part)
    yield level


def _level(level: list[_Part], parts: Sequence[_Part], trees: Mapping[str, Any]) -> tuple[list[_Part], Growth, bool]:
    """Return a level, how its ways grow, and whether it is matched on its own: once, in the first way that fits."""
    growth, names = Growth(), [part.name for part in parts if isinstance(part, _Name)]
    alone = True
    for part in level:
        if isinstance(part, _Name) and part.rule:
            growth = growth.and_then(linear.growth(trees[part.rule]))
            alone &= not linear.may_match(trees[part.rule], "/")
        elif not isinstance(part, str):
            growth = growth.and_then(Growth(int(part != _FOLDERS)))
            alone &= isinstance(part, _Name) or part.text == "*"
    again = any(isinstance(part, _Name) and names.count(part.name) > 1 for part in level)
    return level, growth, alone and (not again or growth in {Growth(), Growth(1)})


def _joined(level: Sequence[_Part], seen: set[str], *, once: bool) -> str:
    """Return the expression of a level; where it is matched once, later levels make it try no second way."""
    source = "".join(_expression(part, seen) for part in level)
    if not once or all(isinstance(part, str) for part in level):
        return source
    ended = isinstance(level[-1], str) and level[-1].endswith("/")
    return f"(?>{source})" if ended else rf"(?>{source}\Z)"


def _wrong(text: str, where: str, why: str) -> SchemaError:
    place = f"{where}: " if where else ""
    return SchemaError(f"{place}cannot read {text!r}: {why}. Patterns look like '{{split}}/{{id}}.npy'.")


def _split(text: str, where: str) -> list[_Part]:
    parts: list[_Part] = []
    place = 0
    while place < len(text):
        if text[place] == "{":
            stop = _closing(text, place, where)
            parts.append(_named(text[place + 1 : stop], text, where))
            place = stop + 1
        elif text[place] == "*":
            wild = next(w for w in ("**/", "**", "*") if text.startswith(w, place))
            parts.append(_Wild(wild))
            place += len(wild)
        else:
            stop = next((i for i in range(place, len(text)) if text[i] in "{*"), len(text))
            parts.append(text[place:stop])
            place = stop
    if any(isinstance(part, str) and "}" in part for part in parts):
        raise _wrong(text, where, "a '}' closes nothing")
    return parts


def _closing(text: str, start: int, where: str) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise _wrong(text, where, "a '{' is never closed")


def _named(inner: str, text: str, where: str) -> _Name:
    name, colon, rule = inner.partition(":")
    if not name.isidentifier() or not name.isascii():
        raise _wrong(text, where, f"{{{inner}}} is no name; write {{name}} or {{name:regular expression}}")
    if colon and _FORMAT_SPEC.fullmatch(rule):
        raise _wrong(text, where, f"{{{inner}}} is a print format; write {{{name}:\\d+}} or {{{name}:\\d{{4}}}}")
    if colon and (not rule or "/" in rule):
        raise _wrong(text, where, f"the constraint of {{{name}}} is empty or holds '/'; a name never crosses folders")
    return _Name(name, rule)


def _expression(part: _Part, seen: set[str]) -> str:
    if isinstance(part, str):
        return re.escape(part)
    if isinstance(part, _Wild):
        return {"*": "[^/]*", "**/": "(?:[^/]+/)*", "**": "(?s:.+)"}[part.text]
    if part.name in seen:
        return f"(?P={part.name})"
    seen.add(part.name)
    return f"(?P<{part.name}>{part.rule or '[^/]+?'})"


def _check_path(text: str, where: str, parts: tuple[_Part, ...]) -> None:
    plain = "".join("x" if isinstance(p, _Name) else p.text if isinstance(p, _Wild) else p for p in parts)
    levels = plain.split("/")
    if "\\" in plain:
        raise _wrong(text, where, "folders are separated by '/'")
    if plain.startswith("/") or any(level in {"", ".", ".."} for level in levels):
        raise _wrong(text, where, "paths are relative to the data folder, without '.', '..' or empty parts")
    if any("**" in level and level != "**" for level in levels):
        raise _wrong(text, where, "'**' stands for whole folders: write '**/'")


def _check_neighbours(text: str, where: str, parts: tuple[_Part, ...]) -> None:
    for left, right in pairwise(parts):
        if isinstance(left, _Name) and not left.rule and isinstance(right, _Name | _Wild):
            why = f"where {{{left.name}}} ends is open; say what it looks like: {{{left.name}:train|val}}"
            raise _wrong(text, where, why)
