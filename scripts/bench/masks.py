"""The masks of `datacheck.masks` against those of the trainers themselves, token for token.

    python scripts/bench/masks.py [--chats 1000] [--seed 0] [--trainers trl axolotl llamafactory]
        [--templates DIR]

Each trainer that can be imported makes tokens and labels of the same random chats as
`datacheck.masks`: TRL (``SFTTrainer._prepare_dataset``), axolotl (``ChatTemplateStrategy``),
LLaMA-Factory (``SupervisedDatasetProcessor``). TRL ships the chat templates; axolotl and
LLaMA-Factory may be clones whose ``src`` is on PYTHONPATH. The tokenizer is that of the minimind
test data with the special tokens of the template. Ends with 1 where a token or a label differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.masks import Conversation, MaskSettings, UnjudgedError, masked_chats
from datacheck.masks.llamafactory import TEMPLATES
from datacheck.testing.minimind import write_tokenizer
from datacheck.tokenization import Tokenizer

SPECIAL = re.compile(
    r"<[|\uff5c][^<>'\"{}\s]{1,40}[|\uff5c]>|</?s>|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS)\]"
    r"|<(?:start|end)_of_turn>|<(?:bos|eos)>|\[gMASK\]|<sop>"
)
ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</s>", "<|eot|>", "<turn|>")
PIECES = (
    "What is a voxel?", " a leading space", "trailing space ", "two\n\nlines", "Stra\u00dfe \u4e16\u754c",
    "\U0001f680\U0001f468\u200d\U0001f469\u200d\U0001f467", "x = {'a': [1, 2]}", "<b>&amp;</b>", "Yes.", "\ttab",
    "[[dummy_message]]", "e\u0301", "<think>\nHm.\n</think>\n\nSo it is.", "12345 67890", "it's", "a" * 40,
)  # fmt: skip
REFUSED: list[str] = []  # reasons of the trainer under test
Chat = list[dict[str, Any]]
Labelled = tuple[list[int], list[bool]] | None


def chats(count: int, seed: int) -> list[Chat]:
    """Return random chats of questions and answers, some after a system prompt."""
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choices(PIECES, k=chance.randint(1, 4)))

    made = []
    for _ in range(count):
        chat = [{"role": "system", "content": text()}] if chance.random() < 0.4 else []
        for _ in range(chance.randint(1, 4)):
            chat += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        made.append(chat)
    return made


def tokenizer_of(template: str, folder: Path) -> Path:
    """Write a tokenizer with a chat template and its special tokens; return its folder."""
    write_tokenizer(folder)
    document = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    known = {token["content"] for token in document["added_tokens"]}
    names = sorted(set(SPECIAL.findall(template)) - known)
    first = (
        max(
            [token["id"] for token in document["added_tokens"]]
            + [*document["model"]["vocab"].values()]
        )
        + 1
    )
    for number, name in enumerate(names):
        document["added_tokens"].append(
            document["added_tokens"][0] | {"id": first + number, "content": name}
        )
    ends = [end for end in ENDS if end in template]
    config |= {"chat_template": template, "eos_token": ends[0] if ends else "<|im_end|>"}
    config["bos_token"] = "<|endoftext|>"
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def ours(folder: Path, samples: Sequence[Conversation], **settings: Any) -> list[Labelled | str]:
    """Return ids and mask of each chat, None where it is not judged, "" where it is refused."""
    made: list[Labelled | str] = []
    for chat in masked_chats(Tokenizer(folder), samples, MaskSettings(**settings)):
        if isinstance(chat, UnjudgedError):
            made.append(None)
        elif isinstance(chat, ValueError):
            made.append("")
        else:
            made.append((chat.ids[chat.kept].tolist(), chat.trained[chat.kept].tolist()))
    return made


def labelled(example: dict[str, Any]) -> Labelled:
    """Return ids and mask of a trainer's example."""
    return list(example["input_ids"]), [label != -100 for label in example["labels"]]


def trl(
    folder: Path, samples: Sequence[Conversation], settings: dict[str, Any]
) -> list[Labelled | str]:
    """Return ids and mask as TRL makes them."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    pairs = any(sample.prompt for sample in samples)
    trainer = SimpleNamespace(
        chat_template=None, completion_only_loss=pairs, _tokenizer=tokenizer, _is_vlm=False
    )

    def made(part: Sequence[Conversation], args: SFTConfig) -> list[Labelled | str]:
        rows: dict[str, Any] = {"messages": [list(sample.messages) for sample in part]}
        if pairs:
            rows = {
                "prompt": [list(sample.prompt) for sample in part],
                "completion": [list(sample.messages) for sample in part],
            }
        try:
            data = SFTTrainer._prepare_dataset(  # noqa: SLF001 - its labels have no other door
                trainer,
                Dataset.from_dict(rows),
                tokenizer,
                args,
                packing=False,
                formatting_func=None,
                dataset_name="x",
            )
        except Exception as error:  # noqa: BLE001 - templates raise anything
            if len(part) == 1:
                REFUSED.append(str(error))
                return [""]
        else:
            if len(data) == len(part):  # rows without a trained token are dropped
                return [labelled(row) for row in data]
            if len(part) == 1:
                return [""]
        half = len(part) // 2
        return made(part[:half], args) + made(part[half:], args)

    with tempfile.TemporaryDirectory() as output:
        args = SFTConfig(
            output_dir=output, max_length=settings.get("max_length"), use_cpu=True, bf16=False,
            assistant_only_loss=settings.get("assistant_only_loss", False),
        )  # fmt: skip
        return made(samples, args)


def axolotl(
    folder: Path, samples: Sequence[Conversation], settings: dict[str, Any]
) -> list[Labelled | str]:
    """Return ids and mask as axolotl makes them."""
    from axolotl.prompt_strategies.chat_template import ChatTemplatePrompter, ChatTemplateStrategy
    from transformers import AutoTokenizer

    del settings
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    strategy = ChatTemplateStrategy(
        ChatTemplatePrompter(tokenizer, tokenizer.chat_template),
        tokenizer, train_on_inputs=False, sequence_len=1 << 20,
        roles_to_train=["assistant"], train_on_eos="turn",
    )  # fmt: skip
    made: list[Labelled | str] = []
    for sample in samples:
        try:
            made.append(labelled(strategy.tokenize_prompt({"messages": list(sample.messages)})))
        except Exception:  # noqa: BLE001 - templates raise anything
            made.append("")
    return made


def llamafactory(
    folder: Path, samples: Sequence[Conversation], settings: dict[str, Any]
) -> list[Labelled | str]:
    """Return ids and mask as LLaMA-Factory makes them."""
    from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
    from llamafactory.data.template import get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    args = DataArguments(
        template=settings.get("template"), cutoff_len=settings.get("max_length") or 1 << 30
    )
    try:
        template = get_template_and_fix_tokenizer(tokenizer, args)
    except Exception:  # noqa: BLE001 - templates raise anything
        return [""] * len(samples)
    processor = SupervisedDatasetProcessor(template, tokenizer, None, args)
    made: list[Labelled | str] = []
    for sample in samples:
        turns = list(sample.messages)
        system = turns.pop(0)["content"] if turns[0]["role"] == "system" else None
        ids, labels = processor._encode_data_example(  # noqa: SLF001
            turns[:-1], turns[-1:], system, None, [], [], []
        )
        made.append(labelled({"input_ids": ids, "labels": labels}))
    return made


THEIRS = (trl, axolotl, llamafactory)


def compare(
    name: str,
    theirs: Callable[..., list[Labelled | str]],
    folder: Path,
    samples: Sequence[Conversation],
    **settings: Any,
) -> int:
    """Print how many chats agree; return how many differ."""
    began = time.perf_counter()
    expected = theirs(folder, samples, settings)
    between = time.perf_counter()
    try:
        found = ours(folder, samples, trainer=theirs.__name__, **settings)
    except UsageError as error:
        refused = all(one == "" for one in expected)
        print(f"{name:58} {'both refuse' if refused else 'NOT JUDGED'}: {str(error)[:60]}")
        return 0 if refused else len(samples)
    ended = time.perf_counter()
    # TRL ends at a chat without a trained token, or drops it
    found, expected = (
        ["" if one and not any(one[1]) else one for one in results] for results in (found, expected)
    )
    equal = sum(one == other for one, other in zip(found, expected, strict=True))
    unjudged = sum(one is None for one in found)
    refused = sum(one == "" for one in expected)
    wrong = len(samples) - equal - unjudged
    tokens = sum(len(one[0]) for one in found if one)
    print(
        f"{name:58} {equal:6} equal ({refused} refused) {unjudged:5} unjudged {wrong:5} different  "
        f"{tokens / max(ended - between, 1e-9):9,.0f} tokens/s, x{(between - began) / max(ended - between, 1e-9):.1f}"
    )
    if wrong:
        number = next(
            i
            for i, (a, b) in enumerate(zip(found, expected, strict=True))
            if a != b and a is not None
        )
        print(f"    first: {json.dumps(samples[number].messages, ensure_ascii=False)[:200]}")
        print(f"    refused: {REFUSED[-1][:200]}" if REFUSED else "")
        print(f"    {difference(found[number], expected[number], folder)}")
    return wrong


def difference(one: Labelled | str, other: Labelled | str, folder: Path) -> str:
    """Return where two results part, with the text before that place."""
    if not (one and other):
        return f"ours {bool(one)}, theirs {bool(other)}"
    for kind, left, right in zip(("tokens", "labels"), one, other, strict=True):
        if left == right:
            continue
        both = zip(left, right, strict=False)
        place = next((i for i, (a, b) in enumerate(both) if a != b), min(len(left), len(right)))
        text = Tokenizer(folder).decode(np.array(one[0][max(0, place - 12) : place]))
        ends = f"{left[place : place + 5]} {right[place : place + 5]}"
        return f"{kind} part at {place} of {len(left)} and {len(right)}: {ends} after {text!r}"
    return ""


def jobs(files: Sequence[Path]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield (name, trainer, template, settings) of each comparison."""
    for file in files:
        # ours is rendered on a fixed day
        template = re.sub(r"strftime_now\([^)]*\)", '"26 Jul 2024"', file.read_text())
        marked = {"assistant_only_loss": True, "max_length": 200}
        if "generation" in template:
            yield f"trl assistant_only_loss {file.stem}", "trl", template, marked
        yield f"trl completion {file.stem}", "trl", template, {}
        yield f"axolotl {file.stem}", "axolotl", template, {}
        if "generation" not in template:
            yield f"llamafactory parsed {file.stem}", "llamafactory", template, {}
    for name in sorted(TEMPLATES.keys() - {"gemma3"}):  # that one needs a processor of pictures
        yield (
            f"llamafactory {name}",
            "llamafactory",
            "{{ messages }}",
            {"template": name, "max_length": 120},
        )


def main() -> int:
    """Compare every trainer that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trainers", nargs="+", default=[trainer.__name__ for trainer in THEIRS])
    parser.add_argument("--templates", type=Path, help="folder of .jinja files; TRL's by default")
    options = parser.parse_args()
    plain = [Conversation(chat) for chat in chats(options.chats, options.seed)]
    pairs = [Conversation(c.messages[-1:], c.messages[:-1]) for c in plain]
    place = options.templates
    if place is None and (spec := importlib.util.find_spec("trl")) is not None:
        place = Path(spec.submodule_search_locations[0]) / "chat_templates"
    files = sorted(place.glob("*.jinja")) if place else []
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, trainer, template, settings) in enumerate(jobs(files)):
            if trainer not in options.trainers:
                continue
            folder = tokenizer_of(template, Path(scratch) / str(number))
            theirs = next(function for function in THEIRS if function.__name__ == trainer)
            samples = pairs if name.startswith("trl completion") else plain
            wrong += compare(name, theirs, folder, samples, **settings)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
