"""A damaged cache is made whole from its sources: only what is damaged is made anew, and it comes out as it was."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.build import make_shards, publish
from datacheck.build.builder import build_cache
from datacheck.build.repair import repair_caches
from datacheck.build.salvage import salvage
from datacheck.cache import layout, open_cache
from datacheck.cache.codec import Codec
from datacheck.cache.find import newest_caches
from datacheck.cache.verify import verify
from datacheck.errors import (
    CorruptionError,
    NondeterministicBuildError,
    OutOfSpaceError,
    StorageError,
    UsageError,
)
from datacheck.pipeline import build, repair
from datacheck.plugins import resolve
from datacheck.runtime import fsops
from datacheck.runtime.fsops import System
from datacheck.workers.parallel import TaskResult
from tests.build.make import MIXED, job_of, mixed, schema_of, tree
from tests.build.test_resume import KilledError, Killing, Refusing, edited

SHARDS = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A cache of twelve samples in six shards, and the job that it is the build of."""
    folder = tmp_path_factory.mktemp("whole")
    mixed(folder / "data", 12)
    with pytest.MonkeyPatch.context() as monkeypatch:
        small(monkeypatch)
        job = job_of(schema_of(MIXED), folder / "data", invalid={"003.npz": ("DC201",)})
        return job, build_cache(job, folder / "out").path


def small(monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 12)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 13)


@pytest.fixture
def made(monkeypatch):
    """Run tasks here, and note the shards that were made."""
    small(monkeypatch)
    numbers = []

    def inline(function, tasks, **_):
        for task in tasks:
            numbers.extend(order["g"] for order in task["items"])
            yield TaskResult(task, [resolve(function)(task, lambda _: None)])

    monkeypatch.setattr(make_shards, "ordered_map", inline)
    return numbers


@pytest.fixture
def damaged(whole, tmp_path):
    """A copy of the cache at its place in another folder of caches; and what it has to become again."""
    return copied(whole, tmp_path / "out")


def copied(whole, out):
    job, path = whole
    target = out / "tiny/all" / path.name
    shutil.copytree(path, target)
    return job, target, tree(path)


def mend(job, target, **more):
    (one,) = repair_caches([job], target.parents[2], **more)
    return one


def flip(path, at=5, bit=1):
    edited(path, lambda raw: raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :])


def linked(path):
    """Put a link to a copy in the place of a file."""
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


ALL = set(range(SHARDS))
DAMAGES = {  # what happens, and which shards must then be made anew
    "fixed": (lambda c: flip(c / "fields/joints/c.1.0.0"), {1}),
    "index": (lambda c: flip(c / "fields/joints/c.2.0.0", -7), {2}),
    "ragged": (lambda c: flip(c / "fields/cloud/c.3.0"), {3}),
    "ragged index": (lambda c: flip(c / "fields/cloud/c.3.0", -7), {3}),
    "two fields": (lambda c: (flip(c / "fields/cloud/c.3.0"), flip(c / "fields/score/c.3")), {3}),
    "two shards": (lambda c: (flip(c / "fields/labels/c.0"), flip(c / "fields/good/c.5")), {0, 5}),
    "short": (lambda c: edited(c / "fields/labels/c.4", lambda raw: raw[:-1]), {4}),
    "long": (lambda c: edited(c / "fields/labels/c.4", lambda raw: raw + b"x"), {4}),
    "empty": (lambda c: edited(c / "fields/labels/c.4", lambda raw: b""), {4}),
    "gone": (lambda c: (c / "fields/bits/c.0").unlink(), {0}),
    "link": (lambda c: linked(c / "fields/bits/c.0"), {0}),
    "swapped": (lambda c: swap(c / "fields/joints/c.1.0.0", c / "fields/joints/c.4.0.0"), {1, 4}),
    "field gone": (lambda c: shutil.rmtree(c / "fields/joints"), ALL),
    "extra": (lambda c: (c / "fields/notes.txt").write_text("mine"), set()),
    "digests": (lambda c: flip(c / "digests/fields/cloud/c.0"), set()),
    "keys": (lambda c: flip(c / "samples/key/c.0"), set()),
    "valid": (lambda c: flip(c / "samples/valid/c.0"), set()),
    "starts": (lambda c: flip(c / "rows/P/start/c.0"), set()),
    "group": (lambda c: flip(c / "fields/zarr.json"), set()),
    "root": (lambda c: flip(c / "zarr.json", 40), set()),
    "root gone": (lambda c: (c / "zarr.json").unlink(), set()),
    "array": (lambda c: flip(c / "fields/cloud/zarr.json", 40), set()),
    "findings": (lambda c: flip(c / "findings.json"), set()),
    "inputs": (lambda c: flip(c / "inputs.json"), set()),
    "sources": (lambda c: edited(c / "sources.json", lambda raw: b"{}"), set()),
    "build gone": (lambda c: ((c / "build.json").unlink(), flip(c / "findings.json")), set()),
    "made": (lambda c: flip(c / "samples/made/c.0"), ALL),  # a table of one chunk
    "sample digests": (lambda c: flip(c / "samples/digest/c.0"), ALL),
    "origin": (lambda c: flip(c / "samples/origin/c.0"), ALL),
    "made and a pipe": (
        lambda c: (flip(c / "samples/made/c.0"), pipe(c / "digests/samples/made/c.0")),
        ALL,
    ),
    "lengths": (lambda c: flip(c / "rows/P/length/c.0"), ALL),
    "lengths and root": (lambda c: (flip(c / "rows/P/length/c.0"), flip(c / "zarr.json", 40)), ALL),
    "lengths of origins": (lambda c: (c / "rows/samples.origin/length/c.0").unlink(), ALL),
    "negative lengths": (lambda c: put(c / "rows/samples.origin/length/c.0", [-5]), ALL),
    "lengths without end": (lambda c: put(c / "rows/samples.origin/length/c.0", [2**62] * 4), ALL),
    "present": (lambda c: flip(c / "present/near/c.0"), ALL),
    "manifest": (lambda c: flip(c / "manifest.json", 9), set()),
    "manifest and shard": (
        lambda c: (flip(c / "manifest.json", 9), flip(c / "fields/score/c.2")),
        {2},
    ),
    "manifest cut": (
        lambda c: edited(c / "manifest.json", lambda raw: raw[: raw.index(b"fields/labels/c.3")]),
        ALL,
    ),
    "manifest empty": (lambda c: edited(c / "manifest.json", lambda raw: b""), ALL),
    "manifest gone": (lambda c: (c / "manifest.json").unlink(), ALL),
    "manifest link": (lambda c: linked(c / "manifest.json"), ALL),
    "manifest of another": (
        lambda c: edited(c / "manifest.json", lambda raw: b'{"files": {"../../x": [1, "a"]}}'),
        ALL,
    ),
}


def put(path, numbers):
    """Put numbers into the first places of a table."""
    edited(
        path,
        lambda raw: (
            b"".join(n.to_bytes(8, "little", signed=True) for n in numbers)
            + raw[8 * len(numbers) :]
        ),
    )


def swap(one, other):
    one.rename(one.with_name("between"))
    other.rename(one)
    one.with_name("between").rename(other)


@pytest.mark.parametrize("name", DAMAGES)
def test_only_what_is_damaged_is_made_anew(damaged, made, name):
    job, target, golden = damaged
    damage, wanted = DAMAGES[name]
    damage(target)
    before = tree(target)
    kept = {p: p.stat().st_ino for p in target.rglob("c.*") if p.is_file()}
    one = mend(job, target)
    assert set(made) == wanted
    assert (one.shards, one.rebuilt, one.path) == (SHARDS, len(wanted), target)
    assert one.problems
    assert verify(target) == []
    assert tree(target) == golden
    assert one.moved.parent == target.parent / ".trash"
    assert tree(one.moved) == before  # nothing was written into what the two share
    for g in ALL - wanted:
        for path in (target / "fields").rglob(f"c.{g}*"):
            assert path.stat().st_ino == kept[path]
    assert {p.name for p in target.parent.iterdir()} == {target.name, ".trash"}


def test_a_table_of_many_chunks_costs_the_samples_of_its_damaged_chunk(tmp_path, made, monkeypatch):
    monkeypatch.setattr(layout, "CHUNK_BYTES", 64)  # eight digests to a chunk
    mixed(tmp_path / "data", 12)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    for path, at, wanted in (
        ("samples/digest/c.0", 8 * 8 + 1, range(8, 12)),
        ("rows/P/length/c.0", 3, range(8)),
        ("samples/origin/c.0", 2, None),
        ("rows/samples.origin/length/c.0", 2, range(12)),
    ):
        target = build_cache(job, tmp_path / "out").path
        golden = tree(target)
        if wanted is None:  # those whose origins have bytes in the first 64
            ends = np.cumsum(open_cache(target).lengths("samples.origin"))
            wanted = [i for i in range(12) if (ends[i - 1] if i else 0) < 64]
            assert 0 < len(wanted) < 12
        k = open_cache(target).root.shard_samples
        flip(target / path, at)
        made.clear()
        mend(job, target)
        assert (set(made), tree(target)) == ({i // k for i in wanted}, golden)


def test_damage_beyond_the_problems_that_are_named_is_repaired(damaged, made, monkeypatch):
    monkeypatch.setattr("datacheck.cache.damage.MOST_RUNS", 1)
    job, target, golden = damaged
    for file in ("labels/c.0", "joints/c.2.0.0", "score/c.3", "cloud/c.3.0", "bits/c.4"):
        flip(target / "fields" / file)
    assert mend(job, target).rebuilt == 4
    assert set(made) == {0, 2, 3, 4}
    assert tree(target) == golden


def test_an_intact_cache_is_not_touched(damaged, made):
    job, target, _ = damaged
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in target.rglob("*")}
    one = mend(job, target)
    assert (one.problems, one.rebuilt, one.moved, made) == ([], 0, None, [])
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in target.rglob("*")} == before
    assert [p.name for p in target.parent.iterdir()] == [target.name]


def test_a_compressed_cache_is_repaired(tmp_path, made):
    mixed(tmp_path / "data", 12)
    job = replace(job_of(schema_of(MIXED), tmp_path / "data"), codec=Codec("zstd"))
    target = build_cache(job, tmp_path / "out").path
    golden = tree(target)
    made.clear()
    flip(target / "fields/cloud/c.2.0", 20)
    flip(target / "digests/fields/cloud/c.0", 20)
    assert mend(job, target).rebuilt == 1
    assert (made, tree(target)) == ([2], golden)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_flipped_comes_out_as_it_was(whole, made, tmp_path_factory, data):
    job, target, golden = copied(whole, tmp_path_factory.mktemp("flipped"))
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(sorted(golden)))
        at = data.draw(st.integers(0, max(0, len(golden[name]) - 1)))
        flip(target / name, at, 1 << data.draw(st.integers(0, 7)))
    one = mend(job, target)
    assert tree(target) == golden  # two flips may have undone each other
    assert verify(target) == []
    made.clear()
    assert one.rebuilt <= SHARDS


# ---------------------------------------------------------------------------------- what is refused


@pytest.fixture
def clouds(tmp_path):
    rng = np.random.Generator(np.random.Philox(3))
    (tmp_path / "data").mkdir()
    for i in range(6):
        np.save(tmp_path / f"data/{i}.npy", rng.uniform(-1, 1, (40, 3)).astype(np.float32))
    (made,) = build(cloud_schema(), tmp_path / "data", tmp_path / "out")
    flip(made.path / "fields/points/c.0.0")
    return tmp_path / "data", made.path


def cloud_schema(**more):
    points = {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"}
    return schema_of({"points": points | more}, files="*.npy")


def test_the_sources_of_another_cache_are_refused_and_named(clouds, tmp_path):
    data, path = clouds
    before = tree(path)
    np.save(data / "3.npy", np.ones((40, 3), np.float32))
    with pytest.raises(
        UsageError, match=r"sources: 6 files -> 6 files: 1 changed \(3.npy\)"
    ) as caught:
        repair(cloud_schema(), data, tmp_path / "out")
    assert str(path) in str(caught.value)
    assert tree(path) == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_another_schema_is_refused_and_named_whatever_is_damaged(clouds, tmp_path):
    data, path = clouds
    (path / "fields/points/c.0.0").unlink()
    with pytest.raises(UsageError, match=r"schema.fields.points.unit: m -> cm"):
        repair(cloud_schema(unit="cm"), data, tmp_path / "out")
    edited(path / "inputs.json", lambda raw: b"{")
    with pytest.raises(UsageError, match=r"what differs cannot be told: .*inputs.json"):
        repair(cloud_schema(unit="cm"), data, tmp_path / "out")


def test_a_source_that_rotted_unseen_is_told_and_nothing_changes(clouds, tmp_path):
    data, path = clouds
    before, file = tree(path), data / "3.npy"
    times = file.stat()
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    with file.open("r+b") as opened:
        opened.write(raw)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(UsageError, match=r"3\.npy"):
        repair(cloud_schema(), data, tmp_path / "out")
    assert tree(path) == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_without_a_cache_there_is_nothing_to_repair(damaged, made, tmp_path):
    job, *_ = damaged
    with pytest.raises(UsageError, match=r"no cache of these data.*datacheck cache build"):
        repair_caches([job], tmp_path / "nowhere")


def test_what_is_not_made_as_it_was_changes_nothing(tmp_path, made):
    """A transform that is not deterministic, and a manifest that says something else in good order."""
    mixed(tmp_path / "data", 12)
    count = (
        "import numpy as np\nN = [0]\ndef step(s):\n    N[0] += 1\n    return {**s.fields, "
        "'score': np.float32(N[0])}\n"
    )
    (tmp_path / "counting_step.py").write_text(count)
    job = job_of(
        schema_of(MIXED), tmp_path / "data", steps=["counting_step:step"], paths=[str(tmp_path)]
    )
    target = build_cache(job, tmp_path / "out").path
    flip(target / "fields/score/c.1")
    before = tree(target)
    with pytest.raises(
        NondeterministicBuildError, match=r"made again, \S+ is not what the cache held"
    ) as caught:
        mend(job, target)
    assert caught.value.exit_code == 6
    assert tree(target) == before
    assert {p.name for p in target.parent.iterdir()} == {target.name, ".trash"}


# ------------------------------------------------------------------------------- kills and refusals


def wounded(whole, out):
    job, target, golden = copied(whole, out)
    flip(target / "fields/cloud/c.3.0")
    flip(target / "samples/key/c.0")
    return job, target, golden, tree(target)


@pytest.mark.parametrize("done", [False, True])
def test_a_kill_at_any_call_leaves_the_damaged_or_the_repaired_cache(
    whole, made, tmp_path, monkeypatch, done
):
    counting = Killing(10**9)
    job, target, golden, broken = wounded(whole, tmp_path / "whole")
    monkeypatch.setattr(fsops, "SYSTEM", counting)
    mend(job, target)
    assert counting.calls > 200
    some = range(1 + done, counting.calls, counting.calls // 8)
    # The folders change places there
    numbers = [*some, *range(counting.calls - 17 + done, counting.calls + 1, 2)]
    left = {"damaged": 0, "repaired": 0}
    for number in numbers:
        out = tmp_path / str(number)
        job, target, golden, broken = wounded(whole, out)
        monkeypatch.setattr(fsops, "SYSTEM", Killing(number, done=done))
        with pytest.raises(KilledError):
            mend(job, target)
        found = tree(target)
        assert found in (golden, broken)
        left["repaired" if found == golden else "damaged"] += 1
        monkeypatch.setattr(fsops, "SYSTEM", System())
        mend(job, target)
        assert tree(target) == golden
        assert build_cache(job, out).reused
        assert not [p for p in target.parent.glob(".building/*") if not p.name.startswith(".")]
        shutil.rmtree(out)
    assert all(left.values())


@pytest.mark.parametrize(
    "kind", ["create", "write", "rename", "mkdir", "close", "link", "exchange", "sync"]
)
def test_a_full_or_failing_disk_changes_nothing_and_the_next_run_repairs(
    whole, made, tmp_path, monkeypatch, kind
):
    for number, code in ((0, errno.ENOSPC), (4, errno.EIO), (20, errno.ENOSPC)):
        job, target, golden, broken = wounded(whole, tmp_path / f"{kind}{number}")
        refusing = Refusing(kind, number, code)
        monkeypatch.setattr(fsops, "SYSTEM", refusing)
        raised = None
        try:
            mend(job, target)
        except StorageError as caught:
            raised = caught
        monkeypatch.setattr(fsops, "SYSTEM", System())
        if (kind, code) != ("link", errno.EIO):  # that shard is made instead
            assert (raised is None) == (refusing.left >= 0)
        if raised is not None and kind != "sync":
            assert isinstance(raised, OutOfSpaceError) == (code == errno.ENOSPC)
        assert tree(target) in (golden, broken)
        mend(job, target)
        assert tree(target) == golden


class Without(System):
    """A file system that refuses some calls."""

    def __init__(self, *kinds, code=errno.EOPNOTSUPP):
        def refuse(*_):
            raise OSError(code, os.strerror(code))

        for kind in kinds:
            setattr(self, kind, refuse)


def test_where_links_and_exchanges_are_refused_files_are_copied_and_renamed(
    whole, made, tmp_path, monkeypatch
):
    job, target, golden, broken = wounded(whole, tmp_path / "out")
    monkeypatch.setattr(fsops, "SYSTEM", Without("link", "exchange"))
    one = mend(job, target)
    assert (tree(target), tree(one.moved), made) == (golden, broken, [3])
    assert all(path.stat().st_nlink == 1 for path in target.rglob("c.*") if path.is_file())


def test_a_kill_between_the_two_renames_is_told_and_a_build_goes_on(
    whole, made, tmp_path, monkeypatch
):
    job, target, golden, broken = wounded(whole, tmp_path / "out")
    replaced = []

    class Killed(Without):
        def rename(self, source, to, *more):
            if to == target:
                replaced.append(source)
                for kind in ("rename", "unlink", "rmdir", "mkdir"):
                    setattr(self, kind, self.refused)
            self.rename(source, to, *more) if "rename" in vars(self) else super().rename(
                source, to, *more
            )

        def refused(self, *_):
            raise KilledError

    monkeypatch.setattr(fsops, "SYSTEM", Killed("exchange"))
    with pytest.raises(KilledError):
        mend(job, target)
    monkeypatch.setattr(fsops, "SYSTEM", System())
    assert not target.exists()
    (aside,) = target.parent.glob(".trash/*")
    assert tree(aside) == broken
    with pytest.raises(
        UsageError,
        match=r"a build or repair of it was begun\. Go on with it: datacheck cache build",
    ):
        mend(job, target)
    made.clear()
    assert build_cache(job, tmp_path / "out").kept == SHARDS
    assert (made, tree(target)) == ([], golden)


@pytest.mark.parametrize("link", ["tiny", "tiny/all"])
def test_a_cache_behind_a_link_is_not_repaired(damaged, made, tmp_path, link):
    job, target, _ = damaged
    flip(target / "fields/joints/c.3.0.0")
    place = tmp_path / "shared" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "out" / link)
    before = tree(target.parent)
    with pytest.raises(StorageError, match="is a link"):
        repair_caches([job], tmp_path / "shared")
    assert tree(target.parent) == before


# ----------------------------------------------------------------------------------- others at work


def test_a_trash_that_is_just_being_removed_is_made_again(damaged, made, monkeypatch):
    job, target, golden = damaged
    flip(target / "fields/joints/c.3.0.0")
    real, lost = fsops.rename, []

    def rename(source, to, *folders):
        if to.parent.name == ".trash" and not lost:
            to.parent.rmdir()  # as `cache gc` does
            lost.append(to)
        real(source, to, *folders)

    monkeypatch.setattr(fsops, "rename", rename)
    assert mend(job, target).moved.exists()
    assert lost
    assert tree(target) == golden


@pytest.mark.parametrize(
    "table", ["samples/made", "samples/digest", "rows/P/length", "samples/origin"]
)
def test_what_rots_after_it_was_checked_is_not_believed(damaged, made, monkeypatch, table):
    job, target, golden = damaged
    flip(target / "fields/joints/c.3.0.0")

    def late(*given):
        flip(target / table / "c.0")
        return salvage(*given)

    monkeypatch.setattr("datacheck.build.repair.salvage", late)
    mend(job, target)
    assert set(made) == ALL
    assert tree(target) == golden


@pytest.mark.parametrize(
    "damage", [lambda c: (c / "zarr.json").unlink(), lambda c: edited(c / "zarr.json", bytes.upper)]
)
def test_a_root_that_rots_after_it_was_checked_is_not_believed(damaged, made, monkeypatch, damage):
    job, target, golden = damaged
    flip(target / "fields/joints/c.3.0.0")
    monkeypatch.setattr(
        "datacheck.build.repair.salvage", lambda *given: damage(target) or salvage(*given)
    )
    mend(job, target)
    assert (made, tree(target)) == ([3], golden)


@pytest.mark.parametrize("call", ["exchange", "rename"])
def test_a_damaged_cache_that_is_removed_before_it_is_replaced_is_made_nevertheless(
    damaged, made, monkeypatch, call
):
    job, target, golden = damaged
    flip(target / "fields/joints/c.3.0.0")
    real = getattr(fsops, call)

    def late(one, other, *folders):
        if target in {one, other}:
            shutil.rmtree(target, ignore_errors=True)
        return real(one, other, *folders)

    if call == "rename":  # a file system without exchange
        monkeypatch.setattr(fsops, "exchange", lambda *_: False)
    monkeypatch.setattr(fsops, call, late)
    assert mend(job, target).moved is None
    assert tree(target) == golden


def test_a_cache_that_a_build_names_while_it_is_looked_for_is_repaired(damaged, made, monkeypatch):
    job, target, golden = damaged
    flip(target / "fields/joints/c.3.0.0")
    target.rename(target.with_name(".later"))

    def late(folder):
        target.with_name(".later").rename(target)
        return newest_caches(folder)

    monkeypatch.setattr("datacheck.build.target.newest_caches", late)
    assert mend(job, target).rebuilt == 1
    assert tree(target) == golden


def test_a_damaged_cache_that_is_removed_while_a_build_looks_at_it_is_built(
    damaged, made, monkeypatch
):
    job, target, golden = damaged
    (target / "zarr.json").unlink()
    real = publish.set_aside

    def late(folder, *more):
        shutil.rmtree(folder)
        return real(folder, *more)

    monkeypatch.setattr(publish, "set_aside", late)
    assert not build_cache(job, target.parents[2]).reused
    assert tree(target) == golden


def test_a_damaged_cache_that_comes_back_each_time_ends_a_build(damaged, made, monkeypatch):
    job, target, _ = damaged
    real, aside = publish.set_aside, []

    def returning(folder, place, name=""):
        aside.append(real(folder, place, name))
        shutil.copytree(aside[-1], folder)
        return aside[-1]

    (target / "manifest.json").write_text("{}")
    monkeypatch.setattr(publish, "set_aside", returning)
    with pytest.raises(StorageError, match="5 times this build moved a damaged cache"):
        build_cache(job, target.parents[2])
    assert len(aside) == 1 + 5  # once before the build, then each time that it would publish
    monkeypatch.setattr(publish, "set_aside", real)
    assert build_cache(job, target.parents[2]).kept


def test_a_reader_goes_on_with_the_files_that_it_has(damaged, made):
    job, target, _ = damaged
    flip(target / "fields/joints/c.3.0.0")
    reader = open_cache(target, io="mmap")
    good = reader.gather("joints", [0, 1])
    before = open_cache(target, io="mmap", verify="manifest").gather("joints", [0, 1, 8, 9])
    mend(job, target)
    assert (reader.gather("joints", [0, 1]) == good).all()
    assert (
        reader.gather("joints", [8, 9]) == before[2:]
    ).all()  # never read before the folders changed places
    with pytest.raises(CorruptionError, match="datacheck cache repair"):
        reader.gather("joints", [6])
    assert np.isfinite(open_cache(target).gather("joints", [6])).all()


def test_two_repairs_at_once(whole, made, tmp_path):
    job, target, golden, broken = wounded(whole, tmp_path / "out")
    second = []
    one = mend(
        job, target, progress=lambda tick: second.append(mend(job, target)) if not second else None
    )
    assert (one.moved, tree(second[0].moved)) == (None, broken)
    assert tree(target) == golden
    assert not (target.parent / ".building").exists()


def test_repairs_and_builds_from_many_threads(whole, made, tmp_path):
    job, target, golden, _ = wounded(whole, tmp_path / "out")
    (target / "fields/bits/c.1").unlink()  # a build sees it, too, and puts the cache aside
    found, failed = [], []

    def one(number):
        try:
            path = mend(job, target).path if number % 2 else build_cache(job, tmp_path / "out").path
            found.append(tree(path) == golden)
        except UsageError as error:  # between a build's two renames there is no cache
            known = (
                "no cache of these data",
                "just replacing it",
                "a build or repair of it was begun",
            )
            failed.append(next((words for words in known if words in str(error)), ""))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) + len(failed) == 6
    assert all(failed)
    assert tree(target) == golden
    assert verify(target) == []


def test_a_cache_that_a_build_replaced_meanwhile_stays(whole, made, tmp_path):
    job, target, golden, _ = wounded(whole, tmp_path / "out")
    (target / "fields/bits/c.1").unlink()
    builds = []
    one = mend(
        job,
        target,
        progress=lambda tick: (
            builds.append(build_cache(job, tmp_path / "out")) if not builds else 0
        ),
    )
    assert builds[0].moved is not None
    assert one.moved is None
    assert tree(target) == golden


def test_what_a_repair_left_is_finished_by_a_build(whole, made, tmp_path, monkeypatch):
    job, target, golden, _ = wounded(whole, tmp_path / "out")

    class Stopping(System):
        def exchange(self, one, other, folder=None, to=None):
            raise KeyboardInterrupt

    monkeypatch.setattr(fsops, "SYSTEM", Stopping())
    with pytest.raises(KeyboardInterrupt) as caught:
        mend(job, target)
    assert caught.value.__notes__ == ["6 shards are done and kept: the same command goes on."]
    monkeypatch.setattr(fsops, "SYSTEM", System())
    shutil.rmtree(target)
    made.clear()
    built = build_cache(job, tmp_path / "out")
    assert (built.kept, made, tree(target)) == (SHARDS, [], golden)
