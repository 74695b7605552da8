"""The `Fault` type: a named way to break a clean dataset, and the code that must report it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datacheck.errors import UsageError


@dataclass(frozen=True)
class Planted:
    """One planted corruption.

    Args:
        keys: the samples that a scan must name; () for a fault of the dataset as a whole.
        code: the rule that must name them.
        what: one short phrase for people.
        others: samples that a finding may name as well: the other side of a leak or a pair.
        kind: the kind of the failure that must name them, "" for any.
    """

    keys: tuple[str, ...]
    code: str
    what: str
    others: tuple[str, ...] = ()
    kind: str = ""


@dataclass(eq=False)
class Site:
    """A dataset while faults are planted; no sample is chosen twice.

    Args:
        folder: the dataset.
        rng: decides which samples are hit.
        taken: keys that must not change from now on.
    """

    folder: Path
    rng: np.random.Generator
    taken: set[str] = field(default_factory=set)

    def pick(self, candidates: Sequence[str], count: int = 1) -> list[str]:
        """Return `count` untouched candidates, and mark them as taken.

        Raises:
            UsageError: too few are left; the dataset is too small for so many faults.
        """
        free = [c for c in candidates if c not in self.taken]
        if len(free) < count:
            msg = (
                f"{self.folder}: {count} untouched samples are needed for a fault, {len(free)} "
                f"are left; write more"
            )
            raise UsageError(msg)
        chosen = [free[int(i)] for i in sorted(self.rng.choice(len(free), count, replace=False))]
        self.taken.update(chosen)
        return chosen


@dataclass(frozen=True)
class Fault:
    """A named corruption of one system's data.

    Args:
        name: what went wrong, in kebab case.
        system: the system whose layout it breaks.
        code: the rule that must report it.
        plant: breaks `Site.folder` and returns what was broken.
        later: whether it shows only against an earlier listing, and is planted after a first scan.
        batch: faults of different batches hide each other: plant them in copies of the dataset.
    """

    name: str
    system: str
    code: str
    plant: Callable[[Site], list[Planted]]
    later: bool = False
    batch: int = 0


def names(site: Site, pattern: str) -> list[str]:
    """Return the files of the folder that match a glob pattern, as sorted relative POSIX paths."""
    # A pattern also matches the hidden files that macOS leaves.
    paths = (p for p in site.folder.glob(pattern) if not p.name.startswith("."))
    return sorted(p.relative_to(site.folder).as_posix() for p in paths)


def truncate(path: Path) -> None:
    """Cut a file in half, as a broken download does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def add_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a text file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
