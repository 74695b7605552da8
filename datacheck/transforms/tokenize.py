"""Convert text or chats to token ids and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from datacheck.errors import InvalidSample, UsageError
from datacheck.masks import Conversation, MaskSettings, Trainer, masked_chats, setting_faults
from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.tokenization import (
    Tokenizer,
    located,
    messages_of,
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
        start, end: the texts around the trained part of a chat, for minimind.
        trainer: minimind, trl, axolotl or llamafactory; decides which tokens of a chat are trained
            on.
        assistant_only_loss: TRL's setting of this name.
        template: name of LLaMA-Factory's template; None reads the tokenizer's.
        prompt: field of the chats that `field` continues, or None.
        tools: field of the tools that each chat may call, or None.
        ids, labels: names of the new fields.
        dtype: of both new fields.
        keep: whether to keep the text as well.

    Notes:
        Labels are not shifted: labels[i] is ids[i] or -100. All tokens of a text are trained on,
        and the tokens of a chat that the trainer trains on (`datacheck.masks`): for minimind, those
        after a start marker, up to and including the next end marker. A chat without a trained
        token is refused.
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
    trainer: Trainer = "minimind"
    assistant_only_loss: bool = False
    template: str | None = None
    prompt: str | None = None
    tools: str | None = None
    ids: str = "input_ids"
    labels: str = "labels"
    dtype: Literal["int32", "int64"] = "int64"
    keep: bool = False

    @cached_property
    def _encoder(self) -> Tokenizer:
        return Tokenizer(self.tokenizer)

    @property
    def _settings(self) -> MaskSettings:
        return MaskSettings(
            trainer=self.trainer,
            start=self.start,
            end=self.end,
            max_length=self.max_length,
            assistant_only_loss=self.assistant_only_loss,
            template=self.template,
        )

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
        for fault in setting_faults(self._settings):
            msg = f"tokenize: {fault}"
            raise UsageError(msg)
        for other in filter(None, (self.prompt, self.tools)):
            self.spec(specs, other)
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
        samples = list(self._chats(block) if column.kind == "json" else self._texts(column))

        def one(i: int) -> dict[str, Array]:
            sample = samples[i]
            if isinstance(sample, ValueError):
                msg = f"{self.field}: {sample}"
                raise InvalidSample(msg)
            return self._made(*sample)

        blocks, refused = map_samples(block, (self.ids, self.labels), one)
        if self.keep or self.field in {self.ids, self.labels}:
            return blocks, refused
        kept = [
            replace(b, fields={n: c for n, c in b.fields.items() if n != self.field})
            for b in blocks
        ]
        return kept, refused

    def _chats(self, block: Block) -> Iterator[tuple[Array, Array] | ValueError]:
        """Yield ids and mask of each chat, or why the trainer makes none."""
        chats, prompts, tools = (
            [None] * len(block) if name not in block.fields else block.fields[name].objects
            for name in (self.field, self.prompt, self.tools)
        )
        conversations = [
            Conversation(messages_of(chat), messages_of(prompt), tool)
            for chat, prompt, tool in zip(chats, prompts, tools, strict=True)
        ]
        for made in masked_chats(self._encoder, conversations, self._settings):
            if isinstance(made, ValueError):
                yield made
            elif not (made.trained & made.kept).any():
                yield ValueError(f"no token to train on among {int(made.kept.sum())}")
            else:
                yield made.ids[made.kept], made.trained[made.kept]

    def _texts(self, column: Column) -> Iterator[tuple[Array, Array]]:
        """Yield ids and mask of each text."""
        bos, eos = (
            [] if not self.ends or token is None else [token]
            for token in map(self._encoder.id_of, ("bos_token", "eos_token"))
        )
        room = None if self.max_length is None else self.max_length - len(bos) - len(eos)
        texts = [text if isinstance(text, str) else "" for text in column.objects]
        for tokens in self._encoder.encode(texts, around=False):
            ids = np.concatenate([np.asarray(part, np.int64) for part in (bos, tokens[:room], eos)])
            yield ids[: self.max_length], np.ones(len(ids[: self.max_length]), bool)

    def _made(self, ids: Array, trained: Array) -> dict[str, Array]:
        labels = np.where(trained, ids, IGNORED)
        if self.pad and self.max_length is not None:
            missing = self.max_length - len(ids)
            ids = np.concatenate([ids, np.full(missing, self._encoder.id_of("pad_token") or 0)])
            labels = np.concatenate([labels, np.full(missing, IGNORED)])
        return {self.ids: ids.astype(self.dtype), self.labels: labels.astype(self.dtype)}
