"""Requests that are wrong: each is refused in words, and nothing is served in its place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, Mix, ResamplingDataset, Sampler, Windows
from tests.cache.make import make_cache

COUNT = 11


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    written = [{"x": np.int64(i)} for i in range(COUNT)]
    return make_cache(tmp_path_factory.mktemp("cache"), {"x": ArraySpec("int64")}, written)


@pytest.fixture(params=["cached", "mix", "resampling"])
def data(request, path):
    cached = CachedDataset(path)
    return {"cached": cached, "mix": Mix([cached]), "resampling": ResamplingDataset(cached)}[
        request.param
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        True,
        np.True_,
        slice(3),
        1.0,
        "1",
        None,
        np.ones(COUNT, bool),
        [True, False],
        np.zeros((2, 2), int),
        2**70,
    ],
    ids=str,
)
def test_what_is_no_index_is_a_type_error(data, wrong):
    with pytest.raises(TypeError, match="indices "):
        data[wrong]


@pytest.mark.parametrize("beyond", [COUNT, -COUNT - 1, 2**40 - 1, 2**63, np.uint64(2**64 - 1)])
def test_what_is_no_item_is_an_index_error(data, beyond):
    with pytest.raises(IndexError, match="out of range"):
        data[beyond]
    with pytest.raises(IndexError, match="out of range"):
        data.__getitems__([beyond, beyond])


def test_whole_numbers_of_any_library_are_indices(data):
    expected = int(data[COUNT - 1]["x"])
    for index in (-1, np.int32(10), np.uint8(10), np.uint64(10), torch.tensor(10)):
        assert int(data[index]["x"]) == expected
    assert [int(row["x"]) for row in data.__getitems__(torch.tensor([10, 0, -1]))][::2] == [
        expected
    ] * 2


def test_a_batch_of_nothing_has_no_rows(tmp_path):
    make_cache(
        tmp_path,
        {"x": ArraySpec("int64", (2,)), "p": ArraySpec("int8", (3,), "P")},
        [{"x": [1, 2], "p": [[1] * 3]}],
    )
    batch = CachedDataset(tmp_path)[[]]
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        "x": (0, 2),
        "p": (0, 0, 3),
    }


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"fields": "x"}, r"fields='x'; a list of names is wanted"),
        ({"transform": 3}, "transform=3; a function of a sample is wanted"),
        ({"windows": 64}, r"windows=64; Windows\(\.\.\.\) is wanted"),
        ({"windows": True}, "windows=True"),
        ({"windows": {"length": 64}}, r"Windows\(\.\.\.\) is wanted"),
        ({"seed": -1}, "seed=-1 is no whole number from 0 to"),
        ({"seed": 1.5}, r"seed=1\.5"),
        ({"seed": None}, "seed=None"),
        ({"seed": 2**63}, "seed=9223372036854775808"),
        ({"budget": 0.01}, r"budget=0\.01; Budget\(share=\.\.\., run=\.\.\.\) is wanted"),
        ({"catch": ValueError}, r"a list of classes of exceptions is wanted: catch=\[ValueError\]"),
    ],
)
def test_options_of_a_dataset_are_refused_in_words(path, said, message):
    with pytest.raises(UsageError, match=message):
        CachedDataset(path, **said)
    if {"seed", "budget", "catch"} & set(said):
        with pytest.raises(UsageError, match=message):
            ResamplingDataset(range(3), **said)


def test_what_has_no_length_is_no_map_style_dataset():
    for made in (
        lambda: Sampler(iter("ab"), 2),
        lambda: Mix([iter("ab")]),
        lambda: ResamplingDataset(iter("ab")),
    ):
        with pytest.raises(
            UsageError, match="str_ascii_iterator has no length; a map-style dataset is wanted"
        ):
            made()


def test_weights_that_require_a_gradient_are_refused():
    with pytest.raises(UsageError, match=r"weights: .*requires grad"):
        Sampler(range(3), 1, weights=torch.ones(3, requires_grad=True))


def test_steps_of_numpy_are_steps(tmp_path):
    make_cache(tmp_path, {"s": ArraySpec("int64", (), "T")}, [{"s": np.arange(9)}])
    cut = Windows(np.int64(3), stride=np.int32(2), history=np.int8(1))
    data = CachedDataset(tmp_path, windows=cut)
    assert (
        data.fingerprint
        == CachedDataset(tmp_path, windows=Windows(3, stride=2, history=1)).fingerprint
    )
    assert data[1]["s"].tolist() == [2, 3, 4, 5]
