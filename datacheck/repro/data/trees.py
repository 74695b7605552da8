"""Two sets of named contents, files or samples: what came, went and changed, and what only lies under another name."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_COPIED = 4096  # letters of a name that is told as the origin of copies: it is repeated for each

Content = Any  # a digest, or several of them: whatever is hashable and equal where the content is


@dataclass(frozen=True)
class TreeDiff:
    """What differs between two sets of named contents; every name that differs stands in one place.

    Args:
        added: only in the second, with a content that no name of the first has lost.
        removed: only in the first, and nothing that was added has its content.
        changed: in both, with a content that no other name had before, or that another one still has.
        renamed: (name in the first, name in the second): the same content.
        swapped: pairs in both whose contents have changed places; the smaller name first.
        reordered: in both; what a name holds now, by the name that held it before and lost it.
        copies: of those added or changed, which name of the first had this very content; none of more than
            4,096 letters.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    swapped: list[tuple[str, str]] = field(default_factory=list)
    reordered: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.renamed or self.swapped or self.reordered)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "added": self.added, "removed": self.removed, "changed": self.changed,
            "renamed": [list(pair) for pair in self.renamed], "swapped": [list(pair) for pair in self.swapped],
            "reordered": self.reordered, "copies": self.copies,
        }  # fmt: skip


def tree_diff(first: Mapping[str, Content], second: Mapping[str, Content]) -> TreeDiff:
    """Return what differs between two sets of named contents.

    Args:
        first, second: contents by name; contents are compared by ``==`` and hashed.

    Notes:
        The order in which names come changes nothing. Swaps are looked for first, then what was renamed (names that end
        alike first), then what others held before; equal contents are paired in the order of their names.
    """
    both = first.keys() & second.keys()
    apart = sorted(name for name in both if first[name] != second[name])
    gone = sorted(first.keys() - both)
    come = sorted(second.keys() - both)
    if not (apart or gone or come):
        return TreeDiff()
    swapped = _swaps(first, second, apart)
    paired = {name for pair in swapped for name in pair}
    left = [name for name in apart if name not in paired]
    renamed = _renames(first, second, gone, come)
    old, new = {one for one, _ in renamed}, {other for _, other in renamed}
    gone, come = [name for name in gone if name not in old], [name for name in come if name not in new]
    lost = _pairs(((first[name], name) for name in [*left, *gone]), ((second[name], name) for name in left))
    reordered = {name: before for before, name in sorted(lost, key=lambda pair: pair[1])}
    changed = [name for name in left if name not in reordered]
    had = _first_names(first, {second[name] for name in [*come, *changed]})
    copies = {name: had[second[name]] for name in [*come, *changed] if second[name] in had}
    return TreeDiff(come, gone, changed, renamed, swapped, reordered, copies)


def _swaps(first: Mapping[str, Content], second: Mapping[str, Content], apart: list[str]) -> list[tuple[str, str]]:
    """Return pairs of names each of which now has what the other had."""
    waiting: dict[tuple[Content, Content], deque[str]] = defaultdict(deque)
    found = []
    for name in apart:
        before, now = first[name], second[name]
        if partners := waiting[now, before]:
            found.append((partners.popleft(), name))
        else:
            waiting[before, now].append(name)
    return sorted(found)


def _renames(
    first: Mapping[str, Content], second: Mapping[str, Content], gone: list[str], come: list[str]
) -> list[tuple[str, str]]:
    """Return pairs (gone, come) of one content: those with the same last part of their names first."""
    found: list[tuple[str, str]] = []
    for part in (_last_part, lambda _: ""):
        old, new = {one for one, _ in found}, {other for _, other in found}
        found += _pairs(
            (((first[name], part(name)), name) for name in gone if name not in old),
            (((second[name], part(name)), name) for name in come if name not in new),
        )
    return sorted(found)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


def _pairs(
    before: Iterable[tuple[Content, str]], now: Iterable[tuple[Content, str]]
) -> list[tuple[str, str]]:  # fmt: skip
    """Pair names of equal content, in the order given; each name is used once."""
    holders: dict[Content, list[str]] = defaultdict(list)
    for content, name in before:
        holders[content].append(name)
    ahead = {content: iter(names) for content, names in holders.items()}
    pairs = ((next(ahead[content], None), name) for content, name in now if content in ahead)
    return [(one, name) for one, name in pairs if one is not None]


def _first_names(first: Mapping[str, Content], wanted: set[Content]) -> dict[Content, str]:
    """Return the smallest name that has each of these contents, of those that may be repeated."""
    found: dict[Content, str] = {}
    for name in sorted(name for name, content in first.items() if content in wanted and len(name) <= _COPIED):
        found.setdefault(first[name], name)
    return found
