"""DC716: marks of pictures, videos and sounds against what the sample holds."""

import json

import pytest

from datacheck.model.sample import Origin, Piece
from datacheck.scan.start import scan
from tests.rules.harness import judged, measured, schema_of

FIELDS = {
    "c": {"role": "chat", "images": "images", "videos": "videos"},
    "images": {"dtype": "json", "optional": True},
    "videos": {"dtype": "json", "optional": True},
}


def turns(*texts):
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def findings(*samples, fields=FIELDS):
    schema = schema_of({"fields": fields})
    pieces = [("", Piece(f"s{n}", sample, Origin(""))) for n, sample in enumerate(samples)]
    found = judged(schema, measured(schema, pieces)).findings
    return {f.kind: (f.rows.tolist(), f.message) for f in found if f.code == "DC716"}


RIGHT = (
    {"c": turns("<image>What is it?", "A cube.", "<image> And this?", "A cone."), "images": ["a.jpg", "b.jpg"]},
    {"c": turns("What is a cube?", "A solid."), "images": []},
    {"c": turns("What is a cube?", "A solid."), "images": None},
    {"c": turns("What is a cone?", "A solid.")},
    {"c": turns("<image>What is it?", "A cube."), "images": "a.jpg"},
    {"c": turns([{"type": "image"}, {"type": "text", "text": "What is it?"}], "A cube."), "images": ["a.jpg"]},
    {"c": turns([{"type": "image_url", "image_url": {"url": "a.jpg"}}, {"type": "text", "text": "This?"}], "A cube.")},
    {"c": turns("<video>What happens?", "It falls."), "videos": ["a.mp4"]},
    {"c": turns("<|vision_start|><|image_pad|><|vision_end|>This?", "A cube."), "images": [{"path": "a.jpg"}]},
)  # fmt: skip


def test_as_many_marks_as_pictures_are_right():
    assert findings(*RIGHT) == {}


@pytest.mark.parametrize(
    ("sample", "kind", "said"),
    [
        ({"c": turns("<image>What?", "A cube."), "images": ["a", "b"]}, "fewer images", "1 mark and 2 pictures"),
        ({"c": turns("<image><image>What?", "A cube."), "images": ["a"]}, "more images", "2 marks and 1 picture"),
        ({"c": turns("<image>What?", "A cube.")}, "more images", "1 mark and 0 pictures"),
        ({"c": turns("<image>What?", "A cube."), "images": ["", None]}, "more images", "0 pictures"),
        ({"c": turns("What?", "A cube."), "videos": ["a.mp4"]}, "fewer videos", "0 marks and 1 video"),
        ({"c": turns([{"type": "image"}], "A cube."), "images": []}, "more images", "1 mark and 0 pictures"),
    ],
)  # fmt: skip
def test_other_numbers_are_told(sample, kind, said):
    found = findings(*RIGHT, sample)
    assert found.keys() == {kind}
    assert found[kind][0] == [len(RIGHT)]
    assert said in found[kind][1]


def test_marks_of_the_prompt_count():
    fields = {
        "p": {"role": "chat"},
        "c": {"role": "chat", "continues": "p", "images": "images"},
        "images": {"dtype": "json"},
    }
    pair = {"p": turns("<image>What?"), "c": [{"role": "assistant", "content": "A cube."}]}
    assert findings(pair | {"images": ["a"]}, fields=fields) == {}
    assert findings(pair | {"images": []}, fields=fields)["more images"][0] == [0]


@pytest.mark.parametrize("name", ["images", "image"])
def test_a_draft_judges_marks_where_chats_have_some(tmp_path, name):
    value = ["a.jpg"] if name == "images" else "a.jpg"
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jpg").write_bytes(b"\xff\xd8\xff")
    rows = [
        {"messages": turns(f"<image>What is number {n}?", f"Thing {n} of the row."), name: value}
        for n in range(30)
    ]
    rows[7]["messages"][0]["content"] = "What is it?"
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "d" / "train.jsonl").write_text(lines)
    report = scan(tmp_path / "d", output=tmp_path / "out").report
    (finding,) = [f for f in report.findings if f.code == "DC716"]
    assert (finding.kind, finding.failed) == ("fewer images", 1)


def test_a_draft_judges_no_marks_where_the_trainer_inserts_them(tmp_path):
    """TRL puts the pictures before the first question itself."""
    (tmp_path / "d").mkdir()
    rows = [
        {"messages": turns(f"What is number {n}?", f"Thing {n} of the row."), "images": ["a.jpg"]}
        for n in range(30)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "d" / "train.jsonl").write_text(lines)
    report = scan(tmp_path / "d", output=tmp_path / "out").report
    assert "DC716" not in {f.code for f in report.findings}
