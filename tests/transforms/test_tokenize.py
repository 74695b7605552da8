"""Tokens and labels, with a tokenizer of one token per character: every id can be counted by hand."""

from __future__ import annotations

import json
import shutil
import string
import tracemalloc

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.masks.markers import places, spans
from datacheck.model.sample import ArraySpec, Origin, Piece, stack
from datacheck.runtime.hashing import digest_bytes
from datacheck.tokenization import FILES, SETTINGS_BYTES, Tokenizer, messages_of, tokenizer_digest
from datacheck.transforms import bind, run, step

PAD, START, END = 0, 1, 2
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)
VOCAB = {"<|endoftext|>": PAD, "<|im_start|>": START, "<|im_end|>": END}
VOCAB |= {letter: 3 + i for i, letter in enumerate(string.printable)}
SPECS = {
    "text": ArraySpec("uint8", (), "fields.text", "text"),
    "chat": ArraySpec("uint8", (), "fields.chat", "json"),
    "n": ArraySpec("int64"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCAB, unk_token="<|endoftext|>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.save(str(place / "tokenizer.json"))
    config = {
        "bos_token": "<|im_start|>",
        "eos_token": {"content": "<|im_end|>"},
        "pad_token": "<|endoftext|>",
    }
    (place / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
    return place


def letters(text):
    return [VOCAB[c] for c in text]


def tokens(folder, field, *values, **options):
    steps, after = bind(
        [step({"tokenize": {"field": field, "tokenizer": str(folder), **options}})], SPECS
    )
    pieces = [
        Piece(f"k{i}", {field: value, "n": np.array(i)}, Origin("f"))
        for i, value in enumerate(values)
    ]
    made, refused = [], []
    for block in stack(pieces):
        some, why = run(steps, block)
        made += some
        refused += why
    return {s.key: dict(s.fields) for b in made for s in b}, dict(refused), after


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


def test_a_text_is_trained_on_whole(folder):
    made, refused, after = tokens(folder, "text", "ab", "")
    assert not refused
    assert made["k0"]["input_ids"].tolist() == [START, *letters("ab"), END]
    assert made["k0"]["labels"].tolist() == made["k0"]["input_ids"].tolist()
    assert made["k1"]["input_ids"].tolist() == [START, END]
    assert (after["input_ids"].dim, after["input_ids"].dtype) == ("tokens", "int64")
    assert "text" not in after


def test_a_text_is_cut_before_its_end_token_and_padded(folder):
    made, _, after = tokens(
        folder, "text", "abcdef", "a", max_length=5, pad=True, dtype="int32", keep=True
    )
    assert made["k0"]["input_ids"].tolist() == [START, *letters("abc"), END]
    assert made["k1"]["input_ids"].tolist() == [START, *letters("a"), END, PAD, PAD]
    assert made["k1"]["labels"].tolist() == [START, *letters("a"), END, -100, -100]
    assert made["k1"]["labels"].dtype == np.int32
    assert made["k1"]["text"] == "a"
    assert after["labels"].item == (5,)


def test_a_chat_is_trained_on_its_answers(folder):
    made, refused, _ = tokens(
        folder,
        "chat",
        chat(("user", "q"), ("assistant", "yes"), ("user", "r"), ("assistant", "no")),
    )
    assert not refused
    text = made["k0"]["input_ids"].tolist()
    labels = made["k0"]["labels"].tolist()
    trained = [t for t in labels if t != -100]
    assert trained == [*letters("yes"), END, *letters("\n"), *letters("no"), END, *letters("\n")]
    assert all(label in (-100, ids) for label, ids in zip(labels, text, strict=True))
    assert text[:6] == [START, *letters("user\n")]


def test_a_chat_without_anything_to_train_on_is_refused(folder):
    long = chat(("user", "q" * 50), ("assistant", "yes"))
    made, refused, _ = tokens(
        folder, "chat", long, chat(("user", "q")), [], chat(("assistant", "x")), max_length=40
    )
    assert sorted(made) == ["k3"]
    assert sorted(refused) == ["k0", "k1", "k2"]
    assert "no token to train on" in refused["k0"]


def test_a_cut_answer_is_trained_on_to_its_last_token(folder):
    made, _, _ = tokens(folder, "chat", chat(("assistant", "abcdef")), max_length=14)
    assert [t for t in made["k0"]["labels"].tolist() if t != -100] == letters("abc")


def test_a_template_that_refuses_names_the_sample(folder, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ raise_exception('roles must alternate') }}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    made, refused, _ = tokens(tmp_path, "chat", chat(("user", "q")))
    assert not made
    assert refused == {"k0": "chat: the chat template refuses it: roles must alternate"}


def test_a_template_cannot_leave_its_sandbox(folder, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text(
        "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    )
    with pytest.raises(ValueError, match="unsafe"):
        Tokenizer(tmp_path).chat([{"role": "user", "content": ""}])


def test_the_identity_holds_the_content_and_not_the_place(folder, tmp_path):
    one = step({"tokenize": {"field": "text", "tokenizer": "model"}}).placed(folder.parent)
    assert one.tokenizer.startswith("/")
    here = step({"tokenize": {"field": "text", "tokenizer": str(folder)}}).identity()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    there = step(
        {"tokenize": {"field": "text", "tokenizer": str(tmp_path / "tokenizer.json")}}
    ).identity()
    assert here == there
    assert str(folder) not in json.dumps(here)
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "a"}')
    assert step({"tokenize": {"field": "text", "tokenizer": str(tmp_path)}}).identity() != here


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no tokenizer there"), ("{", "not a tokenizer"), ("\udcff", "cannot be read")],
)
def test_a_missing_or_damaged_tokenizer_is_one_message(tmp_path, content, said):
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=said) as caught:
        Tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "config", ["[" * 100_000, '{"bos_token": {"x": 1}}', r'{"chat_template": "\ud83d"}']
)
def test_a_damaged_configuration_is_named_where_a_step_is_planned(folder, tmp_path, config):
    """It ended the build with a traceback."""
    shutil.copytree(folder, tmp_path / "tok")
    (tmp_path / "tok/tokenizer_config.json").write_text(config)
    with pytest.raises(UsageError, match=r"tok: tokenizer_config\.json: "):
        step({"tokenize": {"field": "text", "tokenizer": str(tmp_path / "tok")}}).identity()


def test_numbers_and_padding_without_length_are_refused(folder):
    for wrong, said in (
        ({"field": "n"}, "takes text or chats"),
        ({"field": "text", "pad": True}, "needs max_length"),
    ):
        with pytest.raises(UsageError, match=said):
            bind([step({"tokenize": {"tokenizer": str(folder), **wrong}})], SPECS)


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=3))
def test_places_are_where_the_marker_is(ids, marker):
    wanted = [
        i
        for i in range(len(ids) - len(marker) + 1)
        if marker and ids[i : i + len(marker)] == marker
    ]
    assert (
        places(np.array(ids, dtype=np.int64), np.array(marker, dtype=np.int64)).tolist() == wanted
    )


def generate_labels(ids, bos, eos):
    """minimind's loop (dataset/lm_dataset.py), on tokens without padding; the reference."""
    labels = [-100] * len(ids)
    i = 0
    while i < len(ids):
        if ids[i : i + len(bos)] == bos:
            start = i + len(bos)
            end = start
            while end < len(ids):
                if ids[end : end + len(eos)] == eos:
                    break
                end += 1
            for j in range(start, min(end + len(eos), len(ids))):
                labels[j] = ids[j]
            i = end + len(eos) if end < len(ids) else len(ids)
        else:
            i += 1
    return labels


@given(st.lists(st.integers(0, 4), max_size=60))
def test_spans_are_those_of_the_training_code(ids):
    bos, eos = [1, 2], [3, 4]
    labels = [-100] * len(ids)
    for first, stop in spans(np.array(ids, dtype=np.int64), np.array(bos), np.array(eos)):
        labels[first:stop] = ids[first:stop]
    assert labels == generate_labels(ids, bos, eos)


def test_messages_of_takes_both_spellings():
    assert messages_of({"conversations": [{"a": 1}, 3]}) == [{"a": 1}]
    assert messages_of({"messages": [{"a": 1}]}) == messages_of([{"a": 1}]) == [{"a": 1}]
    assert messages_of("text") == messages_of(None) == []


MERGED = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
PLAIN = {"version": "1.0", "added_tokens": [], "model": MERGED}
UNKNOWN = [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"model": {**MERGED, "continuing_subword_prefix": "aaaaaa"}},
            "tok: not a tokenizer: range end index",
        ),
        (
            {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
            "tok: the tokenizer fails: chunk size",
        ),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": UNKNOWN,
                    "pair": [],
                    "special_tokens": {},
                }
            },
            "tok: ",
        ),
    ],
    ids=["prefix", "length", "special token"],
)
def test_a_tokenizer_at_which_the_library_panics_is_named(tmp_path, change, said):
    """Its exception derives from BaseException only, and ended builds with a traceback."""
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok/tokenizer.json").write_text(json.dumps(PLAIN | change))
    with pytest.raises(UsageError, match=said):
        Tokenizer(tmp_path / "tok").encode(["ab"])


TALK = chat(("user", "ab"), ("assistant", "cd"))


def labelled(fields):
    """The letters that are trained on."""
    labels = fields["labels"]
    names = {number: text for text, number in VOCAB.items()}
    return "".join(names[label] for label in labels[labels != -100].tolist())


@pytest.mark.parametrize(
    ("options", "learnt"),
    [
        ({}, "cd<|im_end|>\n"),
        (
            {"trainer": "trl"},
            "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\ncd<|im_end|>\n",
        ),
        ({"trainer": "axolotl"}, "cd<|im_end|>"),
        ({"trainer": "llamafactory", "template": "qwen3_nothink"}, "cd<|im_end|>\n"),
        ({"trainer": "llamafactory", "template": "qwen3"}, "<think>\n\n</think>\n\ncd<|im_end|>\n"),
    ],
)
def test_labels_are_those_of_the_trainer(folder, options, learnt):
    made, refused, _ = tokens(folder, "chat", TALK, **options)
    assert not refused
    assert labelled(made["k0"]) == learnt


def test_a_completion_is_labelled_behind_its_prompt(folder):
    specs = SPECS | {"prompt": SPECS["chat"]}
    steps, after = bind(
        [
            step(
                {
                    "tokenize": {
                        "field": "chat",
                        "prompt": "prompt",
                        "tokenizer": str(folder),
                        "trainer": "trl",
                    }
                }
            )
        ],
        specs,
    )
    piece = Piece("k0", {"prompt": TALK[:1], "chat": TALK[1:]}, Origin("f"))
    blocks, refused = run(steps, stack([piece])[0])
    ((sample,),) = ([*block] for block in blocks)
    assert not refused
    # this template writes no start of an answer, so the mask begins with it
    assert labelled(dict(sample.fields)) == "<|im_start|>assistant\ncd<|im_end|>\n"
    assert "prompt" in after


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"template": "qwen"}, "trainer: llamafactory"),
        ({"trainer": "llamafactory", "template": "qwen9"}, "'qwen9'"),
        ({"assistant_only_loss": True}, "trainer: trl"),
        ({"prompt": "nothing"}, "nothing"),
    ],
)
def test_settings_that_the_trainer_does_not_have_are_refused(folder, options, why):
    with pytest.raises(UsageError, match=why):
        tokens(folder, "chat", TALK, **options)


def test_the_identity_of_older_caches_stays(folder):
    made = step({"tokenize": {"field": "chat", "tokenizer": str(folder)}})
    assert set(made.identity()["options"]) == {"field"}
    other = step({"tokenize": {"field": "chat", "tokenizer": str(folder), "trainer": "trl"}})
    assert other.identity()["options"] == {"field": "chat", "trainer": "trl"}


def test_a_special_token_that_the_file_lacks_is_added_and_changes_the_identity(tmp_path):
    """transformers adds it; a text was split inside it, and caches of then have other ids."""
    document = {
        "version": "1.0", "added_tokens": [
            {"id": 0, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}],
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"},
    }  # fmt: skip
    texts = {}
    for name, eos in (("held", "<unk>"), ("lacking", "<end>")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(document))
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
        texts[name] = Tokenizer(tmp_path / name).encode(["a<end>"], around=False)[0].tolist()
    assert texts["lacking"] == [1, 2]
    assert Tokenizer(tmp_path / "lacking").id_of("eos_token") == 2
    raw = json.dumps(document)
    old = digest_bytes(
        f"{raw}\0{json.dumps([None, {'eos_token': '<unk>'}], sort_keys=True)}".encode()
    )
    assert tokenizer_digest(tmp_path / "held") == old  # as before
    plain = digest_bytes(
        f"{raw}\0{json.dumps([None, {'eos_token': '<end>'}], sort_keys=True)}".encode()
    )
    assert tokenizer_digest(tmp_path / "lacking") != plain


def test_a_token_of_megabytes_takes_little_memory(tmp_path):
    token, folder = "x" * 2_000_000, tmp_path / "long"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"content": token}]}))
    tracemalloc.start()
    tokenizer_digest(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(token)


def test_an_emoji_in_a_large_vocabulary_takes_little_memory(tmp_path):
    raw = '{"model": {"vocab": {"\U0001f600": 0, "' + "x" * 4_000_000 + '": 1}}}'
    (tmp_path / "tokenizer.json").write_text(raw, encoding="utf-8")
    tracemalloc.start()
    digest = tokenizer_digest(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(raw)
    assert digest == digest_bytes(f"{raw}\0{json.dumps([None, {}])}".encode())


@pytest.mark.parametrize("name", FILES[1:])
def test_the_settings_of_a_tokenizer_have_a_limit(tmp_path, name):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / name).write_bytes(b" " * (SETTINGS_BYTES + 1))
    with pytest.raises(UsageError, match="at most 8,388,608 are read"):
        tokenizer_digest(tmp_path)


def test_a_tokenizer_that_is_not_utf8_beyond_its_first_part_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b" " * (1 << 20) + b"\xff")
    with pytest.raises(UsageError, match="cannot be read: 'utf-8'"):
        tokenizer_digest(tmp_path)


def test_a_template_that_costs_too_much_to_compile_says_so(tmp_path):
    document = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    (tmp_path / "chat_template.jinja").write_text("{{ '%999999999d' % 1 }}")
    with pytest.raises(UsageError, match="to compile it takes too much time or memory"):
        Tokenizer(tmp_path).template.render()
