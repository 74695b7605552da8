"""Rules about text for language models: lines that parse, supervised tokens, labels, padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    match_texts,
    measure,
    pluralize,
    rule,
    unreadable,
)
from datacheck.rules.chat_turns import (
    CALLER,
    Turns,
    chats_in,
    chats_of,
    pairs_of,
    prompts_of,
    trained,
    turns_of,
    vocabulary,
)
from datacheck.rules.measures import flat, form, is_numeric, numbers, of_role, reduced
from datacheck.rules.text_bytes import LEADS, blank
from datacheck.schema.model import FieldSpec, Schema, TokenizerSpec
from datacheck.tokenization import UNTRIED, content_of, role_of

Array = np.ndarray[Any, Any]

UNKNOWN_LENGTH = 1 << 40  # bytes of a prompt whose end cannot be determined from bytes


@measure("byte-order", per="sample", depth="structure")
def byte_order(block: Block, schema: Schema) -> Columns:
    """Byte order mark before the first line of a file: `bom`; no column for all other blocks."""
    del schema
    column = block.facts.get("bom")
    return {} if column is None or column.kind != "array" else {"bom": column.values.astype(bool)}


@rule(
    "DC701",
    "bad-line",
    Severity.ERROR,
    Level.FILE,
    per="sample",
    measures=(byte_order,),
    sees="all",
)
def bad_line(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A line or sentence cannot be parsed, or a file has a byte order mark or empty lines.

    What:
        Each line of a JSON Lines file is UTF-8 and parses to an object (error). Each sentence of a
        CoNLL-U file has ten columns, ids that start at 1, HEADs among its words and a root, and its
        XPOS are not the universal tags that belong in UPOS (error). No file begins with a byte
        order mark (warning) or has empty lines between others (info).
    Why it matters:
        One such line ends the run that parses it, hours later; a tolerant loader drops it silently.
        ``json.loads`` rejects a line after a byte order mark, so the first sample of the file is
        lost, or the run fails.
    Measure:
        The parser's message, with line number and byte offset or the number of the sentence; the
        first three bytes of a file; gaps in its line numbers.
    When it is wrong:
        The file is another format with this suffix: correct ``samples: {files: ...}``. The loader
        opens files as ``utf-8-sig`` and skips empty lines: the warning may be set to ``info``.
    Options:
        none
    Bad::

        schema: {fields: {text: {role: text}}}
        samples:
          - {text: "a line that parses and is long enough", facts: {bom: 1}}
          - {key: "sft.jsonl:000000000001", unreadable: "DC701 line 2, byte 61: not JSON: unexpected end of data"}

    Good::

        schema: {fields: {text: {role: text}}}
        samples:
          - {text: "a line that parses and is long enough", facts: {bom: 0}}

    Fix:
        Repair or remove the lines (``datacheck fix DC701`` writes a repaired copy of JSON Lines).
        Write files under a temporary name and rename them, as ``utf-8``, not ``utf-8-sig``.
    Reference:
        minimind issues 350 and 715; RFC 8259, section 8.1: a byte order mark must not be added.
        CoNLL-U: universaldependencies.org/format.html.
    """
    mask = unreadable(rows, lambda reason: reason.startswith("DC701"))
    if mask.any():
        first_reason = rows.table.reasons[int(rows.index[mask][0])].partition(" ")[2]
        sentences = first_reason.startswith("sentence ")
        yield Failure(
            mask,
            f"{pluralize(int(mask.sum()), 'sentence' if sentences else 'line')} cannot be read; "
            f"the first: {first_reason}.",
            measured={"first": first_reason},
            fix="Repair or remove the sentences."
            if sentences
            else "Repair or remove the lines: datacheck fix DC701 writes such a copy.",
        )
    marked = rows.measured(":bom")
    if marked.any() and (marked := marked & rows[":bom"]).any():
        verb = "begins" if marked.sum() == 1 else "begin"
        yield Failure(
            marked,
            f"{pluralize(int(marked.sum()), 'file')} {verb} with a byte order mark, which "
            f"json.loads rejects and other readers keep as text.",
            severity=Severity.WARNING,
            kind="bom",
            fix="Open the files as utf-8-sig, or remove the mark: datacheck fix DC701 writes such "
            "a copy.",
        )
    yield from _empty_lines(rows, case)


# Endings of files with lines of columns.
_COLUMNS = (".txt", ".tsv", ".tab", ".dict", ".txt.gz", ".tsv.gz")


def _empty_lines(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield a remark about empty lines: line numbers without a sample before a file's last one.

    Lines of columns may begin with comments: there, only numbers after the first sample count.
    """
    if case.schema.samples.each != "line" or case.schema.samples.list is not None or not len(rows):
        return
    files, table = rows.files, rows.table
    last = np.zeros(len(files.words), np.int64)
    last[files.rows] = rows.index  # keys are sorted, so the last row of a file is written last
    first = np.zeros(len(files.words), np.int64)
    first[files.rows[::-1]] = rows.index[::-1]
    counts = np.bincount(files.rows, minlength=len(files.words))
    holes = {}
    for number in np.flatnonzero(counts).tolist():
        name = files.words[number]
        digits = table.keys[int(last[number])][-12:]
        if not digits.isdecimal():
            continue
        has_comments = name.lower().endswith(_COLUMNS)
        begin = int(table.keys[int(first[number])][-12:]) if has_comments else 0
        if (missing := int(digits) + 1 - begin - int(counts[number])) > 0:
            holes[name] = missing
    if holes:
        name, count = min(holes.items())
        yield Failure(
            np.zeros(len(rows), bool),
            f"{pluralize(sum(holes.values()), 'empty line')} between others in "
            f"{pluralize(len(holes), 'file')}, such as "
            f"{name} ({count:,}).",
            measured={"lines": sum(holes.values()), "files": len(holes)},
            severity=Severity.INFO,
            kind="empty",
            fix="Skip empty lines when reading, or remove them.",
        )


@measure(
    "turns",
    version=3,
    per="sample",
    uses=(
        "tokenizer",
        "fields.role",
        "fields.train_on",
        "fields.continues",
        "fields.preferred_over",
    ),
)
def turns(block: Block, schema: Schema) -> Columns:
    """Answers and prompt length of a text by bytes: ``<field>:answers``, ``<field>:prompt_bytes``.

    `answers` counts the turns to learn from, `prompt_bytes` the bytes before the first. An answer
    that begins with white space does not count for the bytes: tokenizers may join it with the
    marker. A chat next to a preference pair, which holds its answers, has no columns, nor has a
    chat that another field continues.
    """
    spec = schema.tokenizer or TokenizerSpec()
    preferred = [pair for pair in pairs_of(schema) if block.fields.keys() >= set(pair)]
    prompts = prompts_of(schema)
    columns: dict[str, Array] = {}
    for name, field in chats_of(schema):
        column = block.fields.get(name)
        if name in prompts or (preferred and not any(name in pair for pair in preferred)):
            continue
        if column is not None and column.kind != "array":
            speaker = field.train_on or "assistant"
            start = len(spec.start.encode())
            around = len(_markers(spec))
            plain = turns_of(column) if column.kind == "json" else None
            if plain is not None:
                answers, before = _all_before(plain, speaker, start, around)
            else:
                parse = chats_in(column) if column.kind == "json" else [[]] * len(block)
                pairs = [_before(messages, speaker, start, around) for messages in parse]
                answers, before = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
            columns[f"{name}:answers"], columns[f"{name}:prompt_bytes"] = answers, before
    for name, _ in schema.of_role("text"):
        column = block.fields.get(name)
        if column is not None and column.kind == "text":
            columns[f"{name}:answers"] = (~blank(column)).astype(np.int64)
            columns[f"{name}:prompt_bytes"] = np.zeros(len(block), np.int64)
    return columns


def _markers(spec: TokenizerSpec) -> bytes:
    return (spec.start + spec.end).encode()


def _all_before(turns: Turns, speaker: str, total: int, around: int) -> tuple[Array, Array]:
    """Return the results of `_before` for many plain chats: int64 (chats), twice."""
    mine = turns.where(speaker, CALLER)
    stops = np.cumsum(turns.counts)
    answers = np.bincount(
        np.searchsorted(stops, np.flatnonzero(mine), side="right"), minlength=len(stops)
    )
    first = np.minimum(turns.first(mine), stops)
    size = np.concatenate([[0], np.cumsum(turns.sizes)])
    before = total + size[first] - size[turns.starts] + (first - turns.starts) * around
    before[answers == 0] = UNKNOWN_LENGTH
    unclear = np.flatnonzero((answers > 0) & (turns.wide > 0))
    unclear = np.union1d(
        unclear, np.flatnonzero(answers)[_begin_blank(turns.said, first[answers > 0])]
    )
    for i in unclear.tolist():
        before[i] = _before(turns.chat(i), speaker, total, around)[1]
    return answers.astype(np.int64), before


def _begin_blank(texts: Column, places: Array) -> Array:
    """Return bool (places): texts that are empty or may begin with white space."""
    assert texts.lengths is not None
    empty = texts.lengths[places] == 0
    firsts = np.zeros(len(places), np.uint8)
    firsts[~empty] = texts.values[texts.starts[places[~empty]]]
    return (firsts <= ord(" ")) | np.isin(firsts, LEADS)


def _before(
    messages: list[dict[str, Any]], speaker: str, total: int, around: int
) -> tuple[int, int]:
    """Return a speaker's turns, and the bytes of a chat before the first that bytes determine.

    Args:
        messages: the chat.
        speaker: the one whose turns are learnt from.
        total: bytes before the first message; `around`: bytes that the template adds to each.
    """
    first, answers = UNKNOWN_LENGTH, 0
    for message in messages:
        if role_of(message) in {speaker, CALLER}:
            answers += 1
            if first == UNKNOWN_LENGTH:
                content = content_of(message)
                first = total if isinstance(content, str) and content[:1].strip() else first
        if first == UNKNOWN_LENGTH:  # bytes after the first answer are not needed
            total += len(orjson.dumps(message)) + around
    return answers, first


@rule(
    "DC702",
    "no-trained-tokens",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, turns, trained),
    suppressed_by=("DC121", "DC122", "DC706"),
    defaults={"slack": 256},
    applies=lambda s: s.role == "chat" or (s.role == "text" and s.min_trained_tokens is not None),
)
def no_trained_tokens(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """No token of the sample is supervised after template and truncation.

    What:
        A chat has at least one token (or ``min_trained_tokens``) that the trainer trains on within
        ``max_length``: ``tokenizer: {trainer: trl}``, or axolotl or llamafactory; without one, the
        tokens between ``start`` and ``end``. A plain text, judged if it declares
        ``min_trained_tokens``, is not blank.
    Why it matters:
        The loss of a batch of such samples is a mean over no tokens: it is NaN, or reported as 0.
    Measure:
        The chat template and tokenizer of ``tokenizer: {path: ...}``. Without them (extra
        ``text``), byte counts decide where they can, because no text has more tokens than bytes;
        the other samples are skipped.
    When it is wrong:
        The trainer marks answers in another way: set ``trainer``, or ``start`` and ``end``.
    Options:
        slack: bytes that a template may put before the first message (256).
    Bad::

        schema: {fields: {c: {role: chat, train_on: assistant}}, tokenizer: {max_length: 768}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}
          - {c: {json: [{role: user, content: Tell me of pixels.}]}}

    Good::

        schema: {fields: {c: {role: chat, train_on: assistant}}, tokenizer: {max_length: 768}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Fix:
        Raise max_length, shorten the prompts, or drop the samples.
    Reference:
        trl issue 6668: a loss of 0.0 is reported while the forward pass gives NaN.
    """
    column = {
        stat: f":{case.name}:{stat}"
        for stat in ("answers", "prompt_bytes", "trained", "marker", "refused", "why")
    }
    measured = rows.measured(column["answers"])
    if not measured.any():
        return
    least = case.spec.min_trained_tokens or 1
    spec = case.schema.tokenizer or TokenizerSpec()
    counted_ = measured & rows.measured(column["trained"])
    enough = counted_ & (rows[column["trained"]] >= least) if counted_.any() else counted_
    mute = measured & (rows[column["answers"]] == 0) & ~enough
    if mute.any():
        words = "text" if case.spec.role == "text" else f"{case.spec.train_on or 'assistant'} turn"
        yield _untrained(mute, f"{count_phrase(mute, 'have')} no {words}", "mute", spec)
    few = counted_ & ~mute & ~enough
    if few.any():
        yield from _causes(rows, few, column, spec)
    fits = rows[column["prompt_bytes"]] + int(case.options["slack"]) < (
        spec.max_length or UNKNOWN_LENGTH
    )
    # bytes show where the text between markers is, but no other mask
    known = fits & (spec.trainer == "minimind") | (case.spec.role == "text")
    open_ = measured & ~mute & ~counted_ & ~known
    if open_.any():
        why = (
            sorted(set(rows[column["why"]][open_]))
            if column["why"] in rows
            else ["the chats are no JSON"]
        )
        yield Skip(open_, first_few(why))


def _causes(
    rows: Rows, few: Array, column: dict[str, str], spec: TokenizerSpec
) -> Iterator[Failure]:
    """Yield the failing samples by reason: template refuses, no marker found, prompt too long."""
    refused = few & match_texts(rows[column["refused"]], bool)
    lost = few & ~refused & (rows[column["marker"]] < 0)
    long = few & ~refused & ~lost
    if refused.any():
        yield _untrained(refused, _refusal(rows[column["refused"]][refused]), "refused", spec)
    if lost.any() and spec.trainer == "minimind":
        yield _untrained(
            lost, f"{count_phrase(lost, 'have')} no {spec.start!r} in their tokens", "marker", spec
        )
    elif lost.any():
        text = f"the mask of {spec.trainer} covers no token of {pluralize(int(lost.sum()))}"
        yield _untrained(lost, text, "mask", spec)
    if long.any() and spec.max_length is None:
        text = (
            f"the mask covers fewer tokens of {pluralize(int(long.sum()))} than min_trained_tokens"
        )
        yield _untrained(long, text, "few", spec)
    elif long.any():
        tokens = int(np.median(rows[column["marker"]][long]))
        text = (
            f"the first answer of {pluralize(int(long.sum()))} begins at token {tokens:,} "
            f"(median) of {spec.max_length}"
        )
        yield _untrained(long, text, "long", spec)


def _refusal(reasons: Array) -> str:
    """Return the text about chats without tokens; untried ones are counted separately."""
    untried = match_texts(reasons, lambda reason: reason.endswith(UNTRIED))
    if untried.all():
        return f"{pluralize(len(reasons))} cannot be tokenized ({reasons[0]})"
    text = f"{pluralize(int((~untried).sum()))} cannot be tokenized ({reasons[~untried][0]})"
    return f"{text} and was not tried for {int(untried.sum()):,} more" if untried.any() else text


_FIX = {
    "long": "Drop them, or raise max_length.",
    "mask": "Look at a sample with datacheck view; correct the template, or drop them.",
    "marker": "Declare what your template writes before an answer, tokenizer: {start: ...}; "
    "where that is right, answers begin with a space: mend them.",
}


def _untrained(mask: Array, text: str, kind: str, spec: TokenizerSpec) -> Failure:
    return Failure(
        mask,
        f"{text}: nothing is supervised.",
        expected={"max_length": spec.max_length},
        fix=_FIX.get(kind, "Repair or drop them."),
        kind=kind,
    )


@rule(
    "DC703",
    "truncated",
    Severity.WARNING,
    Level.DATASET,
    measures=(form, trained),
    suppressed_by=("DC121", "DC122", "DC702"),
    applies=lambda s: s.role in {"chat", "tokens"},
    defaults={"samples": 0.05, "tokens": 0.05, "open": 0.01},
    unless=lambda s: (
        ""
        if s.tokenizer and s.tokenizer.max_length
        else "the schema names no tokenizer: max_length"
    ),
)
def truncated(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Much of the data is cut off at the maximum training length.

    What:
        Few samples are longer than ``tokenizer: {max_length}``. In chats, few supervised tokens lie
        beyond it, and few answers lose their end marker.
    Why it matters:
        Answers that stop in the middle teach the model to stop in the middle; without an end
        marker, the model never stops.
    Measure:
        Tokens after the chat template, as in DC702; for token arrays, their length.
    When it is wrong:
        The trainer packs or splits long samples instead of cutting them: remove max_length, or
        raise the options.
    Options:
        samples: largest share of samples that may be cut (0.05).
        tokens: largest share of supervised tokens that may be lost (0.05).
        open: largest share of chats whose last supervised token is not the end marker (0.01).
    Bad::

        schema: {fields: {ids: {role: tokens, shape: [L]}}, tokenizer: {max_length: 8}}
        samples:
          - {n: 9, ids: {choice: [8], among: [5, 6, 7, 8, 9]}}
          - {ids: {choice: [30], among: [5, 6, 7, 8, 9]}}

    Good::

        schema: {fields: {ids: {role: tokens, shape: [L]}}, tokenizer: {max_length: 30}}
        samples:
          - {n: 9, ids: {choice: [8], among: [5, 6, 7, 8, 9]}}
          - {ids: {choice: [30], among: [5, 6, 7, 8, 9]}}

    Fix:
        Raise max_length, or split long samples at sentences or turns.
    Reference:
        minimind trains on 768 tokens; its corpora hold texts of more than 2,000.
    """
    most = case.schema.tokenizer.max_length if case.schema.tokenizer is not None else None
    column = {stat: f":{case.name}:{stat}" for stat in ("tokens", "why")}
    if case.spec.role == "chat" and not rows.measured(column["tokens"]).any():
        why = (
            sorted(set(rows[column["why"]])) if column["why"] in rows else ["the chats are no JSON"]
        )
        yield Skip(np.ones(len(rows), bool), first_few(why))
        return
    measured = (
        rows.measured(column["tokens"]) if case.spec.role == "chat" else rows.measured("dims")
    )
    if most is None or not measured.any():
        return
    length = rows[column["tokens"]] if case.spec.role == "chat" else rows["dims"][:, -1]
    long = measured & (length > most)
    if long.sum() > float(case.options["samples"]) * measured.sum():
        text = (
            f"{count_phrase(long, 'are')} longer than {most:,} tokens, of {int(measured.sum()):,}"
        )
        yield _cut(
            long, f"{text}; the longest has {int(length[long].max()):,}.", "samples", most, length
        )
    if case.spec.role == "chat":
        yield from _lost(rows, measured, case, most)


def _lost(rows: Rows, measured: Array, case: RuleContext, most: int) -> Iterator[Failure]:
    """Yield the chats that lose supervised tokens, or the end marker of their last answer."""
    cut, trained_, closed = (rows[f":{case.name}:{stat}"] for stat in ("cut", "trained", "closed"))
    lost = int(cut[measured].sum())
    every = lost + int(trained_[measured].sum())
    if lost > float(case.options["tokens"]) * every:
        text = f"{lost:,} of {every:,} supervised tokens ({lost / every:.1%}) are cut off."
        yield _cut(measured & (cut > 0), text, "tokens", most, cut)
    open_ = measured & ~closed.astype(bool)
    if open_.sum() > float(case.options["open"]) * measured.sum():
        text = (
            f"{pluralize(int(open_.sum()))} of {int(measured.sum()):,} lose the end of an answer: "
            f"its end marker is not supervised."
        )
        yield _cut(open_, text, "open", most, cut)


def _cut(mask: Array, text: str, kind: str, most: int, order: Array) -> Failure:
    fix = "Raise max_length, or split long samples at sentences or turns."
    return Failure(mask, text, expected={"max_length": most}, fix=fix, kind=kind, order=order)


_LAGS = 3
_IGNORED = (-100,)
_FEW = 8  # so few supervised tokens may agree by chance at any lag
_WORDS = {
    0: "labels stand at their tokens",
    1: "labels are shifted by one",
    2: "labels are shifted twice",
}


_LEAST_IDS = 64
_HALF_BYTES = 4  # of a type that may be half of the right one


@measure("halves", per="sample", uses=("fields.role", "fields.absent"))
def halves(block: Block, schema: Schema) -> Columns:
    """Token ids of which each second one is 0: ``<field>:halves``, for 64 ids or more."""
    columns: dict[str, Measured] = {}
    for name, _ in schema.of_role("tokens"):
        column = block.fields.get(name)
        if column is None or not is_numeric(column) or column.lengths is None:
            continue
        if column.values.ndim != 1 or column.values.dtype.kind not in "iu":
            continue
        present = (column.lengths >= _LEAST_IDS) & (column.values.dtype.itemsize <= _HALF_BYTES)
        found = np.zeros(len(block), bool)
        for i in np.flatnonzero(present).tolist():
            ids = column[i]
            # Padding is 0 everywhere.
            found[i] = not ids[1::2].any() and np.count_nonzero(ids[::2]) > len(ids) / 4
        columns[f"{name}:halves"] = Measured(found, present)
    return dict(columns)


@rule(
    "DC704",
    "token-out-of-vocab",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(form, numbers, vocabulary, halves),
    suppressed_by=("DC109", "DC122"),
    unless=lambda s: (
        ""
        if s.tokenizer is not None and s.tokenizer.vocab
        else "the schema names no tokenizer: vocab"
    ),
)
def token_out_of_vocab(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A token id is not in the model's vocabulary.

    What:
        Every id of a token field is at least 0 and below ``tokenizer: {vocab}``; its dtype can hold
        all these ids; the tokenizer named by ``path`` has no more ids than ``vocab``. In 64
        ids or more, not every second one is 0, as if 32 bits were read as 16.
    Why it matters:
        On a GPU, too large an id triggers an assertion at an unrelated line; ids that wrapped
        around become other words.
    Measure:
        Smallest and largest id, dtype, size of the tokenizer including its added tokens.
    When it is wrong:
        The embedding is padded to a larger size: declare that size as ``vocab``. Ids below 0 are
        ignore labels: declare ``ignore``.
    Options:
        none
    Bad::

        schema: {fields: {ids: {role: tokens, shape: [L]}}, tokenizer: {vocab: 6400}}
        samples:
          - {n: 3, ids: {choice: [20], among: [1, 17, 6399]}}
          - {ids: {choice: [20], among: [1, 17, 6400]}}

    Good::

        schema: {fields: {ids: {role: tokens, shape: [L]}}, tokenizer: {vocab: 6400}}
        samples:
          - {n: 3, ids: {choice: [20], among: [1, 17, 6399]}}

    Fix:
        Tokenise again with the tokenizer of the model, and store the ids in a dtype that holds
        them.
    Reference:
        transformers issue 2825: 45 % of the ids were wrong in uint16.
    """
    vocab = case.schema.tokenizer.vocab if case.schema.tokenizer is not None else None
    if vocab is None:
        return
    for name, spec in case.schema.of_role("tokens"):
        yield from _ids(rows, name, spec, vocab)
    measured = rows.measured("vocabulary")
    sizes = rows["vocabulary"][measured] if measured.any() else np.zeros(0, np.int64)
    if len(sizes) and sizes.max() > vocab:
        yield Failure(
            np.zeros(len(rows), bool),
            f"the tokenizer has {int(sizes.max()):,} ids, the schema's vocab is {vocab:,}: the "
            f"last have no place.",
            measured={"ids": int(sizes.max())},
            expected={"vocab": vocab},
            fix="Name the model's own tokenizer, or correct vocab.",
            kind="tokenizer",
        )


def _ids(rows: Rows, name: str, spec: FieldSpec, vocab: int) -> Iterator[Failure]:
    measured = rows.measured(f"{name}:min", f"{name}:max")
    if not measured.any():
        return
    fix = "Tokenise again with the tokenizer of the model."
    low = rows[f"{name}:min"].min(axis=1)
    high = rows[f"{name}:max"].max(axis=1)
    below = measured & (low < 0) & ~np.isin(low, spec.ignore)
    above = measured & (high >= vocab)
    if above.any():
        text = (
            f"{count_phrase(above, 'hold')} ids up to {int(high[above].max()):,}; allowed are 0 "
            f"to {vocab - 1:,}."
        )
        yield Failure(
            above, text, expected={"vocab": vocab}, fix=fix, kind="above", order=high, extra=(name,)
        )
    if below.any():
        text = (
            f"{count_phrase(below, 'hold')} ids down to {int(low[below].min()):,}; allowed are "
            f"0 to {vocab - 1:,}."
        )
        yield Failure(below, text, expected={"vocab": vocab}, fix=fix, kind="below", extra=(name,))
    words = rows[f"{name}:dtype"]
    yield from _halved(rows, name)
    for word in sorted(set(words[measured])):
        dtype = np.dtype(word)
        if dtype.kind in "iu" and np.iinfo(dtype).max < vocab - 1:
            most = f"{np.iinfo(dtype).max:,}"
            yield Failure(
                measured & (words == word),
                f"{word} holds ids up to {most}, the vocabulary has {vocab:,}: larger ones wrapped "
                f"around.",
                expected={"vocab": vocab},
                cause=Cause(f"ids were cast to {word}", "wrapped"),
                fix=f"Tokenise again and store {'uint16' if vocab <= 1 << 16 else 'int32'}.",
                kind=f"wrapped {word}",
                extra=(name,),
            )


def _halved(rows: Rows, name: str) -> Iterator[Failure]:
    """Yield the samples in which each second id is 0."""
    if f":{name}:halves" not in rows:
        return
    halved = rows.measured(f":{name}:halves") & rows[f":{name}:halves"].astype(bool)
    if halved.any():
        dtype = np.dtype(str(rows[f"{name}:dtype"][halved][0]))
        yield Failure(
            halved,
            f"each second id is 0 in {pluralize(int(halved.sum()))}.",
            cause=Cause(f"ids of {16 * dtype.itemsize} bits, read as {dtype}", "halves"),
            fix=f"Write these files as {dtype}, as the others."
            if halved.sum() < rows.measured(f":{name}:halves").sum()
            else "Declare the dtype that the ids were written in.",
            kind="halves",
            extra=(name,),
        )


# ------------------------------------------------------------------------------------------- labels


def _labelled(block: Block, schema: Schema) -> Iterator[tuple[str, Array, Array, Array]]:
    """Yield (name, ids, labels, lengths) of every label field as long as its tokens."""
    for name, spec in schema.of_role("labels"):
        mine = block.fields.get(name)
        other = block.fields.get(spec.label_of or "")
        if mine is None or other is None or not (is_numeric(mine) and is_numeric(other)):
            continue
        (labels, lengths), (ids, others) = flat(mine), flat(other)
        if np.array_equal(lengths, others):
            yield name, ids, labels, lengths


def _supervised(labels: Array, spec: FieldSpec) -> Array:
    ignored = spec.ignore or _IGNORED
    supervised: Array = ~np.isin(labels, ignored) if len(ignored) > 1 else labels != ignored[0]
    return supervised


@measure("agreement", per="sample", uses=("fields.label_of", "fields.ignore", "fields.role"))
def agreement(block: Block, schema: Schema) -> Columns:
    """Agreement of labels with their tokens: ``<field>:agree`` (3), ``<field>:compared`` (3).

    They are counts for lags 0, 1 and 2. ``<field>:tail``: the id that the tokens end in at least
    twice (-1: none); ``<field>:tail_trained``: how many of that last run are supervised.
    """
    columns: dict[str, Array] = {}
    for name, ids, labels, lengths in _labelled(block, schema):
        taught = _supervised(labels, schema.fields[name])
        within = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        remaining = np.repeat(lengths, lengths) - within
        agree = np.zeros((_LAGS, len(lengths)), np.int64)
        compared = np.zeros((_LAGS, len(lengths)), np.int64)
        for lag in range(_LAGS):
            comparable = taught & (remaining > lag)
            ahead = np.concatenate([ids[lag:], ids[:lag]]) if len(ids) > lag else ids
            compared[lag] = reduced(np.add, comparable, lengths)
            agree[lag] = reduced(np.add, comparable & (labels == ahead), lengths)
        columns[f"{name}:agree"], columns[f"{name}:compared"] = agree.T, compared.T
        columns |= {
            f"{name}:{stat}": values for stat, values in _tails(ids, taught, lengths).items()
        }
    return columns


def _tails(ids: Array, taught: Array, lengths: Array) -> dict[str, Array]:
    """Return the id of each sample's last run of equal ids, and the run's supervised count."""
    stops = np.cumsum(lengths)
    filled = lengths > 0
    last_ids = np.zeros(len(lengths), np.int64)
    last_ids[filled] = ids[stops[filled] - 1].astype(np.int64)
    differs = ids != np.repeat(last_ids, lengths).astype(ids.dtype)
    within = np.arange(len(ids)) - np.repeat(stops - lengths, lengths)
    begin = reduced(
        np.maximum, np.where(differs, within + 1, 0), lengths
    )  # after the last other id
    run = taught & (within >= np.repeat(begin, lengths))
    return {
        "tail": np.where(filled & (lengths - begin > 1), last_ids, -1),
        "tail_trained": reduced(np.add, run, lengths),
    }


@rule(
    "DC710",
    "label-shift",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, agreement),
    suppressed_by=("DC109", "DC122", "DC123"),
    applies=lambda s: of_role("labels")(s) and s.label_of is not None,
    defaults={"agreement": 0.999, "other": 0.99},
)
def label_shift(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Labels are not at the declared shift: they are shifted too often, or not at all.

    What:
        Each label is the token at its own position (``shift: 0``, the model shifts), or the next
        token (``shift: 1``).
    Why it matters:
        With labels that are shifted twice, a model learns to skip a word; with unshifted labels, it
        learns to repeat its input. The loss looks good in both cases.
    Measure:
        Share of the supervised labels that equal the token 0, 1 and 2 positions ahead.
    When it is wrong:
        The labels are not the tokens themselves (masked words, classes): remove ``label_of``.
    Options:
        agreement: share of labels that must agree at the declared shift (0.999).
        other: share of labels that must agree at another shift for it to be named (0.99).
    Bad::

        schema: {fields: {ids: {role: tokens, shape: [L]}, y: {role: labels, shape: [L], label_of: ids, shift: 0}}}
        samples:
          - {ids: [1, 5, 9, 4, 7, 3, 8, 6, 2, 11], y: [5, 9, 4, 7, 3, 8, 6, 2, 11, -100]}

    Good::

        schema: {fields: {ids: {role: tokens, shape: [L]}, y: {role: labels, shape: [L], label_of: ids, shift: 0}}}
        samples:
          - {ids: [1, 5, 9, 4, 7, 3, 8, 6, 2, 11], y: [-100, -100, -100, 4, 7, 3, 8, 6, 2, 11]}

    Fix:
        Shift in one place only, in the model or in the data, and declare ``shift`` accordingly.
    Reference:
        minimind's PretrainDataset holds unshifted labels and its DPODataset shifted ones, in one
        file.
    """
    column = {stat: f":{case.name}:{stat}" for stat in ("agree", "compared")}
    measured = rows.measured(*column.values())
    if not measured.any():
        return
    compared = rows[column["compared"]]
    share = np.where(compared > 0, rows[column["agree"]] / np.maximum(compared, 1), 0.0)
    declared = case.spec.shift or 0
    judged = measured & (compared[:, declared] >= _FEW)
    wrong = judged & (share[:, declared] < float(case.options["agreement"]))
    unexplained = wrong.copy()
    for lag in (lag for lag in range(_LAGS) if lag != declared):
        shifted = (
            unexplained
            & (share[:, lag] >= float(case.options["other"]))
            & (compared[:, lag] >= _FEW)
        )
        unexplained &= ~shifted
        if shifted.any():
            yield _shifted(shifted, share, lag, declared)
    unexplained &= share[:, declared] < float(case.options["other"])
    if unexplained.any():
        yield _shifted(unexplained, share, None, declared)


def _shifted(mask: Array, share: Array, lag: int | None, declared: int) -> Failure:
    declared_share = float(np.median(share[mask, declared]))
    other = (
        "nor at another lag"
        if lag is None
        else f"and {np.median(share[mask, lag]):.1%} at lag {lag}"
    )
    cause = (
        Cause("labels are other tokens", "none")
        if lag is None
        else Cause(_WORDS[lag], f"lag {lag}")
    )
    text = (
        f"the labels of {pluralize(int(mask.sum()))} agree with their tokens to {declared_share:.1%} at the "
        f"declared lag {declared}"
    )
    return Failure(
        mask,
        f"{text}, {other}.",
        measured={"agreement": [round(float(v), 4) for v in np.median(share[mask], axis=0)]},
        expected={"lag": declared},
        cause=Cause(cause.text, cause.kind, explains=int(mask.sum())),
        fix="Shift in one place only, and declare shift so."
        if lag is not None
        else "Make the labels from these tokens.",
        kind=cause.kind,
    )


@rule(
    "DC711",
    "trained-padding",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, agreement, trained, vocabulary),
    suppressed_by=("DC109", "DC122", "DC702", "DC710"),
    defaults={"pad": -1},
    applies=lambda s: s.role == "chat" or (of_role("labels")(s) and s.label_of is not None),
)
def trained_padding(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Padding is supervised.

    What:
        The padding after a sample's tokens is not supervised. If the last answer of a chat lacks
        the end marker, the loader supervises all padding up to ``max_length``.
    Why it matters:
        A batch of short samples teaches mostly padding: the model learns to say nothing.
    Measure:
        Supervised labels in the last run of one id, if that id is the padding id; one is allowed,
        because the padding may also end the text. For chats: no end marker after the last answer,
        and room for padding (as minimind's loader pads).
    When it is wrong:
        The assumed padding id is a word: set ``pad``.
    Options:
        pad: the padding id; -1 takes the tokenizer's, or else the id in which most samples end,
        with a warning (-1).
    Bad::

        schema:
          fields: {ids: {role: tokens, shape: [L]}, y: {role: labels, shape: [L], label_of: ids}}
          rules: {DC711: {pad: 0}}
        samples:
          - {ids: [1, 5, 9, 4, 7, 3, 8, 2, 0, 0, 0], y: [-100, 5, 9, 4, 7, 3, 8, 2, 0, 0, 0]}

    Good::

        schema:
          fields: {ids: {role: tokens, shape: [L]}, y: {role: labels, shape: [L], label_of: ids}}
          rules: {DC711: {pad: 0}}
        samples:
          - {ids: [1, 5, 9, 4, 7, 3, 8, 2, 0, 0, 0], y: [-100, 5, 9, 4, 7, 3, 8, 2, -100, -100, -100]}

    Fix:
        Give padding the ignore label, and end every answer with the end marker.
    Reference:
        minimind's generate_labels, given an answer without its end marker, supervises 51 padding
        tokens.
    """
    if case.spec.role == "chat":
        yield from _unclosed(rows, case)
        return
    names = f":{case.name}:tail", f":{case.name}:tail_trained"
    measured = rows.measured(*names)
    if not measured.any():
        return
    tail, taught = (rows[name] for name in names)
    pad, guessed = _pad(rows, tail[measured], int(case.options["pad"]))
    bad = measured & (tail == pad) & (taught > 1) if pad >= 0 else measured & False
    if bad.any():
        most = int(taught[bad].max())
        reason = f"id {pad}, which {'most samples end in' if guessed else 'is the padding'}"
        text = f"{count_phrase(bad, 'have')} labels on padding ({reason}), up to {most:,}."
        yield _padded(bad, text, taught, guessed=guessed)


def _pad(rows: Rows, tails: Array, given: int) -> tuple[int, bool]:
    """Return the padding id (-1: unknown), and whether it is a guess from the samples' ends."""
    if given >= 0:
        return given, False
    pads = rows[":pad"][rows.measured(":pad")] if ":pad" in rows else np.zeros(0, np.int64)
    if len(pads) and pads.max() >= 0:
        return int(pads.max()), False
    ids, counts = np.unique(tails[tails >= 0], return_counts=True)
    usual = len(ids) > 0 and 2 * counts.max() > len(tails) >= _FEW
    return (int(ids[counts.argmax()]) if usual else -1), True


def _unclosed(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    column = {stat: f":{case.name}:{stat}" for stat in ("tokens", "closed", "trained")}
    measured = rows.measured(*column.values())
    spec = case.schema.tokenizer
    most = spec.max_length if spec is not None and spec.trainer == "minimind" else None
    if most is None or not measured.any():
        return
    room = most - rows[column["tokens"]]
    bad = measured & ~rows[column["closed"]].astype(bool) & (room > 0)
    if bad.any():
        text = f"the last answer of {pluralize(int(bad.sum()))} lacks the end marker: "
        yield _padded(
            bad,
            f"{text}up to {int(room[bad].max()):,} paddings are supervised.",
            room,
            guessed=False,
        )


def _padded(mask: Array, text: str, order: Array, *, guessed: bool) -> Failure:
    return Failure(
        mask,
        text,
        cause=Cause("padding is labelled like text", "padding", explains=int(mask.sum())),
        severity=Severity.WARNING if guessed else None,
        fix="Label padding with the ignored mark; end every answer with the end marker.",
        order=order,
        kind="padding",
    )
