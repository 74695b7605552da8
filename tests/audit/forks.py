"""Loaders of a scan in forks of a process that has imported datacheck: a new interpreter takes 0.2 s for each.

The forks have the variables, hash seed and working folder of the new process that a scan would start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from datacheck.plugins import module_folders, resolve
from datacheck.scan.loader_audit.loader_process import Loader
from datacheck.workers import child, fork_server

_SERVE = fork_server._BOOT.replace("datacheck.workers.fork_server", __name__)

_IDLE_S = 600.0  # the server ends with its parent at the latest


@contextmanager
def forked_loaders() -> Iterator[None]:
    """Let scans fork their loaders."""

    def fork(loader: Loader, arguments: list[str], environment: dict[str, str]) -> child.Process:
        with mock.patch.object(fork_server, "_BOOT", _SERVE):
            forked = fork_server.fork(
                arguments[1],
                arguments[3],
                environment,
                loader._counter.fileno(),
                loader._noise.fileno(),
                module_folders(),
            )
        assert forked is not None
        return forked

    with mock.patch.object(Loader, "_spawn", fork):
        yield


def serve(parent: int, idle_s: float) -> None:
    """Serve as the fork server does; its children find modules in the working folder first."""
    resolve("datacheck.scan.loader_audit.loader_child:")
    run = child.serve

    def serve_beside() -> None:
        sys.path.insert(0, os.getcwd())
        run()

    child.serve = serve_beside
    fork_server.serve(parent, max(idle_s, _IDLE_S))
