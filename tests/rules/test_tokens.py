"""What is supervised of a chat is what minimind's loader marks."""

import json
import shutil
import signal
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import datacheck.tokenization
from datacheck.errors import MissingDependencyError, UsageError
from datacheck.masks.markers import between
from datacheck.model.sample import Origin, Piece
from datacheck.rules import chat_turns
from datacheck.rules.chat_turns import trained
from datacheck.scan import Request, run_scan
from datacheck.schema.load import parse_schema
from datacheck.testing.minimind import TEMPLATE, write_tokenizer
from datacheck.tokenization import UNTRIED, Tokenizer, located
from datacheck.transforms.tokenize import Tokenize
from tests.rules.harness import judged, measured, schema_of

START, END = [1, 7, 8], [2, 9]


def loop(ids, start, end, most):
    """Mark labels one by one, as ``generate_labels`` does."""
    ids = ids[:most]
    labels = [False] * len(ids)
    i = 0
    while i < len(ids):
        if ids[i : i + len(start)] == start:
            first = i + len(start)
            stop = first
            while stop < len(ids) and ids[stop : stop + len(end)] != end:
                stop += 1
            for j in range(first, min(stop + len(end), len(ids))):
                labels[j] = True
            i = stop + len(end) if stop < len(ids) else len(ids)
        else:
            i += 1
    return sum(labels)


pieces_of_text = st.sampled_from([START, END, [1, 7], [2], [9], [5, 6], [8]])


@given(st.lists(pieces_of_text, max_size=14), st.integers(1, 30))
def test_supervised_tokens_are_those_of_the_plain_loop(parts, most):
    ids = [token for part in parts for token in part]
    found = between(np.array(ids, np.int64), np.array(START), np.array(END), most)
    assert int((found["trained"] & found["kept"]).sum()) == loop(ids, START, END, most)


def test_the_first_answer_begins_behind_its_marker_even_where_the_text_is_cut():
    ids = np.array([5, 5, 5, *START, 4, 4, *END])
    found = between(ids, np.array(START), np.array(END), 4)
    assert (found["trained"] & found["kept"]).sum() == 0
    assert found["first"] == 6
    assert between(np.array([5, 5]), np.array(START), np.array(END), 4)["first"] == -1


@pytest.fixture
def folder(tmp_path):
    write_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def chat(*turns):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]


def said(verdict):
    """What a verdict says beside its name."""
    return "; ".join([verdict.why, *verdict.unseen])


def scan(chats, path=None, most=64, **more):
    told = {"max_length": most} | ({"path": str(path)} if path else {})
    schema = schema_of(
        {"fields": {"c": {"role": "chat", "train_on": "assistant"} | more}, "tokenizer": told}
    )
    pieces = [("", Piece(f"s{n}", {"c": value}, Origin(""))) for n, value in enumerate(chats)]
    table = measured(schema, pieces)
    found = judged(schema, table)
    mine = [f for f in found.findings if f.code == "DC702"]
    return mine, next(v for v in found.verdicts if v.code == "DC702"), table


CHATS = [
    chat("What is a voxel?", "A small cube."),
    chat("What is a voxel?"),
    chat("word " * 200, "Yes."),
    chat("What?", " A leading space joins the marker's newline."),
]


def test_the_tokenizer_of_the_run_decides(folder):
    findings, verdict, table = scan(CHATS, folder)
    assert {f.kind: f.rows.tolist() for f in findings} == {"mute": [1], "long": [2]}
    assert verdict.checked == 4
    assert table.columns[":c:trained"].values[0] > 3
    assert table.columns[":c:marker"].values[2] > 64


def test_a_folder_of_links_is_a_tokenizer_as_the_hub_caches_one(folder, tmp_path, monkeypatch):
    """``snapshots/<commit>/tokenizer.json`` is a link to ``blobs/<digest>``, and the child reads in a sandbox."""
    snapshot, blobs, data = (tmp_path / name for name in ("snapshots", "blobs", "data"))
    for made in (snapshot, blobs, data):
        made.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.move(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../blobs/{number}")
    (data / "a.jsonl").write_text("".join(json.dumps({"c": chats}) + "\n" for chats in CHATS))
    schema = parse_schema(
        "datacheck: 1\nname: chats\nsamples: {files: '{id}.jsonl', each: line}\n"
        f"tokenizer: {{path: {snapshot}, max_length: 64}}\n"
        "fields: {c: {role: chat, train_on: assistant}}\n"
    )
    monkeypatch.chdir(tmp_path)
    report = run_scan(schema, Request(data)).report
    found = [
        sample
        for finding in report.findings
        if finding.code == "DC702"
        for sample in finding.rows.tolist()
    ]
    assert sorted(found) == [1, 2]  # the chat without an answer, and the one that is cut


@pytest.fixture
def data(folder):
    """A data folder with chats, and its own tokenizer in ``model``."""
    (folder.parent / "a.jsonl").write_text(
        "".join(json.dumps({"c": chats}) + "\n" for chats in CHATS[:2])
    )
    return folder.parent


SCHEMA = (
    "datacheck: 1\nname: chats\nsamples: {files: '{id}.jsonl', each: line}\n"
    "tokenizer: {path: model, max_length: 64}\nfields: {c: {role: chat, train_on: assistant}}\n"
)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "tokenizer.json"])
def test_a_file_of_a_tokenizer_in_the_data_that_becomes_a_link_is_not_followed(
    data, name, tmp_path_factory
):
    outside = tmp_path_factory.mktemp("outside") / name
    placed = parse_schema(SCHEMA).placed([], data)
    Tokenizer(placed.tokenizer.path)  # the control
    source = data / "model" / name
    outside.write_bytes(source.read_bytes() if source.exists() else b"SECRET")
    source.unlink(missing_ok=True)
    source.symlink_to(outside)
    with pytest.raises(UsageError, match="cannot be read"):
        Tokenizer(placed.tokenizer.path)
    source.unlink()
    (data / "beside").write_bytes(outside.read_bytes())
    source.symlink_to("../beside")  # inside of the data it is followed
    Tokenizer(placed.tokenizer.path)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("path", ["model", "../DATA/model", "PARENT/DATA/model"])
def test_a_link_in_the_data_is_not_followed_however_the_tokenizer_is_named(
    data, name, path, tmp_path_factory
):
    path = path.replace("DATA", data.name).replace("PARENT", str(data.parent))
    Tokenizer(located(data, path))  # the control
    outside, source = tmp_path_factory.mktemp("outside") / name, data / "model" / name
    outside.write_bytes(source.read_bytes() if source.exists() else b"SECRET")
    source.unlink(missing_ok=True)
    source.symlink_to(outside)
    with pytest.raises(UsageError):
        Tokenizer(located(data, path))
    step = Tokenize(field="c", tokenizer=path).placed(data).below(data)
    with pytest.raises(UsageError):
        step.identity()


def test_a_folder_beside_the_data_may_be_of_links(folder, tmp_path):
    """It is the user who names it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "hub").symlink_to(folder)
    expected = json.loads((folder / "tokenizer.json").read_text())
    words = set(expected["model"]["vocab"]) | {
        token["content"] for token in expected["added_tokens"]
    }
    for path in ("../hub", str(tmp_path / "hub")):
        assert Tokenizer(located(tmp_path / "data", path)).size == len(words)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "tokenizer.json"])
def test_a_tokenizer_of_holes_costs_no_other_file(data, name, monkeypatch):
    monkeypatch.chdir(data.parent)
    with (data / "model" / name).open("wb") as file:
        file.truncate(500 << 30)
    report = run_scan(parse_schema(SCHEMA), Request(data)).report
    assert (report.dataset["samples"]["checked"], report.crashes) == (2, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ 9 ** (9 ** 10) }}", None),
        ("{{ messages|length ** 99999999 * 9 ** 99999999 }}", None),
        ("{{ 'a' * 10 ** 10 }}", None),
        ("{{ [0] * 99999999 }}", None),
        ("{{ 50000 * ('a' * 50000) }}", None),
        (
            "{{ 2 ** 10 }} {{ 3 * 4 }} {{ 'ab' * 3 }} {{ 2 ** 0.5 * 2 ** 0.5 }}",
            "1024 12 ababab 2.0000000000000004",
        ),
    ],
)
def test_a_template_multiplies_within_a_size(folder, text, said):
    """One power took hours: nothing ends it between two steps of Python."""
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": text}))
    tokenizer = Tokenizer(folder)
    if said is not None:
        assert tokenizer.chat(CHATS[0]) == said
        return
    with pytest.raises(ValueError, match="too large"):
        tokenizer.chat(CHATS[0])


def test_a_template_without_end_is_named_and_tried_once(folder):
    config = folder / "tokenizer_config.json"
    said = json.loads(config.read_text())
    said["chat_template"] = (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
    config.write_text(json.dumps(said))
    tokenizer, began = Tokenizer(folder), time.process_time()
    first, *others = map(str, tokenizer.chats(CHATS[:1] * 50))
    assert first == "the chat template took more than 1 s for one chat"
    assert set(others) == {
        f"the chat template took more than 1 s for a short chat beside it; {UNTRIED}"
    }
    assert time.process_time() - began < 10
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_a_long_chat_that_is_too_costly_has_no_other_refused(folder, monkeypatch):
    """One of 500,000 messages made errors of all chats that the same process read after it."""
    monkeypatch.setattr(datacheck.tokenization, "_TEMPLATE_S", 0.2)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with_template(
        folder, "{% if messages | length > 2 %}" + loops + "{% endif %}{{ messages[0].content }}"
    )
    tokenizer, short, long = Tokenizer(folder), chat("Hello", "Hi"), chat("Hello", "Hi") * 500
    began = time.process_time()
    made = list(map(str, tokenizer.chats([long, short, *[long] * 54, short])))
    assert time.process_time() - began < 5  # 10 s where each is tried
    assert (made[1], made[-1]) == ("Hello", "Hello")
    assert {made[0], *made[2:6]} == {"the chat template took more than 0.2 s for one chat"}
    assert set(made[6:-1]) == {
        f"the chat template took more than 0.2 s for 5 other long chats beside it; {UNTRIED}"
    }
    turns = chat("Hello", "Hi") * 2  # one that a short chat is too much for
    made = list(map(str, tokenizer.chats([turns, short])))
    assert [one.endswith(UNTRIED) for one in made] == [False, True]


def test_costly_chats_of_one_block_have_none_of_another_refused(folder, monkeypatch):
    """The count lay in the process: which chats were refused depended on the files and workers before."""
    monkeypatch.setattr(datacheck.tokenization, "_TEMPLATE_S", 0.1)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with_template(
        folder,
        "{% if messages[0].content == 'slow' %}" + loops + "{% endif %}{{ messages[0].content }}",
    )
    tokenizer = Tokenizer(folder)
    for costly in (chat("slow", "Hi"), *[chat("slow", "Hi") * 500] * 6):
        assert "for one chat" in str(*tokenizer.chats([costly]))
    assert list(tokenizer.chats([chat("Hello", "Hi"), chat("Hello", "Hi") * 500])) == [
        "Hello",
        "Hello",
    ]


def test_chats_that_a_template_was_not_tried_for_are_counted_apart(folder, monkeypatch):
    """All six were "refused", of which the template had seen five."""
    monkeypatch.setattr(datacheck.tokenization, "_TEMPLATE_S", 0.1)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with_template(
        folder, "{% if messages | length > 2 %}" + loops + "{% endif %}{{ messages[0].content }}"
    )
    findings, *_ = scan([chat("Hello", "Hi") * 500] * 6, folder)
    (said,) = [f.message for f in findings if f.kind == "refused"]
    assert (
        "5 samples cannot be tokenized (the chat template took more than 0.1 s for one chat) and "
        "was not tried for 1 more" in said
    )


def test_counts_are_those_of_the_tokenizer_itself(folder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = (
        "<|im_start|>user\nWhat is a voxel?<|im_end|>\n<|im_start|>assistant\nA small "
        "cube.<|im_end|>\n"
    )
    answer = "A small cube.<|im_end|>\n"
    *_, table = scan(CHATS[:1], folder)
    assert table.columns[":c:trained"].values[0] == len(tokenizer.encode(answer).ids)
    assert table.columns[":c:marker"].values[0] == len(tokenizer.encode(text).ids) - len(
        tokenizer.encode(answer).ids
    )


def test_without_a_tokenizer_bytes_decide_where_they_can():
    findings, verdict, _ = scan(CHATS, most=600)
    assert {f.kind: f.rows.tolist() for f in findings} == {"mute": [1]}
    assert verdict.checked == 2  # the long prompt and the leading space stay open
    assert "2 samples not judged: no tokenizer is named" in said(verdict)


def test_when_bytes_decide_nothing_the_verdict_is_skip():
    _, verdict, _ = scan(CHATS[2:], most=600)
    assert (verdict.verdict, verdict.checked) == ("skip", 0)


def test_a_missing_library_is_named(folder, monkeypatch):
    def absent(module, extra):
        raise MissingDependencyError(f"{module} is not installed: pip install 'datacheck[{extra}]'")

    monkeypatch.setattr(datacheck.tokenization, "require", absent)
    chat_turns._tokenizer_or_reason.cache_clear()
    try:
        _, verdict, _ = scan(CHATS[2:], folder, most=600)
    finally:
        chat_turns._tokenizer_or_reason.cache_clear()
    assert "pip install 'datacheck[text]'" in said(verdict)


def test_a_broken_tokenizer_is_a_reason_and_no_crash(folder):
    (folder / "tokenizer.json").write_text("{}")
    _, verdict, _ = scan(CHATS[2:], folder, most=600)
    assert (
        "no tokenizer with a chat template can be read there; say tokenizer: {path: FOLDER} ("
        in said(verdict)
    )


HALF = "\ud83d"  # of a pair of UTF-16, as JSON may spell it


@pytest.mark.parametrize(
    "config",
    [
        "[" * 100_000,
        '{"chat_template": [1]}',
        '{"chat_template": [{}]}',
        '{"chat_template": 7}',
        '{"bos_token": 5}',
        '{"bos_token": {}}',
        json.dumps({"chat_template": HALF}),
        json.dumps({"bos_token": HALF}),
        "[0," * 3_000_000,
    ],
)
def test_a_broken_configuration_of_a_tokenizer_in_the_data_costs_no_sample(
    data, config, monkeypatch
):
    (data / "model/tokenizer_config.json").write_text(config)
    monkeypatch.chdir(data.parent)
    report = run_scan(parse_schema(SCHEMA), Request(data)).report
    assert "DC101" not in {finding.code for finding in report.findings}
    assert "no tokenizer with a chat template can be read" in said(
        next(v for v in report.verdicts if v.code == "DC702")
    )


def test_a_template_that_doubles_a_text_is_refused_within_its_memory(data, monkeypatch):
    """It took 8 GB and two minutes, and ended the scan."""
    doubled = (
        "{% set x = namespace(a='a' * 100000) %}{% for i in range(40) %}{% set x.a = x.a ~ "
        "x.a %}{% endfor %}"
    )
    with_template(data / "model", doubled + "{{ x.a }}")
    monkeypatch.chdir(data.parent)
    report = run_scan(parse_schema(SCHEMA), Request(data)).report
    finding = next(f for f in report.findings if (f.code, f.kind) == ("DC702", "refused"))
    assert "the chat template took too much memory for one chat" in finding.message


@pytest.mark.parametrize("text", ["{{ 'a' | center(900000) }}", "{{ 'a' * 90000 ~ 'b' * 90000 }}"])
def test_a_template_that_makes_far_more_than_the_chat_is_refused(folder, text):
    with_template(folder, text)
    with pytest.raises(ValueError, match=r"makes a text of .*000 letters of a chat of"):
        Tokenizer(folder).chat(CHATS[0])


def test_a_tokenizer_that_ends_its_process_costs_no_sample(data, monkeypatch):
    """Its library aborts where memory is short, and each file counted as unreadable."""
    said_of = json.loads((data / "model/tokenizer.json").read_text())
    many = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 10_000}
    said_of["normalizer"] = {"type": "Sequence", "normalizers": [many, many]}
    (data / "model/tokenizer.json").write_text(json.dumps(said_of))
    monkeypatch.chdir(data.parent)
    report = run_scan(parse_schema(SCHEMA), Request(data)).report
    assert "DC101" not in {finding.code for finding in report.findings}
    assert chat_turns.FAILED in said(next(v for v in report.verdicts if v.code == "DC702"))


def with_template(folder, template):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    chat_turns._tokenizer_or_reason.cache_clear()


def test_a_template_that_refuses_a_chat_fails_that_sample_only(folder):
    rule = "{% if messages[0].content == 'Hi.' %}{{ raise_exception('say more') }}{% endif %}"
    with_template(folder, rule + TEMPLATE)
    findings, _, _ = scan([CHATS[0], chat("Hi.", "Hello.")], folder)
    assert [(f.kind, f.rows.tolist()) for f in findings] == [("refused", [1])]
    assert "say more" in findings[0].message


def test_a_template_runs_in_a_sandbox(folder):
    with_template(folder, "{{ ''.__class__.__mro__[1].__subclasses__() }}" + TEMPLATE)
    findings, _, _ = scan(CHATS[:1], folder)
    assert [f.kind for f in findings] == ["refused"]


def test_tools_and_tool_calls_that_are_text_are_parsed_before_the_template_sees_them(folder):
    with_template(
        folder,
        "{{ tools[0].name }}{% for m in messages %}{{ m.tool_calls[0].id if m.tool_calls }}{% "
        "endfor %}" + TEMPLATE,
    )
    encoder = datacheck.tokenization.Tokenizer(folder)
    messages = [
        {"role": "system", "content": "s", "tools": '[{"name": "t1"}]'},
        {"role": "assistant", "content": "a", "tool_calls": '[{"id": "c9"}]'},
    ]
    assert encoder.chat(messages).startswith("t1c9")


def test_rows_depend_on_the_tokenizers_bytes(folder):
    schema = schema_of({"fields": {"c": {"role": "chat"}}, "tokenizer": {"path": str(folder)}})
    before = trained.settings(schema)
    assert before == trained.settings(schema)
    with_template(folder, TEMPLATE + " ")
    assert trained.settings(schema) != before


def test_a_text_of_white_space_has_nothing_to_learn_from():
    schema = schema_of("fields: {t: {role: text, min_trained_tokens: 1}}")
    pieces = [
        ("", Piece(f"s{n}", {"t": text}, Origin("")))
        for n, text in enumerate(["some words", " \n", ""])
    ]
    (finding,) = (f for f in judged(schema, measured(schema, pieces)).findings if f.code == "DC702")
    assert finding.rows.tolist() == [1, 2]


def test_turns_in_the_words_of_sharegpt_are_turns():
    chat = [{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "A test."}]
    mute = chat[:1]
    field = {"role": "chat", "train_on": "gpt", "min_trained_tokens": 1}
    schema = schema_of({"fields": {"c": field}})
    pieces = [
        ("", Piece(f"s{i}", {"c": value}, Origin(f"s{i}"), "", {}))
        for i, value in enumerate([chat, mute])
    ]
    findings = judged(schema, measured(schema, pieces)).findings
    assert [(f.code, f.failed, f.examples) for f in findings] == [("DC702", 1, ("s1",))]


@pytest.mark.parametrize(
    ("spec", "value", "words"),
    [
        ({"role": "chat"}, "a plain answer of one text", "text where messages are declared"),
        ({"role": "text"}, [{"role": "user"}], "json where text is declared"),
        ({"dtype": "text"}, {"a": 1}, "json where text is declared"),
    ],
)
def test_a_chat_that_is_text_and_a_text_that_is_none_are_of_the_wrong_kind(spec, value, words):
    schema = schema_of(
        {"fields": {"c": spec | {"min_trained_tokens": 1} if "role" in spec else spec}}
    )
    pieces = [("", Piece("s0", {"c": value}, Origin("s0"), "", {}))]
    (finding,) = judged(schema, measured(schema, pieces)).findings
    assert finding.code == "DC122"
    assert words in finding.message
