"""A Python for the processes of Dask clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import shared_folder


@pytest.fixture(scope="session")
def dask_python(
    tmp_path_factory: pytest.TempPathFactory, repository: Path, forked_python: str
) -> Iterator[str]:
    """A Python that has imported Dask, which takes a second in each process."""
    modules = ("distributed.cli.dask_scheduler", "distributed.cli.dask_worker")
    executable, held = forked.python(
        shared_folder(tmp_path_factory), repository, modules, forked_python
    )
    with held:
        yield str(executable)
