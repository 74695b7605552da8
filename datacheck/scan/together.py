"""Which files are one sample together: those of a folder, or of one name with several endings or in several folders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from datacheck.scan.pattern import SPLITS, patterns

_NEARLY_ALL = 0.9
_MOST_PARTS = 24
_FIRST = 20_000  # paths of which some have to be parts of one sample before all are looked at
_MOST_NAMES = 6  # words of a name that may be the sample's own


Cut = Callable[[str], "tuple[str, str] | None"]


@dataclass(frozen=True, eq=False)
class Part:
    """The files that hold the same of each sample.

    Args:
        name: what they are called beside the sample's own name, "" where only the format tells them apart.
        ending: what all their names end with, from which on they are alike.
        paths: of all samples that have it.
        whole: of the samples that lack none but optional parts, of all if there is none such: their lengths compare.
        pattern: what all paths follow; what the placeholders stand for in one part's path fills the others'.
        optional: more than a few samples have none.
    """

    name: str
    ending: str
    paths: tuple[str, ...]
    whole: tuple[str, ...]
    pattern: str
    optional: bool = False


def together(paths: Sequence[str]) -> list[Part]:
    """Return the parts of which samples are made up, [] where each file is one by itself or no pattern says it.

    Args:
        paths: relative POSIX paths of all files that can be read.

    Notes:
        Parts are what nearly all samples have, at least two, and together nearly all files. Names that differ in
        digits only are steps or views, and no parts; those of splits are neither a sample's nor a part's.
    """
    for cut, beside in _cuts(paths):
        if beside and not _parts(_groups(paths[:_FIRST], cut)):
            continue
        groups = _groups(paths, cut)
        parts = _parts(groups)
        of_splits = SPLITS.issuperset(key.rpartition("/")[2] for key in groups) or SPLITS & {p.name for p in parts}
        covered = sum(len(part.paths) for part in parts)
        if len(groups) > 1 and not of_splits and covered >= _NEARLY_ALL * len(paths):
            found = patterns([(part.paths, part.ending) for part in parts])
            if found:
                return [replace(part, pattern=pattern) for part, pattern in zip(parts, found, strict=True)]
    return []


def _groups(paths: Sequence[str], cut: Cut) -> dict[str, dict[str, str]]:
    """Return by the sample's own name, by that of the part, the path."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        found = cut(path)
        if found is not None:
            groups[found[0]].setdefault(found[1], path)
    return groups


def _cuts(paths: Sequence[str]) -> Iterator[tuple[Cut, bool]]:
    """Yield ways to tell a sample's name from the part's, and whether its files then lie beside one another."""
    depth = max(path.count("/") for path in paths)
    yield _by_folder, True
    for words in range(_MOST_NAMES, 0, -1):
        yield partial(_by_words, words=words), True
    dotted = any(path.rpartition("/")[2].count(".") > 1 for path in paths)  # in the sample's name, or in the ending
    for level in range(depth):
        yield partial(_by_level, level=level, cut=str.partition), False
        if dotted:
            yield partial(_by_level, level=level, cut=str.rpartition), False


def _by_folder(path: str) -> tuple[str, str] | None:
    folder, slash, name = path.rpartition("/")
    return (folder, slash + name) if slash else None


def _by_words(path: str, words: int) -> tuple[str, str] | None:
    folder, slash, name = path.rpartition("/")
    ends = [found.start() for found in re.finditer(r"[._-]", name)]
    return (folder + slash + name[: ends[words - 1]], name[ends[words - 1] :]) if len(ends) >= words else None


def _by_level(path: str, level: int, cut: Callable[[str, str], tuple[str, str, str]]) -> tuple[str, str] | None:
    parts = path.split("/")
    if level >= len(parts) - 1:
        return None
    stem, dot, ending = cut(parts[-1], ".")
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
    needed = set(whole)
    complete = [group for group in groups.values() if group.keys() >= needed] or list(groups.values())
    stems = [re.sub(r"\W+", "_", rest.rpartition(".")[0]).strip("_") for rest in (*whole, *some)]
    return [
        Part(
            stem if stems.count(stem) == 1 or not stem else re.sub(r"\W+", "_", rest).strip("_"),
            rest.rpartition("/")[2],
            tuple(sorted(having[rest])),
            tuple(sorted(group[rest] for group in complete if rest in group)),
            "",
            rest in some,
        )
        for stem, rest in zip(stems, (*whole, *some), strict=True)
    ]
