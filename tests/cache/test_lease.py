"""Who reads a cache is seen by who wants to remove it: in any process, as long as it reads, and no longer."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from datacheck.cache import manifest, open_cache, reader
from datacheck.cache.verify import verify
from datacheck.errors import EvictedError
from datacheck.model.sample import ArraySpec
from datacheck.runtime import fsops
from tests.cache.make import make_cache


@pytest.fixture
def cache(tmp_path):
    return make_cache(
        tmp_path, {"x": ArraySpec("float32", (3,))}, [{"x": np.full(3, i)} for i in range(6)]
    )


def in_use(cache):
    held = manifest.exclusive_lock(cache)
    if held is not None:
        held.close()
    return held is None


def test_a_cache_is_in_use_from_its_opening_until_the_last_reader_is_gone(cache):
    assert not in_use(cache)
    one, two = open_cache(cache), open_cache(cache)
    assert in_use(cache)
    del one
    assert in_use(cache)
    assert two.gather("x", [5]).tolist() == [[5, 5, 5]]
    del two
    assert not in_use(cache)
    assert verify(cache, "values") == []  # nothing was written


def test_a_cache_that_is_put_there_while_it_is_opened_is_in_use(cache, monkeypatch):
    real, asked = reader.reader_lock, []

    def early(folder):
        folder.rename(folder.with_name("aside"))
        try:
            return real(folder)
        finally:
            folder.with_name("aside").rename(folder)
            monkeypatch.setattr(
                reader, "reader_lock", lambda place: asked.append(place) or real(place)
            )

    monkeypatch.setattr(reader, "reader_lock", early)
    opened = open_cache(cache)
    assert asked == [opened.path]
    assert in_use(cache)


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_forked_worker_keeps_what_its_parent_has_let_go(cache, io):
    opened = open_cache(cache, io=io)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go[0], 1)
        os.write(ready[1], opened.gather("x", [4]).tobytes())
        os.read(go[0], 1)
        os._exit(0)
    del opened
    assert in_use(cache)
    os.write(go[1], b".")
    assert np.frombuffer(os.read(ready[0], 99), np.float32).tolist() == [4, 4, 4]
    assert in_use(cache)
    os.kill(child, signal.SIGKILL)  # the kernel frees it, however it ends
    os.waitpid(child, 0)
    assert not in_use(cache)


def waiting(opened, pipe):
    pipe.send(opened.gather("x", [3]).tolist())
    pipe.recv()


def test_a_spawned_worker_has_its_own(cache):
    ours, theirs = multiprocessing.Pipe()
    opened = open_cache(cache)
    worker = multiprocessing.get_context("spawn").Process(target=waiting, args=(opened, theirs))
    worker.start()
    assert ours.recv() == [[3, 3, 3]]
    del opened
    assert in_use(cache)
    ours.send("end")
    worker.join(800)
    assert worker.exitcode == 0
    del worker
    assert not in_use(cache)


def test_a_program_that_is_started_does_not_inherit_it(cache):
    opened = open_cache(cache)
    script = "print('here', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, close_fds=False)
    # It is a program of its own by now, and no copy of this one
    assert child.stdout.readline() == b"here\n"
    del opened
    assert not in_use(cache)
    child.communicate(b"\n")


def test_a_copy_has_its_own(cache):
    opened = open_cache(cache)
    again = pickle.loads(pickle.dumps(opened))  # noqa: S301  our own
    del opened
    assert in_use(cache)
    del again
    assert not in_use(cache)


def test_on_a_network_file_system_none_is_taken_and_reading_works(cache, monkeypatch):
    monkeypatch.setattr(reader, "is_local", lambda path: False)
    opened = open_cache(cache)
    assert not in_use(cache)
    assert opened.gather("x", [2]).tolist() == [[2, 2, 2]]


def test_what_is_removed_under_a_reader_there_is_told_as_such(cache, monkeypatch):
    monkeypatch.setattr(reader, "is_local", lambda path: False)
    opened = open_cache(cache)
    shutil.rmtree(cache)
    with pytest.raises(EvictedError, match="was removed while it was being read"):
        opened.gather("x", [2])


def test_a_read_only_file_system_is_read_and_locked(cache, tmp_path):
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody mount anything (unshare -m)")
    script = (
        "import sys; from pathlib import Path; from datacheck.cache import manifest as lease, "
        "open_cache\n"
        "cache = open_cache(sys.argv[1]); print(cache.gather('x', [1]).tolist(), "
        "lease.exclusive_lock(Path(sys.argv[1])))\n"
        "Path(sys.argv[1], 'new').touch()"
    )
    mounts = (
        f'mount --bind "{tmp_path}" "{tmp_path}" && mount -o remount,ro,bind "{tmp_path}" && '
        f'exec "$@"'
    )
    command = ["unshare", "-m", "sh", "-c", mounts, "sh", sys.executable, "-c", script, str(cache)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "[[1.0, 1.0, 1.0]] None\n"
    assert "Read-only file system" in done.stderr


def test_who_comes_while_a_cache_is_looked_at_waits_and_while_it_is_removed_is_told(
    cache, monkeypatch
):
    held = manifest.exclusive_lock(cache)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            held.close()

    monkeypatch.setattr(manifest.time, "sleep", pause)
    assert open_cache(cache).gather("x", [0]).tolist() == [[0, 0, 0]]
    assert len(pauses) == 3
    held = manifest.exclusive_lock(cache)
    pauses.extend([0] * 9)
    with pytest.raises(EvictedError, match="just being removed"):
        open_cache(cache)


def test_a_folder_that_changes_places_before_its_lock_is_locked_anew(cache, tmp_path, monkeypatch):
    """The reader opened one manifest, and another has its path by now."""
    other = make_cache(
        tmp_path / "other", {"x": ArraySpec("float32", (3,))}, [{"x": np.full(3, 9)}]
    )
    real, calls = fsops.hold, []

    def late(path, *, shared):
        held = real(path, shared=shared)
        if not calls:
            fsops.exchange(cache, other)
        calls.append(path)
        return held

    monkeypatch.setattr(fsops, "hold", late)
    held = manifest.reader_lock(cache)
    monkeypatch.setattr(fsops, "hold", real)
    assert len(calls) == 2
    assert (in_use(cache), in_use(other)) == (True, False)
    held.close()
