"""Rules about tool calls in conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Rows
from datacheck.rules.base import Columns, RuleContext, first_few, measure, pluralize, rule
from datacheck.rules.chat_turns import CALLER, chats_in, turns_of
from datacheck.rules.measures import form
from datacheck.runtime.hashing import shortened
from datacheck.schema.model import Schema
from datacheck.tokenization import content_of, role_of

BROKEN = 1
TWICE = 2
NO_OBJECT = 4
REPLY = 8
UNKNOWN = 16
MISSING = 32
TYPE = 64
FILLED = 128
AS_TEXT = 256
AS_OBJECT = 512
_NAME_BYTES = 200  # of a tool's or argument's name in messages
_SHOWN = 3
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
Tools = dict[str, Mapping[str, Any]]  # JSON schema of the arguments, by name of the tool


@measure("calls", per="sample", uses=("fields.role", "fields.tools", "fields.continues"))
def calls(block: Block, schema: Schema) -> Columns:
    """Faults of tool calls: ``<field>:calls`` (bits), ``<field>:called`` (a name).

    Bits: 1 arguments that are not valid JSON, 2 JSON-encoded twice, 4 no object, 8 a reply to no
    earlier call, 16 a tool that is not declared, 32 a required argument is missing, 64 an argument
    has another type than declared, 128 undeclared arguments that are null; 256 a call has its
    arguments as JSON text, 512 as an object. The name is that of the first tool or argument that is
    wrong. Blocks of chats without calls have no columns.
    """
    columns: dict[str, Any] = {}
    for name, spec in schema.of_role("chat"):
        column = block.fields.get(name)
        if column is None or column.kind != "json":
            continue
        plain = turns_of(column)
        if plain is not None and not plain.wide.any() and CALLER not in plain.words:
            continue  # a role and a text in each turn, and nothing else: no calls
        declared = _declared(block.fields.get(spec.tools or ""), len(block))
        prompt = block.fields.get(spec.continues or "")
        prompts = chats_in(prompt) if prompt is not None and prompt.kind == "json" else None
        found = [
            _faults(messages, tools, earlier)
            for messages, tools, earlier in zip(
                chats_in(column), declared, prompts or [[]] * len(block), strict=True
            )
        ]
        columns[f"{name}:calls"] = np.array([bits for bits, _ in found], dtype=np.int64)
        columns[f"{name}:called"] = [shortened(word, _NAME_BYTES) for _, word in found]
    return columns


def _declared(column: Column | None, count: int) -> list[Tools]:
    """Return the declared tools of each sample."""
    if column is None or column.kind == "array":
        return [{}] * count
    return [_tools_of(value) for value in column.objects]


def _tools_of(value: Any) -> Tools:
    """Return the JSON schema of the arguments by name of the tool; `value` may be JSON text."""
    value = _parsed(value) if isinstance(value, str) else value
    tools: Tools = {}
    for entry in value if isinstance(value, list) else ():
        function = _function_of(entry) if isinstance(entry, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            parameters = function.get("parameters", function.get("input_schema"))
            tools[function["name"]] = parameters if isinstance(parameters, dict) else {}
    return tools


def _function_of(entry: Mapping[str, Any]) -> Any:
    """Return the function of a tool or call: an entry of its own, or the tool or call itself.

    Notes:
        Arrow writes null where other rows have the entry.
    """
    return entry if entry.get("function") is None else entry["function"]


def _faults(
    messages: Sequence[dict[str, Any]], declared: Tools, earlier: Sequence[dict[str, Any]]
) -> tuple[int, str]:
    """Return the faults of the calls in a chat (bits), and the first wrong name.

    Args:
        messages: of the chat.
        declared: the tools of the sample.
        earlier: the messages that the chat continues, which have findings of their own.
    """
    bits, word = 0, ""
    tools, ids = dict(declared), set[str]()
    for message in earlier:
        if "tools" in message:
            tools |= _tools_of(message["tools"])
        ids |= {call["id"] for call in _calls_of(message) if isinstance(call.get("id"), str)}
    for message in messages:
        if "tools" in message:  # as minimind keeps them, in the turn of the system
            tools |= _tools_of(message["tools"])
        for call in _calls_of(message):
            if isinstance(call.get("id"), str):
                ids.add(call["id"])
            function = _function_of(call)
            found, name = _fault(function, tools)
            bits, word = bits | (found or _form(function)), word or name
        reply = message.get("tool_call_id")
        if isinstance(reply, str) and reply and ids and reply not in ids:
            bits, word = bits | REPLY, word or reply
    return bits, word


def _calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a turn: of OpenAI, its older form, and ShareGPT."""
    calls = message.get("tool_calls")
    calls = _parsed(calls) if isinstance(calls, str) else calls
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    older = message.get("function_call")
    if isinstance(older, dict):
        found.append(older)
    if role_of(message) == CALLER:
        found += _calls_in(content_of(message))
    return found


def _calls_in(value: Any) -> list[dict[str, Any]]:
    """Return the calls that a turn of ShareGPT holds, as values or as JSON text.

    Text that begins otherwise (thoughts, tags) is not judged.
    """
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith(("{", "[")):
            return []
        value = _parsed(text)
        if value is None:
            return [{"arguments": text}]
    return [
        call for call in (value if isinstance(value, list) else [value]) if isinstance(call, dict)
    ]


def _form(function: Any) -> int:
    """Return whether arguments are text or an object (bits)."""
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return (AS_TEXT if isinstance(arguments, str) else AS_OBJECT) if arguments else 0


def _fault(function: Any, tools: Tools) -> tuple[int, str]:
    """Return the faults of one call (bits), and the name of the tool or argument."""
    if not isinstance(function, dict):
        return NO_OBJECT, ""
    name = function["name"] if isinstance(function.get("name"), str) else ""
    arguments, bits = _arguments(function.get("arguments"))
    if bits:
        return bits, name
    if not tools or not name or "arguments" not in function:  # other writers have "input"
        return 0, ""
    if name not in tools:
        return UNKNOWN, name
    return _against(arguments, tools[name])


def _arguments(value: Any) -> tuple[dict[str, Any], int]:
    """Return the arguments, and the fault of their form (bits)."""
    if isinstance(value, str) and value.strip():
        parsed = _parsed(value)
        if parsed is None:
            return {}, BROKEN
        if isinstance(parsed, str):
            return {}, TWICE if isinstance(_parsed(parsed), dict) else NO_OBJECT
        value = parsed
    if value is None or value == "":  # a tool without arguments
        return {}, 0
    return (value, 0) if isinstance(value, dict) else ({}, NO_OBJECT)


def _against(arguments: Mapping[str, Any], declared: Mapping[str, Any]) -> tuple[int, str]:
    """Return how arguments deviate from their JSON schema (bits), and the first such name."""
    properties, required = declared.get("properties"), declared.get("required")
    if not isinstance(properties, dict):
        return 0, ""
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and arguments.get(name) is None:
            if name in arguments and _may_be_null(properties.get(name)):
                continue
            return MISSING, name
    for name, value in arguments.items():
        if value is None and properties.get(name) is None:
            return FILLED, name
        kind = properties[name].get("type") if isinstance(properties.get(name), dict) else None
        if isinstance(kind, str) and kind in _TYPES and value is not None and not _is(value, kind):
            return TYPE, name
    return 0, ""


def _may_be_null(declared: Any) -> bool:
    """Tell whether a property may be null: all but those of one plain type may."""
    return not isinstance(declared, dict) or not (
        isinstance(declared.get("type"), str)
        and declared["type"] != "null"
        and not declared.get("nullable")
    )


def _is(value: Any, kind: str) -> bool:
    """Tell whether a value has a type of JSON schema: 3.0 is an integer there, True is not."""
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _parsed(text: Any) -> Any:
    """Return the value of JSON text; None if it is not valid JSON."""
    try:
        return orjson.loads(text)
    except (ValueError, TypeError):
        return None


_EXPORT = "Export the arguments again from the source data, or drop the samples."
_RENAME = "Declare the tool, or correct its name."
# Kind, words after "12 samples", cause and repair of each fault.
_WRONG = {
    BROKEN: ("broken", "have a tool call whose arguments are not valid JSON", "", _EXPORT),
    TWICE: (
        "twice",
        "have a tool call whose arguments are JSON-encoded twice",
        "the JSON text was written as JSON once more",
        _EXPORT,
    ),
    NO_OBJECT: ("no-object", "have a tool call whose arguments are not a JSON object", "", _EXPORT),
    REPLY: (
        "reply",
        "have a tool reply whose tool_call_id matches no earlier call",
        "the call was dropped, or the ids were made again",
        "Restore the calls, or drop the samples.",
    ),
    UNKNOWN: ("unknown", "call a tool that is not declared", "", _RENAME),
    MISSING: ("missing", "have a tool call without a required argument", "", _EXPORT),
    TYPE: ("type", "have a tool call with an argument of another type than declared", "", _EXPORT),
    FILLED: (
        "filled",
        "have a tool call with undeclared arguments that are null",
        "keys of other calls, filled with null as Arrow does it",
        "Remove the keys that are null, or store the arguments as JSON text.",
    ),
    AS_TEXT: (
        "form",
        "have tool calls with arguments as text; most samples have objects",
        "",
        "Store all arguments in one form.",
    ),
    AS_OBJECT: (
        "form",
        "have tool calls with arguments as objects; most samples have text",
        "",
        "Store all arguments in one form.",
    ),
}
_WARNINGS = UNKNOWN | MISSING | TYPE | FILLED | AS_TEXT | AS_OBJECT


@rule(
    "DC713",
    "tool-call",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form, calls),
    suppressed_by=("DC121", "DC122"),
    applies=lambda s: s.role == "chat",
)
def tool_call(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A tool call cannot be executed as written, or a tool reply matches no call.

    What:
        Arguments are a JSON object, or its text, encoded once. A reply with a ``tool_call_id``
        follows a call of this id, where calls have ids; the call may be in the chat that this one
        ``continues``. Where the sample declares tools (the field
        that ``tools`` names, or a turn), the called tool is among them, its required arguments are
        there, and the arguments have the declared types. All calls of the dataset have their
        arguments in one form, as text or as objects.
    Why it matters:
        The model learns the calls as they stand. Arguments that are encoded twice are learnt with
        their backslashes, and no program can read them.
    Measure:
        ``tool_calls`` and ``function_call`` of the turns (OpenAI), and the turns of
        ``function_call`` (ShareGPT). The rule uses ``required`` and the ``type`` of each property
        in the JSON schema of a tool. A tool that is not declared, a missing argument, another type,
        arguments of null and the rarer form are warnings.
    When it is wrong:
        The tools in the field are not those of the sample: take ``tools`` out of the schema.
    Options:
        none
    Bad::

        schema: {fields: {c: {role: chat}}}
        samples:
          - {c: {json: [{role: user, content: Rain}, {role: assistant, function_call: {arguments: '{"x": 1}'}}]}}
          - {c: {json: [{role: user, content: Rain}, {role: assistant, function_call: {arguments: '{"x": 2'}}]}}

    Good::

        schema: {fields: {c: {role: chat}}}
        samples:
          - {c: {json: [{role: user, content: Rain}, {role: assistant, function_call: {arguments: '{"x": 1}'}}]}}

    Fix:
        Export the arguments again from the source data, encoded once, or drop the samples.
    Reference:
        trl pull request 5118: Arrow writes None into the tools of other rows. oumi pull request
        2599: arguments as text are rendered encoded twice, and trained on silently.
    """
    column = f":{case.name}:calls"
    measured = rows.measured(column)
    if not measured.any():
        return
    bits = rows[column].copy()
    as_text, as_object = (measured & ((bits & bit) > 0) for bit in (AS_TEXT, AS_OBJECT))
    # Of the two forms, only the rarer one is reported.
    if not as_object.any() or as_text.sum() > as_object.sum():
        bits &= ~AS_TEXT
    if not as_text.any() or as_text.sum() <= as_object.sum():
        bits &= ~AS_OBJECT
    for bit, (kind, what, why, fix) in _WRONG.items():
        mask = measured & ((bits & bit) > 0)
        if not mask.any():
            continue
        count = int(mask.sum())
        names = sorted({repr(str(name)) for name in rows[f":{case.name}:called"][mask] if name})
        which = f": {first_few(names, _SHOWN)}" if names else ""
        verb = (
            what if count > 1 else what.replace("have ", "has ", 1).replace("call a", "calls a", 1)
        )
        yield Failure(
            mask,
            f"{pluralize(count)} {verb}{which}.",
            cause=Cause(why, kind, explains=count) if why else None,
            severity=Severity.WARNING if bit & _WARNINGS else None,
            fix=fix,
            kind=kind,
        )
