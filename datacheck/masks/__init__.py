"""Which tokens of a chat a trainer trains on: minimind, TRL, axolotl, LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from datacheck.errors import UsageError
from datacheck.masks import axolotl, llamafactory, markers, trl
from datacheck.masks.base import (
    ANSWERERS,
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
    "ANSWERERS",
    "TEMPLATES",
    "Conversation",
    "MaskSettings",
    "MaskedChat",
    "Trainer",
    "UnjudgedError",
    "dropped_role",
    "masked_chats",
    "setting_faults",
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


def setting_faults(settings: MaskSettings) -> Iterator[str]:
    """Yield settings that the trainer does not have."""
    if settings.assistant_only_loss and settings.trainer != "trl":
        yield "assistant_only_loss is a setting of trainer: trl"
    if settings.template is not None and settings.trainer != "llamafactory":
        yield "template is a setting of trainer: llamafactory"
    elif settings.template is not None and settings.template not in TEMPLATES:
        yield (
            f"datacheck does not know the template {settings.template!r} of LLaMA-Factory; it knows "
            f"{', '.join(TEMPLATES)}"
        )


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
    for fault in setting_faults(settings):
        raise UsageError(fault)
    yield from _MASKERS[settings.trainer](tokenizer, conversations, settings)
