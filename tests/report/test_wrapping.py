import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from datacheck.report.words import wrapped


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("长度不是声明的单位。", 10, ["长度不是声", "明的单位。"]),
        ("长度不是声明的单位。", 8, ["长度不是", "声明的单", "位。"]),
        ("长度不是声明，但", 12, ["长度不是声", "明，但"]),  # the comma is not alone on its line
        ("长度（单位）", 6, ["长度", "（单", "位）"]),  # nor does a line end in an opening bracket
        ("小于 1 kB 的文件", 10, ["小于 1 kB", "的文件"]),
        ("不超过 20 % 的点", 9, ["不超过", "20 % 的点"]),  # a number keeps its per cent
        ("声明 unit: mm，再扫描", 14, ["声明 unit:", "mm，再扫描"]),
        ("abcdefghijkl", 5, ["abcde", "fghij", "kl"]),
        ("", 5, [""]),
        ("   ", 5, [""]),
    ],
)
def test_lines_end_at_spaces_and_beside_wide_characters(text, width, lines):
    assert wrapped(text, width) == lines


@given(st.text(st.sampled_from("ab 1%长度单位，。（）、“”-")), st.integers(8, 30))
def test_no_line_is_too_wide_and_no_character_is_lost(text, width):
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_an_emoji_of_several_characters_stays_whole():
    assert wrapped("手👍🏽手👍🏽手❤️中", 4) == ["手👍🏽", "手👍🏽", "手❤️", "中"]


def test_a_word_that_begins_with_a_full_stop_may_begin_a_line():
    assert wrapped("files of .npy", 8) == ["files of", ".npy"]


@given(st.text(st.sampled_from("a.%( \t"), max_size=30), st.integers(1, 12))
def test_texts_of_ascii_break_where_texts_with_an_accent_do(text, width):
    accented = [line.replace("a", "é") for line in wrapped(text, width)]
    assert wrapped(text.replace("a", "é"), width) == accented
