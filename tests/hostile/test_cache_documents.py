"""Damaged documents of caches: each command ends as promised. In full: scripts/bench/faults/cache_documents.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from datacheck.build.export import export
from datacheck.cache import layout, open_cache
from datacheck.cache.verify import verify
from datacheck.cli.main import run
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset
from tests.cache.make import make_cache
from tests.cache.test_hostile import OF_A_FIELD, SPECS, small

ACTIONS = "ls,gc,verify all,verify,info,npz,dataset,everything"


@pytest.mark.slow
def test_no_damaged_document_ends_a_command_otherwise_than_promised(repository, tmp_path):
    place = repository / "scripts/bench/faults/cache_documents.py"
    words = ["--each", "--seed", "9000", "--seconds", "300", "--actions", ACTIONS]
    done = subprocess.run(
        [sys.executable, place, *words, "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"13 mutations, seeds 9000 to 9012; 0 wrong", done.stdout)


def in_place(path, what, away):
    """Put something else in the place of a file."""
    size = path.stat().st_size
    path.rename(away)
    if what == "link":
        path.symlink_to(away)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, size if what == "zeros" else 1 << 40)


@pytest.fixture
def cache(tmp_path):
    return small(tmp_path / "caches")


def everything(folder):
    """Read what a cache holds."""
    opened = open_cache(folder)
    whole = np.arange(len(opened))
    assert (opened.findings(), opened.keys(whole), opened.usable) is not None
    opened.gather("joints", whole)
    opened.gather_ragged("points", whole)


@pytest.mark.parametrize("what", ["link", "pipe", "device", "folder", "sparse"])
@pytest.mark.parametrize(
    "file",
    [
        "manifest.json",
        "zarr.json",
        OF_A_FIELD,
        "findings.json",
        "fields/joints/c.0.0",
        "rows/P/start/c.0",
        "digests/fields/points/c.0",
    ],
)
def test_all_readers_refuse_what_lies_in_the_place_of_a_file(cache, tmp_path, file, what):
    in_place(cache / file, what, tmp_path / "away")
    # No manifest, so no cache
    gone = file == "manifest.json" and what in {"pipe", "folder", "device"}
    readers = (
        everything,
        lambda c: list(CachedDataset(c)),
        lambda c: export(c, tmp_path / "out", "npz"),
    )
    for reader in readers:
        with pytest.raises(CorruptionError if not gone else Exception) as told:
            reader(cache)
        assert type(told.value).__module__ == "datacheck.errors"
    assert not (tmp_path / "out").exists()
    assert (
        any(problem.file == file for problem in ([] if gone else verify(cache, "quick")))
        is not gone
    )


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize(
    "inside", ["fields", "fields/joints", "rows/P", "samples", "digests/samples/key"]
)
def test_no_link_to_a_folder_is_followed(cache, tmp_path, inside, io):
    (cache / inside).rename(tmp_path / "away")
    (cache / inside).symlink_to(tmp_path / "away")
    with pytest.raises(CorruptionError, match="no plain file"):
        open_cache(cache, io=io)
    assert verify(cache, "quick")


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_link_that_comes_behind_the_opening_is_not_followed_either(cache, tmp_path, io):
    """The sizes have been asked for, the file is opened later."""
    opened = open_cache(cache, io=io)
    in_place(cache / "fields/joints/c.0.0", "link", tmp_path / "away")
    with pytest.raises(CorruptionError, match=r"fields/joints/c\.0\.0: "):
        opened.gather("joints", [0])


def test_a_shard_that_is_cut_behind_the_opening_is_not_mapped(cache):
    """A map behind the end of a file would end the process."""
    opened = open_cache(cache, io="mmap")
    array = opened._arrays["fields/joints"]
    assert array.used_chunks == [1, 1, 1]
    os.truncate(cache / "fields/joints/c.1.0", 0)
    with pytest.raises(CorruptionError, match=r"fields/joints/c\.1\.0: ends too early"):
        opened.gather("joints", [2])


def test_links_on_the_way_to_a_cache_are_its_users_own(cache, tmp_path):
    (tmp_path / "mine").symlink_to(cache.parents[2])
    opened = open_cache(tmp_path / "mine" / cache.relative_to(cache.parents[2]))
    assert len(opened) == 5
    assert verify(opened.path) == []
    (tmp_path / "key").symlink_to(cache)
    assert open_cache(tmp_path / "key").gather("joints", [0, 4]).shape == (2, 3)


@pytest.mark.parametrize(
    "command", [["ls"], ["gc", "--keep", "0"], ["verify", "--quick"], ["verify"]]
)
@pytest.mark.parametrize("what", ["sparse", "zeros", "link"])
def test_commands_over_a_folder_name_the_damaged_cache_and_go_on(
    cache, tmp_path, capsys, command, what
):
    keys = [f"{n:016x}" for n in (1, 2)]
    samples = [{"joints": np.ones(3, np.float32), "points": np.ones((2, 2)), "more": 1}]
    others = [make_cache(tmp_path / "caches", SPECS, samples, key=key) for key in keys]
    in_place(cache / layout.MANIFEST, what, tmp_path / "away")
    code = run(["cache", command[0], str(tmp_path / "caches"), *command[1:]])
    told = capsys.readouterr()
    assert (code, told.err) == (7 if command[0] == "verify" else 0, "")
    assert all(path.name in told.out for path in (cache, *others))
    assert (
        "manifest" in next(line for line in told.out.splitlines() if cache.name in line)
        or "manifest" in told.out
    )


def test_a_cache_that_is_copied_with_its_links_is_damaged_not_lost(cache, tmp_path):
    """`cp -r` of a folder of links leaves links: what they lead to is not the cache's."""
    copy = tmp_path / "copy"
    for path in cache.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(cache)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(cache)).symlink_to(path)
    with pytest.raises(CorruptionError, match=r"manifest\.json: no plain file"):
        open_cache(copy)
    shutil.rmtree(copy)
    shutil.copytree(cache, copy)
    assert verify(copy) == []


SECRET = "told-outside"


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["info"],
        ["verify"],
        ["report", "-o", "page.html"],
        ["diff", "shared"],
        ["export", "--to", "out", "--as", "webdataset"],
        ["gc", "--keep", "0"],
    ],
)
def test_no_command_reads_a_cache_behind_a_link_in_a_folder_of_caches(
    tmp_path, monkeypatch, capsys, words
):
    monkeypatch.chdir(tmp_path)
    make_cache(
        tmp_path / "outside",
        {"x": ArraySpec("uint8", (), "x", "text")},
        [{"x": SECRET}],
        pipeline=SECRET,
    )
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/x").symlink_to(f"../outside/{SECRET}")
    code = run(["cache", words[0], "shared", *words[1:]])
    told = capsys.readouterr()
    assert code == (0 if words[0] in {"ls", "gc"} else 2)
    assert SECRET not in told.out + told.err
    assert not (tmp_path / "page.html").exists()
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="is a link, which is not followed"):
        CachedDataset("shared")


def test_commands_over_a_folder_name_the_links_that_they_pass_over(cache, tmp_path, capsys):
    (tmp_path / "caches/elsewhere").symlink_to(tmp_path)
    assert run(["cache", "verify", str(tmp_path / "caches")]) == 0
    assert run(["cache", "ls", str(tmp_path / "caches")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "elsewhere" in line and "link" in line]) == 2
    assert len([line for line in lines if cache.name in line]) == 2
