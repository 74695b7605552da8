"""CachedLoader: same batches as a DataLoader, in order, memory that is safe, and no thread left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datacheck.cache.codec import Codec
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import (
    CachedDataset,
    CachedLoader,
    Sampler,
    collate_pad,
    collate_ragged,
    prefetch,
)
from datacheck.torch import prefetch as module
from datacheck.torch.prefetch import Buffers
from tests.cache.make import make_cache

SPECS = {
    "cloud": ArraySpec("float32", (16384,)),
    "points": ArraySpec("float32", (3,), "P"),
    "id": ArraySpec("int64"),
}
COUNT = 37
BATCHES = [list(range(first, min(first + 8, COUNT)))[::-1] for first in range(0, COUNT, 8)]
gpu = pytest.mark.gpu
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(5)
    samples = [
        {
            "cloud": np.full(16384, i, np.float32),
            "points": rng.random((i % 5, 3), np.float32),
            "id": np.int64(i),
        }
        for i in range(COUNT)
    ]
    return make_cache(tmp_path_factory.mktemp("loader"), SPECS, samples)


@pytest.fixture(autouse=True, params=["slow", "quick"])
def pace(request, monkeypatch):
    """Let no batch be quick, or each: then threads are given several at once."""
    if request.param != "usual":
        monkeypatch.setattr(module, "QUICK", 1e-9 if request.param == "slow" else 60)
    return request.param


# Of tests with a process of its own, in which nothing is patched
usual_pace = pytest.mark.parametrize("pace", ["usual"], indirect=True)


def threads():
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("datacheck-loader")
    ]


def same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=0, atol=0)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("verify", ["manifest", "touch", "always"])
def test_batches_are_those_of_a_data_loader_in_order_twice(folder, workers, verify):
    data = CachedDataset(folder, verify=verify)
    expected = list(DataLoader(data, batch_sampler=BATCHES, collate_fn=collate_ragged))
    loader = CachedLoader(
        data, batch_sampler=BATCHES, collate_fn=collate_ragged, threads=workers, ahead=3
    )
    assert len(loader) == len(BATCHES)
    for _ in range(2):
        found = list(loader)  # all are held at once: none may be overwritten
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            same(left, right)
    assert not threads()


class Numbers:
    """What a sampler asks for itself."""

    fingerprint = "numbers"

    def __len__(self):
        return 200

    def __getitem__(self, index):
        return index


def had(loader, asked):
    """Return how many batches were asked for beyond that which the loop has, at each."""
    beyond = []
    for batch in loader:
        assert batch.tolist() == [len(beyond)]
        beyond.append(asked() - len(beyond) - 1)
    assert len(beyond) == 200
    return beyond


@pytest.mark.parametrize("ahead", [None, 1, 3, 40])
def test_of_quick_batches_a_thread_is_given_several_where_ahead_does_not_say_how_many(pace, ahead):
    sampler = Sampler(Numbers(), 1, shuffle=False)
    most = max(
        had(
            CachedLoader(Numbers(), batch_sampler=sampler, ahead=ahead),
            lambda: sampler.begun.batches,
        )
    )
    if pace == "slow" or ahead is not None:
        assert most == (ahead or 2)
    else:  # 16 are made while the loop has as many
        assert 16 <= most < 2 * 16


class Following(Sampler):
    """An order of a user's own, which may look at what the loop has had."""


def test_a_sampler_that_may_follow_the_loop_is_never_asked_for_more():
    asked = Following(Numbers(), 1, shuffle=False)
    assert max(had(CachedLoader(Numbers(), batch_sampler=asked), lambda: asked.begun.batches)) == 2


def test_where_several_turn_out_slow_other_threads_make_the_rest(monkeypatch):
    monkeypatch.setattr(module, "QUICK", 0.01)
    makers = {}

    class Data:
        def __getitem__(self, index):
            if index >= 31:  # 16 in one go from there on
                time.sleep(0.3)
            makers[index] = threading.current_thread().name
            return index

    found = list(CachedLoader(Data(), batch_sampler=[[i] for i in range(47)], threads=3))
    assert [batch.item() for batch in found] == list(range(47))
    assert len({makers[i] for i in range(47)}) > 1
    assert len({makers[i] for i in range(32, 47)}) == 3


def test_an_error_of_the_sampler_comes_behind_the_batches_before_it(folder, pace):
    class Failing(list):
        def __iter__(self):
            yield from list.__iter__(self)
            raise KeyError("no more")

    found = []
    loader = CachedLoader(CachedDataset(folder, fields=["id"]), batch_sampler=Failing(BATCHES * 20))
    with pytest.raises(KeyError, match="no more"):
        found.extend(index for batch in loader for index in batch["id"].tolist())
    assert found == [index for batch in BATCHES * 20 for index in batch]


@pytest.mark.parametrize("of", ["batch", "indices"])
def test_an_error_holds_nothing_in_a_cycle(of):
    class Thing:
        pass

    held = []

    class Data:
        def __getitem__(self, index):
            thing = Thing()
            held.append(weakref.ref(thing))
            if (of, index) == ("batch", 5):
                raise ValueError("five")
            return index

    class Batches(list):
        def __iter__(self):
            thing = Thing()
            held.append(weakref.ref(thing))
            yield from ([i] for i in range(5 if of == "indices" else 8))
            raise ValueError("five")

    gc.disable()
    try:
        had = []
        data = Data()
        held.append(weakref.ref(data))
        try:
            had.extend(batch.item() for batch in CachedLoader(data, batch_sampler=Batches()))
        except ValueError:
            had.append("five")
        del data
        alive = [thing() for thing in held]
    finally:
        gc.enable()
    assert had == [0, 1, 2, 3, 4, "five"]
    assert alive == [None] * len(alive)


def test_a_pass_that_the_collector_ends_in_a_thread_of_its_own_hangs_nothing(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class Data:
        def __getitem__(self, index):
            if index >= 3:
                while not left:
                    time.sleep(0.001)
                gc.collect()
            return index

    def leave():
        loop = [iter(CachedLoader(Data(), batch_sampler=[[i] for i in range(8)], threads=2))]
        loop.append(loop)  # only the collector ends it
        assert [next(loop[0]).item() for _ in range(3)] == [0, 1, 2]

    left = []
    gc.disable()
    try:
        leave()
        left.append(True)
        until = time.monotonic() + 800
        while threads() and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        gc.enable()
    assert not threads()
    assert told == []


def test_a_pass_that_the_collector_ends_waits_for_no_thread():
    lock, going, there = threading.Lock(), threading.Event(), threading.Event()

    class Data:
        def __getitem__(self, index):
            if index:
                going.wait(800)
                there.set()
                assert lock.acquire(timeout=800)
                lock.release()
            return index

    def leave():
        loop = [iter(CachedLoader(Data(), batch_sampler=[[i] for i in range(50)], threads=1))]
        loop.append(loop)  # only the collector ends it
        next(loop[0])

    gc.disable()
    try:
        leave()
        with lock:  # a maker waits for it, and the collector may come at any time
            going.set()
            assert there.wait(800)
            gc.collect()
            assert threads()  # it still waits, and nobody for it
    finally:
        gc.enable()
    for thread in threads():
        thread.join(800)
    assert not threads()


def test_a_pass_that_one_of_its_threads_closes_ends():
    working, closed = threading.Event(), threading.Event()

    class Data:
        def __getitem__(self, index):
            if index == 4:
                assert working.wait(800)
                loader.close()
                closed.set()
            return index

    loader = CachedLoader(Data(), batch_sampler=[[i] for i in range(50)], threads=2, ahead=2)
    found = []
    for batch in loader:
        found += batch.tolist()
        if found[-1] == 2:  # the fifth batch is asked for; the loop works
            working.set()
            assert closed.wait(800)
    assert found == [0, 1, 2]
    for thread in threads():
        thread.join(800)
    assert not threads()


def test_a_thread_that_closes_its_pass_waits_for_none_that_wants_its_lock():
    lock, yielded, closing, closed = (
        threading.Lock(),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )

    class Data:
        def __getitem__(self, index):
            if index == 0:
                return index
            assert yielded.wait(800)
            with lock:
                if not closing.is_set():
                    closing.set()
                    time.sleep(0.05)  # until the others want it
                    loader.close()
                    closed.set()
            return index

    loader = CachedLoader(Data(), batch_sampler=[[i] for i in range(20)], threads=4, ahead=4)
    passing = iter(loader)
    next(passing)
    yielded.set()
    assert closed.wait(800)
    for thread in threads():
        thread.join(800)
    assert not threads()


@usual_pace
def test_an_interrupt_is_heard_while_the_collector_works(forked_python):
    script = """
import gc, signal, time
from datacheck.torch import CachedLoader

def interrupted(*_):
    raise KeyboardInterrupt

held, heard = [[i] for i in range(2_000_000)], 0
signal.signal(signal.SIGALRM, interrupted)
for _ in range(5):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        gc.collect()
        time.sleep(10)
    except KeyboardInterrupt:
        heard += 1
print("heard", heard)
"""
    done = subprocess.run(
        [forked_python, "-c", script], capture_output=True, text=True, check=False, timeout=800
    )
    assert (done.stdout, done.stderr) == ("heard 5\n", "")


def test_an_interrupt_leaves_no_lock_that_a_thread_wants():
    """Locks of `threading` are taken by functions of Python, behind which a Ctrl-C may come."""
    called = []

    def notes(frame, event, _):
        if event == "call" and frame.f_code.co_filename == threading.__file__:
            called.append(frame.f_code.co_name)

    passing = iter(CachedLoader(Numbers(), batch_sampler=[[i] for i in range(200)], threads=2))
    for _ in range(10):  # both threads are there
        next(passing)
    sys.setprofile(notes)
    try:
        for _ in range(100):
            next(passing)
    finally:
        sys.setprofile(None)
    assert called == []


@pytest.mark.parametrize("dropped", ["before its end", "at its end"])
def test_no_interrupt_is_lost_where_a_pass_is_dropped(dropped):
    """What comes in a function of Python that weak references call is raised there, and heard by nobody."""
    called = []

    def notes(frame, event, _):
        if event == "call" and "weakref" in frame.f_code.co_filename:
            of = frame.f_locals.get("selfref", lambda: None)()
            # Python's own, of every thread
            called.extend([frame.f_code.co_name] * (of is not threading._dangling))

    loader = CachedLoader(Numbers(), batch_sampler=[[i] for i in range(20)], threads=2)
    passing = iter(loader)
    next(passing)
    if dropped == "at its end":
        list(passing)
    sys.setprofile(notes)
    try:
        del passing
    finally:
        sys.setprofile(None)
    assert called == []
    assert not threads()


@usual_pace
def test_a_pass_that_is_not_over_hinders_no_exit():
    script = """
from datacheck.torch import CachedLoader
passing = iter(CachedLoader(range(100), batch_sampler=[[i] for i in range(100)]))
print(next(passing).item())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=800
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


@usual_pace
def test_what_goes_on_with_a_pass_behind_the_end_of_its_threads_is_told():
    """No tensor is made: a daemon thread that is in PyTorch's code when Python ends aborts the process."""
    script = """
import atexit, threading

def behind():
    try:
        print(sum(1 for _ in passing))
    except Exception as error:
        print(type(error).__name__, error)

def beside():
    for _ in loader:
        began.set()

atexit.register(behind)
from datacheck.torch import CachedLoader
began = threading.Event()
loader = CachedLoader(range(10**6), batch_sampler=[[i] for i in range(10**6)], collate_fn=list)
passing = iter(loader)
next(passing)
threading.Thread(target=beside, daemon=True).start()  # may wait, and says nothing
began.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=800
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith(
        "UsageError the threads of this pass ended with the interpreter, or are in another"
    )


@usual_pace
def test_a_fork_goes_on_with_no_pass_of_its_parent_and_begins_its_own(forked_python):
    script = """
import os, signal
from datacheck.torch import CachedLoader
loader = CachedLoader(range(50), batch_sampler=[[i] for i in range(50)])
passing = iter(loader)
next(passing)
if not os.fork():
    signal.alarm(50)
    try:
        next(passing)
    except Exception as error:
        print(type(error).__name__, len(list(passing)), len(list(loader)), flush=True)
    raise SystemExit
os.wait()
print(len(list(passing)))
"""
    done = subprocess.run(
        [forked_python, "-c", script], capture_output=True, text=True, check=False, timeout=800
    )
    assert (done.stdout, done.returncode) == ("UsageError 0 50\n49\n", 0)


def test_an_epoch_that_was_set_again_holds_whatever_was_made_ahead(folder):
    data = CachedDataset(folder, fields=["id"], transform=lambda sample: broken(sample, 4))
    loader = CachedLoader(data, 1, shuffle=False, threads=1)
    taken = iter(loader)
    assert [next(taken)["id"].tolist() for _ in range(4)] == [[0], [1], [2], [3]]
    loader.set_epoch(0)
    with pytest.raises(KeyError):
        next(taken)
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (0, 0)
    next(iter(loader))
    assert loader.state_dict()["epoch"] == 0


def broken(sample, index):
    if sample["id"] == index:
        raise KeyError(index)
    return sample


def test_a_state_after_the_running_epoch_was_set_again_is_of_this_pass(folder):
    data = CachedDataset(folder, fields=["id"])
    loader = CachedLoader(data, batch_size=1, shuffle=True, seed=3)
    consumed, seen = [], []
    for number, batch in enumerate(loader):
        if number == 4:
            loader.set_epoch(0)
            # Nothing came since: the next pass begins the epoch anew
            seen.append(loader.state_dict()["consumed"])
        seen += batch["id"].tolist() if number > 4 else []
        consumed.append(loader.state_dict()["consumed"])
        if number == 20:
            break
    assert consumed == [1, 2, 3, 4, 0, *range(6, 22)]
    other = CachedLoader(data, batch_size=1, shuffle=True, seed=3)
    other.load_state_dict(loader.state_dict())
    rest = [index for batch in other for index in batch["id"].tolist()]
    loader.set_epoch(0)
    whole = [index for batch in loader for index in batch["id"].tolist()]
    assert rest == whole[21:]
    assert seen[1:] == whole[5:21]


def test_kept_memory_is_bounded_whatever_is_asked_for_first():
    prefetch = Buffers(spare=3)
    for _ in range(40):
        for rows in (300_000, 16_000_000):
            some = [prefetch.empty("a", (rows,), "uint8") for _ in range(2)]
            del some
    sizes = [memory.size for memory in prefetch._free["a"]]
    assert len(sizes) <= 3 or sum(sizes) <= 32 << 20
    small = Buffers(spare=3)
    some = [small.empty("a", (1 << 20,), "uint8") for _ in range(60)]
    places = {tensor.data_ptr() for tensor in some}
    del some
    again = [small.empty("a", (1 << 20,), "uint8") for _ in range(20)]
    assert {tensor.data_ptr() for tensor in again} <= places


def test_one_slow_batch_among_quick_ones_is_remembered(monkeypatch):
    monkeypatch.setattr(module, "QUICK", 0.25)
    pace, found = module._TaskSize(16), []
    for seconds in [0.0] * 6 + [90.0] + [module.QUICK / 2] * 80:
        pace.took(seconds * pace.together, pace.together)
        found.append(pace.together)
    assert found[:7] == [2, 4, 8, 16, 16, 16, 1]  # a slow one
    slow = found[6:].index(2)
    assert found[6 : 6 + slow] == [1] * slow
    assert slow == 40  # 20 times what is quick is owed, and each gives back the half of it


@pytest.mark.parametrize("collate", [collate_ragged, collate_pad, None])
def test_nothing_that_the_loop_has_set_shows_in_a_batch(folder, collate):
    data = CachedDataset(folder, fields=["cloud", "id"] if collate is None else None)
    expected = list(DataLoader(data, batch_sampler=BATCHES, collate_fn=collate))
    with torch.inference_mode(), torch.device("meta"), torch.autocast("cpu"):
        found = list(CachedLoader(data, batch_sampler=BATCHES, collate_fn=collate))
    for left, right in zip(found, expected, strict=True):
        assert not any(value.is_inference() for value in left.values())
        same(left, right)


@pytest.mark.parametrize("collate", [collate_ragged, collate_pad])
def test_offsets_and_masks_lie_in_main_memory_whatever_the_default_device(folder, collate):
    data = CachedDataset(folder)
    expected = [collate(data.__getitems__(batch)) for batch in BATCHES]
    with torch.device("meta"):
        found = [collate(data.__getitems__(batch)) for batch in BATCHES]
    for left, right in zip(found, expected, strict=True):
        same(left, right)


def test_memory_of_a_batch_is_used_again_only_when_nothing_refers_to_it(folder, pace):
    loader = CachedLoader(
        CachedDataset(folder, fields=["cloud"]), batch_sampler=[[i % COUNT] * 8 for i in range(200)]
    )
    views, places = [], set()
    for i, batch in enumerate(loader):
        assert np.unique(batch["cloud"].numpy()).tolist() == [i % COUNT]
        places.add(batch["cloud"].data_ptr())
        if i % 20 == 7:
            views.append((i, batch["cloud"].numpy()[3]))  # an array of a part keeps the whole
    assert all((view == i % COUNT).all() for i, view in views)
    assert len(places) < (25 if pace == "slow" else 60)


@pytest.mark.parametrize("ahead", ["plain", None, 1, 2, 5])
def test_later_passes_need_no_fresh_memory(folder, monkeypatch, pace, ahead):
    fresh, taken = [], prefetch._taken

    def counted(home, wanted):
        found = taken(home, wanted)
        fresh.append(found is None)
        return found

    monkeypatch.setattr(prefetch, "_taken", counted)
    data = CachedDataset(folder, fields=["cloud"])
    batches = [[i % COUNT] * 8 for i in range(30)]
    if ahead == "plain":
        loader, most = DataLoader(data, batch_sampler=batches), 2
    else:  # a thread may still hold what it has handed over: seldom
        loader, most = CachedLoader(data, batch_sampler=batches, ahead=ahead, threads=2), 5
        most += 2 * 16 if (pace, ahead) == ("quick", None) else (ahead or 2) + 2
    for _ in range(12):
        for batch in loader:  # the loop holds a batch when it asks for the next
            assert len(batch["cloud"]) == 8
        del batch
    assert 0 < sum(fresh) <= most


def test_a_small_sample_does_not_hold_the_memory_of_a_batch():
    prefetch = Buffers()
    first = prefetch.empty("a", (1000, 1000), "float32")
    place = first.data_ptr()
    del first
    small = prefetch.empty("a", (100, 1000), "float32")
    assert small.data_ptr() != place
    again = prefetch.empty("a", (900, 1000), "float32")
    assert again.data_ptr() == place
    assert prefetch.empty("a", (900, 1000), "float32").data_ptr() != place


def test_break_exception_close_and_collection_end_the_threads(folder):
    data = CachedDataset(folder, fields=["id"])
    endless = CachedLoader(data, batch_sampler=[[i % COUNT] for i in range(10_000)], threads=3)
    for batch in endless:
        assert threads()
        assert batch["id"].tolist() == [0]
        break
    assert not threads()
    with pytest.raises(RuntimeError, match="of the loop"):
        raise_in(endless)
    gc.collect()
    assert not threads()
    one, other = iter(endless), iter(endless)
    assert next(one)["id"].tolist() == next(other)["id"].tolist() == [0]
    endless.close()
    assert not threads()
    with pytest.raises(StopIteration):
        next(one)
    held = iter(CachedLoader(data, batch_sampler=[[i % COUNT] for i in range(10_000)]))
    next(held)
    assert threads()
    del held
    gc.collect()
    assert not threads()
    with endless as loader:
        next(iter_kept := iter(loader))
    assert not threads()
    del iter_kept


def raise_in(loader):
    for _ in loader:
        msg = "of the loop"
        raise RuntimeError(msg)


class Slow:
    """Earlier items take longer."""

    def __getitem__(self, index):
        time.sleep(0.02 if index % 4 == 0 else 0)
        if index == 9:
            msg = "item 9"
            raise KeyError(msg)
        return {"at": index}


def test_an_error_comes_in_its_place_after_the_batches_before_it():
    loader, found = (
        CachedLoader(Slow(), batch_sampler=[[i] for i in range(30)], threads=4, ahead=8),
        [],
    )
    with pytest.raises(KeyError, match="item 9"):
        found.extend(batch["at"].item() for batch in loader)
    assert found == list(range(9))
    gc.collect()
    assert not threads()


def test_damage_is_raised(tmp_path):
    folder = make_cache(
        tmp_path, {"cloud": SPECS["cloud"]}, [{"cloud": np.zeros(16384, np.float32)}] * 8
    )
    file = folder / "fields/cloud/c.1.0"
    raw = bytearray(file.read_bytes())
    raw[100] ^= 1
    file.write_bytes(raw)
    loader = CachedLoader(CachedDataset(folder), batch_sampler=[[0, 1], [2, 3], [4, 5]])
    passing = iter(loader)
    assert [len(next(passing)["cloud"]) for _ in "ab"] == [2, 2]
    with pytest.raises(CorruptionError, match="sample/000004"):
        next(passing)


def test_a_transform_and_other_datasets_are_served_too(folder):
    def doubled(sample):
        return {"id": sample["id"] * 2}

    loader = CachedLoader(CachedDataset(folder, transform=doubled), batch_sampler=[[3, 1], [2]])
    assert [batch["id"].tolist() for batch in loader] == [[6, 2], [4]]


@usual_pace
@pytest.mark.parametrize("codec", [Codec(), Codec("zstd", 3)], ids=str)
def test_no_thread_imports_a_module(tmp_path, codec):
    """A process that is forked while a thread imports one waits for it for ever: NumPy loads its `random` late."""
    program = (
        "import sys; from datacheck.torch import *\n"
        "def transform(row, rng):\n"
        "    return {'id': row['id'], 'drawn': rng.random()}\n"
        "loader = CachedLoader(CachedDataset(sys.argv[1], transform=transform), 4, threads=1)\n"
        "before = set(sys.modules); assert len(list(loader)) == 5; print(sorted(set(sys.modules) - "
        "before))"
    )
    folder = make_cache(
        tmp_path, {"id": SPECS["id"]}, [{"id": np.int64(i)} for i in range(20)], codec=codec
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


class Counting:
    """A sampler with a state."""

    def __init__(self):
        self.loaded = self.epoch = None

    def __iter__(self):
        yield from ([i] for i in range(20))

    def state_dict(self, batches):
        return {"batches": batches}

    def load_state_dict(self, state):
        self.loaded = state

    def set_epoch(self, epoch):
        self.epoch = epoch


def test_the_state_counts_what_the_loop_has_had(folder):
    sampler, data = Counting(), CachedDataset(folder, fields=["id"])
    loader = CachedLoader(data, batch_sampler=sampler, ahead=5)
    assert loader.state_dict() == {"batches": 0}
    for had, _ in enumerate(loader, start=1):
        assert loader.state_dict() == {"batches": had}
        if had == 7:
            break
    loader.load_state_dict({"batches": 7})
    assert sampler.loaded == {"batches": 7}
    loader.set_epoch(4)
    assert sampler.epoch == data.epoch == 4
    with pytest.raises(UsageError, match="list has no state_dict"):
        CachedLoader(data, batch_sampler=[[0]]).state_dict()


def test_an_epoch_that_a_sampler_of_ones_own_is_told_behind_iter_ends_no_count(folder):
    loader = CachedLoader(CachedDataset(folder, fields=["id"]), batch_sampler=Counting())
    passing = iter(loader)
    loader.set_epoch(4)
    next(passing), next(passing)
    assert loader.state_dict() == {"batches": 2}
    loader.set_epoch(5)
    assert loader.state_dict() == {"batches": 0}


class Yielding(Sampler):
    """Its pass begins when the first batch is asked for, not with ``iter()``."""

    def __iter__(self):
        yield from super().__iter__()


class Handing:
    """No Sampler itself: it hands on to one."""

    def __init__(self, *args, **options):
        self.batches = Sampler(*args, **options)

    def __iter__(self):
        yield from self.batches

    def __getattr__(self, name):
        return getattr(self.batches, name)


@pytest.mark.parametrize("kind", [Yielding, Handing])
@pytest.mark.parametrize("ahead", [None, 1, 4])
def test_the_state_counts_also_where_a_generator_begins_the_pass(folder, ahead, kind):
    data = CachedDataset(folder, fields=["id"])
    loader = CachedLoader(data, batch_sampler=kind(data, 4, shuffle=False), ahead=ahead)
    for epoch in range(2):
        passing = iter(loader)
        for had in range(4):
            state = loader.state_dict()
            assert (state["epoch"], state["consumed"]) == (epoch, 4 * had)
            assert next(passing)["id"].tolist() == list(range(4 * had, 4 * had + 4))
        list(passing)
    assert loader.state_dict()["epoch"] == 2


class Renamed(Sampler):
    """A Sampler in all but its name."""


@pytest.mark.parametrize("kind", [Sampler, Renamed, Yielding])
def test_an_epoch_that_is_set_behind_iter_is_that_of_the_pass(folder, kind):
    data = CachedDataset(folder, fields=["id"])
    expected = Sampler(data, 4, seed=1)
    expected.set_epoch(3)
    loader = CachedLoader(data, batch_sampler=kind(data, 4, seed=1))
    passing = iter(loader)
    loader.set_epoch(3)
    assert [batch["id"].tolist() for batch in passing] == [
        [i % (1 << 40) for i in asked] for asked in expected
    ]


@pytest.mark.parametrize("kind", [Sampler, Renamed, Yielding])
def test_a_pass_of_which_nothing_was_asked_takes_no_epoch(folder, kind):
    data = CachedDataset(folder, fields=["id"])
    loader = CachedLoader(data, batch_sampler=kind(data, 4, seed=1))
    iter(loader)
    expected = [[i % (1 << 40) for i in asked] for asked in Sampler(data, 4, seed=1)]
    assert [batch["id"].tolist() for batch in loader] == expected


@pytest.mark.parametrize("kind", [Sampler, Renamed])
def test_of_two_passes_begun_behind_a_set_epoch_the_later_counts(folder, kind):
    data = CachedDataset(folder, fields=["id"])
    loader = CachedLoader(data, batch_sampler=kind(data, 4, seed=1))
    list(loader)
    loader.set_epoch(1)
    old, new = iter(loader), iter(loader)
    next(old), next(old)
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (1, 0)
    next(new)
    assert loader.state_dict()["consumed"] == 4


def test_an_abandoned_pass_counts_no_more(folder):
    loader = CachedLoader(CachedDataset(folder, fields=["id"]), 4, seed=1)
    old, new = iter(loader), iter(loader)
    next(new)
    next(old), next(old)
    assert loader.state_dict()["consumed"] == 4


@pytest.mark.parametrize("by", ["thread", "signal"])
def test_a_pass_that_waits_may_be_closed_from_elsewhere(by):
    made, go = threading.Event(), threading.Event()

    class Waits:
        def __getitem__(self, index):
            made.set()
            assert go.wait(800)
            return index

    loader, found = CachedLoader(Waits(), batch_sampler=[[i] for i in range(100)], threads=2), []

    def close(*_):
        assert made.wait(800)
        loader.close()
        go.set()

    if by == "thread":
        closing = threading.Thread(target=close)
        closing.start()
        found.extend(loader)
        closing.join()
    else:
        before = signal.signal(signal.SIGUSR1, close)
        starting = threading.Thread(
            target=lambda: made.wait(800) and os.kill(os.getpid(), signal.SIGUSR1)
        )
        starting.start()
        found.extend(loader)
        starting.join()
        signal.signal(signal.SIGUSR1, before)
    assert found == []
    assert not threads()


def test_a_pass_that_works_may_be_closed_by_another_thread(folder):
    data = CachedDataset(folder, fields=["cloud"])
    for delay in np.linspace(0, 0.01, 60):
        loader = CachedLoader(data, batch_sampler=[[i % COUNT] * 3 for i in range(2000)], threads=2)
        closing = threading.Timer(delay, loader.close)
        closing.start()
        for batch in loader:  # ends, and raises nothing
            assert len(batch["cloud"]) == 3
        closing.join()
    assert not threads()


def test_the_state_is_of_what_the_sampler_was_told_since(folder):
    data = CachedDataset(folder, fields=["id"])
    batches = data.sampler(4, seed=1)
    loader = CachedLoader(data, batch_sampler=batches)
    taken = iter(loader)
    next(taken), next(taken)
    half = loader.state_dict()
    assert (half["epoch"], half["consumed"]) == (0, 8)
    batches.set_epoch(5)  # the sampler itself, as loops with a DataLoader do
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (5, 0)
    next(iter(loader))
    batches.load_state_dict(half)
    assert loader.state_dict() == half


def test_an_epoch_goes_on_where_another_loader_was_stopped(folder):
    def loader():
        return CachedLoader(CachedDataset(folder, fields=["id"]), 4, shuffle=True, seed=3, ahead=3)

    whole = [batch["id"].tolist() for batch in loader()]
    assert sorted([i for batch in whole for i in batch][:COUNT]) == list(range(COUNT))
    for stop in range(1, len(whole)):
        first, second = loader(), loader()
        passing = iter(first)
        assert [next(passing)["id"].tolist() for _ in range(stop)] == whole[:stop]
        second.load_state_dict(first.state_dict())
        first.close()
        assert [batch["id"].tolist() for batch in second] == whole[stop:]


def test_requests_that_are_wrong_are_refused(folder):
    data = CachedDataset(folder)
    with pytest.raises(UsageError, match="leave batch_size, shuffle out"):
        CachedLoader(data, 4, shuffle=True, batch_sampler=[[0]])
    for wrong in ({"threads": 0}, {"ahead": 0}):
        with pytest.raises(UsageError, match="is no whole number from 1"):
            CachedLoader(data, batch_sampler=[[0]], **wrong)
    for device, said in (
        ("meta", "'cpu' leaves them in main memory"),
        (3.5, "is no"),
        ("cuda:99", "CUDA devices here"),
        ("x", "is no"),
    ):
        with pytest.raises(UsageError, match=said):
            CachedLoader(data, batch_sampler=[[0]], device=device)


def test_the_device_of_a_machine_without_another_is_main_memory(folder):
    data = CachedDataset(folder)
    expected = list(DataLoader(data, batch_sampler=BATCHES, collate_fn=collate_ragged))
    loader = CachedLoader(
        data, batch_sampler=BATCHES, collate_fn=collate_ragged, device=torch.device("cpu")
    )
    for left, right in zip(loader, expected, strict=True):
        same(left, right)


@gpu
@needs_cuda
def test_batches_on_a_device_are_those_of_a_data_loader(folder):
    data = CachedDataset(folder)
    expected = list(DataLoader(data, batch_sampler=BATCHES, collate_fn=collate_ragged))
    loader = CachedLoader(data, batch_sampler=BATCHES, collate_fn=collate_ragged, device="cuda")
    for _ in range(20):
        for left, right in zip(loader, expected, strict=True):
            assert all(value.is_cuda for value in left.values())
            same({name: value.cpu() for name, value in left.items()}, right)


@gpu
@needs_cuda
def test_copies_overlap_with_work_on_the_device(folder):
    """In a timeline of the device, copies from pinned memory run while kernels of the loop do."""
    data, busy = CachedDataset(folder, fields=["cloud"]), torch.ones(4096, 4096, device="cuda")
    loader = CachedLoader(data, batch_sampler=[list(range(32))] * 20, device="cuda")
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        for _ in loader:
            busy @ busy
        torch.cuda.synchronize()
    found = [
        event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    copies = [event.time_range for event in found if "HtoD" in event.name]
    kernels = [event.time_range for event in found if "gemm" in event.name.lower()]
    assert all("Pinned" in event.name for event in found if "HtoD" in event.name)
    assert any(c.start < k.end and k.start < c.end for c in copies for k in kernels)
