"""Which tokens of a chat a trainer trains on: minimind, TRL, axolotl, LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from datacheck.masks import axolotl, llamafactory, markers, trl
from datacheck.masks.base import (
    Conversation,
    MaskedChat,
    MaskSettings,
    Trainer,
    UnjudgedError,
    dropped_role,
)
from datacheck.masks.llamafactory import TEMPLATES
from datacheck.tokenization import Tokenizer

__all__ = [
    "TEMPLATES",
    "Conversation",
    "MaskSettings",
    "MaskedChat",
    "Trainer",
    "UnjudgedError",
    "dropped_role",
    "masked_chats",
]

Masker = Callable[
    [Tokenizer, Iterable[Conversation], MaskSettings], Iterator[MaskedChat | ValueError]
]
_MASKERS: Mapping[str, Masker] = {
    "minimind": markers.masked,
    "trl": trl.masked,
    "axolotl": axolotl.masked,
    "llamafactory": llamafactory.masked,
}


def masked_chats(
    tokenizer: Tokenizer, conversations: Iterable[Conversation], settings: MaskSettings
) -> Iterator[MaskedChat | ValueError]:
    """Yield the tokens and the mask of each conversation of a block as the trainer makes them.

    Yields:
        For each conversation its tokens, or the reason why the trainer makes none of it
        (`UnjudgedError` where only this module cannot).

    Raises:
        UsageError: the tokenizer or its chat template is missing or broken, or the settings name
            what the trainer does not have.

    Notes:
        Costly chats are counted per block, independent of the number of workers (see
        `Tokenizer.chats`).
    """
    yield from _MASKERS[settings.trainer](tokenizer, conversations, settings)
