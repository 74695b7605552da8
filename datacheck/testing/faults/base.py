"""What a fault is: a named way to break a clean dataset, and the code that must name it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datacheck.errors import UsageError


@dataclass(frozen=True)
class Planted:
    """One thing that was broken.

    Args:
        keys: the samples that a scan must name; none for a fault of the dataset as a whole.
        code: the rule that must name them.
        what: one short phrase for people.
        others: samples that may rightly be named with them: the other side of a leak or a pair.
    """

    keys: tuple[str, ...]
    code: str
    what: str
    others: tuple[str, ...] = ()


@dataclass(eq=False)
class Site:
    """A dataset in the course of being broken: no sample is a victim twice.

    Args:
        folder: the dataset.
        rng: decides who is hit.
        taken: keys that must stay as they are from now on.
    """

    folder: Path
    rng: np.random.Generator
    taken: set[str] = field(default_factory=set)

    def pick(self, candidates: Sequence[str], count: int = 1) -> list[str]:
        """Return `count` candidates that nothing has touched, and mark them.

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
        system: whose layout it breaks.
        code: the rule that must report it.
        plant: breaks `Site.folder` and says what was broken.
        later: it only shows against an earlier listing: plant it after a first scan.
    """

    name: str
    system: str
    code: str
    plant: Callable[[Site], list[Planted]]
    later: bool = False


def names(site: Site, pattern: str) -> list[str]:
    """Return the files below the folder that match a glob pattern, as sorted relative POSIX paths."""
    found = (
        p for p in site.folder.glob(pattern) if not p.name.startswith(".")
    )  # what macOS leaves matches, too
    return sorted(p.relative_to(site.folder).as_posix() for p in found)


def truncate(path: Path) -> None:
    """Cut a file in half, as a broken download does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def add_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a text file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
