"""Guesses the declarations of texts and JSON values: chats, ids, texts, preferences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from datacheck.infer.base import Guess
from datacheck.infer.profile import FieldProfile
from datacheck.infer.roles import ID_NAMES
from datacheck.tokenization import MESSAGE_NAMES

# Bytes of a text up to which it rather is a name or a class: only longer texts get the role text.
_SHORT_TEXT = 80
# Keys of a JSON value that the reason names.
_SHOWN_KEYS = 4
# Speakers that answer a user, and the user.
_ANSWERING = frozenset({"gpt", "assistant", "model", "bot", "agent", "system"})
_ASKING = frozenset({"human", "user"})
# Share of the chats that must have an answer. With fewer, another speaker answers, or they are no
# chats.
_ANSWERED_CHATS = 0.9
# Names of answers only, not "chosen_model": the two answers differ, all else may be equal.
_ANSWER_NAMES = r"(?:answer|response|reply|completion|output|text|message|summary)s?"
_CHOSEN_NAMES = rf"(?:{_ANSWER_NAMES}[_-]?)?chosen(?:[_-]?{_ANSWER_NAMES})?"


def guess_text(name: str, profile: FieldProfile) -> Guess:
    """Return the guess for a field of texts or JSON values.

    Args:
        name: lower-case name of the field.
        profile: its profile.
    """
    chat = _guess_chat(profile)
    if chat is not None:
        return chat
    if "json" in profile.dtypes:
        keys = profile.record_keys[:_SHOWN_KEYS]
        return Guess({"dtype": "json"}, (f"keys {', '.join(keys)}",) if keys else ())
    is_short = profile.longest_text <= _SHORT_TEXT
    if is_short and re.search(ID_NAMES, name):
        return Guess({"role": "id", "dtype": "text"}, ("role from name and values",))
    text = Guess({"dtype": "text"} if is_short else {"role": "text"}, ("text",))
    # Fewer empty texts are more likely a fault for a scan to find than intended.
    if 2 * profile.empty_texts < profile.samples:
        return text
    why = f"empty in {profile.empty_texts:,} of {profile.samples:,} samples"
    return text.plus(Guess({"optional": True}, (why,)))


def _guess_chat(profile: FieldProfile) -> Guess | None:
    """Return the guess for messages with keys of OpenAI, ShareGPT or dialogue corpora, or None."""
    names = _message_keys(profile)
    if not names:
        return None
    why = (f"messages with {' and '.join(names)}",)
    if names == MESSAGE_NAMES[0]:  # OpenAI's keys: the assistant answers
        return Guess({"role": "chat"}, why)
    answering = _answering_speaker(names, profile)
    return Guess({"role": "chat", "train_on": answering}, why) if answering else None


def _message_keys(profile: FieldProfile) -> Sequence[str]:
    """Return the known keys of speaker and content that the messages have, or ()."""
    for names in MESSAGE_NAMES:
        if set(names) <= set(profile.record_keys):
            return names
    return ()


def _answering_speaker(names: Sequence[str], profile: FieldProfile) -> str:
    """Return the speaker that answers a user in nearly all chats, or ""."""
    has_user = any(name.lower() in _ASKING for name in profile.speakers)
    if "speaker" in names and not has_user:  # a play or a meeting
        return ""
    threshold = max(1, _ANSWERED_CHATS * profile.chat_samples)
    answering = [
        name
        for name, samples in profile.speakers.items()
        if name.lower() in _ANSWERING and samples >= threshold
    ]
    # If another speaker answers, "system" gives instructions.
    others = [name for name in answering if name.lower() != "system"] or answering
    return max(others, key=profile.speakers.__getitem__, default="")


def guess_preferences(guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Return the guesses, with each chosen text or chat preferred over its rejected counterpart."""
    result = dict(guesses)
    for name in guesses:
        rejected = name.replace("chosen", "rejected")
        if rejected not in guesses or not re.fullmatch(_CHOSEN_NAMES, name.lower()):
            continue
        kind = _text_kind(guesses[name])
        if rejected == name or kind is None or kind != _text_kind(guesses[rejected]):
            continue
        role = Guess({"role": kind})
        preferred = Guess({"preferred_over": rejected})
        result[name] = guesses[name].without("dtype").plus(role, preferred)
        result[rejected] = guesses[rejected].without("dtype").plus(role)
    return result


def _text_kind(guess: Guess) -> str | None:
    """Return "chat" or "text", None for other fields."""
    kind = guess.spec.get("role", guess.spec.get("dtype"))
    return kind if kind in {"chat", "text"} else None
