"""Rules about questions and answers: spans of a text, and answers that moved to another question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, pairwise
from math import sqrt
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, count_phrase, measure, pluralize, rule
from datacheck.rules.measures import form
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_TEXT, _START = "text", "answer_start"
# Share of the failing answers that a cause must explain.
_MOST = 0.9
_FEWEST_SHIFTED = 3  # samples with one offset that show an offset of all
_FARTHEST = 1 << 40  # characters; a start may be any number
_RECOUNT = "Count the positions again in the stored text, or drop the questions."


def _spans(value: Any) -> list[tuple[str, int]] | None:
    """Return (text, start) of the answers to a question, None for a value of another form.

    Answers with an empty text are left out: they stand for "no answer".
    """
    if isinstance(value, Mapping):
        texts, starts = value.get(_TEXT), value.get(_START)
        if isinstance(texts, str):
            texts, starts = [texts], [starts]
        if not isinstance(texts, list) or not isinstance(starts, list):
            return None
        if len(texts) != len(starts):
            return None
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
        pairs = [(entry.get(_TEXT), entry.get(_START)) for entry in value]
    else:
        return None
    if not all(isinstance(text, str) for text, _ in pairs):
        return None
    answers = [(text, start) for text, start in pairs if text]
    is_formed = all(type(start) is int and abs(start) < _FARTHEST for _, start in answers)
    return answers if is_formed else None


def _nearest(text: str, answer: str, start: int) -> int | None:
    """Return how far behind its start the nearest occurrence of an answer is, None without any.

    Notes:
        Of two occurrences at equal distance the one before counts.
    """
    inside = min(max(start, 0), len(text))
    before = text.rfind(answer, 0, inside + len(answer))
    behind = text.find(answer, inside)
    shifts = [place - start for place in (before, behind) if place >= 0]
    return min(shifts, key=abs, default=None)


def _is_at(data: bytes, answer: bytes, start: int) -> bool:
    return start >= 0 and data.startswith(answer, start)


class _Astray:
    """What is counted of the answers of one question that their text does not have at their start.

    Args:
        text: of the question.
        answers: (text, start) of each.
    """

    def __init__(self, text: str, answers: list[tuple[str, int]]) -> None:
        astray = [
            (answer, start)
            for answer, start in answers
            if start < 0 or not text.startswith(answer, start)
        ]
        self.count = len(astray)
        self.shift: int | None = None
        self.bytes = self.units = self.lost = self.cased = self.past = 0
        if not astray:
            return
        utf8, utf16 = text.encode("utf-8", "replace"), text.encode("utf-16-le", "replace")
        folded = text.casefold()
        for answer, start in astray:
            self.bytes += _is_at(utf8, answer.encode("utf-8", "replace"), start)
            self.units += _is_at(utf16, answer.encode("utf-16-le", "replace"), 2 * start)
            if answer not in text:
                self.lost += 1
                self.cased += answer.casefold() in folded
                self.past += start + len(answer) > len(text)
        # The longest answer has the fewest occurrences by chance.
        self.shift = _nearest(text, *max(astray, key=lambda pair: len(pair[0])))


@measure(
    "answer_spans", per="sample", uses=("fields.role", "fields.spans_of", "fields.unanswerable")
)
def answer_spans(block: Block, schema: Schema) -> Columns:
    """Answers that are spans of a text.

    ``<field>:spans``: answers with a text; ``<field>:malformed``: the value has another form;
    ``<field>:unanswerable``: the flag says that there is no answer; ``<field>:question_id``: a digest
    of the only field of ids. ``<field>:astray``: answers that
    the text does not have at their start. Of these, ``astray_bytes`` and ``astray_units`` are there
    if the start counts bytes of UTF-8 or units of UTF-16; ``astray_lost`` occur nowhere,
    ``astray_cased`` of the lost ones in letters of another case, ``astray_past`` end beyond the text.
    ``astray_shift``: characters from the start of the longest one to its nearest occurrence.
    """
    columns: dict[str, Any] = {}
    for name, spec in schema.of_role("answers"):
        values, texts = block.fields.get(name), block.fields.get(spec.spans_of or "")
        if values is None or texts is None or values.kind != "json" or texts.kind != "text":
            continue
        spans = [_spans(value) for value in values.objects]
        is_formed = np.array([answers is not None for answers in spans], bool)
        astray = [
            _Astray(text, answers or []) for text, answers in zip(texts.objects, spans, strict=True)
        ]
        counts = {
            "spans": [len(answers or []) for answers in spans],
            "astray": [each.count for each in astray],
            "astray_bytes": [each.bytes for each in astray],
            "astray_units": [each.units for each in astray],
            "astray_lost": [each.lost for each in astray],
            "astray_cased": [each.cased for each in astray],
            "astray_past": [each.past for each in astray],
        }
        for column, numbers in counts.items():
            columns[f"{name}:{column}"] = Measured(np.array(numbers, np.int64), is_formed)
        columns[f"{name}:malformed"] = ~is_formed
        columns[f"{name}:astray_shift"] = Measured(
            np.array([each.shift or 0 for each in astray], np.int64),
            np.array([each.shift is not None for each in astray], bool),
        )
        flags = _flags(block.fields.get(spec.unanswerable or ""))
        if flags is not None:
            columns[f"{name}:unanswerable"] = flags
        ids = _ids(block, schema)
        if ids is not None:
            columns[f"{name}:question_id"] = ids
    return columns


def _ids(block: Block, schema: Schema) -> Array | None:
    """Return a number for the id of each sample: int64; None without exactly one field of ids."""
    names = [name for name, _ in schema.of_role("id")]
    column = block.fields.get(names[0]) if len(names) == 1 else None
    if column is None or column.peeked:
        return None
    if column.kind == "text":
        digests = [xxh3_64_intdigest(text.encode("utf-8", "replace")) for text in column.objects]
        return np.array(digests, np.uint64).view(np.int64)
    is_number = column.values.ndim == 1 and column.lengths is None
    return (
        column.values.astype(np.int64) if is_number and column.values.dtype.kind in "iu" else None
    )


def _flags(column: Column | None) -> Array | None:
    """Return bool (samples), None where a field is not one flag for each sample."""
    is_flag = column is not None and column.kind == "array" and column.lengths is None
    if column is None or not is_flag or column.peeked or column.values.ndim != 1:
        return None
    return np.asarray(column.values.astype(bool))


@rule(
    "DC717",
    "answer-span",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, answer_spans),
    suppressed_by=("DC121", "DC122"),
    applies=lambda spec: spec.role == "answers" and spec.spans_of is not None,
    defaults={"share": 0.02},
)
def answer_span(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An answer is not in the text at the position that is stored for it, or a question has none.

    What:
        The text that ``spans_of`` names has each answer at its ``answer_start``, counted in
        characters: ``context[start : start + len(text)] == text``. Texts and starts are equally
        many. A question has an answer unless its flag (``unanswerable``) says that there is none,
        and then it has none. No two questions have one id, where one field has the role ``id``.
    Why it matters:
        A model of extractive question answering is trained on the position: it learns to answer
        with other words, and no loss shows it. The evaluation keeps one prediction for each id.
    Measure:
        Answers that differ from the text at their position. Their cause is named where nine of ten
        of them agree: positions in bytes of UTF-8 or in units of UTF-16, one constant offset, a
        changed case, or a text that was cut.
    When it is wrong:
        Positions refer to another text than ``spans_of``: name that one. Few questions without an
        answer are meant: declare their flag, or lower ``share``.
    Options:
        share: without ``unanswerable``, largest share of questions without an answer that is
            reported (0.02); a larger share is taken for questions that cannot be answered.
    Bad::

        schema: {fields: {context: {role: text}, answers: {role: answers, spans_of: context}}}
        samples:
          - context: The voxel is a small cube.
            answers: {json: {text: [voxel], answer_start: [5]}}

    Good::

        schema: {fields: {context: {role: text}, answers: {role: answers, spans_of: context}}}
        samples:
          - context: The voxel is a small cube.
            answers: {json: {text: [voxel], answer_start: [4]}}

    Fix:
        Count the positions again with ``context.find``, in the text as it is stored; drop questions
        whose answer does not occur in it.
    Reference:
        Rajpurkar et al., SQuAD (2016) and SQuAD 2.0 (2018). BERT's run_squad.py skips answers
        that it cannot find at their position.
    """
    name = case.name
    malformed = rows.measured(f":{name}:malformed")
    if not malformed.any():
        return
    malformed &= rows[f":{name}:malformed"].astype(bool)
    if malformed.any():
        yield Failure(
            malformed,
            f"{count_phrase(malformed, 'have')} {name} of another form than texts with as many "
            f"whole numbers in {_START}.",
            fix=f"Write {{{_TEXT}: [...], {_START}: [...]}} with equally many entries.",
            kind="form",
        )
    measured = rows.measured(f":{name}:astray")
    if measured.any():
        yield from _misplaced(rows, case, measured)
        yield from _unanswered(rows, case, measured)
    yield from _repeated_ids(rows, case)


def _repeated_ids(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield the failure of questions whose id another question has."""
    measured = rows.measured(f":{case.name}:question_id")
    if not measured.any():
        return
    ids, places, times = np.unique(
        rows[f":{case.name}:question_id"][measured], return_inverse=True, return_counts=True
    )
    mask = np.zeros(len(rows), bool)
    mask[np.flatnonzero(measured)[times[places.ravel()] > 1]] = True
    if mask.any():
        name = next(name for name, _ in case.schema.of_role("id"))
        repeated = int(np.count_nonzero(times > 1))
        yield Failure(
            mask,
            f"{count_phrase(mask, 'have')} the {name} of another question: {repeated:,} of "
            f"{len(ids):,} ids stand more than once.",
            measured={"ids": repeated},
            expected={"ids": 0},
            severity=Severity.WARNING,
            fix=f"Give each question an {name} of its own, or drop the copies.",
            kind="ids",
            extra=(name,),
        )


def _misplaced(rows: Rows, case: RuleContext, measured: Array) -> Iterator[Failure]:
    """Yield the failure of answers that their text does not have at their position."""
    name, text = case.name, case.spec.spans_of
    counts = rows[f":{name}:astray"]
    mask = measured & (counts > 0)
    if not mask.any():
        return
    answers, astray = int(rows[f":{name}:spans"][measured].sum()), int(counts[mask].sum())
    cause, fix = _cause(rows, case, mask)
    yield Failure(
        mask,
        f"{pluralize(astray, 'answer')} of {answers:,} ({astray / answers:.1%}) "
        f"{'is' if astray == 1 else 'are'} not in {text} at {_START}, in {pluralize(int(mask.sum()))}.",
        measured={"answers": astray, "share": astray / answers},
        expected={"answers": 0},
        cause=cause,
        fix=fix,
        kind="span",
        order=counts,
        extra=(text,) if text else (),
    )


# Causes that the answers themselves decide, by the counts that they come from: kind, words, repair.
_DECIDED = {
    "_bytes": (
        "bytes",
        "{start} counts bytes of UTF-8, not characters",
        "Convert {start} into characters: decode the bytes before it.",
    ),
    "_units": (
        "units",
        "{start} counts units of UTF-16, not characters",
        "Convert {start} into characters: decode the units before it.",
    ),
    "_cased": (
        "case",
        "{text} or {name} were written in letters of another case",
        "Take the answers from the text.",
    ),
    "_past": ("cut", "{text} was cut before the answers", "Keep the whole text."),
    "_lost": (
        "other",
        "the answers do not occur in {text}: it is another text, or one of both was changed",
        "Find out which of {name} and {text} is wrong; drop the questions that have no such answer.",
    ),
}


def _cause(rows: Rows, case: RuleContext, mask: Array) -> tuple[Cause | None, str]:
    """Return the cause of answers at wrong positions, None where they do not agree, and a repair."""
    names = {"name": case.name, "text": case.spec.spans_of, "start": _START}
    astray = rows[f":{case.name}:astray"][mask].sum()
    for key, (kind, words, fix) in _DECIDED.items():
        counts = rows[f":{case.name}:astray{key}"][mask]
        if counts.sum() >= _MOST * astray:
            explained = int(np.count_nonzero(counts))
            return Cause(words.format(**names), kind, explains=explained), fix.format(**names)
    has_shift = mask & rows.measured(f":{case.name}:astray_shift")
    shifts, times = np.unique(rows[f":{case.name}:astray_shift"][has_shift], return_counts=True)
    if times.max(initial=0) >= max(_FEWEST_SHIFTED, _MOST * mask.sum()):
        return _constant(int(shifts[times.argmax()]), int(times.max()))
    if rows[f":{case.name}:astray_lost"][mask].any():
        return None, _RECOUNT
    words = "{text} has the answers at other positions: it was changed after they were counted"
    return Cause(words.format(**names), "changed", explains=int(mask.sum())), _RECOUNT


def _constant(shift: int, count: int) -> tuple[Cause, str]:
    """Return the cause and the repair of positions that differ by one number of characters."""
    size = abs(shift)
    side, fix = ("small", f"Add {size} to") if shift > 0 else ("large", f"Subtract {size} from")
    words = f"{_START} is {pluralize(size, 'character')} too {side}"
    return Cause(words, "offset", factor=float(shift), explains=count), f"{fix} {_START}."


def _unanswered(rows: Rows, case: RuleContext, measured: Array) -> Iterator[Failure]:
    """Yield failures of questions without an answer, and of unanswerable ones with an answer."""
    name, flag = case.name, case.spec.unanswerable
    has_answer = measured & (rows[f":{name}:spans"] > 0)
    if not has_answer.any():  # a split whose answers are withheld
        return
    missing = measured & ~has_answer
    stated = measured & rows.measured(f":{name}:unanswerable")
    if stated.any():
        flags = rows[f":{name}:unanswerable"].astype(bool)
        both = stated & flags & has_answer
        if both.any():
            yield Failure(
                both,
                f"{count_phrase(both, 'have')} answers, though {flag} is true.",
                fix=f"Remove the answers, or set {flag} to false.",
                kind="impossible",
                extra=(flag,) if flag else (),
            )
        missing &= stated & ~flags
    elif missing.sum() > float(case.options["share"]) * measured.sum():
        return
    if missing.any():
        told = f", though {flag} is false" if stated.any() else ""
        yield Failure(
            missing,
            f"{count_phrase(missing, 'have')} no answer{told}.",
            severity=None if stated.any() else Severity.WARNING,
            fix="Add the answers, or drop the questions.",
            kind="none",
            extra=(flag,) if stated.any() and flag else (),
        )


# Words of a text: characters of Chinese and Japanese, numbers, and words of four letters or more.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff]|\d{1,20}|[^\W\d_\u3040-\u30ff\u3400-\u9fff]{4,40}"
)
_BEGINNING = 2_000  # bytes of a text that are read
_PROBES = 128  # texts of a block that are compared at first, and again where the direction changes
_FIELDS = 3  # fields of texts, in name order
_COMMON = 0.2  # a word of a larger share of the probed texts says nothing
_SHARED = 2  # fewest words that two texts share
_CLEARLY = 1.5  # times the likeness of the other two texts
_RUN = 12  # fewest probed samples of a run
_PURE = 0.9  # share of them, and of the other samples
_STEPS = (0, 1, -1)  # samples from a text to the text that it is compared with


def _pairs(schema: Schema) -> list[tuple[str, str]]:
    names = [name for name, spec in schema.of_role("text") if spec.dtype != "json"]
    return list(combinations(names[:_FIELDS], 2))


@measure("partners", per="sample", uses=("fields.role", "fields.dtype"))
def partners(block: Block, schema: Schema) -> Columns:
    """Which sample has the text that belongs to a text of this one: `<field>,<other>:partner`.

    The text of `other` that shares most words stands in this sample (0), the next one (1) or the
    one before (-1). No row for samples where none of the three is clearly the first.
    """
    columns: dict[str, Any] = {}
    words_by_field: dict[str, _RareWords] = {}
    for pair in _pairs(schema) if len(block) > len(_STEPS) else []:
        texts = {name: block.fields.get(name) for name in pair}
        if any(text is None or text.kind != "text" or text.peeked for text in texts.values()):
            continue
        for name, text in texts.items():
            if text is not None and name not in words_by_field:
                words_by_field[name] = _RareWords(text)
        partners = _partners(*(words_by_field[name] for name in pair))
        found, present = np.zeros(len(block), np.int8), np.zeros(len(block), bool)
        found[list(partners)] = list(partners.values())
        present[list(partners)] = True
        columns[f"{','.join(pair)}:partner"] = Measured(found, present)
    return columns


class _RareWords:
    """The words of each text that few others of its block have.

    Args:
        texts: more than two.
    """

    def __init__(self, texts: Column) -> None:
        self._texts = texts
        self._known: dict[int, set[str]] = {}
        self._common: set[str] = set()
        self.probes = np.unique(np.linspace(1, len(texts) - 2, _PROBES).astype(int)).tolist()
        often = Counter(word for i in self.probes for word in self[i])
        most = max(2, _COMMON * len(self.probes))
        self._common = {word for word, count in often.items() if count > most}
        for words in self._known.values():
            words -= self._common

    def __getitem__(self, i: int) -> set[str]:
        if i not in self._known:
            self._known[i] = set(_WORD.findall(self.text(i).lower())) - self._common
        return self._known[i]

    def text(self, i: int) -> str:
        """Return the beginning of a text."""
        return self._texts[i][:_BEGINNING].tobytes().decode("utf-8", "replace")


def _partners(words: _RareWords, others: _RareWords) -> dict[int, int]:
    """Return the step to its partner of each probed text, and of the texts where the step changes.

    A turn that two overlapping rows of a dialogue have points nowhere.
    """

    def probe(places: Iterable[int]) -> dict[int, int]:
        steps = {i: _partner(words[i], [others[i + step] for step in _STEPS]) for i in places}
        return {
            i: step
            for i, step in steps.items()
            if step is not None and not (step and words.text(i) == others.text(i + step))
        }

    found = probe(words.probes)
    changes = [(i, j) for i, j in pairwise(found) if found[i] != found[j]]
    between = (place for i, j in changes for place in range(i + 1, j))
    return found | probe(islice(between, _PROBES))


def _partner(words: set[str], others: Sequence[set[str]]) -> int | None:
    """Return the step to the text that shares most words, None where no text is clearly the first."""
    shared = [len(words & other) for other in others]
    likeness = [count / sqrt(len(other) or 1) for count, other in zip(shared, others, strict=True)]
    first = max(range(len(others)), key=likeness.__getitem__)
    second = max(value for i, value in enumerate(likeness) if i != first)
    is_clear = shared[first] >= _SHARED and likeness[first] > _CLEARLY * second
    return _STEPS[first] if is_clear else None


@rule(
    "DC720",
    "shifted-texts",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(partners,),
    span="all",
    suppressed_by=("DC121", "DC122", "DC701"),
    unless=lambda schema: "" if _pairs(schema) else "no two fields are texts",
)
def shifted_texts(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """In a run of samples, one text belongs to the other text of the next sample, or of the one before.

    What:
        Two texts of one sample, such as a question and its answer, share more words with each
        other than with the texts of the neighbours in the file.
    Why it matters:
        One row lost or added in one of two columns moves all answers behind it to another question.
        Every sample stays well formed, and the model learns answers at random.
    Measure:
        In 128 samples of each 4,096, the words that a text shares with the other text of its
        own sample, of the next one and of the one before: numbers, words of at least four letters,
        and characters of Chinese and Japanese, without words of a fifth of the texts. A sample
        counts if it shares at least two words and, for the length of the texts, 1.5 times as many
        with one of the three as with each of the others. Where the direction changes, every sample
        is compared. A run has at least 12 such samples, of
        which nine of ten point in the same direction; of the samples in no run, nine of ten must
        share most with themselves, and these are at least as many as those in runs.
    When it is wrong:
        Each text goes on with the sample before: ``DC720: off``.
    Options:
        none
    Bad::

        schema: {fields: {a: {role: text}, q: {role: text}}}
        samples:
          - {n: 30, q: {counted: "What is {} less {}?"}, a: {counted: "{} of {} are left."}}
          - {n: 20, q: {counted: "What is {} less {}?"}, a: {counted: "{} of {} are left.", ahead: 1}}

    Good::

        schema: {fields: {a: {role: text}, q: {role: text}}}
        samples:
          - {n: 50, q: {counted: "What is {} less {}?"}, a: {counted: "{} of {} are left."}}

    Fix:
        Look for the row that was lost or added, and join the two columns again by an id.
    Reference:
        A table of questions whose answers moved by one row in 800 of 7,473 rows.
    """
    reported = np.zeros(len(rows), bool)
    for pair in _pairs(case.schema):
        name = f":{','.join(pair)}:partner"
        measured = np.flatnonzero(rows.measured(name))
        if len(measured) < _RUN:
            continue
        steps = rows[name][measured]
        runs = _runs(steps)
        outside = np.ones(len(steps), bool)
        for begin, end, _ in runs:
            outside[begin:end] = False
        # Most texts must belong to their own sample: in a dialogue cut into overlapping rows, every
        # text belongs to the row before.
        own = np.count_nonzero(steps[outside] == 0)
        if own < max(_PURE * np.count_nonzero(outside), np.count_nonzero(~outside)):
            continue
        for begin, end, step in runs:
            mask = np.zeros(len(rows), bool)
            mask[measured[begin] : measured[end - 1] + 1] = True
            if (mask & reported).any():  # a third text shows the same
                continue
            reported |= mask
            yield _shifted(rows, pair, mask, steps[begin:end], step)


def _runs(steps: Array) -> list[tuple[int, int, int]]:
    """Return begin, end and step of each run of samples of which nearly all point to one neighbour.

    Notes:
        Each is a maximal scoring subsequence: a sample that points there counts 1 - `_PURE`, every
        other one -`_PURE`. A run ends where its score was highest.
    """
    found = []
    for step in _STEPS[1:]:
        gains = np.where(steps == step, 1 - _PURE, -_PURE).tolist()
        begin = place = end = 0
        score = best = 0.0
        while place < len(gains) or end > begin:
            score = score + gains[place] if place < len(gains) else -1.0
            place += 1
            if score > best:
                best, end = score, place
            if score <= 0:
                if end - begin >= _RUN:
                    found.append((begin, end, step))
                place = max(end, begin + 1) if end > begin else place
                begin = end = place
                score = best = 0.0
    return sorted(found)


def _shifted(rows: Rows, pair: tuple[str, str], mask: Array, steps: Array, step: int) -> Failure:
    name, other = pair
    neighbour = "the next sample" if step > 0 else "the sample before"
    agree = int(np.count_nonzero(steps == step))
    count = int(mask.sum())
    return Failure(
        mask,
        f"In {count:,} samples in a row of {len(rows):,}, {name} belongs to {other} of {neighbour}: "
        f"of {len(steps):,} that were compared, {agree:,} share more words with it than with their own.",
        measured={"samples": count, "compared": len(steps), "agree": agree},
        expected={"step": 0},
        cause=Cause(
            f"probably {name} or {other} moved by one row here",
            "next" if step > 0 else "before",
            explains=count,
        ),
        fix=f"Look at both ends of the run for a row that was lost or added, then join {name} and "
        f"{other} again by an id.",
        kind=f"{name},{other}",
        extra=pair,
    )
