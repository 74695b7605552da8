"""`open_source` picks the Source class for a schema by ``samples.each``; `SourceSetup` lets a child do so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.errors import SchemaError
from datacheck.model.sample import Depth
from datacheck.schema.model import Schema
from datacheck.sources.base import Source
from datacheck.sources.groups import FileSource, GroupSource, KeySource, RaggedSource, RowSource
from datacheck.sources.lerobot import EpisodeSource
from datacheck.sources.lines import LineSource

_WORDS: dict[str, type[Source]] = {
    "line": LineSource,
    "row": RowSource,
    "key": KeySource,
    "episode": EpisodeSource,
}


def open_source(
    schema: Schema,
    root: Path,
    roots: Mapping[str, Path] | None = None,
    *,
    fields: frozenset[str] | None = None,
    level: Depth | None = None,
) -> Source:
    """Return the source that reads a schema's files, as ``samples.each`` says.

    Args:
        schema: the schema of the dataset.
        root, roots: the data folder, and extra folders by name.
        fields: read only these fields; None reads all.
        level: how deep a scan reads, see `FieldMap`; None for a build.

    Raises:
        SchemaError: ``samples.each`` or a pattern is malformed.
        UsageError: an extra folder that a field needs was not given.
    """
    each = schema.samples.each
    source_class: type[Source]
    if each is None:
        source_class = FileSource
    elif each in _WORDS:
        source_class = _WORDS[each]
    elif each.startswith("/") and each.strip("/"):
        source_class = GroupSource
    elif each.startswith("ends:") and each.removeprefix("ends:").strip("/"):
        source_class = RaggedSource
    else:
        msg = (
            f"{schema.name}, samples.each: found {each!r}; allowed are line, row, key, episode, "
            f"groups of a "
            f"container ('/data/demo_*'), and ends of episodes ('ends:meta/episode_ends')"
        )
        raise SchemaError(msg)
    return source_class(schema, root, roots or {}, fields, level)


@dataclass(frozen=True, eq=False)
class SourceSetup:
    """What a child opens a source from.

    Args:
        schema: of the dataset.
        root, roots: absolute paths of the data folder, and of extra folders by name.
    """

    schema: Schema
    root: Path
    roots: Mapping[str, Path]

    def as_dict(self) -> dict[str, Any]:
        """Return the setup as JSON values: a part of a task."""
        return {
            "schema": self.schema.as_dict(),
            "root": str(self.root),
            "roots": {name: str(path) for name, path in sorted(self.roots.items())},
        }

    @staticmethod
    def from_dict(task: Mapping[str, Any]) -> SourceSetup:
        """Return the setup of a task."""
        return SourceSetup(
            Schema.model_validate(task["schema"]),
            Path(task["root"]),
            {name: Path(path) for name, path in task["roots"].items()},
        )

    def open(self, level: Depth | None = None) -> Source:
        """Return the source; see `open_source`."""
        return open_source(self.schema, self.root, self.roots, level=level)
