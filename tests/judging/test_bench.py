import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece, stack
from datacheck.model.table import Measured
from datacheck.rules.base import Measure
from datacheck.rules.measurement import MeasurementRunner
from tests.scan.conftest import make_schema


def block_of(*samples, split=""):
    pieces = [Piece(f"k{i}", fields, Origin(f"f{i}")) for i, fields in enumerate(samples)]
    (block,) = stack(pieces, split)
    return block


def field_measure(name="top", function=None, **options):
    largest = function or (
        lambda column, spec: {"top": np.array([column[i].max() for i in range(len(column))])}
    )
    return Measure(name, 1, "field", largest, **options)


def values(columns):
    return {name: column.values.tolist() for name, column in columns.items()}


def test_every_declared_field_is_measured_and_a_whole_sample_once():
    whole = Measure(
        "count",
        1,
        "sample",
        lambda block, schema: {"fields": np.full(len(block), len(block.fields))},
    )
    schema = make_schema({"x": {}, "y": {}})
    bench = MeasurementRunner(schema, [field_measure(), whole])
    block = block_of(
        {"x": np.array([1, 5]), "y": np.array([2.5])}, {"x": np.array([7]), "y": np.array([0.5])}
    )
    assert values(bench.measure(block)) == {"x:top": [5, 7], "y:top": [2.5, 0.5], ":fields": [2, 2]}


def test_declared_parts_are_measured_under_their_own_name():
    schema = make_schema({"pose": {"columns": "pos:3 quat:4"}, "pose.pos": {"unit": "m"}})
    block = block_of({"pose": np.arange(14.0).reshape(2, 7)})
    assert values(MeasurementRunner(schema, [field_measure()]).measure(block)) == {
        "pose:top": [13.0],
        "pose.pos:top": [9.0],
    }


def test_a_part_that_the_array_is_too_narrow_for_is_not_measured():
    schema = make_schema({"pose": {"columns": "pos:3 quat:4"}, "pose.quat": {"unit": "m"}})
    assert values(
        MeasurementRunner(schema, [field_measure()]).measure(block_of({"pose": np.zeros((2, 5))}))
    ) == {"pose:top": [0.0]}


def test_text_where_numbers_are_declared_is_left_to_measurements_that_take_anything():
    schema = make_schema({"x": {}, "t": {"role": "text"}})
    anything = field_measure(
        "kind", lambda c, s: {"kind": [c.kind] * len(c)}, applies=lambda spec: True
    )
    only_text = field_measure(
        "chars", lambda c, s: {"chars": np.diff(c.lengths)}, applies=lambda spec: spec.is_text
    )
    block = block_of({"x": "not numbers", "t": np.array([1.0])})
    found = MeasurementRunner(schema, [field_measure(), anything, only_text]).measure(block)
    assert values(found) == {"x:kind": ["text"], "t:kind": ["array"]}


def test_a_split_is_measured_with_its_own_schema():
    schema = make_schema({"x": {}}, when={"split=val": {"x": {"unit": "mm"}}})
    unit = field_measure("unit", lambda c, s: {"unit": [str(s.unit)] * len(c)})
    bench = MeasurementRunner(schema, [unit])
    assert values(bench.measure(block_of({"x": np.zeros(1)}, split="val"))) == {"x:unit": ["mm"]}
    assert values(bench.measure(block_of({"x": np.zeros(1)}, split="train"))) == {
        "x:unit": ["None"]
    }


def test_undeclared_fields_are_added_up_under_a_star_and_the_worst_is_named():
    def bad(column, spec):
        return {"bad": np.array([np.isnan(column[i]).sum() for i in range(len(column))])}

    measure = field_measure("bad", bad, undeclared=True, worst="bad")
    bench = MeasurementRunner(make_schema({"x": {}}), [measure, field_measure()])
    nan = float("nan")
    block = block_of(
        {"x": np.zeros(1), "a": np.array([nan, nan]), "b": np.array([nan]), "t": "text"},
        {"x": np.zeros(1), "a": np.array([1.0]), "b": np.array([nan, nan, nan]), "t": "more"},
        {"x": np.zeros(1), "a": np.array([1.0]), "b": np.array([1.0]), "t": ""},
    )
    found = values(bench.measure(block))
    assert (found["*:bad"], found["*:worst"]) == ([3, 3, 0], ["a", "b", ""])
    assert "a:top" not in found
    assert bench.undeclared == {"a", "b", "t"}


def test_vectors_of_undeclared_fields_are_added_place_by_place():
    measure = field_measure("sum", lambda c, s: {"s": c.stacked().sum(axis=1)}, undeclared=True)
    block = block_of({"a": np.array([[1, 2]]), "b": np.array([[10, 20, 30]])})
    assert values(MeasurementRunner(make_schema(), [measure]).measure(block)) == {
        "*:s": [[11, 22, 30]]
    }


def test_a_measurement_may_abstain_for_some_samples_or_for_all():
    some = field_measure(
        "some", lambda c, s: {"v": Measured(np.arange(2), np.array([True, False]))}
    )
    none = field_measure("none", lambda c, s: {})
    empty = field_measure("empty", lambda c, s: {"e": np.zeros((2, 0))})
    found = MeasurementRunner(make_schema(), [some, none, empty]).measure(
        block_of({"x": np.zeros(1)}, {"x": np.zeros(1)})
    )
    assert list(found) == ["x:v"]
    assert found["x:v"].present.tolist() == [True, False]


@pytest.mark.parametrize("answer", [np.zeros(3), np.zeros((1, 4097)), np.zeros((1, 2, 2))])
def test_an_answer_of_the_wrong_shape_is_a_crash_of_that_measurement_alone(answer):
    bench = MeasurementRunner(
        make_schema(), [field_measure("wrong", lambda c, s: {"w": answer}), field_measure()]
    )
    assert values(bench.measure(block_of({"x": np.array([4])}))) == {"x:top": [4]}
    assert bench.crashes["wrong"]["key"] == "k0"
    assert "one scalar or vector of at most 4096" in bench.crashes["wrong"]["traceback"]
    assert bench.failed == {"f0"}


@pytest.mark.parametrize("dtype", ["complex128", "longdouble", "S3", "m8[s]"])
def test_an_answer_that_no_run_can_keep_is_a_crash_of_that_measurement_alone(dtype):
    bench = MeasurementRunner(
        make_schema(),
        [field_measure("wrong", lambda c, s: {"w": np.zeros(1, dtype)}), field_measure()],
    )
    assert values(bench.measure(block_of({"x": np.array([4])}))) == {"x:top": [4]}
    assert (
        f"w is of {np.dtype(dtype)}; samples.parquet holds" in bench.crashes["wrong"]["traceback"]
    )


def test_running_out_of_memory_is_not_a_crash_of_the_measurement():
    def hungry(column, spec):
        raise MemoryError

    with pytest.raises(MemoryError):
        MeasurementRunner(make_schema(), [field_measure("hungry", hungry)]).measure(
            block_of({"x": np.zeros(1)})
        )


def test_half_a_character_in_a_text_does_not_travel():
    measure = field_measure("name", lambda c, s: {"n": ["\udc80"]})
    assert values(
        MeasurementRunner(make_schema(), [measure]).measure(block_of({"x": np.zeros(1)}))
    ) == {"x:n": ["\\udc80"]}


def test_a_measurement_that_cannot_tell_whether_it_applies_crashes_alone():
    def torn(spec):
        raise ZeroDivisionError

    bench = MeasurementRunner(
        make_schema({"x": {}}), [field_measure("torn", applies=torn), field_measure()]
    )
    assert values(bench.measure(block_of({"x": np.array([4])}))) == {"x:top": [4]}
    assert set(bench.crashes) == {"torn"}
    assert bench.failed == {"f0"}


def test_two_measurements_of_one_name_are_a_crash_whoever_wrote_them_and_no_fault_of_a_sample():
    def ours(column, spec):
        return {"top": np.zeros(len(column))}

    ours.__module__ = "datacheck.rules.families.numbers"
    bench = MeasurementRunner(
        make_schema({"x": {}}), [field_measure("of a plug-in"), field_measure("ours", ours)]
    )
    assert values(bench.measure(block_of({"x": np.array([4])}), strict=True)) == {"x:top": [4]}
    assert "another measurement has columns of these names" in bench.crashes["ours"]["traceback"]
