"""Rules over pairs: what they ask for is read again, in file order, and what cannot be read again is no number."""

import os
from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.model.finding import Failure, Verdict
from datacheck.rules.base import RuleContext
from datacheck.rules.engine import MOST_PAIRS, judge, with_pairs
from datacheck.rules.selection import choose_rules
from datacheck.scan import Request, pairs, run_scan, scanned_dataset
from datacheck.scan.measure_tasks import ScanJob
from datacheck.scan.pairs import Rereader, compare_items
from datacheck.schema.model import FieldSpec
from datacheck.sources import kinds
from datacheck.sources.base import Item
from datacheck.sources.kinds import SourceSetup
from tests.scan.conftest import make_rule, make_schema, make_table


def neighbours(rows, case):
    del case
    places = np.arange(len(rows))
    return np.stack([places[:-1], places[1:]], axis=1)


def distance(first, second, case):
    return {
        "apart": abs(float(first.fields[case.name][0]) - float(second.fields[case.name][0]))
        * case.options["limit"]
    }


def near(rows, case):
    """Two neighbours are near one another."""
    mask = np.zeros(len(rows), bool)
    close = case.pairs.of("apart") < 1.5
    mask[case.pairs.second[close]] = True
    if mask.any():
        yield Failure(mask, "near.")


PAIR = make_rule(judge=near, pairs=neighbours, compare=distance, defaults={"limit": 2.0})


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(pairs, "catalogue", lambda: {"DC900": PAIR})


@pytest.fixture
def files(tmp_path):
    for number, value in enumerate([5.0, 5.5, 9.0, 9.5]):
        np.save(tmp_path / f"{number}.npy", np.full(3, value))
    return tmp_path


def items(folder):
    return [Item(f"{n}.npy", nbytes=os.path.getsize(folder / f"{n}.npy")) for n in range(4)]


def here(monkeypatch):
    """Run the children's part in this process: a rule made here exists nowhere else."""

    def ordered_map(function, tasks, **_):
        del function
        for task in tasks:
            yield pairs.TaskResult(task, [compare_items(task, lambda place: None)])

    monkeypatch.setattr(pairs, "ordered_map", ordered_map)


def test_pairs_are_read_again_and_judged(files, known, monkeypatch):
    here(monkeypatch)
    schema = make_schema({"x": {"role": "value"}})
    table = make_table([f"{n}.npy" for n in range(4)], x__max=[5.0, 5.5, 9.0, 9.5])
    second = Rereader(ScanJob(SourceSetup(schema, files, {}), []), lambda: items(files))
    found = judge(table, schema, choose_rules(schema, {"DC900": PAIR}), second=second)
    assert [f.rows.tolist() for f in found.findings] == [[1, 3]]


def test_a_sample_that_cannot_be_read_again_is_no_number(files, known, monkeypatch):
    here(monkeypatch)
    (files / "2.npy").write_bytes(b"gone")
    schema = make_schema({"x": {"role": "value"}})
    rows = make_table([f"{n}.npy" for n in range(4)]).rows(np.arange(4), "x")
    case = RuleContext(schema, "x", FieldSpec(role="value"), {"limit": 2.0})
    found = with_pairs(
        PAIR,
        case,
        "",
        rows,
        Rereader(ScanJob(SourceSetup(schema, files, {}), []), lambda: items(files)[:3]),
    ).pairs
    np.testing.assert_array_equal(found.of("apart"), [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(found.of("unknown"), [np.nan] * 3)


def test_a_file_is_opened_once_for_all_its_pairs_of_a_batch(files, known, monkeypatch):
    opened = []
    real = kinds.open_source

    def counting(*args, **kwargs):
        source = real(*args, **kwargs)
        read = source.read_all
        source.read_all = lambda asked, beat: (
            opened.extend(i.path for i in asked),
            read(asked, beat),
        )[1]
        return source

    monkeypatch.setattr(kinds, "open_source", counting)
    here(monkeypatch)
    schema = make_schema({"x": {"role": "value"}})
    table = make_table([f"{n}.npy" for n in range(4)])
    case = RuleContext(schema, "x", FieldSpec(role="value"), {"limit": 2.0})
    wanted = np.array([[0, 3], [0, 1], [3, 0], [2, 3]])
    reader = Rereader(ScanJob(SourceSetup(schema, files, {}), []), lambda: items(files))
    values = reader(PAIR, case, "", table.rows(np.arange(4), "x"), wanted)
    assert values["apart"].tolist() == [9.0, 1.0, 9.0, 1.0]
    assert sorted(opened) == ["0.npy", "1.npy", "2.npy", "3.npy"]


def test_batches_are_bounded_by_the_bytes_of_their_samples(files, monkeypatch):
    monkeypatch.setattr(pairs, "TASK_BYTES", 250)
    table = make_table([f"{n}.npy" for n in range(4)])
    table.nbytes = np.full(4, 100)
    reader = Rereader(ScanJob(SourceSetup(make_schema(), files, {}), []), lambda: items(files))
    wanted = np.array([[0, 1], [1, 2], [2, 3]])
    batches = list(reader._batches(table.rows(np.arange(4)), wanted))
    assert [[pair["number"] for pair in batch] for batch in batches] == [[0], [1], [2]]
    monkeypatch.setattr(pairs, "TASK_BYTES", 300)
    batches = list(reader._batches(table.rows(np.arange(4)), wanted))
    assert [[pair["number"] for pair in batch] for batch in batches] == [[0, 1], [2]]


def test_a_comparison_that_raises_is_a_crash_of_its_rule(files, monkeypatch):
    def broken(first, second, case):
        raise KeyError("oops")

    rule = make_rule(judge=near, pairs=neighbours, compare=broken)
    monkeypatch.setattr(pairs, "catalogue", lambda: {"DC900": rule})
    here(monkeypatch)
    schema = make_schema({"x": {"role": "value"}})
    table = make_table([f"{n}.npy" for n in range(4)], x__max=[5.0, 5.5, 9.0, 9.5])
    second = Rereader(ScanJob(SourceSetup(schema, files, {}), []), lambda: items(files))
    found = judge(table, schema, choose_rules(schema, {"DC900": rule}), second=second)
    assert found.verdicts[0].verdict is Verdict.CRASH
    assert "oops" in found.crashes[0]["traceback"]


def test_no_more_pairs_are_read_than_a_rule_may_name():
    many = make_rule(
        pairs=lambda rows, case: np.zeros((MOST_PAIRS + 5, 2), np.int64), compare=distance
    )
    seen = []

    def read(rule, case, split, rows, wanted):
        seen.append(len(wanted))
        return {}

    with_pairs(
        many,
        RuleContext(make_schema(), "x", FieldSpec(), {}),
        "",
        make_table(["a"]).rows(np.arange(1)),
        read,
    )
    assert seen == [MOST_PAIRS]


def test_pairs_outside_the_rows_are_refused():
    wrong = make_rule(pairs=lambda rows, case: np.array([[0, 1]]), compare=distance)
    rows = make_table(["a"]).rows(np.arange(1))
    with pytest.raises(ValueError, match="of 1 rows"):
        with_pairs(wrong, RuleContext(make_schema(), "x", FieldSpec(), {}), "", rows, lambda *_: {})


# ---------------------------------------------------------------------------------------- reference


def compared(rows, case):
    """Rows that the reference does not hold."""
    mask = ~np.isin(rows.keys, case.reference.keys)
    yield Failure(mask, f"{len(case.reference)} before.")


def test_a_rule_that_compares_does_not_apply_without_a_reference():
    rule = make_rule(judge=compared, needs_reference=True, per="sample")
    schema = make_schema()
    found = judge(make_table(["a"]), schema, choose_rules(schema, {"DC900": rule}))
    assert (found.verdicts[0].verdict, found.verdicts[0].why) == (
        Verdict.NOT_APPLICABLE,
        "no --reference given",
    )


def test_the_reference_is_the_same_split_and_field():
    schema = make_schema({"x": {}})
    rule = make_rule(judge=compared, needs_reference=True)
    table = make_table(["a", "b", "c"], splits=["t", "t", "v"], x__max=[1, 2, 3])
    before = make_table(
        ["a", "c", "d", "e"],
        splits=["t", "v", "t", "t"],
        status=[0, 0, 1, 0],
        x__max=[1, 2, 3, None],
    )
    found = judge(table, schema, choose_rules(schema, {"DC900": rule}), reference=before)
    assert [(f.split, f.rows.tolist(), f.message) for f in found.findings] == [
        ("t", [1], "1 before."),
        ("v", [], "1 before."),
    ]
    every = make_rule(judge=compared, needs_reference=True, span="all", per="sample", sees="all")
    found = judge(table, schema, choose_rules(schema, {"DC900": every}), reference=before)
    assert [(f.rows.tolist(), f.message) for f in found.findings] == [([1], "4 before.")]


def test_a_reference_that_cannot_be_read_is_told_before_the_data_are_listed(in_tmp, monkeypatch):
    (in_tmp / "data").mkdir()
    np.save(in_tmp / "data" / "a.npy", np.ones(3))
    schema = make_schema({"x": {"role": "value"}})
    reference = Path(run_scan(schema, Request(in_tmp / "data")).report.folder)
    (reference / "samples.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(scanned_dataset, "list_files", lambda *_: pytest.fail("listed"))
    with pytest.raises(UsageError, match="this run cannot be read"):
        run_scan(schema, Request(in_tmp / "data", reference=reference))


def test_a_reference_is_a_finished_run_of_the_same_schema(in_tmp, monkeypatch):
    (in_tmp / "data").mkdir()
    np.save(in_tmp / "data" / "a.npy", np.ones(3))
    schema = make_schema({"x": {"role": "value"}})
    seen = []
    monkeypatch.setattr(
        "datacheck.scan.judging.judge", lambda *a: (seen.append(a[5]), judge(*a))[1]
    )
    run_scan(schema, Request(in_tmp / "data"))
    run_scan(schema, Request(in_tmp / "data", reference=in_tmp / ".datacheck" / "latest"))
    run_scan(schema, Request(in_tmp / "data", reference=in_tmp / ".datacheck"))
    assert seen[0] is None
    assert [table.keys for table in seen[1:]] == [["a.npy"]] * 2
    other = schema.model_copy(update={"name": "another"})
    with pytest.raises(UsageError, match="made with schema made, not another"):
        run_scan(other, Request(in_tmp / "data", reference=in_tmp / ".datacheck" / "latest"))
    with pytest.raises(UsageError, match="is no finished run"):
        run_scan(schema, Request(in_tmp / "data", reference=in_tmp))
    (in_tmp / ".datacheck" / "latest" / "samples.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="cannot be read"):
        run_scan(schema, Request(in_tmp / "data", reference=in_tmp / ".datacheck" / "latest"))
