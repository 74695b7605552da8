"""Sentences of a word and its tags on each line: how they are recognized, read, drafted and judged."""

import random
from pathlib import Path

import pytest

from datacheck.errors import FormatError
from datacheck.formats.conll import Layout, batches
from datacheck.formats.tabbed import HEAD_BYTES
from datacheck.infer.draft import draft
from datacheck.scan.start import scan
from datacheck.schema.load import parse_schema

NAMES = ("Oslo", "Lima", "Nairobi", "Quito", "Accra")
CLASSES = ("LOC", "ORG", "PER")


def _sentences(count: int, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Return sentences of (word, tag): small words, spans of two words that begin with a capital."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        rows = []
        for _ in range(rng.randint(2, 6)):
            words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 8))) for _ in range(3)]
            rows += [(word, "O") for word in words]
            name = rng.choice(CLASSES)
            rows += [(rng.choice(NAMES), f"B-{name}"), (rng.choice(NAMES), f"I-{name}")]
            rows.append((rng.choice(",;"), "O"))
        found.append([*rows[:-1], (".", "O")])
    return found


def _text(sentences: list[list[tuple[str, ...]]], separator: str = " ") -> bytes:
    blocks = ["\n".join(separator.join(row) for row in rows) for rows in sentences]
    return ("\n\n".join(blocks) + "\n").encode()


def _read(path: Path, wanted: list[int] | None = None) -> dict[int, object]:
    layout = Layout.of(path.read_bytes()[:HEAD_BYTES])
    assert layout is not None
    return {
        first + i: value
        for first, values in batches(path, layout, wanted)
        for i, value in enumerate(values)
    }


@pytest.mark.parametrize("separator", [" ", "\t", "  "])
def test_sentences_are_records_of_words_and_tags(tmp_path, separator):
    sentences = _sentences(600)
    (tmp_path / "a.txt").write_bytes(_text(sentences, separator))
    found = _read(tmp_path / "a.txt")
    assert len(found) == 600
    for number in (0, 255, 256, 599):
        words, tags = zip(*sentences[number], strict=True)
        assert found[number] == {"words": list(words), "tags": list(tags)}
    assert _read(tmp_path / "a.txt", [3, 400]) == {number: found[number] for number in (3, 400)}


def test_columns_between_words_and_tags_and_marks_of_documents(tmp_path):
    rows = [[("In", "IN", "O"), ("Oslo", "NNP", "B-LOC")], [("#", "#", "O"), ("5", "CD", "O")]]
    start = b"\xef\xbb\xbf-DOCSTART- -X- O\r\n\r\n"
    (tmp_path / "a.conll").write_bytes(start + _text(rows * 2).replace(b"\n", b"\r\n"))
    found = _read(tmp_path / "a.conll")
    assert len(found) == 4
    assert found[0] == {"words": ["In", "Oslo"], "tags": ["O", "B-LOC"], "column1": ["IN", "NNP"]}
    assert found[1] == {"words": ["#", "5"], "tags": ["O", "O"], "column1": ["#", "CD"]}


def test_tags_may_be_the_first_column(tmp_path):
    rows = [[("O", "in"), ("B-LOC", "oslo")], [("O", "no"), ("O", "more"), ("I-LOC", "x")]]
    (tmp_path / "a.bio").write_bytes(_text(rows, "\t"))
    assert _read(tmp_path / "a.bio")[0] == {"words": ["in", "oslo"], "tags": ["O", "B-LOC"]}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"alone", r"sentence 3 \(line \d+\): 1 column; most .* have 2"),
        (b"ten thousand B-X", "3 columns"),
        (b"caf\xe9 O", r"byte 0xe9 is not UTF-8"),
    ],
)
def test_a_bad_line_is_told_and_the_other_sentences_are_read(tmp_path, line, why):
    sentences = _sentences(9)
    parts = _text(sentences).split(b"\n\n")
    parts[2] = parts[2].replace(b"\n", b"\n" + line + b"\n", 1)
    (tmp_path / "a.txt").write_bytes(b"\n\n".join(parts))
    found = _read(tmp_path / "a.txt")
    bad = found.pop(2)
    assert isinstance(bad, FormatError)
    assert bad.code == "DC701"
    with pytest.raises(FormatError, match=why):
        raise bad
    assert all(isinstance(value, dict) for value in found.values())
    assert len(found) == 8


@pytest.mark.parametrize(
    "text",
    [
        b"one two\nthree four\n\nfive six\nseven eight\n" * 30,
        b"a 1.5\nb 2.5\n\nc 3.5\nd 4.5\n" * 30,
        b"In O\nOslo B-LOC\n" * 30,
        b"x O\n\ny O\n\nz B-LOC\n\n" * 30,
        b"O\tO\nO\tO\n\nO\tO\n" * 30,
        b"In O\nOslo B-LOC\n\n\0",
        b"",
    ],
    ids=["verse", "numbers", "no sentences", "single words", "no span", "binary", "empty"],
)
def test_other_texts_are_no_such_sentences(text):
    assert Layout.of(text) is None


def _tagged_speech(words: int, blocks: int) -> bytes:
    rng = random.Random(0)
    known = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(words)]
    return _text(
        [
            [(rng.choice(known), rng.choice(["NOUN", "VERB", "ADP"])) for _ in range(8)]
            for _ in range(blocks)
        ]
    )


def test_parts_of_speech_are_tags_of_words_that_occur_again():
    assert Layout.of(_tagged_speech(100, 40)) is not None
    assert Layout.of(_tagged_speech(10_000, 40)) is None  # a word list with sections
    assert Layout.of(_tagged_speech(100, 8)) is None


def _scan(folder: Path, **files: list[list[tuple[str, str]]]) -> dict[tuple[str, str], list[str]]:
    folder.mkdir()
    for name, sentences in files.items():
        (folder / f"{name}.txt").write_bytes(_text(sentences))
    run = scan(folder)
    return {
        (finding.code, finding.kind): [run.table.keys[row] for row in finding.rows.tolist()]
        for finding in run.report.findings
    }


def test_sentences_are_samples_of_a_draft_and_clean_ones_are_silent(tmp_path):
    assert _scan(tmp_path / "d", train=_sentences(500), dev=_sentences(90, 1)) == {}
    schema = parse_schema(draft(tmp_path / "d").text)
    assert (schema.samples.each, sorted(schema.fields)) == ("line", ["tags", "words"])
    assert schema.duplicates.exact == "info"


def test_a_sentence_of_train_in_dev_is_named(tmp_path):
    train, dev = _sentences(500), _sentences(90, 1)
    dev[7] = train[3]
    found = _scan(tmp_path / "d", train=train, dev=dev)
    assert list(found.values()) == [["dev.txt:000000000007"]]
    assert [code for code, _ in found] == ["DC801"]


def test_a_class_with_another_name_in_a_block_is_named(tmp_path):
    train = _sentences(500)
    block = range(200, 240)
    for number in block:
        train[number] = [(word, tag.replace("PER", "PERS")) for word, tag in train[number]]
    wanted = [i for i in block if any(tag.endswith("PERS") for _, tag in train[i])]
    found = _scan(tmp_path / "d", train=train, dev=_sentences(90, 1))
    assert found == {("DC413", "block"): [f"train.txt:{i:012d}" for i in wanted]}


def test_similar_classes_in_sorted_data_are_two(tmp_path):
    """Data in the order of their classes hold one class in a block."""
    train = [
        [(word, tag[:2] + name if tag != "O" else tag) for word, tag in rows]
        for rows, name in zip(
            _sentences(600),
            [name for name in ("PER", "PERS", "ORG") for _ in range(200)],
            strict=True,
        )
    ]
    assert _scan(tmp_path / "d", train=train) == {}


def test_tags_one_word_late_in_some_sentences_are_named(tmp_path):
    train = [[row for row in rows if row[1][0] != "I"] for rows in _sentences(500)]
    late = range(100, 140)
    for number in late:
        words, tags = zip(*train[number], strict=True)
        train[number] = list(zip(words, ["O", *tags[:-1]], strict=True))
    found = _scan(tmp_path / "d", train=train)
    assert found == {("DC719", "mark"): [f"train.txt:{i:012d}" for i in late]}


def test_lost_empty_lines_make_a_sentence_too_long(tmp_path):
    train = _sentences(500)
    train[40:80] = [[row for rows in train[40:80] for row in rows]]
    found = _scan(tmp_path / "d", train=train)
    assert found == {("DC719", "long"): ["train.txt:000000000040"]}


def test_a_mark_of_a_document_belongs_to_no_sentence(tmp_path):
    rows = [[("In", "O"), ("Oslo", "B-LOC")], [("in", "O"), ("Lima", "B-LOC")]]
    (tmp_path / "a.bio").write_bytes(b"-DOCSTART- O\n" + _text(rows))
    assert [value["words"] for value in _read(tmp_path / "a.bio").values()] == [
        ["In", "Oslo"],
        ["in", "Lima"],
    ]
