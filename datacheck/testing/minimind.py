"""minimind text data: pre-training texts, chats, preference pairs, a tokenizer; and their faults.

Sentences in four languages are built from short word lists: plausible lengths and scripts, no
meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.testing.draw import generator, lognormal
from datacheck.testing.fault import Fault, Planted, Site

_ENGLISH = (
    (
        "the old robot",
        "a small cup",
        "the camera",
        "every student",
        "our model",
        "the north river",
        "a quiet engineer",
    ),
    (
        "moves",
        "measures",
        "describes",
        "learns from",
        "compares",
        "returns to",
        "explains",
        "counts",
    ),
    (
        "the red box",
        "many short examples",
        "three careful plans",
        "the table",
        "a long report",
        "the next valley",
    ),
    (
        "before noon",
        "with great care",
        "in the second room",
        "without any help",
        "again and again",
        "every winter",
    ),
)
_CHINESE = (
    ("这位老师", "小机器人", "我们的模型", "图书馆里的学生", "北方的河流", "一只白猫", "这台相机"),
    ("仔细地观察", "慢慢地学习", "清楚地说明", "反复地比较", "认真地记录", "安静地等待"),
    (
        "桌上的红色盒子",
        "许多简短的例子",
        "窗外的雨声",
        "新的数据集",
        "远处的山谷",
        "昨天的实验结果",
    ),
    (
        "在午饭之前",
        "在第二个房间里",
        "没有任何帮助",
        "每个冬天",
        "为了下一次旅行",
        "用很简单的方法",
    ),
)
_SPANISH = (
    ("el niño", "la cámara", "nuestro modelo", "una vieja máquina", "el río"),
    ("mueve", "compara", "describe", "aprende de", "vuelve a"),
    ("la caja roja", "muchos ejemplos", "el próximo valle", "un largo informe"),
    ("antes del mediodía", "con cuidado", "cada invierno", "sin ayuda"),
)
_JAPANESE = (
    ("古いロボットは", "学生たちは", "新しいモデルは", "静かな技師は"),
    ("机の上の箱を", "短い例を", "北の川を", "長い報告書を"),
    ("もう一度", "ゆっくりと", "丁寧に", "毎年の冬に"),
    ("測ります", "比べます", "説明します", "覚えます"),
)
LANGUAGES = {  # parts of a sentence, separator, ending, share of the texts
    "zh": (_CHINESE, "", "。", 0.55),
    "en": (_ENGLISH, " ", ". ", 0.30),
    "es": (_SPANISH, " ", ". ", 0.08),
    "ja": (_JAPANESE, "", "。", 0.07),
}
_ASK = {
    "zh": ("请解释", "为什么", "请总结", "怎样理解"),
    "en": ("Explain why", "Summarise how", "Tell me when", "Why is it that"),
    "es": ("Explica por qué", "Resume cómo"),
    "ja": ("説明してください:", "まとめてください:"),
}


def language(rng: np.random.Generator) -> str:
    """Draw the language of a text."""
    names = list(LANGUAGES)
    return names[int(rng.choice(len(names), p=[LANGUAGES[n][3] for n in names]))]


def sentence(rng: np.random.Generator, name: str) -> str:
    """Return one sentence; about one in three contains a number."""
    parts, joint, end, _ = LANGUAGES[name]
    words = [part[int(rng.integers(len(part)))] for part in parts]
    if rng.uniform() < 0.35:
        words.insert(2, str(int(rng.integers(2, 9999))))
    text = joint.join(words)
    return text[0].upper() + text[1:] + end


def text(rng: np.random.Generator, name: str, characters: float) -> str:
    """Return sentences of about `characters` characters, at least one sentence."""
    out = sentence(rng, name)
    while len(out) < characters:
        out += sentence(rng, name)
    return out.strip()


def question(rng: np.random.Generator, name: str) -> str:
    """Return a short request."""
    ask = _ASK[name][int(rng.integers(len(_ASK[name])))]
    _, joint, end, _ = LANGUAGES[name]
    body = sentence(rng, name).strip().removesuffix(end.strip())
    return ask + joint + body + ("\uff1f" if joint == "" else "?")


def phrases() -> list[str]:
    """Return the words of the texts in a fixed order; a tokenizer learns its merges from them."""
    words: list[str] = []
    for name, (parts, joint, _, _) in LANGUAGES.items():
        for phrase in [p for part in parts for p in part] + list(_ASK[name]):
            words += (
                [" " + w for w in phrase.split()]
                if joint
                else [phrase[i : i + 2] for i in range(0, len(phrase), 2)]
            )
    return list(dict.fromkeys(words))


PRETRAIN = "pretrain_t2t_mini.jsonl"
SFT = "sft_t2t_mini.jsonl"
DPO = "dpo.jsonl"
MODEL = "model"
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    *(f"<|buffer{i}|>" for i in range(1, 28)),
)
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_SYSTEM = (
    "You are a helpful assistant.",
    "你是一个知识渊博的助手。",
    "Answer briefly and politely.",
)


@dataclass(frozen=True)
class MinimindSize:
    """Size of the dataset.

    Args:
        pretrain, sft, dpo: lines per file.
        characters: median characters of a pre-training text; `answer`: of an assistant turn.
        turns: mean number of exchanges of a conversation after the first.
    """

    pretrain: int = 400
    sft: int = 300
    dpo: int = 80
    characters: float = 220.0
    answer: float = 90.0
    turns: float = 1.1


REAL = MinimindSize(
    pretrain=1_374_285, sft=1_149_770, dpo=17_000, characters=400.0, answer=119.0, turns=1.1
)


def write(folder: Path, seed: int, size: MinimindSize) -> None:
    """Write a clean dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / PRETRAIN, seed, size.pretrain, lambda rng: pretrain(rng, size))
    _write_lines(folder / SFT, seed, size.sft, lambda rng: {"conversations": chat(rng, size)})
    _write_lines(folder / DPO, seed, size.dpo, lambda rng: preference(rng, size))
    write_tokenizer(folder / MODEL)


def _write_lines(path: Path, seed: int, count: int, make: Any) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for number in range(count):
            record = make(generator(seed, path.name, number))
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def pretrain(rng: np.random.Generator, size: MinimindSize) -> dict[str, Any]:
    """Return one pre-training record."""
    characters = lognormal(rng, size.characters, 0.45, 90, 2_000)
    return {"text": text(rng, language(rng), characters)}


def chat(rng: np.random.Generator, size: MinimindSize) -> list[dict[str, str]]:
    """Return one conversation: sometimes a system prompt, then user and assistant in turn."""
    name = language(rng)
    messages = (
        [{"role": "system", "content": _SYSTEM[int(rng.integers(3))]}]
        if rng.uniform() < 0.3
        else []
    )
    for _ in range(1 + min(3, int(rng.poisson(size.turns)))):
        answer = text(rng, name, lognormal(rng, size.answer, 0.4, 25, 260))
        messages += [
            {"role": "user", "content": question(rng, name)},
            {"role": "assistant", "content": answer},
        ]
    return messages


def preference(rng: np.random.Generator, size: MinimindSize) -> dict[str, Any]:
    """Return one pair: the same question, a better and a worse answer."""
    name = language(rng)
    ask = {"role": "user", "content": question(rng, name)}
    return {
        kind: [
            ask,
            {
                "role": "assistant",
                "content": text(rng, name, lognormal(rng, size.answer, 0.4, 25, 260)),
            },
        ]
        for kind in ("chosen", "rejected")
    }


def write_tokenizer(folder: Path) -> None:
    """Write a byte-level BPE tokenizer.

    Special tokens come first, as in the released one, then bytes, then merges.
    """
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = _byte_characters()
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    merges: list[tuple[str, str]] = []
    for word in ["assistant", "user", "system", *phrases()]:
        characters = [[alphabet[b] for b in c.encode()] for c in word]
        for symbols in characters:
            _merge(symbols, vocabulary, merges)
        _merge(["".join(symbols) for symbols in characters], vocabulary, merges)
    plain = {
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
        "type": "ByteLevel",
    }
    added = [
        {"id": i, "content": token, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for i, token in enumerate(SPECIAL)
    ]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": plain,
        "post_processor": None,
        "decoder": plain,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    }
    config = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "model_max_length": 32768,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": TEMPLATE,
    }
    for name, value in (("tokenizer.json", document), ("tokenizer_config.json", config)):
        (folder / name).write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )


def _merge(symbols: list[str], vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
    """Add the merges that join `symbols` from the left, up to a vocabulary of 6,400 tokens."""
    whole = symbols[0]
    for symbol in symbols[1:]:
        pair = (whole, symbol)
        joined = whole + symbol
        if joined not in vocabulary:
            if len(vocabulary) >= 6400:
                return
            vocabulary[joined] = len(vocabulary)
            merges.append(pair)
        whole = joined


def _byte_characters() -> list[str]:
    """Return the printable stand-ins of the 256 bytes in byte order (GPT-2's byte alphabet)."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    out = []
    spare = 256
    for byte in range(256):
        if byte in visible:
            out.append(chr(byte))
        else:
            out.append(chr(spare))
            spare += 1
    return out


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
