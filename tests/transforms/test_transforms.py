"""Every built-in transform: what it computes (by arithmetic), what it refuses, that its specs tell the truth."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec, Origin, Piece, stack
from datacheck.transforms import bind, run, step, transforms
from datacheck.transforms.sample_points import permutation
from datacheck.transforms.scale import ratio

RAGGED = {
    "xyz": ArraySpec("float32", (3,), "P", attrs={"unit": "mm", "frame": "camera_opengl"}),
    "label": ArraySpec("int32", (), "P"),
    "joints": ArraySpec("float32", (21, 3), attrs={"unit": "m"}),
    "root": ArraySpec("float32", (3,), attrs={"unit": "m"}),
    "count": ArraySpec("int64"),
    "name": ArraySpec("uint8", (), "fields.name", "text"),
}


def block_of(*samples, **one):
    samples = samples or (one,)
    (block,) = stack([Piece(f"k{i}", sample, Origin("f")) for i, sample in enumerate(samples)])
    return block


def cloud(rows, seed=0):
    rng = np.random.Generator(np.random.Philox(seed))
    return {
        "xyz": rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
        "label": rng.integers(0, 9, rows).astype(np.int32),
        "joints": rng.uniform(-1, 1, (21, 3)).astype(np.float32),
        "root": rng.uniform(-1, 1, 3).astype(np.float32),
        "count": np.int64(rows),
        "name": "cloud",
    }


def arrays(sample):
    return {
        name: np.asarray(value) if not isinstance(value, str) else value
        for name, value in sample.items()
    }


def apply(entry, *samples, specs=RAGGED):
    """Bind, run and return ({key: fields}, {key: reason}, specs behind)."""
    steps, after = bind([step(entry)], specs)
    blocks, refused = run(steps, block_of(*map(arrays, samples)))
    return {s.key: dict(s.fields) for b in blocks for s in b}, dict(refused), after


def test_every_transform_is_found_by_name_and_says_its_version():
    names = list(transforms())
    assert names == sorted(names)
    assert {
        "select",
        "cast",
        "scale",
        "center",
        "camera",
        "voxel",
        "sample_points",
        "tokenize",
    } <= set(names)
    assert all(isinstance(kind.version, int) for kind in transforms().values())


ENTRIES = [
    {"select": ["xyz", "name"]},
    {"select": {"drop": ["xyz"]}},
    {"cast": {"fields": ["xyz", "label"], "to": "float64"}},
    {"scale": {"fields": ["xyz"], "to": "m"}},
    {"center": {"field": "xyz", "at": "centroid", "also": ["joints"]}},
    {"center": {"field": "joints", "at": "root"}},
    {"camera": {"fields": ["xyz"], "to": "opencv"}},
    {"camera": {"fields": ["root", "joints", "xyz"], "to": "opencv"}},
    {"scale": {"fields": ["root", "joints"], "to": "mm", "columns": [0, 2]}},
    {"center": {"field": "joints", "at": "root", "also": ["root"]}},
    {"cast": {"fields": ["root"], "to": "float64"}},
    {"voxel": {"points": "xyz", "edge": 0.5}},
    {"voxel": {"points": "joints", "edge": 0.5}},
    {"sample_points": {"points": "xyz", "n": 16}},
]


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_output_agrees_with_the_derived_specs(entry):
    made, refused, after = apply(entry, cloud(40, 1), cloud(40, 2))
    assert not refused
    for fields in made.values():
        assert sorted(fields) == sorted(after)
        for name, value in fields.items():
            spec = after[name]
            if spec.kind == "text":
                assert isinstance(value, str)
                continue
            assert value.dtype == np.dtype(spec.dtype)
            assert value.shape[spec.dim is not None :] == spec.item


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
@given(cut=st.integers(1, 5))
def test_a_sample_s_result_does_not_depend_on_its_block(entry, cut):
    samples = [cloud(rows, rows) for rows in (40, 40, 7, 60, 40, 1)]
    steps, _ = bind([step(entry)], RAGGED)

    def results(groups):
        found = {}
        for group in groups:
            for block in stack([Piece(f"k{i}", arrays(samples[i]), Origin("f")) for i in group]):
                for made in run(steps, block)[0]:
                    found |= {
                        s.key: {
                            n: (v if isinstance(v, str) else v.tobytes())
                            for n, v in s.fields.items()
                        }
                        for s in made
                    }
        return found

    assert results([range(6)]) == results([range(cut), range(cut, 6)])


ODD = [
    np.array(1, np.float32),
    np.zeros(5, np.float32),
    np.zeros((5, 2), np.float32),
    np.zeros((0, 0), np.float32),
]


@pytest.mark.parametrize(
    "value", [*ODD, "abc"], ids=["scalar", "vector", "two columns", "empty", "text"]
)
@pytest.mark.parametrize(
    "entry",
    [
        {"center": {"field": "points", "at": "centroid"}},
        {"center": {"field": "points", "at": "root"}},
        {"voxel": {"points": "points", "edge": 0.1}},
        {"sample_points": {"points": "points", "n": 16}},
    ],
    ids=["centroid", "root", "voxel", "sample_points"],
)
def test_a_sample_of_another_shape_is_left_to_the_shard_or_refused(entry, value):
    """It ended the build of all samples."""
    specs = {"points": ArraySpec("float32", (3,), "P")}
    steps, _ = bind([step(entry)], specs)
    blocks = stack(
        [
            Piece("a", {"points": cloud(20)["xyz"]}, Origin("a")),
            Piece("b", {"points": value}, Origin("b")),
        ]
    )
    results = [run(steps, block) for block in blocks]
    made = {key for found, _ in results for block in found for key in block.keys}
    refused = {key for _, some in results for key, _ in some}
    assert "a" in made
    assert made | refused == {"a", "b"}


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_the_input_is_not_changed(entry):
    sample = arrays(cloud(40))
    before = {n: (v if isinstance(v, str) else v.copy()) for n, v in sample.items()}
    steps, _ = bind([step(entry)], RAGGED)
    run(steps, block_of(sample))
    assert all(
        v == before[n] if isinstance(v, str) else np.array_equal(v, before[n])
        for n, v in sample.items()
    )


def test_a_step_survives_the_journey_to_a_child():
    for entry in ENTRIES:
        (bound,), _ = bind([step(entry)], RAGGED)
        assert step(bound.as_dict()) == bound
        assert step(bound.as_dict()).identity() == bound.identity()


# --------------------------------------------------------------------------------------- one by one


def test_select_needs_fields_or_drop():
    with pytest.raises(UsageError, match="either fields"):
        step({"select": {}})
    with pytest.raises(UsageError, match="no field 'colour'"):
        bind([step({"select": ["colour"]})], RAGGED)


@pytest.mark.parametrize(
    ("values", "dtype", "to", "fits"),
    [
        ([1.0, 2.0], "float64", "int32", True),
        ([1.5], "float64", "int32", False),
        ([np.nan], "float32", "int32", False),
        ([np.nan, np.inf], "float64", "float32", True),
        ([1e300], "float64", "float32", False),
        ([0.1], "float64", "float32", True),
        ([70000.0], "float32", "float16", False),
        ([255], "int64", "uint8", True),
        ([256], "int64", "uint8", False),
        ([-1], "int64", "uint64", False),
        ([2**24 + 1], "int64", "float32", False),
        ([2**63 - 1], "int64", "float64", False),
        ([2.0**63], "float64", "int64", False),
        ([2.0**64], "float64", "uint64", False),
        ([0, 1], "int8", "bool", True),
        ([2], "int8", "bool", False),
        ([True], "bool", "float32", True),
    ],
)
def test_cast_refuses_what_would_be_lost(values, dtype, to, fits):
    specs = {"x": ArraySpec(dtype, (), "N"), "y": ArraySpec("int8")}
    samples = [
        {"x": np.array(values, dtype), "y": np.int8(0)},
        {"x": np.array([1], dtype), "y": np.int8(1)},
    ]
    made, refused, _ = apply({"cast": {"fields": ["x"], "to": to}}, *samples, specs=specs)
    assert ("k0" in made) is fits
    assert made["k1"]["x"].tolist() == [1]
    assert refused == ({} if fits else {"k0": f"x: values do not fit {to}"})


def test_cast_exact_refuses_rounding():
    specs = {"x": ArraySpec("float64", (2,))}
    samples = [{"x": np.array([0.5, np.nan])}, {"x": np.array([0.1, 0.5])}]
    made, refused, _ = apply(
        {"cast": {"fields": ["x"], "to": "float32", "exact": True}}, *samples, specs=specs
    )
    assert sorted(made) == ["k0"]
    assert sorted(refused) == ["k1"]


def test_cast_names_unknown_dtypes():
    with pytest.raises(UsageError, match="float32"):
        step({"cast": {"fields": ["x"], "to": "float23"}})


def test_scale_divides_exactly():
    sample = cloud(5)
    sample["xyz"] = np.array([[1000, 1, 0.1]] * 5, np.float32)
    made, _, after = apply({"scale": {"fields": ["xyz"], "to": "m"}}, sample)
    assert made["k0"]["xyz"][0].tolist() == [
        np.float32(v) for v in (1.0, 0.001, np.float64(np.float32(0.1)) / 1000)
    ]
    assert after["xyz"].attrs["unit"] == "m"


@pytest.mark.parametrize(
    ("old", "new", "factor"),
    [
        ("mm", "m", Fraction(1, 1000)),
        ("in", "mm", Fraction(254, 10)),
        ("ft", "cm", Fraction(3048, 100)),
        ("ns", "s", Fraction(1, 10**9)),
    ],
)
def test_factors_are_exact(old, new, factor):
    assert ratio(old, new) == factor
    assert ratio(new, old) == 1 / factor


def test_scale_of_columns_leaves_the_rest():
    specs = {"pc": ArraySpec("float32", (4, 6), attrs={"unit": "cm"})}
    made, _, _ = apply(
        {"scale": {"fields": ["pc"], "to": "mm", "columns": [0, 3]}},
        {"pc": np.ones((4, 6), np.float32)},
        specs=specs,
    )
    assert made["k0"]["pc"][0].tolist() == [10, 10, 10, 1, 1, 1]


def test_scale_needs_to_know_the_unit_and_refuses_nonsense():
    with pytest.raises(UsageError, match="say from"):
        bind(
            [step({"scale": {"fields": ["xyz"], "to": "m"}})],
            {"xyz": ArraySpec("float32", (3,), "P")},
        )
    with pytest.raises(UsageError, match="mm cannot become rad"):
        bind([step({"scale": {"fields": ["xyz"], "to": "rad"}})], RAGGED)
    with pytest.raises(UsageError, match="takes floats"):
        bind([step({"scale": {"fields": ["label"], "from": "mm", "to": "m"}})], RAGGED)


@pytest.mark.parametrize("at", ["root", "centroid", "box", "xy"])
def test_center_puts_the_centre_at_the_origin(at):
    sample = cloud(50)
    points = sample["xyz"].astype(np.float64)
    middle = {
        "root": points[2],
        "centroid": points.mean(0),
        "box": (points.min(0) + points.max(0)) / 2,
        "xy": points.mean(0) * [1, 1, 0],
    }[at]
    made, _, after = apply(
        {"center": {"field": "xyz", "at": at, "joint": 2, "also": ["joints"]}}, sample
    )
    assert np.allclose(made["k0"]["xyz"], points - middle, atol=1e-7)
    assert np.allclose(made["k0"]["joints"], sample["joints"] - middle, atol=1e-7)
    assert after["xyz"].attrs["centered"] == at


def test_center_follows_every_step_of_a_trajectory():
    rng = np.random.Generator(np.random.Philox(3))
    specs = {"j": ArraySpec("float64", (21, 3), "T"), "wrist": ArraySpec("float64", (3,), "T")}
    sample = {"j": rng.random((7, 21, 3)), "wrist": rng.random((7, 3))}
    made, _, _ = apply(
        {"center": {"field": "j", "at": "root", "also": ["wrist"]}}, sample, specs=specs
    )
    assert np.array_equal(made["k0"]["j"], sample["j"] - sample["j"][:, :1])
    assert np.array_equal(made["k0"]["wrist"], sample["wrist"] - sample["j"][:, 0])


def test_center_refuses_a_sample_without_its_root():
    made, refused, _ = apply(
        {"center": {"field": "xyz", "at": "root", "joint": 5}}, cloud(5), cloud(6, 1)
    )
    assert sorted(made) == ["k1"]
    assert refused == {"k0": "xyz: 5 rows, so no root"}


@pytest.mark.parametrize(
    ("entry", "factors"),
    [
        ({"camera": {"fields": ["root"], "to": "opencv"}}, [1, -1, -1]),
        ({"scale": {"fields": ["root"], "to": "mm", "columns": [1, 3]}}, [1, 1000, 1000]),
    ],
)
def test_of_fields_of_one_vector_every_sample_is_changed(entry, factors):
    """Only the first sample of each block was: 194 of 195 evaluation samples of the HO-3D pipeline kept their frame."""
    samples = [cloud(5, seed) for seed in range(4)]
    made, _, _ = apply(entry, *samples)
    for i, sample in enumerate(samples):
        assert np.allclose(made[f"k{i}"]["root"], sample["root"] * np.float32(factors))


def test_the_fields_of_which_a_step_changes_a_part_are_known():
    assert step({"camera": {"fields": ["xyz", "root"], "to": "opencv"}}).partly_changed_fields == (
        "xyz",
        "root",
    )
    assert step(
        {"scale": {"fields": ["root"], "to": "mm", "columns": [0, 2]}}
    ).partly_changed_fields == ("root",)
    assert step({"scale": {"fields": ["root"], "to": "mm"}}).partly_changed_fields == ()


def test_camera_is_its_own_inverse_and_knows_the_frame():
    sample = cloud(9)
    made, _, after = apply({"camera": {"fields": ["xyz"], "to": "opencv"}}, sample)
    assert np.array_equal(made["k0"]["xyz"], sample["xyz"] * np.float32([1, -1, -1]))
    back, _, _ = apply({"camera": {"fields": ["xyz"], "to": "opengl"}}, made["k0"], specs=after)
    assert back["k0"]["xyz"].tobytes() == sample["xyz"].tobytes()
    with pytest.raises(UsageError, match="already"):
        bind([step({"camera": {"fields": ["xyz"], "to": "opengl"}})], RAGGED)


def test_voxel_keeps_the_lowest_row_of_every_cell():
    sample = cloud(4)
    sample["xyz"] = np.array([[0, 0, 0], [0.9, 0.9, 0.9], [1.1, 0, 0], [0.1, 0, 0]], np.float32)
    sample["label"] = np.arange(4, dtype=np.int32)
    made, _, _ = apply({"voxel": {"points": "xyz", "edge": 1}}, sample)
    assert made["k0"]["label"].tolist() == [0, 2]
    assert made["k0"]["xyz"].tolist() == sample["xyz"][[0, 2]].tolist()


def test_voxel_refuses_what_has_no_place_and_rows_that_do_not_go_along():
    nan, short = cloud(5), cloud(5, 1)
    nan["xyz"][3, 1] = np.nan
    short["label"] = short["label"][:4]
    made, refused, _ = apply({"voxel": {"points": "xyz", "edge": 0.1}}, nan, short, cloud(0, 2))
    assert sorted(made) == ["k2"]
    assert made["k2"]["xyz"].shape == (0, 3)
    assert "not finite" in refused["k0"]
    assert refused["k1"] == "label: 4 rows where xyz has 5"


@given(rows=st.integers(1, 60), n=st.integers(1, 60))
def test_sample_points_gives_exactly_n_distinct_rows_first(rows, n):
    made, _, _ = apply(
        {"sample_points": {"points": "label", "n": n}},
        cloud(rows) | {"label": np.arange(rows, dtype=np.int32)},
    )
    chosen = made["k0"]["label"]
    assert len(chosen) == len(made["k0"]["xyz"]) == n
    assert len(set(chosen.tolist())) == min(rows, n)
    counts = np.bincount(chosen, minlength=rows)
    assert counts.max() - counts.min() <= 1 + (n < rows)
    if n == rows:
        assert chosen.tolist() == list(range(rows))


def test_sample_points_refuses_an_empty_cloud():
    made, refused, _ = apply({"sample_points": {"points": "xyz", "n": 4}}, cloud(0))
    assert not made
    assert refused == {"k0": "xyz has no rows to take 4 from"}


def test_the_permutation_is_frozen():
    """Golden: Philox keyed by xxh3_64; a change would change every cache made with sample_points."""
    assert permutation("a", 8).tolist() == [0, 5, 4, 2, 7, 6, 3, 1]
    assert permutation("a", 8).tolist() != permutation("b", 8).tolist()


def test_the_permutation_is_the_same_in_another_process():
    code = (
        "from datacheck.transforms.sample_points import permutation; "
        "print(permutation('train/ä', 50).tolist())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == str(permutation("train/ä", 50).tolist())


# ----------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("nonsense", "no transform 'nonsense'; known are"),
        ("voxels", "Did you mean 'voxel'"),
        ({"voxel": {"points": "xyz", "edge": 0}}, "edge"),
        ({"voxel": {"points": "xyz", "size": 1}}, "size"),
        ({"voxel": "xyz"}, "options are written"),
        ([1], "is not a step"),
        ("no.such.module:fn", "No module named"),
    ],
)
def test_a_wrong_step_is_told_in_one_line(entry, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(")) as caught:
        step(entry).identity()
    assert "\n" not in str(caught.value)


def test_numeric_steps_refuse_text_and_too_few_axes():
    with pytest.raises(UsageError, match="name is text"):
        bind([step({"cast": {"fields": ["name"], "to": "float32"}})], RAGGED)
    with pytest.raises(UsageError, match="needs 2"):
        bind(
            [step({"voxel": {"points": "w", "edge": 1}})],
            {"w": replace(RAGGED["xyz"], item=(), dim="P")},
        )


def test_a_step_passes_over_listed_fields_that_the_data_do_not_have():
    there = {"a": ArraySpec("float64", (3,), "N"), "b": ArraySpec("float64", (3,), "N")}

    def left(entry, absent):
        steps, after = bind([step(entry)], there, absent)
        return [one.options() for one in steps], sorted(after)

    cast = {"cast": {"fields": ["a", "c"], "to": "float32"}}
    assert left(cast, {"c"}) == ([{"fields": ["a"], "to": "float32"}], ["a", "b"])
    assert left({"cast": {"fields": "c", "to": "float32"}}, {"c"}) == ([], ["a", "b"])
    assert left({"scale": {"fields": "c", "to": "m"}}, {"c"}) == ([], ["a", "b"])
    assert left({"select": ["a", "c"]}, {"c"})[1] == ["a"]
    assert left({"select": {"drop": ["a", "c"]}}, {"c"})[1] == ["b"]
    assert left({"select": {"drop": ["c"]}}, {"c"}) == ([], ["a", "b"])
    assert left({"center": {"field": "a", "at": "box", "also": ["b", "c"]}}, {"c"})[0][0][
        "also"
    ] == ["b"]
    for entry, absent in (
        (cast, ()),
        ({"select": "c"}, {"c"}),
        ({"center": {"field": "c", "at": "box"}}, {"c"}),
    ):
        with pytest.raises(UsageError, match="no field 'c'"):
            bind([step(entry)], there, absent)
