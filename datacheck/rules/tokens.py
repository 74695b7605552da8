"""Rules about text for language models: lines that parse, answers of which something is left to learn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.digest import digest_file
from datacheck.errors import MissingDependencyError, UsageError
from datacheck.finding import Failure, Level, Severity
from datacheck.registry import has
from datacheck.rules.base import Case, Columns, Skip, counted, listed, measure, rule, those, unreadable, where_text
from datacheck.rules.measures import form
from datacheck.rules.texts import blank
from datacheck.sample import Block
from datacheck.schema.model import FieldSpec, Schema, TokenizerSpec
from datacheck.table import Measured, Rows
from datacheck.tokens import Tokenizer, messages_of, places, spans

Array = np.ndarray[Any, Any]

_UNKNOWN = 1 << 40  # bytes of a prompt whose answer cannot be told from bytes


@rule("DC701", "bad-line", Severity.ERROR, Level.FILE, per="sample", sees="all")
def bad_line(rows: Rows, case: Case) -> Iterator[Failure]:
    """A line is not what the file's other lines are: broken JSON, bytes that are no UTF-8, an empty line.

    What:
        Each line of a JSON Lines file parses to an object.
    Why it matters:
        One such line ends the run that parses it, hours later; a tolerant loader drops it in silence.
    Measure:
        The parser's words, with line number and byte offset.
    When it is wrong:
        The file is another format with this suffix: correct ``samples: {files: ...}``.
    Options:
        none
    Bad::

        schema: {fields: {text: {role: text}}}
        samples:
          - {text: "a line that parses and is long enough"}
          - {key: "sft.jsonl:000000000001", unreadable: "DC701 line 2, byte 61: not JSON: unexpected end of data"}

    Good::

        schema: {fields: {text: {role: text}}}
        samples:
          - {text: "a line that parses and is long enough"}

    Fix:
        Repair or remove the lines; write files with a temporary name and rename them.
    Reference:
        minimind issues 350 and 715.
    """
    del case
    mask = unreadable(rows, lambda reason: reason.startswith("DC701"))
    if mask.any():
        first = rows.table.reasons[int(rows.index[mask][0])].partition(" ")[2]
        yield Failure(
            mask,
            f"{counted(int(mask.sum()), 'line')} cannot be read; the first: {first}.",
            measured={"first": first},
            fix="Repair or remove the lines.",
        )


def _chats(schema: Schema) -> list[tuple[str, FieldSpec]]:
    return [(name, spec) for name, spec in schema.of_role("chat") if schema.part_of(name) is None]


@measure("turns", per="sample", uses=("tokenizer", "fields.role", "fields.train_on"))
def turns(block: Block, schema: Schema) -> Columns:
    """What bytes tell of a text: ``<field>:answers``, turns to learn from; ``<field>:prompt_bytes`` before the first.

    An answer that begins with white space does not count for the bytes: tokenizers may join it with the marker.
    """
    spec = schema.tokenizer or TokenizerSpec()
    found: dict[str, Array] = {}
    for name, field in _chats(schema):
        column = block.fields.get(name)
        if column is not None and column.kind != "array":
            parse = column.objects if column.kind == "json" else [None] * len(block)
            speaker, start, around = field.train_on or "assistant", len(spec.start.encode()), len(_markers(spec))
            pairs = [_before(messages_of(value), speaker, start, around) for value in parse]
            found[f"{name}:answers"] = np.array([a for a, _ in pairs], dtype=np.int64)
            found[f"{name}:prompt_bytes"] = np.array([b for _, b in pairs], dtype=np.int64)
    for name, _ in schema.of_role("text"):
        column = block.fields.get(name)
        if column is not None and column.kind == "text":
            found[f"{name}:answers"] = (~blank(column)).astype(np.int64)
            found[f"{name}:prompt_bytes"] = np.zeros(len(block), np.int64)
    return found


def _markers(spec: TokenizerSpec) -> bytes:
    return (spec.start + spec.end).encode()


def _before(messages: list[dict[str, Any]], speaker: str, total: int, around: int) -> tuple[int, int]:
    """Return the turns of a speaker, and the bytes of a chat before the first of them that bytes can tell.

    Args:
        messages: the chat.
        speaker: whose turns are learnt from.
        total: bytes before the first message; `around`: what the template puts around each.
    """
    first, answers = _UNKNOWN, 0
    for message in messages:
        role = message["role"] if "role" in message else message.get("from")
        if role == speaker:
            answers += 1
            if first == _UNKNOWN:
                said = message.get("content", message.get("value"))  # the words of ShareGPT: from, value
                first = total if isinstance(said, str) and said[:1].strip() else first
        if first == _UNKNOWN:  # nobody asks for the bytes behind it
            total += len(orjson.dumps(message)) + around
    return answers, first


@lru_cache(maxsize=4)
def _speech(path: str | None) -> Tokenizer | str:
    """Return the tokenizer at a path, once per process, or why there is none."""
    if path is None:
        return "no tokenizer is named; say tokenizer: {path: FOLDER}"
    try:
        return Tokenizer(Path(path)).with_template()
    except MissingDependencyError as error:
        return str(error)
    except UsageError as error:  # without it bytes decide
        return f"{path}: no tokenizer with a chat template can be read there ({error})"


def _known(schema: Schema) -> Any:
    """Return what besides the schema decides about tokens: the tokenizer's files, and whether its library is there."""
    if schema.tokenizer is None or schema.tokenizer.path is None:
        return None
    path = Path(schema.tokenizer.path)
    folder = path.parent if path.is_file() else path
    files = [path] if path.is_file() else [folder / "tokenizer.json"]
    files += [folder / "tokenizer_config.json", folder / "chat_template.jinja"]
    return [has("tokenizers") and has("jinja2"), *(digest_file(f) if f.is_file() else "" for f in files)]


@measure("trained", per="sample", uses=("tokenizer", "fields.role"), outside=_known)
def trained(block: Block, schema: Schema) -> Columns:
    """What is left to learn after template and truncation, as minimind's loader marks it.

    ``<field>:trained`` tokens between start and end markers (the end marker counts); ``<field>:marker``: tokens up to
    the first answer, -1 where no marker is found; ``<field>:refused``: why the template refuses, ``<field>:why``: why
    nothing could be counted.
    """
    found: dict[str, Any] = {}
    spec = schema.tokenizer or TokenizerSpec()
    for name, _ in _chats(schema):
        column = block.fields.get(name)
        if column is None or column.kind != "json":
            continue
        speech = _speech(spec.path)
        found[f"{name}:why"] = [speech if isinstance(speech, str) else ""] * len(block)
        if isinstance(speech, Tokenizer):
            found |= {f"{name}:{stat}": values for stat, values in _count(speech, column.objects, spec).items()}
    return found


def _count(speech: Tokenizer, chats: list[Any], spec: TokenizerSpec) -> dict[str, Any]:
    texts, refused = [], []
    for chat in chats:
        try:
            texts.append(speech.chat(messages_of(chat)))
            refused.append("")
        except ValueError as error:
            texts.append("")
            refused.append(str(error))
    start, end = speech.encode([spec.start, spec.end], around=False)
    pairs = [_supervised(ids, start, end, spec.max_length) for ids in speech.encode(texts)]
    readable = np.array([not r for r in refused], dtype=bool)
    counts = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return {
        "trained": Measured(np.where(readable, counts[:, 0], 0), np.ones(len(chats), bool)),
        "marker": Measured(counts[:, 1], readable),
        "refused": refused,
    }


def _supervised(ids: Array, start: Array, end: Array, most: int | None) -> tuple[int, int]:
    """Return the supervised tokens within the first `most`, and the tokens up to the first answer (-1: none)."""
    begins = places(ids, start)
    marker = int(begins[0]) + len(start) if len(begins) else -1
    return sum(stop - first for first, stop in spans(ids[:most], start, end)), marker


@rule(
    "DC702", "no-trained-tokens", Severity.ERROR, Level.SAMPLE, measures=(form, turns, trained),
    needs=("DC121", "DC122"), defaults={"slack": 256},
    applies=lambda s: s.role == "chat" or (s.role == "text" and s.min_trained_tokens is not None),
)  # fmt: skip
def no_trained_tokens(rows: Rows, case: Case) -> Iterator[Failure | Skip]:
    """Nothing of the sample is supervised after template and truncation.

    What:
        Tokens between ``tokenizer: {start, end}`` within ``max_length``; of a plain text whether there is any.
    Why it matters:
        A batch of such samples has a mean over nothing: the loss is NaN, or reported as 0.
    Measure:
        The chat template and tokenizer of ``tokenizer: {path: ...}``. Without them (extra ``text``) bytes decide where
        they can: no text has more tokens than bytes; the other samples are skipped.
    When it is wrong:
        The trainer marks answers otherwise: set ``start`` and ``end``.
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
        stat: f":{case.name}:{stat}" for stat in ("answers", "prompt_bytes", "trained", "marker", "refused", "why")
    }
    known = rows.measured(column["answers"])
    if not known.any():
        return
    least, spec = case.spec.min_trained_tokens or 1, case.schema.tokenizer or TokenizerSpec()
    mute = known & (rows[column["answers"]] == 0)
    if mute.any():
        words = "text" if case.spec.role == "text" else f"{case.spec.train_on or 'assistant'} turn"
        yield _untrained(mute, f"{those(mute, 'have')} no {words}", "mute", spec)
    counted_ = known & rows.measured(column["trained"]) & ~mute
    few = counted_ & (rows[column["trained"]] < least) if counted_.any() else counted_
    if few.any():
        yield from _causes(rows, few, column, spec)
    fits = rows[column["prompt_bytes"]] + int(case.options["slack"]) < (spec.max_length or _UNKNOWN)
    open_ = known & ~mute & ~counted_ & ~(fits | (case.spec.role == "text"))
    if open_.any():
        why = sorted(set(rows[column["why"]][open_])) if column["why"] in rows else ["the chats are no JSON"]
        yield Skip(open_, listed(why))


def _causes(rows: Rows, few: Array, column: dict[str, str], spec: TokenizerSpec) -> Iterator[Failure]:
    """Yield the failing samples by reason: refused by the template, no marker found, prompt too long."""
    refused = few & where_text(rows[column["refused"]], bool)
    lost = few & ~refused & (rows[column["marker"]] < 0)
    long = few & ~refused & ~lost
    if refused.any():
        first = rows[column["refused"]][refused][0]
        yield _untrained(refused, f"the chat template refuses {counted(int(refused.sum()))} ({first})", "refused", spec)
    if lost.any():
        yield _untrained(lost, f"{those(lost, 'have')} no {spec.start!r} in their tokens", "marker", spec)
    if long.any():
        tokens = int(np.median(rows[column["marker"]][long]))
        text = (
            f"the first answer of {counted(int(long.sum()))} begins at token {tokens:,} (median) of {spec.max_length}"
        )
        yield _untrained(long, text, "long", spec)


_FIX = {
    "long": "Drop them, or raise max_length.",
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
