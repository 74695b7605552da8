"""From a schema back to YAML."""

from __future__ import annotations

from typing import Any

import yaml

from datacheck.schema.load import read_yaml
from datacheck.schema.model import Schema


class _Flow(yaml.SafeDumper):
    """Writes one line for each field, rule and split: what people read line by line."""

    depth = 0

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:  # noqa: FBT001
        self.depth += 1
        nested = any(isinstance(value, dict) for value in mapping.values())
        node = super().represent_mapping(tag, mapping, flow_style=not (self.depth == 1 or (self.depth == 2 and nested)))
        self.depth -= 1
        return node

    def represent_str(self, data: str) -> Any:
        """Return a text as one line: whoever adds a comment to a line finds the value whole."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if "\n" in data or "\r" in data else None)

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:  # noqa: FBT001
        del flow_style
        return super().represent_sequence(tag, sequence, flow_style=True)


_Flow.add_representer(str, _Flow.represent_str)


def dump_schema(schema: Schema) -> str:
    """Return a schema as YAML: defaults left out, keys and loader steps in their order, bases written out.

    Notes:
        Lossless: ``parse_schema(dump_schema(schema)) == schema``.
    """
    said, text = schema.as_dict(), ""
    for unescaped in (True, False):  # PyYAML folds some characters (U+0085) away unless they are escaped
        text = yaml.dump(said, Dumper=_Flow, sort_keys=False, allow_unicode=unescaped, width=1 << 20)
        seen = all(line.isprintable() for line in text.split("\n"))  # and some turn the text around them
        if seen and read_yaml(text, "")[0] == said:
            break
    return text
