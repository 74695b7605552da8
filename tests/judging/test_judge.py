import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.model.finding import Failure, Severity, Verdict
from datacheck.model.table import Note
from datacheck.rules.base import Skip
from datacheck.rules.engine import judge
from datacheck.rules.selection import choose_rules
from tests.scan.conftest import above, make_rule, make_schema, make_table


def run(table, *rules, schema=None, **options):
    schema = schema or make_schema()
    return judge(
        table, schema, choose_rules(schema, {rule.code: rule for rule in rules}), **options
    )


def verdict_of(judged, code="DC900"):
    return next(v for v in judged.verdicts if v.code == code)


def test_a_finding_says_which_samples_fail_of_how_many_worst_first():
    judged = run(make_table("abcde", x__max=[1, 20, 30, 25, 11]), make_rule())
    (finding,) = judged.findings
    assert (finding.code, finding.fields, finding.failed, finding.of) == ("DC900", ("x",), 4, 5)
    assert finding.examples == ("c", "d", "b")
    assert judged.valid.tolist() == [True, False, False, False, False]
    assert judged.codes == [(), ("DC900",), ("DC900",), ("DC900",), ("DC900",)]
    verdict = verdict_of(judged)
    assert (verdict.verdict, verdict.checked, verdict.failed) == (Verdict.FAIL, 5, 4)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(0, 20))
def test_valid_samples_are_exactly_those_in_no_error_finding(values, limit):
    schema = make_schema(rules={"DC900": {"limit": limit}})
    table = make_table([f"{i:03d}" for i in range(len(values))], x__max=values)
    judged = run(table, make_rule(), schema=schema)
    assert judged.valid.tolist() == [value <= limit for value in values]
    assert sum(f.failed for f in judged.findings) == sum(value > limit for value in values)


def test_only_errors_make_a_sample_invalid():
    table = make_table("ab", x__max=[1, 20])
    judged = run(table, make_rule(severity=Severity.WARNING))
    assert judged.valid.all()
    assert verdict_of(judged).verdict is Verdict.FAIL
    judged = run(table, make_rule(judge=above(severity=Severity.INFO)))
    assert verdict_of(judged).verdict is Verdict.PASS
    assert [f.severity for f in judged.findings] == [Severity.INFO]


def test_the_schema_has_the_last_word_on_severity():
    schema = make_schema(rules={"DC900": "info"})
    judged = run(
        make_table("a", x__max=[20]), make_rule(judge=above(severity=Severity.ERROR)), schema=schema
    )
    assert judged.findings[0].severity is Severity.INFO


def test_samples_that_could_not_be_read_or_were_not_looked_at_are_not_valid_and_not_judged():
    reasons = ["", "DC101 truncated", "DC101 plyfile is not installed"]
    table = make_table("abc", x__max=[1, None, None], status=[0, 1, 2], reasons=reasons)
    judged = run(table, make_rule())
    assert judged.valid.tolist() == [True, False, False]
    assert judged.codes == [(), ("DC101",), ("DC101",)]
    assert verdict_of(judged).checked == 1


def test_a_rule_may_see_all_rows():
    def unread(rows, case):
        """Not read."""
        yield Failure(np.array([rows.table.status[i] != 0 for i in rows.index]), "unread")

    table = make_table("ab", status=[0, 1], reasons=["", "DC101 x"])
    judged = run(table, make_rule(judge=unread, per="sample", sees="all"))
    assert judged.findings[0].examples == ("b",)


def test_rows_where_the_field_was_not_measured_are_not_judged():
    judged = run(make_table("abc", x__max=[20, None, 3]), make_rule())
    assert (judged.findings[0].failed, judged.findings[0].of) == (1, 2)


@pytest.mark.parametrize(
    ("spec", "status", "verdict", "why"),
    [
        ({}, 0, Verdict.SKIP, "no sample holds"),
        ({"optional": True}, 0, Verdict.NOT_APPLICABLE, "no sample holds"),
        ({"optional": True}, 1, Verdict.SKIP, "no sample could be read"),
    ],
)
def test_a_rule_that_finds_nothing_to_judge_is_skipped_where_the_schema_promises_it(
    spec, status, verdict, why
):
    table = make_table("abc", status=[status] * 3, reasons=["DC101 cut"] * 3 if status else None)
    said = verdict_of(run(table, make_rule(), schema=make_schema({"x": spec})))
    assert said.verdict is verdict
    assert why in said.why


def test_a_warning_hides_no_error_of_a_rule_that_needs_its_own():
    early = make_rule("DC100", judge=above(severity=Severity.WARNING), defaults={"limit": 5})
    judged = run(make_table("ab", x__max=[1, 20]), early, make_rule(suppressed_by=("DC100",)))
    assert [(f.code, f.hides) for f in judged.findings] == [("DC900", {}), ("DC100", {})]
    assert judged.valid.tolist() == [True, False]


def test_a_rule_does_not_judge_what_a_needed_rule_has_failed_and_the_finding_says_so():
    early = make_rule("DC100", "early", defaults={"limit": 50})
    late = make_rule("DC900", suppressed_by=("DC100",))
    judged = run(make_table("abc", x__max=[5, 20, 99]), early, late)
    found = {f.code: f for f in judged.findings}
    assert found["DC100"].examples == ("c",)
    assert found["DC900"].examples == ("b",)
    assert found["DC100"].hides == {"DC900": 1}
    assert verdict_of(judged).skipped == {"DC100": 1}
    everything = run(make_table("c", x__max=[99]), early, late)
    assert verdict_of(everything).verdict is Verdict.SKIP
    assert "fails DC100" in verdict_of(everything).why


def test_each_of_several_findings_says_how_many_of_its_samples_it_hides():
    def by_size(rows, case):
        """Two findings that share a sample."""
        size = rows["x:max"]
        yield Failure(size > 50, "large", kind="large")
        yield Failure((size > 90) | (size == 20), "odd", kind="odd")

    early = make_rule("DC100", judge=by_size)
    judged = run(
        make_table("abcde", x__max=[5, 20, 60, 70, 99]), early, make_rule(suppressed_by=("DC100",))
    )
    assert {f.kind: f.hides for f in judged.findings} == {
        "large": {"DC900": 3},
        "odd": {"DC900": 2},
    }
    assert verdict_of(judged).skipped == {"DC100": 4}


@pytest.mark.parametrize(("later", "judged_rows"), [("x", 1), ("x.part", 1), ("y", 2)])
def test_what_one_field_fails_hides_nothing_of_another_field(later, judged_rows):
    schema = make_schema(
        {"x": {"columns": "part rest"}, "x.part": {"unit": "s"}, "y": {"unit": "m"}}
    )
    early = make_rule(
        "DC100", applies=lambda spec: spec.columns is not None, defaults={"limit": 50}
    )
    wanted = schema.fields[later]
    late = make_rule(applies=lambda spec: spec == wanted, suppressed_by=("DC100",))
    columns = {"x__max": [99, 1], "x.part__max": [99, 1], "y__max": [99, 1]}
    assert (
        verdict_of(run(make_table("ab", **columns), early, late, schema=schema)).checked
        == judged_rows
    )


def test_a_whole_sample_rule_leaves_out_samples_that_fail_in_any_field():
    def count(rows, case):
        """Counts."""
        yield Failure(np.ones(len(rows), bool), f"{len(rows)}")

    early = make_rule("DC100", defaults={"limit": 50})
    late = make_rule(judge=count, per="sample", suppressed_by=("DC100",))
    assert verdict_of(run(make_table("ab", x__max=[99, 1]), early, late)).failed == 1


def test_each_split_is_judged_with_its_own_schema_and_has_its_own_finding():
    schema = make_schema({"x": {}}, when={"split=val": {"x": "absent"}})
    table = make_table("abcd", x__max=[20, 30, 40, 50], splits=["train", "val", "test", "test"])
    judged = run(table, make_rule(), schema=schema)
    assert [(f.split, f.failed, f.of, f.id) for f in judged.findings] == [
        ("test", 2, 2, "DC900:x:test"),
        ("train", 1, 1, "DC900:x:train"),
    ]
    (over_all,) = run(table, make_rule(span="all"), schema=schema).findings
    assert (over_all.split, over_all.failed) == ("", 4)


def test_a_share_may_be_allowed():
    schema = make_schema(rules={"DC900": {"allow": "25%"}})
    judged = run(make_table("abcd", x__max=[1, 2, 3, 20]), make_rule(), schema=schema)
    assert judged.findings == []
    assert judged.valid.all()
    verdict = verdict_of(judged)
    assert verdict.verdict is Verdict.PASS
    assert "1 of 4 fail, 0.25 of them allowed" in verdict.why
    assert (
        len(run(make_table("abcd", x__max=[1, 2, 30, 20]), make_rule(), schema=schema).findings)
        == 1
    )


def test_a_waiver_takes_keys_and_patterns_out_and_is_told():
    schema = make_schema(
        rules={"DC900": {"ignore": ["b", "c/*"], "reason": "giants, lin 2026-11-20"}}
    )
    judged = run(make_table(["a", "b", "c/1"], x__max=[20, 30, 40]), make_rule(), schema=schema)
    assert judged.findings[0].examples == ("a",)
    assert judged.valid.tolist() == [False, True, True]
    assert "2 failing samples waived: giants, lin 2026-11-20" in verdict_of(judged).why


def test_a_waiver_that_matches_nothing_is_an_error():
    schema = make_schema(rules={"DC900": {"ignore": ["a", "zzz"], "reason": "old"}})
    with pytest.raises(
        UsageError, match=r"rules.DC900.ignore: 'zzz' matches no sample that fails DC900. Remove"
    ):
        run(make_table("ab", x__max=[20, 1]), make_rule(), schema=schema)


def test_waivers_that_take_too_long_are_an_error(monkeypatch):
    """2,000 patterns are compared at each of 4,000 letters: hours for all keys."""
    monkeypatch.setattr("datacheck.schema.globs._MOST_STEPS", 3_000_000_000)
    ignore = [f"*{'a' * 440}b{n}*" for n in range(2_000)]
    schema = make_schema(rules={"DC900": {"ignore": ignore, "reason": "old"}})
    table = make_table([f"{'a' * 4_000}{n}" for n in range(1_000)], x__max=[20] * 1_000)
    with pytest.raises(UsageError, match=r"rules.DC900.ignore: 2,000 patterns .* take too long"):
        run(table, make_rule(), schema=schema)


def test_waivers_of_notes_count_towards_the_time_of_a_rule(monkeypatch):
    notes = [Note("DC900", f"a{n}", "x") for n in range(2_000)]
    schema = make_schema(
        rules={"DC900": {"ignore": [f"q{n}*z" for n in range(2_000)], "reason": "old"}}
    )
    monkeypatch.setattr("datacheck.rules.engine._RULE_SECONDS", 0.0)
    monkeypatch.setattr("datacheck.rules.engine._MIN_SECONDS", 0.05)
    judged = run(make_table("ab", x__max=[1, 1]), make_rule(), schema=schema, notes=notes)
    assert [(f.kind, f.message.partition(":")[0]) for f in judged.findings] == [
        ("stopped", "not judged")
    ]


def test_waived_notes_are_not_handed_to_a_judge():
    def every_note(rows, case):
        """Say which notes there are."""
        yield Failure(
            np.zeros(len(rows), bool),
            f"{[note.key for note in case.notes]}",
            severity=Severity.ERROR,
        )

    notes = [Note("DC900", key, "x") for key in ("a[1]", "b1", "c")]
    schema = make_schema(rules={"DC900": {"ignore": ["a[1]", "b*"], "reason": "old"}})
    (finding,) = run(
        make_table("z", x__max=[1]), make_rule(judge=every_note), schema=schema, notes=notes
    ).findings
    assert finding.message == "['c']"


def test_what_a_judge_cannot_look_at_is_skipped_never_passed():
    def half_blind(rows, case):
        """Needs a library."""
        yield Skip(rows["max"] > 10, "tokenizers is not installed: pip install 'datacheck[text]'")

    verdict = verdict_of(run(make_table("abc", x__max=[1, 20, 30]), make_rule(judge=half_blind)))
    assert (verdict.verdict, verdict.checked) == (Verdict.PASS, 1)
    assert verdict.unseen == (
        "2 samples not judged: tokenizers is not installed: pip install 'datacheck[text]'",
    )
    blind = verdict_of(run(make_table("b", x__max=[20]), make_rule(judge=half_blind)))
    assert blind.verdict is Verdict.SKIP


@pytest.mark.parametrize("mask", [np.ones(7, bool), np.array(True)])
def test_a_judge_that_raises_or_answers_nonsense_is_a_crash_and_the_others_go_on(mask):
    def broken(rows, case):
        """Broken."""
        yield Failure(mask, "x")

    judged = run(make_table("ab", x__max=[1, 20]), make_rule("DC800", judge=broken), make_rule())
    assert verdict_of(judged, "DC800").verdict is Verdict.CRASH
    assert [c["rule"] for c in judged.crashes] == ["DC800"]
    assert "ValueError: the judge returned a mask" in judged.crashes[0]["traceback"]
    assert [f.code for f in judged.findings] == ["DC900"]


@pytest.mark.parametrize(
    ("stop", "words"), [("endless", "takes too long"), ("greedy", "needs more memory")]
)
def test_a_rule_that_samples_make_endless_is_stopped_and_named_and_the_others_go_on(
    monkeypatch, stop, words
):
    monkeypatch.setattr("datacheck.rules.engine._RULE_SECONDS", 0.0)
    monkeypatch.setattr("datacheck.rules.engine._MIN_SECONDS", 0.05)

    def endless(rows, case):
        """It never ends."""
        yield Failure(rows["max"] > 8, "before that")
        if stop == "greedy":
            raise MemoryError
        while True:
            pass

    table = make_table(["a", "b"], x__max=[9.0, 1.0])
    judged = run(
        table, make_rule("DC900", judge=endless), make_rule("DC901", defaults={"limit": 5.0})
    )
    assert judged.crashes == []
    stopped, before, other = sorted(
        judged.findings, key=lambda finding: (finding.code, len(finding.rows))
    )
    assert [before.rows.tolist(), other.rows.tolist()] == [[0], [0]]
    assert (stopped.rows.tolist(), stopped.severity, stopped.kind) == (
        [],
        Severity.ERROR,
        "stopped",
    )
    assert words in stopped.message
    assert verdict_of(judged).verdict is Verdict.FAIL
    assert verdict_of(judged).checked == 1  # the one that had failed before


def test_a_measurement_that_failed_is_a_crash_of_the_rules_that_need_it():
    from datacheck.rules.base import Measure

    needed = Measure("extent", 1, "field", lambda *_: {})
    crash = {"measure": "extent", "key": "a", "traceback": "Traceback ...\nZeroDivisionError: 0"}
    judged = run(
        make_table("ab", x__max=[1, 20]),
        make_rule(measures=(needed,)),
        make_rule("DC901"),
        crashes=[crash],
    )
    assert verdict_of(judged).verdict is Verdict.CRASH
    assert verdict_of(judged).why.startswith("ZeroDivisionError")
    assert verdict_of(judged, "DC901").verdict is Verdict.FAIL
    assert judged.crashes[0]["at"] == "measurement extent of a"
    without_reference = run(
        make_table("ab", x__max=[1, 20]),
        make_rule(measures=(needed,), needs_reference=True),
        crashes=[crash],
    )
    assert verdict_of(without_reference).verdict is Verdict.NOT_APPLICABLE


def test_notes_reach_their_rule_also_where_no_row_is():
    def told(rows, case):
        """Tells."""
        for note in case.notes:
            yield Failure(np.zeros(len(rows), bool), note.reason)

    notes = [
        Note("DC900", "k", "one", split="train"),
        Note("DC901", "k", "two"),
        Note("DC900", "k", "three"),
    ]
    rule = make_rule(judge=told, per="sample", sees="all")
    judged = run(make_table("a", splits=["train"]), rule, notes=notes)
    assert sorted((f.message, f.split, f.failed) for f in judged.findings) == [
        ("one", "train", 0),
        ("three", "", 0),
    ]


def test_splits_beyond_a_limit_are_judged_as_one_and_none_is_lost(monkeypatch):
    monkeypatch.setattr("datacheck.rules.row_groups._MAX_JUDGE_CALLS", 3)

    def each(rows, case):
        """Tells of all."""
        rows["max"]
        said = sorted(note.reason for note in case.notes)
        yield Failure(
            np.ones(len(rows), bool),
            f"{case.schema.fields['x'].optional} {said}",
            severity=Severity.ERROR,
        )

    splits = ["b", "b", "b", "s1", "a", "a", "all others", "s2", "told"]
    notes = [Note("DC900", "k", split, split=split) for split in ("s1", "b", "gone", "")]
    schema = make_schema(when={"split=told": {"x": {"optional": True}}})
    table = make_table("abcdefghi", splits=splits, x__max=[1.0] * 9)
    judged = run(table, make_rule(judge=each), schema=schema, notes=notes)
    assert {
        finding.split: (finding.rows.tolist(), finding.message) for finding in judged.findings
    } == {
        "b": ([0, 1, 2], "False ['b']"),
        "told": ([8], "True []"),
        "all others": ([3, 4, 5, 6, 7], "False ['', 'gone', 's1']"),
    }
    assert "the 6 splits with the fewest samples are judged as one" in verdict_of(judged).why
    monkeypatch.setattr("datacheck.rules.row_groups._MAX_JUDGE_CALLS", 8)
    judged = run(table, make_rule(judge=each), schema=schema, notes=notes)
    assert len({finding.split for finding in judged.findings}) == len(judged.findings) == 8
    assert verdict_of(judged).why == ""


def test_findings_come_worst_first():
    table = make_table("abc", x__max=[20, 30, 5], y__max=[20, 1, 5])
    schema = make_schema({"x": {}, "y": {}})
    warn = make_rule("DC100", severity=Severity.WARNING, defaults={"limit": 1})
    judged = run(table, warn, make_rule(), schema=schema)
    assert [(f.severity.value, f.fields[0], f.failed) for f in judged.findings] == [
        ("error", "x", 2),
        ("error", "y", 1),
        ("warning", "x", 3),
        ("warning", "y", 2),
    ]
