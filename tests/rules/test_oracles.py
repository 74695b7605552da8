"""Fast measurements against the slow ones that they replaced: the same rows, bit for bit."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.model.voxel_grid import cells
from datacheck.rules import label_counts
from datacheck.rules.families import clouds
from datacheck.rules.families.clouds import repeats
from datacheck.rules.families.labels import labels
from datacheck.rules.families.numbers import extent
from datacheck.rules.label_counts import contingency_table, distinct, funnel
from datacheck.rules.measures import extremes, finite, in_classes, numbers, one_of, reduced
from datacheck.schema.model import FieldSpec
from tests.trials.memory import schema_of

STEPS = [
    {"voxel": 0.1, "drop_classes": [0, 2], "min_points": 4},
    {"clip": 150, "voxel": 0.2, "min_points": 3},
    {"voxel": 0.3, "clip": 60, "min_points": 2},
    {"clip": 100, "min_points": 5, "drop_classes": [1]},
]


def slow_voxels(xyz, edge):
    _, first, counts = np.unique(cells(xyz, edge), axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


class SlowScene:
    """The scene as it was counted before: every row and every weight written out."""

    def __init__(self, ids, classes, xyz, good):
        self.classes, self.xyz = classes, xyz
        self.which = np.full(len(ids), -1)
        self.ids, self.which[good] = np.unique(ids[good].astype(np.int64), return_inverse=True)
        self.rows, self.weight = np.arange(len(ids)), np.ones(len(ids))
        self.lives = np.ones(len(self.ids), bool)

    def sizes(self):
        weights = self.weight[self.rows]
        size = np.bincount(self.which[self.rows] + 1, weights=weights, minlength=len(self.ids) + 1)[
            1:
        ]
        return np.where(self.lives, size, 0.0)

    def step(self, name, value):
        if name == "clip":
            self.weight = self.weight * min(1.0, value / max(1, len(self.rows)))
        elif name == "voxel":
            kept, points = slow_voxels(self.xyz[self.rows], value)
            self.rows = self.rows[kept]
            self.weight[self.rows] = 1 - (1 - self.weight[self.rows]) ** points
        elif name == "drop_classes":
            firsts = [np.flatnonzero(self.which[self.rows] == i) for i in range(len(self.ids))]
            found = [self.classes[self.rows[f[0]]] if len(f) else -1 for f in firsts]
            self.lives &= ~np.isin(np.array(found), value)
        else:
            size = self.sizes()
            largest = float(size.max()) if len(size) and size.max() > 0 else np.nan
            self.lives &= size >= value
            edges = sorted({1, *(math.ceil(value / part) for part in (16, 8, 4, 2, 1, 0.5, 0.25))})
            return largest, np.histogram(size[size > 0], [0, *edges, np.inf])[0].tolist()
        return None


def slow_funnel(sample, steps, spec, class_spec):
    ids, classes, xyz = sample["id"], sample["cls"], sample["xyz"]
    good = (ids >= 0) & ~one_of(ids, spec.ignore)
    counts = [len(np.unique(ids[good]))]
    scene = SlowScene(ids, classes, xyz, good & in_classes(classes, class_spec))
    counts.append(len(scene.ids))
    met = None
    for name, value in steps.items():
        met = scene.step(name, value) or met
        counts.append(np.count_nonzero(scene.sizes()))
    return counts, *met


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "int16"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("most", [6, 250])
def test_a_funnel_counts_as_before(dtype, steps, most):
    rng = np.random.default_rng(most)
    samples = []
    for count in (0, 1, 40, 200, 5000):
        ids = rng.integers(0, most, count).astype(dtype)
        classes = rng.choice([0, 1, 2, 5, 9, 255], count).astype(
            dtype if dtype != "int16" else "float32"
        )
        xyz = np.asfortranarray(rng.uniform(-1, 1, (count, 3)).astype(np.float32))
        samples.append({"id": ids, "cls": classes, "xyz": xyz})
    fields = {
        "xyz": {"role": "points", "shape": ["P", 3]},
        "id": {"role": "instance", "shape": ["P"], "ignore": [3]},
        "cls": {"role": "class", "shape": ["P"], "classes": "0..5"},
    }
    schema = schema_of({"fields": fields, "loader": steps})
    (block,) = stack([Piece(f"{i}", sample, Origin("f")) for i, sample in enumerate(samples)])
    found = funnel.function(block, schema)
    for i, sample in enumerate(samples):
        counts, largest, sizes = slow_funnel(sample, steps, schema.spec("id"), schema.spec("cls"))
        assert found["funnel"].values[i].tolist() == counts
        assert found["sizes"].values[i].tolist() == sizes
        if found["largest"].present[i]:
            assert found["largest"].values[i].tobytes() == np.float64(largest).tobytes()
        else:
            assert np.isnan(largest)


arrays = st.lists(
    hnp.arrays(
        st.shared(st.sampled_from(["<f4", "<f8", "<f2", "u1", "<i4", "<i8"]), key="dtype"),
        st.tuples(st.integers(0, 6), st.shared(st.sampled_from([1, 3, 20]), key="width")),
    ),
    min_size=1,
    max_size=4,
)


@given(arrays, st.booleans())
def test_smallest_and_largest_are_those_of_plain_numpy(samples, transposed):
    column = Column.of([np.asfortranarray(s) if transposed else s for s in samples])
    with np.errstate(all="ignore"):
        low, high, _ = extremes(column)
        bad, ends, span = (
            m.function(column, spec)
            for m, spec in (
                (finite, FieldSpec()),
                (numbers, FieldSpec()),
                (extent, FieldSpec(role="value")),
            )
        )
    for i, sample in enumerate(samples):
        assert bad["nonfinite"][i] == (~np.isfinite(sample)).sum()
        if not len(sample):
            continue
        axis = 0 if sample.shape[1] <= 64 else None
        np.testing.assert_array_equal(low[:, i], sample.min(axis=axis).reshape(-1))
        np.testing.assert_array_equal(high[:, i], sample.max(axis=axis).reshape(-1))
        np.testing.assert_array_equal(
            ends["min"].values[i], sample.min(axis=axis).astype(np.float64).reshape(-1)
        )
        known = sample[~np.isnan(sample)] if sample.dtype.kind == "f" else sample.reshape(-1)
        assert span["lowest"].present[i] == bool(len(known))
        if len(known):
            assert (span["lowest"].values[i], span["highest"].values[i]) == (
                known.min(),
                known.max(),
            )


values = st.sampled_from([-100, -1, 0, 1, 2, 7, 40, 255, 65535, 70000])
label_lists = st.lists(st.lists(values, max_size=12), min_size=1, max_size=4)


@given(label_lists, st.sampled_from(["int64", "float32", "float64"]), st.booleans())
def test_labels_are_counted_as_one_by_one(samples, dtype, odd):
    made = [np.array(s, dtype) for s in samples]
    if odd and dtype != "int64" and len(made[0]):
        made[0][0] = 0.5  # no whole number: every value then stands for itself
    spec = FieldSpec(role="class", classes=41, ignore=(-100,))
    found = labels.function(Column.of(made), spec)
    for i, sample in enumerate(made):
        ignored, good = sample == -100, in_classes(sample, spec)
        negative = (sample < 0) & ~ignored
        mark = np.isin(sample, [255, 65535])
        outside = ~(ignored | good | negative | mark)
        wanted = {"ignored": ignored.sum(), "negative": negative.sum(), "mark": mark.sum()}
        assert {name: found[name][i] for name in wanted} == wanted
        assert found["outside"][i] == outside.sum()
        assert found["top"][i] == (sample[good].max() if good.any() else 0)
        assert found["low"][i] == (sample[outside].min() if outside.any() else 0)


@given(label_lists)
def test_distinct_numbers_come_back_whole(samples):
    found, often, lengths = distinct(Column.of([np.array(s, np.int64) for s in samples]))
    again = np.split(np.repeat(found, often), np.cumsum(reduced(np.add, often, lengths))[:-1])
    assert [sorted(part.tolist()) for part in again] == [sorted(s) for s in samples]


FAR = [0.5, 65_535.0, 2.0**24, -(2.0**31), 2.0**61]
IDS = st.one_of(st.integers(-3, 40), st.integers(-(2**31), 2**31), st.sampled_from(FAR))
# Too many pairs are not counted at all
CLASSES = st.one_of(st.integers(-3, 40), st.sampled_from(FAR))


@given(
    st.lists(st.lists(st.tuples(IDS, CLASSES), max_size=20), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_pairs_of_labels_are_counted_as_one_by_one(samples, classless, data):
    dtype = data.draw(st.sampled_from([np.float64, np.float32]))
    ids, classes = (
        Column.of([np.array([p[k] for p in s], dtype) for s in samples]) for k in (0, 1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_counts, "_STRIP", 4)
        found = [
            contingency_table(ids, None if classless else classes, i) for i in range(len(samples))
        ]
        numbers, often, lengths = distinct(ids)
    for i, pairs in enumerate(found):
        mine, other = ids[i], np.zeros(len(ids[i])) if classless else classes[i]
        assert pairs is not None
        assert pairs.whole == all(v == int(v) and -(2**31) <= v < 2**31 for v in [*mine, *other])
        wanted = Counter(zip(map(int, mine), map(int, other), strict=True))
        rows, columns = np.nonzero(pairs.cells)
        cells = zip(
            pairs.ids[rows].tolist(),
            pairs.classes[columns].tolist(),
            pairs.cells[rows, columns],
            strict=True,
        )
        assert {(a, b): int(n) for a, b, n in cells} == dict(wanted)
        assert [(int(pairs.ids[c // pairs.cells.shape[1]])) for c in pairs.code] == [
            int(v) for v in mine
        ]
    stops = np.cumsum(lengths)
    for i, (start, stop) in enumerate(zip(stops - lengths, stops, strict=True)):
        assert sorted(np.repeat(numbers[start:stop], often[start:stop]).tolist()) == sorted(
            ids[i].tolist()
        )


@pytest.mark.parametrize("far", [2**53, -(2**60), 2**62 - 2])
def test_pairs_of_numbers_that_float64_cannot_tell_apart_are_counted(far):
    large, small = Column.of([np.array([far, far + 1, far + 1])]), Column.of([np.array([7, 7, 8])])
    by_id, by_class = contingency_table(large, small, 0), contingency_table(small, large, 0)
    assert by_id.ids.tolist() == by_class.classes.tolist() == [far, far + 1]
    assert by_id.cells.tolist() == [[1, 0], [1, 1]]
    assert by_class.cells.tolist() == [[1, 1], [0, 1]]
    assert not by_id.whole


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_pairs_with_a_number_that_is_none_are_not_counted(odd):
    ids, classes = (Column.of([np.array(v), np.array([1.0])]) for v in ([1.0, odd], [2.0, 3.0]))
    assert contingency_table(ids, classes, 0) is None
    assert contingency_table(classes, ids, 0) is None
    assert contingency_table(ids, classes, 1).cells.tolist() == [[1]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("together", [1 << 20, 100])
def test_copies_of_points_are_those_that_sorting_finds(monkeypatch, together, dtype):
    monkeypatch.setattr(clouds, "_TOGETHER", together)
    rng = np.random.default_rng(4)
    samples = [
        np.round(rng.uniform(-8, 8, (n, 3)) * 2).astype(dtype) / (1 if dtype == "int32" else 2)
        for n in (5, 3000, 0, 60, 70, 1, 400)
    ]
    samples = [s.astype(dtype) for s in samples]
    found = repeats.function(Column.of(samples), FieldSpec(role="points"))
    assert found["copies"].values.tolist() == [len(s) - len(np.unique(s, axis=0)) for s in samples]
