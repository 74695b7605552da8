"""Rules about the writing of texts: repetition, broken characters, template markers, lost ends."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.chats import Messages, joined_bytes
from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.measures import form, reduced
from datacheck.rules.text_bytes import BITS, LETTERS, beginning, needle_counts, places, scripts
from datacheck.schema.model import FieldSpec
from datacheck.tokenization import content_of, messages_of

Array = np.ndarray[Any, Any]

MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<think>",
    "</think>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
)
# Written around any text, also without a chat.
_ENDS = frozenset({"<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>"})
_OF_TURNS = np.array([marker not in _ENDS for marker in MARKERS])
_ENCODED = tuple(marker.encode() for marker in MARKERS)
_BITS = 1 << np.arange(len(MARKERS), dtype=np.int64)
_REPLACED = ("\ufffd".encode(),)
# UTF-8 read as Windows-1252.
_MOJIBAKE = ("\u00e2\u20ac".encode(), "\u00ef\u00bf\u00bd".encode(), b"\xc3\x83\xc2")
_CONTROL = re.compile(
    rb"[\x00-\x08\x0b\x0e-\x1f\x7f]|(?<!\\)(?:\\\\)*\\(?:b|u00(?:0[0-7be-f]|1[0-9a-f]))"
)
# Control characters except tab, line feed, form feed and carriage return.
_RAW = np.isin(np.arange(256), [*range(9), 0x0B, *range(0x0E, 0x20), 0x7F])
_MARKS = re.compile("[\u0300-\u036f]")
_KINDS = ("replacement", "mojibake", "control", "decomposed")


def _is_words(spec: FieldSpec) -> bool:
    return spec.role in {"text", "chat", "captions"}


@measure("spelling", version=2, applies=_is_words)
def spelling(column: Column, spec: FieldSpec) -> Columns:
    """Broken characters: `broken` (4), counts of each of `_KINDS`.

    `signs`: all characters of the text where something is broken, else 0.
    """
    del spec
    if column.kind == "array" or column.lengths is None:
        return {}
    broken = (
        _of_chats(_broken(column.said), column) if isinstance(column, Messages) else _broken(column)
    )
    signs = np.zeros(len(column), np.int64)
    for i in np.flatnonzero(broken.sum(axis=1)).tolist():
        signs[i] = len(column[i].tobytes().decode("utf-8", "replace"))
    return {"broken": broken, "signs": signs}


def _of_chats(counts: Array, chats: Messages) -> Array:
    """Return the sums over the messages of each chat: int64 (chats, k)."""
    if not counts.any():  # the usual case
        return np.zeros((len(chats), counts.shape[1]), np.int64)
    total = np.concatenate([np.zeros((1, counts.shape[1]), np.int64), np.cumsum(counts, axis=0)])
    stops = np.cumsum(chats.counts)
    sums: Array = total[stops] - total[stops - chats.counts]
    return sums


def _broken(column: Column) -> Array:
    """Return how many of each of `_KINDS` each text holds: int64 (texts, 4)."""
    assert column.lengths is not None
    data = joined_bytes(column)
    octets = column.values
    stops = np.cumsum(column.lengths)
    broken = np.zeros((len(column), 4), np.int64)
    broken[:, 0] = needle_counts(octets, data, stops, _REPLACED)[:, 0]
    if b"\xc3" in data:  # a cheap test: the search for a single byte runs at many GB/s
        broken[:, 1] += needle_counts(octets, data, stops, _MOJIBAKE).sum(axis=1)
    if b"\xc2" in data:
        broken[:, 1] += _per_text(_latin(octets, data), stops)
    broken[:, 2] = _per_text(_controls(octets, data, column.kind), stops)
    broken[:, 3] = _decomposed(octets, data, stops)
    return broken


def _controls(octets: Array, data: bytes, kind: str) -> Array:
    """Return the places of control characters: below 32, and 127.

    Tab, line feed, form feed and carriage return do not count.
    """
    if kind == "json":
        may_occur = (
            b"\x7f" in data or b"\\b" in data or len(beginning(octets, data, (b"\\u0",))) > 0
        )
        return np.array(
            [m.start() for m in _CONTROL.finditer(data)] if may_occur else [], dtype=np.int64
        )
    places = np.flatnonzero(octets < 32) if octets.min(initial=32) < 32 else np.zeros(0, np.int64)
    if b"\x7f" in data:
        places = np.concatenate([places, np.flatnonzero(octets == 0x7F)])
    control_places: Array = places[_RAW[octets[places]]]
    return control_places


def _latin(octets: Array, data: bytes) -> Array:
    """Return the places of characters that arise from UTF-8 read as Latin-1.

    They are U+0080 to U+009F except U+0085.
    """
    begins = places(octets, data, 0xC2)
    begins = begins[: np.searchsorted(begins, len(octets) - 1)]
    following = octets[begins + 1]
    misread_places: Array = begins[(following < 0xA0) & (following != 0x85)]
    return misread_places


def _decomposed(octets: Array, data: bytes, stops: Array) -> Array:
    """Return how many combining accents each text has that is not in the normal form NFC."""
    counts = np.zeros(len(stops), np.int64)
    if b"\xcc" not in data and b"\xcd" not in data:
        return counts
    marks = _per_text(np.flatnonzero((octets == 0xCC) | (octets == 0xCD)), stops)
    for i in np.flatnonzero(marks).tolist():
        text = data[int(stops[i - 1]) if i else 0 : stops[i]].decode("utf-8", "replace")
        if not unicodedata.is_normalized("NFC", text):
            counts[i] = len(_MARKS.findall(text))
    return counts


def _per_text(begins: Array, stops: Array) -> Array:
    """Return how many of these places lie in each text."""
    return np.bincount(np.searchsorted(stops, begins, side="right"), minlength=len(stops))


@rule(
    "DC708",
    "bad-encoding",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(form, spelling, scripts),
    suppressed_by=("DC121", "DC122"),
    applies=_is_words,
    defaults={"share": 0.001},
)
def bad_encoding(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    r"""A text was decoded with another encoding than it was written in.

    What:
        A text holds no replacement characters, no UTF-8 that was read as Latin-1 or Windows-1252,
        no control characters, and no accents that are separate characters (NFD).
    Why it matters:
        Each such character costs several meaningless tokens, and the model learns to write them.
    Measure:
        For each kind, the number of such characters divided by the number of all characters of the
        text.
    When it is wrong:
        The text is about encodings, or is a terminal log: raise ``share``.
    Options:
        share: largest share of a text's characters that is not reported (0.001).
    Bad::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "A caf\u00e9 in the old town, which opens at eight."}
          - {t: "A caf\ufffd in the old town, which opens at nine."}

    Good::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "A caf\u00e9 in the old town, which opens at eight."}

    Fix:
        Export the texts again as UTF-8; ftfy repairs most cases; normalise to NFC.
    Reference:
        C4 and FineWeb repair encodings with ftfy before any other step.
    """
    measured = rows.measured("broken", "signs")
    if not measured.any():
        return
    broken = rows["broken"]
    signs = np.maximum(rows["signs"], 1)
    for number, kind in enumerate(_KINDS):
        mask = measured & (broken[:, number] > float(case.options["share"]) * signs)
        if mask.any():
            most = float((broken[:, number] / signs)[mask].max())
            yield Failure(
                mask,
                f"{count_phrase(mask, 'hold')} {_NAMES[kind]}, up to {most:.2%} of a "
                f"text.{_other_script(rows, mask)}",
                measured={"characters": int(broken[mask, number].sum())},
                expected={"share": float(case.options["share"])},
                cause=Cause(_CAUSES[kind], kind, explains=int(mask.sum())),
                fix="Export again as UTF-8, or repair with ftfy and normalise to NFC.",
                kind=kind,
                order=broken[:, number] / signs,
            )


def _other_script(rows: Rows, mask: Array) -> str:
    """Return a sentence about the main script of these texts, if it differs from the others'."""
    measured = rows.measured("scripts") & (rows["scripts"] >> BITS > 0)
    if not (measured & mask).any() or not (measured & ~mask).any():
        return ""
    own_script, other_script = (
        int(np.bincount(rows["scripts"][measured & side] >> BITS).argmax())
        for side in (mask, ~mask)
    )
    names = ["", *LETTERS.values()]
    return (
        ""
        if own_script == other_script
        else f" Most of their letters are {names[own_script]}, those of the others {names[other_script]}."
    )


_NAMES = {
    "replacement": "replacement characters (U+FFFD)",
    "mojibake": "characters that a wrong encoding made",
    "control": "control characters",
    "decomposed": "accents that are characters of their own",
}
_CAUSES = {
    "replacement": "bytes that are no UTF-8 were decoded with errors='replace'",
    "mojibake": "UTF-8 or Windows-1252 was decoded as Latin-1, or UTF-8 as Windows-1252",
    "control": "binary data, or a terminal's log",
    "decomposed": "Unicode normal form NFD",
}


@measure("markers", version=2, applies=_is_words)
def markers(column: Column, spec: FieldSpec) -> Columns:
    """Markers of chat templates in a text: `markers`, a bit for each of `MARKERS`."""
    del spec
    if column.kind == "array" or column.lengths is None:
        return {}
    texts = column.said if isinstance(column, Messages) else column
    assert texts.lengths is not None
    counts = needle_counts(texts.values, joined_bytes(texts), np.cumsum(texts.lengths), _ENCODED)
    counts = _of_chats(counts, column) if isinstance(column, Messages) else counts
    # One number, because vectors of 21 took a third of the time of writing rows.
    return {"markers": (counts > 0) @ _BITS}


@rule(
    "DC709",
    "special-token-leak",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(form, markers),
    suppressed_by=("DC121", "DC122"),
    applies=_is_words,
    defaults={"allowed": ()},
)
def special_token_leak(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A text contains the special tokens of a chat template as plain text.

    What:
        A text does not contain ``<|im_start|>``, ``<|endoftext|>``, ``<think>``, ``[INST]`` and the
        like.
    Why it matters:
        The tokenizer turns them into special tokens: a text ends in the middle, or speaks for
        another role.
    Measure:
        Special tokens in the stored text; number of texts that contain each.
    When it is wrong:
        The special tokens are intended (stored reasoning, an end of text to be learnt): list them
        in ``allowed``.
    Options:
        allowed: special tokens that a text may contain (none).
    Bad::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "A text that was made from a chat.<|im_end|> And goes on."}

    Good::

        schema: {fields: {t: {role: text}}}
        samples:
          - {t: "A text that was made from a chat. And goes on."}

    Fix:
        Remove or escape them, or split the text into turns.
    Reference:
        Prompt injection by special tokens: by default, transformers encodes them as special tokens
        in content, too.
    """
    measured = rows.measured("markers")
    if not measured.any():
        return
    wanted = np.array([marker not in case.options["allowed"] for marker in MARKERS])
    mask = measured & ((rows["markers"] & (wanted @ _BITS)) > 0)
    if mask.any():
        often = ((rows["markers"][mask][:, None] & (wanted * _BITS)) > 0).sum(axis=0)
        names = [MARKERS[i] for i in np.argsort(-often, kind="stable") if often[i]]
        turned = mask & ((rows["markers"] & ((wanted & _OF_TURNS) @ _BITS)) > 0)
        turns = [name for name in names if name not in _ENDS]
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} {first_few(names)} as plain text.",
            measured={name: int(often[MARKERS.index(name)]) for name in names},
            cause=Cause("texts were made from rendered chats", turns[0], explains=int(turned.sum()))
            if turns
            else None,
            fix="Remove or escape them, or list them in the option allowed where they are meant.",
        )


# --------------------------------------------------------------------------------------- repetition

_OF_LETTERS = re.compile(r"(?:[^\W\d_]|\s)+")
_LEAST = 200  # characters: repetition in a shorter text is harmless
_MOST = 1_000_000  # characters examined, each of which takes a hundred bytes
_NO_LETTERS = re.compile(r"[\W_]+")
# "3." and "(3)" before a sentence.
_COUNTERS = re.compile(r"(?<!\S)[(\[]?\d{1,6}[:.)\]\uff1a\u3001\uff09](?!\d)")
# Harmless repetitions of a gram: a quoted question, options that differ in one word.
_OFTEN = 3
# Length of a text, in grams, from which on one phrase may be too frequent: in the answer to a short
# task the name of its thing is a third of the words.
_FEWEST_GRAMS = 10
# Words in a gram, or characters in scripts without spaces.
_WORDS = 10
_SIGNS = 20


@measure("repetition", version=5, applies=_is_words, depth="deep")
def repetition(column: Column, spec: FieldSpec) -> Columns:
    """Repetition within a text: `again`, the share of grams beyond their third occurrence.

    A gram has 10 words or 20 characters, of letters and digits, without counters ("3.") before a
    sentence: frames of tables and drawings are no words. `most`: the share of its most frequent
    gram of a fifth of that length, with counters; 0 below ten times as many words or characters as a
    gram has. Texts below 200 characters have no row. For texts
    of numbers (calibration, tables) both are 0.
    """
    if column.kind == "array" or column.lengths is None:
        return {}
    values = np.zeros((2, len(column)))
    for i in np.flatnonzero(column.lengths >= _LEAST).tolist():
        text = column.objects[i]
        if column.kind == "json":
            contents = list(map(content_of, messages_of(text))) if spec.role == "chat" else [text]
            text = "\n".join(part for part in contents if isinstance(part, str))
        values[:, i] = _repeated(text[:_MOST])
    present = column.lengths >= _LEAST
    return {"again": Measured(values[0], present), "most": Measured(values[1], present)}


def _repeated(text: str) -> tuple[float, float]:
    """Return (share of repeated long grams, share of the most frequent short gram).

    A long gram's first three occurrences do not count.
    """
    if len(text) < _LEAST or len(_OF_LETTERS.sub("", text)) > len(text) / 2:
        return 0.0, 0.0
    parts, size = _parts(text)
    plain, long = _parts(bare) if (bare := _COUNTERS.sub("", text)) != text else (parts, size)
    plain, long = (plain, long) if len(plain) >= 2 * long else (parts, size)
    if len(parts) < 2 * size:
        return 0.0, 0.0
    short = max(2, size // 5)
    _, counts = np.unique(_grams(plain, long), return_counts=True)
    repeated_share = float(np.maximum(counts - _OFTEN, 0).sum() / counts.sum())
    if len(parts) < _FEWEST_GRAMS * size:
        return repeated_share, 0.0
    _, often = np.unique(_grams(parts, short), return_counts=True)
    return repeated_share, min(1.0, float(often.max() * short / len(parts)))  # overlapping


def _parts(text: str) -> tuple[Array, int]:
    """Return a number for each word, or for each character, and how many make a gram.

    Words and characters are of letters and digits.
    """
    words = text.split()
    if 12 * len(words) < len(text):  # Chinese, Japanese: no spaces between words
        letters = _NO_LETTERS.sub("", text)
        return np.frombuffer(letters.encode("utf-32-le", "surrogatepass"), np.uint32), _SIGNS
    word_numbers: dict[str, int] = {}
    numbers = [
        word_numbers.setdefault(word, len(word_numbers))
        for word in words
        if not _NO_LETTERS.fullmatch(word)
    ]
    return np.array(numbers, np.uint32), _WORDS


def _grams(parts: Array, size: int) -> Array:
    """Return one number for each run of `size` parts; different runs hardly ever share a number."""
    code = np.zeros(len(parts) - size + 1, np.uint64)
    for offset in range(size):
        code = (
            code * np.uint64(0x9E3779B97F4A7C15) + parts[offset : offset + len(code)] + np.uint64(1)
        )
    return code


@rule(
    "DC707",
    "repetition",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(form, repetition),
    suppressed_by=("DC121", "DC122"),
    applies=_is_words,
    defaults={"again": 0.3, "most": 0.3},
)
def repeats_itself(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A text repeats the same passages or phrases many times.

    What:
        Few passages of a text occurred several times earlier in it, and no short phrase makes up
        much of the text. ``--level deep`` judges this rule.
    Why it matters:
        Loops in the data become loops in the model's output.
    Measure:
        again: the share of all grams of 10 words that occur three times or more earlier in the
        text; quoting a question, or listing options that differ in one word, repeats less. most:
        count of the most common gram of 2 words, times its words, over all words, for texts of at
        least 100 words (200 characters of Chinese). A word has a
        letter or digit, so frames of tables and drawings do not count. Scripts without spaces
        between words (Chinese) use 20 and 4 characters. Only texts of at least 200 characters are
        judged, and of texts longer than a million characters the first million.
    When it is wrong:
        Code and song lyrics repeat themselves: raise the options. The other statistics of Gopher
        (stop words, mean word length) hold for English only and are not judged.
    Options:
        again: largest share of grams that occurred three times before (0.3).
        most: largest share of a text that its most common short gram may take (0.3).
    Bad::

        schema: {fields: {t: {role: text}}}
        samples:
          - t: "I do not know why. I do not know why. I do not know why. I do not know why. I do not know why. I do not
              know why. I do not know why. I do not know why. I do not know why. I do not know why. I do not know why."

    Good::

        schema: {fields: {t: {role: text}}}
        samples:
          - t: "A voxel is a small cube of space, and a grid of them holds what a camera with depth has seen. Their edge
              decides what is kept: too long and fingers melt into the cup they hold, too short and memory runs out."

    Fix:
        Drop the texts, or keep one copy of the repeated passage.
    Reference:
        Rae et al. 2021 (Gopher): duplicate 10-grams above 10 %, a most common 2-gram above 20 % of
        the characters.
    """
    measured = rows.measured("again", "most")
    if not measured.any():
        return
    repeat_shares = rows["again"]
    most = rows["most"]
    mask = measured & (
        (repeat_shares > float(case.options["again"])) | (most > float(case.options["most"]))
    )
    if mask.any():
        repeated_share = float(repeat_shares[mask].max())
        phrase_share = float(most[mask].max())
        shares = [
            f"{share:.0%}" if share >= 0.005 else "less than 1 %"
            for share in (repeated_share, phrase_share)
        ]
        verb = "repeats itself" if mask.sum() == 1 else "repeat themselves"
        yield Failure(
            mask,
            f"{pluralize(int(mask.sum()))} {verb}: up to {shares[0]} of a text stood in it three "
            f"times before, its "
            f"commonest phrase takes up to {shares[1]}; {case.options['again']:.0%} and "
            f"{case.options['most']:.0%} are "
            "allowed.",
            measured={"again": round(repeated_share, 4), "most": round(phrase_share, 4)},
            expected={"again": float(case.options["again"]), "most": float(case.options["most"])},
            fix="Drop the texts, or keep one copy of what is repeated.",
            order=np.maximum(repeat_shares, most),
        )


# --------------------------------------------------------------------------------------------- ends

_SHORTEST_CUT = 50  # characters: limits of titles and codes are shorter
_SHORTEST_WORDS = 20
_HASHED = 16  # bytes before the end, which tell one text from another
_DOTS = ord("\u2026")
_ABOUT = 0.1  # relative difference of lengths that are about as frequent
# Lengths go on up to the pile: this share of it lies between this part of its length and itself.
_BEFORE = 0.8
_SHARE_BEFORE = 0.02
_FEWEST_UNCUT = 30
# Texts of one kind end in few characters; texts that were cut end in any.
_USUAL_ENDS = 12
_SHARE_USUAL = 0.9
_SHARE_CUT = 0.5
_LENGTHS = {"characters": "character", "octets": "byte", "word_count": "word"}


@measure("text_ends", applies=lambda spec: spec.role == "text")
def text_ends(column: Column, spec: FieldSpec) -> Columns:
    """How long a text is and how it ends: `characters`, `octets`, `word_count`, `final`, `tail_hash`.

    `final` is the last character, three dots counted as one; `tail_hash` stands for the bytes before
    it. Texts below 50 characters have no row.
    """
    del spec
    if column.kind != "text" or column.lengths is None or not len(column.values):
        return {}
    octets, lengths = column.values, column.lengths
    stops = column.starts + lengths
    characters = reduced(np.add, (octets & 0xC0) != 0x80, lengths)
    space = (octets == ord(" ")) | ((octets >= 9) & (octets <= 13))
    begins = ~space
    begins[1:] &= space[:-1]
    begins[column.starts[lengths > 0]] = ~space[column.starts[lengths > 0]]
    present = characters >= _SHORTEST_CUT
    final = np.zeros(len(column), np.int64)
    hashes = np.zeros(len(column), np.int64)
    if present.any():
        last = stops[present]
        final[present] = _final(octets, last)
        before = octets[last[:, None] - 4 - _HASHED + np.arange(_HASHED)]
        halves = np.ascontiguousarray(before).view(np.uint64)
        mixed = (halves[:, 0] * np.uint64(0x9E3779B97F4A7C15)) ^ halves[:, 1]
        hashes[present] = (mixed * np.uint64(0xC2B2AE3D27D4EB4F)) >> np.uint64(32)
    counts = {
        "characters": characters,
        "octets": lengths,
        "word_count": reduced(np.add, begins, lengths),
        "final": final,
        "tail_hash": hashes,
    }
    return {name: Measured(values, present) for name, values in counts.items()}


def _final(octets: Array, stops: Array) -> Array:
    """Return the last character of each text; all texts have 4 bytes or more."""
    last = octets[stops[:, None] - 4 + np.arange(4)].astype(np.int64)
    final = last[:, 3].copy()
    final[(last[:, 1:] == ord(".")).all(axis=1)] = _DOTS
    for i in np.flatnonzero(final >= 0x80).tolist():
        if final[i] != _DOTS:
            character = bytes(last[i].tolist()).decode("utf-8", "replace")[-1]
            final[i] = ord(character)
    return final


@rule(
    "DC718",
    "cut-text",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(form, text_ends),
    suppressed_by=("DC121", "DC122"),
    applies=text_ends.applies,
    defaults={"least": 10, "pile": 5.0},
)
def cut_text(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Many texts have exactly one length, and do not end as the others do.

    What:
        No length is much more frequent than other lengths near it, unless the texts of this length
        end in the same few characters as the others.
    Why it matters:
        An export, a database column or a spreadsheet cut the texts at a limit. What is lost is the
        end: the answer, the last sentence, the mark where generation stops.
    Measure:
        Lengths in characters, in bytes and in words, of texts of at least 50 characters. A pile is
        at least ``least`` texts of one length, ``pile`` times as many as of any other length within
        10 % of it; the lengths must go on up to the pile, at most as many texts may be longer, and most of its
        texts must differ before their end. At least 30 texts must lie outside of all piles, 90 % of
        them with one of at most 12 last characters; of the pile at most half have one of these.
        Three dots count as one character.
    When it is wrong:
        Texts of a fixed length stand among free ones: raise ``pile``.
    Options:
        least: fewest texts of one length (10).
        pile: how many times as frequent as lengths near it this length is (5).
    Bad::

        schema: {fields: {t: {role: text}}}
        samples:
          - {n: 90, t: {prose: [60, 300], cut: 200}}

    Good::

        schema: {fields: {t: {role: text}}}
        samples:
          - {n: 90, t: {prose: [60, 300]}}

    Fix:
        Export the texts again without the limit, or leave out those that were cut.
    Reference:
        Usual limits: 255 (VARCHAR), 512, 1,024, 32,767 (a cell of Excel), 65,535 bytes (TEXT of
        MySQL).
    """
    measured = rows.measured("characters", "final")
    if int(measured.sum()) < int(case.options["least"]) + _FEWEST_UNCUT:
        return
    found = np.zeros(len(rows), bool)
    for name, unit in _LENGTHS.items():
        lengths = rows[name]
        shortest = _SHORTEST_WORDS if name == "word_count" else _SHORTEST_CUT
        piles = _piles(lengths[measured & (lengths >= shortest)], case)
        rest = measured & ~np.isin(lengths, [size for size, _ in piles])
        finals, counts = np.unique(rows["final"][rest], return_counts=True)
        usual = finals[np.argsort(-counts, kind="stable")][:_USUAL_ENDS]
        share = float(np.isin(rows["final"][rest], usual).mean()) if rest.any() else 0.0
        if int(rest.sum()) < _FEWEST_UNCUT or share < _SHARE_USUAL:
            continue
        for size, beside in piles:
            mask = measured & (lengths == size)
            ends = float(np.isin(rows["final"][mask], usual).mean())
            differ = len(np.unique(rows["tail_hash"][mask])) >= 0.5 * mask.sum()
            if ends > _SHARE_CUT or not differ or (found & mask).sum() >= 0.5 * mask.sum():
                continue
            found |= mask
            yield _cut_failure(mask, pluralize(int(size), unit), int(beside), ends, share)


def _piles(lengths: Array, case: RuleContext) -> list[tuple[int, int]]:
    """Return the lengths at which texts pile up, each with the most texts of a length near it."""
    sizes, counts = np.unique(lengths, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    piles = []
    for i in np.flatnonzero(counts >= int(case.options["least"])).tolist():
        size, count = int(sizes[i]), int(counts[i])
        before = int(below[i] - below[np.searchsorted(sizes, _BEFORE * size)])
        if below[-1] - below[i + 1] > count or before < max(3.0, _SHARE_BEFORE * count):
            continue
        low, high = np.searchsorted(sizes, [(1 - _ABOUT) * size, (1 + _ABOUT) * size])
        beside = int(np.delete(counts[low:high], i - low).max(initial=1))
        if count >= float(case.options["pile"]) * beside:
            piles.append((size, beside))
    return piles


def _cut_failure(mask: Array, length: str, beside: int, ends: float, share: float) -> Failure:
    return Failure(
        mask,
        f"{count_phrase(mask, 'have')} a text of exactly {length}; lengths near it occur up to "
        f"{pluralize(beside, 'time')}. {ends:.0%} of them end in a character in which {share:.0%} of "
        f"the others end.",
        measured={"texts": int(mask.sum()), "beside": beside, "usual_ends": round(ends, 4)},
        cause=Cause(f"the texts were cut at {length}", "cut", explains=int(mask.sum())),
        fix="Export them again without the limit, or leave them out: their ends are missing.",
        kind=length,
    )
