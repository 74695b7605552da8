"""Flipped bits and damaged files, reduced: each is found and named. In full: scripts/bench/faults/flips.py."""

from __future__ import annotations

import runpy

import pytest


@pytest.fixture(scope="module")
def script(repository):
    return runpy.run_path(str(repository / "scripts/bench/faults/flips.py"))


@pytest.mark.slow
@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_every_flip_and_every_damaged_file_is_found_and_named(script, tmp_path, capsys, compress):
    asked = ["--flips", "150", "--share", "0.1", "--compress", compress, "--folder", str(tmp_path)]
    assert script["main"](asked) == 0
    table = {line[:26].strip(): line[26:].split() for line in capsys.readouterr().out.splitlines()}
    assert table["bit flips"] == ["150"] * 3
    assert table["reads after a flip"] == ["8"] * 3


def test_a_check_that_finds_or_names_too_little_is_told(script, tmp_path):
    """The controls, planted by hand: the script must not be content with either."""
    oracle, rng = script["Oracle"](script["make"](tmp_path)), script["random"].Random(1)
    silent = script["flips"](oracle, 30, rng, lambda cache: [])["bit flips"]
    assert (silent.found, len(silent.wrong)) == (0, 30)
    beside = script["flips"](oracle, 30, rng, script["names_the_next"])["bit flips"]
    assert beside.found == 30
    assert beside.wrong
    assert script["controls"](oracle, 0) == []
    believed = script["whole_files"](oracle, rng, lambda cache: [], tmp_path / "away", 0.05)
    assert all(tally.found == 0 for tally in believed.values())
