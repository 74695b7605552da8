"""Rules about the mask that a trainer makes of a chat, and the text that its template writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.table import Rows
from datacheck.rules.base import RuleContext, count_phrase, first_few, match_texts, pluralize, rule
from datacheck.rules.chat_turns import trained
from datacheck.rules.measures import form
from datacheck.schema.model import Schema, TokenizerSpec

Array = np.ndarray[Any, Any]

_SPEAKERS = {"assistant", "gpt"}
# Why no special token that is trained on follows an answer, and what to do.
_STOP = {
    "minimind": ("`end` holds no special token", "Declare the end token: tokenizer: {end: ...}."),
    "trl": (
        "no special token ends the parts that count",
        "Put the end token inside {% generation %}, or let the template write one.",
    ),
    "axolotl": (
        "the tokenizer's eos_token does not follow the answers",
        "Set eot_tokens to the token that ends a turn, or eos_token to it.",
    ),
    "llamafactory": (
        "the template writes no special token after an answer",
        "Name the template of the model: tokenizer: {template: ...}.",
    ),
}


def _tokenizer_missing(schema: Schema) -> str:
    named = schema.tokenizer is not None and schema.tokenizer.path is not None
    return "" if named else "the schema names no tokenizer: path"


@rule(
    "DC714",
    "answer-mask",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, trained),
    suppressed_by=("DC121", "DC122", "DC702"),
    applies=lambda s: s.role == "chat",
    unless=_tokenizer_missing,
)
def answer_mask(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The mask of a chat leaves out the end of an answer, or covers what others say.

    What:
        Each answer ends in a special token that is trained on (error), and generation stops at that
        token: it is the tokenizer's ``eos_token`` or in its ``generation_config.json`` (warning).
        No text of another speaker is trained on (error; a warning where the trainer trains on all
        tokens). The prompt of a completion, written alone, is the beginning of the whole
        (warning).
    Why it matters:
        A model that never learns the end token does not stop. With another end token than
        generation waits for, it writes on, up to the maximum length.
    Measure:
        Tokens and mask as ``tokenizer: {trainer: ...}`` makes them: minimind (between ``start`` and
        ``end``), TRL (``assistant_only_loss`` or the completion), axolotl (``chat_template`` with
        its defaults), LLaMA-Factory (``template``).
    When it is wrong:
        The trainer has other settings than its defaults, or its training code makes the labels: the
        rule cannot judge it, switch it off.
    Options:
        none
    Bad::

        schema: {fields: {c: {role: chat}}, tokenizer: {path: model, trainer: trl}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Good::

        schema: {fields: {c: {role: chat}}, tokenizer: {path: model, trainer: axolotl}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Fix:
        Correct the chat template or the trainer's settings; the data need no change.
    Reference:
        trl pull request 5988: the end token was outside of the mask. open-r1 pull request 604: the
        tokenizer's end token was not the template's. trl issue 4147: labels one generation prompt
        off.
    """
    name, spec = case.name, case.schema.tokenizer or TokenizerSpec()
    measured = rows.measured(f":{name}:trained", f":{name}:foreign", f":{name}:shifted")
    if not measured.any():
        return
    counted = measured & (rows[f":{name}:trained"] > 0)
    endless = counted & match_texts(rows[f":{name}:ending"], lambda token: not token)
    if endless.any():
        why, fix = _STOP[spec.trainer]
        text = f"answers of {pluralize(int(endless.sum()))} end in no special token that is trained on."
        yield Failure(endless, text, cause=Cause(why, "stop"), fix=fix, kind="stop")
    yield from _other_end(rows, counted & ~endless, name)
    foreign = counted & (rows[f":{name}:foreign"] > 0)
    if foreign.any():
        yield _foreign(foreign, rows[f":{name}:foreign"], spec)
    shifted = counted & (rows[f":{name}:shifted"] > 0)
    if shifted.any():
        most = int(rows[f":{name}:shifted"][shifted].max())
        yield Failure(
            shifted,
            f"{pluralize(int(shifted.sum()))} begin otherwise than their prompt alone, which ends "
            f"in up to {pluralize(most, 'other token')}.",
            measured={"tokens": most},
            severity=Severity.WARNING,
            cause=Cause("the template writes the prompt alone in another way", "prompt"),
            fix="Use a template that writes the prompt alone as it writes it before an answer.",
            kind="prompt",
            order=rows[f":{name}:shifted"],
        )


def _other_end(rows: Rows, counted: Array, name: str) -> Iterator[Failure]:
    """Yield the chats that end in another token than generation waits for."""
    waited = rows[f":{name}:eos"]
    other = counted & match_texts(waited, bool)
    if not other.any():
        return
    endings = first_few(sorted({str(token) for token in rows[f":{name}:ending"][other]}))
    stops = first_few(sorted({str(token) for token in waited[other]}))
    yield Failure(
        other,
        f"{count_phrase(other, 'end')} in {endings}; generation stops at {stops}.",
        measured={"end": endings},
        expected={"end": stops},
        severity=Severity.WARNING,
        cause=Cause("the tokenizer's eos_token is not the end that the template writes", "eos"),
        fix="Set eos_token of the tokenizer, or eos_token_id in generation_config.json, to the end "
        "of the template.",
        kind="eos",
    )


def _foreign(mask: Array, letters: Array, spec: TokenizerSpec) -> Failure:
    """Return the chats in which text of other speakers is trained on."""
    text = (
        f"{int(letters[mask].sum()):,} characters of other speakers are trained on in "
        f"{pluralize(int(mask.sum()))}"
    )
    if not spec.assistant_only_loss:
        return Failure(
            mask,
            f"{text}: the trainer trains on all tokens.",
            severity=Severity.WARNING,
            cause=Cause("assistant_only_loss is off", "all"),
            fix="Set assistant_only_loss in the trainer and here; where all tokens shall count, "
            "switch this rule off.",
            kind="all",
            order=letters,
        )
    return Failure(
        mask,
        f"{text}.",
        cause=Cause("{% generation %} of the template holds more than answers", "foreign"),
        fix="Put only the answers inside {% generation %}.",
        kind="foreign",
        order=letters,
    )


@rule(
    "DC715",
    "template-text",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(form, trained),
    suppressed_by=("DC121", "DC122", "DC702"),
    applies=lambda s: s.role == "chat",
    unless=_tokenizer_missing,
)
def template_text(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The chat template leaves out a message, or the text begins with two BOS tokens.

    What:
        The text that the template writes holds the content of each message of the system, the user
        and the assistant (an answer that is missing is an error). Its tokens begin with one BOS
        token at most.
    Why it matters:
        The model never sees what the template leaves out. Two BOS tokens are a beginning that the
        model has not met before, and that inference does not have.
    Measure:
        The content without white space around it is looked for in the text, without the thought
        before ``</think>``, which many templates leave out of earlier turns. Contents that are no
        text, and those of tools, are not looked for.
    When it is wrong:
        The template rewrites contents on purpose: switch the rule off.
    Options:
        none
    Bad::

        schema: {fields: {c: {role: chat}}, tokenizer: {path: model-that-adds-bos}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Good::

        schema: {fields: {c: {role: chat}}, tokenizer: {path: model}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Fix:
        Use a template that writes all messages; let the template or the tokenizer write the BOS
        token, not both.
    Reference:
        DeepSeek-R1 issue 151: two BOS tokens. transformers, chat templates: tokenize the text of a
        template without special tokens.
    """
    name = case.name
    measured = rows.measured(f":{name}:twice")
    if not measured.any():
        return
    dropped = rows[f":{name}:dropped"]
    for role in sorted({str(word) for word in dropped[measured] if word}):
        mask = measured & match_texts(dropped, role.__eq__)
        yield Failure(
            mask,
            f"the template leaves out a message of the {role} in {pluralize(int(mask.sum()))}.",
            severity=Severity.ERROR if role in _SPEAKERS else None,
            fix="Use a template that writes all messages, or drop those that it does not know.",
            kind=f"dropped {role}",
        )
    twice = measured & rows[f":{name}:twice"].astype(bool)
    if twice.any():
        yield Failure(
            twice,
            f"{count_phrase(twice, 'begin')} with two BOS tokens.",
            cause=Cause("the template and the tokenizer both write the BOS token", "bos"),
            fix="Tokenize the text of the template without special tokens, or take the BOS token "
            "out of the template.",
            kind="bos",
        )
