"""Whatever is found, the text has at most 60 lines, result.json less than 1 MB, and samples.parquet names every row."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from datacheck.model.finding import (
    Cause,
    Failure,
    Finding,
    Level,
    Report,
    RuleVerdict,
    Severity,
    Verdict,
)
from datacheck.report.text import report_lines
from datacheck.rules.comparison import DriftResult, cumulative
from datacheck.rules.comparison import comparison_json as bounded_measures
from datacheck.rules.engine import judge
from datacheck.rules.selection import Choice
from datacheck.scan import samples
from datacheck.scan.run_documents import dump_json, result, truncated
from datacheck.scan.run_state import RunState, Slots
from datacheck.scan.samples import table_bytes
from datacheck.scan.summary import RunContext, report_of
from datacheck.schema.model import MOST_FIELDS, RuleSpec
from datacheck.sources import Entries, Listing
from tests.scan.conftest import make_rule, make_schema, make_table
from tests.trials import trials
from tests.trials.memory import measure_pieces, schema_of

ROWS = 60_000
LONG = "x" * 4096


def failing(part):
    """A judge that fails 50,000 of the rows, each rule others, with numbers in its message."""

    def judge(rows, case):
        """Everything is wrong."""
        mask = (np.arange(len(rows)) + 997 * part) % ROWS < 50_000
        yield Failure(
            mask,
            f"{int(mask.sum()):,} are wrong.",
            {"n": part},
            cause=Cause("a cause", "kind"),
            fix="Mend.",
        )

    return judge


@pytest.fixture(scope="module")
def worst():
    """Twelve rules, each of which 50,000 samples fail."""
    table = make_table([f"seq/{i:06d}.pkl" for i in range(ROWS)], x__max=np.ones(ROWS).tolist())
    rules = [make_rule(f"DC9{n:02d}", f"wrong-{n}", failing(n)) for n in range(12)]
    schema = make_schema()
    judged = judge(table, schema, [Choice(rule, RuleSpec(), {}) for rule in rules])
    state = RunState(Listing(Path("/data"), Entries.of([])), "k", Slots([], [], {}), table)
    facts = RunContext(schema, Path("/data"), state, 0.0, 0, 0)
    return table, judged, report_of(facts, "datacheck scan /data", "error", judged)


@pytest.mark.parametrize("width", [40, 80, 110])
def test_the_text_for_fifty_thousand_failures_of_twelve_rules_has_at_most_60_lines(worst, width):
    lines = [line.plain for line in report_lines(worst[2], width)]
    assert len(lines) <= 60
    assert all(any(f"DC9{n:02d}" in line for line in lines) for n in range(12))


def test_result_json_is_small_and_the_table_names_all_of_them(worst, tmp_path):
    table, judged, report = worst
    assert len(dump_json(result(report))) < 100_000
    (tmp_path / "samples.parquet").write_bytes(table_bytes(table, judged.failing))
    codes = pq.read_table(tmp_path / "samples.parquet", columns=["codes"])["codes"].to_pylist()
    for n in range(12):
        assert sum(f"DC9{n:02d}" in row.split() for row in codes) == 50_000
    assert codes[0].split() == [f"DC9{n:02d}" for n in range(12) if (997 * n) % ROWS < 50_000]
    assert [" ".join(row) for row in judged.codes] == codes


def huge(findings, crashes, splits, unchecked):
    """A report with much of everything, and all of it long."""
    message = LONG * 4
    measured = {"all": list(range(9999)), LONG: {LONG: [LONG] * 999}}
    per_example = {"each": {str(i): LONG for i in range(999)}}
    found = [
        Finding(
            f"DC{n % 90:03d}",
            "wrong",
            Severity.ERROR,
            Level.SAMPLE,
            (f"field{n:05d}", LONG),
            message,
            np.arange(3),
            10,
            (LONG, LONG, LONG),
            measured,
            per_example,
            Cause(LONG, LONG, alternatives=(LONG,) * 99),
            LONG,
            split=f"split{n % 7}",
        )
        for n in range(findings)
    ]
    verdicts = [
        RuleVerdict(
            f"DC{n:03d}",
            "wrong",
            Verdict.FAIL,
            Severity.ERROR,
            Level.SAMPLE,
            10,
            3,
            {f"DC{i:03d}": 1 for i in range(90)},
            (LONG,) * 999,
            LONG * 9,
            {"values": tuple(range(9999)), "name": LONG},
        )
        for n in range(100)
    ]
    dataset = {
        "name": "made",
        "root": LONG,
        "digest": "0" * 32,
        "files": 1,
        "bytes": 1,
        "samples": {"listed": 10, "checked": 10, "unreadable": 0, "skipped": 0},
        "splits": {f"{n}{LONG}": {"samples": 1, "valid": 1} for n in range(splits)},
    }
    run = {
        "id": "x",
        "version": "0",
        "seconds": 1.0,
        "kept_files": 0,
        "fail_on": "error",
        "command": LONG * 9,
    }
    trace = [
        {"rule": "DC001", "at": LONG, "traceback": LONG * 9 + "\nValueError: the end"}
        for _ in range(crashes)
    ]
    return Report(
        run,
        dataset,
        {"name": "made", "digest": "0"},
        verdicts,
        found,
        3,
        [LONG] * unchecked,
        trace,
        LONG,
    )


@pytest.mark.parametrize(
    "amount", [(2000, 0, 0, 0), (6000, 999, 5000, 999), (0, 999, 0, 0), (1, 1, 1, 1)]
)
def test_whatever_is_said_the_file_and_the_text_stay_small(amount):
    report = huge(*amount)
    said = result(report)
    data = dump_json(said)
    assert len(data) < 1_000_000
    back = orjson.loads(data)
    assert back["verdict"]["counts"]["error"] == amount[0]
    names = ("findings", "crashes", "splits", "unchecked")
    held = (
        len(back["findings"]),
        len(back["crashes"]),
        len(back["dataset"]["splits"]),
        len(back["unchecked"]),
    )
    left_out = back.get("left_out", {})
    assert tuple(n + left_out.get(name, 0) for n, name in zip(held, names, strict=True)) == amount
    assert all(n > 0 for n, whole in zip(held, amount, strict=True) if whole)
    assert all(crash["traceback"].endswith("ValueError: the end") for crash in back["crashes"])
    for width in (40, 110):
        assert len(report_lines(report, width)) <= 60
        assert len(report_lines(report, width, page=True)) <= 60


def test_what_is_small_is_left_as_it_is():
    said = {
        "run": {"id": "x"},
        "dataset": {"splits": {"train": 1}},
        "rules": {},
        "unchecked": ["a"],
        "crashes": [],
    }
    said |= {"findings": [{"examples": ["k"], "measured": {"a": [1, 2.5, None]}, "cause": None}]}
    assert truncated(said, lambda value: len(dump_json(value))) == said


@pytest.mark.parametrize("word", ["x", "名", "\x01"])
def test_what_two_rules_have_compared_leaves_room_for_findings(word):
    long, values = word * 4096, np.random.default_rng(0).normal(size=3000)
    curve = cumulative(values, values[:999])
    classes = tuple((long, n / 9, 0.1) for n in range(8))
    many = [
        DriftResult(
            long,
            f"{n}",
            long,
            1.0 + n,
            True,
            (9, 9),
            (9, 9),
            0.01,
            0.1,
            (1.5, 2.5),
            curve,
            classes,
            long,
        )
        for n in range(300)
    ]
    report = huge(4, 1, 1, 1)
    rules = [
        replace(
            one,
            skipped={},
            unseen=(),
            why="",
            options={},
            compared=bounded_measures(many if n < 2 else []),
        )
        for n, one in enumerate(report.verdicts)
    ]
    said = result(replace(report, verdicts=rules))
    assert len(dump_json(said)) < 1_000_000
    assert len(said["findings"]) == 4
    for code in ("DC000", "DC001"):
        compared = said["rules"][code]["compared"]
        assert (compared["count"], compared["drifted"]) == (300, 300)
        assert [one["effect"] for one in compared["measures"]] == [
            300.0 - n for n in range(len(compared["measures"]))
        ]
        assert 0 < len(compared["measures"]) < 120


def test_a_schema_of_most_fields_measures_no_more_columns_than_are_read_back():
    """The reader of samples.parquet refuses others, and a scan would refuse its own table."""
    for trial in trials():
        table = measure_pieces(schema_of(trial.schema), trial.clean(np.random.default_rng(0))[:3])
        of_each = Counter(name.rpartition(":")[0] for name in table.columns)
        assert max(of_each.values()) * MOST_FIELDS <= samples._COLUMNS - 1_000, trial.name
