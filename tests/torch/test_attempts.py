"""What fails while it is loaded is replaced, alike in every process; what fails too often stops the run."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from datacheck.errors import BudgetExceededError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import Budget, CachedDataset, InvalidSample
from datacheck.torch.order import pack
from datacheck.torch.resampling import Attempts, Items, SampleFailure
from tests.cache.make import make_cache

COUNT = 40
KNOWN = [3, 17]  # invalid in the cache
BROKEN = [5, 8, 30]  # refused by the transform


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    valid = [i not in KNOWN for i in range(COUNT)]
    folder = tmp_path_factory.mktemp("cache")
    return make_cache(
        folder,
        {"label": ArraySpec("int64")},
        [{"label": np.int64(i)} for i in range(COUNT)],
        valid=valid,
    )


def refuse(row):
    label = int(row["label"])
    if label in BROKEN:
        msg = "no instance" if label % 2 else "too few points"
        raise InvalidSample(msg)
    return row


def crop(row, rng):
    row = refuse(row)
    if rng.random() < 0.2:
        msg = "empty crop"
        raise InvalidSample(msg)
    return row | {"drawn": torch.tensor(rng.random())}


def raise_others(row):
    raise {0: MemoryError, 1: NameError, 2: ImportError, 3: ModuleNotFoundError, 4: ValueError}[
        int(row["label"]) % 5
    ]


def odd_value(row):
    if int(row["label"]) % 10 == 1:
        raise ValueError(int(row["label"]))
    return row


def wide():
    return Budget(share=1)


def labels(loader):
    return [batch["label"].tolist() for batch in loader]


# -------------------------------------------------------------------------------------- substitutes


@given(
    st.lists(st.sampled_from(["valid", "known", "broken"]), min_size=4, max_size=40).filter(
        lambda s: s.count("valid") > 3
    ),
    st.integers(0, 2**63),
    st.integers(0, 1000),
    st.integers(1, 5),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_substitutes_are_equal_for_every_split_over_ranks_and_batches(
    states, seed, epoch, ranks, size, random
):
    """However the items are dealt out, in whichever order: each gets the same sample, and none gets a bad one."""
    usable = np.array([state != "known" for state in states])

    def serve(items):
        def make(place, candidate, attempt):
            if states[candidate] == "broken":
                raise InvalidSample
            return candidate

        known = Items(usable, "resample", seed)
        asked = np.array(items)
        first = known.substituted(asked, epoch)
        return Attempts(known, "resample", (), Budget(1, 10_000)).served(
            np.full(len(asked), epoch), asked, first, make, str
        )

    whole = serve(range(len(states)))
    assert all(states[i] == "valid" for i in whole)
    assert all(got == i for i, got in enumerate(whole) if states[i] == "valid")
    order = random.sample(range(len(states)), len(states))
    for rank in range(ranks):
        mine = order[rank::ranks]
        for at in range(0, len(mine), size):
            assert serve(mine[at : at + size]) == [whole[i] for i in mine[at : at + size]]


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_serve_what_the_process_alone_does(path, start):
    def loader(workers):
        data = CachedDataset(path, transform=crop, seed=4, budget=wide())
        data.set_epoch(2)
        context = start if workers else None
        return DataLoader(data, batch_size=6, num_workers=workers, multiprocessing_context=context)

    alone = list(loader(0))
    assert len(alone) == 7
    served = {int(label) for batch in alone for label in batch["label"]}
    assert not served & {*KNOWN, *BROKEN}
    for workers in (1, 2) if start == "fork" else (2,):
        for got, expected in zip(loader(workers), alone, strict=True):
            assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_epoch_and_seed_change_what_is_drawn(path):
    def drawn(seed, epoch):
        data = CachedDataset(path, transform=crop, seed=seed, budget=wide())
        batch = data[pack(epoch, np.arange(COUNT)).tolist()]
        return batch["label"].tolist(), batch["drawn"].tolist()

    assert drawn(0, 1) == drawn(0, 1)
    assert len({str(drawn(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_substitutes_of_failures_are_spread_evenly(path):
    data = CachedDataset(path, transform=refuse, budget=wide())
    good = [i for i in range(COUNT) if i not in KNOWN + BROKEN]
    count = 2000
    served = data[np.concatenate([pack(epoch, np.array([5])) for epoch in range(count)])][
        "label"
    ].numpy()
    counts = np.bincount(served, minlength=COUNT)
    assert counts.sum() == counts[good].sum() == count
    expected = count / len(good)
    assert (
        ((counts[good] - expected) ** 2) / expected
    ).sum() < 74  # 34 degrees of freedom: once in 10,000 seeds


@pytest.mark.parametrize("policy", ["resample", "skip", "keep"])
def test_no_policy_changes_the_number_of_samples_at_run_time(path, policy):
    data = CachedDataset(path, transform=refuse, on_invalid=policy, budget=wide())
    served = [label for batch in labels(DataLoader(data, batch_size=8)) for label in batch]
    assert len(served) == len(data) == (COUNT - 2 if policy == "skip" else COUNT)
    assert not set(served) & set(BROKEN)
    assert (set(served) >= set(KNOWN)) == (policy == "keep")


def test_keep_serves_invalid_samples_but_none_that_could_not_be_made(tmp_path):
    made, valid = np.ones(6, bool), np.ones(6, bool)
    made[1] = valid[4] = False
    written = [{"label": np.int64(i)} for i in range(6)]
    make_cache(tmp_path, {"label": ArraySpec("int64")}, written, made=made, valid=valid)
    data = CachedDataset(tmp_path, on_invalid="keep")
    for epoch in range(20):
        data.set_epoch(epoch)
        served = data[list(range(6))]["label"].tolist()
        assert served[1] != 1
        assert served[:1] + served[2:] == [0, 2, 3, 4, 5]


def test_raise_passes_the_first_failure_on(path):
    data = CachedDataset(path, transform=refuse, on_invalid="raise")
    assert int(data[4]["label"]) == 4
    for workers in (0, 1):
        with pytest.raises(InvalidSample, match="no instance"):
            list(DataLoader(data, sampler=[4, 5], num_workers=workers))


# ----------------------------------------------------------------------------------- what is caught


@pytest.mark.parametrize(
    "error", [MemoryError, NameError, ImportError, ModuleNotFoundError, ValueError]
)
def test_nothing_but_an_invalid_sample_is_caught(path, error):
    index = [MemoryError, NameError, ImportError, ModuleNotFoundError, ValueError].index(error)
    data = CachedDataset(path, transform=raise_others, budget=wide(), catch=(KeyError,))
    with pytest.raises(error):
        data[10 + index]
    assert data.budget.reasons == {}


def test_further_exceptions_may_be_named(path):
    data = CachedDataset(path, transform=odd_value, catch=[ValueError], budget=wide())
    served = [label for batch in labels(DataLoader(data, batch_size=8)) for label in batch]
    assert not {1, 11, 21, 31} & set(served)
    assert set(data.budget.reasons) >= {f"ValueError: {i}" for i in (1, 11, 21, 31)}


@pytest.mark.parametrize(
    "wrong",
    [
        Exception,
        MemoryError,
        NameError,
        UnboundLocalError,
        ImportError,
        ModuleNotFoundError,
        BaseException,
        "x",
        3,
    ],
)
def test_exceptions_that_are_no_samples_fault_cannot_be_named(path, wrong):
    with pytest.raises(UsageError, match="catch: "):
        CachedDataset(path, catch=[wrong])


# --------------------------------------------------------------------------------------- the budget


def test_more_than_the_share_stops_the_run_with_the_list(path):
    """0.1 of 40 samples are 4 failures; 5 of the epoch's samples fail."""
    broken = [1, 2, 4, 6, 7]

    def transform(row):
        if int(row["label"]) in broken:
            msg = "no instance"
            raise InvalidSample(msg)
        return row

    data = CachedDataset(path, transform=transform, on_invalid="skip", budget=Budget(0.1), seed=1)
    for index in (0, 1, 2, 3):  # numbers of valid samples: 0, 1, 2, 4
        data[index]
    with pytest.raises(
        BudgetExceededError,
        match=r"5 of \d+ samples failed in epoch 0; allowed are 0\.1 .*no instance",
    ) as said:
        list(map(data.__getitem__, range(4, 38)))
    assert "sample/000001, sample/000002" in str(said.value)
    assert data.budget.failed == 5
    data.set_epoch(1)
    data[1]  # each epoch has its own share
    assert data.budget.failed < 5


def test_failures_in_a_row_stop_the_run(path):
    def never(row):
        raise InvalidSample

    data = CachedDataset(path, transform=never, budget=Budget(1, run=7))
    with pytest.raises(BudgetExceededError, match="7 samples failed in a row"):
        data[0]


@pytest.mark.parametrize(
    ("start", "persistent"), [("fork", False), ("spawn", True), ("forkserver", True)]
)
def test_counts_of_workers_are_read_in_the_main_process(path, start, persistent):
    data = CachedDataset(path, transform=refuse, budget=wide())
    loader = DataLoader(
        data,
        batch_size=4,
        num_workers=2,
        multiprocessing_context=start,
        persistent_workers=persistent,
    )
    for epoch in range(3):
        data.set_epoch(epoch)
        labels(loader)
    reasons = data.budget.reasons
    assert reasons["known to be invalid"] == 3 * len(KNOWN)
    assert reasons["no instance"] >= 3  # sample 5, and again where it was drawn
    assert reasons["too few points"] >= 3 * 2
    assert data.budget.served == COUNT
    failures = data.budget.failures
    assert {(f.item, f.tried) for f in failures if f.item == f.tried} == {(i, i) for i in BROKEN}
    assert {f.epoch for f in failures} == {2}
    assert len(failures) == data.budget.failed


def test_an_exceeded_budget_of_workers_stops_the_loop(path):
    data = CachedDataset(path, transform=refuse, budget=Budget(0))
    with pytest.raises(BudgetExceededError, match="allowed are 0 of them"):
        labels(DataLoader(data, batch_size=4, num_workers=2))


def count_up(budget, times):
    for _ in range(times):
        budget.fail(SampleFailure(0, 1, 2, f"worker {os.getpid() % 2}"), 3, 10)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_no_count_is_lost_between_processes_and_threads(start):
    budget = Budget(1, run=10**9)
    context = multiprocessing.get_context(start)
    workers = [context.Process(target=count_up, args=(budget, 500)) for _ in range(2)]
    for worker in workers:
        worker.start()
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(count_up, [budget] * 3, [500] * 3))
    for worker in workers:
        worker.join()
    assert (budget.failed, budget.served, sum(budget.reasons.values())) == (2500, 7500, 2500)
    assert len(budget.failures) == 1000


def hold_the_lock(budget, pipe):
    with budget._locked():
        pipe.send("held")
        signal.pause()


def test_a_worker_that_is_killed_while_it_counts_holds_nobody_up():
    budget = Budget()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    worker = context.Process(target=hold_the_lock, args=(budget, there))
    worker.start()
    assert here.recv() == "held"
    worker.kill()
    worker.join()
    budget.serve(0, 5)
    assert budget.served == 5


def test_a_pickled_budget_starts_anew(path):
    data = CachedDataset(path, transform=refuse, budget=Budget(0.5, 9))
    data[5]
    again = pickle.loads(pickle.dumps(data))  # noqa: S301  our own bytes
    assert (again.budget.share, again.budget.run, again.budget.reasons) == (0.5, 9, {})
    assert int(again[5]["label"]) == int(data[5]["label"])


def test_reasons_are_bounded_and_may_be_any_text():
    budget = Budget(1, run=10**9)
    for i in range(50):
        budget.fail(SampleFailure(0, i, i, f"{i} ü" * 60), 0, 100)
    assert len(budget.reasons) == 32
    assert budget.reasons["other reasons"] == 50 - 31
    assert all(len(reason.encode()) <= 120 for reason in budget.reasons)


@pytest.mark.parametrize(
    "how", [{"share": -0.1}, {"share": 1.5}, {"share": "1 %"}, {"run": 0}, {"run": 1.5}]
)
def test_wrong_budgets_are_refused(how):
    with pytest.raises(UsageError, match="budget: "):
        Budget(**how)


def test_budgets_leave_no_files_open():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Budget().serve(0, 1)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
