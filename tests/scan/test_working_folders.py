"""What a scan writes into and empties is a folder of its own, whatever lies beside it under such names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from datacheck.runtime import folders, fsops
from datacheck.runtime.fsops import System
from datacheck.scan import Request, run_dir, run_scan
from datacheck.scan.row_reuse import interrupted_run
from datacheck.schema.load import parse_schema

SCHEMA = """datacheck: 1
name: plain
samples: {files: '*.npy'}
fields: {points: {role: points, shape: [P, 3]}}
"""
MARK = b"datacheck: the parts of an unfinished scan\n"


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder, with data, and a folder elsewhere whose files must stay."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/0.npy", np.zeros((4, 3), np.float32))
    # Else it would count as just written
    os.utime(tmp_path / "data/0.npy", (1_000_000_000, 1_000_000_000))
    (tmp_path / "outside/run").mkdir(parents=True)
    for name in (
        "lock",
        "part-00000000",
        "run/result.json",
        "diary.txt",
        "report.html",
        "result.json",
        "view.html",
    ):
        (tmp_path / "outside" / name).write_bytes(MARK if name == "lock" else b"mine")
    return tmp_path


def place(output=None):
    return run_dir.run_location(parse_schema(SCHEMA), Path("data"), None, {}, output)


def journal():
    return run_dir.Journal(place(), "k")


def scan(**options):
    return run_scan(parse_schema(SCHEMA), Request(Path("data"), workers=1, **options))


def planted(name=".work-{}.0123456789ab"):
    Path(".datacheck").mkdir(exist_ok=True)
    return Path(".datacheck", name.format(place().slot))


def left():
    return sorted(path.name for path in Path(".datacheck").glob(".work*"))


# ---------------------------------------------------------------------------------- what is planted


@pytest.mark.parametrize(
    "name", [".work-{}", ".work-{}.0123456789ab", ".work-{}-2", "latest", "manifests"]
)
def test_a_link_in_a_place_of_ours_leads_nowhere(here, name):
    planted(name).symlink_to(here / "outside")
    before = files(here / "outside")
    for _ in range(2):
        folder = Path(scan().report.folder)
        assert (folder / "result.json").is_file()
        assert folders.is_real(folder)
    assert files(here / "outside") == before
    assert left() == ([planted(name).name] if name.startswith(".work") else [])


@pytest.mark.parametrize("what", ["latest", "20261120T000000Z-{}"])
def test_what_is_no_link_of_ours_is_not_replaced_and_no_run_is_taken_through_one(here, what):
    scan()
    run = Path(".datacheck/latest").resolve()
    planted("latest").unlink()
    run.rename("elsewhere")
    planted(what).symlink_to(here / "elsewhere")
    if what == "latest":
        planted("latest").unlink()
        planted("latest").write_text("mine")
    assert scan().report.run["kept_files"] == 0
    assert Path(".datacheck/latest").is_symlink() or Path(".datacheck/latest").read_text() == "mine"
    assert Path(".datacheck/latest").is_symlink() == (what != "latest")
    assert sorted(files("elsewhere")) == [
        "listing.npz",
        "result.json",
        "samples.parquet",
        "schema.yaml",
        "valid.json",
    ]


@pytest.mark.parametrize("name", ["samples.parquet", "listing.npz", "result.json", "schema.yaml"])
def test_a_run_that_holds_a_link_is_not_gone_on_from(here, name):
    run = Path(scan().report.folder)
    (run / name).rename(here / "elsewhere")
    (run / name).symlink_to(here / "elsewhere")
    again = scan()
    assert again.report.run["kept_files"] == 0
    assert not any(path.is_symlink() for path in Path(again.report.folder).iterdir())


def own(folder, mark=MARK):
    folder.mkdir()
    (folder / "lock").write_bytes(mark)
    return folder


@pytest.mark.parametrize(
    "plant",
    [
        lambda folder, outside: own(folder, b""),
        lambda folder, outside: own(folder, b"another program's"),
        lambda folder, outside: own(folder, MARK + b"x"),
        lambda folder, outside: folder.mkdir(),
        lambda folder, outside: (folder.mkdir(), (folder / "lock").symlink_to(outside / "lock")),
        lambda folder, outside: (folder.mkdir(), os.mkfifo(folder / "lock")),
        lambda folder, outside: (folder.mkdir(), (folder / "lock").mkdir()),
    ],
)
def test_a_folder_with_files_that_carries_no_mark_is_left_alone(here, plant):
    plant(planted(), here / "outside")
    (planted() / "diary.txt").write_text("dear diary")
    with (one := journal()).held():
        assert one.folder != planted()
        one.clear()
    assert (planted() / "diary.txt").read_text() == "dear diary"
    assert left() == [planted().name]
    assert files(here / "outside")["lock"] == MARK


def test_a_folder_of_another_user_is_left_alone(here):
    if os.geteuid():
        pytest.skip("only root gives files away")
    (own(planted()) / "part-00000000").write_text("theirs")
    os.chown(planted(), 1000, 1000)
    with (one := journal()).held():
        assert one.folder != planted()
    (own(control := planted(".work-{}.ba9876543210")) / "part-00000000").write_text("ours")
    with (two := journal()).held():
        assert two.folder in {control, one.folder}


def test_links_in_a_folder_of_ours_are_removed_and_not_followed(here):
    with (one := journal()).held():
        (one.folder / "part-00000000").symlink_to(here / "outside/part-00000000")
        (one.folder / "run").symlink_to(here / "outside/run")
        (one.folder / "more").symlink_to(here / "outside")
        before = files(here / "outside")
        assert interrupted_run(one, here, parse_schema(SCHEMA)) is None
        staged = one.stage({"result.json": b"{}"})
        assert folders.is_real(staged)
        one.clear()
        assert not one.folder.exists()
    assert files(here / "outside") == before


def test_a_part_that_is_a_pipe_or_larger_than_any_is_as_good_as_none(here, monkeypatch):
    with (one := journal()).held():
        os.mkfifo(one.folder / "part-00000000")
        with (one.folder / "part-00000001").open("wb") as file:
            file.truncate(1 << 40)
        assert interrupted_run(one, here, parse_schema(SCHEMA)) is None


@pytest.mark.parametrize("name", [".work-{}.0123456789ab", "run", "part-00000000"])
def test_a_folder_that_becomes_a_link_while_it_is_at_work_leads_nowhere(here, name):
    before = files(here / "outside")
    with (one := journal()).held():
        one.add({"table": [], "items": [], "entries": [], "undeclared": []})
        one.stage({"result.json": b"{}"})
        path = one.folder if name.startswith(".work") else one.folder / name
        path.rename(here / "moved")
        path.symlink_to(here / "outside")
        one.add({"table": [], "items": [], "entries": [], "undeclared": []})
        interrupted_run(one, here, parse_schema(SCHEMA))
        one.clear()
    assert files(here / "outside") == before


# -------------------------------------------------------------------------------- .datacheck itself


@pytest.mark.parametrize("command", ["scan", "rescore"])
def test_a_link_in_the_place_of_the_folder_of_runs_is_refused(here, command, capsys):
    from datacheck.cli.main import run

    Path("plain.yaml").write_text(SCHEMA)
    scan(output=Path("out"))
    Path(".datacheck").symlink_to(here / "outside")
    before = files(here / "outside")
    assert (
        run(
            {"scan": ["scan", "data", "--schema", "plain.yaml"], "rescore": ["rescore", "out"]}[
                command
            ]
        )
        == 3
    )
    said = capsys.readouterr().err
    assert (
        ".datacheck: is a link, and what is written and removed there would be elsewhere. Remove "
        "it, or " in said
    )
    assert "--output DIR" in said
    assert files(here / "outside") == before
    scan(output=Path("another"))


def test_a_working_folder_is_this_users_alone_and_a_run_as_the_umask_has_it(here):
    before = os.umask(0o022)
    try:
        with (one := journal()).held():
            assert stat.S_IMODE(one.folder.stat().st_mode) == 0o700
        folder = Path(scan().report.folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "result.json").stat().st_mode) == 0o644


# -------------------------------------------------------------------------------------------- kills


class KilledError(BaseException):
    """The process is gone."""


class Killing(System):
    """Ends at the N-th call; from there on nothing happens, as if there were no process."""

    def __init__(self, number):
        self.calls = 0

        def counted(kind):
            def call(*given):
                self.calls += 1
                if self.calls >= number:
                    raise KilledError
                return getattr(System, kind)(self, *given)

            return call

        for kind in (name for name in vars(System) if not name.startswith("_")):
            setattr(self, kind, counted(kind))


def work(where):
    """What a scan does to files, without the scan."""
    with (one := run_dir.Journal(where, "k")).held():
        interrupted_run(one, Path("data"), parse_schema(SCHEMA))
        one.add({"table": [], "items": [], "entries": [], "undeclared": []})
        staged = one.stage(
            {"result.json": b'{"format": "datacheck.result/1"}', "valid.json": b"{}"}
        )
        folder = where.publish(staged, "20261120T000000Z")
        one.clear()
    return folder


@pytest.mark.parametrize("output", [None, Path("out")])
def test_a_kill_at_any_call_stops_no_later_scan_and_leaves_nothing(here, monkeypatch, output):
    where = place(output)
    work(where)
    monkeypatch.setattr(fsops, "SYSTEM", counting := Killing(10**9))
    work(where)
    assert counting.calls > 20
    for number in range(1, counting.calls + 1):
        monkeypatch.setattr(fsops, "SYSTEM", Killing(number))
        with pytest.raises(KilledError):
            work(where)
        monkeypatch.setattr(fsops, "SYSTEM", System())
        assert sorted(files(work(where))) == ["result.json", "valid.json"]
        assert [path for path in where.beside.iterdir() if ".work" in path.name] == []
    assert {path.name for path in here.iterdir()} == {
        "data",
        "outside",
        "out" if output else ".datacheck",
    }
