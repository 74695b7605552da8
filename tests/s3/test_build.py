"""A build goes to a bucket whole or not at all, whatever ends it; the same command goes on, and one commit wins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from datacheck.build import make_shards
from datacheck.build import target as targets
from datacheck.build.builder import build_cache
from datacheck.cache import layout, open_cache
from datacheck.cache.find import find_caches
from datacheck.cache.objects import Objects
from datacheck.cache.verify import verify
from datacheck.cli.main import run
from datacheck.errors import (
    CorruptionError,
    NondeterministicBuildError,
    OutOfSpaceError,
    StorageError,
    UsageError,
)
from datacheck.plugins import resolve
from datacheck.runtime import folders, fsops
from datacheck.runtime.fsops import System
from datacheck.workers.parallel import TaskResult
from tests.build.make import MIXED, job_of, mixed, schema_of, tree
from tests.s3.make import delete, everything, files_of, listed, put
from tests.s3.server import SECRET

SCHEMA = """
datacheck: 1
name: s
samples: {files: "*.npz"}
fields: {joints: {role: joints, shape: [21, 3], unit: m, size: 0.1..9}}
"""


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    """Two samples in each of six shards, made in this process."""

    def inline(function, tasks, **_):
        for task in tasks:
            yield TaskResult(task, [resolve(function)(task, lambda _: None)])

    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 13)
    monkeypatch.setattr(make_shards, "ordered_map", inline)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    mixed(folder, 12)
    return folder


@pytest.fixture
def job(data):
    return job_of(schema_of(MIXED), data)


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def golden(job, tmp_path, kept):
    if not kept:
        kept.update(tree(build_cache(job, tmp_path / "golden").path))
    return kept


def on_store(url: str) -> dict[str, bytes]:
    """Every file of the committed cache but build.json."""
    return {path: raw for path, raw in everything(files_of(url)).items() if path != "build.json"}


def puts(seen: list[str]) -> list[str]:
    """The files that requests have put, in order; parts of one file count once."""
    lines = [line.split(" ")[1].partition("?")[0] for line in seen if line.startswith("PUT ")]
    return list(dict.fromkeys(lines))


def left(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# ------------------------------------------------------------------------------------ what is built


def test_a_build_gives_the_bytes_that_a_folder_has(job, golden, url, tmp_path):
    staging = tmp_path / "staging"
    built = build_cache(job, url, staging=staging)
    assert built.path.startswith(f"{url}/tiny/all/")
    assert (built.reused, on_store(built.path)) == (False, golden)
    assert "build.json" in listed(files_of(built.path))
    assert len(listed(built.path)) == len(golden) + 2  # build.json, the commit: and nothing else
    assert left(staging) == []
    assert verify(built.path, "values") == []
    again = build_cache(job, url, staging=staging)
    assert (again.reused, again.path, again.valid) == (True, built.path, built.valid)


def test_large_files_are_put_in_parts(tmp_path, url, monkeypatch, proxy):
    count = 9 << 17  # 9 MiB: two parts
    values = np.random.default_rng(0).random((2, count))
    (tmp_path / "data").mkdir()
    for i, value in enumerate(values):
        np.save(tmp_path / f"data/{i}.npy", value)
    job = job_of(
        schema_of({"x": {"role": "value", "shape": [count], "dtype": "float64"}}, files="*.npy"),
        tmp_path / "data",
    )
    built = build_cache(job, url, staging=tmp_path / "staging")
    assert any("partNumber=2&uploadId" in line for line in proxy.seen)
    np.testing.assert_array_equal(open_cache(built.path).gather("x", [1, 0]), values[[1, 0]])
    assert verify(built.path) == []


def test_the_command_line_builds_and_lists(data, url, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    schema = tmp_path / "s.yaml"
    schema.write_text(
        "datacheck: 1\nname: s\nsamples: {files: '*.npz'}\nfields:\n  joints: {role: joints, "
        "shape: [21, 3]}\n"
    )
    asked = ["cache", "build", str(schema), "--data", str(data), "--out", url]
    assert run(asked) == 0
    path = capsys.readouterr().out.splitlines()[0]
    assert path.startswith(f"{url}/s/all/")
    assert run(asked) == 0
    assert f"{path} (unchanged: it was built before)" in capsys.readouterr().out
    assert left(tmp_path / "home") == []
    put(f"{path}/{'a' * 32}/zarr.json", b"{}")  # of a builder that is gone
    for command, said in {
        ("ls", url): "s         all    ",
        ("info", url): "12 samples",
        ("verify", url): f"{path}: intact",
        ("diff", url, path): "no difference",
        ("explain-key", *asked[2:]): f"{path} (built; nothing differs)",
    }.items():
        assert run(["cache", *command]) == 0, command
        assert said in capsys.readouterr().out
    assert run(["cache", "ls", url]) == 0
    assert f"uncommitted, in {path}" in capsys.readouterr().out


def test_a_pipeline_file_may_name_a_url(data, url, tmp_path):
    from datacheck import build_cache as build

    file = tmp_path / "p.yaml"
    file.write_text(
        f"datacheck: 1\nname: p\nschema: s.yaml\nsource: {{data: '{data}'}}\ncache: {{out: "
        f"'{url}', compress: zstd}}\n"
    )
    (tmp_path / "s.yaml").write_text(SCHEMA)
    (built,) = build(file, staging=tmp_path / "staging")
    assert built.path.startswith(f"{url}/p/all/")
    assert verify(built.path, "values") == []


# -------------------------------------------------------------------------------- what ends a build


BUILD = """
import sys
from pathlib import Path
from datacheck.cache import layout
layout.SHARD_BYTES = 1 << 13
from datacheck.build.builder import build_cache
from tests.build.make import MIXED, job_of, schema_of
out, data, staging = sys.argv[1:]
build_cache(job_of(schema_of(MIXED), Path(data)), out, staging=Path(staging))
"""


@pytest.mark.parametrize("after", [5, 60])
def test_a_build_that_was_killed_goes_on(
    job, data, golden, url, tmp_path, proxy, repository, after
):
    held, reached = threading.Event(), threading.Event()

    def hold(data):
        if data.startswith(b"PUT ") and len(puts(proxy.seen)) > after:
            reached.set()
            held.wait()
        return ""

    proxy.lose = hold
    asked = [sys.executable, "-c", BUILD, url, str(data), str(tmp_path / "staging")]
    process = subprocess.Popen(asked, cwd=repository, process_group=0)
    assert reached.wait(800)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    proxy.lose = lambda _: ""
    held.set()
    assert list(find_caches(url)) == []
    with pytest.raises(UsageError, match="no finished cache"):
        open_cache(url)
    there = {path for path in listed(url) if "/.building" not in path}
    before = len(proxy.seen)
    built = build_cache(job, url, staging=tmp_path / "staging")
    assert on_store(built.path) == golden
    sent = {
        path.removeprefix(f"/{url.removeprefix('s3://')}/") for path in puts(proxy.seen[before:])
    }
    again = {path for path in sent & there if not path.endswith(("build.json", "manifest.json"))}
    assert again == set()
    assert len(there) >= after - 4  # some were on their way
    assert len({path.split("/")[3] for path in listed(url)}) == 2  # the commit, and one attempt
    assert left(tmp_path / "staging") == []


COMMAND = "import sys; from datacheck.cli.main import main; sys.exit(main())"


def test_an_upload_that_the_server_never_answers_can_be_interrupted(
    data, url, tmp_path, proxy, repository
):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    held, reached = threading.Event(), threading.Event()

    def hold(data):
        if data.startswith(b"PUT ") and len(puts(proxy.seen)) > 5:
            reached.set()
            held.wait()
        return ""

    proxy.lose = hold
    asked = ["cache", "build", str(tmp_path / "s.yaml"), "--data", str(data), "--out", url]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *asked, "--staging", str(tmp_path / "staging")],
        cwd=repository,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert reached.wait(800)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=110)  # less than one request may take
    finally:
        process.kill()
        held.set()
    assert process.returncode == 130
    assert "the same command goes on" in said
    proxy.lose = lambda _: ""
    assert run([*asked, "--staging", str(tmp_path / "staging")]) == 0


@pytest.mark.parametrize("how", ["request", "answer", "503"])
def test_a_connection_that_breaks_for_a_while_does_no_harm(job, golden, url, tmp_path, proxy, how):
    lost = []

    def lose(data):
        if data.startswith(b"PUT ") and len(proxy.seen) % 5 == 0 and len(lost) < 8:
            lost.append(how)
            return how
        return ""

    proxy.lose = lose
    built = build_cache(job, url, staging=tmp_path / "staging")
    assert len(lost) == 8
    assert on_store(built.path) == golden


def test_a_server_that_goes_away_leaves_work_that_goes_on(job, golden, url, tmp_path, proxy, hasty):
    proxy.lose = lambda data: "request" if b"/fields/cloud/c.3.0" in data[:300] else ""
    with pytest.raises(StorageError, match="cannot be reached") as error:
        build_cache(job, url, staging=tmp_path / "staging")
    assert error.value.__notes__ == ["6 shards are done and kept: the same command goes on."]
    assert list(find_caches(url)) == []
    proxy.lose = lambda _: ""
    assert on_store(build_cache(job, url, staging=tmp_path / "staging").path) == golden


class Full(System):
    def write(self, descriptor, data):
        import errno

        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= 1
        return super().write(descriptor, data)


def test_a_staging_folder_that_is_full(job, golden, url, tmp_path, monkeypatch):
    full = Full()
    full.left = 3
    with monkeypatch.context() as patch:
        patch.setattr(fsops, "SYSTEM", full)
        with pytest.raises(OutOfSpaceError):
            build_cache(job, url, staging=tmp_path / "staging")
    assert listed(url) == {}
    assert on_store(build_cache(job, url, staging=tmp_path / "staging").path) == golden


def test_what_the_store_lost_is_noticed_before_the_commit(job, url, tmp_path, monkeypatch):
    put_file = Objects.put

    def forgetful(self, key, data, attributes):
        put_file(self, key, data, attributes)
        if key.endswith("manifest.json"):
            delete(f"{self.place}/{key.rpartition('/')[0]}/samples/valid/c.0")

    monkeypatch.setattr(Objects, "put", forgetful)
    with pytest.raises(StorageError, match=r"took samples/valid/c\.0 and now says 0 bytes"):
        build_cache(job, url, staging=tmp_path / "staging")
    assert list(find_caches(url)) == []


def test_what_was_killed_while_it_was_removed_is_removed(job, url, tmp_path, monkeypatch):
    remove = folders.remove_tree
    with monkeypatch.context() as patch:
        patch.setattr(folders, "remove_tree", lambda *_: [])  # killed there
        built = build_cache(job, url, staging=tmp_path / "staging")
        assert left(tmp_path / "staging") != []
    assert folders.remove_tree is remove
    assert build_cache(job, url, staging=tmp_path / "staging").reused
    assert left(tmp_path / "staging") == []
    assert verify(built.path) == []


# --------------------------------------------------------------------------------------- the commit


def test_an_answer_that_was_lost_is_read_back(job, golden, url, tmp_path, proxy, hasty):
    proxy.lose = lambda data: (
        "answer" if data.startswith(b"PUT ") and b"commit.json" in data[:300] else ""
    )
    built = build_cache(job, url, staging=tmp_path / "staging")
    assert any("commit.json" in line for line in puts(proxy.seen))
    assert (built.reused, on_store(built.path)) == (False, golden)


def test_a_commit_that_never_arrives_is_none(job, url, tmp_path, proxy, hasty):
    proxy.lose = lambda data: (
        "request" if data.startswith(b"PUT ") and b"commit.json" in data[:300] else ""
    )
    with pytest.raises(StorageError, match="could not be published"):
        build_cache(job, url, staging=tmp_path / "staging")
    assert list(find_caches(url)) == []
    proxy.lose = lambda _: ""
    before = len(proxy.seen)
    build_cache(job, url, staging=tmp_path / "staging")
    sent = [path.rpartition("/")[2] for path in puts(proxy.seen[before:])]
    assert sent == ["build.json", "manifest.json", "commit.json"] or sent == [
        "manifest.json",
        "commit.json",
    ]


def test_what_nobody_knows_is_said(job, golden, url, tmp_path, proxy, hasty):
    def lose(data):
        if data.startswith(b"PUT ") and b"commit.json" in data[:300]:
            proxy.lose = lambda _: "503"
            return "answer"
        return ""

    proxy.lose = lose
    with pytest.raises(StorageError, match="not known whether it was published"):
        build_cache(job, url, staging=tmp_path / "staging")
    proxy.lose = lambda _: ""
    built = build_cache(job, url, staging=tmp_path / "staging")
    assert (built.reused, on_store(built.path)) == (True, golden)
    assert left(tmp_path / "staging") == []


def race(job, other, url, tmp_path, monkeypatch):
    """Build two jobs of one key that meet at the commit; return what came of each."""
    create, meeting = Objects.create, threading.Barrier(2, timeout=800)

    def together(self, key, data):
        if key.endswith(layout.COMMIT):
            meeting.wait()
        return create(self, key, data)

    monkeypatch.setattr(Objects, "create", together)
    came = [None, None]

    def build(i, one):
        try:
            came[i] = build_cache(one, url, staging=tmp_path / f"staging{i}")
        except Exception as error:  # noqa: BLE001
            came[i] = error

    threads = [threading.Thread(target=build, args=(i, one)) for i, one in enumerate((job, other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return came


def test_two_builders_of_the_same_give_one_cache(job, golden, url, tmp_path, monkeypatch):
    came = race(job, job, url, tmp_path, monkeypatch)
    assert sorted(one.reused for one in came) == [False, True]
    assert on_store(came[0].path) == golden
    assert len({path.split("/")[3] for path in listed(url)}) == 2  # the loser's attempt is gone


NOISE = """
import os
def noise(sample):
    return sample.fields | {"joints": sample.fields["joints"] + int.from_bytes(os.urandom(2))}
"""


def test_two_builders_of_other_content_are_told(data, url, tmp_path, monkeypatch):
    (tmp_path / "noisy.py").write_text(NOISE)
    noisy = [
        job_of(schema_of(MIXED), data, steps=["noisy:noise"], paths=(str(tmp_path),))
        for _ in range(2)
    ]
    monkeypatch.syspath_prepend(tmp_path)
    came = race(*noisy, url, tmp_path, monkeypatch)
    won = [one for one in came if not isinstance(one, Exception)]
    assert len(won) == 1, came
    (lost,) = [one for one in came if isinstance(one, Exception)]
    assert isinstance(lost, NondeterministicBuildError)
    assert "not deterministic" in str(lost)
    kept = Path(str(lost).rpartition(" lies in ")[2])
    assert verify(kept) == []  # what the loser made
    assert verify(won[0].path) == []
    assert len({path.split("/")[3] for path in listed(url)}) == 2


def test_an_attempt_is_tied_to_its_url(job, golden, url, tmp_path, proxy, hasty):
    proxy.lose = lambda data: (
        "503" if data.startswith(b"PUT ") and b"commit.json" in data[:300] else ""
    )
    for place in ("one", "two"):
        with pytest.raises(StorageError):
            build_cache(job, f"{url}/{place}", staging=tmp_path / "staging")
    proxy.lose = lambda _: ""
    assert on_store(build_cache(job, f"{url}/two", staging=tmp_path / "staging").path) == golden


# ----------------------------------------------------------------------------------------- refusals


def test_a_damaged_cache_in_the_place_is_told(job, url, tmp_path):
    path = build_cache(job, url, staging=tmp_path / "staging").path
    delete(f"{files_of(path)}/samples/valid/c.0")
    with pytest.raises(CorruptionError, match=r"samples/valid/c\.0: missing"):
        build_cache(job, url, staging=tmp_path / "staging")


def test_what_cannot_be_written_to_is_told_before_the_scan(tmp_path, url, monkeypatch):
    from datacheck import build_cache as build

    with pytest.raises(UsageError, match="s3://caches/y: caches for a URL grow on a disk"):
        build("ho3d", tmp_path, url, staging="s3://caches/y")
    for out, error in {
        "s3://not-there/x": "no such bucket",
        "ftp://a/b": "caches lie in folders",
    }.items():
        with pytest.raises(UsageError, match=error):
            build("ho3d", tmp_path, out)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError, match="the server refuses"):
        build("ho3d", tmp_path, url)


def test_nothing_of_the_credentials_is_written(job, url, tmp_path, caplog, capfd):
    build_cache(job, url, staging=tmp_path / "staging")
    assert SECRET.encode() not in b"".join(everything(url).values())
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


def test_checking_leaves_nothing_behind(url):
    targets.check_writable(url)
    assert listed(url) == {}
