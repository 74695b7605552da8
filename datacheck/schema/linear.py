"""Regular expressions of schemas in linear time: no pattern and no name makes a search take for ever.

Python's `re` tries one way after the other, which takes exponential time for ``(x+x+)+y``. It is used where the number
of ways is small; else a matcher that tries them in the same order, but none twice from the same place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import comb
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

WAYS = 300_000  # that `re` may try: a few milliseconds
_STEPS = 4_000  # of a program
_AHEAD = 100  # characters that a look-ahead may see: it is tried at every place
_STATES = 100_000  # of an expression with a name that stands twice
_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.ASCII
_REFUSED = {
    "GROUPREF": "a back-reference", "GROUPREF_EXISTS": "a conditional group", "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}  # fmt: skip
_ANCHORS = {
    op.AT_BEGINNING: "^", op.AT_BEGINNING_STRING: r"\A", op.AT_BOUNDARY: r"\b", op.AT_NON_BOUNDARY: r"\B",
    op.AT_END: "$", op.AT_END_STRING: r"\Z",
}  # fmt: skip
_CLASSES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip

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
        ValueError: it is malformed, or of a kind that cannot be matched in linear time; how a sentence about it ends.
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
    return any(kind in single and _test(kind, value, 0)(char) is not None for kind, value in _every(nodes))


def growth(nodes: Nodes) -> Growth:
    """Return how the ways to match a text grow with it; a choice within a loop makes them more than `WAYS` at once."""
    total = Growth()
    for kind, value in nodes:
        inside = [growth(part) for part in _inside(kind, value)]
        if kind is op.BRANCH:
            total = total.and_then(Growth(max(part.loops for part in inside), sum(part.ways for part in inside)))
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
        empty = greedy and body.getwidth()[0] == 0  # one that takes no character is the last, as of `re`
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

    def spans(self, text: str, starts: Iterable[int], *, whole: bool) -> dict[int, tuple[int, int]] | None:
        """Return where the groups match, None where the expression does not.

        Args:
            text: what is matched.
            starts: where it may begin, in the order in which they are tried.
            whole: it has to end where the text does.

        Raises:
            OverflowError: a name that stands twice makes it too many ways.
        """
        run = _Run(self._steps, self._refs, text, whole=whole)
        for start in starts:
            found = run.start(start)
            if found is not None:
                end, saved = found
                places: dict[int, int] = {}
                while saved is not None:
                    places.setdefault(saved[0], saved[1])
                    saved = saved[2]
                inner = {
                    slot // 2: (at, places[slot + 1]) for slot, at in places.items() if slot >= 0 and slot % 2 == 0
                }
                return {0: (start, end)} | inner
        return None


class _Run:
    """A program on its way through one text; where it was before, whatever came before, it goes no second time."""

    def __init__(self, steps: Sequence[_Step], refs: Sequence[int], text: str, *, whole: bool) -> None:
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
                    *(_place(saved, slot) for group in self._refs for slot in (2 * group, 2 * group + 1)),
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
            found = place >= back and _Run(value, (), self._text, whole=False).start(place - back) is not None
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
