"""Instances are counted as the loader's steps leave them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.model.table import Note
from datacheck.rules.families.labels import labels
from datacheck.rules.label_counts import funnel
from datacheck.schema.model import FieldSpec
from tests.rules.harness import codes, judged, measured, schema_of

FIELDS = """
fields:
  xyz: {role: points, shape: [P, 3]}
  semantic: {role: class, shape: [P], classes: 0..9, ignore: [-100]}
  instance: {role: instance, shape: [P], ignore: [-100]}
"""


def scene(points, classes, ids, **more):
    fields = {
        "xyz": np.asarray(points, np.float32),
        "semantic": np.asarray(classes, np.float32),
        "instance": np.asarray(ids, np.float32),
    }
    return Piece(more.pop("key", "s"), fields | more, Origin("s"))


def counts(piece, text):
    (block,) = stack([piece])
    found = funnel.function(block, schema_of(FIELDS + text))
    largest = found["largest"]
    return found["funnel"].values[0].tolist(), float(largest.values[0]) if largest.present[
        0
    ] else None


# 100 points, 1 apart
GRID = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0), [0.0]), axis=-1).reshape(-1, 3)


def test_each_step_takes_what_it_says():
    ids = np.repeat([0, 1, 2, -100], 25)
    classes = np.repeat([3, 4, -100, 5], 25)
    steps = "loader: {voxel: 0.5, drop_classes: [4], min_points: 25}"
    assert counts(scene(GRID, classes, ids), steps) == ([3, 2, 2, 1, 1], 25.0)
    assert counts(scene(GRID, classes, ids), steps.replace("25}", "26}")) == ([3, 2, 2, 1, 0], 25.0)


def test_instances_are_counted_by_their_points_where_min_points_meets_them():
    sizes = [3, 10, 37, 50]
    points = np.stack([np.arange(100.0)] * 3, axis=1)
    (block,) = stack([scene(points, np.full(100, 3), np.repeat(np.arange(4), sizes))])
    found = funnel.function(block, schema_of(FIELDS + "loader: {min_points: 10}"))["sizes"]
    # Up to 1, 2, 3, 5, 10, 20, 40, and from there on
    assert found.values.tolist() == [[0, 0, 0, 1, 0, 1, 1, 1]]
    assert "sizes" not in funnel.function(block, schema_of(FIELDS + "loader: {voxel: 1.0}"))


def test_steps_run_in_the_order_written():
    ids, classes = np.repeat([0, 1], 50), np.repeat([3, 4], 50)
    assert counts(scene(GRID, classes, ids), "loader: {min_points: 40, voxel: 2.0}")[0] == [
        2,
        2,
        2,
        2,
    ]
    assert counts(scene(GRID, classes, ids), "loader: {voxel: 2.0, min_points: 40}")[0] == [
        2,
        2,
        2,
        0,
    ]


def test_an_instance_has_the_class_of_its_first_point_that_is_left():
    classes = np.full(100, 3)
    classes[0] = 4
    found = counts(scene(GRID, classes, np.zeros(100)), "loader: {drop_classes: [4]}")[0]
    assert found == [1, 1, 0]


def test_clip_gives_the_expected_count():
    _, largest = counts(
        scene(GRID, np.full(100, 3), np.zeros(100)), "loader: {clip: 40, min_points: 10}"
    )
    assert largest == pytest.approx(40)
    _, largest = counts(
        scene(GRID, np.full(100, 3), np.zeros(100)), "loader: {clip: 500, min_points: 10}"
    )
    assert largest == pytest.approx(100)


def test_a_voxel_survives_a_clip_as_often_as_one_of_its_points_does():
    points = np.concatenate([np.zeros((4, 3)), np.ones((6, 3))])  # two voxels of 4 and 6 points
    _, largest = counts(
        scene(points, np.full(10, 3), np.zeros(10)), "loader: {clip: 5, voxel: 0.5, min_points: 1}"
    )
    assert largest == pytest.approx((1 - 0.5**4) + (1 - 0.5**6))


def test_captions_keep_the_instances_that_they_name():
    ids = np.repeat([0, 1, 2, 3], 25)
    text = FIELDS.replace("fields:", "fields:\n  told: {role: captions}")
    for told in ({"2": "x", "7": "y"}, {"objects": {"2": "x", "7": "y"}}):
        (block,) = stack([scene(GRID, np.full(100, 3), ids, told=told)])
        found = funnel.function(block, schema_of(text + "loader: {captions: told}"))
        assert found["funnel"].values[0].tolist() == [4, 4, 1]


@given(
    st.lists(
        st.tuples(st.integers(-1, 3), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40
    ),
    st.integers(1, 5),
)
def test_the_funnel_is_that_of_a_plain_loop(rows, least):
    ids, classes, place = (np.array(column) for column in zip(*rows, strict=True))
    points = np.stack([place, np.zeros(len(place)), np.zeros(len(place))], axis=1)
    text = (
        FIELDS.replace("[-100]", "[-1]")
        + f"loader: {{voxel: 1.0, drop_classes: [2], min_points: {least}}}"
    )
    (block,) = stack([scene(points, classes, ids)])
    found = funnel.function(block, schema_of(text))["funnel"].values[0].tolist()
    seen: dict[int, int] = {}
    for row, p in enumerate(place.tolist()):
        seen.setdefault(p, row)
    kept = sorted(seen.values())  # the lowest row of each voxel
    alive = {i: [r for r in kept if ids[r] == i] for i in sorted(set(ids.tolist()) - {-1})}
    after_voxel = {i: r for i, r in alive.items() if r}
    after_drop = {i: r for i, r in after_voxel.items() if classes[r[0]] != 2}
    after_least = {i: r for i, r in after_drop.items() if len(r) >= least}
    assert found == [len(alive), len(alive), len(after_voxel), len(after_drop), len(after_least)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("least", [1, 5, 60])
def test_the_funnel_of_a_large_scene_is_that_of_all_its_voxels(seed, least):
    rng = np.random.default_rng(seed)
    count, instances = 40_000, 30
    sizes = np.ceil(np.geomspace(1, 9_000, instances)).astype(int)
    ids = np.full(count, -100)
    ids[: sizes.sum()] = np.repeat(np.arange(instances), sizes)
    middle = rng.uniform(-2, 2, (instances + 1, 3))[np.where(ids < 0, instances, ids)]
    points = np.where(
        rng.random((count, 1)) < 0.4,
        rng.uniform(-1, 1, (count, 3)),
        middle + rng.normal(0, 0.2, (count, 3)),
    )
    order = rng.permutation(count) if seed % 2 else np.arange(count)[::-1]
    points, ids = points[order].astype(np.float32), ids[order]
    classes = rng.integers(0, 4, count)
    text = f"loader: {{voxel: 0.1, drop_classes: [2], min_points: {least}}}"
    found, largest = counts(scene(points, classes, ids), text)
    cell = np.floor((points.astype(np.float64) - points.min(axis=0).astype(np.float64)) / 0.1)
    kept = np.sort(np.unique(cell, axis=0, return_index=True)[1])
    alive = {i: kept[ids[kept] == i] for i in range(instances)}
    voxels = {i: rows for i, rows in alive.items() if len(rows)}
    classed = {i: rows for i, rows in voxels.items() if classes[rows[0]] != 2}
    enough = [i for i, rows in classed.items() if len(rows) >= least]
    assert found == [instances, instances, len(voxels), len(classed), len(enough)]
    most = max(map(len, classed.values()))
    assert largest == most if most <= 4 * least else 4 * least <= largest <= most


def verdicts(sizes, least, **more):
    """Findings of scenes that hold one instance of each size, judged with min_points `least`."""
    text = FIELDS + f"loader: {{min_points: {least}}}"
    schema = schema_of(text)
    pieces = []
    for n, size in enumerate(sizes):
        ids = np.where(np.arange(100) < size, 0, -100)
        pieces.append(("", scene(GRID + n, np.where(ids == 0, 3, 5), ids, key=f"s{n}", **more)))
    return judged(schema, measured(schema, pieces)).findings


def test_near_the_limit_a_scene_is_doubtful_and_below_it_lost():
    found = {f.kind: (f.severity, f.rows.tolist()) for f in verdicts([50, 90, 8, 14], 12)}
    assert found == {"": ("error", [2]), "near": ("warning", [3])}
    found = {f.kind: (f.severity, f.rows.tolist()) for f in verdicts([50, 90, 10], 12)}
    assert found == {"near": ("warning", [2])}  # 10 of 12: the loader's own voxels may keep it


def test_the_step_that_takes_the_last_instance_is_named():
    raw, emptied = sorted(verdicts([50, 3, 0, 4], 12), key=lambda f: f.code)
    assert (raw.code, raw.rows.tolist()) == ("DC401", [2])  # nothing that the loader could lose
    assert (emptied.code, emptied.rows.tolist()) == ("DC402", [1, 3])
    assert emptied.measured["lost_at"] == {"min_points": 2}
    assert "2 lost the last at min_points" in emptied.message
    assert (emptied.cause.kind, emptied.cause.explains) == ("min_points", 2)


def test_every_step_that_empties_a_scene_is_counted():
    text = FIELDS.replace("fields:", "fields:\n  told: {role: captions}")
    schema = schema_of(text + "loader: {drop_classes: [4], min_points: 12, captions: told}")
    ids = np.where(np.arange(100) < 40, 7, -100)
    few = np.where(np.arange(100) < 4, 7, -100)
    made = [
        ("kept", 3, ids, {"7": "x"}),
        ("ignored", -100, ids, {"7": "x"}),
        ("wall", 4, ids, {"7": "x"}),
        ("small", 3, few, {"7": "x"}),
        ("other", 3, ids, {"9": "x"}),
        ("told", 3, ids, {}),
    ]
    pieces = [
        ("", scene(GRID + n, np.where(own >= 0, c, 5), own, key=f"s{n}", told=told))
        for n, (_, c, own, told) in enumerate(made)
    ]
    (finding,) = [f for f in judged(schema, measured(schema, pieces)).findings if f.code == "DC402"]
    assert finding.rows.tolist() == [1, 2, 3, 4, 5]
    assert finding.measured["lost_at"] == {
        "labelled": 1,
        "drop_classes": 1,
        "min_points": 1,
        "captions": 2,
    }
    assert finding.cause.kind == "captions"


@pytest.mark.parametrize(("small", "kind"), [(1, "few"), (2, "tiny")])
def test_more_than_a_tenth_of_tiny_instances_is_a_warning(small, kind):
    sizes = [20] * (12 - small) + [5] * small  # 1 of 12 is 8 %, 2 of 12 are 17 %
    ids = np.repeat(np.arange(12), sizes)
    schema = schema_of("fields: {id: {role: instance, shape: [P]}}\nloader: {min_points: 10}")
    found = judged(schema, measured(schema, [("", Piece("s", {"id": ids}, Origin("s")))])).findings
    assert [(f.code, f.kind, f.measured["tiny"]) for f in found] == [("DC403", kind, small)]


def test_what_a_clip_takes_is_a_sum_of_chances():
    ids = np.repeat(np.arange(4), [1, 2, 3, 94])
    schema = schema_of("fields: {id: {role: instance, shape: [P]}}\nloader: {clip: 30}")
    (block,) = stack([Piece("s", {"id": ids}, Origin("s"))])
    expected = sum(0.7**n for n in (1, 2, 3, 94))
    assert funnel.function(block, schema)["vanish"].values[0] == pytest.approx(expected)
    found = judged(schema, measured(schema, [("", Piece("s", {"id": ids}, Origin("s")))])).findings
    assert [(f.code, f.kind) for f in found] == [("DC403", "clip")]
    whole = schema_of("fields: {id: {role: instance, shape: [P]}}\nloader: {clip: 100}")
    assert funnel.function(block, whole)["vanish"].values[0] == 0


def test_label_counts_are_those_of_the_values():
    values = [np.array([0, 9, 10, -100, -1, 255, 3.5]), np.array([1, 2, 3.0])]
    found = labels.function(Column.of(values), FieldSpec(role="class", classes=10, ignore=(-100,)))
    assert {n: found[n].tolist() for n in ("ignored", "negative", "mark", "outside")} == {
        "ignored": [1, 0],
        "negative": [1, 0],
        "mark": [1, 0],
        "outside": [2, 0],
    }
    assert (found["least"][0], found["marked"][0], found["low"][0], found["high"][0]) == (
        -1,
        255,
        3.5,
        10,
    )


@pytest.mark.parametrize(
    ("spec", "among", "wanted"),
    [
        ("classes: 40", [0, 39], []),
        ("classes: 40", [0, 40], ["DC404"]),
        ("classes: [1, 5]", [1, 5], []),
        ("classes: [1, 5]", [1, 3], ["DC404"]),
        ("classes: 300", [1, 255], []),
        ("ignore: [255]", [1, 255], []),
        ("ignore: [0]", [1, 2, 255], ["DC405"]),
        ("unit: null", [0, 255, 0], []),  # a mask of two values, and no class beside them
        ("ignore: [0]", list(range(257)), []),  # with classes all around it, 255 is one of them
        ("ignore: [-1]", [1, -100], ["DC405"]),
        ("ignore: [-1]", [-1, -1], ["DC405"]),
    ],
)
def test_labels_are_judged_by_what_is_declared(spec, among, wanted):
    schema = schema_of(f"fields: {{label: {{role: class, shape: [P], {spec}}}}}")
    pieces = [
        ("", Piece(f"s{n}", {"label": np.array(among + [among[0]] * n)}, Origin("")))
        for n in range(3)
    ]
    assert codes(judged(schema, measured(schema, pieces)), severities=("error",)) == wanted


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_large_unsigned_ids_are_not_negative(dtype):
    ids = dtype(np.iinfo(dtype).max) - np.arange(5, dtype=dtype)
    found = labels.function(Column(ids, np.array([5])), FieldSpec(role="instance", shape=("P",)))
    assert found["negative"].tolist() == [0]
    assert found["top"].tolist() == [float(np.iinfo(dtype).max)]


@pytest.mark.parametrize("points", [np.array(1.0), np.zeros(3), np.zeros((100, 2))])
def test_points_of_another_shape_are_left_to_the_rule_about_shapes(points):
    """The measurement failed on them, and no sample was judged."""
    good, odd = (scene(GRID, np.full(100, 3), np.zeros(100), key=key) for key in "ab")
    odd.fields["xyz"] = points
    schema = schema_of(FIELDS + "loader: {voxel: 0.5}")
    assert "DC122" in codes(judged(schema, measured(schema, [("", good), ("", odd)])))


def test_a_label_below_0_is_told_where_statistics_are_declared():
    """Two measurements gave one name to what they measured."""
    schema = schema_of(
        "fields: {semantic: {role: class, shape: [P, 2], stats: {mean: [0, 0], std: [1, 1]}}}"
    )
    rng = np.random.default_rng(0)
    pieces = [
        Piece(str(i), {"semantic": rng.integers(0, 3, (50, 2)).astype(np.int64)}, Origin(str(i)))
        for i in range(4)
    ]
    pieces[2].fields["semantic"][3] = -1
    assert "DC405" in codes(judged(schema, measured(schema, [("", piece) for piece in pieces])))


def test_a_class_that_the_label_table_drops_takes_the_instance_off_its_points():
    """Mask3D sets the instance of a point to "none" where its class is not kept: a part may be left of an object."""
    ids = np.repeat([0, 1, 2, -100], 25)
    classes = np.repeat([3, 4, 5, 5], 25)
    classes[25:35] = 6  # of instance 1, which begins with it
    steps = "loader: {keep_classes: [3, 4], min_points: 15}"
    assert counts(scene(GRID, classes, ids), steps) == ([3, 3, 2, 2], 25.0)
    assert counts(scene(GRID, classes, ids), steps.replace("15", "16")) == ([3, 3, 2, 1], 25.0)
    assert counts(scene(GRID, classes, ids), "loader: {keep_classes: labels.yaml, min_points: 16}")[
        0
    ] == [3, 3, 3, 3]
    none = schema_of(FIELDS + "loader: {keep_classes: [9]}")
    found = judged(none, measured(none, [("", scene(GRID, classes, ids))]))
    assert [(f.cause.kind, f.measured) for f in found.findings if f.code == "DC402"] == [
        ("keep_classes", {"lost_at": {"keep_classes": 1}})
    ]


def test_a_label_table_with_null_entries_is_a_finding_of_the_dataset():
    """The loader raises at its first null entry; a table that is whole says nothing."""
    schema = schema_of(FIELDS)
    table = measured(schema, [("train", scene(GRID, np.full(100, 3), np.zeros(100)))])
    note = Note("DC404", "label_database.yaml", "has no entry for 5")
    (finding,) = [f for f in judged(schema, table, [note]).findings if f.code == "DC404"]
    assert (finding.severity, len(finding.rows), finding.kind) == ("error", 0, "table")
    assert finding.message == "label_database.yaml has no entry for 5."
    assert codes(judged(schema, table), severities=("error",)) == []
