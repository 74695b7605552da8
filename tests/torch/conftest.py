"""Workers of a DataLoader that are spawned import PyTorch, 2.5 s of a processor each."""

import pytest


@pytest.fixture(autouse=True)
def spawned_workers_are_forked(request: pytest.FixtureRequest) -> None:
    """Take `forked_workers` for each test that has a parameter of this name for the way to start processes."""
    values = getattr(getattr(request.node, "callspec", None), "params", {}).values()
    if {"spawn", "forkserver"} & {value for value in values if isinstance(value, str)}:
        request.getfixturevalue("forked_workers")
