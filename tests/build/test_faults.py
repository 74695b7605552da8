"""Killed, interrupted, out of space: nothing half-written is ever published, and the next run goes on."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from datacheck.build.builder import build_cache
from datacheck.build.shard_worker import write_shards
from datacheck.errors import UsageError
from tests.build.make import job_of, schema_of, tree

FIELDS = {
    "x": {"role": "points", "shape": [1000, 3], "dtype": "float32"},
    "n": {"role": "value", "shape": ["T"]},
}
SCRIPT = """
import sys
from pathlib import Path
from datacheck.build import plan
from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.errors import DatacheckError
from tests.build.make import job_of, schema_of
from tests.build.test_faults import FIELDS

layout.SHARD_BYTES, plan.SOURCE_BYTES = 1 << 14, 1 << 14  # shards of one sample
data, out, *steps = sys.argv[1:]
try:
    job = job_of(schema_of(FIELDS), Path(data), steps=steps, paths=[str(Path(data).parent)])
    print("ready", flush=True)
    build_cache(job, Path(out), progress=lambda tick: print(tick.samples, flush=True))
except DatacheckError as error:
    print(type(error).__name__, error)
    sys.exit(error.exit_code)
"""
SLOW = "import time\ndef slow(sample):\n    time.sleep(0.02)\n    return sample.fields\n"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.Generator(np.random.Philox(5))
    for i in range(40):
        np.savez(folder / f"{i:03d}.npz", x=rng.random((1000, 3), np.float32), n=rng.random(i))
    (tmp_path / "slow_step.py").write_text(SLOW)
    return folder


def start(repository, data, out, *steps, before=(), **options):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(repository), str(data.parent), *filter(None, sys.path)])
    }
    command = [*before, sys.executable, "-c", SCRIPT, str(data), str(out), *steps]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def built_here(data, out, *steps):
    """Build in one go, with the same small shards; return the cache."""
    done = start(Path(__file__).parents[2], data, out, *steps)
    assert done.communicate(timeout=800)[1] == ""
    return published(out)[0].parent


def published(out):
    return list(out.glob("*/*/*/manifest.json"))  # rglob trips over folders that vanish


def wait_for_shards(process, count):
    assert process.stdout.readline() == "ready\n"
    for _ in range(count):
        process.stdout.readline()


@pytest.mark.parametrize("shards", [0, 3])
def test_a_killed_build_publishes_nothing_and_the_next_one_does(data, tmp_path, repository, shards):
    process = start(repository, data, tmp_path / "out", "slow_step:slow")
    wait_for_shards(process, shards)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not published(tmp_path / "out")
    again = start(repository, data, tmp_path / "out", "slow_step:slow")
    _, errors = again.communicate(timeout=800)
    assert again.returncode == 0, errors
    assert len(published(tmp_path / "out")) == 1
    assert len(list((tmp_path / "out/tiny/all").iterdir())) == 1  # what the killed one left is gone


def test_a_file_size_limit_is_out_of_space(data, tmp_path, repository, monkeypatch):
    # Cut off in a fresh clone, it fails all later starts
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def limited():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    process = start(repository, data, tmp_path / "out", preexec_fn=limited)
    said, errors = process.communicate(timeout=800)
    assert process.returncode == 5, errors
    assert "OutOfSpaceError" in said
    assert "Traceback" not in errors
    assert not published(tmp_path / "out")


# Full before it begins, while writing shards, tables
@pytest.mark.parametrize("size", ["64k", "560k", "700k"])
def test_a_full_disk_is_out_of_space_and_room_is_all_it_takes(data, tmp_path, repository, size):
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody mount a small disk (unshare -m)")
    out = tmp_path / "out"
    out.mkdir()
    twice = (
        f'mount -t tmpfs -o size={size} none "{out}" && "$@"; first=$?; find "{out}" -name '
        f"manifest.json >&2; "
        f'mount -o remount,size=9m "{out}"; "$@" && cd "{out}"/*/*/* && sha256sum < manifest.json '
        f">&2; exit $first"
    )
    process = start(repository, data, out, before=["unshare", "-m", "sh", "-c", twice, "sh"])
    said, errors = process.communicate(timeout=800)
    assert process.returncode == 5, errors
    assert "OutOfSpaceError" in said
    assert ("bytes or more" in said) == (size == "64k")
    golden = built_here(data, tmp_path / "golden")
    assert errors.split() == [
        hashlib.sha256((golden / "manifest.json").read_bytes()).hexdigest(),
        "-",
    ]


def test_a_late_task_cannot_touch_a_published_cache(data, tmp_path, monkeypatch):
    """A task that Dask runs twice may end after the rename; its folder is gone then."""
    orders = []
    from datacheck.build import make_shards

    ordered_map = make_shards.ordered_map

    def remembering(function, tasks, **options):
        orders.extend(tasks := list(tasks))
        return ordered_map(function, tasks, **options)

    monkeypatch.setattr(make_shards, "ordered_map", remembering)
    built = build_cache(job_of(schema_of(FIELDS), data), tmp_path / "out")
    golden = tree(built.path)
    with pytest.raises(Exception, match="no such file"):
        write_shards(orders[0], lambda _: None)
    assert tree(built.path) == golden
    assert [p.name for p in built.path.parent.iterdir()] == [built.path.name]


def test_a_step_that_changes_during_the_build_publishes_nothing(data, tmp_path, monkeypatch):
    from datacheck.build import make_shards

    ordered_map = make_shards.ordered_map

    def edited(function, tasks, **options):
        tasks = list(tasks)
        (tmp_path / "slow_step.py").write_text("def slow(sample):\n    return {**sample.fields}\n")
        return ordered_map(function, tasks, **options)

    monkeypatch.setattr(make_shards, "ordered_map", edited)
    job = job_of(schema_of(FIELDS), data, steps=["slow_step:slow"], paths=[str(tmp_path)])
    with pytest.raises(UsageError, match=r"slow_step:slow: .* changed during the build"):
        build_cache(job, tmp_path / "out")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


def test_a_task_gives_the_same_files_twice(data, tmp_path, monkeypatch):
    from datacheck.build import make_shards

    ordered_map = make_shards.ordered_map

    def twice(function, tasks, **options):
        tasks = list(tasks)
        list(ordered_map(function, tasks, **options))
        return ordered_map(function, tasks, **options)

    once = tree(build_cache(job_of(schema_of(FIELDS), data), tmp_path / "once").path)
    monkeypatch.setattr(make_shards, "ordered_map", twice)
    assert tree(build_cache(job_of(schema_of(FIELDS), data), tmp_path / "twice").path) == once


def test_what_late_tasks_leave_behind_is_not_published(data, tmp_path, monkeypatch):
    from datacheck.build import builder

    written = builder.make_shards

    def leaving(prepared, stage, *more):
        results = written(prepared, stage, *more)
        (stage.shards / "fields/x/.c.0.0.0.4242.partial").write_bytes(b"late")
        return results

    monkeypatch.setattr(builder, "make_shards", leaving)
    built = build_cache(job_of(schema_of(FIELDS), data), tmp_path / "out")
    assert not list(built.path.rglob("*.partial"))


def test_a_reader_of_the_folder_never_sees_an_unfinished_cache(data, tmp_path, repository):
    process = start(repository, data, tmp_path / "out", "slow_step:slow")
    wait_for_shards(process, 1)
    seen = set()
    while process.poll() is None:
        seen |= {len(list(m.parent.rglob("*"))) for m in published(tmp_path / "out")}
        time.sleep(0.01)
    process.communicate()
    assert process.returncode == 0
    seen |= {len(list(m.parent.rglob("*"))) for m in published(tmp_path / "out")}
    assert len(seen) == 1
