"""worker_context: a plain DataLoader waits for no lock that a dead worker has taken along."""

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
    """Return what `DataLoader` takes as `multiprocessing_context`, so that it waits for no lock of a worker that ended.

    Args:
        start: "fork", "spawn" or "forkserver"; None: as `multiprocessing` starts processes here.

    Raises:
        UsageError: processes are not started in this way here.

    Notes:
        A worker asks again and again whether it should end, by a `multiprocessing.Event`. Its lock is never released by
        a worker that is killed (out of memory) or gets a Ctrl-C while it asks; the DataLoader, which wants to tell that
        the worker has died, then waits for ever. This event has no lock, and the DataLoader raises. Batches and their
        order are the same. Other waits of a DataLoader stay as they are.
    """
    allowed = multiprocessing.get_all_start_methods()  # of which the first is the default
    method = (multiprocessing.get_start_method(allow_none=True) or allowed[0]) if start is None else start
    if method not in allowed:
        msg = f"start={start!r} is no way to start processes here: {', '.join(allowed)}"
        raise UsageError(msg)
    context: Any = copy.copy(multiprocessing.get_context(method))
    context.Event = partial(_Flag, context)
    return context
