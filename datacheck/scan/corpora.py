"""Parallel corpora: files of one name, a line of which is a sentence in the language that the ending names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from datacheck.formats.base import format_of
from datacheck.scan.pattern import SPLITS, patterns

_ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
).replace(" ", "|")
_SIDE = re.compile(rf"(?:(?:{_ISO_639_1})(?:[_-][A-Z]\w{{1,9}})?|[a-z]{{3}}_[A-Z][a-z]{{3}}|src|tgt|source|target)")
# parts of one split (train-00001-of-00002, train.part1, train-aa); train.clean and train.noisy may be two
_SHARD = re.compile(r"train(?:ing)?(?:[^a-z]|of|part|shard|chunk|split|file)*(?:[^a-z][a-z]{2})?")
_NEARLY_ALL = 0.8  # corpora of which the others rather lack a file that they should have
_EQUAL = 0.01  # share of the lines by which two files may differ that should have as many
_LOOKED = 5  # corpora whose lines are counted
_MOST_SIDES = 64

Counted = Callable[[Sequence[str]], Mapping[str, int]]


@dataclass(frozen=True)
class Corpus:
    """Files whose lines correspond.

    Args:
        sides: pattern of the files by language, the samples' own file first.
        optional: languages that some of the texts do not have.
        paths: of all files.
        lines: of the files that were counted.
    """

    sides: dict[str, str]
    optional: frozenset[str]
    paths: tuple[str, ...]
    lines: int


def texts_of(paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return by what the paths of a text begin with, by language, the path; those of two languages at least."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        stem, _, side = path.rpartition(".")
        if stem.rpartition("/")[2] and _SIDE.fullmatch(side) and format_of(path) is None:
            texts[stem][side] = path
    return {stem: found for stem, found in sorted(texts.items()) if len(found) > 1}


def corpus_of(paths: Sequence[str], count: Counted) -> Corpus | None:
    """Return the parallel corpus that files are, None where they are none.

    Args:
        paths: relative POSIX paths of all files.
        count: returns how many lines files have, without those that are no text.

    Notes:
        The endings are languages, or source and target, and at least half of the files have as many lines as the first
        one of their name: code in several programming languages has not.
    """
    texts = texts_of(paths)
    held = Counter(side for found in texts.values() for side in found)
    if not held or len(held) > _MOST_SIDES:
        return None
    first = min(held, key=lambda side: (-held[side], side))
    texts = {stem: found for stem, found in texts.items() if first in found}
    stems = list(texts)[:: max(1, len(texts) // _LOOKED)][:_LOOKED]
    lines = count([path for stem in stems for path in texts[stem].values()])
    pairs = [(lines.get(texts[stem][first], 0), lines.get(path, -1)) for stem in stems
             for side, path in texts[stem].items() if side != first]  # fmt: skip
    if 2 * sum(abs(one - two) <= _EQUAL * max(one, two) for one, two in pairs) < len(pairs):
        return None
    sides = sorted({side for found in texts.values() for side in found}, key=lambda side: (side != first, side))
    found = _patterns(texts, sides)
    optional = {side for side in sides if sum(side in found for found in texts.values()) < _NEARLY_ALL * len(texts)}
    every = tuple(sorted(path for found in texts.values() for path in found.values()))
    counted = sum(lines.get(texts[stem][first], 0) for stem in stems)
    if not found or not counted:
        return None
    return Corpus(dict(zip(sides, found, strict=True)), frozenset(optional), every, counted)


def _patterns(texts: Mapping[str, Mapping[str, str]], sides: Sequence[str]) -> list[str]:
    """Return the pattern of each language; ``{split}`` where all names begin as those of splits do."""
    names = [stem.rpartition("/")[2] for stem in texts]
    tail = _tail(names)
    kinds = [([found[side] for found in texts.values() if side in found], f"{tail}.{side}") for side in sides]
    found = patterns(kinds)
    words = Counter(re.split(r"[^a-z]", name, maxsplit=1)[0] for name in set(names))
    shards = sum(_SHARD.fullmatch(name.removesuffix(tail)) is not None for name in set(names))
    if words.keys() <= SPLITS and shards < 2 and not any("{split}" in text for text in found):
        return [text.replace("{id}", "{split}") for text in found]
    return found


def _tail(names: Sequence[str]) -> str:
    """Return what all names end with, from a mark between words on; "" of one name."""
    shared = min(names, key=len) if len(set(names)) > 1 else ""
    while not all(name.endswith(shared) for name in names):
        shared = shared[1:]
    found = re.search(r"[._-]", shared)
    return shared[found.start() :] if found else ""
