r"""Which placeholders a path template has: ``{split}/{seq}/meta/{frame:\d{4}}.pkl`` has split, seq and frame.

What a template matches is the business of the sources; a schema only has to know its names.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_]\w*")


def placeholders(template: str) -> list[str]:
    """Return the placeholders of a template, in order, each once.

    Raises:
        ValueError: a brace is not closed, a name is no identifier, or what follows the colon is no regular expression.
    """
    names: dict[str, None] = {}
    place = 0
    while (start := template.find("{", place)) >= 0:
        place = _closing(template, start)
        name, colon, pattern = template[start + 1 : place - 1].partition(":")
        if not _NAME.fullmatch(name):
            msg = f"cannot read {{{name}}} in {template!r}; a placeholder is written {{name}} or {{name:regex}}"
            raise ValueError(msg)
        if colon:
            _compiles(pattern, template)
        names[name] = None
    return list(names)


def fixed(template: str) -> str:
    """Return a template with each placeholder as ``{}``, so that its folders can be seen.

    Raises:
        ValueError: as `placeholders`.
    """
    text, place = "", 0
    while (start := template.find("{", place)) >= 0:
        text += template[place:start] + "{}"
        place = _closing(template, start)
    return text + template[place:]


def _closing(template: str, start: int) -> int:
    depth = 0
    for place in range(start, len(template)):
        depth += {"{": 1, "}": -1}.get(template[place], 0)
        if depth == 0:
            return place + 1
    msg = f"a brace is not closed in {template!r}; a placeholder is written {{name}} or {{name:regex}}"
    raise ValueError(msg)


def _compiles(pattern: str, template: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        msg = f"{pattern!r} in {template!r} is not a regular expression: {error}"
        raise ValueError(msg) from error
    if groups:
        msg = f"{pattern!r} in {template!r} has a group; write (?:...) instead of (...)"
        raise ValueError(msg)
