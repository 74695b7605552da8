"""Problems that verification reports: the file, the damage, and the samples concerned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datacheck.errors import CorruptionError, EvictedError

_LONGEST = 300  # characters
_NAMED = 10  # fields of one problem
REPAIR = "Repair it: datacheck cache repair, with the words of the build"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a cache.

    Args:
        file: path in the cache.
        what: the damage: what was found, what was expected.
        field: the field concerned; the first ten of several that share a row table; "" for none.
        shard: number of the shard, if exactly one is concerned.
        samples: the samples concerned, in words; "" for none.
        first: number of the first sample concerned.
        stop: number after the last sample concerned; 0 if no samples are concerned, or if damage
            hides how many samples there are.
    """

    file: str
    what: str
    field: str = ""
    shard: int | None = None
    samples: str = ""
    first: int = 0
    stop: int = 0

    def __str__(self) -> str:
        field = f"field {self.field}" if self.field else ""
        shard = f"shard {self.shard}" if self.shard is not None else ""
        location = ", ".join(part for part in (field, shard, self.samples) if part)
        text = f"{self.file}{f' ({location})' if location else ''}: {self.what}"
        # A file name need not be valid UTF-8.
        return text.encode("utf-8", "backslashreplace").decode()


def describe_fields(names: Sequence[str]) -> str:
    """Return the first ten field names, comma-separated, and the number of the others."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def evicted(where: object) -> EvictedError:
    """Return the exception for a cache whose folder was removed."""
    return EvictedError(
        f"{where}: was removed while it was being read. Build it again: datacheck cache build"
    )


def corrupt(where: str, path: str, what: str) -> CorruptionError:
    """Return the exception for a damaged file of a cache."""
    return CorruptionError(f"{where}/{path}: {what}. Repair it: datacheck cache repair")


def short_repr(error: Exception) -> str:
    """Return the `repr` of an exception, cut off: its text may quote a document of any length."""
    text = repr(error)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
