"""Rules about splits and copies: no sample in two splits, no sample twice, balanced splits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column, Sample
from datacheck.model.table import CHECKED, Measured, Rows, Texts
from datacheck.rules.base import (
    Columns,
    Pairs,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.label_counts import class_names, shares
from datacheck.rules.similarity import (
    HASHES,
    MOST_PAIRS,
    alike_by,
    averaged,
    content,
    courses,
    elements,
    near_courses,
    near_sets,
    ranks,
    shared,
    signatures,
)
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_SHOWN = 3
_LONGEST = 60
_CHANCE = 0.01  # largest probability that a random split lacks a class, for a finding
_TOLD = 200  # splits reported one by one; a path pattern may make as many as there are files


@measure("identity", per="sample", uses=("splits",), depth="structure")
def identity(block: Block, schema: Schema) -> Columns:
    """Key that samples must not share across splits: `split_key`, text ("" if unknown)."""
    del schema
    column = block.facts.get("split_key")
    if column is None:
        return {"split_key": [""] * len(block)}
    return {
        "split_key": [str(v) for v in column.objects]
        if column.kind != "array"
        else list(map(str, column.values))
    }


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
    """Tell whether all values differ.

    Sorting takes a tenth of the time of finding equal values.
    """
    if values.dtype.hasobject:
        return False
    values = np.sort(values)
    return not bool((values[1:] == values[:-1]).any())


def _crossings(
    rows: Rows,
    values: Array,
    measured: Array,
    schema: Schema,
    words: str,
    names: Sequence[str] = (),
) -> Iterator[Failure]:
    """Yield per split the rows whose value also occurs in an earlier split.

    `names` holds the names that the values index.
    """
    order, rank = ranks(rows, schema)
    measured = measured & (rank >= 0)
    lowest = _repeats(values, measured, rank)
    places = np.unique(rank[measured & (lowest < rank)]).tolist()
    for place in places[:_TOLD]:
        split = order[place]
        mask = measured & (rank == place) & (lowest < place)
        total = int((measured & (rank == place)).sum())
        total_text = pluralize(total)
        uncompared = int((rank == place).sum()) - total
        total_text += f" that can be compared ({uncompared:,} cannot)" if uncompared else ""
        others = first_few(order[int(i)] for i in np.unique(lowest[mask]))
        whole = int(mask.sum()) >= 0.9 * int((rank == place).sum())
        pairs = _shared(rows, values, mask, measured & (rank < place), names) if names else []
        more = len(np.unique(values[mask])) - _SHOWN
        pairs += [f"{pluralize(more, 'other key')}"] if names and more > 0 else []
        yield Failure(
            mask,
            f"{split} {words} {others}: {'; '.join([f'{int(mask.sum()):,} of its {total_text}', *pairs])}.",
            measured={"shared": int(mask.sum()), "of": total, "split": split},
            cause=Cause(f"{split} is {others} again", "same-split", explains=int(mask.sum()))
            if whole
            else None,
            fix=f"Take them out of {split} or of {others}, or split again by what they share "
            f"(datacheck split --help).",
            kind=split,
        )
    if rest := places[_TOLD:]:
        mask = measured & (rank >= rest[0]) & (lowest < rank)
        shared = int(mask.sum())
        yield Failure(
            mask,
            f"{pluralize(len(rest), 'more split')} {words} earlier ones: {pluralize(shared)}.",
            measured={"shared": shared, "splits": len(rest)},
            fix="Take them out of these splits, or split again by what they share (datacheck split "
            "--help).",
        )


def _shared(
    rows: Rows, values: Array, left_side: Array, right_side: Array, names: Sequence[str]
) -> list[str]:
    """Return shared values with their first place on each side.

    For example ``SiBF1: evaluation/SiBF10 and train/SiBF11``.
    """
    phrases = []
    for key in np.unique(values[left_side])[:_SHOWN].tolist():
        first, other = (
            int(np.flatnonzero(side & (values == key))[0]) for side in (left_side, right_side)
        )
        phrases.append(f"{names[key][:_LONGEST]}: {_where(rows, first)} and {_where(rows, other)}")
    return phrases


def _where(rows: Rows, place: int) -> str:
    row = rows.where(np.arange(len(rows)) == place)
    return f"{row.splits[0]}/{row.groups[0]}" if row.groups[0] else row.keys[0]


@rule(
    "DC801",
    "split-overlap",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    measures=(content,),
    suppressed_by=("DC109", "DC602"),
    span="all",
)
def split_overlap(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The same sample occurs in two splits.

    What:
        No content of one split occurs in another, whatever its name. The rule reports the copy in
        the later split; splits are in the order of ``splits: {disjoint: ...}``, otherwise train is
        first.
    Why it matters:
        Validation measures memorisation, so every choice based on it is wrong.
    Measure:
        Digest of the content; for episodes, digest of the actions. Points count in any order,
        coordinates as float32 (rounded to 1e-5 of the cloud's size if it is far from the origin),
        text without white space. Samples of less than 24 bytes are not compared.
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
        Remove the copies from the later split.
    Reference:
        SceneLeap's configuration names one directory as train, val and test.
    """
    measured = rows.measured("content")
    if measured.any():
        yield from _crossings(rows, rows["content"], measured, case.schema, "shares samples with")


@rule(
    "DC802",
    "group-leak",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    measures=(identity,),
    suppressed_by=("DC801",),
    span="all",
    unless=lambda schema: (
        "" if schema.splits is not None else "the schema names no splits: {key: ...}"
    ),
)
def group_leak(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Samples that share a key are in different splits.

    What:
        No object, room, recording or subject (``splits: {key: ...}``) occurs in two splits.
    Why it matters:
        Neighbouring frames of one video in two splits are nearly copies of each other.
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
        UTNet splits the frames of HO3D at random; in HULKs, 98 % of the test frames share a
        recording with train.
    """
    measured = rows.measured("split_key")
    if measured.any():
        keys = Texts.of(rows["split_key"].tolist())
        words = sorted(keys.words)
        place = {word: number for number, word in enumerate(words)}
        numbers = np.array([place[word] for word in keys.words], np.int64)[keys.rows]
        measured &= numbers != place.get("", -1)
        yield from _crossings(rows, numbers, measured, case.schema, "shares keys with", words)


@rule(
    "DC803",
    "exact-duplicate",
    Severity.WARNING,
    Level.PAIR,
    per="sample",
    measures=(content,),
    suppressed_by=("DC109", "DC221", "DC602", "DC702", "DC801"),
    span="all",
    defaults={"share": 0.001},
)
def exact_duplicate(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A sample occurs more than once.

    What:
        No two samples have equal content. The first in key order stays, and later ones are
        reported. DC801 reports copies in different splits.
    Why it matters:
        Copies count twice in training and hide behind different names.
    Measure:
        As for DC801.
    When it is wrong:
        The repetition is intended: ``duplicates: {exact: off}``. This setting also gives the
        severity (error, warning, info).
    Options:
        share: largest share of copies that is not reported (0.001).
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
        Chinese web corpora lose 0.3 % to near-copies; the small lora_identity.jsonl repeats its
        prompts.
    """
    severity = case.schema.duplicates.exact
    measured = rows.measured("content")
    if severity == "off" or not measured.any():
        return
    _, rank = ranks(rows, case.schema)
    place = rank * len(rows) + np.arange(len(rows))
    first = _repeats(rows["content"], measured, place)
    copy = measured & (first < place)
    if copy.sum() > float(case.options["share"]) * int(measured.sum()):
        first_copy = int(np.flatnonzero(copy)[0])
        original = rows.keys[int(first[first_copy] % len(rows))]
        original_text = (
            f"an earlier one, {original}"
            if copy.sum() == 1
            else f"earlier ones, {rows.keys[first_copy]} that of {original}"
        )
        yield Failure(
            copy,
            f"{count_phrase(copy, 'repeat')} {original_text}.",
            measured={"copies": int(copy.sum())},
            severity=Severity(severity),
            fix="Drop the later copies, or say duplicates: {exact: off} where they are meant.",
        )


@rule(
    "DC805",
    "lopsided-split",
    Severity.WARNING,
    Level.DATASET,
    per="sample",
    measures=(shares,),
    span="all",
    sees="all",
    defaults={"share": 0.01, "expected": 5.0},
)
def lopsided_split(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A split is empty, tiny, or lacks a class that other splits have.

    What:
        Every split has a readable sample, holds at least 1 % of all samples, and lacks no class
        that it should have. It should have a class if, at the rate of the other splits, several of
        its samples would have it and a random split would lack it less than once in 100 times. If
        files hold several samples, size and classes are judged only for splits whose files can all
        be read.
    Why it matters:
        An empty validation split gives a metric of 0 or NaN, and a tiny one gives noise. The model
        may lose a class unnoticed if that class is never validated.
    Measure:
        Samples per split. For a class: the share of the other splits' samples that have it, times
        the number of samples in the split.
    When it is wrong:
        A split is meant to be small or to lack a class: lower ``share`` or raise ``expected``.
    Options:
        share: smallest share of all samples that a split may have (0.01).
        expected: expected number of samples with a class from which its absence is reported (5).
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
            text = f"{split} is empty: none of its {pluralize(int(mine.sum()))} can be read."
            files = len(np.unique(rows.files.rows[mine]))
            # Each file may hold many samples, and some of these may be sound.
            if several and files == int(mine.sum()):
                cannot = f"{pluralize(files, 'file')} of samples cannot be read as a whole"
                text = f"no sample of {split} was judged: {cannot}."
            yield Failure(
                mine,
                text,
                measured={"split": split},
                severity=Severity.ERROR,
                fix="Mend these files or download them again; the errors of their own say what is "
                "wrong.",
                kind=f"empty:{split}",
            )
        lost = bool((mine & ~readable).any())
        # An unreadable file may hold any number of samples.
        if lost and (several or not (mine & readable).any()):
            continue
        if sizes[place] < least * sizes.sum():
            share = sizes[place] / sizes.sum()
            text = (
                f"{split} has {sizes[place]:,} of {sizes.sum():,} samples ({share:.2%}), "
                f"{least:.1%} expected."
            )
            yield _lopsided(mine & False, text, split, "small")
        for name, spec in case.schema.of_role("class"):
            lacking = _lacking(rows, rank, place, name, float(case.options["expected"]))
            if lacking:
                words = class_names(spec)
                text = (
                    f"{split} lacks class {first_few(words[i] for i in lacking)} of {name}, "
                    f"which other splits have."
                )
                yield _lopsided(mine & False, text, split, "class", name)


def _lacking(rows: Rows, rank: Array, place: int, name: str, expected: float) -> list[int]:
    """Return the classes missing from a split in which `expected` or more samples should have them.

    Chance must not explain the lack: two samples of validation share some of 100 classes that eight
    others lack.
    """
    measured = rows.measured(f"{name}:classes") & (rank >= 0)
    mine = measured & (rank == place)
    others = measured & (rank != place)
    if not mine.any() or not others.any():
        return []
    have = rows[f"{name}:classes"] > 0
    usual: Array = have[others].mean(axis=0) * mine.sum()
    lacking = np.flatnonzero((usual >= expected) & ~have[mine].any(axis=0)).tolist()
    having = have[others].sum(axis=0)
    size = (int(others.sum()), int(measured.sum()))
    return [i for i in lacking if _chance(int(having[i]), *size) < _CHANCE]


def _chance(marked: int, drawn: int, total: int) -> float:
    """Return the probability that a random draw contains all marked samples."""
    ways = [math.lgamma(n + 1) for n in (drawn, total - marked, drawn - marked, total)]
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


_LEAST = 32  # fewest elements of a set: smaller ones are alike by chance
_SHOWN_COPIES = 3
_TOO_LITTLE = (
    "a text of under 36 characters, a cloud of under 1,024 points, an episode of under 16 steps"
)


@measure(
    "sketch",
    per="sample",
    depth="deep",
    uses=("fields.role", "fields.shape", "fields.dtype", "fields.absent", "fields.columns"),
)
def sketch(block: Block, schema: Schema) -> Columns:
    """Sketch of a sample for comparisons, in at most 64 numbers.

    `minhash`: MinHash of texts (runs of five characters) or clouds (cells). For episodes `course`:
    means over equal periods, and `course_range`: the range of each column.
    """
    kind, names = alike_by(schema)
    if kind == "course":
        course, reach, fits = courses(block, names)
        return {
            "course": Measured(averaged(course).astype(np.float32), fits),
            "course_range": Measured(reach[:, :HASHES].astype(np.float32), fits),
        }
    hashes, size = signatures(elements(block, kind, names), len(block))
    return {"minhash": Measured(hashes, size >= _LEAST)} if kind else {}


def _sketched(rows: Rows) -> Array:
    """Return bool (rows): where there is a sketch."""
    return rows.measured("minhash") | rows.measured("course", "course_range")


def _likely(rows: Rows, case: RuleContext) -> Array:
    """Return the pairs that are likely alike, the sample that stays first.

    Of samples with equal content (DC803) only the first is compared.
    """
    near = case.schema.duplicates.near
    candidates = np.flatnonzero(_sketched(rows))
    order, rank = ranks(rows, case.schema)
    candidates = candidates[
        np.argsort(np.where(rank < 0, len(order), rank)[candidates], kind="stable")
    ]
    same = rows.measured("content")[candidates]
    if same.any():
        once = ~same
        once[
            np.flatnonzero(same)[np.unique(rows["content"][candidates[same]], return_index=True)[1]]
        ] = True
        candidates = candidates[once]
    if near is None or len(candidates) < 2:
        return np.zeros((0, 2), np.int64)
    if alike_by(case.schema)[0] == "course":
        max_distance = float(case.options["apart"])
        return np.asarray(
            candidates[
                near_courses(
                    rows["course"][candidates], rows["course_range"][candidates], max_distance
                )
            ]
        )
    return np.asarray(candidates[near_sets(rows["minhash"][candidates], near)])


@np.errstate(all="ignore")
def _similarity(first: Sample, second: Sample, case: RuleContext) -> Mapping[str, float]:
    """Return the similarity of two samples: `alike`.

    It is the Jaccard similarity; for episodes 1 minus their largest distance.
    """
    kind, names = alike_by(case.schema)
    blocks = [_block(sample, names) for sample in (first, second)]
    if kind != "course":
        return {"alike": shared(blocks[0], blocks[1], kind, names)}
    (a, wide, _), (b, far, _) = (courses(block, names) for block in blocks)
    if a.shape != b.shape:
        return {"alike": 0.0}
    return {"alike": 1.0 - float((np.abs(a - b).max(axis=1) / np.maximum(wide, far)).max())}


def _block(sample: Sample, names: list[str]) -> Block:
    fields = {name: Column.of([sample.fields[name]]) for name in names if name in sample.fields}
    return Block([sample.key], fields, [sample.origin])


def _no_similarity(schema: Schema) -> str:
    if schema.duplicates.near is None:
        return "the schema names no duplicates: {near: ...}"
    return (
        ""
        if alike_by(schema)[0]
        else "no field holds texts, points, or states or actions over time"
    )


@rule(
    "DC804",
    "near-duplicate",
    Severity.INFO,
    Level.PAIR,
    per="sample",
    measures=(sketch, content),
    suppressed_by=("DC109", "DC122", "DC221", "DC602"),
    span="all",
    unless=_no_similarity,
    defaults={"apart": 0.05},
    pairs=_likely,
    compare=_similarity,
)
def near_duplicate(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """A sample is nearly the same as another one.

    What:
        No two samples are as similar as ``duplicates: {near: 0.8}`` says. The rule reports the
        later one, as a warning if the two are in different splits. DC801 and DC803 report equal
        samples.
    Why it matters:
        Edited copies escape every exact test and count twice in training; in a validation split
        they measure memorisation.
    Measure:
        Texts: J = shared / all of the runs of five characters, in lower case, with white space as
        one space. Clouds: J of the filled cells of the bounding box, 24 along its longest side (16
        below 20,000 points, 10 below 8,192, 8 below 2,048). Episodes: largest difference over 64
        interpolated steps, as a share of each column's range. Candidates come from 64 numbers per
        sample (MinHash, means); at most 10,000 pairs are read again and compared exactly.
    When it is wrong:
        Samples share a form and differ in little: raise ``near``. Clouds that fill the same simple
        body are similar. A rotated cloud, or one cut differently, is not found.
    Options:
        apart: largest difference between two similar episodes, as a share of the range (0.05).
    Bad::

        schema: {fields: {t: {role: text}}, duplicates: {near: 0.8}}
        samples:
          - {t: "The robot picks up the red cup from the table and puts it slowly into the upper drawer."}
          - {t: "A quite different sentence tells how rooms are scanned with a camera that is held by hand."}
          - {t: "The robot picks up the red cup from the table and puts it slowly into the upper shelf."}

    Good::

        schema: {fields: {t: {role: text}}, duplicates: {near: 0.8}}
        samples:
          - {t: "The robot picks up the red cup from the table and puts it slowly into the upper drawer."}
          - {t: "A quite different sentence tells how rooms are scanned with a camera that is held by hand."}
          - {t: "The third sentence speaks of neither of these two, but of tokens that nobody trains on."}

    Fix:
        Inspect the pairs and keep one sample of each cluster, or split again so that each cluster
        stays in one split.
    Reference:
        Broder, On the resemblance and containment of documents, 1997. Lee et al., Deduplicating
        Training Data Makes Language Models Better, ACL 2022. Chinese web corpora lose 0.3 % to
        near-copies.
    """
    small = ~_sketched(rows)
    if small.any():
        yield Skip(small, f"too little to compare: {_TOO_LITTLE}, or none that is finite and moves")
    if case.pairs is None or not len(case.pairs.first):
        return
    lost = np.zeros(len(rows), bool)
    lost[case.pairs.second[np.isnan(case.pairs.of("alike"))]] = True
    if lost.any():
        yield Skip(lost, "they could not be read again")
    yield from _by_side(rows, case, case.pairs)


def _by_side(rows: Rows, case: RuleContext, candidates: Pairs) -> Iterator[Failure]:
    """Yield the copies of each split's samples in another split, then copies within a split."""
    least = case.schema.duplicates.near or 1.0
    if alike_by(case.schema)[0] == "course":
        least = 1 - float(case.options["apart"])
    similarities = candidates.of("alike")
    good = similarities >= least
    full = len(similarities) == MOST_PAIRS
    pairs, similarities = (
        np.stack([candidates.first, candidates.second], axis=1)[good],
        similarities[good],
    )
    order, rank = ranks(rows, case.schema)
    sides = rank[pairs]
    across = (sides[:, 0] != sides[:, 1]) & (sides >= 0).all(axis=1)
    for place, split in enumerate(order):
        mine = across & (sides[:, 1] == place)
        if mine.any():
            others = ", ".join(order[int(i)] for i in np.unique(sides[mine, 0]))
            yield _copies(
                rows, pairs[mine], similarities[mine], f"one of {others}", split, full=full
            )
    if (~across).any():
        yield _copies(rows, pairs[~across], similarities[~across], "an earlier one", "", full=full)


def _copies(
    rows: Rows, pairs: Array, similarities: Array, like: str, split: str, *, full: bool
) -> Failure:
    mask = np.zeros(len(rows), bool)
    most = np.zeros(len(rows))
    mask[pairs[:, 1]] = True
    np.maximum.at(most, pairs[:, 1], similarities)
    clusters = _clusters(rows, pairs, similarities)
    pair_texts = [
        f"{a} and {b} ({value:.1%} alike)"
        for cluster in clusters
        for a, b, value in cluster["pairs"]
    ][:_SHOWN_COPIES]
    clustered = f"{pluralize(len(clusters), 'cluster')} of up to {clusters[0]['size']:,}"
    head = f"In {split} {count_phrase(mask, 'are')}" if split else count_phrase(mask, "are")
    more = (
        f" Only the {MOST_PAIRS:,} likeliest pairs were compared; there may be more."
        if full
        else ""
    )
    return Failure(
        mask,
        f"{head} nearly the same as {like}, in {clustered}: {'; '.join(pair_texts)}.{more}",
        measured={
            "copies": int(mask.sum()),
            "pairs": len(pairs),
            "clusters": len(clusters),
            "largest": clusters[:_SHOWN_COPIES],
        },
        severity=Severity.WARNING if split else None,
        fix="Look at the pairs; keep one sample of each cluster, or keep a cluster within one "
        "split.",
        kind=split,
        order=most,
    )


def _clusters(rows: Rows, pairs: Array, similarities: Array) -> list[dict[str, Any]]:
    """Return clusters of connected pairs, the largest first.

    Each has its size, lowest similarity of a pair, and three examples.
    """
    leader: dict[int, int] = {}

    def lead(place: int) -> int:
        while leader.setdefault(place, place) != place:
            leader[place] = place = leader[leader[place]]
        return place

    for first, second in pairs.tolist():
        low, high = sorted((lead(first), lead(second)))
        leader[high] = low
    leaders = np.array([lead(first) for first in pairs[:, 0].tolist()])
    sizes = np.bincount([lead(place) for place in list(leader)], minlength=len(rows))
    clusters: list[dict[str, Any]] = []
    for which in sorted(set(leaders.tolist()), key=lambda one: (-int(sizes[one]), one)):
        mine = (
            np.flatnonzero(leaders == which)
            if len(clusters) < _SHOWN_COPIES
            else np.zeros(0, np.int64)
        )
        best = mine[np.argsort(-similarities[mine], kind="stable")][:_SHOWN_COPIES]
        keys = [[rows.table.keys[int(rows.index[j])] for j in pairs[i]] for i in best.tolist()]
        clusters.append(
            {
                "size": int(sizes[which]),
                "similarity": float(similarities[mine].min()) if len(mine) else None,
                "pairs": [
                    [*both, round(float(similarities[i]), 4)]
                    for both, i in zip(keys, best.tolist(), strict=True)
                ],
            }
        )
    return clusters
