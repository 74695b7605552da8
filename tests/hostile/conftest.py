"""What an honest user has: data, a finished run, caches, runs of training. Attacks change copies of it."""

from __future__ import annotations

import shutil

import pytest

from tests.hostile.ground import ALL, PLAIN, SCRIPT, Ground, plain_samples, secret_files
from tests.repro.traces import make_run


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """A place in which the commands have run on good data."""
    ground = Ground(tmp_path_factory.mktemp("honest"))
    place = ground.place
    plain_samples(place / "clean")
    (place / "plain.yaml").write_text(PLAIN)
    (place / "all.yaml").write_text(ALL)
    for name in ("a", "b"):
        make_run(place / "runs" / name, steps=3)
    made = ("--data", "clean", "--out", "caches")
    for words in (("scan", "clean", "--schema", "plain.yaml"), ("cache", "build", "plain.yaml", *made)):
        ended = ground.run(SCRIPT, *words)
        assert ended.code == 0, ended.text
    return ground.place


@pytest.fixture
def ground(honest, tmp_path):
    """A copy of the honest place, and secrets outside of it."""
    ground = Ground(tmp_path)
    ground.place.rmdir()
    shutil.copytree(honest, ground.place, symlinks=True)
    (ground.place / "made").mkdir()
    secret_files(ground.outside, ground.token)
    return ground
