"""A large field of a batch is copied by several threads, each a part: one alone does not fill the bus of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from datacheck.cpus import usable_cpus

_PART = 1 << 24  # bytes; of less, starting a thread takes longer than it saves
_MOST = 8  # threads; more copy no faster


def threads_here() -> int:
    """Return how many threads may copy; 1 in a worker of PyTorch, and where the caller is a thread itself."""
    if threading.current_thread() is not threading.main_thread():
        return 1
    allowed: int = torch.get_num_threads()
    return min(_MOST, allowed, usable_cpus())


def in_parts(copy: Callable[[int, int], object], count: int, size: int, *, apart: bool = True) -> None:
    """Call ``copy(first, stop)`` until each of `count` samples is copied.

    Args:
        copy: copies samples [first, stop) of a batch; may be called by several threads at once.
        count: samples of the batch.
        size: their bytes.
        apart: whether parts may be copied apart; else `copy` is called once.

    Raises:
        Exception: that of the first part that failed; all parts have ended then, and no thread is left.

    Notes:
        Of two damaged samples that one is named which a part comes upon first: that depends on the number of threads.
    """
    parts = min(threads_here(), count, size // _PART) if apart and size >= 2 * _PART else 1
    if parts < 2:
        copy(0, count)
        return
    ends = [count * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        try:
            rest = pool.map(copy, ends[1:-1], ends[2:])
        except RuntimeError:  # the system, or an interpreter that ends, grants no thread
            copy(0, count)
            return
        copy(0, ends[1])
    for _ in rest:  # raises what a part did
        pass
