"""What stands for the samples of a batch whatever their order: nothing that the batch holds may be left out of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datacheck.repro import Recorder
from datacheck.repro.recorded import read_run
from datacheck.repro.run_diff import diff_runs
from datacheck.repro.tensors import digest_batch


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The environment is captured by tests of its own."""
    monkeypatch.setattr(
        "datacheck.repro.captures.capture", lambda data=(): {"data": {"cloud": "0"}}
    )


def ragged(rows):
    """A batch as `collate_ragged` makes it: points behind one another, and where those of each sample end."""
    sizes = [2 + row for row in rows]
    points = [torch.full((size, 3), float(row)) for row, size in zip(rows, sizes, strict=True)]
    offset = torch.tensor(sizes).cumsum(0)
    return {"coord": torch.cat(points), "offset": offset, "label": torch.tensor(rows)}


def record(folder, name, batches):
    with Recorder(folder, name=name) as recorder:
        for rows, batch in batches:
            recorder.step(batch, 1.0, indices=rows)
    return folder / name


def test_a_value_of_a_ragged_field_is_no_other_order(tmp_path):
    order = [[0, 1, 2], [3, 4, 5]]
    one = record(tmp_path, "one", [(rows, ragged(rows)) for rows in order])
    changed = [(rows, ragged(rows)) for rows in order]
    changed[1][1]["coord"][5, 1] += 1e-6
    found = diff_runs(one, record(tmp_path, "other", changed))
    assert found.first.name == "step trace"
    assert (found.column.name, found.column.step) == ("input", 1)
    assert "the values of the batch of the same samples differ" in found.meaning
    (epoch,) = read_run(one).traces[0].of("epoch")
    assert epoch["values"] is None  # of 3 samples the points cannot be told apart


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([[5, 1, 2], [3, 4, 0]], "the samples of the epoch are the same"),
        ([[0, 1, 9], [3, 4, 5]], "other samples"),
    ],
)
def test_other_indices_of_ragged_batches_are_told_by_their_set(tmp_path, order, said):
    one = record(tmp_path, "one", [(rows, ragged(rows)) for rows in [[0, 1, 2], [3, 4, 5]]])
    found = diff_runs(one, record(tmp_path, "other", [(rows, ragged(rows)) for rows in order]))
    assert (found.column.name, found.column.step) == ("indices", 0)
    assert said in found.meaning


def sums(batches, samples):
    found = [digest_batch(batch, samples)[1] for batch in batches]
    return None if None in found else sum(found) % 2**64


BESIDE = {
    "ragged": torch.zeros(7, 3),
    "array": np.zeros(5),
    "packed": torch.zeros(1, 4),
    "wide": torch.zeros(1025, 1025),  # rows of more than 4 KB, more than 1,024 of them
    "objects": np.array(["a", "b", "c"], object),
    "sparse": torch.eye(3).to_sparse(),
    "meta": torch.zeros(2, device="meta"),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_nothing_stands_for_samples_where_a_tensor_is_not_told_by_sample(kind):
    samples = 1025 if kind == "wide" else 2
    plain = torch.arange(float(samples))
    assert digest_batch({"x": plain}, samples)[1] is not None
    assert digest_batch({"x": plain, "y": BESIDE[kind]}, samples)[1] is None


@pytest.mark.parametrize("empty", [torch.zeros(0, 3), np.zeros((0, 2))])
def test_a_part_without_values_is_no_hindrance(empty):
    x = torch.tensor([[1.0], [2.0]])
    assert (
        sums([{"x": x, "none": empty}], 2) == sums([{"x": x.flip(0), "none": empty}], 2) is not None
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pick up", "put down"),
        (0.5, 0.25),
        (torch.tensor(1.0), torch.tensor(2.0)),
        (b"a", b"b"),
        (None, 0),
    ],
)
def test_numbers_and_texts_of_a_batch_belong_to_its_samples(one, other):
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    plain = sums([{"x": x[:2], "task": one}, {"x": x[2:], "task": one}], 2)
    turned = sums([{"x": x[[3, 0]], "task": one}, {"x": x[[1, 2]], "task": one}], 2)
    assert plain == turned is not None
    assert sums([{"x": x[:2], "task": one}, {"x": x[2:], "task": other}], 2) != plain


def test_texts_that_changed_places_are_other_values():
    x = torch.tensor([[1.0], [2.0]])
    assert sums([{"x": x, "text": ["a", "b"]}], 2) != sums([{"x": x, "text": ["b", "a"]}], 2)


TURNS = {
    "half a turn about z": [-1, -1, 1],
    "mirrored in y": [1, -1, 1],
    "turned in a plane": [-1, -1],
    "y": [1, -1],
}


@pytest.mark.parametrize("kind", ["<f8", "<f4", ">f8"])
@pytest.mark.parametrize("turn", TURNS)
def test_signs_that_change_in_pairs_are_no_other_order(tmp_path, kind, turn):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(6, 4, len(TURNS[turn]))).astype(kind)
    one = record(tmp_path, "one", [([0, 1, 2], points[:3]), ([3, 4, 5], points[3:])])
    turned = points * np.array(TURNS[turn], kind)
    other = record(tmp_path, "other", [([0, 1, 2], turned[:3]), ([3, 4, 5], turned[3:])])
    found = diff_runs(one, other)
    assert found.first.name == "step trace"
    assert "the values of the batch of the same samples differ" in found.meaning
    again = [(rows, points[rows]) for rows in ([3, 1, 5], [0, 4, 2])]
    lines = [
        next(read_run(one).traces[0].of("epoch")) for one in (one, record(tmp_path, "again", again))
    ]
    assert lines[0]["values"] == lines[1]["values"]


def test_conjugates_and_long_rows_of_float64_are_told_apart():
    z = np.random.default_rng(0).normal(size=(2, 4)).astype(np.complex64) + np.complex64(1j)
    x = np.random.default_rng(1).normal(size=(2, 400))
    for one, other in ((z, z.conj()), (x, -x)):
        assert digest_batch(one, 2)[1] != digest_batch(other, 2)[1]
