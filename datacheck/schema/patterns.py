"""Regular expressions of schemas in linear time: no pattern and no name makes a search take for ever.

Python's `re` tries one way after the other, which takes exponential time for ``(x+x+)+y``. It is
used where the number of ways is small; else a matcher that tries them in the same order, but none
twice from the same place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import comb
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from datacheck.errors import FormatError, SchemaError

WAYS = 300_000  # that `re` may try: a few milliseconds
_STEPS = 4_000  # of a program
_AHEAD = 100  # characters that a look-ahead may see: it is tried at every place
_STATES = 100_000  # of an expression with a name that stands twice
_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.ASCII
_REFUSED = {
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
_ANCHORS = {
    op.AT_BEGINNING: "^",
    op.AT_BEGINNING_STRING: r"\A",
    op.AT_BOUNDARY: r"\b",
    op.AT_NON_BOUNDARY: r"\B",
    op.AT_END: "$",
    op.AT_END_STRING: r"\Z",
}
_CLASSES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}

Nodes = Iterable[tuple[Any, Any]]
_Step = tuple[str, Any, Any]  # what is done, and with what
_OPEN: _Step = ("jump", -1, None)  # filled in behind
_Saved = tuple[int, int, Any] | None  # slot, position, what was saved before


class Growth(NamedTuple):
    """How many ways there are to match a text: `ways` times what `loops` loops over its characters come to."""

    loops: int = 0
    ways: int = 1

    def at(self, length: int) -> int:
        """Return the most ways for a text of so many characters."""
        return self.ways * comb(length + self.loops, self.loops)

    def and_then(self, other: Growth) -> Growth:
        """Return the growth of two expressions one behind the other."""
        return Growth(self.loops + other.loops, self.ways * other.ways)


def parsed(expression: str) -> Any:
    """Return the tree of an expression.

    Raises:
        ValueError: it is malformed, or of a kind that cannot be matched in linear time; how a
            sentence about it ends.
    """
    try:
        tree = _parser.parse(expression)
        re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"is malformed: {error}"
        raise ValueError(msg) from error
    for kind, value in _every(tree):
        if str(kind) in _REFUSED:
            msg = f"has {_REFUSED[str(kind)]}, which is not read here"
            raise ValueError(msg)
        if kind in {op.ASSERT, op.ASSERT_NOT} and value[1].getwidth()[1] > _AHEAD:
            msg = f"looks ahead, or back, by more than {_AHEAD} characters"
            raise ValueError(msg)
    if _size(tree) > _STEPS:
        msg = f"is longer than {_STEPS:,} characters once its counted repeats are written out"
        raise ValueError(msg)
    return tree


def _inside(kind: Any, value: Any) -> list[Any]:
    """Return the expressions within one part of another."""
    if kind in {op.MAX_REPEAT, op.MIN_REPEAT, op.SUBPATTERN, op.POSSESSIVE_REPEAT}:
        return [value[-1]]
    if kind is op.BRANCH:
        return list(value[1])
    if kind in {op.ASSERT, op.ASSERT_NOT}:
        return [value[1]]
    return [value] if kind is op.ATOMIC_GROUP else []


def _every(nodes: Nodes) -> Iterator[tuple[Any, Any]]:
    for kind, value in nodes:
        yield kind, value
        for inner in _inside(kind, value):
            yield from _every(inner)


def _size(nodes: Nodes) -> int:
    """Return about how many steps an expression takes, more than `_STEPS` where it is too long."""
    total = 0
    for kind, value in nodes:
        inner = 1 + sum(_size(part) for part in _inside(kind, value))
        if kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
            inner *= max(1, int(value[0]), 0 if value[1] is op.MAXREPEAT else int(value[1]))
        total = min(total + inner, _STEPS + 1)
    return total


def may_match(nodes: Nodes, char: str) -> bool:
    """Tell whether a character can be part of what an expression matches."""
    single = {op.ANY, op.IN, op.LITERAL, op.NOT_LITERAL}
    return any(
        kind in single and _test(kind, value, 0)(char) is not None for kind, value in _every(nodes)
    )


def growth(nodes: Nodes) -> Growth:
    """Return how the ways to match a text grow with it; a choice within a loop makes them more than `WAYS` at once."""
    total = Growth()
    for kind, value in nodes:
        inside = [growth(part) for part in _inside(kind, value)]
        if kind is op.BRANCH:
            total = total.and_then(
                Growth(max(part.loops for part in inside), sum(part.ways for part in inside))
            )
        elif kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
            nested = int(value[1]) > 1 and inside[0] != Growth()
            total = total.and_then(Growth(0, WAYS + 1) if nested else inside[0])
            total = total.and_then(Growth(int(value[0] != value[1])))
        else:
            for part in inside:
                total = total.and_then(part)
    return total


class Program:
    """An expression as steps that are taken for one place of a text after the other, at most once for each place.

    Args:
        expression: as `re` takes it; `parsed` holds for what a user wrote of it.
        kept: the numbers of the groups whose places are wanted.
    """

    def __init__(self, expression: str, kept: Iterable[int]) -> None:
        tree = _parser.parse(expression)
        self._kept = frozenset(kept)
        self._refs = sorted({value for kind, value in _every(tree) if kind is op.GROUPREF})
        self._steps = self._built(tree, tree.state.flags)

    def _built(self, nodes: Nodes, flags: int) -> list[_Step]:
        steps: list[_Step] = []
        self._add(nodes, flags, steps)
        return [*steps, ("match", None, None)]

    def _add(self, nodes: Nodes, flags: int, steps: list[_Step]) -> None:
        for kind, value in nodes:
            if kind is op.BRANCH:
                self._branch(value[1], flags, steps)
            elif kind is op.SUBPATTERN:
                group, more, less, inner = value
                kept = group in self._kept
                steps += [("save", 2 * group, None)] if kept else []
                self._add(inner, (flags | more) & ~less, steps)
                steps += [("save", 2 * group + 1, None)] if kept else []
            elif kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
                self._repeat(value, flags, steps, greedy=kind is op.MAX_REPEAT)
            elif kind in {op.ASSERT, op.ASSERT_NOT}:
                back = 0 if value[0] > 0 else value[1].getwidth()[1]
                steps.append(("look", self._built(value[1], flags), (back, kind is op.ASSERT)))
            elif kind is op.GROUPREF:
                steps.append(("ref", value, None))
            elif kind is op.AT:
                steps.append(("at", re.compile(_ANCHORS[value], flags & _FLAGS).match, None))
            else:
                steps.append(("char", _test(kind, value, flags), None))

    def _branch(self, branches: Any, flags: int, steps: list[_Step]) -> None:
        ends = []
        for branch in branches[:-1]:
            at = len(steps)
            steps.append(_OPEN)
            self._add(branch, flags, steps)
            ends.append(len(steps))
            steps.append(_OPEN)
            steps[at] = ("split", at + 1, len(steps))
        self._add(branches[-1], flags, steps)
        for at in ends:
            steps[at] = ("jump", len(steps), None)

    def _repeat(self, value: Any, flags: int, steps: list[_Step], *, greedy: bool) -> None:
        low, high, body = value
        for _ in range(low):
            self._add(body, flags, steps)
        splits, ends = [], []
        empty = (
            greedy and body.getwidth()[0] == 0
        )  # one that takes no character is the last, as of `re`
        for _ in range(1 if high is op.MAXREPEAT else high - low):
            splits.append(len(steps))
            steps += [_OPEN, ("save", -1 - len(steps), None)] if empty else [_OPEN]
            self._add(body, flags, steps)
            if empty:
                ends.append((len(steps), -1 - splits[-1]))
                steps.append(_OPEN)
        if high is op.MAXREPEAT:
            steps.append(("jump", splits[0], None))
        for at in splits:
            steps[at] = ("split", at + 1, len(steps)) if greedy else ("split", len(steps), at + 1)
        for at, slot in ends:
            steps[at] = ("last", len(steps), slot)

    def spans(
        self, text: str, starts: Iterable[int], *, whole: bool
    ) -> dict[int, tuple[int, int]] | None:
        """Return where the groups match, None where the expression does not.

        Args:
            text: what is matched.
            starts: where it may begin, in the order in which they are tried.
            whole: it has to end where the text does.

        Raises:
            OverflowError: a name that stands twice makes it too many ways.
        """
        run = _MatchState(self._steps, self._refs, text, whole=whole)
        for start in starts:
            found = run.start(start)
            if found is not None:
                end, saved = found
                places: dict[int, int] = {}
                while saved is not None:
                    places.setdefault(saved[0], saved[1])
                    saved = saved[2]
                inner = {
                    slot // 2: (at, places[slot + 1])
                    for slot, at in places.items()
                    if slot >= 0 and slot % 2 == 0
                }
                return {0: (start, end)} | inner
        return None


class _MatchState:
    """A program on its way through one text; where it was before, whatever came before, it goes no second time."""

    def __init__(
        self, steps: Sequence[_Step], refs: Sequence[int], text: str, *, whole: bool
    ) -> None:
        self._steps, self._refs, self._text, self._whole = steps, refs, text, whole
        self._seen: set[Any] = set()
        self._waiting: list[tuple[int, int, _Saved]] = []

    def start(self, place: int) -> tuple[int, _Saved] | None:
        """Return the end of the first match that begins at `place`, and what it saved."""
        self._waiting = [(0, place, None)]
        while self._waiting:
            found = self._follow(*self._waiting.pop())
            if found is not None:
                return found
            if self._refs and len(self._seen) > _STATES:
                raise OverflowError
        return None

    def _follow(self, at: int, place: int, saved: _Saved) -> tuple[int, _Saved] | None:
        """Return where a match ends, None where this way does not lead to one."""
        while at >= 0:
            kind, value, other = self._steps[at]
            if kind == "char":
                fits = place < len(self._text) and value(self._text[place]) is not None
                at, place = (at + 1 if fits else -1), place + 1
            elif kind == "split":
                state = (
                    at,
                    place,
                    *(
                        _place(saved, slot)
                        for group in self._refs
                        for slot in (2 * group, 2 * group + 1)
                    ),
                )
                known = state in self._seen
                if not known:
                    self._seen.add(state)
                    self._waiting.append((other, place, saved))
                at = -1 if known else value
            elif kind == "match":
                return None if self._whole and place < len(self._text) else (place, saved)
            else:
                at, place, saved = self._moved(at, place, saved)
        return None

    def _moved(self, at: int, place: int, saved: _Saved) -> tuple[int, int, _Saved]:
        """Return the next step, place and saved places; -1 for the step where the text does not fit."""
        kind, value, other = self._steps[at]
        if kind == "jump":
            return value, place, saved
        if kind == "save":
            return at + 1, place, (value, place, saved)
        if kind == "last":
            return (value if _place(saved, other) == place else at + 1), place, saved
        fits, length = False, 0
        if kind == "at":
            fits = value(self._text, place) is not None
        elif kind == "ref":
            start, end = _place(saved, 2 * value), _place(saved, 2 * value + 1)
            length = end - start
            fits = 0 <= start <= end and self._text.startswith(self._text[start:end], place)
        else:
            back, wanted = other
            found = (
                place >= back
                and _MatchState(value, (), self._text, whole=False).start(place - back) is not None
            )
            fits = found == wanted
        return (at + 1 if fits else -1), place + length, saved


def _place(saved: _Saved, slot: int) -> int:
    """Return what was saved last under a number, -1 for nothing."""
    while saved is not None:
        if saved[0] == slot:
            return saved[1]
        saved = saved[2]
    return -1


def _test(kind: Any, value: Any, flags: int) -> Callable[[str], Any]:
    """Return the test of one character."""
    if kind is op.ANY:
        source = "."
    elif kind is op.IN:
        source = f"[{''.join(_member(*member) for member in value)}]"
    else:
        source = f"[{'^' * (kind is op.NOT_LITERAL)}{re.escape(chr(value))}]"
    return re.compile(source, flags & _FLAGS).fullmatch


def _member(kind: Any, value: Any) -> str:
    if kind is op.NEGATE:
        return "^"
    if kind is op.RANGE:
        return "-".join(re.escape(chr(end)) for end in value)
    return _CLASSES[value] if kind is op.CATEGORY else re.escape(chr(value))


class Expression:
    """A regular expression that a user wrote.

    Args:
        text: as `re` takes it.

    Raises:
        ValueError: as `parsed`.
    """

    def __init__(self, text: str) -> None:
        tree = parsed(text)
        self._text = text
        self._growth = growth(tree)
        self._regex = re.compile(text)

    @cached_property
    def _program(self) -> Program:
        return Program(self._text, {1} if self._regex.groups else ())

    def fits(self, text: str) -> bool:
        """Tell whether all of a text matches."""
        if self._growth.at(len(text)) <= WAYS:
            return self._regex.fullmatch(text) is not None
        return self._program.spans(text, [0], whole=True) is not None

    def search(self, text: str) -> str | None:
        """Return the first group of the first match ("" where it took no part), all of it without groups, or None."""
        if self._growth.at(len(text)) * (len(text) + 1) <= WAYS:
            found = self._regex.search(text)
            return None if found is None else found[1] or "" if self._regex.groups else found[0]
        spans = self._program.spans(text, range(len(text) + 1), whole=False)
        if spans is None:
            return None
        start, end = spans.get(1, (0, 0)) if self._regex.groups else spans[0]
        return text[start:end]


_FORMAT_SPEC = re.compile(
    r"0?\d*[ds]"
)  # {frame:04d}: how Python prints, not what a name looks like


@dataclass(frozen=True, slots=True)
class _Name:
    name: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class _Wildcard:
    text: str  # "*", "**" (the rest of the path) or "**/" (any number of folders)


_Part = str | _Name | _Wildcard
_FOLDERS = _Wildcard("**/")
_LENGTHS = (16, 32, 48, 64, 80, 100, 128, 160, 200, 256, 512, 1024, 4096)


@dataclass(frozen=True)
class _PathGrowth:
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
    growth: _PathGrowth

    @property
    def tail(self) -> str:
        """The fixed end of every path that matches; "" where the pattern leaves it open."""
        last = self.parts[-1]
        return last if isinstance(last, str) else ""

    @property
    def wild(self) -> bool:
        """Whether names alone do not say which path is meant."""
        return any(isinstance(part, _Wildcard) for part in self.parts)

    def allows(self, name: str, value: str) -> bool | None:
        """Tell whether the constraint of a placeholder allows `value`; None where it has none."""
        rules = [
            part.rule
            for part in self.parts
            if isinstance(part, _Name) and part.name == name and part.rule
        ]
        return Expression(rules[0]).fits(value) if rules else None

    def match(self, path: str) -> dict[str, str] | None:
        """Return what the placeholders stand for in `path`, or None where it does not match.

        Notes:
            A placeholder and ``*`` never cross "/". Of several ways to match, earlier placeholders
            are shortest.

        Raises:
            SchemaError: names that stand twice can be too many things.
        """
        names: dict[str, str] | None
        if len(path) > self._quick_length and self.growth.at(path) > WAYS:
            names = self._slowly(path)
        else:
            found = self.regex.fullmatch(path)
            names = None if found is None else found.groupdict()
        return None if names is None or any("/" in value for value in names.values()) else names

    @cached_property
    def _quick_length(self) -> int:
        """The most characters of a path for which `re` is quick, whatever they are."""
        return max((n for n in _LENGTHS if self.growth.of(n // 2, n, n) <= WAYS), default=0)

    @cached_property
    def _program(self) -> Program:
        seen = set[str]()
        source = "".join(_expression(part, seen) for part in self.parts)
        return Program(source, self.regex.groupindex.values())

    def _slowly(self, path: str) -> dict[str, str] | None:
        try:
            spans = self._program.spans(path, [0], whole=True)
        except OverflowError as error:
            why = (
                f"{path[:80]!r} can be read in too many ways; say what its names look like: "
                f"{{name:\\d+}}"
            )
            raise _pattern_error(self.text, self.where, why) from error
        if spans is None:
            return None
        return {name: path[slice(*spans[number])] for name, number in self.regex.groupindex.items()}

    def given(self, names: Mapping[str, str]) -> Template:
        """Return the pattern of those paths in which placeholders have these values."""
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
        """Return the text for these names, whatever they hold: for labels, not for paths."""
        return self._form % names

    @cached_property
    def _form(self) -> str:
        """The text with ``%(name)s`` in the place of each name: files are as many as samples."""
        return "".join(
            f"%({p.name})s" if isinstance(p, _Name) else _shown(p).replace("%", "%%")
            for p in self.parts
        )


def _shown(part: _Wildcard | str) -> str:
    return part.text if isinstance(part, _Wildcard) else part


@lru_cache(maxsize=512)
def parse(text: str, where: str, *, path: bool = True) -> Template:
    """Return the pattern of `text`.

    Args:
        text: ``{name}`` is one or more characters without "/", ``{name:regex}`` what the expression
            matches, ``*`` any characters without "/", ``**/`` any number of folders; everything
            else stands for itself.
        where: the schema key, for messages.
        path: the pattern is of paths: relative, without "." and "..".

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


def _compiled(text: str, where: str, parts: tuple[_Part, ...]) -> Template:
    names = tuple(dict.fromkeys(part.name for part in parts if isinstance(part, _Name)))
    trees = _trees(text, where, parts)
    levels = [_level(level, parts, trees) for level in _levels(parts)]
    seen: set[str] = set()
    source = "".join(
        _joined(level, seen, once=alone and growth != Growth(1)) for level, growth, alone in levels
    )
    try:
        regex = re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise _pattern_error(
            text, where, f"its regular expression is malformed: {error}"
        ) from error
    if set(regex.groupindex) != set(names):
        raise _pattern_error(
            text, where, "a constraint may not name groups of its own: write (?:...)"
        )
    others = Growth()
    for _, growth, alone in levels:
        others = others if alone else others.and_then(growth)
    ways = _PathGrowth(
        sum(part == _FOLDERS for part in parts),
        tuple(growth for _, growth, alone in levels if alone),
        others,
    )
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
                trees[part.rule] = parsed(part.rule)
            except ValueError as error:
                raise _pattern_error(text, where, f"its regular expression {error}") from error
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


def _level(
    level: list[_Part], parts: Sequence[_Part], trees: Mapping[str, Any]
) -> tuple[list[_Part], Growth, bool]:
    """Return a level, how its ways grow, and whether it is matched on its own: once, in the first way that fits."""
    whole, names = Growth(), [part.name for part in parts if isinstance(part, _Name)]
    alone = True
    for part in level:
        if isinstance(part, _Name) and part.rule:
            whole = whole.and_then(growth(trees[part.rule]))
            alone &= not may_match(trees[part.rule], "/")
        elif not isinstance(part, str):
            whole = whole.and_then(Growth(int(part != _FOLDERS)))
            alone &= isinstance(part, _Name) or part.text == "*"
    again = any(isinstance(part, _Name) and names.count(part.name) > 1 for part in level)
    return level, whole, alone and (not again or whole in {Growth(), Growth(1)})


def _joined(level: Sequence[_Part], seen: set[str], *, once: bool) -> str:
    """Return the expression of a level; where it is matched once, later levels make it try no second way."""
    source = "".join(_expression(part, seen) for part in level)
    if not once or all(isinstance(part, str) for part in level):
        return source
    ended = isinstance(level[-1], str) and level[-1].endswith("/")
    return f"(?>{source})" if ended else rf"(?>{source}\Z)"


def _pattern_error(text: str, where: str, why: str) -> SchemaError:
    place = f"{where}: " if where else ""
    return SchemaError(
        f"{place}cannot read {text!r}: {why}. Patterns look like '{{split}}/{{id}}.npy'."
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
            wild = next(w for w in ("**/", "**", "*") if text.startswith(w, place))
            parts.append(_Wildcard(wild))
            place += len(wild)
        else:
            stop = next((i for i in range(place, len(text)) if text[i] in "{*"), len(text))
            parts.append(text[place:stop])
            place = stop
    if any(isinstance(part, str) and "}" in part for part in parts):
        raise _pattern_error(text, where, "a '}' closes nothing")
    return parts


def _closing(text: str, start: int, where: str) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise _pattern_error(text, where, "a '{' is never closed")


def _named(inner: str, text: str, where: str) -> _Name:
    name, colon, rule = inner.partition(":")
    if not name.isidentifier() or not name.isascii():
        raise _pattern_error(
            text, where, f"{{{inner}}} is no name; write {{name}} or {{name:regular expression}}"
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
    plain = "".join(
        "x" if isinstance(p, _Name) else p.text if isinstance(p, _Wildcard) else p for p in parts
    )
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
            why = (
                f"where {{{left.name}}} ends is open; say what it looks like: "
                f"{{{left.name}:train|val}}"
            )
            raise _pattern_error(text, where, why)
