"""Rules about tags of words: named entities and other spans in BIO, beside a list of words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, count_phrase, measure, pluralize, rule
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_OUTSIDE = "O"
_SPAN_TAG = re.compile(r"([BIESLUM])-(\S{1,60})")
_BEGINS = frozenset("BSU")
_GOES_ON = frozenset("BIM")  # a tag of the same class may follow
_MOST_WORDS = 100_000
# Marks that end something: no name begins with them.
_CLOSING = re.compile(r"[.,;:!?)\]}\u2026\u3002\uff0c\u3001\uff01\uff1f\uff1b\uff1a\uff09]+")
# From this share of the samples with spans on, a finding is a warning.
_GRAVE = 0.005
_LONGER = 8.0  # times the longest of the others
_FEW_LONG = 0.01
_FEW_EMPTY = 0.02
# Starts of spans on capitals: so many times as many one word earlier as where the tags are.
_EARLIER = 2.0
_FEWEST_LATE = 2
_FEWEST_MOVED = 5  # samples


def _lists(schema: Schema) -> list[str]:
    """Return the fields of lists: words, then tags, by their usual names, then the others."""
    names = [n for n, spec in schema.fields.items() if spec.dtype == "json" and spec.role is None]
    return sorted(names, key=lambda name: (name not in _WORDS, name not in _TAGS, name))


@measure("span_tags", per="sample", uses=("fields.role", "fields.dtype"))
def span_tags(block: Block, schema: Schema) -> Columns:
    """Tags of spans beside words: `tagged`, `tags_short`, `words_empty`, `span_starts`, ...

    `tagged` tags, `tags_short` as many fewer than words; empty words; `span_starts`; tags within a span
    that has no start, `span_orphans`; starts on a closing mark, `span_marks`, on a capital,
    `span_capitals`, and behind a capital, `span_late`. Samples without tags have no row.
    """
    lists = [
        block.fields[name].objects
        for name in _lists(schema)
        if name in block.fields and block.fields[name].kind == "json"
    ]
    counts = np.zeros((len(_COUNTS), len(block)), np.int64)
    present = np.zeros(len(block), bool)
    for i, values in enumerate(zip(*lists, strict=True)):
        words, tags = _words_and_tags(values)
        if tags:
            present[i] = True
            counts[:, i] = _count(words, tags)
    if not present.any():
        return {}
    return {name: Measured(counts[k], present) for k, name in enumerate(_COUNTS)}


_WORDS = {"words", "tokens"}
_TAGS = {"tags", "ner_tags"}
_COUNTS = (
    "tagged",
    "tags_short",
    "words_empty",
    "span_starts",
    "span_orphans",
    "span_marks",
    "span_capitals",
    "span_late",
)


def _words_and_tags(values: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Return the words of a sample and their tags; no tags where no list holds only tags of spans.

    The words are the first other list of the same length, or else the only other list.
    """
    lists = [value for value in values if _is_words(value)]
    tags: list[str] = next((value for value in lists[1:] + lists[:1] if _are_tags(value)), [])
    others = [value for value in lists if value is not tags]
    equal = [value for value in others if len(value) == len(tags)]
    return (equal or (others if len(others) == 1 else []) or [[]])[0], tags


def _is_words(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MOST_WORDS
        and all(isinstance(word, str) for word in value)
    )


def _are_tags(tags: list[str]) -> bool:
    return all(tag == _OUTSIDE or _SPAN_TAG.fullmatch(tag) for tag in set(tags))


def _count(words: list[str], tags: list[str]) -> tuple[int, ...]:
    """Return the numbers of `_COUNTS`; words of another number than tags are not looked at."""
    short = len(words) - len(tags) if words else 0
    empty = sum(not word.strip() for word in words)
    words = words if words and not short else [""] * len(tags)
    starts = orphans = marks = capitals = late = 0
    before, word_before = _OUTSIDE, ""
    for word, tag in zip(words, tags, strict=True):
        if tag[0] in _BEGINS:
            starts += 1
            marks += _CLOSING.fullmatch(word) is not None
            capitals += word[:1].isupper()
            late += word_before[:1].isupper()
        elif tag != _OUTSIDE:
            orphans += before[0] not in _GOES_ON or before[1:] != tag[1:]
        before, word_before = tag, word
    return len(tags), short, empty, starts, orphans, marks, capitals, late


@rule(
    "DC719",
    "word-tags",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(span_tags,),
    suppressed_by=("DC121", "DC122", "DC701"),
    unless=lambda schema: "" if _lists(schema) else "no lists that could be words and tags",
    defaults={"least": 30, "orphans": 0.1},
)
def word_tags(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Tags of words do not fit the words, or each other.

    What:
        In a list of tags of spans (``O``, ``B-PER``, ``I-PER``; also BIOES and BILOU) there is one
        tag for each word, and no word is empty. Tags within a span follow a tag of the same class.
        No span begins on a mark that ends something, such as a comma. No sentence is many times as
        long as all others.
    Why it matters:
        Tags that moved by a word teach the model to mark the word behind a name. Joined sentences
        are cut at the length of the model, and the rest is never trained on.
    Measure:
        Lists of texts of one sample: the tags are the list with nothing but ``O`` and tags of
        spans, the words another of the same length. Words that are empty in more than 2 % of the
        samples are blanks, and not reported. A share of tags within a span, without a start, above
        ``orphans`` of all starts is a scheme (IOB1): starts are not judged. In less than 0.5 % of
        the samples with spans these findings, and spans that begin on a mark, are for information.
        Where spans of more samples (5 at least) begin on marks, and the starts of these samples lie
        behind capitals twice as often as on them, the tags stand one word late; samples with
        several starts, all of them behind capitals and none on one, are counted, too. A sentence is
        too long if it has 8 times as many words as the longest of the other 99 %.
    When it is wrong:
        Documents stand among sentences: ``DC719: off``.
    Options:
        least: fewest samples with tags for the length of sentences (30).
        orphans: share of the spans without a start from which on this is the scheme (0.1).
    Bad::

        schema: {fields: {w: {dtype: json}, t: {dtype: json}}, rules: {DC803: off}}
        samples:
          - {n: 60, w: {json: [In, Oslo, ",", rain]}, t: {json: [O, B-LOC, O, O]}}
          - {n: 2, w: {json: [In, Rome, ",", rain]}, t: {json: [O, O, B-LOC, O]}}

    Good::

        schema: {fields: {w: {dtype: json}, t: {dtype: json}}, rules: {DC803: off}}
        samples:
          - {n: 60, w: {json: [In, Oslo, ",", rain]}, t: {json: [O, B-LOC, O, O]}}
          - {n: 2, w: {json: [In, New, York, "."]}, t: {json: [O, B-LOC, I-LOC, O]}}

    Fix:
        Align words and tags again from the original annotation, and restore the empty lines between
        sentences.
    Reference:
        Ramshaw and Marcus 1995 (IOB); seqeval counts a tag without a start as a span of its own.
    """
    measured = rows.measured("tagged", "span_starts")
    if not measured.any():
        return
    numbers = {name: np.where(measured, rows[name], 0) for name in _COUNTS}
    yield from _uneven(measured, numbers["tags_short"])
    yield from _empty(measured, numbers["words_empty"])
    starts, orphans = numbers["span_starts"], numbers["span_orphans"]
    # In the scheme IOB1 hardly any span has a start.
    is_marked = orphans.sum() <= float(case.options["orphans"]) * starts.sum()
    if is_marked and orphans.any():
        mask = orphans > 0
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} tags within a span that do not follow a tag of the same "
            f"class ({int(orphans.sum()):,} tags; {int(starts.sum()):,} spans begin as they should).",
            measured={"tags": int(orphans.sum()), "starts": int(starts.sum())},
            severity=_severity(mask, starts),
            fix="Correct the first tag of the span, or its class.",
            kind="orphan",
            order=orphans,
        )
    if is_marked:
        yield from _late(numbers)
    yield from _long(measured, numbers["tagged"], int(case.options["least"]))


def _severity(mask: Array, starts: Array) -> Severity:
    """Return how grave a finding is: a few slips of annotators are for information."""
    few = int(mask.sum()) < _GRAVE * int((starts > 0).sum())
    return Severity.INFO if few else Severity.WARNING


def _uneven(measured: Array, short: Array) -> Iterator[Failure]:
    mask = measured & (short != 0)
    if not mask.any() or 2 * int(mask.sum()) > int(measured.sum()):
        return
    first = int(short[np.flatnonzero(mask)[0]])
    yield Failure(
        mask,
        f"{count_phrase(mask, 'have')} another number of tags than of words; the first has "
        f"{pluralize(abs(first), 'tag')} too {'few' if first > 0 else 'many'}.",
        severity=Severity.ERROR,
        fix="Align words and tags again from the original annotation, or drop the samples.",
        kind="number",
    )


def _empty(measured: Array, empty: Array) -> Iterator[Failure]:
    mask = empty > 0
    # In more samples, blanks are words, as in texts that are tagged by character.
    if mask.any() and mask.sum() <= _FEW_EMPTY * measured.sum():
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} a tag without a word: {pluralize(int(empty.sum()), 'word')} "
            f"are empty or white space.",
            measured={"words": int(empty.sum())},
            fix="Restore the words, or remove these lines.",
            kind="empty",
            order=empty,
        )


def _late(numbers: dict[str, Array]) -> Iterator[Failure]:
    starts, marks = numbers["span_starts"], numbers["span_marks"]
    capitals, late = numbers["span_capitals"], numbers["span_late"]
    mask = marks > 0
    if not mask.any():
        return
    is_grave = _severity(mask, starts) is Severity.WARNING
    behind, on = float(late[mask].sum()), float(capitals[mask].sum())
    moved = is_grave and mask.sum() >= _FEWEST_MOVED and behind >= _EARLIER * max(1.0, on)
    cause = None
    if moved:
        mask |= (starts >= _FEWEST_LATE) & (capitals == 0) & (late == starts)
        cause = Cause("the tags stand one word late", "late", explains=int(mask.sum()))
    yield Failure(
        mask,
        f"{count_phrase(mask, 'hold')} a span that begins on a comma, a full stop or another "
        f"closing mark{', or only spans that begin behind a capital' if moved else ''}.",
        measured={"marks": int(marks.sum())},
        cause=cause,
        severity=_severity(mask, starts),
        fix="Move the tags of these sentences one word up." if moved else "Correct the spans.",
        kind="mark",
        order=marks,
    )


def _long(measured: Array, sizes: Array, least: int) -> Iterator[Failure]:
    if int(measured.sum()) < least:
        return
    ordered = np.sort(sizes[measured])
    usual = int(ordered[-1 - max(1, int(_FEW_LONG * len(ordered)))])
    longest = int(ordered[ordered < _LONGER * usual].max(initial=0))
    mask = measured & (sizes >= _LONGER * longest)
    if longest and mask.any():
        yield Failure(
            mask,
            f"{count_phrase(mask, 'have')} up to {int(sizes[mask].max()):,} words; the longest of the "
            f"others has {longest:,}.",
            measured={"words": int(sizes[mask].max()), "others": longest},
            cause=Cause(
                "empty lines between sentences are missing", "joined", explains=int(mask.sum())
            ),
            fix="Restore the empty lines between the sentences.",
            kind="long",
            order=sizes,
        )
