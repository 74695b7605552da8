"""What a trial is: a clean dataset in memory, one way to break it in several sizes, and what a scan must then say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datacheck.model.sample import Origin, Piece

Samples = list[tuple[str, Piece]]  # (split, sample)
Plant = Callable[[Samples, float, np.random.Generator], Sequence[str]]


def sample(
    key: str, fields: Mapping[str, Any], *, split: str = "", group: str = "", **facts: Any
) -> tuple[str, Piece]:
    """Return one sample of a trial; facts are what a source knows beside the data (``id``, ``split_key``, ...)."""
    return split, Piece(key, dict(fields), Origin(key), group, {"id": key} | facts)


def changed(piece: Piece, **fields: Any) -> Piece:
    """Return a sample with other values of some fields (names with a slash: pass ``**{"obs/x": value}``)."""
    return Piece(piece.key, {**piece.fields, **fields}, piece.origin, piece.group, piece.facts)


@dataclass(frozen=True, eq=False)
class Size:
    """One size of a fault: its name in the table, the number handed to `Trial.plant`, whether it must be found."""

    name: str
    value: float
    documented: bool = True


@dataclass(frozen=True, eq=False)
class Trial:
    """A named corruption of data in memory.

    Args:
        name: what went wrong, in kebab case.
        code: the rule that must report it.
        schema: keys of the schema in force, besides those that every schema needs.
        clean: makes a dataset that nothing is wrong with, another for every generator.
        plant: breaks it (value of the size); returns the keys that must be named, none for a fault
            of the dataset.
        sizes: from small to large; recall is promised at the documented ones.
        cause: the `Cause.kind` (or else `Failure.kind`) that must be named, "" where none is
            promised; a callable gives it for the value of a size.
        also: codes that may rightly be raised with it.
        reference: makes the earlier version that the data are compared with, another for every
            generator; None: there is none.
    """

    name: str
    code: str
    schema: Mapping[str, Any]
    clean: Callable[[np.random.Generator], Samples]
    plant: Plant
    sizes: tuple[Size, ...]
    cause: str | Callable[[float], str] = ""
    also: frozenset[str] = field(default_factory=frozenset)
    reference: Callable[[np.random.Generator], Samples] | None = None


def some(samples: Samples, share: float, rng: np.random.Generator, least: int = 1) -> list[int]:
    """Return places of randomly chosen samples: `share` of them, at least `least`."""
    count = min(len(samples), max(least, round(share * len(samples))))
    return sorted(int(i) for i in rng.choice(len(samples), count, replace=False))


def edited(
    share: float, change: Callable[[Piece, float, np.random.Generator], Piece], least: int = 2
) -> Plant:
    """Return a plant that changes `share` of the samples, at least `least`, chosen by chance."""

    def plant(samples: Samples, value: float, rng: np.random.Generator) -> Sequence[str]:
        places = some(samples, share, rng, least)
        for place in places:
            split, piece = samples[place]
            samples[place] = split, change(piece, value, rng)
        return [samples[place][1].key for place in places]

    return plant


def edited_field(
    share: float,
    name: str,
    change: Callable[[Any, float, np.random.Generator], Any],
    least: int = 2,
) -> Plant:
    """Return a plant that changes one field of some samples, as `edited`."""
    return edited(
        share,
        lambda piece, value, rng: changed(piece, **{name: change(piece.fields[name], value, rng)}),
        least,
    )
