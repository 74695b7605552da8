"""What is turned in a training: a switch of PyTorch, a variable of the environment, a word of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datacheck.errors import UsageError

_CACHE = re.compile("cache", re.IGNORECASE)
_PAIRS = (("true", "false"), ("yes", "no"), ("on", "off"), ("1", "0"))
_OTHER = dict(_PAIRS) | {off: on for on, off in _PAIRS}
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True)
class Switch:
    """What is turned: one of `flips.NAMES`, or the user's own.

    Args:
        name: of the switch, of an environment variable (in capitals), or of a word of the command line.
        old, new: its values in the baseline and in the trial; of a variable or word "": it is not there.
        given: it is the user's.
    """

    name: str
    old: Any
    new: Any
    given: bool = True

    @classmethod
    def parse(cls, text: str) -> Switch:
        """Return the switch that ``name=OLD:NEW`` says; OLD ends at the first colon."""
        name, equals, values = text.partition("=")
        old, colon, new = values.partition(":")
        if not (name.strip("-") and equals and colon) or old == new:
            msg = f"--switch {text}: name=OLD:NEW is wanted, with two values that differ"
            raise UsageError(msg)
        return cls(name, old, new)

    @property
    def variable(self) -> bool:
        """It is an environment variable."""
        return _VARIABLE.fullmatch(self.name) is not None


def turn_caches(words: Sequence[str]) -> list[str]:
    """Return a command line in which each word about a cache that is on or off is turned to the other.

    Notes:
        Such a word has "cache" in its name and a value like true, off or 1 (``data.use_cached=true``, ``--cache off``),
        or none (``--no-cache``): that is left out.
    """
    found = list(words)
    at = 0
    while at < len(found):
        name, equals, value = found[at].partition("=")
        if _CACHE.search(name) and equals and value.lower() in _OTHER:
            found[at] = f"{name}={_turned(value)}"
        elif _CACHE.search(name) and name.startswith("-") and not equals:
            behind = found[at + 1] if at + 1 < len(found) else "-"
            if behind.lower() in _OTHER:
                found[at + 1] = _turned(behind)
            elif behind.startswith("-"):
                del found[at]
                continue
        at += 1
    return found


def _turned(value: str) -> str:
    other = _OTHER[value.lower()]
    return other.upper() if value.isupper() else other.capitalize() if value[0].isupper() else other


def settle(words: list[str], environment: dict[str, str], switch: Switch, value: str) -> None:
    """Give a variable, or a word of the command line, its value; what is empty is not there."""
    if switch.variable:
        environment.pop(switch.name, None)
        if value:
            environment[switch.name] = value
        return
    at = place_of(words, switch.name)
    if at is None:
        words += [f"{switch.name}={value}"] * bool(value)
    elif "=" in words[at]:
        words[at : at + 1] = [f"{words[at].partition('=')[0]}={value}"] * bool(value)
    else:
        words[at : at + 2] = [words[at], value] * bool(value)


def place_of(words: Sequence[str], name: str) -> int | None:
    """Return where ``name=value`` stands, or ``--name value``."""
    for at, word in enumerate(words):
        if word.startswith(f"{name}=") or (name.startswith("-") and word == name and at + 1 < len(words)):
            return at
    return None
