"""Rules about token ids and what is learnt from them: ids that exist, labels at their place, no trained padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, Skip, counted, measure, rule, those
from datacheck.rules.measures import flat, form, is_numeric, numbers, of_role, reduced
from datacheck.rules.speech import trained, vocabulary
from datacheck.sample import Block
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Rows

Array = np.ndarray[Any, Any]

_LAGS = 3
_IGNORED = (-100,)
_FEW = 8  # supervised tokens that agree by chance at any lag
_WORDS = {0: "labels stand at their tokens", 1: "labels are shifted by one", 2: "labels are shifted twice"}


@rule(
    "DC704", "token-out-of-vocab", Severity.ERROR, Level.SAMPLE, per="sample", measures=(form, numbers, vocabulary),
    needs=("DC109", "DC122"),
    unless=lambda s: "" if s.tokenizer is not None and s.tokenizer.vocab else "the schema names no tokenizer: vocab",
)  # fmt: skip
def token_out_of_vocab(rows: Rows, case: Case) -> Iterator[Failure]:
    """A token id is none that the model knows.

    What:
        Every id of a token field is at least 0 and below ``tokenizer: {vocab}``; its dtype can hold them all; the
        tokenizer named by ``path`` has no more ids than that.
    Why it matters:
        On a GPU an id too large is an assertion in another line; ids that wrapped around are other words.
    Measure:
        Smallest and largest id, dtype, size of the tokenizer with its added tokens.
    When it is wrong:
        The embedding is padded to a larger size: declare that size as ``vocab``. Ids below 0 are marks: ``ignore``.
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
        Tokenise again with the tokenizer of the model, and store ids in a dtype that holds them.
    Reference:
        transformers issue 2825: 45 % of the ids were wrong in uint16.
    """
    vocab = case.schema.tokenizer.vocab if case.schema.tokenizer is not None else None
    if vocab is None:
        return
    for name, spec in case.schema.of_role("tokens"):
        yield from _ids(rows, name, spec, vocab)
    known = rows.measured("vocabulary")
    sizes = rows["vocabulary"][known] if known.any() else np.zeros(0, np.int64)
    if len(sizes) and sizes.max() > vocab:
        yield Failure(
            np.zeros(len(rows), bool),
            f"the tokenizer has {int(sizes.max()):,} ids, the schema's vocab is {vocab:,}: the last have no place.",
            measured={"ids": int(sizes.max())},
            expected={"vocab": vocab},
            fix="Name the model's own tokenizer, or correct vocab.",
            kind="tokenizer",
        )


def _ids(rows: Rows, name: str, spec: FieldSpec, vocab: int) -> Iterator[Failure]:
    known = rows.measured(f"{name}:min", f"{name}:max")
    if not known.any():
        return
    fix = "Tokenise again with the tokenizer of the model."
    low, high = rows[f"{name}:min"].min(axis=1), rows[f"{name}:max"].max(axis=1)
    below = known & (low < 0) & ~np.isin(low, spec.ignore)
    above = known & (high >= vocab)
    if above.any():
        text = f"{those(above, 'hold')} ids up to {int(high[above].max()):,}; allowed are 0 to {vocab - 1:,}."
        yield Failure(above, text, expected={"vocab": vocab}, fix=fix, kind="above", order=high, extra=(name,))
    if below.any():
        text = f"{those(below, 'hold')} ids down to {int(low[below].min()):,}; allowed are 0 to {vocab - 1:,}."
        yield Failure(below, text, expected={"vocab": vocab}, fix=fix, kind="below", extra=(name,))
    words = rows[f"{name}:dtype"]
    for word in sorted(set(words[known])):
        dtype = np.dtype(word)
        if dtype.kind in "iu" and np.iinfo(dtype).max < vocab - 1:
            most = f"{np.iinfo(dtype).max:,}"
            yield Failure(
                known & (words == word),
                f"{word} holds ids up to {most}, the vocabulary has {vocab:,}: larger ones wrapped around.",
                expected={"vocab": vocab},
                cause=Cause(f"ids were cast to {word}", "wrapped"),
                fix=f"Tokenise again and store {'uint16' if vocab <= 1 << 16 else 'int32'}.",
                kind=f"wrapped {word}",
                extra=(name,),
            )


# ------------------------------------------------------------------------------------------------- labels


def _labelled(block: Block, schema: Schema) -> Iterator[tuple[str, Array, Array, Array]]:
    """Yield (name, ids, labels, lengths) of every label field whose tokens are as long."""
    for name, spec in schema.of_role("labels"):
        mine, other = block.fields.get(name), block.fields.get(spec.label_of or "")
        if mine is None or other is None or not (is_numeric(mine) and is_numeric(other)):
            continue
        (labels, lengths), (ids, others) = flat(mine), flat(other)
        if np.array_equal(lengths, others):
            yield name, ids, labels, lengths


def _supervised(labels: Array, spec: FieldSpec) -> Array:
    ignored = spec.ignore or _IGNORED
    known: Array = ~np.isin(labels, ignored) if len(ignored) > 1 else labels != ignored[0]
    return known


@measure("agreement", per="sample", uses=("fields.label_of", "fields.ignore", "fields.role"))
def agreement(block: Block, schema: Schema) -> Columns:
    """At which lag labels are their tokens: ``<field>:agree`` (3), ``<field>:compared`` (3), for lags 0, 1 and 2.

    ``<field>:tail``: the id that the tokens end in at least twice (-1: none); ``<field>:tail_trained``: how many of
    that last run are supervised.
    """
    found: dict[str, Array] = {}
    for name, ids, labels, lengths in _labelled(block, schema):
        taught = _supervised(labels, schema.fields[name])
        within = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        left = np.repeat(lengths, lengths) - within
        agree, compared = np.zeros((_LAGS, len(lengths)), np.int64), np.zeros((_LAGS, len(lengths)), np.int64)
        for lag in range(_LAGS):
            here = taught & (left > lag)
            ahead = np.concatenate([ids[lag:], ids[:lag]]) if len(ids) > lag else ids
            compared[lag] = reduced(np.add, here, lengths)
            agree[lag] = reduced(np.add, here & (labels == ahead), lengths)
        found[f"{name}:agree"], found[f"{name}:compared"] = agree.T, compared.T
        found |= {f"{name}:{stat}": values for stat, values in _tails(ids, taught, lengths).items()}
    return found


def _tails(ids: Array, taught: Array, lengths: Array) -> dict[str, Array]:
    """Return the id of each sample's last run of equal ids, and how many of that run are supervised."""
    stops = np.cumsum(lengths)
    filled = lengths > 0
    last = np.zeros(len(lengths), np.int64)
    last[filled] = ids[stops[filled] - 1].astype(np.int64)
    odd = ids != np.repeat(last, lengths).astype(ids.dtype)
    within = np.arange(len(ids)) - np.repeat(stops - lengths, lengths)
    begin = reduced(np.maximum, np.where(odd, within + 1, 0), lengths)  # behind the last other id
    run = taught & (within >= np.repeat(begin, lengths))
    return {
        "tail": np.where(filled & (lengths - begin > 1), last, -1),
        "tail_trained": reduced(np.add, run, lengths),
    }


@rule(
    "DC710", "label-shift", Severity.ERROR, Level.SAMPLE, measures=(form, agreement), needs=("DC109", "DC122", "DC123"),
    applies=lambda s: of_role("labels")(s) and s.label_of is not None,
    defaults={"agreement": 0.999, "other": 0.99},
)  # fmt: skip
def label_shift(rows: Rows, case: Case) -> Iterator[Failure]:
    """Labels do not stand where the schema says: they are shifted too often, or not at all.

    What:
        Labels are the tokens they belong to (``shift: 0``, the model shifts), or the tokens behind them (``shift: 1``).
    Why it matters:
        Shifted twice, a model learns to skip a word; not at all, to repeat its input. The loss looks well both times.
    Measure:
        Share of the supervised labels that equal the token 0, 1 and 2 places ahead.
    When it is wrong:
        The labels are not the tokens themselves (masked words, classes): remove ``label_of``.
    Options:
        agreement: share of labels that must agree at the declared lag (0.999).
        other: share that must agree at another lag for it to be named (0.99).
    Bad::

        schema: {fields: {ids: {role: tokens, shape: [L]}, y: {role: labels, shape: [L], label_of: ids, shift: 0}}}
        samples:
          - {ids: [1, 5, 9, 4, 7, 3, 8, 6, 2, 11], y: [5, 9, 4, 7, 3, 8, 6, 2, 11, -100]}

    Good::

        schema: {fields: {ids: {role: tokens, shape: [L]}, y: {role: labels, shape: [L], label_of: ids, shift: 0}}}
        samples:
          - {ids: [1, 5, 9, 4, 7, 3, 8, 6, 2, 11], y: [-100, -100, -100, 4, 7, 3, 8, 6, 2, 11]}

    Fix:
        Shift in one place only, the model or the data, and declare ``shift`` so.
    Reference:
        minimind's PretrainDataset holds labels unshifted and its DPODataset shifted, in one file.
    """
    column = {stat: f":{case.name}:{stat}" for stat in ("agree", "compared")}
    known = rows.measured(*column.values())
    if not known.any():
        return
    compared = rows[column["compared"]]
    share = np.where(compared > 0, rows[column["agree"]] / np.maximum(compared, 1), 0.0)
    declared = case.spec.shift or 0
    judged = known & (compared[:, declared] >= _FEW)
    wrong = judged & (share[:, declared] < float(case.options["agreement"]))
    left = wrong.copy()
    for lag in (lag for lag in range(_LAGS) if lag != declared):
        here = left & (share[:, lag] >= float(case.options["other"])) & (compared[:, lag] >= _FEW)
        left &= ~here
        if here.any():
            yield _shifted(here, share, lag, declared)
    left &= share[:, declared] < float(case.options["other"])
    if left.any():
        yield _shifted(left, share, None, declared)


def _shifted(mask: Array, share: Array, lag: int | None, declared: int) -> Failure:
    at = float(np.median(share[mask, declared]))
    other = "nor at another lag" if lag is None else f"and {np.median(share[mask, lag]):.1%} at lag {lag}"
    cause = Cause("labels are other tokens", "none") if lag is None else Cause(_WORDS[lag], f"lag {lag}")
    text = (
        f"the labels of {counted(int(mask.sum()))} agree with their tokens to {at:.1%} at the declared lag {declared}"
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
    "DC711", "trained-padding", Severity.ERROR, Level.SAMPLE, measures=(form, agreement, trained, vocabulary),
    needs=("DC109", "DC122", "DC702", "DC710"), defaults={"pad": -1},
    applies=lambda s: s.role == "chat" or (of_role("labels")(s) and s.label_of is not None),
)  # fmt: skip
def trained_padding(rows: Rows, case: Case) -> Iterator[Failure | Skip]:
    """Padding is learnt from.

    What:
        The padding behind a sample's tokens is not supervised; of a chat whose last answer lacks the end marker the
        loader supervises all padding up to ``max_length``.
    Why it matters:
        A batch of short samples teaches mostly padding: the model learns to say nothing.
    Measure:
        Supervised labels in the last run of one id, where that id is the tokenizer's padding; one is allowed, where the
        padding is also the end of a text. Of chats: no end marker behind the last answer, and room to pad.
    When it is wrong:
        The padding id is a word: set ``pad``.
    Options:
        pad: the padding id; -1 takes the tokenizer's, else the id that most samples end in (-1).
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
        Label padding with the ignored mark; end every answer with the end marker.
    Reference:
        minimind's generate_labels, given an answer without its end marker, supervises 51 paddings.
    """
    if case.spec.role == "chat":
        yield from _unclosed(rows, case)
        return
    names = f":{case.name}:tail", f":{case.name}:tail_trained"
    known = rows.measured(*names)
    if not known.any():
        return
    tail, taught = (rows[name] for name in names)
    pad, guessed = _pad(rows, tail[known], int(case.options["pad"]))
    bad = known & (tail == pad) & (taught > 1) if pad >= 0 else known & False
    if bad.any():
        most = int(taught[bad].max())
        said = f"id {pad}, which {'most samples end in' if guessed else 'is the padding'}"
        text = f"{those(bad, 'have')} labels on padding ({said}), up to {most:,}."
        yield _padded(bad, text, taught, guessed=guessed)


def _pad(rows: Rows, tails: Array, given: int) -> tuple[int, bool]:
    """Return the padding id (-1: not known), and whether it is only a guess from what the samples end in."""
    if given >= 0:
        return given, False
    told = rows[":pad"][rows.measured(":pad")] if ":pad" in rows else np.zeros(0, np.int64)
    if len(told) and told.max() >= 0:
        return int(told.max()), False
    ids, counts = np.unique(tails[tails >= 0], return_counts=True)
    usual = len(ids) > 0 and 2 * counts.max() > len(tails) >= _FEW
    return (int(ids[counts.argmax()]) if usual else -1), True


def _unclosed(rows: Rows, case: Case) -> Iterator[Failure]:
    column = {stat: f":{case.name}:{stat}" for stat in ("tokens", "closed", "trained")}
    known = rows.measured(*column.values())
    most = case.schema.tokenizer.max_length if case.schema.tokenizer is not None else None
    if most is None or not known.any():
        return
    room = most - rows[column["tokens"]]
    bad = known & ~rows[column["closed"]].astype(bool) & (room > 0)
    if bad.any():
        text = f"the last answer of {counted(int(bad.sum()))} lacks the end marker: "
        yield _padded(bad, f"{text}up to {int(room[bad].max()):,} paddings are supervised.", room, guessed=False)


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
