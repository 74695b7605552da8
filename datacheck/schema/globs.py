"""Match names with the patterns that a schema lists in the syntax of `fnmatch`, in limited time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cached_property

from datacheck.errors import SchemaError

# Steps of all patterns of a schema: at most half a minute, mostly a small part of it.
_MOST_STEPS = 10_000_000_000
_FREE_STEPS = 10_000  # for each name, as there may be millions
_CALL_STEPS = 100  # of a match that ends at its first letter


class StepLimit:
    """The steps that several `Globs` may still take together."""

    def __init__(self) -> None:
        self._left = _MOST_STEPS

    def spend(self, steps: int) -> bool:
        """Take the steps of one name; return whether there were enough."""
        self._left -= max(0, steps - _FREE_STEPS)
        return self._left >= 0


class Globs:
    """Patterns with ``*``, ``?`` and ``[``; ``*`` also stands for "/".

    Args:
        patterns: as written.
        where: the schema key that holds them, for messages.
        limit: shared with other patterns of the schema.
    """

    def __init__(self, patterns: Iterable[str], where: str, limit: StepLimit) -> None:
        self._texts = tuple(dict.fromkeys(patterns))
        self._where = where
        self._limit = limit

    # Compiled on first use: many patterns take a while, which counts as time of their rule.
    @cached_property
    def _regexes(self) -> list[tuple[str, re.Pattern[str]]]:
        return [(text, re.compile(translate(text))) for text in self._texts]

    @cached_property
    def _call_steps(self) -> int:
        """The steps of all patterns for each name: `re` compares a class member by member."""
        heads = (text.partition("*")[0] for text in self._texts)
        return sum(_CALL_STEPS + (len(head) if "[" in head else 0) for head in heads)

    @cached_property
    def _letter_steps(self) -> int:
        """The steps of all patterns for each letter of a name.

        `re` compares what follows a ``*`` at each letter, and then does not go back behind it.
        """
        return sum(1 + len(text.partition("*")[2]) for text in self._texts)

    def matching(self, name: str) -> list[str]:
        """Return the patterns that match a name.

        Raises:
            SchemaError: the patterns take too many steps; it is raised before they are matched.
        """
        steps = self._call_steps + self._letter_steps * len(name)
        if not self._limit.spend(steps):
            msg = (
                f"{self._where}: {len(self._texts):,} patterns (with *, ? or [) take too long for so "
                f"many and so long names. Write full names, or fewer and shorter patterns."
            )
            raise SchemaError(msg)
        return [text for text, regex in self._regexes if regex.match(name)]
