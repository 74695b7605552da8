"""Lines of JSON-lines files are samples."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.errors import FormatError
from datacheck.formats import jsonl
from datacheck.sources import Item, Unread, open_source
from tests.sources.schemas import every, facts, schema

SFT = {"conversations": {"role": "chat"}}


def chat(text):
    return {
        "conversations": [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "你好"},
        ]
    }


def key(number, file="sft.jsonl"):
    return f"{file}:{number:012d}"


def lines_source(root, fields, **more):
    return open_source(schema({"files": "*.jsonl", "each": "line"}, fields, **more), root)


def test_lines_are_samples_with_numbered_keys(tmp_path):
    (tmp_path / "sft.jsonl").write_text(
        "".join(json.dumps(chat(f"q{i}"), ensure_ascii=False) + "\n" for i in range(3))
    )
    source = lines_source(tmp_path, SFT)
    samples, unread = every(source, Item("sft.jsonl", "train"))
    assert (list(samples), unread) == ([key(0), key(1), key(2)], [])
    assert samples[key(2)]["conversations"] == chat("q2")["conversations"]
    (block,) = source.read(Item("sft.jsonl", "train"))
    assert block.split == "train"
    assert block.fields["conversations"].kind == "json"
    assert block.origins[1].rows == (1, 2)


def test_text_is_text_and_other_values_are_what_they_are(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"text": "hi", "score": 1, "ids": [1, 2], "extra": [1, "x"], "no": null, "deep": {"lang": '
        '"zh"}}\n'
    )
    fields = {
        "text": {"role": "text"},
        "score": {"role": "value", "dtype": "float32"},
        "ids": {"role": "tokens"},
        "no": {},
        "lang": {"at": "deep/lang"},
        "*": {},
    }
    sample = every(lines_source(tmp_path, fields), Item("a.jsonl"))[0][key(0, "a.jsonl")]
    assert sorted(sample) == ["deep", "extra", "ids", "lang", "score", "text"]
    assert (sample["text"], sample["lang"], sample["extra"]) == ("hi", "zh", [1, "x"])
    assert (sample["score"].dtype, sample["score"].shape) == (np.float32, ())
    np.testing.assert_array_equal(sample["ids"], [1, 2])


def test_a_line_that_is_no_text_where_text_is_declared_is_not_hidden(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "hi"}\n{"text": 5}\n')
    source = lines_source(tmp_path, {"text": {"role": "text"}})
    blocks = list(source.read(Item("a.jsonl")))
    assert [(b.keys, b.fields["text"].kind) for b in blocks] == [
        ([key(0, "a.jsonl")], "text"),
        ([key(1, "a.jsonl")], "json"),
    ]


def test_bad_lines_are_unread_and_the_rest_is_read(tmp_path):
    (tmp_path / "sft.jsonl").write_bytes(
        b"\xef\xbb\xbf"
        + json.dumps(chat("a")).encode()
        + b'\n{"conversations": [\n\n[1, 2]\n'
        + json.dumps(chat("b")).encode()
    )
    fields = SFT | {"text": {"optional": True}}  # two fields: a bare list cannot be one of them
    samples, unread = every(lines_source(tmp_path, fields), Item("sft.jsonl"))
    assert list(samples) == [key(0), key(4)]
    assert [(u.key, u.code) for u in unread] == [(key(1), "DC701"), (key(3), "DC701")]
    assert "found a list" in unread[1].reason


def test_bare_values_are_the_only_field(tmp_path):
    (tmp_path / "a.jsonl").write_text('"one"\n"two"\n')
    samples, _ = every(lines_source(tmp_path, {"text": {"role": "text"}}), Item("a.jsonl"))
    assert [s["text"] for s in samples.values()] == ["one", "two"]


def test_gzip_and_lists_in_json_files(tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write('{"text": "x"}\n')
    (tmp_path / "b.json").write_text('[{"text": "y"}, {"text": "z"}]')
    source = open_source(
        schema({"files": "*", "each": "line"}, {"text": {"role": "text"}}), tmp_path
    )
    assert list(every(source, Item("a.jsonl.gz"))[0]) == [key(0, "a.jsonl.gz")]
    assert [s["text"] for s in every(source, Item("b.json"))[0].values()] == ["y", "z"]


def test_an_empty_file_is_a_format_error(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(FormatError, match="holds no line"):
        list(lines_source(tmp_path, SFT).read(Item("a.jsonl")))


def test_the_split_key_may_be_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "hi", "doc": "wiki/7"}\n{"text": "ho"}\n')
    source = lines_source(
        tmp_path, {"text": {"role": "text"}, "doc": {"role": "id"}}, splits={"key": "doc"}
    )
    told = facts(source, Item("a.jsonl", nbytes=0))
    assert told[key(0, "a.jsonl")]["split_key"] == "wiki/7"
    assert "split_key" not in told[key(1, "a.jsonl")]
    assert "id" not in told[key(1, "a.jsonl")]  # it is called by its key and by nothing else


def test_blocks_of_many_lines_are_cut_and_keep_their_order(tmp_path):
    count = 10_000
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{i}"}}\n' for i in range(count)))
    blocks = list(lines_source(tmp_path, {"text": {"role": "text"}}).read(Item("a.jsonl")))
    assert [len(b) for b in blocks] == [4096, 4096, 1808]
    assert [text for b in blocks for text in b.fields["text"].objects] == [
        str(i) for i in range(count)
    ]


def test_blocks_of_plain_lines_hold_more_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr("datacheck.sources.lines._LEAST_BYTES", 0)
    count = 20_000
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{i}"}}\n' for i in range(count)))
    blocks = list(lines_source(tmp_path, {"text": {"role": "text"}}).read(Item("a.jsonl")))
    assert [len(b) for b in blocks] == [16_384, 3616]
    assert [text for b in blocks for text in b.fields["text"].objects] == [
        str(i) for i in range(count)
    ]


def test_reading_the_first_lines_does_not_read_the_rest(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{i}"}}\n' for i in range(100)))
    batches, seen = jsonl.batches, []

    def counted(path, span, **asked):
        for first, values in batches(path, span, **asked):
            seen.extend(range(first, first + len(values)))
            yield first, values

    monkeypatch.setattr(jsonl, "batches", counted)
    item = Item("a.jsonl", keys=(key(10, "a.jsonl"), key(12, "a.jsonl")))
    assert list(every(lines_source(tmp_path, {"text": {"role": "text"}}), item)[0]) == list(
        item.keys
    )
    assert seen == [10, 11, 12]


@given(st.lists(st.integers(0, 12), max_size=8, unique=True))
def test_reading_some_keys_is_reading_all_and_choosing(tmp_path_factory, numbers):
    root = tmp_path_factory.mktemp("lines")
    lines = [f'{{"text": "{i}"}}' if i != 4 else "{" for i in range(10)]
    (root / "sft.jsonl").write_text("\n".join(lines))
    source = lines_source(root, {"text": {"role": "text"}})
    everything, _ = every(source, Item("sft.jsonl"))
    samples, unread = every(source, Item("sft.jsonl", keys=tuple(key(n) for n in numbers)))
    assert list(samples) == [key(n) for n in numbers if key(n) in everything]
    assert sorted(u.key for u in unread) == sorted(
        key(n) for n in numbers if key(n) not in everything
    )
    assert all(sample == everything[name] for name, sample in samples.items())


@pytest.mark.parametrize(
    "wrong", ["sft.jsonl", "sft.jsonl:1", "other.jsonl:000000000001", "sft.jsonl:00000000000x"]
)
def test_keys_of_another_form_are_answered(tmp_path, wrong):
    (tmp_path / "sft.jsonl").write_text('{"text": "a"}\n')
    samples, unread = every(
        lines_source(tmp_path, {"text": {"role": "text"}}), Item("sft.jsonl", keys=(wrong,))
    )
    assert (samples, [u.key for u in unread]) == ({}, [wrong])


# --------------------------------------------------------------------- many at once, and one by one

FIELDS = {
    "text": {"role": "text"},
    "score": {"role": "value", "dtype": "float32"},
    "n": {"role": "class", "dtype": "int8"},
    "ids": {"role": "tokens"},
    "chat": {"role": "chat"},
    "lang": {"at": "meta/lang"},
    "*": {},
}
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.just(2**63),
    st.just(2**70),
    st.floats(-1e3, 1e40),
    st.text(max_size=4),
    st.lists(st.integers(0, 9), max_size=3),
    st.just([1, "x"]),
    st.just([[1], [2, 3]]),
    st.just([{"role": "user", "content": "\u3000你好\n"}]),
    st.just({"lang": "zh"}),
    st.just({}),
)
RECORD = st.dictionaries(
    st.sampled_from(["text", "score", "n", "ids", "chat", "meta", "other", "meta/lang"]), VALUE
)
NASTY = st.sampled_from(
    [
        b"",
        b" ",
        b"\t\r",
        b"1,2",
        b"[1",
        b"2]",
        b'{"text": [1',
        b'{"text": "a"},{"text": "b"}',
        b"null",
        b"[]",
        b"{}",
        b'"bare"',
        b"7",
        b"{",
        b'{"text": "\xff"}',
        b'{"text": NaN}',
        b'{"text": "\\ud800"}',
        b'\xef\xbb\xbf{"text": "x"}',
        b'{"text": "a", "text": "b"}',
        b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}",
        b"[" * 1023 + b"]" * 1023,
        b"\x0b",
    ]
)
LINE = st.one_of(RECORD.map(lambda record: json.dumps(record, ensure_ascii=False).encode()), NASTY)


def told(source, item):
    """Return everything that is said of each line, as plain values."""
    found = {}
    for part in source.read_all([item], lambda number: None):
        if isinstance(part, Unread):
            assert part.key not in found
            found[part.key] = ("unread", part.code, part.reason)
            continue
        for i, one in enumerate(part.keys):
            assert one not in found
            fields = {
                n: (c.kind, c.values.dtype.str, c.shape(i), c[i].tobytes())
                for n, c in part.fields.items()
            }
            facts = {n: (c.kind, c.values.dtype.str, c[i].tobytes()) for n, c in part.facts.items()}
            found[one] = (fields, facts, part.origins[i], part.groups[i], list(part.fields))
    return found


@settings(max_examples=100)
@given(
    st.lists(LINE, max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.integers(40, 400),
)
def test_lines_parsed_together_are_what_they_are_one_by_one(
    tmp_path_factory, lines, newline, ends, piece
):
    root = tmp_path_factory.mktemp("lines")
    data = newline.join(lines) + (newline if ends and lines else b"")
    (root / "a.jsonl").write_bytes(data)
    source, item = lines_source(root, FIELDS, splits={"key": "lang"}), Item("a.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_together", lambda data, count: None)
        patch.setattr("datacheck.sources.lines.grouped", lambda fields, records: [(None, None)])
        slow = told(source, item)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_PIECE_BYTES", piece)
        assert told(source, item) == slow


def test_what_one_parse_takes_for_as_many_values_as_lines_is_not_taken_for_lines(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "a"},{"text": "b"}\n{"text": ["c"\n"d"]}\n{"text": "e"}\n'
    )
    samples, unread = every(lines_source(tmp_path, {"text": {"role": "text"}}), Item("a.jsonl"))
    assert list(samples) == [key(3, "a.jsonl")]
    assert [u.key for u in unread] == [key(n, "a.jsonl") for n in range(3)]


def test_what_is_nested_too_deep_to_be_written_again_is_that_line_alone(tmp_path):
    deep = "[" * 400 + "]" * 400
    (tmp_path / "a.jsonl").write_text(
        f'{{"chat": [1]}}\n{{"chat": {deep}}}\n{{"chat": [2], "left": {deep}}}\n'
    )
    samples, unread = every(lines_source(tmp_path, {"chat": {"role": "chat"}}), Item("a.jsonl"))
    # Nobody asks for what stands under "left"
    assert list(samples) == [key(0, "a.jsonl"), key(2, "a.jsonl")]
    assert [(u.code, u.reason[:23]) for u in unread] == [("DC701", "chat: nested too deep (")]


def test_a_line_of_15_mb_is_a_sample_like_any_other(tmp_path):
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(
            b'{"text": "before"}\n{"text": "' + b"x" * (15 << 20) + b'"}\n{"text": "behind"}'
        )
    samples, unread = every(lines_source(tmp_path, {"text": {"role": "text"}}), Item("a.jsonl"))
    assert [len(sample["text"]) for sample in samples.values()] == [6, 15 << 20, 6]
    assert unread == []


def test_blank_lines_alone_are_no_samples(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n \r\n\n")
    with pytest.raises(FormatError, match="holds no line"):
        list(lines_source(tmp_path, SFT).read(Item("a.jsonl")))


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_the_sample_behind_a_byte_order_mark_says_so(tmp_path, opened):
    path = tmp_path / ("sft.jsonl" if opened is open else "sft.jsonl.gz")
    with opened(path, "wb") as file:
        file.write(
            b"\xef\xbb\xbf" + b"".join(json.dumps(chat(f"q{i}")).encode() + b"\n" for i in range(3))
        )
    source = open_source(schema({"files": "*.jsonl*", "each": "line"}, SFT), tmp_path)
    (block,) = source.read(Item(path.name, ""))
    assert block.facts["bom"].values.tolist() == [True, False, False]
    path.unlink()
    with opened(path, "wb") as file:
        file.write(json.dumps(chat("q")).encode() + b"\n")
    (block,) = source.read(Item(path.name, ""))
    assert "bom" not in block.facts


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n",
            "a Git LFS pointer",
        ),
        (b"\n<!doctype html><html>\n" + b"<p>not found</p>\n" * 100, "an HTML or XML page"),
    ],
)
def test_what_stands_in_place_of_lines_is_no_bad_line(tmp_path, name, data, said):
    """A pointer was three lines that are no JSON, which fix offered to take out."""
    (tmp_path / name).write_bytes(data)
    source = open_source(schema({"files": "*", "each": "line"}, SFT), tmp_path)
    for item in (Item(name), Item(name, keys=(key(0, name),))):
        with pytest.raises(FormatError, match=said) as caught:
            list(source.read(item))
        assert caught.value.code == "DC102"
    if not name.endswith(".gz"):
        (tmp_path / name).write_bytes(json.dumps(chat("version https://git-lfs")).encode() + b"\n")
        assert list(every(source, Item(name))[0]) == [key(0, name)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{"text": "caf\u00e9"}\n'.encode("utf-16"), "text in UTF-16"),
        (
            b'[\r\n  {"text": "a"},\r\n  {"text": "b"}\r\n]\r\n',
            "one JSON document over several lines",
        ),
        (b'\xef\xbb\xbf{\n  "text": "a"\n}\n', "one JSON document over several lines"),
    ],
)
def test_a_file_that_is_no_lines_as_a_whole_has_no_bad_lines(tmp_path, data, said):
    """Each line was told alone, and fix offered to take them all out."""
    (tmp_path / "a.jsonl").write_bytes(data)
    source = open_source(
        schema({"files": "*", "each": "line"}, {"text": {"role": "text"}}), tmp_path
    )
    with pytest.raises(FormatError, match=said) as caught:
        list(source.read(Item("a.jsonl")))
    assert caught.value.code == "DC101"
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{\n')
    samples, unread = every(source, Item("a.jsonl"))
    assert (list(samples), [one.code for one in unread]) == ([key(0, "a.jsonl")], ["DC701"])
