"""Faults of lines of text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from datacheck.testing.faults.base import Fault, Planted, Site
from datacheck.testing.synth.minimind import DPO, PRETRAIN, SFT


def _lines(site: Site, name: str) -> list[bytes]:
    return (site.folder / name).read_bytes().splitlines(keepends=True)


def key(name: str, number: int) -> str:
    """Return the key of a line, counted from 0."""
    return f"{name}:{number:012d}"


def _pick(site: Site, name: str) -> int:
    chosen = site.pick([key(name, i) for i in range(len(_lines(site, name)))])[0]
    return int(chosen.rpartition(":")[2])


def _bytes(file: str, name: str, code: str, what: str, change: Callable[[bytes], bytes]) -> Fault:
    def plant(site: Site) -> list[Planted]:
        lines = _lines(site, file)
        number = _pick(site, file)
        lines[number] = change(lines[number])
        (site.folder / file).write_bytes(b"".join(lines))
        return [Planted((key(file, number),), code, what)]

    return Fault(name, "minimind", code, plant)


def _record(
    file: str, name: str, code: str, what: str, change: Callable[[dict[str, Any]], None]
) -> Fault:
    def rewrite(line: bytes) -> bytes:
        record = json.loads(line)
        change(record)
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"

    return _bytes(file, name, code, what, rewrite)


def _not_utf8(line: bytes) -> bytes:
    return line.replace(b'"content": "', b'"content": "\xff\xfe', 1)


def _no_answer(record: dict[str, Any]) -> None:
    record["conversations"] = [m for m in record["conversations"] if m["role"] != "assistant"]


def _long_prompt(record: dict[str, Any]) -> None:
    user = next(m for m in record["conversations"] if m["role"] == "user")
    user["content"] = " ".join(f"{i}: {user['content']}" for i in range(400))


def _null_text(record: dict[str, Any]) -> None:
    record["text"] = None


def _null_chat(record: dict[str, Any]) -> None:
    record["conversations"] = None


def _empty_answer(record: dict[str, Any]) -> None:
    next(m for m in reversed(record["conversations"]) if m["role"] == "assistant")["content"] = "\n"


def _strange_speaker(record: dict[str, Any]) -> None:
    next(m for m in record["conversations"] if m["role"] == "user")["role"] = "human"


def _tools_no_json(record: dict[str, Any]) -> None:
    record["conversations"].insert(
        0, {"role": "system", "content": "Use tools.", "tools": "[{'name': 'weather'}]"}
    )


def _no_call(record: dict[str, Any]) -> None:
    answer = {"role": "assistant", "content": "It is 21 degrees there."}
    record["conversations"] += [{"role": "tool", "content": "21 degrees"}, answer]


def _replaced(record: dict[str, Any]) -> None:
    record["text"] = (
        record["text"][:20] + "\ufffd" * (1 + len(record["text"]) // 400) + record["text"][20:]
    )


def _marker(record: dict[str, Any]) -> None:
    record["text"] = record["text"][:30] + "<|im_end|>" + record["text"][30:]


def _equal(record: dict[str, Any]) -> None:
    record["rejected"] = record["chosen"]


def _other_prompt(record: dict[str, Any]) -> None:
    record["rejected"] = [
        {"role": "user", "content": "Which river is the longest?"},
        *record["rejected"][1:],
    ]


def _duplicate(name: str) -> Callable[[Site], list[Planted]]:
    def plant(site: Site) -> list[Planted]:
        lines = _lines(site, name)
        number = _pick(site, name)
        (site.folder / name).write_bytes(b"".join([*lines, lines[number]]))
        copy = key(name, len(lines))
        site.taken.add(copy)
        return [Planted((copy,), "DC803", "a line stands in the file twice", (key(name, number),))]

    return plant


FAULTS = (
    _bytes(
        SFT, "bad-json", "DC701", "half of a line is missing", lambda b: b[: len(b) // 2] + b"\n"
    ),
    _bytes(SFT, "not-utf8", "DC701", "a line that is not UTF-8", _not_utf8),
    _record(SFT, "no-answer", "DC702", "a conversation without an answer", _no_answer),
    _record(SFT, "long-prompt", "DC702", "a prompt longer than the context", _long_prompt),
    _record(SFT, "no-conversation", "DC121", "conversations is null", _null_chat),
    Fault("duplicate-chat", "minimind", "DC803", _duplicate(SFT)),
    _bytes(
        PRETRAIN, "bad-json-pretrain", "DC701", "a line without its end", lambda b: b[:-3] + b"\n"
    ),
    _record(PRETRAIN, "null-text", "DC121", "text is null", _null_text),
    Fault("duplicate-text", "minimind", "DC803", _duplicate(PRETRAIN)),
    _record(SFT, "empty-answer", "DC705", "an answer of white space", _empty_answer),
    _record(SFT, "strange-speaker", "DC706", "a speaker called human", _strange_speaker),
    _record(SFT, "tools-no-json", "DC706", "tools in single quotes", _tools_no_json),
    _record(SFT, "tool-without-call", "DC706", "the reply of a tool that nobody called", _no_call),
    _record(
        PRETRAIN, "replacement-characters", "DC708", "bytes decoded with errors=replace", _replaced
    ),
    _record(PRETRAIN, "marker-in-text", "DC709", "a chat marker within a text", _marker),
    _record(DPO, "nothing-preferred", "DC712", "chosen is rejected", _equal),
    _record(
        DPO, "other-prompt", "DC712", "chosen and rejected answer two questions", _other_prompt
    ),
    _bytes(DPO, "bad-json-dpo", "DC701", "an empty object cut open", lambda b: b"{\n"),
)
