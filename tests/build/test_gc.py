"""What is removed of a folder of caches: what nobody needs and nobody reads, and of that only what is a cache's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.build import gc, staging
from datacheck.build.gc import freed_bytes, remove, survey
from datacheck.cache import manifest, open_cache
from datacheck.cache.find import find_builds, find_caches, find_trash
from datacheck.errors import CorruptionError, StorageError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime import fsops, machine
from datacheck.runtime.fsops import System
from tests.build.test_resume import KilledError, Killing
from tests.cache.make import make_cache, unprivileged

SPECS = {"x": ArraySpec("float32", (700,))}
DAY = 86400.0


def cache(root, number, *, days=0.0, **more):
    """Make a cache that was published `days` ago."""
    made = make_cache(root, SPECS, [{"x": np.full(700, number)}], key=f"{number:016x}", **more)
    then = time.time() - days * DAY
    os.utime(made, (then, then))
    return made


def going(found):
    return {one.path.name for one in found if one.goes}


def words(found):
    return {one.path.name: one.why for one in found}


def sweep(root, *policy, **more):
    found = survey(root, *policy, **more)
    return [one for one in found if one.goes and remove(one)]


def files(root):
    return sorted(
        str(p.relative_to(root)) for p in Path(root).rglob("*") if p.is_symlink() or p.is_file()
    )


# ---------------------------------------------------------------------------------------- what goes


def test_the_newest_of_each_split_stay(tmp_path):
    made = [cache(tmp_path, n, days=n) for n in range(4)] + [
        cache(tmp_path, 7, days=9, split="val")
    ]
    assert going(survey(tmp_path)) == set()
    assert going(survey(tmp_path, 2)) == {made[2].name, made[3].name}
    assert going(survey(tmp_path, 0)) == {one.name for one in made}
    assert going(survey(tmp_path, None, 1.5 * DAY)) == {made[2].name, made[3].name, made[4].name}
    assert going(survey(tmp_path, 1, 2.5 * DAY)) == {made[3].name}
    assert going(survey(made[0].parent, 3)) == {made[3].name}
    before = files(tmp_path)
    assert all(word for word in words(survey(tmp_path, 1)).values())
    assert files(tmp_path) == before  # a survey changes nothing
    assert {one.path for one in sweep(tmp_path, 2)} == {made[2], made[3]}
    assert set(find_caches(tmp_path)) == {made[0], made[1], made[4]}
    assert not list(tmp_path.rglob(".trash"))


def test_what_a_reader_holds_stays(tmp_path):
    made = [cache(tmp_path, n, days=n) for n in range(3)]
    opened = open_cache(made[2])
    found = survey(tmp_path, 1)
    assert words(found)[made[2].name] == "in use"
    assert going(found) == {made[1].name}
    late = open_cache(made[1])  # between the survey and the removal
    assert [remove(one) for one in found if one.goes] == [False]
    assert (opened.gather("x", [0]) == 2).all()
    assert (late.gather("x", [0]) == 1).all()
    del opened, late
    assert len(sweep(tmp_path, 1)) == 2


def test_builds_whose_builder_is_gone_go(tmp_path):
    place = tmp_path / "tiny/all"
    with staging.claim(place, "a" * 16) as stage:
        (stage.work / "records").mkdir()
        (dead := stage.folder.with_name("b" * 16 + "." + "1" * 32)).mkdir()
        (dead / staging.OWNER).write_text("{}")
        (dead / "work/records").mkdir(parents=True)
        (dead / "work/records/0").write_bytes(b"x" * 99)
        (ownerless := dead.with_name("." + "c" * 16 + "." + "2" * 32)).mkdir()
        (unlocked := dead.with_name("." + "e" * 16 + "." + "4" * 32)).mkdir()
        (unlocked / staging.OWNER).write_text("{}")  # about to be locked, and then to lose its dot
        (half := dead.with_name("." + "d" * 16 + "." + "3" * 32 + ".gone")).mkdir()
        (half / "work/shards/fields/x").mkdir(parents=True)
        (half / "work/shards/fields/x/.c.0.0.0123456789ab.partial").write_bytes(b"x" * 10)
        os.utime(half, (1, 1))
        (mine := dead.with_name("notes")).mkdir()
        said = words(survey(tmp_path))
        assert said[stage.folder.name] == "at work"
        assert said[dead.name] == "its builder is gone"
        assert said[ownerless.name] == said[unlocked.name] == "just being made"
        assert said[half.name] == "its builder is gone"
        assert said[mine.name] == "not named like a build"
        assert freed_bytes([one for one in survey(tmp_path) if one.goes]) == 111
        assert {one.path for one in sweep(tmp_path)} == {dead, half}
        for path in (ownerless, unlocked):
            os.utime(path, (1, 1))
        assert [one.path for one in sweep(tmp_path, None, DAY)] == [ownerless, unlocked]
        assert set(find_builds(tmp_path)) == {stage.folder, mine}


def test_on_a_network_file_system_only_who_says_so_removes_what_may_be_read(tmp_path, monkeypatch):
    made = [cache(tmp_path, n, days=n) for n in range(2)]
    build = made[0].parent / ".building" / ("a" * 16 + "." + "1" * 32)
    build.mkdir(parents=True)
    (build / staging.OWNER).write_text("{}")
    monkeypatch.setattr(machine, "is_local", lambda path: False)
    monkeypatch.setattr(manifest, "exclusive_lock", None)  # locks are not asked
    assert going(survey(tmp_path, 1)) == set()
    assert "--unlocked" in words(survey(tmp_path, 1))[made[1].name]
    assert going(survey(tmp_path, 1, unlocked=True)) == {made[1].name}
    hour = time.time() - 3600
    os.utime(build / staging.OWNER, (hour, hour))
    assert words(survey(tmp_path))[build.name] == "at work"  # clocks may differ by hours
    os.utime(build / staging.OWNER, (hour - DAY, hour - DAY))
    assert {one.path for one in sweep(tmp_path, 1, unlocked=True)} == {made[1], build}


def test_shared_files_give_nothing_back_until_their_last_name_goes(tmp_path):
    one, two = cache(tmp_path, 1, days=5), cache(tmp_path, 2)
    shard, size = "fields/x/c.0.0", 4 * 700
    (two / shard).unlink()
    (two / shard).hardlink_to(one / shard)
    total = sum(p.stat().st_size for p in one.rglob("*") if p.is_file())
    (first,) = (found for found in survey(tmp_path, 1) if found.goes)
    assert (first.path, freed_bytes([first])) == (one, total - (one / shard).stat().st_size)
    both = survey(tmp_path, 0)
    assert (
        freed_bytes(both) - sum(freed_bytes([found]) for found in both)
        == (one / shard).stat().st_size
        >= size
    )
    remove(first)
    assert open_cache(two, verify="manifest").gather("x", [0]).shape == (1, 700)


# --------------------------------------------------------------------------------- what is not ours


def test_what_is_strange_stays_and_is_named(tmp_path):
    made = cache(tmp_path, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("c.0.0", "c.1.0", "keep.txt"):
        (outside / name).write_text("mine")
    (made / "notes.txt").write_text("mine")
    (made / "fields/x/c.1.0").write_text("named like a shard, and in no manifest")
    (made / "fields/link").symlink_to(outside)
    shutil.rmtree(made / "samples")
    (made / "samples").symlink_to(outside)
    (made / "empty").mkdir()
    (made / "findings.json").unlink()
    (made / "findings.json").symlink_to(outside / "keep.txt")
    (found,) = sweep(tmp_path, 0)
    (left,) = find_trash(tmp_path)
    named = {str(path.relative_to(left)) for path in found.strange}
    assert named == {"notes.txt", "fields/x/c.1.0", "fields/link", "samples", "findings.json"}
    assert set(files(left)) == named | {"manifest.json"}
    assert len(files(outside)) == 3
    (again,) = sweep(tmp_path)  # and again, until somebody looks at it
    assert {path.name for path in again.strange} == {Path(name).name for name in named}


def test_what_cannot_be_listed_or_removed_stays_and_the_rest_goes(tmp_path):
    made = [cache(tmp_path, n, days=n) for n in range(2)]
    closed = cache(tmp_path, 3, split="val")
    (build := made[0].parent / ".building" / ("a" * 16 + "." + "1" * 32) / "work").mkdir(
        parents=True
    )
    (build / "attempt").touch()
    for path, mode in ((closed, 0o000), (build, 0o500)):
        path.chmod(mode)
    try:
        with unprivileged():
            os.utime(build.parent, (1, 1))
            found = survey(tmp_path, 1)
            assert words(found)[closed.name] == "cannot be listed: permission denied"
            assert {one.path.name: remove(one) for one in found if one.goes} == {
                made[1].name: True,
                build.parent.name: False,
            }
    finally:
        closed.chmod(0o755)
        for path in tmp_path.rglob("work"):
            path.chmod(0o755)
    assert set(find_caches(tmp_path)) == {made[0], closed}
    assert len(sweep(tmp_path)) == 1  # that build


def test_folders_nested_a_thousand_deep_stay_and_the_rest_goes(tmp_path):
    made = [cache(tmp_path, n, days=n) for n in range(2)]
    here = os.open(made[1], os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    found = survey(tmp_path, 0)
    assert going(found) == {one.name for one in made}
    assert {one.path for one in found if remove(one)} >= {made[0]}
    assert not made[0].exists()
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)  # pytest cannot


@pytest.mark.parametrize("kind", ["cache", "trash", "build"])
def test_a_folder_that_becomes_a_link_leads_to_no_other_cache(tmp_path, kind):
    root = tmp_path / "out"
    made = cache(root, 1)
    place = made.parent
    name = {
        "cache": made.name,
        "trash": f".trash/{made.name}.{'0' * 32}",
        "build": f".building/{made.name}.{'0' * 32}",
    }
    (place / name[kind]).parent.mkdir(exist_ok=True)
    if kind == "build":
        shutil.rmtree(made)
        (place / name[kind] / "work/records").mkdir(parents=True)
        (place / name[kind] / "work/records/0").write_bytes(b"x")
        (place / name[kind] / staging.OWNER).write_text("{}")
    elif kind == "trash":
        made.rename(place / name[kind])
    (found,) = [one for one in survey(root, 0) if one.goes]
    assert found.kind == kind
    outside = tmp_path / "outside"
    place.rename(outside)
    place.symlink_to(outside)
    before = files(outside)
    assert before
    with suppress(StorageError):
        remove(found)
    assert files(outside) == before
    place.unlink()
    outside.rename(place)  # the control
    assert remove(found)
    assert files(place) == []


def test_a_pipe_is_never_waited_for(tmp_path):
    made = [cache(tmp_path, n) for n in range(2)]
    (made[0] / "zarr.json").unlink()
    os.mkfifo(made[0] / "zarr.json")
    (made[1] / "manifest.json").unlink()
    os.mkfifo(made[1] / "manifest.json")
    (made[1].parent / ".trash").mkdir()
    made[1].rename(made[1].parent / ".trash" / f"{made[1].name}.{'1' * 32}")
    assert [one.kind for one in survey(tmp_path, 0)] == ["trash", "unknown"]
    (found,) = sweep(tmp_path, 0)
    assert [path.name for path in found.strange] == ["manifest.json"]


def test_a_cache_that_a_build_moves_aside_just_before_is_left_to_it(tmp_path, monkeypatch):
    made = cache(tmp_path, 1)
    (found,) = survey(tmp_path, 0)
    real = gc.exclusive_lock

    def late(folder):
        held = real(folder)
        folder.rename(tmp_path / "aside")
        return held

    monkeypatch.setattr(gc, "exclusive_lock", late)
    assert not remove(found)
    assert not made.exists()
    assert len(open_cache(tmp_path / "aside", verify="full")) == 1


@pytest.mark.parametrize("kind", ["_cache", "_build", "_trash"])
def test_what_others_remove_meanwhile_is_not_told(tmp_path, monkeypatch, kind):
    made = [cache(tmp_path, n, days=n) for n in range(2)]
    for path in (".building/" + "a" * 16 + "." + "1" * 32, ".trash/" + "b" * 16 + "." + "2" * 32):
        (made[0].parent / path).mkdir(parents=True)
    real = getattr(gc, kind)

    def late(path, *more):
        shutil.rmtree(path)
        return real(path, *more)

    monkeypatch.setattr(gc, kind, late)
    left = {"cache", "build", "trash"} - {kind.removeprefix("_")}
    assert {one.kind for one in survey(tmp_path)} == left


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: (c / "manifest.json").write_text('{"name": "a web page"}'),
        lambda c: (c / "manifest.json").write_text("{"),
        lambda c: c.rename(c.with_name("my copy")),
        lambda c: c.rename(c.with_name("f" * 16)),
        lambda c: (c / "zarr.json").write_text("{}"),
        lambda c: (c / "zarr.json").unlink(),
    ],
)
def test_a_folder_that_no_build_named_is_not_removed(tmp_path, damage):
    made = cache(tmp_path, 1)
    damage(made)
    before = files(tmp_path)
    assert sweep(tmp_path, 0) == []
    assert [one.kind for one in survey(tmp_path, 0)] == ["unknown"]
    assert files(tmp_path) == before


def test_links_are_not_followed(tmp_path):
    real = cache(tmp_path / "elsewhere", 1)
    root = tmp_path / "root"
    (root / "tiny/all").mkdir(parents=True)
    (root / "tiny/all" / real.name).symlink_to(real)
    (root / "linked").symlink_to(real.parent.parent)
    (root / "tiny/all/.trash").symlink_to(real.parent)
    assert survey(root, 0) == []
    made = cache(root, 2)
    before = files(real.parent)
    with pytest.raises(StorageError, match=r"\.trash: is a link"):
        sweep(root, 0)
    assert (made.is_dir(), files(real.parent)) == (True, before)
    (root / "tiny/all/.trash").unlink()
    assert len(sweep(root, 0)) == 1
    assert len(open_cache(real, verify="full")) == 1


def test_other_folders_and_files_are_not_looked_at(tmp_path):
    (tmp_path / "a/b/c/d").mkdir(parents=True)
    (tmp_path / ".git/manifest.json").parent.mkdir()
    (tmp_path / ".git/manifest.json").write_text("{}")
    (tmp_path / "file").touch()
    assert survey(tmp_path, 0) == []
    with pytest.raises(UsageError, match="no such folder"):
        survey(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"a cache\. Name the folder"):
        survey(cache(tmp_path, 1), 0)
    with pytest.raises(UsageError, match="neither can be negative"):
        survey(tmp_path, -1)


def test_the_trash_goes_whatever_is_damaged_there(tmp_path):
    for number, damage in enumerate(
        [
            lambda c: None,
            lambda c: (c / "manifest.json").write_text("{"),
            lambda c: (c / "manifest.json").unlink(),
            lambda c: shutil.rmtree(c / "fields"),
            lambda c: (c / "fields/x/c.0.0").write_bytes(b""),
        ]
    ):
        made = cache(tmp_path, number)
        damage(made)
        trash = made.parent / ".trash"
        trash.mkdir(exist_ok=True)
        made.rename(trash / f"{made.name}.{number:032x}")
    assert going(survey(tmp_path, None, 60.0)) == set()  # none of them lies there for a minute
    assert len(sweep(tmp_path)) == 5
    assert files(tmp_path) == []
    (tmp_path / "tiny/all/.trash/mine").mkdir(parents=True)
    assert words(survey(tmp_path)) == {"mine": "not named like what datacheck moves there"}


# ---------------------------------------------------------------------------------- kills and races


@pytest.mark.parametrize("done", [False, True])
def test_a_kill_at_any_call_leaves_it_whole_or_without_a_name_and_the_next_run_finishes(
    tmp_path, monkeypatch, done
):
    counting = Killing(10**9)
    whole_names = files(cache(tmp_path / "counted", 1))
    monkeypatch.setattr(fsops, "SYSTEM", counting)
    sweep(tmp_path / "counted", 0)
    assert counting.calls > 30
    left = {0: 0, 1: 0}
    for number in range(1, counting.calls + 1, 2):
        root = tmp_path / str(number)
        made = cache(root, 1)
        monkeypatch.setattr(fsops, "SYSTEM", Killing(number, done=done))
        with pytest.raises(KilledError):
            sweep(root, 0)
        monkeypatch.setattr(fsops, "SYSTEM", System())
        whole = list(find_caches(root))
        assert all(open_cache(path, verify="full") for path in whole)
        left[len(whole)] += 1
        for trash in find_trash(root):
            if len(files(trash)) < len(whole_names):
                with pytest.raises((CorruptionError, UsageError)):
                    open_cache(trash)
        assert all(not one.strange for one in sweep(root, 0))
        assert files(root) == []
        assert not made.exists()
    assert left[0] > left[1] > 0


def test_readers_that_come_and_go_meet_a_whole_cache_or_none(tmp_path):
    """A reader that has opened a cache can read all of it, however often somebody wants to remove it."""
    place = tmp_path / "tiny/all" / f"{1:016x}"
    ended, wrong, opened = threading.Event(), [], []

    def read():
        while not ended.is_set():
            with suppress(UsageError, CorruptionError):  # it is gone, or goes while it is opened
                found = open_cache(place)
                opened.append(found.path)
                wrong.append(not (found.gather("x", [0]) == 1).all() or not place.exists())
                del found
            time.sleep(0.01)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    removed, end = 0, time.monotonic() + 100
    while (removed < 10 or not opened) and time.monotonic() < end:
        if not place.exists():
            made = cache(tmp_path / "made", 1)
            place.parent.mkdir(parents=True, exist_ok=True)
            made.rename(place)
        removed += len(sweep(tmp_path / "tiny", 0))
    ended.set()
    for one in readers:
        one.join()
    assert not any(wrong)
    assert removed
    assert opened


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_stays_is_what_the_policy_says(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("policy")
    ages = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True))
    made = {cache(root, n, days=age + 0.5): age for n, age in enumerate(ages)}
    readers = {path: open_cache(path) for path in made if data.draw(st.booleans())}
    keep, older = (
        data.draw(st.none() | st.integers(0, 5)),
        data.draw(st.none() | st.integers(0, 20)),
    )
    sweep(root, keep, None if older is None else older * DAY)
    rank = {path: sorted(ages).index(age) for path, age in made.items()}
    expected = {
        path
        for path, age in made.items()
        if path in readers
        or (keep is None and older is None)
        or (keep is not None and rank[path] < keep)
        or (older is not None and age < older)
    }
    assert set(find_caches(root)) == expected
    assert all(
        (reader.gather("x", [0]) == int(path.name, 16)).all() for path, reader in readers.items()
    )


def test_gc_names_its_kinds():
    assert set(gc.Kind.__args__) == {"cache", "build", "trash", "unknown"}
