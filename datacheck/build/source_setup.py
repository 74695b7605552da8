"""The source of a build as its children open it: the schema and the folders of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.model.sample import Depth
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Source


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
