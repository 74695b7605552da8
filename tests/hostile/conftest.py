"""What an honest user has: data, a finished run, caches, runs of training. Attacks change copies of it."""

from __future__ import annotations

import shutil

import pytest

from tests.hostile import places
from tests.hostile.ground import Ground, secret_files


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """A place in which the commands have run on good data."""
    return places.honest(Ground(tmp_path_factory.mktemp("honest")))


@pytest.fixture
def ground(honest, tmp_path):
    """A copy of the honest place, and secrets outside of it."""
    ground = Ground(tmp_path)
    ground.place.rmdir()
    shutil.copytree(honest, ground.place, symlinks=True)
    (ground.place / "made").mkdir()
    secret_files(ground.outside, ground.token)
    return ground
