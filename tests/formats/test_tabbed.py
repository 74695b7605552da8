"""Lines of columns without a header are samples: pairs of sentences, pronunciation dictionaries."""

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from datacheck.errors import FormatError
from datacheck.formats import jsonl
from datacheck.formats.tabbed import Layout, is_table
from datacheck.infer.draft import draft
from datacheck.scan.start import scan
from datacheck.schema.load import parse_schema
from datacheck.sources.lines import _batches

PHONES = ("AA1", "B", "D", "EH0", "K", "L", "S", "T")
BLANK = object()


def _sentence(rng: random.Random, words: int = 8) -> str:
    return " ".join("".join(rng.choices("abcdefghij", k=rng.randint(3, 9))) for _ in range(words))


def _pairs(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    labels = ("entailment", "neutral")
    return [f"{_sentence(rng)}\t{_sentence(rng)}\t{labels[i % 2]}" for i in range(count)]


def _lexicon(separator: str, count: int = 200) -> list[str]:
    rng = random.Random(3)
    words = sorted({"".join(rng.choices("ABCDEFGH", k=7)) for _ in range(count)})
    return [f"{word}{separator}{' '.join(rng.choices(PHONES, k=5))}" for word in words]


def _write(folder: Path, name: str, lines: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    data = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / name).write_bytes(b"\n".join(data) + b"\n")


def _findings(folder: Path) -> dict[tuple[str, str], Any]:
    run = scan(folder)
    return {
        (finding.code, finding.kind): [run.table.keys[row] for row in finding.rows.tolist()]
        for finding in run.report.findings
    }


@pytest.mark.parametrize("ending", [".txt", ".tsv", ".tab"])
def test_pairs_of_sentences_are_a_sample_a_line_and_clean_ones_are_silent(tmp_path, ending):
    _write(tmp_path / "d", f"train{ending}", _pairs(1, 300))
    _write(tmp_path / "d", f"test{ending}", _pairs(2, 60))
    run = scan(tmp_path / "d")
    assert (len(run.table.keys), run.report.findings) == (360, [])
    schema = parse_schema(draft(tmp_path / "d").text)
    assert schema.samples.each == "line"
    assert sorted(schema.fields) == ["column0", "column1", "column2"]


@pytest.mark.parametrize(
    ("name", "separator"),
    [
        ("cmu.dict", "  "),
        ("cmu.dict", " "),
        ("cmu.dict", "\t"),
        ("lexicon.txt", "  "),
        ("lexicon.txt", "\t"),
    ],
)
def test_words_of_a_pronunciation_dictionary_are_samples(tmp_path, name, separator):
    lines = _lexicon(separator)
    _write(tmp_path / "clean", name, lines)
    run = scan(tmp_path / "clean")
    assert (len(run.table.keys), run.report.findings) == (len(lines), [])
    bad = [*lines[:90], lines[40], *lines[90:150], "ALONE", *lines[150:]]
    _write(tmp_path / "bad", name, bad)
    found = _findings(tmp_path / "bad")
    assert found == {("DC803", ""): [f"{name}:{90:012d}"], ("DC701", ""): [f"{name}:{151:012d}"]}


def test_faults_of_lines_are_named_by_line_and_the_others_are_read(tmp_path):
    train, test = _pairs(1, 300), _pairs(2, 60)
    test[5] = train[7]
    train[20] = train[10]
    train[40] = train[40].rpartition("\t")[0]
    train[50] = train[50].encode().replace(b" ", b"\xff", 1)
    train.insert(100, "")
    _write(tmp_path / "d", "train.txt", train)
    _write(tmp_path / "d", "test.txt", test)
    run = scan(tmp_path / "d")
    found = _findings(tmp_path / "d")
    assert found == {
        ("DC701", ""): [f"train.txt:{40:012d}", f"train.txt:{50:012d}"],
        ("DC701", "empty"): [],
        ("DC801", "test"): [f"test.txt:{5:012d}"],
        ("DC803", ""): [f"train.txt:{20:012d}"],
    }
    assert len(run.table.keys) == 360
    (bad,) = (f for f in run.report.findings if f.code == "DC701" and not f.kind)
    start = sum(len(line) + 1 for line in train[:40])
    expected = f"line 41 (byte {start:,}): 2 columns; most of the first lines of the file have 3"
    assert bad.measured["first"] == expected


def test_numbers_are_numbers_where_all_of_the_first_lines_have_them():
    head = b"a b\t1\t0.5\t007\nc d\t-2\t3\t008\n"
    layout = Layout.of("x.txt", head)
    assert (layout.width, layout.numbers) == (4, {1: int, 2: float})
    values = layout.values(0, 0, head + b"\r\ne f\tx\t1e3\t9\n", BLANK)
    names = ("column0", "column1", "column2", "column3")
    rows = [("a b", 1, 0.5, "007"), ("c d", -2, 3.0, "008"), ("e f", "x", 1000.0, "9")]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    assert values == [*records[:2], BLANK, records[2]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a\tb\tc\n", "line 5 (byte 100): 3 columns; most of the first lines of the file have 2"),
        (b"a\n", "line 5 (byte 100): 1 column; most of the first lines of the file have 2"),
        (b"a\tb\0\n", "line 5 (byte 100): holds a zero byte at byte 3 of the line"),
        (b"a\rb\tc\n", "line 5 (byte 100): holds a carriage return at byte 1 of the line"),
        (b"a\t\xc3\n", "line 5 (byte 100): not UTF-8: byte 2 of the line is 0xc3"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line, reason):
    (value,) = Layout.of("x.txt", b"a\tb\nc\td\n").values(4, 100, line, BLANK)
    assert isinstance(value, FormatError)
    assert (str(value), value.code) == (reason, "DC701")


@pytest.mark.parametrize(
    "text",
    [
        "sentence1\tsentence2\tlabel\na b\tc d\tyes\ne f\tg h\tno\n",  # names of columns
        "my text\tscore\na b\t1\nc d\t2\n",  # a column of numbers below its name
        "1\t2\n3\t4\n",  # numbers only
        "one line\twith a tab\n",
        "a text.\n\tAn indented line.\nAnother.\nAnd one more.\n",
        "\tindented\n\tthroughout, as code is\n",
        '{"a":\t1}\n{"a":\t2}\n',
        "#id\ttext\na1\tb c\na2\td e\n",
        "nul\tbyte\nnul\tbyte\0\n",
        "",
    ],
)
def test_other_texts_are_no_lines_of_columns(text):
    assert not is_table("a.txt", text.encode())


@pytest.mark.parametrize(
    "lines",
    [
        ["source text\ttarget text", "a b\tc d", "e f\tg h"],
        ["question?\tanswer", "a b\tc d", "e f\tg h"],
        ["text (en)\ttext (de)", "a b\tc d", "e f\tg h"],
        ["word\tclass", "word\tnoun", "run\tverb", "cat\tnoun", "go\tverb"],
        ["text\tlabel", "a b\tyes", "text\tno", "c d\tyes"],
        ["id\t2019\t2020", "a1\t5\t6 kg", "a2\t7\t8 kg"],
        ["sentence\tlabel", "a b\tlabel", "c d\tother", "sentence\tlabel", "e f\tother"],
        ["cat\tKatze", "dog\tHund", "cow\tKuh"],  # taken for names
    ],
)
def test_tsv_begins_with_names_unless_its_first_line_is_content(lines):
    text = "\n".join(lines) + "\n"
    for name in ("a.tsv", "a.TSV.gz"):
        assert not is_table(name, text.encode())


@pytest.mark.parametrize(
    "lines",
    [
        ["a b\t1\tx", "c d\t0\ty", "e f\t1\tz"],  # a number
        ["007\ta b", "x8\tc d", "x9\te f"],
        ["a b\tyes", "c d\tno", "e f\tyes", "g h\tno"],  # a label
        ["a b\tquestion", "c d\tanswer", "e f\tquestion", "g h\tanswer"],
    ],
)
def test_content_in_the_first_line_of_tsv_is_a_sample(lines):
    assert is_table("a.tsv", ("\n".join(lines) + "\n").encode())


@pytest.mark.parametrize("comments", [[";;; made by hand"], ["# one", "", "#two"], []])
def test_comments_at_the_start_are_no_samples_and_later_ones_are(tmp_path, comments):
    lines = [*comments, *_lexicon("  ")]
    _write(tmp_path / "d", "cmu.dict", lines)
    run = scan(tmp_path / "d")
    assert (len(run.table.keys), run.report.findings) == (len(lines) - len(comments), [])
    tweets = [*comments, *_pairs(1, 30), "#fun is good\t;;;\tneutral", *_pairs(2, 30)]
    _write(tmp_path / "tweets", "train.tsv", tweets)
    run = scan(tmp_path / "tweets")
    assert (len(run.table.keys), run.report.findings) == (61, [])
    # A first line with "#" and tabs is a sample.
    _write(tmp_path / "first", "train.tsv", ["#fun is good\tso it is\tneutral", *_pairs(1, 30)])
    assert len(scan(tmp_path / "first").table.keys) == 31


def test_integers_of_one_pronunciation_dictionary_are_the_floats_of_another(tmp_path):
    for name, number in (("a", "1"), ("b", "0.5")):
        lines = [f"{name}word{i}  {number}" for i in range(40)]
        _write(tmp_path / "d", f"{name}.dict", lines)
    assert _findings(tmp_path / "d") == {}


def test_many_files_of_columns_stay_a_sample_each(tmp_path):
    for i in range(7):
        _write(tmp_path / "d", f"{i}.txt", _pairs(i, 5))
    assert parse_schema(draft(tmp_path / "d").text).samples.each is None


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_wanted_lines_alone_are_parsed_and_gzip_is_read_on(tmp_path, monkeypatch, ending):
    data = "".join(f"word{i}\tpart {i}\n" for i in range(400)).encode()
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    monkeypatch.setattr(jsonl, "_PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(jsonl, "READ_ON", jsonl._ForwardReader())
    starts = list[int]()
    piece_of = jsonl._pieces

    def counted(file: Any, *span: int) -> Any:
        starts.append(1)
        return piece_of(file, *span)

    monkeypatch.setattr(jsonl, "_pieces", counted)
    for number in (100, 101, 300):
        found = [(n, values) for n, values in _batches(path, wanted=[number]) if values]
        assert found == [(number, [{"column0": f"word{number}", "column1": f"part {number}"}])]
    assert len(starts) == (1 if ending.endswith(".gz") else 3)
