"""``datacheck cache``: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from datacheck.cache import open_cache
from datacheck.cache.codec import Codec
from datacheck.cache.find import newest_caches, newest_first
from datacheck.cli.main import run
from datacheck.cli.output import counted_lines
from datacheck.model.sample import ArraySpec
from datacheck.runtime.hashing import canonical_json, digest_value
from tests.cache.make import KEY, make_cache, unprivileged
from tests.cache.test_hostile import rewritten, sealed

SPECS = {
    "joints": ArraySpec("float32", (21, 3), attrs={"unit": "m", "role": "joints"}),
    "points": ArraySpec("float64", (3,), "P"),
}


def samples(count):
    return [{"joints": np.zeros((21, 3)), "points": np.zeros((i, 3))} for i in range(count)]


@pytest.fixture
def cache(tmp_path):
    return make_cache(
        tmp_path,
        SPECS,
        samples(5),
        k=2,
        made=[True] * 4 + [False],
        valid=[True, False, True, True, True],
    )


def test_info_says_what_a_cache_holds(cache, tmp_path, capsys):
    assert run(["cache", "info", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "5 samples: 3 valid, 1 invalid, 1 not made" in said
    assert f"key {KEY}" in said
    (joints,) = [line.split() for line in said.splitlines() if line.startswith("joints")]
    assert joints[:4] == ["joints", "float32", "[21,", "3]"]
    assert "unit m" in said
    assert "[P, 3]" in said


def test_columns_are_as_wide_as_what_a_terminal_shows_of_them(tmp_path, capsys):
    specs = {name: ArraySpec("float32", ()) for name in ("x", "关节位置", "e\u0301", "\x1b[31m")}
    assert run(["cache", "info", str(make_cache(tmp_path, specs, [dict.fromkeys(specs, 0)]))]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if " float32 " in line]
    # "关节位置" takes 8 cells, "\x1b[31m" is told with 8 characters
    assert sorted(row.partition("float32")[0] for row in rows) == sorted(
        ["x" + " " * 9, "关节位置  ", "e\u0301" + " " * 9, "\\x1b[31m  "]
    )


def test_a_folder_in_a_list_is_no_command_to_the_terminal(cache, tmp_path, capsys):
    (cache.parent / ".building" / "k\x1b[2J.1").mkdir(parents=True)
    assert run(["cache", "ls", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "k\\x1b[2J" in out
    assert all(sign.isprintable() for sign in out.replace("\n", ""))


def test_info_says_how_fields_are_compressed(cache, tmp_path, capsys):
    packed = make_cache(tmp_path / "packed", SPECS, samples(5), k=2, codec=Codec("zstd", 5))
    for folder, said in ((cache, False), (packed, True)):
        assert run(["cache", "info", str(folder)]) == 0
        assert ("compressed with zstd:5" in capsys.readouterr().out) == said


def test_verify_ends_with_7_and_names_what_is_damaged(cache, tmp_path, capsys):
    assert run(["cache", "verify", str(tmp_path)]) == 0
    assert "intact (every byte)" in capsys.readouterr().out
    assert run(["cache", "verify", "--values", str(tmp_path)]) == 0
    assert "intact (every byte and every sample)" in capsys.readouterr().out
    assert run(["cache", "verify", "--subset", "2/3", "--drop-cache", str(tmp_path)]) == 0
    assert "intact (every byte, part 2 of 3)" in capsys.readouterr().out
    file = cache / "fields/joints/c.1.0.0"
    raw = bytearray(file.read_bytes())
    raw[5] ^= 8
    file.write_bytes(raw)
    assert run(["cache", "verify", "--quick", str(cache)]) == 0
    assert "intact (manifest, files and sizes)" in capsys.readouterr().out
    assert run(["cache", "verify", "--full", str(cache)]) == 7
    said = capsys.readouterr().out
    assert "1 problem\n" in said
    assert (
        "fields/joints/c.1.0.0 (field joints, shard 1, samples 2 to 3, sample/000002 to "
        "sample/000003)" in said
    )
    assert "datacheck cache repair" in said


def test_verify_of_a_folder_looks_at_every_cache_whatever_is_wrong_with_one(
    cache, tmp_path, capsys
):
    newer = make_cache(tmp_path, SPECS, samples(1), pipeline="newer")
    said = json.loads((newer / "manifest.json").read_text()) | {"format": 2}
    del said["digest"]
    (newer / "manifest.json").write_bytes(canonical_json(said | {"digest": digest_value(said)}))
    assert run(["cache", "verify", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert f"{newer}: not checked" in out
    assert f"{cache}: intact" in out
    assert "format 2" in err
    (cache / "sources.json").write_bytes(b"[]")
    assert run(["cache", "verify", str(tmp_path)]) == 7
    assert f"{cache}: 1 problem" in capsys.readouterr().out


def test_verify_of_a_folder_finds_a_cache_that_lost_its_manifest(cache, tmp_path, capsys):
    other = make_cache(tmp_path, SPECS, samples(1), pipeline="other")
    (tmp_path / "tiny" / "all" / ".building" / f"{KEY}.0").mkdir(parents=True)
    (other / "manifest.json").unlink()
    assert run(["cache", "verify", str(tmp_path)]) == 7
    out = capsys.readouterr().out
    assert f"{other}: its manifest is gone" in out
    assert f"{cache}: intact" in out


def test_verify_tells_of_a_cache_without_manifest_also_where_there_is_no_other(
    cache, tmp_path, capsys
):
    (cache / "manifest.json").unlink()
    for place in (tmp_path, cache):
        assert run(["cache", "verify", str(place)]) == 7
        assert f"{cache}: its manifest is gone" in capsys.readouterr().out


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400])
@pytest.mark.parametrize("closed", ["other/all", f"other/all/{KEY}"])
def test_a_folder_that_cannot_be_listed_is_told_and_no_clean_end(
    cache, tmp_path, capsys, closed, mode
):
    other = make_cache(tmp_path, SPECS, samples(1), pipeline="other")
    if closed.endswith(KEY):
        mode &= ~0o100  # who can enter a cache sees its manifest, and that is all that is asked for
    (tmp_path / closed).chmod(mode)
    try:
        with unprivileged():
            assert run(["cache", "verify", "--quick", str(tmp_path)]) == 3
            out, err = capsys.readouterr()
            assert f"not checked: {tmp_path / closed}: permission denied" in out
            assert f"{cache}: intact" in out
            assert "permission denied" in err
            assert run(["cache", "verify", str(tmp_path / "other")]) == 3
            assert run(["cache", "info", str(tmp_path / "other")]) == 3
            assert "permission denied" in capsys.readouterr().err
            assert run(["cache", "ls", str(tmp_path)]) == 0
            assert (
                f"not looked at: {tmp_path / closed}: permission denied" in capsys.readouterr().out
            )
            assert open_cache(tmp_path).path == cache  # the one that can be read
            assert newest_caches(other.parent) == []
    finally:
        (tmp_path / closed).chmod(0o755)


def test_caches_that_go_while_they_are_looked_for_are_left_out(cache, monkeypatch):
    other = make_cache(cache.parents[2], SPECS, samples(1), key="0" * 16)
    real = Path.stat

    def stat(path, **more):
        if path == other and (path / "manifest.json").exists():
            path.rename(path.with_name(".gone"))
        return real(path, **more)

    monkeypatch.setattr(Path, "stat", stat)
    assert newest_first([other, cache]) == [cache]


def test_no_name_in_a_cache_reaches_the_terminal_as_a_command(tmp_path, capsys):
    keys = ["a\x1b[2Jb", "a\x9b31mc"]
    one = make_cache(tmp_path / "one", SPECS, samples(2), keys=keys, k=2)
    two = make_cache(tmp_path / "two", SPECS, samples(2)[::-1], keys=keys, k=2)
    assert run(["cache", "diff", str(one), str(two)]) == 1
    (one / "fields" / "joints" / "c.0.0.0").write_bytes(b"")
    (one / "x\x1b]0;y").touch()
    assert run(["cache", "verify", str(one)]) == 7
    assert run(["cache", "info", str(tmp_path / "no\x1b[1m")]) == 2
    odd = {"x": ArraySpec("float32", (), attrs={"unit": "\x1b[31m"})}
    assert run(["cache", "info", str(make_cache(tmp_path / "odd", odd, [{"x": 0}]))]) == 0
    out, err = capsys.readouterr()
    assert "a\\x1b[2Jb" in out
    assert all(sign.isprintable() for sign in (out + err).replace("\n", ""))


def test_verify_expects_what_info_prints(cache, capsys):
    assert run(["cache", "info", str(cache)]) == 0
    said = dict(
        line.rsplit(" ", 1)
        for line in capsys.readouterr().out.splitlines()
        if line.count(" ") in {1, 2}
    )
    for what in ("digest", "content root"):
        for depth, noted in (("--quick", True), ("--full", True), ("--values", False)):
            assert run(["cache", "verify", depth, "--expect", said[what], str(cache)]) == 0
            note = "compared with recorded digests; --values checks"
            assert (note in capsys.readouterr().out) == noted
    assert run(["cache", "verify", "--quick", "--expect", "0" * 32, str(cache)]) == 7
    assert f"digest {said['digest']}" in capsys.readouterr().out


def test_diff_ends_with_1_and_names_what_differs(cache, tmp_path, capsys):
    for command in (["cache", "diff"], ["diff"]):
        assert run([*command, str(cache), str(cache)]) == 0
        out = capsys.readouterr().out
        assert "no difference\n(by the digests of samples that the caches record; " in out
        assert "datacheck cache verify --values" in out
    changed = samples(6)
    changed[1]["joints"][3, 2] = 0.25
    changed[2]["points"] = np.zeros((1, 3))
    other = make_cache(tmp_path, SPECS, changed, k=4, split="other")
    assert run(["cache", "diff", str(cache), str(other)]) == 1
    said = capsys.readouterr().out
    assert "1 only in the second\n    sample/000005\n" in said
    assert (
        "sample/000001: joints 1 of 63 values, by up to 0.25 (relative 1), first at [3, 2]\n"
        in said
    )
    assert "sample/000002: points [2, 3], then [1, 3]\n" in said
    assert "sample/000004: joints only in the second; points only in the second\n" in said
    assert "2 judged otherwise\n    sample/000001: DC301, then valid\n" in said
    assert run(["cache", "diff", "--field", "nothing", str(cache), str(other)]) == 2
    assert "no field 'nothing'" in capsys.readouterr().err
    assert run(["cache", "diff", str(cache), "nowhere"]) == 2


@pytest.mark.parametrize("share", ["0/3", "4/3", "1", "a/b", "1/2/3"])
def test_a_share_that_is_none_is_a_wrong_request(cache, capsys, share):
    assert run(["cache", "verify", "--subset", share, str(cache)]) == 2
    assert "N/T" in capsys.readouterr().err


def test_verify_shows_the_first_problems_and_counts_the_rest(cache, capsys):
    for i in range(30):
        (cache / f"extra{i:02d}").touch()
    assert run(["cache", "verify", "--quick", str(cache)]) == 7
    said = capsys.readouterr().out
    assert "30 problems" in said
    assert "extra19" in said
    assert "extra20" not in said
    assert "... and 10 more" in said


def test_a_long_name_makes_no_other_row_of_ls_longer(tmp_path, capsys):
    """One cache with a pipeline of 4 MB and 60 empty folders took 3.9 GB."""
    folder = make_cache(tmp_path, SPECS, samples(2))
    rewritten(folder / "zarr.json", ("attributes", "datacheck", "pipeline"), "\x7f" * 100_000)
    sealed(folder)
    for i in range(60):
        (folder.parent / ".building" / f"{i:016x}.{i:032x}").mkdir(parents=True)
    assert run(["cache", "ls", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "\\x7f" * 1_000 + "...  all" in said
    assert len(said) < 60_000


def test_ls_lists_caches_damaged_ones_and_unfinished_builds(cache, tmp_path, capsys):
    make_cache(tmp_path, SPECS, samples(2), split="val")
    broken = make_cache(tmp_path, SPECS, samples(2), split="test")
    (broken / "sources.json").write_text("changed")
    (cache.parent / ".building" / "feedbeef.1234").mkdir(parents=True)
    assert run(["cache", "ls", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["pipeline", "split", "key", "samples", "valid", "size"]
    assert [line.split()[:5] for line in lines if KEY in line and "cannot" not in line] == [
        ["tiny", "all", KEY, "5", "3"],
        ["tiny", "val", KEY, "2", "2"],
    ]
    assert any(
        "test" in line and "cannot be used" in line and "sources.json" in line for line in lines
    )
    assert any("feedbeef.1234" in line and "unfinished" in line for line in lines)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["info", "nowhere"], "no such folder"),
        (["ls", "nowhere"], "no such folder"),
        (["verify", "."], "no finished cache"),
        (["info", "."], "no finished cache"),
    ],
)
def test_wrong_requests_end_with_2_and_one_line(tmp_path, monkeypatch, capsys, command, words):
    monkeypatch.chdir(tmp_path)
    assert run(["cache", *command]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_an_empty_folder_has_no_cache_and_that_is_no_error(tmp_path, capsys):
    assert run(["cache", "ls", str(tmp_path)]) == 0
    assert "no cache here" in capsys.readouterr().out


def test_reading_commands_import_no_builder(cache):
    script = (
        "import sys; from datacheck.cli.main import run; code = run(['cache', 'info', "
        "sys.argv[1]]); "
        "print('loaded', *sys.modules); sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(cache)], check=True, capture_output=True, text=True
    )
    loaded = set(ended.stdout.rpartition("loaded ")[2].split())
    assert "datacheck.cache.reader" in loaded
    assert not loaded & {"zarr", "dask", "torch", "pydantic", "datacheck.build"}


@pytest.mark.parametrize(
    "command", ["build", "info", "report", "verify", "repair", "diff", "export", "gc", "ls"]
)
def test_every_command_in_the_list_is_there(command, capsys):
    assert run(["cache", "--help"]) == 0
    assert f"\n  {command} " in capsys.readouterr().out
    assert run(["cache", command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: datacheck cache {command}")


def test_lines_are_made_of_what_is_shown_and_are_no_longer_than_somebody_reads():
    made = []
    said = list(counted_lines("names", range(5_000), lambda i: made.append(i) or f"{i}" * 20_000))
    assert made == list(range(20))
    assert (said[0], said[-1]) == ("5,000 names", "    ... and 4,980 more")
    assert said[1] == "    " + "0" * 10_000 + " ..."
