"""Evaluation over ranks: every sample once, in dataset order, and the same error on every rank."""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from datacheck.errors import IncompleteError, UsageError
from datacheck.torch import EvalSampler, gather
from tests.torch.ranks import on_ranks

HERE = "tests.torch.test_evaluation"


@pytest.mark.parametrize("size", [0, 1, 3, 4, 10, 8332, 8333])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_every_sample_lies_on_one_rank(size, world):
    shares = [list(EvalSampler(size, rank=rank, world_size=world)) for rank in range(world)]
    assert [i for share in shares for i in share] == list(range(size))
    lengths = [len(EvalSampler(size, rank=rank, world_size=world)) for rank in range(world)]
    assert lengths == [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


def test_the_control_repeats_samples():
    """What `DistributedSampler` does where the number of samples does not divide."""
    shares = [list(DistributedSampler(range(10), 4, rank, shuffle=False)) for rank in range(4)]
    assert len([i for share in shares for i in share]) == 12


@pytest.mark.parametrize(
    "arguments",
    [
        {"rank": 4, "world_size": 4},
        {"rank": -1, "world_size": 2},
        {"rank": 1},
        {"rank": 0, "world_size": 0},
    ],
)
def test_a_rank_that_is_none_is_refused(arguments):
    with pytest.raises(UsageError):
        EvalSampler(10, **arguments)
    with pytest.raises(UsageError):
        EvalSampler(iter([]))


def evaluate(rank, world, size):
    """Evaluate in batches of 64, results ragged and of several kinds; say what arrived, as figures."""
    sampler = EvalSampler(size)
    results = []
    for batch in DataLoader(range(size), batch_size=64, sampler=sampler):
        for i in batch.tolist():
            full = torch.full if i % 8 == 0 else np.full  # a tensor takes ten times as long to send
            results.append({"index": i, "joints": full((i % 5, 3), float(i)), "by": rank})
    every = gather(zip(sampler, results, strict=True), size)
    right = all(
        len(r["joints"]) == i % 5 and bool((r["joints"] == i).all()) for i, r in enumerate(every)
    )
    by = [sum(r["by"] == other for r in every) for other in range(world)]
    return {"order": [r["index"] for r in every] == list(range(size)), "values": right, "by": by}


SHARES = {8332: [2083] * 4, 10: [2, 3, 2, 3], 3: [0, 1, 1, 1], 0: [0] * 4}


def one_quarter(rank, world, size):
    """What the loop of a seed report did: every rank has its share, and only that of rank 0 is evaluated."""
    mine = range(rank, size, world) if rank == 0 else ()
    return len(gather([(i, 0.0) for i in mine], size))


def doubled(rank, world, size):
    return len(
        gather(
            [(i, rank) for i in DistributedSampler(range(size), world, rank, shuffle=False)], size
        )
    )


def outside(rank, world, size):
    return len(gather([(i + 1, 0) for i in EvalSampler(size)], size))


def other_lengths(rank, world, size):
    return len(gather([(i, 0) for i in EvalSampler(size)], size + rank % 2))


def no_length(rank, world, size):
    return len(gather([(i, 0) for i in EvalSampler(size)], None if rank == 1 else size))


def cannot_be_sent(rank, world, size):
    return len(
        gather([(i, cannot_be_sent.__code__ if rank == 2 else i) for i in EvalSampler(size)], size)
    )


def fails_midway(rank, world, size):
    def results():
        for i in EvalSampler(size):
            if i == 3:
                raise ValueError("no loss")
            yield i, i

    return len(gather(results(), size))


WRONG = [
    ("one_quarter", 8332, "6,249 missing: 1 to 3, 5 to 7"),
    ("one_quarter", 8332, "37 to 39 and 2,073 more. The ranks"),
    ("one_quarter", 8332, "The ranks sent 2,083, 0, 0, 0."),
    ("doubled", 10, "2 doubled: 0 (ranks 0, 2), 1 (ranks 1, 3)"),
    ("outside", 10, "1 missing: 0; 1 outside the dataset: 10"),
    ("other_lengths", 8, "8 on rank 0, 9 on rank 1, 8 on rank 2, 9 on rank 3"),
    ("no_length", 8, "rank 1: UsageError: size=None"),
    ("cannot_be_sent", 8, "rank 2: "),
    ("fails_midway", 8, "rank 1: ValueError: no loss"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory, forked_python):
    """All of it in one run of four processes, which take seconds to start."""
    calls = [("evaluate", size) for size in SHARES] + [(name, size) for name, size, _ in WRONG]
    found = on_ranks(
        forked_python,
        4,
        [(f"{HERE}:{name}", size) for name, size in calls],
        tmp_path_factory.mktemp("ranks"),
    )
    return dict(zip(calls, found, strict=True))


@pytest.mark.parametrize("size", SHARES)
def test_four_processes_send_every_sample_once_in_order(said, size):
    assert list(said["evaluate", size]) == [{"order": True, "values": True, "by": SHARES[size]}] * 4


@pytest.mark.parametrize(("name", "size", "words"), WRONG)
def test_what_is_wrong_on_one_rank_is_the_same_error_on_all(said, name, size, words):
    errors = said[name, size]
    assert list(errors) == [errors[0]] * 4
    assert errors[0]["error"] == "IncompleteError"
    assert words in errors[0]["message"]


class Pair(NamedTuple):
    joints: torch.Tensor


@dataclasses.dataclass
class Result:
    joints: torch.Tensor


def test_tensors_within_results_arrive_alone_whatever_holds_them():
    """A view of two numbers is not sent with the million behind it; kinds stay what they were."""
    view = torch.arange(1_000_000, dtype=torch.float32, requires_grad=True)[5:7]
    for held in (Result(view), collections.OrderedDict(joints=view), Pair(view)):
        (found,) = gather([(0, held)], 1)
        assert type(found) is type(held)
        joints = found["joints"] if isinstance(found, dict) else found.joints
        assert joints.tolist() == [5, 6]
        assert joints.untyped_storage().nbytes() == 8
        assert not joints.requires_grad


def test_without_a_process_group_there_is_one_rank():
    view = torch.arange(1_000_000)[5:7]
    assert gather({1: "b", 0: "a"}, 2) == ["a", "b"]
    assert gather([(np.int64(0), view)], 1)[0].tolist() == [5, 6]
    assert gather(zip(torch.arange(3), "abc", strict=True), 3) == ["a", "b", "c"]
    with pytest.raises(IncompleteError, match="1 missing: 1"):
        gather([(0, "a")], 2)
    with pytest.raises(IncompleteError, match="index='a'"):
        gather([("a", 1)], 1)
    with pytest.raises(IncompleteError, match=r"12 doubled: 0 \(ranks 0, 0\), .* and 2 more"):
        gather([(i % 12, 0) for i in range(24)], 12)
