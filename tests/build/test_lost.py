"""A real Dask cluster that loses answers, or its scheduler, while this process looks elsewhere."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import distributed
import pytest

from datacheck.errors import StorageError
from datacheck.workers import parallel
from datacheck.workers.parallel import ordered_map
from tests.build.cluster import cluster

TASKS = 40  # more than are in flight


@pytest.fixture
def dask(tmp_path, repository, dask_python, monkeypatch):
    monkeypatch.syspath_prepend(str(repository))
    with cluster(tmp_path, scheduler=dask_python, worker=dask_python) as running:
        yield running


@pytest.fixture
def dask_of_workers(tmp_path, repository, dask_python, monkeypatch):
    """A cluster whose workers a test may signal; those of `dask` are forked."""
    monkeypatch.syspath_prepend(str(repository))
    with cluster(tmp_path, scheduler=dask_python) as running:
        yield running


@pytest.fixture
def shut(tmp_path):
    """The gate, which is open."""
    return tmp_path / "shut"


def outcomes(dask, shut, told=print, count=TASKS):
    tasks = ({"items": [item], "item": item, "shut": str(shut)} for item in range(count))
    found = ordered_map("tests.build.cluster:gated", tasks, scheduler=dask.address, told=told)
    return (outcome.payloads[0] for outcome in found)


def until(true):
    end = time.monotonic() + 800
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_memory(dask, count):
    """Return when the workers hold so many answers."""
    with distributed.Client(dask.address, set_as_default=False) as client:
        until(
            lambda: (
                sum("datacheck-" in key for held in client.has_what().values() for key in held)
                >= count
            )
        )


# ---------------------------------------------------------------------------- answers that are lost


@pytest.mark.slow
def test_an_answer_that_ends_with_its_worker_is_made_again(dask_of_workers, shut, monkeypatch):
    monkeypatch.setattr(parallel, "_LOOK_S", 0.05)
    told = []
    found = outcomes(dask_of_workers, shut, told=told.append)
    first, _ = next(found)
    in_memory(dask_of_workers, parallel._WAITING - 1)
    shut.touch()
    looks, alone = [], parallel._alone

    def looking(client, *more):
        looks.append(len(client.ncores()))
        if len(looks) == 20:
            shut.unlink()
        return alone(client, *more)

    monkeypatch.setattr(parallel, "_alone", looking)
    dask_of_workers.workers[0].kill()
    dask_of_workers.workers[0].wait()
    rest = list(found)
    assert [first, *(item for item, _ in rest)] == list(range(TASKS))
    assert {worker for _, worker in rest[: parallel._WAITING - 1]} == {
        dask_of_workers.workers[1].pid
    }
    assert len(looks) >= 20
    assert not [line for line in told if "no workers" in line]


@pytest.mark.slow
def test_an_answer_that_takes_long_to_come_is_let_come(dask, shut, monkeypatch):
    remote, asked = distributed.Client._gather_remote, []

    async def over_a_slow_link(client, *how):
        asked.append(True)
        answer = await remote(client, *how)
        await asyncio.sleep(0.5 if len(asked) < 20 else 0)
        return answer

    found = outcomes(dask, shut, count=2)
    first, _ = next(found)
    in_memory(dask, 1)
    monkeypatch.setattr(parallel, "_LOOK_S", 0.05)
    monkeypatch.setattr(parallel, "_CONNECT_S", 0.2)
    monkeypatch.setattr(distributed.Client, "_gather_remote", over_a_slow_link)
    assert [first, *(item for item, _ in found)] == [0, 1]
    assert len(asked) < 10  # for 0.2, 0.4, 0.8 s


@pytest.mark.slow
def test_tasks_that_another_client_has_dropped_are_no_lost_scheduler(dask, shut):
    found = outcomes(dask, shut)
    shut.touch()
    next(found)
    with distributed.Client(dask.address, set_as_default=False) as other:
        other.restart(wait_for_workers=False)
    with pytest.raises(
        StorageError,
        match=r"the Dask scheduler dropped our tasks \(scheduler-restart\)\. Run the sam",
    ):
        list(found)


# ------------------------------------------------------------------------- a scheduler that is lost

LOST = (
    "the connection to the Dask scheduler was lost. Look after it, then run the same command again."
)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["connecting", "closed"])
def test_a_scheduler_that_ends_while_the_caller_is_busy_is_said(dask, shut, monkeypatch, state):
    monkeypatch.setattr(parallel, "_CONNECT_S", 60.0 if state == "connecting" else 5.0)
    found = outcomes(dask, shut)
    next(found)
    client = distributed.default_client()
    dask.scheduler.kill()
    until(lambda: client.status == state)
    begin = time.monotonic()
    with pytest.raises(StorageError) as caught:
        list(found)
    assert str(caught.value) == LOST
    assert time.monotonic() - begin < 30  # it asks nobody who is gone


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_scheduler_that_ends_while_workers_are_asked_for_their_version_is_said(
    dask, shut, monkeypatch, when
):
    monkeypatch.setattr(parallel, "_CONNECT_S", 5.0)
    wait = distributed.wait

    def waiting(*what, **how):
        if when == "behind":
            wait(*what, **how)
        client = distributed.default_client()
        dask.scheduler.kill()
        until(lambda: client.status == "closed")
        return wait(*what, **how)

    monkeypatch.setattr(distributed, "wait", waiting)
    with pytest.raises(StorageError) as caught:
        list(outcomes(dask, shut))
    assert str(caught.value) == LOST


@pytest.mark.slow
def test_a_worker_that_ends_between_its_version_and_our_look_at_it_is_not_waited_for(
    dask_of_workers, shut, monkeypatch
):
    wait, result, stopped = distributed.wait, distributed.Future.result, dask_of_workers.workers[0]

    def waiting(*what, **how):
        done = wait(*what, **how)
        stopped.send_signal(signal.SIGSTOP)  # so that the scheduler does not know yet
        return done

    def ending(future, timeout=None):
        if stopped.poll() is None:
            threading.Timer(0.5, stopped.kill).start()
        return result(future, timeout)

    monkeypatch.setattr(parallel, "_CONNECT_S", 5.0)
    monkeypatch.setattr(distributed, "wait", waiting)
    monkeypatch.setattr(distributed.Future, "result", ending)
    assert [item for item, _ in outcomes(dask_of_workers, shut)] == list(range(TASKS))


@pytest.mark.slow
def test_a_scheduler_that_says_nothing_is_said_and_given_up(
    tmp_path, repository, dask_python, shut, monkeypatch
):
    monkeypatch.syspath_prepend(str(repository))
    with cluster(tmp_path, worker=dask_python) as dask:
        told = []
        found = outcomes(dask, shut, told=told.append)
        next(found)
        monkeypatch.setattr(parallel, "_CONNECT_S", 2.0)
        monkeypatch.setattr(parallel, "_WORKERS_S", 3.0)
        dask.scheduler.send_signal(signal.SIGSTOP)
        with pytest.raises(
            StorageError,
            match=f"{dask.address}: the scheduler has not answered for 3 s. Look after it, ",
        ):
            list(found)
        assert [line for line in told if "scheduler" in line] == [
            f"{dask.address}: the scheduler does not answer; waiting 3 s"
        ]
