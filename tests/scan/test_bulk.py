"""Lines parsed into columns are what they are one by one: the same rows, the same complaints."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datacheck.formats import jsonl
from datacheck.model.sample import Block, Origin
from datacheck.model.table import Table
from datacheck.rules import rules_for
from datacheck.rules.measurement import MeasurementRunner
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.scan.rows import checked_rows
from datacheck.scan.worker import measure_items
from datacheck.schema.load import parse_schema
from datacheck.sources import Item, fast_jsonl
from datacheck.sources.fast_jsonl import BulkParser
from datacheck.sources.fields import FieldMap

HEAD = "datacheck: 1\nname: t\nsamples: {files: '*.jsonl', each: line}\nfields:\n"
TEXT = parse_schema(HEAD + "  text: {role: text}\nduplicates: {exact: warning}\n")
CHAT = parse_schema(
    HEAD + "  c: {role: chat, speakers: [system, user, assistant, tool], train_on: assistant}\n"
    "duplicates: {exact: warning, near: 0.8}\n"
)

_SAID = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            " ",
            "None",
            "nan",
            "Hello  there.\n",
            "\u3000北方的河流",
            "x" * 80,
            '"\\\n\t\x00\x1b\x7f',
            "},{",
            "<|im_",
            "end|>",
            "<think>so</think>",
            "caf\u00e9 cafe\u0301 \u00e2\u20ac \ufffd",
            "\\u0007",
            "😀",
            "\u2028a\u0085",
        ]
    ),
)
_ROLE = st.sampled_from(
    ["user", "assistant", "system", "tool", "usr", "a_role_of_many_letters", "", "rôle", "12345678"]
)
_MORE = st.sampled_from(
    [{}] * 8 + [{"tools": "[1]"}, {"content": None}, {"role": 5}, {"content": {"a": "b"}}]
)
_MESSAGE = st.builds(
    lambda role, said, more: {"role": role, "content": said} | more, _ROLE, _SAID, _MORE
)
_PLAIN = st.builds(
    lambda role, said: {"content": said, "role": role},
    st.sampled_from(["user", "assistant"]),
    _SAID,
)
_ODD = st.sampled_from(
    [
        b"",
        b"  ",
        b"{}",
        b"[]",
        b"null",
        b'{"text": "a", "text": "b"}',
        b'{"text": null}',
        b'{"text": 5}',
        b"{\x00}",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"text": "a"}{"text": "b"}',
        b'{"text": "a"} {"text": "b"}',
        b'{"text":',
        b'{"c": [{}]}',
        b'"a"}',
        b'{"text": "a", "more": 1}',
        b'{"text": "a\tb"}',
        b'{"te\\u0078t": "a"}',
        b'\xef\xbb\xbf{"text": "a"}',
        b'{"text": "a"}\r',
        b'{"c": [',
        b'{"role": "user", "content": "a"}',
        b"]}",
        b'{"c": [null]}',
        b'{"c": "a"}',
        b'{"text": "a\\q"}',
        b'{"text": ["a"]}',
        b'{"c": {"messages": []}}',
        b'{"text": "a",}',
        b'{"text": "\xed\xa0\x80"}',
    ]
)


def written(value: Any) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda narrow: json.dumps(value, ensure_ascii=narrow).encode("utf-8", "replace"),
        st.booleans(),
    )


_TEXTS = _SAID.flatmap(lambda text: written({"text": text}))
_CHATS = st.lists(st.one_of(_PLAIN, _MESSAGE), max_size=5).flatmap(
    lambda chat: written({"c": chat})
)
_PLAINS = st.lists(_PLAIN, max_size=5).flatmap(lambda chat: written({"c": chat}))


def rows(schema: Any, data: bytes, how: str, piece: int) -> dict[str, Any]:
    measures = measures_of(choose_rules(schema, rules_for(schema), "deep"), "deep")
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("datacheck.sources.lines._LEAST_BYTES", 1 << 30 if how == "one by one" else 0)
        patch.setattr(fast_jsonl, "_TRIES", 0 if how == "one by one" else 1 << 30)
        if how == "parsed":
            patch.setattr(BulkParser, "_at_quotes", lambda *_: None)
        if how == "cut":
            patch.setattr(BulkParser, "_columns", lambda *_: None)
        patch.setattr(jsonl, "_PIECE_BYTES", piece)
        Path(name, "a.jsonl").write_bytes(data)
        task = {
            "schema": schema.as_dict(),
            "root": name,
            "roots": {},
            "level": "deep",
            "paths": [],
            "measures": [m.name for m in measures],
            "items": [Item("a.jsonl", nbytes=len(data)).as_dict()],
        }
        found = measure_items(task, lambda number: None)
    assert found["crashes"] == []
    table = Table.from_wire(found["table"])
    columns = {}
    for stat, column in table.columns.items():
        values = [
            v if there else None
            for v, there in zip(column.values.tolist(), column.present.tolist(), strict=True)
        ]
        if any(value is not None for value in values):
            columns[stat] = values
    return {
        "keys": list(table.keys),
        "reasons": list(table.reasons),
        "status": table.status.tolist(),
        "nbytes": table.nbytes.tolist(),
        "undeclared": found["undeclared"],
        **columns,
    }


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.one_of(_TEXTS, _TEXTS, _TEXTS, _ODD), max_size=8),
    st.booleans(),
    st.sampled_from([40, 1 << 20]),
)
@example([b'{"text": "a"}{"text": "b"}', b"", b'{"text": "c"}'], True, 1 << 20)
@example([b'{"text":', b'"a"}', b'{"text": "a"} {"text": "b"}'], True, 1 << 20)
def test_texts_in_bulk_are_what_they_are_one_by_one(
    lines: list[bytes], ended: bool, piece: int
) -> None:
    data = b"\n".join(lines) + b"\n" * ended
    wanted = rows(TEXT, data, "one by one", piece)
    assert rows(TEXT, data, "parsed", piece) == wanted
    assert rows(TEXT, data, "cut", piece) == wanted


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.one_of(
        st.lists(_PLAINS, max_size=6), st.lists(st.one_of(_PLAINS, _CHATS, _ODD), max_size=6)
    ),
    st.sampled_from([90, 1 << 20]),
)
@example(
    [b'{"c": [{"role": "user", "content": "<|im_"}, {"role": "user", "content": "end|>"}]}'],
    1 << 20,
)
@example([b'{"c": [{"role": "user", "content": "a"}, {"role": "", "content": "b"}]}'], 1 << 20)
def test_chats_in_bulk_are_what_they_are_one_by_one(lines: list[bytes], piece: int) -> None:
    data = b"\n".join(lines)
    wanted = rows(CHAT, data, "one by one", piece)
    assert rows(CHAT, data, "parsed", piece) == wanted
    assert rows(CHAT, data, "cut", piece) == wanted


def test_plain_lines_are_parsed_in_bulk_and_no_others() -> None:
    data = b'{"text": "one"}\n{"text": "tw\\u00f6"}\n'
    parser = BulkParser(FieldMap(TEXT, level="numeric"))
    columns = parser.columns(data, 2)
    assert columns is not None
    assert columns["text"].objects == ["one", "twö"]
    assert parser.columns(data.replace(b"one", b"\xff"), 2) is None
    other = BulkParser(FieldMap(parse_schema(HEAD + "  n: {role: value}\n"), level="numeric"))
    assert other.columns(b'{"n": 1}\n', 1) is None


@pytest.mark.parametrize("how", ["one by one", "parsed", "cut"])
def test_two_fields_may_have_one_key(how: str) -> None:
    schema = parse_schema(HEAD + "  a: {role: text, at: text}\n  b: {role: text, at: text}\n")
    found = rows(schema, b'{"text": "one"}\n{"text": "three"}\n', how, 1 << 20)
    assert found["nbytes"] == [2 * len("one"), 2 * len("three")]
    assert found[":missing"] == ["", ""]


def test_a_chat_column_says_how_long_its_json_is() -> None:
    parser = BulkParser(FieldMap(CHAT, level="numeric"))
    chats = [
        [{"role": "user", "content": 'a "b" \\ \n\x00 ä'}, {"role": "assistant", "content": ""}],
        [],
    ]
    columns = parser.columns(b"\n".join(json.dumps({"c": chat}).encode() for chat in chats), 2)
    assert columns is not None
    column = columns["c"]
    assert column.objects == chats
    expected = [
        json.dumps(c, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        for c in chats
    ]
    assert column.lengths.tolist() == [len(one) for one in expected]
    assert column.values.tobytes() == b"".join(expected)
    assert column[1].tobytes() == b"[]"
    np.testing.assert_array_equal(column.starts, [0, len(expected[0])])


def test_scanning_plain_chats_writes_no_json() -> None:
    parser = BulkParser(FieldMap(CHAT, level="numeric"))
    chat = [
        {"role": "user", "content": "What is a voxel?"},
        {"role": "assistant", "content": "A small cube."},
    ]
    columns = parser.columns(json.dumps({"c": chat}).encode(), 1)
    assert columns is not None
    block = Block(["a"], columns, [Origin("a.jsonl")])
    measures = measures_of(choose_rules(CHAT, rules_for(CHAT), "numeric"), "numeric")
    bench = MeasurementRunner(CHAT, measures)
    assert bench.measure(block)[":content"].present.all()
    assert checked_rows(block, {}).nbytes.tolist() == columns["c"].lengths.tolist()
    assert bench.crashes == {}
    # It would take as long as all the rest
    assert not {"values", "objects"} & columns["c"].__dict__.keys()
