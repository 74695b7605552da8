"""YAML files, safe tags only: a mapping gives one value per key, a list "records", else "value".

The file is read twice. The first pass counts the nodes with all aliases expanded, so that a few
lines cannot become 10**9 values.
"""

from __future__ import annotations

from typing import Any

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import DEPTH, Values, add_values, check_bytes, check_keys, wrap_errors
from datacheck.formats.parsed import from_python, to_json
from datacheck.runtime.beneath import AnyPath

_FILE_BYTES = 256 << 20
_NODES = 20_000_000


class _NodeCounter:
    """Counts the nodes of a document with every alias expanded; refuses too many."""

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._anchors: dict[str, int] = {}
        # Anchor and nodes so far of each open collection.
        self._open: list[tuple[str | None, int]] = []
        self._is_mapping = False  # the whole document
        self._children = 0  # nodes directly below the root: two per key in a mapping

    def add(self, event: Any) -> None:
        yaml = self._yaml
        if len(self._open) == 1 and isinstance(event, yaml.NodeEvent):
            self._children += 1
            check_keys(self._children // 2 if self._is_mapping else 0)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                msg = f"alias *{event.anchor} stands inside its own value or before it"
                raise FormatError(msg)
            self._grow(self._anchors[event.anchor])
        elif isinstance(event, yaml.ScalarEvent):
            self._close(event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(*self._open.pop())

    def _begin(self, event: Any) -> None:
        if not self._open:
            self._is_mapping = isinstance(event, self._yaml.MappingStartEvent)
        self._open.append((event.anchor, 1))
        if len(self._open) > DEPTH:
            msg = f"nested more than {DEPTH} deep"
            raise FormatError(msg)

    def _close(self, anchor: str | None, nodes: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = nodes
        self._grow(nodes)

    def _grow(self, nodes: int) -> None:
        if not self._open:
            return
        anchor, before = self._open[-1]
        if before + nodes > _NODES:
            msg = f"its aliases come to more than {_NODES:,} values"
            raise FormatError(msg)
        self._open[-1] = anchor, before + nodes


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file", _FILE_BYTES)
    data = path.read_bytes()
    # Listing files imports this module for its suffixes only.
    import yaml  # noqa: PLC0415

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with wrap_errors("not YAML"):
        counter = _NodeCounter(yaml)
        for event in yaml.parse(data, Loader=loader):
            counter.add(event)
        root = yaml.load(data, Loader=loader)
    if root is None:
        return Values({})
    if isinstance(root, list):
        return Values({"records": to_json(root)})
    if not isinstance(root, dict):
        return Values({"value": from_python(root)})
    values: dict[str, Any] = {}
    for key, item in root.items():
        try:
            value = from_python(item)
        except FormatError as error:
            value = FormatError(f"{key}: {error}")
        if value is not None:
            add_values(values, [(str(key), value)])
    return Values(values, [str(key) for key, item in root.items() if item is None])


YAML = Format("yaml", (".yaml", ".yml"), _open)
