"""Match the path patterns of schemas: ``{split}/{id}.npy``.

`parse` turns a pattern into a `Template`, which matches paths, and fills placeholders to make a
path. A pattern is matched by `re` where that is fast, and else in linear time (`linear_regex`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import comb
from typing import Any, NamedTuple

from datacheck.errors import FormatError, SchemaError
from datacheck.schema.linear_regex import (
    WAYS,
    Expression,
    Growth,
    Program,
    growth_of,
    may_match,
    parse_tree,
)
from datacheck.workers.budget import OutOfTimeError, limited_time


@dataclass(frozen=True, slots=True)
class _Name:
    """A placeholder; `rule` is its regular expression, "" for anything without "/"."""

    name: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class _Wildcard:
    """``*``, ``**`` (the rest of the path) or ``**/`` (any number of folders)."""

    text: str


_Part = str | _Name | _Wildcard
_FOLDERS = _Wildcard("**/")


@dataclass(frozen=True)
class _PathGrowth:
    """Bounds the attempts of `re` on a path.

    Args:
        folders: number of parts that match any number of folders.
        levels: growth of each level that is matched on its own, because nothing in it can match
            "/".
        others: growth of all other levels together.
    """

    folders: int
    levels: tuple[Growth, ...]
    others: Growth

    def at(self, path: str) -> int:
        """Return the maximum number of ways for a path."""
        return self.of(path.count("/"), max(map(len, path.split("/"))), len(path))

    def of(self, depth: int, longest: int, length: int) -> int:
        """Return the maximum number of ways for a folder count, longest level and total length."""
        each = sum(level.at(longest) for level in self.levels)
        return comb(depth + self.folders, self.folders) * self.others.at(length) * max(1, each)


# Signs with a meaning in patterns: a name with one of them does not stand for itself.
PATTERN_SIGNS = frozenset("{}*\\")
# CPU time [s] in which patterns are matched, and the extra time for each name, and each pattern of
# it.
_MATCHING_SECONDS = 20.0
_NAME_SECONDS = 1e-3
_PATTERN_SECONDS = 2e-6
# Characters of a path that a message shows.
_MOST_SHOWN = 80
# Lengths among which `Template` looks for the longest that is quick for any path.
_TRIED_LENGTHS = (16, 32, 48, 64, 80, 100, 128, 160, 200, 256, 512, 1024, 4096)


@dataclass(frozen=True)
class Template:
    """A parsed pattern.

    Args:
        text: the pattern as written.
        where: the schema key that holds it, for messages.
        parts: literal text, names and wildcards in order.
        names: placeholders in order of first appearance.
        regex: the regular expression for `re`, used where it is fast.
        growth: bounds its attempts.
        levels: the parts of each level, without "/", and one empty level for any number of folders;
            () where a level cannot be matched without the others.
    """

    text: str
    where: str
    parts: tuple[_Part, ...]
    names: tuple[str, ...]
    regex: re.Pattern[str]
    growth: _PathGrowth
    levels: tuple[tuple[_Part, ...], ...] = ()

    @property
    def tail(self) -> str:
        """The fixed end of every matching path; "" where the pattern leaves it open."""
        last = self.parts[-1]
        return last if isinstance(last, str) else ""

    @property
    def wild(self) -> bool:
        """Whether the placeholders alone do not determine the path."""
        return any(isinstance(part, _Wildcard) for part in self.parts)

    def allows(self, name: str, value: str) -> bool | None:
        """Return whether a placeholder's constraint allows `value`; None without a constraint."""
        rules = [
            part.rule
            for part in self.parts
            if isinstance(part, _Name) and part.name == name and part.rule
        ]
        return Expression(rules[0]).fits(value) if rules else None

    def match(self, path: str) -> dict[str, str] | None:
        """Return the values of the placeholders in `path`, None if it does not match.

        Notes:
            A placeholder and ``*`` never match "/". Among several ways to match, earlier
            placeholders are the shortest.

        Raises:
            SchemaError: repeated names are too ambiguous.
        """
        names: dict[str, str] | None
        if len(path) > self._quick_length and self.growth.at(path) > WAYS:
            names = self._match_by_level(path) if self.levels else self._match_slowly(path)
        else:
            result = self.regex.fullmatch(path)
            names = None if result is None else result.groupdict()
        if names is None or any("/" in value for value in names.values()):
            return None
        return names

    @cached_property
    def _quick_length(self) -> int:
        """The path length up to which `re` is fast for any path."""
        # Every second character of a path may be a "/".
        quick = (n for n in _TRIED_LENGTHS if self.growth.of(n // 2, n, n) <= WAYS)
        return max(quick, default=0)

    @cached_property
    def _program(self) -> Program:
        seen = set[str]()
        source = "".join(_expression(part, seen) for part in self.parts)
        return Program(source, self.regex.groupindex.values())

    def _match_by_level(self, path: str) -> dict[str, str] | None:
        """Match each level on its own: a name has at most 255 bytes, a path 4,096."""
        given = path.split("/")
        templates = self._of_levels
        if () in self.levels:
            before = self.levels.index(())
            behind = max(before, len(given) - (len(templates) - before))
            if not all(given[before:behind]):
                return None
            given = given[:before] + given[behind:]
        if len(given) != len(templates):
            return None
        names = dict[str, str]()
        for template, text in zip(templates, given, strict=True):
            found = template.match(text)
            if found is None:
                return None
            names |= found
        return names

    @cached_property
    def _of_levels(self) -> list[Template]:
        return [_compiled(self.text, self.where, parts) for parts in self.levels if parts]

    def _match_slowly(self, path: str) -> dict[str, str] | None:
        try:
            spans = self._program.spans(path, [0], whole=True)
        except OverflowError as error:
            reason = (
                f"{path[:_MOST_SHOWN]!r} can be read in too many ways; say what its names look like: "
                f"{{name:\\d+}}"
            )
            raise _pattern_error(self.text, self.where, reason) from error
        if spans is None:
            return None
        return {name: path[slice(*spans[number])] for name, number in self.regex.groupindex.items()}

    def given(self, names: Mapping[str, str]) -> Template:
        """Return the pattern with fixed values for some placeholders."""
        parts = (
            names.get(part.name, part) if isinstance(part, _Name) else part for part in self.parts
        )
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
        """Return the text for these names, without a check: for labels, not for paths."""
        return self._form % names

    @cached_property
    def _form(self) -> str:
        """The text with ``%(name)s`` for each name; built once, as there are many files."""
        return "".join(
            f"%({part.name})s" if isinstance(part, _Name) else _text_of(part).replace("%", "%%")
            for part in self.parts
        )


def _text_of(part: _Wildcard | str) -> str:
    return part.text if isinstance(part, _Wildcard) else part


@lru_cache(maxsize=512)
def parse(text: str, where: str, *, path: bool = True) -> Template:
    """Parse a pattern.

    Args:
        text: ``{name}`` is one or more characters without "/", ``{name:regex}`` a match of the
            expression, ``*`` any characters without "/", ``**/`` any number of folders; everything
            else is literal.
        where: the schema key, for messages.
        path: the pattern describes paths: relative, without "." and "..".

    Raises:
        SchemaError: the pattern is malformed.
    """
    parts = tuple(_split(text, where))
    if not parts:
        raise _pattern_error(text, where, "it is empty")
    if path:
        _check_path(text, where, parts)
    _check_neighbours(text, where, parts)
    return _compiled(text, where, parts)


@contextmanager
def limited_matching(where: str, names: int, patterns: int = 1) -> Iterator[None]:
    """Limit the CPU time in which patterns are matched with this number of names.

    Args:
        where: the schema key of the patterns, for the message.
        names: number of names to match.
        patterns: number of patterns.

    Raises:
        SchemaError: the patterns take more time, as constraints like ``(x+x+)+y`` do for long names.
    """
    seconds = _MATCHING_SECONDS + names * (_NAME_SECONDS + _PATTERN_SECONDS * patterns)
    try:
        with limited_time(seconds):
            yield
    except OutOfTimeError:
        msg = (
            f"{where}: matching the patterns with {names:,} names takes more than {seconds:,.0f} s "
            f"of processor time. Write fewer patterns, and simpler constraints: {{name:\\d+}}."
        )
        raise SchemaError(msg) from None


class _PathLevel(NamedTuple):
    """A level of a path with its "/".

    Args:
        parts: of the level.
        growth: of the ways to match it.
        alone: whether it is matched on its own: once, in the first way that fits.
        separable: whether each of its literals is matched on its own, too, at the first place that
            fits.
    """

    parts: list[_Part]
    growth: Growth
    alone: bool
    separable: bool = False


def _compiled(text: str, where: str, parts: tuple[_Part, ...]) -> Template:
    names = tuple(dict.fromkeys(part.name for part in parts if isinstance(part, _Name)))
    trees = _trees(text, where, parts)
    levels = [_measured(level, parts, trees) for level in _levels(parts)]
    regex = _compile_levels(levels, text, where)
    if set(regex.groupindex) != set(names):
        raise _pattern_error(
            text, where, "a constraint may not name groups of its own: write (?:...)"
        )
    others = Growth()
    for level in levels:
        if not level.alone:
            others = others.and_then(level.growth)
    folders = sum(part == _FOLDERS for part in parts)
    alone = tuple(level.growth for level in levels if level.alone)
    growth = _PathGrowth(folders, alone, others)
    return Template(text, where, parts, names, regex, growth, _single_levels(levels))


# What looks beyond the text that it matches, in a constraint.
_LOOKS_BEYOND = re.compile(r"\(\?(?!:)|\\[bBAZ]|\$|(?<!\[)\^")


def _single_levels(levels: Sequence[_PathLevel]) -> tuple[tuple[_Part, ...], ...]:
    """Return `Template.levels`."""
    names = [part for level in levels for part in level.parts if isinstance(part, _Name)]
    if (
        len(levels) < 2
        or not levels[-1].parts  # a pattern that ends in "/"
        or [level.parts for level in levels].count([_FOLDERS]) > 1
        or not all(level.alone or level.parts == [_FOLDERS] for level in levels)
        or len({part.name for part in names}) < len(names)
        or any(_LOOKS_BEYOND.search(part.rule) for part in names)
    ):
        return ()
    return tuple(
        ()
        if level.parts == [_FOLDERS]
        else tuple(part.rstrip("/") if isinstance(part, str) else part for part in level.parts)
        for level in levels
    )


def _compile_levels(levels: Sequence[_PathLevel], text: str, where: str) -> re.Pattern[str]:
    seen: set[str] = set()
    source = "".join(_joined(level, seen) for level in levels)
    try:
        return re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        reason = f"its regular expression is malformed: {error}"
        raise _pattern_error(text, where, reason) from error


def _trees(text: str, where: str, parts: Sequence[_Part]) -> dict[str, Any]:
    """Return the parse trees of the placeholders' constraints.

    Raises:
        SchemaError: a constraint is malformed, or cannot be matched in linear time.
    """
    trees = {}
    for part in parts:
        if isinstance(part, _Name) and part.rule:
            try:
                trees[part.rule] = parse_tree(part.rule)
            except ValueError as error:
                raise _pattern_error(text, where, f"its regular expression {error}") from error
    return trees


def _levels(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts of each level with its "/"."""
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


def _measured(level: list[_Part], parts: Sequence[_Part], trees: Mapping[str, Any]) -> _PathLevel:
    """Return a level with its growth.

    Args:
        level: its parts.
        parts: of the whole pattern.
        trees: by constraint.
    """
    growth = Growth()
    names = [part.name for part in parts if isinstance(part, _Name)]
    if _is_separable(level, names):
        # The gaps share the characters of the level; the last one looks for the end of it.
        return _PathLevel(level, Growth(1, 2), alone=True, separable=True)
    alone = True
    for part in level:
        if isinstance(part, _Name) and part.rule:
            growth = growth.and_then(growth_of(trees[part.rule]))
            alone &= not may_match(trees[part.rule], "/")
        elif not isinstance(part, str):
            growth = growth.and_then(Growth(int(part != _FOLDERS)))
            alone &= isinstance(part, _Name) or part.text == "*"
    has_repeats = any(isinstance(part, _Name) and names.count(part.name) > 1 for part in level)
    # A name that occurs again may need another way than the first.
    has_one_way = growth in {Growth(), Growth(1)}
    return _PathLevel(level, growth, alone and (has_one_way or not has_repeats))


def _joined(level: _PathLevel, seen: set[str]) -> str:
    """Return the expression of a level; an atomic group is matched without backtracking."""
    if level.separable:
        return _separated(level.parts, seen)
    source = "".join(_expression(part, seen) for part in level.parts)
    has_choices = level.growth != Growth(1) and not all(isinstance(p, str) for p in level.parts)
    if not level.alone or not has_choices:
        return source
    last = level.parts[-1]
    is_folder = isinstance(last, str) and last.endswith("/")
    return f"(?>{source})" if is_folder else rf"(?>{source}\Z)"


def _is_separable(level: Sequence[_Part], names: Sequence[str]) -> bool:
    """Return whether a level with several gaps (names, ``*``) can do without backtracking.

    Args:
        level: its parts.
        names: of the whole pattern, with repetitions.

    Notes:
        Once every literal stands as far left as it can, each gap has the most room, so a match is
        found if there is one, and each name is as short as it can be. Only the names must come
        before all ``*``, which are as long as they can be.
    """
    gaps = [place for place, part in enumerate(level) if not isinstance(part, str)]
    stars = [isinstance(level[place], _Wildcard) for place in gaps]
    is_plain = all(
        part.text == "*" if isinstance(part, _Wildcard) else _is_free(part, names)
        for part in level
        if not isinstance(part, str)
    )
    has_literals = all(
        any(isinstance(part, str) and part for part in level[left:right])
        for left, right in pairwise(gaps)
    )
    return len(gaps) > 1 and is_plain and has_literals and stars == sorted(stars)


def _is_free(name: _Name, names: Sequence[str]) -> bool:
    return not name.rule and names.count(name.name) == 1


def _separated(parts: Sequence[_Part], seen: set[str]) -> str:
    """Return the expression of a separable level: an atomic group for each gap."""
    gaps = [place for place, part in enumerate(parts) if not isinstance(part, str)]
    sources = [_expression(part, seen) for part in parts]
    lazy = [
        "[^/]*?" if isinstance(part, _Wildcard) else source
        for part, source in zip(parts, sources, strict=True)
    ]
    before = "".join(sources[: gaps[0]])
    between = [f"(?>{''.join(lazy[left:right])})" for left, right in pairwise(gaps)]
    last = "".join(sources[gaps[-1] :])
    is_folder = isinstance(parts[-1], str) and parts[-1].endswith("/")
    end = "" if is_folder else r"\Z"
    return f"{before}{''.join(between)}(?>{last}{end})"


def _pattern_error(text: str, where: str, reason: str) -> SchemaError:
    place = f"{where}: " if where else ""
    return SchemaError(
        f"{place}cannot read {text!r}: {reason}. Patterns look like '{{split}}/{{id}}.npy'."
    )


def _split(text: str, where: str) -> list[_Part]:
    parts: list[_Part] = []
    place = 0
    while place < len(text):
        if text[place] == "{":
            stop = _closing(text, place, where)
            parts.append(_named(text[place + 1 : stop], text, where))
            place = stop + 1
        elif text[place] == "*":
            stars = next(stars for stars in ("**/", "**", "*") if text.startswith(stars, place))
            parts.append(_Wildcard(stars))
            place += len(stars)
        else:
            stop = next((i for i in range(place, len(text)) if text[i] in "{*"), len(text))
            parts.append(text[place:stop])
            place = stop
    if any(isinstance(part, str) and "}" in part for part in parts):
        raise _pattern_error(text, where, "a '}' has no '{'")
    return parts


def _closing(text: str, start: int, where: str) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise _pattern_error(text, where, "a '{' is never closed")


# {frame:04d}: a Python print format, not a regular expression.
_FORMAT_SPEC = re.compile(r"0?\d*[ds]")


def _named(inner: str, text: str, where: str) -> _Name:
    name, colon, rule = inner.partition(":")
    if not name.isidentifier() or not name.isascii():
        raise _pattern_error(
            text, where, f"{{{inner}}} is not a name; write {{name}} or {{name:regular expression}}"
        )
    if colon and _FORMAT_SPEC.fullmatch(rule):
        raise _pattern_error(
            text,
            where,
            f"{{{inner}}} is a print format; write {{{name}:\\d+}} or {{{name}:\\d{{4}}}}",
        )
    if colon and (not rule or "/" in rule):
        raise _pattern_error(
            text,
            where,
            f"the constraint of {{{name}}} is empty or holds '/'; a name never crosses folders",
        )
    return _Name(name, rule)


def _expression(part: _Part, seen: set[str]) -> str:
    if isinstance(part, str):
        return re.escape(part)
    if isinstance(part, _Wildcard):
        return {"*": "[^/]*", "**/": "(?:[^/]+/)*", "**": "(?s:.+)"}[part.text]
    if part.name in seen:
        return f"(?P={part.name})"
    seen.add(part.name)
    return f"(?P<{part.name}>{part.rule or '[^/]+?'})"


def _check_path(text: str, where: str, parts: tuple[_Part, ...]) -> None:
    plain = "".join("x" if isinstance(part, _Name) else _text_of(part) for part in parts)
    levels = plain.split("/")
    if "\\" in plain:
        raise _pattern_error(text, where, "folders are separated by '/'")
    if plain.startswith("/") or any(level in {"", ".", ".."} for level in levels):
        raise _pattern_error(
            text, where, "paths are relative to the data folder, without '.', '..' or empty parts"
        )
    if any("**" in level and level != "**" for level in levels):
        raise _pattern_error(text, where, "'**' stands for whole folders: write '**/'")


def _check_neighbours(text: str, where: str, parts: tuple[_Part, ...]) -> None:
    for left, right in pairwise(parts):
        if isinstance(left, _Name) and not left.rule and isinstance(right, _Name | _Wildcard):
            reason = (
                f"the end of {{{left.name}}} is not clear; constrain the name: "
                f"{{{left.name}:train|val}}"
            )
            raise _pattern_error(text, where, reason)
