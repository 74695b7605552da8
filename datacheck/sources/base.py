"""How files become samples: the work items of a dataset, and what reading one of them gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import Note


@dataclass(frozen=True)
class Item:
    """One file (or store) to read: the unit of work, of child death and of reuse. JSON both ways.

    Args:
        path: relative POSIX path of the main file.
        split: the split it belongs to, or "".
        names: what the placeholders of the file pattern stand for ({"seq": "ABF10", "frame": "0000"}).
        keys: read only these samples, in this order (a build); None reads all (a scan).
        nbytes: size of the file, for planning.
    """

    path: str
    split: str = ""
    names: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] | None = None
    nbytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the item as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Item:
        """Return the item of `as_dict`."""
        keys = data.get("keys")
        return Item(**(data | {"keys": None if keys is None else tuple(keys)}))


@dataclass(frozen=True)
class Unread:
    """A sample that could not be made: its key, and why (a code and a sentence)."""

    key: str
    code: str
    reason: str
    group: str = ""
    skipped: bool = False  # True: not looked at (an absent library); False: unreadable


@dataclass(frozen=True)
class Work:
    """What a listing comes to: items in path order, notes, and files that nothing claimed."""

    items: Sequence[Item]
    notes: Sequence[Note] = ()
    unclaimed: Sequence[str] = ()


class Source(ABC):
    """One way in which files hold samples. Stateless but for the schema and the roots; picklable by construction."""

    def __init__(self, schema: Schema, root: Path, roots: dict[str, Path]) -> None:
        self.schema = schema
        self.root = root
        self.roots = roots

    @abstractmethod
    def read(self, item: Item) -> Iterator[Block | Unread]:
        """Yield the item's samples as blocks of one signature, and those that cannot be made.

        Blocks hold at most 64 MB or 4,096 samples; every field of the schema that the file has, by schema name.

        Raises:
            FormatError: the file as a whole cannot be read.
        """

    @abstractmethod
    def files(self, item: Item) -> list[str]:
        """Return every file that reading the item opens: the main one, then its companions, as listing paths.

        A file below an extra root is written ``@name/path``.
        """
