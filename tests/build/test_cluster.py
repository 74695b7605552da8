"""Builds on a real Dask cluster of processes that are killed, stopped, or see and have what they should not."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from datacheck.build import make_shards
from datacheck.build.builder import build_cache
from datacheck.build.shard_worker import write_shards
from datacheck.cli.main import run
from datacheck.errors import StorageError
from datacheck.workers import parallel
from datacheck.workers.child import Child, Limits
from datacheck.workers.parallel import TaskResult, ordered_map, run_task
from datacheck.workers.wire import encode
from tests.build.cluster import cluster
from tests.build.make import MIXED, job_of, mixed, schema_of, tree

COMMAND = """
import sys
from datacheck.build import plan
from datacheck.cache import layout
from datacheck.cli.main import main
layout.SHARD_BYTES = plan.SOURCE_BYTES = 1 << 14  # a sample in a shard, a shard in a task
main()
"""
SCHEMA = """datacheck: 1
name: tiny
samples: {files: '*.npz'}
fields: {x: {role: points, shape: [1000, 3], dtype: float32}, n: {role: value, shape: [T], dtype: float64}}
"""
PIPELINE = "datacheck: 1\nname: tiny\nschema: schema.yaml\ntransforms:\n  - gated:gated\n"
GATED = """
import os, time
from pathlib import Path
from tests.build.cluster import worker_pid
HERE = Path(__file__).parent
def gated(sample):
    if sample.key >= "003.npz":
        (HERE / f"at.{worker_pid()}.{os.getpid()}").touch()
        while not (HERE / "go").exists():
            time.sleep(0.01)
    return sample.fields
"""
SAMPLES = 10


@pytest.fixture
def place(tmp_path):
    """Data, and a pipeline whose samples from the fourth on are made when there is a file `go`."""
    rng = np.random.Generator(np.random.Philox(3))
    (tmp_path / "data").mkdir()
    for i in range(SAMPLES):
        np.savez(
            tmp_path / f"data/{i:03d}.npz", x=rng.random((1000, 3), np.float32), n=rng.random(i)
        )
    for name, text in (("schema.yaml", SCHEMA), ("pipeline.yaml", PIPELINE), ("gated.py", GATED)):
        (tmp_path / name).write_text(text)
    return tmp_path


def start(place, *options, out="out"):
    command = ["cache", "build", "pipeline.yaml", "--data", "data", "--out", out, *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *command],
        cwd=place,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def command(place, monkeypatch, capsys):
    """Run the command of `start` in this process; return what it says."""
    monkeypatch.chdir(place)
    monkeypatch.setattr("datacheck.cache.layout.SHARD_BYTES", 1 << 14)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 14)

    def called(*options, out="out", code=0):
        given = ["cache", "build", "pipeline.yaml", "--data", "data", "--out", out, *options]
        ended_with = run(given)
        said, errors = capsys.readouterr()
        assert ended_with == code, said + errors
        return said, errors

    return called


def ended(process, code=0):
    said, errors = process.communicate(timeout=800)
    assert process.returncode == code, said + errors
    assert "Traceback" not in errors
    return said, errors


def manifest(place, out="out"):
    (found,) = (place / out).glob("*/*/*/manifest.json")  # one, and nothing unfinished beside it
    return found.read_bytes()


@pytest.fixture
def golden(place, command):
    """Return the manifest of a build without a cluster; the gate is open from then on."""

    def built():
        (place / "go").touch()
        command(out="golden")
        return manifest(place, "golden")

    return built


def until(true, process):
    end = time.monotonic() + 800
    while not (found := true()):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return found


def records(place, out="out"):
    return [
        one
        for left in (place / out).glob("*/*/.building/*/work")
        for one in left.glob("records/[0-9]*")
    ]


def at_the_gate(place, worker):
    """The child of a worker, when it waits at the gate."""
    return [int(path.name.split(".")[2]) for path in place.glob(f"at.{worker.pid}.*")]


def alive(pid):
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def reported(place):
    """Return the shards whose tasks reported them."""
    return {
        line.split()[0]
        for left in (place / "out").glob("*/*/.building/*/work")
        for notes in left.glob("finished")
        for line in notes.read_text().splitlines()
    }


def waiting(place, build, workers, done=reported):
    """Three shards are done, and the rest waits at the gate; return the children of the workers."""
    until(lambda: len(done(place)) >= 3, build)
    return [until(lambda w=w: at_the_gate(place, w), build)[-1] for w in workers]


# ------------------------------------------------------------------------------- processes that end


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_no_byte_and_takes_its_child_along(
    place, golden, dask_python
):
    with cluster(place, scheduler=dask_python) as dask:
        build = start(place, "--scheduler", dask.address)
        child, _ = waiting(place, build, dask.workers)
        assert alive(child)
        dask.workers[0].kill()
        dask.workers[0].wait()
        until(lambda: not alive(child), build)
        (place / "go").touch()
        ended(build)
    assert manifest(place) == golden()
    assert [path.name for path in (place / "out/tiny/all").iterdir()] == [
        path.name for path in (place / "golden/tiny/all").iterdir()
    ]


@pytest.mark.slow
def test_when_the_scheduler_is_killed_the_same_command_goes_on(place, golden, dask_python):
    with cluster(place, scheduler=dask_python) as dask:
        build = start(place, "--scheduler", dask.address)
        waiting(place, build, dask.workers)
        dask.scheduler.kill()
        _, errors = ended(build, 3)
        assert "the connection to the Dask scheduler was lost" in errors
        assert "shards are done and kept: the same command goes on" in errors
        kept = len(reported(place))
        assert kept >= 3
        (
            place / "go"
        ).touch()  # what the first workers still do comes too late: the folder is another's now
        with cluster(place, scheduler=dask_python, worker=dask_python) as second:
            said, _ = ended(start(place, "--scheduler", second.address))
        assert (
            kept
            <= int(said.split(" shards kept from an unfinished build")[0].split()[-1])
            < SAMPLES
        )
        found = manifest(place)
    assert found == golden()


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up_and_changes_nothing_when_it_wakes(place, golden):
    with cluster(place, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="10s") as dask:
        build = start(place, "--scheduler", dask.address)
        child, _ = waiting(place, build, dask.workers)
        for pid in (child, dask.workers[0].pid):
            os.kill(pid, signal.SIGSTOP)
        (place / "go").touch()
        ended(build)
        (published,) = (place / "out/tiny/all").iterdir()
        before = tree(published)
        for pid in (child, dask.workers[0].pid):
            os.kill(pid, signal.SIGCONT)
        end = time.monotonic() + 20
        while (
            alive(child)
            and time.monotonic() < end
            and not (place / "out/tiny/all/.building").exists()
        ):
            time.sleep(0.05)
            if dask.workers[0].poll() is not None:  # it learns that it was given up, and ends
                break
        assert tree(published) == before
        assert list((place / "out/tiny/all").iterdir()) == [published]
    assert manifest(place) == golden()


@pytest.mark.slow
def test_when_all_workers_are_gone_it_says_so(place, dask_python, monkeypatch):
    monkeypatch.setattr(parallel, "_WORKERS_S", 0.5)
    notes, children = [], []
    job = job_of(
        schema_of({"x": {"role": "points", "shape": [1000, 3], "dtype": "float32"}}),
        place / "data",
        steps=["gated:gated"],
        paths=[str(place)],
    )
    with cluster(place, scheduler=dask_python) as dask:

        def progress(tick):
            notes.append(tick.note)
            if tick.files and not children:
                children.extend(waiting(place, dask.scheduler, dask.workers, records))
                for worker in dask.workers:
                    worker.kill()
                until(lambda: not any(map(alive, children)), dask.scheduler)

        monkeypatch.setattr("datacheck.cache.layout.SHARD_BYTES", 1 << 14)
        monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 14)
        with pytest.raises(
            StorageError, match=f"{dask.address}: the scheduler has had no workers for 0.5 s"
        ):
            build_cache(job, place / "out", scheduler=dask.address, progress=progress)
    assert (
        sum(
            note.startswith(f"{dask.address}: the scheduler has no workers; waiting 0.5 s")
            for note in notes
        )
        == 1
    )
    assert len(records(place)) == 3  # the others were at the gate
    kept = len(reported(place))  # their tasks could still report them
    assert 1 <= kept <= 3
    (place / "go").touch()
    assert build_cache(job, place / "out").kept == kept


# ------------------------------------------------------------------------------ workers unlike this


BESIDE = """
import sys
folder = sys.path.pop(next(i for i, path in enumerate(sys.path) if __file__.startswith(path)))
del sys.modules["numpy"]
import numpy
sys.path.insert(0, folder)
"""


def site(place, text):
    """A folder whose module is run when Python starts, or in place of NumPy: children start without PYTHONPATH."""
    (place / "site").mkdir()
    name, head = ("numpy", BESIDE) if "numpy" in text else ("sitecustomize", "")
    (place / f"site/{name}.py").write_text(head + text)
    return os.pathsep.join([str(place / "site"), *filter(None, sys.path)])


UNLIKE = {
    "NumPy": ("import numpy; numpy.__version__ = '2.99.0'", "has NumPy 2.99.0 instead of "),
    "rounding": (
        "import numpy as np\nsqrt = np.sqrt\n"
        "np.sqrt = lambda x: np.nextafter(sqrt(x), np.inf).astype(x.dtype) if np.size(x) > 99 else "
        "sqrt(x)",
        "has other results of: square roots of float32, square roots of float64.",
    ),
    "datacheck": ("import datacheck; datacheck.__version__ = '0.0.1'", "has datacheck 0.0.1"),
    "nothing": (
        "import sys; sys.modules['datacheck'] = None",
        "has no datacheck that can be imported, not ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", UNLIKE)
def test_a_worker_that_is_unlike_this_process_is_refused(place, command, dask_python, what):
    code, said = UNLIKE[what]
    (place / "go").touch()
    with cluster(place, 0, scheduler=dask_python) as dask:
        dask.worker(PYTHONPATH=site(place, code))
        dask.wait()
        _, errors = command("--scheduler", dask.address, code=3)
    assert said in errors
    assert "same environment" in errors
    assert not [path for path in (place / "out").rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["out", "data"])
def test_a_worker_that_sees_another_folder_is_refused(place, command, dask_python, folder):
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody mount a folder of his own (unshare -m)")
    (place / "go").touch()
    (place / "out").mkdir()
    other = f'mount -t tmpfs none "{place / folder}" && exec "$@"'
    with cluster(place, 0, scheduler=dask_python) as dask:
        dask.worker(before=["unshare", "-m", "sh", "-c", other, "sh"])
        dask.wait()
        _, errors = command("--scheduler", dask.address, code=3)
    assert str(place / folder) in errors
    assert f"on {os.uname().nodename}" in errors
    assert "very worker must see" in errors
    assert not list((place / "out").rglob("manifest.json"))


# -------------------------------------------------------------------------------- what is in flight


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr("datacheck.cache.layout.SHARD_BYTES", 1 << 13)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 14)
    mixed(tmp_path / "data", 20)
    return job_of(schema_of(MIXED), tmp_path / "data")


def small(outcome):
    """Whether a task answered with numbers and digests alone."""
    reports = [report for payload in outcome.payloads for report in payload]
    forms = {tuple(type(value) for value in report) for report in reports}
    return (
        forms == {(int, int, str)}
        and sum(map(len, encode(reports))) < 80 * len(outcome.task["items"]) + 80
    )


def test_a_task_answers_with_number_size_and_digest_alone(job, tmp_path, monkeypatch):
    outcomes = []

    def looking(*given, **named):
        for outcome in ordered_map(*given, **named):
            outcomes.append(outcome)
            yield outcome

    monkeypatch.setattr(make_shards, "ordered_map", looking)
    build_cache(job, tmp_path / "out")
    assert len(outcomes) >= 3
    assert all(small(outcome) for outcome in outcomes)
    planted = TaskResult(outcomes[0].task, [[[0, 4, "0" * 32, np.zeros(3)]]])
    assert not small(planted)


def test_a_task_that_runs_twice_at_once_gives_the_same_files(job, tmp_path, monkeypatch):
    once = tree(build_cache(job, tmp_path / "once").path)

    def twice(function, tasks, **_):
        children = [Child(Limits()) for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            for task in tasks:
                one, other = threads.map(lambda child: run_task(child, function, task), children)  # noqa: B023
                assert one.payloads == other.payloads
                yield other
        for child in children:
            child.close()

    monkeypatch.setattr(make_shards, "ordered_map", twice)
    assert tree(build_cache(job, tmp_path / "twice").path) == once


def most_in_flight(mapped, count):
    """How many more tasks were taken than outcomes given, at most."""
    taken = given = most = 0

    def tasks():
        nonlocal taken
        for number in range(count):
            taken += 1
            yield {"items": [str(number)]}

    for _ in mapped(tasks()):
        most = max(most, taken - given)
        given += 1
    assert given == count
    return most


@pytest.mark.slow
def test_work_in_flight_is_bounded(tmp_path, dask_python, monkeypatch, repository):
    monkeypatch.syspath_prepend(str(repository))
    work = "tests.build.cluster:done"
    assert most_in_flight(lambda tasks: ordered_map(work, tasks), 20) == 1
    assert most_in_flight(lambda tasks: ordered_map(work, tasks, workers=2), 20) == 4
    with cluster(tmp_path, scheduler=dask_python, worker=dask_python) as dask:
        assert (
            most_in_flight(lambda tasks: ordered_map(work, tasks, scheduler=dask.address), 40)
            == parallel._WAITING
        )

        def all_at_once(tasks):  # the control
            return ordered_map(work, list(tasks), scheduler=dask.address)

        assert most_in_flight(all_at_once, 40) == 40
        tasks = [[{"items": [f"{name}{i}"]} for i in range(5)] for name in "abc"] + [
            {"items": ["alone"]}
        ]
        found = [
            outcome.payloads[0] for outcome in ordered_map(work, tasks, scheduler=dask.address)
        ]
        assert [one["done"] for one in found] == [
            [f"{name}{i}"] for name in "abc" for i in range(5)
        ] + [["alone"]]
        assert [len({one["pid"] for one in found[i : i + 5]}) for i in (0, 5, 10)] == [1, 1, 1]


def test_a_late_task_finds_its_folder_gone(job, tmp_path, monkeypatch):
    tasks = []

    def remembering(function, given, **named):
        tasks.extend(given := list(given))
        return ordered_map(function, given, **named)

    monkeypatch.setattr(make_shards, "ordered_map", remembering)
    before = tree(build_cache(job, tmp_path / "out").path)
    with pytest.raises(
        StorageError, match=f"records: no such file or directory on {os.uname().nodename}"
    ):
        write_shards(tasks[0], lambda _: None)
    assert tree(next((tmp_path / "out/tiny/all").iterdir())) == before


@pytest.mark.parametrize("healthy", [1, 0])
def test_what_one_machine_cannot_do_another_does(tmp_path, dask_python, healthy):
    tasks = [{"items": [f"{number}"]} for number in range(8)]
    with cluster(tmp_path, healthy, scheduler=dask_python, worker=dask_python) as running:
        running.worker(WEAK="1")
        running.wait()
        done = list(
            ordered_map(
                "tests.scan.misbehaving:on_a_weak_machine", tasks, scheduler=running.address
            )
        )
    read = [payload for outcome in done for payload in outcome.payloads]
    lost = [death.item for outcome in done for death in outcome.deaths if death.machine]
    items = [f"{number}" for number in range(8)]
    assert (read, lost) == (([[item] for item in items], []) if healthy else ([], items))
