"""Rules about the mask that a trainer makes of a chat, and the text that its template writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.masks import ANSWERERS
from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.table import Rows
from datacheck.rules.base import (
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    match_texts,
    pluralize,
    rule,
)
from datacheck.rules.chat_turns import pairs_of, trained
from datacheck.rules.measures import form
from datacheck.schema.model import Schema, TokenizerSpec

Array = np.ndarray[Any, Any]

# Why no special token that is trained on follows an answer, and what to do.
_STOP = {
    "minimind": ("`end` holds no special token", "Declare the end token: tokenizer: {end: ...}."),
    "trl": (
        "no special token ends the parts that count",
        "Put the end token inside {% generation %}, or let the template write one.",
    ),
    "axolotl": (
        "the tokenizer's eos_token does not follow the answers within three tokens",
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
def answer_mask(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The mask of a chat leaves out the end of an answer, or covers what others say.

    What:
        Each answer ends in a special token that is trained on (error), and generation stops at that
        token: it is the tokenizer's ``eos_token`` or in its ``generation_config.json`` (warning).
        No text of another speaker is trained on (error; a warning if the trainer trains on all
        tokens of the chat or the completion). A prompt has the same tokens alone as before its
        answer (warning).
    Why it matters:
        A model that never learns the end token does not stop. If generation waits for another
        token, it continues up to the maximum length.
    Measure:
        Tokens and mask as ``tokenizer: {trainer: ...}`` makes them: minimind (between ``start`` and
        ``end``), TRL (``assistant_only_loss`` or the completion), axolotl (``chat_template`` with
        its defaults), LLaMA-Factory (``template``).
    When it is wrong:
        The trainer's settings are not its defaults, or your own training code makes the labels:
        switch the rule off.
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
    measured = rows.measured(f":{name}:trained", f":{name}:foreign", f":{name}:prompt_mismatch")
    yield from unjudged(rows, name)
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
        prompted = bool(case.spec.continues) or any(name in p for p in pairs_of(case.schema))
        yield _foreign(foreign, rows[f":{name}:foreign"], spec, prompted=prompted)
    mismatch = counted & (rows[f":{name}:prompt_mismatch"] > 0)
    if mismatch.any():
        most = int(rows[f":{name}:prompt_mismatch"][mismatch].max())
        yield Failure(
            mismatch,
            f"the prompt of {pluralize(int(mismatch.sum()))} does not end alone as it ends before "
            f"the answer: up to {pluralize(most, 'token')} differ.",
            measured={"tokens": most},
            severity=Severity.WARNING,
            cause=Cause("the template writes a prompt without an answer differently", "prompt"),
            fix="Use a template that writes the prompt in one way, with and without an answer.",
            kind="prompt",
            order=rows[f":{name}:prompt_mismatch"],
        )


def unjudged(rows: Rows, name: str) -> Iterator[Skip]:
    """Yield the chats whose tokens are not known, with the reasons."""
    if f":{name}:why" not in rows:
        return
    mask = match_texts(rows[f":{name}:why"], bool)
    if mask.any():
        yield Skip(mask, first_few(sorted(set(rows[f":{name}:why"][mask]))))


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


def _foreign(mask: Array, letters: Array, spec: TokenizerSpec, *, prompted: bool) -> Failure:
    """Return the chats in which text of other speakers is trained on.

    Args:
        mask: these chats.
        letters: characters of other speakers that are trained on.
        spec: settings of the trainer.
        prompted: whether the chats continue a prompt.
    """
    text = (
        f"{int(letters[mask].sum()):,} characters of other speakers are trained on in "
        f"{pluralize(int(mask.sum()))}"
    )
    if spec.assistant_only_loss:
        return Failure(
            mask,
            f"{text}.",
            cause=Cause("{% generation %} of the template contains more than answers", "foreign"),
            fix="Put only the answers inside {% generation %}.",
            kind="foreign",
            order=letters,
        )
    if prompted:
        return Failure(
            mask,
            f"{text}: the completion contains their messages.",
            severity=Severity.WARNING,
            cause=Cause("the trainer trains on the whole completion", "completion"),
            fix="Move all messages before the last answer into the prompt, or set "
            "assistant_only_loss in the trainer and here.",
            kind="completion",
            order=letters,
        )
    return Failure(
        mask,
        f"{text}: the trainer trains on all tokens.",
        severity=Severity.WARNING,
        cause=Cause("assistant_only_loss is off", "all"),
        fix="Set assistant_only_loss in the trainer and here; if all tokens are to be trained on, "
        "switch this rule off.",
        kind="all",
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
def template_text(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The chat template leaves out a message, or the text begins with two BOS tokens.

    What:
        The text that the template writes holds the content of each message of the system, the user
        and the assistant (an answer that is missing is an error). Its tokens begin with one BOS
        token at most.
    Why it matters:
        The model never sees a message that the template leaves out. No text of pretraining begins
        with two BOS tokens, and no prompt at inference does.
    Measure:
        The rule searches the text for each content, without white space around it and without the
        thought before ``</think>``, which many templates leave out of earlier turns. It does not
        search for the content of tools, nor for content that is not text.
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
    measured = rows.measured(f":{name}:two_bos")
    yield from unjudged(rows, name)
    if not measured.any():
        return
    dropped = rows[f":{name}:dropped"]
    for role in sorted({str(word) for word in dropped[measured] if word}):
        mask = measured & match_texts(dropped, role.__eq__)
        yield Failure(
            mask,
            f"the template leaves out a message of the {role} in {pluralize(int(mask.sum()))}.",
            severity=Severity.ERROR if role in ANSWERERS else None,
            fix="Use a template that writes all messages, or drop those that it does not know.",
            kind=f"dropped {role}",
        )
    doubled = measured & rows[f":{name}:two_bos"].astype(bool)
    if doubled.any():
        yield Failure(
            doubled,
            f"{count_phrase(doubled, 'begin')} with two BOS tokens.",
            fix="Let the template or the tokenizer write the BOS token, and once.",
            kind="bos",
        )
