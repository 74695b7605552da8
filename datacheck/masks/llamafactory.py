"""The mask of LLaMA-Factory: each answer, as the slots of its templates write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from datacheck.errors import UsageError
from datacheck.masks.base import (
    Array,
    Conversation,
    MaskedChat,
    MaskSettings,
    Message,
    UnjudgedError,
    ending,
    openai_messages,
)
from datacheck.tokenization import TemplateCosts, Tokenizer

BOS, EOS = "bos_token", "eos_token"
_ROLES = {"human": "user", "gpt": "assistant", "function_call": "function", "tool": "observation"}
_CONTENT = "{{content}}"
_NO_TEXT = "a message is not text; LLaMA-Factory puts the parts of such a message together itself"
_PLACEHOLDER = re.compile(r"\{\{[a-zA-Z_][a-zA-Z0-9_]*\}\}")
_THOUGHT = ("<think>\n", "\n</think>\n\n")


@dataclass(frozen=True)
class Slots:
    """A template: the texts around system prompt, question and answer.

    Args:
        user, assistant, system: texts with ``{{content}}``; `BOS` and `EOS` stand for the token.
        prefix: before everything.
        default_system: the system prompt of chats without one.
        stop: tokens that end an answer; the first becomes the end token where `replace_eos` is set.
        fused: the system prompt is written into the first question.
        reasoning: an answer without a thought begins with an empty one.
    """

    user: Sequence[str] = (_CONTENT,)
    assistant: Sequence[str] = (_CONTENT, EOS)
    system: Sequence[str] = (_CONTENT,)
    prefix: Sequence[str] = ()
    default_system: str = ""
    stop: Sequence[str] = ()
    replace_eos: bool = False
    fused: bool = False
    reasoning: bool = False


_CHATML = Slots(
    user=("<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n",),
    assistant=("{{content}}<|im_end|>\n",),
    system=("<|im_start|>system\n{{content}}<|im_end|>\n",),
    stop=("<|im_end|>",),
    replace_eos=True,
)
_GEMMA = Slots(
    user=("<start_of_turn>user\n{{content}}<end_of_turn>\n<start_of_turn>model\n",),
    assistant=("{{content}}<end_of_turn>\n",),
    system=("{{content}}\n\n",),
    prefix=(BOS,),
    stop=("<end_of_turn>",),
    replace_eos=True,
    fused=True,
)
_DEEPSEEK = Slots(user=("<\uff5cUser\uff5c>{{content}}<\uff5cAssistant\uff5c>",), prefix=(BOS,))
TEMPLATES: Mapping[str, Slots] = {
    "alpaca": Slots(
        user=("### Instruction:\n{{content}}\n\n### Response:\n",),
        assistant=(_CONTENT, EOS, "\n\n"),
        default_system="Below is an instruction that describes a task. "
        "Write a response that appropriately completes the request.\n\n",
    ),
    "chatml": replace(_CHATML, stop=("<|im_end|>", "<|im_start|>")),
    "deepseek3": _DEEPSEEK,
    "deepseekr1": replace(_DEEPSEEK, reasoning=True),
    "default": Slots(
        user=("Human: {{content}}", EOS, "\nAssistant:"),
        assistant=(_CONTENT, EOS, "\n"),
        system=("System: {{content}}", EOS, "\n"),
    ),
    "gemma": _GEMMA,
    "gemma3": _GEMMA,
    "llama3": Slots(
        user=(
            "<|start_header_id|>user<|end_header_id|>\n\n{{content}}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        assistant=("{{content}}<|eot_id|>",),
        system=("<|start_header_id|>system<|end_header_id|>\n\n{{content}}<|eot_id|>",),
        prefix=(BOS,),
        stop=("<|eot_id|>", "<|eom_id|>"),
        replace_eos=True,
    ),
    "mistral": Slots(
        user=("[INST] {{content}}[/INST]",),
        assistant=(" {{content}}", EOS),
        system=("{{content}}\n\n",),
        prefix=(BOS,),
        fused=True,
    ),
    "phi4": Slots(
        user=("<|im_start|>user<|im_sep|>{{content}}<|im_end|><|im_start|>assistant<|im_sep|>",),
        assistant=("{{content}}<|im_end|>",),
        system=("<|im_start|>system<|im_sep|>{{content}}<|im_end|>",),
        stop=("<|im_end|>",),
        replace_eos=True,
    ),
    "qwen": replace(
        _CHATML,
        default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    ),
    "qwen3": replace(_CHATML, reasoning=True),
    "qwen3_nothink": _CHATML,
    "vicuna": Slots(
        user=("USER: {{content}} ASSISTANT:",),
        default_system="A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions.",
    ),
    "yi": replace(_CHATML, replace_eos=False),
}


def masked(
    tokenizer: Tokenizer, conversations: Iterable[Conversation], settings: MaskSettings
) -> Iterator[MaskedChat | ValueError]:
    """Yield the tokens of each conversation as ``stage: sft`` makes them from ``sharegpt`` data.

    Its defaults hold: ``mask_history`` and ``train_on_prompt`` off, ``enable_thinking`` on.

    Raises:
        UsageError: LLaMA-Factory can read no slots out of the tokenizer's template.

    Reference:
        LLaMA-Factory, ``SupervisedDatasetProcessor`` and ``Template``.
    """
    slots = parsed_slots(tokenizer) if settings.template is None else TEMPLATES[settings.template]
    special = _with_tokens(tokenizer, slots)
    for chat in conversations:
        try:
            yield _masked(special, chat, slots, settings.max_length)
        except ValueError as error:
            yield error


@lru_cache(maxsize=4)
def parsed_slots(tokenizer: Tokenizer) -> Slots:
    """Return the slots that LLaMA-Factory reads out of a chat template, if none is named.

    Raises:
        UsageError: the chat template refuses the chats that it is tried with.
    """
    costs = TemplateCosts()
    (ids,) = tokenizer.encode([""])
    prefix = tokenizer.decode(ids)

    def rendered(*messages: tuple[str, str], question: bool = False) -> str:
        chat = [{"role": role, "content": content} for role, content in messages]
        try:
            text = tokenizer.render(chat, costs=costs, generation_prompt=question).text
        except ValueError as error:
            msg = f"LLaMA-Factory can read no slots out of the chat template: {error}"
            raise UsageError(msg) from error
        return text[len(prefix) :]

    system = rendered(("system", _CONTENT))
    bare = rendered(("system", ""), ("user", _CONTENT), question=True)
    user = rendered(("user", _CONTENT), question=True)
    answer = rendered(("user", _CONTENT), ("assistant", _CONTENT))[len(user) :]
    reasoning = "<think>" in answer
    answer = answer.replace("<think>", "").replace("</think>", "").lstrip("\n")
    default = ""
    if len(user) > len(bare):
        default = _only_in_longer(bare, user)
        user = user[len(system.replace(_CONTENT, default, 1)) :]
    if not all(map(_PLACEHOLDER.search, (user, answer, system))) or _PLACEHOLDER.search(prefix):
        msg = (
            "LLaMA-Factory can read no slots out of the chat template, which writes other turns in "
            "other ways: name its template"
        )
        raise UsageError(msg)
    return Slots(
        (user,), (answer,), (system,), (prefix,) if prefix else (), default, reasoning=reasoning
    )


def _only_in_longer(short: str, long: str) -> str:
    """Return the characters of `long` that `short` lacks, both read from the left."""
    position, letters = 0, []
    for letter in long:
        if position == len(short):
            break
        if letter == short[position]:
            position += 1
        else:
            letters.append(letter)
    return "".join(letters)


@lru_cache(maxsize=4)
def _with_tokens(tokenizer: Tokenizer, slots: Slots) -> Tokenizer:
    """Return the tokenizer with the template's stop and end tokens, as LLaMA-Factory adds them."""
    eos = slots.stop[0] if slots.replace_eos else tokenizer.special.get(EOS, "<|endoftext|>")
    return tokenizer.with_special(slots.stop, eos)


@dataclass
class _Pieces:
    """Tokens and texts of one half of a turn, put together piece by piece."""

    tokenizer: Tokenizer
    ids: list[Array] = field(default_factory=list)
    places: list[Array] = field(default_factory=list)
    text: str = ""

    def add(self, slots: Iterable[str], content: str = "") -> None:
        """Append the slots of a template; each is tokenized on its own."""
        for slot in slots:
            if slot in {BOS, EOS}:
                token = self.tokenizer.id_of(slot)
                if token is None:
                    continue
                piece = self.tokenizer.special[slot]
                ids, places = np.array([token]), np.array([[0, len(piece)]])
            else:
                piece = slot.replace(_CONTENT, content, 1)
                ids, places = self.tokenizer.placed(piece)
            self.ids.append(ids)
            self.places.append(places + len(self.text))
            self.text += piece


def _masked(tokenizer: Tokenizer, chat: Conversation, slots: Slots, most: int | None) -> MaskedChat:
    messages = openai_messages([*chat.prompt, *chat.messages], _ROLES)
    system, turns = _aligned(messages)
    if chat.tools or any(turn["role"] in {"function", "observation"} for turn in turns):
        msg = "LLaMA-Factory formats tools and their calls itself, which datacheck does not imitate"
        raise UnjudgedError(msg)
    system = system or slots.default_system
    ids, places, trained, text = list[Array](), list[Array](), list[Array](), ""
    sizes = list[int]()
    for number, turn in enumerate(turns):
        half = _Pieces(tokenizer)
        content = turn["content"]
        if number == 0:
            half.add(slots.prefix)
            if system and slots.fused:
                content = slots.system[0].replace(_CONTENT, system, 1) + content
            elif system:
                half.add(slots.system, system)
        if number % 2 and slots.reasoning and not any(w.strip() in content for w in _THOUGHT):
            half.add(["".join(_THOUGHT)])
        half.add(slots.assistant if number % 2 else slots.user, content)
        ids += half.ids
        places += [part + len(text) for part in half.places]
        text += half.text
        sizes.append(sum(map(len, half.ids)))
        trained.append(np.full(sizes[-1], bool(number % 2)))
    joined, mask = np.concatenate(ids), np.concatenate(trained)
    kept = _kept(sizes, most)
    answered = [kept[first:stop] for first, stop in _halves(sizes) if mask[first : first + 1].all()]
    return MaskedChat(
        joined,
        mask,
        kept,
        text,
        first=sizes[0],
        closed=all(answer.all() or not answer.any() for answer in answered),
        ending=ending(tokenizer, joined, mask),
        eos=tokenizer.special.get(EOS, ""),
        places=np.concatenate(places),
    )


def _aligned(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the system prompt, and the turns after it, in pairs of question and answer.

    Raises:
        ValueError: LLaMA-Factory leaves the chat out.
    """
    system = ""
    if messages and messages[0]["role"] == "system":
        system, messages = messages[0].get("content", ""), messages[1:]
        if not isinstance(system, str):
            raise UnjudgedError(_NO_TEXT)
    accepted = ({"user", "observation"}, {"assistant", "function"})
    for number, message in enumerate(messages):
        if message["role"] not in accepted[number % 2]:
            msg = f"LLaMA-Factory leaves the chat out: turn {number + 1} is of {message['role']!r}"
            raise ValueError(msg)
        if not isinstance(message.get("content", ""), str):
            raise UnjudgedError(_NO_TEXT)
    if len(messages) % 2 or not messages:
        msg = (
            f"LLaMA-Factory leaves the chat out: its {len(messages)} turns are not pairs of question "
            f"and answer"
        )
        raise ValueError(msg)
    return system, [{"content": "", **message} for message in messages]


def _halves(sizes: Sequence[int]) -> list[tuple[int, int]]:
    stops = np.cumsum(sizes).tolist()
    return list(zip([0, *stops], stops, strict=False))


def _kept(sizes: Sequence[int], most: int | None) -> Array:
    """Return bool (tokens): left after ``cutoff_len``, which cuts questions and answers alike."""
    kept = np.ones(sum(sizes), bool)
    if most is None:
        return kept
    total = 0
    halves = _halves(sizes)
    for (begin, middle), (_, end) in zip(halves[::2], halves[1::2], strict=True):
        room = max(0, most - total)
        source, target = _lengths(middle - begin, end - middle, room) if room else (0, 0)
        kept[begin + source : middle] = False
        kept[middle + target : end] = False
        total += source + target
    return kept


def _lengths(source: int, target: int, room: int) -> tuple[int, int]:
    """Return the tokens of question and answer that fit into `room`."""
    if target * 2 < room:
        most = room
    elif source * 2 < room:
        most = room - source
    else:
        most = int(room * (target / (source + target)))
    target = min(most, target)
    return min(source, max(room - target, 0)), target
