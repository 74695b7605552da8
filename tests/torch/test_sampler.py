"""The sampler: one order for every way of loading, resumed exactly, and nothing that it cannot mean."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, CachedLoader, Mix, ResamplingDataset, Sampler, Windows
from datacheck.torch.order import unpack
from tests.cache.make import make_cache
from tests.ports import free_port

BAD = [2, 5, 6]


class Numbers(Dataset):
    """A dataset of somebody else's: takes plain indices, has a set_epoch."""

    def __init__(self, n):
        self.n, self.epoch = n, None

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return range(self.n)[i]

    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Twenty-three samples in shards of four, three of them invalid."""
    valid = np.ones(23, bool)
    valid[BAD] = False
    samples = [{"label": np.int64(i)} for i in range(23)]
    return make_cache(
        tmp_path_factory.mktemp("cache"), {"label": ArraySpec("int64")}, samples, k=4, valid=valid
    )


def labels(loader):
    return [batch["label"].tolist() for batch in loader]


def ranks(n, batch, world, passes=1, **options):
    """Return the global batches of passes: those of all ranks, one behind the other."""
    of = [Sampler(range(n), batch, rank=rank, world_size=world, **options) for rank in range(world)]
    rows = [zip(*of, strict=True) for _ in range(passes)]
    return [[i for part in parts for i in part] for one in rows for parts in one]


# ---------------------------------------------------------------------------------------- one order


@given(st.integers(1, 70), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(0, 5))
def test_world_size_changes_nothing_while_the_global_batch_is_constant(n, part, drop, seed):
    if drop and n < 4 * part:
        with pytest.raises(UsageError, match="drop_last=True leaves nothing"):
            ranks(n, 4 * part, 1, drop_last=True)
        return
    alone = ranks(n, 4 * part, 1, passes=2, seed=seed, drop_last=drop)
    assert ranks(n, 2 * part, 2, passes=2, seed=seed, drop_last=drop) == alone
    assert ranks(n, part, 4, passes=2, seed=seed, drop_last=drop) == alone
    each = n // (4 * part) if drop else -(-n // (4 * part))
    assert [len(batch) for batch in alone] == [4 * part] * (2 * each)
    for epoch in (alone[:each], alone[each:]):
        served = [i for batch in epoch for i in batch]
        assert len(set(served[:n])) == min(n, len(served))
        # Filled up from its beginning
        assert served[n:] == [served[i % n] for i in range(n, len(served))]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_any_kind_serve_the_same_epochs(path, workers, context):
    if workers == 0 and context != "fork":
        return
    alone = CachedDataset(path)
    expected = []
    for epoch in range(2):
        alone.set_epoch(epoch)
        expected += [
            [int(alone[i]["label"]) for i in unpack(np.array(batch), 0)[1]]
            for batch in once(alone, epoch)
        ]
    for persistent in {False, workers > 0}:
        data = CachedDataset(path)
        how = {"num_workers": workers, "persistent_workers": persistent}
        how |= {"multiprocessing_context": multiprocessing.get_context(context)} if workers else {}
        loaders = [DataLoader(data, batch_sampler=data.sampler(4, seed=3), **how)]
        if context == "fork":  # one by one; the processes are the same, and slow to spawn
            loaders += [
                DataLoader(data, batch_size=4, sampler=data.sampler(4, seed=3).sampler, **how)
            ]
        for loader in loaders:
            assert len(loader) == 6
            assert labels(loader) + labels(loader) == expected
    assert not {label for batch in expected for label in batch} & set(BAD)


def once(data, epoch):
    batches = data.sampler(4, seed=3)
    batches.set_epoch(epoch)
    return list(batches)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_no_persistent_worker_holds_an_old_epoch(path, context):
    data, alone = CachedDataset(path), CachedDataset(path)
    batches = data.sampler(23, shuffle=False)
    loader = DataLoader(
        data,
        batch_sampler=batches,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    seen = set()
    for epoch in (0, 3, 7, 4):
        batches.set_epoch(epoch)
        alone.set_epoch(epoch)
        # A worker that reads the shared epoch would serve that one's substitutes
        data._epoch.set(1000)
        assert labels(loader) == [[alone.substituted(i) for i in range(23)]]
        seen.add(tuple(alone.substituted(i) for i in BAD))
    assert len(seen) > 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])  # noqa: S301  ours
def test_workers_of_a_copy_hear_of_new_epochs(path, copied):
    original, alone = CachedDataset(path), CachedDataset(path)
    original.set_epoch(2)
    data = copied(original)
    assert data.epoch == 2
    loader = DataLoader(data, batch_size=23, num_workers=1, persistent_workers=True)
    for epoch in (2, 3, 7):
        data.set_epoch(epoch)
        alone.set_epoch(epoch)
        assert labels(loader) == [[alone.substituted(i) for i in range(23)]]
    assert original.epoch == 2


@pytest.mark.parametrize(
    "wrap",
    [lambda data: Subset(data, range(23)), lambda data: ConcatDataset([Subset(data, range(23))])],
)
def test_datasets_in_a_wrapper_of_torch_hear_of_new_epochs(path, wrap):
    data, alone = CachedDataset(path), CachedDataset(path)
    batches = Sampler(wrap(data), 23, shuffle=False)
    loader = DataLoader(wrap(data), batch_sampler=batches, num_workers=1, persistent_workers=True)
    seen = set()
    for epoch in range(4):
        alone.set_epoch(epoch)
        expected = [alone.substituted(i) for i in range(23)]
        assert labels(loader) == [expected]
        seen.add(str(expected))
    assert len(seen) > 1


def test_a_dataset_of_another_kind_gets_plain_indices_and_the_epoch():
    data = Numbers(10)
    batches = Sampler(data, 5, seed=1)
    loader = DataLoader(data, batch_sampler=batches)
    first = [batch.tolist() for batch in loader]
    assert sorted(i for batch in first for i in batch) == list(range(10))
    assert data.epoch == 0
    assert [batch.tolist() for batch in loader] != first
    assert data.epoch == batches.epoch == 1
    (rows,) = next(
        iter(
            DataLoader(TensorDataset(torch.arange(10)), batch_sampler=Sampler(range(10), 5, seed=1))
        )
    )
    assert rows.tolist() == first[0]


def test_each_pass_is_an_epoch_and_set_epoch_says_which():
    batches = Sampler(range(20), 4, seed=2)
    epochs = [list(batches) for _ in range(3)]
    assert len({json.dumps(epoch) for epoch in epochs}) == 3
    batches.set_epoch(1)
    assert list(batches) == epochs[1]
    batches.set_epoch(1)  # again the same one
    assert list(batches) == epochs[1]
    assert list(batches) == epochs[2]
    batches.set_epoch(0)
    next(iter(batches))  # left early: the next pass is the next epoch
    assert list(batches) == epochs[1]
    iter(batches), iter(batches)  # begun and never asked, as DataLoader does
    assert list(batches) == epochs[2]
    one = batches.sampler
    one.set_epoch(0)
    assert list(one) == [i for batch in epochs[0] for i in batch]
    assert len(one) == 20


def test_an_epoch_set_between_iter_and_the_first_batch_is_that_of_the_pass():
    epochs = [list(one) for batches in [Sampler(range(20), 4)] for one in [batches] * 6]
    batches = Sampler(range(20), 4)
    begun = iter(batches)  # as Lightning does, which sets the epoch then
    batches.set_epoch(3)
    assert list(begun) == epochs[3]
    assert list(batches) == epochs[4]
    batches.load_state_dict(batches.state_dict() | {"epoch": 5, "consumed": 8})
    begun = iter(batches)
    batches.set_epoch(5)
    assert list(begun) == epochs[5][2:]


def test_an_epoch_set_again_while_workers_are_ahead_is_that_of_the_pass():
    batches = Sampler(range(20), 4)
    begun = iter(batches)
    first = [next(begun) for _ in range(3)]
    batches.set_epoch(0)
    assert batches.state_dict(batches=2)["consumed"] == 8
    assert batches.state_dict()["consumed"] == 0  # the next pass would be of epoch 0 again
    first += begun
    assert batches.state_dict(batches=4)["consumed"] == 16
    assert (batches.state_dict()["epoch"], batches.state_dict()["consumed"]) == (1, 0)
    assert list(batches) != first
    assert batches.epoch == 1
    batches.set_epoch(0)
    assert (batches.epoch, list(batches)) == (0, first)


def test_an_abandoned_pass_no_longer_counts():
    batches = Sampler(range(20), 4)
    old, new = iter(batches), iter(batches)
    next(old), next(old)
    assert batches.state_dict()["consumed"] == 0
    next(new)
    assert (batches.state_dict()["epoch"], batches.state_dict()["consumed"]) == (0, 4)


# ------------------------------------------------------------------------------------------ resume


OPTIONS = [
    {},
    {"drop_last": True},
    {"block": 3, "pool": 2},
    {"weights": np.arange(22.0), "samples": 30},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_state_of_every_step_goes_on_with_the_next_batch(options):
    def fresh():
        return Sampler(range(22), 4, seed=8, **options)

    whole, batches, steps = fresh(), fresh(), []
    expected = [batch for _ in range(4) for batch in whole]
    for _ in range(2):
        steps.append(batches.state_dict())
        for _ in batches:
            steps.append(batches.state_dict())
    each = len(whole)
    assert len(steps) == 2 * each + 2
    steps.pop(each + 1)  # the end of epoch 0 and the beginning of epoch 1 are one
    for step, state in enumerate(steps):
        resumed = fresh()
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert resumed.state_dict() == state
        resumed.load_state_dict(state)  # twice in a row
        resumed.set_epoch(state["epoch"])  # as loops do
        rest = list(resumed)
        assert rest == expected[step : (step // each + 1) * each]
        # And then a whole one
        assert list(resumed) == expected[(step // each + 1) * each : (step // each + 2) * each]


def test_a_resumed_pass_is_resumed():
    whole = list(Sampler(range(40), 4))
    state, served = Sampler(range(40), 4).state_dict(), []
    for _ in range(5):
        batches = Sampler(range(40), 4)
        batches.load_state_dict(state)
        taken = iter(batches)
        served += [next(taken), next(taken)]
        state = batches.state_dict()
    assert served == whole
    assert (state["epoch"], state["consumed"]) == (1, 0)


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("drop", [False, True])
def test_other_ranks_and_other_batches_go_on_at_the_same_place(world, drop):
    expected = [i for batch in ranks(50, 8, 1) for i in batch]
    first = [Sampler(range(50), 4, rank=rank, world_size=2) for rank in range(2)]
    steps = list(zip(*map(iter, first), strict=False))[:3]
    assert [i for step in steps for part in step for i in part] == expected[:24]
    states = [batches.state_dict(batches=3) for batches in first]
    assert states[0] == states[1]
    for size in (2, 3):  # the old global batch of 8, and others
        of = [
            Sampler(range(50), size, rank=rank, world_size=world, drop_last=drop)
            for rank in range(world)
        ]
        for batches in of:
            batches.load_state_dict(states[0])
        rest = [i for parts in zip(*of, strict=True) for part in parts for i in part]
        left = 26 // (size * world) * size * world if drop else 26
        assert rest[:left] == expected[24 : 24 + left]


@pytest.mark.parametrize("persistent", [False, True])
def test_what_workers_have_fetched_ahead_is_not_consumed(path, persistent):
    data = CachedDataset(path)
    expected = labels(DataLoader(data, batch_sampler=data.sampler(2)))
    batches = data.sampler(2)
    loader = DataLoader(data, batch_sampler=batches, num_workers=2, persistent_workers=persistent)
    states = [batches.state_dict(batches=done + 1) for done, _ in enumerate(loader)]
    assert [(state["epoch"], state["consumed"]) for state in states] == [
        (0, 2 * i) for i in range(1, 12)
    ] + [(1, 0)]
    resumed = data.sampler(2)
    for done, state in enumerate(states[:-1]):
        resumed.load_state_dict(state)
        assert labels(DataLoader(data, batch_sampler=resumed)) == expected[done + 1 :]
    with pytest.raises(UsageError, match="batches=13 is no whole number from 0 to 12"):
        batches.state_dict(batches=13)


def test_a_state_is_a_few_integers_and_outlives_a_pickle():
    batches = Sampler(range(10), 2, seed=4)
    next(iter(batches))
    state = batches.state_dict()
    assert {name: state[name] for name in ("version", "epoch", "consumed", "seed")} == {
        "version": 1,
        "epoch": 0,
        "consumed": 2,
        "seed": 4,
    }
    copy = pickle.loads(pickle.dumps(batches))  # noqa: S301  our own bytes
    assert copy.state_dict() == state


def test_a_state_of_anything_else_is_refused_and_changes_nothing(path, tmp_path):
    data = CachedDataset(path)
    batches = data.sampler(4)
    taken = iter(batches)
    next(taken)
    state = batches.state_dict()
    other = make_cache(tmp_path, {"label": ArraySpec("int64")}, [{"label": np.int64(9)}] * 23, k=4)
    for dataset, options, said in [
        (CachedDataset(other), {}, "another cache"),
        (
            CachedDataset(path, on_invalid="skip"),
            {},
            "another cache, other windows or another policy",
        ),
        (data, {"shuffle": False}, "another order: shuffle, block"),
        (data, {"block": "shard"}, "another order"),
        (data, {"weights": np.ones(23)}, "another order"),
        (data, {"seed": 1}, "a state of seed 0; this sampler has seed 1"),
    ]:
        sampler = dataset.sampler(4, **options)
        with pytest.raises(UsageError, match=said):
            sampler.load_state_dict(state)
        assert (sampler.epoch, sampler.state_dict()["consumed"]) == (0, 0)
    for wrong, said in [
        (None, "no state of a Sampler"),
        ({"epoch": 3}, "no state of a Sampler"),
        (state | {"version": 2}, "a state of version 2; this datacheck reads version 1"),
        (state | {"more": 1}, "has consumed, epoch, fingerprint, seed, version; this one has"),
        (state | {"epoch": -1}, "epoch=-1"),
        (state | {"consumed": 23}, "consumed=23 is no whole number from 0 to 22"),
        (state | {"consumed": "4"}, "consumed='4'"),
        (state | {"fingerprint": None}, "another cache"),
    ]:
        with pytest.raises(UsageError, match=said):
            batches.load_state_dict(wrong)
        assert batches.state_dict() == state
    moved = make_cache(
        tmp_path / "again",
        {"label": ArraySpec("int64")},
        [{"label": np.int64(i)} for i in range(23)],
    )
    # The same samples, but other ones are valid
    with pytest.raises(UsageError, match="another cache"):
        CachedDataset(moved).sampler(4).load_state_dict(state)


def test_a_dataset_may_mean_something_else_by_its_fingerprint():
    class Theirs(Numbers):
        def fingerprint(self):
            return 7

    for data in (Theirs(8), Mix([Theirs(8)]), ResamplingDataset(Theirs(8))):
        state = Sampler(data, 4).state_dict()
        Sampler(data, 4).load_state_dict(json.loads(json.dumps(state)))
    with pytest.raises(UsageError, match="another cache"):
        Sampler(Theirs(9), 4).load_state_dict(Sampler(Theirs(8), 4).state_dict())


def test_a_state_belongs_to_one_way_of_cutting_windows(tmp_path):
    steps = [{"x": np.zeros(n, np.int8)} for n in (9, 5, 7)]
    make_cache(tmp_path, {"x": ArraySpec("int8", (), "T")}, steps)
    cut = Windows(delta_indices={"x": range(2)}, stride=2)
    batches = CachedDataset(tmp_path, windows=cut).sampler(2)
    next(iter(batches))
    state = json.loads(json.dumps(batches.state_dict()))
    same = CachedDataset(
        tmp_path, windows=Windows(delta_timestamps={"x": [0, 0.1]}, stride=2, fps=10)
    ).sampler(2)
    same.load_state_dict(state)
    assert same.state_dict() == state
    for other in (
        Windows(delta_indices={"x": [0, 2]}, stride=2),
        Windows(2, stride=2, pad="edge"),
        False,
    ):
        with pytest.raises(UsageError, match="another cache, other windows"):
            CachedDataset(tmp_path, windows=other).sampler(2).load_state_dict(state)


# --------------------------------------------------------------------------------------- parameters


def test_it_says_what_becomes_of_the_last_batch():
    wrapped, dropped = Sampler(range(23), 4), Sampler(range(23), 4, drop_last=True)
    assert (len(wrapped), wrapped.repeated, wrapped.dropped) == (6, 1, 0)
    assert (len(dropped), dropped.repeated, dropped.dropped) == (5, 0, 3)
    assert (
        repr(wrapped)
        == "<Sampler 23 samples, 6 batches of 4 on each of 1 ranks, 1 repeated in the last>"
    )
    assert repr(dropped) == "<Sampler 23 samples, 5 batches of 4 on each of 1 ranks, 3 left out>"


def test_blocks_are_the_shards_of_the_cache(path, tmp_path):
    assert CachedDataset(path).shard_starts().tolist() == [0, 4, 8, 12, 16, 20]
    # of 0 to 3 one is left out, of 4 to 7 two
    assert CachedDataset(path, on_invalid="skip").shard_starts().tolist() == [0, 3, 5, 9, 13, 17]
    steps = [{"x": np.zeros(n, np.int8)} for n in (3, 5, 1, 1, 2, 1, 4, 2, 9)]
    make_cache(tmp_path, {"x": ArraySpec("int8", (), "T")}, steps, k=2)
    windows = CachedDataset(tmp_path, windows=Windows(2))  # 2 + 4, none, 1 + 0, 3 + 1, 8 windows
    assert windows.shard_starts().tolist() == [0, 6, 7, 11]
    data = CachedDataset(path)
    (batch,) = DataLoader(data, batch_sampler=data.sampler(24, block="shard", pool=2, seed=5))
    asked = [i % 2**40 for i in next(iter(data.sampler(24, block="shard", pool=2, seed=5)))]
    assert sorted(asked[:23]) == list(range(23))
    assert batch["label"].tolist()[:23] == [data.substituted(i) for i in asked[:23]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size=0 is no whole number from 1"),
        ({"batch_size": 2.0}, r"batch_size=2\.0"),
        ({"rank": 2, "world_size": 2}, "rank=2 is no whole number from 0 to 1"),
        ({"rank": -1, "world_size": 2}, "rank=-1"),
        ({"rank": 0, "world_size": 0}, "world_size=0"),
        ({"rank": 1}, "rank=1, world_size=None: give both or none"),
        ({"seed": -1}, "seed=-1"),
        ({"block": "shard"}, "range has no shards; say how many items make a block"),
        ({"block": "row"}, "block='row'"),
        ({"drop_last": True, "batch_size": 11}, "10 samples are fewer than a global batch"),
        ({"weights": [float("nan")] * 10}, "10 are negative or not finite"),
    ],
)
def test_bad_parameters_are_refused_in_words(options, said):
    with pytest.raises(UsageError, match=said):
        Sampler(range(10), **({"batch_size": 2} | options))
    with pytest.raises(UsageError, match="items=0"):
        Sampler([], 2)
    with pytest.raises(
        UsageError,
        match=r"SequentialSampler is a sampler, no dataset.*use_distributed_sampler=False",
    ):
        # As Lightning makes anew what it finds
        Sampler(SequentialSampler(range(10)), batch_size=2, drop_last=False)
    with pytest.raises(UsageError, match="generator has no length; a map-style dataset is wanted"):
        Sampler((i for i in range(3)), 2)


def of_rank(rank, port, results):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    batches = Sampler(range(21), 3, seed=6)  # made before the group is: asked when batches are
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    results.put((rank, len(batches), list(batches)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_rank_and_world_size_are_those_of_torch_distributed(forked_workers):
    port = free_port()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=of_rank, args=(rank, port, results)) for rank in range(2)]
    for process in processes:
        process.start()
    found = sorted(results.get(timeout=800) for _ in processes)
    for process in processes:
        process.join(800)
    assert [process.exitcode for process in processes] == [0, 0]
    expected = [list(Sampler(range(21), 3, seed=6, rank=rank, world_size=2)) for rank in range(2)]
    assert found == [(0, 4, expected[0]), (1, 4, expected[1])]


@settings(max_examples=20)
@given(st.integers(1, 40_000), st.integers(1, 20_000))
def test_what_is_put_in_order_at_once_does_not_show(n, size):
    batches = list(Sampler(range(n), size, shuffle=False))
    assert [i for batch in batches for i in batch][:n] == list(range(n))
    assert {len(batch) for batch in batches} == {size}


def test_a_new_epoch_of_a_loader_has_a_state_before_its_first_batch(path):
    loader = CachedLoader(CachedDataset(path), batch_size=4)
    assert len(list(loader)) == 6
    loader.set_epoch(5)
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (5, 0)
