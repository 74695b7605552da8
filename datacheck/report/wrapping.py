"""Paragraphs as lines of at most so many cells of a terminal: Chinese has no spaces, and two cells a character."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rich.cells import cell_len, chop_cells

_NEVER_FIRST = frozenset("，。、；：？！）》」』】〕〉…”’·,.;:?!)]}%")
_NEVER_LAST = frozenset("（《「『【〔〈“‘([{")
_BEHIND_A_SPACE = frozenset("，。、；：？！）》」』】〕〉”’·%")  # a word may well begin with a full stop: .npy


def wrapped(text: str, width: int) -> list[str]:
    """Return a paragraph as lines, broken at spaces and beside wide characters.

    Args:
        text: one paragraph.
        width: cells of the longest line; what cannot be broken and is longer is cut there.

    Notes:
        No line begins with closing punctuation or ends with opening one.
    """
    return [text[start:stop] for start, stop in spans(text, width)]


def spans(text: str, width: int) -> list[tuple[int, int]]:
    """Return where the lines of a paragraph begin and end, without the spaces behind them; see `wrapped`."""
    lines: list[tuple[int, int]] = []
    start = 0
    stop = 0  # of the line so far
    for begin, end in _pieces(text):
        last = begin + len(text[begin:end].rstrip())
        if cell_len(text[start:last]) > width:
            lines += [(start, stop)] * (stop > start)
            start = begin
            for part in chop_cells(text[begin:last], width)[:-1]:
                lines.append((start, start + len(part)))
                start += len(part)
        stop = last
    return [*lines, (start, stop)]


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the parts of a text begin and end between which a line may end."""
    places = [p for p in range(1, len(text)) if _parts(text[p - 1], text[p])]
    return pairwise([0, *places, len(text)])


def _parts(before: str, behind: str) -> bool:
    """Tell whether a line may end between two characters."""
    if before == " ":
        return behind != " " and behind not in _BEHIND_A_SPACE
    if behind == " " or behind in _NEVER_FIRST or before in _NEVER_LAST:
        return False
    cells = cell_len(before), cell_len(behind)
    return 2 in cells and cells[1] > 0 and cell_len(before + behind) == sum(cells)  # else they make one emoji
