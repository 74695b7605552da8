"""Which files are one sample together: those of a folder, or of one name with several endings or in several folders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

_NEARLY_ALL = 0.9
_MOST_PARTS = 24
_MOST_NAMES = 6  # words of a name that may be the sample's own


@dataclass(frozen=True)
class Part:
    """The files that hold the same of each sample.

    Args:
        name: what they are called beside the sample's own name.
        ending: what all their names end with, from which on they are alike.
        paths: of all samples that have it.
        optional: more than a few samples have none.
    """

    name: str
    ending: str
    paths: tuple[str, ...]
    optional: bool = False


def together(paths: Sequence[str], splits: frozenset[str]) -> list[Part]:
    """Return the parts of which samples are made up, [] where each file is one by itself.

    Args:
        paths: relative POSIX paths of all files that can be read.
        splits: names that are neither a sample's nor a part's.

    Notes:
        Parts are what nearly all samples have, at least two, and together nearly all files. Names that differ in
        digits only are steps or views, and no parts.
    """
    for cut in _cuts(paths):
        groups: dict[str, dict[str, str]] = defaultdict(dict)
        for path in paths:
            found = cut(path)
            if found is not None:
                groups[found[0]].setdefault(found[1], path)
        parts = _parts(groups)
        of_splits = splits.issuperset(key.rpartition("/")[2] for key in groups) or splits & {p.name for p in parts}
        covered = sum(len(part.paths) for part in parts)
        if len(groups) > 1 and not of_splits and covered >= _NEARLY_ALL * len(paths):
            return parts
    return []


Cut = Callable[[str], "tuple[str, str] | None"]


def _cuts(paths: Sequence[str]) -> Iterator[Cut]:
    """Yield ways to tell the sample's own name from the part's: by its folder, by words of its name, by one folder."""
    depth = max(path.count("/") for path in paths)
    yield lambda path: (path.rpartition("/")[0], "/" + path.rpartition("/")[2]) if "/" in path else None
    for words in range(_MOST_NAMES, 0, -1):
        yield lambda path, words=words: _by_words(path, words)  # type: ignore[misc]
    for level in range(depth):
        yield lambda path, level=level: _by_level(path, level)  # type: ignore[misc]


def _by_words(path: str, words: int) -> tuple[str, str] | None:
    folder, slash, name = path.rpartition("/")
    ends = [found.start() for found in re.finditer(r"[._-]", name)]
    return (folder + slash + name[: ends[words - 1]], name[ends[words - 1] :]) if len(ends) >= words else None


def _by_level(path: str, level: int) -> tuple[str, str] | None:
    parts = path.split("/")
    if level >= len(parts) - 1:
        return None
    stem, dot, ending = parts[-1].partition(".")
    return "/".join([*parts[:level], *parts[level + 1 : -1], stem]), f"{parts[level]}/{dot}{ending}"


def _parts(groups: Mapping[str, Mapping[str, str]]) -> list[Part]:
    having: dict[str, list[str]] = defaultdict(list)
    for group in groups.values():
        for rest, path in group.items():
            having[rest].append(path)
    least = ceil(_NEARLY_ALL * len(groups))
    whole = [rest for rest in sorted(having) if len(having[rest]) >= least]
    some = [rest for rest in sorted(having) if len(groups) / 10 <= len(having[rest]) < least and len(having[rest]) > 1]
    names = [re.sub(r"[\d._/-]+", " ", rest).strip() for rest in (*whole, *some)]
    if len(whole) < 2 or len(names) > _MOST_PARTS or len(set(names)) < len(names) or "" in names:
        return []
    stems = [re.sub(r"\W+", "_", rest.rpartition(".")[0]).strip("_") for rest in (*whole, *some)]
    return [
        Part(
            stem if stem and stems.count(stem) == 1 else re.sub(r"\W+", "_", rest).strip("_"),
            rest.rpartition("/")[2], tuple(sorted(having[rest])), rest in some,
        )
        for stem, rest in zip(stems, (*whole, *some), strict=True)
    ]  # fmt: skip
