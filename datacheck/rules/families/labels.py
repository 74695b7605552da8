"""Rules about labels: valid classes, declared marks for "no label", segment ids, class names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np

from datacheck.model.chats import text_bytes
from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Column
from datacheck.model.table import Measured, Rows, Texts
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.label_counts import distinct
from datacheck.rules.measures import (
    extremes,
    finite,
    in_classes,
    is_numeric,
    of_role,
    one_of,
    reduced,
)
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_MARKS = (255, 65535)  # "ignore" in unsigned labels


@measure("labels", version=3, applies=of_role("class", "instance"), uses=("classes", "ignore"))
def labels(column: Column, spec: FieldSpec) -> Columns:
    """Label values of a sample, by kind.

    Counts: `ignored` ones, declared as such; `negative` and `mark` (255, 65535) ones, undeclared;
    `outside`, all others that are no classes. `least` negative, `marked` value, `low` and `high` of
    those outside, `top` class.
    """
    if not is_numeric(column):
        return {}
    values, often, lengths = distinct(column)
    ignored = one_of(values, spec.ignore)
    good = in_classes(values, spec)
    negative = (values < 0) & ~ignored & ~good
    mark = one_of(values, _MARKS) & ~ignored & ((spec.classes is None) | ~good)
    outside = ~(ignored | good | negative | mark)
    good &= ~mark

    def extreme(ufunc: np.ufunc, where: Array) -> Array:
        other = np.inf if ufunc is np.minimum else -np.inf
        extremes = reduced(ufunc, np.where(where, values.astype(np.float64), other), lengths)
        return np.where(np.isfinite(extremes), extremes, 0)

    kinds = {"ignored": ignored, "negative": negative, "mark": mark, "outside": outside}
    columns = {name: reduced(np.add, where * often, lengths) for name, where in kinds.items()}
    zeros = np.zeros(len(column))
    columns["least"] = extreme(np.minimum, negative) if negative.any() else zeros
    columns["marked"] = extreme(np.maximum, mark) if mark.any() else zeros
    columns["low"] = extreme(np.minimum, outside) if outside.any() else zeros
    columns["high"] = extreme(np.maximum, outside) if outside.any() else zeros
    columns["top"] = extreme(np.maximum, good)
    return columns


@rule(
    "DC404",
    "class-out-of-range",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(labels,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=lambda s: of_role("class")(s) and s.classes is not None,
)
def class_out_of_range(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A label is not one of the declared classes.

    What:
        Every value of a class field is in ``classes`` or in ``ignore``. DC405 judges values below
        0, and 255 and 65535. The table named by ``loader: {keep_classes: FILE}`` can be read, and
        none of its entries is null.
    Why it matters:
        On a GPU, such a label triggers an assertion in the middle of an epoch, and the error names
        an unrelated line.
    Measure:
        Count, smallest and largest of the values that are not allowed.
    When it is wrong:
        The loader removes or remaps these values: list them in ``ignore``.
    Options:
        none
    Bad::

        schema: {fields: {label: {role: class, shape: [P], classes: 0..40}}}
        samples:
          - {n: 3, label: {choice: [50], among: [0, 7, 40]}}
          - {label: {choice: [50], among: [7, 50, 149]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], classes: 0..40}}}
        samples:
          - {n: 4, label: {choice: [50], among: [0, 7, 40]}}

    Fix:
        Remap the labels, or correct ``classes``.
    Reference:
        ScanNet issues 20 and 86: labels 50 and 149 in three scenes.
    """
    for note in case.notes:
        yield Failure(
            np.zeros(len(rows), bool),
            f"{note.key} {note.reason}.",
            fix="Write the table again: of each class a mapping with its name and validation: true "
            "or false.",
            kind="table",
        )
    measured = rows.measured("outside")
    bad = measured & (rows["outside"] > 0) if measured.any() else measured
    if bad.any():
        low = float(rows["low"][bad].min())
        high = float(rows["high"][bad].max())
        span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        classes = case.spec.classes
        allowed = f"0..{classes - 1}" if isinstance(classes, int) else str(classes)
        yield Failure(
            bad,
            f"{count_phrase(bad, 'hold')} labels that are no class ({span}, "
            f"{pluralize(int(rows['outside'][bad].sum()), 'value')}), allowed {allowed}.",
            measured={"low": low, "high": high, "values": int(rows["outside"][bad].sum())},
            expected={"classes": allowed},
            fix="Map the labels again, or correct classes in the schema.",
            order=rows["outside"],
        )


@rule(
    "DC405",
    "ignore-label",
    Severity.ERROR,
    Level.DATASET,
    measures=(labels, finite),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("class", "instance"),
)
def ignore_label(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An ignore label in the data is not the declared one, or all labels of a sample are ignored.

    What:
        There are no undeclared values below 0, no undeclared 255 or 65535 among several classes (0
        and 255 alone are a mask), and no samples whose class labels are all ignored.
    Why it matters:
        A loss with ``ignore_index: 255`` learns -100 as a class, or uses it as an index.
    Measure:
        Counts of declared ignore labels and of values that are likely undeclared ones.
    When it is wrong:
        255 is a class: declare ``classes``.
    Options:
        none
    Bad::

        schema: {fields: {label: {role: class, shape: [P], ignore: [-100]}}}
        samples:
          - {n: 3, label: {choice: [50], among: [0, 7, -100]}}
          - {label: {choice: [50], among: [0, 7, -1]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], ignore: [-100]}}}
        samples:
          - {n: 4, label: {choice: [50], among: [0, 7, -100]}}

    Fix:
        Declare the ignore label that the data use, or map it to the one that the loss expects.
    Reference:
        ExCap3D: the configuration says 255, the data contain -100, the raw files -1.
    """
    measured = rows.measured("negative", "count")
    if not measured.any():
        return
    if (negative := measured & (rows["negative"] > 0)).any():
        yield _mark(rows, case, negative, "least", "negative")
    mark = measured & (rows["mark"] > 0) & (case.spec.role == "class")
    top = float(np.max(rows["top"][measured]))
    # A number right after the classes is one of them; 0 and 255 alone are a mask.
    mark &= (top > 0) & (rows["marked"] > top + 1)
    if mark.any():
        yield _mark(rows, case, mark, "marked", "mark")
    used = rows["ignored"] + rows["negative"] + np.where(mark, rows["mark"], 0)
    nothing = measured & (used == rows["count"]) & (rows["count"] > 0) & (case.spec.role == "class")
    nothing &= ~negative & ~mark
    if nothing.any():
        fix = "Annotate these samples, or leave them out: nothing can be learnt from them."
        yield Failure(
            nothing,
            f"every label of {pluralize(int(nothing.sum()))} is ignored.",
            kind="all",
            fix=fix,
        )


def _mark(rows: Rows, case: RuleContext, where: Array, stat: str, kind: str) -> Failure:
    values = [f"{v:g}" for v in sorted(set(rows[stat][where]))]
    declared = (
        f"ignore: [{', '.join(map(str, case.spec.ignore))}]"
        if case.spec.ignore
        else "nothing to ignore"
    )
    unused = case.spec.ignore and not (rows["ignored"][where] > 0).any()
    text = (
        f"these samples use {first_few(values)} where the schema says "
        f"{first_few(map(str, case.spec.ignore))}"
    )
    return Failure(
        where,
        f"{count_phrase(where, 'hold')} {first_few(values)}; the schema declares {declared}.",
        measured={
            "values": values,
            "count": int(rows["negative" if kind == "negative" else "mark"][where].sum()),
        },
        expected={"ignore": list(case.spec.ignore)},
        cause=Cause(text, "ignore") if unused else None,
        fix="Declare ignore: [...] as the data have it, or map the labels.",
        kind=kind,
    )


# Up to here the dtype represents every integer.
_WHOLE = {"float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53}


@measure("segments", version=2, applies=of_role("segment"), uses=("ignore",))
def segments(column: Column, spec: FieldSpec) -> Columns:
    """Numbering of segments: `distinct` ids of 0 or more, `top` id, `exact` limit of the dtype."""
    if not is_numeric(column) or column.lengths is None:
        return {}
    distinct = np.zeros(len(column), np.int64)
    top = np.full(len(column), -1.0)
    low, high, _ = extremes(column)
    for i in np.flatnonzero(column.lengths > 0).tolist() if column.values.size else ():
        ends = float(low[:, i].min()), float(high[:, i].max())
        top[i] = ends[1] if np.isfinite(ends).all() else np.nan
        distinct[i] = (
            _distinct(column[i].reshape(-1), *ends, spec.ignore) if np.isfinite(top[i]) else 0
        )
    exact = np.full(len(column), _WHOLE.get(column.values.dtype.name, 1 << 62))
    present = np.isfinite(top) & (top >= 0)
    return {
        name: Measured(v, present)
        for name, v in (("distinct", distinct), ("top", top), ("exact", exact))
    }


def _distinct(values: Array, low: float, high: float, ignored: tuple[int, ...]) -> int:
    if high - low < max(65_536, 4 * len(values)) and max(-low, high) < _WHOLE["float64"]:
        whole = values.astype(np.int64)
        occurring = np.zeros(int(high) - int(low) + 1, bool)
        occurring[whole - int(low) if int(low) else whole] = True
        distinct_values = np.flatnonzero(occurring) + int(low)
    else:
        distinct_values = np.unique(values)
    return int(np.count_nonzero((distinct_values >= 0) & ~one_of(distinct_values, ignored)))


@rule(
    "DC412",
    "segment-ids",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(segments,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("segment"),
)
def segment_ids(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Segment ids are not 0 to S - 1, or are too large for their dtype.

    What:
        The S segments of a sample are numbered from 0 without gaps, and no id exceeds the largest
        integer up to which the dtype represents all integers exactly.
    Why it matters:
        Pooling over segments allocates as many rows as the largest id; ids that a float rounds
        become equal.
    Measure:
        Number of distinct ids of 0 or more, and the largest id. float32 represents all integers up
        to 2^24 exactly.
    When it is wrong:
        The loader renumbers the segments: ``DC412: off``.
    Options:
        none
    Bad::

        schema: {fields: {s: {role: segment, shape: [P]}}}
        samples:
          - {n: 2, s: {choice: [90], among: [0, 1, 2]}}
          - {s: {choice: [90], among: [0, 1, 7]}}

    Good::

        schema: {fields: {s: {role: segment, shape: [P]}}}
        samples:
          - {n: 3, s: {choice: [90], among: [0, 1, 2]}}

    Fix:
        Renumber the segments with ``np.unique(segment, return_inverse=True)[1]``, as int64 before
        any cast.
    Reference:
        Mask3D's preprocessing numbers the segments of each scene from 0 and stores them as float32.
    """
    del case
    measured = rows.measured("top")
    if not measured.any():
        return
    coarse = measured & (rows["top"] > rows["exact"])
    if coarse.any():
        yield Failure(
            coarse,
            f"{count_phrase(coarse, 'hold')} segment ids up to "
            f"{float(rows['top'][coarse].max()):,.0f}; their dtype counts "
            f"exactly up to {int(rows['exact'][coarse].min()):,}.",
            measured={"top": float(rows["top"][coarse].max())},
            expected={"top": f"..{int(rows['exact'][coarse].min())}"},
            cause=Cause("ids that the float cannot tell apart", "float"),
            fix="Number the segments from 0 before the cast.",
            kind="float",
            order=rows["top"],
        )
    gaps = measured & ~coarse & (rows["top"] + 1 != rows["distinct"])
    if gaps.any():
        top = float(np.median(rows["top"][gaps]))
        distinct = float(np.median(rows["distinct"][gaps]))
        yield Failure(
            gaps,
            f"{count_phrase(gaps, 'have')} {distinct:,.0f} segments (median) numbered up to "
            f"{top:,.0f}, not 0 to one "
            "less than their number.",
            measured={"top": top, "distinct": distinct},
            fix="Number them again: np.unique(segment, return_inverse=True)[1].",
            kind="gaps",
            order=rows["top"] - rows["distinct"],
        )


# --------------------------------------------------------------------------- classes that are words

_BYTES = 64  # most bytes of the classes in one text
# Most classes (more are names), fewest samples, largest share of long texts among them.
_CLASSES = 200
_MANY = 20
_NAMES = 0.1
# In shorter words case carries meaning ("AA", "Aa"); in those of three letters it does if capitals
# follow small letters ("mPa", "MPa").
_LETTERS = 4
_FEWEST_LETTERS = 3
_LATIN = "\u0250"
# The usual form must be so many times as frequent as another form, or one with a differing letter.
_LESS = 3
_RARE = 100
# most bytes of a list of labelled objects and of its first line
_LABELS = 1 << 14
_LINE = 1 << 9
# fewest and most columns of such a list
_COLUMNS = 4
_WIDE = 32
_ENDS = " \t\r\n.,;:'\""  # no "?", with which annotators mark a class as unsure
# Before a digit only one hyphen is a separator; a second one is a minus sign.
_BETWEEN = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W\d_])|(?<=[^\W\d_])(?:[\s_]+|-)(?=\d)")
# In a block without a frequent class: fewest samples that should have it, largest share of them that
# have it, fewest other classes in so many samples.
_BLOCK = 10
_LEFT_IN_BLOCK = 0.1
_OTHERS_IN_BLOCK = 2
_FEWEST_IN_BLOCK = 5
_SPAN_PART = re.compile(r"^[BIESLUM]-(?=\S)")  # of the tag of a word in a span
_OUTSIDE = "O"
# Notations in which case carries meaning: "C1CCCCC1" and "c1ccccc1" (SMILES).
_NOTATION = re.compile(r"[^\W\d_]\d+[^\W\d_]")
_NUMBER = re.compile(rb"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


def _is_words(spec: FieldSpec) -> bool:
    is_list = spec.dtype == "json" and spec.role is None
    return is_list or spec.role == "text" or (spec.dtype == "text" and spec.role in {None, "value"})


@measure("class_words", applies=_is_words, uses=("role", "dtype"))
def class_words(column: Column, spec: FieldSpec) -> Columns:
    """Class that a short text names, or classes of a list of objects, one a line: `spelled`.

    A line of `spelled` is a class; "" where there are none, or too many.
    """
    if spec.dtype == "json":
        words = [_classes_of_list(value) for value in column.objects if column.kind == "json"]
        short = [b"\n".join(word) for word in words]
        if not any(short):
            return {}
    elif column.kind != "text":
        return {}
    else:
        classes = _classes_of_lines if spec.role == "text" else bytes
        lines = [classes(word) for word in text_bytes(column)]
        short = [word if len(word) <= _BYTES else b"" for word in lines]
    if len({line for word in set(short) for line in word.split(b"\n")} - {b""}) > _CLASSES:
        return {"spelled": [""] * len(column)}
    return {"spelled": [word.decode("utf-8", "replace") for word in short]}


def _classes_of_list(value: Any) -> list[bytes]:
    """Return the distinct words of a list of short words, [] of another value."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        return []
    words = sorted({word.encode("utf-8", "replace") for word in value})
    is_short = all(len(word) <= _BYTES and b"\n" not in word for word in words)
    return words if is_short and len(words) <= _CLASSES else []


def _classes_of_lines(text: bytes) -> bytes:
    """Return the distinct classes of a text whose lines are numbers and one class.

    b"" for another text. The class is in the same column of each line.
    """
    first_parts = text[:_LINE].lstrip().partition(b"\n")[0].split()
    label_places = list(
        islice((i for i, part in enumerate(first_parts) if _NUMBER.fullmatch(part) is None), 2)
    )
    if len(label_places) != 1 or not _COLUMNS <= len(first_parts) <= _WIDE or len(text) > _LABELS:
        return b""
    classes = set[bytes]()
    for line in text.split(b"\n"):
        parts = line.split()
        if parts and len(parts) != len(first_parts):
            return b""
        classes.update(parts[label_places[0] : label_places[0] + 1])
    return b"" if any(map(_NUMBER.fullmatch, classes)) else b"\n".join(sorted(classes))


@rule(
    "DC413",
    "class-spelling",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(class_words,),
    span="all",
    suppressed_by=("DC121", "DC122"),
    applies=_is_words,
)
def class_spelling(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """One class is spelled in two ways.

    What:
        In a text field with few distinct values, no value repeats a much more frequent one with
        other capitals, blanks, ``_``, ``-`` or punctuation at its ends. If all other values are
        frequent, no value differs from a much more frequent one in one letter or in the order of
        two letters. No class takes the place of another one with a similar name (``PERS`` for
        ``PER``) in a block of samples. The same holds for the class names in lists of objects (.txt), which stand
        beside numbers in the same column of each line, and for lists of words (the classes of the
        boxes of a picture).
    Why it matters:
        A loader makes a separate class of each spelling, or drops the samples with the spelling
        that it does not know.
    Measure:
        At most 200 distinct values in at least 20 samples. A value of four letters or more is
        another form of the same word if the usual form occurs in three times as many samples; this
        also holds if two neighbouring letters after the first are exchanged. If one letter differs,
        or another form of a word has three letters, the usual form must occur in 100 times as many
        samples. Words of three letters that differ in capitals are compared only if each is all
        lower case, all upper case, or capitalized (``MPa`` and ``mPa`` are two units). A block goes
        from the first to the last sample with a class: the class has taken the place of another if
        this one should stand there 10 times or more, at its rate in the other samples, and is there
        at most a tenth as often, though two other classes are. Their names differ in one letter, or
        one begins with the other.
    When it is wrong:
        Both values are classes: ``DC413: off``.
    Options:
        none
    Bad::

        schema: {fields: {c: {dtype: text}}, rules: {DC803: off}}
        samples:
          - {n: 60, c: clearly_fair}
          - {n: 30, c: unfair}
          - {n: 2, c: "Clearly Fair "}

    Good::

        schema: {fields: {c: {dtype: text}}, rules: {DC803: off}}
        samples:
          - {n: 60, c: clearly_fair}
          - {n: 30, c: unfair}
          - {n: 2, c: fairly clear}

    Fix:
        Write each class in one way.
    Reference:
        pandas' astype("category") and the ClassLabel of Hugging Face datasets compare names letter
        by letter.
    """
    del case
    measured = rows.measured("spelled")
    if int(measured.sum()) < _MANY:
        return
    texts = Texts.of(rows["spelled"][measured].tolist())
    often = Counter[str]()
    for text, count in zip(
        texts.words, np.bincount(texts.rows, minlength=len(texts.words)).tolist(), strict=True
    ):
        often.update(dict.fromkeys(text.split("\n"), count))
    if often.pop("", 0) > _NAMES * measured.sum() or len(often) > _CLASSES:
        return
    pairs_by_kind = {"form": _forms(often), "letter": _typed(often)}
    known = {word for pairs in pairs_by_kind.values() for word in pairs}
    renamed = _renamed(texts, often)
    pairs_by_kind["block"] = {word: usual for word, usual in renamed.items() if word not in known}
    for kind, pairs in pairs_by_kind.items():
        if not pairs:
            continue
        mask = np.zeros(len(rows), bool)
        mask[measured] = np.array(
            [not pairs.keys().isdisjoint(text.split("\n")) for text in texts.words], bool
        )[texts.rows]
        phrases = [
            f"{word!r} ({often[word]:,}; {usual!r} {often[usual]:,})"
            for word, usual in pairs.items()
        ]
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} a class that is a frequent one {_HOW[kind]}: "
            f"{first_few(phrases)}.",
            measured={"values": list(pairs)[:10]},
            fix="Write each class in one way."
            if kind == "form"
            else "See whether both are one class; if so, write the class in one way.",
            kind=kind,
        )


_HOW = {
    "form": "but for capitals, blanks and separators",
    "letter": "but for one letter or the order of two",
    "block": "with a longer or shorter name, in a block without the frequent one",
}


_MOST_LONGER = 2  # letters
_MOST_STEPS = 200_000_000  # pairs of similar names, times classes of texts: a few seconds
_KNOWN = 0.1  # least frequency outside of the block of the classes in the block, of that inside


def _renamed(texts: Texts, often: Mapping[str, int]) -> dict[str, str]:
    """Return the usual name of each class that stands in its place in one block of samples.

    The names differ in one letter, or one is the other and two letters at most. The block holds
    other classes, as data in the order of their classes do not, and all of these also occur outside
    of the block, as those of another source do not.
    """
    bare = {word: _SPAN_PART.sub("", word) for word in often if word != _OUTSIDE}
    classes = sorted(set(bare.values()))
    near = [(a, b) for a in classes for b in classes if a != b and _are_near(a, b)]
    if not near:
        return {}
    number = {word: classes.index(name) for word, name in bare.items()}
    held = [{number[w] for w in text.split("\n") if w in number} for text in texts.words]
    sizes = np.array(list(map(len, held)), np.int64)
    if len(near) * (int(sizes.sum()) + len(texts.rows)) > _MOST_STEPS:
        return {}
    of_class = np.fromiter(chain.from_iterable(held), np.int64, int(sizes.sum()))
    of_text = np.repeat(np.arange(len(held)), sizes)
    counts = np.bincount(texts.rows, minlength=len(texts.words))
    pairs: dict[str, str] = {}
    for name, usual in near:
        holds = np.zeros((2, len(texts.words)), bool)
        for row, word in enumerate((name, usual)):
            holds[row, of_text[of_class == classes.index(word)]] = True
        rare, frequent = holds[:, texts.rows]
        places = np.flatnonzero(rare)
        block = slice(int(places[0]), int(places[-1]) + 1)
        there, size = int(frequent[block].sum()), block.stop - block.start
        outside = int(frequent.sum()) - there
        expected = outside * size / max(1, len(frequent) - size)
        is_rarer = len(places) < int(frequent.sum())
        if min(expected, len(places)) < _BLOCK or there > _LEFT_IN_BLOCK * expected or not is_rarer:
            continue
        inside = np.bincount(texts.rows[block], minlength=len(texts.words))
        often_there, often_elsewhere = (
            np.bincount(of_class, weights[of_text], len(classes))
            for weights in (inside, counts - inside)
        )
        others = often_there >= _FEWEST_IN_BLOCK
        others[classes.index(name)] = False
        # A block of another source has other classes, too.
        rate, rate_elsewhere = often_there / size, often_elsewhere / (len(rare) - size)
        is_known = bool((rate_elsewhere >= _KNOWN * rate)[others].all())
        if is_known and int(others.sum()) >= _OTHERS_IN_BLOCK:
            same = (word for word, its_name in bare.items() if its_name == name)
            pairs |= {word: word.removesuffix(name) + usual for word in same}
    return pairs


def _are_near(one: str, other: str) -> bool:
    one, other = _folded(one), _folded(other)
    if min(len(one), len(other)) < _FEWEST_LETTERS or not (one.isalpha() and other.isalpha()):
        return False
    begins = one.startswith(other) or other.startswith(one)
    is_longer = begins and abs(len(one) - len(other)) <= _MOST_LONGER
    return is_longer or _times(one, other) < np.inf


def _folded(word: str) -> str:
    """Return a class without case, edge marks and separators: "Clearly Fair." as "clearlyfair"."""
    word = word.strip(_ENDS)
    return word if _NOTATION.search(word) else _BETWEEN.sub("", word.casefold())


def _forms(often: Mapping[str, int]) -> dict[str, str]:
    """Return the most frequent form of each class that is rarely written in another one."""
    usual: dict[str, str] = {}
    for word in sorted(often, key=lambda class_name: -often[class_name]):
        usual.setdefault(_folded(word), word)
    pairs = {}
    for word in often:
        other = usual[_folded(word)]
        letters = sum(map(str.isalpha, _folded(word)))
        if letters < _FEWEST_LETTERS or word == other:
            continue
        if letters < _LETTERS and not _differ_in_style(word, other):
            continue
        times = _LESS if letters >= _LETTERS else _RARE
        if times * often[word] <= often[other]:
            pairs[word] = other
    return pairs


def _differ_in_style(one_form: str, other_form: str) -> bool:
    """Return whether the capitals of two forms of a word are equal or a matter of style."""
    one, other = ("".join(filter(str.isalpha, form)) for form in (one_form, other_form))
    return one == other or all(
        word in {word.lower(), word.upper(), word.capitalize()} for word in (one, other)
    )


def _typed(often: Mapping[str, int]) -> dict[str, str]:
    """Return the likely class of each rare misspelling; {} where other classes are as rare."""
    usual = sorted(
        (word for word in often if _is_word(word)), key=lambda candidate: -often[candidate]
    )
    pairs = {}
    for word in usual:
        near = (
            candidate
            for candidate in usual
            if often[candidate] >= _times(_folded(word), _folded(candidate)) * often[word]
        )
        if other := next(near, ""):
            pairs[word] = other
    most = max((often[word] for word in pairs), default=0)
    return pairs if all(word in pairs for word, count in often.items() if count <= most) else {}


def _is_word(word: str) -> bool:
    folded = _folded(word)
    return len(folded) >= _LETTERS and folded.isalpha() and max(folded) < _LATIN


def _times(first_word: str, second_word: str) -> float:
    """Return how many times as frequent the right one of two words must be.

    The words differ in one letter, in one that only one of them has, or in two that changed places:
    hardly ever are both of these classes. Infinity where they differ in more.
    """
    if first_word == second_word or abs(len(first_word) - len(second_word)) > 1:
        return np.inf
    prefix_size = next(
        (i for i, (a, b) in enumerate(zip(first_word, second_word, strict=False)) if a != b),
        min(len(first_word), len(second_word)),
    )
    rest = first_word[prefix_size:]
    other = second_word[prefix_size:]
    if prefix_size and rest[:2] == other[1::-1] and rest[2:] == other[2:]:
        return _LESS
    return (
        _RARE
        if prefix_size and (rest[1:] == other[1:] or rest[1:] == other or rest == other[1:])
        else np.inf
    )
