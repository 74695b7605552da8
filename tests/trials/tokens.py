"""Text for language models: token ids, labels, chats, preferences, how text is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datacheck.testing.minimind import language, question, text
from tests.trials.base import Plant, Samples, Size, Trial, changed, edited, sample, some

_COUNT, _LONG, _VOCAB, _PAD, _END = 120, 64, 6400, 0, 2
_IDS = {"role": "tokens", "shape": [_LONG]}
_LABELLED = {
    "fields": {
        "ids": _IDS,
        "labels": {"role": "labels", "shape": [_LONG], "label_of": "ids", "shift": 0},
    },
    "tokenizer": {"vocab": _VOCAB},
    "rules": {"DC711": {"pad": _PAD}},
}
_CUT = {"fields": {"ids": {"role": "tokens", "shape": ["L"]}}, "tokenizer": {"max_length": 64}}
_CHAT = {
    "fields": {
        "chat": {
            "role": "chat",
            "speakers": ["system", "user", "assistant", "tool"],
            "train_on": "assistant",
        }
    }
}
_PAIR = {
    "fields": {
        "chosen": {"role": "chat", "preferred_over": "rejected"},
        "rejected": {"role": "chat"},
    }
}
_CUT_PAIR = _PAIR | {"tokenizer": {"path": "model", "max_length": 128}}
_TEMPLATED = _CHAT | {"tokenizer": {"path": "model-without-system"}}
_TOOL_CHAT = {"fields": {"chat": {"role": "chat", "tools": "tools"}, "tools": {"dtype": "json"}}}
_PICTURED = {"fields": {"chat": {"role": "chat", "images": "images"}, "images": {"dtype": "json"}}}
_TEXT = {"fields": {"text": {"role": "text"}}}


def _key(number: int) -> str:
    return f"t{number:05d}"


def _arrays(rng: np.random.Generator) -> Samples:
    """Rows as minimind's loader makes them: bos, a prompt that is not learnt, an answer with eos, padding."""
    made = []
    for number in range(_COUNT):
        used, prompt = int(rng.integers(30, _LONG + 1)), int(rng.integers(4, 16))
        ids = np.full(_LONG, _PAD, np.int64)
        ids[:used] = rng.integers(3, _VOCAB, used)
        ids[0], ids[used - 1] = 1, _END
        labels = np.where(np.arange(_LONG) < prompt, -100, ids)
        labels[used:] = -100
        made.append(sample(_key(number), {"ids": ids, "labels": labels}))
    return made


def _streams(rng: np.random.Generator) -> Samples:
    """Files of ids without an end, as nanoGPT writes them."""
    return [
        sample(_key(i), {"ids": rng.integers(0, _VOCAB, 2000).astype(np.uint16)}) for i in range(20)
    ]


def _as_halves(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del rng
    return {"ids": fields["ids"].astype(f"<u{int(size) // 8}").view(np.uint16)}


def _stories(rng: np.random.Generator) -> Samples:
    """Texts of 100 to 2,000 characters, all of whose sentences are complete."""
    return [
        sample(_key(i), {"text": text(rng, "en", float(rng.uniform(100, 2000)))})
        for i in range(400)
    ]


def _cut_at_length(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    """Cut so large a share of the texts at one length."""
    del rng
    limit = int(np.quantile([len(piece.fields["text"]) for _, piece in samples], 1 - share))
    named = []
    for place, (split, piece) in enumerate(samples):
        if len(piece.fields["text"]) > limit:
            samples[place] = split, changed(piece, text=piece.fields["text"][:limit])
            named.append(piece.key)
    return named


def _ragged(rng: np.random.Generator) -> Samples:
    return [
        sample(
            _key(i), {"ids": rng.integers(3, _VOCAB, int(rng.integers(8, 64))).astype(np.uint16)}
        )
        for i in range(_COUNT)
    ]


def _chats(rng: np.random.Generator) -> Samples:
    return [sample(_key(i), {"chat": _chat(rng)}) for i in range(_COUNT)]


def _chat(rng: np.random.Generator) -> list[dict[str, str]]:
    name = language(rng)
    said = (
        [{"role": "system", "content": "You are a helpful assistant."}]
        if rng.uniform() < 0.3
        else []
    )
    for _ in range(int(rng.integers(1, 4))):
        said.append({"role": "user", "content": question(rng, name)})
        said.append({"role": "assistant", "content": text(rng, name, float(rng.uniform(20, 160)))})
    return said


def _pairs(rng: np.random.Generator) -> Samples:
    made = []
    for number in range(_COUNT):
        chat = _chat(rng)
        other = [*chat[:-1], {"role": "assistant", "content": text(rng, language(rng), 60.0)}]
        made.append(sample(_key(number), {"chosen": chat, "rejected": other}))
    return made


def _short_pairs(rng: np.random.Generator) -> Samples:
    """Pairs whose answers differ in their first word."""
    made = []
    for number in range(_COUNT):
        asked = {"role": "user", "content": question(rng, language(rng))[:40]}
        first, second = (
            [asked, {"role": "assistant", "content": f"{word} {text(rng, language(rng), 60.0)}"}]
            for word in ("Yes:", "No:")
        )
        made.append(sample(_key(number), {"chosen": first, "rejected": second}))
    return made


def _late(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    """Answers that differ in their last word alone, `size` letters behind the first."""
    asked = fields["chosen"][0]
    same = "".join(rng.choice(list("abcdefgh "), int(size)))
    return {
        name: [asked, {"role": "assistant", "content": f"{same} {word}"}]
        for name, word in (("chosen", "yes"), ("rejected", "no"))
    }


def _questions(rng: np.random.Generator) -> Samples:
    """Chats without a message of the system."""
    made = []
    for number in range(_COUNT):
        chat = [turn for turn in _chat(rng) if turn["role"] != "system"]
        made.append(sample(_key(number), {"chat": chat}))
    return made


def _pictured(rng: np.random.Generator) -> Samples:
    """Chats about one to three pictures."""
    made = []
    for number in range(_COUNT):
        chat, count = _chat(rng), int(rng.integers(1, 4))
        at = next(i for i, turn in enumerate(chat) if turn["role"] == "user")
        chat[at] = chat[at] | {"content": "<image>" * count + chat[at]["content"]}
        images = [f"{number}_{i}.jpg" for i in range(count)]
        made.append(sample(_key(number), {"chat": chat, "images": images}))
    return made


def _miscounted(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del rng
    images = fields["images"]
    return {"images": images[:-1] if size < 0 else [*images, "another.jpg"]}


def _instructed(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del size, rng
    system = {"role": "system", "content": "Answer in one sentence, and never in verse."}
    return {"chat": [system, *fields["chat"]]}


def _texts(rng: np.random.Generator) -> Samples:
    return [
        sample(_key(i), {"text": text(rng, language(rng), float(rng.uniform(100, 900)))})
        for i in range(_COUNT)
    ]


def _each(
    change: Callable[[dict[str, Any], float, np.random.Generator], dict[str, Any]],
    share: float = 0.05,
) -> Plant:
    return edited(
        share, lambda piece, size, rng: changed(piece, **change(dict(piece.fields), size, rng)), 3
    )


def _foreign(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    ids = fields["ids"].copy()
    ids[int(rng.integers(1, 20))] = int(size)
    return {"ids": ids, "labels": np.where(fields["labels"] == -100, -100, ids)}


def _shifted(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del rng
    lag = int(size)
    return {"labels": np.concatenate([fields["labels"][lag:], np.full(lag, -100)])}


def _padded(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Learn from the padding of samples that have some."""
    free = [
        i
        for i, (_, piece) in enumerate(samples)
        if int((piece.fields["ids"] == _PAD).sum()) >= size
    ]
    places = sorted(int(i) for i in rng.choice(free, 5, replace=False))
    for place in places:
        split, piece = samples[place]
        labels = piece.fields["labels"].copy()
        first = int(np.flatnonzero(piece.fields["ids"] == _PAD)[0])
        labels[first : first + int(size)] = _PAD
        samples[place] = split, changed(piece, labels=labels)
    return [samples[place][1].key for place in places]


def _long(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, size, rng)
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, ids=rng.integers(3, _VOCAB, 200).astype(np.uint16))
    return [samples[place][1].key for place in places]


def _answer(content: str) -> Callable[[dict[str, Any], float, np.random.Generator], dict[str, Any]]:
    def change(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
        del size, rng
        return {"chat": [*fields["chat"][:-1], {"role": "assistant", "content": content}]}

    return change


def _disordered(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del rng
    chat = fields["chat"]
    broken = {
        1.0: [{**chat[0], "role": "usr"}, *chat[1:], *chat[-2:]],
        2.0: [chat[-1], *chat],
        3.0: [*chat, {"role": "tool", "content": "21 degrees"}, chat[-1]],
        4.0: [{"role": "system", "content": "Use tools.", "tools": "[{'name': 'weather'}]"}, *chat],
        5.0: [*chat, {"role": "user", "content": "And then?"}],
    }
    return {"chat": broken[size]}


def _equal(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del rng
    if size == 1.0:
        return {"rejected": fields["chosen"]}
    return {"rejected": [{"role": "user", "content": "Another question."}, fields["rejected"][-1]]}


_WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


def _calls(rng: np.random.Generator) -> Samples:
    made = []
    for number in range(_COUNT):
        arguments = json.dumps({"city": language(rng), "days": int(rng.integers(1, 9))})
        chat = _chat(rng)
        chat[-1:-1] = _called(arguments)
        made.append(sample(_key(number), {"chat": chat, "tools": _TOOLS}))
    return made


_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": _WEATHER}}]


def _called(arguments: Any, name: str = "weather", reply: str = "c0") -> list[dict[str, Any]]:
    call = {"id": "c0", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": reply, "content": "21 degrees"},
    ]


_CALL_FAULTS = (
    "broken",
    "twice",
    "no-object",
    "reply",
    "unknown",
    "missing",
    "type",
    "filled",
    "form",
)


def _miscalled(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    del rng
    chat, right = fields["chat"], '{"city": "Oslo"}'
    called = {
        "broken": _called(right[:-2]),
        "twice": _called(json.dumps(right)),
        "no-object": _called('["Oslo"]'),
        "reply": _called(right, reply="c1"),
        "unknown": _called(right, name="forecast"),
        "missing": _called('{"days": 2}'),
        "type": _called('{"city": "Oslo", "days": "2"}'),
        "filled": _called('{"city": "Oslo", "symbol": null}'),
        "form": _called({"city": "Oslo"}),
    }
    return {"chat": [*chat[:-3], *called[_CALL_FAULTS[int(size)]], chat[-1]]}


_ODD = ("\ufffd", "\u00e2\u20ac\u2122", "\u00e4\u00b8\u00ad\u00e6\u0096\u0087", "\x00")


def _broken(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    said = fields["text"]
    at = int(rng.integers(1, len(said)))
    return {"text": said[:at] + _ODD[int(size)] * (1 + len(said) // 400) + said[at:]}


def _leaked(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    said, marker = fields["text"], ("<|im_end|>", "<|endoftext|>", "<think>")[int(size)]
    at = int(rng.integers(1, len(said)))
    return {"text": said[:at] + marker + said[at:]}


def _repeated(fields: dict[str, Any], size: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"text": fields["text"] + text(rng, language(rng), 40.0) * int(size)}


_ALL = _each(_shifted, share=1.0)
(
    IDS_ABOVE,
    IDS_BELOW,
    HALVES,
    CUT_AT_ONE_LENGTH,
    TOO_LONG,
    SHIFTED,
    ALL_SHIFTED,
    PADDING_LEARNT,
    EMPTY_ANSWER,
    ANSWER_NONE,
    OUT_OF_ORDER,
    NOTHING_PREFERRED,
    EQUAL_ONCE_CUT,
    MESSAGE_LEFT_OUT,
    MISCOUNTED,
    WRONG_CALL,
    WRONG_ENCODING,
    MARKER_IN_TEXT,
    LOOP,
) = (
    Trial(
        "ids-above",
        "DC704",
        _LABELLED,
        _arrays,
        _each(_foreign),
        (Size("6400", 6400), Size("65535", 65535)),
    ),
    Trial("ids-below", "DC704", _LABELLED, _arrays, _each(_foreign), (Size("-1", -1),)),
    Trial(
        "ids-of-twice-the-width",
        "DC704",
        {"fields": {"ids": {"role": "tokens", "shape": ["N"]}}, "tokenizer": {"vocab": _VOCAB}},
        _streams,
        _each(_as_halves),
        (Size("32 bits as 16", 32),),
        "halves",
    ),
    Trial(
        "cut-at-one-length",
        "DC718",
        _TEXT,
        _stories,
        _cut_at_length,
        (Size("5 %", 0.05), Size("a third", 0.33), Size("three quarters", 0.75)),
        "cut",
    ),
    Trial(
        "too-long", "DC703", _CUT, _ragged, _long, (Size("10 %", 0.1), Size("50 %", 0.5)), "samples"
    ),
    Trial(
        "labels-shifted",
        "DC710",
        _LABELLED,
        _arrays,
        _each(_shifted),
        (Size("by 1", 1), Size("by 2", 2)),
        cause=lambda size: f"lag {int(size)}",
    ),
    Trial(
        "all-labels-shifted",
        "DC710",
        _LABELLED,
        _arrays,
        _ALL,
        (Size("by 1", 1), Size("by 2", 2)),
        cause=lambda size: f"lag {int(size)}",
    ),
    Trial(
        "padding-learnt",
        "DC711",
        _LABELLED,
        _arrays,
        _padded,
        (Size("1 pad", 1, documented=False), Size("2 pads", 2), Size("12 pads", 12)),
        "padding",
    ),
    Trial(
        "empty-answer",
        "DC705",
        _CHAT,
        _chats,
        _each(_answer(" \n")),
        (Size("white space", 1),),
        "empty",
    ),
    Trial(
        "answer-none", "DC705", _CHAT, _chats, _each(_answer("None")), (Size("None", 1),), "none"
    ),
    Trial(
        "turns-out-of-order",
        "DC706",
        _CHAT,
        _chats,
        _each(_disordered),
        (
            Size("unknown speaker", 1),
            Size("answer first", 2),
            Size("tool without call", 3),
            Size("tools no JSON", 4),
            Size("no last answer", 5),
        ),
        cause=lambda size: ("unknown", "no-user", "no-call", "tools", "last")[int(size) - 1],
        also=frozenset({"DC707"}),
    ),
    Trial(
        "nothing-preferred",
        "DC712",
        _PAIR,
        _pairs,
        _each(_equal),
        (Size("equal", 1), Size("other prompt", 2)),
        cause=lambda size: ("same", "prompts")[int(size) - 1],
    ),
    Trial(
        "equal-once-cut",
        "DC712",
        _CUT_PAIR,
        _short_pairs,
        _each(_late),
        (Size("600 letters", 600),),
        "cut",
        also=frozenset({"DC703"}),
    ),
    Trial(
        "message-left-out",
        "DC715",
        _TEMPLATED,
        _questions,
        _each(_instructed),
        (Size("system", 1),),
    ),
    Trial(
        "other-number-of-pictures",
        "DC716",
        _PICTURED,
        _pictured,
        _each(_miscounted),
        (Size("one too few", -1), Size("one too many", 1)),
    ),
    Trial(
        "wrong-call",
        "DC713",
        _TOOL_CHAT,
        _calls,
        _each(_miscalled),
        tuple(Size(kind, number) for number, kind in enumerate(_CALL_FAULTS)),
        cause=lambda size: _CALL_FAULTS[int(size)],
    ),
    Trial(
        "wrong-encoding",
        "DC708",
        _TEXT,
        _texts,
        _each(_broken),
        (Size("U+FFFD", 0), Size("as Windows-1252", 1), Size("as Latin-1", 2), Size("NUL", 3)),
        cause=lambda size: ("replacement", "mojibake", "mojibake", "control")[int(size)],
    ),
    Trial(
        "marker-in-text",
        "DC709",
        _TEXT,
        _texts,
        _each(_leaked),
        (Size("im_end", 0), Size("eos", 1), Size("think", 2)),
    ),
    Trial(
        "loop",
        "DC707",
        _TEXT,
        _texts,
        _each(_repeated),
        (Size("3 times", 3, documented=False), Size("60 times", 60)),
    ),
)
