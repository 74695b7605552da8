"""One word of all ranks before any raises: four real processes, of which one has something wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from datacheck.torch import Budget, EvalSampler, InvalidSample, ResamplingDataset, guard
from tests.torch.ranks import LIMIT_S, on_ranks
from tests.torch.test_guard import FIXED, SCHEMA, batches, rows

HERE = "tests.torch.test_guard_ranks"


class Raises:
    """A dataset of which rank 1 cannot load the seventh sample, in a worker."""

    def __init__(self, rank, error):
        self.rank, self.rows, self.error = rank, rows(12), error

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == 7 and self.rank == 1:
            raise self.error
        return {name: self.rows[i][name] for name in FIXED}


def unguarded(rank, world):
    """The control: what becomes of ranks whose fellow has ended, in a group that waits for two seconds."""
    group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=2))
    for _ in range(1 if rank == 2 else 2):
        distributed.all_reduce(torch.zeros(1), group=group)
    return "ended"


def leaves(rank, world):
    """Rank 2 leaves the loop after a batch, in a group that waits for two seconds."""
    group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=2))
    passing = iter(guard([next(iter(batches(rows(3))))] * 3, SCHEMA, group=group))
    return len([next(passing) for _ in range(1 if rank == 2 else 3)])


def uneven(rank, world):
    """Pass through shares of 2, 3, 2 and 3 samples."""
    return sum(
        1 for _ in guard(DataLoader(rows(10), 1, sampler=EvalSampler(10)), SCHEMA, fields=FIXED)
    )


def worker(rank, world):
    return sum(
        1
        for _ in guard(
            DataLoader(Raises(rank, OSError("disk gone")), batch_size=2, num_workers=1),
            SCHEMA,
            fields=FIXED,
        )
    )


def over_budget(rank, world):
    """Rank 1 alone has a sample that fails, and may have none."""
    data = ResamplingDataset(Raises(rank, InvalidSample("no instance")), budget=Budget(0))
    return sum(1 for _ in guard(DataLoader(data, batch_size=2), SCHEMA, fields=FIXED))


def judge_fails(rank, world):
    guarded = guard([next(iter(batches(rows(3))))], SCHEMA)
    if rank == 3:
        guarded._judge.has_no_samples = lambda batch: 1 / 0
    return sum(1 for _ in guarded)


def time_limit(rank, world):
    """Return the seconds that a rank waits for the others."""
    guarded = guard([next(iter(batches(rows(3))))], SCHEMA)
    list(guarded)
    return guarded._group._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def of_two(rank, world):
    """Ranks 2 and 3 are a group of which 3 is wrong; 0 and 1 iterate too, though they are not in it, and 1 is wrong."""
    group = distributed.new_group([2, 3], backend="gloo")
    return sum(
        1 for _ in guard([{}] if rank % 2 else [next(iter(batches(rows(3))))], SCHEMA, group=group)
    )


def train(rank, world, fault):
    """Six steps of DDP on batches of which those of rank 2 go wrong at batch 3."""
    made = [next(iter(batches(rows(3)))) for _ in range(6)]

    def loader():
        for number, batch in enumerate(made):
            if rank != 2 or number != 3 or fault in {"", "goes on"}:
                yield batch
            elif fault == "raises":
                raise ValueError("no instance")
            elif fault == "ends":
                return
            else:
                yield {
                    "empty": {},
                    "no batch": None,
                    "nan": batch | {"joints": batch["joints"] * torch.nan},
                }[fault]
        if rank == 1 and fault == "goes on":
            yield made[0]

    model = DistributedDataParallel(torch.nn.Linear(63, 1))
    steps = 0
    for batch in guard(loader(), SCHEMA):
        model(batch["joints"].flatten(1)).sum().backward()
        steps += 1
    return steps


FAULTS = {
    ("train", "empty"): (3, "rank 2, batch: DC103 the batch has no samples"),
    ("train", "raises"): (3, "rank 2, batch: DC101 the loader raised ValueError: no instance"),
    ("train", "ends"): (
        3,
        "rank 2, batch: DC905 its loader has ended, that of rank 0 has not\n    fix: Give",
    ),
    ("train", "goes on"): (6, "rank 0, batch: DC905 its loader has ended, that of rank 1 has not"),
    ("train", "no batch"): (
        3,
        "rank 2, batch: DC101 a batch is a dict of fields, a tuple of them, or a list of dicts; "
        "found NoneType",
    ),
    ("train", "nan"): (
        3,
        "rank 2, samples 0, 1, 2 (hand0, hand1, hand2): DC221 non-finite: joints: ",
    ),
    ("uneven",): (2, "rank 0, batch: DC905 its loader has ended, that of rank 1 has not"),
    ("worker",): (
        3,
        "rank 1, batch: DC101 the loader raised OSError: Caught OSError in DataLoader worker "
        "process 0. "
        "OSError: disk gone\n",
    ),
    ("over_budget",): (
        3,
        "rank 1, batch: DC101 the loader raised BudgetExceededError: 1 of 8 samples failed in "
        "epoch 0; allowed are 0 of them. no instance (1): 7\n",
    ),
    ("judge_fails",): (
        0,
        "rank 3, batch: DC101 the batch could not be judged: ZeroDivisionError: division by zero",
    ),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory, forked_python):
    """All of it in one run of four processes, which take seconds to start."""
    calls = [
        ("train", ""),
        *FAULTS,
        ("unguarded",),
        ("leaves",),
        ("time_limit",),
        ("of_two",),
        ("train", ""),
    ]
    found = on_ranks(
        forked_python,
        4,
        [(f"{HERE}:{name}", *args) for name, *args in calls],
        tmp_path_factory.mktemp("ranks"),
    )
    return dict(zip([*calls[:-1], "afterwards"], found, strict=True))


@pytest.mark.parametrize("call", FAULTS, ids=" ".join)
def test_a_batch_that_is_wrong_on_one_rank_is_the_same_error_on_all(said, call):
    batch, words = FAULTS[call]
    assert list(said[call]) == [said[call][0]] * 4
    assert said[call][0]["error"] == "BatchError"
    assert said[call][0]["message"].startswith(f"batch {batch} is wrong:\n  {words}")


def test_the_control_waits_in_vain(said):
    assert said["unguarded",][2] == "ended"
    assert [said["unguarded",][rank]["error"] for rank in (0, 1, 3)] == ["RuntimeError"] * 3


def test_a_rank_that_does_not_answer_is_told(said):
    assert said["leaves",][2] == 1
    for rank in (0, 1, 3):
        assert said["leaves",][rank]["error"] == "BatchError"
        assert said["leaves",][rank]["message"].startswith(
            "batch 1: another rank has ended or does not answer; "
        )


def test_the_ranks_wait_as_long_as_their_process_group_does(said):
    assert list(said["time_limit",]) == [LIMIT_S] * 4


def test_a_group_agrees_for_itself_and_its_ranks_have_the_numbers_that_all_know(said):
    empty = "batch 0 is wrong:\n  rank {}, batch: DC103 the batch has no samples"
    assert said["of_two",][0] == 1
    for rank, wrong in ((1, 1), (2, 3), (3, 3)):
        assert said["of_two",][rank]["message"].startswith(empty.format(wrong))


def test_ranks_that_are_right_train_to_the_end_also_after_an_error(said):
    assert list(said["train", ""]) == [6] * 4
    assert list(said["afterwards"]) == [6] * 4
