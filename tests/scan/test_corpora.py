"""Parallel text: ``train.de`` and ``train.en``, of which a line each is a sample."""

import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.formats.base import open_container
from datacheck.infer.draft import draft
from datacheck.scan import Request, run_scan, scan
from datacheck.schema.load import parse_schema

SIDES = ("cs", "de", "en")


def sentences(side, name, count=40):
    """Return sentences of which no two are equal; those of one number have nearly the same length in all languages."""
    rng = np.random.default_rng(sum(name.encode()))
    lengths = rng.integers(5, 40, count)
    return [
        " ".join([f"{side}{name}{i}", *[f"{side}{n}" for n in range(n)]])
        for i, n in enumerate(lengths)
    ]


def corpus(folder, names=("train", "val", "test_2016", "test_2017"), tail=".tok", without=()):
    folder.mkdir()
    for name in names:
        for side in SIDES:
            if (name, side) not in without:
                lines = sentences(side, name)
                (folder / f"{name}{tail}.{side}").write_text(
                    "\n".join(lines) + "\n", encoding="utf-8"
                )
    return folder


def found(data):
    schema = parse_schema(draft(data).text)
    return run_scan(schema, Request(data)).report.findings


def test_a_draft_takes_a_line_of_each_file_as_one_sample(tmp_path):
    data = corpus(tmp_path / "data", without=[("test_2016", "cs"), ("test_2017", "cs")])
    schema = parse_schema(draft(data).text)
    assert schema.samples.files == ("{split}.tok.de",)
    assert schema.samples.each == "row"
    assert {name: spec.file for name, spec in schema.fields.items()} == {
        "cs": "{split}.tok.cs",
        "de": None,
        "en": "{split}.tok.en",
    }
    assert [name for name, spec in schema.fields.items() if spec.optional] == ["cs"]
    report = run_scan(schema, Request(data)).report
    assert [finding.message for finding in report.findings] == []
    assert report.valid == 4 * 40


def test_a_file_that_lacks_lines_is_named_with_both_numbers(tmp_path):
    data = corpus(tmp_path / "data")
    (data / "train.tok.de").write_text("\n".join(sentences("de", "train")[:-3]) + "\n")
    messages = [finding.message for finding in found(data) if finding.code == "DC101"]
    assert len(messages) == 1
    assert "de has 37 rows, cs has 40" in messages[0]


def test_lines_of_a_test_split_in_the_training_split_are_found(tmp_path):
    data = corpus(tmp_path / "data")
    for side in SIDES:
        lines = sentences(side, "train")
        lines[10:22] = sentences(side, "test_2016")[:12]
        (data / f"train.tok.{side}").write_text("\n".join(lines) + "\n")
    (finding,) = [finding for finding in found(data) if finding.code == "DC801"]
    assert len(finding.rows) == 12


@pytest.mark.parametrize(
    "names",
    [
        [f"train-{number:05}" for number in range(4)],
        ["train.part1", "train.part2", "train.part3", "valid"],
        ["train-aa", "train-ab", "train-ac", "train-ad"],
    ],
    ids=lambda names: names[0],
)
def test_shards_of_one_split_are_no_splits(tmp_path, names):
    data = corpus(tmp_path / "data", names=names, tail="")
    for number in (0, 2):  # an everyday sentence
        for side in SIDES:
            path = data / f"{names[number]}.{side}"
            path.write_text(
                path.read_text() + f"{side} a sentence of every day, in two of the shards\n"
            )
    schema = parse_schema(draft(data).text)
    assert schema.samples.files == ("{id}.cs",)
    assert not [finding for finding in found(data) if finding.code == "DC801"]


def test_training_texts_of_other_names_are_no_shards(tmp_path):
    """Two of them ended all splits: no line of the test split was compared with those of training."""
    data = corpus(tmp_path / "data", names=("train.clean", "train.noisy", "test"), tail="")
    for side in SIDES:
        lines = sentences(side, "train.clean")
        lines[10:22] = sentences(side, "test")[:12]
        (data / f"train.clean.{side}").write_text("\n".join(lines) + "\n")
    (finding,) = [finding for finding in found(data) if finding.code == "DC801"]
    assert len(finding.rows) == 12


def test_a_control_character_hides_no_side_of_a_corpus(tmp_path):
    data = corpus(tmp_path / "data")
    path = data / "train.tok.de"
    path.write_text(path.read_text().replace(" ", " \x0b", 1))
    report = run_scan(parse_schema(draft(data).text), Request(data)).report
    assert report.valid == 4 * 40
    assert not [finding for finding in report.findings if finding.code == "DC101"]


def test_an_array_that_is_called_lines_is_no_text(tmp_path):
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", lines=np.ones((20, 4)))
    schema = parse_schema(draft(tmp_path).text)
    assert schema.samples.each is None
    assert schema.fields["lines"].shape is not None


def test_source_code_of_two_languages_is_no_parallel_text(tmp_path):
    for number in range(6):
        (tmp_path / f"sort_{number}.cs").write_text("int x;\n" * (30 + 7 * number))
        (tmp_path / f"sort_{number}.pl").write_text("my $x;\n" * (50 - 3 * number))
    with pytest.raises(UsageError, match="no format reads any of its 12 files"):
        draft(tmp_path)


def test_other_files_that_are_most_of_the_data_are_drafted(tmp_path):
    data = corpus(tmp_path / "data")
    np.save(data / "points.npy", np.zeros((1 << 16, 3)))
    assert "points.npy" in draft(data).text


def test_a_scan_without_a_schema_drafts_one_and_names_init(tmp_path):
    lines = []
    run = scan(corpus(tmp_path / "data"), output=tmp_path / "out", report=lines.append)
    assert run.schema.samples.each == "row"
    assert {field.role for field in run.schema.fields.values()} == {"text"}
    assert f"datacheck init {tmp_path / 'data'}, then scan" in lines[-1]


def test_only_line_feeds_end_lines(tmp_path):
    (tmp_path / "a.de").write_bytes("eins\u2028zwei\x85drei\r\n\nvier\x0cf".encode())
    with open_container(tmp_path / "a.de") as container:
        assert container.read("lines") == ["eins\u2028zwei\x85drei", "", "vier\x0cf"]
