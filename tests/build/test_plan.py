"""The layout of a cache: what the schema says stands, what it leaves open is what most valid samples have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.build import fingerprint
from datacheck.build.field_layout import (
    estimate_sample_bytes,
    resolve,
    storage_specs,
    without_unstorable,
)
from datacheck.build.field_stats import (
    FieldStats,
    Signature,
    has_field_stats,
    signature,
    stats_of_blocks,
    stats_of_table,
)
from datacheck.build.fingerprint import Fingerprint
from datacheck.build.job import SplitSamples
from datacheck.build.plan import BuildPlan, make_plan
from datacheck.cache import layout
from datacheck.cache.codec import Codec
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec, Column
from datacheck.model.table import Measured, Table
from datacheck.schema.model import Schema
from datacheck.sources.base import Item
from datacheck.transforms import step
from tests.build.make import schema_of


def seen_of(*values):
    """None: absent; an array: as it is."""
    found = FieldStats.nothing(len(values))
    for i, value in enumerate(values):
        if value is not None:
            column = Column.of([value])
            lengths = 0 if column.lengths is None or column.kind != "array" else column.lengths
            found.add(np.array([i]), signature(column), lengths)
    return found


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def layout_of(spec, *values, valid=None):
    schema = schema_of({"f": spec} if spec is not None else {"*": {}})
    good = np.ones(len(values), bool) if valid is None else np.array(valid)
    return resolve(schema, {"f": seen_of(*values)}, good).get("f")


def test_what_is_declared_stands():
    spec = {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"}
    found = layout_of(spec, zeros(5, 3, dtype="float64"), zeros(5, 3))
    assert (found.dtype, found.item, found.dim) == ("float32", (3,), "P")
    assert found.attrs == {"role": "points", "unit": "m"}
    assert layout_of({"shape": [21, 3]}, zeros(3, 21)).item == (21, 3)


def test_what_is_open_is_what_most_have():
    assert layout_of(
        {"shape": ["T", "H", "W"]}, zeros(2, 8, 9), zeros(4, 8, 9), zeros(3, 1, 9)
    ).item == (8, 9)
    assert layout_of({}, zeros(4, 3), zeros(4, 3)) == ArraySpec("float32", (4, 3))
    assert layout_of({}, zeros(4, 3), zeros(5, 3)).dim == "fields.f"
    assert layout_of({}, zeros(0, 3), zeros(0, 3)).dim == "fields.f"
    assert layout_of({}, zeros()) == ArraySpec("float32")
    assert layout_of({}, zeros(4, 2), zeros(4, 3), zeros(6, 3)).item == (3,)


@pytest.mark.parametrize("odd", ["a text", {"a": 1}, zeros(7, 4), zeros(9), zeros()])
def test_a_sample_that_cannot_be_made_makes_no_field_ragged(odd):
    assert layout_of({}, zeros(4, 3), odd, zeros(4, 3)) == ArraySpec("float32", (4, 3))
    assert layout_of({}, zeros(4), "a text", zeros(4)) == ArraySpec("float32", (4,))
    assert layout_of({}, zeros(4, 3), odd, zeros(5, 3)).dim == "fields.f"
    # This one can be made
    assert layout_of({}, zeros(4, 3), zeros(0, 3), zeros(4, 3)).dim == "fields.f"


def test_ties_go_to_the_smaller_sizes():
    assert layout_of({"shape": ["T", "W"]}, zeros(1, 9), zeros(1, 2)).item == (2,)
    assert layout_of({"shape": ["T", "W"]}, zeros(1, 2), zeros(1, 9)).item == (2,)


@pytest.mark.parametrize(
    ("dtypes", "common"),
    [
        (("int8", "int32"), "int32"),
        (("float32", "float64"), "float64"),
        (("bool", "bool"), "bool"),
        (("int64", "float32"), "float64"),
        (("int32", "uint32"), "int64"),
        (("int64", "int64", "uint64"), "int64"),
        (("uint64", "int8", "uint64"), "uint64"),  # none holds all
    ],
)
def test_an_open_dtype_holds_all_where_one_does(dtypes, common):
    assert layout_of({}, *[zeros(2, dtype=d) for d in dtypes]).dtype == common


@pytest.mark.parametrize(
    ("role", "dtypes", "dtype"),
    [
        ("class", ["int64"] * 5 + ["float32"], "int64"),
        ("timestamp", ["int64"] * 5 + ["float64"], "int64"),
        ("timestamp", ["int64"] * 4 + ["float64"], "float64"),
        ("timestamp", ["float64", "float64", "int64"], "float64"),
        ("class", ["int8", "int8", "int64"], "int64"),
        ("value", ["int64", "int64", "float32"], "float64"),
        (None, ["int64", "int64", "float32"], "float64"),
    ],
)
def test_classes_and_times_stay_whole_numbers_whatever_few_samples_have(role, dtypes, dtype):
    spec = {"role": role} if role else {}
    assert layout_of(spec, *[zeros(2, dtype=one) for one in dtypes]).dtype == dtype


def test_one_odd_file_of_floats_makes_no_floats_of_pictures():
    few = [zeros(size, 4, dtype="uint8") for size in range(2, 32)]  # each of another size
    assert layout_of({}, *few, zeros(2, 4, dtype="float64")).dtype == "uint8"
    assert layout_of({}, *few[:18], zeros(2, 4, dtype="float64")).dtype == "float64"  # 1 of 19
    assert layout_of({}, *few, zeros(2, 4, dtype="uint16")).dtype == "uint16"  # which holds all
    for shape in ((), (3,)):  # 1 and 0.5 in JSON
        assert (
            layout_of({}, *([zeros(*shape, dtype="int64")] * 30), zeros(*shape)).dtype == "float64"
        )
    assert layout_of({}, *few).dtype == "uint8"


def test_a_field_that_few_samples_have_takes_no_room_where_it_is_absent():
    large = zeros(1000, 3)
    assert layout_of(None, large, None, None).dim == "fields.f"
    assert layout_of(None, large, None, None).item == (3,)
    assert layout_of(None, large, large, None) == ArraySpec("float32", (1000, 3), optional=True)
    assert layout_of(None, zeros(), None, None).item == ()  # a number
    assert layout_of({"optional": True}, large, None, None).dim == "fields.f"
    # It is asked for
    assert layout_of({"optional": True, "shape": [1000, 3]}, large, None, None).item == (1000, 3)


def test_only_valid_samples_have_a_say_unless_there_are_none():
    values = zeros(4, 3), zeros(9, 3, dtype="float64"), zeros(9, 3, dtype="float64")
    assert layout_of({}, *values, valid=[True, False, False]) == ArraySpec("float32", (4, 3))
    assert layout_of({}, *values, valid=[False] * 3).dtype == "float64"


def test_optional_is_what_is_declared_so_or_undeclared_and_missing():
    assert not layout_of({}, zeros(2), None).optional
    assert layout_of({"optional": True}, zeros(2), None).optional
    assert layout_of(None, zeros(2), None).optional
    assert not layout_of(None, zeros(2), zeros(2)).optional
    assert layout_of({}, None, None) is None
    assert layout_of({"absent": True}, zeros(2)) is None


def test_text_has_a_dimension_of_its_own():
    found = layout_of({"role": "text"}, "a", "bb")
    assert (found.dtype, found.dim, found.kind) == ("uint8", layout.text_dim("f"), "text")
    assert layout_of({"role": "chat"}, [1], [2]).kind == "json"
    renamed = storage_specs({"t": ArraySpec("uint8", (), "whatever", "text")})
    assert renamed["t"].dim == layout.text_dim("t")


def test_what_no_cache_holds_is_refused_in_words():
    with pytest.raises(UsageError, match=r"f: an axis of size 0 .* select"):
        storage_specs({"f": layout_of({"shape": ["T", "W"]}, zeros(4, 0))})
    ones = [1] * 62
    storage_specs(
        {
            "f": layout_of({"shape": ones[1:]}, zeros(*ones[1:])),
            "g": layout_of({"shape": ["T", *ones[1:]]}, zeros(*ones)),
        }
    )
    with pytest.raises(UsageError, match=r"f: 62 axes; a cache holds at most 61. .* select"):
        storage_specs({"f": layout_of({"shape": ones}, zeros(*ones))})
    with pytest.raises(UsageError, match=r"f: 63 axes; a cache holds at most 62. .* select"):
        storage_specs({"f": layout_of({"shape": ["T", *ones]}, zeros(1, *ones))})
    both = {"obs": seen_of(zeros(1)), "obs/pose": seen_of(zeros(1))}
    with pytest.raises(UsageError, match="both obs and obs/pose"):
        storage_specs(resolve(schema_of({"*": {}}), both, np.ones(1, bool)))


def kept_of(seen, schema, count, codes=()):
    keys = [f"k{i}" for i in range(count)]
    good = np.array([key not in codes for key in keys])
    samples = SplitSamples(
        keys,
        [],
        np.zeros(count, int),
        keys,
        np.ones(count, bool),
        good,
        [()] * count,
        np.zeros(count),
    )
    return without_unstorable(
        resolve(schema_of(schema), seen, good), schema_of(schema), seen, samples
    )


def test_an_odd_field_of_few_samples_that_no_cache_holds_is_left_out_and_named():
    some = seen_of(zeros(2), None, None)
    two = seen_of(None, zeros(2), zeros(2))
    every = seen_of(zeros(2), zeros(2), zeros(2))
    found, said = kept_of(
        {"f": every, "f/x": some, "e": seen_of(None, zeros(4, 0), None), "x" * 300: some},
        {"*": {}},
        3,
    )
    assert list(found) == ["f"]
    assert [line.partition(":")[0] for line in said] == [
        "e",
        "a cache cannot hold both f and f/x. Leave one out or rename it",
        "x" * 60 + "...",
    ]
    assert [line.partition(" (1 of 3 ")[2] for line in said] == [
        "samples, such as k1)",
        "samples, such as k0)",
        "samples, such as k0)",
    ]
    found, said = kept_of({"f": some, "f/x": two, "f/y": two}, {"*": {}}, 3)
    assert (list(found), len(said)) == (["f/x", "f/y"], 1)
    assert "both f and f/x" in said[0]


def test_a_field_that_is_listed_or_that_half_of_the_valid_samples_have_is_never_left_out():
    odd = seen_of(zeros(2, 0), None, None)
    assert kept_of({"e": odd}, {"e": {"optional": True}}, 3)[1] == []
    assert kept_of({"e": seen_of(zeros(2, 0), zeros(2, 0), None, None)}, {"*": {}}, 4)[1] == []
    assert kept_of({"e": odd}, {"*": {}}, 3, codes=["k1", "k2"])[1] == []
    some = seen_of(zeros(1), None, None)
    found, said = kept_of({"f": some, "f/x": some}, {"*": {}}, 3)  # of two the inner one goes
    assert (list(found), len(said)) == (["f"], 1)


# ------------------------------------------------------------------------------------------- seen


@pytest.mark.parametrize("name", ["x//y", "x/", "/x", "", "x/\0", "a\0b"])
def test_a_name_that_would_be_read_as_another_is_refused(name):
    with pytest.raises(UsageError, match=r"an empty part or a NUL, .* Rename it"):
        storage_specs({"other": ArraySpec("int8", ()), name: ArraySpec("int8", ())})
    with pytest.raises(UsageError, match="an empty part or a NUL"):
        storage_specs({name: ArraySpec("int8", ())})


@pytest.mark.parametrize("name", ["x" * 249, "\u4e2d" * 28, "/".join(["x" * 200] * 11)])
def test_a_name_that_is_too_long_for_a_file_is_refused(name):
    with pytest.raises(UsageError, match="too long for the name of a file"):
        storage_specs({name: ArraySpec("int8", ())})
    storage_specs({name[:200][:27]: ArraySpec("int8", ())})


def test_a_scan_s_table_says_the_same_as_the_values():
    keys = ["a", "b", "c"]
    schema = schema_of(
        {"x": {"shape": ["P", 3]}, "s": {"shape": []}, "t": {"role": "text"}, "gone": {}}
    )
    dims = np.array([[5, 3], [0, 0], [7, 3]])
    here = np.array([True, False, True])
    table = Table(
        keys=keys,
        columns={
            "x:ndim": Measured(np.array([2, 0, 2]), here),
            "x:dims": Measured(dims, here),
            "x:dtype": Measured(np.array(["float32", "", "float64"], dtype=object), here),
            "s:ndim": Measured(np.zeros(3, int), np.ones(3, bool)),
            "s:dtype": Measured(np.array(["int64"] * 3, dtype=object), np.ones(3, bool)),
            "t:ndim": Measured(np.full(3, -1), np.ones(3, bool)),
            "t:dtype": Measured(np.array(["text"] * 3, dtype=object), np.ones(3, bool)),
        },
    )
    found = stats_of_table(schema, table)
    wanted = {
        "x": seen_of(zeros(5, 3), None, zeros(7, 3, dtype="float64")),
        "t": seen_of("", "", ""),
    }
    wanted["s"] = seen_of(*[zeros(dtype="int64")] * 3)
    assert sorted(found) == sorted(wanted)
    for name, one in wanted.items():
        assert found[name].signatures == one.signatures
        assert found[name].which.tolist() == one.which.tolist()
        assert found[name].length.tolist() == one.length.tolist()


ARRAYS = st.tuples(st.integers(0, 2), st.sampled_from(["uint8", "float32"]))
TEXTS = st.tuples(st.just(-1), st.sampled_from(["text", "json"]))


@given(st.lists(st.tuples(st.booleans(), ARRAYS | TEXTS, st.lists(st.integers(0, 2))), max_size=12))
def test_whatever_mixture_a_table_holds_each_sample_has_its_own_form(rows):
    there = np.array([ok for ok, *_ in rows], bool)
    dims = np.array([(sizes + [7] * 2)[:2] for _, _, sizes in rows], np.int64).reshape(-1, 2)
    table = Table(
        keys=[str(i) for i in range(len(rows))],
        columns={
            "x:ndim": Measured(np.array([rank for _, (rank, _), _ in rows], np.int64), there),
            "x:dims": Measured(dims, there),
            "x:dtype": Measured(
                np.array([dtype for _, (_, dtype), _ in rows], dtype=object), there
            ),
        },
    )
    found = stats_of_table(schema_of({"x": {}}), table)["x"]
    for i, (ok, (rank, dtype), _) in enumerate(rows):
        assert (found.which[i] >= 0) == ok
        if ok:
            array = Signature("array", dtype, rank, tuple(dims[i, 1 : max(1, rank)].tolist()))
            assert found.signatures[found.which[i]] == (
                array if rank >= 0 else Signature(dtype, "uint8", 1, ())
            )
            assert found.length[i] == (dims[i, 0] if rank > 0 else 0)


def test_a_table_is_enough_only_where_every_field_is_declared():
    table = Table(columns={"x:ndim": Measured(np.zeros(0, int), np.zeros(0, bool))})
    assert has_field_stats(schema_of({"x": {}}), table)
    assert not has_field_stats(schema_of({"x": {}, "*": {}}), table)
    assert not has_field_stats(schema_of({}), table)
    assert not has_field_stats(schema_of({"y": {}}), table)


def test_blocks_are_placed_by_key():
    from datacheck.model.sample import Origin, Piece, stack

    blocks = stack(
        [Piece("b", {"x": zeros(2, 3)}, Origin("f")), Piece("a", {"x": zeros(4, 3)}, Origin("f"))]
    )
    found = stats_of_blocks(["a", "b", "c"], blocks)["x"]
    assert found.signatures == [Signature("array", "float32", 2, (3,))]
    assert found.length.tolist() == [4, 2, 0]
    assert found.which.tolist() == [0, 0, -1]


# ------------------------------------------------------------------------------------------- cut


def samples_of(count, size=100, **changes):
    said = {
        "keys": [f"{i:04d}" for i in range(count)],
        "items": [Item("a")],
        "item_of": np.zeros(count, int),
        "inner": [""] * count,
        "readable": np.ones(count, bool),
        "valid": np.ones(count, bool),
        "codes": [()] * count,
        "nbytes": np.full(count, size),
    }
    return SplitSamples(**(said | changes))


def test_shards_and_tasks_partition_the_samples():
    spec = {"x": ArraySpec("float32", (4096, 6))}
    plan = make_plan("all", samples_of(5000, 98_304), spec, 98_304)
    assert plan.shard_samples == 512
    assert plan.shards == 10
    assert [plan.shard(g) for g in (0, 9)] == [slice(0, 512), slice(4608, 5000)]
    assert list(plan.series()) == [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 9]]]
    assert plan.per_task == (256 << 20) // (512 * 98_304)


def plan_of_files(*counts, k=10, per_task=2):
    """Return a plan of numbered samples of 100 bytes, so many of each file."""
    keys = [
        f"{name}:{i:012d}" for name, count in zip("abc", counts, strict=False) for i in range(count)
    ]
    item_of = np.repeat(np.arange(len(counts)), counts)
    samples = samples_of(
        len(keys), keys=keys, items=[Item(name) for name in "abc"[: len(counts)]], item_of=item_of
    )
    return BuildPlan("all", samples, {"x": ArraySpec("float32", ())}, k, per_task)


def test_a_file_that_cannot_be_entered_in_the_middle_is_of_one_series_of_tasks():
    plan = plan_of_files(95)
    tasks = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert list(plan.series({0: np.array([0])})) == [tasks]
    assert list(plan.series()) == [[task] for task in tasks]  # the control
    two = plan_of_files(40, 60)
    assert list(two.series({0: np.array([0]), 1: np.array([0])})) == [tasks[:2], tasks[2:]]
    assert list(two.series({1: np.array([0])})) == [[tasks[0]], [tasks[1]], tasks[2:]]


def test_a_series_ends_where_little_is_read_again():
    tasks = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    plan = plan_of_files(100)
    assert list(plan.series({0: np.array([0, 40, 70])})) == [
        tasks[:2],
        [[4, 5], [6]],
        [[7, 8], [9]],
    ]
    # at most 1/16: one sample beside 20, two beside 40
    assert list(plan.series({0: np.array([0, 19, 38, 58])})) == [tasks[:1], tasks[1:3], tasks[3:]]
    assert list(plan.series({0: np.array([0, 18])})) == [tasks]
    assert list(plan.series({0: np.array([0, 18, 37])})) == [tasks]


def test_what_is_read_again_is_counted_in_the_file_itself():
    plan = plan_of_files(15, 85)  # shard 2 begins with the fifth sample of the second file
    assert plan._again(2, {1: np.array([0])}) == 5 * 100
    assert plan._again(2, {1: np.array([0, 3])}) == 2 * 100
    assert plan._again(2, {1: np.array([0, 5])}) == 0
    assert plan._again(2, {0: np.array([0])}) == 0


def test_a_sample_s_size_is_estimated_behind_the_transforms():
    before = {
        "x": ArraySpec("float32", (3,), "P"),
        "y": ArraySpec("float64", (4,)),
        "t": ArraySpec("uint8", (), "fields.t", "text"),
    }
    seen = {
        "x": seen_of(zeros(10, 3), zeros(20, 3)),
        "y": seen_of(zeros(4), zeros(4)),
        "t": seen_of("", ""),
    }
    samples = samples_of(2, nbytes=np.array([10 * 12 + 32 + 50, 20 * 12 + 32 + 70]))
    assert estimate_sample_bytes(before, before, seen, samples) == (202 + 342) // 2
    assert estimate_sample_bytes(before, {"x": before["x"]}, seen, samples) == 180
    assert estimate_sample_bytes(before, {"t": before["t"]}, seen, samples) == 60
    assert (
        estimate_sample_bytes(before, {"ids": ArraySpec("int64", (), "tokens")}, seen, samples)
        == 60
    )
    assert estimate_sample_bytes(before, {"x": ArraySpec("float32", (16, 3))}, seen, samples) == 192


# -------------------------------------------------------------------------------------- fingerprint

SOURCES = {"a": "00" * 16}


def key_of(**changes):
    schema = changes.get("schema", schema_of({"x": {"shape": [4]}}))
    specs = changes.get("specs", {"x": ArraySpec("float32", (4,))})
    samples, codec = changes.get("samples", samples_of(3)), changes.get("codec", Codec())
    plan = BuildPlan(changes.get("split", "all"), samples, specs, changes.get("k", 8), codec=codec)
    steps = [step(s) for s in changes.get("steps", [])]
    said = fingerprint.key_inputs(
        changes.get("pipeline", "p"), schema, steps, plan, changes.get("sources", SOURCES)
    )
    return Fingerprint(said, "").key


CHANGES = {
    "pipeline": {"pipeline": "q"},
    "a range in the schema": {"schema": schema_of({"x": {"shape": [4], "range": "0..1"}})},
    "a field's layout": {"specs": {"x": ArraySpec("float64", (4,))}},
    "a source": {"sources": {"a": "01" * 16}},
    "one more source": {"sources": SOURCES | {"b": "00" * 16}},
    "a step": {"steps": [{"select": ["x"]}]},
    "the order of steps": {
        "steps": [{"select": ["x"]}, {"cast": {"fields": ["x"], "to": "float32"}}]
    },
    "another order of steps": {
        "steps": [{"cast": {"fields": ["x"], "to": "float32"}}, {"select": ["x"]}]
    },
    "an option of a step": {"steps": [{"select": ["x", "y"]}]},
    "the verdict": {
        "samples": samples_of(3, valid=np.array([True, False, True]), codes=[(), ("DC201",), ()])
    },
    "its reason": {
        "samples": samples_of(3, valid=np.array([True, False, True]), codes=[(), ("DC304",), ()])
    },
    "what is readable": {"samples": samples_of(3, readable=np.array([True, False, True]))},
    "a key": {"samples": samples_of(3, keys=["a", "b", "c"])},
    "the split": {"split": "train"},
    "the cut": {"k": 16},
    "compression": {"codec": Codec("zstd")},
    "its level": {"codec": Codec("zstd", 9)},
}


def test_everything_that_decides_the_bytes_changes_the_key_and_nothing_twice():
    keys = {name: key_of(**change) for name, change in CHANGES.items()} | {"nothing": key_of()}
    assert len(set(keys.values())) == len(keys)
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys.values())


def test_places_on_this_machine_do_not_change_the_key():
    said = {"datacheck": 1, "name": "t", "samples": {"files": "*"}, "fields": {"x": {"shape": [4]}}}
    one = Schema.model_validate(
        said | {"roots": {"m": "/data/m"}, "tokenizer": {"path": "/a", "vocab": 9}}
    )
    two = Schema.model_validate(
        said | {"roots": {"m": "/mnt/m"}, "tokenizer": {"path": "/b", "vocab": 9}}
    )
    three = Schema.model_validate(said | {"tokenizer": {"path": "/b", "vocab": 10}})
    assert key_of(schema=one) == key_of(schema=two) != key_of(schema=three)


def test_shards_of_another_codec_are_other_shards():
    plans = [
        BuildPlan("all", samples_of(3), {"x": ArraySpec("float32", (4,))}, 8, codec=c)
        for c in (Codec(), Codec("zstd"))
    ]
    one, two = (fingerprint.recipe(schema_of({"x": {"shape": [4]}}), [], plan) for plan in plans)
    assert one != two


def test_the_order_of_loader_steps_changes_the_key():
    one = schema_of({"x": {"shape": [4]}}, loader={"clip": 5, "min_points": 2})
    two = schema_of({"x": {"shape": [4]}}, loader={"min_points": 2, "clip": 5})
    assert key_of(schema=one) != key_of(schema=two)


def test_the_key_is_frozen():
    """Golden: a change here makes every cache of every user stale."""
    assert key_of() == "4255edddd1773324"


def test_samples_of_other_axes_decide_no_dtype_whatever_of_the_shape_is_declared():
    """Two of 12 pictures with four channels, which no cache takes, made all others uint16."""
    images = [zeros(8, 8, 3, dtype="uint8")] * 10 + [zeros(8, 8, 4, dtype="uint16")] * 2
    for spec in ({"shape": ["H", 8, 3]}, {"shape": [8, "W", 3]}, {"shape": ["H", "W", 3]}, {}):
        assert layout_of(spec, *images).dtype == "uint8"
    assert layout_of({"shape": [8, 8, 1]}, *images).dtype == "uint16"  # none fits


def test_own_code_may_give_samples_of_other_axes_those_of_most():
    """Their dtype was left out, so that what a function made of them was refused: 16 of 20 samples were left."""
    values = [zeros(8, 3)] * 4 + [zeros(8, 4, dtype="float64")]
    seen, valid = {"f": seen_of(*values)}, np.ones(5, bool)
    schema = schema_of({"*": {}})
    assert resolve(schema, seen, valid)["f"] == ArraySpec("float32", (8, 3))
    assert resolve(schema, seen, valid, own_code=True)["f"] == ArraySpec("float64", (8, 3))
