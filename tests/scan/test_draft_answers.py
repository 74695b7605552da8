"""Drafts of extractive question answering: SQuAD's layout, and rows with answers as spans."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.infer.draft import draft
from datacheck.scan import scan
from datacheck.schema.load import parse_schema

WORDS = [
    f"{first}{last}"
    for first in ("br", "gl", "k\u00fc", "st", "v")
    for last in ("an", "ost", "ilm", "ur", "ek")
]


def articles(count, name, *, flagged):
    """Return articles of 4 paragraphs with 3 questions each; the third is unanswerable if `flagged`."""
    rng = random.Random(name)
    data = []
    for article in range(count):
        paragraphs = []
        for place in range(4):
            words = [rng.choice(WORDS) for _ in range(40)]
            words[10:10] = [f"{name}{article}", f"{place}"]  # the answer, once in the text
            answer = " ".join(words[10:12])
            context = " ".join(words) + "."
            span = {"text": answer, "answer_start": context.index(answer)}
            qas = []
            for number in range(3):
                is_impossible = flagged and number == 2
                question = {
                    "id": f"{name}-{article}-{place}-{number}",
                    "question": f"What is {words[number]} {number} of {words[5]} in {article}, {place}?",
                    "answers": [] if is_impossible else [span],
                }
                extra = {"plausible_answers": [span]} if is_impossible else {}
                qas.append(question | ({"is_impossible": is_impossible} if flagged else {}) | extra)
            paragraphs.append({"context": context, "qas": qas})
        data.append({"title": f"{name}_{article}", "paragraphs": paragraphs})
    return data


def questions(data):
    return [
        qa for article in data for paragraph in article["paragraphs"] for qa in paragraph["qas"]
    ]


def write(folder, train, dev):
    for name, data in (("train-v2.0", train), ("dev-v2.0", dev)):
        (folder / f"{name}.json").write_text(json.dumps({"version": "v2.0", "data": data}))


def codes(folder):
    report = scan(folder).report
    return [(f.code, f.kind, f.failed) for f in report.findings if f.severity != "info"]


@pytest.mark.parametrize("flagged", [False, True])
def test_each_question_of_squad_is_a_sample_and_clean_files_are_silent(tmp_path, flagged):
    write(tmp_path, articles(6, "train", flagged=flagged), articles(3, "dev", flagged=flagged))
    schema = parse_schema(draft(tmp_path).text)
    roles = {name: spec.role for name, spec in schema.fields.items() if spec.role}
    assert (
        roles.items()
        >= {"context": "text", "question": "text", "answers": "answers", "id": "id"}.items()
    )
    answers = schema.fields["answers"]
    assert (answers.spans_of, answers.unanswerable) == (
        "context",
        "is_impossible" if flagged else None,
    )
    report = scan(tmp_path).report
    assert report.dataset["samples"]["listed"] == (6 + 3) * 4 * 3
    assert [f.code for f in report.findings] == []


def test_faults_of_squad_are_named(tmp_path):
    # A copy of each span: the questions of a paragraph share one.
    train = json.loads(json.dumps(articles(6, "train", flagged=True)))
    asked = questions(train)
    asked[0]["answers"] = []  # though it is not impossible
    asked[3]["question"] = " "
    asked[6]["id"] = asked[7]["id"]
    for question in asked[9:12]:
        for answer in question["answers"]:
            answer["answer_start"] += 5
    write(tmp_path, train, articles(3, "dev", flagged=True))
    assert sorted(codes(tmp_path)) == [
        ("DC705", "empty", 1),
        ("DC717", "ids", 2),
        ("DC717", "none", 1),
        ("DC717", "span", 2),
    ]


def rows(shift):
    return [
        {
            "id": question["id"],
            "context": paragraph["context"],
            "question": question["question"],
            "answers": {
                "text": [answer["text"] for answer in question["answers"]],
                "answer_start": [answer["answer_start"] + shift for answer in question["answers"]],
            },
        }
        for article in articles(6, "train", flagged=False)
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("shift", [0, 1])
def test_rows_with_answers_are_judged_as_squad(tmp_path, form, shift):
    path = tmp_path / f"train.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(shift)))
    else:
        pq.write_table(pa.Table.from_pylist(rows(shift)), path)
    assert codes(tmp_path) == ([("DC717", "span", 6 * 4 * 3)] if shift else [])
