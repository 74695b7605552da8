"""`open_source` picks the Source class for a schema by ``samples.each``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from datacheck.errors import SchemaError
from datacheck.model.sample import Depth
from datacheck.schema.model import Schema
from datacheck.sources.base import Source
from datacheck.sources.groups import (
    EpisodeSource,
    FileSource,
    GroupSource,
    KeySource,
    RaggedSource,
    RowSource,
)
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
