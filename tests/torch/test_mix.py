"""A mix: exact shares, every item where it belongs, the same in every worker."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, default_collate

from datacheck.cache import layout
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, Mix, Sampler, collate_pad, collate_ragged
from datacheck.torch.collate import Batch
from datacheck.torch.order import pack
from tests.cache.make import make_cache


def letters(*lengths):
    """Return datasets of plain texts: a0, a1, ...; b0, b1, ..."""
    return [[f"{name}{i}" for i in range(n)] for name, n in zip("abcd", lengths, strict=False)]


def epoch_of(mix, epoch):
    mix.set_epoch(epoch)
    return mix.__getitems__(range(len(mix)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 9))
def test_without_weights_each_item_comes_once(lengths, seed, epoch):
    data = letters(*lengths)
    for stop in ("first_exhausted", "all_exhausted"):
        mix = Mix(data, seed=seed, stop=stop)
        assert sorted(epoch_of(mix, epoch)) == sorted(text for one in data for text in one)


@pytest.mark.parametrize(
    ("lengths", "weights", "stop", "counts"),
    [
        ((70, 90), [0.7, 0.3], "first_exhausted", (70, 30)),
        ((70, 90), [0.7, 0.3], "all_exhausted", (210, 90)),
        ((7, 9), [0.7, 0.3], "first_exhausted", (7, 3)),  # in binary, 7 / 0.7 is not 10
        ((10, 100), [1, 1], "first_exhausted", (10, 10)),
        ((10, 100), [1, 1], "all_exhausted", (100, 100)),
        # 12.5 items, of which 2.4 are the first one's
        ((5, 5, 5), [1, 2, 2], "first_exhausted", (2, 5, 5)),
        ((3, 4), [3, 1], "all_exhausted", (12, 4)),
    ],
)
def test_an_epoch_has_the_shares(lengths, weights, stop, counts):
    served = epoch_of(Mix(letters(*lengths), weights=weights, stop=stop, seed=1), 5)
    assert (
        tuple(sum(text[0] == name for text in served) for name in "abc"[: len(lengths)]) == counts
    )
    for name, length, count in zip("abc", lengths, counts, strict=False):
        times = [served.count(f"{name}{i}") for i in range(length)]
        # None once more before all came
        assert {count // length, -(-count // length)} >= set(times)


def test_shares_hold_in_every_stretch_of_an_epoch_and_other_epochs_have_other_items():
    mix = Mix(letters(3000, 3000), weights=[0.75, 0.25], seed=2)
    first, second = epoch_of(mix, 0), epoch_of(mix, 1)
    assert len(first) == 4000
    for at in range(0, 4000, 500):
        share = sum(text[0] == "a" for text in first[at : at + 500])
        assert abs(share - 375) < 5 * (500 * 0.75 * 0.25) ** 0.5
    b = [{text for text in served if text[0] == "b"} for served in (first, second)]
    assert [len(texts) for texts in b] == [1000, 1000]
    assert 250 < len(b[0] & b[1]) < 420  # a third by chance
    assert first != second
    assert epoch_of(mix, 0) == first
    assert [mix[i] for i in (0, -1, 17)] == [first[0], first[-1], first[17]]


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """Two caches of one field: numbers from 0, and from 100, each with invalid ones."""
    folders = []
    for first, count in ((0, 12), (100, 30)):
        valid = np.arange(count) % 5 > 0
        samples = [{"label": np.int64(first + i)} for i in range(count)]
        root = tmp_path_factory.mktemp("mix")
        folders.append(make_cache(root, {"label": ArraySpec("int64")}, samples, k=4, valid=valid))
    return folders


@pytest.mark.parametrize(
    ("workers", "context"), [(0, None), (2, "fork"), (1, "spawn"), (1, "forkserver")]
)
def test_caches_mix_with_their_substitutes_in_any_worker(caches, workers, context):
    data, alone = ([CachedDataset(path) for path in caches] for _ in range(2))
    mix = Mix(data, weights=[1, 2], seed=4)
    how = {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "multiprocessing_context": context,
    }
    loader = DataLoader(mix, batch_sampler=Sampler(mix, 6, seed=4), **how)
    for epoch in range(2):
        served = [label for batch in loader for label in batch["label"].tolist()]
        asked = [i % 2**40 for batch in taken(mix, epoch) for i in batch]
        expected = []
        _, of, items = mix.locate(pack(epoch, np.array(asked)))
        for number, item in zip(of.tolist(), items.tolist(), strict=True):
            alone[number].set_epoch(epoch)
            expected.append(alone[number].substituted(item) + 100 * number)
        assert served == expected
        assert len(served) == 36
        assert {label for label in served if label < 100} <= set(range(12)) - {0, 5, 10}


def taken(mix, epoch):
    batches = Sampler(mix, 6, seed=4)
    batches.set_epoch(epoch)
    return batches


def test_one_batch_may_hold_several_epochs(caches):
    mix = Mix([CachedDataset(path) for path in caches])
    both = [*pack(3, np.arange(42)).tolist(), *pack(8, np.arange(42)).tolist()]
    served = [int(row["label"]) for row in mix.__getitems__(both)]
    assert served == [int(row["label"]) for epoch in (3, 8) for row in epoch_of(mix, epoch)]


def test_a_state_belongs_to_one_mix(caches):
    data = [CachedDataset(path) for path in caches]
    batches = Sampler(Mix(data, weights=[1, 2]), 4)
    next(iter(batches))
    state = batches.state_dict()
    again = Sampler(Mix(data, weights=[10, 20]), 4)
    again.load_state_dict(state)
    assert again.state_dict() == state
    for other in (Mix(data[::-1], weights=[2, 1]), Mix(data, weights=[1, 2], seed=1)):
        with pytest.raises(UsageError, match="another cache"):
            Sampler(other, 4).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"datasets": []}, "no items; each needs one or more"),
        ({"datasets": letters(3, 0)}, "datasets with 3, 0 items"),
        ({"weights": [1]}, "1 weights for 2 datasets"),
        ({"weights": [1, 0]}, "weights 1, 0; each is above 0: leave a dataset out"),
        ({"weights": [1, -1]}, "weights 1, -1"),
        ({"weights": [1, float("nan")]}, "weights 1.0, nan"),
        ({"weights": [1, float("inf")]}, "weights 1.0, inf"),
        ({"weights": ["much", "little"]}, "weights much, little"),
        (
            {"weights": [1e-30, 1], "stop": "all_exhausted"},
            "items of an epoch=.* is no whole number",
        ),
        ({"stop": "never"}, "stop='never' is not one of first_exhausted, all_exhausted"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_parameters_are_refused_in_words(options, said):
    with pytest.raises(UsageError, match=said):
        Mix(**({"datasets": letters(2, 3)} | options))


def test_an_index_beyond_the_end_is_an_index_error():
    mix = Mix(letters(2, 3))
    for index in (5, -6, int(pack(0, np.array(5)))):
        with pytest.raises(IndexError, match="the dataset has 5 items"):
            mix[index]


def test_datasets_of_different_fields_are_refused_by_name():
    mix = Mix([[{"x": 1, "y": 2}] * 3, [{"x": 1}] * 3])
    with pytest.raises(
        UsageError, match="datasets 0 and 1 of a mix have different fields: only one has y"
    ):
        mix.__getitems__(range(6))


@pytest.mark.parametrize(
    "how",
    [{}, {"copy": False}, {"transform": dict}, {"fields": ["say", "points", "cloud"]}],
    ids=str,
)
@pytest.mark.parametrize("collate", [collate_ragged, collate_pad])
def test_a_batch_of_several_caches_is_that_of_its_samples(tmp_path, how, collate):
    """Whichever way it is put together: of gathered batches or of rows."""
    specs = {
        "cloud": ArraySpec("float32", (5, 2)),
        "points": ArraySpec("int16", (3,), "P"),
        "say": ArraySpec("uint8", (), layout.text_dim("say"), "text"),
        "depth": ArraySpec("float32", (2,), optional=True),
    }
    rng = np.random.default_rng(8)
    data = []
    for name, count in (("a", 7), ("b", 13)):
        written = [
            {
                "cloud": rng.random((5, 2), np.float32),
                "points": rng.integers(0, 99, (i % 4, 3), np.int16),
                "say": f"{name}{i}",
            }
            | ({"depth": np.full(2, i, np.float32)} if i % 2 else {})
            for i in range(count)
        ]
        data.append(CachedDataset(make_cache(tmp_path / name, specs, written, k=4), **how))
    mix = Mix(data, seed=1)
    asked = [19, 3, 3, 0, 11, -5, 8]
    _, of, items = mix.locate(asked)
    assert len(set(of.tolist())) == 2
    rows = [
        data[number].__getitems__([item])[0]
        for number, item in zip(of.tolist(), items.tolist(), strict=True)
    ]
    found, expected = collate(mix.__getitems__(asked)), collate(rows)
    assert found.keys() == expected.keys()
    assert isinstance(mix.__getitems__(asked), Batch) == (not {"copy", "transform"} & set(how))
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)
        else:
            assert found[name] == value


def test_caches_of_other_dtypes_mix_as_pytorch_stacks(tmp_path):
    caches = [
        make_cache(tmp_path / dtype, {"x": ArraySpec(dtype)}, [{"x": np.dtype(dtype).type(3)}] * 4)
        for dtype in ("float32", "float64")
    ]
    mix = Mix([CachedDataset(path) for path in caches])
    batch = default_collate(mix.__getitems__(range(8)))
    assert batch["x"].tolist() == [3.0] * 8


FORMS = {
    "three": (ArraySpec("float32", (3,)), np.ones(3, "f4")),
    "two": (ArraySpec("float32", (2,)), np.ones(2, "f4")),
    "rows": (ArraySpec("float32", (3,), "P"), np.ones((2, 3), "f4")),
    "wide": (ArraySpec("float32", (4,), "P"), np.ones((2, 4), "f4")),
    "text": (ArraySpec("uint8", (), layout.text_dim("x"), "text"), "a"),
    "json": (ArraySpec("uint8", (), layout.text_dim("x"), "json"), [1]),
    "signed": (ArraySpec("int64", (3,)), np.ones(3, "i8")),
    "unsigned": (ArraySpec("uint64", (3,)), np.ones(3, "u8")),
}


def of_form(root, name, **how):
    spec, value = FORMS[name]
    return CachedDataset(make_cache(root / name, {"x": spec}, [{"x": value}] * 4), **how)


@pytest.mark.parametrize("collate", [default_collate, collate_ragged, collate_pad])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("three", "two"),
        ("three", "rows"),
        ("rows", "wide"),
        ("three", "text"),
        ("text", "three"),
        ("rows", "json"),
        ("json", "rows"),
        ("signed", "unsigned"),
    ],
)
def test_caches_whose_values_cannot_be_joined_are_refused_by_field(tmp_path, one, other, collate):
    """It was an error of PyTorch, or a list of texts and arrays where a text came first."""
    mix = Mix([of_form(tmp_path, name) for name in (one, other)])
    batch = mix.__getitems__(sorted(range(8), key=lambda i: int(mix.locate([i])[1][0])))
    with pytest.raises(UsageError, match=r"x is .* in one sample of this batch and .* in another"):
        collate(batch)


@pytest.mark.parametrize("form", ["three", "rows"])
@pytest.mark.parametrize("collate", [default_collate, collate_ragged, collate_pad])
@pytest.mark.filterwarnings("error")
def test_copies_and_what_lies_in_a_cache_mix(tmp_path, form, collate):
    mix = Mix([of_form(tmp_path / str(copy), form, copy=copy) for copy in (False, True)])
    batch = collate(mix.__getitems__(range(8)))
    assert batch["x"].sum() == 8 * FORMS[form][1].sum()
