"""Values that a format can hold and no dataset does: no measurement, step or document ends a command by them."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from datacheck.cache.parsing import check_sizes
from datacheck.model.sample import ArraySpec, Block, Column, Origin, Piece
from datacheck.repro.captures import differences
from datacheck.repro.recorded import _line
from datacheck.repro.sections import json_differences
from datacheck.runtime.documents import parse_json
from datacheck.schema.load import parse_schema
from datacheck.sources import plan_work
from datacheck.sources.listing import list_files
from datacheck.transforms.cast import lost
from tests.rules.harness import judged, measured, schema_of


def ends(dtype):
    return np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)


ODD = {
    "no rows": lambda dtype, rest: np.zeros((0, *rest), dtype),
    "ones": lambda dtype, rest: np.ones((6, *rest), dtype),
    "largest": lambda dtype, rest: np.full((6, *rest), ends(dtype).max, dtype),
    "smallest": lambda dtype, rest: np.full((6, *rest), ends(dtype).min, dtype),
}
DTYPES = [np.dtype(name) for name in ("uint8", "int64", "uint64", "float16", "float64")]
SCHEMAS = {
    "gripper": (
        "g",
        (1,),
        {"fields": {"g": {"role": "gripper", "drives": "o"}, "o": {"role": "value"}}},
        ("o",),
    ),
    "faces": (
        "f",
        (3,),
        {"fields": {"f": {"role": "faces", "indexes": "p"}, "p": {"role": "points"}}},
        ("p",),
    ),
    "instance": ("i", (), {"fields": {"i": {"role": "instance"}}}, ()),
    "segment": ("s", (), {"fields": {"s": {"role": "segment"}}}, ()),
    "action": ("a", (7,), {"fields": {"a": {"role": "action", "shape": ["T", 7]}}}, ()),
    "points": (
        "p",
        (3,),
        {"fields": {"p": {"role": "points", "shape": ["P", 3], "unit": "m"}}},
        (),
    ),
    "joints": ("j", (21, 3), {"fields": {"j": {"role": "joints", "skeleton": "mano21"}}}, ()),
    "value": ("v", (2,), {"fields": {"v": {}}}, ()),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("role", SCHEMAS)
def test_no_measurement_and_no_rule_ends_a_scan(role, odd, dtype):
    name, rest, said, beside = SCHEMAS[role]
    values = ODD[odd](dtype, rest)
    fields = {name: values} | {
        other: np.ones((max(len(values), 6) if other == "p" else len(values), 3))
        for other in beside
    }
    schema = schema_of(said)
    table = measured(schema, [("", Piece(f"s{n}", fields, Origin(f"{n}.npz"))) for n in range(3)])
    found = judged(schema, table)
    assert [verdict.code for verdict in found.verdicts if verdict.verdict == "crash"] == []
    assert found.crashes == []


@pytest.mark.parametrize("shape", [(0,), (0, 3), (0, 3, 2), (4, 0)])
def test_a_cast_of_nothing_loses_nothing(shape):
    old = np.zeros(shape, np.int64)
    assert lost(old, old.astype(np.float64)).tolist() == [False] * shape[0]


def test_an_attribute_that_no_column_holds_is_the_largest_count():
    """It counted as none, and the wrong number passed."""
    from datacheck.rules.families.counts import attributes

    schema = schema_of({"fields": {"x": {}}, "attrs": {"n": "T"}})
    block = Block(
        ["a", "b"],
        "",
        {},
        [Origin("a"), Origin("b")],
        facts={"attrs/n": Column(np.array([1e300, 5.0]))},
    )
    column = attributes.function(block, schema)["attr/n"]
    assert (column.values.tolist(), column.present.tolist()) == ([2**63 - 1, 5], [True, True])


@pytest.mark.parametrize("depth", [64, 65, 5000])
def test_json_that_is_nested_deep_is_refused(depth):
    data = b"[" * depth + b"]" * depth
    if depth == 64:
        assert parse_json(data)
    else:
        with pytest.raises(ValueError, match=r"nested deeper than 64 levels|depth limit"):
            parse_json(data)


EVALUATION = {"kind": "eval", "step": 3, "name": "val", "values": {"loss": 1.0}}
BAD_LINES = {
    "a large number": {"kind": "step", "step": 3, "seen": 10**4299},
    "as many metrics": EVALUATION | {"values": {f"m{n}": 0.0 for n in range(1001)}},
    "a long metric": EVALUATION | {"values": {"m" * 1001: 0.0}},
    "a long name": EVALUATION | {"name": "m" * 1001},
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_of_a_trace_that_nobody_recorded_is_none(line):
    assert _line(json.dumps(EVALUATION).encode()) == EVALUATION
    assert _line(json.dumps(line).encode()) is None


def test_paths_of_what_differs_are_short():
    left, right = ({"k" * 1_000_000: {f"{n}": n + more for n in range(3000)}} for more in (0, 1))
    assert sum(len(one.name) for one in json_differences(left, right)) < 3000 * 1001


def test_data_under_other_names_are_found_in_time():
    sides = [
        {"data": {f"{side}{n}": {"digest": f"{(n + 7) % 20_000:032x}"} for n in range(20_000)}}
        for side in ("a", "b")
    ]
    began = time.process_time()
    assert differences(*sides) == []
    assert time.process_time() - began < 10


@pytest.mark.parametrize("count", [10, 200_000])
def test_windows_that_ask_for_one_step_often_count_each_time(count):
    fields = {"image": ArraySpec("uint8", (64, 64, 3), "T")}
    said = {"length": None, "delta_indices": {"image": [0] * count}}
    said = {"dim": "T", "history": 0, "stride": 1, "pad": "none", "short": "drop"} | said
    if count == 10:
        check_sizes(said, fields)
    else:
        with pytest.raises(ValueError, match="windows of"):
            check_sizes(said, fields)


@pytest.mark.parametrize(
    "line", ["plain", "good'x", 'a"b', "a'b\"c", "a\tb", r"a\tb", "x as 'y', z"]
)
@pytest.mark.parametrize("path", ["train.txt", "a as 'b', c.txt"])
def test_a_list_and_its_line_are_noted_as_they_are(tmp_path, path, line):
    """`fix` leaves the line out of the list, whatever either looks like."""
    np.save(tmp_path / "good.npy", np.zeros(3))
    (tmp_path / path).write_text(f"good\n{line}\n")
    schema = parse_schema(
        "datacheck: 1\nname: t\nsamples: {files: '{id}.npy', list: '{split}.txt'}\nfields: {'*': "
        "{}}"
    )
    notes = plan_work(schema, list_files(tmp_path)).notes
    assert [note.about for note in notes if "list" in note.about] == [{"list": path, "line": line}]
