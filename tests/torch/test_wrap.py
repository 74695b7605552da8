"""Any map-style dataset gets substitutes, from what a scan knows and from what fails."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datacheck.errors import BudgetExceededError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import Budget, CachedDataset, InvalidSample, ResamplingDataset, Sampler
from datacheck.torch.order import pack
from tests.cache.make import make_cache

COUNT = 30
KEYS = [f"scenes/{i:03d}.npz" for i in range(COUNT)]
EXCLUDED = [2, 11]
BROKEN = [4, 9, 21]


class Plain:
    """Index i is i; broken ones raise."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index in BROKEN:
            msg = "no instance"
            raise InvalidSample(msg)
        return index


class Together(Plain):
    def __init__(self):
        self.asked = []

    def __getitems__(self, indices):
        self.asked.append(list(indices))
        return [self[i] for i in indices]


@pytest.fixture
def scanned(tmp_path):
    excluded = {KEYS[i]: ["DC401"] for i in EXCLUDED} | {"elsewhere/000.npz": ["DC201"]}
    said = {
        "format": "datacheck.valid/1",
        "samples": COUNT + 1,
        "valid": COUNT - 2,
        "excluded": excluded,
    }
    (tmp_path / "valid.json").write_text(json.dumps(said))
    return tmp_path


def wide():
    return Budget(share=1)


@pytest.mark.parametrize("keys", [KEYS, lambda i: f"scenes/{i:03d}.npz"])
def test_what_a_scan_excludes_is_not_asked_for(scanned, keys):
    for place in (scanned, scanned / "valid.json", str(scanned)):
        data = ResamplingDataset(Plain(), valid=place, keys=keys, budget=wide())
        assert np.flatnonzero(~data.known).tolist() == EXCLUDED
        served = [data[i] for i in range(COUNT)]
        assert not set(served) & {*EXCLUDED, *BROKEN}
        assert all(got == i for i, got in enumerate(served) if i not in {*EXCLUDED, *BROKEN})
        assert data.key(11) == KEYS[11]
    assert data.budget.reasons["known to be invalid"] == 2


def test_policies_are_those_of_a_cache(scanned):
    class Sound(Plain):
        def __getitem__(self, index):
            return index

    def made(policy):
        return ResamplingDataset(Sound(), valid=scanned, keys=KEYS, on_invalid=policy)

    rest = [i for i in range(COUNT) if i not in EXCLUDED]
    assert [made("skip")[i] for i in range(len(made("skip")))] == rest
    assert [made("keep")[i] for i in range(COUNT)] == list(range(COUNT))
    with pytest.raises(UsageError, match=r"item 11, scenes/011\.npz, is known to be invalid"):
        made("raise")[11]
    with pytest.raises(InvalidSample):
        ResamplingDataset(Plain(), on_invalid="raise")[4]


def test_a_sample_that_is_judged_after_loading_is_replaced_too():
    class Sound(Plain):
        def __getitem__(self, index):
            return index

    data = ResamplingDataset(Sound(), is_valid=lambda sample: sample % 3 > 0, budget=wide())
    served = data[list(range(COUNT))]
    assert all(got % 3 for got in served)
    assert [got for i, got in enumerate(served) if i % 3] == [i for i in range(COUNT) if i % 3]
    assert set(data.budget.reasons) == {"is_valid said no"}


@pytest.mark.parametrize("inner", [Plain, Together])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_and_batches_change_nothing(scanned, inner, workers):
    alone = ResamplingDataset(Plain(), valid=scanned, keys=KEYS, seed=3, budget=wide())
    alone.set_epoch(5)
    expected = [alone[i] for i in range(COUNT)]
    data = ResamplingDataset(inner(), valid=scanned, keys=KEYS, seed=3, budget=wide())
    data.set_epoch(5)
    served = torch.cat(list(DataLoader(data, batch_size=7, num_workers=workers))).tolist()
    assert served == expected
    assert data.budget.reasons == alone.budget.reasons
    data.set_epoch(0)
    assert data[pack(5, np.arange(COUNT)).tolist()] == expected  # as our samplers ask


def test_a_batch_is_asked_for_together_and_one_by_one_where_it_fails():
    inner = Together()
    data = ResamplingDataset(inner, budget=wide())
    assert data[[5, 1]] == [5, 1]
    served = data[[3, 4, 5]]
    assert (served[0], served[2]) == (3, 5)
    assert served[1] not in BROKEN
    assert inner.asked == [[5, 1], [3, 4, 5]]


def test_a_short_batch_is_refused():
    class Short(Plain):
        def __getitems__(self, indices):
            return list(indices)[1:]

    with pytest.raises(UsageError, match=r"Short\.__getitems__ returned 2 samples for 3 indices"):
        ResamplingDataset(Short())[[1, 2, 3]]


def test_a_cached_dataset_inside_knows_the_epoch(tmp_path):
    valid = [i not in EXCLUDED for i in range(COUNT)]
    written = [{"label": np.int64(i)} for i in range(COUNT)]
    make_cache(tmp_path, {"label": ArraySpec("int64")}, written, valid=valid)
    inner = CachedDataset(tmp_path)
    data = ResamplingDataset(inner, is_valid=lambda row: int(row["label"]) != 7, budget=wide())
    for epoch in (3, 4):
        inner.set_epoch(0)
        (batch,) = DataLoader(data, batch_sampler=[pack(epoch, np.array(EXCLUDED)).tolist()])
        inner.set_epoch(epoch)
        assert batch["label"].tolist() == [inner.substituted(i) for i in EXCLUDED]


def test_nothing_else_is_caught_and_too_much_stops():
    class Faulty(Plain):
        def __getitem__(self, index):
            raise (NameError if index == 1 else OSError)("gone")

    with pytest.raises(NameError):
        ResamplingDataset(Faulty(), catch=[OSError])[1]
    with pytest.raises(OSError, match="gone"):
        ResamplingDataset(Faulty())[0]
    with pytest.raises(
        BudgetExceededError, match=r"3 samples failed in a row.*OSError: gone \(3\): 0, "
    ):
        ResamplingDataset(Faulty(), catch=[OSError], budget=Budget(1, 3))[0]


def test_wrong_requests_say_what_to_do(scanned):
    (scanned / "other.json").write_text("{}")
    for how, message in [
        ({"valid": scanned}, "say which key each index has"),
        ({"valid": scanned, "keys": KEYS[1:]}, "29 keys for 30 samples"),
        (
            {"valid": scanned, "keys": [f"/data/{key}" for key in KEYS]},
            "none of its 3 excluded samples .*'/data/scenes",
        ),
        ({"valid": scanned / "other.json", "keys": KEYS}, r"no valid\.json of a scan"),
        ({"valid": scanned / "absent.json", "keys": KEYS}, "cannot be read"),
        ({"valid": np.ones(COUNT)}, "one bool for each"),
        ({"valid": [False] * COUNT}, "none of the 30 samples is valid"),
        ({"on_invalid": "ignore"}, "resample, skip, raise, keep"),
    ]:
        with pytest.raises(UsageError, match=message):
            ResamplingDataset(Plain(), **how)
    for index in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError):
            ResamplingDataset(Plain())[index]


def test_a_sampler_knows_another_dataset_by_its_fingerprint(scanned):
    def made(**how):
        return ResamplingDataset(Plain(), **how).fingerprint

    assert made() == made()
    others = [made(), made(seed=1), made(on_invalid="skip"), made(valid=scanned, keys=KEYS)]
    assert len(set(others)) == 4
    batches = Sampler(
        ResamplingDataset(Plain(), valid=scanned, keys=KEYS, budget=wide()), 5, seed=0
    )
    with pytest.raises(UsageError):
        Sampler(ResamplingDataset(Plain()), 5, seed=0).load_state_dict(batches.state_dict())
