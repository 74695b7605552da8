"""Lines of text in a file without a suffix that a format claims: a side of a parallel corpus, ``train.de``.

The lines are a list of texts, "lines". Only line feeds end a line, as ``wc -l`` counts, with or without a carriage
return before: other characters that Unicode calls line ends stand within sentences, and would shift all that follow.
"""

from __future__ import annotations

import codecs

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes, text
from datacheck.runtime.beneath import Place


def is_text(head: bytes) -> bool:
    """Tell whether a file that begins so is text in UTF-8; control characters but NUL stand in texts of the web."""
    if 0 in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _parse(data: bytes, hint: Hint) -> Values:
    del hint
    check_bytes(len(data), "the file", TEXT_BYTES)
    if 0 in data:
        msg = f"byte {data.index(0)} is zero: this is no text file"
        raise FormatError(msg)
    lines = text(data, "the file").split("\n")
    if not lines[-1]:
        lines.pop()  # behind the last line feed is no line
    return Values({"lines": [line.removesuffix("\r") for line in lines] if b"\r" in data else lines})


def _open(path: Place, hint: Hint) -> Values:
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    return _parse(path.read_bytes(), hint)


LINES = Format("lines", (), _open, parse=_parse, fits=is_text)
