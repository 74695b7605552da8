"""Training on four real ranks: a batch without instances on one of them hangs nobody, and changes no result."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from datacheck.model.sample import ArraySpec
from datacheck.torch import Budget, CachedDataset, CachedLoader, InvalidSample, collate_ragged
from tests.cache.make import make_cache
from tests.torch.ranks import on_ranks

pytestmark = [pytest.mark.slow]

HERE = "tests.torch.test_train_ranks"
COUNT, GLOBAL_BATCH, EPOCHS = 40, 8, 3
SPECS = {"label": ArraySpec("int64", ()), "boxes": ArraySpec("float64", (4,), "I")}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Every third sample has no instance, and two are known to be invalid."""
    rng = np.random.default_rng(1)
    samples = [{"label": np.int64(i), "boxes": rng.random((i % 3, 4))} for i in range(COUNT)]
    valid = [i not in (6, 17) for i in range(COUNT)]
    return make_cache(tmp_path_factory.mktemp("boxes"), SPECS, samples, valid=valid)


def with_instances(row):
    if not len(row["boxes"]):
        msg = "no instance"
        raise InvalidSample(msg)
    return row


def loader_of(path, rank, world, how):
    """Return batches of a rank: "resample" replaces samples without instances, "ragged" serves them."""
    transform = with_instances if how == "resample" else None
    data = CachedDataset(path, transform=transform, budget=Budget(share=1))
    batches = data.sampler(GLOBAL_BATCH // world, seed=4, rank=rank, world_size=world)
    if how == "ragged, threads":
        return CachedLoader(data, batch_sampler=batches, collate_fn=collate_ragged)
    return DataLoader(
        data, batch_sampler=batches, collate_fn=collate_ragged, num_workers=int(world > 1)
    )


def model_of():
    model = torch.nn.Linear(4, 1, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.arange(4.0)[None])
        model.bias.zero_()
    return model


def trained(rank, world, path, how):
    """Train; the loss of a rank is that of the instances it has, so that the mean over ranks is that of the batch."""
    plain = model_of()
    model = DistributedDataParallel(plain) if world > 1 else plain
    steps = torch.optim.SGD(model.parameters(), lr=0.01)
    found = []
    loader = loader_of(path, rank, world, how)
    for _ in range(EPOCHS):
        for batch in loader:
            steps.zero_grad()
            loss = (model(batch["boxes"]) - 1).square().sum()
            (loss if world > 1 else loss / 4).backward()
            steps.step()
            found.append(len(batch["boxes"]))
    return {
        "weights": torch.cat([p.flatten() for p in plain.parameters()]).tolist(),
        "instances": found,
    }


def skipping(rank, world, path):
    """The control: a rank that leaves its empty batches out, in a group that waits for three seconds."""
    group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=3))
    model = DistributedDataParallel(model_of(), process_group=group)
    steps = 0
    for batch in loader_of(path, rank, world, "ragged, threads"):
        if len(batch["boxes"]):
            model(batch["boxes"]).sum().backward()
            steps += 1
    return steps


HOW = ("resample", "ragged", "ragged, threads")


@pytest.fixture(scope="module")
def said(path, tmp_path_factory, forked_python):
    """What the ranks say of each way, and of the control."""
    calls = [(f"{HERE}:trained", str(path), how) for how in HOW]
    ranks = on_ranks(
        forked_python,
        4,
        [*calls, (f"{HERE}:skipping", str(path))],
        tmp_path_factory.mktemp("ranks"),
    )
    return dict(zip((*HOW, "skipping"), ranks, strict=True))


@pytest.mark.parametrize("how", HOW)
def test_training_ends_alike_on_all_ranks_and_as_on_one(path, said, how):
    ranks, steps = said[how], EPOCHS * COUNT // GLOBAL_BATCH
    assert [len(rank["instances"]) for rank in ranks] == [steps] * 4
    empty = [sum(rank["instances"][step] == 0 for rank in ranks) for step in range(steps)]
    if how == "resample":
        assert empty == [0] * steps
    else:
        assert empty.count(1) >= 2  # a batch that is empty on one rank only
    alone = trained(0, 1, path, how)
    assert [sum(of) for of in zip(*(rank["instances"] for rank in ranks), strict=True)] == alone[
        "instances"
    ]
    assert all(rank["weights"] == ranks[0]["weights"] for rank in ranks)
    np.testing.assert_allclose(ranks[0]["weights"], alone["weights"], rtol=1e-9)
    assert abs(ranks[0]["weights"][0]) > 1e-3  # it was 0 before


def test_ranks_that_skip_their_empty_batches_wait_for_each_other(said):
    assert any(isinstance(rank, dict) and rank["error"] for rank in said["skipping"]), said[
        "skipping"
    ]
