"""Convert text or chats to token ids and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from datacheck.errors import InvalidSample, UsageError
from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.tokenization import (
    Tokenizer,
    located,
    messages_of,
    spans,
    tokenizer_digest,
    tokenizer_places,
)
from datacheck.transforms.base import Array, Result, Specs, Transform, map_samples

IGNORED = -100  # the label that losses ignore


class Tokenize(Transform):
    """Replace a text or chat field by token ids and labels.

    Shapes:
        ids, labels: int (tokens), or (max_length) where `pad` is set

    Args:
        field: text, or chats as a list of {role, content}.
        tokenizer: a folder with tokenizer.json and tokenizer_config.json, or the file; relative to
            the pipeline.
        max_length: most tokens to keep; the rest is cut off. None keeps all.
        pad: whether to fill up to `max_length`, ids with the padding token, labels with -100.
        ends: whether to put the bos token before and the eos token after a text (never around a
            chat: its template does that).
        start, end: the texts around the trained part of a chat.
        ids, labels: names of the new fields.
        dtype: of both new fields.
        keep: whether to keep the text as well.

    Notes:
        Labels are not shifted: labels[i] is ids[i] or -100. In a text every token is trained on. In
        a chat, the tokens after a start marker are, up to and including the next end marker. A chat
        without a trained token is refused.
    """

    name: ClassVar[str] = "tokenize"
    version: ClassVar[int] = 1
    field: str
    tokenizer: str
    max_length: int | None = Field(default=None, gt=2)
    pad: bool = False
    ends: bool = True
    start: str = "<|im_start|>assistant\n"
    end: str = "<|im_end|>\n"
    ids: str = "input_ids"
    labels: str = "labels"
    dtype: Literal["int32", "int64"] = "int64"
    keep: bool = False

    @cached_property
    def _encoder(self) -> Tokenizer:
        return Tokenizer(self.tokenizer)

    @cached_property
    def _markers(self) -> tuple[Array, Array]:
        start, end = self._encoder.encode([self.start, self.end], around=False)
        return start, end

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the tokenizer."""
        return tokenizer_places(self.tokenizer)

    def placed(self, base: Path) -> Tokenize:
        """Return the step with the tokenizer's absolute path."""
        return self.model_copy(update={"tokenizer": str((base / self.tokenizer).resolve())})

    def below(self, data: Path) -> Tokenize:
        """Return the step with its tokenizer opened below the data folder, if it is inside."""
        return self.model_copy(update={"tokenizer": located(data, self.tokenizer)})

    def identity(self) -> dict[str, Any]:
        """Return the options with the tokenizer's digest in place of its path."""
        options = {k: v for k, v in self.options().items() if k != "tokenizer"}
        digest = tokenizer_digest(self.tokenizer)
        return {"use": self.name, "version": self.version, "options": options, "tokenizer": digest}

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with ids and labels in place of the text."""
        spec = self.spec(specs, self.field)
        if spec.kind == "array":
            msg = f"tokenize: {self.field} is {spec.dtype}; this step takes text or chats"
            raise UsageError(msg)
        if self.pad and self.max_length is None:
            msg = "tokenize: pad needs max_length"
            raise UsageError(msg)
        new = ArraySpec(
            self.dtype, (self.max_length or 0,) if self.pad else (), None if self.pad else "tokens"
        )
        made = {
            name: replace(new, attrs={"role": role})
            for name, role in ((self.ids, "tokens"), (self.labels, "labels"))
        }
        return {**{n: s for n, s in specs.items() if self.keep or n != self.field}, **made}

    def apply(self, block: Block) -> Result:
        """Return the block with ids and labels."""
        if self.field not in block.fields:
            return [], [(key, f"{self.field} is absent") for key in block.keys]
        column = block.fields[self.field]
        texts = self._texts(column)
        chat = column.kind == "json"
        tokens = self._encoder.encode(
            [text if isinstance(text, str) else "" for text in texts], around=chat
        )

        def one(i: int) -> dict[str, Array]:
            text = texts[i]
            if isinstance(text, Exception):
                msg = f"{self.field}: the chat template refuses it: {text}"
                raise InvalidSample(msg)
            return self._made(tokens[i], chat=chat)

        blocks, refused = map_samples(block, (self.ids, self.labels), one)
        if self.keep or self.field in {self.ids, self.labels}:
            return blocks, refused
        kept = [
            replace(b, fields={n: c for n, c in b.fields.items() if n != self.field})
            for b in blocks
        ]
        return kept, refused

    def _texts(self, column: Column) -> Sequence[str | ValueError]:
        if column.kind == "text":
            return list(column.objects)
        return list(self._encoder.chats(map(messages_of, column.objects)))

    def _made(self, tokens: Array, *, chat: bool) -> dict[str, Array]:
        bos = self._encoder.id_of("bos_token")
        eos = self._encoder.id_of("eos_token")
        if not chat and self.ends:
            room = (
                None
                if self.max_length is None
                else self.max_length - (bos is not None) - (eos is not None)
            )
            parts = [
                [bos] if bos is not None else [],
                tokens[:room],
                [eos] if eos is not None else [],
            ]
            tokens = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        ids = tokens[: self.max_length]
        trained: Array = np.full(len(ids), not chat)
        for start, stop in spans(ids, *self._markers) if chat else ():
            trained[start:stop] = True
        if chat and not trained.any():
            msg = f"{self.field}: no token to train on among {len(ids)}"
            raise InvalidSample(msg)
        labels = np.where(trained, ids, IGNORED)
        if self.pad and self.max_length is not None:
            missing = self.max_length - len(ids)
            ids = np.concatenate([ids, np.full(missing, self._encoder.id_of("pad_token") or 0)])
            labels = np.concatenate([labels, np.full(missing, IGNORED)])
        return {self.ids: ids.astype(self.dtype), self.labels: labels.astype(self.dtype)}
