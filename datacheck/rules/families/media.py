"""Rules about pictures, videos and sounds in conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import Block
from datacheck.model.table import Rows
from datacheck.rules.base import Columns, RuleContext, measure, pluralize, rule
from datacheck.rules.chat_turns import Chat, chats_in
from datacheck.rules.measures import form
from datacheck.schema.model import Schema
from datacheck.tokenization import content_of


class _Medium(NamedTuple):
    """How a chat refers to a medium.

    Args:
        word: the medium in messages.
        marks: texts that stand for one of it.
        parts: types of the parts of a content that stand for one of it.
    """

    word: str
    marks: tuple[str, ...]
    parts: frozenset[str]


MEDIA: Mapping[str, _Medium] = {
    "images": _Medium(
        "picture", ("<image>", "<|image_pad|>"), frozenset({"image", "image_url", "input_image"})
    ),
    "videos": _Medium("video", ("<video>", "<|video_pad|>"), frozenset({"video", "video_url"})),
    "audios": _Medium(
        "sound", ("<audio>", "<|audio_pad|>"), frozenset({"audio", "audio_url", "input_audio"})
    ),
}


@measure(
    "media",
    per="sample",
    uses=("fields.role", "fields.images", "fields.videos", "fields.audios", "fields.continues"),
)
def media(block: Block, schema: Schema) -> Columns:
    """Marks of pictures, videos and sounds in a chat, and how many the sample has.

    ``<field>:images_marks``, ``<field>:images_given``, and likewise for videos and audios.
    """
    columns: dict[str, Any] = {}
    for name, spec in schema.of_role("chat"):
        column = block.fields.get(name)
        named = {key: field for key in MEDIA if (field := getattr(spec, key)) is not None}
        if not named or column is None or column.kind != "json":
            continue
        prompt = block.fields.get(spec.continues or "")
        prompts = chats_in(prompt) if prompt is not None and prompt.kind == "json" else None
        chats = chats_in(column)
        if prompts is not None:
            chats = [[*before, *chat] for before, chat in zip(prompts, chats, strict=True)]
        for key, field in named.items():
            medium, given = MEDIA[key], block.fields.get(field)
            if given is not None and given.kind == "array":
                continue
            values = [None] * len(block) if given is None else given.objects
            columns[f"{name}:{key}_marks"] = np.array([count_marks(chat, medium) for chat in chats])
            columns[f"{name}:{key}_given"] = np.array([_given(value) for value in values])
    return columns


def count_marks(chat: Chat, medium: _Medium) -> int:
    """Return how many of a medium a chat refers to."""
    count = 0
    for message in chat:
        content = content_of(message)
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict):
                count += part.get("type") in medium.parts and not _carries_data(part)
                part = part.get("text")
            if isinstance(part, str):
                count += sum(part.count(mark) for mark in medium.marks)
    return count


def _carries_data(part: Mapping[str, Any]) -> bool:
    """Tell whether a part of a content names its file or holds its data itself."""
    return any(value for key, value in part.items() if key not in {"type", "text"})


def _given(value: Any) -> int:
    """Return how many of a medium a field holds: entries of a list, or one."""
    if isinstance(value, list):
        return sum(entry is not None and entry != "" for entry in value)
    return int(value is not None and value != "")


@rule(
    "DC716",
    "media-marks",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, media),
    suppressed_by=("DC121", "DC122"),
    applies=lambda s: s.role == "chat" and any(getattr(s, key) is not None for key in MEDIA),
)
def media_marks(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A chat has more or fewer marks of pictures, videos or sounds than the sample holds.

    What:
        The marks in a chat are as many as the entries of the field that ``images``, ``videos`` or
        ``audios`` names.
    Why it matters:
        The processor puts the pictures in the places of the marks, in order. With another number,
        training stops with an error, or the model learns to describe a picture that it does not see.
    Measure:
        ``<image>``, ``<video>``, ``<audio>`` and ``<|image_pad|>`` (and so on) in the texts, and
        parts of these types in the contents, if they name no file themselves; also in the prompt
        that the chat ``continues``. The entries of a list that are not null or empty, or one for a
        single value.
    When it is wrong:
        The loader inserts the marks itself: take ``images`` out of the schema. A text writes about
        the mark as such.
    Options:
        none
    Bad::

        schema: {fields: {c: {role: chat, images: p}, p: {dtype: json}}}
        samples:
          - p: {json: [a.jpg]}
            c: {json: [{role: user, content: "<image>What is it?"}, {role: assistant, content: A cube.}]}
          - p: {json: [b.jpg]}
            c: {json: [{role: user, content: "What is this one?"}, {role: assistant, content: A cone.}]}

    Good::

        schema: {fields: {c: {role: chat, images: p}, p: {dtype: json}}}
        samples:
          - p: {json: [a.jpg]}
            c: {json: [{role: user, content: "<image>What is it?"}, {role: assistant, content: A cube.}]}
          - p: {json: []}
            c: {json: [{role: user, content: "What is a cone?"}, {role: assistant, content: A solid.}]}

    Fix:
        Correct the marks or the list of files, or drop the samples.
    Reference:
        LLaMA-Factory issues 8734 and 9313: the number of images does not match the number of
        <image> tokens.
    """
    for key, medium in MEDIA.items():
        names = f":{case.name}:{key}_marks", f":{case.name}:{key}_given"
        measured = rows.measured(*names)
        if not measured.any():
            continue
        marks, given = (rows[name] for name in names)
        for kind, mask in (
            ("fewer", measured & (marks < given)),
            ("more", measured & (marks > given)),
        ):
            if not mask.any():
                continue
            first = int(np.flatnonzero(mask)[0])
            yield Failure(
                mask,
                f"{pluralize(int(mask.sum()))} {'has' if mask.sum() == 1 else 'have'} {kind} marks "
                f"than {medium.word}s; the first has {pluralize(int(marks[first]), 'mark')} and "
                f"{pluralize(int(given[first]), medium.word)}.",
                measured={"marks": int(marks[first]), "given": int(given[first])},
                fix="Correct the marks or the list of files, or drop the samples.",
                kind=f"{kind} {key}",
            )
