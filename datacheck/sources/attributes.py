"""Attributes of a file and of the groups in it: of a sample those of its own group, then of the groups above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datacheck.formats.parsed import parse_json
from datacheck.sample import Container

MARK = "@"  # what ``at:`` begins with where a field is an attribute


class Attributes:
    """The attributes of one container; those of groups that several samples share are read once.

    Args:
        container: an opened file.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self._above: dict[str, dict[str, Any]] = {}

    def of(self, group: str = "") -> dict[str, Any]:
        """Return the attributes that hold for a group: its own, then those of the groups above it and of the file."""
        group = group.strip("/")
        if not group:
            return self._shared("")
        return self._shared(group.rpartition("/")[0]) | self.container.attrs(group)

    def _shared(self, group: str) -> dict[str, Any]:
        if group not in self._above:
            outer = self._shared(group.rpartition("/")[0]) if group else {}
            self._above[group] = outer | self.container.attrs(group)
        return self._above[group]


def find(attrs: Mapping[str, Any], path: str) -> Any:
    """Return an attribute, or what a dotted path names in one that is JSON text; None where there is none.

    Args:
        attrs: attributes by name.
        path: ``problem_info.language_instruction``; the longest name that there is counts.

    Raises:
        FormatError: the attribute is no JSON text although the path goes on.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in attrs:
            value = attrs[name]
            if count < len(parts) and isinstance(value, str):
                value = parse_json(value.encode("utf-8", "surrogateescape"))
            for part in parts[count:]:
                value = value.get(part) if isinstance(value, dict) else None
            return value
    return None
