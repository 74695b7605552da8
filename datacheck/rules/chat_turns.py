"""The turns of a block's chats, parsed in one pass for all families that measure chats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from datacheck.errors import MissingDependencyError, UsageError
from datacheck.masks import Conversation, MaskedChat, UnjudgedError, dropped_role, masked_chats
from datacheck.model.chats import Messages, message_bytes
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured
from datacheck.plugins import is_installed
from datacheck.rules.base import Columns, measure
from datacheck.runtime.hashing import digest_bytes, digests64, shortened
from datacheck.schema.model import FieldSpec, Schema, TokenizerSpec
from datacheck.tokenization import Tokenizer, messages_of, tokenizer_files

Array = np.ndarray[Any, Any]
Chat = list[dict[str, Any]]

_ROLE = itemgetter("role")
_CONTENT = itemgetter("content")
CALLER = "function_call"  # ShareGPT's name of the turn in which the model calls a tool
SPELLED = 16  # messages of a chat that its order of turns lists
_LETTERS = 24  # characters of a role
_TEXT_BYTES = 1_000  # of a token or a reason in the row of a sample
_STEP = np.uint64(0x9E3779B97F4A7C15)  # odd: its powers are distinct weights of the positions


@dataclass(frozen=True, eq=False)
class Turns:
    """The messages of plain chats in sequence: each has a role and a content that are text.

    Shapes:
        counts: int64 (chats) [messages]
        roles: int64 (messages), places in `words`
        wide: int64 (chats): entries of its messages besides role and content
        sizes: int64 (messages) [bytes of role and content as JSON]

    Args:
        chat: returns the messages of one chat.
        words: the distinct roles.
        said: the content of each message.
    """

    chat: Callable[[int], Chat]
    counts: Array
    words: list[str]
    roles: Array
    said: Column
    wide: Array
    sizes: Array

    @property
    def starts(self) -> Array:
        """Int64 (chats): the first message of each chat."""
        return np.cumsum(self.counts) - self.counts

    def where(self, *words: str) -> Array:
        """Return bool (messages): whether the role is one of these."""
        return np.array([word in words for word in self.words], dtype=bool)[self.roles]

    def first(self, mask: Array) -> Array:
        """Return the first message of each chat where `mask` is true.

        A chat without one gets the count of all messages.

        Shapes:
            mask: bool (messages)
            returns: int64 (chats)
        """
        firsts = np.full(len(self.counts), len(self.roles), np.int64)
        places = np.flatnonzero(mask)
        owners = np.searchsorted(np.cumsum(self.counts), places, side="right")
        firsts[owners[::-1]] = places[::-1]  # reversed: the first message is written last and stays
        return firsts

    def orders(self) -> list[str]:
        """Return the `order_of` each chat, computed once for each distinct order of roles."""
        seen = np.minimum(self.counts, SPELLED + 1)
        place = np.arange(int(seen.sum())) - np.repeat(np.cumsum(seen) - seen, seen)
        roles = self.roles[np.repeat(self.starts, seen) + place]
        numbers = np.where(place < SPELLED, roles + 1, len(self.words) + 1).astype(np.uint64)
        sums = np.concatenate(
            [
                np.zeros(1, np.uint64),
                np.cumsum(numbers * np.cumprod(np.full(SPELLED + 1, _STEP))[place]),
            ]
        )
        stops = np.cumsum(seen)
        _, first, which = np.unique(
            sums[stops] - sums[stops - seen], return_index=True, return_inverse=True
        )
        order_texts = [
            order_of(tuple(self.words[role] for role in roles[stops[i] - seen[i] : stops[i]]))
            for i in first.tolist()
        ]
        return [order_texts[number] for number in which.tolist()]


@lru_cache(maxsize=65_536)
def order_of(roles: tuple[str, ...]) -> str:
    """Return the order of speakers with repetitions counted: "(user assistant)", 3 times.

    At most 16 turns are listed.
    """
    names = [
        role.encode("utf-8", "backslashreplace").decode()[:_LETTERS] for role in roles[:SPELLED]
    ]
    parts = []
    i = 0
    while i < len(names):
        size, times = 1, 1
        for period in range(1, 5):
            repeats = 1
            while names[i : i + period] == names[i + repeats * period : i + (repeats + 1) * period]:
                repeats += 1
            if repeats > 1 and repeats * period > size * times:
                size, times = period, repeats
        turn = " ".join(names[i : i + size])
        parts.append(
            turn if times == 1 else f"({turn})\u00d7{times}" if size > 1 else f"{turn}\u00d7{times}"
        )
        i += size * times
    return " ".join([*parts, "…"] if len(roles) > SPELLED else parts)


def chats_in(column: Column) -> list[Chat]:
    """Return the messages of each chat of a column; entries that are no messages are left out."""
    values = column.objects
    if set(map(type, values)) == {list} and set(map(type, chain.from_iterable(values))) <= {dict}:
        return values
    return [messages_of(value) for value in values]


def turns_of(column: Column) -> Turns | None:
    """Return the messages of a column of chats, None where some chats are not plain.

    Notes:
        Cached on the column, because several families need them. Callers process chats that are not
        plain one by one.
    """
    if isinstance(column, Messages):
        return of_messages(column)
    if "_turns" not in column.__dict__:
        column.__dict__["_turns"] = turns_in(chats_in(column))
    cached: Turns | None = column.__dict__["_turns"]
    return cached


def of_messages(column: Messages) -> Turns:
    """Return the turns of a column that holds parsed messages."""
    none = np.zeros(len(column), np.int64)
    return Turns(
        column.chat, column.counts, column.words, column.roles, column.said, none, column.sizes
    )


def pairs_of(schema: Schema) -> list[tuple[str, str]]:
    """Return the fields of preferred answers, each with its field of rejected ones."""
    return [
        (name, spec.preferred_over)
        for name, spec in schema.of_role("chat", "text")
        if spec.preferred_over
    ]


def prompts_of(schema: Schema) -> frozenset[str]:
    """Return the chats that another field continues: the loss excludes them."""
    return frozenset(spec.continues for _, spec in schema.of_role("chat") if spec.continues)


def is_plain(chat: Any) -> bool:
    """Tell whether a chat is a list of messages with a role and a text each, and nothing else."""
    return isinstance(chat, list) and all(
        isinstance(message, dict)
        and len(message) == 2
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
        for message in chat
    )


def turns_in(chats: list[Chat]) -> Turns | None:
    """Return the messages of chats, None where some are not plain."""
    flat = list(chain.from_iterable(chats))
    try:
        roles = list(map(_ROLE, flat))
        contents = list(map(_CONTENT, flat))
        numbers = {role: number for number, role in enumerate(dict.fromkeys(roles))}
    except (KeyError, TypeError):
        return None
    if not set(map(type, contents)) <= {str} or not set(map(type, numbers)) <= {str}:
        return None
    counts = np.fromiter(map(len, chats), np.int64, len(chats))
    stops = np.cumsum(counts)
    sizes = np.concatenate([[0], np.cumsum(np.fromiter(map(len, flat), np.int64, len(flat)))])
    wide = sizes[stops] - sizes[stops - counts] - 2 * counts
    codes = np.fromiter(map(numbers.__getitem__, roles), np.int64, len(roles))
    texts = Column.of(contents) if contents else Column(np.zeros(0, np.uint8), counts[:0], "text")
    return Turns(
        chats.__getitem__,
        counts,
        list(numbers),
        codes,
        texts,
        wide,
        message_bytes(list(numbers), codes, texts),
    )


# Suffix of the path of a tokenizer that failed.
FAILED = " (the tokenizer or its chat template takes too much time or memory, or ends its process)"


def chats_of(schema: Schema) -> list[tuple[str, FieldSpec]]:
    """Return the chat fields that are values of their own."""
    return [(name, spec) for name, spec in schema.of_role("chat") if schema.part_of(name) is None]


@lru_cache(maxsize=4)
def _tokenizer_or_reason(path: str | None, *, template: bool) -> Tokenizer | str:
    """Return the tokenizer at a path, once per process, or the reason why there is none.

    Args:
        path: of the tokenizer.
        template: whether it needs a chat template.
    """
    if path is None:
        return "no tokenizer is named; say tokenizer: {path: FOLDER}"
    if path.endswith(FAILED):
        return f"{path}; look whether it is the one that training uses"
    try:
        return Tokenizer(path).with_template() if template else Tokenizer(path)
    except MissingDependencyError as error:
        return str(error)
    except UsageError as error:  # without a tokenizer the rules judge by bytes
        return (
            f"{path}: no tokenizer with a chat template can be read there; say tokenizer: "
            f"{{path: FOLDER}} ({error})"
        )


def _tokenizer_state(schema: Schema) -> Any:
    """Return what besides the schema decides about tokens.

    It consists of the digests of the tokenizer's files, and whether its libraries are installed.
    """
    if schema.tokenizer is None or schema.tokenizer.path is None:
        return None
    try:
        files = tokenizer_files(schema.tokenizer.path)
    except OSError:  # the rules say why there is no tokenizer
        files = []
    return [
        is_installed("tokenizers") and is_installed("jinja2"),
        *("" if file is None else digest_bytes(file) for file in files),
    ]


@measure(
    "trained",
    version=4,
    per="sample",
    uses=("tokenizer", "fields.role", "fields.continues", "fields.preferred_over", "fields.tools"),
    outside=_tokenizer_state,
)
def trained(block: Block, schema: Schema) -> Columns:
    """Supervised tokens after template and truncation, as the schema's trainer marks them.

    ``<field>:trained`` tokens that are trained on and kept; ``<field>:marker``: tokens up to the
    first answer, -1 where none is found; ``<field>:tokens`` before truncation; ``<field>:cut``:
    supervised tokens that truncation removes; ``<field>:closed``: truncation cuts no answer in two;
    ``<field>:ending``: the special token that ends the answers, "" for none; ``<field>:eos``: the
    end token of the tokenizer if generation does not stop at that ending; ``<field>:foreign``:
    supervised characters of other speakers; ``<field>:prompt_mismatch``: last tokens of the prompt
    alone that the conversation lacks; ``<field>:two_bos``: the text begins with two BOS tokens;
    ``<field>:dropped``: the role of a message that the template leaves out; ``<field>:kept``: hash
    of the tokens that are kept, ``<field>:uncut`` of all; ``<field>:refused``: why the trainer
    makes no tokens of the chat; ``<field>:why``: why nothing could be counted. A chat that another
    field continues has no columns.
    """
    columns: dict[str, Any] = {}
    spec = schema.tokenizer or TokenizerSpec()
    prompts = prompts_of(schema)
    for name, _ in chats_of(schema):
        column = block.fields.get(name)
        if column is None or column.kind != "json" or name in prompts:
            continue
        speech = _tokenizer_or_reason(spec.path, template=not spec.template)
        columns[f"{name}:why"] = [speech if isinstance(speech, str) else ""] * len(block)
        if isinstance(speech, Tokenizer):
            try:
                counted = _count(speech, _conversations(block, schema, name), spec)
            except UsageError as error:  # the tokenizer is at fault, not a sample
                columns[f"{name}:why"] = [str(error)] * len(block)
            else:
                columns |= {f"{name}:{stat}": values for stat, values in counted.items()}
    return columns


def _conversations(block: Block, schema: Schema, name: str) -> list[Conversation]:
    """Return the chats of a field, each with its prompt and tools.

    Notes:
        The prompt of a preference pair without a field for it is the messages that both answers
        begin with, as TRL extracts it.
    """
    spec = schema.fields[name]
    chats = [messages_of(value) for value in block.fields[name].objects]
    given = block.fields.get(spec.tools or "")
    tools = [None] * len(block) if given is None or given.kind == "array" else given.objects
    prompts: list[Chat] = [[]] * len(block)
    other = next((b if a == name else a for a, b in pairs_of(schema) if name in (a, b)), "")
    if spec.continues in block.fields:
        prompts = [messages_of(value) for value in block.fields[spec.continues].objects]
    elif other in block.fields and block.fields[other].kind == "json":
        rivals = map(messages_of, block.fields[other].objects)
        sizes = [_common(chat, rival) for chat, rival in zip(chats, rivals, strict=True)]
        prompts = [chat[:size] for chat, size in zip(chats, sizes, strict=True)]
        chats = [chat[size:] for chat, size in zip(chats, sizes, strict=True)]
    return [
        Conversation(chat, prompt, tool)
        for chat, prompt, tool in zip(chats, prompts, tools, strict=True)
    ]


def _common(chat: Chat, other: Chat) -> int:
    """Return the number of messages that both chats begin with, without the last of either.

    Reference:
        trl, ``extract_prompt``.
    """
    return next(
        (i for i, (left, right) in enumerate(zip(chat, other, strict=False)) if left != right),
        max(0, min(len(chat), len(other)) - 1),
    )


# What a chat counts that gives no tokens.
_NO_TOKENS = MaskedChat(
    np.zeros(0, np.int64),
    np.zeros(0, bool),
    np.zeros(0, bool),
    text="",
    first=-1,
    closed=True,
    ending="",
    eos="",
)


def _count(
    speech: Tokenizer, conversations: list[Conversation], spec: TokenizerSpec
) -> dict[str, Any]:
    bos = speech.id_of("bos_token")
    made = list(masked_chats(speech, conversations, spec.mask_settings()))
    why = [str(chat) if isinstance(chat, UnjudgedError) else "" for chat in made]
    refused = [
        str(chat) if isinstance(chat, ValueError) and not unjudged else ""
        for chat, unjudged in zip(made, why, strict=True)
    ]
    chats = [_NO_TOKENS if isinstance(chat, ValueError) else chat for chat in made]
    kept = [chat.ids[chat.kept] for chat in chats]
    judged = np.array([not reason for reason in why], dtype=bool)
    readable = judged & np.array([not reason for reason in refused], dtype=bool)
    numbers = {
        "marker": [chat.first for chat in chats],
        "tokens": [len(chat.ids) for chat in chats],
        "cut": [int((chat.trained & ~chat.kept).sum()) for chat in chats],
        "foreign": [chat.foreign for chat in chats],
        "prompt_mismatch": [chat.prompt_mismatch for chat in chats],
    }
    return {
        "trained": Measured(
            np.array([int((chat.trained & chat.kept).sum()) for chat in chats], np.int64), judged
        ),
        **{stat: Measured(np.array(n, np.int64), readable) for stat, n in numbers.items()},
        "closed": Measured(np.array([chat.closed for chat in chats], bool), readable),
        "two_bos": Measured(
            np.array([bos is not None and ids[:2].tolist() == [bos, bos] for ids in kept], bool),
            readable,
        ),
        "kept": Measured(digests64(ids.tobytes() for ids in kept), readable),
        "uncut": Measured(digests64(chat.ids.tobytes() for chat in chats), readable),
        "ending": [_short(chat.ending) for chat in chats],
        "eos": [
            _short(chat.eos)
            if chat.ending != chat.eos and speech.id_of_text(chat.ending) not in speech.stops
            else ""
            for chat in chats
        ],
        "dropped": [
            dropped_role(chat.text, conversation) if chat.text else ""
            for chat, conversation in zip(chats, conversations, strict=True)
        ],
        "refused": list(map(_short, refused)),
        "why": list(map(_short, why)),
    }


def _short(text: str) -> str:
    """Return a text that the row of each sample can hold: a tokenizer may have a token of megabytes."""
    return shortened(text, _TEXT_BYTES)


@measure("vocabulary", per="sample", uses=("tokenizer",), outside=_tokenizer_state)
def vocabulary(block: Block, schema: Schema) -> Columns:
    """Size and padding id of the tokenizer: `vocabulary`, `pad`; -1 where unknown."""
    speech = None if schema.tokenizer is None else _tokenizer(schema.tokenizer.path)
    size = -1 if speech is None else speech.size
    pad = None if speech is None else speech.id_of("pad_token")
    return {
        "vocabulary": np.full(len(block), size),
        "pad": np.full(len(block), -1 if pad is None else pad),
    }


@lru_cache(maxsize=4)
def _tokenizer(path: str | None) -> Tokenizer | None:
    """Return the tokenizer at a path, with or without a chat template; None where there is none.

    Read once per process.
    """
    try:
        return None if path is None else Tokenizer(path)
    except (MissingDependencyError, UsageError):
        return None
