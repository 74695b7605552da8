import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.errors import FormatError, MissingDependencyError, StorageError, UsageError
from datacheck.runtime.machine import usable_cpus
from datacheck.workers import child as child_module
from datacheck.workers import parallel
from datacheck.workers.budget import WHOLE
from datacheck.workers.child import PARSER, _answer_limits, file_bytes
from datacheck.workers.parallel import Child, Limits, _result, ordered_map, run_task
from datacheck.workers.wire import decode, encode
from tests.trunk.tasks import answered

WORK = "tests.trunk.tasks:work"


@pytest.fixture(autouse=True)
def importable(monkeypatch, repository):
    monkeypatch.syspath_prepend(str(repository))


def run(*tasks, **options):
    return list(ordered_map(WORK, [{"items": list(t)} for t in tasks], **options))


def done(outcome):
    return [item for payload in outcome.payloads for item in payload["done"]]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**60), 2**60)
        | st.text()
        | st.floats(allow_nan=False),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(alphabet="abc", min_size=1), inner)
        ),
        max_leaves=8,
    ),
    hnp.arrays(
        st.sampled_from([np.float32, np.int64, np.bool_, np.uint8]),
        hnp.array_shapes(min_dims=0, min_side=0),
    ),
)
def test_a_frame_gives_back_values_and_arrays(value, array):
    frame = encode(
        {"value": value, "array": array, "two": [array[..., :0] if array.ndim else array]}
    )
    back = decode(b"".join(frame))
    assert back["value"] == value
    np.testing.assert_array_equal(back["array"], array)
    assert back["array"].dtype == array.dtype
    assert back["array"].shape == array.shape


@pytest.mark.parametrize("name", ["$array", "$array$", '"$array"'])
def test_a_name_from_the_data_is_never_taken_for_an_array(name):
    value = {name: np.arange(3), "inner": [{name: 0, "dtype": "<f8", "shape": [9]}], "text": name}
    back = decode(b"".join(encode(value)))
    np.testing.assert_array_equal(back[name], [0, 1, 2])
    assert (back["inner"], back["text"]) == (value["inner"], name)


def test_objects_are_never_sent():
    with pytest.raises(TypeError, match="between processes"):
        encode({"x": np.array([object()])})


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("segfault", "SIGSEGV"),
        ("exit", "status 3"),
        ("memory", "memory"),
        ("hang", "still busy after 1 s"),
    ],
)
def test_the_item_that_kills_its_child_is_named_and_the_others_are_done(item, said):
    (outcome,) = run(["a", "b", item, "c"], limits=Limits(item_s=1.0, memory_b=2 << 30))
    assert done(outcome) == ["a", "b", "c"]
    assert [(d.item, d.crash) for d in outcome.deaths] == [(item, False)]
    assert said in outcome.deaths[0].how


def test_a_child_that_does_not_come_to_its_task_is_said_to_start_for_as_long_as_it_was_waited_for(
    monkeypatch,
):
    boot(monkeypatch, "import time; time.sleep(600)")
    program = replace(PARSER, start_s=0.6)
    with contextlib.closing(Child(Limits(item_s=0.1), program)) as child:
        answer, death = child.run("x:y", {"items": ["a"]})
    assert (answer, death.how) == (None, "still starting after 0.6 s")


def test_a_long_item_that_gives_signs_of_life_is_left_alone():
    (outcome,) = run(["long"], limits=Limits(item_s=1.0))
    assert (done(outcome), outcome.deaths) == (["long"], [])


def test_an_exception_nobody_expected_is_a_crash_with_its_traceback():
    (outcome,) = run(["a", "bug"])
    assert done(outcome) == ["a"]
    (death,) = outcome.deaths
    assert death.crash
    assert "RuntimeError: bug" in death.how


def test_what_a_library_prints_does_not_disturb_the_answers():
    (outcome,) = run(["noise", "a"])
    assert done(outcome) == ["noise", "a"]


STUB = """
import mmap, os, struct, sys, time
def answer(head, body=b""):
    whole = struct.pack("<QQ", len(head), len(body)) + head + body
    while whole:
        whole = whole[os.write(1, whole):]
    time.sleep(60)
def at(place, beats=5, nbytes=-1):
    struct.pack_into("<qqq", mmap.mmap(int(sys.argv[1]), 24), 0, place, beats, nbytes)
"""
ANSWERED = "tests.trunk.tasks:answered"


def boot(monkeypatch, code):
    """Let a child that is not forked run this in place of its own program."""
    monkeypatch.setenv("DATACHECK_FORK", "off")
    monkeypatch.setattr("datacheck.workers.child._BOOT", code)


def taken_over(monkeypatch, code, items=("a", "b"), limits=None):
    """What comes of a child that answers as `code` does."""
    boot(monkeypatch, f"{STUB}\nos.read(0, 16)\n{code}")
    with contextlib.closing(Child(limits or Limits(item_s=0.5))) as child:
        return child.run(ANSWERED, {"items": list(items)})


NONSENSE = {
    "not JSON": r"answer(b'$array\nnope')",
    "nested": r"answer(b'$array\n' + b'[' * 300000)",
    "a list": r"answer(b'$array\n[]')",
    "a text": r"answer(b'$array\n\"payload\"')",
    "nothing": r"answer(b'$array\n{}')",
    "null": r"answer(b'$array\n{\"payload\": null}')",
    "lacking": r"answer(b'$array\n{\"payload\": {\"items\": []}}')",
    "other values": r"answer(b'$array\n{\"payload\": {\"items\": [true], \"name\": \"\"}}')",
    "half a character": r"answer(b'$array\n{\"payload\": {\"items\": [], \"name\": \"\\ud800\"}}')",
    "a large number": r"answer(b'$array\n{\"payload\": ' + b'1' * 10**6 + b'}')",
    "of no size": r"os.write(1, struct.pack('<QQ', 10, 0) + b'x' * 40); time.sleep(60)",
    "a dtype": r"answer(b'$array\n{\"payload\": {\"$array\": 0, \"dtype\": \"(1000000,1000000)u1\", \"shape\": [0]}}')",
    "bytes": r"answer(b'\xff')",
    "no ASCII": 'answer(\'$array\\n{"payload": {"items": [], "name": "\U0001f600"}}\'.encode())',
}


@pytest.mark.parametrize("code", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_the_death_of_the_item_and_ends_the_child(monkeypatch, code):
    answer, death = taken_over(monkeypatch, f"at(1)\n{code}")
    assert (answer, death.item, death.crash, death.kind) == (None, "b", False, "")
    assert death.how.startswith("the parser answered nonsense (")
    assert death.how.endswith("). A damaged file does not do that: please report this")


TOO_MUCH = {
    "text": (
        r"os.write(1, struct.pack('<QQ', 1 << 62, 0)); time.sleep(60)",
        "4,611,686,018,427,387,904 bytes of text",
    ),
    "arrays": (
        r"os.write(1, struct.pack('<QQ', 9, 1 << 40)); time.sleep(60)",
        "1,099,511,627,776 bytes of arrays",
    ),
    "values": (
        r"answer(b'$array\n{\"payload\": [' + b'[],' * 1500000 + b'[]]}')",
        "about 3,000,003 values",
    ),
    "alike": (
        r"answer(b'$array\n{\"payload\": {\"$array\": 0, \"dtype\": \"<f8\", \"shape\": [1000000000000], "
        r"\"alike\": true}}', bytes(8))",
        "8,000,000,000,000 bytes of arrays whose rows are alike",
    ),
}


@pytest.mark.parametrize(("code", "said"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_an_answer_that_takes_too_much_memory_is_not_read(monkeypatch, code, said):
    _, death = taken_over(monkeypatch, code, limits=Limits(item_s=20.0))
    assert death.kind == "memory"
    assert death.how.startswith(f"the parser answered too much: {said}; at most ")


def test_large_files_may_have_large_answers():
    small, large = (
        _answer_limits({"items": [{"path": "a", "nbytes": nbytes}]}) for nbytes in (10, 1 << 30)
    )
    part = _answer_limits({"items": [{"path": "a", "nbytes": 1 << 40, "part": [0, 1 << 30, 0]}]})
    assert large == part == _answer_limits({"items": ["a"], "nbytes": 1 << 30})
    assert large == (512 << 20, 32_000_000, (2 << 30) + (128 << 20), (512 << 20) + (1 << 40))
    assert small.text < 33 << 20


def test_an_answer_that_comes_byte_by_byte_is_waited_for_not_long(monkeypatch):
    monkeypatch.setattr("datacheck.workers.child._ANSWER_S", 1.0)
    code = (
        "os.write(1, struct.pack('<QQ', 1 << 20, 0))\nwhile True: os.write(1, b'a'); "
        "time.sleep(0.05)"
    )
    _, death = taken_over(monkeypatch, code)
    assert (death.how, death.kind) == ("still answering after 1 s", "silent")


def test_a_child_that_takes_no_order_is_waited_for_not_long(monkeypatch):
    boot(monkeypatch, "import time; time.sleep(600)")
    with contextlib.closing(Child(Limits(item_s=0.1), replace(PARSER, start_s=0.6))) as child:
        _, death = child.run("x:y", {"items": ["a" * (1 << 20)]})
    assert death.how == "still starting after 0.6 s"


@pytest.mark.parametrize(("place", "item"), [(-(10**15), "a"), (10**15, "b")])
def test_a_place_that_no_task_has_is_one_of_its_items(monkeypatch, place, item):
    _, death = taken_over(monkeypatch, f"at({place}); os._exit(3)")
    assert (death.item, death.how) == (item, "the parser ended with status 3")
    _, death = taken_over(monkeypatch, f"at({place}, 5, 10); time.sleep(60)")
    assert (death.item, death.how) == (item, "still busy after 0.5 s")


def test_a_child_cannot_cut_the_counter(monkeypatch):
    _, death = taken_over(monkeypatch, "os.ftruncate(int(sys.argv[1]), 0); time.sleep(60)")
    assert "PermissionError" in death.how


def test_a_signal_without_a_name_is_said_by_its_number(monkeypatch):
    _, death = taken_over(monkeypatch, "os.kill(os.getpid(), 40)")
    assert death.how == "the parser was killed by signal 40"


def test_a_child_that_says_that_the_sandbox_is_refused_is_not_believed():
    (outcome,) = run(["a", "no sandbox"])
    assert (done(outcome), [death.how for death in outcome.deaths]) == (
        ["a"],
        ["the parser ended with status 78"],
    )


def test_an_exception_of_ours_comes_back_as_itself():
    with pytest.raises(FormatError, match="no such thing"):
        run(["refuse"])


def test_a_function_that_does_not_exist_is_said():
    with pytest.raises(UsageError, match="nothing_here"):
        list(ordered_map("datacheck.nothing_here:work", [{"items": [1]}]))


def test_one_child_serves_many_tasks_in_order():
    outcomes = run(["a"], ["b"], ["c"])
    assert [done(o) for o in outcomes] == [["a"], ["b"], ["c"]]
    assert len({o.payloads[0]["pid"] for o in outcomes}) == 1


def test_several_children_give_the_same_outcomes_in_the_same_order():
    tasks = [["a", "segfault", "b"], ["c"], ["d", "e"]]
    here, there = run(*tasks), run(*tasks, workers=2)
    assert [done(o) for o in there] == [done(o) for o in here] == [["a", "b"], ["c"], ["d", "e"]]
    assert [[d.item for d in o.deaths] for o in there] == [["segfault"], [], []]


def test_what_is_done_is_handed_on_before_the_next_task_is_asked_for(monkeypatch):
    class AtOnce:
        def __init__(self, threads):
            pass

        def submit(self, function, *given):
            future = Future()
            future.set_result(function(*given))
            return future

        def shutdown(self, **_):
            pass

    handed, seen = [], []

    def tasks():
        for number in range(5):
            seen.append(len(handed))
            yield {"items": [number]}

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", AtOnce)
    child = SimpleNamespace(run=lambda function, task: (task["items"], None), end=lambda: None)
    for outcome in parallel._on_children("any", tasks(), [child, child]):
        handed.append(outcome.payloads)
    assert handed == [[[number]] for number in range(5)]
    assert seen == [0, 1, 2, 3, 4]


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr("datacheck.workers.parallel._CONNECT_S", 0.5)
    with pytest.raises(StorageError, match="no Dask scheduler answers"):
        run(["a"], scheduler="tcp://127.0.0.1:1")


def test_a_worker_with_many_threads_mixes_nothing_up_and_each_run_has_children_of_its_own():
    import distributed

    options = {
        "n_workers": 1,
        "threads_per_worker": 4,
        "processes": False,
        "dashboard_address": "127.0.0.1:0",
    }
    with distributed.LocalCluster(**options, silence_logs=50) as cluster:
        outcomes = [
            run(*([f"{n}"] for n in range(24)), scheduler=cluster.scheduler_address)
            for _ in range(2)
        ]
    assert [[done(o) for o in some] for some in outcomes] == [[[f"{n}"] for n in range(24)]] * 2
    first, second = ({o.payloads[0]["pid"] for o in some} for some in outcomes)
    assert first.isdisjoint(second)  # an old child would still have the old modules of a user


@pytest.mark.parametrize(
    "address", ["tls://127.0.0.1:1", "inproc://x", "http://127.0.0.1:1", "here"]
)
def test_what_is_no_address_of_a_scheduler_is_a_wrong_request(address):
    with pytest.raises(UsageError, match=f"{address}: no Dask scheduler answers there"):
        run(["a"], scheduler=address)


def test_what_never_says_a_word_is_no_scheduler(monkeypatch):
    """Such as a web server, which waits for a question: Dask's client would wait for its first word without end."""
    monkeypatch.setattr(parallel, "_CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StorageError, match=f"{address}: no Dask scheduler answers there"):
            run(["a"], scheduler=address)


def test_who_has_nothing_to_do_asks_no_cluster():
    assert run(scheduler="tcp://127.0.0.1:1") == []


@pytest.fixture
def empty(monkeypatch):
    """A cluster without workers."""
    import distributed

    monkeypatch.setattr(parallel, "_LOOK_S", 0.05)
    options = {
        "n_workers": 0,
        "processes": False,
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": 50,
    }
    with distributed.LocalCluster(**options) as cluster:
        yield cluster


def test_a_cluster_without_workers_is_said_at_once_and_again_when_no_longer_waited_for(
    empty, monkeypatch
):
    monkeypatch.setattr(parallel, "_WORKERS_S", 0.2)
    told = []
    with pytest.raises(
        StorageError, match=f"{empty.scheduler_address}: the scheduler has had no workers for 0.2 s"
    ):
        run(["a"], scheduler=empty.scheduler_address, told=told.append)
    (said,) = (line for line in told if not line.startswith("Dask dashboard: "))
    assert said.startswith(
        f"{empty.scheduler_address}: the scheduler has no workers; waiting 0.2 s for one: dask work"
    )


def test_a_worker_that_comes_later_is_used(empty):
    told = []

    def tell(line):
        told.append(line)
        if "no workers" in line:
            empty.scale(1)

    (outcome,) = run(["a"], scheduler=empty.scheduler_address, told=tell)
    assert done(outcome) == ["a"]
    assert sum("no workers" in line for line in told) == 1


def test_a_worker_that_comes_later_and_has_another_datacheck_is_refused(empty, monkeypatch):
    monkeypatch.setattr(parallel, "__version__", "0.0.1")
    with pytest.raises(
        StorageError, match=r"has datacheck .*, not 0\.0\.1\. Give all workers the same environment"
    ):
        run(
            ["a"],
            scheduler=empty.scheduler_address,
            told=lambda line: "no workers" in line and empty.scale(1),
        )


def test_what_the_scheduler_says_of_a_task_is_handed_on(empty):
    empty.scheduler.no_workers_timeout = 0.1  # an option of `dask scheduler`
    with pytest.raises(
        StorageError,
        match=r"the Dask cluster could not run a task: .* without any running workers\. ",
    ):
        run(["a"], scheduler=empty.scheduler_address)


def test_a_lost_scheduler_is_said():
    class Lost:
        status = "cancelled"

        def result(self, timeout):
            raise CancelledError

    with pytest.raises(StorageError, match="connection to the Dask scheduler was lost"):
        _result(None, Lost(), print)


@pytest.mark.parametrize("workers", [1, 2])
def test_no_child_imports_what_lies_in_the_working_directory(tmp_path, monkeypatch, workers):
    for name in ("uuid", "xxhash", "numpy", "random", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/executed', 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert [done(o) for o in run(["a"], ["b"], workers=workers)] == [["a"], ["b"]]
    assert not (tmp_path / "executed").exists()
    assert "PYTHONSAFEPATH" not in os.environ


def test_what_a_task_prints_is_not_kept_for_the_next():
    child = Child(Limits())
    for _ in range(3):
        run_task(child, WORK, {"items": ["noise"]})
        assert child._noise.tail() == b"a library prints here"
    child.close()


@pytest.mark.parametrize(("said", "threads"), [({}, {1}), ({"OPENBLAS_NUM_THREADS": "2"}, {2, 3})])
def test_a_child_has_one_thread_for_blas(monkeypatch, said, threads):
    # What the user has set for training is not for children
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    child = Child(Limits(), replace(PARSER, environment=said))
    payload, death = child.run("tests.trunk.tasks:multiply", {"items": [0]})
    child.close()
    assert death is None
    assert payload in threads


def test_a_child_can_neither_fill_its_standard_error_nor_keep_others_from_reading_it(monkeypatch):
    code = (
        "import fcntl\n"
        "try: print('x' * (1 << 20), file=sys.stderr, flush=True)\n"
        "except OSError as error: os.lseek(2, 0, 0), os.write(2, f'{error.errno} the end'.encode())\n"
        "try: fcntl.fcntl(2, fcntl.F_SETFL, os.O_DIRECT)\n"
        "except OSError: pass\n"
        "os._exit(3)"
    )
    _, death = taken_over(monkeypatch, code)
    assert death.how.startswith("the parser ended with status 3 (")
    assert death.how.count("x") <= 200


def test_no_child_outlives_the_map():
    (outcome,) = run(["a"])
    with pytest.raises(ProcessLookupError):
        os.kill(outcome.payloads[0]["pid"], 0)


FORKED = pytest.mark.parametrize("fork", ["", "off"])


@FORKED
def test_children_that_are_at_work_end_with_whoever_leaves_the_map(monkeypatch, fork):
    def children(of="self"):
        found = {
            pid
            for path in Path(f"/proc/{of}/task").glob("*/children")
            for pid in path.read_text().split()
        }
        return found | {pid for one in found for pid in children(one)} if of == "self" else found

    monkeypatch.setenv("DATACHECK_FORK", fork)
    with contextlib.closing(Child(Limits())) as child:
        child.run(WORK, {"items": ["a"]})
    before = children()  # a server, and children of other tests
    tasks = [{"items": [item]} for item in ("a", "hang", "hang", "b")]
    outcomes = ordered_map(WORK, tasks, workers=2, limits=Limits(item_s=1e6))
    assert done(next(outcomes)) == ["a"]
    mine = children() - before
    assert mine
    outcomes.close()
    assert not [pid for pid in mine if Path(f"/proc/{pid}").exists()]


@FORKED
def test_an_interrupt_while_children_end_leaves_none_of_them_at_work(monkeypatch, fork):
    end, ended, before = Child.end, [], threading.active_count()

    def interrupted(child):
        end(child)
        ended.append(child)
        if len(ended) == 1:
            raise KeyboardInterrupt  # a second Ctrl-C

    monkeypatch.setattr(Child, "end", interrupted)
    monkeypatch.setenv("DATACHECK_FORK", fork)
    tasks = [{"items": [item]} for item in ("a", "hang", "hang", "b")]
    outcomes = ordered_map(WORK, tasks, workers=2, limits=Limits(item_s=1e6))
    assert done(next(outcomes)) == ["a"]
    with pytest.raises(KeyboardInterrupt):
        outcomes.close()
    assert len(set(ended)) == 2
    assert threading.active_count() == before
    assert not any(child.running for child in ended)


def test_an_interrupt_before_the_children_end_lets_none_of_them_start_again(monkeypatch):
    children, left = [], []

    class Interrupted(contextlib.ExitStack):
        def __exit__(self, *why):
            left.append(self)
            if len(left) == 1:
                raise KeyboardInterrupt  # a second Ctrl-C, before anything was done about the first
            return super().__exit__(*why)

    class Known(Child):
        def __init__(self, *how):
            super().__init__(*how)
            children.append(self)

    monkeypatch.setattr(parallel, "contextlib", SimpleNamespace(ExitStack=Interrupted))
    monkeypatch.setattr(parallel, "Child", Known)
    outcomes = ordered_map(
        WORK, [{"items": [item]} for item in ("a", "hang", "hang", "b")], workers=2
    )
    assert done(next(outcomes)) == ["a"]
    with pytest.raises(KeyboardInterrupt):
        outcomes.close()
    assert len(children) == 2
    for child in children:
        with pytest.raises(RuntimeError):
            child.run(WORK, {"items": ["a"]})


def test_a_signal_that_does_not_wake_the_main_thread_interrupts():
    def tasks():
        yield {"items": ["hang"]}
        yield {"items": ["hang"]}
        # The other thread takes the signal, so that the wait of the main thread goes on.
        threading.Timer(
            0.5, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ).start()

    with pytest.raises(KeyboardInterrupt):
        list(ordered_map(WORK, tasks(), workers=2, limits=Limits(item_s=1e6)))


def test_a_child_that_was_ended_runs_nothing_although_a_process_is_left():
    child = Child(Limits())
    child.run(WORK, {"items": ["a"]})
    process, child._process = child._process, None
    child.end()  # while another thread starts a process
    child._process = process
    with pytest.raises(RuntimeError):
        child.run(WORK, {"items": ["a"]})
    child.close()


@pytest.mark.parametrize("way", ["fork", "_Started"])
def test_a_child_that_is_ended_while_it_starts_does_not_work(monkeypatch, way):
    child, started, start = Child(Limits()), [], getattr(child_module, way)

    def ended(*args, **options):
        child.end()  # by another thread, which cannot see the new process yet
        started.append(start(*args, **options))
        return started[0]

    monkeypatch.setenv("DATACHECK_FORK", "" if way == "fork" else "off")
    monkeypatch.setattr(child_module, way, ended)
    with pytest.raises(RuntimeError):
        child.run(WORK, {"items": ["a"]})
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    with pytest.raises(RuntimeError):
        child.run(WORK, {"items": ["a"]})
    assert len(started) == 1


def test_a_child_may_be_closed_by_one_thread_while_another_ends_it():
    child = Child(Limits())
    child.run(WORK, {"items": ["a"]})
    process = child._process

    class Closed:
        """The process, closed by the thread that serves it as soon as it is looked at."""

        pid, kill = process.pid, process.kill

        @property
        def returncode(self):
            child._process = process
            child.close()

    child._process = Closed()
    child.end()
    assert process.returncode == -signal.SIGKILL
    assert not child.running


def test_several_children_work_at_once_and_little_waits():
    taken = []

    def tasks():
        for number in range(40):
            taken.append(number)
            yield {"items": [f"{number}"]}

    outcomes = ordered_map(WORK, tasks(), workers=3)
    found = [next(outcomes)]
    assert len(taken) <= 7  # two for each child, and the one that was given out
    found += outcomes
    assert [done(o) for o in found] == [[f"{number}"] for number in range(40)]
    assert len({o.payloads[0]["pid"] for o in found}) > 1


@pytest.mark.parametrize("workers", [1, 2])
def test_one_child_does_the_tasks_of_a_series_in_turn(workers):
    series = [[{"items": [f"{name}{i}"]} for i in range(6)] for name in "ab"]
    found = list(ordered_map(WORK, [*series, {"items": ["alone"]}], workers=workers))
    assert [done(o)[0] for o in found] == [
        *(f"{name}{i}" for name in "ab" for i in range(6)),
        "alone",
    ]
    pids = [{o.payloads[0]["pid"] for o in part} for part in (found[:6], found[6:12])]
    assert [len(some) for some in pids] == [1, 1]
    assert len(set.union(*pids)) == workers


def test_other_children_go_on_while_a_series_does():
    taken = []

    def tasks():
        for number in range(40):
            taken.append(number)
            yield {"items": [f"{number}"]} if number else [{"items": ["slow"]} for _ in range(20)]

    outcomes = ordered_map(WORK, tasks(), workers=2)
    assert [done(next(outcomes)) for _ in range(20)] == [["slow"]] * 20
    assert len(taken) > 20
    assert [done(o) for o in outcomes] == [[f"{number}"] for number in range(1, 40)]


def test_outcomes_of_a_series_come_before_its_last_task_ends():
    outcomes = ordered_map(
        WORK, [[{"items": ["a"]}, {"items": ["hang"]}], {"items": ["b"]}], workers=2
    )
    assert done(next(outcomes)) == ["a"]
    outcomes.close()


def test_an_error_in_a_series_ends_the_map():
    series = [{"items": ["a"]}, {"items": ["b"]} | {"function": 1}]
    outcomes = ordered_map("tests.trunk.tasks:refusing", [series, {"items": ["c"]}], workers=2)
    assert done(next(outcomes)) == ["a"]
    with pytest.raises(UsageError, match="not this one"):
        list(outcomes)


def test_a_dask_worker_does_a_series_in_one_child():
    tasks = [{"items": ["a"]}, {"items": ["segfault"]}, {"items": ["b"]}, {"items": ["c"]}]
    outcomes = parallel._on_worker(WORK, tasks, Limits(), PARSER, "run 1")
    parallel._THREAD_STATE.child.close()
    assert [done(o) for o in outcomes] == [["a"], [], ["b"], ["c"]]
    assert [len(o.deaths) for o in outcomes] == [0, 1, 0, 0]
    assert (
        outcomes[2].payloads[0]["pid"]
        == outcomes[3].payloads[0]["pid"]
        != outcomes[0].payloads[0]["pid"]
    )


def test_a_script_without_a_main_guard_is_not_run_again_by_its_workers(tmp_path, repository):
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\nfrom datacheck.workers.parallel import ordered_map\n"
        f"found = list(ordered_map({WORK!r}, [{{'items': ['a']}}, {{'items': ['b']}}], "
        f"workers=2))\n"
        "print([p['done'] for o in found for p in o.payloads])\n"
    )
    env = os.environ | {"PYTHONPATH": str(repository)}
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=env, check=False
    )
    assert (run.stdout, run.stderr) == ("once\n[['a'], ['b']]\n", "")


ENDLESS = "while True: at(0, time.monotonic_ns(), {nbytes}); time.sleep(0.02)"


@pytest.mark.parametrize("nbytes", [-1, 2**60])
def test_a_child_that_gives_signs_of_life_without_end_is_ended(monkeypatch, nbytes):
    monkeypatch.setattr("datacheck.workers.budget._SILENCES", 2)
    boot(monkeypatch, f"{STUB}\nos.read(0, 16)\n{ENDLESS.format(nbytes=nbytes)}")
    program = replace(PARSER, start_s=0.2)
    with contextlib.closing(Child(Limits(item_s=0.6), program)) as child:
        outcome = run_task(child, ANSWERED, {"items": ["a", "b"]})
    assert [(death.item, death.kind) for death in outcome.deaths] == [
        ("a", "endless"),
        ("b", "endless"),
    ]
    assert outcome.deaths[0].how == "not finished after 1 s, although it gives signs of life"


def test_of_many_items_that_take_long_together_each_is_tried_alone(monkeypatch):
    """Three that take 1.6 s each have 4 s: far less than together, and far more than one needs on a busy machine."""
    monkeypatch.setattr("datacheck.workers.budget.Limits.task_s", lambda *_: 4.0)
    with contextlib.closing(Child(Limits(item_s=30.0), PARSER)) as child:
        outcome = run_task(child, WORK, {"items": ["long", "long", "long", "a"]})
    assert (done(outcome), outcome.deaths) == (["long", "long", "long", "a"], [])


def test_code_of_the_user_may_take_any_time():
    assert Limits(own_code=True).task_s(60.0, 1, 0) == float("inf")
    assert Limits().task_s(60.0, 1, 0) > 1200
    assert Limits().task_s(60.0, 1, 1 << 30) > 1200 + (1 << 30) / 100e3


def test_the_time_of_a_task_comes_from_the_bytes_that_the_parent_knows():
    item = {"path": "a", "nbytes": 10}
    read = {"item": item, "files": [["a", 10, 0, 0, 0, ""], ["b", 7, 0, 0, 0, ""]]}
    assert file_bytes({"items": [item, item | {"part": [3, 5, 0]}]}) == 12
    assert file_bytes({"items": [{"g": 0, "reads": [read]}]}) == 17
    assert file_bytes({"items": [{"number": 0, "sides": [item, item]}]}) == 20
    assert file_bytes({"items": [[item, item], ["a", "b"]]}) == 20
    assert file_bytes({"items": ["a", "b"], "file_bytes": 30}) == 30
    assert file_bytes({}) == 0


def test_an_error_of_a_kind_that_a_function_does_not_declare_is_the_death_of_the_item(monkeypatch):
    raised = 'answer(b\'$array\\n{"raised": "UsageError", "text": "gone\\\\nwrong"}\')'
    answer, death = taken_over(monkeypatch, f"at(1)\n{raised}")
    assert (answer, death.item, death.crash) == (None, "b", False)
    assert death.how == "the parser gave up: gone wrong"


RAISED = 'answer(b\'$array\\n{"raised": "%s", "text": "%s"}\')'


def test_an_error_of_a_declared_kind_ends_the_command_where_one_item_is_enough(monkeypatch):
    monkeypatch.setattr(answered, "raises", (UsageError,))
    monkeypatch.setattr(answered, "of_items", True)
    with pytest.raises(UsageError, match="no tokenizer"):
        taken_over(monkeypatch, RAISED % ("UsageError", "no tokenizer"))


def raised(refuse, kind="usage", text="of the item"):
    with contextlib.closing(Child(Limits())) as child:
        items = [{"kind": kind, "text": text}]
        return child.run("tests.trunk.tasks:asked", {"refuse": refuse, "items": items})


def test_an_error_of_the_task_ends_the_command():
    with pytest.raises(UsageError, match="of the task"):
        raised(refuse=True)


def test_an_error_that_only_an_item_raises_is_its_death():
    answer, death = raised(refuse=False)
    assert (answer, death.how) == (None, "the parser gave up: of the item")


def test_a_library_that_is_not_installed_ends_the_command_and_no_other():
    with pytest.raises(MissingDependencyError, match="no_such_library is not installed"):
        raised(
            refuse=False, kind="library", text="no_such_library is not installed: pip install it"
        )
    _, death = raised(refuse=False, kind="library", text="numpy is not installed: pip install it")
    assert death.how == "the parser gave up: numpy is not installed: pip install it"


# ----------------------------------------------------------------------------------- of the machine


@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_item_whose_child_others_kill_now_and_then_is_done(monkeypatch, tmp_path, times):
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    (outcome,) = run(["a", f"kill:{times}", "b"])
    assert (sorted(done(outcome)), outcome.deaths) == (["a", "b", f"kill:{times}"], [])


def test_an_item_whose_child_is_killed_each_time_is_lost_to_the_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    (outcome,) = run(["a", "kill:99", "b"])
    (death,) = outcome.deaths
    assert (death.item, death.machine, death.crash) == ("kill:99", True, False)
    assert (
        death.how
        == "the parser was killed by SIGKILL, 4 times: memory is short, or another program does it"
    )
    assert sorted(done(outcome)) == ["a", "b"]


def test_a_child_that_is_stopped_says_nothing_of_its_item():
    (outcome,) = run(["a", "stop", "b"], limits=Limits(item_s=0.3))
    (death,) = outcome.deaths
    assert (death.item, death.machine) == ("stop", True)
    assert death.how.startswith(
        "the process that reads was stopped by a signal, for 0.3 s, 4 times: "
    )
    assert sorted(done(outcome)) == ["a", "b"]


def test_a_child_that_crashes_on_an_item_is_no_fault_of_the_machine():
    (outcome,) = run(["segfault"])
    assert [(death.item, death.machine) for death in outcome.deaths] == [("segfault", False)]


@pytest.mark.parametrize(("memory", "machine"), [(1 << 30, True), (3 << 30, False)])
def test_memory_that_the_machine_lacks_says_nothing_of_the_item(memory, machine):
    """An item of no bytes may take 1.5 GiB where the machine has as much."""
    task = {"items": [{"path": "a.npy", "nbytes": 0}]}
    (outcome,) = ordered_map("tests.trunk.tasks:taking", [task], limits=Limits(memory_b=memory))
    (death,) = outcome.deaths
    assert (death.kind, death.machine) == ("memory", machine)
    assert ("too much for a file of its size" in death.how) is not machine


@pytest.mark.parametrize(
    ("page", "told"),
    [(b"<title>Dask: Status</title>", True), (b"Dask needs bokeh >= 3.1.0", False)],
)
def test_a_dashboard_is_told_where_one_answers(page, told):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = SimpleNamespace(dashboard_link=f"http://127.0.0.1:{server.server_port}/status")
        assert parallel._dashboard(client) == (client.dashboard_link if told else "")
        server.shutdown()
    assert parallel._dashboard(client) == ""  # gone


@pytest.mark.parametrize("ways", [["weak", "weak", "healthy"], ["weak"] * 20, ["healthy"]])
def test_an_item_that_an_idle_weak_machine_takes_again_is_tried_again(monkeypatch, ways):
    left = iter(ways)

    def result(client, worker, told):
        if worker == "healthy":
            return [parallel.TaskResult({}, payloads=[["a"]], worker=worker)]
        return [
            parallel.TaskResult(
                {}, deaths=[parallel.Death("a", "killed", machine=True)], worker=worker
            )
        ]

    monkeypatch.setattr(parallel, "_threads", lambda client: {"healthy": 1, "weak": 1})
    monkeypatch.setattr(parallel, "_submit", lambda *_, **how: next(left))
    monkeypatch.setattr(parallel, "_result", result)
    (first,) = result(None, "weak", None)
    found = parallel._retry_elsewhere(None, list, first, None)
    healthy = "healthy" in ways
    assert (found.payloads, len(found.deaths)) == ([["a"]] if healthy else [], 0 if healthy else 1)


def test_a_child_that_gets_no_processor_is_not_silent(monkeypatch):
    """Seconds in which it waits for one that others have say nothing of its item."""
    waits = iter([0.0, 9.5, 9.5])
    monkeypatch.setattr(child_module, "_waited", lambda pid: next(waits))
    now = [100.0]
    monkeypatch.setattr(child_module.time, "monotonic", lambda: now[0])
    watch = child_module.Watchdog(
        lambda: (0, 1, -1), lambda item: WHOLE, os.getpid(), {"items": ["a"]}, 1.0, 1.0
    )
    now[0] += 10  # of these it has waited for nine and a half
    watch.look()
    now[0] += 1
    with pytest.raises(child_module.OverdueError, match="still busy after 1 s"):
        watch.look()


def test_the_kernel_tells_how_long_a_process_waits_for_a_processor():
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * usable_cpus() + 2)
    ]
    try:
        end = time.monotonic() + 800
        while max(child_module._waited(one.pid) for one in busy) < 0.2 and time.monotonic() < end:
            time.sleep(0.05)
        assert max(child_module._waited(one.pid) for one in busy) >= 0.2
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert child_module._waited(busy[0].pid) == 0
