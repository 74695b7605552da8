"""Tokens and masks are those of the trainers: of transformers itself, or of expectations from their code."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.masks import Conversation, MaskSettings, UnjudgedError, masked_chats
from datacheck.masks.llamafactory import _lengths
from datacheck.testing.minimind import write_tokenizer
from datacheck.tokenization import Tokenizer

# ChatML as TRL's training templates write it: the answer and its end are generated.
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
UNSTOPPED = MARKED.replace(
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}",
    "{{ m.content }}{% endgeneration %}{{ '<|im_end|>\n' }}",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a function that writes a tokenizer with a template and other settings."""
    made = {}

    def folder(template=None, **config):
        key = json.dumps([template, config])
        if key not in made:
            made[key] = tmp_path_factory.mktemp("model")
            write_tokenizer(made[key])
            file = made[key] / "tokenizer_config.json"
            said = json.loads(file.read_text()) | config
            file.write_text(json.dumps(said | ({"chat_template": template} if template else {})))
        return made[key]

    return folder


def chat(*texts, system=""):
    turns = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)
    ]
    return [{"role": "system", "content": system}, *turns] if system else turns


def one(folder, messages, prompt=(), tools=None, **how):
    (made,) = masked_chats(
        Tokenizer(folder), [Conversation(messages, prompt, tools)], MaskSettings(**how)
    )
    if isinstance(made, ValueError):
        raise made
    return made


def learnt(folder, made):
    """Return the texts of the trained parts that are kept."""
    tokenizer, texts = Tokenizer(folder), []
    mask = made.trained & made.kept
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    for first, stop in edges.reshape(-1, 2).tolist():
        texts.append(tokenizer.decode(made.ids[first:stop]))
    return texts


TALK = chat("What is a voxel?", "A cube.", "And a pixel?", "A square.", system="Be brief.")

words = st.text(st.sampled_from("ab 世🚀é\n<>'\t"), max_size=12)
talks = st.lists(st.tuples(words, words), min_size=1, max_size=3)


@pytest.mark.parametrize("template", [MARKED, UNSTOPPED])
@given(talk=talks)
@settings(max_examples=60)
def test_generated_parts_are_those_of_transformers(model, template, talk):
    transformers = pytest.importorskip("transformers")
    folder, messages = model(template), chat(*[text for pair in talk for text in pair])
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    expected = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    made = one(folder, messages, trainer="trl", assistant_only_loss=True)
    assert made.ids.tolist() == expected["input_ids"]
    assert made.trained.astype(int).tolist() == expected["assistant_masks"]


def test_trl_trains_on_the_generated_parts_on_the_completion_or_on_all(model):
    folder = model(MARKED)
    marked = one(folder, TALK, trainer="trl", assistant_only_loss=True)
    assert learnt(folder, marked) == ["A cube.<|im_end|>", "A square.<|im_end|>"]
    assert (marked.ending, marked.foreign) == ("<|im_end|>", 0)
    completion = one(folder, TALK[-1:], TALK[:-1], trainer="trl")
    assert learnt(folder, completion) == ["A square.<|im_end|>\n"]
    everything = one(folder, TALK, trainer="trl")
    assert learnt(folder, everything) == [everything.text]
    others = [m["content"] for m in TALK if m["role"] != "assistant"]
    assert everything.foreign == sum(map(len, others))


def test_the_end_outside_of_the_generated_part_is_not_learnt(model):
    made = one(model(UNSTOPPED), TALK, trainer="trl", assistant_only_loss=True)
    assert learnt(model(UNSTOPPED), made) == ["A cube.", "A square."]
    assert made.ending == ""


def test_a_template_without_generated_parts_is_not_judged(model):
    with pytest.raises(UnjudgedError, match="generation"):
        one(model(), TALK, trainer="trl", assistant_only_loss=True)


def test_a_prompt_that_is_written_otherwise_alone_shifts_the_mask(model):
    """The prompt alone ends in <think>, the whole does not (as DeepSeek's and Qwen's do)."""
    thinking = MARKED.replace("assistant\n' }}{% endif %}", "assistant\n<think>' }}{% endif %}")
    assert thinking != MARKED
    made = one(model(thinking), TALK[-1:], TALK[:-1], trainer="trl")
    think = len(Tokenizer(model(thinking)).encode(["<think>"], around=False)[0])
    assert made.prompt_mismatch == think
    assert learnt(model(thinking), made) == ["A square.<|im_end|>\n"]
    assert one(model(MARKED), TALK[-1:], TALK[:-1], trainer="trl").prompt_mismatch == 0


def test_axolotl_trains_on_contents_and_the_end_token_behind_them(model):
    made = one(model(), TALK, trainer="axolotl")
    assert learnt(model(), made) == ["A cube.<|im_end|>", "A square.<|im_end|>"]
    # `train_on_eos: turn` finds no end token behind the content
    other = model(eos_token="<|endoftext|>")
    made = one(other, TALK, trainer="axolotl")
    assert learnt(other, made) == ["A cube.", "A square."]
    assert (made.ending, made.eos) == ("", "<|endoftext|>")


def test_axolotl_renames_speakers_and_parses_arguments(model):
    shared = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    made = one(model(), shared, trainer="axolotl")
    assert made.text == ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n")
    assert learnt(model(), made) == ["Hello<|im_end|>"]
    calls = model(
        "{% for m in messages %}{{ m.role + ':' + (m.content or '') }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments.city }}{% endfor %}<|im_end|>{% endfor %}"
    )
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    called = [{"role": "user", "content": "Rain?"},
              {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}]  # fmt: skip
    assert (
        one(calls, called, trainer="axolotl").text == "user:Rain?<|im_end|>assistant:Oslo<|im_end|>"
    )


def test_llamafactory_writes_its_own_template(model):
    made = one(model(), TALK, trainer="llamafactory", template="llama3")
    assert made.text == (
        "<|im_start|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is a voxel?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nA cube.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nAnd a pixel?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nA square.<|eot_id|>"
    )  # the BOS token of this tokenizer is <|im_start|>
    assert (made.ending, made.eos) == ("<|eot_id|>", "<|eot_id|>")  # replaced, and new ids
    assert made.trained.sum() == made.ids[made.trained].size
    size = Tokenizer(model()).size
    assert set(made.ids[made.ids >= size].tolist()) == {size}  # <|eot_id|>, the first stop word


def test_llamafactory_adds_its_default_system_prompt_and_an_empty_thought(model):
    talk = chat("Hi", "Hello")
    made = one(model(), talk, trainer="llamafactory", template="qwen")
    assert made.text.startswith("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud.")
    made = one(model(), talk, trainer="llamafactory", template="qwen3")
    assert learnt(model(), made) == ["<think>\n\n</think>\n\nHello<|im_end|>\n"]
    thought = chat("Hi", "<think>\nHm.\n</think>\n\nHello")
    made = one(model(), thought, trainer="llamafactory", template="qwen3")
    assert learnt(model(), made) == ["<think>\nHm.\n</think>\n\nHello<|im_end|>\n"]
    made = one(model(), TALK, trainer="llamafactory", template="mistral")
    assert "[INST] Be brief.\n\nWhat is a voxel?[/INST]" in made.text


def test_llamafactory_reads_the_slots_of_a_chat_template_if_none_is_named(model):
    made = one(model(), TALK, trainer="llamafactory")
    assert made.text == Tokenizer(model()).chat(TALK)
    assert learnt(model(), made) == ["A cube.<|im_end|>\n", "A square.<|im_end|>\n"]
    with pytest.raises(UsageError, match="no slots"):
        one(model("{{ messages|length }}"), TALK, trainer="llamafactory")


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        (chat("Hi", "Hello", "And?"), "3 turns"),
        ([*chat("Hi"), *chat("Hi", "Hello")], "turn 2 is of 'user'"),
        ([{"role": "usr", "content": "Hi"}, {"role": "assistant", "content": "x"}], "'usr'"),
        ([], "0 turns"),
    ],
)
def test_llamafactory_leaves_out_chats_that_are_no_pairs(model, turns, why):
    with pytest.raises(ValueError, match=why):
        one(model(), turns, trainer="llamafactory", template="qwen")


def test_tools_are_not_judged_for_llamafactory(model):
    with pytest.raises(UnjudgedError, match="tools"):
        one(model(), TALK, tools=[{"name": "weather"}], trainer="llamafactory", template="qwen")


def test_an_unknown_template_of_llamafactory_is_named(model):
    with pytest.raises(UsageError, match=r"'qwen9'.*qwen3"):
        one(model(), TALK, trainer="llamafactory", template="qwen9")


@pytest.mark.parametrize(
    ("source", "target", "room", "expected"),
    [  # LLaMA-Factory, tests/data/processor/test_processor_utils.py
        (3000, 2000, 1000, (600, 400)),
        (2000, 3000, 1000, (400, 600)),
        (1000, 100, 1000, (900, 100)),
        (100, 1000, 1000, (100, 900)),
        (100, 500, 1000, (100, 500)),
        (500, 100, 1000, (500, 100)),
        (10, 10, 1000, (10, 10)),
    ],
)
def test_llamafactory_cuts_questions_and_answers_alike(source, target, room, expected):
    assert _lengths(source, target, room) == expected


def test_truncation_keeps_the_beginning_or_a_share_of_each_turn(model):
    long = chat("word " * 40, "other " * 40)
    for trainer, how in (("trl", {}), ("axolotl", {}), ("minimind", {})):
        made = one(model(), long, trainer=trainer, max_length=50, **how)
        assert made.kept.tolist() == [True] * 50 + [False] * (len(made.ids) - 50)
    made = one(model(), long, trainer="llamafactory", template="chatml", max_length=50)
    assert made.kept.sum() == 50
    assert 0 < (made.kept & made.trained).sum() < 50
    assert not made.closed


def test_costly_templates_are_given_up_by_block_for_every_trainer(model):
    endless = model(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
    for trainer in ("trl", "axolotl"):
        conversations = [Conversation(TALK)] * 3
        made = list(masked_chats(Tokenizer(endless), conversations, MaskSettings(trainer=trainer)))
        assert ["for one chat" in str(error) for error in made] == [True, False, False]
        assert all("not tried" in str(error) for error in made[1:])


def test_a_message_of_parts_is_not_judged_for_llamafactory(model):
    parts = [{"type": "text", "text": "Be brief."}]
    for turns in (
        [{"role": "system", "content": parts}, *TALK[1:]],
        [{"role": "user", "content": parts}, TALK[2]],
    ):
        for how in ({"template": "qwen"}, {"template": "mistral"}, {}):
            with pytest.raises(UnjudgedError, match="not text"):
                one(model(), turns, trainer="llamafactory", **how)


@pytest.mark.parametrize("trainer", ["trl", "axolotl"])
@pytest.mark.parametrize("text", ["{bad", "[" * 100_000])
def test_tools_and_arguments_that_are_no_json_are_named(model, trainer, text):
    with pytest.raises(ValueError, match="tools: not valid JSON"):
        one(model(), TALK, tools=text, trainer=trainer)
    called = [
        TALK[1],
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": text}}],
        },
    ]
    if trainer == "axolotl":
        with pytest.raises(ValueError, match="the arguments of a call: not valid JSON"):
            one(model(), called, trainer=trainer)
    assert one(model(), TALK, tools="", trainer=trainer).text  # no tools


def test_no_other_speaker_is_found_in_an_answer(model):
    """A message that the template drops or moves was found in the answer behind it."""
    deaf = MARKED.replace(
        "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
    )
    turns = chat("What is a voxel?", "A cube.", system="A cube")
    made = one(model(deaf), turns, trainer="trl", assistant_only_loss=True)
    assert learnt(model(deaf), made) == ["A cube.<|im_end|>"]
    assert made.foreign == 0
    moved = "{% for m in messages[1:] %}{{ '<|im_start|>' + m.role + '\n' }}{% if loop.last %}{% generation %}" \
        "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ messages[0].content if loop.index == 3 }}" \
        "{{ m.content + '<|im_end|>' }}{% endif %}{% endfor %}"  # fmt: skip
    made = one(model(moved), TALK, trainer="trl", assistant_only_loss=True)
    assert made.foreign == 0


def test_a_chat_of_many_answers_is_not_judged_for_axolotl_alone(model):
    """Its cost is quadratic: a chat of 1,000 turns had its whole block unjudged."""
    long = chat(*["How many?", "One more."] * 500)
    conversations = [Conversation(TALK), Conversation(long), Conversation(TALK)]
    made = list(masked_chats(Tokenizer(model()), conversations, MaskSettings(trainer="axolotl")))
    assert [isinstance(chat, UnjudgedError) for chat in made] == [False, True, False]
    assert "500 answers" in str(made[1])


@pytest.mark.parametrize("trainer", ["trl", "axolotl", "minimind"])
def test_a_template_that_writes_nothing_gives_no_tokens(model, trainer):
    made = one(model("{% if false %}{{ messages }}{% endif %}"), TALK, trainer=trainer)
    assert (len(made.ids), made.first) == (0, -1)


def test_a_named_template_needs_no_chat_template(model, tmp_path):
    write_tokenizer(tmp_path / "base")
    file = tmp_path / "base" / "tokenizer_config.json"
    file.write_text(
        json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"})
    )
    made = one(tmp_path / "base", TALK, trainer="llamafactory", template="chatml")
    assert learnt(tmp_path / "base", made) == ["A cube.<|im_end|>\n", "A square.<|im_end|>\n"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"eos_token_id": true}', '{"eos_token_id": "x"}', "[" * 99_999]
)
def test_a_damaged_generation_config_names_no_stops(tmp_path, text):
    write_tokenizer(tmp_path / "m")
    (tmp_path / "m" / "generation_config.json").write_text(text)
    assert Tokenizer(tmp_path / "m").stops == frozenset()
    (tmp_path / "m" / "generation_config.json").write_text('{"eos_token_id": [2, 7, true]}')
    assert Tokenizer(tmp_path / "m").stops == {2, 7}


def test_many_empty_generated_parts_cost_little(model):
    many = "{% for i in range(20000) %}{% generation %}{% endgeneration %}{% endfor %}" + MARKED
    made = one(model(many), TALK, trainer="trl", assistant_only_loss=True)
    assert made.trained.any()
