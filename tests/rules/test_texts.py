"""The bytes of texts, many at a time."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Column
from datacheck.rules.text_bytes import blank, single_spaced

SPACES = [chr(i) for i in range(sys.maxunicode + 1) if chr(i).isspace()]
# Share bytes with white space
ALIKE = list("ab。む、é\u0080\u0084\u2010\u2080\u1681\u3001\U00010000\U00010800")


@given(st.lists(st.text(st.sampled_from(SPACES + ALIKE), max_size=9), min_size=1, max_size=6))
def test_between_words_is_one_space(texts):
    found = [bytes(text) for text in single_spaced(Column.of(texts))]
    assert found == [" ".join(text.split()).encode() for text in texts]


def test_every_white_space_goes():
    assert single_spaced(Column.of(SPACES)) == [b""] * len(SPACES)


def test_half_a_surrogate_pair_is_kept():
    assert single_spaced(Column.of(["a\u3000\ud800  b", "c d"])) == [b"a \xed\xa0\x80 b", b"c d"]


@given(st.lists(st.text(st.sampled_from([*SPACES, *ALIKE]), max_size=3), min_size=1, max_size=9))
def test_blank_is_what_strip_empties(texts):
    assert blank(Column.of(texts)).tolist() == [not text.strip() for text in texts]


def test_every_white_space_that_is_not_ascii_is_known() -> None:
    signs = [chr(i) for i in [*range(128, 0xD800), *range(0xE000, 0x10000)]]
    assert blank(Column.of(signs)).tolist() == [sign.isspace() for sign in signs]
    texts = [f"a{sign} b" for sign in signs]
    assert [bytes(text).decode() for text in single_spaced(Column.of(texts))] == [
        " ".join(t.split()) for t in texts
    ]
