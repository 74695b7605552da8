"""The files of a dataset as ``datacheck init`` sees them: what the data are, and what lies beside.

Pictures, documents and notes often accompany data. They are the data only if there is little else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from datacheck.formats.base import format_of, unnumbered
from datacheck.infer.suggest import NUMBER, by_ending
from datacheck.schema.patterns import parse
from datacheck.sources.listing import Listing, list_files, target

PICTURES = frozenset({".jpg", ".jpeg", ".png"})
SOUNDS = frozenset({".wav"})
VIDEOS = frozenset({".mp4", ".m4v", ".mov"})
# Endings of files of JSON lines.
JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz")
# Endings of files that accompany data more often than they are the data.
ACCOMPANYING = PICTURES | {".yaml", ".yml", ".json", ".xml", ".txt"}
# Factor in number and bytes by which files outweigh others, so that these are next to nothing.
OUTWEIGHED = 10

# Characters of the name of a drafted schema.
_MOST_NAME = 60


@dataclass(frozen=True)
class DataFiles:
    """The files of a dataset.

    Args:
        data: the folder or file that the user named.
        listing: all of its files.
        readable: paths of those that a format reads.
    """

    data: Path
    listing: Listing
    readable: tuple[str, ...]

    @classmethod
    def of(cls, data: Path) -> DataFiles:
        """List the files of a folder or file.

        Raises:
            UsageError: the data are missing.
        """
        root, only = target(data)
        listing = list_files(root, {}, only)
        readable = tuple(path for path in listing.entries.paths if format_of(path) is not None)
        return cls(data, listing, readable)

    @property
    def name(self) -> str:
        """The name of the drafted schema."""
        words = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.data.resolve().stem)
        return (words.strip("._-") or "dataset")[:_MOST_NAME]

    def head(self, **samples: Any) -> dict[str, Any]:
        """Return the first keys of a schema; `samples` are the keys below ``samples``."""
        return {"datacheck": 1, "name": self.name, "samples": samples}

    def with_left_out_check(
        self, head: Mapping[str, Any], described: Iterable[str]
    ) -> dict[str, Any]:
        """Return a draft's head; a scan fails by DC113 where its patterns leave out most bytes.

        The patterns are a guess, not a choice of the user.
        """
        if self.are_half(described):
            return dict(head)
        return {**head, "rules": {**head.get("rules", {}), "DC113": {"left_out": True}}}

    def nonempty(self) -> DataFiles:
        """Return the files with only those as readable that are not empty, unless all are."""
        return self.without({p for p in self.readable if not self.listing.by_path[p].size})

    def without(self, paths: Container[str]) -> DataFiles:
        """Return the files with some no longer as readable ones, unless these are all."""
        readable = tuple(path for path in self.readable if path not in paths)
        return replace(self, readable=readable or self.readable)

    def without_media(self) -> DataFiles:
        """Return the files without pictures, videos and sounds as readable ones."""
        readable = tuple(
            path
            for path in self.readable
            if PurePosixPath(path).suffix.lower() not in PICTURES | VIDEOS | SOUNDS
        )
        return replace(self, readable=readable)

    def size(self, paths: Iterable[str]) -> int:
        """Return the bytes of some files together."""
        return sum(self.listing.by_path[path].size for path in paths)

    def are_half(self, paths: Iterable[str]) -> bool:
        """Tell whether some files have at least half of the readable bytes."""
        return 2 * self.size(paths) >= self.size(self.readable)

    def matching(self, pattern: str) -> set[str]:
        """Return the paths that a pattern matches."""
        template = parse(pattern, f"{self.name}, samples.files")
        return {path for path in self.listing.entries.paths if template.match(path) is not None}

    def notes(self, described: Container[str]) -> list[str]:
        """Return notes on files that a draft does not describe, and on those without a reader."""
        undescribed = [path for path in self.listing.entries.paths if path not in described]
        readable = [path for path in undescribed if format_of(path) is not None]
        unknown = [path for path in undescribed if format_of(path) is None]
        notes = []
        if readable:
            notes.append(f"not described: {by_ending(readable)}")
        if unknown:
            notes.append(f"no format reads: {by_ending(unknown)}")
        if self.listing.skipped:
            (path, reason), *others = self.listing.skipped
            more = f" ({len(others):,} more are left out)" if others else ""
            notes.append(f"left out: {path}: {reason}{more}")
        return notes

    def main_kind(self) -> tuple[str, list[str]]:
        """Return the ending that most files of the main format have, and these files.

        Notes:
            Pictures, videos and notes are the main format only if there are no other files, or next
            to none: six arrays of labels next to a thousand pictures.
        """
        numbers = Counter[str]()
        sizes = Counter[str]()
        for path in self.readable:
            numbers[ending_of(path)] += 1
            sizes[ending_of(path)] += self.listing.by_path[path].size
        data = [ending for ending in numbers if ending.lower() not in ACCOMPANYING | VIDEOS]
        pictures = [ending for ending in numbers if ending.lower() in PICTURES]
        candidates = data or list(numbers)
        if data and all(_outweigh(pictures, data, amounts) for amounts in (numbers, sizes)):
            candidates = pictures
        ending = max(candidates, key=lambda end: (numbers[end], sizes[end], end))
        return ending, [path for path in self.readable if ending_of(path) == ending]

    def similar_endings(self, ending: str) -> dict[str, list[str]]:
        """Return the readable files of the same format as an ending, by their other endings."""
        main_format = format_of(f"x{ending}")
        kinds: dict[str, list[str]] = {}
        for path in self.readable:
            if format_of(path) is main_format and ending_of(path) != ending:
                kinds.setdefault(ending_of(path), []).append(path)
        return dict(sorted(kinds.items()))


def ending_of(path: str) -> str:
    """Return the ending of a path in its own spelling, because patterns are case-sensitive."""
    file_format = format_of(path)
    name = unnumbered(path)
    known = file_format.suffixes if file_format is not None else ()
    suffix = next((end for end in known if name.lower().endswith(end)), PurePosixPath(path).suffix)
    ending = name[-len(suffix) :] if suffix else name[len(path) :]
    return ending if name == path else ending + NUMBER


def is_accompanying(path: str) -> bool:
    """Tell whether a file accompanies data rather than being the data: pictures, videos, notes."""
    return PurePosixPath(path).suffix.lower() in ACCOMPANYING | VIDEOS


def without_placeholders(pattern: str) -> str:
    """Return a pattern with ``*`` in place of placeholders, which name the sample."""
    return re.sub(r"\{\w+\}", "*", pattern)


def _outweigh(heavy: Sequence[str], light: Sequence[str], amounts: Counter[str]) -> bool:
    if not heavy:
        return False
    return OUTWEIGHED * sum(amounts[end] for end in light) <= sum(amounts[end] for end in heavy)
