"""Text helpers shared by outputs: sizes, escaped names, plain text for a terminal, wrapping."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from rich.cells import cell_len, chop_cells

from datacheck.errors import COMMAND, escape_ci_commands

if TYPE_CHECKING:
    from rich.text import Text


_ASCII = str.maketrans(
    {
        "\u00b7": "-",
        "\u2026": "...",
        "\u00d7": "x",
        "\u2192": "->",
        "\u2212": "-",
        "\u00b1": "+-",
        "\u2265": ">=",
        "\u2264": "<=",
        "\u00b0": " deg",
        "\u2014": "-",
        "\u2013": "-",
    }
)
_PIECE = 1 << 16  # letters
_UNSAFE = re.compile(r"[^\n -~]")  # candidates for control characters of a terminal


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes for people: 999 B, 1.2 kB, 3.4 GB (powers of 1,000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            is_whole = unit == "B" or nbytes >= 99.95
            return f"{nbytes:.0f} {unit}" if is_whole else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.4g} TB"


def clean(text: str, *, spaces: bool = False) -> str:
    r"""Return text with every character that a terminal would act on escaped (``\x1b``).

    Args:
        text: a message, a key or a name; it may come from a file.
        spaces: keep runs of spaces (they matter in a key); otherwise each becomes one space.
    """
    if not spaces:
        text = " ".join(text.split())
    return "".join(map(_printable, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts of a text, so that a list of single letters exists for one part only."""
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_of(value: Any) -> bytes:
    r"""Return a value as printable JSON, see `escaped_json`.

    A lone surrogate is written as its escape (``\ud800``).
    """
    try:
        data = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:
        # as orjson writes NaN and infinity
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        data = json.dumps(finite, indent=2).encode()
    return escaped_json(data)


def escaped_json(data: bytes) -> bytes:
    r"""Return equal JSON with every character that a terminal would act on escaped (``\u009b``).

    Notes:
        Also escapes the start of CI commands that work anywhere in a line (`errors.COMMAND`); it
        only occurs in strings.
    """
    text = "".join(map(_printable_json, _pieces(data.decode())))
    return COMMAND.sub(r"\\u0023#", text).encode()


def _printable_json(text: str) -> str:
    if text.replace("\n", "").isprintable():
        return text
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    sign = match[0]
    if sign in "\t\r":  # unescaped, they occur only between values
        return " "
    if sign.isprintable():
        return sign
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)
    )


def relative_to_cwd(folder: Path) -> str:
    """Return a folder as a command argument: relative to the working folder if it lies in it."""
    if folder.is_absolute() and folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    return str(folder)


def can_encode(text: str, encoding: str) -> bool:
    """Return whether an encoding has every character of a text."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def finding_lines(finding: Mapping[str, Any]) -> list[str]:
    """Return a finding of a result.json as escaped lines.

    In order: severity, rule and extent; message; cause; examples; fix.
    """
    lines = [f"{finding['severity']} {clean(finding_title(finding))}", clean(finding["message"])]
    if finding["cause"] and finding["cause"]["text"]:
        lines.append(f"= {clean(finding['cause']['text'])}")
    lines += [f"  {clean(key, spaces=True)}" for key in finding["examples"]]
    if finding["more"]:
        lines.append(f"  \u2026 {finding['more']:,} more")
    if finding["fix"]:
        lines.append(f"fix: {clean(finding['fix'])}")
    return lines


def finding_title(finding: Mapping[str, Any]) -> str:
    """Return a finding's code, name, fields, split and number of samples, not escaped.

    Args:
        finding: from a result.json.
    """
    parts = [f"{finding['rule']} {finding['name']}", ", ".join(finding["fields"]), finding["split"]]
    title = " \u00b7 ".join(part for part in parts if part)
    if not finding["failed"]:
        return f"{title} (the dataset as a whole)"
    return f"{title} ({finding['failed']:,} of {finding['of']:,} samples)"


def last_line(traceback: str) -> str:
    """Return the last line of a traceback: the exception and its message."""
    return (traceback.strip().splitlines() or [""])[-1]


def plain(line: Text, encoding: str) -> Text:
    """Return a line that this encoding can show, with CI commands made inert.

    A changed line loses its colours.
    """
    text = escape_ci_commands(line.plain)
    if encoding.lower().replace("-", "") != "utf8":
        text = text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    elif text == line.plain:
        return line
    from rich.text import Text  # noqa: PLC0415  callers that only format sizes need no Rich

    return Text(text)


_NEVER_FIRST = frozenset("，。、；：？！）》」』】〕〉…”’·,.;:?!)]}%")
_NEVER_LAST = frozenset("（《「『【〔〈“‘([{")
# without the full stop: a word may begin with one (.npy)
_NEVER_AFTER_SPACE = frozenset("，。、；：？！）》」』】〕〉”’·%")
_ASCII_BREAK = re.compile(r" (?=[^ %])")  # where `_may_break` allows it between ASCII characters


def wrapped(text: str, width: int) -> list[str]:
    """Split a paragraph into lines, at spaces and next to wide characters.

    Args:
        text: one paragraph.
        width: cells of the longest line; an unbreakable part that is longer is cut there.

    Notes:
        No line begins with closing punctuation or ends with opening punctuation.
    """
    return [text[start:stop] for start, stop in spans(text, width)]


def spans(text: str, width: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each line of a paragraph, without trailing spaces; see `wrapped`."""
    lines: list[tuple[int, int]] = []
    start = 0
    stop = 0  # of the line so far
    for begin, end in _breakable_spans(text):
        visible_end = begin + len(text[begin:end].rstrip())
        if cell_len(text[start:visible_end]) > width:
            lines += [(start, stop)] * (stop > start)
            start = begin
            for part in chop_cells(text[begin:visible_end], width)[:-1]:
                lines.append((start, start + len(part)))
                start += len(part)
        stop = visible_end
    return [*lines, (start, stop)]


def _breakable_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the parts of a text between which a line may break."""
    if text.isascii():  # no wide characters; most texts are
        places = [space.end() for space in _ASCII_BREAK.finditer(text)]
    else:
        places = [p for p in range(1, len(text)) if _may_break(text[p - 1], text[p])]
    return pairwise([0, *places, len(text)])


def _may_break(before: str, after: str) -> bool:
    """Return whether a line may break between two characters."""
    if before == " ":
        return after != " " and after not in _NEVER_AFTER_SPACE
    if after == " " or after in _NEVER_FIRST or before in _NEVER_LAST:
        return False
    cells = cell_len(before), cell_len(after)
    # a pair narrower than its parts is a single emoji
    return 2 in cells and cells[1] > 0 and cell_len(before + after) == sum(cells)
