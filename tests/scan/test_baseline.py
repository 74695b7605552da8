"""A baseline hides what is known, never a new sample, and says which of its entries are stale."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.model.finding import Finding, Level, Severity, Verdict
from datacheck.model.table import Texts
from datacheck.rules.engine import RuleResults
from datacheck.scan import Request, baseline, rescore, run_scan
from datacheck.schema.load import parse_schema
from tests.scan.conftest import make_table

SCHEMA = """
datacheck: 1
name: plain
samples: {files: "*.npy"}
fields: {x: {role: value, shape: [4], range: -100..100}}
rules: {DC108: off}    # the files of these tests change on purpose
"""


@pytest.fixture
def place(in_tmp):
    (in_tmp / "data").mkdir()
    for i in range(10):
        write(in_tmp, i, np.random.default_rng(i).normal(size=4))
    return in_tmp


def write(place, number, values):
    path = place / f"data/{number}.npy"
    np.save(path, np.asarray(values, np.float64))
    os.utime(path, (1e9, 1e9 + number))


def run(place, known=None):
    return run_scan(parse_schema(SCHEMA), Request(place / "data", baseline=known))


def made(place, run_):
    path = place / "baseline.json"
    path.write_bytes(
        baseline.make(run_.report.findings, run_.table, "plain", "2026-11-20", "old rig")
    )
    return path


def test_what_is_known_is_not_told_again_and_stays_invalid(place):
    write(place, 3, [500, 0, 0, 1])
    first = run(place)
    assert first.report.exit_code == 1
    again = run(place, made(place, first))
    assert (again.report.findings, again.report.exit_code, again.report.valid) == ([], 0, 9)
    verdict = next(v for v in again.report.verdicts if v.code == "DC224")
    assert (verdict.verdict, verdict.failed) == (Verdict.PASS, 1)
    assert "1 failing sample known to the baseline" in verdict.why
    excluded = json.loads((place / ".datacheck/latest/valid.json").read_text())["excluded"]
    assert excluded == {"3.npy": ["DC224"]}


def test_a_new_sample_is_told_with_its_own_examples(place):
    write(place, 3, [500, 0, 0, 1])
    known = made(place, run(place))
    write(place, 5, [0, 900, 0, 1])
    (found,) = run(place, known).report.findings
    assert (found.examples, found.rows.tolist()) == (("5.npy",), [5])
    assert found.message.endswith("1 of these 2 samples are known to the baseline.")


def test_another_rule_about_a_known_sample_is_told(place):
    write(place, 3, [500, 0, 0, 1])
    known = made(place, run(place))
    write(place, 3, [np.nan, 0, 0, 1])
    assert [f.code for f in run(place, known).report.findings] == ["DC221"]


def test_entries_that_match_nothing_any_more_are_reported(place):
    write(place, 3, [500, 0, 0, 1])
    known = made(place, run(place))
    write(place, 3, [0.5, 0, 0, 1])
    said = [line for line in run(place, known).report.unchecked if "baseline" in line]
    assert said == [
        f"DC005 baseline {known}: DC224 x: 1 of its 1 samples and findings no longer fail: make it "
        f"again"
    ]


def test_of_many_entries_that_match_nothing_the_first_are_told_in_few_words_and_the_others_counted(
    tmp_path,
):
    path = tmp_path / "b.json"
    said = {"format": baseline.FORMAT, "schema": "s", "reason": "r" * 9_000}
    nobody = RuleResults([], [], [], np.ones(1, bool), [()], Texts.of([""]))

    def told(known):
        path.write_text(json.dumps(said | {"known": known}))
        found = baseline.read(path)
        assert len(found.why) < 1_000 + 50 + len(str(path))
        return baseline.apply(found, nobody, make_table(["k"]))[1]

    few = told({"DC224": {f"{n:03}": [] for n in range(100)}})
    assert few == [
        f"DC005 baseline {path}: DC224 {n:03}: its entry no longer fail: make it again"
        for n in range(100)
    ]
    many = told({"D" * 5_000: {f"{n:03}" + "f" * 3_000: [] for n in range(103)}})
    assert len(many) == 101
    assert max(map(len, many)) < 500 + len(str(path))
    assert many[-1] == f"DC005 baseline {path}: 3 more entries match no failing sample"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no baseline"),
        ("[]", "is no baseline"),
        ('{"format": "x", "schema": "s", "known": {}}', "'x'"),
        ('{"format": "datacheck.baseline/1", "known": {}}', "schema"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(place, text, said):
    path = place / "b.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        run(place, path)
    with pytest.raises(UsageError, match="no such file"):
        run(place, place / "none.json")


def test_a_long_format_of_a_baseline_is_told_in_a_short_message(place):
    path = place / "b.json"
    path.write_text(json.dumps({"format": "\x7f" * 100_000, "schema": "s", "known": {}}))
    with pytest.raises(UsageError, match="its format is ") as told:
        run(place, path)
    assert len(str(told.value)) < 2_000


def test_a_baseline_that_is_too_large_to_be_read_is_not_made(place, monkeypatch):
    run(place)
    monkeypatch.setattr(rescore, "BASELINE_BYTES", 10)
    with pytest.raises(UsageError, match=r"a baseline of \d+ bytes; at most 10 are read"):
        rescore.baseline_of(rescore.Rescore(place / ".datacheck/latest"), "")
    monkeypatch.setattr(baseline, "BASELINE_BYTES", 10)
    (place / "baseline.json").write_bytes(b" " * 11)
    with pytest.raises(UsageError, match="at most 10 are read"):
        baseline.read(place / "baseline.json")


def test_a_small_file_of_very_many_values_is_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(baseline, "VALUES", 10)
    path = tmp_path / "baseline.json"
    for count, said in (
        (10, "is no baseline \\(TypeError"),
        (40, "is no baseline \\(.*about 40 values; at most 20"),
    ):
        path.write_text(json.dumps(["a"] * count, separators=(",", ":")))  # 4 bytes for each
        with pytest.raises(UsageError, match=said):
            baseline.read(path)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_exactly_the_samples_that_a_baseline_does_not_hold_are_told(before, now):
    table = make_table([f"k{i}" for i in range(10)])

    def judged(rows):
        rows = np.array(sorted(rows), dtype=np.int64)
        found = Finding("DC900", "x", Severity.ERROR, Level.SAMPLE, ("f",), "bad.", rows, 10)
        return RuleResults(
            [], [found] if len(rows) else [], [], np.ones(10, bool), [()] * 10, Texts.of([""] * 10)
        )

    data = baseline.make(judged(before).findings, table, "s", "", "")
    known = baseline.Baseline(
        "b",
        "s",
        {
            (code, name): frozenset(keys)
            for code, fields in json.loads(data)["known"].items()
            for name, keys in fields.items()
        },
    )
    found, said = baseline.apply(known, judged(now), table)
    told = set().union(*(f.rows.tolist() for f in found.findings))
    assert told == now - before
    assert any("no longer fail" in line for line in said) == bool(before - now)


def test_a_sample_with_two_known_findings_is_counted_once(place):
    write(place, 3, [500, 0, 0, 1])  # out of range, and 4 is a copy besides
    write(place, 4, [500, 0, 0, 1])
    first = run(place)
    assert [(found.code, found.failed) for found in first.report.findings] == [
        ("DC224", 2),
        ("DC803", 1),
    ]
    said = run(place, made(place, first)).report.unchecked
    assert any(text.startswith("2 findings of 2 samples known to the baseline ") for text in said)


def test_a_rule_of_which_every_failing_sample_is_new_is_not_called_known(place):
    write(place, 3, [500, 0, 0, 1])
    known = made(place, run(place))
    write(place, 3, [0.5, 0, 0, 1])
    write(place, 5, [0, 900, 0, 1])
    verdict = next(v for v in run(place, known).report.verdicts if v.code == "DC224")
    assert (verdict.verdict, verdict.failed, verdict.why) == (Verdict.FAIL, 1, "")


def whole(kind, split, **expected):
    rows = np.zeros(0, np.int64)
    return Finding(
        "DC900",
        "x",
        Severity.ERROR,
        Level.DATASET,
        ("f",),
        "bad.",
        rows,
        2,
        kind=kind,
        split=split,
        expected=expected,
    )


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (whole("mean", "train", mean=[1.0]), False),
        (whole("std", "train", mean=[1.0]), True),
        (whole("mean", "val", mean=[1.0]), True),
        (whole("mean", "train", mean=[77.0]), True),
    ],
)
def test_a_finding_about_the_dataset_hides_no_other_one_of_its_rule(tmp_path, now, told):
    table = make_table(["a", "b"])
    path = tmp_path / "b.json"
    path.write_bytes(baseline.make([whole("mean", "train", mean=[1.0])], table, "s", "", ""))
    judged = RuleResults([], [now], [], np.ones(2, bool), [()] * 2, Texts.of([""] * 2))
    found, said = baseline.apply(baseline.read(path), judged, table)
    assert (len(found.findings), len(found.suppressed)) == ((1, 0) if told else (0, 1))
    assert any("no longer fail" in line for line in said) == told


def test_a_known_sample_hides_no_finding_about_the_dataset(tmp_path):
    table = make_table(["a", "b"])
    path = tmp_path / "b.json"
    sample = Finding("DC900", "x", Severity.ERROR, Level.SAMPLE, ("f",), "bad.", np.array([0]), 2)
    path.write_bytes(baseline.make([sample], table, "s", "", ""))
    judged = RuleResults([], [whole("", "")], [], np.ones(2, bool), [()] * 2, Texts.of([""] * 2))
    assert len(baseline.apply(baseline.read(path), judged, table)[0].findings) == 1


@pytest.mark.parametrize("keys", [[], ["0123456789abcdef"]])
def test_a_file_of_an_earlier_version_still_hides_what_it_says_of_the_dataset(tmp_path, keys):
    path = tmp_path / "b.json"
    path.write_text(
        json.dumps({"format": baseline.FORMAT, "schema": "s", "known": {"DC900": {"f": keys}}})
    )
    judged = RuleResults(
        [], [whole("mean", "val")], [], np.ones(2, bool), [()] * 2, Texts.of([""] * 2)
    )
    found, said = baseline.apply(baseline.read(path), judged, make_table(["a", "b"]))
    assert (found.findings, len(found.suppressed)) == ([], 1)
    assert any("no longer" in line for line in said) == bool(keys)
