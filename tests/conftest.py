"""What all tests share: where the folder of real data is, and Hypothesis profiles."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from datacheck.workers import fork_server
from tests import forked

settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")
# Hypothesis would parse each loaded module for constants, for 6 s. Which ones are loaded depends on
# the tests before; without them the examples of a test are the same in each run.
providers._get_local_constants = lambda: providers._local_constants

REPOSITORY = Path(__file__).resolve().parent.parent


# As of `nohup ... &`; what tests start would ignore it, too
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _unsynced(descriptor: int) -> None:
    os.fstat(descriptor)


os.fsync = _unsynced  # the power stays on: which files must be synced, and when, tests see at the door (`System.sync`)


# A server takes a second of processor time to start; tests that fork nothing lie between those that do.
fork_server._IDLE_S = 30.0


def pytest_collection_finish() -> None:
    """Keep what collection made out of each later collection of garbage, which would take a second to search it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data files that nobody here wrote; not part of the product."""
    root = Path(os.environ.get("DATACHECK_SHARED", REPOSITORY.parent / "shared")) / "data"
    if not root.is_dir():
        pytest.skip("the folder of real data files is not on this machine (DATACHECK_SHARED)")
    return root


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python that has imported PyTorch already; see `tests.forked`."""
    executable, held = forked.python(shared_folder(tmp_path_factory), REPOSITORY)
    with held:
        yield str(executable)


@pytest.fixture
def forked_workers(forked_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let multiprocessing start processes, of which each would import PyTorch, with `forked_python`."""
    monkeypatch.setattr("multiprocessing.spawn._python_exe", os.fsencode(forked_python))


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of this run of the tests, that of all workers."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
