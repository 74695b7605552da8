"""Match path patterns and users' regular expressions in linear time.

Python's `re` backtracks, which takes exponential time for ``(x+x+)+y``. It is used only where the
number of ways to match is small. Otherwise a matcher tries the ways in the same order, but visits
each state at a position only once.
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

WAYS = 300_000  # limit of attempts for `re`: a few milliseconds
_STEPS = 4_000  # limit for the steps of a program
_AHEAD = 100  # limit for a lookahead in characters: it runs at every position
_STATES = 100_000  # state limit for an expression with a repeated name
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
_Step = tuple[str, Any, Any]  # operation and operands
_OPEN: _Step = ("jump", -1, None)  # patched later with its target
_Saved = tuple[int, int, Any] | None  # slot, position, previous saves


class Growth(NamedTuple):
    """Bounds the number of ways to match a text: `ways` times the choices of `loops` loops."""

    loops: int = 0
    ways: int = 1

    def at(self, length: int) -> int:
        """Return the maximum number of ways for a text of this length."""
        return self.ways * comb(length + self.loops, self.loops)

    def and_then(self, other: Growth) -> Growth:
        """Return the growth of two consecutive expressions."""
        return Growth(self.loops + other.loops, self.ways * other.ways)


def parsed(expression: str) -> Any:
    """Return the parse tree of an expression.

    Raises:
        ValueError: it is malformed, or cannot be matched in linear time; the text is the end of a
            sentence.
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
    """Return the subexpressions of a node."""
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
    """Return the approximate number of steps of an expression, at most `_STEPS` + 1."""
    total = 0
    for kind, value in nodes:
        inner = 1 + sum(_size(part) for part in _inside(kind, value))
        if kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
            inner *= max(1, int(value[0]), 0 if value[1] is op.MAXREPEAT else int(value[1]))
        total = min(total + inner, _STEPS + 1)
    return total


def may_match(nodes: Nodes, char: str) -> bool:
    """Return whether a match of an expression can contain a character."""
    single = {op.ANY, op.IN, op.LITERAL, op.NOT_LITERAL}
    return any(
        kind in single and _test(kind, value, 0)(char) is not None for kind, value in _every(nodes)
    )


def growth(nodes: Nodes) -> Growth:
    """Return how the ways to match grow with the text; a choice inside a loop exceeds `WAYS`."""
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
    """A compiled expression: steps that run at most once per position of a text.

    Args:
        expression: a regular expression; `parsed` has accepted a user's part of it.
        kept: numbers of the groups whose positions are needed.
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
                group, added_flags, removed_flags, inner = value
                is_kept = group in self._kept
                steps += [("save", 2 * group, None)] if is_kept else []
                self._add(inner, (flags | added_flags) & ~removed_flags, steps)
                steps += [("save", 2 * group + 1, None)] if is_kept else []
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
            step_index = len(steps)
            steps.append(_OPEN)
            self._add(branch, flags, steps)
            ends.append(len(steps))
            steps.append(_OPEN)
            steps[step_index] = ("split", step_index + 1, len(steps))
        self._add(branches[-1], flags, steps)
        for step_index in ends:
            steps[step_index] = ("jump", len(steps), None)

    def _repeat(self, value: Any, flags: int, steps: list[_Step], *, greedy: bool) -> None:
        low, high, body = value
        for _ in range(low):
            self._add(body, flags, steps)
        splits = []
        ends = []
        # As in `re`, a repetition that consumes no character ends the loop.
        empty = greedy and body.getwidth()[0] == 0
        for _ in range(1 if high is op.MAXREPEAT else high - low):
            splits.append(len(steps))
            steps += [_OPEN, ("save", -1 - len(steps), None)] if empty else [_OPEN]
            self._add(body, flags, steps)
            if empty:
                ends.append((len(steps), -1 - splits[-1]))
                steps.append(_OPEN)
        if high is op.MAXREPEAT:
            steps.append(("jump", splits[0], None))
        for step_index in splits:
            steps[step_index] = (
                ("split", step_index + 1, len(steps))
                if greedy
                else ("split", len(steps), step_index + 1)
            )
        for step_index, slot in ends:
            steps[step_index] = ("last", len(steps), slot)

    def spans(
        self, text: str, starts: Iterable[int], *, whole: bool
    ) -> dict[int, tuple[int, int]] | None:
        """Return the spans of the groups, None without a match.

        Args:
            text: the text to match.
            starts: possible start positions, in the order of trial.
            whole: the match must end at the end of the text.

        Raises:
            OverflowError: a repeated name leads to too many states.
        """
        run = _MatchState(self._steps, self._refs, text, whole=whole)
        for start in starts:
            result = run.start(start)
            if result is not None:
                end, saved = result
                places: dict[int, int] = {}
                while saved is not None:
                    places.setdefault(saved[0], saved[1])
                    saved = saved[2]
                inner = {
                    slot // 2: (position, places[slot + 1])
                    for slot, position in places.items()
                    if slot >= 0 and slot % 2 == 0
                }
                return {0: (start, end)} | inner
        return None


class _MatchState:
    """A program run on one text; visits each state only once, across all start positions."""

    def __init__(
        self, steps: Sequence[_Step], refs: Sequence[int], text: str, *, whole: bool
    ) -> None:
        self._steps, self._refs, self._text, self._whole = steps, refs, text, whole
        self._seen: set[Any] = set()
        self._waiting: list[tuple[int, int, _Saved]] = []

    def start(self, place: int) -> tuple[int, _Saved] | None:
        """Return the end of the first match that begins at `place`, and its saves."""
        self._waiting = [(0, place, None)]
        while self._waiting:
            result = self._follow(*self._waiting.pop())
            if result is not None:
                return result
            if self._refs and len(self._seen) > _STATES:
                raise OverflowError
        return None

    def _follow(self, step_index: int, place: int, saved: _Saved) -> tuple[int, _Saved] | None:
        """Follow one way; return where its match ends, None without a match."""
        while step_index >= 0:
            kind, value, other = self._steps[step_index]
            if kind == "char":
                fits = place < len(self._text) and value(self._text[place]) is not None
                step_index, place = (step_index + 1 if fits else -1), place + 1
            elif kind == "split":
                state = (
                    step_index,
                    place,
                    *(
                        _place(saved, slot)
                        for group in self._refs
                        for slot in (2 * group, 2 * group + 1)
                    ),
                )
                is_known = state in self._seen
                if not is_known:
                    self._seen.add(state)
                    self._waiting.append((other, place, saved))
                step_index = -1 if is_known else value
            elif kind == "match":
                return None if self._whole and place < len(self._text) else (place, saved)
            else:
                step_index, place, saved = self._moved(step_index, place, saved)
        return None

    def _moved(self, step_index: int, place: int, saved: _Saved) -> tuple[int, int, _Saved]:
        """Return the next step, position and saves; step -1 if the text does not match."""
        kind, value, other = self._steps[step_index]
        if kind == "jump":
            return value, place, saved
        if kind == "save":
            return step_index + 1, place, (value, place, saved)
        if kind == "last":
            return (value if _place(saved, other) == place else step_index + 1), place, saved
        fits, length = False, 0
        if kind == "at":
            fits = value(self._text, place) is not None
        elif kind == "ref":
            start = _place(saved, 2 * value)
            end = _place(saved, 2 * value + 1)
            length = end - start
            fits = 0 <= start <= end and self._text.startswith(self._text[start:end], place)
        else:
            back, is_positive = other
            is_match = (
                place >= back
                and _MatchState(value, (), self._text, whole=False).start(place - back) is not None
            )
            fits = is_match == is_positive
        return (step_index + 1 if fits else -1), place + length, saved


def _place(saved: _Saved, slot: int) -> int:
    """Return the position saved last in a slot, -1 if none."""
    while saved is not None:
        if saved[0] == slot:
            return saved[1]
        saved = saved[2]
    return -1


def _test(kind: Any, value: Any, flags: int) -> Callable[[str], Any]:
    """Return the test of a single character."""
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
    """A regular expression written by a user.

    Args:
        text: in the syntax of `re`.

    Raises:
        ValueError: as for `parsed`.
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
        """Return whether the whole text matches."""
        if self._growth.at(len(text)) <= WAYS:
            return self._regex.fullmatch(text) is not None
        return self._program.spans(text, [0], whole=True) is not None

    def search(self, text: str) -> str | None:
        """Return the first match: its first group ("" if unmatched), or all of it; None if none."""
        if self._growth.at(len(text)) * (len(text) + 1) <= WAYS:
            match = self._regex.search(text)
            return None if match is None else match[1] or "" if self._regex.groups else match[0]
        spans = self._program.spans(text, range(len(text) + 1), whole=False)
        if spans is None:
            return None
        start, end = spans.get(1, (0, 0)) if self._regex.groups else spans[0]
        return text[start:end]


# {frame:04d}: a Python print format, not a regular expression.
_FORMAT_SPEC = re.compile(r"0?\d*[ds]")


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
    """

    text: str
    where: str
    parts: tuple[_Part, ...]
    names: tuple[str, ...]
    regex: re.Pattern[str]
    growth: _PathGrowth

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
            names = self._slowly(path)
        else:
            result = self.regex.fullmatch(path)
            names = None if result is None else result.groupdict()
        return None if names is None or any("/" in value for value in names.values()) else names

    @cached_property
    def _quick_length(self) -> int:
        """The path length up to which `re` is fast for any path."""
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
            reason = (
                f"{path[:80]!r} can be read in too many ways; say what its names look like: "
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
            f"%({p.name})s" if isinstance(p, _Name) else _shown(p).replace("%", "%%")
            for p in self.parts
        )


def _shown(part: _Wildcard | str) -> str:
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
    """Return the parse trees of the placeholders' constraints.

    Raises:
        SchemaError: a constraint is malformed, or cannot be matched in linear time.
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


def _level(
    level: list[_Part], parts: Sequence[_Part], trees: Mapping[str, Any]
) -> tuple[list[_Part], Growth, bool]:
    """Return a level, its growth, and whether it is matched on its own.

    A level on its own is matched once, in the first way that fits.
    """
    total_growth = Growth()
    names = [part.name for part in parts if isinstance(part, _Name)]
    alone = True
    for part in level:
        if isinstance(part, _Name) and part.rule:
            total_growth = total_growth.and_then(growth(trees[part.rule]))
            alone &= not may_match(trees[part.rule], "/")
        elif not isinstance(part, str):
            total_growth = total_growth.and_then(Growth(int(part != _FOLDERS)))
            alone &= isinstance(part, _Name) or part.text == "*"
    has_repeats = any(isinstance(part, _Name) and names.count(part.name) > 1 for part in level)
    return level, total_growth, alone and (not has_repeats or total_growth in {Growth(), Growth(1)})


def _joined(level: Sequence[_Part], seen: set[str], *, once: bool) -> str:
    """Return the expression of a level; `once` makes it an atomic group without backtracking."""
    source = "".join(_expression(part, seen) for part in level)
    if not once or all(isinstance(part, str) for part in level):
        return source
    ended = isinstance(level[-1], str) and level[-1].endswith("/")
    return f"(?>{source})" if ended else rf"(?>{source}\Z)"


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
            reason = (
                f"where {{{left.name}}} ends is open; say what it looks like: "
                f"{{{left.name}:train|val}}"
            )
            raise _pattern_error(text, where, reason)
