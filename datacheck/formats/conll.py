"""Sentences with a word and its tags on each line (.txt, .tsv, .tab, .conll, .bio, .iob, .iob2).

Empty lines lie between sentences, and tabs or blanks between the columns. Each sentence is a record
of lists: "words" (the first column), "tags" (the last one, or the first if only that holds tags of
spans), and "column1", "column2" between them. Blocks of "-DOCSTART-" are no sentences.

A line with another number of columns gives a `FormatError` with code DC701 in the place of its
sentence, and the others are still read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.conllu import SENTENCE_BYTES, batched, sentences
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes
from datacheck.runtime.beneath import AnyPath

SUFFIXES = (".conll", ".bio", ".iob", ".iob2")
# The tag of a word in a span: its place in the span, and the class.
_SPAN_TAG = re.compile(r"([BIESLUM])-(\S{1,60})")
_OUTSIDE = "O"
_TAB = re.compile("\t")
_BLANKS = re.compile("[ \t]+")
_NUMBER = re.compile(r"[-+]?[0-9.,]+")
_CODE = "DC701"
_DOCUMENT = b"-DOCSTART-"
# The first lines of a file must be sentences of several words in most blocks, in most lines with
# the same columns.
_FEWEST_SENTENCES = 2
_FEWEST_WORDS = 2.0
_USUAL_SHARE = 0.9
# Tags without spans (parts of speech): at most so many, each on so many words on average, in so many
# sentences of so many words at most on average. Unlike lists, sentences repeat words.
_MOST_TAGS = 60
_WORDS_PER_TAG = 10
_MANY_SENTENCES = 10
_MOST_WORDS = 100
_DISTINCT = 0.9
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Layout:
    """How the lines of a file are cut into columns: by a tab or by blanks, and which holds tags."""

    between: re.Pattern[str]
    width: int
    tags_first: bool = False

    @classmethod
    def of(cls, head: bytes) -> Layout | None:
        """Return the layout of a file with these first bytes, None if they are no such sentences."""
        blocks = _blocks(head)
        lines = [line for block in blocks for line in block]
        if len(blocks) < _FEWEST_SENTENCES or len(lines) < _FEWEST_WORDS * len(blocks):
            return None
        tabs = sum("\t" in line for line in lines)
        between = _TAB if tabs >= _USUAL_SHARE * len(lines) else _BLANKS
        rows = [between.split(line) for line in lines]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        if width < 2 or count < _USUAL_SHARE * len(rows):
            return None
        rows = [row for row in rows if len(row) == width]
        first, last = ([row[place] for row in rows] for place in (0, -1))
        are_many = len(blocks) >= max(_MANY_SENTENCES, len(lines) / _MOST_WORDS)
        if _are_spans(last) or (are_many and _are_tags(first, last)):
            return cls(between, width)
        return cls(between, width, tags_first=True) if _are_spans(first) else None

    def record(self, lines: list[str]) -> dict[str, list[str]]:
        """Return the columns of a sentence.

        Raises:
            _BrokenError: a line has another number of columns, or an empty one, unless the word is.
        """
        rows = [self.between.split(line) for line in lines]
        for index, row in enumerate(rows):
            if len(row) != self.width:
                columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
                msg = f"{columns}; most of the first lines of the file have {self.width}"
                raise _BrokenError(index, msg)
            if not all(row[1:-1]) or not row[0 if self.tags_first else -1]:
                raise _BrokenError(index, "an empty column")
        words, *others, tags = zip(*rows, strict=True)
        if self.tags_first:
            words, tags = tags, words
        between = {f"column{i}": list(column) for i, column in enumerate(others, 1)}
        return {"words": list(words), "tags": list(tags), **between}


class _BrokenError(Exception):
    """Number of lines from the first of a sentence to the broken one, and the reason."""


def _are_spans(tags: Sequence[str]) -> bool:
    """Return whether nearly all of these are tags of spans, and some of them lie in a span."""
    inside = sum(_SPAN_TAG.fullmatch(tag) is not None for tag in tags)
    outside = sum(tag == _OUTSIDE for tag in tags)
    return inside > 0 and outside > 0 and inside + outside >= _USUAL_SHARE * len(tags)


def _are_tags(words: Sequence[str], tags: Sequence[str]) -> bool:
    """Return whether these are few classes of many words, as parts of speech are."""
    kinds = len(set(tags))
    distinct = set(words)
    return (
        2 <= kinds <= _MOST_TAGS
        and max(_WORDS_PER_TAG * kinds, len(distinct) / _DISTINCT) <= len(words)
        and kinds < len(distinct)
        and not any(" " in word for word in distinct)
        and not any(map(_NUMBER.fullmatch, set(tags)))
    )


def _blocks(head: bytes) -> list[list[str]]:
    """Return the lines of each complete sentence in the first bytes of a file."""
    if b"\0" in head:
        return []
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    found: list[list[str]] = [[]]
    for line in text.split("\n")[:-1]:
        if line.strip():
            found[-1].append(line.rstrip(" "))
        elif found[-1]:
            found.append([])
    mark = _DOCUMENT.decode()
    blocks = [block[1:] if block and block[0].startswith(mark) else block for block in found]
    return [block for block in blocks if block]


def batches(
    path: AnyPath, layout: Layout, wanted: Sequence[int] | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the first sentence, contents), as `conllu.batches`.

    Args:
        path: the file.
        layout: its columns.
        wanted: numbers of the sentences to parse, ascending, counted from 0; None parses all.

    Raises:
        OSError: the file cannot be read.
    """
    found = _without_marks(sentences(path, comment=b""))
    return batched(found, partial(_sentence, layout), wanted)


def _without_marks(found: Iterator[tuple[int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
    """Yield sentences without the line that begins a document, and none for that line alone."""
    for line, data in found:
        if data is None or not data.startswith(_DOCUMENT):
            yield line, data
        elif (rest := data.partition(b"\n")[2]).strip():
            yield line + 1, rest


def _sentence(layout: Layout, number: int, line: int, data: bytes | None) -> Any:
    """Return the record of a sentence, or a `FormatError`."""
    index, why = 0, f"more than {SENTENCE_BYTES >> 20} MiB long"
    if data is not None:
        try:
            lines = data.decode("utf-8").split("\n")
            return layout.record([text.rstrip(" \r") for text in lines if text.strip()])
        except UnicodeDecodeError as error:
            index = data.count(b"\n", 0, error.start)
            why = f"byte {data[error.start]:#04x} is not UTF-8"
        except _BrokenError as error:
            index, why = error.args
    return FormatError(f"sentence {number + 1} (line {line + index}): {why}", _CODE)


def _open(path: AnyPath, hint: Hint) -> Values:
    """Return all sentences as "records"; a broken sentence refuses the file, as in JSON lines."""
    del hint
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    with path.open("rb") as file:
        layout = Layout.of(file.read(_HEAD_BYTES))
    if layout is None:
        msg = "no sentences: a word and its tags on each line, and empty lines between"
        raise FormatError(msg)
    records = [value for _, values in batches(path, layout) for value in values]
    bad = next((value for value in records if isinstance(value, FormatError)), None)
    return Values({"records": records if bad is None else bad})


CONLL = Format("conll", SUFFIXES, _open)
