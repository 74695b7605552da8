"""Lines that are cut at their quotes are what a parser of JSON says they are, or are left to one."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datacheck.sources.fast_jsonl import Strings, chat_strings, is_utf8, text_strings

_EDGES = [
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xc2\x80",
    b"\xc2",
    b"\x80",
    b"\xe0\x9f\xbf",
    b"\xe0\xa0\x80",
    b"\xed\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xee\x80\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xff",
    b"\xe4\xb8",
    b"\xe4\xb8\xad",
    b"\xf0\x9f\x98",
    b"a",
    b"\xc3\xa9",
]
_SAID = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.sampled_from(
        ['"', "\\", '\\"', "\\\\", '\\\\"', "\n", "/", "\x00", "\ufffd", "😀", "}\n{", '": "', ""]
    ),
)
_SEPARATORS = st.sampled_from([(", ", ": "), (",", ":"), (" ,", ": "), (",\t", ":")])


def said(strings: Strings) -> list[str]:
    """Return what strings say."""
    array = strings.array()
    array.validate(full=True)
    return [part.decode() for part in array.to_pylist()]


def written(lines: list[dict[str, Any]], separators: tuple[str, str], *, ended: bool) -> bytes:
    text = "\n".join(json.dumps(line, ensure_ascii=False, separators=separators) for line in lines)
    return (text + "\n" * ended).encode()


@given(
    st.lists(st.one_of(st.binary(max_size=4), st.sampled_from(_EDGES)), max_size=6).map(b"".join)
)
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
def test_bytes_are_utf8_where_python_says_so(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        assert not is_utf8(data)
    else:
        assert is_utf8(data)


@pytest.mark.parametrize("edge", _EDGES)
def test_the_edges_of_utf8_are_where_python_has_them(edge: bytes) -> None:
    try:
        edge.decode()
    except UnicodeDecodeError:
        assert not is_utf8(b"ab\xe4\xb8\xad" + edge)
        assert not is_utf8(edge + b"ab")
    else:
        assert is_utf8(b"ab" + edge + b"ab")


@given(st.lists(st.tuples(_SAID, _SAID), min_size=1, max_size=5), _SEPARATORS, st.booleans())
def test_texts_are_those_of_a_parser(
    pairs: list[tuple[str, str]], separators: tuple[str, str], ended: bool
) -> None:
    lines = [{"input": a, "a key of many letters": b} for a, b in pairs]
    data = written(lines, separators, ended=ended)
    found = text_strings(data, len(lines), ["a key of many letters", "input"])
    if separators[0] in {" ,", ",\t"} or "\\u" in data.decode():  # a parser's business
        return
    assert found is not None
    assert (
        list(zip(said(found["input"]), said(found["a key of many letters"]), strict=True)) == pairs
    )


@given(
    st.lists(st.lists(st.tuples(_SAID, _SAID), min_size=1, max_size=4), min_size=1, max_size=4),
    _SEPARATORS,
    st.booleans(),
)
def test_chats_are_those_of_a_parser(
    chats: list[Any], separators: tuple[str, str], ended: bool
) -> None:
    data = written(
        [{"c": [{"role": r, "content": c} for r, c in chat]} for chat in chats],
        separators,
        ended=ended,
    )
    found = chat_strings(data, len(chats), "c")
    if separators[0] in {" ,", ",\t"} or "\\u" in data.decode():
        return
    assert found is not None
    counts, roles, contents = found
    assert counts.tolist() == [len(chat) for chat in chats]
    assert list(zip(said(roles), said(contents), strict=True)) == [
        pair for chat in chats for pair in chat
    ]


_GOOD = b'{"text": "one"}\n{"text": "two"}\n'


@pytest.mark.parametrize(
    "data",
    [
        _GOOD.replace(b"one", b"o\xffe"),
        _GOOD.replace(b"one", b"\xed\xa0\x80"),
        _GOOD.replace(b"one", b"o\\qe"),
        _GOOD.replace(b"one", b"\\u0041"),
        _GOOD.replace(b"one", b"o\te"),
        _GOOD.replace(b"one", b"o\x00e"),
        _GOOD.replace(b'"one"', b"null"),
        _GOOD.replace(b'"one"', b"NaN"),
        _GOOD.replace(b'"one"', b'["one"]'),
        _GOOD.replace(b'"one"', b'"one", "text": "more"'),
        _GOOD.replace(b'"text": "two"', b'"test": "two"'),
        _GOOD.replace(b'"text": "two"', b'"te\\/t": "two"'),
        _GOOD.replace(b"}\n{", b"}{\n"),
        _GOOD.replace(b"}\n", b"\n"),
        _GOOD.replace(b"}\n{", b"}\r\n{"),
        _GOOD.replace(b"}\n{", b"}\n\n{"),
        b"\xef\xbb\xbf" + _GOOD,
        b" " + _GOOD,
        _GOOD + b" ",
        _GOOD + b"\\",
        _GOOD + b'{"text": "thr',
        _GOOD[:-2],
        _GOOD.replace(b": ", b" :"),
        _GOOD.replace(b'one"', b'one\\"'),
        _GOOD.replace(b'one"', b'one"x'),
        _GOOD.replace(b": ", b", "),
        b"",
        b"\n\n",
        _GOOD.replace(b"}\n{", b",\n "),
        _GOOD.replace(b'"one"', b'"one" '),
        _GOOD.replace(b"o", b'"'),
    ],
)
def test_what_is_not_plain_is_left_to_a_parser(data: bytes) -> None:
    assert text_strings(_GOOD, 2, ["text"]) is not None
    assert text_strings(data, 2, ["text"]) is None
    lines = data.split(b"\n")
    assert text_strings(data, len(lines), ["text"]) is None


_CHAT = b'{"c": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}\n'


@pytest.mark.parametrize(
    "data",
    [
        _CHAT.replace(b"}, {", b"}]}\n{"),
        _CHAT.replace(b"[{", b"{["),
        _CHAT.replace(b"}]}", b"}}]"),
        _CHAT.replace(b'"role": "tool", "content": "b"', b'"content": "b", "role": "tool"'),
        _CHAT.replace(b'"content": "b"', b'"content": "b", "more": "c"'),
        _CHAT.replace(b"content", b"contend"),
        _CHAT.replace(b', "content": "b"', b""),
        _CHAT.replace(b'"b"', b"5"),
        _CHAT.replace(b"}]}", b"}],}"),
        b'{"c": []}\n',
        b'{"c": [[{"role": "user", "content": "a"}]]}\n',
        _CHAT.replace(b'"c"', b'"d"'),
        _CHAT.replace(b'"a"}, {', b'"a"}], {'),
        _CHAT.replace(b"[{", b"{"),
        _CHAT.replace(b"role", b"rolf"),
    ],
)
def test_a_chat_that_is_not_plain_is_left_to_a_parser(data: bytes) -> None:
    assert chat_strings(_CHAT, 1, "c") is not None
    assert chat_strings(data, 1, "c") is None
    assert chat_strings(_CHAT + data, 2, "c") is None
    assert chat_strings(data + _CHAT, 2, "c") is None


def test_a_long_row_of_backslashes_ends_where_json_says() -> None:
    for count in range(1, 9):
        data = b'{"t": "' + b"\\" * count + b'"}\n'
        found = text_strings(data, 1, ["t"])
        try:
            wanted = orjson.loads(data)["t"]
        except orjson.JSONDecodeError:
            assert found is None
        else:
            assert found is not None
            assert said(found["t"]) == [wanted]
            assert found["t"].array().to_pylist() == [b"\\" * (count // 2)]
