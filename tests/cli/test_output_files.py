"""Every command that writes a file where the user says: anew, or in the place of an older one of its own kind."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import click
import numpy as np
import pytest

from datacheck.cli.main import datacheck, run
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache
from tests.cli.conftest import PLAIN

SCAN = ("scan", "data", "--schema", "plain.yaml")
WRITE = {  # what is written behind the command, and whether an older file of its kind is replaced
    "badge": ((*SCAN, "--badge"), True),
    "cache report": (("cache", "report", "cache", "-o"), True),
    "view": (
        ("view", "3.npy", "--data", "data", "--schema", "plain.yaml", "--no-open", "--out"),
        True,
    ),
    "manifest": (("manifest", "data", "-o"), True),
    "capture": (("repro", "capture", "-o"), True),
    "init": (("init", "data", "-o"), False),
    "card": (("card", ".datacheck/latest", "-o"), False),
    "baseline": (("baseline", ".datacheck/latest", "-o"), False),
}
NAMES = {"badge", "output", "out", "file"}  # of options
FOLDERS = {  # options of such names that name a folder
    "scan --output",
    "rescore --output",
    "demo --out",
    "cache build --out",
    "cache repair --out",
    "cache explain-key --out",
}


@pytest.fixture(scope="module")
def once(tmp_path_factory, forked_python):
    """A folder with data, a run and a cache, and in `made` one file of each command."""
    place = tmp_path_factory.mktemp("once")
    (place / "data").mkdir()
    (place / "made").mkdir()
    (place / "plain.yaml").write_text(PLAIN)
    for i in range(5):
        np.save(place / f"data/{i}.npy", np.full(4, i, np.float32))
    make_cache(place / "cache", {"x": ArraySpec("float32", (2,))}, [{"x": np.zeros(2)}] * 5)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(place)
        monkeypatch.setattr("sys.executable", forked_python)  # a capture starts it
        assert run([*SCAN]) == 0
        assert [run([*words, f"made/{name}"]) for name, (words, _) in WRITE.items()] == [0] * len(
            WRITE
        )
    return place


@pytest.fixture
def written(once, tmp_path, monkeypatch, forked_python):
    shutil.copytree(once, tmp_path / "place", symlinks=True)
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setattr("sys.executable", forked_python)


def write(capsys, name, path):
    code = run([*WRITE[name][0], str(path)])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", WRITE)
def test_an_older_file_of_the_same_kind_is_replaced_or_told(written, capsys, name):
    path = Path("made", name)
    before = path.stat()
    code, err = write(capsys, name, path)
    assert code == (0 if WRITE[name][1] else 2), err
    assert (path.stat().st_ino != before.st_ino) == WRITE[name][1]


@pytest.mark.parametrize("name", WRITE)
def test_a_file_that_another_command_or_program_has_written_stays(written, capsys, name):
    Path("empty").touch()
    Path("page").write_text("<!doctype html><html><head><title>mine</title></head></html>")
    paths = [path for path in Path("made").iterdir() if path.name != name]
    paths += map(
        Path,
        (
            "plain.yaml",
            ".datacheck/latest/result.json",
            ".datacheck/latest/report.html",
            "empty",
            "page",
        ),
    )
    for path in paths:
        before = path.read_bytes(), path.stat()
        code, err = write(capsys, name, path)
        assert code == 2, path
        assert re.search(
            r"exists,? and (was not written by datacheck \S|is not overwritten)", err
        ), err
        assert re.search(r"Name a", err), err
        assert (path.read_bytes(), path.stat()) == before


@pytest.mark.parametrize("name", WRITE)
def test_nothing_is_written_through_a_link_or_into_a_device(written, capsys, name):
    own = Path("made", name)
    before = own.read_bytes()
    Path("link").symlink_to(own)
    Path("dangling").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    Path("folder").mkdir()
    null = os.stat("/dev/null")
    for path in ("link", "dangling", "loop", "pipe", "folder", "/dev/null"):
        code, err = write(capsys, name, path)
        assert (code, "Traceback" in err) == (2, False), (path, err)
    assert Path("link").readlink() == own
    assert own.read_bytes() == before
    assert not Path("nowhere").exists()
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert os.listdir("folder") == []
    assert os.path.samestat(os.stat("/dev/null"), null)


def commands(group, name=""):
    context = click.Context(group, help_option_names=["-h", "--help"])
    for word in group.list_commands(context):
        found = group.get_command(context, word)
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {word}".strip())
        else:
            yield f"{name} {word}".strip(), found


def test_no_command_with_such_an_option_is_left_out():
    found = {
        f"{name} {max(option.opts, key=len)}"
        for name, command in commands(datacheck)
        for option in command.params
        if isinstance(option, click.Option) and NAMES & {word.lstrip("-") for word in option.opts}
    }
    assert found - FOLDERS == {
        "baseline --output",
        "cache report --output",
        "card --output",
        "init --output",
        "manifest --output",
        "report --badge",
        "repro capture --output",
        "rescore --badge",
        "scan --badge",
        "view --out",
    }
