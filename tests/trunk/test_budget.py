"""Budgets by the size of files: what exceeds them is tried once more alone, what looks like offenders is not."""

import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from datacheck.errors import FormatError
from datacheck.formats.limits import wrap_errors
from datacheck.workers import budget, parallel
from datacheck.workers.budget import (
    ALIKE,
    BRIEF,
    FIRST,
    LOST_S,
    OFFENCES_S,
    WHOLE,
    FailureHistory,
    ItemBudget,
    usable_memory,
)
from datacheck.workers.child import Child, Death, Limits
from datacheck.workers.parallel import run_task

HERE = "tests.trunk.test_budget:work"
SMALL = ItemBudget(64 << 20, 1.5, 1e9)
LARGE = ItemBudget(512 << 20, 1.5, 1e9)


def work(task, beat):
    """What a child does in these tests; an item says how much it takes."""
    done = []
    for place, item in enumerate(task["items"]):
        beat(place)
        beat.files(item["nbytes"])
        if task.get("spared"):
            done.append(item["path"])
            continue
        if item["path"].startswith("greedy"):
            bytearray(item["takes"])
        if item["path"].startswith("wrapped"):
            with wrap_errors("a library"):
                bytearray(item["takes"])
        if item["path"].startswith("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        while item["path"].startswith("busy"):
            beat(place)  # signs of life are no excuse
        done.append(item["path"])
    return {"done": done, "pid": os.getpid()}


def item(path, nbytes=100, takes=0):
    return {"path": path, "nbytes": nbytes, "takes": takes}


@pytest.fixture(autouse=True)
def budgets(monkeypatch, repository):
    monkeypatch.syspath_prepend(str(repository))
    monkeypatch.setattr(budget, "FIRST", SMALL)
    monkeypatch.setattr(budget, "BRIEF", SMALL)
    monkeypatch.setattr(parallel, "WHOLE", LARGE)


@pytest.fixture
def brief(budgets, monkeypatch):
    """Less time of a processor, where no item needs any to be read; returns the seconds."""
    small, large = (replace(one, cpu_s=0.4) for one in (SMALL, LARGE))
    monkeypatch.setattr(budget, "FIRST", small)
    monkeypatch.setattr(budget, "BRIEF", small)
    monkeypatch.setattr(parallel, "WHOLE", large)
    return small.seconds(100)


def run(items, offenders=None):
    with contextlib.closing(Child(Limits())) as child:
        return run_task(child, HERE, {"items": items}, offenders)


def done(outcome):
    return [path for payload in outcome.payloads for path in payload["done"]]


@pytest.mark.parametrize("kind", ["greedy", "wrapped"])
def test_an_item_that_needs_more_is_tried_once_more_alone_and_no_child_dies_of_it(kind):
    outcome = run([item("a"), item(kind, takes=200 << 20), item("b")])
    assert (done(outcome), outcome.deaths) == (["a", kind, "b"], [])
    assert len({payload["pid"] for payload in outcome.payloads}) == 1


def test_an_item_that_needs_more_than_its_size_justifies_is_named():
    outcome = run([item("a"), item("greedy", takes=1 << 30), item("b")])
    assert done(outcome) == ["a", "b"]
    (death,) = outcome.deaths
    assert (death.item["path"], death.kind, death.crash) == ("greedy", "memory", False)
    assert (
        death.how
        == f"needs more than {LARGE.memory(100):,} bytes of memory, too much for a file of its size"
    )


def test_a_large_file_may_take_more_memory():
    outcome = run([item("greedy", nbytes=4 << 20, takes=150 << 20)])
    assert (done(outcome), outcome.deaths) == (["greedy"], [])
    assert len(outcome.payloads) == 1


def test_an_item_that_is_busy_for_too_long_is_named_though_it_gives_signs_of_life(brief):
    outcome = run([item("a"), item("busy"), item("b")])
    assert done(outcome) == ["a", "b"]
    (death,) = outcome.deaths
    assert (death.item["path"], death.kind) == ("busy", "busy")
    assert death.how.startswith("still busy after ")


def test_items_that_look_like_offenders_are_not_tried_again():
    offenders = FailureHistory()
    for number in range(ALIKE):
        offenders.failed(item(f"{number}.npz"), "memory", 0.0)
    outcome = run(
        [item("greedy_1.npz", takes=1 << 30), item("greedy_2.npz", takes=60 << 20), item("c.npz")],
        offenders,
    )
    assert done(outcome) == ["greedy_2.npz", "c.npz"], "good ones of the same kind are read"
    assert [death.how for death in outcome.deaths] == [
        f"not read, like {ALIKE} others of its kind and size: it needs too much memory for its size"
    ]


def test_an_item_that_ends_its_parser_gets_no_second_try_after_others_like_it():
    names = [f"crash_{number}.json" for number in range(ALIKE + 1)]
    offenders = FailureHistory()
    outcome = run([*map(item, names), item("a.json")], offenders)
    assert done(outcome) == ["a.json"]
    assert [death.kind for death in outcome.deaths] == ["crashed"] * (ALIKE + 1)
    *first, last = [death.how for death in outcome.deaths]
    assert all(how.startswith("the parser was killed by SIGSEGV") for how in first)
    assert last == f"not read, like {ALIKE} others of its kind and size: it crashes its parser"


@pytest.mark.parametrize(
    ("other", "kind"),
    [(item("a.npy"), "memory"), (item("a.npz", nbytes=1 << 20), "memory"), (item("a.npz"), "busy")],
)
def test_offenders_of_another_kind_or_size_do_not_count(other, kind):
    offenders = FailureHistory()
    for _ in range(ALIKE):
        offenders.failed(item("0.npz"), "memory", 0.0)
    assert offenders.refused(item("1.npz"), "memory")
    assert offenders.refused(other, kind) == ""


def test_when_a_minute_went_into_offenders_none_is_tried_again():
    offenders = FailureHistory(workers=2)
    offenders.failed(item("0.npz"), "memory", 2 * OFFENCES_S - 1)
    assert offenders.refused(item("1.tar"), "busy") == ""
    offenders.failed(item("0.npz"), "memory", 1)
    assert offenders.refused(item("1.tar"), "busy").startswith(
        "not read, as 60 s for each worker went into others"
    )


def test_when_ten_minutes_went_into_tries_that_ended_by_a_limit_first_tries_are_brief(monkeypatch):
    """24 files of a minute each and of slightly different kinds held a scan for hours."""
    monkeypatch.setattr(budget, "BRIEF", BRIEF)
    offenders = FailureHistory(workers=2)
    offenders.lost("killed", 2 * LOST_S)
    offenders.lost("silent", 2 * LOST_S - 1)
    assert offenders.budget(item("a.npy")).seconds(0) == SMALL.seconds(0)
    offenders.lost("busy", 1)
    brief = offenders.budget(item("a.npy"))
    assert (brief.seconds(0), brief.seconds(1_000_000)) == (1, 3)
    # A slow disk is no fault of a file: the usual limit of silence holds
    assert brief.silence_s == float("inf")


def test_every_try_that_ends_by_a_limit_counts(brief):
    offenders = FailureHistory()
    lost = []
    offenders.lost = lambda kind, seconds: lost.append(seconds)
    run([item("a"), item("busy"), item("b")], offenders)
    assert len(lost) == 3  # with others, by itself, and with all that its size justifies
    assert min(lost) >= brief


@pytest.mark.parametrize("kind", ["busy", "greedy"])
def test_links_to_a_file_that_ended_by_a_limit_are_not_tried(kind, brief):
    """Each of 24 links to one file of a minute took a minute again."""
    names = [f"{kind}_{number}.n{number}" for number in range(24)]
    tries = []
    with contextlib.closing(Child(Limits())) as child:
        asked, child.run = (
            child.run,
            lambda function, task: tries.append(len(task["items"])) or asked(function, task),
        )
        task = {"items": [item(name, takes=1 << 30) for name in [*names, "good"]]}
        outcome = run_task(
            child, HERE, task, FailureHistory(same=lambda said: said["path"].partition("_")[0])
        )
    assert done(outcome) == ["good"]
    first, *others = sorted(outcome.deaths, key=lambda death: names.index(death.item["path"]))
    assert len(tries) == 4  # all, the first by itself twice, the good one
    assert {death.kind for death in outcome.deaths} == {first.kind}
    assert [death.how for death in others] == [
        f"not read, as it is the same file as {names[0]}: {first.how}"
    ] * 23


def test_a_link_to_a_file_that_may_be_tried_without_a_tokenizer_is():
    same = FailureHistory(same=lambda said: said["path"].partition("_")[0])
    task = {
        "items": [item(f"greedy_{number}", takes=1 << 30) for number in range(3)],
        "without": {"spared": True},
    }
    with contextlib.closing(Child(Limits())) as child:
        outcome = run_task(child, HERE, task, same)
    assert (sorted(done(outcome)), outcome.deaths) == (["greedy_0", "greedy_1", "greedy_2"], [])


def test_each_item_of_a_task_is_tried_by_itself_at_most_twice():
    """Once with what it may take, for others may have taken it before, and once with all that there is."""
    tries = []

    class Fake:
        budget = None

        def __init__(self):
            self.place = 0

        def run(self, function, task):
            del function
            tries.append([i["path"] for i in task["items"]])
            bad = [n for n, i in enumerate(task["items"]) if i["path"].startswith("bad")]
            if not bad:
                return task["items"], None
            self.place = bad[0]
            return None, Death(task["items"][bad[0]], "why", kind="memory")

        def at(self):
            return self.place

        def close(self):
            """A new process begins with the next run."""

    names = [f"bad_{number}.npz" for number in range(ALIKE + 3)]
    outcome = run_task(Fake(), "any", {"items": [item(name) for name in names]})
    assert [death.item["path"] for death in outcome.deaths] == names
    alone = [paths for paths in tries if len(paths) == 1]
    assert [alone.count([name]) for name in names] == [2] * ALIKE + [1] * 3
    assert all(death.how.startswith("not read, like 5 others") for death in outcome.deaths[ALIKE:])


@pytest.mark.parametrize("kind", ["busy", "memory", "silent"])
def test_no_item_is_blamed_for_what_others_before_it_took(kind):
    """What many files hold is measured when the last one was read: that one is at hand when the time is over."""
    tries = []

    class Fake:
        budget = None

        def run(self, function, task):
            del function
            tries.append(len(task["items"]))
            if len(task["items"]) <= 30:
                return task["items"], None
            return None, Death(task["items"][-1], "why", kind=kind)

        def at(self):
            return 10_000

        def close(self):
            """A new process begins with the next run."""

    offenders = FailureHistory()
    offenders.failed(item("other.h5"), kind, 1e6)  # no time is left for second tries
    names = [f"{number}.json" for number in range(300)]
    outcome = run_task(Fake(), "any", {"items": [item(name) for name in names]}, offenders)
    assert outcome.deaths == []
    assert sorted(said["path"] for payload in outcome.payloads for said in payload) == sorted(names)
    assert len(tries) < 50  # and not one for each file


def test_budgets_grow_with_the_size_up_to_the_most():
    assert FIRST.memory(0) < WHOLE.memory(0)
    assert WHOLE.memory(1 << 20) - WHOLE.memory(0) == 32 << 20
    assert replace(FIRST, most_b=1 << 30).memory(1 << 40) == 1 << 30
    assert WHOLE.seconds(1 << 20) > FIRST.seconds(1 << 20) > FIRST.seconds(0)


def test_the_memory_of_a_control_group_counts(monkeypatch):
    texts = {
        "/proc/self/cgroup": "0::/batch/job\n",
        "/sys/fs/cgroup/batch/job/memory.max": "max\n",
        "/sys/fs/cgroup/batch/memory.max": f"{3 << 30}\n",
    }
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 22}.__getitem__)

    def told(path, encoding=None):
        if str(path) in texts:
            return texts[str(path)]
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", told)
    assert usable_memory() == 3 << 30
    assert Limits().memory_b == 2 << 30, "never less than an honest sample needs"
    texts["/proc/self/cgroup"] = "4:memory:/job\n0::/\n"
    texts["/sys/fs/cgroup/memory/job/memory.limit_in_bytes"] = f"{12 << 30}\n"
    assert usable_memory() == 12 << 30
    assert Limits().memory_b == 6 << 30
    del texts["/sys/fs/cgroup/memory/job/memory.limit_in_bytes"]
    assert usable_memory() == 16 << 30
    assert Limits().memory_b == 8 << 30


def test_a_library_without_memory_is_damage_only_where_no_budget_is_in_force():
    with pytest.raises(FormatError, match="a library: no room"), wrap_errors("a library"):
        raise MemoryError("no room")
    budget.BY_SIZE = True
    try:
        with pytest.raises(MemoryError), wrap_errors("a library"):
            raise RuntimeError("malloc of size 4096 failed")
        with pytest.raises(FormatError), wrap_errors("a library"):
            raise RuntimeError("bad magic number")
    finally:
        budget.BY_SIZE = False
