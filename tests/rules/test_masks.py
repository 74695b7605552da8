"""DC714 and DC715: the mask and the text of chats, with templates and tokenizers that are wrong in one way each."""

import json
import shutil

import pytest

from datacheck.model.finding import Severity
from datacheck.model.sample import Origin, Piece
from datacheck.testing.minimind import write_tokenizer
from tests.rules.harness import judged, measured, schema_of

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a voxel?"},
    {"role": "assistant", "content": "A cube."},
]


@pytest.fixture
def folder(tmp_path):
    write_tokenizer(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def configured(folder, **config):
    """Return a copy of a tokenizer with other settings; a process reads each folder once."""
    place = folder.with_name(f"tokenizer-{len(list(folder.parent.iterdir()))}")
    shutil.copytree(folder, place)
    file = place / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return place


def findings(folder, chats=(TALK, TALK), fields=None, **tokenizer):
    """Return {(code, kind): (severity, failed samples)} of the rules of this file, and their findings."""
    schema = schema_of(
        {
            "fields": fields or {"c": {"role": "chat"}},
            "tokenizer": {"path": str(folder), "max_length": 200} | tokenizer,
        }
    )
    values = [chat if fields else {"c": chat} for chat in chats]
    pieces = [("", Piece(f"s{n}", value, Origin(""))) for n, value in enumerate(values)]
    found = judged(schema, measured(schema, pieces)).findings
    mine = [f for f in found if f.code in {"DC702", "DC712", "DC714", "DC715"}]
    return {(f.code, f.kind): (f.severity, f.rows.tolist()) for f in mine}, mine


ERROR, WARNING = Severity.ERROR, Severity.WARNING


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"trainer": "axolotl"},
        {"trainer": "llamafactory"},
        {"trainer": "llamafactory", "template": "llama3"},
        {"trainer": "trl", "assistant_only_loss": True},
    ],
    ids=str,
)
def test_a_right_template_is_silent_for_every_trainer(folder, how):
    folder = configured(folder, chat_template=CHATML)
    assert findings(folder, **how)[0] == {}


def test_the_end_outside_of_the_generated_part_is_an_error(folder):
    late = CHATML.replace(
        "+ '<|im_end|>' }}{% endgeneration %}", "}}{% endgeneration %}{{ '<|im_end|>' }}"
    )
    folder = configured(folder, chat_template=late)
    found, (finding,) = findings(folder, trainer="trl", assistant_only_loss=True)
    assert found == {("DC714", "stop"): (ERROR, [0, 1])}
    assert "{% generation %}" in finding.fix


def test_an_end_token_that_does_not_follow_the_answers_is_an_error_for_axolotl(folder):
    folder = configured(folder, eos_token="<|endoftext|>")
    found, (finding,) = findings(folder, trainer="axolotl")
    assert found == {("DC714", "stop"): (ERROR, [0, 1])}
    assert "eos_token" in finding.cause.text


def test_another_end_token_than_generation_waits_for_is_a_warning(folder):
    folder = configured(folder, eos_token="<|endoftext|>")
    found, (finding,) = findings(folder)
    assert found == {("DC714", "eos"): (WARNING, [0, 1])}
    assert "end in <|im_end|>; generation stops at <|endoftext|>" in finding.message
    # generation_config.json names both, as that of Phi-3 does
    folder = configured(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    assert findings(folder)[0] == {}


def test_a_generated_part_that_holds_the_question_is_an_error(folder):
    wide = "{% generation %}" + CHATML.replace("{% generation %}", "").replace(
        "{% endgeneration %}", ""
    )
    folder = configured(folder, chat_template=wide + "{% endgeneration %}")
    found, (finding,) = findings(folder, trainer="trl", assistant_only_loss=True)
    assert found == {("DC714", "foreign"): (ERROR, [0, 1])}
    letters = 2 * len("Be brief." + "What is a voxel?")
    assert finding.message.startswith(f"{letters} characters of other speakers")


def test_trl_without_assistant_only_loss_is_a_warning(folder):
    assert findings(folder, trainer="trl")[0] == {("DC714", "all"): (WARNING, [0, 1])}


def test_a_prompt_that_alone_ends_otherwise_is_a_warning(folder):
    thinking = CHATML.replace("assistant\n' }}{% endif %}", "assistant\n<think>' }}{% endif %}")
    folder = configured(folder, chat_template=thinking)
    fields = {"p": {"role": "chat"}, "c": {"role": "chat", "continues": "p"}}
    chats = [{"p": TALK[:-1], "c": TALK[-1:]}] * 2
    found, _ = findings(folder, chats, fields, trainer="trl")
    assert found == {("DC714", "prompt"): (WARNING, [0, 1])}
    folder = configured(folder, chat_template=CHATML)
    assert findings(folder, chats, fields, trainer="trl")[0] == {}


def test_a_message_that_the_template_leaves_out_is_named_by_its_speaker(folder):
    deaf = CHATML.replace(
        "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
    )
    folder = configured(folder, chat_template=deaf)
    found, _ = findings(folder, [TALK, TALK[1:]])
    assert found == {("DC715", "dropped system"): (WARNING, [0])}
    last = CHATML.replace("{% for m in messages %}", "{% for m in messages[-1:] %}")
    folder = configured(folder, chat_template=last)
    assert findings(folder, [TALK[1:]])[0] == {("DC715", "dropped user"): (WARNING, [0])}
    cut = CHATML.replace("m.content + '<|im_end|>' }}", "m.content[:3] + '<|im_end|>' }}")
    folder = configured(folder, chat_template=cut)
    assert findings(folder)[0] == {("DC715", "dropped assistant"): (ERROR, [0, 1])}


def test_a_thought_that_the_template_leaves_out_of_an_answer_is_no_fault(folder):
    folder = configured(folder, chat_template=CHATML.replace(
        "m.content + '<|im_end|>' }}", "m.content.split('</think>')[-1] + '<|im_end|>' }}"
    ))  # fmt: skip
    thought = [*TALK[:-1], {"role": "assistant", "content": "<think>Hm.</think>A cube."}]
    assert findings(folder, [thought])[0] == {}


def test_two_bos_tokens_are_a_warning(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    bos = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text, text],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))
    assert findings(folder)[0] == {("DC715", "bos"): (WARNING, [0, 1])}
    # TRL and axolotl tokenize the template's text without added tokens
    assert findings(folder, trainer="axolotl")[0] == {}


def test_pairs_that_are_equal_once_they_are_cut_are_an_error(folder):
    fields = {"good": {"role": "chat", "preferred_over": "bad"}, "bad": {"role": "chat"}}
    long = "word " * 80
    late = {
        "good": [*TALK[:-1], {"role": "assistant", "content": long + "yes"}],
        "bad": [*TALK[:-1], {"role": "assistant", "content": long + "no"}],
    }
    early = {"good": TALK, "bad": [*TALK[:-1], {"role": "assistant", "content": "A line."}]}
    found, _ = findings(folder, [late, early], fields, max_length=60)
    assert found == {("DC712", "cut"): (ERROR, [0])}
    assert findings(folder, [late, early], fields, max_length=2000)[0] == {}


def test_a_template_without_generated_parts_is_not_judged(folder):
    schema = schema_of({
        "fields": {"c": {"role": "chat"}},
        "tokenizer": {"path": str(folder), "trainer": "trl", "assistant_only_loss": True, "max_length": 9},
    })  # fmt: skip
    found = judged(schema, measured(schema, [("", Piece("s", {"c": TALK}, Origin("")))]))
    verdict = next(v for v in found.verdicts if v.code == "DC702")
    assert "no {% generation %} parts" in "; ".join([verdict.why, *verdict.unseen])
    assert not {"DC714", "DC715"} & {f.code for f in found.findings}


def test_chats_that_llamafactory_leaves_out_have_no_trained_token(folder):
    odd = [*TALK, {"role": "user", "content": "And a pixel?"}]
    found, (finding,) = findings(folder, [TALK, odd], trainer="llamafactory", template="qwen")
    assert found == {("DC702", "refused"): (ERROR, [1])}
    assert "LLaMA-Factory leaves the chat out: its 3 turns" in finding.message


def test_what_is_not_judged_has_its_reason(folder):
    """The verdict was "no sample holds what it judges", and DC702 passed."""
    schema = schema_of({
        "fields": {"c": {"role": "chat"}},
        "tokenizer": {"path": str(folder), "trainer": "trl", "assistant_only_loss": True},
    })  # fmt: skip
    found = judged(schema, measured(schema, [("", Piece("s", {"c": TALK}, Origin("")))]))
    for code in ("DC702", "DC714", "DC715"):
        verdict = next(v for v in found.verdicts if v.code == code)
        assert verdict.verdict == "skip"
        assert "no {% generation %} parts" in "; ".join([verdict.why, *verdict.unseen])


def test_pairs_of_one_answer_are_equal_for_trl(folder):
    """The whole chat counted as the prompt: "the mask covers no token" hid that both are one."""
    fields = {"good": {"role": "chat", "preferred_over": "bad"}, "bad": {"role": "chat"}}
    found, _ = findings(folder, [{"good": TALK, "bad": TALK}], fields, trainer="trl")
    assert found == {("DC712", "same"): (ERROR, [0])}


def test_pairs_that_the_template_writes_alike_are_not_called_cut(folder):
    folder = configured(folder, chat_template=CHATML.replace("m.content +", "m.content|trim +"))
    fields = {"good": {"role": "chat", "preferred_over": "bad"}, "bad": {"role": "chat"}}
    pair = {"good": TALK, "bad": [*TALK[:-1], TALK[-1] | {"content": "A cube.\n"}]}
    for length in (200, 2000):
        found, (finding,) = findings(folder, [pair], fields, max_length=length)
        assert found == {("DC712", "template"): (ERROR, [0])}
        assert "max_length" not in finding.fix


def test_a_chat_without_an_answer_is_trained_on_by_trl(folder):
    question = [{"role": "user", "content": "What is a voxel?"}]
    assert findings(folder, [question], trainer="trl")[0] == {("DC714", "all"): (WARNING, [0])}
    assert ("DC702", "mute") in findings(folder, [question])[0]


def test_a_completion_with_messages_of_others_is_named(folder):
    fields = {"p": {"role": "chat"}, "c": {"role": "chat", "continues": "p"}}
    completion = [TALK[2], {"role": "user", "content": "And a pixel?"}, TALK[2]]
    found, (finding,) = findings(folder, [{"p": TALK[:2], "c": completion}], fields, trainer="trl")
    assert found == {("DC714", "completion"): (WARNING, [0])}
    assert finding.message.startswith(f"{len('And a pixel?')} characters")


def test_few_trained_tokens_without_a_maximum_are_told_without_it(folder):
    fields = {"c": {"role": "chat", "min_trained_tokens": 500}}
    found, (finding,) = findings(folder, [{"c": TALK}], fields, trainer="axolotl", max_length=None)
    assert found == {("DC702", "few"): (ERROR, [0])}
    assert "None" not in finding.message
