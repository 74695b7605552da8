"""Rules about near copies: samples that are another one again, but for an edit, a resampling or some noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Case, Columns, Pairs, Skip, counted, measure, rule, those
from datacheck.rules.content import content, ranks
from datacheck.rules.nearest import MOST_PAIRS, near_courses, near_sets
from datacheck.rules.sketches import HASHES, alike_by, averaged, courses, elements, shared, signatures
from datacheck.sample import Block, Column, Sample
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_LEAST = 32  # elements: smaller sets are alike by chance
_TOLD = 3
_TOO_LITTLE = "a text of under 36 characters, a cloud of under 1,024 points, an episode of under 16 steps"


@measure("sketch", per="sample", depth="deep", uses=(
    "fields.role", "fields.shape", "fields.dtype", "fields.absent", "fields.columns",
))  # fmt: skip
def sketch(block: Block, schema: Schema) -> Columns:
    """What makes a sample like another one, in 64 numbers.

    `minhash`: MinHash of texts (runs of five characters) or clouds (cells); or of episodes `course`: means over equal
    stretches, and `course_range`: that of each column.
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


def _likely(rows: Rows, case: Case) -> Array:
    """Return the pairs that are likely alike, what stays first; of samples of equal content (DC803) the first."""
    near = case.schema.duplicates.near
    known = np.flatnonzero(_sketched(rows))
    order, rank = ranks(rows, case.schema)
    known = known[np.argsort(np.where(rank < 0, len(order), rank)[known], kind="stable")]
    same = rows.measured("content")[known]
    if same.any():
        once = ~same
        once[np.flatnonzero(same)[np.unique(rows["content"][known[same]], return_index=True)[1]]] = True
        known = known[once]
    if near is None or len(known) < 2:
        return np.zeros((0, 2), np.int64)
    if alike_by(case.schema)[0] == "course":
        apart = float(case.options["apart"])
        return np.asarray(known[near_courses(rows["course"][known], rows["course_range"][known], apart)])
    return np.asarray(known[near_sets(rows["minhash"][known], near)])


@np.errstate(all="ignore")
def _alike(first: Sample, second: Sample, case: Case) -> Mapping[str, float]:
    """Return how alike two samples are: `alike`, Jaccard similarity, or of episodes 1 less what they are apart."""
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


def _nothing_alike(schema: Schema) -> str:
    if schema.duplicates.near is None:
        return "the schema names no duplicates: {near: ...}"
    return "" if alike_by(schema)[0] else "no field holds texts, points, or states or actions over time"


@rule(
    "DC804", "near-duplicate", Severity.INFO, Level.PAIR, per="sample", measures=(sketch, content),
    needs=("DC109", "DC122", "DC221", "DC602"), span="all", unless=_nothing_alike, defaults={"apart": 0.05},
    pairs=_likely, compare=_alike,
)  # fmt: skip
def near_duplicate(rows: Rows, case: Case) -> Iterator[Failure | Skip]:
    """A sample is nearly another one.

    What:
        No two samples are as alike as ``duplicates: {near: 0.8}`` says. The later one is named; one in another split
        than its original is a warning. Equal samples are DC801 and DC803.
    Why it matters:
        Edited copies escape every exact test, count twice in training, and in a validation split measure memory.
    Measure:
        Texts: J = shared / all of all runs of five characters, in lower case, white space as one space. Clouds: J
        of the filled cells of the bounding box, 24 along its longest side (16 below 20,000 points, 10 below 8,192, 8
        below 2,048).
        Episodes: 64 steps, interpolated; largest difference in parts of each column's range. Candidates come from 64
        numbers per sample (MinHash, means), and at most 10,000 pairs are read again and compared exactly.
    When it is wrong:
        Samples share a form and differ in little: raise ``near``. Clouds that fill the same simple body are
        alike. A rotated cloud or one cut differently is not found.
    Options:
        apart: of episodes: largest difference, in parts of the range (0.05).
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
        Look at the pairs and keep one sample of each cluster, or split again so that a cluster stays on one side.
    Reference:
        Broder, On the resemblance and containment of documents, 1997. Lee et al., Deduplicating Training Data Makes
        Language Models Better, ACL 2022. Chinese web corpora lose 0.3 % to near-copies.
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


def _by_side(rows: Rows, case: Case, found: Pairs) -> Iterator[Failure]:
    """Yield the copies of each split that stand in another one, then those on one side."""
    least = case.schema.duplicates.near or 1.0
    if alike_by(case.schema)[0] == "course":
        least = 1 - float(case.options["apart"])
    alike = found.of("alike")
    good, full = alike >= least, len(alike) == MOST_PAIRS
    pairs, alike = np.stack([found.first, found.second], axis=1)[good], alike[good]
    order, rank = ranks(rows, case.schema)
    sides = rank[pairs]
    across = (sides[:, 0] != sides[:, 1]) & (sides >= 0).all(axis=1)
    for place, split in enumerate(order):
        mine = across & (sides[:, 1] == place)
        if mine.any():
            others = ", ".join(order[int(i)] for i in np.unique(sides[mine, 0]))
            yield _copies(rows, pairs[mine], alike[mine], f"one of {others}", split, full=full)
    if (~across).any():
        yield _copies(rows, pairs[~across], alike[~across], "an earlier one", "", full=full)


def _copies(rows: Rows, pairs: Array, alike: Array, like: str, split: str, *, full: bool) -> Failure:
    mask, most = np.zeros(len(rows), bool), np.zeros(len(rows))
    mask[pairs[:, 1]] = True
    np.maximum.at(most, pairs[:, 1], alike)
    clusters = _clusters(rows, pairs, alike)
    said = [f"{a} and {b} ({value:.1%} alike)" for one in clusters for a, b, value in one["pairs"]][:_TOLD]
    clustered = f"{counted(len(clusters), 'cluster')} of up to {clusters[0]['size']:,}"
    head = f"In {split} {those(mask, 'are')}" if split else those(mask, "are")
    more = f" Only the {MOST_PAIRS:,} likeliest pairs were compared; there may be more." if full else ""
    return Failure(
        mask,
        f"{head} nearly the same as {like}, in {clustered}: {'; '.join(said)}.{more}",
        measured={
            "copies": int(mask.sum()),
            "pairs": len(pairs),
            "clusters": len(clusters),
            "largest": clusters[:_TOLD],
        },
        severity=Severity.WARNING if split else None,
        fix="Look at the pairs; keep one sample of each cluster, or keep a cluster within one split.",
        kind=split,
        order=most,
    )


def _clusters(rows: Rows, pairs: Array, alike: Array) -> list[dict[str, Any]]:
    """Return what hangs together by pairs, the largest first: size, lowest similarity of a pair, three examples."""
    leader: dict[int, int] = {}

    def lead(place: int) -> int:
        while leader.setdefault(place, place) != place:
            leader[place] = place = leader[leader[place]]
        return place

    for first, second in pairs.tolist():
        low, high = sorted((lead(first), lead(second)))
        leader[high] = low
    of = np.array([lead(first) for first in pairs[:, 0].tolist()])
    sizes = np.bincount([lead(place) for place in list(leader)], minlength=len(rows))
    told: list[dict[str, Any]] = []
    for which in sorted(set(of.tolist()), key=lambda one: (-int(sizes[one]), one)):
        mine = np.flatnonzero(of == which) if len(told) < _TOLD else np.zeros(0, np.int64)
        best = mine[np.argsort(-alike[mine], kind="stable")][:_TOLD]
        keys = [[rows.table.keys[int(rows.index[j])] for j in pairs[i]] for i in best.tolist()]
        told.append({
            "size": int(sizes[which]),
            "similarity": float(alike[mine].min()) if len(mine) else None,
            "pairs": [[*both, round(float(alike[i]), 4)] for both, i in zip(keys, best.tolist(), strict=True)],
        })  # fmt: skip
    return told
