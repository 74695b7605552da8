"""What verification says of damage: the file, what was found, and whom it concerns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datacheck.errors import CorruptionError, EvictedError

_LONGEST = 300  # characters
_NAMED = 10  # fields of one problem
REPAIR = "Repair it: datacheck cache repair, with the words of the build"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a cache.

    Args:
        file: path in the cache.
        what: what was found, what was expected.
        field: the field concerned; of several that share a row table the first ten; "" where it is
            about none.
        shard: number of the shard, where exactly one is concerned.
        samples: the samples concerned, in words; "" where it is about none.
        first: number of the first sample concerned.
        stop: number behind the last one; 0 where it is about none, or where damage hides how many
            samples there are.
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
        where = ", ".join(part for part in (field, shard, self.samples) if part)
        said = f"{self.file}{f' ({where})' if where else ''}: {self.what}"
        return said.encode("utf-8", "backslashreplace").decode()  # a file may have any name


def describe_fields(names: Sequence[str]) -> str:
    """Return the names of some fields, the first ten, with commas between them."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def evicted(where: object) -> EvictedError:
    """Return the exception for a cache whose folder is gone."""
    return EvictedError(
        f"{where}: was removed while it was being read. Build it again: datacheck cache build"
    )


def corrupt(where: str, path: str, what: str) -> CorruptionError:
    """Return the exception for a file of a cache that is not what was written."""
    return CorruptionError(f"{where}/{path}: {what}. Repair it: datacheck cache repair")


def short_repr(error: Exception) -> str:
    """Return what an exception says of a document, which may be of any length."""
    said = repr(error)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
