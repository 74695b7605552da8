"""What a tokenizer makes of chats: what is learnt from, what is cut, and what the tokenizer says of itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from datacheck.digest import digest_bytes
from datacheck.errors import MissingDependencyError, UsageError
from datacheck.registry import has
from datacheck.rules.base import Columns, measure
from datacheck.sample import Block
from datacheck.schema.model import FieldSpec, Schema, TokenizerSpec
from datacheck.table import Measured
from datacheck.tokens import Tokenizer, messages_of, places, spans, tokenizer_files

Array = np.ndarray[Any, Any]

_AT_ONCE = 1 << 20  # letters of the texts that become tokens at once, each of which takes about 100 bytes meanwhile
FAILED = " (the tokenizer or its chat template takes too much time or memory, or ends its process)"  # behind its path


def chats_of(schema: Schema) -> list[tuple[str, FieldSpec]]:
    """Return the chat fields that are values of their own."""
    return [(name, spec) for name, spec in schema.of_role("chat") if schema.part_of(name) is None]


@lru_cache(maxsize=4)
def _speech(path: str | None) -> Tokenizer | str:
    """Return the tokenizer at a path, once per process, or why there is none."""
    if path is None:
        return "no tokenizer is named; say tokenizer: {path: FOLDER}"
    if path.endswith(FAILED):
        return f"{path}; look whether it is the one that training uses"
    try:
        return Tokenizer(path).with_template()
    except MissingDependencyError as error:
        return str(error)
    except UsageError as error:  # without it bytes decide
        return f"{path}: no tokenizer with a chat template can be read there; say tokenizer: {{path: FOLDER}} ({error})"


def _known(schema: Schema) -> Any:
    """Return what besides the schema decides about tokens: the tokenizer's files, and whether its library is there."""
    if schema.tokenizer is None or schema.tokenizer.path is None:
        return None
    try:
        files = tokenizer_files(schema.tokenizer.path)
    except OSError:  # the rules say why there is no tokenizer
        files = []
    return [has("tokenizers") and has("jinja2"), *("" if file is None else digest_bytes(file) for file in files)]


@measure("trained", version=3, per="sample", uses=("tokenizer", "fields.role"), outside=_known)
def trained(block: Block, schema: Schema) -> Columns:
    """What is left to learn after template and truncation, as minimind's loader marks it.

    ``<field>:trained`` tokens between start and end markers (the end marker counts); ``<field>:marker``: tokens up to
    the first answer, -1 where no marker is found; ``<field>:tokens`` before truncation; ``<field>:cut``: supervised
    ones that truncation takes; ``<field>:closed``: what is supervised ends with the end marker; ``<field>:refused``:
    why the template refuses, ``<field>:why``: why nothing could be counted.
    """
    found: dict[str, Any] = {}
    spec = schema.tokenizer or TokenizerSpec()
    for name, _ in chats_of(schema):
        column = block.fields.get(name)
        if column is None or column.kind != "json":
            continue
        speech = _speech(spec.path)
        found[f"{name}:why"] = [speech if isinstance(speech, str) else ""] * len(block)
        if isinstance(speech, Tokenizer):
            try:
                counted = _count(speech, column.objects, spec)
            except UsageError as error:  # the tokenizer is at fault, and no sample
                found[f"{name}:why"] = [str(error)] * len(block)
            else:
                found |= {f"{name}:{stat}": values for stat, values in counted.items()}
    return found


def _count(speech: Tokenizer, chats: list[Any], spec: TokenizerSpec) -> dict[str, Any]:
    start, end = speech.encode([spec.start, spec.end], around=False)
    texts, refused, told, letters = list[str](), list[str](), list[tuple[int, int, int, int, int]](), 0
    for text in speech.chats(map(messages_of, chats)):
        texts.append(text if isinstance(text, str) else "")
        refused.append("" if isinstance(text, str) else str(text))
        letters += len(texts[-1])
        if len(refused) == len(chats) or letters > _AT_ONCE:
            told += [_supervised(ids, start, end, spec.max_length) for ids in speech.encode(texts)]
            texts, letters = [], 0
    readable = np.array([not r for r in refused], dtype=bool)
    counts = np.array(told, dtype=np.int64).reshape(-1, 5)
    return {
        "trained": Measured(np.where(readable, counts[:, 0], 0), np.ones(len(chats), bool)),
        "marker": Measured(counts[:, 1], readable),
        "tokens": Measured(counts[:, 2], readable),
        "cut": Measured(counts[:, 3], readable),
        "closed": Measured(counts[:, 4] > 0, readable),
        "refused": refused,
    }


def _supervised(ids: Array, start: Array, end: Array, most: int | None) -> tuple[int, int, int, int, int]:
    """Return what is supervised of a chat.

    Returns:
        The supervised tokens within the first `most`; the tokens up to the first answer (-1: none); all tokens; the
        supervised ones behind the first `most`; 1 where the last supervised span ends with the end marker, else 0.
    """
    begins = places(ids, start)
    marker = int(begins[0]) + len(start) if len(begins) else -1
    found = list(spans(ids[:most], start, end))
    count, cut = sum(stop - first for first, stop in found), 0
    if most is not None and len(ids) > most:
        cut = sum(stop - first for first, stop in spans(ids, start, end)) - count
    last = found[-1] if found else (0, 0)
    closed = last[1] - last[0] >= len(end) and bool((ids[last[1] - len(end) : last[1]] == end).all())
    return count, marker, len(ids), cut, int(closed or not found)


@measure("vocabulary", per="sample", uses=("tokenizer",), outside=_known)
def vocabulary(block: Block, schema: Schema) -> Columns:
    """What the tokenizer says of itself: `vocabulary` (its size) and `pad` (the id of its padding), -1: not known."""
    speech = None if schema.tokenizer is None else _tokenizer(schema.tokenizer.path)
    size = -1 if speech is None else speech.size
    pad = None if speech is None else speech.id_of("pad_token")
    return {"vocabulary": np.full(len(block), size), "pad": np.full(len(block), -1 if pad is None else pad)}


@lru_cache(maxsize=4)
def _tokenizer(path: str | None) -> Tokenizer | None:
    """Return the tokenizer at a path, once per process, with or without a chat template; None where there is none."""
    try:
        return None if path is None else Tokenizer(path)
    except (MissingDependencyError, UsageError):
        return None
