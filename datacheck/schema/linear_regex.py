"""Match regular expressions that users wrote in linear time.

Python's `re` backtracks, which takes exponential time for ``(x+x+)+y``. It is used only where
`Growth` shows that the number of ways to match is small. Otherwise a `Program` tries the ways in
the same order, but visits each state at a position only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import comb
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

# Attempts up to which `re` is used: a few milliseconds.
WAYS = 300_000
# Levels of groups in a pattern, and steps of its program, which counted repeats multiply.
_MOST_LEVELS = 50
_MOST_STEPS = 4_000
# Characters of a lookahead: it runs at every position.
_MOST_LOOKAHEAD = 100
# States of a run with back-references, whose number grows faster than the text.
_MOST_STATES = 100_000

_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.ASCII
_REFUSED = {
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
_REPEATS = {op.MAX_REPEAT, op.MIN_REPEAT}
_SINGLE_CHARACTERS = {op.ANY, op.IN, op.LITERAL, op.NOT_LITERAL}
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

# Nodes of the parse tree of `re`: (kind, value).
Nodes = Iterable[tuple[Any, Any]]
# The last saved slot and position, and the saves before it.
_Saved = tuple[int, int, Any] | None


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


def parse_tree(expression: str) -> Any:
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
    _check_depth(tree)
    for kind, value in _every(tree):
        if str(kind) in _REFUSED:
            msg = f"has {_REFUSED[str(kind)]}, which is not read here"
            raise ValueError(msg)
        if kind in {op.ASSERT, op.ASSERT_NOT} and value[1].getwidth()[1] > _MOST_LOOKAHEAD:
            msg = f"looks ahead, or back, by more than {_MOST_LOOKAHEAD} characters"
            raise ValueError(msg)
    if _size(tree) > _MOST_STEPS:
        msg = f"is longer than {_MOST_STEPS:,} characters once its counted repeats are written out"
        raise ValueError(msg)
    return tree


def _check_depth(nodes: Nodes, left: int = _MOST_LEVELS) -> None:
    if not left:
        msg = f"has groups nested more than {_MOST_LEVELS} deep"
        raise ValueError(msg)
    for kind, value in nodes:
        for inner in _inside(kind, value):
            _check_depth(inner, left - 1)


def _inside(kind: Any, value: Any) -> list[Any]:
    """Return the subexpressions of a node."""
    if kind in _REPEATS or kind in {op.SUBPATTERN, op.POSSESSIVE_REPEAT}:
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
    """Return the approximate number of steps of an expression, at most `_MOST_STEPS` + 1."""
    total = 0
    for kind, value in nodes:
        inner = 1 + sum(_size(part) for part in _inside(kind, value))
        if kind in _REPEATS:
            least, most, _ = value
            # An open end is a loop, which is not written out.
            inner *= max(1, int(least), 0 if most is op.MAXREPEAT else int(most))
        total = min(total + inner, _MOST_STEPS + 1)
    return total


def may_match(nodes: Nodes, char: str) -> bool:
    """Return whether a match of an expression can contain a character."""
    return any(
        kind in _SINGLE_CHARACTERS and _character_test(kind, value, 0)(char) is not None
        for kind, value in _every(nodes)
    )


def growth_of(nodes: Nodes) -> Growth:
    """Return how the ways to match grow with the text; a choice inside a loop exceeds `WAYS`."""
    total = Growth()
    for kind, value in nodes:
        inner = [growth_of(part) for part in _inside(kind, value)]
        if kind is op.BRANCH:
            loops = max(part.loops for part in inner)
            total = total.and_then(Growth(loops, sum(part.ways for part in inner)))
        elif kind in _REPEATS:
            has_choice_in_loop = int(value[1]) > 1 and inner[0] != Growth()
            total = total.and_then(Growth(0, WAYS + 1) if has_choice_in_loop else inner[0])
            has_open_end = value[0] != value[1]
            total = total.and_then(Growth(int(has_open_end)))
        else:
            for part in inner:
                total = total.and_then(part)
    return total


class _Step(NamedTuple):
    """A step of a program.

    Kinds, with their operands:
        char: test of the next character
        split: the step to try first, the step to try later
        jump: the next step
        save: the slot that keeps the position
        last: the step behind a loop, the slot with the position at which the loop began; taken if
            the loop has consumed no character
        ref: the group whose text must follow
        at: test of the position, such as the end of a line
        look: steps that must match ahead or behind, (characters to go back, whether they must)
        match: the end
    """

    kind: str
    operand: Any = None
    other: Any = None


# A place that gets its step when its target is known.
_OPEN = _Step("jump", -1)


class Program:
    """A compiled expression: steps that run at most once per position of a text.

    Args:
        expression: a regular expression; `parse_tree` has accepted a user's part of it.
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
        return [*steps, _Step("match")]

    def _add(self, nodes: Nodes, flags: int, steps: list[_Step]) -> None:
        for kind, value in nodes:
            if kind is op.BRANCH:
                self._add_branches(value[1], flags, steps)
            elif kind is op.SUBPATTERN:
                self._add_group(value, flags, steps)
            elif kind in _REPEATS:
                self._add_repeat(value, flags, steps, greedy=kind is op.MAX_REPEAT)
            elif kind in {op.ASSERT, op.ASSERT_NOT}:
                direction, inner = value
                back = 0 if direction > 0 else inner.getwidth()[1]
                inner_steps = self._built(inner, flags)
                steps.append(_Step("look", inner_steps, (back, kind is op.ASSERT)))
            elif kind is op.GROUPREF:
                steps.append(_Step("ref", value))
            elif kind is op.AT:
                steps.append(_Step("at", re.compile(_ANCHORS[value], flags & _FLAGS).match))
            else:
                steps.append(_Step("char", _character_test(kind, value, flags)))

    def _add_group(self, value: Any, flags: int, steps: list[_Step]) -> None:
        group, added_flags, removed_flags, inner = value
        inner_flags = (flags | added_flags) & ~removed_flags
        if group not in self._kept:
            self._add(inner, inner_flags, steps)
            return
        steps.append(_Step("save", 2 * group))
        self._add(inner, inner_flags, steps)
        steps.append(_Step("save", 2 * group + 1))

    def _add_branches(self, branches: Any, flags: int, steps: list[_Step]) -> None:
        ends = []
        for branch in branches[:-1]:
            split = len(steps)
            steps.append(_OPEN)
            self._add(branch, flags, steps)
            ends.append(len(steps))
            steps.append(_OPEN)
            steps[split] = _Step("split", split + 1, len(steps))
        self._add(branches[-1], flags, steps)
        for end in ends:
            steps[end] = _Step("jump", len(steps))

    def _add_repeat(self, value: Any, flags: int, steps: list[_Step], *, greedy: bool) -> None:
        least, most, body = value
        for _ in range(least):
            self._add(body, flags, steps)
        splits = []
        ends = []
        # As in `re`, a repetition that consumes no character ends the loop.
        may_be_empty = greedy and body.getwidth()[0] == 0
        for _ in range(1 if most is op.MAXREPEAT else most - least):
            split = len(steps)
            splits.append(split)
            steps.append(_OPEN)
            if may_be_empty:
                steps.append(_Step("save", _loop_slot(split)))
            self._add(body, flags, steps)
            if may_be_empty:
                ends.append((len(steps), _loop_slot(split)))
                steps.append(_OPEN)
        if most is op.MAXREPEAT:
            steps.append(_Step("jump", splits[0]))
        for split in splits:
            ways = (split + 1, len(steps)) if greedy else (len(steps), split + 1)
            steps[split] = _Step("split", *ways)
        for end, slot in ends:
            steps[end] = _Step("last", len(steps), slot)

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
                return {0: (start, end)} | _group_spans(saved)
        return None


def _loop_slot(split: int) -> int:
    """Return the slot for the position at which a loop began last; groups have slots from 0 on."""
    return -1 - split


def _group_spans(saved: _Saved) -> dict[int, tuple[int, int]]:
    """Return the spans of the groups: the last positions saved in their slots."""
    places: dict[int, int] = {}
    while saved is not None:
        slot, place, saved = saved
        places.setdefault(slot, place)
    return {
        slot // 2: (place, places[slot + 1])
        for slot, place in places.items()
        if slot >= 0 and slot % 2 == 0
    }


class _MatchState:
    """A program run on one text; visits each state only once, across all start positions."""

    def __init__(
        self, steps: Sequence[_Step], refs: Sequence[int], text: str, *, whole: bool
    ) -> None:
        self._steps = steps
        self._text = text
        self._whole = whole
        self._has_refs = bool(refs)
        # A back-reference matches what its group matched, so its slots are part of the state.
        self._state_slots = [slot for group in refs for slot in (2 * group, 2 * group + 1)]
        self._seen: set[Any] = set()
        self._waiting: list[tuple[int, int, _Saved]] = []

    def start(self, place: int) -> tuple[int, _Saved] | None:
        """Return the end of the first match that begins at `place`, and its saves."""
        self._waiting = [(0, place, None)]
        while self._waiting:
            result = self._follow(*self._waiting.pop())
            if result is not None:
                return result
            if self._has_refs and len(self._seen) > _MOST_STATES:
                raise OverflowError
        return None

    def _follow(self, step_index: int, place: int, saved: _Saved) -> tuple[int, _Saved] | None:
        """Follow one way; return where its match ends, None without a match."""
        while step_index >= 0:
            kind, value, other = self._steps[step_index]
            if kind == "char":
                fits = place < len(self._text) and value(self._text[place]) is not None
                step_index = step_index + 1 if fits else -1
                place += 1
            elif kind == "split":
                state = (step_index, place, *(_place(saved, slot) for slot in self._state_slots))
                if state in self._seen:
                    return None
                self._seen.add(state)
                self._waiting.append((other, place, saved))
                step_index = value
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
        if kind == "ref":
            start = _place(saved, 2 * value)
            end = _place(saved, 2 * value + 1)
            fits = 0 <= start <= end and self._text.startswith(self._text[start:end], place)
            return (step_index + 1 if fits else -1), place + end - start, saved
        fits = (
            value(self._text, place) is not None if kind == "at" else self._looks(step_index, place)
        )
        return (step_index + 1 if fits else -1), place, saved

    def _looks(self, step_index: int, place: int) -> bool:
        """Tell whether the text ahead of a position, or behind it, is as a step demands."""
        _, inner_steps, (back, is_positive) = self._steps[step_index]
        if place < back:
            return not is_positive
        inner = _MatchState(inner_steps, (), self._text, whole=False)
        return (inner.start(place - back) is not None) is bool(is_positive)


def _place(saved: _Saved, slot: int) -> int:
    """Return the position saved last in a slot, -1 if none."""
    while saved is not None:
        if saved[0] == slot:
            return saved[1]
        saved = saved[2]
    return -1


def _character_test(kind: Any, value: Any, flags: int) -> Callable[[str], Any]:
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
        ValueError: as for `parse_tree`.
    """

    def __init__(self, text: str) -> None:
        tree = parse_tree(text)
        self._text = text
        self._growth = growth_of(tree)
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
