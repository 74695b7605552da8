"""Rules about splits and copies: nothing stands on both sides, nothing stands twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, listed, measure, rule, those
from datacheck.rules.classes import class_names, shares
from datacheck.rules.content import content, ranks
from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import CHECKED, Rows, Texts

Array = np.ndarray[Any, Any]

_SHOWN, _LONGEST = 3, 60
_CHANCE = 0.01  # that a random split would lack a class, above which its absence says nothing
_TOLD = 200  # splits one by one; a path may make as many as there are files


@measure("identity", per="sample", uses=("splits",), depth="structure")
def identity(block: Block, schema: Schema) -> Columns:
    """What samples must not share across splits: `split_key`, text ("" where nothing is known)."""
    del schema
    column = block.facts.get("split_key")
    if column is None:
        return {"split_key": [""] * len(block)}
    return {"split_key": [str(v) for v in column.objects] if column.kind != "array" else list(map(str, column.values))}


def _repeats(values: Array, known: Array, rank: Array) -> Array:
    """Return per row the lowest rank among the known rows of equal value."""
    lowest = np.full(len(values), np.iinfo(np.int64).max)
    if _alone(values[known]):
        lowest[known] = rank[known]
    elif known.any():
        _, which = np.unique(values[known], return_inverse=True)
        best = np.full(int(which.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(best, which, rank[known])
        lowest[known] = best[which]
    return lowest


def _alone(values: Array) -> bool:
    """Tell whether all values differ: sorting them takes a tenth of the time of finding which are equal."""
    if values.dtype.hasobject:
        return False
    values = np.sort(values)
    return not bool((values[1:] == values[:-1]).any())


def _crossings(
    rows: Rows, values: Array, known: Array, schema: Schema, words: str, names: Sequence[str] = ()
) -> Iterator[Failure]:
    """Yield per split the rows whose value stands in an earlier split too; `names`: those that the values number."""
    order, rank = ranks(rows, schema)
    known = known & (rank >= 0)
    lowest = _repeats(values, known, rank)
    places = np.unique(rank[known & (lowest < rank)]).tolist()
    for place in places[:_TOLD]:
        split, mask = order[place], known & (rank == place) & (lowest < place)
        total = int((known & (rank == place)).sum())
        of, left = counted(total), int((rank == place).sum()) - total
        of += f" that can be compared ({left:,} cannot)" if left else ""
        others = listed(order[int(i)] for i in np.unique(lowest[mask]))
        whole = int(mask.sum()) >= 0.9 * int((rank == place).sum())
        pairs = _shared(rows, values, mask, known & (rank < place), names) if names else []
        more = len(np.unique(values[mask])) - _SHOWN
        pairs += [f"{counted(more, 'other key')}"] if names and more > 0 else []
        yield Failure(
            mask,
            f"{split} {words} {others}: {'; '.join([f'{int(mask.sum()):,} of its {of}', *pairs])}.",
            measured={"shared": int(mask.sum()), "of": total, "split": split},
            cause=Cause(f"{split} is {others} again", "same-split", explains=int(mask.sum())) if whole else None,
            fix=f"Take them out of {split} or of {others}, or split again by what they share (datacheck split --help).",
            kind=split,
        )
    if rest := places[_TOLD:]:
        mask = known & (rank >= rest[0]) & (lowest < rank)
        shared = int(mask.sum())
        yield Failure(
            mask,
            f"{counted(len(rest), 'more split')} {words} earlier ones: {counted(shared)}.",
            measured={"shared": shared, "splits": len(rest)},
            fix="Take them out of these splits, or split again by what they share (datacheck split --help).",
        )


def _shared(rows: Rows, values: Array, here: Array, there: Array, names: Sequence[str]) -> list[str]:
    """Return what two sides share, and where it first stands on each: ``SiBF1: evaluation/SiBF10 and train/SiBF11``."""
    said = []
    for key in np.unique(values[here])[:_SHOWN].tolist():
        first, other = (int(np.flatnonzero(side & (values == key))[0]) for side in (here, there))
        said.append(f"{names[key][:_LONGEST]}: {_where(rows, first)} and {_where(rows, other)}")
    return said


def _where(rows: Rows, place: int) -> str:
    one = rows.where(np.arange(len(rows)) == place)
    return f"{one.splits[0]}/{one.groups[0]}" if one.groups[0] else one.keys[0]


@rule(
    "DC801", "split-overlap", Severity.ERROR, Level.DATASET, per="sample", measures=(content,),
    needs=("DC109", "DC602"),
    span="all",
)  # fmt: skip
def split_overlap(rows: Rows, case: Case) -> Iterator[Failure]:
    """The same sample stands in two splits.

    What:
        No content of one split occurs in another, under whatever name. The copy in the later split is named: splits in
        the order of ``splits: {disjoint: ...}``, else train first.
    Why it matters:
        Validation measures memory, and every choice made by it is wrong.
    Measure:
        Digest of the content, of episodes that of the actions; points in any order, coordinates as float32
        (of clouds far from the origin rounded to 1e-5 of their size); text without white space. Samples of less than
        24 bytes are not compared.
    When it is wrong:
        Two splits are meant to overlap: leave one out of ``disjoint``.
    Options:
        none
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}, splits: {key: file, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, xyz: {box: [50, 3]}}
          - {split: train, xyz: [[0, 0, 0.5], [1, 2, 3.0], [4, 5, 6.5]]}
          - {split: val, xyz: [[4, 5, 6.5], [0, 0, 0.5], [1, 2, 3.0]]}
          - {n: 3, split: val, xyz: {box: [50, 3]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}, splits: {key: file, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, xyz: {box: [50, 3]}}
          - {n: 3, split: val, xyz: {box: [50, 3]}}

    Fix:
        Take the copies out of the later split.
    Reference:
        SceneLeap's configuration names one directory as train, val and test.
    """
    known = rows.measured("content")
    if known.any():
        yield from _crossings(rows, rows["content"], known, case.schema, "shares samples with")


@rule(
    "DC802", "group-leak", Severity.ERROR, Level.DATASET, per="sample", measures=(identity,), needs=("DC801",),
    span="all", unless=lambda schema: "" if schema.splits is not None else "the schema names no splits: {key: ...}",
)  # fmt: skip
def group_leak(rows: Rows, case: Case) -> Iterator[Failure]:
    """Samples that belong together are on both sides of a split.

    What:
        No object, room, recording or subject (``splits: {key: ...}``) occurs in two splits.
    Why it matters:
        Neighbouring frames of one video on both sides are nearly copies.
    Measure:
        The declared key of every sample, after ``match``.
    When it is wrong:
        The key is too coarse: refine ``match``.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: seq, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, x: {normal: [8]}, facts: {split_key: ABF1}}
          - {n: 2, split: val, x: {normal: [8]}, facts: {split_key: ABF1}}
          - {n: 2, split: val, x: {normal: [8]}, facts: {split_key: SM1}}

    Good::

        schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: seq, disjoint: [train, val]}}
        samples:
          - {n: 3, split: train, x: {normal: [8]}, facts: {split_key: ABF1}}
          - {n: 2, split: val, x: {normal: [8]}, facts: {split_key: SM1}}

    Fix:
        Split by the key, not by sample.
    Reference:
        UTNet splits the frames of HO3D at random; in HULKs 98 % of the test frames share a recording with train.
    """
    known = rows.measured("split_key")
    if known.any():
        keys = Texts.of(rows["split_key"].tolist())
        words = sorted(keys.words)
        place = {word: number for number, word in enumerate(words)}
        numbers = np.array([place[word] for word in keys.words], np.int64)[keys.rows]
        known &= numbers != place.get("", -1)
        yield from _crossings(rows, numbers, known, case.schema, "shares keys with", words)


@rule(
    "DC803", "exact-duplicate", Severity.WARNING, Level.PAIR, per="sample", measures=(content,),
    needs=("DC109", "DC221", "DC602", "DC702", "DC801"), span="all", defaults={"share": 0.001},
)  # fmt: skip
def exact_duplicate(rows: Rows, case: Case) -> Iterator[Failure]:
    """A sample stands more than once.

    What:
        Samples of equal content; the first in key order stays, later ones are named. Copies across splits are DC801.
    Why it matters:
        Copies count twice in training and hide behind different names.
    Measure:
        As DC801.
    When it is wrong:
        Repetition is meant: ``duplicates: {exact: off}``. The schema also says how bad it is (error, warning, info).
    Options:
        share: share of copies up to which nothing is said (0.001).
    Bad::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "The first of three different sentences."}
          - {t: "The second of three different sentences."}
          - {t: "The  second of three different sentences. "}

    Good::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "The first of three different sentences."}
          - {t: "The second of three different sentences."}
          - {t: "The third of three different sentences."}

    Fix:
        Drop the later copies.
    Reference:
        Chinese web corpora lose 0.3 % to near-copies; the small lora_identity.jsonl repeats its prompts.
    """
    severity, known = case.schema.duplicates.exact, rows.measured("content")
    if severity == "off" or not known.any():
        return
    _, rank = ranks(rows, case.schema)
    place = rank * len(rows) + np.arange(len(rows))
    first = _repeats(rows["content"], known, place)
    copy = known & (first < place)
    if copy.sum() > float(case.options["share"]) * int(known.sum()):
        one = int(np.flatnonzero(copy)[0])
        original = rows.keys[int(first[one] % len(rows))]
        again = (
            f"an earlier one, {original}" if copy.sum() == 1 else f"earlier ones, {rows.keys[one]} that of {original}"
        )
        yield Failure(
            copy,
            f"{those(copy, 'repeat')} {again}.",
            measured={"copies": int(copy.sum())},
            severity=Severity(severity),
            fix="Drop the later copies, or say duplicates: {exact: off} where they are meant.",
        )


@rule(
    "DC805", "lopsided-split", Severity.WARNING, Level.DATASET, per="sample", measures=(shares,), span="all",
    sees="all", defaults={"share": 0.01, "expected": 5.0},
)  # fmt: skip
def lopsided_split(rows: Rows, case: Case) -> Iterator[Failure]:
    """A split is empty, tiny, or lacks a class that the others have.

    What:
        Splits of which no sample can be read. Of others, where files of several samples can all be read: those with
        less than 1 % of all samples; classes that a split lacks though at the rate of the other splits several of its
        samples would have them, and a random split would lack them less than once in 100 times.
    Why it matters:
        An empty validation split gives a metric of 0 or NaN, a tiny one noise; a class that is never validated may be
        lost unseen.
    Measure:
        Samples per split. Of a class: the share of the other splits' samples that have it, times the split's samples.
    When it is wrong:
        A split is meant to be small or to lack a class: raise ``expected`` or lower ``share``.
    Options:
        share: smallest share of all samples that a split may have (0.01).
        expected: samples with a class that a split should have before its absence counts (5).
    Bad::

        schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: file, disjoint: [train, val]}}
        samples:
          - {n: 120, split: train, x: {normal: [8]}}
          - {n: 1, split: val, x: {normal: [8]}}

    Good::

        schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: file, disjoint: [train, val]}}
        samples:
          - {n: 120, split: train, x: {normal: [8]}}
          - {n: 12, split: val, x: {normal: [8]}}

    Fix:
        Split again: datacheck split.
    Reference:
        RfDNet issue 9: the list of the validation split is that of the test split.
    """
    order, rank = ranks(rows, case.schema)
    readable = rows.table.status[rows.index] == CHECKED
    sizes = np.bincount(rank[rank >= 0], minlength=len(order))
    least = float(case.options["share"])
    several = len(np.unique(rows.files.rows[readable])) < int(readable.sum())
    for place, split in enumerate(order):
        mine = rank == place
        if not (mine & readable).any() and readable.any():
            text = f"{split} is empty: none of its {counted(int(mine.sum()))} can be read."
            files = len(np.unique(rows.files.rows[mine]))
            if several and files == int(mine.sum()):  # each file may hold many samples, of which some may be whole
                cannot = f"{counted(files, 'file')} of samples cannot be read as a whole"
                text = f"no sample of {split} was judged: {cannot}."
            yield Failure(
                mine,
                text,
                measured={"split": split},
                severity=Severity.ERROR,
                fix="Mend these files or download them again; the errors of their own say what is wrong.",
                kind=f"empty:{split}",
            )
        lost = bool((mine & ~readable).any())
        if lost and (several or not (mine & readable).any()):  # such a file may hold any number of samples
            continue
        if sizes[place] < least * sizes.sum():
            share = sizes[place] / sizes.sum()
            text = f"{split} has {sizes[place]:,} of {sizes.sum():,} samples ({share:.2%}), {least:.1%} expected."
            yield _lopsided(mine & False, text, split, "small")
        for name, spec in case.schema.of_role("class"):
            lacking = _lacking(rows, rank, place, name, float(case.options["expected"]))
            if lacking:
                words = class_names(spec)
                text = f"{split} lacks class {listed(words[i] for i in lacking)} of {name}, which other splits have."
                yield _lopsided(mine & False, text, split, "class", name)


def _lacking(rows: Rows, rank: Array, place: int, name: str, expected: float) -> list[int]:
    """Return the classes that a split has nowhere, though `expected` or more of its samples should have them.

    Chance must not explain it: two samples of validation share some of 100 classes that eight others lack.
    """
    known = rows.measured(f"{name}:classes") & (rank >= 0)
    mine, others = known & (rank == place), known & (rank != place)
    if not mine.any() or not others.any():
        return []
    have = rows[f"{name}:classes"] > 0
    usual: Array = have[others].mean(axis=0) * mine.sum()
    lacking = np.flatnonzero((usual >= expected) & ~have[mine].any(axis=0)).tolist()
    having, size = have[others].sum(axis=0), (int(others.sum()), int(known.sum()))
    return [i for i in lacking if _chance(int(having[i]), *size) < _CHANCE]


def _chance(marked: int, drawn: int, of: int) -> float:
    """Return how likely all of some marked samples are among those drawn, where each draw is as likely."""
    ways = [math.lgamma(n + 1) for n in (drawn, of - marked, drawn - marked, of)]
    return math.exp(ways[0] + ways[1] - ways[2] - ways[3])


def _lopsided(mask: Array, text: str, split: str, kind: str, *extra: str) -> Failure:
    return Failure(
        mask,
        text,
        measured={"split": split},
        cause=Cause(f"{split} is lopsided", kind),
        fix="Split again: datacheck split DATA --by KEY --train 0.8 --val 0.1 --test 0.1 --to DIR.",
        kind=f"{kind}:{split}",
        extra=extra,
    )
