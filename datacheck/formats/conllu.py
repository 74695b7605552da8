"""CoNLL-U treebanks (.conllu), read as a stream: each sentence is a record of lists.

A record has "sent_id" and "text" if the comments have them, and a list for each of the ten columns
of the words: "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc".
Numbers are integers, everything else is text as written ("_" for an empty cell). Multiword tokens
(2-3) and empty nodes (7.1) have neither HEAD nor UPOS: their columns are counted, but they are no
words of the record. A record without any HEAD (text that was never parsed) has no "head".

A sentence that breaks the format gives a `FormatError` with code DC701 in its place, and the others
are still read.

Reference:
    https://universaldependencies.org/format.html
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, cast

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes
from datacheck.runtime.beneath import AnyPath, check_holes

SUFFIX = ".conllu"
UPOS = frozenset(
    {
        "ADJ",
        "ADP",
        "ADV",
        "AUX",
        "CCONJ",
        "DET",
        "INTJ",
        "NOUN",
        "NUM",
        "PART",
        "PRON",
        "PROPN",
        "PUNCT",
        "SCONJ",
        "SYM",
        "VERB",
        "X",
    }
)
_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_WORD = re.compile(r"[0-9]{1,9}")
_OTHER = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9}|\.[0-9]{1,9})")
SENTENCE_BYTES = 1 << 20  # 50,000 words and more; their objects take 40 times as much
_READ_BYTES = 1 << 20
_BATCH = 256  # sentences
_BOM = b"\xef\xbb\xbf"
_CODE = "DC701"
_NOTHING = "_"


def batches(path: AnyPath, wanted: Sequence[int] | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the first sentence, contents) for each batch of sentences.

    The content of a sentence is a record or `FormatError`.

    Args:
        path: the file.
        wanted: numbers of the sentences to parse, ascending, counted from 0; None parses all.

    Raises:
        OSError: the file cannot be read.
    """
    file_characters = _FileCharacters(path)
    return batched(sentences(path), partial(_sentence, file_characters), wanted)


def batched(
    found: Iterable[tuple[int, bytes | None]],
    read: Callable[[int, int, bytes | None], Any],
    wanted: Sequence[int] | None,
) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the first sentence, contents) for each batch of sentences.

    Args:
        found: number of the first line and the bytes of each sentence.
        read: returns the content for the number of a sentence, that line and these bytes.
        wanted: numbers of the sentences to read, ascending, counted from 0; None reads all.
    """
    chosen = None if wanted is None else set(wanted)
    first, values = 0, list[Any]()
    for number, (line, data) in enumerate(found):
        if chosen is not None and number not in chosen:
            if values:
                yield first, values
            first, values = number + 1, []
            if wanted and number > wanted[-1]:
                return
            continue
        values.append(read(number, line, data))
        if len(values) == _BATCH:
            yield first, values
            first, values = number + 1, []
    if values:
        yield first, values


def sentences(path: AnyPath, comment: bytes = b"#") -> Iterator[tuple[int, bytes | None]]:
    """Yield (number of its first line, bytes) of each sentence; no bytes if it is too long.

    Args:
        path: a file with empty lines between sentences.
        comment: begins the lines that are no words, b"" if there are none.
    """
    with (
        path.open("rb", buffering=0) as raw,
        io.BufferedReader(cast("io.RawIOBase", raw), _READ_BYTES) as file,
    ):
        check_holes(raw.fileno())
        lines = list[bytes]()
        size = 0
        start = 1
        # `whole`: the last part that was read ends its line
        number = 0
        whole = True
        words = False
        while part := file.readline(_READ_BYTES):
            begins, whole = whole, part.endswith(b"\n")
            number += begins
            part = part.removeprefix(_BOM) if number == 1 and begins else part
            if begins and not part.strip():
                if words:
                    yield start, b"".join(lines) if size <= SENTENCE_BYTES else None
                # Comments without words do not belong to the next sentence.
                lines = []
                size = 0
                words = False
                continue
            start = number if not size else start
            size += len(part)
            words = words or not comment or not part.startswith(comment)
            if size <= SENTENCE_BYTES:
                lines.append(part)
        if words:
            yield start, b"".join(lines) if size <= SENTENCE_BYTES else None


class _BrokenError(Exception):
    """Number of lines from the first of a sentence to the broken one, and the reason."""


class _FileCharacters:
    """The characters that occur in a file, decoded as UTF-8; read once, on first use."""

    def __init__(self, path: AnyPath) -> None:
        self._path = path

    @cached_property
    def characters(self) -> set[str]:
        all_characters = set[str]()
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        with self._path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                all_characters.update(decoder.decode(data))
        return all_characters


def _sentence(file_characters: _FileCharacters, number: int, line: int, data: bytes | None) -> Any:
    """Return the record of a sentence, or a `FormatError`."""
    line_offset = 0
    why = f"more than {SENTENCE_BYTES >> 20} MiB long"
    if data is not None:
        try:
            return _record(_text(file_characters, data))
        except _BrokenError as error:
            line_offset, why = error.args
    return FormatError(f"sentence {number + 1} (line {line + line_offset}): {why}", _CODE)


def _text(file_characters: _FileCharacters, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        why = f"byte {data[error.start]:#04x} is not UTF-8"
        if characters := _as_cp1252(file_characters, data):
            why += (
                f"; read as cp1252 (Windows Latin-1) the sentence has {characters}, which other "
                f"sentences here have, too"
            )
        raise _BrokenError(data.count(b"\n", 0, error.start), why) from error


def _as_cp1252(file_characters: _FileCharacters, data: bytes) -> str:
    """Return the non-ASCII characters of bytes in cp1252, if all occur in the file as UTF-8.

    Returns "" otherwise.
    """
    try:
        non_ascii = {c for c in data.decode("cp1252") if not c.isascii()}
    except UnicodeDecodeError:
        return ""
    return " ".join(sorted(non_ascii)) if non_ascii <= file_characters.characters else ""


def _record(text: str) -> dict[str, Any]:
    record: dict[str, Any] = {}
    words: list[list[str]] = []
    for index, line in enumerate(text.split("\n")):
        line = line.removesuffix("\r")
        if line.startswith("#"):
            name, equals, value = line[1:].partition("=")
            if equals and name.strip() in {"sent_id", "text"}:
                record[name.strip()] = value.strip()
        elif line:
            _add_word(words, line.split("\t"), index)
    if not words:
        raise _BrokenError(0, "no words")
    record |= {name: [cells[index] for cells in words] for index, name in enumerate(_COLUMNS)}
    record["id"] = list(range(1, len(words) + 1))
    _number_heads(record)
    _check_tags(record)
    return record


def _add_word(words: list[list[str]], cells: list[str], line_index: int) -> None:
    """Add the columns of a line if it is a word.

    Raises:
        _BrokenError: the line has another number of columns, or an id that cannot stand here.
    """
    if len(cells) != len(_COLUMNS):
        raise _BrokenError(
            line_index, f"{len(cells)} columns, divided by tabs, where CoNLL-U has {len(_COLUMNS)}"
        )
    if _WORD.fullmatch(cells[0]) is not None:
        if int(cells[0]) != len(words) + 1:
            raise _BrokenError(
                line_index, f"word {cells[0]} stands where word {len(words) + 1} should be"
            )
        words.append(cells)
    elif _OTHER.fullmatch(cells[0]) is None:
        raise _BrokenError(line_index, f"{cells[0][:20]!r} is no id: 3, 3-4 or 3.1")


def _number_heads(record: dict[str, Any]) -> None:
    """Turn the HEADs into numbers; drop them where no word has one.

    Raises:
        _BrokenError: a HEAD is no word of the sentence, or none is 0, the root.
    """
    words = len(record["id"])
    heads = record.pop("head")
    if all(head == _NOTHING for head in heads):
        return
    for word, head in enumerate(heads, 1):
        if _WORD.fullmatch(head) is None:
            raise _BrokenError(0, f"HEAD of word {word} is {head[:20]!r}, no number")
        if int(head) > words:
            raise _BrokenError(
                0, f"HEAD of word {word} is {head}, beyond the {words} words of the sentence"
            )
        if int(head) == word:
            raise _BrokenError(0, f"HEAD of word {word} is the word itself")
    record["head"] = [int(head) for head in heads]
    if 0 not in record["head"]:
        raise _BrokenError(0, "no word has HEAD 0: the sentence has no root")


def _check_tags(record: dict[str, Any]) -> None:
    """Check that UPOS and XPOS are not swapped.

    Raises:
        _BrokenError: each XPOS is one of the 17 universal tags, and most UPOS are others.
    """
    other_tags = [tag for tag in record["upos"] if tag not in UPOS and tag != _NOTHING]
    if 2 * len(other_tags) > len(record["upos"]) and UPOS.issuperset(record["xpos"]):
        shown = ", ".join(tag[:20] for tag in list(dict.fromkeys(other_tags))[:3])
        raise _BrokenError(
            0, f"XPOS holds universal tags, UPOS others ({shown}): the two columns look swapped"
        )


def _open(path: AnyPath, hint: Hint) -> Values:
    """Return all sentences as "records"; a broken sentence refuses the file, as in JSON lines."""
    del hint
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    records: list[Any] = []
    for _, values in batches(path):
        records += values
    bad = next((value for value in records if isinstance(value, FormatError)), None)
    return Values({"records": records if bad is None else bad})


CONLLU = Format("conllu", (SUFFIX,), _open)
