"""worker_context: worker processes of a plain DataLoader that may die at any moment without stopping the loop."""

from __future__ import annotations

import copy
import multiprocessing
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any

from datacheck.errors import UsageError


class _Flag:
    """An event without a lock: one process sets it, the others only look.

    Args:
        context: how the processes are started.
    """

    def __init__(self, context: BaseContext) -> None:
        self._set = context.RawValue("b", 0)

    def set(self) -> None:
        """Say so."""
        self._set.value = 1

    def is_set(self) -> bool:
        """Return whether it was said."""
        return bool(self._set.value)


def worker_context(start: str | None = None) -> Any:
    """Return what `DataLoader` takes as `multiprocessing_context`: a worker that dies or is interrupted hangs no loop.

    Args:
        start: "fork", "spawn" or "forkserver"; None: as `multiprocessing` starts processes here.

    Raises:
        UsageError: processes are not started in this way here.

    Notes:
        A worker asks again and again whether it should end, by a `multiprocessing.Event`. Its lock is never released by
        a worker that is killed (out of memory) or gets a Ctrl-C while it asks; the DataLoader, which wants to tell that
        the worker has died, then waits for ever. This event has no lock. Batches and their order are the same.
    """
    try:
        context: Any = copy.copy(multiprocessing.get_context(start or multiprocessing.get_start_method()))
    except ValueError as error:
        allowed = ", ".join(multiprocessing.get_all_start_methods())
        msg = f"start={start!r} is no way to start processes here: {allowed}"
        raise UsageError(msg) from error
    context.Event = partial(_Flag, context)
    return context
