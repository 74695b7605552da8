import json
import re
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from datacheck.errors import escape_ci_commands
from datacheck.report.words import clean, escaped_json, format_bytes, plain


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (99_949, "99.9 kB"),
        (123_456, "123 kB"),
        (999_600, "1 MB"),
        (4_194_304, "4.19 MB"),
        (3.4e9, "3.4 GB"),
        (2.5e12, "2.5 TB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(nbytes, said):
    assert format_bytes(nbytes) == said


@given(st.text())
def test_nothing_that_a_terminal_would_act_on_is_left(text):
    assert clean(text).isprintable()
    assert clean(text, spaces=True).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P"])))
def test_ordinary_text_stays_as_it_is(text):
    assert clean(text) == text


def test_control_characters_and_text_direction_are_spelled_out():
    assert clean("a\x1b[31mb\u202ec") == r"a\x1b[31mb\u202ec"
    assert clean("two  words\nand more") == "two words and more"
    assert clean("a  b\n", spaces=True) == r"a  b\n"


def test_what_an_output_cannot_show_is_spelled():
    line = Text("3 \u00d7 5 → 数 · [bold]x[/bold]")
    assert plain(line, "utf-8") is line
    assert plain(line, "UTF8") is line
    assert plain(line, "ascii").plain == r"3 x 5 -> \u6570 - [bold]x[/bold]"
    assert plain(line, "latin-1").plain == r"3 x 5 -> \u6570 - [bold]x[/bold]"


def test_json_says_the_same_and_holds_no_command_of_ci():
    said = {
        "##[error]a": [
            "##[add-mask]b",
            "#",
            "[#",
            "## a [b]",
            "###vso[task.complete]",
            "##teamcity[x]",
        ]
    }
    printed = escaped_json(json.dumps(said, indent=2).encode())
    assert not re.search(rb"##\w*\[", printed)
    assert json.loads(printed) == said


def test_long_texts_take_little_memory_and_are_escaped_as_short_ones():
    text = "\u4e2d" * 1_000_000
    said = json.dumps({"a": text, "b": "\x9b"}, ensure_ascii=False, indent=2).encode()
    tracemalloc.start()
    assert clean(text) == text
    assert json.loads(escaped_json(said)) == {"a": text, "b": "\x9b"}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    mixed = ("\u4e2d\x1b\U0001f600\n##[a" * 40_000)[1:]
    assert clean(mixed, spaces=True) == clean(mixed[:3], spaces=True) + clean(
        mixed[3:], spaces=True
    )
    assert b"##[" not in escaped_json(b"#" * 65_535 + b"##[" + b"#" * 65_535 + b"#[")
    assert "\x9b" not in escaped_json(said).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("::error::x\n \t::a::b\nc ::d", "\\x3a:error::x\n \t\\x3a:a::b\nc ::d"),
        ("a ##[error]b ##vso[c] ##d", "a \\x23#[error]b \\x23#vso[c] ##d"),
        ("\n" * 100_000 + "a::b", "\n" * 100_000 + "a::b"),  # in linear time
    ],
    ids=["colons", "hashes", "many lines"],
)
def test_no_line_of_a_text_is_a_command_of_ci(text, said):
    began = time.process_time()
    assert escape_ci_commands(text) == said
    assert time.process_time() - began < 1
