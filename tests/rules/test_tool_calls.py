"""Calls of tools, and the replies to them: their arguments, tools and ids."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.model.finding import Severity
from datacheck.scan import scan

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def chat(arguments, name="weather", reply="c1", content=None):
    function = {"name": name, "arguments": arguments}
    return [
        {"role": "user", "content": "How will the weather be?"},
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": reply, "content": "sunny"},
        {"role": "assistant", "content": "It will be sunny."},
    ]


def good(i):
    return {"city": f"town {i}", "days": i % 7}


def found(tmp_path, rows, *, as_parquet=False):
    """Return (kind, severity, rows) of the findings of a scan without a schema."""
    (tmp_path / "d").mkdir()
    if as_parquet:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d/calls.parquet")
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "d/calls.jsonl").write_text(text)
    run = scan(tmp_path / "d", output=tmp_path / "out")
    assert {f.code for f in run.report.findings} <= {"DC713"}
    return {(f.kind, f.severity, tuple(f.rows.tolist())) for f in run.report.findings}


ERROR, WARNING = Severity.ERROR, Severity.WARNING


@pytest.mark.parametrize("form", [json.dumps, dict])
@pytest.mark.parametrize("tools", [lambda value: value, json.dumps])
def test_calls_that_fit_their_tools_are_silent(tmp_path, form, tools):
    rows = [{"messages": chat(form(good(i))), "tools": tools([WEATHER])} for i in range(30)]
    assert found(tmp_path, rows) == set()


@pytest.mark.parametrize(
    ("wrong", "kind", "severity"),
    [
        (chat('{"city": "Oslo'), "broken", ERROR),
        (chat('{"city": "Oslo', content="I look."), "broken", ERROR),
        (chat(json.dumps(json.dumps({"city": "Oslo"}))), "twice", ERROR),
        (chat('["Oslo"]'), "no-object", ERROR),
        (chat('"Oslo"'), "no-object", ERROR),
        (chat('{"city": "Oslo"}', reply="c2"), "reply", ERROR),
        (chat('{"city": "Oslo"}', name="forecast"), "unknown", WARNING),
        (chat('{"days": 3}'), "missing", WARNING),
        (chat('{"city": null}'), "missing", WARNING),
        (chat('{"city": "Oslo", "days": "3"}'), "type", WARNING),
        (chat('{"city": "Oslo", "days": true}'), "type", WARNING),
        (chat('{"city": 3}'), "type", WARNING),
        (chat('{"city": "Oslo", "symbol": null}'), "filled", WARNING),
        (chat({"city": "Oslo"}), "form", WARNING),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_what_is_wrong_with_a_call_is_named(tmp_path, wrong, kind, severity, as_text):
    tools = json.dumps([WEATHER]) if as_text else [WEATHER]
    rows = [{"messages": chat(json.dumps(good(i))), "tools": tools} for i in range(30)]
    rows[4]["messages"] = wrong
    assert found(tmp_path, rows) == {(kind, severity, (4,))}


@pytest.mark.parametrize(
    "right",
    [
        chat('{"city": "Oslo", "days": 3.0}'),  # a whole number is an integer in JSON schema
        chat('{"city": "Oslo", "days": null}'),  # an optional argument
        chat('{"city": "Oslo", "unit": "C"}'),  # further arguments are allowed
    ],
)
def test_what_json_schema_allows_is_no_fault(tmp_path, right):
    rows = [{"messages": chat(json.dumps(good(i))), "tools": [WEATHER]} for i in range(30)]
    rows[4]["messages"] = right
    assert found(tmp_path, rows) == set()


def test_without_declared_tools_and_ids_only_the_form_is_judged(tmp_path):
    rows = [{"messages": chat(json.dumps(good(i)), name=f"tool{i % 3}")} for i in range(30)]
    for row in rows:
        del row["messages"][1]["tool_calls"][0]["id"]
    rows[3]["messages"][1]["tool_calls"][0]["function"]["arguments"] = "city: Oslo"
    assert found(tmp_path, rows) == {("broken", ERROR, (3,))}


def test_calls_of_sharegpt_are_turns_of_their_own(tmp_path):
    def turns(call, i):
        speakers = ("human", "function_call", "observation", "gpt")
        texts = (f"How is town {i}?", call, "sunny", f"It is sunny in town {i}.")
        return [{"from": f, "value": t} for f, t in zip(speakers, texts, strict=True)]

    calls = [json.dumps({"name": "weather", "arguments": good(i)}) for i in range(30)]
    calls[9] = '{"name": "weather", "arguments": {"city": "Oslo"'
    rows = [{"conversations": turns(call, i)} for i, call in enumerate(calls)]
    assert found(tmp_path, rows) == {("broken", ERROR, (9,))}


@pytest.mark.parametrize(
    "declared",
    [{"type": ["string", "null"]}, {"anyOf": []}, {"type": "string", "nullable": True}, {}],
)
def test_a_required_argument_may_be_null_where_its_type_allows_it(tmp_path, declared):
    function = {
        "name": "weather",
        "parameters": {"properties": {"city": declared}, "required": ["city"]},
    }
    rows = [
        {"messages": chat(json.dumps({"city": None if i % 2 else "Rome"})), "tools": [function]}
        for i in range(30)
    ]
    for i, row in enumerate(rows):
        row["messages"][0]["content"] += f" Day {i}."
    assert found(tmp_path, rows) == set()


def test_arguments_under_another_key_are_not_judged(tmp_path):
    rows = [{"messages": chat(None), "tools": [WEATHER]} for _ in range(30)]
    for i, row in enumerate(rows):
        row["messages"][0]["content"] += f" Day {i}."
        function = row["messages"][1]["tool_calls"][0]["function"]
        del function["arguments"]
        function["input"] = {"city": "Rome"}
    assert found(tmp_path, rows) == set()


def test_keys_that_arrow_filled_with_null_are_named(tmp_path):
    other = {"name": "stocks", "parameters": {"properties": {"symbol": {"type": "string"}}}}
    weather = {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}
    rows = []
    for i in range(30):
        call = ({"city": f"town {i}"}, "weather") if i % 2 else ({"symbol": f"S{i}"}, "stocks")
        messages = [{"role": "user", "content": f"Question {i}?"}]
        function = {"name": call[1], "arguments": call[0]}
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        )
        rows.append({"messages": messages, "tools": [weather, other]})
    assert found(tmp_path, rows, as_parquet=True) == {("filled", WARNING, tuple(range(30)))}


def test_a_function_that_arrow_filled_with_null_is_the_call_itself(tmp_path):
    rows = [{"messages": chat("{}"), "tools": [WEATHER]} for i in range(30)]
    for i, row in enumerate(rows):
        flat = {"id": "c1", "function": None, "name": "weather", "arguments": json.dumps(good(i))}
        row["messages"][1]["tool_calls"] = [flat]
    assert found(tmp_path, rows) == set()


def test_a_turn_of_sharegpt_may_hold_several_calls_and_thoughts(tmp_path):
    def row(i):
        calls = [{"name": "weather", "arguments": good(i)}] * 2
        texts = (json.dumps(calls), f"I ask.\n{json.dumps(calls[0])}", calls)
        turns = [("human", f"Town {i}?"), ("function_call", texts[i % 3]), ("gpt", f"Sunny {i}.")]
        return {"conversations": [{"from": f, "value": v} for f, v in turns]}

    assert found(tmp_path, [row(i) for i in range(30)]) == set()


def test_a_chat_may_begin_with_the_reply_to_a_call_of_its_prompt(tmp_path):
    rows = []
    for i in range(30):
        messages = chat(json.dumps(good(i)))
        messages[-1]["content"] += f" In town {i}."
        rows.append({"prompt": messages[:2], "completion": messages[2:], "tools": [WEATHER]})
    rows[3]["completion"][0]["tool_call_id"] = "c9"
    assert found(tmp_path, rows) == {("reply", ERROR, (3,))}
