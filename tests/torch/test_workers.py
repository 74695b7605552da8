"""worker_context: a worker that dies, or is interrupted, just where it asks whether it should end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from datacheck.errors import UsageError
from datacheck.torch import worker_context

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")


def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def is_interrupted():
    raise KeyboardInterrupt


class Ends:
    """Index i is i; the worker that is asked for 1 ends while it asks whether it should."""

    def __init__(self, ending):
        self.ending = ending

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 1:
            frame = sys._getframe()
            while "done_event" not in frame.f_locals:  # of the loop of the worker
                frame = frame.f_back
            lock = getattr(frame.f_locals["done_event"], "_cond", None)
            if lock is not None:
                lock.acquire()
            self.ending()
        return index


class Plain:
    """Index i is i."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


def one_worker(dataset, context, **how):
    return iter(
        DataLoader(dataset, batch_size=1, num_workers=1, multiprocessing_context=context, **how)
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ending", [is_killed, is_interrupted])
def test_a_loop_whose_worker_ends_while_it_asks_is_told(ending):
    # lists: the memory of tensors that the loop has not taken yet goes with the worker
    batches = one_worker(Ends(ending), worker_context("fork"), collate_fn=list)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(batches)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ending", [is_killed, is_interrupted])
def test_control_without_it_the_loop_would_wait_for_a_lock(ending):
    batches = one_worker(Ends(ending), "fork")
    lock = batches._workers_done_event._cond
    with contextlib.suppress(RuntimeError):  # PyTorch tells a death to whatever runs just then
        while lock.acquire(timeout=1):
            lock.release()
    assert not lock.acquire(timeout=1)
    batches._workers_done_event = worker_context("fork").Event()  # or this would wait, too
    with contextlib.suppress(RuntimeError):
        batches._workers[0].kill()
        batches._workers[0].join()
    with contextlib.suppress(RuntimeError):
        batches._shutdown_workers()


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver", None])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_serve_and_end_as_those_of_pytorch(start, persistent):
    loader = DataLoader(
        Plain(),
        batch_size=3,
        num_workers=2,
        multiprocessing_context=worker_context(start),
        persistent_workers=persistent,
    )
    for _ in range(2):
        assert torch.cat(list(loader)).tolist() == list(range(8))
    passing = iter(loader)
    next(passing)
    workers = passing._workers
    passing._shutdown_workers()
    assert [worker.exitcode for worker in workers] == [0, 0]  # told to end, and not terminated


@pytest.mark.parametrize("start", ["thread", "", ["fork"]])
def test_a_start_that_is_none_is_refused(start):
    with pytest.raises(UsageError, match="is no way to start processes here: fork"):
        worker_context(start)


def test_how_processes_start_elsewhere_may_still_be_said(forked_python):
    script = """
import multiprocessing
from datacheck.torch import worker_context
assert worker_context().get_start_method() == multiprocessing.get_all_start_methods()[0]
multiprocessing.set_start_method("spawn")
assert worker_context().get_start_method() == "spawn"
"""
    subprocess.run([forked_python, "-c", script], check=True)
