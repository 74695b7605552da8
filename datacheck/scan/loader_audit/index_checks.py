"""Check that the requested index decides which sample is served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.model.table import Note
from datacheck.rules.selection import CONTRACT
from datacheck.runtime.hashing import digest64
from datacheck.scan.loader_audit.loader_process import Loader
from datacheck.workers.child import Death

Array = np.ndarray[Any, Any]

_ROUNDS = 4
# Samples that must be equal before "every index gives one sample" is more than chance.
_LEAST_EQUAL = 3


# Kinds of notes: with these faults, a second pass compares samples of different indices.
INDEX_FAULTS = frozenset({"index-ignored", "constant"})


@dataclass(frozen=True, eq=False)
class ServedIndex:
    """The first pass's results for every index.

    Shapes:
        digests: uint64 (indices), 0 where there is no sample

    Args:
        keys: by index.
        digests: of whole samples.
        instead: by requested index, the sample that the loader served instead, in words.
    """

    keys: Sequence[str]
    digests: Array
    instead: Mapping[int, str]


def probe_repeatedly(loader: Loader, items: Sequence[int]) -> list[tuple[int, dict[str, int]]]:
    """Return (index, digests) of indices read several times in turn, in one process.

    [] where the process dies.
    """
    if not items:
        return []
    answer, death = loader.run("probe", {"items": list(items), "rounds": _ROUNDS})
    return [] if death is not None else [(index, digests) for index, digests in answer["probed"]]


def index_notes(served: ServedIndex, answers: Sequence[tuple[int, int]]) -> Iterator[Note]:
    """Yield notes about indices that do not serve their own sample.

    Args:
        served: the first pass.
        answers: (index, digest) of the indices that were read again.
    """
    digests = served.digests[served.digests != 0]
    if len(digests) >= _LEAST_EQUAL and bool((digests == digests[0]).all()):
        yield dataset_note("constant", samples=len(digests))
        return
    distinct = set(digests.tolist())
    moved = [(i, d) for i, d in answers if d != served.digests[i] and d in distinct]
    novel = [i for i, d in answers if d != served.digests[i] and d not in distinct]
    if len(moved) >= 2 and len(moved) > len(novel):
        index, digest = moved[0]
        actual = int(np.flatnonzero(served.digests == np.uint64(digest))[0])
        yield dataset_note(
            "index-ignored",
            asked=len(answers),
            moved=len(moved),
            distinct=len(distinct),
            samples=len(digests),
            key=served.keys[index],
            other=served.keys[actual],
        )
        return
    for index, passed_on in sorted(served.instead.items()):
        yield Note(
            CONTRACT, served.keys[index], "", about={"kind": "substituted", "instead": passed_on}
        )


def past_end_notes(loader: Loader, served: ServedIndex) -> Iterator[Note]:
    """Yield a note where the first index past the end is served, recurses or hangs."""
    answer, death = loader.run("read_past_end", {"items": [loader.length]})
    if isinstance(death, Death):
        yield dataset_note("beyond", length=loader.length, how=death.how.strip().splitlines()[-1])
    elif answer.get("kind") == "RecursionError":
        yield dataset_note("beyond", length=loader.length, how="RecursionError")
    elif "digests" in answer:
        matching = np.flatnonzero(served.digests == np.uint64(sample_digest(answer["digests"])))
        yield dataset_note(
            "beyond",
            length=loader.length,
            key=served.keys[int(matching[0])] if len(matching) else "",
        )


def sample_digest(digests: Mapping[str, int]) -> int:
    """Return one digest of a whole sample, never 0."""
    return (
        digest64(
            "".join(f"{name}\0{digest:016x}\0" for name, digest in sorted(digests.items())).encode()
        )
        or 1
    )


def dataset_note(kind: str, **about: Any) -> Note:
    """Return a note on the loader as a whole."""
    return Note(CONTRACT, "", "", about={"kind": kind, **about})
