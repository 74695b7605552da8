"""Letters by script, against the names that Unicode's own database gives to characters."""

import unicodedata
from functools import cache

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.chats import Messages
from datacheck.model.sample import Column, Origin, Piece
from datacheck.rules import text_bytes as module
from datacheck.rules.families.writing import bad_encoding
from datacheck.rules.text_bytes import BITS, LETTERS, SCRIPTS, scripts
from datacheck.schema.model import FieldSpec
from tests.rules.harness import judged, measured, schema_of

TEXT, CHAT, CAPTIONS = (FieldSpec(role=role) for role in ("text", "chat", "captions"))
NAMES = {
    "LATIN": "latin",
    "CJK UNIFIED": "han",
    "CJK COMPATIBILITY IDEOGRAPH": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "HALFWIDTH KATAKANA": "kana",
    "HANGUL": "hangul",
    "CYRILLIC": "cyrillic",
    "GREEK": "greek",
    "ARABIC": "arabic",
    "HEBREW": "hebrew",
    "DEVANAGARI": "indic",
    "BENGALI": "indic",
    "TAMIL": "indic",
    "TELUGU": "indic",
    "SINHALA": "indic",
    "THAI": "thai",
    "FULLWIDTH LATIN": "latin",
    "ARMENIAN": "letters",
    "GEORGIAN": "letters",
    "ETHIOPIC": "letters",
    "KHMER": "letters",
    "TIBETAN": "letters",
    "YI SYLLABLE": "letters",
    "LAO": "letters",
}


def named(sign):
    """The class of a character by its name and category: "" for what is not counted, None where neither says it."""
    kind, name = unicodedata.category(sign), unicodedata.name(sign, "")
    if kind in {"Cc", "Zs", "Zl", "Zp"} or name.startswith(
        ("COMBINING ACUTE", "COMBINING GRAVE", "VARIATION SELECTOR-")
    ):
        return ""
    if kind == "Lo" or kind in {"Lu", "Ll"}:
        return next((stat for head, stat in NAMES.items() if name.startswith(head)), None)
    if kind == "Nd" and name.startswith(
        ("DIGIT", "FULLWIDTH DIGIT", "ARABIC-INDIC", "DEVANAGARI", "THAI DIGIT", "TAMIL DIGIT")
    ):
        return "digits"
    ideographic = name.startswith(
        ("IDEOGRAPHIC COMMA", "IDEOGRAPHIC FULL STOP", "LEFT CORNER", "FULLWIDTH COMMA")
    )
    if ideographic or (kind[0] in "PS" and (ord(sign) < 0x250 or 0x2010 <= ord(sign) < 0x2028)):
        return "punctuation"
    if name.startswith(
        ("GRINNING FACE", "SMILING FACE", "THUMBS UP", "ROCKET", "DOG FACE", "RED APPLE")
    ):
        return "emoji"
    return None


@cache
def known():
    """{character: its class}, made when a test needs it: a million names take longer than to collect this file."""
    classes = ((chr(code), named(chr(code))) for code in range(0x110000))
    return {sign: stat for sign, stat in classes if stat is not None}


signs = st.deferred(
    lambda: (
        st.sampled_from(sorted(known()))
        | st.sampled_from([*"abc Z9.,中文字か한국Дя\u0301😀é\n\x7f"])
    )
)
texts = st.lists(st.text(signs, max_size=40), min_size=1, max_size=8)


def counts(found, row):
    return {name: int(values[row]) for name, values in found.items() if values[row]}


def expected(text):
    held = [known()[sign] for sign in text]
    return {stat: held.count(stat) for stat in SCRIPTS if stat in held}


@given(texts, st.sampled_from([64, 128, 1 << 17]))
def test_characters_are_counted_as_their_names_say_wherever_the_bytes_are_cut(texts, piece):
    before, module._PIECE = module._PIECE, piece
    try:
        found = module.character_counts(Column.of(texts), TEXT)
    finally:
        module._PIECE = before
    assert [counts(found, row) for row in range(len(texts))] == [expected(text) for text in texts]


@pytest.mark.parametrize("start", range(0, 0x110000, 0x8000))
def test_every_character_that_has_a_name_is_where_its_name_says(start):
    every = [chr(code) for code in range(start, start + 0x8000) if chr(code) in known()]
    if every:
        found = module.character_counts(Column.of(every), TEXT)
        wrong = [
            (hex(ord(sign)), counts(found, row))
            for row, sign in enumerate(every)
            if counts(found, row) != expected(sign)
        ]
        assert wrong == []


@given(st.lists(st.lists(st.text(signs, max_size=20), max_size=3), min_size=1, max_size=5))
def test_of_chats_what_is_said_is_counted_however_it_is_stored(chats):
    said = [[{"role": "user", "content": text} for text in chat] for chat in chats]
    flat = [text for chat in chats for text in chat]
    texts = (
        Column.of(flat) if flat else Column(np.zeros(0, np.uint8), np.zeros(0, np.int64), "text")
    )
    sizes = np.array([len(chat) for chat in chats])
    stored = Messages(sizes, ["user"], np.zeros(len(flat), np.int64), texts)
    odd = [[*chat, {"from": "gpt", "value": "я", "id": 7}] for chat in said]
    for column, more in ((Column.of(said), ""), (stored, ""), (Column.of(odd), "я")):
        found = module.character_counts(column, CHAT)
        assert [counts(found, n) for n in range(len(chats))] == [
            expected("".join(chat) + more) for chat in chats
        ]


def test_escapes_of_json_are_the_characters_that_they_stand_for():
    raw = [
        rb'[{"content":"\u4e2d\u6587 \ud83d\ude00 \n","role":"user"}]',
        rb'[{"content":"a\\u4e2d","role":"user"}]',
    ]
    column = Column(
        np.frombuffer(b"".join(raw), np.uint8), np.array([len(one) for one in raw]), "json"
    )
    found = module.character_counts(column, CHAT)
    assert [counts(found, n) for n in (0, 1)] == [
        {"han": 2, "emoji": 1},
        {"latin": 4, "digits": 2, "punctuation": 1},
    ]
    captions = Column.of([{"left": ["Зд", {"x": "1!"}], "n": 3}, {"a": "b"}])
    assert [counts(module.character_counts(captions, CAPTIONS), n) for n in (0, 1)] == [
        {"cyrillic": 2, "digits": 1, "punctuation": 1},
        {"latin": 1},
    ]
    assert orjson.loads(raw[0])[0]["content"].startswith("中文")


def test_bytes_that_are_no_text_end_nothing():
    octets = np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8)
    for last in range(1, 40):
        column = Column(octets[: 100 * last], np.full(last, 100), "text")
        found = module.character_counts(column, TEXT)
        assert sum(int(values.sum()) for values in found.values()) <= 100 * last
    assert module.character_counts(Column(octets[:0], np.zeros(3, np.int64), "text"), TEXT) == {}


@given(texts)
def test_a_text_says_which_scripts_it_holds_and_which_is_foremost(texts):
    said = scripts.function(Column.of(texts), TEXT)["scripts"].tolist()
    for number, text in zip(said, texts, strict=True):
        held, letters = (
            expected(text),
            {stat: many for stat, many in expected(text).items() if stat in LETTERS},
        )
        assert [stat for place, stat in enumerate(SCRIPTS) if number >> place & 1] == list(held)
        most = max(letters, key=letters.get) if letters else ""
        assert ["", *LETTERS][number >> BITS] == most


def test_a_text_in_another_encoding_says_which_letters_it_has_and_the_others_have():
    schema = schema_of({"fields": {"t": {"role": "text"}}})
    good = ["这个句子说的是天气，今天很好。" + str(n) for n in range(9)]
    pieces = [
        ("", Piece(f"s{n}", {"t": text}, Origin("")))
        for n, text in enumerate([*good, good[0].encode().decode("latin-1")])
    ]
    (finding,) = [
        f for f in judged(schema, measured(schema, pieces)).findings if f.code == bad_encoding.code
    ]
    assert finding.message.endswith(
        "Most of their letters are Latin, those of the others Han (Chinese)."
    )
    alike = [
        ("", Piece(f"s{n}", {"t": text}, Origin("")))
        for n, text in enumerate(["plain words", "caf\ufffd words"])
    ]
    (finding,) = [
        f for f in judged(schema, measured(schema, alike)).findings if f.code == bad_encoding.code
    ]
    assert "letters" not in finding.message
