"""Rules about conversations: order of speakers, empty turns, preferences that prefer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import orjson

from datacheck.model.chats import text_at
from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    match_texts,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.chat_turns import (
    CALLER,
    SPELLED,
    Chat,
    Turns,
    chats_in,
    order_of,
    pairs_of,
    prompts_of,
    trained,
    turns_of,
)
from datacheck.rules.measures import form
from datacheck.rules.text_bytes import blank
from datacheck.runtime.hashing import shortened
from datacheck.schema.model import FieldSpec, Schema
from datacheck.tokenization import content_of, messages_of, role_of

Array = np.ndarray[Any, Any]

_RARELY = 0.1  # a larger share of empty texts in an optional field stands for "none"
_MANY = 100  # fewest texts of a judged file
_IN_ONE = 10  # multiple of the share allowed in it
_SHORT = 5  # characters: "null" has four
_NAME_BYTES = 200  # of a speaker's name in messages
_NAMELESS = frozenset({"none", "nan", "null"})
_ASKING = frozenset({"user", "human", "tool"})
# Types of message parts that are tool calls, by several writers.
_CALLS = frozenset({"tool_call", "tool_use", "function_call", "tool-call"})
# What a turn may hold besides text.
_INSTEAD = ("reasoning_content", "thinking", "audio", "refusal")
_PROMPTING = _ASKING | {"system"}
_USERS = frozenset({"user", "human"})
UNKNOWN = 1
NO_USER = 2
LAST = 4
NO_CALL = 8
TOOLS = 16
TWICE = 32
SPANS = 64
SPANNED = 128
# Shares of the chats: in more of them two questions in a row are normal for the dataset, and spans
# count from another place.
_MOST = {TWICE: 0.05, SPANS: 0.5}


def _roles(messages: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], bool]:
    """Return the roles in order, and whether a turn may be empty or a mere "None"."""
    try:
        roles = tuple([m["role"] for m in messages])
        contents = [m["content"] for m in messages]
        maybe_empty = min(map(len, contents), default=_SHORT) < _SHORT or any(
            map(str.isspace, contents)
        )
        "".join(roles)
    except (KeyError, TypeError):
        return tuple(map(role_of, messages)), True
    return roles, maybe_empty


@lru_cache(maxsize=65_536)
def _order(roles: tuple[str, ...], speakers: tuple[str, ...], learnt: str) -> tuple[int, str]:
    """Return the faults in the order of these speakers (bits), and the first unknown speaker."""
    wrong, strange = 0, ""
    if speakers:
        strange = shortened(next((role for role in roles if role not in speakers), ""), _NAME_BYTES)
        wrong |= UNKNOWN if strange else 0
    first = next((i for i, role in enumerate(roles) if role in {learnt, CALLER}), len(roles))
    if first < len(roles):
        wrong |= 0 if _asks(learnt) or any(map(_asks, roles[:first])) else NO_USER
        wrong |= LAST if roles[-1] not in {learnt, CALLER} else 0
    wrong |= (
        TWICE
        if any(earlier == later and earlier.lower() in _USERS for earlier, later in pairwise(roles))
        else 0
    )
    return wrong, strange


def _asks(role: str) -> bool:
    return role.lower() in _ASKING


def _calls(messages: Sequence[dict[str, Any]]) -> int:
    """Return the faults of tool calls and spans (bits).

    A tool answers without a call, tools are no JSON, or a span ends beyond its text.
    """
    called, wrong = False, 0
    for message in messages:
        called |= _is_call(message)
        wrong |= _spans(message)
        wrong |= NO_CALL if message.get("role") == "tool" and not called else 0
        for key in ("tools", "tool_calls"):
            value = message.get(key)
            wrong |= TOOLS if isinstance(value, str) and value and not _parses(value) else 0
    return wrong


def _spans(message: dict[str, Any]) -> int:
    """Return whether a message has spans (`start`, `exclusive_end`), and too long ones (bits).

    A span is too long if it ends beyond the message's text.
    """
    flags = 0
    inner = [value for value in message.values() if isinstance(value, dict | list)]
    content = content_of(message) if inner else None
    room = len(content.encode("utf-8", "surrogatepass")) if isinstance(content, str) else None
    while inner and room is not None:
        node = inner.pop()
        if isinstance(node, dict):
            start = node.get("start")
            end = node.get("exclusive_end")
            if isinstance(start, int) and isinstance(end, int):
                flags |= SPANNED | (SPANS if end > room else 0)
        values = node.values() if isinstance(node, dict) else node
        inner += [value for value in values if isinstance(value, dict | list)]
    return flags


def _is_call(message: dict[str, Any]) -> bool:
    """Tell whether a message calls a tool: by an entry, in its text, or by a part of content."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    types = {str(part.get("type")) for part in parts if isinstance(part, dict)}
    named = bool(message.get("tool_calls") or message.get("function_call"))
    return named or not types.isdisjoint(_CALLS) or "<tool_call>" in str(content)


def _parses(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


@measure(
    "speakers", version=8, applies=lambda spec: spec.role == "chat", uses=("speakers", "train_on")
)
def speakers(column: Column, spec: FieldSpec) -> Columns:
    """Order of speakers, and empty turns.

    Bits of `order`: 1 unknown, 2 no user before, 4 not last, 8 tool without call, 16 tools no JSON,
    32 a user twice, 64 spans that end beyond the text of their turn, 128 spans.
    `strange`: the first unknown speaker; `hollow`: empty turns to learn from; `mute`: other empty
    turns, without those of the system; `unsaid`: turns that are None, nan or null; `turns`: the
    speakers, as text (`chat_turns.order_of`).
    """
    if column.kind != "json":
        return {}
    learnt = spec.train_on or "assistant"
    turns = turns_of(column)
    if turns is not None:
        return dict(_order_columns(turns, spec.speakers, learnt)) | {"turns": turns.orders()}
    chats = chats_in(column)
    heard = [_roles(messages) for messages in chats]
    order_checks = [_order(roles, spec.speakers, learnt) for roles, _ in heard]
    order = np.array([wrong for wrong, _ in order_checks], dtype=np.int64)
    called = [
        i for i, m in enumerate(chats) if sum(map(len, m)) > 2 * len(m) or "tool" in heard[i][0]
    ]
    maybe_empty = [i for i, (_, maybe_empty) in enumerate(heard) if maybe_empty]
    spoken = _speaker_columns(
        chats.__getitem__,
        learnt,
        order,
        [strange for _, strange in order_checks],
        called,
        maybe_empty,
    )
    return dict(spoken) | {"turns": [order_of(roles[: SPELLED + 1]) for roles, _ in heard]}


def _order_columns(turns: Turns, allowed_roles: tuple[str, ...], learnt: str) -> Columns:
    """Return the columns of `speakers` for plain chats: the faults of `_order`, vectorized."""
    count = len(turns.roles)
    filled = turns.counts > 0
    answer = turns.first(turns.where(learnt, CALLER))
    question = turns.first(turns.where(*filter(_asks, turns.words)))
    order = np.where((answer < count) & (question >= answer), NO_USER, 0)
    last_roles = turns.roles[turns.starts[filled] + turns.counts[filled] - 1]
    ends = np.zeros(len(order), bool)
    ends[filled] = np.array([word in {learnt, CALLER} for word in turns.words], dtype=bool)[
        last_roles
    ]
    order[(answer < count) & ~ends] |= LAST
    users = turns.where(*(word for word in turns.words if word.lower() in _USERS))
    twice = users[1:] & (turns.roles[1:] == turns.roles[:-1])
    owners = np.repeat(np.arange(len(turns.counts)), turns.counts)
    order[owners[1:][twice & (owners[1:] == owners[:-1])]] |= TWICE
    strange = [""] * len(order)
    if allowed_roles and any(word not in allowed_roles for word in turns.words):
        first = turns.first(~turns.where(*allowed_roles))
        for i in np.flatnonzero(first < count).tolist():
            strange[i] = shortened(turns.words[turns.roles[first[i]]], _NAME_BYTES)
            order[i] |= UNKNOWN if strange[i] else 0
    called = np.flatnonzero((turns.wide > 0) | (turns.first(turns.where("tool")) < count))
    maybe_empty = blank(turns.said)
    assert turns.said.lengths is not None
    # Lengths are bytes, and a character has four at most.
    short = np.flatnonzero(~maybe_empty & (turns.said.lengths < 4 * _SHORT))
    maybe_empty[short] = [len(text_at(turns.said, i)) < _SHORT for i in short.tolist()]
    owners = np.searchsorted(np.cumsum(turns.counts), np.flatnonzero(maybe_empty), side="right")
    return _speaker_columns(
        turns.chat, learnt, order, strange, called.tolist(), np.unique(owners).tolist()
    )


def _speaker_columns(
    chat: Callable[[int], Chat],
    learnt: str,
    order: Array,
    strange: list[str],
    called: Sequence[int],
    maybe_empty: Sequence[int],
) -> Columns:
    """Return the columns of `speakers`, after a closer look at chats with calls or odd turns."""
    for i in called:
        order[i] |= _calls(chat(i))
    counts = np.zeros((3, len(order)), np.int64)
    for i in maybe_empty:
        counts[:, i] = _empty_turns(chat(i), learnt)
    return {
        "order": order,
        "strange": strange,
        "hollow": counts[0],
        "mute": counts[1],
        "unsaid": counts[2],
    }


def _empty_turns(messages: Sequence[dict[str, Any]], learnt: str) -> tuple[int, int, int]:
    """Return counts of turns: empty ones to learn from, other empty ones, mere None."""
    hollow = mute = unsaid = 0
    for message in messages:
        content = content_of(message)
        content = "" if content is None or content == [] else content  # JSON null, no parts
        if not isinstance(content, str):
            continue
        if not content.strip():
            silent = not (_is_call(message) or any(map(message.get, _INSTEAD)))
            hollow += silent and role_of(message) == learnt
            # An empty system turn is a valid choice: no instruction.
            mute += silent and role_of(message) not in {learnt, "system"}
        else:
            unsaid += content.strip().lower() in _NAMELESS
    return hollow, mute, unsaid


@measure("words", applies=lambda spec: spec.role == "text")
def words(column: Column, spec: FieldSpec) -> Columns:
    """Empty texts: `hollow` (empty or white space), `unsaid` (None, nan or null)."""
    del spec
    if column.kind != "text" or column.lengths is None:
        return {}
    unsaid = np.zeros(len(column), bool)
    for i in np.flatnonzero(column.lengths <= 64).tolist():
        unsaid[i] = text_at(column, i).strip().lower() in _NAMELESS
    return {"hollow": blank(column), "unsaid": unsaid}


@rule(
    "DC705",
    "empty-text",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(form, speakers, words),
    suppressed_by=("DC121", "DC122", "DC702"),
    applies=lambda s: s.role in {"chat", "text"},
    defaults={"share": 0.001},
)
def empty_text(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A text or a chat turn is empty, or holds only the word None.

    What:
        Answers and texts hold more than white space. No text and no turn is just ``None``, ``nan``
        or ``null``, which str() makes of a missing value. An ``optional`` text field may be empty
        in more than a tenth of the samples that have it: there, an empty text means "none".
    Why it matters:
        The model learns to answer nothing, or to answer None.
    Measure:
        Turns and texts without a visible character. A turn that only calls a tool or holds only
        reasoning does not count as empty.
    When it is wrong:
        A text that is not required is now and then written as "": raise ``share``. Empty answers
        are filled in during training: switch the rule off.
    Options:
        share: largest share of empty plain texts, or of chats with an empty turn of another
        speaker, that is not reported (0.001); within one file of a hundred texts or more, ten times
        that share of texts.
    Bad::

        schema: {fields: {c: {role: chat, train_on: assistant}}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}
          - {c: {json: [{role: user, content: Tell me of pixels.}, {role: assistant, content: " "}]}}

    Good::

        schema: {fields: {c: {role: chat, train_on: assistant}}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Fix:
        Drop these samples, and look for the join or the export that lost the text.
    Reference:
        minimind's PretrainDataset trains on str(text): a missing text becomes the word None.
    """
    measured = rows.measured("hollow", "unsaid")
    if not measured.any():
        return
    what = "text" if case.spec.role == "text" else f"{case.spec.train_on or 'assistant'} turn"
    share = float(case.options["share"])
    hollow = measured & (rows["hollow"] > 0)
    if hollow.any() and (case.spec.role != "text" or _exceptions(rows, hollow, measured, case)):
        failure = _empty(hollow, f"{count_phrase(hollow, 'have')} an empty {what}.", "empty")
        yield (
            replace(failure, severity=Severity.WARNING)
            if case.spec.optional and case.spec.role == "text"
            else failure
        )
    unsaid = measured & (rows["unsaid"] > 0)
    if unsaid.any():
        text = (
            f"{count_phrase(unsaid, 'say')} None, nan or null and nothing else in a "
            f"{what.split()[-1]}."
        )
        yield _empty(unsaid, text, "none")
    mute = measured & (rows["mute"] > 0) if "mute" in rows else measured & False
    if mute.sum() > share * measured.sum():
        yield _empty(
            mute, f"{count_phrase(mute, 'have')} an empty turn of another speaker.", "mute"
        )


def _exceptions(rows: Rows, hollow: Array, measured: Array, case: RuleContext) -> bool:
    """Tell whether empty texts are too many, in all or in one file.

    In an optional field they are exceptions only while they are few.
    """
    share = float(case.options["share"])
    count = int(hollow.sum())
    if case.spec.optional and count > _RARELY * measured.sum():
        return False
    file_rows = rows.files.rows
    file_counts = np.bincount(file_rows[measured])
    empty = np.bincount(file_rows[hollow])
    file_counts = file_counts[: len(empty)]
    return bool(
        count > share * measured.sum()
        or ((file_counts >= _MANY) & (empty > _IN_ONE * share * file_counts)).any()
    )


def _empty(mask: Array, text: str, kind: str) -> Failure:
    return Failure(
        mask, text, fix="Drop them; look for the join or the export that lost the text.", kind=kind
    )


_WRONG = {
    UNKNOWN: (
        "unknown",
        "have a speaker that is none of the declared ones",
        "speakers under other names",
    ),
    NO_USER: (
        "no-user",
        "have an answer before anyone has asked",
        "the question is lost, turns are out of order, or speakers are exchanged",
    ),
    NO_CALL: (
        "no-call",
        "have the reply of a tool that nobody called",
        "the turn with the call is lost",
    ),
    TOOLS: (
        "tools",
        "have tools or tool calls that are no JSON",
        "written as another text than JSON",
    ),
    LAST: (
        "last",
        "do not end with an answer",
        "the last answer is lost, or turns are out of order",
    ),
    TWICE: (
        "twice",
        "have two turns of the user in a row",
        "an answer is lost, or a speaker has the wrong name",
    ),
    SPANS: (
        "spans",
        "have spans (start, exclusive_end) that end beyond the text of their turn",
        "",
    ),
}


@measure("preference", version=3, per="sample", uses=("fields.preferred_over", "fields.role"))
def preference(block: Block, schema: Schema) -> Columns:
    """Differences of two answers to one prompt.

    ``<field>:equal``: there are none; ``<field>:prompts``: the first difference is in a turn that
    asks or instructs. Chats whose first difference is an answer may continue in any way.
    """
    columns: dict[str, Array] = {}
    for name, spec in schema.of_role("chat", "text"):
        mine = block.fields.get(name)
        other = block.fields.get(spec.preferred_over or "")
        if mine is None or other is None or mine.kind != other.kind or mine.kind == "array":
            continue
        pairs = list(zip(mine.objects, other.objects, strict=True))
        if mine.kind == "text":
            columns[f"{name}:equal"] = np.array(
                [a.strip() == b.strip() for a, b in pairs], dtype=bool
            )
            columns[f"{name}:prompts"] = np.zeros(len(block), bool)
            continue
        parting = [_diverging_roles(messages_of(a), messages_of(b)) for a, b in pairs]
        columns[f"{name}:equal"] = np.array([roles is None for roles in parting], dtype=bool)
        columns[f"{name}:prompts"] = np.array(
            [bool(_PROMPTING & (roles or set())) for roles in parting], dtype=bool
        )
    return columns


def _diverging_roles(
    preferred: Sequence[dict[str, Any]], rejected: Sequence[dict[str, Any]]
) -> set[str] | None:
    """Return the speakers of the first turns in which two chats differ, None for equal chats."""
    for turns in zip_longest(preferred, rejected):
        if turns[0] != turns[1]:
            return {role_of(turn) for turn in turns if turn is not None}
    return None


@rule(
    "DC706",
    "role-order",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, speakers, preference),
    suppressed_by=("DC121", "DC122"),
    applies=lambda s: s.role == "chat",
)
def role_order(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The turns of a chat are in an order that a template cannot render or a model cannot learn from.

    What:
        Every speaker is among ``speakers``. Someone asks before the first answer. A tool replies
        only to a call. Tools and tool calls that are stored as text are valid JSON. The last turn
        is an answer, unless the answers are fields of their own (``preferred_over``,
        ``continues``). No user speaks twice in a row, where this is rare (at most 5 % of the
        chats). Spans in a turn (``start``, ``exclusive_end``) end within its text, where they do so
        in at least half of the chats with spans.
    Why it matters:
        Chat templates drop such turns silently, or raise an exception in the middle of an epoch.
    Measure:
        The sequence of speakers of each chat. The end of a span is compared with the length of the
        text in UTF-8 bytes, which is at least its number of characters.
    When it is wrong:
        Another speaker is intended: list it in ``speakers``. The answers have another name: set
        ``train_on``.
    Options:
        none
    Bad::

        schema: {fields: {c: {role: chat, speakers: [system, user, assistant], train_on: assistant}}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}
          - {c: {json: [{role: usr, content: Hello.}, {role: user, content: Well.}, {role: assistant, content: Dots.}]}}

    Good::

        schema: {fields: {c: {role: chat, speakers: [system, user, assistant], train_on: assistant}}}
        samples:
          - {c: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}}

    Fix:
        Repair the export, or drop the chats.
    Reference:
        minimind's agent data hold tools as JSON text, which is parsed without error handling.
    """
    measured = rows.measured("order")
    if not measured.any():
        return
    order = rows["order"]
    for bit, (kind, what, why) in _WRONG.items():
        mask = measured & ((order & bit) > 0) & _judged(rows, case, bit)
        if bit in {LAST, TWICE}:
            mask &= order & NO_USER == 0  # report turns out of order only once
        population = measured & ((order & SPANNED) > 0) if bit == SPANS else measured
        mask &= mask.sum() <= _MOST.get(bit, 1) * population.sum()
        if not mask.any():
            continue
        strange = (
            f": {first_few(sorted({repr(str(s)) for s in rows['strange'][mask]}))}"
            if bit == UNKNOWN
            else ""
        )
        count = int(mask.sum())
        verb = (
            what if count > 1 else what.replace("have ", "has ", 1).replace("do not", "does not", 1)
        )
        yield Failure(
            mask,
            f"{pluralize(count)} {verb}{strange}.",
            expected={"speakers": list(case.spec.speakers)},
            cause=Cause(why, kind, explains=count) if why else None,
            severity=Severity.WARNING if bit in {LAST, TWICE} else None,
            fix="Repair the export, or drop the chats.",
            kind=kind,
        )


def _judged(rows: Rows, case: RuleContext, bit: int) -> Array:
    """Return bool (rows): chats in which the deviation `bit` is a fault.

    Notes:
        The answers of a preference pair may stand alone, and the chat next to them ends with the
        question. So does a chat that another field continues; the turns of that field may begin with an
        answer, or with the reply of a tool.
    """
    if (bit in {NO_USER, NO_CALL} and case.spec.continues) or (
        bit == LAST and case.name in prompts_of(case.schema)
    ):
        return np.zeros(len(rows), bool)
    pairs = pairs_of(case.schema)
    mine = any(case.name in pair for pair in pairs)
    mask = np.ones(len(rows), bool)
    if bit == NO_USER and mine:
        mask = ~match_texts(
            rows["turns"], lambda turns: turns == (case.spec.train_on or "assistant")
        )
    elif bit == LAST and not mine:
        for name, _ in pairs:
            mask &= ~rows.measured(f":{name}:equal")
    return mask


@rule(
    "DC712",
    "equal-preference",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, preference, trained),
    suppressed_by=("DC121", "DC122", "DC702"),
    applies=lambda s: s.role in {"chat", "text"} and s.preferred_over is not None,
)
def equal_preference(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A preferred answer equals the rejected one, or answers another prompt.

    What:
        The two chats of a ``preferred_over`` pair differ, and the first turn that differs is an
        answer: up to there, both have the same prompt. Their tokens still differ once they are cut
        to ``tokenizer: {max_length}``.
    Why it matters:
        Equal answers give no gradient and a loss of ln 2. From answers to different prompts the
        model learns the difference between the prompts.
    Measure:
        The first turn that differs, and its speaker. With ``tokenizer: {path}``, the tokens of both
        chats within ``max_length``.
    When it is wrong:
        The prompts differ on purpose (a rewritten question): switch the rule off.
    Options:
        none
    Bad::

        schema: {fields: {good: {role: chat, preferred_over: bad}, bad: {role: chat}}}
        samples:
          - good: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}
            bad: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}

    Good::

        schema: {fields: {good: {role: chat, preferred_over: bad}, bad: {role: chat}}}
        samples:
          - good: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: A small cube.}]}
            bad: {json: [{role: user, content: Tell me of voxels.}, {role: assistant, content: No idea.}]}

    Fix:
        Drop the pairs, or join answers and prompts again by their key.
    Reference:
        minimind's DPO records hold both conversations in full, and nothing keeps their prompts
        equal. OpenRLHF issue 1311: pairs that are equal once they are cut.
    """
    name = case.name
    other = case.spec.preferred_over or ""
    pair = (other,)
    measured = rows.measured(f":{name}:equal", f":{name}:prompts")
    if not measured.any():
        return
    diverging = measured & rows[f":{name}:prompts"].astype(bool)
    same = measured & rows[f":{name}:equal"].astype(bool) & ~diverging
    fix = "Drop the pairs, or join answers and prompts again by their key."
    if same.any():
        text = (
            f"{name} and {other} are equal in {pluralize(int(same.sum()))}: nothing is preferred."
        )
        yield Failure(
            same,
            text,
            cause=Cause("both answers are one", "same"),
            fix=fix,
            kind="same",
            extra=pair,
        )
    tokenized = measured & ~same & ~diverging & rows.measured(f":{name}:kept", f":{other}:kept")
    cut, unwritten = tokenized, tokenized
    if tokenized.any():
        unwritten = tokenized & (rows[f":{name}:uncut"] == rows[f":{other}:uncut"])
        cut = tokenized & (rows[f":{name}:kept"] == rows[f":{other}:kept"]) & ~unwritten
    if unwritten.any():
        yield Failure(
            unwritten,
            f"{name} and {other} have the same tokens in {pluralize(int(unwritten.sum()))}, though "
            f"not the same content.",
            fix="Look at both with datacheck view: the chat template or the tokenizer drops the part "
            "in which they differ.",
            kind="template",
            extra=pair,
        )
    if cut.any():
        yield Failure(
            cut,
            f"{name} and {other} are equal in {pluralize(int(cut.sum()))} once they are cut to the "
            f"maximum length.",
            cause=Cause("the answers differ only in tokens that are cut off", "cut"),
            fix="Raise max_length, or drop the pairs.",
            kind="cut",
            extra=pair,
        )
    if diverging.any():
        text = f"{name} and {other} answer different prompts in {pluralize(int(diverging.sum()))}."
        yield Failure(
            diverging,
            text,
            cause=Cause("prompts differ", "prompts"),
            fix=fix,
            kind="prompts",
            extra=pair,
        )
