"""A build that ended goes on where it was, however it ended, whoever runs it again; with nothing that is not proven."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datacheck.build import make_shards, provenance, staging
from datacheck.build.builder import build_cache
from datacheck.build.finish import CacheFinisher
from datacheck.build.staging import Staging
from datacheck.build.target import FolderTarget
from datacheck.cache import layout
from datacheck.errors import (
    LostStagingError,
    NondeterministicBuildError,
    OutOfSpaceError,
    StorageError,
    SyncFailedError,
    UsageError,
)
from datacheck.plugins import resolve
from datacheck.runtime import folders, fsops, machine
from datacheck.runtime.fsops import System
from datacheck.workers.parallel import TaskResult
from tests.build.make import MIXED, job_of, mixed, saved_record, schema_of, tree
from tests.build.test_faults import SLOW, built_here, published, start, wait_for_shards

COUNTED = """
import os, time
from pathlib import Path
CALLS = Path(__file__).with_name("calls")
def counted(sample):
    with CALLS.open("ab") as file:
        file.write(b".")
    time.sleep(0.05)
    return sample.fields
"""


class StopError(Exception):
    """What ends a build in these tests."""


def prepared(folder, monkeypatch):
    """Two samples in each of six shards, a task for each."""
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 13)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 13)
    mixed(folder / "data", 12)
    return job_of(schema_of(MIXED), folder / "data")


@pytest.fixture
def job(tmp_path, monkeypatch):
    return prepared(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with pytest.MonkeyPatch.context() as monkeypatch:
        return tree(build_cache(prepared(folder, monkeypatch), folder / "out").path)


@pytest.fixture
def made(monkeypatch):
    """Run tasks here, and note the shards that were made."""
    numbers = []

    def inline(function, tasks, **_):
        for task in tasks:
            numbers.extend(order["g"] for order in task["items"])
            yield TaskResult(task, [resolve(function)(task, lambda _: None)])

    monkeypatch.setattr(make_shards, "ordered_map", inline)
    return numbers


def stopped(job, out, after, error=StopError):
    """Build until `after` shards are done."""

    def progress(tick):
        if tick.files >= after:
            raise error

    with pytest.raises(error) as caught:
        build_cache(job, out, progress=progress)
    return caught.value


def stagings(out):
    return [path for path in out.glob("*/*/.building/*") if not path.name.startswith(".")]


def rerun(job, out, golden):
    built = build_cache(job, out)
    assert tree(built.path) == golden
    assert [p.name for p in built.path.parent.iterdir()] == [built.path.name]
    return built


# ------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("error", [StopError, KeyboardInterrupt, StorageError, OutOfSpaceError])
def test_only_what_is_not_finished_is_made(job, made, golden, tmp_path, error):
    caught = stopped(job, tmp_path / "out", 3, error)
    assert caught.__notes__ == ["3 shards are done and kept: the same command goes on."]
    assert made == [0, 1, 2]
    made.clear()
    built = rerun(job, tmp_path / "out", golden)
    assert made[0] == built.kept == 3
    assert not {0, 1, 2} & set(made)


@pytest.mark.parametrize("error", [UsageError, NondeterministicBuildError, SyncFailedError])
def test_what_cannot_be_trusted_is_not_kept(job, made, golden, tmp_path, error):
    caught = stopped(job, tmp_path / "out", 3, error)
    assert not hasattr(caught, "__notes__")
    assert not list((tmp_path / "out").rglob("*.*"))
    made.clear()
    assert rerun(job, tmp_path / "out", golden).kept == 0
    assert made[0] == 0


def test_nothing_stays_of_a_build_that_finished_no_shard(job, tmp_path, monkeypatch):
    def ending(*_, **__):
        raise StopError

    monkeypatch.setattr(make_shards, "shard_tasks", ending)
    with pytest.raises(StopError) as caught:
        build_cache(job, tmp_path / "out")
    assert not hasattr(caught.value, "__notes__")
    assert list((tmp_path / "out/tiny/all").iterdir()) == []


def edited(path, change):
    """Write a file anew, read-only as it may be."""
    content = change(path.read_bytes())
    path.unlink()
    path.write_bytes(content)


def renumbered(records):
    """Let a machine have made the second shard that makes something else of numbers: all else is as it was."""
    answer = provenance.write(records, replace(saved_record(records, 1), numerics="0" * 32))
    Staging(records.parent.parent).note_finished([answer])


def replaced_by_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {  # what happens to the work, and how many of three shards are then kept
    "torn": (lambda work: edited(work / "records/1", lambda raw: raw[:-5]), 2),
    "swapped": (lambda work: (work / "records/1").replace(work / "records/2"), 1),
    "record gone": (lambda work: (work / "records/1").unlink(), 2),
    "flipped": (
        lambda work: edited(
            work / "shards/fields/joints/c.1.0.0", lambda raw: raw[:-9] + b"x" + raw[-8:]
        ),
        2,
    ),
    "longer": (
        lambda work: edited(work / "shards/fields/joints/c.1.0.0", lambda raw: raw + b"x"),
        2,
    ),
    "short": (lambda work: edited(work / "shards/fields/cloud/c.1.0", lambda raw: raw[:-1]), 2),
    "empty": (lambda work: edited(work / "shards/fields/cloud/c.1.0", lambda raw: b""), 2),
    "shard gone": (lambda work: (work / "shards/fields/labels/c.1").unlink(), 2),
    "no owner": (lambda work: (work.parent / staging.OWNER).unlink(), 3),
    "other numbers": (lambda work: renumbered(work / "records"), 2),
    "strange": (
        lambda work: (work / "records/999").write_bytes((work / "records/1").read_bytes()),
        3,
    ),
    "partial": (lambda work: (work / "records/.7.ab.partial").write_bytes(b"torn"), 3),
    "a folder for a record": (lambda work: replaced_by_folder(work / "records/1"), 0),
    "a folder for a shard": (lambda work: replaced_by_folder(work / "shards/fields/labels/c.1"), 0),
    "no records": (lambda work: folders.remove_tree(work / "records"), 0),
    "no shards": (lambda work: folders.remove_tree(work / "shards"), 0),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_does_not_prove_itself_is_made_again(job, made, golden, tmp_path, name):
    stopped(job, tmp_path / "out", 3)
    (left,) = stagings(tmp_path / "out")
    damage, kept = DAMAGES[name]
    damage(left / "work")
    made.clear()
    assert rerun(job, tmp_path / "out", golden).kept == kept


@pytest.mark.parametrize(
    "call",
    [
        "_write_row_tables",
        "_write_field",
        "_write_texts",
        "_write_documents",
        "_write_build_document",
        "_seal",
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_build_that_ended_while_it_was_completed(
    job, made, golden, tmp_path, monkeypatch, call, when
):
    """Half of the ragged shards have their index then, half do not; or the manifest lies there."""
    real, calls = getattr(CacheFinisher, call), []

    def ending(self, *more):
        calls.append(call)
        if when == "before" and len(calls) == 1 + (call == "_write_field"):
            raise StopError
        found = real(self, *more)
        if when == "after" and len(calls) == 1 + (call == "_write_field"):
            raise StopError
        return found

    monkeypatch.setattr(CacheFinisher, call, ending)
    with pytest.raises(StopError):
        build_cache(job, tmp_path / "out")
    monkeypatch.setattr(CacheFinisher, call, real)
    total = len(made)
    made.clear()
    assert rerun(job, tmp_path / "out", golden).kept == total
    assert made == []


def test_a_killed_build_makes_each_sample_at_most_once_more(tmp_path, repository):
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "counting.py").write_text(COUNTED)
    rng = np.random.Generator(np.random.Philox(7))
    for i in range(20):
        np.savez(data / f"{i:03d}.npz", x=rng.random((1000, 3), np.float32), n=rng.random(i))
    process = start(repository, data, tmp_path / "out", "counting:counted")
    wait_for_shards(process, 5)
    process.kill()
    process.communicate()
    before = len((tmp_path / "calls").read_bytes())
    (left,) = stagings(tmp_path / "out")
    # Of one sample each
    finished = len([p for p in (left / "work/records").iterdir() if p.name.isdecimal()])
    assert finished >= 5
    again = start(repository, data, tmp_path / "out", "counting:counted")
    _, errors = again.communicate(timeout=800)
    assert again.returncode == 0, errors
    assert len((tmp_path / "calls").read_bytes()) - before == 20 - finished
    assert tree(published(tmp_path / "out")[0].parent) == tree(
        built_here(data, tmp_path / "golden", "counting:counted")
    )


# ------------------------------------------------------------------------------------ who may go on


def test_a_live_builder_is_left_alone(job, made, golden, tmp_path):
    second = []

    def progress(tick):
        if tick.files == 2:
            second.append(build_cache(job, tmp_path / "out"))

    first = build_cache(job, tmp_path / "out", progress=progress)
    assert [built.kept for built in second] == [0]
    assert (second[0].reused, first.reused) == (False, True)
    assert tree(first.path) == golden
    assert [p.name for p in first.path.parent.iterdir()] == [first.path.name]


def test_most_work_wins_and_the_rest_goes(job, made, golden, tmp_path):
    out = tmp_path / "out"
    stopped(job, tmp_path / "one", 1)
    stopped(job, out, 4)
    stopped(job, tmp_path / "two", 2)
    for other in ("one", "two"):
        (left,) = stagings(tmp_path / other)
        left.rename(stagings(out)[0].with_name(left.name))
    assert rerun(job, out, golden).kept == 4


def test_another_key_is_not_touched(job, made, tmp_path):
    out = tmp_path / "out"
    stopped(job, out, 2)
    (left,) = stagings(out)
    other = job_of(schema_of(MIXED), tmp_path / "data", invalid={"003.npz": ("DC999",)})
    assert build_cache(other, out).kept == 0
    assert stagings(out) == [left]


def test_what_others_left_goes_when_the_cache_is_there(job, made, golden, tmp_path):
    stopped(job, tmp_path / "out", 2)
    (left,) = stagings(tmp_path / "out")
    left.rename(tmp_path / "aside")
    rerun(job, tmp_path / "out", golden)
    left.parent.mkdir()
    (tmp_path / "aside").rename(left)
    assert rerun(job, tmp_path / "out", golden).reused


def test_a_builder_that_slept_on_a_network_disk_is_fenced_off(
    job, made, golden, tmp_path, monkeypatch
):
    monkeypatch.setattr(machine, "is_local", lambda path: False)
    seconds = []

    def progress(tick):
        if tick.files == 3 and not seconds:
            (mine,) = stagings(tmp_path / "out")
            seconds.append("awake")
            assert build_cache(job, tmp_path / "other").kept == 0
            past = time.time() - 3600
            os.utime(mine / staging.OWNER, (past, past))
            seconds.append(build_cache(job, tmp_path / "out"))

    with pytest.raises(LostStagingError, match="another builder took this build over"):
        build_cache(job, tmp_path / "out", progress=progress)
    assert seconds[1].kept == 3
    assert tree(seconds[1].path) == golden
    assert not stagings(tmp_path / "out")
    assert build_cache(job, tmp_path / "out").reused


def test_an_owner_on_a_network_disk_that_spoke_lately_is_left_alone(
    job, made, golden, tmp_path, monkeypatch
):
    monkeypatch.setattr(machine, "is_local", lambda path: False)
    stopped(job, tmp_path / "out", 3)
    (left,) = stagings(tmp_path / "out")
    assert build_cache(job, tmp_path / "out").kept == 0
    assert stagings(tmp_path / "out") == [left]


def test_an_owner_on_a_network_disk_says_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "is_local", lambda path: False)
    monkeypatch.setattr(staging, "_BEAT_S", 0.01)
    with staging.claim(tmp_path, "k") as stage:
        owner = stage.folder / staging.OWNER
        os.utime(owner, (0, 0))
        end = time.monotonic() + 800
        while owner.stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.01)
        assert owner.stat().st_mtime > 1e9


def test_an_owner_that_somebody_looks_at_while_it_begins_is_locked_nevertheless(
    tmp_path, monkeypatch
):
    """Who cleans up locks OWNER for a moment, to see whether anybody has it."""
    hold, looked = fsops.hold, []

    def looked_at(path, *, shared):
        looked.append(path)
        return None if len(looked) < 3 else hold(path, shared=shared)

    monkeypatch.setattr(fsops, "hold", looked_at)
    with staging.claim(tmp_path, "k") as stage:
        assert hold(stage.folder / staging.OWNER, shared=False) is None


def test_a_stopped_owner_keeps_its_build(tmp_path, repository):
    """Stopped is not dead: on a local disk the lock tells."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "slow_step.py").write_text(SLOW)
    for i in range(12):
        np.savez(data / f"{i:03d}.npz", x=np.full((1000, 3), i, np.float32), n=np.ones(i))
    process = start(repository, data, tmp_path / "out", "slow_step:slow")
    wait_for_shards(process, 3)
    process.send_signal(signal.SIGSTOP)
    (left,) = stagings(tmp_path / "out")
    second = start(repository, data, tmp_path / "out", "slow_step:slow")
    _, errors = second.communicate(timeout=800)
    assert second.returncode == 0, errors
    assert left.is_dir()
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=800)
    assert process.returncode == 0, errors
    assert [p.name for p in (tmp_path / "out/tiny/all").iterdir()] == [
        published(tmp_path / "out")[0].parent.name
    ]


def test_builders_that_come_and_go_at_once(job, golden, tmp_path, monkeypatch):
    """`.building` comes and goes with them; each meets a cache that is whole."""
    out, found = tmp_path / "out", []

    def one(number):
        for turn in range(6):
            built = build_cache(job, out / str(turn))
            found.append((number, turn, tree(built.path) == golden))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 18
    assert all(same for *_, same in found)
    for turn in range(6):
        assert len(list((out / str(turn) / "tiny/all").iterdir())) == 1


# -------------------------------------------------------------------------- what the system refuses


class Refusing(System):
    """Fails one kind of call, from the N-th on."""

    def __init__(self, kind, number, code):
        self.left, self.code = number, code

        def refuse(*given):
            self.left -= 1
            if self.left < 0:
                raise OSError(self.code, os.strerror(self.code))
            return getattr(System, kind)(self, *given)

        setattr(self, kind, refuse)


REFUSALS = {
    errno.EROFS: StorageError,
    errno.EIO: StorageError,
    errno.EDQUOT: OutOfSpaceError,
    errno.ENOSPC: OutOfSpaceError,
}
KINDS = ["create", "write", "rename", "mkdir", "close", "write_at", "chmod"]


@pytest.mark.parametrize(
    ("kind", "number", "code"),
    [
        *((kind, number, errno.ENOSPC) for kind in KINDS for number in (0, 3, 6, 40)),
        *((kind, 15, code) for kind in ("create", "write") for code in REFUSALS),
    ],
)
def test_a_refusal_is_one_typed_error_and_the_next_run_completes(
    job, made, golden, tmp_path, monkeypatch, kind, number, code
):
    refusing = Refusing(kind, number, code)
    monkeypatch.setattr(fsops, "SYSTEM", refusing)
    raised = None
    try:
        build_cache(job, tmp_path / "out")
    except Exception as caught:  # noqa: BLE001  any other is what this test looks for
        raised = caught
    monkeypatch.setattr(fsops, "SYSTEM", System())
    if refusing.left >= 0:  # there were not so many calls
        assert raised is None
    else:
        assert (type(raised), raised.exit_code) == (
            REFUSALS[code],
            5 if REFUSALS[code] is OutOfSpaceError else 3,
        )
    for manifest in (tmp_path / "out").glob("*/*/*/manifest.json"):
        assert tree(manifest.parent) == golden
    rerun(job, tmp_path / "out", golden)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_failed_is_not_tried_again(job, made, golden, tmp_path, monkeypatch, code):
    for number in range(0, 60, 7):
        monkeypatch.setattr(fsops, "SYSTEM", Refusing("sync", number, code))
        with pytest.raises(SyncFailedError) as caught:
            build_cache(job, tmp_path / "out")
        assert caught.value.exit_code == 3
        assert not stagings(tmp_path / "out")
    monkeypatch.setattr(fsops, "SYSTEM", System())
    assert rerun(job, tmp_path / "out", golden).kept == 0


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more."""


class Killing(System):
    """Ends at the N-th call, before or after it is done; from there on nothing happens, as if there were no process."""

    def __init__(self, number, *, done=False):
        self.calls = 0

        def counted(kind):
            def call(*given):
                self.calls += 1
                if self.calls == number and done:
                    getattr(System, kind)(self, *given)
                if self.calls >= number:
                    raise KilledError
                return getattr(System, kind)(self, *given)

            return call

        for kind in (name for name in vars(System) if not name.startswith("_")):
            setattr(self, kind, counted(kind))


@pytest.mark.parametrize("done", [False, True])
def test_a_kill_at_any_call_is_made_good_by_the_next_run(
    job, made, golden, tmp_path, monkeypatch, done
):
    counting = Killing(10**9)
    monkeypatch.setattr(fsops, "SYSTEM", counting)
    build_cache(job, tmp_path / "whole")
    assert counting.calls > 500
    kept = []
    for turn, number in enumerate(range(1, counting.calls + 1, counting.calls // 12)):
        out = tmp_path / str(turn)
        monkeypatch.setattr(fsops, "SYSTEM", Killing(number, done=done))
        with pytest.raises(KilledError):
            build_cache(job, out)
        assert all(tree(found.parent) == golden for found in out.glob("*/*/*/manifest.json"))
        monkeypatch.setattr(fsops, "SYSTEM", System())
        built = build_cache(job, out)
        assert tree(built.path) == golden
        kept.append(built.kept)
    assert {0, 6} < set(kept)  # of six shards


def test_a_disk_that_is_too_small_is_told_before_anything_is_made(job, made, tmp_path, monkeypatch):
    real = os.statvfs

    def small(path):
        class Disk:
            f_bavail, f_frsize, f_blocks = 10, 512, real(path).f_blocks

        return Disk

    monkeypatch.setattr(os, "statvfs", small)
    with pytest.raises(OutOfSpaceError, match=r"needs [0-9,]+ bytes or more, 5,120 are free"):
        build_cache(job, tmp_path / "out")
    assert made == []


def test_a_replayed_rename_is_success(job, made, golden, tmp_path, monkeypatch):
    """A server that answers late makes the client ask twice; the second time the folder is gone."""
    rename = fsops.rename

    def twice(source, target):
        rename(source, target)
        if target.parent == tmp_path / "out/tiny/all" and not source.name.startswith("."):
            rename(source, target)

    monkeypatch.setattr(fsops, "rename", twice)
    assert tree(build_cache(job, tmp_path / "out").path) == golden


def test_a_ragged_shard_that_changes_while_it_is_completed_is_not_certified(
    job, made, golden, tmp_path, monkeypatch
):
    real = CacheFinisher._write_row_tables

    def damaging(self):
        edited(self.folder / "fields/cloud/c.2.0", lambda raw: b"x" + raw[1:])
        return real(self)

    monkeypatch.setattr(CacheFinisher, "_write_row_tables", damaging)
    with pytest.raises(StorageError, match=r"fields/cloud/c\.2\.0: not what was written"):
        build_cache(job, tmp_path / "out")
    monkeypatch.setattr(CacheFinisher, "_write_row_tables", real)
    assert rerun(job, tmp_path / "out", golden).kept == 5


def test_a_folder_that_is_gone_at_the_rename(job, made, tmp_path, monkeypatch):
    real = CacheFinisher.run

    def losing(self):
        done = real(self)
        self.folder.parent.rename(tmp_path / "elsewhere")
        return done

    monkeypatch.setattr(CacheFinisher, "run", losing)
    with pytest.raises(LostStagingError):
        build_cache(job, tmp_path / "out")


def test_a_cache_that_is_damaged_while_it_is_built_is_replaced(
    job, made, golden, tmp_path, monkeypatch
):
    path = build_cache(job, tmp_path / "out").path
    (path / "manifest.json").chmod(0o644)
    (path / "manifest.json").write_bytes(b"{}")
    monkeypatch.setattr(FolderTarget, "finished", lambda target: (None, None))
    built = build_cache(job, tmp_path / "out")
    assert tree(built.path) == golden
    assert Path(path.parent / layout.TRASH).is_dir()


def test_the_folder_of_unfinished_builds_may_go_while_it_is_looked_through(tmp_path, monkeypatch):
    building = tmp_path / layout.BUILDING
    building.mkdir()
    plain = {"listdir": os.listdir, "scandir": os.scandir}
    for name in plain:  # another builder removes it, as it is empty, just before

        def gone(path, name=name):
            with contextlib.suppress(FileNotFoundError):
                building.rmdir()
            return plain[name](path)

        monkeypatch.setattr(os, name, gone)
    staging.remove_abandoned(tmp_path, "k")
    assert not building.exists()
